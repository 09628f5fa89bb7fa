# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What only a signal tells is unknown while the signal cannot be read, and not zero."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from datadog_checks.kueue_gang.derive.picture import Gpus, Picture, Queue, Summary
from datadog_checks.kueue_gang.emit import Emitter, Report
from datadog_checks.kueue_gang.emit_gang import EmitOptions
from datadog_checks.kueue_gang.facts.health import OK, SourceHealth

QUEUE = Queue("team", "lq", "cq", "kueue")
GPU = "nvidia.com/gpu"


class Told:
    """An Agent that remembers what was submitted."""

    def __init__(self) -> None:
        self.series: dict[tuple[str, frozenset[str]], float] = {}

    def gauge(self, name: str, value: float, tags: Sequence[str] | None = None) -> None:
        """Take a value of any type of metric."""
        self.series[name, frozenset(tags or ())] = value

    count = monotonic_count = gauge


def report(health: dict[str, str], idle: dict[str, int], stalled: dict[str, int]) -> Report:
    """Return a report with so many idle GPUs and stalled gangs by reason, and how sources fare."""
    picture = Picture(
        now=100.0,
        gpus=Gpus(
            allocated=Counter({(QUEUE, GPU, "idle"): sum(idle.values())}),
            idle=Counter({(QUEUE, GPU, reason): number for reason, number in idle.items()}),
        ),
        summary=Summary(stalled=Counter({(QUEUE, reason): number for reason, number in stalled.items()})),
        pods_known=True,
    )
    return Report(picture, [SourceHealth(source, reason) for source, reason in health.items()])


def values(told: Told, name: str, tag: str) -> list[float]:
    """Return what was told of a metric with a tag."""
    return [value for (metric, tags), value in told.series.items() if metric == name and tag in tags]


@pytest.mark.parametrize(
    ("source", "name", "tag"),
    [
        ("activity", "gpus.idle", "idle_reason:inactive"),
        ("activity", "gangs.stalled", "stall_reason:all_idle"),
        ("activity", "gangs.stalled", "stall_reason:some_idle"),
        ("training", "gangs.stalled", "stall_reason:no_progress"),
        ("training", "gangs.stalled", "stall_reason:slow"),
    ],
)
def test_unknown_while_the_signal_is_down(source: str, name: str, tag: str) -> None:
    """It ends some time after the last sample, while the source is down: not as 0 before that is read again."""
    some = {tag.partition(":")[2]: 4}
    found: dict[str, Any] = {"idle": some if name == "gpus.idle" else {}, "stalled": some if "stall" in name else {}}
    told = Told()
    emitter = Emitter(told, EmitOptions())
    emitter.emit(report({source: OK}, **found), 1_000.0)
    assert values(told, name, tag) == [4]
    # The last samples are still young: what they say holds.
    emitter.emit(report({source: "unreachable"}, **found), 1_015.0)
    told.series.clear()
    emitter.emit(report({source: "unreachable"}, {}, {}), 1_300.0)
    assert values(told, name, tag) == []
    emitter.emit(report({source: OK}, {}, {}), 1_315.0)
    assert values(told, name, tag) == [0], "now it is known, so that monitors recover"


def test_other_reasons_fall_to_zero_meanwhile() -> None:
    """That GPUs of a partial gang are idle is told by the API: no signal is needed to see the end of it."""
    told = Told()
    emitter = Emitter(told, EmitOptions())
    emitter.emit(report({"activity": "unreachable"}, {"partial": 4}, {}), 1_000.0)
    emitter.emit(report({"activity": "unreachable"}, {}, {}), 1_015.0)
    assert values(told, "gpus.idle", "idle_reason:partial") == [0]
