# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Topology figures: labels, domains, what is free in them, and what a gang of a given shape could use.

Every expected number is counted by hand from the cluster of the test, or is Kueue's own word.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datadog_checks.kueue_gang.commands import places
from datadog_checks.kueue_gang.derive.deriver import derive
from datadog_checks.kueue_gang.derive.domains import LayoutFigures, LevelFigures
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.derive.transitions import Memory
from datadog_checks.kueue_gang.emit import Report, samples
from datadog_checks.kueue_gang.emit_gang import EmitOptions
from datadog_checks.kueue_gang.facts.pods import Toleration
from lab.replay import CAPTURES, Recording
from tests.model.build import (
    GPU,
    LONE,
    NOTHING_INSTALLED,
    TEAM,
    Json,
    Seen,
    bound,
    flavor,
    look,
    node,
    read,
    ready,
    taint,
    terminating,
    toleration,
    topology_object,
)
from tests.model.test_laws import LAW

BLOCK, RACK, HOST = "example.com/block", "example.com/rack", "kubernetes.io/hostname"
MIG = "nvidia.com/mig-1g.10gb"
POOL = {"pool": "gpu"}
TREE = (topology_object("dc", BLOCK, RACK, HOST), flavor("gpu", POOL, topology="dc"))
SLOTS = ((1, 1), (1, 2), (1, 4), (2, 8))


def host(name: str, block: str = "", rack: str = "", gpus: Any = 8, **more: Any) -> Json:
    """Return a GPU node of the pool; an empty block or rack is a label that it lacks."""
    labels = {HOST: name, **POOL, **({BLOCK: block} if block else {}), **({RACK: rack} if rack else {})}
    return node(name, gpus, labels={**labels, **more.pop("labels", {})}, **more)


def user(on: str, gpus: Any, **more: Any) -> Json:
    """Return a pod of nobody that holds GPUs of a node."""
    return ready(f"user-{on}-{gpus}", LONE, on, gpus=gpus, **more)


def layouts(seen: Seen) -> dict[tuple[str, str], LayoutFigures]:
    """Return the figures by (topology, flavor)."""
    assert seen.picture.layouts is not None
    return {(one.layout.topology, one.layout.flavor): one for one in seen.picture.layouts}


def level(seen: Seen, label: str, topology: str = "dc", of: str = "gpu") -> LevelFigures:
    """Return the figures of a level."""
    (found,) = [one for one in layouts(seen)[topology, of].levels if one.label == label]
    return found


def slots(seen: Seen, label: str, resource: str = GPU) -> dict[str, int]:
    """Return the slots of a level by shape."""
    found = level(seen, label).slots.items()
    return {f"{pods}x{size}": number for ((pods, size), name), number in found if name == resource}


def fragmentation(seen: Seen, label: str, shape: tuple[int, int]) -> float:
    """Return the percentage of free GPUs that gangs of a shape cannot use."""
    pods, size = shape
    return 100 * (1 - pods * size * level(seen, label).slots[shape, GPU] / layouts(seen)["dc", "gpu"].free[GPU])


# --- a recorded cluster ----------------------------------------------------------------------------------------------


@pytest.fixture(name="recorded", scope="module")
def fixture_recorded() -> tuple[Seen, Recording]:
    """Return what the check sees in the recorded cluster with three levels."""
    recording = Recording.open(CAPTURES / "5-tas.tar.xz")
    kinds = {
        "pods": ("v1", "Pod"),
        "nodes": ("v1", "Node"),
        "resourceflavors": ("kueue.x-k8s.io/v1beta2", "ResourceFlavor"),
        "topologies": ("kueue.x-k8s.io/v1beta2", "Topology"),
        "clusterqueues": ("kueue.x-k8s.io/v1beta2", "ClusterQueue"),
        "workloads.kueue.x-k8s.io.v1beta2": ("kueue.x-k8s.io/v1beta2", "Workload"),
    }
    objects = [
        {**item, "apiVersion": version, "kind": kind}
        for name, (version, kind) in kinds.items()
        for item in recording.decoded[name]["items"]
    ]
    rules = Rules(slots=((1, 1), (1, 8), (2, 8)))
    return Seen(*derive(read(objects, rules), rules, Memory(), recording.now.timestamp())), recording


#: By hand: rack r0 (n1, n2) and r2 (n5, n6) full; r1: n3 7 free of 8, n4 8; r3: n7 full, n8 8 free, n10 cordoned; n9
#: has 8 free and no rack. r0 and r1 are block b0, the others b1.
REC_BLOCK, REC_RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"


