# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The records written down as Kubernetes 1.36, Kueue and Coscheduling were recorded to write them.

Which field, condition and text there is in which situation follows the captures below tests/captures. Fields that no
reader of GPUs and gangs looks at (volumes, tolerations that every pod gets, most of managedFields) are left out.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from lab.simulation.state import (
    CPU_PER_POD,
    GPU,
    MEMORY_PER_POD,
    Job,
    Json,
    Node,
    Pod,
    PodGroup,
    SeenEvent,
    Workload,
    micro,
    stamp,
)

_IMAGE: Final = "registry.example/train:2.4"
KUEUE: Final = "kueue.x-k8s.io"
#: The label of the GPU operator that flavors select nodes by.
PRESENT: Final = "nvidia.com/gpu.present"
POOL: Final = "pool"


def metadata(name: str, uid: str, created: float, namespace: str = "", **more: object) -> Json:
    """Return the metadata of an object; what is empty is left out."""
    made: Json = {"name": name, **({"namespace": namespace} if namespace else {}), "uid": uid}
    made["creationTimestamp"] = stamp(created)
    return made | {key: value for key, value in more.items() if value}


def _managed(managers: Mapping[tuple[str, str], tuple[float, Json]], version: str) -> list[Json]:
    return [
        {
            "manager": manager,
            "operation": "Update",
            "apiVersion": version,
            "time": stamp(at),
            "fieldsType": "FieldsV1",
            "fieldsV1": wrote,
            **({"subresource": part} if part else {}),
        }
        for (manager, part), (at, wrote) in managers.items()
    ]


# --- nodes -----------------------------------------------------------------------------------------------------------


def node(one: Node) -> Json:
    """Return a Node."""
    spec: Json = {}
    if one.cordoned is not None:
        spec["unschedulable"] = True
    if one.taints:
        spec["taints"] = list(one.taints)
    amounts = {
        "cpu": "192",
        "ephemeral-storage": "1000Gi",
        "hugepages-2Mi": "0",
        "memory": "2Ti",
        GPU: str(one.gpus),
        "pods": "110",
    }
    return {
        "metadata": metadata(one.name, one.uid, one.created, labels=one.labels),
        "spec": spec,
        "status": {
            "capacity": amounts,
            "allocatable": dict(amounts),
            "conditions": [
                {**condition, "lastHeartbeatTime": stamp(one.heartbeat)} for condition in one.conditions.all.values()
            ],
            "addresses": [{"type": "Hostname", "address": one.name}],
            "nodeInfo": {"kubeletVersion": "v1.36.2", "operatingSystem": "linux", "architecture": "amd64"},
        },
    }


# --- pods ------------------------------------------------------------------------------------------------------------


def _container(gpus: int, *, defaulted: bool) -> Json:
    """Return the container of a pod; the API server makes requests of limits in a pod, not in a template."""
    requests = {"cpu": str(CPU_PER_POD), "memory": f"{MEMORY_PER_POD}Gi"}
    return {
        "name": "train",
        "image": _IMAGE,
        "resources": {
            "limits": {GPU: str(gpus)},
            "requests": {**requests, **({GPU: str(gpus)} if defaulted else {})},
        },
        "imagePullPolicy": "IfNotPresent",
    }


def _job_labels(job: Job) -> dict[str, str]:
    labels = {
        "batch.kubernetes.io/controller-uid": job.uid,
        "batch.kubernetes.io/job-name": job.name,
        "controller-uid": job.uid,
        "job-name": job.name,
    }
    return labels | ({"scheduling.x-k8s.io/pod-group": job.group.name} if job.group else {})


def placement(job: Job) -> dict[str, str]:
    """Return the annotation with which a job asks for a place."""
    return {f"{KUEUE}/podset-{job.level[0]}-topology": job.level[1]} if job.level else {}


