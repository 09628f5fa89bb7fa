# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What the check asks about the options of its instance, beside the generated models.

The models accept any name that they do not know, since the Agent adds some of its own, and they take options inside of
a mapping as they are. So three questions are left, and answered here: which names mean nothing, which files a
configuration from an untrusted source may not name, and what a mapping looks like to code that wants a plain dict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from datadog_checks.base.utils.models.validation.security import validate_require_trusted_provider

from .config_models.conversions import HTTP_OPTIONS, TLS_FILES, nearest
from .config_models.instance import InstanceConfig
from .config_models.validators import HARMFUL

#: Options of an instance that the Agent or its base class reads and that the templates of the models leave out.
AGENT_OPTIONS = frozenset(
    {
        "collect_histograms_as_distributions",
        "debug_metrics",
        "kerberos",
        "loader",
        "max_returned_metrics",
        "name",
        "no_index",
        "no_proxy",
        "process_isolation",
        "profile_memory",
        "run_once",
        "target_info",
    },
)

#: Names that others use for what an option here is called, where the spelling leads elsewhere.
OTHER_NAMES = {
    "cluster_check": None,  # stands beside `instances`, where the Cluster Agent reads it
    "collect_workload_events": None,
    "kube_config": "kube_config_path",
    "kube_config_dict": "kube_config_path",
    "kubeconfig": "kube_config_path",
    "kubernetes_kubeconfig_path": "kube_config_path",
    "prometheus_url": "openmetrics_endpoint",
    "workload_events_namespaces": "namespaces",
    "workload_labels_as_tags": "gang_labels_as_tags",
}

#: The options that hold options of the Agent's HTTP client for targets of their own: a mapping, or a list of them.
TARGETS = ("activity", "kube_api_options", "scheduler_metrics", "training")


def known_options() -> frozenset[str]:
    """Return the names that an instance may have, as they are written in conf.yaml."""
    fields = InstanceConfig.model_fields
    return frozenset(field.alias or name for name, field in fields.items()) | AGENT_OPTIONS | HTTP_OPTIONS


def unknown_options(instance: Mapping[str, object]) -> list[tuple[str, str | None]]:
    """Return the names in a raw instance that nothing reads, each with the known name that was probably meant.

    Sorted by name. Names that begin with an underscore are internal to the Agent and left out.
    """
    known = known_options()
    unknown = sorted(str(name) for name in instance if name not in known and not str(name).startswith("_"))
    # What is refused as soon as it is written is no advice.
    advised = known - set(HARMFUL)
    return [(name, OTHER_NAMES[name] if name in OTHER_NAMES else nearest(name, advised)) for name in unknown]


def untrusted_options(instance: Mapping[str, object], security_config: object) -> list[str]:
    """Return the options inside of mappings that name a file and that this instance's provider may not set.

    Where the Agent is told to mistrust configurations from annotations, the models refuse such options of the instance
    itself. They do not look into mappings such as `scheduler_metrics`, and a token file there is read and sent to a URL
    that stands beside it. `security_config` is the property of that name of the check.
    """
    refused = []
    for target, options in _targets(instance):
        for name in sorted({"auth_token"} | TLS_FILES):
            value = options.get(name)
            if value is not None and not validate_require_trusted_provider(name, thaw(value), security_config):
                refused.append(f"{target}.{name}")
    return refused


def _targets(instance: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield each mapping with options of the Agent's HTTP client, under the name that the refusals give it."""
    for target in TARGETS:
        options = instance.get(target)
        if isinstance(options, Mapping):
            yield target, options
        elif isinstance(options, Sequence) and not isinstance(options, str):
            for place, entry in enumerate(options):
                if isinstance(entry, Mapping):
                    yield f"{target}[{place}]", entry


def thaw(value: object) -> Any:  # noqa: ANN401 - gives back what it was given, of whatever type
    """Return a copy of a value of the models with plain dicts and lists, which the Agent's HTTP client asks for."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [thaw(item) for item in value]
    return value
