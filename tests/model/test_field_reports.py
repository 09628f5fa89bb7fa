# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Public reports of people who run gangs, rebuilt small, with the answer that the check owes them.

`test_bN` and `test_cN` are the reports and the cases to replay, `test_row_N` the rows of the table of threads. The
right values are those of the report; where a report and the gang model differ the model stands, and the docstring says
so.

Several reports are about engines that are not read yet (Volcano, KAI, Koordinator). What they tell is rebuilt with a
PodGroup that is read: the fault is of a kind, not of an engine.
"""

import pytest

from datadog_checks.kueue_gang.facts.quantity import GpuResources
from tests.model.build import (
    ADMISSION_GATE,
    ELASTIC_GATE,
    GPU,
    LONE,
    NO_GPU,
    NOTHING_INSTALLED,
    OPTIMISTIC,
    PLAIN_NO_GPU,
    SIBLINGS,
    TIMEOUT,
    TOPOLOGY_GATE,
    UNRESERVE,
    ago,
    bound,
    classes,
    container,
    failed,
    flavor,
    gated,
    look,
    native_group,
    new,
    node,
    of_group,
    of_kubeflow,
    of_lws,
    of_native,
    of_plain_group,
    of_workload,
    owned,
    permit_waiter,
    pod,
    pod_group,
    podset,
    ready,
    running,
    sidecar,
    stamp,
    succeeded,
    taint,
    terminating,
    ungated,
    unscheduled,
    workload,
)

TRAIN = of_group("train")

# --- reports ---------------------------------------------------------------------------------------------------------


def test_b1_scheduler_plugins_930():
    """A gang of two is let through although one fits: one pod bound, its sibling turned away; the phase says nothing.

    One member holds 8 GPUs in vain: partial. The report's "missing 1" is the member that is not bound; in the model
    `missing` is a pod that does not exist, and here both exist.
    """
    seen = look(
        node("n1"),
        node("n2", 0),
        pod_group("train", 2, phase="Scheduling", running=1),
        ready("a", TRAIN, "n1"),
        unscheduled("b", TRAIN, NO_GPU),
    )
    gang = seen.gang("train")
    assert (gang.state, gang.required, gang.missing) == ("partial", 2, 0)
    assert classes(gang) == {"ready": 1, "unschedulable": 1}
    assert gang.allocated == {GPU: 8}
    assert gang.idle == {GPU: 8}
    assert gang.requested == {GPU: 16}
    assert seen.idle_by_reason() == {"partial": 8}


def test_b2_scheduler_plugins_713_waiters_with_nominated_node():
    """Nine of ten wait in Permit, the tenth does not fit: nothing is bound, and 72 GPUs are held in the scheduler only.

    A reserved GPU is not allocated, and is free as far as the nodes tell.
    """
    seen = look(
        *[node(f"n{index}") for index in range(9)],
        pod_group("train", 10),
        *[permit_waiter(f"w{index}", TRAIN, f"n{index}") for index in range(9)],
        unscheduled("w9", TRAIN, NO_GPU),
    )
    gang = seen.gang("train")
    assert gang.state == "waiting"
    assert classes(gang) == {"waiting_permit": 9, "unschedulable": 1}
    assert gang.reserved == {GPU: 72}
    assert gang.allocated == {}
    assert (seen.busy, seen.idle, seen.other, seen.free()) == (0, 0, 0, 72)
    assert seen.unobservable("permit") == {}


def test_b2_scheduler_plugins_713_waiters_without_a_trace():
    """The same before Kubernetes 1.35: no pod shows a nomination, so nobody knows who waits, and 0 is no answer."""
    seen = look(
        *[node(f"n{index}") for index in range(9)],
        pod_group("train", 10),
        *[new(f"w{index}", TRAIN) for index in range(9)],
        unscheduled("w9", TRAIN, NO_GPU),
    )
    gang = seen.gang("train")
    assert classes(gang) == {"new": 9, "unschedulable": 1}
    assert gang.state == "pending"
    assert gang.reserved == {}
    assert seen.unobservable("permit") == {"no_trace": 1}


def test_b3_scheduler_plugins_361_446_562():
    """`status.scheduled` only grew until it was removed: five of eight run, whatever it says."""
    seen = look(
        *[node(f"n{index}") for index in range(5)],
        pod_group("train", 8, phase="Running", scheduled=15, running=5),
        *[ready(f"w{index}", TRAIN, f"n{index}") for index in range(5)],
    )
    gang = seen.gang("train")
    assert gang.state == "partial"
    assert classes(gang) == {"ready": 5, "missing": 3}
    assert gang.idle == {GPU: 40}


def test_b4a_same_name_in_two_namespaces():
    """The controller adds up the pods of equal names over namespaces; a gang is the pods of its own namespace."""
    seen = look(
        *[node(f"n{index}") for index in range(4)],
        *[pod_group("train", 4, namespace=name, running=4, phase="Running") for name in ("a", "b")],
        ready("w0", TRAIN, "n0", namespace="a"),
        ready("w1", TRAIN, "n1", namespace="a"),
        ready("w0", TRAIN, "n2", namespace="b"),
        ready("w1", TRAIN, "n3", namespace="b"),
    )
    assert seen.names == {("coscheduling", "a", "train"), ("coscheduling", "b", "train")}
    for namespace in ("a", "b"):
        gang = seen.gang("train", namespace)
        assert gang.state == "partial"
        assert classes(gang) == {"ready": 2, "missing": 2}
        assert gang.idle == {GPU: 16}


def test_b4b_scheduling_phase_needs_only_that_pods_exist():
    """Phase Scheduling says that enough pods exist, not that any is placed: four pods nobody looked at are pending."""
    seen = look(pod_group("train", 4, phase="Scheduling"), *[new(f"w{index}", TRAIN) for index in range(4)])
    assert seen.gang("train").state == "pending"
    assert classes(seen.gang("train")) == {"new": 4}


def test_b4c_pending_phase_of_a_gang_that_runs_in_part():
    """Fewer pods than minMember set the phase to Pending while the rest still runs: three hold 24 GPUs in vain."""
    seen = look(
        *[node(f"n{index}") for index in range(3)],
        pod_group("train", 4, phase="Pending"),
        *[ready(f"w{index}", TRAIN, f"n{index}") for index in range(3)],
    )
    gang = seen.gang("train")
    assert gang.state == "partial"
    assert gang.missing == 1
    assert gang.allocated == {GPU: 24}
    assert seen.idle_by_reason() == {"partial": 24}


@pytest.mark.parametrize("phase", ["Failed", "Finished", "Unknown", ""])
def test_b4f_terminal_phases_are_never_revisited(phase: str):
    """Failed and Finished are never looked at again, also when the pods are made anew: those that run, run."""
    seen = look(
        node("n1"),
        node("n2"),
        pod_group("train", 2, phase=phase, succeeded=2, failed=2),
        ready("again-0", TRAIN, "n1"),
        ready("again-1", TRAIN, "n2"),
    )
    assert seen.gang("train").state == "running"
    assert (seen.busy, seen.idle) == (16, 0)


def test_b5_scheduler_plugins_386():
    """Any failed pod plus quorum gives phase Failed even while enough members run: the gang runs."""
    seen = look(
        *[node(f"n{index}") for index in range(5)],
        pod_group("train", 4, phase="Failed", running=4, failed=1),
        *[ready(f"w{index}", TRAIN, f"n{index}") for index in range(4)],
        failed("w4", TRAIN, "n4"),
    )
    gang = seen.gang("train")
    assert gang.state == "running"
    assert classes(gang) == {"ready": 4, "failed": 1}
    assert (seen.busy, seen.idle) == (32, 0)


def test_b7_scheduler_plugins_429_free_gpus():
    """Free GPUs 6, 2, 2, 2: twelve are free in sum, and the gang of three times four holds none of them."""
    seen = look(
        *[node(f"n{index}") for index in range(4)],
        *[ready(f"plain-{index}", LONE, f"n{index}", gpus=used) for index, used in enumerate((2, 6, 6, 6))],
        pod_group("train", 3),
        *[unscheduled(f"w{index}", TRAIN, NO_GPU, gpus=4) for index in range(3)],
    )
    assert seen.free() == 12
    assert seen.gang("train").state == "pending"
    assert seen.gang("train").requested == {GPU: 12}
    assert (seen.busy, seen.idle, seen.other) == (0, 0, 20)


@pytest.mark.parametrize(
    "said",
    [
        {"phase": "Pending", "running": 2},
        {"phase": "Scheduling", "running": 4, "scheduled": 3},
        {"phase": "Unknown", "failed": 4},
        {"running": 0},
        {},
    ],
)
def test_b9_volcano_457_koordinator_2030(said: dict):
    """Status texts and counters lag and contradict: the pods are counted anew, and four of four run."""
    seen = look(
        *[node(f"n{index}") for index in range(4)],
        pod_group("train", 4, **said),
        *[ready(f"w{index}", TRAIN, f"n{index}") for index in range(4)],
    )
    assert seen.gang("train").state == "running"
    assert classes(seen.gang("train")) == {"ready": 4}


def test_b10_mpi_operator_608():
    """MinMember counts the launcher, which is created only after the workers run: a pod is missing, none is too big."""
    tie = TRAIN + of_kubeflow("mpi", "worker", "MPIJob")
    text = SIBLINGS.replace("number: 3", "number: 4").replace("group: 4", "group: 5")
    seen = look(
        *[node(f"n{index}") for index in range(5)],
        pod_group("train", 5),
        *[unscheduled(f"w{index}", tie, text) for index in range(4)],
    )
    gang = seen.gang("train")
    assert gang.state == "rejected"
    assert classes(gang) == {"rejected": 4, "missing": 1}
    assert gang.owner_kind == "mpijob"
    assert gang.allocated == {}


def test_b17_kueue_8596():
    """In Kueue 0.15 a finished Workload flips its conditions back and loses its admission: finished, no gang."""
    wl = workload(
        "wl",
        ("JobSet", "js"),
        podset(2),
        finished=60,
        pods_ready=("False", 60, "WaitForStart"),
    )
    flipped = [
        {"type": kind, "status": "False", "lastTransitionTime": stamp(60)} for kind in ("QuotaReserved", "Admitted")
    ]
    wl["status"]["conditions"] += flipped
    seen = look(
        node("n1"),
        node("n2"),
        wl,
        succeeded("w0", of_workload("wl"), "n1"),
        succeeded("w1", of_workload("wl"), "n2"),
    )
    assert seen.names == set()
    assert (seen.busy, seen.idle, seen.other) == (0, 0, 0)


def test_b19_dcgm_exporter_342():
    """GPUs without an activity sample are allocated by request and never idle: busy in a gang that runs, else other."""
    seen = look(
        node("n1"),
        node("n2"),
        node("n3"),
        pod_group("train", 2),
        ready("w0", TRAIN, "n1"),
        ready("w1", TRAIN, "n2"),
        ready("notebook", LONE, "n3", gpus=1),
    )
    assert (seen.busy, seen.idle, seen.other) == (16, 0, 1)
    assert seen.free() == 7


@pytest.mark.parametrize("gate", [ADMISSION_GATE, TOPOLOGY_GATE, ELASTIC_GATE, "example.com/own"])
def test_b20_kueue_4446(gate: str):
    """Gated and not schedulable are two things, with whichever gate."""
    seen = look(
        node("n1"),
        pod_group("train", 2),
        gated("w0", TRAIN, gate),
        unscheduled("w1", TRAIN, PLAIN_NO_GPU),
    )
    assert classes(seen.gang("train")) == {"gated": 1, "unschedulable": 1}


def test_b20_kueue_4446_gate_is_gone():
    """The condition goes on saying SchedulingGated when the gates are gone: the spec tells, and the pod is new."""
    seen = look(node("n1"), pod_group("train", 2), ungated("w0", TRAIN), ungated("w1", TRAIN))
    assert classes(seen.gang("train")) == {"new": 2}
    assert seen.gang("train").state == "pending"


def test_b21_kueue_10876_all_pods_hold_gpus():
    """Free GPUs are what no pod holds, whoever manages it: plain pods and those of DaemonSets count."""
    seen = look(
        node("n1"),
        pod_group("train", 2),
        ready("w0", TRAIN, "n1", gpus=2),
        ready("w1", TRAIN, "n1", gpus=2),
        ready("plain", LONE, "n1", gpus=1),
        ready("daemon", LONE, "n1", gpus=1),
    )
    assert (seen.busy, seen.other, seen.free()) == (4, 2, 2)


@pytest.mark.parametrize(
    ("init", "held"),
    [
        pytest.param([sidecar(1), container(4, "init")], 5, id="sidecar started before the init container"),
        pytest.param([container(4, "init"), sidecar(1)], 4, id="sidecar after the init container"),
        pytest.param([sidecar(1), container(0, "init")], 2, id="init container without GPUs"),
    ],
)
def test_b22_kai_1880(init: list, held: int):
    """Container 1, sidecar 1, init container 4: the peak of the init path or what runs, as Kubernetes has it."""
    alone = ready("alone", LONE, "n1", spec={"containers": [container(1)], "initContainers": init})
    seen = look(node("n1"), alone)
    assert seen.other == held
    assert seen.free() == 8 - held


def test_b23_kueue_10659_node_in_two_flavors():
    """A node that two flavors select is one node in the cluster's figures."""
    seen = look(
        node("n1", labels={"pool": "a"}),
        flavor("reserved", {"pool": "a"}),
        flavor("ondemand", {"pool": "a"}),
        ready("plain", LONE, "n1", gpus=3),
    )
    assert seen.picture.nodes is not None
    totals = seen.picture.nodes[GPU]
    assert (totals.capacity, totals.allocatable, totals.schedulable, totals.free) == (8, 8, 8, 5)


