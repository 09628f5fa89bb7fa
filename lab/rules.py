# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What each monitor does in each scenario: the scenarios are played, and the monitors are played over what was sent.

    python -m lab.rules [SCENARIO ...]

writes lab/assets/outcomes.yaml, of which the table in docs/monitors.md is made. That takes some ten seconds a scenario;
tests/test_rules.py plays them again and holds the file against what comes out, and against what the descriptions of
the monitors promise.

After its end a scenario goes on as it ended, so that what looks back for an hour can recover.
"""

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from lab import alerting
from lab.alerting import Monitor
from lab.assets import HERE, described
from lab.assets.alerts import monitor
from lab.play import play
from lab.samples import Samples
from lab.simulation.scenario import known, load
from lab.timeline import Moment, Timeline

FILE: Final = HERE / "outcomes.yaml"
#: So long a scenario goes on as it ended (seconds): the longest window, and what recovers after it.
AFTER: Final = 75 * 60
_BAD: Final = (alerting.WARN, alerting.NO_DATA, alerting.ALERT)

#: What one group of a monitor did: the worst state, when it came (minutes after the fault), when it was over.
Outcome = dict[str, Any]


def extended(timeline: Timeline, seconds: float) -> Timeline:
    """Return a timeline that goes on as it ended: with the gauges of its last moment; nothing more is counted."""
    last = timeline.moments[-1]
    points = tuple(point for point in last.points if point.type != "count")
    more = [
        Moment(last.at + number * timeline.interval, points)
        for number in range(1, int(seconds / timeline.interval) + 1)
    ]
    return Timeline(timeline.name, timeline.interval, [*timeline.moments, *more])


def outcomes(definition: Mapping[str, Any], samples: Samples, fault: float) -> list[Outcome]:
    """Return what a monitor does: an entry for each group that did not stay OK. `fault`: when the fault begins."""
    found: dict[tuple[tuple[str, str], ...], Outcome] = {}
    for change in alerting.play(Monitor.of(definition), samples):
        key = tuple(change.group.items())
        minutes = math.ceil((change.at - fault) / 60)
        if change.state in _BAD:
            one = found.setdefault(key, {"group": change.group, "state": change.state, "after": minutes})
            one.pop("recovered", None)
            if _BAD.index(change.state) > _BAD.index(one["state"]):
                one.update(state=change.state, after=minutes)
        elif key in found:
            found[key]["recovered"] = minutes
    return [found[key] for key in sorted(found)]


def of_scenario(name: str, timeline: Timeline) -> dict[str, list[Outcome]]:
    """Return what the monitors do in a scenario that was played; those that stay OK are left out."""
    samples = Samples(extended(timeline, AFTER))
    fault = timeline.start + (load(name).fault_at or 0.0)
    found = {
        stem: outcomes(monitor(description)["definition"], samples, fault)
        for stem, description in described("monitors")
    }
    return {stem: entries for stem, entries in found.items() if entries}


def recorded() -> dict[str, dict[str, list[Outcome]]]:
    """Return what the file says: scenario -> monitor -> groups."""
    found: dict[str, dict[str, list[Outcome]]] = yaml.safe_load(FILE.read_text(encoding="ascii"))
    return found


def text(found: Mapping[str, Mapping[str, Iterable[Outcome]]]) -> str:
    """Return the text of the file."""
    lines = ["# What the monitors do in the scenarios; minutes after the fault. Made by python -m lab.rules."]
    for scenario in sorted(found):
        lines.append(f"{scenario}:" if found[scenario] else f"{scenario}: {{}}")
        for stem, entries in found[scenario].items():
            lines += [f"  {stem}:", *(f"    - {json.dumps(entry)}" for entry in entries)]
    return "\n".join(lines) + "\n"


def table() -> list[str]:
    """Return the lines of the table of the docs: a row a monitor, a column a scenario."""
    found = recorded()
    names = sorted(found)
    rows = [f"| monitor | {' | '.join(names)} |", f"|{' --- |' * (len(names) + 1)}"]
    for stem, description in described("monitors"):
        cells = [_cell(description, name, found[name].get(stem, [])) for name in names]
        rows.append(f"| {description['title']} | {' | '.join(cells)} |")
    return rows


def _cell(description: Mapping[str, Any], scenario: str, entries: list[Outcome]) -> str:
    """Return when it alerts first; in bold where it is the fault that the monitor is for."""
    if not entries:
        return ""
    worst = max(entries, key=lambda entry: (_BAD.index(entry["state"]), -entry["after"]))
    verb = {alerting.ALERT: "", alerting.WARN: "warns ", alerting.NO_DATA: "no data "}[worst["state"]]
    when = "before" if worst["after"] < 0 else f"{verb}{worst['after']} min"
    return f"**{when}**" if scenario in description.get("fires", {}) else when


def reasons() -> Iterator[str]:
    """Yield a line for each cell of the table that is not in bold, with why it is right."""
    for _, description in described("monitors"):
        for scenario, reason in description.get("also", {}).items():
            yield f"* {description['title']}, {scenario}: {' '.join(reason.split())}"


def main(names: list[str]) -> int:
    """Play scenarios and write what the monitors did."""
    found = recorded() if names and FILE.exists() else {}
    for name in names or known():
        found[name] = of_scenario(name, play(name))
        print(f"{name}: {', '.join(found[name]) or 'quiet'}")
    Path(FILE).write_text(text(found), encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
