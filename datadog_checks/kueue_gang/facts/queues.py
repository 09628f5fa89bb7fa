# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Kueue's queues, quota and flavors, in v1beta1 and v1beta2 (a Cohort also in v1alpha1).

What differs between the versions for a reader: the Cohort of a ClusterQueue is `spec.cohort` in v1beta1 and
`spec.cohortName` in v1beta2; its AdmissionChecks are `spec.admissionChecks` in v1beta1 only, and
`spec.admissionChecksStrategy` in both; the parent of a Cohort is `spec.parent` in v1alpha1. A Cohort may exist by name
only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from datadog_checks.kueue_gang.facts.fields import Condition, Json, conditions, identity, items, mapping, strings, text
from datadog_checks.kueue_gang.facts.nodes import Taint
from datadog_checks.kueue_gang.facts.pods import Toleration, tolerations
from datadog_checks.kueue_gang.facts.quantity import GpuResources, units

#: The controller that asks the cluster autoscaler for nodes (ProvisioningRequest).
PROVISIONING = "kueue.x-k8s.io/provisioning-request"

_ACTIVE = frozenset({"Active"})
#: Values of stopPolicy that stop a queue.
_STOPPED = frozenset({"Hold", "HoldAndDrain"})


@dataclass(frozen=True, slots=True)
class Quota:
    """GPU quota of one flavor and resource in a ClusterQueue; limits are None where there is none."""

    flavor: str
    resource: str
    nominal: int
    borrowing_limit: int | None
    lending_limit: int | None


@dataclass(frozen=True, slots=True)
class Usage:
    """GPU units of one flavor and resource that Workloads reserve or use; `borrowed` of them from the Cohort."""

    flavor: str
    resource: str
    total: int
    borrowed: int


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    """A ClusterQueue with its GPU quota. `flavors` names every flavor that it lists, with or without GPUs.

    `checks` are (AdmissionCheck, the flavors that it is for); no flavors means all.
    """

    name: str
    cohort: str
    stopped: bool
    active: Condition | None
    flavors: tuple[str, ...]
    checks: tuple[tuple[str, frozenset[str]], ...]
    quota: tuple[Quota, ...]
    reserved: tuple[Usage, ...]
    used: tuple[Usage, ...]


@dataclass(frozen=True, slots=True)
class LocalQueue:
    """A LocalQueue: the door of a namespace to a ClusterQueue."""

    namespace: str
    name: str
    cluster_queue: str
    stopped: bool
    active: Condition | None


@dataclass(frozen=True, slots=True)
class Cohort:
    """A Cohort that has an object, with GPU quota of its own."""

    name: str
    parent: str
    quota: tuple[Quota, ...]


@dataclass(frozen=True, slots=True)
class AdmissionCheck:
    """An AdmissionCheck and the controller that decides it."""

    name: str
    controller: str

    @property
    def provisions(self) -> bool:
        """Tell whether it makes nodes: the flavors that it is for grow."""
        return self.controller == PROVISIONING


@dataclass(frozen=True, slots=True)
class ResourceFlavor:
    """A ResourceFlavor: the nodes that it selects by label, the taints its pods tolerate, the Topology it names."""

    name: str
    node_labels: dict[str, str]
    taints: tuple[Taint, ...]
    tolerations: tuple[Toleration, ...]
    topology: str


def cluster_queue_reducer(gpus: GpuResources) -> Callable[[Json], ClusterQueue]:
    """Return the function that makes `ClusterQueue` facts."""
    return partial(_cluster_queue, gpus)


def _cluster_queue(gpus: GpuResources, obj: Json) -> ClusterQueue:
    _, _, name = identity(obj)
    spec, status = mapping(obj, "spec"), mapping(obj, "status")
    flavors = _flavors(spec)
    return ClusterQueue(
        name=name,
        cohort=text(spec, "cohortName") or text(spec, "cohort"),
        stopped=text(spec, "stopPolicy") in _STOPPED,
        active=conditions(status, _ACTIVE).get("Active"),
        flavors=tuple(text(flavor, "name") for flavor in flavors),
        checks=_checks(spec),
        quota=_quota(flavors, gpus),
        reserved=_usage(status, "flavorsReservation", gpus),
        used=_usage(status, "flavorsUsage", gpus),
    )


def _flavors(spec: Json) -> list[Json]:
    return [flavor for group in items(spec, "resourceGroups") for flavor in items(group, "flavors")]


def _quota(flavors: list[Json], gpus: GpuResources) -> tuple[Quota, ...]:
    return tuple(
        Quota(
            flavor=text(flavor, "name"),
            resource=text(resource, "name"),
            nominal=units(resource.get("nominalQuota", 0)),
            borrowing_limit=_limit(resource, "borrowingLimit"),
            lending_limit=_limit(resource, "lendingLimit"),
        )
        for flavor in flavors
        for resource in items(flavor, "resources")
        if text(resource, "name") in gpus
    )


def _checks(spec: Json) -> tuple[tuple[str, frozenset[str]], ...]:
    listed = spec.get("admissionChecks") or ()
    rules = items(mapping(spec, "admissionChecksStrategy"), "admissionChecks")
    return (
        *((name, frozenset[str]()) for name in listed if isinstance(name, str)),
        *((text(rule, "name"), frozenset(one for one in rule.get("onFlavors") or () if isinstance(one, str)))
          for rule in rules),
    )  # fmt: skip


def _limit(resource: Json, key: str) -> int | None:
    value = resource.get(key)
    return None if value is None else units(value)


def _usage(status: Json, key: str, gpus: GpuResources) -> tuple[Usage, ...]:
    return tuple(
        Usage(
            flavor=text(flavor, "name"),
            resource=text(resource, "name"),
            total=units(resource.get("total", 0)),
            borrowed=units(resource.get("borrowed", 0)),
        )
        for flavor in items(status, key)
        for resource in items(flavor, "resources")
        if text(resource, "name") in gpus
    )


def local_queue(obj: Json) -> LocalQueue:
    """Read a LocalQueue."""
    _, namespace, name = identity(obj)
    spec = mapping(obj, "spec")
    return LocalQueue(
        namespace=namespace,
        name=name,
        cluster_queue=text(spec, "clusterQueue"),
        stopped=text(spec, "stopPolicy") in _STOPPED,
        active=conditions(mapping(obj, "status"), _ACTIVE).get("Active"),
    )


def cohort_reducer(gpus: GpuResources) -> Callable[[Json], Cohort]:
    """Return the function that makes `Cohort` facts."""
    return partial(_cohort, gpus)


def _cohort(gpus: GpuResources, obj: Json) -> Cohort:
    _, _, name = identity(obj)
    spec = mapping(obj, "spec")
    parent = text(spec, "parentName") or text(spec, "parent")
    return Cohort(name=name, parent=parent, quota=_quota(_flavors(spec), gpus))


def admission_check(obj: Json) -> AdmissionCheck:
    """Read an AdmissionCheck."""
    _, _, name = identity(obj)
    return AdmissionCheck(name=name, controller=text(mapping(obj, "spec"), "controllerName"))


def resource_flavor(obj: Json) -> ResourceFlavor:
    """Read a ResourceFlavor."""
    _, _, name = identity(obj)
    spec = mapping(obj, "spec")
    return ResourceFlavor(
        name=name,
        node_labels=strings(spec, "nodeLabels"),
        taints=tuple(
            Taint(text(taint, "key"), text(taint, "value"), text(taint, "effect"))
            for taint in items(spec, "nodeTaints")
        ),
        tolerations=tolerations(spec),
        topology=text(spec, "topologyName"),
    )
