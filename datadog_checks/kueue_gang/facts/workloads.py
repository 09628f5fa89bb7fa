# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Kueue Workloads: what a job asked for, what it was given, and how far it came.

v1beta1 and v1beta2 differ for a reader in three places: the priority class (`spec.priorityClassName`, later
`spec.priorityClassRef`), the form of the topology assignment (see `topology`), and a misspelt field that is not read.

Finished Workloads stay in the cluster for ever by default, 5 to 30 KB each; only their name is kept, for a pod may
still name one. Of a pod template only what the model asks for is kept: GPUs, the nodes that it may have, the PodGroup
that it names.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from datadog_checks.kueue_gang.facts.constraints import Constraint, constraint
from datadog_checks.kueue_gang.facts.fields import (
    Condition,
    Json,
    Owner,
    conditions,
    count,
    flag,
    identity,
    items,
    mapping,
    moment,
    owners,
    strings,
    text,
    wanted_labels,
)
from datadog_checks.kueue_gang.facts.podgroups import ENGINES
from datadog_checks.kueue_gang.facts.pods import ELASTIC_GATE, RAY_AUTOSCALER, Toleration, tolerations
from datadog_checks.kueue_gang.facts.quantity import GpuResources, Units, pod_units
from datadog_checks.kueue_gang.facts.topology import Assignment, Request, assignment, request

