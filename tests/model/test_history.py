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

from datadog_checks.kueue_gang.derive.deriver import Deriver
from datadog_checks.kueue_gang.derive.picture import Evicted, Happenings, Picture
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.facts.cluster import Changes
from tests.model.build import (
    NO_GPU,
    NOW,
    SOURCES,
    TEAM,
    TIMEOUT,
    Json,
    bound,
    local_queue,
    node,
    of_group,
    of_workload,
    pod_group,
    podset,
    ready,
    reducers,
    unscheduled,
    workload,
)

NODES = tuple(node(name) for name in ("n0", "n1"))
QUEUE = local_queue("lq", "cq")


class Life:
    """A cluster that is looked at now and then; times of objects are seconds before `NOW`, as in `build`."""

    def __init__(self) -> None:
        """Begin with a check that has seen nothing."""
        self._reduce = reducers(Rules())
        self._facts: dict[tuple[str, str, str], Any] = {}
        self._deriver = Deriver(Rules())

    def restart(self) -> None:
        """Let another check go on."""
        self._deriver = Deriver(Rules())
        self._facts = {}

    def look(self, seconds: float, *objects: Json, between: tuple[Json, ...] = ()) -> Picture:
        """Return the picture of a cluster with these objects and no others, so many seconds before `NOW`.

        `between` are versions of objects that came and went since the look before.
        """
        found: dict[tuple[str, str, str], Any] = {}
        steps: list[tuple[str, Any, Any]] = []
        for obj in (*between, *NODES, QUEUE, *objects):
            source, field = SOURCES[obj["apiVersion"].split("/")[0], obj["kind"]]
            key = source, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
            fact = self._reduce[source](obj)
            old = self._facts.get(key)
            if old != fact:
                steps.append((field, old, fact))
            self._facts[key] = fact
            if obj not in between:
                found[key] = fact
        for key in self._facts.keys() - found.keys():
            field = dict(SOURCES.values())[key[0]]
            steps.append((field, self._facts.pop(key), None))
        changes: dict[str, Any] = {}
        for field, old, new in steps:
            changes.setdefault(field, []).append((old, new))
        return self._deriver.apply(Changes(**changes), NOW - seconds)


def happened(picture: Picture) -> Happenings:
    """Return what happened."""
    return picture.happened


def told(picture: Picture) -> dict[str, Any]:
    """Return everything that happened, without what did not."""
    found = picture.happened
    named = {
        "assembled": {tuple(queue): seconds for queue, seconds in found.assembled.items()},
        "rejected": {reason: number for (_, reason), number in found.rejected.items()},
        "stages": {stage: seconds for (*_, stage), seconds in found.stages.items()},
        "evicted": dict(found.evicted),
        "burned": {reason: amount for (_, _, reason), amount in found.burned.items()},
    }
    return {name: value for name, value in named.items() if value}


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
