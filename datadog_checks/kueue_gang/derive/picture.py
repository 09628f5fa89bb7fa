# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The picture of a cluster at one moment: every gang with its state, every GPU with its use, and what cannot be seen.

These are the records that `Deriver` makes and that emission, the commands and the tests read.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from datadog_checks.kueue_gang.derive.domains import LayoutFigures
from datadog_checks.kueue_gang.derive.gpus import NodeTotals
from datadog_checks.kueue_gang.derive.placement import Placement
from datadog_checks.kueue_gang.derive.quota import Quotas
from datadog_checks.kueue_gang.derive.transitions import Key

NONE = "none"
MISSING = "missing"


class Queue(NamedTuple):
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
    `placement` is None where no member lies in a topology. `stalled` is why it does not get on, empty where it does, or
    where nothing tells.
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
    placement: Placement | None = None
    stalled: str = ""


class Rate(NamedTuple):
    """How fast a gang gets on: units a second, and the same for each of its GPUs where they are of one resource."""

    unit: str
    value: float
    per_gpu: float | None


class Headway(NamedTuple):
    """How a gang gets on, as far as something tells: one rate a unit, and the progress in percent."""

    rates: tuple[Rate, ...] = ()
    progress: float | None = None


@dataclass(slots=True)
class Gpus:
    """GPU units that pods hold or that are reserved for them.

    `allocated` is by (queue, resource, gpu_use), `idle` by (queue, resource, idle_reason), `reserved` by (queue,
    resource). `idle_price` is what idle ones cost an hour, in millionths of the currency, those without a price left
    out. `unknown` counts by resource the GPUs of gangs whose source is down: how many of these are idle is not known.
    """

    allocated: Counter[tuple[Queue, str, str]] = field(default_factory=Counter)
    idle: Counter[tuple[Queue, str, str]] = field(default_factory=Counter)
    reserved: Counter[tuple[Queue, str]] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    idle_price: Counter[tuple[Queue, str, str]] = field(default_factory=Counter)

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
        names = ("allocated", "idle", "reserved", "unknown", "idle_price")
        return ((getattr(self, name), getattr(other, name)) for name in names)


@dataclass(slots=True)
class Summary:
    """Gangs counted: by (queue, state), members by (queue, class), and the like.

    `queues` counts the gangs of each queue that have a state. `clocks` holds by (queue, state) when the clock of each
    gang began, `waits` by queue when the longest certain Permit wait of each gang began. `placements` counts the gangs
    that ask for a place by (topology, level, flavor, verdict), `stalled` those that do not get on by (queue, reason).
    """

    queues: Counter[Queue] = field(default_factory=Counter)
    states: Counter[tuple[Queue, str]] = field(default_factory=Counter)
    members: Counter[tuple[Queue, str]] = field(default_factory=Counter)
    unguarded: Counter[tuple[str, str]] = field(default_factory=Counter)
    placements: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    stalled: Counter[tuple[Queue, str]] = field(default_factory=Counter)
    clocks: dict[tuple[Queue, str], dict[Key, float]] = field(default_factory=lambda: defaultdict(dict))
    waits: dict[Queue, dict[Key, float]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, gang: GangView, sign: int = 1) -> None:
        """Count a gang, or with a `sign` of -1 take it back; what falls to zero is forgotten."""
        queue = gang.queue
        if gang.state:
            _count(self.queues, queue, sign)
            _count(self.states, (queue, gang.state), sign)
            if gang.since is not None:
                _keep(self.clocks, (queue, gang.state), gang.key, gang.since, sign)
        for name, number in gang.classes.items():
            _count(self.members, (queue, name), sign * number)
        if gang.missing:
            _count(self.members, (queue, MISSING), sign * gang.missing)
        if gang.permit_oldest is not None:
            _keep(self.waits, queue, gang.key, gang.permit_oldest, sign)
        for reason in gang.unguarded:
            _count(self.unguarded, (queue.engine, reason), sign)
        if gang.stalled:
            _count(self.stalled, (queue, gang.stalled), sign)
        place = gang.placement
        if place and place.verdict:
            _count(self.placements, (place.topology, place.level, place.flavor, place.verdict), sign)


def _count(counter: Counter[Any], key: object, number: int) -> None:
    counter[key] += number
    if not counter[key]:
        del counter[key]


def _keep(holder: dict[Any, dict[Any, float]], key: object, gang: Key | str, time: float, sign: int) -> None:
    if sign > 0:
        holder[key][gang] = time
    else:
        holder[key].pop(gang, None)
        if not holder[key]:
            del holder[key]


