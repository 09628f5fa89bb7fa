# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A timeline tells what the Agent would send."""

from pathlib import Path

import pytest
from datadog_checks.base import AgentCheck
from datadog_checks.base.stubs.aggregator import AggregatorStub

from lab.timeline import Moment, Point, Recorder, Timeline


@pytest.fixture
def agent(aggregator: AggregatorStub) -> AgentCheck:
    """Return a check that submits to the stub."""
    return AgentCheck("kueue_gang", {}, [{}])


def test_a_running_total_is_told_as_the_difference_to_the_run_before(aggregator, agent):
    """The first value tells nothing; a total that fell began anew at 0."""
    recorder = Recorder()
    told = []
    for total in (7, 10, 10, 4):
        aggregator.reset()
        agent.monotonic_count("kueue_gang.total", total, tags=["b:2", "a:1"])
        told.append(recorder.moment(0.0, aggregator).points)
    assert told[0] == ()
    assert [points[0] for points in told[1:]] == [
        Point("total", "count", value, ("a:1", "b:2")) for value in (3.0, 0.0, 4.0)
    ]


def test_a_first_value_counts_where_the_check_says_so(aggregator, agent):
    """A counter that appears after the first scrape began at 0 meanwhile."""
    agent.monotonic_count("kueue_gang.total", 5, flush_first_value=True)
    assert Recorder().moment(0.0, aggregator).total("total") == 5


def test_gauges_and_counts_are_told_as_they_are(aggregator, agent):
    """The last value of a gauge, the sum of a count; events beside them."""
    agent.gauge("kueue_gang.gpus", 8)
    agent.gauge("kueue_gang.gpus", 16)
    agent.count("kueue_gang.evicted", 1, tags=["why:a"])
    agent.count("kueue_gang.evicted", 2, tags=["why:a"])
    agent.event({"msg_title": "it happened", "timestamp": 3})
    moment = Recorder().moment(3.0, aggregator)
    assert moment.points == (Point("evicted", "count", 3.0, ("why:a",)), Point("gpus", "gauge", 16.0, ()))
    assert [event["msg_title"] for event in moment.events] == ["it happened"]


def test_a_timeline_comes_out_of_its_file_as_it_went_in(tmp_path: Path):
    """Moments, points and events are equal after a round trip."""
    moments = [Moment(15.0, (Point("a", "gauge", 1.5, ("k:v", "l:w")),), ({"msg_title": "t", "tags": ["x"]},))]
    timeline = Timeline("one", 15.0, moments)
    timeline.save(tmp_path / "one.json.gz")
    assert Timeline.load(tmp_path / "one.json.gz") == timeline


def test_moments_are_found_by_seconds_since_the_start():
    """The start is one interval before the first run."""
    timeline = Timeline("one", 10.0, [Moment(110.0, ()), Moment(120.0, ()), Moment(130.0, ())])
    assert timeline.start == 100.0
    assert timeline.at(25).at == 120.0
    assert [moment.at for moment in timeline.between(15, 30)] == [120.0, 130.0]
    with pytest.raises(LookupError, match="first 5 s"):
        timeline.at(5)


def test_points_are_added_by_a_tag():
    """Zeros and points without the tag are left out."""
    points = [("a", 1.0), ("a", 2.0), ("b", 0.0)]
    moment = Moment(0.0, (*(Point("g", "gauge", v, (f"k:{k}",)) for k, v in points), Point("g", "gauge", 9.0, ())))
    assert moment.by("g", "k") == {"a": 3.0}
    assert moment.total("g", "k:a") == 3.0
