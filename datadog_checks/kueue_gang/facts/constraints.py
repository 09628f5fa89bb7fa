# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Where a pod may go: its nodeSelector and its required node affinity.

Both must hold. The affinity holds when one of its terms does, a term when each of its expressions does; a term without
expressions holds nowhere. What is only preferred keeps a pod from no node. Taints are the other half, see
`pods.Toleration`. Source: k8s.io/component-helpers, scheduling/corev1/nodeaffinity.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, Protocol

from datadog_checks.kueue_gang.facts.fields import BadObjectError, Json, items, mapping, strings, text

HOSTNAME = "kubernetes.io/hostname"
#: The key under which the one field that affinity can name, metadata.name, is kept: no label can have it.
NODE_NAME = "\0metadata.name"


class Labelled(Protocol):
    """What has labels."""

    def get(self, key: str) -> str | None:
        """Return the value of a label, None where it is absent."""


class Expression(NamedTuple):
    """One requirement on a label; `operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...]


class Constraint(NamedTuple):
    """A nodeSelector, sorted, and the terms of a required node affinity; `terms` None is no affinity."""

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[tuple[Expression, ...], ...] | None = None

    def allows(self, node: Labelled) -> bool:
        """Tell whether a node with these labels will do; its name is the label `NODE_NAME`."""
        return all(node.get(key) == value for key, value in self.selector) and (
            self.terms is None
            or any(bool(term) and all(_OPERATORS[one.operator](node.get(one.key), one.values) for one in term)
                   for term in self.terms)
        )  # fmt: skip

    def within(self, labels: dict[str, str]) -> "Constraint":
        """Return the constraint that also asks for these labels; those that contradict it leave no node."""
        return Constraint(tuple(sorted({*self.selector, *labels.items()})), self.terms)


ANYWHERE = Constraint()


def _number(value: str | None) -> int | None:
    try:
        return None if value is None else int(value)
    except ValueError:
        return None


def _above(value: str | None, values: tuple[str, ...], sign: int) -> bool:
    mine, bound = _number(value), _number(values[0]) if len(values) == 1 else None
    return mine is not None and bound is not None and sign * (mine - bound) > 0


_OPERATORS: dict[str, Callable[[str | None, tuple[str, ...]], bool]] = {
    "In": lambda value, values: value is not None and value in values,
    # As the selector library has it: a label that is absent is in no list.
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _values: value is not None,
    "DoesNotExist": lambda value, _values: value is None,
    "Gt": lambda value, values: _above(value, values, 1),
    "Lt": lambda value, values: _above(value, values, -1),
}


def constraint(spec: Json) -> Constraint:
    """Return where a pod spec or pod template spec allows its pod to go.

    Raises:
        BadObjectError: an operator is unknown, or a part has another type than it should have.

    """
    selector, affinity = spec.get("nodeSelector"), spec.get("affinity")
    if not selector and not affinity:
        return ANYWHERE
    required = mapping(mapping(affinity or {}, "nodeAffinity"), "requiredDuringSchedulingIgnoredDuringExecution")
    terms = tuple(_term(term) for term in items(required, "nodeSelectorTerms")) if required else None
    chosen = strings(spec, "nodeSelector") if selector else {}
    return _one(Constraint(tuple(sorted(chosen.items())), terms))


@lru_cache(maxsize=4096)
def _one(found: Constraint) -> Constraint:
    """Return one record for all that are equal: the pods of a template ask for the same."""
    return found


def _term(term: Json) -> tuple[Expression, ...]:
    return (
        *(_expression(one, text(one, "key")) for one in items(term, "matchExpressions")),
        *(_expression(one, NODE_NAME) for one in items(term, "matchFields")),
    )


def _expression(obj: Json, key: str) -> Expression:
    operator, values = text(obj, "operator"), obj.get("values")
    if operator not in _OPERATORS:
        msg = "node affinity has an operator that is unknown"
        raise BadObjectError(msg)
    return Expression(key, operator, _values(values))


def _values(values: object) -> tuple[str, ...]:
    if values is None:
        return ()
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        msg = "node affinity has values that are no strings"
        raise BadObjectError(msg)
    return tuple(values)
