# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The schedulers: pod by pod, and the gang scheduler's Permit phase.

The default scheduler binds each pod that finds a node. Coscheduling has those of a PodGroup wait in Permit until as
many as the group needs have found one; meanwhile their GPUs are held in the scheduler's memory alone. What it does when
that does not come about was recorded (captures 1, 2, 7, 13) and read (scheduler-plugins, pkg/coscheduling):

* a member that finds no node leaves the others waiting where at most a tenth of the group is missing, else it has all
  of them rejected at once. In reality a second of retries follows, which ends with all of them rejected; here they are
  rejected in the same instant;
* a wait that times out rejects the others that wait. Their room is free again for the member that found none, so it is
  tried again at once, waits, and wakes the others: a gang that lacks one node goes round like that for ever;
* but where that member had got to waiting itself by then (`PodGroup.keeps_retrying` is False once), nobody is left
  whom new room would wake. The gang rests until its PodGroup is touched or a member is made, or until the scheduler
  tries what it turned away long ago (five minutes by default);
* nominatedNodeName shows a first wait. In later ones it is there or not, as a late patch has it; after a rejection
  without another try it stays.
"""

from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Final

from lab.simulation.state import DEFAULT_SCHEDULER, GANG_SCHEDULER, Json, Node, Pod, PodGroup, SeenEvent

if TYPE_CHECKING:
    from lab.simulation.world import World

_SCHEDULER: Final = ("kube-scheduler", "status")
_CONDITION: Final[Json] = {'k:{"type":"PodScheduled"}': {"f:message": {}, "f:reason": {}, "f:status": {}}}
#: Reasons for which a node takes no pod, and whether other pods could make room.
_CORDONED: Final = "node(s) were unschedulable"
_TAINTED: Final = "node(s) had untolerated taint(s)"
_OTHER: Final = "node(s) didn't match Pod's node affinity/selector"
_FULL: Final = "Insufficient nvidia.com/gpu"
_NO_VICTIMS: Final = "No preemption victims found for incoming pod"
_NO_HELP: Final = "Preemption is not helpful for scheduling"
_OPTIMISTIC: Final = "optimistic rejection in PostFilter"
_UNRESERVE: Final = "rejection in Unreserve"
#: Of a group, so much may be missing while the others go on waiting.
_GAP: Final = 0.1
#: A series of Events is written when it begins, and then every half an hour.
_SERIES: Final = 1800.0
_KEPT: Final = 3600.0
#: Of the waits that follow a rejection at once, so many show no nomination.
_HIDDEN: Final = 0.4
#: The pods of a job are there before the first of them is tried.
_SOON: Final = 0.05


def go_duration(seconds: float) -> str:
    """Return a duration as Go prints it."""
    whole = int(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}h{minutes}m{rest}s" if hours else f"{minutes}m{rest}s" if minutes else f"{rest}s"


class Scheduler:
    """Both schedulers, and what they count."""

    def __init__(self, world: "World", permit_timeout: float, tries_again_after: float) -> None:
        """Serve a world."""
        self._world = world
        self._permit_timeout = permit_timeout
        self._again = tries_again_after
        self._active: dict[Pod, None] = {}
        self._away: dict[Pod, None] = {}
        self._waiting: dict[PodGroup, list[Pod]] = {}
        self._cycle_due = False
        self._order = 0
        self._events: dict[tuple[str, str], SeenEvent] = {}
        self._stamps = 0
        self.attempts: Counter[tuple[str, str]] = Counter()
        self.entered = 0
        self.passed = 0
        self.ended: Counter[str] = Counter()
        self.waited: Counter[str] = Counter()

    # --- the queue ---------------------------------------------------------------------------------------------------

    def enqueue(self, pod: Pod) -> None:
        """Take a pod that nobody has placed; a new member wakes its group."""
        if pod.gates or pod.node or pod.gone:
            return
        self._activate(pod)
        if pod.job and pod.job.group:
            self.wake(pod.job.group)

    def wake(self, group: PodGroup) -> None:
        """Try the members of a group that were turned away."""
        for pod in [one for one in self._away if one.job and one.job.group is group]:
            self._activate(pod)

    def room_came(self, gpus: float = inf) -> None:
        """Try the pods that found no node: so much room came to be."""
        for pod in [one for one in self._away if one.turned_away == "fit" and one.gpus <= gpus]:
            self._activate(pod)

    def node_came(self, node: Node) -> None:
        """Try the pods that found no node and may fit on this one."""
        self.room_came(node.free)

    def forget(self, pod: Pod) -> None:
        """Let go of a pod that is deleted before it has a node."""
        self._active.pop(pod, None)
        self._away.pop(pod, None)
        if pod.reserved is not None and pod.job and pod.job.group:
            self._unwait(pod, "Error")
            self._reject(pod.job.group, _UNRESERVE)
            self.room_came()

    def waiting(self) -> list[Pod]:
        """Return the pods that wait in Permit."""
        return [pod for pods in self._waiting.values() for pod in pods]

    def pending(self) -> Counter[str]:
        """Return the number of the gang scheduler's pods by its queues."""
        queues = Counter(
            {"active": self._mine(self._active), "backoff": 0, "gated": 0, "unschedulable": self._mine(self._away)}
        )
        queues["gated"] = sum(bool(pod.gates) for pod in self._world.pods.values() if pod.scheduler == GANG_SCHEDULER)
        return queues

    def _mine(self, pods: dict[Pod, None]) -> int:
        return sum(pod.scheduler == GANG_SCHEDULER for pod in pods)

    def turned_away(self) -> Counter[str]:
        """Return the number of the gang scheduler's pods by the plugin that turned them away."""
        names = {"fit": "NodeResourcesFit", "gang": "Coscheduling"}
        return Counter(names[pod.turned_away] for pod in self._away if pod.scheduler == GANG_SCHEDULER)

    def _activate(self, pod: Pod) -> None:
        self._away.pop(pod, None)
        if pod in self._active or pod.gone or pod.deletion is not None or pod.node or pod.reserved:
            return
        self._order += 1
        pod.order = self._order
        self._active[pod] = None
        if not self._cycle_due:
            self._cycle_due = True
            self._world.engine.after(_SOON, self._cycle)

    def _cycle(self) -> None:
        self._cycle_due = False
        while self._active:
            pod = min(self._active, key=_turn)
            del self._active[pod]
            if not pod.gone and pod.deletion is None and pod.node is None and pod.reserved is None:
                self._attempt(pod)

    # --- one attempt -------------------------------------------------------------------------------------------------

    def _attempt(self, pod: Pod) -> None:
        world = self._world
        pod.attempts += 1
        group = pod.job.group if pod.job else None
        nodes = list(world.nodes.values())
        if group and pod.job:
            there = sum(one.live and one.deletion is None for one in pod.job.pods.values())
            if there < group.least:
                text = (
                    f"0/{len(nodes)} nodes are available: pre-filter pod {pod.name} cannot find enough sibling pods, "
                    f"current pods number: {there}, minMember of group: {group.least}."
                )
                self._no_node(pod, text, Counter({_NO_HELP: len(nodes)}), "gang")
                return
        found, reasons = self._filter(pod, nodes)
        if found and group and group.rejected_at == world.now:
            self.entered += 1
            self.ended["Unschedulable"] += 1
            self._turn_away(pod, _rejection(_OPTIMISTIC), "gang")
            return
        if not found:
            helps = Counter[str]()
            for reason, number in reasons.items():
                helps[_NO_VICTIMS if reason == _FULL else _NO_HELP] += number
            self._no_node(pod, f"0/{len(nodes)} nodes are available: {_listed(reasons)}.", helps, "fit")
            return
        best = min(found, key=lambda node: (-node.free, node.name))
        if group is None:
            self._bind(pod, best)
        else:
            self._permit(pod, best, group)

    def _filter(self, pod: Pod, nodes: list[Node]) -> tuple[list[Node], Counter[str]]:
        found: list[Node] = []
        reasons = Counter[str]()
        for node in nodes:
            if node.cordoned is not None:
                reasons[_CORDONED] += 1
            elif node.taints:
                reasons[_TAINTED] += 1
            elif not pod.selector.items() <= node.labels.items():
                reasons[_OTHER] += 1
            elif node.free < pod.gpus:
                reasons[_FULL] += 1
            else:
                found.append(node)
        return found, reasons

    def _no_node(self, pod: Pod, text: str, helps: Counter[str], away: str) -> None:
        """Turn a pod away that found no node, and the members of its group that wait where too many are missing."""
        text += f" no new claims to deallocate, preemption: 0/{sum(helps.values())} nodes are available: "
        text += f"{_listed(helps)}."
        group = pod.job.group if pod.job else None
        if group is not None:
            missing = group.least - self._assigned(pod)
            if missing > 0 and missing / group.least > _GAP:
                text += (
                    f", PodGroup {group.namespace}/{group.name} gets rejected due to Pod {pod.name} is unschedulable "
                    "even after PostFilter"
                )
                self._turn_away(pod, text, away)
                group.rejected_at = self._world.now
                self._reject(group, _OPTIMISTIC)
                return
        self._turn_away(pod, text, away)

    def _assigned(self, pod: Pod) -> int:
        """Return how many members of its group wait or are bound."""
        if pod.job is None or pod.job.group is None:
            return 0
        bound = sum(one.node is not None and one.live for one in pod.job.members)
        return bound + len(self._waiting.get(pod.job.group, ()))

    def _bind(self, pod: Pod, node: Node) -> None:
        world = self._world
        self.attempts[pod.scheduler, "scheduled"] += 1
        self._away.pop(pod, None)
        pod.node, pod.nominated, pod.turned_away = node, "", ""
        node.pods.add(pod)
        pod.conditions.drop("PodScheduled")
        pod.conditions.set("PodScheduled", "True", world.now)
        world.touch(pod)
        world.kubelets.take(pod)
        if pod.job:
            world.jobs.look(pod.job)

    # --- Permit ------------------------------------------------------------------------------------------------------

    def _permit(self, pod: Pod, node: Node, group: PodGroup) -> None:
        world = self._world
        if self._assigned(pod) + 1 >= group.least:
            self.passed += 1
            for one in self._waiting.pop(group, []):
                self._count_end(one, "Success")
                there = one.reserved
                self._free(one)
                if there is not None:
                    self._bind(one, there)
            self._bind(pod, node)
            return
        again = pod.turned_away == "gang" and pod.waits_since > 0 and world.now - pod.waits_since_end < 1.0
        pod.reserved, pod.waits_since = node, world.now
        node.reserved.add(pod)
        self.entered += 1
        waiting = self._waiting.setdefault(group, [])
        waiting.append(pod)
        hidden = again and world.engine.random.random() < _HIDDEN
        shown = "" if hidden else node.name
        if shown != pod.nominated:
            self._nominate(pod, shown)
        timeout = self._permit_timeout if group.timeout is None else float(group.timeout)
        pod.wait = world.engine.after(timeout, lambda: self._time_out(pod, group, timeout))
        self.wake(group)

    def _nominate(self, pod: Pod, node: str) -> None:
        pod.nominated = node
        wrote: Json = {"f:nominatedNodeName": {}} if node else {}
        if "PodScheduled" in pod.conditions.all:
            wrote |= {"f:conditions": _CONDITION}
        pod.managers[_SCHEDULER] = (self._world.now, {"f:status": wrote})
        self._world.touch(pod)

    def _time_out(self, pod: Pod, group: PodGroup, timeout: float) -> None:
        world = self._world
        self._unwait(pod, "Unschedulable")
        text = f"rejected due to timeout after waiting {go_duration(timeout)} at plugin Coscheduling"
        self._turn_away(pod, _rejection(text), "gang")
        self._reject(group, _UNRESERVE)
        if group.keeps_retrying:
            self.room_came()
            return
        group.keeps_retrying = True
        for one in [one for one in self._away if one.job and one.job.group is group and one.turned_away == "fit"]:
            # It had got a node by then, and went with the others.
            self.entered += 1
            self.ended["Unschedulable"] += 1
            self._turn_away(one, _rejection(_UNRESERVE), "gang")
            self._nominate(one, pod.nominated or next(iter(world.nodes)))

    def _reject(self, group: PodGroup, why: str) -> None:
        for one in list(self._waiting.get(group, ())):
            self._unwait(one, "Unschedulable")
            self._turn_away(one, _rejection(why), "gang")

    def _unwait(self, pod: Pod, result: str) -> None:
        if pod.job and pod.job.group:
            waiting = self._waiting.get(pod.job.group, [])
            if pod in waiting:
                waiting.remove(pod)
        self._count_end(pod, result)
        self._free(pod)

    def _count_end(self, pod: Pod, result: str) -> None:
        self.ended[result] += 1
        self.waited[result] += self._world.now - pod.waits_since  # type: ignore[assignment] # a Counter of floats

    def _free(self, pod: Pod) -> None:
        if pod.reserved is not None:
            pod.reserved.reserved.discard(pod)
            pod.reserved = None
        if pod.wait:
            pod.wait.cancel()
            pod.wait = None
        pod.waits_since_end = self._world.now

    # --- what it says of it ------------------------------------------------------------------------------------------

    def _turn_away(self, pod: Pod, text: str, away: str) -> None:
        world = self._world
        self.attempts[pod.scheduler, "unschedulable"] += 1
        if away == "fit":
            # Its own failure clears a nomination; a rejection leaves it.
            pod.nominated = ""
        pod.turned_away = away
        self._away[pod] = None
        told = pod.conditions.set(
            "PodScheduled", "False", world.now, "Unschedulable", text, observedGeneration=pod.generation
        )
        if told:
            self._nominate(pod, pod.nominated)
        self._tell(pod, text)
        attempts = pod.attempts
        world.engine.after(self._again, lambda: self._try_again(pod, attempts))

    def _try_again(self, pod: Pod, attempts: int) -> None:
        if pod in self._away and pod.attempts == attempts:
            self._activate(pod)

    def _tell(self, pod: Pod, text: str) -> None:
        world = self._world
        seen = self._events.get((pod.uid, text))
        if seen is None:
            self._stamps += 1
            # Two Events of a pod must not have one name.
            first = world.now + self._stamps % 1000 * 1e-6
            seen = self._events[pod.uid, text] = SeenEvent(pod, text, first, world.uid(), last=first, told_at=first)
            world.touch(seen)
            world.engine.after(_KEPT, lambda: self._expire(seen))
            return
        seen.count += 1
        seen.last = world.now
        if seen.count == 2 or world.now - seen.told_at >= _SERIES:  # noqa: PLR2004 - the second makes the series
            seen.told, seen.told_at = seen.count, world.now
            world.touch(seen)

    def _expire(self, seen: SeenEvent) -> None:
        left = seen.told_at + _KEPT - self._world.now
        if left > 0:
            self._world.engine.after(left, lambda: self._expire(seen))
            return
        self._events.pop((seen.pod.uid, seen.note), None)
        self._world.remove_event(seen)


def _turn(pod: Pod) -> tuple[bool, float, str, int]:
    """Return the place of a pod in the queue: those of one PodGroup together, the oldest group first."""
    group = pod.job.group if pod.job else None
    if pod.scheduler == DEFAULT_SCHEDULER or group is None:
        return False, 0.0, "", pod.order
    return True, group.created, f"{group.namespace}/{group.name}", pod.order


def _rejection(why: str) -> str:
    """Return the text of a pod that was turned away after it had got a node: that is the only one considered."""
    return f"0/1 nodes are available: 1 {why}."


def _listed(numbers: Counter[str]) -> str:
    return ", ".join(sorted(f"{number} {reason}" for reason, number in numbers.items() if number))
