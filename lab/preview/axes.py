# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The vertical axis of a timeseries: how far it goes, and the round values that it is marked at."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from lab.preview.numbers import Unit, text
from lab.preview.scene import Definition, Line

#: About so many marks, and so much of the height is left free above the lines.
_MARKS: Final = 5
_FREE: Final = 1.08
_AUTO: Final = "auto"
#: Round steps: of thousands, and of a time in seconds.
_STEPS: Final = (1.0, 2.0, 5.0, 10.0)
_TIME_STEPS: Final = (
    1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800,
)  # fmt: skip
#: Units that an axis shows; words of other units would take the room of the lines.
_SHOWN: Final = ("percent", "fraction", "second", "minute", "hour")


class Drawn(NamedTuple):
    """A line with its name, its colour, and its unit."""

    line: Line
    name: str
    colour: str
    unit: Unit


class Part(NamedTuple):
    """What a request of a timeseries draws: its lines, each point of which stands for so many seconds."""

    request: Definition
    lines: tuple[Drawn, ...]
    interval: float

    @property
    def display(self) -> str:
        """Lines, areas or bars."""
        return str(self.request.get("display_type", "line"))

    @property
    def right(self) -> bool:
        """Whether the axis on the right is meant."""
        return bool(self.request.get("on_right_yaxis"))


def axis(parts: Iterable[Part], definition: Definition) -> dict[str, Any]:
    """Return the properties of the axis of these parts; `definition` is what the widget says of it."""
    kept = list(parts)
    units = [drawn.unit for part in kept for drawn in part.lines]
    unit = units[0] if units else Unit()
    low, high, marks = _scale(_heights(kept), unit, definition)
    shown = unit if unit.name in _SHOWN else Unit()
    return {"range": [low, high], "tickvals": marks, "ticktext": [text(mark, shown) for mark in marks]}


def _heights(parts: Iterable[Part]) -> list[float]:
    """Return the values that the axis must hold, 0 among them: those of areas and bars added up."""
    found = [0.0]
    stacks: dict[tuple[int, float], float] = {}
    for number, part in enumerate(parts):
        for drawn in part.lines:
            if part.display == "line":
                found += drawn.line.values
                continue
            # All bars of a widget stand on each other, the areas of each request on their own.
            stack = -1 if part.display == "bars" else number
            for at, value in drawn.line.points:
                stacks[stack, at] = stacks.get((stack, at), 0.0) + (value or 0.0)
    return found + list(stacks.values())


def _scale(heights: list[float], unit: Unit, definition: Definition) -> tuple[float, float, list[float]]:
    """Return the ends of the axis, and its marks."""
    bottom, top = definition.get("min", _AUTO), definition.get("max", _AUTO)
    low = min(heights) if bottom == _AUTO else float(bottom)
    most = max(max(heights) if top == _AUTO else float(top), low)
    step = _step((most - low or 1.0) / _MARKS, unit)
    # A line along the top of the widget would be hard to see.
    high = low + ((most - low) * _FREE or 1.0) if top == _AUTO else most
    mark = -(-low // step) * step
    marks = []
    while mark <= high + step * 1e-9:
        marks.append(round(mark, 9))
        mark += step
    return low, high, marks


def _step(least: float, unit: Unit) -> float:
    """Return the smallest round step that is no smaller than this."""
    longest = _TIME_STEPS[-1]
    if unit.name == "second" and least >= 1:
        return float(next((step for step in _TIME_STEPS if step >= least), -(-least // longest) * longest))
    size = 1.0
    while size * 10 <= least:
        size *= 10
    while size > least:
        size /= 10
    return next(step * size for step in _STEPS if step * size >= least * (1 - 1e-9))
