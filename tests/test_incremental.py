# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What a check derives from watched changes is what it would derive from the cluster read whole.

A live API server plays random clusters that turn into one another, while watches are cut and end, history is compacted,
and the server restarts. After every reading the incremental picture is held against a
full one of the same facts; and once the check is in step, its facts against those of the server's objects.
"""

import logging
import random
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from datadog_checks.kueue_gang.derive.deriver import Deriver, derive
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.derive.transitions import Memory
from datadog_checks.kueue_gang.facts.cluster import Cluster
from datadog_checks.kueue_gang.sources.api import Api
from datadog_checks.kueue_gang.sources.collector import Collector, Reading
from datadog_checks.kueue_gang.sources.connection import UrlConnection
from datadog_checks.kueue_gang.sources.resources import resources
from lab.apiserver import KINDS, ApiServer, name_of
from lab.etcd import key_of
from tests.live import QUICK, readers, until
from tests.model.build import NOW, SOURCES, Seen, reducers
from tests.model.test_laws import PAUSES, World, told, vars_of, worlds

LOG = logging.getLogger("test")
#: Lives a test, and sequences of events a life: 1,000 in all.
PARTS, LIVES, SEQUENCES = 4, 25, 10
#: Name of a source -> field of `Cluster`.
FIELDS = dict(SOURCES.values())

#: What happens to the connections between two events, by how often.
DISTURBANCES = {
    lambda _server, _chance: None: 12,
    lambda server, chance: server.cut(chance.choice(list(KINDS))): 4,
    lambda server, _chance: server.cut(): 2,
    lambda server, chance: server.end(chance.choice(list(KINDS))): 4,
    lambda server, _chance: (server.compact(), server.cut()): 2,
    lambda server, _chance: server.restart(): 1,
}


class Life:
    """A check that follows a server."""

    def __init__(self, server: ApiServer, chance: random.Random) -> None:
        """Begin with an empty cluster."""
        self.server = server
        self.chance = chance
        self.rules = Rules()
        self.reduce = reducers(self.rules)
        self.connection = UrlConnection(server.url, {}, timeout=2.0)
        wanted = [one for one in resources(self.reduce) if one.api_source in KINDS]
        self.collector = Collector(Api(self.connection, log=LOG), wanted, LOG, timing=QUICK)
        self.deriver = Deriver(self.rules)
        self.memory = Memory()

    def end(self) -> None:
        """Stop the check."""
        self.collector.stop()
        self.connection.abort()
        self.connection.close()
        until(lambda: not readers(), "the readers end")

    def play(self, world: World) -> None:
        """Turn a part of the cluster into another one, in random order, and read now and then."""
        target = {(name_of(obj), key_of(obj)): obj for obj in world.objects}
        there = {(kind, key_of(obj)) for kind in KINDS for obj in self.server.store.all(kind)}
        share = self.chance.choice((0.05, 0.3, 1.0))
        moving = [name for name in sorted({*target, *there}) if self.chance.random() < share]
        self.chance.shuffle(moving)
        disturb_at = self.chance.randint(0, len(moving))
        for number, (kind, (namespace, name)) in enumerate([*moving]):
            if number == disturb_at:
                self.disturb()
            if (kind, (namespace, name)) in target:
                self.server.apply(kind, target[kind, (namespace, name)])
            else:
                self.server.delete(kind, name, namespace)
            if self.chance.random() < 0.05:
                self.read()

    def disturb(self) -> None:
        """Do something to the connections."""
        chosen = self.chance.choices(list(DISTURBANCES), list(DISTURBANCES.values()))[0]
        chosen(self.server, self.chance)

    def read(self) -> Reading:
        """Read, derive in both ways, and compare."""
        reading = self.collector.collect()
        facts: dict[str, Any] = {field: [] for field in FIELDS.values()}
        for reflector in self.collector._reflectors:
            facts[FIELDS[reflector.resource.api_source]] += list(reflector.table)
        changes = reading.changes
        whole = Cluster(
            **facts,
            scheduler=changes.scheduler,
            unread=changes.unread,
            unreadable=changes.unreadable,
            behind=changes.behind,
        )
        picture = self.deriver.apply(changes, reading.now)
        full, self.memory = derive(whole, self.rules, self.memory, reading.now)
        assert told(Seen(picture, self.deriver.memory())) == told(Seen(full, self.memory))
        assert vars_of(picture.summary) == vars_of(full.summary)
        return reading

    def in_step(self) -> bool:
        """Read, and tell whether the check knows just what the server has."""
        reading = self.read()
        return all(one.up for one in reading.health) and self.known() == self.there()

    def difference(self) -> str:
        """Tell what keeps the check from being in step."""
        known, there = self.known(), self.there()
        apart = {
            one: [name for name in {*known[one], *there[one]} if known[one].get(name) != there[one].get(name)]
            for one in there
            if known[one] != there[one]
        }
        return f"in step, not {apart}; {[one.error for one in self.collector._reflectors if one.error]}"

    def known(self) -> dict[str, dict[Any, Any]]:
        """Return the facts that the check has."""
        return {
            one.resource.api_source: {(getattr(fact, "namespace", ""), fact.name): fact for fact in one.table}
            for one in self.collector._reflectors
        }

    def there(self) -> dict[str, dict[Any, Any]]:
        """Return the facts of the server's objects."""
        found: dict[str, dict[Any, Any]] = defaultdict(dict)
        for kind in KINDS:
            for obj in self.server.store.all(kind):
                fact = self.reduce[kind](obj)
                if fact is not None:
                    found[kind][key_of(obj)] = fact
        return {one.resource.api_source: found[one.resource.api_source] for one in self.collector._reflectors}


@pytest.mark.parametrize("part", range(PARTS))
def test_changes_lead_to_the_picture_of_the_cluster(part: int):
    """1,000 sequences of events, in lives of ten."""
    played = 0

    @settings(
        max_examples=LIVES,
        deadline=None,
        database=None,
        derandomize=True,
        # A life has threads and sockets: what fails in it need not fail in the same way again.
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(st.lists(worlds(), min_size=3, max_size=3), st.integers(0, 2**32))
    def live(found: list[World], seed: int):
        nonlocal played
        chance = random.Random(f"{part}/{seed}")
        later = 0.0
        with ApiServer(clock=lambda: NOW + later) as server:
            server.streaming = chance.random() < 0.7
            server.bookmark_seconds = 0.2
            life = Life(server, chance)
            try:
                for number in range(SEQUENCES):
                    life.play(found[number % len(found)])
                    later += chance.choice(PAUSES)
                    until(life.in_step, life.difference)
                    played += 1
            finally:
                life.end()

    live()
    assert played >= LIVES * SEQUENCES
