# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The fit engine asked directly, against a search through every placement: what small clusters of API objects lack.

Several kinds of pods at once, groups that must be together at several levels of a topology, pods that name their host,
node affinity, and questions about what would be.
"""

from collections.abc import Callable
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datadog_checks.kueue_gang.derive import packing
from datadog_checks.kueue_gang.derive.fit import Ask, Fits
from datadog_checks.kueue_gang.derive.fleet import LATER, NOW, SOON, Fleet, Room
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.facts.constraints import constraint
from datadog_checks.kueue_gang.facts.nodes import Node
from datadog_checks.kueue_gang.facts.pods import tolerations
from tests.model.build import GPU, Json, node, reducers, taint, toleration
from tests.model.exhaustive import HOSTNAME, Box, Machine, Taint, Toleration, Troop, placeable

LEVELS = ("block", "rack", HOSTNAME)
TIMES = (NOW, SOON, LATER)
PARTS, QUESTIONS = 4, 500
_TAINTS: tuple[Taint, ...] = (("dedicated", "a", "NoSchedule"), ("dedicated", "b", "NoExecute"))
_TOLERATIONS: tuple[Toleration, ...] = (("dedicated", "Exists", "", ""), ("dedicated", "Equal", "a", "NoSchedule"))
_REDUCE: Callable[[Json], Node] = reducers(Rules())["nodes"]
#: Each operator of node affinity as Kubernetes documents it, on a value that may be absent.
_HOLDS: dict[str, Callable[[str | None, list[str]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: value is not None and int(value) > int(values[0]),
    "Lt": lambda value, values: value is not None and int(value) < int(values[0]),
}


def _machine(random: Random, name: str) -> Machine:
    labels = [(HOSTNAME, name)]
    for key, values in (("block", "pq"), ("rack", "rs"), ("pool", "ab"), ("size", "123")):
        if random.random() < 0.9:
            labels.append((key, random.choice(values)))
    tainted = random.random() < 0.2
    return Machine(
        name,
        8,
        8,
        tuple(labels),
        (random.choice(_TAINTS),) if tainted else (),
        cordoned=random.random() < 0.05,
        ready=random.random() > 0.05,
    )


def _node(machine: Machine) -> Node:
    return _REDUCE(
        node(
            machine.name,
            machine.capacity,
            ready_status="True" if machine.ready else "False",
            cordoned=machine.cordoned,
            taints=[taint(*one) for one in machine.taints],
            labels=dict(machine.labels),
        )
    )


def _room(times: tuple[int, ...]) -> Room:
    now, soon, later = times
    return ((GPU, (now, soon, later)),)


def _times(random: Random) -> tuple[int, ...]:
    return tuple(sorted(random.choices((0, 2, 3, 4, 5, 6, 7, 8, 8, 8), k=3)))


def _affinity(random: Random, names: list[str]) -> tuple[Json, Callable[[Machine], bool]]:
    """Return a required node affinity and what it means."""
    terms: list[tuple[list[tuple[str, str, list[str]]], list[str]]] = []
    for _ in range(random.randint(1, 2)):
        expressions = []
        for _ in range(random.choice((0, 1, 1, 2))):
            key = random.choice(("rack", "pool", "size", HOSTNAME))
            operator = random.choice((*_HOLDS,) if key == "size" else ("In", "NotIn", "Exists", "DoesNotExist"))
            values = {"rack": ["r", "s"], "pool": ["a", "b"], "size": ["1", "2", "3"], HOSTNAME: names}[key]
            number = 0 if "xist" in operator else 1 if operator in {"Gt", "Lt"} else random.randint(1, len(values))
            expressions.append((key, operator, random.sample(values, number)))
        terms.append((expressions, [random.choice(names)] if random.random() < 0.15 else []))
    spec = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {
            "matchExpressions": [{"key": one[0], "operator": one[1], "values": one[2]} for one in found],
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": field}] if field else [],
        }
        for found, field in terms
    ]}}}  # fmt: skip

    def means(machine: Machine) -> bool:
        # A term without any expression holds nowhere.
        return any(
            bool(found or field)
            and all(_HOLDS[operator](machine.label(key), values) for key, operator, values in found)
            and (not field or machine.name in field)
            for found, field in terms
        )

    return spec, means


def _together(random: Random, pods: int) -> tuple[tuple[int, int], ...]:
    part = random.choice([size for size in range(1, pods + 1) if pods % size == 0])
    return random.choice((
        (), ((1, pods),), ((2, pods),), ((3, pods),), ((1, pods), (2, part)), ((2, pods), (3, part)), ((2, part),),
        ((1, part), (3, 1)), ((1, pods), (2, part), (3, 1)),
    ))  # fmt: skip


def _troop(random: Random, pods: int, names: list[str]) -> tuple[Ask, Troop]:
    """Return some equal pods, as the engine is asked and as the search is."""
    spec: Json = {}
    selector = {"pool": random.choice("ab")} if random.random() < 0.2 else {}
    if random.random() < 0.1:
        selector[HOSTNAME] = random.choice(names) if random.random() < 0.9 else "gone"
    affinity = None
    if random.random() < 0.25:
        spec["affinity"], affinity = _affinity(random, names)
    wanted = (random.choice(_TOLERATIONS),) if random.random() < 0.5 else ()
    spec["nodeSelector"] = selector
    spec["tolerations"] = [toleration(key, value, operator, effect) for key, operator, value, effect in wanted]
    gpus = random.choice((1, 1, 2, 2, 3, 4, 5, 8))
    levels = LEVELS if random.random() < 0.5 else ()
    together = _together(random, pods) if levels else ()
    box = Box("", gpus, "", tuple(selector.items()), wanted, affinity=affinity)
    ask = Ask(pods, ((GPU, gpus),), constraint(spec), tolerations(spec), levels, together)
    return ask, Troop(box, pods, levels, together)


class Question:
    """A fleet, asks, and what a search says of them at each time."""

    def __init__(self, seed: int, kinds: int) -> None:
        """Draw it."""
        random = Random(seed)
        names = [f"n{index}" for index in range(random.randint(1, 5))]
        self.machines = tuple(_machine(random, name) for name in names)
        self.times = [_times(random) for _ in names]
        self.fleet = Fleet()
        self.fits = Fits(self.fleet)
        for machine, times in zip(self.machines, self.times, strict=True):
            self.fleet.put(machine.name, _node(machine), _room(times))
        drawn = [_troop(random, random.randint(1, 4 if kinds == 1 else 2), names) for _ in range(kinds)]
        self.asks = tuple(ask for ask, _ in drawn)
        self.troops = [troop for _, troop in drawn]

    def right(self, when: int) -> bool:
        """Search."""
        return placeable(self.troops, self.machines, tuple(times[when] for times in self.times))

    def told(self) -> list[Any]:
        """Return everything that the engine says."""
        return [
            [self.fits.fits(self.asks, when) for when in TIMES],
            [[self.fits.room_for(ask, when) for when in TIMES] for ask in self.asks],
            self.fits.enough(self.asks),
            self.fits.exceeds(self.asks),
            [sorted(self.fits.lacking(ask), key=repr) for ask in self.asks],
        ]


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kinds", [1, 2, 3])
def test_pods_fit_where_a_search_finds_a_place(kinds: int, part: int):
    """Whether pods fit is exact for one kind of pods, and for several on a cluster of a few nodes."""
    yes = 0
    for seed in range(part * QUESTIONS, (part + 1) * QUESTIONS):
        question = Question(seed, kinds)
        for when in TIMES:
            right = question.right(when)
            assert question.fits.fits(question.asks, when) == right, f"question {seed} of {kinds} kinds at time {when}"
            yes += right
    # The questions are of no use if one answer is rare.
    assert 0.1 < yes / QUESTIONS / len(TIMES) < 0.9


def test_packing_that_gives_up_early_never_promises_a_place(monkeypatch, record_property):
    """Where not every placement is tried, as on a large cluster, "fits" is right and "does not fit" rarely wrong.

    The pods of these questions are large for their nodes, choosy, and half of them must be together, which is harder
    than what clusters have. Over 12,000 such questions a place was missed for 4 to 6 of 100 placeable ones, three in
    four of these with pods that must be together; the bound is twice that.
    """
    monkeypatch.setattr(packing, "_FEW_NODES", 0)
    possible = wrong = 0
    for seed in range(3000):
        question = Question(seed, 2 + seed % 2)
        right, told = question.right(NOW), question.fits.fits(question.asks, NOW)
        assert right or not told, f"question {seed}"
        possible += right
        wrong += right and not told
    record_property("false_misfits", f"{wrong} of {possible}")
    print(f"\nwrong 'does not fit' of the packing alone: {wrong} of {possible}")  # noqa: T201 - a rate
    assert possible > 150
    assert wrong / possible < 0.1


@settings(max_examples=100, deadline=None, database=None)
@given(st.integers(0, 2**32), st.integers(1, 3))
def test_what_is_supposed_leaves_no_trace(seed: int, kinds: int):
    """Other rooms, other nodes and other labels for a while: answers meanwhile are right, and afterwards as before."""
    question, other = Question(seed, kinds), Question(seed + 1, 1)
    before = question.told()
    machines, times = question.machines, question.times
    changed = [(*other.machines, *machines)[: len(machines)], (*other.times, *times)[: len(times)]]
    with ExitStack() as stack:
        changes = zip(*changed, strict=True)
        stack.enter_context(question.fleet.supposing({one.name: (_node(one), _room(at)) for one, at in changes}))
        # The names are those of the same nodes: later ones win.
        final = {one.name: (one, at) for one, at in zip(*changed, strict=True)}
        now = {**{one.name: (one, at) for one, at in zip(machines, times, strict=True)}, **final}
        question.machines, question.times = tuple(one for one, _ in now.values()), [at for _, at in now.values()]
        labels = {question.machines[0].name: {"rack": "r", "block": "p"}}
        for when in TIMES:
            assert question.fits.fits(question.asks, when) == question.right(when)
        with question.fleet.relabelled(labels):
            first, *rest = question.machines
            relabelled = dict(first.labels) | labels[first.name]
            question.machines = (
                Machine(first.name, 8, 8, tuple(relabelled.items()), first.taints, first.cordoned, first.ready),
                *rest,
            )
            for when in TIMES:
                assert question.fits.fits(question.asks, when) == question.right(when)
    assert question.told() == before


def test_a_host_without_a_level_label_is_no_place_for_pods_that_name_it():
    """Kueue drops a node that lacks any level label, also one that the pods name; with the label they would fit."""
    fleet = Fleet()
    fits = Fits(fleet)
    fleet.put("n0", _node(Machine("n0", 8, 8, ((HOSTNAME, "n0"),))), _room((8, 8, 8)))
    spec = {"nodeSelector": {HOSTNAME: "n0"}}
    ask = Ask(2, ((GPU, 4),), constraint(spec), levels=("rack", HOSTNAME), together=((1, 2),))
    assert not fits.fits((ask,))
    assert fits.enough((ask,))
    with fleet.relabelled({"n0": {"rack": "r"}}):
        assert fits.fits((ask,))