@pytest.mark.parametrize(
    ("version", "given", "told"),
    [("v1beta1", "urgent", "urgent"), ("v1beta2", "urgent", "urgent"), ("v1beta2", "", "none")],
)
def test_b41_kueue_5989_priority_class(version: str, given: str, told: str):
    """A gang tells its priority class, `none` when unset, in both versions of the API."""
    seen = look(workload("wl", ("JobSet", "js"), podset(2), version=version, priority_class=given))
    assert seen.gang("js").priority_class == told


# --- cases to replay -------------------------------------------------------------------------------------------------


def test_c1_scheduler_plugins_930():
    """Two nodes, one full of a plain pod: the gang's bound pod holds 8 GPUs in vain, the plain pod's are no gang's."""
    seen = look(
        node("n1"),
        node("n2"),
        ready("plain", LONE, "n2"),
        pod_group("pg-x", 2, phase="Scheduling", running=1),
        running("w-0", of_group("pg-x"), "n1"),
        unscheduled("w-1", of_group("pg-x"), "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."),
    )
    assert len(seen.picture.gangs) == 1
    gang = seen.gang("pg-x")
    assert (gang.state, gang.required, gang.missing) == ("partial", 2, 0)
    assert classes(gang) == {"running": 1, "unschedulable": 1}
    assert (seen.busy, seen.idle, seen.other, seen.free()) == (0, 8, 8, 0)


