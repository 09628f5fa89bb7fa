# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A query to a Prometheus server: what its answers mean, and what is told of those that mean nothing.

The answers have the form of the API of Prometheus (querying/api); the errors are those that it was seen to give.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from datadog_checks.kueue_gang.facts.signals import Beat, Pace
from datadog_checks.kueue_gang.sources import prometheus as module
from datadog_checks.kueue_gang.sources.prometheus import ACTIVITY_QUERY, metric_names
from datadog_checks.kueue_gang.sources.samples import NAMESPACE_LABELS, POD_LABELS
from datadog_checks.kueue_gang.sources.signals import Heard, SignalReader
from datadog_checks.kueue_gang.sources.targets import PrometheusTarget, Targets
from lab.http_faults import NOT_FOUND, Answer, Fault, FaultyServer, Query
from tests.live import readers, sockets, until

LOG = logging.getLogger("test")
SECRET = "s3cr3t-t0k3n"
MODEL = {"namespace_labels": NAMESPACE_LABELS, "pod_labels": POD_LABELS}


class Prometheus(FaultyServer):
    """A server that has one answer; `names` are those of its metrics, None where they may not be read."""

    result: bytes = b""
    names: Sequence[str] | None = None

    def now(self) -> datetime:
        """Return the time."""
        return datetime.now(UTC)

    def answer(self, path: str, query: Query, headers: Mapping[str, str]) -> Answer:
        """Answer a query, or tell the names."""
        del query
        if not self.admits(headers):
            return Answer(401, b"Unauthorized\n", "text/plain")
        if path == "/api/v1/query":
            return Answer(200, self.result)
        if path == "/api/v1/label/__name__/values" and self.names is not None:
            return Answer(200, orjson.dumps({"status": "success", "data": list(self.names)}))
        return NOT_FOUND


def vector(*series: tuple[Mapping[str, str], str], **more: Any) -> bytes:
    """Return the answer with these series: labels and value."""
    result = [{"metric": labels, "value": [1_700_000_000.0, value]} for labels, value in series]
    return orjson.dumps({"status": "success", "data": {"resultType": "vector", "result": result}, **more})


def of(pod: str, value: str, **labels: str) -> tuple[Mapping[str, str], str]:
    """Return the series of a pod."""
    return {"namespace": "team", "pod": pod, **labels}, value


class Asking:
    """The signals of a server."""

    def __init__(self, server: Prometheus, *, activity: bool = False, interval: float = 15.0, **options: Any) -> None:
        """Ask a server."""
        given = {"url": server.url, "query": "train_tokens_total", **(MODEL if activity else {}), **options}
        target = PrometheusTarget(**given)
        targets = Targets(activity=target) if activity else Targets(training=(target,))
        self.reader = SignalReader(targets, LOG, interval=interval)
        (self.source,) = self.reader._sources

    def round(self) -> Heard:
        """Have a whole round, and take what it found."""
        self.reader.start_round()
        until(lambda: self.source.idle, "the round ends", 30)
        return self.reader.take()


@pytest.fixture
def server() -> Iterator[Prometheus]:
    """Return a server that finds nothing."""
    with Prometheus() as made:
        made.result = vector()
        yield made


@contextmanager
def asking(server: Prometheus, **options: Any) -> Iterator[Asking]:
    """Ask, and stop at the end."""
    made = Asking(server, **options)
    try:
        yield made
    finally:
        made.reader.stop()
        until(lambda: not readers(), lambda: f"threads are left: {readers()}")


def paces(heard: Heard) -> list[Pace]:
    """Return the paces in their order, without their times and parts."""
    return sorted(pace._replace(at=0, parts=()) for pace in heard.signals.paces)


def pace(pod: str, value: float, *, gang: str = "", counter: bool = False) -> Pace:
    """Return the pace of a pod or gang."""
    return Pace(0, "team", pod, gang, value, counter, 0)


