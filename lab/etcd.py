# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Objects with versions, as the store behind an API server keeps them.

One counter numbers every write of every kind of object; an object carries the number of its last write as
metadata.resourceVersion. The history of writes is kept until it is compacted, so that a reader may go on from where it
was; who comes from before the compaction has to read everything anew. A store that is restored from a backup counts
from there again, and the writes since are gone.
"""

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final, NamedTuple

Json = dict[str, Any]
#: (namespace, name); the namespace is empty for cluster-scoped objects.
Key = tuple[str, str]

FIRST_VERSION: Final = 100


class GoneError(Exception):
    """The history does not reach back so far."""


class Event(NamedTuple):
    """A write: `before` is the object before it, None for a new one; `obj` the one after it, or as it was deleted."""

    version: int
    kind: str
    type: str
    before: Json | None
    obj: Json


def key_of(obj: Json) -> Key:
    """Return namespace and name of an object."""
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


class Subscription:
    """The writes to one kind of object from a version on."""

    def __init__(self, store: "Store", kind: str, version: int) -> None:
        """Begin after `version`. Made by `Store.subscribe`."""
        self.kind = kind
        self.version = version
        #: The version up to which everything was taken.
        self.taken = version
        #: Why it ended: `end`, or `cut` where the connection broke.
        self.ended = ""
        self._store = store
        self._events: deque[Event] = deque()

    def tell(self, event: Event) -> None:
        """Add a write, unless it has ended."""
        if event.version > self.version and not self.ended:
            self._events.append(event)

    def take(self, seconds: float) -> list[Event]:
        """Return the writes since the last call, waiting a moment for the first."""
        with self._store.changed:
            self._store.changed.wait_for(lambda: self._events or self.ended, seconds)
            events = list(self._events)
            self._events.clear()
            # What was written since the end was not told.
            self.taken = self._store.version if not self.ended else events[-1].version if events else self.taken
            return events

    def close(self) -> None:
        """End it."""
        with self._store.changed:
            self._store.subscriptions.discard(self)


class Store:
    """All objects, by kind. Threads may share it: whoever needs two calls to see one state holds `changed`."""

    def __init__(self) -> None:
        """Begin empty."""
        self.changed = threading.Condition(threading.RLock())
        self.version = FIRST_VERSION
        #: The history reaches back to here.
        self.floor = 0
        self.subscriptions: set[Subscription] = set()
        self._objects: dict[str, dict[Key, Json]] = defaultdict(dict)
        self._history: list[Event] = []

    def put(self, kind: str, obj: Json) -> Json:
        """Write an object and return it as stored. A write that changes nothing is none."""
        key = key_of(obj)
        with self.changed:
            before = self._objects[kind].get(key)
            after = deepcopy(obj)
            if before is not None:
                after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
                if after == before:
                    return before
            self._write(kind, key, "ADDED" if before is None else "MODIFIED", after)
            return after

    def remove(self, kind: str, key: Key) -> Json | None:
        """Delete an object; return it as it was last, None where there was none."""
        with self.changed:
            before = self._objects[kind].get(key)
            if before is None:
                return None
            last = deepcopy(before)
            self._write(kind, key, "DELETED", last)
            return last

    def get(self, kind: str, key: Key) -> Json | None:
        """Return an object, None where there is none."""
        with self.changed:
            return self._objects[kind].get(key)

    def all(self, kind: str) -> list[Json]:
        """Return the objects of a kind, in the order of their keys."""
        with self.changed:
            found = self._objects[kind]
            return [found[key] for key in sorted(found)]

    def subscribe(self, kind: str, version: int) -> Subscription:
        """Return the writes to a kind after `version`, those of the past first. Raises GoneError.

        Nothing is told to who comes from the future, until the counter has passed its version.
        """
        with self.changed:
            if version < self.floor:
                raise GoneError
            found = Subscription(self, kind, version)
            for event in self._history:
                if event.kind == kind:
                    found.tell(event)
            self.subscriptions.add(found)
            return found

    def end(self, why: str = "end", wanted: Callable[[str], bool] = lambda _kind: True) -> None:
        """End the subscriptions of the kinds that are wanted."""
        with self.changed:
            for one in self.subscriptions:
                if wanted(one.kind):
                    one.ended = why
            self.changed.notify_all()

    def compact(self) -> None:
        """Forget the history; who reads on meanwhile is not disturbed."""
        with self.changed:
            self.floor = self.version
            self._history.clear()

    def restore(self, version: int) -> None:
        """Go back to an earlier version, which the history must reach. What reads on ends. Raises GoneError."""
        with self.changed:
            if version < self.floor:
                raise GoneError
            while self._history and self._history[-1].version > version:
                event = self._history.pop()
                objects, key = self._objects[event.kind], key_of(event.obj)
                if event.before is None:
                    del objects[key]
                else:
                    objects[key] = event.before
            self.version = version
            self.end("cut")

    def _write(self, kind: str, key: Key, what: str, after: Json) -> None:
        before = self._objects[kind].get(key)
        self.version += 1
        after["metadata"]["resourceVersion"] = str(self.version)
        if what == "DELETED":
            del self._objects[kind][key]
        else:
            self._objects[kind][key] = after
        event = Event(self.version, kind, what, before, after)
        self._history.append(event)
        for one in self.subscriptions:
            if one.kind == kind:
                one.tell(event)
        self.changed.notify_all()
