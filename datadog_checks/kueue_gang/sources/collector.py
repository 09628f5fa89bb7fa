# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""One reading of everything: the lists of the API server and the gang scheduler's own count.

Each source stands alone. One that cannot be read is named with its reason and costs what depends on it, never the run.
Pods come first, since what they name is read after them: a pod of the reading then finds its PodGroup and its node,
unless they are truly gone. The scheduler is read before and after the pods; its count of Permit waits is used only where
it did not move in between.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from datadog_checks.kueue_gang.facts.cluster import NOT_INSTALLED, Cluster, SchedulerCount
from datadog_checks.kueue_gang.facts.health import OK, SourceHealth
from datadog_checks.kueue_gang.facts.pods import Pod
from datadog_checks.kueue_gang.facts.scheduler import SchedulerMetrics
from datadog_checks.kueue_gang.sources.api import Listing
from datadog_checks.kueue_gang.sources.errors import SourceError
from datadog_checks.kueue_gang.sources.resources import Resource

SCHEDULER_METRICS = "scheduler_metrics"

#: Field of `Cluster` that holds the facts of a source.
_FIELDS = {
    "pods": "pods",
    "nodes": "nodes",
    "jobs": "jobs",
    "podgroups.scheduling.x-k8s.io": "pod_groups",
    "podgroups.scheduling.k8s.io": "pod_groups",
    "workloads.kueue.x-k8s.io": "workloads",
    "clusterqueues": "cluster_queues",
    "localqueues": "local_queues",
    "cohorts": "cohorts",
    "resourceflavors": "flavors",
    "topologies": "topologies",
}


class Lists(Protocol):
    """What reads a list: `sources.api.Api`, or a folder of recorded objects."""

    def list(self, resource: Resource) -> Listing:
        """Read all objects of a resource. Raises SourceError."""

    def now(self) -> float:
        """Return the cluster's time in seconds since the epoch."""


class Scheduler(Protocol):
    """What reads a scheduler's metrics."""

    def read(self) -> SchedulerMetrics:
        """Read them. Raises SourceError."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The facts, how each source fared, why some failed, and the cluster's time at the end.

    `lapsed` says that a source that was read before could not be read now.
    """

    cluster: Cluster
    health: tuple[SourceHealth, ...]
    errors: Mapping[str, SourceError]
    scheduler: SchedulerMetrics | None
    now: float
    lapsed: bool = False


@dataclass(slots=True)
class Collector:
    """Reads all sources, and remembers when each was last read whole.

    `named_engines` are the engines that the user asked for by name: their absence is told, that of others is not.
    """

    lists: Lists
    resources: Iterable[Resource]
    named_engines: frozenset[str] = frozenset()
    scheduler: Scheduler | None = None
    monotonic: Callable[[], float] = time.monotonic
    _read_at: dict[str, float] = field(default_factory=dict)

    def collect(self) -> Reading:
        """Read everything once."""
        health: list[SourceHealth] = []
        errors: dict[str, SourceError] = {}
        facts: dict[str, list[Any]] = {name: [] for name in _FIELDS.values()}
        unread: dict[str, str] = {}
        unreadable: dict[str, frozenset[tuple[str, str]]] = {}
        before = self._scheduler(health, errors)
        after: SchedulerMetrics | None = None
        for resource in self.resources:
            source = resource.api_source
            try:
                listing = self.lists.list(resource)
            except SourceError as error:
                unread[source] = error.reason
                if error.reason != NOT_INSTALLED or resource.needed_by in self.named_engines:
                    errors[source] = error
                    health.append(self._down(source, error))
            else:
                self._read_at[source] = self.monotonic()
                facts[_FIELDS[source]] += listing.facts
                if listing.bad_names:
                    unreadable[source] = frozenset(listing.bad_names)
                health.append(SourceHealth(source, OK, 0.0, listing.objects, 1, listing.bad))
            if source == "pods" and before:
                after = self._scheduler([], {})
        cluster = Cluster(
            **facts,  # type: ignore[arg-type]
            scheduler=scheduler_count(before, after, facts["pods"]),
            unread=unread,
            unreadable=unreadable,
        )
        down = {one.source for one in health if not one.up}
        return Reading(
            cluster, tuple(health), errors, after or before, self.lists.now(), lapsed=bool(down & self._read_at.keys())
        )

    def _scheduler(self, health: list[SourceHealth], errors: dict[str, SourceError]) -> SchedulerMetrics | None:
        if self.scheduler is None:
            return None
        try:
            metrics = self.scheduler.read()
        except SourceError as error:
            errors[SCHEDULER_METRICS] = error
            health.append(self._down(SCHEDULER_METRICS, error))
            return None
        self._read_at[SCHEDULER_METRICS] = self.monotonic()
        health.append(SourceHealth(SCHEDULER_METRICS, OK, 0.0))
        return metrics

    def _down(self, source: str, error: SourceError) -> SourceHealth:
        last = self._read_at.get(source)
        return SourceHealth(source, error.reason, None if last is None else self.monotonic() - last)


def scheduler_count(
    before: SchedulerMetrics | None, after: SchedulerMetrics | None, pods: Iterable[Pod]
) -> SchedulerCount | None:
    """Return what two readings of the scheduler, before and after the pods, say of the pods that wait in Permit.

    There is no count where it moved in between, or where the process also places native gangs: it counts those twice.
    """
    if before is None:
        return None
    still = after is not None and (before.entered, before.ended) == (after.entered, after.ended)
    native = before.places_pod_groups or any(
        pod.spec.scheduler in before.profiles and engine == "kubernetes"
        for pod in pods
        for engine, _ in pod.ties.pod_groups
    )
    return SchedulerCount(before.permit_waiting if still and not native else None, before.profiles)
