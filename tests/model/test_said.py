# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What Kueue says of a Workload that waits, read from the text of its condition."""

import pytest

from datadog_checks.kueue_gang.derive.said import Lack, Said, never, said
from datadog_checks.kueue_gang.facts.fields import CUT, MAX_TEXT, condition
from tests.model.build import GPU
from tests.model.kueue import FITS_NONE, FITS_SOME, MAXIMUM, MORE_NEEDED, OLD_MAXIMUM, PODS_READY, PREEMPTING


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ()),
        (PODS_READY, (Said("", (), (), more=True),)),
        (MORE_NEEDED.format(GPU, "gpu", 16), (Said("main", (Lack(GPU, "gpu", 16, never=False),), (), more=False),)),
        # Kueue writes amounts as quantities.
        (MORE_NEEDED.format("cpu", "a", "5m"), (Said("main", (Lack("cpu", "a", None, never=False),), (), more=False),)),
        (MAXIMUM, (Said("main", (Lack(GPU, "gpu", 8, never=True),), (), more=False),)),
        (OLD_MAXIMUM, (Said("main", (Lack(GPU, "gpu", 8, never=True),), (), more=False),)),
        (PREEMPTING, (Said("main", (Lack(GPU, "gpu", 16, never=False),), (), more=False),)),
        (FITS_SOME, (Said("main", (), ("default",), more=True),)),
        (FITS_NONE, (Said("main", (), ("default",), more=True),)),
        (
            f"{MORE_NEEDED.format(GPU, 'a', 1)}; {MAXIMUM.replace('main', 'w')}, flavor b is not for these pods",
            (
                Said("main", (Lack(GPU, "a", 1, never=False),), (), more=False),
                Said("w", (Lack(GPU, "gpu", 8, never=True),), (), more=True),
            ),
        ),
    ],
)
def test_said(text: str, found: tuple[Said, ...]) -> None:
    """Each podset has its reasons; what is left of a text is told as more."""
    assert said(text) == found


def test_a_text_that_is_too_long_keeps_both_ends() -> None:
    """Its memory is bounded, and of many reasons the last is kept as well; what was cut out is never taken as read."""
    obj = {"type": "QuotaReserved", "status": "False", "message": MAXIMUM + ", x" * MAX_TEXT + "; " + FITS_SOME}
    kept = condition(obj).message
    assert len(kept) <= MAX_TEXT
    assert kept.startswith(MAXIMUM)
    assert kept.endswith(FITS_SOME)
    assert CUT in kept
    assert never(MAXIMUM)
    assert not never(kept)


def test_a_text_that_is_long_enough_is_kept_whole() -> None:
    """Only a longer one is cut."""
    text = "x" * MAX_TEXT
    assert condition({"status": "False", "message": text}).message == text
