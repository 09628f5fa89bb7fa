# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What the check tells of the time between recorded moments of real clusters, worked out by hand from their objects.

One check sees the moments of a scenario in their order. What happened between two of them, how far Workloads are and
for how long, is in `STORIES`, each number with the times of the objects that give it. A new check between any two
moments tells of all later ones the same, and of the gap nothing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import cycle, islice
from typing import Any, NamedTuple

import pytest
from datadog_checks.base.stubs.aggregator import AggregatorStub

from lab.replay import CAPTURES, Recording
from lab.tags import TAGS
from tests.played import Clock, play, story
from tests.sent import Sent

#: Metric of what happened -> the tags that its key has in `STORIES`, after the namespace.
HAPPENED: Mapping[str, tuple[str, ...]] = {
    "gangs.assembled": (),
    "gangs.assembly_seconds.sum": (),
    "gangs.rejected": ("reason",),
    "workloads.evicted": ("kueue_eviction_reason", "underlying_cause", "gang_partial"),
    "workloads.stage_seconds.count": ("workload_stage",),
    "workloads.stage_seconds.sum": ("workload_stage",),
    "gpus.burned_seconds": ("reason",),
}
#: Four intervals of 15 s.
MOST = 60.0


class Moment(NamedTuple):
    """What is right at a moment.

    `waits` are the ages of the Workloads of a stage, by namespace and stage, oldest first; `happened` is by metric, and
    by namespace and tags.
    """

    waits: Mapping[tuple[str, str], list[float]] = {}
    happened: Mapping[str, Mapping[tuple[str, ...], float]] = {}


def rejected(namespace: str, reason: str) -> dict[str, Any]:
    """Return one rejection."""
    return {"gangs.rejected": {(namespace, reason): 1}}


def stages(namespace: str, **seconds: float) -> dict[str, Any]:
    """Return one Workload that reached stages, with what it took to each."""
    return {
        "workloads.stage_seconds.count": {(namespace, stage): 1 for stage in seconds},
        "workloads.stage_seconds.sum": {(namespace, stage): took for stage, took in seconds.items() if took},
    }


STORIES: Mapping[str, list[Moment]] = {
    # Ten members of 8 GPUs, of which nine fit; the Permit timeout is 15 s. The same text again leaves
    # no trace but Events.
    "1-permit-wait": [
        Moment(),
        # Timed out at 23:06:53: one member says so, eight were rejected in Unreserve with it.
        Moment(happened=rejected("ml-research", "permit_timeout")),
        Moment(),
        # Again at 23:07:08: another member says that it timed out, and the tenth that it was rejected in Unreserve.
        Moment(happened=rejected("ml-research", "permit_timeout")),
        Moment(),
        # After PostFilter at 23:07:23, of which the conditions say nothing any more, and timed out at 23:07:38. A
        # twelfth node came; texts of the filter are no rejection.
        Moment(happened={"gangs.rejected": {("ml-research", "postfilter"): 1, ("ml-research", "permit_timeout"): 1}}),
        # Timed out at 23:07:53, 23:08:08, 23:08:23 and 23:08:38; of the third one a member's series goes on.
        Moment(happened={"gangs.rejected": {("ml-research", "permit_timeout"): 4}}),
    ],
    # Admitted 23:15:55, three of five members bound in the same second: 24 GPUs. PodsReadyTimeout at 23:16:25.
    "4-kueue-partial": [
        Moment({("nlp", "admitted"): [4]}),
        Moment(
            {("nlp", "evicting"): [0]},
            {
                "workloads.evicted": {("nlp", "pods_ready_timeout", "wait_for_start", "true"): 1},
                "gpus.burned_seconds": {("nlp", "evicted"): 24 * 30},
            },
        ),
        # Waits since its eviction at 23:16:25; what was evicting is told once.
        Moment({("nlp", "pending"): [4]}),
        # The backoff ended at 23:16:45 (Requeued), and it had quota and was admitted in the same second.
        Moment({("nlp", "admitted"): [3]}, stages("nlp", quota_reserved=0, admitted=0)),
    ],
    # bulk-embed and reindex were admitted at 23:23:04 and bound in that second, with 32 and 8 GPUs.
    "9-preempt": [
        Moment({("embeddings", "admitted"): [4], ("archive", "admitted"): [4]}),
        # bulk-embed was evicted at 23:23:09, for the hotfix that was created in that second.
        Moment(
            {("embeddings", "evicting"): [0], ("embeddings", "pending"): [0], ("archive", "admitted"): [5]},
            {
                "workloads.evicted": {("embeddings", "preempted", "none", "true"): 1},
                "gpus.burned_seconds": {("embeddings", "evicted"): 32 * 5},
            },
        ),
        # The hotfix: admitted 23:23:10, both members Ready 23:23:11, PodsReady 23:23:12. bulk-embed was requeued :10.
        Moment(
            {("embeddings", "ready"): [2], ("embeddings", "pending"): [4], ("archive", "admitted"): [10]},
            {
                "gangs.assembled": {("embeddings",): 1},
                "gangs.assembly_seconds.sum": {("embeddings",): 1},
                **stages("embeddings", quota_reserved=1, admitted=0, ready=2),
            },
        ),
        # The ClusterQueue of reindex was stopped at 23:23:15: both members were bound for 11 s and pulled images.
        Moment(
            {("embeddings", "ready"): [3], ("embeddings", "pending"): [5], ("archive", "evicting"): [0]},
            {
                "workloads.evicted": {("archive", "cluster_queue_stopped", "none", "true"): 1},
                "gpus.burned_seconds": {("archive", "evicted"): 8 * 11},
            },
        ),
        Moment({("embeddings", "ready"): [8], ("embeddings", "pending"): [10], ("archive", "pending"): [5]}),
    ],
    "3-degraded": [
        # sft-8b: PodsReady since 23:13:58.
        Moment({("rl-team", "ready"): [1]}),
        # It lost a pod at 23:14:10. Of ppo-actors one new pod did not find enough siblings, and another one of its own
        # set off the rejection after PostFilter: that is one rejection, with the first of its reasons.
        Moment({("rl-team", "admitted"): [14]}, rejected("rl-team", "postfilter")),
    ],
    # Another replica of Kueue takes over: nothing happens to the Workloads. grasp and lift are ready since 23:34:01,
    # too-much waits since 23:33:58.
    "12-ha": [
        Moment({("robot-arm", "ready"): [12, 12], ("robot-arm", "pending"): [15]}),
        Moment({("robot-arm", "ready"): [15, 15], ("robot-arm", "pending"): [18]}),
        Moment({("robot-arm", "ready"): [30, 30], ("robot-arm", "pending"): [33]}),
    ],
}
GAPS = [(name, number) for name, found in STORIES.items() for number in range(1, len(found))]


