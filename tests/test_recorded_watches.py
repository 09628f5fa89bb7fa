# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Recorded lists, watches and errors of a real API server, played back byte by byte, lead to its final lists.

A recording holds a list, everything that a watch from its version said, and a list at the end. Where the bytes on the
connection were kept they are played as they were, framing and all; elsewhere each line is an HTTP chunk, as in those.
The reducers are the check's own, and facts are compared whole.
"""

import logging
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from urllib.parse import parse_qsl, urlsplit

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.sources.api import Api
from datadog_checks.kueue_gang.sources.connection import UrlConnection
from datadog_checks.kueue_gang.sources.reflector import Reflector
from datadog_checks.kueue_gang.sources.resources import resources
from datadog_checks.kueue_gang.sources.store import by_name
from lab.apiserver import ApiServer
from lab.http_faults import kind_of
from lab.recording import CAPTURES, unpacked
from tests.live import QUICK, readers, until
from tests.model.build import reducers

FILES = unpacked(CAPTURES / "watch.tar.xz")
LOG = logging.getLogger("test")
WORKLOADS = "workloads.kueue.x-k8s.io"
POD_GROUPS = "podgroups.scheduling.x-k8s.io"
#: Name of a source: the name of its files, and the version with which its recorded watch ended.
RECORDED = {"pods": ("pods", "749"), POD_GROUPS: (POD_GROUPS, "711"), WORKLOADS: (f"{WORKLOADS}.v1beta2", "728")}
TIMING = replace(QUICK, watch=5.0)


def row(source):
    """Return the row of a source, with a reducer that has seen nothing."""
    return next(one for one in resources(reducers(Rules())) if one.api_source == source)


def facts(source, body):
    """Return the facts of a list."""
    reduce = row(source).reduce
    return by_name([fact for item in orjson.loads(body)["items"] if (fact := reduce(item)) is not None])


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"


def chunked(*lines):
    """Return a watch as an API server frames it."""
    return (
        OK
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + b"".join(b"%x\r\n%b\r\n" % (len(line), line) for line in lines)
        + b"0\r\n\r\n"
    )


def whole(body):
    """Return a body with its head."""
    return OK + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def lines_of(name, after=0):
    """Return the lines of a recorded watch, those after a version."""
    lines = FILES[name].splitlines(keepends=True)
    return [line for line in lines if line.strip() and int(_metadata(line)["resourceVersion"]) > after]


def _metadata(line):
    return orjson.loads(line)["object"]["metadata"]


NO_STREAM = b"HTTP/1.1 422 Unprocessable Entity\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Player:
    """A server that sends recorded bytes. Use it as a context manager.

    `script` holds the answers by kind of request, in their order; a function makes an answer from the query. Where none
    is left, it says nothing. Each answer ends its connection. `piece` is how many bytes are sent at a time.
    """

    def __init__(self, piece=1 << 20, **script):
        """Take the script; requests are answered from `__enter__` on."""
        self.script = {kind: deque(answers) for kind, answers in script.items()}
        self.asked = []
        self._piece = piece
        self._open = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self):
        """Begin."""
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_error):
        """End all connections."""
        self._listener.close()
        for connection in self._open:
            connection.close()

    def requests(self, kind):
        """Return the queries of the requests of a kind."""
        return [query for asked, query in self.asked if asked == kind]

    def _serve(self):
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open.append(connection)
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection):
        with suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(4096)
            url = urlsplit(head.split(b" ")[1].decode())
            query = dict(parse_qsl(url.query))
            kind = kind_of(query) if not url.path.endswith("/apis") else "discovery"
            self.asked.append((kind, query))
            if kind == "discovery":
                # It is not part of a recording; without it the lists are tried straight.
                connection.sendall(NOT_FOUND)
                connection.shutdown(socket.SHUT_RDWR)
                return
            answers = self.script.get(kind)
            if not answers:
                return
            answer = answers.popleft()
            body = answer(query) if callable(answer) else answer
            for start in range(0, len(body), self._piece):
                connection.sendall(body[start : start + self._piece])
            connection.shutdown(socket.SHUT_RDWR)


class Following:
    """A reflector on a player. Use it as a context manager."""

    def __init__(self, player, source, timing=TIMING):
        """Make it; it starts in `__enter__`."""
        self._connection = UrlConnection(player.url, {}, timeout=5.0)
        self.reflector = Reflector(Api(self._connection, log=LOG), row(source), LOG, timing=timing)

    def __enter__(self):
        """Start."""
        self.reflector.start()
        return self

    def __exit__(self, *_error):
        """Stop."""
        self.reflector.stop()
        self._connection.abort()
        until(lambda: not readers(), "the reader ends")

    def look(self):
        """Take what has come; return the facts by namespace and name."""
        self.reflector.refresh()
        return by_name(list(self.reflector.table))

    def until(self, expected):
        """Wait until just these facts are known."""
        until(lambda: self.look() == expected, lambda: f"{expected}, not {self.look()}")
        assert self.reflector.error is None
        assert self.reflector.table.unreadable == set()

    def until_reason(self, reason):
        """Wait for a reason why the source is down; return the error."""
        until(lambda: self.look() is not None and self.reflector.take_health().reason == reason, reason)
        return self.reflector.error


def before(source):
    """Return the list at the beginning of a recording."""
    return FILES[f"{RECORDED[source][0]}.list-before.json"]


def after(source):
    """Return the facts of the list at its end."""
    return facts(source, FILES[f"{RECORDED[source][0]}.list-after.json"])


# --- watches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [1 << 20, 1000, 61])
@pytest.mark.parametrize("source", RECORDED)
def test_list_and_watch_lead_to_the_final_list(source, piece):
    """The list, and then every event of the watch: the facts are those of the final list, however the bytes come."""
    name, version = RECORDED[source]
    wire = FILES.get(f"{name}.watch.wire") or chunked(*lines_of(f"{name}.watch.jsonl"))
    with (
        Player(piece, stream=[NO_STREAM], list=[whole(before(source))], watch=[wire]) as player,
        Following(player, source) as following,
    ):
        until(lambda: following.look() is not None and len(player.requests("watch")) == 2, "the watch has ended")
        following.until(after(source))
        health = following.reflector.take_health()
    first, second = player.requests("watch")
    assert first["resourceVersion"] == "488"
    assert second["resourceVersion"] == version, "it goes on from the last bookmark"
    objects = orjson.loads(FILES[f"{name}.list-after.json"])["items"]
    assert (health.objects, health.resyncs, health.bad) == (len(objects), 1, 0)


def test_the_facts_of_the_final_lists_are_not_empty():
    """Guards the tests here: 11 GPU pods of 11, one PodGroup, two Workloads, by hand from the recording."""
    counts = {source: sum(map(len, after(source).values())) for source in RECORDED}
    assert counts == {"pods": 11, POD_GROUPS: 1, WORKLOADS: 2}
    assert {source: after(source) == facts(source, before(source)) for source in RECORDED} == dict.fromkeys(
        RECORDED, False
    )


def test_each_byte_of_a_recorded_connection_may_come_alone():
    """Chunk heads, line ends and objects may be torn anywhere."""
    wire = FILES[f"{POD_GROUPS}.watch.wire"]
    with (
        Player(1, stream=[NO_STREAM], list=[whole(before(POD_GROUPS))], watch=[wire]) as player,
        Following(player, POD_GROUPS) as following,
    ):
        until(lambda: following.look() is not None and len(player.requests("watch")) == 2, seconds=20)
        following.until(after(POD_GROUPS))


def test_a_watch_that_reached_its_time_goes_on():
    """A recorded watch with timeoutSeconds=9 ended at version 537; the rest of the events lead to the final list."""
    rest = chunked(*lines_of("pods.watch.jsonl", after=537))
    wire = FILES["pods.watch-timeout9.wire"]
    with (
        Player(stream=[NO_STREAM], list=[whole(before("pods"))], watch=[wire, rest]) as player,
        Following(player, "pods") as following,
    ):
        until(lambda: following.look() is not None and len(player.requests("watch")) == 3)
        following.until(after("pods"))
    assert [query["resourceVersion"] for query in player.requests("watch")] == ["488", "537", "749"]


def test_a_streaming_list_leads_to_the_final_list():
    """Four initial events, the bookmark that ends them, and events up to version 552; then a watch from there."""
    stream = FILES["pods.watchlist-sendInitialEvents.jsonl"].splitlines(keepends=True)
    rest = chunked(*lines_of("pods.watch.jsonl", after=552))
    with (
        Player(stream=[chunked(*stream)], watch=[rest]) as player,
        Following(player, "pods") as following,
    ):
        until(lambda: following.look() is not None and len(player.requests("watch")) == 2)
        following.until(after("pods"))
        health = following.reflector.take_health()
    assert [query["resourceVersion"] for query in player.requests("watch")] == ["552", "749"]
    assert (health.objects, health.resyncs, health.bad) == (11, 1, 0)


def test_a_streaming_list_is_not_taken_before_its_end():
    """Without the bookmark that ends the initial events there is no list."""
    stream = FILES["pods.watchlist-sendInitialEvents.jsonl"].splitlines(keepends=True)
    with (
        Player(stream=[chunked(*stream[:4]), chunked(*stream[:5])]) as player,
        Following(player, "pods") as following,
    ):
        following.until_reason("unreachable")
        assert following.look() == {}
        following.until(facts("pods", before("pods")))
    assert len(player.requests("stream")) == 2


@settings(max_examples=40)
@given(st.lists(st.integers(0, 430_000), min_size=1, max_size=6), st.sampled_from([1 << 20, 777]))
def test_a_watch_may_break_anywhere(cuts, piece):
    """Wherever the connection breaks, any number of times, the watches that follow lead to the final list."""

    def rest(query):
        return chunked(*lines_of("pods.watch.jsonl", after=int(query["resourceVersion"])))

    watches = [lambda query, cut=cut: rest(query)[: cut + 1] for cut in cuts]
    with (
        Player(piece, stream=[NO_STREAM], list=[whole(before("pods"))] * 9, watch=[*watches, rest, rest]) as player,
        Following(player, "pods") as following,
    ):
        following.until(after("pods"))


# --- errors ----------------------------------------------------------------------------------------------------------


def error(name):
    """Return a recorded answer."""
    return FILES[f"errors/{name}.http"]


REFUSALS = {
    "401-bad-token": ("pods", "unauthorized", "HTTP 401"),
    "403-anonymous": ("nodes", "forbidden", 'cannot list resource "nodes"'),
    "403-pods-list": ("pods", "forbidden", 'verbs get, list, watch on resources pods of apiGroups ""'),
    "404-group-absent": (WORKLOADS, "not_installed", "no workloads in group kueue.x-k8s.io"),
    "404-resource-absent": (WORKLOADS, "not_installed", "no workloads in group kueue.x-k8s.io"),
    "404-version-absent": (WORKLOADS, "not_installed", "no workloads in group kueue.x-k8s.io"),
    "404-object": ("pods", "invalid", "HTTP 404"),
    "410-list-compacted": ("pods", "unreachable", "too old"),
    "429-new-crd-storage-initializing": (WORKLOADS, "unreachable", "storage is (re)initializing"),
    "list-future-rv": ("pods", "unreachable", "Too large resource version"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_list_that_is_refused(name):
    """Each recorded refusal of a list is told in the server's words, and the list is tried again."""
    source, reason, words = REFUSALS[name]
    # Each version and each form of a list is asked for before a resource is said to be absent.
    versions = len(row(source).versions) if name.startswith("404") else 1
    refused = [error(name)] * versions
    empty = whole(b'{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}')
    script = {
        "stream": [*refused, NO_STREAM],
        "list": [*(refused if name.startswith("404") else ()), empty],
    }
    with Player(**script) as player, Following(player, source, replace(TIMING, refused=0.2)) as following:
        assert words in str(following.until_reason(reason))
        until(lambda: following.look() == {} and following.reflector.take_health().reason == "ok")


