# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The preview draws what a widget's JSON asks for, by the app's rules, and refuses what it does not know."""

import json
import re
from typing import Any

import pytest

from lab.preview import dashboard, monitors, objectives, texts
from lab.preview.axes import Drawn, Part
from lab.preview.colours import Paint, painted
from lab.preview.figures import timeseries as drawn
from lab.preview.numbers import Unit, text, unit_of
from lab.preview.scene import Line, Scene
from tests.shown import END, Json, Values, event, request, scene, timeline

IDLE = "sum:kueue_gang.gpus.idle_total{$kube_cluster_name,$gpu_resource}"
OLDEST = "max:kueue_gang.gang.state_seconds{$kube_cluster_name} by {gang}"
GPU = "gpu_resource:nvidia.com/gpu"


def gangs(**seconds: float | None) -> Scene:
    """Return a scene in which each gang has its age in seconds."""
    return scene({("gang.state_seconds", f"gang:{name}"): age for name, age in seconds.items()})


def plain(html: str) -> list[str]:
    """Return the texts of some HTML, one after the other."""
    return [found.strip() for found in re.findall(r">([^<>]+)<", html) if found.strip()]


# Numbers.


@pytest.mark.parametrize(
    ("value", "unit", "written"),
    [
        (3_000_000_000, "", "3G"),  # this one and its unit rule are the example of Datadog's page on units
        (1234, "", "1.23k"),
        (999, "", "999"),
        (0, "", "0"),
        (-0.001, "", "0"),
        (2 / 3, "", "0.67"),
        (0, "second", "0 s"),
        (0.25, "second", "250 ms"),
        (59, "second", "59 s"),
        (60, "second", "1 min"),
        (900, "second", "15 mins"),
        (5400, "second", "1.5 hrs"),
        (86_400, "second", "1 day"),
        (259_200, "second", "3 days"),
        (90, "minute", "1.5 hrs"),
        (87.5, "percent", "87.5%"),
        (0.875, "fraction", "87.5%"),
        (1, "device", "1 device"),
        (56, "device", "56 devices"),
        (2500, "dollar", "$2.5k"),
        (None, "second", "-"),
    ],
)
def test_numbers_are_written_with_their_unit(value: float | None, unit: str, written: str) -> None:
    """Times go to the largest unit of which there is one, others by thousands; no decimals that say nothing."""
    assert text(value, Unit(unit)) == written


def test_a_number_keeps_its_own_unit_without_autoscale() -> None:
    """Without autoscale 12,345 seconds stay seconds, and thousands are grouped instead of shortened."""
    assert text(12_345, Unit("second"), autoscale=False) == "12,345 s"
    assert text(12_345.678, Unit(), autoscale=False, precision=1) == "12,345.7"


def test_a_formula_names_its_unit() -> None:
    """A canonical unit, a label of one's own or a scale goes before the unit of the metric."""
    canonical = {"number_format": {"unit": {"type": "canonical_unit", "unit_name": "hour"}}}
    scaled = {"number_format": {"unit_scale": {"type": "canonical_unit", "unit_name": "hour"}}}
    label = {"number_format": {"unit": {"type": "custom_unit_label", "label": "GPUs"}}}
    assert text(2, unit_of(canonical, "second")) == "2 hrs"
    assert text(1800, unit_of(scaled, "second")) == "0.5 hrs"
    assert text(2, unit_of(label, "second")) == "2 GPUs"
    assert text(2, unit_of({}, "second")) == "2 s"
    with pytest.raises(ValueError, match="odd_unit"):
        unit_of({"number_format": {"unit": {"type": "odd_unit"}}})


# Colours.

RED_THEN_YELLOW = [
    {"comparator": ">", "value": 900, "palette": "white_on_red"},
    {"comparator": ">=", "value": 300, "palette": "white_on_yellow"},
]


