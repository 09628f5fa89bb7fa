# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The feed between the reader thread of a resource and the run of the check: what was read, in its order.

It is bounded, so that a server that is faster than the runs fills no memory: the reader waits, and TCP makes the server
wait.
"""

import threading
from collections import deque
from dataclasses import dataclass

from datadog_checks.kueue_gang.sources.errors import SourceError


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
