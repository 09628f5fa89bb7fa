# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""From the picture to metrics: the only place that submits.

`samples` is pure: it lists what a picture says, without zeros. `Emitter` adds the zeros that monitors need to recover
and hands everything to the Agent. What a zero means matters: a series whose source lapsed is not zero but unknown, so
no zero is sent while something that was read before cannot be read now.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Protocol

from datadog_checks.kueue_gang.catalog import OWN
from datadog_checks.kueue_gang.derive.picture import Picture
from datadog_checks.kueue_gang.derive.spent import Spent
from datadog_checks.kueue_gang.emit_gang import EmitOptions, one_gang
from datadog_checks.kueue_gang.emit_kueue import quota, topology
from datadog_checks.kueue_gang.emit_time import happened, spent, workloads
from datadog_checks.kueue_gang.facts.health import SourceHealth
from datadog_checks.kueue_gang.facts.scheduler import SchedulerMetrics
from datadog_checks.kueue_gang.sampling import Sample, Tags, age, queue_tags, sample, tag

#: States that every queue with a gang tells, also where no gang has them.
_ALWAYS_TOLD = ("running", "partial")


class Agent(Protocol):
    """The submission methods of an Agent check."""

    def gauge(self, name: str, value: float, tags: Sequence[str] | None = None) -> None:
        """Submit a gauge."""

    def count(self, name: str, value: float, tags: Sequence[str] | None = None) -> None:
        """Submit a difference since the last run."""

    def monotonic_count(self, name: str, value: float, tags: Sequence[str] | None = None) -> None:
        """Submit a running total."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one run has to say: the picture (None where the API is not read), the sources, the scheduler's metrics.

    `spent` are the GPU-seconds since the run before.
    """

    picture: Picture | None
    health: Sequence[SourceHealth]
    scheduler: SchedulerMetrics | None = None
    bad_samples: Mapping[str, int] = field(default_factory=dict)
    spent: Spent = field(default_factory=Spent)


def samples(report: Report, options: EmitOptions) -> list[Sample]:
    """List everything that a report says."""
    found: list[Sample] = []
    if report.picture is not None:
        picture = report.picture
        if picture.pods_known:
            found += _gangs(picture)
            found += one_gang(picture, options)
            found += _pod_gpus(picture)
        found += _node_gpus(picture)
        found += topology(picture)
        found += quota(picture)
        found += workloads(picture)
        found += happened(picture)
        found += spent(report.spent)
        found += [
            sample("unobservable", number, tag("signal", signal), tag("reason", reason))
            for (signal, reason), number in picture.unobservable.items()
        ]
    found += _sources(report)
    if report.scheduler:
        found += _scheduler(report.scheduler)
    return found


def _gangs(picture: Picture) -> Iterator[Sample]:
    summary = picture.summary
    for queue in summary.queues:
        for state in _ALWAYS_TOLD:
            if (queue, state) not in summary.states:
                yield sample("gangs", 0, *queue_tags(queue), tag("gang_state", state))
    for (queue, state), number in summary.states.items():
        yield sample("gangs", number, *queue_tags(queue), tag("gang_state", state))
    for (queue, state), clocks in summary.clocks.items():
        oldest = age(picture, min(clocks.values()))
        yield sample("gangs.oldest_seconds", oldest, *queue_tags(queue), tag("gang_state", state))
    for queue, clocks in summary.waits.items():
        yield sample("members.permit_wait_oldest_seconds", age(picture, min(clocks.values())), *queue_tags(queue))
    for (engine, reason), number in summary.unguarded.items():
        yield sample("gangs.unguarded", number, tag("gang_engine", engine), tag("reason", reason))
    verdicts = picture.verdicts
    for name, key, counted in (
        ("members", "member_state", summary.members),
        ("gangs.stalled", "stall_reason", summary.stalled),
        ("gangs.blocked", "blocker", verdicts.blocked),
    ):
        for (queue, what), number in counted.items():
            yield sample(name, number, *queue_tags(queue), tag(key, what))
    if verdicts.deadlocked:
        yield sample("gangs.deadlocked", len(verdicts.deadlocked))
    for resource, amount in verdicts.deadlocked_gpus.items():
        yield sample("gpus.deadlocked", amount, tag("gpu_resource", resource))


def _pod_gpus(picture: Picture) -> Iterator[Sample]:
    gpus = picture.gpus
    totals: dict[str, int] = dict.fromkeys(picture.nodes or (), 0)
    for (queue, resource, use), amount in gpus.allocated.items():
        yield sample("gpus.allocated", amount, *queue_tags(queue), tag("gpu_resource", resource), tag("gpu_use", use))
        totals.setdefault(resource, 0)
    for (queue, resource, reason), amount in gpus.idle.items():
        yield sample("gpus.idle", amount, *queue_tags(queue), tag("gpu_resource", resource), tag("idle_reason", reason))
        totals[resource] += amount
    for resource, amount in totals.items():
        # Only the nodes tell which GPUs are held on lost ones: without them some may be idle, and none is no answer.
        if not gpus.unknown[resource] and (amount or picture.nodes is not None):
            yield sample("gpus.idle_total", amount, tag("gpu_resource", resource))
    for (queue, resource), amount in gpus.reserved.items():
        yield sample("gpus.reserved", amount, *queue_tags(queue), tag("gpu_resource", resource))


