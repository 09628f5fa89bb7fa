# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The laws of the gang model on clusters drawn at random: pods of every class, in gangs of every engine and in none.

What a law needs to know of a cluster is read from its JSON here, in the plainest way, and not from the code under test.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from datadog_checks.kueue_gang.derive.deriver import Deriver, derive
from datadog_checks.kueue_gang.derive.members import CLASSES
from datadog_checks.kueue_gang.derive.picture import Picture
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.derive.states import STATES_SENT
from datadog_checks.kueue_gang.derive.transitions import ATTENTION_AFTER, Memory
from datadog_checks.kueue_gang.facts.cluster import Changes, Cluster, SchedulerCount
from tests.model.build import (
    COSCHEDULING,
    DEFAULT_SCHEDULER,
    GANG_SCHEDULER,
    GPU,
    LONE,
    NO_GPU,
    NOW,
    OPTIMISTIC,
    PLAIN_NO_GPU,
    SIBLINGS,
    SOURCES,
    TIMEOUT,
    TRIGGER,
    UNRESERVE,
    WORKLOADS,
    Json,
    Seen,
    Tie,
    bound,
    classes,
    crashing,
    failed,
    flavor,
    gated,
    job,
    local_queue,
    look,
    native_group,
    new,
    node,
    of_group,
    of_job,
    of_jobset,
    of_kubeflow,
    of_native,
    of_plain_group,
    of_slice,
    of_workload,
    permit_waiter,
    pod_group,
    podset,
    ready,
    reducers,
    running,
    succeeded,
    taint,
    terminating,
    toleration,
    ungated,
    unscheduled,
    workload,
)

MIG = "nvidia.com/mig-1g.10gb"
SPACES = ("blue", "green")
STATES = set(STATES_SENT)
REASONS = {"no_trace", "forbidden", "not_configured", "no_label", "no_sample", "ambiguous"}
IDLE_REASONS = {"partial", "degraded", "starting", "lost", "terminating", "inactive"}
SIGNALS = {"permit", "guard", "required", "activity", "throughput"}
UNGUARDED = {"scheduler_name", "min_member", "no_podgroup", "no_gang_scheduling"}
TERMINAL = {"succeeded", "failed"}

