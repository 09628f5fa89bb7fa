# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The files of assets/ are made from the descriptions in this folder: dashboards, monitors and SLOs.

Datadog takes JSON, in which a message is one long line, every widget has a place in numbers, and a scope of five
variables stands in a hundred queries. That is nothing to write or to review by hand. So each asset is described in
YAML: prose as prose, widgets in rows, scopes and lists of tags by a name. `python -m lab.metadata` writes the JSON,
and with --check tells where it is not what the description says. What Datadog reads is the JSON, and the tests hold
the JSON against the rules, so that a mistake here does not pass there.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from lab.assets.alerts import monitor, slo
from lab.assets.widgets import dashboard

HERE = Path(__file__).resolve().parent


def described(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each description of a kind (dashboards, monitors, slos) with its name."""
    for path in sorted((HERE / kind).glob("*.yaml")):
        yield path.stem, yaml.safe_load(path.read_text(encoding="ascii"))


def files(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file of assets/ that is made here, with the text that it should have."""
    for kind, make in (("dashboards", dashboard), ("monitors", monitor), ("slos", slo)):
        for name, description in described(kind):
            text = json.dumps(make(description), indent=2, ensure_ascii=True) + "\n"
            yield root / "assets" / kind / f"{name}.json", text
