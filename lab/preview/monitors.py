# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The monitors of the assets over the timeline: the widget of their states, and a list of what they told when.

A monitor is judged as `lab.alerting` does, from the beginning of the timeline to the moment of the scene.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from lab.alerting import ALERT, NO_DATA, OK, WARN, Change, Monitor, play
from lab.preview.colours import GREEN, GREY, RED, YELLOW
from lab.preview.markup import Shown, filled
from lab.preview.numbers import number
from lab.preview.scene import Definition, Scene, clock

#: State -> its colour and its place in a list: the worst first.
_STATES: Final[Mapping[str, tuple[str, int]]] = {ALERT: (RED, 0), WARN: (YELLOW, 1), NO_DATA: (GREY, 2), OK: (GREEN, 3)}
_TAG: Final = re.compile(r"tag:\(?\"?(?P<tag>[\w.:/-]+)\"?\)?")


class State(NamedTuple):
    """The state of a monitor: the worst of its groups, and of each group that is not OK the change that led there."""

    name: str
    priority: int | None
    state: str
    groups: tuple[Change, ...]


def states(monitors: Sequence[Definition], scene: Scene) -> list[State]:
    """Return the state of each monitor at the moment of the scene, the worst first; of equals the most urgent."""
    found = [_state(monitor, scene) for monitor in monitors]
    return sorted(found, key=lambda one: (_STATES[one.state][1], one.priority or 5, one.name))


def _state(definition: Definition, scene: Scene) -> State:
    last: dict[tuple[tuple[str, str], ...], Change] = {}
    for change in play(Monitor.of(definition), scene.samples, scene.at):
        last[tuple(change.group.items())] = change
    open_ = sorted((one for one in last.values() if one.state != OK), key=lambda one: (_STATES[one.state][1], one.at))
    worst = open_[0].state if open_ else OK
    return State(definition["name"], definition.get("priority"), worst, tuple(open_))


def manage_status(definition: Definition, scene: Scene) -> Shown:
    """Show the monitors that a query of tags asks for with their states. Raises ValueError for another query."""
    tags = []
    for term in definition["query"].split():
        match = _TAG.fullmatch(term)
        if match is None:
            msg = f"not a query of monitors that the preview knows: {definition['query']}"
            raise ValueError(msg)
        tags.append(match["tag"])
    asked = [one for one in scene.monitors if set(tags) <= set(one.get("tags", ()))]
    return shown(states(asked, scene))


def shown(found: Sequence[State]) -> Shown:
    """Return states as a list, with how many monitors are in each."""
    counts = [
        {"state": state, "colour": colour, "count": sum(one.state == state for one in found)}
        for state, (colour, _) in _STATES.items()
    ]
    rows: list[dict[str, Any]] = []
    for one in found:
        told = one.groups or (None,)
        rows += [
            {
                "state": change.state if change else OK,
                "colour": _STATES[change.state if change else OK][0],
                "priority": f"P{one.priority}" if one.priority else "",
                "name": one.name,
                "group": ", ".join(change.group.values()) if change else "",
                "since": clock(change.at) if change else "",
                "value": str(number(change.value)) if change else "",
            }
            for change in told
        ]
    return Shown(filled("monitors.html", counts=counts, rows=rows), empty=not rows)
