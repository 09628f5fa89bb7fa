# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Clusters made by hand: API JSON as a server sends it, and the real reducers and rules run on it.

A test says what is in the cluster and asks what the check sees:

    seen = look(
        node("n1"),
        pod_group("train", 2),
        ready("train-0", of_group("train"), "n1"),
        unscheduled("train-1", of_group("train"), NO_GPU),
    )
    assert seen.gang("train").state == "partial"

Every time in an argument is a number of seconds before `NOW`, so `created=300` is an object of five minutes ago, and
`ago(300)` is what a clock that began then says. Nothing here knows a rule: what a builder does not say is left out of
the object, as the API server leaves it out.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from datadog_checks.kueue_gang.derive.deriver import derive
from datadog_checks.kueue_gang.derive.picture import GangView, Picture
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.derive.transitions import Memory
from datadog_checks.kueue_gang.facts import (
    BadObjectError,
    jobs,
    nodes,
    podgroups,
    pods,
    queues,
    rejections,
    topology,
    trainjobs,
    workloads,
)
from datadog_checks.kueue_gang.facts.cluster import Cluster, SchedulerCount

Json = dict[str, Any]

NOW = datetime(2027, 1, 15, 12, 0, tzinfo=UTC).timestamp()
TEAM = "team"
GPU = "nvidia.com/gpu"

COSCHEDULING = "podgroups.scheduling.x-k8s.io"
NATIVE = "podgroups.scheduling.k8s.io"
WORKLOADS = "workloads.kueue.x-k8s.io"
#: A cluster in which nobody has installed any gang scheduling.
NOTHING_INSTALLED = {COSCHEDULING: "not_installed", NATIVE: "not_installed", WORKLOADS: "not_installed"}

DEFAULT_SCHEDULER = "default-scheduler"
GANG_SCHEDULER = "scheduler-plugins-scheduler"

ADMISSION_GATE = "kueue.x-k8s.io/admission"
TOPOLOGY_GATE = "kueue.x-k8s.io/topology"
ELASTIC_GATE = "kueue.x-k8s.io/elastic-job"

# Texts of kube-scheduler and Coscheduling, in the form of Kubernetes 1.29 and later.
NO_GPU = (
    "0/4 nodes are available: 4 Insufficient nvidia.com/gpu. "
    "preemption: 0/4 nodes are available: 4 No preemption victims found for incoming pod."
)
PLAIN_NO_GPU = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
TIMEOUT = "0/1 nodes are available: 1 rejected due to timeout after waiting 10s at plugin Coscheduling."
UNRESERVE = "0/1 nodes are available: 1 rejection in Unreserve."
OPTIMISTIC = "0/1 nodes are available: 1 optimistic rejection in PostFilter."
TRIGGER = (
    "0/4 nodes are available: 4 Insufficient nvidia.com/gpu. "
    "preemption: 0/4 nodes are available: 4 No preemption victims found for incoming pod., "
    "PodGroup team/train gets rejected due to Pod train-0 is unschedulable even after PostFilter."
)
SIBLINGS = (
    "0/4 nodes are available: pre-filter pod train-0 cannot find enough sibling pods, "
    "current pods number: 3, minMember of group: 4. "
    "preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."
)


def ago(seconds: float) -> float:
    """Return the moment so many seconds before `NOW`, in seconds since the epoch."""
    return NOW - seconds


def stamp(seconds: float) -> str:
    """Return the moment so many seconds before `NOW`, as the API writes it."""
    return datetime.fromtimestamp(NOW - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, status: str, since: float, reason: str = "", message: str = "") -> Json:
    """Return a status condition that turned to its status `since` seconds ago."""
    return {
        "type": kind,
        "status": status,
        "lastTransitionTime": stamp(since),
        "reason": reason,
        "message": message,
    }


