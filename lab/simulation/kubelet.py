# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The kubelets, and what the control plane does about one that is silent.

A pod that was bound is prepared for a second, then its image is pulled and its container starts. One that is to be
deleted is asked to stop, and is gone when its container has ended; a finalizer, or a kubelet that is silent, keeps it.

A node whose kubelet stays silent is NotReady after 40 to 50 seconds, its pods with it, and gets taints. Pods tolerate
them for five minutes; then they are deleted, and stay, since nobody tells that their containers have ended.
"""

from typing import TYPE_CHECKING, Final

from lab.simulation.state import Container, Json, Node, Pod, stamp

if TYPE_CHECKING:
    from lab.simulation.world import World

_KUBELET: Final = ("kubelet", "status")
_CONTROLLER: Final = ("kube-controller-manager", "status")
_WROTE: Final[Json] = {"f:status": {"f:conditions": {}, "f:containerStatuses": {}, "f:phase": {}, "f:startTime": {}}}
_UNREADY: Final = {"reason": "ContainersNotReady", "message": "containers with unready status: [train]"}
_IMAGE_ID: Final = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
_CONTAINER: Final = "containerd://162c6d4e90d51fb59f0162adfd6a08c957c7cf01e7086b22f4e52b4305f593eb"

_PREPARES: Final = 1.0
_TOLERATED: Final = 300.0
#: A back-off after a pull that failed.
_PULL_FAILS: Final = 15.0
_BACKOFF_FIRST, _BACKOFF_MOST = 10.0, 300.0
#: A container that crashes at its start takes so long to.
_CRASHES_AFTER: Final = 3.0

#: (condition, reason and text while it is False, what both become when the kubelet is silent).
_PRESSURES: Final = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


class Kubelets:
    """All kubelets of a cluster."""

    def __init__(self, world: "World") -> None:
        """Serve a world."""
        self._world = world
        #: Members (job, index) whose image cannot be pulled, and those whose container crashes.
        self.stuck: set[tuple[str, int]] = set()
        self.crashing: set[tuple[str, int]] = set()

    # --- nodes -------------------------------------------------------------------------------------------------------

    def post(self, node: Node) -> None:
        """Let a kubelet tell that its node is well."""
        now = self._world.now
        node.heartbeat = now
        for kind, reason, message in _PRESSURES:
            node.conditions.set(kind, "False", now, reason, message)
        node.conditions.set("Ready", "True", now, "KubeletReady", "kubelet is posting ready status")
        self._world.touch(node)

    def silence(self, node: Node) -> None:
        """Have a kubelet stop, with its machine."""
        world = self._world
        node.silent = world.now
        world.engine.after(world.engine.random.uniform(40, 50), lambda: self._not_ready(node))
        for pod in list(node.pods):
            if pod.job:
                world.jobs.look(pod.job)

    def revive(self, node: Node) -> None:
        """Have a kubelet come back; the pods that are to be deleted go, the others are well."""
        world = self._world
        if node.silent is None:
            return
        node.silent = node.not_ready = None
        node.taints = [taint for taint in node.taints if taint["key"] != "node.kubernetes.io/unreachable"]
        self.post(node)
        for pod in sorted(node.pods, key=lambda pod: pod.key):
            if pod.deletion is not None:
                world.engine.after(1.0, lambda pod=pod: self._stopped(pod))  # type: ignore[misc]
            elif pod.phase == "Running":
                self._serve(pod)
        world.scheduler.node_came(node)
        world.kueue.kick()

    def _not_ready(self, node: Node) -> None:
        world = self._world
        if node.silent is None:
            return
        for kind, _, _ in _PRESSURES:
            node.conditions.set(kind, "Unknown", world.now, "NodeStatusUnknown", "Kubelet stopped posting node status.")
        node.conditions.set("Ready", "Unknown", world.now, "NodeStatusUnknown", "Kubelet stopped posting node status.")
        node.not_ready = world.now
        node.taints += [
            {"key": "node.kubernetes.io/unreachable", "effect": effect, "timeAdded": stamp(world.now)}
            for effect in ("NoSchedule", "NoExecute")
        ]
        world.touch(node)
        world.tell(f"node {node.name} is NotReady")
        since = node.silent
        for pod in sorted(node.pods, key=lambda pod: pod.key):
            pod.conditions.set("Ready", "False", world.now, observedGeneration=pod.generation)
            pod.managers[_CONTROLLER] = (world.now, {"f:status": {"f:conditions": {}}})
            world.touch(pod)
            world.engine.after(_TOLERATED, lambda pod=pod: self._taint_deletes(pod, since))  # type: ignore[misc]
            if pod.job:
                world.jobs.look(pod.job)
        world.kueue.kick()

    def _taint_deletes(self, pod: Pod, since: float) -> None:
        world = self._world
        if pod.gone or pod.node is None or pod.node.silent != since or pod.deletion is not None:
            return
        pod.conditions.set(
            "DisruptionTarget",
            "True",
            world.now,
            "DeletionByTaintManager",
            "Taint manager: deleting due to NoExecute taint",
            observedGeneration=pod.generation,
        )
        world.jobs.delete_pod(pod)

    # --- pods --------------------------------------------------------------------------------------------------------

    def take(self, pod: Pod) -> None:
        """Take a pod that was bound."""
        pod.timer = self._world.engine.after(_PREPARES, lambda: self._prepare(pod))

    def _prepare(self, pod: Pod) -> None:
        world = self._world
        if not self._serves(pod):
            return
        pod.started = world.now
        pod.container = Container(state={"waiting": {"reason": "ContainerCreating"}})
        for kind in ("PodReadyToStartContainers", "Initialized"):
            pod.conditions.set(kind, "True", world.now, observedGeneration=pod.generation)
        for kind in ("ContainersReady", "Ready"):
            pod.conditions.set(kind, "False", world.now, **_UNREADY, observedGeneration=pod.generation)
        self._tell(pod)
        if self._is(pod, self.stuck):
            pod.timer = world.engine.after(_PULL_FAILS, lambda: self._pull_fails(pod))
        else:
            shortest, longest = pod.job.starts_in if pod.job else (2.0, 6.0)
            pod.timer = world.engine.after(world.engine.random.uniform(shortest, longest), lambda: self._run(pod))

    def _pull_fails(self, pod: Pod) -> None:
        if not self._serves(pod) or pod.container is None:
            return
        if not self._is(pod, self.stuck):
            self._run(pod)
            return
        text = 'Back-off pulling image "registry.example/train:2.4": ErrImagePull: dial tcp: i/o timeout'
        pod.container.state = {"waiting": {"reason": "ImagePullBackOff", "message": text}}
        self._tell(pod)
        pod.timer = self._world.engine.after(_PULL_FAILS, lambda: self._pull_fails(pod))

    def _run(self, pod: Pod) -> None:
        world = self._world
        if not self._serves(pod) or pod.container is None:
            return
        pod.phase = "Running"
        container = pod.container
        container.state = {"running": {"startedAt": stamp(world.now)}}
        container.image_id = _IMAGE_ID
        self._serve(pod)
        if self._is(pod, self.crashing):
            began = world.now
            pod.timer = world.engine.after(_CRASHES_AFTER, lambda: self._crash(pod, began))

    def crash(self, pod: Pod) -> None:
        """Have the container of a pod crash, as often as it is started, until it is taken out of `crashing`."""
        if self._serves(pod) and pod.phase == "Running" and pod.started is not None:
            self._crash(pod, pod.started)

    def _crash(self, pod: Pod, began: float) -> None:
        world = self._world
        if not self._serves(pod) or pod.container is None:
            return
        container = pod.container
        wait = min(_BACKOFF_MOST, _BACKOFF_FIRST * 2**container.restarts)
        said = f"{int(wait)}s" if wait < 60 else f"{int(wait) // 60}m{int(wait) % 60}s"  # noqa: PLR2004 - a minute
        text = f"back-off {said} restarting failed container=train pod={pod.name}_{pod.namespace}({pod.uid})"
        container.state = {"waiting": {"reason": "CrashLoopBackOff", "message": text}}
        container.last = {
            "terminated": {
                "exitCode": 1,
                "reason": "Error",
                "startedAt": stamp(began),
                "finishedAt": stamp(world.now),
                "containerID": _CONTAINER,
            }
        }
        container.ready = container.started = False
        container.restarts += 1
        for kind in ("ContainersReady", "Ready"):
            pod.conditions.set(kind, "False", world.now, **_UNREADY, observedGeneration=pod.generation)
        self._tell(pod)
        pod.timer = world.engine.after(wait, lambda: self._run(pod))

    def _serve(self, pod: Pod) -> None:
        if pod.container is None:
            return
        pod.container.ready = pod.container.started = True
        for kind in ("ContainersReady", "Ready"):
            pod.conditions.set(kind, "True", self._world.now, observedGeneration=pod.generation)
        self._tell(pod)

    def finish(self, pod: Pod) -> None:
        """Have the container of a pod end well."""
        world = self._world
        if not self._serves(pod) or pod.container is None:
            return
        container = pod.container
        started = container.state.get("running", {}).get("startedAt", stamp(world.now))
        container.state = {
            "terminated": {
                "exitCode": 0,
                "reason": "Completed",
                "startedAt": started,
                "finishedAt": stamp(world.now),
            }
        }
        container.ready = container.started = False
        pod.phase = "Succeeded"
        pod.conditions.set("PodReadyToStartContainers", "False", world.now, observedGeneration=pod.generation)
        for kind in ("ContainersReady", "Ready"):
            pod.conditions.set(kind, "False", world.now, "PodCompleted", observedGeneration=pod.generation)
        self._leave(pod)
        self._tell(pod)

    def stop(self, pod: Pod) -> None:
        """Ask a pod to stop that is to be deleted."""
        if pod.node is None or pod.phase in {"Succeeded", "Failed"}:
            self._stopped(pod)
        elif pod.node.silent is None:
            if pod.timer:
                pod.timer.cancel()
            self._world.engine.after(min(pod.stops_in, pod.grace), lambda: self._stopped(pod))

    def _stopped(self, pod: Pod) -> None:
        """Let go of a pod whose containers have ended, unless a finalizer holds it."""
        if pod.gone or pod.finalizer or (pod.node is not None and pod.node.silent is not None):
            return
        self._leave(pod)
        self._world.remove_pod(pod)

    def _leave(self, pod: Pod) -> None:
        if pod.node is not None and pod in pod.node.pods:
            pod.node.pods.discard(pod)
            self._world.scheduler.room_came()
            self._world.kueue.kick()

    def _serves(self, pod: Pod) -> bool:
        return pod.live and pod.deletion is None and pod.node is not None and pod.node.silent is None

    def _is(self, pod: Pod, members: set[tuple[str, int]]) -> bool:
        return pod.job is not None and (pod.job.name, pod.index) in members

    def _tell(self, pod: Pod) -> None:
        pod.managers[_KUBELET] = (self._world.now, _WROTE)
        self._world.touch(pod)
        if pod.job:
            self._world.jobs.look(pod.job)
