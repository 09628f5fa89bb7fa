# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The rules that options keep, checked when the Agent loads an instance.

The generated models beside this file know the type of each option. They call the functions here by name:
`initialize_instance` with the raw mapping, `instance_<option>` with the value of an option that is set, and
`check_instance` with the finished model. What is wrong is raised as `ValueError`; the Agent shows the texts of all
options at once and does not run the instance.

Each text names the option, says what is wrong with it and what to do. Values of options that may hold a secret (URLs,
tokens, TLS settings) are never quoted. An option with nothing behind its colon counts as not set.

What values may be in general stands in `conversions`, and the options of activity, training and cost in `signals`.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from . import defaults, signals
from .conversions import (
    AUTH_EXAMPLE,
    DIGITS,
    LABEL_KEY,
    LABEL_VALUE,
    OBJECT_NAME,
    Convert,
    absolute_path,
    boolean,
    hint_at,
    http_options,
    http_url,
    list_of,
    mapped,
    matching,
    number,
    one_of,
    plain_text,
    refusal,
    shown,
    whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from .instance import InstanceConfig


#: Tag keys that mean something else at Datadog, or that the Agent renames as too generic.
RESERVED_TAG_KEYS = frozenset(
    {
        "cluster",
        "cluster_id",
        "cluster_name",
        "clusterid",
        "clustername",
        "device",
        "env",
        "host",
        "host_name",
        "hostname",
        "kube_cluster_name",
        "service",
        "source",
        "version",
    },
)

#: Tag keys that this check sends itself. A label under one of these would give a series two values for one key.
OWN_TAG_KEYS = frozenset(
    {
        "api_source",
        "blocker",
        "domain_state",
        "gang",
        "gang_engine",
        "gang_partial",
        "gang_state",
        "gpu_resource",
        "gpu_use",
        "idle_reason",
        "kube_namespace",
        "kueue_cluster_queue",
        "kueue_eviction_reason",
        "kueue_local_queue",
        "kueue_resource_flavor",
        "kueue_workload_priority_class",
        "labeled",
        "member_state",
        "owner_kind",
        "phase",
        "placement",
        "plugin",
        "queue",
        "reason",
        "result",
        "signal",
        "slot",
        "stall_reason",
        "topology",
        "topology_level",
        "underlying_cause",
        "unit",
        "workload_stage",
    },
)

#: Series of one gang multiply with each tag, so their number has a bound.
MAX_LABEL_TAGS = 5

#: Resources of every pod and node. A pattern that takes one of these for a GPU makes all figures wrong.
PLAIN_RESOURCES = ("cpu", "memory", "pods", "ephemeral-storage", "hugepages-2Mi", "hugepages-1Gi")

#: The most pods, and GPUs a pod, of a slot.
MAX_SLOT = 100_000

#: Minor versions of Kubernetes that may be meant: gang scheduling as a plugin began with 1.16.
OLDEST_MINOR, NEWEST_MINOR = 16, 99

GANG_ENGINES = ("coscheduling", "kubernetes", "kueue")
TAINT_EFFECTS = ("NoSchedule", "NoExecute")

_NAMESPACE_PATTERN = re.compile(r"[-a-z0-9*?\[\]!]+")
_RESOURCE_PATTERN = re.compile(r"[-A-Za-z0-9_./*?\[\]!]+")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]*")
_TAG_KEY = re.compile(r"[a-z][a-z0-9_./-]{0,99}")
_SLOT = re.compile(r"([0-9]{1,9})x([0-9]{1,9})")
_VERSION = re.compile(r"v?1\.(?P<minor>[0-9]+)(\.[0-9]+)?")


def taint_parts(taint: str) -> tuple[str, str | None, str | None]:
    """Split `key`, `key=value` or `key=value:Effect` into key, value and effect; None where a part is left out."""
    key, has_value, rest = taint.partition("=")
    if not has_value:
        return key, None, None
    value, has_effect, effect = rest.partition(":")
    return key, value, effect if has_effect else None


def slot_parts(slot: str) -> tuple[int, int] | None:
    """Split `2x8` into the number of pods and the GPUs a pod; None where it is no such text."""
    found = _SLOT.fullmatch(slot)
    return (int(found[1]), int(found[2])) if found else None