@pytest.mark.parametrize(
    ("value", "palette"),
    [(901, "white_on_red"), (900, "white_on_yellow"), (300, "white_on_yellow"), (299, ""), (None, "")],
)
def test_the_first_format_that_is_met_paints(value: float | None, palette: str) -> None:
    """Formats are tried in their order, and a missing value meets none."""
    wanted = {
        "": Paint(),
        "white_on_red": painted(1, [{"comparator": ">", "value": 0, "palette": "white_on_red"}]),
        "white_on_yellow": painted(1, [{"comparator": ">", "value": 0, "palette": "white_on_yellow"}]),
    }
    assert len(set(wanted.values())) == len(wanted)
    assert painted(value, RED_THEN_YELLOW) == wanted[palette]


@pytest.mark.parametrize("one", [{"comparator": "~", "palette": "red"}, {"comparator": ">", "palette": "rosy"}])
def test_an_unknown_format_is_refused(one: Json) -> None:
    """A comparator or palette that is not known is an error, also while the value would not meet it."""
    with pytest.raises(ValueError, match="conditional format"):
        painted(None, [{"value": 0, **one}])


# Single values.


def value_of(found: Scene, **definition: Any) -> tuple[list[str], str]:
    """Return the texts and the style of a single value."""
    shown = dashboard.widget({"type": "query_value", **definition}, found)
    return plain(str(shown.html)), shown.style


def test_a_single_value_is_the_last_with_the_unit_of_its_metric() -> None:
    """`aggregator: last` takes the newest point; metadata gives the unit; the format paints the whole widget."""
    found = scene({("gpus.idle_total", GPU): lambda minutes: 56.0 if minutes < 10 else 0.0})
    formats = [{"comparator": ">", "value": 0, "palette": "white_on_red"}]
    texts_, style = value_of(found, requests=[request(IDLE, conditional_formats=formats)])
    assert texts_ == ["56", "devices"]
    assert style == painted(1, formats).style != ""


def test_a_custom_unit_goes_before_that_of_the_metric() -> None:
    """`custom_unit` of the widget is what stands behind the digits."""
    found = scene({("gpus.idle_total", GPU): 56.0})
    assert value_of(found, requests=[request(IDLE)], custom_unit="GPUs")[0] == ["56", "GPUs"]


def test_a_single_value_without_points_is_empty() -> None:
    """Nothing is not zero: the widget says that it has no data."""
    shown = dashboard.widget({"type": "query_value", "requests": [request(IDLE)]}, scene({}))
    assert shown.empty


def test_the_past_of_a_single_value_is_behind_it() -> None:
    """`timeseries_background` draws the hour; without it there is no drawing."""
    found = scene({("gpus.idle_total", GPU): float})
    behind = {"type": "query_value", "requests": [request(IDLE)], "timeseries_background": {"type": "area"}}
    figure = json.loads(re.findall(r"<script[^>]*>(.*?)</script>", str(dashboard.widget(behind, found).html))[0])
    # From minute 59 before the end to the end: the value was the number of minutes.
    assert [value for value in figure["data"][0]["y"] if value is not None] == [
        float(number) for number in range(59, -1, -1)
    ]
    assert "script" not in str(dashboard.widget({"type": "query_value", "requests": [request(IDLE)]}, found).html)


# Tables and toplists.


def table(found: Scene, *requests: Json) -> list[str]:
    """Return the texts of a table, headings first."""
    return plain(str(dashboard.widget({"type": "query_table", "requests": list(requests)}, found).html))


def test_a_table_is_ordered_and_cut() -> None:
    """`sort` orders by a formula, the largest first, and keeps so many rows; the heading is the alias."""
    ask = request(OLDEST, alias="in this state")
    ask["sort"] = {"count": 2, "order_by": [{"type": "formula", "index": 0, "order": "desc"}]}
    assert table(gangs(small=60.0, large=7200.0, middle=900.0), ask) == [
        "gang", "in this state", "large", "2 hrs", "middle", "15 mins",
    ]  # fmt: skip


