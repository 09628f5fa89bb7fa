# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The scope of a query: which series of a metric are meant. The grammar is in `lab.queries`."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from lab.reading import Reader, Refused

KEY: Final = r"[a-z][\w.\-/]*"
_VALUE: Final = r"[\w.\-/*]+(?::[\w.\-/*]+)*"
_VARIABLE: Final = re.compile(r"\$([a-z_]+)")
_PAIR: Final = re.compile(rf"(?P<key>{KEY}):(?P<value>{_VALUE})")
_SYMBOL: Final = re.compile(rf"(?P<not>!?){_PAIR.pattern}")
_LISTED: Final = re.compile(rf"(?P<key>{KEY}) (?P<not>NOT )?IN \((?P<values>[^()]+)\)")
_AND, _OR, _NOT = re.compile(r"AND\b"), re.compile(r"OR\b"), re.compile(r"NOT\b")

#: The tags of a series: each key with its values.
Tags = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on one tag: it has one of these values. `*` in a value stands for any text."""

    key: str
    values: tuple[str, ...]

    def admits(self, tags: Tags) -> bool:
        """Tell whether a series is meant."""
        return any(fnmatchcase(one, value) for one in tags.get(self.key, ()) for value in self.values)


@dataclass(frozen=True, slots=True)
class Not:
    """What another condition does not admit, series without the tag among it."""

    of: "Scope"

    def admits(self, tags: Tags) -> bool:
        """Tell whether a series is meant."""
        return not self.of.admits(tags)


@dataclass(frozen=True, slots=True)
class All:
    """What several conditions admit; of none, everything."""

    of: tuple["Scope", ...] = ()

    def admits(self, tags: Tags) -> bool:
        """Tell whether a series is meant."""
        return all(one.admits(tags) for one in self.of)


@dataclass(frozen=True, slots=True)
class Either:
    """What one of several conditions admits."""

    of: tuple["Scope", ...]

    def admits(self, tags: Tags) -> bool:
        """Tell whether a series is meant."""
        return any(one.admits(tags) for one in self.of)


Scope = Filter | Not | All | Either


def filters(scope: Scope) -> Iterator[Filter]:
    """Yield the conditions on single tags of which a scope is made."""
    if isinstance(scope, Filter):
        yield scope
    else:
        for one in (scope.of,) if isinstance(scope, Not) else scope.of:
            yield from filters(one)


def parse_scope(text: str) -> tuple[Scope, tuple[str, ...]]:
    """Return a scope, and the variables in it. Raises Refused."""
    if text == "*":
        return All(), ()
    if re.search(r"\b(?:AND|OR|NOT|IN)\b", text):
        words = _Words(text)
        return words.whole(), tuple(words.variables)
    found: list[Scope] = []
    variables = []
    for part in text.split(","):
        if match := _VARIABLE.fullmatch(part):
            variables.append(match[1])
        elif match := _SYMBOL.fullmatch(part):
            one = Filter(match["key"], (match["value"],))
            found.append(Not(one) if match["not"] else one)
        else:
            msg = f"not known in a scope: {part!r} of {{{text}}}"
            raise Refused(msg)
    return All(tuple(found)), tuple(variables)


class _Words(Reader):
    """Reads a scope that is written in words; variables are gathered, as they may stand among what holds at once."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.variables: list[str] = []

    def whole(self) -> Scope:
        return self.end(self._either(outer=True))

    def _either(self, *, outer: bool) -> Scope:
        found = [self._all(outer=outer)]
        while self.match(_OR):
            found.append(self._all(outer=False))
        if len(found) > 1 and self.variables:
            self.refuse()
        return found[0] if len(found) == 1 else Either(tuple(found))

    def _all(self, *, outer: bool) -> Scope:
        found = self._one(outer=outer)
        while self.match(_AND):
            found += self._one(outer=outer)
        return found[0] if len(found) == 1 else All(tuple(found))

    def _one(self, *, outer: bool) -> list[Scope]:
        """Return a condition; none for a variable, which is known by its name only."""
        if self.match(_NOT):
            return [Not(All(tuple(self._one(outer=False))))]
        if self.sign("("):
            found = self._either(outer=False)
            self.expect(")")
            return [found]
        if outer and (match := self.match(_VARIABLE)):
            self.variables.append(match[1])
            return []
        if match := self.match(_LISTED):
            one = Filter(match["key"], tuple(value.strip() for value in match["values"].split(",")))
            if not all(re.fullmatch(_VALUE, value) for value in one.values):
                self.refuse()
            return [Not(one) if match["not"] else one]
        if match := self.match(_PAIR):
            return [Filter(match["key"], (match["value"],))]
        return self.refuse()
