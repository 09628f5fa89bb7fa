# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The rules of the gang model, case by case, on clusters made by hand.

Each test states its rule. The expected values are worked out from the model, not from what the code says.
"""

from typing import Any

import pytest

from datadog_checks.kueue_gang.derive.rules import GANG_KINDS, GPU_RESOURCES
from datadog_checks.kueue_gang.facts.cluster import SchedulerCount
from datadog_checks.kueue_gang.facts.pods import Toleration
from datadog_checks.kueue_gang.facts.quantity import GpuResources
from tests.model.build import (
    COSCHEDULING,
    DEFAULT_SCHEDULER,
    ELASTIC_GATE,
    GANG_SCHEDULER,
    GPU,
    LONE,
    NATIVE,
    NO_GPU,
    NOTHING_INSTALLED,
    NOW,
    OPTIMISTIC,
    SIBLINGS,
    TIMEOUT,
    TRIGGER,
    UNRESERVE,
    WORKLOADS,
    Json,
    Tie,
    ago,
    bound,
    classes,
    condition,
    container,
    crashing,
    failed,
    flavor,
    gated,
    job,
    local_queue,
    look,
    native_group,
    new,
    node,
    of_group,
    of_job,
    of_jobset,
    of_kubeflow,
    of_lws,
    of_native,
    of_plain_group,
    of_ray,
    of_slice,
    of_workload,
    owned,
    permit_waiter,
    pod_group,
    podset,
    ready,
    running,
    sidecar,
    stamp,
    succeeded,
    taint,
    terminating,
    toleration,
    ungated,
    unscheduled,
    workload,
)

TRAIN = of_group("train")
IN_WL = of_workload("wl")
#: Reasons of the tag `reason` of `unobservable`.
REASONS = {"no_trace", "forbidden", "not_configured", "no_label", "no_sample", "ambiguous"}


def nodes(number: int, gpus: int = 8) -> list[Json]:
    """Return nodes n0, n1, ... with equal GPUs."""
    return [node(f"n{index}", gpus) for index in range(number)]


def up(number: int, tie: Tie, first: int = 0, **more: Any) -> list[Json]:
    """Return Ready members w0, w1, ... on nodes n0, n1, ..."""
    return [ready(f"w{index}", tie, f"n{index}", **more) for index in range(first, first + number)]


def jobset_workload(*podsets: Json, **more: Any) -> Json:
    """Return the Workload `wl` of the JobSet `js`; admitted 500 s ago unless told otherwise."""
    return workload("wl", ("JobSet", "js"), *podsets, **{"admitted": 500, **more})


# === which pods are one gang =========================================================================================


def test_jobset_without_any_gang_scheduling():
    """Pods of a JobSet that nothing else makes a gang are one of engine `job`; its labels tell the size of two Jobs."""
    tie = [of_jobset("js", job=index, replicas=2) for index in (0, 0, 1, 1)]
    seen = look(
        *nodes(4),
        *[ready(f"w{index}", tie[index], f"n{index}") for index in range(4)],
        unread=NOTHING_INSTALLED,
    )
    gang = seen.gang("js")
    assert gang.key == ("job", "team", "js")
    assert (gang.state, gang.required, gang.missing) == ("running", 4, 0)
    assert gang.owner_kind == "jobset"
    assert (gang.queue.local_queue, gang.queue.cluster_queue) == ("none", "none")
    assert seen.busy == 32


def test_jobset_without_kueue_whose_second_job_has_no_pods():
    """Each of two Jobs has as many pods as the one that is seen: two of four are missing. Partial."""
    tie = of_jobset("js", job=0, replicas=2)
    seen = look(*nodes(2), *up(2, tie), unread=NOTHING_INSTALLED)
    gang = seen.gang("js")
    assert (gang.state, gang.required, gang.missing) == ("partial", 4, 2)
    assert seen.idle_by_reason() == {"partial": 16}


def test_jobset_without_kueue_of_which_one_job_has_succeeded():
    """A Job that is over counts as done: the gang is finishing and the other Job works."""
    over, works = of_jobset("js", job=0, replicas=2), of_jobset("js", job=1, replicas=2)
    seen = look(
        *nodes(4),
        *[succeeded(f"w{index}", over, f"n{index}") for index in (0, 1)],
        *[ready(f"w{index}", works, f"n{index}") for index in (2, 3)],
        unread=NOTHING_INSTALLED,
    )
    gang = seen.gang("js")
    assert (gang.state, gang.required, gang.missing) == ("finishing", 4, 0)
    assert (seen.busy, seen.idle) == (16, 0)


def test_jobset_without_kueue_whose_jobs_are_seen_in_part():
    """Jobs of one template have as many pods as the one of which most are seen: of two times two one is missing."""
    pods = [of_jobset("js", job=index, replicas=2) for index in (0, 1, 1)]
    seen = look(
        *nodes(3), *[ready(f"w{index}", tie, f"n{index}") for index, tie in enumerate(pods)], unread=NOTHING_INSTALLED
    )
    gang = seen.gang("js")
    assert (gang.state, gang.required, gang.missing) == ("partial", 4, 1)


def test_jobset_without_kueue_of_two_roles():
    """Each ReplicatedJob is a podset of its own: the workers are complete, the driver pulls its image. Starting."""
    seen = look(
        *nodes(3),
        bound("driver", of_jobset("js", "driver"), "n0"),
        *up(2, of_jobset("js", "workers"), first=1),
        unread=NOTHING_INSTALLED,
    )
    gang = seen.gang("js")
    assert (gang.state, gang.required) == ("starting", 3)


def test_jobset_of_one_pod_without_kueue_is_no_gang():
    """One Job of one pod requires 1: no gang; its GPUs are other."""
    seen = look(node("n0"), ready("w0", of_jobset("js"), "n0"), unread=NOTHING_INSTALLED)
    assert seen.names == set()
    assert seen.other == 8


def test_jobset_with_kueue():
    """The Workload of a JobSet makes the gang, and gives its queue and priority; the gang bears the job's name."""
    seen = look(
        *nodes(2),
        jobset_workload(podset(2), priority_class="urgent"),
        *up(2, IN_WL + of_jobset("js")),
    )
    gang = seen.gang("js")
    assert gang.key == ("kueue", "team", "js")
    assert (gang.state, gang.required) == ("running", 2)
    assert (gang.queue.local_queue, gang.queue.cluster_queue) == ("lq", "cq")
    assert (gang.owner_kind, gang.priority_class) == ("jobset", "urgent")


def test_kueue_workload_that_is_not_admitted_gets_its_cluster_queue_from_the_local_queue():
    """Before admission the Workload names a LocalQueue only, which tells the ClusterQueue."""
    seen = look(local_queue("lq", "cq-gpu"), workload("wl", ("JobSet", "js"), podset(2)))
    gang = seen.gang("js")
    assert gang.state == "queued"
    assert (gang.queue.local_queue, gang.queue.cluster_queue) == ("lq", "cq-gpu")


def test_kubeflow_job_without_any_gang_scheduling():
    """A Kubeflow job states no size: the members that exist and have not failed. One that waits makes it partial."""
    master, worker = of_kubeflow("pt", "master"), of_kubeflow("pt", "worker")
    seen = look(
        *nodes(3),
        ready("m", master, "n0"),
        ready("w0", worker, "n1"),
        unscheduled("w1", worker, NO_GPU),
        failed("w2", worker, "n2"),
        unread=NOTHING_INSTALLED,
    )
    gang = seen.gang("pt")
    assert gang.key == ("job", "team", "pt")
    assert (gang.state, gang.required) == ("partial", 3)
    assert classes(gang) == {"ready": 2, "unschedulable": 1, "failed": 1}
    assert gang.owner_kind == "pytorchjob"


@pytest.mark.parametrize("kind", ["PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob"])
def test_kubeflow_job_with_kueue(kind: str):
    """Each Kubeflow kind is a gang by its Workload, master and workers counted apart."""
    wl = workload("wl", (kind, "pt"), podset(1, "master"), podset(2, "worker"), admitted=500)
    seen = look(
        *nodes(3),
        wl,
        ready("m", of_workload("wl", "master") + of_kubeflow("pt", "master", kind), "n0"),
        ready("w0", of_workload("wl", "worker") + of_kubeflow("pt", "worker", kind), "n1"),
    )
    gang = seen.gang("pt")
    assert gang.key == ("kueue", "team", "pt")
    assert (gang.state, gang.required, gang.missing) == ("partial", 3, 1)
    assert gang.owner_kind == kind.lower()


def test_train_job_with_kueue():
    """A TrainJob's pods carry the JobSet label with its name; the Workload's owner is the TrainJob."""
    wl = workload("wl", ("TrainJob", "tj"), podset(2, "node"), admitted=500)
    seen = look(*nodes(2), wl, *up(2, of_jobset("tj", "node")))
    gang = seen.gang("tj")
    assert gang.key == ("kueue", "team", "tj")
    assert (gang.state, gang.owner_kind) == ("running", "trainjob")


def test_lws_without_any_gang_scheduling():
    """Each group of a LeaderWorkerSet is a gang of its own, named by its index; the annotation states the size."""
    seen = look(
        *nodes(5),
        *[ready(f"a{index}", of_lws("lws", 0, 3), f"n{index}") for index in range(3)],
        *[ready(f"b{index}", of_lws("lws", 1, 3), f"n{index + 3}") for index in range(2)],
        unread=NOTHING_INSTALLED,
    )
    first, second = seen.gang("lws-0"), seen.gang("lws-1")
    assert (first.state, first.required, first.missing) == ("running", 3, 0)
    assert (second.state, second.required, second.missing) == ("partial", 3, 1)
    assert first.owner_kind == "leaderworkerset"
    assert (seen.busy, seen.idle) == (24, 16)


@pytest.mark.parametrize("annotated", [True, False])
def test_lws_with_kueue(annotated: bool):
    """Kueue makes a Workload a group; the gang is named by the set and the group's index, not by the Workload.

    The index stands on the Workload since Kueue 0.17, before on the pods; the pods name the Workload as their group, by
    annotation since 0.18.
    """
    objects = []
    for index in (0, 1):
        name = f"leaderworkerset-lws-{index}-abcde"
        wl = workload(
            name,
            ("LeaderWorkerSet", "lws"),
            podset(2),
            controls=False,
            admitted=500,
            annotations={"kueue.x-k8s.io/component-workload-index": str(index)} if annotated else {},
        )
        tie = of_plain_group(name, annotated=annotated, serving=True) + of_lws("lws", index, 2)
        objects += [wl, *[ready(f"p{index}{rank}", tie, f"n{2 * index + rank}") for rank in (0, 1)]]
    seen = look(*nodes(4), *objects)
    assert seen.names == {("kueue", "team", "lws-0"), ("kueue", "team", "lws-1")}
    assert [seen.gang(f"lws-{index}").state for index in (0, 1)] == ["running", "running"]
    assert seen.gang("lws-0").owner_kind == "leaderworkerset"


def test_lws_with_kueue_before_its_pods_exist():
    """The index on the Workload names the gang before any pod does."""
    index = {"kueue.x-k8s.io/component-workload-index": "7"}
    seen = look(workload("lws-wl", ("LeaderWorkerSet", "lws"), podset(2), controls=False, annotations=index))
    assert seen.gang("lws-7").state == "queued"


@pytest.mark.parametrize("annotated", [True, False])
def test_plain_pod_group_name_as_label_and_as_annotation(annotated: bool):
    """The name of a plain-pod group is a label, an annotation since Kueue 0.18; the gang bears the group's name."""
    wl = workload(
        "grp",
        ("Pod", "w0"),
        podset(2),
        controls=False,
        admitted=500,
        annotations={"kueue.x-k8s.io/is-group-workload": "true"},
    )
    seen = look(*nodes(2), wl, *up(2, of_plain_group("grp", annotated=annotated)))
    assert seen.names == {("kueue", "team", "grp")}
    assert seen.gang("grp").state == "running"


def test_plain_pod_group_of_two_roles():
    """Pods of a group of several roles are told apart by their role hash, which is the podset's name."""
    wl = workload("grp", ("Pod", "a0"), podset(1, "h1"), podset(1, "h2"), controls=False, admitted=500)
    seen = look(
        *nodes(2),
        wl,
        ready("a0", of_plain_group("grp", role="h1"), "n0"),
        ready("a1", of_plain_group("grp", role="h1"), "n1"),
    )
    gang = seen.gang("grp")
    assert (gang.state, gang.missing) == ("partial", 1)


def test_single_plain_pod_is_no_gang():
    """A Workload of one pod requires 1: no gang, whatever kind; its GPU is other, in its queue."""
    seen = look(
        node("n0"),
        workload("pod-solo", ("Pod", "solo"), podset(1), admitted=500),
        ready("solo", of_workload("pod-solo"), "n0"),
    )
    assert seen.names == set()
    assert seen.other == 8
    queue = next(queue for queue, _, use in seen.picture.gpus.allocated if use == "other")
    assert (queue.local_queue, queue.cluster_queue, queue.engine) == ("lq", "cq", "none")


def test_required_is_judged_by_the_spec_not_by_what_reclaiming_left():
    """A gang of two of which one was reclaimed still is a gang: required 1, finishing."""
    seen = look(
        *nodes(2),
        jobset_workload(podset(2, reclaimed=1)),
        succeeded("w0", IN_WL, "n0"),
        ready("w1", IN_WL, "n1"),
    )
    gang = seen.gang("js")
    assert (gang.state, gang.required) == ("finishing", 1)
    assert seen.busy == 8


@pytest.mark.parametrize(
    ("batch_job", "is_gang"),
    [
        pytest.param(job("etl", 4, 4), True, id="indexed, completions = parallelism"),
        pytest.param(job("etl", 4, 4, indexed=False), False, id="non-indexed"),
        pytest.param(job("etl", 4, 20), False, id="more completions than pods"),
        pytest.param(job("etl", 4, None), False, id="indexed without completions"),
    ],
)
def test_batch_job(batch_job: Json, is_gang: bool):
    """A batch Job is a gang when it is Indexed with as many completions as parallel pods; else its pods are other."""
    wl = workload("wl", ("Job", "etl"), podset(4), admitted=500)
    seen = look(*nodes(4), wl, batch_job, *up(4, IN_WL + of_job("etl")))
    assert bool(seen.names) is is_gang
    assert (seen.busy, seen.other) == ((32, 0) if is_gang else (0, 32))


@pytest.mark.parametrize(
    ("index", "members", "is_gang"),
    [(0, 4, True), (None, 4, False), (None, 0, True)],
    ids=["ranks", "no ranks", "none"],
)
def test_batch_job_that_was_not_read(index: int | None, members: int, is_gang: bool):
    """Where the Job cannot be read, members with a completion index, or no members yet, make a gang."""
    wl = workload("wl", ("Job", "etl"), podset(4), admitted=500)
    seen = look(*nodes(4), wl, *up(members, IN_WL + of_job("etl", index)))
    assert bool(seen.names) is is_gang


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "RayService", "SparkApplication", "AppWrapper"])
def test_kinds_that_are_no_gangs(kind: str):
    """Workloads of other kinds are no gangs: their pods work each for itself."""
    wl = workload("wl", (kind, "svc"), podset(3), admitted=500)
    seen = look(*nodes(2), wl, *up(2, IN_WL))
    assert seen.names == set()
    assert (seen.busy, seen.idle, seen.other) == (0, 0, 16)


def test_serving_pod_group_is_no_gang():
    """A plain-pod group that serves is no gang."""
    wl = workload("grp", ("Pod", "w0"), podset(3), controls=False, admitted=500)
    seen = look(*nodes(2), wl, *up(2, of_plain_group("grp", serving=True)))
    assert seen.names == set()
    assert seen.other == 16


def test_stateful_set_of_an_old_kueue():
    """A StatefulSet's pods name a pod group too; its Workload's owner tells that it is none."""
    wl = workload("sts", ("StatefulSet", "sts"), podset(3), controls=False, admitted=500)
    seen = look(*nodes(2), wl, *up(2, of_plain_group("sts", serving=True) + owned("StatefulSet", "sts")))
    assert seen.names == set()
    assert seen.other == 16


def test_kueue_gang_kinds_override_the_list():
    """`kueue_gang_kinds` replaces the list: a kind that is not on it makes no gang, one that is does."""
    sets = jobset_workload(podset(2))
    custom = workload("wl2", ("AppWrapper", "aw"), podset(2), admitted=500)
    seen = look(*nodes(2), sets, custom, *up(2, IN_WL), gang_kinds=frozenset({"AppWrapper"}))
    assert seen.names == {("kueue", "team", "aw")}
    assert seen.other == 16


# --- elastic jobs and Ray --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sign", ["slice annotation", "replacement annotation", "gate in the template", "annotation of the job"]
)
def test_elastic_job_with_a_minimum(sign: str):
    """An elastic job requires its minimum: with two of four up it runs, however the elasticity shows."""
    annotations = {
        "slice annotation": {"kueue.x-k8s.io/workload-slice-name": "wl"},
        "replacement annotation": {"kueue.x-k8s.io/workload-slice-replacement-for": "team/old"},
    }.get(sign, {})
    gate = ELASTIC_GATE if sign == "gate in the template" else ""
    wl = workload("wl", ("Job", "el"), podset(4, minimum=2, gate=gate), admitted=500, annotations=annotations)
    seen = look(
        *nodes(2),
        job("el", 4, 4, elastic=sign == "annotation of the job"),
        wl,
        *up(2, IN_WL + of_job("el")),
        *[unscheduled(f"w{index}", IN_WL + of_job("el"), NO_GPU) for index in (2, 3)],
    )
    gang = seen.gang("el")
    assert (gang.state, gang.required) == ("running", 2)
    assert seen.busy == 16


