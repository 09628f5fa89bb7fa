# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What would let a gang run: each step is tried on the objects, as a person would take it.

A step that is told must suffice: with it the gang fits. What no single step can do is not told.
"""

from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datadog_checks.kueue_gang.derive.remedies import ANY_VALUE, Step
from lab.blockers import shown
from tests.model.build import (
    GPU,
    LONE,
    NO_GPU,
    NOW,
    OPTIMISTIC,
    PLAIN_NO_GPU,
    TRIGGER,
    Json,
    Tie,
    cluster_queue,
    flavor,
    local_queue,
    node,
    of_group,
    of_kubeflow,
    of_workload,
    permit_waiter,
    pod_group,
    podset,
    ready,
    taint,
    terminating,
    unscheduled,
)
from tests.model.kueue import (
    BLOCK,
    FITS_SOME,
    HOST,
    MAXIMUM,
    MORE_NEEDED,
    OLD_MAXIMUM,
    PREEMPTING,
    RACK,
    admitted,
    asking,
    in_rack,
    place,
    queues,
    topology_queues,
    waits,
)
from tests.model.test_laws import LAW

TRAIN = of_group("train")
#: A step that helps is rarer than what other laws are about.
MANY = settings(LAW, max_examples=500)
#: Blockers that the nodes are behind.
OF_NODES = {"capacity", "node_labels", "fragmentation", "stuck_terminating"}
#: Those and one that says that it will fit soon, not now.
NOT_YET = OF_NODES | {"preempting"}
#: The cheapest first.
ORDER = ("touch_pod_group", "raise_quota", "label_node", "uncordon_node", "remove_pods", "free_gpus")


def steps_of(*objects: Json) -> tuple[Step, ...]:
    """Return the steps for the gang `train`."""
    return shown(*objects).near.steps


def nodes(number: int, gpus: int = 8) -> list[Json]:
    """Return nodes n0, n1, ..."""
    return [node(f"n{index}", gpus) for index in range(number)]


def waiting(number: int, gpus: int = 8, text: str = TRIGGER) -> list[Json]:
    """Return the gang `train`, none of whose members could be placed."""
    return [
        pod_group("train", number),
        *(unscheduled(f"train-{index}", TRAIN, text, gpus=gpus) for index in range(number)),
    ]


# --- steps, taken ----------------------------------------------------------------------------------------------------


def taken(step: Step, objects: list[Json]) -> list[Json]:
    """Return a cluster's objects after a step."""
    return [obj for one in deepcopy(objects) if (obj := _TAKE[step.action](step, one)) is not None]


def _label(step: Step, obj: Json) -> Json | None:
    if obj["kind"] == "Node" and obj["metadata"]["name"] == step.subject:
        for key, value in step.labels:
            assert key not in obj["metadata"]["labels"]
            obj["metadata"]["labels"][key] = f"nowhere-else-{key[-4:]}" if value == ANY_VALUE else value
    return obj


def _uncordon(step: Step, obj: Json) -> Json | None:
    if obj["kind"] == "Node" and obj["metadata"]["name"] == step.subject:
        assert obj["spec"].pop("unschedulable")
        left = [one for one in obj["spec"].get("taints", []) if one["key"] != "node.kubernetes.io/unschedulable"]
        obj["spec"]["taints"] = left
    return obj


def _remove(step: Step, obj: Json) -> Json | None:
    deletion = obj["metadata"].get("deletionTimestamp")
    if obj["kind"] == "Pod" and deletion and obj["spec"].get("nodeName") == step.subject:
        over = datetime.fromisoformat(deletion).timestamp() <= NOW
        return None if over else obj
    return obj


def _free(step: Step, obj: Json) -> Json | None:
    if obj["kind"] != "Pod" or "deletionTimestamp" in obj["metadata"]:
        return obj
    group = obj["metadata"]["labels"].get("scheduling.x-k8s.io/pod-group")
    return None if f"{obj['metadata']['namespace']}/{group}" == step.subject else obj


_TAKE: dict[str, Any] = {
    "label_node": _label,
    "uncordon_node": _uncordon,
    "remove_pods": _remove,
    "free_gpus": _free,
    "touch_pod_group": lambda _step, obj: obj,
}


# --- clusters at random ----------------------------------------------------------------------------------------------


