# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Each failure has one reason, says what to do about it, and gives no secret away."""

import socket
import ssl
import tarfile
from http.client import RemoteDisconnected

import pytest
import requests.exceptions
import urllib3
import urllib3.exceptions
from hypothesis import given
from hypothesis import strategies as st

from datadog_checks.kueue_gang.sources.errors import (
    KUBE_API_URL,
    KUBE_CONFIG,
    KUEUE,
    SCHEDULER,
    from_exception,
    from_status,
    harmless,
    invalid,
)
from lab.replay import CAPTURES


@pytest.mark.parametrize(
    ("status", "reason", "advice"),
    [
        (302, "invalid", "redirects are not followed"),
        (400, "invalid", "is this the Kubernetes API?"),
        (401, "unauthorized", "auth_token in kube_api_options"),
        (403, "forbidden", "see deploy/rbac.yaml"),
        (404, "invalid", "is this the Kubernetes API?"),
        (410, "unreachable", "tried again"),
        (429, "unreachable", "busy"),
        (500, "unreachable", "busy"),
        (503, "unreachable", "busy"),
        (504, "unreachable", "busy"),
    ],
)
def test_status_table(status, reason, advice):
    """An HTTP status has one reason and an advice that fits it, and is kept."""
    error = from_status(KUBE_API_URL, "/api/v1/pods", status, "")
    assert (error.reason, error.status) == (reason, status)
    assert advice in error.advice
    assert error.advice in str(error)


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("/api/v1/pods", 'verbs get, list, watch on resources pods of apiGroups ""'),
        (
            "/apis/kueue.x-k8s.io/v1beta2/workloads",
            'verbs get, list, watch on resources workloads of apiGroups "kueue.x-k8s.io"',
        ),
        ("/metrics", "verb get on nonResourceURLs /metrics"),
        ("/apis", "verb get on nonResourceURLs /apis"),
    ],
)
def test_forbidden_names_the_rule_that_is_missing(path, rule):
    """A 403 names verb, resource and group of the RBAC rule that would allow the read."""
    error = from_status(KUBE_CONFIG, path, 403, "")
    assert error.advice == f"allow {rule}, see deploy/rbac.yaml"


def test_recorded_answers_of_an_api_server():
    """The words of a real API server arrive in the error, as far as they say something."""
    with tarfile.open(CAPTURES / "watch.tar.xz") as tar:
        answers = {
            member.name.removeprefix("errors/"): recorded.read().decode()
            for member in tar
            if member.name.startswith("errors/4") and (recorded := tar.extractfile(member))
        }
    expected = {
        "401-bad-token.http": ("unauthorized", "Unauthorized"),
        "403-pods-list.http": ("forbidden", 'cannot list resource "pods" in API group ""'),
        "404-group-absent.http": ("invalid", "404 page not found"),
        "410-list-compacted.http": ("unreachable", "resourceVersion for the provided list is too old"),
        "429-new-crd-storage-initializing.http": ("unreachable", "storage is (re)initializing"),
    }
    for name, (reason, words) in expected.items():
        head, _, body = answers[name].partition("\r\n\r\n")
        status = int(head.split()[1])
        error = from_status(KUBE_CONFIG, "/api/v1/pods", status, body)
        assert error.reason == reason, name
        assert words in str(error), name


@pytest.mark.parametrize(
    ("status", "header", "seconds"),
    [
        (429, "3", 3.0),
        (503, "0", 0.0),
        (429, None, None),
        (429, "Wed, 21 Oct 2026 07:28:00 GMT", None),
        (500, "3", None),
        (504, "1", None),
        (429, "-1", None),
    ],
)
def test_retry_after_counts_for_429_and_503(status, header, seconds):
    """Only these two ask for patience, and only in seconds."""
    assert from_status(KUBE_CONFIG, "/", status, "", header).retry_after == seconds


POOL = urllib3.HTTPConnectionPool("host")


def _wrapped(cause):
    """Return a cause as requests delivers it."""
    return requests.exceptions.ConnectionError(urllib3.exceptions.MaxRetryError(POOL, "/api", cause))


