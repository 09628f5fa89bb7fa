# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The language of Datadog's metric queries, as far as the dashboards, monitors and SLOs of this project use it.

    monitor   = time "(last_" window "):" formula comparison number
    formula   = term { ("+" | "-") term }
    term      = factor { ("*" | "/") factor }
    factor    = number | "-" factor | "(" formula ")" | function "(" formula { "," number } ")" | name | query
    query     = space ":" metric "{" scope "}" [ " by {" key { "," key } "}" ] { modifier }
    scope     = "*" | symbols | words
    symbols   = symbol { "," symbol }
    symbol    = "$" variable | ["!"] key ":" value
    words     = all { " OR " all }
    all       = one { " AND " one }
    one       = "NOT " one | "(" words ")" | key ":" value | key [" NOT"] " IN (" value { "," value } ")"
              | "$" variable (only where it holds for the whole scope: not beside OR, below NOT or in parentheses)
    modifier  = ".as_count()" | ".fill(" how [ "," seconds ] ")" | ".rollup(" method [ "," seconds ] ")"
    time, space, method = "avg" | "max" | "min" | "sum"
    how       = "zero" | "null" | "last" | "linear"
    window    = digits ("m" | "h" | "d")
    comparison = ">" | ">=" | "<" | "<="

A formula of a dashboard names the queries that stand beside it; that of a monitor holds them. A value may contain `*`.
The symbols (`,` and `!`) and the words (`AND`, `OR`, `NOT`, `IN`) do not mix in one scope, at Datadog neither. Words
bind as everywhere: NOT before AND before OR.

What is not in this grammar is refused with `Refused`, which says where: Datadog knows more (`top`, `anomalies`,
`change`, ...), and nothing here pretends to.

Sources: docs.datadoghq.com, "Querying", "Advanced filtering", "Functions", "Configure monitors".
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from lab.reading import Reader, Refused
from lab.scopes import KEY, All, Scope, filters, parse_scope

METHODS: Final = ("avg", "max", "min", "sum")
FILLS: Final = ("zero", "null", "last", "linear")
#: Function -> how many numbers follow the formula that it is of.
FUNCTIONS: Final = {"abs": 0, "clamp_max": 1, "clamp_min": 1, "cumsum": 0, "cutoff_min": 1, "default_zero": 0}
#: Seconds that .fill() fills unless it says something else.
_FILLED: Final = 300
_EVERYTHING: Final = All()
_UNITS: Final = {"m": 60, "h": 3600, "d": 86400}

_METHOD = "|".join(METHODS)
_QUERY: Final = re.compile(
    rf"(?P<space>{_METHOD}):(?P<metric>[a-zA-Z][\w.]*)\{{(?P<scope>[^{{}}]*)\}}(?: by \{{(?P<by>[^{{}}]*)\}})?"
    r"(?P<modifiers>(?:\.[a-z_]+\([^()]*\))*)"
)
_MODIFIER: Final = re.compile(r"\.([a-z_]+)\(([^()]*)\)")
_MONITOR: Final = re.compile(
    rf"(?P<time>{_METHOD})\(last_(?P<number>\d+)(?P<unit>[mhd])\):"
    r"(?P<formula>.+?) (?P<comparison>[<>]=?) (?P<threshold>-?\d+(?:\.\d+)?)"
)
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")


class Rollup(NamedTuple):
    """How the points of a bucket become one, and how long a bucket is (seconds; None: as long as the graph has it)."""

    method: str
    seconds: int | None


class Fill(NamedTuple):
    """What stands where a series has no point, and for how many seconds at most."""

    how: str
    limit: int


@dataclass(frozen=True, slots=True)
class Query:
    """One query: the series of a metric that a scope admits, brought together over the tags that `by` does not name."""

    text: str
    space: str
    metric: str
    scope: Scope = _EVERYTHING
    variables: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    count: bool = False
    rollup: Rollup | None = None
    fill: Fill | None = None

    @property
    def named(self) -> set[str]:
        """The tags that it filters or groups by; a variable is named as its tag."""
        return {*(one.key for one in filters(self.scope)), *self.variables, *self.by}


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a formula."""

    value: float


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a query that stands beside the formula."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function of a formula, with its numbers."""

    function: str
    of: "Formula"
    numbers: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """Two formulas and what is between them: + - * /."""

    sign: str
    left: "Formula"
    right: "Formula"


Formula = Query | Number | Name | Call | Operation


@dataclass(frozen=True, slots=True)
class Condition:
    """The query of a monitor: a formula, brought together over a window (seconds), against a threshold."""

    text: str
    time: str
    window: int
    formula: Formula
    comparison: str
    threshold: float

    @property
    def queries(self) -> list[Query]:
        """The queries of the formula."""
        return list(queries(self.formula))

    @property
    def by(self) -> tuple[str, ...]:
        """The tags that make its groups."""
        return self.queries[0].by


def parse(text: str) -> Query:
    """Return one query in its parts. Raises Refused."""
    match = _QUERY.fullmatch(text)
    if not match:
        msg = f"no query: {text}"
        raise Refused(msg)
    return _query(match)


def parse_formula(text: str) -> Formula:
    """Return a formula in its parts. Raises Refused."""
    return _Formula(text).whole()


