# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Gangs that no gang scheduler protects: whatever the reason, a part of them can be placed without the rest."""

from collections.abc import Iterator

from datadog_checks.kueue_gang.derive.gangs import JOB, Gang
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.facts.cluster import SchedulerCount

#: Engines whose gangs a scheduler must serve by name.
_SERVED_BY_NAME = frozenset({"coscheduling"})


def known_gang_schedulers(rules: Rules, scheduler: SchedulerCount | None) -> frozenset[str]:
    """Return the schedulerNames that serve gangs: the user's list, else the profiles of the scheduler that is read."""
    return rules.gang_schedulers or (scheduler.profiles if scheduler else frozenset())


def unguarded(gang: Gang, schedulers: frozenset[str], *, workloads_known: bool = True) -> Iterator[str]:
    """Yield the reasons why a gang is unguarded.

    * `no_gang_scheduling`: it belongs to no PodGroup and no Workload; not said while Workloads cannot be read, for pods
      of Kueue before 0.14 do not name theirs.
    * `no_podgroup`: its PodGroup does not exist.
    * `min_member`: its PodGroup demands fewer members than its job runs.
    * `scheduler_name`: its members name a scheduler that serves no gangs; only where it is known which do.
    """
    if gang.engine == JOB and workloads_known:
        yield "no_gang_scheduling"
    if gang.orphan:
        yield "no_podgroup"
    if gang.group and gang.size is not None and (gang.required or 0) < gang.size:
        yield "min_member"
    if is_served_by_name(gang) and schedulers and any(pod.spec.scheduler not in schedulers for pod in gang.members):
        yield "scheduler_name"


def is_served_by_name(gang: Gang) -> bool:
    """Tell whether a gang has members of which a gang scheduler must know."""
    return gang.engine in _SERVED_BY_NAME and not gang.orphan and bool(gang.members)
