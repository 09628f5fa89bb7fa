# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""PodGroups: the objects by which gang schedulers know a gang. One table row an engine.

Four API groups have a plural `podgroups`, so a group is never addressed by its plural alone. What differs between the
engines stands in its row of `ENGINES`: where the object lives, how a pod names it, and where the object says how many
members it needs. What a PodGroup says of its present state is not read: Coscheduling's counters add up the pods of
other namespaces, and its phases stay for ever (facts: scheduler-plugins, podgroup_controller.go). The one exception is
the native condition PodGroupScheduled: it never falls back to False, so True is proof that the gang once was complete.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from datadog_checks.kueue_gang.facts.fields import (
    Json,
    conditions,
    count,
    identity,
    mapping,
    moment,
    strings,
    text,
    wanted_labels,
)
from datadog_checks.kueue_gang.facts.quantity import GpuResources, Units, freeze

#: The native condition's name changed with Kubernetes 1.37, which says that it is sticky.
_ONCE_SCHEDULED = frozenset({"PodGroupScheduled", "PodGroupInitiallyScheduled"})


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A PodGroup of any engine.

    `required` is the least number of members that must run together, None where the object demands none (a native
    `basic` policy, an absent minMember). `gpus` is what the object says the whole group needs, where it says so.
    """

    engine: str
    namespace: str
    name: str
    created: float
    required: int | None
    gpus: Units
    once_scheduled: bool
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Engine:
    """A gang scheduler.

    `tie` takes (labels, annotations, spec) of a pod to the name of its PodGroup, or ''; `keys` are the labels and
    annotations that it reads. `required` takes the spec of a PodGroup to the members that it demands.
    """

    name: str
    group: str
    plural: str
    versions: tuple[str, ...]
    keys: frozenset[str]
    tie: Callable[[Json, Json, Json], str]
    required: Callable[[Json], int | None]

    @property
    def source(self) -> str:
        """The name of the source: its plural and group."""
        return f"{self.plural}.{self.group}"

    def reducer(self, gpus: GpuResources, labels: tuple[str, ...] = ()) -> Callable[[Json], PodGroup]:
        """Return the function that makes `PodGroup` facts of this engine."""
        return partial(_pod_group, self, gpus, labels)


_COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"


def _coscheduling_tie(labels: Json, _annotations: Json, _spec: Json) -> str:
    return text(labels, _COSCHEDULING_LABEL)


def _coscheduling_required(spec: Json) -> int | None:
    return count(spec, "minMember")


def _native_tie(_labels: Json, _annotations: Json, spec: Json) -> str:
    return text(mapping(spec, "schedulingGroup"), "podGroupName")


def _native_required(spec: Json) -> int | None:
    return count(mapping(mapping(spec, "schedulingPolicy"), "gang"), "minCount")


ENGINES: tuple[Engine, ...] = (
    Engine(
        name="coscheduling",
        group="scheduling.x-k8s.io",
        plural="podgroups",
        versions=("v1alpha1",),
        keys=frozenset({_COSCHEDULING_LABEL}),
        tie=_coscheduling_tie,
        required=_coscheduling_required,
    ),
    Engine(
        name="kubernetes",
        group="scheduling.k8s.io",
        plural="podgroups",
        versions=("v1alpha2",),
        keys=frozenset(),
        tie=_native_tie,
        required=_native_required,
    ),
)


def _pod_group(engine: Engine, gpus: GpuResources, wanted: tuple[str, ...], obj: Json) -> PodGroup:
    metadata, namespace, name = identity(obj)
    spec = mapping(obj, "spec")
    labels = strings(metadata, "labels")
    found = conditions(mapping(obj, "status"), _ONCE_SCHEDULED)
    return PodGroup(
        engine=engine.name,
        namespace=namespace,
        name=name,
        created=moment(metadata, "creationTimestamp") or 0.0,
        required=engine.required(spec),
        gpus=freeze(gpus.read(mapping(spec, "minResources"))),
        once_scheduled=any(condition.status for condition in found.values()),
        labels=wanted_labels(labels, wanted),
    )
