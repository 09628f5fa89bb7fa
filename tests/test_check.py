# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The check as the Agent runs it, on clusters where something is broken.

A source that fails costs what depends on it and says why; everything else arrives. What is not known is not sent.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest
from datadog_checks.base.stubs.aggregator import AggregatorStub

from datadog_checks.kueue_gang import KueueGangCheck
from datadog_checks.kueue_gang.sources.reader import Timing
from lab.replay import CAPTURES, Answer, Recording, ReplayServer
from tests.sent import PREFIX, Sent, run

PARTIAL = Recording.open(CAPTURES / "4-kueue-partial.tar.xz", "t1")
MIXED = Recording.open(CAPTURES / "10-mixed-healthy.tar.xz")

WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/workloads"
POD_GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"


#: Short waits: what takes minutes in a cluster takes moments here.
QUICK = Timing(watch=1.0, margin=0.5, stale=0.5, retry=0.05, retry_most=0.1, refused=0.1)


def instance(server: ReplayServer, **options: object) -> dict[str, Any]:
    """Return an instance that reads a server, and Kueue's metrics too."""
    return {
        "kube_api_url": server.url,
        "openmetrics_endpoint": f"{server.url}/metrics",
        "per_gang_metrics": "all",
        "kube_timeout": 2,
        **options,
    }


def test_one_run_sends_objects_and_scrape(aggregator: AggregatorStub) -> None:
    """A healthy run sends what comes from objects and what is scraped, and no service check but the built-in one."""
    with ReplayServer(PARTIAL) as server:
        _, report = run(instance(server))
    assert report == ""
    sent = Sent(aggregator)
    assert sent.only("gangs", gang_state="partial") == 1
    # kueue_admitted_workloads_total{cluster_queue="nlp-cq",...} 1 in the recorded exposition.
    assert sent.total("kueue.admitted_workloads.count", kueue_cluster_queue="nlp-cq") == 1
    assert set(aggregator._service_checks) == {"kueue_gang.openmetrics.health"}
    assert {one.tags["reason"] for one in sent.series["source.up"]} == {"ok"}


def test_extra_metrics_alone(aggregator: AggregatorStub) -> None:
    """With `kueue_metrics: none` just what `extra_metrics` names is scraped, and without it nothing is read at all."""
    with ReplayServer(PARTIAL) as server:
        run(instance(server, kueue_metrics="none", extra_metrics=["kueue_cluster_queue_status"]))
        scraped = [name for name in aggregator.metric_names if name.startswith("kueue_gang.kueue.")]
        assert scraped == ["kueue_gang.kueue.cluster_queue_status"]
        server.log.clear()
        run(instance(server, kueue_metrics="none"))
        assert server.requests("/metrics") == []


def test_credentials_do_not_follow_a_redirect(aggregator: AggregatorStub, tmp_path: Any) -> None:
    """A header with a token goes to the server that the user named, and to no other one that this names."""
    token = tmp_path / "token"
    token.write_text("t0ken")
    auth = {
        "reader": {"type": "file", "path": str(token)},
        "writer": {"type": "header", "name": "X-Auth-Token", "value": "<TOKEN>"},
    }
    with ReplayServer(PARTIAL) as other, ReplayServer(PARTIAL) as server:
        server.faults = [("/metrics", Answer(302, b"", "text/plain", (("Location", f"{other.url}/metrics"),)))]
        _, report = run(instance(server, auth_token=auth))
        assert other.log == []
    assert "redirects are not followed" in report
    assert Sent(aggregator).only("source.up", api_source="kueue_metrics") == 0


def test_no_kueue_endpoint_reads_the_api_only(aggregator: AggregatorStub) -> None:
    """Without openmetrics_endpoint nothing is scraped, and that is no failure."""
    with ReplayServer(PARTIAL) as server:
        _, report = run({"kube_api_url": server.url})
        assert server.requests("/metrics") == []
    assert report == ""
    assert Sent(aggregator).of("source.up", api_source="kueue_metrics") == []


def test_only_scrape(aggregator: AggregatorStub) -> None:
    """collect_kubernetes: false asks the API server for nothing and sends nothing that comes from objects."""
    with ReplayServer(PARTIAL) as server:
        _, report = run({"openmetrics_endpoint": f"{server.url}/metrics", "collect_kubernetes": False})
        assert {request.path for request in server.log} == {"/metrics"}
    assert report == ""
    sent = Sent(aggregator)
    assert sent.series["gangs"] == []
    assert sent.total("kueue.admitted_workloads.count") > 0


