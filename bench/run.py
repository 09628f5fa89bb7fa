# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The benchmark: what the check costs on a large cluster, as ratios to plainer ways to read the same cluster.

    python -m bench.run [--size S|M|L] [--full] [--repeats 5] [--markdown]

A generated cluster is served from another process (`bench.server`). The plain ways (`bench.baselines`) and the check
(`bench.subject`) read it in turn, each measurement in a fresh process, and the medians are set against the goals.

The plainest ways take minutes, or more memory than a machine has. So (a) is measured once on a smaller cluster, (b) at
most at 50,000 pods, and both are multiplied by the number of pods: they are linear in the objects, or slightly worse.
The table marks them. `--full` measures (a) at 50,000 pods and (b) at the size itself.

All is CPU time of the processes that read. The goals are meant for size L; S is a quick look. Linux only.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final, NamedTuple

from bench.generate import SIZES, Size
from bench.measure import Steady
from bench.server import Control, served

#: The smaller size with which a size is compared.
_BASE: Final = {"S": "XS", "M": "S", "L": "S"}
#: (b) takes most of the time: up to which size it is measured, and how often.
_RAW_AT_MOST: Final = "M"
_RAW_REPEATS: Final = 3
_CHANGED_PODS, _CHANGED_GANGS = 0.01, 0.05
_MEGABYTE: Final = 1 << 20


class Goal(NamedTuple):
    """One goal: what is demanded, what was measured, whether that is enough."""

    goal: str
    measured: str
    reached: bool


class Row(NamedTuple):
    """What is looked at, and the goals for it."""

    what: str
    goals: Sequence[Goal]


@dataclass(frozen=True, slots=True)
class Reading:
    """The median cost of reading all in a way: CPU seconds and bytes at the peak, multiplied by `times` from `size`."""

    cpu: float
    peak: float
    size: Size
    repeats: int
    times: float = 1.0

    def at(self, size: Size) -> "Reading":
        """Return it extrapolated to another size."""
        times = size.pods / self.size.pods
        return Reading(self.cpu * times, self.peak * times, self.size, self.repeats, times)


@dataclass(slots=True)
class Results:
    """All that was measured, at `size`.

    `readings` is by way: typed, raw, scan_stream, scan_pages and cold, the check. `steady` is by kind of change: few
    gangs, all gangs, none, and `base`, as many as at the smaller size, whose own figure is `steady_base`. `pending` is
    what `bench.pending` measures, on a cluster of its own. `lists`
    counts the lists of the steady runs, `open` the open watches by plural.
    """

    size: Size
    base: Size
    streaming: bool = False
    readings: dict[str, Reading] = field(default_factory=dict)
    kept: float = 0.0
    steady: Mapping[str, Steady] = field(default_factory=dict)
    steady_base: Steady | None = None
    pending: Mapping[str, float] = field(default_factory=dict)
    lists: int = 0
    open: Mapping[str, int] = field(default_factory=dict)

    @property
    def scan(self) -> Reading:
        """(c), in the way in which the check reads."""
        return self.readings["scan_stream" if self.streaming else "scan_pages"]


