# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Signals in the check: read beside the API, never in its way, and told as all other sources are.

The cluster and the pods that serve metrics are real as far as HTTP goes; waits are those of production where a test
says nothing else.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from datadog_checks.base.stubs.aggregator import AggregatorStub

from datadog_checks.kueue_gang import KueueGangCheck, settings
from datadog_checks.kueue_gang.derive.rules import TrainingRule
from datadog_checks.kueue_gang.facts.cluster import Changes
from datadog_checks.kueue_gang.facts.signals import NO_SIGNALS, TrainJob
from datadog_checks.kueue_gang.sources.prometheus import ACTIVITY_QUERY
from datadog_checks.kueue_gang.sources.samples import ACTIVITY_METRICS
from datadog_checks.kueue_gang.sources.targets import PodTarget, PrometheusTarget, Targets, TrainJobTarget
from lab.apiserver import KINDS, ApiServer
from lab.exporters import Exporters, addresses, dcgm, pod
from tests.live import QUICK, cluster, instance, readers, sockets, until
from tests.model.build import NOW
from tests.sent import Sent, message
from tests.test_signals_prometheus import Prometheus, of, vector

LABELS = {"app": "dcgm-exporter"}
SELECTOR = "app=dcgm-exporter"
RATE = b"# TYPE train_tokens_total counter\ntrain_tokens_total 7\n"
#: Seconds that a thread may take to end.
AT_ONCE = 1.0
#: Seconds that a run may wait for signals.
A_MOMENT = 0.25
TRAIN_JOB = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "train", "namespace": "team"},
    "status": {
        "trainerStatus": {
            "progressPercentage": 45,
            "metrics": [{"name": "tokens_per_second", "value": "1234.5"}, {"name": "loss", "value": "NaN"}],
            "lastUpdatedTime": "2027-01-15T12:00:00Z",
        }
    },
}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """Return a cluster."""
    with ApiServer(clock=lambda: NOW) as made:
        made.apply_all(cluster())
        yield made


@pytest.fixture
def exporters() -> Iterator[Exporters]:
    """Return three nodes whose GPUs are held: two pods work, one rests."""
    ips = addresses(3)
    with Exporters({ip: dcgm(ip, [("team", f"train-{n}", 0.5 * (n < 2))]) for n, ip in enumerate(ips)}) as made:
        yield made


def with_pods(server: ApiServer, number: int, labels: dict[str, str] = LABELS, namespace: str = "gpu-operator") -> None:
    """Put the pods that serve metrics into the cluster."""
    server.apply_all(pod(f"exporter-{n}", ip, labels, namespace) for n, ip in enumerate(addresses(number)))


class Running:
    """A check of a cluster with signals; what each run tells the derivation is kept."""

    def __init__(self, server: ApiServer, aggregator: AggregatorStub, **options: Any) -> None:
        """Make a check."""
        no_scrapes = {"openmetrics_endpoint": None, "scheduler_metrics": None}
        self.check = KueueGangCheck(
            "kueue_gang", {}, [instance(server.url, **{**no_scrapes, "kube_timeout": 30, **options})]
        )
        self.check.TIMING = QUICK
        self.aggregator = aggregator
        self.changes = Changes()
        #: Seconds that the last run took.
        self.took = 0.0

    def run(self) -> str:
        """Run once; return what failed."""
        self.aggregator.reset()
        self.check.warnings.clear()
        if self.check._deriver is None:
            self.check.run_check_initializations()
            self.check.check_initializations.clear()
            self._listen()
        began = time.monotonic()
        report = message(self.check.run())
        self.took = time.monotonic() - began
        self.sent = Sent(self.aggregator)
        return report

    def _listen(self) -> None:
        deriver = self.check._deriver
        assert deriver is not None
        apply = deriver.apply

        def heard(changes: Changes, now: float) -> Any:
            self.changes = changes
            return apply(changes, now)

        deriver.apply = heard  # type: ignore[method-assign]

    def reason(self, source: str) -> str:
        """Return how reading a source went, by what was sent; empty where nothing was."""
        told = self.sent.of("source.up", api_source=source)
        assert len(told) <= 1
        return told[0].tags["reason"] if told else ""

    def beats(self) -> set[tuple[str, bool]]:
        """Return the pods whose GPUs were told in the last run, and whether they work."""
        return {(beat.pod, beat.active) for beat in self.changes.signals.beats}


