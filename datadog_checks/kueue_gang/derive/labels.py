# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What would fit if nodes carried the topology labels that they lack.

A node that lacks a level label could be in any domain that its other labels allow: one that is known, one of its own,
or one that it shares with a node that lacks another label. The domains that need the fewest such nodes are tried, and
only a placement that the fit engine confirms counts.
"""

from collections.abc import Iterable, Iterator
from itertools import combinations

from datadog_checks.kueue_gang.derive.fit import NOW, Ask, Fleet, Relabelling, per_node
from datadog_checks.kueue_gang.derive.packing import Path
from datadog_checks.kueue_gang.facts.constraints import HOSTNAME

#: Domains that are tried; the first is the one that has most room.
_TRIES = 4
#: Different sets of labels that nodes have left, up to which those that fit together are looked for.
_FEW_PATHS = 32

_Partial = tuple[str | None, ...]


def would_fit_labelled(fleet: Fleet, asks: tuple[Ask, ...]) -> bool:
    """Tell whether pods would fit if the nodes without a level label had it."""
    return next(relabellings(fleet, asks), None) is not None


def relabellings(fleet: Fleet, asks: tuple[Ask, ...]) -> Iterator[Relabelling]:
    """Yield labels for nodes that lack them, with which everything fits; those with the fewest nodes come first."""
    for ask in asks:
        if ask.pods > 0 and ask.units and ask.levels:
            for labels in _of(fleet, ask):
                with fleet.relabelled(labels):
                    fits = fleet.fits(asks)
                if fits:
                    yield labels


def _of(fleet: Fleet, ask: Ask) -> Iterator[Relabelling]:
    """Yield labels with which one ask may fit: for each of the domains with most room as many nodes as are needed."""
    depth = min((depth for depth, _ in ask.together), default=0)
    size = next((size for at, size in sorted(ask.together) if at == depth), ask.pods)
    lacking = [one for one in fleet.lacking(ask) if per_node(one.room, ask.units, NOW)]
    if not lacking:
        return
    # A host gains nothing from the labels of others.
    hosts = depth > 0 and ask.levels[depth - 1] == HOSTNAME
    room: dict[Path, int] = {} if hosts else fleet.domains(ask, depth)
    partial = dict.fromkeys(one.path[:depth] for one in lacking)
    for path in (*partial, *_shared(partial)):
        # A domain of its own: what it lacks gets a value that no other has.
        room.setdefault(tuple(value or f"\0new-{index}" for index, value in enumerate(path)), 0)
    plans = []
    for path, number in room.items():
        found, left = [], size - number
        mates = (one for one in lacking if all(a in {None, b} for a, b in zip(one.path, path, strict=False)))
        for one in sorted(mates, key=lambda one: (-per_node(one.room, ask.units, NOW), one.name)):
            if left <= 0:
                break
            found.append(one)
            left -= per_node(one.room, ask.units, NOW)
        if found and left <= 0:
            plans.append((len(found), path, found))
    for _, path, found in sorted(plans, key=lambda plan: plan[:2])[:_TRIES]:
        yield {
            one.name: {
                level: path[index] if index < depth else f"\0new-{index}"
                for index, (level, value) in enumerate(zip(ask.levels, one.path, strict=True))
                if value is None
            }
            for one in found
        }


def _shared(partial: Iterable[_Partial]) -> Iterator[_Partial]:
    """Yield the domains that nodes which lack different labels could share."""
    found = list(partial)
    if len(found) <= _FEW_PATHS:
        for one, other in combinations(found, 2):
            if all(a == b or None in {a, b} for a, b in zip(one, other, strict=True)):
                yield tuple(a or b for a, b in zip(one, other, strict=True))
