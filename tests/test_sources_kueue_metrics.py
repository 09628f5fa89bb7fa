# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The scrape of Kueue, through a check's run() over real HTTP.

The expected numbers are taken from the recorded text by expressions of this file, not by the code under test.
"""

import gzip
import json
import logging
import re
import time

import pytest
from datadog_checks.base import ConfigurationError, OpenMetricsBaseCheckV2

from datadog_checks.kueue_gang.catalog import CLUSTER_QUEUE_FAMILIES, SCRAPED
from datadog_checks.kueue_gang.catalog import LOCAL_QUEUE_FAMILIES as DOCUMENTED_LOCAL_QUEUE_FAMILIES
from datadog_checks.kueue_gang.sources.errors import SourceError
from datadog_checks.kueue_gang.sources.kueue_metrics import (
    FAMILIES,
    LOCAL_QUEUE_FAMILIES,
    KueueScraper,
    scraper_config,
    snake_case,
)
from lab.replay import CAPTURES, Answer, Recording, ReplayServer

HEALTH = "kueue_gang.openmetrics.health"
PREFIX = "kueue_gang.kueue."


class Check(OpenMetricsBaseCheckV2):
    """The smallest check that scrapes Kueue."""

    __NAMESPACE__ = "kueue_gang"
    DEFAULT_METRIC_LIMIT = 0

    def __init__(self, instance):
        """Take the options."""
        super().__init__("kueue_gang", {}, [instance])
        self.scraper_configs = [scraper_config(self.instance)]

    def create_scraper(self, config):
        """Return the scraper under test."""
        return KueueScraper(self, config)

    @property
    def scraper(self):
        """Return the only scraper."""
        return next(iter(self.scrapers.values()))


def _recording(name, moment=None):
    return Recording.open(CAPTURES / f"{name}.tar.xz", moment)


def _text(body):
    """Return a recording whose Kueue answers with `body`."""
    recording = _recording("2-partial-bound")
    recording.metrics["kueue-metrics.prom"] = body.encode()
    return recording


def _run(server, **options):
    """Run a check once; return it and what went wrong."""
    check = Check({"openmetrics_endpoint": server.url + "/metrics", **options})
    failed = check.run()
    return check, json.loads(failed)[0]["message"] if failed else ""


def _lines(text, family):
    """Return the samples of an exposition that begin with `family`: (suffix, labels, value)."""
    pattern = re.compile(rf"^{family}(_total|_sum|_count|_bucket|)(?:\{{(.*)\}})? (\S+)$", re.MULTILINE)
    return [
        (match[1], dict(re.findall(r'(\w+)="([^"]*)"', match[2] or "")), float(match[3]))
        for match in pattern.finditer(text)
    ]


def _sent(aggregator, name):
    """Return what was sent as `name`: sorted (value, tags)."""
    return sorted((metric.value, sorted(metric.tags)) for metric in aggregator.metrics(name))


RENAMED = {
    "cluster_queue": "kueue_cluster_queue",
    "flavor": "kueue_resource_flavor",
    "priority_class": "kueue_workload_priority_class",
}


def _expected(text, family, suffix, renames=RENAMED, values=None):
    return sorted(
        (
            value,
            sorted(
                f"{renames.get(label, label)}:{(values or {}).get(text, text)}"
                for label, text in labels.items()
                if text and label != "replica_role"
            ),
        )
        for found, labels, value in _lines(text, family)
        if found == suffix
    )


SCENES = [
    ("9-preempt", "t5"),
    ("1-permit-wait", "t1"),
    ("4-kueue-partial", "t3"),
    ("5-tas", None),
    ("20-ran-then-evicted", "t4"),
    ("17-podsets", "t2"),
]
REASONS = {
    "Preempted": "preempted",
    "PodsReadyTimeout": "pods_ready_timeout",
    "ClusterQueueStopped": "cluster_queue_stopped",
    "WaitForStart": "wait_for_start",
    "WaitForRecovery": "wait_for_recovery",
    "RequeuingLimitExceeded": "requeuing_limit_exceeded",
}
WORDS = {
    "InClusterQueue": "in_cluster_queue",
    "NoReservation": "no_reservation",
    "Suspended": "suspended",
    "WaitingForQuota": "waiting_for_quota",
    "PendingEvaluation": "pending_evaluation",
    "True": "true",
    "False": "false",
    "Unknown": "unknown",
}
EVICTIONS = {**RENAMED, "reason": "kueue_eviction_reason", "detailed_reason": "underlying_cause"}


@pytest.mark.parametrize(("scenario", "moment"), SCENES)
@pytest.mark.parametrize(
    ("family", "name", "suffix", "renames", "values"),
    [
        ("kueue_pending_workloads", "pending_workloads", "", RENAMED, None),
        ("kueue_cluster_queue_status", "cluster_queue_status", "", RENAMED, None),
        ("kueue_cluster_queue_nominal_quota", "cluster_queue_nominal_quota", "", RENAMED, None),
        ("kueue_cluster_queue_resource_usage", "cluster_queue_resource_usage", "", RENAMED, None),
        ("kueue_admission_attempts", "admission_attempts.count", "_total", RENAMED, None),
        ("kueue_admission_wait_time_seconds", "admission_wait_time_seconds.sum", "_sum", RENAMED, None),
        ("kueue_admission_wait_time_seconds", "admission_wait_time_seconds.count", "_count", RENAMED, None),
        ("kueue_evicted_workloads", "evicted_workloads.count", "_total", EVICTIONS, REASONS),
        ("kueue_evicted_workloads_once", "evicted_workloads_once.count", "_total", EVICTIONS, REASONS),
        (
            "kueue_workload_eviction_latency_seconds",
            "workload_eviction_latency_seconds.sum",
            "_sum",
            EVICTIONS,
            REASONS,
        ),
        (
            "kueue_pods_ready_to_evicted_time_seconds",
            "pods_ready_to_evicted_time_seconds.count",
            "_count",
            EVICTIONS,
            REASONS,
        ),
        ("kueue_preempted_workloads", "preempted_workloads.count", "_total", RENAMED, WORDS),
        ("kueue_unadmitted_workloads", "unadmitted_workloads", "", RENAMED, WORDS),
        (
            "kueue_pod_scheduling_gate_removal_seconds",
            "pod_scheduling_gate_removal_seconds.count",
            "_count",
            RENAMED,
            None,
        ),
    ],
)
def test_families_of_recorded_clusters(aggregator, scenario, moment, family, name, suffix, renames, values):
    """A family arrives as kueue.x with all its samples, its labels renamed, and no empty tag."""
    recording = _recording(scenario, moment)
    with ReplayServer(recording) as server:
        check, failed = _run(server)
    assert not failed
    assert check.scraper.failure is None
    text = recording.metrics["kueue-metrics.prom"].decode()
    assert _sent(aggregator, PREFIX + name) == _expected(text, family, suffix, renames, values)


def test_the_catalog_has_what_is_scraped(aggregator):
    """What is sent is documented: families, types and, in every recorded scrape, the tags."""
    assert {family.name: family.type for family in CLUSTER_QUEUE_FAMILIES} == FAMILIES
    assert {family.name: family.type for family in DOCUMENTED_LOCAL_QUEUE_FAMILIES} == LOCAL_QUEUE_FAMILIES
    for scenario, moment in SCENES:
        with ReplayServer(_recording(scenario, moment)) as server:
            _run(server, kueue_local_queue_metrics=True)
    for name in aggregator.metric_names:
        keys = {tag.partition(":")[0] for metric in aggregator.metrics(name) for tag in metric.tags}
        assert keys <= set(SCRAPED[name.removeprefix("kueue_gang.")].tags), name


def test_some_numbers_by_hand(aggregator):
    """Lines of 9-preempt at t5, read by eye."""
    with ReplayServer(_recording("9-preempt", "t5")) as server:
        _run(server)
    aggregator.assert_metric(
        PREFIX + "pending_workloads", 1, tags=["kueue_cluster_queue:emb-cq", "status:inadmissible"], count=1
    )
    aggregator.assert_metric(
        PREFIX + "evicted_workloads.count",
        1,
        tags=[
            "kueue_cluster_queue:emb-cq",
            "kueue_eviction_reason:preempted",
            "kueue_workload_priority_class:batch",
        ],
        count=1,
        metric_type=aggregator.MONOTONIC_COUNT,
    )
    aggregator.assert_metric(
        PREFIX + "cluster_queue_resource_usage",
        16,
        tags=["kueue_cluster_queue:emb-cq", "kueue_resource_flavor:h100", "resource:nvidia.com/gpu"],
        count=1,
        metric_type=aggregator.GAUGE,
    )
    aggregator.assert_metric(
        PREFIX + "unadmitted_workloads",
        1,
        tags=["kueue_cluster_queue:archive-cq", "reason:no_reservation", "underlying_cause:suspended"],
        count=1,
    )
    aggregator.assert_metric(
        PREFIX + "preempted_workloads.count",
        1,
        tags=["preempting_cluster_queue:emb-cq", "reason:in_cluster_queue"],
        count=1,
    )


@pytest.mark.parametrize(("scenario", "moment"), SCENES)
def test_only_the_families_of_the_contract(aggregator, scenario, moment):
    """Nothing else of the exposition is sent: no Go runtime, no buckets, no LocalQueue, no build information."""
    with ReplayServer(_recording(scenario, moment)) as server:
        _run(server)
    suffixes = {"gauge": [""], "counter": [".count"], "histogram": [".count", ".sum"]}
    allowed = {
        PREFIX + name.removeprefix("kueue_") + suffix for name, kind in FAMILIES.items() for suffix in suffixes[kind]
    }
    assert set(aggregator.metric_names) <= allowed
    tags = {
        tag.partition(":")[0] for name in aggregator.metric_names for m in aggregator.metrics(name) for tag in m.tags
    }
    assert not tags & {"replica_role", "endpoint", "cluster_queue", "flavor", "priority_class", "name"} - {"name"}
    assert all(
        not tag.endswith(":") for name in aggregator.metric_names for m in aggregator.metrics(name) for tag in m.tags
    )


@pytest.mark.parametrize(("scenario", "moment"), SCENES)
def test_local_queues_are_asked_for(aggregator, scenario, moment):
    """With kueue_local_queue_metrics the LocalQueue families arrive, `name` and `namespace` as their queue."""
    recording = _recording(scenario, moment)
    with ReplayServer(recording) as server:
        _run(server, kueue_local_queue_metrics=True)
    text = recording.metrics["kueue-metrics.prom"].decode()
    renames = {**RENAMED, "name": "kueue_local_queue", "namespace": "kube_namespace"}
    for family, kind in LOCAL_QUEUE_FAMILIES.items():
        sent = PREFIX + family.removeprefix("kueue_")
        evictions = {**renames, "reason": "kueue_eviction_reason"} if "evicted" in family else renames
        for suffix, name in {
            "gauge": [("", sent)],
            "counter": [("_total", sent + ".count")],
            "histogram": [("_sum", sent + ".sum"), ("_count", sent + ".count")],
        }[kind]:
            found = _sent(aggregator, name)
            assert found == _expected(text, family, suffix, evictions, {**REASONS, **WORDS}), name


def test_name_is_a_gate_elsewhere(aggregator):
    """`name` of the gate histogram is a scheduling gate, and no LocalQueue."""
    with ReplayServer(_recording("5-tas")) as server:
        _run(server, kueue_local_queue_metrics=True)
    tags = [tag for m in aggregator.metrics(PREFIX + "pod_scheduling_gate_removal_seconds.count") for tag in m.tags]
    assert any(tag.startswith("name:kueue.x-k8s.io/") for tag in tags)
    assert not any(tag.startswith("kueue_local_queue") for tag in tags)


def test_buckets_on_demand(aggregator):
    """collect_histogram_buckets is false here by default, and can be set."""
    recording = _recording("9-preempt", "t5")
    with ReplayServer(recording) as server:
        _run(server, collect_histogram_buckets=True)
    text = recording.metrics["kueue-metrics.prom"].decode()
    finite = [
        line
        for line in _lines(text, "kueue_admission_wait_time_seconds")
        if line[0] == "_bucket" and line[1]["le"] != "+Inf"
    ]
    assert len(_sent(aggregator, PREFIX + "admission_wait_time_seconds.bucket")) == len(finite) > 0
    assert not aggregator.metrics("kueue_gang.kueue.workload_creation_latency_seconds.bucket")


def test_leader_and_follower(aggregator):
    """Every replica exports the gauges; those of a follower are dropped, so that a sum is right (B30)."""
    recording = _recording("12-ha", "t1")
    with (
        ReplayServer(recording, metrics="kueue-metrics-leader.prom") as leader,
        ReplayServer(recording, metrics="kueue-metrics-follower.prom") as follower,
    ):
        assert _run(leader)[1] == ""
        alone = {name: _sent(aggregator, name) for name in aggregator.metric_names}
        check, failed = _run(follower)
    assert failed == ""
    assert check.scraper.failure is None
    assert {name: _sent(aggregator, name) for name in aggregator.metric_names} == alone
    assert any(name == PREFIX + "pending_workloads" for name in alone)


def test_a_follower_alone_is_healthy_and_sends_nothing(aggregator):
    """A scrape that meets a follower is no error."""
    with ReplayServer(_recording("12-ha", "t1"), metrics="kueue-metrics-follower.prom") as server:
        check, failed = _run(server, kueue_local_queue_metrics=True)
    assert failed == ""
    assert not aggregator.metric_names
    aggregator.assert_service_check(HEALTH, OpenMetricsBaseCheckV2.OK, count=1)
    assert check.scraper.take_bad_samples() == {}


def test_after_a_failover(aggregator):
    """The new leader's own counters count, not those it has from its time as a follower."""
    recording = _recording("12-ha", "t2")
    with ReplayServer(recording, metrics="kueue-metrics-new-leader.prom") as server:
        _run(server)
    text = recording.metrics["kueue-metrics-new-leader.prom"].decode()
    leading = [line for line in _lines(text, "kueue_pending_workloads") if line[1].get("replica_role") == "leader"]
    assert len(_sent(aggregator, PREFIX + "pending_workloads")) == len(leading) > 0


