# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Widgets that show data: a single value, a timeseries, a toplist, a table, a treemap, a sunburst."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from lab.evaluate import Row
from lab.preview import data, figures
from lab.preview.axes import Drawn, Part
from lab.preview.colours import TEXT, painted, palette
from lab.preview.markup import Shown, drawing, filled
from lab.preview.numbers import Unit, number, text
from lab.preview.scene import Definition, Line, Scene

#: A column of a table is made no wider than for so many letters.
_LONGEST: Final = 28
#: Letters as wide as what is left free beside a text.
_PADDING: Final = 3
#: Aggregates of a legend.
_COLUMNS: Final[Mapping[str, Callable[[list[float]], float]]] = {
    "value": lambda values: values[-1],
    "avg": lambda values: sum(values) / len(values),
    "min": min,
    "max": max,
    "sum": sum,
}


def query_value(definition: Definition, scene: Scene) -> Shown:
    """Show one number, in the colours that its conditional formats ask for, with its past behind it."""
    request = definition["requests"][0]
    formula = request["formulas"][0]
    found = data.rows(request, definition, scene)
    value = found[0].values[0] if found else None
    written = number(
        value, _with_custom(data.unit(request, formula), definition), precision=definition.get("precision"),
        autoscale=definition.get("autoscale", True),
    )  # fmt: skip
    paint = painted(value, formula.get("conditional_formats") or request.get("conditional_formats", ()))
    background = definition.get("timeseries_background")
    behind = None
    if background and value is not None:
        past = data.lines(request, definition, scene, "line")
        low = background.get("yaxis", {}).get("min")
        tone = paint.text or "#7d5bc9"
        if past:
            behind = drawing(
                figures.sparkline(past[0], scene.window(definition), background["type"], low, tone), still=True
            )
    html = filled("query_value.html", number=written, paint=paint, behind=behind)
    return Shown(html, empty=value is None, classes="painted" if paint.background else "", style=paint.style)


def _with_custom(unit: Unit, definition: Definition) -> Unit:
    return Unit(label=definition["custom_unit"]) if definition.get("custom_unit") else unit


def timeseries(definition: Definition, scene: Scene) -> Shown:
    """Show lines, areas or bars over time, with a legend of the columns that are asked for."""
    parts = [_part(request, definition, scene) for request in definition["requests"]]
    figure = figures.timeseries(parts, scene.window(definition), definition)
    legend = [
        {
            "name": drawn.name,
            "colour": drawn.colour,
            "cells": [text(_COLUMNS[column](drawn.line.values), drawn.unit) for column in _columns(definition)],
        }
        for part in parts
        for drawn in part.lines
    ]
    shown = legend if definition.get("show_legend", True) else []
    layout = definition.get("legend_layout", "auto")
    side = "horizontal" if layout == "horizontal" else "vertical"
    columns = _columns(definition) if side == "vertical" else ()
    html = filled("timeseries.html", drawing=drawing(figure), legend=shown, columns=columns, layout=side)
    return Shown(html, empty=not legend)


def _part(request: Definition, definition: Definition, scene: Scene) -> Part:
    display = request.get("display_type", "line")
    lines = data.lines(request, definition, scene, display)
    tones = figures.colours(lines, request.get("style", {}))
    several = len(request["formulas"]) > 1 or len(definition["requests"]) > 1
    drawn = tuple(
        Drawn(line, label(line, several=several), tone, data.unit(request, line.formula))
        for line, tone in zip(lines, tones, strict=True)
    )
    return Part(request, drawn, scene.interval(definition, display))


def _columns(definition: Definition) -> Sequence[str]:
    return definition.get("legend_columns") or ("avg", "min", "max", "value", "sum")


def label(line: Line, *, several: bool) -> str:
    """Return the name of a line: its group; with several formulas also which of them; without a group only that."""
    group = ", ".join(line.tags.values())
    alias = line.formula.get("alias", line.formula["formula"])
    if not group:
        return str(alias)
    return f"{alias}, {group}" if several else group


