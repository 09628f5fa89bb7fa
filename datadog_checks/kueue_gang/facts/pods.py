# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Pods: where they are, what they ask for, and which gang they name.

A pod is split in four records. `Pod` (a named tuple, which is the quickest record to make: there are very many) holds
what differs from pod to pod. `PodSpec` holds what the pods of one template share, and `Ties` what the pods of one job
share: every way in which a pod can name a group it belongs to. These two are made once and referred to, since a gang
has up to thousands of equal pods. `Rare` holds what a pod has for a short time or never: a pod that runs has one that
is everybody's.

Pods that neither ask for a GPU nor name a group are not kept, save those that run a kube-scheduler: the image tag of
that one tells whether Permit waits can be seen (they can from Kubernetes 1.35 on, facts of KEP-5278).
"""

import re
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from sys import intern
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from datadog_checks.kueue_gang.facts.constraints import ANYWHERE, Constraint, constraint
from datadog_checks.kueue_gang.facts.fields import (
    MAX_TEXT,
    STATUSES,
    BadObjectError,
    Json,
    Owner,
    Times,
    controller,
    items,
    mapping,
    moment,
    seconds,
    text,
    wanted_labels,
)
from datadog_checks.kueue_gang.facts.podgroups import ENGINES
from datadog_checks.kueue_gang.facts.quantity import GpuResources, Units, pod_units

#: A phase to the text that all pods of that phase share.
PHASES = {phase: phase for phase in ("Pending", "Running", "Succeeded", "Failed", "Unknown")}

_CONDITIONS = frozenset({"PodScheduled", "Ready"})
#: Reasons with which a container of a Running pod waits without having failed: the sandbox is made anew.
_STARTING = frozenset({"ContainerCreating", "PodInitializing"})
#: Default of terminationGracePeriodSeconds, for objects that name a deletion time without its grace.
_DEFAULT_GRACE = 30.0

#: The container that KubeRay adds to the head pod of a cluster with enableInTreeAutoscaling.
RAY_AUTOSCALER = "autoscaler"
#: Gate of pods that belong to an elastic job (Kueue, workload slices).
ELASTIC_GATE = "kueue.x-k8s.io/elastic-job"

#: Labels and annotations that name a group, or a place in one.
_TIES = frozenset(
    {
        "batch.kubernetes.io/job-name", "job-name", "batch.kubernetes.io/controller-uid", "controller-uid",
        "jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/jobset-uid", "jobset.sigs.k8s.io/replicatedjob-name",
        "jobset.sigs.k8s.io/job-index", "jobset.sigs.k8s.io/replicatedjob-replicas", "kueue.x-k8s.io/workload",
        "kueue.x-k8s.io/workload-slice-name", "kueue.x-k8s.io/prebuilt-workload-name", "kueue.x-k8s.io/pod-group-name",
        "kueue.x-k8s.io/pod-group-serving", "kueue.x-k8s.io/podset", "kueue.x-k8s.io/role-hash",
        "training.kubeflow.org/job-name", "training.kubeflow.org/replica-type", "leaderworkerset.sigs.k8s.io/name",
        "leaderworkerset.sigs.k8s.io/group-index", "leaderworkerset.sigs.k8s.io/size", "ray.io/originated-from-cr-name",
        "ray.io/cluster", "ray.io/group",
    }
).union(*(engine.keys for engine in ENGINES))  # fmt: skip
#: The rank of a pod. Its presence tells that pods have ranks; its value differs from pod to pod and is not needed.
_INDEX = "batch.kubernetes.io/job-completion-index"

#: kube-scheduler images: `registry.k8s.io/kube-scheduler:v1.36.2`; scheduler-plugins calls Kubernetes 1.34 v0.34.
_SCHEDULER_IMAGE = re.compile(r"(?P<path>.*/)?kube-scheduler[^/:@]*:v[01]\.(?P<minor>\d+)\.", re.ASCII)


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration: an empty `key` tolerates every key, an empty `effect` every effect."""

    key: str
    operator: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, weakref_slot=True)
