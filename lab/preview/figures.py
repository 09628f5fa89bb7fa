# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Timeseries, sparklines, treemaps and sunbursts as figures of plotly.

plotly checks each property when a figure is built, draws vector graphics in the browser, follows the width of the page,
shows values under the pointer as the app does, and needs nothing from the network once its script is in the page.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import plotly.graph_objects as go

from lab.preview.colours import MARKERS, palette
from lab.preview.numbers import Unit, text
from lab.preview.scene import Definition, Line

_WIDTHS: Final[Mapping[str, float]] = {"thin": 1.0, "normal": 1.8, "thick": 3.0}
_DASHES: Final[Mapping[str, str]] = {"solid": "solid", "dashed": "dash", "dotted": "dot"}
_GRID, _AXIS, _FONT = "#e9ecf0", "#c9cfd6", "#5c6875"
_TICKS: Final = 5
#: Roundest steps of an axis, in seconds where it shows a time.
_STEPS: Final = (1.0, 2.0, 5.0, 10.0)
_TIME_STEPS: Final = (
    1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800,
)  # fmt: skip
#: Units that an axis shows; words of other units would take the room of the lines.
_ON_AXIS: Final = ("percent", "second", "minute", "hour")
_FONT_FAMILY: Final = "NotoSans, 'Noto Sans', 'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif"


def colours(lines: Sequence[Line], style: Definition) -> list[str]:
    """Return a colour for each line: those of its formula's own palette, else of the request's, in their order."""
    taken: dict[str, int] = {}
    found = []
    for line in lines:
        own = line.formula.get("style", {})
        name = own.get("palette", style.get("palette", "dog_classic"))
        tones = palette(name)
        index = taken.get(name, own.get("palette_index", 0))
        taken[name] = index + 1
        found.append(tones[index % len(tones)])
    return found


def timeseries(
    parts: Iterable[tuple[Definition, Sequence[tuple[Line, str, str]], float]],
    window: tuple[float, float],
    unit: Unit,
    definition: Definition,
) -> go.Figure:
    """Return a timeseries of its requests, each with its lines (with name and colour) and its interval in seconds."""
    figure = go.Figure()
    drawn = [(request, drawn, interval) for request, drawn, interval in parts]
    for number, (request, named, interval) in enumerate(drawn):
        for line, name, colour in named:
            figure.add_trace(_trace(request, line, name, colour, interval, number, unit))
    tops = _tops(drawn)
    begin, end = (_instant(at) for at in window)
    figure.update_layout(
        template="none",
        margin={"l": 6, "r": 8, "t": 8, "b": 4},
        barmode="stack",
        bargap=0,
        showlegend=False,
        hovermode="x unified",
        hoverlabel={"font": {"size": 12}, "namelength": -1},
        font={"family": _FONT_FAMILY, "size": 11, "color": _FONT},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
    )
    figure.update_xaxes(
        type="date", range=[begin, end], showgrid=False, linecolor=_AXIS, ticks="outside", ticklen=4, tickcolor=_AXIS,
        tickformat="%H:%M", nticks=8, hoverformat="%b %-d, %H:%M:%S UTC", automargin=True, fixedrange=True,
    )  # fmt: skip
    low, high, ticks = _scale(tops, unit, definition.get("yaxis", {}))
    figure.update_yaxes(
        range=[low, high], gridcolor=_GRID, zeroline=False, tickvals=ticks,
        ticktext=[text(tick, unit if unit.name in _ON_AXIS else Unit()) for tick in ticks],
        automargin=True, fixedrange=True,
    )  # fmt: skip
    for marker in definition.get("markers", ()):
        _mark(figure, marker)
    return figure


def _trace(
    request: Definition, line: Line, name: str, colour: str, interval: float, number: int, unit: Unit
) -> go.Scatter | go.Bar:
    display, style = request.get("display_type", "line"), request.get("style", {})
    values = [value for _, value in line.points]
    told = {"name": name, "customdata": [text(value, unit) for value in values], "hovertemplate": "%{customdata}"}
    if display == "bars":
        # A bar stands over the time that it tells of.
        middle = [_instant(at + interval / 2) for at, _ in line.points]
        return go.Bar(
            x=middle,
            y=values,
            marker={"color": colour, "line": {"color": "#ffffff", "width": 0.6}},
            width=interval * 1000,
            **told,
        )
    width = _WIDTHS[style.get("line_width", "normal")]
    drawn = {"color": colour, "width": width, "dash": _DASHES[style.get("line_type", "solid")]}
    x = [_instant(at) for at, _ in line.points]
    alone = _alone(values)
    if display == "area":
        # In a stack a gap would pull down what lies above; where a group has no points it is 0 high.
        drawn["width"] = 1.0
        return go.Scatter(
            x=x, y=[value or 0.0 for value in values], mode="lines", line=drawn, stackgroup=str(number),
            fillcolor=_faded(colour, 0.75), **told,
        )  # fmt: skip
    marks = {"size": [6 if lonely else 0 for lonely in alone], "color": colour, "opacity": 1.0, "line": {"width": 0}}
    mode = "lines+markers" if any(alone) else "lines"
    return go.Scatter(x=x, y=values, mode=mode, line=drawn, marker=marks, connectgaps=False, **told)


def _alone(values: Sequence[float | None]) -> list[bool]:
    """Tell for each value whether both of its neighbours are missing: a line would not show it."""
    padded = [None, *values, None]
    return [
        value is not None and before is None and after is None
        for before, value, after in zip(padded, padded[1:], padded[2:], strict=False)
    ]


