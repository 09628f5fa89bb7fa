# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The gang scheduler's counters: what they say of pods that wait in Permit, and what they cannot say."""

import pytest
from datadog_checks.base import ConfigurationError

from datadog_checks.kueue_gang.sources.errors import SourceError
from datadog_checks.kueue_gang.sources.scheduler_metrics import SchedulerEndpoint, scheduler_metrics
from lab.replay import CAPTURES, Answer, Recording, ReplayServer, moments

COSCHED = "cosched-metrics-excerpt.prom"


def _recorded():
    """Return (scenario, moment) of each recording with the gang scheduler's lines."""
    for archive in sorted(CAPTURES.glob("[0-9]*.tar.xz")):
        for moment in moments(archive):
            if COSCHED in Recording.open(archive, moment).evidence:
                yield archive.name.removesuffix(".tar.xz"), moment


RECORDED = list(_recorded())


def _read(server, **options):
    return SchedulerEndpoint({"url": server.url + "/scheduler/metrics", **options}, timeout=2).read()


@pytest.mark.parametrize(("scenario", "moment"), RECORDED)
def test_waiting_is_what_the_schedulers_log_says(scenario, moment):
    """Entered minus ended is the number of pods that wait, exactly, in every recorded excerpt."""
    recording = Recording.open(CAPTURES / f"{scenario}.tar.xz", moment)
    with ReplayServer(recording) as server:
        metrics = _read(server)
    true = sum(
        gang["members"].get("waiting_permit", 0)
        for gang in recording.truth["gangs"]
        if gang["engine"] == "coscheduling"
    )
    assert metrics.permit_waiting == true


def test_there_are_recordings():
    """The test above has something to say."""
    assert len(RECORDED) >= 15


def test_numbers_by_hand():
    """1-permit-wait at t1, read by eye."""
    with ReplayServer(Recording.open(CAPTURES / "1-permit-wait.tar.xz", "t1")) as server:
        metrics = _read(server)
    assert metrics.entered == 11
    assert metrics.ended == {"Success": 2}
    assert metrics.permit_waiting == 9
    assert metrics.wait_seconds == {}
    assert metrics.attempts == 4
    assert metrics.profiles == {"scheduler-plugins-scheduler"}
    assert not metrics.places_pod_groups
    assert metrics.pending_pods == {"active": 0, "backoff": 0, "gated": 0, "unschedulable": 1}
    assert metrics.unschedulable_pods == {}
    assert metrics.assumed_pods is None
    assert metrics.minor is None


def test_a_scheduler_without_gangs():
    """The default scheduler of 8-deadlock: no wait ever began, so none is there."""
    with ReplayServer(Recording.open(CAPTURES / "8-deadlock.tar.xz", "t2")) as server:
        metrics = _read(server)
    assert (metrics.entered, metrics.ended, metrics.permit_waiting) == (0, {}, 0)
    assert (metrics.attempts, metrics.profiles) == (6, {"default-scheduler"})
    assert metrics.pending_pods["unschedulable"] == 2


FULL = """
# HELP kubernetes_build_info [BETA] A metric with a constant '1' value labeled by major, minor, git version.
# TYPE kubernetes_build_info gauge
kubernetes_build_info{build_date="2026-06-01",git_version="v1.36.2",major="1",minor="36"} 1
# TYPE scheduler_framework_extension_point_duration_seconds histogram
scheduler_framework_extension_point_duration_seconds_bucket{extension_point="Permit",profile="gang",le="0.0001"} 3
scheduler_framework_extension_point_duration_seconds_bucket{extension_point="Permit",profile="gang",le="+Inf"} 12
scheduler_framework_extension_point_duration_seconds_sum{extension_point="Permit",profile="gang",status="Wait"} 0.5
scheduler_framework_extension_point_duration_seconds_count{extension_point="Permit",profile="gang",status="Wait"} 12
scheduler_framework_extension_point_duration_seconds_count{extension_point="Permit",profile="other",status="Wait"} 3
scheduler_framework_extension_point_duration_seconds_count{extension_point="Permit",profile="gang",status="Success"} 100
scheduler_framework_extension_point_duration_seconds_count{extension_point="Reserve",profile="gang",status="Wait"} 1000
# TYPE scheduler_permit_wait_duration_seconds histogram
scheduler_permit_wait_duration_seconds_bucket{result="Success",le="0.001"} 0
scheduler_permit_wait_duration_seconds_sum{result="Success"} 30.25
scheduler_permit_wait_duration_seconds_count{result="Success"} 4
scheduler_permit_wait_duration_seconds_sum{result="Unschedulable"} 600
scheduler_permit_wait_duration_seconds_count{result="Unschedulable"} 5
# TYPE scheduler_schedule_attempts_total counter
scheduler_schedule_attempts_total{profile="gang",result="scheduled"} 40
scheduler_schedule_attempts_total{profile="gang",result="unschedulable"} 2
scheduler_schedule_attempts_total{profile="other",result="error"} 1
# TYPE scheduler_pending_pods gauge
scheduler_pending_pods{queue="active"} 7
# TYPE scheduler_unschedulable_pods gauge
scheduler_unschedulable_pods{plugin="Coscheduling",profile="gang"} 6
scheduler_unschedulable_pods{plugin="Coscheduling",profile="other"} 1
scheduler_unschedulable_pods{plugin="NodeResourcesFit",profile="gang"} 2
# TYPE scheduler_cache_size gauge
scheduler_cache_size{type="assumed_pods"} 8
scheduler_cache_size{type="pods"} 900
# TYPE scheduler_scheduler_cache_size gauge
scheduler_scheduler_cache_size{type="assumed_pods"} 99
"""