class PodSpec:
    """What pods of one template share: effective GPU units, schedulerName, tolerations, signs of Ray and elasticity."""

    gpus: Units
    scheduler: str
    tolerations: tuple[Toleration, ...]
    ray_autoscaler: bool
    elastic: bool


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Ties:
    """Every group that a pod names; empty strings where it names none.

    `pod_groups` holds (engine, PodGroup name) pairs. `run` tells one run of a job from the next one of the same name.
    `names` are all of them, each once. `controller` is not read of a pod that names none. `jobset_job` is the index of
    the pod's Job in its ReplicatedJob and `replicas` the number of such Jobs; `group_size` the size that a
    LeaderWorkerSet states. `serving` marks the pod groups of serving workloads.
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
    names: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        """Tell whether the pod names a group of any kind; that of a batch Job alone is no group."""
        return bool(
            self.pod_groups or self.workload or self.slice or self.kueue_group or self.jobset or self.kubeflow_job
            or self.lws or self.ray
        )  # fmt: skip


def _names(ties: Ties) -> tuple[str, ...]:
    group = f"{ties.lws}-{ties.lws_index}" if ties.lws else ""
    named = (
        ties.workload, ties.slice, ties.kueue_group, ties.batch_job, ties.jobset, ties.kubeflow_job, ties.lws, group,
        ties.ray, *(name for _, name in ties.pod_groups),
    )  # fmt: skip
    return tuple(dict.fromkeys(name for name in named if name))


class Rare(NamedTuple):
    """What few pods have; most share `NOTHING_RARE`. The fields are told of with those of `Pod`."""

    deletion: float | None = None
    deletion_grace: float = _DEFAULT_GRACE
    gated: bool = False
    nominated: str = ""
    nominated_at: float | None = None
    failure: str | None = None
    failing: bool = False
    waiting: str = ""
    constraint: Constraint = ANYWHERE
    scheduler_version: tuple[str, int] | None = None


NOTHING_RARE = Rare()


class Pod(NamedTuple):
    """One pod; times in seconds since the epoch.

    `node` is empty while the pod is unbound. `bound_at` is when PodScheduled turned True, `ready_since` the last
    transition of Ready, `started` when the kubelet took the pod. `labels` holds the labels that the user wants as tags.
    What few pods have is in `rare`, and read as if it were here.
    """

    namespace: str
    name: str
    created: float
    spec: PodSpec
    ties: Ties
    node: str
    phase: str
    bound_at: float | None
    ready: bool
    ready_since: float | None
    started: float | None
    labels: tuple[tuple[str, str], ...]
    rare: Rare

    @property
    def deletion(self) -> float | None:
        """The metadata.deletionTimestamp, which Kubernetes writes as the END of the grace."""
        return self.rare.deletion

    @property
    def deletion_grace(self) -> float:
        """The deletion began so many seconds before `deletion`."""
        return self.rare.deletion_grace

    @property
    def gated(self) -> bool:
        """Whether it has scheduling gates."""
        return self.rare.gated

    @property
    def nominated(self) -> str:
        """The nominatedNodeName."""
        return self.rare.nominated

    @property
    def nominated_at(self) -> float | None:
        """When nominatedNodeName was last set."""
        return self.rare.nominated_at

    @property
    def failure(self) -> str | None:
        """The text of the last scheduling failure, None where there was none, as in a gated pod never tried."""
        return self.rare.failure

    @property
    def failing(self) -> bool:
        """Whether a main container waits after a failure, or has ended with one."""
        return self.rare.failing

    @property
    def waiting(self) -> str:
        """Why a container waits, of a pod that fails or is bound and not running: ImagePullBackOff and the like."""
        return self.rare.waiting

    @property
    def constraint(self) -> Constraint:
        """Where a pod that has no node yet may go; of one that has a node it is not kept."""
        return self.rare.constraint

    @property
    def scheduler_version(self) -> tuple[str, int] | None:
        """The (schedulerName, Kubernetes minor) of a pod that runs a scheduler."""
        return self.rare.scheduler_version


#: From a piece of JSON to what tells it from every other piece.
Digest = Callable[[Any], Hashable]


class PodReducer:
    """Makes `Pod` facts.

    A cluster has 100,000 pods and a few thousand kinds of them. What a pod shares with others is recognised by the very
    fields that it is made of, before any of them is read: the same resources, tolerations and gates give the same
    `PodSpec`, the same labels and annotations that name groups the same `Ties`. Only the first of each is read.
    """

    def __init__(self, gpus: GpuResources, labels: tuple[str, ...] = (), digest: Digest = repr) -> None:
        """Take the GPU resources, and the labels that become tags.

        `digest` turns a piece of JSON into something short that tells it from every other.
        """
        self._gpus = gpus
        self._digest = digest
        self._labels = labels
        self._specs = _Shared[PodSpec]()
        self._ties = _Shared[Ties]()
        self._times = Times()

    def __call__(self, obj: Json) -> Pod | None:
        """Return the fact of a pod, None for one that neither asks for GPUs, nor names a group, nor schedules.

        Raises:
            BadObjectError: the pod cannot be understood; also KeyError, TypeError, AttributeError, ValueError.

        """
        metadata, spec = obj["metadata"], obj.get("spec") or {}
        labels = metadata.get("labels") or {}
        if not isinstance(labels, dict):
            msg = "metadata.labels is not a mapping"
            raise BadObjectError(msg)
        pod_spec = self._spec_of(spec)
        ties = self._ties_of(metadata, labels, spec)
        version = None
        if not (pod_spec.gpus or ties.any):
            version = _scheduler_version(spec)
            if version is None:
                return None
        status = obj.get("status") or {}
        phase = PHASES.get(status.get("phase") or "Pending")
        if phase is None:
            msg = "status.phase is unknown"
            raise BadObjectError(msg)
        times = self._times
        failure: str | None = None
        started = times.read(status, "startTime")
        bound_at = started
        ready, ready_since = False, None
        for found in status.get("conditions") or ():
            kind = found["type"]
            if kind in _CONDITIONS and found["status"] not in STATUSES:
                msg = f"condition {kind} is not True, False or Unknown"
                raise BadObjectError(msg)
            if kind == "Ready":
                ready = found["status"] == "True"
                ready_since = times.read(found, "lastTransitionTime")
            elif kind == "PodScheduled":
                if found["status"] == "True":
                    bound_at = times.read(found, "lastTransitionTime") or started
                elif found["status"] == "False" and found.get("reason") != "SchedulingGated":
                    failure = intern(text(found, "message")[:MAX_TEXT])
        name = metadata["name"]
        if not name or not isinstance(name, str):
            msg = "metadata.name is missing"
            raise BadObjectError(msg)
        return Pod(
            namespace=text(metadata, "namespace"),
            name=name,
            created=times.read(metadata, "creationTimestamp") or 0.0,
            spec=pod_spec,
            ties=ties,
            node=text(spec, "nodeName"),
            phase=phase,
            bound_at=bound_at,
            ready=ready,
            ready_since=ready_since,
            started=started,
            labels=wanted_labels(labels, self._labels) if self._labels else (),
            rare=_rare(metadata, spec, status, failure, version),
        )

    def _spec_of(self, spec: Json) -> PodSpec:
        # A tuple of tuples of all these takes longer to make and to compare.
        key = self._digest(
            [
                _asked(spec.get("containers")),
                _asked(spec.get("initContainers")),
                spec.get("overhead"),
                spec.get("tolerations"),
                spec.get("schedulingGates"),
                spec.get("schedulerName"),
            ]
        )
        found = self._specs.get(key)
        if found is None:
            found = self._specs.remember(key, _spec(spec, self._gpus))
        return found

    def _ties_of(self, metadata: Json, labels: dict[str, str], spec: Json) -> Ties:
        annotations, group = metadata.get("annotations") or {}, spec.get("schedulingGroup")
        indexed = _INDEX in annotations or _INDEX in labels
        named = tuple([(name, labels[name]) for name in labels if name in _TIES])
        annotated = tuple([(name, annotations[name]) for name in annotations if name in _TIES])
        # Who owns a pod that names no group does not matter, and there are as many owners as Deployments.
        owned = metadata.get("ownerReferences") if named or annotated or group else None
        owner = next((ref for ref in owned if ref.get("controller")), None) if owned else None
        key = (
            named,
            annotated,
            (owner.get("kind"), owner.get("name"), owner.get("uid")) if owner else None,
            tuple(group.items()) if group else None,
            indexed,
        )
        found = self._ties.get(key)
        if found is None:
            found = self._ties.remember(
                key,
                _ties(dict(named), dict(annotated), controller(metadata) if owner else None, spec, indexed=indexed),
            )
        return found


def reducer(gpus: GpuResources, labels: tuple[str, ...] = (), digest: Digest = repr) -> PodReducer:
    """Return the function that makes `Pod` facts."""
    return PodReducer(gpus, labels, digest)


_Record = TypeVar("_Record", PodSpec, Ties)


class _Shared(WeakValueDictionary[Any, _Record]):
    """Records by what they are made of, for as long as a pod has them: jobs come and go, each with its own.

    The latest ones stay in any case. A pod that is not kept has none for long, and the next one is often its like.
    """

    LATEST = 256

    def __init__(self) -> None:
        super().__init__()
        self._latest: deque[_Record] = deque(maxlen=self.LATEST)

    def remember(self, key: object, record: _Record) -> _Record:
        self[key] = record
        self._latest.append(record)
        return record


def _asked(containers: list[Json] | None) -> list[tuple[Any, ...]]:
    """Return what tells containers apart for a `PodSpec`."""
    return [
        (container.get("name"), container.get("restartPolicy"), container.get("resources"))
        for container in containers or ()
    ]


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


def _ties(labels: Json, annotations: Json, owner: Owner | None, spec: Json, *, indexed: bool) -> Ties:
    job = text(labels, "batch.kubernetes.io/job-name") or text(labels, "job-name")
    job_uid = text(labels, "batch.kubernetes.io/controller-uid") or text(labels, "controller-uid")
    jobset = text(labels, "jobset.sigs.k8s.io/jobset-name")
    kueue_slice = text(annotations, "kueue.x-k8s.io/workload-slice-name")
    workload = text(annotations, "kueue.x-k8s.io/workload")
    runs = (
        (kueue_slice or workload,),
        (jobset, text(labels, "jobset.sigs.k8s.io/jobset-uid")) if jobset else ("",),
        (job, job_uid) if job else ("",),
        (owner.uid,) if owner else ("",),
    )
    ties = Ties(
        pod_groups=tuple((engine.name, name) for engine in ENGINES if (name := engine.tie(labels, annotations, spec))),
        workload=workload or _either(annotations, labels, "kueue.x-k8s.io/prebuilt-workload-name"),
        slice=kueue_slice,
        # The annotation replaced the label in Kueue 0.18 for LeaderWorkerSet and StatefulSet pods.
        kueue_group=_either(annotations, labels, "kueue.x-k8s.io/pod-group-name"),
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
        indexed=indexed,
        run=next((run for run in runs if run[0]), ()),
    )
    return replace(ties, names=_names(ties))


def _either(annotations: Json, labels: Json, key: str) -> str:
    return text(annotations, key) or text(labels, key)


def _stated(texts: dict[str, str], key: str) -> int | None:
    """Return a size that a label or annotation states, None where it states none or nonsense: it is only a hint."""
    value = texts.get(key)
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 7 else None  # noqa: PLR2004


def _rare(
    metadata: Json, spec: Json, status: Json, failure: str | None, version: tuple[str, int] | None
) -> Rare:  # fmt: skip
    deletion = moment(metadata, "deletionTimestamp")
    gated = bool(spec.get("schedulingGates"))
    nominated = text(status, "nominatedNodeName")
    failing = status.get("phase") == "Running" and _failing(spec, status)
    # A bound pod is where it is; pods pinned to a host each would share nothing.
    is_bound = bool(spec.get("nodeName"))
    where = ANYWHERE if is_bound else constraint(spec)
    waiting = _waiting(status) if failing or (is_bound and status.get("phase") == "Pending") else ""
    usual = deletion is None and failure is None and version is None and where is ANYWHERE
    if usual and not (gated or nominated or failing or waiting):
        return NOTHING_RARE
    return Rare(
        deletion=deletion,
        deletion_grace=seconds(metadata, "deletionGracePeriodSeconds", _DEFAULT_GRACE),
        gated=gated,
        nominated=nominated,
        nominated_at=_owned_since(metadata, "f:nominatedNodeName") if nominated else None,
        failure=failure,
        failing=failing,
        waiting=waiting,
        constraint=where,
        scheduler_version=version,
    )


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


def _waiting(status: Json) -> str:
    """Return the reason for which a container waits, of an init container first: the others wait for those."""
    for key in ("initContainerStatuses", "containerStatuses"):
        for container in items(status, key):
            reason = text(mapping(mapping(container, "state"), "waiting"), "reason")
            if reason:
                return reason
    return ""


def _scheduler_version(spec: Json) -> tuple[str, int] | None:
    for container in items(spec, "containers"):
        match = _SCHEDULER_IMAGE.match(container.get("image") or "")
        if match:
            plugins = "scheduler-plugins" in (match["path"] or "")
            return ("scheduler-plugins-scheduler" if plugins else "default-scheduler", int(match["minor"]))
    return None
