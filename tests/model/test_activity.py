# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""GPUs on which nothing runs: expected values by hand, and the laws for any samples."""

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datadog_checks.kueue_gang.derive.activity import ActivityBook, Pulse, inactive
from datadog_checks.kueue_gang.facts.signals import Beat, Signals
from tests.model.build import (
    GPU,
    NO_GPU,
    NOW,
    TEAM,
    Json,
    Seen,
    node,
    of_group,
    pod_group,
    ready,
    terminating,
    unscheduled,
)
from tests.model.test_laws import MIG, told
from tests.model.watched import CLOCK, Watched, beat, beats, running

LONG = 600.0
#: The longest time between two samples of a streak.
GAP = 300.0


def watch(*objects: Json, anew: bool = False) -> Watched:
    """Return a check that asks GPUs for their activity."""
    return Watched(*(objects or running("train", 2)), anew=anew, activity=True, inactive_after=LONG)


def idle_for(watched: Watched, seconds: int, *pods: str, step: int = 60, start: int = 0) -> Seen:
    """Let no GPU of some pods work for so many seconds, with a sample and a run each minute; return the last one."""
    seen = None
    for at in range(start, start + seconds + 1, step):
        seen = watched.run(at, beats=[one for pod in pods for one in beats(pod, at)])
    assert seen is not None
    return seen


# One gang.


def test_gpus_are_inactive_when_zeros_span_the_time() -> None:
    """One sample before the time is over they are busy; with the sample that makes it ten minutes they are idle."""
    watched = watch()
    assert (idle_for(watched, 540, "train-0", "train-1").idle, watched.run(599).idle) == (0, 0)
    assert watched.run(601).idle == 0, "nobody has seen the last of these ten minutes yet"
    seen = watched.run(615, beats=[*beats("train-0", 610), *beats("train-1", 599)])
    assert (seen.idle_by_reason(), seen.busy) == ({"inactive": 8}, 8)
    assert seen.gang("train").stalled == "some_idle"
    seen = watched.run(630, beats=[*beats("train-0", 620), *beats("train-1", 620)])
    assert (seen.idle_by_reason(), seen.busy) == ({"inactive": 16}, 0)
    assert (seen.gang("train").stalled, seen.gang("train").attention) == ("all_idle", True)
    assert dict(seen.gang("train").idle) == {GPU: 16}
    assert [(reason, number) for (_, reason), number in seen.picture.summary.stalled.items()] == [("all_idle", 1)]


def test_a_sample_of_work_ends_it_at_once() -> None:
    """With the run that brings it the GPU is busy, and the ten minutes begin anew."""
    watched = watch()
    assert idle_for(watched, 660, "train-0", "train-1").idle == 16
    seen = watched.run(720, beats=[*beats("train-0", 720, busy=[3]), *beats("train-1", 720)])
    assert (seen.idle_by_reason(), seen.busy, seen.gang("train").stalled) == ({"inactive": 15}, 1, "some_idle")
    assert idle_for(watched, 540, "train-0", "train-1", start=780).idle == 15
    assert idle_for(watched, 60, "train-0", "train-1", start=1380).idle == 16


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_samples_at_one_time_the_active_one_counts(order: int) -> None:
    """Two series may tell of one device; which comes first is chance. The streak begins a minute later."""
    watched = watch(*running("train", 2, gpus=1))
    found = {}
    for at in range(0, 1021, 60):
        pair = [beat("train-0", at), beat("train-0", at, active=at == 300)][::order]
        found[at] = watched.run(at, beats=[*pair, beat("train-1", at, active=True)]).idle
    assert [at for at, idle in found.items() if idle] == [960, 1020]


def test_a_sample_of_work_that_comes_late() -> None:
    """What ran at 650 is told with the run at 800: after the newest zero, at 780, ten minutes begin anew."""
    watched = watch(*running("train", 2, gpus=1))
    seen = None
    for at in range(0, 781, 60):
        seen = watched.run(at, beats=[beat("train-0", at), beat("train-1", at, active=True)])
    assert seen is not None
    assert seen.idle == 1
    late = beat("train-0", 650, active=True)
    found = {}
    for at in range(800, 1500, 20):
        samples = [late] if at == 800 else [beat("train-0", at)]
        found[at] = watched.run(at, beats=[*samples, beat("train-1", at, active=True)]).idle
    assert [at for at, idle in found.items() if idle] == list(range(1380, 1500, 20))


