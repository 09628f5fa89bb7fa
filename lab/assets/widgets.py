# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""From the description of a dashboard to the JSON that Datadog takes.

A dashboard is a list of groups, a group is a list of rows, and a row is a height and widgets with their widths, in
columns of twelve. Places are counted from that, so no two widgets overlap. A widget is a `note`, a `number`, a `graph`
(what it draws: areas, lines, bars), a `ranking`, a `table`, or a list of `events`.

In queries `@name` stands for a scope of template variables or a list of tags, as below; colours are written as
`red > 900`, the first that is true counts; units and links have names. A key that is not known is an error.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

Json = dict[str, Any]

COLUMNS: Final = 12
#: Template variables: each is a tag by that name, with the value that it has until someone chooses another.
VARIABLES: Final = {
    "kube_cluster_name": "*",
    "kube_namespace": "*",
    "kueue_local_queue": "*",
    "gang_engine": "*",
    "gpu_resource": "nvidia.com/gpu",
}
#: What the metrics of a kind can be filtered by: the variables that are tags of them.
SCOPES: Final = {
    "cluster": ("kube_cluster_name",),
    "cluster_gpu": ("kube_cluster_name", "gpu_resource"),
    "cluster_engine": ("kube_cluster_name", "gang_engine"),
    "workload": ("kube_cluster_name", "kube_namespace", "kueue_local_queue"),
    "queue": ("kube_cluster_name", "kube_namespace", "kueue_local_queue", "gang_engine"),
    "gpu_queue": tuple(VARIABLES),
    "one": ("kube_cluster_name", "kube_namespace", "kueue_local_queue", "gang_engine", "gang"),
    "gpu_one": (*VARIABLES, "gang"),
}
#: Lists of tags to group by.
TAGS: Final = {
    "owner": ("kube_cluster_name", "kube_namespace", "kueue_local_queue"),
    "gang": ("kube_cluster_name", "kube_namespace", "gang"),
    "level": ("kube_cluster_name", "topology_level", "kueue_resource_flavor"),
    "shape": (
        "kube_cluster_name",
        "topology",
        "topology_level",
        "kueue_resource_flavor",
        "slot",
        "gpu_resource",
    ),
    "quota": ("kube_cluster_name", "kueue_cluster_queue", "kueue_resource_flavor"),
}
UNITS: Final[dict[str, Json]] = {
    "gpus": {"type": "custom_unit_label", "label": "GPUs"},
    "gpu_hours": {"type": "custom_unit_label", "label": "GPU-hours"},
    "seconds": {"type": "canonical_unit", "unit_name": "second"},
    "percent": {"type": "canonical_unit", "unit_name": "percent"},
    "fraction": {"type": "canonical_unit", "unit_name": "fraction"},
}
#: Where a click leads, beside what Datadog offers itself. The address of an imported dashboard is not known before, so
#: the other one is looked up by its title.
LINKS: Final[dict[str, Json]] = {
    "overview": {"label": "GPU gangs overview", "link": "/dashboard/lists?q=GPU+gangs+overview"},
    "detail": {"label": "GPU gang detail", "link": "/dashboard/lists?q=GPU+gang+detail"},
    "pods": {
        "label": "Pods of the namespace",
        "link": "/orchestration/explorer/pod?query=kube_namespace%3A{{kube_namespace.value}}",
    },
    # Where a widget is not grouped by namespace: the one that is chosen above.
    "pods_chosen": {
        "label": "Pods of the namespace",
        "link": "/orchestration/explorer/pod?query=kube_namespace%3A{{$kube_namespace.value}}",
    },
    "gpus": {"label": "GPU Monitoring", "link": "/gpu-monitoring"},
}
_PALETTES: Final = {"red": "white_on_red", "yellow": "white_on_yellow", "green": "white_on_green"}
_COLOR: Final = re.compile(r"(red|yellow|green) ([<>]=?) (\d+)")
_NAMED: Final = re.compile(r"@([a-z_]+)")