def test_a_table_is_ordered_upwards() -> None:
    """`asc` puts the smallest first."""
    ask = request(OLDEST, alias="age")
    ask["sort"] = {"count": 50, "order_by": [{"type": "formula", "index": 0, "order": "asc"}]}
    assert table(gangs(small=60.0, large=7200.0), ask) == ["gang", "age", "small", "1 min", "large", "2 hrs"]


def test_a_cell_has_the_colour_of_its_value() -> None:
    """Each cell is painted by its own formula's formats, and only those that meet one."""
    ask = request(OLDEST, conditional_formats=RED_THEN_YELLOW)
    html = str(dashboard.widget({"type": "query_table", "requests": [ask]}, gangs(old=901.0, young=1.0)).html)
    assert re.findall(r'class="number"( style="[^"]*")?>', html) == [
        f' style="{painted(901, RED_THEN_YELLOW).style}"',
        "",
    ]


def test_a_toplist_is_the_largest_first() -> None:
    """The longest bar is full, others are their share of it; the limit of the formula cuts."""
    ask = request(OLDEST, limit={"count": 2, "order": "desc"})
    shown = dashboard.widget({"type": "toplist", "requests": [ask]}, gangs(a=60.0, b=240.0, c=120.0))
    assert plain(str(shown.html)) == ["4 mins", "b", "2 mins", "c"]
    assert re.findall(r"width:([\d.]+)%", str(shown.html)) == ["100.0", "50.0"]


def test_a_widget_shows_its_own_span() -> None:
    """`live_span` of five minutes does not see a gang that ended ten minutes ago; the hour of the dashboard does."""
    found = scene({("gang.state_seconds", "gang:gone"): lambda minutes: 60.0 if minutes > 10 else None})
    definition: Json = {"type": "query_table", "requests": [request(OLDEST)]}
    assert not dashboard.widget(definition, found).empty
    assert dashboard.widget({**definition, "time": {"live_span": "5m"}}, found).empty
    with pytest.raises(ValueError, match="live_span"):
        dashboard.widget({**definition, "time": {"live_span": "5 minutes"}}, found)


def test_a_variable_filters() -> None:
    """The value of a variable goes into the scope of the query; `*` leaves it as it is."""
    found = scene({("gpus.idle_total", GPU): 8.0, ("gpus.idle_total", "gpu_resource:amd.com/gpu"): 4.0})
    assert value_of(found, requests=[request(IDLE)])[0][0] == "8"
    everything = Scene(found.timeline, END, variables={"kube_cluster_name": "*", "gpu_resource": "*"})
    assert value_of(everything, requests=[request(IDLE)])[0][0] == "12"


# Timeseries.

STATES = "sum:kueue_gang.gangs{$kube_cluster_name} by {gang_state}"


def lines(found: Scene, *requests: Json, **definition: Any) -> tuple[list[Json], list[str], Json]:
    """Return the traces of a timeseries, the texts of its legend, and the layout."""
    shown = dashboard.widget({"type": "timeseries", "requests": list(requests), **definition}, found)
    html = str(shown.html)
    figure = json.loads(re.findall(r"<script[^>]*>(.*?)</script>", html)[0])
    return figure["data"], plain(html.partition('class="legend')[2]), figure["layout"]


def states() -> Scene:
    """Return a scene with gangs of two states; those that are partial began half an hour ago."""
    return scene({
        ("gangs", "gang_state:partial"): lambda minutes: 2.0 if minutes < 30 else None,
        ("gangs", "gang_state:running"): 5.0,
    })  # fmt: skip


