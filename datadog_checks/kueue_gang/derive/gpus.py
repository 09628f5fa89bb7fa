# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Which GPUs work, which are held in vain, and what the nodes have free.

A GPU is allocated from the moment its pod has a node until the pod is terminal or gone: a pod that pulls its image or
terminates holds it too. Each allocated GPU is in one bucket (`bucket`), so allocated = busy + idle + other. Whoever is
called idle is held by pods that cannot work: the rest of their gang is not there. A pod of no gang is `other`: this check
knows nothing of its work.

Figures are kept by resource and never added over resources: a MIG slice is no GPU.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.facts.cluster import Cluster
from datadog_checks.kueue_gang.facts.nodes import Node, Taint
from datadog_checks.kueue_gang.facts.pods import Pod, Toleration
from datadog_checks.kueue_gang.facts.queues import ResourceFlavor

BUSY, IDLE, OTHER = "busy", "idle", "other"
#: States of gangs whose GPUs work.
_WORKING = frozenset({"running", "finishing"})
#: States of gangs whose GPUs are held in vain; the state is the reason.
_IN_VAIN = frozenset({"partial", "degraded", "starting"})
_REPELLING = frozenset({"NoSchedule", "NoExecute"})


def holds(pod: Pod) -> bool:
    """Tell whether a pod holds the GPUs that it asks for."""
    return bool(pod.node) and pod.phase not in {"Succeeded", "Failed"}


@dataclass(frozen=True, slots=True)
class Situation:
    """What decides the bucket of a pod that holds GPUs.

    `state` is its gang's, None for a pod of no gang or of one that cannot be judged. `names_gone`: it names a gang that
    does not exist any more. `complete`: with its terminating members its gang would be complete.
    """

    state: str | None
    names_gone: bool
    complete: bool
    lost: bool


def bucket(pod: Pod, situation: Situation, now: float) -> tuple[str, str]:
    """Return (gpu_use, idle_reason) of a pod that holds GPUs; the reason is empty unless idle. First match wins."""
    if pod.deletion is not None and (now >= pod.deletion or situation.names_gone):
        return IDLE, "terminating"
    if situation.state in _IN_VAIN:
        return IDLE, str(situation.state)
    if situation.state == "stopping" and not situation.complete:
        return IDLE, "partial"
    if situation.lost:
        return IDLE, "lost"
    # A stopping gang within its grace that is complete may be saving a checkpoint.
    if situation.state in _WORKING or situation.state == "stopping":
        return BUSY, ""
    return OTHER, ""


@dataclass(slots=True)
class NodeTotals:
    """GPU units of one resource on all nodes, each node once; `free` is what is not allocated on nodes that take pods."""

    capacity: int = 0
    allocatable: int = 0
    unhealthy: int = 0
    schedulable: int = 0
    free: int = 0


@dataclass(slots=True)
class NodeFigures:
    """Totals by resource, and the free units of each (node, resource), also of nodes that take no pods."""

    totals: dict[str, NodeTotals] = field(default_factory=lambda: defaultdict(NodeTotals))
    room: dict[tuple[str, str], int] = field(default_factory=dict)


def node_figures(cluster: Cluster, rules: Rules) -> NodeFigures:
    """Count the GPUs of all nodes."""
    allocated: dict[tuple[str, str], int] = defaultdict(int)
    for pod in cluster.pods:
        if holds(pod):
            for resource, amount in pod.spec.gpus:
                allocated[pod.node, resource] += amount
    takes_pods = pod_taker(cluster, rules)
    figures = NodeFigures()
    for node in cluster.nodes:
        able = bool(node.capacity) and takes_pods(node)
        for resource, capacity in node.capacity.items():
            allocatable = node.allocatable.get(resource, 0)
            free = max(0, allocatable - allocated[node.name, resource])
            figures.room[node.name, resource] = free
            totals = figures.totals[resource]
            totals.capacity += capacity
            totals.allocatable += allocatable
            totals.unhealthy += max(0, capacity - allocatable)
            if able:
                totals.schedulable += allocatable
                totals.free += free
    return figures


def pod_taker(cluster: Cluster, rules: Rules) -> Callable[[Node], bool]:
    """Return the test whether a GPU node takes pods: Ready, not cordoned, each repelling taint tolerated.

    A taint is tolerated by the user's option, by a flavor that selects the node, or by any live pod that asks for a GPU
    resource of the node: somebody uses nodes like it. The taint keyed by the GPU resource itself always is (the
    ExtendedResourceToleration admission plugin tolerates it for every pod that asks). Taints of the node controller never
    are, and a toleration without a key proves nothing: such pods (DaemonSets) tolerate broken nodes too.
    """
    by_resource: dict[str, set[Toleration]] = defaultdict(set)
    for pod in cluster.pods:
        if pod.phase not in {"Succeeded", "Failed"}:
            for resource, _ in pod.spec.gpus:
                by_resource[resource].update(pod.spec.tolerations)

    def takes(node: Node) -> bool:
        if node.cordoned or node.ready is None or node.ready.status is not True:
            return False
        repelling = [taint for taint in node.taints if taint.effect in _REPELLING and taint.key not in node.capacity]
        if not repelling:
            return True
        found = set(rules.tolerated_taints)
        for resource in node.capacity:
            found |= by_resource[resource]
        for flavor in cluster.flavors:
            if selects(flavor, node):
                found.update(flavor.tolerations)
        return all(_tolerated(taint, found) for taint in repelling)

    return takes


def selects(flavor: ResourceFlavor, node: Node) -> bool:
    """Tell whether a flavor's labels select a node."""
    labels = node.labels or {}
    return all(labels.get(key) == value for key, value in flavor.node_labels.items())


def _tolerated(taint: Taint, found: Iterable[Toleration]) -> bool:
    return not taint.key.startswith("node.kubernetes.io/") and any(
        toleration.key == taint.key
        and toleration.effect in {"", taint.effect}
        and (toleration.operator == "Exists" or toleration.value == taint.value)
        for toleration in found
    )


def add(amounts: dict[str, int], units: Iterable[tuple[str, int]], times: int = 1) -> None:
    """Add units to amounts by resource."""
    for resource, amount in units:
        amounts[resource] = amounts.get(resource, 0) + amount * times


def requested(pods: list[Pod], needs: Iterable[tuple[int, tuple[tuple[str, int], ...]]], required: int) -> dict[str, int]:
    """Return the GPUs of the required members.

    Args:
        pods: the members that are not failed.
        needs: (required, request of one pod) of each podset, where templates tell the request.
        required: the members required in all.

    A gang without templates is told by its members: the largest `required` of them, and as many of the commonest request
    as are not there.

    """
    amounts: dict[str, int] = {}
    told = list(needs)
    if any(units for _, units in told):
        for number, units in told:
            add(amounts, units, number)
        return amounts
    requests = sorted((pod.spec.gpus for pod in pods), key=lambda units: (-sum(amount for _, amount in units), units))
    for units in requests[:required]:
        add(amounts, units)
    if requests and required > len(requests):
        commonest = max(set(requests), key=lambda units: (requests.count(units), units))
        add(amounts, commonest, required - len(requests))
    return amounts


def spread(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return amounts without zeros."""
    return {resource: amount for resource, amount in amounts.items() if amount}
