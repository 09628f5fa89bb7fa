# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The reader thread of a resource: it opens lists and watches, and moves what comes into a bounded feed.

It looks at bytes only: it cuts them into complete lines or pages, and reads the resourceVersion of the last line, from
which the next watch goes on. Whoever takes from the feed decodes. What ends a watch, and what follows from it:

* its time, a broken connection, silence: the next watch goes on from the last version;
* a version that the server has forgotten, or does not know yet: a new list;
* an error: a growing, jittered delay, or the one that the server asks for.
"""

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from itertools import chain
from typing import Any, Final

import orjson

from datadog_checks.kueue_gang.sources.api import PAGE, Api
from datadog_checks.kueue_gang.sources.connection import JSON, MAX_BODY, Log
from datadog_checks.kueue_gang.sources.errors import SourceError, invalid
from datadog_checks.kueue_gang.sources.feed import Begin, Ended, Failed, Feed, Lines, Page
from datadog_checks.kueue_gang.sources.pages import list_metadata
from datadog_checks.kueue_gang.sources.resources import Resource

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


class _GoneError(Exception):
    """The version is too old, or what was read cannot be gone on from: a new list is needed."""


class Reader:
    """The thread that moves bytes."""

    def __init__(self, api: Api, resource: Resource, feed: Feed, timing: Timing, log: Log) -> None:
        """Prepare to read a resource into a feed."""
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
        latest = _version_of(self._last)
        if is_before(latest, version):
            # A server that was restored counts from an earlier version again, and what it undid it does not tell.
            raise _GoneError
        self._empty = self._gone = 0
        return latest

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


def is_before(one: str, other: str) -> bool:
    """Tell whether a version is older than another one; they are decimal numbers that grow (KEP-5504)."""
    return one.isdecimal() and other.isdecimal() and int(one) < int(other)


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