@dataclass
class Place:
    """A cluster in the making: its objects, and the GPUs that are left on its nodes."""

    objects: list[Json] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)

    def on(self, draw: st.DrawFn, name: str, tie: Tie, gpus: int) -> Json | None:
        """Place a pod on a node that has room, None where there is none."""
        where = [one for one, amount in sorted(self.left.items()) if amount >= gpus]
        if not where:
            return None
        chosen = draw(st.sampled_from(where))
        self.left[chosen] -= gpus
        made = ready(name, tie, chosen, gpus=gpus)
        self.objects.append(made)
        return made


@st.composite
def places(draw: st.DrawFn) -> list[Json]:
    """Draw a cluster in which the gang `train` waits: in the scheduler, partly placed, or for a place in a topology."""
    world = Place([*topology_queues()])
    for index in range(draw(st.integers(1, 6))):
        name, gpus = f"n{index}", draw(st.sampled_from([4, 8, 8]))
        labels = place(name, draw(st.sampled_from(["r1", "r1", "r2", ""])), draw(st.sampled_from(["b1", "b2"])))
        cordoned = draw(st.sampled_from([False, False, True]))
        taints = [taint("node.kubernetes.io/unschedulable")] if cordoned and draw(st.booleans()) else []
        world.objects.append(node(name, gpus, labels=labels, cordoned=cordoned, taints=taints))
        world.left[name] = gpus
    for index in range(draw(st.integers(0, 4))):
        name, kind = (
            f"g{index}",
            draw(st.sampled_from(["running", "partial", "lone", "going", "stuck", "stuck", "permit"])),
        )
        gpus = draw(st.sampled_from([1, 2, 4, 8]))
        _tenant(draw, world, name, kind, gpus)
    size, gpus = draw(st.integers(2, 4)), draw(st.sampled_from([1, 2, 4, 8]))
    kind = draw(st.sampled_from(["group", "group", "partial", "topology", "topology"]))
    if kind == "topology":
        level = draw(st.sampled_from([HOST, RACK, RACK, BLOCK]))
        request = asking(podset(size, gpus=gpus), required=level)
        return [*world.objects, waits("TopologyPlacementFailed", FITS_SOME, request)]
    world.objects.append(pod_group("train", size))
    for index in range(size):
        if index or kind == "group" or world.on(draw, "train-0", TRAIN, gpus) is None:
            world.objects.append(unscheduled(f"train-{index}", TRAIN, NO_GPU if index else TRIGGER, gpus=gpus))
    return world.objects


def _tenant(draw: st.DrawFn, world: Place, name: str, kind: str, gpus: int) -> None:
    """Add pods that hold GPUs: a gang that runs, one that holds some in vain, pods of none, pods that do not go."""
    tie = of_group(name)
    if kind in {"lone", "going", "stuck"}:
        made = world.on(draw, f"{name}-0", LONE, gpus)
        if made and kind != "lone":
            world.objects[-1] = terminating(made, began=10 if kind == "going" else 100, grace=30)
        return
    world.objects.append(pod_group(name, 2))
    if kind == "permit":
        where = [one for one, amount in sorted(world.left.items()) if amount >= gpus]
        if where:
            chosen = draw(st.sampled_from(where))
            world.left[chosen] -= gpus
            world.objects.append(permit_waiter(f"{name}-0", tie, chosen, gpus=gpus))
        world.objects.append(unscheduled(f"{name}-1", tie, NO_GPU, gpus=gpus))
        return
    world.on(draw, f"{name}-0", tie, gpus)
    if kind == "partial" or world.on(draw, f"{name}-1", tie, gpus) is None:
        world.objects.append(unscheduled(f"{name}-1", tie, OPTIMISTIC, gpus=gpus))


@MANY
@given(places())
def test_each_step_suffices(objects: list[Json]) -> None:
    """Whatever step is told: once it is taken, the gang fits; the steps come from the cheapest on, none twice."""
    near = shown(*objects).near
    assert len(set(near.steps)) == len(near.steps)
    ranks = [ORDER.index(step.action) for step in near.steps]
    assert ranks == sorted(ranks)
    for step in near.steps:
        after = shown(*taken(step, objects)).near
        assert after.blocker not in NOT_YET, step
        if near.view.state == "queued":
            # It is left to Kueue, and the engine says that it fits.
            assert after.blocker == "topology_request", step


