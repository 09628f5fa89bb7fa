# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""GPU-seconds: how many GPUs were in which use, for how long, and what those cost that were idle.

Between two pictures everything was as the first of them shows; the time between comes from a clock that only goes on,
and at most so much of it counts as a few runs take, so that a check which stood still invents no waste. What could not
be seen, since pods were not read, is not counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from datadog_checks.kueue_gang.derive.picture import Picture, Queue
from datadog_checks.kueue_gang.derive.prices import MILLIONTHS

#: Intervals between runs that count at most.
_INTERVALS = 4

_HOUR = 3600

#: (queue, resource, use or reason).
_Of = tuple[Queue, str, str]


@dataclass(frozen=True, slots=True)
class Spent:
    """GPU-seconds since the picture before: `allocated` by (queue, resource, gpu_use), `idle` by (.., idle_reason).

    `cost` is what the idle ones cost, by the same, in the currency of the prices; those without a price are not in it.
    """

    allocated: Mapping[_Of, float] = field(default_factory=dict)
    idle: Mapping[_Of, float] = field(default_factory=dict)
    cost: Mapping[_Of, float] = field(default_factory=dict)


class Meter:
    """Adds up what GPUs are used for."""

    def __init__(self, interval: float) -> None:
        """Take the seconds between two runs."""
        self._most = _INTERVALS * interval
        self._allocated: dict[_Of, int] = {}
        self._idle: dict[_Of, int] = {}
        #: Millionths an hour.
        self._price: dict[_Of, int] = {}
        self._at = 0.0

    def read(self, picture: Picture | None, monotonic: float) -> Spent:
        """Return what was spent since the last call, and begin anew with this picture; None where none was drawn."""
        elapsed, self._at = min(max(0.0, monotonic - self._at), self._most), monotonic
        spent = Spent(
            _times(self._allocated, elapsed),
            _times(self._idle, elapsed),
            _times(self._price, elapsed / _HOUR / MILLIONTHS),
        )
        gpus = picture.gpus if picture is not None and picture.pods_known else None
        # Copies: the picture's own counters go on.
        self._allocated, self._idle, self._price = (
            (dict(gpus.allocated), dict(gpus.idle), dict(gpus.idle_price)) if gpus else ({}, {}, {})
        )
        return spent


def _times(amounts: Mapping[_Of, int], factor: float) -> dict[_Of, float]:
    return {key: amount * factor for key, amount in amounts.items()}
