# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Times and counts that cannot be right: what happened is told once all the same, and nothing is negative or invented.

Objects carry the clocks of Kueue, of the scheduler and of each node; the cluster's time is the API server's Date.
"""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from datadog_checks.base.stubs.aggregator import AggregatorStub

from tests.model.build import (
    NO_GPU,
    TEAM,
    TIMEOUT,
    UNRESERVE,
    Json,
    bound,
    of_group,
    of_workload,
    permit_waiter,
    pod_group,
    podset,
    ready,
    unscheduled,
    workload,
)
from tests.model.life import Life, gang, happened, told
from tests.played import Clock, play, story
from tests.test_played import STORIES, right
from tests.test_played import happened as sent_happened

HOUR = 3600.0
GROUP = pod_group("train", 2, created=300)
WAITING = [unscheduled(name, of_group("train"), NO_GPU, created=190) for name in "ab"]
RUNNING = [ready(name, of_group("train"), f"n{rank}", since=100, created=190) for rank, name in enumerate("ab")]


def kueue(*counted: dict[str, Any], **more: Any) -> Json:
    """Return a Workload of two, with what Kueue counts of its evictions."""
    obj = workload("wl", ("JobSet", "js"), podset(2), **more)
    if counted:
        obj["status"]["schedulingStats"] = {"evictions": list(counted)}
    return obj


def timeless(obj: Json) -> Json:
    """Return an object whose conditions have no times."""
    for one in obj["status"]["conditions"]:
        del one["lastTransitionTime"]
    return obj


def numbers(found: Any) -> list[float]:
    """Return every number in what was told."""
    if isinstance(found, dict):
        return [number for value in found.values() for number in numbers(value)]
    return [number for value in found for number in numbers(value)] if isinstance(found, list) else [found]


# --- clocks that disagree --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("off", [HOUR, -HOUR])
@pytest.mark.parametrize("name", ["4-kueue-partial", "9-preempt"])
def test_a_server_whose_date_is_wrong(
    aggregator: AggregatorStub, monkeypatch: pytest.MonkeyPatch, name: str, off: float
) -> None:
    """With a Date an hour off all that happened is the same, since it has the times of objects; no age is negative."""
    recordings = [replace(one, now=one.now + timedelta(seconds=off)) for one in story(name)]
    for sent, moment in zip(play(aggregator, Clock(monkeypatch), recordings), STORIES[name], strict=True):
        assert sent_happened(sent) == right(moment)
        assert all(one.value >= 0 for series in sent.series.values() for one in series)


@pytest.mark.parametrize("off", [HOUR, -HOUR])
@pytest.mark.parametrize("wrong", range(4))
def test_a_date_that_jumps_and_comes_back(
    aggregator: AggregatorStub, monkeypatch: pytest.MonkeyPatch, wrong: int, off: float
) -> None:
    """One reading with a wrong Date, before, at or after the eviction: nothing is lost and nothing told twice."""
    recordings = story("4-kueue-partial")
    recordings[wrong] = replace(recordings[wrong], now=recordings[wrong].now + timedelta(seconds=off))
    played = play(aggregator, Clock(monkeypatch), recordings)
    for sent, moment in zip(played, STORIES["4-kueue-partial"], strict=True):
        assert sent_happened(sent) == right(moment)


@pytest.mark.parametrize("off", [HOUR, -HOUR])
@pytest.mark.parametrize("met", [200, 150])
def test_gangs_while_the_date_jumps(off: float, met: float) -> None:
    """A gang that waited in the picture before runs now: assembled once, in 90 s by the objects, wherever Date is.

    It was met before it had members (200 s ago) or with those that wait.
    """
    life = Life()
    life.look(met, GROUP, *(WAITING if met < 190 else ()))
    life.look(120 - off, GROUP, *WAITING)
    found = [told(life.look(seconds, GROUP, *RUNNING)) for seconds in (90, 75, 60)]
    assert found == [{"assembled": {(TEAM, "none", "none", "coscheduling"): [90]}}, {}, {}]


def test_a_node_whose_clock_is_behind() -> None:
    """Ready an hour before the admission: assembled in no time, not in less than none; nothing burned is negative."""
    life = Life()
    life.look(200, kueue())
    members = [ready(name, of_workload("wl"), "n0", since=100 + HOUR, created=170) for name in "ab"]
    half = [bound("a", of_workload("wl"), "n0", since=100 + HOUR, created=170)]
    life.look(100, kueue(admitted=180), *half)
    found = told(life.look(90, kueue(admitted=180), *members))
    assert found == {"assembled": {(TEAM, "lq", "cq", "kueue"): [0]}}


def test_a_node_whose_clock_is_ahead() -> None:
    """Bound in the future, as the kubelet says, and evicted now: nothing was burned, and nothing is negative."""
    life = Life()
    life.look(200, kueue())
    life.look(120, kueue(admitted=180), bound("a", of_workload("wl"), "n0", since=180 - HOUR, created=170))
    found = told(life.look(105, kueue(admitted=180, evicted=("True", 110, "Preempted"))))
    assert found.keys() == {"evicted"} or all(number >= 0 for number in numbers(found["burned"]))
    assert sum(numbers(found.get("burned", {}))) == 0


def test_whole_seconds() -> None:
    """What happened in the second of the reading before is in whole seconds, and so may look older: it counts, once."""
    life = Life()
    life.look(200.4, GROUP)
    # Created and Ready 200.2 s ago, which the API writes as 201 s ago.
    members = [ready(name, of_group("train"), "n0", since=201, created=201) for name in "ab"]
    found = [told(life.look(seconds, GROUP, *members)) for seconds in (185.4, 170.4)]
    assert found == [{"assembled": {(TEAM, "none", "none", "coscheduling"): [0]}}, {}]


def test_a_whole_admission_within_one_second() -> None:
    """Quota, admission and readiness in the second of the creation take no time each."""
    life = Life()
    life.look(100)
    found = told(life.look(85, kueue(created=90, reserved=90, admitted=90, pods_ready=("True", 90, "Started"))))
    assert found == {"stages": {"quota_reserved": [0], "admitted": [0], "ready": [0]}}


# --- what is missing -------------------------------------------------------------------------------------------------


def test_conditions_without_times() -> None:
    """An eviction counts; whether its gang was partial, and how long things took, is not known; nothing is invented."""
    life = Life()
    life.look(200, kueue())
    half = (bound("a", of_workload("wl"), "n0", since=150, created=170),)
    assert told(life.look(120, timeless(kueue(admitted=180)), *half)) == {}
    picture = life.look(105, timeless(kueue(admitted=180, evicted=("True", 110, "Preempted"))), *half)
    assert told(picture).keys() == {"evicted"}
    assert [one.gang_partial for one in happened(picture).evicted] == ["unknown"]
    assert told(life.look(90, timeless(kueue(admitted=180, evicted=("True", 110, "Preempted"))), *half)) == {}


def test_pods_without_times() -> None:
    """A member of which nobody knows when it was bound or became Ready gives no time, and breaks nothing."""
    life = Life()
    life.look(200, GROUP)
    members = [ready(name, of_group("train"), "n0", created=190) for name in "ab"]
    for one in members:
        timeless(one)
        del one["status"]["startTime"]
    assert told(life.look(90, GROUP, *members)) == {}
    assert told(life.look(75, GROUP)) == {}


# --- counts that go back ---------------------------------------------------------------------------------------------


TIMED_OUT = {"reason": "PodsReadyTimeout", "underlyingCause": "WaitForStart"}
PREEMPTED = {"reason": "Preempted", "underlyingCause": ""}


@pytest.mark.parametrize(
    ("before", "after", "turned", "reasons"),
    [
        # One more, of each kind.
        ([], [{**TIMED_OUT, "count": 1}], True, {"pods_ready_timeout": 1}),
        ([{**TIMED_OUT, "count": 2}], [{**TIMED_OUT, "count": 3}], True, {"pods_ready_timeout": 1}),
        ([{**TIMED_OUT, "count": 2}], [{**TIMED_OUT, "count": 2}, {**PREEMPTED, "count": 1}], True, {"preempted": 1}),
        # The order of the list is nothing.
        ([{**TIMED_OUT, "count": 2}, {**PREEMPTED, "count": 1}], [{**PREEMPTED, "count": 1}, {**TIMED_OUT, "count": 2}],
         False, {}),
        # It began anew: what the condition says counts.
        ([{**TIMED_OUT, "count": 3}], [{**TIMED_OUT, "count": 1}], True, {"pods_ready_timeout": 1}),
        ([{**TIMED_OUT, "count": 3}], [], True, {"pods_ready_timeout": 1}),
        ([{**TIMED_OUT, "count": 3}], [], False, {}),
        ([{**TIMED_OUT, "count": 3}], [{**TIMED_OUT, "count": 2}], False, {}),
        # Nonsense is no eviction.
        ([], [{**TIMED_OUT, "count": 0}], False, {}),
        ([], [{**TIMED_OUT}], False, {}),
    ],
)  # fmt: skip
def test_counts_of_evictions(
    before: list[dict[str, Any]], after: list[dict[str, Any]], turned: bool, reasons: dict[str, int]
) -> None:
    """Kueue's counts of evictions only grow; where they do not, the condition Evicted decides."""
    life = Life()
    life.look(200, kueue(*before, admitted=300))
    now = kueue(*after, admitted=300, evicted=("True", 190, "PodsReadyTimeout") if turned else None)
    found: Counter[str] = Counter()
    for one, number in happened(life.look(185, now)).evicted.items():
        found[one.reason] += number
    assert found == reasons
    assert told(life.look(170, now)) == {}


