# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""From what is to be told to Datadog events.

An event says what happened, since when, what it holds, which member the others wait for, and where to look. Its time is
that of the API, and events of one gang share an aggregation key, so that a check that was moved adds to the same
thread. Names of pods and nodes belong here: events are read by people, and no series is made of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from datadog_checks.kueue_gang.derive.closeup import CloseUp, Member, Seen
from datadog_checks.kueue_gang.derive.members import PLACED, UP
from datadog_checks.kueue_gang.derive.picture import Note, Picture
from datadog_checks.kueue_gang.sampling import queue_tags, tag

#: Events of one run; of more only the number is told.
MAX_EVENTS = 50
_MINUTE, _HOUR = 60, 3600

#: Title and alert type by kind.
_TITLES: Mapping[str, tuple[str, str]] = {
    "incomplete": ("Gang {name} holds GPUs and is not complete", "error"),
    "unplaced": ("Gang {name} is admitted and not placed", "warning"),
    "degraded": ("Gang {name} lost members", "error"),
    "assembled": ("Gang {name} runs", "success"),
    "evicted": ("Gang {name} was evicted while half of it was placed", "warning"),
    "deadlocked": ("Gang {name} is deadlocked with another gang", "error"),
    "unlabelled": ("Node {name} lost a topology label", "warning"),
    "source_down": ("Source {name} cannot be read", "warning"),
    "source_back": ("Source {name} is read again", "success"),
}


@dataclass(frozen=True, slots=True)
class EventOptions:
    """The user's tags, the name of the cluster ('' where it is not known), and the Datadog site for links."""

    tags: tuple[str, ...] = ()
    cluster: str = ""
    site: str = "datadoghq.com"


def events(
    notes: Sequence[Note], picture: Picture | None, seen: Callable[[], Seen | None], options: EventOptions, now: float
) -> Iterator[dict[str, Any]]:
    """Yield events as the Agent takes them; `seen` gives the cluster from near, and is asked only if it is needed."""
    near = seen() if any(note.gang for note in notes[:MAX_EVENTS]) else None
    views = {view.key: view for view in picture.views} if picture and near else {}
    for note in notes[:MAX_EVENTS]:
        view = views.get(note.gang) if note.gang else None
        found = near.close_up(view, most=1) if near and view and view.key in near.gangs else None
        yield _event(note, found, options, now)
    if len(notes) > MAX_EVENTS:
        left = Note("more", f"{len(notes) - MAX_EVENTS} more", now)
        yield {
            **_base(left, options, ()),
            "msg_title": f"{len(notes) - MAX_EVENTS} more events of gangs were left out",
            "msg_text": "So much happened at once that not all of it is told. The dashboard has all of it in numbers.",
            "alert_type": "info",
        }


def _event(note: Note, found: CloseUp | None, options: EventOptions, now: float) -> dict[str, Any]:
    title, alert = _TITLES[note.kind]
    tags = queue_tags(found.view.queue) if found else ()
    gang = (tag("gang", note.name.partition("/")[2]),) if note.gang else ()
    text = "\n".join(_lines(note, found, options, now))
    return {
        **_base(note, options, (*gang, *tags)),
        "msg_title": title.format(name=note.name),
        "msg_text": f"%%% \n{text}\n %%%",
        "alert_type": alert,
    }


def _base(note: Note, options: EventOptions, tags: Sequence[str]) -> dict[str, Any]:
    return {
        "event_type": f"kueue_gang.{note.kind}",
        "source_type_name": "kueue_gang",
        "timestamp": int(note.at),
        "aggregation_key": "/".join(part for part in (options.cluster, note.name) if part),
        "tags": [*options.tags, *tags],
    }


def _lines(note: Note, found: CloseUp | None, options: EventOptions, now: float) -> Iterator[str]:
    if note.kind == "assembled":
        yield f"All members that it needs are Ready, {_age(float(note.detail))} after it began."
    if note.kind == "evicted":
        yield f"Reason: {note.detail}. Some of its members held GPUs, and it could not work with them."
    if note.kind == "unlabelled":
        yield f"It lacks {note.detail} now. Kueue places no pod of a topology on a node that lacks one of its labels."
    if note.kind == "source_down":
        yield f"Reason: {note.detail}. What depends on it is told by what was read before, later not at all."
    if found is None:
        return
    view = found.view
    up = sum(view.classes.get(name, 0) for name in UP)
    held = sum(view.allocated.values())
    placed = sum(view.classes.get(name, 0) for name in PLACED)
    if note.kind != "assembled":
        since = "" if view.since is None else f" for {_age(now - view.since)}"
        yield f"It is {view.state}{since}: {up} of {view.required} required members are up, and it holds {held} GPUs."
    if found.laggard and note.kind not in {"assembled", "evicted"}:
        yield _laggard(found.laggard, placed, held, now)
    if found.blocker:
        yield f"Blocked by: {found.blocker}."
    yield f"Look at `kueue-gang status {note.name}`, and at [its pods]({_link(view.queue.namespace, options)})."


def _laggard(member: Member, placed: int, held: int, now: float) -> str:
    where = f" on {member.node}" if member.node else ""
    since = f" for {_age(now - member.since)}" if member.since is not None else ""
    why = f" ({member.why})" if member.why else ""
    others = placed - (member.state in PLACED)
    held -= sum(amount for _, amount in member.gpus) if member.state in PLACED else 0
    waits = f"; {others} other member{'s hold' if others > 1 else ' holds'} {held} GPUs" if others > 0 and held else ""
    return f"{member.name}{where} is {member.state}{since}{why}{waits}."


def _link(namespace: str, options: EventOptions) -> str:
    query = f"kube_namespace:{namespace}" + (f" kube_cluster_name:{options.cluster}" if options.cluster else "")
    return f"https://app.{options.site}/orchestration/explorer/pod?query={quote(query)}"


def _age(seconds: float) -> str:
    whole = int(max(0.0, seconds))
    if whole < 2 * _MINUTE:
        return f"{whole} s"
    return f"{whole // _MINUTE} min" if whole < 2 * _HOUR else f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
