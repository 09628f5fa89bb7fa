# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The objects of Kueue, written down as Kueue was recorded to write them: Workloads, queues, flavors and topologies."""

from collections.abc import Iterable

from lab.simulation.objects import KUEUE, metadata, placement, template
from lab.simulation.state import (
    CPU_PER_POD,
    GPU,
    HOSTNAME,
    MEMORY_PER_POD,
    ClusterQueue,
    Flavor,
    Json,
    LocalQueue,
    Workload,
    stamp,
)


def _usage(number: int, gpus: int) -> dict[str, str]:
    return {"cpu": str(CPU_PER_POD * number), "memory": f"{MEMORY_PER_POD * number}Gi", GPU: str(gpus)}


def workload(one: Workload) -> Json:
    """Return a Workload."""
    job = one.job
    labels = {"batch.kubernetes.io/job-name": job.name}
    labels |= {"scheduling.x-k8s.io/pod-group": job.group.name} if job.group else {}
    request = {"podIndexLabel": "batch.kubernetes.io/job-completion-index"}
    request |= {job.level[0]: job.level[1]} if job.level else {}
    spec: Json = {
        "active": one.active,
        "podSets": [
            {
                "count": job.size,
                "name": "main",
                "template": template(job, labels, placement(job), {}),
                "topologyRequest": request,
            }
        ],
        "priority": job.priority,
        "queueName": job.queue,
    }
    if job.priority_class:
        spec["priorityClassRef"] = {"group": KUEUE, "kind": "WorkloadPriorityClass", "name": job.priority_class}
    owner = {
        "apiVersion": "batch/v1",
        "blockOwnerDeletion": True,
        "controller": True,
        "kind": "Job",
        "name": job.name,
        "uid": job.uid,
    }
    made = metadata(
        one.name,
        one.uid,
        one.created,
        job.namespace,
        finalizers=[f"{KUEUE}/resource-in-use"],
        generation=1,
        labels={f"{KUEUE}/job-uid": job.uid},
        ownerReferences=[owner],
    )
    return {"metadata": made, "spec": spec, "status": _workload_status(one)}


def _workload_status(one: Workload) -> Json:
    status: Json = {"conditions": list(one.conditions.all.values())}
    if one.past:
        status["accumulatedPastExecutionTimeSeconds"] = int(one.past)
    usage = _usage(one.job.size, one.gpus)
    if one.cluster_queue:
        assignment: Json = {
            "count": one.job.size,
            "flavors": dict.fromkeys(usage, one.flavor),
            "name": "main",
            "resourceUsage": usage,
        }
        if one.domains:
            assignment["topologyAssignment"] = topology_assignment(one.domains)
        status["admission"] = {"clusterQueue": one.cluster_queue, "podSetAssignments": [assignment]}
    elif one.active:
        status["resourceRequests"] = [{"name": "main", "resources": usage}]
    if one.requeues:
        status["requeueState"] = {"count": one.requeues}
        if one.requeue_at is not None:
            status["requeueState"]["requeueAt"] = stamp(one.requeue_at)
    if one.reclaimed:
        status["reclaimablePods"] = [{"count": one.reclaimed, "name": "main"}]
    if one.evictions:
        status["schedulingStats"] = {
            "evictions": [
                {"count": number, "reason": reason, "underlyingCause": cause}
                for (reason, cause), number in one.evictions.items()
            ]
        }
    return status


def topology_assignment(domains: list[tuple[str, int]]) -> Json:
    """Return an assignment to hosts, in rank order: what their names have in common is written once."""
    hosts, counts = [host for host, _ in domains], [number for _, number in domains]
    prefix = hosts[0]
    while not all(host.startswith(prefix) for host in hosts):
        prefix = prefix[:-1]
    same = len(set(counts)) == 1
    values: Json = {"universal": hosts[0]}
    if len(hosts) > 1:
        roots = [host[len(prefix) :] for host in hosts]
        values = {"individual": {**({"prefix": prefix} if prefix else {}), "roots": roots}}
    return {
        "levels": [HOSTNAME],
        "slices": [
            {
                "domainCount": len(hosts),
                "podCounts": {"universal": counts[0]} if same else {"individual": counts},
                "valuesPerLevel": [values],
            }
        ],
    }