# --- what a pod belongs to -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tie:
    """The labels, annotations, spec fields and controller by which a pod names a group; `+` joins two."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    owner: tuple[str, str] | None = None

    def __add__(self, other: "Tie") -> "Tie":
        """Join the marks of two groups; the controller of the other one wins."""
        return Tie(
            {**self.labels, **other.labels},
            {**self.annotations, **other.annotations},
            {**self.spec, **other.spec},
            other.owner or self.owner,
        )


LONE = Tie()


def labelled(**labels: str) -> Tie:
    """Return plain labels."""
    return Tie(labels=labels)


def owned(kind: str, name: str) -> Tie:
    """Return the controlling owner of a pod."""
    return Tie(owner=(kind, name))


def of_group(name: str) -> Tie:
    """Return the label of a Coscheduling PodGroup."""
    return Tie(labels={"scheduling.x-k8s.io/pod-group": name})


def of_native(name: str) -> Tie:
    """Return the field of a scheduling.k8s.io PodGroup (Kubernetes 1.36)."""
    return Tie(spec={"schedulingGroup": {"podGroupName": name}})


def of_workload(name: str, podset: str = "main") -> Tie:
    """Return the marks of a pod of an admitted Workload (Kueue 0.14 and later)."""
    return Tie(
        labels={"kueue.x-k8s.io/podset": podset} if podset else {},
        annotations={"kueue.x-k8s.io/workload": name},
    )


def of_slice(name: str, podset: str = "main") -> Tie:
    """Return the marks of a pod of an elastic job (Kueue 0.16 and later)."""
    return Tie(
        labels={"kueue.x-k8s.io/podset": podset},
        annotations={"kueue.x-k8s.io/workload-slice-name": name},
    )


def of_plain_group(name: str, *, annotated: bool = False, serving: bool = False, role: str = "") -> Tie:
    """Return the marks of a Kueue plain-pod group: its name is a label, an annotation since Kueue 0.18."""
    named = {"kueue.x-k8s.io/pod-group-name": name}
    annotations = dict(named) if annotated else {}
    if serving:
        annotations["kueue.x-k8s.io/pod-group-serving"] = "true"
    if role:
        annotations["kueue.x-k8s.io/role-hash"] = role
    labels = {"kueue.x-k8s.io/managed": "true", **({} if annotated else named)}
    return Tie(labels=labels, annotations=annotations)


def of_jobset(name: str, role: str = "workers", job: int = 0, replicas: int = 1, uid: str = "") -> Tie:
    """Return the labels of a JobSet's pod: its ReplicatedJob, the index of its Job, the number of such Jobs."""
    prefix = "jobset.sigs.k8s.io/"
    return Tie(
        labels={
            prefix + "jobset-name": name,
            prefix + "jobset-uid": uid or f"uid-{name}",
            prefix + "replicatedjob-name": role,
            prefix + "replicatedjob-replicas": str(replicas),
            prefix + "job-index": str(job),
        },
        owner=("Job", f"{name}-{role}-{job}"),
    )


def of_kubeflow(name: str, role: str = "worker", kind: str = "PyTorchJob") -> Tie:
    """Return the labels of a pod of the training operator."""
    prefix = "training.kubeflow.org/"
    return Tie(
        labels={
            prefix + "job-name": name,
            prefix + "replica-type": role,
            prefix + "operator-name": kind.lower() + "-controller",
        },
        owner=(kind, name),
    )


def of_lws(name: str, group: int = 0, size: int | None = None) -> Tie:
    """Return the labels of a pod of a LeaderWorkerSet group, and its annotation that states the size."""
    prefix = "leaderworkerset.sigs.k8s.io/"
    return Tie(
        labels={prefix + "name": name, prefix + "group-index": str(group)},
        annotations={} if size is None else {prefix + "size": str(size)},
        owner=("StatefulSet", name),
    )


def of_job(name: str, index: int | None = 0, uid: str = "") -> Tie:
    """Return the labels of a batch Job's pod; `index` None is a NonIndexed Job."""
    prefix = "batch.kubernetes.io/"
    rank = {} if index is None else {prefix + "job-completion-index": str(index)}
    return Tie(
        labels={prefix + "job-name": name, prefix + "controller-uid": uid or f"uid-{name}", **rank},
        annotations=rank,
        owner=("Job", name),
    )


