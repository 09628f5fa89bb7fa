# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What would fit if nodes carried the topology labels that they lack.

A node that lacks a level label could be in any domain that its other labels allow: one that is known, one of its own,
or one that it shares with a node that lacks another label. The domains that need the fewest such nodes are tried, and
only a placement that the fit engine confirms counts.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations

from datadog_checks.kueue_gang.derive.fit import Ask, Fits, Lacking
from datadog_checks.kueue_gang.derive.fleet import Relabelling
from datadog_checks.kueue_gang.derive.packing import Path
from datadog_checks.kueue_gang.facts.constraints import HOSTNAME

#: Domains that are tried; the first is the one that has most room.
_TRIES = 4
#: Different sets of labels that nodes have left, up to which those that fit together are looked for.
_FEW_PATHS = 32


def would_fit_labelled(fits: Fits, asks: tuple[Ask, ...]) -> bool:
    """Tell whether pods would fit if the nodes without a level label had it."""
    return next(relabellings(fits, asks), None) is not None


def relabellings(fits: Fits, asks: tuple[Ask, ...]) -> Iterator[Relabelling]:
    """Yield labels for nodes that lack them, with which everything fits; those with the fewest nodes come first."""
    for ask in asks:
        if ask.pods > 0 and ask.units and ask.levels:
            for labels in _of(fits, ask):
                with fits.fleet.relabelled(labels):
                    enough = fits.fits(asks)
                if enough:
                    yield labels


def _of(fits: Fits, ask: Ask) -> Iterator[Relabelling]:
    """Yield labels with which one ask may fit: for each of the domains with most room as many nodes as are needed."""
    depth = min((depth for depth, _ in ask.together), default=0)
    size = next((size for at, size in sorted(ask.together) if at == depth), ask.pods)
    lacking = fits.lacking(ask)
    if not lacking:
        return
    if depth and ask.levels[depth - 1] == HOSTNAME:
        # A host gains nothing from the labels of others.
        plans: list[_Plan] = [((), [(one, 1)]) for one in lacking if one.pods >= size]
    else:
        plans = list(_plans(lacking, fits.domains(ask, depth), depth, size))
    for path, found in sorted(plans, key=lambda plan: (sum(number for _, number in plan[1]), plan[0]))[:_TRIES]:
        yield {
            name: {
                level: path[index] if index < len(path) else f"\0new-{index}"
                for index, (level, value) in enumerate(zip(ask.levels, one.path, strict=True))
                if value is None
            }
            for one, number in found
            for name in one.names[:number]
        }


_Partial = tuple[str | None, ...]
#: A domain, and how many nodes of which kinds it takes to make it large enough.
_Plan = tuple[Path, list[tuple[Lacking, int]]]


def _plans(lacking: list[Lacking], room: dict[Path, int], depth: int, size: int) -> Iterator[_Plan]:
    """Yield for each domain that could be large enough the fewest nodes that make it so.

    Nodes that lack the same labels can be in the same domains: those that have the values that the nodes have.
    """
    partial = dict.fromkeys(one.path[:depth] for one in lacking)
    for path in (*partial, *_shared(partial)):
        # A domain of its own: what it lacks gets a value that no other has.
        room.setdefault(tuple(value or f"\0new-{index}" for index, value in enumerate(path)), 0)
    masks = {tuple(value is None for value in one.path[:depth]) for one in lacking}
    alike: dict[tuple[str | None, ...], list[Path]] = defaultdict(list)
    for path in room:
        for mask in masks:
            alike[tuple(None if hidden else value for hidden, value in zip(mask, path, strict=True))].append(path)
    mates: dict[Path, list[Lacking]] = defaultdict(list)
    for one in lacking:
        for path in alike[one.path[:depth]]:
            mates[path].append(one)
    for path, found in mates.items():
        wanted = size - room[path]
        if sum(one.pods * len(one.names) for one in found) >= wanted:
            yield path, _fewest(found, wanted)


def _shared(partial: Iterable[_Partial]) -> Iterator[_Partial]:
    """Yield the domains that nodes which lack different labels could share."""
    found = list(partial)
    if len(found) <= _FEW_PATHS:
        for one, other in combinations(found, 2):
            if all(a == b or None in {a, b} for a, b in zip(one, other, strict=True)):
                yield tuple(a or b for a, b in zip(one, other, strict=True))


def _fewest(mates: list[Lacking], wanted: int) -> list[tuple[Lacking, int]]:
    """Return how many nodes of which kinds are the fewest that take so many more pods."""
    found = []
    for one in sorted(mates, key=lambda one: (-one.pods, one.names)):
        number = min(len(one.names), -(-wanted // one.pods))
        if number <= 0:
            break
        found.append((one, number))
        wanted -= number * one.pods
    return found