# --- measuring -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Bench:
    """Measures one size; `full` as the option."""

    size: Size
    repeats: int
    full: bool
    began: float = field(default_factory=time.monotonic)

    def results(self) -> Results:
        """Measure all."""
        base = SIZES[_BASE[self.size.name]]
        found = Results(self.size, base)
        typed_at = SIZES["M"] if self.full and self.size.name == "L" else base
        raw_at = self.size if self.full else min(self.size, SIZES[_RAW_AT_MOST], key=lambda size: size.pods)
        for size in sorted({base, typed_at, raw_at, self.size}, key=lambda size: size.pods):
            with self._cluster(size) as control:
                if size == base:
                    found.steady_base = self._steady(control, size, {"base": _few(base)})["base"]
                if size == self.size:
                    self._check(control, found)
                if size == typed_at:
                    found.readings["typed"] = self._reading(control, size, "bench.baselines", "typed", 1)
                if size == raw_at:
                    found.readings["raw"] = self._reading(
                        control, size, "bench.baselines", "raw", min(self.repeats, _RAW_REPEATS)
                    )
        self._tell(self.size, f"{self._pending():,} gangs that do not run")
        nodes, gangs = f"--nodes={self.size.nodes}", f"--gangs={self.size.gangs}"
        found.pending = _fresh(
            "bench.pending", nodes, gangs, f"--pending={self._pending()}", f"--repeats={self.repeats}"
        )
        found.readings = {way: reading.at(self.size) for way, reading in found.readings.items()}
        return found

    def _pending(self) -> int:
        return self.size.gangs // 4

    def _check(self, control: Control, found: Results) -> None:
        """Measure the check, and the scan limit on the same server."""
        size = self.size
        found.readings["cold"] = self._reading(control, size, "bench.subject", "cold", self.repeats)
        # Nobody else has asked this server for a streaming list.
        found.streaming = any(counts["streams"] for counts in control.requests().values())
        for way in ("scan_stream", "scan_pages"):
            found.readings[way] = self._reading(control, size, "bench.baselines", way, self.repeats)
        self._tell(size, "kept")
        found.kept = float(_fresh("bench.subject", "kept", control.url))
        number, _ = _few(size)
        kinds = {"few": _few(size), "all": (number, size.gangs), "none": (0, 0), "base": _few(found.base)}
        found.steady = self._steady(control, size, kinds, found)

    def _steady(
        self, control: Control, size: Size, kinds: Mapping[str, tuple[int, int]], found: Results | None = None
    ) -> dict[str, Steady]:
        """Return the medians by kind of change; `found` takes what was asked for."""
        self._tell(size, "steady runs")
        changes = [f"--changes={name}:{number}:{gangs}" for name, (number, gangs) in kinds.items()]
        answer = _fresh("bench.subject", "steady", control.url, f"--repeats={self.repeats}", *changes)
        if found:
            found.lists, found.open = answer["lists"], answer["open"]
        return {name: Steady(*map(median, zip(*runs, strict=True))) for name, runs in answer["runs"].items()}

    def _reading(self, control: Control, size: Size, module: str, way: str, repeats: int) -> Reading:
        runs = []
        for number in range(repeats):
            self._tell(size, f"{way}, {number + 1} of {repeats}")
            runs.append(_fresh(module, way, control.url))
        cpu, peak = (median(run[figure] for run in runs) for figure in ("cpu", "peak"))
        return Reading(cpu, peak, size, repeats)

    @contextmanager
    def _cluster(self, size: Size) -> Iterator[Control]:
        self._tell(size, "making the cluster")
        with served(size) as control:
            yield control

    def _tell(self, size: Size, doing: str) -> None:
        """Show the progress."""
        text = f"{time.monotonic() - self.began:5.0f} s  {size.pods:,} pods: {doing}"
        print(
            f"\r\x1b[K{text}" if sys.stderr.isatty() else text, end="" if sys.stderr.isatty() else "\n", file=sys.stderr
        )
        sys.stderr.flush()


def _few(size: Size) -> tuple[int, int]:
    """Return how many pods change on how many gangs."""
    return int(size.pods * _CHANGED_PODS), int(size.gangs * _CHANGED_GANGS)


def _fresh(module: str, *arguments: str) -> Any:  # noqa: ANN401 - JSON
    """Run a module in a fresh process and return what it prints. Raises RuntimeError where it fails."""
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        msg = f"{module} {' '.join(arguments)} failed:\n{done.stderr}"
        raise RuntimeError(msg)
    return json.loads(done.stdout.splitlines()[-1])


# --- goals -----------------------------------------------------------------------------------------------------------