def cluster_queue(one: ClusterQueue, workloads: Iterable[Workload]) -> Json:
    """Return a ClusterQueue with what the Workloads of it hold."""
    mine = list(workloads)
    held = [found for found in mine if found.holds_quota]
    admitted = [found for found in held if found.conditions.is_true("Admitted")]
    flavors = [
        {
            "name": flavor,
            "resources": [
                {"name": "cpu", "nominalQuota": "4k"},
                {"name": "memory", "nominalQuota": "40000Gi"},
                {"name": GPU, "nominalQuota": str(quota)},
            ],
        }
        for flavor, quota in one.quota.items()
    ]
    active = {
        "lastTransitionTime": stamp(one.created),
        "message": "Can admit new workloads",
        "observedGeneration": one.generation,
        "reason": "Ready",
        "status": "True",
        "type": "Active",
    }
    return {
        "metadata": metadata(
            one.name, one.uid, one.created, finalizers=[f"{KUEUE}/resource-in-use"], generation=one.generation
        ),
        "spec": {
            "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
            "namespaceSelector": {},
            "preemption": {
                "borrowWithinCohort": {"policy": "Never"},
                "reclaimWithinCohort": "Never",
                "withinClusterQueue": "LowerPriority" if one.preempts else "Never",
            },
            "queueingStrategy": "BestEffortFIFO",
            "resourceGroups": [{"coveredResources": ["cpu", "memory", GPU], "flavors": flavors}],
            "stopPolicy": "None",
        },
        "status": {
            "admittedWorkloads": len(admitted),
            "conditions": [active],
            "flavorsReservation": _flavor_usage(one.quota, held, borrowed=True),
            "flavorsUsage": _flavor_usage(one.quota, admitted, borrowed=True),
            "pendingWorkloads": sum(_waits(found) for found in mine),
            "reservingWorkloads": len(held),
        },
    }


def _waits(one: Workload) -> bool:
    return not one.finished and not one.holds_quota and one.active


def _flavor_usage(flavors: Iterable[str], workloads: list[Workload], *, borrowed: bool) -> list[Json]:
    """Return what Workloads use of each flavor; nothing is borrowed, since there are no cohorts."""
    extra = {"borrowed": "0"} if borrowed else {}
    found = []
    for flavor in flavors:
        mine = [one for one in workloads if one.flavor == flavor]
        total = _usage(sum(one.job.size for one in mine), sum(one.gpus for one in mine))
        found.append(
            {"name": flavor, "resources": [{**extra, "name": name, "total": value} for name, value in total.items()]}
        )
    return found


def local_queue(one: LocalQueue, quota: Iterable[str], workloads: Iterable[Workload]) -> Json:
    """Return a LocalQueue with what the Workloads of it hold."""
    mine = list(workloads)
    held = [found for found in mine if found.holds_quota]
    admitted = [found for found in held if found.conditions.is_true("Admitted")]
    active = {
        "lastTransitionTime": stamp(one.created),
        "message": "Can submit new workloads to localQueue",
        "observedGeneration": 1,
        "reason": "Ready",
        "status": "True",
        "type": "Active",
    }
    return {
        "metadata": metadata(one.name, one.uid, one.created, one.namespace, generation=1),
        "spec": {"clusterQueue": one.cluster_queue, "stopPolicy": "None"},
        "status": {
            "admittedWorkloads": len(admitted),
            "conditions": [active],
            "flavorsReservation": _flavor_usage(quota, held, borrowed=False),
            "flavorsUsage": _flavor_usage(quota, admitted, borrowed=False),
            "pendingWorkloads": sum(_waits(found) for found in mine),
            "reservingWorkloads": len(held),
        },
    }


def flavor(one: Flavor) -> Json:
    """Return a ResourceFlavor."""
    spec: Json = {"nodeLabels": dict(one.labels)}
    if one.topology:
        spec["topologyName"] = one.topology
    made = metadata(one.name, one.uid, one.created, finalizers=[f"{KUEUE}/resource-in-use"], generation=1)
    return {"metadata": made, "spec": spec}


def topology(name: str, uid: str, created: float, levels: Iterable[str]) -> Json:
    """Return a Topology."""
    made = metadata(name, uid, created, finalizers=[f"{KUEUE}/resource-in-use"], generation=1)
    return {"metadata": made, "spec": {"levels": [{"nodeLabel": level} for level in levels]}}
