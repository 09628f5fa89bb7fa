# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""How fast gangs get on, and those that do not: expected values by hand, and the laws for any samples."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datadog_checks.kueue_gang.derive.level import Level
from datadog_checks.kueue_gang.derive.picture import Headway, Rate
from datadog_checks.kueue_gang.derive.rules import TrainingRule
from datadog_checks.kueue_gang.facts.signals import Pace, TrainJob
from tests.model.build import (
    GPU,
    NOW,
    TEAM,
    TIMEOUT,
    Json,
    Seen,
    bound,
    node,
    of_group,
    pod_group,
    ready,
    succeeded,
    terminating,
    unscheduled,
)
from tests.model.test_laws import MIG, told
from tests.model.watched import Watched, beats, count, gauge, running

TOKENS = TrainingRule("tokens")
KEY = ("coscheduling", TEAM, "train")
STALLED_AFTER, INTERVAL = 300, 15


def watch(*objects: Json, rules: tuple[TrainingRule, ...] = (TOKENS,), **options: Any) -> Watched:
    """Return a check that asks a gang of two pods with 8 GPUs each."""
    return Watched(*(objects or running("train", 2)), training=rules, **options)


def rates(seen: Seen, gang: str = "train") -> dict[str, float]:
    """Return the throughput of a gang by unit."""
    told_of = seen.picture.headway.get(("coscheduling", TEAM, gang), Headway())
    return {rate.unit: rate.value for rate in told_of.rates}


def stalled(seen: Seen, gang: str = "train") -> str:
    """Return why a gang is stalled."""
    return seen.gang(gang).stalled


# Rates.


def test_a_counter_gives_a_rate_and_ranks_add_up() -> None:
    """One sample tells nothing. 1,500 and 3,000 more in 15 seconds are 300 a second, 18.75 for each of 16 GPUs."""
    watched = watch()
    seen = watched.run(0, paces=[count("train-0", 0, 10_000), count("train-1", 0, 500)])
    assert (seen.picture.headway, seen.unobservable("throughput")) == ({}, {"no_sample": 1})
    seen = watched.run(15, paces=[count("train-0", 15, 11_500), count("train-1", 15, 3_500)])
    assert seen.picture.headway == {KEY: Headway((Rate("tokens", 300.0, 18.75),))}
    assert seen.unobservable("throughput") == {}


def test_ranks_are_sampled_at_different_times() -> None:
    """Each has its own time: 1,000 in 10 seconds and 1,000 in 20 are 150 a second."""
    watched = watch()
    watched.run(0, paces=[count("train-0", -5, 0), count("train-1", -3, 0)])
    watched.run(15, paces=[count("train-0", 5, 1000)])
    assert rates(watched.run(18, paces=[count("train-1", 17, 1000)])) == {"tokens": 150.0}


def test_the_largest_of_the_ranks() -> None:
    """With `over_ranks: max` ranks that tell the same are not added up, and nobody misses one that does not answer."""
    watched = watch(rules=(TrainingRule("steps", "max"),))
    assert rates(watched.run(0, paces=[gauge("train-0", 0, 2.5), gauge("train-1", 0, 2.0)])) == {"steps": 2.5}
    assert rates(watched.run(15, paces=[gauge("train-1", 15, 2.0)], silent=[(0, "train-0")])) == {"steps": 2.0}


def test_a_counter_that_fell_began_anew() -> None:
    """The process was started again and has done 600 since: 40 a second, never a negative rate."""
    watched = watch()
    watched.run(0, paces=[count("train-0", 0, 9000)])
    assert rates(watched.run(15, paces=[count("train-0", 15, 600)])) == {"tokens": 40.0}
    assert rates(watched.run(30, paces=[count("train-0", 30, 600)])) == {"tokens": 0.0}, "standing still is known"


def test_one_of_several_processes_of_a_pod_begins_anew() -> None:
    """Each counter is compared with itself: what the others have counted all their life was not done just now.

    Two processes count 150 in 15 seconds each. One is started again (45 since), goes (nothing is told of it), and comes
    as another (from its second sample on).
    """
    rows = [
        ({1: 1e9, 2: 2e9}, None),
        ({1: 1e9 + 150, 2: 2e9 + 150}, 20.0),
        ({1: 45.0, 2: 2e9 + 300}, 13.0),
        ({2: 2e9 + 450}, 10.0),
        ({2: 2e9 + 600, 3: 90.0}, 10.0),
        ({2: 2e9 + 750, 3: 240.0}, 20.0),
        ({4: 30.0, 5: 60.0}, 6.0),
    ]
    watched = watch()
    for place, (parts, expected) in enumerate(rows):
        sample = count("train-0", 15 * place, sum(parts.values()))._replace(parts=tuple(parts.items()))
        assert rates(watched.run(15 * place, paces=[sample])).get("tokens") == expected


