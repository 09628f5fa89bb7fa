# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The records of the simulated cluster: what the doubles of its controllers know and change.

GPUs are of one resource. A pod holds those of its node from its binding until it is gone or its containers have ended;
one that waits in Permit holds them in the scheduler's memory (`reserved`).
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from lab.simulation.engine import Timer

Json = dict[str, Any]

GPU: Final = "nvidia.com/gpu"
HOSTNAME: Final = "kubernetes.io/hostname"
BLOCK: Final = "cloud.provider.com/topology-block"
RACK: Final = "cloud.provider.com/topology-rack"
TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"
DEFAULT_SCHEDULER: Final = "default-scheduler"
GANG_SCHEDULER: Final = "scheduler-plugins-scheduler"
#: CPU and memory of every pod: there is plenty of both.
CPU_PER_POD, MEMORY_PER_POD = 4, 32

TERMINAL: Final = frozenset({"Succeeded", "Failed"})


def stamp(at: float) -> str:
    """Return a time as the API writes it: whole seconds."""
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro(at: float) -> str:
    """Return a time as Events have it: microseconds."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Conditions:
    """The conditions of an object: the time of one changes with its status, not with its reason or its text."""

    def __init__(self, **common: object) -> None:
        """Begin with none; `common` are fields that all of them have."""
        self._common = common
        self.all: dict[str, Json] = {}

    def set(self, kind: str, status: str, now: float, reason: str = "", message: str = "", **more: object) -> bool:
        """Set one; tell whether anything changed."""
        before = self.all.get(kind)
        flips = before is None or before["status"] != status
        since = stamp(now) if flips or before is None else before["lastTransitionTime"]
        after: Json = {"type": kind, "status": status, **self._common, **more, "lastTransitionTime": since}
        if reason:
            after["reason"] = reason
        if message:
            after["message"] = message
        self.all[kind] = after
        return after != before

    def drop(self, kind: str) -> None:
        """Take one away."""
        self.all.pop(kind, None)

    def status(self, kind: str) -> str:
        """Return the status of one, '' where it is absent."""
        found = self.all.get(kind)
        return str(found["status"]) if found else ""

    def is_true(self, kind: str) -> bool:
        """Tell whether one is True."""
        return self.status(kind) == "True"

    def reason(self, kind: str) -> str:
        """Return the reason of one, '' where there is none."""
        return str(self.all.get(kind, {}).get("reason", ""))


@dataclass(eq=False, slots=True)
class Node:
    """A node. `silent` since its kubelet stopped; `ready` is what the API says of it."""

    name: str
    pool: str
    gpus: int
    labels: dict[str, str]
    created: float
    uid: str
    conditions: Conditions = field(default_factory=lambda: Conditions(lastHeartbeatTime=None))
    heartbeat: float = 0.0
    silent: float | None = None
    not_ready: float | None = None
    cordoned: float | None = None
    taints: list[Json] = field(default_factory=list)
    pods: set["Pod"] = field(default_factory=set)
    reserved: set["Pod"] = field(default_factory=set)

    @property
    def ready(self) -> bool:
        """Whether the API says so."""
        return self.conditions.is_true("Ready")

    @property
    def used(self) -> int:
        """GPUs that pods hold, and that the scheduler holds for pods in Permit."""
        return sum(pod.gpus for pod in self.pods) + sum(pod.gpus for pod in self.reserved)

    @property
    def free(self) -> int:
        """GPUs that nobody holds."""
        return self.gpus - self.used


@dataclass(eq=False, slots=True)
class Container:
    """The one container of a pod: `state` as the kubelet tells it, and what it remembers of the one before."""

    state: Json = field(default_factory=dict)
    last: Json = field(default_factory=dict)
    ready: bool = False
    started: bool = False
    restarts: int = 0
    image_id: str = ""


@dataclass(eq=False, slots=True)
class Pod:
    """A pod. `order` is when it entered a scheduler's queue, `turned_away` by what it was: `fit`, `gang` or not."""

    namespace: str
    name: str
    uid: str
    created: float
    gpus: int
    scheduler: str
    job: "Job | None" = None
    index: int = 0
    node: Node | None = None
    phase: str = "Pending"
    gates: list[str] = field(default_factory=list)
    selector: dict[str, str] = field(default_factory=dict)
    conditions: Conditions = field(default_factory=lambda: Conditions(lastProbeTime=None))
    container: Container | None = None
    started: float | None = None
    deletion: float | None = None
    grace: int = 30
    stops_in: float = 5.0
    finalizer: str = ""
    generation: int = 1
    nominated: str = ""
    reserved: Node | None = None
    waits_since: float = 0.0
    waits_since_end: float = 0.0
    wait: Timer | None = None
    turned_away: str = ""
    attempts: int = 0
    order: int = 0
    gone: bool = False
    timer: Timer | None = None
    managers: dict[tuple[str, str], tuple[float, Json]] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def live(self) -> bool:
        """Whether it is there and not terminal."""
        return not self.gone and self.phase not in TERMINAL

    @property
    def up(self) -> bool:
        """Whether its container works, on a node that works, and nobody has asked it to stop."""
        serves = self.phase == "Running" and self.container is not None and self.container.ready
        return serves and self.live and self.deletion is None and self.node is not None and self.node.silent is None

    @property
    def priority(self) -> int:
        """Kueue's priority classes leave the priority of pods alone."""
        return 0


