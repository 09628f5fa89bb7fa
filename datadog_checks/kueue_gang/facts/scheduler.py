# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What a kube-scheduler tells of itself in its Prometheus metrics.

It has no gauge of the pods that wait in Permit. But each wait is counted when it begins (the extension point Permit
that answered Wait) and when it ends (permit_wait_duration, all results), in every release from 1.18 on; the difference
is the number that waits now. A family that is absent counts 0. A standby has the profiles of its leader and no
attempts.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchedulerMetrics:
    """One reading of a scheduler; waits in seconds by result, pods by queue and by the plugin that turned them away."""

    entered: float
    ended: Mapping[str, float]
    wait_seconds: Mapping[str, float]
    attempts: float
    profiles: frozenset[str]
    places_pod_groups: bool
    pending_pods: Mapping[str, float]
    unschedulable_pods: Mapping[str, float]
    assumed_pods: float | None
    minor: int | None

    @property
    def permit_waiting(self) -> int | None:
        """Pods that wait in Permit now, None where the counters do not tell."""
        waiting = self.entered - sum(self.ended.values())
        return int(waiting) if self.attempts and waiting >= 0 else None