def test_a_rank_that_told_and_does_not_now_leaves_the_sum_unknown() -> None:
    """Half of a gang's throughput is no throughput; a rank that never told has nothing to tell."""
    watched = watch()
    assert rates(watched.run(0, paces=[gauge("train-0", 0, 100.0)])) == {"tokens": 100.0}
    assert rates(watched.run(15, paces=[gauge("train-0", 15, 100.0), gauge("train-1", 15, 90.0)])) == {"tokens": 190.0}
    seen = watched.run(30, paces=[gauge("train-0", 30, 100.0)], silent=[(0, "train-1")])
    assert (rates(seen), seen.unobservable("throughput")) == ({}, {"no_sample": 1})
    assert rates(watched.run(45, paces=[gauge("train-0", 45, 100.0), gauge("train-1", 45, 90.0)])) == {"tokens": 190.0}


def test_a_sum_waits_for_the_first_turn_of_all() -> None:
    """Half of the ranks were asked: their sum is no throughput of the gang. Of one kind the largest may be told."""
    watched = watch(rules=(TOKENS, TrainingRule("steps", over_ranks="max")))
    paces = [gauge("train-0", 0, 100.0), gauge("train-0", 0, 3.0, source=1)]
    seen = watched.run(0, paces=paces, awaited=[(0, "train-1"), (1, "train-1")])
    assert rates(seen) == {"steps": 3.0}
    assert rates(watched.run(15, paces=[gauge("train-1", 15, 50.0)])) == {"tokens": 150.0, "steps": 3.0}


def test_a_sample_is_fresh_for_a_while() -> None:
    """After `stalled_after` it tells nothing any more."""
    watched = watch()
    watched.run(0, paces=[gauge("train-0", 0, 100.0)])
    assert rates(watched.run(STALLED_AFTER)) == {"tokens": 100.0}
    seen = watched.run(STALLED_AFTER + 1, training="no_sample")
    assert (rates(seen), stalled(seen), seen.unobservable("throughput")) == ({}, "", {"no_sample": 1})


@pytest.mark.parametrize("reason", ["forbidden", "no_sample"])
def test_why_nothing_tells(reason: str) -> None:
    """Gangs of which nothing is known count under the reason of the source."""
    assert watch().run(0, training=reason).unobservable("throughput") == {reason: 1}


def test_a_rank_that_is_replaced_is_not_counted_twice() -> None:
    """The old pod terminates and still answers, the new one runs already: only that one counts."""
    group, first, second = running("train", 2)
    old, new = (
        terminating(second, began=-20, grace=60),
        ready("train-2", of_group("train"), "n2", since=-25, created=-20),
    )
    watched = watch(group, first, second)
    both = [gauge("train-0", 0, 100.0), gauge("train-1", 0, 100.0)]
    assert rates(watched.run(0, paces=both)) == {"tokens": 200.0}
    paces = [gauge(f"train-{rank}", 30, 100.0) for rank in range(3)]
    assert rates(watched.run(30, group, first, old, new, paces=paces)) == {"tokens": 200.0}


def test_a_new_pod_of_an_old_name_begins_anew() -> None:
    """It went on from a checkpoint at 50,000: that was not done within 15 seconds."""
    group, first, second = running("train", 2)
    new = ready("train-1", of_group("train"), "n1", since=-20, created=-16)
    watched = watch(group, first, second)
    for at in (0, 15):
        watched.run(at, paces=[count("train-0", at, 10 * at), count("train-1", at, 10 * at)])
    seen = watched.run(30, group, first, new, paces=[count("train-0", 30, 300), count("train-1", 30, 50_000)])
    assert rates(seen) == {}
    seen = watched.run(45, paces=[count("train-0", 45, 450), count("train-1", 45, 50_150)])
    assert rates(seen) == {"tokens": 20.0}


def test_members_that_are_not_up_tell_nothing() -> None:
    """One that pulls its image has no metrics: what an exporter says of its name is of another pod."""
    more = bound("train-9", of_group("train"), "n2", since=100, created=200)
    watched = watch(*running("train", 2), more)
    assert rates(watched.run(0, paces=[gauge("train-0", 0, 5.0), gauge("train-9", 0, 5.0)])) == {"tokens": 5.0}