def of_ray(cluster: str, group: str = "workers") -> Tie:
    """Return the labels of a pod of a RayCluster."""
    return Tie(labels={"ray.io/cluster": cluster, "ray.io/group": group}, owner=("RayCluster", cluster))


# --- pods ------------------------------------------------------------------------------------------------------------


def container(gpus: Mapping[str, Any] | int = 0, name: str = "main", *, limits_only: bool = False, **more: Any) -> Json:
    """Return a container that asks for GPUs, in requests and limits alike as the API server stores them."""
    amounts = _amounts(gpus)
    resources = {"limits": amounts} if limits_only else {"requests": dict(amounts), "limits": dict(amounts)}
    return {"name": name, "image": "registry.example/train:1", "resources": resources if amounts else {}, **more}


def sidecar(gpus: Mapping[str, Any] | int = 0, name: str = "sidecar") -> Json:
    """Return an init container that goes on running beside the main ones."""
    return container(gpus, name, restartPolicy="Always")


def _amounts(gpus: Mapping[str, Any] | int) -> dict[str, str]:
    if isinstance(gpus, int):
        return {GPU: str(gpus)} if gpus else {}
    return {resource: str(amount) for resource, amount in gpus.items()}


def pod(
    name: str,
    tie: Tie = LONE,
    *,
    gpus: Mapping[str, Any] | int = 8,
    namespace: str = TEAM,
    created: float = 600,
    scheduler: str = DEFAULT_SCHEDULER,
    spec: Json | None = None,
    status: Json | None = None,
    conditions: Sequence[Json] = (),
    metadata: Json | None = None,
) -> Json:
    """Return a pod; without more it is new: nothing has looked at it yet."""
    made: Json = {
        "name": name,
        "namespace": namespace,
        "uid": f"{namespace}-{name}-{created:g}",
        "creationTimestamp": stamp(created),
        "labels": dict(tie.labels),
        "annotations": dict(tie.annotations),
        **(metadata or {}),
    }
    if tie.owner:
        kind, owner = tie.owner
        made["ownerReferences"] = [
            {"kind": kind, "name": owner, "uid": f"uid-{kind}-{owner}", "controller": True},
        ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": made,
        "spec": {
            "schedulerName": scheduler,
            "restartPolicy": "Never",
            "containers": [container(gpus)],
            **tie.spec,
            **(spec or {}),
        },
        "status": {"phase": "Pending", **({"conditions": list(conditions)} if conditions else {}), **(status or {})},
    }


def new(name: str, tie: Tie = LONE, **more: Any) -> Json:
    """Return a pod that no scheduler has looked at."""
    return pod(name, tie, **more)


def gated(name: str, tie: Tie = LONE, gate: str = ADMISSION_GATE, **more: Any) -> Json:
    """Return a pod that is held back by a scheduling gate."""
    created = more.get("created", 600)
    blocked = condition("PodScheduled", "False", created, "SchedulingGated", "Scheduling is blocked due to gates")
    return pod(name, tie, spec={"schedulingGates": [{"name": gate}]}, conditions=[blocked], **more)


def ungated(name: str, tie: Tie = LONE, node: str = "", since: float = 20, **more: Any) -> Json:
    """Return a pod whose gates are gone while the condition still says SchedulingGated; `node` is its nomination."""
    created = more.get("created", 600)
    blocked = condition("PodScheduled", "False", created, "SchedulingGated", "Scheduling is blocked due to gates")
    return pod(name, tie, conditions=[blocked], **_nomination(node, since), **more)


def unscheduled(name: str, tie: Tie = LONE, text: str = NO_GPU, nominated: str = "", **more: Any) -> Json:
    """Return a pod that the scheduler turned away with a text; `nominated` is its nominatedNodeName."""
    since, nominated_at = more.pop("since", 300), more.pop("nominated_at", 20)
    reason = more.pop("reason", "Unschedulable")
    turned_away = condition("PodScheduled", "False", since, reason, text)
    return pod(name, tie, conditions=[turned_away], **_nomination(nominated, nominated_at), **more)