@pytest.mark.parametrize(
    ("error", "reason", "words"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "unreachable", "connection refused"),
        (_wrapped(ConnectionRefusedError(111, "Connection refused")), "unreachable", "connection refused"),
        (socket.gaierror(-2, "Name or service not known"), "unreachable", "unknown host name"),
        (TimeoutError("timed out"), "unreachable", "kube_timeout"),
        (requests.exceptions.ReadTimeout("read timed out"), "unreachable", "kube_timeout"),
        (urllib3.exceptions.ReadTimeoutError(POOL, "/api", "Read timed out."), "unreachable", "kube_timeout"),
        (_wrapped(urllib3.exceptions.SSLError(ssl.SSLCertVerificationError("bad"))), "unreachable", "tls_ca_cert"),
        (ssl.SSLError("wrong version number"), "unreachable", "tls_verify: false"),
        (ssl.SSLEOFError("EOF"), "unreachable", "the connection broke"),
        (_wrapped(urllib3.exceptions.ProxyError("no", OSError("down"))), "unreachable", "NO_PROXY"),
        (
            urllib3.exceptions.ProtocolError("Connection aborted.", RemoteDisconnected("closed")),
            "unreachable",
            "the connection broke",
        ),
        (urllib3.exceptions.IncompleteRead(10, 90), "unreachable", "the connection broke"),
        (urllib3.exceptions.DecodeError("bad gzip"), "invalid", "is this the Kubernetes API?"),
        (FileNotFoundError(2, "No such file", "/var/token"), "unauthorized", "auth_token"),
        (OSError(101, "Network is unreachable"), "unreachable", "no connection"),
        (ValueError("substring not found"), "invalid", "is this the Kubernetes API?"),
    ],
)
def test_exception_table(error, reason, words):
    """What libraries raise is mapped by its innermost known cause."""
    mapped = from_exception(KUBE_API_URL, "/api/v1/pods", error)
    assert mapped.reason == reason
    assert words in str(mapped)
    assert mapped.status is None


@pytest.mark.parametrize("target", [KUBE_CONFIG, KUBE_API_URL, KUEUE, SCHEDULER])
def test_each_target_has_its_own_words(target):
    """An advice names the option of the target that failed, not of another one."""
    assert target.credential in str(from_status(target, "/metrics", 401, ""))
    assert target.tls in str(from_exception(target, "/metrics", ssl.SSLError("no")))
    assert target.wrong in str(invalid(target, "/metrics", "an HTML page"))
    assert f"raise {target.timeout}" in str(from_exception(target, "/metrics", TimeoutError()))


SECRET = "s3cr3t-0123456789"


@pytest.mark.parametrize(
    "text",
    [
        f"header value: 'Bearer {SECRET}'",
        f"authorization: basic {SECRET}",
        f"Max retries exceeded with url: /api?token={SECRET}&x=1",
        f"401 Client Error for url: https://admin:{SECRET}@host:6443/api",
        f"for url: https://{SECRET}@host/api",
        f'{{"password": "{SECRET}", "a": 1}}',
        f"password={SECRET}",
        f"api-key: {SECRET}",
        f"client_secret={SECRET}",
        f"Expected key user in /home/me/config/{{'name': 'me', 'client-key-data': '{SECRET}', 'token': '{SECRET}'}}",
    ],
)
def test_secrets_are_taken_out(text):
    """No credential, query value or userinfo is shown, wherever it came from."""
    for shown in (
        harmless(text),
        str(from_status(KUBE_API_URL, "/api/v1/pods", 500, text)),
        str(from_exception(KUBE_API_URL, "/api/v1/pods", ValueError(text))),
        str(invalid(KUBE_API_URL, "/api/v1/pods", text)),
    ):
        assert SECRET not in shown
        assert shown


def test_a_bare_service_account_token_is_taken_out():
    """A JWT is known by its beginning, also without the word Bearer."""
    token = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl"
    assert harmless(f"invalid token {token}, sorry") == "invalid token ***, sorry"


def test_a_cut_does_not_uncover_a_secret():
    """The secrets go before the text is cut."""
    assert "abcdefgh" not in harmless("x" * 190 + " Bearer " + "abcdefgh" * 10)


def test_bodies_are_cut():
    """A long body is cut at 200 characters; a page is named, not quoted."""
    assert harmless("word " * 1000) == ("word " * 40)[:200] + "..."
    assert "an HTML page" in str(from_status(KUBE_API_URL, "/api", 502, "<html><body>Bad gateway" + "x" * 9999))


@given(st.text(max_size=400))
def test_any_text_stays_in_one_line(text):
    """Foreign text cannot break a log line or grow it."""
    shown = harmless(text)
    assert len(shown) <= 203
    assert "\n" not in shown
