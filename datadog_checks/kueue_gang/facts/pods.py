# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Pods: where they are, what they ask for, and which gang they name.

A pod is split in four records. `Pod` (a named tuple, which is the quickest record to make: there are very many) holds
what differs from pod to pod. `PodSpec` holds what the pods of one template share, and `Ties` what the pods of one job
share: every way in which a pod can name a group it belongs to (`facts.ties`). These two are made once and referred to
(`facts.shared`), since a gang has up to thousands of equal pods. `Rare` holds what a pod has for a short time or never:
a pod that runs has one that is everybody's.

Pods that neither ask for a GPU nor name a group are not kept, save those that run a kube-scheduler: the image tag of
that one tells whether Permit waits can be seen (they can from Kubernetes 1.35 on, facts of KEP-5278).
"""

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from sys import intern
from typing import Any, NamedTuple

from datadog_checks.kueue_gang.facts.constraints import ANYWHERE, Constraint, constraint
from datadog_checks.kueue_gang.facts.fields import (
    MAX_TEXT,
    STATUSES,
    BadObjectError,
    Json,
    Times,
    items,
    mapping,
    moment,
    seconds,
    text,
    wanted_labels,
)
from datadog_checks.kueue_gang.facts.quantity import GpuResources, Units, pod_units
from datadog_checks.kueue_gang.facts.shared import Shared
from datadog_checks.kueue_gang.facts.ties import Ties, TiesReader

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
        self._specs = Shared[PodSpec]()
        self._ties = TiesReader()
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
        ties = self._ties.of(metadata, labels, spec)
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


def reducer(gpus: GpuResources, labels: tuple[str, ...] = (), digest: Digest = repr) -> PodReducer:
    """Return the function that makes `Pod` facts."""
    return PodReducer(gpus, labels, digest)


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
