# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The domains of a topology over the nodes of one flavor, kept as sums while nodes change.

A domain is the whole path of label values from the widest level down: rack `r1` in block `a` is not rack `r1` in block
`b`. A node that lacks a label is in no domain of that level, nor of any below. What pods hold counts in every domain
that the node is in; what is free only where a new pod could come: on nodes that take pods and, under Kueue, which
leaves out any other without a word, have the label of every level.

`NodePart` is what one node adds. What a changed domain adds to the figures of its level takes the place of what it
added before, so that a changed node costs the same in a cluster of any size.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from datadog_checks.kueue_gang.facts.quantity import Units

#: Values of the levels from the widest down.
Path = tuple[str, ...]
#: Of one resource: what is free, then for each size in turn how many pods of that size the nodes have room for.
Row = tuple[int, ...]

FREE, PARTIAL, FULL = "free", "partial", "full"
STATES = (FREE, PARTIAL, FULL)
#: Sizes of pods of which the room in each domain is kept.
_MAX_FITS = 8


@dataclass(frozen=True, slots=True)
class Layout:
    """A topology over the nodes of a flavor: the node label of each level, widest first.

    `topology` and `flavor` are '' for the levels of the user's option, which are those of all nodes.
    """

    topology: str
    flavor: str
    levels: tuple[str, ...]


class NodePart(NamedTuple):
    """What a node adds: its labels by level (None where it lacks one), GPU units that it has and that pods hold.

    `rows` hold by resource what is free; it is empty for a node that takes no new pod of this flavor. `shared`: other
    flavors select it, too.
    """

    values: tuple[str | None, ...]
    capacity: Units
    allocated: int
    rows: tuple[tuple[str, Row], ...]
    shared: bool

    @property
    def path(self) -> Path:
        """The values down to the first level whose label is absent."""
        found: list[str] = []
        for value in self.values:
            if value is None:
                break
            found.append(value)
        return tuple(found)


class Domain:
    """The nodes of a domain in sum: their number, GPU units that pods hold, and by resource what is free."""

    __slots__ = ("allocated", "nodes", "rows")

    def __init__(self) -> None:
        """Begin without nodes."""
        self.nodes = 0
        self.allocated = 0
        self.rows: dict[str, list[int]] = {}

    @property
    def state(self) -> str:
        """The domain_state, all GPU resources together."""
        if not any(row[0] for row in self.rows.values()):
            return FULL
        return PARTIAL if self.allocated else FREE


@dataclass(frozen=True, slots=True)
class LevelFigures:
    """What is told of one level.

    `labeled` and `unlabeled` count GPU nodes, `unlabeled_gpus` is by resource. `domains` counts domains by state,
    `largest_free` is by resource, `slots` by (pods, GPUs a pod) and resource.
    """

    label: str
    labeled: int
    unlabeled: int
    unlabeled_gpus: Mapping[str, int]
    domains: Mapping[str, int]
    largest_free: Mapping[str, int]
    slots: Mapping[tuple[tuple[int, int], str], int]


@dataclass(frozen=True, slots=True)
class LayoutFigures:
    """What is told of a layout; `free` is by resource, on nodes that take pods and have the label of every level."""

    layout: Layout
    levels: tuple[LevelFigures, ...]
    free: Mapping[str, int]
    nodes_shared: int


@dataclass(slots=True)
class Level:
    """One level of a layout."""

    label: str
    labeled: int = 0
    unlabeled: int = 0
    unlabeled_gpus: Counter[str] = field(default_factory=Counter)
    domains: dict[Path, Domain] = field(default_factory=dict)
    states: Counter[str] = field(default_factory=Counter)
    #: By resource: the number of domains by what is free in them.
    free: dict[str, Counter[int]] = field(default_factory=dict)
    #: By resource: aligned with the slots.
    slots: dict[str, list[int]] = field(default_factory=dict)


#: State and rows of a domain.
_Before = tuple[str, dict[str, list[int]]]
#: (number of the level, path) of a domain that is being changed: the domain, and what it was before, None for nothing.
_Taken = dict[tuple[int, Path], tuple[Domain, _Before | None]]


