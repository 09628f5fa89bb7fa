# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Which scenario is shown, and when in it: the story is played through the real check, up to a moment.

Beside the scenarios of lab/scenarios there is the fleet: several clusters at once, as one account sees them, each with
a fault of its own. Together they have something to show in every widget whose metrics are this check's, which no single
cluster has. One of them is told in showcase.yaml beside this module: what needs an option of the check is there.
"""

from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from os import cpu_count
from typing import Final

from lab.play import play
from lab.preview.markup import HERE
from lab.preview.page import Board, alerts, chosen, dashboards, defaults, slos
from lab.preview.scene import SPANS, Scene
from lab.simulation import scenario
from lab.simulation.scenario import Scenario
from lab.timeline import Timeline, together

#: The fleet, and its clusters.
FLEET: Final = "fleet"
SHOWCASE: Final = "showcase"
CLUSTERS: Final = (SHOWCASE, "partial-gang", "permit-starvation", "requeue-storm", "missing-labels")
_ABOUT: Final = (
    "five clusters at once, each with a fault of its own: half a gang, Permit, requeues, labels, a lost node"
)
#: So often the check runs on each of them (seconds), and then they are looked at (seconds after the start): no fault is
#: mended yet, and the gang that is requeued holds GPUs just then.
_INTERVAL: Final = 30.0
_FLEET_AT: Final = 3240.0
#: The same for scenarios whose fault is best seen at another time than `_AFTER` says.
_AT: Final[Mapping[str, float]] = {"check-blind": 2940.0, "requeue-storm": _FLEET_AT, "waits-for-hours": 15300.0}
#: So long after its fault a scenario is looked at, and not before so long after its start, where it lasts that long
#: (seconds): what is new is seen, and the time before it, too.
_AFTER: Final = 1800.0
_LEAST: Final = 3600.0


def names() -> list[str]:
    """Return the names of all scenarios, the fleet first."""
    return [FLEET, *scenario.known()]


def about(name: str) -> str:
    """Return what a scenario is about. Raises ScenarioError (a ValueError) where there is none of that name."""
    return _ABOUT if name == FLEET else " ".join(story(name).about.split())


def story(name: str) -> Scenario:
    """Return a scenario, or the cluster of the fleet that is told here. Raises ScenarioError."""
    if name == SHOWCASE:
        return scenario.parse((HERE / f"{SHOWCASE}.yaml").read_text(), SHOWCASE)
    return scenario.load(name)


def moment(name: str) -> float:
    """Return when a scenario is looked at, in seconds after its start. Raises ScenarioError."""
    if name == FLEET:
        return _FLEET_AT
    found = story(name)
    if found.fault_at is None:
        return found.lasts
    return _AT.get(name, min(found.lasts, max(found.fault_at + _AFTER, _LEAST)))


def told(name: str, at: float | None = None, *, interval: float | None = None) -> Timeline:
    """Play a scenario up to a moment in seconds after its start.

    Raises ScenarioError where there is none of that name, and LookupError for a moment before the first run.
    """
    until = moment(name) if at is None else at
    if name == FLEET:
        one = partial(_played, until=until, interval=interval or _INTERVAL)
        # Each in a process of its own: the clocks of the check are replaced while a scenario is played.
        with ProcessPoolExecutor(cpu_count(), mp_context=get_context("spawn")) as pool:
            timeline = together(FLEET, list(pool.map(one, CLUSTERS)))
    else:
        timeline = _played(name, until=until, interval=interval)
    if not timeline.moments:
        msg = f"{name} has no moment within its first {until:g} s"
        raise LookupError(msg)
    return timeline


def _played(name: str, *, until: float, interval: float | None) -> Timeline:
    return play(story(name), until=until, interval=interval)


def boards(timeline: Timeline, span: float = SPANS["1h"]) -> Mapping[str, Board]:
    """Return all dashboards of the assets as they are at the end of a timeline, with values for their variables."""
    at = timeline.moments[-1].at
    found = {}
    for name, definition in dashboards().items():
        scene = Scene(timeline, at, span, defaults(definition), alerts(), slos())
        found[name] = definition, chosen(definition, scene)
    return found
