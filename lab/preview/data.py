# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Data of a widget: its own queries and formulas, evaluated over the timeline."""

import re
from collections.abc import Sequence
from typing import Final

from datadog_checks.kueue_gang.catalog import ALL, PREFIX
from lab.preview import stopgap
from lab.preview.numbers import Unit, unit_of
from lab.preview.scene import Definition, Line, Row, Scene

_METRIC: Final = re.compile(rf"{re.escape(PREFIX)}([a-z_.]+)\{{")


def lines(request: Definition, definition: Definition, scene: Scene, display: str) -> list[Line]:
    """Return the lines of a request of a timeseries, those of one formula after those of the one before."""
    return stopgap.lines(request, scene, scene.window(definition), scene.interval(definition, display))


def rows(request: Definition, definition: Definition, scene: Scene) -> list[Row]:
    """Return a row for each group of a request, in the order of its `sort`, cut to its count."""
    found = stopgap.rows(request, scene, scene.window(definition))
    return cut(ordered(found, request), request)


def ordered(found: Sequence[Row], request: Definition) -> list[Row]:
    """Return rows as `sort` asks: by formulas or tags, the first of them most; without a value they come last.

    Raises ValueError for an order that is not known.
    """
    wanted = request.get("sort", {}).get("order_by") or [{"type": "formula", "index": 0, "order": "desc"}]
    result = sorted(found, key=lambda row: sorted(row.tags.items()))
    for one in reversed(wanted):
        down = one["order"] == "desc"
        if one["type"] == "group":
            result.sort(key=lambda row, name=one["name"]: row.tags.get(name, ""), reverse=down)  # type: ignore[misc]
        elif one["type"] == "formula":
            index = one["index"]
            there = [row for row in result if row.values[index] is not None]
            there.sort(key=lambda row, index=index: row.values[index] or 0.0, reverse=down)  # type: ignore[misc]
            result = there + [row for row in result if row.values[index] is None]
        else:
            msg = f"not an order that the preview knows: {one['type']}"
            raise ValueError(msg)
    return result


def cut(found: Sequence[Row], request: Definition) -> list[Row]:
    """Return as many rows as the request asks for, in `sort.count` or in the `limit` of its first formula."""
    formulas = request.get("formulas", ())
    limits = [formula["limit"]["count"] for formula in formulas if formula.get("limit", {}).get("count")]
    count = request.get("sort", {}).get("count", min(limits, default=len(found)))
    return list(found[:count])


def unit(request: Definition, formula: Definition) -> Unit:
    """Return the unit of a formula: its own, else that of the metric where it shows one metric as it is."""
    queries = {query["name"]: query["query"] for query in request["queries"]}
    match = _METRIC.search(queries.get(formula["formula"].strip(), ""))
    metric = ALL.get(match[1]) if match else None
    return unit_of(formula, metric.unit if metric else "")