@MANY
@given(places())
def test_no_step_is_forgotten(objects: list[Json]) -> None:
    """Each node that would do if uncordoned, or rid of the pods that do not go, is told, and each other gang."""
    near = shown(*objects).near
    if near.blocker not in OF_NODES:
        return
    told = {(step.action, step.subject) for step in near.steps}
    names = [obj["metadata"]["name"] for obj in objects if obj["kind"] == "Node"]
    gangs = {view.name for view in shown(*objects).picture.views} - {"train"}
    tried = [
        *(Step("uncordon_node", obj["metadata"]["name"]) for obj in objects if obj["spec"].get("unschedulable")),
        *(Step("remove_pods", name) for name in names),
        *(Step("free_gpus", f"team/{name}") for name in sorted(gangs)),
    ]
    for step in tried:
        changed = taken(step, objects)
        if changed != objects and shown(*changed).near.blocker not in NOT_YET:
            assert (step.action, step.subject) in told, step


def test_the_places_reach_every_step() -> None:
    """Guards the laws above."""
    found: set[str] = set()

    @MANY
    @given(places())
    def look(objects: list[Json]) -> None:
        found.update(step.action for step in steps_of(*objects))

    look()
    assert found == set(ORDER) - {"raise_quota"}


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_touch_a_pod_group() -> None:
    """It fits and nobody tries it again."""
    assert steps_of(*nodes(2), *waiting(2)) == (Step("touch_pod_group", "team/train"),)


@pytest.mark.parametrize("of_kueue", [True, False])
def test_there_is_no_pod_group_to_touch(of_kueue: bool) -> None:
    """A gang that fits and is not tried again may have none: that of a Workload, or of a job alone."""
    tie = of_workload("wl") if of_kueue else of_kubeflow("train")
    members = [unscheduled(f"train-{index}", tie, PLAIN_NO_GPU) for index in range(2)]
    near = shown(*nodes(2), *(queues() if of_kueue else ()), *([admitted()] if of_kueue else ()), *members).near
    assert (near.blocker, near.steps) == ("not_retried", ())


def test_label_a_node() -> None:
    """n1 lacks the rack; in the rack of n0 the gang of two would fit."""
    objects = [*topology_queues(), node("n0", labels=place("n0", "r1")), node("n1", labels=place("n1"))]
    found = steps_of(*objects, waits("TopologyPlacementFailed", FITS_SOME, in_rack()))
    assert found == (Step("label_node", "n1", ((RACK, "r1"),)),)


def test_label_a_node_with_anything_new() -> None:
    """One host would do, whatever its rack is called: any value of the label will do."""
    objects = [*topology_queues(), node("n0", 16, labels=place("n0"))]
    found = steps_of(*objects, waits("TopologyPlacementFailed", FITS_SOME, asking(podset(2), required=HOST)))
    assert found == (Step("label_node", "n0", ((RACK, ANY_VALUE),)),)


def test_two_nodes_to_label_are_two_steps() -> None:
    """Only what a single step does is told."""
    objects = [*topology_queues(), *(node(f"n{index}", labels=place(f"n{index}")) for index in range(2))]
    near = shown(*objects, waits("TopologyPlacementFailed", FITS_SOME, in_rack())).near
    assert (near.blocker, near.steps) == ("node_labels", ())


def test_uncordon_a_node() -> None:
    """Of two cordoned nodes the one that is large enough, with its taint."""
    found = steps_of(
        node("n0"),
        node("n1", cordoned=True, taints=[taint("node.kubernetes.io/unschedulable")]),
        node("n2", 4, cordoned=True),
        *waiting(2),
    )
    assert found == (Step("uncordon_node", "n1"),)


def test_a_cordoned_node_with_another_taint_does_not_help() -> None:
    """Uncordoned, it still repels the pods."""
    assert steps_of(node("n0"), node("n1", cordoned=True, taints=[taint("maintenance")]), *waiting(2)) == ()


def test_remove_pods() -> None:
    """The pods of n1 whose grace is over hold 8 GPUs: 4 and 4."""
    stuck = [terminating(ready(f"old-{index}", LONE, "n1", gpus=4), began=100) for index in range(2)]
    near = shown(*nodes(2), *stuck, *waiting(2)).near
    assert near.blocker == "stuck_terminating"
    assert near.steps == (Step("remove_pods", "n1", resource=GPU, amount=8),)


