# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""GPU quota: what the queues have and use, what is reserved without a pod, and what no node stands behind.

The first comes from the ClusterQueues as they state it, also where Kueue's own quota metrics are switched off. The
others are what no object states:

* A Workload that holds a reservation, while its pods hold fewer GPUs, keeps quota from others (`Reservations`).
* Quota above what the nodes of its flavor offer admits jobs that nothing can run. Flavors whose nodes a provisioning
  check makes on demand, or that the user calls elastic, are left out: there quota is meant to be more than there is.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from datadog_checks.kueue_gang.derive.gpus import add
from datadog_checks.kueue_gang.derive.membership import WORKLOADS
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.derive.topology import FLAVORS, TopologyLedger
from datadog_checks.kueue_gang.facts.cluster import Changes, follow
from datadog_checks.kueue_gang.facts.quantity import Units
from datadog_checks.kueue_gang.facts.queues import AdmissionCheck, ClusterQueue, Cohort
from datadog_checks.kueue_gang.facts.workloads import Workload

CLUSTER_QUEUES, COHORTS, CHECKS = "clusterqueues", "cohorts", "admissionchecks"

#: (ClusterQueue, flavor, GPU resource).
_Place = tuple[str, str, str]


@dataclass(slots=True)
class Quotas:
    """GPU units of quota.

    `nominal`, `reserved`, `used` and `borrowed` are by (ClusterQueue, flavor, resource), `without_pods` by
    (ClusterQueue, resource), `unbacked` by (flavor, resource). What could not be told is None.
    """

    nominal: Mapping[_Place, int] = field(default_factory=dict)
    reserved: Mapping[_Place, int] = field(default_factory=dict)
    used: Mapping[_Place, int] = field(default_factory=dict)
    borrowed: Mapping[_Place, int] = field(default_factory=dict)
    without_pods: Mapping[tuple[str, str], int] | None = None
    unbacked: Mapping[tuple[str, str], int] | None = None


def without_pods(reservations: Iterable[tuple[Workload, Units, int]]) -> Counter[tuple[str, str]]:
    """Return what Workloads reserve and their pods do not hold, by (ClusterQueue, GPU resource).

    Args:
        reservations: Workloads, each with the GPU units that its pods hold, and the number of these.

    A reservation is min(assigned, count less reclaimed) pods of each podset. Workloads whose pods run in another
    cluster, and parents of a concurrent admission, have no pods of their own and are left out. The slices of an elastic
    job share their pods: the one that reserves most speaks for all.

    """
    found: Counter[tuple[str, str]] = Counter()
    reserved: dict[str, tuple[str, Counter[str]]] = {}
    held: dict[str, Counter[str]] = {}
    for workload, units_held, _ in reservations:
        name = workload.slice or workload.name
        add(held.setdefault(name, Counter()), units_held)
        if _reserves(workload):
            units = _reserved(workload)
            queue, before = reserved.get(name, ("", Counter[str]()))
            if (units.total(), workload.cluster_queue) >= (before.total(), queue):
                reserved[name] = workload.cluster_queue, units
    for name, (queue, units) in reserved.items():
        for resource, amount in units.items():
            found[queue, resource] += max(0, amount - held[name][resource])
    return +found


def _reserves(workload: Workload) -> bool:
    local = not (workload.finished or workload.elsewhere or workload.variants)
    return local and bool(workload.cluster_queue) and workload.is_true("QuotaReserved")


def _reserved(workload: Workload) -> Counter[str]:
    units: Counter[str] = Counter()
    for podset in workload.podsets:
        left = max(0, podset.count - podset.reclaimed)
        pods = left if podset.assigned is None else min(podset.assigned, left)
        for resource, amount in podset.gpus:
            units[resource] += amount * pods
    return units


