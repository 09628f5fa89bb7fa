# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The points of a timeline by series, and the answer to one query of them by group and bucket.

The answer is made in this order, which is Datadog's:

1. The series that the scope admits are taken, and of each the points in the time asked for: after `start`, up to
   `end`.
2. Time: the points of a bucket become one, counts by their sum and gauges by their mean, or as `.rollup()` says. A
   bucket is as long as Datadog makes it for a graph of that length (`interval_of`).
3. Gaps: where a gauge has a gap of five minutes at most, and other series of its group have points, the gap is crossed
   by a straight line; `.fill()` says something else. After its last point a series is not prolonged.
4. Space: the series that agree in the tags of `by` become one, bucket by bucket. A series without such a tag is in the
   group `N/A`. Where no series of a group has a point, it has none: a gap is not zero.

Counts are to be asked for with `.as_count()`; without it Datadog makes rates of them, which nothing here wants.
"""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from datadog_checks.kueue_gang.catalog import ALL, PREFIX
from lab.queries import Query
from lab.reading import Refused
from lab.scopes import All, Filter
from lab.timeline import Timeline

#: The group of series that lack a tag of the group-by.
ABSENT: Final = "N/A"
#: Length of a graph (seconds) -> length of its buckets: docs.datadoghq.com, "Rollup", line graphs.
INTERVALS: Final = ((3600, 20), (4 * 3600, 60), (86400, 300), (2 * 86400, 600), (7 * 86400, 3600))
_LONGEST: Final = 7200
#: A gap of a gauge that is at most this long (seconds) is crossed by a straight line.
_CROSSED: Final = 300

Group = tuple[str, ...]
Values = dict[float, float]
#: Of each group the values by time.
Groups = dict[Group, Values]
Variables = Mapping[str, Sequence[str]]


class Recorded(NamedTuple):
    """The points of one series, in the order of time."""

    tags: dict[str, tuple[str, ...]]
    times: list[float]
    values: list[float]


class Samples:
    """The points of a timeline by series, so that many queries can be asked of it."""

    def __init__(self, timeline: Timeline) -> None:
        """Sort the points of a timeline into series."""
        found: dict[str, dict[tuple[str, ...], tuple[list[float], list[float]]]] = defaultdict(dict)
        for moment in timeline.moments:
            for point in moment.points:
                times, values = found[point.name].setdefault(point.tags, ([], []))
                times.append(moment.at)
                values.append(point.value)
        self._series = {
            name: [Recorded(_by_key(tags), times, values) for tags, (times, values) in series.items()]
            for name, series in found.items()
        }
        self.start = timeline.moments[0].at if timeline.moments else 0.0
        self.end = timeline.moments[-1].at if timeline.moments else 0.0

    def of(self, query: Query, variables: Variables) -> list[Recorded]:
        """Return the series that a query is about. Raises Refused where it asks for a count as if it were a gauge."""
        name = query.metric.removeprefix(PREFIX)
        metric = ALL.get(name) if query.metric.startswith(PREFIX) else None
        if query.count is not bool(metric and metric.type == "count"):
            msg = f".as_count() is for counts, and counts are for it: {query.text}"
            raise Refused(msg)
        scope = All((query.scope, *chosen(query, variables)))
        return [one for one in self._series.get(name, ()) if scope.admits(one.tags)]


def chosen(query: Query, variables: Variables) -> Iterable[Filter]:
    """Yield what the variables of a query add to its scope; `*` adds nothing. Raises Refused for an unknown one."""
    for name in query.variables:
        if name not in variables:
            msg = f"no variable ${name}: {query.text}"
            raise Refused(msg)
        if "*" not in variables[name]:
            yield Filter(name, tuple(variables[name]))


def interval_of(seconds: float) -> int:
    """Return the length of the buckets (seconds) of a graph of so many seconds."""
    return next((interval for longest, interval in INTERVALS if seconds <= longest), _LONGEST)


class Asked(NamedTuple):
    """The time that is asked for: after `start` and up to `end` (seconds since the epoch), in buckets."""

    start: float
    end: float
    interval: int

    @classmethod
    def of(cls, asked: Sequence[Query], start: float, end: float, interval: int | None = None) -> "Asked":
        """Return it with the buckets that the queries ask for, else those given, else those that Datadog would take.

        Raises Refused where the queries differ in that: what stands beside each other then, is not told.
        """
        lengths = {query.rollup.seconds if query.rollup else None for query in asked}
        if len(lengths) > 1:
            msg = f"the queries differ in their buckets: {', '.join(query.text for query in asked)}"
            raise Refused(msg)
        return cls(start, end, lengths.pop() or interval or interval_of(end - start))

    def bucket(self, at: float) -> float:
        """Return when the bucket of a time begins."""
        return at // self.interval * self.interval

    def buckets(self) -> list[float]:
        """Return when each bucket begins."""
        first, last = self.bucket(self.start), self.bucket(self.end)
        return [first + number * self.interval for number in range(round((last - first) / self.interval) + 1)]


def groups(query: Query, samples: Samples, asked: Asked, variables: Variables) -> Groups:
    """Return the values of a query by group and bucket."""
    return together(query, samples.of(query, variables), asked)


def together(query: Query, recorded: Iterable[Recorded], asked: Asked) -> Groups:
    """Return the values of these series by group and bucket, as the query brings them together."""
    # Without a group-by there is one group, also where nothing is in it.
    members: dict[Group, list[Values]] = {} if query.by else {(): []}
    for one in recorded:
        values = _in_time(query, one, asked)
        if values:
            group = tuple(one.tags.get(key, (ABSENT,))[0] for key in query.by)
            members.setdefault(group, []).append(values)
    return {group: _in_space(query, found, asked) for group, found in members.items()}


def _in_time(query: Query, one: Recorded, asked: Asked) -> Values:
    """Return one number for each bucket in which a series has points."""
    first, last = bisect_right(one.times, asked.start), bisect_right(one.times, asked.end)
    method = query.rollup.method if query.rollup else "sum" if query.count else "avg"
    buckets: dict[float, list[float]] = defaultdict(list)
    for at, value in zip(one.times[first:last], one.values[first:last], strict=True):
        buckets[asked.bucket(at)].append(value)
    return {at: METHODS[method](values) for at, values in buckets.items()}


def _in_space(query: Query, found: list[Values], asked: Asked) -> Values:
    """Return one number for each bucket in which a series of the group has one."""
    if not found:
        return {}
    how, limit = query.fill or (("null", 0) if query.count else ("linear", _CROSSED))
    # Without .fill() only times at which some series has a point are looked at.
    times = sorted({at for values in found for at in values})
    if query.fill and how != "null":
        times = [at for at in asked.buckets() if at >= times[0]]
    if how != "null":
        found = [_filled(values, times, how, limit) for values in found]
    values = {at: [one[at] for one in found if at in one] for at in times}
    return {at: METHODS[query.space](several) for at, several in values.items() if several}


def _filled(values: Values, times: list[float], how: str, limit: int) -> Values:
    """Return the values of one series with its gaps filled."""
    known = sorted(values)
    filled = dict(values)
    for at in times:
        place = bisect_right(known, at)
        if at in values or not place or at - known[place - 1] > limit:
            continue
        before = known[place - 1]
        if how == "zero":
            filled[at] = 0.0
        elif how == "last":
            filled[at] = values[before]
        elif place < len(known) and known[place] - before <= limit:
            after = known[place]
            filled[at] = values[before] + (values[after] - values[before]) * (at - before) / (after - before)
    return filled


def aggregate(how: str, values: Values) -> float:
    """Return one number of the values of a line. Raises Refused for an aggregator that is not known here."""
    if how == "last":
        return values[max(values)]
    if how not in METHODS:
        msg = f"not known: the aggregator {how}"
        raise Refused(msg)
    return METHODS[how](list(values.values()))


def mean(values: Sequence[float]) -> float:
    """Return the mean of some numbers."""
    return math.fsum(values) / len(values)


def _by_key(tags: Iterable[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for tag in tags:
        key, _, value = tag.partition(":")
        found[key] = (*found.get(key, ()), value)
    return found


METHODS: Final[dict[str, Callable[[Sequence[float]], float]]] = {
    "avg": mean,
    "max": max,
    "min": min,
    "sum": math.fsum,
}
