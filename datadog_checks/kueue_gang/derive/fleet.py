# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The GPU nodes of a cluster, sorted by what tells them apart.

Each node is known twice: by its kind (the labels that anybody asks for, taints, whether it takes pods, capacity), and
by the room that it has: GPUs that are free now, that will be free soon (when pods that terminate within their grace are
gone) and later (when those whose grace is over are gone, too). Nodes of one kind with the same room are one entry with
a number, so that a question costs what the cluster has of different nodes, not of nodes.

Of labels only those count that somebody asks for, and of their values only those that are named: nodes have a hundred
labels each, and some of them are different on every node. A question about a new label sorts the nodes anew. Each move
of a node from one entry to another is kept for a while, so that who has counted once need only count what moved.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple, Self

from datadog_checks.kueue_gang.derive.packing import Path
from datadog_checks.kueue_gang.facts.constraints import HOSTNAME, NODE_NAME, Constraint
from datadog_checks.kueue_gang.facts.nodes import Labels, Node, Taint
from datadog_checks.kueue_gang.facts.pods import Toleration
from datadog_checks.kueue_gang.facts.quantity import Units

#: When: with the GPUs that are free now, once pods within their deletion grace are gone, once all that terminate are.
NOW, SOON, LATER = range(3)

#: Labels by node.
Relabelling = dict[str, dict[str, str]]
#: GPU units of a node by resource at the three times, sorted by resource. Below zero where pods hold more than the
#: kubelet still offers (a GPU broke): so many must come back before one is free.
Room = tuple[tuple[str, tuple[int, int, int]], ...]
#: Where pods may go, and what they tolerate.
Place = tuple[Constraint, tuple[Toleration, ...]]

_REPELLING = frozenset({"NoSchedule", "NoExecute"})
#: Stands for every value of a label that nobody asks for; no label can have it.
_OTHER = "\0other"
#: Moves that are remembered; who has not asked for longer counts anew.
_MAX_MOVES = 20_000
#: Places of which is remembered which kinds of node they are.
_MAX_PLACES = 1024


class Kind(NamedTuple):
    """What nodes have in common: values of the labels that are asked for, taints, whether they take pods, capacity."""

    values: tuple[str | None, ...]
    taints: tuple[Taint, ...]
    able: bool
    capacity: Units


class Spot(NamedTuple):
    """A kind of node with the room that it has."""

    kind: Kind
    room: Room


class _KindLabels:
    """The labels of a kind of node."""

    def __init__(self, where: Mapping[str, int], values: tuple[str | None, ...]) -> None:
        self._where = where
        self._values = values

    def get(self, key: str) -> str | None:
        return self._values[self._where[key]]


