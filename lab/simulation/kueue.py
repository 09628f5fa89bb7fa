# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Kueue: quota, admission, preemption by priority, waitForPodsReady with its evictions and its backoff.

Workloads of a ClusterQueue are tried by priority, then by the time at which they were queued; one that does not fit is
passed over (BestEffortFIFO). What it says of each, in which order, was recorded (captures 4, 5, 9, 12, 14, 19, 20):

* an eviction is announced first; when the Job is suspended the quota goes back, while the pods may still be stopping;
* a preempted Workload is queued again at once, one that was not ready in time after a growing backoff;
* with waitForPodsReady a Workload that is admitted has so long until all its pods are Ready, and so long to get back
  when one of them no longer is.
"""

from collections import Counter, defaultdict
from hashlib import sha1
from typing import TYPE_CHECKING, Final

from lab.simulation import topology
from lab.simulation.scenario import KueueOptions
from lab.simulation.state import GPU, ClusterQueue, Job, Workload

if TYPE_CHECKING:
    from lab.simulation.world import World

_SOON, _SUSPENDS, _RELEASES = 0.1, 0.4, 1.0
_WAIT_START: Final = ("WaitForStart", "Not all pods are ready or succeeded")
_WAIT_AGAIN: Final = ("WaitForRecovery", "At least one pod has failed, waiting for recovery")
_STARTED: Final = ("Started", "All pods reached readiness and the workload is running")
_RECOVERED: Final = ("Recovered", "All pods reached readiness and the workload is running")
_GIVEN_UP: Final = "The workload is deactivated due to exceeding the maximum number of re-queuing retries"


class Kueue:
    """The controllers of Kueue, and what they count."""

    def __init__(self, world: "World", options: KueueOptions) -> None:
        """Serve a world."""
        self._world = world
        self._options = options
        self._cycle_due = False
        self.workloads: dict[str, Workload] = {}
        #: Counters by name, and by the values of their labels.
        self.counts: dict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
        #: Samples of histograms by name, and by the values of their labels.
        self.samples: dict[str, dict[tuple[str, ...], list[float]]] = defaultdict(lambda: defaultdict(list))

    # --- from outside ------------------------------------------------------------------------------------------------

    def submit(self, job: Job) -> None:
        """Take a job that names a queue."""
        world = self._world
        digest = sha1(f"job/batch/{job.name}/{job.uid}".encode(), usedforsecurity=False).hexdigest()[:5]
        one = Workload(f"job-{job.name}-{digest}", job, world.uid(), world.now, queued=world.now)
        job.workload = one
        job.suspended = True
        self.workloads[one.name] = one
        one.conditions.set("PodsReady", "False", world.now, *_WAIT_START)
        world.touch(one)
        self.kick()

    def kick(self) -> None:
        """Try soon what waits: something has changed."""
        if not self._cycle_due:
            self._cycle_due = True
            self._world.engine.after(_SOON, self._cycle)

    def look(self, one: Workload) -> None:
        """See whether all pods of a Workload are ready; called whenever one of its pods changed."""
        world, job = self._world, one.job
        if one.finished or one.evicting or not one.conditions.is_true("Admitted"):
            return
        ready = sum(pod.conditions.is_true("Ready") and pod.live and pod.deletion is None for pod in job.pods.values())
        if ready + job.done >= job.size:
            if not one.conditions.is_true("PodsReady"):
                self._pods_ready(one)
        elif one.conditions.is_true("PodsReady"):
            one.conditions.set("PodsReady", "False", world.now, *_WAIT_AGAIN)
            self._await(one, self._options.recovery_timeout, "WaitForRecovery")
            world.touch(one)
        if job.done != one.reclaimed:
            one.reclaimed = job.done
            world.touch(one)

    def finish(self, one: Workload) -> None:
        """Take note that the job of a Workload is over."""
        world = self._world
        if one.timer:
            one.timer.cancel()
        message = "Reached expected number of succeeded pods"
        one.conditions.set("Finished", "True", world.now, "Succeeded", message)
        self.counts["finished_workloads_total"][one.cluster_queue, one.job.priority_class] += 1
        world.touch(one)
        self.kick()

    def forget(self, job: Job) -> None:
        """Take note that a job is gone."""
        one = job.workload
        if one and self.workloads.pop(one.name, None):
            if one.timer:
                one.timer.cancel()
            self._world.remove_workload(one)
            self.kick()

    def in_queue(self, name: str) -> list[Workload]:
        """Return the Workloads of a ClusterQueue."""
        return [one for one in self.workloads.values() if self._world.cluster_queue_of(one).name == name]

    # --- admission ---------------------------------------------------------------------------------------------------

    def _cycle(self) -> None:
        self._cycle_due = False
        waiting = [one for one in self.workloads.values() if self._is_queued(one)]
        for one in sorted(waiting, key=lambda one: (-one.job.priority, one.queued, one.name)):
            self._try(one)

    def _is_queued(self, one: Workload) -> bool:
        waits = one.active and not one.finished and not one.holds_quota and not one.evicting
        return waits and one.requeue_at is None

    def _try(self, one: Workload) -> None:
        """Admit a Workload, or say why not."""
        world = self._world
        queue = world.cluster_queue_of(one)
        said: list[tuple[str, str]] = []
        for flavor, quota in queue.quota.items():
            lacks = one.gpus - (quota - self._held(queue, flavor))
            if one.gpus > quota:
                text = (
                    f"insufficient quota for {GPU} in flavor {flavor}, previously considered podsets requests (0) + "
                    f"current podset request ({one.gpus}) > maximum capacity ({quota})"
                )
                said.append(("ExceedsMaxQuota", text))
                continue
            if lacks > 0:
                text = f"insufficient unused quota for {GPU} in flavor {flavor}, {lacks} more needed"
                victims = self._victims(queue, one, flavor, lacks)
                if victims:
                    text += f". Pending the preemption of {len(victims)} workload(s)"
                    self._refuse(one, "WaitingForPreemptedWorkloads", _unassigned(text))
                    for victim in victims:
                        self._preempt(victim, one, queue)
                    return
                said.append(("WaitingForQuota", text))
                continue
            found = world.flavors[flavor]
            place = topology.Place()
            if found.topology:
                free = topology.room(found, world.nodes.values(), self.workloads.values())
                place = topology.place(one.job, found, free)
            if place.refused:
                said.append(("WaitingForQuota", place.refused))
                continue
            self._admit(one, queue, flavor, list(place.domains))
            return
        # A flavor that could do is the reason, before one that never can.
        reason, text = next((pair for pair in said if pair[0] != "ExceedsMaxQuota"), said[0])
        self._refuse(one, reason, _unassigned("; ".join(text for _, text in said) if len(said) > 1 else text))

    def _held(self, queue: ClusterQueue, flavor: str) -> int:
        return sum(one.gpus for one in self.in_queue(queue.name) if one.holds_quota and one.flavor == flavor)

    def _refuse(self, one: Workload, reason: str, message: str) -> None:
        world = self._world
        changed = one.conditions.set("QuotaReserved", "False", world.now, reason, message)
        changed |= one.conditions.set(
            "Admitted", "False", world.now, "NoReservation", "The workload has no reservation"
        )
        if changed:
            world.touch(one)

    def _admit(self, one: Workload, queue: ClusterQueue, flavor: str, domains: list[tuple[str, int]]) -> None:
        world = self._world
        now = world.now
        one.cluster_queue, one.flavor, one.domains, one.admitted = queue.name, flavor, domains, now
        one.topology = world.flavors[flavor].topology
        one.conditions.set(
            "QuotaReserved", "True", now, "QuotaReserved", f"Quota reserved in ClusterQueue {queue.name}"
        )
        one.conditions.set("Admitted", "True", now, "Admitted", "The workload is admitted")
        for kind in ("Evicted", "Preempted"):
            before = one.conditions.all.get(kind)
            if before and before["status"] == "True":
                one.conditions.set(kind, "False", now, "QuotaReserved", f"Previously: {before['message']}")
        one.was_ready = False
        one.conditions.set("PodsReady", "False", now, *_WAIT_START)
        self._await(one, self._options.pods_ready_timeout, "WaitForStart")
        priority = one.job.priority_class
        for name in ("quota_reserved", "admitted"):
            self.counts[f"{name}_workloads_total"][queue.name, priority] += 1
        for name in ("quota_reserved_wait_time_seconds", "admission_wait_time_seconds"):
            self.samples[name][queue.name, priority].append(now - one.queued)
        self.counts["admission_attempts_total"][("success",)] += 1
        world.tell(f"{one.job.namespace}/{one.job.name} is admitted")
        world.touch(one)
        world.jobs.resume(one.job)

    # --- evictions ---------------------------------------------------------------------------------------------------

    def _victims(self, queue: ClusterQueue, one: Workload, flavor: str, lacks: int) -> list[Workload]:
        """Return the Workloads whose quota would do: of the lowest priority, and those admitted last, first."""
        if not queue.preempts:
            return []
        lower = [
            other
            for other in self.in_queue(queue.name)
            if other.holds_quota and other.flavor == flavor and other.job.priority < one.job.priority
        ]
        going = sum(other.gpus for other in lower if other.evicting)
        chosen: list[Workload] = []
        for other in sorted(lower, key=lambda other: (other.job.priority, -(other.admitted or 0.0))):
            if going >= lacks:
                break
            if not other.evicting:
                chosen.append(other)
                going += other.gpus
        if going < lacks:
            return []
        # Those that are not needed after all stay.
        for other in list(chosen):
            if going - other.gpus >= lacks:
                chosen.remove(other)
                going -= other.gpus
        return chosen or [other for other in lower if other.evicting]

    def _preempt(self, victim: Workload, by: Workload, queue: ClusterQueue) -> None:
        if victim.evicting:
            return
        message = (
            f"Preempted to accommodate a workload (UID: {by.uid}, JobUID: {by.job.uid}) due to prioritization in the "
            f"ClusterQueue; preemptor path: /{queue.name}; preemptee path: /{queue.name}"
        )
        victim.conditions.set("Preempted", "True", self._world.now, "InClusterQueue", message)
        self.counts["preempted_workloads_total"][queue.name, "InClusterQueue"] += 1
        self._evict(victim, "Preempted", "", message)

    def _pods_ready(self, one: Workload) -> None:
        world = self._world
        if one.timer:
            one.timer.cancel()
        one.conditions.set("PodsReady", "True", world.now, *(_RECOVERED if one.was_ready else _STARTED))
        if not one.was_ready and one.admitted is not None:
            labels = one.cluster_queue, one.job.priority_class
            self.samples["admitted_until_ready_wait_time_seconds"][labels].append(world.now - one.admitted)
            self.samples["ready_wait_time_seconds"][labels].append(world.now - one.queued)
        one.was_ready = True
        world.touch(one)

    def _await(self, one: Workload, timeout: float, cause: str) -> None:
        if one.timer:
            one.timer.cancel()
        one.timer = self._world.engine.after(timeout, lambda: self._not_ready(one, cause))

    def _not_ready(self, one: Workload, cause: str) -> None:
        world, options = self._world, self._options
        if one.finished or one.evicting or one.conditions.is_true("PodsReady"):
            return
        one.requeues += 1
        if options.backoff_limit is not None and one.requeues > options.backoff_limit:
            one.active = False
            one.requeues = 0
            self._evict(one, "DeactivatedDueToRequeuingLimitExceeded", "RequeuingLimitExceeded", _GIVEN_UP)
            return
        wait = min(options.backoff_most, options.backoff * 2 ** (one.requeues - 1))
        one.requeue_at = world.now + wait
        self._evict(one, "PodsReadyTimeout", cause, f"Exceeded the PodsReady timeout {one.job.namespace}/{one.name}")

    def _evict(self, one: Workload, reason: str, cause: str, message: str) -> None:
        world = self._world
        one.evicting = True
        if one.timer:
            one.timer.cancel()
        one.conditions.set("Evicted", "True", world.now, reason, message)
        told = "Deactivated" if reason.startswith("Deactivated") else reason
        once = (told, cause) not in one.evictions
        one.evictions[told, cause] = one.evictions.get((told, cause), 0) + 1
        labels = one.cluster_queue, told, cause, one.job.priority_class
        self.counts["evicted_workloads_total"][labels] += 1
        if once:
            self.counts["evicted_workloads_once_total"][labels] += 1
        if one.was_ready and one.conditions.is_true("PodsReady"):
            self.samples["pods_ready_to_evicted_time_seconds"][one.cluster_queue, told, cause].append(
                world.now - (one.admitted or world.now)
            )
        world.tell(f"{one.job.namespace}/{one.job.name} is evicted: {reason}")
        world.touch(one)
        world.engine.after(_SUSPENDS, lambda: world.jobs.suspend(one.job) if not one.job.gone else None)
        world.engine.after(_RELEASES, lambda: self._release(one, reason, message))

    def _release(self, one: Workload, reason: str, message: str) -> None:
        """Give back the quota of a Workload whose job is suspended, and queue it again."""
        world = self._world
        if one.name not in self.workloads:
            return
        now = world.now
        self.samples["workload_eviction_latency_seconds"][one.cluster_queue, reason].append(_RELEASES)
        one.evicting = False
        one.past += now - (one.admitted or now)
        one.cluster_queue, one.domains, one.admitted = "", [], None
        gone = ("Deactivated", "The workload is deactivated") if not one.active else ("PendingEvaluation", message)
        self._refuse(one, *gone)
        again = reason == "Preempted"
        one.conditions.set("Requeued", str(again), now, reason, message)
        one.conditions.set("PodsReady", "False", now, *_WAIT_START)
        one.queued = now
        if one.requeue_at is not None:
            world.engine.at(one.requeue_at, lambda: self._backoff_over(one))
        world.touch(one)
        self.kick()

    def _backoff_over(self, one: Workload) -> None:
        world = self._world
        if one.name not in self.workloads or one.requeue_at is None:
            return
        one.requeue_at = None
        one.conditions.set("Requeued", "True", world.now, "BackoffFinished", "The workload backoff was finished")
        world.touch(one)
        self.kick()


def _unassigned(text: str) -> str:
    return f"couldn't assign flavors to pod set main: {text}"
