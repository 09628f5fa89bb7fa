# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A path goes in, bytes or a SourceError come out, over real HTTP."""

import base64
import gzip
import logging
import stat
import threading
import time

import pytest
import yaml
from datadog_checks.base import ConfigurationError

from datadog_checks.kueue_gang.sources import connection as module
from datadog_checks.kueue_gang.sources.connection import KubeConnection, UrlConnection
from datadog_checks.kueue_gang.sources.errors import SourceError
from lab.replay import CAPTURES, Answer, Recording, ReplayServer

CERTIFICATE = CAPTURES / "replay.pem"
TOKEN = "t0k3n-abcdefghij"
PODS = "/api/v1/pods"


class Witness(ReplayServer):
    """A server that remembers the credentials it was shown."""

    def __init__(self, *args, **options):
        """Make the server."""
        super().__init__(*args, **options)
        self.seen = []

    def answer(self, path, query, headers):
        """Answer, and remember."""
        self.seen.append(headers["Authorization"])
        return super().answer(path, query, headers)


@pytest.fixture(scope="module")
def recording():
    """Return a small cluster."""
    return Recording.open(CAPTURES / "2-partial-bound.tar.xz")


def _kubeconfig(path, server, user, **cluster):
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "clusters": [
            {"name": "here", "cluster": {"server": server.url, **cluster}},
            {"name": "nowhere", "cluster": {"server": "http://127.0.0.1:1"}},
        ],
        "users": [{"name": "me", "user": user}],
        "contexts": [
            {"name": "one", "context": {"cluster": "here", "user": "me"}},
            {"name": "other", "context": {"cluster": "nowhere", "user": "me"}},
        ],
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


def _url(server, timeout=2.0, **options):
    return UrlConnection(server.url, options, timeout=timeout)


def _token_options(path):
    return {
        "reader": {"type": "file", "path": str(path)},
        "writer": {"type": "header", "name": "Authorization", "value": "Bearer <TOKEN>"},
    }


def _makers(server, tmp_path):
    """Return a connection of each kind to the same server."""
    return {
        "url": _url(server),
        "kubeconfig": KubeConnection(config_path=_kubeconfig(tmp_path / "config", server, {}), timeout=2.0),
    }


KINDS = ("url", "kubeconfig")


@pytest.mark.parametrize("kind", KINDS)
def test_reads_a_body(recording, tmp_path, kind):
    """Both kinds return the bytes that the server sent, and send path and query as they are."""
    with ReplayServer(recording) as server:
        body = _makers(server, tmp_path)[kind].read(PODS, {"labelSelector": "a.b/c", "limit": 500})
        assert server.requests(PODS)[0].query == {"labelSelector": "a.b/c", "limit": "500"}
    assert body.startswith(b'{"kind":"PodList"')


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_is_open(recording, tmp_path, kind):
    """open() returns the response before its body is there."""
    with ReplayServer(recording, [(PODS, "slow")]) as server:
        connection = _makers(server, tmp_path)[kind]
        response = connection.open(PODS)
        assert response.read1(1) == b"{"
        response.close()


@pytest.mark.parametrize("kind", KINDS)
def test_plain_bytes_are_asked_for_and_gzip_is_understood(recording, tmp_path, kind):
    """Compression costs the reader more than it saves, but a proxy may compress all the same."""
    zipped = Answer(200, gzip.compress(b'{"items": []}'), headers=(("Content-Encoding", "gzip"),))
    with ReplayServer(recording, [(PODS, zipped)]) as server:
        assert _makers(server, tmp_path)[kind].read(PODS) == b'{"items": []}'
        assert server.log[0].headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("kind", KINDS)
def test_connections_are_reused(recording, tmp_path, kind):
    """A list of many pages needs one TCP connection."""
    with ReplayServer(recording) as server:
        connection = _makers(server, tmp_path)[kind]
        for _ in range(5):
            connection.read(PODS)
    assert len({request.client for request in server.log}) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("fault", "reason", "words"),
    [
        (403, "forbidden", 'resources pods of apiGroups ""'),
        (401, "unauthorized", "check"),
        (500, "unreachable", "HTTP 500"),
        ("redirect", "invalid", "redirects are not followed"),
        ("refuse", "unreachable", "the connection broke"),
        ("cut", "unreachable", "the connection broke"),
    ],
)
def test_faults(recording, tmp_path, kind, fault, reason, words):
    """What the server does wrong is one SourceError, of either kind alike."""
    with ReplayServer(recording, [(PODS, fault)]) as server, pytest.raises(SourceError) as caught:
        _makers(server, tmp_path)[kind].read(PODS)
    assert caught.value.reason == reason
    assert words in str(caught.value)
    # A chained traceback would show the raw text.
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.mark.parametrize("kind", KINDS)
def test_a_redirect_takes_no_credential_along(recording, tmp_path, kind):
    """A redirect is refused before anything is sent to where it points; its query is not shown."""
    with ReplayServer(recording, [(PODS, "redirect")]) as server, pytest.raises(SourceError) as caught:
        _makers(server, tmp_path)[kind].read(PODS)
    assert [request.path for request in server.log] == [PODS]
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", ["silent", "slow"])
def test_a_slow_server_ends_in_time(recording, tmp_path, kind, fault):
    """Neither silence nor a drop now and then holds the run longer than the timeouts allow."""
    with ReplayServer(recording, [(PODS, fault)]) as server:
        connection = _makers(server, tmp_path)[kind]
        connection.timeout = 0.2
        if kind == "url":
            connection = _url(server, timeout=0.2)
        started = time.monotonic()
        with pytest.raises(SourceError) as caught:
            connection.read(PODS)
    assert time.monotonic() - started < 2
    assert caught.value.reason == "unreachable"
    assert "no answer in time" in str(caught.value)