# --- what answers mean -----------------------------------------------------------------------------------------------


def test_a_pace_a_pod(server: Prometheus) -> None:
    """Each pod tells; the series of one pod add up; the query goes out as it is, in one request."""
    server.result = vector(of("a", "3"), of("b", "4", gpu="0"), of("b", "0.5", gpu="1"))
    query = 'sum by (namespace, pod) (rate(train_tokens_total{job="x"}[1m]))'
    with asking(server, query=query) as made:
        heard = made.round()
        assert paces(heard) == [pace("a", 3), pace("b", 4.5)]
        (request,) = server.log
        assert (request.path, request.query["query"]) == ("/api/v1/query", query)
        (health,) = heard.health
        assert (health.source, health.reason, health.objects) == ("training", "ok", 2)
        assert (heard.signals.training, heard.errors) == ("", {})


def test_counters_are_known_by_their_names(server: Prometheus) -> None:
    """A counter as it is comes with its name; what a function made of it has none, and is a gauge."""
    server.result = vector(
        of("a", "3", __name__="train_tokens_total"), of("b", "4", __name__="train_rate"), of("c", "5")
    )
    with asking(server) as made:
        assert paces(made.round()) == [pace("a", 3, counter=True), pace("b", 4), pace("c", 5)]


def test_a_pace_a_gang(server: Prometheus) -> None:
    """With a label for the gang no pod is needed."""
    server.result = vector(({"namespace": "team", "job": "train"}, "7"), ({"namespace": "team"}, "8"))
    with asking(server, gang_label="job") as made:
        assert paces(made.round()) == [pace("", 7, gang="train")]


@pytest.mark.parametrize(
    ("labels", "pod"),
    [
        ({"namespace": "team", "pod": "a"}, ("team", "a")),
        ({"namespace": "mon", "pod": "exporter", "exported_namespace": "team", "exported_pod": "a"}, ("team", "a")),
        ({"namespace": "team", "pod": "exporter", "exported_pod": "a"}, ("team", "a")),
        ({"namespace": "team", "pod": "a", "exported_namespace": "words"}, ("team", "a")),
        ({"exported_namespace": "team", "pod": "a"}, ("team", "a")),
    ],
)
def test_which_labels_name_the_pod(labels: Mapping[str, str], pod: tuple[str, str], server: Prometheus) -> None:
    """What the pod itself said counts before what Prometheus says of where it was read, and pairs go together."""
    server.result = vector((labels, "7"))
    with asking(server) as made:
        (found,) = made.round().signals.paces
        assert (found.namespace, found.pod) == pod


def test_labels_of_ones_own(server: Prometheus) -> None:
    """The options name them."""
    server.result = vector(({"ns": "team", "worker": "a", "pod": "x", "namespace": "y"}, "7"))
    with asking(server, namespace_labels=("ns",), pod_labels=("worker",)) as made:
        assert paces(made.round()) == [pace("a", 7)]


def test_the_beats_of_gpus(server: Prometheus) -> None:
    """One series a device; a device of nobody is none, and the source is up all the same."""
    gpu = {"UUID": "GPU-1", "gpu": "1", "Hostname": "n1"}
    server.result = vector(of("a", "0", **gpu), of("a", "0.7", **{**gpu, "UUID": "GPU-2"}), (gpu, "0"))
    with asking(server, activity=True, query=ACTIVITY_QUERY) as made:
        heard = made.round()
        assert sorted(beat._replace(at=0) for beat in heard.signals.beats) == [
            Beat("team", "a", "GPU-1", False, 0), Beat("team", "a", "GPU-2", True, 0),
        ]  # fmt: skip
        server.result = vector((gpu, "0"))
        heard = made.round()
        assert (heard.health[0].reason, heard.errors, list(heard.signals.beats)) == ("ok", {}, [])


# --- bad answers -----------------------------------------------------------------------------------------------------

