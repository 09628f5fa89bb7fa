# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The gang scheduler's own metrics, read for the pods that wait in Permit.

An exposition of a scheduler is a megabyte, most of it buckets; the lines that count are picked out before anything is
parsed. A family is absent until it counted something, so absent is 0, in every release from 1.28 on. What the numbers
mean is told in `facts.scheduler`.
"""

import re
from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from prometheus_client.parser import text_fd_to_metric_families

from datadog_checks.kueue_gang.facts.scheduler import SchedulerMetrics
from datadog_checks.kueue_gang.sources.connection import Log, UrlConnection
from datadog_checks.kueue_gang.sources.errors import SCHEDULER, invalid

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

_PERMIT: Final = "scheduler_framework_extension_point_duration_seconds_count"
_WAIT_COUNT: Final = "scheduler_permit_wait_duration_seconds_count"
_WAIT_SUM: Final = "scheduler_permit_wait_duration_seconds_sum"
_ATTEMPTS: Final = "scheduler_schedule_attempts_total"
_POD_GROUP_ATTEMPTS: Final = "scheduler_podgroup_schedule_attempts_total"
_PENDING: Final = "scheduler_pending_pods"
_UNSCHEDULABLE: Final = "scheduler_unschedulable_pods"
#: The new name came with 1.33, which has both; the old one went after it.
_CACHE: Final = ("scheduler_cache_size", "scheduler_scheduler_cache_size")
_BUILD: Final = "kubernetes_build_info"

#: The labels of the pods that entered a wait.
_ENTERED: Final = {"extension_point": "Permit", "status": "Wait"}.items()
_RELEASE: Final = re.compile(r"v1\.(\d+)[.+]")

_WANTED: Final = (
    _PERMIT,
    _WAIT_COUNT,
    _WAIT_SUM,
    _ATTEMPTS,
    _POD_GROUP_ATTEMPTS,
    _PENDING,
    _UNSCHEDULABLE,
    *_CACHE,
    _BUILD,
)


class SchedulerEndpoint:
    """The metrics endpoint of one scheduler."""

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        timeout: float,
        init_config: Mapping[str, Any] | None = None,
        log: Log | None = None,
    ) -> None:
        """Read from `options`: url, and the Agent's auth_token and tls_* options for it.

        Raises ConfigurationError.
        """
        http = dict(options)
        url = urlsplit(str(http.pop("url", "")))
        self._path = url.path.rstrip("/") or "/metrics"
        server = url._replace(path="").geturl()
        self._connection = UrlConnection(
            server, http, timeout=timeout, target=SCHEDULER, init_config=init_config, log=log
        )

    def read(self) -> SchedulerMetrics:
        """Return what the scheduler counts now. Raises SourceError."""
        body = self._connection.read(self._path, accept="text/plain")
        try:
            return scheduler_metrics(body.decode())
        except ValueError as error:
            raise invalid(SCHEDULER, self._path, str(error)) from None

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def abort(self) -> None:
        """End every request, from any thread."""
        self._connection.abort()


def scheduler_metrics(text: str) -> SchedulerMetrics:
    """Return what a scheduler's exposition says. Raises ValueError for a text without any scheduler_ family."""
    lines = text.splitlines()
    if not any(line.startswith("scheduler_") for line in lines):
        msg = "an HTML page" if text.lstrip().startswith("<") else "no scheduler_ family"
        raise ValueError(msg)
    wanted = (line for line in lines if line.startswith(_WANTED))
    samples: dict[str, list[Sample]] = {}
    # The lines come without their types, so that each is a family of its own.
    for family in text_fd_to_metric_families(wanted):  # type: ignore[arg-type] # it iterates over lines, and no more
        for sample in family.samples:
            if isfinite(sample.value):
                samples.setdefault(sample.name, []).append(sample)

    def by_label(name: str, label: str) -> dict[str, float]:
        sums: dict[str, float] = {}
        for sample in samples.get(name, ()):
            value = sample.labels.get(label, "")
            sums[value] = sums.get(value, 0.0) + sample.value
        return sums

    attempts = by_label(_ATTEMPTS, "profile")
    return SchedulerMetrics(
        entered=sum(sample.value for sample in samples.get(_PERMIT, ()) if sample.labels.items() >= _ENTERED),
        ended=by_label(_WAIT_COUNT, "result"),
        wait_seconds=by_label(_WAIT_SUM, "result"),
        attempts=sum(attempts.values()),
        profiles=frozenset(attempts) | frozenset(by_label(_PERMIT, "profile")),
        places_pod_groups=sum(by_label(_POD_GROUP_ATTEMPTS, "result").values()) > 0,
        pending_pods=by_label(_PENDING, "queue"),
        unschedulable_pods=by_label(_UNSCHEDULABLE, "plugin"),
        assumed_pods=next((by_label(name, "type").get("assumed_pods") for name in _CACHE if name in samples), None),
        minor=next((_minor(sample.labels) for sample in samples.get(_BUILD, ())), None),
    )


def _minor(build: Mapping[str, str]) -> int | None:
    """Return the Kubernetes minor release of kubernetes_build_info's labels.

    Vendors write `36+`; a scheduler built outside Kubernetes has its own version there, or none.
    """
    versions = (build.get("git_version", ""), f"v{build.get('major')}.{build.get('minor')}.")
    matches = (_RELEASE.match(version) for version in versions)
    return next((int(match[1]) for match in matches if match), None)
