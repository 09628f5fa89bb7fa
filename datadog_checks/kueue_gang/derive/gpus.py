# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Which GPUs work, which are held in vain, and what the nodes have free.

A GPU is allocated from the moment its pod has a node until the pod is terminal or gone: a pod that pulls its image or
terminates holds it too. Each allocated GPU is in one bucket (`bucket`), so allocated = busy + idle + other. Whoever is
called idle is held by pods that cannot work: the rest of their gang is not there. A pod of no gang is `other`: this
check knows nothing of its work.

Figures are kept by resource and never added over resources: a MIG slice is no GPU.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.derive.taints import takes_pods
from datadog_checks.kueue_gang.facts.nodes import Node
from datadog_checks.kueue_gang.facts.pods import Pod, PodSpec, Toleration
from datadog_checks.kueue_gang.facts.queues import ResourceFlavor

BUSY, IDLE, OTHER = "busy", "idle", "other"
#: Why GPUs are idle on which nothing runs.
INACTIVE = "inactive"
#: States of gangs whose GPUs work.
_WORKING = frozenset({"running", "finishing"})
#: States of gangs whose GPUs are held in vain; the state is the reason.
_IN_VAIN = frozenset({"partial", "degraded", "starting"})
_TERMINAL = frozenset({"Succeeded", "Failed"})


def holds(pod: Pod) -> bool:
    """Tell whether a pod holds the GPUs that it asks for."""
    return bool(pod.node) and pod.phase not in _TERMINAL


class Situation(NamedTuple):
    """What decides the bucket of the GPUs that a pod holds, or of a part of them.

    `state` is its gang's, None for a pod of no gang or of one that cannot be judged. `names_gone`: it names a gang that
    does not exist any more. `complete`: with its terminating members its gang would be complete. `lost`: its node is.
    `deletion` is the end of its deletion grace, None for a pod that is not deleted. `inactive`: nothing runs on them.
    """

    state: str | None
    names_gone: bool
    complete: bool
    lost: bool
    deletion: float | None
    inactive: bool = False


def bucket(situation: Situation, now: float) -> tuple[str, str]:
    """Return (gpu_use, idle_reason) of pods that hold GPUs; the reason is empty unless idle. First match wins."""
    deletion = situation.deletion
    if deletion is not None and (now >= deletion or situation.names_gone):
        return IDLE, "terminating"
    if situation.state in _IN_VAIN:
        return IDLE, str(situation.state)
    if situation.state == "stopping" and not situation.complete:
        return IDLE, "partial"
    if situation.lost:
        return IDLE, "lost"
    if situation.state == "running" and situation.inactive:
        return IDLE, INACTIVE
    # A stopping gang within its grace that is complete may be saving a checkpoint.
    if situation.state in _WORKING or situation.state == "stopping":
        return BUSY, ""
    return OTHER, ""


@dataclass(slots=True)
class NodeTotals:
    """GPU units of one resource on all nodes, each node once; `free`: not allocated, on nodes that take pods."""

    capacity: int = 0
    allocatable: int = 0
    unhealthy: int = 0
    schedulable: int = 0
    free: int = 0


#: The part of a node in the totals of a resource, in the order of the fields.
_Part = tuple[int, int, int, int, int]
_Parts = tuple[tuple[str, _Part], ...]


