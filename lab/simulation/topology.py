# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Topology aware scheduling: which nodes Kueue gives to the pods of a Workload, or why it gives none.

A node counts that is of the flavor, carries a label of every level, is Ready and not cordoned; what lacks a label is
passed over without a word. Its room is what neither other admitted Workloads of a topology nor pods of nobody hold.

`required`: the smallest domain of the level that holds all pods. `preferred`: the same, else one of a wider level, else
over several. Without either any node will do. Source: Kueue, pkg/cache/scheduler/tas_flavor_snapshot.go.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lab.simulation.state import GPU, HOSTNAME, Flavor, Job, Node, Workload

REQUIRED: Final = "required"
_Path = tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """The nodes for a Workload with the number of pods on each, or the text that says why there are none."""

    domains: tuple[tuple[str, int], ...] = ()
    refused: str = ""


def room(flavor: Flavor, nodes: Iterable[Node], workloads: Iterable[Workload]) -> dict[Node, int]:
    """Return the free GPUs of the nodes that count, as Kueue reckons them."""
    found = {
        node: node.gpus
        for node in nodes
        if flavor.labels.items() <= node.labels.items()
        and all(level in node.labels for level in flavor.levels)
        and node.ready
        and node.cordoned is None
        and not node.taints
    }
    names = {node.name: node for node in found}
    placed = [one for one in workloads if one.holds_quota and one.flavor == flavor.name]
    for one in placed:
        for host, number in one.domains:
            if host in names:
                found[names[host]] -= number * one.job.gpus
    for node in found:
        found[node] -= sum(
            pod.gpus for pod in node.pods if pod.job is None or pod.job.workload is None or not pod.job.workload.domains
        )
    return found


def place(job: Job, flavor: Flavor, free: dict[Node, int]) -> Place:
    """Return where the pods of a job may go."""
    fits = {node: max(0, amount) // job.gpus for node, amount in free.items()}
    how, level = job.level or ("", HOSTNAME)
    if how == "":
        return _spread(job, flavor, fits)
    depth = flavor.levels.index(level) + 1
    domains = _domains(flavor, fits, depth)
    best = _best(domains, fits, job.size)
    while best is None and how != REQUIRED and depth > 0:
        depth -= 1
        domains = _domains(flavor, fits, depth)
        best = _best(domains, fits, job.size)
    if best is None:
        most = max((sum(fits[node] for node in nodes) for nodes in domains.values()), default=0)
        return Place(refused=_refusal(job, flavor, fits, most))
    return Place(_hosts(flavor, fits, domains[best], job.size, depth))


def _spread(job: Job, flavor: Flavor, fits: dict[Node, int]) -> Place:
    """Return any nodes; the fullest first, as without a constraint."""
    if sum(fits.values()) < job.size:
        return Place(refused=_refusal(job, flavor, fits, sum(fits.values())))
    left = job.size
    found: list[tuple[str, int]] = []
    for node in sorted(fits, key=lambda node: (fits[node], node.name)):
        number = min(left, fits[node])
        if number:
            found.append((node.name, number))
            left -= number
    return Place(tuple(sorted(found)))


def _domains(flavor: Flavor, fits: dict[Node, int], depth: int) -> dict[_Path, list[Node]]:
    """Return the nodes by their domain at a depth: 0 is all of them."""
    found: dict[_Path, list[Node]] = {}
    for node in fits:
        found.setdefault(tuple(node.labels[level] for level in flavor.levels[:depth]), []).append(node)
    return found


def _best(domains: dict[_Path, list[Node]], fits: dict[Node, int], wanted: int) -> _Path | None:
    """Return the domain that holds so many pods and leaves least over."""
    sizes = {path: sum(fits[node] for node in nodes) for path, nodes in domains.items()}
    able = [path for path, size in sizes.items() if size >= wanted]
    return min(able, key=lambda path: (sizes[path], path), default=None)


def _hosts(
    flavor: Flavor, fits: dict[Node, int], nodes: list[Node], wanted: int, depth: int
) -> tuple[tuple[str, int], ...]:
    """Return hosts in a domain: of each lower level as few domains as will do, the last as small as it may."""
    if depth >= len(flavor.levels):
        return ((nodes[0].name, wanted),) if len(nodes) == 1 else ()
    parts: dict[str, list[Node]] = {}
    for node in nodes:
        parts.setdefault(node.labels[flavor.levels[depth]], []).append(node)
    sizes = {name: sum(fits[node] for node in part) for name, part in parts.items()}
    left = wanted
    found: list[tuple[str, int]] = []
    while left > 0:
        able = [name for name, size in sizes.items() if size >= left]
        name = min(able, key=lambda one: (sizes[one], one)) if able else min(sizes, key=lambda one: (-sizes[one], one))
        number = min(left, sizes.pop(name))
        found += _hosts(flavor, fits, parts[name], number, depth + 1)
        left -= number
    return tuple(sorted(found))


def _refusal(job: Job, flavor: Flavor, fits: dict[Node, int], most: int) -> str:
    allows = (
        f"allows to fit only {most} out of {job.size} pod(s)"
        if most
        else f"doesn't allow to fit any of {job.size} pod(s)"
    )
    full = sum(number == 0 for number in fits.values())
    excluded = f'; excluded: resource "{GPU}": {full}' if full else ""
    return f'topology "{flavor.topology}" {allows}. Total nodes: {len(fits)}{excluded}'