@contextmanager
def running(server: ApiServer, aggregator: AggregatorStub, **options: Any) -> Iterator[Running]:
    """Give a check, and cancel it."""
    made = Running(server, aggregator, **options)
    try:
        yield made
    finally:
        made.check.cancel()
        until(lambda: not readers(), lambda: f"threads are left: {readers()}")


def scraped(port: int, **options: Any) -> dict[str, Any]:
    """Return the option `activity` for exporters at a port."""
    return {"label_selector": SELECTOR, "port": port, **options}


# --- what comes ------------------------------------------------------------------------------------------------------


def test_the_first_run_sees_quick_exporters(
    server: ApiServer, exporters: Exporters, aggregator: AggregatorStub
) -> None:
    """The pods are found, asked and told within one run, as `agent check` has only one."""
    with_pods(server, 3)
    with running(server, aggregator, activity=scraped(exporters.port)) as made:
        assert made.run() == ""
        assert made.beats() == {("train-0", True), ("train-1", True), ("train-2", False)}
        assert made.changes.signals.activity == ""
        assert made.changes.signals.training == "not_configured"
        assert made.reason("activity") == "ok"
        assert made.sent.only("source.objects", api_source="activity") == 3
        assert made.reason("training") == ""


def test_pods_come_and_go(server: ApiServer, exporters: Exporters, aggregator: AggregatorStub) -> None:
    """The watch tells of new exporters and of those that went; only the labelled ones are asked."""
    with_pods(server, 2)
    with running(server, aggregator, activity=scraped(exporters.port)) as made:
        made.run()
        assert {ip for ip in exporters.asked()} == set(addresses(2))  # noqa: C416
        server.delete("pods", "exporter-0", "gpu-operator")
        with_pods(server, 3, {"app": "other"})
        server.apply("pods", pod("late", addresses(3)[2], LABELS))

        def only_the_new_one() -> bool:
            made.run()
            return made.beats() == {("train-2", False)}

        until(only_the_new_one)


def test_a_namespace_of_pods(server: ApiServer, exporters: Exporters, aggregator: AggregatorStub) -> None:
    """With a namespace those with the labels elsewhere are left alone."""
    with_pods(server, 1)
    server.apply("pods", pod("stranger", addresses(2)[1], LABELS, "elsewhere"))
    with running(server, aggregator, activity=scraped(exporters.port, namespace="gpu-operator")) as made:
        made.run()
        assert made.beats() == {("train-0", True)}
        (listed, *_) = [one for one in server.requests("/api/v1/pods") if "labelSelector" in one.query]
        assert listed.query["fieldSelector"] == "status.phase=Running,metadata.namespace=gpu-operator"


def test_prometheus_and_pods_together(server: ApiServer, exporters: Exporters, aggregator: AggregatorStub) -> None:
    """Activity of a Prometheus, throughput of pods and of another query: each source tells its own number."""
    exporters.pages = {addresses(1)[0]: RATE}
    server.apply("pods", pod("trainer", addresses(1)[0], {"app": "trainer"}, "team"))
    with Prometheus() as prometheus:
        prometheus.result = vector(of("train-0", "0.5", UUID="GPU-1"))
        training = [
            {"prometheus_url": prometheus.url, "query": "rate", "unit": "samples"},
            {"label_selector": "app=trainer", "port": exporters.port, "metric": "train_tokens_total", "unit": "tokens"},
        ]
        activity = {"prometheus_url": prometheus.url}
        with running(server, aggregator, activity=activity, training=training) as made:
            assert made.run() == ""
            assert made.beats() == {("train-0", True)}
            assert sorted((one.source, one.pod, one.value, one.counter) for one in made.changes.signals.paces) == [
                (0, "train-0", 0.5, False), (1, "trainer", 7.0, True),
            ]  # fmt: skip
            assert (made.reason("activity"), made.reason("training")) == ("ok", "ok")
            assert {one.query["query"] for one in prometheus.log} == {ACTIVITY_QUERY, "rate"}


