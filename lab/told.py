# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What the check sent, told to people: the most telling metrics in brief, or every series with all of its tags."""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from datadog_checks.base.stubs.aggregator import AggregatorStub

from datadog_checks.kueue_gang.catalog import ALL, OWN, PREFIX, SCRAPED
from datadog_checks.kueue_gang.commands import status
from datadog_checks.kueue_gang.derive.picture import Picture

_RESET, _BOLD, _DIM, _CYAN = "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[36m"
#: The most telling metrics, and how many series of each are shown in brief.
_FIRST: Final = (
    "gpus.idle", "gpus.idle_total", "gpus.allocated", "gpus.free", "gpus.reserved", "gangs", "gang.state_seconds",
    "gang.gpus_idle", "members", "members.permit_wait_oldest_seconds", "scheduler.permit_waiting",
)  # fmt: skip
_SHOWN: Final = 3
#: Tags that are left out in brief, beside those that are `none`: others of the same series tell as much.
_LEFT_OUT: Final = ("kube_cluster_name:", "kueue_cluster_queue:", "owner_kind:")
_WIDTH: Final = 120

#: From a colour and a text to a painted text.
Paint = Callable[[str, str], str]


class Series(NamedTuple):
    """One series as it was submitted."""

    value: float
    tags: Sequence[str]


#: Metric without the prefix -> its series, the largest first.
Sent = Mapping[str, Sequence[Series]]


def sent_to(aggregator: AggregatorStub) -> Sent:
    """Return what was submitted since the last reset of the stub."""
    return {
        name.removeprefix(PREFIX): sorted(
            (Series(one.value, one.tags) for one in aggregator.metrics(name)),
            key=lambda series: (-series.value, series.tags),
        )
        for name in aggregator.metric_names
    }


def told(
    picture: Picture, sent: Sent, *, colour: bool, everything: bool, width: int | None = None
) -> Iterator[str]:  # fmt: skip
    """Yield the lines that show the gangs, in a table of that width, and what was sent."""
    yield step(painter(colour=colour), "The gangs, as the command `kueue-gang status` shows them:")
    yield ""
    yield from status.table(picture, (), status.View(colour=colour, width=width)).splitlines()
    yield ""
    yield from metrics(sent, colour=colour, everything=everything)


def metrics(sent: Sent, *, colour: bool, everything: bool) -> Iterator[str]:
    """Yield the lines that show what was sent."""
    paint = painter(colour=colour)
    own = {name: series for name, series in sent.items() if name in OWN}
    yield step(paint, f"What it sent to Datadog: {len(own)} metrics of its own in {_count(own)} series.")
    yield ""
    yield from _whole(sent, paint) if everything else _brief(sent, paint)


def _brief(sent: Sent, paint: Paint) -> Iterator[str]:
    """Yield lines for the most telling metrics, and one each for the other own ones and for what Kueue itself says."""
    for name in _FIRST:
        series = sent.get(name, ())
        if series:
            yield _heading(name, paint)
        for value, tags in series[:_SHOWN]:
            shown = [tag for tag in tags if not tag.endswith(":none") and not tag.startswith(_LEFT_OUT)]
            yield _line(Series(value, shown), paint)
        if len(series) > _SHOWN:
            yield paint(_DIM, f"        and {len(series) - _SHOWN} more")
    others = ", ".join(f"{name} {len(sent[name])}" for name in OWN if name in sent and name not in _FIRST)
    yield from textwrap.wrap(f"Of other metrics, so many series: {others}.", _WIDTH)
    scraped = {name: series for name, series in sent.items() if name in SCRAPED}
    if scraped:
        yield f"Of Kueue's own metrics, as {PREFIX}kueue.*: {len(scraped)} metrics, {_count(scraped)} series."


def _whole(sent: Sent, paint: Paint) -> Iterator[str]:
    """Yield lines for every series, with all of its tags."""
    for name in (*_FIRST, *(name for name in ALL if name not in _FIRST)):
        if name in sent:
            yield _heading(name, paint)
            yield from (_line(series, paint) for series in sent[name])


def _count(sent: Sent) -> int:
    return sum(map(len, sent.values()))


def _heading(name: str, paint: Paint) -> str:
    return f"{paint(_BOLD, PREFIX + name)}  {paint(_DIM, ALL[name].meaning)}"


def _line(series: Series, paint: Paint) -> str:
    return f"{paint(_CYAN, f'{round(series.value, 3):>6g}')}  {' '.join(series.tags)}".rstrip()


def step(paint: Paint, text: str) -> str:
    """Return a line that begins a part."""
    return paint(_BOLD, f"* {text}")


def painter(*, colour: bool) -> Paint:
    """Return what puts a text between a colour code and the end of it, or leaves it as it is."""
    return (lambda code, text: f"{code}{text}{_RESET}") if colour else (lambda _code, text: text)
