# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""`kueue-gang status`: one table of all gangs, and where the GPUs are.

The table is made from a picture and a width, so that tests and the demo print it too. Colour tells at a glance what
matters: red holds GPUs in vain, yellow waits, green works. It is used on a terminal, unless NO_COLOR says otherwise.
"""

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from datadog_checks.kueue_gang import settings
from datadog_checks.kueue_gang.derive.deriver import Deriver
from datadog_checks.kueue_gang.derive.members import UP
from datadog_checks.kueue_gang.derive.picture import NONE, GangView, Picture
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.derive.states import STATES_SENT
from datadog_checks.kueue_gang.sources.api import Api
from datadog_checks.kueue_gang.sources.collector import Collector, Reading
from datadog_checks.kueue_gang.sources.connection import Connection, KubeConnection, UrlConnection
from datadog_checks.kueue_gang.sources.errors import SourceError
from datadog_checks.kueue_gang.sources.folder import FolderConnection

_LOG = logging.getLogger(__name__)

_RESET = "\x1b[0m"
_BOLD, _DIM, _RED, _GREEN, _YELLOW = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m"
_CLEAR = "\x1b[H\x1b[2J"
_COLOURS = {
    **dict.fromkeys(("partial", "degraded", "stopping", "orphan"), _RED),
    **dict.fromkeys(("waiting", "rejected", "pending", "starting"), _YELLOW),
    **dict.fromkeys(("running", "finishing"), _GREEN),
    "queued": _DIM,
}
#: States in the order of the table: what holds GPUs in vain first, then what waits, then what works.
_ORDER = (
    "partial", "degraded", "starting", "stopping", "waiting", "rejected", "pending", "queued", "orphan", "finishing",
    "running",
)  # fmt: skip
assert set(_ORDER) == set(STATES_SENT)  # noqa: S101 - a state that was forgotten here would vanish from the table

_COLUMNS = ("NAMESPACE", "GANG", "ENGINE", "QUEUE", "STATE", "UP", "MEMBERS", "HELD", "IDLE", "AGE")
_RIGHT = {"UP", "HELD", "IDLE", "AGE"}
_DAY, _HOUR, _MINUTE = 86400, 3600, 60


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    rules = Rules(namespaces=tuple(options.namespace), include_cpu_gangs=options.cpu)
    connection = _connection(options)
    watch = options.watch is not None and not options.folder
    collector = Collector(Api(connection, log=_LOG), settings.wanted_resources(rules), _LOG, watch=watch)
    deriver = Deriver(rules)
    try:
        while True:
            reading = collector.collect()
            if not any(one.up for one in reading.health):
                raise next(iter(reading.errors.values()))
            picture = deriver.apply(reading.changes, reading.now)
            text = as_json(picture, reading) if options.json else table(picture, reading.errors, coloured(sys.stdout))
            print((_CLEAR if options.watch and not options.json and sys.stdout.isatty() else "") + text, flush=True)
            if not options.watch:
                return 0
            time.sleep(options.watch)
    finally:
        collector.stop()
        connection.abort()


def _connection(options: argparse.Namespace) -> Connection:
    if options.folder:
        return FolderConnection(options.folder)
    if options.url:
        return UrlConnection(options.url, {}, timeout=options.timeout)
    in_cluster = "KUBERNETES_SERVICE_HOST" in os.environ and not (options.kubeconfig or options.context)
    path = options.kubeconfig or (None if in_cluster else os.environ.get("KUBECONFIG") or "~/.kube/config")
    return KubeConnection(
        config_path=os.path.expanduser(path) if path else None,  # noqa: PTH111 - KUBECONFIG may name several files
        context=options.context,
        timeout=options.timeout,
    )


def coloured(stream: TextIO) -> bool:
    """Tell whether a stream takes colour."""
    return "NO_COLOR" not in os.environ and (stream.isatty() or "FORCE_COLOR" in os.environ)


def table(picture: Picture, errors: Mapping[str, SourceError], colour: bool) -> str:  # noqa: FBT001
    """Return the table of gangs, the cluster's GPUs, and what could not be seen, as text."""
    paint = _painter(colour)
    lines = [paint(_BOLD, line) for line in _summary(picture)]
    gangs = sorted(picture.gangs, key=_rank)
    if gangs:
        lines += ["", *_rows(gangs, picture.now, paint)]
    elif picture.pods_known:
        lines += ["", "no gangs"]
    lines += ["", *_gpu_lines(picture, paint)] if picture.nodes or picture.gpus.allocated else []
    lines += _unseen(picture, errors, paint)
    return "\n".join(lines)