@pytest.fixture(name="clock")
def fixture_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock of the check."""
    return Clock(monkeypatch)


def happened(sent: Sent) -> dict[str, dict[tuple[str, ...], float]]:
    """Return what happened by metric, and by namespace and tags, without zeros."""
    told: dict[str, dict[tuple[str, ...], float]] = {}
    for name, tags in HAPPENED.items():
        for one in sent.series[name]:
            if one.value:
                key = one.tags["kube_namespace"], *(one.tags[tag] for tag in tags)
                told.setdefault(name, {})[key] = told.get(name, {}).get(key, 0) + one.value
    return told


def right(moment: Moment) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the same of what is right."""
    return {name: dict(told) for name, told in moment.happened.items() if told}


@pytest.mark.parametrize("name", STORIES)
def test_what_happened(aggregator: AggregatorStub, clock: Clock, name: str) -> None:
    """Between two moments happened what the objects say, and in each Workloads are where they are for so long."""
    for sent, moment in zip(play(aggregator, clock, story(name)), STORIES[name], strict=True):
        assert happened(sent) == right(moment)
        counted = {
            (one.tags["kube_namespace"], one.tags["workload_stage"]): one.value
            for one in sent.series["workloads"]
            if one.value
        }
        assert counted == {key: len(ages) for key, ages in moment.waits.items()}
        oldest = {
            (one.tags["kube_namespace"], one.tags["workload_stage"]): one.value
            for one in sent.series["workloads.oldest_wait_seconds"]
        }
        # The Date header has whole seconds.
        assert oldest == pytest.approx({key: max(ages) for key, ages in moment.waits.items()}, abs=0.1)


@pytest.mark.parametrize(("name", "gap"), GAPS)
def test_a_restart_loses_the_gap_and_repeats_nothing(
    aggregator: AggregatorStub, clock: Clock, name: str, gap: int
) -> None:
    """A new check tells of all that comes after what the old one would have told, and of the gap nothing."""
    for number, sent in enumerate(play(aggregator, clock, story(name), {gap})):
        assert happened(sent) == ({} if number == gap else right(STORIES[name][number]))
        lost = sent.series["gpus.idle_seconds"] + sent.series["gpus.allocated_seconds"] if number == gap else []
        assert lost == []


@pytest.mark.parametrize("name", STORIES)
def test_a_check_that_always_restarts_tells_nothing(aggregator: AggregatorStub, clock: Clock, name: str) -> None:
    """A check that only ever sees one moment tells of nothing that happened, however new it looks."""
    recordings = story(name)
    for sent in play(aggregator, clock, recordings, range(len(recordings))):
        assert happened(sent) == {}