@pytest.mark.parametrize("role", ['replica_role="leader",', 'replica_role="standalone",', ""])
def test_leader_standalone_and_no_role(aggregator, role):
    """All three are the one that counts: without leader election, and before Kueue 0.16."""
    text = (
        "# TYPE kueue_pending_workloads gauge\n"
        f'kueue_pending_workloads{{cluster_queue="a",{role}status="active"}} 3\n'
        'kueue_pending_workloads{cluster_queue="a",replica_role="follower",status="active"} 3\n'
    )
    with ReplayServer(_text(text)) as server:
        _run(server)
    assert _sent(aggregator, PREFIX + "pending_workloads") == [(3.0, ["kueue_cluster_queue:a", "status:active"])]


def _evicted(family, labels, value=1):
    return f"# TYPE {family} counter\n{family}{{{labels}}} {value}\n"


@pytest.mark.parametrize(
    ("reason", "value"),
    [
        ("Preempted", "preempted"),
        ("PodsReadyTimeout", "pods_ready_timeout"),
        ("AdmissionCheck", "admission_check"),
        ("ClusterQueueStopped", "cluster_queue_stopped"),
        ("LocalQueueStopped", "local_queue_stopped"),
        ("NodeFailures", "node_failures"),
        ("Deactivated", "deactivated"),
        ("InactiveWorkload", "deactivated"),
        ("DeactivatedDueToAdmissionCheck", "deactivated"),
        ("DeactivatedDueToRequeuingLimitExceeded", "deactivated"),
        ("FlavorMigration", "flavor_migration"),
        ("SomethingNew", "other"),
    ],
)
def test_eviction_reasons(aggregator, reason, value):
    """Every word that any release of Kueue has for an eviction is one of the contract's list."""
    text = _evicted("kueue_evicted_workloads_total", f'cluster_queue="a",reason="{reason}",underlying_cause=""')
    with ReplayServer(_text(text)) as server:
        _run(server)
    tags = ["kueue_cluster_queue:a", f"kueue_eviction_reason:{value}"]
    assert _sent(aggregator, PREFIX + "evicted_workloads.count") == [(1.0, tags)]


