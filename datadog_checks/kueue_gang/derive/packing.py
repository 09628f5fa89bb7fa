# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Placing pods of several shapes at once, which is bin packing.

The largest pods are placed first, each on the fullest node that can take it; pods that must be together take the domain
that is just large enough. That way finds most placements and is never wrong about the one it finds. Where it finds none
and the question is small, every placement is tried.

Nodes that are alike come as one `Bin` with a number, so that a thousand equal nodes cost as much as one.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

#: Domain values from the top.
Path = tuple[str, ...]
#: Free GPUs, one number a resource, in an order that all bins and pieces share.
Amounts = tuple[int, ...]

#: Nodes, pods and steps up to which every placement is tried.
_FEW_NODES, _FEW_PODS, _FEW_STEPS = 12, 64, 20_000


class Piece(NamedTuple):
    """`pods` pods that need `units` each.

    Each of `together` is (depth, size), the widest first: every `size` of them share the first `depth` path values.
    """

    pods: int
    units: Amounts
    together: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class Bin:
    """`number` equal nodes with `free` GPUs each, and their path for each piece, None where it may not use them.

    Paths are told as deep as nodes of one bin share them; one value deeper each node is a domain of its own.
    """

    number: int
    free: Amounts
    paths: tuple[Path | None, ...]


class _Task(NamedTuple):
    """Pods of a piece that are still to be placed, within the domain of a path."""

    piece: int
    pods: int
    together: tuple[tuple[int, int], ...]
    within: Path