def _sums(moments: Iterable[Mapping[str, Mapping[tuple[str, ...], float]]]) -> Counter[tuple[str, tuple[str, ...]]]:
    """Add up what happened, without whether a gang was partial: that is unknown where nobody saw its pods."""
    sums: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for told in moments:
        for metric, values in told.items():
            for key, value in values.items():
                sums[metric, key[:-1] if metric == "workloads.evicted" else key] += int(value)
    return sums


@pytest.mark.parametrize(
    ("name", "left_out"),
    [(name, number) for name in ("4-kueue-partial", "9-preempt") for number in range(1, len(STORIES[name]) - 1)],
)
def test_a_moment_that_nobody_saw_changes_no_sum(
    aggregator: AggregatorStub, clock: Clock, name: str, left_out: int
) -> None:
    """With any one moment between left out, all that happened adds up to the same, since all times are the API's.

    Of 4-kueue-partial without t3, an eviction is followed by the next admission: the three members that outlive the
    eviction burn nothing more. Without t2, what was burned still ends with the eviction.
    """
    seen = [recording for number, recording in enumerate(story(name)) if number != left_out]
    assert _sums(map(happened, play(aggregator, clock, seen))) == _sums(map(right, STORIES[name]))


@pytest.mark.parametrize("name", STORIES)
def test_gpu_seconds(aggregator: AggregatorStub, clock: Clock, name: str) -> None:
    """Idle, busy and other GPUs of the moment before, as the truth file counts them, times the seconds since then.

    At most four intervals of 15 s count: between t6 and t7 of 1-permit-wait lie 61 s.
    """
    recordings = story(name)
    before = None
    for recording, sent in zip(recordings, play(aggregator, clock, recordings), strict=True):
        if before is None:
            assert sent.series["gpus.idle_seconds"] == sent.series["gpus.allocated_seconds"] == []
        else:
            seconds = min(MOST, (recording.now - before.now).total_seconds())
            truth = before.truth["cluster"]
            idle = {reason: number * seconds for reason, number in truth["gpu_idle_by_reason"].items()}
            assert sent.by("gpus.idle_seconds", "idle_reason") == pytest.approx(idle)
            spent = sent.by("gpus.allocated_seconds", "gpu_use")
            assert sum(spent.values()) == pytest.approx(truth["gpu_allocated"] * seconds)
            assert spent.get("idle", 0) == pytest.approx(sum(idle.values()))
            assert spent.get("other", 0) == pytest.approx(truth["gpu_other"] * seconds)
        before = recording


def test_a_gang_that_flaps(aggregator: AggregatorStub, clock: Clock) -> None:
    """Nine members wait in Permit (t1) and are rejected (t4), again and again, every 15 s for ten minutes.

    The gang has series of its own throughout, one clock that goes on from the creation of its members at 23:06:38, and
    a rejection a timeout: its texts are new each time, for those that wait have none.
    """
    waiting, away = (Recording.open(CAPTURES / "1-permit-wait.tar.xz", moment) for moment in ("t1", "t4"))
    created = waiting.now.replace(second=38, microsecond=0)
    flaps = [
        replace(recording, now=created + timedelta(seconds=90 + 15 * number))
        for number, recording in enumerate(islice(cycle((waiting, away)), 41))
    ]
    states, rejections = [], 0.0
    for number, sent in enumerate(play(aggregator, clock, flaps, per_gang_metrics="attention")):
        (own,) = sent.of("gang.state_seconds", gang="llama-pretrain")
        assert own.value == pytest.approx(90 + 15 * number, abs=0.1)
        assert sent.of("gang.state_seconds", gang="tokenizer-ft") == []
        states.append(own.tags["gang_state"])
        assert sent.total("gangs.rejected") <= 1
        rejections += sent.total("gangs.rejected")
        assert happened(sent).keys() <= {"gangs.rejected"}
    assert states == [*islice(cycle(("waiting", "rejected")), 41)]
    assert rejections == 20


@pytest.mark.parametrize("name", STORIES)
def test_values_are_in_the_lists(aggregator: AggregatorStub, clock: Clock, name: str) -> None:
    """No tag of a metric of time has a value that its closed list does not have."""
    for sent in play(aggregator, clock, story(name)):
        for metric in (*HAPPENED, "workloads", "gpus.idle_seconds", "gpus.allocated_seconds"):
            closed = {tag.key: tag.values for tag in TAGS if tag.values and tag.metric in {"", metric}}
            for one in sent.series[metric]:
                assert all(value in closed.get(key, [value]) for key, value in one.tags.items()), (metric, one)