def failed_scheduling(pod_name: str, text: str, at: float, last: float | None = None, **more: Any) -> Json:
    """Return the Event of a pod that was not placed `at` so many seconds ago, and for the `last` time in its series."""
    namespace = more.pop("namespace", TEAM)
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": _metadata(f"{pod_name}.{int(at * 1e6):x}", namespace, at, None),
        "eventTime": _micro(at),
        "reason": "FailedScheduling",
        "regarding": {"kind": "Pod", "namespace": namespace, "name": pod_name, "uid": f"uid-{pod_name}"},
        "note": text,
        **({} if last is None else {"series": {"count": 2, "lastObservedTime": _micro(last)}}),
        **more,
    }


def _micro(seconds: float) -> str:
    return datetime.fromtimestamp(NOW - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def permit_waiter(name: str, tie: Tie, node: str, since: float = 20, **more: Any) -> Json:
    """Return a pod that waits in Permit for the first time: a nominated node and no PodScheduled condition."""
    return pod(name, tie, **_nomination(node, since), **more)


def _nomination(node: str, since: float) -> Json:
    if not node:
        return {}
    entry = {
        "manager": "kube-scheduler",
        "operation": "Update",
        "subresource": "status",
        "time": stamp(since),
        "fieldsV1": {"f:status": {"f:nominatedNodeName": {}}},
    }
    return {"status": {"nominatedNodeName": node}, "metadata": {"managedFields": [entry]}}


def bound(name: str, tie: Tie, node: str, since: float = 300, **more: Any) -> Json:
    """Return a pod that got its node `since` seconds ago and has not started: it pulls its image."""
    return _placed(name, tie, node, since, "Pending", more)


def running(name: str, tie: Tie, node: str, since: float = 300, **more: Any) -> Json:
    """Return a pod that runs and is not Ready: a helper container has ended, or the readiness probe fails."""
    unready = condition("Ready", "False", since, "ContainersNotReady")
    return _placed(name, tie, node, since, "Running", more, unready)


def ready(name: str, tie: Tie, node: str, since: float = 300, **more: Any) -> Json:
    """Return a pod that was bound `since` seconds ago and is Ready since then, or since `ready_since`."""
    is_ready = condition("Ready", "True", more.pop("ready_since", since))
    return _placed(name, tie, node, since, "Running", more, is_ready)


def crashing(name: str, tie: Tie, node: str, since: float = 300, **more: Any) -> Json:
    """Return a pod whose container crashes and is started again and again."""
    state = {"waiting": {"reason": "CrashLoopBackOff"}}
    unready = condition("Ready", "False", more.pop("failed_since", since), "ContainersNotReady")
    return _placed(
        name, tie, node, since, "Running", more, unready, containerStatuses=[{"name": "main", "state": state}]
    )


def succeeded(name: str, tie: Tie, node: str, since: float = 300, **more: Any) -> Json:
    """Return a pod that has ended well."""
    return _placed(name, tie, node, since, "Succeeded", more, condition("Ready", "False", 60, "PodCompleted"))


def failed(name: str, tie: Tie, node: str, since: float = 300, **more: Any) -> Json:
    """Return a pod that has failed."""
    return _placed(name, tie, node, since, "Failed", more, condition("Ready", "False", 60, "PodFailed"))


def _placed(name: str, tie: Tie, node: str, since: float, phase: str, more: Json, *others: Json, **status: Any) -> Json:
    scheduled = condition("PodScheduled", "True", since)
    spec = {"nodeName": node, **more.pop("spec", {})}
    status = {"phase": phase, "startTime": stamp(since), **status, **more.pop("status", {})}
    return pod(name, tie, spec=spec, status=status, conditions=[scheduled, *others], **more)


def terminating(obj: Json, began: float = 10, grace: float = 30) -> Json:
    """Return a pod whose deletion began so many seconds ago; the API states the end of the grace."""
    deletion = {"deletionTimestamp": stamp(began - grace), "deletionGracePeriodSeconds": grace}
    return {**obj, "metadata": {**obj["metadata"], **deletion}}


# --- nodes and flavors -----------------------------------------------------------------------------------------------


def node(
    name: str,
    gpus: Mapping[str, Any] | int = 8,
    *,
    allocatable: Mapping[str, Any] | int | None = None,
    ready_status: str = "True",
    since: float = 86_400,
    cordoned: bool = False,
    taints: Sequence[Json] = (),
    labels: Mapping[str, str] | None = None,
) -> Json:
    """Return a node; `since` is when its Ready condition took its status."""
    spec: Json = {"taints": list(taints)} if taints else {}
    if cordoned:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "creationTimestamp": stamp(86_400), "labels": dict(labels or {})},
        "spec": spec,
        "status": {
            "capacity": {"cpu": "96", **_amounts(gpus)},
            "allocatable": {"cpu": "95", **_amounts(gpus if allocatable is None else allocatable)},
            "conditions": [condition("Ready", ready_status, since)] if ready_status else [],
        },
    }


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> Json:
    """Return a taint."""
    return {"key": key, "value": value, "effect": effect}


