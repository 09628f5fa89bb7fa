# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Why a gang does not run: small clusters, each with the blocker that the model names and the sentence that says so.

The sentences in quotes are those of docs/blockers.md and docs/model.md, or the text that an upstream release writes. In
each cluster one gang waits, named `train`.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import pytest

from datadog_checks.kueue_gang.derive.blockers import NAMES, UNBLOCKED
from datadog_checks.kueue_gang.facts.cluster import SchedulerCount
from lab import blockers
from tests.model.build import (
    ADMISSION_GATE,
    GANG_SCHEDULER,
    GPU,
    LONE,
    NO_GPU,
    OPTIMISTIC,
    PLAIN_NO_GPU,
    SIBLINGS,
    TIMEOUT,
    TOPOLOGY_GATE,
    TRIGGER,
    UNRESERVE,
    Json,
    Seen,
    Tie,
    bound,
    crashing,
    flavor,
    gated,
    local_queue,
    look,
    native_group,
    new,
    node,
    of_group,
    of_native,
    of_workload,
    permit_waiter,
    pod_group,
    podset,
    ready,
    running,
    succeeded,
    taint,
    terminating,
    toleration,
    unscheduled,
)
from tests.model.kueue import (
    FITS_NONE,
    FITS_SOME,
    HOST,
    MAXIMUM,
    MORE_NEEDED,
    OLD_MAXIMUM,
    PODS_READY,
    PREEMPTING,
    PROVISIONER,
    RACK,
    admission_check,
    admitted,
    asking,
    cluster_queue,
    flavor_in,
    in_rack,
    place,
    queues,
    reserved,
    stopped_local_queue,
    topology,
    topology_queues,
    waits,
)

TRAIN = of_group("train")
IN_WL = of_workload("wl")
SIXTEEN = MORE_NEEDED.format(GPU, "gpu", 16)
NO_CPU = "0/2 nodes are available: 2 Insufficient cpu."
VOLUME = "0/2 nodes are available: 2 node(s) had volume node affinity conflict."
AFFINITY = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
MIXED = (
    "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient nvidia.com/gpu. no new claims to "
    "deallocate, preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, 2 No preemption "
    "victims found for incoming pod., PodGroup team/train gets rejected due to Pod w0 is unschedulable even after "
    "PostFilter"
)
#: As `Insufficient nvidia.com/gpu` begins; neither is that.
OTHER_GPUS = ("nvidia.com/gpumem", "nvidia.com/gpu.shared")
MIG = "nvidia.com/mig-3g.40gb"
TO = "couldn't assign flavors to pod set "
IN_USE = "insufficient unused quota for {} in flavor {}, {} more needed"
TOO_SMALL = (
    "insufficient quota for {} in flavor {}, previously considered podsets requests (0) + current podset request (16) "
    "> maximum capacity (8)"
)
NO_PLACE = 'topology "{}" doesn\'t allow to fit any of 2 pod(s)'
NATIVE_TEXT = "pod group is unschedulable: minCount (2) cannot be satisfied"


class Row(NamedTuple):
    """A cluster, the blocker of its gang `train`, and where that comes from."""

    name: str
    blocker: str
    source: str
    objects: tuple[Json, ...]
    more: Mapping[str, Any] = {}


def row(name: str, blocker: str, source: str, *objects: Json, **more: Any) -> Row:
    """Return a row; `more` is what `look` takes beside the objects."""
    return Row(name, blocker, source, objects, more)


def nodes(number: int, gpus: int = 8, **more: Any) -> list[Json]:
    """Return nodes n0, n1, ..."""
    return [node(f"n{index}", gpus, **more) for index in range(number)]


def group(number: int, *members: Json) -> list[Json]:
    """Return a PodGroup with its pods."""
    return [pod_group("train", number), *members]


def away(number: int, text: str, tie: Any = TRAIN, first: int = 0, **more: Any) -> list[Json]:
    """Return members that the scheduler turned away with a text."""
    return [unscheduled(f"w{index}", tie, text, **more) for index in range(first, first + number)]


def float_two() -> list[Json]:
    """Return a gang of which two wait in Permit, without a trace of where, and a third did not fit."""
    tie = of_group("other")
    texts = (UNRESERVE, UNRESERVE, NO_GPU)
    members = (unscheduled(f"o{index}", tie, text, scheduler=GANG_SCHEDULER) for index, text in enumerate(texts))
    return [pod_group("other", 3), *members]


def lone(name: str, where: str, gpus: int = 8) -> Json:
    """Return a pod of no gang that holds GPUs."""
    return ready(name, LONE, where, gpus=gpus)


def queued(reason: str, text: str = "", *podsets: Json, **more: Any) -> list[Json]:
    """Return a Workload that waits in queues that are well, in a cluster with room for it."""
    return [*nodes(4), *queues(), waits(reason, text, *podsets, **more)]


def labelled(*rack_of: str, gpus: int = 8) -> list[Json]:
    """Return nodes of a topology, n0 in the first of these racks and so on; '' is a node without that label."""
    return [
        *topology_queues(),
        *(node(f"n{index}", gpus, labels=place(f"n{index}", rack)) for index, rack in enumerate(rack_of)),
    ]


def checked(controller: str, *states: tuple[str, str]) -> list[Json]:
    """Return a Workload with its quota, whose AdmissionCheck `nodes` has a controller."""
    return [*queues("nodes"), admission_check("nodes", controller), reserved(*states)]


