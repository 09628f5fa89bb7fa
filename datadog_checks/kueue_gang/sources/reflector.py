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

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from itertools import chain
from typing import Any, Final

import orjson

from datadog_checks.kueue_gang.facts.health import OK, SourceHealth
from datadog_checks.kueue_gang.sources.api import MALFORMED, MAX_NAMED, PAGE, Api, Listing, object_name, reduced
from datadog_checks.kueue_gang.sources.connection import JSON, MAX_BODY, Log
from datadog_checks.kueue_gang.sources.errors import SourceError, harmless, invalid
from datadog_checks.kueue_gang.sources.pages import list_items, list_metadata
from datadog_checks.kueue_gang.sources.resources import Resource
from datadog_checks.kueue_gang.sources.store import Table, by_name

STALE: Final = "stale"
#: The annotation of the bookmark that ends the initial events of a streaming list (KEP-3157).
_INITIAL_END: Final = "k8s.io/initial-events-end"
#: How every line of a stream begins.
_EVENT: Final = b'{"type"'
#: Statuses by which a server says that it has no streaming list.
_NO_STREAM: Final = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.NOT_ACCEPTABLE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.NOT_IMPLEMENTED,
    }
)
#: Statuses by which a server says that it has no watch at all. A 404 is a resource that went after it was listed.
_NO_WATCH: Final = frozenset({HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_ACCEPTABLE, HTTPStatus.NOT_IMPLEMENTED})
#: Statuses by which it says that it cannot go on from a version. 504 is "Too large resource version": the server is
#: behind what is known, as after a restore.
_GONE: Final = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.GONE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. `watch` is how long a stream is asked to last, `margin` how much longer it may be silent.

    A source is stale when it was not known to be in step for `stale`. Retries begin after `retry` and double up to
    `retry_most`, or up to `refused` for what mends itself seldom (403, not installed).
    """

    watch: float = 120.0
    margin: float = 15.0
    stale: float = 300.0
    retry: float = 1.0
    retry_most: float = 60.0
    refused: float = 180.0


@dataclass(slots=True)
class Begin:
    """A list begins: what follows replaces everything."""


@dataclass(slots=True)
class Page:
    """The bytes of a page of a list; `last` ends it."""

    body: bytes
    last: bool


@dataclass(slots=True)
class Lines:
    """Complete lines of a stream."""

    body: bytes


@dataclass(slots=True)
class Ended:
    """A stream ended before the end of its list was seen by the reader, which waits to hear whether it was."""


@dataclass(slots=True)
class Failed:
    """The source could not be read."""

    error: SourceError


Item = Begin | Page | Lines | Ended | Failed


class Feed:
    """A bounded queue of bytes from the reader to the run."""

    def __init__(self, most: int) -> None:
        """Hold at most so many bytes; one item larger than that is taken all the same."""
        self._most = most
        self._items: deque[Item] = deque()
        self._size = 0
        self._changed = threading.Condition()
        self._closed = False
        #: Set whenever something is put; shared by all feeds of a check, so that it can wait for any of them.
        self.news: threading.Event | None = None

    def put(self, item: Item) -> bool:
        """Add an item, waiting while the feed is full; False once it is closed."""
        size = len(item.body) if isinstance(item, Page | Lines) else 0
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._size or self._size + size <= self._most)
            if self._closed:
                return False
            self._items.append(item)
            self._size += size
        if self.news:
            self.news.set()
        return True

    def take(self) -> Item | None:
        """Return the oldest item, None where there is none."""
        with self._changed:
            if not self._items:
                return None
            item = self._items.popleft()
            self._size -= len(item.body) if isinstance(item, Page | Lines) else 0
            self._changed.notify_all()
            return item

    def close(self) -> None:
        """Let nobody wait any more."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()


class _GoneError(Exception):
    """The version is too old, or what was read cannot be gone on from: a new list is needed."""


