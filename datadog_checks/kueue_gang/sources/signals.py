# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The signals of GPUs and training jobs: all their sources, started and taken by the run of the check.

A run starts the rounds, reads the API meanwhile, and takes what has come; how a source asks and what it may cost is in
`rounds`. The pods that are to be scraped come from lists and watches of their own, as everything else of the API.

In the health of the check the sources are two, `activity` and `training`. Training is as healthy as the worst of its
sources; and its signals are read as soon as one of them is.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from datadog_checks.kueue_gang.facts import endpoints
from datadog_checks.kueue_gang.facts.health import OK, SourceHealth
from datadog_checks.kueue_gang.facts.signals import FORBIDDEN, NO_SAMPLE, NO_SIGNALS, NOT_CONFIGURED, Signals
from datadog_checks.kueue_gang.sources import errors
from datadog_checks.kueue_gang.sources.connection import Log
from datadog_checks.kueue_gang.sources.errors import SourceError
from datadog_checks.kueue_gang.sources.exposition import Page, counts_by_name, flaws
from datadog_checks.kueue_gang.sources.prometheus import PrometheusSource
from datadog_checks.kueue_gang.sources.reflector import STALE, Reflector
from datadog_checks.kueue_gang.sources.rounds import MOMENT, Source
from datadog_checks.kueue_gang.sources.samples import (
    DEVICE_LABELS,
    Found,
    PodLabels,
    Sample,
    Teller,
    beats,
    first,
    paces,
)
from datadog_checks.kueue_gang.sources.scraper import PodSource
from datadog_checks.kueue_gang.sources.targets import PodTarget, PrometheusTarget, Targets, TrainJobTarget

ACTIVITY: Final = "activity"
TRAINING: Final = "training"
#: The sources of signals, as the health of the check names them.
SIGNALS: Final = frozenset({ACTIVITY, TRAINING})
#: Reasons for which a source may not be read.
_REFUSED: Final = frozenset({"forbidden", "unauthorized"})


@dataclass(frozen=True, slots=True)
class Heard:
    """What a run took: the signals, how their sources fare, why some cannot be read, and samples that are none."""

    signals: Signals = NO_SIGNALS
    health: tuple[SourceHealth, ...] = ()
    errors: Mapping[str, SourceError] = field(default_factory=dict)
    bad_samples: Mapping[str, int] = field(default_factory=dict)


