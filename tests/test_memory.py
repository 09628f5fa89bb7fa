# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What the check remembers is as large as the cluster that is there: what is gone is forgotten."""

from collections.abc import Sized
from weakref import ref

import pytest

from datadog_checks.kueue_gang.derive.deriver import Deriver
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.facts.cluster import Changes
from datadog_checks.kueue_gang.facts.pods import Pod, PodReducer
from datadog_checks.kueue_gang.sources.store import Table
from tests.model.build import (
    LONE,
    NOW,
    Json,
    node,
    of_group,
    of_jobset,
    of_workload,
    pod_group,
    podset,
    ready,
    reducers,
)
from tests.model.build import workload as workload_of

RULES = Rules()


@pytest.fixture
def reduce() -> PodReducer:
    """Return what makes facts of pods."""
    made = reducers(RULES)["pods"]
    assert isinstance(made, PodReducer)
    return made


def member(number: int, rank: int = 0) -> Json:
    """Return a pod of a job that has its own name and node, as one of a Workload and of a PodGroup."""
    name = f"job-{number:05}"
    ties = of_workload(name) + of_jobset(name, uid=f"uid-{name}") + of_group(name)
    return ready(f"{name}-{rank}", ties, f"node-{number:05}", gpus=1)


def pod(reduce: PodReducer, number: int, rank: int = 0) -> Pod:
    """Return the fact of such a pod."""
    fact = reduce(member(number, rank))
    assert fact is not None
    return fact


def test_pods_of_a_job_share_what_they_name_as_long_as_one_is_there(reduce):
    """Jobs come and go, each with names of its own; of those that are gone the latest are remembered."""
    first = pod(reduce, 0)
    latest = reduce._ties.LATEST
    for number in range(1, latest + 10):
        pod(reduce, number)
    assert pod(reduce, 0, 1).ties is first.ties, "it is there"
    assert pod(reduce, 0, 1).spec is first.spec
    gone = ref(first.ties)
    assert len(reduce._ties) == latest + 1
    assert len(reduce._specs) == 1, "all are of one template"
    del first
    assert gone() is None
    assert len(reduce._ties) == latest


def test_a_pod_that_is_not_kept_is_no_reason_to_read_its_like_anew(reduce, monkeypatch):
    """Most pods of a cluster name no gang and ask for no GPU, and come by the hundred."""
    loose = ready("loose", LONE, "node", gpus=0)
    assert reduce(loose) is None
    monkeypatch.setattr("datadog_checks.kueue_gang.facts.ties._ties", None)
    monkeypatch.setattr("datadog_checks.kueue_gang.facts.pods._spec", None)
    assert reduce(loose) is None


def sizes(deriver: Deriver) -> dict[str, int]:
    """Return how much a deriver holds, by where it holds it."""
    holders = (deriver, deriver._ledger, deriver._components, deriver._told, deriver._waiters.traces)
    holds = {f"{type(one).__name__}.{name}": value for one in holders for name, value in vars(one).items()}
    for one in (deriver._told.gpus, deriver._told.summary):
        holds |= {f"{type(one).__name__}.{name}": getattr(one, name) for name in one.__slots__}
    return {name: len(value) for name, value in holds.items() if isinstance(value, Sized)}


def test_nothing_is_held_of_jobs_and_nodes_that_are_gone(reduce):
    """Neither by name nor in the sums."""
    reduces = reducers(RULES)
    deriver = Deriver(RULES)

    def come_and_go(number: int) -> dict[str, int]:
        name = f"job-{number:05}"
        pods = [pod(reduce, number, rank) for rank in range(2)]
        machine = reduces["nodes"](node(f"node-{number:05}"))
        group = reduces["podgroups.scheduling.x-k8s.io"](pod_group(name, 2))
        workload = reduces["workloads.kueue.x-k8s.io"](workload_of(name, ("JobSet", name), podset(2), admitted=100))
        now = NOW + 30 * number
        picture = deriver.apply(
            Changes(
                pods=[(None, one) for one in pods],
                nodes=[(None, machine)],
                pod_groups=[(None, group)],
                workloads=[(None, workload)],
            ),
            now,
        )
        assert len(picture.views) == 1
        picture = deriver.apply(
            Changes(
                pods=[(one, None) for one in pods],
                nodes=[(machine, None)],
                pod_groups=[(group, None)],
                workloads=[(workload, None)],
            ),
            now + 15,
        )
        assert not picture.views
        return sizes(deriver)

    first = come_and_go(0)
    assert [come_and_go(number) for number in range(1, 20)] == [first] * 19


def test_nothing_is_held_of_namespaces_that_are_gone():
    """Neither of those that had facts nor of those whose objects were of no use."""
    table = Table()
    for number in range(3):
        table.put((f"kept-{number}", "a"), object())
        table.put((f"kept-{number}", "a"), None)
        table.put((f"loose-{number}", "b"), None)
    assert not table._facts
    assert not table.take_changes()
    assert not table._before
