# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Widgets of text: notes, and the list of events."""

import re
from collections.abc import Mapping
from typing import Any, Final

from lab.preview.colours import NOTES, RED, YELLOW
from lab.preview.markup import Shown, filled, markdown
from lab.preview.scene import Definition, Scene, clock

_ALERTS: Final[Mapping[str, str]] = {"error": RED, "warning": YELLOW, "success": "#2a8f47", "info": "#2f7de1"}
_TERM: Final = re.compile(r"(?:(?P<key>[a-z_]+):)?(?P<value>[\w*][\w.*/-]*)|\$(?P<variable>[a-z_.]+)")
_WORDS: Final = ("AND", "OR", "NOT")
_EVENTS: Final = "event_stream"


def note(definition: Definition, _scene: Scene) -> Shown:
    """Show Markdown on the colour of the note."""
    background = NOTES[definition.get("background_color", "white")]
    size = int(definition.get("font_size", "14"))
    align = definition.get("text_align", "left")
    vertical = {"top": "flex-start", "center": "center", "bottom": "flex-end"}[definition.get("vertical_align", "top")]
    style = f"background-color:{background};font-size:{size}px;text-align:{align};justify-content:{vertical}"
    return Shown(filled("note.html", text=markdown(definition["content"])), style=style)


def list_stream(definition: Definition, scene: Scene) -> Shown:
    """Show the events that the query asks for, the newest first. Raises ValueError for other lists than of events."""
    query = definition["requests"][0]["query"]
    if query["data_source"] != _EVENTS:
        msg = f"not a list that the preview knows: {query['data_source']}"
        raise ValueError(msg)
    begin, end = scene.window(definition)
    found = [
        event
        for moment in scene.timeline.moments
        if begin < moment.at <= end
        for event in moment.events
        if matches(event, query.get("query_string", ""), scene.variables)
    ]
    found.sort(key=lambda event: event["timestamp"], reverse=True)
    shown = [
        {
            "at": clock(event["timestamp"]),
            "title": event["msg_title"],
            "text": markdown(event["msg_text"]),
            "colour": _ALERTS[event.get("alert_type", "info")],
        }
        for event in found
    ]
    return Shown(filled("list_stream.html", events=shown), empty=not shown)


def matches(event: Mapping[str, Any], query: str, variables: Mapping[str, str]) -> bool:
    """Tell whether an event is what a query asks for: all of its terms, `key:value`, a word, or a variable.

    A variable without a value of its own, `*`, asks for nothing. Raises ValueError for a query that is not known.
    """
    terms = query.split()
    for term in terms:
        match = _TERM.fullmatch(term)
        if match is None or term in _WORDS:
            msg = f"not a query of events that the preview knows: {query}"
            raise ValueError(msg)
        if match["variable"]:
            value = variables.get(match["variable"], "*")
            if value != "*" and f"{match['variable']}:{value}" not in event.get("tags", ()):
                return False
        elif not _has(event, match["key"], match["value"]):
            return False
    return True


def _has(event: Mapping[str, Any], key: str | None, value: str) -> bool:
    if key is None:
        return value == "*" or value.lower() in f"{event['msg_title']} {event['msg_text']}".lower()
    if key == "source":
        return value == event.get("source_type_name")
    if key == "status":
        return value == event.get("alert_type")
    return f"{key}:{value}" in event.get("tags", ())
