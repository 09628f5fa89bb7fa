# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Evictions that are over before the next run: the watch hands each version of a Workload, and the check counts each.

Kueue clears the condition Evicted with the next reservation of quota, and under its 0.12 nothing else tells of it.
"""

import time
from collections import Counter
from typing import Any

import pytest
from datadog_checks.base.stubs.aggregator import AggregatorStub

from datadog_checks.kueue_gang import KueueGangCheck
from datadog_checks.kueue_gang.sources.store import Table
from lab.apiserver import ApiServer
from tests.live import QUICK, instance, until
from tests.model.build import (
    NO_GPU,
    Json,
    ago,
    bound,
    local_queue,
    node,
    of_workload,
    podset,
    ready,
    unscheduled,
    workload,
)
from tests.sent import Sent

PARTLY = [bound("half-0", of_workload("half"), "n0"), unscheduled("half-1", of_workload("half"), NO_GPU)]
WHOLE = [ready(f"whole-{rank}", of_workload("whole"), f"n{rank + 1}") for rank in range(2)]
TAGS = ("kueue_eviction_reason", "underlying_cause", "gang_partial")


def one(name: str, evictions: int = 0, reason: str = "Preempted", **more: Any) -> Json:
    """Return a Workload of a gang of two, with Kueue's own count of evictions."""
    made = workload(name, ("JobSet", f"js-{name}"), podset(2), **more)
    if evictions:
        made["status"]["schedulingStats"] = {"evictions": [{"reason": reason, "count": evictions}]}
    return made


class Cluster:
    """A live API server, the check on it, and the evictions that it has told of."""

    def __init__(self, server: ApiServer, aggregator: AggregatorStub) -> None:
        """Begin with two admitted gangs, of which one runs and one is placed in half."""
        self.server, self.aggregator = server, aggregator
        server.clock = lambda: ago(0)
        server.apply_all([*(node(f"n{number}") for number in range(3)), local_queue("lq", "cq"), *PARTLY, *WHOLE])
        server.apply_all([one("half", admitted=400), one("whole", admitted=400)])
        options = {"openmetrics_endpoint": None, "scheduler_metrics": None}
        self.check = KueueGangCheck("kueue_gang", {}, [instance(server.url, **options)])
        self.evicted: Counter[tuple[str, ...]] = Counter()
        until(lambda: self.run().only("gangs", gang_state="partial") == 1)
        until(lambda: server.watches("workloads.kueue.x-k8s.io") == 1)

    def run(self) -> Sent:
        """Run the check and add up the evictions."""
        self.aggregator.reset()
        assert self.check.run() == ""
        sent = Sent(self.aggregator)
        for series in sent.series["workloads.evicted"]:
            self.evicted[tuple(series.tags[tag] for tag in TAGS)] += int(series.value)
        return sent

    def settle(self) -> None:
        """Run until the Workload that is written last is known; the watch is in order."""
        self.server.apply_all([one("last")])
        time.sleep(0.3)
        until(lambda: self.run().total("gangs", gang_state="queued") >= 1)
        self.run()


@pytest.fixture(name="cluster")
def fixture_cluster(aggregator: AggregatorStub, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Yield a cluster that is watched."""
    monkeypatch.setattr(KueueGangCheck, "TIMING", QUICK)
    with ApiServer() as server:
        cluster = Cluster(server, aggregator)
        yield cluster
        cluster.check.cancel()


@pytest.mark.parametrize("counts", [0, 1])
def test_two_are_evicted_and_requeued_within_one_interval(cluster: Cluster, counts: int) -> None:
    """Each is counted once, whether Kueue counts them too or not: the half placed one as partial, the other not."""
    for name in ("half", "whole"):
        cluster.server.apply_all(
            [
                one(name, counts, admitted=400, evicted=("True", 10, "Preempted")),
                one(name, counts, evicted=("True", 10, "Preempted"), requeued=("True", 9, "Preempted")),
                one(name, counts, admitted=5, evicted=("False", 5, "QuotaReserved"), requeued=("True", 9, "Preempted")),
            ]
        )
    cluster.settle()
    assert cluster.evicted == {("preempted", "none", "true"): 1, ("preempted", "none", "false"): 1}


def test_one_is_evicted_twice_within_one_interval(cluster: Cluster) -> None:
    """Of the admission that came and went between two runs nobody has seen the pods: unknown, not false."""
    cluster.server.apply_all(
        [
            one("half", 1, admitted=400, evicted=("True", 10, "Preempted")),
            one("half", 1, admitted=8, evicted=("False", 8, "QuotaReserved"), requeued=("True", 9, "Preempted")),
            one("half", 2, admitted=8, evicted=("True", 6, "Preempted"), requeued=("True", 9, "Preempted")),
            one("half", 2, evicted=("True", 6, "Preempted"), requeued=("True", 5, "Preempted")),
        ]
    )
    cluster.settle()
    assert cluster.evicted == {("preempted", "none", "true"): 1, ("preempted", "none", "unknown"): 1}


def test_a_watch_that_breaks_repeats_nothing(cluster: Cluster) -> None:
    """A new list of Workloads that were evicted and requeued before it tells of these evictions once."""
    cluster.server.apply_all([one("half", 1, admitted=400, evicted=("True", 10, "Preempted"))])
    until(lambda: bool(cluster.run().series) and bool(cluster.evicted))
    cluster.server.compact()
    cluster.server.cut()
    cluster.server.apply_all([one("half", 1, evicted=("True", 10, "Preempted"), requeued=("True", 9, "Preempted"))])
    cluster.settle()
    assert cluster.evicted == {("preempted", "none", "true"): 1}


def versions(table: Table) -> list[tuple[Any, Any]]:
    """Return the changes of a table by the number of each version."""
    return [(old and old.number, new and new.number) for old, new in table.take_changes()]


class Fact:
    """A version of an object."""

    def __init__(self, number: int) -> None:
        """Make one."""
        self.namespace, self.name, self.number = "team", "w", number


def test_versions_before_a_new_list_are_told() -> None:
    """A list that comes in between two runs hides no version that a watch has brought before it."""
    facts = [Fact(number) for number in range(5)]
    table = Table(every_version=True)
    table.replace({"team": {"w": facts[0]}})
    assert versions(table) == [(None, 0)]
    table.put(("team", "w"), facts[1])
    table.put(("team", "w"), facts[2])
    table.replace({"team": {"w": facts[3]}})
    assert versions(table) == [(0, 1), (1, 2), (2, 3)]
    table.put(("team", "w"), facts[4])
    table.replace({})
    assert versions(table) == [(3, 4), (4, None)]
    assert versions(table) == []


def test_only_the_last_version_where_no_other_is_wanted() -> None:
    """Without `every_version` a change is from what was to what is."""
    facts = [Fact(number) for number in range(4)]
    table = Table()
    table.put(("team", "w"), facts[0])
    table.put(("team", "w"), facts[1])
    assert versions(table) == [(None, 1)]
    table.put(("team", "w"), facts[2])
    table.replace({"team": {"w": facts[3]}})
    assert versions(table) == [(1, 3)]
