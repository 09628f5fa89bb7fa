# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What `status` tells of the cluster's GPUs: of each resource what the nodes offer, who has it, and why some idles.

The amounts are those of the metrics: they are summed over the queues, and what is not known is not shown as 0.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from datadog_checks.kueue_gang.commands.terminal import RED, plain
from datadog_checks.kueue_gang.derive.picture import Picture

_USES: Final = ("busy", "idle", "other")


def lines(picture: Picture, namespaces: Sequence[str], paint: Callable[[str, str], str]) -> list[str]:
    """Return a line for each resource, and one below it where GPUs of it are idle."""
    # Gangs of other namespaces are not looked at, so that their GPUs are nobody's here.
    other = "of no gang or in other namespaces" if namespaces else "of no gang"
    resources = sorted({*(picture.nodes or {}), *(resource for _, resource, _ in picture.gpus.allocated)})
    found = []
    for resource in resources:
        uses = _uses(picture, resource)
        totals = (picture.nodes or {}).get(resource)
        told = [f"{sum(uses.values())} allocated ({uses['busy']} busy, {uses['idle']} idle, {uses['other']} {other})"]
        if totals:
            away = totals.allocatable - totals.schedulable
            told.insert(
                0, f"{totals.allocatable} allocatable" + (f" ({away} on nodes that take no pods)" if away else "")
            )
            told.append(f"{totals.free} free" if picture.free_known else "free not known")
        reserved = sum(amount for (_, name), amount in picture.gpus.reserved.items() if name == resource)
        told += [f"{reserved} of them reserved in the scheduler"] if reserved else []
        told += [f"{totals.unhealthy} unhealthy"] if totals and totals.unhealthy else []
        found.append(plain(f"{resource}: {', '.join(told)}"))
        reasons = {reason for _, name, reason in picture.gpus.idle if name == resource}
        if reasons:
            idle = ", ".join(f"{_sum(picture.gpus.idle, resource, reason)} {reason}" for reason in sorted(reasons))
            found.append(paint(RED, f"  idle: {idle}"))
    return found


def as_json(picture: Picture) -> dict[str, dict[str, object]]:
    """Return the same by resource, for `--json`."""
    return {
        resource: {
            "capacity": totals.capacity,
            "allocatable": totals.allocatable,
            "unhealthy": totals.unhealthy,
            "schedulable": totals.schedulable,
            "free": totals.free if picture.free_known else None,
            "allocated": _uses(picture, resource),
        }
        for resource, totals in sorted((picture.nodes or {}).items())
    }


def _uses(picture: Picture, resource: str) -> dict[str, int]:
    """Return how many GPUs of a resource are allocated, by what they do."""
    return {use: _sum(picture.gpus.allocated, resource, use) for use in _USES}


def _sum(amounts: Mapping[tuple[Any, str, str], int], resource: str, what: str) -> int:
    return sum(amount for (_, name, kind), amount in amounts.items() if name == resource and kind == what)
