# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A dashboard as HTML: twelve columns, groups with their colour, and in them each widget at its place."""

from collections.abc import Callable, Mapping
from typing import Final

from markupsafe import Markup

from lab.preview import data, monitors, texts, widgets
from lab.preview.colours import GROUPS
from lab.preview.markup import Shown, filled
from lab.preview.scene import SPANS, Definition, Scene, clock

Renderer = Callable[[Definition, Scene], Shown]
#: Type of a widget -> what shows it.
RENDERERS: Final[Mapping[str, Renderer]] = {
    "list_stream": texts.list_stream,
    "manage_status": monitors.manage_status,
    "note": texts.note,
    "query_table": widgets.query_table,
    "query_value": widgets.query_value,
    "sunburst": widgets.sunburst,
    "timeseries": widgets.timeseries,
    "toplist": widgets.toplist,
    "treemap": widgets.treemap,
}
_GROUP: Final = "group"


class UnknownWidgetError(ValueError):
    """A type of widget that the preview does not know."""


def widget(definition: Definition, scene: Scene) -> Shown:
    """Return a widget as it is shown. Raises UnknownWidgetError, and ValueError for what it asks for in vain."""
    kind = definition["type"]
    if kind not in RENDERERS:
        msg = f"the preview does not know widgets of type {kind} (it knows: {', '.join(sorted(RENDERERS))})"
        raise UnknownWidgetError(msg)
    return RENDERERS[kind](definition, scene)


def html(name: str, dashboard: Definition, scene: Scene) -> Markup:
    """Return a dashboard. Raises UnknownWidgetError or ValueError, naming the widget that is not understood."""
    variables = [
        {"name": one["name"], "value": scene.variables.get(one["name"], "*")}
        for one in dashboard.get("template_variables", ())
    ]
    span = next((key for key, seconds in SPANS.items() if seconds == scene.span), f"{scene.span:g} s")
    return filled(
        "dashboard.html", name=name, title=dashboard["title"], variables=variables, span=span,
        window=f"{clock(scene.at - scene.span)} - {clock(scene.at)} UTC",
        widgets=[_framed(one, scene) for one in dashboard["widgets"]],
    )  # fmt: skip


def _framed(one: Definition, scene: Scene) -> Markup:
    definition = one["definition"]
    place = _place(one["layout"])
    if definition["type"] == _GROUP:
        tone, ink = GROUPS[definition.get("background_color", "white")]
        title = definition["title"] if definition.get("show_title", True) else ""
        inside = [_framed(inner, scene) for inner in definition["widgets"]]
        return filled("group.html", title=title, tone=tone, ink=ink, place=place, widgets=inside)
    try:
        shown = widget(definition, scene)
    except (ValueError, LookupError) as error:
        error.add_note(f"in the widget {definition.get('title', '')!r} of type {definition['type']}")
        raise
    span = definition.get("time", {}).get("live_span", "")
    return filled(
        "widget.html", type=definition["type"], title=definition.get("title", ""), span=span, place=place, shown=shown,
        foreign=data.foreign(definition),
    )  # fmt: skip


def _place(layout: Mapping[str, int]) -> str:
    column, row = layout["x"] + 1, layout["y"] + 1
    return f"grid-column:{column} / span {layout['width']};grid-row:{row} / span {layout['height']}"
