# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The cheapest single step that would let a gang run.

Steps are tried from the cheapest on: touch the PodGroup of a gang that fits and is not tried again, label a node,
uncordon one, remove pods of one node that do not go, raise a quota, take the GPUs of another gang (first of one that
holds them in vain, then of the smallest). Each is supposed in the fit engine, and told only where everything fits with
it: by GPUs, as all that the engine says.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from datadog_checks.kueue_gang.derive.asks import Alternatives
from datadog_checks.kueue_gang.derive.fit import Fits
from datadog_checks.kueue_gang.derive.fleet import LATER, NOW, SOON, Fleet, Room
from datadog_checks.kueue_gang.derive.labels import relabellings
from datadog_checks.kueue_gang.derive.rooms import Held, plus
from datadog_checks.kueue_gang.derive.said import Lack, Said, said
from datadog_checks.kueue_gang.derive.transitions import Key
from datadog_checks.kueue_gang.facts.nodes import Node
from datadog_checks.kueue_gang.facts.podgroups import ENGINES
from datadog_checks.kueue_gang.facts.queues import ClusterQueue
from datadog_checks.kueue_gang.facts.workloads import Workload

#: Value of a label that may be anything new.
ANY_VALUE = "*"
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
#: Blockers whose remedy depends on the gang's own objects.
OF_OBJECTS = frozenset({"quota", "exceeds_quota", "preempting", "not_retried"})
_OF_QUOTA = OF_OBJECTS - {"not_retried"}
#: Blockers that the nodes are behind.
_OF_NODES = frozenset({"capacity", "node_labels", "fragmentation", "stuck_terminating", "preempting"})
#: Engines whose gangs are PodGroups.
_OF_POD_GROUPS = frozenset(engine.name for engine in ENGINES)


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
    """A gang that does not run: its blocker, what is to be placed, and what else could be changed for it.

    `with_flavor` returns what is to be placed where a podset, by its name, gets that flavor.
    """

    key: Key
    name: str
    blocker: str
    alternatives: Alternatives
    workload: Workload | None
    cluster_queue: ClusterQueue | None
    tenants: tuple[Tenant, ...]
    with_flavor: Callable[[str, str], Alternatives]

    @property
    def kueue_says(self) -> tuple[Said, ...]:
        """Return why Kueue does not give a quota, nothing where it did."""
        reserved = self.workload.conditions.get("QuotaReserved") if self.workload else None
        return said(reserved.message) if reserved and reserved.status is not True else ()


def steps(plight: Plight, fits: Fits) -> Iterator[Step]:
    """Yield the steps that suffice, the cheapest first."""
    if plight.blocker == "not_retried" and plight.key[0] in _OF_POD_GROUPS:
        yield Step("touch_pod_group", f"{plight.key[1]}/{plight.name}")
    if not plight.alternatives:
        return
    if plight.blocker in _OF_QUOTA:
        yield from _quota(plight, fits)
    if plight.blocker in _OF_NODES and not _for_quota(plight):
        for search in (_labels, _uncordon, _remove, _free):
            yield from search(plight, fits)


def _fits(plight: Plight, fits: Fits) -> bool:
    return any(fits.fits(asks) for asks in plight.alternatives)


def _for_quota(plight: Plight) -> bool:
    """Tell whether it is quota that others are preempted for: GPUs that are free elsewhere give none."""
    workload, told = plight.workload, plight.kueue_says
    if plight.blocker != "preempting" or workload is None or workload.admitted or workload.is_true("QuotaReserved"):
        return False
    return any(one.lacks for one in told) or not any(one.topologies for one in told)


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
    """Yield by how much a quota would have to be more, as Kueue tells it, where the GPUs are there to back it.

    Only where it is all that lacks: one GPU resource, for one podset. Of several flavors each is a step of its own.
    """
    queue, workload, told = plight.cluster_queue, plight.workload, plight.kueue_says
    if queue is None or workload is None or len(told) != 1 or told[0].more:
        return
    (here,) = told
    resources = {resource for podset in workload.podsets for resource, _ in podset.gpus}
    lacking = {one.resource for one in here.lacks}
    once = len({one.flavor for one in here.lacks}) == len(here.lacks)
    for lack in here.lacks if once and len(lacking) == 1 and lacking <= resources else ():
        amount = _short(lack, queue, last=here.podset in {"", workload.podsets[-1].name})
        if amount and any(fits.fits(asks) for asks in plight.with_flavor(here.podset, lack.flavor)):
            yield Step("raise_quota", queue.name, flavor=lack.flavor, resource=lack.resource, amount=amount)


def _short(lack: Lack, queue: ClusterQueue, *, last: bool) -> int:
    """Return by how much a quota is too small, 0 where that is not known.

    One that is too small for ever has to be so much more than what others have of it, too, which only the own queue
    tells; and Kueue does not look at the podsets after that.
    """
    if not lack.never or lack.amount is None:
        return lack.amount or 0
    in_use = sum(one.total for one in queue.reserved if (one.flavor, one.resource) == (lack.flavor, lack.resource))
    return lack.amount + in_use if last and not queue.cohort else 0
