# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""How far Workloads are and for how long: the conditions that Kueue writes, and what they mean at each step.

A Workload counts whether it is a gang or not. Times are seconds before now, as in `build`.
"""

from typing import Any

import pytest

from datadog_checks.kueue_gang.derive.picture import Workloads
from tests.model.build import (
    NOW,
    TEAM,
    WORKLOADS,
    Json,
    bound,
    condition,
    gated,
    labelled,
    local_queue,
    look,
    node,
    of_lws,
    of_slice,
    of_workload,
    podset,
    ready,
    succeeded,
    workload,
)
from tests.model.life import Life, told

STAGE = tuple[str, float | None]
PREEMPTED = ("True", 100, "Preempted")


def wl(name: str = "wl", owner: tuple[str, str] | None = ("JobSet", "js"), count: int = 2, **more: Any) -> Json:
    """Return a Workload that was created 900 s ago."""
    return workload(name, owner, podset(count), **{"created": 900, **more})


def with_conditions(obj: Json, *conditions: Json) -> Json:
    """Return a Workload with more conditions."""
    obj["status"]["conditions"] += conditions
    return obj


def timeless(obj: Json) -> Json:
    """Return a Workload whose conditions have no times."""
    for one in obj["status"]["conditions"]:
        del one["lastTransitionTime"]
    return obj


def workloads(*objects: Json, **options: Any) -> Workloads:
    """Return what is told of the Workloads of a cluster."""
    found = look(*objects, local_queue("lq", "cq"), **options).picture.workloads
    assert found is not None
    return found


def stages(*objects: Json) -> dict[str, list[float]]:
    """Return the ages by stage, oldest first; a Workload without an age counts, too."""
    found = workloads(*objects)
    ages = {stage: [NOW - since for since in times.values()] for (*_, stage), times in found.clocks.items()}
    assert all(number >= len(ages.get(stage, [])) for (*_, stage), number in found.stages.items())
    return {stage: sorted(ages.get(stage, []), reverse=True) for (*_, stage), _ in found.stages.items()}


CASES: list[tuple[str, Json, STAGE]] = [
    # --- before the admission
    ("a new one may have no conditions", wl(), ("pending", 900)),
    ("QuotaReserved False says why it waits", with_conditions(wl(), condition("QuotaReserved", "False", 50)),
     ("pending", 900)),
    ("quota without admission: checks are open", wl(reserved=300), ("quota_reserved", 300)),
    ("PodsReady False is no stage of a pending one", wl(pods_ready=("False", 899, "WaitForStart")), ("pending", 900)),
    # --- evicted and requeued: Evicted stays True
    ("the instant of the eviction", wl(admitted=300, evicted=PREEMPTED), ("evicting", 100)),
    ("evicted with quota, before admission", wl(reserved=300, evicted=("True", 100, "AdmissionCheck")),
     ("evicting", 100)),
    ("evicted, waits", with_conditions(wl(evicted=PREEMPTED), condition("QuotaReserved", "False", 99)),
     ("pending", 100)),
    ("evicted and requeued, waits", wl(evicted=PREEMPTED, requeued=("True", 98, "Preempted")), ("pending", 98)),
    ("evicted, backs off", wl(evicted=("True", 100, "PodsReadyTimeout"), requeued=("False", 99, "PodsReadyTimeout")),
     ("pending", 100)),
    ("the backoff is over", wl(evicted=("True", 100, "PodsReadyTimeout"), requeued=("True", 40, "BackoffFinished")),
     ("pending", 40)),
    ("an eviction after a requeue", wl(evicted=PREEMPTED, requeued=("True", 500, "Preempted")), ("pending", 100)),
    ("quota again", wl(reserved=50, evicted=("False", 50, "QuotaReserved"), requeued=("True", 98, "Preempted")),
     ("quota_reserved", 50)),
    # --- admitted
    ("admitted, PodsReady absent is unknown", wl(admitted=300), ("admitted", 300)),
    ("admitted, starts", wl(admitted=300, pods_ready=("False", 900, "WaitForStart")), ("admitted", 300)),
    ("admitted again; PodsReady is of before", wl(admitted=50, pods_ready=("False", 800, "WaitForStart")),
     ("admitted", 50)),
    ("ready", wl(admitted=300, pods_ready=("True", 250, "Started")), ("ready", 250)),
    ("ready, before Kueue 0.11", wl(admitted=300, pods_ready=("True", 250, "PodsReady")), ("ready", 250)),
    ("lost a pod", wl(admitted=300, pods_ready=("False", 60, "WaitForRecovery")), ("admitted", 60)),
    ("recovered", wl(admitted=300, pods_ready=("True", 30, "Recovered")), ("ready", 30)),
    ("a recovery of the admission before", wl(admitted=50, pods_ready=("False", 800, "WaitForRecovery")),
     ("admitted", 50)),
    # --- deactivated: it waits for nobody, and has no age
    ("deactivated before it had quota", wl(active=False), ("deactivated", None)),
    ("deactivated and evicted", wl(active=False, evicted=("True", 100, "DeactivatedDueToRequeuingLimitExceeded")),
     ("deactivated", None)),
    ("deactivated, pods are torn down", wl(active=False, admitted=300, evicted=("True", 100, "Deactivated")),
     ("evicting", 100)),
    ("deactivated a moment ago, still runs", wl(active=False, admitted=300), ("deactivated", None)),
    ("active is the default", wl(active=True), ("pending", 900)),
    # --- conditions without times
    ("admitted, nobody knows when", timeless(wl(admitted=300)), ("admitted", None)),
    ("evicted, nobody knows when", timeless(wl(evicted=PREEMPTED)), ("pending", 900)),
    ("ready, nobody knows when", timeless(wl(admitted=300, pods_ready=("True", 250, "Started"))), ("ready", None)),
]  # fmt: skip


@pytest.mark.parametrize(("obj", "stage"), [pytest.param(obj, stage, id=name) for name, obj, stage in CASES])
def test_stage_and_age(obj: Json, stage: STAGE) -> None:
    """Running is Admitted and neither Finished nor Evicted; an age runs from when the stage was reached."""
    name, age = stage
    assert stages(obj) == {name: [] if age is None else [age]}


@pytest.mark.parametrize(
    "obj",
    [
        wl(admitted=300, finished=20),
        wl(admitted=300, finished=20, pods_ready=("True", 250, "Started")),
        wl(evicted=PREEMPTED, finished=20),
        wl(active=False, finished=20),
    ],
)
def test_a_finished_one_is_over(obj: Json) -> None:
    """Admitted stays True after Finished, and Kueue keeps finished Workloads for ever: they are in no stage."""
    assert stages(obj) == {}


def test_each_counts_once() -> None:
    """Two of one queue are two; the age is that of the older one; another queue is another series."""
    found = workloads(wl("one"), wl("two", created=300), wl("three", queue="other", cluster_queue="cq2", admitted=100))
    assert found.stages == {(TEAM, "lq", "cq", "pending"): 2, (TEAM, "other", "cq2", "admitted"): 1}
    assert sorted(NOW - since for since in found.clocks[TEAM, "lq", "cq", "pending"].values()) == [300, 900]


def test_queues_that_do_not_exist() -> None:
    """A Workload of a missing LocalQueue is seen by no metric of Kueue's; here it is one without a ClusterQueue."""
    assert workloads(wl(queue="gone")).stages == {(TEAM, "gone", "none", "pending"): 1}
    assert workloads(wl(queue="")).stages == {(TEAM, "none", "none", "pending"): 1}


