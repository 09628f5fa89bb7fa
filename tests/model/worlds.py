# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Small clusters drawn at random for test_exhaustive, and the API objects that a server would show of them."""

from random import Random

from tests.model.build import (
    GPU,
    LONE,
    Json,
    Tie,
    bound,
    condition,
    flavor,
    local_queue,
    node,
    of_group,
    permit_waiter,
    pod_group,
    podset,
    ready,
    taint,
    terminating,
    toleration,
    unscheduled,
    workload,
)
from tests.model.exhaustive import HOSTNAME, Box, Labels, Machine, Party, Taint, Toleration, World

TOPOLOGY, FLAVOR = "x", "gpu"
MISFIT = 'couldn\'t assign flavors to pod set main: topology "x" allows to fit only 1 out of 2 pod(s)'
_LEVELS = (("rack", HOSTNAME), ("block", "rack", HOSTNAME), ("rack",))
_TAINTS: tuple[Taint, ...] = (
    ("dedicated", "a", "NoSchedule"),
    ("dedicated", "b", "NoExecute"),
    ("dedicated", "a", "PreferNoSchedule"),
    (GPU, "present", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "", "NoSchedule"),
)
_TOLERATIONS: tuple[Toleration, ...] = (
    ("dedicated", "Exists", "", ""),
    ("dedicated", "Equal", "a", "NoSchedule"),
    ("dedicated", "Equal", "b", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "Exists", "", ""),
)


def draw(random: Random) -> World:
    """Return a cluster of up to 6 nodes and 4 gangs; every kind of trouble is in many of them, none is in all."""
    levels = random.choice(_LEVELS)
    lacking = random.choice((0, 0, 0.3))
    tainted, down = random.choice((0, 0.3)), random.choice((0, 0, 0.2))
    machines = tuple(_machine(random, f"n{index}", lacking, tainted, down) for index in range(random.randint(1, 6)))
    used = dict.fromkeys((machine.name for machine in machines), 0)
    others = tuple(_other(random, f"o{index}", machines, used) for index in range(random.choice((0, 0, 1, 2, 3))))
    unequal = random.random() < 0.4
    parties = tuple(
        _party(random, f"g{index}", machines, used, levels, unequal=unequal) for index in range(random.randint(1, 4))
    )
    return World(machines, parties, levels, tuple(other for other in others if other.node))


def _machine(random: Random, name: str, lacking: float, tainted: float, down: float) -> Machine:
    capacity = random.choice((4, 8, 8))
    labels: Labels = (
        (HOSTNAME, name),
        *((key, random.choice(values)) for key, values in (("block", "pq"), ("rack", "rst"), ("pool", "ab"))
          if random.random() >= lacking),
    )  # fmt: skip
    return Machine(
        name=name,
        capacity=capacity,
        allocatable=random.choice((4, capacity)) if random.random() < 0.1 else capacity,
        labels=labels,
        taints=(random.choice(_TAINTS),) if random.random() < tainted else (),
        cordoned=random.random() < down / 2,
        ready=random.random() >= down / 2,
    )


def _spot(random: Random, gpus: int, machines: tuple[Machine, ...], used: dict[str, int]) -> str:
    """Return a node where so many GPUs were free when all of the node's worked, '' if there is none."""
    room = [machine.name for machine in machines if machine.capacity - used[machine.name] >= gpus]
    if not room:
        return ""
    name = random.choice(room)
    used[name] += gpus
    return name


def _other(random: Random, name: str, machines: tuple[Machine, ...], used: dict[str, int]) -> Box:
    gpus = random.choice((1, 2, 4, 8))
    return Box(name, gpus, _spot(random, gpus, machines, used), leaving=random.choice(("", "grace", "overdue")))


