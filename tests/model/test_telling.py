# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What is worth an event: once each, after the grace, with the laggard, and nothing of what was before the check."""

from typing import Any

import pytest

from datadog_checks.kueue_gang.derive.deriver import Deriver
from datadog_checks.kueue_gang.derive.picture import Note
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.derive.telling import KINDS, Teller
from datadog_checks.kueue_gang.emit_events import MAX_EVENTS, EventOptions, events
from datadog_checks.kueue_gang.facts.cluster import Changes
from lab.events import told
from tests.model.build import (
    GANG_SCHEDULER,
    NO_GPU,
    NOW,
    SOURCES,
    TIMEOUT,
    Json,
    bound,
    node,
    of_group,
    permit_waiter,
    pod_group,
    ready,
    reducers,
    unscheduled,
)

GROUP = pod_group("train", 2, created=900)
NODES = (node("n0"), node("n1"))
TIE = of_group("train")


class Told:
    """A cluster that is looked at now and then, and the notes of each look."""

    def __init__(self) -> None:
        """Begin with a check that has seen nothing."""
        self._reduce = reducers(Rules())
        self._facts: dict[tuple[str, str, str], Any] = {}
        self.deriver = Deriver(Rules())

    def look(self, ago: float, *objects: Json) -> list[Note]:
        """Return what is worth an event when the cluster has these objects and no others, so many seconds ago."""
        changes: dict[str, list[Any]] = {}
        fields, here = dict(SOURCES.values()), set()
        for obj in objects:
            source, field = SOURCES[obj["apiVersion"].split("/")[0], obj["kind"]]
            key = source, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
            here.add(key)
            fact = self._reduce[source](obj)
            if self._facts.get(key) != fact:
                changes.setdefault(field, []).append((self._facts.get(key), fact))
            self._facts[key] = fact
        for key in self._facts.keys() - here:
            changes.setdefault(fields[key[0]], []).append((self._facts.pop(key), None))
        return list(self.deriver.apply(Changes(**changes), NOW - ago).notes)  # type: ignore[arg-type]


def kinds(notes: list[Note]) -> list[str]:
    """Return the kinds of notes."""
    return [note.kind for note in notes]


def partial(created: float = 800) -> list[Json]:
    """Return a gang of which one member was placed 700 s ago and one is not."""
    half = bound("a", TIE, "n0", since=700, created=created, scheduler=GANG_SCHEDULER)
    return [*NODES, GROUP, half, unscheduled("b", TIE, NO_GPU, created=created, scheduler=GANG_SCHEDULER)]


def test_one_event_after_the_grace() -> None:
    """Placed in part 700 s ago: nothing at 50 s, one event at 65 s with that time, and no second one."""
    cluster = Told()
    assert cluster.look(890, *NODES, GROUP) == []
    assert cluster.look(650, *partial()) == []
    assert cluster.look(635, *partial()) == [
        Note("incomplete", "team/train", NOW - 700, ("coscheduling", "team", "train"))
    ]
    assert cluster.look(620, *partial()) == []


def test_a_gang_that_flaps_is_told_of_once() -> None:
    """Waiting, rejected, waiting, every 15 s for ten minutes: one event after the grace, and attention throughout."""
    cluster = Told()
    assert cluster.look(890, *NODES, GROUP) == []
    found: list[Note] = []
    for turn in range(40):
        ago = 780 - 15 * turn
        waits = [permit_waiter("a", TIE, "n0", since=ago + 5, created=800, scheduler=GANG_SCHEDULER)]
        away = [unscheduled("a", TIE, TIMEOUT, created=800, scheduler=GANG_SCHEDULER)]
        other = unscheduled("b", TIE, NO_GPU if turn % 2 == 0 else TIMEOUT, created=800, scheduler=GANG_SCHEDULER)
        found += cluster.look(ago, *NODES, GROUP, *(away if turn % 2 else waits), other)
        (view,) = cluster.deriver.apply(Changes(), NOW - ago).gangs
        assert view.attention == (ago < 740)
    assert kinds(found) == ["unplaced"]


def test_it_is_told_anew_after_it_ran() -> None:
    """A gang that ran, and is placed in part again, is news again."""
    cluster = Told()
    cluster.look(890, *NODES, GROUP)
    assert kinds(cluster.look(600, *partial())) == ["incomplete"]
    runs = [
        ready(name, TIE, f"n{index}", since=500, created=800, scheduler=GANG_SCHEDULER)
        for index, name in enumerate("ab")
    ]
    assert kinds(cluster.look(490, *NODES, GROUP, *runs)) == ["assembled"]
    half = bound("c", TIE, "n0", since=300, created=310, scheduler=GANG_SCHEDULER)
    late = unscheduled("d", TIE, NO_GPU, created=310, scheduler=GANG_SCHEDULER)
    assert kinds(cluster.look(290, *NODES, GROUP)) == []
    assert kinds(cluster.look(200, *NODES, GROUP, half, late)) == ["incomplete"]


