# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Every metric that the check sends, in one table.

The code asks this table for the name, metadata.csv and the tables in the docs are made from it, and the tests hold what
is sent against it. A metric that is not here cannot be sent.

Each metric is a custom metric and is billed by its series, so a series is sent while its value is not zero. `zero` says
what happens after: `tail`, it is sent as 0 for `zero_tail_seconds`, so that monitors recover, and then no more;
`always`, it is sent also as 0; `never`, it just ends (ages, counts and cross products would lie or cost too much).
"""

from dataclasses import dataclass
from typing import Literal

PREFIX = "kueue_gang."

QUEUE_TAGS = ("kube_namespace", "kueue_local_queue", "kueue_cluster_queue", "gang_engine")
GANG_TAGS = ("gang", *QUEUE_TAGS, "owner_kind", "kueue_workload_priority_class")
GPU = "gpu_resource"
FLAVOR = "kueue_resource_flavor"
_CQ = ("kueue_cluster_queue",)
WORKLOAD_TAGS = ("kube_namespace", "kueue_local_queue", "kueue_cluster_queue")
STAGE_TAGS = (*WORKLOAD_TAGS, "workload_stage")
PLACE_TAGS = ("topology", "topology_level", FLAVOR)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: `over` is how a query may combine its series over tags, and over which tags it must not."""

    name: str
    type: Literal["gauge", "count"]
    unit: str
    tags: tuple[str, ...]
    over: str
    zero: Literal["tail", "always", "never"]
    meaning: str
    #: A running total of the source, of which the Agent sends the difference.
    total: bool = False


def _gauge(name: str, unit: str, tags: tuple[str, ...], meaning: str, over: str = "sum", zero: str = "tail") -> Metric:
    return Metric(name, "gauge", unit, tags, over, zero, meaning)  # type: ignore[arg-type]


def _count(name: str, unit: str, tags: tuple[str, ...], meaning: str, *, total: bool = False) -> Metric:
    return Metric(name, "count", unit, tags, "sum", "never", meaning, total)


_GANGS = (
    _gauge("gangs", "", (*QUEUE_TAGS, "gang_state"), "Gangs by state. Always sent for running and partial."),
    _gauge("gangs.oldest_seconds", "second", (*QUEUE_TAGS, "gang_state"), "Longest clock among the gangs of a state.",
           over="max", zero="never"),
    _gauge("gangs.blocked", "", (*QUEUE_TAGS, "blocker"), "Gangs that do not run, by what keeps them from it."),
    _gauge("gangs.deadlocked", "", (), "Gangs that hold GPUs which each other needs."),
    _gauge("gangs.unguarded", "", ("gang_engine", "reason"), "Gangs that no gang scheduler protects, by reason."),
    _count("gangs.assembled", "event", QUEUE_TAGS, "Gangs that began to run, the first time in an admission."),
    _count("gangs.assembly_seconds.sum", "second", QUEUE_TAGS,
           "Seconds that these took, from the first member (Kueue: from admission) to all that are required."),
    _count("gangs.assembly_seconds.count", "event", QUEUE_TAGS, "How many gangs that sum is of."),
    _gauge("gangs.assembly_seconds.max", "second", QUEUE_TAGS, "The longest of them in the last run.",
           over="max", zero="never"),
    _count("gangs.rejected", "event", (*QUEUE_TAGS, "reason"),
           "Rejections of whole gangs by a gang scheduler, as far as they leave a trace: a lower bound."),
    _gauge("gangs.stalled", "", (*QUEUE_TAGS, "stall_reason"),
           "Running gangs that do not get on, by what tells: their GPUs, or their throughput. Where `activity` or"
           " `training` is set."),
    _gauge("members", "", (*QUEUE_TAGS, "member_state"), "Member pods of gangs by class, and missing ones.",
           over="sum, not over missing"),
    _gauge("members.permit_wait_oldest_seconds", "second", QUEUE_TAGS, "Longest present certain wait in Permit.",
           over="max", zero="never"),
)  # fmt: skip