def test_the_time_begins_when_the_gang_is_complete() -> None:
    """GPUs that did nothing while their gang waited for its last member are not called inactive when it comes."""
    group = pod_group("train", 2, created=3000)
    first = ready("train-0", of_group("train"), "n0", since=2000, created=2900)
    watched = watch(group, first, unscheduled("train-1", of_group("train"), NO_GPU, created=2900))
    seen = idle_for(watched, 900, "train-0")
    assert seen.idle_by_reason() == {"partial": 8}
    # The second one is Ready 900 seconds from now on.
    second = ready("train-1", of_group("train"), "n1", since=-900, created=2900)
    watched.run(901, group, first, second)
    for at in range(930, 1500, 30):
        assert watched.run(at, beats=[*beats("train-0", at), *beats("train-1", at, busy=range(8))]).idle == 0
    seen = watched.run(1500, beats=[*beats("train-0", 1500), *beats("train-1", 1500, busy=range(8))])
    assert seen.idle_by_reason() == {"inactive": 8}


def test_what_is_not_seen_is_busy_and_told() -> None:
    """Of eight GPUs five are seen and idle: these are inactive, three are busy, and the gang is not observed whole."""
    watched = watch(*running("train", 1 + 1))
    for at in range(0, 661, 60):
        seen = watched.run(at, beats=[*beats("train-0", at, devices=5), *beats("train-1", at, busy=range(8))])
    assert (seen.idle_by_reason(), seen.busy) == ({"inactive": 5}, 11)
    assert seen.unobservable("activity") == {"no_sample": 1}


def test_samples_that_stop_prove_nothing() -> None:
    """Half of the time after its last sample a GPU is unobserved, and busy again; a later zero begins anew."""
    watched = watch()
    assert idle_for(watched, 660, "train-0", "train-1").idle == 16
    assert watched.run(660 + GAP).idle == 16
    seen = watched.run(661 + GAP)
    assert (seen.idle, seen.busy, seen.unobservable("activity")) == (0, 16, {"no_sample": 1})
    assert idle_for(watched, 540, "train-0", "train-1", start=1000).idle == 0


@pytest.mark.parametrize(("gap", "idle"), [(300, 16), (301, 0)])
def test_a_streak_has_no_large_gap(gap: int, idle: int) -> None:
    """Samples that are further apart than half of the time make no streak."""
    watched = watch()
    for at in (0, gap, 2 * gap, 3 * gap):
        seen = watched.run(at, beats=[*beats("train-0", at), *beats("train-1", at)])
    assert seen.idle == idle


@pytest.mark.parametrize("reason", ["forbidden", "no_sample"])
def test_why_nothing_is_seen(reason: str) -> None:
    """Where the source cannot be read the gangs count under its reason; without the option under not_configured."""
    assert watch().run(0, activity=reason).unobservable("activity") == {reason: 1}
    plain = Watched(*running("train", 2)).run(0, activity="not_configured")
    assert plain.unobservable("activity") == {"not_configured": 1}
    assert plain.unobservable("throughput") == {"not_configured": 1}


def test_gangs_that_do_not_run_are_not_asked() -> None:
    """A partial gang is partial, whatever its GPUs do, and is none of which activity could be observed."""
    group, first = pod_group("train", 2), ready("train-0", of_group("train"), "n0", since=7000, created=7100)
    watched = watch(group, first, unscheduled("train-1", of_group("train"), NO_GPU, created=7100))
    seen = idle_for(watched, 900, "train-0")
    assert (seen.idle_by_reason(), seen.unobservable("activity")) == ({"partial": 8}, {})
    assert seen.gang("train").stalled == ""


def test_reasons_that_come_first() -> None:
    """A member that should be gone is terminating, one on a lost node lost, whatever runs on their GPUs."""
    objects = [*running("train", 4, gpus=2)]
    gone = terminating(ready("over", of_group("train"), "n0", since=7000, created=7100, gpus=1), began=100, grace=30)
    lost = ready("lost", of_group("train"), "n9", since=7000, created=7100, gpus=1)
    watched = watch(*objects, gone, lost, node("n9", ready_status="False", since=500))
    names = [f"train-{rank}" for rank in range(4)]
    for at in range(0, 661, 60):
        samples = [beat(name, at, device=device) for name in names for device in "ab"]
        seen = watched.run(at, beats=[*samples, beat("over", at)])
    assert seen.idle_by_reason() == {"inactive": 8, "terminating": 1, "lost": 1}
    assert seen.unobservable("activity") == {}, "what a lost node does is no question"
    assert seen.gang("train").stalled == "some_idle"


