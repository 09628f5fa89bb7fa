# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""How much room each node has, now and once pods that terminate are gone: what keeps the fit engine in step.

Room is what the kubelet offers, less what pods hold, less what the scheduler holds for certain Permit waiters; it is
below zero where a GPU broke under a pod, so that what comes back fills that first. A pod that terminates gives its GPUs
soon while its deletion grace lasts, and later, with nobody knowing when, after that.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping

from datadog_checks.kueue_gang.derive.fit import Fits
from datadog_checks.kueue_gang.derive.fleet import Fleet, Room
from datadog_checks.kueue_gang.facts.nodes import Node
from datadog_checks.kueue_gang.facts.pods import Pod
from datadog_checks.kueue_gang.facts.quantity import Units

_TERMINAL = frozenset({"Succeeded", "Failed"})
#: GPUs that are held, by node and resource.
Held = Mapping[str, Mapping[str, int]]


class Rooms:
    """Keeps a `Fleet` in step with nodes and pods."""

    def __init__(self) -> None:
        """Begin without nodes."""
        self.fleet = Fleet()
        self.fits = Fits(self.fleet)
        #: Grows when the room of a node has changed; what is only supposed does not count.
        self.version = 0
        self._nodes: dict[str, Node] = {}
        #: Pods that terminate, by node: what they hold, and when their grace is over.
        self._going: dict[str, dict[tuple[str, str], tuple[Units, float]]] = defaultdict(dict)
        self._reserved: dict[str, Counter[str]] = defaultdict(Counter)
        self._stale: set[str] = set()

    def take_node(self, name: str, node: Node | None) -> None:
        """Take a node that came or changed, None for one that went."""
        if node is not None and (node.capacity or node.allocatable):
            self._nodes[name] = node
        else:
            self._nodes.pop(name, None)
        self._stale.add(name)

    def take_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Take a pod that came, changed or went; only those that terminate matter here."""
        if old is not None and old.deletion is not None and old.node:
            self._going[old.node].pop((old.namespace, old.name), None)
            self._stale.add(old.node)
        if new is not None and new.deletion is not None and new.node and new.phase not in _TERMINAL:
            self._going[new.node][new.namespace, new.name] = new.spec.gpus, new.deletion
            self._stale.add(new.node)

    def reserve(self, reserved: Iterable[tuple[str, Units]], sign: int = 1) -> None:
        """Take what the scheduler holds on nodes, or with a `sign` of -1 take it back."""
        for name, units in reserved:
            self._reserved[name].update({resource: sign * amount for resource, amount in units})
            self._stale.add(name)

    def refresh(self, changed: Iterable[str], held: Callable[[str, str], int], now: float) -> None:
        """Bring the fleet up to date.

        Args:
            changed: the nodes on which what is held has changed.
            held: from node and resource to what pods hold there.
            now: the cluster's time: it decides whether the grace of a pod that terminates is over.

        """
        stale, self._stale, before = self._stale, set(), self.fleet.version
        for name in {*stale, *changed, *self._going}:
            node = self._nodes.get(name)
            if not self._going.get(name):
                self._going.pop(name, None)
            if not any(self._reserved.get(name, {}).values()):
                self._reserved.pop(name, None)
            self.fleet.put(name, node, self._room(node, held, now) if node else ())
        self.version += self.fleet.version != before

    def _room(self, node: Node, held: Callable[[str, str], int], now: float) -> Room:
        going = self._going.get(node.name)
        reserved = self._reserved.get(node.name)
        if not going and not reserved:
            # Nearly every node.
            return tuple(
                (resource, (free, free, free))
                for resource, offered in sorted(node.allocatable.items())
                for free in [offered - held(node.name, resource)]
            )
        soon, later = Counter[str](), Counter[str]()
        for units, deletion in (going or {}).values():
            (soon if now < deletion else later).update(dict(units))
        return tuple(
            (resource, (free, free + soon[resource], free + soon[resource] + later[resource]))
            for resource, offered in sorted(node.allocatable.items())
            for free in [offered - held(node.name, resource) - (reserved[resource] if reserved else 0)]
        )


def plus(room: Room, amounts: Mapping[str, int]) -> Room:
    """Return a room with so much more in it, at all times."""
    return tuple(
        (resource, (now + more, soon + more, later + more))
        for resource, (now, soon, later) in room
        for more in [amounts.get(resource, 0)]
    )
