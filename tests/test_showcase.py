# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The cluster of the fleet that has every option of the check: what its story says is what the check sends."""

import pytest

from lab.preview import stories
from lab.timeline import Moment, Timeline

#: Seconds from run to run.
EACH = 60.0


@pytest.fixture(name="played", scope="module")
def fixture_played() -> Timeline:
    """Return the story, as far as the fleet shows it."""
    return stories.told(stories.SHOWCASE, stories.moment(stories.FLEET), interval=EACH)


@pytest.fixture(name="last", scope="module")
def fixture_last(played: Timeline) -> Moment:
    """Return its last moment, 0:54."""
    return played.moments[-1]


def test_a_weak_pod_group_is_unguarded(last: Moment) -> None:
    """`tuner` has four members, and its PodGroup demands two: `least` of the scenario."""
    assert [one.tags for one in last.of("gangs.unguarded") if one.value] == [
        ("gang_engine:coscheduling", "kube_cluster_name:akita", "reason:min_member")
    ]
    assert last.total("gang.required", "gang:tuner") == 2


def test_a_train_job_tells_how_far_it_is(played: Timeline, last: Moment) -> None:
    """`vlm` began at -0:27 and lasts three hours: 27 minutes are 15 %, and 81 minutes 45 %, told in whole percent."""
    first = next(moment for moment in played.moments if moment.of("gang.progress", "gang:vlm"))
    assert first.total("gang.progress", "gang:vlm") == pytest.approx(15, abs=1)
    assert last.total("gang.progress", "gang:vlm") == pytest.approx(44, abs=1)
    # That of `llm-70b` is told while it runs, which it does not any more.
    assert not last.of("gang.progress", "gang:llm-70b")
    assert not last.of("gang.progress", "gang:retrieval")


def test_what_hangs_is_idle_and_stalled(last: Moment) -> None:
    """All four members of `vlm` do nothing, eight GPUs each."""
    assert last.by("gang.gpus_idle", "gang") == {"vlm": 32, "llm-70b": 64}
    assert last.by("gangs.stalled", "stall_reason") == {"all_idle": 1}


def test_what_lost_a_member_is_degraded(last: Moment) -> None:
    """Seven of eight are left; the eighth terminates on a machine that does not answer."""
    assert last.by("gpus.idle", "idle_reason") == {"degraded": 56, "inactive": 32, "terminating": 8}
    assert [one for one in last.of("gang.state_seconds", "gang:llm-70b", "gang_state:degraded") if one.value > 900]


def test_what_never_starts_is_deactivated(played: Timeline, last: Moment) -> None:
    """`dubbing` is evicted twice, with two of its three members up, and then Kueue gives up."""
    assert last.by("workloads", "workload_stage").get("deactivated") == 1
    evicted = [moment.by("workloads.evicted", "gang_partial") for moment in played.moments]
    assert sum(one.get("true", 0) for one in evicted) == 2


def test_what_is_spread_wide_is_told(last: Moment) -> None:
    """`retrieval` asked for no place and lies in two racks, where one of four nodes would hold it."""
    rack = ("gang:retrieval", "topology_level:cloud.provider.com/topology-rack")
    assert last.total("gang.topology_domains", *rack) == 2
    assert last.total("gang.topology_domains_needed", *rack) == 1


def test_idle_gpus_cost(last: Moment) -> None:
    """96 GPUs are idle for the minute of this run, at 2.5 an hour: 4 in its currency."""
    assert last.total("gpus.idle_cost") == pytest.approx(96 * 2.5 * EACH / 3600)