@pytest.mark.parametrize("label", ["underlying_cause", "detailed_reason"])
@pytest.mark.parametrize(
    ("cause", "value"),
    [
        ("WaitForStart", "wait_for_start"),
        ("WaitForRecovery", "wait_for_recovery"),
        ("AdmissionCheck", "admission_check"),
        ("MaximumExecutionTimeExceeded", "maximum_execution_time_exceeded"),
        ("RequeuingLimitExceeded", "requeuing_limit_exceeded"),
        ("EvictedOnManagerCluster", "evicted_on_manager_cluster"),
        ("SomethingNew", "other"),
    ],
)
def test_underlying_causes(aggregator, label, cause, value):
    """The label was detailed_reason before Kueue 0.18; both are one tag (B36)."""
    text = _evicted("kueue_evicted_workloads_once_total", f'cluster_queue="a",{label}="{cause}",reason="Preempted"')
    with ReplayServer(_text(text)) as server:
        _run(server)
    [(_, tags)] = _sent(aggregator, PREFIX + "evicted_workloads_once.count")
    assert f"underlying_cause:{value}" in tags


@pytest.mark.parametrize(
    ("word", "value"),
    [("InCohortReclaimWhileBorrowing", "in_cohort_reclaim_while_borrowing"), ("True", "true"), ("", ""), ("x", "x")],
)
def test_snake_case(word, value):
    """Kueue's CamelCase words become lower snake case."""
    assert snake_case(word) == value


