# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Whether pods would fit on the free GPUs.

An `Ask` is some equal pods: what each asks for, where it may go, and which of them must be together in one domain of a
topology. For asks of one shape the count is exact: on each node fit as many as its scarcest resource allows. For
several shapes the largest are placed first, each on the fullest node that can take it, and where that fails on a small
cluster every other way is tried (`packing`). So "fits" is always right; "does not fit" may be wrong for unequal pods on
a large cluster. Only GPUs, labels and taints are modelled: CPU, memory, volumes and pod affinity are not, so "fits"
means by GPUs.

What was counted for one shape of pod is kept, and brought up to date by the nodes that moved since (`fleet`).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from datadog_checks.kueue_gang.derive.fleet import LATER, NOW, SOON, Fleet, Kind, Place, Room, Spot, is_pinned
from datadog_checks.kueue_gang.derive.packing import Bin, Path, Piece, pack
from datadog_checks.kueue_gang.facts.constraints import ANYWHERE, HOSTNAME, Constraint
from datadog_checks.kueue_gang.facts.pods import Toleration
from datadog_checks.kueue_gang.facts.quantity import Units

#: Counts that are remembered.
_MAX_COUNTS = 512


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

    @property
    def place(self) -> Place:
        """Where they may go, and what they tolerate."""
        return self.constraint, self.tolerations


class _Shape(NamedTuple):
    """What of an ask decides how many pods a node can take, and how finely that is to be counted."""

    units: Units
    place: Place
    levels: tuple[str, ...]
    depth: int
    by_host: int


class Lacking(NamedTuple):
    """Nodes that lack level labels and are alike: their path with None for what they lack, and the pods of each."""

    path: tuple[str | None, ...]
    pods: int
    names: tuple[str, ...]


_Key = TypeVar("_Key")
_Sum = TypeVar("_Sum")


@dataclass(slots=True)
class _Counted(Generic[_Sum]):
    """A sum over the spots of a fleet; `at` is the version of the fleet that it is true of."""

    at: int
    total: _Sum


class _Counts(Generic[_Key, _Sum]):
    """Sums over the spots of a fleet by what they are of; each is made once and then follows the nodes that move."""

    def __init__(
        self, fleet: Fleet, empty: Callable[[], _Sum], add: Callable[[_Key, _Sum, Spot, int], None]
    ) -> None:  # fmt: skip
        self._fleet = fleet
        self._empty = empty
        self._add = add
        self._known: dict[_Key, _Counted[_Sum]] = {}

    def of(self, key: _Key) -> _Sum:
        fleet = self._fleet
        known = self._known.pop(key, None)
        # Moves of which the beginning is forgotten, or more than there are different nodes, are no way to be quick.
        if known is None or fleet.version - known.at > min(len(fleet.moves), len(fleet.cells)):
            known = _Counted(fleet.version, self._empty())
            for spot, number in fleet.cells.items():
                self._add(key, known.total, spot, number)
        elif known.at < fleet.version:
            for spot, number in fleet.moves[known.at - fleet.version :]:
                self._add(key, known.total, spot, number)
            known.at = fleet.version
        # The one that was asked for last is at the end.
        self._known[key] = known
        if len(self._known) > _MAX_COUNTS:
            del self._known[next(iter(self._known))]
        return known.total


