# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What a check sees that follows the changes is what a fresh one sees: histories in which they once differed."""

from collections.abc import Sequence
from typing import Any

import pytest

from datadog_checks.kueue_gang.derive.deriver import Deriver, derive
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.derive.transitions import Memory
from datadog_checks.kueue_gang.facts.cluster import Changes, Cluster
from tests.model.build import (
    COSCHEDULING,
    NOW,
    SOURCES,
    WORKLOADS,
    Json,
    Seen,
    Tie,
    bound,
    local_queue,
    look,
    new,
    node,
    of_group,
    of_jobset,
    of_workload,
    pod_group,
    podset,
    ready,
    reducers,
    terminating,
    workload,
)
from tests.model.test_laws import told

NODES = [node(f"n{number}") for number in range(5)]


def shown(seen: Seen) -> dict[str, Any]:
    """Return all that a picture tells but attention, which is also for what was a while ago."""
    found = told(seen)
    return {
        **{name: value for name, value in found.items() if name not in {"attention", "gangs"}},
        "gangs": {key: {**gang, "attention": None} for key, gang in found["gangs"].items()},
    }


class Following:
    """A check that follows a cluster from reading to reading."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.rules = Rules()
        self.reduce = reducers(self.rules)
        self.deriver = Deriver(self.rules)
        self.facts: dict[tuple[str, str, str], Any] = {}

    def see(self, *objects: Json, now: float = NOW, behind: str = "", strange: Sequence[str] = ()) -> Seen:
        """Return what it sees when the cluster has become these objects.

        The source `behind` fails at present. `strange` are pods as NAMESPACE/NAME that are there, too, and cannot be
        understood.
        """
        facts, changes = {}, Changes(behind={behind: "unreachable"} if behind else {})
        if strange:
            changes.unreadable = {"pods": frozenset((name.split("/")[0], name.split("/")[1]) for name in strange)}
        for obj in objects:
            source, _ = SOURCES[obj["apiVersion"].split("/")[0], obj["kind"]]
            name = source, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
            fact = self.reduce[source](obj)
            facts[name] = self.facts[name] if self.facts.get(name) == fact else fact
        for name in [*self.facts, *(name for name in facts if name not in self.facts)]:
            old, now_is = self.facts.get(name), facts.get(name)
            if old is not now_is:
                field = dict(SOURCES.values())[name[0]]
                setattr(changes, field, [*getattr(changes, field), (old, now_is)])
        self.facts = facts
        return Seen(self.deriver.apply(changes, now), self.deriver.memory())

    def whole(self, now: float = NOW) -> Seen:
        """Return what a fresh check sees."""
        found: dict[str, Any] = {}
        for (source, _, _), fact in self.facts.items():
            found.setdefault(dict(SOURCES.values())[source], []).append(fact)
        return Seen(*derive(Cluster(**found), self.rules, Memory(), now))


def test_pods_that_are_deleted_leave_no_ghost():
    """A component that is emptied and joined into another one between two readings takes no names away."""
    big, train = of_group("big"), of_jobset("train")
    both = Tie({**big.labels, **train.labels}, owner=train.owner)
    base = [*NODES, pod_group("big", 2), ready("a0", big, "n0")]
    check = Following()
    check.see(*base, new("old", train))
    check.see(*base, ready("a1", both, "n1"), ready("t2", train, "n2"), bound("t3", train, "n3"))
    seen = check.see(*base, ready("a1", both, "n1"))
    assert shown(seen) == shown(check.whole())
    assert sum(seen.use(use) for use in ("busy", "idle", "other")) == 16


def test_pods_find_a_group_that_comes_later():
    """The names of a component that was joined lead to what it was joined into."""
    group, made = of_group("g"), of_workload("w")
    both = Tie({**group.labels, **made.labels}, {**group.annotations, **made.annotations})
    four = [ready(f"p{index}", both, f"n{index}") for index in range(4)]
    base = [*NODES, workload("w", ("JobSet", "train"), podset(4), admitted=500)]
    check = Following()
    check.see(*base, new("old", group))
    check.see(*base, *four)
    assert shown(check.see(*base, *four, pod_group("g", 4))) == shown(check.whole())


def test_a_clock_that_was_wrong_for_a_while_leaves_nothing():
    """One answer with a Date of two hours ahead: then the nodes are within their grace again."""
    group = of_group("g")
    cluster = [
        node("n0", ready_status="Unknown", since=10),
        *NODES[1:],
        pod_group("g", 2),
        ready("p0", group, "n0"),
        ready("p1", group, "n1"),
        terminating(ready("p2", group, "n2"), began=10, grace=600),
    ]
    check = Following()
    assert check.see(*cluster).idle == 0
    assert check.see(*cluster, now=NOW + 7200).idle > 0
    assert shown(check.see(*cluster, now=NOW + 1)) == shown(check.whole(NOW + 1))


@pytest.mark.parametrize(("after", "again"), [("cq", 0), ("other", 1)])
def test_only_a_route_that_changed_derives_everything_anew(after: str, again: int, monkeypatch: pytest.MonkeyPatch):
    """A LocalQueue's conditions change often; its ClusterQueue is all that gangs see of it."""
    gang = [workload("w", ("Job", "train"), podset(1), admitted=500), ready("p", of_workload("w"), "n0")]
    check = Following()
    check.see(*NODES, *gang, local_queue("lq", "cq"))
    sorted_: list[object] = []
    real = Deriver._sort

    def sort(self: Deriver, *rest: Any) -> None:
        sorted_.append(rest)
        real(self, *rest)

    monkeypatch.setattr(Deriver, "_sort", sort)
    queue = local_queue("lq", after)
    queue["status"] = {"conditions": [{"type": "Active", "status": "False", "reason": "ClusterQueueIsInactive"}]}
    check.see(*NODES, *gang, queue)
    assert bool(sorted_) == bool(again)