def test_api_metrics_arrive_when_the_scrape_fails(aggregator: AggregatorStub) -> None:
    """A failed scrape is an error of the run with what to do; the numbers from the objects are sent all the same."""
    with ReplayServer(PARTIAL, [("/metrics", 403)]) as server:
        _, report = run(instance(server))
    assert "kueue_metrics" in report
    assert "403" in report
    assert "/metrics" in report
    sent = Sent(aggregator)
    assert sent.only("gangs", gang_state="partial") == 1
    assert sent.only("source.up", api_source="kueue_metrics", reason="forbidden") == 0


@pytest.mark.parametrize("fault", ["html", "empty", "garbage", 500, 401, "cut", "refuse"])
def test_each_scrape_failure_is_told_once(aggregator: AggregatorStub, fault: str | int) -> None:
    """Whatever the endpoint answers, the run says it in one line and the API part is sent."""
    with ReplayServer(PARTIAL, [("/metrics", fault)]) as server:
        _, report = run(instance(server))
    assert report.count("kueue_metrics:") == 1
    assert Sent(aggregator).only("gangs", gang_state="partial") == 1


def test_scrape_arrives_when_the_api_fails(aggregator: AggregatorStub) -> None:
    """With an API server that refuses everything, Kueue's metrics arrive and nothing pretends to come from objects."""
    with ReplayServer(PARTIAL, [("/api", 401)]) as server:
        _, report = run(instance(server))
    assert "401" in report
    assert "kube_api_options" in report
    sent = Sent(aggregator)
    assert sent.total("kueue.admitted_workloads.count") > 0
    assert {name for name in sent.series if not name.startswith(("kueue.", "source.", "run_seconds"))} == set()
    assert sent.total("source.up", reason="unauthorized") == 0
    assert sent.of("source.up", reason="unauthorized")


def test_all_down_names_each_cause_and_sends_no_number(aggregator: AggregatorStub) -> None:
    """With all down the error names each cause once, and no metric but those about the sources is sent."""
    with ReplayServer(PARTIAL, [("/metrics", "html"), ("/api", 500)]) as server:
        _, report = run(instance(server, scheduler_metrics={"url": f"{server.url}/nothing"}))
    for cause in ("kueue_metrics", "pods", "scheduler_metrics"):
        assert cause in report
    assert report.count("HTTP 500") == 1, "all resources fail for one reason: it is told once"
    names = {name.removeprefix(PREFIX) for name in aggregator.metric_names}
    assert names <= {"source.up", "run_seconds"}


#: What a resource that is forbidden costs: names of metrics that then have no series, and some that still have.
FORBIDDEN: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "pods": (
        "/api/v1/pods",
        ("gangs", "members", "gpus.allocated", "gpus.free", "gpus.idle", "gpus.idle_total", "gang.required"),
        ("gpus.allocatable", "gpus.capacity", "gpus.schedulable"),
    ),
    "nodes": (
        "/api/v1/nodes",
        ("gpus.allocatable", "gpus.capacity", "gpus.schedulable", "gpus.free"),
        ("gangs", "members", "gpus.allocated", "gpus.idle_total"),
    ),
    "workloads.kueue.x-k8s.io": (WORKLOADS, (), ("gangs", "gpus.allocated", "gpus.free")),
    "podgroups.scheduling.x-k8s.io": (POD_GROUPS, (), ("gangs", "gpus.allocated", "gpus.free")),
    "events": (
        "/apis/events.k8s.io/v1/events",
        (),
        ("gangs", "members", "gpus.allocated", "gpus.free", "gpus.idle_total"),
    ),
}


@pytest.mark.parametrize("source", FORBIDDEN)
def test_forbidden_resource(aggregator: AggregatorStub, source: str) -> None:
    """403 on a resource: its source is down with the reason, what depends on it is absent, the rest is there."""
    path, absent, present = FORBIDDEN[source]
    with ReplayServer(MIXED, [(path, 403)]) as server:
        check, report = run(instance(server))
    assert report == "", "a part that is missing is a warning, not a failed run"
    sent = Sent(aggregator)
    assert sent.only("source.up", api_source=source, reason="forbidden") == 0
    assert sent.of("source.objects", api_source=source) == []
    for name in absent:
        assert sent.series[name] == [], name
    for name in present:
        assert sent.series[name], name
    (warning,) = check.warnings
    assert path.rpartition("/")[2] in warning
    assert "deploy/rbac.yaml" in warning


