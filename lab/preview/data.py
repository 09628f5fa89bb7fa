# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Data of a widget: its own queries and formulas, evaluated over the timeline by `lab.evaluate`."""

import re
from typing import Final

from datadog_checks.kueue_gang.catalog import ALL, PREFIX
from lab import evaluate
from lab.evaluate import Row
from lab.preview.numbers import Unit, unit_of
from lab.preview.scene import Definition, Line, Scene
from lab.queries import names, parse_formula

_METRIC: Final = re.compile(rf"{re.escape(PREFIX)}([a-z_.]+)\{{")


def lines(request: Definition, definition: Definition, scene: Scene, display: str) -> list[Line]:
    """Return the lines of a request of a timeseries, those of one formula after those of the one before.

    Raises Refused (a ValueError) for queries that are not known.
    """
    begin, end = scene.window(definition)
    interval = scene.interval(definition, display)
    return [
        Line(formula, series.tags, series.points)
        for formula in request["formulas"]
        for series in evaluate.formulas(_alone(request, formula), scene.samples, begin, end, interval, scene.chosen)[0]
        if any(value is not None for _, value in series.points)
    ]


def _alone(request: Definition, formula: Definition) -> Definition:
    """Return a request of one formula and its queries: on one graph those of another may have other groups."""
    used = set(names(parse_formula(formula["formula"])))
    return {**request, "formulas": [formula], "queries": [one for one in request["queries"] if one["name"] in used]}


def rows(request: Definition, definition: Definition, scene: Scene) -> list[Row]:
    """Return a row for each group of a request, in its order and as many as it asks for.

    Raises Refused (a ValueError) for queries that are not known.
    """
    begin, end = scene.window(definition)
    interval = scene.interval(definition, "line")
    found = evaluate.rows(request, scene.samples, begin, end, interval, scene.chosen)
    return [row for row in found if any(value is not None for value in row.values)]


def unit(request: Definition, formula: Definition) -> Unit:
    """Return the unit of a formula: its own, else that of the metric where it shows one metric as it is."""
    queries = {query["name"]: query["query"] for query in request["queries"]}
    match = _METRIC.search(queries.get(formula["formula"].strip(), ""))
    metric = ALL.get(match[1]) if match else None
    return unit_of(formula, metric.unit if metric else "")


def foreign(definition: Definition) -> bool:
    """Tell whether a widget shows only metrics that this check does not send: those of other products of Datadog."""
    queries = [one["query"] for request in definition.get("requests", ()) for one in request.get("queries", ())]
    return bool(queries) and not any(PREFIX in query for query in queries)