def test_what_was_so_before_the_check_is_not_told() -> None:
    """Beyond the grace at the first picture: the check before has told it. What becomes so afterwards is told."""
    assert Told().look(600, *partial()) == []
    fresh = Told()
    assert fresh.look(650, *partial()) == []
    assert kinds(fresh.look(630, *partial())) == ["incomplete"]


def test_a_deadlock_is_told_of_each_gang_once() -> None:
    """Two gangs that hold what the other needs."""
    cluster = Told()
    cluster.look(890, *NODES)
    both: list[Json] = []
    for index, name in enumerate(("left", "right")):
        tie = of_group(name)
        both += [pod_group(name, 2, created=800), bound(f"{name}-0", tie, f"n{index}", since=20, created=30, gpus=8)]
        both += [unscheduled(f"{name}-1", tie, NO_GPU, created=30, gpus=8)]
    found = cluster.look(5, *NODES, *both)
    assert [(note.kind, note.name) for note in found] == [("deadlocked", "team/left"), ("deadlocked", "team/right")]
    assert cluster.look(1, *NODES, *both) == []


def test_a_node_that_lost_its_label() -> None:
    """Only labels of a Topology count, and only nodes that had them."""
    cluster = Told()
    racks = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": "racks"}}
    topology = {**racks, "spec": {"levels": [{"nodeLabel": "rack"}]}}
    labelled = [node("n0", labels={"rack": "r1", "other": "x"}), node("n1", labels={"other": "x"})]
    assert cluster.look(60, topology, *labelled) == []
    assert cluster.look(45, topology, node("n0", labels={"rack": "r1"}), node("n1")) == []
    assert cluster.look(30, topology, node("n0"), node("n1")) == [Note("unlabelled", "n0", NOW - 30, detail="rack")]


def test_sources_that_go_down_and_come_back() -> None:
    """Each once, also when one is down from the beginning: what cannot be seen is news to whoever reads it."""
    teller = Teller(60)
    up, down = [("pods", "ok", True)], [("pods", "unreachable", False)]
    assert teller.sources(up, 1) == []
    assert teller.sources(down, 2) == [Note("source_down", "pods", 2, detail="unreachable")]
    assert teller.sources(down, 3) == []
    assert teller.sources(up, 4) == [Note("source_back", "pods", 4)]


def test_the_history_of_the_docs() -> None:
    """Each kind of event of a gang comes once in the history, running twice: it was admitted twice."""
    sent = [event["event_type"] for _, found in told() for event in found]
    assert sent == [
        f"kueue_gang.{kind}" for kind in ("unplaced", "incomplete", "assembled", "degraded", "evicted", "assembled")
    ]


def test_an_event_as_the_agent_takes_it() -> None:
    """Title, text with the laggard, type, time of the API, key of the thread, tags without names of pods."""
    event = next(event for _, found in told() for event in found if event["event_type"] == "kueue_gang.incomplete")
    assert event["msg_title"] == "Gang team/llama holds GPUs and is not complete"
    assert event["alert_type"] == "error"
    assert event["timestamp"] == int(NOW - 3000)
    assert event["aggregation_key"] == "gpu-prod-1/team/llama"
    assert "llama-1 is unschedulable" in event["msg_text"]
    assert "1 other member holds 8 GPUs" in event["msg_text"]
    assert event["tags"] == [
        "gang:llama", "kube_namespace:team", "kueue_local_queue:team-queue", "kueue_cluster_queue:cq",
        "gang_engine:coscheduling",
    ]  # fmt: skip


@pytest.mark.parametrize("number", [MAX_EVENTS, MAX_EVENTS + 1, 1000])
def test_at_most_fifty_a_run(number: int) -> None:
    """Of more one event tells how many were left out."""
    notes = [Note("source_back", f"source-{index}", NOW) for index in range(number)]
    sent = list(events(notes, None, lambda: None, EventOptions(), NOW))
    assert len(sent) == min(number, MAX_EVENTS) + (number > MAX_EVENTS)
    if number > MAX_EVENTS:
        assert sent[-1]["msg_title"].startswith(f"{number - MAX_EVENTS} more events")


def test_each_kind_has_a_text() -> None:
    """No kind of note is without a title."""
    notes = [Note(kind, "team/train", NOW, detail="7") for kind in KINDS]
    assert len({event["msg_title"] for event in events(notes, None, lambda: None, EventOptions(), NOW)}) == len(KINDS)