@pytest.mark.parametrize(
    ("label", "labeled", "unlabeled", "domains", "largest", "shapes"),
    [
        (REC_BLOCK, 10, {}, {"partial": 2}, 15, {"1x1": 23, "1x8": 2, "2x8": 0}),
        (REC_RACK, 9, {GPU: 8}, {"partial": 2, "full": 2}, 15, {"1x1": 23, "1x8": 2, "2x8": 0}),
        (HOST, 10, {}, {"free": 2, "partial": 1, "full": 6}, 8, {"1x1": 23, "1x8": 2, "2x8": 0}),
    ],
)
def test_a_recorded_cluster(
    recorded: tuple[Seen, Recording],
    label: str,
    labeled: int,
    unlabeled: dict[str, int],
    domains: dict[str, int],
    largest: int,
    shapes: dict[str, int],
):
    """Each level of a cluster that ran under Kueue, with a node that lacks its rack and a cordoned one."""
    seen, _ = recorded
    (found,) = [one for one in layouts(seen)["dc-topology", "h100-tas"].levels if one.label == label]
    assert (found.labeled, found.unlabeled) == (labeled, 10 - labeled)
    assert found.unlabeled_gpus == unlabeled
    assert found.domains == domains
    assert found.largest_free == {GPU: largest}
    assert {f"{pods}x{size}": number for ((pods, size), _), number in found.slots.items()} == shapes


def test_the_free_gpus_are_those_that_kueue_sees(recorded: tuple[Seen, Recording]):
    """The cluster has 31 free GPUs, of which Kueue leaves out the 8 of the node without a rack; it counts 8 nodes."""
    seen, recording = recorded
    figures = layouts(seen)["dc-topology", "h100-tas"]
    assert seen.free() == recording.truth["cluster"]["gpu_free_schedulable"] == 31
    assert figures.free == {GPU: 31 - 8}
    said = str(recording.decoded["workloads.kueue.x-k8s.io.v1beta2"])
    assert re.findall(r"Total nodes: (\d+)", said) == ["8"]
    nodes = recording.decoded["nodes"]["items"]
    able = [one for one in nodes if not one["spec"].get("unschedulable") and REC_RACK in one["metadata"]["labels"]]
    assert len(able) == 8
    assert seen.unobservable("placement") == {"no_label": 1}


def test_placement_in_a_recorded_cluster(recorded: tuple[Seen, Recording]):
    """The one that required a rack has it; the one that preferred a rack spans two, which is no violation."""
    seen, _ = recorded
    one, two, none = (seen.gang(name, "pretrain") for name in ("one-rack", "two-racks", "no-rack-fits"))
    assert one.placement
    assert (one.placement.verdict, one.placement.level, one.placement.outside) == ("match", REC_RACK, 0)
    assert one.placement.domains == ((REC_BLOCK, 1, 2), (REC_RACK, 1, 2), (HOST, 2, 1))
    assert two.placement
    assert (two.placement.verdict, two.placement.level, two.placement.outside) == ("match", REC_RACK, 0)
    # n5 and n6 in rack r2, n7 in r3.
    assert two.placement.domains == ((REC_BLOCK, 1, 3), (REC_RACK, 2, 2), (HOST, 3, 1))
    # r3 has n7 (its own) and n8, and no other rack has three nodes.
    assert seen.picture.needed(two.placement) == {REC_BLOCK: 1, REC_RACK: 2, HOST: 3}
    assert none.placement is None
    assert not one.attention
    assert not two.attention
    assert seen.picture.summary.placements == {("dc-topology", REC_RACK, "h100-tas", "match"): 2}


def test_what_status_tells(recorded: tuple[Seen, Recording]):
    """One line a level; nothing is misplaced."""
    seen, _ = recorded
    assert places.lines(seen.picture) == [
        "topology dc-topology, flavor h100-tas",
        f"  {REC_BLOCK}: 10 of 10 nodes labelled, 2 domains (2 partial), at most 15 free in one",
        (
            f"  {REC_RACK}: 9 of 10 nodes labelled, 8 GPUs out of sight, 4 domains (2 partial, 2 full), "
            "at most 15 free in one"
        ),
        f"  {HOST}: 10 of 10 nodes labelled, 9 domains (2 free, 1 partial, 6 full), at most 8 free in one",
    ]
    assert list(places.misplaced(seen.picture.gangs)) == []
    assert places.unobservable(seen.picture) == ["not observable: placement of 1 node (no label)"]


