# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Nodes: their GPUs, whether they work, and what keeps pods away from them.

Every node is kept, also those without GPUs: a member without a GPU (a launcher) is lost with its node like any other.
"""

from collections.abc import Callable
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
    labels: dict[str, str] | None
    capacity: dict[str, int]
    allocatable: dict[str, int]
    ready: Condition | None
    cordoned: bool
    taints: tuple[Taint, ...]


def reducer(gpus: GpuResources) -> Callable[[Json], Node]:
    """Return the function that makes `Node` facts."""
    return partial(_node, gpus)


def _node(gpus: GpuResources, obj: Json) -> Node:
    metadata, _, name = identity(obj)
    spec, status = mapping(obj, "spec"), mapping(obj, "status")
    capacity = gpus.read(mapping(status, "capacity"))
    allocatable = gpus.read(mapping(status, "allocatable"))
    return Node(
        name=name,
        created=moment(metadata, "creationTimestamp") or 0.0,
        labels=strings(metadata, "labels") if capacity or allocatable else None,
        # A server that states only one of the two means the same number for both.
        capacity=capacity or allocatable,
        allocatable=allocatable,
        ready=conditions(status, _CONDITIONS).get("Ready"),
        cordoned=flag(spec, "unschedulable"),
        taints=tuple(
            Taint(text(taint, "key"), text(taint, "value"), text(taint, "effect")) for taint in items(spec, "taints")
        ),
    )
