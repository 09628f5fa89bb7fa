# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A real training loop: processes that learn together on the CPU, and tell a scraper how fast they get on.

Each rank is a process of its own. It has its own part of the samples, takes the gradient of a linear model on it, and
averages it with all others by a real all-reduce (MPI), so no rank gets on without the others: a rank that is stopped
(SIGSTOP) holds all of them, just as a hung rank holds a collective of NCCL. Each serves its progress with
prometheus_client at an address of its own, from a thread of its own: the ranks that wait for the hung one still answer.

    with TrainingLoop(3, folder) as loop:
        ...                # scrape http://{loop.addresses[0]}:{loop.port}/metrics
        loop.stop(2)       # hung: it neither trains nor answers
        loop.go_on(2)
        loop.rate(began, ended)  # samples per second of all ranks, as they counted themselves

What a rank serves is checked against what it counted itself: it writes a line for each step and for each scrape, with
the time of the clock that all processes of a machine share. A step takes `step_seconds`, most of which is a pause: two
cores have room for the loop and for what watches it.

    python -m lab.training_loop --ranks 4     # until Ctrl-C, or for --seconds
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self
from urllib.request import urlopen

#: What every rank serves: a counter, and a gauge of the rate over the last steps.
COUNTER: Final = "training_samples_total"
GAUGE: Final = "training_samples_per_second"

#: Samples of a rank in a step, and what a step takes unless somebody says otherwise.
BATCH: Final = 64
STEP_SECONDS: Final = 0.025

#: What the lines of a rank are about.
STEP, SCRAPE, PID = "step", "scrape", "pid"

_START_SECONDS: Final = 30.0
_END_SECONDS: Final = 3.0
_ENVIRONMENT: Final = {
    # One thread a rank: the libraries of numpy would start one a core for matrices that are not worth it.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # MPI would listen at the address that the machine has in its network.
    "UCX_NET_DEVICES": "lo",
}


class Line(NamedTuple):
    """What a rank wrote: at `at` (seconds of time.monotonic) it had counted `total` samples; `loss` is of all ranks."""

    what: str
    at: float
    total: int
    loss: float