def test_elastic_job_without_a_readable_minimum():
    """What an elastic job requires cannot be known: no state, and its GPUs are neither busy nor idle."""
    wl = workload(
        "wl", ("Job", "el"), podset(4), admitted=500, annotations={"kueue.x-k8s.io/workload-slice-name": "wl"}
    )
    seen = look(*nodes(2), job("el", 4, 4, elastic=True), wl, *up(2, of_slice("wl") + of_job("el")))
    gang = seen.gang("el")
    assert (gang.state, gang.since, gang.required) == (None, None, None)
    assert gang.unobservable in REASONS
    assert (seen.busy, seen.idle, seen.other) == (0, 0, 16)
    assert sum(seen.unobservable("required").values()) == 1


def test_two_slices_of_an_elastic_job_are_one_gang():
    """While a job grows, an admitted slice runs and a new one waits: one gang, of what is admitted."""
    annotations = {"kueue.x-k8s.io/workload-slice-name": "wl"}
    old = workload("wl", ("Job", "el"), podset(2, minimum=2), created=900, admitted=800, annotations=annotations)
    grown = workload("wl-b", ("Job", "el"), podset(4, minimum=3), created=100, annotations=annotations)
    tie = of_slice("wl") + of_job("el")
    seen = look(*nodes(2), job("el", 4, 4, elastic=True), old, grown, *up(2, tie), gated("w2", tie, ELASTIC_GATE))
    assert seen.names == {("kueue", "team", "el")}
    gang = seen.gang("el")
    assert (gang.state, gang.required) == ("running", 2)
    assert classes(gang) == {"ready": 2, "gated": 1}


def test_two_slices_of_an_elastic_job_before_kueue_0_16():
    """Kueue 0.13 to 0.15 link a slice to its predecessor only by its key: still one gang, of the job's name."""
    old = workload("wl-a", ("Job", "el"), podset(2, minimum=2), created=900, admitted=800)
    grown = workload(
        "wl-b",
        ("Job", "el"),
        podset(4, minimum=3),
        created=100,
        annotations={"kueue.x-k8s.io/workload-slice-replacement-for": "team/wl-a"},
    )
    tie = of_workload("wl-a") + of_job("el")
    seen = look(*nodes(2), job("el", 4, 4, elastic=True), old, grown, *up(2, tie))
    assert seen.names == {("kueue", "team", "el")}


@pytest.mark.parametrize(("first", "second"), [("wl-a", "wl-b"), ("wl-b", "wl-a")])
def test_slices_are_found_by_their_common_name_alone(first: str, second: str):
    """A pod names the slices' common name; of those the one that is admitted takes it in, whatever it is called."""
    annotations = {"kueue.x-k8s.io/workload-slice-name": "common"}
    admitted = workload(first, ("JobSet", "el"), podset(2, minimum=2), admitted=800, annotations=annotations)
    waits = workload(second, ("JobSet", "el"), podset(4, minimum=3), created=100, annotations=annotations)
    seen = look(*nodes(2), admitted, waits, *up(2, of_slice("common")))
    gang = seen.gang("el")
    assert (gang.state, gang.required) == ("running", 2)


def test_replaced_slice_is_finished():
    """The slice that was replaced is Finished: the job's gang is the slice that lives, with the pods of both."""
    annotations = {"kueue.x-k8s.io/workload-slice-name": "wl"}
    old = workload("wl", ("Job", "el"), podset(2), created=900, admitted=800, finished=50, annotations=annotations)
    grown = workload("wl-b", ("Job", "el"), podset(4, minimum=4), created=100, admitted=50, annotations=annotations)
    tie = of_slice("wl") + of_job("el")
    seen = look(*nodes(4), job("el", 4, 4, elastic=True), old, grown, *up(4, tie))
    gang = seen.gang("el")
    assert (gang.state, gang.required) == ("running", 4)
    assert classes(gang) == {"ready": 4}


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob"])
def test_ray_cluster_without_autoscaling(kind: str):
    """A Ray cluster of fixed size is a gang of head and workers; the head without GPUs is required like any member."""
    wl = workload("wl", (kind, "rc"), podset(1, "head", gpus=0), podset(2, "workers"), admitted=500)
    seen = look(*nodes(2), wl, *up(2, of_workload("wl", "workers") + of_ray("rc")))
    gang = seen.gang("rc")
    assert (gang.state, gang.required, gang.missing) == ("partial", 3, 1)
    assert gang.idle == {GPU: 16}


@pytest.mark.parametrize("where", ["template", "head pod"])
def test_ray_cluster_with_autoscaling(where: str):
    """A Ray cluster that resizes itself is no gang; the autoscaler shows as a container of the template or the head."""
    autoscaler = [container(0, "autoscaler")]
    head_set = podset(1, "head", gpus=0, containers=autoscaler if where == "template" else [])
    head = ready("head", of_workload("wl", "head") + of_ray("rc", "headgroup"), "n0", gpus=0)
    if where == "head pod":
        head["spec"]["containers"] += autoscaler
    wl = workload("wl", ("RayCluster", "rc"), head_set, podset(2, "workers"), admitted=500)
    seen = look(*nodes(2), wl, head, *up(1, of_workload("wl", "workers") + of_ray("rc")))
    assert seen.names == set()
    assert (seen.busy, seen.idle, seen.other) == (0, 0, 8)


def test_ray_cluster_of_an_old_kueue():
    """Before 0.14 pods of a RayCluster carry Ray's labels only; its head group is the podset `head`."""
    wl = workload("wl", ("RayCluster", "rc"), podset(1, "head", gpus=0), podset(2, "workers"), admitted=500)
    seen = look(
        *nodes(2),
        wl,
        ready("head", of_ray("rc", "headgroup"), "n0", gpus=0),
        *up(2, of_ray("rc")),
    )
    gang = seen.gang("rc")
    assert (gang.state, gang.required) == ("running", 3)
    assert classes(gang) == {"ready": 3}


def test_ray_job_of_an_old_kueue():
    """The cluster of a RayJob has a name of its own; the label of its origin names the RayJob."""
    origin = Tie(labels={"ray.io/originated-from-cr-name": "rj", "ray.io/originated-from-crd": "RayJob"})
    wl = workload("wl", ("RayJob", "rj"), podset(1, "head", gpus=0), podset(1, "workers"), admitted=500)
    seen = look(
        *nodes(1),
        wl,
        ready("head", of_ray("rj-x7x7x", "headgroup") + origin, "n0", gpus=0),
        ready("w0", of_ray("rj-x7x7x") + origin, "n0"),
    )
    assert seen.gang("rj").state == "running"


# --- Kueue by release ------------------------------------------------------------------------------------------------

OLD_KINDS = [
    pytest.param("JobSet", "js", of_jobset("js", "main"), id="JobSet"),
    pytest.param("TrainJob", "js", of_jobset("js", "main"), id="TrainJob"),
    pytest.param("PyTorchJob", "pt", of_kubeflow("pt", "main"), id="PyTorchJob"),
    pytest.param("MPIJob", "mpi", of_kubeflow("mpi", "main", "MPIJob"), id="MPIJob"),
    pytest.param("Job", "etl", of_job("etl"), id="Job"),
]


@pytest.mark.parametrize(("kind", "name", "tie"), OLD_KINDS)
def test_kueue_0_9_pods_without_annotation(kind: str, name: str, tie: Tie):
    """Before 0.14 pods do not name their Workload, the labels of their owner do. No PodsReady either."""
    wl = workload("wl", (kind, name), podset(3), admitted=500, version="v1beta1")
    seen = look(*nodes(2), wl, *up(2, tie))
    gang = seen.gang(name)
    assert gang.key == ("kueue", "team", name)
    assert (gang.state, gang.required, gang.missing) == ("partial", 3, 1)
    assert seen.idle_by_reason() == {"partial": 16}


def test_kueue_0_9_lws_group_by_the_labels_of_its_pods():
    """A group of a LeaderWorkerSet before any annotation on the Workload: found by the group that the pods name."""
    wl = workload("lws-0-abcde", ("LeaderWorkerSet", "lws"), podset(2), controls=False, admitted=500, version="v1beta1")
    seen = look(*nodes(2), wl, *up(2, of_plain_group("lws-0-abcde") + of_lws("lws", 0, 2)))
    assert seen.gang("lws-0").state == "running"


@pytest.mark.parametrize(
    ("kind", "lead", "tie_of"),
    [
        pytest.param("JobSet", "driver", lambda role: of_jobset("js", role), id="ReplicatedJob"),
        pytest.param("PyTorchJob", "master", lambda role: of_kubeflow("js", role), id="replica type"),
        pytest.param("RayCluster", "head", lambda role: of_ray("js", role), id="Ray group"),
    ],
)
def test_kueue_0_9_podsets_by_the_labels_of_the_job(kind: str, lead: str, tie_of: Any):
    """Without Kueue's label the job's own label tells the podset: a surplus worker does not stand for the lead."""
    wl = workload("wl", (kind, "js"), podset(1, lead), podset(2, "workers"), admitted=500, version="v1beta1")
    seen = look(*nodes(3), wl, *up(3, tie_of("workers")))
    gang = seen.gang("js")
    assert (gang.state, gang.required, gang.missing) == ("partial", 3, 1)


def test_kueue_0_9_does_not_take_the_pods_of_a_namesake_in_another_namespace():
    """The owner is looked for in the pod's own namespace."""
    wl = workload("wl", ("JobSet", "js"), podset(2), admitted=500, version="v1beta1", namespace="other")
    seen = look(*nodes(2), wl, *up(2, of_jobset("js", "main", replicas=2)))
    assert seen.gang("js", "other").missing == 2
    assert seen.gang("js", "team").queue.engine == "job"


def test_kueue_0_10_sticky_pods_ready():
    """Up to 0.10 PodsReady never falls back: it proves that the gang was complete, not that it is."""
    wl = jobset_workload(podset(3), version="v1beta1", pods_ready=("True", 300, "PodsReady"))
    seen = look(*nodes(2), wl, *up(2, of_jobset("js", "main")))
    assert seen.gang("js").state == "degraded"
    assert seen.idle_by_reason() == {"degraded": 16}


def test_kueue_0_10_pods_not_ready_proves_nothing():
    """Before 0.11 the reason of False is PodsReady as well, which tells neither start nor recovery: partial."""
    wl = jobset_workload(podset(3), version="v1beta1", pods_ready=("False", 600, "PodsReady"))
    seen = look(*nodes(2), wl, *up(2, of_jobset("js", "main")))
    assert seen.gang("js").state == "partial"


def test_kueue_0_15_v1beta1_topology_assignment():
    """An assignment in the old form of the API does not stand in the way of the gang."""
    wl = jobset_workload(podset(2), version="v1beta1")
    wl["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] = {
        "levels": ["kubernetes.io/hostname"],
        "domains": [{"values": ["n0"], "count": 1}, {"values": ["n1"], "count": 1}],
    }
    seen = look(*nodes(2), wl, *up(2, IN_WL))
    assert seen.gang("js").state == "running"


# --- Workloads that are left out -------------------------------------------------------------------------------------


def test_multikueue_workload_is_left_out():
    """A Workload that hands its pods to another cluster is no gang here."""
    seen = look(jobset_workload(podset(2), cluster_name="worker-1"))
    assert seen.names == set()


def test_concurrent_admission_parent_is_left_out():
    """The parent of a concurrent admission has no pods of its own."""
    labels = {"kueue.x-k8s.io/concurrent-admission-parent": "true"}
    seen = look(jobset_workload(podset(2), labels=labels))
    assert seen.names == set()


def test_finished_workload_is_left_out():
    """A finished Workload stays in the cluster for ever, still admitted; a pod that is left of it is other."""
    seen = look(node("n0"), jobset_workload(podset(2), finished=100), ready("w0", IN_WL, "n0"))
    assert seen.names == set()
    assert (seen.busy, seen.idle, seen.other) == (0, 0, 8)


def test_workload_that_is_gone_is_no_gang():
    """A pod that names a Workload that does not exist is in no gang."""
    seen = look(node("n0"), ready("w0", IN_WL, "n0"))
    assert seen.names == set()
    assert (seen.idle, seen.other) == (0, 8)


def test_jobset_whose_workload_is_gone_is_no_gang():
    """The annotation decides: a JobSet's pod that names a Workload which is gone is no gang of engine `job` either."""
    seen = look(*nodes(2), *up(2, IN_WL + of_jobset("js", replicas=2)))
    assert seen.names == set()
    assert seen.other == 16


def test_prebuilt_workload_wins_over_the_group():
    """A pod that names a prebuilt Workload belongs to that one, whatever its group is called."""
    tie = of_plain_group("grp") + Tie(labels={"kueue.x-k8s.io/prebuilt-workload-name": "wl"})
    seen = look(*nodes(2), jobset_workload(podset(2)), *up(2, tie))
    assert seen.names == {("kueue", "team", "js")}


def test_running_workload_of_a_job_that_had_a_finished_one():
    """A job that ran before leaves a finished Workload of the same owner; its pods are those of the live one."""
    before = workload(
        "wl-1", ("JobSet", "js"), podset(2), created=9000, admitted=9000, finished=5000, version="v1beta1"
    )
    live = workload("wl-2", ("JobSet", "js"), podset(2), admitted=500, version="v1beta1")
    seen = look(*nodes(2), before, live, *up(2, of_jobset("js", "main")))
    assert seen.names == {("kueue", "team", "js")}
    assert seen.gang("js").state == "running"


# --- names -----------------------------------------------------------------------------------------------------------


def test_same_job_name_of_two_kinds():
    """Two live gangs of a namespace would get one name: each bears its Workload's name."""
    seen = look(
        *nodes(4),
        workload("jobset-train-1", ("JobSet", "train"), podset(2), admitted=500),
        workload("pytorchjob-train-2", ("PyTorchJob", "train"), podset(2), admitted=500),
        *up(2, of_workload("jobset-train-1")),
        *up(1, of_workload("pytorchjob-train-2"), first=2),
    )
    assert seen.names == {("kueue", "team", "jobset-train-1"), ("kueue", "team", "pytorchjob-train-2")}
    assert seen.gang("jobset-train-1").state == "running"
    assert seen.gang("pytorchjob-train-2").state == "partial"


def test_same_job_name_of_two_kinds_without_kueue():
    """A gang is the pods of one job: a JobSet and a PyTorchJob of one name are two, and the one that runs is busy."""
    seen = look(
        *nodes(3),
        *up(2, of_jobset("train")),
        ready("m", of_kubeflow("train", "master"), "n2"),
        unscheduled("k", of_kubeflow("train"), NO_GPU),
        unread=NOTHING_INSTALLED,
    )
    assert (seen.busy, seen.idle) == (16, 8)


def test_same_job_name_in_two_namespaces():
    """Names are those of a namespace: no conflict."""
    seen = look(
        workload("wl", ("JobSet", "train"), podset(2)),
        workload("wl", ("JobSet", "train"), podset(2), namespace="other"),
    )
    assert seen.names == {("kueue", "team", "train"), ("kueue", "other", "train")}


def test_podgroup_and_job_of_one_name():
    """A PodGroup keeps its name; the Kueue gang that would get the same bears its Workload's."""
    seen = look(pod_group("train", 2, min_gpus=16), workload("jobset-train-1", ("JobSet", "train"), podset(2)))
    assert seen.names == {("coscheduling", "team", "train"), ("kueue", "team", "jobset-train-1")}


def test_a_name_is_taken_by_live_gangs_only():
    """A PodGroup whose members have all ended is no live gang: the job that runs under the same name keeps it."""
    seen = look(
        *nodes(2),
        pod_group("train", 2),
        *[succeeded(f"old-{index}", TRAIN, "n0", created=9000, since=8900) for index in (0, 1)],
        workload("jobset-train-1", ("JobSet", "train"), podset(2), admitted=500),
        *up(2, of_workload("jobset-train-1")),
    )
    assert seen.names == {("kueue", "team", "train")}


# --- PodGroups and Workloads together --------------------------------------------------------------------------------


def test_podgroup_and_workload_are_one_gang():
    """A pod of both is in one gang: the PodGroup gives engine and required, the Workload queue and priority."""
    wl = jobset_workload(podset(3), priority_class="urgent")
    seen = look(*nodes(3), pod_group("train", 3), wl, *up(2, TRAIN + IN_WL), new("w2", TRAIN + IN_WL))
    assert seen.names == {("coscheduling", "team", "train")}
    gang = seen.gang("train")
    assert (gang.state, gang.required) == ("partial", 3)
    assert (gang.queue.local_queue, gang.queue.cluster_queue, gang.priority_class) == ("lq", "cq", "urgent")
    assert gang.owner_kind == "jobset"


@pytest.mark.parametrize("engine", ["coscheduling", "kubernetes"])
def test_podgroup_and_workload_are_one_gang_before_pods_exist(engine: str):
    """The Workload's pod template names the PodGroup: one gang, queued while the Workload is not admitted."""
    tie, group = (
        (TRAIN, pod_group("train", 3)) if engine == "coscheduling" else (of_native("train"), native_group("train", 3))
    )
    seen = look(group, workload("wl", ("JobSet", "js"), podset(3, tie=tie)))
    assert seen.names == {(engine, "team", "train")}
    gang = seen.gang("train")
    assert (gang.state, gang.required, gang.missing) == ("queued", 3, 3)
    assert gang.queue.local_queue == "lq"
    assert gang.requested == {GPU: 24}


