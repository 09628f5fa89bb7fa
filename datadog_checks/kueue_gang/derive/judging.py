# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The gangs that do not run, seen against the nodes: what blocks each, and which hold each other's GPUs.

What the nodes tell crosses gangs, so it is asked when all of them are drawn. Gangs that ask for the same have the same
answer, which is found once; of ten gangs of a template nine cost nothing. It is asked again when the room of a node
has changed: of a few gangs at once, of very many in turns, so that each is asked once in a minute and no run is long. A
gang that has itself changed is asked at once.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import islice
from math import ceil
from typing import NamedTuple

from datadog_checks.kueue_gang.derive.blockers import Case, Outlook, blocker, takes_nodes
from datadog_checks.kueue_gang.derive.deadlock import Holder, deadlocked
from datadog_checks.kueue_gang.derive.fit import Ask
from datadog_checks.kueue_gang.derive.picture import Queue, Verdicts
from datadog_checks.kueue_gang.derive.rooms import Held, Rooms
from datadog_checks.kueue_gang.derive.transitions import Key
from datadog_checks.kueue_gang.facts.quantity import Units

#: Up to so many cases all are asked again when a node has changed; of more each has its turn within so many seconds.
_FEW = 64
_ROUND = 60.0


class Wait(NamedTuple):
    """A gang that does not run.

    `queue` is None where the gang is not reported. `held` are the GPUs that it holds by node and resource, with the
    reserved ones, and `reserved` those that the scheduler holds for its certain Permit waiters; `floating` is what it
    holds nobody knows where. `whole` tells that none of its pods is missing.
    """

    key: Key
    queue: Queue | None
    case: Case
    held: Held
    reserved: tuple[tuple[str, Units], ...]
    floating: tuple[Ask, ...]
    whole: bool


class Judge:
    """Keeps the verdicts in step with gangs and nodes."""

    def __init__(self, rooms: Rooms) -> None:
        """Begin without gangs."""
        self._rooms = rooms
        self._waits: dict[Key, Wait] = {}
        self._by_case: dict[Case, dict[Key, Queue | None]] = defaultdict(dict)
        self._answers: dict[Case, str] = {}
        #: Cases that came since the last verdicts.
        self._new: dict[Case, None] = {}
        #: Cases that depend on nodes, those that were asked longest ago first, with the version of the rooms then.
        self._open: dict[Case, int] = {}
        self._blockers: dict[Key, str] = {}
        self._blocked: Counter[tuple[Queue, str]] = Counter()
        self._holders: dict[Key, Holder] = {}
        self._deadlocked: frozenset[Key] = frozenset()
        #: Gangs with Permit waiters of which only the scheduler's count is known: what they hold, they hold somewhere.
        self._floating: dict[Key, tuple[Ask, ...]] = {}
        self._nodes_known = False
        self._deadlock_at = -1
        self._deadlock_time = 0.0
        self._at = 0.0

    def add(self, waits: Iterable[Wait]) -> None:
        """Take gangs that do not run."""
        for wait in waits:
            self._waits[wait.key] = wait
            self._by_case[wait.case][wait.key] = wait.queue
            if wait.case in self._answers:
                self._tell(wait.key, wait.queue, self._answers[wait.case])
            else:
                self._new[wait.case] = None
            if wait.whole and wait.held:
                self._holders[wait.key] = Holder(wait.key, next(iter(wait.case.asks), ()), wait.held)
                self._deadlock_at = -1
            if wait.floating:
                self._floating[wait.key] = wait.floating
                self._reopen()
            self._rooms.reserve((node, units) for node, units in wait.reserved if node)

    def take_back(self, waits: Iterable[Wait]) -> None:
        """Forget gangs that were taken."""
        for wait in waits:
            del self._waits[wait.key]
            keys = self._by_case[wait.case]
            del keys[wait.key]
            self._untell(wait.key, wait.queue)
            if not keys:
                for holder in (self._by_case, self._answers, self._new, self._open):
                    holder.pop(wait.case, None)
            if self._holders.pop(wait.key, None):
                self._deadlock_at = -1
            if self._floating.pop(wait.key, None):
                self._reopen()
            self._rooms.reserve(((node, units) for node, units in wait.reserved if node), -1)

    def verdicts(self, now: float, *, nodes_known: bool) -> Verdicts:
        """Return the verdicts; where the nodes and the pods on them are not known, only what does not take them."""
        version = self._rooms.version
        again = list(self._open) if nodes_known != self._nodes_known else self._turn(version, now - self._at)
        for case in dict.fromkeys([*self._new, *again]):
            by_nodes = nodes_known and takes_nodes(case)
            look = Outlook(case.asks, self._rooms.fits, self._beside(case)) if by_nodes else None
            self._answer(case, blocker(case, look))
            if takes_nodes(case):
                self._open.pop(case, None)
                self._open[case] = version
        if nodes_known != self._nodes_known or (self._deadlock_at != version and self._deadlock_due(now)):
            self._deadlocked = deadlocked(self._holders.values(), self._rooms.fits) if nodes_known else frozenset()
            self._deadlock_at, self._deadlock_time = version, now
        self._new, self._nodes_known, self._at = {}, nodes_known, now
        told = frozenset(key for key in self._deadlocked if key in self._holders and self._waits[key].queue is not None)
        gpus: Counter[str] = Counter()
        for key in told:
            for amounts in self._waits[key].held.values():
                gpus.update(amounts)
        return Verdicts(dict(self._blockers), dict(self._blocked), told, gpus)

    @property
    def behind(self) -> bool:
        """Tell whether something is still to be asked about the nodes as they are."""
        version = self._rooms.version
        return self._deadlock_at != version or next(iter(self._open.values()), version) != version

    def _deadlock_due(self, now: float) -> bool:
        return len(self._holders) <= _FEW or not 0 <= now - self._deadlock_time < _ROUND

    def _turn(self, version: int, elapsed: float) -> list[Case]:
        """Return the cases that are to be asked again: their rooms have changed, and it is their turn."""
        share = max(1.0, len(self._open) * elapsed / _ROUND)
        most = len(self._open) if len(self._open) <= _FEW else ceil(share)
        return [case for case in islice(self._open, most) if self._open[case] != version]

    def _beside(self, case: Case) -> tuple[Ask, ...]:
        """Return what gangs of other cases hold nobody knows where."""
        here = self._by_case[case]
        return tuple(ask for key, asks in sorted(self._floating.items()) if key not in here for ask in asks)

    def _reopen(self) -> None:
        """Ask all again: what fits beside others has changed for everybody."""
        self._open = dict.fromkeys(self._open, -1)

    def _answer(self, case: Case, answer: str) -> None:
        if answer != self._answers.get(case):
            self._answers[case] = answer
            for key, queue in self._by_case[case].items():
                self._untell(key, queue)
                self._tell(key, queue, answer)

    def case(self, key: Key) -> Case | None:
        """Return what is asked about a gang, None for one that runs."""
        wait = self._waits.get(key)
        return wait.case if wait else None

    def _tell(self, key: Key, queue: Queue | None, answer: str) -> None:
        if queue is not None:
            self._blockers[key] = answer
            self._blocked[queue, answer] += 1

    def _untell(self, key: Key, queue: Queue | None) -> None:
        answer = self._blockers.pop(key, None)
        if queue is not None and answer is not None:
            self._blocked[queue, answer] -= 1
            if not self._blocked[queue, answer]:
                del self._blocked[queue, answer]
