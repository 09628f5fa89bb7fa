# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Laws of what happened between two pictures, held for lives of clusters made at random.

What happened takes the picture before, so there is no full derivation to compare with: `derive`, and every check that
begins, tells nothing. What holds instead: it depends on what changed alone, neither on how much was looked at again nor
on the order in which changes came, and no time and no amount is negative.
"""

import random
from dataclasses import fields
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from datadog_checks.kueue_gang.derive.deriver import Deriver, derive
from datadog_checks.kueue_gang.derive.picture import Happenings
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.derive.transitions import Memory
from datadog_checks.kueue_gang.facts.cluster import Changes, Cluster
from tests.model.build import (
    NO_GPU,
    NOW,
    SOURCES,
    TIMEOUT,
    Json,
    bound,
    new,
    node,
    of_group,
    of_workload,
    pod_group,
    podset,
    ready,
    unscheduled,
    workload,
)
from tests.model.test_laws import LAW, OUTAGES, PAUSES, Life, World, worlds

SEEDS = st.integers(0, 2**32)
#: Lives that fail are too large to be made small; the seeds make them come again.
LIVES = settings(parent=LAW, max_examples=60, phases=(Phase.generate,))


#: How a member may be found, and the Workload of a gang: admitted twice, evicted, ready, lost.
MEMBERS = (
    lambda _name, _tie: None,
    new,
    lambda name, tie: unscheduled(name, tie, NO_GPU),
    lambda name, tie: unscheduled(name, tie, TIMEOUT),
    lambda name, tie: bound(name, tie, "n0"),
    lambda name, tie: ready(name, tie, "n0"),
    lambda name, tie: ready(name, tie, "n0"),
)
STEPS: tuple[dict[str, Any], ...] = (
    {},
    {"admitted": 400},
    {"admitted": 400, "pods_ready": ("True", 300, "Started")},
    {"admitted": 400, "pods_ready": ("False", 250, "WaitForRecovery")},
    {"admitted": 400, "evicted": ("True", 200, "Preempted")},
    {"evicted": ("True", 200, "Preempted"), "requeued": ("True", 190, "Preempted")},
    {"admitted": 100, "evicted": ("False", 100, "QuotaReserved")},
    {"admitted": 100, "finished": 20},
)


@st.composite
def gangs(draw: st.DrawFn) -> World:
    """Return a cluster with a gang of Coscheduling and one of Kueue, of two members each, somewhere in their lives."""
    objects: list[Json | None] = [node("n0", 32), pod_group("train", 2)]
    for name, tie in (("train", of_group("train")), ("wl", of_workload("wl"))):
        objects += [draw(st.sampled_from(MEMBERS))(f"{name}-{rank}", tie) for rank in range(2)]
    wl = workload("wl", ("JobSet", "js"), podset(2), **draw(st.sampled_from(STEPS)))
    if number := draw(st.integers(0, 3)):
        wl["status"]["schedulingStats"] = {"evictions": [{"reason": "Preempted", "count": number}]}
    return World([obj for obj in (*objects, wl) if obj is not None])


#: Lives of big clusters, and of two gangs.
WORLDS = st.one_of(*(st.lists(kind, min_size=2, max_size=4) for kind in (worlds(), gangs())))


def happened(found: Happenings) -> dict[str, Any]:
    """Return what happened in a form that does not depend on order."""
    said = {one.name: getattr(found, one.name) for one in fields(found)}
    return {
        name: sorted(told, key=repr)
        if isinstance(told, list)
        else {key: sorted(value) if isinstance(value, list) else value for key, value in told.items() if value}
        for name, told in said.items()
    }


def everything(changes: Changes, cluster: Cluster, chance: random.Random) -> Changes:
    """Return the same changes in another order, with all that is as it was as changes that change nothing."""
    said: dict[str, Any] = {}
    for field in dict(SOURCES.values()).values():
        found = [*getattr(changes, field)]
        changed = {id(new) for _, new in found}
        found += [(fact, fact) for fact in getattr(cluster, field) if id(fact) not in changed]
        chance.shuffle(found)
        said[field] = found
    return Changes(**said, scheduler=changes.scheduler, unread=changes.unread)


def part(world: World, chance: random.Random) -> list[Json]:
    """Return some objects of a cluster."""
    share = chance.choice((0.3, 0.8, 1.0))
    return [obj for obj in world.objects if chance.random() < share]


@LIVES
@given(WORLDS, SEEDS)
def test_what_happened_depends_on_what_changed_alone(found: list[World], seed: int) -> None:
    """A check that looks at everything again tells the same as one that takes what changed, in any order."""
    chance, rules, now = random.Random(seed), Rules(), NOW
    life, deriver, again, memory = Life(rules), Deriver(rules), Deriver(rules), Memory()
    for number, world in enumerate([*found, *found]):
        changes, cluster = life.read(part(world, chance), chance.choice(OUTAGES), world.count)
        now += chance.choice(PAUSES)
        mine = happened(deriver.apply(changes, now).happened)
        assert mine == happened(again.apply(everything(changes, cluster, chance), now).happened)
        if not number:
            assert not any(mine.values())
        whole, memory = derive(cluster, rules, memory, now)
        assert not any(happened(whole.happened).values())


@LIVES
@given(WORLDS, SEEDS)
def test_nothing_is_negative_and_nothing_happens_by_looking(found: list[World], seed: int) -> None:
    """No duration and no amount is below 0; a picture of the same objects at the same time tells of nothing new."""
    chance, rules, now = random.Random(seed), Rules(), NOW
    life, deriver = Life(rules), Deriver(rules)
    for world in [*found, *found]:
        changes, _ = life.read(part(world, chance), None, world.count)
        now += chance.choice(PAUSES)
        for told in happened(deriver.apply(changes, now).happened).values():
            # What is told of single gangs holds times and texts only.
            for value in told.values() if isinstance(told, dict) else ():
                assert min(value) >= 0 if isinstance(value, list) else value > 0
        quiet = deriver.apply(Changes(scheduler=changes.scheduler), now)
        assert not any(happened(quiet.happened).values())


@LAW
@given(worlds(), st.sampled_from(PAUSES))
def test_a_new_check_tells_nothing(world: World, pause: int) -> None:
    """The first picture of a check is of what is there, and the second, of the same objects, has no news."""
    rules = Rules()
    life, deriver = Life(rules), Deriver(rules)
    changes, _ = life.read(world.objects, None, world.count)
    assert not any(happened(deriver.apply(changes, NOW).happened).values())
    assert not any(happened(deriver.apply(Changes(scheduler=changes.scheduler), NOW + pause).happened).values())


def test_lives_reach_every_kind_of_event() -> None:
    """Guards the laws above: in the lives gangs assemble, are rejected and burn, Workloads move on and are evicted."""
    told: set[str] = set()

    @settings(parent=LIVES, max_examples=60)
    @given(WORLDS, SEEDS)
    def live(found: list[World], seed: int) -> None:
        chance, rules = random.Random(seed), Rules()
        life, deriver = Life(rules), Deriver(rules)
        for number, world in enumerate([*found, *found]):
            changes, _ = life.read(part(world, chance), None, world.count)
            told.update(
                name for name, value in happened(deriver.apply(changes, NOW + number).happened).items() if value
            )

    live()
    assert told == {one.name for one in fields(Happenings)}