def test_samples_that_become_alike_are_added(aggregator):
    """Two reasons that are one for us are one series with their sum; else one of them would be lost."""
    text = (
        "# TYPE kueue_workload_eviction_latency_seconds histogram\n"
        'kueue_workload_eviction_latency_seconds_sum{cluster_queue="a",reason="DeactivatedDueToX"} 1.5\n'
        'kueue_workload_eviction_latency_seconds_count{cluster_queue="a",reason="DeactivatedDueToX"} 2\n'
        'kueue_workload_eviction_latency_seconds_sum{cluster_queue="a",reason="DeactivatedDueToY"} 0.5\n'
        'kueue_workload_eviction_latency_seconds_count{cluster_queue="a",reason="DeactivatedDueToY"} 1\n'
    )
    with ReplayServer(_text(text)) as server:
        _run(server)
    tags = ["kueue_cluster_queue:a", "kueue_eviction_reason:deactivated"]
    assert _sent(aggregator, PREFIX + "workload_eviction_latency_seconds.sum") == [(2.0, tags)]
    assert _sent(aggregator, PREFIX + "workload_eviction_latency_seconds.count") == [(3.0, tags)]


CUSTOM = (
    "# TYPE kueue_pending_workloads gauge\n"
    'kueue_pending_workloads{cluster_queue="a",custom_team="red",status="active"} 3\n'
    'kueue_pending_workloads{cluster_queue="a",custom_team="blue",status="active"} 4\n'
)


