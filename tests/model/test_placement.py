# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Where gangs lie against what they asked for, and how few domains could hold them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datadog_checks.kueue_gang.commands import places
from datadog_checks.kueue_gang.derive.placement import Placement
from tests.model.build import (
    GPU,
    LONE,
    Json,
    Seen,
    flavor,
    look,
    node,
    of_group,
    of_workload,
    pod_group,
    podset,
    ready,
    topology_object,
    unscheduled,
    workload,
)
from tests.model.test_laws import LAW

BLOCK, RACK, HOST = "example.com/block", "example.com/rack", "kubernetes.io/hostname"
POOL = {"pool": "gpu"}
TREE = (topology_object("dc", BLOCK, RACK, HOST), flavor("gpu", POOL, topology="dc"))
#: Node -> (block, rack): two racks of two nodes in block a; one of four in block b, with the name of one in a.
WHERE = {
    "a1": ("a", "r1"), "a2": ("a", "r1"), "a3": ("a", "r2"), "a4": ("a", "r2"),
    "b1": ("b", "r1"), "b2": ("b", "r1"), "b3": ("b", "r1"), "b4": ("b", "r1"),
}  # fmt: skip


def host(name: str, without: str = "", **more: Any) -> Json:
    """Return a node of `WHERE` with its labels but one."""
    block, rack = WHERE[name]
    labels = {**POOL, BLOCK: block, RACK: rack, HOST: name}
    labels.pop(without, None)
    return node(name, 8, labels=labels, **more)


HOSTS = [host(name) for name in WHERE]


def gang(on: str, request: Json | None, gpus: int = 8, **more: Any) -> list[Json]:
    """Return a gang whose members are on these nodes; `-` is one without a node."""
    nodes = on.split()
    pods = [
        ready(f"w-{rank}", of_workload("wl"), name, gpus=gpus)
        if name != "-"
        else unscheduled(f"w-{rank}", of_workload("wl"), gpus=gpus)
        for rank, name in enumerate(nodes)
    ]
    made = podset(more.pop("count", len(nodes)), gpus=gpus, request=request, **more)
    return [workload("wl", ("JobSet", "train"), made, admitted=400), *pods]


def placed(seen: Seen, name: str = "train") -> Placement:
    """Return where the gang lies."""
    found = seen.gang(name).placement
    assert found
    return found


def spans(seen: Seen, name: str = "train") -> dict[str, tuple[int, int]]:
    """Return by level the domains spanned and the most members in one."""
    return {label: (number, most) for label, number, most in placed(seen, name).domains}


REQUIRED, PREFERRED = {"required": RACK}, {"preferred": RACK}
SLICES = {"podSetSliceRequiredTopology": RACK, "podSetSliceSize": 2}


@pytest.mark.parametrize(
    ("on", "asked", "verdict", "label"),
    [
        ("a1 a2", REQUIRED, "match", RACK),
        ("a1 a3", REQUIRED, "violation", RACK),
        # The racks of one name are in two blocks.
        ("a1 b1", REQUIRED, "violation", RACK),
        ("a1 a3", {"required": BLOCK}, "match", BLOCK),
        # Half placed: what is there is in one rack.
        ("a1 - -", REQUIRED, "match", RACK),
        ("a1 a3 -", REQUIRED, "violation", RACK),
        ("a1 a3", PREFERRED, "match", RACK),
        ("a1 b1", {"unconstrained": True}, "match", HOST),
        ("a1 a2 b1 b2", SLICES, "match", RACK),
        ("a1 a2 a3 b1", SLICES, "violation", RACK),
        # Three of four: the fourth may come to the one that is alone.
        ("a1 a2 a3 -", SLICES, "match", RACK),
        # Two of four, each alone: 2 slices of 2 are still possible.
        ("a1 a3 - -", SLICES, "match", RACK),
        ("a1 a3 b1 -", SLICES, "violation", RACK),
        # Five pods are three slices, of which the last has one pod.
        ("a1 a2 a3 b1 b2", SLICES, "match", RACK),
        ("a1 a3 b1", {"required": BLOCK, **SLICES}, "violation", BLOCK),
        ("a1 a2 a3 a4", {"required": BLOCK, **SLICES}, "match", BLOCK),
    ],
)
def test_verdicts(on: str, asked: Json, verdict: str, label: str):
    """Match, or violation of what was required of the domain or of the slices; what is preferred is never violated."""
    seen = look(*TREE, *HOSTS, *gang(on, asked))
    found = placed(seen)
    assert (found.verdict, found.level, found.topology, found.flavor) == (verdict, label, "dc", "gpu")
    assert seen.picture.summary.placements == {("dc", label, "gpu", verdict): 1}


