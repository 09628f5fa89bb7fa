# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Virtual time: what is to happen when.

Actions run in the order of their times, those of one time in the order in which they were asked for.
"""

import heapq
from collections.abc import Callable
from itertools import count
from random import Random

Action = Callable[[], None]


class Timer:
    """An action that is still to come, or was cancelled."""

    __slots__ = ("action",)

    def __init__(self, action: Action) -> None:
        """Hold an action."""
        self.action: Action | None = action

    def cancel(self) -> None:
        """See to it that it does not happen."""
        self.action = None


class Engine:
    """A clock (seconds since the epoch) that goes on from action to action."""

    def __init__(self, now: float, seed: int) -> None:
        """Begin at a time."""
        self.now = now
        self.random = Random(seed)
        self._order = count()
        self._due: list[tuple[float, int, Timer]] = []

    def at(self, when: float, action: Action) -> Timer:
        """Have something happen at a time, at once where that has passed."""
        timer = Timer(action)
        heapq.heappush(self._due, (max(when, self.now), next(self._order), timer))
        return timer

    def after(self, seconds: float, action: Action) -> Timer:
        """Have something happen so many seconds from now."""
        return self.at(self.now + seconds, action)

    def run_until(self, when: float) -> None:
        """Let everything happen that is due until then, that moment included."""
        while self._due and self._due[0][0] <= when:
            self.now, _, timer = heapq.heappop(self._due)
            if timer.action is not None:
                timer.action()
        self.now = max(self.now, when)