def test_a_full_exposition():
    """All that is wanted is found between the rest, summed over the labels that do not matter."""
    metrics = scheduler_metrics(FULL)
    assert metrics.entered == 15
    assert metrics.ended == {"Success": 4, "Unschedulable": 5}
    assert metrics.permit_waiting == 6
    assert metrics.wait_seconds == {"Success": 30.25, "Unschedulable": 600.0}
    assert metrics.attempts == 43
    assert metrics.profiles == {"gang", "other"}
    assert metrics.pending_pods == {"active": 7}
    assert metrics.unschedulable_pods == {"Coscheduling": 7, "NodeResourcesFit": 2}
    assert metrics.assumed_pods == 8
    assert metrics.minor == 36


def test_readings_can_be_compared():
    """Two readings of an idle scheduler are equal: that is how it is told that nothing moved in between."""
    assert scheduler_metrics(FULL) == scheduler_metrics(FULL)


def _with(old, new):
    assert old in FULL
    return scheduler_metrics(FULL.replace(old, new))


def test_the_older_name_of_the_cache():
    """Up to 1.32 the family had the prefix twice; 1.33 has both, and the new one counts."""
    old = "\n".join(line for line in FULL.splitlines() if not line.startswith("scheduler_cache_size"))
    assert scheduler_metrics(old).assumed_pods == 99


def test_a_standby_says_nothing():
    """A process that leads nothing has no attempts; its zeroes are no count."""
    text = 'scheduler_pending_pods{queue="active"} 0\n'
    assert scheduler_metrics(text).permit_waiting is None
    with_profile = text + 'scheduler_schedule_attempts_total{profile="gang",result="scheduled"} 0\n'
    assert scheduler_metrics(with_profile).permit_waiting is None
    assert scheduler_metrics(with_profile).profiles == {"gang"}


def test_more_ended_than_entered_says_nothing():
    """Counters that are out of step (a scrape in the middle of an update) give no number."""
    assert _with('result="Success"} 4', 'result="Success"} 400').permit_waiting is None


@pytest.mark.parametrize(("count", "places"), [(0, False), (1, True)])
def test_native_pod_groups(count, places):
    """Whether the process places native gangs is told by their attempts."""
    text = FULL + f'scheduler_podgroup_schedule_attempts_total{{profile="gang",result="scheduled"}} {count}\n'
    assert scheduler_metrics(text).places_pod_groups is places


@pytest.mark.parametrize(
    ("version", "major", "minor", "expected"),
    [
        ("v1.36.2", "1", "36", 36),
        ("v1.35.0-gke.100", "1", "35+", 35),
        ("v1.33.5+k3s1", "1", "33", 33),
        ("", "1", "34+", 34),
        ("v0.32.7", "", "", None),
        ("v0.0.0-master+$Format:%H$", "", "", None),
        ("", "2", "1", None),
    ],
)
def test_minor(version, major, minor, expected):
    """The Kubernetes release of the binary; a scheduler built elsewhere has none."""
    old = 'git_version="v1.36.2",major="1",minor="36"'
    assert _with(old, f'git_version="{version}",major="{major}",minor="{minor}"').minor == expected


def test_values_that_are_no_numbers_are_left_out():
    """NaN counts as absent."""
    assert (
        _with(
            'scheduler_cache_size{type="assumed_pods"} 8', 'scheduler_cache_size{type="assumed_pods"} NaN'
        ).assumed_pods
        is None
    )


@pytest.mark.parametrize(
    ("fault", "reason", "words"),
    [
        ("html", "invalid", "an HTML page"),
        ("empty", "invalid", "no scheduler_ family"),
        (Answer(200, b"kueue_pending_workloads 5\n"), "invalid", "port 10259"),
        (Answer(200, b'scheduler_pending_pods{queue="a"} many\n'), "invalid", "scheduler"),
        (Answer(200, b"scheduler_pending_pods \xff\n"), "invalid", "scheduler"),
        (401, "unauthorized", "auth_token in scheduler_metrics"),
        (403, "forbidden", "verb get on nonResourceURLs /scheduler/metrics"),
        ("refuse", "unreachable", "the connection broke"),
    ],
)
def test_answers_that_are_not_a_schedulers(fault, reason, words):
    """What else answers is an error with its reason and an advice for this endpoint."""
    recording = Recording.open(CAPTURES / "2-partial-bound.tar.xz")
    with ReplayServer(recording, [("/scheduler", fault)]) as server, pytest.raises(SourceError) as caught:
        _read(server)
    assert caught.value.reason == reason
    assert words in str(caught.value)


def test_options(tmp_path):
    """The Agent's options below scheduler_metrics are for this endpoint; a URL without a path means /metrics."""
    file = tmp_path / "token"
    file.write_text("abc")
    auth = {
        "reader": {"type": "file", "path": str(file)},
        "writer": {"type": "header", "name": "Authorization", "value": "Bearer <TOKEN>"},
    }
    recording = Recording.open(CAPTURES / "2-partial-bound.tar.xz")
    with ReplayServer(recording, token="abc", certificate=CAPTURES / "replay.pem") as server:
        assert _read(server, auth_token=auth, tls_verify=False).attempts == 3
        endpoint = SchedulerEndpoint({"url": server.url, "auth_token": auth, "tls_verify": False}, timeout=2)
        with pytest.raises(SourceError):
            endpoint.read()
        assert server.log[-1].path == "/metrics"
        endpoint.close()


@pytest.mark.parametrize("options", [{}, {"url": "10.0.0.1:10259"}, {"url": "https://host/metrics?token=x"}])
def test_wrong_options(options):
    """A URL that cannot be is refused at load."""
    with pytest.raises(ConfigurationError):
        SchedulerEndpoint(options, timeout=2)
