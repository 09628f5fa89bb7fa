# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""How many series the check sends, computed from the tags of the catalog.

Each series is a custom metric and is billed as one, so the number for a large cluster is kept below a bound, and the
docs quote it. A list of tags tells which values are possible, not which of them are seen at one time. So:

* In a queue a tag takes the few values of a queue in which all is well, and each gang that needs attention adds a few
  (`_IN_A_QUEUE`). Those that were left within the last minutes are included where they are still sent, as 0.
* What is sent only when something happens exists in the queues in which that was so within an hour (`_EVENTS`).
* Series of one gang exist for the gangs that need attention.
* What an option must ask for (`_ON_REQUEST`) is no part of the number, and is told for that option.
* Any other metric has the product of how many values each of its tags has (`_values`).

What was assumed for this is told in `ASSUMPTIONS`, for the docs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Final, NamedTuple

from datadog_checks.kueue_gang import catalog
from datadog_checks.kueue_gang.derive.rules import SLOTS
from lab.tags import SIGNAL_SOURCES, TAGS


@dataclass(frozen=True, slots=True)
class Size:
    """A cluster.

    `attention` of the gangs need attention; `namespaces` hold GPU pods outside of any LocalQueue; in `moving`
    LocalQueues a gang begins to run or is evicted within an hour.
    """

    local_queues: int = 50
    cluster_queues: int = 20
    gangs: int = 200
    attention: int = 15
    levels: int = 3
    flavors: int = 2
    namespaces: int = 10
    moving: int = 10
    gpu_resources: int = 2
    priority_classes: int = 3


class Cost(NamedTuple):
    """Numbers of series: of this check, of Kueue's metrics, and what options add.

    `every_gang`: with `per_gang_metrics: all`. `local_queues`: with `kueue_local_queue_metrics: true`. The others: with
    the option of that name (`price`: `gpu_hourly_price`); `training` where every gang tells of itself.
    """

    own: int
    scraped: int
    every_gang: int
    local_queues: int
    training: int
    activity: int
    price: int


#: The cluster for which the bounds hold.
LARGE: Final = Size()
#: What is assumed of it beside its size, in words.
ASSUMPTIONS: Final = (
    "The gangs of a queue have one engine and ask for one GPU resource. Nodes offer two.",
    "Ten more namespaces hold GPU pods outside of any queue; they are in no gang.",
    "Within an hour gangs of ten queues begin to run, and others of ten queues are evicted.",
    "A queue has running and queued gangs and lately started one.",
    "A gang that needs attention adds its present state, the one before, and members in four classes.",
    "A ClusterQueue has three priority classes, two reasons for evictions, and three resources in each flavor.",
    "Kueue serves its quota metrics (`enableClusterQueueResources`).",
    "Eight plugins of the scheduler turn pods away. One kind of object cannot be understood.",
    "Both flavors have a topology and one GPU resource. One kind of gang lacks gang scheduling, for four reasons.",
    "With `training` each gang has one unit and a TrainJob, and `max_gangs` (100 by default) is so large that all do.",
    "The gangs that need attention are stalled, by one signal or the other.",
)

#: Tag -> values in a queue in which all is well, and values that a gang in need of attention adds; the second pair is
#: without those that were left and are still sent, as 0.
_IN_A_QUEUE: Final[Mapping[str, tuple[tuple[int, int], tuple[int, int]]]] = {
    "gang_state": ((3, 2), (2, 1)),
    "member_state": ((3, 4), (3, 4)),
    "gpu_use": ((2, 1), (1, 1)),
    "idle_reason": ((1, 2), (0, 1)),
    "stall_reason": ((0, 2), (0, 1)),
    "workload_stage": ((3, 0), (2, 1)),
}
#: Metric of what happens -> how many series it has in a queue in which that is so: a Workload that begins to run
#: reaches three stages.
_EVENTS: Final[Mapping[str, int]] = {
    "gangs.assembled": 1,
    **dict.fromkeys((f"gangs.assembly_seconds.{part}" for part in ("sum", "count", "max")), 1),
    **dict.fromkeys((f"workloads.stage_seconds.{part}" for part in ("sum", "count", "max")), 3),
    "workloads.evicted": 1,
    "gpus.burned_seconds": 1,
}
#: Tags that have no closed list, or of which only so many values are seen beside one value of each other tag.
_SEEN: Final[Mapping[str, int]] = {
    "active": 3,
    "cohort": 1,
    "is_group": 2,
    "kueue_eviction_reason": 2,
    "name": 2,
    "plugin": 8,
    "queue": 4,
    "reason": 2,
    "resource": 3,
    "result": 3,
    "slot": len(SLOTS),
    "status": 3,
    # That of the flavor.
    "topology": 1,
    "underlying_cause": 1,
}
#: The same for `reason` where it is another number: a source has one at a time, and half of what samples may be instead
#: of numbers is told of signals only.
_REASONS: Final[Mapping[str, int]] = {"gangs.unguarded": 4, "source.up": 1, "source.bad_samples": 2}
#: Metrics that are sent only where an option is set, by option. A stalled gang tells by one of the signals: it is here
#: once for each.
_ON_REQUEST: Final[Mapping[str, frozenset[str]]] = {
    "training": frozenset({"gangs.stalled", "gang.throughput", "gang.throughput_per_gpu", "gang.progress"}),
    "activity": frozenset({"gangs.stalled"}),
    "price": frozenset({"gpus.idle_cost"}),
}
#: Where a gang lies is told beside its throughput, to see whether the one makes the other.
_BESIDE_THROUGHPUT: Final = frozenset({"gang.topology_domains", "gang.topology_domains_needed"})
#: What is read because of an option.
_SOURCES: Final[Mapping[str, frozenset[str]]] = {
    "activity": frozenset({"activity"}),
    "training": frozenset(SIGNAL_SOURCES) - {"activity"},
}


