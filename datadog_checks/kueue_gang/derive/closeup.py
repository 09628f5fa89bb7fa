# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""One gang from near: each member, the one that the others wait for, and what would let it run.

The laggard is the member that has come least far, and of those the one that has been there longest: a pod that nobody
has placed before one that pulls its image. It is what a person looks at first.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import NamedTuple

from datadog_checks.kueue_gang.derive.asks import Alternatives, requested
from datadog_checks.kueue_gang.derive.blockers import Case
from datadog_checks.kueue_gang.derive.fit import Fits
from datadog_checks.kueue_gang.derive.gangs import Gang
from datadog_checks.kueue_gang.derive.kueue import Kueue, Offer
from datadog_checks.kueue_gang.derive.members import PLACED, UP
from datadog_checks.kueue_gang.derive.permit import CERTAIN
from datadog_checks.kueue_gang.derive.picture import GangView, Picture
from datadog_checks.kueue_gang.derive.remedies import OF_OBJECTS, Plight, Step, Tenant, steps
from datadog_checks.kueue_gang.derive.sizes import deletion_began, podset_of
from datadog_checks.kueue_gang.derive.transitions import Key
from datadog_checks.kueue_gang.facts.pods import Pod
from datadog_checks.kueue_gang.facts.quantity import Units
from datadog_checks.kueue_gang.facts.workloads import PodSet, Workload

#: From the least far to the farthest.
_FAR = (
    "gated", "new", "unschedulable", "rejected", "waiting_possible", "nominated", "waiting_permit", "lost", "crashing",
    "terminating", "bound", "failed", "running", "ready", "succeeded",
)  # fmt: skip


class Member(NamedTuple):
    """A member: its class, since when it is so (as far as the API tells), and what its objects say about why."""

    name: str
    podset: str
    state: str
    node: str
    gpus: Units
    since: float | None
    why: str


@dataclass(frozen=True, slots=True)
class CloseUp:
    """A gang with its members, the member that it waits for, and the steps that would let it run, cheapest first.

    `needed` are the fewest domains of each level that could hold its placed members. `kueue_says` is Kueue's own word
    on why the Workload of a gang that does not run waits.
    """

    view: GangView
    blocker: str | None
    deadlocked: bool
    members: tuple[Member, ...]
    laggard: Member | None
    steps: tuple[Step, ...]
    needed: Mapping[str, int] = field(default_factory=dict)
    kueue_says: str = ""


