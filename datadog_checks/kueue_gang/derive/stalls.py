# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Gangs that run and do not get on, and what tells so.

A gang is stalled for one reason at most, the first of:

* `all_idle`, `some_idle`: nothing has run for `inactive_after` on all or on some of the GPUs that it holds.
* `no_progress`: something tells how it gets on, and nothing of that has gone on for longer than it takes. That is
  `stalled_after`, or three times the longest pause of the last hour: jobs pause to save or to evaluate. A gang that has
  not begun yet since it is complete (it loads, it compiles) has `inactive_after` at least.
* `slow`: see `level`.

A pause is as long as samples show. It begins with the last sample that had grown, and ends with the oldest of the
newest samples of all that tell: until then none of them has grown. What is not sampled any more tells nothing, and a
gang of which nothing is left that tells is not stalled but unobservable.
"""

from collections import deque
from collections.abc import Iterable
from math import inf

ALL_IDLE, SOME_IDLE, NO_PROGRESS, SLOW = STALLS = ("all_idle", "some_idle", "no_progress", "slow")

_HOUR = 3600.0
#: How much longer than the longest pause of the last hour a pause may be.
_PATIENCE = 3


def idle_stall(inactive: int, allocated: int) -> str:
    """Return the reason that inactive GPUs of a gang are, of all that it holds; empty where there are none."""
    if not inactive:
        return ""
    return ALL_IDLE if inactive >= allocated else SOME_IDLE


class Course:
    """How a gang gets on: when it last did, and how long its pauses were, by the clock of the samples."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        self._grown = -inf
        #: Pauses of the last hour as (end, seconds), the longest first; what a longer one follows is forgotten.
        self._pauses: deque[tuple[float, float]] = deque()

    def saw(self, grown: float, complete: float) -> None:
        """Take when the gang was last seen to get on; `complete`: since when it is."""
        if grown <= self._grown:
            return
        # Before it was complete it could not get on: that was no pause.
        if self._grown >= complete:
            pause = grown - self._grown
            while self._pauses and self._pauses[-1][1] <= pause:
                self._pauses.pop()
            self._pauses.append((grown, pause))
        self._grown = grown

    def patience(self, clock: float, stalled_after: float) -> float:
        """Return how long a pause may be."""
        while self._pauses and self._pauses[0][0] < clock - _HOUR:
            self._pauses.popleft()
        return max(stalled_after, _PATIENCE * self._pauses[0][1] if self._pauses else 0.0)

    def stands(self, newest: Iterable[tuple[float, float]], complete: float, usual: float, begins: float) -> bool:
        """Tell whether the gang does not get on.

        Args:
            newest: of everything that tells, when its first and its newest sample were; at least one.
            complete: since when the gang is complete.
            usual: seconds that a pause may be long, see `patience`.
            begins: seconds that it may take to begin.

        """
        samples = list(newest)
        # What was not sampled yet may have grown.
        since = max(self._grown, complete, *(first for first, _ in samples))
        until = min(last for _, last in samples)
        return until - since >= (usual if self._grown >= complete else max(usual, begins))
