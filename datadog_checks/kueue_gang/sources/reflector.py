# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""One resource kept in step with the API server: a list, then a watch from its resourceVersion.

Two threads share the work. The reader thread only moves bytes: it opens the list and the watch, cuts what comes into
complete lines or pages, and puts them into a bounded feed. The run of the check takes what is there in one batch,
decodes it object by object and reduces each to its fact. Decoding each event as it comes would cost five to seven times
a batch; and a run needs no lock over facts, which nobody else touches.

How a list is read: as a stream (`sendInitialEvents`), one object a line, where the server has that; else in pages. A
list that breaks replaces nothing: what was known stays, and ages. Then the watch: bookmarks keep its version fresh, and
a stream that ends, or is silent for longer than it should last, goes on from its last version. When that version is too
old (410) there is a new list. Where the server knows lists only, the resource is listed in each run.

What goes wrong is retried with a growing, jittered delay, or after the time that the server asks for.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Final

import orjson

from datadog_checks.kueue_gang.facts.health import OK, SourceHealth
from datadog_checks.kueue_gang.sources.api import MALFORMED, MAX_NAMED, Api, Listing, object_name, reduced
from datadog_checks.kueue_gang.sources.connection import Log
from datadog_checks.kueue_gang.sources.errors import SourceError, harmless, invalid
from datadog_checks.kueue_gang.sources.feed import Begin, Ended, Failed, Feed, Lines, Page
from datadog_checks.kueue_gang.sources.pages import list_items
from datadog_checks.kueue_gang.sources.reader import Reader, Timing, is_before
from datadog_checks.kueue_gang.sources.resources import Resource
from datadog_checks.kueue_gang.sources.store import Table, by_name

STALE: Final = "stale"
#: The annotation of the bookmark that ends the initial events of a streaming list (KEP-3157).
_INITIAL_END: Final = "k8s.io/initial-events-end"


