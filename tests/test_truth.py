# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Every recorded moment of real clusters, served over HTTP, through the real check, against the truth beside it.

Each moment is a new check. Only what was sent is read, never an object of the check.

What blocks each gang is in some truth files; of other recordings it is worked out here by hand, from their objects.

Where the truth is the scheduler's own log, the API cannot show it: the number of pods that wait in Permit lies between
what is certain and what is possible. There the check is right when it claims no more than is true. With the
scheduler's metrics served it must be exact.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from datadog_checks.base.stubs.aggregator import AggregatorStub

from lab.replay import CAPTURES, Recording, ReplayServer, moments
from tests.sent import Sent, run

#: What a Permit waiter can look like.
_PERMIT = ("waiting_permit", "waiting_possible", "rejected", "unschedulable")
#: States of gangs that nothing keeps from running.
_NOT_BLOCKED = {"running", "finishing", "stopping", "orphan", "finished"}

#: By archive and moment: gang -> its blocker, each worked out by hand from what the objects of that moment say.
_BY_HAND: dict[tuple[str, str], dict[str, str]] = {
    # Both are admitted, and each pod has the gate example.com/data-staged.
    ("8-deadlock", "t1"): {"moe-a": "gated", "moe-b": "gated"},
    # Four nodes of 8: each gang sits on two of them and has a pod of 8 left. Free: 0 of 8.
    ("8-deadlock", "t2"): {"moe-a": "capacity", "moe-b": "capacity"},
    # Four nodes of 8: a notebook has one, the gang three, two pods of 8 are left. Free: 0 of 16.
    ("4-kueue-partial", "t1"): {"gpt-neo": "capacity"},
    # Evicted for PodsReadyTimeout; requeueAt 23:16:45 is 20 s ahead, though its pods still run.
    ("4-kueue-partial", "t2"): {"gpt-neo": "backoff"},
    # QuotaReserved is False now; requeueAt is 16 s ahead.
    ("4-kueue-partial", "t3"): {"gpt-neo": "backoff"},
    # Admitted again, as in t1; requeueAt is gone.
    ("4-kueue-partial", "t4"): {"gpt-neo": "capacity"},
    # v1 terminates on gpu-f-0, -1 and -2 and has 0.8 s left of its grace. When it is gone, 24 are free: the pod of 8
    # that v2 has left fits, and so would the three of 4 of ctr-eval.
    ("6-terminating", ""): {"ctr-model-v2": "preempting", "ctr-eval": "preempting"},
    # bulk-embed may have pool main only: it holds 4 x 8 there, a pod of 8 is left, 0 are free. The pods of reindex
    # have their node and pull images.
    ("9-preempt", "t1"): {"bulk-embed": "capacity", "reindex": "image_or_init"},
    # bulk-embed was evicted this second: QuotaReserved turns False next. The hotfix is WaitingForPreemptedWorkloads.
    ("9-preempt", "t2"): {"bulk-embed": "quota", "incident-hotfix": "preempting", "reindex": "image_or_init"},
    # WaitingForQuota: 16 more needed.
    ("9-preempt", "t3"): {"bulk-embed": "quota", "reindex": "image_or_init"},
    # The ClusterQueue of reindex has stopPolicy HoldAndDrain.
    ("9-preempt", "t4"): {"bulk-embed": "quota", "reindex": "suspended"},
    ("9-preempt", "t5"): {"bulk-embed": "quota", "reindex": "suspended"},
    # One member of wav-codec is bound and does not run. rlhf-pods is WaitingForQuota: 8 more needed; its pods are
    # gated, which counts only for an admitted gang.
    ("10-mixed-healthy", ""): {"wav-codec": "image_or_init", "rlhf-pods": "quota"},
    # Eleven nodes of 8: tokenizer-ft has 12 of them, 4 are free on gpu-a-11. Nine members wait on the nine other nodes
    # or did: 80 are needed and 76 there, or 8 are needed and 4 there.
    **{("1-permit-wait", f"t{number}"): {"llama-pretrain": "capacity"} for number in range(1, 8)},
}


def _recordings() -> Iterator[tuple[str, str]]:
    for archive in sorted(CAPTURES.glob("*.tar.xz")):
        if archive.name not in {"discovery.tar.xz", "watch.tar.xz"}:
            for moment in moments(archive):
                yield archive.name, moment


MOMENTS = list(_recordings())


def test_all_moments_are_here() -> None:
    """The recordings hold 48 moments; none may get lost."""
    assert len(MOMENTS) == 48