def test_train_jobs(server: ApiServer, aggregator: AggregatorStub) -> None:
    """They are read as other objects are, with what their trainers tell; a metric that is no number is none."""
    server.apply_all([TRAIN_JOB, {**TRAIN_JOB, "metadata": {"name": "mute", "namespace": "team"}, "status": {}}])
    with running(server, aggregator, training=[{"train_jobs": True}]) as made:
        assert made.run() == ""
        assert sorted((new.name, new) for _, new in made.changes.train_jobs if new) == [
            ("mute", TrainJob("team", "mute")),
            ("train", TrainJob("team", "train", 45.0, {"tokens_per_second": 1234.5}, NOW)),
        ]
        assert made.reason("trainjobs") == "ok"
        assert made.changes.signals.training == ""
        assert "kueue-gang-training 0" not in readers()


# --- without options -------------------------------------------------------------------------------------------------


def test_without_options_nothing_is_started(server: ApiServer, aggregator: AggregatorStub) -> None:
    """No thread, no request and no series more than without the feature."""
    server.apply_all([TRAIN_JOB])
    with_pods(server, 3)
    with running(server, aggregator) as made:
        made.run()
        made.run()
        assert len(readers()) == len(KINDS)
        assert made.changes.signals is NO_SIGNALS
        assert not [one for one in server.log if "labelSelector" in one.query and one.path == "/api/v1/pods"]
        assert server.requests("/apis/trainer.kubeflow.org") == []
        assert {made.reason(one) for one in ("activity", "training", "trainjobs")} == {""}


# --- what goes wrong -------------------------------------------------------------------------------------------------


def test_the_list_of_pods_is_forbidden(server: ApiServer, exporters: Exporters, aggregator: AggregatorStub) -> None:
    """Whom to ask is not known: the source says what is missing, and the API's own sources go on."""
    with_pods(server, 3)
    server.faults = [("/api/v1/pods?labelSelector", 403)]
    with running(server, aggregator, activity=scraped(exporters.port)) as made:
        assert made.run() == ""
        assert made.reason("activity") == "forbidden"
        assert made.changes.signals.activity == "forbidden"
        assert 'resources pods of apiGroups ""' in "\n".join(made.check.warnings)
        assert made.reason("pods") == "ok"
        server.faults = []
        until(lambda: made.run() == "" and made.reason("activity") == "ok" and made.beats())


def test_exporters_that_fail(server: ApiServer, exporters: Exporters, aggregator: AggregatorStub) -> None:
    """The run does not fail for them; the warning names the option, and the gangs are told as ever."""
    with_pods(server, 3)
    exporters.pages = dict.fromkeys(addresses(3), b"DCGM_FI_DEV_GPU_UTILIZATION 3\nDCGM_FI_DEV_FB_USED 7\n")
    with running(server, aggregator, activity=scraped(exporters.port)) as made:
        assert made.run() == ""
        assert made.reason("activity") == "invalid"
        assert "DCGM_FI_DEV_GPU_UTILIZATION" in "\n".join(made.check.warnings)
        assert made.changes.signals.activity == "no_sample"
        assert made.sent.total("gangs") == 3