class Reflector:
    """A resource that is kept in step; `table` holds its facts."""

    #: Bytes that may wait for the run. A list of 100,000 pods passes through it; it never holds one.
    FEED = 24 * 1024 * 1024

    def __init__(
        self,
        api: Api,
        resource: Resource,
        log: Log,
        *,
        timing: Timing | None = None,
        watch: bool = True,
        news: threading.Event | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to follow a resource. Without `watch` it is listed in each run."""
        self.resource = resource
        self.table = Table(every_version=resource.every_version)
        self._api, self._log, self._monotonic = api, log, monotonic
        self._timing = timing or Timing()
        self._watch = watch
        self._news = news
        self._reader: Reader | None = None
        self._feed: Feed | None = None
        self._incoming: Listing | None = None
        self._version: str | None = None
        self._in_step: float | None = None
        self._synced = False
        self._error: SourceError | None = None
        self._count = 0
        self._resyncs = 0
        self._bad = 0
        #: Whether it was listed, or failed, in this run.
        self._fresh = False
        self._stopped = False

    def start(self) -> None:
        """Start the reader; does nothing where there is one, none is needed, or all has been stopped."""
        if self._watch and self._reader is None and not self._stopped:
            self._feed = Feed(self.FEED)
            self._feed.news = self._news
            self._reader = Reader(self._api, self.resource, self._feed, self._timing, self._log)
            # A stop meanwhile found no reader, or ends this one as soon as it runs.
            if not self._stopped:
                self._reader.thread.start()

    def stop(self) -> None:
        """End the reader soon, from any thread."""
        self._stopped = True
        if self._reader:
            self._reader.stop()

    @property
    def settled(self) -> bool:
        """Tell whether it was read whole, or failed: there is nothing to wait for."""
        return self._synced or self._error is not None

    @property
    def listing(self) -> int | None:
        """How many objects of a new list have come so far, None while none comes in."""
        return self._incoming.objects if self._incoming is not None else None

    @property
    def usable(self) -> bool:
        """Tell whether its facts are good enough to derive from."""
        return self._synced and self._age() <= self._timing.stale

    @property
    def error(self) -> SourceError | None:
        """Why it cannot be read, None where it can."""
        if self._error is None and self._synced and not self.usable:
            return SourceError(
                "unreachable",
                f"{self._api.target.name} {self.resource.plural}: nothing heard for {self._age():.0f} s",
                "check the network between the Agent and the API server",
            )
        return self._error

    def refresh(self, *, again: bool = False) -> None:
        """Take everything that has come since the last call; list where there is no watch. Never raises.

        `again` is for further calls of one run, in which a list that was read is good enough.
        """
        polls = not self._watch or bool(self._reader and self._reader.polls)
        self._fresh = self._fresh and again
        while self._feed and (item := self._feed.take()) is not None:
            _TAKE[type(item)](self, item)
        if polls and not self._fresh:
            self._poll()
        if self._synced and not self.usable:
            # Too old to go on from: what depends on it is not told, and a new list comes first.
            self._drop()

    def take_health(self) -> SourceHealth:
        """Return how it fares; counts are those since the last call."""
        resyncs, self._resyncs = self._resyncs, 0
        bad, self._bad = self._bad, 0
        error = self.error
        reason = error.reason if error else OK if self._synced else STALE
        if error and error is not self._error:
            reason = STALE
        age = None if self._in_step is None else self._age()
        return SourceHealth(
            self.resource.api_source, reason, age, self._count if self._synced else None, resyncs, bad
        )  # fmt: skip

    def _age(self) -> float:
        alive = self._reader.alive if self._reader and not self._reader.polls else 0.0
        return max(0.0, self._monotonic() - max(alive, self._in_step or 0.0))

    # --- what comes from the reader ----------------------------------------------------------------------------------

    def take_begin(self, _item: Begin) -> None:
        """Begin a list."""
        self._incoming = Listing()

    def take_page(self, item: Page) -> None:
        """Take a page of a list."""
        incoming = self._incoming
        if incoming is None:
            return
        try:
            for obj in list_items(item.body):
                incoming.take(self.resource, obj, self._log)
        except ValueError as error:
            self.take_fail(Failed(invalid(self._api.target, self.resource.plural, f"no list ({error})")))
            if self._reader:
                # It takes the list for read, and would watch from its version.
                self._reader.distrust()
            return
        if item.last:
            self._commit()

    def take_lines(self, item: Lines) -> None:
        """Take events."""
        if self._synced and self._incoming is None:
            self._error = None
        # A view, since an event has 10 KB and a copy of each costs a tenth of decoding it.
        body, view, start = item.body, memoryview(item.body), 0
        while (end := body.find(b"\n", start)) >= 0:
            if end > start:
                self._event(view[start:end])
            start = end + 1

    def take_ended(self, _item: Ended) -> None:
        """Tell the reader whether the list that broke off was complete."""
        if self._reader:
            self._reader.answer(self._version if self._synced and self._incoming is None else None)

    def take_fail(self, item: Failed) -> None:
        """Remember why the source cannot be read; what is known stays, unless the resource is gone."""
        self._error = item.error
        self._fresh = True
        self._incoming = None
        if item.error.reason == "not_installed":
            self.table.replace({})
            self._synced = False

    def _event(self, line: memoryview) -> None:
        try:
            event = orjson.loads(line)
            kind, obj = event["type"], event["object"]
            if kind == "BOOKMARK":
                self._bookmark(obj["metadata"])
            elif kind in _STEPS:
                if self._incoming is not None:
                    self._incoming.take(self.resource, obj, self._log)
                else:
                    self._count += _STEPS[kind]
                    self._apply(kind, obj)
        except MALFORMED as error:
            # A line that is no event was one: nothing that comes after it can be trusted.
            self._log.debug("%s: no event: %s", self.resource.api_source, harmless(str(error)))
            if self._reader:
                self._reader.distrust()

    def _bookmark(self, metadata: dict[str, Any]) -> None:
        version = str(metadata["resourceVersion"])
        if self._incoming is None and self._reader and is_before(version, self._version or ""):
            # The server was restored: what it undid it does not tell.
            self._reader.distrust()
        self._version = version
        if self._incoming is not None and (metadata.get("annotations") or {}).get(_INITIAL_END) == "true":
            self._commit()

    def _apply(self, kind: str, obj: Any) -> None:  # noqa: ANN401
        name = object_name(obj)
        if name:
            self._version = str(obj["metadata"].get("resourceVersion") or self._version)
        if kind == "DELETED":
            if name:
                self.table.put(name, None)
                self.table.unreadable.discard(name)
            return
        try:
            fact = reduced(self.resource, obj)
        except MALFORMED as error:
            self._bad += 1
            if self._bad <= MAX_NAMED:
                self._log.debug("%s: bad object %s: %s", self.resource.api_source, name, harmless(str(error)))
            if name:
                self.table.put(name, None)
                self.table.unreadable.add(name)
            return
        if name:
            self.table.put(name, fact)
            self.table.unreadable.discard(name)

    def _commit(self) -> None:
        incoming, self._incoming = self._incoming, None
        if incoming is None:
            return
        self.table.replace(by_name(incoming.facts))
        self.table.unreadable = incoming.bad_names
        self._count = incoming.objects
        self._bad += incoming.bad
        self._synced, self._error, self._fresh = True, None, True
        self._in_step = self._monotonic()
        self._resyncs += 1
        if self._reader:
            self._reader.listed = True

    def _poll(self) -> None:
        try:
            self._incoming = self._api.list(self.resource)
        except SourceError as error:
            self.take_fail(Failed(error.bare()))
            return
        self._commit()

    def _drop(self) -> None:
        self.table.replace({})
        self._synced = False
        if self._reader:
            self._reader.distrust()


#: What an event does to the number of objects.
_STEPS: Final = {"ADDED": 1, "MODIFIED": 0, "DELETED": -1}

_TAKE: Final[dict[type, Callable[[Reflector, Any], None]]] = {
    Begin: Reflector.take_begin,
    Page: Reflector.take_page,
    Lines: Reflector.take_lines,
    Ended: Reflector.take_ended,
    Failed: Reflector.take_fail,
}
