# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""GPU quota: what queues state, what is reserved without a pod, and what no node stands behind."""

from typing import Any

import pytest

from tests.model.build import (
    GPU,
    Json,
    Seen,
    admission_check,
    bound,
    cluster_queue,
    cohort,
    flavor,
    gated,
    local_queue,
    look,
    node,
    of_group,
    of_job,
    of_workload,
    pod_group,
    podset,
    ready,
    succeeded,
    terminating,
    workload,
)

POOL = {"pool": "gpu"}
PROVISIONING = "kueue.x-k8s.io/provisioning-request"
NODES = [node(f"n{number}", 8, labels=POOL) for number in range(4)]


def unbacked(seen: Seen) -> dict[str, int]:
    """Return the quota without nodes by flavor."""
    assert seen.picture.quotas.unbacked is not None
    return {name: amount for (name, _), amount in seen.picture.quotas.unbacked.items()}


def without_pods(*objects: Json, **more: Any) -> dict[tuple[str, str], int]:
    """Return what is reserved without pods by (ClusterQueue, resource)."""
    found = look(*objects, **more).picture.quotas.without_pods
    assert found is not None
    return dict(found)


def test_queues_state_their_quota():
    """Nominal from the spec, reserved and used from the status, and of the used ones what is borrowed."""
    queue = cluster_queue("cq", {"gpu": 16, "spot": 0}, reserved={"gpu": (24, 8)}, used={"gpu": (20, 4)})
    quotas = look(queue, *NODES).picture.quotas
    assert dict(quotas.nominal) == {("cq", "gpu", GPU): 16, ("cq", "spot", GPU): 0}
    assert dict(quotas.reserved) == {("cq", "gpu", GPU): 24}
    assert dict(quotas.used) == {("cq", "gpu", GPU): 20}
    assert dict(quotas.borrowed) == {("cq", "gpu", GPU): 4}


# --- reserved without pods -------------------------------------------------------------------------------------------

TRAIN = ("JobSet", "train")


@pytest.mark.parametrize(
    ("pods", "missing"),
    [
        ([], 32),
        ([gated("w-0", of_workload("wl"))], 32),
        ([bound("w-0", of_workload("wl"), "n0"), ready("w-1", of_workload("wl"), "n1")], 16),
        ([ready(f"w-{rank}", of_workload("wl"), f"n{rank}") for rank in range(4)], 0),
        # It holds its GPUs until it is gone; one that is over holds none.
        ([terminating(ready("w-0", of_workload("wl"), "n0"))], 24),
        ([succeeded("w-0", of_workload("wl"), "n0")], 32),
        # More than was reserved is not less than nothing.
        ([ready(f"w-{rank}", of_workload("wl"), f"n{rank % 4}") for rank in range(5)], 0),
    ],
    ids=["none", "gated", "two", "all", "terminating", "succeeded", "more"],
)
def test_reserved_and_not_held(pods: list[Json], missing: int):
    """A Workload that reserves 4 x 8 GPUs, less what its pods hold."""
    found = without_pods(*NODES, workload("wl", TRAIN, podset(4), admitted=400), *pods)
    assert found == ({("cq", GPU): missing} if missing else {})


@pytest.mark.parametrize(
    ("made", "missing"),
    [
        (workload("wl", TRAIN, podset(4)), 0),
        (workload("wl", TRAIN, podset(4), reserved=100), 32),
        (workload("wl", TRAIN, podset(4), admitted=400, finished=10), 0),
        (workload("wl", TRAIN, podset(4), admitted=400, evicted=("True", 20, "Preempted")), 32),
        (workload("wl", TRAIN, podset(4, assigned=3), admitted=400), 24),
        (workload("wl", TRAIN, podset(4, reclaimed=3), admitted=400), 8),
        (workload("wl", TRAIN, podset(4, assigned=2, reclaimed=1), admitted=400), 16),
        (workload("wl", TRAIN, podset(4, gpus=0), podset(1, "l", gpus=1), admitted=400), 1),
        (workload("wl", TRAIN, podset(4), admitted=400, cluster_name="far"), 0),
        (
            workload(
                "wl", TRAIN, podset(4), admitted=400,
                labels={"kueue.x-k8s.io/concurrent-admission-parent": "true"},
            ),
            0,
        ),
        (workload("wl", ("Deployment", "serve"), podset(1), admitted=400), 8),
    ],
    ids=[
        "pending", "reserved", "finished", "evicting", "partial", "reclaimed", "partial and reclaimed", "podsets",
        "elsewhere", "parent", "no gang",
    ],
)  # fmt: skip
def test_what_a_workload_reserves(made: Json, missing: int):
    """min(assigned, count less reclaimed) pods of each podset, of Workloads that hold a reservation here."""
    assert without_pods(*NODES, made) == ({("cq", GPU): missing} if missing else {})


