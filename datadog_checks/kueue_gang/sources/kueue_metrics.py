# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The scrape of Kueue's own metrics, on Datadog's OpenMetricsScraper.

Two tables say which families are sent: `kueue_x` becomes `kueue.x` under the namespace of the check. Everything else
in the exposition (the Go runtime, controller-runtime, buckets, other families) is dropped by one expression before it
is parsed, since parsing is most of the cost.

The labels take four steps. First what must not be a tag goes: samples of a follower replica (its gauges repeat those
of the leader), the replica label itself, labels without a value, and Kueue's `custom_*` labels, which anybody can make
many of (a `rename_labels` entry keeps one). Second the values that are Kueue's enumerations become those of the
contract. Third, samples that look alike now are added up: without that, one value of several would win. Fourth the
base class applies the user's exclude_* options and the renames, of which some hold for some families only: `name` is
a LocalQueue in `kueue_local_queue_*` and a scheduling gate elsewhere, `reason` is an eviction's in eviction families.

Values that are NaN or infinite cannot be sent; they are counted by kind. The health check is OK only after the whole
answer was read and was Kueue's: a login page, the visibility service or an empty body comes with status 200 too.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from math import isfinite, isnan
from typing import Any, Final
from urllib.parse import urlsplit

import requests
from datadog_checks.base import ConfigurationError, is_affirmative
from datadog_checks.base.checks.openmetrics.v2.scraper import OpenMetricsScraper
from datadog_checks.base.constants import ServiceCheck
from prometheus_client import Metric
from prometheus_client.samples import Sample

from datadog_checks.kueue_gang.facts.evictions import eviction_reason, underlying_cause
from datadog_checks.kueue_gang.sources.connection import read_body
from datadog_checks.kueue_gang.sources.errors import KUEUE, SourceError, from_exception, from_status, invalid
from datadog_checks.kueue_gang.sources.sockets import Sockets

#: Family as the parser names it (counters without `_total`) -> type.
FAMILIES: Final[Mapping[str, str]] = {
    "kueue_admission_attempts": "counter",
    "kueue_admission_checks_wait_time_seconds": "histogram",
    "kueue_admission_wait_time_seconds": "histogram",
    "kueue_admitted_active_workloads": "gauge",
    "kueue_admitted_until_ready_wait_time_seconds": "histogram",
    "kueue_admitted_workloads": "counter",
    "kueue_cluster_queue_nominal_quota": "gauge",
    "kueue_cluster_queue_resource_reservation": "gauge",
    "kueue_cluster_queue_resource_usage": "gauge",
    "kueue_cluster_queue_status": "gauge",
    "kueue_evicted_workloads": "counter",
    "kueue_evicted_workloads_once": "counter",
    "kueue_pending_workloads": "gauge",
    "kueue_pod_scheduling_gate_removal_seconds": "histogram",
    "kueue_pods_ready_to_evicted_time_seconds": "histogram",
    "kueue_preempted_workloads": "counter",
    "kueue_quota_reserved_wait_time_seconds": "histogram",
    "kueue_ready_wait_time_seconds": "histogram",
    "kueue_reserving_active_workloads": "gauge",
    "kueue_unadmitted_workloads": "gauge",
    "kueue_workload_eviction_latency_seconds": "histogram",
}
#: The same by LocalQueue, sent with `kueue_local_queue_metrics: true`.
LOCAL_QUEUE_FAMILIES: Final[Mapping[str, str]] = {
    "kueue_local_queue_admission_checks_wait_time_seconds": "histogram",
    "kueue_local_queue_admission_wait_time_seconds": "histogram",
    "kueue_local_queue_admitted_active_workloads": "gauge",
    "kueue_local_queue_admitted_until_ready_wait_time_seconds": "histogram",
    "kueue_local_queue_admitted_workloads": "counter",
    "kueue_local_queue_evicted_workloads": "counter",
    "kueue_local_queue_pending_workloads": "gauge",
    "kueue_local_queue_quota_reserved_wait_time_seconds": "histogram",
    "kueue_local_queue_ready_wait_time_seconds": "histogram",
    "kueue_local_queue_reserving_active_workloads": "gauge",
    "kueue_local_queue_resource_reservation": "gauge",
    "kueue_local_queue_resource_usage": "gauge",
    "kueue_local_queue_status": "gauge",
    "kueue_local_queue_unadmitted_workloads": "gauge",
}

