# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The rules of Datadog's queries as the lab answers them; each expected number is worked out by hand in its test."""

from typing import Any

import pytest

from lab import evaluate
from lab.evaluate import rows, scalar, series
from lab.queries import Fill, Operation, Query, Rollup, parse, parse_formula, parse_monitor
from lab.reading import Refused
from lab.samples import interval_of
from lab.scopes import All, Either, Filter, Not
from lab.timeline import Moment, Point, Timeline

Told = dict[str, list[float | None]]


def timeline(told: Told, interval: float = 60, start: float = 0) -> Timeline:
    """Return a timeline: `name{tags}` -> its values moment by moment, None for no point. Counts end with `seconds`."""
    moments = []
    for number in range(max(len(values) for values in told.values())):
        points = []
        for text, values in told.items():
            name, _, tags = text.rstrip("}").partition("{")
            kind = "count" if name.endswith("_seconds") and name.startswith("gpus.") else "gauge"
            if number < len(values) and (value := values[number]) is not None:
                points.append(Point(name, kind, value, tuple(sorted(tag for tag in tags.split(",") if tag))))
        moments.append(Moment(start + interval * (number + 1), tuple(points)))
    return Timeline("by hand", interval, moments)


def lines(query: str, told: Told, **more: Any) -> dict[tuple[str, ...], list[float | None]]:
    """Return the answer by the values of its tags, in buckets of one minute."""
    found = timeline(told)
    end = found.moments[-1].at
    asked = {"start": 0, "end": end, "interval": 60, **more}
    return {tuple(one.tags.values()): [value for _, value in one.points][1:] for one in series(query, found, **asked)}


# The language.


def test_a_query_has_parts() -> None:
    """Aggregator, metric, scope, groups and modifiers are told apart."""
    assert parse(
        "sum:kueue_gang.gpus.idle_seconds{$kube_cluster_name,!idle_reason:starting,gpu_resource:nvidia.com/gpu}"
        " by {kube_namespace,idle_reason}.as_count().rollup(sum, 3600).fill(zero)"
    ) == Query(
        text=(
            "sum:kueue_gang.gpus.idle_seconds{$kube_cluster_name,!idle_reason:starting,gpu_resource:nvidia.com/gpu}"
            " by {kube_namespace,idle_reason}.as_count().rollup(sum, 3600).fill(zero)"
        ),
        space="sum",
        metric="kueue_gang.gpus.idle_seconds",
        scope=All((Not(Filter("idle_reason", ("starting",))), Filter("gpu_resource", ("nvidia.com/gpu",)))),
        variables=("kube_cluster_name",),
        by=("kube_namespace", "idle_reason"),
        count=True,
        rollup=Rollup("sum", 3600),
        fill=Fill("zero", 300),
    )


def test_words_of_a_scope() -> None:
    """IN and NOT IN name several values; AND joins; a value may have colons and stars."""
    query = parse("max:a.b{$queue AND state IN (partial, degraded) AND x NOT IN (y) AND z:a:b*}")
    assert query.variables == ("queue",)
    assert query.scope == All(
        (Filter("state", ("partial", "degraded")), Not(Filter("x", ("y",))), Filter("z", ("a:b*",)))
    )
    assert parse("max:a{*}").scope == All()
    assert parse("max:a{a:b OR NOT (c:d AND e:f)}").scope == Either(
        (Filter("a", ("b",)), Not(All((All((Filter("c", ("d",)), Filter("e", ("f",)))),))))
    )


def test_a_monitor_has_parts() -> None:
    """The window is in seconds, the threshold is a number, and the groups are those of the query."""
    condition = parse_monitor("min(last_1h):sum:a{x:y} by {k} / sum:b{*} by {k} * 100 <= 12.5")
    assert (condition.time, condition.window, condition.comparison, condition.threshold) == ("min", 3600, "<=", 12.5)
    assert condition.by == ("k",)
    assert [query.metric for query in condition.queries] == ["a", "b"]


def test_products_come_before_sums() -> None:
    """A formula is read as arithmetic is, from left to right."""
    formula = parse_formula("a - b - c * 2")
    assert isinstance(formula, Operation)
    assert formula.sign == "-"
    assert formula.left == parse_formula("a - b")
    assert formula.right == parse_formula("c * 2")
    assert parse_formula("a - (b - c)") != parse_formula("a - b - c")