def test_each_workload_for_itself():
    """Too many pods of one Workload are no pods of another; of a queue all Workloads are added."""
    objects = [
        workload("one", TRAIN, podset(2), admitted=400),
        *(ready(f"a-{rank}", of_workload("one"), f"n{rank}") for rank in range(3)),
        workload("two", ("JobSet", "other"), podset(2), admitted=400),
        workload("three", ("Job", "sweep"), podset(2, gpus=1), admitted=400),
        ready("c-0", of_workload("three") + of_job("sweep", None), "n3", gpus=1),
        workload("four", ("JobSet", "far"), podset(1), admitted=400, cluster_queue="cq-2"),
    ]
    assert without_pods(*NODES, *objects) == {("cq", GPU): 16 + 1, ("cq-2", GPU): 8}
    # Whose gangs are reported does not matter to what a queue reserves.
    assert without_pods(*NODES, *objects, namespaces=("elsewhere",)) == {("cq", GPU): 17, ("cq-2", GPU): 8}


def test_pods_of_a_podgroup_are_those_of_their_workload():
    """Two Workloads whose pods are in one PodGroup hold what their own pods hold."""
    objects = [
        pod_group("train", 2),
        workload("one", ("Job", "a"), podset(1), admitted=400),
        workload("two", ("Job", "b"), podset(1), admitted=400),
        ready("a-0", of_group("train") + of_workload("one"), "n0"),
    ]
    assert without_pods(*NODES, *objects) == {("cq", GPU): 8}


@pytest.mark.parametrize("source", ["pods", "workloads.kueue.x-k8s.io"])
def test_it_is_not_told_without_pods_or_workloads(source: str):
    """What pods hold is not known where they were not read."""
    seen = look(*NODES, workload("wl", TRAIN, podset(4), admitted=400), unread={source: "forbidden"})
    assert seen.picture.quotas.without_pods is None


# --- quota without nodes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([cluster_queue("cq", {"gpu": 32})], {}),
        ([cluster_queue("cq", {"gpu": 33})], {"gpu": 1}),
        ([cluster_queue("a", {"gpu": 20}), cluster_queue("b", {"gpu": 20})], {"gpu": 8}),
        ([cluster_queue("a", {"gpu": 20}), cohort("all", {"gpu": 20})], {"gpu": 8}),
        # A flavor without an object admits nothing, one that selects no node has none.
        ([cluster_queue("cq", {"gone": 9, "empty": 7})], {"empty": 7}),
    ],
    ids=["backed", "one too many", "two queues", "cohort", "no object, no nodes"],
)
def test_quota_without_nodes(objects: list[Json], expected: dict[str, int]):
    """All nominal quota of a flavor less the 32 GPUs that its nodes offer."""
    flavors = [flavor("gpu", POOL), flavor("empty", {"pool": "none"})]
    assert unbacked(look(*NODES, *flavors, *objects)) == expected


def test_unhealthy_gpus_back_no_quota():
    """Allocatable counts, not capacity; what pods hold or a cordon keeps does back it."""
    nodes = [node("n0", 8, allocatable=6, labels=POOL), node("n1", 8, labels=POOL, cordoned=True)]
    seen = look(*nodes, flavor("gpu", POOL), cluster_queue("cq", {"gpu": 16}))
    assert unbacked(seen) == {"gpu": 2}