def per_node(room: Room, units: Units, when: int) -> int:
    """Return how many pods a node with this room takes."""
    free = dict(room)
    return min((max(0, free[name][when]) // amount if name in free else 0) for name, amount in units)


class Fits:
    """Answers what fits on a fleet."""

    def __init__(self, fleet: Fleet) -> None:
        """Take the nodes."""
        self.fleet = fleet
        self._pods: _Counts[_Shape, dict[Path, list[int]]] = _Counts(
            fleet, lambda: defaultdict(lambda: [0, 0, 0]), self._add_pods
        )
        self._free: _Counts[frozenset[Place], Counter[str]] = _Counts(fleet, Counter, self._add_free)

    def fits(self, asks: tuple[Ask, ...], when: int = NOW) -> bool:
        """Tell whether all these pods fit at once."""
        wanted = [ask for ask in asks if ask.pods > 0 and ask.units]
        if any(self.room_for(ask, when) < ask.pods for ask in wanted):
            return False
        return len(wanted) < 2 or self._pack(wanted, when)  # noqa: PLR2004 - one shape needs no packing

    def room_for(self, ask: Ask, when: int = NOW) -> int:
        """Return how many pods like these fit, if they were alone; those that must be together counted as wholes."""
        pods = {path: numbers[when] for path, numbers in self._count(ask).items()}
        for depth, size in sorted(ask.together, reverse=True):
            if ask.levels[depth - 1] == HOSTNAME:
                continue
            wider: dict[Path, int] = defaultdict(int)
            for path, number in pods.items():
                wider[path[:depth]] += number
            pods = {path: number // size * size for path, number in wider.items()}
        return sum(pods.values())

    def domains(self, ask: Ask, depth: int) -> dict[Path, int]:
        """Return how many of an ask's pods fit now into each domain at a depth of its topology that is no host."""
        found: dict[Path, int] = defaultdict(int)
        for path, numbers in self._count(ask).items():
            found[path[:depth]] += numbers[NOW]
        return found

    def enough(self, asks: tuple[Ask, ...]) -> bool:
        """Tell whether the free GPUs suffice in sum, on the nodes that the pods may have, labelled or not."""
        wanted = [ask for ask in asks if ask.pods > 0 and ask.units]
        for ask in wanted:
            self.fleet.learn(ask.constraint)
        for group in ([ask] for ask in wanted) if len(wanted) == 1 else (wanted, *([ask] for ask in wanted)):
            need: Counter[str] = Counter()
            for ask in group:
                need.update({resource: amount * ask.pods for resource, amount in ask.units})
            if need - self._free_for(group):
                return False
        return True

    def _free_for(self, asks: Iterable[Ask]) -> Counter[str]:
        """Return the GPUs that are free on the nodes that any of the pods may have."""
        places = {ask.place for ask in asks}
        pinned = {place for place in places if is_pinned(place[0])}
        free = self._free.of(frozenset(places - pinned))
        if pinned:
            free = Counter(free)
            for name in {name for place in pinned for name in self._pinned(place)}:
                spot = self.fleet.spot(name)
                if not any(self.fleet.takes(place, spot.kind) for place in places - pinned):
                    free.update({resource: max(0, times[NOW]) for resource, times in spot.room})
        return free

    def _pinned(self, place: Place) -> list[str]:
        """Return the nodes that take pods which name their host."""
        return [name for name in self.fleet.hosts(place[0]) if self.fleet.takes_pinned(place, name)]

    def exceeds(self, asks: tuple[Ask, ...]) -> bool:
        """Tell whether a pod asks for more GPUs than any of the nodes has that it could go to by their labels."""
        return any(self._exceeds(ask) for ask in asks if ask.pods > 0 and ask.units)

    def _exceeds(self, ask: Ask) -> bool:
        fleet = self.fleet
        if is_pinned(ask.constraint):
            names = [name for name in fleet.hosts(ask.constraint) if fleet.chooses_pinned(ask.constraint, name)]
            kinds = [fleet.spot(name).kind for name in names]
        else:
            fleet.learn(ask.constraint)
            kinds = [kind for kind in fleet.kinds() if fleet.chooses(ask.constraint, kind)]
        return bool(kinds) and not any(_covers(kind.capacity, ask.units) for kind in kinds)

    def lacking(self, ask: Ask) -> list[Lacking]:
        """Return the nodes that would take an ask's pods, were it not for a level label that they lack."""
        fleet = self.fleet
        fleet.learn(ask.constraint, ask.levels)
        if is_pinned(ask.constraint):
            names = self._pinned(ask.place)
        else:
            kinds = [kind for kind in fleet.kinds() if fleet.path(ask.levels, kind) is None]
            names = [name for kind in kinds if fleet.takes(ask.place, kind) for name in fleet.names(kind)]
        alike: dict[Spot, list[str]] = defaultdict(list)
        for name in names:
            alike[fleet.spot(name)].append(name)
        return [
            Lacking(path, pods, tuple(sorted(found)))
            for spot, found in alike.items()
            if None in (path := fleet.values(ask.levels, spot.kind)) and (pods := per_node(spot.room, ask.units, NOW))
        ]

    # --- counting ----------------------------------------------------------------------------------------------------

    def _count(self, ask: Ask) -> dict[Path, list[int]]:
        """Return how many pods of an ask's shape fit at each time, by domain."""
        self.fleet.learn(ask.constraint, ask.levels)
        by_host = next((size for depth, size in ask.together if ask.levels[depth - 1] == HOSTNAME), 1)
        depth = max((depth for depth, _ in ask.together if ask.levels[depth - 1] != HOSTNAME), default=0)
        shape = _Shape(ask.units, ask.place, ask.levels, depth, by_host)
        if not is_pinned(ask.constraint):
            return self._pods.of(shape)
        pods: dict[Path, list[int]] = defaultdict(lambda: [0, 0, 0])
        for name in self._pinned(ask.place):
            self._add_room(shape, pods, self.fleet.spot(name), 1)
        return pods

    def _add_pods(self, shape: _Shape, pods: dict[Path, list[int]], spot: Spot, number: int) -> None:
        if self.fleet.takes(shape.place, spot.kind):
            self._add_room(shape, pods, spot, number)

    def _add_room(self, shape: _Shape, pods: dict[Path, list[int]], spot: Spot, number: int) -> None:
        path = self.fleet.path(shape.levels, spot.kind)
        if path is not None:
            numbers = pods[path[: shape.depth]]
            for when in (NOW, SOON, LATER):
                numbers[when] += per_node(spot.room, shape.units, when) // shape.by_host * shape.by_host * number

    def _add_free(self, places: frozenset[Place], free: Counter[str], spot: Spot, number: int) -> None:
        if any(self.fleet.takes(place, spot.kind) for place in places):
            for resource, times in spot.room:
                free[resource] += max(0, times[NOW]) * number

    # --- placing several shapes --------------------------------------------------------------------------------------

    def _pack(self, asks: list[Ask], when: int) -> bool:
        for ask in asks:
            self.fleet.learn(ask.constraint, ask.levels)
        resources = sorted({resource for ask in asks for resource, _ in ask.units})
        pieces = [
            Piece(ask.pods, tuple(dict(ask.units).get(name, 0) for name in resources), tuple(sorted(ask.together)))
            for ask in asks
        ]
        pinned = {name for ask in asks if is_pinned(ask.constraint) for name in self.fleet.hosts(ask.constraint)}
        cells = self.fleet.cells - Counter(self.fleet.spot(name) for name in pinned)
        nodes: list[tuple[Spot, int, str | None]] = [(spot, number, None) for spot, number in cells.items()]
        nodes += [(self.fleet.spot(name), 1, name) for name in sorted(pinned)]
        bins = []
        for spot, number, name in nodes:
            room = dict(spot.room)
            free = tuple(max(0, room[resource][when]) if resource in room else 0 for resource in resources)
            if any(free):
                bins.append(Bin(number, free, tuple(self._path_of(ask, spot.kind, name) for ask in asks)))
        return pack(pieces, bins)

    def _path_of(self, ask: Ask, kind: Kind, name: str | None) -> Path | None:
        if is_pinned(ask.constraint):
            takes = name is not None and self.fleet.takes_pinned(ask.place, name)
        else:
            takes = self.fleet.takes(ask.place, kind)
        path = self.fleet.path(ask.levels, kind) if takes else None
        return path[:-1] if path and ask.levels[-1] == HOSTNAME else path


def _covers(capacity: Units, units: Units) -> bool:
    have = dict(capacity)
    return all(have.get(resource, 0) >= amount for resource, amount in units)
