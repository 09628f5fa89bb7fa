# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""How the nodes of a flavor lie in a topology, what is free there, and what no flavor can see.

Levels and their order come from the Topology that a ResourceFlavor names, never from the look of a label. Where no
flavor names one that exists, the option `topology_levels` takes its place, over all GPU nodes. Kueue's own objects go
first, since they decide where its pods go.

A GPU node is one whose capacity has GPUs. It belongs to every flavor whose labels it has, so that figures of flavors
are never added up: `nodes_shared` counts the nodes for which that would be wrong. A flavor without labels selects every
node and names none, so it shares nothing.

`TopologyLedger` follows the nodes that `NodeLedger` brought up to date; when flavors or Topologies change, which is
rare, it begins anew.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from datadog_checks.kueue_gang.derive.domains import Domains, Layout, LayoutFigures, NodePart, Row, sizes_of
from datadog_checks.kueue_gang.derive.gpus import NodeLedger, selects
from datadog_checks.kueue_gang.derive.placement import NOWHERE, Placement, Places
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.derive.taints import takes_pods
from datadog_checks.kueue_gang.facts.cluster import Changes, follow
from datadog_checks.kueue_gang.facts.nodes import Node
from datadog_checks.kueue_gang.facts.quantity import Units
from datadog_checks.kueue_gang.facts.queues import ResourceFlavor
from datadog_checks.kueue_gang.facts.topology import Topology

Record = TypeVar("Record", bound=tuple[object, ...])

FLAVORS, TOPOLOGIES = "resourceflavors", "topologies"