def test_c2_scheduler_plugins_446():
    """A status that lies: phase Scheduling, scheduled 1, and three pods run for nine hours. The gang is complete."""
    seen = look(
        *[node(f"n{index}") for index in range(3)],
        pod_group(
            "train", 3, created=32_500, phase="Scheduling", running=3, scheduled=1, scheduleStartTime=stamp(32_500)
        ),
        *[ready(f"w{index}", TRAIN, f"n{index}", since=32_400, created=32_500) for index in range(3)],
    )
    gang = seen.gang("train")
    assert gang.state == "running"
    assert gang.since == ago(32_400)
    assert (seen.busy, seen.idle) == (24, 0)


def test_c3_scheduler_plugins_361():
    """Five of ten were evicted and wait: five of eight are bound, whatever `scheduled` has grown to.

    The report calls it partial. By the model, which stands, it is degraded: the five that wait are replacements, made
    long after the last bind of those that run. The GPUs are idle in both.
    """
    seen = look(
        *[node(f"n{index}") for index in range(5)],
        pod_group("train", 8, created=9000, phase="Running", running=5, scheduled=15),
        *[ready(f"w{index}", TRAIN, f"n{index}", created=9000, since=8900) for index in range(5)],
        *[unscheduled(f"again-{index}", TRAIN, NO_GPU, created=400) for index in range(5)],
    )
    gang = seen.gang("train")
    assert gang.state == "degraded"
    assert gang.since == ago(400)
    assert classes(gang) == {"ready": 5, "unschedulable": 5}
    assert gang.idle == {GPU: 40}