def parse_monitor(text: str) -> Condition:
    """Return the query of a monitor in its parts. Raises Refused, also where its queries differ in their groups."""
    match = _MONITOR.fullmatch(text)
    if not match:
        msg = f"no query of a monitor: {text}"
        raise Refused(msg)
    formula = parse_formula(match["formula"])
    found = list(queries(formula))
    if not found or list(names(formula)):
        msg = f"a monitor holds its queries and names none: {text}"
        raise Refused(msg)
    if len({one.by for one in found}) > 1:
        msg = f"the queries differ in their groups: {text}"
        raise Refused(msg)
    if any(one.count for one in found) and match["time"] != "sum":
        msg = f"counts are added up over the window, and nothing else: {text}"
        raise Refused(msg)
    window = int(match["number"]) * _UNITS[match["unit"]]
    return Condition(text, match["time"], window, formula, match["comparison"], float(match["threshold"]))


def queries(formula: Formula) -> Iterator[Query]:
    """Yield the queries that a formula holds."""
    for leaf in _leaves(formula):
        if isinstance(leaf, Query):
            yield leaf


def names(formula: Formula) -> Iterator[str]:
    """Yield the names of the queries beside it that a formula uses."""
    for leaf in _leaves(formula):
        if isinstance(leaf, Name):
            yield leaf.name


def _leaves(formula: Formula) -> Iterator[Formula]:
    if isinstance(formula, Call):
        yield from _leaves(formula.of)
    elif isinstance(formula, Operation):
        yield from _leaves(formula.left)
        yield from _leaves(formula.right)
    else:
        yield formula


class _Modifiers:
    """What stands behind a query, while it is read."""

    def __init__(self) -> None:
        self.count = False
        self.rollup: Rollup | None = None
        self.fill: Fill | None = None

    def as_count(self) -> None:
        self.count = True

    def add_rollup(self, method: str, seconds: str | None = None) -> None:
        self.rollup = Rollup(_one_of(METHODS, method), _seconds(seconds) if seconds else None)

    def add_fill(self, how: str, limit: str | None = None) -> None:
        self.fill = Fill(_one_of(FILLS, how), _seconds(limit) if limit else _FILLED)


#: Modifier -> what it does, and with how many arguments.
_MODIFIERS: Final[dict[str, tuple[Callable[..., None], range]]] = {
    "as_count": (_Modifiers.as_count, range(1)),
    "fill": (_Modifiers.add_fill, range(1, 3)),
    "rollup": (_Modifiers.add_rollup, range(1, 3)),
}


def _query(match: re.Match[str]) -> Query:
    scope, variables = parse_scope(match["scope"])
    by = tuple(match["by"].split(",")) if match["by"] else ()
    if match["by"] == "" or not all(re.fullmatch(KEY, key) for key in by) or len(set(by)) != len(by):
        msg = f"no list of tags: by {{{match['by']}}}"
        raise Refused(msg)
    modifiers = _Modifiers()
    for name, text in _MODIFIER.findall(match["modifiers"]):
        arguments = [one.strip() for one in text.split(",")] if text else []
        modify, allowed = _MODIFIERS.get(name, (_Modifiers.as_count, range(0)))
        if len(arguments) not in allowed:
            msg = f"not known: .{name}({text})"
            raise Refused(msg)
        modify(modifiers, *arguments)
    return Query(
        match[0],
        match["space"],
        match["metric"],
        scope,
        variables,
        by,
        modifiers.count,
        modifiers.rollup,
        modifiers.fill,
    )


def _one_of(allowed: tuple[str, ...], word: str) -> str:
    if word not in allowed:
        msg = f"{word!r} is none of {', '.join(allowed)}"
        raise Refused(msg)
    return word


def _seconds(text: str) -> int:
    if not text.isdecimal():
        msg = f"no number of seconds: {text!r}"
        raise Refused(msg)
    return int(text)


class _Formula(Reader):
    """Reads a formula."""

    def whole(self) -> Formula:
        return self.end(self._sum())

    def _sum(self) -> Formula:
        return self._chain("+-", self._product)

    def _product(self) -> Formula:
        return self._chain("*/", self._factor)

    def _chain(self, signs: str, part: Callable[[], Formula]) -> Formula:
        found = part()
        while sign := self.sign(signs):
            found = Operation(sign, found, part())
        return found

    def _factor(self) -> Formula:
        if self.sign("-"):
            return Operation("-", Number(0.0), self._factor())
        if self.sign("("):
            found = self._sum()
            self.expect(")")
            return found
        if match := self.match(_QUERY):
            return _query(match)
        if match := self.match(_NUMBER):
            return Number(float(match[0]))
        if match := self.match(_NAME):
            return self._call(match[0]) if self.sign("(") else Name(match[0])
        return self.refuse()

    def _call(self, function: str) -> Formula:
        if function not in FUNCTIONS:
            msg = f"not known: {function}()"
            raise Refused(msg)
        of = self._sum()
        numbers = []
        for _ in range(FUNCTIONS[function]):
            self.expect(",")
            match = self.match(_NUMBER)
            numbers.append(float(match[0]) if match else self.refuse())
        self.expect(")")
        return Call(function, of, tuple(numbers))
