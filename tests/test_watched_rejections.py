# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Rejections that repeat with the same text: the watch hands Events as they are written, and the check counts each."""

from collections import Counter

import pytest
from datadog_checks.base.stubs.aggregator import AggregatorStub

from datadog_checks.kueue_gang import KueueGangCheck
from lab.apiserver import ApiServer
from tests.live import QUICK, instance, until
from tests.model.build import TIMEOUT, ago, failed_scheduling, node, of_group, pod_group, unscheduled
from tests.sent import Sent


def test_events_are_watched(aggregator: AggregatorStub, monkeypatch: pytest.MonkeyPatch) -> None:
    """5, 10 and 20 s after the first run a gang is rejected, the last two within one interval; a new list adds none.

    The Event of a minute before is old. The pods are never written.
    """
    monkeypatch.setattr(KueueGangCheck, "TIMING", QUICK)
    counted: Counter[str] = Counter()
    with ApiServer(clock=lambda: ago(0)) as server:
        pods = [unscheduled(name, of_group("train"), TIMEOUT) for name in "ab"]
        server.apply_all([node("n0"), pod_group("train", 2), *pods, failed_scheduling("b", TIMEOUT, 60)])
        options = {"openmetrics_endpoint": None, "scheduler_metrics": None}
        check = KueueGangCheck("kueue_gang", {}, [instance(server.url, **options)])

        def run() -> Sent:
            aggregator.reset()
            assert check.run() == ""
            sent = Sent(aggregator)
            for series in sent.series["gangs.rejected"]:
                counted[series.tags["reason"]] += int(series.value)
            return sent

        def total() -> int:
            run()
            return counted.total()

        until(lambda: run().only("source.objects", api_source="events") == 1)
        until(lambda: server.watches("events") == 1)
        server.apply_all([failed_scheduling("a", TIMEOUT, -5)])
        until(lambda: total() == 1)
        server.apply_all([failed_scheduling("a", TIMEOUT, -5, last) for last in (-10, -20)])
        until(lambda: total() == 3)
        server.compact()
        server.cut()
        server.apply_all([failed_scheduling("b", TIMEOUT, -21), node("n1")])
        until(lambda: run().only("source.objects", api_source="events") == 3)
        run()
        check.cancel()
    assert counted == {"permit_timeout": 3}