def test_each_gang_of_a_namespace_has_a_name_of_its_own():
    """Where two would get one name it is the Workload's, also where that is what a third one is called."""
    made = [
        workload("a", ("JobSet", "b"), podset(2), admitted=500),
        workload("x", ("JobSet", "b"), podset(2), admitted=500),
        workload("y", ("JobSet", "a"), podset(2), admitted=500),
    ]
    for one in made:
        one["metadata"]["ownerReferences"][0]["uid"] = f"uid-{one['metadata']['name']}"
    assert sorted(view.name for view in look(*NODES, *made).picture.gangs) == ["a", "x", "y"]


def test_a_node_that_came_while_nodes_cannot_be_read_is_not_lost():
    """The nodes are those of a minute ago; a pod that runs on none of them runs on a new one."""
    gang = [pod_group("g", 2), *(ready(f"p{index}", of_group("g"), f"late{index}") for index in range(2))]
    check = Following()
    check.see(*NODES)
    seen = check.see(*NODES, *gang, behind="nodes")
    assert (seen.gang("g").state, seen.idle) == ("running", 0)
    assert check.see(*NODES, *gang).gang("g").state == "degraded", "once they are read, what is not there is gone"


def test_pods_whose_group_came_while_groups_cannot_be_read_are_no_orphans():
    """Nothing is said of a gang whose PodGroup may exist."""
    pods = [ready(f"p{index}", of_group("g"), f"n{index}") for index in range(2)]
    check = Following()
    check.see(*NODES)
    seen = check.see(*NODES, *pods, behind=COSCHEDULING)
    assert (seen.gang("g").state, seen.unobservable("required"), seen.idle) == (None, {"no_sample": 1}, 0)
    assert check.see(*NODES, *pods).gang("g").state == "orphan"


def test_pods_whose_workload_came_while_workloads_cannot_be_read_may_save_their_work():
    """Pods that go with ten minutes of grace, of a Workload that is not known yet."""
    pods = [terminating(ready(f"p{index}", of_workload("w"), f"n{index}"), began=20, grace=600) for index in range(2)]
    check = Following()
    check.see(*NODES)
    assert check.see(*NODES, *pods, behind=WORKLOADS).idle == 0


def test_pods_that_cannot_be_understood_derive_their_namespace_anew(monkeypatch: pytest.MonkeyPatch):
    """When the first of them comes and when the last one goes; in between and elsewhere nothing is done."""
    cluster = [*NODES]
    for index, space in enumerate(("a", "b")):
        cluster += [pod_group("g", 2, namespace=space), ready("p", of_group("g"), f"n{index}", namespace=space)]
    check = Following()
    check.see(*cluster)
    sorted_: list[str] = []
    real = Deriver._sort

    def sort(self: Deriver, component: Any, now: float) -> None:
        sorted_.append(component.namespace)
        real(self, component, now)

    monkeypatch.setattr(Deriver, "_sort", sort)
    states = []
    for strange in ((), ("a/x",), ("a/x", "a/y"), ("a/y",), ()):
        seen = check.see(*cluster, strange=strange)
        states.append((seen.gang("g", "a").state, seen.gang("g", "b").state, seen.idle, list(sorted_)))
        sorted_.clear()
    assert states == [
        ("partial", "partial", 16, []),
        (None, "partial", 8, ["a"]),
        (None, "partial", 8, []),
        (None, "partial", 8, []),
        ("partial", "partial", 16, ["a"]),
    ]
