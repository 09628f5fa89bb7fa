# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Nodes: their GPUs, whether they work, and what keeps pods away from them.

Every node is kept, also those without GPUs: a member without a GPU (a launcher) is lost with its node like any other.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from datadog_checks.kueue_gang.facts.fields import (
    Condition,
    Json,
    conditions,
    flag,
    identity,
    items,
    mapping,
    moment,
    strings,
    text,
)
from datadog_checks.kueue_gang.facts.quantity import GpuResources

_CONDITIONS = frozenset({"Ready"})
#: Bound of the memory of sets of label keys: nodes of one kind share one.
_MAX_KEY_SETS = 1000


class Labels:
    """The labels of a node. A GPU node has a hundred, of which most are those of every node like it.

    The keys are shared by the nodes that have the same ones, and equal values by all nodes, so that ten thousand nodes
    do not cost a million strings.
    """

    __slots__ = ("_values", "_where")

    def __init__(self, where: Mapping[str, int], values: tuple[str, ...]) -> None:
        """Take where each key's value stands, and the values."""
        self._where = where
        self._values = values

    def get(self, key: str) -> str | None:
        """Return the value of a label, None where the node lacks it."""
        index = self._where.get(key)
        return None if index is None else self._values[index]

    def plus(self, labels: Mapping[str, str]) -> "Labels":
        """Return these labels with some more, or with other values."""
        mine = {key: self._values[index] for key, index in self._where.items()} | dict(labels)
        return Labels({key: index for index, key in enumerate(mine)}, tuple(mine.values()))

    def __eq__(self, other: object) -> bool:
        """Compare keys and values."""
        return isinstance(other, Labels) and self._where == other._where and self._values == other._values

    __hash__ = None  # type: ignore[assignment] # records of nodes are compared, never looked up


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Node:
    """A node.

    `capacity` and `allocatable` are GPU units by resource, zeros kept: 0 of 8 is a device plugin that is down. `labels`
    is None for nodes without GPUs: no rule asks for them.
    """

    name: str
    created: float
    labels: Labels | None
    capacity: dict[str, int]
    allocatable: dict[str, int]
    ready: Condition | None
    cordoned: bool
    taints: tuple[Taint, ...]


def reducer(gpus: GpuResources) -> Callable[[Json], Node]:
    """Return the function that makes `Node` facts."""
    return partial(_node, gpus, {})


def _labels(known: dict[tuple[str, ...], Mapping[str, int]], labels: Json) -> Labels:
    keys = tuple(labels)
    where = known.get(keys)
    if where is None:
        if len(known) >= _MAX_KEY_SETS:
            known.clear()
        where = known[keys] = {key: index for index, key in enumerate(keys)}
    return Labels(where, tuple(text(labels, key) for key in keys))


def _node(gpus: GpuResources, known: dict[tuple[str, ...], Mapping[str, int]], obj: Json) -> Node:
    metadata, _, name = identity(obj)
    spec, status = mapping(obj, "spec"), mapping(obj, "status")
    capacity = gpus.read(mapping(status, "capacity"))
    allocatable = gpus.read(mapping(status, "allocatable"))
    return Node(
        name=name,
        created=moment(metadata, "creationTimestamp") or 0.0,
        labels=_labels(known, strings(metadata, "labels")) if capacity or allocatable else None,
        # A server that states only one of the two means the same number for both.
        capacity=capacity or allocatable,
        allocatable=allocatable,
        ready=conditions(status, _CONDITIONS).get("Ready"),
        cordoned=flag(spec, "unschedulable"),
        taints=tuple(
            Taint(text(taint, "key"), text(taint, "value"), text(taint, "effect")) for taint in items(spec, "taints")
        ),
    )