# --- field reports ---------------------------------------------------------------------------------------------------


def test_free_gpus_in_crumbs():
    """scheduler-plugins#429: 6, 2, 2, 2 free on four hosts: 12 free, but one pod of 4 fits, and six of 2."""
    hosts = [host(f"n{number}", "b", "r") for number in range(4)]
    used = [user("n0", 2), *(user(f"n{number}", 6) for number in (1, 2, 3))]
    seen = look(*TREE, *hosts, *used, slots=SLOTS)
    for label in (BLOCK, RACK, HOST):
        assert slots(seen, label) == {"1x1": 12, "1x2": 6, "1x4": 1, "2x8": 0}
        assert fragmentation(seen, label, (1, 4)) == pytest.approx(66.67, abs=0.01)
        assert fragmentation(seen, label, (1, 1)) == 0
    assert level(seen, RACK).largest_free == {GPU: 12}
    assert level(seen, HOST).largest_free == {GPU: 6}


def test_pods_of_others_and_sidecars_take_their_part():
    """kueue#10876, KAI#1880: pods outside of Kueue, DaemonSets, sidecars and the peak of init containers count."""
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {GPU: "1"}, "limits": {GPU: "1"}}}
    init = {"name": "i", "resources": {"requests": {GPU: "4"}, "limits": {GPU: "4"}}}
    # While it initialises: the sidecar that has started, and 4; while it runs: 1 and the sidecar.
    mixed = bound("mixed", LONE, "n0", gpus=1, spec={"initContainers": [sidecar, init]})
    seen = look(*TREE, host("n0", "b", "r"), mixed, slots=((1, 4), (1, 3)))
    assert level(seen, HOST).largest_free == {GPU: 3}
    assert slots(seen, RACK) == {"1x4": 0, "1x3": 1}


def test_a_node_in_two_flavors():
    """kueue#10659: a node that two flavors select counts once in the cluster, in each of them, and as shared."""
    objects = [
        topology_object("dc", BLOCK, HOST),
        flavor("reserved", POOL, topology="dc"),
        flavor("ondemand", POOL, topology="dc"),
        host("n0", "b"),
        host("n1", "b", labels={"pool": "other"}),
        user("n0", 4),
    ]
    seen = look(*objects, user("n0", {GPU: "4"}))
    assert seen.free() == 8
    found = layouts(seen)
    assert {key: (one.nodes_shared, one.free[GPU]) for key, one in found.items()} == {
        ("dc", "reserved"): (1, 0),
        ("dc", "ondemand"): (1, 0),
    }
    # A flavor without labels, as for pods without GPUs, selects every node and names none.
    alone = look(
        topology_object("dc", BLOCK, HOST), flavor("gpu", POOL, topology="dc"), flavor("default"), *objects[3:]
    )
    assert layouts(alone)["dc", "gpu"].nodes_shared == 0


def test_the_same_rack_name_in_two_blocks_and_a_node_without_a_rack():
    """Six GPU nodes; n5 lacks its rack, and rack-1 is in both blocks: coverage 6/6 and 5/6, two racks of that name."""
    objects = [
        host("n1", "block-a", "rack-1"),
        host("n2", "block-a", "rack-1"),
        host("n3", "block-a", "rack-2"),
        host("n4", "block-b", "rack-1"),
        host("n5", "block-b"),
        host("n6", "block-b", "rack-1"),
    ]
    seen = look(*TREE, *objects, slots=((2, 8),))
    assert (level(seen, BLOCK).labeled, level(seen, BLOCK).unlabeled) == (6, 0)
    assert (level(seen, RACK).labeled, level(seen, RACK).unlabeled) == (5, 1)
    assert level(seen, RACK).unlabeled_gpus == {GPU: 8}
    assert level(seen, RACK).domains == {"free": 3}
    assert level(seen, RACK).largest_free == {GPU: 16}
    # Two in rack-1 of block-a, one alone in rack-2, two in rack-1 of block-b.
    assert slots(seen, RACK) == {"2x8": 2}
    # In the blocks: three nodes, and two that have all labels.
    assert slots(seen, BLOCK) == {"2x8": 2}
    assert layouts(seen)["dc", "gpu"].free == {GPU: 40}