def test_no_cry_of_wolf_after_a_pod_of_the_same_name() -> None:
    """A new pod with an old name has another GPU; that the old one did nothing is no word about it."""
    watched = watch(*running("train", 2, gpus=1))
    for at in range(0, 661, 60):
        watched.run(at, beats=[beat("train-0", at, device="old"), beat("train-1", at, active=True)])
    group, _, other = running("train", 2, gpus=1)
    new = ready("train-0", of_group("train"), "n0", since=-700, created=-690, gpus=1)
    for at in range(720, 3000, 60):
        samples = [beat("train-0", at, active=True, device="new"), beat("train-1", at, active=True)]
        assert watched.run(at, group, new, other, beats=samples).idle == 0


def test_other_resources() -> None:
    """Whose device is whose nobody tells: a pod that asks for two resources is inactive as a whole or not at all."""
    pulse = Pulse(3, ((0.0, 700.0),) * 2)
    both = ((GPU, 1), (MIG, 2))
    assert inactive(both, pulse, 0.0, 700.0, LONG).units == ()
    assert inactive(both, pulse._replace(quiet=((0.0, 700.0),) * 3), 0.0, 700.0, LONG).units == both
    assert inactive(both, Pulse(2, ((0.0, 700.0),) * 2), 0.0, 700.0, LONG) == ((), False, None)


@pytest.mark.parametrize(
    ("units", "observed", "quiet", "idle"),
    [(8, 8, 8, 8), (8, 8, 3, 3), (8, 5, 5, 5), (1, 2, 1, 0), (1, 2, 2, 1), (2, 3, 2, 1), (8, 0, 0, 0)],
)
def test_devices_that_work_come_first(units: int, observed: int, quiet: int, idle: int) -> None:
    """Units less the devices that are seen and not inactive is the most that may be called idle."""
    pulse = Pulse(observed, ((0.0, 600.0),) * quiet)
    found = inactive(((GPU, units),), pulse, 0.0, 600.0, LONG)
    assert found.units == (((GPU, idle),) if idle else ())
    assert found.seen == (observed >= units)


def test_a_gang_of_which_nobody_knows_since_when_it_runs() -> None:
    """It may have begun a moment ago."""
    assert inactive(((GPU, 1),), Pulse(1, ((0.0, 9000.0),)), None, 9000.0, LONG).units == ()


def test_nothing_is_kept_of_what_is_not_seen_any_more() -> None:
    """Devices come and go with their pods."""
    book = ActivityBook(LONG)
    for number in range(100):
        at = 1000.0 * number
        book.take(Signals(clock=at, beats=[Beat(TEAM, f"p{number}", "0", active=False, at=at)]), at)
    assert [len(book._pods), len(book._due)] == [1, 1]


# Any samples.


#: Runs: seconds since the one before, and samples as (pod, device, active, seconds before the run).
Story = list[tuple[float, list[tuple[str, str, bool, float]]]]
PODS = ("train-0", "train-1", "eval-0", "eval-1", "none")
DEVICES = ("a", "b", "c")


def story_of(seed: int) -> Story:
    """Draw half an hour or more of runs; most devices do nothing, and some are seldom seen."""
    random = Random(seed)
    busy, seen = random.choice((0.0, 0.002, 0.02, 0.3)), random.choice((1.0, 0.9, 0.3))
    interval = random.choice((15.0, 60.0, 200.0))
    runs: Story = []
    for _ in range(random.randint(10, 60)):
        pause = interval * random.choice((1, 1, 1, 1, 1, 1, 1, 3))
        samples = [
            (pod, device, random.random() < busy, random.uniform(0, min(pause, 14)))
            for pod in PODS
            for device in DEVICES
            if random.random() < seen
        ]
        runs.append((pause, samples))
    return runs


SEEDS = st.integers(0, 2**32)
OBJECTS = (*running("train", 2, gpus=2), *running("eval", 2, gpus={GPU: 2}, since=100))
LAW = settings(max_examples=80, deadline=None, derandomize=True, database=None)


def play(watched: Watched, story: Story, seed: int | None = None) -> Iterator[Seen]:
    """Yield what each run of a story sees; with a `seed` the samples of a run come in another order."""
    at = 0.0
    for pause, samples in story:
        at += pause
        told_of = [beat(pod, at - before, active=active, device=device) for pod, device, active, before in samples]
        if seed is not None:
            Random(seed).shuffle(told_of)
        yield watched.run(at, beats=told_of)