def test_429_is_waited_for():
    """The recorded 429 asks to wait a second."""
    answer = error("429-new-crd-storage-initializing")
    with (
        Player(stream=[answer, NO_STREAM], list=[whole(before("pods"))]) as player,
        Following(player, "pods", replace(TIMING, retry_most=5.0)) as following,
    ):
        began = time.monotonic()
        following.until(facts("pods", before("pods")))
        assert time.monotonic() - began >= 0.95
    assert [kind for kind, _ in player.asked][:3] == ["stream", "stream", "list"]


def test_a_watch_that_is_forbidden():
    """A role without the verb watch: what was listed is shown until it is too old, and the source says why."""
    lists = [whole(before("pods"))]
    with (
        Player(stream=[NO_STREAM], list=lists, watch=[error("403-workloads-watch")] * 99) as player,
        Following(player, "pods", replace(TIMING, stale=0.5, refused=0.1)) as following,
    ):
        words = str(following.until_reason("forbidden"))
        assert "verbs get, list, watch" in words
        assert 'cannot watch resource "workloads"' in words
        assert following.look() == facts("pods", before("pods"))
        until(lambda: following.look() == {})


@pytest.mark.parametrize("name", ["410-watch-ancient-crd", "410-list-compacted", "list-future-rv"])
def test_a_watch_that_cannot_go_on_makes_a_new_list(name):
    """410 as an ERROR event in a 200, 410 as a status, and the 504 for a version of the future."""
    second = FILES["pods.list-after.json"]
    with (
        Player(stream=[NO_STREAM], list=[whole(before("pods")), whole(second)], watch=[error(name)]) as player,
        Following(player, "pods") as following,
    ):
        following.until(after("pods"))
        until(lambda: len(player.requests("watch")) == 2)
    assert player.requests("watch")[1]["resourceVersion"] == "750"