# --- writes that come late -------------------------------------------------------------------------------------------


def test_a_rejection_that_is_written_after_the_bind() -> None:
    """The scheduler writes the failure of an attempt late: on a pod that has a node it is no rejection any more."""
    life = Life()
    life.look(100, GROUP, *[permit_waiter(name, of_group("train"), "n0", created=190) for name in "ab"])
    late = []
    for rank, name in enumerate("ab"):
        one = bound(name, of_group("train"), f"n{rank}", since=90, created=190)
        one["status"]["conditions"] = unscheduled(name, of_group("train"), TIMEOUT)["status"]["conditions"]
        late.append(one)
    picture = life.look(85, GROUP, *late)
    assert told(picture) == {}
    assert gang(picture).state == "starting"


def test_a_rejection_that_is_written_in_two_runs() -> None:
    """Members of one rejection that are written before and after a look: each look counts what it sees, once at most.

    The API has no time for a text that changes, so one rejection may be told by two runs, where it falls between.
    """
    life = Life()
    life.look(100, GROUP, *WAITING)
    one = unscheduled("a", of_group("train"), TIMEOUT, created=190)
    assert told(life.look(85, GROUP, one, WAITING[1])) == {"rejected": {"permit_timeout": 1}}
    other = unscheduled("b", of_group("train"), UNRESERVE, created=190)
    assert sum(told(life.look(70, GROUP, one, other)).get("rejected", {}).values()) <= 1