class _Reader:
    """The thread that moves bytes."""

    def __init__(self, api: Api, resource: Resource, feed: Feed, timing: Timing, log: Log) -> None:
        self._api, self._resource, self._feed, self._timing, self._log = api, resource, feed, timing, log
        self._stop = threading.Event()
        self._streams = True
        self._answered = threading.Event()
        self._distrusted = threading.Event()
        self._resume: str | None = None
        #: Watches in a row that ended at once without an event, and that could not go on from their version.
        self._empty = 0
        self._gone = 0
        #: The last line of the stream that is read.
        self._last = b""
        #: Whether the run has the list that the stream goes on from.
        self.listed = False
        #: Set where the server has no watch: the run lists by itself.
        self.polls = False
        #: When the server last proved that the stream is in step (monotonic).
        self.alive = 0.0
        self.thread = threading.Thread(target=self._run, name=f"kueue-gang-{resource.api_source}", daemon=True)

    def stop(self) -> None:
        """End the thread soon; it is not waited for."""
        self._stop.set()
        self._answered.set()
        self._feed.close()

    def distrust(self) -> None:
        """Read a new list in place of what comes next."""
        self._distrusted.set()

    def answer(self, version: str | None) -> None:
        """Tell the reader from which version to go on after `Ended`; None for a new list."""
        self._resume = version
        self._answered.set()

    def _run(self) -> None:
        version: str | None = None
        failures = 0
        while not self._stop.is_set():
            if self._distrusted.is_set():
                version = None
            try:
                version = self._list() if version is None else self._watch(version)
                if self.polls:
                    return
                failures = 0
            except _GoneError:
                version = None
                # The first new list at once, for its version may just be old; then slower and slower.
                self._gone += 1
                self._wait(self._backoff(self._gone - 1) if self._gone > 1 else 0.0)
            except SourceError as error:
                failures += 1
                self._feed.put(Failed(error.bare()))
                self._wait(self._delay(error, failures))
            except Exception:  # noqa: BLE001 - a thread that dies would leave the source silent for ever
                failures += 1
                self._log.debug("reader of %s", self._resource.api_source, exc_info=True)
                self._feed.put(Failed(invalid(self._api.target, self._resource.plural, "the reader failed")))
                version = None
                self._wait(self._backoff(failures))

    def _wait(self, seconds: float) -> None:
        self._stop.wait(seconds)

    def _backoff(self, failures: int, most: float | None = None) -> float:
        longest = min(most or self._timing.retry_most, self._timing.retry * 2 ** min(failures - 1, 16))
        return float(longest * random.uniform(0.5, 1.0))  # noqa: S311 - jitter

    def _delay(self, error: SourceError, failures: int) -> float:
        if error.retry_after is not None:
            return min(error.retry_after, self._timing.retry_most)
        refused = error.reason in {"forbidden", "not_installed"}
        return self._backoff(failures, self._timing.refused if refused else None)

    # --- lists -------------------------------------------------------------------------------------------------------

    def _list(self) -> str | None:
        """Read a list; return the version to watch from, None for a new list."""
        self.listed = False
        self._distrusted.clear()
        return self._api.first(self._resource, self._stream_list if self._streams else self._paged_list)

    def _stream_list(self, path: str) -> str | None:
        query = {
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "resourceVersion": "",
        }
        try:
            response = self._open(path, query)
        except SourceError as error:
            if error.status not in _NO_STREAM:
                raise
            self._log.debug("%s: no streaming list (%s)", self._resource.api_source, error.status)
            found = self._paged_list(path)
            # A 404 may also mean that the resource is not there: only a list that works proves the stream missing.
            self._streams = False
            return found
        self._feed.put(Begin())
        return self._move(path, response, None)

    def _paged_list(self, path: str) -> str | None:
        query: dict[str, str | int] = {**self._resource.query, "limit": PAGE}
        self._feed.put(Begin())
        version = ""
        while not self._stop.is_set():
            try:
                body = self._api.read(path, query)
                metadata = list_metadata(body)
            except SourceError as error:
                if error.status == HTTPStatus.GONE:
                    raise _GoneError from None
                raise
            except ValueError as error:
                raise self._api.no_list(path, body, error) from None
            version = version or str(metadata.get("resourceVersion") or "")
            token = metadata.get("continue")
            if token and token == query.get("continue"):
                raise invalid(self._api.target, path, "the same page for ever")
            if not self._feed.put(Page(body, last=not token)) or not token:
                break
            query["continue"] = str(token)
        return version or None

    # --- watches -----------------------------------------------------------------------------------------------------

    def _watch(self, version: str) -> str | None:
        """Follow a watch to its end; return the version to go on from."""
        path = self._api.path(self._resource)
        try:
            response = self._open(path, {"resourceVersion": version})
        except SourceError as error:
            if error.status in _GONE:
                raise _GoneError from None
            if error.status not in _NO_WATCH:
                raise
            self._log.info("%s: the server has no watch; it is listed in each run", self._resource.api_source)
            self.polls = True
            return version
        return self._move(path, response, version)

    def _open(self, path: str, query: dict[str, str]) -> Any:  # noqa: ANN401 - a urllib3 response
        lasts = self._timing.watch * random.uniform(0.8, 1.0)  # noqa: S311 - jitter: not all streams end at once
        full: dict[str, str | int] = {
            **self._resource.query,
            **query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": max(1, int(lasts)),
        }
        return self._api.open(path, full, read_timeout=self._timing.watch + self._timing.margin)

    def _move(self, path: str, response: Any, version: str | None) -> str | None:  # noqa: ANN401
        """Move the lines of a stream into the feed; return the version to go on from.

        `version` is that of a watch, None for a streaming list: then the run has to say whether the list was complete.
        """
        began = time.monotonic()
        self._last = b""
        body: bytes | None = None
        broke: SourceError | None = None
        try:
            body = self._follow(path, response, listed=version is not None)
        except SourceError as error:
            # A stream may end in any way. Whether the server is well, the next request tells.
            self._log.debug("%s: the stream ended: %s", self._resource.api_source, error)
            broke = error
        finally:
            response.close()
        if body is not None:
            return self._no_stream(path, body)
        lasted = time.monotonic() - began
        if lasted > self._timing.watch / 2:
            self._gone = 0
        if broke is None and (version is not None or self.listed):
            # It was said to its end, if only that nothing happened.
            self.alive = time.monotonic()
        if version is None:
            if not self._last:
                raise broke or self._api.no_list(path, b"", ValueError())
            return self._ask(broke)
        if not self._last:
            return self._after_nothing(version, lasted, complete=broke is None)
        version = _version_of(self._last)
        self._empty = self._gone = 0
        return version

    def _follow(self, path: str, response: Any, *, listed: bool) -> bytes | None:  # noqa: ANN401
        """Move lines into the feed until the stream ends; return the body of an answer that is no stream.

        `listed`: the run has what the stream goes on from, so that each sign of life tells that it is in step.
        """
        if listed and response.headers.get("Content-Type", "").startswith(JSON):
            # The server has answered: what was down is up, also while nothing happens.
            self._feed.put(Lines(b""))
        ends = time.monotonic() + self._timing.watch + self._timing.margin
        pieces = self._api.chunks(path, response)
        head = _head(pieces)
        if head.lstrip() and not head.lstrip().startswith(_EVENT):
            return self._whole(path, head, pieces)
        blocks = _blocks(chain((head,), pieces))
        del head
        for block in blocks:
            if self._distrusted.is_set():
                raise _GoneError
            now = time.monotonic()
            if now > ends:
                # It drips: the server would have ended it by now.
                raise invalid(self._api.target, path, "a stream that does not end")
            if listed or self.listed:
                self.alive = now
            if block:
                self._last = block[block.rfind(b"\n", 0, len(block) - 1) + 1 :].strip() or self._last
                if not self._feed.put(Lines(block)):
                    break
            # Nothing is held while the next read waits, perhaps for minutes.
            del block
        return None

    def _whole(self, path: str, head: bytes, pieces: Iterator[bytes]) -> bytes:
        body = bytearray(head)
        for piece in pieces:
            body += piece
            if len(body) > MAX_BODY:
                raise invalid(self._api.target, path, f"more than {MAX_BODY} bytes that are no events")
        return bytes(body)

    def _after_nothing(self, version: str, lasted: float, *, complete: bool) -> str:
        """Return the version after a watch without any event.

        A server that does not know the version, since it is of the future as after a restore, may end the watch at
        once, again and again. Or it is silent until the watch is over, shortly before which it would have sent a
        bookmark. A server without bookmarks is listed anew after each quiet watch.
        """
        long = lasted > self._timing.watch / 2
        self._empty = 0 if long else self._empty + 1
        if self._empty >= 3 or (long and complete):  # noqa: PLR2004 - a connection may break twice
            self._empty = 0
            raise _GoneError
        self._wait(self._backoff(self._empty) if self._empty else 0.0)
        return version

    def _ask(self, broke: SourceError | None) -> str | None:
        """Ask the run whether the list was complete: it knows when it has decoded everything.

        Raises:
            SourceError: it was not; `broke` where that is why.

        """
        self._answered.clear()
        if self._feed.put(Ended()):
            self._answered.wait()
        if self._resume is None and not self._stop.is_set():
            message = f"{self._api.target.name}: the list of {self._resource.plural} broke"
            raise broke or SourceError("unreachable", message, "it is tried again")
        return self._resume

    def _no_stream(self, path: str, body: bytes) -> str | None:
        """Take a list that a server without watch sends in place of a stream; it is then listed in each run."""
        try:
            list_metadata(body)
        except ValueError as error:
            raise self._api.no_list(path, body, error) from None
        self._log.info("%s: the server has no watch; it is listed in each run", self._resource.api_source)
        self._feed.put(Page(body, last=True))
        self.polls = True
        return None


