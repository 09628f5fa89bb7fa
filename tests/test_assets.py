# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The rules of dashboards and monitors: that Datadog takes them, and that they ask for what the check sends.

Datadog validates queries on its servers only. So the queries are read here, by a grammar that knows what these assets
use and no more, and are held against the catalog: the metric exists, its series are combined as they may be, and each
tag is one that it has.
"""

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from datadog_api_client import Configuration
from datadog_api_client.model_utils import OpenApiModel, UnparsedObject, validate_and_convert_types
from datadog_api_client.v1.model.dashboard import Dashboard
from datadog_api_client.v1.model.monitor import Monitor

from datadog_checks.kueue_gang.catalog import ALL, PREFIX, Metric

ROOT = Path(__file__).resolve().parent.parent
DASHBOARDS = sorted((ROOT / "assets/dashboards").glob("*.json"))
MONITORS = sorted((ROOT / "assets/monitors").glob("*.json"))

#: Added by the Cluster Agent, or by the user's `tags`.
CLUSTER = "kube_cluster_name"
COLUMNS = 12
#: Tags over which series are never added up: their values are different things, or the same thing seen twice.
NEVER_SUMMED = ("gpu_resource", "topology_level")

QUERY = re.compile(
    r"(?:(?P<time>min|max|avg|sum)\(last_(?P<window>\d+[mhd])\):)?"
    r"(?P<space>min|max|avg|sum):(?P<metric>[a-z_.]+)\{(?P<filter>[^{}]*)\}(?: by \{(?P<by>[a-z_,]+)\})?"
    r"(?P<count>\.as_count\(\))?(?: (?P<comparison>[<>]=?) (?P<threshold>[0-9.]+))?"
)
VARIABLE = re.compile(r"\{\{\s*[#/^]?([^{}]+?)\s*\}\}")
#: What a message may say beside names of tags.
MESSAGE_WORDS = {
    "value", "threshold", "warn_threshold", "is_alert", "is_warning", "is_recovery", "is_alert_recovery",
    "is_warning_recovery", "is_alert_to_warning", "is_no_data",
}  # fmt: skip


class Query(NamedTuple):
    """A query in its parts."""

    metric: Metric
    space: str
    filters: dict[str, str]
    variables: set[str]
    by: set[str]
    threshold: float | None

    @property
    def named(self) -> set[str]:
        """The tags that it filters or groups by."""
        return {*self.filters, *self.variables, *self.by}


def read(query: str) -> Query:
    """Return a query in its parts; fails where the grammar does not know it, and where there is no such metric."""
    match = QUERY.fullmatch(query)
    assert match, f"not understood: {query}"
    name = match["metric"]
    assert name.removeprefix(PREFIX) in ALL, f"no such metric: {name}"
    assert name.startswith(PREFIX)
    terms = [term for term in match["filter"].split(",") if term not in {"", "*"}]
    return Query(
        metric=ALL[name.removeprefix(PREFIX)],
        space=match["space"],
        filters=dict(term.lstrip("!").split(":", 1) for term in terms if not term.startswith("$")),
        variables={term.removeprefix("$") for term in terms if term.startswith("$")},
        by=set((match["by"] or "").split(",")) - {""},
        threshold=float(match["threshold"]) if match["threshold"] else None,
    )


def load(path: Path) -> dict[str, Any]:
    """Return a JSON file; a key that stands twice in an object is a mistake that json would hide."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        assert len(keys) == len(set(keys)), f"twice in one object: {keys}"
        return dict(pairs)

    found: dict[str, Any] = json.loads(path.read_text(encoding="ascii"), object_pairs_hook=unique)
    return found


def parse(data: object, model: type) -> Any:
    """Return what Datadog's own client makes of data."""
    return validate_and_convert_types(data, (model,), ["root"], True, True, Configuration())


def faults(parsed: object, place: str = "root") -> Iterator[str]:
    """Yield what the client took without an error and did not understand: wrong values, and unknown keys."""
    if isinstance(parsed, UnparsedObject) or getattr(parsed, "_unparsed", False):
        yield f"{place}: not understood"
    if isinstance(parsed, OpenApiModel):
        for key, value in parsed.__dict__.get("_data_store", {}).items():
            if key not in (parsed.openapi_types or {}):
                yield f"{place}.{key}: no such key"
            yield from faults(value, f"{place}.{key}")
        # Where one of several models is meant, such as the definition of a widget, the parsed one is in here.
        for one in parsed.__dict__.get("_composed_instances", ()):
            yield from faults(one, place)
    elif isinstance(parsed, list):
        for number, value in enumerate(parsed):
            yield from faults(value, f"{place}[{number}]")