def test_an_error_that_drips_ends_in_time(recording):
    """The body of an error is not worth a wait: its status is what counts."""
    drip = Answer(500, b"sorry " * 1000, way="slow")
    with ReplayServer(recording, [(PODS, drip)]) as server:
        connection = _url(server, timeout=0.2)
        started = time.monotonic()
        with pytest.raises(SourceError) as caught:
            connection.read(PODS)
    assert time.monotonic() - started < 2
    assert caught.value.status == 500


def test_an_endless_body_is_refused(recording, monkeypatch):
    """A body that would fill the memory of the Agent is not read to its end."""
    monkeypatch.setattr(module, "MAX_BODY", 1000)
    with ReplayServer(recording) as server, pytest.raises(SourceError) as caught:
        _url(server).read(PODS)
    assert caught.value.reason == "invalid"
    assert "more than 1000 bytes" in str(caught.value)


def test_nobody_listens():
    """A refused connection says so."""
    with pytest.raises(SourceError) as caught:
        UrlConnection("http://127.0.0.1:1", {}, timeout=1).read(PODS)
    assert caught.value.reason == "unreachable"
    assert "connection refused" in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_the_servers_clock(recording, tmp_path, kind):
    """The offset is the Date header minus the local clock, from each answer, also from an error."""
    with ReplayServer(recording, [("/nothing", 500)]) as server:
        connection = _makers(server, tmp_path)[kind]
        connection._clock = lambda: 1000.0
        assert connection.clock_offset is None
        assert connection.now() == 1000.0
        with pytest.raises(SourceError):
            connection.read("/nothing")
        expected = int(recording.now.timestamp())
        assert connection.now() == expected
        assert connection.clock_offset == expected - 1000.0


def test_a_wrong_date_changes_nothing(recording, monkeypatch):
    """An answer without a date that can be read leaves the clock as it was."""
    with ReplayServer(recording) as server:
        connection = _url(server)
        connection.read(PODS)
        before = connection.clock_offset
        monkeypatch.setattr("lab.replay._Handler.date_time_string", lambda *_: "yesterday")
        connection.read(PODS)
    assert connection.clock_offset == before


def test_url_token_is_sent_and_reread_after_a_401(recording, tmp_path):
    """A rotated token costs one 401; the request is repeated with the new one."""
    file = tmp_path / "token"
    file.write_text("old-token\n")
    with ReplayServer(recording, token="old-token") as server:
        connection = _url(server, auth_token=_token_options(file))
        connection.read(PODS)
        file.write_text("new-token\n")
        connection.read(PODS)
        server.token = "new-token"
        connection.read(PODS)
        connection.read(PODS)
    assert [request.status for request in server.log] == [200, 200, 401, 200, 200]


@pytest.mark.parametrize("fault", [404, 429, 503])
def test_url_token_is_not_reread_for_other_failures(recording, tmp_path, fault):
    """Only a 401 repeats a request: a server that is busy is not asked twice at once."""
    file = tmp_path / "token"
    file.write_text(TOKEN)
    with ReplayServer(recording, [(PODS, fault)], token=TOKEN) as server:
        connection = _url(server, auth_token=_token_options(file))
        with pytest.raises(SourceError):
            connection.read(PODS)
    assert len(server.log) == 1


def test_url_token_that_stays_wrong(recording, tmp_path):
    """Two answers of 401 are an error; nothing is tried a third time."""
    file = tmp_path / "token"
    file.write_text("wrong")
    with ReplayServer(recording, token=TOKEN) as server:
        with pytest.raises(SourceError) as caught:
            _url(server, auth_token=_token_options(file)).read(PODS)
        assert caught.value.reason == "unauthorized"
        assert [request.status for request in server.log] == [401, 401]