# --- Workloads that must not be counted twice ------------------------------------------------------------------------


def test_variants_of_a_concurrent_admission() -> None:
    """The parent counts; its variants, which a Workload owns, do not."""
    parent = wl("parent", labels={"kueue.x-k8s.io/concurrent-admission-parent": "true"}, admitted=300)
    variants = [wl(f"variant-{flavor}", ("Workload", "parent"), admitted=300) for flavor in ("a", "b")]
    assert stages(parent, *variants) == {"admitted": [300]}


def test_slices_of_an_elastic_job() -> None:
    """Scaling up makes a new slice, and finishes the old one: one Workload."""
    named = {"kueue.x-k8s.io/workload-slice-name": "js"}
    replaced = {**named, "kueue.x-k8s.io/workload-slice-replacement-for": f"{TEAM}/old"}
    old = wl("old", admitted=800, finished=20, annotations=named)
    assert stages(old, wl("new", admitted=20, annotations=replaced)) == {"admitted": [20]}


def test_groups_of_a_leader_worker_set() -> None:
    """One Workload a group."""
    groups = [
        wl(f"lws-{index}", ("LeaderWorkerSet", "lws"), controls=False, admitted=300 - 100 * index,
           annotations={"kueue.x-k8s.io/component-workload-index": str(index)})
        for index in range(2)
    ]  # fmt: skip
    assert stages(*groups) == {"admitted": [300, 200]}


