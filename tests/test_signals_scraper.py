# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Pods that are scraped in turn: what a round costs, who is asked, and what is told of those that do not answer.

The pods are real ones as far as HTTP goes: each has an address of its own on this machine.
"""

import logging
import math
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datadog_checks.kueue_gang.facts.endpoints import Endpoint, reducer
from datadog_checks.kueue_gang.facts.signals import Pace
from datadog_checks.kueue_gang.sources import scraper as module
from datadog_checks.kueue_gang.sources.signals import Heard, SignalReader
from datadog_checks.kueue_gang.sources.targets import PodTarget, Targets
from lab.exporters import Exporters, addresses, dcgm, pod
from lab.http_faults import Answer, Fault
from tests.live import readers, sockets, until

LOG = logging.getLogger("test")
RATE = b"# TYPE train_tokens_total counter\ntrain_tokens_total 7\n"
SECRET = "s3cr3t-t0k3n"
CERTIFICATE = Path(__file__).parent / "captures" / "replay.pem"


class _Table(list[Endpoint]):
    """The pods that a reflector would have."""


class _Following:
    """A reflector that has what the test says."""

    def __init__(self, resource: Any, pods: Sequence[Endpoint]) -> None:
        self.resource, self.table = resource, _Table(pods)
        self.usable, self.settled, self.error = True, True, None

    def take_health(self) -> Any:
        """Return the health of the list."""
        return type("Health", (), {"bad": 0})


class Reading:
    """The signals of some pods, read round by round."""

    def __init__(
        self, server: Exporters, ips: Sequence[str], *, training: bool = True, interval: float = 15.0, **options: Any
    ) -> None:
        """Read pods of a server at these addresses."""
        given = {"label_selector": "app=x", "port": server.port, "metrics": ("train_tokens_total",), **options}
        target = PodTarget(**given)
        targets = Targets(training=(target,)) if training else Targets(activity=target)
        self.reader = SignalReader(targets, LOG, interval=interval)
        (resource,) = self.reader.resources
        self.following = _Following(resource, [Endpoint("team", f"pod-{n:04}", ip) for n, ip in enumerate(ips)])
        self.reader.follow([self.following])  # type: ignore[list-item]
        (self.source,) = self.reader._sources

    def round(self) -> Heard:
        """Have a whole round, and take what it found."""
        self.reader.start_round()
        until(lambda: self.source.idle, "the round ends", 30)
        return self.reader.take()

    def told(self, heard: Heard) -> str:
        """Return what is told of why it cannot be read."""
        return str(next(iter(heard.errors.values()), ""))


@contextmanager
def reading(server: Exporters, ips: Sequence[str], **options: Any) -> Iterator[Reading]:
    """Read pods, and stop at the end."""
    made = Reading(server, ips, **options)
    try:
        yield made
    finally:
        made.reader.stop()
        until(lambda: not readers(), lambda: f"threads are left: {readers()}")


@pytest.fixture(scope="module")
def healthy() -> Iterator[Exporters]:
    """Return thirty pods that tell their tokens."""
    with Exporters(dict.fromkeys(addresses(30), RATE)) as made:
        yield made


@pytest.fixture
def server(healthy: Exporters) -> Exporters:
    """Return them with nothing wrong and nothing asked."""
    healthy.sick.clear()
    healthy.log.clear()
    healthy.pages = dict.fromkeys(addresses(30), RATE)
    healthy.token = None
    return healthy


# --- who is asked ----------------------------------------------------------------------------------------------------


def test_those_whose_first_turn_is_to_come_are_told(server: Exporters) -> None:
    """Five pods and a budget of two: three are awaited, then one; one that fails had its turn, new ones had none."""
    ips = addresses(6)
    server.sick[ips[2]] = 500
    with reading(server, ips[:5], requests_per_run=2) as made:
        assert {pod for _, _, pod in made.round().signals.awaited} == {"pod-0002", "pod-0003", "pod-0004"}
        assert list(made.round().signals.awaited) == [(0, "team", "pod-0004")]
        assert list(made.round().signals.awaited) == []
        made.following.table += [Endpoint("team", f"new-{n}", ips[5]) for n in range(3)]
        assert list(made.round().signals.awaited) == [(0, "team", "new-2")]


def test_a_page_with_far_too_many_samples(server: Exporters) -> None:
    """To parse them would take longer than the round, and nothing ends that: the page is refused, others are told."""
    ips = addresses(2)
    lines = [b'train_tokens_total{n="%d"} 7\n' % n for n in range(10_001)]
    server.pages[ips[0]], server.pages[ips[1]] = b"".join(lines), b"".join(lines[1:])
    with reading(server, ips) as made:
        heard = made.round()
        assert [(pace.pod, pace.value) for pace in heard.signals.paces] == [("pod-0001", 70_000)]
        assert (0, "team", "pod-0000") in heard.signals.silent
    with reading(server, ips[:1]) as made:
        assert "more than 10000 samples of train_tokens_total" in made.told(made.round())


def test_all_within_the_budget(server: Exporters) -> None:
    """Ten pods and a budget of four: four requests a round, and every pod within three rounds, again and again."""
    ips = addresses(10)
    with reading(server, ips, requests_per_run=4) as made:
        for _ in range(3):
            for most in (4, 4, 4):
                before = len(server.log)
                made.round()
                assert len(server.log) - before == most
            last = server.asked()[-12:]
            assert set(last) == set(ips)


def test_what_is_told(server: Exporters) -> None:
    """The pace of each pod, with the time at which it was told; the source is up, and counts who tells."""
    before = time.monotonic()
    with reading(server, addresses(3)) as made:
        heard = made.round()
        after = time.monotonic()
        told = sorted(heard.signals.paces)
        assert [pace._replace(at=0, parts=()) for pace in told] == [
            Pace(0, "team", f"pod-000{n}", "", 7.0, counter=True, at=0) for n in range(3)
        ]
        assert all(before <= pace.at <= after for pace in told)
        assert before <= heard.signals.clock
        (health,) = heard.health
        assert (health.source, health.reason, health.objects, health.bad) == ("training", "ok", 3, 0)
        assert heard.errors == {}
        assert heard.signals.training == ""
        assert heard.signals.activity == "not_configured"
        assert list(made.reader.take().signals.paces) == [], "each is told once"


def test_the_beats_of_gpus(server: Exporters) -> None:
    """A page of dcgm-exporter names the pods that hold its GPUs, not its own."""
    ip = addresses(1)[0]
    server.pages[ip] = dcgm("n1", [("team", "train-0", 0.5), ("team", "train-1", 0.0), ("", "", 0.0)])
    metrics = ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL")
    with reading(server, [ip], training=False, metrics=metrics) as made:
        heard = made.round()
        assert {(beat.namespace, beat.pod, beat.active) for beat in heard.signals.beats} == {
            ("team", "train-0", True), ("team", "train-1", False),
        }  # fmt: skip
        assert heard.health[0].objects == 1
        assert heard.signals.activity == ""


def test_nobody_to_ask(server: Exporters) -> None:
    """Where the selector finds no pod the source is up, and there is nothing of it."""
    with reading(server, []) as made:
        heard = made.round()
        assert (heard.health[0].reason, heard.health[0].objects) == ("ok", 0)
        assert server.log == []
        assert heard.signals.training == ""


def test_a_pod_that_comes_and_one_that_goes(server: Exporters) -> None:
    """A new pod has its turn first, one that went is not asked any more, and a new IP is a new pod."""
    ips = addresses(4)
    with reading(server, ips[:2], requests_per_run=1) as made:
        made.round()
        made.following.table[:] = [Endpoint("team", "new", ips[2]), Endpoint("team", "pod-0001", ips[3])]
        made.round()
        made.round()
        assert server.asked() == [ips[0], ips[2], ips[3]]


@pytest.mark.parametrize(
    ("change", "asked"),
    [
        ({}, True),
        ({"status": {"podIP": None}}, False),
        ({"status": {"podIP": ""}}, False),
        ({"status": {"phase": "Pending"}}, False),
        ({"status": {"phase": "Succeeded"}}, False),
        ({"status": None}, False),
        ({"metadata": {"deletionTimestamp": "2027-01-15T12:00:00Z"}}, False),
    ],
)
def test_which_pods_can_be_asked(change: dict[str, Any], asked: bool) -> None:
    """One that runs and has an IP, and is not about to end."""
    obj = pod("exporter", "10.0.0.1", {})
    for part, fields in change.items():
        obj[part] = None if fields is None else obj[part] | fields
    assert reducer()(obj) == (Endpoint("gpu-operator", "exporter", "10.0.0.1") if asked else None)


def test_pods_of_another_namespace_are_not_asked() -> None:
    """A target may have one namespace; a token of it goes to no pod elsewhere that has the labels."""
    obj = pod("exporter", "10.0.0.1", {}, namespace="team")
    assert reducer("gpu-operator")(obj) is None
    assert reducer("team")(obj) is not None


# --- what goes wrong -------------------------------------------------------------------------------------------------

#: What goes wrong with a pod: fault, reason, and what the text says.
FAULTS: dict[str, tuple[Fault, str, str]] = {
    "gone": ("refuse", "unreachable", "the connection broke"),
    "not found": (404, "invalid", "HTTP 404"),
    "unauthorized": (401, "unauthorized", "auth_token in training"),
    "forbidden": (403, "forbidden", "auth_token in training"),
    "broken": (500, "unreachable", "HTTP 500"),
    "HTML": ("html", "invalid", "an HTML page"),
    "empty": ("empty", "invalid", "an empty answer"),
    "no metrics": ("garbage", "invalid", "no metrics"),
    "redirect": ("redirect", "invalid", "redirects are not followed"),
    "cut": ("cut", "unreachable", "the connection broke"),
    "silent": ("silent", "unreachable", "timeout in training"),
    "mute": ("mute", "unreachable", "timeout in training"),
    "wrong name": (Answer(200, b"train_token_count 7\ngo_threads 1\n"), "invalid", "it has train_token_count"),
    "other names": (Answer(200, b"go_threads 1\n"), "invalid", "none of its 1 names comes close"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_told(name: str, server: Exporters) -> None:
    """The source is down with a reason and an advice that names the option; the pods are silent, and no zero."""
    fault, reason, text = FAULTS[name]
    ips = addresses(3)
    server.sick = dict.fromkeys(ips, fault)
    with reading(server, ips, timeout=0.2) as made:
        heard = made.round()
        assert heard.health[0].reason == reason
        assert text in made.told(heard)
        assert list(heard.signals.paces) == []
        assert sorted(heard.signals.silent) == [(0, "team", f"pod-000{n}") for n in range(3)]
        assert heard.signals.training == ("forbidden" if reason in {"forbidden", "unauthorized"} else "no_sample")
        server.sick.clear()
        for _ in range(module.MOST_ROUNDS):
            heard = made.round()
            if heard.health[0].reason == "ok" and heard.health[0].objects == 3:
                break
        assert heard.health[0].objects == 3, "all are read again without a restart"
        assert heard.errors == {}


@pytest.mark.parametrize("name", FAULTS)
def test_one_that_fails_costs_itself(name: str, server: Exporters) -> None:
    """The other pods are told, and the source is up."""
    fault, _, _ = FAULTS[name]
    ips = addresses(3)
    server.sick = {ips[1]: fault}
    with reading(server, ips, timeout=0.2) as made:
        heard = made.round()
        assert sorted(pace.pod for pace in heard.signals.paces) == ["pod-0000", "pod-0002"]
        assert list(heard.signals.silent) == [(0, "team", "pod-0001")]
        assert (heard.health[0].reason, heard.health[0].objects) == ("ok", 2)
        assert heard.errors == {}


def test_samples_that_are_no_number(server: Exporters) -> None:
    """They are counted, and their pod is silent."""
    ips = addresses(2)
    server.pages[ips[0]] = b"train_tokens_total NaN\n"
    with reading(server, ips) as made:
        heard = made.round()
        assert heard.bad_samples == {"nan": 1}
        assert list(heard.signals.silent) == [(0, "team", "pod-0000")]
        assert [pace.pod for pace in heard.signals.paces] == ["pod-0001"]


def test_one_rank_that_tells_for_all(server: Exporters) -> None:
    """Where one rank has the metric the others need not, also in a round in which only they were asked."""
    ips = addresses(4)
    server.pages |= dict.fromkeys(ips[1:], b"go_threads 1\n")
    with reading(server, ips, requests_per_run=2) as made:
        for _ in range(4):
            heard = made.round()
            assert (heard.health[0].reason, heard.health[0].objects) == ("ok", 1)


def test_a_page_without_end(server: Exporters, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too long is not read to its end."""
    monkeypatch.setattr(module, "MAX_PAGE", 100_000)
    ip = addresses(1)[0]
    server.pages[ip] = RATE + b"# x\n" * 1_000_000
    with reading(server, [ip]) as made:
        heard = made.round()
        assert heard.health[0].reason == "invalid"
        assert "more than 100000 bytes" in made.told(heard)