def test_forbidden_pod_groups_leave_their_gangs_unknown(aggregator: AggregatorStub) -> None:
    """Pods whose PodGroups cannot be read are no orphans; their gangs are unobservable, their idle GPUs unknown."""
    with ReplayServer(MIXED, [(POD_GROUPS, 403)]) as server:
        run(instance(server))
    sent = Sent(aggregator)
    assert sent.of("gangs", gang_engine="coscheduling") == []
    assert sent.only("unobservable", signal="required", reason="forbidden") == 3
    # The Kueue gangs of the recording are not touched.
    assert sent.by("gangs", "gang_state", gang_engine="kueue") == {"running": 2, "finishing": 1, "queued": 1}
    # All Coscheduling gangs hold NVIDIA or AMD GPUs: how many of these are idle is not known. The MIG slices are.
    assert {one.tags["gpu_resource"] for one in sent.series["gpus.idle_total"]} == {"nvidia.com/mig-1g.10gb"}


def test_group_that_is_not_installed_is_silent(aggregator: AggregatorStub) -> None:
    """A cluster without Kueue has no source for it, no warning, and its PodGroup gangs are right."""
    with ReplayServer(MIXED, hidden=["kueue.x-k8s.io"]) as server:
        check, report = run({"kube_api_url": server.url, "per_gang_metrics": "all"})
    assert report == ""
    assert check.warnings == []
    sent = Sent(aggregator)
    assert {one.tags["api_source"] for one in sent.series["source.up"]} == {
        "pods",
        "nodes",
        "events",
        "podgroups.scheduling.x-k8s.io",
    }
    assert sent.by("gangs", "gang_state", gang_engine="coscheduling") == {"running": 2, "starting": 1}


def test_group_that_the_user_named_is_missed(aggregator: AggregatorStub) -> None:
    """An engine that the user named and that is not installed is a source that is down."""
    with ReplayServer(MIXED) as server:
        check, report = run({"kube_api_url": server.url, "gang_engines": ["coscheduling", "kubernetes"]})
    assert report == ""
    sent = Sent(aggregator)
    assert sent.only("source.up", api_source="podgroups.scheduling.k8s.io", reason="not_installed") == 0
    assert any("podgroups.scheduling.k8s.io" in warning for warning in check.warnings)
    assert sent.of("gangs", gang_engine="kueue") == []


def _broken(change: Callable[[dict[str, Any]], object]) -> Recording:
    """Return the mixed recording with the first chat-sft pod changed."""
    pods = orjson.loads(MIXED.lists["pods"])
    target = next(pod for pod in pods["items"] if pod["metadata"]["name"].startswith("chat-sft"))
    change(target)
    return Recording(MIXED.begin, MIXED.now, {**MIXED.lists, "pods": orjson.dumps(pods)}, MIXED.metrics)


