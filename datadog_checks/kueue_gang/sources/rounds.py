# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""One source of signals, asked once a run on threads of its own, so that a run never waits for it.

A round asks for a number of things, a few at a time, and has to end before the next run: what has not answered by then
is cut off. A round that still runs is left alone. What was found is taken whenever a run ends, also from a round that
goes on.

A run that has just started a round may wait a moment for it, so that a source that answers at once is seen in the same
run. It does so only where the round before was as quick: a slow source delays one run, by that moment, and once.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from datadog_checks.kueue_gang.facts.health import OK
from datadog_checks.kueue_gang.sources.connection import Connection, Log
from datadog_checks.kueue_gang.sources.errors import SourceError, harmless, invalid
from datadog_checks.kueue_gang.sources.reflector import STALE
from datadog_checks.kueue_gang.sources.samples import Found

#: Requests that run at the same time.
AT_ONCE: Final = 16
#: Seconds within which a source answers that a run waits for.
MOMENT: Final = 0.25
#: The part of the interval between two runs that a round may take.
SHARE: Final = 0.8
#: Seconds between two attempts to end what should have ended.
_AGAIN: Final = 0.1
#: A round that lasts as many times as long as it may has something in it that nobody can end.
_ENDLESS: Final = 3

Job = TypeVar("Job")


class Told(NamedTuple):
    """An answer: what was found in it, and what is wrong with it; `nothing`: it has not what it was asked for."""

    found: Found
    error: SourceError | None = None
    nothing: bool = False