def dashboard(description: Mapping[str, Any]) -> Json:
    """Return a dashboard as the API and the app take it. Raises ValueError where its description is wrong."""
    known(description, "title", "description", "variables", "groups")
    return {
        "title": description["title"],
        "description": description["description"],
        "layout_type": "ordered",
        "reflow_type": "fixed",
        "template_variables": [
            {"name": name, "prefix": name, "defaults": [VARIABLES.get(name, "*")], "available_values": []}
            for name in (*VARIABLES, *description.get("variables", ()))
        ],
        "widgets": list(_stacked(description["groups"])),
    }


def query(text: str) -> str:
    """Return a query with what its names stand for. Raises KeyError for a name that nothing has."""

    def tags(match: re.Match[str]) -> str:
        return ",".join(TAGS[match[1]])

    def variables(match: re.Match[str]) -> str:
        between = " AND " if " AND " in scope else ","
        return between.join(f"${name}" for name in SCOPES[match[1]])

    scope = text.partition("{")[2].partition("}")[0]
    head, brace, rest = text.partition("}")
    return _NAMED.sub(variables, head) + brace + _NAMED.sub(tags, rest)


def known(description: Mapping[str, Any], *keys: str) -> None:
    """Raise ValueError where a description has a key that none of these is."""
    unknown = description.keys() - set(keys)
    if unknown:
        msg = f"not known: {', '.join(sorted(unknown))} in {description}"
        raise ValueError(msg)


def _stacked(groups: list[Json]) -> Iterator[Json]:
    top = 0
    for one in groups:
        known(one, "group", "color", "rows")
        widgets = list(_rows(one["rows"]))
        # One row is the heading.
        height = 1 + sum(row["height"] for row in one["rows"])
        definition = {
            "type": "group",
            "title": one["group"],
            "layout_type": "ordered",
            "background_color": one["color"],
            "show_title": True,
            "widgets": widgets,
        }
        yield {"definition": definition, "layout": {"x": 0, "y": top, "width": COLUMNS, "height": height}}
        top += height


def _rows(rows: list[Json]) -> Iterator[Json]:
    top = 0
    for row in rows:
        known(row, "height", "widgets")
        left = 0
        for described in row["widgets"]:
            one = dict(described)
            width = one.pop("width")
            yield {
                "definition": _widget(one),
                "layout": {"x": left, "y": top, "width": width, "height": row["height"]},
            }
            left += width
        if left != COLUMNS:
            msg = f"a row is {left} columns wide: {row}"
            raise ValueError(msg)
        top += row["height"]


def _widget(one: Json) -> Json:
    (kind,) = one.keys() & _KINDS.keys()
    return _KINDS[kind](one)


def _titled(kind: str, title: str, one: Json) -> Json:
    made: Json = {"type": kind, "title": title, "title_size": "16", "title_align": "left"}
    if "span" in one:
        made["time"] = {"live_span": one["span"]}
    if "links" in one:
        made["custom_links"] = [dict(LINKS[name]) for name in one["links"]]
    return made


def _queries(one: Json, **more: str) -> list[Json]:
    return [
        {"data_source": "metrics", "name": name, "query": query(text), **more} for name, text in one["queries"].items()
    ]


def _formula(one: Json) -> Json:
    known(one, "show", "as", "unit", "colors", "palette")
    made: Json = {"formula": one["show"]}
    if "palette" in one:
        made["style"] = {"palette": one["palette"]}
    if "as" in one:
        made["alias"] = one["as"]
    if "unit" in one:
        made["number_format"] = {"unit": dict(UNITS[one["unit"]])}
    if "colors" in one:
        made["conditional_formats"] = _formats(one["colors"])
    return made


def _formats(colors: list[str]) -> list[Json]:
    made = []
    for text in colors:
        match = _COLOR.fullmatch(text)
        if not match:
            msg = f"no colour: {text}"
            raise ValueError(msg)
        made.append({"comparator": match[2], "value": int(match[3]), "palette": _PALETTES[match[1]]})
    return made