BROKEN: dict[str, Callable[[dict[str, Any]], object]] = {
    "no metadata": lambda pod: pod.pop("metadata"),
    "metadata of wrong type": lambda pod: pod.update(metadata=[]),
    "labels of wrong type": lambda pod: pod["metadata"].update(labels="a=b"),
    "unknown quantity": lambda pod: pod["spec"]["containers"][0]["resources"].update(
        limits={"nvidia.com/gpu": "eight"}, requests={}
    ),
    "negative quantity": lambda pod: pod["spec"]["containers"][0]["resources"].update(
        limits={"nvidia.com/gpu": "-8"}, requests={"nvidia.com/gpu": "-8"}
    ),
    "unknown phase": lambda pod: pod["status"].update(phase="Exploded"),
    "bad time": lambda pod: pod["metadata"].update(creationTimestamp="yesterday"),
    "status is a list": lambda pod: pod.update(status=[1, 2]),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_object_costs_that_object(aggregator: AggregatorStub, kind: str) -> None:
    """A pod that cannot be understood is counted, and costs its 4 GPUs of 28; its gang is not judged without it.

    Of one without a name nobody knows whose it may be. No API server has such pods.
    """
    with ReplayServer(_broken(BROKEN[kind])) as server:
        check, report = run(instance(server))
    assert report == ""
    assert check.warnings == []
    sent = Sent(aggregator)
    assert sent.only("source.bad_objects", api_source="pods") == 1
    assert sent.total("gpus.allocated", gpu_resource="nvidia.com/gpu") == 24
    assert sent.by("gangs", "gang_state", gang_engine="coscheduling") == {"running": 2, "starting": 1}
    members = sent.by("gang.members", "member_state", gang="chat-sft")
    nameless = "metadata" in kind
    assert members == ({"ready": 1, "missing": 1} if nameless else {"ready": 1})
    assert sent.by("unobservable", "reason", signal="required") == ({} if nameless else {"ambiguous": 1})
    assert sent.total("gpus.idle", kube_namespace="llm") == (4 if nameless else 0)


def test_huge_annotation_costs_nothing(aggregator: AggregatorStub) -> None:
    """A pod with an annotation of 10 MB is read like any other."""
    huge = _broken(lambda pod: pod["metadata"].setdefault("annotations", {}).update(notes="x" * 10_000_000))
    with ReplayServer(huge) as server:
        _, report = run(instance(server, kube_timeout=10))
    assert report == ""
    assert Sent(aggregator).total("gpus.allocated", gpu_resource="nvidia.com/gpu") == 28


def test_unreadable_pod_group_makes_no_orphan(aggregator: AggregatorStub) -> None:
    """A PodGroup with a negative minMember exists: its pods are no orphans, its requirement is unobservable."""
    groups = orjson.loads(MIXED.lists["podgroups.scheduling.x-k8s.io"])
    target = next(group for group in groups["items"] if group["metadata"]["name"] == "wav-codec")
    target["spec"]["minMember"] = -3
    lists = {**MIXED.lists, "podgroups.scheduling.x-k8s.io": orjson.dumps(groups)}
    with ReplayServer(Recording(MIXED.begin, MIXED.now, lists, MIXED.metrics)) as server:
        run(instance(server))
    sent = Sent(aggregator)
    assert sent.only("source.bad_objects", api_source="podgroups.scheduling.x-k8s.io") == 1
    assert sent.of("gangs", gang_state="orphan") == []
    assert sent.only("unobservable", signal="required", reason="ambiguous") == 1
    assert sent.of("gang.state_seconds", gang="wav-codec") == []
    assert sent.total("gpus.allocated", gpu_use="other", kube_namespace="audio") >= 6


@pytest.mark.parametrize("answer", ["html", "empty", "garbage", Answer(200, b"[]"), Answer(200, b'{"items": 5}')])
def test_answer_that_is_no_list(aggregator: AggregatorStub, answer: str | Answer) -> None:
    """An answer that is no list makes its source invalid and says so; it is never an empty list."""
    with ReplayServer(MIXED, [("/api/v1/pods", answer)]) as server:
        check, _ = run(instance(server))
    sent = Sent(aggregator)
    assert sent.only("source.up", api_source="pods", reason="invalid") == 0
    assert sent.series["gangs"] == []
    assert any("pods" in warning for warning in check.warnings)


def test_warnings_are_logged_once_and_recovery_is_told(
    aggregator: AggregatorStub, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that stays down is logged when it begins, shown in each run's status, and its return is logged."""
    caplog.set_level("INFO")
    monkeypatch.setattr(KueueGangCheck, "TIMING", QUICK)
    with ReplayServer(MIXED, [("/api/v1/nodes", 403)]) as server:
        check = KueueGangCheck("kueue_gang", {}, [instance(server)])
        for _ in range(3):
            check.run()
            assert len(check.get_warnings()) == 1
        server.faults = []
        time.sleep(0.5)
        aggregator.reset()
        check.run()
        check.cancel()
    logged = [record for record in caplog.records if "nodes" in record.getMessage() and record.levelname == "WARNING"]
    assert len(logged) == 1
    assert any("read again" in record.getMessage() for record in caplog.records)
    assert Sent(aggregator).only("source.up", api_source="nodes", reason="ok") == 1


def test_series_that_lapsed_is_not_zero(aggregator: AggregatorStub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that fails keeps its picture until it is stale; then its series are neither repeated nor sent as 0."""
    monkeypatch.setattr(KueueGangCheck, "TIMING", QUICK)
    with ReplayServer(MIXED) as server:
        check = KueueGangCheck("kueue_gang", {}, [instance(server)])
        check.run()
        server.faults = [("/api/v1/pods", 500)]
        aggregator.reset()
        check.run()
        sent = Sent(aggregator)
        assert sent.only("source.up", api_source="pods", reason="unreachable") == 0
        assert sent.total("gpus.idle", idle_reason="starting") == 6
        time.sleep(0.6)
        aggregator.reset()
        check.run()
        sent = Sent(aggregator)
        assert sent.series["gpus.idle"] == []
        assert sent.series["gangs"] == []
        server.faults = []
        server.recording = replace(MIXED, lists={**MIXED.lists, "pods": b'{"kind":"PodList","metadata":{},"items":[]}'})
        aggregator.reset()
        check.run()
        check.cancel()
    sent = Sent(aggregator)
    (idle,) = sent.of("gpus.idle", idle_reason="starting")
    assert idle.value == 0, "the pods are gone: now it is zero, so that monitors recover"


NO_PODS = b'{"kind":"PodList","metadata":{},"items":[]}'


def test_a_source_that_is_gone_does_not_silence_the_others(
    aggregator: AggregatorStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workloads cannot be read any more; what other sources tell still falls to zero, so that monitors recover."""
    monkeypatch.setattr(KueueGangCheck, "TIMING", QUICK)
    with ReplayServer(MIXED) as server:
        check = KueueGangCheck("kueue_gang", {}, [instance(server, sync="list")])
        check.run()
        server.faults = [(WORKLOADS, 500)]
        time.sleep(0.6)
        check.run()
        aggregator.reset()
        check.run()
        sent = Sent(aggregator)
        assert sent.only("source.up", api_source="workloads.kueue.x-k8s.io") == 0
        assert sent.total("gpus.idle", idle_reason="starting") == 6
        server.recording = replace(MIXED, lists={**MIXED.lists, "pods": NO_PODS})
        aggregator.reset()
        check.run()
        check.cancel()
    (idle,) = Sent(aggregator).of("gpus.idle", idle_reason="starting")
    assert idle.value == 0


def test_zeros_begin_when_a_lapse_ends(aggregator: AggregatorStub, monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage that outlasts the tail does not swallow it: only now it is known to be zero."""
    monkeypatch.setattr(KueueGangCheck, "TIMING", QUICK)
    with ReplayServer(MIXED) as server:
        check = KueueGangCheck("kueue_gang", {}, [instance(server, sync="list", zero_tail_seconds=1)])
        check.run()
        server.faults = [("/api/v1/pods", 500)]
        time.sleep(0.6)
        check.run()
        time.sleep(1.1)
        check.run()
        server.faults = []
        server.recording = replace(MIXED, lists={**MIXED.lists, "pods": NO_PODS})
        aggregator.reset()
        check.run()
        check.cancel()
    (idle,) = Sent(aggregator).of("gpus.idle", idle_reason="starting")
    assert idle.value == 0


def test_unknown_option_is_warned_of(aggregator: AggregatorStub, caplog: pytest.LogCaptureFixture) -> None:
    """An option name that nothing reads gets a warning that names the nearest known one."""
    with ReplayServer(MIXED) as server:
        run({"kube_api_url": server.url, "grace_second": 30})
    assert any("grace_second" in text and "grace_seconds" in text for text in caplog.messages)
    assert aggregator.metric_names


def test_token_never_shows(aggregator: AggregatorStub, caplog: pytest.LogCaptureFixture, tmp_path: Any) -> None:
    """A token that the server refuses appears in no error, log line, tag or service check."""
    caplog.set_level("DEBUG")
    secret = "sha256-s3cr3t-t0ken"
    token = tmp_path / "token"
    token.write_text(secret)
    auth = {
        "reader": {"type": "file", "path": str(token)},
        "writer": {"type": "header", "name": "Authorization", "value": "Bearer <TOKEN>"},
    }
    with ReplayServer(MIXED, token="another") as server:
        check, report = run(instance(server, kube_api_options={"auth_token": auth}, auth_token=auth))
    shown = [report, *check.warnings, *caplog.messages]
    shown += [str(one) for name in aggregator.metric_names for one in aggregator.metrics(name)]
    shown += [str(one) for checks in aggregator._service_checks.values() for one in checks]
    assert "unauthorized" in report or "401" in report
    assert not any(secret in text for text in shown)


def test_events_of_sources(aggregator: AggregatorStub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that goes down is an event, and one that comes back; with collect_events false there is none."""
    monkeypatch.setattr(KueueGangCheck, "TIMING", QUICK)
    with ReplayServer(MIXED) as server:
        checks = [KueueGangCheck("kueue_gang", {}, [instance(server, collect_events=told)]) for told in (True, False)]
        for faults in ([], [("/api/v1/nodes", 403)], []):
            server.faults = list(faults)
            time.sleep(0.5)
            for check in checks:
                check.run()
        for check in checks:
            check.cancel()
    kinds = [(event["event_type"], event["msg_title"]) for event in aggregator.events]
    assert kinds == [
        ("kueue_gang.source_down", "Source nodes cannot be read"),
        ("kueue_gang.source_back", "Source nodes is read again"),
    ]