class SignalReader:
    """Reads the targets. `resources` are the pods to follow for it; their reflectors are told with `follow`."""

    def __init__(
        self,
        targets: Targets,
        log: Log,
        *,
        interval: float,
        init_config: Mapping[str, Any] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to read; nothing is sent yet. `interval`: seconds between runs. Raises ConfigurationError."""
        self._monotonic = monotonic
        self._train_jobs = any(isinstance(one, TrainJobTarget) for one in targets.training)
        common: dict[str, Any] = {"log": log, "interval": interval, "init_config": init_config, "monotonic": monotonic}
        self._activity = [] if targets.activity is None else [_activity(targets.activity, common)]
        self._training = [
            _training(number, one, common)
            for number, one in enumerate(targets.training)
            if not isinstance(one, TrainJobTarget)
        ]
        self._sources: list[Source[Any]] = [*self._activity, *self._training]
        self.resources = tuple(source.resource for source in self._sources if isinstance(source, PodSource))
        self._reflectors: dict[str, Reflector] = {}
        #: Sources whose pods were not known when the run began.
        self._late: list[Source[Any]] = []

    def follow(self, reflectors: Iterable[Reflector]) -> None:
        """Take the reflectors of `resources`, which somebody else refreshes."""
        self._reflectors = {one.resource.api_source: one for one in reflectors}

    def start_round(self) -> None:
        """Start a round of each source, as far as it is known what to ask; does not wait."""
        self._late = [source for source in self._sources if not self._start(source)]

    def take(self, train_jobs: str | None = None) -> Heard:
        """Return what has come since the last call; waits a moment for sources that are quick.

        `train_jobs` says how reading the TrainJobs went, in the words of `SourceHealth`.
        """
        for source in self._late:
            self._start(source)
        until = self._monotonic() + MOMENT
        found, awaited = Found(), []
        for source in self._sources:
            source.wait(until)
            # Before the samples are taken: who answers in between is awaited once more.
            awaited += source.awaited if isinstance(source, PodSource) else []
            found.add(source.take())
        told = {ACTIVITY: self._activity, TRAINING: self._training}
        reasons = {name: [self._reason(source) for source in sources] for name, sources in told.items()}
        if self._train_jobs:
            reasons[TRAINING].append(_as_signal(train_jobs or STALE))
        signals = Signals(
            clock=self._monotonic(),
            beats=found.beats,
            paces=found.paces,
            silent=found.silent,
            awaited=awaited,
            activity=_together(reasons[ACTIVITY]),
            training=_together(reasons[TRAINING]),
        )
        health = tuple(self._health(name, sources) for name, sources in told.items() if sources)
        failures = {
            source.name: error for source in self._sources if (error := self._error(source)) is not None
        }  # fmt: skip
        return Heard(signals, health, failures, dict(found.bad))

    @property
    def idle(self) -> bool:
        """Tell whether no round runs."""
        return all(source.idle for source in self._sources)

    def stop(self) -> None:
        """End all requests and threads soon, from any thread, and without waiting."""
        for source in self._sources:
            source.stop()

    def _start(self, source: Source[Any]) -> bool:
        """Start a round of a source; False where it is not known whom to ask."""
        if isinstance(source, PodSource):
            reflector = self._reflectors.get(source.name)
            # While their list cannot be read pods are where they were; what is too old the reflector lets go.
            known = reflector is not None and (reflector.usable or len(reflector.table) > 0)
            source.pods = list(reflector.table) if reflector and known else None
            if not known:
                return False
        source.start()
        return True

    def _error(self, source: Source[Any]) -> SourceError | None:
        reflector = self._reflectors.get(source.name)
        # Pods that were found once are asked also while the list of them cannot be read.
        return (reflector.error if reflector and not reflector.usable else None) or source.error

    def _status(self, source: Source[Any]) -> str:
        error = self._error(source)
        return error.reason if error else source.reason

    def _reason(self, source: Source[Any]) -> str:
        return "" if source.tells else _as_signal(self._status(source))

    def _health(self, name: str, sources: Sequence[Source[Any]]) -> SourceHealth:
        reason = next((status for source in sources if (status := self._status(source)) != OK), OK)
        ages = [source.age for source in sources]
        known = [age for age in ages if age is not None]
        age = max(known) if len(known) == len(ages) else None
        bad = sum(reflector.take_health().bad for one, reflector in self._reflectors.items() if _is_of(one, name))
        return SourceHealth(name, reason, age, sum(source.objects for source in sources), bad=bad)


def _is_of(source: str, name: str) -> bool:
    return source.partition(" ")[0] == name


def _as_signal(reason: str) -> str:
    """Return the word of `Signals` for one of `SourceHealth`."""
    return FORBIDDEN if reason in _REFUSED else "" if reason == OK else NO_SAMPLE


def _together(reasons: Sequence[str]) -> str:
    """Return one reason for several sources of a signal: empty where one is read."""
    if not reasons:
        return NOT_CONFIGURED
    return "" if "" in reasons else FORBIDDEN if FORBIDDEN in reasons else NO_SAMPLE


def _activity(target: PodTarget | PrometheusTarget, common: Mapping[str, Any]) -> Source[Any]:
    """Return the source of beats."""
    if isinstance(target, PodTarget):

        def of_page(page: Page, _pod: object, at: float) -> Found:
            found = beats(page.samples, at)
            found.bad += flaws(page)
            return found

        return PodSource(ACTIVITY, target, errors.ACTIVITY_PODS, of_page, **common)
    labels = PodLabels(target.namespace_labels, target.pod_labels)

    def of_vector(samples: Sequence[Sample], at: float) -> Found:
        return beats(samples, at, labels)

    nobodys = frozenset(label for wanted in DEVICE_LABELS for label in wanted)
    return PrometheusSource(ACTIVITY, target, errors.ACTIVITY_QUERY, of_vector, nobodys=nobodys, **common)


def _training(number: int, target: PodTarget | PrometheusTarget, common: Mapping[str, Any]) -> Source[Any]:
    """Return the source of paces with this number in the option."""
    name = f"{TRAINING} {number}"
    if isinstance(target, PodTarget):

        def of_page(page: Page, pod: endpoints.Endpoint, at: float) -> Found:
            if page.broken:
                # A sum of which a part cannot be read is none.
                return Found(bad=flaws(page))
            teller = Teller(pod.namespace, pod.name)
            return paces(number, ((teller, sample) for sample in page.samples), at, counters=page.counters)

        return PodSource(name, target, errors.TRAINING_PODS, of_page, silence=number, **common)
    labels = PodLabels(target.namespace_labels, target.pod_labels)

    def teller(sample: Sample) -> Teller | None:
        if not target.gang_label:
            pod = labels.of(sample.labels)
            return Teller(*pod) if pod else None
        gang, namespace = sample.labels.get(target.gang_label, ""), first(sample.labels, target.namespace_labels)
        return Teller(namespace, "", gang) if gang and namespace else None

    def of_vector(samples: Sequence[Sample], at: float) -> Found:
        told = [(who, sample) for sample in samples if (who := teller(sample)) is not None]
        counters = frozenset(sample.name for sample in samples if counts_by_name(sample.name))
        return paces(number, told, at, counters=counters)

    whole = bool(target.gang_label)
    return PrometheusSource(name, target, errors.TRAINING_QUERY, of_vector, whole=whole, **common)
