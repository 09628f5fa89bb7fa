# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The rules of dashboards, monitors and SLOs: that Datadog takes them, and that they ask for what the check sends.

Datadog validates queries on its servers only. So the queries are read here, by the grammar of `lab.queries`, which
knows what these assets use and no more, and are held against the catalog: the metric exists, its series are combined
as they may be, each tag is one that it has, and each value is in the tag's list.
"""

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from datadog_api_client import Configuration
from datadog_api_client.model_utils import OpenApiModel, UnparsedObject, validate_and_convert_types
from datadog_api_client.v1.model.dashboard import Dashboard
from datadog_api_client.v1.model.monitor import Monitor
from datadog_api_client.v1.model.service_level_objective_request import ServiceLevelObjectiveRequest

from datadog_checks.kueue_gang import commands
from datadog_checks.kueue_gang.catalog import ALL, PREFIX, Metric
from lab import assets
from lab.queries import Condition, Query, names, parse, parse_formula, parse_monitor
from lab.scopes import filters
from lab.tags import TAGS

ROOT = Path(__file__).resolve().parent.parent
DASHBOARDS = sorted((ROOT / "assets/dashboards").glob("*.json"))
MONITORS = sorted((ROOT / "assets/monitors").glob("*.json"))
SLOS = sorted((ROOT / "assets/slos").glob("*.json"))
NOTIFY = "kueue_gang:notify"

#: Added by the Cluster Agent, or by the user's `tags`.
CLUSTER = "kube_cluster_name"
COLUMNS = 12
#: Tags over which series are never added up: their values are different things, or the same thing seen twice.
NEVER_SUMMED = ("gpu_resource", "topology_level")
#: Nodes can be of two flavors, so figures of the topology are not added up over flavors either.
TOPOLOGY_NEVER_SUMMED = (*NEVER_SUMMED, "kueue_resource_flavor")

VARIABLE = re.compile(r"\{\{\s*[#/^]?([^{}]+?)\s*\}\}")
#: What a message may say beside names of tags.
MESSAGE_WORDS = {
    "value", "threshold", "warn_threshold", "is_alert", "is_warning", "is_recovery", "is_alert_recovery",
    "is_warning_recovery", "is_alert_to_warning", "is_no_data",
}  # fmt: skip


#: The only metrics that are not of this check: Datadog's GPU Monitoring, whose pods have the same tags.
GPU_MONITORING = {"gpu.gr_engine_active": "avg", "gpu.sm_active": "avg"}
GPU_MONITORING_TAGS = {CLUSTER, "kube_namespace", "kueue_local_queue"}
CLOSED = {(tag.metric, tag.key): tag.values for tag in TAGS if tag.values}


def metric_of(query: Query) -> Metric:
    """Return the metric of the catalog that a query is about."""
    assert query.metric.startswith(PREFIX), query.text
    name = query.metric.removeprefix(PREFIX)
    assert name in ALL, f"no such metric: {name}"
    return ALL[name]


def load(path: Path) -> dict[str, Any]:
    """Return a JSON file; a key that stands twice in an object is a mistake that json would hide."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        assert len(keys) == len(set(keys)), f"twice in one object: {keys}"
        return dict(pairs)

    found: dict[str, Any] = json.loads(path.read_text(encoding="ascii"), object_pairs_hook=unique)
    return found


def understood(data: object, model: type) -> Any:
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