_CONDITIONS = frozenset({"QuotaReserved", "Admitted", "PodsReady", "Evicted", "Requeued", "Finished"})


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods of one kind in a Workload.

    `count` is what the job asks for, `assigned` what an admission gave (None before), `minimum` what it would run with
    (partial admission, elastic jobs), `reclaimed` the finished pods whose quota went back. `gpus` is the request of one
    pod. `pod_groups` are the (engine, name) that the template names. `constraint` and `tolerations` are the template's,
    `request` what it asks of a topology. An admission gives `flavors`, (GPU resource, flavor), and an `assignment`.
    """

    name: str
    count: int
    minimum: int | None
    assigned: int | None
    reclaimed: int
    gpus: Units
    pod_groups: tuple[tuple[str, str], ...]
    ray_autoscaler: bool
    elastic: bool
    constraint: Constraint
    tolerations: tuple[Toleration, ...]
    request: Request | None
    flavors: tuple[tuple[str, str], ...]
    assignment: Assignment | None


@dataclass(frozen=True, slots=True)
class Workload:
    """A Workload; times in seconds since the epoch. A finished one has its identity and `finished` only.

    `owner` is the job: the controlling owner, else the owner that is no pod (LeaderWorkerSet), else the first pod of a
    group. `pod_group` marks Workloads of plain-pod groups, `group_index` the replica of a LeaderWorkerSet.
    `elsewhere` is set where MultiKueue runs the pods in another cluster, `variants` on the parent of a concurrent
    admission: neither has pods of its own. `slice` is the stable name that the slices of an elastic job share. `checks`
    are (AdmissionCheck, state) of those that are not Ready, `evictions` (reason, underlying cause, number) of all that
    ever were, where Kueue counts them.
    """

    namespace: str
    name: str
    created: float
    finished: bool
    active: bool
    queue: str
    cluster_queue: str
    priority_class: str
    owner: Owner | None
    pod_group: bool
    group_index: str
    elsewhere: bool
    variants: bool
    slice: str
    elastic: bool
    podsets: tuple[PodSet, ...]
    conditions: dict[str, Condition]
    requeues: int
    requeue_at: float | None
    checks: tuple[tuple[str, str], ...]
    evictions: tuple[tuple[str, str, int], ...]
    labels: tuple[tuple[str, str], ...]

    def is_true(self, kind: str) -> bool:
        """Tell whether a condition is True; an absent one is False."""
        found = self.conditions.get(kind)
        return found is not None and found.status is True

    @property
    def names(self) -> tuple[str, ...]:
        """Every name by which a pod of the Workload could be tied to it."""
        owner = self.owner.name if self.owner else ""
        named = (
            self.name,
            self.slice,
            owner,
            f"{owner}-{self.group_index}" if self.group_index else "",
            *(name for podset in self.podsets for _, name in podset.pod_groups),
        )
        return tuple(dict.fromkeys(name for name in named if name))

    @property
    def admitted(self) -> bool:
        """Admitted and not being evicted. Admitted stays True after both Finished and the instant of an eviction."""
        return self.is_true("Admitted") and not self.is_true("Evicted")


def reducer(gpus: GpuResources, labels: tuple[str, ...] = ()) -> Callable[[Json], Workload]:
    """Return the function that makes `Workload` facts."""
    return partial(_workload, gpus, labels)


def _workload(gpus: GpuResources, wanted: tuple[str, ...], obj: Json) -> Workload:
    metadata, namespace, name = identity(obj)
    spec, status = mapping(obj, "spec"), mapping(obj, "status")
    found = conditions(status, _CONDITIONS)
    finished = "Finished" in found and found["Finished"].status is True
    labels, annotations = strings(metadata, "labels"), strings(metadata, "annotations")
    admission, requeue = mapping(status, "admission"), mapping(status, "requeueState")
    owner = _owner(metadata)
    return Workload(
        namespace=namespace,
        name=name,
        created=moment(metadata, "creationTimestamp") or 0.0,
        finished=finished,
        active=flag(spec, "active", default=True),
        queue=text(spec, "queueName"),
        cluster_queue=text(admission, "clusterQueue"),
        priority_class=text(mapping(spec, "priorityClassRef"), "name") or text(spec, "priorityClassName"),
        owner=owner,
        pod_group=text(annotations, "kueue.x-k8s.io/is-group-workload") == "true",
        group_index=text(annotations, "kueue.x-k8s.io/component-workload-index"),
        elsewhere=bool(text(status, "clusterName")),
        variants=text(labels, "kueue.x-k8s.io/concurrent-admission-parent") == "true",
        slice=text(annotations, "kueue.x-k8s.io/workload-slice-name"),
        elastic=bool(
            text(annotations, "kueue.x-k8s.io/workload-slice-name")
            or text(annotations, "kueue.x-k8s.io/workload-slice-replacement-for")
        ),
        podsets=() if finished else _podsets(spec, status, admission, gpus),
        conditions={} if finished else found,
        requeues=count(requeue, "count") or 0,
        requeue_at=moment(requeue, "requeueAt"),
        checks=tuple(
            (text(check, "name"), state)
            for check in items(status, "admissionChecks")
            if (state := text(check, "state")) != "Ready"
        )
        if not finished
        else (),
        evictions=_evictions(status),
        labels=wanted_labels(labels, wanted),
    )


def _evictions(status: Json) -> tuple[tuple[str, str, int], ...]:
    counted = items(mapping(status, "schedulingStats"), "evictions")
    return tuple(
        sorted((text(one, "reason"), text(one, "underlyingCause"), count(one, "count") or 0) for one in counted)
    )


def _owner(metadata: Json) -> Owner | None:
    found = owners(metadata)
    ranked = sorted(found, key=lambda ref: (not ref[1], ref[0].kind == "Pod"))
    return ranked[0][0] if ranked else None


def _podsets(spec: Json, status: Json, admission: Json, gpus: GpuResources) -> tuple[PodSet, ...]:
    assigned = {text(item, "name"): item for item in items(admission, "podSetAssignments")}
    reclaimed = {text(item, "name"): count(item, "count") or 0 for item in items(status, "reclaimablePods")}
    return tuple(_podset(podset, assigned, reclaimed, gpus) for podset in items(spec, "podSets"))


def _podset(podset: Json, assigned: dict[str, Json], reclaimed: dict[str, int], gpus: GpuResources) -> PodSet:
    # The default name of the API; an object of an old release may lack it.
    name = text(podset, "name") or "main"
    template = mapping(podset, "template")
    metadata, pod_spec = mapping(template, "metadata"), mapping(template, "spec")
    labels, annotations = strings(metadata, "labels"), strings(metadata, "annotations")
    size = count(podset, "count")
    given = assigned.get(name, {})
    granted = count(given, "count")
    return PodSet(
        name=name,
        count=1 if size is None else size,
        minimum=count(podset, "minCount"),
        # A granted podset without a count was granted whole.
        assigned=(size if granted is None else granted) if given else None,
        reclaimed=reclaimed.get(name, 0),
        gpus=pod_units(pod_spec, gpus),
        pod_groups=tuple(
            (engine.name, tie) for engine in ENGINES if (tie := engine.tie(labels, annotations, pod_spec))
        ),
        ray_autoscaler=any(item.get("name") == RAY_AUTOSCALER for item in items(pod_spec, "containers")),
        elastic=any(item.get("name") == ELASTIC_GATE for item in items(pod_spec, "schedulingGates")),
        constraint=constraint(pod_spec),
        tolerations=tolerations(pod_spec),
        request=request(mapping(podset, "topologyRequest")),
        flavors=tuple(
            (resource, text(flavors, resource))
            for flavors in [strings(given, "flavors")]
            for resource in sorted(flavors)
            if resource in gpus
        ),
        assignment=assignment(mapping(given, "topologyAssignment")),
    )