def test_several_sources() -> None:
    """Each unit is told, and of two sources of one unit the first that tells of the gang."""
    rules = (TrainingRule("tokens"), TrainingRule("tokens"), TrainingRule("samples"))
    watched = watch(rules=rules)
    paces = [gauge("train-0", 0, 7.0, source=1), gauge("train-0", 0, 9.0, source=2)]
    assert rates(watched.run(0, paces=paces)) == {"tokens": 7.0, "samples": 9.0}
    assert rates(watched.run(15, paces=[gauge("train-0", 15, 8.0)])) == {"tokens": 8.0, "samples": 9.0}


def test_a_source_that_is_down_leaves_it_to_the_next() -> None:
    """A Prometheus told of the gang and does not any more; the pods tell the same unit, so the gang is not unseen."""
    watched = watch(rules=(TrainingRule("tokens"), TrainingRule("tokens")))
    watched.run(0, paces=[gauge("train-0", 0, 7.0), gauge("train-0", 0, 6.0, source=1)])
    for at in range(INTERVAL, STALLED_AFTER + 60, INTERVAL):
        seen = watched.run(at, paces=[gauge("train-0", at, 6.0, source=1)], silent=[(0, "train-0")])
        assert (rates(seen), stalled(seen), seen.unobservable("throughput")) == ({"tokens": 6.0}, "", {})
    assert rates(watched.run(at + 1, paces=[gauge("train-0", at + 1, 8.0)])) == {"tokens": 8.0}


def test_a_query_that_tells_of_the_gang() -> None:
    """A sample that names the gang needs no pod."""
    assert rates(watch().run(0, paces=[gauge("", 0, 42.0, gang="train"), gauge("", 0, 1.0, gang="else")])) == {
        "tokens": 42.0
    }


def test_gpus_of_two_kinds_have_no_rate_each() -> None:
    """What one of them does cannot be told from what the other does."""
    watched = watch(*running("train", 2, gpus={GPU: 4, MIG: 2}))
    seen = watched.run(0, paces=[gauge("train-0", 0, 100.0)])
    assert seen.picture.headway == {KEY: Headway((Rate("tokens", 100.0, None),))}


# TrainJobs.


def job(updated: float | None, progress: float | None = None, name: str = "train", **metrics: float) -> TrainJob:
    """Return a TrainJob whose trainer told of itself so many seconds after `NOW`."""
    return TrainJob(TEAM, name, progress, metrics, None if updated is None else NOW + updated)


def test_a_train_job_tells_of_its_gang() -> None:
    """Progress and the metric that the option names, of the gang with its name; one that tells nothing is not seen."""
    watched = watch(rules=(TrainingRule("samples", train_jobs=True, metric="rate"),))
    seen = watched.run(0, jobs=[job(-5, 12.5, rate=320.0, loss=2.0), job(-5, 1.0, name="else", rate=1.0)])
    assert seen.picture.headway == {KEY: Headway((Rate("samples", 320.0, 20.0),), 12.5)}
    assert (stalled(seen), seen.unobservable("throughput")) == ("", {})
    seen = watched.run(15, jobs=[job(None)])
    assert (seen.picture.headway, seen.unobservable("throughput")) == ({}, {"no_sample": 1})


def test_a_train_job_that_is_not_updated() -> None:
    """Its last word is no rate any more, and it stalls, until the next word.

    The API keeps the time, so a check that begins knows at once.
    """
    watched = watch(rules=(TrainingRule("samples", train_jobs=True, metric="rate"),))
    watched.run(0, jobs=[job(-5, 12.5, rate=320.0)])
    assert stalled(watched.run(STALLED_AFTER - 6)) == ""
    seen = watched.run(STALLED_AFTER - 4)
    assert (stalled(seen), seen.picture.headway) == ("no_progress", {KEY: Headway((), 12.5)})
    watched.restart()
    assert stalled(watched.run(STALLED_AFTER + 10, jobs=[job(-5, 12.5, rate=320.0)])) == "no_progress"
    seen = watched.run(STALLED_AFTER + 30, jobs=[job(STALLED_AFTER + 20, 12.6, rate=300.0)])
    assert (stalled(seen), rates(seen)) == ("", {"samples": 300.0})