class Source(ABC, Generic[Job]):
    """A source of signals. All but `stop` is called by the run of the check."""

    def __init__(
        self,
        name: str,
        connection: Connection,
        log: Log,
        *,
        interval: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to ask through a connection, once in `interval` seconds."""
        self.name = name
        self._connection, self._log, self._monotonic = connection, log, monotonic
        self._seconds = SHARE * interval
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._ended.set()
        self._stopped = False
        self._quick = True
        self._began = self._deadline = 0.0
        self._found = Found()
        self._told: list[Told] = []
        self._error: SourceError | None = None
        self._concluded = False
        #: When a round last went well, monotonic.
        self._good_at: float | None = None
        #: Whether the last round told anything, and how many things were told.
        self.tells = False
        self.objects = 0

    def start(self) -> None:
        """Start a round, unless one runs, all was stopped, or there is nothing to ask (now)."""
        if self._stopped or not self._ended.is_set():
            return
        jobs = deque(self._jobs())
        if not jobs:
            return
        self._told = []
        self._began = self._monotonic()
        self._deadline = self._began + self._seconds
        self._ended.clear()
        threading.Thread(target=self._round, args=(jobs,), name=f"kueue-gang-{self.name}", daemon=True).start()

    @property
    def idle(self) -> bool:
        """Tell whether no round runs."""
        return self._ended.is_set()

    def wait(self, until: float) -> None:
        """Wait for the round until then (monotonic) where the one before was quick."""
        if self._quick and not self._ended.wait(max(0.0, until - self._monotonic())):
            self._quick = False

    def take(self) -> Found:
        """Return what was found since the last call."""
        with self._lock:
            found, self._found = self._found, Found()
        return found

    @property
    def error(self) -> SourceError | None:
        """Why it cannot be read, None where it can."""
        if not self.idle and self._monotonic() - self._began > _ENDLESS * self._seconds:
            text = f"{self._connection.target.name}: no answer, and the request cannot be ended"
            return SourceError("unreachable", text, "check the name server: the look-up of a host name may hang")
        return self._error

    @property
    def reason(self) -> str:
        """How reading it went, in the words of `SourceHealth`."""
        error = self.error
        return error.reason if error else OK if self._concluded else STALE

    @property
    def age(self) -> float | None:
        """Seconds since a round last went well, None where none did."""
        return None if self._good_at is None else max(0.0, self._monotonic() - self._good_at)

    def stop(self) -> None:
        """End all requests and threads soon, from any thread, and without waiting."""
        self._stopped = True
        self._connection.abort()

    @abstractmethod
    def _jobs(self) -> Sequence[Job]:
        """Return what to ask for in a round; called while none runs."""

    @abstractmethod
    def _ask(self, job: Job) -> Told:
        """Ask for one thing, on a thread of the round. Raises SourceError where there was no answer."""

    def _failed(self, job: Job, error: SourceError) -> Found:
        """Return what it means that one thing was asked for in vain."""
        del job
        self._log.debug("%s: %s", self.name, error)
        return Found()

    @abstractmethod
    def _counted(self, told: Sequence[Told]) -> tuple[int, list[SourceError]]:
        """Return how many things are known to be told after a round, and the errors that count; none: all is well."""

    # --- the threads of a round --------------------------------------------------------------------------------------

    def _round(self, jobs: deque[Job]) -> None:
        deadline = self._deadline
        last = deadline - min(self._connection.timeout, self._seconds / 2)
        workers = [
            threading.Thread(target=self._work, args=(jobs, last), name=f"kueue-gang-{self.name}-{number}", daemon=True)
            for number in range(min(AT_ONCE, len(jobs)))
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(max(0.0, deadline - self._monotonic()))
        while any(worker.is_alive() for worker in workers):
            self._connection.interrupt()
            for worker in workers:
                worker.join(_AGAIN / len(workers))
        # Until the next round nothing is sent: no idle connection is left, of pods there might be a thousand.
        self._connection.close()
        self._conclude()

    def _work(self, jobs: deque[Job], last: float) -> None:
        """Ask, one thing after the other; none is begun after `last`, but the first."""
        fresh = True
        while not self._stopped and (fresh or self._monotonic() < last):
            fresh = False
            try:
                job = jobs.popleft()
            except IndexError:
                return
            told = self._answer(job)
            with self._lock:
                self._told.append(told)
                self._found.add(told.found)

    def _answer(self, job: Job) -> Told:
        try:
            told = self._ask(job)
            if self._monotonic() < self._deadline:
                return told
            # What was cut off may look complete.
            failure = self._late()
        except SourceError as error:
            failure = error.bare()
        except Exception as error:  # noqa: BLE001 - a thread that dies would leave the source silent for ever
            self._log.debug("%s", self.name, exc_info=True)
            failure = invalid(self._connection.target, "", f"the reader failed ({harmless(type(error).__name__)})")
        if self._monotonic() >= self._deadline:
            failure = self._late()
        return Told(self._failed(job, failure), failure)

    def _late(self) -> SourceError:
        text = f"{self._connection.target.name}: no whole answer within the time of a round, {self._seconds:g} s"
        return SourceError("unreachable", text, "check the server and the network to it")

    def _conclude(self) -> None:
        now = self._monotonic()
        self.objects, errors = self._counted(self._told)
        error = most_common(errors)
        if error is None:
            self._good_at = now
        if error is None or self._error is None or (error.reason, error.advice) != (
            self._error.reason, self._error.advice,
        ):  # fmt: skip
            # Of a cause that lasts the first text stays: each round would name another pod.
            self._error = error
        self.tells = any(told.found for told in self._told)
        self._concluded = True
        self._quick = now - self._began <= MOMENT
        self._ended.set()

    def nothing_to_ask(self) -> None:
        """Note that there is nothing to ask, which is an answer too."""
        self._good_at, self._error, self._concluded = self._monotonic(), None, True
        self.objects, self.tells = 0, False


def most_common(errors: Sequence[SourceError]) -> SourceError | None:
    """Return the first error of the reason that most of them have, None where there is none."""
    if not errors:
        return None
    reason = Counter(error.reason for error in errors).most_common(1)[0][0]
    return next(error for error in errors if error.reason == reason)
