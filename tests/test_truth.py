# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Every recorded moment of real clusters, served over HTTP, through the real check, against the truth beside it.

Each moment is a new check. Only what was sent is read, never an object of the check.

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