def two_pools(*racks: tuple[str, str], topologies: tuple[str, str] = ("default", "default")) -> list[Json]:
    """Return flavors `a` and `b` of one ClusterQueue, and nodes: n0 of the first (flavor, rack), and so on."""
    pools = zip(("a", "b"), topologies, strict=True)
    return [
        local_queue("lq", "cq"),
        cluster_queue(flavors=("a", "b")),
        *(topology(name) for name in sorted(set(topologies))),
        *(flavor_in(name, pool, {"pool": pool}) for pool, name in pools),
        *(
            node(f"n{index}", labels={**place(f"n{index}", rack), "pool": pool})
            for index, (pool, rack) in enumerate(racks)
        ),
    ]


def two_groups(*nodes_of: Json) -> list[Json]:
    """Return a ClusterQueue with a flavor for whole GPUs and, in another resource group, one for parts of them."""
    queue = cluster_queue(flavors=("a",))
    parts = cluster_queue(flavors=("b",))["spec"]["resourceGroups"][0]
    parts["coveredResources"] = [MIG]
    parts["flavors"][0]["resources"][0]["name"] = MIG
    queue["spec"]["resourceGroups"].append(parts)
    made = two_pools()
    return [queue if obj["kind"] == "ClusterQueue" else obj for obj in made] + list(nodes_of)


def broken(obj: Json) -> Json:
    """Return a queue that exists and cannot be understood."""
    found = deepcopy(obj)
    found["spec"]["stopPolicy"] = 5
    return found


def in_pool(pool: str) -> Tie:
    """Return a podset's template that asks for the nodes of a pool."""
    return Tie(spec={"nodeSelector": {"pool": pool}})


