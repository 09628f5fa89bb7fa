# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""`kueue-gang status`: one table of all gangs, and where the GPUs are.

The table is made from a picture and a view, so that tests and the demo print it too. Colour tells at a glance what
matters: red holds GPUs in vain, yellow waits, green works. It is used on a terminal; NO_COLOR and FORCE_COLOR say
otherwise. What is piped is as wide as it needs to be, and what goes to a terminal fits into it.

While watching, pods that cannot be read any more leave the last picture standing, beside what is wrong and how old it
is: a server that is replaced, or a laptop that slept, ends nothing.
"""

import argparse
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, NamedTuple

from datadog_checks.kueue_gang import settings
from datadog_checks.kueue_gang.commands import gang, gpus, places
from datadog_checks.kueue_gang.commands.as_json import as_json
from datadog_checks.kueue_gang.commands.cluster import connect
from datadog_checks.kueue_gang.commands.terminal import (
    BOLD,
    CLEAR,
    COLOURS,
    DIM,
    RED,
    YELLOW,
    age,
    coloured,
    cut,
    painter,
    plain,
    show,
    width,
)
from datadog_checks.kueue_gang.derive.closeup import CloseUp
from datadog_checks.kueue_gang.derive.deriver import Deriver
from datadog_checks.kueue_gang.derive.members import UP
from datadog_checks.kueue_gang.derive.picture import NONE, GangView, Picture
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.derive.states import STATES_SENT
from datadog_checks.kueue_gang.facts.cluster import NOT_INSTALLED
from datadog_checks.kueue_gang.facts.rejections import EVENTS
from datadog_checks.kueue_gang.sources.api import Api
from datadog_checks.kueue_gang.sources.collector import Collector, Reading
from datadog_checks.kueue_gang.sources.connection import Connection
from datadog_checks.kueue_gang.sources.folder import FolderConnection
from datadog_checks.kueue_gang.sources.resources import Resource

_LOG = logging.getLogger(__name__)

#: States in the order of the table: what holds GPUs in vain first, then what waits, then what works.
_ORDER = (
    "partial", "degraded", "starting", "stopping", "waiting", "rejected", "pending", "queued", "orphan", "finishing",
    "running",
)  # fmt: skip
assert set(_ORDER) == set(STATES_SENT)  # noqa: S101 - a state that was forgotten here would vanish from the table

#: MEMBERS comes last: one long cell of it would push the others out of sight.
_COLUMNS = (
    "NAMESPACE", "GANG", "ENGINE", "QUEUE", "STATE", "UP", "HELD", "IDLE", "AGE", "BLOCKER", "PLACEMENT", "MEMBERS",
)  # fmt: skip
_RIGHT = {"UP", "HELD", "IDLE", "AGE"}
#: Columns that a narrow terminal does without, in this order.
_DROPPED: Final = ("ENGINE", "QUEUE", "PLACEMENT", "AGE")
#: Characters of MEMBERS for which a column is dropped.
_MEMBERS_WANTED: Final = 24
#: Columns that are shortened when that is not enough, in this order, and the characters that are left of them at least.
_SHORTENED: Final = (("MEMBERS", 12), ("GANG", 12), ("MEMBERS", 8), ("GANG", 8), ("BLOCKER", 8), ("HELD", 6))
_GAP: Final = "  "
_NO_PODS: Final = "pods could not be read"
#: Names that are offered instead of one that is not there.
_FEW: Final = 8

#: Engines whose absence is told of a folder: a list that was not recorded is gangs that are not seen.
_ENGINES: Final = frozenset({"coscheduling", "kubernetes", "kueue"})
#: Lists that gangs come from, beside the pods.
_OF_GANGS: Final = frozenset({"jobs", "podgroups", "workloads"})


class NoGangError(Exception):
    """The gang that was named is not there."""


class View(NamedTuple):
    """How a picture is shown: in colour, cut to a width (None: as wide as it is), with a filter of namespaces on."""

    colour: bool = False
    width: int | None = None
    namespaces: tuple[str, ...] = ()


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    rules = Rules(namespaces=tuple(options.namespace), include_cpu_gangs=options.cpu)
    connection = connect(options)
    # Events are for counts of what happened, which are not shown.
    resources = [one for one in settings.wanted_resources(rules) if one.api_source != EVENTS]
    watch = options.watch is not None and not options.folder
    engines = _ENGINES if options.folder else frozenset[str]()
    collector = Collector(Api(connection, log=_LOG), resources, _LOG, watch=watch, named_engines=engines)
    deriver = Deriver(rules)
    last: Picture | None = None
    near: list[CloseUp] = []
    try:
        while True:
            reading = collector.collect()
            if options.watch is None and not any(one.up for one in reading.health):
                raise next(iter(reading.errors.values()))
            picture = deriver.apply(reading.changes, reading.now)
            if last is None or picture.pods_known:
                # A copy, since the deriver moves the time of its own.
                last = replace(picture)
                near = _near(last, deriver, options)
            if options.gang and not near and options.watch is None:
                raise NoGangError("; ".join([_no_gang(last, options.gang), *_down(reading)]))
            if options.json:
                ranked = sorted(last.gangs, key=_rank)
                show(as_json(last, ranked, near, reading, members=options.gang is not None), sys.stdout)
            else:
                view = View(coloured(sys.stdout), width(sys.stdout), rules.namespaces)
                unseen = [*_undated(connection), *_down(reading), *_strange(reading), *_absent(resources, reading)]
                shown = _gang(near, last, unseen, view, options.gang) if options.gang else table(last, unseen, view)
                show((CLEAR if options.watch and sys.stdout.isatty() else "") + shown, sys.stdout)
            if options.watch is None:
                return 0
            time.sleep(options.watch)
    finally:
        collector.stop()
        connection.abort()


def _near(picture: Picture, deriver: Deriver, options: argparse.Namespace) -> list[CloseUp]:
    """Return the gangs that are shown from near: the one that was named, if it is there, or all for JSON."""
    if options.gang is None:
        if not options.json:
            return []
        seen = deriver.seen()
        return [seen.close_up(view, most=1) for view in picture.views if view.key in seen.gangs]
    namespace, name = options.gang
    found = [view for view in picture.gangs if (view.queue.namespace, view.name) == (namespace, name)]
    seen = deriver.seen()
    return [seen.close_up(view) for view in found if view.key in seen.gangs]


def _no_gang(picture: Picture, named: tuple[str, str]) -> str:
    """Return why a gang that was named is not shown."""
    if not picture.pods_known:
        return _NO_PODS
    namespace, name = named
    return f"there is no gang {name} in namespace {namespace}; {_others(picture, namespace)}"


def _gang(
    near: Sequence[CloseUp], picture: Picture, unseen: Sequence[str], view: View, named: tuple[str, str]
) -> str:  # fmt: skip
    """Return the gang that was named as text, or why it is not shown, and what could not be seen."""
    found = gang.text(near, picture.now, colour=view.colour, width=view.width) or plain(_no_gang(picture, named))
    paint = painter(view.colour)
    return "\n".join([found, *([""] if unseen else []), *(paint(YELLOW, plain(line)) for line in unseen)])


def _others(picture: Picture, namespace: str) -> str:
    """Return what gangs there are instead."""
    names = sorted(view.name for view in picture.views if view.queue.namespace == namespace)
    if names:
        more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
        return f"there {'is' if len(names) == 1 else 'are'} {', '.join(names[:_FEW])}{more}"
    places = sorted({view.queue.namespace for view in picture.views})
    return f"there are gangs in {', '.join(places[:_FEW])}" if places else "there are no gangs"


def _undated(connection: Connection) -> list[str]:
    """Return a line that tells what the ages of a folder rest on, where it does not say of when it is."""
    assumed = connection.assumed if isinstance(connection, FolderConnection) else None
    if assumed is None:
        return []
    when = datetime.fromtimestamp(assumed, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return [f"no now.txt: ages are as of {when}, when the newest file was written"]


def _strange(reading: Reading) -> list[str]:
    """Return a line for each source with objects that could not be understood: how many, and some of them."""
    lines = []
    for source, found in sorted(reading.changes.unreadable.items()):
        plural, dot, group = source.partition(".")
        kind = plural if len(found) > 1 else f"{plural[:-3]}y" if plural.endswith("ies") else plural.removesuffix("s")
        names = ["/".join(filter(None, name)) for name in sorted(found)]
        more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
        lines.append(f"not understood: {len(found)} {kind}{dot}{group}: {', '.join(names[:_FEW])}{more}")
    return lines


def _down(reading: Reading) -> list[str]:
    """Return a line for each source that could not be read: why, and how old what is known of it is."""
    lines = []
    for one in sorted(reading.health, key=lambda health: health.source):
        if one.up or one.reason == NOT_INSTALLED:
            continue
        error = reading.errors.get(one.source, "not read whole yet")
        lines.append(f"down: {one.source}: {error}" + (f" (last read {age(one.age)} ago)" if one.age else ""))
    return lines


def _absent(resources: Sequence[Resource], reading: Reading) -> list[str]:
    """Return a line that names the files of gangs that a folder has not."""
    missing = {one.source for one in reading.health if one.reason == NOT_INSTALLED}
    files = [
        f"{one.plural}.{one.group}.json"
        for one in resources
        if one.api_source in missing and one.plural in _OF_GANGS
    ]  # fmt: skip
    return [f"not there: {', '.join(files)}: their gangs are not known"] if files else []


def table(picture: Picture, unseen: Sequence[str], view: View) -> str:
    """Return the table of gangs, the cluster's GPUs, and what could not be seen, as text.

    `unseen` are lines about what could not be read.
    """
    paint = painter(view.colour)
    lines = [paint(BOLD, line) for line in _summary(picture, view.namespaces)]
    gangs = sorted(picture.gangs, key=_rank)
    lines += ["", *_rows(gangs, picture, view.width, paint)] if gangs else []
    lines += ["", *gpus.lines(picture, view.namespaces, paint)] if picture.nodes or picture.gpus.allocated else []
    told = places.lines(picture)
    misplaced = (paint(RED, plain(line)) for line in places.misplaced(gangs))
    lines += ["", *map(plain, told), *misplaced] if told else []
    lines += _unseen(picture, unseen, paint)
    return "\n".join(lines)


def _rank(gang: GangView) -> tuple[int, int, tuple[str, str, str]]:
    order = _ORDER.index(gang.state) if gang.state else len(_ORDER)
    return order, -sum(gang.idle.values()), gang.key


def _summary(picture: Picture, namespaces: Sequence[str]) -> list[str]:
    if not picture.pods_known:
        return [f"{_NO_PODS}: no gangs are shown"]
    states = [gang.state or "not observable" for gang in picture.gangs]
    if not states:
        where = f" in namespace{'' if len(namespaces) == 1 else 's'} {', '.join(namespaces)}" if namespaces else ""
        return [f"no gangs{where}"]
    counts = [f"{states.count(state)} {state}" for state in (*_ORDER, "not observable") if state in states]
    return [f"{len(states)} gang{'' if len(states) == 1 else 's'}: {', '.join(counts)}"]


def _rows(
    gangs: Sequence[GangView], picture: Picture, width: int | None, paint: Callable[[str, str], str]
) -> list[str]:  # fmt: skip
    cells = [dict(zip(_COLUMNS, map(plain, _cells(gang, picture)), strict=True)) for gang in gangs]
    widths = {name: max(len(name), *(len(row[name]) for row in cells)) for name in _COLUMNS}
    if width is not None:
        widths = _fitted(widths, width)

    def line(row: Mapping[str, str]) -> str:
        short = {name: cut(row[name], most) for name, most in widths.items()}
        padded = (
            short[name].rjust(most) if name in _RIGHT else short[name].ljust(most) for name, most in widths.items()
        )
        return _GAP.join(padded).rstrip()

    painted = [paint(COLOURS.get(gang.state or "", DIM), line(row)) for gang, row in zip(gangs, cells, strict=True)]
    return [paint(BOLD, line({name: name for name in _COLUMNS})), *painted]


def _fitted(widths: Mapping[str, int], width: int) -> dict[str, int]:
    """Return the widths of the columns that fit into a width: some are dropped, then others are shortened."""
    left = dict(widths)
    members = min(left["MEMBERS"], _MEMBERS_WANTED)
    for name in _DROPPED:
        if _total({**left, "MEMBERS": members}) > width:
            del left[name]
    for name, least in _SHORTENED:
        left[name] = max(min(least, left[name]), left[name] - max(0, _total(left) - width))
    return left


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + len(_GAP) * (len(widths) - 1)


def _cells(gang: GangView, picture: Picture) -> tuple[str, ...]:
    now, verdicts = picture.now, picture.verdicts
    blocker = verdicts.blockers.get(gang.key, "-")
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
        _amounts(gang.allocated),
        _amounts(gang.idle),
        age(None if gang.since is None else now - gang.since),
        f"{blocker}, deadlock" if gang.key in verdicts.deadlocked else blocker,
        (gang.placement.verdict if gang.placement else "") or "-",
        ", ".join(f"{number} {name}" for name, number in sorted(others)) or "-",
    )


def _amounts(amounts: Mapping[str, int]) -> str:
    """Return GPU amounts; the resource is named where it is not the usual one."""
    return " + ".join(
        f"{amount}" if resource == "nvidia.com/gpu" else f"{amount} {resource}"
        for resource, amount in sorted(amounts.items())
    ) or "-"  # fmt: skip


def _unseen(picture: Picture, unseen: Sequence[str], paint: Callable[[str, str], str]) -> list[str]:
    lines = [*places.unobservable(picture), *unseen]
    return ["", *(paint(YELLOW, plain(line)) for line in lines)] if lines else []
