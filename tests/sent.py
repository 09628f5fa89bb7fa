# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What the check sent, read back from its tags alone: the tests see what a dashboard would."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datadog_checks.base.stubs.aggregator import AggregatorStub

from datadog_checks.kueue_gang import KueueGangCheck

PREFIX = "kueue_gang."


def run(instance: Mapping[str, Any]) -> tuple[KueueGangCheck, str]:
    """Run a new check once; return it and the error that its run reported ('' where all went well)."""
    check = KueueGangCheck("kueue_gang", {}, [dict(instance)])
    report = check.run()
    check.cancel()
    return check, message(report)


def message(report: str) -> str:
    """Return the message of what `run` reported."""
    return str(json.loads(report)[0]["message"]) if report else ""


@dataclass(frozen=True)
class Series:
    """One series of the last run."""

    value: float
    tags: Mapping[str, str]


class Sent:
    """The series of one run, by metric name without the prefix."""

    def __init__(self, aggregator: AggregatorStub) -> None:
        """Read the aggregator."""
        self.series: dict[str, list[Series]] = defaultdict(list)
        for name in aggregator.metric_names:
            for metric in aggregator.metrics(name):
                tags = dict(tag.split(":", 1) for tag in metric.tags)
                self.series[name.removeprefix(PREFIX)].append(Series(metric.value, tags))

    def of(self, name: str, **tags: str) -> list[Series]:
        """Return the series of a metric that have these tags."""
        return [one for one in self.series[name] if all(one.tags.get(key) == value for key, value in tags.items())]

    def total(self, name: str, **tags: str) -> float:
        """Add the series of a metric that have these tags; 0 where there is none."""
        return sum(one.value for one in self.of(name, **tags))

    def only(self, name: str, **tags: str) -> float | None:
        """Return the value of the one series with these tags, None where there is none."""
        found = self.of(name, **tags)
        assert len(found) <= 1, f"{name} {tags}: {len(found)} series"
        return found[0].value if found else None

    def by(self, name: str, key: str, **tags: str) -> dict[str, float]:
        """Add the series of a metric by a tag, without zeros."""
        sums: dict[str, float] = defaultdict(float)
        for one in self.of(name, **tags):
            sums[one.tags[key]] += one.value
        return {value: total for value, total in sums.items() if total}

    def values(self, key: str, names: Sequence[str]) -> set[str]:
        """Return the values of a tag over some metrics."""
        return {one.tags[key] for name in names for one in self.series[name] if key in one.tags}