@pytest.mark.parametrize(
    "query",
    [
        "sum(kueue_gang.gangs)",
        "kueue_gang.gangs{*}",
        "p95:kueue_gang.gangs{*}",
        "sum:kueue_gang.gangs",
        "sum:kueue_gang.gangs{}",
        "sum:kueue_gang.gangs{*} by {}",
        "sum:kueue_gang.gangs{*} by {a,a}",
        "sum:kueue_gang.gangs{*} by {a b}",
        "sum:kueue_gang.gangs{a:b OR $c}",
        "sum:kueue_gang.gangs{$c OR a:b}",
        "sum:kueue_gang.gangs{a:b AND NOT $c}",
        "sum:kueue_gang.gangs{a:b AND (c:d}",
        "sum:kueue_gang.gangs{a:b AND}",
        "sum:kueue_gang.gangs{a:b AND !c:d}",
        "sum:kueue_gang.gangs{a:b,c IN (d)}",
        "sum:kueue_gang.gangs{a IN ()}",
        "sum:kueue_gang.gangs{a}",
        "sum:kueue_gang.gangs{*}.as_rate()",
        "sum:kueue_gang.gangs{*}.as_count(1)",
        "sum:kueue_gang.gangs{*}.rollup()",
        "sum:kueue_gang.gangs{*}.rollup(median)",
        "sum:kueue_gang.gangs{*}.rollup(sum,1h)",
        "sum:kueue_gang.gangs{*}.fill(sometimes)",
        "sum:kueue_gang.gangs{*} > 1",
    ],
)
def test_what_is_not_known_is_refused(query: str) -> None:
    """Also what Datadog would understand: an answer that is not sure is none."""
    with pytest.raises(Refused):
        parse(query)


@pytest.mark.parametrize(
    "formula", ["", "a +", "a b", "(a", "a)", "top(a, 5)", "clamp_min(a)", "a % b", "cumsum(a, 1)"]
)
def test_a_formula_that_is_not_known_is_refused(formula: str) -> None:
    """A function that is not in the grammar, too few numbers for one that is, and what is no arithmetic."""
    with pytest.raises(Refused):
        parse_formula(formula)


@pytest.mark.parametrize(
    "query",
    [
        "sum:a{*} > 1",
        "avg(last_5x):sum:a{*} > 1",
        "avg(last_5m):sum:a{*}",
        "avg(last_5m):sum:a{*} == 1",
        "avg(last_5m):sum:a{*} by {x} / sum:b{*} by {y} > 1",
        "avg(last_5m):a > 1",
        "avg(last_5m):sum:a{*}.as_count() > 1",
        "change(avg(last_5m),last_1h):sum:a{*} > 1",
    ],
)
def test_a_monitor_that_is_not_known_is_refused(query: str) -> None:
    """No window, no threshold, a mean of counts, queries that differ in their groups, a function of the window."""
    with pytest.raises(Refused):
        parse_monitor(query)


# Scope.


def test_the_scope_admits_series() -> None:
    """A filter asks for a value, a denied one for none of it, also where the tag is absent; a star stands for any."""
    told: Told = {"gangs{q:a,s:x}": [1], "gangs{q:ab,s:y}": [10], "gangs{s:x}": [100]}
    expected = {
        "*": 111, "s:x": 101, "!s:x": 10, "q:a": 1, "q:a*": 11, "!q:a": 110, "s:x,q:a": 1, "q IN (a,ab)": 11,
        "q NOT IN (a,ab)": 100, "q:a OR q:ab": 11, "NOT (q:a AND s:x)": 110, "s:y OR q:a AND s:x": 11,
    }  # fmt: skip
    found = {scope: lines(f"sum:kueue_gang.gangs{{{scope}}}", told)[()][-1] for scope in expected}
    assert found == expected