def test_pods_of_a_deployment() -> None:
    """One Workload a pod, of which none is a gang."""
    pods = [wl(f"pod-web-{number}", ("Pod", f"web-{number}"), count=1, admitted=300) for number in range(3)]
    seen = look(*pods, local_queue("lq", "cq"))
    assert seen.names == set()
    assert stages(*pods) == {"admitted": [300, 300, 300]}


# --- admitted, and no pod exists -------------------------------------------------------------------------------------


HERE = of_workload("wl")
WITHOUT: list[tuple[str, list[Json], int]] = [
    ("beyond the grace of 60 s", [wl(admitted=61)], 1),
    ("within the grace", [wl(admitted=60)], 0),
    ("not admitted", [wl(reserved=300)], 0),
    ("evicted", [wl(admitted=300, evicted=PREEMPTED)], 0),
    ("finished", [wl(admitted=300, finished=20)], 0),
    ("nobody knows since when", [timeless(wl(admitted=300))], 0),
    ("a pod that pulls its image", [wl(admitted=300), bound("a", HERE, "n0")], 0),
    ("a gated pod", [wl(admitted=300), gated("a", HERE)], 0),
    ("a pod that has succeeded", [wl(admitted=300), succeeded("a", HERE, "n0")], 0),
    ("a pod of another Workload", [wl(admitted=300), ready("a", of_workload("other"), "n0")], 1),
    ("a pod of nothing", [wl(admitted=300), ready("a", labelled(app="web"), "n0")], 1),
    ("MultiKueue runs the pods elsewhere", [wl(admitted=300, cluster_name="worker")], 0),
    ("its variants have the pods",
     [wl(admitted=300, labels={"kueue.x-k8s.io/concurrent-admission-parent": "true"})], 0),
    ("an elastic job, whose pods name the slice",
     [wl(admitted=300, annotations={"kueue.x-k8s.io/workload-slice-name": "js"}), ready("a", of_slice("js"), "n0")], 0),
    ("a group of a LeaderWorkerSet",
     [wl("lws-1", ("LeaderWorkerSet", "lws"), controls=False, admitted=300,
         annotations={"kueue.x-k8s.io/component-workload-index": "1"}),
      ready("a", of_lws("lws", 1, 2) + of_workload("lws-1"), "n0")], 0),
]  # fmt: skip


@pytest.mark.parametrize(("objects", "number"), [pytest.param(obj, n, id=name) for name, obj, n in WITHOUT])
def test_without_pods(objects: list[Json], number: int) -> None:
    """A Workload that is admitted for longer than the grace, and of which no pod exists here."""
    assert sum(workloads(node("n0", 64), *objects).without_pods.values()) == number


def test_the_grace_ends_by_time_alone() -> None:
    """Nothing changes but the time: the Workload is told as without pods when its grace is over, and no more after."""
    life, obj = Life(), wl(admitted=300)
    for seconds, number in ((299, 0), (240, 0), (239, 1), (100, 1)):
        found = life.look(seconds, obj).workloads
        assert found is not None
        assert sum(found.without_pods.values()) == number
    found = life.look(50, obj, ready("a", HERE, "n0", since=60)).workloads
    assert found is not None
    assert sum(found.without_pods.values()) == 0


