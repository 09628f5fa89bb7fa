# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What is worth an event, and when.

A gang that is not complete is told of once its clock is beyond the grace, of each kind once until it runs: gangs flap
between states every few seconds, and each flap is no news. What was beyond the grace at the first picture of a check
has been told by the one before it. What happened (a gang assembled, was evicted while half of it was placed) comes from
`history`, which tells nothing twice either.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from datadog_checks.kueue_gang.derive.history import Moment
from datadog_checks.kueue_gang.derive.picture import Note
from datadog_checks.kueue_gang.derive.states import UNPLACED
from datadog_checks.kueue_gang.derive.transitions import Key
from datadog_checks.kueue_gang.facts.nodes import Node

INCOMPLETE, UNPLACED_TOO_LONG, DEGRADED, ASSEMBLED, EVICTED, DEADLOCKED, UNLABELLED, DOWN, BACK = KINDS = (
    "incomplete", "unplaced", "degraded", "assembled", "evicted", "deadlocked", "unlabelled", "source_down",
    "source_back",
)  # fmt: skip

_RUNS = frozenset({"running", "finishing"})
#: What is told of a gang in a state, when its clock is beyond the grace.
_OF_STATE = {
    "partial": INCOMPLETE,
    "starting": INCOMPLETE,
    "degraded": DEGRADED,
    **dict.fromkeys(UNPLACED, UNPLACED_TOO_LONG),
}


@dataclass(slots=True)
class Teller:
    """Remembers what was told, and what will be due."""

    grace: float
    _due: dict[Key, tuple[float, str, str, float]] = field(default_factory=dict)
    _told: dict[Key, set[str]] = field(default_factory=dict)
    _deadlocked: frozenset[Key] = frozenset()
    _down: dict[str, str] = field(default_factory=dict)
    _first: bool = True

    def see(self, moments: Iterable[Moment]) -> None:
        """Take gangs as they are drawn."""
        for moment in moments:
            self._see(moment)

    def _see(self, moment: Moment) -> None:
        key, kind = moment.key, _OF_STATE.get(moment.state)
        waits_for_admission = bool(moment.workload) and moment.admitted is None and moment.state in UNPLACED
        if kind is None or waits_for_admission:
            self._due.pop(key, None)
            # What stops or is an orphan may come back to what it was.
            if moment.state in _RUNS or waits_for_admission:
                self._told.pop(key, None)
        elif moment.since is not None and kind not in self._told.get(key, ()):
            name = f"{moment.queue.namespace}/{moment.name}"
            self._due[key] = moment.since + self.grace, kind, name, moment.since
        else:
            self._due.pop(key, None)

    def gone(self, keys: Iterable[Key]) -> None:
        """Forget gangs that are no more."""
        for key in keys:
            self._due.pop(key, None)
            self._told.pop(key, None)

    def due(self, now: float) -> list[Note]:
        """Return the gangs whose clock is beyond the grace now and was not before."""
        found = []
        for key, (time, kind, name, since) in list(self._due.items()):
            if now > time:
                del self._due[key]
                self._told.setdefault(key, set()).add(kind)
                found.append(Note(kind, name, since, key))
        first, self._first = self._first, False
        return [] if first else found

    def deadlock(self, gangs: Mapping[Key, str], now: float) -> list[Note]:
        """Return the gangs that are deadlocked now and were not; `gangs` maps keys to names."""
        new = gangs.keys() - self._deadlocked
        first = self._first
        self._deadlocked = frozenset(gangs)
        return [] if first else [Note(DEADLOCKED, gangs[key], now, key) for key in sorted(new)]

    def sources(self, health: Iterable[tuple[str, str, bool]], now: float) -> list[Note]:
        """Return the sources that went down or came back; `health` are (source, reason, up)."""
        found = []
        for source, reason, up in health:
            was = self._down.get(source)
            if not up and was is None:
                self._down[source] = reason
                found.append(Note(DOWN, source, now, detail=reason))
            elif up and was is not None:
                del self._down[source]
                found.append(Note(BACK, source, now))
        return found


def unlabelled(changes: Iterable[tuple[Node | None, Node | None]], levels: Iterable[str], now: float) -> list[Note]:
    """Return the nodes with GPUs that had the label of a topology level and lost it."""
    wanted = tuple(levels)
    found = []
    for old, new in changes:
        if old is None or new is None or old.labels is None or new.labels is None:
            continue
        lost = [level for level in wanted if old.labels.get(level) is not None and new.labels.get(level) is None]
        if lost:
            found.append(Note(UNLABELLED, new.name, now, detail=", ".join(lost)))
    return found
