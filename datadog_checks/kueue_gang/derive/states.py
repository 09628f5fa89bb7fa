# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The state of a gang and its clock, from the classes of its members.

`STATES` is the table: the first test that holds names the state. Every test that compares members with what is required
is made for each podset, and the gang meets it when each podset does.

Gangs flap between states every few seconds, so a state has no clock of its own. There are few clocks, each shared by
states that are one situation (`CLOCKS`), and all start at a time that the API holds: a check that was restarted or
moved gives the same age.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from datadog_checks.kueue_gang.derive.gangs import Gang
from datadog_checks.kueue_gang.derive.members import CLASSES, PLACED, TERMINAL, UP
from datadog_checks.kueue_gang.derive.sizes import Need, deletion_began, podset_of, present_runs
from datadog_checks.kueue_gang.facts.nodes import Node
from datadog_checks.kueue_gang.facts.pods import Pod

FINISHED = "finished"
#: States of the gauges, in the order of a gang's life.
STATES_SENT = (
    "queued", "pending", "waiting", "rejected", "partial", "starting", "degraded", "running", "finishing", "stopping",
    "orphan",
)  # fmt: skip
#: States of gangs that hold no GPUs yet.
UNPLACED = frozenset({"queued", "pending", "waiting", "rejected"})

#: Classes of live members that do not work.
_MAY_REPLACE = frozenset(CLASSES) - TERMINAL - UP
#: Classes of members that may have worked until a moment ago.
_DISTURBED = ("lost", "crashing", "terminating")
#: A replacement is created after the loss of a member; a late member of the first attempt within seconds of the others.
_REPLACEMENT_AFTER = 5.0


@dataclass(frozen=True, slots=True)
class Tally:
    """One podset counted: see docs/model.md for the words. `required` is at least 0."""

    required: int
    live: int
    placed: int
    up: int
    done: int
    could_run: int

    @property
    def missing(self) -> int:
        """Members that do not exist."""
        return max(0, self.required - self.live - self.done)