def _number(one: Json) -> Json:
    """Return a single number with its colour, and its course behind it."""
    known(one, "number", "queries", "show", "aggregator", "unit", "colors", "precision", "span", "links")
    shown: Json = {key: one[key] for key in ("show", "unit") if key in one}
    request: Json = {
        "response_format": "scalar",
        "queries": _queries(one, aggregator=one.get("aggregator", "last")),
        "formulas": [_formula(shown)],
    }
    if "colors" in one:
        request["conditional_formats"] = _formats(one["colors"])
    return {
        **_titled("query_value", one["number"], one),
        # A number of seconds is told in minutes or hours, one of GPUs not in thousands.
        "autoscale": one.get("unit") == "seconds",
        "precision": one.get("precision", 0),
        "timeseries_background": {"type": "area", "yaxis": {"include_zero": True}},
        "requests": [request],
    }


def _graph(one: Json) -> Json:
    """Return a graph over time."""
    known(one, "graph", "draw", "markers", "links")
    made = {
        **_titled("timeseries", one["graph"], one),
        "show_legend": True,
        "legend_layout": "auto",
        "legend_columns": ["value", "max"],
        "yaxis": {"include_zero": True},
        "requests": [_drawn(drawn) for drawn in one["draw"]],
    }
    if "markers" in one:
        made["markers"] = one["markers"]
    return made


def _drawn(one: Json) -> Json:
    known(one, "kind", "palette", "right", "queries", "formulas")
    made = {
        "response_format": "timeseries",
        "queries": _queries(one),
        "formulas": [_formula(formula) for formula in one["formulas"]],
        "display_type": one["kind"],
        "style": {"palette": one.get("palette", "dog_classic"), "line_type": "solid", "line_width": "normal"},
    }
    return {**made, "on_right_yaxis": True} if one.get("right") else made


def _sorted_request(one: Json, count: int) -> Json:
    return {
        "response_format": "scalar",
        "queries": _queries(one, aggregator=one.get("aggregator", "last")),
        "formulas": [_formula(formula) for formula in one["formulas"]],
        "sort": {"count": count, "order_by": [{"type": "formula", "index": 0, "order": one.get("order", "desc")}]},
    }


def _ranking(one: Json) -> Json:
    """Return bars that lie on each other, the longest first."""
    known(one, "ranking", "queries", "formulas", "aggregator", "span", "links")
    return {**_titled("toplist", one["ranking"], one), "requests": [_sorted_request(one, 10)]}


def _table(one: Json) -> Json:
    """Return a table, sorted by its first formula."""
    known(one, "table", "queries", "formulas", "aggregator", "order", "span", "links")
    made = {**_titled("query_table", one["table"], one), "has_search_bar": "auto"}
    return {**made, "requests": [_sorted_request(one, 50)]}


def _events(one: Json) -> Json:
    """Return the list of the events that a search finds."""
    known(one, "events", "search")
    return {
        **_titled("list_stream", one["events"], one),
        "requests": [
            {
                "response_format": "event_list",
                "query": {"data_source": "event_stream", "query_string": one["search"], "event_size": "l"},
                "columns": [],
            }
        ],
    }


def _note(one: Json) -> Json:
    """Return a text: what to do about what is beside it. Lines are joined; an empty one ends a paragraph."""
    known(one, "note")
    paragraphs = (re.sub(r"\n(?!\* )", " ", text) for text in one["note"].strip().split("\n\n"))
    return {
        "type": "note",
        "content": "\n\n".join(paragraphs),
        "background_color": "white",
        "font_size": "14",
        "text_align": "left",
        "vertical_align": "top",
        "show_tick": False,
        "tick_pos": "50%",
        "tick_edge": "left",
        "has_padding": True,
    }


_KINDS: Final[dict[str, Callable[[Json], Json]]] = {
    "events": _events,
    "graph": _graph,
    "note": _note,
    "number": _number,
    "ranking": _ranking,
    "table": _table,
}