def proven(samples: list[tuple[float, bool]], clock: float, complete: float) -> bool:
    """Tell by the plain rule, from all samples of a device, whether it is inactive at a time."""
    ordered = sorted(samples)
    if not ordered or clock - ordered[-1][0] > GAP:
        return False
    begin = None
    for index, (at, active) in enumerate(ordered):
        apart = index > 0 and at - ordered[index - 1][0] > GAP
        begin = None if active else at if begin is None or apart else begin
    return begin is not None and ordered[-1][0] - max(begin, complete) >= LONG


@LAW
@given(SEEDS)
def test_the_plain_rule(seed: int) -> None:
    """In each run the inactive GPUs are those that the rule proves from all samples; no other GPU moved."""
    complete = {"train": CLOCK - 7200, "eval": CLOCK - 100}
    history: dict[tuple[str, str], list[tuple[float, bool]]] = {}
    clock = CLOCK
    for (pause, samples), seen in zip(story_of(seed), play(watch(*OBJECTS), story_of(seed)), strict=True):
        clock += pause
        for pod, device, active, before in samples:
            history.setdefault((pod, device), []).append((clock - before, active))
        for gang, since in complete.items():
            right = 0
            for rank in range(2):
                mine = [found for (pod, _), found in history.items() if pod == f"{gang}-{rank}"]
                fresh = sum(clock - max(found)[0] <= GAP for found in mine)
                quiet = sum(proven(found, clock, since) for found in mine)
                right += max(0, min(quiet, 2 - (fresh - quiet)))
            assert seen.gang(gang).idle.get(GPU, 0) == right
            assert seen.gang(gang).stalled == ("" if not right else "all_idle" if right == 4 else "some_idle")


@LAW
@given(SEEDS)
def test_the_laws_of_gpus_hold(seed: int) -> None:
    """What is allocated is busy, idle or other; inactive GPUs are busy ones that moved; one reason a gang at most."""
    for seen in play(watch(*OBJECTS), story_of(seed)):
        assert sum(seen.picture.gpus.allocated.values()) == 8
        assert (seen.busy + seen.idle, seen.other) == (8, 0)
        assert sum(seen.idle_by_reason().values()) == seen.idle
        assert seen.idle == sum(sum(view.idle.values()) for view in seen.picture.gangs)
        stalled = [view for view in seen.picture.gangs if view.stalled]
        assert sum(seen.picture.summary.stalled.values()) == len(stalled)
        assert all(view.attention for view in stalled)
        assert all(number > 0 for number in seen.picture.summary.stalled.values())


@LAW
@given(SEEDS, SEEDS)
def test_neither_order_nor_what_changes_matters(seed: int, other: int) -> None:
    """The order of samples in a run changes nothing, nor does it whether objects are looked at again in each run."""
    story = story_of(seed)
    first = [told(seen) for seen in play(watch(*OBJECTS), story)]
    assert first == [told(seen) for seen in play(watch(*OBJECTS), story, other)]
    assert first == [told(seen) for seen in play(watch(*OBJECTS, anew=True), story)]


@LAW
@given(SEEDS)
def test_a_restart_forgets_and_invents_nothing(seed: int) -> None:
    """A new check says for ten minutes of nothing that it is inactive, then of nothing that the old one would not."""
    story = story_of(seed)
    watched, restarted = watch(*OBJECTS), watch(*OBJECTS)
    at, begun = 0.0, 0.0
    for number, (pause, samples) in enumerate(story):
        at += pause
        found = [beat(pod, at - before, active=active, device=device) for pod, device, active, before in samples]
        if number == len(story) // 2:
            restarted.restart()
            begun = at
        both = watched.run(at, beats=found), restarted.run(at, beats=found)
        idle, less = (
            {view.key: sum(view.idle.values()) for view in sorted(seen.picture.gangs, key=lambda view: view.key)}
            for seen in both
        )
        if number >= len(story) // 2 and at - begun < LONG - 14:
            assert not any(less.values())
        assert all(less[key] <= idle[key] or at - begun < 2 * GAP + LONG for key in idle)


def test_another_time_of_day_changes_nothing() -> None:
    """The cluster's time jumps back an hour: a streak is as long as it is."""
    watched = watch()
    idle_for(watched, 600, "train-0", "train-1")
    back = watched.deriver.apply(watched._changes(), NOW - 3000)
    assert sum(back.gpus.idle.values()) == 16