KUEUE = (
    row(
        "inactive-workload",
        "suspended",
        "spec.active false",
        *queued("Deactivated", "The workload is deactivated", active=False),
    ),
    row("inactive-without-a-condition", "suspended", "spec.active false", *queued("", active=False)),
    row(
        "inactive-while-admitted",
        "suspended",
        "spec.active false: it will be evicted, whatever its pods say",
        *nodes(2),
        *queues(),
        admitted(active=False),
        *away(2, NO_GPU, IN_WL),
    ),
    row(
        "deactivated-by-reason",
        "suspended",
        "QuotaReserved reason Deactivated",
        *queued("Deactivated", "The workload is deactivated due to exceeding the maximum number of re-queuing retries"),
    ),
    row("suspended-by-reason", "suspended", "QuotaReserved reason Suspended", *queued("Suspended", "Held back")),
    *(
        row(
            f"local-queue-{policy}",
            "suspended",
            "a stopped queue (LocalQueue)",
            *nodes(4),
            stopped_local_queue(policy),
            cluster_queue(),
            flavor("gpu"),
            waits("Pending", ""),
        )
        for policy in ("Hold", "HoldAndDrain")
    ),
    *(
        row(
            f"cluster-queue-{policy}",
            "suspended",
            "a stopped queue (ClusterQueue)",
            local_queue("lq", "cq"),
            cluster_queue(stop=policy, inactive="Stopped"),
            waits("Pending", ""),
        )
        for policy in ("Hold", "HoldAndDrain")
    ),
    *(
        row(
            f"{kind}-is-inactive-{reason}",
            "suspended",
            'text "is inactive", in old and in granular wording',
            *queued(reason, f"{kind} {name} is inactive"),
        )
        for kind, name in (("LocalQueue", "lq"), ("ClusterQueue", "cq"))
        for reason in ("Inadmissible", "Suspended")
    ),
    *(
        row(
            f"{kind}-is-stopped",
            "suspended",
            "a stopped queue: ... is stopped, Inadmissible",
            *queued("Inadmissible", f"{kind} {name} is stopped"),
        )
        for kind, name in (("LocalQueue", "lq"), ("ClusterQueue", "cq"))
    ),
    *(
        row(
            f"{kind}-{words.replace(' ', '-')}-{reason}",
            "misconfigured",
            "queue missing, by text",
            *queued(reason, f"{kind} {name} {words}"),
        )
        for kind, name in (("LocalQueue", "lq"), ("ClusterQueue", "cq"))
        for words in ("doesn't exist", "not found", "is terminating or missing")
        for reason in ("Inadmissible", "Misconfigured")
    ),
    row(
        "flavor-not-found",
        "misconfigured",
        "flavor missing, by text",
        *queued("Pending", "couldn't assign flavors to pod set main: flavor gpu not found"),
    ),
    row("no-local-queue", "misconfigured", "queue missing, by object", *nodes(2), cluster_queue(), waits()),
    row("no-cluster-queue", "misconfigured", "queue missing, by object", *nodes(2), local_queue("lq", "cq"), waits()),
    row(
        "unreadable-local-queue",
        "quota",
        "what exists and cannot be understood is not missing",
        *nodes(2),
        broken(local_queue("lq", "cq")),
        cluster_queue(),
        flavor("gpu"),
        waits("Pending", SIXTEEN),
    ),
    row(
        "unreadable-cluster-queue",
        "quota",
        "what exists and cannot be understood is not missing",
        *nodes(2),
        local_queue("lq", "cq"),
        broken(cluster_queue()),
        flavor("gpu"),
        waits("Pending", SIXTEEN),
    ),
    row(
        "another-queue-is-unreadable",
        "misconfigured",
        "queue missing, by object: another one is unreadable",
        *nodes(2),
        local_queue("lq", "cq"),
        broken(cluster_queue("other")),
        waits("Pending", SIXTEEN),
    ),
    *(
        row(
            f"cluster-queue-{reason}-{said}",
            "misconfigured",
            "flavor missing: the ClusterQueue is inactive for it; Kueue says Suspended and `is inactive` of it, too",
            local_queue("lq", "cq"),
            cluster_queue(inactive=reason),
            waits(said, "ClusterQueue cq is inactive"),
        )
        for reason in ("FlavorNotFound", "TopologyNotFound", "AdmissionCheckNotFound")
        for said in ("Inadmissible", "Suspended")
    ),
    row(
        "backoff",
        "backoff",
        "requeueAt in the future",
        *queued("PendingEvaluation", "Exceeded the PodsReady timeout team/wl", requeue_in=30),
    ),
    row("backoff-is-over", "quota", "requeueAt in the past is none", *queued("Pending", "", requeue_in=-1)),
    row("exceeds-by-reason", "exceeds_quota", "ExceedsMaxQuota", *queued("ExceedsMaxQuota", MAXIMUM, podset(3))),
    row(
        "exceeds-text", "exceeds_quota", "> maximum capacity, wording of 0.15.0", *queued("Pending", MAXIMUM, podset(3))
    ),
    row(
        "exceeds-older-text",
        "exceeds_quota",
        "> maximum capacity, older wording",
        *queued("Pending", OLD_MAXIMUM, podset(3)),
    ),
    row(
        "exceeds-in-one-flavor-of-two",
        "quota",
        "can never be admitted: not said where another flavor is only in use now",
        *queued(
            "Pending", f"{SIXTEEN}, insufficient quota for {GPU} in flavor b, request > maximum capacity (24 > 16)"
        ),
    ),
    row(
        "exceeds-in-one-flavor-and-no-place-in-another",
        "fragmentation",
        "the other flavor has the quota: what it lacks is a rack for two",
        *two_pools(("a", "r1"), ("b", "r1"), ("b", "r2"), topologies=("ta", "tb")),
        waits("Pending", f"{TO}main: {TOO_SMALL.format(GPU, 'a')}, {NO_PLACE.format('tb')}", in_rack()),
    ),
    row(
        "exceeds-for-one-podset-of-two",
        "exceeds_quota",
        "the first podset may wait for quota; the second can never have it",
        *queued(
            "Pending",
            f"{TO}l: {IN_USE.format(GPU, 'gpu', 8)}; {TO}w: {TOO_SMALL.format(GPU, 'gpu')}",
            podset(1, "l"),
            podset(2, "w"),
        ),
    ),
    row(
        "exceeds-in-the-flavor-that-lacks-cpu-too",
        "exceeds_quota",
        "cpu that is in use makes a quota of GPUs that is too small no larger",
        *queued("Pending", f"{TO}main: {IN_USE.format('cpu', 'gpu', '500m')}, {TOO_SMALL.format(GPU, 'gpu')}"),
    ),
    row(
        "exceeds-in-the-flavor-that-is-for-these-pods",
        "exceeds_quota",
        "a flavor that is not for these pods cannot admit them either",
        *queued("Pending", f"{TO}main: flavor b doesn't match node affinity, {TOO_SMALL.format(GPU, 'gpu')}"),
    ),
    row(
        "exceeds-in-a-text-that-is-cut",
        "quota",
        "what was cut out may name a flavor that is only in use",
        *queued("Pending", f"{TO}main: {TOO_SMALL.format(GPU, 'gpu')}{', flavor x is not for it' * 300}"),
    ),
    row("preempting-by-reason", "preempting", "WaitingForPreemptedWorkloads", *queued("WaitingForPreemptedWorkloads")),
    row("preempting-by-text", "preempting", "Pending the preemption of 1 workload(s)", *queued("Pending", PREEMPTING)),
    row("pods-ready-by-reason", "pods_ready", "WaitingForPodsReady", *queued("WaitingForPodsReady", PODS_READY)),
    row("pods-ready-by-text", "pods_ready", "reason Waiting until 0.18", *queued("Waiting", PODS_READY)),
    *(
        row(
            f"topology-{reason}-{number}",
            "topology_request",
            "allows to fit, doesn't allow to fit, or TopologyPlacementFailed; it fits by GPUs: nothing is refined",
            *labelled("r1", "r1"),
            waits(reason, text, in_rack()),
        )
        for reason in ("TopologyPlacementFailed", "WaitingForQuota", "Pending")
        for number, text in enumerate((FITS_SOME, FITS_NONE))
    ),
    row(
        "topology-by-reason-alone",
        "topology_request",
        "TopologyPlacementFailed",
        *labelled("r1", "r1"),
        waits("TopologyPlacementFailed", "", in_rack()),
    ),
    row(
        "topology-capacity",
        "capacity",
        "refined: free GPUs do not suffice in sum",
        *labelled("r1", "r1"),
        lone("other", "n1"),
        waits("Pending", FITS_SOME, in_rack()),
    ),
    row(
        "topology-node-labels",
        "node_labels",
        "refined: would fit if nodes without a level label had it",
        *labelled("r1", ""),
        waits("Pending", FITS_SOME, in_rack()),
    ),
    row(
        "topology-fragmentation",
        "fragmentation",
        "refined: they suffice in sum, no domain of the required level fits",
        *labelled("r1", "r2"),
        waits("Pending", FITS_SOME, in_rack()),
    ),
    row(
        "topology-same-rack-name-in-two-blocks",
        "fragmentation",
        "rack r1 in block a is not rack r1 in block b",
        *topology_queues(),
        node("n0", labels=place("n0", "r1", "a")),
        node("n1", labels=place("n1", "r1", "b")),
        waits("Pending", FITS_SOME, in_rack()),
    ),
    row(
        "topology-preferred-is-no-demand",
        "topology_request",
        "preferred never is: by GPUs it fits in two racks",
        *labelled("r1", "r2"),
        waits("Pending", FITS_SOME, asking(podset(2), preferred=RACK)),
    ),
    row(
        "topology-slices",
        "fragmentation",
        "every two pods in one rack: of 3 + 1 nodes only one such slice",
        *labelled("r1", "r1", "r1", "r2"),
        waits(
            "Pending",
            FITS_SOME,
            asking(podset(4), podSetSliceRequiredTopology=RACK, podSetSliceSize=2),
        ),
    ),
    row(
        "topology-of-one-host",
        "fragmentation",
        "no domain of the required level (a host) fits 2 x 8",
        *labelled("r1", "r1"),
        waits("Pending", FITS_NONE, asking(podset(2), required=HOST)),
    ),
    row(
        "topology-another-flavor-fits",
        "topology_request",
        "one flavor that fits is enough",
        local_queue("lq", "cq"),
        cluster_queue(flavors=("a", "b")),
        topology(),
        flavor_in(name="a", labels={"gpu": "a"}),
        flavor_in(name="b", labels={"gpu": "b"}),
        node("n0", labels={**place("n0", "r1"), "gpu": "a"}),
        node("n1", labels={**place("n1", "r2"), "gpu": "a"}),
        node("n2", labels={**place("n2", "r3"), "gpu": "b"}),
        node("n3", labels={**place("n3", "r3"), "gpu": "b"}),
        waits("Pending", FITS_SOME, in_rack()),
    ),
    row(
        "topology-at-the-end-of-a-long-text",
        "fragmentation",
        "the last of many flavors counts, too",
        *labelled("r1", "r2"),
        waits(
            "Pending",
            f"{TO}main: {''.join(f'flavor pool-{n:02} is not for these pods, ' for n in range(200))}"
            f"{NO_PLACE.format('default')}",
            in_rack(),
        ),
    ),
    row(
        "topology-podsets-with-a-flavor-each",
        "topology_request",
        "each podset may get another flavor: together they fit",
        *two_pools(("a", "r1"), ("b", "r2")),
        waits(
            "Pending",
            f"{TO}y: {NO_PLACE.format('default')}",
            asking(podset(1, "x", tie=in_pool("a")), required=RACK),
            asking(podset(1, "y", tie=in_pool("b")), required=RACK),
        ),
    ),
    row(
        "topology-podsets-of-two-resource-groups",
        "topology_request",
        "a podset gets a flavor that offers its GPUs",
        *two_groups(
            node("n0", labels={**place("n0", "r1"), "pool": "a"}),
            node("n1", {MIG: 8}, labels={**place("n1", "r1"), "pool": "b"}),
        ),
        waits(
            "Pending",
            f"{TO}y: {NO_PLACE.format('default')}",
            asking(podset(1, "x", gpus={MIG: 1}), required=RACK),
            asking(podset(1, "y"), required=RACK),
        ),
    ),
    row(
        "topology-another-podset-needs-no-place",
        "topology_request",
        "a podset that the text does not name, and that asks for no place, may be in a flavor without a topology",
        local_queue("lq", "cq"),
        cluster_queue(flavors=("a", "b")),
        topology(),
        flavor_in(name="a", labels={"pool": "a"}),
        flavor("b", {"pool": "b"}),
        node("n0", labels={**place("n0", "r1"), "pool": "a"}),
        node("n1", labels={"pool": "b"}),
        waits("Pending", f"{TO}y: {NO_PLACE.format('default')}", podset(1, "x"), asking(podset(1, "y"), required=RACK)),
    ),
    row(
        "topology-of-the-second-that-is-named",
        "fragmentation",
        "every topology that the text names counts: the GPUs of `tb` suffice in sum, and those of `ta` do not",
        *two_pools(("a", "r1"), ("b", "r1"), ("b", "r2"), topologies=("ta", "tb")),
        lone("other", "n0"),
        waits("Pending", f"{TO}main: {NO_PLACE.format('ta')}, {NO_PLACE.format('tb')}", in_rack()),
    ),
    row(
        "topology-with-a-podset-that-is-over",
        "topology_request",
        "a podset that has given all its quota back asks for nothing",
        *labelled("r1"),
        waits(
            "Pending",
            f"{TO}w: {NO_PLACE.format('default')}",
            asking(podset(2, "l", reclaimed=2), required=RACK),
            asking(podset(2, "w", gpus=4), required=RACK),
        ),
    ),
    row(
        "topology-host-and-slices-of-a-host",
        "fragmentation",
        "all four on one host, not only every two",
        *labelled("r1", "r1"),
        waits(
            "Pending",
            FITS_SOME,
            asking(podset(4, gpus=4), required=HOST, podSetSliceRequiredTopology=HOST, podSetSliceSize=2),
        ),
    ),
    row(
        "topology-that-will-have-a-place",
        "preempting",
        "it would fit once the pods that terminate within their grace are gone, in the queue as well",
        *labelled("r1", "r1"),
        terminating(lone("old", "n1"), began=10),
        waits("Pending", FITS_SOME, in_rack()),
    ),
    row(
        "topology-behind-pods-that-do-not-go",
        "capacity",
        "their grace is over: nothing says that they will be gone",
        *labelled("r1", "r1"),
        terminating(lone("old", "n1"), began=100),
        waits("Pending", FITS_SOME, in_rack()),
    ),
    row(
        "topology-of-a-flavor-that-is-unreadable",
        "topology_request",
        "labels of a flavor are strings; one that cannot be understood may fit",
        *labelled("r1", "r2")[:2],
        {**flavor_in(), "spec": {"nodeLabels": {RACK: ["r1"]}, "topologyName": "default"}},
        *labelled("r1", "r2")[3:],
        waits("Pending", FITS_SOME, in_rack()),
    ),
    row("quota-by-reason", "quota", "QuotaReserved False", *queued("WaitingForQuota", SIXTEEN)),
    row("quota-legacy", "quota", "legacy reason Pending", *queued("Pending", SIXTEEN)),
    row("quota-absent", "quota", "or absent: a brand-new Workload", *queued("")),
    row("quota-evaluated", "quota", "QuotaReserved False", *queued("PendingEvaluation", "Workload is pending")),
    row(
        "quota-after-an-eviction",
        "quota",
        "QuotaReserved False with the reason of an eviction",
        *queued("Preempted", "Preempted to accommodate a workload", evicted=("True", 500, "Preempted")),
    ),
    row(
        "quota-though-nodes-are-full",
        "quota",
        "nodes are not asked about a gang that waits for quota",
        node("n0"),
        lone("other", "n0"),
        *queues(),
        waits("Pending", SIXTEEN),
    ),
    row(
        "provisioning",
        "provisioning",
        "the provisioning-request controller",
        *checked(PROVISIONER, ("nodes", "Pending")),
    ),
    row("admission-check", "admission_check", "another controller", *checked("example.com/x", ("nodes", "Pending"))),
    row(
        "admission-check-retried",
        "admission_check",
        "a check that is not Ready",
        *checked("example.com/x", ("nodes", "Retry")),
    ),
    row(
        "provisioning-is-ready",
        "admission_check",
        "that of the provisioner is Ready, another is not",
        *checked(PROVISIONER, ("nodes", "Ready"), ("budget", "Pending")),
    ),
)