def _painter(colour: bool) -> Callable[[str, str], str]:  # noqa: FBT001
    return (lambda code, text: f"{code}{text}{_RESET}") if colour else (lambda _code, text: text)


def _rank(gang: GangView) -> tuple[int, int, tuple[str, str, str]]:
    order = _ORDER.index(gang.state) if gang.state else len(_ORDER)
    return order, -sum(gang.idle.values()), gang.key


def _summary(picture: Picture) -> list[str]:
    if not picture.pods_known:
        return ["pods could not be read: no gangs are shown"]
    states = [gang.state or "not observable" for gang in picture.gangs]
    counts = [f"{states.count(state)} {state}" for state in (*_ORDER, "not observable") if state in states]
    gangs = f"{len(states)} gang{'' if len(states) == 1 else 's'}"
    return [f"{gangs}: {', '.join(counts)}" if counts else gangs]


def _rows(gangs: Sequence[GangView], now: float, paint: Callable[[str, str], str]) -> list[str]:
    cells = [_cells(gang, now) for gang in gangs]
    widths = [max(len(row[column]) for row in (_COLUMNS, *cells)) for column in range(len(_COLUMNS))]

    def line(row: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if name in _RIGHT else cell.ljust(width)
            for cell, width, name in zip(row, widths, _COLUMNS, strict=True)
        )
        return "  ".join(padded).rstrip()

    painted = [paint(_COLOURS.get(gang.state or "", _DIM), line(row)) for gang, row in zip(gangs, cells, strict=True)]
    return [paint(_BOLD, line(_COLUMNS)), *painted]


def _cells(gang: GangView, now: float) -> tuple[str, ...]:
    up = sum(number for name, number in gang.classes.items() if name in UP)
    done = gang.classes.get("succeeded", 0) if gang.state == "finishing" else 0
    others = [(name, number) for name, number in gang.classes.items() if name not in UP and number]
    if gang.missing:
        others.append(("missing", gang.missing))
    queue = gang.queue.local_queue if gang.queue.local_queue != NONE else "-"
    return (
        gang.queue.namespace,
        gang.name,
        gang.queue.engine,
        queue,
        gang.state or f"? ({gang.unobservable})",
        f"{up}/{'?' if gang.required is None else gang.required + done}",
        ", ".join(f"{number} {name}" for name, number in sorted(others)) or "-",
        _amounts(gang.allocated),
        _amounts(gang.idle),
        age(None if gang.since is None else now - gang.since),
    )


def _amounts(amounts: Mapping[str, int]) -> str:
    """Return GPU amounts; the resource is named where it is not the usual one."""
    return " + ".join(
        f"{amount}" if resource == "nvidia.com/gpu" else f"{amount} {resource}"
        for resource, amount in sorted(amounts.items())
    ) or "-"  # fmt: skip


def age(seconds: float | None) -> str:
    """Return an age as people say it: 42s, 13m, 5h10m, 3d."""
    if seconds is None:
        return "-"
    whole = int(max(0.0, seconds))
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02}m"
    return f"{whole // _DAY}d"