def test_c4_scheduler_plugins_429_free():
    """Used 2, 6, 6 and 6 of 8 on four hosts: twelve GPUs are free. Whether a gang fits is another question."""
    seen = look(
        *[node(f"n{index}") for index in range(4)],
        *[ready(f"plain-{index}", LONE, f"n{index}", gpus=used) for index, used in enumerate((2, 6, 6, 6))],
    )
    assert seen.free() == 12


def test_c7_kueue_10659_node_in_two_flavors():
    """One 8-GPU node in two flavors, full of two admitted pods of 4: free is 0, once."""
    seen = look(
        node("n1", labels={"pool": "a"}),
        flavor("partial-reserved", {"pool": "a"}),
        flavor("ondemand", {"pool": "a"}),
        workload("wl", ("JobSet", "js"), podset(2, gpus=4), admitted=400),
        ready("w0", of_workload("wl"), "n1", gpus=4),
        ready("w1", of_workload("wl"), "n1", gpus=4),
    )
    assert seen.picture.nodes is not None
    totals = seen.picture.nodes[GPU]
    assert (totals.capacity, totals.allocatable, totals.free) == (8, 8, 0)
    assert seen.busy == 8


def test_c13_eks_node_with_gpu_taint():
    """A p4d node that an autoscaler made for the gang: tainted by the GPU key, 4 of its 8 GPUs held by the PyTorchJob.

    The gang (117 s) is older than its node (81 s); no gang scheduling, so the engine is `job`.
    """
    master, worker = of_kubeflow("pytorch-dist-job", "master"), of_kubeflow("pytorch-dist-job", "worker")
    seen = look(
        node("p4d", taints=[taint(GPU, "present")], since=81),
        ready("pytorch-dist-job-master-0", master, "p4d", gpus=1, created=117, since=60),
        *[
            ready(f"pytorch-dist-job-worker-{index}", worker, "p4d", gpus=1, created=117, since=60)
            for index in range(3)
        ],
        *[ready(f"daemon-{index}", LONE, "p4d", gpus=0) for index in range(8)],
        unread=NOTHING_INSTALLED,
    )
    gang = seen.gang("pytorch-dist-job")
    assert gang.queue.engine == "job"
    assert (gang.state, gang.required) == ("running", 4)
    assert gang.allocated == {GPU: 4}
    assert (seen.busy, seen.free()) == (4, 4)