def _tops(drawn: Sequence[tuple[Definition, Sequence[tuple[Line, str, str]], float]]) -> list[float]:
    """Return the values that the vertical axis must hold: stacked ones added up."""
    found = [0.0]
    for request, named, _ in drawn:
        if request.get("display_type", "line") == "line":
            found += [value for line, _, _ in named for value in line.values]
            continue
        totals: dict[float, float] = {}
        for line, _, _ in named:
            for at, value in line.points:
                totals[at] = totals.get(at, 0.0) + (value or 0.0)
        found += totals.values()
    return found


def _scale(tops: Sequence[float], unit: Unit, axis: Definition) -> tuple[float, float, list[float]]:
    """Return the ends of the vertical axis, and its ticks at round values."""
    low = float(axis["min"]) if axis.get("min", "auto") != "auto" else min(tops)
    most = max(float(axis["max"]) if axis.get("max", "auto") != "auto" else max(tops), low)
    step = _step((most - low or 1.0) / _TICKS, unit)
    # A line along the top of the widget would be hard to see.
    high = most if axis.get("max", "auto") != "auto" else low + ((most - low) * 1.08 or 1.0)
    first = -(-low // step) * step
    ticks = []
    while first <= high + step * 1e-9:
        ticks.append(round(first, 9))
        first += step
    return low, high, ticks


def _step(least: float, unit: Unit) -> float:
    if unit.name == "second" and least >= 1:
        return float(next((step for step in _TIME_STEPS if step >= least), -(-least // 604_800) * 604_800))
    size = 10.0 ** len(str(int(least))) / 10 if least >= 1 else 1.0
    while least < 1 and size / 10 >= least:
        size /= 10
    return next(step * size for step in (0.1, 0.2, 0.5, *_STEPS) if step * size >= least)


def _mark(figure: go.Figure, marker: Definition) -> None:
    """Draw a marker: `y = 8`, in the colour of its word, or `a < y < b` as a band."""
    level, _, line = marker.get("display_type", "info dashed").partition(" ")
    if level not in MARKERS:
        msg = f"not a marker that the preview knows: {marker['display_type']}"
        raise ValueError(msg)
    font = {"size": 10, "color": MARKERS[level]}
    label = {"annotation_text": marker.get("label", "").strip(), "annotation_font": font}
    value = marker["value"].replace(" ", "")
    if value.startswith("y="):
        dash = {"bold": "solid"}.get(line, _DASHES.get(line, "dash"))
        figure.add_hline(
            y=float(value[2:]), line={"color": MARKERS[level], "width": 1.2, "dash": dash},
            annotation_position="top left", **label,
        )  # fmt: skip
        return
    low, middle, high = value.partition("<y<")
    if not middle:
        msg = f"not a marker that the preview knows: {marker['value']}"
        raise ValueError(msg)
    figure.add_hrect(y0=float(low), y1=float(high), fillcolor=MARKERS[level], opacity=0.12, line_width=0, **label)


def sparkline(line: Line, window: tuple[float, float], kind: str, low: str | None, colour: str) -> go.Figure:
    """Return the line behind a single value."""
    figure = go.Figure()
    x, y = [_instant(at) for at, _ in line.points], [value for _, value in line.points]
    if kind == "bars":
        figure.add_trace(go.Bar(x=x, y=y, marker={"color": colour}))
    else:
        fill = "tozeroy" if kind == "area" else None
        line_style = {"color": colour, "width": 1.5}
        figure.add_trace(go.Scatter(x=x, y=y, mode="lines", line=line_style, fill=fill, fillcolor=_faded(colour, 0.35)))
    figure.update_layout(
        template="none", margin={"l": 0, "r": 0, "t": 0, "b": 0}, showlegend=False, paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)", hovermode=False,
    )  # fmt: skip
    top = max([*line.values, 0.0])
    bottom = min([*line.values, 0.0]) if low in {None, "auto"} else float(low or 0)
    figure.update_xaxes(visible=False, range=[_instant(at) for at in window], fixedrange=True)
    figure.update_yaxes(visible=False, range=[bottom, bottom + ((top - bottom) * 1.05 or 1.0)], fixedrange=True)
    return figure


def parts(kind: str, pieces: Sequence[tuple[str, float, str]], tones: Sequence[str]) -> go.Figure:
    """Return a treemap or a sunburst of one level, of pieces with a name, a size, and the size as it is written."""
    shown: dict[str, Any] = {
        "labels": [name for name, _, _ in pieces],
        "values": [size for _, size, _ in pieces],
        "text": [written for _, _, written in pieces],
        "sort": False,
        "hovertemplate": "%{label}: %{text}<extra></extra>",
        "marker": {"colors": [tones[index % len(tones)] for index in range(len(pieces))]},
    }
    if kind == "treemap":
        made = go.Treemap(parents=["" for _ in pieces], texttemplate="<b>%{label}</b><br>%{text}", **shown)
    else:
        # One level of a sunburst is a ring.
        inside = {"texttemplate": "%{label}<br>%{text}", "textposition": "inside"}
        made = go.Pie(hole=0.55, direction="clockwise", **inside, **shown)
    figure = go.Figure(made)
    figure.update_layout(
        template="none", margin={"l": 4, "r": 4, "t": 4, "b": 4}, showlegend=False, paper_bgcolor="rgba(0,0,0,0)",
        font={"family": _FONT_FAMILY, "size": 12},
    )  # fmt: skip
    return figure


def _instant(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _faded(colour: str, opacity: float) -> str:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"