class TrainingLoop:
    """The processes, from `__enter__` to `__exit__`; `folder` is where they write what they count.

    They end by themselves after `seconds`, whatever becomes of the process that started them. `addresses` are those of
    the ranks, all with the same `port`.
    """

    def __init__(
        self, ranks: int, folder: Path, *, step_seconds: float = STEP_SECONDS, seconds: float = 120.0, network: int = 0
    ) -> None:
        """Choose the addresses: in 127.x.y.0/24, which `network` (1 to 65535) or the number of this process names."""
        network = network or 1 + os.getpid() % 65535
        self.addresses = [f"127.{network >> 8}.{network & 255}.{10 + rank}" for rank in range(ranks)]
        self.port = _free_port(self.addresses)
        self.pids: list[int] = []
        self._folder = folder
        self._output = folder / "output.txt"
        self._stopped: set[int] = set()
        self._launcher: subprocess.Popen[bytes] | None = None
        self._command = [
            *(str(Path(sys.executable).with_name("mpiexec")), "-iface", "lo", "-n", str(ranks)),
            *(sys.executable, "-m", "lab.training_rank", ",".join(self.addresses)),
            *("--port", str(self.port), "--folder", str(folder)),
            *("--step-seconds", str(step_seconds), "--seconds", str(seconds)),
        ]

    def __enter__(self) -> Self:
        """Start the ranks; return once each of them trains and answers."""
        root = str(Path(__file__).parent.parent)
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
        environment = {**os.environ, **_ENVIRONMENT, "PYTHONPATH": path}
        with self._output.open("wb") as output:
            self._launcher = subprocess.Popen(  # noqa: S603 - a command of our own
                self._command,
                cwd=root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._await_start(self._launcher)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all processes, those that are stopped included."""
        self._end()

    # --- from outside ------------------------------------------------------------------------------------------------

    def stop(self, rank: int) -> float:
        """Stop a rank where it is, as one that hangs; return the time."""
        os.kill(self.pids[rank], signal.SIGSTOP)
        self._stopped.add(rank)
        return time.monotonic()

    def go_on(self, rank: int) -> float:
        """Let a stopped rank go on; return the time."""
        os.kill(self.pids[rank], signal.SIGCONT)
        self._stopped.discard(rank)
        return time.monotonic()

    # --- what the ranks counted --------------------------------------------------------------------------------------

    def lines(self, rank: int, what: str) -> list[Line]:
        """Return what a rank wrote of its steps or of the scrapes that it answered, oldest first."""
        return [line for line in _read(self._folder, rank) if line.what == what]

    def rate(self, began: float, ended: float, ranks: Iterable[int] | None = None) -> float:
        """Return the samples per second that these ranks, or all, counted together between two times."""
        chosen = range(len(self.addresses)) if ranks is None else ranks
        counted = 0
        for rank in chosen:
            steps = self.lines(rank, STEP)
            times = [line.at for line in steps]
            totals = [0, *(line.total for line in steps)]
            counted += totals[bisect_right(times, ended)] - totals[bisect_right(times, began)]
        return counted / (ended - began)

    # --- processes ---------------------------------------------------------------------------------------------------

    def _await_start(self, launcher: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        waiting = set(range(len(self.addresses)))
        while waiting:
            waiting = {rank for rank in waiting if not self._trains(rank)}
            if launcher.poll() is not None or time.monotonic() > deadline:
                msg = f"the training loop did not start: {' '.join(self._command)}\n{self._output.read_text()}"
                raise RuntimeError(msg)
            time.sleep(0.02)
        self.pids = [self.lines(rank, PID)[0].total for rank in range(len(self.addresses))]

    def _trains(self, rank: int) -> bool:
        if not self.lines(rank, STEP):
            return False
        with urlopen(f"http://{self.addresses[rank]}:{self.port}/metrics", timeout=2) as answer:
            return COUNTER in answer.read().decode()

    def _end(self) -> None:
        launcher = self._launcher
        if launcher is None:
            return
        for rank in list(self._stopped):
            self.go_on(rank)
        # One that ends takes all with it, and MPI then leaves no shared memory behind, as it does where it is killed.
        for pid in self.pids[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for harder in (launcher.terminate, launcher.kill):
            with suppress(subprocess.TimeoutExpired):
                launcher.wait(_END_SECONDS if self.pids else 0)
            harder()
        launcher.wait()
        self._launcher = None


def _free_port(addresses: Iterable[str]) -> int:
    """Return a port that is free at all these addresses."""
    first, *others = addresses
    for _ in range(100):
        with socket.socket() as one:
            one.bind((first, 0))
            port = int(one.getsockname()[1])
        if all(_is_free(address, port) for address in others):
            return port
    msg = "no port is free"
    raise RuntimeError(msg)


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind((address, port))
        except OSError:
            return False
    return True


def file_of(folder: Path, rank: int) -> Path:
    """Return the file of a rank: its lines are the fields of `Line`, with spaces between."""
    return folder / f"rank-{rank}.txt"


def _read(folder: Path, rank: int) -> Iterator[Line]:
    path = file_of(folder, rank)
    if not path.exists():
        return
    for text in path.read_text().splitlines(keepends=True):
        # The last line may be half written.
        if text.endswith("\n"):
            what, at, total, loss = text.split()
            yield Line(what, float(at), int(total), float(loss))


def main() -> None:
    """Start a loop, and wait."""
    parser = argparse.ArgumentParser(prog="lab.training_loop", description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3600.0, help="end after so long")
    parser.add_argument("--step-seconds", type=float, default=STEP_SECONDS)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = TrainingLoop(given.ranks, Path(folder), step_seconds=given.step_seconds, seconds=given.seconds)
        with made as loop:
            for rank, (address, pid) in enumerate(zip(loop.addresses, loop.pids, strict=True)):
                print(f"rank {rank}: process {pid}, http://{address}:{loop.port}/metrics")
            try:
                time.sleep(given.seconds)
            except KeyboardInterrupt:
                print("ended")


if __name__ == "__main__":
    main()