# What the options may hold.


_level = matching(LABEL_KEY, "the key of a node label, such as topology.kubernetes.io/zone")
_flavor = matching(OBJECT_NAME, "the exact name of a ResourceFlavor")
_namespace = matching(_NAMESPACE_PATTERN, "the name of a namespace or a pattern, such as team-*")
_scheduler = matching(OBJECT_NAME, "the schedulerName of pods")
_job_kind = matching(_KIND, "the kind of a job as its manifest says it, such as JobSet")
_resource = matching(_RESOURCE_PATTERN, "the name of a resource or a pattern, such as nvidia.com/mig-*")


def _engine(option: str, value: object) -> str:
    if value == "job":
        raise refusal(option, "holds 'job', which is no engine: set `implicit_gangs` to known or none for those")
    if isinstance(value, str) and value in GANG_ENGINES:
        return value
    hint = hint_at(str(value).lower(), GANG_ENGINES)
    raise refusal(option, f"holds {shown(value)}: this release knows {', '.join(GANG_ENGINES)}{hint}")


def _gpu_resource(option: str, value: object) -> str:
    resource = _resource(option, value)
    if resource.endswith("_monitoring"):
        raise refusal(option, f"holds {shown(resource)}: that gives sight of GPUs and is none, remove it")
    plain = next((name for name in PLAIN_RESOURCES if fnmatchcase(name, resource)), None)
    if plain:
        raise refusal(option, f"holds {shown(resource)}, which takes {plain} for a GPU: write it as domain/name")
    return resource


def _taint(option: str, value: object) -> str:
    taint = plain_text(option, value)
    key, label, effect = taint_parts(taint)
    problem = None
    if label is None and ":" in key:
        problem = "an effect needs a value, as key=value:Effect; without one write the key alone"
    elif not LABEL_KEY.fullmatch(key) or (label and not LABEL_VALUE.fullmatch(label)):
        problem = "write key, key=value or key=value:Effect"
    elif key.startswith("node.kubernetes.io/"):
        problem = "Kubernetes sets it on nodes that cannot take pods, remove it"
    elif effect == "PreferNoSchedule":
        problem = "PreferNoSchedule never keeps pods away, remove it"
    elif effect is not None and effect not in TAINT_EFFECTS:
        problem = f"the effect must be {' or '.join(TAINT_EFFECTS)}{hint_at(effect, TAINT_EFFECTS)}"
    if problem:
        raise refusal(option, f"holds {shown(taint)}: {problem}")
    return taint


def _slot(option: str, value: object) -> str:
    slot = plain_text(option, value)
    numbers = slot_parts(slot)
    if numbers is None or not all(1 <= number <= MAX_SLOT for number in numbers):
        raise refusal(
            option,
            f"holds {shown(slot)}: write pods x GPUs a pod, each from 1 to {MAX_SLOT}, such as 2x8",
        )
    return "{}x{}".format(*numbers)


def _minor(option: str, value: object) -> int:
    """Return the Kubernetes minor of `1.35`, `v1.35.2`, `"35"` or 35."""
    if isinstance(value, float):
        problem = f"is {value:g} to YAML, which reads 1.30 and 1.3 alike: put the version in quotes, as '{value:.2f}'"
        raise refusal(option, problem)
    minor = -1
    if isinstance(value, int) and not isinstance(value, bool):
        minor = value
    elif isinstance(value, str):
        version = _VERSION.fullmatch(value.strip())
        digits = version["minor"] if version else value.strip()
        minor = int(digits) if DIGITS.fullmatch(digits) else -1
    if not OLDEST_MINOR <= minor <= NEWEST_MINOR:
        raise refusal(option, f"is {shown(value)}: write a minor version of Kubernetes, as '1.35' or 35")
    return minor


def _scheduler_versions(option: str, value: object) -> dict[str, int]:
    versions = {}
    for name, version in mapped(option, value, "{scheduler-plugins-scheduler: '1.35'}").items():
        scheduler = _scheduler(option, name)
        versions[scheduler] = _minor(f"{option}.{scheduler}", version)
    return versions


