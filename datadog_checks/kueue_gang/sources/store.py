# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The facts of one resource, and what changed in them since they were last asked for.

Facts are kept by namespace and name. A change is (fact before, fact now); an object that was written and still gives
the same fact has not changed, which most writes do not: a node posts its status every few minutes, a pod is annotated.
Objects that exist and cannot be understood are remembered by name.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

#: (namespace, name) of an object.
Name = tuple[str, str]
Facts = dict[str, dict[str, Any]]


def by_name(facts: list[Any]) -> Facts:
    """Return facts by namespace (empty for cluster-scoped ones) and name."""
    found: Facts = {}
    for fact in facts:
        found.setdefault(getattr(fact, "namespace", ""), {})[fact.name] = fact
    return found


class Table:
    """Facts by namespace and name. `unreadable` holds the names of objects that could not be understood.

    With `every_version` each version of an object is a change, not only the last one since changes were taken.
    """

    def __init__(self, *, every_version: bool = False) -> None:
        """Begin empty."""
        #: Versions between the one before and the one now, where they are wanted.
        self._between: dict[Name, list[Any]] | None = defaultdict(list) if every_version else None
        self._facts: Facts = {}
        self._before: dict[Name, Any] = {}
        self.unreadable: set[Name] = set()

    def __len__(self) -> int:
        """Return the number of facts."""
        return sum(map(len, self._facts.values()))

    def __iter__(self) -> Iterator[Any]:
        """Return every fact."""
        return (fact for facts in self._facts.values() for fact in facts.values())

    def get(self, name: Name) -> Any:  # noqa: ANN401 - the facts of all resources
        """Return the fact of an object, None where there is none."""
        facts = self._facts.get(name[0])
        return facts.get(name[1]) if facts else None

    def put(self, name: Name, fact: Any) -> None:  # noqa: ANN401
        """Set the fact of an object; None for one that is gone or not wanted."""
        namespace, own = name
        facts = self._facts.setdefault(namespace, {})
        self._keep(name, facts.get(own))
        if fact is not None:
            facts[own] = fact
        else:
            facts.pop(own, None)
        if not facts:
            del self._facts[namespace]

    def replace(self, facts: Facts) -> None:
        """Set the facts of all objects."""
        for namespace, before in self._facts.items():
            after = facts.get(namespace, {})
            for own, fact in before.items():
                if own not in after:
                    self._keep((namespace, own), fact)
        for namespace, after in facts.items():
            before = self._facts.get(namespace, {})
            for own, fact in after.items():
                old = before.get(own)
                if old == fact:
                    # The record that is known goes on, and with it all that refers to it.
                    after[own] = old
                else:
                    self._keep((namespace, own), old)
        self._facts = facts

    def _keep(self, name: Name, fact: Any) -> None:  # noqa: ANN401
        """Keep what an object was before it changes."""
        if name not in self._before:
            self._before[name] = fact
        elif self._between is not None:
            self._between[name].append(fact)

    def take_changes(self) -> list[tuple[Any, Any]]:
        """Return what changed since the last call: (fact before, fact now)."""
        before, self._before = self._before, {}
        changes = [(old, self.get(name)) for name, old in before.items()]
        if self._between:
            steps = {name: [before[name], *found, self.get(name)] for name, found in self._between.items()}
            self._between.clear()
            changes = [(old, self.get(name)) for name, old in before.items() if name not in steps]
            changes += [pair for found in steps.values() for pair in pairwise(found)]
        return [(old, new) for old, new in changes if old is not new and old != new]