def toleration(key: str = "", value: str = "", operator: str = "Equal", effect: str = "") -> Json:
    """Return a toleration."""
    made = {"key": key, "value": value, "operator": operator, "effect": effect}
    return {name: stated for name, stated in made.items() if stated}


def flavor(
    name: str, labels: Mapping[str, str] | None = None, tolerations: Sequence[Json] = (), topology: str = ""
) -> Json:  # fmt: skip
    """Return a ResourceFlavor; `topology` is the Topology that it names."""
    spec: Json = {"nodeLabels": dict(labels or {}), "tolerations": list(tolerations)}
    if topology:
        spec["topologyName"] = topology
    return _kueue("ResourceFlavor", name, spec)


def topology_object(name: str, *levels: str) -> Json:
    """Return a Topology with the node labels of its levels, widest first."""
    return _kueue("Topology", name, {"levels": [{"nodeLabel": level} for level in levels]})


def cluster_queue(
    name: str,
    quota: Mapping[str, int],
    *,
    reserved: Mapping[str, tuple[int, int]] | None = None,
    used: Mapping[str, tuple[int, int]] | None = None,
    checks: Mapping[str, Sequence[str]] | None = None,
) -> Json:
    """Return a ClusterQueue with GPU quota by flavor.

    `reserved` and `used` are (total, borrowed) by flavor; `checks` are AdmissionChecks, each with its flavors (none:
    all).
    """
    spec: Json = {"resourceGroups": _resource_groups(quota)}
    if checks:
        rules = [{"name": check, "onFlavors": list(flavors)} for check, flavors in checks.items()]
        spec["admissionChecksStrategy"] = {"admissionChecks": rules}
    status = {
        key: [
            {"name": one, "resources": [{"name": GPU, "total": str(total), "borrowed": str(borrowed)}]}
            for one, (total, borrowed) in (usage or {}).items()
        ]
        for key, usage in (("flavorsReservation", reserved), ("flavorsUsage", used))
    }
    return {**_kueue("ClusterQueue", name, spec), "status": status}


def cohort(name: str, quota: Mapping[str, int]) -> Json:
    """Return a Cohort with GPU quota of its own by flavor."""
    return _kueue("Cohort", name, {"resourceGroups": _resource_groups(quota)})


def admission_check(name: str, controller: str) -> Json:
    """Return an AdmissionCheck."""
    return _kueue("AdmissionCheck", name, {"controllerName": controller})


def _kueue(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _resource_groups(quota: Mapping[str, int]) -> list[Json]:
    flavors = [
        {"name": name, "resources": [{"name": GPU, "nominalQuota": str(amount)}]} for name, amount in quota.items()
    ]
    return [{"coveredResources": [GPU], "flavors": flavors}]


def local_queue(name: str, cluster_queue: str, namespace: str = TEAM) -> Json:
    """Return a LocalQueue."""
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": cluster_queue},
    }


