# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The values in the files of scenarios: what each kind is read with, and the error that says where one is wrong."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar

from lab.simulation.state import BLOCK, HOSTNAME, RACK

_DURATION: Final = re.compile(r"(?P<sign>-?)(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m)?(?:(?P<s>\d+)s)?")
#: What a level is called in a scenario.
LEVELS: Final = {"block": BLOCK, "rack": RACK, "host": HOSTNAME}

_T = TypeVar("_T")


class ScenarioError(ValueError):
    """A scenario that cannot be understood; the text says where and why."""


def seconds(value: object, where: str) -> float:
    """Read a duration."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None or not any(match[unit] for unit in "hms"):
        msg = f"{where}: {value!r} is no duration like 1h30m, 45s or 90"
        raise ScenarioError(msg)
    total = sum(int(match[unit] or 0) * factor for unit, factor in (("h", 3600), ("m", 60), ("s", 1)))
    return float(-total if match["sign"] else total)


def span(value: object, where: str) -> tuple[float, float]:
    """Read a duration, or the least and the most of one."""
    ends = value if isinstance(value, list) else [value, value]
    if len(ends) != 2:  # noqa: PLR2004 - the least and the most
        msg = f"{where}: {value!r} is neither a duration nor two"
        raise ScenarioError(msg)
    return seconds(ends[0], where), seconds(ends[1], where)


def typed(kind: type[_T], name: str) -> Callable[[object, str], _T]:
    """Return what reads values of a type of YAML."""

    def read(value: object, where: str) -> _T:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            msg = f"{where}: {value!r} is no {name}"
            raise ScenarioError(msg)
        return value

    return read


text = typed(str, "text")
whole = typed(int, "whole number")
flag = typed(bool, "yes or no")
mapping = typed(dict, "mapping")
listed = typed(list, "list")


def number(value: object, where: str) -> float:
    """Read a number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        msg = f"{where}: {value!r} is no number"
        raise ScenarioError(msg)
    return float(value)


def numbers(value: object, where: str) -> dict[str, int]:
    """Read whole numbers by name."""
    return {text(key, where): whole(one, where) for key, one in mapping(value, where).items()}


def texts(value: object, where: str) -> tuple[str, ...]:
    """Read a text, or several."""
    return tuple(text(one, where) for one in (value if isinstance(value, list) else [value]))


def place(value: object, where: str) -> tuple[str, str]:
    """Read `{required: rack}`: how a job is to be placed."""
    found = mapping(value, where)
    if len(found) != 1 or not found.keys() <= {"required", "preferred"} or not set(found.values()) <= LEVELS.keys():
        msg = f"{where}: {value!r} is not required or preferred, with one of {', '.join(LEVELS)}"
        raise ScenarioError(msg)
    return next((how, LEVELS[level]) for how, level in found.items())


def level(value: object, where: str) -> str:
    """Read the name of a level."""
    if value not in LEVELS:
        msg = f"{where}: {value!r} is none of {', '.join(LEVELS)}"
        raise ScenarioError(msg)
    return LEVELS[str(value)]


def answer(value: object, where: str) -> int | str:
    """Read how a server answers: an HTTP status, or a word."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        msg = f"{where}: {value!r} is neither an HTTP status nor a way to answer"
        raise ScenarioError(msg)
    return value


def moment(value: object, where: str) -> datetime:
    """Read a time."""
    if not isinstance(value, datetime):
        msg = f"{where}: {value!r} is no time like 2027-03-01T06:00:00Z"
        raise ScenarioError(msg)
    return value if value.tzinfo else value.replace(tzinfo=UTC)


#: Fields, with what reads them.
Text = Annotated[str, text]
Whole = Annotated[int, whole]
Number = Annotated[float, number]
Flag = Annotated[bool, flag]
Duration = Annotated[float, seconds]
Span = Annotated[tuple[float, float], span]
Texts = Annotated[tuple[str, ...], texts]
Numbers = Annotated[dict[str, int], numbers]
Mapped = Annotated[dict[str, Any], mapping]
Place = Annotated[tuple[str, str] | None, place]
Level = Annotated[str, level]
Answer = Annotated[int | str, answer]
Moment = Annotated[datetime, moment]