@pytest.mark.parametrize(
    "levels",
    [
        ("oci.oraclecloud.com/rdma.hpc_island_id", "oci.oraclecloud.com/rdma.network_block_id"),
        ("cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock"),
        ("backend.coreweave.cloud/superpod", "ds.coreweave.com/nvlink.domain"),
        ("fabric.topograph.run/tier-1", "accelerator.topograph.run/sub-domain"),
        # kube-state-metrics#1156: labels that become one name when they are cleaned.
        ("a.b/rack-id", "a.b/rack.id"),
    ],
)
def test_labels_are_taken_as_they_are(levels: tuple[str, ...]):
    """The labels of no cloud are built in, and none is changed: levels that look alike stay two."""
    wide, low = levels
    objects = [
        node("n0", labels={**POOL, wide: "x0123456789", low: "y"}),
        node("n1", labels={**POOL, wide: "x0123456789"}),
    ]
    seen = look(topology_object("net", wide, low), flavor("gpu", POOL, topology="net"), *objects)
    assert level(seen, wide, "net").unlabeled_gpus == {}
    assert level(seen, low, "net").unlabeled_gpus == {GPU: 8}


# --- nodes that take pods --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node_has", "tolerates", "asks", "option", "free"),
    [
        ({}, [], [], (), 8),
        ({"cordoned": True}, [], [], (), 0),
        ({"ready_status": "False"}, [], [], (), 0),
        ({"taints": [taint("team", "a")]}, [], [], (), 0),
        ({"taints": [taint("team", "a", "PreferNoSchedule")]}, [], [], (), 8),
        ({"taints": [taint("team", "a")]}, [toleration("team", "a")], [], (), 8),
        ({"taints": [taint("team", "a")]}, [], [toleration("team", "a")], (), 8),
        ({"taints": [taint("team", "a")]}, [], [], (Toleration("team", "Exists", "", ""),), 8),
        ({"taints": [taint(GPU, "present")]}, [], [], (), 8),
        (
            {"taints": [taint("node.kubernetes.io/unreachable")]},
            [toleration("node.kubernetes.io/unreachable", operator="Exists")],
            [],
            (),
            0,
        ),
    ],
)
def test_free_gpus_are_those_of_nodes_that_take_pods(
    node_has: dict[str, Any],
    tolerates: list[Json],
    asks: list[Json],
    option: tuple[Toleration, ...],
    free: int,
):
    """A node that takes no pod of the flavor has its domain and its label, and nothing free."""
    objects = [host("n0", "b", "r", **node_has), user("n9", 1, spec={"tolerations": asks})]
    seen = look(
        topology_object("dc", BLOCK, RACK), flavor("gpu", POOL, tolerates, topology="dc"), *objects,
        tolerated_taints=option,
    )  # fmt: skip
    assert level(seen, RACK).labeled == 1
    assert level(seen, RACK).largest_free == {GPU: free}
    assert level(seen, RACK).domains == {"free" if free else "full": 1}


def test_a_flavor_tolerates_for_itself_only():
    """Two flavors select a tainted node, and one of them tolerates the taint: only there it has free GPUs."""
    seen = look(
        topology_object("dc", BLOCK),
        flavor("spot", POOL, [toleration("spot", operator="Exists")], topology="dc"),
        flavor("plain", POOL, topology="dc"),
        host("n0", "b", taints=[taint("spot")]),
    )
    assert level(seen, BLOCK, of="spot").largest_free == {GPU: 8}
    assert level(seen, BLOCK, of="plain").largest_free == {GPU: 0}
    assert seen.free() == 8


def test_resources_are_kept_apart_and_share_the_state_of_a_domain():
    """A slice is no GPU; a domain is free, partial or full by all resources together."""
    objects = [host("n0", "b", "r0", gpus={GPU: 4}), host("n1", "b", "r1", gpus={GPU: 0, MIG: 7})]
    seen = look(*TREE, *objects, user("n0", 4), user("n1", {MIG: 1}), slots=((1, 1), (1, 4)))
    assert level(seen, RACK).largest_free == {GPU: 0, MIG: 6}
    assert slots(seen, RACK) == {"1x1": 0, "1x4": 0}
    assert slots(seen, RACK, MIG) == {"1x1": 6, "1x4": 1}
    assert level(seen, RACK).domains == {"full": 1, "partial": 1}
    assert level(seen, BLOCK).domains == {"partial": 1}


def test_terminating_pods_hold_until_they_are_gone():
    """What a pod that goes still holds is not free."""
    seen = look(*TREE, host("n0", "b", "r"), terminating(user("n0", 8)))
    assert level(seen, HOST).domains == {"full": 1}


