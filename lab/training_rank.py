# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""One rank of the training loop: a process that `lab.training_loop` starts with mpiexec, once a rank.

It learns a linear model from samples of its own. Each step averages the gradient over all ranks, so that every rank has
the same weights after it, and adds the samples to a counter of prometheus_client. These few lines are what a user adds
to a training script; the file that it writes beside is for those who check the numbers.
"""

import argparse
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Gauge, Metric, start_http_server

from lab.training_loop import BATCH, COUNTER, GAUGE, PID, SCRAPE, STEP, file_of

_WIDTH: Final = 16
_LEARNING_RATE: Final = 0.1
_NOISE: Final = 0.01
#: How often a rank that waits for the others looks: MPI's own waiting would keep a core busy.
_LOOK_SECONDS: Final = 0.001
#: How long a rank waits for the others once the time of all is over.
_LAST_SECONDS: Final = 2.0
#: Steps that the gauge is taken over: half a second, as it is by default.
_GAUGE_STEPS: Final = 20


class Rank:
    """What one process does: it learns, counts, and serves what it counted."""

    def __init__(self, addresses: list[str], port: int, folder: Path, step_seconds: float) -> None:
        """Open the file and the port."""
        self._all = MPI.COMM_WORLD
        rank = self._all.Get_rank()
        self._step_seconds = step_seconds
        self._file = file_of(folder, rank).open("w", buffering=1)
        self.total, self._loss = 0, 0.0
        self._log(PID, os.getpid())
        registry = CollectorRegistry()
        self._counter = Counter(COUNTER, "Samples that this rank has trained on.", registry=registry)
        self._gauge = Gauge(GAUGE, "Samples per second of this rank.", registry=registry)
        # Registered last, it is asked last: what it notes is what has just been told.
        registry.register(self)
        start_http_server(port, addresses[rank], registry)
        random = np.random.default_rng(seed=rank)
        truth = np.arange(_WIDTH) / _WIDTH
        self._samples = random.standard_normal((BATCH * 8, _WIDTH))
        self._answers = self._samples @ truth + _NOISE * random.standard_normal(len(self._samples))
        self._weights = np.zeros(_WIDTH)
        self._times: list[float] = []
        self._ends = 0.0
        #: Whether this rank is to end, and whether all of them know that one is.
        self._ending = self._ended = False

    def collect(self) -> Iterator[Metric]:
        """Note that somebody scrapes; add nothing."""
        self._log(SCRAPE, self.total)
        return iter(())

    def train(self, seconds: float) -> None:
        """Take steps for so long."""
        due = time.monotonic()
        self._ends = due + seconds
        while not self._ended:
            now = time.monotonic()
            self._ending = self._ending or now > self._ends
            # Time that was lost is lost: after a halt the loop does not run faster to catch up.
            due = max(due, now - self._step_seconds) + self._step_seconds
            self._step()
            time.sleep(max(0.0, due - time.monotonic()))

    def end(self, *_: object) -> None:
        """End, and with it all ranks, after the next step."""
        self._ending = True

    def _step(self) -> None:
        begin = self.total % len(self._samples)
        samples, answers = self._samples[begin : begin + BATCH], self._answers[begin : begin + BATCH]
        errors = samples @ self._weights - answers
        told = np.concatenate([samples.T @ errors / BATCH, [errors @ errors / BATCH, self._ending]])
        self._reduce(told)
        mean = told / self._all.Get_size()
        self._weights -= _LEARNING_RATE * mean[:_WIDTH]
        self._loss = float(mean[_WIDTH])
        self._ended = mean[-1] > 0
        self.total += BATCH
        self._counter.inc(BATCH)
        self._times = [*self._times[-_GAUGE_STEPS:], time.monotonic()]
        if len(self._times) > 1:
            self._gauge.set(BATCH * (len(self._times) - 1) / (self._times[-1] - self._times[0]))
        self._log(STEP, self.total)

    def _reduce(self, numbers: NDArray[np.float64]) -> None:
        """Add an array over all ranks, in place; this waits for every rank."""
        request = self._all.Iallreduce(MPI.IN_PLACE, numbers, op=MPI.SUM)
        while not request.Test():
            if time.monotonic() > self._ends + _LAST_SECONDS:
                # The rank that is waited for is stopped, and nobody is left who would let it go on.
                self._all.Abort()
            time.sleep(_LOOK_SECONDS)

    def _log(self, what: str, total: int) -> None:
        self._file.write(f"{what} {time.monotonic():.6f} {total} {self._loss:.9f}\n")


def main() -> None:
    """Be one rank of a loop."""
    parser = argparse.ArgumentParser(prog="lab.training_rank", description=__doc__.partition("\n")[0])
    parser.add_argument("addresses", help="of all ranks, with commas between")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--step-seconds", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    rank = Rank(given.addresses.split(","), given.port, given.folder, given.step_seconds)
    signal.signal(signal.SIGTERM, rank.end)
    rank.train(given.seconds)
    # Not left to the end of the process, where a signal that comes twice would kill it in the middle of this.
    MPI.Finalize()


if __name__ == "__main__":
    main()