def test_signals_alone_are_no_run(server: ApiServer, exporters: Exporters, aggregator: AggregatorStub) -> None:
    """Where the whole API is down the run fails, though a Prometheus answers."""
    server.faults = [("/api", 500)]
    with Prometheus() as prometheus:
        prometheus.result = vector(of("train-0", "0.5", UUID="GPU-1"))
        with running(server, aggregator, activity={"prometheus_url": prometheus.url}) as made:
            assert "HTTP 500" in made.run()
            assert made.reason("activity") == "ok"


def test_train_jobs_that_are_not_installed(server: ApiServer, aggregator: AggregatorStub) -> None:
    """Who asks for them is told that there are none; nothing else is in doubt."""
    del server.kinds["trainjobs"]
    with running(server, aggregator, training=[{"train_jobs": True}]) as made:
        assert made.run() == ""
        assert made.reason("trainjobs") == "not_installed"
        assert "take train_jobs out of training" in "\n".join(made.check.warnings)
        assert made.changes.signals.training == "no_sample"
        assert "trainjobs" not in made.changes.unread
        assert made.sent.total("gangs") == 3


def test_train_jobs_that_may_not_be_read(server: ApiServer, aggregator: AggregatorStub) -> None:
    """The reason is the one of the signal, too."""
    server.faults = [("/apis/trainer.kubeflow.org", 403)]
    with running(server, aggregator, training=[{"train_jobs": True}]) as made:
        made.run()
        assert made.reason("trainjobs") == "forbidden"
        assert made.changes.signals.training == "forbidden"


def test_bad_samples_are_counted(server: ApiServer, exporters: Exporters, aggregator: AggregatorStub) -> None:
    """What exporters tell that is no number is in the check's own count."""
    with_pods(server, 1)
    labels = 'UUID="GPU-1",namespace="team",pod="train-0"'
    lines = [f"{ACTIVITY_METRICS[0]}{{{labels}}} NaN", f"{ACTIVITY_METRICS[1]}{{{labels}}} -5", ""]
    exporters.pages = {addresses(1)[0]: "\n".join(lines).encode()}
    with running(server, aggregator, activity=scraped(exporters.port)) as made:
        made.run()
        assert made.sent.by("source.bad_samples", "reason") == {"nan": 1, "other": 1}


# --- the time of a run -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["silent", "mute", "slow"])
def test_endpoints_that_hang_delay_nothing(
    fault: str, server: ApiServer, exporters: Exporters, aggregator: AggregatorStub
) -> None:
    """One run waits a moment, once; each other run takes as long as one without signals."""
    with_pods(server, 3)
    exporters.sick = dict.fromkeys(addresses(3), fault)
    with Prometheus() as prometheus:
        prometheus.faults, prometheus.result = [("/api", fault)], vector(*(of(f"p-{n}", "1") for n in range(9)))
        options = {
            "activity": scraped(exporters.port, timeout=10),
            "training": [{"prometheus_url": prometheus.url, "query": "x", "unit": "tokens", "timeout": 10}],
        }
        with running(server, aggregator, **options) as made:
            made.run()
            times = []
            for _ in range(5):
                made.run()
                times.append(made.took)
            # The middle one: a busy machine may hold up any single run.
            assert sorted(times)[2] < A_MOMENT
            assert (made.reason("activity"), made.reason("training")) == ("stale", "stale")
            assert made.sent.total("gangs") == 3
            assert len(prometheus.log) == 1, "a source that is still asked is left alone"


def test_a_slow_answer_comes_with_a_later_run(server: ApiServer, aggregator: AggregatorStub) -> None:
    """It is not lost, and the run that takes it has not waited for it."""
    with Prometheus() as prometheus:
        released = threading.Event()
        answer = prometheus.answer
        prometheus.result = vector(of("train-0", "0.5", UUID="GPU-1"))
        prometheus.answer = lambda *given: (released.wait(20), answer(*given))[1]  # type: ignore[method-assign]
        with running(server, aggregator, activity={"prometheus_url": prometheus.url, "timeout": 30}) as made:
            made.run()
            assert made.beats() == set()
            assert made.reason("activity") == "stale"
            made.run()
            assert made.took < A_MOMENT
            released.set()
            until(lambda: made.run() == "" and made.beats() == {("train-0", True)})


