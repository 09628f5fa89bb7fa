# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Pods: where they are, what they ask for, and which gang they name.

A pod is split in three records. `Pod` holds what differs from pod to pod. `PodSpec` holds what the pods of one template
share, and `Ties` what the pods of one job share: every way in which a pod can name a group it belongs to. The latter two
are made once and referred to, since a gang has up to thousands of equal pods.

Pods that neither ask for a GPU nor name a group are not kept, save those that run a kube-scheduler: the image tag of
that one tells whether Permit waits can be seen (they can from Kubernetes 1.35 on, facts of KEP-5278).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from datadog_checks.kueue_gang.facts.fields import (
    BadObjectError,
    Condition,
    Json,
    Owner,
    conditions,
    controller,
    identity,
    items,
    mapping,
    moment,
    strings,
    text,
)
from datadog_checks.kueue_gang.facts.podgroups import ENGINES
from datadog_checks.kueue_gang.facts.quantity import GpuResources, Units, pod_units

PHASES = frozenset({"Pending", "Running", "Succeeded", "Failed", "Unknown"})

_CONDITIONS = frozenset({"PodScheduled", "Ready"})
#: Reasons with which a container of a Running pod waits without having failed: the sandbox is made anew.
_STARTING = frozenset({"ContainerCreating", "PodInitializing"})
#: Default of terminationGracePeriodSeconds, for objects that name a deletion time without its grace.
_DEFAULT_GRACE = 30.0

#: The container that KubeRay adds to the head pod of a cluster with enableInTreeAutoscaling.
RAY_AUTOSCALER = "autoscaler"
#: Gate of pods that belong to an elastic job (Kueue, workload slices).
ELASTIC_GATE = "kueue.x-k8s.io/elastic-job"

#: kube-scheduler images: `registry.k8s.io/kube-scheduler:v1.36.2`; scheduler-plugins calls Kubernetes 1.34 v0.34.
_SCHEDULER_IMAGE = re.compile(r"(?P<path>.*/)?kube-scheduler[^/:@]*:v[01]\.(?P<minor>\d+)\.", re.ASCII)


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration: an empty `key` tolerates every key, an empty `effect` every effect."""

    key: str
    operator: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class PodSpec:
    """What pods of one template share: effective GPU units, schedulerName, tolerations, the sign of Ray's autoscaler."""

    gpus: Units
    scheduler: str
    tolerations: tuple[Toleration, ...]
    ray_autoscaler: bool
    elastic: bool