PODS = (
    *(
        row(
            f"turned-away-for-{name}",
            "unschedulable",
            "a reason other than too few GPUs: the name of another resource begins as theirs",
            *nodes(2),
            *group(2, *away(2, f"0/2 nodes are available: 2 Insufficient {name}.")),
        )
        for name in OTHER_GPUS
    ),
    row(
        "gated-admitted",
        "gated",
        "admitted, and gates left",
        *nodes(2),
        *queues(),
        admitted(),
        *(gated(f"w{n}", IN_WL, TOPOLOGY_GATE) for n in range(2)),
    ),
    row(
        "gated-without-a-workload",
        "gated",
        "no Workload, and gates left",
        *nodes(2),
        *group(2, *(gated(f"w{n}", TRAIN, ADMISSION_GATE) for n in range(2))),
    ),
    row(
        "gated-in-part",
        "gated",
        "the answer is about the members that are not placed",
        *nodes(2),
        *queues(),
        admitted(),
        ready("w0", IN_WL, "n0"),
        gated("w1", IN_WL, TOPOLOGY_GATE),
    ),
    row(
        "missing-pods",
        "missing_pods",
        "never created",
        *nodes(4),
        *group(4, *away(3, SIBLINGS)),
    ),
    row("missing-all", "missing_pods", "never created: admitted, no pod", *nodes(2), *queues(), admitted()),
    row(
        "missing-while-others-run",
        "missing_pods",
        "never created, in a partial gang",
        *nodes(2),
        *queues(),
        admitted(),
        ready("w0", IN_WL, "n0"),
    ),
    row(
        "missing-in-one-podset",
        "missing_pods",
        "missing = sum over podsets",
        *nodes(3),
        *queues(),
        admitted(podset(1, "launcher", gpus=0), podset(2, "worker")),
        *(ready(f"w{n}", of_workload("wl", "worker"), f"n{n}") for n in range(2)),
    ),
    row(
        "exceeds-node",
        "exceeds_node",
        "a pod asks for more GPUs than any node has",
        *nodes(2),
        *group(2, *away(2, NO_GPU, gpus=16)),
    ),
    row(
        "exceeds-node-with-a-full-cluster",
        "exceeds_node",
        "by capacity, not by what is free",
        *nodes(2),
        lone("other", "n0"),
        *group(2, *away(2, NO_GPU, gpus=9)),
    ),
    row(
        "exceeds-nodes-of-its-selector",
        "exceeds_node",
        "fit respects nodeSelector",
        node("n0", 4, labels={"pool": "a"}),
        node("n1", 16),
        node("n2", 16),
        *group(2, *away(2, NO_GPU, spec={"nodeSelector": {"pool": "a"}})),
    ),
    *(
        row(
            f"not-retried-{number}",
            "not_retried",
            "it fits on the free GPUs now, and every unplaced member was last turned away",
            *nodes(2),
            *group(2, *away(2, text)),
        )
        for number, text in enumerate((TRIGGER, SIBLINGS, TIMEOUT, UNRESERVE, OPTIMISTIC, NO_GPU, PLAIN_NO_GPU))
    ),
    *(
        row(
            f"not-retried-wording-{number}",
            "not_retried",
            f"a Permit rejection as Kubernetes {release} writes it",
            *nodes(2),
            *group(2, *away(2, text)),
        )
        for number, (release, text) in enumerate(
            (
                ("1.22", 'pod "w0" rejected while waiting on permit: optimistic rejection in PostFilter'),
                ("1.28", "rejection in Unreserve"),
                ("1.29", "0/1 nodes are available: 1 rejection in Unreserve."),
            )
        )
    ),
    row(
        "not-retried-native",
        "not_retried",
        "a native gang that was turned away",
        *nodes(2),
        native_group("train", 2),
        *away(2, NATIVE_TEXT, of_native("train")),
    ),
    row(
        "not-retried-beside-tainted-nodes",
        "not_retried",
        "for too few GPUs: other nodes had other reasons",
        *nodes(2),
        *group(2, *away(2, MIXED)),
        node("cp", 0, taints=[taint("node-role.kubernetes.io/control-plane")]),
    ),
    row(
        "not-every-member-was-turned-away",
        "unknown",
        "every unplaced member: one is new",
        *nodes(2),
        *group(2, *away(1, TRIGGER), new("w1", TRAIN)),
    ),
    row(
        "stuck-terminating",
        "stuck_terminating",
        "it would fit if the pods whose deletion grace is over were gone",
        *nodes(2),
        terminating(lone("old", "n1"), began=100, grace=30),
        *group(2, *away(2, TRIGGER)),
    ),
    row(
        "stuck-terminating-of-its-own",
        "stuck_terminating",
        "its own pod, whose grace is over, must go first",
        *nodes(2),
        *queues(),
        admitted(pods_ready=("True", 400, "Started")),
        ready("w0", IN_WL, "n0"),
        terminating(ready("w1", IN_WL, "n1"), began=100, grace=30),
    ),
    row(
        "preempting-within-the-grace",
        "preempting",
        "it would fit once the pods that terminate within their grace are gone",
        *nodes(2),
        terminating(lone("old", "n1"), began=10, grace=30),
        *group(2, *away(2, TRIGGER)),
    ),
    row(
        "preempting-nominated",
        "preempting",
        "preemption has nominated a node for a member",
        *nodes(2),
        lone("old", "n1"),
        *group(2, *away(1, NO_GPU), *away(1, PLAIN_NO_GPU, first=1, nominated="n1")),
    ),
    row(
        "capacity",
        "capacity",
        "free GPUs do not suffice in sum",
        *nodes(2),
        lone("other", "n1"),
        *group(2, *away(2, NO_GPU)),
    ),
    row(
        "capacity-cordoned",
        "capacity",
        "a node takes pods when it is not cordoned",
        node("n0"),
        node("n1", cordoned=True),
        *group(2, *away(2, NO_GPU)),
    ),
    row(
        "capacity-not-ready",
        "capacity",
        "a node takes pods when Ready",
        node("n0"),
        node("n1", ready_status="False"),
        *group(2, *away(2, NO_GPU)),
    ),
    row(
        "capacity-taint",
        "capacity",
        "fit respects taints",
        node("n0"),
        node("n1", taints=[taint("maintenance")]),
        *group(2, *away(2, NO_GPU)),
    ),
    row(
        "taint-that-is-tolerated",
        "not_retried",
        "fit respects taints: this one is tolerated",
        node("n0"),
        node("n1", taints=[taint("pool", "train")]),
        *group(2, *away(2, NO_GPU, spec={"tolerations": [toleration("pool", "train")]})),
    ),
    row(
        "taint-of-the-resource",
        "not_retried",
        "taints keyed by the GPU resource itself are always tolerated",
        *nodes(2, taints=[taint(GPU, "present")]),
        *group(2, *away(2, NO_GPU)),
    ),
    row(
        "capacity-reserved",
        "capacity",
        "certain reservations of other gangs count as used",
        *nodes(2),
        pod_group("other", 2),
        permit_waiter("o0", of_group("other"), "n1"),
        unscheduled("o1", of_group("other"), NO_GPU),
        *group(2, *away(2, NO_GPU)),
    ),
    row(
        "capacity-of-waiters-that-show-no-node",
        "capacity",
        "two wait in Permit, by the scheduler's own count, and take the two nodes: the third does not fit",
        *nodes(2),
        *group(3, *away(2, UNRESERVE, scheduler=GANG_SCHEDULER), *away(1, NO_GPU, first=2, scheduler=GANG_SCHEDULER)),
        scheduler=SchedulerCount(2, frozenset({GANG_SCHEDULER})),
    ),
    row(
        "capacity-beside-waiters-that-show-no-node",
        "capacity",
        "two of another gang wait in Permit, by the scheduler's own count: wherever they do, two more do not fit",
        *nodes(3),
        *float_two(),
        *group(2, *away(2, NO_GPU)),
        scheduler=SchedulerCount(2, frozenset({GANG_SCHEDULER})),
    ),
    row(
        "unknown-beside-waiters-that-show-no-node",
        "unknown",
        "both may fit beside them, or not: which nodes they hold is not known",
        *nodes(4),
        *float_two(),
        *group(2, *away(2, NO_GPU)),
        scheduler=SchedulerCount(2, frozenset({GANG_SCHEDULER})),
    ),
    row(
        "capacity-selector",
        "capacity",
        "fit respects nodeSelector",
        node("n0", labels={"pool": "a"}),
        node("n1"),
        *group(2, *away(2, NO_GPU, spec={"nodeSelector": {"pool": "a"}})),
    ),
    row(
        "capacity-of-the-rest",
        "capacity",
        "the answer is about the members that are not placed",
        *nodes(2),
        *queues(),
        admitted(podset(3)),
        ready("w0", IN_WL, "n0"),
        ready("w1", IN_WL, "n1"),
        *away(1, NO_GPU, IN_WL, first=2),
    ),
    row(
        "fragmentation",
        "fragmentation",
        "they suffice in sum (8), no set of nodes fits 1 x 8",
        *nodes(3),
        lone("a", "n0", 4),
        lone("b", "n1", 4),
        *group(2, *away(2, TRIGGER)),
    ),
    row(
        "unequal-pods-fit",
        "not_retried",
        "unequal pods are placed largest first: 6 on n0, 2 beside it, 8 on n1",
        *nodes(2),
        *group(3, *away(1, TRIGGER, gpus=2), *away(1, TRIGGER, first=1), *away(1, TRIGGER, first=2, gpus=6)),
    ),
    *(
        row(
            f"unschedulable-{name}",
            "unschedulable",
            "a text that names another reason than too few GPUs",
            *nodes(2),
            *queues(),
            admitted(),
            *away(2, text, IN_WL),
        )
        for name, text in (("cpu", NO_CPU), ("volumes", VOLUME), ("affinity", AFFINITY))
    ),
    row(
        "unschedulable-gang-scheduler",
        "unschedulable",
        "a text that names another reason: touching its PodGroup would not wake it",
        *nodes(2),
        *group(
            2,
            *away(1, OPTIMISTIC),
            *away(
                1,
                NO_CPU + " PodGroup team/train gets rejected due to Pod w1 is unschedulable even after PostFilter.",
                first=1,
            ),
        ),
    ),
    row(
        "permit",
        "permit",
        "every unplaced member is waiting",
        *nodes(2),
        *group(2, *(permit_waiter(f"w{n}", TRAIN, f"n{n}") for n in range(2))),
    ),
    row(
        "permit-beside-placed-ones",
        "permit",
        "every unplaced member is waiting",
        *nodes(3),
        *group(3, ready("w0", TRAIN, "n0"), *(permit_waiter(f"w{n}", TRAIN, f"n{n}") for n in (1, 2))),
    ),
    row(
        "node-lost",
        "node_lost",
        "a member's node is lost",
        node("n0"),
        node("n1", ready_status="Unknown", since=300),
        *group(2, *(ready(f"w{n}", TRAIN, f"n{n}", since=900, created=950) for n in range(2))),
    ),
    row(
        "crash-loop",
        "crash_loop",
        "a member crashes",
        *nodes(2),
        *group(2, ready("w0", TRAIN, "n0"), crashing("w1", TRAIN, "n1")),
    ),
    row(
        "image-or-init",
        "image_or_init",
        "a member has its node and does not run yet",
        *nodes(2),
        *group(2, ready("w0", TRAIN, "n0"), bound("w1", TRAIN, "n1")),
    ),
    row(
        "unknown",
        "unknown",
        "none of them: nobody has looked at its pods, and they fit",
        *nodes(2),
        *group(2, new("w0", TRAIN), new("w1", TRAIN)),
    ),
)

