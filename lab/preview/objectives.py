# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The SLOs of the assets over the timeline, as far as it goes: the app looks at 7 and 30 days.

Of an SLO by counts the part is told that was good. One by time slices counts the slices whose value keeps the
threshold; a slice without data counts as good, as it does in the app unless the SLO says something else.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from lab import evaluate
from lab.preview.colours import GREEN, RED, YELLOW
from lab.preview.markup import Shown, filled
from lab.preview.numbers import Unit, text
from lab.preview.scene import Definition, Scene
from lab.queries import parse

_COMPARATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_PERCENT: Final = Unit("percent")


def reached(objective: Definition, scene: Scene) -> float | None:
    """Return how much was good, in percent; None where there is nothing to tell it of. Raises ValueError."""
    if objective["type"] == "metric":
        good = _total(objective["query"]["numerator"], scene)
        everything = _total(objective["query"]["denominator"], scene)
        return None if good is None or not everything else 100 * good / everything
    if objective["type"] == "time_slice":
        return _slices(objective["sli_specification"]["time_slice"], scene)
    msg = f"not a type of SLO that the preview knows: {objective['type']}"
    raise ValueError(msg)


def _total(query: str, scene: Scene) -> float | None:
    rows = evaluate.scalar(parse(query), scene.samples, scene.timeline.start, scene.at, "sum")
    values = [row.values[0] for row in rows if row.values[0] is not None]
    return sum(values) if values else None


def _slices(specification: Definition, scene: Scene) -> float | None:
    begin, length = scene.timeline.start, specification["query_interval_seconds"]
    keeps = _COMPARATORS[specification["comparator"]]
    found = evaluate.formulas(specification["query"], scene.samples, begin, scene.at, length)
    bad = sum(
        not keeps(value, specification["threshold"])
        for lines in found
        for line in lines
        for _, value in line.points
        if value is not None
    )
    slices = -(-(scene.at - begin) // length)
    return 100 * (1 - bad / slices) if slices else None


def shown(objectives: Sequence[Definition], scene: Scene) -> Shown:
    """Return SLOs as a table: what was reached, the target, and what is left of the error budget."""
    rows: list[dict[str, Any]] = []
    for one in objectives:
        value, bound = reached(one, scene), one["thresholds"][0]
        target, warning = bound["target"], bound.get("warning", bound["target"])
        budget = None if value is None else 100 * (1 - (100 - value) / (100 - target))
        colour = RED if value is None or value < target else YELLOW if value < warning else GREEN
        rows.append({
            "name": one["name"],
            "colour": colour,
            "value": text(value, _PERCENT),
            "target": text(target, _PERCENT),
            "budget": text(budget, _PERCENT, precision=0),
        })  # fmt: skip
    return Shown(filled("objectives.html", rows=rows), empty=not rows)
