# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Kueue's Topology objects, and the topology assignment of an admitted Workload in both its forms.

A Topology lists node label keys, widest level first. An assignment says how many pods of a podset go to which domain:

A podset asks for a place in its `topologyRequest`; most have one only to carry the names of index labels, which asks
for nothing.

* v1beta1 lists domains: `{levels: [...], domains: [{values: [one per level], count: n}]}`.
* v1beta2 packs them in slices, each `{domainCount, valuesPerLevel: [...], podCounts}`. A level's values are `universal`
  (the same for all domains of the slice) or `individual` with an optional prefix and suffix around each root; a root
  may be the empty string (`worker`, `worker2` share the prefix `worker`). Slices come in rank order, several since
  0.19.

Where the lowest level is the hostname, Kueue stores that level only; wider ones must be looked up on the nodes. Source:
apis/kueue/v1beta2/workload_types.go, pkg/util/tas.
"""

from dataclasses import dataclass
from typing import NamedTuple

from datadog_checks.kueue_gang.facts.fields import BadObjectError, Json, count, flag, identity, items, mapping, text

#: A slice of more domains is no assignment: etcd could not hold the Workload.
_MAX_DOMAINS = 100_000


@dataclass(frozen=True, slots=True)
class Topology:
    """A Topology: the node label of each level, widest first."""

    name: str
    levels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where Kueue put the pods of a podset: (values of the levels, number of pods), in rank order."""

    levels: tuple[str, ...]
    domains: tuple[tuple[tuple[str, ...], int], ...]


class Request(NamedTuple):
    """What a podset asks of its topology; levels are node labels, '' where it asks for none.

    `required`: all pods in one domain of that level. `preferred`: so, or else spread. `unconstrained`: anywhere. Each
    of `slices` is (level, pods): every so many pods in one domain of that level, in rank order.
    """

    required: str = ""
    preferred: str = ""
    unconstrained: bool = False
    slices: tuple[tuple[str, int], ...] = ()


def request(obj: Json) -> Request | None:
    """Read a `topologyRequest`; None where it asks for nothing.

    Slices are one level and size up to v1beta1, and a list of constraints, widest first, since 0.17.
    """
    if not obj:
        return None
    pairs = [(text(obj, "podSetSliceRequiredTopology"), count(obj, "podSetSliceSize") or 0)]
    listed = items(obj, "podsetSliceRequiredTopologyConstraints")
    pairs += [(text(one, "topology"), count(one, "size") or 0) for one in listed]
    found = Request(
        required=text(obj, "required"),
        preferred=text(obj, "preferred"),
        unconstrained=flag(obj, "unconstrained"),
        slices=tuple(dict.fromkeys((level, size) for level, size in pairs if level and size > 0)),
    )
    return found if found != Request() else None


def topology(obj: Json) -> Topology:
    """Read a Topology."""
    _, _, name = identity(obj)
    return Topology(
        name=name, levels=tuple(text(level, "nodeLabel") for level in items(mapping(obj, "spec"), "levels"))
    )


def assignment(obj: Json) -> Assignment | None:
    """Read a `topologyAssignment` of either version; None for an empty mapping.

    Raises:
        BadObjectError: its parts contradict each other.

    """
    if not obj:
        return None
    levels = obj.get("levels") or []
    domains = [domain for piece in items(obj, "slices") for domain in _slice(piece)]
    domains += [(_values(domain), count(domain, "count") or 0) for domain in items(obj, "domains")]
    if any(len(values) != len(levels) for values, _ in domains):
        msg = "topologyAssignment has domains with another number of values than levels"
        raise BadObjectError(msg)
    return Assignment(levels=tuple(map(str, levels)), domains=tuple(domains))


def _values(domain: Json) -> tuple[str, ...]:
    values = domain.get("values")
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        msg = "topologyAssignment has a domain without values"
        raise BadObjectError(msg)
    return tuple(values)


def _slice(piece: Json) -> list[tuple[tuple[str, ...], int]]:
    size = count(piece, "domainCount") or 0
    if size > _MAX_DOMAINS:
        msg = "topologyAssignment slice has too many domains"
        raise BadObjectError(msg)
    columns = [_level_values(level, size) for level in items(piece, "valuesPerLevel")]
    pods = mapping(piece, "podCounts")
    universal = count(pods, "universal")
    counts = pods.get("individual") if universal is None else [universal] * size
    if not isinstance(counts, list) or len(counts) != size:
        msg = "topologyAssignment slice has another number of pod counts than domains"
        raise BadObjectError(msg)
    rows = zip(*columns, strict=True) if columns else [()] * size
    return list(zip(rows, (count({"podCounts": number}, "podCounts") or 0 for number in counts), strict=True))


def _level_values(level: Json, size: int) -> list[str]:
    universal = level.get("universal")
    if isinstance(universal, str):
        return [universal] * size
    individual = mapping(level, "individual")
    roots = individual.get("roots")
    if not isinstance(roots, list) or len(roots) != size or not all(isinstance(root, str) for root in roots):
        msg = "topologyAssignment slice has another number of roots than domains"
        raise BadObjectError(msg)
    prefix, suffix = text(individual, "prefix"), text(individual, "suffix")
    return [f"{prefix}{root}{suffix}" for root in roots]