# --- threads ---------------------------------------------------------------------------------------------------------


def test_row_1_scheduler_plugins_446():
    """Phase Scheduling, scheduled 1, running 3, and all three pods run: running."""
    seen = look(
        *[node(f"n{index}") for index in range(3)],
        pod_group("train", 3, phase="Scheduling", scheduled=1, running=3),
        *[ready(f"w{index}", TRAIN, f"n{index}") for index in range(3)],
    )
    assert seen.gang("train").state == "running"


@pytest.mark.parametrize("scheduled", [10, 15])
def test_row_2_scheduler_plugins_361(scheduled: int):
    """`scheduled` grows with each restart; five of five run."""
    seen = look(
        *[node(f"n{index}") for index in range(5)],
        pod_group("train", 5, running=5, scheduled=scheduled),
        *[ready(f"w{index}", TRAIN, f"n{index}") for index in range(5)],
    )
    assert seen.gang("train").state == "running"
    assert classes(seen.gang("train")) == {"ready": 5}


def test_row_3_scheduler_plugins_386():
    """One extra pod failed, phase Failed for ever, and enough members run: running."""
    seen = look(
        *[node(f"n{index}") for index in range(3)],
        pod_group("train", 2, phase="Failed", running=2, failed=1),
        ready("w0", TRAIN, "n0"),
        ready("w1", TRAIN, "n1"),
        failed("w2", TRAIN, "n2"),
    )
    assert seen.gang("train").state == "running"
    assert (seen.busy, seen.idle) == (16, 0)


@pytest.mark.parametrize("phase", ["", "Pending", "PreScheduling", "Scheduling", "Scheduled", "Running", "Failed"])
def test_row_4_scheduler_plugins_578(phase: str):
    """Wrong and late phases: with one of two members placed the gang is partial in every phase."""
    seen = look(
        node("n0"),
        pod_group("train", 2, phase=phase),
        ready("w0", TRAIN, "n0"),
        unscheduled("w1", TRAIN, NO_GPU),
    )
    assert seen.gang("train").state == "partial"


def test_row_5_scheduler_plugins_416():
    """Eight pods with sibling texts, the old deny text and optimistic rejections: rejected, and no GPU is held.

    The thread's last text is a rejection of a Permit waiter, and says nothing about now: by the model such a member
    possibly waits.
    """
    deny = "pod with pgName: team/train last failed in 3s, deny"
    texts = [SIBLINGS, SIBLINGS, SIBLINGS, deny, deny, OPTIMISTIC, OPTIMISTIC, OPTIMISTIC]
    seen = look(
        node("n0"),
        pod_group("train", 8),
        *[unscheduled(f"w{index}", TRAIN, text) for index, text in enumerate(texts)],
    )
    gang = seen.gang("train")
    assert gang.state == "rejected"
    assert classes(gang) == {"rejected": 5, "waiting_possible": 3}
    assert gang.allocated == {}
    assert seen.idle == 0


@pytest.mark.parametrize("text", [TIMEOUT, UNRESERVE])
def test_row_6_scheduler_plugins_722_703(text: str):
    """Ample capacity, and the pods cycle through timeouts: rejected; who waits again just now cannot be seen."""
    seen = look(
        *[node(f"n{index}") for index in range(8)],
        pod_group("train", 4),
        *[unscheduled(f"w{index}", TRAIN, text) for index in range(4)],
    )
    gang = seen.gang("train")
    assert gang.state == "rejected"
    assert classes(gang) == {"waiting_possible": 4}
    assert gang.reserved == {}
    assert seen.unobservable("permit") == {"ambiguous": 1}


def test_row_7_scheduler_plugins_713():
    """Nine of ten assumed: nine wait and nine times the GPUs are reserved where the scheduler shows it."""
    seen = look(
        *[node(f"n{index}") for index in range(9)],
        pod_group("train", 10),
        *[permit_waiter(f"w{index}", TRAIN, f"n{index}", gpus=4) for index in range(9)],
        unscheduled("w9", TRAIN, NO_GPU, gpus=4),
    )
    assert classes(seen.gang("train"))["waiting_permit"] == 9
    assert seen.gang("train").reserved == {GPU: 36}


def test_row_8_scheduler_plugins_114_117():
    """Two gangs on two nodes hold half of the GPUs each, in Permit: two gangs wait, and all 16 GPUs are reserved."""
    objects = []
    for name, where in (("a", "n1"), ("b", "n2")):
        objects += [
            pod_group(name, 2),
            permit_waiter(f"{name}-0", of_group(name), where),
            unscheduled(f"{name}-1", of_group(name), NO_GPU),
        ]
    seen = look(node("n1"), node("n2"), *objects)
    assert [seen.gang(name).state for name in ("a", "b")] == ["waiting", "waiting"]
    assert [seen.gang(name).reserved for name in ("a", "b")] == [{GPU: 8}, {GPU: 8}]
    assert seen.idle == 0