def _head(pieces: Iterator[bytes]) -> bytes:
    """Return the beginning of an answer, long enough to see whether it is a stream of events."""
    head = b""
    for piece in pieces:
        head += piece
        if len(head.lstrip()) >= len(_EVENT):
            break
    return head


def _blocks(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines of a stream in blocks of complete ones; an empty block where none is complete yet.

    Raises:
        _GoneError: a line does not end.

    """
    rest = bytearray()
    for piece in pieces:
        complete = piece.rfind(b"\n") + 1
        if complete:
            block = bytes(rest) + piece[:complete]
            rest = bytearray(piece[complete:])
        else:
            block = b""
            rest += piece
            if len(rest) > MAX_BODY:
                raise _GoneError
        del piece
        yield block
        del block


def _version_of(line: bytes) -> str:
    """Return the resourceVersion of an event.

    Raises:
        _GoneError: it is an error event, or no event: what comes after it is not known.

    """
    try:
        event = orjson.loads(line)
        if event["type"] == "ERROR":
            raise _GoneError
        return str(event["object"]["metadata"]["resourceVersion"])
    except (ValueError, LookupError, TypeError):
        raise _GoneError from None


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
        self.table = Table()
        self._api, self._log, self._monotonic = api, log, monotonic
        self._timing = timing or Timing()
        self._watch = watch
        self._news = news
        self._reader: _Reader | None = None
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
            self._reader = _Reader(self._api, self.resource, self._feed, self._timing, self._log)
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
        self._version = str(metadata["resourceVersion"])
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