@pytest.mark.parametrize("wrong", [-7200.0, -400.0, 7200.0])
def test_the_clock_of_a_trainer_may_be_wrong(wrong: float) -> None:
    """A TrainJob that reports every ten seconds gets on, whatever time it says; without reports it stalls in time."""
    watched = watch(*running("train", 2, since=20), rules=(TrainingRule("samples", train_jobs=True, metric="rate"),))
    watched.run(0, jobs=[job(wrong, 1.0, rate=320.0)])
    for at in range(INTERVAL, 1201, INTERVAL):
        seen = watched.run(at, jobs=[job(wrong + at, 1.0, rate=320.0)])
        assert (stalled(seen), rates(seen)) == ("", {"samples": 320.0})
    assert stalled(watched.run(1200 + STALLED_AFTER - 1)) == ""
    seen = watched.run(1200 + STALLED_AFTER + 1)
    assert (stalled(seen), rates(seen)) == ("no_progress", {})


def test_a_train_job_that_was_preempted_and_runs_again() -> None:
    """Its last report was of the attempt before: that is no rate, and the gang has its time to begin."""
    watched = watch(*running("train", 2, since=20), rules=(TrainingRule("samples", train_jobs=True, metric="rate"),))
    seen = watched.run(0, jobs=[job(-100, 40.0, rate=320.0)])
    assert seen.picture.headway == {KEY: Headway((), 40.0)}
    assert stalled(watched.run(500)) == ""
    seen = watched.run(515, jobs=[job(510, 40.0, rate=300.0)])
    assert (stalled(seen), rates(seen)) == ("", {"samples": 300.0})


def test_a_train_job_that_cannot_be_read_tells_nothing() -> None:
    """What came since nobody knows."""
    watched = watch(rules=(TrainingRule("samples", train_jobs=True),))
    watched.run(0, jobs=[job(-5, 12.5)])
    seen = watched.run(900, behind={"trainjobs": "unreachable"}, training="no_sample")
    assert (stalled(seen), seen.unobservable("throughput")) == ("", {"no_sample": 1})


# Stalls.


def train(
    watched: Watched, start: float, end: float, speed: float = 100.0, done: float = 0.0, ranks: tuple[int, ...] = (0, 1)
) -> Iterator[tuple[float, float, Seen]]:
    """Let counters grow with so many a second, with a sample in each run; yield the time, the count, what is seen."""
    at = start
    while at <= end:
        value = done + speed * (at - start)
        yield at, value, watched.run(at, paces=[count(f"train-{rank}", at, value) for rank in ranks])
        at += INTERVAL


def last(runs: Iterator[tuple[float, float, Seen]]) -> tuple[float, Seen]:
    """Return the count and what is seen in the end."""
    *_, (_, value, seen) = runs
    return value, seen


def test_no_progress_within_the_promised_time_and_recovery() -> None:
    """Counters stand still from 600 on: told with the run at 900, and no more with the first that sees them grow."""
    watched = watch()
    done, seen = last(train(watched, 0, 600))
    assert (stalled(seen), done) == ("", 60_000)
    told_at = [at for at, _, seen in train(watched, 615, 1200, 0.0, done) if stalled(seen) == "no_progress"]
    assert told_at[0] == 600 + STALLED_AFTER
    assert told_at == list(range(900, 1201, INTERVAL))
    seen = watched.run(1215, paces=[count(f"train-{rank}", 1215, done + 1) for rank in (0, 1)])
    assert (stalled(seen), seen.gang("train").attention) == ("", True)
    assert seen.picture.summary.stalled == {}


def test_one_process_that_is_stopped_holds_up_the_others() -> None:
    """It answers no more, the others wait for it in their all-reduce: what still tells does not grow."""
    watched = watch()
    done, _ = last(train(watched, 0, 600))
    for at in range(615, 1000, INTERVAL):
        seen = watched.run(at, paces=[count("train-0", at, done)], silent=[(0, "train-1")])
        assert stalled(seen) == ("no_progress" if at >= 900 else "")
        assert rates(seen) == {}
    seen = watched.run(1005, paces=[count("train-0", 1005, done + 100), count("train-1", 1005, done + 100)])
    assert stalled(seen) == ""


def test_one_that_only_vanishes_is_waited_for() -> None:
    """A Prometheus has no series of it any more. Until its last sample is too old it might have grown since."""
    watched = watch()
    done, _ = last(train(watched, 0, 600))
    told_at = [at for at, _, seen in train(watched, 615, 1200, 0.0, done, ranks=(0,)) if stalled(seen)]
    assert told_at[0] == 600 + STALLED_AFTER + INTERVAL