_ONE_GANG = (
    _gauge("gang.members", "", (*GANG_TAGS, "member_state"), "Members of one gang by class, and missing ones.",
           over="sum, not over missing"),
    _gauge("gang.required", "", GANG_TAGS, "Members that the gang needs, all podsets together.", zero="never"),
    _gauge("gang.state_seconds", "second", (*GANG_TAGS, "gang_state"),
           "The clock of the gang's state; one series a gang, so it also tells the state.", over="max", zero="never"),
    _gauge("gang.gpus_requested", "device", (*GANG_TAGS, GPU), "GPUs of the required members."),
    _gauge("gang.gpus_allocated", "device", (*GANG_TAGS, GPU), "GPUs that its members hold."),
    _gauge("gang.gpus_idle", "device", (*GANG_TAGS, GPU), "GPUs that its members hold and that are not at work."),
    _gauge("gang.gpus_reserved", "device", (*GANG_TAGS, GPU), "GPUs held in the scheduler for its Permit waiters."),
    _gauge("gang.topology_domains", "", (*GANG_TAGS, "topology_level"),
           "Domains over which its placed members are spread.", over="max", zero="never"),
    _gauge("gang.topology_domains_needed", "", (*GANG_TAGS, "topology_level"),
           "The least number of domains that could hold its placed members now.", over="max", zero="never"),
    _gauge("gang.blocked", "", (*GANG_TAGS, "blocker"), "1, with what keeps the gang from running.", zero="never"),
    _gauge("gang.requeues", "", GANG_TAGS, "How often Kueue has requeued the gang (requeueState.count)."),
    _gauge("gang.throughput", "", (*GANG_TAGS, "unit"), "Units a second that the gang gets done, as `training` tells.",
           over="sum by unit", zero="always"),
    _gauge("gang.throughput_per_gpu", "", (*GANG_TAGS, "unit"),
           "The same for each GPU that its members hold; not sent where they hold GPUs of several resources.",
           over="avg by unit", zero="always"),
    _gauge("gang.progress", "percent", GANG_TAGS, "How much of its work is done, as its TrainJob says.",
           over="avg", zero="always"),
)  # fmt: skip

_GPUS = (
    _gauge("gpus.capacity", "device", (GPU,), "GPUs of all nodes, each node once."),
    _gauge("gpus.allocatable", "device", (GPU,), "GPUs of all nodes that the kubelets offer.", zero="always"),
    _gauge("gpus.unhealthy", "device", (GPU,), "Capacity less allocatable: GPUs that the device plugins withhold."),
    _gauge("gpus.schedulable", "device", (GPU,), "Allocatable GPUs on nodes that take pods.", zero="always"),
    _gauge("gpus.free", "device", (GPU,), "Schedulable GPUs that no pod holds; reserved ones are free here.",
           zero="always"),
    _gauge("gpus.allocated", "device", (*QUEUE_TAGS, GPU, "gpu_use"), "GPUs held by pods: busy, idle or of no gang."),
    _gauge("gpus.idle", "device", (*QUEUE_TAGS, GPU, "idle_reason"), "GPUs that are allocated and not at work."),
    _gauge("gpus.idle_total", "device", (GPU,), "GPUs that are allocated and not at work, in one series.",
           zero="always"),
    _gauge("gpus.reserved", "device", (*QUEUE_TAGS, GPU), "GPUs held in the scheduler for certain Permit waiters."),
    _gauge("gpus.deadlocked", "device", (GPU,), "GPUs that deadlocked gangs hold."),
)  # fmt: skip

_SPENT = (
    _count("gpus.allocated_seconds", "", (*QUEUE_TAGS, GPU, "gpu_use"), "GPU-seconds that pods held, by use."),
    _count("gpus.idle_seconds", "", (*QUEUE_TAGS, GPU, "idle_reason"),
           "GPU-seconds that were allocated and not at work."),
    _count("gpus.burned_seconds", "", (*QUEUE_TAGS, GPU, "reason"),
           "GPU-seconds of attempts that ended before the gang ever ran, counted when they end."),
    _count("gpus.idle_cost", "", (*QUEUE_TAGS, GPU, "idle_reason"),
           "What idle GPUs cost, in the currency of `gpu_hourly_price`; those without a price are not in it."),
)  # fmt: skip

