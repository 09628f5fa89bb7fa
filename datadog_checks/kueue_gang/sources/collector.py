# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""One reading of everything: what changed in each resource, and the gang scheduler's own count.

Each source stands alone. One that cannot be read is named with its reason and costs what depends on it, never the run.
The first reading waits for the first lists, for at most `FIRST_WAIT` seconds, since other checks wait for the same
runner; what is not there by then is told as stale and comes later.

The scheduler is read before and after the pods are taken; its count of Permit waits is used only where it did not move
in between.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from datadog_checks.kueue_gang.facts.cluster import NOT_INSTALLED, Changes, SchedulerCount
from datadog_checks.kueue_gang.facts.health import OK, SourceHealth
from datadog_checks.kueue_gang.facts.pods import Pod
from datadog_checks.kueue_gang.facts.rejections import EVENTS
from datadog_checks.kueue_gang.facts.scheduler import SchedulerMetrics
from datadog_checks.kueue_gang.facts.trainjobs import TRAIN_JOBS
from datadog_checks.kueue_gang.sources.api import Api
from datadog_checks.kueue_gang.sources.connection import Log
from datadog_checks.kueue_gang.sources.errors import SourceError
from datadog_checks.kueue_gang.sources.reader import Timing
from datadog_checks.kueue_gang.sources.reflector import STALE, Reflector
from datadog_checks.kueue_gang.sources.resources import TRAINING, Resource
from datadog_checks.kueue_gang.sources.signals import Heard, SignalReader

SCHEDULER_METRICS = "scheduler_metrics"
#: Seconds that the first reading waits for the first lists.
FIRST_WAIT = 20.0
#: Seconds that a later reading waits for a new list that is coming in, in all and for its next piece.
LIST_WAIT = 10.0
PIECE_WAIT = 1.0

#: Field of `Changes` that holds the changes of a source.
_FIELDS = {
    "pods": "pods",
    "nodes": "nodes",
    "jobs": "jobs",
    "podgroups.scheduling.x-k8s.io": "pod_groups",
    "podgroups.scheduling.k8s.io": "pod_groups",
    "workloads.kueue.x-k8s.io": "workloads",
    "localqueues": "local_queues",
    "clusterqueues": "cluster_queues",
    "cohorts": "cohorts",
    "resourceflavors": "flavors",
    "admissionchecks": "checks",
    "topologies": "topologies",
    EVENTS: "rejections",
    TRAIN_JOBS: "train_jobs",
}
#: Sources that only add to what others tell: without them nothing else is in doubt.
_ADDING = frozenset({EVENTS, TRAIN_JOBS})


class Scheduler(Protocol):
    """What reads a scheduler's metrics."""

    def read(self) -> SchedulerMetrics:
        """Read them. Raises SourceError."""

    def abort(self) -> None:
        """End every request, from any thread."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What changed, how each source fared, why some failed, and the cluster's time.

    `lapsed` are the sources that were read before and cannot be read now. One that was uninstalled is none: it answers.
    """

    changes: Changes
    health: tuple[SourceHealth, ...]
    errors: Mapping[str, SourceError]
    scheduler: SchedulerMetrics | None
    now: float
    lapsed: frozenset[str] = frozenset()
    bad_samples: Mapping[str, int] = field(default_factory=dict)


