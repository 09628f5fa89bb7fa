# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The check that the Agent runs: it builds the parts from the options, runs them, and reports what failed.

The scrape of Kueue and the reading of the Kubernetes API stand apart: either runs when the other fails. What fails in
part is a warning and a source that is down; the run itself fails where a whole side could not be read.
"""

import gc
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from datadog_checks.base import ConfigurationError, OpenMetricsBaseCheckV2, datadog_agent
from datadog_checks.base.errors import CheckException

from datadog_checks.kueue_gang import settings
from datadog_checks.kueue_gang.config_models import ConfigMixin
from datadog_checks.kueue_gang.derive.deriver import Deriver
from datadog_checks.kueue_gang.derive.picture import Picture
from datadog_checks.kueue_gang.derive.spent import Meter
from datadog_checks.kueue_gang.emit import Emitter, Report, phases
from datadog_checks.kueue_gang.emit_events import EventOptions, events
from datadog_checks.kueue_gang.facts.health import OK, SourceHealth
from datadog_checks.kueue_gang.options import thaw, unknown_options, untrusted_options
from datadog_checks.kueue_gang.sources.api import Api
from datadog_checks.kueue_gang.sources.collector import Collector, Reading
from datadog_checks.kueue_gang.sources.connection import Connection, KubeConnection, UrlConnection
from datadog_checks.kueue_gang.sources.errors import SourceError
from datadog_checks.kueue_gang.sources.kueue_metrics import KueueScraper, scraper_config, scrapes
from datadog_checks.kueue_gang.sources.reader import Timing
from datadog_checks.kueue_gang.sources.scheduler_metrics import SchedulerEndpoint
from datadog_checks.kueue_gang.sources.signals import SIGNALS, SignalReader
from datadog_checks.kueue_gang.sources.targets import Targets

KUEUE_METRICS = "kueue_metrics"
PHASES = ("collect", "derive", "submit")


class KueueGangCheck(OpenMetricsBaseCheckV2, ConfigMixin):  # type: ignore[misc] # the base package has no types
    """Gangs, GPUs and queues of one cluster."""

    __NAMESPACE__ = "kueue_gang"
    # The base would drop everything above 2,000 series, also what is sent last; max_gangs is the cap here.
    DEFAULT_METRIC_LIMIT = 0
    TIMING = Timing()

    def __init__(self, name: str, init_config: Mapping[str, Any], instances: Sequence[Mapping[str, Any]]) -> None:
        """Take the options; they are validated, and the parts are built, at the first run."""
        super().__init__(name, init_config, instances)
        self.scraper_configs = [scraper_config(self.instance)] if scrapes(self.instance) else []
        self.check_initializations.append(self._build)
        self.picture: Picture | None = None
        self._connection: Connection | None = None
        self._collector: Collector | None = None
        self._deriver: Deriver | None = None
        #: CPU seconds of the phases of the last run, for the benchmark.
        self.cpu: dict[str, float] = {}
        self._cancelled = False
        self._scraped_at: float | None = None
        self._warned: frozenset[str] = frozenset()

    def create_scraper(self, config: Mapping[str, Any]) -> KueueScraper:
        """Return the scraper of Kueue's endpoint."""
        return KueueScraper(self, config)

    def check(self, _instance: Mapping[str, Any]) -> None:
        """Run once.

        Raises:
            CheckException: Kueue's endpoint or the whole API could not be read; the text says why and what to do.

        """
        if self._cancelled:
            # It was due already when the Agent unscheduled it.
            return
        health: list[SourceHealth] = []
        errors: dict[str, SourceError] = {}
        if self.scraper_configs:
            health.append(self._scrape(errors))
        with without_collection():
            reading = self._read(health)
        self._report(errors, reading)

    def _read(self, health: list[SourceHealth]) -> Reading | None:
        """Read the API, derive, and submit everything; return what was read."""
        times = [_clocks()]
        reading = self._collector.collect() if self._collector else None
        times.append(_clocks())
        self.picture = self._deriver.apply(reading.changes, reading.now) if reading and self._deriver else None
        times.append(_clocks())
        if reading:
            health += reading.health
        lapsed = reading.lapsed if reading else frozenset[str]()
        now = time.monotonic()
        spent = self._meter.read(self.picture, now)
        bad = self._bad_samples(reading.bad_samples if reading else {})
        report = Report(self.picture, health, reading.scheduler if reading else None, bad, spent)
        self._emitter.emit(report, now, lapsed=lapsed)
        if reading and self.config.collect_events:
            self._tell(reading, health)
        times.append(_clocks())
        wall, self.cpu = (
            dict(zip(PHASES, (after[clock] - before[clock] for before, after in pairwise(times)), strict=True))
            for clock in (0, 1)
        )
        if reading:
            self._emitter.submit(phases(wall))
        return reading

    def _tell(self, reading: Reading, health: Sequence[SourceHealth]) -> None:
        """Submit what is worth an event."""
        deriver, picture = self._deriver, self.picture
        notes = list(picture.notes) if picture else []
        if deriver:
            notes += deriver.teller.sources(((one.source, one.reason, one.up) for one in health), reading.now)
        cluster, site = (str(datadog_agent.get_config(key) or "") for key in ("cluster_name", "site"))
        options = EventOptions(tuple(self.config.tags or ()), cluster, site or "datadoghq.com")
        for event in events(notes, picture, deriver.seen if deriver else lambda: None, options, reading.now):
            self.event(event)

    def cancel(self) -> None:
        """End all threads and requests; the Agent calls this from any thread when it unschedules the check."""
        self._cancelled = True
        for scraper in list(self.scrapers.values()):
            scraper.abort()
        if self._collector:
            self._collector.stop()
        if self._connection:
            self._connection.abort()

    def _build(self) -> None:
        for option, meant in unknown_options(self.instance):
            hint = f"; did you mean `{meant}`?" if meant else ""
            self.log.warning("unknown option `%s` is ignored%s", option, hint)
        refused = untrusted_options(self.instance, self.security_config)
        if refused:
            msg = f"{', '.join(refused)}: file options need a trusted provider (integration_trusted_providers)"
            raise ConfigurationError(msg)
        config = self.config
        rules = settings.rules(config)
        self._emitter = Emitter(self, settings.emit_options(config))
        self._meter = Meter(settings.interval(config))
        if config.collect_kubernetes:
            self._connection = self._connect()
            self._deriver = Deriver(rules)
            self._collector = Collector(
                Api(self._connection, log=self.log),
                settings.wanted_resources(rules),
                self.log,
                watch=config.sync != "list",
                named_engines=rules.gang_engines or frozenset(),
                scheduler=self._scheduler(),
                signals=self._signals(),
                timing=self.TIMING,
            )

    def _connect(self) -> Connection:
        config = self.config
        timeout = float(config.kube_timeout or 0)
        if config.kube_api_url:
            options = thaw(config.kube_api_options or {})
            return UrlConnection(
                config.kube_api_url, options, timeout=timeout, init_config=self.init_config, log=self.log
            )  # fmt: skip
        return KubeConnection(config_path=config.kube_config_path, context=config.kube_context, timeout=timeout)

    def _scheduler(self) -> SchedulerEndpoint | None:
        options = thaw(self.config.scheduler_metrics or {})
        if not options:
            return None
        timeout = float(self.config.kube_timeout or 0)
        return SchedulerEndpoint(options, timeout=timeout, init_config=self.init_config, log=self.log)

    def _signals(self) -> SignalReader | None:
        targets = settings.targets(self.config)
        if targets == Targets():
            return None
        interval = settings.interval(self.config)
        return SignalReader(targets, self.log, interval=interval, init_config=self.init_config)

    def _scrape(self, errors: dict[str, SourceError]) -> SourceHealth:
        now = time.monotonic()
        try:
            super().check(self.instance)
        except SourceError as error:
            errors[KUEUE_METRICS] = error
            age = None if self._scraped_at is None else now - self._scraped_at
            return SourceHealth(KUEUE_METRICS, error.reason, age)
        failure = next((scraper.failure for scraper in self.scrapers.values() if scraper.failure), None)
        if failure:
            return SourceHealth(KUEUE_METRICS, failure.reason)
        self._scraped_at = now
        return SourceHealth(KUEUE_METRICS, OK, 0.0)

    def _bad_samples(self, of_signals: Mapping[str, int]) -> Counter[str]:
        return sum((Counter(scraper.take_bad_samples()) for scraper in self.scrapers.values()), Counter(of_signals))

    def _report(self, errors: Mapping[str, SourceError], reading: Reading | None) -> None:
        """Warn of sources that are down, in the log once until it changes, and fail where a whole side is."""
        fatal = [f"{source}: {error}" for source, error in errors.items()]
        if reading and reading.errors:
            told = list(_by_cause(reading.errors))
            # Signals alone tell nothing: without the API there are no gangs.
            if any(one.up for one in reading.health if one.source not in SIGNALS):
                self._warn(told)
            else:
                fatal += told
        elif self._warned:
            self._warned = frozenset()
            self.log.info("all sources are read again")
        if fatal:
            raise CheckException("\n".join(fatal))

    def _warn(self, told: Sequence[str]) -> None:
        for text in told:
            if text in self._warned:
                # Shown in the status of every run, and logged when it began.
                self.warnings.append(text)
            else:
                self.warning("%s", text)
        self._warned = frozenset(told)


def _clocks() -> tuple[float, float]:
    """Return wall-clock and CPU seconds."""
    return time.monotonic(), time.process_time()


@contextmanager
def without_collection() -> Iterator[None]:
    """Let the cyclic garbage collector wait for the end of a run.

    A first list makes hundreds of thousands of small records that stay and have no cycles; collecting meanwhile would
    walk the ones made so far again and again.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _by_cause(errors: Mapping[str, SourceError]) -> Iterator[str]:
    """Yield one text for each cause, with the sources that share it."""
    causes: dict[tuple[str, str], list[str]] = {}
    texts: dict[tuple[str, str], str] = {}
    for source, error in errors.items():
        causes.setdefault((error.reason, error.advice), []).append(source)
        texts.setdefault((error.reason, error.advice), str(error))
    for cause, sources in causes.items():
        yield f"{', '.join(sources)}: {texts[cause]}"
