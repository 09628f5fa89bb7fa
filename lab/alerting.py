# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What Datadog would make of a monitor over a timeline: which group it alerts on, when, and when it recovers.

Each minute the query is answered for its window, and each group has a value or none:

* With `.as_count()` each query becomes its sum over the window, and then the formula is computed. Else the formula is
  computed bucket by bucket, and what is there in the window becomes one number, as the query says.
* The value is held against the thresholds. A group that alerts goes on alerting until its value is beyond
  `critical_recovery`, one that warns until it is beyond `warning_recovery`.
* A group without a value is missing: `on_missing_data: resolve` makes it OK, `default` leaves it as it is (a count is
  0), `show_no_data` and `show_and_notify_no_data` say so. A group that was never seen has no state at all.
* `new_group_delay` puts off the first look at a group, `require_full_window` looks only where the group has points from
  the beginning of the window on, and after `group_retention_duration` a missing group is forgotten.

Sources: docs.datadoghq.com, "Configure monitors", "as_count() in monitor evaluations", "On missing data".
"""

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lab.formulas import compute
from lab.queries import Condition, parse_monitor
from lab.reading import Refused
from lab.samples import Asked, Group, Groups, Samples, aggregate, together

OK, WARN, ALERT, NO_DATA = "OK", "Warn", "Alert", "No Data"
#: So often Datadog looks (seconds).
EVERY: Final = 60
#: A window is full where it has a point within so many seconds of its beginning.
_FULL: Final = 60
_COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_MISSING: Final = ("default", "resolve", "show_no_data", "show_and_notify_no_data")
_DURATION: Final = re.compile(r"(\d+)([mhd])")
_UNITS: Final = {"m": 60, "h": 3600, "d": 86400}
#: What decides when there is an alert, and what is of no account here.
_DECIDING: Final = {
    "thresholds", "on_missing_data", "require_full_window", "new_group_delay", "group_retention_duration",
}  # fmt: skip
_OTHER: Final = {
    "include_tags", "notify_audit", "notify_by", "renotify_interval", "renotify_statuses", "silenced", "timeout_h",
}  # fmt: skip
_THRESHOLDS: Final = {"critical", "critical_recovery", "warning", "warning_recovery"}


class Change(NamedTuple):
    """A group comes into another state: when, and with which value (None where it is missing)."""

    at: float
    group: dict[str, str]
    state: str
    value: float | None


@dataclass(frozen=True, slots=True)
class Monitor:
    """A monitor as far as it decides when to alert: times are in seconds."""

    condition: Condition
    thresholds: Mapping[str, float]
    on_missing_data: str
    require_full_window: bool
    new_group_delay: float
    retention: float

    @classmethod
    def of(cls, definition: Mapping[str, Any]) -> "Monitor":
        """Read the definition of a monitor. Raises Refused for an option that is not known here."""
        options = definition["options"]
        unknown = options.keys() - _DECIDING - _OTHER | options["thresholds"].keys() - _THRESHOLDS
        if unknown or options["on_missing_data"] not in _MISSING:
            msg = f"not known in the options of a monitor: {', '.join(sorted(unknown)) or options['on_missing_data']}"
            raise Refused(msg)
        return cls(
            parse_monitor(definition["query"]),
            options["thresholds"],
            options["on_missing_data"],
            options["require_full_window"],
            options.get("new_group_delay", EVERY),
            _seconds(options.get("group_retention_duration", "24h")),
        )

    def judge(self, state: str, value: float) -> str:
        """Return the state of a group that was in a state and has a value now."""
        if self._beyond("critical", value) or (state == ALERT and not self._recovered("critical", value)):
            return ALERT
        if "warning" not in self.thresholds:
            return OK
        # Of an alert that is over the warning is left, until that is over, too.
        if self._beyond("warning", value) or (state in {WARN, ALERT} and not self._recovered("warning", value)):
            return WARN
        return OK

    def _beyond(self, level: str, value: float) -> bool:
        return level in self.thresholds and _COMPARISONS[self.condition.comparison](value, self.thresholds[level])

    def _recovered(self, level: str, value: float) -> bool:
        """Tell whether a value is on the other side of the threshold of recovery, or on it."""
        recovery = self.thresholds.get(f"{level}_recovery")
        if recovery is None:
            return not self._beyond(level, value)
        return value <= recovery if ">" in self.condition.comparison else value >= recovery


@dataclass(slots=True)
class _Followed:
    """What is known of a group."""

    first: float
    last: float
    state: str = ""


class _Seen(NamedTuple):
    """The value of a group, and when its first point in the window was."""

    value: float
    since: float


def play(monitor: Monitor, samples: Samples, end: float | None = None) -> Iterator[Change]:
    """Yield the changes of state in the order of time, from the first minute of a timeline to its last, or to `end`."""
    followed: dict[Group, _Followed] = {}
    recorded = {query.text: (query, samples.of(query, {})) for query in monitor.condition.queries}
    at = samples.start
    while at <= (samples.end if end is None else end):
        window = Asked.of(monitor.condition.queries, at - monitor.condition.window, at)
        found = _values(monitor.condition, {name: together(*one, window) for name, one in recorded.items()}, window)
        for group in found.keys() - followed.keys():
            followed[group] = _Followed(at, at)
        for group in sorted(followed):
            one = followed[group]
            seen = found.get(group)
            if seen is None and at - one.last > monitor.retention:
                del followed[group]
                continue
            state = _next(monitor, one, seen, at, window)
            if seen:
                one.last = at
            if state != one.state:
                one.state = state
                tags = dict(zip(monitor.condition.by, group, strict=True))
                yield Change(at, tags, state, seen.value if seen else None)
        at += EVERY


def _values(condition: Condition, found: Mapping[str, Groups], window: Asked) -> dict[Group, _Seen]:
    """Return the value of each group that has one."""
    first: dict[Group, float] = {}
    for groups in found.values():
        for group, values in groups.items():
            if values:
                first[group] = min(first.get(group, window.end), *values)
    times = window.buckets()
    if any(query.count for query in condition.queries):
        times = [window.end]
        found = {
            name: {group: {window.end: aggregate("sum", of)} if of else {} for group, of in groups.items()}
            for name, groups in found.items()
        }
    answer = compute(condition.formula, found, times)
    return {
        group: _Seen(aggregate(condition.time, values), first.get(group, window.start))
        for group, values in answer.items()
        if values
    }


def _next(monitor: Monitor, one: _Followed, seen: _Seen | None, at: float, window: Asked) -> str:
    if at - one.first < monitor.new_group_delay:
        return one.state
    if seen is None:
        return _missing(monitor, one.state)
    if monitor.require_full_window and seen.since - window.start > _FULL:
        return one.state
    return monitor.judge(one.state, seen.value)


def _missing(monitor: Monitor, state: str) -> str:
    if monitor.on_missing_data == "resolve":
        return OK
    if monitor.on_missing_data == "default":
        return monitor.judge(state, 0.0) if any(query.count for query in monitor.condition.queries) else state
    return NO_DATA


def _seconds(duration: str) -> float:
    match = _DURATION.fullmatch(duration)
    if not match:
        msg = f"no duration: {duration}"
        raise Refused(msg)
    return int(match[1]) * _UNITS[match[2]]