# --- groups, Workloads, Jobs -----------------------------------------------------------------------------------------


def pod_group(
    name: str,
    min_member: int | None,
    *,
    namespace: str = TEAM,
    created: float = 600,
    labels: Mapping[str, str] | None = None,
    min_gpus: int = 0,
    **status: Any,
) -> Json:
    """Return a Coscheduling PodGroup; what is left over is what its controller says in its status."""
    spec: Json = {} if min_member is None else {"minMember": min_member}
    if min_gpus:
        spec["minResources"] = _amounts(min_gpus)
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": _metadata(name, namespace, created, labels),
        "spec": spec,
        "status": status,
    }


def native_group(
    name: str, min_count: int | None, *, namespace: str = TEAM, created: float = 600, once: str = "", said: str = "True"
) -> Json:
    """Return a scheduling.k8s.io PodGroup, `basic` without a count; `once` names its condition."""
    policy: Json = {"basic": {}} if min_count is None else {"gang": {"minCount": min_count}}
    status = {"conditions": [condition(once, said, 300, "Scheduled")]} if once else {}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": _metadata(name, namespace, created, None),
        "spec": {"schedulingPolicy": policy},
        "status": status,
    }


def podset(
    count: int,
    name: str = "main",
    *,
    gpus: Mapping[str, Any] | int = 8,
    assigned: int | None = None,
    minimum: int | None = None,
    reclaimed: int = 0,
    tie: Tie = LONE,
    containers: Sequence[Json] = (),
    gate: str = "",
    flavor: str = "gpu",
    request: Json | None = None,
    assignment: Json | None = None,
) -> Json:
    """Return what a Workload asks for one kind of pod, with what `workload` moves to its status.

    `request` is its topologyRequest; `flavor` and `assignment`, a topologyAssignment, are what an admission gives.
    """
    spec: Json = {"containers": [container(gpus), *containers], **tie.spec}
    if gate:
        spec["schedulingGates"] = [{"name": gate}]
    made: Json = {
        "name": name,
        "count": count,
        "template": {"metadata": {"labels": dict(tie.labels), "annotations": dict(tie.annotations)}, "spec": spec},
    }
    if minimum is not None:
        made["minCount"] = minimum
    if request is not None:
        made["topologyRequest"] = request
    given: Json = {"name": name, "count": count if assigned is None else assigned, "flavors": {GPU: flavor}}
    if assignment is not None:
        given["topologyAssignment"] = assignment
    return {"spec": made, "given": given, "reclaimed": reclaimed}