class Collector:
    """Reads all sources."""

    def __init__(  # noqa: PLR0913 - one a source
        self,
        api: Api,
        resources: Iterable[Resource],
        log: Log,
        *,
        watch: bool = True,
        named_engines: frozenset[str] = frozenset(),
        scheduler: Scheduler | None = None,
        signals: SignalReader | None = None,
        timing: Timing | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to read.

        `named_engines` are those that the user asked for by name: their absence is told, that of others is not. Without
        `watch` each reading lists everything.
        """
        self._api = api
        self._log = log
        self._news = threading.Event()

        def follow(wanted: Iterable[Resource]) -> list[Reflector]:
            news = self._news
            return [
                Reflector(api, resource, log, timing=timing, watch=watch, news=news, monotonic=monotonic)
                for resource in wanted
            ]

        self._reflectors = follow(resources)
        scraped = follow(signals.resources if signals else ())
        #: These, and those of the pods that are scraped, which are no facts of the cluster.
        self._all = [*self._reflectors, *scraped]
        self._signals = signals
        if signals:
            signals.follow(scraped)
        # What an option asks for is missed as what the user names.
        self._named = named_engines | {TRAINING}
        self._scheduler = scheduler
        self._monotonic = monotonic
        self._scheduler_read_at: float | None = None
        self._were_up: set[str] = set()
        self._first = True
        self._stopped = threading.Event()
        self._native: set[str] = set()

    def collect(self) -> Reading:
        """Take what has come since the last reading."""
        health: list[SourceHealth] = []
        errors: dict[str, SourceError] = {}
        before = self._read_scheduler(health, errors)
        for reflector in self._all:
            reflector.start()
        self._refresh()
        if self._signals:
            self._signals.start_round()
        if self._first:
            self._first = False
            self._await_first_lists()
        else:
            self._await_new_lists()
        after = self._read_scheduler([], {}) if before else None
        changes = self._changes()
        changes.scheduler = scheduler_count(before, after, self._places_native(changes.pods))
        for reflector in self._reflectors:
            error = reflector.error
            absent = error is not None and error.reason == NOT_INSTALLED
            if absent and reflector.resource.needed_by not in self._named:
                continue
            if error:
                errors[reflector.resource.api_source] = error
            health.append(reflector.take_health())
        heard = self._hear()
        changes.signals = heard.signals
        health += heard.health
        errors |= heard.errors
        up = {one.source for one in health if one.up}
        unread = {source for source, reason in changes.unread.items() if source in _FIELDS and reason != NOT_INSTALLED}
        lapsed = self._were_up & unread | (self._were_up - up) & {SCHEDULER_METRICS}
        self._were_up |= up
        return Reading(
            changes, tuple(health), errors, after or before, self._api.now(), frozenset(lapsed), heard.bad_samples
        )  # fmt: skip

    def stop(self) -> None:
        """End all threads soon, and a reading that waits; from any thread, and without waiting."""
        self._stopped.set()
        for reflector in self._all:
            reflector.stop()
        if self._signals:
            self._signals.stop()
        if self._scheduler:
            self._scheduler.abort()
        self._news.set()

    def _refresh(self, *, again: bool = False) -> None:
        for reflector in self._all:
            reflector.refresh(again=again)

    def _hear(self) -> Heard:
        """Take the signals."""
        if self._signals is None:
            return Heard()
        jobs = next((one for one in self._reflectors if one.resource.api_source == TRAIN_JOBS), None)
        status = None if jobs is None else jobs.error.reason if jobs.error else OK if jobs.settled else STALE
        return self._signals.take(status)

    def _await_first_lists(self) -> None:
        deadline = self._monotonic() + FIRST_WAIT
        while waiting := [one.resource.api_source for one in self._all if not one.settled]:
            left = deadline - self._monotonic()
            if left <= 0:
                self._log.info("first lists of %s are not complete yet; they come with a later run", ", ".join(waiting))
                return
            self._news.wait(left)
            self._news.clear()
            if self._stopped.is_set():
                return
            self._refresh(again=True)

    def _await_new_lists(self) -> None:
        """Take new lists whole while they flow; at one feed a reading their continue tokens would expire."""
        progressed = self._monotonic()
        deadline = progressed + LIST_WAIT
        seen: list[int] = []
        while counts := [one.listing for one in self._all if one.listing is not None]:
            now = self._monotonic()
            if counts != seen:
                seen, progressed = counts, now
            left = min(deadline, progressed + PIECE_WAIT) - now
            if left <= 0 or self._stopped.is_set():
                return
            self._news.wait(left)
            self._news.clear()
            self._refresh(again=True)

    def _changes(self) -> Changes:
        taken: dict[str, list[Any]] = {field: [] for field in _FIELDS.values()}
        unread: dict[str, str] = {}
        behind: dict[str, str] = {}
        unreadable: dict[str, frozenset[tuple[str, str]]] = {}
        for reflector in self._reflectors:
            source = reflector.resource.api_source
            found = reflector.table.take_changes()
            if source in _FIELDS:
                taken[_FIELDS[source]] += found
            if source in _ADDING:
                continue
            if not reflector.usable:
                unread[source] = reflector.error.reason if reflector.error else STALE
            elif reflector.error and source in _FIELDS:
                behind[source] = reflector.error.reason
            if reflector.table.unreadable:
                unreadable[source] = frozenset(reflector.table.unreadable)
        return Changes(**taken, unread=unread, unreadable=unreadable, behind=behind)  # type: ignore[arg-type]

    def _places_native(self, pods: Sequence[tuple[Pod | None, Pod | None]]) -> frozenset[str]:
        """Return the schedulers that place native gangs, by all the pods seen so far."""
        self._native |= {
            pod.spec.scheduler
            for _, pod in pods
            if pod and any(engine == "kubernetes" for engine, _ in pod.ties.pod_groups)
        }
        return frozenset(self._native)

    def _read_scheduler(
        self, health: list[SourceHealth], errors: dict[str, SourceError]
    ) -> SchedulerMetrics | None:  # fmt: skip
        if self._scheduler is None:
            return None
        try:
            metrics = self._scheduler.read()
        except SourceError as error:
            last = self._scheduler_read_at
            errors[SCHEDULER_METRICS] = error.bare()
            age = None if last is None else self._monotonic() - last
            health.append(SourceHealth(SCHEDULER_METRICS, error.reason, age))
            return None
        self._scheduler_read_at = self._monotonic()
        health.append(SourceHealth(SCHEDULER_METRICS, OK, 0.0))
        return metrics


def scheduler_count(
    before: SchedulerMetrics | None, after: SchedulerMetrics | None, native: frozenset[str]
) -> SchedulerCount | None:
    """Return what two readings of the scheduler, before and after the pods, say of the pods that wait in Permit.

    There is no count where it moved in between, or where the process also places native gangs: it counts those twice.
    `native` names the schedulers of native gangs.
    """
    if before is None:
        return None
    still = after is not None and (before.entered, before.ended) == (after.entered, after.ended)
    places_native = before.places_pod_groups or bool(native & before.profiles)
    return SchedulerCount(before.permit_waiting if still and not places_native else None, before.profiles)