@dataclass(slots=True)
class Shape:
    """A gang with the class of each member (aligned with `gang.members`), counted by podset.

    `doubted`: its namespace has pods that could not be understood, any of which may be its member.
    """

    gang: Gang
    classes: list[str]
    ran_before: bool = False
    doubted: bool = False
    #: (what is counted of a podset, its members with their classes).
    parts: list[tuple[Tally, list[tuple[Pod, str]]]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Count the members."""
        self.counts = Counter(self.classes)
        self.parts = _parts(self)

    @property
    def tallies(self) -> list[Tally]:
        """What is counted of each podset."""
        return [tally for tally, _ in self.parts]

    def pods(self, classes: frozenset[str]) -> list[Pod]:
        """Return the members of the given classes."""
        return [pod for pod, name in zip(self.gang.members, self.classes, strict=True) if name in classes]

    @property
    def live(self) -> list[Pod]:
        """The members that are not terminal."""
        return [pod for pod, name in zip(self.gang.members, self.classes, strict=True) if name not in TERMINAL]

    @property
    def missing(self) -> int:
        """The members that do not exist, all podsets together."""
        return sum(tally.missing for tally in self.tallies)

    @property
    def ambiguous(self) -> bool:
        """Tell whether members that seem not to exist may be pods that could not be understood, and work."""
        return self.doubted and self.missing > 0

    @property
    def unobservable(self) -> str:
        """Why nothing can be said of the gang, empty where it can."""
        return self.gang.unobservable or ("ambiguous" if self.ambiguous and not _finished(self) else "")

    def each(self, test: Callable[[Tally], bool]) -> bool:
        """Tell whether a test holds for every podset."""
        return bool(self.tallies) and all(test(tally) for tally in self.tallies)


def _parts(shape: Shape) -> list[tuple[Tally, list[tuple[Pod, str]]]]:
    """Count the members of each podset.

    Where a member names no podset that the gang needs, the podsets cannot be told apart and are counted as one.
    """
    gang = shape.gang
    if gang.required is None:
        return []
    names = {need.podset for need in gang.needs}
    members = list(zip(gang.members, shape.classes, strict=True))
    if len(gang.needs) == 1:
        return [(_tally(gang.needs[0], members, shape), members)]
    if any(podset_of(pod) not in names for pod in gang.members):
        whole = Need("", gang.required, sum(need.reclaimed for need in gang.needs))
        return [(_tally(whole, members, shape), members)]
    by_podset: dict[str, list[tuple[Pod, str]]] = defaultdict(list)
    for pod, name in members:
        by_podset[podset_of(pod)].append((pod, name))
    return [(_tally(need, found, shape), found) for need in gang.needs for found in [by_podset[need.podset]]]


def _tally(need: Need, members: list[tuple[Pod, str]], shape: Shape) -> Tally:
    counts = Counter(name for _, name in members)
    succeeded = 0
    if counts["succeeded"]:
        runs = present_runs(shape.gang.members)
        succeeded = sum(name == "succeeded" and pod.ties.run in runs for pod, name in members)
    up = sum(counts[name] for name in UP)
    done = max(0, succeeded - need.reclaimed)
    disturbed = 0
    if any(counts[name] for name in _DISTURBED):
        disturbed = sum(pod.phase == "Running" and name in _DISTURBED for pod, name in members)
    return Tally(
        required=need.required or 0,
        live=len(members) - sum(counts[name] for name in TERMINAL),
        placed=sum(counts[name] for name in PLACED),
        up=up,
        done=done,
        could_run=up + done + disturbed,
    )


def _finished(shape: Shape) -> bool:
    if shape.gang.over and shape.gang.workload is None:
        return True
    ended = shape.counts["succeeded"] + shape.counts["failed"]
    return bool(shape.gang.members) and not shape.live and ended >= (shape.gang.required or 0)


def _stopping(shape: Shape) -> bool:
    return bool(shape.live) and len(shape.live) == shape.counts["terminating"]


def _up(shape: Shape) -> bool:
    return shape.each(lambda tally: tally.up + tally.done >= tally.required)


def _succeeded_in_part(shape: Shape) -> bool:
    if any(need.reclaimed for need in shape.gang.needs):
        return True
    if not shape.counts["succeeded"]:
        return False
    runs = present_runs(shape.gang.members)
    return any(pod.ties.run in runs for pod in shape.pods(frozenset({"succeeded"})))


def _placed(shape: Shape) -> bool:
    return shape.each(lambda tally: tally.placed + tally.done >= tally.required)


def _partly_placed(shape: Shape) -> bool:
    return any(tally.placed + tally.done > 0 for tally in shape.tallies)


def _degraded(shape: Shape) -> bool:
    """Tell whether a gang that is not complete was complete before; each proof in turn, the first word is final."""
    if not any(tally.placed for tally in shape.tallies):
        return False
    pods_ready = _pods_ready(shape)
    if pods_ready is not None:
        return pods_ready
    return (
        bool(shape.gang.group and shape.gang.group.once_scheduled)
        or shape.each(lambda tally: tally.could_run >= tally.required)
        or bool(_replacements(shape))
        or shape.ran_before
    )


def _pods_ready(shape: Shape) -> bool | None:
    """Return what the Workload's PodsReady proves of an earlier completeness, None for nothing.

    True and WaitForRecovery prove it, WaitForStart disproves it, and False alone says neither. A condition that is
    older than the present admission speaks of the one before.
    """
    workload = shape.gang.workload
    found = workload.conditions.get("PodsReady") if workload else None
    if workload is None or found is None:
        return None
    if found.status is False and found.reason == "WaitForStart":
        return False
    admitted = workload.conditions.get("Admitted")
    stale = admitted and admitted.status and found.since and admitted.since and found.since < admitted.since
    proof = found.status is True or (found.status is False and found.reason == "WaitForRecovery")
    return True if proof and not stale else None


def _replacements(shape: Shape) -> list[Pod]:
    """Return the members that replace lost ones: all that do not work, when each is clearly newer than the last bind.

    The last bind is that of the members that work; a replacement comes from the same job, so its scheduler is the same.
    """
    up = shape.pods(UP)
    others = [pod for pod in shape.pods(_MAY_REPLACE) if pod.deletion is None]
    binds = [bound for pod in up if (bound := pod.bound_at) is not None]
    if not others or not binds:
        return []
    schedulers = {pod.spec.scheduler for pod in up}
    after = max(binds) + _REPLACEMENT_AFTER
    return others if all(pod.created > after and pod.spec.scheduler in schedulers for pod in others) else []


def _queued(shape: Shape) -> bool:
    workload = shape.gang.workload
    all_gated = bool(shape.live) and shape.counts["gated"] == len(shape.live)
    return all_gated or (workload is not None and not workload.admitted)


STATES: tuple[tuple[str, Callable[[Shape], bool]], ...] = (
    (FINISHED, _finished),
    ("orphan", lambda shape: shape.gang.orphan),
    ("stopping", _stopping),
    ("finishing", lambda shape: _succeeded_in_part(shape) and _up(shape)),
    ("running", _up),
    ("degraded", _degraded),
    ("starting", _placed),
    ("partial", _partly_placed),
    ("waiting", lambda shape: shape.counts["waiting_permit"] > 0),
    ("rejected", lambda shape: shape.counts["rejected"] + shape.counts["waiting_possible"] > 0),
    ("queued", _queued),
    ("pending", lambda _shape: True),
)


def state_of(shape: Shape) -> str | None:
    """Return the state of a gang, None where what it requires, or which members it has, cannot be known."""
    if shape.unobservable:
        return None
    return next(name for name, test in STATES if test(shape))


# --- clocks
# ------------------------------------------------------------------------------------------------------------


def _up_since(pod: Pod) -> float | None:
    """Return when a member that works began to: Ready turned True, else its start (a helper container has ended)."""
    if pod.ready and pod.ready_since is not None:
        return pod.ready_since
    return pod.started if pod.started is not None else pod.bound_at


def _known(times: list[float | None]) -> list[float]:
    return [time for time in times if time is not None]


def _unplaced_since(shape: Shape, _nodes: Mapping[str, Node]) -> float | None:
    gang, workload = shape.gang, shape.gang.workload
    times: list[float | None] = [gang.group.created if gang.group else None]
    if workload:
        found = workload.conditions
        times += [
            workload.created,
            *(found[kind].since for kind in ("Requeued", "Evicted", "Admitted") if workload.is_true(kind)),
        ]
    created = sorted(pod.created for pod in shape.live)
    if created:
        # The youngest required member: with more members than required, the gang could have started with fewer.
        times.append(created[min(gang.required or len(created), len(created)) - 1])
    return max(_known(times), default=None)


def _incomplete_since(shape: Shape, _nodes: Mapping[str, Node]) -> float | None:
    return min(_known([pod.bound_at for pod in shape.pods(PLACED)]), default=None)


def _degraded_since(shape: Shape, nodes: Mapping[str, Node]) -> float | None:
    workload = shape.gang.workload
    found = workload.conditions.get("PodsReady") if workload else None
    if found and found.status is False and found.reason == "WaitForRecovery" and _pods_ready(shape):
        return found.since
    replaced = [pod.created for pod in _replacements(shape)]
    lost = [node.ready.since for pod in shape.pods(frozenset({"lost"})) if (node := nodes.get(pod.node)) and node.ready]
    gone = [deletion_began(pod) for pod in shape.pods(frozenset({"terminating"}))]
    failed = [pod.ready_since for pod in shape.pods(frozenset({"crashing"})) if not pod.ready]
    for times in (replaced, _known(lost), gone, _known(failed)):
        if times:
            return min(times)
    return _incomplete_since(shape, nodes)


def _complete_since(shape: Shape, _nodes: Mapping[str, Node]) -> float | None:
    """Return when the member that completed the gang became Ready."""
    times = sorted(_known([_up_since(pod) for pod in shape.pods(UP)]))
    needed = sum(max(0, tally.required - tally.done) for tally in shape.tallies)
    return times[min(max(needed, 1), len(times)) - 1] if times else None


def _stopping_since(shape: Shape, _nodes: Mapping[str, Node]) -> float | None:
    return min((deletion_began(pod) for pod in shape.pods(frozenset({"terminating"}))), default=None)


def _orphan_since(shape: Shape, _nodes: Mapping[str, Node]) -> float | None:
    return min((pod.created for pod in shape.gang.members), default=None)


CLOCKS: dict[str, Callable[[Shape, Mapping[str, Node]], float | None]] = {
    **dict.fromkeys(UNPLACED, _unplaced_since),
    **dict.fromkeys(("partial", "starting"), _incomplete_since),
    **dict.fromkeys(("running", "finishing"), _complete_since),
    "degraded": _degraded_since,
    "stopping": _stopping_since,
    "orphan": _orphan_since,
}


def since(state: str, shape: Shape, nodes: Mapping[str, Node]) -> float | None:
    """Return when the clock of a state began, None where the API holds no time for it."""
    return CLOCKS[state](shape, nodes)