def test_a_variable_is_a_filter() -> None:
    """With the value `*` it admits everything, also series without the tag; a variable that is not given is refused."""
    told: Told = {"gangs{q:a}": [1], "gangs{q:b}": [10], "gangs{}": [100]}
    query = "sum:kueue_gang.gangs{$q}"
    assert lines(query, told, variables={"q": ["*"]}) == {(): [111]}
    assert lines(query, told, variables={"q": ["a", "b"]}) == {(): [11]}
    with pytest.raises(Refused, match=r"no variable \$q"):
        lines(query, told)


def test_a_count_is_asked_for_as_one() -> None:
    """Datadog makes a rate of a count unless it is told not to, and there is nothing to tell it of a gauge."""
    with pytest.raises(Refused, match="as_count"):
        lines("sum:kueue_gang.gpus.idle_seconds{*}", {"gpus.idle_seconds{}": [1]})
    with pytest.raises(Refused, match="as_count"):
        lines("sum:kueue_gang.gangs{*}.as_count()", {"gangs{}": [1]})


# Time and space.


def test_time_comes_before_space() -> None:
    """Of two gauges with 2, 4 and 10, 30 in a bucket: the means are 3 and 20; their sum 23, their maximum 20."""
    told: Told = {"gangs{q:a}": [None, 2, 4], "gangs{q:b}": [None, 10, 30]}
    found = timeline(told, interval=30)
    for space, expected in (("sum", 23), ("max", 20), ("min", 3), ("avg", 11.5)):
        (line,) = series(f"{space}:kueue_gang.gangs{{*}}", found, 0, 119, 60)
        assert line.points == [(0.0, None), (60.0, expected)]
    (line,) = series("sum:kueue_gang.gangs{*}.rollup(max)", found, 0, 119, 60)
    assert line.points == [(0.0, None), (60.0, 34)]


def test_counts_are_added_up() -> None:
    """A bucket has the sum of its counts: 5 + 7 of one series and 1 of the other."""
    found = timeline({"gpus.idle_seconds{q:a}": [None, 5, 7], "gpus.idle_seconds{q:b}": [None, 1]}, interval=30)
    (line,) = series("sum:kueue_gang.gpus.idle_seconds{*}.as_count()", found, 0, 119, 60)
    assert line.points == [(0.0, None), (60.0, 13)]


def test_groups() -> None:
    """Series that agree in the tags of the group-by are one line; a series that lacks one is in the group N/A."""
    told: Told = {"gangs{q:a,s:x}": [1], "gangs{q:a,s:y}": [2], "gangs{q:b,s:x}": [4], "gangs{s:x}": [8]}
    assert lines("sum:kueue_gang.gangs{*} by {q}", told) == {("a",): [3], ("b",): [4], ("N/A",): [8]}
    assert lines("sum:kueue_gang.gangs{*} by {s,q}", told)["x", "N/A"] == [8]


def test_a_gap_is_not_zero() -> None:
    """A bucket without a point has None, and one without any series is no line at all."""
    assert lines("sum:kueue_gang.gangs{*}", {"gangs{}": [1, None, 3]}) == {(): [1, None, 3]}
    assert lines("sum:kueue_gang.gangs{q:no}", {"gangs{}": [1]}) == {}


def test_a_short_gap_beside_other_series_is_crossed() -> None:
    """1, -, 3 beside 10, 10, 10: 2 stands in the gap, so 12; after its last point nothing is made up."""
    told: Told = {"gangs{q:a}": [1, None, 3, None], "gangs{q:b}": [10, 10, 10, 10]}
    assert lines("sum:kueue_gang.gangs{*}", told) == {(): [11, 12, 13, 10]}


def test_a_long_gap_is_left() -> None:
    """Six minutes are not crossed, five are."""
    other: list[float | None] = [10] * 7
    long: Told = {"gangs{q:a}": [1, *[None] * 5, 7], "gangs{q:b}": other}
    assert lines("sum:kueue_gang.gangs{*}", long) == {(): [11, 10, 10, 10, 10, 10, 17]}
    short: Told = {"gangs{q:a}": [1, *[None] * 4, 6], "gangs{q:b}": other}
    assert lines("sum:kueue_gang.gangs{*}", short) == {(): [11, 12, 13, 14, 15, 16, 10]}