class NodeLedger:
    """What the nodes have, and what the pods on them hold, kept as sums while nodes and pods come and go.

    Whether a node takes pods is told in `taints`; here any flavor that selects it may tolerate its taints.
    """

    def __init__(self, rules: Rules) -> None:
        """Begin without nodes."""
        self._tolerated = frozenset(rules.tolerated_taints)
        self._nodes: dict[str, Node] = {}
        self._flavors: dict[str, ResourceFlavor] = {}
        #: Units that pods hold by resource and node.
        self._allocated: dict[str, dict[str, int]] = {}
        #: Number of live pods by what they ask for and tolerate: these records are shared, their identity is enough.
        self._asking: dict[int, tuple[PodSpec, int]] = {}
        self._totals: dict[str, NodeTotals] = {}
        self._having: Counter[str] = Counter()
        self._parts: dict[str, _Parts] = {}
        #: Nodes that are alike share one record.
        self._shared: dict[_Parts, _Parts] = {}
        self._largest: dict[str, int] = {}
        self._stale: set[str] = set()
        self._taints_stale = False
        #: By GPU resource, what pods that ask for it tolerate.
        self.tolerating: Mapping[str, set[Toleration]] = {}

    def take_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Take a pod that came, changed or went."""
        if old and new and old.spec is new.spec and old.node == new.node and old.phase == new.phase:
            return
        for pod, sign in ((old, -1), (new, 1)):
            if pod is None or not pod.spec.gpus or pod.phase in _TERMINAL:
                continue
            self._ask(pod.spec, sign)
            if pod.node:
                for resource, amount in pod.spec.gpus:
                    self._allocate(resource, pod.node, sign * amount)
                self._stale.add(pod.node)

    def _allocate(self, resource: str, node: str, amount: int) -> None:
        allocated = self._allocated.setdefault(resource, {})
        left = allocated.get(node, 0) + amount
        if left:
            allocated[node] = left
        else:
            allocated.pop(node, None)

    def _ask(self, spec: PodSpec, sign: int) -> None:
        number = self._asking.get(id(spec), (spec, 0))[1] + sign
        if number:
            self._asking[id(spec)] = spec, number
        else:
            del self._asking[id(spec)]
        # The first and the last pod of a kind change what is tolerated.
        self._taints_stale |= number == max(sign, 0)

    def take_node(self, name: str, node: Node | None) -> None:
        """Take a node that came or changed, or None for one that went."""
        if node is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = node
        self._stale.add(name)

    def take_flavors(self, changes: Iterable[tuple[ResourceFlavor | None, ResourceFlavor | None]]) -> None:
        """Take flavors that came, changed or went."""
        for old, new in changes:
            if old:
                self._flavors.pop(old.name, None)
            if new:
                self._flavors[new.name] = new
        self._taints_stale = True

    def refresh(self) -> set[str]:
        """Bring the sums up to date; return the nodes whose part could have changed."""
        if self._taints_stale:
            self._stale |= {name for name, node in self._nodes.items() if node.taints}
        stale, self._stale, self._taints_stale = self._stale, set(), False
        if stale:
            self.tolerating = tolerating = self._tolerating()
            for name in stale:
                self._update(name, tolerating)
            self._largest.clear()
        return stale

    def totals(self) -> dict[str, NodeTotals]:
        """Return the totals by resource."""
        return {resource: replace(totals) for resource, totals in self._totals.items()}

    @property
    def nodes(self) -> Mapping[str, Node]:
        """All nodes by name."""
        return self._nodes

    def allocated(self, node: str, resource: str) -> int:
        """Return the units that pods hold on a node."""
        return self._allocated.get(resource, {}).get(node, 0)

    def free(self, node: str, resource: str) -> int | None:
        """Return the free units of a node, also of one that takes no pods; None where there is no such node."""
        known = self._nodes.get(node)
        if known is None:
            return None
        return max(0, known.allocatable.get(resource, 0) - self._allocated.get(resource, {}).get(node, 0))

    def largest(self, resource: str) -> int:
        """Return the most free units that any node has."""
        if resource not in self._largest:
            self._largest[resource] = max((self.free(name, resource) or 0 for name in self._nodes), default=0)
        return self._largest[resource]

    def _tolerating(self) -> dict[str, set[Toleration]]:
        found: dict[str, set[Toleration]] = defaultdict(set)
        for spec, _ in self._asking.values():
            for resource, _ in spec.gpus:
                found[resource].update(spec.tolerations)
        return found

    def _update(self, name: str, tolerating: Mapping[str, set[Toleration]]) -> None:
        for resource, part in self._parts.pop(name, ()):
            self._count(resource, part, -1)
        node = self._nodes.get(name)
        if node is None or not node.capacity:
            return
        able = self._takes_pods(node, tolerating)
        parts = tuple((resource, self._part(node, resource, able=able)) for resource in node.capacity)
        self._parts[name] = self._shared.setdefault(parts, parts)
        for resource, part in parts:
            self._count(resource, part, 1)

    def _part(self, node: Node, resource: str, *, able: bool) -> _Part:
        capacity, allocatable = node.capacity[resource], node.allocatable.get(resource, 0)
        free = (self.free(node.name, resource) or 0) if able else 0
        return capacity, allocatable, max(0, capacity - allocatable), allocatable if able else 0, free

    def _count(self, resource: str, part: _Part, sign: int) -> None:
        totals = self._totals.setdefault(resource, NodeTotals())
        capacity, allocatable, unhealthy, schedulable, free = part
        totals.capacity += sign * capacity
        totals.allocatable += sign * allocatable
        totals.unhealthy += sign * unhealthy
        totals.schedulable += sign * schedulable
        totals.free += sign * free
        self._having[resource] += sign
        if not self._having[resource]:
            del self._totals[resource]

    def _takes_pods(self, node: Node, tolerating: Mapping[str, set[Toleration]]) -> bool:
        flavors = (flavor.tolerations for flavor in self._flavors.values() if selects(flavor, node))
        return takes_pods(node, tolerating, chain(self._tolerated, *flavors) if node.taints else ())


def selects(flavor: ResourceFlavor, node: Node) -> bool:
    """Tell whether a flavor's labels select a node."""
    labels = node.labels
    return labels is not None and all(labels.get(key) == value for key, value in flavor.node_labels.items())


def add(amounts: dict[str, int], units: Iterable[tuple[str, int]], times: int = 1) -> None:
    """Add units to amounts by resource."""
    for resource, amount in units:
        amounts[resource] = amounts.get(resource, 0) + amount * times


def total(units: Iterable[tuple[str, int]]) -> int:
    """Return the units of all resources."""
    return sum(amount for _, amount in units)


def requested(
    pods: list[Pod], needs: Iterable[tuple[int, tuple[tuple[str, int], ...]]], required: int
) -> dict[str, int]:
    """Return the GPUs of the required members.

    Args:
        pods: the members that are not failed.
        needs: (required, request of one pod) of each podset, where templates tell the request.
        required: the members required in all.

    A gang without templates is told by its members: the largest `required` of them, and as many of the commonest
    request as are not there.

    """
    amounts: dict[str, int] = {}
    told = list(needs)
    if any(units for _, units in told):
        for number, units in told:
            add(amounts, units, number)
        return amounts
    requests = sorted((pod.spec.gpus for pod in pods), key=lambda units: (-total(units), units))
    for units in requests[:required]:
        add(amounts, units)
    if requests and required > len(requests):
        commonest = max(set(requests), key=lambda units: (requests.count(units), units))
        add(amounts, commonest, required - len(requests))
    return amounts


def spread(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return amounts without zeros."""
    return {resource: amount for resource, amount in amounts.items() if amount}
