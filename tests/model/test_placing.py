# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Clusters of a few nodes on which what fits is easily told wrong; each was found by test_exhaustive."""

from random import Random

from tests.model.build import TEAM, bound, look, node, of_group, pod_group, unscheduled
from tests.model.exhaustive import HOSTNAME, Box, Machine, Party, World
from tests.model.worlds import objects

NO_ROOM = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."


def _answer(*objects, name="train"):
    return look(*objects).picture.verdicts.blockers["coscheduling", TEAM, name]


def _pinned(name, host, gpus):
    return unscheduled(name, of_group("train"), NO_ROOM, gpus=gpus, spec={"nodeSelector": {HOSTNAME: host}})


def test_pods_that_name_their_node_are_asked_about_on_that_node():
    """Fit respects nodeSelector, also one that names a host: neither the sum nor the size of other nodes counts."""
    nodes = [node("n1", 4, labels={HOSTNAME: "n1"}), node("n2", 8, labels={HOSTNAME: "n2"}), pod_group("train", 2)]
    assert _answer(*nodes, _pinned("a", "n2", 4), _pinned("b", "n2", 4)) == "not_retried"
    assert _answer(*nodes, _pinned("a", "n2", 8), _pinned("b", "n2", 8)) == "capacity"
    assert _answer(*nodes, _pinned("a", "n1", 8), _pinned("b", "n1", 8)) == "exceeds_node"
    assert _answer(*nodes, _pinned("a", "gone", 8), _pinned("b", "gone", 8)) == "capacity"


def test_what_comes_back_to_a_node_with_broken_gpus_fills_them_first():
    """Free is allocatable less allocated, never below zero: 8 GPUs given back to a node that offers 4 make 4 free.

    So `b` would not fit if `a` gave back what it holds, and is short of GPUs, not deadlocked.
    """
    seen = look(
        node("n1", 8, allocatable=4),
        node("n2", 8),
        pod_group("a", 2),
        bound("a-0", of_group("a"), "n1", gpus=8),
        unscheduled("a-1", of_group("a"), NO_ROOM, gpus=8),
        pod_group("b", 2),
        bound("b-0", of_group("b"), "n2", gpus=8),
        unscheduled("b-1", of_group("b"), NO_ROOM, gpus=8),
    )
    assert {name for _, _, name in seen.picture.verdicts.deadlocked} == {"a"}


def test_nodes_that_lack_different_labels_could_be_one_domain():
    """It would fit if nodes without a level label had it: n1 has the rack and n2 the block of a domain with room for 2.

    Either label alone would not do, as neither node has room for both pods.
    """
    box = Box("train", 8)
    labels = [((HOSTNAME, "n1"), ("rack", "r")), ((HOSTNAME, "n2"), ("block", "a"))]
    machines = tuple(Machine(f"n{index}", 8, 8, found) for index, found in enumerate(labels, 1))
    world = World(machines, (Party("train", (box, box), 2, "rack"),), ("block", "rack", HOSTNAME))
    seen = look(*objects(world, Random(0)))
    assert seen.picture.verdicts.blockers["kueue", TEAM, "train"] == "node_labels"
