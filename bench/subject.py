# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The check itself, measured through `run()` as the Agent calls it; only the Agent's aggregator is a stub.

    python -m bench.subject cold URL
    python -m bench.subject kept URL
    python -m bench.subject steady URL --repeats 5 --changes few:1000:100 --changes none:0:0

print what they took as JSON, each in a process of its own.

A figure of a check that is wrong is worth nothing, so after each run what was sent is compared with what the server
knows: the gangs, the GPUs that are allocated, the members that are ready. A run that does not show the changes before
it fails.

What a run costs is told by phase. `check.cpu` holds the CPU seconds of the last run for collect, derive and submit;
collect has in addition what the check's threads used since the changes were made, when the run had not begun. To
decode the changes once, which is what the goals compare with, is measured right after each run, in the same process
with the same heap.
"""

import argparse
import gc
import json
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import orjson
from datadog_checks.base.checks import base
from datadog_checks.base.stubs.aggregator import AggregatorStub

from bench.generate import KINDS, SIZES, Cluster
from bench.measure import Measured, Meter, Steady
from bench.server import ClusterServer, Control
from datadog_checks.kueue_gang import KueueGangCheck
from datadog_checks.kueue_gang.catalog import OWN, PREFIX

#: How long a check may take until it shows a cluster for the first time.
_COLD_SECONDS: Final = 300.0
#: How long the readers of a check have to take what has changed, before the next run.
_SETTLE_SECONDS: Final = 0.3

Check = KueueGangCheck


class Sink(AggregatorStub):  # type: ignore[misc] # the base package has no types
    """A stub of the Agent's aggregator that does as little as one can do: it keeps the calls of one run."""

    def __init__(self) -> None:
        """Begin with nothing."""
        super().__init__()
        self.sent: list[tuple[str, float, Sequence[str]]] = []

    def submit_metric(self, *call: Any) -> None:  # noqa: ANN401 - as the Agent's
        """Keep name, value and tags."""
        self.sent.append(call[3:6])

    def clear(self) -> None:
        """Forget the last run."""
        self.reset()
        self.sent.clear()

    def total(self, name: str, tag: str = "") -> float:
        """Add the series of a metric that have a tag."""
        return sum(value for sent, value, tags in self.sent if sent == PREFIX + name and (not tag or tag in tags))

    def series(self) -> int:
        """Return the number of series of the check's own; those of Kueue's endpoint are the base class's work."""
        return sum(name.removeprefix(PREFIX) in OWN for name, _, _ in self.sent)


SINK: Final = Sink()


def cold(url: str) -> tuple[Check, Measured]:
    """Make a check and run it until it shows the cluster; return it with what that took.

    Raises AssertionError where it shows another cluster.
    """
    check = Check("kueue_gang", {}, [{"kube_api_url": url, "openmetrics_endpoint": f"{url}/metrics"}])
    known = _known(Control(url))
    deadline = time.monotonic() + _COLD_SECONDS
    with Meter() as meter:
        report = _run(check)
        while _shown() != known and not report and time.monotonic() < deadline:
            # Some of the first lists are not read yet.
            time.sleep(0.1)
            report = _run(check)
    _compare(known, report)
    return check, meter.measured()


def steady(check: Check, emit: Callable[[], None]) -> Mapping[str, float]:
    """Run a check after `emit` has changed the cluster; return the CPU seconds of the phases. Raises AssertionError."""
    # The caller's own thread only waits, and what it uses is no part of the check.
    all_threads, own = time.process_time(), time.thread_time()
    emit()
    time.sleep(_SETTLE_SECONDS)
    readers = (time.process_time() - all_threads) - (time.thread_time() - own)
    report = _run(check)
    assert not report, report  # noqa: S101 - a bench of a failing check is none
    phases = dict(getattr(check, "cpu", None) or _by_wall_clock())
    phases["collect"] += readers
    return phases


def _run(check: Check) -> str:
    SINK.clear()
    return str(check.run())