@pytest.mark.parametrize(("display", "kind"), [("line", "scatter"), ("area", "scatter"), ("bars", "bar")])
def test_each_group_is_a_line_in_a_colour_of_its_own(display: str, kind: str) -> None:
    """Lines, areas and bars have one trace a group, named by it; only areas and bars are stacked."""
    traces, _, layout = lines(states(), {**request(STATES, "timeseries"), "display_type": display})
    assert [(trace["name"], trace["type"]) for trace in traces] == [("partial", kind), ("running", kind)]
    assert len({json.dumps(trace.get("line", trace.get("marker"))) for trace in traces}) == 2
    assert ("stackgroup" in traces[0]) is (display == "area")
    assert layout["barmode"] == "stack"
    # 5 and 2 on top of each other need more room than side by side.
    assert (layout["yaxis"]["range"][1] >= 7) is (display != "line")


def test_the_legend_has_the_columns_that_are_asked_for() -> None:
    """A row a group, with the newest value and the largest; before it began a group has no value, which is no 0."""
    _, legend, _ = lines(
        states(), request(STATES, "timeseries"), legend_layout="vertical", legend_columns=["value", "max", "min"]
    )
    assert legend == ["value", "max", "min", "partial", "2", "2", "2", "running", "5", "5", "5"]


def test_lines_of_several_formulas_tell_which() -> None:
    """Where requests or formulas are several, their alias stands before the group; without a group it stands alone."""
    total = request("sum:kueue_gang.gangs{$kube_cluster_name}", "timeseries", alias="all")
    one = request(STATES, "timeseries", alias="gangs")
    assert [trace["name"] for trace in lines(states(), total, one)[0]] == ["all", "gangs, partial", "gangs, running"]


def test_a_request_may_have_the_axis_on_the_right() -> None:
    """What is drawn there is measured there: 1,000 on the right does not press 5 on the left flat."""
    found = scene({("gangs", "gang_state:running"): 5.0, ("gang.throughput", "unit:tokens"): 1000.0})
    right = request("sum:kueue_gang.gang.throughput{$kube_cluster_name}", "timeseries")
    traces, _, layout = lines(found, request(STATES, "timeseries"), {**right, "on_right_yaxis": True})
    assert [trace["yaxis"] for trace in traces] == ["y", "y2"]
    assert 5 < layout["yaxis"]["range"][1] < 10
    assert layout["yaxis2"]["range"][1] > 1000


def test_a_gap_stays_a_gap() -> None:
    """Where a line has no point for longer than is bridged, nothing is drawn."""
    found = scene({("gangs", "gang_state:partial"): lambda minutes: None if 10 <= minutes < 40 else 1.0})
    values = lines(found, request(STATES, "timeseries"))[0][0]["y"]
    assert values.count(None) >= 29
    assert set(values) == {None, 1.0}


def test_markers_are_drawn_at_their_value() -> None:
    """`y = 8` is a line at 8 with its label, `y` between two values a band; other forms are refused."""
    markers = [
        {"value": "y = 8", "display_type": "error dashed", "label": " limit "},
        {"value": "2 < y < 4", "display_type": "warning dashed"},
    ]
    layout = lines(states(), request(STATES, "timeseries"), markers=markers)[2]
    assert [(shape["y0"], shape["y1"]) for shape in layout["shapes"]] == [(8.0, 8.0), (2.0, 4.0)]
    assert layout["annotations"][0]["text"] == "limit"
    with pytest.raises(ValueError, match="marker"):
        lines(states(), request(STATES, "timeseries"), markers=[{"value": "y > 8", "display_type": "error dashed"}])


def test_the_axis_of_a_time_has_round_times() -> None:
    """Seconds up to 50 minutes are marked each ten minutes."""
    line = Line({"formula": "a"}, {}, [(END, 3000.0)])
    part = Part({}, (Drawn(line, "a", "#000000", Unit("second")),), 60.0)
    figure = drawn([part], (END - 3600, END), {})
    assert list(figure.layout.yaxis.ticktext) == ["0 s", "10 mins", "20 mins", "30 mins", "40 mins", "50 mins"]