# --- bad input, and what is not known --------------------------------------------------------------------------------


def test_a_device_plugin_that_is_down():
    """0 of 8 allocatable: a GPU node with its labels, nothing free, and its capacity where a label is missing."""
    seen = look(*TREE, host("n0", "b", "", allocatable={GPU: 0}), host("n1", "b", "r", allocatable={GPU: 0}))
    assert level(seen, RACK).unlabeled_gpus == {GPU: 8}
    assert level(seen, RACK).domains == {"full": 1}
    assert level(seen, RACK).largest_free == {GPU: 0}
    assert layouts(seen)["dc", "gpu"].free == {GPU: 0}


def test_allocatable_below_allocated():
    """A node that offers fewer GPUs than its pods hold has none free, not less than none."""
    seen = look(*TREE, host("n0", "b", "r", allocatable=4), host("n1", "b", "r"), user("n0", 8))
    assert level(seen, RACK).largest_free == {GPU: 8}
    assert level(seen, HOST).domains == {"full": 1, "free": 1}


def test_a_label_that_no_node_has():
    """Coverage of the level is 0 of 2, there is no domain, and nothing is free: Kueue drops every node."""
    seen = look(*TREE, host("n0", "b"), host("n1", "b"))
    assert (level(seen, RACK).labeled, level(seen, RACK).unlabeled) == (0, 2)
    assert level(seen, RACK).domains == {}
    assert level(seen, RACK).largest_free == {GPU: 0}
    # Below the missing level no node is in a domain, although it has the label.
    assert (level(seen, HOST).labeled, level(seen, HOST).domains) == (2, {})
    assert level(seen, BLOCK).domains == {"full": 1}
    assert seen.unobservable("placement") == {"no_label": 2}


@pytest.mark.parametrize(
    "objects",
    [
        (flavor("gpu", POOL, topology="gone"),),
        (flavor("gpu", POOL),),
        (topology_object("dc", BLOCK),),
        (topology_object("dc"), flavor("gpu", POOL, topology="dc")),
        (topology_object("dc", BLOCK), flavor("gpu", {"pool": "elsewhere"}, topology="dc")),
        (),
    ],
    ids=["no Topology", "names none", "no flavor", "no levels", "selects no node", "nothing"],
)
def test_nothing_to_tell(objects: tuple[Json, ...]):
    """A flavor whose Topology does not exist, or that selects no GPU node, has no figures and makes no error."""
    seen = look(*objects, host("n0", "b"), node("cpu", 0, labels=POOL))
    assert seen.picture.layouts == ()
    assert seen.unobservable("placement") == {}


def test_what_is_zero_is_told_where_it_is_known():
    """Coverage is sent also as 0, fragmentation not where nothing is free, and no slot as a series."""
    seen = look(*TREE, host("n0", "b"), host("n1", "b"), slots=SLOTS)
    sent = samples(Report(seen.picture, ()), EmitOptions())
    values = {(one.metric.name, *one.tags[2:]): one.value for one in sent if one.metric.name.startswith("topology.")}
    assert values["topology.label_coverage", f"topology_level:{RACK}"] == 0
    assert not any(name in {"topology.fragmentation", "topology.slots"} for name, *_ in values)


@pytest.mark.parametrize("source", ["nodes", "resourceflavors", "topologies"])
def test_what_was_not_read_is_not_told(source: str):
    """Without nodes, flavors or Topologies there are no figures, not zeros, whatever the option says."""
    seen = look(*TREE, host("n0", "b", "r"), user("n0", 1), unread={source: "forbidden"}, topology_levels=(BLOCK,))
    assert seen.picture.layouts is None
    assert seen.unobservable("placement") == {}


def test_without_pods_nothing_is_known_to_be_free():
    """Labels are known from the nodes alone."""
    seen = look(*TREE, host("n0", "b", "r"), unread={"pods": "forbidden"})
    assert seen.picture.layouts
    assert not seen.picture.free_known


# --- the levels of the option ----------------------------------------------------------------------------------------