def _node_gpus(picture: Picture) -> Iterator[Sample]:
    for resource, totals in (picture.nodes or {}).items():
        of = tag("gpu_resource", resource)
        if totals.capacity:
            yield sample("gpus.capacity", totals.capacity, of)
        if totals.unhealthy:
            yield sample("gpus.unhealthy", totals.unhealthy, of)
        yield sample("gpus.allocatable", totals.allocatable, of)
        yield sample("gpus.schedulable", totals.schedulable, of)
        if picture.free_known:
            yield sample("gpus.free", totals.free, of)


def _sources(report: Report) -> Iterator[Sample]:
    for health in report.health:
        source = tag("api_source", health.source)
        yield sample("source.up", int(health.up), source, tag("reason", health.reason))
        if health.age is not None:
            yield sample("source.age_seconds", health.age, source)
        if health.objects:
            yield sample("source.objects", health.objects, source)
        if health.resyncs:
            yield sample("source.resyncs", health.resyncs, source)
        if health.bad:
            yield sample("source.bad_objects", health.bad, source)
    for reason, number in report.bad_samples.items():
        yield sample("source.bad_samples", number, tag("reason", reason))


def _scheduler(metrics: SchedulerMetrics) -> Iterator[Sample]:
    if metrics.permit_waiting is not None:
        yield sample("scheduler.permit_waiting", metrics.permit_waiting)
    yield sample("scheduler.permit_entered", metrics.entered)
    for result, seconds in metrics.wait_seconds.items():
        yield sample("scheduler.permit_wait_seconds.sum", seconds, tag("result", result))
    for result, number in metrics.ended.items():
        yield sample("scheduler.permit_wait_seconds.count", number, tag("result", result))
    for queue, number in _nonzero(metrics.pending_pods):
        yield sample("scheduler.pending_pods", number, tag("queue", queue))
    for plugin, number in _nonzero(metrics.unschedulable_pods):
        yield sample("scheduler.unschedulable_pods", number, tag("plugin", plugin))
    if metrics.assumed_pods:
        yield sample("scheduler.assumed_pods", metrics.assumed_pods)


def _nonzero(numbers: Mapping[str, float]) -> list[tuple[str, float]]:
    return [(key, number) for key, number in numbers.items() if number]


def phases(durations: Mapping[str, float]) -> list[Sample]:
    """Return how long the phases of a run took, in seconds."""
    return [sample("run_seconds", seconds, tag("phase", phase)) for phase, seconds in durations.items()]


#: (name of the metric, tags).
_Series = tuple[str, Tags]
#: What only a signal tells ends also some time after that cannot be read any more.
_TOLD_BY: Mapping[str, str] = {
    "idle_reason:inactive": "activity",
    "stall_reason:all_idle": "activity",
    "stall_reason:some_idle": "activity",
    "stall_reason:no_progress": "training",
    "stall_reason:slow": "training",
}


class Emitter:
    """Submits samples, and remembers which series must still be told as 0."""

    def __init__(self, agent: Agent, options: EmitOptions) -> None:
        """Take the check that submits, and the options."""
        self._agent = agent
        self._options = options
        #: Series with a zero tail: when each was last not zero (monotonic seconds).
        self._last: dict[_Series, float] = {}
        #: Those that ended when sources lapsed, with these sources, and the sources that have lapsed.
        self._unknown: dict[_Series, frozenset[str]] = {}
        self._lapsed: frozenset[str] = frozenset()

    def emit(self, report: Report, now: float, *, lapsed: frozenset[str] = frozenset()) -> int:
        """Submit a report.

        Args:
            report: what to say.
            now: monotonic time in seconds.
            lapsed: the sources that were read before and cannot be read now. A series that ends as one lapses is
                unknown, not zero, until that source is back.

        Returns:
            The number of series that were submitted.

        """
        found = samples(report, self._options)
        blind = frozenset(one.source for one in report.health if not one.up) & frozenset(_TOLD_BY.values())
        return self.submit(found + self._tail(found, now, lapsed, blind))

    def submit(self, found: Iterable[Sample]) -> int:
        """Submit samples; zeros only of the metrics that are sent as 0."""
        agent, own = self._agent, self._options.tags
        methods = {"gauge": agent.gauge, "count": agent.count, "total": agent.monotonic_count}
        number = 0
        for metric, value, tags in found:
            if isfinite(value):
                methods["total" if metric.total else metric.type](metric.name, value, tags=[*own, *tags])
                number += 1
        return number

    def _tail(
        self, found: list[Sample], now: float, lapsed: frozenset[str], blind: frozenset[str]
    ) -> list[Sample]:  # fmt: skip
        """Return the zeros of series that fell to zero or vanished a short while ago; `blind`: signals not read."""
        lost, self._lapsed = lapsed - self._lapsed, lapsed
        told: set[_Series] = set()
        for metric, value, tags in found:
            if metric.zero == "tail":
                key = metric.name, tags
                told.add(key)
                if value:
                    self._last[key] = now
                    self._unknown.pop(key, None)
        zeros = []
        for key in list(self._last):
            if key in told:
                continue
            unseen = lost | {_TOLD_BY[tag] for tag in key[1] if tag in _TOLD_BY} & blind
            if unseen:
                self._unknown[key] = self._unknown.get(key, frozenset()) | unseen
            causes = self._unknown.get(key)
            if causes and causes & (lapsed | blind):
                continue
            if causes:
                # Now it is known to be zero: its tail begins.
                del self._unknown[key]
                self._last[key] = now
            if now - self._last[key] > self._options.zero_tail:
                del self._last[key]
            else:
                zeros.append(Sample(OWN[key[0]], 0, key[1]))
        return zeros