def test_nothing_fresh_is_no_stall() -> None:
    """All pods stop to answer: nobody knows whether they work."""
    watched = watch()
    last(train(watched, 0, 600))
    for at in range(615, 1500, INTERVAL):
        seen = watched.run(at, silent=[(0, "train-0"), (0, "train-1")])
        assert (stalled(seen), seen.unobservable("throughput")) == ("", {"no_sample": 1})


def test_one_rank_that_grows_is_progress() -> None:
    """Other counters may be those of ranks that count nothing."""
    watched = watch()
    for at in range(0, 1500, INTERVAL):
        assert stalled(watched.run(at, paces=[count("train-0", at, at), count("train-1", at, 0)])) == ""


def test_a_gang_that_has_not_begun_yet() -> None:
    """It loads its data for up to ten minutes since it is complete, not only five."""
    watched = watch(*running("train", 2, since=60), inactive_after=600.0)
    told_at = [at for at, _, seen in train(watched, 0, 900, 0.0) if stalled(seen)]
    assert told_at[0] == 600, "the first sample is a minute after it was complete: what was before nobody saw"


def test_pauses_are_learnt() -> None:
    """A job evaluates for 215 seconds: within the next hour three times that is no stall, then 300 seconds are one."""
    watched = watch()
    done, _ = last(train(watched, 0, 600))
    done, _ = last(train(watched, 615, 785, 0.0, done))
    done, _ = last(train(watched, 800, 1500, 100.0, done))
    told_at = [at for at, _, seen in train(watched, 1505, 2400, 0.0, done) if stalled(seen)]
    assert told_at[0] == 1490 + 3 * 215
    watched = watch()
    done, _ = last(train(watched, 0, 600))
    done, _ = last(train(watched, 615, 785, 0.0, done))
    done, _ = last(train(watched, 800, 4700, 100.0, done))
    told_at = [at for at, _, seen in train(watched, 4715, 5400, 0.0, done) if stalled(seen)]
    assert told_at[0] == 4700 + 300


def test_samples_that_are_far_apart_are_no_stall() -> None:
    """With a thousand pods to scrape each is seen every eight minutes: a counter that grows each time is all right."""
    watched = watch(rules=(TrainingRule("tokens", stalled_after=300.0),))
    for at in range(0, 4800, INTERVAL):
        paces = [count("train-0", at, at)] if at % 480 == 0 else []
        assert stalled(watched.run(at, paces=paces)) == ""


def test_a_gauge_at_zero_is_no_progress() -> None:
    """A rate that falls to 0 stays known, and stalls after a while."""
    watched = watch()
    watched.run(0, paces=[gauge("train-0", 0, 50.0)])
    found = {at: watched.run(at, paces=[gauge("train-0", at, 0.0)]) for at in range(15, 330, INTERVAL)}
    assert rates(found[300]) == {"tokens": 0.0}
    watched = watch()
    watched.run(0, paces=[gauge("train-0", 0, 50.0)])
    told_at = [
        at for at in range(15, 330, INTERVAL) if stalled(watched.run(at, paces=[gauge("train-0", at, 0.0)]))
    ]  # fmt: skip
    assert told_at[0] == STALLED_AFTER


@pytest.mark.parametrize(("changes", "hangs"), [(9, False), (10, True)])
def test_a_gauge_that_freezes(changes: int, hangs: bool) -> None:  # a value of the table
    """One that had changed with each of ten samples and keeps its value is that of a process that hangs.

    One that changes seldom tells nothing by it.
    """
    watched = watch()
    for number in range(changes + 1):
        watched.run(INTERVAL * number, paces=[gauge("train-0", INTERVAL * number, 50.0 + number)])
    frozen = INTERVAL * changes
    for at in range(frozen + INTERVAL, frozen + 900, INTERVAL):
        seen = watched.run(at, paces=[gauge("train-0", at, 50.0 + changes)])
        told_of = hangs and at >= frozen + STALLED_AFTER
        assert stalled(seen) == ("no_progress" if told_of else "")
        assert rates(seen) == ({} if told_of else {"tokens": 50.0 + changes}), "its last word is no rate"
    assert stalled(watched.run(frozen + 900, paces=[gauge("train-0", frozen + 900, 51.0)])) == ""