def test_custom_labels_are_added_up(aggregator):
    """Labels of the user's own make several series of one queue; without the label their sum is the queue's."""
    with ReplayServer(_text(CUSTOM)) as server:
        _run(server)
    assert _sent(aggregator, PREFIX + "pending_workloads") == [(7.0, ["kueue_cluster_queue:a", "status:active"])]


def test_a_custom_label_can_be_kept(aggregator):
    """A rename names the label, which is how it is asked for."""
    with ReplayServer(_text(CUSTOM)) as server:
        _run(server, rename_labels={"custom_team": "team"})
    assert [tags[-1] for _, tags in _sent(aggregator, PREFIX + "pending_workloads")] == ["team:red", "team:blue"]


def test_nan_and_inf_are_dropped_and_counted(aggregator):
    """What cannot be sent is counted by kind, once; a follower's does not count (B31, B32)."""
    text = (
        "# TYPE kueue_cluster_queue_nominal_quota gauge\n"
        'kueue_cluster_queue_nominal_quota{cluster_queue="a"} NaN\n'
        'kueue_cluster_queue_nominal_quota{cluster_queue="b"} +Inf\n'
        'kueue_cluster_queue_nominal_quota{cluster_queue="c"} -Inf\n'
        'kueue_cluster_queue_nominal_quota{cluster_queue="d"} 8\n'
        'kueue_cluster_queue_nominal_quota{cluster_queue="e",replica_role="follower"} NaN\n'
        "# TYPE kueue_cluster_queue_borrowing_limit gauge\n"
        'kueue_cluster_queue_borrowing_limit{cluster_queue="a"} +Inf\n'
    )
    with ReplayServer(_text(text)) as server:
        check, failed = _run(server)
    assert failed == ""
    assert _sent(aggregator, PREFIX + "cluster_queue_nominal_quota") == [(8.0, ["kueue_cluster_queue:d"])]
    assert check.scraper.take_bad_samples() == {"nan": 1, "inf": 2}
    assert check.scraper.take_bad_samples() == {}


def test_recorded_limits_are_unlimited(aggregator):
    """The +Inf limits of a real Kueue are nothing that is wanted, so nothing is counted as bad; asked for, they are."""
    with ReplayServer(_recording("9-preempt", "t5")) as server:
        check, _ = _run(server)
        assert check.scraper.take_bad_samples() == {}
        check, _ = _run(server, extra_metrics=["kueue_cluster_queue_borrowing_limit"])
        assert check.scraper.take_bad_samples() == {"inf": 6}
    assert not aggregator.metrics(PREFIX + "cluster_queue_borrowing_limit")


def test_a_gauge_and_a_counter_of_one_name(aggregator):
    """finished_workloads and finished_workloads_total are one family to the parser; each is sent as what it is."""
    text = (
        "# TYPE kueue_finished_workloads gauge\n"
        'kueue_finished_workloads{cluster_queue="a",replica_role="leader"} 2\n'
        "# TYPE kueue_finished_workloads_total counter\n"
        'kueue_finished_workloads_total{cluster_queue="a",priority_class="",replica_role="leader"} 9\n'
        "# TYPE kueue_pending_workloads gauge\n"
        'kueue_pending_workloads{cluster_queue="a",status="active"} 1\n'
    )
    with ReplayServer(_text(text)) as server:
        _run(server)
        assert aggregator.metric_names == [PREFIX + "pending_workloads"]
        aggregator.reset()
        _run(server, extra_metrics=["kueue_finished_workloads"])
    tags = ["kueue_cluster_queue:a"]
    assert _sent(aggregator, PREFIX + "finished_workloads") == [(2.0, tags)]
    assert _sent(aggregator, PREFIX + "finished_workloads.count") == [(9.0, tags)]
    aggregator.assert_metric(PREFIX + "finished_workloads", metric_type=aggregator.GAUGE)
    aggregator.assert_metric(PREFIX + "finished_workloads.count", metric_type=aggregator.MONOTONIC_COUNT)


