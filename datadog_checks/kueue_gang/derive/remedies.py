# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The cheapest single step that would let a gang run.

Steps are tried from the cheapest on: touch the PodGroup of a gang that fits and is not tried again, label a node,
uncordon one, remove pods of one node that do not go, raise a quota, take the GPUs of another gang (first of one that
holds them in vain, then of the smallest). Each is supposed in the fit engine, and told only where everything fits with
it: by GPUs, as all that the engine says.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from datadog_checks.kueue_gang.derive.asks import Alternatives
from datadog_checks.kueue_gang.derive.fit import Fits
from datadog_checks.kueue_gang.derive.fleet import LATER, NOW, SOON, Fleet, Room
from datadog_checks.kueue_gang.derive.labels import relabellings
from datadog_checks.kueue_gang.derive.rooms import Held, plus
from datadog_checks.kueue_gang.derive.transitions import Key
from datadog_checks.kueue_gang.facts.nodes import Node
from datadog_checks.kueue_gang.facts.workloads import Workload

#: Value of a label that may be anything new.
ANY_VALUE = "*"
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
#: Blockers whose remedy depends on the gang's own objects.
OF_OBJECTS = frozenset({"quota", "exceeds_quota", "preempting", "not_retried"})
_OF_QUOTA = OF_OBJECTS - {"not_retried"}
#: Blockers that the nodes are behind.
_OF_NODES = frozenset({"capacity", "node_labels", "fragmentation", "stuck_terminating", "preempting"})
_MORE_NEEDED = re.compile(r"insufficient unused quota for (\S+) in flavor (\S+), (\d+) more needed", re.ASCII)
_MAXIMUM = re.compile(
    r"insufficient quota for (\S+) in flavor (\S+), .*?\((\d+)\) \+ .*?\((\d+)\) > maximum capacity \((\d+)\)", re.ASCII
)
#: The same as older releases write it; 0.15.0 changed it.
_OLD_MAXIMUM = re.compile(
    r"insufficient quota for (\S+) in flavor (\S+), request > maximum capacity \((\d+) > (\d+)\)", re.ASCII
)