#: Two that hold at once, the one that the model names first.
PRECEDENCE = (
    row(
        "suspended-before-misconfigured",
        "suspended",
        "first match wins",
        stopped_local_queue(),
        waits("Inadmissible", "ClusterQueue cq doesn't exist"),
    ),
    row(
        "misconfigured-before-backoff",
        "misconfigured",
        "first match wins",
        cluster_queue(),
        waits("Misconfigured", "LocalQueue lq doesn't exist", requeue_in=30),
    ),
    row("backoff-before-exceeds", "backoff", "first match wins", *queued("ExceedsMaxQuota", MAXIMUM, requeue_in=30)),
    row("exceeds-before-preempting", "exceeds_quota", "first match wins", *queued("ExceedsMaxQuota", PREEMPTING)),
    row(
        "preempting-before-topology",
        "preempting",
        "first match wins",
        *labelled("r1", ""),
        waits("TopologyPlacementFailed", f"{FITS_SOME}; {PREEMPTING}", in_rack()),
    ),
    row(
        "topology-before-quota",
        "node_labels",
        "a misfit also says WaitingForQuota",
        *labelled("r1", ""),
        waits("WaitingForQuota", f"{FITS_SOME}; {SIXTEEN}", in_rack()),
    ),
    row(
        "quota-before-gated",
        "quota",
        "gated is of a gang that is admitted or has no Workload",
        *queued("Pending", SIXTEEN),
        *(gated(f"w{n}", IN_WL) for n in range(2)),
    ),
    row("quota-before-missing", "quota", "first match wins", *queued("Pending", SIXTEEN)),
    row(
        "admission-check-before-gated",
        "admission_check",
        "first match wins",
        *checked("example.com/x", ("nodes", "Pending")),
        *(gated(f"w{n}", IN_WL) for n in range(2)),
    ),
    row(
        "preempting-before-gated",
        "preempting",
        "first match wins",
        *nodes(2),
        terminating(lone("old", "n0")),
        terminating(lone("older", "n1")),
        *group(2, *away(1, NO_GPU), gated("w1", TRAIN)),
    ),
    row(
        "gated-before-missing",
        "gated",
        "first match wins",
        *nodes(3),
        *group(3, gated("w0", TRAIN), gated("w1", TRAIN)),
    ),
    row(
        "missing-before-exceeds-node",
        "missing_pods",
        "first match wins",
        *nodes(3),
        *group(3, *away(2, NO_GPU, gpus=16)),
    ),
    row(
        "preempting-before-stuck",
        "preempting",
        "first match wins: the one within its grace suffices",
        *nodes(3),
        terminating(lone("slow", "n0"), began=10, grace=30),
        terminating(lone("stuck", "n1"), began=100, grace=30),
        *group(2, *away(2, NO_GPU)),
    ),
    row(
        "stuck-before-capacity",
        "stuck_terminating",
        "both are needed: one within its grace, one beyond",
        *nodes(2),
        terminating(lone("slow", "n0"), began=10, grace=30),
        terminating(lone("stuck", "n1"), began=100, grace=30),
        *group(2, *away(2, NO_GPU)),
    ),
    row(
        "capacity-before-unschedulable",
        "capacity",
        "first match wins",
        node("n0"),
        *group(2, *away(2, "0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient nvidia.com/gpu.")),
    ),
    row(
        "capacity-before-node-lost",
        "capacity",
        "first match wins: the lost member has its node, the other has none",
        node("n0"),
        node("n1", ready_status="Unknown", since=300),
        *group(
            3, *(ready(f"w{n}", TRAIN, f"n{n}", since=900, created=950) for n in range(2)), *away(1, NO_GPU, first=2)
        ),
    ),
    row(
        "node-lost-before-crash-loop",
        "node_lost",
        "first match wins",
        *nodes(1),
        node("n1", ready_status="Unknown", since=300),
        *group(2, crashing("w0", TRAIN, "n0"), ready("w1", TRAIN, "n1", since=900, created=950)),
    ),
    row(
        "crash-loop-before-image",
        "crash_loop",
        "first match wins",
        *nodes(2),
        *group(2, crashing("w0", TRAIN, "n0"), bound("w1", TRAIN, "n1")),
    ),
    row(
        "unschedulable-before-permit",
        "unschedulable",
        "first match wins",
        *nodes(3),
        *group(2, permit_waiter("w0", TRAIN, "n0"), *away(1, NO_CPU, first=1)),
    ),
)