def test_constraints_of_several_levels():
    """Kueue 0.17: slices of 4 in a block, and of 2 in a rack; the inner one is violated."""
    rules = [{"topology": BLOCK, "size": 4}, {"topology": RACK, "size": 2}]
    request = {"podsetSliceRequiredTopologyConstraints": rules}
    assert placed(look(*TREE, *HOSTS, *gang("a1 a2 a3 a4", request))).verdict == "match"
    assert placed(look(*TREE, *HOSTS, *gang("a1 a2 b1 b2", request))).verdict == "violation"
    assert placed(look(*TREE, *HOSTS, *gang("a1 - a3 -", request))).verdict == "match"


@pytest.mark.parametrize(
    ("on", "asked", "without", "verdict", "seen_at"),
    [
        ("a1 a2", REQUIRED, RACK, "unobservable", {BLOCK: (1, 2)}),
        # The whole path counts: without its block, nobody knows which r1 this is.
        ("a1 a2", REQUIRED, BLOCK, "unobservable", {}),
        # What the others prove stands.
        ("a1 a2 a3", REQUIRED, RACK, "violation", {BLOCK: (1, 3)}),
        ("a1 a2", PREFERRED, RACK, "unobservable", {BLOCK: (1, 2)}),
        # The label that a1 lacks is below the level that was asked for.
        ("a1 a2", {"required": BLOCK}, RACK, "match", {BLOCK: (1, 2)}),
    ],
)
def test_unobservable(
    on: str, asked: Json, without: str, verdict: str, seen_at: dict[str, tuple[int, int]]
):  # fmt: skip
    """marin#7481: a third answer where a node lacks a label, unless the other nodes prove a violation."""
    hosts = [host(name, without if name == "a1" else "") for name in WHERE]
    seen = look(*TREE, *hosts, *gang(on, asked))
    assert placed(seen).verdict == verdict
    assert spans(seen) == seen_at
    assert seen.unobservable("placement") == {"no_label": 1}


def test_a_gang_of_eight_on_three_racks():
    """kueue#13416: 1, 3 and 4 members on three racks: three domains, the largest share is four."""
    hosts = [node(f"n{i}", 8, labels={**POOL, BLOCK: "a", RACK: "pqqqrrrr"[i], HOST: f"n{i}"}) for i in range(8)]
    seen = look(*TREE, *hosts, *gang(" ".join(f"n{i}" for i in range(8)), PREFERRED))
    assert spans(seen) == {BLOCK: (1, 8), RACK: (3, 4), HOST: (8, 1)}
    # No node is free, and 4 + 3 are not enough.
    assert seen.picture.needed(placed(seen)) == {BLOCK: 1, RACK: 3, HOST: 8}


def test_a_violation_needs_attention():
    """A gang that runs outside of what it required needs attention, one that spans what it preferred does not."""
    assert look(*TREE, *HOSTS, *gang("a1 a3", REQUIRED)).gang("train").attention
    assert not look(*TREE, *HOSTS, *gang("a1 a3", PREFERRED)).gang("train").attention


@pytest.mark.parametrize("asked", [None, {"podIndexLabel": "batch.kubernetes.io/job-completion-index"}, {}])
def test_most_requests_ask_for_nothing(asked: Json | None):
    """Kueue writes a topologyRequest for most jobs only to name index labels: such gangs count in no verdict."""
    seen = look(*TREE, *HOSTS, *gang("a1 b1", asked))
    assert placed(seen).verdict == ""
    assert spans(seen) == {BLOCK: (2, 1), RACK: (2, 1), HOST: (2, 1)}
    assert seen.picture.summary.placements == {}


def test_members_without_gpus_or_without_a_known_node_do_not_count():
    """A launcher without GPUs lies anywhere; a node that is gone has no place; a gang that is not placed has none."""
    launcher = [
        workload("wl", ("JobSet", "train"), podset(1, "l", gpus=0), podset(2, "w", request=REQUIRED), admitted=400),
        ready("l", of_workload("wl", "l"), "b1", gpus=0),
        ready("w-0", of_workload("wl", "w"), "a1"),
        ready("w-1", of_workload("wl", "w"), "a2"),
    ]
    assert placed(look(*TREE, *HOSTS, *launcher)).verdict == "match"
    assert spans(look(*TREE, *HOSTS, *gang("a1 gone", REQUIRED)))[RACK] == (1, 1)
    assert look(*TREE, *HOSTS, *gang("- -", REQUIRED)).gang("train").placement is None


