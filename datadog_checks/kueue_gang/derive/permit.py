# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Which possible Permit waiters wait for certain.

After a rejection the API cannot tell a pod that waits again from one that does not (see `members`). Two facts settle
it:

* Room. A pod that waits is assumed on a node and fits there beside the other waiters. A possible waiter whose node has
  no
  room (or, where it names none, for which no node has) does not wait.
* The scheduler's count of waiting pods (`facts.cluster.SchedulerCount`). It has no gang label, so it settles gangs
  where
  the sums allow one reading only: all of them wait, none does, or just one gang is in doubt.

What stays in doubt stays `waiting_possible`.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Protocol

from datadog_checks.kueue_gang.derive.gangs import Gang
from datadog_checks.kueue_gang.derive.members import member_class
from datadog_checks.kueue_gang.facts.cluster import SchedulerCount
from datadog_checks.kueue_gang.facts.pods import Pod


class Room(Protocol):
    """What the nodes have free."""

    def free(self, node: str, resource: str) -> int | None:
        """Return the free units of a node, None where there is no such node."""

    def largest(self, resource: str) -> int:
        """Return the most free units that any node has."""


#: First Kubernetes minor whose scheduler writes the chosen node of a waiting pod (KEP-5278, beta).
SHOWS_WAITS_FROM = 35

POSSIBLE = "waiting_possible"
CERTAIN = "waiting_permit"
#: Classes that may hide a wait where the scheduler shows none, the likeliest first.
ANY_UNPLACED = (POSSIBLE, "new", "rejected", "unschedulable")


#: Engines whose scheduler holds pods in Permit.
_WITH_PERMIT = frozenset({"coscheduling", "kubernetes"})


def can_wait(gang: Gang) -> bool:
    """Tell whether the scheduler may hold members of a gang in Permit: only where it knows of the gang."""
    return gang.engine in _WITH_PERMIT and not gang.orphan


@dataclass(slots=True)
class Candidate:
    """A gang with the classes of its members, which settling changes; `counted` if the scheduler's count settled it."""

    gang: Gang
    classes: list[str]
    counted: bool = False

    def indexes(self, name: str) -> list[int]:
        """Return the positions of the members of a class."""
        return [index for index, found in enumerate(self.classes) if found == name]


def settle_by_room(candidates: list[Candidate], room: Room) -> None:
    """Turn possible waiters for which there is no room into what they are without their nomination."""
    reserved: dict[tuple[str, str], int] = defaultdict(int)
    for candidate in candidates:
        for index in candidate.indexes(CERTAIN):
            pod = candidate.gang.members[index]
            for resource, amount in pod.spec.gpus:
                reserved[pod.nominated, resource] += amount

    def fits(pod: Pod, resource: str, amount: int) -> bool:
        if not pod.nominated:
            # Which node holds it is not known, and what the certain waiters leave of the largest is not looked up.
            return room.largest(resource) >= amount
        free = room.free(pod.nominated, resource)
        return free is not None and free - reserved[pod.nominated, resource] >= amount

    for candidate in candidates:
        for index in candidate.indexes(POSSIBLE):
            pod = candidate.gang.members[index]
            if not all(fits(pod, resource, amount) for resource, amount in pod.spec.gpus):
                candidate.classes[index] = _not_waiting(pod)


def settle_by_count(candidates: list[Candidate], count: SchedulerCount | None, *, shows: bool) -> None:
    """Settle what the scheduler's count allows to settle.

    Args:
        candidates: the gangs; only members of the scheduler's profiles take part.
        count: the scheduler's count, None where it was not read.
        shows: whether the scheduler writes the node of a waiting pod. One that does not (before 1.35) may hold any pod
            that it has not gated.

    """
    if count is None or count.waiting is None:
        return
    doubtful = (POSSIBLE,) if shows else ANY_UNPLACED
    certain = 0
    doubts: list[tuple[Candidate, list[int]]] = []
    for candidate in candidates:
        if not can_wait(candidate.gang):
            continue
        served = [pod.spec.scheduler in count.profiles for pod in candidate.gang.members]
        certain += sum(served[index] for index in candidate.indexes(CERTAIN))
        indexes = [index for name in doubtful for index in candidate.indexes(name) if served[index]]
        if indexes:
            doubts.append((candidate, indexes))
    unexplained = count.waiting - certain
    total = sum(len(indexes) for _, indexes in doubts)
    if not 0 <= unexplained <= total:
        # The count and the pods are of different moments: neither may overrule the other.
        return
    for candidate, indexes in doubts:
        if unexplained in {0, total}:
            # Nothing is unexplained: nobody waits but the certain ones. All is unexplained: everybody waits.
            _settle(candidate, indexes, len(indexes) if unexplained else 0)
        elif len(doubts) == 1 and len({candidate.gang.members[index].spec.gpus for index in indexes}) == 1:
            # Which of the equal members wait cannot be told and does not matter: the numbers are the same.
            _settle(candidate, indexes, unexplained)


def _settle(candidate: Candidate, indexes: list[int], waiting: int) -> None:
    """Let `waiting` of the members wait: first those with a nomination, then by how likely their class hides a wait."""
    members, classes = candidate.gang.members, candidate.classes
    candidate.counted = True
    likely = sorted(indexes, key=lambda index: (not members[index].nominated, ANY_UNPLACED.index(classes[index])))
    for position, index in enumerate(likely):
        classes[index] = CERTAIN if position < waiting else _not_waiting(members[index])


def _not_waiting(pod: Pod) -> str:
    """Return the class of a possible waiter that does not wait."""
    found = member_class(pod, lost=False, nominated=False)
    return "rejected" if found == POSSIBLE else found
