# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Every monitor over every scenario: it alerts on its fault, in time and by name, recovers, and is quiet otherwise.

The scenarios are played by the real check on the simulated cluster. What the monitors did is kept in
lab/assets/outcomes.yaml, of which docs/monitors.md has its table; here the scenarios are played again and held against
it, and it is held against what the descriptions of the monitors promise.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import rules
from lab.alerting import ALERT, NO_DATA, OK, Monitor, play
from lab.assets import described
from lab.assets.alerts import monitor
from lab.samples import Samples
from lab.simulation.scenario import known, load
from lab.timeline import Moment, Point, Timeline

MONITORS = dict(described("monitors"))
SCENARIOS = known()
RECORDED = rules.recorded()
FIRES = [(name, scenario) for name, one in MONITORS.items() for scenario in one.get("fires", {})]
HEALTHY = "healthy-day"
CLUSTER = "kube_cluster_name:c"


def entries(name: str, scenario: str) -> list[rules.Outcome]:
    """Return what a monitor did in a scenario, as it is kept."""
    return RECORDED[scenario].get(name, [])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_is_kept_is_what_comes_out(scenario: str, played: Any) -> None:
    """The monitors do what lab/assets/outcomes.yaml says, and the file is written as it would be now."""
    assert rules.of_scenario(scenario, played(scenario)) == RECORDED[scenario], "run: python -m lab.rules"


def test_all_scenarios_are_kept() -> None:
    """And no other; the text of the file is the one that is written."""
    assert sorted(RECORDED) == SCENARIOS
    assert rules.text(RECORDED) == rules.FILE.read_text(encoding="ascii")


@pytest.mark.parametrize(("name", "scenario"), FIRES)
def test_it_fires_on_its_fault(name: str, scenario: str) -> None:
    """Within the minutes that it promises, not before, and on the group that is meant."""
    promise = MONITORS[name]["fires"][scenario]
    found = [one for one in entries(name, scenario) if promise["group"].items() <= one["group"].items()]
    assert found, f"quiet in {scenario}"
    assert {one["state"] for one in found} == {ALERT}
    assert 0 < min(one["after"] for one in found) <= promise["within"]
    assert load(scenario).fault_at is not None


@pytest.mark.parametrize(("name", "scenario"), FIRES)
def test_it_recovers(name: str, scenario: str) -> None:
    """When the fault is mended every group is OK again, in the scenario's time and what comes after it."""
    promise = MONITORS[name]["fires"][scenario]
    over = ["recovered" in one for one in entries(name, scenario)]
    assert set(over) == {"stays" not in promise}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_it_is_quiet_on_other_faults(scenario: str) -> None:
    """Only monitors that are for the fault, or that say why it concerns them, warn or alert in its scenario."""
    expected = {name for name, one in MONITORS.items() if scenario in {*one.get("fires", {}), *one.get("also", {})}}
    assert set(RECORDED[scenario]) == expected
    for name, one in MONITORS.items():
        assert not one.get("fires", {}).keys() & one.get("also", {}).keys(), name


def test_a_healthy_day_is_quiet() -> None:
    """Nothing warns, alerts or lacks data."""
    assert RECORDED[HEALTHY] == {}


def test_a_promise_is_about_a_scenario() -> None:
    """No description speaks of a scenario that is not there."""
    for name, one in MONITORS.items():
        assert {*one.get("fires", {}), *one.get("also", {})} <= set(SCENARIOS), name


def test_a_check_that_stops_is_told() -> None:
    """All sources were read, and then nothing comes: each group has no data once the window of ten minutes is empty."""
    up = [Point("source.up", "gauge", 1.0, (f"api_source:{name}", CLUSTER, "reason:ok")) for name in ("nodes", "pods")]
    moments = [Moment(60.0 * number, tuple(up)) for number in range(1, 21)]
    last = [Moment(60.0 * number, ()) for number in range(21, 41)]
    samples = Samples(Timeline("t", 60.0, moments + last))
    found = list(play(Monitor.of(monitor(MONITORS["check_blind"])["definition"]), samples))
    assert [(round(change.at / 60), change.state) for change in found] == [
        (2, OK),
        (2, OK),
        (30, NO_DATA),
        (30, NO_DATA),
    ]


def test_every_monitor_is_tried() -> None:
    """Each fires on a scenario."""
    assert set(MONITORS) == {name for name, _ in FIRES}


# The rules themselves.


def test_a_scenario_goes_on_as_it_ended() -> None:
    """Its gauges stay, and nothing more is counted."""
    points = (Point("gangs", "gauge", 3.0, ()), Point("gpus.idle_seconds", "count", 9.0, ()))
    longer = rules.extended(Timeline("t", 15.0, [Moment(15.0, points)]), 60)
    assert [moment.at for moment in longer.moments] == [15, 30, 45, 60, 75]
    assert longer.moments[-1].points == points[:1]


def test_the_text_can_be_read_again() -> None:
    """Also where nothing happened."""
    found: dict[str, Any] = {"a": {}, "b": {"m": [{"group": {"q": "x"}, "state": ALERT, "after": 3, "recovered": 9}]}}
    assert yaml.safe_load(rules.text(found)) == found
    assert json.dumps(found["b"]["m"][0]) in rules.text(found)


def test_an_outcome_has_the_worst_state(tmp_path: Path) -> None:
    """A warning that becomes an alert is an alert, from when it was one; what alerts again has not recovered."""
    values = [0, 0, 60, 950, 960, 0, 0, 0, 0, 0, 0, 0, 970, 980]
    tags = (CLUSTER, "gang:a", "gang_engine:kueue", "gang_state:rejected", "kube_namespace:n", "kueue_cluster_queue:q")
    moments = [
        Moment(60.0 * number, (Point("gang.state_seconds", "gauge", float(value), tags),))
        for number, value in enumerate(values, 1)
    ]
    definition = monitor(MONITORS["gang_cannot_assemble"])["definition"]
    samples = Samples(Timeline("t", 60.0, moments))
    (one,) = rules.outcomes(definition, samples, fault=120.0)
    assert one == {"group": one["group"], "state": ALERT, "after": 2}
    (once,) = rules.outcomes(definition, Samples(Timeline("t", 60.0, moments[:12])), fault=120.0)
    # The window of five minutes holds 960 until minute 9.
    assert (once["after"], once["recovered"]) == (2, 8)
