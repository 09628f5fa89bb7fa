# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A demo without a cluster: a simulated training cluster, the real check, and what it sends.

    python -m lab.demo [--scenario NAME] [--speed N] [--until TIME] [--all] [--serve]
    python -m lab.demo --recorded [NAME] [--all] [--serve]

A scenario of lab/scenarios is played (see `lab.play`): the check that the Agent would run reads the cluster over HTTP,
decides and submits; only the Agent is left out, and a stub of datadog-checks-base takes what is submitted. Nothing
leaves this machine. The table of the gangs is shown as it changes, at the end what was sent when it mattered most.

With `--recorded` there is no story: what a real API server, Kueue and a gang scheduler once answered is served again.
The recordings were made seconds after something went wrong, when no gang needs attention yet: so all gangs get series
of their own there.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from datadog_checks.base.stubs import aggregator

from datadog_checks.kueue_gang import KueueGangCheck
from datadog_checks.kueue_gang.commands import terminal
from datadog_checks.kueue_gang.derive.picture import Picture
from lab.recorded import SCENARIOS, scenario, side_by_side
from lab.replay import Recording, ReplayServer
from lab.screen import Screen
from lab.simulation.scenario import known, load
from lab.simulation.values import seconds
from lab.told import Paint, Sent, painter, sent_to, step, told

_DEFAULT = "partial-gang"


class FailedError(Exception):
    """The check could not do its work; the text is what the Agent would show."""


def main() -> int:
    """Run the demo; return 0, or 1 where the check failed."""
    options = _parser().parse_args()
    try:
        if options.recorded is None:
            _simulated(options)
        else:
            _recorded(options)
    except BrokenPipeError:
        # The reader (head, less) has seen enough; what is left in the buffer must not fail at exit.
        sys.stdout = None
    except (ValueError, FailedError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    played = "\n".join(f"  {name:<23}{load(name).about}" for name in known())
    recorded = "\n".join(f"  {name:<23}{one.story}" for name, one in SCENARIOS.items())
    parser = argparse.ArgumentParser(
        prog="python -m lab.demo",
        description="Play a training cluster, run the real check on it, show what it sends. No cluster is needed.",
        epilog=f"scenarios:\n{played}\n\nrecorded clusters (the number may be left out; NAME/t1, NAME/t2, ... for "
        f"another moment of one):\n{recorded}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--scenario", metavar="NAME", default=_DEFAULT, help=f"what is played (default: {_DEFAULT})")
    parser.add_argument(
        "--speed",
        metavar="N",
        type=float,
        help="so many seconds of the cluster in one (default: 120 on a terminal, else as fast as it can, which is 0)",
    )
    parser.add_argument("--until", metavar="TIME", help="end there: 45m, 1h10m (default: the end of the scenario)")
    parser.add_argument(
        "--recorded", metavar="NAME", nargs="?", const="", help="a recorded cluster, or several side by side"
    )
    parser.add_argument("--all", action="store_true", help="show every series, with all of its tags")
    parser.add_argument(
        "--serve", action="store_true", help="keep serving at the end (default: a while after the fault), for status"
    )
    return parser


# --- simulated -------------------------------------------------------------------------------------------------------


def _simulated(options: argparse.Namespace) -> None:
    name = options.scenario
    if name not in known() and any(name in {full, full.partition("-")[2]} for full in SCENARIOS):
        msg = f"{name} is a recorded cluster: --recorded {name}"
        raise ValueError(msg)
    until = None if options.until is None else seconds(options.until, "--until")
    with Screen(name, sys.stdout, speed=options.speed, until=until, lingers=options.serve) as screen:
        screen.show()
        if screen.player.failure and not screen.moments:
            raise FailedError(screen.player.failure)
        for line in screen.end(everything=options.all):
            print(line)
        sys.stdout.flush()
        if options.serve:
            _announce(screen.paint, screen.player.url)
            _until_interrupted(screen.go_on)


# --- recorded --------------------------------------------------------------------------------------------------------


def _recorded(options: argparse.Namespace) -> None:
    colour = terminal.coloured(sys.stdout)
    paint = painter(colour=colour)
    recording = scenario(options.recorded) if options.recorded else side_by_side()
    with ReplayServer(recording) as server:
        started = time.monotonic()
        picture, sent = observe(server)
        took = time.monotonic() - started
        print(step(paint, f"Recorded clusters are served over HTTP at {server.url}, as an API server would."))
        print(step(paint, f"The check read them with {len(server.log)} requests, in {took:.2f} seconds."))
        lines = told(picture, sent, colour=colour, everything=options.all, width=terminal.width(sys.stdout))
        print("\n".join(lines), flush=True)
        if options.serve:
            _announce(paint, server.url)
            _until_interrupted(lambda: time.sleep(1))


def observe(server: ReplayServer) -> tuple[Picture, Sent]:
    """Run the check once on what is served; return what it made of it and what it submitted. Raises FailedError."""
    aggregator.reset()
    check = KueueGangCheck("kueue_gang", {}, [instance(server.recording, server.url)])
    failure = check.run()
    check.cancel()
    if failure or check.picture is None:
        raise FailedError(failure)
    return check.picture, sent_to(aggregator)


def instance(recording: Recording, url: str) -> dict[str, Any]:
    """Return the instance of the check for a recording that is served at `url`: with the endpoints that it has."""
    found: dict[str, Any] = {"kube_api_url": url, "per_gang_metrics": "all"}
    if recording.metrics:
        found["openmetrics_endpoint"] = f"{url}/metrics"
    if any(name.endswith(".prom") for name in recording.evidence):
        found["scheduler_metrics"] = {"url": f"{url}/scheduler/metrics"}
    return found


# --- served ----------------------------------------------------------------------------------------------------------


def _announce(paint: Paint, url: str) -> None:
    """Say how to look at what is served."""
    python = Path(sys.executable)
    shown = os.path.relpath(python) if python.is_relative_to(Path.cwd()) else str(python)
    print()
    print(step(paint, "The cluster is still served, until Ctrl-C. In another terminal:"))
    print(f"    {shown} -m datadog_checks.kueue_gang status --url {url}", flush=True)


def _until_interrupted(once: Callable[[], None]) -> None:
    """Do something again and again until the user has seen enough."""
    # A shell that starts this in the background has it ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        while True:
            once()
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    sys.exit(main())
