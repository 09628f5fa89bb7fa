# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The check beside a real training loop: what it tells of the loop is what the loop counted of itself.

Each pod of the gang is a process of its own, and they get on together or not at all (`lab.training_loop`). So a rank
that is stopped is what a hung one is to a cluster: all pods are Running and Ready, all GPUs are allocated, and nothing
gets on.
"""

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from datadog_checks.base.stubs.aggregator import AggregatorStub

from lab.training_loop import COUNTER, GAUGE, SCRAPE, STEP, Line, TrainingLoop
from tests.live import until
from tests.model.build import bound
from tests.trained import (
    GANG,
    GPUS,
    INTERVAL,
    SELECTOR,
    STALLED_AFTER,
    Runs,
    both,
    cluster,
    member,
    near,
    stalls,
    throughput,
)

RANKS = 3


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[TrainingLoop]:
    """Run a loop of three ranks."""
    with TrainingLoop(RANKS, tmp_path) as loop:
        yield loop


def source(loop: TrainingLoop, metric: str = COUNTER, **more: Any) -> dict[str, Any]:
    """Return the option that reads the ranks of a loop as pods."""
    return {
        "label_selector": SELECTOR,
        "port": loop.port,
        "metric": metric,
        "unit": "samples",
        "timeout": 1,
        "stalled_after_seconds": STALLED_AFTER,
        **more,
    }


def test_the_loop_is_one(loop: TrainingLoop) -> None:
    """The ranks learn together: after each step all of them know the same loss, and it falls to that of the noise."""
    until(lambda: min(len(loop.lines(rank, STEP)) for rank in range(RANKS)) > 60)
    first, *others = [[line.loss for line in loop.lines(rank, STEP)[:60]] for rank in range(RANKS)]
    assert others == [first] * (RANKS - 1)
    # Answers have noise of 0.01, so no model is better than a mean square of 0.0001.
    assert first[0] > 1
    assert first[-1] < 0.01
    began = loop.stop(1)
    # Whoever was in a step when the rank stopped may end it.
    until(lambda: time.monotonic() > began + 0.5)
    assert loop.rate(began + 0.1, time.monotonic()) == 0


def test_throughput_is_what_the_loop_counted(loop: TrainingLoop, aggregator: AggregatorStub) -> None:
    """Counter and gauge, sum and maximum over the ranks: a counter within 2 % of the loop's own count of that time."""
    training = [
        source(loop),
        source(loop, GAUGE, unit="by_gauge"),
        source(loop, unit="by_fastest_rank", over_ranks="max"),
    ]
    with cluster(loop.addresses) as server, Runs(aggregator, server, training=training) as runs:
        until(lambda: throughput(runs.next()))
        first = len(runs.started) - 1
        runs.go_on(5)
        moments = [scraped(loop, 0, since).at for since in runs.started[first:]]
        # Between the very samples that the numbers are made of.
        counted = counted_between(loop, runs.started[first], runs.started[-1])

        assert runs.mean("gang.throughput", moments, unit="samples") == near(counted)
        assert runs.mean("gang.throughput_per_gpu", moments, unit="samples") == near(counted / (RANKS * GPUS))
        # A gauge is of a moment: of a loop that has its ups and downs some are between the samples.
        assert runs.mean("gang.throughput", moments, unit="by_gauge") == near(counted, 0.06)
        # The largest of three ranks that are alike but for their last steps; two of them would be more.
        largest = runs.mean("gang.throughput", moments, unit="by_fastest_rank")
        assert 0.95 * counted / RANKS < largest < counted / 2
        assert [sent for sent in runs.all if stalls(sent)] == []
        assert runs.all[-1].of("unobservable", signal="throughput") == []


def scraped(loop: TrainingLoop, rank: int, since: float) -> Line:
    """Return what a rank told when it was first scraped from then on."""
    return next(line for line in loop.lines(rank, SCRAPE) if line.at >= since)


def counted_between(loop: TrainingLoop, began: float, ended: float) -> float:
    """Return the samples per second of all ranks, from the first scrape after one time to that after another."""
    ends = [(scraped(loop, rank, began), scraped(loop, rank, ended)) for rank in range(RANKS)]
    return sum((last.total - first.total) / (last.at - first.at) for first, last in ends)


