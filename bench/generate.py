# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A large cluster of GPU nodes, gangs and their objects, made from a seed.

A cluster is a number of equal blocks of 100 nodes, 1,000 pods and 20 gangs, so that what a gang looks like does not
change with the size and growth can be told from composition. `_GANGS` is the table of a block. 60 % of the pods are in
gangs, half of the gangs are PodGroups of the Coscheduling plugin and half are Jobs in queues of Kueue; most run, some
hold GPUs in part, wait in Permit, or are queued. A quarter of the other pods hold a GPU and belong to no gang, the
rest has none. Pods get GPUs of nodes that have them free, best fit first, so no node is overcommitted. Kueue keeps
finished Workloads for ever, and so does the cluster: one for each two gangs.

Objects are bytes as the API server encodes them (`bench.objects`), sorted by key as etcd lists them. `changes` makes
the next state of some members, and the watch events that tell of it.
"""

import random
import time
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import orjson

from bench import objects
from bench.objects import GPU, Json, Template

#: The time of the cluster, in seconds since the epoch.
NOW: Final = 1_796_000_000
_DAY: Final = 86_400


@dataclass(frozen=True, slots=True)
class Size:
    """How large a cluster is."""

    name: str
    pods: int
    nodes: int
    gangs: int


#: XS is for tests.
SIZES: Final = {
    size.name: size
    for size in (
        Size("XS", 1_000, 100, 20),
        Size("S", 5_000, 500, 100),
        Size("M", 50_000, 5_000, 1_000),
        Size("L", 100_000, 10_000, 2_000),
    )
}


class Kind(NamedTuple):
    """A kind of object that the server has."""

    plural: str
    api_version: str
    kind: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        """The API group, empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def path(self) -> str:
        """The path of the cluster-wide list."""
        return f"/{'apis' if self.group else 'api'}/{self.api_version}/{self.plural}"

    @property
    def custom(self) -> bool:
        """Tell whether it is a custom resource: those are encoded otherwise."""
        return "." in self.group


KINDS: Final = {
    kind.plural: kind
    for kind in (
        Kind("pods", "v1", "Pod"),
        Kind("nodes", "v1", "Node", namespaced=False),
        Kind("jobs", "batch/v1", "Job"),
        Kind("podgroups", "scheduling.x-k8s.io/v1alpha1", "PodGroup"),
        Kind("workloads", objects.KUEUE, "Workload"),
        Kind("clusterqueues", objects.KUEUE, "ClusterQueue", namespaced=False),
        Kind("localqueues", objects.KUEUE, "LocalQueue"),
        Kind("cohorts", objects.KUEUE, "Cohort", namespaced=False),
        Kind("resourceflavors", objects.KUEUE, "ResourceFlavor", namespaced=False),
        Kind("admissionchecks", objects.KUEUE, "AdmissionCheck", namespaced=False),
        Kind("topologies", objects.KUEUE, "Topology", namespaced=False),
        # None: a cluster in which nothing is rejected.
        Kind("events", "events.k8s.io/v1", "Event"),
    )
}


class _Gang(NamedTuple):
    """A row of the block: how many members run, wait in Permit, cannot be placed; the GPUs of a member."""

    engine: str
    state: str
    running: int
    waiting: int = 0
    unplaced: int = 0
    gpus: int = 1


_RUNNING_SIZES: Final = (16, 24, 32, 32, 40, 48, 64)
#: The gangs of a block: 600 pods.
_GANGS: Final = (
    _Gang("coscheduling", "running", 8, gpus=4),
    *(_Gang("coscheduling", "running", size) for size in _RUNNING_SIZES),
    _Gang("coscheduling", "partial", 16, unplaced=8),
    _Gang("coscheduling", "waiting", 0, waiting=14, unplaced=2),
    _Gang("kueue", "running", 8, gpus=2),
    *(_Gang("kueue", "running", size) for size in _RUNNING_SIZES),
    _Gang("kueue", "partial", 20, unplaced=12),
    # Suspended, so that its pods do not exist.
    _Gang("kueue", "queued", 0),
)
_QUEUED_SIZE: Final = 32
_BLOCK_PODS: Final = 1_000
#: Of 100 nodes: those without GPUs, then those with GPUs that are cordoned or not ready.
_CPU_NODES: Final = 8
_CORDONED: Final = 8
_NOT_READY: Final = 9
_NODE_GPUS: Final = 8
_RACK: Final = 20
_RACKS_IN_BLOCK: Final = 25
#: One of that many pods without GPUs has ended.
_DONE_EACH: Final = 20