def workload(
    name: str,
    owner: tuple[str, str] | None,
    *podsets: Json,
    namespace: str = TEAM,
    created: float = 600,
    admitted: float | None = None,
    reserved: float | None = None,
    evicted: tuple[str, float, str] | None = None,
    requeued: tuple[str, float, str] | None = None,
    pods_ready: tuple[str, float, str] | None = None,
    finished: float | None = None,
    controls: bool = True,
    version: str = "v1beta2",
    queue: str = "lq",
    cluster_queue: str = "cq",
    priority_class: str = "",
    requeues: int = 0,
    cluster_name: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    active: bool | None = None,
) -> Json:
    """Return a Workload.

    `reserved` and `admitted` are when its quota was reserved and when it was admitted, in seconds before `NOW`;
    `evicted`, `requeued` and `pods_ready` are (status, since, reason) of their conditions.
    """
    reserved = admitted if reserved is None else reserved
    stated = [
        ("QuotaReserved", reserved, "True", "QuotaReserved"),
        ("Admitted", admitted, "True", "Admitted"),
        ("Finished", finished, "True", "Succeeded"),
    ]
    conditions = [condition(kind, status, since, reason) for kind, since, status, reason in stated if since is not None]
    for kind, found in (("Evicted", evicted), ("Requeued", requeued), ("PodsReady", pods_ready)):
        if found:
            conditions.append(condition(kind, *found))
    status: Json = {"conditions": conditions}
    if reserved is not None:
        status["admission"] = {
            "clusterQueue": cluster_queue,
            "podSetAssignments": [made["given"] for made in podsets],
        }
    reclaimed = [
        {"name": made["spec"]["name"], "count": made["reclaimed"]} for made in podsets if made["reclaimed"]
    ]  # fmt: skip
    if reclaimed:
        status["reclaimablePods"] = reclaimed
    if requeues:
        status["requeueState"] = {"count": requeues}
    if cluster_name:
        status["clusterName"] = cluster_name
    metadata = _metadata(name, namespace, created, labels)
    metadata["annotations"] = dict(annotations or {})
    if owner:
        kind, owner_name = owner
        reference = {"kind": kind, "name": owner_name, "uid": f"uid-{owner_name}"}
        metadata["ownerReferences"] = [{**reference, "controller": True} if controls else reference]
    spec: Json = {"queueName": queue, "podSets": [made["spec"] for made in podsets]}
    if active is not None:
        spec["active"] = active
    if priority_class:
        old = version == "v1beta1"
        spec |= {"priorityClassName": priority_class} if old else {"priorityClassRef": {"name": priority_class}}
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "Workload",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def job(
    name: str,
    parallelism: int,
    completions: int | None,
    *,
    indexed: bool = True,
    elastic: bool = False,
    namespace: str = TEAM,
) -> Json:
    """Return a batch Job."""
    metadata = _metadata(name, namespace, 600, {"kueue.x-k8s.io/queue-name": "lq"})
    if elastic:
        metadata["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
    spec: Json = {"parallelism": parallelism, "completionMode": "Indexed" if indexed else "NonIndexed"}
    if completions is not None:
        spec["completions"] = completions
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec, "status": {}}


def _metadata(name: str, namespace: str, created: float, labels: Mapping[str, str] | None) -> Json:
    return {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "creationTimestamp": stamp(created),
        "labels": dict(labels or {}),
    }


# --- what the check sees ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """A picture and the questions that tests ask about it."""

    picture: Picture
    memory: Memory

    def gang(self, name: str, namespace: str = TEAM, engine: str = "") -> GangView:
        """Return the one gang of a name."""
        found = [
            view
            for view in self.picture.gangs
            if (view.name, view.queue.namespace) == (name, namespace) and engine in {"", view.queue.engine}
        ]
        assert len(found) == 1, f"{len(found)} gangs are named {name}: {self.names}"
        return found[0]

    @property
    def names(self) -> set[tuple[str, str, str]]:
        """The gangs: (engine, namespace, name)."""
        return {view.key for view in self.picture.gangs}

    def use(self, use: str, resource: str = GPU) -> int:
        """Return the allocated GPUs of one use."""
        return sum(
            amount
            for (_, found, gpu_use), amount in self.picture.gpus.allocated.items()
            if (found, gpu_use) == (resource, use)
        )

    @property
    def busy(self) -> int:
        """GPUs that work."""
        return self.use("busy")

    @property
    def idle(self) -> int:
        """GPUs that are held in vain."""
        return self.use("idle")

    @property
    def other(self) -> int:
        """GPUs of which the check says nothing."""
        return self.use("other")

    def idle_by_reason(self, resource: str = GPU) -> dict[str, int]:
        """Return the idle GPUs by reason, without zeros."""
        reasons: dict[str, int] = {}
        for (_, found, reason), amount in self.picture.gpus.idle.items():
            if found == resource and amount:
                reasons[reason] = reasons.get(reason, 0) + amount
        return reasons

    def free(self, resource: str = GPU) -> int:
        """Return the GPUs that are not allocated on nodes that take pods."""
        assert self.picture.nodes is not None
        return self.picture.nodes[resource].free

    def unobservable(self, signal: str) -> dict[str, int]:
        """Return for how many gangs a signal cannot be seen, by reason."""
        counted = self.picture.unobservable.items()
        return {reason: number for (name, reason), number in counted if name == signal and number}


