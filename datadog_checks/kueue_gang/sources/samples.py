# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Samples of GPUs and of training jobs: from labels and values to beats and paces, whoever exposed them.

A GPU is told by dcgm-exporter, whose labels came in several forms. The pod that holds it is `pod` and `namespace`, or
`pod_name` and `pod_namespace` with its option for old names; a Prometheus server that keeps its own labels of the
scraped pod turns them into `exported_pod` and `exported_namespace`. A GPU that nobody holds has them empty, or not at
all, and is nobody's beat. A slice of a GPU (MIG) has the number of its instance beside the UUID of the GPU, a GPU that
pods share in time the number of the share. Where DRA allocates the device the labels are the same, with more beside.

Something ran on a device if any of its samples says so: a profiling counter may be held by somebody else and stand
still while the utilization does not.

A training job is told by its pods: the series of one pod add up. A sum of which a part is no number is no number. Of a
sum of counters the parts are told too: one process of a pod begins anew while the others go on.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, isnan
from typing import Final, NamedTuple

from datadog_checks.kueue_gang.facts.signals import Beat, Pace

#: What DCGM tells of the work of a GPU, a ratio and percent: any of them will do.
ACTIVITY_METRICS: Final = ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL")
#: The labels of a pod and of its namespace, the first that says anything counts.
POD_LABELS: Final = ("exported_pod", "pod", "pod_name")
NAMESPACE_LABELS: Final = ("exported_namespace", "namespace", "pod_namespace")
#: Labels that tell the devices of a pod apart: the GPU, its slice, its share in time. A GPU without UUID has a number.
DEVICE_LABELS: Final = (("UUID", "uuid", "gpu", "device"), ("GPU_I_ID",), ("dra_mig_device_uuid",), ("vgpu",))
#: A share of time, or percent, from which on something ran: what is less is noise of the counter.
ACTIVE: Final = 0.001
#: What DCGM writes for a value that it does not have, as integer of 32 bits, as float and as integer of 64 bits
#: (dcgm_structs.h): the least and the most. Other large numbers are work, in whatever unit a query tells it.
BLANKS: Final = ((2**31 - 16, 2**31), (2**47, 2**47 + 16), (2**62, inf))


#: Series of one pod that are looked at one by one: a node has no more processes that train.
MOST_PARTS: Final = 256


class Sample(NamedTuple):
    """A sample: the name of its series (empty where a query took it away), labels, value."""

    name: str
    labels: Mapping[str, str]
    value: float


class PodLabels(NamedTuple):
    """The labels that name the pod of a series, and those that name its namespace, in the order of their worth."""

    namespace: Sequence[str] = NAMESPACE_LABELS
    pod: Sequence[str] = POD_LABELS

    def of(self, labels: Mapping[str, str]) -> tuple[str, str] | None:
        """Return (namespace, pod) of a series, None where it names none.

        Labels of the same place belong together: with `exported_pod` goes `exported_namespace`, if there is one.
        """
        for place, label in enumerate(self.pod):
            pod = labels.get(label)
            if pod:
                together = self.namespace[place : place + 1] if len(self.pod) == len(self.namespace) else ()
                namespace = first(labels, (*together, *self.namespace))
                return (namespace, pod) if namespace else None
        return None


@dataclass(slots=True)
class Found:
    """What was found; `silent` are (source, namespace, pod) that did not tell, `bad` counts samples by what they are.

    Bad are `nan`, `inf` and `other`: what cannot be a value, and lines that are no sample.
    """

    beats: list[Beat] = field(default_factory=list)
    paces: list[Pace] = field(default_factory=list)
    silent: list[tuple[int, str, str]] = field(default_factory=list)
    bad: Counter[str] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        """Tell whether there is any sample."""
        return bool(self.beats or self.paces)

    def add(self, other: "Found") -> None:
        """Take what another one has."""
        self.beats += other.beats
        self.paces += other.paces
        self.silent += other.silent
        self.bad += other.bad


def first(labels: Mapping[str, str], wanted: Iterable[str]) -> str:
    """Return the value of the first label that has one, empty where none has."""
    return next((value for label in wanted if (value := labels.get(label))), "")


def flaw(value: float) -> str:
    """Return what a value is instead of a number; empty for a number."""
    return "" if isfinite(value) else "nan" if isnan(value) else "inf"


def beats(samples: Iterable[Sample], at: float, labels: PodLabels = PodLabels()) -> Found:  # noqa: B008 - a constant
    """Return the beats of the devices that pods hold; `at` as in `Beat`."""
    found = Found()
    active: dict[tuple[str, str, str], bool] = {}
    for sample in samples:
        wrong = flaw(sample.value) or ("other" if _is_none(sample.value) else "")
        if wrong:
            found.bad[wrong] += 1
            continue
        pod = labels.of(sample.labels)
        if pod is not None:
            parts = [first(sample.labels, wanted) for wanted in DEVICE_LABELS]
            key = (*pod, "/".join(filter(None, parts)))
            active[key] = active.get(key, False) or sample.value > ACTIVE
    found.beats = [Beat(*key, works, at) for key, works in active.items()]
    return found


def _is_none(value: float) -> bool:
    """Tell whether a number cannot be the activity of a GPU."""
    return value < 0 or any(least <= value <= most for least, most in BLANKS)


class Teller(NamedTuple):
    """Who tells a pace: a pod, or a gang (the other is empty)."""

    namespace: str
    pod: str
    gang: str = ""


def paces(source: int, samples: Iterable[tuple[Teller, Sample]], at: float, *, counters: frozenset[str]) -> Found:
    """Return the paces of those who tell; `source` and `at` as in `Pace`, `counters` names the series that count up.

    Who tells counters and others at once tells nothing that can be added.
    """
    found = Found()
    series: dict[Teller, list[Sample]] = {}
    kinds: dict[Teller, set[bool]] = {}
    broken: set[Teller] = set()
    for teller, sample in samples:
        wrong = flaw(sample.value)
        if wrong:
            found.bad[wrong] += 1
            broken.add(teller)
            continue
        series.setdefault(teller, []).append(sample)
        kinds.setdefault(teller, set()).add(sample.name in counters)
    found.paces = [
        Pace(source, *teller, sum(one.value for one in parts), counter, at, _parts(parts) if counter else ())
        for teller, parts in series.items()
        if teller not in broken and len(kinds[teller]) == 1
        for counter in kinds[teller]
    ]
    return found


def _parts(series: Sequence[Sample]) -> tuple[tuple[int, float], ...]:
    """Return the parts of a sum of counters, as `Pace` has them."""
    if len(series) > MOST_PARTS:
        return ()
    return tuple((hash((one.name, frozenset(one.labels.items()))), one.value) for one in series)