# --- cancel ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["silent", "mute", "slow"])
def test_cancel_ends_hanging_scrapes(
    fault: str, server: ApiServer, exporters: Exporters, aggregator: AggregatorStub
) -> None:
    """Threads and sockets are gone within a second, and cancel itself does not wait."""
    with_pods(server, 3)
    before = sockets()
    exporters.sick = dict.fromkeys(addresses(3), fault)
    with Prometheus() as prometheus:
        prometheus.faults, prometheus.result = [("/api", fault)], vector(*(of(f"p-{n}", "1") for n in range(9)))
        made = Running(
            server,
            aggregator,
            activity=scraped(exporters.port, timeout=30),
            training=[{"prometheus_url": prometheus.url, "query": "x", "unit": "tokens", "timeout": 30}],
        )
        made.run()
        until(lambda: len(exporters.log) == 3 and prometheus.log)
        began = time.monotonic()
        canceller = threading.Thread(target=made.check.cancel)
        canceller.start()
        canceller.join(AT_ONCE)
        assert time.monotonic() - began < 0.3
        until(lambda: not readers(), lambda: f"threads are left: {readers()}", seconds=AT_ONCE)
        made.check.run()
        assert readers() == []
    until(lambda: not sockets() - before, "all sockets are closed")


def test_cancel_before_the_first_round(server: ApiServer, exporters: Exporters, aggregator: AggregatorStub) -> None:
    """The parts are made and nothing is asked: nothing ever is."""
    with_pods(server, 3)
    made = Running(server, aggregator, activity=scraped(exporters.port))
    made.check.run_check_initializations()
    made.check.cancel()
    made.check.run()
    assert (exporters.log, readers()) == ([], [])


# --- options ---------------------------------------------------------------------------------------------------------


def config(**options: Any) -> Any:
    """Return the validated options of an instance."""
    check = KueueGangCheck("kueue_gang", {}, [{"kube_api_url": "http://127.0.0.1:1", **options}])
    check.load_configuration_models()
    return check.config


def test_options_without_signals() -> None:
    """No target, and rules that expect none."""
    assert settings.targets(config()) == Targets()
    rules = settings.rules(config())
    assert (rules.activity, rules.inactive_after, rules.training, rules.prices) == (False, 600.0, (), ())


def test_options_become_targets(tmp_path: Path) -> None:
    """Each way of an option is a target, with the defaults that the documentation names."""
    tls = {"tls_verify": False}
    token = {
        "reader": {"type": "file", "path": str(tmp_path)},
        "writer": {"type": "header", "name": "A", "value": "<TOKEN>"},
    }
    training: Sequence[dict[str, Any]] = [
        {
            "label_selector": "app=x", "port": 9000, "metric": "tokens", "unit": "tokens", "namespace": "team",
            "scheme": "https", "path": "/m", "requests_per_run": 7, "timeout": 3, "auth_token": token, **tls,
        },
        {"label_selector": "app=y", "port": 9000, "metric": "steps_total", "unit": "steps"},
        {"prometheus_url": "http://p:9090", "query": "q", "unit": "tokens", "gang_label": "job", "timeout": 9},
        {"prometheus_url": "http://p:9090", "query": "q", "unit": "tokens", "namespace_label": "ns", "pod_label": "p"},
        {"train_jobs": True, "metric": "tps", "unit": "tokens", "stalled_after_seconds": 60},
    ]  # fmt: skip
    found = settings.targets(config(training=training, activity={"label_selector": "app=dcgm"}))
    assert found == Targets(
        activity=PodTarget("app=dcgm", 9400, ACTIVITY_METRICS),
        training=(
            PodTarget("app=x", 9000, ("tokens",), "team", "https", "/m", 7, 3.0, {**tls, "auth_token": token}),
            PodTarget("app=y", 9000, ("steps_total",)),
            PrometheusTarget("http://p:9090", "q", gang_label="job", timeout=9.0),
            PrometheusTarget("http://p:9090", "q", ("ns",), ("p",)),
            TrainJobTarget(),
        ),
    )
    assert type(found.training[0].http) is dict  # type: ignore[union-attr]
    default = settings.targets(config(activity={"prometheus_url": "http://p:9090"})).activity
    assert isinstance(default, PrometheusTarget)
    assert default.query == ACTIVITY_QUERY
    asked = settings.targets(config(activity={"prometheus_url": "http://p:9090", "query": "q"})).activity
    assert isinstance(asked, PrometheusTarget)
    assert asked.query == "q"


