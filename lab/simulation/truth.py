# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What is so in the simulated cluster, by what the simulation itself knows: the check is held against it.

A gang works while as many of its members are up as it needs, those that have ended well counted. One that is being
stopped may still save its state, until the grace of its pods is over, if it worked until then. GPUs of pods whose gang
does neither are idle.

A kubelet that stops is known here at once, and in the cluster when its node has been NotReady for long enough: until
then the two may differ (`settled`).
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lab.simulation.state import Job, Node, Pod

if TYPE_CHECKING:
    from lab.simulation.world import World

#: Seconds that the check gives a node that is NotReady.
_GRACE: Final = 60.0


@dataclass(frozen=True)
class Truth:
    """GPUs that pods hold, those of gangs that cannot work by gang, those that Permit waiters reserve, free ones."""

    allocated: int
    idle: dict[str, int] = field(default_factory=dict)
    reserved: int = 0
    free: int = 0
    settled: bool = True


def truth(world: "World") -> Truth:
    """Return what is so now."""
    nodes = list(world.nodes.values())
    bound = [pod for node in nodes for pod in node.pods]
    idle: dict[str, int] = {}
    for pod in bound:
        if pod.job is not None and not _useful(world, pod.job, pod):
            name = f"{pod.job.namespace}/{pod.job.name}"
            idle[name] = idle.get(name, 0) + pod.gpus
    return Truth(
        allocated=sum(pod.gpus for pod in bound),
        idle=dict(sorted(idle.items())),
        reserved=sum(pod.gpus for node in nodes for pod in node.reserved),
        free=sum(node.gpus - sum(pod.gpus for pod in node.pods) for node in nodes if _takes(node)),
        settled=all(_settled(world, node) for node in nodes),
    )


def _useful(world: "World", job: Job, pod: Pod) -> bool:
    if pod.deletion is not None:
        others = [one for one in job.members if one.deletion is None and one.live]
        in_time = world.now < pod.deletion + pod.grace
        return in_time and not others and job.worked_when_stopped
    return job.works


def _takes(node: Node) -> bool:
    return node.ready and node.cordoned is None and not node.taints


def _settled(world: "World", node: Node) -> bool:
    return node.silent is None or (node.not_ready is not None and world.now > node.not_ready + _GRACE)