def _tag_key(option: str, value: object) -> str:
    tag = plain_text(option, value)
    problem = None
    if not _TAG_KEY.fullmatch(tag):
        problem = "a tag begins with a letter and holds a-z, 0-9, _ . / and -"
    elif tag in RESERVED_TAG_KEYS:
        problem = f"that is reserved at Datadog, choose another, such as job_{tag}"
    elif tag in OWN_TAG_KEYS:
        problem = f"this check sends that tag itself, choose another, such as job_{tag}"
    if problem:
        raise refusal(option, f"is the tag {shown(tag)}: {problem}")
    return tag


def _gang_labels_as_tags(option: str, value: object) -> dict[str, str]:
    labels = mapped(option, value, "{example.com/team: team}")
    if len(labels) > MAX_LABEL_TAGS:
        raise refusal(option, f"holds {len(labels)} labels: keep at most {MAX_LABEL_TAGS}, each makes more series")
    tags: dict[str, str] = {}
    for label, tag in labels.items():
        key = plain_text(option, label)
        if not LABEL_KEY.fullmatch(key):
            raise refusal(option, f"holds {shown(key)}, which is no key of a label: write it as example.com/team")
        name = _tag_key(f"{option}.{key}", tag)
        if name in tags.values():
            raise refusal(option, f"gives the tag {name} to two labels: choose one name a label")
        tags[key] = name
    return tags


def _kube_api_options(option: str, value: object) -> dict[str, object]:
    return http_options(option, value, example="{tls_ca_cert: /path/to/ca.crt}", with_url=False)


def _scheduler_metrics(option: str, value: object) -> dict[str, object]:
    example = "{url: https://HOST:10259/metrics}"
    options = http_options(option, value, example=example, with_url=True)
    if "url" not in options:
        raise refusal(option, f"has no `url`: name the metrics of the scheduler, as {example}")
    return options


# The rules, by option. The generated models look these names up.


def _rule(option: str, convert: Convert[object]) -> Callable[..., object]:
    """Return the function that the models call for `option` where it is set."""

    def validate(value: object, *, field: object) -> object:
        del field  # the model's, and the same for every option
        if value is None:
            default = getattr(defaults, f"instance_{option}", None)
            return default() if default else None
        return convert(option, value)

    return validate


instance_openmetrics_endpoint = _rule("openmetrics_endpoint", http_url)
instance_kueue_metrics = _rule("kueue_metrics", one_of("gang", "none"))
instance_kueue_local_queue_metrics = _rule("kueue_local_queue_metrics", boolean)
instance_collect_kubernetes = _rule("collect_kubernetes", boolean)
instance_collect_events = _rule("collect_events", boolean)
instance_kube_config_path = _rule("kube_config_path", absolute_path)
instance_kube_context = _rule("kube_context", plain_text)
instance_kube_api_url = _rule("kube_api_url", http_url)
instance_kube_api_options = _rule("kube_api_options", _kube_api_options)
instance_kube_timeout = _rule("kube_timeout", number(above=0, use="set the seconds to wait, such as 10"))
instance_scheduler_metrics = _rule("scheduler_metrics", _scheduler_metrics)
instance_scheduler_versions = _rule("scheduler_versions", _scheduler_versions)
instance_gang_scheduler_names = _rule(
    "gang_scheduler_names",
    list_of(_scheduler, meaning_of_none="to leave it to `scheduler_metrics`"),
)
instance_namespaces = _rule("namespaces", list_of(_namespace, meaning_of_none="to report all namespaces"))
instance_exclude_namespaces = _rule("exclude_namespaces", list_of(_namespace, meaning_of_none="to exclude none"))
instance_gang_engines = _rule("gang_engines", list_of(_engine, meaning_of_none="to use all that the cluster serves"))
instance_kueue_gang_kinds = _rule("kueue_gang_kinds", list_of(_job_kind, meaning_of_none="to use the built-in kinds"))
instance_implicit_gangs = _rule("implicit_gangs", one_of("known", "none"))
instance_sync = _rule("sync", one_of("watch", "list"))
instance_include_cpu_gangs = _rule("include_cpu_gangs", boolean)
instance_gpu_resources = _rule("gpu_resources", list_of(_gpu_resource, meaning_of_none="to use the default"))
instance_tolerated_taints = _rule("tolerated_taints", list_of(_taint, meaning_of_none="where no taint is meant"))
instance_elastic_flavors = _rule("elastic_flavors", list_of(_flavor, meaning_of_none="where no flavor grows"))
instance_topology_levels = _rule(
    "topology_levels",
    list_of(_level, meaning_of_none="to use the Topology objects of Kueue"),
)
instance_slots = _rule("slots", list_of(_slot, meaning_of_none="to use the default"))
instance_grace_seconds = _rule("grace_seconds", number(least=0, use="0 is the least, for no grace at all"))
instance_zero_tail_seconds = _rule("zero_tail_seconds", number(least=0, use="0 is the least, for no zeros at all"))
instance_per_gang_metrics = _rule("per_gang_metrics", one_of("attention", "all", "none"))
instance_max_gangs = _rule("max_gangs", whole_number(use="to send none use `per_gang_metrics: none`"))
instance_gang_labels_as_tags = _rule("gang_labels_as_tags", _gang_labels_as_tags)
instance_training = _rule("training", signals.training)
instance_activity = _rule("activity", signals.activity)
instance_inactive_after_seconds = _rule("inactive_after_seconds", signals.inactive_after_seconds)
instance_gpu_hourly_price = _rule("gpu_hourly_price", signals.gpu_hourly_price)


