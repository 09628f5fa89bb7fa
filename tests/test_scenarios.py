# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Each scenario shows in what the check sends what the comment of its file promises, and the check tells the truth.

What is expected was reckoned by hand from the scenario's file: how many pods and GPUs there are, and when what happens.
The truth is what the simulation knows itself. A world has the same history whether a check looks at it or not, so the
truth is taken from a second one.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from lab.simulation.scenario import known, load
from lab.simulation.truth import Truth, truth
from lab.simulation.values import seconds
from lab.simulation.world import World
from lab.timeline import Timeline

IDLE = ("gpus.idle", "idle_reason")
STATES = ("gangs", "gang_state")
BLOCKED = ("gangs.blocked", "blocker")
DEADLOCKED = ("gangs.deadlocked", "kube_cluster_name")
RESERVED = ("gpus.reserved", "kube_namespace")
MEMBERS = ("members", "member_state")
STALLED = ("gangs.stalled", "stall_reason")
PLACED = ("topology.gangs", "placement")
WITHOUT_PODS = ("workloads.without_pods", "kube_namespace")
EVICTED = ("workloads.evicted", "gang_partial")
UNGUARDED = ("gangs.unguarded", "reason")
OLDEST = ("workloads.oldest_wait_seconds", "kube_namespace")
RACKS = "topology_level:cloud.provider.com/topology-rack"
ATTENTION = ("gang.state_seconds", "gang")


class Promise(NamedTuple):
    """In each moment from `begin` to `end` a metric has these sums by a tag, zeros left out."""

    begin: str
    end: str
    metric: tuple[str, str]
    wanted: dict[str, float]
    tags: tuple[str, ...] = ()


NOTHING: dict[str, float] = {}