def test_the_first_value_of_a_counter_is_not_an_increase(aggregator):
    """Counters are told from the second scrape on, as the base class has it."""
    with ReplayServer(_recording("9-preempt", "t5")) as server:
        check, _ = _run(server)
        name = PREFIX + "admitted_workloads.count"
        assert {metric.flush_first_value for metric in aggregator.metrics(name)} == {False}
        aggregator.reset()
        check.run()
        assert {metric.flush_first_value for metric in aggregator.metrics(name)} == {True}


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"extra_metrics": ["go_goroutines"]}, {"kueue_gang.go_goroutines"}),
        ({"extra_metrics": [{"go_goroutines": "go.goroutines"}]}, {"kueue_gang.go.goroutines"}),
        ({"extra_metrics": [{"go_goroutines": {"name": "g", "type": "gauge"}}]}, {"kueue_gang.g"}),
        ({"extra_metrics": ["kueue_cluster_queue_info"]}, {PREFIX + "cluster_queue_info"}),
        ({"extra_metrics": ["^go_gor.+$"]}, {"kueue_gang.go_goroutines"}),
        ({"metrics": ["go_goroutines"]}, {"kueue_gang.go_goroutines"}),
    ],
)
def test_extra_metrics(aggregator, options, names):
    """Families beside the contract's come by the Agent's own options, whatever the line filter drops."""
    with ReplayServer(_recording("9-preempt", "t5")) as server:
        _run(server)
        default = set(aggregator.metric_names)
        aggregator.reset()
        _run(server, **options)
    assert set(aggregator.metric_names) - default == names
    assert set(aggregator.metric_names) >= default


def test_none_means_only_what_is_extra(aggregator):
    """kueue_metrics: none, for users of the official integration."""
    with ReplayServer(_recording("9-preempt", "t5")) as server:
        _run(server, kueue_metrics="none", kueue_local_queue_metrics=True, extra_metrics=["kueue_cluster_queue_info"])
    assert aggregator.metric_names == [PREFIX + "cluster_queue_info"]


@pytest.mark.parametrize(
    "options",
    [
        {"exclude_metrics": ["kueue_pending_workloads"]},
        {"exclude_metrics": ["^kueue_pend.*"]},
        {"raw_line_filters": ["^kueue_pending_workloads"]},
        {"exclude_metrics_by_labels": {"status": ["inadmissible", "^active"]}},
    ],
)
def test_exclude_options(aggregator, options):
    """The Agent's options to leave metrics out hold beside the check's own."""
    with ReplayServer(_recording("9-preempt", "t5")) as server:
        _run(server, **options)
    assert not aggregator.metrics(PREFIX + "pending_workloads")
    assert aggregator.metrics(PREFIX + "admitted_active_workloads")


def test_users_renames_come_first(aggregator):
    """A rename of the user wins over the check's, for every kind of family, and leaves the other renames alone."""
    renames = {"cluster_queue": "cq", "reason": "why", "name": "lq"}
    with ReplayServer(_recording("9-preempt", "t5")) as server:
        _run(server, rename_labels=renames, kueue_local_queue_metrics=True)

    def keys(name):
        return {tag.partition(":")[0] for metric in aggregator.metrics(PREFIX + name) for tag in metric.tags}

    assert keys("evicted_workloads.count") == {"cq", "why", "kueue_workload_priority_class"}
    assert keys("local_queue_resource_usage") == {"lq", "kube_namespace", "kueue_resource_flavor", "resource"}


def test_users_exclude_labels(aggregator):
    """exclude_labels names Kueue's labels."""
    with ReplayServer(_recording("9-preempt", "t5")) as server:
        _run(server, exclude_labels=["priority_class", "name"], kueue_local_queue_metrics=True)
    names = (PREFIX + "evicted_workloads.count", PREFIX + "local_queue_status")
    keys = {tag.partition(":")[0] for name in names for metric in aggregator.metrics(name) for tag in metric.tags}
    assert keys == {"kueue_cluster_queue", "kueue_eviction_reason", "kube_namespace", "active"}


def test_users_tags(aggregator):
    """Tags of the instance are on each metric as they are, also where they look like a label or have no value."""
    with ReplayServer(_recording("9-preempt", "t5")) as server:
        _run(server, tags=["name:mine", "custom_x:1", "odd:", "plain"])
    for name in aggregator.metric_names:
        aggregator.assert_metric_has_tags(name, ["name:mine", "custom_x:1", "odd:", "plain"])
    aggregator.assert_service_check(HEALTH, tags=["name:mine", "custom_x:1", "odd:", "plain"])


