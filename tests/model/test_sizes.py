# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""How many members a job needs whose size only its pods tell: a pod counts once, whoever goes and whoever comes."""

from typing import Any

import pytest

from tests.model.build import (
    GANG_SCHEDULER,
    Json,
    Seen,
    Tie,
    classes,
    look,
    node,
    of_group,
    of_jobset,
    of_kubeflow,
    pod_group,
    ready,
    running,
    succeeded,
    terminating,
)

NODES = [node(f"n{number}") for number in range(6)]
FOUR_JOBS = [of_jobset("train", job=index, replicas=4) for index in range(4)]
ONE_JOB = [of_jobset("train")] * 4
PYTORCH = [of_kubeflow("train")] * 4
LONG = {"began": 20, "grace": 600}


def works(seen: Seen, *, required: int = 4) -> None:
    """Assert that the gang runs and that none of its GPUs is called idle."""
    gang = seen.gang("train")
    assert (gang.state, gang.required, seen.idle) == ("running", required, 0), classes(gang)


def four(ties: list[Tie], **more: Any) -> list[Json]:
    """Return four pods that work."""
    return [ready(f"w{index}", tie, f"n{index}", **more) for index, tie in enumerate(ties)]


@pytest.mark.parametrize("ties", [FOUR_JOBS, ONE_JOB, PYTORCH], ids=["four jobs", "one job", "kubeflow"])
def test_a_pod_that_goes_and_its_replacement_are_one_member(ties: list[Tie]):
    """A node is drained: the replacement works while the old pod still has its grace."""
    first, *others = four(ties)
    works(look(*NODES, terminating(first, **LONG), *others, ready("w0-new", ties[0], "n4", since=5, created=15)))


@pytest.mark.parametrize("ties", [FOUR_JOBS, ONE_JOB, PYTORCH], ids=["four jobs", "one job", "kubeflow"])
def test_a_pod_that_goes_without_replacement_is_a_member(ties: list[Tie]):
    """As long as nobody has come for it, the gang needs it; so it is degraded."""
    first, *others = four(ties)
    seen = look(*NODES, terminating(running("w0", ties[0], "n0"), began=100), *others)
    assert seen.gang("train").required == len([first, *others])


def test_a_pod_stuck_on_a_dead_node_is_no_member_beside_its_replacement():
    """The fifth pod of a Job of four cannot end, for its node is dead."""
    stuck = terminating(running("stuck", ONE_JOB[0], "dead", created=900), began=500)
    seen = look(*NODES, node("dead", ready_status="Unknown", since=600), stuck, *four(ONE_JOB, created=400))
    gang = seen.gang("train")
    # Past its grace: of the GPUs that it holds, that is the reason which counts (gang-model, GPU accounting).
    assert (gang.state, gang.required, seen.idle_by_reason()) == ("running", 4, {"terminating": 8})


def test_successes_of_an_earlier_run_are_no_members():
    """A JobSet of the same name ran before; its pods are still there."""
    before = [succeeded(f"old{index}", of_jobset("train", job=index, replicas=4, uid="u1"), "n0") for index in range(4)]
    now = [of_jobset("train", job=index, replicas=4, uid="u2") for index in range(4)]
    works(look(*NODES, *before, *four(now)))


def test_a_drained_pod_does_not_make_min_member_too_small():
    """A PodGroup that demands all four members guards the gang, also while a fifth pod goes."""
    ties = [Tie({**tie.labels, **of_group("train").labels}, owner=tie.owner) for tie in FOUR_JOBS]
    first, *others = four(ties, scheduler=GANG_SCHEDULER)
    new = ready("w0-new", ties[0], "n4", since=5, created=15, scheduler=GANG_SCHEDULER)
    seen = look(*NODES, pod_group("train", 4), terminating(first, **LONG), *others, new)
    works(seen)
    assert "min_member" not in seen.gang("train").unguarded