def _by_wall_clock() -> dict[str, float]:
    """Return the phases of a check that does not tell its CPU time: the seconds that it sends."""
    return {phase: SINK.total("run_seconds", f"phase:{phase}") for phase in ("collect", "derive", "submit")}


def _known(control: Control) -> dict[str, float]:
    """Return what is so in the cluster."""
    truth = control.truth()["truth"]
    return {"gangs": sum(truth["states"].values()), "allocated": truth["allocated"], "ready": truth["ready"]}


def _shown() -> dict[str, float]:
    """Return what the last run says of it."""
    return {
        "gangs": SINK.total("gangs"),
        "allocated": SINK.total("gpus.allocated"),
        "ready": SINK.total("members", "member_state:ready"),
    }


def _compare(known: Mapping[str, float], report: str) -> None:
    shown = _shown()
    assert shown == known, f"the check shows {shown}, the cluster has {known}; {report}"  # noqa: S101


def repeated(url: str, changes: Mapping[str, tuple[int, int]], repeats: int) -> dict[str, Any]:
    """Return the runs after each kind of change (number, gangs), `repeats` of each in turn, and what was asked for.

    `lists` counts the lists that were asked for after the cold start, streaming ones too; `open` the open watches by
    plural.
    """
    check, _ = cold(url)
    control = Control(url)
    before = _lists(control)
    runs: dict[str, list[Steady]] = {name: [] for name in changes}
    for _ in range(repeats):
        for name, (number, gangs) in changes.items():
            runs[name].append(_changed(check, control, number, gangs))
    requests = control.requests()
    open_watches = {plural: requests.get(plural, Counter())["open"] for plural in KINDS}
    lists = _lists(control) - before
    check.cancel()
    return {"runs": runs, "lists": lists, "open": open_watches}


def _changed(check: Check, control: Control, number: int, gangs: int) -> Steady:
    since: list[int] = []
    phases = steady(check, lambda: since.append(control.change(number, gangs)))
    series = SINK.series()
    _compare(_known(control), "")
    lines = control.events(since[0])
    with Meter() as meter:
        for line in lines:
            orjson.loads(line)
    return Steady(phases["collect"], phases["derive"], phases["submit"], series, meter.cpu)


def _lists(control: Control) -> int:
    return sum(counts["lists"] + counts["streams"] for counts in control.requests().values())


def kept(url: str) -> float:
    """Return the bytes that a check keeps for each kept pod: one with GPUs or in a gang.

    Everything that it keeps is divided by the pods: nodes, Workloads and queues as well, and what was computed of
    them. tracemalloc counts what Python objects take, exactly and without the pages that the allocator has not given
    back, which depend on the order in which things were freed; the resident memory is what the row about the peak
    shows. The check first reads a small cluster, so that what any first run loads is not counted.
    """
    with ClusterServer(Cluster(SIZES["XS"])) as small:
        first, _ = cold(small.url)
        first.cancel()
    del first
    SINK.clear()
    gc.collect()
    tracemalloc.start()
    check, _ = cold(url)
    SINK.clear()
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    check.cancel()
    pods: int = Control(url).truth()["truth"]["kept"]
    return taken / pods


def main() -> None:
    """Measure one thing."""
    parser = argparse.ArgumentParser(prog="python -m bench.subject", description="Measure the check.")
    parser.add_argument("what", choices=("cold", "kept", "steady"))
    parser.add_argument("url", help="of the API server")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--changes", action="append", default=[], metavar="NAME:PODS:GANGS")
    options = parser.parse_args()
    base.aggregator = SINK
    found: object
    if options.what == "cold":
        check, measured = cold(options.url)
        check.cancel()
        found = measured._asdict()
    elif options.what == "kept":
        found = kept(options.url)
    else:
        named = (change.split(":") for change in options.changes)
        changes = {name: (int(pods), int(gangs)) for name, pods, gangs in named}
        found = repeated(options.url, changes, options.repeats)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
