# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""From the validated options of an instance to what the parts of the check take.

The one place where an option's name meets the part that it steers. The commands use it too, with the defaults.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import orjson

from datadog_checks.kueue_gang.config_models.conversions import HTTP_OPTIONS
from datadog_checks.kueue_gang.config_models.signals import LEAST_RUNS
from datadog_checks.kueue_gang.config_models.validators import slot_parts, taint_parts
from datadog_checks.kueue_gang.derive.rules import GANG_KINDS, Rules, TrainingRule
from datadog_checks.kueue_gang.emit_gang import EmitOptions
from datadog_checks.kueue_gang.facts import jobs, nodes, pods, queues, rejections, topology, trainjobs, workloads
from datadog_checks.kueue_gang.facts.podgroups import ENGINES
from datadog_checks.kueue_gang.facts.pods import Toleration
from datadog_checks.kueue_gang.facts.quantity import GpuResources
from datadog_checks.kueue_gang.options import thaw
from datadog_checks.kueue_gang.sources.prometheus import activity_query
from datadog_checks.kueue_gang.sources.resources import Reducer, Resource, resources
from datadog_checks.kueue_gang.sources.samples import ACTIVITY_METRICS, NAMESPACE_LABELS, POD_LABELS
from datadog_checks.kueue_gang.sources.targets import PodTarget, PrometheusTarget, Targets, TrainJobTarget

if TYPE_CHECKING:
    from datadog_checks.kueue_gang.config_models import InstanceConfig


def rules(config: "InstanceConfig") -> Rules:
    """Return the options that decide what the facts mean."""
    return Rules(
        gpus=GpuResources(tuple(config.gpu_resources or ())),
        grace=float(config.grace_seconds or 0),
        gang_engines=None if config.gang_engines is None else frozenset(config.gang_engines),
        gang_kinds=GANG_KINDS if config.kueue_gang_kinds is None else frozenset(config.kueue_gang_kinds),
        implicit_gangs=config.implicit_gangs == "known",
        include_cpu_gangs=bool(config.include_cpu_gangs),
        namespaces=tuple(config.namespaces or ()),
        exclude_namespaces=tuple(config.exclude_namespaces or ()),
        tolerated_taints=tuple(_toleration(taint) for taint in config.tolerated_taints or ()),
        gang_schedulers=frozenset(config.gang_scheduler_names or ()),
        scheduler_versions=tuple((config.scheduler_versions or {}).items()),
        labels=tuple(config.gang_labels_as_tags or ()),
        topology_levels=tuple(config.topology_levels or ()),
        slots=tuple(parts for slot in config.slots or () if (parts := slot_parts(slot))),
        elastic_flavors=frozenset(config.elastic_flavors or ()),
        activity=bool(config.activity),
        inactive_after=float(config.inactive_after_seconds or 0),
        training=tuple(_training_rule(source, interval(config)) for source in config.training or ()),
        prices=tuple((config.gpu_hourly_price or {}).items()),
    )


def targets(config: "InstanceConfig") -> Targets:
    """Return the options that say where signals are read."""
    activity: Mapping[str, Any] = config.activity or {}
    named = [activity[key] for key in ("namespace_label", "pod_label") if key in activity]
    query = activity_query(interval(config), named)
    return Targets(
        activity=_target(activity, {**_ACTIVITY, "query": query}) if activity else None,
        training=tuple(
            TrainJobTarget() if source.get("train_jobs") else _target(source, {}) for source in config.training or ()
        ),
    )


def emit_options(config: "InstanceConfig") -> EmitOptions:
    """Return the options that decide which series are sent."""
    return EmitOptions(
        tags=tuple(config.tags or ()),
        zero_tail=float(config.zero_tail_seconds or 0),
        per_gang=config.per_gang_metrics or "attention",
        max_gangs=int(config.max_gangs or 0),
        label_tags=dict(config.gang_labels_as_tags or {}),
    )


def wanted_resources(options: Rules) -> tuple[Resource, ...]:
    """Return the resources to read: all but what the engines have that are not wanted."""
    unwanted = {engine.source for engine in ENGINES if not options.engine(engine.name)}
    if not any(source.train_jobs for source in options.training):
        unwanted.add(trainjobs.TRAIN_JOBS)
    if unwanted >= {engine.source for engine in ENGINES}:
        # Only these have a scheduler that rejects gangs.
        unwanted.add(rejections.EVENTS)
    return tuple(row for row in resources(_reducers(options)) if row.api_source not in unwanted)


def _reducers(options: Rules) -> Mapping[str, Reducer]:
    gpus, labels = options.gpus, options.labels
    return {
        # Pods are told apart by what they share with others; bytes are the quickest key for that.
        "pods": pods.reducer(gpus, labels, orjson.dumps),
        "nodes": nodes.reducer(gpus),
        "jobs": jobs.reducer(labels),
        "workloads.kueue.x-k8s.io": workloads.reducer(gpus, labels),
        "clusterqueues": queues.cluster_queue_reducer(gpus),
        "localqueues": queues.local_queue,
        "cohorts": queues.cohort_reducer(gpus),
        "admissionchecks": queues.admission_check,
        "resourceflavors": queues.resource_flavor,
        "topologies": topology.topology,
        rejections.EVENTS: rejections.rejection_event,
        trainjobs.TRAIN_JOBS: trainjobs.train_job,
        **{engine.source: engine.reducer(gpus, labels) for engine in ENGINES},
    }


#: What an option `activity` leaves out: the port is that of dcgm-exporter, the labels are those of its versions.
_ACTIVITY: Final = {
    "port": 9400,
    "metrics": ACTIVITY_METRICS,
    "namespace_labels": NAMESPACE_LABELS,
    "pod_labels": POD_LABELS,
}
#: Key of an option -> field of the target, which holds a sequence.
_LISTED: Final = {"metric": "metrics", "namespace_label": "namespace_labels", "pod_label": "pod_labels"}


def _target(source: Mapping[str, Any], default: Mapping[str, Any]) -> PodTarget | PrometheusTarget:
    """Return the target of a source; what neither it nor `default` sets, the target itself does."""
    kind = PodTarget if "label_selector" in source else PrometheusTarget
    given = {"url" if key == "prometheus_url" else key: value for key, value in source.items()}
    given |= {_LISTED[key]: (given.pop(key),) for key in _LISTED.keys() & given.keys()}
    known = {one.name for one in fields(kind)}
    wanted = {key: value for key, value in {**default, **given}.items() if key in known}
    return kind(**wanted, http={key: thaw(given[key]) for key in given.keys() & HTTP_OPTIONS})


def interval(config: "InstanceConfig") -> float:
    """Return the seconds between two runs."""
    return float(config.min_collection_interval or 15)


def _training_rule(source: Mapping[str, Any], every: float) -> TrainingRule:
    """Return how the samples of a source of training are understood, with a run `every` so many seconds."""
    train_jobs = bool(source.get("train_jobs"))
    return TrainingRule(
        unit=source.get("unit", ""),
        over_ranks=source.get("over_ranks", "sum"),
        # A run takes one sample, and a pause takes some to be seen.
        stalled_after=float(source.get("stalled_after_seconds", max(300, LEAST_RUNS * every))),
        train_jobs=train_jobs,
        # Of pods the metric is what is read, and no choice is left.
        metric=source.get("metric", "") if train_jobs else "",
    )


def _toleration(taint: str) -> Toleration:
    """Return the toleration that an entry of `tolerated_taints` stands for: `key`, `key=value`, `key=value:Effect`."""
    key, value, effect = taint_parts(taint)
    return Toleration(key, "Exists" if value is None else "Equal", value or "", effect or "")
