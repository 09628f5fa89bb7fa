# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""TrainJobs of Kubeflow Trainer: what the trainer of a job tells of its progress.

From Trainer 2.2 on, with its gate TrainJobStatus, the trainer process reports to the TrainJob itself
(status.trainerStatus): how much is done in percent, its own metrics as texts, and when it said so last. A TrainJob
without that exists all the same, and tells nothing.
"""

from math import isfinite
from typing import Final

from datadog_checks.kueue_gang.facts.fields import BadObjectError, Json, count, identity, items, mapping, moment, text
from datadog_checks.kueue_gang.facts.signals import TrainJob

TRAIN_JOBS: Final = "trainjobs"
_ALL: Final = 100


def train_job(obj: Json) -> TrainJob:
    """Read a TrainJob. A metric that is no number is left out: losses become NaN, and some metrics are words."""
    _, namespace, name = identity(obj)
    told = mapping(mapping(obj, "status"), "trainerStatus")
    progress = count(told, "progressPercentage")
    if progress is not None and progress > _ALL:
        msg = "progressPercentage is more than 100"
        raise BadObjectError(msg)
    values = {text(metric, "name"): _number(metric.get("value")) for metric in items(told, "metrics")}
    return TrainJob(
        namespace=namespace,
        name=name,
        progress=None if progress is None else float(progress),
        metrics={metric: value for metric, value in values.items() if metric and value is not None},
        updated=moment(told, "lastUpdatedTime"),
    )


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if isfinite(number) else None
