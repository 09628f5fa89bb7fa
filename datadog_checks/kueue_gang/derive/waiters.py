# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The Permit waiters of the whole cluster, and what settles which of those that may wait do.

A component knows which of its members wait for certain and which may. Who of these does is asked of the room on the
nodes and of the scheduler's own count, over all components that have some (see `permit`).
"""

from collections.abc import Iterator

from datadog_checks.kueue_gang.derive.components import Component
from datadog_checks.kueue_gang.derive.gpus import NodeLedger
from datadog_checks.kueue_gang.derive.permit import (
    ANY_UNPLACED,
    CERTAIN,
    POSSIBLE,
    Candidate,
    settle_by_count,
    settle_by_room,
)
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.derive.traces import Traces
from datadog_checks.kueue_gang.facts.cluster import SchedulerCount

#: Classes of members whose settling takes the whole cluster.
_TO_SETTLE = frozenset({CERTAIN, POSSIBLE})


class Waiters:
    """The components with members that wait, or may."""

    def __init__(self, rules: Rules) -> None:
        """Begin without any."""
        self.traces = Traces(rules)
        self._sensitive = _TO_SETTLE
        #: Components with members that wait or may wait, and those of them with members to settle, by id.
        self._waiting: dict[int, Component] = {}
        self._doubtful: dict[int, Component] = {}

    def turned(self, count: SchedulerCount | None) -> bool:
        """Find which classes the scheduler's count may settle; tell whether that changed."""
        sensitive = _TO_SETTLE if self.traces.shown(count) else _TO_SETTLE | frozenset(ANY_UNPLACED)
        changed, self._sensitive = sensitive != self._sensitive, sensitive
        return changed

    def register(self, component: Component) -> None:
        """Take a component whose members have their classes."""
        doubtful = self._sensitive - {CERTAIN}
        for holder, wanted in ((self._waiting, self._sensitive), (self._doubtful, doubtful)):
            if any(not wanted.isdisjoint(classes) for classes in component.classes):
                holder[id(component)] = component
            else:
                holder.pop(id(component), None)

    def forget(self, component: Component) -> None:
        """Forget a component that is no more."""
        self._waiting.pop(id(component), None)
        self._doubtful.pop(id(component), None)

    def settle(self, count: SchedulerCount | None, ledger: NodeLedger | None) -> dict[int, Component]:
        """Settle the waiters of the cluster; return the components in which that changed something.

        `ledger` is None where the nodes cannot be read.
        """
        if not self._doubtful:
            # Those that wait for certain are known by themselves: nobody asks what they leave to others.
            return {}
        candidates = sorted(
            self._candidates(), key=lambda one: (one.gang.engine, one.gang.namespace, one.gang.name)
        )  # fmt: skip
        if ledger is not None:
            settle_by_room(candidates, ledger)
        settle_by_count(candidates, count, shows=self._sensitive == _TO_SETTLE)
        settled = {id(candidate.gang): (candidate.classes, candidate.counted) for candidate in candidates}
        changed = {}
        for component in self._waiting.values():
            gangs = component.found.gangs if component.found else ()
            now_settled = [settled[id(gang)] for gang in gangs]
            if now_settled != component.settled:
                component.settled = now_settled
                changed[id(component)] = component
        return changed

    def _candidates(self) -> Iterator[Candidate]:
        for component in self._waiting.values():
            gangs = component.found.gangs if component.found else ()
            for gang, classes in zip(gangs, component.classes, strict=False):
                yield Candidate(gang, list(classes))
