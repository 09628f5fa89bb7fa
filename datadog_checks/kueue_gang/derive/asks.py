# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What a gang still has to place: from its pods where they exist, from its Workload before.

Only as many members count as the gang needs; of unequal ones the smallest, so that "does not fit" is said of no gang
that could run. A member that waits in Permit has its place, which is reserved, and is not to be placed again. Where the
API does not tell that place (only the scheduler's count says that it waits), it has to fit beside the others.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from math import lcm, prod

from datadog_checks.kueue_gang.derive.fit import Ask
from datadog_checks.kueue_gang.derive.gangs import Gang
from datadog_checks.kueue_gang.derive.kueue import Offer, Offers
from datadog_checks.kueue_gang.derive.permit import CERTAIN
from datadog_checks.kueue_gang.derive.states import Shape
from datadog_checks.kueue_gang.facts.constraints import Constraint
from datadog_checks.kueue_gang.facts.pods import Pod, Toleration
from datadog_checks.kueue_gang.facts.quantity import Units
from datadog_checks.kueue_gang.facts.topology import Request, Topology
from datadog_checks.kueue_gang.facts.workloads import PodSet, Workload

#: Sets of asks of which one that fits is enough.
Alternatives = tuple[tuple[Ask, ...], ...]

#: What a pod asks for, and where it may go.
_Place = tuple[Units, Constraint, tuple[Toleration, ...]]

#: Ways to give flavors to podsets up to which all are tried.
_MOST_WAYS = 64
#: Classes of members that the scheduler has to place.
_TO_PLACE = frozenset({"new", "rejected", "unschedulable", "waiting_possible", "nominated"})


@dataclass(frozen=True, slots=True)
class Unplaced:
    """The members that the scheduler has to place, with their classes, and what those ask for that the gang needs."""

    pods: tuple[tuple[Pod, str], ...]
    asks: tuple[Ask, ...]


def _place(pod: Pod) -> _Place:
    return pod.spec.gpus, pod.constraint, pod.spec.tolerations


def unplaced(shape: Shape) -> Unplaced:
    """Return what of a gang is to be placed."""
    found: list[tuple[Pod, str]] = []
    alike: Counter[_Place] = Counter()
    nowhere: Counter[_Place] = Counter()
    for tally, members in shape.parts:
        waiting = [(pod, name) for pod, name in members if name in _TO_PLACE]
        reserved = [pod for pod, name in members if name == CERTAIN]
        wanted = max(0, tally.required - tally.placed - tally.done - len(reserved))
        found += waiting
        smallest = sorted(waiting, key=lambda one: (sum(n for _, n in one[0].spec.gpus), one[0].spec.gpus, one[0].name))
        alike.update(_place(pod) for pod, _ in smallest[:wanted])
        nowhere.update(_place(pod) for pod in reserved if not pod.nominated)
    if alike:
        alike += nowhere
    return Unplaced(tuple(found), _asks(alike))


def nowhere(reserved: Iterable[Pod]) -> tuple[Ask, ...]:
    """Return what Permit waiters hold of which it is not known where: it has to fit somewhere."""
    return _asks(Counter(_place(pod) for pod in reserved if not pod.nominated))


def _asks(alike: Counter[_Place]) -> tuple[Ask, ...]:
    return tuple(sorted((Ask(number, *place) for place, number in alike.items() if place[0]), key=repr))


def requested(
    gang: Gang, workload: Workload, offers: Offers, may: Callable[[PodSet, Offer], bool] = lambda *_: True
) -> Alternatives:
    """Return what a Workload without pods asks for, with each flavor that each of its podsets may get.

    There is nothing where a podset may get none, nor where there are too many ways to try them all.
    """
    needs = {need.podset: need.required for need in gang.needs}
    ways: list[list[Ask]] = []
    for podset in workload.podsets:
        needed = needs.get(podset.name)
        number = podset.count if needed is None else needed
        if podset.gpus and number:
            ways.append([_ask(podset, number, given) for given in _given(podset, offers, may)])
    few = bool(ways) and prod(map(len, ways)) <= _MOST_WAYS
    return tuple(dict.fromkeys(product(*ways))) if few else ()


def _given(podset: PodSet, offers: Offers, may: Callable[[PodSet, Offer], bool]) -> Iterable[tuple[Offer, ...]]:
    """Return the flavors that a podset may get together: one for all resources that the same flavors offer."""
    groups = {
        tuple(flavor.name for flavor, _ in offered): [offer for offer in offered if may(podset, offer)]
        for offered in (offers.get(resource, ()) for resource, _ in podset.gpus)
    }
    return product(*groups.values())


def _ask(podset: PodSet, number: int, given: tuple[Offer, ...]) -> Ask:
    topology = next((topology for _, topology in given if topology), None)
    where = podset.constraint
    for flavor, _ in given:
        where = where.within(flavor.node_labels)
    return Ask(
        pods=number,
        units=podset.gpus,
        constraint=where,
        tolerations=(*podset.tolerations, *(one for flavor, _ in given for one in flavor.tolerations)),
        levels=topology.levels if topology else (),
        together=_together(podset.request, topology, number) if topology else (),
    )


def _together(request: Request | None, topology: Topology, pods: int) -> tuple[tuple[int, int], ...]:
    """Return which pods must share a domain: (depth, size), the widest first, one for each depth.

    What is preferred need not be. Every 2 and every 3 in rank order that are together are 6; and those that share a
    domain share the wider ones around it.
    """
    if request is None:
        return ()
    asked = [(request.required, pods), *request.slices]
    found: dict[int, int] = {}
    together = 1
    for depth, size in sorted(
        ((topology.levels.index(level) + 1, size) for level, size in asked if level in topology.levels), reverse=True
    ):
        together = min(pods, lcm(together, size))
        found[depth] = together
    return tuple(sorted(found.items()))