class _NodeLabels:
    """The labels of one node, with its name."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def get(self, key: str) -> str | None:
        if key == NODE_NAME:
            return self._node.name
        return self._node.labels.get(key) if self._node.labels else None


def tolerates(tolerations: Iterable[Toleration], taint: Taint, capacity: Iterable[str]) -> bool:
    """Tell whether pods that ask for GPUs go to a node with a taint.

    The taint keyed by the GPU resource itself is tolerated for every pod that asks for it (ExtendedResourceToleration),
    those of the node controller never are.
    """
    if taint.effect not in _REPELLING or taint.key in capacity:
        return True
    return not taint.key.startswith("node.kubernetes.io/") and any(
        (one.key == taint.key or (not one.key and one.operator == "Exists"))
        and one.effect in {"", taint.effect}
        and (one.operator == "Exists" or one.value == taint.value)
        for one in tolerations
    )


class Fleet:
    """The GPU nodes. `cells` counts the nodes of each spot, `moves` are the last changes of these numbers."""

    def __init__(self) -> None:
        """Begin without nodes."""
        self.cells: Counter[Spot] = Counter()
        self.moves: list[tuple[Spot, int]] = []
        #: Grows with each move, and by more than the moves that are kept when the nodes are sorted anew.
        self.version = 0
        self._nodes: dict[str, Node] = {}
        self._spots: dict[str, Spot] = {}
        self._names: dict[Kind, set[str]] = defaultdict(set)
        self._hosts: dict[str, set[str]] = defaultdict(set)
        #: Labels that are asked for: the values that are told apart, None for all.
        self._words: dict[str, set[str] | None] = {}
        self._where: dict[str, int] = {}
        self._chosen: dict[Constraint, dict[Kind, bool]] = {}
        self._taken: dict[Place, dict[Kind, bool]] = {}
        self._paths: dict[tuple[str, ...], dict[Kind, Path | None]] = {}

    # --- nodes -------------------------------------------------------------------------------------------------------

    def put(self, name: str, node: Node | None, room: Room = ()) -> None:
        """Take a node that came or changed, None for one that went."""
        old = self._nodes.get(name)
        if old is not node:
            self._host(old, name, here=False)
            self._host(node, name, here=True)
        if node is None:
            self._nodes.pop(name, None)
            self._move(name, self._spots.pop(name, None), None)
            return
        self._nodes[name] = node
        before = self._spots.get(name)
        spot = Spot(before.kind if before and old is node else self._kind(node), room)
        if spot != before:
            self._spots[name] = spot
            self._move(name, before, spot)

    def node(self, name: str) -> tuple[Node, Room] | None:
        """Return a node and its room, None where it is not known."""
        spot = self._spots.get(name)
        return (self._nodes[name], spot.room) if spot else None

    def spot(self, name: str) -> Spot:
        """Return the spot of a node. Raises KeyError for one that is not known."""
        return self._spots[name]

    def names(self, kind: Kind | None = None) -> Iterable[str]:
        """Return the names of all nodes, or of those of a kind."""
        return self._spots.keys() if kind is None else self._names.get(kind, ())

    def kinds(self) -> Iterable[Kind]:
        """Return the kinds of node that there are."""
        return self._names.keys()

    def hosts(self, constraint: Constraint) -> list[str]:
        """Return the nodes with the hostname that a constraint names, which is one that `is_pinned`."""
        values = {value for key, value in constraint.selector if key == HOSTNAME}
        return sorted(self._hosts.get(values.pop(), ())) if len(values) == 1 else []

    def value(self, name: str, label: str) -> str | None:
        """Return the value of a node's label."""
        return _NodeLabels(self._nodes[name]).get(label)

    # --- what if -----------------------------------------------------------------------------------------------------

    @contextmanager
    def supposing(self, changes: Mapping[str, tuple[Node, Room]]) -> Iterator[Self]:
        """Let nodes be otherwise for a while."""
        before = {name: (self._nodes.get(name), self._spots.get(name)) for name in changes}
        for name, (node, room) in changes.items():
            self.put(name, node, room)
        try:
            yield self
        finally:
            for name, (old, spot) in before.items():
                self.put(name, old, spot.room if spot else ())

    @contextmanager
    def relabelled(self, labels: Relabelling) -> Iterator[Self]:
        """Let nodes have other labels for a while."""
        changes = {}
        for name, more in labels.items():
            node, spot = self._nodes[name], self._spots[name]
            changes[name] = replace(node, labels=(node.labels or Labels({}, ())).plus(more)), spot.room
        with self.supposing(changes):
            yield self

    # --- which nodes -------------------------------------------------------------------------------------------------

    def learn(self, constraint: Constraint, levels: tuple[str, ...] = ()) -> None:
        """Tell apart the labels that a question is about; nodes are sorted anew where that is news."""
        news = False
        for key in levels:
            news |= self._learn_word(key, () if key == HOSTNAME else None)
        if not is_pinned(constraint):
            for key, value in constraint.selector:
                news |= self._learn_word(key, (value,))
        for expression in (one for term in constraint.terms or () for one in term):
            values = None if expression.operator in {"Gt", "Lt"} else expression.values
            news |= self._learn_word(expression.key, values)
        if news:
            self._sort()

    def chooses(self, constraint: Constraint, kind: Kind) -> bool:
        """Tell whether the labels of a kind of node are those that a constraint asks for; it was learnt."""
        known = self._chosen.get(constraint)
        if known is None:
            known = _bounded(self._chosen)[constraint] = {}
        if kind not in known:
            known[kind] = constraint.allows(_KindLabels(self._where, kind.values))
        return known[kind]

    def takes(self, place: Place, kind: Kind) -> bool:
        """Tell whether a kind of node takes pods; their constraint was learnt."""
        known = self._taken.get(place)
        if known is None:
            known = _bounded(self._taken)[place] = {}
        if kind not in known:
            constraint, tolerations = place
            capacity = [resource for resource, _ in kind.capacity]
            known[kind] = (
                kind.able
                and all(tolerates(tolerations, taint, capacity) for taint in kind.taints)
                and self.chooses(constraint, kind)
            )
        return known[kind]

    def takes_pinned(self, place: Place, name: str) -> bool:
        """Tell whether a node takes pods that name it."""
        constraint, tolerations = place
        node, kind = self._nodes[name], self._spots[name].kind
        return (
            kind.able
            and all(tolerates(tolerations, taint, node.capacity) for taint in kind.taints)
            and self.chooses_pinned(constraint, name)
        )

    def chooses_pinned(self, constraint: Constraint, name: str) -> bool:
        """Tell whether the labels of a node are those that a constraint asks for."""
        return constraint.allows(_NodeLabels(self._nodes[name]))

    def path(self, levels: tuple[str, ...], kind: Kind) -> Path | None:
        """Return the path of a kind of node, None where it lacks a level label; its hosts are not told apart."""
        known = self._paths.setdefault(levels, {})
        if kind not in known:
            values = self.values(levels, kind)
            known[kind] = None if None in values else tuple(value for value in values if value is not None)
        return known[kind]

    def values(self, levels: tuple[str, ...], kind: Kind) -> tuple[str | None, ...]:
        """Return the path of a kind of node with None for each label that it lacks."""
        return tuple(kind.values[self._where[level]] for level in levels)

    # --- sorting -----------------------------------------------------------------------------------------------------

    def _learn_word(self, key: str, values: Iterable[str] | None) -> bool:
        if key not in self._words:
            self._words[key] = None if values is None else set(values)
            return True
        known = self._words[key]
        if known is None:
            return False
        if values is None:
            self._words[key] = None
            return True
        more = set(values) - known
        known |= more
        return bool(more)

    def _sort(self) -> None:
        self._where = {key: index for index, key in enumerate(self._words)}
        self._chosen.clear()
        self._taken.clear()
        self._paths.clear()
        self._names.clear()
        self._spots = {name: Spot(self._kind(self._nodes[name]), spot.room) for name, spot in self._spots.items()}
        for name, spot in self._spots.items():
            self._names[spot.kind].add(name)
        self.cells = Counter(self._spots.values())
        self.moves.clear()
        self.version += 1

    def _kind(self, node: Node) -> Kind:
        return Kind(
            tuple(self._value(node, key, values) for key, values in self._words.items()),
            node.taints,
            node.ready is not None and node.ready.status is True and not node.cordoned,
            tuple(sorted(node.capacity.items())),
        )

    def _value(self, node: Node, key: str, values: set[str] | None) -> str | None:
        value = node.name if key == NODE_NAME else node.labels.get(key) if node.labels else None
        return value if value is None or values is None or value in values else _OTHER

    def _move(self, name: str, old: Spot | None, new: Spot | None) -> None:
        if old is not None and (new is None or new.kind != old.kind):
            self._names[old.kind].discard(name)
            if not self._names[old.kind]:
                del self._names[old.kind]
        if new is not None:
            self._names[new.kind].add(name)
        for spot, number in ((old, -1), (new, 1)):
            if spot is not None:
                self.cells[spot] += number
                if not self.cells[spot]:
                    del self.cells[spot]
                self.moves.append((spot, number))
                self.version += 1
        if len(self.moves) > _MAX_MOVES:
            del self.moves[: _MAX_MOVES // 2]

    def _host(self, node: Node | None, name: str, *, here: bool) -> None:
        host = node.labels.get(HOSTNAME) if node and node.labels else None
        if host is not None and here:
            self._hosts[host].add(name)
        elif host is not None:
            self._hosts[host].discard(name)
            if not self._hosts[host]:
                del self._hosts[host]


def is_pinned(constraint: Constraint) -> bool:
    """Tell whether a nodeSelector names a host: such pods, of which each has its own, are looked up one by one."""
    return any(key == HOSTNAME for key, _ in constraint.selector)


def _bounded(memory: dict) -> dict:  # type: ignore[type-arg]
    """Return a memory that has room for one more."""
    if len(memory) >= _MAX_PLACES:
        memory.clear()
    return memory
