# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Whether a gang is slow: against its own recent level, since nobody knows how fast it could be.

The level is the median of its rates in an hour, or their mean where that is less: a counter that grows with each step
is at rest in many samples, and what the others say is more than the gang's rate. It is compared with the mean rate of
the last while (the window), so that a slow step is no slow gang. Jobs pause to save or to evaluate: the longest pause
in the window is left out of the mean, and where little else is left nothing is said; a pause that does not end is for
`no_progress`. Rates enter the level when they leave the window, and not while the gang is slow, else slowness would
become the level. It is kept for some hours then, and does not hold for another number of GPUs.
"""

from array import array
from bisect import bisect_left
from collections import deque
from itertools import groupby
from statistics import fmean, median

#: Seconds of rates that make a level, and for which it holds without new ones.
_HOUR, _EXPIRES = 3600.0, 4 * 3600.0
#: A level takes so many rates.
_ENOUGH = 20
#: The level is made anew at most so often, in seconds: it moves slowly.
_RENEW = 60.0


class Level:
    """The rates of a gang, from one source."""

    def __init__(self) -> None:
        """Begin with none."""
        self.slow = False
        #: Rates in the window: (time, rate, whether the gang was slow then).
        self._recent: deque[tuple[float, float, bool]] = deque()
        #: Since when the gang runs as it is, as far as its rates tell.
        self._begun: float | None = None
        self._gpus: object = None
        self._times, self._rates = array("d"), array("d")
        self._level: tuple[float, float] | None = None

    def interrupted(self) -> None:
        """Begin a new window: the gang was not complete for a while."""
        self._recent.clear()
        self._begun, self.slow = None, False

    def take(self, at: float, rate: float, gpus: object, window: float) -> None:
        """Take a rate; one that is not younger than the newest is that one again. Tell in `slow` what it means."""
        if self._recent and at <= self._recent[-1][0]:
            return
        if gpus != self._gpus:
            self.interrupted()
            self._gpus, self._times, self._rates, self._level = gpus, array("d"), array("d"), None
        if self._begun is None or (self._recent and at - self._recent[-1][0] > window):
            # After a gap there is nothing to take a mean of.
            self._begun = at
        self._recent.append((at, rate, self.slow))
        while self._recent[0][0] <= at - window:
            self._leave(*self._recent.popleft())
        self.slow = at - self._begun >= window and self._is_slow(at)

    def _leave(self, at: float, rate: float, was_slow: bool) -> None:  # noqa: FBT001 # as it stands in the window
        if was_slow or self.slow:
            return
        self._times.append(at)
        self._rates.append(rate)
        old = bisect_left(self._times, at - _HOUR)
        if old:
            del self._times[:old]
            del self._rates[:old]

    def _is_slow(self, at: float) -> bool:
        if len(self._rates) < _ENOUGH or at - self._times[-1] > _EXPIRES:
            return False
        if self._level is None or at - self._level[0] >= _RENEW:
            self._level = at, min(median(self._rates), fmean(self._rates))
        rates = [rate for _, rate, _ in self._recent]
        pauses = [len(list(group)) for pausing, group in groupby(rates, lambda rate: rate <= 0) if pausing]
        counted = len(rates) - max(pauses, default=0)
        return 2 * counted >= len(rates) and sum(rates) / counted < self._level[1] / 2
