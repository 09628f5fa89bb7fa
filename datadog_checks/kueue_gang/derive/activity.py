# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""GPUs on which nothing runs, from samples of their activity.

A sample says whether something ran on a device since the sample before. One of an idle moment proves little: every job
waits for its data now and then. So zeros must follow one another, and none too late after the one before: a streak. A
device is inactive when the samples of one streak span `inactive_after`, all of it while its gang was complete. Any
active sample ends the streak, in whatever order the samples come, and of several at one time the active one counts.

A device that has not been seen for half of `inactive_after` is unobserved: nothing is claimed of it, and a zero that
comes after such a gap begins a new streak. Devices of a pod that nobody sees are counted as busy, and where more are
seen than the pod asks for (it had another GPU a moment ago) those that are not inactive go first.

Samples have times of a clock that only goes on, gangs those of the cluster. Each sample is converted once, when it
comes. The book tells which pods have to be looked at again; in between a device that works costs its sample only.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from operator import attrgetter
from typing import NamedTuple

from datadog_checks.kueue_gang.derive.gpus import total
from datadog_checks.kueue_gang.facts.quantity import Units
from datadog_checks.kueue_gang.facts.signals import Signals

#: The signal, among those that may not be observable.
ACTIVITY = "activity"

#: Namespace and name of a pod.
PodName = tuple[str, str]


class Pulse(NamedTuple):
    """The devices of a pod that are seen: how many, and of those whose streak is long its begin and newest sample.

    Times are the cluster's, seconds since the epoch.
    """

    observed: int = 0
    quiet: tuple[tuple[float, float], ...] = ()


class Inactive(NamedTuple):
    """What of a pod's GPUs is inactive: `units`. `seen`: all of them are. `until`: when that may change by itself."""

    units: Units
    seen: bool
    until: float | None


@dataclass(slots=True)
class _Device:
    """The newest sample of a device and the first one of its streak, each by both clocks; no streak where it works."""

    at: float
    seen: float
    start: float | None
    since: float


class ActivityBook:
    """Remembers the samples of all devices, as far as they matter."""

    def __init__(self, inactive_after: float) -> None:
        """Take the seconds without activity after which a device is inactive."""
        self._long = inactive_after
        self._fresh = inactive_after / 2
        self._pods: dict[PodName, dict[str, _Device]] = {}
        #: When a device is unobserved at the earliest; what was seen since then is put back.
        self._due: list[tuple[float, PodName, str]] = []

    def take(self, signals: Signals, now: float) -> set[PodName]:
        """Take the samples of a run at `now` of the cluster's time; return the pods to look at again."""
        changed: set[PodName] = set()
        offset = now - signals.clock
        for namespace, pod, device, active, at in sorted(signals.beats, key=attrgetter("at", "active")):
            name = namespace, pod
            devices = self._pods.setdefault(name, {})
            known = devices.get(device)
            if known is None:
                devices[device] = _Device(at, at + offset, None if active else at, at + offset)
                heappush(self._due, (at + self._fresh, name, device))
                changed.add(name)
            elif self._sample(known, at, offset, active=active):
                changed.add(name)
        return changed | self._expire(signals.clock)

    def pulse(self, namespace: str, pod: str) -> Pulse:
        """Return what is known of the devices of a pod."""
        devices = self._pods.get((namespace, pod))
        if devices is None:
            return _UNSEEN
        quiet = sorted((one.since, one.seen) for one in devices.values() if self._is_long(one))
        return Pulse(len(devices), tuple(quiet))

    def _is_long(self, device: _Device) -> bool:
        return device.start is not None and device.at - device.start >= self._long

    def _sample(self, device: _Device, at: float, offset: float, *, active: bool) -> bool:
        """Take a sample of a device that is known; tell whether its pod has to be looked at again."""
        long = self._is_long(device)
        gap, late = at - device.at > self._fresh, at < device.at
        if active:
            if late and device.start is not None and at >= device.start:
                # Only the newest zero is known to be younger.
                device.start, device.since = device.at, device.seen
            elif not late:
                device.start = None
        elif not late and (device.start is None or gap):
            device.start, device.since = at, at + offset
        if not late:
            device.at, device.seen = at, at + offset
        return long != self._is_long(device)

    def _expire(self, clock: float) -> set[PodName]:
        """Forget the devices that were not seen for too long."""
        changed: set[PodName] = set()
        while self._due and self._due[0][0] < clock:
            _, name, device = heappop(self._due)
            due = self._pods[name][device].at + self._fresh
            if due >= clock:
                heappush(self._due, (due, name, device))
                continue
            del self._pods[name][device]
            if not self._pods[name]:
                del self._pods[name]
            changed.add(name)
        return changed


_UNSEEN = Pulse()


def inactive(units: Units, pulse: Pulse, complete: float | None, now: float, inactive_after: float) -> Inactive:
    """Return what of a pod's GPUs is inactive.

    Args:
        units: what the pod asks for.
        pulse: what is known of its devices.
        complete: since when its gang is complete; None where that is not known, and then nothing is claimed.
        now: the cluster's time.
        inactive_after: seconds.

    """
    wanted = total(units)
    seen = pulse.observed >= wanted
    quiet, until = 0, None
    for since, last in pulse.quiet if complete is not None else ():
        due = max(since, complete or 0.0) + inactive_after
        if last >= due:
            quiet += 1
        else:
            # It takes a sample that is not older than `due`: looked for in each run from then on.
            until = min(max(due, now), until or max(due, now))
    if len(units) > 1:
        # Which device is of which resource nobody tells.
        return Inactive(units if seen and quiet == pulse.observed else (), seen, until)
    number = min(quiet, wanted - (pulse.observed - quiet))
    return Inactive(tuple((resource, number) for resource, _ in units) if number > 0 else (), seen, until)