@pytest.mark.parametrize(("admitted", "waits"), [("wl-a", "wl-b"), ("wl-b", "wl-a")])
def test_podgroup_of_two_workloads(admitted: str, waits: str):
    """A job was made again under the same PodGroup: the Workload that is admitted tells queue and admission."""
    seen = look(
        pod_group("train", 2),
        workload(admitted, ("JobSet", "js"), podset(2, tie=TRAIN), created=900, admitted=500, queue="first"),
        workload(waits, ("JobSet", "js"), podset(2, tie=TRAIN), created=100, queue="second"),
    )
    gang = seen.gang("train")
    assert (gang.state, gang.queue.local_queue) == ("pending", "first")


def test_podgroup_gang_whose_workload_is_finished():
    """A finished Workload is a finished gang, whatever its pods do: left out, and what they hold is other.

    An MPIJob leaves its workers running when it is over, unless told to clean them up.
    """
    seen = look(*nodes(2), pod_group("train", 2), jobset_workload(podset(2), finished=60), *up(2, TRAIN + IN_WL))
    assert seen.names == set()
    assert (seen.busy, seen.idle, seen.other) == (0, 0, 16)


def test_podgroup_of_one_inside_a_gang_workload():
    """A PodGroup that requires 1 is no gang: the pods are those of the Workload's gang."""
    seen = look(
        *nodes(2),
        pod_group("train", 1),
        jobset_workload(podset(3, tie=TRAIN)),
        *up(2, TRAIN + IN_WL),
    )
    assert seen.names == {("kueue", "team", "js")}
    gang = seen.gang("js")
    assert (gang.state, gang.required, gang.missing) == ("partial", 3, 1)


def test_native_podgroup_without_a_gang_policy():
    """A native PodGroup with the policy `basic` is no gang."""
    seen = look(*nodes(2), native_group("train", None), *up(2, of_native("train")))
    assert seen.names == set()
    assert seen.other == 16


def test_native_podgroup_is_a_gang():
    """A native PodGroup with minCount is a gang of engine `kubernetes`."""
    seen = look(*nodes(2), native_group("train", 2), *up(2, of_native("train")))
    assert seen.gang("train").key == ("kubernetes", "team", "train")
    assert seen.gang("train").state == "running"


def test_jobset_in_a_podgroup_is_one_gang():
    """Pods of a JobSet that are in a PodGroup are the PodGroup's gang, not one of engine `job` as well."""
    seen = look(*nodes(2), pod_group("train", 2), *up(2, TRAIN + of_jobset("js", replicas=2)))
    assert seen.names == {("coscheduling", "team", "train")}
    assert seen.gang("train").owner_kind == "jobset"


def test_more_members_than_the_podgroup_requires():
    """The gang runs with its minimum; a member beyond it is counted, and nothing waits for it."""
    seen = look(*nodes(2), pod_group("train", 2), *up(2, TRAIN), unscheduled("w2", TRAIN, NO_GPU))
    gang = seen.gang("train")
    assert (gang.state, gang.required, gang.missing) == ("running", 2, 0)
    assert classes(gang) == {"ready": 2, "unschedulable": 1}


# --- podsets, partial admission, reclaiming --------------------------------------------------------------------------

LAUNCHER, WORKERS = of_workload("wl", "launcher"), of_workload("wl", "workers")


def mpi_workload() -> Json:
    """Return an admitted MPIJob of a launcher without GPUs and two workers."""
    return workload("wl", ("MPIJob", "mpi"), podset(1, "launcher", gpus=0), podset(2, "workers"), admitted=500)


def test_launcher_is_missing():
    """Every podset must be met: both workers run, the launcher does not exist, the workers' GPUs are held in vain."""
    seen = look(*nodes(2), mpi_workload(), *up(2, WORKERS))
    gang = seen.gang("mpi")
    assert (gang.state, gang.required, gang.missing) == ("partial", 3, 1)
    assert seen.idle_by_reason() == {"partial": 16}


def test_surplus_of_one_podset_does_not_stand_for_another():
    """Three pods for three required, but two are launchers: the workers' podset is not met."""
    seen = look(
        *nodes(2),
        mpi_workload(),
        ready("l0", LAUNCHER, "n0", gpus=0),
        ready("l1", LAUNCHER, "n1", gpus=0),
        *up(1, WORKERS),
    )
    gang = seen.gang("mpi")
    assert (gang.state, gang.missing) == ("partial", 1)


def test_launcher_and_workers_run():
    """Both podsets are met: running, and GPUs requested are those of the workers."""
    seen = look(*nodes(2), mpi_workload(), ready("l0", LAUNCHER, "n0", gpus=0), *up(2, WORKERS))
    gang = seen.gang("mpi")
    assert (gang.state, gang.missing) == ("running", 0)
    assert gang.requested == {GPU: 16}


def test_launcher_has_succeeded_while_workers_are_cleaned_up():
    """The launcher has ended well, the workers still run: part of the gang is over, the rest holds GPUs."""
    seen = look(*nodes(2), mpi_workload(), succeeded("l0", LAUNCHER, "n0", gpus=0), *up(2, WORKERS))
    assert seen.gang("mpi").state == "finishing"


def test_launcher_was_reclaimed():
    """The launcher has ended and was reclaimed, its pod is gone: nothing of it is required, and the workers finish."""
    made = podset(1, "launcher", gpus=0, reclaimed=1), podset(2, "workers")
    seen = look(*nodes(2), workload("wl", ("MPIJob", "mpi"), *made, admitted=500), *up(2, WORKERS))
    gang = seen.gang("mpi")
    assert (gang.state, gang.required, gang.missing) == ("finishing", 2, 0)


def test_launcher_of_a_gang_that_was_ready_is_missing():
    """A podset with nothing placed is no reason to say that the gang holds nothing: it was ready, it is degraded."""
    wl = mpi_workload()
    wl["status"]["conditions"].append(condition("PodsReady", "True", 400, "Started"))
    seen = look(*nodes(2), wl, *up(2, WORKERS))
    assert seen.gang("mpi").state == "degraded"


def test_members_without_podset_label():
    """Where members name no podset, the podsets cannot be told apart and are counted together."""
    tie = of_workload("wl", "")
    seen = look(*nodes(3), mpi_workload(), *up(3, tie))
    gang = seen.gang("mpi")
    assert (gang.state, gang.required, gang.missing) == ("running", 3, 0)

    fewer = look(*nodes(3), mpi_workload(), *up(2, tie)).gang("mpi")
    assert (fewer.state, fewer.missing) == ("partial", 1)

    mixed = look(*nodes(3), mpi_workload(), *up(2, WORKERS), *up(1, tie, first=2)).gang("mpi")
    assert (mixed.state, mixed.missing) == ("running", 0)


def test_partial_admission():
    """A job that asks for eight and was admitted with four requires four."""
    wl = workload("wl", ("MPIJob", "mpi"), podset(8, assigned=4, minimum=2), admitted=500)
    seen = look(*nodes(4), wl, *up(4, IN_WL))
    gang = seen.gang("mpi")
    assert (gang.state, gang.required) == ("running", 4)
    assert gang.requested == {GPU: 32}


def test_partial_admission_before_it_is_admitted():
    """Before its admission the same job asks for eight."""
    wl = workload("wl", ("MPIJob", "mpi"), podset(8, minimum=2))
    gang = look(wl).gang("mpi")
    assert (gang.state, gang.required, gang.missing) == ("queued", 8, 8)


@pytest.mark.parametrize(
    ("assigned", "reclaimed", "required"),
    [(8, 0, 8), (8, 3, 5), (4, 0, 4), (4, 3, 4), (4, 5, 3), (8, 8, 0)],
)
def test_reclaimable_pods(assigned: int, reclaimed: int, required: int):
    """Of eight asked for: the spec less what was reclaimed, at most what was assigned (not assigned less reclaimed)."""
    seen = look(jobset_workload(podset(8, assigned=assigned, reclaimed=reclaimed)))
    assert seen.gang("js").required == required


def test_reclaimed_members_are_not_counted_twice():
    """Two of four have succeeded and were reclaimed: they are off `required`, so they are no more `done`.

    Of the two that are still required one runs and one does not exist.
    """
    seen = look(
        *nodes(4),
        jobset_workload(podset(4, reclaimed=2)),
        *[succeeded(f"s{index}", IN_WL, f"n{index}") for index in (0, 1)],
        *up(1, IN_WL, first=2),
    )
    gang = seen.gang("js")
    assert (gang.state, gang.required, gang.missing) == ("partial", 2, 1)


def test_succeeded_members_that_are_not_reclaimed_yet():
    """Three of four have succeeded and one of them was reclaimed: required 3, done 2, up 1. Finishing."""
    seen = look(
        *nodes(4),
        jobset_workload(podset(4, reclaimed=1)),
        *[succeeded(f"s{index}", IN_WL, f"n{index}") for index in range(3)],
        *up(1, IN_WL, first=3),
    )
    gang = seen.gang("js")
    assert (gang.state, gang.required, gang.missing) == ("finishing", 3, 0)


def test_jobset_workload_of_which_one_replicated_job_has_succeeded():
    """Kueue reclaims a whole Job: the pods that are gone are required no more, and the rest is finishing, busy."""
    seen = look(*nodes(4), jobset_workload(podset(4, reclaimed=2)), *up(2, IN_WL, first=2))
    gang = seen.gang("js")
    assert (gang.state, gang.required) == ("finishing", 2)
    assert (seen.busy, seen.idle) == (16, 0)


# === GPU requests ====================================================================================================


@pytest.mark.parametrize(
    ("containers", "init", "overhead", "held"),
    [
        pytest.param([container(2), container(1, "two")], [], 0, 3, id="sum of containers"),
        pytest.param([container(2)], [container(4, "init")], 0, 4, id="init peak above"),
        pytest.param([container(4)], [container(2, "init")], 0, 4, id="init peak below"),
        pytest.param([container(1)], [container(3, "a"), container(2, "b")], 0, 3, id="inits run one after another"),
        pytest.param([container(1)], [sidecar(1), container(4, "init")], 0, 5, id="sidecar before the init container"),
        pytest.param([container(1)], [container(4, "init"), sidecar(1)], 0, 4, id="sidecar after it"),
        pytest.param([container(4)], [container(1, "init"), sidecar(2)], 0, 6, id="sidecars run beside containers"),
        pytest.param([container(1)], [sidecar(1, "a"), container(2, "i"), sidecar(2, "b")], 0, 4, id="between two"),
        pytest.param([container(2)], [container(4, "init")], 1, 5, id="overhead on top"),
        pytest.param([container(2, limits_only=True)], [], 0, 2, id="limits where requests are absent"),
        pytest.param([container(0)], [], 0, 0, id="none"),
    ],
)
def test_effective_request(containers: list[Json], init: list[Json], overhead: int, held: int):
    """What a pod holds is the larger of what runs and the peak of its init path, plus overhead."""
    spec: Json = {"containers": containers, "initContainers": init}
    if overhead:
        spec["overhead"] = {GPU: str(overhead)}
    seen = look(node("n0"), ready("plain", TRAIN, "n0", spec=spec), pod_group("train", 2), include_cpu_gangs=True)
    assert seen.gang("train").allocated == ({GPU: held} if held else {})
    assert seen.free() == 8 - held


def test_effective_request_of_several_resources():
    """Each resource is reckoned for itself: the init peak of one does not raise another."""
    mig = "nvidia.com/mig-1g.10gb"
    spec = {
        "containers": [container({GPU: 1, mig: 2})],
        "initContainers": [container({mig: 5}, "init")],
    }
    seen = look(node("n0", {GPU: 8, mig: 8}), ready("plain", LONE, "n0", spec=spec))
    assert (seen.use("other", GPU), seen.use("other", mig)) == (1, 5)


def test_limit_counts_only_where_the_request_is_absent():
    """A request of 0 is a request: the limit does not replace it."""
    resources = {"requests": {GPU: "0"}, "limits": {GPU: "4"}}
    spec = {"containers": [{"name": "main", "resources": resources}]}
    seen = look(node("n0"), ready("plain", TRAIN, "n0", spec=spec), pod_group("train", 2), include_cpu_gangs=True)
    assert seen.gang("train").allocated == {}


def test_mig_and_amd_side_by_side():
    """Resources are kept apart: a MIG slice is no GPU, and an AMD one no NVIDIA one."""
    mig, amd = "nvidia.com/mig-3g.40gb", "amd.com/gpu"
    seen = look(
        node("a", {mig: 4}),
        node("b", {amd: 8}),
        pod_group("train", 2),
        ready("w0", TRAIN, "a", gpus={mig: 2}),
        ready("w1", TRAIN, "b", gpus={amd: 8}),
        ready("plain", LONE, "a", gpus={mig: 1}),
    )
    gang = seen.gang("train")
    assert gang.state == "running"
    assert gang.allocated == {mig: 2, amd: 8}
    assert (seen.use("busy", mig), seen.use("busy", amd), seen.use("other", mig)) == (2, 8, 1)
    assert (seen.free(mig), seen.free(amd)) == (1, 0)
    assert seen.picture.nodes is not None
    assert GPU not in seen.picture.nodes


@pytest.mark.parametrize("resource", [GPU, "nvidia.com/gpu.shared"])
def test_time_slices(resource: str):
    """A unit is what the device plugin advertises: 8 cards in 4 slices each are 32."""
    seen = look(
        node("n0", {resource: 32}),
        pod_group("train", 2),
        *[ready(f"w{index}", TRAIN, "n0", gpus={resource: 5}) for index in (0, 1)],
    )
    assert seen.use("busy", resource) == 10
    assert seen.free(resource) == 22


def test_monitoring_resource_is_no_gpu():
    """`*_monitoring` gives access to all cards and reserves none: never a GPU, also where a glob matches."""
    monitoring, card = "gpu.intel.com/i915_monitoring", "gpu.intel.com/i915"
    seen = look(node("n0", {monitoring: 1, card: 2}), ready("plain", LONE, "n0", gpus={monitoring: 1, card: 1}))
    assert seen.use("other", monitoring) == 0
    assert seen.use("other", card) == 1


def test_gpu_resources_option():
    """Which resources are GPUs is the user's choice."""
    own = "example.com/accelerator"
    seen = look(
        node("n0", {own: 4, GPU: 8}),
        ready("plain", LONE, "n0", gpus={own: 3, GPU: 1}),
        gpus=GpuResources(("example.com/*",)),
    )
    assert (seen.use("other", own), seen.use("other", GPU)) == (3, 0)


@pytest.mark.parametrize(
    "resource",
    ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "amd.com/gpu", "gpu.intel.com/xe",
     "google.com/tpu", "habana.ai/gaudi", "aws.amazon.com/neuron"],
)  # fmt: skip
def test_default_gpu_resources(resource: str):
    """The resources that are GPUs by default; AWS's cores are the same silicon as its devices and are not."""
    assert resource in GpuResources(GPU_RESOURCES)
    assert "aws.amazon.com/neuroncore" not in GpuResources(GPU_RESOURCES)


# === nodes ===========================================================================================================


def test_unhealthy_gpus():
    """Capacity less allocatable is broken; free counts allocatable only, and is never below 0."""
    seen = look(
        node("n0", 8, allocatable=6),
        node("n1", 8, allocatable=0),
        ready("plain", LONE, "n1", gpus=8),
    )
    assert seen.picture.nodes is not None
    totals = seen.picture.nodes[GPU]
    assert (totals.capacity, totals.allocatable, totals.unhealthy) == (16, 6, 10)
    assert (totals.schedulable, totals.free) == (6, 6)
    healthy = look(node("n0")).picture.nodes
    assert healthy is not None
    assert healthy[GPU].unhealthy == 0


@pytest.mark.parametrize(
    ("odd", "able"),
    [
        pytest.param(node("n0"), True, id="ready"),
        pytest.param(node("n0", cordoned=True), False, id="cordoned"),
        pytest.param(node("n0", ready_status="False", since=5), False, id="not ready, also within the grace"),
        pytest.param(node("n0", ready_status="Unknown", since=500), False, id="unknown"),
        pytest.param(node("n0", ready_status=""), False, id="no condition"),
        pytest.param(node("n0", taints=[taint("maintenance", "true")]), False, id="foreign taint"),
        pytest.param(node("n0", taints=[taint("maintenance", "true", "NoExecute")]), False, id="foreign NoExecute"),
        pytest.param(node("n0", taints=[taint("soft", "", "PreferNoSchedule")]), True, id="PreferNoSchedule"),
        pytest.param(node("n0", taints=[taint(GPU, "present")]), True, id="taint keyed by the GPU resource"),
        pytest.param(node("n0", taints=[taint(GPU), taint("maintenance")]), False, id="one of two is foreign"),
        pytest.param(node("n0", taints=[taint("node.kubernetes.io/unschedulable")]), False, id="node controller"),
    ],
)
def test_a_node_takes_pods(odd: Json, able: bool):
    """A node takes pods when Ready, not cordoned, and every repelling taint on it is tolerated."""
    seen = look(odd)
    assert seen.picture.nodes is not None
    totals = seen.picture.nodes[GPU]
    assert (totals.allocatable, totals.schedulable, totals.free) == (8, 8 * able, 8 * able)