class TopologyLedger:
    """The domains of every layout, and what GPUs the nodes of every flavor offer."""

    def __init__(self, rules: Rules, nodes: NodeLedger) -> None:
        """Begin without flavors; `nodes` is asked for what the nodes have."""
        self._rules = rules
        self._nodes = nodes
        self._sizes = sizes_of(rules.slots)
        self._flavors: dict[str, ResourceFlavor] = {}
        self._topologies: dict[str, Topology] = {}
        self._domains: dict[str, Domains] = {}
        self._allocatable: dict[str, Counter[str]] = {}
        #: By node: the flavors that select it, and the GPU units that it offers.
        self._offers: dict[str, tuple[tuple[str, ...], Units]] = {}
        self._incomplete: set[str] = set()
        self._shared: dict[Any, Any] = {}
        self._redefined = True
        self._places = NOWHERE
        self._known = False

    # --- taking changes ----------------------------------------------------------------------------------------------

    def take(self, changes: Changes) -> None:
        """Take flavors and Topologies that came, changed or went."""
        follow(self._flavors, changes.flavors)
        follow(self._topologies, changes.topologies)
        # A write that says the same, as when a list is read again, is no reason to begin anew.
        news = [old != new for old, new in changes.flavors], [old != new for old, new in changes.topologies]
        self._redefined |= any(map(any, news))
        known = changes.tells(FLAVORS, TOPOLOGIES)
        if self._redefined or known != self._known:
            self._known = known
            self._places = Places(self._layouts(), self._flavors) if known else NOWHERE

    @property
    def places(self) -> Places:
        """What placement is judged by: another object after each change of it."""
        return self._places

    def _layouts(self) -> dict[str, Layout]:
        """Return the layouts by flavor, '' for the option's."""
        found = {
            flavor.name: Layout(topology.name, flavor.name, topology.levels)
            for flavor in self._flavors.values()
            if (topology := self._topologies.get(flavor.topology)) and topology.levels
        }
        if not found and self._rules.topology_levels:
            return {"": Layout("", "", self._rules.topology_levels)}
        return found

    def refresh(self, moved: Collection[str]) -> bool:
        """Follow the nodes that were brought up to date; tell whether anything could have changed."""
        names: Iterable[str] = moved
        redefined, self._redefined = self._redefined, False
        if redefined:
            layouts = self._layouts()
            self._domains = {name: Domains(layout, self._rules.slots) for name, layout in layouts.items()}
            self._allocatable = {name: Counter() for name in self._flavors}
            self._offers, self._incomplete, self._shared = {}, set(), {}
            names = self._nodes.nodes
        changed: dict[str, list[tuple[str, NodePart | None]]] = {name: [] for name in self._domains}
        for name in names:
            self._update(name, changed)
        for name, parts in changed.items():
            if parts:
                self._domains[name].update(parts)
        return redefined or bool(moved)

    def _update(self, name: str, changed: Mapping[str, list[tuple[str, NodePart | None]]]) -> None:
        selected: tuple[str, ...]
        offered: Units
        selected, offered = self._offers.pop(name, ((), ()))
        for flavor in selected:
            for resource, amount in offered:
                self._allocatable[flavor][resource] -= amount
        self._incomplete.discard(name)
        node = self._nodes.nodes.get(name)
        is_gpu_node = node is not None and any(node.capacity.values())
        if node and is_gpu_node:
            selected = tuple(flavor.name for flavor in self._flavors.values() if selects(flavor, node))
            offered = tuple(sorted(node.allocatable.items()))
            self._offers[name] = self._share((selected, offered))
            for flavor in selected:
                self._allocatable[flavor].update(dict(offered))
        for flavor, domains in self._domains.items():
            if node and is_gpu_node and (flavor in selected or not flavor):
                part = self._part(node, domains.layout, selected)
                changed[flavor].append((name, part))
                if None in part.values:
                    self._incomplete.add(name)
            elif name in domains.parts:
                changed[flavor].append((name, None))

    def _part(self, node: Node, layout: Layout, selected: Sequence[str]) -> NodePart:
        labels = node.labels
        values = tuple(None if labels is None else labels.get(level) for level in layout.levels)
        # The levels of the option are for any flavor, or for none.
        tolerant = [self._flavors[name].tolerations for name in ([layout.flavor] if layout.flavor else selected)]
        # Kueue leaves out a node that lacks any level; without it a node is as good as the labels that it has.
        seen = None not in values or not layout.flavor
        able = seen and takes_pods(node, self._nodes.tolerating, chain(self._rules.tolerated_taints, *tolerant))
        having = tuple((resource, amount) for resource, amount in node.capacity.items() if amount)
        others = (self._flavors[name] for name in selected if name != layout.flavor) if layout.flavor else ()
        return NodePart(
            values=values,
            capacity=self._share(having),
            allocated=sum(self._nodes.allocated(node.name, resource) for resource, _ in having),
            rows=self._share(tuple((resource, self._row(node, resource)) for resource, _ in having) if able else ()),
            shared=any(flavor.node_labels for flavor in others),
        )

    def _row(self, node: Node, resource: str) -> Row:
        free = self._nodes.free(node.name, resource) or 0
        return (free, *(free // size for size in self._sizes))

    def _share(self, value: Record) -> Record:
        """Return an equal record that is there already: nodes that are alike share theirs."""
        found: Record = self._shared.setdefault(value, value)
        return found

    # --- telling -----------------------------------------------------------------------------------------------------

    def figures(self) -> tuple[LayoutFigures, ...] | None:
        """Return what is told of every layout that has nodes, by topology and flavor; None where that is not known."""
        if not self._known:
            return None
        found = [domains.figures() for domains in self._domains.values() if domains.parts]
        return tuple(sorted(found, key=lambda one: (one.layout.topology, one.layout.flavor)))

    def unobservable(self, *, nodes_read: bool) -> dict[tuple[str, str], int]:
        """Return the number of GPU nodes of these layouts that lack the label of a level, by (signal, reason)."""
        known = nodes_read and self._known
        return {("placement", "no_label"): len(self._incomplete)} if known and self._incomplete else {}

    def allocatable(self, flavor: str, resource: str) -> int:
        """Return the GPU units that the nodes of a flavor offer."""
        offered = self._allocatable.get(flavor)
        return offered[resource] if offered else 0

    @property
    def flavors(self) -> Mapping[str, ResourceFlavor]:
        """All flavors by name."""
        return self._flavors

    def needed(self, placement: Placement) -> dict[str, int]:
        """Return the least number of domains by level that could hold the placed members of a gang.

        Equal pods are counted, those of unequal requests by the GPUs of all of them, which is a lower bound. A level at
        which all domains together could not hold them is left out: some of its nodes take no pods any more.
        """
        domains = self._domains.get(placement.flavor)
        least: list[int | None] = [0] * len(placement.levels)
        if domains is None or domains.layout.levels != placement.levels:
            return {}
        for resource in sorted({resource for pod in placement.pods for resource, _ in pod.spec.gpus}):
            amounts = [(pod.node, dict(pod.spec.gpus).get(resource, 0)) for pod in placement.pods]
            own: Counter[str] = Counter()
            for node, amount in amounts:
                own[node] += amount
            sizes = {amount for _, amount in amounts if amount}
            size = sizes.pop() if len(sizes) == 1 else 1
            found = domains.least(resource, size, sum(own.values()) // size, own)
            least = [None if a is None or b is None else max(a, b) for a, b in zip(least, found, strict=True)]
        return {level: number for level, number in zip(placement.levels, least, strict=True) if number}
