# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""GPU-seconds are the integral of what pictures show, over the time in which a check ran.

A cluster is looked at in random intervals while gangs start, run, end and hold on to GPUs, sources go down, checks are
replaced and the cluster's time jumps. What should be told is added up here from the numbers of GPUs that each state of
the cluster was made with, by the plain rule: the picture before, times the seconds since, at most four intervals.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datadog_checks.kueue_gang.derive.spent import Meter, Spent
from tests.model.build import (
    LONE,
    NO_GPU,
    Json,
    bound,
    of_group,
    pod_group,
    ready,
    terminating,
    unscheduled,
)
from tests.model.life import Life

INTERVAL = 15.0
MOST = 60.0
GROUP = pod_group("train", 2, created=9000)


def member(make: object, name: str, where: str = "n0", **more: object) -> Json:
    """Return a member of the gang with 8 GPUs."""
    return make(name, of_group("train"), *([where] if where else []), created=8000, **more)  # type: ignore[operator]


# Gangs of their own: of one that was seen to run the check would say that it is degraded.
STARTING = (
    pod_group("starts", 2, created=9000),
    *(bound(f"starts-{rank}", of_group("starts"), f"n{rank}", created=8000) for rank in range(2)),
)
HALF = (
    pod_group("half", 2, created=9000),
    ready("half-a", of_group("half"), "n0", created=8000),
    unscheduled("half-b", of_group("half"), NO_GPU, created=8000),
)
#: What may be in the cluster, with its GPUs by use and idle ones by reason.
SIGHTS: tuple[tuple[tuple[Json, ...], dict[str, int], dict[str, int]], ...] = (
    ((), {}, {}),
    ((GROUP,), {}, {}),
    (HALF, {"idle": 8}, {"partial": 8}),
    (STARTING, {"idle": 16}, {"starting": 16}),
    ((GROUP, member(ready, "a"), member(ready, "b", "n1")), {"busy": 16}, {}),
    # The deletion grace of both is over for long.
    ((GROUP, *(terminating(member(ready, name), began=8000) for name in "ab")), {"idle": 16}, {"terminating": 16}),
    ((ready("notebook", LONE, "n1", gpus=4, created=8000),), {"other": 4}, {}),
    ((GROUP, member(ready, "a"), member(ready, "b", "n1"), ready("notebook", LONE, "n1", gpus=4, created=8000)),
     {"busy": 16, "other": 4}, {}),
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """A run: seconds since the one before, what is there, whether a new check runs, and how far the Date is off."""

    seconds: float
    sight: int
    restarted: bool
    pods_down: bool
    date_off: float


STEPS = st.lists(
    st.builds(
        Step,
        seconds=st.one_of(st.just(INTERVAL), st.floats(0.5, 300)),
        sight=st.integers(0, len(SIGHTS) - 1),
        restarted=st.booleans().filter(bool) | st.just(False) | st.just(False),
        pods_down=st.sampled_from([False] * 6 + [True]),
        date_off=st.sampled_from([0.0] * 6 + [3600.0, -3600.0]),
    ),
    min_size=2,
    max_size=14,
)


def told(found: Spent) -> tuple[Counter[str], Counter[str]]:
    """Return GPU-seconds by use, and idle ones by reason."""
    uses, reasons = Counter[str](), Counter[str]()
    for (_, _, use), amount in found.allocated.items():
        uses[use] += amount  # type: ignore[assignment] # seconds are no whole numbers
    for (_, _, reason), amount in found.idle.items():
        reasons[reason] += amount  # type: ignore[assignment]
    return +uses, +reasons


def play(steps: list[Step], *, restarts: bool = True) -> list[tuple[Counter[str], Counter[str]]]:
    """Return what each run tells."""
    life, meter, now, found = Life(), Meter(INTERVAL), 1_000_000.0, []
    for step in steps:
        now += step.seconds
        if step.restarted and restarts:
            life.restart()
            meter = Meter(INTERVAL)
        objects, _, _ = SIGHTS[step.sight]
        unread = {"pods": "unreachable"} if step.pods_down else None
        picture = life.look(1_002_000.0 - now - step.date_off, *objects, unread=unread)
        found.append(told(meter.read(picture, now)))
    return found


def rule(steps: list[Step]) -> list[tuple[Counter[str], Counter[str]]]:
    """Return what each run should tell: nothing of the gap before a new check, nor of pods that could not be read."""
    found = [(Counter[str](), Counter[str]())]
    for before, step in pairwise(steps):
        seconds = 0 if step.restarted or before.pods_down else min(step.seconds, MOST)
        _, uses, reasons = SIGHTS[before.sight]
        found.append(
            tuple(+Counter({what: number * seconds for what, number in one.items()}) for one in (uses, reasons))  # type: ignore[arg-type]
        )
    return found


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(STEPS)
def test_gpu_seconds_are_the_integral(steps: list[Step]) -> None:
    """Each run tells of the time since the one before what that showed; all of it is busy, idle or other."""
    for (uses, reasons), (right_uses, right_reasons) in zip(play(steps), rule(steps), strict=True):
        assert uses == pytest.approx(right_uses)
        assert reasons == pytest.approx(right_reasons)
        assert sum(reasons.values()) == pytest.approx(uses["idle"])
        assert uses.keys() <= {"busy", "idle", "other"}


@settings(max_examples=75, deadline=None, derandomize=True, database=None)
@given(STEPS)
def test_a_restart_loses_the_gap_and_no_more(steps: list[Step]) -> None:
    """With new checks in between less is told by just what the same check would have told of these gaps."""
    whole, broken = play(steps, restarts=False), play(steps)
    for step, one, other in zip(steps, whole, broken, strict=True):
        if step.restarted:
            assert other == (Counter(), Counter())
        else:
            for mine, its in zip(one, other, strict=True):
                assert mine == pytest.approx(its)


def test_a_check_that_stood_still_invents_no_waste() -> None:
    """After a night without a run four intervals count; a clock that does not go on gives nothing."""
    life, meter = Life(), Meter(INTERVAL)
    objects, _, _ = SIGHTS[3]
    meter.read(life.look(100, *objects), 1000)
    assert told(meter.read(life.look(85, *objects), 1000 + 30_000))[1] == {"starting": 16 * 60}
    assert told(meter.read(life.look(85, *objects), 1000 + 30_000))[1] == {}
    assert told(meter.read(life.look(85, *objects), 999))[1] == {}


def test_a_run_without_a_picture() -> None:
    """A run that derives nothing ends what was known: of the time after it nothing is told."""
    life, meter = Life(), Meter(INTERVAL)
    objects, _, _ = SIGHTS[3]
    meter.read(life.look(100, *objects), 1000)
    assert told(meter.read(None, 1015))[1] == {"starting": 16 * 15}
    assert told(meter.read(life.look(70, *objects), 1030)) == (Counter(), Counter())


def test_a_long_interval_counts_whole() -> None:
    """With one run in five minutes these five minutes count: the bound is of intervals, not of seconds."""
    life, meter = Life(), Meter(300)
    objects, _, _ = SIGHTS[3]
    meter.read(life.look(700, *objects), 1000)
    assert told(meter.read(life.look(400, *objects), 1300))[1] == {"starting": 16 * 300}
