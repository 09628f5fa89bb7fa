# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Which GPUs of a component's pods are in which bucket, and what the idle ones cost.

Most members of a gang are held alike: they are put into their bucket together.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from datadog_checks.kueue_gang.derive import gpus as gpu
from datadog_checks.kueue_gang.derive.activity import inactive
from datadog_checks.kueue_gang.derive.context import Context
from datadog_checks.kueue_gang.derive.gangs import Gang
from datadog_checks.kueue_gang.derive.members import HOLDING
from datadog_checks.kueue_gang.derive.picture import NONE, Gpus, Queue
from datadog_checks.kueue_gang.facts.pods import Pod
from datadog_checks.kueue_gang.facts.quantity import Units


class Held(NamedTuple):
    """The GPUs of a gang by resource; how many are inactive in all, and whether nobody sees some of them."""

    allocated: dict[str, int]
    idle: dict[str, int]
    inactive: int
    unseen: bool


class Accounts:
    """The GPUs of the pods of one component."""

    def __init__(self, context: Context, now: float, change_at: Callable[[float | None], None]) -> None:
        """Take what the pods are seen against; `change_at` is told when the time alone changes something."""
        self.gpus = Gpus()
        self._context, self._now, self._change_at = context, now, change_at

    def gang(
        self, gang: Gang, classes: Iterable[str], situation: gpu.Situation, queue: Queue, complete: float | None
    ) -> Held:
        """Account for the members of a gang.

        Args:
            gang: the gang.
            classes: the class of each member.
            situation: what its members have in common.
            queue: its queue.
            complete: since when it runs, if its GPUs are to be asked whether something runs on them.

        """
        allocated: dict[str, int] = {}
        idle: dict[str, int] = {}
        quiet, unseen = 0, False
        context, prices = self._context, self._context.prices
        alike: Counter[tuple[Units, float | None, bool, bool, int | None]] = Counter()
        for pod, name in zip(gang.members, classes, strict=True):
            if name not in HOLDING or not pod.spec.gpus:
                continue
            units, rest = pod.spec.gpus, pod.spec.gpus
            lost = name == "lost" or (name == "terminating" and context.is_lost(pod, self._now))
            price = prices.on(context.nodes, pod.node)
            if complete is not None and not lost:
                pulse = context.activity.pulse(pod.namespace, pod.name)
                found = inactive(units, pulse, complete, self._now, context.rules.inactive_after)
                self._change_at(found.until)
                unseen |= not found.seen
                if found.units:
                    alike[found.units, pod.deletion, lost, True, price] += 1
                    rest = _without(units, found.units)
            if rest:
                alike[rest, pod.deletion, lost, False, price] += 1
        for (units, deletion, lost, is_quiet, price), number in alike.items():
            own = situation._replace(lost=lost, deletion=deletion, inactive=is_quiet)
            gpu.add(allocated, units, number)
            reason = self._put(gang.namespace, units, number, own, queue, price)
            if reason:
                gpu.add(idle, units, number)
            if reason == gpu.INACTIVE:
                quiet += number * gpu.total(units)
        if gang.source_down:
            self.gpus.unknown.update(allocated)
        return Held(allocated, idle, quiet, unseen)

    def outsiders(self, found: Iterable[tuple[Pod, Queue, bool]]) -> None:
        """Account for pods of no gang: each with its queue, and whether it names a gang that is gone."""
        context = self._context
        alike: Counter[tuple[Queue, Units, gpu.Situation, int | None]] = Counter()
        for pod, queue, names_gone in found:
            if not gpu.holds(pod):
                continue
            lost = context.is_lost(pod, self._now)
            self._change_at(context.lost_from.get(pod.node))
            situation = gpu.Situation(None, names_gone, complete=False, lost=lost, deletion=pod.deletion)
            alike[queue, pod.spec.gpus, situation, context.prices.on(context.nodes, pod.node)] += 1
        for (queue, units, situation, price), number in alike.items():
            self._put(queue.namespace, units, number, situation, queue, price)

    def _put(
        self, namespace: str, units: Units, number: int, situation: gpu.Situation, queue: Queue, price: int | None
    ) -> str:
        """Put the GPUs of some pods into their bucket; return why they are idle, empty where they are not."""
        self._change_at(situation.deletion)
        if self._context.rules.reports(namespace):
            use, reason = gpu.bucket(situation, self._now)
        else:
            # Pods of namespaces that are not reported hold GPUs all the same.
            queue, use, reason = Queue(NONE, NONE, NONE, NONE), gpu.OTHER, ""
        for resource, amount in units:
            self.gpus.allocated[queue, resource, use] += amount * number
            if reason:
                self.gpus.idle[queue, resource, reason] += amount * number
                costs = self._context.prices.of(resource, price)
                if costs:
                    self.gpus.idle_price[queue, resource, reason] += costs * amount * number
        return reason


def _without(units: Units, some: Units) -> Units:
    """Return units less some of them."""
    taken = dict(some)
    left = ((resource, amount - taken.get(resource, 0)) for resource, amount in units)
    return tuple((resource, amount) for resource, amount in left if amount)