_WORKLOADS = (
    _gauge("workloads", "", STAGE_TAGS, "Workloads by how far they are."),
    _gauge("workloads.oldest_wait_seconds", "second", STAGE_TAGS, "Longest time that one of them is there.",
           over="max", zero="never"),
    _count("workloads.stage_seconds.sum", "second", STAGE_TAGS,
           "Seconds that Workloads took from the stage before to this one."),
    _count("workloads.stage_seconds.count", "event", STAGE_TAGS, "How many Workloads that sum is of."),
    _gauge("workloads.stage_seconds.max", "second", STAGE_TAGS, "The longest of them in the last run.",
           over="max", zero="never"),
    _count("workloads.evicted", "event",
           (*WORKLOAD_TAGS, "kueue_eviction_reason", "underlying_cause", "gang_partial"), "Evictions of Workloads."),
    _gauge("workloads.without_pods", "", WORKLOAD_TAGS, "Workloads that are admitted, and of which no pod exists."),
)  # fmt: skip

_QUOTAS = (
    _gauge("quota.nominal", "device", (*_CQ, FLAVOR, GPU), "Nominal GPU quota of the ClusterQueue."),
    _gauge("quota.reserved", "device", (*_CQ, FLAVOR, GPU), "GPU quota that Workloads have reserved."),
    _gauge("quota.used", "device", (*_CQ, FLAVOR, GPU), "GPU quota that admitted Workloads use."),
    _gauge("quota.borrowed", "device", (*_CQ, FLAVOR, GPU), "Used GPU quota that is borrowed from the cohort."),
    _gauge("quota.without_pods", "device", (*_CQ, GPU), "GPU quota that is reserved while no pod holds it."),
    _gauge("quota.unbacked", "device", (FLAVOR, GPU),
           "Nominal GPU quota of all queues above what the nodes of the flavor offer."),
)  # fmt: skip

_TOPOLOGY = (
    _gauge("topology.nodes", "node", (*PLACE_TAGS, "labeled"), "GPU nodes of the flavor, with and without the label.",
           over="sum by topology_level"),
    _gauge("topology.label_coverage", "percent", PLACE_TAGS, "GPU nodes of the flavor that have the level's label.",
           over="min", zero="always"),
    _gauge("topology.unlabeled_gpus", "device", (*PLACE_TAGS, GPU),
           "GPUs of nodes that lack the label of the level: Kueue leaves them out without a word.",
           over="sum by topology_level"),
    _gauge("topology.domains", "", (*PLACE_TAGS, "domain_state"), "Domains of the level: free, partial or full.",
           over="sum by topology_level"),
    _gauge("topology.largest_free", "device", (*PLACE_TAGS, GPU), "Most free GPUs in one domain of the level.",
           over="max"),
    _gauge("topology.slots", "", (*PLACE_TAGS, "slot", GPU),
           "How many more gangs of so many pods x GPUs fit, each inside one domain of the level.", over="none"),
    _gauge("topology.fragmentation", "percent", (*PLACE_TAGS, "slot", GPU),
           "Free GPUs of the flavor that gangs of this shape cannot use; not sent where none is free.",
           over="none", zero="always"),
    _gauge("topology.gangs", "", (*PLACE_TAGS, "placement"), "Gangs that asked for a place, by what became of it."),
    _gauge("topology.nodes_shared", "node", ("topology", FLAVOR), "Nodes of the flavor that another one selects, too.",
           over="none"),
)  # fmt: skip

_SELF = (
    _gauge("source.up", "", ("api_source", "reason"), "1 where the source was read, 0 with the reason where not.",
           over="min by api_source", zero="always"),
    _gauge("source.age_seconds", "second", ("api_source",), "Seconds since the source was last in step.",
           over="max", zero="always"),
    _gauge("source.objects", "item", ("api_source",), "Objects that the source holds."),
    _count("source.resyncs", "event", ("api_source",), "Times that the source was listed whole."),
    _count("source.bad_objects", "item", ("api_source",), "Objects that could not be understood and were left out."),
    _count("source.bad_samples", "item", ("reason",), "Samples of the scrape that are no number: nan, inf."),
    _gauge("unobservable", "", ("signal", "reason"), "Gangs (placement: nodes) for which a signal cannot be seen."),
    _gauge("series.dropped", "", (), "Gangs over the cap max_gangs, without series of their own.", zero="always"),
    _gauge("run_seconds", "second", ("phase",), "Duration of the phases of a run.", over="sum", zero="never"),
)  # fmt: skip