def test_url_without_a_token_is_not_repeated(recording):
    """Where there is nothing to read anew, a 401 is final."""
    with ReplayServer(recording, token=TOKEN) as server:
        with pytest.raises(SourceError):
            _url(server).read(PODS)
        assert len(server.log) == 1


def test_url_token_file_that_is_missing(recording, tmp_path):
    """A credential that cannot be read is unauthorized, and names the option."""
    with ReplayServer(recording) as server, pytest.raises(SourceError) as caught:
        _url(server, auth_token=_token_options(tmp_path / "nothing")).read(PODS)
    assert caught.value.reason == "unauthorized"
    assert "kube_api_options" in str(caught.value)


def test_url_userinfo_is_sent_and_not_shown(recording, caplog):
    """User and password in a URL become basic authentication, and leave no trace in logs and errors."""
    caplog.set_level(logging.DEBUG)
    with Witness(recording, [(PODS, 403)]) as server:
        url = server.url.replace("//", "//me:p%40ss-w0rd@")
        connection = UrlConnection(url, {"log_requests": True}, timeout=2)
        with pytest.raises(SourceError) as caught:
            connection.read(PODS)
        server.faults = []
        connection.read(PODS)
    assert base64.b64decode(server.seen[0].removeprefix("Basic ")) == b"me:p@ss-w0rd"
    assert "w0rd" not in str(caught.value)
    assert "w0rd" not in caplog.text


def test_no_token_in_any_log(recording, tmp_path, caplog):
    """Also at debug level no library and no line of ours shows a token."""
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "token"
    file.write_text(TOKEN)
    user = {"tokenFile": str(file)}
    with ReplayServer(recording, token=TOKEN) as server:
        kube = KubeConnection(config_path=_kubeconfig(tmp_path / "config", server, user), timeout=2)
        for connection in (_url(server, auth_token=_token_options(file)), kube):
            connection.read(PODS)
            server.token = "another"
            with pytest.raises(SourceError):
                connection.read(PODS)
            server.token = TOKEN
    assert TOKEN not in caplog.text


@pytest.mark.parametrize(
    "url", ["", "host:6443", "ftp://host", "https://", "https://host/api?token=s3cr3t", "https://host/#x"]
)
def test_a_url_that_cannot_be(url):
    """A wrong URL is refused at load, without showing what a query might hold."""
    with pytest.raises(ConfigurationError) as caught:
        UrlConnection(url, {}, timeout=1)
    assert "s3cr3t" not in str(caught.value)


def test_wrong_options_are_refused_at_load(recording):
    """The Agent's own rules for auth_token hold, when the check is loaded and not at the first run."""
    with ReplayServer(recording) as server, pytest.raises(ConfigurationError):
        _url(server, auth_token={"reader": {"type": "file"}})


def test_a_url_with_a_path(recording):
    """A proxy that serves the API below a path is a prefix of each request."""
    with ReplayServer(recording, [("/k8s/clusters/c-1/api/v1/pods", Answer(200, b"{}"))]) as server:
        connection = UrlConnection(server.url + "/k8s/clusters/c-1/", {}, timeout=2)
        assert connection.read(PODS) == b"{}"


def test_url_tls(recording):
    """TLS is verified unless told otherwise, against the CA that the user names."""
    with ReplayServer(recording, certificate=CERTIFICATE) as server:
        with pytest.raises(SourceError) as caught:
            _url(server).read(PODS)
        assert caught.value.reason == "unreachable"
        assert "tls_ca_cert" in str(caught.value)
        assert _url(server, tls_ca_cert=str(CERTIFICATE)).read(PODS)
        assert _url(server, tls_verify=False).read(PODS)


def test_http_spoken_to_https(recording):
    """A wrong scheme is an error with an advice, not a hang."""
    with ReplayServer(recording, certificate=CERTIFICATE) as server:
        url = server.url.replace("https", "http")
        with pytest.raises(SourceError) as caught:
            UrlConnection(url, {}, timeout=1).read(PODS)
    assert caught.value.reason == "unreachable"