FORBIDDEN = "forbidden"
#: What is said when a source cannot be read.
UNREAD = (
    row(
        "localqueues-forbidden",
        "quota",
        "absence is a fact only where the source was read",
        cluster_queue(),
        waits("Pending", SIXTEEN),
        unread={"localqueues": FORBIDDEN},
    ),
    row(
        "clusterqueues-forbidden",
        "quota",
        "absence is a fact only where the source was read",
        local_queue("lq", "cq"),
        waits("Pending", SIXTEEN),
        unread={"clusterqueues": FORBIDDEN},
    ),
    row(
        "localqueues-forbidden-and-the-text-says-it",
        "misconfigured",
        "the text is there without the object",
        waits("Inadmissible", "LocalQueue lq doesn't exist"),
        unread={"localqueues": FORBIDDEN},
    ),
    row(
        "clusterqueues-forbidden-and-the-text-says-it",
        "suspended",
        'text "is inactive"',
        local_queue("lq", "cq"),
        waits("Inadmissible", "ClusterQueue cq is inactive"),
        unread={"clusterqueues": FORBIDDEN},
    ),
    row(
        "checks-forbidden",
        "admission_check",
        "provisioning where its controller is known to be that",
        *checked(PROVISIONER, ("nodes", "Pending")),
        unread={"admissionchecks": FORBIDDEN},
    ),
    *(
        row(
            f"topology-{source}-forbidden",
            "topology_request",
            "refined where the nodes tell",
            *labelled("r1", "r2"),
            waits("Pending", FITS_SOME, in_rack()),
            unread={source: FORBIDDEN},
        )
        for source in ("nodes", "clusterqueues", "resourceflavors")
    ),
    *(
        row(f"nodes-forbidden-{name}", blocker, "nothing is computed from nodes", *objects, unread={"nodes": FORBIDDEN})
        for name, blocker, objects in (
            ("exceeds", "unknown", [*nodes(2), *group(2, *away(2, NO_GPU, gpus=16))]),
            ("retry", "unknown", [*nodes(2), *group(2, *away(2, TRIGGER))]),
            ("capacity", "unknown", [*group(2, *away(2, NO_GPU))]),
            ("preempting", "unknown", [*nodes(2), terminating(lone("old", "n1")), *group(2, *away(2, TRIGGER))]),
            ("unschedulable", "unschedulable", [*nodes(2), *queues(), admitted(), *away(2, NO_CPU, IN_WL)]),
            ("missing", "missing_pods", [*nodes(4), *group(4, *away(3, SIBLINGS))]),
        )
    ),
)

