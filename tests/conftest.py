# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What all tests share."""

from fcntl import LOCK_EX, flock
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.timeline import Timeline

# Examples that talk to a server or run beside other tests take as long as they take; that is no property.
settings.register_profile("here", deadline=None)
settings.load_profile("here")


@pytest.fixture(name="played", scope="session")
def fixture_played(tmp_path_factory: pytest.TempPathFactory) -> "Callable[[str], Timeline]":
    """Return what gives the timeline of a scenario: each is played once a session, by the worker that asks first."""
    base = tmp_path_factory.getbasetemp()
    # Under xdist each worker has a folder of its own below the session's.
    shared = base.parent if base.name.startswith("popen-") else base

    def timeline(name: str) -> "Timeline":
        # The lab is not there where only the package is tested, and takes a second to import.
        from lab.play import play
        from lab.timeline import Timeline

        kept = shared / f"scenario-{name}.json.gz"
        with (shared / f"scenario-{name}.lock").open("w") as lock:
            flock(lock, LOCK_EX)
            if not kept.exists():
                play(name).save(kept)
        return Timeline.load(kept)

    return timeline
