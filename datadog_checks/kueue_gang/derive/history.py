# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""From one picture to the next: gangs that began to run, were rejected or evicted, and what their attempts cost.

An attempt of a gang is one admission of its Workload, or for a gang without one the time until nothing of it is placed
any more. What is remembered of it is little: whether a part of it was placed, whether it ran, what it holds. The times
are those of the API, so that a check which was restarted tells of a transition what the one before would have told.

The first reading of a cluster tells nothing: what is there has happened before. From then on a transition counts when
it is seen, and that of an object which was not seen before only when it is not older than the reading before. So a
restart loses at most what happens while no check runs, and counts nothing twice. The same holds for a source that
cannot be read for a while: a gang that is not seen any more because its pods or its Workload are not has not ended.

Rejections come from two sources, and one that both tell of counts once. An Event has its own time: it counts when that
is more than `_ONE` seconds after what was counted of the gang before, and after the first reading. A new text of a pod
has no time (the condition keeps that of its first failure), so it stands for some moment between the reading before and
this one: it counts when no Event of the gang falls there, and Events that come later and do are of what it told. So
the count is a lower bound: it lacks a repeated rejection of which no Event is written, and one of two between the same
readings where a text came before the Events. Events that cannot be read take away nothing but themselves.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from datadog_checks.kueue_gang.derive.picture import NONE, Evicted, Happenings, Note, Queue
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.derive.stages import Eviction, counts, evictions, reached
from datadog_checks.kueue_gang.derive.states import FINISHED, UNPLACED
from datadog_checks.kueue_gang.derive.transitions import Key
from datadog_checks.kueue_gang.facts.cluster import Changes
from datadog_checks.kueue_gang.facts.pods import Pod
from datadog_checks.kueue_gang.facts.quantity import Units
from datadog_checks.kueue_gang.facts.rejections import Rejection
from datadog_checks.kueue_gang.facts.texts import REJECTIONS, rejection
from datadog_checks.kueue_gang.facts.workloads import Workload

WORKLOADS = "workloads.kueue.x-k8s.io"

_PARTLY = frozenset({"partial", "starting", "degraded", "waiting", "rejected"})
_RUNS = frozenset({"running", "finishing"})
#: Seconds within which what is told of a gang is one rejection: its members are written one after another.
_ONE = 2.0
#: Seconds by which a time in whole seconds may seem older than it is.
_WHOLE = 1.0


class Moment(NamedTuple):
    """A gang at the time of a picture.

    `since` is when the clock of its state began. `admitted` is when its Workload was admitted, None where it is not
    now; `workload` its name, '' for none. `ended` is when the admission before ended: by the present eviction, or with
    the next admission. `began` is when its attempt began, `complete` since when it runs. `held` are (bound at, units)
    of its placed members.
    """

    key: Key
    queue: Queue
    name: str
    state: str
    since: float | None
    workload: str
    admitted: float | None
    ended: float | None
    began: float | None
    complete: float | None
    held: tuple[tuple[float, Units], ...]
    members: Sequence[Pod]


@dataclass(slots=True)
class _Attempt:
    """What is remembered of an attempt; `watched` from its beginning on, `before` it was complete at least."""

    name: str
    queue: Queue
    admitted: float | None
    watched: bool
    before: bool = False
    partly: bool = False
    ran: bool = False
    degraded: bool = False
    held: tuple[tuple[float, Units], ...] = ()

    @property
    def gang_partial(self) -> str:
        """Whether some and not all required members were placed; false when it ran or nothing was."""
        if self.degraded or (self.partly and not self.ran):
            return "true"
        return "false" if self.ran or self.watched else "unknown"


@dataclass(slots=True)
class _Counted:
    """Until when rejections of a gang are counted, and when the latest Event of one was."""

    until: float = -inf
    heard: float = -inf


