# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A small cluster for each blocker, and what the command `kueue-gang status` says of it: the examples of the docs.

The objects are API JSON, made with the builders of the tests; the real reducers, rules and commands run on them. In
each cluster one gang waits, which is named `train`.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from datadog_checks.kueue_gang.commands import gang, status
from datadog_checks.kueue_gang.derive.closeup import CloseUp
from datadog_checks.kueue_gang.derive.deriver import Deriver
from datadog_checks.kueue_gang.derive.picture import Picture
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.facts.cluster import Changes
from tests.model import build, kueue

Json = dict[str, Any]

NAME: Final = "train"
_OF_GROUP: Final = build.of_group(NAME)
_OF_WORKLOAD: Final = build.of_workload("wl")
_NO_CPU: Final = "0/2 nodes are available: 2 Insufficient cpu."


class Shown(NamedTuple):
    """A cluster as the commands see it: the picture, and the gang that waits from near."""

    picture: Picture
    near: CloseUp


def _nodes(number: int) -> list[Json]:
    return [build.node(f"n{index}") for index in range(number)]


def _on(name: str, node: str, gpus: int = 8) -> Json:
    """Return a pod of no gang."""
    return build.ready(name, build.LONE, node, gpus=gpus)


def _turned_away(number: int, text: str, tie: build.Tie = _OF_GROUP, gpus: int = 8) -> list[Json]:
    return [build.unscheduled(f"{NAME}-{index}", tie, text, gpus=gpus) for index in range(number)]


def _queued(reason: str, text: str, *podsets: Json, requeue_in: float | None = None) -> list[Json]:
    return [*_nodes(3), *kueue.queues(), kueue.waits(reason, text, *podsets, requeue_in=requeue_in)]


def _suspended() -> list[Json]:
    queue = kueue.stopped_local_queue()
    return [queue, kueue.cluster_queue(), kueue.waits("Suspended", "LocalQueue lq is inactive")]


def _misconfigured() -> list[Json]:
    return [kueue.cluster_queue(), kueue.waits("Misconfigured", "LocalQueue lq doesn't exist")]


def _checked(controller: str) -> list[Json]:
    return [*kueue.queues("nodes"), kueue.admission_check("nodes", controller), kueue.reserved(("nodes", "Pending"))]


def _labelled(*rack_of: str) -> list[Json]:
    """Return two nodes in a topology, with these racks."""
    return [
        *kueue.topology_queues(),
        *(build.node(f"n{index}", labels=kueue.place(f"n{index}", rack)) for index, rack in enumerate(rack_of)),
    ]


