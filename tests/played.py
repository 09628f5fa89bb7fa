# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Recorded moments of one cluster, shown to one check in the order in which they were.

The cluster's time is the recording's, in the Date header; the check's own clock, which only goes on, is moved by as
much as lies between two moments. Between any two the check may be replaced by a new one, as after a restart.
"""

import time
from collections.abc import Collection, Iterator, Sequence
from types import SimpleNamespace

import pytest
from datadog_checks.base.stubs.aggregator import AggregatorStub

from datadog_checks.kueue_gang import KueueGangCheck, check
from lab.replay import CAPTURES, Recording, ReplayServer, moments
from tests.sent import Sent

#: Seconds of the real clock that no two servers share.
_EPOCH = 1_000_000.0


def story(name: str) -> list[Recording]:
    """Return the moments of an archive in their order."""
    archive = CAPTURES / f"{name}.tar.xz"
    return [Recording.open(archive, moment) for moment in moments(archive)]


class Clock:
    """A clock that stands still until it is moved, in place of the monotonic one of the check."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put it in place."""
        self.now = _EPOCH
        monkeypatch.setattr(
            check, "time", SimpleNamespace(monotonic=lambda: self.now, process_time=time.process_time)
        )  # fmt: skip


def play(
    aggregator: AggregatorStub,
    clock: Clock,
    recordings: Sequence[Recording],
    restarts: Collection[int] = (),
    **options: object,
) -> Iterator[Sent]:
    """Yield what the check sent at each moment; `restarts` are the moments at which a new check goes on."""
    with ReplayServer(recordings[0]) as server:
        instance = {"kube_api_url": server.url, "sync": "list", "per_gang_metrics": "all", **options}
        running: KueueGangCheck | None = None
        for number, recording in enumerate(recordings):
            clock.now += (recording.now - server.recording.now).total_seconds()
            server.recording = recording
            if running is None or number in restarts:
                if running is not None:
                    running.cancel()
                running = KueueGangCheck("kueue_gang", {}, [instance])
            aggregator.reset()
            assert running.run() == ""
            yield Sent(aggregator)
        if running is not None:
            running.cancel()
