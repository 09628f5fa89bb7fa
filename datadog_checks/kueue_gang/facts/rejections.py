# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Rejections of gangs, from the Events of their pods.

A scheduler writes an Event `FailedScheduling` for each attempt at a pod that failed. The next attempt that ends alike
is counted in the same Event, in `series`; the pod is not written then, so Events are all that a repeated rejection
leaves. A series is not written each time either: the second attempt is, and later ones every half hour or when the
series ends.

Of an Event is kept which pod it is of, why the gang was rejected, and when last. Most Events say that there is no room,
and are nothing here.
"""

from dataclasses import dataclass

from datadog_checks.kueue_gang.facts.fields import MAX_TEXT, Json, identity, mapping, moment, text
from datadog_checks.kueue_gang.facts.texts import rejection

EVENTS = "events"
REASON = "FailedScheduling"


@dataclass(frozen=True, slots=True)
class Rejection:
    """An Event `name` that says that the gang of a pod was rejected at a time, seconds since the epoch."""

    namespace: str
    name: str
    pod: str
    reason: str
    at: float


def rejection_event(obj: Json) -> Rejection | None:
    """Read an Event; None for one that is of no pod, or does not say that a gang was rejected."""
    metadata, namespace, name = identity(obj)
    regarding = mapping(obj, "regarding")
    if obj.get("reason") != REASON or regarding.get("kind") != "Pod":
        return None
    note = obj.get("note")
    reason = rejection(note[:MAX_TEXT]) if isinstance(note, str) else None
    pod = text(regarding, "name")
    times = (
        moment(mapping(obj, "series"), "lastObservedTime"),
        moment(obj, "eventTime"),
        # Written through the core API, or by a server that converts what was.
        moment(obj, "deprecatedLastTimestamp"),
        moment(metadata, "creationTimestamp"),
    )
    at = next((time for time in times if time is not None), None)
    if reason is None or at is None or not pod:
        return None
    return Rejection(namespace, name, pod, reason, at)