def classes(view: GangView) -> dict[str, int]:
    """Return the members of a gang by class, and the missing ones, without zeros."""
    found = {**view.classes, "missing": view.missing}
    return {name: number for name, number in found.items() if number}


def look(
    *objects: Json,
    now: float = NOW,
    memory: Memory | None = None,
    unread: Mapping[str, str] | None = None,
    scheduler: SchedulerCount | None = None,
    **options: Any,
) -> Seen:
    """Return what the check sees in a cluster with these objects; `options` are those of `Rules`."""
    rules = Rules(**options)
    found, drawn = derive(read(objects, rules, unread, scheduler), rules, memory or Memory(), now)
    return Seen(found, drawn)


def read(
    objects: Iterable[Json],
    rules: Rules,
    unread: Mapping[str, str] | None = None,
    scheduler: SchedulerCount | None = None,
) -> Cluster:
    """Reduce objects to the facts of a cluster; one that cannot be understood is named unreadable."""
    reduce = reducers(rules)
    facts: dict[str, Any] = {}
    unreadable: dict[str, set[tuple[str, str]]] = {}
    for obj in objects:
        source, sequence = SOURCES[obj["apiVersion"].split("/")[0], obj["kind"]]
        if source in (unread or {}):
            continue
        try:
            fact = reduce[source](obj)
        except BadObjectError:
            metadata = obj["metadata"]
            unreadable.setdefault(source, set()).add((metadata.get("namespace", ""), metadata["name"]))
            continue
        if fact is not None:
            facts.setdefault(sequence, []).append(fact)
    return Cluster(
        **facts,
        unread=dict(unread or {}),
        unreadable={source: frozenset(names) for source, names in unreadable.items()},
        scheduler=scheduler,
    )


#: (API group or core version, kind): the source's name, and the field of `Cluster` that holds its facts.
SOURCES: dict[tuple[str, str], tuple[str, str]] = {
    ("v1", "Pod"): ("pods", "pods"),
    ("v1", "Node"): ("nodes", "nodes"),
    ("batch", "Job"): ("jobs", "jobs"),
    ("scheduling.x-k8s.io", "PodGroup"): (COSCHEDULING, "pod_groups"),
    ("scheduling.k8s.io", "PodGroup"): (NATIVE, "pod_groups"),
    ("kueue.x-k8s.io", "Workload"): (WORKLOADS, "workloads"),
    ("kueue.x-k8s.io", "ClusterQueue"): ("clusterqueues", "cluster_queues"),
    ("kueue.x-k8s.io", "LocalQueue"): ("localqueues", "local_queues"),
    ("kueue.x-k8s.io", "Cohort"): ("cohorts", "cohorts"),
    ("kueue.x-k8s.io", "ResourceFlavor"): ("resourceflavors", "flavors"),
    ("kueue.x-k8s.io", "AdmissionCheck"): ("admissionchecks", "checks"),
    ("kueue.x-k8s.io", "Topology"): ("topologies", "topologies"),
    ("events.k8s.io", "Event"): (rejections.EVENTS, "rejections"),
}


def reducers(rules: Rules) -> dict[str, Callable[[Json], Any]]:
    """Return the reducer of each source."""
    return {
        "pods": pods.reducer(rules.gpus, rules.labels),
        "nodes": nodes.reducer(rules.gpus),
        "jobs": jobs.reducer(rules.labels),
        WORKLOADS: workloads.reducer(rules.gpus, rules.labels),
        "clusterqueues": queues.cluster_queue_reducer(rules.gpus),
        "localqueues": queues.local_queue,
        "cohorts": queues.cohort_reducer(rules.gpus),
        "resourceflavors": queues.resource_flavor,
        "admissionchecks": queues.admission_check,
        "topologies": topology.topology,
        rejections.EVENTS: rejections.rejection_event,
        trainjobs.TRAIN_JOBS: trainjobs.train_job,
        **{engine.source: engine.reducer(rules.gpus, rules.labels) for engine in podgroups.ENGINES},
    }