class Step(NamedTuple):
    """One thing to do.

    `action` is touch_pod_group, label_node, uncordon_node, remove_pods, raise_quota or free_gpus; `subject` the name of
    the PodGroup, node, ClusterQueue or gang (namespace/name) that it is done to. `labels` are those to set, with
    `ANY_VALUE` where any new value will do; `resource` and `amount` are the GPUs that are raised or taken, `state` that
    of the gang that they are taken of.
    """

    action: str
    subject: str
    labels: tuple[tuple[str, str], ...] = ()
    flavor: str = ""
    resource: str = ""
    amount: int = 0
    state: str = ""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A gang that holds GPUs, by node and resource, and its state; `in_vain` where it does not run."""

    key: Key
    name: str
    held: Held
    in_vain: bool
    state: str = ""


@dataclass(frozen=True, slots=True)
class Plight:
    """A gang that does not run: its blocker, what is to be placed, and what else could be changed for it."""

    key: Key
    name: str
    blocker: str
    alternatives: Alternatives
    workload: Workload | None
    cluster_queue: str
    tenants: tuple[Tenant, ...]


def steps(plight: Plight, fits: Fits) -> Iterator[Step]:
    """Yield the steps that suffice, the cheapest first."""
    if plight.blocker == "not_retried":
        yield Step("touch_pod_group", f"{plight.key[1]}/{plight.name}")
    if not plight.alternatives:
        return
    if plight.blocker in _OF_QUOTA:
        yield from _quota(plight, fits)
    if plight.blocker in _OF_NODES:
        for search in (_labels, _uncordon, _remove, _free):
            yield from search(plight, fits)


def _fits(plight: Plight, fits: Fits) -> bool:
    return any(fits.fits(asks) for asks in plight.alternatives)


def _labels(plight: Plight, fits: Fits) -> Iterator[Step]:
    for asks in plight.alternatives:
        for labels in relabellings(fits, asks):
            if len(labels) == 1:
                ((node, values),) = labels.items()
                told = tuple((key, ANY_VALUE if value.startswith("\0") else value) for key, value in values.items())
                yield Step("label_node", node, tuple(sorted(told)))


def _supposed(
    plight: Plight, fits: Fits, candidates: Iterable[tuple[Step, Mapping[str, tuple[Node, Room]]]]
) -> Iterator[Step]:
    for step, changes in candidates:
        with fits.fleet.supposing(changes):
            enough = _fits(plight, fits)
        if enough:
            yield step


def _uncordon(plight: Plight, fits: Fits) -> Iterator[Step]:
    def candidates() -> Iterator[tuple[Step, Mapping[str, tuple[Node, Room]]]]:
        for name, node, room in _nodes(fits.fleet):
            if node.cordoned:
                taints = tuple(taint for taint in node.taints if taint.key != _UNSCHEDULABLE)
                yield Step("uncordon_node", name), {name: (replace(node, cordoned=False, taints=taints), room)}

    return _supposed(plight, fits, candidates())


def _remove(plight: Plight, fits: Fits) -> Iterator[Step]:
    def candidates() -> Iterator[tuple[Step, Mapping[str, tuple[Node, Room]]]]:
        for name, node, room in _nodes(fits.fleet):
            for resource, times in room:
                if times[LATER] > times[SOON]:
                    step = Step("remove_pods", name, resource=resource, amount=times[LATER] - times[SOON])
                    yield step, {name: (node, _at_once(room))}

    return _supposed(plight, fits, candidates())


def _at_once(room: Room) -> Room:
    """Return a room in which pods whose grace is over are gone already."""
    return tuple(
        (name, (times[NOW] + times[LATER] - times[SOON], times[LATER], times[LATER])) for name, times in room
    )  # fmt: skip


def _free(plight: Plight, fits: Fits) -> Iterator[Step]:
    def amount(tenant: Tenant) -> int:
        return sum(sum(amounts.values()) for amounts in tenant.held.values())

    def candidates() -> Iterator[tuple[Step, Mapping[str, tuple[Node, Room]]]]:
        for tenant in sorted(plight.tenants, key=lambda one: (not one.in_vain, amount(one), one.key)):
            if tenant.key != plight.key and tenant.held:
                known = ((name, fits.fleet.node(name), amounts) for name, amounts in tenant.held.items())
                changes = {name: (here[0], plus(here[1], amounts)) for name, here, amounts in known if here}
                step = Step("free_gpus", f"{tenant.key[1]}/{tenant.name}", amount=amount(tenant), state=tenant.state)
                yield step, changes

    return _supposed(plight, fits, candidates())


def _nodes(fleet: Fleet) -> Iterator[tuple[str, Node, Room]]:
    for name in sorted(fleet.names()):
        known = fleet.node(name)
        if known:
            yield name, *known


def _quota(plight: Plight, fits: Fits) -> Iterator[Step]:
    """Yield by how much the quota would have to be more, as Kueue tells it, where the GPUs are there to back it."""
    condition = plight.workload.conditions.get("QuotaReserved") if plight.workload else None
    if condition is None or not plight.cluster_queue or not _fits(plight, fits):
        return
    reads: tuple[tuple[re.Pattern[str], Callable[[tuple[int, ...]], int]], ...] = (
        (_MORE_NEEDED, lambda numbers: numbers[0]),
        (_MAXIMUM, lambda numbers: numbers[0] + numbers[1] - numbers[2]),
        (_OLD_MAXIMUM, lambda numbers: numbers[0] - numbers[1]),
    )
    for pattern, more in reads:
        for resource, flavor, *numbers in pattern.findall(condition.message):
            amount = more(tuple(map(int, numbers)))
            yield Step("raise_quota", plight.cluster_queue, flavor=flavor, resource=resource, amount=amount)
