# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The arithmetic of formulas: of the answers to queries, group by group and bucket by bucket.

What is missing in one of two groups is missing in the answer, and so is what is divided by 0. A number goes with each
point. `default_zero` gives a point to each bucket; it makes up no group, but a query without groups has its one, also
where nothing was sent at all.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Final

from lab.queries import Call, Formula, Name, Number, Query
from lab.reading import Refused
from lab.samples import Groups, Values


def compute(formula: Formula, found: Mapping[str, Groups], times: Sequence[float]) -> Groups:
    """Return the values of a formula by group. Raises Refused for a name that no query has, or a lone number."""
    result = _compute(formula, found, times)
    if isinstance(result, float):
        msg = "a formula of numbers only"
        raise Refused(msg)
    return result


def _compute(formula: Formula, found: Mapping[str, Groups], times: Sequence[float]) -> Groups | float:
    if isinstance(formula, Number):
        return formula.value
    if isinstance(formula, Name | Query):
        name = formula.name if isinstance(formula, Name) else formula.text
        if name not in found:
            msg = f"no query is named {name}"
            raise Refused(msg)
        return found[name]
    if isinstance(formula, Call):
        of = _compute(formula.of, found, times)
        if isinstance(of, float):
            msg = f"{formula.function} of a number"
            raise Refused(msg)
        return {group: _FUNCTIONS[formula.function](values, times, *formula.numbers) for group, values in of.items()}
    left, right = _compute(formula.left, found, times), _compute(formula.right, found, times)
    return _combined(formula.sign, left, right)


def _combined(sign: str, left: Groups | float, right: Groups | float) -> Groups | float:
    """Return what two formulas give together: a number goes with each point, and a group with the same group."""
    apply = _SIGNS[sign]
    if isinstance(left, float):
        if isinstance(right, float):
            result = apply(left, right)
            return math.nan if result is None else result
        pairs = {group: {at: (left, one) for at, one in values.items()} for group, values in right.items()}
    elif isinstance(right, float):
        pairs = {group: {at: (one, right) for at, one in values.items()} for group, values in left.items()}
    else:
        pairs = {
            group: {at: (left[group][at], right[group][at]) for at in left[group].keys() & right[group].keys()}
            for group in left.keys() & right.keys()
        }
    answers = {group: {at: apply(*pair) for at, pair in of.items()} for group, of in pairs.items()}
    return {
        group: {at: value for at, value in values.items() if value is not None} for group, values in answers.items()
    }


def _divided(one: float, other: float) -> float | None:
    return one / other if other else None


def _default_zero(values: Values, times: Sequence[float]) -> Values:
    return {at: values.get(at, 0.0) for at in times}


def _cumsum(values: Values, _: Sequence[float]) -> Values:
    times = sorted(values)
    return dict(zip(times, accumulate(values[at] for at in times), strict=True))


_SIGNS: Final[dict[str, Callable[[float, float], float | None]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
}
_FUNCTIONS: Final[dict[str, Callable[..., Values]]] = {
    "abs": lambda values, _: {at: abs(value) for at, value in values.items()},
    "clamp_max": lambda values, _, bound: {at: min(value, bound) for at, value in values.items()},
    "clamp_min": lambda values, _, bound: {at: max(value, bound) for at, value in values.items()},
    "cumsum": _cumsum,
    # What is less is no number any more.
    "cutoff_min": lambda values, _, bound: {at: value for at, value in values.items() if value >= bound},
    "default_zero": _default_zero,
}
