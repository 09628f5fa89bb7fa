# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Laws of blockers on clusters and lives drawn at random, by the generators of the other laws."""

from collections import Counter

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from datadog_checks.kueue_gang.derive.blockers import NAMES
from datadog_checks.kueue_gang.derive.picture import Picture
from datadog_checks.kueue_gang.derive.rules import Rules
from tests.model.build import Json
from tests.model.test_events import BEGINNINGS, EVENTS, RULES, Event, Life
from tests.model.test_laws import LAW, World, worlds

#: What is written in the model, not taken from the code.
NOT_BLOCKED = {"running", "finishing", "stopping", "orphan"}
#: Blockers that only a look at the nodes can tell.
OF_NODES = {"exceeds_node", "not_retried", "capacity", "node_labels", "fragmentation"}

NO_QUEUES = {"localqueues": "forbidden", "clusterqueues": "forbidden"}


def hold(picture: Picture) -> None:
    """Assert that the gangs that something keeps from running have one blocker each, and no others have one."""
    blockers = picture.verdicts.blockers
    assert set(blockers) == {view.key for view in picture.views if view.state and view.state not in NOT_BLOCKED}
    assert set(blockers.values()) <= set(NAMES)
    counted = Counter((view.queue, blockers[view.key]) for view in picture.views if view.key in blockers)
    assert dict(picture.verdicts.blocked) == dict(counted)
    assert picture.verdicts.deadlocked <= set(blockers)


@LAW
@given(worlds())
def test_each_gang_that_does_not_run_has_one_blocker(world: World):
    """Every gang whose state is not running, finishing, stopping or orphan has exactly one blocker, no other has one.

    A gang without a state (what it requires cannot be known) has none. Those of each queue are counted by blocker.
    """
    hold(world.look().picture)


@LAW
@given(worlds())
def test_without_nodes_nothing_is_said_of_them(world: World):
    """Where the nodes cannot be read, each gang still has a blocker, and none that takes the nodes; no deadlock."""
    picture = world.look(unread={"nodes": "forbidden"}).picture
    hold(picture)
    assert not set(picture.verdicts.blockers.values()) & OF_NODES
    assert not picture.verdicts.deadlocked


@LAW
@given(worlds())
def test_without_pods_nothing_is_said(world: World):
    """Where the pods cannot be read, nothing is known of any gang: no blocker and no deadlock are claimed."""
    verdicts = world.look(unread={"pods": "forbidden"}).picture.verdicts
    assert (dict(verdicts.blockers), dict(verdicts.blocked), verdicts.deadlocked) == ({}, {}, frozenset())


@LAW
@given(worlds())
def test_without_queues_none_is_missing(world: World):
    """Where LocalQueues and ClusterQueues cannot be read, no gang is misconfigured unless a text says so."""
    picture = world.look(unread=NO_QUEUES).picture
    assert "misconfigured" not in picture.verdicts.blockers.values()


@LAW
@given(worlds())
def test_deadlocked_gangs_hold_gpus_and_miss_no_pod(world: World):
    """Each deadlocked gang holds or reserves GPUs, and all its pods exist; their GPUs are added; one is never alone."""
    picture = world.look().picture
    deadlocked = [view for view in picture.views if view.key in picture.verdicts.deadlocked]
    assert len(deadlocked) != 1 or _others_hold(picture)
    held: Counter[str] = Counter()
    for view in deadlocked:
        assert view.missing == 0
        assert sum(view.allocated.values()) + sum(view.reserved.values()) > 0
        held.update(view.reserved)
    assert all(picture.verdicts.deadlocked_gpus[resource] >= amount for resource, amount in held.items())


def _others_hold(picture: Picture) -> bool:
    """Tell whether a gang that is not deadlocked holds GPUs in vain: it may be what another waits for."""
    return any(
        view.key not in picture.verdicts.deadlocked and view.key in picture.verdicts.blockers and view.allocated
        for view in picture.views
    )


def test_a_life_keeps_the_law():
    """After each event of a life, with every kind of option: one blocker for each gang that does not run."""

    @seed(7)
    @settings(max_examples=120, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(RULES), BEGINNINGS, EVENTS)
    def live(rules: Rules, beginning: tuple[Json, ...], events: list[Event]):
        life = Life(rules, beginning)
        for event in events:
            event(life)
            picture = life.look()
            if picture.pods_known:
                hold(picture)

    live()


def test_the_worlds_reach_many_blockers():
    """Guards the laws above: the clusters have gangs with blockers of every kind."""
    found: set[str] = set()

    @LAW
    @given(worlds())
    def look(world: World):
        found.update(world.look().picture.verdicts.blockers.values())
        found.update(world.look(unread=NO_QUEUES).picture.verdicts.blockers.values())

    look()
    assert {"quota", "gated", "missing_pods", "capacity", "not_retried", "misconfigured"} <= found
