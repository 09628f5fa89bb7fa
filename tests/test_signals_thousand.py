# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A thousand exporters: a bounded number of requests a run, and every GPU seen within the promised number of runs.

The figures are printed, as `python -m bench.exporters` does. What a run costs is told there; here only the rules count.
"""

import math
import sys

import pytest

from bench.exporters import CASES, measure, table

NODES, GPUS, BUDGET = 1_000, 8, 100
#: The time of a round, and what a busy machine adds.
LONGEST = 0.8 * 15.0 + 2.0


@pytest.mark.parametrize("case", CASES)
def test_a_thousand_exporters(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Never more than the budget; 8,000 GPUs, or those of the healthy exporters, within n / budget runs."""
    found = measure(NODES, GPUS, BUDGET, case, turns=1, timeout=1.0)
    with capsys.disabled():
        sys.stdout.write(f"\n{table({case: found})}\n")
    assert found.gpus == NODES * GPUS
    assert found.most_requests <= BUDGET
    assert found.promised == math.ceil(NODES / BUDGET) == 10
    assert 0 < found.runs <= found.promised
    assert max(found.rounds) <= LONGEST
