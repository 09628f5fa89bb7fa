# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The fault table: every source x every fault that makes sense for it, through the real check and over real sockets.

The answer is the same in each cell. The run ends within its time; the metrics of all other sources arrive, with the
right numbers; source.up says why; when the fault ends, the source is up again without a restart, its numbers are right,
and what changes is seen; and after cancel() no thread and no socket is left.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from datadog_checks.base.stubs.aggregator import AggregatorStub

from datadog_checks.kueue_gang import KueueGangCheck
from datadog_checks.kueue_gang.sources import collector as collector_module
from datadog_checks.kueue_gang.sources import reader as reader_module
from lab.apiserver import KINDS, ApiServer
from lab.http_faults import Answer, Fault, Row
from lab.recording import CAPTURES
from tests.live import (
    KUEUE_METRICS,
    OBJECTS,
    PATIENCE,
    QUICK,
    SCHEDULER_METRICS,
    cluster,
    instance,
    readers,
    sockets,
    until,
)
from tests.model.build import GPU, NOW, TEAM, Json, new
from tests.sent import Sent, message

#: Seconds that a source may take to answer.
TIMEOUT = 0.6
#: Seconds within which each run has to end, whatever is broken: the first wait for lists, and three timeouts for a body
#: that comes byte by byte; the rest is patience with a slow machine.
LIMIT = 4.0

KUEUE = "kueue_metrics"
SCHEDULER = "scheduler_metrics"
API_SOURCES = tuple(KINDS)
SOURCES = (*API_SOURCES, KUEUE, SCHEDULER)

