# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Which scenario is shown, and when in it: the story is played through the real check, up to a moment."""

from collections.abc import Mapping
from typing import Final

from lab.play import play
from lab.preview.page import Board, alerts, chosen, dashboards, defaults, slos
from lab.preview.scene import SPANS, Scene
from lab.simulation import scenario
from lab.timeline import Timeline

#: The scenario that is shown unless another one is asked for.
DEFAULT: Final = "partial-gang"
#: So long after its fault a scenario is looked at, and an hour after its start at least, where it lasts that long
#: (seconds): what is new is seen, and the time before it, too.
_AFTER: Final = 1800.0
_LEAST: Final = 3600.0


def names() -> list[str]:
    """Return the names of all scenarios."""
    return scenario.known()


def about(name: str) -> str:
    """Return what a scenario is about. Raises ScenarioError (a ValueError) where there is none of that name."""
    return " ".join(scenario.load(name).about.split())


def moment(name: str) -> float:
    """Return when a scenario is looked at, in seconds after its start. Raises ScenarioError."""
    story = scenario.load(name)
    return story.lasts if story.fault_at is None else min(story.lasts, max(story.fault_at + _AFTER, _LEAST))


def told(name: str, at: float | None = None) -> Timeline:
    """Play a scenario up to a moment in seconds after its start. Raises ScenarioError."""
    return play(name, until=moment(name) if at is None else at)


def boards(timeline: Timeline, span: float = SPANS["1h"]) -> Mapping[str, Board]:
    """Return all dashboards of the assets as they are at the end of a timeline, with values for their variables."""
    at = timeline.moments[-1].at
    found = {}
    for name, definition in dashboards().items():
        scene = Scene(timeline, at, span, defaults(definition), alerts(), slos())
        found[name] = definition, chosen(definition, scene)
    return found
