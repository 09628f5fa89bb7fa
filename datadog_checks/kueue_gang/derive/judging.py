# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The gangs that do not run, seen against the nodes: what blocks each, and which hold each other's GPUs.

What the nodes tell crosses gangs, so it is asked when all of them are drawn. Gangs that ask for the same have the same
answer, which is found once; it is asked again only when the room of a node has changed. Of ten gangs of a template nine
cost nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from datadog_checks.kueue_gang.derive.blockers import Case, Outlook, blocker, takes_nodes
from datadog_checks.kueue_gang.derive.deadlock import Holder, deadlocked
from datadog_checks.kueue_gang.derive.picture import Queue, Verdicts
from datadog_checks.kueue_gang.derive.rooms import Held, Rooms
from datadog_checks.kueue_gang.derive.transitions import Key
from datadog_checks.kueue_gang.facts.quantity import Units


class Wait(NamedTuple):
    """A gang that does not run.

    `queue` is None where the gang is not reported. `held` are the GPUs that it holds by node and resource, with the
    reserved ones, and `reserved` those that the scheduler holds for its certain Permit waiters. `whole` tells that none
    of its pods is missing.
    """

    key: Key
    queue: Queue | None
    case: Case
    held: Held
    reserved: tuple[tuple[str, Units], ...]
    whole: bool


class Judge:
    """Keeps the verdicts in step with gangs and nodes."""

    def __init__(self, rooms: Rooms) -> None:
        """Begin without gangs."""
        self._rooms = rooms
        self._waits: dict[Key, Wait] = {}
        self._by_case: dict[Case, dict[Key, Queue | None]] = defaultdict(dict)
        self._answers: dict[Case, str] = {}
        #: Cases that no node has been asked about since they came, and those that depend on nodes.
        self._new: dict[Case, None] = {}
        self._open: dict[Case, None] = {}
        self._blockers: dict[Key, str] = {}
        self._blocked: Counter[tuple[Queue, str]] = Counter()
        self._holders: dict[Key, Holder] = {}
        self._deadlocked: frozenset[Key] = frozenset()
        self._seen = (-1, False)
        self._moved = True

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
                self._moved = True
            self._rooms.reserve(wait.reserved)

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
                self._moved = True
            self._rooms.reserve(wait.reserved, -1)

    def verdicts(self, *, nodes_known: bool) -> Verdicts:
        """Return the verdicts; where the nodes and the pods on them are not known, only what does not take them."""
        seen = self._rooms.fleet.version, nodes_known
        for case in self._new:
            if takes_nodes(case):
                self._open[case] = None
        asked = self._open if seen != self._seen else [case for case in self._new if case in self._open]
        for case in {**self._new, **dict.fromkeys(asked)}:
            look = Outlook(case.asks, self._rooms.fleet) if nodes_known and case in self._open else None
            answer = blocker(case, look)
            if answer != self._answers.get(case):
                self._answers[case] = answer
                for key, queue in self._by_case[case].items():
                    self._untell(key, queue)
                    self._tell(key, queue, answer)
        if self._moved or seen != self._seen:
            self._deadlocked = deadlocked(self._holders.values(), self._rooms.fleet) if nodes_known else frozenset()
        # What was supposed meanwhile is no news.
        self._new, self._moved, self._seen = {}, False, (self._rooms.fleet.version, nodes_known)
        told = frozenset(key for key in self._deadlocked if self._waits[key].queue is not None)
        gpus: Counter[str] = Counter()
        for key in told:
            for amounts in self._waits[key].held.values():
                gpus.update(amounts)
        return Verdicts(self._blockers, self._blocked, told, gpus)

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