@pytest.mark.parametrize(
    ("checks", "controller", "elastic", "expected"),
    [
        ({"grow": ()}, PROVISIONING, (), {}),
        ({"grow": ("gpu",)}, PROVISIONING, (), {"spot": 90}),
        ({"grow": ("spot",)}, PROVISIONING, (), {"gpu": 68}),
        ({"grow": ()}, "kueue.x-k8s.io/multikueue", (), {"gpu": 68, "spot": 90}),
        ({"other": ()}, PROVISIONING, (), {"gpu": 68, "spot": 90}),
        (None, PROVISIONING, (), {"gpu": 68, "spot": 90}),
        (None, PROVISIONING, ("spot",), {"gpu": 68}),
        (None, PROVISIONING, ("spo", "gpu"), {"spot": 90}),
    ],
)
def test_flavors_that_grow(
    checks: dict[str, tuple[str, ...]] | None, controller: str, elastic: tuple[str, ...], expected: dict[str, int]
):
    """Quota of flavors that a provisioning check makes grow, or that the user calls elastic, is meant to be more."""
    seen = look(
        *NODES, flavor("gpu", POOL), flavor("spot", {"pool": "spot"}), admission_check("grow", controller),
        cluster_queue("cq", {"gpu": 100, "spot": 90}, checks=checks), elastic_flavors=frozenset(elastic),
    )  # fmt: skip
    assert unbacked(seen) == expected


def test_a_check_that_cannot_be_understood_may_provision():
    """It exists and says nothing: quota of its flavors is not called unbacked."""
    broken = {**admission_check("grow", ""), "spec": 5}
    seen = look(*NODES, flavor("gpu", POOL), cluster_queue("cq", {"gpu": 100}, checks={"grow": ()}), broken)
    assert unbacked(seen) == {}


@pytest.mark.parametrize(
    ("unread", "checks", "told"),
    [
        ({"nodes": "forbidden"}, None, False),
        ({"clusterqueues": "forbidden"}, None, False),
        ({"resourceflavors": "stale"}, None, False),
        ({"cohorts": "forbidden"}, None, False),
        ({"cohorts": "not_installed"}, None, True),
        ({"admissionchecks": "forbidden"}, None, True),
        ({"admissionchecks": "forbidden"}, {"grow": ()}, False),
    ],
)
def test_quota_without_nodes_needs_all_that_decides_it(
    unread: dict[str, str], checks: dict[str, tuple[str, ...]] | None, told: bool
):
    """It is not told where a source that could change it was not read."""
    seen = look(*NODES, flavor("gpu", POOL), cluster_queue("cq", {"gpu": 100}, checks=checks), unread=unread)
    assert (seen.picture.quotas.unbacked is not None) == told


def test_nothing_is_stated_of_queues_that_were_not_read():
    """No quota, not a quota of zero."""
    quotas = look(*NODES, cluster_queue("cq", {"gpu": 100}), unread={"clusterqueues": "forbidden"}).picture.quotas
    assert (quotas.nominal, quotas.reserved, quotas.used, quotas.borrowed) == ({}, {}, {}, {})


def test_a_node_in_two_flavors_backs_both():
    """kueue#10659: each flavor has the 8 GPUs of the node; nobody adds flavors up."""
    flavors = [flavor("partial-reserved", POOL), flavor("ondemand", POOL)]
    queue = cluster_queue("cq", {"partial-reserved": 3, "ondemand": 0}, used={"ondemand": (8, 8)})
    seen = look(NODES[0], *flavors, queue)
    assert unbacked(seen) == {}
    assert dict(seen.picture.quotas.used) == {("cq", "ondemand", GPU): 8}


def test_quota_is_not_called_unbacked_while_a_node_cannot_be_understood():
    """What that node offers is not known: unknown is not zero."""
    strange = node("strange")
    strange["spec"]["taints"] = "x"
    cluster = [node("n0"), flavor("gpu"), cluster_queue("cq", {"gpu": 16})]
    assert unbacked(look(*cluster)) == {"gpu": 8}
    assert look(*cluster, strange).picture.quotas.unbacked is None


def test_a_workload_lacks_no_pods_where_some_cannot_be_understood():
    """Neither its quota nor itself is called without pods while a pod of its namespace may be the one that it lacks."""
    strange = ready("x", of_workload("w"), "n0")
    strange["status"]["phase"] = "Dancing"
    cluster = [node("n0"), cluster_queue("cq", {"gpu": 16}), flavor("gpu"), local_queue("lq", "cq"),
               workload("w", ("JobSet", "train"), podset(2), admitted=500)]  # fmt: skip
    seen = look(*cluster)
    assert seen.picture.quotas.without_pods == {("cq", GPU): 16}
    assert seen.picture.workloads is not None
    assert sum(seen.picture.workloads.without_pods.values()) == 1
    seen = look(*cluster, strange)
    assert seen.picture.quotas.without_pods == {}
    assert seen.picture.workloads is not None
    assert not seen.picture.workloads.without_pods
