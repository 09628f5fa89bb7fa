# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Whether pods would fit on the free GPUs, and what keeps them from it.

A `Fleet` knows each GPU node twice: what kind it is (the labels that anybody asks for, taints, whether it takes pods),
and what room it has: GPUs that are free now, that will be free soon (when pods that terminate within their grace are
gone) and later (when those whose grace is over are gone, too). Nodes of one kind with the same room are one entry with
a number, so a question costs what the cluster has of different nodes, not of nodes. What was counted for one shape of
pod is kept, and brought up to date by the nodes that moved since.

An `Ask` is some equal pods: what each asks for, where it may go, and which of them must be together in one domain of a
topology. For asks of one shape the count is exact: on each node fit as many as its scarcest resource allows. For
several shapes the largest are placed first, each on the fullest node that can take it, and where that fails on a small
cluster every other way is tried. So "fits" is always right; "does not fit" may be wrong for unequal pods on a large
cluster. Only GPUs, labels and taints are modelled: CPU, memory, volumes and pod affinity are not, so "fits" means by
GPUs.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from datadog_checks.kueue_gang.derive.packing import Bin, Path, Piece, pack
from datadog_checks.kueue_gang.facts.constraints import ANYWHERE, HOSTNAME, NODE_NAME, Constraint
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

_REPELLING = frozenset({"NoSchedule", "NoExecute"})
#: Stands for every value of a label that nobody asks for; no label can have it.
_OTHER = "\0other"
#: Moves that are remembered; who has not asked for longer counts anew.
_MAX_MOVES = 20_000
#: Shapes that are remembered.
_MAX_SHAPES = 512


class Ask(NamedTuple):
    """`pods` pods that ask for `units` each, and the nodes that they may have.

    `levels` are the node labels of a topology, widest first, all of which a node must have (Kueue drops a node that
    lacks one); empty where no topology is asked for. Each of `together` is (depth, size): every `size` of the pods are
    to be in one domain of `levels[depth - 1]`; all of them, where `size` is `pods`.
    """

    pods: int
    units: Units
    constraint: Constraint = ANYWHERE
    tolerations: tuple[Toleration, ...] = ()
    levels: tuple[str, ...] = ()
    together: tuple[tuple[int, int], ...] = ()


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


class Lacking(NamedTuple):
    """A node that lacks level labels: its path with None where it has no value."""

    name: str
    path: tuple[str | None, ...]
    room: Room


class _Shape(NamedTuple):
    """What of an ask decides how many pods a node can take, and how finely that is to be counted."""

    units: Units
    constraint: Constraint
    tolerations: tuple[Toleration, ...]
    levels: tuple[str, ...]
    depth: int
    by_host: int


class _Labels:
    """The labels of a kind of node."""

    def __init__(self, where: Mapping[str, int], values: tuple[str | None, ...]) -> None:
        self._where = where
        self._values = values

    def get(self, key: str) -> str | None:
        return self._values[self._where[key]]


class _Named:
    """The labels of one node, with its name."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def get(self, key: str) -> str | None:
        if key == NODE_NAME:
            return self._node.name
        return self._node.labels.get(key) if self._node.labels else None


@dataclass(slots=True)
class _Count:
    """How many pods of a shape fit, by domain at the shape's depth and by time; `at` is the last move that is in it."""

    at: int
    pods: dict[Path, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0, 0]))
    places: dict[Kind, Path | None] = field(default_factory=dict)


