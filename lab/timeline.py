# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What the check sent over a time, moment by moment: what Datadog would have of it.

A moment is one run of the check: its points, and the events that it told. Running totals are told as the Agent tells
them, as the difference to the run before: of the first run there is none (unless the check says that its first value
counts), and a total that became smaller began anew at 0.

`Recorder` takes the moments from the stub of datadog-checks-base, to which the check submits in place of the Agent.
A timeline can be kept in a file, as JSON, packed.
"""

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from datadog_checks.base.stubs.aggregator import AggregatorStub

from datadog_checks.kueue_gang.catalog import PREFIX

_TYPES: Final[dict[int, str]] = dict(AggregatorStub.METRIC_ENUM_MAP_REV)
_TOTAL: Final = "monotonic_count"
_COUNT: Final = "count"

#: What tells a series from others.
Series = tuple[str, tuple[str, ...]]


class Point(NamedTuple):
    """A value of one series: the name is without the prefix `kueue_gang.`, the tags are `key:value`, sorted."""

    name: str
    type: str
    value: float
    tags: tuple[str, ...]


class Moment(NamedTuple):
    """One run of the check: when (cluster time, seconds since the epoch), what it submitted, the events it told."""

    at: float
    points: tuple[Point, ...]
    events: tuple[dict[str, Any], ...] = ()

    def of(self, name: str, *tags: str) -> list[Point]:
        """Return the points of a metric that have these tags."""
        return [one for one in self.points if one.name == name and set(tags) <= set(one.tags)]

    def total(self, name: str, *tags: str) -> float:
        """Add the points of a metric that have these tags; 0 where there is none."""
        return sum(one.value for one in self.of(name, *tags))

    def by(self, name: str, key: str, *tags: str) -> dict[str, float]:
        """Add the points of a metric by a tag, without zeros; points without that tag are left out."""
        sums: dict[str, float] = {}
        for one in self.of(name, *tags):
            for value in (tag[len(key) + 1 :] for tag in one.tags if tag.startswith(f"{key}:")):
                sums[value] = sums.get(value, 0.0) + one.value
        return {value: total for value, total in sums.items() if total}


@dataclass(slots=True)
class Timeline:
    """The moments of a scenario, `interval` seconds from one to the next."""

    name: str
    interval: float
    moments: list[Moment] = field(default_factory=list)

    @property
    def start(self) -> float:
        """When it began (seconds since the epoch): one interval before the first moment."""
        return self.moments[0].at - self.interval if self.moments else 0.0

    def at(self, seconds: float) -> Moment:
        """Return the last moment at or before so many seconds after the start. Raises LookupError before the first."""
        found = [moment for moment in self.moments if moment.at <= self.start + seconds]
        if not found:
            msg = f"{self.name} has no moment within its first {seconds} s"
            raise LookupError(msg)
        return found[-1]

    def between(self, begin: float, end: float) -> Iterator[Moment]:
        """Yield the moments from `begin` to `end` seconds after the start, both included."""
        return (moment for moment in self.moments if begin <= moment.at - self.start <= end)

    def save(self, path: Path) -> None:
        """Write it to a file."""
        # orjson does not take named tuples.
        body = json.dumps({"name": self.name, "interval": self.interval, "moments": self.moments}).encode()
        path.write_bytes(gzip.compress(body, compresslevel=6, mtime=0))

    @classmethod
    def load(cls, path: Path) -> "Timeline":
        """Read it from a file."""
        found = orjson.loads(gzip.decompress(path.read_bytes()))
        moments = [
            Moment(
                at, tuple(Point(name, kind, value, tuple(tags)) for name, kind, value, tags in points), tuple(events)
            )
            for at, points, events in found["moments"]
        ]
        return cls(found["name"], found["interval"], moments)


def together(name: str, timelines: Sequence[Timeline]) -> Timeline:
    """Return several clusters as one account sees them: moment by moment the points and events of all of them.

    They began at the same time and have one interval; it ends where the first of them does. Raises ValueError.
    """
    starts = {(one.start, one.interval) for one in timelines}
    if len(starts) != 1:
        msg = (
            f"{name}: they did not begin together, or have not one interval: {', '.join(one.name for one in timelines)}"
        )
        raise ValueError(msg)
    made = Timeline(name, timelines[0].interval)
    for moments in zip(*(one.moments for one in timelines), strict=False):
        points = tuple(sorted(point for moment in moments for point in moment.points))
        events = tuple(event for moment in moments for event in moment.events)
        made.moments.append(Moment(moments[0].at, points, events))
    return made


class Recorder:
    """Takes what one run after the other submitted."""

    def __init__(self) -> None:
        """Know no series yet."""
        self._totals: dict[Series, float] = {}

    def moment(self, at: float, aggregator: AggregatorStub) -> Moment:
        """Return what was submitted since the last reset of the aggregator."""
        told: dict[tuple[str, Series], float] = {}
        for name in aggregator.metric_names:
            for one in aggregator.metrics(name):
                kind = _TYPES[one.type]
                series = name.removeprefix(PREFIX), tuple(sorted(one.tags))
                value: float | None = float(one.value)
                if kind == _TOTAL:
                    value = self._difference(series, float(one.value), first=bool(one.flush_first_value))
                    kind = _COUNT
                if value is None:
                    continue
                if kind == _COUNT:
                    value += told.get((kind, series), 0.0)
                told[kind, series] = value
        points = tuple(sorted(Point(series[0], kind, value, series[1]) for (kind, series), value in told.items()))
        return Moment(at, points, tuple(dict(event) for event in aggregator.events))

    def _difference(self, series: Series, value: float, *, first: bool) -> float | None:
        before = self._totals.get(series)
        self._totals[series] = value
        if before is None:
            return value if first else None
        return value - before if value >= before else value
