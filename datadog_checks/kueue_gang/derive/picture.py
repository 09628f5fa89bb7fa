# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The picture of a cluster at one moment: every gang with its state, every GPU with its use, and what cannot be seen.

`derive` is the one entry: facts, options, memory and time in; picture and memory out.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from datadog_checks.kueue_gang.derive import gpus as gpu
from datadog_checks.kueue_gang.derive.guard import is_served_by_name, known_gang_schedulers, unguarded
from datadog_checks.kueue_gang.derive.members import HOLDING, PLACED, is_lost, member_class
from datadog_checks.kueue_gang.derive.membership import Gang, Outsider, membership
from datadog_checks.kueue_gang.derive.permit import (
    CERTAIN,
    POSSIBLE,
    SHOWS_WAITS_FROM,
    Candidate,
    settle_by_count,
    settle_by_room,
)
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.derive.states import FINISHED, UNPLACED, Shape, since, state_of
from datadog_checks.kueue_gang.derive.transitions import ATTENTION_AFTER, Key, Memory
from datadog_checks.kueue_gang.facts.cluster import Cluster
from datadog_checks.kueue_gang.facts.nodes import Node
from datadog_checks.kueue_gang.facts.pods import Pod
from datadog_checks.kueue_gang.facts.workloads import Workload

NONE = "none"
#: Engines whose scheduler holds pods in Permit.
_WITH_PERMIT = frozenset({"coscheduling", "kubernetes"})
#: Classes of members that may hide a Permit wait where the scheduler leaves no trace.
_MAY_HIDE_A_WAIT = frozenset({"new", "rejected", "unschedulable"})
#: States that need attention as soon as their clock is beyond the grace.
_ALARMING = frozenset({"partial", "degraded", "starting"})
#: A gang may finish in part for this long before it needs attention: the rest holds its GPUs.
_FINISHING_AT_MOST = 600.0


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
class Picture:
    """All gangs and GPUs at `now`.

    `allocated` is by (queue, resource, gpu_use), `idle` by (queue, resource, idle_reason), `reserved` by (queue,
    resource). `nodes` is None where nodes or pods were not read. `idle_unknown` names the resources of which some GPUs are
    held by gangs whose source is down: their total of idle GPUs is not known. `unobservable` counts gangs by (signal,
    reason).
    """

    now: float
    gangs: tuple[GangView, ...] = ()
    allocated: dict[tuple[Queue, str, str], int] = field(default_factory=lambda: defaultdict(int))
    idle: dict[tuple[Queue, str, str], int] = field(default_factory=lambda: defaultdict(int))
    reserved: dict[tuple[Queue, str], int] = field(default_factory=lambda: defaultdict(int))
    nodes: Mapping[str, gpu.NodeTotals] | None = None
    free_known: bool = False
    pods_known: bool = False
    idle_unknown: frozenset[str] = frozenset()
    unobservable: Counter[tuple[str, str]] = field(default_factory=Counter)


def derive(cluster: Cluster, rules: Rules, memory: Memory, now: float) -> tuple[Picture, Memory]:
    """Draw the picture of a reading.

    Args:
        cluster: the facts.
        rules: the options.
        memory: what the last call returned; empty for a new check.
        now: the cluster's time, seconds since the epoch.

    Returns:
        The picture, and the memory for the next call.

    """
    return _Drawing(cluster, rules, memory, now).result()