def cost(size: Size = LARGE) -> Cost:
    """Return the numbers of series for a cluster."""
    on_request = frozenset().union(*_ON_REQUEST.values())
    own = [metric for name, metric in catalog.OWN.items() if name not in on_request]
    every_gang = replace(size, attention=size.gangs)
    one_gang = [metric for metric in own if "gang" in metric.tags]
    beside = [catalog.OWN[name] for name in _BESIDE_THROUGHPUT]
    return Cost(
        own=_sum(own, size),
        scraped=_sum(_metrics(catalog.CLUSTER_QUEUE_FAMILIES), size),
        every_gang=_sum(one_gang, every_gang) - _sum(one_gang, size),
        local_queues=_sum(_metrics(catalog.LOCAL_QUEUE_FAMILIES), size),
        training=_added("training", every_gang, size) + _sum(beside, every_gang) - _sum(beside, size),
        activity=_added("activity", size, size),
        price=_added("price", size, size),
    )


def _added(option: str, gangs: Size, size: Size) -> int:
    """Return what an option adds; `gangs` is the size with as many gangs in need of attention as have series by it."""
    found = [catalog.OWN[name] for name in _ON_REQUEST[option]]
    sources = len(_SOURCES.get(option, ()))
    per_source = sum(
        series(metric, size) // _values(metric, size)["api_source"]
        for metric in catalog.OWN.values()
        if "api_source" in metric.tags
    )
    return sum(series(metric, gangs if "gang" in metric.tags else size) for metric in found) + sources * per_source


def series(metric: catalog.Metric, size: Size) -> int:
    """Return how many series a metric has."""
    if "gang" in metric.tags:
        levels = size.levels if "topology_level" in metric.tags else 1
        return size.attention * levels * (_IN_A_QUEUE["member_state"][0][1] if "member_state" in metric.tags else 1)
    if metric.name in _EVENTS:
        return size.moving * _EVENTS[metric.name]
    if metric.name == "source.bad_objects":
        return 1
    if set(metric.tags) >= set(catalog.QUEUE_TAGS) or metric.name.partition(".")[0] == "workloads":
        # A metric without another tag of its own, such as reserved GPUs, is about gangs that wait.
        kept = metric.zero == "never"
        usual, added = next((_IN_A_QUEUE[tag][kept] for tag in metric.tags if tag in _IN_A_QUEUE), (0, 1))
        queues = size.local_queues + (size.namespaces if "gpu_use" in metric.tags else 0)
        return queues * usual + size.attention * added
    # A LocalQueue is in one namespace and belongs to one ClusterQueue.
    told = {"kube_namespace", "kueue_cluster_queue"} if "kueue_local_queue" in metric.tags else set()
    values = _values(metric, size)
    return prod(values[tag] for tag in metric.tags if tag not in told)


def _values(metric: catalog.Metric, size: Size) -> dict[str, int]:
    """Return how many values each tag has."""
    values = {tag.key: tag.values for tag in TAGS if tag.values}
    return {
        **{key: len(found) for key, found in values.items()},
        **_SEEN,
        "api_source": len(set(values["api_source"]) - frozenset().union(*_SOURCES.values())),
        "reason": _REASONS.get(metric.name, _SEEN["reason"]),
        "kueue_local_queue": size.local_queues,
        "kueue_cluster_queue": size.cluster_queues,
        "preempting_cluster_queue": size.cluster_queues,
        "kueue_resource_flavor": size.flavors,
        "kueue_workload_priority_class": size.priority_classes,
        "topology_level": size.levels,
        # A flavor has the resource of its nodes, and quota is of that.
        "gpu_resource": 1 if {catalog.FLAVOR, "kueue_cluster_queue"} & {*metric.tags} else size.gpu_resources,
        "gang_engine": 1,
    }


def _metrics(families: Iterable[catalog.Family]) -> list[catalog.Metric]:
    return [metric for family in families for metric in family.metrics()]


def _sum(metrics: Iterable[catalog.Metric], size: Size) -> int:
    return sum(series(metric, size) for metric in metrics)