@pytest.mark.parametrize(
    "options",
    [
        {"extra_metrics": "go_goroutines"},
        {"extra_metrics": [7]},
        {"extra_metrics": [{"go_goroutines": 7}]},
        {"extra_metrics": [{7: "go_goroutines"}]},
        {"metrics": {"a": "b"}},
    ],
)
def test_wrong_options(options):
    """What is not a list of names is refused with the option's name."""
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        scraper_config({"openmetrics_endpoint": "http://127.0.0.1:1", **options})


VISIBILITY = (
    "# TYPE apiserver_request_total counter\napiserver_request_total 5\n# TYPE go_goroutines gauge\ngo_goroutines 9\n"
)


@pytest.mark.parametrize(
    ("fault", "reason", "words"),
    [
        (Answer(200, VISIBILITY.encode(), "text/plain; version=0.0.4"), "invalid", "is this the visibility service?"),
        ("html", "invalid", "an HTML page"),
        (Answer(200, b"", "text/plain"), "invalid", "an empty answer"),
        (Answer(200, b"\n\n", "text/plain"), "invalid", "an empty answer"),
        (Answer(200, b'{"kind": "Status"}'), "invalid", "no kueue_ family"),
        (Answer(200, b"kueue_pending_workloads{cluster_queue=", "text/plain"), "invalid", "no valid answer"),
        (401, "unauthorized", "Kueue refuses anonymous reads"),
        (403, "forbidden", "verb get on nonResourceURLs /metrics"),
        (404, "invalid", "openmetrics_endpoint"),
        (500, "unreachable", "HTTP 500"),
        ("refuse", "unreachable", "the connection broke"),
        ("cut", "unreachable", "the connection broke"),
    ],
)
def test_answers_that_are_not_kueues(aggregator, fault, reason, words):
    """What else may answer is an error with its reason and what to do, one critical health check, no metric (B35)."""
    with ReplayServer(_recording("9-preempt", "t5"), [("/metrics", fault)]) as server:
        check, failed = _run(server)
    assert words in failed
    assert check.scraper.failure.reason == reason
    aggregator.assert_service_check(HEALTH, OpenMetricsBaseCheckV2.CRITICAL, count=1)
    [health] = aggregator.service_checks(HEALTH)
    assert words in health.message
    if fault != "cut":
        assert not aggregator.metric_names


def test_the_answer_that_was_cut_is_not_counted_twice(aggregator):
    """After a broken scrape counters begin anew, so that a gap is not taken for a burst."""
    recording = _recording("9-preempt", "t5")
    with ReplayServer(recording) as server:
        check, _ = _run(server)
        server.faults = [("/metrics", "refuse")]
        assert check.run()
        server.faults = []
        aggregator.reset()
        assert check.run() == ""
    assert {m.flush_first_value for m in aggregator.metrics(PREFIX + "admitted_workloads.count")} == {False}
    assert check.scraper.failure is None


def test_self_signed_certificate(aggregator):
    """Kueue makes its own certificate by default: the error names both ways out, and tls_verify: false works (B34)."""
    with ReplayServer(_recording("9-preempt", "t5"), certificate=CAPTURES / "replay.pem") as server:
        check, failed = _run(server)
        assert "tls_verify: false" in failed
        assert check.scraper.failure.reason == "unreachable"
        assert _run(server, tls_verify=False)[1] == ""
        assert _run(server, tls_ca_cert=str(CAPTURES / "replay.pem"))[1] == ""
    assert aggregator.metrics(PREFIX + "pending_workloads")


def test_token_of_the_endpoint(tmp_path, aggregator):
    """The Agent's auth_token is for this endpoint, and a rotated file is read again (B33)."""
    file = tmp_path / "token"
    file.write_text("first-token")
    auth = {
        "reader": {"type": "file", "path": str(file)},
        "writer": {"type": "header", "name": "Authorization", "value": "Bearer <TOKEN>"},
    }
    with ReplayServer(_recording("9-preempt", "t5"), token="first-token") as server:
        check, failed = _run(server, auth_token=auth)
        assert failed == ""
        file.write_text("second-token")
        server.token = "second-token"
        assert check.run() == ""


def test_no_secret_in_errors(aggregator, caplog):
    """Userinfo and query of the endpoint are in no error, no health check and no log above debug level."""
    caplog.set_level(logging.INFO)
    with ReplayServer(_recording("9-preempt", "t5"), [("/metrics", 403)]) as server:
        url = server.url.replace("//", "//me:p4ssw0rd@") + "/metrics?token=s3cr3t"
        check = Check({"openmetrics_endpoint": url})
        failed = check.run()
        server.faults = [("/metrics", "refuse")]
        failed += check.run()
    shown = failed + caplog.text + "".join(health.message for health in aggregator.service_checks(HEALTH))
    assert "forbidden" in str(check.scraper.failure) or check.scraper.failure.reason == "unreachable"
    assert "p4ssw0rd" not in shown
    assert "s3cr3t" not in shown