def _party(
    random: Random,
    name: str,
    machines: tuple[Machine, ...],
    used: dict[str, int],
    levels: tuple[str, ...],
    *,
    unequal: bool,
) -> Party:
    size = random.randint(2, 4)
    required = random.choice(levels) if random.random() < 0.3 else ""
    wish = _wish(random, random.choice((1, 2, 3, 4, 8)))
    holds = 0 if required else random.choice((0, 1, 1, 2, size))
    upness = random.choice((0, 0.5, 1, 1))
    waiting = random.choice((0, 0, 0, 0.5))
    boxes = []
    for index in range(size):
        gpus, selector, tolerates = wish
        if unequal and not required and random.random() < 0.6:
            gpus, selector, tolerates = _wish(random, random.choice((1, 2, 3, 4, 5, 6)))
        spot = _spot(random, gpus, machines, used) if index < holds else ""
        up, waits = (bool(spot) and random.random() < chance for chance in (upness, waiting))
        boxes.append(Box(f"{name}-{index}", gpus, spot, selector, tolerates, up=up and not waits, waits=waits))
    # A gang may have more pods than it needs; which of unequal ones it gets is up to the scheduler.
    spare = not unequal and not required and size > 2 and random.random() < 0.1
    return Party(name, tuple(boxes), size - spare, required)


def _wish(random: Random, gpus: int) -> tuple[int, Labels, tuple[Toleration, ...]]:
    selector = (("pool", random.choice("ab")),) if random.random() < 0.25 else ()
    pinned = ((HOSTNAME, f"n{random.randint(0, 5)}"),) if random.random() < 0.05 else ()
    return gpus, (*pinned, *selector), (random.choice(_TOLERATIONS),) if random.random() < 0.4 else ()


# --- as the API server shows it --------------------------------------------------------------------------------------


def objects(world: World, random: Random) -> list[Json]:
    """Return the objects of a cluster, in any order."""
    made: list[Json] = [
        {**flavor(FLAVOR), "spec": {"nodeLabels": {}, "topologyName": TOPOLOGY}},
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Topology",
            "metadata": {"name": TOPOLOGY},
            "spec": {"levels": [{"nodeLabel": level} for level in world.levels]},
        },
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": "cq"},
            "spec": {"resourceGroups": [{"coveredResources": [GPU], "flavors": [
                {"name": FLAVOR, "resources": [{"name": GPU, "nominalQuota": "100"}]}]}]},
        },
        local_queue("lq", "cq"),
    ]  # fmt: skip
    made += [_node(machine) for machine in world.machines]
    made += [_pod(box, LONE, world) for box in world.others]
    for party in world.parties:
        made += [_workload(party)] if party.required else _group(party, world)
    random.shuffle(made)
    return made


def key_of(party: Party) -> tuple[str, str, str]:
    """Return the gang's key."""
    return ("kueue" if party.required else "coscheduling", "team", party.name)


def _node(machine: Machine) -> Json:
    return node(
        machine.name,
        machine.capacity,
        allocatable=machine.allocatable,
        ready_status="True" if machine.ready else "False",
        since=3600,
        cordoned=machine.cordoned,
        taints=[taint(*one) for one in machine.taints],
        labels=dict(machine.labels),
    )


def _spec(box: Box) -> Json:
    return {
        "nodeSelector": dict(box.selector),
        "tolerations": [toleration(key, value, operator, effect) for key, operator, value, effect in box.tolerates],
    }


def _pod(box: Box, tie: Tie, world: World) -> Json:
    if not box.node:
        number = len(world.machines)
        text = f"0/{number} nodes are available: {number} Insufficient {GPU}."
        return unscheduled(box.name, tie, text, gpus=box.gpus, spec=_spec(box))
    if box.waits:
        return permit_waiter(box.name, tie, box.node, gpus=box.gpus, spec=_spec(box))
    made = (ready if box.up else bound)(box.name, tie, box.node, gpus=box.gpus, spec=_spec(box))
    if box.leaving:
        return terminating(made, began=10 if box.leaving == "grace" else 300)
    return made


def _group(party: Party, world: World) -> list[Json]:
    pods = [_pod(box, of_group(party.name), world) for box in party.boxes]
    return [pod_group(party.name, party.needs), *pods]


def _workload(party: Party) -> Json:
    box = party.boxes[0]
    asked = podset(len(party.boxes), gpus=box.gpus, tie=Tie(spec=_spec(box)))
    asked["spec"]["topologyRequest"] = {"required": party.required}
    made = workload(f"jobset-{party.name}", ("JobSet", party.name), asked)
    made["status"]["conditions"].append(condition("QuotaReserved", "False", 300, "Pending", MISFIT))
    return made
