# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""One series of training samples: how fast it goes, and when it was last seen to go on.

A counter tells a rate from two samples. One that fell began anew with its process: what it has now was done since. Of a
sum of several counters each is compared with itself, else the end of one process would look like a new beginning of
all; one that joins the others tells something from its second sample on.

A gauge is the rate itself. It goes on while it is above zero, though a process that hangs serves its last value for
ever: one that had changed with each of many samples and does not any more has stopped.
"""

from dataclasses import dataclass
from math import inf

from datadog_checks.kueue_gang.facts.signals import Pace

#: A gauge that changed with so many samples one after the other is one that always does.
_ALWAYS = 10


@dataclass(slots=True)
class Meter:
    """A series: its newest sample and what came of it, by the clock of the samples.

    `first` is when its first sample was, `rate` None until it is known, `grown` when it was last seen to go on (None:
    not yet), `silent` whether it was asked in vain since. `frozen`: a gauge that has stopped to change.
    """

    at: float
    value: float
    counter: bool
    first: float
    rate: float | None = None
    grown: float | None = None
    silent: bool = False
    frozen: bool = False
    changes: int = 0
    parts: tuple[tuple[int, float], ...] = ()

    @classmethod
    def begin(cls, pace: Pace) -> "Meter":
        """Return a series of one sample."""
        meter = cls(pace.at, pace.value, pace.counter, pace.at, parts=pace.parts)
        if not pace.counter:
            meter.rate, meter.grown = pace.value, pace.at if pace.value > 0 else None
        return meter

    def take(self, pace: Pace) -> None:
        """Take the next sample; one that is not younger than the newest tells nothing new."""
        if pace.at <= self.at:
            return
        seconds, before = pace.at - self.at, self.value
        self.at, self.value, self.silent = pace.at, pace.value, False
        if self.counter:
            old, self.parts = dict(self.parts), pace.parts
            pairs = [(old[part], now) for part, now in pace.parts if part in old] or [(before, pace.value)]
            done = sum(_done(*pair) for pair in pairs)
            self.rate = done / seconds
            if done > 0:
                self.grown = pace.at
            return
        self.rate = pace.value
        if pace.value != before:
            self.changes, self.frozen = self.changes + 1, False
        elif self.changes >= _ALWAYS:
            # One that stays at 0 tells the truth.
            self.frozen = pace.value > 0
        else:
            self.changes = 0
        if pace.value > 0 and not self.frozen:
            self.grown = pace.at

    def forget(self, before: float) -> None:
        """Begin anew with the newest sample, where that is not older than `before`, else with none."""
        self.first = self.at if self.at >= before else -inf
        self.changes, self.frozen = 0, False
        if self.counter:
            self.rate = self.grown = None


def _done(before: float, now: float) -> float:
    """Return what a counter counted between two samples."""
    return now - before if now >= before else max(0.0, now)