def test_row_9_scheduler_plugins_429():
    """Free 6, 2, 2, 2 and a gang of three times four: two are turned away, the waiter is sent back. Rejected."""
    seen = look(
        *[node(f"n{index}") for index in range(4)],
        *[ready(f"plain-{index}", LONE, f"n{index}", gpus=used) for index, used in enumerate((2, 6, 6, 6))],
        pod_group("train", 3),
        unscheduled("w0", TRAIN, OPTIMISTIC, gpus=4),
        unscheduled("w1", TRAIN, NO_GPU, gpus=4),
        unscheduled("w2", TRAIN, NO_GPU, gpus=4),
    )
    gang = seen.gang("train")
    assert gang.state == "rejected"
    assert classes(gang) == {"waiting_possible": 1, "unschedulable": 2}
    assert seen.idle == 0


def test_row_10_scheduler_plugins_930():
    """A race in Permit: one of two bound, the other cannot be scheduled. Partial; the bound pod's GPUs are stranded."""
    seen = look(
        node("n1"),
        pod_group("train", 2),
        bound("w0", TRAIN, "n1"),
        unscheduled("w1", TRAIN, NO_GPU),
    )
    assert seen.gang("train").state == "partial"
    assert seen.idle_by_reason() == {"partial": 8}


@pytest.mark.parametrize(
    ("text", "expected"), [(PLAIN_NO_GPU, "nominated"), (TIMEOUT, "waiting_possible"), (UNRESERVE, "waiting_possible")]
)
def test_row_11_scheduler_plugins_293(text: str, expected: str):
    """A nomination that stays for ever is one by preemption or a leftover, never a certain wait."""
    seen = look(
        node("n1"),
        pod_group("train", 2),
        *[unscheduled(f"w{index}", TRAIN, text, nominated="n1") for index in range(2)],
    )
    assert classes(seen.gang("train")) == {expected: 2}
    assert seen.gang("train").reserved == {}


@pytest.mark.parametrize("nominated", ["n1", ""])
def test_row_11b_enhancements_5771(nominated: str):
    """A nomination is left after the first failed wait and cleared after the second: both times the pod possibly waits.

    The row settles it by the time of an event. By the model time does not settle it: waiting again on the same node
    writes nothing.
    """
    seen = look(
        node("n1"),
        pod_group("train", 2),
        *[unscheduled(f"w{index}", TRAIN, TIMEOUT, nominated=nominated) for index in range(2)],
    )
    assert classes(seen.gang("train")) == {"waiting_possible": 2}
    assert seen.gang("train").state == "rejected"


def test_row_12_scheduler_plugins_358_364_450():
    """A member that was made anew is turned away for its siblings: rejected, and three of four pods do not exist."""
    text = SIBLINGS.replace("number: 3", "number: 1")
    seen = look(node("n1"), pod_group("train", 4), unscheduled("again", TRAIN, text))
    gang = seen.gang("train")
    assert gang.state == "rejected"
    assert classes(gang) == {"rejected": 1, "missing": 3}


def test_row_14_koordinator_1919():
    """The framework cuts waits at 15 minutes, whatever the group says: still a rejection in Permit."""
    text = "0/1 nodes are available: 1 rejected due to timeout after waiting 15m0s at plugin Coscheduling."
    seen = look(node("n1"), pod_group("train", 2), *[unscheduled(f"w{index}", TRAIN, text) for index in range(2)])
    assert classes(seen.gang("train")) == {"waiting_possible": 2}


def test_row_15_volcano_2377():
    """All pods run while the group's status speaks of too few resources: running."""
    seen = look(
        node("n1"),
        node("n2"),
        pod_group("train", 2, phase="Inqueue", conditions=[{"type": "Unschedulable", "reason": "NotEnoughResources"}]),
        ready("w0", TRAIN, "n1"),
        ready("w1", TRAIN, "n2"),
    )
    assert seen.gang("train").state == "running"


@pytest.mark.parametrize("phase", ["Pending", "Inqueue", "Running", "Unknown"])
def test_row_16_volcano_153(phase: str):
    """The phase oscillates; the counts come from the pods, and one of two running is partial in each phase."""
    seen = look(
        node("n1"),
        pod_group("train", 2, phase=phase),
        running("w0", TRAIN, "n1"),
        unscheduled("w1", TRAIN, NO_GPU),
    )
    assert seen.gang("train").state == "partial"
    assert classes(seen.gang("train")) == {"running": 1, "unschedulable": 1}


