# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Many gangs that do not run, on a cluster that is nearly full: what it costs to tell why.

    python -m bench.pending [--nodes 10000] [--gangs 2000] [--pending 500] [--repeats 5]

Most shapes are different, which is the worst case: an answer is shared by gangs that ask for the same. Half of the
pending gangs are queued by Kueue and want one rack, a quarter holds a part of its GPUs and could be in a deadlock, a
quarter waits whole. The facts are made from API objects by the check's own reducers; what is measured is
`Deriver.apply` alone:

* the full derivation of a snapshot;
* a run a minute later, in which the room of one node has changed, so that all pending gangs are asked again;
* a run fifteen seconds later, in which that of one node in a hundred has, so that a quarter of them has its turn;
* a run in which nothing has changed.
"""

import argparse
import gc
import json
import random
import time
from dataclasses import replace
from statistics import median
from typing import Any, Final

from datadog_checks.kueue_gang.derive.deriver import Deriver
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.facts import nodes, podgroups, pods, queues, topology, workloads
from datadog_checks.kueue_gang.facts.cluster import Changes
from datadog_checks.kueue_gang.facts.nodes import Node

Json = dict[str, Any]

GPU: Final = "nvidia.com/gpu"
NOW: Final = 1_796_000_000.0
_TIME: Final = "2026-11-29T23:00:00Z"
_BLOCK, _RACK, _HOST = "example.com/block", "example.com/rack", "kubernetes.io/hostname"
_RACK_NODES, _BLOCK_RACKS = 20, 25
_TEXT: Final = (
    'couldn\'t assign flavors to pod set main: topology "racks" allows to fit only 1 out of 9 pod(s). '
    f'Total nodes: 9; excluded: resource "{GPU}": 8'
)


class Crowd:
    """A cluster as changes from nothing; `gpu_nodes` are its nodes, `free_nodes` those with free GPUs."""

    def __init__(self, size: int, gangs: int, waiting: int, seed: int = 1) -> None:
        """Make it: `size` nodes, and gangs of which some are `waiting`."""
        self._chance = random.Random(seed)
        self._rules = Rules()
        gpus = self._rules.gpus
        self._reduce: dict[str, Any] = {
            "nodes": nodes.reducer(gpus),
            "pods": pods.reducer(gpus),
            "pod_groups": podgroups.ENGINES[0].reducer(gpus),
            "workloads": workloads.reducer(gpus),
            "cluster_queues": queues.cluster_queue_reducer(gpus),
            "local_queues": queues.local_queue,
            "flavors": queues.resource_flavor,
            "topologies": topology.topology,
        }
        self._facts: dict[str, Any] = {field: [] for field in self._reduce}
        self._free = {f"node-{number:05d}": 8 for number in range(size)}
        #: Nodes that may have room, the next one last.
        self._next = list(self._free)
        for number, name in enumerate(self._free):
            self._add("nodes", self._node(number, name))
        self._queues()
        for number in range(gangs - waiting):
            self._running(number)
        self._fill()
        for number in range(waiting):
            (self._queued, self._waiting, self._queued, self._partial)[number % 4](number)
        self.gpu_nodes: list[Node] = [node for _, node in self._facts["nodes"]]
        self.free_nodes = [node for node in self.gpu_nodes if self._free[node.name] > 0]

    def changes(self) -> Changes:
        """Return the whole cluster."""
        return Changes(**self._facts)

    def deriver(self) -> Deriver:
        """Return a deriver that has seen nothing."""
        return Deriver(self._rules)

    def _add(self, field: str, obj: Json) -> None:
        fact = self._reduce[field](obj)
        assert fact is not None  # noqa: S101 - an object that is dropped would make a smaller cluster
        self._facts[field].append((None, fact))

    def _node(self, number: int, name: str) -> Json:
        rack = number // _RACK_NODES
        labels = {_BLOCK: f"b{rack // _BLOCK_RACKS}", _RACK: f"r{rack}", _HOST: name, "pool": f"p{rack % 4}"}
        if number % 97 == 0:
            del labels[_RACK]
        return {
            "metadata": {"name": name, "creationTimestamp": _TIME, "labels": labels},
            "spec": {},
            "status": {
                "capacity": {GPU: "8"},
                "allocatable": {GPU: "8"},
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": _TIME}],
            },
        }

    def _queues(self) -> None:
        levels = [{"nodeLabel": label} for label in (_BLOCK, _RACK, _HOST)]
        self._add("topologies", {"metadata": {"name": "racks"}, "spec": {"levels": levels}})
        self._add("flavors", {"metadata": {"name": "gpu"}, "spec": {"topologyName": "racks"}})
        quota = {"name": "gpu", "resources": [{"name": GPU, "nominalQuota": "100000"}]}
        spec = {"resourceGroups": [{"flavors": [quota]}]}
        self._add("cluster_queues", {"metadata": {"name": "cq"}, "spec": spec})
        self._add("local_queues", {"metadata": {"name": "lq", "namespace": "team"}, "spec": {"clusterQueue": "cq"}})

    def _running(self, number: int) -> None:
        name, size = f"run-{number}", 8 * self._chance.randint(1, 5)
        self._group(name, size)
        for index in range(size):
            self._bound(f"{name}-{index}", name, self._take(1))

    def _fill(self) -> None:
        """Let pods of no gang hold most of what is left: up to three GPUs of a node stay free."""
        for name, free in self._free.items():
            held = free - self._chance.choice((0, 0, 0, 1, 1, 2, 3))
            if held > 0:
                self._bound(f"other-{name}", "", name, held)
                self._free[name] -= held

    def _queued(self, number: int) -> None:
        name, size, each = f"queued-{number}", self._chance.randint(16, 64), self._chance.randint(1, 4)
        condition = {"type": "QuotaReserved", "status": "False", "reason": "WaitingForQuota", "message": _TEXT}
        podset = {
            "name": "main",
            "count": size,
            "template": {"metadata": {}, "spec": _spec(each)},
            "topologyRequest": {"required": self._chance.choice((_RACK, _BLOCK))},
        }
        owner = {"kind": "JobSet", "name": name, "uid": name, "controller": True}
        metadata = {**_metadata(f"jobset-{name}"), "ownerReferences": [owner]}
        status = {"conditions": [{**condition, "lastTransitionTime": _TIME}]}
        spec = {"queueName": "lq", "podSets": [podset]}
        self._add("workloads", {"metadata": metadata, "spec": spec, "status": status})

    def _waiting(self, number: int) -> None:
        name, size, each = f"waiting-{number}", self._chance.randint(4, 32), self._chance.randint(2, 8)
        self._group(name, size)
        for index in range(size):
            self._unplaced(f"{name}-{index}", name, each)

    def _partial(self, number: int) -> None:
        name, size = f"partial-{number}", self._chance.randint(4, 16)
        self._group(name, size)
        held = size // 2
        for index in range(held):
            self._bound(f"{name}-{index}", name, self._take(1, full=False))
        for index in range(held, size):
            self._unplaced(f"{name}-{index}", name, 8)

    def _take(self, each: int, *, full: bool = True) -> str:
        while self._free[self._next[-1]] < each:
            self._next.pop()
        near = [one for one in self._next[-200:] if self._free[one] >= each]
        name = near[-1] if full else self._chance.choice(near)
        self._free[name] -= each
        return name

    def _group(self, name: str, size: int) -> None:
        self._add("pod_groups", {"metadata": _metadata(name), "spec": {"minMember": size}})

    def _bound(self, name: str, group: str, node: str, each: int = 1) -> None:
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": _TIME} for kind in ("PodScheduled", "Ready")
        ]
        status = {"phase": "Running", "conditions": conditions}
        self._pod(name, group, {**_spec(each), "nodeName": node}, status)

    def _unplaced(self, name: str, group: str, each: int) -> None:
        text = f"0/9 nodes are available: 9 Insufficient {GPU}."
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text}
        spec = {**_spec(each), **({"nodeSelector": {"pool": f"p{len(name) % 4}"}} if each % 2 else {})}
        self._pod(name, group, spec, {"phase": "Pending", "conditions": [condition]})

    def _pod(self, name: str, group: str, spec: Json, status: Json) -> None:
        labels = {"scheduling.x-k8s.io/pod-group": group} if group else {}
        self._add("pods", {"metadata": {**_metadata(name), "labels": labels}, "spec": spec, "status": status})


def _metadata(name: str) -> Json:
    return {"name": name, "namespace": "team", "creationTimestamp": _TIME}


def _spec(each: int) -> Json:
    return {"containers": [{"name": "main", "resources": {"limits": {GPU: str(each)}}}]}


def measure(crowd: Crowd, repeats: int) -> dict[str, float]:
    """Return the medians in CPU seconds, and what was told: gangs blocked and deadlocked."""
    gc.collect()
    gc.freeze()
    chance = random.Random(1)
    some = len(crowd.gpu_nodes) // 100
    #: Name, seconds since the run before, nodes that have changed; what is left over after a turn is not measured.
    runs = (("full", 0, 0), ("all", 60, 1), ("turn", 15, some), ("", 60, 0), ("none", 15, 0))
    taken: dict[str, list[float]] = {name: [] for name, _, _ in runs if name}
    picture = None
    for _ in range(repeats):
        deriver = crowd.deriver()
        now = NOW
        for name, seconds, number in runs:
            chosen = chance.sample(crowd.free_nodes, number)
            # A GPU that the device plugin withholds changes the room of a node and no gang.
            news = [(node, replace(node, allocatable={GPU: 7})) for node in chosen]
            changes = crowd.changes() if name == "full" else Changes(nodes=news)
            now += seconds
            began = time.process_time()
            picture = deriver.apply(changes, now)
            if name:
                taken[name].append(time.process_time() - began)
    assert picture is not None  # noqa: S101 - there is at least one repeat
    told = {"blocked": len(picture.verdicts.blockers), "deadlocked": len(picture.verdicts.deadlocked)}
    return {**{name: median(times) for name, times in taken.items()}, **told}


def main() -> None:
    """Measure, and print the result as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.pending", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--gangs", type=int, default=2_000)
    parser.add_argument("--pending", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=5)
    options: Any = parser.parse_args()
    print(json.dumps(measure(Crowd(options.nodes, options.gangs, options.pending), options.repeats)))


if __name__ == "__main__":
    main()
