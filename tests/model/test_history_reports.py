# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Public reports of people who run gangs, as lives of a gang: what is counted of them, and how long things took.

`test_field_reports` has the same reports as single pictures.
"""

from collections.abc import Callable
from itertools import cycle, islice

import pytest

from datadog_checks.kueue_gang.derive.picture import Picture
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.derive.stages import evictions
from datadog_checks.kueue_gang.facts.evictions import CAUSES, REASONS
from tests.model.build import (
    GPU,
    NO_GPU,
    OPTIMISTIC,
    PLAIN_NO_GPU,
    SIBLINGS,
    TEAM,
    TIMEOUT,
    UNRESERVE,
    WORKLOADS,
    Json,
    bound,
    condition,
    gated,
    native_group,
    new,
    of_group,
    of_native,
    of_workload,
    permit_waiter,
    pod_group,
    podset,
    ready,
    reducers,
    unscheduled,
    workload,
)
from tests.model.life import Life, gang, happened, told

#: What the first gang schedulers say of a group that was turned away a moment ago.
DENIED = "pod with pgName train last failed in 3s, deny"
QUEUE = (TEAM, "none", "none", "coscheduling")


def members(number: int, make: Callable[..., Json] = unscheduled, *rest: str, first: int = 0) -> list[Json]:
    """Return members of a group of Coscheduling, each made the same way."""
    return [make(f"train-{rank}", of_group("train"), *rest, created=600) for rank in range(first, first + number)]


def oldest(picture: Picture) -> dict[str, float]:
    """Return the longest wait of Workloads by stage."""
    assert picture.workloads is not None
    return {stage: picture.now - min(times.values()) for (*_, stage), times in picture.workloads.clocks.items()}


# --- asks and pain ---------------------------------------------------------------------------------------------------


def test_b3_scheduler_plugins_361_446_562() -> None:
    """`status.scheduled` only grew: a gang of 8 of which five run is partial, and never was assembled."""
    life = Life()
    for seconds in (60, 45, 30):
        group = pod_group("train", 8, phase="Running", scheduled=15, running=5)
        picture = life.look(seconds, group, *members(5, ready, "n0"))
        assert told(picture) == {}
        assert (gang(picture).state, gang(picture).missing) == ("partial", 3)


def test_b10_mpi_operator_608() -> None:
    """The launcher is counted and comes only after the workers run: rejected for missing members, once a text."""
    life, group = Life(), pod_group("train", 5)
    life.look(60, group, *members(4, new))
    assert told(life.look(45, group, *members(4, unscheduled, SIBLINGS))) == {"rejected": {"missing_members": 1}}
    picture = life.look(30, group, *members(4, unscheduled, SIBLINGS))
    assert told(picture) == {}
    assert picture.verdicts.blockers[gang(picture).key] == "missing_pods"


def test_b13_kueue_10124_6496() -> None:
    """The age of those that still wait, from the last requeue or eviction, else from creation: at most 9000 s."""
    picture = Life().look(
        0,
        workload("one", ("JobSet", "a"), podset(2), created=60),
        workload("two", ("JobSet", "b"), podset(2), created=20_000, requeued=("True", 600, "Preempted")),
        workload("three", ("JobSet", "c"), podset(2), created=20_000, evicted=("True", 9000, "Preempted")),
    )
    assert oldest(picture) == {"pending": 9000}
    assert picture.workloads is not None
    assert sum(picture.workloads.stages.values()) == 3
    assert sorted(picture.now - since for since in picture.workloads.clocks[TEAM, "lq", "cq", "pending"].values()) == [
        60,
        600,
        9000,
    ]


@pytest.mark.parametrize("seen_before", [True, False])
def test_b17_kueue_8596(seen_before: bool) -> None:
    """In 0.15.x a finished Workload turns its conditions to False with new times: it gives no sample and no stage."""
    life = Life()
    running = workload("wl", ("JobSet", "js"), podset(2), admitted=300, pods_ready=("True", 200, "Started"))
    life.look(60, *([running] if seen_before else []))
    finished = workload("wl", ("JobSet", "js"), podset(2), finished=50, pods_ready=("False", 50, "WaitForStart"))
    finished["status"]["conditions"] += [condition(kind, "False", 50) for kind in ("QuotaReserved", "Admitted")]
    picture = life.look(45, finished)
    assert told(picture) == {}
    assert oldest(picture) == {}
    assert told(life.look(30, finished)) == told(life.look(15)) == {}


@pytest.mark.parametrize("restarted", [True, False])
def test_b18_kueue_14638_14637(restarted: bool) -> None:
    """A loss and the recovery are neither an assembly nor a first readiness, also for a check that began meanwhile."""

    def wl(status: str, since: float, reason: str) -> Json:
        return workload(
            "wl", ("JobSet", "js"), podset(2), created=2000, admitted=900, pods_ready=(status, since, reason)
        )

    life = Life()
    one = ready("a", of_workload("wl"), "n0", since=890, created=895)
    other = ready("b", of_workload("wl"), "n1", since=880, created=895)
    life.look(100, wl("True", 880, "Started"), one, other)
    lost = bound("c", of_workload("wl"), "n1", since=85, created=88)
    if restarted:
        life.restart()
    picture = life.look(80, wl("False", 90, "WaitForRecovery"), one, lost)
    assert told(picture) == {}
    assert gang(picture).state == "degraded"
    # It waits since it lost a pod, not since it was admitted.
    assert oldest(picture) == {"admitted": 10}
    recovered = ready("c", of_workload("wl"), "n1", since=85, ready_since=60, created=88)
    picture = life.look(50, wl("True", 60, "Recovered"), one, recovered)
    assert told(picture) == {}
    assert oldest(picture) == {"ready": 10}


def test_b19_dcgm_exporter_342() -> None:
    """GPUs are allocated by request: those of a gang that runs are busy, whatever no exporter says of their pods."""
    life, group = Life(), pod_group("train", 2)
    running = members(2, ready, "n0")
    life.look(60, group, *running)
    gpus = life.look(45, group, *running).gpus
    assert {use: amount for (_, resource, use), amount in gpus.allocated.items() if resource == GPU} == {"busy": 16}
    assert not gpus.idle


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("Preempted", "preempted"),
        ("PodsReadyTimeout", "pods_ready_timeout"),
        ("AdmissionCheck", "admission_check"),
        ("ClusterQueueStopped", "cluster_queue_stopped"),
        ("LocalQueueStopped", "local_queue_stopped"),
        ("NodeFailures", "node_failures"),
        ("FlavorMigration", "flavor_migration"),
        ("Deactivated", "deactivated"),
        ("InactiveWorkload", "deactivated"),
        ("DeactivatedDueToRequeuingLimitExceeded", "deactivated"),
        ("NewInSomeRelease", "other"),
    ],
)
def test_b36_kueue_10613_reasons(reason: str, word: str) -> None:
    """Each reason of an eviction in the word of the tag; one of a later release is `other`."""
    assert evicted(reason, "WaitForStart")[0] == word
    assert word in REASONS


@pytest.mark.parametrize(
    ("cause", "word"),
    [
        ("WaitForStart", "wait_for_start"),
        ("WaitForRecovery", "wait_for_recovery"),
        ("AdmissionCheck", "admission_check"),
        ("MaximumExecutionTimeExceeded", "maximum_execution_time_exceeded"),
        ("RequeuingLimitExceeded", "requeuing_limit_exceeded"),
        ("EvictedOnManagerCluster", "evicted_on_manager_cluster"),
        ("NewInSomeRelease", "other"),
    ],
)
def test_b36_kueue_10613_causes(cause: str, word: str) -> None:
    """And each cause, which is `none` where there is none; DeactivatedDueTo names it in the reason."""
    assert evicted("PodsReadyTimeout", cause)[1] == word
    assert evicted(f"DeactivatedDueTo{cause}", "") == ("deactivated", word)
    assert evicted("Preempted", "") == ("preempted", "none")
    assert {word, "none"} <= set(CAUSES)


def evicted(reason: str, cause: str) -> tuple[str, str]:
    """Return reason and cause of an eviction that Kueue counts, in the words of the tags."""
    obj = workload("wl", ("JobSet", "js"), podset(2), evicted=("True", 60, reason))
    obj["status"]["schedulingStats"] = {"evictions": [{"reason": reason, "underlyingCause": cause, "count": 1}]}
    (found,) = evictions(None, reducers(Rules())[WORKLOADS](obj))
    return found.reason, found.cause


@pytest.mark.parametrize(
    ("reason", "ready_reason", "word", "cause"),
    [
        ("PodsReadyTimeout", "WaitForStart", "pods_ready_timeout", "wait_for_start"),
        ("PodsReadyTimeout", "WaitForRecovery", "pods_ready_timeout", "wait_for_recovery"),
        ("Preempted", "WaitForStart", "preempted", "none"),
        ("InactiveWorkload", "", "deactivated", "none"),
        ("DeactivatedDueToMaximumExecutionTimeExceeded", "", "deactivated", "maximum_execution_time_exceeded"),
    ],
)
def test_an_eviction_that_kueue_does_not_count(reason: str, ready_reason: str, word: str, cause: str) -> None:
    """Before 0.12 the condition is all there is; the cause of a timeout is what PodsReady waited for."""
    life = Life()
    ready_is = ("False", 300, ready_reason) if ready_reason else None
    life.look(100, workload("wl", ("JobSet", "js"), podset(2), admitted=300, pods_ready=ready_is))
    obj = workload("wl", ("JobSet", "js"), podset(2), admitted=300, pods_ready=ready_is, evicted=("True", 90, reason))
    (found,) = happened(life.look(85, obj)).evicted
    assert (found.reason, found.cause) == (word, cause)


# --- what schedulers do ----------------------------------------------------------------------------------------------


def test_row_5_scheduler_plugins_416() -> None:
    """Sibling counts, an old `deny` and an optimistic rejection in one gang of eight: one rejection, nothing burned."""
    life, group = Life(), pod_group("train", 8)
    life.look(60, group, *members(8, new))
    texts = [OPTIMISTIC, SIBLINGS, DENIED, *[OPTIMISTIC] * 5]
    turned_away = [unscheduled(f"train-{rank}", of_group("train"), text) for rank, text in enumerate(texts)]
    picture = life.look(45, group, *turned_away)
    assert told(picture) == {"rejected": {"postfilter": 1}}
    assert gang(picture).state == "rejected"
    assert gang(picture).allocated == {}


def test_row_6_scheduler_plugins_722_703() -> None:
    """Pods cycle for 20 minutes through timeout and Unreserve, with ample capacity: each cycle counts, once."""
    life, group, counted = Life(), pod_group("train", 4), 0
    life.look(1500, group, *members(4, new))
    for number in range(80):
        texts = [TIMEOUT if rank == number % 4 else UNRESERVE for rank in range(4)]
        turned_away = [unscheduled(f"train-{rank}", of_group("train"), text) for rank, text in enumerate(texts)]
        found = happened(life.look(1485 - 15 * number, group, *turned_away)).rejected
        assert {reason for _, reason in found} == {"permit_timeout"}
        counted += sum(found.values())
    assert counted == 80


@pytest.mark.parametrize("text", [PLAIN_NO_GPU, TIMEOUT])
def test_row_11_scheduler_plugins_293(text: str) -> None:
    """A nomination that stays for ever is no wait: no look counts it as one, and the gang is never assembled by it."""
    life, group = Life(), pod_group("train", 2, created=900)
    stuck = [unscheduled(f"train-{rank}", of_group("train"), text, nominated="n0") for rank in range(2)]
    for number in range(20):
        picture = life.look(500 - 15 * number, group, *stuck)
        assert told(picture) == {}
        assert "waiting_permit" not in gang(picture).classes
        assert gang(picture).reserved == {}


def test_row_11b_enhancements_5771() -> None:
    """A binding that fails leaves the nomination the first time, and clears it the second: no rejection of the gang."""
    life, group = Life(), pod_group("train", 2)
    other = ready("train-1", of_group("train"), "n1", since=500)
    text = 'binding rejected: running Bind plugin "DefaultBinder": Operation cannot be fulfilled'
    life.look(60, group, permit_waiter("train-0", of_group("train"), "n0"), other)
    for seconds, nominated in ((45, "n0"), (30, "")):
        failed = unscheduled("train-0", of_group("train"), text, nominated=nominated, reason="SchedulerError")
        picture = life.look(seconds, group, failed, other)
        assert told(picture) == {}
        assert "waiting_permit" not in gang(picture).classes
    bound_at_last = ready("train-0", of_group("train"), "n0", since=20)
    assert told(life.look(15, group, bound_at_last, other)) == {"assembled": {QUEUE: [580]}}


def test_row_12_scheduler_plugins_358_364_450() -> None:
    """A member that was made anew cannot find its siblings: one rejection, and no assembly when it is back."""
    life, group = Life(), pod_group("train", 4)
    rest = members(3, ready, "n0")
    life.look(60, group, *rest, ready("train-3", of_group("train"), "n1"))
    again = unscheduled("train-3b", of_group("train"), SIBLINGS, created=50, since=50)
    picture = life.look(45, group, *rest, again)
    assert told(picture) == {"rejected": {"missing_members": 1}}
    assert gang(picture).state == "degraded"
    assert told(life.look(30, group, *rest, ready("train-3b", of_group("train"), "n1", since=35, created=50))) == {}


def test_row_14_koordinator_1919() -> None:
    """A wait that the framework cuts at 15 minutes is a Permit timeout like any other."""
    life, group = Life(), pod_group("train", 2)
    life.look(60, group, *[permit_waiter(f"train-{rank}", of_group("train"), "n0", since=950) for rank in range(2)])
    text = TIMEOUT.replace("10s", "15m0s")
    assert told(life.look(45, group, *members(2, unscheduled, text))) == {"rejected": {"permit_timeout": 1}}


@pytest.mark.parametrize("name", ["PodGroupScheduled", "PodGroupInitiallyScheduled"])
def test_row_25_kubernetes_136334(name: str) -> None:
    """The condition stays True below minCount: degraded, so a check that starts now sees no assembly in its return."""
    life, group = Life(), native_group("train", 2, once=name)
    one = ready("train-0", of_native("train"), "n0", since=900, created=950)
    late = unscheduled("train-1", of_native("train"), NO_GPU, created=100)
    assert gang(life.look(60, group, one, late)).state == "degraded"
    back = ready("train-1", of_native("train"), "n1", since=50, created=100)
    assert told(life.look(45, group, one, back)) == {}


# --- gangs that flap -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [False, True])
def test_a_gang_that_flaps_has_one_clock(kept: bool) -> None:
    """Waiting, rejected, waiting, every 15 s for ten minutes: one clock, attention throughout, a text counts once.

    `kept`: the texts of the last rejection stay on the pods that wait again, as the scheduler leaves them; a rejection
    with the same text then leaves no trace. A check that starts in between has the same clock.
    """
    life, group, counted, ages = Life(), pod_group("train", 2, created=900), 0, []
    away = members(2, unscheduled, TIMEOUT)
    waiting = [permit_waiter(f"train-{rank}", of_group("train"), "n0") for rank in range(2)]
    if kept:
        waiting = [unscheduled(f"train-{rank}", of_group("train"), TIMEOUT, nominated="n0") for rank in range(2)]
    for number, pods in enumerate(islice(cycle((waiting, away)), 41)):
        if number == 20:
            life.restart()
        picture = life.look(600 - 15 * number, group, *pods)
        view = gang(picture)
        assert view.state in {"waiting", "rejected"}
        assert view.since is not None
        assert view.attention == (number > 4)
        ages.append(picture.now - view.since)
        rejections = sum(happened(picture).rejected.values())
        assert rejections <= 1
        counted += rejections
        assert told(picture).keys() <= {"rejected"}
    # The youngest required member is of 600 s ago, the group older.
    assert ages == [15 * number for number in range(41)]
    assert counted == (0 if kept else 20)


def test_gates_that_go_are_no_rejection() -> None:
    """SchedulingGated is a text, too, and the condition stays when the gates go."""
    life, group = Life(), pod_group("train", 2)
    life.look(60, group, *members(2, new))
    assert told(life.look(45, group, *members(2, gated))) == {}