ROWS = (*KUEUE, *PODS, *PRECEDENCE, *UNREAD)


def blocker_of(seen: Seen, name: str = "train") -> str | None:
    """Return the blocker of a gang."""
    return seen.picture.verdicts.blockers.get(seen.gang(name).key)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in ROWS])
def test_blocker(case: Row) -> None:
    """The gang's blocker is the one that the sentence of the row says, and it is counted once."""
    seen = look(*case.objects, **case.more)
    assert seen.gang("train").state not in UNBLOCKED
    assert blocker_of(seen) == case.blocker, case.source
    counted = {name: number for (_, name), number in seen.picture.verdicts.blocked.items()}
    assert counted[case.blocker] == sum(blocker_of(seen, view.name) == case.blocker for view in seen.picture.views)


def test_every_blocker_has_a_row() -> None:
    """The closed list of the model is the list of the code, and each of it has a cluster here and in the docs."""
    assert NAMES == (
        "suspended", "misconfigured", "backoff", "exceeds_quota", "preempting", "pods_ready", "topology_request",
        "quota", "provisioning", "admission_check", "gated", "missing_pods", "exceeds_node", "not_retried",
        "stuck_terminating", "capacity", "node_labels", "fragmentation", "unschedulable", "permit", "node_lost",
        "crash_loop", "image_or_init", "unknown",
    )  # fmt: skip
    assert {case.blocker for case in ROWS} == set(NAMES)
    assert tuple(blockers.EXAMPLES) == NAMES
    assert len({case.name for case in ROWS}) == len(ROWS)


