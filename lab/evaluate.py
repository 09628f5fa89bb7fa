# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What Datadog would answer to the requests of a widget, of a timeline that the check was played into.

A request has queries and formulas of them. For lines a formula is computed bucket by bucket; for single numbers and
tables after each query became a number by its aggregator. How a query is answered is told in `lab.samples`, what the
language has in `lab.queries`. What is not known is refused, never guessed.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from lab.formulas import compute
from lab.queries import Query, parse, parse_formula
from lab.reading import Refused
from lab.samples import Asked, Groups, Samples, Variables, aggregate, groups, mean
from lab.timeline import Timeline


class Series(NamedTuple):
    """One line of an answer: its tags, and a point for each bucket, None where there is nothing."""

    tags: dict[str, str]
    points: list[tuple[float, float | None]]


class Row(NamedTuple):
    """One row of a table: its tags, and a number for each formula, None where there is nothing."""

    tags: dict[str, str]
    values: list[float | None]


def series(
    query: Query | str,
    data: Timeline | Samples,
    start: float,
    end: float,
    interval: int | None = None,
    variables: Variables | None = None,
) -> list[Series]:
    """Return the answer to one query, a line a group. Raises Refused where the query is not understood."""
    parsed = parse(query) if isinstance(query, str) else query
    asked = Asked.of([parsed], start, end, interval)
    return _lines(parsed.by, groups(parsed, _samples(data), asked, variables or {}), asked)


def scalar(
    query: Query | str,
    data: Timeline | Samples,
    start: float,
    end: float,
    aggregator: str = "avg",
    variables: Variables | None = None,
) -> list[Row]:
    """Return one number a group: the points of its line, by an aggregator. Raises Refused as `series` does."""
    parsed = parse(query) if isinstance(query, str) else query
    found = groups(parsed, _samples(data), Asked.of([parsed], start, end), variables or {})
    return [
        Row(dict(zip(parsed.by, group, strict=True)), [aggregate(aggregator, values)])
        for group, values in sorted(found.items())
        if values
    ]


def formulas(
    request: Mapping[str, Any],
    data: Timeline | Samples,
    start: float,
    end: float,
    interval: int | None = None,
    variables: Variables | None = None,
) -> list[list[Series]]:
    """Return the lines of each formula of a request with `response_format: timeseries`, limited as it says."""
    asked, by, found = _answered(request, _samples(data), (start, end, interval), variables or {})
    answers = []
    for one in request["formulas"]:
        lines = _lines(by, compute(parse_formula(one["formula"]), found, asked.buckets()), asked)
        limit = one.get("limit")
        if limit:
            lines.sort(key=_mean, reverse=limit.get("order", "desc") == "desc")
            lines = lines[: limit["count"]]
        answers.append(lines)
    return answers


def rows(
    request: Mapping[str, Any],
    data: Timeline | Samples,
    start: float,
    end: float,
    interval: int | None = None,
    variables: Variables | None = None,
) -> list[Row]:
    """Return the rows of a request with `response_format: scalar`: a number for each formula, sorted as it says."""
    asked, by, found = _answered(request, _samples(data), (start, end, interval), variables or {})
    aggregators = {one["name"]: one["aggregator"] for one in request["queries"]}
    numbers = {
        name: {group: {asked.end: aggregate(aggregators[name], of)} if of else {} for group, of in found_of.items()}
        for name, found_of in found.items()
    }
    columns = [compute(parse_formula(one["formula"]), numbers, [asked.end]) for one in request["formulas"]]
    keys = sorted({group for column in columns for group, values in column.items() if values})
    table = [
        Row(dict(zip(by, group, strict=True)), [column.get(group, {}).get(asked.end) for column in columns])
        for group in keys
    ]
    return _sorted(table, request)


def _sorted(table: list[Row], request: Mapping[str, Any]) -> list[Row]:
    """Return rows in the order of `sort`, or of the first formula with a limit; at most as many as it says."""
    limits = [(index, one["limit"]) for index, one in enumerate(request["formulas"]) if "limit" in one]
    for index, limit in limits[:1]:
        table = _ordered(table, index, limit.get("order", "desc"))[: limit["count"]]
    for one in request.get("sort", {}).get("order_by", ())[:1]:
        if one["type"] != "formula":
            msg = f"not known: to sort by {one['type']}"
            raise Refused(msg)
        table = _ordered(table, one["index"], one["order"])[: request["sort"].get("count")]
    return table


def _ordered(table: list[Row], index: int, order: str) -> list[Row]:
    """Return rows by one of their numbers, those without it last."""
    sign = -1 if order == "desc" else 1
    return sorted(table, key=lambda row: (row.values[index] is None, sign * (row.values[index] or 0.0)))


def _answered(
    request: Mapping[str, Any], samples: Samples, time: tuple[float, float, int | None], variables: Variables
) -> tuple[Asked, tuple[str, ...], dict[str, Groups]]:
    """Return the buckets, the tags of the groups, and the answer to each query. Raises Refused where groups differ."""
    parsed = {one["name"]: parse(one["query"]) for one in request["queries"] if one["data_source"] == "metrics"}
    if len(parsed) != len(request["queries"]):
        msg = "only queries of metrics are known"
        raise Refused(msg)
    tags = {query.by for query in parsed.values()}
    if len(tags) > 1:
        msg = f"the queries differ in their groups: {', '.join(query.text for query in parsed.values())}"
        raise Refused(msg)
    asked = Asked.of(list(parsed.values()), *time)
    return asked, tags.pop(), {name: groups(query, samples, asked, variables) for name, query in parsed.items()}


def _lines(by: tuple[str, ...], found: Groups, asked: Asked) -> list[Series]:
    return [
        Series(dict(zip(by, group, strict=True)), [(at, values.get(at)) for at in asked.buckets()])
        for group, values in sorted(found.items())
        if values
    ]


def _mean(line: Series) -> float:
    return mean([value for _, value in line.points if value is not None] or [0.0])


def _samples(data: Timeline | Samples) -> Samples:
    return data if isinstance(data, Samples) else Samples(data)
