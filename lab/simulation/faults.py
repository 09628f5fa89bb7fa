# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What goes wrong in a scenario, and how it is mended. A row of `Faults.KINDS` a kind."""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from lab.http_faults import Row
from lab.simulation.scenario import Fault, Refusal, Relabel, Requota, Slowness, Unlabel
from lab.simulation.state import Job, Node, Pod, stamp

if TYPE_CHECKING:
    from lab.simulation.world import Server, World

Undo = Callable[[], None]


class Faults:
    """Plans the faults of a scenario."""

    def __init__(self, world: "World") -> None:
        """Plan them."""
        self._world = world
        #: Answers of the server that are wrong at present: (beginning of the path, what it answers).
        self._refused: list[tuple[str, int | str]] = []
        #: Members whose GPUs do nothing, since when; and how fast jobs are of what they usually are.
        self.idle: dict[tuple[str, int], float] = {}
        self.slow: dict[str, float] = {}
        for fault in world.scenario.faults:
            world.engine.at(world.start + fault.at, lambda fault=fault: self._begin(fault))  # type: ignore[misc]

    def _begin(self, fault: Fault) -> None:
        world = self._world
        what = getattr(fault, fault.kind)
        world.tell(f"fault: {_said(fault)}")
        undo = self.KINDS[fault.kind](self, what)
        if fault.until is not None:
            world.engine.at(world.start + fault.until, lambda: self._mend(fault, undo))

    def _mend(self, fault: Fault, undo: Undo | None) -> None:
        self._world.tell(f"mended: {_said(fault)}")
        if undo:
            undo()

    def show(self, server: "Server") -> None:
        """Have a server answer wrongly where it should."""
        rows: list[Row] = [(path, what) for path, what in self._refused]
        if server.faults != rows:
            server.faults = rows

    # --- nodes -------------------------------------------------------------------------------------------------------

    def _nodes(self, names: tuple[str, ...]) -> list[Node]:
        return [node for node in self._world.nodes.values() if any(node.name.startswith(name) for name in names)]

    def _node_lost(self, name: str) -> Undo:
        node = self._world.nodes[name]
        self._world.kubelets.silence(node)
        return lambda: self._world.kubelets.revive(node)

    def _nodes_away(self, names: tuple[str, ...]) -> Undo:
        """Take nodes out of the cluster that nobody uses; mended, they join it, as new ones do."""
        world = self._world
        nodes = [node for node in self._nodes(names) if not node.pods]
        for node in nodes:
            world.remove_node(node)

        def join() -> None:
            for node in nodes:
                world.nodes[node.name] = node
                node.created, node.uid = world.now, world.uid()
                for condition in node.conditions.all.values():
                    condition["lastTransitionTime"] = stamp(world.now)
                world.kubelets.post(node)
                world.scheduler.node_came(node)
            world.kueue.kick()

        return join

    def _cordon(self, names: tuple[str, ...]) -> Undo:
        world = self._world
        nodes = self._nodes(names)
        for node in nodes:
            node.cordoned = world.now
            key = "node.kubernetes.io/unschedulable"
            node.taints.append({"key": key, "effect": "NoSchedule", "timeAdded": stamp(world.now)})
            world.touch(node)

        def uncordon() -> None:
            for node in nodes:
                node.cordoned = None
                node.taints = [taint for taint in node.taints if taint["key"] != "node.kubernetes.io/unschedulable"]
                world.touch(node)
                world.scheduler.node_came(node)
            world.kueue.kick()

        return uncordon

    def _unlabel(self, what: Unlabel) -> Undo:
        """Take the label of a level from nodes."""
        before = {node: node.labels[what.level] for node in self._nodes(what.nodes) if what.level in node.labels}
        self._label(what.level, dict.fromkeys(before))
        return lambda: self._label(what.level, before)

    def _relabel(self, what: Relabel) -> Undo:
        """Put nodes into another domain of a level; the pods on them stay."""
        before = {node: node.labels.get(what.level) for node in self._nodes(what.nodes)}
        self._label(what.level, dict.fromkeys(before, what.to))
        return lambda: self._label(what.level, before)

    def _label(self, label: str, values: Mapping[Node, str | None]) -> None:
        """Give nodes the values of a label; None takes it away."""
        world = self._world
        for node, value in values.items():
            node.labels.pop(label, None)
            if value is not None:
                node.labels[label] = value
            world.touch(node)
        world.kueue.kick()

    # --- jobs and pods -----------------------------------------------------------------------------------------------

    def _member(self, name: str) -> tuple[str, int]:
        job, _, index = name.partition("/")
        return job, int(index or 0)

    def _pod(self, name: str) -> Pod | None:
        name, index = self._member(name)
        job = self._world.job(name)
        return job.pods.get(index) if job else None

    def _job(self, name: str) -> Job | None:
        return self._world.job(name.partition("/")[0])

    def _crash(self, name: str) -> Undo:
        kubelets, member = self._world.kubelets, self._member(name)
        kubelets.crashing.add(member)
        pod = self._pod(name)
        if pod:
            kubelets.crash(pod)
        return lambda: kubelets.crashing.discard(member)

    def _image_stuck(self, name: str) -> Undo:
        kubelets, member = self._world.kubelets, self._member(name)
        kubelets.stuck.add(member)
        return lambda: kubelets.stuck.discard(member)

    def _stuck_terminating(self, name: str) -> Undo:
        """Give the pods of a job a finalizer that nobody takes away."""
        world = self._world
        job = self._job(name)
        pods = list(job.pods.values()) if job else []
        for pod in pods:
            pod.finalizer = "storage.example.com/flush"
            world.touch(pod)

        def flush() -> None:
            for pod in pods:
                pod.finalizer = ""
                if pod.deletion is not None:
                    world.kubelets.stop(pod)

        return flush

    def _delete_job(self, name: str) -> None:
        job = self._job(name)
        if job:
            self._world.jobs.delete(job)

    def _delete_pod(self, name: str) -> None:
        pod = self._pod(name) if "/" in name else None
        lone = next((one for one in self._world.pods.values() if one.name == name), None)
        if pod or lone:
            self._world.jobs.delete_pod(pod or lone)  # type: ignore[arg-type]

    def _touch_group(self, name: str) -> None:
        world = self._world
        job = self._job(name)
        if job and job.group:
            job.group.annotations["example.com/touched"] = stamp(world.now)
            world.touch(job.group)
            world.scheduler.wake(job.group)

    def _lose_retry(self, name: str) -> None:
        job = self._job(name)
        if job and job.group:
            job.group.keeps_retrying = False

    def _pods_refused(self, queue: str) -> Undo:
        """Refuse to make the pods of jobs in the namespace of a queue, as a webhook may; those that are there stay."""
        refused = self._world.jobs.refused
        refused.add(queue)
        return lambda: refused.discard(queue)

    # --- the rest ----------------------------------------------------------------------------------------------------

    def _quota(self, what: Requota) -> Undo:
        world = self._world
        queue = world.cluster_queues[f"{what.queue}-cq"]
        before = dict(queue.quota)

        def put(quota: Mapping[str, int]) -> None:
            queue.quota = dict(quota)
            queue.generation += 1
            world.kueue.kick()

        put({**before, **what.gpus})
        return lambda: put(before)

    def _refuse(self, what: Refusal) -> Undo:
        rows = [(path, what.answer) for path in what.paths]
        self._refused += rows

        def answer() -> None:
            self._refused = [row for row in self._refused if row not in rows]

        return answer

    def _idle(self, names: tuple[str, ...]) -> Undo:
        """Have members hang: their containers run, and their GPUs do nothing."""
        members = [member for name in names for member in self._members(name)]
        self.idle |= dict.fromkeys(members, self._world.now)

        def work() -> None:
            for member in members:
                self.idle.pop(member, None)

        return work

    def stood_still(self, pod: Pod) -> float:
        """Return for how many seconds the GPUs of a pod have done nothing."""
        job = pod.job
        if job is None:
            return 0.0
        since = [self.idle[job.name, pod.index]] if (job.name, pod.index) in self.idle else []
        since += [] if job.works else [job.rests_since]
        return self._world.now - min(since) if since else 0.0

    def _members(self, name: str) -> list[tuple[str, int]]:
        if "/" in name:
            return [self._member(name)]
        job = self._job(name)
        return [(name, index) for index in range(job.size)] if job else []

    def _slow(self, what: Slowness) -> Undo:
        self.slow[what.job] = what.to

        def quicken() -> None:
            self.slow.pop(what.job, None)

        return quicken

    KINDS: ClassVar[Mapping[str, Callable[["Faults", Any], Undo | None]]] = {
        "node_lost": _node_lost,
        "nodes_away": _nodes_away,
        "cordon": _cordon,
        "unlabel": _unlabel,
        "relabel": _relabel,
        "crash": _crash,
        "image_stuck": _image_stuck,
        "stuck_terminating": _stuck_terminating,
        "delete_job": _delete_job,
        "delete_pod": _delete_pod,
        "touch_group": _touch_group,
        "lose_retry": _lose_retry,
        "pods_refused": _pods_refused,
        "quota": _quota,
        "refuse": _refuse,
        "idle": _idle,
        "slow": _slow,
    }


def _said(fault: Fault) -> str:
    """Return a fault in a few words."""
    what = getattr(fault, fault.kind)
    if is_dataclass(what):
        parts = ((one.name, getattr(what, one.name)) for one in fields(what))
        said = " ".join(f"{name}={', '.join(value) if isinstance(value, tuple) else value}" for name, value in parts)
    else:
        said = ", ".join(what) if isinstance(what, tuple) else what
    return f"{fault.kind} {said}"