def test_empty_watches_of_a_future_version_make_a_new_list():
    """A version of the future is answered by a watch without any event; after three of them there is a new list."""
    watches = [error("watch-future-rv")] * 3
    with (
        Player(
            stream=[NO_STREAM], list=[whole(before("pods")), whole(FILES["pods.list-after.json"])], watch=watches
        ) as player,
        Following(player, "pods") as following,
    ):
        following.until(after("pods"))
        until(lambda: len(player.requests("watch")) == 4)


def test_a_token_that_expired_begins_a_new_list():
    """The first page of a recorded list of eleven, the 410 for its continue token, and then a list that works."""
    page = error("200-list-limit2-with-continue")
    with (
        Player(
            stream=[NO_STREAM] * 2,
            list=[page, whole(FILES["pods.list-after.json"])],
            page=[error("410-continue-expired")],
        ) as player,
        Following(player, "pods") as following,
    ):
        following.until(after("pods"))
        health = following.reflector.take_health()
    (query,) = player.requests("page")
    assert query["continue"].startswith("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NzU5LCJzdGFydCI6Ii9hZHMv")
    assert (health.objects, health.resyncs) == (11, 1)


def test_an_empty_list_from_the_cache_is_a_list():
    """A list without items, as recorded, is read: there is nothing, and it is watched from its version."""
    with (
        Player(stream=[NO_STREAM], list=[error("200-list-exact-old-from-cache")]) as player,
        Following(player, "pods") as following,
    ):
        until(lambda: player.requests("watch"))
        assert following.look() == {}
        assert following.reflector.take_health().reason == "ok"
    assert player.requests("watch")[0]["resourceVersion"] == "7"