PROMISES: dict[str, tuple[Promise, ...]] = {
    "healthy-day": (
        Promise("1m", "3h", BLOCKED, NOTHING, ("blocker:capacity",)),
        Promise("1m", "3h", IDLE, NOTHING, ("idle_reason:partial",)),
        Promise("1m", "3h", IDLE, NOTHING, ("idle_reason:degraded",)),
        Promise("1m", "3h", IDLE, NOTHING, ("idle_reason:lost",)),
        Promise("1m", "3h", IDLE, NOTHING, ("idle_reason:inactive",)),
        *(Promise("1m", "3h", ATTENTION, NOTHING, (f"gang_state:{state}",))
          for state in ("partial", "degraded", "starting", "waiting", "rejected", "pending", "stopping", "orphan")),
        Promise("1m", "3h", STALLED, NOTHING),
        # Two ablations: one of 192 GPUs is taken by trainings (128), an evaluation (16) and the first ablation (32).
        Promise("56m", "1h", BLOCKED, {"quota": 2}),
    ),
    "partial-gang": (
        Promise("9m", "19m", IDLE, NOTHING),
        Promise("20m50s", "1h4m", IDLE, {"partial": 48}),
        Promise("20m50s", "1h4m", STATES, {"partial": 1, "running": 2}),
        Promise("20m50s", "1h4m", BLOCKED, {"capacity": 1}),
        Promise("1h6m", "1h29m", IDLE, NOTHING),
        Promise("1h6m", "1h29m", STATES, {"running": 3}),
    ),
    "permit-starvation": (
        Promise("16m", "24m", STATES, {"running": 2, "waiting": 1}),
        Promise("16m", "59m", RESERVED, {"pretrain": 88}),
        Promise("16m", "59m", MEMBERS, {"waiting_permit": 11}, ("member_state:waiting_permit",)),
        Promise("26m", "59m", STATES, {"running": 2, "waiting": 1, "rejected": 1}),
        Promise("1m", "59m", IDLE, NOTHING),
        Promise("1h2m", "1h10m", STATES, {"running": 3}),
        Promise("1h2m", "1h29m", RESERVED, NOTHING),
    ),
    "deadlock": (
        Promise("20m50s", "1h9m", IDLE, {"partial": 64}),
        Promise("20m50s", "1h9m", DEADLOCKED, {"kobe": 2}),
        Promise("20m50s", "1h9m", ("gpus.deadlocked", "gpu_resource"), {"nvidia.com/gpu": 64}),
        Promise("1m", "19m", DEADLOCKED, NOTHING),
        Promise("1h11m", "1h29m", DEADLOCKED, NOTHING),
        Promise("1h11m", "1h29m", STATES, {"running": 3}),
    ),
    "rack-fragmentation": (
        Promise("21m", "1h14m", STATES, {"running": 4, "queued": 1}),
        Promise("21m", "1h14m", BLOCKED, {"fragmentation": 1}),
        Promise("21m", "1h14m", ("gpus.free", "gpu_resource"), {"nvidia.com/gpu": 128}),
        # Each rack has four free nodes.
        Promise("21m", "1h14m", ("topology.slots", "slot"), NOTHING, (RACKS,)),
        Promise("1m", "1h14m", IDLE, NOTHING),
        Promise("1h17m", "1h29m", STATES, {"running": 4}),
    ),
    "missing-labels": (
        # 6 of 32 nodes lack the label: 26 have it, and 48 GPUs are not in any rack.
        Promise("21m", "1h9m", ("topology.unlabeled_gpus", "topology_level"), {"cloud.provider.com/topology-rack": 48}),
        Promise("26m", "1h9m", BLOCKED, {"node_labels": 1}),
        Promise("26m", "1h9m", STATES, {"running": 3, "queued": 1}),
        Promise("1m", "19m", ("topology.unlabeled_gpus", "topology_level"), NOTHING),
        Promise("1h12m", "1h29m", STATES, {"running": 4}),
    ),
    "node-failure": (
        Promise("1m", "20m", IDLE, NOTHING),
        Promise("22m30s", "25m", IDLE, {"degraded": 64}),
        Promise("22m30s", "25m", BLOCKED, {"node_lost": 1}),
        # The eviction of the pod is overdue 30 s after it, which is five minutes after NotReady.
        Promise("27m", "59m", IDLE, {"degraded": 56, "terminating": 8}),
        Promise("22m30s", "59m", STATES, {"degraded": 1, "running": 3}),
        Promise("1h2m", "1h29m", IDLE, NOTHING),
        Promise("1m", "1h29m", EVICTED, NOTHING),
    ),
    "crash-loop": (
        Promise("6m", "19m", IDLE, NOTHING),
        Promise("23m", "25m", IDLE, {"degraded": 48}),
        Promise("26m", "30m", BLOCKED, {"crash_loop": 1}),
        Promise("31m", "35m", IDLE, {"degraded": 48}),
        Promise("1h12m", "1h29m", IDLE, NOTHING),
    ),
    "image-pull-stuck": (
        Promise("20m50s", "54m", IDLE, {"starting": 48}),
        Promise("20m50s", "54m", STATES, {"starting": 1, "running": 2}),
        Promise("21m30s", "54m", BLOCKED, {"image_or_init": 1}),
        Promise("57m", "1h14m", STATES, {"running": 3}),
    ),
    "requeue-storm": (
        # The fourth backoff is of eight minutes: 0:42 to 0:50; the fifth attempt is over at 0:55.
        Promise("16m", "19m", IDLE, {"partial": 40}),
        Promise("43m30s", "49m", BLOCKED, {"backoff": 1}),
        Promise("43m30s", "49m", ("gang.requeues", "gang"), {"graph-net": 4}),
        Promise("51m", "54m", IDLE, {"partial": 40}),
        # The seventh time is one too many.
        Promise("1h55m", "2h59m", BLOCKED, {"suspended": 1}),
        Promise("1h55m", "2h59m", IDLE, NOTHING),
    ),
    "quota-beyond-hardware": (
        Promise("26m30s", "1h14m", STATES, {"running": 2, "rejected": 1}),
        Promise("26m30s", "1h14m", BLOCKED, {"capacity": 1}),
        Promise("1m", "1h29m", IDLE, NOTHING),
        # 192 + 32 GPUs of quota, on 16 nodes with 8 each.
        Promise("21m", "1h14m", ("quota.nominal", "kueue_cluster_queue"), {"platform-cq": 192, "labs-cq": 32}),
        Promise("21m", "1h14m", ("gpus.allocatable", "gpu_resource"), {"nvidia.com/gpu": 128}),
        Promise("1h16m", "1h29m", STATES, {"running": 2}),
    ),
    "rejected-not-retried": (
        Promise("16m", "20m", STATES, {"running": 2, "waiting": 1}),
        Promise("23m", "30m", BLOCKED, {"capacity": 1}),
        Promise("32m", "1h14m", BLOCKED, {"not_retried": 1}),
        Promise("23m", "1h14m", ("gangs", "gang_state"), {"rejected": 1}, ("gang_state:rejected",)),
        Promise("1m", "1h14m", IDLE, NOTHING),
        Promise("1h17m", "1h29m", STATES, {"running": 2}),
    ),
    "idle-running-gang": (
        # Nothing for two minutes in the query's window, and then for ten.
        Promise("1m", "35m", IDLE, NOTHING),
        Promise("38m40s", "51m", IDLE, {"inactive": 64}),
        Promise("53m40s", "1h14m", IDLE, {"inactive": 72}),
        Promise("53m40s", "1h14m", STALLED, {"all_idle": 1, "some_idle": 1}),
        Promise("1m", "1h29m", STATES, {"running": 3}),
        Promise("1h17m", "1h29m", IDLE, NOTHING),
    ),
    "throughput-collapse": (
        Promise("1m", "49m", STALLED, NOTHING),
        Promise("57m", "1h5m", STALLED, {"slow": 1}),
        Promise("1h13m", "1h39m", STALLED, {"slow": 1, "no_progress": 1}),
        Promise("1m", "1h59m", IDLE, NOTHING),
        Promise("1h48m", "1h59m", STALLED, NOTHING),
    ),
    "unguarded-gang": (
        Promise("1m", "19m", UNGUARDED, NOTHING),
        Promise("20m50s", "1h", UNGUARDED, {"min_member": 1}),
        Promise("20m50s", "1h", STATES, {"running": 2}),
        Promise("20m50s", "1h", BLOCKED, NOTHING),
        Promise("20m50s", "1h", IDLE, NOTHING),
        # The second run is whole, and so is its PodGroup.
        Promise("1h5m50s", "1h29m", STATES, {"running": 2}),
        Promise("1h5m50s", "1h29m", UNGUARDED, NOTHING),
        Promise("1h5m50s", "1h29m", IDLE, NOTHING),
    ),
    "waits-for-hours": (
        Promise("11m", "4h24m", STATES, {"running": 2, "queued": 1}),
        Promise("11m", "4h24m", BLOCKED, {"quota": 1}),
        Promise("11m", "4h24m", ("gpus.free", "gpu_resource"), {"nvidia.com/gpu": 64}),
        # Four hours after 0:10.
        Promise("4h10m", "4h10m", OLDEST, {"agents": 14400}, ("workload_stage:pending",)),
        Promise("4h27m", "4h49m", STATES, {"running": 2}),
        Promise("4h27m", "4h49m", OLDEST, NOTHING, ("workload_stage:pending",)),
        Promise("1m", "4h49m", IDLE, NOTHING),
    ),
    "spread-gang": (
        Promise("1m", "19m", PLACED, {"match": 2}, (RACKS,)),
        Promise("20m50s", "59m", PLACED, {"match": 1, "violation": 1}, (RACKS,)),
        Promise("20m50s", "59m", ("gang.topology_domains", "gang"), {"moe-8x": 2}, (RACKS,)),
        Promise("1h50s", "1h29m", PLACED, {"match": 2}, (RACKS,)),
        Promise("1m", "1h29m", ("topology.unlabeled_gpus", "topology_level"), NOTHING),
        Promise("1m", "1h29m", STATES, {"running": 2}),
        Promise("1m", "1h29m", IDLE, NOTHING),
    ),
    "no-pods": (
        Promise("1m", "20m", WITHOUT_PODS, NOTHING),
        Promise("21m30s", "1h", WITHOUT_PODS, {"genomics": 1}),
        Promise("21m30s", "1h", ("quota.without_pods", "kueue_cluster_queue"), {"genomics-cq": 48}),
        Promise("25m50s", "1h", STATES, {"running": 1, "pending": 1, "queued": 1}),
        Promise("25m50s", "1h", BLOCKED, {"missing_pods": 1, "quota": 1}),
        Promise("20m50s", "1h", ("gpus.free", "gpu_resource"), {"nvidia.com/gpu": 96}),
        Promise("1m", "1h", IDLE, NOTHING),
        # Tried again by 1:01, and then its pods start.
        Promise("1h1m30s", "1h29m", WITHOUT_PODS, NOTHING),
        Promise("1h1m30s", "1h29m", STATES, {"running": 2, "queued": 1}),
    ),
    "check-blind": (
        Promise("1m", "19m", ("source.up", "api_source"), {"pods": 1}, ("api_source:pods",)),
        Promise("20m50s", "54m", ("source.up", "api_source"), NOTHING, ("api_source:pods",)),
        Promise("40m50s", "54m", ("source.up", "api_source"), NOTHING, ("api_source:kueue_metrics",)),
        Promise("26m", "54m", ("gpus.allocated", "gpu_use"), NOTHING),
        Promise("56m30s", "1h6m", ("gpus.allocated", "gpu_use"), {"busy": 96}),
    ),
}  # fmt: skip

