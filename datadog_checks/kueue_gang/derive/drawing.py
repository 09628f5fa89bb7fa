# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""From the pods and objects of one component to what is told of its gangs.

A component is what can influence each other through names (see `components`): usually one job with its pods, its
PodGroup and its Workload. `sort` finds its gangs and the class of each member; `draw` makes the views once it is
settled which members wait in Permit, which takes the whole cluster (see `permit`).

Everything is a function of the facts and of the time. `Drawn.until` tells when the time alone will change something.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from datadog_checks.kueue_gang.derive import gpus as gpu
from datadog_checks.kueue_gang.derive.accounts import Accounts, Held
from datadog_checks.kueue_gang.derive.activity import ACTIVITY
from datadog_checks.kueue_gang.derive.asks import nowhere
from datadog_checks.kueue_gang.derive.blockers import UNBLOCKED, case_of
from datadog_checks.kueue_gang.derive.context import Context
from datadog_checks.kueue_gang.derive.gangs import Gang
from datadog_checks.kueue_gang.derive.guard import is_served_by_name, unguarded
from datadog_checks.kueue_gang.derive.history import Moment
from datadog_checks.kueue_gang.derive.judging import Wait
from datadog_checks.kueue_gang.derive.members import HOLDING, PLACED, UP, member_class
from datadog_checks.kueue_gang.derive.membership import Membership, Outsider
from datadog_checks.kueue_gang.derive.permit import CERTAIN, POSSIBLE, Candidate, can_wait
from datadog_checks.kueue_gang.derive.picture import NONE, GangView, Gpus, Queue, Staged
from datadog_checks.kueue_gang.derive.placement import VIOLATION, Placement, place
from datadog_checks.kueue_gang.derive.quota import without_pods
from datadog_checks.kueue_gang.derive.stages import counts, stage_of, stage_since
from datadog_checks.kueue_gang.derive.stalls import idle_stall
from datadog_checks.kueue_gang.derive.states import FINISHED, UNPLACED, Shape, since, state_of
from datadog_checks.kueue_gang.derive.throughput import Runner
from datadog_checks.kueue_gang.derive.transitions import ATTENTION_AFTER, STILL, Key, Memory
from datadog_checks.kueue_gang.facts.pods import Pod
from datadog_checks.kueue_gang.facts.signals import NO_SAMPLE, NOT_CONFIGURED
from datadog_checks.kueue_gang.facts.workloads import Workload

NEVER = float("inf")
#: Classes of members that may hide a Permit wait where the scheduler leaves no trace.
_MAY_HIDE_A_WAIT = frozenset({"new", "rejected", "unschedulable"})
#: States that need attention as soon as their clock is beyond the grace.
_ALARMING = frozenset({"partial", "degraded", "starting"})
#: A gang may finish in part for this long before it needs attention: the rest holds its GPUs.
_FINISHING_AT_MOST = 600.0
#: States in which members tell how their gang gets on.
_TELLING = frozenset({"running", "finishing"})
_CERTAIN = frozenset({CERTAIN})
_TERMINATING = frozenset({"terminating"})


@dataclass(frozen=True, slots=True)
class Drawn:
    """What is told of a component.

    `hidden` counts its gangs by the schedulers of members that may hide a Permit wait; whether they do depends on
    whether these schedulers leave traces. `until` is when the time alone changes something. `without_pods` is what its
    Workloads reserve in vain, see `quota`; `runners` are the gangs to ask how they get on, where something tells.
    """

    views: tuple[GangView, ...]
    waits: tuple[Wait, ...]
    staged: tuple[Staged, ...]
    gpus: Gpus
    unobservable: Counter[tuple[str, str]]
    hidden: Counter[frozenset[str]]
    memory: Memory
    until: float
    without_pods: Counter[tuple[str, str]]
    runners: tuple[Runner, ...] = ()

    @property
    def keys(self) -> set[Key]:
        """The gangs of which something is remembered."""
        return {*self.memory.complete, *self.memory.attention}


#: There are thousands of components, and most have nothing of most kinds: they share it. None of it is written to.
_NOTHING: Counter[Any] = Counter()
_NO_MEMORY = Memory()
_NO_GPUS = Gpus(_NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING)
NOT_DRAWN = Drawn((), (), (), _NO_GPUS, _NOTHING, _NOTHING, _NO_MEMORY, NEVER, _NOTHING)


