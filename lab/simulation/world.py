# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The simulated cluster as a whole: its records, the doubles that change them, and the server that shows them.

world = World(load("partial-gang"))
with ApiServer(clock=lambda: world.now) as server:
    world.run_until(world.start + 60)
    world.show(server)
"""

from collections.abc import Callable, Iterable
from typing import Protocol
from uuid import UUID

from lab.http_faults import Row
from lab.simulation import kueue_objects, objects
from lab.simulation.engine import Engine
from lab.simulation.jobs import Jobs
from lab.simulation.kubelet import Kubelets
from lab.simulation.kueue import Kueue
from lab.simulation.scenario import JobSpec, PodSpec, Pool, Scenario, names, nodes_of
from lab.simulation.scheduler import Scheduler
from lab.simulation.state import (
    BLOCK,
    DEFAULT_SCHEDULER,
    HOSTNAME,
    RACK,
    ClusterQueue,
    Flavor,
    Job,
    Json,
    LocalQueue,
    Node,
    Pod,
    PodGroup,
    SeenEvent,
    Workload,
    stamp,
)

_LEVELS = (BLOCK, RACK, HOSTNAME)
_GROUPS = "podgroups.scheduling.x-k8s.io"
_WORKLOADS = "workloads.kueue.x-k8s.io"
#: How long the cluster has been there.
_AGE = 30 * 86400.0

Shown = Node | Pod | Job | PodGroup | Workload | SeenEvent


class Server(Protocol):
    """What shows objects: an `ApiServer`."""

    @property
    def faults(self) -> list[Row]:
        """What goes wrong."""

    @faults.setter
    def faults(self, rows: list[Row]) -> None: ...

    def apply(self, name: str, obj: Json) -> Json:
        """Create or replace an object of a kind."""

    def delete(self, name: str, own: str, namespace: str = "") -> Json | None:
        """Delete an object."""


class World:
    """A cluster that lives in virtual time. `start` is the first moment that the check sees."""

    def __init__(self, scenario: Scenario) -> None:
        """Build a scenario's cluster, and plan what is to happen in it."""
        self.scenario = scenario
        self.start = scenario.starts.timestamp()
        self.engine = Engine(self.start - scenario.before, scenario.seed)
        self.nodes: dict[str, Node] = {}
        self.pods: dict[tuple[str, str], Pod] = {}
        self.all_jobs: dict[str, Job] = {}
        self.flavors: dict[str, Flavor] = {}
        self.cluster_queues: dict[str, ClusterQueue] = {}
        self.local_queues: dict[str, LocalQueue] = {}
        #: What happened: (seconds since the start, text).
        self.story: list[tuple[float, str]] = []
        self._dirty: dict[Shown, None] = {}
        self._gone: list[tuple[str, str, str]] = []
        self._configuration_shown = False
        # Whether, and how often, a world is shown must not change what happens in it.
        self._topology_uid = self.uid() if scenario.cluster.topology else ""
        spec = scenario.cluster
        self.kubelets = Kubelets(self)
        self.jobs = Jobs(self)
        self.scheduler = Scheduler(self, spec.scheduler.permit_timeout, spec.scheduler.tries_again_after)
        self.kueue = Kueue(self, spec.kueue)
        self._build()
        self._plan()

    @property
    def now(self) -> float:
        """The time, in seconds since the epoch."""
        return self.engine.now

    def run_until(self, when: float) -> None:
        """Let the cluster live until then."""
        self.engine.run_until(when)

    def uid(self) -> str:
        """Return a new uid."""
        return str(UUID(int=self.engine.random.getrandbits(128), version=4))

    def tell(self, text: str) -> None:
        """Add to the story."""
        self.story.append((self.now - self.start, text))

    # --- how it begins -----------------------------------------------------------------------------------------------

    def _build(self) -> None:
        spec = self.scenario.cluster
        born = self.start - _AGE
        for pool in spec.pools:
            labels = {objects.PRESENT: "true", objects.POOL: pool.name}
            self.flavors[pool.name] = Flavor(
                pool.name, self.uid(), born, labels, spec.topology, _LEVELS if spec.topology else ()
            )
            for name, where in nodes_of(pool).items():
                self._node(name, pool, where, labels)
        for queue in spec.queues:
            name = f"{queue.name}-cq"
            self.cluster_queues[name] = ClusterQueue(name, self.uid(), born, dict(queue.quota), queue.preempts)
            self.local_queues[queue.name] = LocalQueue(queue.name, queue.name, self.uid(), born, name)

    def _node(self, name: str, pool: Pool, where: tuple[int, int], labels: dict[str, str]) -> None:
        born = self.start - _AGE
        made = {
            "kubernetes.io/arch": "amd64",
            HOSTNAME: name,
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": f"gpu.{pool.gpus}xlarge",
            "nvidia.com/gpu.count": str(pool.gpus),
            "nvidia.com/gpu.product": pool.product,
            **labels,
        }
        if self.scenario.cluster.topology:
            made |= {BLOCK: f"b{where[0]}", RACK: f"r{where[1]}"}
        node = Node(name, pool.name, pool.gpus, made, born, self.uid())
        self.nodes[name] = node
        self.kubelets.post(node)
        for condition in node.conditions.all.values():
            condition["lastTransitionTime"] = stamp(born)

    def _plan(self) -> None:
        from lab.simulation.faults import Faults  # noqa: PLC0415 - they act on the world

        for job in self.scenario.jobs:
            for number, name in enumerate(names(job)):
                at = self.start + job.at + number * job.every
                self.engine.at(at, lambda job=job, name=name: self._submit(job, name))  # type: ignore[misc]
        for pod in self.scenario.pods:
            self.engine.at(self.start + pod.at, lambda pod=pod: self._lone(pod))  # type: ignore[misc]
        self.faults = Faults(self)

    def _submit(self, spec: JobSpec, name: str) -> None:
        priority = self.scenario.cluster.priorities.get(spec.priority, 0)
        job = Job(
            spec.queue,
            name,
            self.uid(),
            self.now,
            spec.pods,
            spec.gpus,
            spec.lasts,
            queue=spec.queue,
            priority_class=spec.priority,
            priority=priority,
            level=spec.place,
            starts_in=spec.starts_in,
            stops_in=spec.stops_in,
            grace=int(spec.grace),
            restarts=spec.restarts,
            ttl=spec.kept,
            lasts=spec.lasts,
            progress=spec.progress,
            train_job=spec.train_job,
            rests_since=self.now,
        )
        if spec.gang:
            timeout = None if spec.permit_timeout is None else int(spec.permit_timeout)
            job.group = PodGroup(job.namespace, job.name, self.uid(), self.now, spec.least or job.size, timeout)
            self.touch(job.group)
        self.all_jobs[name] = job
        self.kueue.submit(job)
        self.touch(job)
        self.tell(f"{job.namespace}/{job.name} is submitted: {job.size} pods x {job.gpus} GPUs")

    def _lone(self, spec: PodSpec) -> None:
        pod = Pod(spec.namespace, spec.name, self.uid(), self.now, spec.gpus, DEFAULT_SCHEDULER)
        pod.managers[("kubectl-create", "")] = (self.now, {"f:spec": {}})
        if spec.node:
            pod.selector = {HOSTNAME: spec.node}
        self.add_pod(pod)
        self.engine.after(spec.lasts, lambda: self.jobs.delete_pod(pod))
        self.tell(f"pod {pod.namespace}/{pod.name} takes {pod.gpus} GPUs")

    # --- what there is -----------------------------------------------------------------------------------------------

    def cluster_queue_of(self, workload: Workload) -> ClusterQueue:
        """Return the ClusterQueue to which a Workload's queue leads."""
        return self.cluster_queues[self.local_queues[workload.job.queue].cluster_queue]

    def job(self, name: str) -> Job | None:
        """Return a job that is there."""
        found = self.all_jobs.get(name)
        return None if found is None or found.gone else found

    def add_pod(self, pod: Pod) -> None:
        """Create a pod."""
        self.pods[pod.key] = pod
        self.touch(pod)
        self.scheduler.enqueue(pod)

    def remove_pod(self, pod: Pod) -> None:
        """Let a pod be gone."""
        if pod.gone:
            return
        pod.gone = True
        self.pods.pop(pod.key, None)
        self._remove("pods", pod, pod.name, pod.namespace)
        if pod.job:
            self.jobs.look(pod.job)

    def remove_job(self, job: Job) -> None:
        """Let a job, and its PodGroup, be gone."""
        self._remove("jobs", job, job.name, job.namespace)
        if job.group:
            self._remove(_GROUPS, job.group, job.group.name, job.group.namespace)

    def remove_workload(self, workload: Workload) -> None:
        """Let a Workload be gone."""
        self._remove(_WORKLOADS, workload, workload.name, workload.job.namespace)

    def remove_event(self, seen: SeenEvent) -> None:
        """Let an Event be gone."""
        name: str = objects.event(seen)["metadata"]["name"]
        self._remove("events", seen, name, seen.pod.namespace)

    def remove_node(self, node: Node) -> None:
        """Take a node away."""
        self.nodes.pop(node.name, None)
        self._remove("nodes", node, node.name, "")

    def touch(self, one: Shown) -> None:
        """Note that something is to be shown anew."""
        self._dirty[one] = None

    def _remove(self, kind: str, one: Shown, name: str, namespace: str) -> None:
        self._dirty.pop(one, None)
        self._gone.append((kind, name, namespace))

    # --- how it is shown ---------------------------------------------------------------------------------------------

    def show(self, server: Server) -> None:
        """Write what has changed to a server."""
        for kind, name, namespace in self._gone:
            server.delete(kind, name, namespace)
        self._gone.clear()
        if not self._configuration_shown:
            self._configuration_shown = True
            self._show_configuration(server)
        for one in self._dirty:
            kind, made = self._written(one)
            server.apply(kind, made)
        self._dirty.clear()
        self._show_queues(server)
        for job in self.jobs_there():
            if job.train_job:
                server.apply("trainjobs", objects.train_job(job, self.now))
        self.faults.show(server)

    def _written(self, one: Shown) -> tuple[str, Json]:
        if isinstance(one, Job):
            flavor = self.flavors.get(one.workload.flavor) if one.workload else None
            return "jobs", objects.job(one, dict(flavor.labels) if flavor else {})
        if isinstance(one, PodGroup):
            job = self.all_jobs[one.name]
            return _GROUPS, objects.pod_group(one, job.members)
        return next((name, write(one)) for kind, name, write in _WRITERS if isinstance(one, kind))

    def _show_configuration(self, server: Server) -> None:
        for flavor in self.flavors.values():
            server.apply("resourceflavors", kueue_objects.flavor(flavor))
        topology = self.scenario.cluster.topology
        if topology:
            server.apply("topologies", kueue_objects.topology(topology, self._topology_uid, self.start - _AGE, _LEVELS))

    def _show_queues(self, server: Server) -> None:
        for queue in self.local_queues.values():
            mine = [one for one in self.kueue.workloads.values() if one.job.queue == queue.name]
            above = self.cluster_queues[queue.cluster_queue]
            server.apply("localqueues", kueue_objects.local_queue(queue, above.quota, mine))
            server.apply("clusterqueues", kueue_objects.cluster_queue(above, mine))

    def jobs_there(self) -> Iterable[Job]:
        """Return the jobs that are not gone."""
        return (job for job in self.all_jobs.values() if not job.gone)


_WRITERS: tuple[tuple[type, str, Callable[..., Json]], ...] = (
    (Node, "nodes", objects.node),
    (Pod, "pods", objects.pod),
    (Workload, _WORKLOADS, kueue_objects.workload),
    (SeenEvent, "events", objects.event),
)
