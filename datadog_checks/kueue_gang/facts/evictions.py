# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Kueue's words for evictions, in those of the tags `kueue_eviction_reason` and `underlying_cause`.

Kueue uses the same words in the conditions and statistics of Workloads and in the labels of its metrics. A word of a
later release is `other`.
"""

from collections.abc import Mapping
from typing import Final

DEACTIVATED_DUE_TO: Final = "DeactivatedDueTo"
_OTHER: Final = "other"

_REASONS: Final[Mapping[str, str]] = {
    "Preempted": "preempted",
    "PodsReadyTimeout": "pods_ready_timeout",
    "AdmissionCheck": "admission_check",
    "ClusterQueueStopped": "cluster_queue_stopped",
    "LocalQueueStopped": "local_queue_stopped",
    "NodeFailures": "node_failures",
    "FlavorMigration": "flavor_migration",
    "Deactivated": "deactivated",
    # Up to Kueue 0.9.
    "InactiveWorkload": "deactivated",
}
_CAUSES: Final[Mapping[str, str]] = {
    "WaitForStart": "wait_for_start",
    "WaitForRecovery": "wait_for_recovery",
    "AdmissionCheck": "admission_check",
    "MaximumExecutionTimeExceeded": "maximum_execution_time_exceeded",
    "RequeuingLimitExceeded": "requeuing_limit_exceeded",
    "EvictedOnManagerCluster": "evicted_on_manager_cluster",
}
#: All values of the tags.
REASONS: Final = (*dict.fromkeys(_REASONS.values()), _OTHER)
CAUSES: Final = ("none", *_CAUSES.values(), _OTHER)


def eviction_reason(value: str) -> str:
    """Return the value of kueue_eviction_reason for Kueue's reason.

    Conditions say DeactivatedDueTo and the cause, as metrics did up to Kueue 0.13.
    """
    return "deactivated" if value.startswith(DEACTIVATED_DUE_TO) else _REASONS.get(value, _OTHER)


def underlying_cause(value: str) -> str:
    """Return the value of underlying_cause for Kueue's cause of an eviction; it is `none` only where none is given."""
    return _CAUSES.get(value, _OTHER)