def test_pods_within_their_grace_are_left_to_go() -> None:
    """They will be gone by themselves: preempting, and nothing to do."""
    near = shown(*nodes(2), terminating(ready("old", LONE, "n1"), began=10), *waiting(2)).near
    assert (near.blocker, near.steps) == ("preempting", ())


def test_free_gpus_of_another_gang() -> None:
    """First of a gang that holds them in vain, then of the smallest; never of pods that are in no gang."""
    vain, small = of_group("vain"), of_group("small")
    found = steps_of(
        *nodes(5),
        ready("lone", LONE, "n0"),
        pod_group("vain", 3),
        *(ready(f"vain-{index}", vain, f"n{index + 1}") for index in range(2)),
        unscheduled("vain-2", vain, NO_GPU),
        pod_group("small", 2),
        *(ready(f"small-{index}", small, "n3", gpus=4) for index in range(2)),
        *waiting(2),
    )
    assert found == (
        Step("free_gpus", "team/vain", amount=16, state="partial"),
        Step("free_gpus", "team/small", amount=8, state="running"),
    )


def test_reserved_gpus_of_another_gang() -> None:
    """What the scheduler holds for Permit waiters is freed with them."""
    found = steps_of(
        *nodes(2),
        pod_group("other", 2),
        permit_waiter("other-0", of_group("other"), "n1"),
        unscheduled("other-1", of_group("other"), NO_GPU),
        *waiting(2),
    )
    assert found == (Step("free_gpus", "team/other", amount=8, state="waiting"),)


@pytest.mark.parametrize(
    ("reason", "text", "pods", "amount"),
    [
        ("WaitingForQuota", MORE_NEEDED.format(GPU, "gpu", 16), 2, 16),
        ("Pending", MORE_NEEDED.format(GPU, "gpu", 16), 2, 16),
        ("WaitingForPreemptedWorkloads", PREEMPTING, 2, 16),
        # 24 are asked for and 16 are the most: 8 more.
        ("ExceedsMaxQuota", MAXIMUM, 3, 8),
        ("Pending", MAXIMUM, 3, 8),
        ("Pending", OLD_MAXIMUM, 3, 8),
        # A podset before it has asked for 8: 8 + 24 - 16.
        ("ExceedsMaxQuota", MAXIMUM.replace("(0)", "(8)"), 3, 16),
    ],
)
def test_raise_a_quota(reason: str, text: str, pods: int, amount: int) -> None:
    """Kueue tells what is short, or what is asked for and how much there can ever be; in three wordings."""
    found = steps_of(*nodes(4), *queues(), waits(reason, text, podset(pods)))
    assert found == (Step("raise_quota", "cq", flavor="gpu", resource=GPU, amount=amount),)


def test_a_quota_without_gpus_behind_it_is_not_raised() -> None:
    """A larger quota would let the gang in, and its pods would find no node."""
    assert steps_of(*nodes(1), *queues(), waits("WaitingForQuota", MORE_NEEDED.format(GPU, "gpu", 16))) == ()


#: A text of a podset, and one more reason.
TO = "couldn't assign flavors to pod set "
IN_USE = "insufficient unused quota for {} in flavor {}, {} more needed"
EIGHT = MORE_NEEDED.format(GPU, "gpu", 8)


@pytest.mark.parametrize(
    ("text", "podsets"),
    [
        (f"{EIGHT}, {IN_USE.format('cpu', 'gpu', 2)}", [podset(2)]),
        (f"{TO}main: {IN_USE.format('cpu', 'gpu', '500m')}", [podset(2)]),
        (f"{TO}l: {IN_USE.format(GPU, 'gpu', 8)}; {TO}w: {IN_USE.format(GPU, 'gpu', 16)}",
         [podset(1, "l"), podset(2, "w")]),
        (f"{EIGHT}, topology \"default\" doesn't allow to fit any of 2 pod(s)", [podset(2)]),
        (f"{EIGHT}, something that is not known", [podset(2)]),
        # Kueue has not looked at the podset after one that can never be admitted.
        (MAXIMUM.replace("main", "l"), [podset(1, "l"), podset(2, "w")]),
    ],
)  # fmt: skip
def test_a_quota_that_is_not_all_that_lacks_is_not_raised(text: str, podsets: list[Json]) -> None:
    """A step suffices alone: one GPU resource, for one podset, and nothing else that is said or may be."""
    assert "raise_quota" not in {
        step.action for step in steps_of(*nodes(6), *queues(), waits("Pending", text, *podsets))
    }