LAW = settings(
    max_examples=120,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


# --- clusters at random ----------------------------------------------------------------------------------------------


@dataclass
class World:
    """A cluster's objects, and what its maker knows: (podset, required, reclaimed) of gangs whose size is stated."""

    objects: list[Json] = field(default_factory=list)
    needs: dict[tuple[str, str, str], list[tuple[str, int, int]]] = field(default_factory=dict)
    count: SchedulerCount | None = None

    @property
    def pods(self) -> list[Json]:
        """The pods."""
        return [obj for obj in self.objects if obj["kind"] == "Pod"]

    @property
    def nodes(self) -> list[Json]:
        """The nodes."""
        return [obj for obj in self.objects if obj["kind"] == "Node"]

    def look(self, **more: Any) -> Seen:
        """Return what the check sees in it."""
        return look(*self.objects, scheduler=self.count, **more)


#: Every kind of member, by name, tie and node. Times are in the past, bindings after creations.
KINDS: tuple[Callable[..., Json], ...] = (
    lambda name, tie, _where, **more: new(name, tie, **more),
    lambda name, tie, _where, **more: gated(name, tie, **more),
    lambda name, tie, _where, **more: ungated(name, tie, **more),
    ungated,
    permit_waiter,
    *[
        lambda name, tie, where, text=text, nominated=nominated, **more: unscheduled(
            name, tie, text, where if nominated else "", **more
        )
        for text in (NO_GPU, PLAIN_NO_GPU, TIMEOUT, UNRESERVE, OPTIMISTIC, TRIGGER, SIBLINGS)
        for nominated in (False, True)
    ],
    *(bound, running, ready, ready, ready, crashing, succeeded, failed),
    lambda name, tie, where, **more: terminating(ready(name, tie, where, **more), began=10, grace=30),
    lambda name, tie, where, **more: terminating(running(name, tie, where, **more), began=100, grace=30),
    lambda name, tie, where, **more: terminating(bound(name, tie, where, **more), began=10, grace=30),
    lambda name, tie, where, **more: terminating(succeeded(name, tie, where, **more), began=100, grace=30),
    lambda name, tie, _where, **more: terminating(new(name, tie, **more), began=10, grace=30),
)

TAINTS: tuple[list[Json], ...] = (
    [],
    [],
    [],
    [taint(GPU, "present")],
    [taint("maintenance")],
    [taint("node.kubernetes.io/unreachable", effect="NoExecute")],
    [taint("soft", effect="PreferNoSchedule")],
    [taint("pool", "train")],
)
SIZES: tuple[int | dict[str, int], ...] = (8, 8, 8, 0, {MIG: 7}, {GPU: 4, MIG: 7})
ADMISSIONS: tuple[dict[str, Any], ...] = (
    {},
    {"admitted": 500},
    {"admitted": 500},
    {"admitted": 500, "pods_ready": ("True", 300, "Started")},
    {"admitted": 500, "pods_ready": ("False", 300, "WaitForRecovery")},
    {"admitted": 500, "pods_ready": ("False", 600, "WaitForStart")},
    {"admitted": 500, "evicted": ("True", 5, "Preempted")},
    {"reserved": 400},
    {"evicted": ("True", 400, "PodsReadyTimeout"), "requeued": ("True", 300, "BackoffFinished"), "requeues": 2},
)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Draw a cluster of up to twelve nodes and thirty pods."""
    world = World()
    where = [f"n{index}" for index in range(draw(st.integers(1, 12)))]
    world.objects += [_draw_node(draw, name) for name in where]
    if draw(st.booleans()):
        world.objects.append(flavor("pool", {"pool": "train"}, [toleration("pool", "train")]))
    ties = [(LONE, space) for space in SPACES]
    for space in SPACES:
        if draw(st.booleans()):
            world.objects.append(local_queue("lq", draw(st.sampled_from(["cq", "cq-other"])), space))
    for make in (_coscheduling, _native, _kueue, _podsets, _both, _plain_group, _loose):
        if draw(st.booleans()):
            space = draw(st.sampled_from(SPACES))
            ties += [(tie, space) for tie in make(draw, world, space)]
    for index in range(draw(st.integers(0, 30))):
        tie, space = draw(st.sampled_from(ties))
        world.objects.append(
            draw(st.sampled_from(KINDS))(
                f"p{index}",
                tie,
                draw(st.sampled_from([*where, "gone"])),
                namespace=space,
                gpus=draw(st.sampled_from([8, 4, 1, 0, {MIG: 2}, {GPU: 1, MIG: 1}])),
                created=draw(st.sampled_from([600, 600, 280, 100])),
                scheduler=draw(st.sampled_from([DEFAULT_SCHEDULER, GANG_SCHEDULER])),
            )
        )
    if draw(st.booleans()):
        waiting = draw(st.one_of(st.none(), st.integers(0, 12)))
        world.count = SchedulerCount(waiting, frozenset({GANG_SCHEDULER}))
    return world


def _draw_node(draw: st.DrawFn, name: str) -> Json:
    return node(
        name,
        draw(st.sampled_from(SIZES)),
        allocatable=draw(st.sampled_from([None, None, None, 6])),
        ready_status=draw(st.sampled_from(["True"] * 5 + ["False", "Unknown", ""])),
        since=draw(st.sampled_from([30, 300])),
        cordoned=draw(st.sampled_from([False] * 4 + [True])),
        taints=draw(st.sampled_from(TAINTS)),
        labels=draw(st.sampled_from([{}, {"pool": "train"}])),
    )


def _coscheduling(draw: st.DrawFn, world: World, space: str) -> list[Tie]:
    required = draw(st.integers(1, 4))
    world.objects.append(pod_group("cosched", required, namespace=space, phase="Running"))
    if required > 1:
        world.needs["coscheduling", space, "cosched"] = [("", required, 0)]
    return [of_group("cosched")]


def _native(draw: st.DrawFn, world: World, space: str) -> list[Tie]:
    required = draw(st.integers(2, 4))
    once = draw(st.sampled_from(["", "PodGroupScheduled"]))
    world.objects.append(native_group("native", required, namespace=space, once=once))
    world.needs["kubernetes", space, "native"] = [("", required, 0)]
    return [of_native("native")]


def _kueue(draw: st.DrawFn, world: World, space: str) -> list[Tie]:
    """Draw a JobSet's Workload, finished or not, of which some pods may be reclaimed and fewer assigned."""
    count = draw(st.integers(2, 5))
    assigned, reclaimed = draw(st.integers(1, count)), draw(st.integers(0, 2))
    conditions = draw(st.sampled_from(ADMISSIONS))
    finished = draw(st.sampled_from([None, None, None, 50]))
    made = podset(count, assigned=assigned, reclaimed=reclaimed)
    world.objects.append(workload("wl", ("JobSet", "js"), made, namespace=space, finished=finished, **conditions))
    if finished is None:
        required = count - reclaimed
        if "admitted" in conditions or "reserved" in conditions:
            required = min(assigned, required)
        world.needs["kueue", space, "js"] = [("main", required, reclaimed)]
    return [of_workload("wl"), of_jobset("js", "main")]


def _podsets(draw: st.DrawFn, world: World, space: str) -> list[Tie]:
    """Draw an MPIJob of a launcher and workers."""
    workers = draw(st.integers(1, 3))
    sets = [podset(1, "launcher", gpus=0), podset(workers, "worker")]
    world.objects.append(workload("mpi-wl", ("MPIJob", "mpi"), *sets, namespace=space, admitted=500))
    world.needs["kueue", space, "mpi"] = [("launcher", 1, 0), ("worker", workers, 0)]
    return [of_workload("mpi-wl", role) + of_kubeflow("mpi", role, "MPIJob") for role in ("launcher", "worker")]


def _both(draw: st.DrawFn, world: World, space: str) -> list[Tie]:
    """Draw a PodGroup and a Workload of the same pods."""
    required = draw(st.integers(2, 3))
    made = podset(3, tie=of_group("both"))
    world.objects.append(pod_group("both", required, namespace=space))
    world.objects.append(
        workload("both-wl", ("JobSet", "both-js"), made, namespace=space, **draw(st.sampled_from(ADMISSIONS)))
    )
    world.needs["coscheduling", space, "both"] = [("", required, 0)]
    return [of_group("both") + of_workload("both-wl")]


def _plain_group(draw: st.DrawFn, world: World, space: str) -> list[Tie]:
    conditions = draw(st.sampled_from(ADMISSIONS))
    world.objects.append(workload("plain", ("Pod", "p0"), podset(2), controls=False, namespace=space, **conditions))
    world.needs["kueue", space, "plain"] = [("main", 2, 0)]
    return [of_plain_group("plain")]


def _loose(draw: st.DrawFn, world: World, space: str) -> list[Tie]:
    """Draw ties to what states no size or is no gang: orphans, gone Workloads, bare jobs, an elastic job, a service."""
    slices = {"kueue.x-k8s.io/workload-slice-name": "el-wl"}
    minimum = draw(st.sampled_from([None, 2]))
    world.objects += [
        job("el", 4, 4, elastic=True, namespace=space),
        workload("el-wl", ("Job", "el"), podset(4, minimum=minimum), namespace=space, admitted=500, annotations=slices),
        workload("svc-wl", ("Deployment", "svc"), podset(3), namespace=space, admitted=500),
    ]
    return [
        of_group("orphan"),
        of_workload("gone-wl"),
        of_jobset("bare-js", replicas=2),
        of_jobset("bare-js", job=1, replicas=2),
        of_kubeflow("bare-pt"),
        of_slice("el-wl") + of_job("el"),
        of_workload("svc-wl"),
    ]


# --- what the JSON says ----------------------------------------------------------------------------------------------


def is_terminal(pod: Json) -> bool:
    """Tell whether a pod has ended."""
    return pod["status"]["phase"] in {"Succeeded", "Failed"}


def is_gone(pod: Json) -> bool:
    """Tell whether a pod was deleted without ever having a node."""
    return "deletionTimestamp" in pod["metadata"] and "nodeName" not in pod["spec"] and not is_terminal(pod)


def holds(pod: Json) -> bool:
    """Tell whether a pod holds its GPUs."""
    return "nodeName" in pod["spec"] and not is_terminal(pod)


def asks(pod: Json) -> dict[str, int]:
    """Return the GPUs of a pod; those of these clusters have one container."""
    (container,) = pod["spec"]["containers"]
    return {name: int(amount) for name, amount in container["resources"].get("requests", {}).items()}


def nominated(pod: Json) -> bool:
    """Tell whether an unbound pod has a nominated node."""
    return bool(pod["status"].get("nominatedNodeName")) and "nodeName" not in pod["spec"]


def total(picture: Picture) -> dict[str, int]:
    """Return the allocated GPUs by resource."""
    found: Counter[str] = Counter()
    for (_, resource, _), amount in picture.gpus.allocated.items():
        found[resource] += amount
    return {resource: amount for resource, amount in found.items() if amount}


def held(world: World) -> dict[str, int]:
    """Return the GPUs that the pods of a cluster hold."""
    found: Counter[str] = Counter()
    for pod in world.pods:
        if holds(pod):
            found.update(asks(pod))
    return dict(found)


def told(seen: Seen, rename: Callable[[str], str] = lambda name: name) -> dict[str, Any]:
    """Return all that a picture tells, in a form that does not depend on order; `rename` is applied to namespaces.

    What happened is not in it: that is of two pictures, and a full derivation is a first one, which tells nothing. See
    `test_happening_laws`.
    """
    picture = seen.picture

    def queue(found: Any) -> tuple[str, ...]:
        return (rename(found.namespace), found.local_queue, found.cluster_queue, found.engine)

    gangs = {}
    for view in picture.gangs:
        fields = {name: getattr(view, name) for name in view.__dataclass_fields__ if name not in {"key", "queue"}}
        fields["classes"] = classes(view)
        engine, space, name = view.key
        gangs[engine, rename(space), name] = {**fields, "queue": queue(view.queue)}
    return {
        "gangs": gangs,
        "allocated": {(queue(q), *rest): amount for (q, *rest), amount in picture.gpus.allocated.items() if amount},
        "idle": {(queue(q), *rest): amount for (q, *rest), amount in picture.gpus.idle.items() if amount},
        "reserved": {(queue(q), rest): amount for (q, rest), amount in picture.gpus.reserved.items() if amount},
        "nodes": {name: repr(totals) for name, totals in (picture.nodes or {}).items()},
        "unobservable": {key: number for key, number in picture.unobservable.items() if number},
        "unknown": set(picture.gpus.unknown),
        "workloads": _workloads(picture, rename),
        "layouts": picture.layouts,
        "quotas": picture.quotas,
        "placements": {key: number for key, number in picture.summary.placements.items() if number},
        "needed": {
            (view.key[0], rename(view.key[1]), view.key[2]): picture.needed(view.placement)
            for view in picture.gangs
            if view.placement
        },
        "blockers": {
            (engine, rename(space), name): blocker
            for (engine, space, name), blocker in picture.verdicts.blockers.items()
        },
        "blocked": {(queue(q), blocker): number for (q, blocker), number in picture.verdicts.blocked.items()},
        "deadlocked": {(engine, rename(space), name) for engine, space, name in picture.verdicts.deadlocked},
        "deadlocked_gpus": dict(picture.verdicts.deadlocked_gpus),
        # What is remembered longer than it matters is no difference.
        "attention": {
            (engine, rename(space), name)
            for (engine, space, name), last in seen.memory.attention.items()
            if picture.now - last <= ATTENTION_AFTER
        },
    }


def _workloads(picture: Picture, rename: Callable[[str], str]) -> Any:
    """Return what is told of Workloads."""
    found = picture.workloads
    if found is None:
        return None
    return {
        "stages": {(rename(space), *rest): number for (space, *rest), number in found.stages.items() if number},
        "since": {(rename(space), *rest): sorted(times.values()) for (space, *rest), times in found.clocks.items()},
        "without_pods": {(rename(q.namespace), *q[1:]): number for q, number in found.without_pods.items() if number},
    }


# --- the laws --------------------------------------------------------------------------------------------------------


@LAW
@given(worlds())
def test_allocated_is_busy_idle_and_other(world: World):
    """Per resource: what the pods hold is allocated, and allocated = busy + idle + other."""
    seen = world.look()
    assert total(seen.picture) == {resource: amount for resource, amount in held(world).items() if amount}
    assert {use for _, _, use in seen.picture.gpus.allocated} <= {"busy", "idle", "other"}
    for resource in (GPU, MIG):
        assert sum(seen.use(use, resource) for use in ("busy", "idle", "other")) == held(world).get(resource, 0)
        assert sum(seen.idle_by_reason(resource).values()) == seen.use("idle", resource)


@LAW
@given(worlds(), st.data())
def test_each_pod_is_in_one_bucket(world: World, data: st.DataObject):
    """Without one pod that holds GPUs, allocated is less by just what it holds, whatever becomes of its gang."""
    holders = [pod for pod in world.pods if holds(pod) and asks(pod)]
    if not holders:
        return
    gone = data.draw(st.sampled_from(holders))
    before, after = (
        Counter(total(world.look().picture)),
        Counter(total(World([obj for obj in world.objects if obj is not gone], count=world.count).look().picture)),
    )
    assert before == after + Counter(asks(gone))


@LAW
@given(worlds(), st.data())
def test_one_more_bound_gpu_never_lowers_allocated(world: World, data: st.DataObject):
    """A pod more that is bound, of any gang or none, adds its GPUs and takes none away."""
    ties = {repr(pod["metadata"].get("labels")): pod for pod in world.pods} or {"": new("x", namespace=SPACES[0])}
    like = data.draw(st.sampled_from(sorted(ties)))
    extra = deepcopy(ties[like])
    extra["metadata"] |= {"name": "extra", "uid": "extra"}
    extra["metadata"].pop("deletionTimestamp", None)
    extra["spec"] |= {"nodeName": world.nodes[0]["metadata"]["name"]}
    extra["spec"].pop("schedulingGates", None)
    extra["status"] = {"phase": data.draw(st.sampled_from(["Pending", "Running"]))}
    before = Counter(total(world.look().picture))
    after = Counter(total(World([*world.objects, extra], count=world.count).look().picture))
    assert after == before + Counter(asks(extra))


@LAW
@given(worlds())
def test_free_gpus_of_the_nodes(world: World):
    """On each node free = max(0, allocatable - allocated), on nodes able to take pods, each node once."""
    allocated: Counter[tuple[str, str]] = Counter()
    for pod in world.pods:
        if holds(pod):
            for resource, amount in asks(pod).items():
                allocated[pod["spec"]["nodeName"], resource] += amount
    pool_is_tolerated = any(obj["kind"] == "ResourceFlavor" for obj in world.objects)
    expected: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for obj in world.nodes:
        capacity, allocatable = ({
            resource: int(amount) for resource, amount in obj["status"][which].items() if resource in {GPU, MIG}
        } for which in ("capacity", "allocatable"))  # fmt: skip
        able = _is_able(obj, pool_is_tolerated)
        for resource in capacity or allocatable:
            usable = allocatable.get(resource, 0)
            free = max(0, usable - allocated[obj["metadata"]["name"], resource])
            numbers = ((capacity or allocatable)[resource], usable, able * usable, able * free)
            expected[resource] = [old + number for old, number in zip(expected[resource], numbers, strict=True)]
    picture = world.look().picture
    assert picture.nodes is not None
    assert {
        resource: [totals.capacity, totals.allocatable, totals.schedulable, totals.free]
        for resource, totals in picture.nodes.items()
    } == dict(expected)


def _is_able(obj: Json, pool_is_tolerated: bool) -> bool:
    conditions = {found["type"]: found["status"] for found in obj["status"]["conditions"]}
    if conditions.get("Ready") != "True" or obj["spec"].get("unschedulable"):
        return False
    for found in obj["spec"].get("taints", []):
        own = found["key"] in {**obj["status"]["capacity"], **obj["status"]["allocatable"]}
        pool = found["key"] == "pool" and pool_is_tolerated and obj["metadata"]["labels"].get("pool") == "train"
        if found["effect"] != "PreferNoSchedule" and not own and not pool:
            return False
    return True


@LAW
@given(worlds())
def test_nothing_is_negative(world: World):
    """No amount, count, age or number of missing members is below 0.

    Ages: with times of the past no clock begins later than now. What clocks that disagree would make is cut off where
    ages are told.
    """
    seen = world.look()
    picture = seen.picture
    amounts = [*picture.gpus.allocated.values(), *picture.gpus.idle.values(), *picture.gpus.reserved.values()]
    for totals in (picture.nodes or {}).values():
        amounts += [totals.capacity, totals.allocatable, totals.unhealthy, totals.schedulable, totals.free]
    for view in picture.gangs:
        amounts += [view.missing, view.required or 0, view.requeues, *view.classes.values()]
        for found in (view.requested, view.allocated, view.idle, view.reserved):
            amounts += found.values()
        assert view.since is None or view.since <= NOW
        assert view.permit_oldest is None or view.permit_oldest <= NOW
    assert min(amounts, default=0) >= 0


@LAW
@given(worlds(), st.integers(0, 2**32))
def test_the_order_of_the_input_changes_nothing(world: World, seed: int):
    """The same objects in another order give the same picture."""
    shuffled = list(world.objects)
    random.Random(seed).shuffle(shuffled)
    assert told(World(shuffled, count=world.count).look()) == told(world.look())


def test_the_order_of_schedulers_changes_nothing():
    """Two replicas of a scheduler on two releases, in the middle of an upgrade: one answer in either order."""

    def replica(minor: int) -> Json:
        spec = {"containers": [{"name": "s", "image": f"registry.k8s.io/kube-scheduler:v1.{minor}.0"}]}
        return ready(f"kube-scheduler-{minor}", LONE, "cp", namespace="kube-system", spec=spec)

    rest = [pod_group("train", 2), *[new(f"w{index}", of_group("train")) for index in (0, 1)]]
    old, young = replica(34), replica(35)
    assert told(look(old, young, *rest)) == told(look(young, old, *rest))


def test_the_order_of_workloads_of_one_owner_changes_nothing():
    """Two live Workloads of one job whose pods name neither (before Kueue 0.14): one answer in either order."""
    first = workload("wl-a", ("JobSet", "js"), podset(2), created=900, admitted=800)
    second = workload("wl-b", ("JobSet", "js"), podset(3), created=100)
    pods = [ready(f"w{index}", of_jobset("js", "main"), f"n{index}") for index in (0, 1)]
    nodes = [node(f"n{index}") for index in (0, 1)]
    assert told(look(first, second, *pods, *nodes)) == told(look(second, first, *pods, *nodes))


def test_the_order_of_members_changes_no_tag():
    """Members that differ in a label that the user wants as a tag: one answer in either order."""
    nodes = [node(f"n{index}") for index in (0, 1)]
    members = [
        ready(f"w{index}", of_jobset("js", replicas=2) + Tie(labels={"team-name": team}), f"n{index}")
        for index, team in enumerate(("speech", "vision"))
    ]
    options: Any = {"labels": ("team-name",)}
    assert told(look(*nodes, *members, **options)) == told(look(*nodes, *members[::-1], **options))


def test_the_order_of_members_changes_no_count():
    """The scheduler says that one of two possible waiters waits; what the other one is does not hang on their order.

    One was rejected in Permit, the other has a nomination left beside a refused preemption.
    """
    never = f"{PLAIN_NO_GPU} preemption: not eligible due to preemptionPolicy=Never."
    nodes = [node(f"n{index}") for index in (0, 1)]
    members = [
        unscheduled(f"w{index}", of_group("train"), text, f"n{index}", nominated_at=since, scheduler=GANG_SCHEDULER)
        for index, (text, since) in enumerate(((TIMEOUT, 50), (never, 20)))
    ]
    count = SchedulerCount(1, frozenset({GANG_SCHEDULER}))
    rest = [*nodes, pod_group("train", 2)]
    assert told(look(*rest, *members, scheduler=count)) == told(look(*rest, *members[::-1], scheduler=count))


@LAW
@given(worlds())
def test_renaming_namespaces_changes_only_names(world: World):
    """With other names of namespaces, in another order too, all else stays."""
    names = dict(zip(SPACES, ("zebra", "ant"), strict=True))
    renamed = deepcopy(world.objects)
    for obj in renamed:
        if "namespace" in obj["metadata"]:
            obj["metadata"]["namespace"] = names[obj["metadata"]["namespace"]]
    expected = told(world.look(), rename=lambda name: names.get(name, name))
    assert told(World(renamed, count=world.count).look()) == expected


@LAW
@given(worlds())
def test_missing_members(world: World):
    """Missing is, summed over podsets, max(0, required - live - done); done leaves out what was reclaimed already."""
    seen = world.look()
    views = {view.key: view for view in seen.picture.gangs}
    for key, needs in world.needs.items():
        if key not in views:
            continue
        members = [pod for pod in world.pods if _gang_of(pod, world) == key]
        assert views[key].required == sum(required for _, required, _ in needs)
        missing = 0
        for name, required, reclaimed in needs:
            mine = [pod for pod in members if len(needs) == 1 or _podset(pod) == name]
            live = sum(not is_terminal(pod) for pod in mine)
            ended_well = sum(pod["status"]["phase"] == "Succeeded" and _same_run(pod, members) for pod in mine)
            missing += max(0, required - live - max(0, ended_well - reclaimed))
        assert views[key].missing == missing


def _gang_of(pod: Json, world: World) -> tuple[str, str, str] | None:
    """Return the gang of a pod among those whose size is stated; these clusters tie a pod to one of them at most."""
    if is_gone(pod):
        return None
    space, labels, annotations = (pod["metadata"][name] for name in ("namespace", "labels", "annotations"))
    group = labels.get("scheduling.x-k8s.io/pod-group")
    native = pod["spec"].get("schedulingGroup", {}).get("podGroupName")
    named = annotations.get("kueue.x-k8s.io/workload") or labels.get("kueue.x-k8s.io/pod-group-name")
    by_workload = {"wl": "js", "mpi-wl": "mpi", "plain": "plain"}.get(named or "")
    by_label = labels.get("jobset.sigs.k8s.io/jobset-name") if not named else None
    candidates = [
        ("coscheduling", space, group),
        ("kubernetes", space, native),
        ("kueue", space, by_workload or by_label),
    ]
    return next((key for key in candidates if key in world.needs), None)


def _podset(pod: Json) -> str:
    return pod["metadata"]["labels"].get("kueue.x-k8s.io/podset", "")


def _run(pod: Json) -> tuple[str, ...]:
    """Return the mark of a pod's run: its Workload's annotation, else its JobSet and uid."""
    labels, annotations = pod["metadata"]["labels"], pod["metadata"]["annotations"]
    return (
        annotations.get("kueue.x-k8s.io/workload", ""),
        "" if "kueue.x-k8s.io/workload" in annotations else labels.get("jobset.sigs.k8s.io/jobset-uid", ""),
    )


def _same_run(pod: Json, members: list[Json]) -> bool:
    """Tell whether a pod is of the same run as a live member; where none lives, as the newest one."""
    live = {_run(other) for other in members if not is_terminal(other)}
    newest = max(members, key=lambda other: (other["metadata"]["creationTimestamp"], other["metadata"]["name"]))
    return _run(pod) in (live or {_run(newest)})


@LAW
@given(worlds())
def test_members_are_counted_once_each(world: World):
    """Live members are those of the classes that are not terminal; each member is in one class."""
    seen = world.look()
    for view in seen.picture.gangs:
        if view.key in world.needs:
            members = [pod for pod in world.pods if _gang_of(pod, world) == view.key]
            assert sum(view.classes.values()) == len(members)
            live = sum(number for name, number in view.classes.items() if name not in TERMINAL)
            assert live == sum(not is_terminal(pod) for pod in members)


@LAW
@given(worlds())
def test_values_come_from_the_closed_lists(world: World):
    """Each gang has exactly one state, unless what it requires cannot be known; every value is on its list."""
    seen = world.look()
    assert len({view.key for view in seen.picture.gangs}) == len(seen.picture.gangs)
    for view in seen.picture.gangs:
        assert (view.state is None) == bool(view.unobservable)
        assert view.state is None or view.state in STATES
        assert view.unobservable in {"", *REASONS}
        assert set(view.classes) <= set(CLASSES)
        assert set(view.unguarded) <= UNGUARDED
        assert view.queue.engine in {"coscheduling", "kubernetes", "kueue", "job"}
    assert {reason for _, _, reason in seen.picture.gpus.idle} <= IDLE_REASONS
    assert {signal for signal, _ in seen.picture.unobservable} <= SIGNALS
    assert {reason for _, reason in seen.picture.unobservable} <= REASONS


@LAW
@given(worlds())
def test_certain_waiters_have_a_nomination(world: World):
    """Without the scheduler's count no more members wait for certain than unbound pods have a nominated node."""
    seen = World(world.objects).look()
    waiting = sum(view.classes.get("waiting_permit", 0) for view in seen.picture.gangs)
    assert waiting <= sum(nominated(pod) for pod in world.pods)


@LAW
@given(worlds())
def test_the_count_of_the_scheduler_is_never_exceeded_by_settling(world: World):
    """Waiters are at most those that were certain before, and the count."""
    if world.count is None or world.count.waiting is None:
        return
    before = sum(view.classes.get("waiting_permit", 0) for view in World(world.objects).look().picture.gangs)
    after = sum(view.classes.get("waiting_permit", 0) for view in world.look().picture.gangs)
    assert after <= before + world.count.waiting


@LAW
@given(worlds())
def test_a_gpu_that_works_is_not_called_idle(world: World):
    """In a gang that runs only GPUs of lost members and of those beyond their deletion grace are idle.

    In one that is incomplete all are, and one that is not placed has no member that is.
    """
    for view in world.look().picture.gangs:
        idle, held_by = sum(view.idle.values()), sum(view.allocated.values())
        assert idle <= held_by
        if view.state in {"running", "finishing"} and not (view.classes.get("lost") or view.classes.get("terminating")):
            assert idle == 0
        if view.state in {"partial", "degraded", "starting"}:
            assert idle == held_by
        if view.state in {"queued", "pending", "waiting", "rejected"}:
            assert not any(view.classes.get(name) for name in ("ready", "running", "bound", "lost", "crashing"))


@LAW
@given(worlds())
def test_a_second_look_at_the_same_cluster_sees_the_same(world: World):
    """The memory of the last look adds what the API forgets; where nothing has changed, it changes nothing."""
    first = world.look()
    assert told(world.look(memory=first.memory)) == told(first)


# --- a cluster that lives --------------------------------------------------------------------------------------------

#: What may be unread for a while.
OUTAGES: tuple[dict[str, str], ...] = (
    {},
    {},
    {},
    {},
    {"nodes": "forbidden"},
    {"pods": "unreachable"},
    {WORKLOADS: "forbidden"},
    {COSCHEDULING: "unauthorized"},
    {COSCHEDULING: "not_installed"},
)
#: Seconds from one reading to the next: within every grace of the rules, and beyond each of them.
PAUSES = (0, 1, 15, 31, 61, 290, 601, 901)

Name = tuple[str, str, str]


class Life:
    """A cluster from reading to reading: its facts, as a source keeps them, and what changed since the last one."""

    def __init__(self, rules: Rules, *, backwards: bool = False) -> None:
        """Begin with an empty cluster; changes come in the order of their names, or backwards."""
        self.reduce = reducers(rules)
        self.backwards = backwards
        self.facts: dict[Name, Any] = {}

    def read(
        self, objects: Iterable[Json], unread: dict[str, str] | None = None, count: SchedulerCount | None = None
    ) -> tuple[Changes, Cluster]:
        """Take the objects that are there now; return what changed, and the cluster whole."""
        before, self.facts = self.facts, {}
        for obj in objects:
            name = _name(obj)
            fact = None if name[0] in (unread or {}) else self.reduce[name[0]](obj)
            if fact is not None:
                # A write that gives the same fact leaves the old record where it is.
                self.facts[name] = before[name] if before.get(name) == fact else fact
        changes: dict[str, Any] = defaultdict(list)
        for name in sorted({*before, *self.facts}, reverse=self.backwards):
            old, new = before.get(name), self.facts.get(name)
            if old is not new:
                changes[SEQUENCES[name[0]]].append((old, new))
        whole: dict[str, Any] = defaultdict(list)
        for name, fact in self.facts.items():
            whole[SEQUENCES[name[0]]].append(fact)
        said: dict[str, Any] = {"scheduler": count, "unread": unread or {}}
        return Changes(**changes, **said), Cluster(**whole, **said)


SEQUENCES = dict(SOURCES.values())


def _name(obj: Json) -> Name:
    source, _ = SOURCES[obj["apiVersion"].split("/")[0], obj["kind"]]
    return source, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _towards(world: World, objects: dict[Name, Json], chance: random.Random) -> None:
    """Move a part of a cluster's objects, by name, to what they are in another cluster."""
    target = {_name(obj): obj for obj in world.objects}
    share = chance.choice((0.05, 0.3, 1.0))
    for name in sorted({*target, *objects}):
        if chance.random() < share:
            if name in target:
                objects[name] = target[name]
            else:
                del objects[name]


# A life that fails is too large to be made small; the seeds make it come again.
@settings(parent=LAW, max_examples=300, phases=(Phase.generate,))
@given(st.lists(worlds(), min_size=2, max_size=4), st.integers(0, 2**32))
def test_changes_lead_to_the_picture_of_a_whole_reading(found: list[World], seed: int):
    """What is derived from changes alone is at each moment what is derived from the cluster whole.

    Objects come, change and go, sources are down for a while, time passes, and the memory is that of the same life.
    """
    chance, rules, objects, now = random.Random(seed), Rules(), dict[Name, Json](), NOW
    life, deriver, memory = Life(rules), Deriver(rules), Memory()
    for world in [*found, *found]:
        _towards(world, objects, chance)
        life.backwards = chance.choice((False, True))
        changes, cluster = life.read(objects.values(), chance.choice(OUTAGES), world.count)
        now += chance.choice(PAUSES)
        picture = deriver.apply(changes, now)
        whole, memory = derive(cluster, rules, memory, now)
        assert told(Seen(picture, deriver.memory())) == told(Seen(whole, memory))
        assert vars_of(picture.summary) == vars_of(whole.summary)


TRAIN, IN_WL = of_group("train"), of_workload("wl")
LIVES: dict[str, list[list[Json]]] = {
    "the pods that one name held are gone when another joins it to a second": [
        [new("old", TRAIN), new("k0", IN_WL), new("k1", IN_WL)],
        [new("k0", IN_WL), new("k1", IN_WL), new("both", TRAIN + IN_WL)],
        [new("k0", IN_WL), new("k1", IN_WL), new("both", TRAIN + IN_WL), new("late", TRAIN), pod_group("train", 2)],
    ],
    "a PodGroup is made after its pods, and is gone before them": [
        [ready("w0", TRAIN, "n0"), ready("w1", TRAIN, "n1")],
        [ready("w0", TRAIN, "n0"), ready("w1", TRAIN, "n1"), pod_group("train", 2)],
        [ready("w0", TRAIN, "n0"), ready("w1", TRAIN, "n1")],
    ],
    "a Workload is made after its pods, finishes, and is gone before them": [
        [ready("w0", IN_WL, "n0")],
        [ready("w0", IN_WL, "n0"), workload("wl", ("JobSet", "js"), podset(2), admitted=500)],
        [ready("w0", IN_WL, "n0"), workload("wl", ("JobSet", "js"), podset(2), admitted=500, finished=10)],
        [ready("w0", IN_WL, "n0")],
    ],
    "a pod of the same name belongs to another gang": [
        [pod_group("train", 2), pod_group("other", 2), ready("w0", TRAIN, "n0"), new("w1", TRAIN)],
        [pod_group("train", 2), pod_group("other", 2), ready("w0", of_group("other"), "n0"), new("w1", TRAIN)],
        [pod_group("train", 2), pod_group("other", 2), ready("w0", LONE, "n0"), new("w1", TRAIN)],
    ],
    "the Job that makes its Workload a gang comes late": [
        [workload("wl", ("Job", "etl"), podset(2), admitted=500), ready("w0", IN_WL, "n0")],
        [workload("wl", ("Job", "etl"), podset(2), admitted=500), ready("w0", IN_WL, "n0"), job("etl", 2, 2)],
        [workload("wl", ("Job", "etl"), podset(2), admitted=500), ready("w0", IN_WL, "n0"), job("etl", 2, 9)],
    ],
    "a second job takes the name of the first": [
        [workload("wl-a", ("JobSet", "train"), podset(2))],
        [workload("wl-a", ("JobSet", "train"), podset(2)), workload("wl-b", ("PyTorchJob", "train"), podset(2))],
        [workload("wl-b", ("PyTorchJob", "train"), podset(2))],
    ],
    "a node is lost and comes back": [
        [node("n0"), pod_group("train", 2), ready("w0", TRAIN, "n0"), ready("w1", TRAIN, "n0")],
        [pod_group("train", 2), ready("w0", TRAIN, "n0"), ready("w1", TRAIN, "n0")],
        [node("n0"), pod_group("train", 2), ready("w0", TRAIN, "n0"), ready("w1", TRAIN, "n0")],
    ],
    "the one that showed that nominations are written is bound": [
        [
            pod_group("train", 2),
            new("w0", TRAIN),
            permit_waiter("w1", TRAIN, "n0"),
            pod_group("b", 2),
            new("b0", of_group("b")),
        ],
        [
            pod_group("train", 2),
            new("w0", TRAIN),
            ready("w1", TRAIN, "n0"),
            pod_group("b", 2),
            new("b0", of_group("b")),
        ],
    ],
}


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("readings", LIVES.values(), ids=LIVES)
def test_changes_of_small_lives(readings: list[list[Json]], backwards: bool):
    """The same by hand: whatever comes first or goes first, the picture is that of what is there."""
    rules = Rules()
    life, deriver, memory = Life(rules, backwards=backwards), Deriver(rules), Memory()
    for step, objects in enumerate(readings):
        changes, cluster = life.read(objects)
        picture = deriver.apply(changes, NOW + 15 * step)
        whole, memory = derive(cluster, rules, memory, NOW + 15 * step)
        assert told(Seen(picture, deriver.memory())) == told(Seen(whole, memory))


def test_time_alone_changes_what_it_must():
    """Nothing changes but the time: a node turns lost, a deletion outlasts its grace, a gang its patience."""
    objects = [
        node("n0", ready_status="Unknown", since=10),
        node("n1"),
        pod_group("train", 2),
        ready("w0", TRAIN, "n0"),
        bound("w1", TRAIN, "n1", since=5),
        terminating(ready("plain", LONE, "n1", gpus=1), began=10, grace=120),
    ]
    rules = Rules()
    life, deriver = Life(rules), Deriver(rules)
    changes, cluster = life.read(objects)
    deriver.apply(changes, NOW)
    for later in (1, 49, 50, 51, 55, 56, 57, 109, 110, 111, 500):
        picture = deriver.apply(Changes(), NOW + later)
        whole, _ = derive(cluster, rules, Memory(), NOW + later)
        assert told(Seen(picture, deriver.memory())) == told(Seen(whole, deriver.memory()))


def test_attention_ends_after_a_pause_of_the_check():
    """A gang needed attention when the check last looked, over 15 minutes ago, and runs now: it needs none."""
    rules = Rules()
    life, deriver = Life(rules), Deriver(rules)
    nodes = [node("n0"), node("n1")]
    incomplete = [*nodes, pod_group("train", 2), ready("w0", TRAIN, "n0")]
    complete = [*incomplete, ready("w1", TRAIN, "n1")]
    unready = [*incomplete, running("w1", TRAIN, "n1")]
    for objects, later, needs in ((incomplete, 0, True), (complete, 901, False), (unready, 916, False)):
        changes, _ = life.read(objects)
        (gang,) = deriver.apply(changes, NOW + later).gangs
        assert gang.attention is needs


def vars_of(summary: Any) -> dict[str, Any]:
    """Return the fields of a summary without zeros."""
    return {
        name: {key: value for key, value in getattr(summary, name).items() if value}
        for name in summary.__dataclass_fields__
    }


@LAW
@given(worlds(), st.sampled_from(OUTAGES), st.sampled_from(PAUSES))
def test_a_check_that_is_restarted_sees_the_same(world: World, unread: dict[str, str], pause: int):
    """Handed over with its memory to another check, the cluster looks the same at the next moment."""
    rules = Rules()
    life, deriver = Life(rules), Deriver(rules)
    changes, cluster = life.read(world.objects, unread, world.count)
    deriver.apply(changes, NOW)
    moved = Deriver(rules, deriver.memory())
    nothing = Changes(scheduler=world.count, unread=unread)
    stayed = told(Seen(deriver.apply(nothing, NOW + pause), deriver.memory()))
    assert told(Seen(moved.apply(Changes.of(cluster), NOW + pause), moved.memory())) == stayed