HARMFUL = {
    "bearer_token_auth": f"does nothing with `openmetrics_endpoint`: use {AUTH_EXAMPLE}",
    "bearer_token_path": f"does nothing with `openmetrics_endpoint`: use {AUTH_EXAMPLE}",
    "namespace": "would change the prefix of all metrics, which is fixed: use the list `namespaces`",
}


def initialize_instance(values: dict[str, object]) -> dict[str, object]:
    """Refuse names that the models do not know, or know with another meaning, and that would do harm unseen."""
    for name, problem in HARMFUL.items():
        if values.get(name):
            raise refusal(name, problem)
    return values


def check_instance(model: InstanceConfig) -> InstanceConfig:
    """Refuse options that do not go together; all such faults in one error."""
    faults = [*_connection_faults(model), *_namespace_faults(model), *signals.faults(model)]
    if faults:
        text = "\n  ".join(faults)  # indented as the Agent indents the text of one fault
        raise ValueError(text)
    return model


def _connection_faults(model: InstanceConfig) -> list[str]:
    """Tell what is wrong with how the instance reaches its sources."""
    endpoint, url, path = model.openmetrics_endpoint, model.kube_api_url, model.kube_config_path
    scrapes = endpoint and (model.kueue_metrics != "none" or model.metrics or model.extra_metrics)
    tests = [
        (
            not model.collect_kubernetes and not endpoint,
            "`collect_kubernetes` is false and `openmetrics_endpoint` is not set, so there is nothing to do: set one",
        ),
        (
            not model.collect_kubernetes and endpoint and not scrapes,
            "`collect_kubernetes` is false and `kueue_metrics` is none, so there is nothing to do: change one",
        ),
        (
            url and path,
            "`kube_api_url` and `kube_config_path` both name the Kubernetes API: remove one",
        ),
        (
            model.kube_context and not path,
            "`kube_context` is a context of `kube_config_path`, which is not set: set it, or remove `kube_context`",
        ),
        (
            model.kube_api_options and not url,
            "`kube_api_options` apply to `kube_api_url`, which is not set: set it, or remove `kube_api_options`",
        ),
    ]
    return [text for fault, text in tests if fault]


def _namespace_faults(model: InstanceConfig) -> list[str]:
    """Tell which entries of `namespaces` are taken away again by `exclude_namespaces`."""
    excluded = model.exclude_namespaces or ()
    if not model.namespaces and "*" in excluded:
        return ["`exclude_namespaces` holds '*', so nothing would be reported: remove it"]
    # A pattern as text is matched by each pattern that takes in all that it takes in, or is equal to it.
    return [
        f"`namespaces` holds {shown(wanted)} and `exclude_namespaces` takes it away with {shown(pattern)}: remove one"
        for wanted in model.namespaces or ()
        for pattern in excluded
        if fnmatchcase(wanted, pattern)
    ]