def widgets(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the widgets of a dashboard, and those in its groups."""
    for widget in dashboard["widgets"]:
        yield widget
        yield from widget["definition"].get("widgets", ())


def queries(dashboard: dict[str, Any]) -> list[str]:
    """Return the queries of a dashboard."""
    return [
        query["query"]
        for widget in widgets(dashboard)
        for request in widget["definition"].get("requests", ())
        for query in request["queries"]
    ]


def check_query(query: Query) -> None:
    """Hold a query against the catalog."""
    metric = query.metric
    assert query.named <= {*metric.tags, CLUSTER}, f"{metric.name} has no tag {query.named - {*metric.tags, CLUSTER}}"
    over, _, condition = metric.over.partition(" ")
    over = over.rstrip(",")
    if over == "none":
        assert query.by >= set(metric.tags), f"{metric.name} may not be combined"
    else:
        assert query.space == over, f"{metric.name} is combined by {over}"
    if condition.startswith("by "):
        assert condition.removeprefix("by ") in query.by
    if condition == "not over missing":
        assert "member_state" in query.named
    for tag in NEVER_SUMMED:
        assert tag not in metric.tags or tag in query.named, f"{metric.name} is added up over {tag}"


# The rules themselves are tried first: a test that finds nothing must be able to.


@pytest.mark.parametrize(
    "query",
    [
        "sum:kueue_gang.gpus.idel{*}",
        "sum:kueue.pending_workloads{*}",
        "sum:kueue_gang.gangs{*} by {gang_stat}",
        "max:kueue_gang.gangs{*} by {gang_state}",
        "sum:kueue_gang.gpus.idle{*} by {idle_reason}",
        "sum:kueue_gang.members{*} by {kube_namespace}",
        "min:kueue_gang.source.up{*} by {reason}",
        "sum:kueue_gang.scheduler.unschedulable_pods{*}",
        "sum(kueue_gang.gangs)",
    ],
)
def test_a_wrong_query_is_found(query: str) -> None:
    """Each way to ask for what is not there, or to add up what must not be, is noticed."""
    with pytest.raises(AssertionError):
        check_query(read(query))


@pytest.mark.parametrize(
    ("place", "key", "value"),
    [
        ("widget", "show_legnd", True),
        ("widget", "type", "timeserie"),
        ("request", "respons_format", "timeseries"),
        ("request", "display_type", "lines"),
        ("dashboard", "layout_typ", "ordered"),
    ],
)
def test_a_wrong_key_or_value_is_found(place: str, key: str, value: object) -> None:
    """The client takes unknown keys and values without a word; the walker finds both, also deep inside."""
    request: dict[str, Any] = {
        "response_format": "timeseries",
        "queries": [{"data_source": "metrics", "name": "a", "query": "sum:kueue_gang.gangs{*}"}],
        "formulas": [{"formula": "a"}],
    }
    widget: dict[str, Any] = {"type": "timeseries", "title": "?", "requests": [request]}
    dashboard: dict[str, Any] = {"title": "d", "layout_type": "ordered", "widgets": [{"definition": widget}]}
    assert list(faults(parse(dashboard, Dashboard))) == []
    {"dashboard": dashboard, "widget": widget, "request": request}[place][key] = value
    assert list(faults(parse(dashboard, Dashboard))) != []


# All assets.


def test_the_manifest_names_all_assets() -> None:
    """Each file is in the manifest under its title, and nothing else is."""
    assets = load(ROOT / "manifest.json")["assets"]
    assert assets["dashboards"] == {load(path)["title"]: str(path.relative_to(ROOT)) for path in DASHBOARDS}
    assert assets["monitors"] == {load(path)["title"]: str(path.relative_to(ROOT)) for path in MONITORS}


# Dashboards.


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_datadog_understands_the_dashboard(path: Path) -> None:
    """The client parses it whole: every key is known, every value is allowed."""
    assert list(faults(parse(load(path), Dashboard))) == []


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_the_dashboard_asks_for_what_is_sent(path: Path) -> None:
    """Every query is right, and none needs the metrics that Kueue itself serves: these may be switched off."""
    for text in queries(load(path)):
        query = read(text)
        check_query(query)
        assert not query.metric.name.startswith("kueue."), text


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_template_variables_are_defined_and_used(path: Path) -> None:
    """The cluster comes first, each variable is a tag, and none is defined or used in vain."""
    dashboard = load(path)
    variables = [variable["name"] for variable in dashboard["template_variables"]]
    assert variables[0] == CLUSTER
    assert [variable["prefix"] for variable in dashboard["template_variables"]] == variables
    assert {name for text in queries(dashboard) for name in read(text).variables} == set(variables)
    assert all(CLUSTER in read(text).variables for text in queries(dashboard))


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_widgets_lie_side_by_side(path: Path) -> None:
    """Every widget has a place inside of the twelve columns, and no two share one; groups hold what is in them."""
    dashboard = load(path)
    groups = [widget for widget in dashboard["widgets"] if widget["definition"]["type"] == "group"]
    for found in (dashboard["widgets"], *(group["definition"]["widgets"] for group in groups)):
        places = [widget["layout"] for widget in found]
        for place in places:
            assert min(place["x"], place["y"]) >= 0
            assert min(place["width"], place["height"]) > 0
            assert place["x"] + place["width"] <= COLUMNS
        for one, other in combinations(places, 2):
            beside = one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
            below = one["y"] + one["height"] <= other["y"] or other["y"] + other["height"] <= one["y"]
            assert beside or below, (one, other)
    for group in groups:
        # One row is the heading.
        inner = max(w["layout"]["y"] + w["layout"]["height"] for w in group["definition"]["widgets"])
        assert group["layout"]["height"] == inner + 1


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_titles_ask_a_question(path: Path) -> None:
    """Whoever reads a title knows what the widget answers; notes say what to do and have none."""
    for widget in widgets(load(path)):
        definition = widget["definition"]
        if definition["type"] == "note":
            assert definition["content"]
        else:
            assert re.fullmatch(r"[^?]+\?( \([^)]+\))?", definition["title"]), definition["title"]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_formulas_use_their_queries(path: Path) -> None:
    """Each query has a name of its own in its request, and a formula that shows it."""
    for widget in widgets(load(path)):
        for request in widget["definition"].get("requests", ()):
            names = [query["name"] for query in request["queries"]]
            assert len(set(names)) == len(names)
            used = {name for formula in request["formulas"] for name in re.findall(r"[a-z_]+", formula["formula"])}
            assert used == set(names)


# Monitors.


@pytest.mark.parametrize("path", MONITORS, ids=lambda path: path.stem)
def test_datadog_understands_the_monitor(path: Path) -> None:
    """The file has the form of official monitor assets, and the client parses the definition whole."""
    monitor = load(path)
    assert monitor["version"] == 2
    assert {"created_at", "last_updated_at", "title", "description", "tags", "definition"} <= set(monitor)
    assert list(faults(parse(monitor["definition"], Monitor))) == []


@pytest.mark.parametrize("path", MONITORS, ids=lambda path: path.stem)
def test_the_monitor_asks_for_what_is_sent(path: Path) -> None:
    """Its query is right, needs no metric of Kueue itself, and alerts by cluster."""
    query = read(load(path)["definition"]["query"])
    check_query(query)
    assert not query.metric.name.startswith("kueue.")
    assert CLUSTER in query.by


@pytest.mark.parametrize("path", MONITORS, ids=lambda path: path.stem)
def test_thresholds_are_those_of_the_query(path: Path) -> None:
    """The critical threshold is the query's number, and each level recovers below itself."""
    definition = load(path)["definition"]
    assert ">" in definition["query"], "for another comparison the order below is the other way round"
    thresholds = definition["options"]["thresholds"]
    assert thresholds["critical"] == read(definition["query"]).threshold
    assert thresholds["warning_recovery"] < thresholds["warning"] <= thresholds["critical_recovery"]
    assert thresholds["critical_recovery"] < thresholds["critical"]


@pytest.mark.parametrize("path", MONITORS, ids=lambda path: path.stem)
def test_messages_name_tags_of_the_group(path: Path) -> None:
    """A variable of a message that is no tag of the group-by stays empty in the notification; blocks are closed."""
    definition = load(path)["definition"]
    by = read(definition["query"]).by
    known = MESSAGE_WORDS | {f"{tag}.name" for tag in by}
    assert set(VARIABLE.findall(definition["message"])) <= known
    assert re.findall(r"\{\{#(\w+)\}\}", definition["message"]) == re.findall(r"\{\{/(\w+)\}\}", definition["message"])


@pytest.mark.parametrize("path", MONITORS, ids=lambda path: path.stem)
def test_a_monitor_of_series_that_end_resolves(path: Path) -> None:
    """A series that is never sent as 0 just ends when all is well again, so its absence means OK."""
    definition = load(path)["definition"]
    options = definition["options"]
    if read(definition["query"]).metric.zero == "never":
        assert options["on_missing_data"] == "resolve"
    # The older options mean something else, and Datadog refuses them beside the new one.
    assert not {"notify_no_data", "no_data_timeframe"} & set(options)