def classes_of(gang: Gang, context: Context, now: float, known: Mapping[Key, tuple[list[Pod], list[str]]]) -> list[str]:
    """Return the class of each member, in their order.

    `known` are the members and classes that gangs had, as long as no node and no time has changed them: a member that
    is the same record has the same class, and that is most of them.
    """
    before, classes = known.get(gang.key, ((), ()))
    shared = min(len(before), len(gang.members))
    return [
        classes[index] if index < shared and before[index] is pod else member_class(pod, lost=context.is_lost(pod, now))
        for index, pod in enumerate(gang.members)
    ]


def draw(
    found: Membership,
    settled: list[Candidate],
    context: Context,
    memory: Memory,
    now: float,
    before: Iterable[GangView] = (),
) -> tuple[Drawn, list[Moment]]:
    """Draw a component; return what is told of it, and what history is made of.

    Args:
        found: its gangs and outsiders.
        settled: a candidate for each gang, its Permit waiters settled.
        context: what it is seen against.
        memory: what was remembered of its gangs.
        now: the cluster's time.
        before: what was told of its gangs, where its nodes are the same.

    """
    drawing = _Drawing(context, memory, now, {view.key: view.placement for view in before})
    for candidate in settled:
        drawing.gang(candidate)
    drawing.outsiders(found.outsiders)
    # Pods that a Workload lacks may be those that could not be understood.
    drawing.without_pods = without_pods(one for one in found.workloads if one[0].namespace not in context.doubted)
    for workload, _, number in found.workloads:
        drawing.workload(workload, number)
    return drawing.drawn(), drawing.moments