_KUEUE: Final = "kueue_"
_LOCAL_QUEUE: Final = "kueue_local_queue_"
_EVICTIONS: Final = frozenset(
    {
        "kueue_evicted_workloads",
        "kueue_evicted_workloads_once",
        "kueue_local_queue_evicted_workloads",
        "kueue_pods_ready_to_evicted_time_seconds",
        "kueue_workload_eviction_latency_seconds",
    }
)

#: Renames that hold everywhere: tag keys of Datadog's own kueue integration where it has one. `detailed_reason` was
#: the name of `underlying_cause` in one family before Kueue 0.18.
RENAMES: Final[Mapping[str, str]] = {
    "cluster_queue": "kueue_cluster_queue",
    "flavor": "kueue_resource_flavor",
    "priority_class": "kueue_workload_priority_class",
    "detailed_reason": "underlying_cause",
}
_LOCAL_QUEUE_RENAMES: Final[Mapping[str, str]] = {"name": "kueue_local_queue", "namespace": "kube_namespace"}
_EVICTION_RENAMES: Final[Mapping[str, str]] = {"reason": "kueue_eviction_reason"}

_ROLE: Final = "replica_role"
_CUSTOM: Final = "custom_"
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
#: Options that make the base class send buckets.
_BUCKETS: Final = (
    "collect_histogram_buckets",
    "collect_histograms_as_distributions",
    "histogram_buckets_as_distributions",
    "collect_counters_with_distributions",
)


def snake_case(value: str) -> str:
    """Return one of Kueue's CamelCase words as a tag value."""
    return _CAMEL.sub("_", value).lower()


_Values = Mapping[str, Callable[[str], str]]
_EVICTION_VALUES: Final[_Values] = {
    "reason": eviction_reason,
    "underlying_cause": underlying_cause,
    "detailed_reason": underlying_cause,
}
_KUEUE_VALUES: Final[_Values] = {"reason": snake_case, "underlying_cause": snake_case, "active": snake_case}
_NO_VALUES: Final[_Values] = {}


def scrapes(instance: Mapping[str, Any]) -> bool:
    """Tell whether an `instance` (raw, as the user wrote it) asks for any of Kueue's metrics."""
    return bool(instance.get("openmetrics_endpoint")) and (
        instance.get("kueue_metrics", "gang") != "none"
        or any(instance.get(option) for option in ("metrics", "extra_metrics"))
    )


