# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What happened between two pictures: assembly, rejections, evictions, stages, burned GPU-seconds.

Each case is a life of a gang in a few pictures. The first picture of a check tells nothing; a new check at any moment
(`restart`) neither repeats what has happened nor invents it.
"""

from collections import Counter
from typing import Any

import pytest

from datadog_checks.kueue_gang.derive.picture import Evicted
from tests.model.build import (
    NO_GPU,
    TEAM,
    TIMEOUT,
    Json,
    bound,
    job,
    of_group,
    of_workload,
    pod_group,
    podset,
    ready,
    succeeded,
    unscheduled,
    workload,
)
from tests.model.life import Life, gang, happened, told

GROUP = pod_group("train", 2, created=300)


def test_a_gang_assembles_once() -> None:
    """From its first member to the last one Ready; a loss and a recovery later are no assembly (kueue#14638)."""
    life = Life()
    assert told(life.look(200, GROUP)) == {}
    first = ready("a", of_group("train"), "n0", since=150, created=190)
    assert told(life.look(120, GROUP, first, unscheduled("b", of_group("train"), NO_GPU, created=190))) == {}
    second = ready("b", of_group("train"), "n1", since=100, created=190)
    picture = life.look(90, GROUP, first, second)
    assert told(picture) == {"assembled": {(TEAM, "none", "none", "coscheduling"): [90.0]}}
    assert told(life.look(75, GROUP, first, second)) == {}
    lost = life.look(60, GROUP, first, bound("c", of_group("train"), "n1", since=65, created=70))
    assert told(lost) == {}
    assert told(life.look(45, GROUP, first, ready("c", of_group("train"), "n1", since=50, created=70))) == {}


@pytest.mark.parametrize("moment", range(4))
def test_a_restart_repeats_nothing(moment: int) -> None:
    """With a new check before any of the looks an assembly is told once, or not at all where it fell into the gap."""
    life = Life()
    waiting = [unscheduled(name, of_group("train"), NO_GPU, created=190) for name in "ab"]
    running = [ready(name, of_group("train"), f"n{index}", since=100, created=190) for index, name in enumerate("ab")]
    looks = [(200, []), (120, waiting), (90, running), (75, running)]
    total = 0
    for index, (seconds, members) in enumerate(looks):
        if index == moment:
            life.restart()
        total += sum(map(len, happened(life.look(seconds, GROUP, *members)).assembled.values()))
    assert total == (0 if moment == 2 else 1)


def test_a_rejection_is_one_of_the_gang() -> None:
    """A Permit timeout turns all members away: the first reason of the table counts, once; the same text is no news."""
    life = Life()
    members = [unscheduled(name, of_group("train"), NO_GPU, created=190) for name in "ab"]
    assert told(life.look(100, GROUP, *members)) == {}
    away = [
        unscheduled("a", of_group("train"), TIMEOUT, created=190),
        unscheduled("b", of_group("train"), "rejection in Unreserve", created=190),
    ]
    assert told(life.look(85, GROUP, *away)) == {"rejected": {"permit_timeout": 1}}
    assert told(life.look(70, GROUP, *away)) == {}


def kueue(evictions: int = 0, **more: Any) -> Json:
    """Return the Workload of a gang of two, with Kueue's own count of evictions."""
    obj = workload("wl", ("JobSet", "js"), podset(2), **more)
    if evictions:
        counted = [{"reason": "PodsReadyTimeout", "underlyingCause": "WaitForStart", "count": evictions}]
        obj["status"]["schedulingStats"] = {"evictions": counted}
    return obj


TIMED_OUT = Evicted(TEAM, "lq", "cq", "pods_ready_timeout", "wait_for_start", "true")


@pytest.mark.parametrize("counted", [0, 1])
def test_an_eviction_that_is_cleared_within_one_interval_counts(counted: int) -> None:
    """Evicted and requeued between two looks: the watch hands every version; half of the gang was placed."""
    life = Life()
    half = (bound("a", of_workload("wl"), "n0", since=150, created=190), unscheduled("b", of_workload("wl"), NO_GPU))
    life.look(200, kueue(admitted=None))
    assert "evicted" not in told(life.look(120, kueue(admitted=180), *half))
    evicted = kueue(
        counted, admitted=180, evicted=("True", 110, "PodsReadyTimeout"), pods_ready=("False", 180, "WaitForStart")
    )
    picture = life.look(105, kueue(counted, admitted=None), between=(evicted,))
    assert happened(picture).evicted == Counter({TIMED_OUT: 1})
    assert told(life.look(90, kueue(counted, admitted=None))) == {}


def test_an_eviction_of_a_gang_that_ran() -> None:
    """It ran: gang_partial is false, and nothing was burned."""
    life = Life()
    life.look(200, kueue(admitted=None))
    members = [ready(name, of_workload("wl"), f"n{index}", since=100, created=170) for index, name in enumerate("ab")]
    ran = life.look(90, kueue(admitted=180), *members)
    assert told(ran)["assembled"] == {(TEAM, "lq", "cq", "kueue"): [80.0]}
    evicted = kueue(admitted=180, evicted=("True", 80, "Preempted"))
    found = told(life.look(75, evicted, *members))
    assert found == {"evicted": {Evicted(TEAM, "lq", "cq", "preempted", "none", "false"): 1}}


def test_what_an_attempt_burned() -> None:
    """A pod of 8 GPUs is bound for 40 s when its Workload is evicted, and its gang never ran: 320 GPU-seconds."""
    life = Life()
    life.look(200, kueue(admitted=None))
    half = (bound("a", of_workload("wl"), "n0", since=150, created=190, gpus=8),)
    life.look(120, kueue(admitted=180), *half)
    found = told(life.look(105, kueue(1, admitted=180, evicted=("True", 110, "PodsReadyTimeout")), *half))
    assert found["burned"] == {"evicted": 8 * 40}


def test_stages_take_their_time() -> None:
    """Created 190 s ago, quota 150 s ago, admitted 140 s, ready 100 s: 40, 10 and 40 seconds, each told once."""
    life = Life()
    assert told(life.look(180, kueue(created=190))) == {}
    first = life.look(135, kueue(created=190, reserved=150, admitted=140))
    assert told(first) == {"stages": {"quota_reserved": [40.0], "admitted": [10.0]}}
    last = life.look(90, kueue(created=190, reserved=150, admitted=140, pods_ready=("True", 100, "Started")))
    assert told(last) == {"stages": {"ready": [40.0]}}
    recovered = kueue(created=190, reserved=150, admitted=140, pods_ready=("True", 80, "Recovered"))
    assert told(life.look(75, recovered)) == {}


# --- what only seems to happen ---------------------------------------------------------------------------------------


HALF = (
    bound("a", of_group("train"), "n0", since=150, created=190),
    unscheduled("b", of_group("train"), NO_GPU, created=190),
)
DOWN = {"podgroups.scheduling.x-k8s.io": "unreachable"}


def test_what_holds_on_after_an_eviction_burns_nothing_more() -> None:
    """The pods of an evicted attempt may outlive its last picture: the next admission does not count them again.

    8 GPUs from 150 to 110 s ago; the second attempt is that of other pods.
    """
    life = Life()
    life.look(200, kueue(admitted=None))
    half = (bound("a", of_workload("wl"), "n0", since=150, created=190),)
    life.look(120, kueue(admitted=180), *half)
    evicted = life.look(105, kueue(1, admitted=180, evicted=("True", 110, "PodsReadyTimeout")), *half)
    assert told(evicted)["burned"] == {"evicted": 8 * 40}
    again = (bound("c", of_workload("wl"), "n0", since=92, created=95),)
    assert "burned" not in told(life.look(90, kueue(1, admitted=95, evicted=("False", 95, "QuotaReserved")), *again))


def test_what_is_burned_ends_with_the_eviction() -> None:
    """Whenever it is seen: bound 150 s ago, evicted 110 s ago and admitted again 100 s ago, seen 60 s ago.

    The eviction itself is over, so the next admission is when the attempt was over for certain: 50 s.
    """
    life = Life()
    life.look(200, kueue(admitted=None))
    life.look(120, kueue(admitted=180), bound("a", of_workload("wl"), "n0", since=150, created=190))
    again = kueue(1, admitted=100, evicted=("False", 100, "QuotaReserved"))
    assert told(life.look(60, again))["burned"] == {"evicted": 8 * 50}


def test_a_partial_gang_that_gives_up() -> None:
    """A Coscheduling gang whose bound member goes, with a part left that waits: rejected, 8 GPUs for 70 s."""
    life = Life()
    life.look(200, GROUP)
    life.look(120, GROUP, *HALF)
    assert told(life.look(80, GROUP, HALF[1])) == {"burned": {"rejected": 8 * 70}}
    assert told(life.look(65, GROUP, HALF[1])) == {}


def test_a_partial_gang_that_is_deleted() -> None:
    """PodGroup and pods are gone: its attempt ends with the run that sees it."""
    life = Life()
    life.look(200, GROUP)
    life.look(120, GROUP, *HALF)
    assert told(life.look(80)) == {"burned": {"deleted": 8 * 70}}


def test_a_gang_that_ran_and_ended_between_two_pictures_burned_nothing() -> None:
    """It was starting, and all members have succeeded since: its GPUs were not held in vain."""
    life = Life()
    life.look(200, GROUP)
    starting = [bound(name, of_group("train"), "n0", since=150, created=190) for name in "ab"]
    assert told(life.look(145, GROUP, *starting)) == {}
    done = [succeeded(name, of_group("train"), "n0", since=150, created=190) for name in "ab"]
    assert told(life.look(130, GROUP, *done)) == {}
    assert told(life.look(115)) == {}


def test_a_workload_that_finished_between_two_pictures_burned_nothing() -> None:
    """The same of a gang of Kueue, whether its pods are still there or not."""
    life = Life()
    life.look(200, kueue(admitted=None))
    life.look(120, kueue(admitted=180), bound("a", of_workload("wl"), "n0", since=150, created=190))
    assert told(life.look(105, kueue(admitted=180, finished=110))) == {}
    assert told(life.look(90)) == {}


@pytest.mark.parametrize("down", [DOWN, {"pods": "unreachable"}, {**DOWN, "pods": "stale"}])
@pytest.mark.parametrize("members", [HALF, ()])
def test_a_source_that_is_down_is_no_transition(down: dict[str, str], members: tuple[Json, ...]) -> None:
    """Where PodGroups or pods cannot be read for a while, no gang is rejected, deleted, or assembled anew."""
    life = Life()
    life.look(200, GROUP)
    life.look(120, GROUP, *HALF)
    assert told(life.look(105, GROUP, *members, unread=down)) == {}
    assert told(life.look(90, GROUP, *HALF)) == {}
    assert gang(life.look(75, GROUP, *HALF)).state == "partial"


def test_workloads_that_are_down_are_no_transition() -> None:
    """Workloads that come back with an eviction which fell into the gap: it is lost, and nothing is burned."""
    life = Life()
    life.look(200, kueue(admitted=None))
    half = (bound("a", of_workload("wl"), "n0", since=150, created=190), unscheduled("b", of_workload("wl"), NO_GPU))
    life.look(120, kueue(admitted=180), *half)
    assert told(life.look(105, *half, unread={"workloads.kueue.x-k8s.io": "unreachable"})) == {}
    assert told(life.look(90, kueue(3, admitted=180, evicted=("True", 92, "Preempted")), *half)) == {}
    assert told(life.look(75, kueue(3, admitted=180, evicted=("True", 92, "Preempted")), *half)) == {}


def test_a_source_that_is_always_forbidden_costs_only_itself() -> None:
    """Without the right to read native PodGroups, gangs of Coscheduling assemble all the same."""
    life, unread = Life(), {"podgroups.scheduling.k8s.io": "forbidden"}
    life.look(200, GROUP, unread=unread)
    members = [ready(name, of_group("train"), "n0", since=100, created=190) for name in "ab"]
    assert "assembled" in told(life.look(90, GROUP, *members, unread=unread))


@pytest.mark.parametrize(("size", "partial"), [(1, "false"), (2, "unknown")])
def test_an_eviction_of_what_is_no_gang(size: int, partial: str) -> None:
    """A part of one pod cannot be placed; how many pods of a Deployment or an ordinary Job were is not looked at."""
    life = Life()
    owner = ("Job", "etl")
    life.look(200, workload("wl", owner, podset(size), admitted=300))
    evicted = workload("wl", owner, podset(size), admitted=300, evicted=("True", 190, "Preempted"))
    found = happened(life.look(185, evicted, job("etl", size, 9, indexed=False))).evicted
    assert found == {Evicted(TEAM, "lq", "cq", "preempted", "none", partial): 1}


def test_old_evictions_of_a_workload_first_seen_are_no_news() -> None:
    """Seven evictions of before and the one of now: of a Workload that could not be read until now, one counts."""
    life = Life()
    life.look(200)
    counted = kueue(8, created=5000, admitted=400, evicted=("True", 190, "PodsReadyTimeout"))
    assert sum(happened(life.look(185, counted)).evicted.values()) == 1
    assert told(life.look(170, counted)) == {}


def test_evictions_of_a_workload_that_is_new_are_news() -> None:
    """Created, admitted and evicted twice since the last run: both count."""
    life = Life()
    life.look(200)
    counted = kueue(2, created=190, admitted=183, evicted=("True", 181, "PodsReadyTimeout"))
    assert sum(happened(life.look(180, counted)).evicted.values()) == 2