def test_counts_have_no_lines_between_them() -> None:
    """What did not happen is not made up."""
    told: Told = {"gpus.idle_seconds{q:a}": [1, None, 3], "gpus.idle_seconds{q:b}": [10, 10, 10]}
    assert lines("sum:kueue_gang.gpus.idle_seconds{*}.as_count()", told) == {(): [11, 10, 13]}


@pytest.mark.parametrize(
    ("fill", "expected"),
    [
        ("zero", [1, 0, 0, 4, 0]),
        ("last", [1, 1, 1, 4, 4]),
        ("linear", [1, 2, 3, 4, None]),
        ("null", [1, None, None, 4, None]),
        ("zero, 60", [1, 0, None, 4, 0]),
        ("last, 60", [1, 1, None, 4, 4]),
        ("linear, 60", [1, None, None, 4, None]),
    ],
)
def test_fill(fill: str, expected: list[float | None]) -> None:
    """How the gaps of 1, -, -, 4, - are filled; a limit is in seconds."""
    told: Told = {"gangs{}": [1, None, None, 4, None], "members{}": [1] * 5}
    assert lines(f"sum:kueue_gang.gangs{{*}}.fill({fill})", told) == {(): expected}


def test_the_buckets_of_a_graph() -> None:
    """Datadog's table for line graphs: an hour in 20 s, four in 1 min, a day in 5 min, two in 10 min, a week in 1 h."""
    hours = (1, 4, 24, 48, 168, 169)
    assert [interval_of(3600 * number) for number in hours] == [20, 60, 300, 600, 3600, 7200]


# Numbers, formulas, tables.


@pytest.mark.parametrize(("how", "expected"), [("avg", 4), ("last", 5), ("max", 6), ("min", 1), ("sum", 12)])
def test_one_number_of_a_line(how: str, expected: float) -> None:
    """Of 1, -, 6, 5: the mean of what is there, the last, the largest, the smallest, the sum."""
    found = timeline({"gangs{}": [1, None, 6, 5]})
    assert scalar("sum:kueue_gang.gangs{*}", found, 0, 240, how) == [({}, [expected])]


def test_a_number_of_nothing() -> None:
    """There is no row where there is no point, and an aggregator that is not known is refused."""
    found = timeline({"gangs{}": [1]})
    assert scalar("sum:kueue_gang.members{*}", found, 0, 60, "sum") == []
    with pytest.raises(Refused, match="percentile"):
        scalar("sum:kueue_gang.gangs{*}", found, 0, 60, "percentile")


def request(formulas: list[Any], aggregator: str = "last", sort: Any = None, **queries: str) -> dict[str, Any]:
    """Return a request as a widget has it."""
    return {
        "queries": [
            {"data_source": "metrics", "name": name, "query": query, "aggregator": aggregator}
            for name, query in queries.items()
        ],
        "formulas": [{"formula": one} if isinstance(one, str) else one for one in formulas],
        **({"sort": sort} if sort else {}),
    }


BUSY = "sum:kueue_gang.gpus.allocated{gpu_use:busy} by {q}"
HELD = "sum:kueue_gang.gpus.allocated{*} by {q}"


def test_a_formula_of_numbers() -> None:
    """First each query becomes a number, then the formula: 100 * mean(2, 4) / mean(4, 8) is 50, not mean(50, 50)."""
    told: Told = {"gpus.allocated{q:a,gpu_use:busy}": [2, 4], "gpus.allocated{q:a,gpu_use:idle}": [1, 5]}
    found = timeline(told)
    one = request(["100 * busy / all"], "avg", busy=BUSY, all=HELD)
    assert rows(one, found, 0, 120) == [({"q": "a"}, [50])]
    # Line by line it is 100 * 2 / 3 and 100 * 4 / 9.
    (lines_of_formula,) = evaluate.formulas(one, found, 0, 120, 60)
    assert [value for _, value in lines_of_formula[0].points] == [None, pytest.approx(66.667, 1e-3), 400 / 9]


def test_what_one_side_lacks_is_missing() -> None:
    """A group without a number on one side has none, a row of a table keeps the column that it has; nothing is 0."""
    told: Told = {"gpus.allocated{q:a,gpu_use:busy}": [2], "gpus.allocated{q:b,gpu_use:idle}": [1]}
    found = timeline(told)
    assert rows(request(["busy", "all", "busy / all"], busy=BUSY, all=HELD), found, 0, 60) == [
        ({"q": "a"}, [2, 2, 1]),
        ({"q": "b"}, [None, 1, None]),
    ]