#: Evictions of a whole scenario: by whether a part of the gang was placed.
EVICTIONS = {
    # One is preempted, and had run.
    "healthy-day": {"false": 1},
    # Six are not ready in time, the seventh gives up.
    "requeue-storm": {"true": 7},
}
#: Scenarios in which GPUs may do nothing though all pods are up: the API does not tell.
SIGNALS = {"idle-running-gang", "throughput-collapse"}
#: Moments at which the check is blind.
BLIND = {"check-blind": (seconds("20m", ""), seconds("55m", ""))}


def test_every_scenario_promises_something():
    """A scenario without a row here is not tested."""
    assert set(known()) == set(PROMISES)


@pytest.mark.parametrize("name", known())
def test_a_scenario_keeps_its_promises(name: str, played: Callable[[str], Timeline]) -> None:
    """Each row of the table, in each moment that it is about; and as many evictions as it has."""
    timeline = played(name)
    assert list(broken(timeline)) == []
    evicted: dict[str, float] = {}
    for moment in timeline.moments:
        for value, number in moment.by(*EVICTED).items():
            evicted[value] = evicted.get(value, 0.0) + number
    assert evicted == EVICTIONS.get(name, {})


@pytest.mark.parametrize("name", known())
def test_the_check_tells_the_truth(name: str, played: Callable[[str], Timeline]) -> None:
    """In every moment in which it can know: GPUs allocated, idle, reserved and free."""
    timeline, world = played(name), World(load(name))
    truths = []
    for moment in timeline.moments:
        world.run_until(moment.at)
        truths.append(truth(world))
    assert list(lies(timeline, truths)) == []


