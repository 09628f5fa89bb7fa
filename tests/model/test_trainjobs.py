# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""TrainJobs: what their trainers tell, and what they may be hurt by."""

from typing import Any

import pytest

from datadog_checks.kueue_gang.facts import BadObjectError
from datadog_checks.kueue_gang.facts.signals import TrainJob
from datadog_checks.kueue_gang.facts.trainjobs import train_job
from tests.model.build import NOW, stamp


def trained(**told: Any) -> dict[str, Any]:
    """Return a TrainJob whose trainer tells this."""
    return {"metadata": {"name": "train", "namespace": "team"}, "status": {"trainerStatus": told}}


def test_what_a_trainer_tells() -> None:
    """Progress in percent, its metrics as numbers, and when it said so."""
    metrics = [{"name": "tokens_per_second", "value": "1234.5"}, {"name": "loss", "value": "2e-1"}]
    told = train_job(trained(progressPercentage=45, metrics=metrics, lastUpdatedTime=stamp(30)))
    assert told == TrainJob("team", "train", 45.0, {"tokens_per_second": 1234.5, "loss": 0.2}, NOW - 30)


@pytest.mark.parametrize("status", [None, {}, {"trainerStatus": None}, {"conditions": []}, {"trainerStatus": {}}])
def test_one_that_tells_nothing(status: Any) -> None:
    """Before Trainer 2.2, with its gate off, and before the first word: it exists, and nothing is known."""
    assert train_job({"metadata": {"name": "train", "namespace": "team"}, "status": status}) == TrainJob(
        "team", "train"
    )


@pytest.mark.parametrize("value", ["NaN", "inf", "-Infinity", "n/a", "", None, True, [1], {"a": 1}])
def test_a_metric_that_is_no_number_is_none(value: Any) -> None:
    """It is left out, and the others stay: a loss that became NaN is no reason to lose the throughput."""
    metrics = [{"name": "loss", "value": value}, {"name": "tps", "value": "7"}, {"value": "3"}]
    assert train_job(trained(metrics=metrics)).metrics == {"tps": 7.0}


def test_no_progress_yet_is_zero_percent() -> None:
    """0 is told, and is not the same as nothing."""
    assert train_job(trained(progressPercentage=0)).progress == 0.0
    assert train_job(trained(progressPercentage=None)).progress is None


@pytest.mark.parametrize(
    "told",
    [
        {"progressPercentage": 101},
        {"progressPercentage": -1},
        {"progressPercentage": "45"},
        {"lastUpdatedTime": "yesterday"},
        {"metrics": {"tps": "7"}},
        {"metrics": ["tps"]},
        {"metrics": [{"name": 7, "value": "7"}]},
    ],
)
def test_a_malformed_one_is_refused(told: dict[str, Any]) -> None:
    """What cannot be is an error of that object, and no progress of 0."""
    with pytest.raises(BadObjectError):
        train_job(trained(**told))


def test_a_trainer_status_that_is_none() -> None:
    """So is a status of another type."""
    with pytest.raises(BadObjectError):
        train_job({"metadata": {"name": "train"}, "status": {"trainerStatus": "45%"}})