BAD: dict[str, tuple[bytes, str]] = {
    "HTML": (b"<html>log in</html>", "an HTML page"),
    "empty": (b"", "an empty answer"),
    "no JSON": (b"not json", "no JSON"),
    "no API": (b'{"kind": "PodList"}', "no answer of a Prometheus API"),
    "a list": (b"[1, 2]", "no answer of a Prometheus API"),
    "an error in a 200": (b'{"status":"error","errorType":"bad_data","error":"parse error"}', "an error (parse error)"),
    "a matrix": (b'{"status":"success","data":{"resultType":"matrix","result":[]}}', "an instant vector is needed"),
    "a scalar": (b'{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}', "gives a scalar"),
    "a string": (b'{"status":"success","data":{"resultType":"string","result":[1,"x"]}}', "gives a string"),
    "no data": (b'{"status":"success"}', "no result"),
    "no result": (b'{"status":"success","data":{"resultType":"vector"}}', "an instant vector is needed"),
    "no labels": (vector(({}, "7")), "keep them with `by`"),
    "other labels": (vector(({"instance": "x", "job": "y"}, "7")), "its series have instance, job"),
}


@pytest.mark.parametrize("name", BAD)
def test_each_bad_answer_is_told(name: str, server: Prometheus) -> None:
    """The source is down with a text that says what came, and there is no sample of it."""
    server.result, text = BAD[name]
    with asking(server) as made:
        heard = made.round()
        assert heard.health[0].reason == "invalid"
        assert text in str(heard.errors["training 0"])
        assert heard.signals.training == "no_sample"
        assert list(heard.signals.paces) == []
        server.result = vector(of("a", "3"))
        heard = made.round()
        assert (heard.health[0].reason, heard.errors, paces(heard)) == ("ok", {}, [pace("a", 3)])


