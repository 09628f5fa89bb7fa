# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What the check sends and asks for, over all recordings together, against what is promised.

metadata.csv lists exactly the metrics that are sent, with their types; each series has exactly the tags of the catalog;
and the shipped RBAC allows exactly what is read.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import orjson
import pytest
import yaml
from datadog_checks.base.stubs import aggregator as stub
from datadog_checks.base.stubs.aggregator import AggregatorStub
from datadog_checks.dev.utils import get_metadata_metrics

from datadog_checks.kueue_gang import KueueGangCheck, catalog
from datadog_checks.kueue_gang.derive.rules import TrainingRule
from datadog_checks.kueue_gang.derive.spent import Meter
from datadog_checks.kueue_gang.emit import Emitter, Report
from datadog_checks.kueue_gang.emit_gang import EmitOptions
from datadog_checks.kueue_gang.facts.signals import TrainJob
from lab.apiserver import ApiServer
from lab.http_faults import Request
from lab.replay import CAPTURES, Recording, ReplayServer, moments
from tests.model.build import NOW
from tests.model.watched import Watched, beats, gauge, running
from tests.sent import PREFIX, run

ROOT = Path(__file__).parent.parent

#: Families that no recording has (no admission check ever passed there, and unadmitted_workloads is behind a gate), and
#: samples that are no numbers.
MADE = b"""# TYPE kueue_admission_checks_wait_time_seconds histogram
kueue_admission_checks_wait_time_seconds_sum{cluster_queue="cq",priority_class=""} 3
kueue_admission_checks_wait_time_seconds_count{cluster_queue="cq",priority_class=""} 1
# TYPE kueue_local_queue_admission_checks_wait_time_seconds histogram
kueue_local_queue_admission_checks_wait_time_seconds_sum{name="lq",namespace="ns",priority_class=""} 3
kueue_local_queue_admission_checks_wait_time_seconds_count{name="lq",namespace="ns",priority_class=""} 1
# TYPE kueue_unadmitted_workloads gauge
kueue_unadmitted_workloads{cluster_queue="cq",reason="NoReservation",underlying_cause="WaitingForQuota"} 2
# TYPE kueue_local_queue_unadmitted_workloads gauge
kueue_local_queue_unadmitted_workloads{name="lq",namespace="ns",cluster_queue="cq",reason="NoReservation"} 2
# TYPE kueue_pending_workloads gauge
kueue_pending_workloads{cluster_queue="cq",status="active"} NaN
kueue_pending_workloads{cluster_queue="cq",status="inadmissible"} +Inf
"""
#: What schedulers of 1.33 and later tell beside the lines that were recorded.
SCHEDULER = b"""
scheduler_permit_wait_duration_seconds_sum{result="Success"} 3.5
scheduler_cache_size{type="assumed_pods"} 9
scheduler_unschedulable_pods{plugin="NodeResourcesFit",profile="scheduler-plugins-scheduler"} 1
"""


def recordings() -> Iterator[Recording]:
    """Yield every recorded moment, and made ones that have what none of them has."""
    for archive in sorted(CAPTURES.glob("*.tar.xz")):
        if archive.name not in {"discovery.tar.xz", "watch.tar.xz"}:
            for moment in moments(archive):
                yield Recording.open(archive, moment)
    waiting = Recording.open(CAPTURES / "1-permit-wait.tar.xz", "t1")
    (name,) = waiting.evidence
    nodes = orjson.loads(waiting.lists["nodes"])
    nodes["items"][0]["status"]["allocatable"]["nvidia.com/gpu"] = "0"
    nodes["items"].append({"metadata": {"name": "broken"}, "status": {"capacity": {"nvidia.com/gpu": "many"}}})
    yield replace(
        waiting,
        lists={**waiting.lists, "nodes": orjson.dumps(nodes)},
        metrics={"kueue-metrics.prom": MADE},
        evidence={name: waiting.evidence[name] + SCHEDULER},
    )
    placed = Recording.open(CAPTURES / "5-tas.tar.xz")
    queues, flavors = orjson.loads(placed.lists["clusterqueues"]), orjson.loads(placed.lists["resourceflavors"])
    for resource in queues["items"][0]["status"]["flavorsUsage"][0]["resources"]:
        resource["borrowed"] = "8"
    flavors["items"].append({"metadata": {"name": "other"}, "spec": flavors["items"][0]["spec"]})
    yield replace(
        placed,
        lists={
            **placed.lists,
            "clusterqueues": orjson.dumps(queues),
            "resourceflavors": orjson.dumps(flavors),
        },
    )


def stories() -> Iterator[list[Recording]]:
    """Yield recordings that one check sees one after the other: what happens is told of the time between two."""
    for name in ("1-permit-wait", "9-preempt"):
        archive = CAPTURES / f"{name}.tar.xz"
        yield [Recording.open(archive, moment) for moment in moments(archive)]
    # A Workload that is admitted for a minute, and the pods of which nobody makes.
    admitted = Recording.open(CAPTURES / "4-kueue-partial.tar.xz", "t4")
    nothing = orjson.dumps({**admitted.decoded["pods"], "items": []})
    yield [replace(admitted, lists={**admitted.lists, "pods": nothing}, now=admitted.now + timedelta(seconds=60))]


