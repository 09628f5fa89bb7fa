# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What `status` tells of topologies, each level with its domains and how gangs lie in them, and what cannot be seen."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from datadog_checks.kueue_gang.derive.activity import ACTIVITY
from datadog_checks.kueue_gang.derive.domains import LevelFigures
from datadog_checks.kueue_gang.derive.picture import NONE, GangView, Picture
from datadog_checks.kueue_gang.derive.placement import VIOLATION
from datadog_checks.kueue_gang.derive.watch import THROUGHPUT

#: What is counted for a signal that is not about gangs.
_ITEMS: Final = {"placement": "node"}
#: Signals that a command does not read: there is nothing to say about them.
_UNASKED: Final = frozenset({ACTIVITY, THROUGHPUT})


def lines(picture: Picture) -> list[str]:
    """Return a line for each topology and flavor, and one below it for each level."""
    found: list[str] = []
    for one in picture.layouts or ():
        told = [f"flavor {one.layout.flavor}"] if one.layout.flavor else []
        told += [f"{one.nodes_shared} of its nodes are in another flavor, too"] if one.nodes_shared else []
        found.append(", ".join([f"topology {one.layout.topology or 'of the option topology_levels'}", *told]))
        found += [f"  {_level(level, free_known=picture.free_known)}" for level in one.levels]
    return found


def _level(level: LevelFigures, *, free_known: bool) -> str:
    told = [f"{level.labeled} of {level.labeled + level.unlabeled} nodes labelled"]
    if level.unlabeled_gpus:
        told.append(f"{_amounts(level.unlabeled_gpus)} GPUs out of sight")
    if free_known:
        states = [f"{number} {state}" for state, number in level.domains.items()]
        told.append(f"{sum(level.domains.values())} domains" + (f" ({', '.join(states)})" if states else ""))
        told.append(f"at most {_amounts(level.largest_free)} free in one")
    return f"{level.label}: {', '.join(told)}"


def _amounts(amounts: Mapping[str, int]) -> str:
    """Return amounts; the resource is named where there are several."""
    if len(amounts) == 1:
        return str(*amounts.values())
    return " + ".join(f"{amount} {resource}" for resource, amount in sorted(amounts.items())) or "0"


def misplaced(gangs: Sequence[GangView]) -> Iterator[str]:
    """Yield a line for each gang that does not lie as it required, or runs elsewhere than Kueue assigned it."""
    for gang in gangs:
        place = gang.placement
        if place is None:
            continue
        name = f"{gang.queue.namespace}/{gang.name}"
        spans = next((f": on {number}, at most {most} in one" for label, number, most in place.domains
                      if label == place.level), "")  # fmt: skip
        if place.verdict == VIOLATION:
            yield f"misplaced: {name} is not in the domains of {place.level} that it required{spans}"
        if place.outside:
            yield f"misplaced: {name} runs elsewhere than Kueue assigned it: {place.outside} of its members"


def gang_json(picture: Picture, gang: GangView) -> dict[str, object] | None:
    """Return how a gang lies, for `--json`."""
    place = gang.placement
    if place is None:
        return None
    needed = picture.needed(place)
    return {
        "topology": place.topology or None,
        "kueue_resource_flavor": place.flavor or None,
        "placement": place.verdict or None,
        "topology_level": place.level or None,
        "members_outside_assignment": place.outside,
        "levels": [
            {"topology_level": label, "domains": number, "most_in_one": most, "domains_needed": needed.get(label)}
            for label, number, most in place.domains
        ],
    }


def topology_json(picture: Picture) -> list[dict[str, object]] | None:
    """Return the figures of every topology and flavor, for `--json`; None where they are not known."""
    if picture.layouts is None:
        return None
    return [
        {
            "topology": one.layout.topology or NONE,
            "kueue_resource_flavor": one.layout.flavor or NONE,
            "nodes_shared": one.nodes_shared,
            "levels": [_level_json(level, free_known=picture.free_known) for level in one.levels],
        }
        for one in picture.layouts
    ]


def _level_json(level: LevelFigures, *, free_known: bool) -> dict[str, object]:
    return {
        "topology_level": level.label,
        "nodes": level.labeled + level.unlabeled,
        "nodes_unlabeled": level.unlabeled,
        "unlabeled_gpus": dict(level.unlabeled_gpus),
        "domains": dict(level.domains) if free_known else None,
        "largest_free": dict(level.largest_free) if free_known else None,
    }


def _unseen(picture: Picture) -> list[tuple[tuple[str, str], int]]:
    """Return what cannot be seen, without the signals for which a command does not ask."""
    return sorted(one for one in picture.unobservable.items() if one[0][0] not in _UNASKED)


def unobservable(picture: Picture) -> list[str]:
    """Return a line for each signal that cannot be seen, with the reason."""
    return [
        f"not observable: {signal} of {number} {_ITEMS.get(signal, 'gang')}{'' if number == 1 else 's'} "
        f"({reason.replace('_', ' ')})"
        for (signal, reason), number in _unseen(picture)
    ]


def unobservable_json(picture: Picture) -> list[dict[str, object]]:
    """Return the same for `--json`."""
    return [
        {"signal": signal, "reason": reason, f"{_ITEMS.get(signal, 'gang')}s": number}
        for (signal, reason), number in _unseen(picture)
    ]