def fit(free: Amounts, units: Amounts) -> int:
    """Return how many pods that need `units` fit into what is free; they need something."""
    return min(have // want for have, want in zip(free, units, strict=True) if want)


def less(free: Amounts, units: Amounts, times: int) -> Amounts:
    """Return what is free once so many pods took their part."""
    return tuple(have - want * times for have, want in zip(free, units, strict=True))


def pack(pieces: Sequence[Piece], bins: Iterable[Bin]) -> bool:
    """Tell whether all pieces fit at once. True is proven; False is, too, where the question is small."""
    found = [one for one in bins if any(path is not None for path in one.paths)]
    order = sorted(range(len(pieces)), key=lambda index: (-sum(pieces[index].units), _choice(index, found)))
    tasks = tuple(_Task(index, pieces[index].pods, pieces[index].together, ()) for index in order)
    if _Greedy(pieces, found).place_all(tasks):
        return True
    nodes = sum(one.number for one in found)
    few = nodes <= _FEW_NODES and sum(piece.pods for piece in pieces) <= _FEW_PODS
    return few and _Exhaustive(pieces, found).place_all(tasks)


def _choice(index: int, bins: Iterable[Bin]) -> int:
    return sum(one.number for one in bins if one.paths[index] is not None)


class _Greedy:
    """One placement, step by step."""

    def __init__(self, pieces: Sequence[Piece], bins: Iterable[Bin]) -> None:
        self._pieces = pieces
        self._bins = [Bin(one.number, one.free, one.paths) for one in bins]

    def place_all(self, tasks: Iterable[_Task]) -> bool:
        return all(self._place(task) for task in tasks)

    def _place(self, task: _Task) -> bool:
        if not task.together:
            return self._fill(task)
        (depth, size), *rest = task.together
        left = task.pods
        while left > 0:
            block = min(size, left)
            if not self._place_block(task._replace(pods=block, together=tuple(rest)), depth):
                return False
            left -= block
        return True

    def _place_block(self, task: _Task, depth: int) -> bool:
        """Place pods that share a domain in the one that is just large enough."""
        if any(path is not None and len(path) < depth for path in (one.paths[task.piece] for one in self._bins)):
            return self._place_on_one(task)
        room: dict[Path, int] = defaultdict(int)
        for one in self._within(task):
            path = one.paths[task.piece] or ()
            room[path[:depth]] += one.number * fit(one.free, self._pieces[task.piece].units)
        for _, path in sorted((number, path) for path, number in room.items() if number >= task.pods):
            before = [Bin(one.number, one.free, one.paths) for one in self._bins]
            if self._place(task._replace(within=path)):
                return True
            self._bins = before
        return False

    def _place_on_one(self, task: _Task) -> bool:
        units = self._pieces[task.piece].units
        large = [one for one in self._within(task) if fit(one.free, units) >= task.pods]
        if large:
            fullest = min(large, key=lambda one: one.free)
            self._use(fullest, 1, less(fullest.free, units, task.pods))
        return bool(large)

    def _fill(self, task: _Task) -> bool:
        units, left = self._pieces[task.piece].units, task.pods
        for one in sorted(self._within(task), key=lambda one: one.free):
            each = fit(one.free, units)
            if not each or not left:
                continue
            full = min(one.number, left // each)
            if full:
                self._use(one, full, less(one.free, units, each))
                left -= full * each
            if left and one.number:
                placed = min(each, left)
                self._use(one, 1, less(one.free, units, placed))
                left -= placed
        return not left

    def _within(self, task: _Task) -> list[Bin]:
        depth = len(task.within)
        return [
            one
            for one in self._bins
            if one.number and (path := one.paths[task.piece]) is not None and path[:depth] == task.within
        ]

    def _use(self, one: Bin, number: int, free: Amounts) -> None:
        one.number -= number
        self._bins.append(Bin(number, free, one.paths))


class _Exhaustive:
    """Every placement, on single nodes; what failed once is not tried again."""

    def __init__(self, pieces: Sequence[Piece], bins: Iterable[Bin]) -> None:
        self._pieces = pieces
        tokens = count()
        self._nodes = [
            (one.free, tuple(None if path is None else (*path, f"\0{token}") for path in one.paths))
            for one in bins
            for token in [next(tokens) for _ in range(one.number)]
        ]
        self._failed: set[tuple[tuple[_Task, ...], tuple[Amounts, ...]]] = set()
        self._steps = 0

    def place_all(self, tasks: tuple[_Task, ...]) -> bool:
        return self._try(tasks, tuple(free for free, _ in self._nodes))

    def _try(self, tasks: tuple[_Task, ...], free: tuple[Amounts, ...]) -> bool:
        if not tasks:
            return True
        if (tasks, free) in self._failed or self._steps >= _FEW_STEPS:
            return False
        self._steps += 1
        task, rest = tasks[0], tasks[1:]
        if not task.pods:
            return self._try(rest, free)
        found = self._try_block(task, rest, free) if task.together else self._try_pod(task, rest, free)
        if not found:
            self._failed.add((tasks, free))
        return found

    def _try_block(self, task: _Task, rest: tuple[_Task, ...], free: tuple[Amounts, ...]) -> bool:
        (depth, size), *inner = task.together
        block = min(size, task.pods)
        later = (task._replace(pods=task.pods - block), *rest)
        domains = dict.fromkeys(path[:depth] for path in self._paths(task) if path is not None)
        return any(
            self._try((task._replace(pods=block, together=tuple(inner), within=path), *later), free) for path in domains
        )

    def _try_pod(self, task: _Task, rest: tuple[_Task, ...], free: tuple[Amounts, ...]) -> bool:
        units, later = self._pieces[task.piece].units, (task._replace(pods=task.pods - 1), *rest)
        tried: set[tuple[Amounts, tuple[Path | None, ...]]] = set()
        for index, path in enumerate(self._paths(task)):
            if path is None or not fit(free[index], units):
                continue
            # Nodes that are alike for every piece give the same answer.
            alike = free[index], tuple(one and one[:-1] for one in self._nodes[index][1])
            if alike not in tried:
                tried.add(alike)
                if self._try(later, (*free[:index], less(free[index], units, 1), *free[index + 1 :])):
                    return True
        return False

    def _paths(self, task: _Task) -> list[Path | None]:
        depth = len(task.within)
        return [
            path if (path := paths[task.piece]) is not None and path[:depth] == task.within else None
            for _, paths in self._nodes
        ]
