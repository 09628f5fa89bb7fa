# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The page: dashboards one below the other, with all that they need inside of it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from lab.preview import dashboard, monitors, objectives
from lab.preview.markup import HERE, filled
from lab.preview.scene import Scene

ASSETS: Final = HERE.parent.parent / "assets"
#: A dashboard, and what it is looked at with.
Board = tuple[Mapping[str, Any], Scene]
#: Those that stand first; others follow by name.
_FIRST: Final = ("gpu_gangs_overview",)
_GANG: Final = "gang"


def dashboards(assets: Path = ASSETS) -> dict[str, dict[str, Any]]:
    """Return the dashboards of the assets by the name of their file, the overview first."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted((assets / "dashboards").glob("*.json"))}
    return {name: found[name] for name in sorted(found, key=lambda name: name not in _FIRST)}


def alerts(assets: Path = ASSETS) -> tuple[dict[str, Any], ...]:
    """Return the definitions of the monitors of the assets."""
    return tuple(json.loads(path.read_text())["definition"] for path in sorted((assets / "monitors").glob("*.json")))


def slos(assets: Path = ASSETS) -> tuple[dict[str, Any], ...]:
    """Return the SLOs of the assets."""
    return tuple(json.loads(path.read_text()) for path in sorted((assets / "slos").glob("*.json")))


def defaults(definition: Mapping[str, Any]) -> dict[str, str]:
    """Return the values that a dashboard's variables have when it is opened."""
    return {one["name"]: (one.get("defaults") or ["*"])[0] for one in definition.get("template_variables", ())}


def chosen(definition: Mapping[str, Any], scene: Scene) -> Scene:
    """Return a scene in which the dashboard of one gang has its gang: the one that holds most GPUs in vain just now.

    Where none does, it is the one that is longest in its state; where there is no gang, the variable stays as it is.
    """
    if _GANG not in {one["name"] for one in definition.get("template_variables", ())}:
        return scene
    last = scene.timeline.moments[-1]
    for name in ("gang.gpus_idle", "gang.state_seconds"):
        values = last.by(name, _GANG)
        if values:
            return replace(scene, variables={**scene.variables, _GANG: max(values, key=lambda gang: values[gang])})
    return scene


def html(title: str, about: str, shown: Mapping[str, Board], links: Sequence[Mapping[str, str]] = ()) -> str:
    """Return a page of dashboards, each looked at with a scene; below them the monitors and SLOs of the last one.

    Raises as `dashboard.html` does.
    """
    boards = [
        {"name": name, "short": definition["title"], "html": dashboard.html(name, definition, scene)}
        for name, (definition, scene) in shown.items()
    ]
    library = Markup(get_plotlyjs())  # noqa: S704 - as the package has it
    scripts = {"css": _asset("page.css"), "script": _asset("page.js"), "library": library}
    extras = list(_extras([scene for _, scene in shown.values()][-1]))
    return str(filled("page.html", title=title, about=about, links=links, boards=boards, extras=extras, **scripts))


def _extras(scene: Scene) -> Iterator[Mapping[str, str]]:
    if scene.monitors:
        found = monitors.shown(monitors.states(scene.monitors, scene))
        yield {
            "name": "monitors",
            "short": "Monitors",
            "title": "Monitors: which of them call now?",
            "html": found.html,
        }
    if scene.objectives:
        found = objectives.shown(scene.objectives, scene)
        yield {
            "name": "slos",
            "short": "SLOs",
            "title": "SLOs: how far were they kept since the scenario began?",
            "html": found.html,
        }


def index(entries: Sequence[Mapping[str, str]]) -> str:
    """Return a page of links to others, each with its target, its name, and what it is about."""
    return str(filled("index.html", entries=entries, css=_asset("page.css")))


def _asset(name: str) -> Markup:
    return Markup((HERE / "templates" / name).read_text())  # noqa: S704 - a file of our own
