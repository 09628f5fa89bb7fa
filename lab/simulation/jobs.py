# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The job controller: it makes the pods of Jobs, replaces those that went, and sees when a Job is over.

What the pods of a gang work is done here too: they get on only while all of them are up. A gang that is stopped before
its end begins anew.
"""

from typing import TYPE_CHECKING, Final

from lab.simulation.state import TOPOLOGY_GATE, Job, Pod, PodGroup

if TYPE_CHECKING:
    from lab.simulation.world import World

#: A controller takes its time: from a Job that may run to its first pod, from pod to pod, from a loss to a new pod.
_FIRST, _EACH, _REPLACES = 0.5, 0.001, 1.0
#: What could not be made is tried again, in the end each minute (MaxJobApiBackOff of Kubernetes' job controller).
_TRIES_AGAIN: Final = 60.0
#: The pods of a Job end within so many seconds.
_ENDS_WITHIN: Final = 3.0
_GATED: Final = "Scheduling is blocked due to non-empty scheduling gates"
_DONE: Final = ("CompletionsReached", "Reached expected number of succeeded pods")
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


class Jobs:
    """The controller."""

    def __init__(self, world: "World") -> None:
        """Serve a world."""
        self._world = world
        #: Namespaces in which no pod can be made.
        self.refused: set[str] = set()

    # --- a job's life ------------------------------------------------------------------------------------------------

    def resume(self, job: Job) -> None:
        """Let a job run: its pods are made."""
        world = self._world
        job.suspended = False
        job.generation += 1
        job.resumed = world.now
        if job.queue:
            job.conditions.set("Suspended", "False", world.now, "JobResumed", "Job resumed")
        world.touch(job)
        for index in range(job.size):
            world.engine.after(_FIRST + _EACH * index, lambda index=index: self._make(job, index))  # type: ignore[misc]

    def suspend(self, job: Job) -> None:
        """Stop a job: its pods are deleted."""
        world = self._world
        job.suspended = True
        job.generation += 1
        job.resumed = None
        job.worked_when_stopped = job.works
        self._rest(job)
        job.conditions.set("Suspended", "True", world.now, "JobSuspended", "Job suspended")
        world.touch(job)
        for pod in list(job.pods.values()):
            self.delete_pod(pod)

    def delete(self, job: Job) -> None:
        """Delete a job with all that it owns."""
        world = self._world
        job.worked_when_stopped = job.works
        self._rest(job)
        job.gone = True
        for pod in job.members:
            self.delete_pod(pod)
        world.kueue.forget(job)
        world.remove_job(job)

    def delete_pod(self, pod: Pod) -> None:
        """Ask a pod to go."""
        world = self._world
        if pod.gone or pod.deletion is not None:
            return
        pod.deletion = world.now
        world.scheduler.forget(pod)
        world.touch(pod)
        world.kubelets.stop(pod)
        job = pod.job
        if job:
            self.look(job)
            if not (job.suspended or job.gone or job.finished) and job.pods.get(pod.index) is pod:
                world.engine.after(_REPLACES, lambda: self._replace(job, pod))

    def _replace(self, job: Job, pod: Pod) -> None:
        if job.pods.get(pod.index) is pod and not (job.suspended or job.gone or job.finished):
            self._make(job, pod.index)

    def _make(self, job: Job, index: int) -> None:
        world = self._world
        if job.suspended or job.gone or job.finished:
            return
        before = job.pods.get(index)
        if before is not None and before.live and before.deletion is None:
            return
        if job.namespace in self.refused:
            world.engine.after(_TRIES_AGAIN, lambda: self._make(job, index))
            return
        if before is not None and not before.gone:
            job.old.append(before)
        ending = "".join(world.engine.random.choices(_LETTERS, k=5))
        pod = Pod(
            job.namespace,
            f"{job.name}-{index}-{ending}",
            world.uid(),
            world.now,
            job.gpus,
            job.scheduler,
            job=job,
            index=index,
            grace=job.grace,
            stops_in=job.stops_in,
        )
        pod.managers[("kube-controller-manager", "")] = (world.now, {"f:metadata": {}, "f:spec": {}})
        job.pods[index] = pod
        if job.workload:
            flavor = world.flavors[job.workload.flavor]
            pod.selector = dict(flavor.labels)
            if job.workload.domains:
                pod.gates = [TOPOLOGY_GATE]
                pod.conditions.set("PodScheduled", "False", world.now, "SchedulingGated", _GATED)
                world.engine.after(_REPLACES, lambda: self._ungate(pod))
        world.add_pod(pod)

    def _ungate(self, pod: Pod) -> None:
        """Let Kueue tell a pod its node: the one of the assignment that has fewest of its siblings."""
        world = self._world
        job = pod.job
        if pod.gone or not pod.gates or job is None or job.workload is None:
            return
        there = [one.selector.get("kubernetes.io/hostname") for one in job.pods.values() if one.live and one is not pod]
        host = next((name for name, number in job.workload.domains if there.count(name) < number), "")
        pod.gates.clear()
        pod.generation += 1
        pod.managers[("kueue", "")] = (world.now, {"f:spec": {"f:nodeSelector": {}, "f:schedulingGates": {}}})
        if host:
            pod.selector |= {"kubernetes.io/hostname": host}
        world.touch(pod)
        world.scheduler.enqueue(pod)

    # --- what it works -----------------------------------------------------------------------------------------------

    def look(self, job: Job) -> None:
        """See whether a job works now; called whenever one of its pods changed."""
        world = self._world
        if job.group:
            self._phase(job.group, job)
        if job.finished or job.gone:
            return
        if job.works and job.working_since is None:
            job.ran = True
            job.working_since = world.now
            if job.done == 0:
                job.ends = world.engine.after(job.left, lambda: self._end(job))
            world.tell(f"{job.namespace}/{job.name} runs")
        elif not job.works and job.working_since is not None:
            self._rest(job)
        if job.done >= job.size:
            self._complete(job)
        if job.workload:
            world.kueue.look(job.workload)
        world.touch(job)

    def _rest(self, job: Job) -> None:
        if job.working_since is not None:
            job.left -= self._world.now - job.working_since
            job.working_since = None
            job.rests_since = self._world.now
        if job.ends:
            job.ends.cancel()
            job.ends = None

    def _end(self, job: Job) -> None:
        world = self._world
        job.ends = None
        for pod in list(job.pods.values()):
            ends = world.engine.random.uniform(0.1, _ENDS_WITHIN)
            world.engine.after(ends, lambda pod=pod: world.kubelets.finish(pod))  # type: ignore[misc]

    def _complete(self, job: Job) -> None:
        world = self._world
        job.finished = world.now
        job.working_since = None
        for kind in ("SuccessCriteriaMet", "Complete"):
            job.conditions.set(kind, "True", world.now, *_DONE)
        world.tell(f"{job.namespace}/{job.name} is done")
        if job.workload:
            world.kueue.finish(job.workload)
        world.touch(job)
        world.engine.after(job.ttl, lambda: self.delete(job))

    def _phase(self, group: PodGroup, job: Job) -> None:
        """Let the PodGroup controller count: one step of its phases."""
        if group.phase in {"Failed", "Finished"}:
            return
        pods = job.members
        phases = [pod.phase for pod in pods]
        running, succeeded, failed = (phases.count(phase) for phase in ("Running", "Succeeded", "Failed"))
        before = group.phase
        if len(pods) < group.least:
            group.phase = "Pending"
        elif succeeded >= group.least:
            group.phase = "Finished"
        elif failed and failed + running + succeeded >= group.least:
            group.phase = "Failed"
        else:
            group.phase = "Running" if running + succeeded >= group.least else "Scheduling"
        if before != group.phase or group.phase != "Pending":
            self._world.touch(group)
