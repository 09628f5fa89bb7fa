# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The signals beside the API on their way into the picture: activity of GPUs, throughput of jobs, prices.

Samples come with each run, and hardly any of them changes what is told of a component: so they go into books, and the
books say which components are to be drawn anew. What changes with each run, how fast gangs get on, is never part of a
drawing. Where no signal is configured nothing of this costs anything.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from datadog_checks.kueue_gang.derive.activity import ACTIVITY, ActivityBook, PodName
from datadog_checks.kueue_gang.derive.components import Component
from datadog_checks.kueue_gang.derive.picture import Headway
from datadog_checks.kueue_gang.derive.prices import Prices
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.derive.throughput import TRAIN_JOBS, Runner, ThroughputBook
from datadog_checks.kueue_gang.derive.transitions import Key
from datadog_checks.kueue_gang.facts.cluster import Changes
from datadog_checks.kueue_gang.facts.signals import NO_SAMPLE, NO_SIGNALS, NOT_CONFIGURED

THROUGHPUT = "throughput"


class Watch:
    """The books of the signals, and the gangs that they are about."""

    def __init__(self, rules: Rules) -> None:
        """Begin without samples."""
        self._rules = rules
        self.activity = ActivityBook(rules.inactive_after)
        self.throughput = ThroughputBook(rules)
        self.prices = Prices(rules.prices)
        #: How the gangs get on that run.
        self.headway: Mapping[Key, Headway] = {}
        self._signals = NO_SIGNALS
        self._runners: dict[Key, Runner] = {}
        self._component: dict[Key, Component] = {}
        self._unseen = 0

    @property
    def on(self) -> bool:
        """Whether any signal is configured."""
        return self._rules.activity or bool(self._rules.training)

    def take(self, changes: Changes, now: float) -> set[PodName]:
        """Take the samples of a run; return the pods whose components are to be drawn anew."""
        self._signals = changes.signals
        if self._rules.training:
            known = TRAIN_JOBS not in changes.unread and TRAIN_JOBS not in changes.behind
            self.throughput.take(changes.signals, changes.train_jobs, now, jobs_known=known)
        return self.activity.take(changes.signals, now) if self._rules.activity else set()

    def draw(self, component: Component, runners: Iterable[Runner]) -> None:
        """Take the gangs of a component that run."""
        for runner in runners:
            self._runners[runner.key], self._component[runner.key] = runner, component

    def withdraw(self, runners: Iterable[Runner]) -> None:
        """Take them back."""
        for runner in runners:
            self._runners.pop(runner.key, None)
            self._component.pop(runner.key, None)

    def judge(self) -> dict[int, Component]:
        """Tell how the gangs get on; return the components in which one stalls now, or does not any more."""
        if not self._rules.training:
            return {}
        self.headway, changed, self._unseen = self.throughput.judge(self._runners)
        return {id(self._component[key]): self._component[key] for key in changed}

    def unobservable(self, drawn: Counter[tuple[str, str]], running: int) -> Counter[tuple[str, str]]:
        """Complete what was drawn: with the reason why there are no samples, and with the gangs that tell nothing.

        `running` is the number of gangs that run.
        """
        found = Counter(drawn)
        if self._rules.activity:
            blind = found.pop((ACTIVITY, NO_SAMPLE), 0)
            found[ACTIVITY, self._signals.activity or NO_SAMPLE] += blind
        if self._rules.training:
            found[THROUGHPUT, self._signals.training or NO_SAMPLE] += self._unseen
        else:
            found[THROUGHPUT, NOT_CONFIGURED] += running
        return +found