def requests(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the requests of a dashboard that have queries of metrics."""
    for widget in widgets(dashboard):
        for request in widget["definition"].get("requests", ()):
            if "queries" in request:
                yield request


def queries(dashboard: dict[str, Any]) -> list[Query]:
    """Return the queries of a dashboard."""
    return [parse(query["query"]) for request in requests(dashboard) for query in request["queries"]]


def check_query(query: Query) -> None:
    """Hold a query against the catalog."""
    if query.metric in GPU_MONITORING:
        assert query.space == GPU_MONITORING[query.metric]
        assert query.named <= GPU_MONITORING_TAGS
        return
    metric = metric_of(query)
    assert not metric.name.startswith("kueue."), f"{metric.name} may be switched off"
    allowed = {*metric.tags, CLUSTER}
    assert query.named <= allowed, f"{metric.name} has no tag {query.named - allowed}"
    assert query.count is (metric.type == "count"), query.text
    for one in filters(query.scope):
        closed = CLOSED.get((metric.name, one.key)) or CLOSED.get(("", one.key))
        for value in one.values:
            # What a star stands for must be there, too.
            assert closed is None or any(fnmatchcase(each, value) for each in closed), f"{one.key} is never {value}"
    over, _, condition = metric.over.partition(" ")
    over = over.rstrip(",")
    if over == "none":
        assert set(query.by) >= set(metric.tags), f"{metric.name} may not be combined"
        # One series a group: then it is all the same how a group is made, and a mistake would show.
        assert query.space == "max"
        assert CLUSTER in query.by
    else:
        assert query.space == over, f"{metric.name} is combined by {over}"
    if condition.startswith("by "):
        assert condition.removeprefix("by ") in query.by
    if condition == "not over missing":
        assert "member_state" in query.named
    for tag in TOPOLOGY_NEVER_SUMMED if metric.name.startswith("topology.") else NEVER_SUMMED:
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
        "sum:kueue_gang.topology.gangs{*} by {topology_level}",
        "max:kueue_gang.topology.slots{*} by {slot}",
        "sum:kueue_gang.gang.throughput{*}",
        "sum:kueue_gang.gangs{gang_state:runing}",
        "sum:kueue_gang.members{member_state:waited_*}",
        "sum:kueue_gang.gpus.idle_seconds{*} by {gpu_resource}",
        "sum:kueue_gang.gangs{*}.as_count()",
        "sum:kueue_gang.kueue.pending_workloads{*}",
        "max:gpu.sm_active{*}",
        "avg:gpu.sm_active{*} by {gang}",
        "avg:gpu.memory.free{*}",
    ],
)
def test_a_wrong_query_is_found(query: str) -> None:
    """Each way to ask for what is not there, or to add up what must not be, is noticed."""
    with pytest.raises(AssertionError):
        check_query(parse(query))


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
    assert list(faults(understood(dashboard, Dashboard))) == []
    {"dashboard": dashboard, "widget": widget, "request": request}[place][key] = value
    assert list(faults(understood(dashboard, Dashboard))) != []


# All assets.


def test_the_files_are_what_is_described() -> None:
    """Each JSON is what its description in lab/assets gives, and there is no other."""
    made = dict(assets.files(ROOT))
    assert {path: path.read_text(encoding="ascii") for path in made} == made, "run: make metadata"
    assert set(made) == {*DASHBOARDS, *MONITORS, *SLOS}


def test_the_manifest_names_all_assets() -> None:
    """Each file is in the manifest under its title, and nothing else is."""
    listed = load(ROOT / "manifest.json")["assets"]
    assert listed["dashboards"] == {load(path)["title"]: str(path.relative_to(ROOT)) for path in DASHBOARDS}
    assert listed["monitors"] == {load(path)["title"]: str(path.relative_to(ROOT)) for path in MONITORS}


@pytest.mark.parametrize("path", [*DASHBOARDS, *MONITORS, *SLOS], ids=lambda path: path.stem)
def test_words_in_backquotes_exist(path: Path) -> None:
    """Metrics and tags that texts name are those of the catalog, with values that the tags have."""
    text = path.read_text(encoding="ascii")
    for name in re.findall(r"kueue_gang\.([a-z_]+(?:\.[a-z_]+)*)", text):
        assert name in ALL or name == "source", f"no such metric: {name}"
    for key, value in re.findall(r"\b([a-z_]+):([a-z_]+)\b(?!\*)", text):
        closed = CLOSED.get(("", key))
        assert closed is None or value in closed, f"{key} is never {value}"


@pytest.mark.parametrize("path", [*DASHBOARDS, *MONITORS], ids=lambda path: path.stem)
def test_commands_and_files_exist(path: Path) -> None:
    """A command that a text tells to run is there, and so is a file of this project that it names."""
    text = path.read_text(encoding="ascii")
    for command in re.findall(r"kueue-gang ([a-z]+)", text):
        assert re.search(rf"^    {command} ", commands._parser().format_help(), re.MULTILINE), command
    assert "datadog_checks.kueue_gang" not in text
    for name in re.findall(r"\b(?:docs|deploy)/[\w.]+\w", text):
        assert (ROOT / name).exists(), name


# Dashboards.


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_datadog_understands_the_dashboard(path: Path) -> None:
    """The client parses it whole: every key is known, every value is allowed."""
    assert list(faults(understood(load(path), Dashboard))) == []


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_the_dashboard_asks_for_what_is_sent(path: Path) -> None:
    """Every query is right, and none needs the metrics that Kueue itself serves: these may be switched off."""
    for query in queries(load(path)):
        check_query(query)


def test_other_metrics_are_those_that_are_named() -> None:
    """Each metric of GPU Monitoring that may be asked for is, in a group that says that it needs it."""
    for path in DASHBOARDS:
        for group in load(path)["widgets"]:
            found = {query.metric for query in queries({"widgets": [group]})}
            assert not found & set(GPU_MONITORING) or "needs Datadog GPU Monitoring" in group["definition"]["title"]
    asked = {query.metric for path in DASHBOARDS for query in queries(load(path))}
    assert asked & {metric for metric in asked if not metric.startswith(PREFIX)} == set(GPU_MONITORING)


#: Option of the check -> the metrics that are sent only with it, as globs with their filter.
OPTIONAL = {
    "activity": {"gangs.stalled"},
    "training": {"gangs.stalled", "gang.throughput", "gang.throughput_per_gpu", "gang.progress"},
    "gpu_hourly_price": {"gpus.idle_cost"},
}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_what_needs_an_option_says_so_and_stands_last(path: Path) -> None:
    """A group asks for such a metric only if its title names an option that sends it; these groups are the last."""
    optional = []
    for group in load(path)["widgets"]:
        title = group["definition"]["title"]
        found = {query.metric.removeprefix(PREFIX) for query in queries({"widgets": [group]})}
        for metric in found & set().union(*OPTIONAL.values()):
            assert [name for name, sent in OPTIONAL.items() if metric in sent and name in title], (title, metric)
        optional.append("(needs " in title)
    assert optional == sorted(optional)
    assert any(optional)


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_template_variables_are_defined_and_used(path: Path) -> None:
    """The cluster comes first, then namespace, queue, engine and resource; none is defined or used in vain."""
    dashboard = load(path)
    variables = [variable["name"] for variable in dashboard["template_variables"]]
    assert variables[:5] == [CLUSTER, "kube_namespace", "kueue_local_queue", "gang_engine", "gpu_resource"]
    assert [variable["prefix"] for variable in dashboard["template_variables"]] == variables
    defaults = {variable["name"]: variable["defaults"] for variable in dashboard["template_variables"]}
    assert defaults == {name: ["nvidia.com/gpu" if name == "gpu_resource" else "*"] for name in variables}
    found = queries(dashboard)
    assert {name for query in found for name in query.variables} == set(variables)
    assert all(CLUSTER in query.variables for query in found)
    for query in found:
        # A variable that a metric can be filtered by and is not, would change nothing when it is chosen.
        if query.metric.startswith(PREFIX) and "gang" not in query.by:
            assert {*variables} & {*metric_of(query).tags} <= query.named, query.text
    for widget in widgets(dashboard):
        for request in widget["definition"].get("requests", ()):
            search = request.get("query", {}).get("query_string", "")
            assert set(re.findall(r"\$([a-z_]+)", search)) <= set(variables)


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


#: At 1024 px a column is less than 80 px wide: what a widget needs at least, in columns.
LEAST_WIDTH = {"query_value": 2, "timeseries": 3, "toplist": 3, "query_table": 3, "note": 2, "list_stream": 6}
#: So many characters of a title can be read in a number of two columns at 1024 px.
SHORT_TITLE = 22
#: A table needs a column and a half for its names, and less than one for each number.
COLUMNS_OF_NAMES = 2


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_widgets_can_be_read_on_a_small_screen(path: Path) -> None:
    """No widget is narrower than its kind needs, titles of small numbers are short, tables have room for columns."""
    for group in load(path)["widgets"]:
        for widget in group["definition"]["widgets"]:
            definition, width = widget["definition"], widget["layout"]["width"]
            assert width >= LEAST_WIDTH[definition["type"]], definition["title"]
            if definition["type"] == "query_value" and width == LEAST_WIDTH["query_value"]:
                assert len(definition["title"]) <= SHORT_TITLE, definition["title"]
            if definition["type"] == "query_table":
                numbers = len(definition["requests"][0]["formulas"])
                assert width >= COLUMNS_OF_NAMES + 0.8 * (numbers - 1), definition["title"]


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
def test_each_group_says_what_to_do(path: Path) -> None:
    """It has a note."""
    for group in load(path)["widgets"]:
        kinds = {widget["definition"]["type"] for widget in group["definition"]["widgets"]}
        assert "note" in kinds, group["definition"]["title"]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_formulas_use_their_queries(path: Path) -> None:
    """Each query has a name of its own in its request, and a formula that shows it; all are in the same groups."""
    for request in requests(load(path)):
        called = [query["name"] for query in request["queries"]]
        assert len(set(called)) == len(called)
        used = {name for formula in request["formulas"] for name in names(parse_formula(formula["formula"]))}
        assert used == set(called)
        assert len({parse(query["query"]).by for query in request["queries"]}) == 1


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_what_is_not_known_is_not_zero(path: Path) -> None:
    """A number is 0 for want of data only beside a query that has data whenever the number is known.

    That is one that is also sent as 0, of the quota one that is there where there is Kueue, of a gang one that is there
    as long as the gang. How much was lost in a day is known also when the last minutes are not.
    """
    for request in requests(load(path)):
        for formula in request["formulas"]:
            if "default_zero" in formula["formula"] and "/ 3600" not in formula["formula"]:
                assert re.fullmatch(r"default_zero\((\w+)\) \+ 0 \* known", formula["formula"])
                (known,) = (metric_of(parse(q["query"])) for q in request["queries"] if q["name"] == "known")
                assert known.zero == "always" or known.name in {"quota.nominal", "gang.required"}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_tables_of_gangs_tell_clusters_apart(path: Path) -> None:
    """A gang is known by cluster, namespace and name; two of one name are not thrown together."""
    for query in queries(load(path)):
        if "gang" in query.by:
            assert {CLUSTER, "kube_namespace"} <= set(query.by), query.text


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_links_lead_somewhere(path: Path) -> None:
    """To the other dashboard by a title that it has, or to a page of Datadog.

    A link names the namespace of the row that was clicked where there is one, else the one that was chosen above.
    """
    titles = {load(other)["title"].replace(" ", "+") for other in DASHBOARDS}
    pods = "/orchestration/explorer/pod?query=kube_namespace%3A{{{{{}.value}}}}".format
    linked = set()
    for widget in widgets(load(path)):
        definition = widget["definition"]
        by = {tag for query in queries({"widgets": [widget]}) for tag in query.by}
        row = "kube_namespace" if "kube_namespace" in by else "$kube_namespace"
        pages = {pods(row), "/gpu-monitoring"}
        links = [link["link"] for link in definition.get("custom_links", ())]
        links += re.findall(r"\]\(([^)]+)\)", definition.get("content", ""))
        linked.update(links)
        for link in links:
            assert link in pages or link.removeprefix("/dashboard/lists?q=") in titles, link
    own = load(path)["title"].replace(" ", "+")
    assert {f"/dashboard/lists?q={title}" for title in titles - {own}} <= linked
    assert {pods("kube_namespace"), "/gpu-monitoring"} <= linked


# Monitors.


def condition_of(path: Path) -> Condition:
    """Return the query of a monitor in its parts."""
    return parse_monitor(load(path)["definition"]["query"])


@pytest.mark.parametrize("path", MONITORS, ids=lambda path: path.stem)
def test_datadog_understands_the_monitor(path: Path) -> None:
    """The file has the form of official monitor assets, and the client parses the definition whole."""
    monitor = load(path)
    assert monitor["version"] == 2
    assert {"created_at", "last_updated_at", "title", "description", "tags", "definition"} <= set(monitor)
    assert list(faults(understood(monitor["definition"], Monitor))) == []


@pytest.mark.parametrize("path", MONITORS, ids=lambda path: path.stem)
def test_the_monitor_asks_for_what_is_sent(path: Path) -> None:
    """Its queries are right, need no metric of Kueue itself nor of GPU Monitoring, and alert by cluster."""
    condition = condition_of(path)
    for query in condition.queries:
        check_query(query)
        assert query.metric not in GPU_MONITORING
        assert not query.variables
    assert CLUSTER in condition.by


@pytest.mark.parametrize("path", MONITORS, ids=lambda path: path.stem)
def test_thresholds_are_those_of_the_query(path: Path) -> None:
    """The critical threshold is the query's number; a warning comes before it, and each level recovers beyond itself.

    Whole numbers against 0, and a state that is 1 or 0, have nothing in between and need no threshold of recovery.
    """
    condition = condition_of(path)
    thresholds = load(path)["definition"]["options"]["thresholds"]
    assert thresholds["critical"] == condition.threshold
    sign = 1 if ">" in condition.comparison else -1
    levels = [sign * thresholds[name] for name in ("warning_recovery", "warning", "critical") if name in thresholds]
    assert levels == sorted(set(levels))
    if "critical_recovery" in thresholds:
        recovery = sign * thresholds["critical_recovery"]
        assert recovery < sign * thresholds["critical"]
        assert recovery >= sign * thresholds.get("warning", thresholds["critical_recovery"])
    else:
        assert (condition.comparison, condition.threshold) in {(">", 0), ("<", 1)}
    # Of percents there is nothing beyond 100.
    if "warning" in thresholds and thresholds["warning"] != 100:
        assert "warning_recovery" in thresholds


@pytest.mark.parametrize("path", MONITORS, ids=lambda path: path.stem)
def test_a_level_that_must_last_has_a_full_window(path: Path) -> None:
    """`min` over a window is true of a group that has just begun unless the window must be full."""
    condition = condition_of(path)
    lasting = condition.time == ("min" if ">" in condition.comparison else "max")
    always = all(metric_of(query).zero == "always" for query in condition.queries)
    assert load(path)["definition"]["options"]["require_full_window"] is (lasting and not always)


@pytest.mark.parametrize("path", MONITORS, ids=lambda path: path.stem)
def test_messages_name_tags_of_the_group(path: Path) -> None:
    """A variable of a message that is no tag of the notification's group stays empty in it; blocks are closed."""
    definition = load(path)["definition"]
    by = set(definition["options"].get("notify_by", condition_of(path).by))
    assert by <= set(condition_of(path).by)
    known = MESSAGE_WORDS | {f"{tag}.name" for tag in by}
    assert set(VARIABLE.findall(definition["message"])) <= known
    assert re.findall(r"\{\{#(\w+)\}\}", definition["message"]) == re.findall(r"\{\{/(\w+)\}\}", definition["message"])
    # Who is told in which cluster, namespace or queue it is, need not look for it.
    alert = re.search(r"\{\{#is_alert\}\}(.*?)\{\{/is_alert\}\}", definition["message"], re.DOTALL)
    assert alert
    assert {f"{tag}.name" for tag in by} <= set(VARIABLE.findall(alert[1]))


@pytest.mark.parametrize("path", MONITORS, ids=lambda path: path.stem)
def test_a_message_says_what_and_what_to_do(path: Path) -> None:
    """What happened and what recovered, a warning where there is one, no data where it notifies, and three things."""
    definition = load(path)["definition"]
    blocks = re.findall(r"\{\{#(\w+)\}\}", definition["message"])
    options = definition["options"]
    assert set(blocks) == {
        "is_alert",
        "is_recovery",
        *({"is_warning"} if "warning" in options["thresholds"] else ()),
        *({"is_no_data"} if options["on_missing_data"] == "show_and_notify_no_data" else ()),
    }
    steps = definition["message"].partition("Look at first:")[2]
    assert re.findall(r"^(\d)\. \S", steps, re.MULTILINE) == ["1", "2", "3"]


@pytest.mark.parametrize("path", MONITORS, ids=lambda path: path.stem)
def test_missing_data_means_what_it_is(path: Path) -> None:
    """Where a series ends when all is well, missing is OK. Where it is sent as 0 first, missing is nothing seen.

    Series of one gang end with the gang, or with its need of attention.
    """
    options = load(path)["definition"]["options"]
    metrics = [metric_of(query) for query in condition_of(path).queries]
    ends = any(metric.zero == "never" or metric.name.startswith("gang.") for metric in metrics)
    assert (options["on_missing_data"] == "resolve") is ends
    # The older options mean something else, and Datadog refuses them beside the new one.
    assert not {"notify_no_data", "no_data_timeframe"} & set(options)


def test_few_monitors_notify() -> None:
    """Six wake people, with a priority of 3 at least; the others are recommended, with 4 or 5."""
    notify = {path.stem: load(path)["definition"]["priority"] for path in MONITORS if NOTIFY in load(path)["tags"]}
    others = {path.stem: load(path)["definition"]["priority"] for path in MONITORS if NOTIFY not in load(path)["tags"]}
    assert len(notify) == 6
    assert set(notify.values()) <= {1, 2, 3}
    assert set(others.values()) <= {4, 5}


# SLOs.


@pytest.mark.parametrize("path", SLOS, ids=lambda path: path.stem)
def test_datadog_understands_the_slo(path: Path) -> None:
    """The client parses it whole."""
    assert list(faults(understood(load(path), ServiceLevelObjectiveRequest))) == []


@pytest.mark.parametrize("path", SLOS, ids=lambda path: path.stem)
def test_the_slo_asks_for_what_is_sent(path: Path) -> None:
    """Its queries are right, and its targets are in order."""
    slo = load(path)
    if slo["type"] == "metric":
        asked = [parse(slo["query"]["numerator"]), parse(slo["query"]["denominator"])]
        assert asked[0].metric == asked[1].metric
    else:
        condition = slo["sli_specification"]["time_slice"]
        asked = [parse(query["query"]) for query in condition["query"]["queries"]]
        assert {query["name"] for query in condition["query"]["queries"]} == {
            name for one in condition["query"]["formulas"] for name in names(parse_formula(one["formula"]))
        }
    for query in asked:
        check_query(query)
    for threshold in slo["thresholds"]:
        assert threshold["target"] < threshold["warning"] < 100