POOL = taint("pool", "train")


@pytest.mark.parametrize(
    ("tolerated", "able"),
    [
        pytest.param(toleration("pool", "train"), True, id="equal"),
        pytest.param(toleration("pool", "other"), False, id="other value"),
        pytest.param(toleration("pool", operator="Exists"), True, id="exists"),
        pytest.param(toleration("pool", "train", effect="NoSchedule"), True, id="same effect"),
        pytest.param(toleration("pool", "train", effect="NoExecute"), False, id="other effect"),
        pytest.param(toleration("other", operator="Exists"), False, id="other key"),
        pytest.param(toleration(operator="Exists"), False, id="without a key proves nothing"),
    ],
)
@pytest.mark.parametrize("whose", ["live pod", "flavor", "option"])
def test_pool_taint_is_tolerated_by(whose: str, tolerated: Json, able: bool):
    """A live pod that asks for such GPUs, a flavor that selects the node, or the option tolerates a pool's taint."""
    pool_node = node("n0", labels={"pool": "train"}, taints=[POOL])
    objects, options = [pool_node], dict[str, Any]()
    if whose == "live pod":
        objects.append(new("any", LONE, spec={"tolerations": [tolerated]}))
    elif whose == "flavor":
        objects.append(flavor("f", {"pool": "train"}, [tolerated]))
    else:
        fields = {"key": "", "operator": "Equal", "value": "", "effect": "", **tolerated}
        options["tolerated_taints"] = (Toleration(**fields),)
    assert look(*objects, **options).free() == 8 * able


@pytest.mark.parametrize(
    "unproving",
    [
        pytest.param(flavor("f", {"pool": "infer"}, [toleration("pool", "train")]), id="flavor of other nodes"),
        pytest.param(
            new("cpu", TRAIN, gpus=0, spec={"tolerations": [toleration("pool", "train")]}), id="pod without GPUs"
        ),
        pytest.param(
            new("amd", LONE, gpus={"amd.com/gpu": 1}, spec={"tolerations": [toleration("pool", "train")]}),
            id="pod of another resource",
        ),
        pytest.param(
            succeeded("over", LONE, "n0", spec={"tolerations": [toleration("pool", "train")]}), id="pod that is over"
        ),
        pytest.param(
            failed("over", LONE, "n0", spec={"tolerations": [toleration("pool", "train")]}), id="pod that has failed"
        ),
        pytest.param(
            flavor("f", {"pool": "train", "zone": "a"}, [toleration("pool", "train")]), id="flavor that asks for more"
        ),
    ],
)
def test_pool_taint_is_not_tolerated_by(unproving: Json):
    """What has nothing to do with the node's GPUs does not prove that it takes pods."""
    assert look(node("n0", labels={"pool": "train"}, taints=[POOL]), unproving).free() == 0


def test_flavor_without_labels_selects_every_node():
    """A ResourceFlavor that names no label is for all nodes."""
    assert look(node("n0", taints=[POOL]), flavor("f", {}, [toleration("pool", "train")])).free() == 8


def test_every_taint_must_be_tolerated():
    """A tolerated pool under maintenance takes no pods."""
    tolerant = new("any", LONE, spec={"tolerations": [toleration("pool", "train")]})
    assert look(node("n0", taints=[POOL, taint("maintenance")]), tolerant).free() == 0


@pytest.mark.parametrize("key", ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"])
def test_taints_of_the_node_controller_are_never_tolerated(key: str):
    """Every pod tolerates them for some minutes; they mean that the node is broken."""
    tolerated = {"tolerations": [toleration(key, operator="Exists")]}
    seen = look(
        node("n0", taints=[taint(key)]), new("any", LONE, spec=tolerated), flavor("f", {}, tolerated["tolerations"])
    )
    assert seen.free() == 0


def test_allocated_counts_on_nodes_that_take_no_pods():
    """What runs on a cordoned node is allocated like elsewhere, and what is left there is not free."""
    seen = look(node("n0", cordoned=True), node("n1"), pod_group("train", 2), *up(2, TRAIN, gpus=3))
    assert seen.busy == 6
    assert seen.free() == 5


# === class of a member ===============================================================================================


def class_of(member: Json, *others: Json, **options: Any) -> str:
    """Return the class of the only member of a gang that requires two."""
    seen = look(*others, pod_group("train", 2), member, **options)
    (name,) = [name for name, number in seen.gang("train").classes.items() if number]
    return name


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        (succeeded("w0", TRAIN, "n0"), "succeeded"),
        (failed("w0", TRAIN, "n0"), "failed"),
        (terminating(ready("w0", TRAIN, "n0")), "terminating"),
        (terminating(bound("w0", TRAIN, "n0")), "terminating"),
        (terminating(succeeded("w0", TRAIN, "n0")), "succeeded"),
        (crashing("w0", TRAIN, "n0"), "crashing"),
        (ready("w0", TRAIN, "n0"), "ready"),
        (running("w0", TRAIN, "n0"), "running"),
        (bound("w0", TRAIN, "n0"), "bound"),
        (gated("w0", TRAIN), "gated"),
        (new("w0", TRAIN), "new"),
    ],
)
def test_class(member: Json, expected: str):
    """Phase, deletion, node, readiness and gates decide in this order."""
    assert class_of(member, node("n0")) == expected


def test_unbound_pod_that_is_deleted_is_gone():
    """A pod that was deleted before it had a node is no member any more: it does not exist."""
    seen = look(node("n0"), pod_group("train", 2), terminating(new("w0", TRAIN)), new("w1", TRAIN))
    assert classes(seen.gang("train")) == {"new": 1, "missing": 1}


def test_pod_that_failed_without_a_node_is_failed():
    """The phase is asked first: a pod that failed before it had a node stays a failed member while it is deleted."""
    rejected = new("w0", TRAIN, status={"phase": "Failed", "reason": "NodeAffinity"})
    seen = look(node("n0"), pod_group("train", 2), terminating(rejected), new("w1", TRAIN))
    assert classes(seen.gang("train")) == {"failed": 1, "new": 1, "missing": 1}


CONTAINER_STATES = [
    pytest.param([{"waiting": {"reason": "CrashLoopBackOff"}}], "Never", True, id="waits after a crash"),
    pytest.param([{"terminated": {"exitCode": 1}}], "Never", True, id="ended with an error"),
    pytest.param([{"terminated": {"exitCode": 0}}], "Never", False, id="ended well"),
    pytest.param([{"terminated": {"exitCode": 0}}], "OnFailure", False, id="ended well, OnFailure"),
    pytest.param([{"terminated": {"exitCode": 0}}], "Always", True, id="ended well, but is to run always"),
    pytest.param([{"running": {}}, {"terminated": {"exitCode": 0}}], "Never", False, id="a helper has ended well"),
    pytest.param([{"running": {}}, {"terminated": {"exitCode": 137}}], "Never", True, id="one of two has failed"),
    pytest.param([{"running": {}}], "Always", False, id="runs"),
]


@pytest.mark.parametrize(("states", "policy", "crashes"), CONTAINER_STATES)
def test_class_crashing(states: list[Json], policy: str, crashes: bool):
    """A main container that waits after a crash, ended with an error, or ended where it is to run always."""
    statuses = [{"name": f"c{index}", "state": state} for index, state in enumerate(states)]
    member = running("w0", TRAIN, "n0", spec={"restartPolicy": policy}, status={"containerStatuses": statuses})
    assert class_of(member, node("n0")) == ("crashing" if crashes else "running")


def test_class_crashing_is_not_asked_of_sidecars():
    """A sidecar that crashes does not make a crashing member."""
    status = {"initContainerStatuses": [{"name": "sidecar", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}
    assert class_of(running("w0", TRAIN, "n0", status=status), node("n0")) == "running"


def test_class_crashing_is_not_asked_before_it_runs():
    """A pod in phase Pending whose image cannot be pulled is bound."""
    status = {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]}
    assert class_of(bound("w0", TRAIN, "n0", status=status), node("n0")) == "bound"


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        pytest.param([], "lost", id="absent"),
        pytest.param([node("n0", ready_status="False", since=61)], "lost", id="not ready beyond the grace"),
        pytest.param([node("n0", ready_status="Unknown", since=61)], "lost", id="unknown beyond the grace"),
        pytest.param([node("n0", ready_status="False", since=59)], "ready", id="not ready within the grace"),
        pytest.param([node("n0", ready_status="False", since=60)], "ready", id="not ready for just the grace"),
        pytest.param([node("n0", ready_status="")], "ready", id="no condition is no proof"),
        pytest.param([node("n0", cordoned=True)], "ready", id="cordoned"),
    ],
)
def test_class_lost(where: list[Json], expected: str):
    """A member is lost when its node is absent, or has not been Ready for more than the grace."""
    assert class_of(ready("w0", TRAIN, "n0"), *where) == expected


def test_class_lost_follows_the_grace_option():
    """`grace_seconds` decides."""
    away = node("n0", ready_status="False", since=100)
    assert class_of(ready("w0", TRAIN, "n0"), away, grace=120.0) == "ready"


def test_class_lost_comes_after_terminating():
    """First match wins: a member that terminates on a lost node is terminating."""
    assert class_of(terminating(ready("w0", TRAIN, "n0"))) == "terminating"


def test_unreadable_node_is_not_lost():
    """A node that exists and cannot be understood is no proof of a loss."""
    broken = node("n0")
    broken["status"]["capacity"] = {GPU: "-1"}
    assert class_of(ready("w0", TRAIN, "n0"), broken) == "ready"


def test_nobody_is_lost_while_nodes_are_not_read():
    """Without nodes no member can be called lost."""
    assert class_of(ready("w0", TRAIN, "n0"), unread={"nodes": "forbidden"}) == "ready"


# --- what the scheduler wrote ----------------------------------------------------------------------------------------

#: Texts of a rejection in Permit, before they are dressed in the words of a release.
PERMIT_TEXTS = {
    "timeout": "rejected due to timeout after waiting 10s at plugin Coscheduling",
    "long timeout": "rejected due to timeout after waiting 15m0s at plugin Coscheduling",
    "native timeout": "rejected due to timeout after waiting 4m59.9s at plugin GangScheduling",
    "unreserve": "rejection in Unreserve",
    "sibling": "optimistic rejection in PostFilter",
}
ERAS = {
    "until 1.22": 'pod "w0" rejected while waiting on permit: {}',
    "1.23 to 1.28": "{}",
    "from 1.29": "0/1 nodes are available: 1 {}.",
}


@pytest.mark.parametrize("nominated", ["", "n0"])
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("kind", PERMIT_TEXTS)
def test_class_of_a_permit_rejection(kind: str, era: str, nominated: str):
    """A rejection in Permit says nothing about now: waiting again or left over, with a nomination or without."""
    text = ERAS[era].format(PERMIT_TEXTS[kind])
    assert class_of(unscheduled("w0", TRAIN, text, nominated), node("n0")) == "waiting_possible"


PREFILTER_TEXTS = {
    "missing members": "pre-filter pod w0 cannot find enough sibling pods, "
    "current pods number: 3, minMember of group: 4",
    "gated members": "pre-filter pod w0 cannot proceed due to gated pods in the same PodGroup",
    "backoff": "podGroup team/train failed recently",
    "old backoff": "pod with pgName: team/train last failed in 3s, deny",
    "resource gap": "resource gap: map[nvidia.com/gpu:8]",
    "group not found": "PodGroup not found",
    "group not found in PostFilter": "can not find pod group",
}
PREFILTER_ERAS = {
    "until 1.22": "{}",
    "per node": "0/10 nodes are available: 10 {}.",
    "from 1.23": "0/4 nodes are available: {}. preemption: 0/4 nodes are available: 4 Preemption is not helpful for "
    "scheduling.",
}


@pytest.mark.parametrize(("nominated", "expected"), [("n0", "waiting_permit"), ("", "rejected")])
@pytest.mark.parametrize("era", PREFILTER_ERAS)
@pytest.mark.parametrize("kind", PREFILTER_TEXTS)
def test_class_of_a_prefilter_rejection(kind: str, era: str, nominated: str, expected: str):
    """A PreFilter failure precedes any nomination: one that is there is newer, and the pod waits now."""
    text = PREFILTER_ERAS[era].format(PREFILTER_TEXTS[kind])
    assert class_of(unscheduled("w0", TRAIN, text, nominated), node("n0")) == expected


FILTER = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
IN_VAIN = "preemption: 0/4 nodes are available: 4 No preemption victims found for incoming pod."
GROUP_REJECTED = "PodGroup team/train gets rejected due to Pod w1 is unschedulable even after PostFilter"
VICTIMS = "preemption: not eligible due to a terminating pod on the nominated node."
NEVER = "preemption: not eligible due to preemptionPolicy=Never."
OTHER_TEXTS = [
    # a filter failure that preemption answered with a node leaves no `preemption:` part
    pytest.param(FILTER, "nominated", "unschedulable", id="plain filter text"),
    pytest.param(
        "0/4 nodes are available: 1 node(s) had untolerated taint {pool: infer}, 3 Insufficient nvidia.com/gpu.",
        "nominated",
        "unschedulable",
        id="plain filter text of several reasons",
    ),
    pytest.param(f"{FILTER} {VICTIMS}", "nominated", "unschedulable", id="victims still going"),
    pytest.param(f"{FILTER} {VICTIMS}, {GROUP_REJECTED}.", "nominated", "rejected", id="victims going, group text"),
    pytest.param(f"{FILTER} {IN_VAIN}", "waiting_permit", "unschedulable", id="preemption in vain"),
    pytest.param(f"{FILTER} {IN_VAIN}, {GROUP_REJECTED}.", "waiting_permit", "rejected", id="trigger after preemption"),
    pytest.param(f"{FILTER} {GROUP_REJECTED}.", "rejected", "rejected", id="trigger alone"),
    pytest.param(f"{FILTER} {NEVER}", "waiting_possible", "unschedulable", id="preemption refused"),
    pytest.param(
        "waiting for minCount pods from a gang to be scheduled", "rejected", "rejected", id="native, waits for members"
    ),
    pytest.param(
        "one or more plugins asked to wait and no plugin rejected pod",
        "rejected",
        "rejected",
        id="native, asked to wait",
    ),
    pytest.param("pod group is unschedulable", "rejected", "rejected", id="native, unschedulable"),
    pytest.param(
        "0/3 placements are available, first placement status: 0/4 nodes are available: 4 Insufficient nvidia.com/gpu.",
        "rejected",
        "rejected",
        id="native, placements",
    ),
    pytest.param(
        "minCount (4) cannot be satisfied: 2 scheduled, 1 remaining", "rejected", "rejected", id="native, minCount"
    ),
    pytest.param(
        "pod group is waiting for preemption to complete", "nominated", "rejected", id="native, waits for preemption"
    ),
]


@pytest.mark.parametrize(("text", "with_nomination", "without"), OTHER_TEXTS)
def test_class_of_other_texts(text: str, with_nomination: str, without: str):
    """Filter texts by what they say of preemption, and the texts of native groups."""
    assert class_of(unscheduled("w0", TRAIN, text, "n0"), node("n0")) == with_nomination
    assert class_of(unscheduled("w0", TRAIN, text), node("n0")) == without


def test_class_of_the_first_wait():
    """A nomination without any PodScheduled condition is a first wait in Permit."""
    assert class_of(permit_waiter("w0", TRAIN, "n0"), node("n0")) == "waiting_permit"


@pytest.mark.parametrize(("nominated", "expected"), [("n0", "waiting_permit"), ("", "new")])
def test_class_after_the_gates_are_gone(nominated: str, expected: str):
    """The old SchedulingGated condition counts as none."""
    assert class_of(ungated("w0", TRAIN, nominated), node("n0")) == expected


def test_class_gated_with_a_nomination():
    """The spec's gates decide before any nomination."""
    member = gated("w0", TRAIN)
    member["status"]["nominatedNodeName"] = "n0"
    assert class_of(member, node("n0")) == "gated"


def test_class_of_a_scheduler_error():
    """An internal error of the scheduler is a PodScheduled=False like others."""
    text = 'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded'
    for nominated in ("", "n0"):
        member = unscheduled("w0", TRAIN, text, nominated, reason="SchedulerError")
        assert class_of(member, node("n0")) == "unschedulable"


def test_nomination_on_a_bound_pod_is_nothing():
    """NodeName is asked first: an old API server leaves the nomination on bound pods."""
    member = bound("w0", TRAIN, "n0", status={"nominatedNodeName": "n0"})
    assert class_of(member, node("n0")) == "bound"


# === Permit: what settles a possible wait ============================================================================

SERVED = frozenset({GANG_SCHEDULER})


def possible(name: str, tie: Tie, nominated: str = "", **more: Any) -> Json:
    """Return a possible waiter of the gang scheduler."""
    return unscheduled(name, tie, more.pop("text", TIMEOUT), nominated, scheduler=GANG_SCHEDULER, **more)


def waiter(name: str, tie: Tie, where: str, **more: Any) -> Json:
    """Return a certain waiter of the gang scheduler."""
    return permit_waiter(name, tie, where, scheduler=GANG_SCHEDULER, **more)


def test_room_leaves_a_possible_waiter_in_doubt():
    """Its node has room: it waits again, or it is left over. In doubt, and counted as such."""
    seen = look(*nodes(2), pod_group("train", 2), possible("w0", TRAIN, "n0"), possible("w1", TRAIN, "n1"))
    gang = seen.gang("train")
    assert classes(gang) == {"waiting_possible": 2}
    assert gang.reserved == {}
    assert seen.unobservable("permit") == {"ambiguous": 1}