def rows(found: Results) -> list[Row]:
    """Set what was measured against the goals."""
    cold, raw, typed, scan = (found.readings["cold"], found.readings["raw"], found.readings["typed"], found.scan)
    few, everywhere, idle = (found.steady[kind] for kind in ("few", "all", "none"))
    number, _ = _few(found.size)
    assert found.steady_base is not None  # noqa: S101
    base_number, _ = _few(found.base)
    return [
        Row(
            "cold start: first lists to first metrics",
            [
                _times("(c)", cold.cpu / scan.cpu, 1.5),
                _part("(b)", raw.cpu / cold.cpu, 4),
                _part("(a)", typed.cpu / cold.cpu, 15),
            ],
        ),
        Row(
            f"collect and derive, 1 % of the pods changed ({number:,}), on 5 % of the gangs",
            [
                _times("decoding them", few.work / few.decode, 4),
                _part("(b), with submit", raw.cpu / (few.work + few.submit), 120),
            ],
        ),
        Row(
            "the same, changes spread over all gangs", [_times("decoding them", everywhere.work / everywhere.decode, 8)]
        ),
        Row(
            "collect and derive, nothing changed",
            # Less than a microsecond cannot be measured.
            [_part("the first of these", few.work / max(idle.work, 1e-6), 20)],
        ),
        Row(
            "submit",
            [
                _limit("µs a series", 1e6 * few.submit / few.series, 8, ".1f"),
                _limit("series", few.series, 4_000),
            ],
        ),
        Row("peak memory over the import baseline, cold start", [_part("(b)", raw.peak / cold.peak, 30)]),
        Row("memory kept, a kept pod", [_limit("bytes", found.kept, 700)]),
        Row(
            f"growth from {found.base.pods:,} to {found.size.pods:,} pods with the same number of changes a run "
            f"({base_number})",
            [_times("", found.steady["base"].work / found.steady_base.work, 1.5)],
        ),
        Row(
            f"why {found.pending['blocked']:,} of {found.size.gangs:,} gangs do not run, all of them asked again",
            [_times("a full derivation", found.pending["all"] / found.pending["full"], 1)],
        ),
        Row(
            "requests in steady state",
            [
                Goal("0 lists", f"{found.lists} lists", found.lists == 0),
                Goal("1 open watch a resource", _counted(found.open), set(found.open.values()) == {1}),
            ],
        ),
    ]


def _times(of: str, ratio: float, limit: float) -> Goal:
    return Goal(f"≤ {limit:g} x {of}".rstrip(), f"{ratio:.2f} x", ratio <= limit)


def _part(of: str, ratio: float, limit: float) -> Goal:
    """Return the goal to be at most 1/limit of something that is `ratio` times as large."""
    return Goal(f"≤ 1/{limit:g} of {of}", f"1/{ratio:.0f}" if ratio >= 1 else f"{1 / ratio:.1f} x", ratio >= limit)


def _limit(unit: str, value: float, limit: float, style: str = ",.0f") -> Goal:
    return Goal(f"≤ {limit:,} {unit}", f"{value:{style}}", value <= limit)


def _counted(watches: Mapping[str, int]) -> str:
    numbers = sorted(set(watches.values()))
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


# --- showing ---------------------------------------------------------------------------------------------------------

_WAYS: Final = {
    "typed": "(a) typed client, pages of 500",
    "raw": "(b) whole lists, json",
    "scan_stream": "(c) scan limit, streaming lists",
    "scan_pages": "(c) scan limit, pages of 500",
    "cold": "the check, cold start",
}
_KINDS: Final = {"few": "5 % of the gangs changed", "all": "changes on all gangs", "none": "nothing changed"}
_HEADINGS: Final = ("what", "goal", "measured", "")
_RESET, _BOLD, _DIM, _GREEN, _RED = "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[31m"


def table(found: Results) -> list[tuple[str, ...]]:
    """Return the lines of the table of goals: what, goal, measured, reached or missed."""
    return [
        (row.what if not number else "", goal.goal, goal.measured, "reached" if goal.reached else "missed")
        for row in rows(found)
        for number, goal in enumerate(row.goals)
    ]


