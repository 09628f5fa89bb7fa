# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The oracle of test_exhaustive: what fits where, found by trying every node for every single pod.

It is written from docs/model.md alone and shares no idea with the fit engine: no nodes or pods that count as one, no
order of packing, no bounds, no answers that are kept and brought up to date. A placement is a node for each pod; all of
them are tried, with plain memoisation, so this is slow and obviously right.
"""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache

HOSTNAME = "kubernetes.io/hostname"
GPU_KEY = "nvidia.com/gpu"
#: (key, value, effect) of a taint; (key, operator, value, effect) of a toleration.
Taint = tuple[str, str, str]
Toleration = tuple[str, str, str, str]
Labels = tuple[tuple[str, str], ...]
#: Values of the labels of some levels, from the top.
Domain = tuple[str | None, ...]


@dataclass(frozen=True)
class Machine:
    """A node: GPUs that it has and that its device plugin offers."""

    name: str
    capacity: int
    allocatable: int
    labels: Labels = ()
    taints: tuple[Taint, ...] = ()
    cordoned: bool = False
    ready: bool = True

    def label(self, key: str) -> str | None:
        """Return the value of a label, None where the node lacks it."""
        return dict(self.labels).get(key)


@dataclass(frozen=True)
class Box:
    """A pod: what it asks for, where it is if it has a node, whether it is Ready there, and whether it terminates.

    One that `waits` has its node reserved by the scheduler, for certain. `leaving` is "grace" within its deletion grace
    and "overdue" after that. `affinity` is any test on a node.
    """

    name: str
    gpus: int
    node: str = ""
    selector: Labels = ()
    tolerates: tuple[Toleration, ...] = ()
    leaving: str = ""
    up: bool = False
    waits: bool = False
    affinity: Callable[[Machine], bool] | None = None

    @property
    def wish(self) -> tuple[object, ...]:
        """What it asks for, and of which nodes."""
        return self.gpus, self.selector, self.tolerates, self.affinity


def tolerated(taint: Taint, box: Box) -> bool:
    """Tell whether a taint keeps a pod away: that of the GPU resource never does, those of the node always do."""
    key, value, effect = taint
    if effect not in {"NoSchedule", "NoExecute"} or key == GPU_KEY:
        return True
    if key.startswith("node.kubernetes.io/"):
        return False
    return any(
        key == its_key and its_effect in {"", effect} and (operator == "Exists" or value == its_value)
        for its_key, operator, its_value, its_effect in box.tolerates
    )


def chosen(machine: Machine, box: Box) -> bool:
    """Tell whether labels allow a pod on a node."""
    return all(machine.label(key) == value for key, value in box.selector) and (
        box.affinity is None or box.affinity(machine)
    )


def takes(machine: Machine, box: Box) -> bool:
    """Tell whether a pod may be put on a node at all, whatever is free there."""
    return (
        machine.ready
        and not machine.cordoned
        and chosen(machine, box)
        and all(tolerated(taint, box) for taint in machine.taints)
    )


@dataclass(frozen=True)
class Troop:
    """Equal pods: each of `together` is (number of levels, size), and every `size` of them share that many labels."""

    box: Box
    pods: int
    levels: tuple[str, ...] = ()
    together: tuple[tuple[int, int], ...] = ()


def placeable(troops: Iterable[Troop], machines: tuple[Machine, ...], free: tuple[int, ...]) -> bool:
    """Tell whether all pods of all troops find a node at once.

    The pods of a troop are equal, so it is no loss that the first `size` of them are the first group, and so on. A node
    that lacks a label of any level is none for a troop that has levels.
    """
    pods: list[tuple[Troop, int]] = [(troop, number) for troop in troops for number in range(troop.pods)]
    able = {
        troop: [
            index
            for index, machine in enumerate(machines)
            if takes(machine, troop.box) and all(machine.label(level) is not None for level in troop.levels)
        ]
        for troop, _ in pods
    }

    @cache
    def rest(at: int, left: tuple[int, ...], groups: tuple[Domain, ...]) -> bool:
        if at == len(pods):
            return True
        troop, number = pods[at]
        for index in able[troop]:
            if left[index] < troop.box.gpus:
                continue
            mine = tuple(
                tuple(machines[index].label(level) for level in troop.levels[:depth]) for depth, _ in troop.together
            )
            begins = [number % size == 0 for _, size in troop.together]
            if number and any(not new and old != own for new, old, own in zip(begins, groups, mine, strict=True)):
                continue
            if rest(at + 1, (*left[:index], left[index] - troop.box.gpus, *left[index + 1 :]), mine):
                return True
        return False

    return rest(0, free, ())


@dataclass(frozen=True)
class Party:
    """A gang. One with `required` waits in Kueue for a topology: its pods are of one podset and do not exist yet."""

    name: str
    boxes: tuple[Box, ...]
    needs: int
    required: str = ""

    @property
    def placed(self) -> tuple[Box, ...]:
        """Its pods that have a node, or certainly have it reserved."""
        return tuple(box for box in self.boxes if box.node)

    @property
    def unplaced(self) -> tuple[Box, ...]:
        """Its pods that have none."""
        return tuple(box for box in self.boxes if not box.node)

    @property
    def lacks(self) -> int:
        """How many of its pods still need a node."""
        return max(0, self.needs - len(self.placed))

    @property
    def equal(self) -> bool:
        """Whether its unplaced pods ask for the same, of the same nodes."""
        return len({box.wish for box in self.unplaced}) <= 1


@dataclass(frozen=True)
class World:
    """A small cluster; `levels` are those of its one topology, `others` its pods of no gang."""

    machines: tuple[Machine, ...]
    parties: tuple[Party, ...]
    levels: tuple[str, ...] = ("rack", HOSTNAME)
    others: tuple[Box, ...] = field(default=())

    def boxes(self) -> tuple[Box, ...]:
        """Return all pods."""
        return (*self.others, *(box for party in self.parties for box in party.boxes))

    def leaving(self, *kinds: str) -> frozenset[str]:
        """Return the names of the pods that terminate so."""
        return frozenset(box.name for box in self.boxes() if box.leaving in kinds)

    def free(self, gone: frozenset[str] = frozenset()) -> tuple[int, ...]:
        """Return the free GPUs of each node once some pods are gone: never below zero."""
        used = dict.fromkeys((machine.name for machine in self.machines), 0)
        for box in self.boxes():
            if box.node and box.name not in gone:
                used[box.node] += box.gpus
        return tuple(max(0, machine.allocatable - used[machine.name]) for machine in self.machines)

    def fits(
        self, party: Party, gone: frozenset[str] = frozenset(), machines: tuple[Machine, ...] | None = None
    ) -> bool:
        """Tell whether as many unplaced pods of a gang as it needs would fit, any of them."""
        levels = self.levels if party.required else ()
        together = ((levels.index(party.required) + 1, party.lacks),) if levels else ()
        if not party.lacks:
            return True
        ways = [party.unplaced[: party.lacks]] if party.equal else itertools.combinations(party.unplaced, party.lacks)
        for boxes in ways:
            troops = (
                [Troop(boxes[0], len(boxes), levels, together)] if party.equal else [Troop(box, 1) for box in boxes]
            )
            if placeable(troops, machines or self.machines, self.free(gone)):
                return True
        return False


def labelled(world: World) -> Iterable[tuple[Machine, ...]]:
    """Yield the nodes with each way to give those that lack a level label one: a value that exists, or a new one."""
    values = {level: {machine.label(level) for machine in world.machines} - {None} for level in world.levels}
    ways = []
    for machine in world.machines:
        lacks = [level for level in world.levels if machine.label(level) is None]
        choices = itertools.product(*(sorted({*map(str, values[level]), "new"}) for level in lacks))
        ways.append([replace(machine, labels=machine.labels + tuple(zip(lacks, way, strict=True))) for way in choices])
    return itertools.product(*ways)


def blocker(world: World, party: Party) -> str:
    """Return why a gang does not run whose pods were all turned away for too few GPUs: the first that holds."""
    boxes, machines, waits = party.unplaced, world.machines, bool(party.required)

    def fits(*gone: str) -> bool:
        return world.fits(party, world.leaving(*gone))

    now = fits()
    if waits and now:
        return "topology_request"
    if not now and fits("grace"):
        return "preempting"
    if not waits:
        for box in boxes:
            sizes = [machine.capacity for machine in machines if chosen(machine, box)]
            if sizes and box.gpus > max(sizes):
                return "exceeds_node"
        if now:
            return "not_retried"
        if fits("grace", "overdue"):
            return "stuck_terminating"
    usable = [index for index, machine in enumerate(machines) if any(takes(machine, box) for box in boxes)]
    smallest = sorted(box.gpus for box in boxes)[: party.lacks]
    if sum(world.free()[index] for index in usable) < sum(smallest):
        return "capacity"
    if waits and any(world.fits(party, machines=other) for other in labelled(world)):
        return "node_labels"
    return "fragmentation"


def complete(world: World, party: Party) -> bool:
    """Tell whether enough pods of a gang are up: Ready, on a node that is there."""
    there = {machine.name for machine in world.machines if machine.ready}
    return sum(box.up and box.node in there for box in party.boxes) >= party.needs


def deadlocked(world: World) -> set[str]:
    """Return the names of the gangs that hold GPUs and cannot use them because of each other.

    A gang that is not complete and has nothing left to place (it starts) fits as it is: it will run and give back.
    """
    rest = [party for party in world.parties if party.placed and not complete(world, party)]
    gone = world.leaving("grace", "overdue")
    while released := next((party for party in rest if world.fits(party, gone)), None):
        rest.remove(released)
        gone |= {box.name for box in released.placed}
    return {
        party.name
        for party in rest
        if any(world.fits(party, gone | {box.name for box in other.placed}) for other in rest if other is not party)
    }