def test_threads_share_a_connection(recording):
    """Many threads may read at once over https, where the HTTP library would change shared state."""
    with ReplayServer(recording, certificate=CERTIFICATE) as server:
        connection = _url(server, timeout=10.0, tls_ca_cert=str(CERTIFICATE))
        bodies = []
        threads = [threading.Thread(target=lambda: bodies.append(connection.read(PODS))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(bodies) == 8
    assert len(set(bodies)) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_connection_can_be_used_again(recording, tmp_path, kind):
    """close() drops what is idle; it is no end."""
    with ReplayServer(recording) as server:
        connection = _makers(server, tmp_path)[kind]
        connection.close()
        connection.read(PODS)
        connection.close()
        assert connection.read(PODS)
        connection.close()


def test_kubeconfig_token_is_reread_after_a_401(recording, tmp_path):
    """The kubeconfig is read anew once when the server refuses the token."""
    with ReplayServer(recording, token="new") as server:
        path = _kubeconfig(tmp_path / "config", server, {"token": "old"})
        connection = KubeConnection(config_path=path, timeout=2)
        with pytest.raises(SourceError) as caught:
            connection.read(PODS)
        assert caught.value.reason == "unauthorized"
        assert [request.status for request in server.log] == [401, 401]
        _kubeconfig(tmp_path / "config", server, {"token": "new"})
        connection.read(PODS)
        assert server.log[-1].status == 200


def test_kubeconfig_exec_plugin(recording, tmp_path):
    """An exec plugin gives the token, and is run again when the server refuses it."""
    file = tmp_path / "token"
    file.write_text("first")
    plugin = tmp_path / "plugin"
    plugin.write_text(
        "#!/bin/sh\n"
        'echo "{\\"apiVersion\\": \\"client.authentication.k8s.io/v1\\", \\"kind\\": \\"ExecCredential\\",'
        f' \\"status\\": {{\\"token\\": \\"$(cat {file})\\"}}}}"\n'
    )
    plugin.chmod(stat.S_IRWXU)
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(plugin),
            "interactiveMode": "Never",
        }
    }
    with ReplayServer(recording, token="first") as server:
        connection = KubeConnection(config_path=_kubeconfig(tmp_path / "config", server, user), timeout=2)
        connection.read(PODS)
        file.write_text("second")
        server.token = "second"
        connection.read(PODS)
    assert [request.status for request in server.log] == [200, 401, 200]


def test_kubeconfig_context(recording, tmp_path):
    """kube_context chooses another cluster of the file."""
    with ReplayServer(recording) as server:
        path = _kubeconfig(tmp_path / "config", server, {})
        KubeConnection(config_path=path, context="one", timeout=1).read(PODS)
        with pytest.raises(SourceError) as caught:
            KubeConnection(config_path=path, context="other", timeout=1).read(PODS)
    assert "connection refused" in str(caught.value)


def test_kubeconfig_tls(recording, tmp_path):
    """The certificate authority of the kubeconfig counts; without it the server is not trusted."""
    authority = base64.b64encode(CERTIFICATE.read_bytes()).decode()
    with ReplayServer(recording, certificate=CERTIFICATE) as server:
        trusting = _kubeconfig(tmp_path / "a", server, {}, **{"certificate-authority-data": authority})
        KubeConnection(config_path=trusting, timeout=2).read(PODS)
        with pytest.raises(SourceError) as caught:
            KubeConnection(config_path=_kubeconfig(tmp_path / "b", server, {}), timeout=2).read(PODS)
    assert caught.value.reason == "unreachable"
    assert "certificate authority" in str(caught.value)


@pytest.mark.parametrize("text", [None, "", "a: [", "kind: Config"])
def test_kubeconfig_that_cannot_be_read(tmp_path, text):
    """A missing or broken file is an error of the source that names the option, at each run until it is there."""
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    connection = KubeConnection(config_path=str(path), timeout=1)
    for _ in range(2):
        with pytest.raises(SourceError) as caught:
            connection.read(PODS)
        assert caught.value.reason == "unreachable"
        assert "kube_config_path" in str(caught.value)


@pytest.fixture
def pod(monkeypatch, tmp_path):
    """Make the environment of a pod; return its token file, and a function that tells it where the API server is."""
    token = tmp_path / "sa-token"
    token.write_text(TOKEN + "\n")
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_CERT_FILENAME", str(CERTIFICATE))

    def at(server):
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", server.url.rpartition(":")[2])

    return token, at


def test_in_cluster(recording, pod):
    """Without options the service account of the pod is used; its token file may end with a newline."""
    token, at = pod
    with Witness(recording, certificate=CERTIFICATE) as server:
        at(server)
        connection = KubeConnection(timeout=2)
        connection.read(PODS)
        token.write_text("rotated\n")
        connection.close()
        connection.read(PODS)
    assert [value.split()[1] for value in server.seen] == [TOKEN, "rotated"]


def test_in_cluster_goes_past_the_proxy_as_no_proxy_says(recording, pod, monkeypatch):
    """NO_PROXY holds: with a company's proxy in the environment, the API server is still reached."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ReplayServer(recording, certificate=CERTIFICATE) as server:
        pod[1](server)
        assert KubeConnection(timeout=2).read(PODS)


def test_outside_of_a_cluster(monkeypatch):
    """Without options and outside of a pod the error says what to set."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(SourceError) as caught:
        KubeConnection(timeout=1).read(PODS)
    assert caught.value.reason == "unreachable"
    assert "kube_api_url" in caught.value.advice
