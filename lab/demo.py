# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A demo without a cluster: recorded clusters, the real check, and what it sends.

    python -m lab.demo [--scenario NAME] [--all] [--serve]

What a real API server, Kueue and a gang scheduler once answered is served again over HTTP. The check that the Agent
would run reads it, decides and submits; only the Agent is left out, and a stub of datadog-checks-base takes what is
submitted. Nothing leaves this machine.

Two options differ from the defaults. The recordings were made seconds after something went wrong, when no gang needs
attention yet: so all gangs get series of their own. And the sources are named by URL.
"""

import argparse
import os
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from datadog_checks.base.stubs import aggregator

from datadog_checks.kueue_gang import KueueGangCheck
from datadog_checks.kueue_gang.catalog import ALL, OWN, PREFIX, SCRAPED
from datadog_checks.kueue_gang.commands import status, terminal
from datadog_checks.kueue_gang.derive.picture import Picture
from lab.recorded import SCENARIOS, scenario, side_by_side
from lab.replay import Recording, ReplayServer

_RESET, _BOLD, _DIM, _CYAN = "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[36m"
#: The most telling metrics, and how many series of each are shown in brief.
_FIRST: Final = (
    "gpus.idle", "gpus.idle_total", "gpus.allocated", "gpus.free", "gpus.reserved", "gangs", "gang.state_seconds",
    "gang.gpus_idle", "members", "members.permit_wait_oldest_seconds", "scheduler.permit_waiting",
)  # fmt: skip
_SHOWN: Final = 3
#: Tags that are left out in brief, beside those that are `none`: others of the same series tell as much.
_LEFT_OUT: Final = ("kueue_cluster_queue:", "owner_kind:")
_WIDTH: Final = 120

#: From a colour and a text to a painted text.
Paint = Callable[[str, str], str]


class Series(NamedTuple):
    """One series as it was submitted."""

    value: float
    tags: Sequence[str]


#: Metric without the prefix -> its series, the largest first.
Sent = Mapping[str, Sequence[Series]]


class FailedError(Exception):
    """The check could not do its work; the text is what the Agent would show."""


def main() -> int:
    """Run the demo; return 0, or 1 where the check failed."""
    options = _parser().parse_args()
    colour = terminal.coloured(sys.stdout)
    paint = _painter(colour=colour)
    try:
        recording = scenario(options.scenario) if options.scenario else side_by_side()
        with ReplayServer(recording) as server:
            started = time.monotonic()
            picture, sent = observe(server)
            seconds = time.monotonic() - started
            print(_step(paint, f"Recorded clusters are served over HTTP at {server.url}, as an API server would."))
            print(_step(paint, f"The check read them with {len(server.log)} requests, in {seconds:.2f} seconds."))
            lines = told(picture, sent, colour=colour, everything=options.all, width=terminal.width(sys.stdout))
            print("\n".join(lines), flush=True)
            if options.serve:
                _serve(paint, server.url)
    except BrokenPipeError:
        # The reader (head, less) has seen enough; what is left in the buffer must not fail at exit.
        sys.stdout = None
    except (ValueError, FailedError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    stories = "\n".join(f"  {name:<23}{one.story}" for name, one in SCENARIOS.items())
    parser = argparse.ArgumentParser(
        prog="python -m lab.demo",
        description="Serve recorded clusters, run the real check on them, show what it sends. No cluster is needed.",
        epilog=f"scenarios (the number may be left out; NAME/t1, NAME/t2, ... for another moment of one):\n{stories}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--scenario", metavar="NAME", help="one recorded cluster (default: several, side by side)")
    parser.add_argument("--all", action="store_true", help="show every series, with all of its tags")
    parser.add_argument("--serve", action="store_true", help="keep serving, for kueue-gang status --url")
    return parser


def observe(server: ReplayServer) -> tuple[Picture, Sent]:
    """Run the check once on what is served; return what it made of it and what it submitted. Raises FailedError."""
    aggregator.reset()
    check = KueueGangCheck("kueue_gang", {}, [instance(server.recording, server.url)])
    failure = check.run()
    check.cancel()
    if failure or check.picture is None:
        raise FailedError(failure)
    return check.picture, {
        name.removeprefix(PREFIX): sorted(
            (Series(one.value, one.tags) for one in aggregator.metrics(name)),
            key=lambda series: (-series.value, series.tags),
        )
        for name in aggregator.metric_names
    }


def instance(recording: Recording, url: str) -> dict[str, Any]:
    """Return the instance of the check for a recording that is served at `url`: with the endpoints that it has."""
    found: dict[str, Any] = {"kube_api_url": url, "per_gang_metrics": "all"}
    if recording.metrics:
        found["openmetrics_endpoint"] = f"{url}/metrics"
    if any(name.endswith(".prom") for name in recording.evidence):
        found["scheduler_metrics"] = {"url": f"{url}/scheduler/metrics"}
    return found


def told(
    picture: Picture, sent: Sent, *, colour: bool, everything: bool, width: int | None = None
) -> Iterator[str]:  # fmt: skip
    """Yield the lines that show the gangs, in a table of that width, and what was sent."""
    paint = _painter(colour=colour)
    own = {name: series for name, series in sent.items() if name in OWN}
    yield _step(paint, "The gangs, as the command `kueue-gang status` shows them:")
    yield ""
    yield from status.table(picture, (), status.View(colour=colour, width=width)).splitlines()
    yield ""
    yield _step(paint, f"What it sent to Datadog: {len(own)} metrics of its own in {_count(own)} series.")
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


def _step(paint: Paint, text: str) -> str:
    return paint(_BOLD, f"* {text}")


def _painter(*, colour: bool) -> Paint:
    return (lambda code, text: f"{code}{text}{_RESET}") if colour else (lambda _code, text: text)


def _serve(paint: Paint, url: str) -> None:
    """Keep the server up until the user has seen enough."""
    python = Path(sys.executable)
    shown = os.path.relpath(python) if python.is_relative_to(Path.cwd()) else str(python)
    print()
    print(_step(paint, "The clusters are still served, until Ctrl-C. In another terminal:"))
    print(f"    {shown} -m datadog_checks.kueue_gang status --url {url}", flush=True)
    # A shell that starts this in the background has it ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        signal.pause()
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    sys.exit(main())