def test_nothing_is_divided_by_zero() -> None:
    """The point is missing."""
    found = timeline({"gangs{}": [1, 1], "members{}": [0, 2]})
    one = request(["a / b"], a="sum:kueue_gang.gangs{*}", b="sum:kueue_gang.members{*}")
    ((line,),) = evaluate.formulas(one, found, 0, 120, 60)
    assert [value for _, value in line.points] == [None, None, 0.5]


def test_default_zero() -> None:
    """It fills each bucket of a line; without groups it makes one of nothing; groups are not made up."""
    found = timeline({"gangs{q:a}": [None, 2, None]})
    one = request(["default_zero(a)"], a="sum:kueue_gang.gangs{*}")
    ((line,),) = evaluate.formulas(one, found, 0, 180, 60)
    assert [value for _, value in line.points] == [0, 0, 2, 0]
    nothing = request(["default_zero(a)"], a="sum:kueue_gang.members{*}")
    assert rows(nothing, found, 0, 180) == [({}, [0])]
    grouped = request(["default_zero(a)"], a="sum:kueue_gang.members{*} by {q}")
    assert rows(grouped, found, 0, 180) == []


def test_functions_of_a_line() -> None:
    """Running total, bounds, absolute value of 1, 2, 4 less 2."""
    found = timeline({"gangs{}": [1, 2, 4]})
    for formula, expected in (
        ("cumsum(a)", [1, 3, 7]),
        ("clamp_min(a, 2)", [2, 2, 4]),
        ("clamp_max(a, 2)", [1, 2, 2]),
        ("abs(a - 2)", [1, 0, 2]),
        ("cutoff_min(a, 2)", [None, 2, 4]),
        ("-a + 2 * 3", [5, 4, 2]),
    ):
        ((line,),) = evaluate.formulas(request([formula], a="sum:kueue_gang.gangs{*}"), found, 0, 180, 60)
        assert [value for _, value in line.points][1:] == expected, formula


def test_the_order_of_a_table() -> None:
    """Sorted by the formula that is named, rows without its number last, and cut."""
    told: Told = {"gangs{q:a}": [1], "gangs{q:b}": [3], "gangs{q:c}": [2], "members{q:d}": [9]}
    queries = {"a": "sum:kueue_gang.gangs{*} by {q}", "b": "sum:kueue_gang.members{*} by {q}"}
    for order, count, expected in (("desc", 10, "bcad"), ("asc", 10, "acbd"), ("desc", 2, "bc")):
        sort = {"count": count, "order_by": [{"type": "formula", "index": 0, "order": order}]}
        table = rows(request(["a", "b"], sort=sort, **queries), timeline(told), 0, 60)
        assert "".join(row.tags["q"] for row in table) == expected


def test_a_limit_keeps_the_largest() -> None:
    """Of lines those with the largest mean, of rows those with the largest number."""
    told: Told = {"gangs{q:a}": [5, 1], "gangs{q:b}": [4, 4], "gangs{q:c}": [0, 2]}
    one = request([{"formula": "a", "limit": {"count": 2, "order": "desc"}}], a="sum:kueue_gang.gangs{*} by {q}")
    (found,) = evaluate.formulas(one, timeline(told), 0, 120, 60)
    assert [line.tags["q"] for line in found] == ["b", "a"]
    assert [row.tags["q"] for row in rows(one, timeline(told), 0, 120)] == ["b", "c"]


def test_a_request_that_is_not_known_is_refused() -> None:
    """A name that no query has, queries that differ in their groups, another source of data."""
    found = timeline({"gangs{}": [1]})
    gangs = "sum:kueue_gang.gangs{*}"
    for bad in (
        request(["b"], a=gangs),
        request(["1"], a=gangs),
        request(["a + b"], a=gangs, b=gangs + " by {q}"),
        {**request(["a"]), "queries": [{"data_source": "logs", "name": "a", "query": "*", "aggregator": "last"}]},
    ):
        with pytest.raises(Refused):
            rows(bad, found, 0, 60)