def test_a_hung_rank_is_no_progress_until_it_goes_on(loop: TrainingLoop, aggregator: AggregatorStub) -> None:
    """One process hangs: the gang is stalled, by its reason and in the time that was promised; it recovers after.

    The others still answer, with a counter that stands, and with a gauge that keeps the value of its last step.
    """
    with (
        cluster(loop.addresses) as server,
        Runs(aggregator, server, training=[source(loop, COUNTER)]) as counted,
        Runs(aggregator, server, training=[source(loop, GAUGE)]) as measured,
    ):
        # A gauge must have been seen to change ten times before its standing still tells anything.
        until(lambda: both(counted, measured, throughput) and len(measured.all) > 12, seconds=30)
        assert [sent for sent in [*counted.all, *measured.all] if stalls(sent)] == []

        stopped = loop.stop(1)
        until(lambda: both(counted, measured, stalls), seconds=30)
        for runs in (counted, measured):
            assert stalls(runs.all[-1]) == {"no_progress": 1}
            # What the loop did until it stopped is seen by the next run. The rank that hangs keeps a round of scrapes
            # waiting, whose answers are those of the run after. Three times the longest time without news is no stall.
            took = runs.first(stalls, stopped) - stopped
            assert took >= STALLED_AFTER - runs.longest
            assert took <= max(STALLED_AFTER, 3 * runs.longest) + 4 * runs.longest
            # The gang runs, as far as the cluster knows; no throughput is told that nobody knows.
            assert runs.all[-1].only("gangs", gang_state="running") == 1
            assert not throughput(runs.all[-1])

        went_on = loop.go_on(1)
        until(lambda: both(counted, measured, lambda sent: not stalls(sent)))
        for runs in (counted, measured):
            assert runs.first(lambda sent: not stalls(sent), went_on) - went_on <= 4 * runs.longest
        # A pod that failed is asked again only after a while, and a sum takes all.
        until(lambda: both(counted, measured, throughput) and is_right(loop, counted) and is_right(loop, measured))
        assert stalls(counted.all[-1]) == stalls(measured.all[-1]) == {}


def test_ranks_that_nobody_can_ask_are_unobservable(loop: TrainingLoop, aggregator: AggregatorStub) -> None:
    """Where no process answers, nothing is known: the gang is told to be unobservable, never to be stalled."""
    with cluster(loop.addresses) as server, Runs(aggregator, server, training=[source(loop)]) as runs:
        until(lambda: throughput(runs.next()))
        for rank in range(RANKS):
            loop.stop(rank)
        until(lambda: runs.next().only("unobservable", signal="throughput", reason="no_sample"), seconds=20)
        assert throughput(runs.all[-1]) is None
        runs.go_on(STALLED_AFTER + 2 * INTERVAL)
        assert [sent for sent in runs.all if stalls(sent)] == []


def test_two_pods_of_one_rank_count_once(tmp_path: Path, aggregator: AggregatorStub) -> None:
    """A pod that is being replaced still trains, and so does its replacement: the rank counts once."""
    with (
        TrainingLoop(RANKS + 1, tmp_path) as loop,
        cluster(loop.addresses[:RANKS]) as server,
        Runs(aggregator, server, training=[source(loop)]) as runs,
    ):
        until(lambda: throughput(runs.next()) and is_right(loop, runs, 0, 1, 2))
        old, spare = loop.addresses[2], loop.addresses[3]
        leaving = member(f"{GANG}-2", 2, old, metadata={"deletionTimestamp": f"{server.now():%Y-%m-%dT%H:%M:%SZ}"})
        server.apply_all([leaving, member(f"{GANG}-2b", 2, spare, build=bound)])
        until(lambda: not runs.next().only("gangs", gang_state="running"))
        server.apply_all([member(f"{GANG}-2b", 2, spare)])
        until(lambda: runs.next().only("gangs", gang_state="running"))
        until(lambda: throughput(runs.next()) and is_right(loop, runs, 0, 1, 3))
        runs.go_on(2 * INTERVAL)
        until(lambda: throughput(runs.next()) and is_right(loop, runs, 0, 1, 3))
        server.delete("pods", f"{GANG}-2", "team")
        runs.go_on(2 * INTERVAL)
        until(lambda: throughput(runs.next()) and is_right(loop, runs, 0, 1, 3))
        told = [value for sent in runs.all if (value := throughput(sent)) is not None]
        whole = loop.rate(runs.started[0], runs.started[-1])
        # Between two scrapes that follow one another at once a rate may be anything, and not in two runs.
        assert max(map(min, pairwise(told))) < whole * (RANKS + 0.5) / (RANKS + 1)


def is_right(loop: TrainingLoop, runs: Runs, *ranks: int) -> bool:
    """Tell whether the last throughput is what these ranks, or all, counted in that time: as near as single steps go.

    One rank more or less would be a third.
    """
    counted = loop.rate(runs.started[-2], runs.started[-1], ranks or None)
    return throughput(runs.all[-1]) == near(counted, 0.12)