def test_the_quota_of_one_podset_of_two_is_raised() -> None:
    """The other has what it needs: Kueue has looked at both, and names one."""
    text = MORE_NEEDED.format(GPU, "gpu", 16).replace("main", "l")
    found = steps_of(*nodes(3), *queues(), waits("Pending", text, podset(1, "l"), podset(2, "w")))
    assert found == (Step("raise_quota", "cq", flavor="gpu", resource=GPU, amount=16),)


def test_only_a_quota_with_gpus_behind_it_is_raised() -> None:
    """Of two flavors the one on whose own nodes the gang fits, whatever the nodes of the other have free."""
    objects = [
        local_queue("lq", "cq"),
        cluster_queue("cq", {"a": 8, "b": 8}),
        *(flavor(name, {"pool": name}) for name in "ab"),
        *(node(f"n{name}", labels={"pool": name}) for name in "ab"),
        ready("lone", LONE, "na"),
    ]
    text = f"{MORE_NEEDED.format(GPU, 'a', 8)}, {IN_USE.format(GPU, 'b', 8)}"
    found = steps_of(*objects, waits("WaitingForQuota", text, podset(2, gpus=4)))
    assert found == (Step("raise_quota", "cq", flavor="b", resource=GPU, amount=8),)


@pytest.mark.parametrize(("held", "cohort", "amount"), [(0, "", 8), (16, "", 24), (0, "all", None)])
def test_a_quota_that_is_too_small_is_raised_by_what_is_in_use_too(held: int, cohort: str, amount: int | None) -> None:
    """24 are asked for and 16 are the most: 8 more make it possible, and what others have of it makes it so now.

    What the other queues of a cohort have of it is not in the queue's own status: nothing is told.
    """
    queue = cluster_queue("cq", {"gpu": 16}, reserved={"gpu": (held, 0)})
    queue["spec"]["cohortName"] = cohort
    objects = [*nodes(6), local_queue("lq", "cq"), queue, flavor("gpu")]
    found = steps_of(*objects, waits("ExceedsMaxQuota", MAXIMUM, podset(3)))
    told = Step("raise_quota", "cq", flavor="gpu", resource=GPU, amount=amount or 0)
    assert found == ((told,) if amount else ())


@pytest.mark.parametrize("text", [PREEMPTING, ""])
def test_gpus_are_not_freed_for_a_gang_that_lacks_quota(text: str) -> None:
    """It waits for what it preempts: the GPUs of a gang of another queue give it no quota."""
    other = [pod_group("other", 2), *(ready(f"other-{index}", of_group("other"), f"n{index}") for index in range(2))]
    near = shown(*nodes(2), *queues(), *other, waits("WaitingForPreemptedWorkloads", text)).near
    assert (near.blocker, near.steps) == ("preempting", ())


def test_gpus_are_freed_for_a_gang_that_lacks_a_place() -> None:
    """It has its quota and will have its place once a pod has gone; the GPUs of another gang give it one now."""
    objects = [*topology_queues(), *(node(f"n{index}", labels=place(f"n{index}", "r1")) for index in range(3))]
    other = [pod_group("other", 2), *(ready(f"other-{index}", of_group("other"), "n1", gpus=4) for index in range(2))]
    leaving = terminating(ready("old", LONE, "n2"), began=10)
    near = shown(*objects, *other, leaving, waits("TopologyPlacementFailed", FITS_SOME, in_rack())).near
    assert near.blocker == "preempting"
    assert near.steps == (Step("free_gpus", "team/other", amount=8, state="running"),)


def test_nothing_is_told_of_a_gang_that_runs() -> None:
    """It has no blocker."""
    near = shown(*nodes(2), pod_group("train", 2), *(ready(f"w{n}", TRAIN, f"n{n}") for n in range(2))).near
    assert (near.blocker, near.steps, near.laggard) == (None, (), None)


def test_the_rest_of_a_partial_gang() -> None:
    """Only what is not placed has to fit: one member of three."""
    tie = of_workload("wl")
    objects = [
        *nodes(2),
        node("n2", cordoned=True),
        *queues(),
        admitted(podset(3)),
        *(ready(f"train-{index}", tie, f"n{index}") for index in range(2)),
        unscheduled("train-2", tie, NO_GPU),
    ]
    assert steps_of(*objects) == (Step("uncordon_node", "n2"),)