def test_an_unknown_palette_is_refused() -> None:
    """A palette that the preview has no colours for is an error that names it."""
    with pytest.raises(ValueError, match="rosy"):
        lines(states(), {**request(STATES, "timeseries"), "style": {"palette": "rosy"}})


@pytest.mark.parametrize("kind", ["treemap", "sunburst"])
def test_parts_have_the_size_of_their_value(kind: str) -> None:
    """Each group is a part; what is 0 has none."""
    ask = request("sum:kueue_gang.gangs{$kube_cluster_name} by {gang_state}")
    found = scene({("gangs", f"gang_state:{name}"): size for name, size in (("a", 3.0), ("b", 1.0), ("c", 0.0))})
    html = str(dashboard.widget({"type": kind, "requests": [ask]}, found).html)
    trace = json.loads(re.findall(r"<script[^>]*>(.*?)</script>", html)[0])["data"][0]
    assert dict(zip(trace["labels"], trace["values"], strict=True)) == {"a": 3.0, "b": 1.0}


# Notes and events.


def test_a_note_is_markdown_and_no_html() -> None:
    """Bold, lists and links are shown as such; a tag of HTML is shown as text."""
    html = str(
        dashboard.widget({"type": "note", "content": "**Look**\n\n* [here](https://x.y)\n* <b>no</b>"}, scene({})).html
    )
    assert "<strong>Look</strong>" in html
    assert '<a href="https://x.y">here</a>' in html
    assert "&lt;b&gt;no&lt;/b&gt;" in html


def test_events_are_listed_newest_first() -> None:
    """Those of the span that the query asks for, with their time and their text as Markdown."""
    found = scene(
        {},
        before_30=[event("older", 30), event("of another", 30, source_type_name="kubernetes")],
        before_5=[event("newer", 5)],
        before_90=[event("too old", 90)],
    )
    query = {"data_source": "event_stream", "query_string": "source:kueue_gang $kube_cluster_name"}
    html = str(dashboard.widget({"type": "list_stream", "requests": [{"query": query}]}, found).html)
    assert re.findall(r"<b>([^<]+)</b>", html) == ["newer", "older"]
    assert "It holds <strong>8</strong> GPUs." in html
    assert "%%%" not in html


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("source:kueue_gang", True),
        ("source:kubernetes", False),
        ("source:kueue_gang status:error", True),
        ("source:kueue_gang status:warning", False),
        ("kube_cluster_name:one", True),
        ("kube_cluster_name:two", False),
        ("$kube_cluster_name", False),
        ("$gang", True),
        ("holds", True),
        ("*", True),
    ],
)
def test_a_query_of_events_needs_all_of_its_terms(query: str, found: bool) -> None:
    """Words, tags, the source, the status, and variables that have a value."""
    assert texts.matches(event("GPUs", 0), query, {"kube_cluster_name": "two", "gang": "*"}) is found


@pytest.mark.parametrize("query", ["(a OR b)", 'title:"a b"', "-status:error"])
def test_a_query_of_events_that_is_not_known_is_refused(query: str) -> None:
    """What the preview cannot decide it does not guess."""
    with pytest.raises(ValueError, match="query of events"):
        texts.matches(event("a", 0), query, {})


# Monitors and SLOs.


def monitor(name: str, query: str, *tags: str, **more: Any) -> Json:
    """Return the definition of a monitor that alerts above 900 and warns above 300."""
    options = {
        "thresholds": {"critical": 900, "warning": 300},
        "on_missing_data": "resolve",
        "require_full_window": False,
    }
    return {"name": name, "query": query, "tags": ["integration:kueue_gang", *tags], "options": options, **more}


AGE = "max(last_5m):max:kueue_gang.gang.state_seconds{*} by {kube_cluster_name,gang} > 900"
NEVER = "max(last_5m):max:kueue_gang.gang.state_seconds{gang:nobody} by {kube_cluster_name,gang} > 900"


