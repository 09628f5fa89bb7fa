# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What it costs to scrape dcgm-exporter on a thousand nodes.

    python -m bench.exporters [--nodes 1000] [--budget 100] [--gpus 8]

The exporters are served from another process, each at an address of its own, with pages of the size that they have on a
node. The signals are read as the check reads them, round after round: how many requests a run sends, in how many runs
every GPU is seen, how long a round takes, what of it a run waits for, and what it costs in CPU time of this process.

The second and the third row have exporters that hang, and some that are gone. How many runs it takes then is counted
for the GPUs of the others; what hangs is asked less and less.
"""

import argparse
import logging
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Final, cast

import orjson
import urllib3

from datadog_checks.kueue_gang.facts.endpoints import Endpoint
from datadog_checks.kueue_gang.sources.reflector import Reflector
from datadog_checks.kueue_gang.sources.samples import ACTIVITY_METRICS
from datadog_checks.kueue_gang.sources.signals import SignalReader
from datadog_checks.kueue_gang.sources.targets import PodTarget, Targets
from lab.exporters import Exporters, addresses, dcgm
from lab.http_faults import Answer, Query

#: Metrics of a page beside the two that count: with the labels of pods a page has about 200 KB then.
_OTHERS: Final = 115
_INTERVAL: Final = 15.0
#: Parts of the exporters that are sick, and how.
CASES: Final[Mapping[str, Mapping[str, float]]] = {
    "all answer": {},
    "one in ten hangs": {"silent": 0.1},
    "one in three is gone": {"refuse": 1 / 3},
}


@dataclass(frozen=True, slots=True)
class Measured:
    """What the rounds took: seconds; `promised` and `runs` are until every GPU of a healthy exporter was seen."""

    nodes: int
    gpus: int
    page: int
    budget: int
    promised: int
    runs: int
    most_requests: int
    rounds: tuple[float, ...]
    waits: tuple[float, ...]
    cpu: tuple[float, ...]


class _Server(Exporters):
    """Exporters that tell how often they were asked."""

    def answer(self, path: str, query: Query, headers: Mapping[str, str]) -> Answer:
        """Return a page, or the number of pages asked for so far."""
        if path == "/asked":
            return Answer(200, orjson.dumps(len(self.requests("/metrics"))))
        return super().answer(path, query, headers)


def _ill(ips: list[str], parts: Mapping[str, float]) -> dict[str, str]:
    """Return the sick among some addresses, spread evenly."""
    return {ip: fault for fault, part in parts.items() for ip in ips[:: round(1 / part)]}


def _page(first: bytes, node: int, ip: str) -> bytes:
    """Return the page of a node, made of that of the first one."""
    return first.replace(b"pod-0-", b"pod-%d-" % node).replace(b"NODE", ip.encode())


def _serve(nodes: int, gpus: int, case: str) -> None:
    """Serve until the input ends."""
    ips = addresses(nodes)
    # Each page is made of one: the server has no more than half a machine.
    first = dcgm("NODE", [("team", f"pod-0-{gpu}", 0.5) for gpu in range(gpus)], others=_OTHERS)
    with _Server() as server:
        server.pages = {ip: partial(_page, first, node, ip) for node, ip in enumerate(ips)}
        server.sick = dict(_ill(ips, CASES[case]))
        print(server.port, flush=True)
        sys.stdin.read()


@contextmanager
def _served(nodes: int, gpus: int, case: str) -> Iterator[int]:
    """Serve in another process; give the port."""
    command = [sys.executable, "-m", "bench.exporters", "--serve", case, "--nodes", str(nodes), "--gpus", str(gpus)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
    try:
        yield int(cast("Any", process.stdout).readline())
    finally:
        process.communicate()


class _Following:
    """The pods, as a reflector has them."""

    def __init__(self, resource: Any, pods: list[Endpoint]) -> None:  # noqa: ANN401 - as a reflector
        self.resource, self.table, self.usable, self.settled, self.error = resource, pods, True, True, None

    def take_health(self) -> Any:  # noqa: ANN401
        """Return the health of the list."""
        return type("Health", (), {"bad": 0})


def measure(nodes: int, gpus: int, budget: int, case: str, *, turns: int = 2, timeout: float = 2.0) -> Measured:
    """Read so many turns of all exporters, and until every GPU of a healthy one was seen."""
    ips = addresses(nodes)
    ill = _ill(ips, CASES[case])
    well = {f"pod-{node}-{gpu}" for node, ip in enumerate(ips) if ip not in ill for gpu in range(gpus)}
    promised = math.ceil(nodes / budget)
    seen: set[str] = set()
    requests, runs = [0], 0
    rounds: list[float] = []
    waits: list[float] = []
    cpu: list[float] = []
    with _served(nodes, gpus, case) as port:
        target = PodTarget("app=dcgm", port, ACTIVITY_METRICS, requests_per_run=budget, timeout=timeout)
        reader = SignalReader(Targets(activity=target), logging.getLogger(__name__), interval=_INTERVAL)
        pods = [Endpoint("gpu-operator", f"exporter-{node:05}", ip) for node, ip in enumerate(ips)]
        reader.follow([cast("Reflector", _Following(reader.resources[0], pods))])
        page = len(urllib3.request("GET", f"http://{next(ip for ip in ips if ip not in ill)}:{port}/metrics").data)
        before = _asked(port)
        while len(rounds) < turns * promised or (not well <= seen and len(rounds) < 20 * promised):
            began, worked = time.monotonic(), time.process_time()
            reader.start_round()
            waits.append(time.monotonic() - began)
            while not reader.idle:
                time.sleep(0.002)
            rounds.append(time.monotonic() - began)
            cpu.append(time.process_time() - worked)
            asked = time.monotonic()
            heard = reader.take()
            waits[-1] += time.monotonic() - asked
            seen |= {beat.pod for beat in heard.signals.beats}
            runs = len(rounds) if not runs and well <= seen else runs
            now = _asked(port)
            requests.append(now - before)
            before = now
        reader.stop()
    return Measured(
        nodes, nodes * gpus, page, budget, promised, runs, max(requests), tuple(rounds), tuple(waits), tuple(cpu)
    )  # fmt: skip


def _asked(port: int) -> int:
    return int(urllib3.request("GET", f"http://127.0.0.1:{port}/asked").json())


def table(found: Mapping[str, Measured]) -> str:
    """Return the figures as a table."""
    lines = [
        "| exporters | GPUs | page | requests a run | runs until every GPU is seen | a round | a run waits | CPU |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case, one in found.items():
        lines.append(
            f"| {one.nodes:,}, {case} | {one.gpus:,} | {one.page // 1000} KB | at most {one.most_requests} |"
            f" {one.runs} (promised {one.promised}) | {median(one.rounds):.2f} s, at most {max(one.rounds):.2f} s |"
            f" {1000 * median(one.waits):.1f} ms | {1000 * median(one.cpu):.0f} ms a run |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure all cases, or serve one."""
    parser = argparse.ArgumentParser(description="What it costs to scrape dcgm-exporter on many nodes.")
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--gpus", type=int, default=8, help="GPUs a node")
    parser.add_argument("--budget", type=int, default=100, help="requests a run")
    parser.add_argument("--serve", choices=CASES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        _serve(given.nodes, given.gpus, given.serve)
        return
    print(table({case: measure(given.nodes, given.gpus, given.budget, case) for case in CASES}))


if __name__ == "__main__":
    main()
