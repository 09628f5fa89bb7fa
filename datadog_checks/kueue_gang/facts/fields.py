# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Typed access to decoded API JSON.

The API server sends well-formed objects nearly always, and an aggregated or hand-edited one now and then does not. Each
helper here returns what a field holds, the neutral value where it is absent or null (as Kubernetes treats both alike),
and raises `BadObjectError` where it holds something of another type. Times become seconds since the epoch in UTC.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from sys import intern
from typing import Any

Json = dict[str, Any]

#: Longest text of a condition that is kept. The longest scheduler text that matters is far shorter; an object with a
#: text of megabytes must not cost megabytes of memory.
MAX_TEXT = 4096
#: What stands in place of the middle of a longer one: of many reasons the last may be the one that counts.
CUT = " [...] "

_NO_MAPPING: Json = {}
_NO_ITEMS: list[Any] = []
STATUSES = {"True": True, "False": False, "Unknown": None}


class BadObjectError(ValueError):
    """An object that cannot be read; the text says which field and why, and never quotes more than its type."""


def mapping(obj: Json, key: str) -> Json:
    """Return the mapping at `key`, empty where absent or null."""
    value = obj.get(key)
    if value is None:
        return _NO_MAPPING
    if not isinstance(value, dict):
        msg = f"{key} is {type(value).__name__}, not a mapping"
        raise BadObjectError(msg)
    return value


def items(obj: Json, key: str) -> list[Json]:
    """Return the list of mappings at `key`, empty where absent or null."""
    value = obj.get(key)
    if value is None:
        return _NO_ITEMS
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        msg = f"{key} is not a list of mappings"
        raise BadObjectError(msg)
    return value


def text(obj: Json, key: str) -> str:
    """Return the string at `key`, interned (names repeat in thousands of objects); empty where absent or null."""
    value = obj.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        msg = f"{key} is {type(value).__name__}, not a string"
        raise BadObjectError(msg)
    return intern(value)


def count(obj: Json, key: str) -> int | None:
    """Return the non-negative whole number at `key`, None where absent or null."""
    value = obj.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        msg = f"{key} is {type(value).__name__}, not a whole number"
        raise BadObjectError(msg)
    if not 0 <= value < 2**31:
        msg = f"{key} is out of range"
        raise BadObjectError(msg)
    return value


def flag(obj: Json, key: str, *, default: bool = False) -> bool:
    """Return the boolean at `key`, `default` where absent or null."""
    value = obj.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        msg = f"{key} is {type(value).__name__}, not a boolean"
        raise BadObjectError(msg)
    return value


def seconds(obj: Json, key: str, default: float) -> float:
    """Return the whole, non-negative number of seconds at `key`, `default` where absent or null."""
    value = obj.get(key)
    if value is None:
        return default
    # Larger than an int32: terminationGracePeriodSeconds and its like are int64.
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        msg = f"{key} is no number of seconds"
        raise BadObjectError(msg)
    return float(value)


def wanted_labels(labels: Json, wanted: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the labels that the user wants as tags; one that is no text, or an empty one, is none."""
    return tuple((key, value) for key in wanted if isinstance(value := labels.get(key), str) and value)


def moment(obj: Json, key: str) -> float | None:
    """Return the RFC 3339 time at `key` in seconds since the epoch, None where absent or null."""
    value = obj.get(key)
    if value is None or value == "":
        return None
    try:
        parsed = datetime.fromisoformat(value)
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError) as error:
        msg = f"{key} is not a time"
        raise BadObjectError(msg) from error


class Times:
    """Reads times, and remembers them: the pods of a gang are created, bound and ready within the same few seconds.

    A list has the pods of a gang side by side, so a short memory is as good as one for the whole list.
    """

    def __init__(self, most: int = 2_000) -> None:
        """Remember at most so many."""
        self._known: dict[str, float | None] = {}
        self._most = most

    def read(self, obj: Json, key: str) -> float | None:
        """Return what `moment` returns."""
        value = obj.get(key)
        if value is None:
            return None
        try:
            return self._known[value]
        except KeyError:
            if len(self._known) >= self._most:
                self._known.clear()
            found = self._known[value] = moment(obj, key)
            return found


def identity(obj: Json) -> tuple[Json, str, str]:
    """Return (metadata, namespace, name) of an object; the namespace is empty for cluster-scoped ones.

    Raises:
        BadObjectError: the object has no metadata or no name.

    """
    metadata = mapping(obj, "metadata")
    name = text(metadata, "name")
    if not name:
        msg = "metadata.name is missing"
        raise BadObjectError(msg)
    return metadata, text(metadata, "namespace"), name


def strings(obj: Json, key: str) -> dict[str, str]:
    """Return the string-to-string mapping at `key` (labels, annotations, selectors)."""
    found = mapping(obj, key)
    for value in found.values():
        if not isinstance(value, str):
            msg = f"{key} has a value that is {type(value).__name__}, not a string"
            raise BadObjectError(msg)
    return found


@dataclass(frozen=True, slots=True)
class Condition:
    """One status condition: `status` True, False or None for Unknown; `since` is its last transition."""

    status: bool | None
    reason: str
    message: str
    since: float | None


def condition(obj: Json) -> Condition:
    """Read one condition object."""
    status = obj.get("status")
    if status not in STATUSES:
        msg = "condition status is not True, False or Unknown"
        raise BadObjectError(msg)
    return Condition(
        status=STATUSES[status],
        reason=text(obj, "reason"),
        message=intern(_kept(text(obj, "message"))),
        since=moment(obj, "lastTransitionTime"),
    )


def _kept(message: str) -> str:
    """Return a text, or the beginning and the end of one that is too long."""
    if len(message) <= MAX_TEXT:
        return message
    half = (MAX_TEXT - len(CUT)) // 2
    return f"{message[:half]}{CUT}{message[-half:]}"


def conditions(status: Json, wanted: frozenset[str]) -> dict[str, Condition]:
    """Read the conditions of the wanted types, keyed by type."""
    return {kind: condition(item) for item in items(status, "conditions") if (kind := item.get("type")) in wanted}


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner reference."""

    kind: str
    name: str
    uid: str


def owners(metadata: Json) -> list[tuple[Owner, bool]]:
    """Read the owner references with their `controller` flag."""
    return [
        (Owner(text(ref, "kind"), text(ref, "name"), text(ref, "uid")), flag(ref, "controller"))
        for ref in items(metadata, "ownerReferences")
    ]


def controller(metadata: Json) -> Owner | None:
    """Return the controlling owner, if any."""
    return next((owner for owner, controls in owners(metadata) if controls), None)