def test_no_room_for_a_possible_waiter():
    """Its node is full: it cannot be assumed there, so its nomination is a leftover and it was rejected."""
    seen = look(
        *nodes(2),
        ready("plain", LONE, "n0", gpus=4),
        pod_group("train", 2),
        possible("w0", TRAIN, "n0"),
        possible("w1", TRAIN, "n1"),
    )
    assert classes(seen.gang("train")) == {"rejected": 1, "waiting_possible": 1}


def test_no_room_beside_the_certain_waiters():
    """What certain waiters of any gang reserve on the node is taken."""
    seen = look(
        *nodes(1),
        pod_group("a", 2),
        pod_group("train", 2),
        waiter("a0", of_group("a"), "n0", gpus=6),
        possible("w0", TRAIN, "n0", gpus=4),
        possible("w1", TRAIN, "n0", gpus=2),
    )
    assert classes(seen.gang("train")) == {
        "rejected": 1,
        "waiting_possible": 1,
    }
    assert classes(seen.gang("a")) == {"waiting_permit": 1, "missing": 1}


def test_no_room_on_a_node_that_is_gone():
    """A nominated node that does not exist has no room."""
    seen = look(*nodes(1), pod_group("train", 2), possible("w0", TRAIN, "gone"), possible("w1", TRAIN, "n0"))
    assert classes(seen.gang("train")) == {"rejected": 1, "waiting_possible": 1}


def test_no_room_anywhere():
    """A possible waiter without a nomination that fits on no node does not wait: it would have to be assumed on one."""
    seen = look(*nodes(2, gpus=4), pod_group("train", 2), possible("w0", TRAIN, gpus=8), possible("w1", TRAIN, gpus=4))
    assert classes(seen.gang("train")) == {"rejected": 1, "waiting_possible": 1}


def test_no_room_for_one_of_two_resources():
    """A node has room for a waiter when it has room for every resource that it asks for."""
    mig = "nvidia.com/mig-1g.10gb"
    seen = look(
        node("n0", {GPU: 8, mig: 1}),
        pod_group("train", 2),
        possible("w0", TRAIN, "n0", gpus={GPU: 1, mig: 2}),
        possible("w1", TRAIN, gpus={GPU: 1, mig: 2}),
    )
    assert classes(seen.gang("train")) == {"rejected": 2}


def test_refused_preemption_without_room_is_unschedulable():
    """A leftover nomination beside preemptionPolicy=Never: without it the text is a filter failure like any other."""
    seen = look(
        *nodes(1),
        ready("plain", LONE, "n0"),
        pod_group("train", 2),
        *[possible(f"w{index}", TRAIN, "n0", text=f"{FILTER} {NEVER}") for index in (0, 1)],
    )
    assert classes(seen.gang("train")) == {"unschedulable": 2}


def test_room_is_not_asked_while_nodes_are_not_read():
    """Without nodes nothing is known of their room."""
    seen = look(
        pod_group("train", 2),
        *[possible(f"w{index}", TRAIN, "n0") for index in (0, 1)],
        unread={"nodes": "forbidden"},
    )
    assert classes(seen.gang("train")) == {"waiting_possible": 2}


def counted(waiting: int | None) -> SchedulerCount:
    """Return the count of the gang scheduler."""
    return SchedulerCount(waiting, SERVED)


@pytest.mark.parametrize(
    ("count", "expected", "state", "reserved"),
    [
        pytest.param(4, {"waiting_permit": 4}, "waiting", 32, id="exact: all wait"),
        pytest.param(0, {"rejected": 4}, "rejected", 0, id="zero: all are left over"),
        pytest.param(3, {"waiting_permit": 3, "rejected": 1}, "waiting", 24, id="one gang in doubt"),
        pytest.param(5, {"waiting_possible": 4}, "rejected", 0, id="more than there are: another moment"),
        pytest.param(None, {"waiting_possible": 4}, "rejected", 0, id="standby"),
    ],
)
def test_the_scheduler_counts(count: int | None, expected: dict, state: str, reserved: int):
    """The scheduler's own count of waits settles one gang's possible waiters; a standby or another moment does not."""
    seen = look(
        *nodes(4),
        pod_group("train", 4),
        *[possible(f"w{index}", TRAIN, f"n{index}") for index in range(4)],
        scheduler=counted(count),
    )
    gang = seen.gang("train")
    assert classes(gang) == expected
    assert gang.state == state
    assert gang.reserved == ({GPU: reserved} if reserved else {})
    assert sum(seen.picture.gpus.reserved.values()) == reserved
    assert seen.unobservable("permit") == ({"ambiguous": 1} if "waiting_possible" in expected else {})


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        pytest.param(2, {"waiting_permit": 2, "rejected": 2}, id="the certain ones explain it"),
        pytest.param(3, {"waiting_permit": 3, "rejected": 1}, id="one more"),
        pytest.param(4, {"waiting_permit": 4}, id="all"),
        pytest.param(1, {"waiting_permit": 2, "waiting_possible": 2}, id="fewer than certain: another moment"),
    ],
)
def test_the_scheduler_counts_beside_certain_waiters(count: int, expected: dict):
    """Certain waiters are in the count; only what they leave unexplained settles the others."""
    seen = look(
        *nodes(4),
        pod_group("train", 4),
        *[waiter(f"w{index}", TRAIN, f"n{index}") for index in (0, 1)],
        *[possible(f"w{index}", TRAIN, f"n{index}") for index in (2, 3)],
        scheduler=counted(count),
    )
    assert classes(seen.gang("train")) == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        pytest.param(4, "waiting_permit", id="all of both"),
        pytest.param(0, "rejected", id="none of both"),
        pytest.param(2, "waiting_possible", id="two of four: either gang, or one of each"),
    ],
)
def test_the_scheduler_counts_two_gangs(count: int, expected: str):
    """The count has no gang label: of two gangs in doubt it settles only all or none."""
    seen = look(
        *nodes(4),
        *[pod_group(name, 2) for name in ("a", "b")],
        *[possible(f"a{index}", of_group("a"), f"n{index}") for index in (0, 1)],
        *[possible(f"b{index}", of_group("b"), f"n{index + 2}") for index in (0, 1)],
        scheduler=counted(count),
    )
    assert classes(seen.gang("a")) == {expected: 2}
    assert classes(seen.gang("b")) == {expected: 2}


def test_the_scheduler_counts_those_with_a_nomination_first():
    """One of two waits: the one that has a nomination is the likelier, and tells since when."""
    seen = look(
        *nodes(2),
        pod_group("train", 2),
        possible("w0", TRAIN),
        possible("w1", TRAIN, "n1", nominated_at=35),
        scheduler=counted(1),
    )
    assert classes(seen.gang("train")) == {"waiting_permit": 1, "rejected": 1}
    assert seen.gang("train").permit_oldest == ago(35)


def test_the_scheduler_counts_unequal_members():
    """One of two waits and they ask for different GPUs: which one decides what is reserved, so both stay in doubt."""
    seen = look(
        *nodes(2),
        pod_group("train", 2),
        possible("w0", TRAIN, "n0", gpus=8),
        possible("w1", TRAIN, "n1", gpus=4),
        scheduler=counted(1),
    )
    assert classes(seen.gang("train")) == {"waiting_possible": 2}


def test_the_count_is_for_its_own_profiles():
    """Pods of a scheduler that the endpoint does not serve are not settled by its count."""
    seen = look(
        *nodes(2),
        pod_group("train", 2),
        *[unscheduled(f"w{index}", TRAIN, TIMEOUT, f"n{index}") for index in (0, 1)],
        scheduler=counted(0),
    )
    assert classes(seen.gang("train")) == {"waiting_possible": 2}


@pytest.mark.parametrize(
    ("count", "expected", "state"),
    [(9, {"waiting_permit": 9, "unschedulable": 1}, "waiting"), (0, {"new": 9, "unschedulable": 1}, "pending")],
)
def test_the_scheduler_counts_where_pods_show_nothing(count: int, expected: dict, state: str):
    """Before 1.35 no waiter shows a nomination; the count tells how many wait, and nothing is unobservable."""
    seen = look(
        *nodes(9),
        pod_group("train", 10),
        *[new(f"w{index}", TRAIN, scheduler=GANG_SCHEDULER) for index in range(9)],
        unscheduled("w9", TRAIN, NO_GPU, scheduler=GANG_SCHEDULER),
        scheduler=counted(count),
    )
    gang = seen.gang("train")
    assert classes(gang) == expected
    assert gang.state == state
    assert seen.unobservable("permit") == {}


def test_the_count_that_fits_no_gang_leaves_silent_waits_unobservable():
    """Two gangs of a scheduler that shows nothing, four new members, two of which wait: nobody knows whose.

    The count cannot be given to either gang, so that nobody waits is no fact of either.
    """
    seen = look(
        *nodes(4),
        *[pod_group(name, 2) for name in ("a", "b")],
        *[new(f"{name}{index}", of_group(name), scheduler=GANG_SCHEDULER) for name in ("a", "b") for index in (0, 1)],
        scheduler=counted(2),
    )
    assert all("waiting_permit" not in classes(seen.gang(name)) for name in ("a", "b"))
    assert sum(seen.unobservable("permit").values()) == 2


def test_the_count_of_another_moment_leaves_silent_waits_unobservable():
    """More waits than pods: count and pods are of different moments. Where pods show nothing, nothing is known."""
    seen = look(
        *nodes(2),
        pod_group("train", 2),
        *[new(f"w{index}", TRAIN, scheduler=GANG_SCHEDULER) for index in (0, 1)],
        scheduler=counted(5),
    )
    assert classes(seen.gang("train")) == {"new": 2}
    assert sum(seen.unobservable("permit").values()) == 1


def test_the_count_is_of_gangs_that_can_wait():
    """A Kueue gang of the same scheduler knows no Permit: it is in no doubt, and the two waits are the PodGroup's."""
    seen = look(
        *nodes(4),
        pod_group("train", 2),
        *[new(f"w{index}", TRAIN, scheduler=GANG_SCHEDULER) for index in (0, 1)],
        jobset_workload(podset(2)),
        *[new(f"k{index}", IN_WL, scheduler=GANG_SCHEDULER) for index in (0, 1)],
        scheduler=counted(2),
    )
    assert classes(seen.gang("train")) == {"waiting_permit": 2}
    assert classes(seen.gang("js")) == {"new": 2}
    assert seen.gang("js").state == "pending"


# --- whether waits can be seen at all --------------------------------------------------------------------------------


def scheduler_pod(image: str) -> Json:
    """Return a pod that runs a kube-scheduler."""
    spec = {"containers": [{"name": "kube-scheduler", "image": image}]}
    return ready("kube-scheduler", LONE, "cp", namespace="kube-system", spec=spec)


@pytest.mark.parametrize(
    ("image", "scheduler", "shows"),
    [
        pytest.param("registry.k8s.io/kube-scheduler:v1.36.2", DEFAULT_SCHEDULER, True, id="1.36"),
        pytest.param("registry.k8s.io/kube-scheduler:v1.35.0", DEFAULT_SCHEDULER, True, id="1.35"),
        pytest.param("registry.k8s.io/kube-scheduler:v1.34.9", DEFAULT_SCHEDULER, False, id="1.34"),
        pytest.param(
            "registry.k8s.io/scheduler-plugins/kube-scheduler:v0.35.4", GANG_SCHEDULER, True, id="plugins 0.35"
        ),
        pytest.param(
            "registry.k8s.io/scheduler-plugins/kube-scheduler:v0.34.7", GANG_SCHEDULER, False, id="plugins 0.34"
        ),
        pytest.param("registry.k8s.io/kube-scheduler:v1.36.2", GANG_SCHEDULER, False, id="of another scheduler"),
        pytest.param("registry.example/own-scheduler:v9", DEFAULT_SCHEDULER, False, id="unknown image"),
    ],
)
def test_permit_waits_can_be_seen_by_the_image_of_the_scheduler(image: str, scheduler: str, shows: bool):
    """A scheduler writes the node of a waiting pod from Kubernetes 1.35 on; its image's tag tells the version."""
    seen = look(
        node("n0"),
        scheduler_pod(image),
        pod_group("train", 2),
        *[new(f"w{index}", TRAIN, scheduler=scheduler) for index in (0, 1)],
    )
    assert seen.unobservable("permit") == ({} if shows else {"no_trace": 1})


@pytest.mark.parametrize(("minor", "shows"), [(35, True), (34, False)])
def test_permit_waits_can_be_seen_by_option(minor: int, shows: bool):
    """`scheduler_versions` tells what no image does, and comes before it."""
    seen = look(
        node("n0"),
        scheduler_pod("registry.k8s.io/kube-scheduler:v1.30.0"),
        pod_group("train", 2),
        *[new(f"w{index}", TRAIN) for index in (0, 1)],
        scheduler_versions=((DEFAULT_SCHEDULER, minor),),
    )
    assert seen.unobservable("permit") == ({} if shows else {"no_trace": 1})


def test_permit_waits_can_be_seen_because_one_is():
    """An unbound pod of the scheduler with a nomination in the same snapshot shows that it writes them."""
    seen = look(
        *nodes(2),
        pod_group("train", 2),
        pod_group("other", 2),
        permit_waiter("o0", of_group("other"), "n0"),
        *[new(f"w{index}", TRAIN) for index in (0, 1)],
    )
    assert seen.unobservable("permit") == {}


def test_permit_waits_can_be_seen_because_one_is_whatever_the_version():
    """Any of the three signs will do: a nomination in the snapshot also where the version is said to be older.

    1.34 writes nominations with its alpha gate.
    """
    seen = look(
        *nodes(2),
        pod_group("train", 2),
        pod_group("other", 2),
        permit_waiter("o0", of_group("other"), "n0"),
        *[new(f"w{index}", TRAIN) for index in (0, 1)],
        scheduler_versions=((DEFAULT_SCHEDULER, 34),),
    )
    assert seen.unobservable("permit") == {}


def test_a_nomination_on_a_bound_pod_does_not_show_that_waits_can_be_seen():
    """Only an unbound pod's nomination is a sign."""
    seen = look(
        node("n0"),
        pod_group("train", 2),
        bound("plain", LONE, "n0", status={"nominatedNodeName": "n0"}),
        *[new(f"w{index}", TRAIN) for index in (0, 1)],
    )
    assert seen.unobservable("permit") == {"no_trace": 1}


def test_permit_is_no_question_of_gangs_that_are_placed_or_gated():
    """Members that run or are gated cannot wait in Permit: nothing is unobservable about them."""
    seen = look(
        *nodes(2),
        pod_group("train", 2),
        *up(2, TRAIN),
        pod_group("later", 2),
        *[gated(f"l{index}", of_group("later")) for index in (0, 1)],
    )
    assert seen.unobservable("permit") == {}


@pytest.mark.parametrize("text", ["", NO_GPU, SIBLINGS])
@pytest.mark.parametrize("engine", ["coscheduling", "kubernetes"])
def test_permit_is_unobservable_for_any_member_that_may_wait_unseen(engine: str, text: str):
    """New, turned away or unschedulable: before 1.35 each may wait in Permit now, in a gang of either engine."""
    native = engine == "kubernetes"
    tie = of_native("train") if native else TRAIN
    members = [unscheduled(f"w{index}", tie, text) if text else new(f"w{index}", tie) for index in (0, 1)]
    seen = look(node("n0"), native_group("train", 2) if native else pod_group("train", 2), *members)
    assert seen.unobservable("permit") == {"no_trace": 1}


def test_permit_is_no_question_of_kueue_gangs():
    """Kueue gates before the scheduler and knows no Permit."""
    seen = look(jobset_workload(podset(2)), *[new(f"w{index}", IN_WL) for index in (0, 1)])
    assert seen.unobservable("permit") == {}


def test_start_of_the_longest_wait():
    """The managedFields entry that owns the nomination tells since when a member waits, also after a restart."""
    seen = look(
        *nodes(3),
        pod_group("train", 3),
        *[permit_waiter(f"w{index}", TRAIN, f"n{index}", since=since) for index, since in enumerate((20, 45, 30))],
    )
    assert seen.gang("train").permit_oldest == ago(45)


def test_start_of_a_wait_is_not_taken_from_other_writers():
    """An entry that owns other fields, or the field outside of status, is not the nomination's."""
    member = permit_waiter("w0", TRAIN, "n0", since=20)
    others = [
        {"subresource": "status", "time": stamp(5), "fieldsV1": {"f:status": {"f:phase": {}}}},
        {"time": stamp(6), "fieldsV1": {"f:status": {"f:nominatedNodeName": {}}}},
    ]
    member["metadata"]["managedFields"] += others
    assert look(node("n0"), pod_group("train", 2), member).gang("train").permit_oldest == ago(20)


# === state of a gang =================================================================================================


@pytest.mark.parametrize(
    "ends",
    [(succeeded, succeeded, succeeded), (failed, failed, failed), (succeeded, failed, failed)],
    ids=["succeeded", "failed", "both"],
)
def test_finished(ends: tuple):
    """All members are terminal and make up the required number: finished, well or not, and out of the gauges."""
    seen = look(
        *nodes(3), pod_group("train", 3), *[end(f"w{index}", TRAIN, f"n{index}") for index, end in enumerate(ends)]
    )
    assert seen.names == set()
    assert (seen.busy, seen.idle, seen.other) == (0, 0, 0)