_PROJECTS: Final = ("llama-pretrain", "vision-sft", "reward-model", "speech-codec", "protein-fold", "ranker", "moe-16x")


@dataclass(slots=True)
class Truth:
    """What is so in a cluster, to be compared with what a reader says of it.

    `states` counts the gangs, `ready` the members that are ready, `allocated` the GPUs that pods hold. `kept` counts
    the pods that have GPUs or are in a gang.
    """

    states: Counter[str] = field(default_factory=Counter)
    ready: int = 0
    allocated: int = 0
    kept: int = 0


class Cluster:
    """A cluster; `objects` holds the encoded objects of each kind by plural, sorted, `version` the newest version."""

    def __init__(self, size: Size, seed: int = 1) -> None:
        """Make it: 20 microseconds a pod."""
        self.size = size
        self.version = 1_000_000
        self.truth = Truth()
        self._random = random.Random(seed)
        self._made: dict[str, list[tuple[str, bytes]]] = defaultdict(list)
        self._room = _Room()
        #: Keys of the pods of each gang that runs.
        self._running: list[list[str]] = []
        self._teams = [f"team-{number:02d}" for number in range(max(5, min(50, size.gangs // 10)))]
        self._queues = max(2, len(self._teams) * 2 // 5)
        self._nodes()
        used = self._gangs()
        self._others()
        self._kueue(used)
        self.objects: dict[str, list[bytes]] = {plural: [] for plural in KINDS}
        self._keys: list[str] = []
        for plural, made in self._made.items():
            made.sort()
            self.objects[plural] = [obj for _, obj in made]
            if plural == "pods":
                self._keys = [key for key, _ in made]
        self._made.clear()

    def changes(self, number: int, gangs: int) -> list[bytes]:
        """Let the readiness of members flip: `number` different pods, spread evenly over `gangs` of the running gangs.

        Returns their new states, which `objects` has from now on as well. Raises ValueError where the gangs are too
        small.
        """
        share = -(-number // max(1, gangs))
        able = [keys for keys in self._running if len(keys) >= share]
        chosen = self._random.sample(able, min(gangs, len(able)))
        keys = [key for keys in chosen for key in self._random.sample(keys, share)][:number]
        if len(keys) < number:
            msg = f"{gangs} gangs have less than {number} pods"
            raise ValueError(msg)
        return [self._flip(bisect_left(self._keys, key)) for key in keys]

    def _flip(self, index: int) -> bytes:
        pod: Json = orjson.loads(self.objects["pods"][index])
        self.version += 1
        pod["metadata"]["resourceVersion"] = str(self.version)
        (status,) = pod["status"]["containerStatuses"]
        ready = status["ready"] = not status["ready"]
        for condition in pod["status"]["conditions"]:
            if condition["type"] in {"ContainersReady", "Ready"}:
                why = (
                    {}
                    if ready
                    else {"reason": "ContainersNotReady", "message": "containers with unready status: [train]"}
                )
                kept = {key: condition[key] for key in ("type", "observedGeneration", "lastProbeTime")}
                condition.clear()
                condition |= {
                    "type": kept["type"],
                    "observedGeneration": kept["observedGeneration"],
                    "status": str(ready),
                    "lastProbeTime": None,
                    "lastTransitionTime": _time(NOW + self.version % _DAY),
                    **why,
                }
        self.truth.ready += 1 if ready else -1
        self.objects["pods"][index] = changed = orjson.dumps(pod)
        return changed

    # --- making it ---------------------------------------------------------------------------------------------------

    def _add(self, plural: str, template: Template, values: Mapping[str, object]) -> str:
        """Make an object, and return the key by which it is sorted."""
        self.version += 1
        key = f"{values.get('namespace', '')}/{values['name']}"
        self._made[plural].append((key, template.fill({**values, "version": self.version})))
        return key

    def _uid(self) -> str:
        bits = f"{self._random.getrandbits(128):032x}"
        return f"{bits[:8]}-{bits[8:12]}-4{bits[13:16]}-a{bits[17:20]}-{bits[20:]}"

    def _suffix(self) -> str:
        """Return five characters as the API server generates names of."""
        return "".join(self._random.choices("bcdfghjklmnpqrstvwxz2456789", k=5))

    def _nodes(self) -> None:
        without, working = objects.node(gpus=False), objects.node(gpus=True)
        cordoned = objects.node(gpus=True, cordoned=True)
        for number in range(self.size.nodes):
            place = number % 100
            name = f"node-{number:05d}"
            gpus = place >= _CPU_NODES
            rack = number // _RACK
            ready = place != _NOT_READY
            if gpus and place not in {_CORDONED, _NOT_READY}:
                self._room.add(name)
            values = {
                "name": name,
                "uid": self._uid(),
                "machine": f"{self._random.getrandbits(128):032x}",
                "block": f"b{rack // _RACKS_IN_BLOCK:02d}",
                "rack": f"r{rack:03d}",
                "ip": _address(10, number),
                "cidr": f"{_address(100, number * 256)}/24",
                "created": _time(NOW - 30 * _DAY),
                "beat": _time(NOW - number % 300),
                "ready": "True" if ready else "Unknown",
                "ready_reason": "KubeletReady" if ready else "NodeStatusUnknown",
            }
            self._add("nodes", cordoned if place == _CORDONED else working if gpus else without, values)

    def _gangs(self) -> Counter[str]:
        """Make the gangs; return the GPUs that each team's Workloads use."""
        used: Counter[str] = Counter()
        for number in range(self.size.gangs):
            row = _GANGS[number % len(_GANGS)]
            # Blocks of gangs do not line up with the teams, so that each team has gangs of all sizes.
            values = self._job_values(number, row)
            self.truth.states[row.state] += 1
            homes = self._members(row, values)
            suspended = row.state == "queued"
            self._add("jobs", objects.job(row.engine, suspended=suspended), {**values, "name": values["job"]})
            if row.engine == "kueue":
                self._workload(row.state, values, homes)
                used[str(values["namespace"])] += row.gpus * row.running
            else:
                phase = {"running": "Running", "partial": "Scheduling", "waiting": "Scheduling"}[row.state]
                group = {**values, "name": values["job"], "uid": self._uid(), "phase": phase}
                self._add("podgroups", objects.pod_group(), group)
        # Their Jobs and pods are deleted.
        for number in range(self.size.gangs // 2):
            row = next(gang for gang in _GANGS if gang.engine == "kueue")
            values = self._job_values(self.size.gangs + number, row)
            self._workload("finished", values, [f"node-{n:05d}" for n in range(row.running)])
        return used

    def _job_values(self, number: int, row: _Gang) -> dict[str, object]:
        """Return what the objects of one job share."""
        team = (number * 7 + number // len(_GANGS)) % len(self._teams)
        job = f"{_PROJECTS[number % len(_PROJECTS)]}-{number:05d}"
        created = NOW - 600 - self._random.randrange(3 * _DAY)
        size = row.running + row.waiting + row.unplaced or _QUEUED_SIZE
        return {
            "job": job,
            "job_uid": self._uid(),
            "namespace": self._teams[team],
            "queue": f"{self._teams[team]}-queue",
            "cluster_queue": f"cluster-queue-{team % self._queues:02d}",
            "workload": f"job-{job}-{self._random.getrandbits(20):05x}",
            "cost": f"cc-{team:04d}",
            "size": size,
            "ready": row.running,
            "gpus": row.gpus,
            "created": _time(created),
            "started": _time(created + 4),
            "ready_at": _time(created + 95),
            "failed": _time(created + 5),
            "message": f"0/{self.size.nodes} nodes are available: {self.size.nodes} Insufficient {GPU}. preemption: "
            f"0/{self.size.nodes} nodes are available: {self.size.nodes} No preemption victims found for incoming pod.",
        }

    def _members(self, row: _Gang, job: Mapping[str, object]) -> list[str]:
        """Make the pods of a gang; return the nodes of those that run."""
        states = ["running"] * row.running + ["waiting"] * row.waiting + ["unschedulable"] * row.unplaced
        homes: list[str] = []
        keys: list[str] = []
        for index, state in enumerate(states):
            node = "" if state == "unschedulable" else self._room.take(row.gpus)
            if state == "running":
                homes.append(node)
            name = f"{job['job']}-{index}-"
            keys.append(self._pod(objects.pod(row.engine, state), {**job, "index": index, "generate": name}, node))
        if row.state == "running":
            self._running.append(keys)
        self.truth.kept += len(states)
        self.truth.ready += row.running
        self.truth.allocated += row.running * row.gpus
        return homes

    def _others(self) -> None:
        """Make the pods that are in no gang: a quarter of them has a GPU."""
        others = self.size.pods - len(self._made["pods"])
        for number in range(others):
            with_gpu = number % 4 == 0
            done = not with_gpu and number % _DONE_EACH == 1
            # A ReplicaSet of ten.
            team = number // 10 % len(self._teams)
            service = f"{'notebook' if with_gpu else 'service'}-{number // 40:05d}-{number % 4}"
            created = NOW - 600 - self._random.randrange(20 * _DAY)
            values: dict[str, object] = {
                "job": service,
                "job_uid": f"00000000-0000-4000-a000-{number // 40:010d}{number % 4:02d}",
                "namespace": self._teams[team],
                "cost": f"cc-{team:04d}",
                "hash": f"{number // 40:09x}",
                "gpus": 1,
                "generate": f"{service}-",
                "created": _time(created),
                "started": _time(created + 1),
                "ready_at": _time(created + 9),
                "ended": _time(created + 300),
            }
            node = self._room.take(1) if with_gpu else f"node-{number * 13 % self.size.nodes:05d}"
            self._pod(objects.pod("gpu" if with_gpu else "cpu", "done" if done else "running"), values, node)
            self.truth.kept += with_gpu
            self.truth.allocated += with_gpu

    def _pod(self, template: Template, values: Mapping[str, object], node: str) -> str:
        number = len(self._made["pods"])
        suffix = self._suffix()
        own = {
            "name": f"{values['generate']}{suffix}",
            "suffix": suffix,
            "uid": self._uid(),
            "digest": f"{self._random.getrandbits(256):064x}",
            "node": node,
            "host_ip": _address(10, int(node[5:])) if node else "",
            "ip": _address(100, number),
        }
        return self._add("pods", template, {**values, **own})

    def _workload(self, state: str, job: Mapping[str, object], homes: Sequence[str]) -> None:
        counts = Counter(homes)
        size = int(str(job["size"]))
        values = {
            **job,
            "name": job["workload"],
            "workload_uid": self._uid(),
            "cpus": size * 12,
            "memory": size * 96,
            "all_gpus": size,
            "domains": len(counts),
            "counts": orjson.dumps(list(counts.values())).decode(),
            "roots": orjson.dumps([node.removeprefix("node-") for node in counts]).decode(),
        }
        self._add("workloads", objects.workload(state), values)

    def _kueue(self, used: Mapping[str, int]) -> None:
        created = {"created": _time(NOW - 30 * _DAY), "pending": 1}
        queues: Counter[str] = Counter()
        local, cluster = objects.local_queue(), objects.cluster_queue()
        for number, team in enumerate(self._teams):
            queue = f"cluster-queue-{number % self._queues:02d}"
            queues[queue] += used.get(team, 0)
            values = {"name": f"{team}-queue", "namespace": team, "uid": self._uid(), "cluster_queue": queue}
            self._add("localqueues", local, {**created, **values, "used": used.get(team, 0), "admitted": 2})
        for queue, gpus in queues.items():
            values = {"name": queue, "uid": self._uid()}
            usage = {"quota": gpus + _QUEUED_SIZE // 2, "used": gpus, "admitted": 5}
            self._add("clusterqueues", cluster, {**created, **values, **usage})
        self._add("resourceflavors", objects.resource_flavor(), {**created, "name": objects.FLAVOR, "uid": self._uid()})
        self._add("topologies", objects.topology(), {**created, "name": objects.TOPOLOGY, "uid": self._uid()})


class _Room:
    """The free GPUs of the nodes that take pods, by number: a pod goes where it leaves the least."""

    def __init__(self) -> None:
        self._nodes: list[deque[str]] = [deque() for _ in range(_NODE_GPUS + 1)]

    def add(self, node: str) -> None:
        self._nodes[_NODE_GPUS].append(node)

    def take(self, gpus: int) -> str:
        """Take GPUs of one node and return its name. Raises IndexError where no node has as many."""
        free = next((number for number in range(gpus, _NODE_GPUS + 1) if self._nodes[number]), _NODE_GPUS)
        node = self._nodes[free].popleft()
        self._nodes[free - gpus].appendleft(node)
        return node


def _time(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _address(first: int, number: int) -> str:
    return f"{first}.{64 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
