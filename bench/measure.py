# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""CPU time and memory of a piece of work in this process.

CPU time is that of all threads of the process: what a reader thread does counts, and what other processes do at the
same time does not. It still depends on the machine and its load, so figures are compared within one run only, as
ratios.

The peak of the memory is the kernel's own (VmHWM of Linux), above what was resident when the work began: interpreter
and imports are not counted, and the heap that a library leaves behind is.
"""

import gc
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

_SELF = Path("/proc/self")


class Measured(NamedTuple):
    """What a piece of work took: CPU seconds, bytes of memory at its peak, and the objects that it read."""

    cpu: float
    peak: int = 0
    objects: int = 0


class Steady(NamedTuple):
    """A run after some changes: CPU seconds by phase, series sent, CPU seconds to decode the changes once."""

    collect: float
    derive: float
    submit: float
    series: float
    decode: float

    @property
    def work(self) -> float:
        """CPU seconds of collect and derive."""
        return self.collect + self.derive


class Meter:
    """Measures what is done inside of its context."""

    def __enter__(self) -> Self:
        """Begin."""
        gc.collect()
        with suppress(OSError):
            # Makes the peak of the past forgotten.
            (_SELF / "clear_refs").write_text("5")
        self._resident = resident("VmRSS")
        self._began = time.process_time()
        return self

    def __exit__(self, *_error: object) -> None:
        """End."""
        self.cpu = time.process_time() - self._began
        self.peak = resident("VmHWM") - self._resident

    def measured(self, objects: int = 0) -> Measured:
        """Return the result."""
        return Measured(self.cpu, self.peak, objects)


def resident(field: str) -> int:
    """Return the resident memory in bytes: VmRSS, that of now, or VmHWM, its peak."""
    status = (_SELF / "status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{field}:"))