def test_a_gauge_that_falls_to_zero() -> None:
    """That is a rate, and a true one, for as long as it stays there: the gang gets nothing done, and says so."""
    watched = watch()
    for number in range(20):
        watched.run(INTERVAL * number, paces=[gauge("train-0", INTERVAL * number, 50.0 + number)])
    last = INTERVAL * 19
    for at in range(last + INTERVAL, last + 900, INTERVAL):
        seen = watched.run(at, paces=[gauge("train-0", at, 0.0)])
        assert (stalled(seen) == "no_progress") is (at >= last + STALLED_AFTER)
        assert rates(seen) == {"tokens": 0.0}


def test_slow_against_its_own_level() -> None:
    """After an hour at 200 a second it goes at 60: told once the mean of five minutes is below 100, until it is not."""
    watched = watch()
    done, seen = last(train(watched, 0, 3600))
    assert (stalled(seen), rates(seen)) == ("", {"tokens": 200.0})
    slow = [at for at, _, seen in train(watched, 3615, 4200, 30.0, done) if stalled(seen) == "slow"]
    # Of 20 samples 15 must be slow: (15 x 60 + 5 x 200) / 20 = 95.
    assert slow[0] - 3600 in range(14 * INTERVAL, 17 * INTERVAL)
    assert slow == list(range(int(slow[0]), 4201, INTERVAL))
    done += 30.0 * (4200 - 3615)
    found = [at for at, _, seen in train(watched, 4215, 4800, 100.0, done) if stalled(seen) == "slow"]
    # (6 x 200 + 14 x 60) / 20 = 102.
    assert found[-1] - 4200 in range(4 * INTERVAL, 8 * INTERVAL)


def test_slowness_does_not_become_the_level() -> None:
    """Two hours of it are still slow; after more than four nobody knows any more."""
    watched = watch()
    done, _ = last(train(watched, 0, 3600))
    told_at = [at for at, _, seen in train(watched, 3615, 3600 + 5 * 3600, 30.0, done) if stalled(seen) == "slow"]
    assert told_at[0] < 3600 + 300
    assert 3600 + 3.9 * 3600 < told_at[-1] < 3600 + 4.2 * 3600


def test_another_job_of_the_same_name_has_its_own_level() -> None:
    """The next one does at a third of the rate what the one before did: only one that is restarted is slow so."""
    for made_anew, expected in ((True, {""}), (False, {"", "slow"})):
        watched = watch()
        for at in range(INTERVAL, 4000, INTERVAL):
            assert stalled(watched.run(at, paces=[count("train-0", at, 300.0 * at)])) == ""
        members = [
            ready(f"train-{rank}", of_group("train"), f"n{rank}", since=-4040, created=-4020) for rank in range(2)
        ]
        anew = (pod_group("train", 2, created=-4010 if made_anew else 7260), *members)
        told = {
            stalled(watched.run(at, *anew, paces=[count("train-0", at, 100.0 * at)]))
            for at in range(4050, 6000, INTERVAL)
        }
        assert told == expected


def test_no_level_no_slowness() -> None:
    """A gang that begins has none: against ten samples nothing is slow."""
    watched = watch()
    done, _ = last(train(watched, 0, 135))
    assert not [at for at, _, seen in train(watched, 150, 1200, 30.0, done) if stalled(seen)]


def test_one_pause_is_no_slowness() -> None:
    """Each quarter of an hour the job evaluates for two minutes; each step of a starving one takes a minute."""
    watched = watch()
    done = 0.0
    for start in range(0, 7200, 900):
        runs = [(at, value, stalled(seen)) for at, value, seen in train(watched, start, start + 765, 100.0, done)]
        done = runs[-1][1]
        runs += [(at, value, stalled(seen)) for at, value, seen in train(watched, start + 780, start + 885, 0.0, done)]
        assert not [at for at, _, reason in runs if reason]
    found = set()
    for start in range(7200, 8400, 60):
        done += 1000.0
        found |= {stalled(seen) for _, _, seen in train(watched, start, start + 45, 0.0, done)}
    assert "slow" in found
    assert "no_progress" not in found


def test_slower_steps_are_not_slow_before_they_take_twice_as_long() -> None:
    """A step takes 29 seconds, then 36, with samples each 15: the counter rests in half of the samples.

    That is 81 % of its level, and where a step takes 70 seconds it is 41 %.
    """
    for seconds, expected in ((36.0, {""}), (70.0, {"", "slow"})):
        watched, done, after, told = watch(), 0, 29.0, set()
        for at in range(INTERVAL, 3 * 3600, INTERVAL):
            while after <= at:
                done, after = done + 1000, after + (29.0 if at < 1.3 * 3600 else seconds)
            told.add(stalled(watched.run(at, paces=[count("train-0", at, done)])))
        assert told == expected