class _Drawing:
    def __init__(self, cluster: Cluster, rules: Rules, memory: Memory, now: float) -> None:
        self.cluster, self.rules, self.memory, self.now = cluster, rules, memory, now
        self.nodes: dict[str, Node] = {node.name: node for node in cluster.nodes}
        self.nodes_known = cluster.was_read("nodes")
        self.queues = {(queue.namespace, queue.name): queue.cluster_queue for queue in cluster.local_queues}
        self.versions = dict(pod.scheduler_version for pod in cluster.pods if pod.scheduler_version)
        self.versions.update(rules.scheduler_versions)
        self.nominating = {pod.spec.scheduler for pod in cluster.pods if pod.nominated and not pod.node}
        self.schedulers = known_gang_schedulers(rules, cluster.scheduler)
        self.ran: dict[Key, frozenset[str]] = {}
        self.attention: dict[Key, float] = {}
        self.picture = Picture(now=now, pods_known=cluster.was_read("pods"))
        self.idle_unknown: set[str] = set()

    def result(self) -> tuple[Picture, Memory]:
        picture = self.picture
        figures = gpu.node_figures(self.cluster, self.rules)
        if self.nodes_known:
            picture.nodes = figures.totals
            picture.free_known = picture.pods_known
        if picture.pods_known:
            sorted_pods = membership(self.cluster, self.rules)
            views = [self._view(shape) for shape in self._shapes(sorted_pods.gangs, figures.room)]
            picture.gangs = tuple(view for view in views if view)
            for outsider in sorted_pods.outsiders:
                self._outsider(outsider)
        picture.idle_unknown = frozenset(self.idle_unknown)
        return picture, Memory(ran=self.ran, attention=self.attention)

    # --- members -----------------------------------------------------------------------------------------------------

    def _is_lost(self, pod: Pod) -> bool:
        """Tell whether a pod's node is lost; nobody knows while the nodes, or just that one, cannot be read."""
        if not pod.node or not self.nodes_known or self.cluster.is_unreadable("nodes", "", pod.node):
            return False
        return is_lost(self.nodes.get(pod.node), self.now, self.rules.grace)

    def _shapes(self, gangs: tuple[Gang, ...], room: dict[tuple[str, str], int]) -> list[Shape]:
        candidates = [
            Candidate(gang, [member_class(pod, lost=self._is_lost(pod)) for pod in gang.members]) for gang in gangs
        ]
        if self.nodes_known:
            settle_by_room(candidates, room)
        served = self.cluster.scheduler.profiles if self.cluster.scheduler else frozenset()
        settle_by_count(candidates, self.cluster.scheduler, shows=all(self._leaves_traces(name) for name in served))
        return [
            Shape(candidate.gang, candidate.classes, ran_before=self._ran_before(candidate)) for candidate in candidates
        ]

    def _leaves_traces(self, scheduler: str) -> bool:
        """Tell whether a scheduler writes the node of a waiting pod: by its version, or because it is seen to."""
        version = self.versions.get(scheduler)
        return version >= SHOWS_WAITS_FROM if version is not None else scheduler in self.nominating

    def _ran_before(self, candidate: Candidate) -> bool:
        placed = _uids(candidate.gang, candidate.classes, PLACED)
        return self.memory.saw_run(_key(candidate.gang), placed)

    # --- gangs -------------------------------------------------------------------------------------------------------

    def _view(self, shape: Shape) -> GangView | None:
        gang, state = shape.gang, state_of(shape)
        if state == FINISHED:
            return None
        self._remember_run(shape, state)
        queue = self._queue(gang.namespace, gang.engine, gang.workload)
        allocated, idle = self._gpus_of(shape, state, queue)
        if not self.rules.reports(gang.namespace):
            return None
        reserved: dict[str, int] = {}
        for pod in shape.pods(frozenset({CERTAIN})):
            gpu.add(reserved, pod.spec.gpus)
        for resource, amount in reserved.items():
            self.picture.reserved[queue, resource] += amount
        reasons = tuple(unguarded(gang, self.schedulers))
        began = since(state, shape, self.nodes) if state else None
        self._count_unobservable(shape)
        return GangView(
            key=_key(gang),
            queue=queue,
            name=gang.name,
            owner_kind=gang.owner_kind,
            priority_class=(gang.workload.priority_class if gang.workload else "") or NONE,
            labels=self._labels(gang),
            state=state,
            since=began,
            required=gang.required,
            missing=shape.missing,
            classes=dict(shape.counts),
            requested=self._requested(shape),
            allocated=allocated,
            idle=idle,
            reserved=gpu.spread(reserved),
            requeues=gang.workload.requeues if gang.workload else 0,
            permit_oldest=min(
                (pod.nominated_at for pod in shape.pods(frozenset({CERTAIN})) if pod.nominated_at is not None),
                default=None,
            ),
            unguarded=reasons,
            unobservable=gang.unobservable,
            attention=self._attention(shape, state, began, reasons),
        )

    def _queue(self, namespace: str, engine: str, workload: Workload | None) -> Queue:
        if workload is None:
            return Queue(namespace, NONE, NONE, engine)
        queue = workload.queue
        cluster_queue = workload.cluster_queue or self.queues.get((namespace, queue), "")
        return Queue(namespace, queue or NONE, cluster_queue or NONE, engine)

    def _gpus_of(self, shape: Shape, state: str | None, queue: Queue) -> tuple[dict[str, int], dict[str, int]]:
        gang = shape.gang
        complete = shape.each(lambda tally: tally.could_run >= tally.required)
        allocated: dict[str, int] = {}
        idle: dict[str, int] = {}
        for pod, name in zip(gang.members, shape.classes, strict=True):
            if name not in HOLDING or not pod.spec.gpus:
                continue
            situation = gpu.Situation(state, gang.orphan, complete, self._is_lost(pod))
            gpu.add(allocated, pod.spec.gpus)
            if self._account(pod, situation, queue):
                gpu.add(idle, pod.spec.gpus)
        if gang.source_down:
            self.idle_unknown.update(allocated)
        return gpu.spread(allocated), gpu.spread(idle)

    def _account(self, pod: Pod, situation: gpu.Situation, queue: Queue) -> bool:
        """Put a pod's GPUs into their bucket; tell whether it is idle."""
        if self.rules.reports(pod.namespace):
            use, reason = gpu.bucket(pod, situation, self.now)
        else:
            queue, use, reason = Queue(NONE, NONE, NONE, NONE), gpu.OTHER, ""
        for resource, amount in pod.spec.gpus:
            self.picture.allocated[queue, resource, use] += amount
            if reason:
                self.picture.idle[queue, resource, reason] += amount
        return use == gpu.IDLE

    def _outsider(self, outsider: Outsider) -> None:
        pod = outsider.pod
        if gpu.holds(pod):
            situation = gpu.Situation(None, outsider.names_gone, complete=False, lost=self._is_lost(pod))
            self._account(pod, situation, self._queue(pod.namespace, NONE, outsider.workload))

    def _requested(self, shape: Shape) -> dict[str, int]:
        gang = shape.gang
        if gang.required is None:
            return {}
        needs = [(need.required or 0, need.gpus) for need in gang.needs]
        if gang.group and gang.workload and len(gang.workload.podsets) == 1:
            needs = [(gang.required, gang.workload.podsets[0].gpus)]
        pods = [pod for pod, name in zip(gang.members, shape.classes, strict=True) if name != "failed"]
        return gpu.spread(gpu.requested(pods, needs, gang.required))

    def _labels(self, gang: Gang) -> tuple[tuple[str, str], ...]:
        found: dict[str, str] = {}
        for holder in (gang.group, gang.workload, gang.job, *gang.members[:1]):
            for key, value in holder.labels if holder else ():
                found.setdefault(key, value)
        return tuple(sorted(found.items()))

    # --- what is unknown, what needs attention, what is remembered ---------------------------------------------------

    def _count_unobservable(self, shape: Shape) -> None:
        gang, counted = shape.gang, self.picture.unobservable
        if gang.unobservable:
            counted["required", gang.unobservable] += 1
        if is_served_by_name(gang) and not self.schedulers:
            counted["guard", "not_configured"] += 1
        if shape.counts[POSSIBLE]:
            counted["permit", "ambiguous"] += 1
        elif gang.engine in _WITH_PERMIT and not gang.orphan and self._hides_waits(shape):
            counted["permit", "no_trace"] += 1

    def _hides_waits(self, shape: Shape) -> bool:
        count = self.cluster.scheduler
        counted = count.profiles if count and count.waiting is not None else frozenset()
        return any(
            pod.spec.scheduler not in counted and not self._leaves_traces(pod.spec.scheduler)
            for pod in shape.pods(_MAY_HIDE_A_WAIT)
        )

    def _attention(self, shape: Shape, state: str | None, began: float | None, reasons: tuple[str, ...]) -> bool:
        key, workload = _key(shape.gang), shape.gang.workload
        age = self.now - began if began is not None else 0.0
        admitted = workload is None or workload.admitted
        if (
            (state in _ALARMING and age > self.rules.grace)
            or (state in UNPLACED and admitted and age > self.rules.grace)
            or (state == "finishing" and age > _FINISHING_AT_MOST)
            or reasons
        ):
            self.attention[key] = self.now
            return True
        last = self.memory.attention.get(key)
        if last is not None and self.now - last <= ATTENTION_AFTER:
            self.attention[key] = last
            return True
        return False

    def _remember_run(self, shape: Shape, state: str | None) -> None:
        key = _key(shape.gang)
        if state in {"running", "finishing"}:
            self.ran[key] = _uids(shape.gang, shape.classes, HOLDING)
        elif key in self.memory.ran:
            self.ran[key] = self.memory.ran[key]


def _key(gang: Gang) -> Key:
    return gang.engine, gang.namespace, gang.name


def _uids(gang: Gang, classes: list[str], wanted: frozenset[str]) -> frozenset[str]:
    return frozenset(pod.uid for pod, name in zip(gang.members, classes, strict=True) if name in wanted)