# --- the lab's server says the same ----------------------------------------------------------------------------------


def _answer(raw):
    """Return (status, headers, body) of recorded bytes."""
    head, _, body = raw.partition(b"\r\n\r\n")
    status, *headers = head.decode().split("\r\n")
    found = dict(line.split(": ", 1) for line in headers)
    if found.get("Transfer-Encoding") == "chunked":
        pieces = []
        while body:
            size, _, rest = body.partition(b"\r\n")
            pieces.append(rest[: int(size, 16)])
            body = rest[int(size, 16) + 2 :]
        body = b"".join(pieces)
    return int(status.split()[1]), found, body


def _same(name, query, path="/api/v1/pods", *, prepare=lambda server: None, token=None):
    """Compare what the lab's server answers with a recorded answer; numbers may differ."""
    status, headers, body = _answer(error(name))
    with ApiServer(token=token) as server:
        for letter in "abc":
            server.apply("pods", {"metadata": {"name": letter, "namespace": "team"}, "spec": {}, "status": {}})
        prepare(server)
        connection = socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])))
        with connection:
            connection.sendall(f"GET {path}?{query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            said = b"".join(iter(lambda: connection.recv(65536), b""))
    here, found, answer = _answer(said)
    assert here == status
    assert found["Content-Type"] == headers["Content-Type"]
    assert found.get("Retry-After") == headers.get("Retry-After")
    assert ("Transfer-Encoding" in found) == ("Transfer-Encoding" in headers) or status == 200
    return body, answer


def test_the_labs_server_refuses_in_the_same_words():
    """401, 404, 410 and 504: status, headers that count, code and reason."""
    body, answer = _same("401-bad-token", "limit=500", token="other")
    assert orjson.loads(answer) == orjson.loads(body)
    body, answer = _same("404-group-absent", "limit=500", "/apis/nobody.example/v1/things")
    assert answer == body
    for name, query in (("410-continue-expired", "limit=1&continue=old"), ("list-future-rv", "resourceVersion=9999")):
        body, answer = _same(name, query)
        recorded, said = orjson.loads(body), orjson.loads(answer)
        assert {key: said[key] for key in ("kind", "code", "reason")} == {
            key: recorded[key] for key in ("kind", "code", "reason")
        }
        assert said["message"].split(":")[0][:40] == recorded["message"].split(":")[0][:40]


def test_the_labs_server_watches_in_the_same_words():
    """An old version is an ERROR event; one of the future says nothing until its time is over."""
    body, answer = _same("410-watch-ancient-crd", "watch=1&resourceVersion=5", prepare=ApiServer.compact)
    recorded, said = orjson.loads(body), orjson.loads(answer)
    assert said["type"] == recorded["type"] == "ERROR"
    assert said["object"].keys() == recorded["object"].keys()
    assert said["object"]["message"].startswith("too old resource version: 5 (")
    body, answer = _same("watch-future-rv", "watch=1&resourceVersion=9999&timeoutSeconds=1&allowWatchBookmarks=true")
    assert answer == body == b""


def test_the_labs_lists_have_the_form_of_recorded_ones():
    """Pages of built-in and custom kinds: keys in the same order, so that they are cut in the same places."""
    recorded = orjson.loads(before("pods"))
    with ApiServer() as server:
        server.apply("pods", {"metadata": {"name": "a", "namespace": "team"}, "spec": {}, "status": {}})
        server.apply(POD_GROUPS, {"metadata": {"name": "g", "namespace": "team"}, "spec": {}, "status": {}})
        connection = UrlConnection(server.url, {}, timeout=5)
        said = orjson.loads(connection.read("/api/v1/pods"))
        custom = orjson.loads(connection.read("/apis/scheduling.x-k8s.io/v1alpha1/podgroups"))
    assert list(said) == list(recorded)
    assert list(said["items"][0]) == list(recorded["items"][0])
    final = orjson.loads(FILES[f"{POD_GROUPS}.list-after.json"])
    assert list(custom) == list(final)
    assert list(custom["metadata"]) == list(final["metadata"])
    assert list(custom["items"][0]) == list(final["items"][0])
