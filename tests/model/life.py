# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Clusters that are looked at now and then: one check sees picture after picture, or another one goes on.

life = Life()
life.look(200, pod_group("train", 2))
picture = life.look(120, pod_group("train", 2), ready("a", of_group("train"), "n0"))
assert told(picture) == {}
"""

from collections.abc import Mapping
from typing import Any

from datadog_checks.kueue_gang.derive.deriver import Deriver
from datadog_checks.kueue_gang.derive.picture import GangView, Happenings, Picture
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.facts.cluster import Changes
from tests.model.build import NOW, SOURCES, Json, local_queue, node, reducers

NODES = tuple(node(name) for name in ("n0", "n1"))
QUEUE = local_queue("lq", "cq")


class Life:
    """A cluster that is looked at now and then; times of objects are seconds before `NOW`, as in `build`."""

    def __init__(self) -> None:
        """Begin with a check that has seen nothing."""
        self._reduce = reducers(Rules())
        self._facts: dict[tuple[str, str, str], Any] = {}
        self._deriver = Deriver(Rules())

    def restart(self) -> None:
        """Let another check go on."""
        self._deriver = Deriver(Rules())
        self._facts = {}

    def look(
        self, seconds: float, *objects: Json, between: tuple[Json, ...] = (), unread: Mapping[str, str] | None = None
    ) -> Picture:
        """Return the picture of a cluster with these objects and no others, so many seconds before `NOW`.

        `between` are versions of objects that came and went since the look before; `unread` are the sources that cannot
        be read, of which nothing is known.
        """
        found: dict[tuple[str, str, str], Any] = {}
        steps: list[tuple[str, Any, Any]] = []
        for obj in (*between, *NODES, QUEUE, *objects):
            source, field = SOURCES[obj["apiVersion"].split("/")[0], obj["kind"]]
            if source in (unread or {}):
                continue
            key = source, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
            fact = self._reduce[source](obj)
            old = self._facts.get(key)
            if old != fact:
                steps.append((field, old, fact))
            self._facts[key] = fact
            if obj not in between:
                found[key] = fact
        for key in self._facts.keys() - found.keys():
            field = dict(SOURCES.values())[key[0]]
            steps.append((field, self._facts.pop(key), None))
        changes: dict[str, Any] = {}
        for field, old, new in steps:
            changes.setdefault(field, []).append((old, new))
        return self._deriver.apply(Changes(**changes, unread=unread or {}), NOW - seconds)


def happened(picture: Picture) -> Happenings:
    """Return what happened."""
    return picture.happened


def told(picture: Picture) -> dict[str, Any]:
    """Return everything that happened, without what did not."""
    found = picture.happened
    named = {
        "assembled": {tuple(queue): seconds for queue, seconds in found.assembled.items()},
        "rejected": {reason: number for (_, reason), number in found.rejected.items()},
        "stages": {stage: seconds for (*_, stage), seconds in found.stages.items()},
        "evicted": dict(found.evicted),
        "burned": {reason: amount for (_, _, reason), amount in found.burned.items()},
    }
    return {name: value for name, value in named.items() if value}


def gang(picture: Picture) -> GangView:
    """Return the one gang of a picture."""
    (view,) = picture.views
    return view