@pytest.mark.parametrize(
    ("archive", "moment", "with_scheduler"),
    [
        pytest.param(archive, moment, counted, id=f"{archive[:-7]}-{moment}-{'scheduler' if counted else 'api'}")
        for archive, moment in MOMENTS
        for counted in (False, True)
        if not counted or any("cosched" in name for name in Recording.open(CAPTURES / archive, moment).evidence)
    ],
)
def test_truth(aggregator: AggregatorStub, archive: str, moment: str, with_scheduler: bool) -> None:
    """State, required, members, GPUs of each gang and of the cluster are what the truth file says."""
    recording = Recording.open(CAPTURES / archive, moment)
    with ReplayServer(recording) as server:
        instance: dict[str, Any] = {"kube_api_url": server.url, "per_gang_metrics": "all"}
        if with_scheduler:
            instance["scheduler_metrics"] = {"url": f"{server.url}/scheduler/metrics"}
        _, report = run(instance)
    assert report == ""
    sent, truth = Sent(aggregator), recording.truth
    for gang in truth["gangs"]:
        _compare(sent, gang, exact=with_scheduler or gang.get("truth_source") != "scheduler log")
    expected = {
        (gang["namespace"], gang.get("job", gang["name"])) for gang in truth["gangs"] if gang["state"] != "finished"
    }
    assert {(one.tags["kube_namespace"], one.tags["gang"]) for one in sent.series["gang.state_seconds"]} == expected
    _compare_cluster(sent, truth["cluster"])
    _compare_deadlock(sent, truth)
    blockers = {one.tags["gang"]: one.tags["blocker"] for one in sent.series["gang.blocked"]}
    if (archive[:-7], moment) in _BY_HAND:
        assert blockers == _BY_HAND[archive[:-7], moment]


def test_deadlocked_gangs_get_attention_at_once(aggregator: AggregatorStub) -> None:
    """Six seconds after their pods were placed, long before the grace is over, each has series of its own."""
    recording = Recording.open(CAPTURES / "8-deadlock.tar.xz", "t2")
    with ReplayServer(recording) as server:
        run({"kube_api_url": server.url})
    sent = Sent(aggregator)
    assert {one.tags["gang"] for one in sent.of("gang.blocked", blocker="capacity")} == {"moe-a", "moe-b"}
    assert all(one.value < 60 for one in sent.series["gang.state_seconds"])
    assert (sent.total("gangs.deadlocked"), sent.total("gpus.deadlocked")) == (2, 32)


def _compare(sent: Sent, truth: dict[str, Any], *, exact: bool) -> None:
    tags = {
        "gang": truth.get("job", truth["name"]),
        "kube_namespace": truth["namespace"],
        "gang_engine": truth["engine"],
    }
    states = sent.of("gang.state_seconds", **tags)
    if truth["state"] == "finished":
        assert states == []
        return
    (state,) = states
    assert state.value >= 0
    assert sent.only("gang.required", **tags) == truth["required"]
    assert sent.total("gang.gpus_allocated", **tags) == truth["gpus_allocated"]
    assert sent.total("gang.gpus_idle", **tags) == truth["gpus_idle"]
    blockers = [one.tags["blocker"] for one in sent.of("gang.blocked", **tags)]
    assert len(blockers) == (state.tags["gang_state"] not in _NOT_BLOCKED)
    if truth.get("blocker"):
        assert blockers == [truth["blocker"]]
    members = sent.by("gang.members", "member_state", **tags)
    true_members = {name: number for name, number in truth["members"].items() if number}
    if exact:
        assert members == true_members
        assert state.tags["gang_state"] == truth["state"]
        assert sent.total("gang.gpus_reserved", **tags) == truth.get("gpus_reserved", 0)
        return
    waiting = true_members.get("waiting_permit", 0)
    assert members.get("waiting_permit", 0) <= waiting
    assert members.get("waiting_permit", 0) + members.get("waiting_possible", 0) >= waiting
    assert sum(members.get(name, 0) for name in _PERMIT) == sum(true_members.get(name, 0) for name in _PERMIT)
    rest = {name: number for name, number in members.items() if name not in _PERMIT}
    assert rest == {name: number for name, number in true_members.items() if name not in _PERMIT}
    assert state.tags["gang_state"] in {truth["state"], "rejected" if truth["state"] == "waiting" else truth["state"]}
    assert sent.total("gang.gpus_reserved", **tags) <= truth.get("gpus_reserved", 0)


