# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The page: dashboards one below the other, with all that they need inside of it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from lab.preview import dashboard
from lab.preview.markup import HERE, filled
from lab.preview.scene import Scene

DASHBOARDS: Final = HERE.parent.parent / "assets" / "dashboards"
#: A dashboard, and what it is looked at with.
View = tuple[Mapping[str, Any], Scene]
#: Those that stand first; others follow by name.
_FIRST: Final = ("gpu_gangs_overview",)


def dashboards(folder: Path = DASHBOARDS) -> dict[str, dict[str, Any]]:
    """Return the dashboards of the assets by the name of their file, the overview first."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    return {name: found[name] for name in sorted(found, key=lambda name: name not in _FIRST)}


def defaults(definition: Mapping[str, Any]) -> dict[str, str]:
    """Return the values that a dashboard's variables have when it is opened."""
    return {one["name"]: (one.get("defaults") or ["*"])[0] for one in definition.get("template_variables", ())}


def html(title: str, about: str, shown: Mapping[str, View], links: Sequence[Mapping[str, str]] = ()) -> str:
    """Return a page of dashboards, each looked at with a scene. Raises as `dashboard.html` does."""
    boards = [dashboard.html(name, definition, scene) for name, (definition, scene) in shown.items()]
    library = Markup(get_plotlyjs())  # noqa: S704 - as the package has it
    assets = {"css": _asset("page.css"), "script": _asset("page.js"), "library": library}
    return str(filled("page.html", title=title, about=about, links=links, dashboards=boards, **assets))


def _asset(name: str) -> Markup:
    return Markup((HERE / "templates" / name).read_text())  # noqa: S704 - a file of our own