def scraper_config(instance: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scraper's configuration for the options of an `instance` (raw, as the user wrote them).

    All of the Agent's http and openmetrics options keep their meaning; `metrics` adds like `extra_metrics`, and a
    family named there without a new name is sent as `kueue.x`. exclude_metrics_by_labels sees Kueue's label names and
    the values as they are sent. Raises ConfigurationError.
    """
    families = dict(FAMILIES) if instance.get("kueue_metrics", "gang") == "gang" else {}
    if families and is_affirmative(instance.get("kueue_local_queue_metrics", False)):
        families |= LOCAL_QUEUE_FAMILIES
    metrics = {raw: {"name": sent_name(raw), "type": kind} for raw, kind in families.items()}
    for option in ("metrics", "extra_metrics"):
        metrics |= _entries(option, instance.get(option) or [])
    config = {
        "tag_by_endpoint": False,
        "collect_histogram_buckets": False,
        "allow_redirects": False,
        **instance,
        "metrics": [metrics],
        "extra_metrics": [],
        "rename_labels": {**RENAMES, **(instance.get("rename_labels") or {})},
    }
    return {**config, "raw_line_filters": [*(instance.get("raw_line_filters") or []), *_line_filters(config, metrics)]}


def sent_name(family: str) -> str:
    """Return the metric name of a Kueue family, without the namespace of the check and the suffix of its type."""
    return "kueue." + family.removeprefix(_KUEUE) if family.startswith(_KUEUE) else family


def _entries(option: str, entries: object) -> dict[str, dict[str, Any]]:
    """Return the entries of `metrics` or `extra_metrics` as a mapping of families.

    Without a type of its own an entry takes that of each family it meets, not that of the first: the gauge
    kueue_finished_workloads and the counter kueue_finished_workloads_total are one family to the parser.
    """
    if not isinstance(entries, list):
        msg = f"{option} must be a list"
        raise ConfigurationError(msg)
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        named = {entry: {}} if isinstance(entry, str) else entry
        if not isinstance(named, dict):
            msg = f"each entry of {option} must be a name or a mapping"
            raise ConfigurationError(msg)
        for raw, value in named.items():
            given = {"name": value} if isinstance(value, str) else value
            if not isinstance(raw, str) or not isinstance(given, dict):
                msg = f"{raw!r} in {option} must be a name, and its value a name or a mapping"
                raise ConfigurationError(msg)
            found[raw] = {"name": sent_name(raw), "type": "native_dynamic", **given}
    return found


def _line_filters(config: Mapping[str, Any], metrics: Mapping[str, Any]) -> Iterator[str]:
    """Yield expressions for the lines that nobody wants.

    A family can be named by an expression; which lines are wanted is known only where none is.
    """
    buckets = any(is_affirmative(config.get(option, False)) for option in _BUCKETS)
    if not buckets:
        yield r"^kueue_\w+_bucket\{"
    # Families that other options read.
    names = {*metrics, *(config.get("share_labels") or {})}
    names |= {"process_start_time_seconds"} if is_affirmative(config.get("use_process_start_time")) else set()
    names |= {"target_info"} if is_affirmative(config.get("target_info")) else set()
    if all(name == re.escape(name) for name in names):
        suffixes = "_total|_sum|_count|_bucket" if buckets else "_total|_sum|_count"
        yield rf"^(?!(?:# (?:HELP|TYPE) )?(?:{'|'.join(sorted(names))})(?:{suffixes})?[ \t{{])"


class KueueScraper(OpenMetricsScraper):  # type: ignore[misc] # the base package has no types
    """A scraper for Kueue's endpoint; made by the check's `create_scraper` from what `scraper_config` returned.

    scrape() raises SourceError, and `failure` keeps the error of the last scrape (None: it went well), also where
    `ignore_connection_errors` lets the run go on.
    """

    def __init__(self, check: Any, config: Mapping[str, Any]) -> None:  # noqa: ANN401
        """Make the scraper. Raises what the base class raises for wrong options."""
        super().__init__(check, config)
        self.failure: SourceError | None = None
        # One session for all scrapes, so that one can be ended from another thread.
        self._persists = self.http.persist_connections
        self.http.persist_connections = True
        self._sockets = Sockets()
        self._sockets.track_session(self.http.session)
        self._bad_samples: Counter[str] = Counter()
        self._path = urlsplit(self.endpoint).path or "/"
        self._renamed: dict[str, str] = dict(self.rename_labels)
        # The base would swallow the error deep inside, and the answer would look like an empty one.
        self._lenient = is_affirmative(config.get("ignore_connection_errors", False))
        self.ignore_connection_errors = False

    def take_bad_samples(self) -> dict[str, int]:
        """Return how many samples were dropped since the last call, by reason: nan, inf."""
        taken, self._bad_samples = dict(self._bad_samples), Counter()
        return taken

    def abort(self) -> None:
        """End a scrape that runs, and every later one, from any thread and at once. The idle connection is closed."""
        self._sockets.abort()
        self.http.session.close()

    def scrape(self) -> None:
        """Read and send all metrics. Raises SourceError."""
        self.failure = None
        try:
            super().scrape()
        except Exception as error:  # noqa: BLE001 - a parser meets foreign text here
            self.failure = (error if isinstance(error, SourceError) else self._failure(error)).bare()
        if not self._persists:
            self.http.session.close()
        if self.failure is None:
            super().submit_health_check(ServiceCheck.OK)
            return
        super().submit_health_check(ServiceCheck.CRITICAL, message=str(self.failure))
        if not (self._lenient and self.failure.reason == "unreachable" and self.failure.status is None):
            raise self.failure
        self.check.log.warning("%s", self.failure)

    def submit_health_check(self, status: int, **kwargs: Any) -> None:  # noqa: ANN401
        """Do nothing: the base calls this as soon as there is a status line, and with texts that quote the URL."""

    def stream_connection_lines(self) -> Iterator[str]:
        """Yield the lines of the answer. Raises SourceError where it is not Kueue's.

        The base reads line by line, and a server that sends one byte now and then would hold the run for ever.
        """
        with self.get_connection() as connection:
            if connection.status_code != HTTPStatus.OK:
                raise from_status(KUEUE, self._path, connection.status_code, "")
            # The base chooses the parser by it.
            self._content_type = connection.headers.get("Content-Type", "")
            _, timeout = self.http.options["timeout"]
            lines = read_body(connection.raw, timeout).decode("utf-8", "replace").split("\n")
        if not any(line.startswith(_KUEUE) for line in lines):
            first = next((line.lstrip() for line in lines if line.strip()), "")
            page = "an HTML page" if first.startswith("<") else "no kueue_ family (is this the visibility service?)"
            raise invalid(KUEUE, self._path, page if first else "an empty answer")
        yield from lines

    def submit_telemetry_endpoint_response_size(self, response: requests.Response) -> None:
        """Tell the size that the server tells; the base would read the body to measure it."""
        if "Content-Length" in response.headers:
            super().submit_telemetry_endpoint_response_size(response)

    def generate_sample_data(self, metric: Metric) -> Iterator[tuple[Sample, list[str], str]]:
        """Yield the samples of a family with their tags and host name."""
        metric.samples = self._tidy(metric)
        # The base reads this attribute for each sample of this family, and no other family is read meanwhile.
        self.rename_labels = {
            **(_LOCAL_QUEUE_RENAMES if metric.name.startswith(_LOCAL_QUEUE) else {}),
            **(_EVICTION_RENAMES if metric.name in _EVICTIONS else {}),
            **self._renamed,
        }
        yield from super().generate_sample_data(metric)

    def _tidy(self, metric: Metric) -> list[Sample]:
        """Return the samples that count, with their labels tidied, and added up where these have become equal."""
        values = _KUEUE_VALUES if metric.name.startswith(_KUEUE) else _NO_VALUES
        values = _EVICTION_VALUES if metric.name in _EVICTIONS else values
        tidy: dict[tuple[str, frozenset[tuple[str, str]]], Sample] = {}
        for sample in metric.samples:
            if sample.labels.get(_ROLE) == "follower":
                continue
            if not isfinite(sample.value):
                self._bad_samples["nan" if isnan(sample.value) else "inf"] += 1
                continue
            labels = {
                label: values[label](value) if label in values else value
                for label, value in sample.labels.items()
                if value and label != _ROLE and (not label.startswith(_CUSTOM) or label in self._renamed)
            }
            key = (sample.name, frozenset(labels.items()))
            alike = tidy.get(key)
            value = sample.value if alike is None else sample.value + alike.value
            tidy[key] = sample._replace(labels=labels, value=value)
        return list(tidy.values())

    def _failure(self, error: Exception) -> SourceError:
        response = error.response if isinstance(error, requests.exceptions.HTTPError) else None
        if response is not None:
            return from_status(KUEUE, self._path, response.status_code, "")
        return from_exception(KUEUE, self._path, error)