def test_workloads_that_are_not_read_are_not_told() -> None:
    """Unknown is not zero: without Workloads nothing is told, and without pods not how many lack pods."""
    assert look(node("n0"), unread={WORKLOADS: "forbidden"}).picture.workloads is None
    found = workloads(wl(admitted=300), unread={"pods": "unreachable"})
    assert found.stages == {(TEAM, "lq", "cq", "admitted"): 1}
    assert found.without_pods == {}


# --- stages that are reached -----------------------------------------------------------------------------------------


REACHED: list[tuple[str, list[Json], dict[str, list[float]]]] = [
    ("step by step", [wl(), wl(reserved=300), wl(reserved=300, admitted=200),
                      wl(reserved=300, admitted=200, pods_ready=("True", 150, "Started"))],
     {"quota_reserved": [600], "admitted": [100], "ready": [50]}),
    ("at once", [wl(), wl(reserved=300, admitted=200, pods_ready=("True", 150, "Started"))],
     {"quota_reserved": [600], "admitted": [100], "ready": [50]}),
    ("first seen with quota", [wl(reserved=300), wl(reserved=300, admitted=200)], {"admitted": [100]}),
    ("quota after an eviction", [wl(evicted=PREEMPTED), wl(reserved=40, evicted=("False", 40, "QuotaReserved"))],
     {"quota_reserved": [60]}),
    ("quota after a requeue", [wl(evicted=PREEMPTED),
                               wl(evicted=PREEMPTED, requeued=("True", 70, "BackoffFinished")),
                               wl(reserved=40, evicted=("False", 40, "QuotaReserved"),
                                  requeued=("True", 70, "BackoffFinished"))], {"quota_reserved": [30]}),
    ("the same, and the versions in between were not seen",
     [wl(admitted=300, pods_ready=("True", 250, "Started")),
      wl(reserved=40, evicted=("False", 40, "QuotaReserved"), requeued=("True", 70, "BackoffFinished"))],
     {"quota_reserved": [30]}),
    ("a readiness of the admission before", [wl(), wl(admitted=100, pods_ready=("True", 500, "Started"))],
     {"quota_reserved": [800], "admitted": [0]}),
    ("lost and recovered", [wl(admitted=300, pods_ready=("True", 250, "Started")),
                            wl(admitted=300, pods_ready=("False", 100, "WaitForRecovery")),
                            wl(admitted=300, pods_ready=("True", 50, "Recovered"))], {}),
    ("a reason that changes is no transition", [wl(admitted=300, pods_ready=("True", 250, "Started")),
                                                wl(admitted=300, pods_ready=("True", 250, "PodsReady"))], {}),
    ("finished", [wl(), wl(admitted=300, finished=20, pods_ready=("True", 250, "Started"))], {}),
    ("times that go back are no time", [wl(created=100), wl(created=100, reserved=130, admitted=140)],
     {"quota_reserved": [0], "admitted": [0]}),
    ("conditions without times", [wl(), timeless(wl(admitted=300, pods_ready=("True", 250, "Started")))], {}),
    ("a variant stands for its parent", [wl("v", ("Workload", "p")), wl("v", ("Workload", "p"), admitted=300)], {}),
]  # fmt: skip


@pytest.mark.parametrize(("versions", "seconds"), [pytest.param(obj, s, id=name) for name, obj, s in REACHED])
@pytest.mark.parametrize("watched", [True, False], ids=["each", "last"])
def test_stages_that_are_reached(versions: list[Json], seconds: dict[str, list[float]], watched: bool) -> None:
    """One sample a transition, from the stage before, whether one picture shows each version or they come together."""
    life, samples = Life(), dict[str, list[float]]()
    life.look(30, versions[0])
    later = [(obj, ()) for obj in versions[1:]] if watched else [(versions[-1], tuple(versions[1:-1]))]
    for number, (obj, between) in enumerate(later, 1):
        for stage, found in told(life.look(30 - number, obj, between=between)).get("stages", {}).items():
            samples.setdefault(stage, []).extend(found)
    assert samples == seconds
