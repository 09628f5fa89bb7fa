# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Gangs that hold each other's GPUs.

The rule: of the incomplete gangs that hold GPUs (placed or certainly reserved) and of which no pod is missing, each
that fits into free GPUs plus what terminating pods will give is released in turn. Of what is left, a gang that would
fit if another of the rest gave back what it holds is deadlocked.
"""

import pytest

from tests.model.build import (
    GPU,
    LONE,
    NO_GPU,
    NOW,
    Json,
    Seen,
    bound,
    look,
    node,
    of_group,
    permit_waiter,
    pod_group,
    ready,
    terminating,
    unscheduled,
)


def nodes(number: int, gpus: int = 8) -> list[Json]:
    """Return nodes n0, n1, ..."""
    return [node(f"n{index}", gpus) for index in range(number)]


def half(name: str, where: str, size: int = 2, rest: int | None = None, gpus: int = 8) -> list[Json]:
    """Return a gang with one member placed, and the others (or so many of them) turned away."""
    tie = of_group(name)
    waiting = size - 1 if rest is None else rest
    return [
        pod_group(name, size),
        ready(f"{name}-0", tie, where, gpus=gpus),
        *(unscheduled(f"{name}-{index}", tie, NO_GPU, gpus=gpus) for index in range(1, waiting + 1)),
    ]


def deadlocked(seen: Seen) -> set[str]:
    """Return the names of the deadlocked gangs."""
    return {name for _, _, name in seen.picture.verdicts.deadlocked}


def test_two_gangs_that_hold_half_each():
    """Two nodes, two gangs of two: each would run if the other gave back its node. 16 GPUs are deadlocked."""
    seen = look(*nodes(2), *half("a", "n0"), *half("b", "n1"))
    assert deadlocked(seen) == {"a", "b"}
    assert dict(seen.picture.verdicts.deadlocked_gpus) == {GPU: 16}
    assert seen.picture.verdicts.blockers[seen.gang("a").key] == "capacity"


def test_one_gang_alone_is_short_of_gpus():
    """Nobody else holds what it needs in vain: no deadlock."""
    seen = look(*nodes(2), *half("a", "n0"), ready("other", LONE, "n1"))
    assert deadlocked(seen) == set()


def test_three_gangs_in_a_ring():
    """Each needs a node of the pool in which the next one sits: none can begin, all three are deadlocked."""
    pools = ("red", "green", "blue")
    objects: list[Json] = [node(f"n-{pool}", labels={"pool": pool}) for pool in pools]
    for index, name in enumerate("abc"):
        tie = of_group(name)
        objects += [
            pod_group(name, 2),
            ready(f"{name}-0", tie, f"n-{pools[index]}", spec={"nodeSelector": {"pool": pools[index]}}),
            unscheduled(f"{name}-1", tie, NO_GPU, spec={"nodeSelector": {"pool": pools[(index + 1) % 3]}}),
        ]
    seen = look(*objects)
    assert deadlocked(seen) == {"a", "b", "c"}
    assert dict(seen.picture.verdicts.deadlocked_gpus) == {GPU: 24}


def test_three_gangs_of_which_any_would_do():
    """Three nodes, three gangs of two: each would fit if any one of the others gave back its node."""
    seen = look(*nodes(3), *half("a", "n0"), *half("b", "n1"), *half("c", "n2"))
    assert deadlocked(seen) == {"a", "b", "c"}


def test_of_two_gangs_one_fits():
    """A node is free: one of them fits, runs, and gives back what the other needs. No deadlock."""
    seen = look(*nodes(3), *half("a", "n0"), *half("b", "n1"))
    assert deadlocked(seen) == set()


def test_a_chain_is_no_deadlock():
    """The first fits, its GPUs let the second run, and those of both the third."""
    seen = look(
        *nodes(4),
        *half("a", "n0", 2),
        *half("b", "n1", 3),
        *half("c", "n2", 4),
    )
    assert deadlocked(seen) == set()


@pytest.mark.parametrize("began", [10, 100])
def test_gpus_of_pods_that_terminate_are_as_good_as_free(began: float):
    """Within their grace or beyond: what terminating pods will give lets one of the two run."""
    seen = look(*nodes(3), terminating(ready("old", LONE, "n2"), began=began), *half("a", "n0"), *half("b", "n1"))
    assert deadlocked(seen) == set()


def test_a_starting_gang_ends_it():
    """All members of one have a node: it needs nothing, will run and give back what the other waits for."""
    tie = of_group("b")
    seen = look(*nodes(3), *half("a", "n0"), pod_group("b", 2), ready("b-0", tie, "n1"), bound("b-1", tie, "n2"))
    assert seen.gang("b").state == "starting"
    assert deadlocked(seen) == set()


def test_a_gang_with_missing_pods_is_not_in_it():
    """A pod that does not exist waits for nothing: it holds its GPUs in vain, but no deadlock does it."""
    seen = look(*nodes(2), *half("a", "n0"), *half("b", "n1", 2, rest=0))
    assert seen.gang("b").missing == 1
    assert deadlocked(seen) == set()
    assert dict(seen.picture.verdicts.deadlocked_gpus) == {}


def test_reserved_gpus_count_as_held():
    """Members that wait in Permit hold GPUs in the scheduler: two gangs that wait for each other so are deadlocked."""
    seen = look(
        *nodes(2),
        *(
            obj
            for name, where in (("a", "n0"), ("b", "n1"))
            for obj in (
                pod_group(name, 2),
                permit_waiter(f"{name}-0", of_group(name), where),
                unscheduled(f"{name}-1", of_group(name), NO_GPU),
            )
        ),
    )
    assert deadlocked(seen) == {"a", "b"}
    assert dict(seen.picture.verdicts.deadlocked_gpus) == {GPU: 16}


def test_gangs_too_large_for_the_cluster_are_short_of_gpus():
    """Not even with all that the other holds would either fit: they are short of GPUs, which is no deadlock."""
    seen = look(*nodes(2), *half("a", "n0", 5), *half("b", "n1", 5))
    assert deadlocked(seen) == set()


def test_a_deadlocked_gang_needs_attention_at_once():
    """It is deadlocked from the first second on, before the grace is over."""
    young = {"since": 5, "created": 8}
    objects = [*nodes(2)]
    for name, where in (("a", "n0"), ("b", "n1")):
        tie = of_group(name)
        objects += [
            pod_group(name, 2, created=8),
            ready(f"{name}-0", tie, where, **young),
            unscheduled(f"{name}-1", tie, NO_GPU, created=8, since=5),
        ]
    seen = look(*objects)
    assert not seen.gang("a").attention
    assert deadlocked(seen) == {"a", "b"}


def test_it_ends_when_one_gives_back():
    """One of the two is deleted: the other fits, and the deadlock is over in the same run."""
    objects = [*nodes(2), *half("a", "n0")]
    before = look(*objects, *half("b", "n1"))
    assert deadlocked(before) == {"a", "b"}
    after = look(*objects, memory=before.memory, now=NOW + 15)
    assert deadlocked(after) == set()


def test_gangs_of_other_namespaces_are_counted_and_not_told():
    """A gang that is not reported takes part in a deadlock, and only the reported ones are told."""
    seen = look(
        *nodes(2),
        *half("a", "n0"),
        pod_group("b", 2, namespace="other"),
        ready("b-0", of_group("b"), "n1", namespace="other"),
        unscheduled("b-1", of_group("b"), NO_GPU, namespace="other"),
        namespaces=("team",),
    )
    assert deadlocked(seen) == {"a"}
    assert dict(seen.picture.verdicts.deadlocked_gpus) == {GPU: 8}