def with_monitors() -> Scene:
    """Return a scene with an old gang and a younger one, and two monitors."""
    ages: Values = {
        ("gang.state_seconds", "gang:old"): lambda minutes: 6000.0 - 60 * minutes,
        ("gang.state_seconds", "gang:new"): 400.0,
    }
    made = (monitor("B never", NEVER, "kueue_gang:notify", priority=1), monitor("A old", AGE, priority=3))
    return Scene(timeline(ages), END, monitors=made)


def test_monitors_have_the_state_of_their_worst_group() -> None:
    """The worst stand first, each with the groups that are not well, and the minute in which they became so."""
    found = with_monitors()
    first, second = monitors.states(found.monitors, found)
    assert (first.name, first.state, second.name, second.state) == ("A old", "Alert", "B never", "OK")
    # 6,000 s at the end, so above 900 s since the minute of 960 s, 84 minutes before the end; what begins 119 minutes
    # before the end is younger than 300 s only in its first minutes.
    assert [(one.group["gang"], one.state, (END - one.at) / 60) for one in first.groups[:1]] == [("old", "Alert", 84)]
    assert [(one.group["gang"], one.state) for one in first.groups[1:]] == [("new", "Warn")]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("tag:integration:kueue_gang", ["A old", "A old", "B never"]),
        ('tag:"kueue_gang:notify"', ["B never"]),
        ("tag:(a:b)", []),
    ],
)
def test_a_widget_of_monitors_asks_by_tag(query: str, names: list[str]) -> None:
    """A row a group that is not well, and one for each monitor that is; those without the tag are not there."""
    shown = dashboard.widget({"type": "manage_status", "query": query}, with_monitors())
    assert re.findall(r'<td class="tag" title="([^"]+)">[AB] ', str(shown.html)) == names
    assert shown.empty is not bool(names)


def test_a_query_of_monitors_that_is_not_known_is_refused() -> None:
    """Only tags are known."""
    with pytest.raises(ValueError, match="query of monitors"):
        dashboard.widget({"type": "manage_status", "query": "status:alert"}, with_monitors())


def test_an_slo_of_counts_tells_the_part_that_was_good() -> None:
    """90 of 120 GPU-seconds are 75 %; of a target of 90 % the error budget is spent two and a half times: -150 %."""
    tags = "gpu_resource:nvidia.com/gpu"
    used = {
        ("gpus.allocated_seconds", f"gpu_use:busy,{tags}"): 90.0,
        ("gpus.allocated_seconds", f"gpu_use:idle,{tags}"): 30.0,
    }
    query = {
        "numerator": "sum:kueue_gang.gpus.allocated_seconds{!gpu_use:idle}.as_count()",
        "denominator": "sum:kueue_gang.gpus.allocated_seconds{*}.as_count()",
    }
    slo = {"name": "useful", "type": "metric", "query": query, "thresholds": [{"target": 90}]}
    assert plain(str(objectives.shown([slo], scene(used)).html))[-4:] == ["useful", "75%", "90%", "-150%"]
    assert objectives.reached(slo, scene({})) is None


def test_an_slo_of_slices_counts_those_that_keep_the_threshold() -> None:
    """For 30 of 120 minutes, six slices, a gang was older than five minutes: 18 of 24 slices were good, 75 %."""
    ages = {("gangs.oldest_seconds", "gang_state:partial"): lambda minutes: 400.0 if 1 <= minutes <= 30 else None}
    query = {
        "formulas": [{"formula": "a"}],
        "queries": [
            {"data_source": "metrics", "name": "a", "query": "max:kueue_gang.gangs.oldest_seconds{*}.rollup(max)"}
        ],
    }
    slices = {"query": query, "query_interval_seconds": 300, "comparator": "<=", "threshold": 300}
    slo = {"type": "time_slice", "sli_specification": {"time_slice": slices}}
    assert objectives.reached(slo, scene(ages)) == 75
    with pytest.raises(ValueError, match="type of SLO"):
        objectives.reached({"type": "monitor"}, scene({}))
