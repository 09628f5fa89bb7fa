# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Gangs that hold each other's GPUs.

Each gang of a deadlock holds a part of what it needs and waits for GPUs that another holds, which waits, too. All that
hold something and are not complete are looked at, as long as none of their pods is missing: a pod that does not exist
waits for nothing. Whoever fits into what is free, and into what pods that terminate will give, will run and give back
what it holds; that may let the next one run. Of those that are left, one that would fit if another of them gave back
what it holds is deadlocked. The others are short of GPUs, which is no deadlock.
"""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import NamedTuple

from datadog_checks.kueue_gang.derive.fit import Ask, Fits
from datadog_checks.kueue_gang.derive.fleet import LATER, Fleet, Room
from datadog_checks.kueue_gang.derive.rooms import Held, plus
from datadog_checks.kueue_gang.derive.transitions import Key
from datadog_checks.kueue_gang.facts.nodes import Node


class Holder(NamedTuple):
    """A gang that holds GPUs, by node and resource, and what it still has to place."""

    key: Key
    asks: tuple[Ask, ...]
    held: Held


def deadlocked(holders: Iterable[Holder], fits: Fits) -> frozenset[Key]:
    """Return the gangs that are deadlocked."""
    fleet = fits.fleet
    rest = sorted(holders, key=lambda holder: holder.key)
    if len(rest) < 2:  # noqa: PLR2004 - it takes two
        return frozenset()
    with ExitStack() as released:
        while fitting := [holder for holder in rest if fits.fits(holder.asks, LATER)]:
            for holder in fitting:
                released.enter_context(fleet.supposing(_given_back(holder, fleet)))
            rest = [holder for holder in rest if holder not in fitting]
        waiting = {holder.asks: [one for one in rest if one.asks == holder.asks] for holder in rest}
        found: set[Key] = set()
        for other in rest:
            with fleet.supposing(_given_back(other, fleet)):
                for asks, alike in waiting.items():
                    left = [one for one in alike if one is not other and one.key not in found]
                    if left and fits.fits(asks, LATER):
                        found.update(one.key for one in left)
        return frozenset(found)


def _given_back(holder: Holder, fleet: Fleet) -> Mapping[str, tuple[Node, Room]]:
    """Return the nodes on which a gang holds GPUs as they would be without it."""
    return {
        name: (known[0], plus(known[1], amounts))
        for name, amounts in holder.held.items()
        if (known := fleet.node(name)) is not None
    }