class History:
    """Remembers attempts, and tells what happened since the picture before."""

    def __init__(self, rules: Rules) -> None:
        """Begin before the first reading."""
        self._rules = rules
        self._attempts: dict[Key, _Attempt] = {}
        #: The gang of a Workload, by namespace and name.
        self._of_workload: dict[tuple[str, str], Key] = {}
        #: By pod, why it was rejected: by its text, and by Events with their times.
        self._texts: dict[tuple[str, str], str] = {}
        self._events: dict[tuple[str, str], list[tuple[float, str]]] = {}
        self._counted: dict[Key, _Counted] = {}
        #: When the first reading was.
        self._begun: float | None = None
        self._happened = Happenings()
        #: The times of the reading before, and of this one.
        self._before = self._at = 0.0
        #: What could not be read, None before the first reading.
        self._unread: Mapping[str, str] | None = None
        self._pods_known = False
        self._counting_gangs = self._counting_workloads = False

    def take(self, changes: Changes, queues: Mapping[tuple[str, str], str], now: float) -> None:
        """Take changes before the gangs are drawn; `queues` maps (namespace, LocalQueue) to its ClusterQueue."""
        self._happened, self._texts, self._events = Happenings(), {}, {}
        self._before, self._at = self._at, now
        before, self._unread = self._unread, dict(changes.unread)
        self._pods_known = "pods" not in changes.unread
        # Where a source went down or came back, what seems to have happened is that.
        self._counting_gangs = self._pods_known and before == self._unread
        self._counting_workloads = before is not None and not {WORKLOADS} & (before.keys() | self._unread.keys())
        if self._counting_workloads:
            self._take_workloads(changes.workloads, queues)
        self._take_ended(changes.workloads)
        if self._counting_gangs:
            for old, new in changes.pods:
                self._take_pod(old, new)
            self._take_events(changes.rejections)
        if self._begun is None:
            self._begun = now

    @property
    def rejected(self) -> Collection[tuple[str, str]]:
        """Namespace and name of the pods that Events say were rejected since; their gangs are to be drawn."""
        return self._events.keys()

    def draw(self, moments: Iterable[Moment], now: float) -> None:
        """Take gangs as they are drawn."""
        for moment in moments:
            if moment.state == FINISHED:
                # It may have run and ended between two pictures: nobody can say that its GPUs were held in vain.
                self._attempts.pop(moment.key, None)
                self._counted.pop(moment.key, None)
            elif self._pods_known:
                self._draw(moment, now)
                self._count_rejections(moment)

    def gone(self, keys: Iterable[Key], now: float) -> None:
        """Take gangs that are no more."""
        for key in keys:
            attempt = self._attempts.pop(key, None)
            self._counted.pop(key, None)
            if attempt:
                self._burn(attempt, "deleted", now)

    def happened(self) -> Happenings:
        """Return what happened since the picture before."""
        return self._happened

    # --- Workloads ---------------------------------------------------------------------------------------------------

    def _take_workloads(
        self, changes: Iterable[tuple[Workload | None, Workload | None]], queues: Mapping[tuple[str, str], str]
    ) -> None:
        told: set[tuple[str, str]] = set()
        for old, new in changes:
            if new is None or new.finished or not counts(new) or not self._rules.reports(new.namespace):
                continue
            place = self._place(old, new, queues)
            for stage, at, seconds in reached(old, new):
                if self._is_news(old, at):
                    self._happened.stages[*place, stage].append(seconds)
            # Of one that was here before and was not seen, only the present eviction can be news.
            past = old is None and new.created < self._before - _WHOLE
            for eviction in evictions(old, replace(new, evictions=()) if past else new):
                if self._is_news(old, eviction.at):
                    self._evict(new, place, eviction, told)

    def _take_ended(self, changes: Iterable[tuple[Workload | None, Workload | None]]) -> None:
        """Forget the attempt of a Workload that has finished, and what is known of one that is gone."""
        for old, new in changes:
            workload = new or old
            if workload is not None and (new is None or new.finished):
                key = self._of_workload.pop((workload.namespace, workload.name), None)
                if new is not None and key is not None:
                    self._attempts.pop(key, None)

    def _place(
        self, old: Workload | None, new: Workload, queues: Mapping[tuple[str, str], str]
    ) -> tuple[str, str, str]:  # fmt: skip
        known = new.cluster_queue or (old.cluster_queue if old else "") or queues.get((new.namespace, new.queue), "")
        return new.namespace, new.queue or NONE, known or NONE

    def _is_news(self, old: object | None, at: float | None) -> bool:
        """Tell whether something happened since the reading before; of an object that was known its versions say so."""
        return old is not None or (at is not None and at >= self._before - _WHOLE)

    def _evict(
        self, workload: Workload, place: tuple[str, str, str], eviction: Eviction, told: set[tuple[str, str]]
    ) -> None:
        name = workload.namespace, workload.name
        key = self._of_workload.get(name)
        attempt = self._attempts.get(key) if key else None
        unseen = eviction.number
        if attempt and attempt.admitted is not None and name not in told:
            self._happened.evicted[Evicted(*place, eviction.reason, eviction.cause, attempt.gang_partial)] += 1
            unseen -= 1
            if key and attempt.gang_partial == "true":
                at = self._at if eviction.at is None else eviction.at
                self._happened.gangs.append(Note("evicted", attempt.name, at, key, eviction.reason))
        told.add(name)
        if unseen:
            # Of an admission that came and went since the picture before nobody has seen the pods; one pod has no part.
            partial = "false" if sum(podset.count for podset in workload.podsets) == 1 else "unknown"
            self._happened.evicted[Evicted(*place, eviction.reason, eviction.cause, partial)] += unseen

    # --- gangs -------------------------------------------------------------------------------------------------------

    def _draw(self, moment: Moment, now: float) -> None:
        known = self._attempts.get(moment.key)
        attempt = known
        if known and self._is_over(known, moment):
            if not moment.workload:
                self._burn(known, "rejected", now)
            elif known.admitted is not None:
                self._burn(known, "evicted", now if moment.ended is None else moment.ended)
            attempt = None
        if attempt is None:
            began = moment.admitted if moment.workload else moment.began
            recent = began is not None and began >= self._before - _WHOLE
            watched = self._counting_gangs and (known is not None or recent)
            attempt = self._attempts[moment.key] = _Attempt(_called(moment), moment.queue, moment.admitted, watched)
        if moment.workload:
            self._of_workload[moment.key[1], moment.workload] = moment.key
        attempt.queue = moment.queue
        attempt.partly |= moment.state in _PARTLY
        attempt.before |= attempt.partly or moment.state in UNPLACED
        attempt.degraded = moment.state == "degraded"
        if moment.state in _RUNS and not attempt.ran:
            self._assemble(attempt, moment)
        # A gang that is degraded ran before, whether this check saw it or not.
        attempt.ran |= moment.state in _RUNS or attempt.degraded
        # What pods hold after an eviction, until they are gone, is of no attempt.
        over = bool(moment.workload) and moment.admitted is None
        attempt.held = () if attempt.ran or over else moment.held

    def _is_over(self, attempt: _Attempt, moment: Moment) -> bool:
        if moment.workload:
            return attempt.admitted != moment.admitted
        return (attempt.ran or bool(attempt.held)) and not moment.held and moment.state in UNPLACED

    def _assemble(self, attempt: _Attempt, moment: Moment) -> None:
        """Count a gang that runs for the first time in its attempt, unless that was before this check looked."""
        if not self._counting_gangs or moment.complete is None or moment.began is None:
            return
        # Times of nodes are asked only where nobody saw it incomplete: their clocks are not the API server's.
        if attempt.watched or attempt.before or moment.complete >= self._before - _WHOLE:
            seconds = max(0.0, moment.complete - moment.began)
            self._happened.assembled[moment.queue].append(seconds)
            news = Note("assembled", _called(moment), moment.complete, moment.key, f"{seconds:.0f}")
            self._happened.gangs.append(news)

    def _burn(self, attempt: _Attempt, reason: str, now: float) -> None:
        if attempt.ran or not self._counting_gangs:
            return
        for bound_at, units in attempt.held:
            for resource, amount in units:
                self._happened.burned[attempt.queue, resource, reason] += round(amount * max(0.0, now - bound_at))

    # --- rejections --------------------------------------------------------------------------------------------------

    def _take_pod(self, old: Pod | None, new: Pod | None) -> None:
        text = new.failure if new else None
        if new is None or text is None or new.node or (old is not None and old.failure == text):
            return
        if old is None and new.created < self._before - _WHOLE:
            return
        reason = rejection(text)
        if reason:
            self._texts[new.namespace, new.name] = reason

    def _take_events(self, changes: Iterable[tuple[Rejection | None, Rejection | None]]) -> None:
        for old, new in changes:
            # What was there at the first reading is old; what a new list brings again is not later than what counted.
            if new and self._begun is not None and new.at > max(self._begun + _WHOLE, old.at if old else -inf):
                self._events.setdefault((new.namespace, new.pod), []).append((new.at, new.reason))

    def _count_rejections(self, moment: Moment) -> None:
        if not self._texts and not self._events:
            return
        texts, events = set[str](), list[tuple[float, str]]()
        for pod in moment.members:
            name = pod.namespace, pod.name
            if name in self._texts:
                texts.add(self._texts[name])
            # Those of a pod that had the same name before are of another gang.
            events += [event for event in self._events.get(name, ()) if event[0] >= pod.created - _WHOLE]
        if not texts and not events:
            return
        counted = self._counted.setdefault(moment.key, _Counted())
        # Each rejection with the reasons that members have.
        found: list[set[str]] = []
        for at, reason in sorted(events):
            counted.heard = max(counted.heard, at)
            if at > counted.until + _ONE:
                counted.until = at
                found.append({reason})
            elif found:
                found[-1].add(reason)
        if texts and counted.heard < self._before - _ONE:
            counted.until = max(counted.until, self._at)
            found.append(texts)
        for reasons in found:
            first = next(reason for reason in REJECTIONS if reason in reasons)
            self._happened.rejected[moment.queue, first] += 1


def _called(moment: Moment) -> str:
    return f"{moment.queue.namespace}/{moment.name}"
