# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The short form of the soak: what a check holds does not grow with its runs. `make soak` runs the long one."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.soak import HEAD, Sample, assert_no_growth, growth, soak


@pytest.fixture
def _no_records() -> Iterator[None]:
    """Let nobody keep log records: a soak makes very many."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.soak
@pytest.mark.usefixtures("_no_records")
def test_two_hundred_runs_with_churn() -> None:
    """Nothing that is held grows over 200 runs on a cluster that never rests."""
    told: list[str] = []
    samples = soak(200, tell=told.append)
    assert told[0] == HEAD
    assert [one.runs for one in samples] == list(range(10, 201, 10))
    assert all(one.runs < other.runs for one, other in pairwise(samples))
    assert all(one.gangs > 10 for one in samples if one.pods), "there is something to hold"
    assert_no_growth(samples)


def test_growth_is_seen() -> None:
    """Guards the assertion: what grows by two threads, by ten descriptors, by 10,000 blocks or by 10 MiB is growth."""
    flat = [Sample(number, 50_000, 250_000, 12, 20, 30, 120) for number in range(20)]
    assert_no_growth(flat)
    for grown in (
        [replace(one, memory=one.memory + 1000 * one.runs) for one in flat],
        [replace(one, blocks=one.blocks + 1000 * one.runs) for one in flat],
        [replace(one, threads=one.threads + one.runs // 5) for one in flat],
        [replace(one, descriptors=one.descriptors + one.runs) for one in flat],
    ):
        with pytest.raises(AssertionError):
            assert_no_growth(grown)
    assert growth(flat) == {"memory": 0, "blocks": 0, "threads": 0, "descriptors": 0}