def _admitted(workload: Workload) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels and annotations that Kueue adds to the pods of a job that it admits."""
    labels = {
        f"{KUEUE}/cluster-queue-name": workload.cluster_queue,
        f"{KUEUE}/local-queue-name": workload.job.queue,
        f"{KUEUE}/podset": "main",
    }
    return labels, {f"{KUEUE}/workload": workload.name}


def pod(one: Pod) -> Json:
    """Return a Pod."""
    job = one.job
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owners: list[Json] = []
    finalizers = [one.finalizer] if one.finalizer else []
    if job:
        rank = {"batch.kubernetes.io/job-completion-index": str(one.index)}
        labels, annotations = {**_job_labels(job), **rank}, {**rank, **placement(job)}
        if job.workload:
            more_labels, more_annotations = _admitted(job.workload)
            labels |= more_labels
            annotations |= more_annotations
        owners = [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": job.name,
                "uid": job.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
        if one.live:
            finalizers.append("batch.kubernetes.io/job-tracking")
    made = metadata(
        one.name,
        one.uid,
        one.created,
        one.namespace,
        generation=one.generation,
        labels=labels,
        annotations=annotations,
        ownerReferences=owners,
        finalizers=finalizers,
        managedFields=_managed(one.managers, "v1"),
    )
    if one.deletion is not None:
        made |= {"deletionTimestamp": stamp(one.deletion + one.grace), "deletionGracePeriodSeconds": one.grace}
    return {"metadata": made, "spec": _pod_spec(one), "status": _pod_status(one)}


def _pod_spec(one: Pod) -> Json:
    spec: Json = {
        "containers": [_container(one.gpus, defaulted=True)],
        "restartPolicy": "OnFailure" if one.job and one.job.restarts else "Never",
        "terminationGracePeriodSeconds": one.grace,
        "schedulerName": one.scheduler,
        "priority": one.priority,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    if one.selector:
        spec["nodeSelector"] = dict(one.selector)
    if one.node:
        spec["nodeName"] = one.node.name
    if one.gates:
        spec["schedulingGates"] = [{"name": gate} for gate in one.gates]
    return spec


def _pod_status(one: Pod) -> Json:
    status: Json = {"phase": one.phase}
    if one.conditions.all:
        # The kubelet's conditions come first, what was there before it after them.
        found = dict(one.conditions.all)
        scheduled = found.pop("PodScheduled", None)
        disrupted = found.pop("DisruptionTarget", None)
        status["conditions"] = [*found.values(), *(item for item in (scheduled, disrupted) if item)]
    if one.nominated:
        status["nominatedNodeName"] = one.nominated
    if one.started is not None:
        status |= {"hostIP": "10.0.0.1", "startTime": stamp(one.started)}
    if one.container and one.container.state:
        found_container = one.container
        status["containerStatuses"] = [
            {
                "name": "train",
                "state": found_container.state,
                "lastState": found_container.last,
                "ready": found_container.ready,
                "restartCount": found_container.restarts,
                "image": _IMAGE,
                "imageID": found_container.image_id,
                "started": found_container.started,
            }
        ]
    status["qosClass"] = "Burstable"
    return status


# --- jobs and what they own ------------------------------------------------------------------------------------------


def template(job: Job, labels: dict[str, str], annotations: dict[str, str], selector: dict[str, str]) -> Json:
    """Return the template of a job's pods, as jobs and Workloads hold it."""
    spec: Json = {
        "containers": [_container(job.gpus, defaulted=False)],
        "restartPolicy": "OnFailure" if job.restarts else "Never",
        "terminationGracePeriodSeconds": job.grace,
        "schedulerName": job.scheduler,
    }
    made: Json = {"labels": labels, **({"annotations": annotations} if annotations else {})}
    return {"metadata": made, "spec": {**spec, **({"nodeSelector": selector} if selector else {})}}