FAULTS: dict[str, tuple[Fault, str, str]] = {
    "gone": ("refuse", "unreachable", "the connection broke"),
    "unauthorized": (401, "unauthorized", "check auth_token in training"),
    "forbidden": (403, "forbidden", "check auth_token in training"),
    "not found": (404, "invalid", "Check prometheus_url and query in training"),
    "bad query": (
        Answer(400, b'{"status":"error","error":"invalid parameter \\"query\\": 1:5: parse error"}'),
        "invalid",
        'invalid parameter "query": 1:5: parse error; is this',
    ),
    "too heavy": (
        Answer(422, b'{"status":"error","error":"query processing would load too many samples into memory"}'),
        "invalid",
        "too many samples",
    ),
    "its own timeout": (
        Answer(503, b'{"status":"error","errorType":"timeout","error":"query timed out in expression evaluation"}'),
        "unreachable",
        "query timed out",
    ),
    "a redirect": ("redirect", "invalid", "redirects are not followed"),
    "cut": ("cut", "unreachable", "the connection broke"),
    "silent": ("silent", "unreachable", "raise timeout in training"),
    "mute": ("mute", "unreachable", "raise timeout in training"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_told(name: str, server: Prometheus) -> None:
    """The source is down with a reason and an advice; when the server is well again so is the source."""
    fault, reason, text = FAULTS[name]
    server.result = vector(of("a", "3"))
    server.faults = [("/api/v1/query", fault)]
    with asking(server, timeout=0.3) as made:
        heard = made.round()
        assert heard.health[0].reason == reason
        assert text in str(heard.errors["training 0"])
        server.faults = []
        assert made.round().health[0].reason == "ok"


def test_a_huge_answer(server: Prometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too long is not read to its end."""
    monkeypatch.setattr(module, "MAX_ANSWER", 10_000)
    server.result = vector(*(of(f"pod-{number}", "1") for number in range(1_000)))
    with asking(server) as made:
        heard = made.round()
        assert "more than 10000 bytes" in str(heard.errors["training 0"])


@pytest.mark.parametrize(("value", "reason"), [("NaN", "nan"), ("+Inf", "inf"), ("-Inf", "inf"), ("seven", "other")])
def test_values_that_are_no_number(value: str, reason: str, server: Prometheus) -> None:
    """They are counted, and cost the pod that they are of."""
    server.result = vector(of("a", value), of("b", "4"))
    with asking(server) as made:
        heard = made.round()
        assert heard.bad_samples == {reason: 1}
        assert paces(heard) == [pace("b", 4)]
        server.result = vector(of("a", value))
        heard = made.round()
        assert (heard.health[0].reason, heard.health[0].objects) == ("ok", 0)


def test_series_that_are_none(server: Prometheus) -> None:
    """Native histograms and what is no series are counted, and the rest is read."""
    series = [
        {"metric": {"namespace": "team", "pod": "a"}, "histogram": [1, {}]},
        7,
        {"metric": None, "value": [1, "2"]},
    ]
    good = {"metric": {"namespace": "team", "pod": "b"}, "value": [1, "4"]}
    server.result = orjson.dumps({"status": "success", "data": {"resultType": "vector", "result": [*series, good]}})
    with asking(server) as made:
        heard = made.round()
        assert heard.bad_samples == {"other": 3}
        assert paces(heard) == [pace("b", 4)]


def test_a_partial_answer(server: Prometheus) -> None:
    """The pods that are in it have told the truth, so it is used; and the source says that a part is missing."""
    server.result = vector(of("a", "3"), warnings=["store 10.0.0.7:10901 is unavailable"])
    with asking(server) as made:
        heard = made.round()
        assert paces(heard) == [pace("a", 3)]
        assert heard.health[0].reason == "invalid"
        assert "a partial answer (store 10.0.0.7:10901 is unavailable)" in str(heard.errors["training 0"])
        assert heard.signals.training == ""


def test_a_partial_answer_of_a_gang(server: Prometheus) -> None:
    """A sum over a gang of which a part is missing is too small: it is no answer."""
    labels = {"namespace": "team", "job": "train"}
    server.result = vector((labels, "3"), warnings=["store is unavailable"])
    with asking(server, gang_label="job") as made:
        heard = made.round()
        assert list(heard.signals.paces) == []
        assert (heard.health[0].reason, heard.signals.training) == ("invalid", "no_sample")


@pytest.mark.parametrize("label", ["", "job"])
def test_a_remark_on_the_query_is_no_partial_answer(label: str, server: Prometheus) -> None:
    """Prometheus 2.48 to 2.53 has what it remarks among the warnings (prometheus#14135): nothing is missing."""
    remark = (
        'PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: "tokens" (1:6)'
    )
    server.result = vector(of("a", "3", job="train"), warnings=[remark])
    with asking(server, gang_label=label) as made:
        heard = made.round()
        assert paces(heard) == [pace("", 3, gang="train") if label else pace("a", 3)]
        assert (heard.health[0].reason, heard.errors) == ("ok", {})


# --- wrong names -----------------------------------------------------------------------------------------------------


def test_a_wrong_name_is_told_with_those_that_come_close(server: Prometheus) -> None:
    """A query that finds nothing is right while nothing runs, but not if the server does not know its metric."""
    server.names = ["train_tokens_total", "up", "go_goroutines"]
    with asking(server, query="sum by (namespace, pod) (rate(train_token_total[1m]))") as made:
        heard = made.round()
        assert heard.health[0].reason == "invalid"
        assert "it has no metric train_token_total; it has train_tokens_total" in str(heard.errors["training 0"])
        made.round()
        assert len(server.requests("/api/v1/label")) == 1, "the names are looked at now and then only"
        server.result = vector(of("a", "3"))
        assert made.round().health[0].reason == "ok"


@pytest.mark.parametrize("names", [None, ["train_tokens_total", "up"], []])
def test_nothing_found_is_no_error(names: Sequence[str] | None, server: Prometheus) -> None:
    """The metric is known and nobody tells it now, or the names cannot be read."""
    server.names = names
    with asking(server) as made:
        heard = made.round()
        assert (heard.health[0].reason, heard.health[0].objects, heard.errors) == ("ok", 0, {})
        assert heard.signals.training == ""


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        (ACTIVITY_QUERY, {"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL"}),
        ('sum by (pod, namespace) (rate(tokens_total{job="x", pod!=""}[1m])) / 2', {"tokens_total"}),
        ("tokens offset 5m", {"tokens"}),
        ("max_over_time(job:rate[5m:1m]) > bool 3 and on (pod) steps", {"job:rate", "steps"}),
        ('{__name__="tokens"}', set()),
        ("topk(5, tokens) * 1e3", {"tokens"}),
        ("tokens @ 1609746000", {"tokens"}),
        ("a * on (pod) group_left (node) b unless c", {"a", "b", "c"}),
    ],
)
def test_the_names_in_a_query(query: str, wanted: set[str]) -> None:
    """Functions, keywords, labels, durations and numbers are none."""
    assert metric_names(query) == wanted


def test_the_default_query_hides_no_device() -> None:
    """Both metrics are under one maximum, kept apart by a label until then: with `or` alone the second would be lost.

    Where a device has both, the greater one counts; where it has one, that one. Its labels are those of the device.
    """
    assert ACTIVITY_QUERY.startswith("max by (")
    assert ACTIVITY_QUERY.count("label_replace(max_over_time(") == 2
    by = ACTIVITY_QUERY.partition("(")[2].partition(")")[0].split(", ")
    assert {"namespace", "pod", "exported_namespace", "exported_pod", "UUID", "GPU_I_ID"} <= set(by)


# --- what it may not do ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [401, 403, 500, "redirect"])
def test_no_secret_is_told(fault: Fault, server: Prometheus, tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the token, nor what a server sends back of it, is in an error or in a log."""
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "token"
    path.write_text(SECRET)
    writer = {"type": "header", "name": "Authorization", "value": "Bearer <TOKEN>"}
    http = {"auth_token": {"reader": {"type": "file", "path": str(path)}, "writer": writer}}
    answer = Answer(fault, f"Bearer {SECRET} is wrong".encode()) if isinstance(fault, int) else fault
    server.faults = [("/api", answer)]
    with asking(server, http=http) as made:
        assert SECRET not in str(made.round().errors["training 0"])
    assert SECRET not in caplog.text


def test_the_token_goes_with_the_query(server: Prometheus, tmp_path: Any) -> None:
    """auth_token applies."""
    path = tmp_path / "token"
    path.write_text(SECRET)
    writer = {"type": "header", "name": "Authorization", "value": "Bearer <TOKEN>"}
    server.token, server.result = SECRET, vector(of("a", "3"))
    with asking(server, http={"auth_token": {"reader": {"type": "file", "path": str(path)}, "writer": writer}}) as made:
        assert made.round().health[0].reason == "ok"


def test_a_round_that_runs_is_left_alone(server: Prometheus) -> None:
    """A server that is slower than the runs is not asked twice at once."""
    server.faults = [("/api", "silent")]
    with asking(server, timeout=5) as made:
        for _ in range(5):
            made.reader.start_round()
        until(lambda: server.log)
        assert len(server.log) == 1


def test_stop_ends_it_at_once(server: Prometheus) -> None:
    """Threads and sockets are gone within a second, and nothing is asked any more."""
    before = sockets()
    server.faults = [("/api", "silent")]
    made = Asking(server, timeout=30)
    made.reader.start_round()
    until(lambda: server.log)
    made.reader.stop()
    until(lambda: not readers(), lambda: f"threads are left: {readers()}", seconds=1.0)
    made.reader.start_round()
    assert readers() == []
    until(lambda: not sockets() - before, "all sockets are closed")
