# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Timeseries, sparklines, treemaps and sunbursts as figures of plotly.

plotly checks each property when a figure is built, draws vector graphics in the browser, follows the width of the page,
shows values under the pointer as the app does, and needs nothing from the network once its script is in the page.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import plotly.graph_objects as go

from lab.preview.axes import Drawn, Part, axis
from lab.preview.colours import MARKERS, palette
from lab.preview.numbers import text
from lab.preview.scene import Definition, Line

_WIDTHS: Final[Mapping[str, float]] = {"thin": 1.0, "normal": 1.8, "thick": 3.0}
_DASHES: Final[Mapping[str, str]] = {"solid": "solid", "dashed": "dash", "dotted": "dot"}
_GRID, _AXIS, _FONT = "#e9ecf0", "#c9cfd6", "#5c6875"
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


def timeseries(parts: Sequence[Part], window: tuple[float, float], definition: Definition) -> go.Figure:
    """Return a timeseries of what its requests draw, over a window (seconds since the epoch)."""
    figure = go.Figure()
    for number, part in enumerate(parts):
        for drawn in part.lines:
            figure.add_trace(_trace(part, drawn, number))
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
        type="date", range=[_instant(at) for at in window], showgrid=False, linecolor=_AXIS, ticks="outside", ticklen=4,
        tickcolor=_AXIS, tickformat="%H:%M", nticks=8, hoverformat="%b %-d, %H:%M:%S UTC", automargin=True,
        fixedrange=True,
    )  # fmt: skip
    common = {"zeroline": False, "automargin": True, "fixedrange": True}
    left = axis((part for part in parts if not part.right), definition.get("yaxis", {}))
    figure.update_layout(yaxis={**left, **common, "gridcolor": _GRID})
    if any(part.right for part in parts):
        right = axis((part for part in parts if part.right), definition.get("right_yaxis", {}))
        figure.update_layout(yaxis2={**right, **common, "overlaying": "y", "side": "right", "showgrid": False})
    for marker in definition.get("markers", ()):
        _mark(figure, marker)
    return figure


def _trace(part: Part, drawn: Drawn, number: int) -> go.Scatter | go.Bar:
    line, colour, style = drawn.line, drawn.colour, part.request.get("style", {})
    values = [value for _, value in line.points]
    told = {
        "name": drawn.name,
        "customdata": [text(value, drawn.unit) for value in values],
        "hovertemplate": "%{customdata}",
        "yaxis": "y2" if part.right else "y",
    }
    if part.display == "bars":
        # A bar stands over the time that it tells of.
        middle = [_instant(at + part.interval / 2) for at, _ in line.points]
        paint = {"color": colour, "line": {"color": "#ffffff", "width": 0.6}}
        return go.Bar(x=middle, y=values, marker=paint, width=part.interval * 1000, **told)
    pen = {
        "color": colour,
        "width": _WIDTHS[style.get("line_width", "normal")],
        "dash": _DASHES[style.get("line_type", "solid")],
    }
    x = [_instant(at) for at, _ in line.points]
    if part.display == "area":
        # In a stack a gap would pull down what lies above; where a group has no points it is 0 high.
        return go.Scatter(
            x=x, y=[value or 0.0 for value in values], mode="lines", line={**pen, "width": 1.0}, stackgroup=str(number),
            fillcolor=_faded(colour, 0.75), **told,
        )  # fmt: skip
    alone = _alone(values)
    dots = {"size": [6 if lonely else 0 for lonely in alone], "color": colour, "opacity": 1.0, "line": {"width": 0}}
    mode = "lines+markers" if any(alone) else "lines"
    return go.Scatter(x=x, y=values, mode=mode, line=pen, marker=dots, connectgaps=False, **told)


def _alone(values: Sequence[float | None]) -> list[bool]:
    """Tell for each value whether both of its neighbours are missing: a line would not show it."""
    padded = [None, *values, None]
    return [
        value is not None and before is None and after is None
        for before, value, after in zip(padded, padded[1:], padded[2:], strict=False)
    ]


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