@dataclass(frozen=True, slots=True)
class Ties:
    """Every group that a pod names; empty strings where it names none.

    `pod_groups` holds (engine, PodGroup name) pairs. `run` tells one run of a job from the next one of the same name.
    `jobset_job` is the index of the pod's Job in its ReplicatedJob and `replicas` the number of such Jobs;
    `group_size` the size that a LeaderWorkerSet states. `serving` marks the pod groups of serving workloads.
    """

    pod_groups: tuple[tuple[str, str], ...]
    workload: str
    slice: str
    kueue_group: str
    serving: bool
    podset: str
    controller: Owner | None
    batch_job: str
    jobset: str
    replicated_job: str
    jobset_job: str
    replicas: int | None
    kubeflow_job: str
    replica_type: str
    lws: str
    lws_index: str
    group_size: int | None
    ray: str
    ray_group: str
    indexed: bool
    run: tuple[str, ...]

    @property
    def any(self) -> bool:
        """Tell whether the pod names a group of any kind."""
        return bool(
            self.pod_groups or self.workload or self.slice or self.kueue_group or self.jobset or self.kubeflow_job
            or self.lws or self.ray
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod; times in seconds since the epoch.

    `node` is empty while the pod is unbound. `deletion` is metadata.deletionTimestamp, which Kubernetes writes as the
    END of the grace; `deletion_grace` seconds before it the deletion began. `nominated_at` is when the field
    nominatedNodeName was last set. `failing` says that a main container waits after a failure, or has ended with one.
    `labels` holds the labels that the user wants as tags. `scheduler_version` is (schedulerName, Kubernetes minor) of
    a pod that runs a scheduler.
    """

    namespace: str
    name: str
    uid: str
    created: float
    spec: PodSpec
    ties: Ties
    node: str
    phase: str
    deletion: float | None
    deletion_grace: float
    gated: bool
    nominated: str
    nominated_at: float | None
    scheduled: Condition | None
    ready: Condition | None
    started: float | None
    failing: bool
    labels: tuple[tuple[str, str], ...]
    scheduler_version: tuple[str, int] | None


_Shared = TypeVar("_Shared", PodSpec, Ties)
#: Bound of the memory of shared records: well above the number of jobs of a large cluster.
_MAX_SHARED = 100_000


def reducer(gpus: GpuResources, labels: tuple[str, ...] = ()) -> Callable[[Json], Pod | None]:
    """Return the function that makes `Pod` facts, with its memory of shared records."""
    return partial(_pod, gpus, labels, {})


def _pod(gpus: GpuResources, wanted: tuple[str, ...], shared: dict[object, object], obj: Json) -> Pod | None:
    metadata, namespace, name = identity(obj)
    spec, status = mapping(obj, "spec"), mapping(obj, "status")
    pod_spec = _spec(spec, gpus)
    labels = strings(metadata, "labels")
    ties = _ties(metadata, labels, spec)
    version = _scheduler_version(spec)
    if not (pod_spec.gpus or ties.any or version):
        return None
    phase = text(status, "phase") or "Pending"
    if phase not in PHASES:
        msg = "status.phase is unknown"
        raise BadObjectError(msg)
    created = moment(metadata, "creationTimestamp")
    deletion = moment(metadata, "deletionTimestamp")
    grace = metadata.get("deletionGracePeriodSeconds")
    found = conditions(status, _CONDITIONS)
    nominated = text(status, "nominatedNodeName")
    return Pod(
        namespace=namespace,
        name=name,
        uid=text(metadata, "uid"),
        created=0.0 if created is None else created,
        spec=_share(shared, pod_spec),
        ties=_share(shared, ties),
        node=text(spec, "nodeName"),
        phase=phase,
        deletion=deletion,
        deletion_grace=_DEFAULT_GRACE if grace is None else float(grace),
        gated=bool(items(spec, "schedulingGates")),
        nominated=nominated,
        nominated_at=_owned_since(metadata, "f:nominatedNodeName") if nominated else None,
        scheduled=found.get("PodScheduled"),
        ready=found.get("Ready"),
        started=moment(status, "startTime"),
        failing=phase == "Running" and _failing(spec, status),
        labels=tuple((key, labels[key]) for key in wanted if key in labels) if wanted else (),
        scheduler_version=version,
    )


def _share(shared: dict[object, object], value: _Shared) -> _Shared:
    if len(shared) > _MAX_SHARED:
        # Jobs come and go; what the kept pods share they go on sharing, only new pods start a new record.
        shared.clear()
    return shared.setdefault(value, value)  # type: ignore[return-value]


def _spec(spec: Json, gpus: GpuResources) -> PodSpec:
    return PodSpec(
        gpus=pod_units(spec, gpus),
        scheduler=text(spec, "schedulerName") or "default-scheduler",
        tolerations=tolerations(spec),
        ray_autoscaler=any(container.get("name") == RAY_AUTOSCALER for container in items(spec, "containers")),
        elastic=any(gate.get("name") == ELASTIC_GATE for gate in items(spec, "schedulingGates")),
    )


def tolerations(spec: Json) -> tuple[Toleration, ...]:
    """Read the tolerations of a pod spec or of a ResourceFlavor spec."""
    return tuple(
        Toleration(
            text(item, "key"), text(item, "operator") or "Equal", text(item, "value"), text(item, "effect")
        )
        for item in items(spec, "tolerations")
    )  # fmt: skip


def _ties(metadata: Json, labels: dict[str, str], spec: Json) -> Ties:
    annotations = strings(metadata, "annotations")
    owner = controller(metadata)
    job = text(labels, "batch.kubernetes.io/job-name") or text(labels, "job-name")
    job_uid = text(labels, "batch.kubernetes.io/controller-uid") or text(labels, "controller-uid")
    jobset = text(labels, "jobset.sigs.k8s.io/jobset-name")
    kueue_slice = text(annotations, "kueue.x-k8s.io/workload-slice-name")
    workload = text(annotations, "kueue.x-k8s.io/workload")
    # The annotation replaced the label in Kueue 0.18 for LeaderWorkerSet and StatefulSet pods.
    kueue_group = text(annotations, "kueue.x-k8s.io/pod-group-name") or text(labels, "kueue.x-k8s.io/pod-group-name")
    prebuilt = (
        text(annotations, "kueue.x-k8s.io/prebuilt-workload-name") or text(labels, "kueue.x-k8s.io/prebuilt-workload-name")
    )  # fmt: skip
    runs = (
        (kueue_slice or workload,),
        (jobset, text(labels, "jobset.sigs.k8s.io/jobset-uid")) if jobset else ("",),
        (job, job_uid) if job else ("",),
        (owner.uid,) if owner else ("",),
    )
    return Ties(
        pod_groups=tuple((engine.name, name) for engine in ENGINES if (name := engine.tie(labels, annotations, spec))),
        workload=workload or prebuilt,
        slice=kueue_slice,
        kueue_group=kueue_group,
        serving=text(annotations, "kueue.x-k8s.io/pod-group-serving") == "true",
        podset=text(labels, "kueue.x-k8s.io/podset") or text(annotations, "kueue.x-k8s.io/role-hash"),
        controller=owner,
        batch_job=job,
        jobset=jobset,
        replicated_job=text(labels, "jobset.sigs.k8s.io/replicatedjob-name"),
        jobset_job=text(labels, "jobset.sigs.k8s.io/job-index"),
        replicas=_stated(labels, "jobset.sigs.k8s.io/replicatedjob-replicas"),
        kubeflow_job=text(labels, "training.kubeflow.org/job-name"),
        replica_type=text(labels, "training.kubeflow.org/replica-type"),
        lws=text(labels, "leaderworkerset.sigs.k8s.io/name"),
        lws_index=text(labels, "leaderworkerset.sigs.k8s.io/group-index"),
        group_size=_stated(annotations, "leaderworkerset.sigs.k8s.io/size"),
        ray=text(labels, "ray.io/originated-from-cr-name") or text(labels, "ray.io/cluster"),
        ray_group=text(labels, "ray.io/group"),
        indexed="batch.kubernetes.io/job-completion-index" in annotations
        or "batch.kubernetes.io/job-completion-index" in labels,
        run=next((run for run in runs if run[0]), ()),
    )


def _stated(texts: dict[str, str], key: str) -> int | None:
    """Return a size that a label or annotation states, None where it states none or nonsense: it is only a hint."""
    value = texts.get(key)
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 7 else None  # noqa: PLR2004


def _owned_since(metadata: Json, field: str) -> float | None:
    """Return when the status field was last written by a status update, from managedFields (server-side apply)."""
    times = [
        moment(entry, "time")
        for entry in items(metadata, "managedFields")
        if entry.get("subresource") == "status" and field in mapping(mapping(entry, "fieldsV1"), "f:status")
    ]
    return max((time for time in times if time is not None), default=None)


def _failing(spec: Json, status: Json) -> bool:
    """Tell whether a main container has failed; sidecars are init containers and have their own list of statuses.

    A container that ended with 0 has done its work, unless the kubelet would start it again (restartPolicy Always).
    """
    always = (text(spec, "restartPolicy") or "Always") == "Always"
    for container in items(status, "containerStatuses"):
        state = mapping(container, "state")
        waiting, terminated = mapping(state, "waiting"), mapping(state, "terminated")
        if waiting and waiting.get("reason") not in _STARTING:
            return True
        if terminated and (always or terminated.get("exitCode") != 0):
            return True
    return False


def _scheduler_version(spec: Json) -> tuple[str, int] | None:
    for container in items(spec, "containers"):
        match = _SCHEDULER_IMAGE.match(container.get("image") or "")
        if match:
            plugins = "scheduler-plugins" in (match["path"] or "")
            return ("scheduler-plugins-scheduler" if plugins else "default-scheduler", int(match["minor"]))
    return None
