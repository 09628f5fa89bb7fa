# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Whether a node takes pods.

It does when it is Ready, not cordoned, and each repelling taint on it is tolerated. Who asks says whose tolerations
count: for the figures of one flavor only that flavor's, for those of the cluster those of all flavors that select the
node. What the user's option tolerates counts for all, and so does what any live pod tolerates that asks for a GPU
resource of the node: somebody uses nodes like it.

The taint keyed by the GPU resource itself always is tolerated: the ExtendedResourceToleration admission plugin adds the
toleration to every pod that asks. Taints of the node controller never are, and a toleration without a key proves
nothing: such pods (DaemonSets) tolerate broken nodes too.
"""

from collections.abc import Iterable, Mapping

from datadog_checks.kueue_gang.facts.nodes import Node, Taint
from datadog_checks.kueue_gang.facts.pods import Toleration

_REPELLING = frozenset({"NoSchedule", "NoExecute"})


def takes_pods(node: Node, asking: Mapping[str, Iterable[Toleration]], others: Iterable[Toleration]) -> bool:
    """Tell whether a node takes pods.

    Args:
        node: the node.
        asking: by GPU resource, what live pods that ask for it tolerate.
        others: what is tolerated beside that; only looked at where the node has taints.

    """
    if node.cordoned or node.ready is None or node.ready.status is not True:
        return False
    repelling = [taint for taint in node.taints if taint.effect in _REPELLING and taint.key not in node.capacity]
    if not repelling:
        return True
    found = set(others)
    for resource in node.capacity:
        found.update(asking.get(resource, ()))
    return all(_tolerated(taint, found) for taint in repelling)


def _tolerated(taint: Taint, found: Iterable[Toleration]) -> bool:
    return not taint.key.startswith("node.kubernetes.io/") and any(
        toleration.key == taint.key
        and toleration.effect in {"", taint.effect}
        and (toleration.operator == "Exists" or toleration.value == taint.value)
        for toleration in found
    )
