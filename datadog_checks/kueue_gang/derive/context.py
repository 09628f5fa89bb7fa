# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What a component is seen against: the rest of the cluster, as far as it decides what is told of the component."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from datadog_checks.kueue_gang.derive.activity import ActivityBook
from datadog_checks.kueue_gang.derive.kueue import Kueue
from datadog_checks.kueue_gang.derive.placement import NOWHERE, Places
from datadog_checks.kueue_gang.derive.prices import Prices
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.derive.throughput import ThroughputBook
from datadog_checks.kueue_gang.facts.nodes import Node
from datadog_checks.kueue_gang.facts.pods import Pod


@dataclass(frozen=True, slots=True)
class Context:
    """What a component is seen against.

    `nodes` is None where they were not read; `unreadable_nodes` exist and could not be understood; `lost_from` says
    when those that are not Ready turn lost. `queues` maps (namespace, LocalQueue) to its ClusterQueue. `schedulers` are
    the names known to serve gangs, `workloads_known` is False where Kueue is there and its Workloads were not read,
    `nodes_in_step` is False where nodes may have come that are not known, `kueue` has Kueue's other objects,
    `places` is what placement is judged by. `doubted` are the namespaces with pods that could not be understood.
    `activity` and `throughput` tell what the signals of GPUs and jobs say, `prices` what GPUs cost.
    """

    rules: Rules
    nodes: Mapping[str, Node] | None
    lost_from: Mapping[str, float]
    unreadable_nodes: frozenset[str]
    queues: Mapping[tuple[str, str], str]
    schedulers: frozenset[str]
    activity: ActivityBook
    throughput: ThroughputBook
    prices: Prices
    workloads_known: bool = True
    nodes_in_step: bool = True
    kueue: Kueue = field(default_factory=Kueue)
    places: Places = NOWHERE
    doubted: frozenset[str] = frozenset()

    def is_lost(self, pod: Pod, now: float) -> bool:
        """Tell whether a pod's node is absent, or has not been Ready for more than the grace.

        Nobody knows while the nodes, or just that one, cannot be read; one that came since they were read is not lost.
        """
        node = pod.node
        if not node or self.nodes is None:
            return False
        if node not in self.nodes:
            return self.nodes_in_step and node not in self.unreadable_nodes
        time = self.lost_from.get(node)
        return time is not None and now > time
