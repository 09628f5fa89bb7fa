# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Which schedulers leave a trace of Permit waits in the API.

From Kubernetes 1.35 on a scheduler writes the node of a pod that waits in Permit into nominatedNodeName. That it does
is known by its version, which the option scheduler_versions or the image of its own pod tells, or is seen: a pod of it
has no node yet and a nomination. Of several versions that run at once the oldest counts, since any may be the leader.
"""

from collections import Counter

from datadog_checks.kueue_gang.derive.permit import SHOWS_WAITS_FROM
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.facts.cluster import SchedulerCount
from datadog_checks.kueue_gang.facts.pods import Pod


class Traces:
    """Keeps what tells that in step with the pods."""

    def __init__(self, rules: Rules) -> None:
        """Begin without pods."""
        self._told = dict(rules.scheduler_versions)
        #: Unbound pods with a nomination, by schedulerName.
        self._nominating: Counter[str] = Counter()
        #: Pods that run a scheduler, by schedulerName and Kubernetes minor.
        self._versions: Counter[tuple[str, int]] = Counter()

    def take_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Take the change of a pod."""
        for pod, step in ((old, -1), (new, 1)):
            if pod and pod.nominated and not pod.node:
                self._nominating[pod.spec.scheduler] += step
            if pod and pod.scheduler_version:
                self._versions[pod.scheduler_version] += step

    def left_by(self, scheduler: str) -> bool:
        """Tell whether a scheduler writes the node of a waiting pod: by its version, or because it is seen to."""
        if self._nominating[scheduler] > 0:
            return True
        running = [minor for (name, minor), number in self._versions.items() if name == scheduler and number > 0]
        minor = self._told.get(scheduler, min(running, default=0))
        return minor >= SHOWS_WAITS_FROM

    def shown(self, count: SchedulerCount | None) -> bool:
        """Tell whether all waits that a scheduler counts leave traces; so it is, too, where none are counted."""
        return count is None or count.waiting is None or all(map(self.left_by, count.profiles))