def _gpu_lines(picture: Picture, paint: Callable[[str, str], str]) -> list[str]:
    resources = sorted({*(picture.nodes or {}), *(resource for _, resource, _ in picture.gpus.allocated)})
    lines = []
    for resource in resources:
        uses = {use: _sum(picture.gpus.allocated, resource, use) for use in ("busy", "idle", "other")}
        totals = (picture.nodes or {}).get(resource)
        told = [
            f"{sum(uses.values())} allocated ({uses['busy']} busy, {uses['idle']} idle, {uses['other']} of no gang)"
        ]
        if totals:
            told.insert(0, f"{totals.allocatable} allocatable")
            told.append(f"{totals.free} free" if picture.free_known else "free not known")
            told += [f"{totals.unhealthy} unhealthy"] if totals.unhealthy else []
        reserved = sum(amount for (_, name), amount in picture.gpus.reserved.items() if name == resource)
        told += [f"{reserved} reserved in the scheduler"] if reserved else []
        lines.append(f"{resource}: {', '.join(told)}")
        reasons = {reason for _, name, reason in picture.gpus.idle if name == resource}
        if reasons:
            idle = ", ".join(f"{_sum(picture.gpus.idle, resource, reason)} {reason}" for reason in sorted(reasons))
            lines.append(paint(_RED, f"  idle: {idle}"))
    return lines


def _sum(amounts: Mapping[tuple[Any, str, str], int], resource: str, what: str) -> int:
    return sum(amount for (_, name, kind), amount in amounts.items() if name == resource and kind == what)


def _unseen(picture: Picture, errors: Mapping[str, SourceError], paint: Callable[[str, str], str]) -> list[str]:
    lines = [
        f"not observable: {signal} of {number} gang{'' if number == 1 else 's'} ({reason.replace('_', ' ')})"
        for (signal, reason), number in sorted(picture.unobservable.items())
    ]
    lines += [f"down: {source}: {error}" for source, error in sorted(errors.items())]
    return ["", *(paint(_YELLOW, line) for line in lines)] if lines else []


def as_json(picture: Picture, reading: Reading) -> str:
    """Return the picture as JSON: gangs, gpus, unobservable, sources."""
    return json.dumps(
        {
            "now": picture.now,
            "gangs": [_gang_json(gang, picture.now) for gang in sorted(picture.gangs, key=_rank)],
            "gpus": {
                resource: {
                    "capacity": totals.capacity,
                    "allocatable": totals.allocatable,
                    "unhealthy": totals.unhealthy,
                    "schedulable": totals.schedulable,
                    "free": totals.free if picture.free_known else None,
                    "allocated": {
                        use: _sum(picture.gpus.allocated, resource, use) for use in ("busy", "idle", "other")
                    },
                }
                for resource, totals in sorted((picture.nodes or {}).items())
            },
            "unobservable": [
                {"signal": signal, "reason": reason, "gangs": number}
                for (signal, reason), number in sorted(picture.unobservable.items())
            ],
            "sources": [
                {
                    "api_source": one.source,
                    "reason": one.reason,
                    "objects": one.objects,
                    "bad_objects": one.bad,
                    "error": str(reading.errors[one.source]) if one.source in reading.errors else None,
                }
                for one in reading.health
            ],
        },
        indent=2,
    )


def _gang_json(gang: GangView, now: float) -> dict[str, object]:
    return {
        "gang": gang.name,
        "kube_namespace": gang.queue.namespace,
        "gang_engine": gang.queue.engine,
        "kueue_local_queue": _none(gang.queue.local_queue),
        "kueue_cluster_queue": _none(gang.queue.cluster_queue),
        "owner_kind": _none(gang.owner_kind),
        "gang_state": gang.state,
        "state_seconds": None if gang.since is None else max(0.0, now - gang.since),
        "required": gang.required,
        "members": {**gang.classes, **({"missing": gang.missing} if gang.missing else {})},
        "gpus_requested": gang.requested,
        "gpus_allocated": gang.allocated,
        "gpus_idle": gang.idle,
        "gpus_reserved": gang.reserved,
        "requeues": gang.requeues,
        "unguarded": list(gang.unguarded),
        "unobservable": gang.unobservable or None,
    }


def _none(value: str) -> str | None:
    return None if value == NONE else value