def test_row_17_volcano_2633():
    """A completed group that still states its resources: finished, out of the gauges, and no GPU is held."""
    seen = look(
        node("n1"),
        pod_group("train", 2, min_gpus=16, phase="Finished"),
        succeeded("w0", TRAIN, "n1"),
        succeeded("w1", TRAIN, "n1"),
    )
    assert seen.names == set()
    assert (seen.busy, seen.idle, seen.other, seen.free()) == (0, 0, 0, 8)


def test_row_18_volcano_5805():
    """After a node was repaired a gang stays below its minimum, its member made anew waits behind others: degraded."""
    seen = look(
        *[node(f"n{index}") for index in range(4)],
        pod_group("train", 4, created=9000),
        *[ready(f"w{index}", TRAIN, f"n{index}", created=9000, since=8900) for index in range(3)],
        unscheduled("again", TRAIN, NO_GPU, created=1200),
    )
    gang = seen.gang("train")
    assert gang.state == "degraded"
    assert gang.since == ago(1200)
    assert seen.idle_by_reason() == {"degraded": 24}


def test_row_21_kueue_12656():
    """A plain-pod group waits for a replacement, its quota held: degraded since its readiness fell."""
    wl = workload(
        "grp",
        ("Pod", "w0"),
        podset(3),
        controls=False,
        admitted=5000,
        pods_ready=("False", 700, "WaitForRecovery"),
        annotations={"kueue.x-k8s.io/is-group-workload": "true"},
    )
    wl["status"]["conditions"].append({"type": "WaitingForReplacementPods", "status": "True"})
    tie = of_plain_group("grp")
    seen = look(
        *[node(f"n{index}") for index in range(3)],
        wl,
        ready("w0", tie, "n0", created=5100, since=4900),
        ready("w1", tie, "n1", created=5100, since=4900),
        failed("w2", tie, "n2", created=5100, since=4900),
    )
    gang = seen.gang("grp")
    assert gang.state == "degraded"
    assert gang.since == ago(700)
    assert classes(gang) == {"ready": 2, "failed": 1, "missing": 1}
    assert gang.queue.cluster_queue == "cq"
    assert seen.idle_by_reason() == {"degraded": 16}


def test_row_22_kueue_2208_1641_2732():
    """Evicted for readiness for the third time and requeued: queued since the requeue, no GPU held, no alarm."""
    seen = look(
        workload(
            "wl",
            ("JobSet", "js"),
            podset(4),
            created=9000,
            evicted=("True", 500, "PodsReadyTimeout"),
            requeued=("True", 200, "BackoffFinished"),
            requeues=3,
        ),
    )
    gang = seen.gang("js")
    assert gang.state == "queued"
    assert gang.since == ago(200)
    assert gang.requeues == 3
    assert classes(gang) == {"missing": 4}
    assert gang.requested == {GPU: 32}
    assert not gang.attention


def test_row_22_kueue_2208_waiting_for_readiness():
    """Admitted and not ready: every pod is bound and none runs yet. Starting, its GPUs are held in vain."""
    seen = look(
        node("n1"),
        node("n2"),
        workload("wl", ("JobSet", "js"), podset(2), admitted=400, pods_ready=("False", 600, "WaitForStart")),
        bound("w0", of_workload("wl"), "n1", since=390),
        bound("w1", of_workload("wl"), "n2", since=380),
    )
    gang = seen.gang("js")
    assert gang.state == "starting"
    assert gang.since == ago(390)
    assert seen.idle_by_reason() == {"starting": 16}


def test_row_23_lws_167():
    """Leader running, workers pending: partial where a group object exists.

    The row has only a hint for a LeaderWorkerSet without one. By the model its group is a gang of engine `job`.
    """
    pods = [
        ready("lws-0", of_lws("lws", 0, 4), "n1"),
        *[unscheduled(f"lws-0-{index}", of_lws("lws", 0, 4), NO_GPU) for index in (1, 2, 3)],
    ]
    bare = look(node("n1"), *pods, unread=NOTHING_INSTALLED)
    assert bare.gang("lws-0").queue.engine == "job"
    assert bare.gang("lws-0").state == "partial"

    grouped = look(
        node("n1"),
        pod_group("train", 4),
        ready("lws-0", TRAIN + of_lws("lws", 0, 4), "n1"),
        *[unscheduled(f"lws-0-{index}", TRAIN + of_lws("lws", 0, 4), NO_GPU) for index in (1, 2, 3)],
    )
    assert grouped.names == {("coscheduling", "team", "train")}
    assert grouped.gang("train").state == "partial"