def test_a_cause_that_lasts_is_told_in_the_same_words(server: Exporters) -> None:
    """Each round asks other pods; the text stays, so that it is logged once."""
    ips = addresses(8)
    server.sick = dict.fromkeys(ips, 500)
    with reading(server, ips, requests_per_run=2) as made:
        texts = {made.told(made.round()) for _ in range(4)}
    assert len(texts) == 1


def test_a_failing_pod_is_asked_less_and_less(server: Exporters) -> None:
    """After 2, 4, 8, 16 rounds, and every 20 from then on."""
    ips = addresses(2)
    server.sick = {ips[0]: 500}
    rounds = []
    with reading(server, ips) as made:
        for number in range(74):
            before = len(server.log)
            made.round()
            if ips[0] in server.asked()[before:]:
                rounds.append(number)
    assert [after - before for before, after in pairwise(rounds)] == [2, 4, 8, 16, 20, 20]


def test_pods_that_hang_do_not_hold_up_the_others(server: Exporters) -> None:
    """Half of the pods hang. Once that is known, each round tells all others before it waits for any of them."""
    ips = addresses(20)
    server.sick = dict.fromkeys(ips[::2], "silent")
    with reading(server, ips, interval=1.0, timeout=0.3) as made:
        made.round()
        for _ in range(6):
            assert {pace.pod for pace in made.round().signals.paces} == {f"pod-{n:04}" for n in range(1, 20, 2)}