def broken(timeline: Timeline) -> Iterator[str]:
    """Yield the promises that are not kept, with the first moment of each."""
    for promise in PROMISES[timeline.name]:
        moments = list(timeline.between(seconds(promise.begin, ""), seconds(promise.end, "")))
        assert moments, promise
        metric, key = promise.metric
        for moment in moments:
            found = moment.by(metric, key, *promise.tags)
            if found != pytest.approx(promise.wanted):
                yield f"{moment.at - timeline.start:g} s: {promise}: {found}"
                break


def lies(timeline: Timeline, truths: list[Truth]) -> Iterator[str]:
    """Yield the moments at which the check says something else than what is so."""
    blind = BLIND.get(timeline.name, (0.0, -1.0))
    for moment, known_truth in zip(timeline.moments, truths, strict=True):
        at = moment.at - timeline.start
        if not known_truth.settled or blind[0] <= at <= blind[1]:
            continue
        inactive = moment.total("gpus.idle", "idle_reason:inactive")
        assert not inactive or timeline.name in SIGNALS
        said = {
            "allocated": moment.total("gpus.allocated"),
            "idle": moment.total("gpus.idle") - inactive,
            "reserved": moment.total("gpus.reserved"),
            "free": moment.total("gpus.free"),
        }
        true = {
            "allocated": known_truth.allocated,
            "idle": sum(known_truth.idle.values()),
            "reserved": known_truth.reserved,
            "free": known_truth.free,
        }
        if said != true:
            yield f"{at:g} s: {said}, and it is {true}"