@pytest.mark.parametrize(("interval", "window"), [(15, "[2m]"), (60, "[2m]"), (90, "[3m]"), (300, "[6m]")])
def test_no_work_between_two_runs_is_missed(interval: float, window: str) -> None:
    """The query of the check looks back beyond the run before, with a minute for runs and scrapes that come late."""
    options = {"activity": {"prometheus_url": "http://p:9090"}, "inactive_after_seconds": 3600}
    target = settings.targets(config(**options, min_collection_interval=interval)).activity
    assert isinstance(target, PrometheusTarget)
    assert target.query.count(window) == 2


def test_labels_of_the_user_are_asked_for() -> None:
    """What the query of the check does not keep could not be read: `pod_label` goes without a `query`."""
    options = {"prometheus_url": "http://p:9090", "namespace_label": "k8s_ns", "pod_label": "k8s_pod"}
    target = settings.targets(config(activity=options)).activity
    assert isinstance(target, PrometheusTarget)
    kept = target.query.removeprefix("max by (").partition(")")[0].split(", ")
    assert {"k8s_ns", "k8s_pod", "UUID", "pod"} <= set(kept)
    assert len(kept) == len(set(kept))


def test_options_become_rules() -> None:
    """What the samples mean, in the order of the sources."""
    training = [
        {"label_selector": "app=x", "port": 9000, "metric": "tokens", "unit": "tokens", "over_ranks": "max"},
        {"train_jobs": True, "metric": "tps", "unit": "samples", "stalled_after_seconds": 60},
    ]
    prices = {"pool=spot": 0.5, "nvidia.com/gpu": 2.5}
    activity = {"label_selector": "app=x"}
    found = config(training=training, activity=activity, inactive_after_seconds=900, gpu_hourly_price=prices)
    rules = settings.rules(found)
    assert rules.training == (
        TrainingRule("tokens", "max", 300.0),
        TrainingRule("samples", "sum", 60.0, train_jobs=True, metric="tps"),
    )
    assert (rules.activity, rules.inactive_after) == (True, 900.0)
    assert rules.prices == (("pool=spot", 0.5), ("nvidia.com/gpu", 2.5))


def test_options_as_they_are_written() -> None:
    """The commands have no models: raw mappings do as well."""
    raw = SimpleNamespace(
        activity={"label_selector": "app=x"}, training=[{"train_jobs": True}], min_collection_interval=None
    )
    found = settings.targets(raw)  # type: ignore[arg-type]
    assert found == Targets(PodTarget("app=x", 9400, ACTIVITY_METRICS), (TrainJobTarget(),))


def test_train_jobs_are_wanted_where_they_are_asked_for() -> None:
    """Only then is the resource read; what else is read does not depend on it."""
    without = [row.api_source for row in settings.wanted_resources(settings.rules(config()))]
    with_them = settings.rules(config(training=[{"train_jobs": True}]))
    assert [row.api_source for row in settings.wanted_resources(with_them)] == [*without, "trainjobs"]
    assert "events" in without
    assert {row.path("v1alpha1") for row in settings.wanted_resources(with_them) if row.api_source == "trainjobs"} == {
        "/apis/trainer.kubeflow.org/v1alpha1/trainjobs"
    }