class QuotaBook:
    """The queues, Cohorts and AdmissionChecks, and what they say of GPU quota."""

    def __init__(self, rules: Rules) -> None:
        """Begin without queues."""
        self._elastic = rules.elastic_flavors
        self._queues: dict[str, ClusterQueue] = {}
        self._cohorts: dict[str, Cohort] = {}
        self._checks: dict[str, AdmissionCheck] = {}
        self._quotas = Quotas()
        self._nominal: Counter[tuple[str, str]] = Counter()
        self._without_pods: Counter[tuple[str, str]] = Counter()

    def hold(self, without: Mapping[tuple[str, str], int], sign: int = 1) -> None:
        """Add what `without_pods` found in a component, or with a `sign` of -1 take it back."""
        for key, amount in without.items():
            self._without_pods[key] += sign * amount
            if not self._without_pods[key]:
                del self._without_pods[key]

    def take(self, changes: Changes) -> bool:
        """Take queues, Cohorts and AdmissionChecks that came, changed or went; tell whether any did."""
        follow(self._queues, changes.cluster_queues)
        follow(self._cohorts, changes.cohorts)
        follow(self._checks, changes.checks)
        if changes.cluster_queues or changes.cohorts:
            self._add_up()
        return bool(changes.cluster_queues or changes.cohorts or changes.checks)

    def _add_up(self) -> None:
        nominal: Counter[_Place] = Counter()
        reserved: Counter[_Place] = Counter()
        used: Counter[_Place] = Counter()
        borrowed: Counter[_Place] = Counter()
        for queue in self._queues.values():
            for quota in queue.quota:
                nominal[queue.name, quota.flavor, quota.resource] += quota.nominal
            for one in queue.reserved:
                reserved[queue.name, one.flavor, one.resource] += one.total
            for one in queue.used:
                used[queue.name, one.flavor, one.resource] += one.total
                borrowed[queue.name, one.flavor, one.resource] += one.borrowed
        self._quotas = Quotas(nominal, reserved, used, borrowed)
        self._nominal = Counter()
        for (_, flavor, resource), amount in nominal.items():
            self._nominal[flavor, resource] += amount
        for cohort in self._cohorts.values():
            for quota in cohort.quota:
                self._nominal[quota.flavor, quota.resource] += quota.nominal

    def quotas(self, changes: Changes, topology: TopologyLedger) -> Quotas:
        """Return all that is told of quota.

        Args:
            changes: tells what was not read: nothing is told that would need it.
            topology: knows what the nodes of each flavor offer.

        """
        found = Quotas() if CLUSTER_QUEUES in changes.unread else self._quotas
        checks = (CHECKS,) if any(queue.checks for queue in self._queues.values()) else ()
        nodes_known = "nodes" not in changes.unread and not changes.unreadable.get("nodes")
        backing = nodes_known and changes.tells(CLUSTER_QUEUES, COHORTS, FLAVORS, *checks)
        return Quotas(
            nominal=found.nominal,
            reserved=found.reserved,
            used=found.used,
            borrowed=found.borrowed,
            without_pods=None if changes.unread.keys() & {"pods", WORKLOADS} else dict(self._without_pods),
            unbacked=self._unbacked(topology, changes.unreadable.get(CHECKS, ())) if backing else None,
        )

    def _unbacked(
        self, topology: TopologyLedger, unreadable: Iterable[tuple[str, str]]
    ) -> dict[tuple[str, str], int]:  # fmt: skip
        """Return the quota that no node stands behind; an AdmissionCheck that is `unreadable` may provision."""
        growing = self._growing(frozenset(name for _, name in unreadable))
        found = {}
        for (flavor, resource), nominal in self._nominal.items():
            if flavor in topology.flavors and flavor not in growing:
                missing = nominal - topology.allocatable(flavor, resource)
                if missing > 0:
                    found[flavor, resource] = missing
        return found

    def _growing(self, unreadable: frozenset[str]) -> set[str]:
        growing = set(self._elastic)
        for queue in self._queues.values():
            for name, flavors in queue.checks:
                check = self._checks.get(name)
                if name in unreadable or (check and check.provisions):
                    growing.update(flavors or queue.flavors)
        return growing