def test_podsets_are_judged_each_and_span_together():
    """Two podsets, each in a rack of its own as required: a match, and two racks; the worse verdict of two tells."""
    members = [ready(f"{where}", of_workload("wl", role), where) for role, where in (("x", "a1"), ("x", "a2"))]
    members += [ready(f"{where}", of_workload("wl", "y"), where) for where in ("b1", "b2")]
    asked = workload(
        "wl", ("JobSet", "train"), podset(2, "x", request=REQUIRED), podset(2, "y", request=REQUIRED), admitted=400
    )
    seen = look(*TREE, *HOSTS, asked, *members)
    assert placed(seen).verdict == "match"
    assert spans(seen)[RACK] == (2, 2)
    moved = [*members[:1], ready("a3", of_workload("wl", "x"), "a3"), *members[2:]]
    assert placed(look(*TREE, *HOSTS, asked, *moved)).verdict == "violation"
    # Pods that name no podset cannot be judged by either.
    nameless = [ready(where, of_workload("wl", ""), where) for where in ("a1", "a2", "b1", "b2")]
    assert placed(look(*TREE, *HOSTS, asked, *nameless)).verdict == "unobservable"


# --- Kueue's assignment ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assignment", "outside"),
    [
        (None, 0),
        ({}, 0),
        ({"levels": [HOST], "domains": []}, 0),
        ({"levels": [HOST], "domains": [{"values": ["a1"], "count": 1}, {"values": ["a2"], "count": 1}]}, 0),
        ({"levels": [HOST], "domains": [{"values": ["a1"], "count": 1}, {"values": ["a3"], "count": 1}]}, 1),
        ({"levels": [HOST], "domains": [{"values": ["b1"], "count": 2}]}, 2),
        ({"levels": [BLOCK, RACK], "domains": [{"values": ["a", "r1"], "count": 2}]}, 0),
        ({"levels": [BLOCK, RACK], "domains": [{"values": ["b", "r1"], "count": 2}]}, 2),
        # One more than was assigned there.
        ({"levels": [BLOCK, RACK], "domains": [{"values": ["a", "r1"], "count": 1}]}, 1),
    ],
)
def test_members_outside_of_the_assignment(assignment: Json | None, outside: int):
    """Members that run elsewhere than Kueue said are counted, and are no violation as long as the request holds."""
    seen = look(*TREE, *HOSTS, *gang("a1 a2", REQUIRED, assignment=assignment))
    assert (placed(seen).outside, placed(seen).verdict) == (outside, "match")


def test_what_status_tells_of_a_misplaced_gang():
    """What is not where it was required, and what is not where Kueue meant it to be, each in a line."""
    assignment = {"levels": [HOST], "domains": [{"values": ["a1"], "count": 1}, {"values": ["a2"], "count": 1}]}
    seen = look(*TREE, *HOSTS, *gang("a1 a3", REQUIRED, assignment=assignment))
    assert list(places.misplaced(seen.picture.gangs)) == [
        f"misplaced: team/train is not in the domains of {RACK} that it required: on 2, at most 1 in one",
        "misplaced: team/train runs elsewhere than Kueue assigned it: 1 of its members",
    ]


# --- which topology --------------------------------------------------------------------------------------------------


def test_the_flavor_of_the_admission_goes_first():
    """Two flavors select the same nodes: the one that the Workload got tells the topology."""
    other = (topology_object("flat", RACK), flavor("other", POOL, topology="flat"))
    seen = look(*TREE, *other, *HOSTS, *gang("a1 b1", REQUIRED, flavor="other"))
    # In the flat topology the racks of one name are one.
    assert (placed(seen).topology, placed(seen).flavor, placed(seen).verdict) == ("flat", "other", "match")
    assert spans(seen) == {RACK: (1, 2)}


def test_without_an_admission_the_nodes_tell():
    """A gang without Kueue lies in the topology of the only flavor that selects its nodes; with two nobody knows."""
    train = [pod_group("train", 2), *(ready(name, of_group("train"), name) for name in ("a1", "b1"))]
    assert spans(look(*TREE, *HOSTS, *train))[RACK] == (2, 1)
    assert look(*TREE, flavor("second", POOL, topology="dc"), *HOSTS, *train).gang("train").placement is None
    elsewhere = (topology_object("dc", RACK), flavor("gpu", {"pool": "other"}, topology="dc"))
    assert look(*elsewhere, *HOSTS, *train).gang("train").placement is None


def test_the_levels_of_the_option():
    """Without any Topology the option's levels tell what a gang spans."""
    train = [pod_group("train", 2), *(ready(name, of_group("train"), name) for name in ("a1", "b1"))]
    seen = look(*HOSTS, *train, topology_levels=(BLOCK, RACK))
    assert spans(seen) == {BLOCK: (2, 1), RACK: (2, 1)}
    assert (placed(seen).topology, placed(seen).flavor) == ("", "")
    assert seen.picture.needed(placed(seen)) == {BLOCK: 1, RACK: 1}


def test_a_topology_that_is_gone():
    """A request is there and the Topology is not: where the gang lies cannot be said."""
    seen = look(flavor("gpu", POOL, topology="gone"), *HOSTS, *gang("a1 a3", REQUIRED))
    assert placed(seen).verdict == "unobservable"
    assert seen.picture.summary.placements == {("", RACK, "gpu", "unobservable"): 1}