def per_node(room: Room, units: Units, when: int) -> int:
    """Return how many pods a node with this room takes."""
    free = dict(room)
    return min((max(0, free[name][when]) // amount if name in free else 0) for name, amount in units)


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
    """The GPU nodes of a cluster, and how many pods of which kind they can take."""

    def __init__(self) -> None:
        """Begin without nodes."""
        self._nodes: dict[str, Node] = {}
        self._spots: dict[str, Spot] = {}
        self._cells: Counter[Spot] = Counter()
        self._hosts: dict[str, set[str]] = defaultdict(set)
        #: Labels that are asked for: the values that are told apart, None for all.
        self._words: dict[str, set[str] | None] = {}
        self._where: dict[str, int] = {}
        self._counts: dict[_Shape, _Count] = {}
        self._moves: list[tuple[Spot, int]] = []
        self._moved = 0

    @property
    def version(self) -> int:
        """A number that grows whenever an answer may change."""
        return self._moved

    def put(self, name: str, node: Node | None, room: Room = ()) -> None:
        """Take a node that came or changed, None for one that went."""
        old = self._nodes.get(name)
        if old is not node:
            self._host(old, name, here=False)
            self._host(node, name, here=True)
        if node is None:
            self._nodes.pop(name, None)
            self._move(self._spots.pop(name, None), None)
            return
        self._nodes[name] = node
        before = self._spots.get(name)
        spot = Spot(before.kind if before and old is node else self._kind(node), room)
        if spot != before:
            self._spots[name] = spot
            self._move(before, spot)

    @contextmanager
    def supposing(self, changes: Mapping[str, tuple[Node, Room]]) -> Iterator["Fleet"]:
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
    def relabelled(self, labels: Relabelling) -> Iterator["Fleet"]:
        """Let nodes have other labels for a while."""
        changes = {}
        for name, more in labels.items():
            node, spot = self._nodes[name], self._spots[name]
            changes[name] = replace(node, labels=(node.labels or Labels({}, ())).plus(more)), spot.room
        with self.supposing(changes):
            yield self

    def lacking(self, ask: Ask) -> list[Lacking]:
        """Return the nodes that would take an ask's pods, were it not for a level label that they lack."""
        if _is_pinned(ask):
            hosts = (name for name in self._hosts_of(ask) if self._takes_pinned(ask, name))
            return [self._lacking(ask, name) for name in hosts if self._path_of_pinned(ask, name) is None]
        self._learn(ask.constraint, ask.levels)
        kinds = {
            spot.kind
            for spot in self._cells
            if self._path(ask.levels, spot.kind) is None and self._takes(ask.constraint, ask.tolerations, spot.kind)
        }
        if not kinds:
            return []
        return [self._lacking(ask, name) for name, spot in self._spots.items() if spot.kind in kinds]

    def _lacking(self, ask: Ask, name: str) -> Lacking:
        labels = _Named(self._nodes[name])
        return Lacking(name, tuple(labels.get(level) for level in ask.levels), self._spots[name].room)

    def domains(self, ask: Ask, depth: int) -> dict[Path, int]:
        """Return how many of an ask's pods fit now into each domain at a depth of its topology that is no host."""
        found: dict[Path, int] = defaultdict(int)
        for path, numbers in self._by_domain(ask).items():
            found[path[:depth]] += numbers[NOW]
        return found

    def node(self, name: str) -> tuple[Node, Room] | None:
        """Return a node and its room, None where it is not known."""
        spot = self._spots.get(name)
        return (self._nodes[name], spot.room) if spot else None

    def names(self) -> Iterable[str]:
        """Return the names of all nodes."""
        return self._spots.keys()

    def fits(self, asks: tuple[Ask, ...], when: int = NOW) -> bool:
        """Tell whether all these pods fit at once."""
        wanted = [ask for ask in asks if ask.pods > 0 and ask.units]
        if any(self.room_for(ask, when) < ask.pods for ask in wanted):
            return False
        return len(wanted) < 2 or self._pack(wanted, when)  # noqa: PLR2004 - one shape needs no packing

    def room_for(self, ask: Ask, when: int = NOW) -> int:
        """Return how many pods like these fit, if they were alone; see `Ask.together` for what is not counted."""
        pods = {path: numbers[when] for path, numbers in self._by_domain(ask).items()}
        for depth, size in sorted(ask.together, reverse=True):
            if ask.levels[depth - 1] == HOSTNAME:
                continue
            wider: dict[Path, int] = defaultdict(int)
            for path, number in pods.items():
                wider[path[:depth]] += number
            pods = {path: number // size * size for path, number in wider.items()}
        return sum(pods.values())

    def enough(self, asks: tuple[Ask, ...]) -> bool:
        """Tell whether the free GPUs suffice in sum, on the nodes that the pods may have, labelled or not."""
        wanted = [ask for ask in asks if ask.pods > 0 and ask.units]
        for group in ([ask] for ask in wanted) if len(wanted) == 1 else (wanted, *([ask] for ask in wanted)):
            need: Counter[str] = Counter()
            for ask in group:
                need.update({resource: amount * ask.pods for resource, amount in ask.units})
            if need - self._free(group):
                return False
        return True

    def exceeds(self, asks: tuple[Ask, ...]) -> bool:
        """Tell whether a pod asks for more GPUs than any of the nodes has that it could go to by their labels."""
        return any(self._exceeds(ask) for ask in asks if ask.pods > 0 and ask.units)

    def _exceeds(self, ask: Ask) -> bool:
        if _is_pinned(ask):
            pinned = (name for name in self._hosts_of(ask) if ask.constraint.allows(_Named(self._nodes[name])))
            capacities = {self._spots[name].kind.capacity for name in pinned}
        else:
            self._learn(ask.constraint, ask.levels)
            capacities = {spot.kind.capacity for spot in self._cells if self._chosen(ask.constraint, spot.kind)}
        return bool(capacities) and not any(_covers(capacity, ask.units) for capacity in capacities)

    # --- counting ----------------------------------------------------------------------------------------------------

    def _count(self, ask: Ask) -> dict[Path, list[int]]:
        """Return how many pods of an ask's shape fit at each time, by domain."""
        self._learn(ask.constraint, ask.levels)
        by_host = _by_host(ask)
        depth = max((depth for depth, _ in ask.together if ask.levels[depth - 1] != HOSTNAME), default=0)
        shape = _Shape(ask.units, ask.constraint, ask.tolerations, ask.levels, depth, by_host)
        known = self._counts.pop(shape, None)
        # Moves of which the beginning is forgotten, or more than there are different nodes, are no way to be quick.
        if known is None or self._moved - known.at > min(len(self._moves), len(self._cells)):
            known = _Count(self._moved)
            for spot, number in self._cells.items():
                self._add(known, shape, spot, number)
        elif known.at < self._moved:
            for spot, number in self._moves[known.at - self._moved :]:
                self._add(known, shape, spot, number)
            known.at = self._moved
        # The one that was asked for last is at the end.
        self._counts[shape] = known
        if len(self._counts) > _MAX_SHAPES:
            del self._counts[next(iter(self._counts))]
        return known.pods

    def _add(self, count: _Count, shape: _Shape, spot: Spot, number: int) -> None:
        try:
            path = count.places[spot.kind]
        except KeyError:
            path = count.places[spot.kind] = self._place(shape, spot.kind)
        if path is not None:
            pods = count.pods[path]
            for when in (NOW, SOON, LATER):
                pods[when] += per_node(spot.room, shape.units, when) // shape.by_host * shape.by_host * number

    def _place(self, shape: _Shape, kind: Kind) -> Path | None:
        """Return the domain of nodes of a kind at the depth of a shape, None where they do not take its pods."""
        path = self._path(shape.levels, kind)
        if path is None or not self._takes(shape.constraint, shape.tolerations, kind):
            return None
        return path[: shape.depth]

    def _path(self, levels: tuple[str, ...], kind: Kind) -> Path | None:
        """Return the path of a kind of node, None where it lacks a level label; its hosts are not told apart."""
        values = [kind.values[self._where[level]] for level in levels]
        return None if None in values else tuple(value for value in values if value is not None)

    def _takes(self, constraint: Constraint, tolerations: tuple[Toleration, ...], kind: Kind) -> bool:
        capacity = [resource for resource, _ in kind.capacity]
        return (
            kind.able
            and all(tolerates(tolerations, taint, capacity) for taint in kind.taints)
            and self._chosen(constraint, kind)
        )

    def _chosen(self, constraint: Constraint, kind: Kind) -> bool:
        return constraint.allows(_Labels(self._where, kind.values))

    def _free(self, asks: Iterable[Ask]) -> Counter[str]:
        """Return the GPUs that are free on the nodes that any of the pods may have."""
        asks = tuple(asks)
        pinned = {
            name for ask in asks if _is_pinned(ask) for name in self._hosts_of(ask) if self._takes_pinned(ask, name)
        }
        places = {(ask.constraint, ask.tolerations) for ask in asks if not _is_pinned(ask)}
        for constraint, _ in places:
            self._learn(constraint, ())
        free: Counter[str] = Counter()
        open_to: dict[Kind, bool] = {}
        for spot, number in self._cells.items():
            kind = spot.kind
            if kind not in open_to:
                open_to[kind] = any(self._takes(*place, kind) for place in places)
            if open_to[kind]:
                free.update({resource: max(0, now) * number for resource, (now, _, _) in spot.room})
        for spot in (self._spots[name] for name in pinned):
            if not open_to[spot.kind]:
                free.update({resource: max(0, now) for resource, (now, _, _) in spot.room})
        return free

    # --- placing several shapes --------------------------------------------------------------------------------------

    def _pack(self, asks: list[Ask], when: int) -> bool:
        for ask in asks:
            self._learn(ask.constraint, ask.levels)
        resources = sorted({resource for ask in asks for resource, _ in ask.units})
        pieces = [
            Piece(ask.pods, tuple(dict(ask.units).get(name, 0) for name in resources), tuple(sorted(ask.together)))
            for ask in asks
        ]
        pinned = {name for ask in asks if _is_pinned(ask) for name in self._hosts_of(ask)}
        cells = self._cells - Counter(self._spots[name] for name in pinned)
        nodes: list[tuple[Spot, int, str | None]] = [(spot, number, None) for spot, number in cells.items()]
        nodes += [(self._spots[name], 1, name) for name in sorted(pinned)]
        bins = [
            Bin(
                number,
                tuple(max(0, dict(spot.room).get(resource, (0, 0, 0))[when]) for resource in resources),
                tuple(self._path_of(ask, spot.kind, name) for ask in asks),
            )
            for spot, number, name in nodes
        ]
        return pack(pieces, bins)

    def _path_of(self, ask: Ask, kind: Kind, name: str | None) -> Path | None:
        if _is_pinned(ask):
            return self._path_of_pinned(ask, name) if name is not None else None
        path = self._path(ask.levels, kind)
        if path is None or not self._takes(ask.constraint, ask.tolerations, kind):
            return None
        return path[:-1] if ask.levels and ask.levels[-1] == HOSTNAME else path

    # --- pods that name their node -----------------------------------------------------------------------------------

    def _by_domain(self, ask: Ask) -> dict[Path, list[int]]:
        """Return how many of an ask's pods fit at each time, by domain."""
        if not _is_pinned(ask):
            return self._count(ask)
        found: dict[Path, list[int]] = defaultdict(lambda: [0, 0, 0])
        by_host = _by_host(ask)
        for name in self._hosts_of(ask):
            path = self._path_of_pinned(ask, name)
            if path is not None:
                for when in (NOW, SOON, LATER):
                    found[path][when] += per_node(self._spots[name].room, ask.units, when) // by_host * by_host
        return found

    def _path_of_pinned(self, ask: Ask, name: str) -> Path | None:
        labels = _Named(self._nodes[name])
        path = tuple(value for level in ask.levels if (value := labels.get(level)) is not None)
        if len(path) < len(ask.levels) or not self._takes_pinned(ask, name):
            return None
        return path[:-1] if ask.levels and ask.levels[-1] == HOSTNAME else path

    def _hosts_of(self, ask: Ask) -> list[str]:
        values = {value for key, value in ask.constraint.selector if key == HOSTNAME}
        return sorted(self._hosts.get(values.pop(), ())) if len(values) == 1 else []

    def _takes_pinned(self, ask: Ask, name: str) -> bool:
        node, kind = self._nodes[name], self._spots[name].kind
        return (
            kind.able
            and all(tolerates(ask.tolerations, taint, node.capacity) for taint in kind.taints)
            and ask.constraint.allows(_Named(node))
        )

    # --- nodes -------------------------------------------------------------------------------------------------------

    def _learn(self, constraint: Constraint, levels: tuple[str, ...]) -> None:
        """Tell apart the labels that an ask is about; nodes are sorted anew where that is news."""
        news = False
        for key in levels:
            values: Iterable[str] | None = () if key == HOSTNAME else None
            news |= self._learn_word(key, values)
        if not any(key == HOSTNAME for key, _ in constraint.selector):
            for key, value in constraint.selector:
                news |= self._learn_word(key, (value,))
        for expression in (one for term in constraint.terms or () for one in term):
            values = None if expression.operator in {"Gt", "Lt"} else expression.values
            news |= self._learn_word(expression.key, values)
        if news:
            self._where = {key: index for index, key in enumerate(self._words)}
            self._counts.clear()
            self._spots = {name: Spot(self._kind(self._nodes[name]), spot.room) for name, spot in self._spots.items()}
            self._cells = Counter(self._spots.values())

    def _learn_word(self, key: str, values: Iterable[str] | None) -> bool:
        known = self._words.get(key, set()) if key in self._words else None
        if key not in self._words:
            self._words[key] = None if values is None else set(values)
            return True
        if known is None:
            return False
        if values is None:
            self._words[key] = None
            return True
        more = set(values) - known
        known |= more
        return bool(more)

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

    def _move(self, old: Spot | None, new: Spot | None) -> None:
        for spot, number in ((old, -1), (new, 1)):
            if spot is not None:
                self._cells[spot] += number
                if not self._cells[spot]:
                    del self._cells[spot]
                self._moves.append((spot, number))
                self._moved += 1
        if len(self._moves) > _MAX_MOVES:
            del self._moves[: _MAX_MOVES // 2]

    def _host(self, node: Node | None, name: str, *, here: bool) -> None:
        host = node.labels.get(HOSTNAME) if node and node.labels else None
        if host is not None and here:
            self._hosts[host].add(name)
        elif host is not None:
            self._hosts[host].discard(name)
            if not self._hosts[host]:
                del self._hosts[host]


def _is_pinned(ask: Ask) -> bool:
    return any(key == HOSTNAME for key, _ in ask.constraint.selector)


def _by_host(ask: Ask) -> int:
    """Return how many of an ask's pods must share a node."""
    return next((size for depth, size in ask.together if ask.levels[depth - 1] == HOSTNAME), 1)


def _covers(capacity: Units, units: Units) -> bool:
    have = dict(capacity)
    return all(have.get(resource, 0) >= amount for resource, amount in units)