class Domains:
    """The domains of one layout."""

    def __init__(self, layout: Layout, slots: Sequence[tuple[int, int]]) -> None:
        """Begin without nodes; `slots` are (pods, GPUs a pod)."""
        self.layout = layout
        self.parts: dict[str, NodePart] = {}
        self._slots = tuple(slots)
        sizes = sizes_of(slots)
        #: (pods, column of a row) of each slot, and the number of columns.
        self._columns = tuple((pods, sizes.index(size) + 1) for pods, size in slots)
        self._width = len(sizes) + 1
        self._levels = tuple(Level(label) for label in layout.levels)
        self._having: Counter[str] = Counter()
        self._free: Counter[str] = Counter()
        self._shared = 0
        #: By (resource, GPUs a pod), for the sizes that were asked for.
        self._fits: dict[tuple[str, int], Fits] = {}

    def update(self, changed: Iterable[tuple[str, NodePart | None]]) -> None:
        """Take nodes that changed: name, and what they add now."""
        taken: _Taken = {}
        for name, part in changed:
            old = self.parts.get(name)
            if old == part:
                continue
            if part is None:
                del self.parts[name]
            else:
                self.parts[name] = part
            if old is None or part is None or (old.values, old.capacity) != (part.values, part.capacity):
                self._count(old, -1)
                self._count(part, 1)
                self._move(old, -1, taken)
                self._move(part, 1, taken)
            else:
                # Pods came or went: where the node lies and what it has is the same, and that is nearly always so.
                self._shared += part.shared - old.shared
                self._change(old, part, taken)
        for (index, path), (domain, before) in taken.items():
            self._tell(self._levels[index], domain, before)
            if not domain.nodes:
                del self._levels[index].domains[path]

    def _count(self, part: NodePart | None, sign: int) -> None:
        """Count the labels and the resources of a node."""
        if part is None:
            return
        for resource, _ in part.capacity:
            self._having[resource] += sign
        self._shared += sign * part.shared
        for level, value in zip(self._levels, part.values, strict=True):
            if value is None:
                level.unlabeled += sign
                for resource, amount in part.capacity:
                    level.unlabeled_gpus[resource] += sign * amount
            else:
                level.labeled += sign

    def _move(self, part: NodePart | None, sign: int, taken: _Taken) -> None:
        """Put a node into its domains, or take it out of them."""
        if part is None:
            return
        for domain in self._domains_of(part.path, taken):
            domain.nodes += sign
            for resource, _ in part.capacity:
                if resource not in domain.rows:
                    domain.rows[resource] = [0] * self._width
        nothing = part._replace(allocated=0, rows=())
        self._change(*((nothing, part) if sign > 0 else (part, nothing)), taken)

    def _change(self, old: NodePart, new: NodePart, taken: _Taken) -> None:
        """Change what the domains of a node have by what the node has more or less."""
        path, rows = (
            new.path,
            [*((row, -1, name) for name, row in old.rows), *((row, 1, name) for name, row in new.rows)],
        )
        more: dict[str, list[int]] = {}
        for row, sign, resource in rows:
            mine = more.setdefault(resource, [0] * self._width)
            for column, amount in enumerate(row):
                mine[column] += sign * amount
        more = {resource: row for resource, row in more.items() if any(row)}
        allocated = new.allocated - old.allocated
        for domain in self._domains_of(path, taken) if more or allocated else ():
            domain.allocated += allocated
            for resource, added in more.items():
                domain.rows[resource] = [
                    have + amount for have, amount in zip(domain.rows[resource], added, strict=True)
                ]
        for resource, added in more.items():
            self._free[resource] += added[0]
        for (resource, size), rooms in self._fits.items():
            before, now = (dict(part.rows).get(resource, (0,))[0] // size for part in (old, new))
            rooms.add(path, now - before)

    def _domains_of(self, path: Path, taken: _Taken) -> list[Domain]:
        """Return the domains of a path, each noted with what it had before the first change."""
        found = []
        for index, level in enumerate(self._levels[: len(path)]):
            key = index, path[: index + 1]
            if key in taken:
                found.append(taken[key][0])
                continue
            domain = level.domains.get(key[1])
            if domain is None:
                domain = level.domains[key[1]] = Domain()
                taken[key] = domain, None
            else:
                taken[key] = domain, (domain.state, dict(domain.rows))
            found.append(domain)
        return found

    def _tell(self, level: Level, domain: Domain, before: _Before | None) -> None:
        """Put a domain that changed into the figures of its level, in place of what it was before."""
        state, rows = (domain.state, domain.rows) if domain.nodes else ("", {})
        old_state, old_rows = before or ("", {})
        if state != old_state:
            level.states[state] += 1
            level.states[old_state] -= 1
        for resource in {**rows, **old_rows}:
            row, old = rows.get(resource), old_rows.get(resource)
            if row == old:
                continue
            free = level.free.setdefault(resource, Counter())
            slots = level.slots.setdefault(resource, [0] * len(self._columns))
            for one, sign in ((row, 1), (old, -1)):
                if one is not None:
                    free[one[0]] += sign
                    if not free[one[0]]:
                        del free[one[0]]
                    if one[0]:
                        for number, (pods, column) in enumerate(self._columns):
                            slots[number] += sign * (one[column] // pods)

    def figures(self) -> LayoutFigures:
        """Return what is told of the layout."""
        having = sorted(resource for resource, number in self._having.items() if number)
        return LayoutFigures(
            layout=self.layout,
            levels=tuple(self._figures(level, having) for level in self._levels),
            free={resource: self._free[resource] for resource in having},
            nodes_shared=self._shared,
        )

    def _figures(self, level: Level, having: Sequence[str]) -> LevelFigures:
        return LevelFigures(
            label=level.label,
            labeled=level.labeled,
            unlabeled=level.unlabeled,
            unlabeled_gpus=+level.unlabeled_gpus,
            domains={state: level.states[state] for state in STATES if level.states[state]},
            largest_free={resource: max(level.free.get(resource, ()), default=0) for resource in having},
            slots={
                (slot, resource): level.slots[resource][number] if resource in level.slots else 0
                for number, slot in enumerate(self._slots)
                for resource in having
            },
        )

    # --- the least number of domains ---------------------------------------------------------------------------------

    def least(self, resource: str, size: int, number: int, own: Mapping[str, int]) -> tuple[int | None, ...]:
        """Return how few domains could hold pods, level by level; None where all of them together could not.

        Args:
            resource: the GPU resource.
            size: GPUs a pod.
            number: of pods.
            own: GPUs by node that these very pods hold: they are as good as free.

        """
        rooms = self._fits_for(resource, size)
        more = Fits(len(self._levels))
        for name, amount in own.items():
            part = self.parts.get(name)
            row = dict(part.rows).get(resource) if part else None
            if part and row:
                more.add(part.path, (row[0] + amount) // size - row[0] // size)
        return tuple(rooms.least(index, more.levels[index], number) for index in range(len(self._levels)))

    def _fits_for(self, resource: str, size: int) -> "Fits":
        found = self._fits.get((resource, size))
        if found is None:
            if len(self._fits) >= _MAX_FITS:
                self._fits.clear()
            found = self._fits[resource, size] = Fits(len(self._levels))
            for part in self.parts.values():
                found.add(part.path, dict(part.rows).get(resource, (0,))[0] // size)
        return found


class Fits:
    """For how many pods of one size each domain has room, level by level, and how many domains have how much."""

    def __init__(self, levels: int) -> None:
        """Begin without domains."""
        self.levels: list[dict[Path, int]] = [{} for _ in range(levels)]
        self._counted: list[Counter[int]] = [Counter() for _ in range(levels)]

    def add(self, path: Path, number: int) -> None:
        """Add room in the domains of a path."""
        if not number:
            return
        for index in range(len(path)):
            rooms, counted, here = self.levels[index], self._counted[index], path[: index + 1]
            before = rooms.pop(here, 0)
            counted[before] -= 1
            if not counted[before]:
                del counted[before]
            if before + number:
                rooms[here] = before + number
                counted[before + number] += 1

    def least(self, index: int, more: Mapping[Path, int], number: int) -> int | None:
        """Return how few domains of a level hold so many pods, the largest first; `more` is room to be added."""
        rooms, changed = self.levels[index], Counter(self._counted[index])
        for path, added in more.items():
            room = rooms.get(path, 0)
            changed[room] -= 1
            changed[room + added] += 1
        domains = 0
        for room in sorted((room for room, times in changed.items() if room > 0 and times > 0), reverse=True):
            wanted = -(-number // room)
            if wanted <= changed[room]:
                return domains + wanted
            domains += changed[room]
            number -= room * changed[room]
        return None


def sizes_of(slots: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """Return the sizes of pods for which the rows of a node have a column."""
    return tuple(sorted({size for _, size in slots}))