def test_all_failed_below_the_required_number():
    """Two of four exist and both have failed: not finished. Nothing is placed, four are missing: pending."""
    seen = look(*nodes(2), pod_group("train", 4), *[failed(f"w{index}", TRAIN, f"n{index}") for index in (0, 1)])
    gang = seen.gang("train")
    assert gang.state == "pending"
    assert classes(gang) == {"failed": 2, "missing": 4}


def test_finished_kueue_gang_whose_workload_is_not_finished_yet():
    """All members have ended, the Workload does not say so yet: finished by its pods."""
    seen = look(
        *nodes(2),
        jobset_workload(podset(2)),
        *[succeeded(f"w{index}", IN_WL, f"n{index}") for index in (0, 1)],
    )
    assert seen.names == set()


def test_orphan_comes_first():
    """A gang whose PodGroup does not exist is an orphan, also when all of it terminates."""
    seen = look(node("n0"), terminating(ready("w0", TRAIN, "n0"), began=10, grace=30))
    assert seen.gang("train").state == "orphan"


def test_stopping():
    """All members that are not terminal terminate."""
    seen = look(
        *nodes(3),
        pod_group("train", 3),
        *[terminating(member) for member in up(2, TRAIN)],
        succeeded("w2", TRAIN, "n2"),
    )
    assert seen.gang("train").state == "stopping"


def test_one_member_that_does_not_terminate():
    """One live member beside terminating ones: not stopping; it was complete with them, so it is degraded."""
    seen = look(
        *nodes(3), pod_group("train", 3), *[terminating(member) for member in up(2, TRAIN)], *up(1, TRAIN, first=2)
    )
    assert seen.gang("train").state == "degraded"


def test_finishing():
    """A member has succeeded and with the rest the gang is complete: part of it is over, the rest works."""
    seen = look(
        *nodes(4),
        pod_group("train", 4),
        *[succeeded(f"s{index}", TRAIN, f"n{index}") for index in (0, 1)],
        *up(2, TRAIN, first=2),
    )
    assert seen.gang("train").state == "finishing"
    assert (seen.busy, seen.idle) == (16, 0)


def test_successes_of_an_older_run_do_not_count():
    """A job that is run again under the same name: the old run's successes do not complete the new one."""
    old, again = of_job("etl", uid="uid-1"), of_job("etl", uid="uid-2")
    old, again = (Tie(tie.labels, tie.annotations, tie.spec, ("Job", name)) for tie, name in ((old, "a"), (again, "b")))
    seen = look(
        *nodes(2),
        pod_group("train", 2),
        succeeded("old", TRAIN + old, "n0", created=9000, since=8990),
        ready("again", TRAIN + again, "n1"),
    )
    gang = seen.gang("train")
    assert gang.state == "partial"
    assert classes(gang) == {"succeeded": 1, "ready": 1, "missing": 1}


def test_successes_of_two_runs():
    """Beside a success of an older run one of the present run counts: finishing."""
    old, again = owned("Job", "first"), owned("Job", "second")
    seen = look(
        *nodes(3),
        pod_group("train", 2),
        succeeded("old", TRAIN + old, "n0", created=9000, since=8990),
        succeeded("w0", TRAIN + again, "n1"),
        ready("w1", TRAIN + again, "n2"),
    )
    assert seen.gang("train").state == "finishing"


def test_done_members_count_among_the_placed():
    """What has succeeded is done: with the rest bound the gang is starting, with one of two there it is partial."""
    group, done = pod_group("train", 3), succeeded("w0", TRAIN, "n0")
    two = [bound(f"w{index}", TRAIN, f"n{index}") for index in (1, 2)]
    assert look(*nodes(3), group, done, *two).gang("train").state == "starting"
    partial = look(*nodes(3), group, done, two[0]).gang("train")
    assert (partial.state, partial.missing) == ("partial", 1)


def test_done_members_count_among_those_that_complete_it():
    """One has succeeded, one runs, one is lost: with these three it was complete. Degraded."""
    seen = look(
        *nodes(2),
        pod_group("train", 3),
        succeeded("w0", TRAIN, "n0"),
        ready("w1", TRAIN, "n1"),
        ready("w2", TRAIN, "gone"),
    )
    assert seen.gang("train").state == "degraded"


def test_running_members_need_not_be_ready():
    """A member whose helper container has ended is not Ready and runs: the gang runs."""
    seen = look(*nodes(2), pod_group("train", 2), *[running(f"w{index}", TRAIN, f"n{index}") for index in (0, 1)])
    assert seen.gang("train").state == "running"


def test_starting():
    """All required are placed, one pulls its image: starting."""
    seen = look(*nodes(3), pod_group("train", 3), *up(2, TRAIN), bound("w2", TRAIN, "n2"))
    assert seen.gang("train").state == "starting"
    assert seen.idle_by_reason() == {"starting": 24}


def test_starting_with_a_member_that_crashes():
    """A crashing member is placed, one pulls its image, and nothing shows that it was complete before: starting."""
    seen = look(*nodes(2), pod_group("train", 2), crashing("w0", TRAIN, "n0"), bound("w1", TRAIN, "n1"))
    assert seen.gang("train").state == "starting"


def test_starting_with_a_member_on_a_lost_node():
    """A member that never ran is placed on a node that is gone: all are placed. Starting."""
    seen = look(*nodes(1), pod_group("train", 2), ready("w0", TRAIN, "n0"), bound("w1", TRAIN, "gone"))
    assert seen.gang("train").state == "starting"


def test_partial():
    """Some but not all required members are placed: they hold GPUs and the gang cannot work."""
    seen = look(*nodes(2), pod_group("train", 3), *up(1, TRAIN), bound("w1", TRAIN, "n1"), new("w2", TRAIN))
    assert seen.gang("train").state == "partial"
    assert seen.idle_by_reason() == {"partial": 16}


def test_waiting():
    """Nothing is placed and one member is a certain waiter."""
    seen = look(node("n0"), pod_group("train", 2), permit_waiter("w0", TRAIN, "n0"), unscheduled("w1", TRAIN, TRIGGER))
    assert seen.gang("train").state == "waiting"


@pytest.mark.parametrize("text", [SIBLINGS, TRIGGER, OPTIMISTIC, UNRESERVE])
def test_rejected(text: str):
    """Nothing placed, no certain waiter, and a member was turned away by the gang scheduler."""
    seen = look(node("n0"), pod_group("train", 2), unscheduled("w0", TRAIN, text), new("w1", TRAIN))
    assert seen.gang("train").state == "rejected"


def test_unschedulable_members_alone_are_pending():
    """Members that the scheduler has no room for, and no word of the gang: pending."""
    seen = look(node("n0"), pod_group("train", 2), *[unscheduled(f"w{index}", TRAIN, NO_GPU) for index in (0, 1)])
    assert seen.gang("train").state == "pending"


@pytest.mark.parametrize(
    "conditions",
    [
        pytest.param({}, id="nothing reserved"),
        pytest.param({"reserved": 100}, id="quota reserved, not admitted"),
        pytest.param({"admitted": 500, "evicted": ("True", 5, "Preempted")}, id="evicted, still admitted"),
        pytest.param({"evicted": ("True", 500, "Preempted")}, id="evicted before, waits again"),
    ],
)
def test_queued_by_its_workload(conditions: dict):
    """A Workload that is not (Admitted and not Evicted): queued, whatever its pods."""
    seen = look(workload("wl", ("JobSet", "js"), podset(2), **conditions))
    assert seen.gang("js").state == "queued"


def test_queued_by_its_gates():
    """Without a Workload: it has members and all are gated."""
    members = [gated(f"w{index}", TRAIN) for index in (0, 1)]
    assert look(pod_group("train", 2), *members).gang("train").state == "queued"
    assert look(pod_group("train", 3), *members, new("w2", TRAIN)).gang("train").state == "pending"


def test_pending():
    """Admitted, and nothing placed, waiting or rejected: pending, also without any pod."""
    assert look(jobset_workload(podset(2))).gang("js").state == "pending"
    admitted = look(jobset_workload(podset(2)), new("w0", IN_WL), gated("w1", IN_WL))
    assert admitted.gang("js").state == "pending"
    assert look(pod_group("train", 2, min_gpus=16)).gang("train").state == "pending"


# --- degraded, and what only looks like it ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pods_ready", "expected"),
    [
        pytest.param(("True", 300, "Started"), "degraded", id="was ready"),
        pytest.param(("True", 300, "Recovered"), "degraded", id="had recovered"),
        pytest.param(("False", 200, "WaitForRecovery"), "degraded", id="waits for recovery"),
        pytest.param(("False", 400, "WaitForStart"), "partial", id="waits for its start"),
        pytest.param(None, "partial", id="unknown"),
    ],
)
def test_degraded_by_pods_ready(pods_ready: tuple | None, expected: str):
    """First proof: the Workload's PodsReady was True since the admission; WaitForStart says no."""
    seen = look(*nodes(2), jobset_workload(podset(3), pods_ready=pods_ready), *up(2, IN_WL))
    assert seen.gang("js").state == expected
    assert seen.idle_by_reason() == {expected: 16}


def test_wait_for_start_ends_the_search():
    """WaitForStart is final: a member that looks like a replacement proves nothing against it."""
    wl = jobset_workload(podset(3), pods_ready=("False", 490, "WaitForStart"))
    seen = look(*nodes(2), wl, *up(2, IN_WL, created=480, since=470), new("w2", IN_WL, created=100))
    assert seen.gang("js").state == "partial"


@pytest.mark.parametrize("pods_ready", [("True", 3000, "Started"), ("False", 2000, "WaitForRecovery")])
def test_pods_ready_that_is_older_than_the_admission(pods_ready: tuple):
    """A PodsReady from before the present admission speaks of the last one: no proof."""
    wl = jobset_workload(podset(3), created=9000, pods_ready=pods_ready)
    seen = look(*nodes(2), wl, *up(2, IN_WL))
    assert seen.gang("js").state == "partial"


def test_wait_for_recovery_of_a_healthy_gang():
    """PodsReady False alone proves nothing: all run, one's helper container has ended. Running, busy."""
    wl = jobset_workload(podset(2), pods_ready=("False", 100, "WaitForRecovery"))
    seen = look(*nodes(2), wl, ready("w0", IN_WL, "n0"), running("w1", IN_WL, "n1"))
    assert seen.gang("js").state == "running"
    assert (seen.busy, seen.idle) == (16, 0)


@pytest.mark.parametrize(
    ("once", "said", "expected"),
    [
        ("PodGroupScheduled", "True", "degraded"),
        ("PodGroupInitiallyScheduled", "True", "degraded"),
        ("PodGroupScheduled", "False", "partial"),
        ("", "", "partial"),
    ],
)
def test_degraded_by_the_native_condition(once: str, said: str, expected: str):
    """Second proof: a native PodGroup says that it was scheduled once."""
    seen = look(*nodes(2), native_group("train", 3, once=once, said=said), *up(2, of_native("train")))
    assert seen.gang("train").state == expected


@pytest.mark.parametrize("loss", ["lost", "crashing", "terminating"])
def test_degraded_by_its_disturbed_members(loss: str):
    """Third proof: with its lost, crashing or terminating members, which run, it would be complete."""
    third = {
        "lost": ready("w2", TRAIN, "gone"),
        "crashing": crashing("w2", TRAIN, "n2"),
        "terminating": terminating(ready("w2", TRAIN, "n2")),
    }[loss]
    seen = look(*nodes(3), pod_group("train", 3), *up(2, TRAIN), third)
    gang = seen.gang("train")
    assert gang.state == "degraded"
    assert classes(gang) == {"ready": 2, loss: 1}


def test_disturbed_member_that_never_ran():
    """A member that terminates in phase Pending never worked: with it the gang was not complete. Partial."""
    seen = look(*nodes(3), pod_group("train", 3), *up(2, TRAIN), terminating(bound("w2", TRAIN, "n2")))
    assert seen.gang("train").state == "partial"


def test_disturbed_members_that_are_not_enough():
    """One lost of a gang that lacks two was not complete with it: partial."""
    seen = look(*nodes(2), pod_group("train", 4), *up(2, TRAIN), ready("w2", TRAIN, "gone"))
    assert seen.gang("train").state == "partial"


@pytest.mark.parametrize(
    ("created", "scheduler", "expected"),
    [
        pytest.param(290, DEFAULT_SCHEDULER, "degraded", id="ten seconds after the last bind"),
        pytest.param(296, DEFAULT_SCHEDULER, "partial", id="a late member within five seconds"),
        pytest.param(295, DEFAULT_SCHEDULER, "partial", id="just five seconds"),
        pytest.param(294, DEFAULT_SCHEDULER, "degraded", id="six seconds"),
        pytest.param(600, DEFAULT_SCHEDULER, "partial", id="older than the bind"),
        pytest.param(290, GANG_SCHEDULER, "partial", id="of another scheduler"),
    ],
)
def test_degraded_by_replacements(created: int, scheduler: str, expected: str):
    """Fourth proof: what is not up was made more than 5 s after the last bind of what is, for the same scheduler."""
    seen = look(
        *nodes(2),
        pod_group("train", 3),
        *up(2, TRAIN, since=300),
        unscheduled("w2", TRAIN, NO_GPU, created=created, scheduler=scheduler),
    )
    assert seen.gang("train").state == expected


def test_replacements_are_measured_by_the_last_bind():
    """A member that is newer than one bind and older than another is no replacement."""
    seen = look(
        *nodes(2),
        pod_group("train", 3),
        ready("w0", TRAIN, "n0", since=500),
        ready("w1", TRAIN, "n1", since=300),
        new("w2", TRAIN, created=400),
    )
    assert seen.gang("train").state == "partial"


def test_every_member_that_is_not_up_must_be_a_replacement():
    """One old member that waits beside a new one: the gang never was complete. Partial."""
    seen = look(
        *nodes(2),
        pod_group("train", 4),
        *up(2, TRAIN),
        new("w2", TRAIN, created=600),
        new("w3", TRAIN, created=100),
    )
    assert seen.gang("train").state == "partial"


def test_a_replacement_that_pulls_its_image():
    """A replacement that is bound and not up is one too; all are placed, but the gang ran before: degraded."""
    seen = look(*nodes(3), pod_group("train", 3), *up(2, TRAIN), bound("w2", TRAIN, "n2", created=200, since=100))
    assert seen.gang("train").state == "degraded"


def test_degraded_because_the_check_saw_it_run():
    """Fifth proof: the check saw these same pods run. Without that memory three of four are partial."""
    group = pod_group("train", 4)
    before = look(*nodes(4), group, *up(4, TRAIN))
    assert before.gang("train").state == "running"
    assert look(*nodes(4), group, *up(3, TRAIN), memory=before.memory).gang("train").state == "degraded"
    assert look(*nodes(4), group, *up(3, TRAIN)).gang("train").state == "partial"


def test_the_check_saw_other_pods_run():
    """What ran were other pods of that name: no proof."""
    group = pod_group("train", 4)
    before = look(*nodes(4), group, *up(4, TRAIN))
    again = look(*nodes(4), group, *up(3, TRAIN, created=200, since=100), memory=before.memory)
    assert again.gang("train").state == "partial"


def test_memory_lasts_while_it_is_degraded():
    """The memory is handed on: also the second look at the same loss says degraded."""
    group = pod_group("train", 4)
    memory = look(*nodes(4), group, *up(4, TRAIN)).memory
    for later in (15, 30):
        seen = look(*nodes(4), group, *up(3, TRAIN), memory=memory, now=NOW + later)
        assert seen.gang("train").state == "degraded"
        memory = seen.memory


def test_degraded_needs_a_placed_member():
    """A gang that was ready once and holds nothing now is not degraded."""
    wl = jobset_workload(podset(2), pods_ready=("True", 300, "Started"))
    assert look(wl, *[new(f"w{index}", IN_WL) for index in (0, 1)]).gang("js").state == "pending"


@pytest.mark.parametrize("phase", ["Running", "Failed", "Finished"])
def test_a_coscheduling_phase_is_never_proof(phase: str):
    """Coscheduling says Running for partial gangs and Failed for ever."""
    seen = look(*nodes(2), pod_group("train", 3, phase=phase, running=3), *up(2, TRAIN))
    assert seen.gang("train").state == "partial"


def test_all_members_are_lost():
    """Every node of a gang is gone: nothing is up, and with the lost ones it was complete. Degraded, all GPUs idle."""
    seen = look(node("n0"), pod_group("train", 2), ready("w0", TRAIN, "gone"), ready("w1", TRAIN, "gone-too"))
    assert seen.gang("train").state == "degraded"
    assert seen.idle_by_reason() == {"degraded": 16}


def test_a_node_that_is_not_ready_within_the_grace():
    """A node that was away for a moment takes nothing from its gang: running, busy."""
    away = node("n1", ready_status="Unknown", since=30)
    seen = look(node("n0"), away, pod_group("train", 2), *up(2, TRAIN))
    assert seen.gang("train").state == "running"
    assert seen.busy == 16


# === GPUs: busy, idle, other =========================================================================================


@pytest.mark.parametrize("make", [bound, running, ready])
def test_allocated_from_the_node_on(make: Any):
    """A GPU is allocated from nodeName until the pod is terminal or gone: pulling, running and ready hold alike."""
    seen = look(node("n0"), make("plain", LONE, "n0", gpus=3))
    assert (seen.other, seen.free()) == (3, 5)