@dataclass(eq=False, slots=True)
class PodGroup:
    """A PodGroup of Coscheduling."""

    namespace: str
    name: str
    uid: str
    created: float
    least: int
    timeout: int | None
    annotations: dict[str, str] = field(default_factory=dict)
    phase: str = "Pending"
    keeps_retrying: bool = True
    rejected_at: float = 0.0


@dataclass(eq=False, slots=True)
class Job:
    """An Indexed batch Job: all its pods must run at once.

    `left` is the work that was still to be done when it last rested, in seconds, of `lasts` in all.
    """

    namespace: str
    name: str
    uid: str
    created: float
    size: int
    gpus: int
    left: float
    queue: str = ""
    lasts: float = 0.0
    priority_class: str = ""
    priority: int = 0
    level: tuple[str, str] | None = None
    group: PodGroup | None = None
    starts_in: tuple[float, float] = (5.0, 20.0)
    stops_in: float = 5.0
    grace: int = 30
    restarts: bool = False
    ttl: float = 300.0
    progress: float = 0.0
    train_job: bool = False
    suspended: bool = False
    conditions: Conditions = field(default_factory=lambda: Conditions(lastProbeTime=None))
    generation: int = 1
    resumed: float | None = None
    pods: dict[int, Pod] = field(default_factory=dict)
    old: list[Pod] = field(default_factory=list)
    workload: "Workload | None" = None
    working_since: float | None = None
    rests_since: float = 0.0
    ends: Timer | None = None
    finished: float | None = None
    gone: bool = False
    ran: bool = False
    worked_when_stopped: bool = False

    def share(self, now: float) -> float:
        """Return how much of its work is done, from 0 to 1."""
        working = 0.0 if self.working_since is None else now - self.working_since
        return min(1.0, 1 - (self.left - working) / self.lasts) if self.lasts else 1.0

    @property
    def scheduler(self) -> str:
        """Who places its pods."""
        return GANG_SCHEDULER if self.group else DEFAULT_SCHEDULER

    @property
    def required(self) -> int:
        """Members without which it cannot work."""
        return self.size

    @property
    def done(self) -> int:
        """Members that have succeeded."""
        return sum(pod.phase == "Succeeded" for pod in self.pods.values())

    @property
    def up(self) -> int:
        """Members that work."""
        return sum(pod.up for pod in self.pods.values())

    @property
    def works(self) -> bool:
        """Whether enough of its members are up."""
        return self.up > 0 and self.up + self.done >= self.required

    @property
    def members(self) -> list[Pod]:
        """All its pods that are there, those before them included."""
        return [pod for pod in (*self.pods.values(), *self.old) if not pod.gone]


@dataclass(eq=False, slots=True)
class Workload:
    """What Kueue knows of a job. `domains` are the nodes of its topology assignment, with the number of pods."""

    name: str
    job: Job
    uid: str
    created: float
    conditions: Conditions = field(default_factory=lambda: Conditions(observedGeneration=1))
    active: bool = True
    cluster_queue: str = ""
    flavor: str = ""
    topology: str = ""
    domains: list[tuple[str, int]] = field(default_factory=list)
    queued: float = 0.0
    admitted: float | None = None
    requeues: int = 0
    requeue_at: float | None = None
    evictions: dict[tuple[str, str], int] = field(default_factory=dict)
    past: float = 0.0
    reclaimed: int = 0
    timer: Timer | None = None
    evicting: bool = False
    was_ready: bool = False

    @property
    def holds_quota(self) -> bool:
        """Whether quota is reserved for it."""
        return self.conditions.is_true("QuotaReserved") and not self.finished

    @property
    def finished(self) -> bool:
        """Whether it is over."""
        return self.conditions.is_true("Finished")

    @property
    def gpus(self) -> int:
        """GPUs that it asks for."""
        return self.job.size * self.job.gpus


@dataclass(eq=False, slots=True)
class ClusterQueue:
    """A ClusterQueue: GPU quota by flavor, in order, and whether it preempts for priority."""

    name: str
    uid: str
    created: float
    quota: dict[str, int]
    preempts: bool
    generation: int = 1


@dataclass(eq=False, slots=True)
class LocalQueue:
    """A LocalQueue."""

    namespace: str
    name: str
    uid: str
    created: float
    cluster_queue: str


@dataclass(eq=False, slots=True)
class Flavor:
    """A ResourceFlavor, the label of its nodes, and the levels of its Topology, widest first (none without one)."""

    name: str
    uid: str
    created: float
    labels: dict[str, str]
    topology: str = ""
    levels: tuple[str, ...] = ()


@dataclass(eq=False, slots=True)
class SeenEvent:
    """An Event of a pod that was not placed: how often its text came, and when last."""

    pod: Pod
    note: str
    first: float
    uid: str
    count: int = 1
    last: float = 0.0
    told: int = 1
    told_at: float = 0.0
