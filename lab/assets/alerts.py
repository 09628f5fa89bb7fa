# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""From the description of a monitor, or of an SLO, to the JSON that Datadog takes.

A monitor's file has the form that Datadog's own integrations have, and its part `definition` is what the API takes. Its
message is made of what happened, what it holds, and the first things to look at, in this order and for each state.
"""

from collections.abc import Mapping
from textwrap import wrap
from typing import Any, Final

from lab.assets.widgets import known

Json = dict[str, Any]

#: When the files were made, and last changed in what they say.
_CREATED: Final = "2026-11-30"
_CHANGED: Final = "2026-11-30"
_AWAY: Final = "group_retention_duration"
_WIDTH: Final = 118
_TAG: Final = "integration:kueue_gang"
#: Part of a message -> the block in which Datadog shows it.
_BLOCKS: Final = {
    "alert": "is_alert",
    "warning": "is_warning",
    "no_data": "is_no_data",
    "recovery": "is_recovery",
}
#: What the description says for the docs and the tests, beside what becomes the monitor.
_FOR_US: Final = ("why", "fires", "also")


def monitor(description: Mapping[str, Any]) -> Json:
    """Return the file of a monitor. Raises ValueError where its description is wrong."""
    known(
        description, "title", "description", "notify", "priority", "name", "query", "thresholds", "missing",
        "options", "message", *_FOR_US,
    )  # fmt: skip
    tags = [_TAG, f"kueue_gang:{'notify' if description['notify'] else 'recommended'}"]
    return {
        "version": 2,
        "created_at": _CREATED,
        "last_updated_at": _CHANGED,
        "title": description["title"],
        "description": " ".join(description["description"].split()),
        "tags": tags,
        "definition": {
            "name": description["name"],
            "type": "query alert",
            "query": " ".join(description["query"].split()),
            "message": _message(description["message"]),
            "tags": tags,
            "options": {
                "thresholds": description["thresholds"],
                "on_missing_data": description["missing"],
                "require_full_window": False,
                "new_group_delay": 60,
                "notify_audit": False,
                "include_tags": True,
                "silenced": {},
                **description.get("options", {}),
            },
            "priority": description["priority"],
        },
    }


def _message(parts: Mapping[str, Any]) -> str:
    known(parts, *_BLOCKS, "holds", "look")
    told = [(block, _joined(parts[name])) for name, block in _BLOCKS.items() if name in parts]
    texts = [f"{{{{#{block}}}}}\n{text}\n{{{{/{block}}}}}" for block, text in told]
    steps = [f"{number}. {_joined(text)}" for number, text in enumerate(parts["look"], 1)]
    holds = [f"What it holds: {_joined(parts['holds'])}"] if "holds" in parts else []
    return "\n\n".join(("\n".join(texts), *holds, "Look at first:", "\n".join(steps)))


def _joined(text: str) -> str:
    """Return a text with each paragraph on one line."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


def slo(description: Mapping[str, Any]) -> Json:
    """Return an SLO as the API takes it. Raises ValueError where its description is wrong."""
    known(description, "name", "description", "type", "query", "sli_specification", "thresholds", "tags")
    made = {"name": description["name"], "description": _joined(description["description"])}
    made |= {key: description[key] for key in ("type", "query", "sli_specification") if key in description}
    return {**made, "thresholds": description["thresholds"], "tags": description.get("tags", [_TAG])}


def explained(description: Mapping[str, Any]) -> list[str]:
    """Return the section of the docs about a monitor: what it asks, and why it is as it is."""
    made = monitor(description)["definition"]
    options = made["options"]
    thresholds = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in options["thresholds"].items())
    full = ", only where the window is full" if options["require_full_window"] else ""
    away = f", a group that is away is forgotten after {options[_AWAY]}" if _AWAY in options else ""
    by = f", one notification for each {', '.join(options['notify_by'])}" if "notify_by" in options else ""
    why = {name: _joined(text) for name, text in description["why"].items()}
    promises = [
        f"in {name} it alerts within {promise['within']} minutes{_stays(promise)}"
        for name, promise in description.get("fires", {}).items()
    ]
    points = [
        f"**Query.** {why['query']}",
        f"**Thresholds**: {thresholds}. {why['thresholds']}",
        f"**Window**{full}. {why['window']}",
        f"**Missing data**: `{options['on_missing_data']}`{away}{by}. {why['missing']}",
        *([f"**Promise**: {'; '.join(promises)}."] if promises else ()),
    ]
    return [
        f"### {description['title']}",
        "",
        *_wrapped(f"*{made['name']}* (priority {made['priority']}). {_joined(description['description'])}"),
        "",
        "```text",
        made["query"],
        "```",
        "",
        *(line for point in points for line in _wrapped(f"* {point}", "  ")),
        "",
    ]


def _wrapped(text: str, indent: str = "") -> list[str]:
    return wrap(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _stays(promise: Mapping[str, Any]) -> str:
    return f", and stays ({promise['stays']})" if "stays" in promise else ", and recovers"