def test_another_number_of_gpus_is_another_level() -> None:
    """A gang that goes on with fewer GPUs is slower, and all right."""
    level = Level()
    for at in range(0, 3600, INTERVAL):
        level.take(at, 200.0, {GPU: 16}, 300)
    for at in range(3600, 4800, INTERVAL):
        level.take(at, 80.0, {GPU: 8}, 300)
        assert not level.slow


def test_gpus_tell_first() -> None:
    """A gang that is idle and does not get on has one reason, that of its GPUs."""
    watched = watch(activity=True, inactive_after=600.0)
    for at in range(0, 1200, INTERVAL):
        samples = [*beats("train-0", at), *beats("train-1", at, busy=range(8))]
        seen = watched.run(at, beats=samples, paces=[count("train-0", at, 5.0)])
        assert stalled(seen) == ("some_idle" if at >= 600 else "")
        assert sum(seen.picture.summary.stalled.values()) == (at >= 600)


def test_finishing_gangs_do_not_stall() -> None:
    """A part of it is over; what is left is told, and held against nobody."""
    group, first, second = running("train", 2)
    over = succeeded("train-1", of_group("train"), "n1", since=7200, created=7260)
    watched = watch(group, first, second)
    done, _ = last(train(watched, 0, 300))
    for at in range(315, 1500, INTERVAL):
        seen = watched.run(at, group, first, over, paces=[count("train-0", at, done)])
        assert (seen.gang("train").state, stalled(seen)) == ("finishing", "")
    assert rates(seen) == {"tokens": 0.0}


# Any samples.


OBJECTS = (*running("train", 2), *running("eval", 2, since=100))
NAMES = ("train-0", "train-1", "eval-0", "eval-1", "none")
LAW = settings(max_examples=80, deadline=None, derandomize=True, database=None)
SEEDS = st.integers(0, 2**32)
RULES = (TrainingRule("tokens"), TrainingRule("steps", "max", 120.0), TrainingRule("", train_jobs=True))


def lives(seed: int, watched: Watched, order: Random | None = None) -> Iterator[tuple[float, Seen]]:
    """Yield what is seen of jobs that go on, stand still, are started again, lose pods and are slow."""
    random, at = Random(seed), 0.0
    done = dict.fromkeys(NAMES, 0.0)
    speed = 100.0
    group, first, second = OBJECTS[:3]
    new = ready("train-1", of_group("train"), "n1", since=-1000, created=-990)
    leaving = terminating(second, began=-700, grace=120)
    jobs: list[TrainJob] | None = None
    for _ in range(random.randint(20, 90)):
        pause = random.choice((15.0, 15.0, 15.0, 60.0, 200.0))
        at += pause
        speed = random.choice((speed, speed, speed, speed, 0.0, 100.0, 30.0))
        paces: list[Pace] = []
        for name in NAMES:
            done[name] = 0.0 if random.random() < 0.02 else done[name] + speed * pause
            if random.random() < 0.8:
                paces.append(count(name, at - random.uniform(0, 10), done[name]))
            if random.random() < 0.3:
                paces.append(gauge(name, at - random.uniform(0, 10), random.choice((0.0, 2.0, 3.0)), source=1))
        if random.random() < 0.2:
            jobs = [job(at - random.uniform(0, 600), random.uniform(0, 100), random.choice(("train", "else")))]
        silent = [(0, name) for name in NAMES if random.random() < 0.05]
        middle = (leaving,) if 700 < at < 820 else (new,) if at >= 1000 else (second,) if at <= 700 else ()
        if order:
            order.shuffle(paces)
        objects = (group, first, *middle, *OBJECTS[3:])
        yield at, watched.run(at, *objects, paces=paces, silent=silent, jobs=jobs)


def rest(seen: Seen) -> dict[str, Any]:
    """Return all that is seen, with how gangs get on."""
    return {**told(seen), "headway": dict(seen.picture.headway), "stalled": dict(seen.picture.summary.stalled)}


@LAW
@given(SEEDS, SEEDS)
def test_neither_order_nor_what_changes_matters(seed: int, other: int) -> None:
    """The order of samples in a run changes nothing, nor does it whether objects are looked at again in each run."""
    first = [rest(seen) for _, seen in lives(seed, watch(rules=RULES))]
    assert first == [rest(seen) for _, seen in lives(seed, watch(rules=RULES), Random(other))]
    assert first == [rest(seen) for _, seen in lives(seed, watch(anew=True, rules=RULES))]