class Evicted(NamedTuple):
    """An eviction: where, why, and whether its gang was half assembled (true, false or unknown)."""

    namespace: str
    local_queue: str
    cluster_queue: str
    reason: str
    cause: str
    gang_partial: str


class Note(NamedTuple):
    """Something to tell: its kind, the gang, node or source that it is about, when it began or happened, and more.

    `gang` is the key of the gang, None where it is about none. `detail` is a reason of an eviction or of a source that
    is down, or the seconds of an assembly.
    """

    kind: str
    name: str
    at: float
    gang: Key | None = None
    detail: str = ""


#: The tags of a Workload: namespace, LocalQueue, ClusterQueue, stage.
StageTags = tuple[str, str, str, str]


@dataclass(slots=True)
class Happenings:
    """What happened since the picture before.

    `assembled` holds the seconds that gangs took to run, by queue. `rejected` counts gangs by (queue, reason),
    `evicted` Workloads. `stages` holds the seconds that Workloads took to reach a stage. `burned` are GPU-seconds of
    attempts that ended before the gang ever ran, by (queue, resource, reason). `gangs` is what is to be told of single
    gangs.
    """

    assembled: dict[Queue, list[float]] = field(default_factory=lambda: defaultdict(list))
    rejected: Counter[tuple[Queue, str]] = field(default_factory=Counter)
    stages: dict[StageTags, list[float]] = field(default_factory=lambda: defaultdict(list))
    evicted: Counter[Evicted] = field(default_factory=Counter)
    burned: Counter[tuple[Queue, str, str]] = field(default_factory=Counter)
    gangs: list[Note] = field(default_factory=list)


class Staged(NamedTuple):
    """A Workload, its stage and since when; `without_pods`: admitted for longer than the grace, and no pod exists."""

    name: str
    queue: Queue
    stage: str
    since: float | None
    without_pods: bool


@dataclass(slots=True)
class Workloads:
    """Workloads counted by stage, since when each is there, and those that are admitted and have no pods, by queue."""

    stages: Counter[StageTags] = field(default_factory=Counter)
    clocks: dict[StageTags, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    without_pods: Counter[Queue] = field(default_factory=Counter)

    def add(self, one: Staged, sign: int = 1) -> None:
        """Count a Workload, or with a `sign` of -1 take it back; what falls to zero is forgotten."""
        tags = (*one.queue[:3], one.stage)
        _count(self.stages, tags, sign)
        if one.since is not None:
            _keep(self.clocks, tags, one.name, one.since, sign)
        if one.without_pods:
            _count(self.without_pods, one.queue, sign)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Blockers of gangs by key and counted by (queue, blocker); the deadlocked gangs, and the GPUs that they hold."""

    blockers: Mapping[Key, str] = field(default_factory=dict)
    blocked: Mapping[tuple[Queue, str], int] = field(default_factory=dict)
    deadlocked: frozenset[Key] = frozenset()
    deadlocked_gpus: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Picture:
    """All gangs and GPUs at `now`.

    `views` are the gangs, in no order. `nodes` is None where the nodes were not read; `free_known` and `pods_known` say
    what is complete. `unobservable` counts gangs by (signal, reason), nodes for the signal `placement`. `verdicts` tell
    why gangs do not run, `happened` what happened since the picture before. `workloads` is None where they were not
    read, `layouts` where nodes, flavors or Topologies were not. `needed` tells the least number of domains by level
    that could hold a placement at present: ask it for few gangs. `headway` tells of the gangs how they get on of which
    something tells; it changes with each run.

    It holds until the deriver takes the next changes: gangs, summary and GPUs are the deriver's own, since copies of
    them would grow with the cluster.
    """

    now: float
    views: Collection[GangView] = ()
    summary: Summary = field(default_factory=Summary)
    gpus: Gpus = field(default_factory=Gpus)
    nodes: Mapping[str, NodeTotals] | None = None
    free_known: bool = False
    pods_known: bool = False
    unobservable: Mapping[tuple[str, str], int] = field(default_factory=dict)
    verdicts: Verdicts = field(default_factory=Verdicts)
    workloads: Workloads | None = None
    happened: Happenings = field(default_factory=Happenings)
    notes: Sequence[Note] = ()
    layouts: Sequence[LayoutFigures] | None = None
    quotas: Quotas = field(default_factory=Quotas)
    headway: Mapping[Key, Headway] = field(default_factory=dict)
    needed: Callable[[Placement], Mapping[str, int]] = field(default=lambda _placement: {}, compare=False)

    @property
    def gangs(self) -> list[GangView]:
        """All gangs, in the order of their keys."""
        return sorted(self.views, key=lambda view: view.key)