def test_the_option_is_for_clusters_without_a_topology():
    """Without Kueue the levels of the option are over all GPU nodes, with what any flavor and any pod tolerates."""
    hosts = [host("n0", "b", "r"), host("n1", "b"), node("n2", labels={BLOCK: "c", RACK: "r"}), node("cpu", 0)]
    seen = look(
        *hosts, topology_levels=(BLOCK, RACK),
        unread={**NOTHING_INSTALLED, "resourceflavors": "not_installed", "topologies": "not_installed"},
    )  # fmt: skip
    assert list(layouts(seen)) == [("", "")]
    assert (level(seen, RACK, "", "").labeled, level(seen, RACK, "", "").unlabeled) == (2, 1)
    assert level(seen, RACK, "", "").domains == {"free": 2}
    # Nobody leaves out n1, which has its block and no rack.
    assert level(seen, BLOCK, "", "").largest_free == {GPU: 16}
    assert level(seen, RACK, "", "").largest_free == {GPU: 8}
    assert layouts(seen)["", ""].free == {GPU: 24}


def test_a_topology_of_kueue_goes_before_the_option():
    """Where a flavor names a Topology that exists, its levels are used, and the option has no effect."""
    seen = look(*TREE, host("n0", "b", "r"), topology_levels=(RACK,))
    assert list(layouts(seen)) == [("dc", "gpu")]
    seen = look(flavor("gpu", POOL, topology="gone"), host("n0", "b", "r"), topology_levels=(RACK,))
    assert list(layouts(seen)) == [("", "")]


# --- laws ------------------------------------------------------------------------------------------------------------


def _hosts() -> st.SearchStrategy[list[tuple[str, str, int, int, bool]]]:
    return st.lists(
        st.tuples(
            st.sampled_from(("a", "b", "")), st.sampled_from(("r0", "r1", "")), st.integers(0, 8), st.integers(0, 10),
            st.booleans(),
        ),
        min_size=1,
        max_size=9,
    )  # fmt: skip


def _cluster(hosts: list[tuple[str, str, int, int, bool]], prefix: str) -> Iterator[Json]:
    yield from TREE
    for number, (block, rack, gpus, used, cordoned) in enumerate(hosts):
        name = f"{prefix}{number}"
        yield host(name, block, rack, gpus, cordoned=cordoned)
        if used:
            yield user(name, used)


@LAW
@given(_hosts())
def test_names_of_nodes_change_nothing(hosts: list[tuple[str, str, int, int, bool]]):
    """Nodes of other names, in another order, give the same figures."""
    one, two = (look(*objects, slots=SLOTS) for objects in (_cluster(hosts, "n"), [*_cluster(hosts, "m")][::-1]))
    assert one.picture.layouts == two.picture.layouts


@LAW
@given(_hosts())
def test_what_the_figures_keep(hosts: list[tuple[str, str, int, int, bool]]):
    """Counted plainly from the list of hosts: labels, domains, and bounds of what is free."""
    seen = look(*_cluster(hosts, "n"), slots=SLOTS)
    gpu_nodes = [one for one in hosts if one[2]]
    if not gpu_nodes:
        assert seen.picture.layouts == ()
        return
    figures = layouts(seen)["dc", "gpu"]
    assert (level(seen, BLOCK).unlabeled == 0) == all(block for block, *_ in gpu_nodes)
    assert (level(seen, RACK).unlabeled == 0) == all(rack for _, rack, *_ in gpu_nodes)
    assert level(seen, RACK).unlabeled_gpus == (
        {GPU: lacking} if (lacking := sum(gpus for _, rack, gpus, *_ in gpu_nodes if not rack)) else {}
    )
    free = sum(
        max(0, gpus - used) for block, rack, gpus, used, cordoned in gpu_nodes if block and rack and not cordoned
    )
    assert figures.free == {GPU: free}
    racks = {(block, rack) for block, rack, *_ in gpu_nodes if block and rack}
    assert sum(level(seen, RACK).domains.values()) == len(racks)
    for label in (BLOCK, RACK, HOST):
        assert slots(seen, label)["1x1"] == free
        assert level(seen, label).largest_free[GPU] <= free
        for (pods, size), _ in level(seen, label).slots:
            assert 0 <= pods * size * level(seen, label).slots[(pods, size), GPU] <= free
    for shape in SLOTS:
        counted = [level(seen, label).slots[shape, GPU] for label in (BLOCK, RACK, HOST)]
        # A wider domain has room for what its parts have room for.
        assert counted == sorted(counted, reverse=True)


def test_the_namespace_of_a_pod_does_not_matter():
    """GPUs that pods of other namespaces hold are not free."""
    seen = look(*TREE, host("n0", "b", "r"), user("n0", 3, namespace="elsewhere"), namespaces=(TEAM,))
    assert level(seen, HOST).largest_free == {GPU: 5}