_SCHEDULER = (
    _gauge("scheduler.permit_waiting", "", (), "Pods that wait in Permit, by the scheduler's own counters.",
           zero="always"),
    _count("scheduler.permit_entered", "event", (), "Permit waits that began.", total=True),
    _count("scheduler.permit_wait_seconds.sum", "second", ("result",), "Seconds of the Permit waits that ended.",
           total=True),
    _count("scheduler.permit_wait_seconds.count", "event", ("result",), "Permit waits that ended.", total=True),
    _gauge("scheduler.pending_pods", "", ("queue",), "Pods in the scheduler's queues; Permit waiters are in none."),
    _gauge("scheduler.unschedulable_pods", "", ("plugin",), "Pods that a plugin turned away, once for each plugin.",
           over="none"),
    _gauge("scheduler.assumed_pods", "", (), "Pods that the scheduler assumes on a node and has not seen bound."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Family:
    """A family of Kueue's exposition that is sent: `kueue_x` becomes `kueue.x`, by type with a suffix of its own."""

    name: str
    type: Literal["gauge", "counter", "histogram"]
    unit: str
    tags: tuple[str, ...]
    meaning: str

    def metrics(self) -> list[Metric]:
        """Return what the Agent sends for the family: a counter as .count, a histogram as .count and .sum."""
        sent = "kueue." + self.name.removeprefix("kueue_")
        if self.type == "gauge":
            return [Metric(sent, "gauge", self.unit, self.tags, "sum", "always", self.meaning)]
        count = Metric(f"{sent}.count", "count", "event", self.tags, "sum", "never", self.meaning, total=True)
        if self.type == "counter":
            return [count]
        return [count, Metric(f"{sent}.sum", "count", self.unit, self.tags, "sum", "never", self.meaning, total=True)]


_LQ = ("kube_namespace", "kueue_local_queue")
_CLASS = "kueue_workload_priority_class"
_EVICTION = ("kueue_eviction_reason", "underlying_cause")
_QUOTA = ("cohort", "kueue_cluster_queue", "kueue_resource_flavor", "resource")

#: Families by ClusterQueue: (family, type, unit, tags, meaning). Source: Kueue, pkg/metrics/metrics.go.
_CLUSTER_QUEUE_ROWS = (
    ("admission_attempts", "counter", "", ("result",), "Scheduling cycles of Kueue."),
    ("admission_checks_wait_time_seconds", "histogram", "second", (*_CQ, _CLASS), "Quota reserved to admitted."),
    ("admission_wait_time_seconds", "histogram", "second", (*_CQ, _CLASS), "Created or requeued to admitted."),
    ("admitted_active_workloads", "gauge", "", _CQ, "Workloads that are admitted and not finished."),
    ("admitted_until_ready_wait_time_seconds", "histogram", "second", (*_CQ, _CLASS),
     "Admitted to PodsReady; needs waitForPodsReady."),
    ("admitted_workloads", "counter", "", (*_CQ, _CLASS), "Admissions; re-admissions count again."),
    ("cluster_queue_nominal_quota", "gauge", "", _QUOTA, "Nominal quota; needs enableClusterQueueResources."),
    ("cluster_queue_resource_reservation", "gauge", "", _QUOTA, "Reserved quota; needs enableClusterQueueResources."),
    ("cluster_queue_resource_usage", "gauge", "", _QUOTA, "Used quota; needs enableClusterQueueResources."),
    ("cluster_queue_status", "gauge", "", (*_CQ, "status"), "1 for the status that a ClusterQueue has."),
    ("evicted_workloads", "counter", "", (*_CQ, *_EVICTION, _CLASS), "Evictions."),
    ("evicted_workloads_once", "counter", "", (*_CQ, *_EVICTION, _CLASS), "First evictions of a Workload by reason."),
    ("pending_workloads", "gauge", "", (*_CQ, "status"), "Workloads that wait: active or inadmissible."),
    ("pod_scheduling_gate_removal_seconds", "histogram", "second", ("name", *_CQ, "is_group"),
     "Admission to a pod's gate being lifted."),
    ("pods_ready_to_evicted_time_seconds", "histogram", "second", (*_CQ, *_EVICTION), "PodsReady to evicted."),
    ("preempted_workloads", "counter", "", ("preempting_cluster_queue", "reason"), "Preemptions by who preempts."),
    ("quota_reserved_wait_time_seconds", "histogram", "second", (*_CQ, _CLASS), "Created or requeued to reserved."),
    ("ready_wait_time_seconds", "histogram", "second", (*_CQ, _CLASS),
     "Created or requeued to PodsReady; needs waitForPodsReady."),
    ("reserving_active_workloads", "gauge", "", _CQ, "Workloads that hold quota and are not finished."),
    ("unadmitted_workloads", "gauge", "", (*_CQ, "reason", "underlying_cause"), "Workloads that wait, by reason."),
    ("workload_eviction_latency_seconds", "histogram", "second", (*_CQ, "kueue_eviction_reason"),
     "Evicted to admission released."),
)  # fmt: skip
#: The same by LocalQueue, sent with kueue_local_queue_metrics.
_LOCAL_QUEUE_ROWS = (
    ("admission_checks_wait_time_seconds", "histogram", "second", (*_LQ, _CLASS), "Quota reserved to admitted."),
    ("admission_wait_time_seconds", "histogram", "second", (*_LQ, _CLASS), "Created or requeued to admitted."),
    ("admitted_active_workloads", "gauge", "", _LQ, "Workloads that are admitted and not finished."),
    ("admitted_until_ready_wait_time_seconds", "histogram", "second", (*_LQ, _CLASS), "Admitted to PodsReady."),
    ("admitted_workloads", "counter", "", (*_LQ, _CLASS), "Admissions; re-admissions count again."),
    ("evicted_workloads", "counter", "", (*_LQ, *_EVICTION, _CLASS), "Evictions."),
    ("pending_workloads", "gauge", "", (*_LQ, "status"), "Workloads that wait: active or inadmissible."),
    ("quota_reserved_wait_time_seconds", "histogram", "second", (*_LQ, _CLASS), "Created or requeued to reserved."),
    ("ready_wait_time_seconds", "histogram", "second", (*_LQ, _CLASS), "Created or requeued to PodsReady."),
    ("reserving_active_workloads", "gauge", "", _LQ, "Workloads that hold quota and are not finished."),
    ("resource_reservation", "gauge", "", (*_LQ, "kueue_resource_flavor", "resource"), "Reserved quota."),
    ("resource_usage", "gauge", "", (*_LQ, "kueue_resource_flavor", "resource"), "Used quota."),
    ("status", "gauge", "", (*_LQ, "active"), "1 for the status that a LocalQueue has."),
    (
        "unadmitted_workloads",
        "gauge",
        "",
        (*_LQ, *_CQ, "reason", "underlying_cause"),
        "Workloads that wait, by reason.",
    ),
)


def _families(prefix: str, rows: tuple[tuple[str, str, str, tuple[str, ...], str], ...]) -> tuple[Family, ...]:
    return tuple(Family(prefix + name, *rest) for name, *rest in rows)  # type: ignore[arg-type]


CLUSTER_QUEUE_FAMILIES = _families("kueue_", _CLUSTER_QUEUE_ROWS)
LOCAL_QUEUE_FAMILIES = _families("kueue_local_queue_", _LOCAL_QUEUE_ROWS)

OWN: dict[str, Metric] = {
    metric.name: metric
    for metric in (*_GANGS, *_ONE_GANG, *_GPUS, *_SPENT, *_WORKLOADS, *_QUOTAS, *_TOPOLOGY, *_SELF, *_SCHEDULER)
}
SCRAPED: dict[str, Metric] = {
    metric.name: metric for family in (*CLUSTER_QUEUE_FAMILIES, *LOCAL_QUEUE_FAMILIES) for metric in family.metrics()
}
ALL = {**OWN, **SCRAPED}