def figures(found: Results) -> list[str]:
    """Return what the ratios are made of, with the marks of what was extrapolated."""
    lines = []
    for way, name in _WAYS.items():
        one = found.readings[way]
        extrapolated = f"; {one.times:g} x what {one.size.pods:,} pods took (extrapolated)" if one.times != 1 else ""
        reference = "; the reference for the check" if one is found.scan else ""
        repeats = f"median of {one.repeats}" if one.repeats > 1 else "once"
        # That of a way that reads pages does not grow with the cluster.
        peak = "" if way == "typed" else f", peak {one.peak / _MEGABYTE:,.1f} MB"
        lines.append(f"{name}: {one.cpu:.2f} s CPU{peak}; {repeats}{extrapolated}{reference}")
    assert found.steady_base is not None  # noqa: S101
    number = _few(found.base)[0]
    runs = [(name, found.steady[kind]) for kind, name in _KINDS.items()]
    runs += [(f"{number} pods changed", found.steady["base"])]
    runs += [(f"{number} of {found.base.pods:,} pods changed", found.steady_base)]
    for name, run in runs:
        lines.append(
            f"a run, {name}: collect {1e3 * run.collect:.1f} ms, derive {1e3 * run.derive:.1f} ms, submit "
            f"{1e3 * run.submit:.1f} ms for {run.series:,.0f} series; decoding the changes once "
            f"{1e3 * run.decode:.1f} ms"
        )
    full, every, turn, none = (1e3 * found.pending[name] for name in ("full", "all", "turn", "none"))
    lines.append(
        f"why gangs do not run, derive: full {full:.0f} ms, all asked again {every:.0f} ms, the turn of a run "
        f"{turn:.0f} ms, nothing changed {none:.1f} ms"
    )
    return lines


def show(found: Results, *, colour: bool) -> None:
    """Print the table for people."""
    lines = table(found)
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *lines, strict=True)]
    size = found.size
    print(f"\n{size.pods:,} pods, {size.nodes:,} nodes, {size.gangs:,} gangs\n")
    for number, line in enumerate((_HEADINGS, *lines)):
        text = "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        style = _BOLD if not number else _GREEN if line[-1] == "reached" else _RED
        if colour and number:
            head = text.removesuffix(line[-1])
            text = f"{head}{style}{line[-1]}{_RESET}"
        elif colour:
            text = f"{style}{text}{_RESET}"
        print(text)
    print()
    for note in figures(found):
        print(f"{_DIM}{note}{_RESET}" if colour else note)
    if size.name != "L":
        print("\nThe goals are meant for --size L.")


def show_markdown(found: Results) -> None:
    """Print the table for the docs."""
    size = found.size
    print(f"{size.pods:,} pods, {size.nodes:,} nodes, {size.gangs:,} gangs:\n")
    print("| what | goal | measured | |\n|---|---|---|---|")
    for line in table(found):
        # The docs are ASCII.
        print(f"| {' | '.join(line)} |".replace("≤", "<=").replace("µs", "us"))
    print()
    for note in figures(found):
        print(f"* {note}")


def main() -> None:
    """Run the benchmark. A goal that is missed is a result, no failure."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.run",
        description="Measure the check on a large generated cluster against plainer ways to read it.",
    )
    parser.add_argument("--size", choices=[name for name in SIZES if name in _BASE], default="L")
    parser.add_argument("--full", action="store_true", help="extrapolate less: needs 8 GB and many minutes")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each measurement (default: 5)")
    parser.add_argument("--markdown", action="store_true", help="print a table for the docs")
    options = parser.parse_args()
    found = Bench(SIZES[options.size], options.repeats, options.full).results()
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    if options.markdown:
        show_markdown(found)
    else:
        show(found, colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ)


if __name__ == "__main__":
    main()
