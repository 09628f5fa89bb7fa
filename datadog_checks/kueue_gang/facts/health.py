# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""How a source fared in one run: what the check says about itself."""

from dataclasses import dataclass

OK = "ok"


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """One source after one run.

    `reason` is `ok`, or why it could not be read: forbidden, unauthorized, not_installed, unreachable, stale, invalid.
    `age` is the number of seconds since it was last read whole, None where it never was. `objects` counts what it
    holds, `resyncs` how often it was read anew in this run, `bad` the objects that could not be understood.
    """

    source: str
    reason: str
    age: float | None = None
    objects: int | None = None
    resyncs: int = 0
    bad: int = 0

    @property
    def up(self) -> bool:
        """Tell whether the source was read."""
        return self.reason == OK
