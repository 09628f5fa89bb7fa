# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Kubernetes quantities and GPU resources.

A quantity is a decimal number with a decimal SI (`k`, `M`), binary (`Ki`, `Mi`) or exponent suffix; `m` is a
thousandth. Source: apimachinery, pkg/api/resource/quantity.go. Extended resources such as GPUs are whole units: `8`,
`8000m` and `8e0` are eight, and `500m` is malformed.

Which resources are GPUs is the user's choice, by glob; `gpu.intel.com/*_monitoring` never is: it gives access to the
counters of all cards of a node and reserves none.
"""

import re
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any

from datadog_checks.kueue_gang.facts.fields import BadObjectError, Json

_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d{1,3})|(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]))?", re.ASCII)
_POWERS_OF_1000 = {"n": -3, "u": -2, "m": -1, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_SUFFIXES = {
    **{suffix: Decimal(1000) ** power for suffix, power in _POWERS_OF_1000.items()},
    **{
        suffix + "i": Decimal(1024) ** power for suffix, power in _POWERS_OF_1000.items() if power > 0 and suffix != "k"
    },
    "Ki": Decimal(1024),
}
_MAX_DIGITS = 64
_MAX_UNITS = 2**53
#: Bound of the memory of resource lists: nodes of one kind share one.
_MAX_LISTS = 1000

#: GPU units by resource name, sorted by name; only resources of which at least one unit is meant.
Units = tuple[tuple[str, int], ...]


def quantity(value: object) -> Decimal:
    """Return a quantity as an exact number.

    Raises:
        BadObjectError: it is no quantity.

    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    match = _NUMBER.fullmatch(value) if isinstance(value, str) and len(value) <= _MAX_DIGITS else None
    if match is None:
        msg = "unknown quantity"
        raise BadObjectError(msg)
    number, exponent, suffix = match.groups()
    return Decimal(number + (exponent or "")) * _SUFFIXES.get(suffix, Decimal(1))


def units(value: object) -> int:
    """Return a quantity of an extended resource: a whole number that is not negative.

    Raises:
        BadObjectError: it is no quantity, has a fraction, is negative or beyond any hardware.

    """
    amount = quantity(value)
    if not 0 <= amount <= _MAX_UNITS or amount != amount.to_integral_value():
        msg = "quantity is negative, fractional or too large for an extended resource"
        raise BadObjectError(msg)
    return int(amount)


class GpuResources:
    """The user's globs, as a test on resource names; answers are remembered, since the same few names always return."""

    def __init__(self, globs: tuple[str, ...]) -> None:
        """Take the globs of the option `gpu_resources`."""
        self._globs = globs
        self._known: dict[str, bool] = {}
        #: What nodes of one kind have in common, once.
        self._read: dict[tuple[tuple[str, str], ...], dict[str, int]] = {}

    def __contains__(self, resource: str) -> bool:
        """Tell whether a resource name means GPUs."""
        known = self._known.get(resource)
        if known is None:
            known = not resource.endswith("_monitoring") and any(fnmatchcase(resource, glob) for glob in self._globs)
            self._known[resource] = known
        return known

    def read(self, resources: Json) -> dict[str, int]:
        """Return the GPU units of a resource list (`capacity`, `allocatable`, `requests`), by resource.

        Lists that state the same share the answer: it is to be read, not changed.
        """
        # API servers state quantities as text; as a key, the number 1 would be the same as True.
        stated = tuple((name, str(amount)) for name, amount in resources.items() if name in self)
        found = self._read.get(stated)
        if found is None:
            found = {name: units(resources[name]) for name, _ in stated}
            if len(self._read) >= _MAX_LISTS:
                self._read.clear()
            self._read[stated] = found
        return found


def total(parts: list[dict[str, int]]) -> dict[str, int]:
    """Add units by resource."""
    summed: dict[str, int] = {}
    for part in parts:
        for resource, amount in part.items():
            summed[resource] = summed.get(resource, 0) + amount
    return summed


def peak(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
    """Return the larger amount of each resource."""
    return {resource: max(left.get(resource, 0), right.get(resource, 0)) for resource in {**left, **right}}


def freeze(amounts: dict[str, int]) -> Units:
    """Return units in their hashable form, without zeros."""
    return tuple(sorted((resource, amount) for resource, amount in amounts.items() if amount))


def pod_units(spec: Json, gpus: GpuResources) -> Units:
    """Return the effective GPU request of a pod spec or pod template spec.

    Per resource: max(containers + sidecars, peak of the plain init containers, each with the sidecars that were started
    before it) + overhead. A sidecar is an init container with restartPolicy Always. The limit counts where no request
    is given, resource by resource. Source: k8s.io/component-helpers, resource/helpers.go.
    """
    containers = [_container_units(container, gpus) for container in _containers(spec, "containers")]
    sidecars: list[dict[str, int]] = []
    init_peak: dict[str, int] = {}
    for container in _containers(spec, "initContainers"):
        request = _container_units(container, gpus)
        if container.get("restartPolicy") == "Always":
            sidecars.append(request)
        elif request:
            init_peak = peak(init_peak, total([request, *sidecars]))
    steady = total(containers + sidecars) if sidecars or len(containers) > 1 else (containers[0] if containers else {})
    effective = peak(steady, init_peak) if init_peak else steady
    overhead = spec.get("overhead")
    return freeze(total([effective, gpus.read(overhead)]) if overhead else effective)


def _containers(spec: Json, key: str) -> list[Any]:
    containers = spec.get(key)
    if containers is None:
        return []
    if not isinstance(containers, list):
        msg = f"spec.{key} is not a list"
        raise BadObjectError(msg)
    return containers


def _container_units(container: Json, gpus: GpuResources) -> dict[str, int]:
    resources = container.get("resources")
    if not resources:
        return {}
    limits, requests = resources.get("limits"), resources.get("requests")
    limited = gpus.read(limits) if limits else {}
    return {**limited, **gpus.read(requests)} if requests else limited
