# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The picture of a cluster at one moment: every gang with its state, every GPU with its use, and what cannot be seen.

These are the records that `Deriver` makes and that emission, the commands and the tests read.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from datadog_checks.kueue_gang.derive.gpus import NodeTotals
from datadog_checks.kueue_gang.derive.transitions import Key

NONE = "none"
#: States that every queue with a gang tells, also where no gang has them.
ALWAYS_TOLD = ("running", "partial")
MISSING = "missing"


@dataclass(frozen=True, slots=True, order=True)
class Queue:
    """The queue tags; `none` where there is no value."""

    namespace: str
    local_queue: str
    cluster_queue: str
    engine: str


@dataclass(frozen=True, slots=True)
class GangView:
    """A gang as it is told to the user; GPU amounts by resource, times in seconds since the epoch.

    `state` is None and `required` unknown where `unobservable` says why. `classes` counts the members by class.
    `permit_oldest` is the start of the longest certain Permit wait. `unguarded` lists the reasons of that name.
    """

    key: Key
    queue: Queue
    name: str
    owner_kind: str
    priority_class: str
    labels: tuple[tuple[str, str], ...]
    state: str | None
    since: float | None
    required: int | None
    missing: int
    classes: Mapping[str, int]
    requested: Mapping[str, int]
    allocated: Mapping[str, int]
    idle: Mapping[str, int]
    reserved: Mapping[str, int]
    requeues: int
    permit_oldest: float | None
    unguarded: tuple[str, ...]
    unobservable: str
    attention: bool


@dataclass(slots=True)
class Gpus:
    """GPU units that pods hold or that are reserved for them.

    `allocated` is by (queue, resource, gpu_use), `idle` by (queue, resource, idle_reason), `reserved` by (queue,
    resource). `unknown` counts by resource the GPUs of gangs whose source is down: how many of these are idle is not
    known.
    """

    allocated: Counter[tuple[Queue, str, str]] = field(default_factory=Counter)
    idle: Counter[tuple[Queue, str, str]] = field(default_factory=Counter)
    reserved: Counter[tuple[Queue, str]] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Gpus") -> None:
        """Add the units of another."""
        for mine, its in self._pairs(other):
            for key, amount in its.items():
                mine[key] += amount

    def subtract(self, other: "Gpus") -> None:
        """Take away the units of another that was added; what falls to zero is forgotten."""
        for mine, its in self._pairs(other):
            for key, amount in its.items():
                mine[key] -= amount
                if not mine[key]:
                    del mine[key]

    def _pairs(self, other: "Gpus") -> Iterable[tuple[Counter[object], Counter[object]]]:
        names = ("allocated", "idle", "reserved", "unknown")
        return ((getattr(self, name), getattr(other, name)) for name in names)


@dataclass(slots=True)
class Summary:
    """Gangs counted: by (queue, state), their clocks, members by (queue, class), and the like."""

    states: dict[tuple[Queue, str], int] = field(default_factory=lambda: defaultdict(int))
    oldest: dict[tuple[Queue, str], float] = field(default_factory=dict)
    members: dict[tuple[Queue, str], int] = field(default_factory=lambda: defaultdict(int))
    waits: dict[Queue, float] = field(default_factory=dict)
    unguarded: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))

    @classmethod
    def of(cls, gangs: Iterable[GangView]) -> "Summary":
        """Count gangs."""
        summary = cls()
        for gang in gangs:
            summary._count(gang)
        return summary

    def _count(self, gang: GangView) -> None:
        queue = gang.queue
        if gang.state:
            key = queue, gang.state
            for state in ALWAYS_TOLD:
                self.states[queue, state] += 0
            self.states[key] += 1
            if gang.since is not None:
                self.oldest[key] = min(gang.since, self.oldest.get(key, gang.since))
        for name, number in gang.classes.items():
            self.members[queue, name] += number
        if gang.missing:
            self.members[queue, MISSING] += gang.missing
        if gang.permit_oldest is not None:
            self.waits[queue] = min(gang.permit_oldest, self.waits.get(queue, gang.permit_oldest))
        for reason in gang.unguarded:
            self.unguarded[queue.engine, reason] += 1


@dataclass(slots=True)
class Picture:
    """All gangs and GPUs at `now`.

    `nodes` is None where the nodes were not read; `free_known` and `pods_known` say what is complete. `unobservable`
    counts gangs by (signal, reason).
    """

    now: float
    gangs: tuple[GangView, ...] = ()
    summary: Summary = field(default_factory=Summary)
    gpus: Gpus = field(default_factory=Gpus)
    nodes: Mapping[str, NodeTotals] | None = None
    free_known: bool = False
    pods_known: bool = False
    unobservable: Mapping[tuple[str, str], int] = field(default_factory=dict)