def job(one: Job, selector: dict[str, str]) -> Json:
    """Return a Job; `selector` is that of the flavor, which Kueue puts into the template of an admitted one."""
    labels, annotations = _job_labels(one), placement(one)
    if one.workload and not one.suspended:
        more_labels, more_annotations = _admitted(one.workload)
        labels |= more_labels
        annotations |= more_annotations
    own = {f"{KUEUE}/queue-name": one.queue} if one.queue else {}
    own |= {f"{KUEUE}/priority-class": one.priority_class} if one.priority_class else {}
    status: Json = {"conditions": list(one.conditions.all.values())} if one.conditions.all else {}
    if one.resumed is not None:
        status["startTime"] = stamp(one.resumed)
    if one.finished is not None:
        status["completionTime"] = stamp(one.finished)
    active = sum(pod.live and pod.deletion is None for pod in one.pods.values())
    going = sum(pod.deletion is not None for pod in one.members)
    status |= {"active": active} if active else {}
    status |= {"succeeded": one.done} if one.done else {}
    status |= {"terminating": going, "ready": one.up}
    return {
        "metadata": metadata(one.name, one.uid, one.created, one.namespace, generation=one.generation, labels=own),
        "spec": {
            "parallelism": one.size,
            "completions": one.size,
            "backoffLimit": 6,
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": one.uid}},
            "manualSelector": False,
            "template": template(one, labels, annotations, {} if one.suspended else selector),
            "completionMode": "Indexed",
            "suspend": one.suspended,
            "podReplacementPolicy": "TerminatingOrFailed",
        },
        "status": status,
    }


def train_job(one: Job, now: float) -> Json:
    """Return the TrainJob of a job, with what its trainer reports.

    Only what is read of it is here: none was recorded. Fields: docs of Kubeflow Trainer, `status.trainerStatus`.
    """
    told: Json = {"progressPercentage": int(100 * one.share(now)), "lastUpdatedTime": stamp(now)}
    return {
        "metadata": metadata(one.name, f"{one.uid[:-4]}7a1b", one.created, one.namespace, generation=1),
        "spec": {"suspend": one.suspended},
        "status": {"trainerStatus": told} if one.ran else {},
    }


def pod_group(one: PodGroup, pods: Iterable[Pod]) -> Json:
    """Return a PodGroup of Coscheduling with the counters of its controller."""
    counted = [pod for pod in pods if not pod.gone]
    spec: Json = {"minMember": one.least}
    if one.timeout is not None:
        spec["scheduleTimeoutSeconds"] = one.timeout
    numbers = {
        name: sum(pod.phase == phase for pod in counted)
        for name, phase in (("running", "Running"), ("succeeded", "Succeeded"), ("failed", "Failed"))
    }
    shown = {} if one.phase == "Pending" else {name: number for name, number in numbers.items() if number}
    owners = sorted({f"{pod.namespace}/{pod.job.name}" for pod in counted if pod.job})
    status = {"phase": one.phase, **({"occupiedBy": ",".join(owners)} if owners else {}), **shown}
    made = metadata(one.name, one.uid, one.created, one.namespace, generation=1, annotations=one.annotations)
    return {"metadata": made, "spec": spec, "status": status}


# --- events ----------------------------------------------------------------------------------------------------------


def event(one: SeenEvent) -> Json:
    """Return the Event of a pod that was not placed."""
    pod = one.pod
    made: Json = {
        "metadata": metadata(f"{pod.name}.{int(one.first * 1e6):x}", one.uid, one.first, pod.namespace),
        "eventTime": micro(one.first),
        "reportingController": pod.scheduler,
        "reportingInstance": f"{pod.scheduler}-ctrl-0",
        "action": "Scheduling",
        "reason": "FailedScheduling",
        "regarding": {
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
            "apiVersion": "v1",
        },
        "note": one.note,
        "type": "Warning",
    }
    if one.told > 1:
        made["series"] = {"count": one.told, "lastObservedTime": micro(one.told_at)}
    return made