#: The gangs of the cluster and their states.
GANGS = {"tunes": "running", "evals": "partial", "trains": "starting"}
#: The gang that cannot be told without a source.
NEEDED_FOR = {
    "podgroups.scheduling.x-k8s.io": "tunes",
    "podgroups.scheduling.k8s.io": "evals",
    "workloads.kueue.x-k8s.io": "trains",
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Let what takes minutes take moments."""
    monkeypatch.setattr(KueueGangCheck, "TIMING", replace(QUICK, watch=0.6, margin=0.2))
    monkeypatch.setattr(collector_module, "FIRST_WAIT", 0.5)
    monkeypatch.setattr(collector_module, "LIST_WAIT", 0.5)
    monkeypatch.setattr(collector_module, "PIECE_WAIT", 0.2)


# --- the faults ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A fault: what it is, the reason that it leads to (`ok`: none), and what the endpoints of metrics say of it.

    `only` is the kind of request that it is about. Without a reason of its own a metrics endpoint has no such fault.
    `absent`: a 404 is the absence of what may be absent.
    """

    fault: Fault
    reason: str
    metrics: str = ""
    only: str = ""
    streaming: bool = True
    absent: bool = False


BUSY = Answer(429, b"", headers=(("Retry-After", "1"),))
#: Right in its frame, and wrong inside.
BROKEN_ITEMS = b'{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"9999"},"items":[{"metadata":{"na}]}'

FAULTS: dict[str, Case] = {
    "refused": Case("refuse", "unreachable", "unreachable"),
    "401": Case(401, "unauthorized", "unauthorized"),
    "403": Case(403, "forbidden", "forbidden"),
    "404": Case(404, "not_installed", "invalid", absent=True),
    "410": Case(410, "unreachable"),
    "429": Case(BUSY, "unreachable", "unreachable"),
    "500": Case(500, "unreachable", "unreachable"),
    "504": Case(504, "unreachable", "unreachable"),
    "redirect": Case("redirect", "invalid", "invalid"),
    "slow": Case("slow", "stale", "unreachable"),
    "silent": Case("silent", "unreachable", "unreachable"),
    "silent after the head": Case("mute", "unreachable", "unreachable"),
    "watch that goes silent": Case("mute", "ok", only="watch", streaming=False),
    "watch that is cut": Case("cut", "ok", only="watch", streaming=False),
    "watch of HTML": Case("html", "invalid", only="watch", streaming=False),
    "cut in an object": Case("cut", "unreachable", "unreachable"),
    "cut in a page": Case("cut", "unreachable", only="list", streaming=False),
    "cut in a later page": Case("cut", "unreachable", only="page", streaming=False),
    "500 for a later page": Case(500, "unreachable", only="page", streaming=False),
    "wrong JSON": Case("garbage", "invalid", "invalid"),
    "wrong JSON in the items": Case(Answer(200, BROKEN_ITEMS), "invalid", only="list", streaming=False),
    "HTML": Case("html", "invalid", "invalid"),
    "nothing in the body": Case("empty", "invalid", "invalid"),
    "huge object": Case("whole", "ok", "ok"),
    "object without metadata": Case("whole", "ok"),
}
STRAYS: Mapping[str, Any] = {"object without metadata": {"spec": {}}}
HUGE = "x" * 20_000_000


def rows(source: str, case: Case) -> list[Row]:
    """Return the rows of a server's table that break a source: all paths at which it could be read."""
    if source in KINDS:
        paths = [KINDS[source].path(version) for version in KINDS[source].versions]
    else:
        paths = [{KUEUE: "/metrics", SCHEDULER: "/scheduler/metrics"}[source]]
    return [(path, case.fault, None, case.only) for path in paths]


def reason_of(source: str, case: Case) -> str:
    """Return the reason that a fault leads to."""
    if source not in KINDS:
        return case.metrics
    # Every Kubernetes has pods and nodes: where they are not found, something else answers.
    return "invalid" if case.absent and source in {"pods", "nodes"} else case.reason


CELLS = [(source, fault) for fault, case in FAULTS.items() for source in SOURCES if reason_of(source, case)]


# --- the check and the server ----------------------------------------------------------------------------------------


@dataclass
class Agent:
    """Runs a check again and again, as the Agent does, only faster."""

    check: KueueGangCheck
    aggregator: AggregatorStub
    report: str = ""
    slowest: float = 0.0
    warnings: list[str] = field(default_factory=list)

    def run(self) -> Sent:
        """Run once; return what was sent."""
        self.aggregator.reset()
        began = time.monotonic()
        self.report = message(self.check.run())
        took = time.monotonic() - began
        assert took < LIMIT, f"the run took {took:.1f} s"
        self.warnings = self.check.get_warnings()
        return Sent(self.aggregator)

    def until(self, source: str, reason: str, seconds: float = PATIENCE) -> Sent:
        """Run until a source has a reason; return what was sent then."""
        deadline = time.monotonic() + seconds
        while reason_sent(sent := self.run(), source) != reason:
            told = {one.tags["api_source"]: one.tags["reason"] for one in sent.series["source.up"]}
            assert time.monotonic() < deadline, f"{source} is not {reason}: {told}, {self.report or self.warnings}"
            time.sleep(0.02)
        return sent


def reason_sent(sent: Sent, source: str) -> str:
    """Return the reason in a source's one source.up."""
    told = sent.of("source.up", api_source=source)
    if not told:
        return "absent"
    (up,) = told
    assert up.value == (up.tags["reason"] == "ok")
    return up.tags["reason"]


@contextmanager
def agent(aggregator: AggregatorStub, url: str, **options: Any) -> Iterator[Agent]:
    """Give a check; when it is cancelled, no thread and no socket may be left."""
    before = sockets()
    named = {"gang_engines": ["coscheduling", "kubernetes", "kueue"]}
    options = {"kube_timeout": TIMEOUT, "timeout": TIMEOUT, **named, **options}
    made = Agent(KueueGangCheck("kueue_gang", {}, [instance(url, **options)]), aggregator)
    try:
        yield made
    finally:
        made.check.cancel()
    until(lambda: not readers(), lambda: f"threads are left: {readers()}", seconds=1.0)
    until(lambda: len(sockets() - before) == 0, lambda: f"sockets are left: {sockets() - before}", seconds=3.0)


@contextmanager
def serving(**options: Any) -> Iterator[ApiServer]:
    """Give a server of the cluster with Kueue's and the scheduler's metrics."""
    with ApiServer(clock=lambda: NOW, **options) as server:
        fill(server)
        yield server


def fill(server: ApiServer) -> None:
    """Put the cluster and the metrics into a server."""
    server.apply_all(cluster())
    server.kueue, server.scheduler = KUEUE_METRICS, SCHEDULER_METRICS


# --- what arrives ----------------------------------------------------------------------------------------------------


def assert_arrives(sent: Sent, down: str = "", objects: Mapping[str, int] = OBJECTS) -> None:
    """Assert that everything arrives, with its numbers, that does not depend on a source that is down."""
    for source in SOURCES:
        if source != down:
            assert reason_sent(sent, source) == "ok", source
            if source in KINDS:
                assert sent.only("source.objects", api_source=source) == objects[source], source
    if down != KUEUE:
        assert sent.total("kueue.pending_workloads", kueue_cluster_queue="cq") == 3
    if down != SCHEDULER:
        assert sent.only("scheduler.permit_waiting") == 2
    if down != "nodes":
        assert sent.only("gpus.allocatable", gpu_resource=GPU) == 32
    if down != "pods":
        assert sent.total("gpus.allocated", gpu_resource=GPU) == 32
        seen = {gang: state for gang, state in GANGS.items() if gang != NEEDED_FOR.get(down)}
        told = {one.tags["gang"]: one.tags["gang_state"] for one in sent.series["gang.state_seconds"]}
        assert {gang: state for gang, state in told.items() if gang in seen} == seen


def assert_absent(sent: Sent, down: str, *, known: bool) -> None:
    """Assert that nothing is told that a source would have to tell; `known` if it was read once and is not stale."""
    if known:
        return
    assert sent.of("source.objects", api_source=down) == []
    if down == KUEUE:
        assert not any(name.startswith("kueue.") and sent.series[name] for name in list(sent.series))
    elif down == SCHEDULER:
        assert not any(name.startswith("scheduler.") and sent.series[name] for name in list(sent.series))
    elif down == "nodes":
        assert sent.series["gpus.allocatable"] == []
    elif down == "pods":
        assert sent.series["gangs"] == sent.series["gpus.allocated"] == []
    elif down in NEEDED_FOR:
        assert sent.of("gang.state_seconds", gang=NEEDED_FOR[down]) == []


def one_more(source: str) -> Json:
    """Return another object of a kind, which changes no number but that of the objects."""
    if source == "pods":
        return new("another", gpus=1)
    metadata: Json = {"name": "another", "labels": {"kueue.x-k8s.io/queue-name": "lq"}}
    if KINDS[source].namespaced:
        metadata["namespace"] = TEAM
    return {"metadata": metadata, "spec": {}, "status": {}}


def assert_follows(server: ApiServer, agent: Agent, source: str, objects: Mapping[str, int]) -> None:
    """Assert that a change of a source is seen, so that it is not only up but in step."""
    if source in KINDS:
        server.apply(source, one_more(source))
        expected = objects[source] + 1
        until(lambda: agent.run().only("source.objects", api_source=source) == expected, "the change is seen")
    else:
        server.kueue, server.scheduler = (
            KUEUE_METRICS.replace(b" 3\n", b" 4\n"),
            SCHEDULER_METRICS.replace(b" 5", b" 6"),
        )
        sent = agent.run()
        assert sent.total("kueue.pending_workloads") == 4
        assert sent.only("scheduler.permit_waiting") == 3


# --- the table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "fault"), CELLS)
def test_fault(source: str, fault: str, aggregator: AggregatorStub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that is there from the first run on."""
    case, reason = FAULTS[fault], reason_of(source, FAULTS[fault])
    monkeypatch.setattr(reader_module, "PAGE", 1)
    objects = dict(OBJECTS)
    with serving(streaming=case.streaming) as server:
        server.faults = rows(source, case)
        if fault in STRAYS:
            server.strays = {source: [STRAYS[fault]]}
            objects[source] += 1
        if fault == "huge object":
            _make_huge(server, source)
            objects[source] = objects.get(source, 0) + 1
        with agent(aggregator, server.url) as running:
            if reason == "ok":
                sent = _until_all_is_right(running, objects)
                if fault in STRAYS:
                    assert sent.only("source.bad_objects", api_source=source) == 1
            else:
                sent = running.until(source, reason)
                assert_arrives(sent, source, objects)
                assert_absent(sent, source, known=case.only == "watch")
                assert reason == "stale" or source in f"{running.report} {running.warnings}"
            server.faults = []
            _until_all_is_right(running, objects)
            assert_follows(server, running, source, objects)


def _make_huge(server: ApiServer, source: str) -> None:
    if source in KINDS:
        obj = one_more(source)
        obj["metadata"] |= {"name": "huge", "annotations": {"notes": HUGE}}
        server.apply(source, obj)
    else:
        comment = b"# " + HUGE.encode() + b"\n"
        server.kueue, server.scheduler = KUEUE_METRICS + comment, SCHEDULER_METRICS + comment


def _until_all_is_right(running: Agent, objects: Mapping[str, int]) -> Sent:
    """Run until all sources are up with all their objects; then everything has to be right."""

    def all_up() -> Sent | None:
        sent = running.run()
        up = all(reason_sent(sent, source) == "ok" for source in SOURCES)
        counted = up and all(sent.only("source.objects", api_source=name) == objects[name] for name in KINDS)
        return sent if counted else None

    sent = until(all_up, lambda: f"{running.report} {running.warnings}")
    assert sent is not None
    assert_arrives(sent, objects=objects)
    assert running.report == ""
    return sent


#: In the middle of its life a source of each kind, a built-in and a custom one, stands for all.
LATER = [(source, fault) for source, fault in CELLS if source in {"pods", "workloads.kueue.x-k8s.io", KUEUE, SCHEDULER}]
#: Faults of watches that are told by the age of what was read.
QUIET = {"slow", "silent after the head", "cut in an object"}
#: Faults of lists, which no watch meets.
OF_LISTS = {"huge object", "object without metadata"} | {
    name for name, case in FAULTS.items() if case.only in {"list", "page"}
}


@pytest.mark.parametrize(("source", "fault"), [cell for cell in LATER if cell[1] not in OF_LISTS])
def test_fault_that_comes_later(source: str, fault: str, aggregator: AggregatorStub) -> None:
    """A fault that comes when all was well: what was known stays for a while, and what was missed is made up for."""
    case, reason = FAULTS[fault], reason_of(source, FAULTS[fault])
    if case.absent:
        # What was there, and is in discovery still, has not been uninstalled.
        reason = "invalid"
    if source in KINDS and fault in QUIET:
        # A watch that is silent or slow is waited for as long as it may be quiet; meanwhile its age grows.
        reason = "ok"
    with serving() as server, agent(aggregator, server.url) as running:
        _until_all_is_right(running, OBJECTS)
        with server.store.changed:
            server.faults = rows(source, case)
            server.cut(source)
            if source in KINDS:
                server.delete(source, *_missed(source))
        sent = running.until(source, reason)
        if source in KINDS and reason not in {"not_installed", "ok"}:
            assert sent.only("source.objects", api_source=source) == OBJECTS[source], "the old picture stays"
        if source not in KINDS:
            assert_absent(sent, source, known=False)
        server.faults = []
        objects = {**OBJECTS, **({source: OBJECTS[source] - 1} if source in KINDS else {})}
        until(
            lambda: (
                all(reason_sent(sent := running.run(), one) == "ok" for one in SOURCES)
                and all(sent.only("source.objects", api_source=name) == objects[name] for name in KINDS)
            ),
            lambda: f"{running.report} {running.warnings}",
        )
        assert_follows(server, running, source, objects)


def _missed(source: str) -> tuple[str, str]:
    """Return name and namespace of an object that goes while its source is down."""
    return ("evals-1", TEAM) if source == "pods" else ("job-spare", TEAM)


# --- the whole server ------------------------------------------------------------------------------------------------


@pytest.fixture
def _no_records():
    """Let nobody keep log records: those of the Agent's HTTP client hold the error, and with it the socket."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("_no_records")
@pytest.mark.parametrize("target", ["api", KUEUE, SCHEDULER])
def test_tls_failure(target: str, aggregator: AggregatorStub) -> None:
    """A certificate that is not trusted makes what it protects unreachable, until the server has the right one."""
    wrong, right = CAPTURES / "untrusted.pem", CAPTURES / "replay.pem"
    trust = {"tls_ca_cert": str(right)}
    with serving() as plain, serving(certificate=wrong) as server:
        targets: dict[str, dict[str, Any]] = {
            "api": {"kube_api_url": server.url, "kube_api_options": trust},
            KUEUE: {"openmetrics_endpoint": f"{server.url}/metrics", **trust},
            SCHEDULER: {"scheduler_metrics": {"url": f"{server.url}/scheduler/metrics", **trust}},
        }
        with agent(aggregator, plain.url, **targets[target]) as running:
            broken = API_SOURCES if target == "api" else (target,)
            sent = running.until(broken[0], "unreachable")
            for source in SOURCES:
                assert reason_sent(sent, source) == ("unreachable" if source in broken else "ok")
            assert "tls_ca_cert" in f"{running.report} {running.warnings}"
            server.certify(right)
            _until_all_is_right(running, OBJECTS)


def test_nobody_listens(aggregator: AggregatorStub) -> None:
    """A connection that is refused by the machine: every source of the API says so; Kueue and the scheduler arrive."""
    with serving() as metrics:
        with ApiServer() as gone:
            url = gone.url
        with agent(aggregator, metrics.url, kube_api_url=url) as running:
            sent = running.until("pods", "unreachable")
            assert {reason_sent(sent, source) for source in API_SOURCES} == {"unreachable"}
            assert sent.total("kueue.pending_workloads") == 3
            assert sent.only("scheduler.permit_waiting") == 2
            assert running.report == "", "the scheduler is up, so that the run as a whole is not"
            assert any("connection refused" in text for text in running.warnings)
            with serving(port=int(url.rpartition(":")[2])):
                _until_all_is_right(running, OBJECTS)


def test_server_restarts(aggregator: AggregatorStub) -> None:
    """All connections break at once, and the server is back at once: nothing is listed anew, and nothing is missed."""
    with serving() as server, agent(aggregator, server.url) as running:
        _until_all_is_right(running, OBJECTS)
        for _ in range(3):
            server.restart()
            _until_all_is_right(running, OBJECTS)
        assert all(len(server.requests(KINDS[name].path(KINDS[name].versions[0]), "stream")) == 1 for name in KINDS)
        assert_follows(server, running, "pods", OBJECTS)


def test_versions_go_back(aggregator: AggregatorStub, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restore from a backup the numbers are those of the backup, although no server says that it was one."""
    # Servers count in whole seconds: the watch has to reach its end before its reader loses patience.
    monkeypatch.setattr(KueueGangCheck, "TIMING", QUICK)
    with serving() as server, agent(aggregator, server.url) as running:
        _until_all_is_right(running, OBJECTS)
        back = server.store.version
        for number in range(30):
            server.apply("pods", new(f"lost-{number}", gpus=1))
        more = {**OBJECTS, "pods": OBJECTS["pods"] + 30}
        _until_all_is_right(running, more)
        server.restart(back)
        _until_all_is_right(running, OBJECTS)
        assert_follows(server, running, "pods", OBJECTS)


@pytest.mark.parametrize("skew", [-3600.0, 3600.0, 86_400.0 * 400])
def test_clock_skew(skew: float, aggregator: AggregatorStub) -> None:
    """Ages are of the server's clock, which stamped the objects, however far it is from the local one."""
    with ApiServer(clock=lambda: time.time() + skew) as server:
        fill(server)
        for obj in cluster():
            server.delete(
                next(name for name, kind in KINDS.items() if kind.kind == obj["kind"]), obj["metadata"]["name"], TEAM
            )
        stamp = datetime.fromtimestamp(time.time() + skew - 300, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        group = {"metadata": {"name": "late", "namespace": TEAM, "creationTimestamp": stamp}, "spec": {"minMember": 2}}
        pod = new("late-0", metadata={"labels": {"scheduling.x-k8s.io/pod-group": "late"}})
        pod["metadata"]["creationTimestamp"] = stamp
        server.apply("podgroups.scheduling.x-k8s.io", group)
        server.apply("pods", pod)
        with agent(aggregator, server.url) as running:
            sent = running.run()
            (age,) = sent.of("gang.state_seconds", gang="late")
    assert 295 <= age.value <= 310


@pytest.mark.parametrize(
    "fault", ["refused", "401", "403", "404", "429", "500", "silent", "cut in an object", "HTML", "wrong JSON"]
)
def test_discovery_fails(fault: str, aggregator: AggregatorStub) -> None:
    """Without discovery every source is read all the same."""

    class Blind(ApiServer):
        def fault(self, target: str) -> Fault | None:
            exact = target == "/apis" or (target.startswith("/apis/kueue.x-k8s.io/") and target.count("/") == 3)
            return FAULTS[fault].fault if exact else super().fault(target)

    with Blind(clock=lambda: NOW) as server:
        fill(server)
        with agent(aggregator, server.url) as running:
            _until_all_is_right(running, OBJECTS)


def test_everything_fails_at_once_and_heals(aggregator: AggregatorStub) -> None:
    """With all sources down the run fails in time and says why, once a cause; then all are back."""
    with serving() as server:
        server.faults = [("/", 500)]
        with agent(aggregator, server.url) as running:
            sent = running.until("pods", "unreachable")
            assert {reason_sent(sent, source) for source in SOURCES} == {"unreachable"}
            for source in SOURCES:
                assert source in running.report
            server.faults = []
            _until_all_is_right(running, OBJECTS)


def test_faults_come_and_go(aggregator: AggregatorStub) -> None:
    """One fault after the other, on one check that is never restarted."""
    with serving() as server, agent(aggregator, server.url) as running:
        _until_all_is_right(running, OBJECTS)
        for number, fault in enumerate(("refused", "401", "500", "HTML", "cut in an object", "redirect", "429")):
            source = API_SOURCES[number % len(API_SOURCES)]
            server.faults = rows(source, FAULTS[fault])
            server.cut(source)
            running.until(source, reason_of(source, FAULTS[fault]))
            server.faults = []
            _until_all_is_right(running, OBJECTS)


def test_the_table_is_complete() -> None:
    """Fifteen sources, each with every fault that makes sense for it."""
    assert len(SOURCES) == 15
    assert {source for source, _ in CELLS} == set(SOURCES)
    assert len(CELLS) == 13 * len(FAULTS) + 2 * sum(bool(case.metrics) for case in FAULTS.values())