@pytest.mark.parametrize("source", ["nodes", "resourceflavors", "topologies"])
def test_nothing_is_said_of_what_was_not_read(source: str):
    """Without nodes, flavors or Topologies there is no verdict, not even that it is unobservable."""
    seen = look(*TREE, *HOSTS, *gang("a1 a3", REQUIRED), unread={source: "forbidden"})
    assert seen.gang("train").placement is None
    assert seen.picture.summary.placements == {}


# --- how few domains could hold it -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on", "taken", "needed"),
    [
        # Every rack of block a has two nodes, the one of block b four.
        ("a1 a3", "", {BLOCK: 1, RACK: 1, HOST: 2}),
        ("a1 a2 a3", "", {BLOCK: 1, RACK: 1, HOST: 3}),
        # With two nodes of b taken, a rack has two at most.
        ("a1 a2 a3", "b1 b2", {BLOCK: 1, RACK: 2, HOST: 3}),
        ("a1 a2 a3 b3 b4", "b1 b2", {BLOCK: 2, RACK: 3, HOST: 5}),
        # Its own node in b is as good as free.
        ("a1 a2 b1", "b2 b3", {BLOCK: 1, RACK: 2, HOST: 3}),
    ],
)
def test_the_least_number_of_domains(on: str, taken: str, needed: dict[str, int]):
    """The largest domains first, with what is free and what the gang itself holds."""
    others = [ready(f"other-{name}", LONE, name) for name in taken.split()]
    seen = look(*TREE, *HOSTS, *others, *gang(on, PREFERRED))
    assert seen.picture.needed(placed(seen)) == needed


def test_the_size_of_pods_counts():
    """Free 6, 2, 2, 2 beside its own: pods of 4 find room on the first host only; small ones can share hosts."""
    hosts = [host(name) for name in ("a1", "a2", "a3", "a4")]
    others = [ready(f"o-{name}", LONE, name, gpus=gpus) for name, gpus in (("a1", 2), ("a2", 2), ("a3", 6), ("a4", 6))]
    seen = look(*TREE, *hosts, *others, *gang("a1 a2", PREFERRED, gpus=4))
    # a1 and a2 have room for one each (6 // 4), a3 and a4 for none.
    assert seen.picture.needed(placed(seen)) == {BLOCK: 1, RACK: 1, HOST: 2}
    seen = look(*TREE, *hosts, *others, *gang("a1 a2", PREFERRED, gpus=2))
    assert seen.picture.needed(placed(seen)) == {BLOCK: 1, RACK: 1, HOST: 1}


def test_unequal_pods_are_added_up():
    """Pods of 2 and 6 GPUs hold 8 together: one host could hold them, which is a lower bound."""
    members = [ready("x", of_workload("wl", "x"), "a1", gpus=2), ready("y", of_workload("wl", "y"), "a3", gpus=6)]
    asked = workload("wl", ("JobSet", "train"), podset(1, "x", gpus=2), podset(1, "y", gpus=6), admitted=400)
    seen = look(*TREE, *HOSTS, asked, *members)
    assert seen.picture.needed(placed(seen)) == {BLOCK: 1, RACK: 1, HOST: 1}


def test_where_nothing_could_hold_it():
    """All its nodes were cordoned since: what it needs now cannot be said, what it spans can."""
    hosts = [host(name, cordoned=True) for name in WHERE]
    seen = look(*TREE, *hosts, *gang("a1 a3", PREFERRED))
    assert spans(seen)[RACK] == (2, 1)
    assert seen.picture.needed(placed(seen)) == {}


@LAW
@given(
    st.lists(st.sampled_from(sorted(WHERE)), min_size=2, max_size=8),
    st.integers(1, 8),
    st.sets(st.sampled_from(sorted(WHERE))),
)
def test_it_never_needs_more_than_it_spans(on: list[str], gpus: int, taken: set[str]):
    """On nodes that take pods: 1 <= needed <= spanned, the wider level never more than the narrower."""
    room = {name: 8 - gpus * on.count(name) for name in WHERE}
    if min(room.values()) < 0:
        return
    others = [ready(f"o-{name}", LONE, name, gpus=room[name]) for name in sorted(taken) if room[name]]
    seen = look(*TREE, *HOSTS, *others, *gang(" ".join(on), PREFERRED, gpus=gpus))
    needed, spanned = seen.picture.needed(placed(seen)), spans(seen)
    assert [1 <= needed[label] <= spanned[label][0] for label in (BLOCK, RACK, HOST)] == [True] * 3
    assert needed[BLOCK] <= needed[RACK] <= needed[HOST]
    assert seen.gang("train").allocated == {GPU: gpus * len(on)}