@pytest.mark.parametrize("make", [succeeded, failed])
def test_terminal_pods_hold_nothing(make: Any):
    """Succeeded and failed pods hold no GPU, also while they keep their node."""
    seen = look(node("n0"), make("plain", LONE, "n0"))
    assert (seen.other, seen.free()) == (0, 8)


def test_stopping_gang_that_is_complete_is_busy():
    """Within its grace a gang that stops whole may be saving a checkpoint."""
    seen = look(*nodes(2), pod_group("train", 2), *[terminating(member, began=10, grace=60) for member in up(2, TRAIN)])
    assert seen.gang("train").state == "stopping"
    assert (seen.busy, seen.idle) == (16, 0)


def test_stopping_gang_that_was_not_complete_is_partial():
    """Two of three that stop could not work before either: idle, partial."""
    seen = look(*nodes(2), pod_group("train", 3), *[terminating(member, began=10, grace=60) for member in up(2, TRAIN)])
    assert seen.gang("train").state == "stopping"
    assert seen.idle_by_reason() == {"partial": 16}


def test_terminating_beyond_its_grace_is_idle():
    """A pod that should be gone holds its GPUs in vain, in whatever gang; the one within its grace is still busy."""
    first, second = up(2, TRAIN)
    seen = look(
        *nodes(2),
        pod_group("train", 2),
        terminating(first, began=100, grace=30),
        terminating(second, began=10, grace=30),
    )
    assert seen.idle_by_reason() == {"terminating": 8}
    assert seen.busy == 8


@pytest.mark.parametrize(("began", "reason"), [(29, {}), (30, {"terminating": 8}), (31, {"terminating": 8})])
def test_grace_of_a_pod_of_no_gang(began: int, reason: dict):
    """The grace is over at the deletion's time stamp, for pods of no gang as well."""
    seen = look(node("n0"), terminating(ready("plain", LONE, "n0"), began=began, grace=30))
    assert seen.idle_by_reason() == reason


@pytest.mark.parametrize("tie", [IN_WL, TRAIN, of_plain_group("grp")], ids=["workload", "podgroup", "plain-pod group"])
def test_terminating_pod_that_names_a_gang_that_is_gone(tie: Tie):
    """Nobody waits for a checkpoint of a gang that does not exist any more: idle at once."""
    seen = look(node("n0"), terminating(ready("w0", tie, "n0"), began=5, grace=300))
    assert seen.idle_by_reason() == {"terminating": 8}


def test_live_pod_that_names_a_gang_that_is_gone():
    """The same pod while it does not terminate may work: other."""
    for tie in (IN_WL, TRAIN, of_plain_group("grp")):
        seen = look(node("n0"), ready("w0", tie, "n0"))
        assert (seen.idle, seen.other) == (0, 8)


def test_terminating_pod_of_a_finished_workload():
    """A finished Workload still exists: its pod within the grace is no waste yet."""
    seen = look(
        node("n0"), jobset_workload(podset(2), finished=20), terminating(ready("w0", IN_WL, "n0"), began=5, grace=30)
    )
    assert (seen.idle, seen.other) == (0, 8)


def test_lost_node_makes_idle_of_any_pod():
    """GPUs of a lost node are idle, also of a pod of no gang, and of the surplus of a gang that runs."""
    seen = look(
        *nodes(2),
        node("n2", ready_status="Unknown", since=300),
        pod_group("train", 2),
        *up(2, TRAIN),
        ready("w2", TRAIN, "n2", gpus=4),
        ready("plain", LONE, "n2", gpus=3),
    )
    assert seen.gang("train").state == "running"
    assert seen.idle_by_reason() == {"lost": 7}
    assert seen.busy == 16


def test_lost_member_of_a_degraded_gang():
    """First match wins: all GPUs of a degraded gang are idle as degraded, those on the lost node too."""
    seen = look(*nodes(2), pod_group("train", 3), *up(2, TRAIN), ready("w2", TRAIN, "gone"))
    assert seen.idle_by_reason() == {"degraded": 24}


def test_gpus_requested_are_those_of_the_required_members():
    """Requested is of the required members: the templates tell, else the members, the commonest for absent ones."""
    by_template = look(jobset_workload(podset(1, "a", gpus=1), podset(3, "b", gpus=4)))
    assert by_template.gang("js").requested == {GPU: 13}

    by_members = look(pod_group("train", 4), *[new(f"w{index}", TRAIN, gpus=2) for index in range(3)])
    assert by_members.gang("train").requested == {GPU: 8}

    without_launcher = look(workload("wl", ("MPIJob", "mpi"), podset(1, "launcher", gpus=0), podset(2, "worker")))
    assert without_launcher.gang("mpi").requested == {GPU: 16}

    unequal = [new(f"w{index}", TRAIN, gpus=gpus) for index, gpus in enumerate((8, 2, 2))]
    assert look(pod_group("train", 4), *unequal).gang("train").requested == {GPU: 14}

    surplus = look(pod_group("train", 2), *[new(f"w{index}", TRAIN, gpus=2) for index in range(3)])
    assert surplus.gang("train").requested == {GPU: 4}


# === clocks ==========================================================================================================


def test_clock_of_a_gang_that_was_never_placed():
    """Unplaced since: the latest of the PodGroup's creation and the creation of the youngest required member."""
    members = [new(f"w{index}", TRAIN, created=created) for index, created in enumerate((900, 500, 700))]
    assert look(pod_group("train", 3, created=1000), *members).gang("train").since == ago(500)
    assert look(pod_group("train", 3, created=300), *members).gang("train").since == ago(300)
    assert look(pod_group("train", 3, created=1000, min_gpus=8)).gang("train").since == ago(1000)


def test_clock_is_not_moved_by_members_beyond_the_required_number():
    """A surplus member that is made later does not restart the clock."""
    members = [new(f"w{index}", TRAIN, created=created) for index, created in enumerate((900, 800, 50))]
    assert look(pod_group("train", 2, created=1000), *members).gang("train").since == ago(800)


@pytest.mark.parametrize(
    ("conditions", "began"),
    [
        pytest.param({}, 900, id="created"),
        pytest.param({"evicted": ("True", 500, "Preempted")}, 500, id="evicted"),
        pytest.param(
            {"evicted": ("True", 500, "PodsReadyTimeout"), "requeued": ("False", 500, "PodsReadyTimeout")},
            500,
            id="evicted, backs off",
        ),
        pytest.param(
            {"evicted": ("True", 500, "PodsReadyTimeout"), "requeued": ("True", 400, "BackoffFinished")},
            400,
            id="requeued",
        ),
        pytest.param({"admitted": 300}, 300, id="admitted"),
        pytest.param({"admitted": 300, "evicted": ("False", 310, "QuotaReserved")}, 300, id="admitted again"),
        pytest.param({"reserved": 100}, 900, id="quota reserved is no admission"),
    ],
)
def test_clock_of_a_kueue_gang_that_is_not_placed(conditions: dict, began: int):
    """Unplaced since: the latest of the Workload's creation, admission, requeue or eviction."""
    seen = look(workload("wl", ("JobSet", "js"), podset(2), created=900, **conditions))
    assert seen.gang("js").since == ago(began)


def test_clock_takes_no_eviction_from_a_condition_that_turned_false():
    """With quota reserved anew Evicted turns False: that moment is no eviction, no requeue and no admission.

    The Workload waits for an admission check since its requeue 400 s ago.
    """
    wl = workload(
        "wl",
        ("JobSet", "js"),
        podset(2),
        created=900,
        reserved=100,
        evicted=("False", 100, "QuotaReserved"),
        requeued=("True", 400, "BackoffFinished"),
    )
    gang = look(wl).gang("js")
    assert gang.state == "queued"
    assert gang.since == ago(400)


def test_clock_of_unplaced_states_does_not_restart():
    """Pending, waiting and rejected are one situation: moving among them leaves the clock alone."""
    group = pod_group("train", 2, created=1000)
    situations = {
        "pending": [new("w0", TRAIN, created=900), new("w1", TRAIN, created=800)],
        "waiting": [permit_waiter("w0", TRAIN, "n0", since=10, created=900), new("w1", TRAIN, created=800)],
        "rejected": [
            unscheduled("w0", TRAIN, SIBLINGS, created=900, since=30),
            unscheduled("w1", TRAIN, TRIGGER, created=800, since=20),
        ],
        "queued": [gated("w0", TRAIN, created=900), gated("w1", TRAIN, created=800)],
    }
    for state, members in situations.items():
        gang = look(*nodes(1), group, *members).gang("train")
        assert (gang.state, gang.since) == (state, ago(800))


def test_clock_of_partial_and_starting_does_not_restart():
    """Incomplete since: the bind of the first placed member, for partial and starting alike."""
    group = pod_group("train", 3, created=1000)
    first, second = ready("w0", TRAIN, "n0", since=400), bound("w1", TRAIN, "n1", since=200)
    partial = look(*nodes(3), group, first, second, new("w2", TRAIN)).gang("train")
    starting = look(*nodes(3), group, first, second, bound("w2", TRAIN, "n2", since=50)).gang("train")
    assert (partial.state, partial.since) == ("partial", ago(400))
    assert (starting.state, starting.since) == ("starting", ago(400))


def test_clock_of_a_bound_pod_without_a_condition():
    """Where no condition tells the bind, the kubelet's start does."""
    member = bound("w0", TRAIN, "n0", since=400)
    del member["status"]["conditions"]
    assert look(node("n0"), pod_group("train", 2), member).gang("train").since == ago(400)


def test_clock_of_degraded_by_pods_ready():
    """Degraded since: the time of PodsReady False/WaitForRecovery, before anything else."""
    wl = jobset_workload(podset(3), created=9000, admitted=5000, pods_ready=("False", 250, "WaitForRecovery"))
    seen = look(*nodes(2), wl, *up(2, IN_WL, created=5000, since=4900), new("w2", IN_WL, created=240))
    assert seen.gang("js").since == ago(250)


@pytest.mark.parametrize(
    "pods_ready",
    [
        pytest.param(("True", 3000, "Started"), id="it never fell back"),
        pytest.param(("False", 7000, "WaitForRecovery"), id="it is of the admission before"),
    ],
)
def test_clock_of_degraded_where_pods_ready_does_not_tell(pods_ready: tuple):
    """Only a WaitForRecovery of this admission tells since when; else the oldest replacement does."""
    wl = jobset_workload(podset(3), created=9000, admitted=5000, pods_ready=pods_ready)
    seen = look(*nodes(2), wl, *up(2, IN_WL, created=5000, since=4900), new("w2", IN_WL, created=240))
    gang = seen.gang("js")
    assert (gang.state, gang.since) == ("degraded", ago(240))


def test_clock_of_degraded_by_replacements():
    """Degraded since: the creation of the oldest replacement."""
    seen = look(
        *nodes(2),
        pod_group("train", 4, created=9000),
        *up(2, TRAIN, created=9000, since=8900),
        new("w2", TRAIN, created=200),
        new("w3", TRAIN, created=240),
    )
    assert seen.gang("train").since == ago(240)


def test_clock_of_degraded_by_a_lost_node():
    """Degraded since: the moment when the node stopped being Ready."""
    seen = look(
        *nodes(2),
        node("n2", ready_status="Unknown", since=180),
        pod_group("train", 3, created=9000),
        *up(3, TRAIN, created=9000, since=8900),
    )
    gang = seen.gang("train")
    assert (gang.state, gang.since) == ("degraded", ago(180))


def test_clock_of_running():
    """Complete since: when the member that completed the gang became Ready."""
    members = [ready(f"w{index}", TRAIN, f"n{index}", ready_since=since) for index, since in enumerate((290, 120, 200))]
    assert look(*nodes(3), pod_group("train", 3), *members).gang("train").since == ago(120)
    assert look(*nodes(3), pod_group("train", 2), *members).gang("train").since == ago(200)


def test_clock_of_finishing():
    """Complete since goes on while a part of the gang is over."""
    seen = look(
        *nodes(3),
        pod_group("train", 3),
        succeeded("w0", TRAIN, "n0"),
        ready("w1", TRAIN, "n1", ready_since=290),
        ready("w2", TRAIN, "n2", ready_since=280),
    )
    gang = seen.gang("train")
    assert (gang.state, gang.since) == ("finishing", ago(280))


def test_clock_of_finishing_with_a_surplus():
    """Of three required one is done: the second of those that run completed it, a third did not."""
    seen = look(
        *nodes(4),
        pod_group("train", 3),
        succeeded("w0", TRAIN, "n0"),
        *[ready(f"w{index}", TRAIN, f"n{index}", ready_since=since) for index, since in ((1, 290), (2, 280), (3, 100))],
    )
    gang = seen.gang("train")
    assert (gang.state, gang.since) == ("finishing", ago(280))


def test_clock_of_stopping():
    """The deletion began its grace before the time stamp that the API writes: the first member's counts."""
    seen = look(
        *nodes(2),
        pod_group("train", 2),
        terminating(ready("w0", TRAIN, "n0"), began=40, grace=300),
        terminating(ready("w1", TRAIN, "n1"), began=20, grace=30),
    )
    gang = seen.gang("train")
    assert (gang.state, gang.since) == ("stopping", ago(40))


def test_clock_of_an_orphan():
    """An orphan's clock began with its oldest member."""
    seen = look(*nodes(2), ready("w0", TRAIN, "n0", created=700), new("w1", TRAIN, created=300))
    assert seen.gang("train").since == ago(700)


def test_a_restarted_check_gives_the_same_clock():
    """All times come from the API: with an empty memory state and clock are the same."""
    objects = [*nodes(3), pod_group("train", 3), *up(2, TRAIN), new("w2", TRAIN, created=200)]
    first = look(*objects)
    second = look(*objects, memory=first.memory, now=NOW + 60)
    restarted = look(*objects, now=NOW + 60)
    assert second.gang("train").since == restarted.gang("train").since == first.gang("train").since


# === attention =======================================================================================================


@pytest.mark.parametrize(
    ("objects", "name", "needs"),
    [
        pytest.param([pod_group("train", 2), bound("w0", TRAIN, "n0", since=61)], "train", True, id="partial"),
        pytest.param(
            [pod_group("train", 2), bound("w0", TRAIN, "n0", since=59)], "train", False, id="partial, in grace"
        ),
        pytest.param(
            [pod_group("train", 2), *[bound(f"w{index}", TRAIN, f"n{index}", since=61) for index in (0, 1)]],
            "train",
            True,
            id="starting",
        ),
        pytest.param(
            [pod_group("train", 2), *[bound(f"w{index}", TRAIN, f"n{index}", since=59) for index in (0, 1)]],
            "train",
            False,
            id="starting, in grace",
        ),
        pytest.param(
            [jobset_workload(podset(2), pods_ready=("False", 61, "WaitForRecovery")), *up(1, IN_WL)],
            "js",
            True,
            id="degraded",
        ),
        pytest.param(
            [jobset_workload(podset(2), pods_ready=("False", 59, "WaitForRecovery")), *up(1, IN_WL)],
            "js",
            False,
            id="degraded, in grace",
        ),
        pytest.param([jobset_workload(podset(2), admitted=61)], "js", True, id="admitted and unplaced"),
        pytest.param([jobset_workload(podset(2), admitted=59)], "js", False, id="admitted and unplaced, in grace"),
        pytest.param([workload("wl", ("JobSet", "js"), podset(2), created=9000)], "js", False, id="waits for quota"),
        pytest.param(
            [workload("wl", ("JobSet", "js"), podset(2), created=9000, reserved=8000)],
            "js",
            False,
            id="waits for an admission check",
        ),
        pytest.param([pod_group("train", 2), *up(2, TRAIN)], "train", False, id="running"),
        pytest.param(
            [pod_group("train", 2), succeeded("s", TRAIN, "n1"), ready("w", TRAIN, "n0", since=700)],
            "train",
            True,
            id="finishing for more than ten minutes",
        ),
        pytest.param(
            [pod_group("train", 2), succeeded("s", TRAIN, "n1"), ready("w", TRAIN, "n0", since=600)],
            "train",
            False,
            id="finishing for just ten minutes",
        ),
        pytest.param(
            [pod_group("train", 2), succeeded("s", TRAIN, "n1"), ready("w", TRAIN, "n0", since=500)],
            "train",
            False,
            id="finishing",
        ),
        pytest.param([ready("w0", TRAIN, "n0", created=10, since=5)], "train", True, id="unguarded: no PodGroup"),
    ],
)
def test_attention(objects: list[Json], name: str, needs: bool):
    """Incomplete, or admitted and unplaced, beyond the grace; finishing for long; unguarded. Not: waiting for quota."""
    assert look(*nodes(2), *objects).gang(name).attention is needs


def test_attention_lasts_for_a_quarter_of_an_hour():
    """A gang keeps its own series for 15 minutes after it needed attention, so that monitors see it recover."""
    bad = look(*nodes(2), pod_group("train", 2), *up(1, TRAIN))
    assert bad.gang("train").attention
    well = [*nodes(2), pod_group("train", 2), *up(2, TRAIN)]
    memory = bad.memory
    for later, needs in ((300, True), (900, True), (901, False)):
        seen = look(*well, memory=memory, now=NOW + later)
        assert seen.gang("train").attention is needs
        memory = seen.memory


def test_attention_follows_the_grace_option():
    """`grace_seconds` decides how long it may take."""
    objects = [*nodes(1), pod_group("train", 2), bound("w0", TRAIN, "n0", since=100)]
    assert look(*objects, grace=120.0).gang("train").attention is False
    assert look(*objects, grace=90.0).gang("train").attention is True