def _compare_deadlock(sent: Sent, truth: dict[str, Any]) -> None:
    """Where a truth file does not speak of a deadlock there is none."""
    deadlocked = [gang for gang in truth["gangs"] if gang.get("deadlocked")]
    assert len(deadlocked) == truth["cluster"].get("deadlocked", 0)
    assert sent.total("gangs.deadlocked") == len(deadlocked)
    assert sent.total("gpus.deadlocked") == sum(gang["gpus_allocated"] for gang in deadlocked)


def _compare_cluster(sent: Sent, truth: dict[str, Any]) -> None:
    assert sent.total("gpus.allocatable") == truth["gpu_allocatable"]
    assert sent.total("gpus.allocated") == truth["gpu_allocated"]
    assert sent.total("gpus.free") == truth["gpu_free_schedulable"]
    assert sent.by("gpus.idle", "idle_reason") == truth["gpu_idle_by_reason"]
    assert sent.total("gpus.idle_total") == sum(truth["gpu_idle_by_reason"].values())
    assert sent.total("gpus.allocated", gpu_use="idle") == sum(truth["gpu_idle_by_reason"].values())
    assert sent.total("gpus.allocated", gpu_use="other") == truth["gpu_other"]
    if "gpu_busy" in truth:
        assert sent.total("gpus.allocated", gpu_use="busy") == truth["gpu_busy"]
    for resource, numbers in truth.get("by_resource", {}).items():
        assert sent.total("gpus.allocatable", gpu_resource=resource) == numbers["allocatable"]
        assert sent.total("gpus.allocated", gpu_resource=resource) == numbers["allocated"]
        assert sent.total("gpus.free", gpu_resource=resource) == numbers["free_schedulable"]


def test_topology_and_quota_are_sent(aggregator: AggregatorStub) -> None:
    """A recorded cluster with three levels, a node without the rack label and a cordoned one, by hand.

    Free for Kueue: n3 7 and n4 8 in rack r1, n8 8 in r3; n9 has no rack. A pod of 8 fits on n4 and on n8.
    """
    recording = Recording.open(CAPTURES / "5-tas.tar.xz")
    with ReplayServer(recording) as server:
        run({"kube_api_url": server.url, "per_gang_metrics": "all"})
    sent = Sent(aggregator)
    block, rack, host = (
        "cloud.provider.com/topology-block",
        "cloud.provider.com/topology-rack",
        "kubernetes.io/hostname",
    )
    of = {"topology": "dc-topology", "kueue_resource_flavor": "h100-tas"}
    at_rack = {**of, "topology_level": rack}
    assert sent.by("topology.label_coverage", "topology_level", **of) == {block: 100, rack: 90, host: 100}
    assert sent.by("topology.nodes", "labeled", **at_rack) == {"true": 9, "false": 1}
    assert sent.by("topology.unlabeled_gpus", "topology_level", **of) == {rack: 8}
    assert sent.by("topology.domains", "domain_state", **at_rack) == {"partial": 2, "full": 2}
    assert sent.by("topology.largest_free", "topology_level", **of) == {block: 15, rack: 15, host: 8}
    assert sent.by("topology.slots", "slot", **at_rack) == {"1x1": 23, "1x8": 2}
    assert sent.only("topology.fragmentation", slot="1x1", **at_rack) == 0
    assert sent.only("topology.fragmentation", slot="1x8", **at_rack) == pytest.approx(100 * (1 - 16 / 23))
    assert sent.only("topology.fragmentation", slot="2x8", **at_rack) == 100
    assert sent.by("topology.gangs", "placement", **at_rack) == {"match": 2}
    assert sent.only("unobservable", signal="placement", reason="no_label") == 1
    assert sent.by("gang.topology_domains", "gang", topology_level=rack) == {"one-rack": 1, "two-racks": 2}
    assert sent.by("gang.topology_domains_needed", "gang", topology_level=rack) == {"one-rack": 1, "two-racks": 2}
    # 200 nominal; the ten nodes offer 80; both admitted gangs have all their pods.
    flavor = {"kueue_resource_flavor": "h100-tas", "gpu_resource": "nvidia.com/gpu"}
    quota = {"kueue_cluster_queue": "pretrain-cq", **flavor}
    assert [sent.only(f"quota.{name}", **quota) for name in ("nominal", "reserved", "used")] == [200, 40, 40]
    assert sent.series["quota.borrowed"] == sent.series["quota.without_pods"] == []
    assert sent.only("quota.unbacked", **flavor) == 200 - recording.truth["cluster"]["gpu_allocatable"]