def test_a_round_ends_in_time(server: Exporters) -> None:
    """Heads that come byte by byte beat every timeout, and are cut off when the time of the round is over."""
    with Dripping() as dripping:
        made = Reading(server, ["127.0.0.1"] * 1, interval=1.0, timeout=0.5, port=dripping.port)
        began = time.monotonic()
        heard = made.round()
        assert 0.5 < time.monotonic() - began < 1.6
        assert heard.health[0].reason == "unreachable"
        made.reader.stop()
        until(lambda: not readers())


class Dripping:
    """A server whose head never ends."""

    def __enter__(self) -> Self:
        """Listen."""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._stop.set()
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        self._socket.settimeout(5)
        with self._socket.accept()[0] as client:
            client.sendall(b"HTTP/1.1 200 OK\r\n")
            while not self._stop.wait(0.05):
                try:
                    client.sendall(b"X")
                except OSError:
                    return


# --- the property ----------------------------------------------------------------------------------------------------

SICK: list[Fault | None] = [None, None, None, 500, 404, "refuse", "html", "empty", "cut", "silent"]


@settings(max_examples=20)
@given(st.lists(st.sampled_from(SICK), min_size=1, max_size=14), st.integers(1, 6))
def test_any_mixture(healthy: Exporters, sick: list[Fault | None], budget: int) -> None:
    """Never more requests in a round than the budget, and every healthy pod within n / budget rounds, rounded up."""
    ips = addresses(len(sick))
    healthy.log.clear()
    healthy.pages = dict.fromkeys(ips, RATE)
    healthy.sick = {ip: fault for ip, fault in zip(ips, sick, strict=True) if fault is not None}
    well = {ip for ip in ips if ip not in healthy.sick}
    promised = math.ceil(len(ips) / budget)
    rounds: list[list[str]] = []
    with reading(healthy, ips, requests_per_run=budget, timeout=0.15, interval=5.0) as made:
        for _ in range(3 * promised):
            before = len(healthy.log)
            made.round()
            rounds.append(healthy.asked()[before:])
    assert all(len(asked) <= budget for asked in rounds)
    assert all(len(set(asked)) == len(asked) for asked in rounds)
    for start in range(len(rounds) - promised + 1):
        seen = {ip for asked in rounds[start : start + promised] for ip in asked}
        assert well <= seen


