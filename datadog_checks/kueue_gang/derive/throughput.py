# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""How fast gangs get on, from what their pods, a Prometheus server or their TrainJobs say.

The samples of a pod count for the gang in which it is a member that is up: one that terminates, or is not up yet, is
left out, so a rank that is being replaced is not counted twice. Over the ranks of a gang samples are added up, or the
largest is taken. A sum takes all: where a pod that told before does not tell now, or one was not asked yet, it is
unknown. Pods that never told have nothing to tell (often only rank 0 does).

Rates change with each run, and the components of the cluster do not: what is derived here stands beside them. Only
that a gang is stalled, or no more, is told to its component.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter
from typing import NamedTuple

from datadog_checks.kueue_gang.derive.level import Level
from datadog_checks.kueue_gang.derive.meters import Meter
from datadog_checks.kueue_gang.derive.picture import Headway, Rate
from datadog_checks.kueue_gang.derive.rules import Rules, TrainingRule
from datadog_checks.kueue_gang.derive.stalls import NO_PROGRESS, SLOW, Course
from datadog_checks.kueue_gang.derive.transitions import Key
from datadog_checks.kueue_gang.facts.cluster import Change
from datadog_checks.kueue_gang.facts.pods import Pod
from datadog_checks.kueue_gang.facts.signals import Signals, TrainJob

#: The api_source of TrainJobs.
TRAIN_JOBS = "trainjobs"

#: Seconds after which samples of what is no member of a gang that runs are forgotten: a query may tell of thousands of
#: pods that come and go. And after which what is known of a gang that does not run any more is; how often that is done.
_SAMPLES, _FORGOTTEN, _SWEEP = 1800.0, 4 * 3600.0, 600.0
#: Pauses are remembered for an hour: they make no window longer.
_LONGEST = 3600.0

#: (namespace, name) of a pod or of a gang -> the series of each source.
_Meters = dict[tuple[str, str], dict[int, Meter]]


class Runner(NamedTuple):
    """A gang that runs (`judged`) or finishes: its members that are up, the GPUs that it holds, since when it is.

    `made` is when the objects were created that make it a gang: another job may get its name.
    """

    key: Key
    namespace: str
    name: str
    complete: float | None
    members: Sequence[Pod]
    gpus: Mapping[str, int]
    judged: bool
    made: tuple[float, ...] = ()


class Judged(NamedTuple):
    """What is told of the gangs that run: of those that tell something how they get on, by key; `unseen` do not.

    `changed` are those that stall now, for another reason, or do not any more.
    """

    headway: dict[Key, Headway]
    changed: set[Key]
    unseen: int


@dataclass(slots=True)
class _Told:
    """What one source tells of a gang at present: series that are fresh, and the rate of all ranks where it is known.

    `at` is when the newest of the samples was. `known` tells whether the source ever told of the gang.
    """

    source: int
    rule: TrainingRule
    fresh: Sequence[Meter] = ()
    rate: float | None = None
    at: float = -inf
    known: bool = False


@dataclass(slots=True)
class _Known:
    """What is remembered of a gang; `seen` is when it ran last."""

    complete: float | None = None
    course: Course = field(default_factory=Course)
    levels: dict[int, Level] = field(default_factory=dict)
    stall: str = ""
    seen: float = -inf
    made: tuple[float, ...] = ()


