# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What a dashboard is looked at with: a timeline, a moment, a span, and the values of the variables.

The rest of the package asks only here for the time that a widget shows, and for what a point of it stands for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, NamedTuple

from lab.samples import Samples, interval_of
from lab.timeline import Timeline

Definition = Mapping[str, Any]
#: Seconds in each span that a widget may ask for.
SPANS: Final[Mapping[str, float]] = {
    "1m": 60, "5m": 300, "10m": 600, "15m": 900, "30m": 1800, "1h": 3600, "4h": 14_400, "1d": 86_400, "2d": 172_800,
    "1w": 604_800, "1mo": 2_592_000,
}  # fmt: skip
#: Lengths that a point of a timeseries may stand for, in seconds.
_INTERVALS: Final = (10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 86_400)
#: At most so many bars are drawn across a widget.
_BARS: Final = 60


class Line(NamedTuple):
    """One line of a timeseries: the formula it comes from, its group, and (seconds since the epoch, value) pairs."""

    formula: Definition
    tags: Mapping[str, str]
    points: Sequence[tuple[float, float | None]]

    @property
    def values(self) -> list[float]:
        """The values that there are."""
        return [value for _, value in self.points if value is not None]


@dataclass(frozen=True)
class Scene:
    """A timeline up to a moment (seconds since the epoch), over a span (seconds), with values for variables.

    The monitors and SLOs are those that are judged over it.
    """

    timeline: Timeline
    at: float
    span: float = SPANS["1h"]
    variables: Mapping[str, str] = field(default_factory=dict)
    monitors: tuple[Definition, ...] = ()
    objectives: tuple[Definition, ...] = ()

    @cached_property
    def samples(self) -> Samples:
        """The points of the timeline, sorted for queries."""
        return Samples(self.timeline)

    @property
    def chosen(self) -> Mapping[str, Sequence[str]]:
        """The variables as queries take them."""
        return {name: [value] for name, value in self.variables.items()}

    def window(self, definition: Definition) -> tuple[float, float]:
        """Return what a widget shows: its own live span where it has one. Raises ValueError for an unknown one."""
        name = definition.get("time", {}).get("live_span")
        if name is not None and name not in SPANS:
            msg = f"not a live_span that the preview knows: {name}"
            raise ValueError(msg)
        return self.at - (SPANS[name] if name else self.span), self.at

    def interval(self, definition: Definition, display: str) -> int:
        """Return how many seconds a point stands for: as the app has it, and never less than a run of the check."""
        begin, end = self.window(definition)
        own = (end - begin) / _BARS if display == "bars" else interval_of(end - begin)
        least = max(own, self.timeline.interval)
        return next((length for length in _INTERVALS if length >= least), _INTERVALS[-1])


def clock(at: float) -> str:
    """Return a moment as it is written everywhere: `Nov 30, 14:20`, UTC."""
    moment = datetime.fromtimestamp(at, UTC)
    return f"{moment:%b} {moment.day}, {moment:%H:%M}"