def test_ignore_connection_errors(aggregator):
    """The Agent's option lets the run go on; the failure is still known and the health check critical."""
    with ReplayServer(_recording("9-preempt", "t5"), [("/metrics", "refuse")]) as server:
        check, failed = _run(server, ignore_connection_errors=True)
        assert failed == ""
        assert check.scraper.failure.reason == "unreachable"
        aggregator.assert_service_check(HEALTH, OpenMetricsBaseCheckV2.CRITICAL, count=1)
        server.faults = [("/metrics", "html")]
        assert "HTML" in check.run()


def test_ignoring_is_for_connections_only(aggregator):
    """An answer that refuses is an answer."""
    with ReplayServer(_recording("9-preempt", "t5"), [("/metrics", 500)]) as server:
        assert "HTTP 500" in _run(server, ignore_connection_errors=True)[1]


@pytest.mark.parametrize("fault", ["slow", "silent"])
def test_a_slow_endpoint_ends_in_time(aggregator, fault):
    """Neither silence nor a drop now and then holds the run longer than the Agent's timeout allows."""
    with ReplayServer(_recording("9-preempt", "t5"), [("/metrics", fault)]) as server:
        started = time.monotonic()
        check, failed = _run(server, timeout=0.2)
    assert time.monotonic() - started < 2
    assert "raise timeout" in failed
    assert check.scraper.failure.reason == "unreachable"


def test_telemetry(aggregator):
    """The Agent's telemetry option counts, and takes nothing of the answer away."""
    with ReplayServer(_recording("9-preempt", "t5")) as server:
        assert _run(server, telemetry=True)[1] == ""
    aggregator.assert_metric("kueue_gang.telemetry.payload.size", 317626)
    assert aggregator.metrics("kueue_gang.telemetry.metrics.blacklist.count")
    assert aggregator.metrics(PREFIX + "pending_workloads")


def test_compressed_answers(aggregator):
    """Go's handler compresses where it may."""
    text = gzip.compress(_recording("9-preempt", "t5").metrics["kueue-metrics.prom"])
    answer = Answer(200, text, "text/plain; version=0.0.4", (("Content-Encoding", "gzip"),))
    with ReplayServer(_recording("9-preempt", "t5"), [("/metrics", answer)]) as server:
        assert _run(server)[1] == ""
    assert aggregator.metrics(PREFIX + "pending_workloads")


def test_health_check_can_be_off(aggregator):
    """enable_health_service_check: false holds."""
    with ReplayServer(_recording("9-preempt", "t5")) as server:
        _run(server, enable_health_service_check=False)
    assert not aggregator.service_checks(HEALTH)


def test_the_error_is_a_source_error(aggregator):
    """The check gets the reason for source.up from the exception itself."""
    with ReplayServer(_recording("9-preempt", "t5"), [("/metrics", 403)]) as server:
        check = Check({"openmetrics_endpoint": server.url + "/metrics"})
        check.configure_scrapers()
        with pytest.raises(SourceError) as caught:
            check.check({})
    assert caught.value.reason == "forbidden"


def test_no_limit_on_series(aggregator):
    """2,500 queues are 2,500 series: the base's limit would drop what comes last (B38)."""
    lines = "".join(f'kueue_reserving_active_workloads{{cluster_queue="q{n}"}} {n}\n' for n in range(2500))
    with ReplayServer(_text("# TYPE kueue_reserving_active_workloads gauge\n" + lines)) as server:
        _run(server)
    assert len(aggregator.metrics(PREFIX + "reserving_active_workloads")) == 2500


def test_unwanted_lines_are_never_parsed():
    """The filter leaves the wanted families and nothing else: that is what makes a large exposition cheap (B37)."""
    text = _recording("9-preempt", "t5").metrics["kueue-metrics.prom"].decode().splitlines()
    config = scraper_config({"openmetrics_endpoint": "http://127.0.0.1:1"})
    dropped = re.compile("|".join(config["raw_line_filters"]))
    kept = [line for line in text if not dropped.search(line)]
    names = re.findall(r"^(?:# \w+ )?(\w+?)(?:_total|_sum|_count)?[ {]", "\n".join(kept), re.MULTILINE)
    assert len(names) == len(kept)
    assert set(names) <= set(FAMILIES)
    assert len(kept) < len(text) / 10
