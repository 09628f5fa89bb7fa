# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Kueue's queues, flavors, topologies and checks by name: what a Workload that waits is seen against.

The usage in a ClusterQueue's status changes with every admission and decides nothing about another Workload here, so it
is no news.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from datadog_checks.kueue_gang.facts.cluster import Change, Changes
from datadog_checks.kueue_gang.facts.queues import AdmissionCheck, ClusterQueue, LocalQueue, ResourceFlavor
from datadog_checks.kueue_gang.facts.topology import Topology
from datadog_checks.kueue_gang.facts.workloads import Workload

_Name = TypeVar("_Name", bound=Hashable)
_Fact = TypeVar("_Fact")
#: A flavor, with its Topology where it has one that is known.
Offer = tuple[ResourceFlavor, Topology | None]
#: By GPU resource.
Offers = Mapping[str, tuple[Offer, ...]]
_SOURCES = frozenset({"localqueues", "clusterqueues", "resourceflavors", "topologies", "admissionchecks"})


@dataclass(frozen=True, slots=True)
class Kueue:
    """Kueue's objects by name, LocalQueues by (namespace, name).

    `known` are the sources that were read and are in step: only there the absence of an object is a fact, unless it is
    one of the `unreadable`, (namespace, name) by source, which exist and could not be understood.
    """

    local_queues: Mapping[tuple[str, str], LocalQueue] = field(default_factory=dict)
    cluster_queues: Mapping[str, ClusterQueue] = field(default_factory=dict)
    flavors: Mapping[str, ResourceFlavor] = field(default_factory=dict)
    topologies: Mapping[str, Topology] = field(default_factory=dict)
    checks: Mapping[str, AdmissionCheck] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    unreadable: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=dict)

    def lacks(self, source: str, name: str, namespace: str = "") -> bool:
        """Tell whether an object that is not among these does not exist."""
        return source in self.known and (namespace, name) not in self.unreadable.get(source, frozenset())

    def cluster_queue_of(self, workload: Workload) -> ClusterQueue | None:
        """Return the ClusterQueue that a Workload is in or waits for, None where that is not known."""
        return self.cluster_queues.get(self.cluster_queue_name(workload))

    def cluster_queue_name(self, workload: Workload) -> str:
        """Return the name of the ClusterQueue that a Workload is in or waits for, '' where that is not known."""
        local = self.local_queues.get((workload.namespace, workload.queue))
        return workload.cluster_queue or (local.cluster_queue if local else "")

    def offers_to(self, workload: Workload) -> Offers:
        """Return the flavors that offer each GPU resource to a Workload, with the Topology of each that has one.

        There are none where one of them exists, or its Topology, and is not known: the others are not all.
        """
        queue = self.cluster_queue_of(workload)
        found: dict[str, tuple[Offer, ...]] = {}
        for one in queue.quota if queue else ():
            flavor = self.flavors.get(one.flavor)
            topology = self.topologies.get(flavor.topology) if flavor else None
            if flavor is None:
                if not self.lacks("resourceflavors", one.flavor):
                    return {}
                continue
            if flavor.topology and topology is None and not self.lacks("topologies", flavor.topology):
                return {}
            found[one.resource] = (*found.get(one.resource, ()), (flavor, topology))
        return found


class KueueObjects:
    """Keeps a `Kueue` in step."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._local_queues: dict[tuple[str, str], LocalQueue] = {}
        self._cluster_queues: dict[str, ClusterQueue] = {}
        self._flavors: dict[str, ResourceFlavor] = {}
        self._topologies: dict[str, Topology] = {}
        self._checks: dict[str, AdmissionCheck] = {}
        self._now = Kueue(self._local_queues, self._cluster_queues, self._flavors, self._topologies, self._checks)

    def take(self, changes: Changes) -> Kueue:
        """Take changes; return another object only where they may change what blocks a Workload."""
        now = self._now
        news = [
            _take(self._local_queues, changes.local_queues, lambda one: (one.namespace, one.name), _route),
            _take(self._cluster_queues, changes.cluster_queues, _name, _rules),
            _take(self._flavors, changes.flavors, _name, _itself),
            _take(self._topologies, changes.topologies, _name, _itself),
            _take(self._checks, changes.checks, _name, _itself),
        ]
        known = frozenset(one for one in _SOURCES if one not in changes.unread and one not in changes.behind)
        unreadable = {one: names for one, names in changes.unreadable.items() if one in _SOURCES}
        if any(news) or known != now.known or unreadable != now.unreadable:
            self._now = replace(now, known=known, unreadable=unreadable)
        return self._now


def _take(
    known: dict[_Name, _Fact],
    changes: Iterable[Change[_Fact]],
    key: Callable[[_Fact], _Name],
    telling: Callable[[_Fact], object],
) -> bool:
    """Take changes into a mapping; tell whether there was news in what is telling of them."""
    news = False
    for old, new in changes:
        if old is not None:
            known.pop(key(old), None)
        if new is not None:
            known[key(new)] = new
        news |= old is None or new is None or telling(old) != telling(new)
    return news


def _name(one: ClusterQueue | ResourceFlavor | Topology | AdmissionCheck) -> str:
    return one.name


def _itself(one: object) -> object:
    return one


def _route(one: LocalQueue) -> object:
    return one.cluster_queue, one.stopped


def _rules(one: ClusterQueue) -> object:
    return replace(one, reserved=(), used=())
