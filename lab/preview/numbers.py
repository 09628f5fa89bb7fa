# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Numbers as the app writes them.

A number without a unit is shortened by thousands (k, M, G). A time is told in the largest unit of which there is at
least one. Any other unit follows the number in the short form that Datadog's list of units has for it
(docs.datadoghq.com/metrics/units), or in its plural where there is none. Decimals that say nothing are left out.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

#: What stands where there is no value: the app's word.
NOTHING: Final = "-"
#: Seconds in each unit of time, and how it is written for one and for more, the largest first.
_TIMES: Final[tuple[tuple[str, float, str, str], ...]] = (
    ("week", 604_800.0, "wk", "wks"),
    ("day", 86_400.0, "day", "days"),
    ("hour", 3_600.0, "hr", "hrs"),
    ("minute", 60.0, "min", "mins"),
    ("second", 1.0, "s", "s"),
    ("millisecond", 1e-3, "ms", "ms"),
    ("microsecond", 1e-6, "μs", "μs"),
    ("nanosecond", 1e-9, "ns", "ns"),
)
_SECONDS: Final = {name: seconds for name, seconds, _, _ in _TIMES}
_THOUSANDS: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
#: What is told in percent.
_FRACTION: Final = "fraction"
#: Units that stand close to the number, and those with a short form of their own.
_CLOSE: Final[Mapping[str, str]] = {"percent": "%"}
_SHORT: Final[Mapping[str, tuple[str, str]]] = {"device": ("device", "devices")}
_BEFORE: Final[Mapping[str, str]] = {"dollar": "$", "euro": "€"}
_DECIMALS: Final = 2


class Unit(NamedTuple):
    """How a number is to be written: one of Datadog's units, or a label of one's own; `scale` fixes a unit of time."""

    name: str = ""
    label: str = ""
    scale: str = ""


class Number(NamedTuple):
    """A number as it is written: what stands before it, the digits, and the unit behind it."""

    before: str
    digits: str
    unit: str

    def __str__(self) -> str:
        """Return all of it."""
        close = not self.unit or self.unit in _CLOSE.values()
        return f"{self.before}{self.digits}{'' if close else ' '}{self.unit}"


def unit_of(formula: Mapping[str, Any], default: str = "") -> Unit:
    """Return the unit that a formula asks for, else `default`, the unit of the metric that it shows.

    Raises ValueError for a kind of unit that is not known.
    """
    wanted = formula.get("number_format", {})
    unit = wanted.get("unit", {"type": "canonical_unit", "unit_name": default})
    scale = wanted.get("unit_scale", {}).get("unit_name", "")
    if unit["type"] == "canonical_unit":
        return Unit(name=unit.get("unit_name", default), scale=scale)
    if unit["type"] == "custom_unit_label":
        return Unit(label=unit["label"])
    msg = f"number_format: not a kind of unit that the preview knows: {unit['type']}"
    raise ValueError(msg)


def number(value: float | None, unit: Unit = Unit(), *, precision: int | None = None, autoscale: bool = True) -> Number:  # noqa: B008
    """Write a value with its unit, with at most so many decimals; without `autoscale` it keeps its own unit."""
    if value is None:
        return Number("", NOTHING, "")
    decimals = _DECIMALS if precision is None else precision
    if unit.name == _FRACTION:
        value, unit = 100 * value, Unit("percent")
    if unit.name in _SECONDS:
        return _time(value, unit, decimals, autoscale=autoscale)
    digits = _short(value, decimals) if autoscale else _plain(value, decimals, grouped=True)
    if unit.name in _CLOSE:
        return Number("", digits, _CLOSE[unit.name])
    if unit.name in _BEFORE:
        return Number(_BEFORE[unit.name], digits, "")
    one, more = _SHORT.get(unit.name, (unit.name, unit.name and f"{unit.name}s"))
    return Number("", digits, unit.label or (one if value == 1 else more))


def text(value: float | None, unit: Unit = Unit(), *, precision: int | None = None, autoscale: bool = True) -> str:  # noqa: B008
    """Write a value with its unit, in one piece."""
    return str(number(value, unit, precision=precision, autoscale=autoscale))


def _time(value: float, unit: Unit, decimals: int, *, autoscale: bool) -> Number:
    seconds = value * _SECONDS[unit.name]
    names = [row[0] for row in _TIMES]
    fixed = unit.scale or ("" if autoscale else unit.name)
    if not fixed:
        # A value of 0 has no size: it is told in its own unit.
        fixed = next((name for name in names if abs(seconds) >= _SECONDS[name]), unit.name)
    _, size, one, more = _TIMES[names.index(fixed)]
    amount = seconds / size
    return Number("", _plain(amount, decimals, grouped=not autoscale), one if amount == 1 else more)


def _short(value: float, decimals: int) -> str:
    for size, letter in _THOUSANDS:
        if abs(value) >= size:
            return f"{_plain(value / size, decimals or 1)}{letter}"
    return _plain(value, decimals)


def _plain(value: float, decimals: int, *, grouped: bool = False) -> str:
    digits = f"{value:,.{decimals}f}" if grouped else f"{value:.{decimals}f}"
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return "0" if digits == "-0" else digits
