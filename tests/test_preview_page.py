# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The page of the preview: its frame, the dashboards of the assets on it, and the command that writes it."""

import re
from pathlib import Path

import pytest

from lab.preview import dashboard, page, stories
from lab.preview.__main__ import main
from lab.simulation.scenario import load
from lab.timeline import Timeline, together
from tests.shown import Values, event, request, scene, timeline

OLDEST = "max:kueue_gang.gang.state_seconds{$kube_cluster_name} by {gang}"


def test_an_unknown_widget_is_an_error_that_names_it() -> None:
    """A widget is never left out in silence: its type and its title are in the error."""
    definition = {"type": "geomap", "title": "Where?"}
    board = {"title": "t", "widgets": [{"definition": definition, "layout": {"x": 0, "y": 0, "width": 4, "height": 2}}]}
    with pytest.raises(dashboard.UnknownWidgetError, match="geomap") as error:
        dashboard.html("board", board, scene({}))
    assert "'Where?'" in error.value.__notes__[0]


def test_widgets_lie_where_the_layout_says() -> None:
    """Columns and rows are counted from 0 in the JSON, and from 1 in the grid of the page."""
    note = {"definition": {"type": "note", "content": "a"}, "layout": {"x": 8, "y": 2, "width": 4, "height": 3}}
    group = {
        "definition": {"type": "group", "title": "g", "background_color": "vivid_blue", "widgets": [note]},
        "layout": {"x": 0, "y": 5, "width": 12, "height": 6},
    }
    html = str(dashboard.html("board", {"title": "t", "widgets": [group]}, scene({})))
    assert re.findall(r"grid-column:(\d+) / span (\d+);grid-row:(\d+) / span (\d+)", html) == [
        ("1", "12", "6", "6"), ("9", "4", "3", "3"),
    ]  # fmt: skip


def test_names_of_objects_do_not_break_out() -> None:
    """A gang may be called like a piece of HTML: it is shown, in tables and in the data of drawings."""
    name = "</script><img src=x>"
    found = scene({("gang.state_seconds", f"gang:{name}"): 60.0})
    series = {"type": "timeseries", "requests": [request(OLDEST, "timeseries")]}
    for definition in ({"type": "query_table", "requests": [request(OLDEST)]}, series):
        html = str(dashboard.widget(definition, found).html)
        assert "<img" not in html
        assert html.count("</script>") == (definition is series)


def test_a_page_needs_nothing_else() -> None:
    """Styles and scripts are inside: no element of the page names a file or an address to load."""
    html = page.html("title", "about", {"board": ({"title": "t", "widgets": []}, scene({}))})
    assert not re.findall(r"<(?:script|img|link|iframe)[^>]+(?:src|href)=", html.partition("<script>")[0])
    assert "Plotly" in html


# The dashboards of the assets, over the fleet: this is where each of their widgets has something to show.


def test_no_widget_of_the_dashboards_is_empty() -> None:
    """Over the five clusters of the fleet every widget has data, unless all of its metrics are of other products."""
    boards = stories.boards(stories.told(stories.FLEET, interval=120))
    assert next(iter(boards)) == "gpu_gangs_overview"
    empty: list[str] = []
    foreign: list[str] = []
    for name, (definition, found) in boards.items():
        html = str(dashboard.html(name, definition, found))
        for of, title in re.findall(r'data-empty="true" data-foreign="(\w+)" data-title="([^"]*)"', html):
            (foreign if of == "true" else empty).append(f"{name}: {title}")
    assert empty == []
    # Of Datadog's GPU Monitoring; their group says that they are.
    assert len(foreign) == 2


def test_the_dashboard_of_one_gang_shows_the_one_that_holds_most_in_vain() -> None:
    """Where none holds any, it is the one that is longest in its state; where there is none, the variable stays."""
    board = {"template_variables": [{"name": "gang", "defaults": ["*"]}]}
    idle: Values = {("gang.gpus_idle", "gang:a"): 8.0, ("gang.gpus_idle", "gang:b"): 16.0}
    ages: Values = {("gang.state_seconds", "gang:a"): 900.0, ("gang.state_seconds", "gang:b"): 60.0}
    assert page.chosen(board, scene({**ages, **idle})).variables["gang"] == "b"
    assert page.chosen(board, scene(ages)).variables["gang"] == "a"
    assert "gang" not in page.chosen(board, scene({})).variables
    assert "gang" not in page.chosen({}, scene(idle)).variables


def test_a_story_is_looked_at_while_its_fault_lasts() -> None:
    """Half an hour after the fault, and not before an hour has passed; a day without a fault at its end."""
    assert stories.moment("partial-gang") == 3600
    assert stories.moment("healthy-day") == load("healthy-day").lasts
    assert stories.about("partial-gang")
    with pytest.raises(ValueError, match="did you mean"):
        stories.about("partial-gan")


def test_clusters_side_by_side_are_one_account() -> None:
    """Points and events of the same moment come together; clusters that did not begin together are refused."""
    one = timeline({("gangs", "gang_state:running"): 1.0}, before_0=[event("a", 0)])
    other = timeline({("gangs", "gang_state:partial"): 2.0}, before_0=[event("b", 0)])
    both = together("both", [one, other])
    assert [moment.total("gangs") for moment in both.moments[-2:]] == [3, 3]
    assert [told["msg_title"] for told in both.moments[-1].events] == ["a", "b"]
    late = Timeline("late", one.interval, one.moments[1:])
    with pytest.raises(ValueError, match="did not begin together"):
        together("both", [one, late])


# The command.


def test_the_command_writes_a_page(tmp_path: Path) -> None:
    """One scenario is one file, with both dashboards, the monitors and the SLOs; --at is how long it is played."""
    out = tmp_path / "one.html"
    assert main(["--scenario", "partial-gang", "--out", str(out), "--at", "2m"]) == 0
    html = out.read_text()
    assert re.findall(r'<main class="dashboard[^"]*" id="(\w+)"', html) == [
        "gpu_gangs_overview", "gang_detail", "monitors", "slos",
    ]  # fmt: skip
    assert "Mar 1, 06:02" in html


def test_several_scenarios_have_an_index(tmp_path: Path) -> None:
    """A page each, and one that leads to them and says what they are about."""
    assert main(["--scenario", "partial-gang", "--scenario", "deadlock", "--out", str(tmp_path), "--at", "30s"]) == 0
    index = (tmp_path / "index.html").read_text()
    assert re.findall(r'<a href="([^"]+)">', index) == ["partial-gang.html", "deadlock.html"]
    assert stories.about("deadlock") in index
    assert 'href="index.html"' in (tmp_path / "deadlock.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["--scenario", "no-such"], "no-such"), (["--at", "soon"], "soon"), (["--at", "1s"], "no moment")],
)
def test_what_is_asked_in_vain_is_told(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The exit code is 1, and the error says what is wrong."""
    asked = arguments if "--scenario" in arguments else ["--scenario", "partial-gang", *arguments]
    assert main([*asked, "--out", str(tmp_path / "a.html")]) == 1
    assert told in capsys.readouterr().err