@pytest.mark.parametrize("name", ["PodGroupScheduled", "PodGroupInitiallyScheduled"])
def test_row_25_kubernetes_136334(name: str):
    """The native condition stays True below minCount: the gang was complete once; the pods tell of now."""
    tie = of_native("train")
    seen = look(
        *[node(f"n{index}") for index in range(3)],
        native_group("train", 4, once=name),
        *[ready(f"w{index}", tie, f"n{index}") for index in range(3)],
    )
    gang = seen.gang("train")
    assert gang.queue.engine == "kubernetes"
    assert gang.state == "degraded"
    assert classes(gang) == {"ready": 3, "missing": 1}
    assert seen.idle_by_reason() == {"degraded": 24}


def test_row_28_hami_volcano_vgpu_116():
    """A gang of virtual GPUs is held back though cards are idle: rejected, under the name of its own resource."""
    vgpu = {"volcano.sh/vgpu-number": 2}
    seen = look(
        node("n1", vgpu),
        pod_group("train", 2),
        *[unscheduled(f"w{index}", TRAIN, SIBLINGS, gpus=vgpu) for index in range(2)],
        gpus=GpuResources(("volcano.sh/vgpu-number",)),
    )
    gang = seen.gang("train")
    assert gang.state == "rejected"
    assert gang.requested == {"volcano.sh/vgpu-number": 4}
    assert seen.free("volcano.sh/vgpu-number") == 2


# --- the further cases of that table ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("nominated", "expected"), [("n1", "waiting_permit"), ("", "new")])
def test_further_scheduling_gated_left_over(nominated: str, expected: str):
    """SchedulingGated with no gates left says nothing: with a nomination the pod waits, without one it is new."""
    seen = look(
        node("n1"), pod_group("train", 2), *[ungated(f"w{index}", TRAIN, nominated, gpus=4) for index in range(2)]
    )
    assert classes(seen.gang("train")) == {expected: 2}


def test_further_nomination_beside_a_preempted_victim():
    """A plain filter text with a nomination while the victim goes: nominated. The victim still holds its GPUs."""
    victim = terminating(ready("victim", LONE, "n1"), began=5, grace=30)
    victim["status"]["conditions"].append(
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "lastTransitionTime": stamp(5),
        },
    )
    seen = look(
        node("n1"),
        pod_group("train", 2),
        victim,
        unscheduled("w0", TRAIN, PLAIN_NO_GPU, nominated="n1"),
        unscheduled("w1", TRAIN, NO_GPU),
    )
    assert classes(seen.gang("train")) == {"nominated": 1, "unschedulable": 1}
    assert (seen.other, seen.idle, seen.free()) == (8, 0, 0)


def test_further_podgroup_missing_for_labelled_pods():
    """Labelled pods whose PodGroup does not exist: an orphan gang, and nobody knows what it requires."""
    seen = look(node("n1"), ready("w0", TRAIN, "n1"), new("w1", TRAIN))
    gang = seen.gang("train")
    assert gang.state == "orphan"
    assert gang.required is None
    assert (seen.busy, seen.idle, seen.other) == (0, 0, 8)


@pytest.mark.parametrize("min_member", [None, 0, 1])
def test_further_min_member_absent(min_member: int | None):
    """A PodGroup that demands no more than one member is no gang; its pods are of no gang."""
    seen = look(node("n1"), pod_group("train", min_member), ready("w0", TRAIN, "n1"), new("w1", TRAIN))
    assert seen.names == set()
    assert seen.other == 8


def test_further_finished_gang_with_recreated_pods():
    """Two members have ended well and two of a new run were made: the old successes do not complete the new run."""
    first, second = owned("Job", "first"), owned("Job", "second")
    seen = look(
        node("n1"),
        node("n2"),
        pod_group("train", 2, created=9000, phase="Finished"),
        *[succeeded(f"old-{index}", TRAIN + first, "n1", created=9000, since=8900) for index in range(2)],
        bound("new-0", TRAIN + second, "n1", since=100, created=200),
        new("new-1", TRAIN + second, created=200),
    )
    assert seen.gang("train").state == "partial"
    assert seen.idle_by_reason() == {"partial": 8}


def test_further_nomination_on_a_bound_pod():
    """Before 1.35 the API server leaves the nomination on a bound pod: the node decides, and nobody waits."""
    left = {"nominatedNodeName": "n1"}
    seen = look(
        node("n1"), pod_group("train", 2), *[ready(f"w{index}", TRAIN, "n1", gpus=4, status=left) for index in range(2)]
    )
    assert classes(seen.gang("train")) == {"ready": 2}
    assert seen.gang("train").reserved == {}


def test_further_pod_without_gpus_or_group_is_not_kept():
    """A pod that neither asks for a GPU nor names a group is nothing to this check."""
    seen = look(node("n1"), pod("web", LONE, gpus=0))
    assert seen.names == set()
    assert (seen.busy, seen.idle, seen.other) == (0, 0, 0)