@dataclass(slots=True)
class Seen:
    """A cluster as it was last seen: `gangs` holds each with the classes of its members and its case, if it waits."""

    picture: Picture
    kueue: Kueue
    fits: Fits
    gangs: dict[Key, tuple[Gang, list[str], Case | None]] = field(default_factory=dict)
    _all_tenants: tuple[Tenant, ...] = ()
    _known_states: dict[Key, str | None] = field(default_factory=dict)
    _known: dict[object, tuple[Step, ...]] = field(default_factory=dict)

    def close_up(self, view: GangView, *, most: int | None = None) -> CloseUp:
        """Return a gang from near, with all steps or the `most` cheapest."""
        gang, classes, case = self.gangs[view.key]
        verdicts = self.picture.verdicts
        blocker = verdicts.blockers.get(view.key)
        found: tuple[Step, ...] = ()
        if blocker and self.picture.free_known:
            asks = case.asks if case else ()
            workload = gang.workload
            if workload and not asks and not workload.admitted:
                asks = requested(gang, workload, self.kueue.offers_to(workload))
            queue = self.kueue.cluster_queue_of(workload) if workload else None
            flavored = partial(self._with_flavor, gang)
            plight = Plight(view.key, view.name, blocker, asks, workload, queue, self._tenants(), flavored)
            found = self._steps(plight, most)
        members = members_of(zip(gang.members, classes, strict=True), self._lost_since)
        said = _kueue_says(gang.workload) if blocker and gang.workload else ""
        needed = self.picture.needed(view.placement) if view.placement else {}
        return CloseUp(view, blocker, view.key in verdicts.deadlocked, members, laggard(members), found, needed, said)

    def _steps(self, plight: Plight, most: int | None) -> tuple[Step, ...]:
        """Find the steps; gangs that hold nothing and ask for the same have the same, unless their objects say more."""
        if plight.blocker in OF_OBJECTS or any(one.key == plight.key and one.held for one in plight.tenants):
            return tuple(islice(steps(plight, self.fits), most))
        key = plight.blocker, plight.alternatives, most
        if key not in self._known:
            self._known[key] = tuple(islice(steps(plight, self.fits), most))
        return self._known[key]

    def _with_flavor(self, gang: Gang, podset: str, flavor: str) -> Alternatives:
        def may(one: PodSet, offer: Offer) -> bool:
            return podset not in {"", one.name} or offer[0].name == flavor

        workload = gang.workload
        return requested(gang, workload, self.kueue.offers_to(workload), may) if workload else ()

    def _tenants(self) -> tuple[Tenant, ...]:
        if not self._all_tenants:
            self._all_tenants = tuple(self._tenant(gang, classes) for gang, classes, _ in self.gangs.values())
        return self._all_tenants

    def _tenant(self, gang: Gang, classes: list[str]) -> Tenant:
        held: dict[str, Counter[str]] = {}
        for pod, state in zip(gang.members, classes, strict=True):
            node = pod.nominated if state == CERTAIN else pod.node if state in PLACED else ""
            if node and pod.spec.gpus:
                held.setdefault(node, Counter()).update(dict(pod.spec.gpus))
        in_vain = gang.key in self.picture.verdicts.blockers
        return Tenant(gang.key, gang.name, held, in_vain, self._states().get(gang.key) or "")

    def _lost_since(self, node: str) -> float | None:
        known = self.fits.fleet.node(node)
        return known[0].ready.since if known and known[0].ready else None

    def _states(self) -> dict[Key, str | None]:
        if not self._known_states:
            self._known_states = {view.key: view.state for view in self.picture.views}
        return self._known_states


def _kueue_says(workload: Workload) -> str:
    """Return what Kueue says of a Workload that waits: the text of its condition, or the checks that are not ready."""
    if not workload.active:
        return "the Workload is deactivated (spec.active is false)"
    if workload.checks:
        return ", ".join(f"AdmissionCheck {name} is {state}" for name, state in workload.checks)
    reserved = workload.conditions.get("QuotaReserved")
    return reserved.message if reserved is not None and reserved.status is False else ""


def members_of(
    pods: Iterable[tuple[Pod, str]], lost_since: Callable[[str], float | None]
) -> tuple[Member, ...]:  # fmt: skip
    """Return the members of a gang, those that have come least far first.

    `lost_since` gives the time since when a node is not Ready.
    """
    found = [
        Member(
            name=pod.name,
            podset=podset_of(pod),
            state=state,
            node=pod.node,
            gpus=pod.spec.gpus,
            since=lost_since(pod.node) if state == "lost" else _since(pod, state),
            why=_why(pod, state),
        )
        for pod, state in pods
    ]
    return tuple(sorted(found, key=lambda one: (_FAR.index(one.state), one.since or 0.0, one.name)))


def laggard(members: Iterable[Member]) -> Member | None:
    """Return the member that the others wait for, None where all are up or over."""
    return next((one for one in members if one.state not in UP | {"succeeded", "failed"}), None)


def _since(pod: Pod, state: str) -> float | None:
    if state == "terminating":
        return deletion_began(pod)
    if state in {"ready", "crashing"}:
        return pod.ready_since
    if state == "waiting_permit" and pod.nominated_at is not None:
        return pod.nominated_at
    return pod.bound_at if pod.node and pod.bound_at is not None else pod.created


def _why(pod: Pod, state: str) -> str:
    if state in {"bound", "crashing"}:
        return pod.waiting
    if pod.node:
        return ""
    return f"nominated to {pod.nominated}" if state == "waiting_permit" else pod.failure or ""
