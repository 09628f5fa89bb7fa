# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A token that rotates on disk is picked up while watches run, and no token is ever shown.

A service account token lives an hour, and the kubelet writes the next one into the same file. An API server looks at a
token when a request begins: streams that are open go on with the old one, and the next request is refused. Each way to
name a token file is tried: kube_api_options.auth_token, tokenFile of a kubeconfig, and the pod's own service account;
beside it Kueue's and the scheduler's endpoints, which have tokens too.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from datadog_checks.base.stubs.aggregator import AggregatorStub

from datadog_checks.kueue_gang import KueueGangCheck
from datadog_checks.kueue_gang.commands import main
from datadog_checks.kueue_gang.sources import collector as collector_module
from lab.apiserver import KINDS, ApiServer
from lab.recording import CAPTURES
from tests.live import KUEUE_METRICS, OBJECTS, QUICK, SCHEDULER_METRICS, cluster, instance, readers, until
from tests.model.build import NOW, new
from tests.sent import Sent

#: Tokens without any form by which a text could be recognised as one.
TOKENS = ("first-s3cr3t-of-three", "second-s3cr3t-of-three", "third-s3cr3t-of-three", "never-s3cr3t")
FIRST, SECOND, THIRD, WRONG = TOKENS
CERTIFICATE = CAPTURES / "replay.pem"
SOURCES = {*KINDS, "kueue_metrics", "scheduler_metrics"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what takes minutes take moments."""
    monkeypatch.setattr(KueueGangCheck, "TIMING", QUICK)
    monkeypatch.setattr(collector_module, "FIRST_WAIT", 2.0)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """Return a server that wants the first token, over TLS as the pod's own service account does."""
    with ApiServer(clock=lambda: NOW, certificate=CERTIFICATE, token=FIRST) as made:
        made.apply_all(cluster())
        made.kueue, made.scheduler = KUEUE_METRICS, SCHEDULER_METRICS
        yield made


def write(file: Path, token: str) -> None:
    """Put a token into a file as the kubelet does: in one step."""
    fresh = file.with_suffix(".new")
    fresh.write_text(token + "\n")
    fresh.replace(file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file with the first token."""
    found = tmp_path / "token"
    write(found, FIRST)
    return found


def auth_token(file: Path) -> dict[str, Any]:
    """Return the Agent's option for a token file."""
    return {
        "reader": {"type": "file", "path": str(file)},
        "writer": {"type": "header", "name": "Authorization", "value": "Bearer <TOKEN>"},
    }


def _by_option(server: ApiServer, file: Path, _monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return {"kube_api_options": {"auth_token": auth_token(file), "tls_ca_cert": str(CERTIFICATE)}}


def kubeconfig(server: ApiServer, file: Path) -> Path:
    """Write a kubeconfig with a tokenFile."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": server.url, "certificate-authority": str(CERTIFICATE)}}],
        "users": [{"name": "me", "user": {"tokenFile": str(file)}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
    }
    found = file.with_name("kubeconfig")
    found.write_text(yaml.safe_dump(config))
    return found


def _by_kubeconfig(server: ApiServer, file: Path, _monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return {"kube_api_url": None, "kube_config_path": str(kubeconfig(server, file))}


def _by_service_account(server: ApiServer, file: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    from kubernetes.config import incluster_config

    host, _, port = server.url.removeprefix("https://").partition(":")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(file))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(CERTIFICATE))
    monkeypatch.setitem(os.environ, "KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setitem(os.environ, "KUBERNETES_SERVICE_PORT", port)
    return {"kube_api_url": None}


WAYS: dict[str, Callable[[ApiServer, Path, pytest.MonkeyPatch], dict[str, Any]]] = {
    "auth_token": _by_option,
    "tokenFile": _by_kubeconfig,
    "service account": _by_service_account,
}


class Running:
    """A check that runs, and everything that it showed."""

    def __init__(self, aggregator: AggregatorStub, options: dict[str, Any]) -> None:
        """Make the check."""
        self.check = KueueGangCheck("kueue_gang", {}, [options])
        self.shown: list[str] = []
        self._aggregator = aggregator

    def run(self) -> Sent:
        """Run once; return what was sent."""
        self._aggregator.reset()
        self.shown.append(self.check.run())
        self.shown += self.check.get_warnings()
        for name in self._aggregator.metric_names:
            self.shown += [str(one) for one in self._aggregator.metrics(name)]
        for checks in self._aggregator._service_checks.values():
            self.shown += [str(one) for one in checks]
        return Sent(self._aggregator)

    def down(self) -> dict[str, str]:
        """Run; return the sources that are not up, with their reasons."""
        ups = self.run().series["source.up"]
        assert {one.tags["api_source"] for one in ups} == SOURCES
        return {one.tags["api_source"]: one.tags["reason"] for one in ups if not one.value}

    def pods(self) -> float | None:
        """Run; return the number of pods."""
        return self.run().only("source.objects", api_source="pods")


@pytest.fixture
def running(
    aggregator: AggregatorStub,
    server: ApiServer,
    file: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> Iterator[Running]:
    """Return a check that reads by the way of the test, and look at the end whether any token was shown."""
    caplog.set_level("DEBUG")
    auth = {"auth_token": auth_token(file), "tls_ca_cert": str(CERTIFICATE)}
    scheduler = {"url": f"{server.url}/scheduler/metrics", **auth}
    options = instance(server.url, kube_timeout=2, timeout=2, **auth, **WAYS[request.param](server, file, monkeypatch))
    made = Running(aggregator, {**options, "scheduler_metrics": scheduler})
    try:
        yield made
    finally:
        made.check.cancel()
    until(lambda: not readers())
    shown = [*made.shown, *(record.getMessage() for record in caplog.records), caplog.text, repr(vars(made.check))]
    for token in TOKENS:
        assert not any(token in text for text in shown), token


@pytest.mark.parametrize("running", WAYS, indirect=True)
def test_a_token_that_rotates_in_time(running: Running, server: ApiServer, file: Path) -> None:
    """The file has the next token before the server wants it: nothing is ever down."""
    assert running.down() == {}
    for number, token in enumerate((SECOND, THIRD), 1):
        before = len(_refused(server))
        write(file, token)
        server.token = token
        server.apply("pods", new(f"more-{number}", gpus=1))
        _until_pods(running, number)
        server.end()
        _until_refused(running, server, before)
        until(lambda: running.down() == {} and all(server.watches(name) for name in KINDS))
        # Each reader is refused at most once for each rotation: the token is read anew, and the request sent again.
        assert len(_refused(server)) <= number * (len(KINDS) + 3)


def _until_pods(running: Running, more: int) -> None:
    until(lambda: running.pods() == OBJECTS["pods"] + more, "open watches go on")


def _until_refused(running: Running, server: ApiServer, before: int) -> None:
    """Run until the server has refused a token; nothing may be down meanwhile."""

    def refused() -> bool:
        assert running.down() == {}
        return len(_refused(server)) > before

    until(refused)


def _refused(server: ApiServer) -> list[object]:
    return [one for one in server.log if one.status == 401]


@pytest.mark.parametrize("running", WAYS, indirect=True)
def test_a_token_that_rotates_too_late(running: Running, server: ApiServer, file: Path) -> None:
    """The server wants the next token before the file has it: unauthorized until it has, and then up by itself."""
    assert running.down() == {}
    server.token = SECOND
    server.end()
    until(lambda: running.down() == dict.fromkeys(SOURCES, "unauthorized"))
    assert any("token" in text for text in running.shown), "it is said what to look at"
    server.apply("pods", new("more", gpus=1))
    write(file, SECOND)
    until(lambda: running.down() == {})
    until(lambda: running.pods() == OBJECTS["pods"] + 1)


@pytest.mark.parametrize("running", WAYS, indirect=True)
def test_a_token_that_is_wrong_from_the_beginning(running: Running, server: ApiServer, file: Path) -> None:
    """A wrong token, then no file, then the right one: each is told, and the last one heals it."""
    write(file, WRONG)
    until(lambda: running.down() == dict.fromkeys(SOURCES, "unauthorized"))
    file.unlink()
    until(lambda: set(running.down()) == SOURCES)
    write(file, FIRST)
    until(lambda: running.down() == {})


def test_status_shows_no_token(server: ApiServer, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`kueue-gang status` with a token that the server refuses, and with one that it takes."""
    config = str(kubeconfig(server, file))
    write(file, WRONG)
    assert main(["status", "--kubeconfig", config, "--timeout", "2"]) == 1
    write(file, FIRST)
    assert main(["status", "--kubeconfig", config, "--timeout", "2"]) == 0
    printed = "".join(capsys.readouterr())
    assert "401" in printed
    assert "tunes" in printed
    assert not any(token in printed for token in TOKENS)