def toplist(definition: Definition, scene: Scene) -> Shown:
    """Show groups by their value, each with a bar as long as its share of the largest."""
    request = definition["requests"][0]
    formula = request["formulas"][0]
    unit = data.unit(request, formula)
    found = [row for row in data.rows(request, definition, scene) if row.values[0] is not None]
    if "sort" not in request:
        found.sort(key=lambda row: row.values[0] or 0.0, reverse=True)
    most = max((abs(row.values[0] or 0.0) for row in found), default=0.0)
    tone = palette(definition.get("style", {}).get("palette", "dog_classic"))[0]
    formats = formula.get("conditional_formats") or request.get("conditional_formats", ())
    bars = []
    for row in found:
        value = row.values[0] or 0.0
        paint = painted(value, formats)
        share = 100 * abs(value) / most if most else 0.0
        name = ", ".join(row.tags.values()) or formula.get("alias", formula["formula"])
        bars.append({"name": name, "value": text(value, unit), "share": share, "colour": paint.background or tone})
    return Shown(filled("toplist.html", bars=bars), empty=not bars)


def query_table(definition: Definition, scene: Scene) -> Shown:
    """Show a row for each group and a column for each formula."""
    headings: list[str] = []
    aliases: list[str] = []
    cells: list[dict[str, Any]] = []
    for request in definition["requests"]:
        found = data.rows(request, definition, scene)
        keys = list(dict.fromkeys(key for row in found for key in row.tags))
        headings = headings or keys
        aliases += [formula.get("alias", formula["formula"]) for formula in request["formulas"]]
        for row in found:
            tags = [row.tags.get(key, "N/A") for key in headings]
            cells.append({"tags": tags, "values": _values(row, request, found)})
    shares = _shares(headings, [row["tags"] for row in cells])
    headed = [{"key": key, "share": share} for key, share in zip(headings, shares, strict=True)]
    return Shown(filled("query_table.html", headings=headed, aliases=aliases, rows=cells), empty=not cells)


def _shares(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the shares (percent) of the columns of tags in what the numbers leave: as their longest texts need."""
    needed = [_PADDING + min(max(map(len, column)), _LONGEST) for column in zip(headings, *rows, strict=True)]
    return [100 * letters // sum(needed) for letters in needed]


def _values(row: Row, request: Definition, found: Sequence[Row]) -> list[Mapping[str, object]]:
    values: list[Mapping[str, object]] = []
    for index, (value, formula) in enumerate(zip(row.values, request["formulas"], strict=True)):
        paint = painted(value, formula.get("conditional_formats", ()))
        most = max(abs(other.values[index] or 0.0) for other in found)
        bar = formula.get("cell_display_mode") == "bar" and value is not None and most
        values.append({
            "text": "" if paint.hidden else text(value, data.unit(request, formula)),
            "style": paint.style,
            "share": 100 * abs(value or 0.0) / most if bar else None,
        })  # fmt: skip
    return values


def treemap(definition: Definition, scene: Scene) -> Shown:
    """Show groups as areas."""
    return _parts("treemap", definition, scene)


def sunburst(definition: Definition, scene: Scene) -> Shown:
    """Show groups as parts of a ring."""
    return _parts("sunburst", definition, scene)


def _parts(kind: str, definition: Definition, scene: Scene) -> Shown:
    request = definition["requests"][0]
    formulas = request["formulas"]
    tones = palette(request.get("style", {}).get("palette", "dog_classic"))
    pieces = []
    for row in data.rows(request, definition, scene):
        for value, formula in zip(row.values, formulas, strict=True):
            if value:
                name = ", ".join(row.tags.values()) or formula.get("alias", formula["formula"])
                pieces.append((name, value, text(value, data.unit(request, formula))))
    return Shown(drawing(figures.parts(kind, pieces, tones)), empty=not pieces, style=f"color:{TEXT}")