class ThroughputBook:
    """Remembers the samples of pods, gangs and TrainJobs, and what came of them."""

    def __init__(self, rules: Rules) -> None:
        """Begin without samples."""
        self._rules, self._begins = rules.training, rules.inactive_after
        self._pods: _Meters = {}
        self._gangs: _Meters = {}
        self._jobs: dict[tuple[str, str], TrainJob] = {}
        #: When a new report of a TrainJob was seen, by the clock of the samples: that of the trainer may be any.
        self._reported: dict[tuple[str, str], float] = {}
        self._known: dict[Key, _Known] = {}
        self._swept = -inf
        #: Now by the clock of the samples, and what is added to it for the time of the cluster.
        self._clock = self._offset = 0.0
        self._jobs_known = False
        self._awaited: frozenset[tuple[int, str, str]] = frozenset()

    def take(self, signals: Signals, jobs: Iterable[Change[TrainJob]], now: float, *, jobs_known: bool) -> None:
        """Take the samples of a run at `now` of the cluster's time; `jobs_known`: TrainJobs can be read at present."""
        self._clock, self._offset, self._jobs_known = signals.clock, now - signals.clock, jobs_known
        for old, new in jobs:
            self._take_job(old, new, now)
        self._awaited = frozenset(signals.awaited)
        for source, namespace, pod in signals.silent:
            meter = self._pods.get((namespace, pod), {}).get(source)
            if meter:
                meter.silent = True
        for pace in sorted(signals.paces, key=attrgetter("at", "value")):
            holder, name = (self._gangs, pace.gang) if pace.gang else (self._pods, pace.pod)
            meters = holder.setdefault((pace.namespace, name), {})
            known = meters.get(pace.source)
            if known is None or known.counter != pace.counter:
                meters[pace.source] = Meter.begin(pace)
            else:
                known.take(pace)

    def _take_job(self, old: TrainJob | None, new: TrainJob | None, now: float) -> None:
        if old:
            self._jobs.pop((old.namespace, old.name), None)
        if new is None:
            if old:
                self._reported.pop((old.namespace, old.name), None)
            return
        self._jobs[new.namespace, new.name] = new
        if new.updated is not None and (new.updated > now if old is None else new.updated != old.updated):
            self._reported[new.namespace, new.name] = self._clock

    def stall(self, key: Key, complete: float | None) -> str:
        """Return why a gang is stalled that is complete since then; empty where it is not."""
        known = self._known.get(key)
        return known.stall if known and known.complete == complete else ""

    def judge(self, runners: Mapping[Key, Runner]) -> Judged:
        """Return how the gangs that run get on."""
        found = Judged({}, set(), sum(runner.judged for runner in runners.values()))
        headway, changed, unseen = found
        for key, runner in runners.items():
            known = self._known.get(key) or _Known(made=runner.made)
            if known.made != runner.made:
                # A new job with an old name: how fast that one was tells nothing.
                known = _Known(made=runner.made, stall=known.stall)
            told = [one for one in self._told(runner, known) if one.known]
            if not told and key not in self._known:
                continue
            self._known[key] = known
            known.seen = self._clock
            if known.complete != runner.complete:
                known.complete = runner.complete
                for level in known.levels.values():
                    level.interrupted()
            winners = list(_first_of_each_unit(told))
            stall = self._stall(runner, known, told, winners) if runner.judged else ""
            if stall != known.stall:
                known.stall = stall
                changed.add(key)
            job = self._jobs.get((runner.namespace, runner.name))
            progress = job.progress if job and any(one.rule.train_jobs for one in told) else None
            rates = tuple(_rates(winners, runner.gpus, hung=stall == NO_PROGRESS))
            if rates or progress is not None:
                headway[key] = Headway(rates, progress)
            if runner.judged and (rates or any(one.fresh for one in told if one.rule.train_jobs)):
                unseen -= 1
        self._sweep(runners)
        return found._replace(unseen=unseen)

    # --- rates -------------------------------------------------------------------------------------------------------

    def _told(self, runner: Runner, known: _Known) -> Iterator[_Told]:
        """Yield what each source tells of a gang."""
        of_pods: dict[int, list[Meter]] = {}
        for pod in runner.members:
            for source, meter in self._pods.get((pod.namespace, pod.name), {}).items():
                if meter.first + self._offset < pod.created:
                    # Those samples are of a pod that had the same name.
                    meter.forget(pod.created - self._offset)
                if meter.first + self._offset >= pod.created:
                    of_pods.setdefault(source, []).append(meter)
        of_gang = self._gangs.get((runner.namespace, runner.name), {})
        for source, rule in enumerate(self._rules):
            if rule.train_jobs:
                yield self._of_job(source, rule, runner, known)
                continue
            meters = of_pods.get(source, [])
            if source in of_gang:
                meters = [*meters, of_gang[source]]
            whole = not self._awaited or self._awaited.isdisjoint(
                (source, pod.namespace, pod.name) for pod in runner.members
            )
            yield self._over_ranks(source, rule, meters, whole=whole)

    def _over_ranks(self, source: int, rule: TrainingRule, meters: Sequence[Meter], *, whole: bool) -> _Told:
        """Return what the pods of a gang tell together; `whole`: all of them were asked."""
        oldest = self._clock - rule.stalled_after
        fresh = [meter for meter in meters if not meter.silent and meter.at >= oldest]
        rates = [meter.rate for meter in fresh if meter.rate is not None]
        rate: float | None = None
        if rule.over_ranks == "max":
            rate = max(rates, default=None)
        elif whole and rates and len(rates) == len(meters):
            rate = sum(rates)
        return _Told(source, rule, fresh, rate, max((meter.at for meter in fresh), default=-inf), known=bool(meters))

    def _of_job(self, source: int, rule: TrainingRule, runner: Runner, known: _Known) -> _Told:
        """Return what a TrainJob tells: the API says at any time when it was last told of.

        Reports that come while the check looks are as old as it knows them: clocks of trainers may be wrong.
        """
        job = self._jobs.get((runner.namespace, runner.name))
        if job is None or job.updated is None or not self._jobs_known:
            return _Told(source, rule)
        updated = self._reported.get((job.namespace, job.name), min(job.updated - self._offset, self._clock))
        value = job.metrics.get(rule.metric) if rule.metric else None
        meter = Meter(self._clock, value or 0.0, counter=False, first=-inf, grown=updated)
        patience = known.course.patience(self._clock, rule.stalled_after)
        # What it said before the gang was complete is the rate of another attempt.
        if value is not None and self._clock - updated <= patience and updated >= self._since(runner):
            meter.rate = value
        return _Told(source, rule, [meter], meter.rate, updated, known=True)

    def _since(self, runner: Runner) -> float:
        """Return since when a gang is complete, by the clock of the samples."""
        return -inf if runner.complete is None else runner.complete - self._offset

    # --- stalls ------------------------------------------------------------------------------------------------------

    def _stall(self, runner: Runner, known: _Known, told: Sequence[_Told], winners: Sequence[_Told]) -> str:
        course = known.course
        complete = self._since(runner)
        fresh = [(one, meter) for one in told for meter in one.fresh]
        course.saw(max((meter.grown for _, meter in fresh if meter.grown is not None), default=-inf), complete)
        if not fresh:
            return ""
        stalled_after = max(one.rule.stalled_after for one, _ in fresh)
        usual = course.patience(self._clock, stalled_after)
        for one in winners:
            level = known.levels.setdefault(one.source, Level())
            if one.rate is not None:
                level.take(one.at, one.rate, dict(runner.gpus), max(stalled_after, min(usual, _LONGEST)))
        if course.stands([(meter.first, meter.at) for _, meter in fresh], complete, usual, self._begins):
            return NO_PROGRESS
        levels = [known.levels[one.source] for one in winners if one.fresh]
        return SLOW if levels and all(level.slow for level in levels) else ""

    def _sweep(self, runners: Mapping[Key, Runner]) -> None:
        """Forget what has been of no use for long, now and then."""
        for key in self._known.keys() - runners.keys():
            self._known[key].stall = ""
        if self._clock - self._swept < _SWEEP:
            return
        self._swept, oldest = self._clock, self._clock - _SAMPLES
        members = {(pod.namespace, pod.name) for runner in runners.values() for pod in runner.members}
        gangs = {(runner.namespace, runner.name) for runner in runners.values()}
        for holder, wanted in ((self._pods, members), (self._gangs, gangs)):
            for name in [name for name in holder if name not in wanted]:
                if all(meter.at < oldest for meter in holder[name].values()):
                    del holder[name]
        oldest = self._clock - _FORGOTTEN
        for key in [key for key, known in self._known.items() if known.seen < oldest]:
            del self._known[key]


def _first_of_each_unit(told: Iterable[_Told]) -> Iterable[_Told]:
    """Return of the sources that tell of a gang the first of each unit that has a rate, or the first where none has."""
    found: dict[str, _Told] = {}
    for one in told:
        tells_rates = bool(one.rule.metric) or not one.rule.train_jobs
        before = found.get(one.rule.unit)
        if tells_rates and (before is None or (before.rate is None and one.rate is not None)):
            found[one.rule.unit] = one
    return found.values()


def _rates(told: Iterable[_Told], gpus: Mapping[str, int], *, hung: bool) -> Iterator[Rate]:
    held = list(gpus.values())
    for one in told:
        # A process that hangs still serves its last gauge: that is no rate any more.
        if one.rate is not None and not (hung and any(meter.frozen for meter in one.fresh)):
            yield Rate(one.rule.unit, one.rate, one.rate / held[0] if len(held) == 1 and held[0] else None)
