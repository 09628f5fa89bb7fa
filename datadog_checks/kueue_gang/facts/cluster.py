# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""One reading of a cluster: the facts of every source, and what could not be read and why.

A source that was not read is no empty source. `unread` names it with its reason, and whatever depends on it is not
derived. `unreadable` names single objects that exist and could not be understood: a PodGroup with a negative minMember
exists, so its pods are no orphans. `behind` names the sources that were read and cannot be at present, with the reason:
what they told holds, and what came since they do not know.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from datadog_checks.kueue_gang.facts.jobs import Job
from datadog_checks.kueue_gang.facts.nodes import Node
from datadog_checks.kueue_gang.facts.podgroups import PodGroup
from datadog_checks.kueue_gang.facts.pods import Pod
from datadog_checks.kueue_gang.facts.queues import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor
from datadog_checks.kueue_gang.facts.rejections import Rejection
from datadog_checks.kueue_gang.facts.signals import NO_SIGNALS, Signals, TrainJob
from datadog_checks.kueue_gang.facts.topology import Topology
from datadog_checks.kueue_gang.facts.workloads import Workload

NOT_INSTALLED = "not_installed"


@dataclass(frozen=True, slots=True)
class SchedulerCount:
    """The gang scheduler's own count of Permit waits, for the pods of its profiles (schedulerNames).

    `waiting` is None where the count is no answer: a standby, counters that moved while the pods were read, or a
    process that also places native gangs (it counts too many).
    """

    waiting: int | None
    profiles: frozenset[str]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The facts of one reading; each sequence is empty where its source was not read."""

    pods: Sequence[Pod] = ()
    nodes: Sequence[Node] = ()
    jobs: Sequence[Job] = ()
    pod_groups: Sequence[PodGroup] = ()
    workloads: Sequence[Workload] = ()
    cluster_queues: Sequence[ClusterQueue] = ()
    local_queues: Sequence[LocalQueue] = ()
    cohorts: Sequence[Cohort] = ()
    flavors: Sequence[ResourceFlavor] = ()
    topologies: Sequence[Topology] = ()
    checks: Sequence[AdmissionCheck] = ()
    rejections: Sequence[Rejection] = ()
    scheduler: SchedulerCount | None = None
    unread: Mapping[str, str] = field(default_factory=dict)
    unreadable: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    behind: Mapping[str, str] = field(default_factory=dict)

    def doubt(self, source: str) -> str | None:
        """Return why an object that is not there may exist all the same; None where its absence is a fact."""
        return self.unread.get(source) or self.behind.get(source)

    def is_installed(self, source: str) -> bool:
        """Tell whether a source exists here, read or not."""
        return self.unread.get(source) != NOT_INSTALLED

    def is_unreadable(self, source: str, namespace: str, name: str) -> bool:
        """Tell whether an object exists that could not be understood."""
        return (namespace, name) in self.unreadable.get(source, frozenset())


class Named(Protocol):
    """What is known by its name in the whole cluster."""

    @property
    def name(self) -> str:
        """The name."""


Fact = TypeVar("Fact")
NamedFact = TypeVar("NamedFact", bound=Named)
#: (fact before, fact now); None where there was or is none.
Change = tuple[Fact | None, Fact | None]


@dataclass(slots=True)
class Changes:
    """What is different from the reading before, and what cannot be read now (see `Cluster`)."""

    pods: Sequence[Change[Pod]] = ()
    nodes: Sequence[Change[Node]] = ()
    jobs: Sequence[Change[Job]] = ()
    pod_groups: Sequence[Change[PodGroup]] = ()
    workloads: Sequence[Change[Workload]] = ()
    local_queues: Sequence[Change[LocalQueue]] = ()
    cluster_queues: Sequence[Change[ClusterQueue]] = ()
    cohorts: Sequence[Change[Cohort]] = ()
    flavors: Sequence[Change[ResourceFlavor]] = ()
    topologies: Sequence[Change[Topology]] = ()
    checks: Sequence[Change[AdmissionCheck]] = ()
    rejections: Sequence[Change[Rejection]] = ()
    train_jobs: Sequence[Change[TrainJob]] = ()
    scheduler: SchedulerCount | None = None
    signals: Signals = NO_SIGNALS
    unread: Mapping[str, str] = field(default_factory=dict)
    unreadable: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    behind: Mapping[str, str] = field(default_factory=dict)

    def tells(self, *sources: str) -> bool:
        """Tell whether what is not there of these sources is not: they were read, or do not exist here."""
        return all(self.unread.get(source, NOT_INSTALLED) == NOT_INSTALLED for source in sources)

    @classmethod
    def of(cls, cluster: Cluster) -> "Changes":
        """Return the changes that lead from nothing to a cluster."""

        def new(facts: Sequence[Fact]) -> list[Change[Fact]]:
            return [(None, fact) for fact in facts]

        return cls(
            pods=new(cluster.pods),
            nodes=new(cluster.nodes),
            jobs=new(cluster.jobs),
            pod_groups=new(cluster.pod_groups),
            workloads=new(cluster.workloads),
            local_queues=new(cluster.local_queues),
            cluster_queues=new(cluster.cluster_queues),
            cohorts=new(cluster.cohorts),
            flavors=new(cluster.flavors),
            topologies=new(cluster.topologies),
            checks=new(cluster.checks),
            rejections=new(cluster.rejections),
            scheduler=cluster.scheduler,
            unread=cluster.unread,
            unreadable=cluster.unreadable,
            behind=cluster.behind,
        )


def follow(facts: dict[str, NamedFact], changes: Sequence[Change[NamedFact]]) -> None:
    """Bring facts by name up to date."""
    for old, new in changes:
        if old is not None:
            facts.pop(old.name, None)
        if new is not None:
            facts[new.name] = new