def send_signals() -> None:
    """Send what there is to say of two gangs with signals: one does not get on, and half of its GPUs do nothing."""
    check = KueueGangCheck("kueue_gang", {}, [{"collect_kubernetes": False}])
    emitter, meter = Emitter(check, EmitOptions()), Meter(15)
    watched = Watched(
        *running("train", 2),
        *running("eval", 2),
        activity=True,
        inactive_after=60.0,
        training=(TrainingRule("tokens"), TrainingRule("", train_jobs=True)),
        prices=(("nvidia.com/gpu", 2.5),),
    )
    job = TrainJob("team", "train", 12.5, {}, NOW)
    for at in range(0, 91, 15):
        signals = [*beats("train-0", at), *beats("train-1", at, busy=range(8))]
        seen = watched.run(at, beats=signals, paces=[gauge("eval-0", at, 320.0)], jobs=[job])
        emitter.emit(Report(seen.picture, (), spent=meter.read(seen.picture, at)), at)


@pytest.fixture(scope="module")
def everything() -> Iterator[tuple[AggregatorStub, list[Request]]]:
    """Run the check on every recording; return what was sent and what was asked for."""
    requests: list[Request] = []
    stub.reset()
    for recording in recordings():
        with ReplayServer(recording) as server:
            instance = {
                "kube_api_url": server.url,
                "per_gang_metrics": "all",
                "kueue_local_queue_metrics": True,
                **({"openmetrics_endpoint": f"{server.url}/metrics"} if recording.metrics else {}),
                **({"scheduler_metrics": {"url": f"{server.url}/scheduler/metrics"}} if recording.evidence else {}),
            }
            _, report = run(instance)
            assert report == ""
            requests += server.log
    for story in stories():
        with ReplayServer(story[0]) as server:
            check = KueueGangCheck("kueue_gang", {}, [{"kube_api_url": server.url, "sync": "list"}])
            for server.recording in story:
                assert check.run() == ""
            check.cancel()
    with ApiServer() as live:
        _, report = run({"kube_api_url": live.url, "training": [{"train_jobs": True}]})
        assert report == ""
        requests += live.log
    send_signals()
    yield stub, requests
    stub.reset()


def test_metadata_is_what_is_sent(everything: tuple[AggregatorStub, list[Request]]) -> None:
    """metadata.csv and the metrics sent are the same set, with the same types."""
    aggregator, _ = everything
    aggregator.assert_metrics_using_metadata(
        get_metadata_metrics(), check_submission_type=True, check_symmetric_inclusion=True
    )


def test_each_series_has_the_tags_of_the_catalog(everything: tuple[AggregatorStub, list[Request]]) -> None:
    """A series has all the tags that its metric is said to have, and no other; a scraped one may lack empty ones."""
    aggregator, _ = everything
    for name in aggregator.metric_names:
        metric = catalog.ALL[name.removeprefix(PREFIX)]
        for series in aggregator.metrics(name):
            keys = [tag.split(":", 1)[0] for tag in series.tags]
            assert len(keys) == len(set(keys)), (name, series.tags)
            if metric.name in catalog.OWN:
                assert set(keys) == set(metric.tags), (name, series.tags)
            else:
                assert set(keys) <= set(metric.tags), (name, series.tags)


def test_no_series_names_a_pod_or_a_node(everything: tuple[AggregatorStub, list[Request]]) -> None:
    """Neither pod names, nor uids, nor node names, nor raw texts become tags: they would cost a series each."""
    aggregator, _ = everything
    values = {
        tag.split(":", 1)[1]
        for name in aggregator.metric_names
        for series in aggregator.metrics(name)
        for tag in series.tags
    }
    forbidden = set()
    for recording in recordings():
        for item in recording.decoded["pods"]["items"]:
            forbidden |= {item["metadata"]["name"], item["metadata"]["uid"]}
        forbidden |= {item["metadata"]["name"] for item in recording.decoded["nodes"]["items"]}
    assert values & forbidden == set()
    assert not any(" " in value for value in values)


def test_rbac_allows_what_is_read_and_no_more(everything: tuple[AggregatorStub, list[Request]]) -> None:
    """The shipped ClusterRole has a rule for each resource that was listed or watched, and for /metrics, and no more.

    Discovery and /version need no rule: every authenticated client may read them (system:discovery).
    """
    _, requests = everything
    asked: set[object] = set()
    for request in requests:
        parts = request.path.strip("/").split("/")
        if parts[-1] == "metrics":
            asked.add("/metrics")
        elif parts[0] == "api" and len(parts) == 3:
            asked.add(("", parts[2]))
        elif parts[0] == "apis" and len(parts) == 4:
            asked.add((parts[1], parts[3]))
    documents = list(yaml.safe_load_all((ROOT / "deploy" / "rbac.yaml").read_text()))
    allowed: set[object] = set()
    for rule in next(one for one in documents if one["kind"] == "ClusterRole")["rules"]:
        allowed |= {(group, name) for group in rule.get("apiGroups", []) for name in rule.get("resources", [])}
        allowed |= set(rule.get("nonResourceURLs", []))
        assert set(rule["verbs"]) <= {"get", "list", "watch"}
    assert asked == allowed