@LAW
@given(SEEDS)
def test_the_laws_of_headway_hold(seed: int) -> None:
    """No rate is negative; only gangs that run have any or stall, for one reason.

    Each running gang either tells, or is counted as unobservable.
    """
    for _, seen in lives(seed, watch(rules=RULES)):
        state = {view.key: view.state for view in seen.picture.gangs}
        for key, headway in seen.picture.headway.items():
            assert state[key] == "running"
            assert all(rate.value >= 0 for rate in headway.rates)
            assert len({rate.unit for rate in headway.rates}) == len(headway.rates)
        stalls = {view.key: view.stalled for view in seen.picture.gangs if view.stalled}
        assert all(state[key] == "running" for key in stalls)
        assert sum(seen.picture.summary.stalled.values()) == len(stalls)
        runs = sum(one == "running" for one in state.values())
        blind = sum(seen.unobservable("throughput").values())
        assert runs - len(seen.picture.headway) <= blind + len(stalls)
        assert blind <= runs


@LAW
@given(SEEDS)
def test_what_grows_is_not_stalled(seed: int) -> None:
    """A gang that was seen to grow within `stalled_after` before the sample that tells has progress, whatever else."""
    grown: dict[str, float] = {}
    before: dict[str, float] = {}
    watched = watch(rules=(TOKENS,))
    random, at, value = Random(seed), 0.0, 0.0
    for _ in range(random.randint(20, 120)):
        at += random.choice((15.0, 15.0, 60.0))
        value += random.choice((0.0, 0.0, 0.0, 5.0))
        if random.random() < 0.7:
            seen = watched.run(at, paces=[count("train-0", at, value)])
            if value > before.get("train", value):
                grown["train"] = at
            before["train"] = value
        else:
            seen = watched.run(at)
        if "train" in grown and at - grown["train"] < STALLED_AFTER:
            assert stalled(seen) != "no_progress"


def test_a_node_of_the_same_cluster_changes_nothing() -> None:
    """What is known of a gang stays when its component is drawn anew for another reason."""
    watched = watch()
    done, _ = last(train(watched, 0, 600))
    last(train(watched, 615, 880, 0.0, done))
    lost = node("n2", ready_status="Unknown", since=-880)
    seen = watched.run(
        900, *running("train", 2), lost, paces=[count("train-0", 900, done), count("train-1", 900, done)]
    )
    assert stalled(seen) == "no_progress"


def test_what_happens_in_the_run_of_a_stall_is_told_once() -> None:
    """The gang is drawn for its new member, which is turned away, and again since it stalls: that is one rejection."""
    objects = running("train", 2)
    watched = watch(*objects)
    done, _ = last(train(watched, 0, 600))
    last(train(watched, 615, 885, 0.0, done))
    spare = unscheduled("train-2", of_group("train"), TIMEOUT, created=-899, since=-899)
    seen = watched.run(900, *objects, spare, paces=[count(f"train-{rank}", 900, done) for rank in (0, 1)])
    assert (stalled(seen), sum(seen.picture.happened.rejected.values())) == ("no_progress", 1)


def test_a_gang_that_is_gone_is_forgotten() -> None:
    """Neither its samples nor its level are kept for ever."""
    watched = watch()
    done, _ = last(train(watched, 0, 600))
    other = (pod_group("else", 2), ready("else-0", of_group("else"), "n0"))
    for at in range(615, 20_000, 200):
        seen = watched.run(at, *other)
    book = watched.deriver._watch.throughput
    assert (book._pods, book._known, seen.picture.headway, done) == ({}, {}, {}, 60_000)


def test_pods_of_no_gang_are_forgotten_soon() -> None:
    """A query tells of a hundred others in each run: those of half an hour are kept, and the gang's own for ever."""
    watched = watch()
    for at in range(0, 3 * 3600, 60):
        others = [gauge(f"job-{at}-{number}", at, 1.0) for number in range(100)]
        own = [gauge("train-0", at, 100.0)] if at < 600 else []
        watched.run(at, paces=[*others, *own])
    kept = watched.deriver._watch.throughput._pods
    assert (TEAM, "train-0") in kept
    # Of half an hour, and of the ten minutes until somebody looks.
    assert len(kept) <= 1 + 100 * (30 + 10 + 1)