# --- credentials and TLS ---------------------------------------------------------------------------------------------


def _token(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "token"
    path.write_text(SECRET)
    writer = {"type": "header", "name": "Authorization", "value": "Bearer <TOKEN>"}
    return {"auth_token": {"reader": {"type": "file", "path": str(path)}, "writer": writer}}


def test_the_token_goes_to_the_pods(server: Exporters, tmp_path: Path) -> None:
    """auth_token applies, and a token that was renewed is used from the next round on: never a request more."""
    ips = addresses(2)
    server.token = SECRET
    options = _token(tmp_path)
    with reading(server, ips, http=options) as made:
        assert made.round().health[0].reason == "ok"
        server.token = "n3w"
        heard = made.round()
        assert heard.health[0].reason == "unauthorized"
        assert len(server.log) == 4
        Path(options["auth_token"]["reader"]["path"]).write_text("n3w")
        for _ in range(3):
            heard = made.round()
        assert heard.health[0].reason == "ok"


@pytest.mark.parametrize("fault", [401, 403, 500, "redirect", "html"])
def test_no_secret_is_told(fault: Fault, server: Exporters, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the token nor what a server sends back of it is in an error or in a log."""
    caplog.set_level(logging.DEBUG)
    ips = addresses(1)
    server.sick = {ips[0]: Answer(fault, f"token={SECRET}".encode()) if isinstance(fault, int) else fault}
    with reading(server, ips, http=_token(tmp_path)) as made:
        assert SECRET not in made.told(made.round())
    assert SECRET not in caplog.text


def test_tls_is_verified_unless_the_user_says_otherwise() -> None:
    """A certificate that nobody vouches for is refused; with tls_verify: false it is not asked for."""
    ip = "127.0.0.1"
    with Exporters({ip: RATE}, certificate=CERTIFICATE) as server:
        with reading(server, [ip], scheme="https") as made:
            heard = made.round()
            assert heard.health[0].reason == "unreachable"
            assert "tls_ca_cert (or tls_verify: false) in training" in made.told(heard)
        with reading(server, [ip], scheme="https", http={"tls_verify": False}) as made:
            assert made.round().health[0].reason == "ok"


def test_no_connection_is_kept(server: Exporters) -> None:
    """A thousand exporters would be a thousand idle connections."""
    before = sockets()
    with reading(server, addresses(10)) as made:
        made.round()
        until(lambda: not sockets() - before, "all sockets are closed")


def test_a_proxy_is_not_for_pods(server: Exporters, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Agent's proxy leads out of the cluster; pods are inside."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with reading(server, addresses(1)) as made:
        assert made.round().health[0].reason == "ok"