# === unguarded =======================================================================================================


def test_unguarded_no_gang_scheduling():
    """A gang of engine `job` has no gang scheduling."""
    seen = look(*nodes(2), *up(2, of_jobset("js", replicas=2)), unread=NOTHING_INSTALLED)
    assert seen.gang("js").unguarded == ("no_gang_scheduling",)


def test_unguarded_no_podgroup():
    """A gang whose PodGroup does not exist."""
    assert look(*nodes(1), *up(1, TRAIN)).gang("train").unguarded == ("no_podgroup",)


@pytest.mark.parametrize(
    ("min_member", "made", "unguarded"),
    [
        pytest.param(2, podset(4), ("min_member",), id="below the pods of its Workload"),
        pytest.param(4, podset(4), (), id="all of them"),
        pytest.param(5, podset(4), (), id="above"),
        pytest.param(4, podset(8, assigned=4, minimum=2), (), id="all that a partial admission gave"),
    ],
)
def test_unguarded_min_member_of_a_workload(min_member: int, made: Json, unguarded: tuple):
    """A PodGroup that demands fewer members than its Workload runs lets a part of them start."""
    seen = look(*nodes(4), pod_group("train", min_member), jobset_workload(made), *up(4, TRAIN + IN_WL))
    assert seen.gang("train").unguarded == unguarded


@pytest.mark.parametrize(("min_member", "unguarded"), [(2, ("min_member",)), (4, ())])
def test_unguarded_min_member_of_a_job(min_member: int, unguarded: tuple):
    """The same where labels tell how many pods the job runs."""
    tie = TRAIN + of_jobset("js", job=0, replicas=2)
    other = TRAIN + of_jobset("js", job=1, replicas=2)
    seen = look(*nodes(4), pod_group("train", min_member), *up(2, tie), *up(2, other, first=2))
    assert seen.gang("train").unguarded == unguarded


def test_guard_is_unobservable_unless_gang_schedulers_are_known():
    """Nobody knows whether a scheduler's name serves gangs: unobservable, signal guard."""
    seen = look(*nodes(2), pod_group("train", 2), *up(2, TRAIN))
    assert seen.gang("train").unguarded == ()
    assert seen.unobservable("guard") == {"not_configured": 1}


@pytest.mark.parametrize(("scheduler", "unguarded"), [(DEFAULT_SCHEDULER, ("scheduler_name",)), (GANG_SCHEDULER, ())])
@pytest.mark.parametrize("known", ["option", "profiles"])
def test_unguarded_scheduler_name(known: str, scheduler: str, unguarded: tuple):
    """Members name a scheduler that serves no gangs, where the option or the scheduler's profiles tell which do."""
    told: dict = {"gang_schedulers": SERVED} if known == "option" else {"scheduler": counted(0)}
    seen = look(*nodes(2), pod_group("train", 2), *up(2, TRAIN, scheduler=scheduler), **told)
    assert seen.gang("train").unguarded == unguarded
    assert seen.unobservable("guard") == {}


def test_one_member_of_another_scheduler_is_unguarded():
    """One member that the gang scheduler does not see is enough."""
    seen = look(
        *nodes(2),
        pod_group("train", 2),
        ready("w0", TRAIN, "n0", scheduler=GANG_SCHEDULER),
        ready("w1", TRAIN, "n1"),
        gang_schedulers=SERVED,
    )
    assert seen.gang("train").unguarded == ("scheduler_name",)


def test_min_member_is_asked_of_podgroups_only():
    """Kueue itself lets a reclaimed or elastic job require fewer members than it runs."""
    reclaimed = look(*nodes(4), jobset_workload(podset(4, reclaimed=1)), *up(3, IN_WL))
    assert reclaimed.gang("js").unguarded == ()
    annotations = {"kueue.x-k8s.io/workload-slice-name": "wl"}
    elastic = look(*nodes(4), jobset_workload(podset(4, minimum=2), annotations=annotations), *up(4, of_slice("wl")))
    assert elastic.gang("js").unguarded == ()


def test_scheduler_name_is_asked_of_coscheduling_only():
    """Kueue gates before any scheduler, and native groups are served by the default one."""
    seen = look(
        *nodes(4),
        jobset_workload(podset(2)),
        *up(2, IN_WL),
        native_group("train", 2),
        *[ready(f"x{index}", of_native("train"), f"n{index + 2}") for index in (0, 1)],
        gang_schedulers=SERVED,
    )
    assert seen.gang("js").unguarded == seen.gang("train").unguarded == ()


def test_unguarded_is_not_claimed_while_workloads_are_not_read():
    """A JobSet whose pods name no Workload (before Kueue 0.14) may well be Kueue's: the accusation needs proof."""
    seen = look(*nodes(2), *up(2, of_jobset("js", replicas=2)), unread={WORKLOADS: "forbidden"})
    assert all("no_gang_scheduling" not in view.unguarded for view in seen.picture.gangs)


# === sources that are down, objects that are bad =====================================================================


@pytest.mark.parametrize(
    ("why", "reason"), [("forbidden", "forbidden"), ("unauthorized", "forbidden"), ("unreachable", "")]
)
def test_podgroups_are_not_read(why: str, reason: str):
    """Unknown is not zero: labelled pods are a gang of which nothing is known; no orphan, no state, GPUs other."""
    seen = look(*nodes(2), pod_group("train", 2), *up(2, TRAIN), unread={COSCHEDULING: why})
    gang = seen.gang("train")
    assert (gang.state, gang.required, gang.since) == (None, None, None)
    assert gang.unguarded == ()
    assert (seen.busy, seen.idle, seen.other) == (0, 0, 16)
    told = seen.unobservable("required")
    assert sum(told.values()) == 1
    assert set(told) <= ({reason} if reason else REASONS)
    assert set(seen.picture.gpus.unknown) == {GPU}


def test_workloads_are_not_read():
    """Pods that name a Workload: the same. A gang by PodGroup alone is not touched."""
    seen = look(
        *nodes(4),
        jobset_workload(podset(2)),
        *up(2, IN_WL),
        pod_group("train", 2),
        *[ready(f"x{index}", TRAIN, f"n{index + 2}") for index in (0, 1)],
        unread={WORKLOADS: "forbidden"},
    )
    unknown = [view for view in seen.picture.gangs if view.state is None]
    assert [view.queue.engine for view in unknown] == ["kueue"]
    assert seen.unobservable("required") == {"forbidden": 1}
    assert seen.gang("train").state == "running"
    assert (seen.busy, seen.idle, seen.other) == (16, 0, 16)
    assert set(seen.picture.gpus.unknown) == {GPU}


def test_idle_is_known_while_all_is_read():
    """Nothing is unknown of idle GPUs when the sources of all gangs are read, also where one object is unreadable."""
    assert look(*nodes(2), pod_group("train", 2), *up(2, TRAIN)).picture.gpus.unknown.keys() == set()
    assert look(*nodes(2), pod_group("train", -2), *up(2, TRAIN)).picture.gpus.unknown.keys() == set()


def test_terminating_pod_while_workloads_are_not_read():
    """Whether its gang is gone is not known: not idle before its grace is over."""
    seen = look(node("n0"), terminating(ready("w0", IN_WL, "n0"), began=5, grace=300), unread={WORKLOADS: "forbidden"})
    assert (seen.idle, seen.other) == (0, 8)


def test_nodes_are_not_read():
    """Without nodes there are no figures of nodes; states and allocated GPUs come from the pods."""
    seen = look(*nodes(2), pod_group("train", 2), *up(2, TRAIN), unread={"nodes": "forbidden"})
    assert seen.picture.nodes is None
    assert not seen.picture.free_known
    assert seen.gang("train").state == "running"
    assert seen.busy == 16


def test_pods_are_not_read():
    """Without pods nothing is said of gangs or of allocated GPUs, and free is not known; capacity is."""
    seen = look(*nodes(2), pod_group("train", 2), *up(2, TRAIN), unread={"pods": "forbidden"})
    assert seen.names == set()
    assert not seen.picture.pods_known
    assert not seen.picture.free_known
    assert dict(seen.picture.gpus.allocated) == {}
    assert seen.picture.nodes is not None
    assert (seen.picture.nodes[GPU].capacity, seen.picture.nodes[GPU].allocatable) == (16, 16)


def test_engine_that_is_not_installed():
    """Where the PodGroup API does not exist its label means nothing: no orphan, and the pods are of no gang."""
    seen = look(*nodes(2), *up(2, TRAIN), unread={COSCHEDULING: "not_installed"})
    assert seen.names == set()
    assert seen.other == 16


def test_engine_that_is_not_installed_leaves_the_others():
    """The same pods in a Workload are that gang's."""
    seen = look(*nodes(2), jobset_workload(podset(2)), *up(2, TRAIN + IN_WL), unread={COSCHEDULING: "not_installed"})
    assert seen.gang("js").state == "running"


def test_kueue_is_not_installed():
    """Annotations of a Kueue that was removed mean nothing: the JobSet is a gang without gang scheduling."""
    seen = look(*nodes(2), *up(2, IN_WL + of_jobset("js", replicas=2)), unread={WORKLOADS: "not_installed"})
    assert seen.gang("js").key == ("job", "team", "js")


@pytest.mark.parametrize("engine", [COSCHEDULING, NATIVE])
def test_unreadable_podgroup_leaves_no_orphan(engine: str):
    """A PodGroup with a negative minimum exists: its pods are no orphans, and what it requires is unknown."""
    native = engine == NATIVE
    group = native_group("train", -3) if native else pod_group("train", -3)
    seen = look(*nodes(2), group, *up(2, of_native("train") if native else TRAIN))
    gang = seen.gang("train")
    assert gang.state is None
    assert gang.unguarded == ()
    assert (seen.idle, seen.other) == (0, 16)
    assert sum(seen.unobservable("required").values()) == 1


def test_unreadable_workload_is_not_gone():
    """A Workload that exists and cannot be understood: its pods are in a gang of which nothing is known."""
    broken = jobset_workload(podset(2))
    broken["spec"]["podSets"][0]["count"] = "two"
    seen = look(node("n0"), broken, terminating(ready("w0", IN_WL, "n0"), began=5, grace=300))
    (gang,) = seen.picture.gangs
    assert gang.state is None
    assert (seen.idle, seen.other) == (0, 8)


def broken(pod: dict) -> dict:
    """Return a pod of which nobody can say what it is."""
    return {**pod, "status": {**pod["status"], "phase": "Dancing"}}


@pytest.mark.parametrize(
    ("members", "state"),
    [
        (up(1, TRAIN), "partial"),
        ([bound("w0", TRAIN, "n0")], "partial"),
        ([ready("w0", TRAIN, "n0"), failed("w1", TRAIN, "n1")], "partial"),
        ([new("w0", TRAIN)], "pending"),
        ([unscheduled("w0", TRAIN, TIMEOUT)], "rejected"),
        ([gated("w0", TRAIN)], "queued"),
        ([terminating(ready("w0", TRAIN, "n0"), began=5, grace=300)], "stopping"),
    ],
)
def test_a_pod_that_cannot_be_understood_may_be_the_member_that_a_gang_lacks(members: list, state: str):
    """A gang that lacks members is not judged where its namespace has such pods: unknown is not zero."""
    foreign = ready("w9", TRAIN, "n1", namespace="elsewhere")
    known = look(*nodes(2), pod_group("train", 2), *members, broken(foreign))
    assert known.gang("train").state == state, "a pod of another namespace is no member"
    seen = look(*nodes(2), pod_group("train", 2), *members, broken(ready("w9", TRAIN, "n1")))
    gang = seen.gang("train")
    assert (gang.state, gang.unobservable, gang.missing, gang.required) == (None, "ambiguous", 0, 2)
    assert seen.unobservable("required") == {"ambiguous": 1}
    assert (seen.idle, seen.busy, seen.other) == (0, 0, known.idle + known.busy + known.other)
    assert not seen.picture.verdicts.blockers
    assert not seen.picture.verdicts.deadlocked


@pytest.mark.parametrize(
    ("members", "state"),
    [
        (up(2, TRAIN), "running"),
        ([ready("w0", TRAIN, "n0"), unscheduled("w1", TRAIN, NO_GPU)], "partial"),
        ([ready("w0", TRAIN, "n0"), bound("w1", TRAIN, "n1")], "starting"),
    ],
)
def test_a_gang_that_has_all_its_members_is_judged_beside_a_pod_that_cannot_be_understood(members: list, state: str):
    """It lacks nobody who could be that pod: the rest of the picture stands."""
    seen = look(*nodes(2), pod_group("train", 2), *members, broken(ready("x", LONE, "n1")))
    whole = look(*nodes(2), pod_group("train", 2), *members)
    assert seen.gang("train").state == whole.gang("train").state == state
    assert (seen.busy, seen.idle) == (whole.busy, whole.idle)
    assert seen.unobservable("required") == {}


# === options =========================================================================================================


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({}, {"a", "b", "ml-1"}),
        ({"namespaces": ("a", "ml-*")}, {"a", "ml-1"}),
        ({"exclude_namespaces": ("ml-*",)}, {"a", "b"}),
        ({"namespaces": ("a", "b"), "exclude_namespaces": ("b",)}, {"a"}),
    ],
)
def test_namespaces(options: dict, reported: set):
    """Gangs of other namespaces are not reported; their GPUs are allocated all the same, other and without queue."""
    spaces = ("a", "b", "ml-1")
    seen = look(
        *nodes(3),
        *[pod_group("train", 2, namespace=space) for space in spaces],
        *[ready("w0", TRAIN, f"n{index}", namespace=space) for index, space in enumerate(spaces)],
        **options,
    )
    assert {view.queue.namespace for view in seen.picture.gangs} == reported
    hidden = len(spaces) - len(reported)
    assert seen.idle_by_reason() == {"partial": 8 * len(reported)}
    assert seen.other == 8 * hidden
    assert seen.free() == 0
    if hidden:
        queue = next(queue for queue, _, use in seen.picture.gpus.allocated if use == "other")
        assert (queue.namespace, queue.local_queue, queue.cluster_queue, queue.engine) == ("none",) * 4


def test_include_cpu_gangs():
    """A gang without any GPU is left out, unless asked for."""
    objects = [*nodes(2), pod_group("train", 2), *up(2, TRAIN, gpus=0)]
    assert look(*objects).names == set()
    assert look(*objects, include_cpu_gangs=True).gang("train").state == "running"


def test_a_gang_asks_for_gpus_before_it_has_pods():
    """The PodGroup's minResources or the Workload's templates tell that a gang without pods wants GPUs."""
    assert look(pod_group("train", 2, min_gpus=16)).names == {("coscheduling", "team", "train")}
    assert look(workload("wl", ("JobSet", "js"), podset(2, gpus=0))).names == set()


@pytest.mark.parametrize(
    ("engines", "expected"),
    [
        (None, {("coscheduling", "team", "train"), ("kueue", "team", "js"), ("kubernetes", "team", "nat")}),
        (frozenset({"coscheduling"}), {("coscheduling", "team", "train")}),
        (frozenset({"kueue"}), {("kueue", "team", "js")}),
        (frozenset({"kubernetes"}), {("kubernetes", "team", "nat")}),
    ],
)
def test_gang_engines(engines: frozenset | None, expected: set):
    """`gang_engines` says what makes a gang; pods of what it leaves out are other."""
    seen = look(
        *nodes(6),
        pod_group("train", 2, min_gpus=16),
        *up(2, TRAIN),
        jobset_workload(podset(2)),
        *[ready(f"k{index}", IN_WL, f"n{index + 2}") for index in (0, 1)],
        native_group("nat", 2),
        *[ready(f"x{index}", of_native("nat"), f"n{index + 4}") for index in (0, 1)],
        gang_engines=engines,
    )
    assert seen.names == expected
    assert seen.busy == 16 * len(expected)
    assert seen.other == 16 * (3 - len(expected))


def test_gang_engines_leave_a_podgroup_to_kueue():
    """A pod of both, with Kueue alone: the gang is the Workload's."""
    seen = look(
        *nodes(2),
        pod_group("train", 2),
        jobset_workload(podset(3)),
        *up(2, TRAIN + IN_WL),
        gang_engines=frozenset({"kueue"}),
    )
    assert seen.names == {("kueue", "team", "js")}
    assert seen.gang("js").required == 3


def test_implicit_gangs_none():
    """With `implicit_gangs: none` jobs without gang scheduling are no gangs."""
    seen = look(*nodes(2), *up(2, of_jobset("js", replicas=2)), unread=NOTHING_INSTALLED, implicit_gangs=False)
    assert seen.names == set()
    assert seen.other == 16


def test_kinds_of_gangs():
    """The kinds whose Workloads may be gangs, as the model lists them."""
    kubeflow = {"PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob"}
    assert {"Job", "JobSet", "TrainJob", "LeaderWorkerSet", "Pod", "RayJob", "RayCluster", *kubeflow} == GANG_KINDS


def test_labels_become_tags():
    """A label of the PodGroup, Workload or job that the user names is told with the gang."""
    seen = look(
        pod_group("train", 2, labels={"team-name": "vision", "other": "x"}, min_gpus=2),
        workload("wl", ("JobSet", "js"), podset(2), labels={"team-name": "speech"}),
        labels=("team-name",),
    )
    assert seen.gang("train").labels == (("team-name", "vision"),)
    assert seen.gang("js").labels == (("team-name", "speech"),)
