# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Pods that serve metrics and can be asked for them: what it takes to reach one, and no more.

A pod is asked while it runs and has an IP. One that is about to end has stopped to listen, or does so in a moment.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from datadog_checks.kueue_gang.facts.fields import Json, identity, mapping, text


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A pod that can be asked at its IP."""

    namespace: str
    name: str
    ip: str


def reducer(namespace: str = "") -> Callable[[Json], Endpoint | None]:
    """Return the function that makes `Endpoint` facts of the pods of a namespace, or of all."""
    return partial(_endpoint, namespace)


def _endpoint(wanted: str, obj: Json) -> Endpoint | None:
    metadata, namespace, name = identity(obj)
    status = mapping(obj, "status")
    ip = text(status, "podIP")
    ends = metadata.get("deletionTimestamp") is not None
    if not ip or ends or text(status, "phase") != "Running" or (wanted and namespace != wanted):
        return None
    return Endpoint(namespace, name, ip)
