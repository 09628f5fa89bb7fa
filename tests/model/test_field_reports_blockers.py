# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Public reports of gangs that did not run, and the reason that the check owes them.

As in `test_field_reports`: `test_bN` are the reports. Where the report names a cause in other words, the docstring says
which blocker that is.
"""

import pytest

from tests.model.build import (
    ADMISSION_GATE,
    ELASTIC_GATE,
    GPU,
    LONE,
    NO_GPU,
    SIBLINGS,
    TOPOLOGY_GATE,
    TRIGGER,
    Json,
    Seen,
    flavor,
    gated,
    local_queue,
    look,
    new,
    node,
    of_group,
    of_kubeflow,
    of_workload,
    permit_waiter,
    pod_group,
    podset,
    ready,
    unscheduled,
    workload,
)
from tests.model.kueue import MORE_NEEDED, cluster_queue

TRAIN = of_group("train")


def blocker(seen: Seen, name: str = "train") -> str | None:
    """Return the blocker of a gang."""
    return seen.picture.verdicts.blockers.get(seen.gang(name).key)


def blocked(seen: Seen) -> dict[str, int]:
    """Return how many gangs each blocker has: the metric gangs.blocked."""
    counted: dict[str, int] = {}
    for (_, name), number in seen.picture.verdicts.blocked.items():
        counted[name] = counted.get(name, 0) + number
    return counted


def hosts(*used: int) -> list[Json]:
    """Return nodes of 8 GPUs, of which pods of no gang use so many."""
    return [
        *(node(f"n{index}") for index in range(len(used))),
        *(ready(f"plain-{index}", LONE, f"n{index}", gpus=amount) for index, amount in enumerate(used) if amount),
    ]


def test_b1_scheduler_plugins_930():
    """Let through although one fits: the sibling's "unschedulable_member" is that no GPU is free for it. Capacity."""
    seen = look(
        node("n1"), node("n2", 0), pod_group("train", 2), ready("a", TRAIN, "n1"), unscheduled("b", TRAIN, NO_GPU)
    )
    assert seen.free() == 0
    assert blocker(seen) == "capacity"


@pytest.mark.parametrize("seen_waiting", [True, False])
def test_b2_scheduler_plugins_713(seen_waiting: bool):
    """Nine of ten are assumed, and the tenth does not fit: 72 GPUs for 80, whether the nine can be seen or not."""
    waiters = [
        permit_waiter(f"w{index}", TRAIN, f"n{index}") if seen_waiting else new(f"w{index}", TRAIN)
        for index in range(9)
    ]
    seen = look(*hosts(*[0] * 9), pod_group("train", 10), *waiters, unscheduled("w9", TRAIN, NO_GPU))
    assert blocker(seen) == "capacity"


@pytest.mark.parametrize("text", [NO_GPU, TRIGGER])
def test_b7_scheduler_plugins_429(text: str):
    """Free 6, 2, 2, 2: twelve in sum for three pods of 4, one of which fits. The cause is fragmentation."""
    seen = look(
        *hosts(2, 6, 6, 6),
        pod_group("train", 3),
        *(unscheduled(f"w{index}", TRAIN, text, gpus=4) for index in range(3)),
    )
    assert seen.free() == 12
    assert blocker(seen) == "fragmentation"


@pytest.mark.parametrize(("used", "expected"), [((2, 6, 6, 7), "capacity"), ((2, 4, 4, 6), "not_retried")])
def test_b7_one_gpu_less_or_a_little_more_room(used: tuple[int, ...], expected: str):
    """Eleven free are too few in sum; with 6, 4, 4, 2 each of the three has a node, and it has to be tried again."""
    seen = look(
        *hosts(*used),
        pod_group("train", 3),
        *(unscheduled(f"w{index}", TRAIN, TRIGGER, gpus=4) for index in range(3)),
    )
    assert blocker(seen) == expected


def test_b10_mpi_operator_608():
    """MinMember counts a launcher that is created after the workers run: waiting on a pod that does not exist.

    Not unschedulable, and not the GPUs: four of the five nodes would take the workers.
    """
    tie = TRAIN + of_kubeflow("mpi", "worker", "MPIJob")
    text = SIBLINGS.replace("number: 3", "number: 4").replace("group: 4", "group: 5")
    seen = look(
        *hosts(0, 0, 0, 0, 0),
        pod_group("train", 5),
        *(unscheduled(f"w{index}", tie, text) for index in range(4)),
    )
    assert seen.gang("train").missing == 1
    assert blocker(seen) == "missing_pods"


@pytest.mark.parametrize("reason", ["", "Pending", "PendingEvaluation"])
def test_b14_kueue_8309(reason: str):
    """The head of a StrictFIFO queue needs B300, of which 16 of 16 are used; three later ones need B200, 0 of 40 used.

    What is told: four gangs wait for quota in that queue (the head short of 16, the others not looked at), and 40 GPUs
    are free meanwhile. That the head is what the others wait for, Kueue does not say of them, and nobody claims it.
    """
    pools = {"b300": 2, "b200": 5}
    objects: list[Json] = [
        local_queue("lq", "cq"),
        cluster_queue(flavors={"b300": 16, "b200": 40}),
        *(flavor(pool, {"gpu": pool}) for pool in pools),
        *(node(f"{pool}-{index}", labels={"gpu": pool}) for pool, number in pools.items() for index in range(number)),
        workload("old-wl", ("JobSet", "old"), podset(2), admitted=900),
        *(ready(f"old-{index}", of_workload("old-wl"), f"b300-{index}") for index in range(2)),
    ]
    waiting = {"head": "b300", "second": "b200", "third": "b200", "fourth": "b200"}
    for name, pool in waiting.items():
        made = workload(f"{name}-wl", ("JobSet", name), podset(2))
        made["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] = {"gpu": pool}
        if name == "head" or reason:
            made["status"]["conditions"] = [
                {
                    "type": "QuotaReserved",
                    "status": "False",
                    "reason": "WaitingForQuota" if name == "head" else reason,
                    "message": MORE_NEEDED.format(GPU, "b300", 16) if name == "head" else "",
                }
            ]
        objects.append(made)
    seen = look(*objects)
    assert {name: blocker(seen, name) for name in waiting} == dict.fromkeys(waiting, "quota")
    assert blocked(seen) == {"quota": 4}
    assert (seen.busy, seen.idle, seen.free()) == (16, 0, 40)


@pytest.mark.parametrize("gate", [ADMISSION_GATE, TOPOLOGY_GATE, ELASTIC_GATE])
def test_b20_kueue_4446(gate: str):
    """Gated is not "admitted and not schedulable": one gang of each kind is one gated and one unschedulable."""
    text = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
    seen = look(
        *hosts(0, 0),
        pod_group("train", 2),
        *(gated(f"w{index}", TRAIN, gate) for index in range(2)),
        pod_group("eval", 2),
        *(unscheduled(f"e{index}", of_group("eval"), text) for index in range(2)),
    )
    assert blocker(seen) == "gated"
    assert blocker(seen, "eval") == "unschedulable"
    assert blocked(seen) == {"gated": 1, "unschedulable": 1}


def test_row_12_scheduler_plugins_358():
    """A recreated member is turned away since its siblings are not there: pods are missing, one of three."""
    seen = look(
        *hosts(0, 0, 0), pod_group("train", 3), *(unscheduled(f"w{index}", TRAIN, SIBLINGS) for index in range(2))
    )
    assert blocker(seen) == "missing_pods"