#: A cluster for each blocker, in the order of `derive.blockers.BLOCKERS`.
EXAMPLES: Final[dict[str, Callable[[], list[Json]]]] = {
    "suspended": _suspended,
    "misconfigured": _misconfigured,
    "backoff": lambda: _queued("PendingEvaluation", "Exceeded the PodsReady timeout team/wl", requeue_in=120),
    "exceeds_quota": lambda: _queued("ExceedsMaxQuota", kueue.MAXIMUM, build.podset(3)),
    "preempting": lambda: _queued("WaitingForPreemptedWorkloads", kueue.PREEMPTING),
    "pods_ready": lambda: _queued("WaitingForPodsReady", kueue.PODS_READY),
    "topology_request": lambda: [
        *_labelled("r1", "r1"),
        kueue.waits(
            "TopologyPlacementFailed",
            f'{kueue.FITS_NONE}. Total nodes: 2; excluded: resource "cpu": 2',
            kueue.in_rack(),
        ),
    ],
    "quota": lambda: _queued("WaitingForQuota", kueue.MORE_NEEDED.format(build.GPU, "gpu", 16)),
    "provisioning": lambda: _checked(kueue.PROVISIONER),
    "admission_check": lambda: _checked("example.com/budget"),
    "gated": lambda: [
        *_nodes(2),
        *kueue.queues(),
        kueue.admitted(),
        *(build.gated(f"{NAME}-{index}", _OF_WORKLOAD, build.TOPOLOGY_GATE) for index in range(2)),
    ],
    "missing_pods": lambda: [
        *_nodes(5),
        build.pod_group(NAME, 5),
        *_turned_away(4, build.SIBLINGS),
    ],
    "exceeds_node": lambda: [
        *_nodes(2),
        build.pod_group(NAME, 2),
        *_turned_away(2, build.NO_GPU, gpus=16),
    ],
    "not_retried": lambda: [*_nodes(2), build.pod_group(NAME, 2), *_turned_away(2, build.TRIGGER)],
    "stuck_terminating": lambda: [
        *_nodes(2),
        build.terminating(_on("old-0", "n1"), began=600),
        build.pod_group(NAME, 2),
        *_turned_away(2, build.TRIGGER),
    ],
    "capacity": lambda: [
        build.node("n0"),
        build.node("n1", cordoned=True),
        build.pod_group(NAME, 2),
        *_turned_away(2, build.TRIGGER),
    ],
    "node_labels": lambda: [
        *_labelled("r1", ""),
        kueue.waits("TopologyPlacementFailed", kueue.FITS_SOME, kueue.in_rack()),
    ],
    "fragmentation": lambda: [
        *_nodes(4),
        *(_on(f"notebook-{index}", f"n{index}", gpus=used) for index, used in enumerate((2, 6, 6))),
        build.pod_group("eval", 2),
        build.ready("eval-0", build.of_group("eval"), "n3", gpus=6),
        build.unscheduled("eval-1", build.of_group("eval"), build.TRIGGER, gpus=6),
        build.pod_group(NAME, 2),
        *_turned_away(2, build.TRIGGER, gpus=4),
    ],
    "unschedulable": lambda: [
        *_nodes(2),
        *kueue.queues(),
        kueue.admitted(),
        *_turned_away(2, _NO_CPU, _OF_WORKLOAD),
    ],
    "permit": lambda: [
        *_nodes(2),
        build.pod_group(NAME, 2),
        *(build.permit_waiter(f"{NAME}-{index}", _OF_GROUP, f"n{index}") for index in range(2)),
    ],
    "node_lost": lambda: [
        build.node("n0"),
        build.node("n1", ready_status="Unknown", since=300),
        build.pod_group(NAME, 2),
        *(build.ready(f"{NAME}-{index}", _OF_GROUP, f"n{index}", since=900, created=950) for index in range(2)),
    ],
    "crash_loop": lambda: [
        *_nodes(2),
        build.pod_group(NAME, 2),
        build.ready(f"{NAME}-0", _OF_GROUP, "n0"),
        build.crashing(f"{NAME}-1", _OF_GROUP, "n1"),
    ],
    "image_or_init": lambda: [
        *_nodes(2),
        build.pod_group(NAME, 2),
        build.ready(f"{NAME}-0", _OF_GROUP, "n0"),
        build.bound(
            f"{NAME}-1",
            _OF_GROUP,
            "n1",
            status={"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]},
        ),
    ],
    "unknown": lambda: [
        *_nodes(2),
        build.pod_group(NAME, 2),
        *(build.new(f"{NAME}-{index}", _OF_GROUP) for index in range(2)),
    ],
}


def _deadlock() -> list[Json]:
    """Return two gangs of which each holds what the other needs."""
    objects = _nodes(2)
    for name, where in ((NAME, "n0"), ("eval", "n1")):
        tie = build.of_group(name)
        objects += [
            build.pod_group(name, 2),
            build.ready(f"{name}-0", tie, where),
            build.unscheduled(f"{name}-1", tie, build.NO_GPU),
        ]
    return objects


def shown(*objects: Json, name: str = NAME) -> Shown:
    """Return what the commands see in a cluster with these objects."""
    rules = Rules()
    deriver = Deriver(rules)
    picture = deriver.apply(Changes.of(build.read(objects, rules)), build.NOW)
    (view,) = (view for view in picture.gangs if view.name == name)
    return Shown(picture, deriver.seen().close_up(view))


#: What the document shows.
PARTS: Final = {**EXAMPLES, "deadlock": _deadlock}


def example(name: str) -> list[str]:
    """Return the lines of a document that show a blocker, or a deadlock: the row of the table, and what would help."""
    picture, near = shown(*PARTS[name]())
    table = status.table(picture, (), status.View()).splitlines()
    heading, *rows = table[table.index("") + 1 :]
    (row,) = (row for row in rows if row.split()[1:2] == [NAME])
    steps = [line.strip() for line in gang.text([near], picture.now, colour=False, width=None).splitlines()]
    # Where nothing helps the text says so, and the document says nothing.
    unblock = [line for line in steps if line.startswith("to unblock: ") and near.steps]
    return ["```text", heading, row, *(["", *unblock] if unblock else []), "```"]
