# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What is told of all components: the views of their gangs, sums over them, and what is remembered of them.

A component that is drawn anew takes back what it had told and adds what it tells now, so the sums cost what changed. A
gang is remembered beyond that, since its component is drawn anew with what was remembered: it is forgotten only when no
component tells of it any more. Each drawing also says until when it holds if nothing changes; these times stand in a
queue, in which one that was taken back is left, and passed over when it comes up.
"""

from collections import Counter
from heapq import heappop, heappush

from datadog_checks.kueue_gang.derive.components import Component
from datadog_checks.kueue_gang.derive.drawing import NEVER, NOT_DRAWN, Drawn
from datadog_checks.kueue_gang.derive.picture import GangView, Gpus, Summary, Workloads
from datadog_checks.kueue_gang.derive.transitions import STILL, Key, Memory


class Told:
    """The drawings of components together. `views` are by id, `hidden` counts gangs by what hides their waits."""

    def __init__(self, memory: Memory) -> None:
        """Begin with nothing but what was remembered before."""
        self.views: dict[int, GangView] = {}
        self.gpus = Gpus()
        self.summary = Summary()
        self.unobservable: Counter[tuple[str, str]] = Counter()
        self.hidden: Counter[frozenset[str]] = Counter()
        self.workloads = Workloads()
        self._complete: dict[Key, float] = dict(memory.complete)
        self._attention: dict[Key, float] = dict(memory.attention)
        #: Components that were drawn, by id.
        self._drawn: dict[int, Component] = {}
        self._due: list[tuple[float, int]] = []

    def before(self, at: float) -> Memory:
        """Return what is remembered, as of a time; it is not copied."""
        return Memory(at, self._complete, self._attention)

    def memory(self, at: float) -> Memory:
        """Return what is remembered of the gangs that are told of, for a deriver after this one."""
        present = {key for component in self._drawn.values() for key in component.drawn.keys}
        return Memory(
            at,
            {key: time for key, time in self._complete.items() if key in present},
            {key: at if time == STILL else time for key, time in self._attention.items() if key in present},
        )

    def add(self, component: Component, drawn: Drawn) -> set[Key]:
        """Take the drawing of a component; return the gangs that are remembered for it."""
        component.drawn = drawn
        self._drawn[id(component)] = component
        self.gpus.add(drawn.gpus)
        self.unobservable.update(drawn.unobservable)
        self.hidden.update(drawn.hidden)
        self._complete.update(drawn.memory.complete)
        for gang in component.found.gangs if component.found else ():
            if gang.key not in drawn.memory.attention:
                self._attention.pop(gang.key, None)
        self._attention.update(drawn.memory.attention)
        for one in drawn.staged:
            self.workloads.add(one)
        for view in drawn.views:
            self.summary.add(view)
            self.views[id(view)] = view
        if drawn.until != NEVER:
            heappush(self._due, (drawn.until, id(component)))
        return drawn.keys

    def take_back(self, component: Component) -> Drawn | None:
        """Take back what was told of a component; return its drawing, None where there was none."""
        drawn, component.drawn = component.drawn, NOT_DRAWN
        if self._drawn.pop(id(component), None) is None:
            return None
        self.gpus.subtract(drawn.gpus)
        self.unobservable.subtract(drawn.unobservable)
        self.hidden.subtract(drawn.hidden)
        for one in drawn.staged:
            self.workloads.add(one, -1)
        for view in drawn.views:
            self.summary.add(view, -1)
            del self.views[id(view)]
        return drawn

    def overdue(self, now: float) -> dict[int, Component]:
        """Return the components in which the time alone has changed something."""
        overdue = {}
        while self._due and self._due[0][0] <= now:
            until, number = heappop(self._due)
            component = self._drawn.get(number)
            if component and component.drawn.until == until:
                overdue[number] = component
        return overdue

    def forget(self, gone: set[Key]) -> None:
        """Forget what was remembered of gangs that are no more, or of which there is nothing to remember."""
        for key in gone:
            self._complete.pop(key, None)
            self._attention.pop(key, None)