class _Drawing:
    def __init__(self, context: Context, memory: Memory, now: float, lay: Mapping[Key, Placement | None]) -> None:
        self.context, self.rules, self.before, self.now = context, context.rules, memory, now
        self.lay = lay
        self.views: list[GangView] = []
        self.waits: list[Wait] = []
        self.moments: list[Moment] = []
        self.staged: list[Staged] = []
        self.accounts = Accounts(context, now, self._change_at)
        self.runners: list[Runner] = []
        self.unobservable: Counter[tuple[str, str]] = Counter()
        self.hidden: Counter[frozenset[str]] = Counter()
        self.until = NEVER
        self.without_pods: Counter[tuple[str, str]] = Counter()
        self.complete: dict[Key, float] = {}
        self.attention: dict[Key, float] = {}

    def drawn(self) -> Drawn:
        gpus = self.accounts.gpus
        return Drawn(
            views=tuple(self.views),
            waits=tuple(self.waits),
            staged=tuple(self.staged),
            gpus=Gpus(
                allocated=gpus.allocated or _NOTHING,
                idle=gpus.idle or _NOTHING,
                reserved=gpus.reserved or _NOTHING,
                unknown=gpus.unknown or _NOTHING,
                idle_price=gpus.idle_price or _NOTHING,
            ),
            unobservable=self.unobservable or _NOTHING,
            hidden=self.hidden or _NOTHING,
            memory=Memory(self.now, self.complete, self.attention) if self.complete or self.attention else _NO_MEMORY,
            until=self.until,
            without_pods=self.without_pods or _NOTHING,
            runners=tuple(self.runners),
        )

    def gang(self, candidate: Candidate) -> None:
        gang = candidate.gang
        shape = Shape(gang, candidate.classes)
        shape.ran_before = self._ran_before(shape)
        shape.doubted = gang.namespace in self.context.doubted
        state = state_of(shape)
        if self.context.lost_from:
            for pod in gang.members:
                self._change_at(self.context.lost_from.get(pod.node))
        if state == FINISHED:
            # Left out; what its pods still hold is held by no gang.
            if self.rules.reports(gang.namespace):
                queue = self._queue(gang.namespace, gang.engine, gang.workload)
                self.moments.append(self._moment(shape, state, None, queue))
            self.outsiders(Outsider(pod, gang.workload, names_gone=False) for pod in gang.members if pod.spec.gpus)
        else:
            self._remember(shape, state)
            self._tell(shape, state, counted_waits=candidate.counted)

    def outsiders(self, found: Iterable[Outsider]) -> None:
        queues: dict[str, Queue] = {}
        held = []
        for pod, workload, names_gone in found:
            name = workload.name if workload else ""
            if name not in queues:
                queues[name] = self._queue(pod.namespace, NONE, workload)
            held.append((pod, queues[name], names_gone))
        self.accounts.outsiders(held)

    def _change_at(self, time: float | None) -> None:
        if time is not None and self.now <= time < self.until:
            self.until = time

    def _tell(self, shape: Shape, state: str | None, *, counted_waits: bool) -> None:
        gang = shape.gang
        queue = self._queue(gang.namespace, gang.engine, gang.workload)
        began = since(state, shape, self.context.nodes or {}) if state else None
        held = self._gpus_of(shape, state, queue, began)
        reported = self.rules.reports(gang.namespace)
        if state and state not in UNBLOCKED:
            self._wait(shape, queue if reported else None)
        if not reported:
            return
        reserved: dict[str, int] = {}
        waiters = shape.pods(_CERTAIN) if shape.counts[CERTAIN] else []
        for pod in waiters:
            gpu.add(reserved, pod.spec.gpus)
        for resource, amount in reserved.items():
            self.accounts.gpus.reserved[queue, resource] += amount
        reasons = tuple(unguarded(gang, self.context.schedulers, workloads_known=self.context.workloads_known))
        if state:
            self.moments.append(self._moment(shape, state, began, queue))
        placement = place(shape, self.context.nodes or {}, self.context.places, self.lay.get(gang.key))
        self._count_unobservable(shape, counted_waits=counted_waits)
        stalled = self._stall(shape, state, began, held)
        self.views.append(
            GangView(
                key=gang.key,
                queue=queue,
                name=gang.name,
                owner_kind=gang.owner_kind,
                priority_class=(gang.workload.priority_class if gang.workload else "") or NONE,
                labels=self._labels(gang) if self.rules.labels else (),
                state=state,
                since=began,
                required=gang.required,
                missing=0 if shape.ambiguous else shape.missing,
                classes=dict(shape.counts),
                requested=self._requested(shape),
                allocated=held.allocated,
                idle=held.idle,
                reserved=gpu.spread(reserved),
                requeues=gang.workload.requeues if gang.workload else 0,
                permit_oldest=min((pod.nominated_at for pod in waiters if pod.nominated_at is not None), default=None),
                unguarded=reasons,
                unobservable=shape.unobservable,
                attention=self._attention(
                    shape, state, began, alarmed=bool(reasons or stalled or _is_misplaced(placement))
                ),
                placement=placement,
                stalled=stalled,
            )
        )

    def workload(self, workload: Workload, pods: int) -> None:
        """Tell of a Workload how far it is, whether it is a gang or not."""
        if not (counts(workload) and self.rules.reports(workload.namespace)):
            return
        queue = self._queue(workload.namespace, NONE, workload)
        stage = stage_of(workload)
        admitted = workload.conditions.get("Admitted")
        due = None if admitted is None or admitted.since is None else admitted.since + self.rules.grace
        here = not (workload.elsewhere or workload.variants or workload.namespace in self.context.doubted)
        empty = workload.admitted and not pods and here and due is not None and self.now > due
        self._change_at(due if not pods else None)
        self.staged.append(Staged(workload.name, queue, stage, stage_since(workload, stage), without_pods=empty))

    def _moment(self, shape: Shape, state: str, began: float | None, queue: Queue) -> Moment:
        gang, workload = shape.gang, shape.gang.workload
        admitted = workload.conditions["Admitted"].since if workload and workload.admitted else None
        evicted = workload.conditions["Evicted"].since if workload and workload.is_true("Evicted") else None
        created = min((pod.created for pod in shape.live), default=None)
        runs = state in {"running", "finishing"}
        return Moment(
            key=gang.key,
            queue=queue,
            name=gang.name,
            state=state,
            since=began,
            workload=workload.name if workload else "",
            admitted=admitted,
            ended=admitted if evicted is None else evicted,
            began=admitted if workload else created,
            complete=began if runs else None,
            held=()
            if runs
            else tuple((pod.bound_at or pod.created, pod.spec.gpus) for pod in shape.pods(PLACED) if pod.spec.gpus),
            members=gang.members,
        )

    def _wait(self, shape: Shape, queue: Queue | None) -> None:
        """Tell of a gang that does not run what it takes to find out why."""
        gang = shape.gang
        waiters = shape.pods(_CERTAIN) if shape.counts[CERTAIN] else []
        reserved = tuple((pod.nominated, pod.spec.gpus) for pod in waiters if pod.spec.gpus)
        held: dict[str, Counter[str]] = {}
        for name, units in (*((pod.node, pod.spec.gpus) for pod in shape.pods(PLACED) if pod.spec.gpus), *reserved):
            held.setdefault(name, Counter()).update(dict(units))
        going = shape.pods(_TERMINATING) if shape.counts["terminating"] else []
        loses = any(self.context.is_lost(pod, self.now) for pod in going)
        case = case_of(shape, self.context.kueue, self.now, loses=loses)
        self.waits.append(Wait(gang.key, queue, case, held, reserved, nowhere(waiters), whole=not shape.missing))
        self._change_at(gang.workload.requeue_at if gang.workload else None)

    def _queue(self, namespace: str, engine: str, workload: Workload | None) -> Queue:
        if workload is None:
            return Queue(namespace, NONE, NONE, engine)
        queue = workload.queue
        cluster_queue = workload.cluster_queue or self.context.queues.get((namespace, queue), "")
        return Queue(namespace, queue or NONE, cluster_queue or NONE, engine)

    # --- GPUs --------------------------------------------------------------------------------------------------------

    def _gpus_of(self, shape: Shape, state: str | None, queue: Queue, began: float | None) -> Held:
        gang = shape.gang
        complete = state == "stopping" and shape.each(lambda tally: tally.could_run >= tally.required)
        situation = gpu.Situation(state, gang.orphan, complete, lost=False, deletion=None)
        watched = state == "running" and self.rules.activity and self.rules.reports(gang.namespace)
        return self.accounts.gang(gang, shape.classes, situation, queue, began if watched else None)

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

    def _count_unobservable(self, shape: Shape, *, counted_waits: bool) -> None:
        gang, counted = shape.gang, self.unobservable
        if shape.unobservable:
            counted["required", shape.unobservable] += 1
        if is_served_by_name(gang) and not self.context.schedulers:
            counted["guard", "not_configured"] += 1
        if shape.counts[POSSIBLE]:
            counted["permit", "ambiguous"] += 1
        elif can_wait(gang) and not counted_waits and any(shape.counts[name] for name in _MAY_HIDE_A_WAIT):
            self.hidden[frozenset(pod.spec.scheduler for pod in shape.pods(_MAY_HIDE_A_WAIT))] += 1

    def _stall(self, shape: Shape, state: str | None, began: float | None, held: Held) -> str:
        """Return why a gang does not get on; count what nothing tells of it."""
        gang, rules = shape.gang, self.rules
        if rules.training and state in _TELLING:
            members = tuple(shape.pods(UP))
            made = tuple(one.created for one in (gang.group, gang.workload) if one)
            judged = state == "running"
            runner = Runner(gang.key, gang.namespace, gang.name, began, members, held.allocated, judged, made)
            self.runners.append(runner)
        if state != "running":
            return ""
        if held.allocated and not rules.activity:
            self.unobservable[ACTIVITY, NOT_CONFIGURED] += 1
        elif held.unseen or (held.allocated and began is None):
            self.unobservable[ACTIVITY, NO_SAMPLE] += 1
        reason = idle_stall(held.inactive, sum(held.allocated.values()))
        return reason or (self.context.throughput.stall(gang.key, began) if rules.training else "")

    def _attention(self, shape: Shape, state: str | None, began: float | None, *, alarmed: bool) -> bool:
        key, workload = shape.gang.key, shape.gang.workload
        admitted = workload is None or workload.admitted
        patience = {
            **dict.fromkeys(_ALARMING, self.rules.grace),
            **(dict.fromkeys(UNPLACED, self.rules.grace) if admitted else {}),
            "finishing": _FINISHING_AT_MOST,
        }
        due = began + patience[state] if state in patience and began is not None else None
        if alarmed or (due is not None and self.now > due):
            self.attention[key] = STILL
            return True
        self._change_at(due)
        last = self.before.last_attention(key)
        if last is not None and self.now - last <= ATTENTION_AFTER:
            self.attention[key] = last
            self._change_at(last + ATTENTION_AFTER)
            return True
        return False

    def _ran_before(self, shape: Shape) -> bool:
        """Tell whether the check saw these same pods run: none is newer than what it saw."""
        newest = self.before.complete.get(shape.gang.key)
        return newest is not None and all(pod.created <= newest for pod in shape.pods(PLACED))

    def _remember(self, shape: Shape, state: str | None) -> None:
        key = shape.gang.key
        newest = self.before.complete.get(key)
        if state in {"running", "finishing"}:
            newest = max((pod.created for pod in shape.pods(HOLDING)), default=newest)
        if newest is not None:
            self.complete[key] = newest


def _is_misplaced(placement: Placement | None) -> bool:
    return placement is not None and placement.verdict == VIOLATION
