# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Where the signals of GPUs and training jobs are read: the options `training` and `activity` as records.

There are three ways. Pods that a label selector finds are scraped one by one, each at its own address. A Prometheus
server that scrapes them already is asked one query. And the TrainJobs of Kubeflow Trainer are objects of the API.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class PodTarget:
    """Pods to scrape: `metrics` are wanted, of several that a device has any will do. Seconds, requests a run.

    `namespace` empty: all. `http` holds the Agent's auth_token and tls_* options.
    """

    label_selector: str
    port: int
    metrics: tuple[str, ...]
    namespace: str = ""
    scheme: str = "http"
    path: str = "/metrics"
    requests_per_run: int = 100
    timeout: float = 2.0
    http: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PrometheusTarget:
    """A query of a Prometheus server, or of what speaks its API.

    The first label of `namespace_labels` and of `pod_labels` that a series has names its pod; `gang_label` names the
    gang instead, where it is set.
    """

    url: str
    query: str
    namespace_labels: tuple[str, ...] = ("exported_namespace", "namespace")
    pod_labels: tuple[str, ...] = ("exported_pod", "pod")
    gang_label: str = ""
    timeout: float = 5.0
    http: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrainJobTarget:
    """The TrainJobs of the cluster: they are read with the other objects."""


@dataclass(frozen=True, slots=True)
class Targets:
    """All of them: `activity` is None where GPUs are not asked; `training` in the order of the option."""

    activity: PodTarget | PrometheusTarget | None = None
    training: tuple[PodTarget | PrometheusTarget | TrainJobTarget, ...] = ()
