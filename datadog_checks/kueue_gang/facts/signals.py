# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What GPUs and training jobs tell of their own work: the signals beside the API.

Allocated is not working. Two kinds of signals tell the difference: whether something ran on a GPU (a `Beat` for each
device, from dcgm-exporter), and how fast a job gets on (a `Pace`, from what its pods or a Prometheus server say).
They come on their own time, never in step with the API, and each may stay away: then nothing is known.

The times of samples are those of a clock that only goes on, since rates are taken between them; `Signals.clock` is
the same clock at the moment of the run, so that ages can be told.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

#: Why a signal cannot be seen: nobody configured it, it may not be read, or there is no sample of what it is asked for.
NOT_CONFIGURED, FORBIDDEN, NO_SAMPLE = "not_configured", "forbidden", "no_sample"


class Beat(NamedTuple):
    """One sample of one GPU, or of one slice of it, that a pod holds.

    `device` tells the devices of a pod apart. `active`: something ran on it since the sample before. `at` in seconds
    of the clock that only goes on.
    """

    namespace: str
    pod: str
    device: str
    active: bool
    at: float


class Pace(NamedTuple):
    """One sample of how fast a training job gets on, of one pod (`gang` empty) or of one gang (`pod` empty).

    `source` is the place of its source in the option `training`. `value` is units per second, or with `counter` units
    since the process began. `at` in seconds of the clock that only goes on. `parts` are the series of a counter that
    add up to the value, by a hash of their labels: each begins anew by itself. Empty where they are not told.
    """

    source: int
    namespace: str
    pod: str
    gang: str
    value: float
    counter: bool
    at: float
    parts: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Signals:
    """What came since the run before, at `clock`.

    `activity` and `training` are empty where these signals are read, else one of the reasons above; `training` tells
    of all its sources together: empty as soon as one is read. `silent` are pods that a training source asked in vain,
    or that answered without the metric that they had told before: (source, namespace, pod). `awaited` are pods whose
    first turn is still to come.
    """

    clock: float = 0.0
    beats: Sequence[Beat] = ()
    paces: Sequence[Pace] = ()
    silent: Sequence[tuple[int, str, str]] = ()
    awaited: Sequence[tuple[int, str, str]] = ()
    activity: str = NOT_CONFIGURED
    training: str = NOT_CONFIGURED


#: The signals of a check that reads none.
NO_SIGNALS = Signals()


@dataclass(frozen=True, slots=True)
class TrainJob:
    """A TrainJob of Kubeflow Trainer and what its trainer tells of itself (status.trainerStatus, from 2.2 on).

    `progress` in percent, `metrics` by name, `updated` in seconds since the epoch; None where it does not tell.
    """

    namespace: str
    name: str
    progress: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    updated: float | None = None