@pytest.mark.parametrize("name", NAMES)
def test_examples_of_the_docs(name: str) -> None:
    """Each example has the blocker that it is for."""
    assert blockers.shown(*blockers.EXAMPLES[name]()).near.blocker == name


NOT_BLOCKED: tuple[tuple[str, Callable[[], list[Json]]], ...] = (
    ("running", lambda: [*nodes(2), *group(2, *(ready(f"w{n}", TRAIN, f"n{n}") for n in range(2)))]),
    ("running", lambda: [*nodes(2), *group(2, *(running(f"w{n}", TRAIN, f"n{n}") for n in range(2)))]),
    (
        "running",
        lambda: [*nodes(3), *group(2, *(ready(f"w{n}", TRAIN, f"n{n}") for n in range(2)), *away(1, NO_GPU, first=2))],
    ),
    (
        "finishing",
        lambda: [
            *nodes(2),
            *queues(),
            admitted(),
            succeeded("w0", IN_WL, "n0"),
            ready("w1", IN_WL, "n1"),
        ],
    ),
    ("stopping", lambda: [*nodes(2), *group(2, *(terminating(ready(f"w{n}", TRAIN, f"n{n}")) for n in range(2)))]),
    ("orphan", lambda: [*nodes(2), *away(2, NO_GPU)]),
)


@pytest.mark.parametrize(("state", "objects"), NOT_BLOCKED)
def test_a_gang_that_runs_or_ends_has_no_blocker(state: str, objects: Callable[[], list[Json]]) -> None:
    """Gangs that are running, finishing, stopping or orphan are kept from nothing."""
    seen = look(*objects())
    assert seen.gang("train").state == state
    assert blocker_of(seen) is None
    assert not seen.picture.verdicts.blocked
