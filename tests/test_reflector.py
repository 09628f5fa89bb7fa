# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""One resource in step with a live API server: lists, watches, and everything that ends them.

The server is the lab's, over real HTTP. A fact is (namespace, name, value) of an object with a whole number in its
spec; any other value makes a bad object.
"""

import logging
import threading
import time
from dataclasses import dataclass, replace

import orjson
import pytest

from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.facts import BadObjectError
from datadog_checks.kueue_gang.settings import wanted_resources
from datadog_checks.kueue_gang.sources import api as api_module
from datadog_checks.kueue_gang.sources import reader as module
from datadog_checks.kueue_gang.sources.api import Api
from datadog_checks.kueue_gang.sources.collector import Collector
from datadog_checks.kueue_gang.sources.connection import UrlConnection
from datadog_checks.kueue_gang.sources.feed import Feed, Lines, Page
from datadog_checks.kueue_gang.sources.reflector import Reflector
from datadog_checks.kueue_gang.sources.resources import Resource
from lab.apiserver import KINDS, ApiServer
from lab.http_faults import Answer
from tests.live import OBJECTS, PATIENCE, QUICK, cluster, readers, until
from tests.model.build import TEAM, new

LOG = logging.getLogger("test")
PODS = "/api/v1/pods"
WORKLOADS = "workloads.kueue.x-k8s.io"
KUEUE = "/apis/kueue.x-k8s.io"


@dataclass(frozen=True, slots=True)
class Fact:
    """What is kept of an object."""

    namespace: str
    name: str
    value: int


def fact_of(obj):
    """Return the fact of an object, None for 0; raise for what is no number."""
    metadata, value = obj["metadata"], obj["spec"]["value"]
    if not isinstance(value, int):
        msg = "spec.value is no number"
        raise BadObjectError(msg)
    return Fact(metadata.get("namespace", ""), metadata["name"], value) if value else None


def thing(name, value=1, namespace="team", **more):
    """Return an object."""
    return {"metadata": {"name": name, "namespace": namespace, **more}, "spec": {"value": value}}


PODS_ROW = Resource("pods", "", "pods", ("v1",), fact_of)
WORKLOADS_ROW = Resource(WORKLOADS, "kueue.x-k8s.io", "workloads", ("v1beta2", "v1beta1"), fact_of, "kueue")
JOBS_ROW = Resource("jobs", "batch", "jobs", ("v1",), fact_of, query={"labelSelector": "queue"})


class Following:
    """A reflector on a server. Use it as a context manager, so that its thread ends."""

    def __init__(self, server, row=PODS_ROW, timing=QUICK, *, watch=True, timeout=1.0):
        """Make it; it starts in `__enter__`."""
        self.connection = UrlConnection(server.url, {}, timeout=timeout)
        self.api = Api(self.connection, log=LOG)
        self.reflector = Reflector(self.api, row, LOG, timing=timing, watch=watch)
        #: What `take_health` counted so far.
        self.resyncs = 0
        self.bad = 0

    def __enter__(self):
        """Start."""
        self.reflector.start()
        return self

    def __exit__(self, *_error):
        """Stop, and wait for the end of the thread."""
        self.reflector.stop()
        self.connection.abort()
        self.connection.close()
        until(lambda: not readers(), "the reader ends")

    def look(self):
        """Take what has come; return the values by name."""
        self.reflector.refresh()
        return {fact.name: fact.value for fact in self.reflector.table}

    def health(self):
        """Take what has come; return the health, with the counts since the beginning."""
        self.reflector.refresh()
        found = self.reflector.take_health()
        self.resyncs += found.resyncs
        self.bad += found.bad
        return replace(found, resyncs=self.resyncs, bad=self.bad)

    def until(self, **values):
        """Wait until just these objects are known, with these values."""
        until(lambda: self.look() == values, lambda: f"{values}, not {self.look()} ({self.reflector.error})")
        return self.health()

    def until_reason(self, reason):
        """Wait for the reason why the source is down."""
        until(lambda: self.health().reason == reason, lambda: f"{reason}, not {self.health()}")
        return self.reflector.error


@pytest.fixture
def server():
    """Return a server with two pods."""
    with ApiServer() as made:
        made.apply("pods", thing("a", 1))
        made.apply("pods", thing("b", 2))
        yield made


# --- lists -----------------------------------------------------------------------------------------------------------


def test_one_streaming_list_is_all_that_is_asked(server):
    """List and watch are one request where the server has streaming lists, and say what the watch needs."""
    with Following(server) as following:
        health = following.until(a=1, b=2)
        server.apply("pods", thing("c", 3))
        following.until(a=1, b=2, c=3)
        (request,) = server.log
    assert (health.reason, health.objects, health.resyncs, health.bad) == ("ok", 2, 1, 0)
    assert request.path == PODS
    assert request.query.pop("timeoutSeconds") == "1"
    assert request.query == {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "watch": "1",
        "allowWatchBookmarks": "true",
    }


def test_pages_where_the_server_has_no_streaming_list(server, monkeypatch):
    """A 422 leads to a paged list and a watch from its version; a streaming list is not tried again."""
    monkeypatch.setattr(module, "PAGE", 2)
    server.streaming = False
    for number in range(3):
        server.apply("pods", thing(f"c{number}", 3))
    version = server.store.version
    with Following(server) as following:
        following.until(a=1, b=2, c0=3, c1=3, c2=3)
        until(lambda: server.watches("pods"))
        assert [request.kind for request in server.log] == ["stream", "list", "page", "page", "watch"]
        assert server.log[-1].query["resourceVersion"] == str(version)
        server.compact()
        server.apply("pods", thing("d", 4))
        server.compact()
        server.cut()
        following.until(a=1, b=2, c0=3, c1=3, c2=3, d=4)
    assert len(server.requests(PODS, "stream")) == 1


def test_the_pages_of_a_list_are_of_one_moment(server, monkeypatch):
    """What is written between two pages comes with the watch, once."""
    monkeypatch.setattr(module, "PAGE", 1)
    server.streaming = False
    written = threading.Event()

    class Writes(Api):
        def read(self, path, query):
            if "continue" in query and not written.is_set():
                written.set()
                server.apply("pods", thing("b", 20))
                server.apply("pods", thing("c", 3))
            return super().read(path, query)

    following = Following(server)
    following.reflector._api = Writes(following.connection, log=LOG)
    with following:
        health = following.until(a=1, b=20, c=3)
    assert written.is_set()
    assert (health.objects, health.resyncs) == (3, 1)


def test_a_list_without_objects_is_read(server):
    """An empty resource is up, with nothing in it."""
    with Following(server, WORKLOADS_ROW) as following:
        until(lambda: following.health().reason == "ok")
        assert (following.look(), following.health().objects) == ({}, 0)


def test_a_selector_holds_for_list_and_watch(server):
    """What comes to meet the selector is added, what meets it no more is gone."""
    server.apply("jobs", thing("one", 1, labels={"queue": "q"}))
    server.apply("jobs", thing("two", 2))
    with Following(server, JOBS_ROW) as following:
        following.until(one=1)
        server.apply("jobs", thing("two", 2, labels={"queue": "q"}))
        following.until(one=1, two=2)
        server.apply("jobs", thing("one", 1))
        health = following.until(two=2)
    assert health.objects == 1
    assert {request.query["labelSelector"] for request in server.requests("/apis/batch/v1/jobs")} == {"queue"}


def test_a_list_that_fails_on_a_later_page_replaces_nothing(server, monkeypatch):
    """What was known stays, and ages from when it was last in step; then it is stale, and nothing is told of it."""
    monkeypatch.setattr(module, "PAGE", 1)
    server.streaming = False
    for number in range(10):
        server.apply("pods", thing(f"p{number}", number + 1))
    known = {"a": 1, "b": 2, **{f"p{number}": number + 1 for number in range(10)}}
    with Following(server, timing=replace(QUICK, stale=1.0)) as following:
        following.until(**known)
        until(lambda: server.watches("pods"))
        # The list itself and eight later pages are right, and then none is.
        server.faults = [(PODS, "whole", 8, "page"), (PODS, 500, None, "page")]
        with server.store.changed:
            server.cut("pods")
            server.delete("pods", "a", "team")
            server.compact()
        since = time.monotonic()
        error = following.until_reason("unreachable")
        assert "500" in str(error)
        ages = []
        while following.reflector.usable:
            assert following.look() == known
            ages.append(following.health().age)
            assert time.monotonic() - since < PATIENCE, "it never becomes stale while its lists break"
            time.sleep(0.02)
        assert ages == sorted(ages), "an attempt that fails makes nothing younger"
        assert time.monotonic() - since >= 0.9
        assert following.look() == {}
        server.faults = []
        del known["a"]
        health = following.until(**known)
    assert (health.reason, health.objects) == ("ok", 11)


@pytest.mark.parametrize("streaming", [True, False])
def test_a_new_list_replaces_everything(server, streaming):
    """What went while nobody looked is gone, and what is as it was is no change."""
    server.streaming = streaming
    with Following(server) as following:
        following.until(a=1, b=2)
        following.reflector.table.take_changes()
        server.faults = [(PODS, 500)]
        server.cut()
        following.until_reason("unreachable")
        server.delete("pods", "a", "team")
        server.apply("pods", thing("c", 3))
        server.compact()
        server.faults = []
        health = following.until(b=2, c=3)
        changes = following.reflector.table.take_changes()
    assert sorted(changes, key=str) == sorted([(Fact("team", "a", 1), None), (None, Fact("team", "c", 3))], key=str)
    assert (health.objects, health.resyncs) == (2, 2)


def test_a_continue_token_that_expired_begins_a_new_list(server, monkeypatch):
    """A 410 on a later page is answered by a new list; the half that was read is not told."""
    monkeypatch.setattr(module, "PAGE", 1)
    server.streaming = False
    server.faults = [(PODS, 410, 1, "page")]
    with Following(server) as following:
        health = following.until(a=1, b=2)
        until(lambda: server.watches("pods"))
    # That streaming lists are missing is only certain once a list works: a 404 says both.
    half = ["stream", "list", "page"]
    assert [request.kind for request in server.log] == [*half, *half, "watch"]
    assert (health.resyncs, health.objects) == (1, 2)


def test_the_same_page_for_ever_is_no_list(server):
    """A server that gives the same continue token again is told as invalid, and not asked for ever."""
    page = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5","continue":"x"},"items":[]}'
    server.streaming = False
    server.faults = [(PODS, Answer(200, page), None, "list"), (PODS, Answer(200, page), None, "page")]
    with Following(server) as following:
        assert "the same page for ever" in str(following.until_reason("invalid"))


@pytest.mark.parametrize("streaming", [True, False])
def test_a_list_without_watch_is_read_in_each_run(server, streaming):
    """Where watches are a 405, each run lists, and no thread stays."""
    server.streaming = streaming
    server.watching = False
    with Following(server) as following:
        following.until(a=1, b=2)
        until(lambda: not readers(), "the reader is not needed")
        server.apply("pods", thing("a", 10))
        assert following.look() == {"a": 10, "b": 2}, "the very next run sees it"
        before = len(server.requests(PODS, "list"))
        following.look()
        following.look()
        assert len(server.requests(PODS, "list")) == before + 2
        assert following.health().reason == "ok"


def test_a_server_that_answers_a_watch_with_a_list(server):
    """A server that knows no `watch` parameter sends a list; it is taken, and each run lists from then on."""
    server.faults = [(PODS, Answer(200, _page([thing("z", 26)])), None, "stream")]
    with Following(server) as following:
        until(lambda: not readers(), "the reader is not needed")
        assert following.look() == {"z": 26}
        assert following.look() == {"a": 1, "b": 2}
        assert following.health().reason == "ok"


def test_sync_list_lists_once_a_run(server):
    """Without watches by option there is no thread, and further looks of one run list nothing."""
    with Following(server, watch=False) as following:
        assert readers() == []
        assert following.look() == {"a": 1, "b": 2}
        following.reflector.refresh(again=True)
        assert len(server.log) == 1
        server.apply("pods", thing("b", 3))
        assert following.look() == {"a": 1, "b": 3}
        server.faults = [(PODS, 500, 1)]
        assert following.look() == {"a": 1, "b": 3}
        assert following.health().reason == "ok", "and it is read again in the next run"


def _page(items):
    return orjson.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": items})


# --- events ----------------------------------------------------------------------------------------------------------


def test_events_change_the_facts(server):
    """ADDED, MODIFIED and DELETED; what is of no use any more is gone too, and is counted as an object all the same."""
    with Following(server) as following:
        following.until(a=1, b=2)
        server.apply("pods", thing("c", 3))
        assert following.until(a=1, b=2, c=3).objects == 3
        server.apply("pods", thing("a", 10))
        server.delete("pods", "b", "team")
        assert following.until(a=10, c=3).objects == 2
        server.apply("pods", thing("c", 0))
        assert following.until(a=10).objects == 2
        server.apply("pods", thing("c", 30))
        assert following.until(a=10, c=30).objects == 2
        assert len(server.log) == 1


def test_a_write_that_changes_no_fact_is_no_change(server):
    """A pod that is annotated is the same record as before."""
    with Following(server) as following:
        following.until(a=1, b=2)
        following.reflector.table.take_changes()
        record = following.reflector.table.get(("team", "a"))
        server.apply("pods", thing("a", 1, annotations={"note": "new"}))
        server.apply("pods", thing("b", 20))
        following.until(a=1, b=20)
        assert following.reflector.table.take_changes() == [(Fact("team", "b", 2), Fact("team", "b", 20))]
        assert following.reflector.table.get(("team", "a")) == record


def test_a_change_that_is_taken_back_is_no_change(server):
    """An object that came and went between two runs was never there."""
    with Following(server) as following:
        following.until(a=1, b=2)
        following.reflector.table.take_changes()
        server.apply("pods", thing("x", 9))
        server.delete("pods", "x", "team")
        server.apply("pods", thing("last", 9))
        following.until(a=1, b=2, last=9)
        assert following.reflector.table.take_changes() == [(None, Fact("team", "last", 9))]


@pytest.mark.parametrize("how", ["end", "cut"])
def test_a_stream_that_ends_goes_on_from_its_last_version(server, how):
    """What was written while no stream was open comes after it, once, and nothing is listed again."""
    with Following(server) as following:
        following.until(a=1, b=2)
        for value in range(3, 8):
            server.apply("pods", thing("c", value))
            following.until(a=1, b=2, c=value)
            server.delete("pods", "c", "team")
            getattr(server, how)("pods")
            health = following.until(a=1, b=2)
    assert server.requests(PODS, "list") == []
    assert len(server.requests(PODS, "stream")) == 1
    assert len(server.requests(PODS, "watch")) >= 4
    assert (health.objects, health.resyncs, health.bad) == (2, 1, 0)


@pytest.mark.parametrize("last", ["deleted", "bad", "useless"])
def test_no_event_is_taken_twice_after_a_streaming_list(server, last):
    """The version to go on from is that of the last event, whatever it was: a second DELETED would count twice."""
    with Following(server) as following:
        following.until(a=1, b=2)
        server.apply("pods", thing("c", 3))
        following.until(a=1, b=2, c=3)
        if last == "deleted":
            server.delete("pods", "c", "team")
        else:
            server.apply("pods", thing("d", {"bad": "three", "useless": 0}[last]))
        expected = {"deleted": 2, "bad": 4, "useless": 4}[last]
        until(lambda: following.health().objects == expected)
        version = server.store.version
        server.end("pods")
        (watch,) = until(lambda: following.look() and server.requests(PODS, "watch"))
        assert watch.query["resourceVersion"] == str(version)
        server.apply("pods", thing("e", 5))
        until(lambda: following.look().get("e") == 5)
        health = following.health()
    assert health.objects == expected + 1
    assert health.bad == (last == "bad")


def test_bookmarks_keep_the_version_fresh(server):
    """A quiet resource follows the store: after a compaction of all before, it goes on without a new list."""
    server.bookmark_seconds = 0.05
    with Following(server) as following:
        following.until(a=1, b=2)
        for number in range(5):
            server.apply("nodes", thing(f"n{number}", 1, namespace=""))
        version = server.store.version
        time.sleep(0.2)
        following.look()
        server.compact()
        server.end("pods")
        (watch,) = until(lambda: following.look() and server.requests(PODS, "watch"))
        assert watch.query["resourceVersion"] == str(version)
        server.apply("pods", thing("c", 3))
        assert following.until(a=1, b=2, c=3).resyncs == 1


def test_a_stream_ends_after_its_time_and_goes_on(server):
    """Each watch is asked to last 80 to 100 % of the time, so that not all end at once; its end is no failure."""
    with Following(server, timing=replace(QUICK, watch=3.0)) as following:
        reasons = set()
        while len(server.requests(PODS, "watch")) < 2:
            reasons.add(following.health().reason)
            time.sleep(0.02)
        server.apply("pods", thing("c", 3))
        following.until(a=1, b=2, c=3)
    assert {request.query["timeoutSeconds"] for request in server.log} <= {"2", "3"}
    assert reasons <= {"stale", "ok"}
    assert server.requests(PODS, "list") == []


def test_a_silent_watch_is_given_up_and_goes_on(server):
    """A stream in which nothing comes for longer than it should last is opened again at its version."""
    server.bookmark_seconds = 60
    with Following(server) as following:
        following.until(a=1, b=2)
        server.faults = [(PODS, "mute", 1, "watch")]
        server.end("pods")
        until(lambda: following.look() and server.requests(PODS, "watch"))
        server.apply("pods", thing("c", 3))
        health = following.until(a=1, b=2, c=3)
    first, second = server.requests(PODS, "watch")[:2]
    assert first.query["resourceVersion"] == second.query["resourceVersion"]
    assert health.resyncs == 1


def test_a_watch_may_be_quiet_for_longer_than_an_answer_may_take(server):
    """kube_timeout is for connecting and for answers; a watch in which nothing happens is not cut off by it."""
    server.bookmark_seconds = 60
    with Following(server, timing=replace(QUICK, watch=30.0), timeout=0.2) as following:
        following.until(a=1, b=2)
        time.sleep(0.8)
        server.apply("pods", thing("c", 3))
        following.until(a=1, b=2, c=3)
        assert len(server.log) == 1


def test_a_server_that_never_begins_to_answer_is_told_after_the_timeout(server):
    """The head of a stream has to come as soon as that of any answer, however long the stream may be silent later."""
    server.faults = [(PODS, "silent")]
    with Following(server, timing=replace(QUICK, watch=30.0), timeout=0.3) as following:
        began = time.monotonic()
        error = following.until_reason("unreachable")
        assert time.monotonic() - began < 3
        assert "no answer in time" in str(error)
        server.faults = []
        following.until(a=1, b=2)


def test_a_resource_that_is_quiet_is_up_as_soon_as_it_is_watched(server):
    """A source that failed is up when its watch is answered, and not only when something happens."""
    server.bookmark_seconds = 60
    with Following(server, timing=replace(QUICK, watch=30.0)) as following:
        following.until(a=1, b=2)
        server.faults = [(PODS, 500)]
        server.cut()
        following.until_reason("unreachable")
        server.faults = []
        until(lambda: server.watches("pods"))
        until(lambda: following.health().reason == "ok", "up without an event", seconds=3)


# --- versions that are gone ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streaming", [True, False])
def test_410_as_an_event_makes_a_new_list(server, streaming):
    """A watch from before the compaction is a 200 with an ERROR event of code 410."""
    server.streaming = streaming
    with Following(server) as following:
        following.until(a=1, b=2)
        until(lambda: server.watches("pods"))
        _miss(server, "pods")
        health = following.until(a=1, c=3)
        until(lambda: server.watches("pods") == 1)
    assert (health.reason, health.objects, health.resyncs) == ("ok", 2, 2)


def _miss(server, name):
    """Let a watch end, change things and forget the past before it comes back."""
    with server.store.changed:
        server.cut(name)
        server.delete(name, "b", "team")
        server.apply(name, thing("c", 3))
        server.apply("nodes", thing("n", 1, namespace=""))
        server.compact()


@pytest.mark.parametrize("status", [410, 504])
def test_410_or_504_as_status_of_a_watch_makes_a_new_list(server, status):
    """410: the version is too old. 504: it is of the future, as after a restore."""
    with Following(server) as following:
        following.until(a=1, b=2)
        server.faults = [(PODS, status, 1, "watch")]
        _miss(server, "pods")
        health = following.until(a=1, c=3)
    assert (health.reason, health.resyncs) == ("ok", 2)


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("status", [410, 504])
def test_a_watch_that_is_always_gone_is_asked_for_ever_slower(server, status, streaming):
    """Lists that work and watches that never do are no reason to list as fast as the server can."""
    server.streaming = streaming
    server.faults = [(PODS, status, None, "watch")]
    timing = replace(QUICK, watch=1.0, retry=0.2, retry_most=10.0)
    with Following(server, timing=timing) as following:
        following.until(a=1, b=2)
        if streaming:
            server.end("pods")
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline:
            following.look()
            time.sleep(0.01)
        # Delays of 0.1 to 0.2, 0.2 to 0.4, 0.4 to 0.8 and 0.8 to 1.6 s after the first, which is at once.
        assert len(server.requests(PODS, "watch")) <= 6
        assert following.look() == {"a": 1, "b": 2}
        server.faults = []
        server.apply("pods", thing("c", 3))
        following.until(a=1, b=2, c=3)


def test_a_restored_store_is_listed_anew(server):
    """A server that went back is silent for a version of its future; that no bookmark comes gives it away."""
    server.bookmark_seconds = 0.2
    back = server.store.version
    with Following(server) as following:
        following.until(a=1, b=2)
        server.apply("pods", thing("lost", 3))
        for number in range(20):
            server.apply("nodes", thing(f"n{number}", 1, namespace=""))
        following.until(a=1, b=2, lost=3)
        time.sleep(0.3)
        server.restart(back)
        health = following.until(a=1, b=2)
        until(lambda: server.watches("pods"))
        server.apply("pods", thing("c", 3))
        following.until(a=1, b=2, c=3)
    assert health.resyncs == 2


def test_watches_that_end_at_once_without_an_event_lead_to_a_new_list(server):
    """A server may also answer an empty 200 at once for a version that it does not know: after the third, list."""
    with Following(server) as following:
        following.until(a=1, b=2)
        server.faults = [(PODS, Answer(200, b""), None, "watch")]
        _miss(server, "pods")
        health = following.until(a=1, c=3)
    assert health.resyncs >= 2
    watches = [request.kind for request in server.log].index("stream", 1) - 1
    assert watches == 3


def test_streams_that_end_at_once_are_no_reason_to_hurry(server):
    """Watches that are answered and closed, again and again, cost ever fewer requests."""
    server.faults = [(PODS, Answer(200, b""), None, "watch")]
    with Following(server, timing=replace(QUICK, retry=0.2, retry_most=10.0)) as following:
        following.until(a=1, b=2)
        server.end("pods")
        deadline = time.monotonic() + 3.0
        while time.monotonic() < deadline:
            following.look()
            time.sleep(0.01)
        assert len(server.log) <= 12


# --- what is no event ------------------------------------------------------------------------------------------------

ERRORS = {
    "410": b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n',
    "500": b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd is gone"}}\n',
    "nothing": b'{"type":"ERROR"}\n',
}
BAD_LINES = {
    "no JSON": b'{"type":"ADDED","object":{"metadata":\n',
    "a list": b"[1, 2]\n",
    "a number": b"7\n",
    "no type": b'{"object":{"metadata":{"name":"x"}}}\n',
    "no object": b'{"type":"MODIFIED"}\n',
    "a bookmark without version": b'{"type":"BOOKMARK","object":{"metadata":{}}}\n',
    "no text": b"\xff\xfe\x00\n",
}


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_event_makes_a_new_list(server, error):
    """A server ends a stream with an error event; nothing is known of what was missed."""
    with Following(server) as following:
        following.until(a=1, b=2)
        server.end()
        until(lambda: following.look() and server.watches("pods") and server.requests(PODS, "watch"))
        with server.store.changed:
            server.inject("pods", ERRORS[error])
            server.end("pods")
            server.delete("pods", "b", "team")
            server.apply("pods", thing("c", 3))
        health = following.until(a=1, c=3)
        server.apply("pods", thing("d", 4))
        following.until(a=1, c=3, d=4)
    assert health.reason == "ok"


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_line_that_is_no_event_makes_a_new_list(server, line):
    """A line that cannot be understood was an event: what is known is not trusted any more."""
    server.bookmark_seconds = 0.1
    with Following(server) as following:
        following.until(a=1, b=2)
        _speak_and_miss(server, BAD_LINES[line])
        health = following.until(a=1, c=3)
        server.apply("pods", thing("d", 4))
        following.until(a=1, c=3, d=4)
    assert health.reason == "ok"


def _speak_and_miss(server, line):
    """Say a line, and change things that no event tells."""
    with server.store.changed:
        server.inject("pods", line)
        hidden, server.store.subscriptions = server.store.subscriptions, set()
        server.delete("pods", "b", "team")
        server.apply("pods", thing("c", 3))
        server.compact()
        server.store.subscriptions = hidden


@pytest.mark.parametrize("code", [410, 500])
def test_an_error_event_within_a_list_breaks_it(server, code):
    """A streaming list whose end did not come replaces nothing, says why, and is tried again."""
    with Following(server) as following:
        following.until(a=1, b=2)
        first = orjson.dumps({"type": "ADDED", "object": thing("half", 9, resourceVersion="999")}) + b"\n"
        error = orjson.dumps({"type": "ERROR", "object": {"kind": "Status", "code": code}}) + b"\n"
        server.faults = [(PODS, Answer(200, first + error), 3, "stream")]
        _miss(server, "pods")
        following.until_reason("unreachable")
        following.until(a=1, c=3)


def test_an_event_of_an_unknown_type_is_passed_over(server):
    """A type that a later server may have changes nothing, and nothing is listed anew for it."""
    with Following(server) as following:
        following.until(a=1, b=2)
        server.inject("pods", b'{"type":"PAUSED","object":{"metadata":{"name":"a","namespace":"team"}}}\n')
        server.apply("pods", thing("c", 3))
        assert following.until(a=1, b=2, c=3).resyncs == 1


def test_half_a_line_at_the_end_of_a_stream_is_not_taken(server):
    """A stream that breaks in the middle of an event goes on before that event, which then comes whole, once."""
    with Following(server) as following:
        following.until(a=1, b=2)
        event = orjson.dumps({"type": "ADDED", "object": thing("c", 3)})
        with server.store.changed:
            server.inject("pods", event[: len(event) // 2])
            server.cut("pods")
        server.apply("pods", thing("c", 3))
        health = following.until(a=1, b=2, c=3)
    assert (health.objects, health.resyncs, health.bad) == (3, 1, 0)


def test_a_line_in_pieces_is_one_event(server):
    """Chunks end where they like."""
    with Following(server) as following:
        following.until(a=1, b=2)
        event = orjson.dumps({"type": "ADDED", "object": thing("c", 3, resourceVersion=str(server.store.version))})
        for number in range(0, len(event), 7):
            server.inject("pods", event[number : number + 7])
            time.sleep(0.01)
        server.inject("pods", b"\n")
        assert following.until(a=1, b=2, c=3).resyncs == 1


def test_a_stream_that_is_no_stream_is_invalid(server):
    """HTML or any other text in place of events makes the source invalid; it is up again when that ends."""
    with Following(server) as following:
        following.until(a=1, b=2)
        for fault in ("html", "garbage"):
            server.faults = [(PODS, fault)]
            server.end("pods")
            following.until_reason("invalid")
            assert following.look() == {"a": 1, "b": 2}
            server.faults = []
            until(lambda: following.health().reason == "ok")


def test_a_body_without_end_is_given_up(server, monkeypatch):
    """An answer that is neither a stream nor a list is not read into memory for ever."""
    monkeypatch.setattr(module, "MAX_BODY", 100_000, raising=False)

    def endless():
        while True:
            yield b"x" * 50_000

    class Endless(ApiServer):
        def answer(self, path, query, headers):
            return Answer(200, stream=endless()) if path == PODS else super().answer(path, query, headers)

    with Endless() as other, Following(other) as following:
        following.until_reason("invalid")


def test_a_line_without_end_is_given_up(server, monkeypatch):
    """A line that never ends is not kept for ever."""
    monkeypatch.setattr(module, "MAX_BODY", 100_000, raising=False)
    with Following(server) as following:
        following.until(a=1, b=2)
        for _ in range(10):
            server.inject("pods", b"x" * 50_000)
            time.sleep(0.01)
        until(lambda: following.look() and len(server.log) >= 2, "another stream is asked for")


# --- bad objects -----------------------------------------------------------------------------------------------------


def test_bad_objects_are_counted_named_and_mended(server):
    """One that cannot be read costs itself: its fact goes, its name is kept, and it is back when it is mended."""
    server.apply("pods", thing("b", "two"))
    with Following(server) as following:
        health = following.until(a=1)
        table = following.reflector.table
        assert (health.reason, health.bad, health.objects) == ("ok", 1, 2)
        assert table.unreadable == {("team", "b")}
        server.apply("pods", thing("a", "one"))
        health = following.until()
        assert (health.bad, health.objects) == (2, 2)
        assert table.unreadable == {("team", "a"), ("team", "b")}
        server.apply("pods", thing("b", 22))
        following.until(b=22)
        assert table.unreadable == {("team", "a")}
        server.delete("pods", "a", "team")
        until(lambda: following.look() == {"b": 22} and not table.unreadable)
        assert following.health().objects == 1


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("stray", [{}, {"metadata": {}}, {"metadata": []}, None, 7, [1]], ids=repr)
def test_what_is_no_object_costs_nothing_else(server, streaming, stray):
    """Items without metadata, or that are no mapping, are counted as bad in either form of a list."""
    server.streaming = streaming
    server.strays = {"pods": [stray]}
    with Following(server) as following:
        health = following.until(a=1, b=2)
        server.apply("pods", thing("c", 3))
        following.until(a=1, b=2, c=3)
    assert (health.reason, health.bad, health.objects) == ("ok", 1, 3)


def test_a_bad_object_in_a_watch_is_counted(server):
    """An event whose object has no metadata is a bad object; the stream goes on."""
    with Following(server) as following:
        following.until(a=1, b=2)
        server.inject("pods", b'{"type":"MODIFIED","object":{"spec":{"value":5}}}\n')
        server.apply("pods", thing("c", 3))
        health = following.until(a=1, b=2, c=3)
    assert (health.reason, health.bad, health.resyncs) == ("ok", 1, 1)


def test_a_page_with_broken_items_is_invalid_and_heals(server):
    """Items that are no JSON in a page whose frame is right: the list replaces nothing, and there is a new one."""
    server.streaming = False
    server.bookmark_seconds = 0.1
    page = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[{"metadata":{"na}]}'
    server.faults = [(PODS, Answer(200, page % server.store.version), 2, "list")]
    with Following(server) as following:
        following.until_reason("invalid")
        health = following.until(a=1, b=2)
    assert health.reason == "ok"


# --- the feed --------------------------------------------------------------------------------------------------------


def test_the_feed_is_bounded():
    """A full feed lets nobody put more; one item that is larger than the whole is taken when nothing else is there."""
    feed = Feed(100)
    assert feed.put(Lines(b"x" * 60))
    waiting = threading.Thread(target=feed.put, args=(Lines(b"y" * 60),))
    waiting.start()
    time.sleep(0.05)
    assert waiting.is_alive()
    assert feed.take() == Lines(b"x" * 60)
    waiting.join(PATIENCE)
    assert feed.take() == Lines(b"y" * 60)
    assert feed.take() is None
    assert feed.put(Page(b"z" * 1000, last=True))
    assert feed.take() == Page(b"z" * 1000, last=True)


def test_a_closed_feed_takes_nothing():
    """Whoever waits for room is told, and so is whoever comes later."""
    feed = Feed(10)
    feed.put(Lines(b"x" * 10))
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(feed.put(Lines(b"y"))))
    waiting.start()
    feed.close()
    waiting.join(PATIENCE)
    assert answers == [False]
    assert feed.put(Lines(b"z")) is False
    assert feed.take() is None


def test_a_server_that_is_faster_than_the_runs_fills_no_memory(server, monkeypatch):
    """While nobody takes anything the reader stops at the bound, and all that waited arrives with the next runs."""
    monkeypatch.setattr(Reflector, "FEED", 200_000)
    with Following(server, timing=replace(QUICK, watch=60.0)) as following:
        following.until(a=1, b=2)
        largest = 0
        for value in range(1000):
            # 20 MB in all: more than the sockets hold.
            server.apply("pods", thing("big", value + 1, annotations={"note": "x" * 20_000}))
            largest = max(largest, following.reflector._feed._size)
        until(lambda: following.reflector._feed._size > 100_000)
        time.sleep(0.2)
        largest = max(largest, following.reflector._feed._size)
        assert largest <= 200_000 + 300_000, "the bound, and at most one item of one read"
        health = following.until(a=1, b=2, big=1000)
    assert health.objects == 3


def test_a_list_that_is_larger_than_the_feed_passes_through_it(server, monkeypatch):
    """A list may be any number of times as large as the feed."""
    monkeypatch.setattr(Reflector, "FEED", 10_000)
    monkeypatch.setattr(module, "PAGE", 5)
    for streaming in (True, False):
        server.streaming = streaming
        for number in range(100):
            server.apply("pods", thing(f"p{number}", 1, annotations={"note": "x" * 2_000}))
        with Following(server) as following:
            until(lambda: len(following.look()) == 102)


# --- what is not installed -------------------------------------------------------------------------------------------


@pytest.fixture
def quick_discovery(monkeypatch):
    """Let discovery hold for a moment only."""
    monkeypatch.setattr(api_module, "DISCOVERY_SECONDS", 0.05)
    monkeypatch.setattr(api_module, "RETRY_SECONDS", 0.05)


def test_what_is_installed_later_is_found(server, quick_discovery):
    """A group that is not there is not installed; when it comes it is watched like any other, and may go again."""
    kueue = server.kinds.pop(WORKLOADS)
    with Following(server, WORKLOADS_ROW) as following:
        following.until_reason("not_installed")
        for value in (1, 2):
            server.kinds[WORKLOADS] = kueue
            server.apply(WORKLOADS, thing("w", value))
            health = following.until(w=value)
            assert health.reason == "ok"
            until(lambda: server.watches(WORKLOADS), "it is watched, not listed in each run")
            # As when a CustomResourceDefinition is deleted: its objects go first, then the path.
            del server.kinds[WORKLOADS]
            server.delete(WORKLOADS, "w", "team")
            server.end(WORKLOADS)
            following.until_reason("not_installed")
            assert following.look() == {}


def test_a_version_that_goes_is_left_for_the_next(server, quick_discovery):
    """Where the version that was watched is not served any more, the next one is."""
    kind = server.kinds[WORKLOADS]
    server.kinds[WORKLOADS] = kind._replace(versions=("v1beta1",))
    server.apply(WORKLOADS, thing("w", 1))
    with Following(server, WORKLOADS_ROW) as following:
        following.until(w=1)
        until(lambda: server.watches(WORKLOADS))
        server.kinds[WORKLOADS] = kind._replace(versions=("v1beta2",))
        server.end(WORKLOADS)
        server.apply(WORKLOADS, thing("w", 2))
        following.until(w=2)
        until(lambda: server.watches(WORKLOADS), "it is watched, not listed in each run")
    paths = list(dict.fromkeys(request.path for request in server.requests(KUEUE) if request.kind != "list"))
    assert paths[0] == f"{KUEUE}/v1beta1/workloads"
    assert f"{KUEUE}/v1beta2/workloads" in paths


def test_without_discovery_the_lists_are_tried(server):
    """Where discovery fails, the best version is asked for straight, and a 404 leads to the next one."""
    server.kinds[WORKLOADS] = server.kinds[WORKLOADS]._replace(versions=("v1beta1",))
    server.apply(WORKLOADS, thing("w", 1))
    server.faults = [("/apis?", 500), ("/apis/kueue.x-k8s.io/v1beta2", 404)]
    server.faults = [*server.faults, ("/apis", 500, 1)]
    with Following(server, WORKLOADS_ROW) as following:
        following.until(w=1)
        assert following.health().reason == "ok"


# --- trouble and patience --------------------------------------------------------------------------------------------


def test_the_server_is_not_asked_before_it_wants_to_be(server):
    """A 429 is tried again after the time that the server states."""
    busy = Answer(429, b"", headers=(("Retry-After", "1"),))
    server.faults = [(PODS, busy, 1)]
    with Following(server, timing=replace(QUICK, retry_most=5.0)) as following:
        began = time.monotonic()
        error = following.until_reason("unreachable")
        assert "429" in str(error)
        following.until(a=1, b=2)
        assert time.monotonic() - began >= 0.95
    assert len(server.log) == 2


@pytest.mark.parametrize(("fault", "reason"), [(500, "unreachable"), (403, "forbidden"), ("refuse", "unreachable")])
def test_what_fails_is_tried_ever_slower(server, fault, reason):
    """The delays grow, up to one that is longer for what mends itself seldom."""
    server.faults = [(PODS, fault)]
    timing = replace(QUICK, retry=0.1, retry_most=0.2, refused=2.0)
    with Following(server, timing=timing) as following:
        following.until_reason(reason)
        time.sleep(1.5)
        tries = len(server.log)
    # 0.05 to 0.1, then 0.1 to 0.2 each; or 0.05-0.1, 0.1-0.2, 0.2-0.4, 0.4-0.8, 0.8-1.6.
    least, most = (3, 6) if reason == "forbidden" else (7, 16)
    assert least <= tries <= most


def test_silence_for_too_long_makes_a_source_stale(server):
    """Facts that are too old are dropped, and a new list comes as soon as the server answers, quiet or not."""
    server.bookmark_seconds = 60
    with Following(server, timing=replace(QUICK, watch=30.0, stale=0.5)) as following:
        following.until(a=1, b=2)
        server.faults = [(PODS, "refuse")]
        server.cut()
        until(lambda: not following.reflector.usable)
        until(lambda: following.look() == {} and following.reflector.error)
        server.faults = []
        health = until(lambda: following.look() == {"a": 1, "b": 2} and following.health(), seconds=5)
    assert health.reason == "ok"


def test_watches_that_never_say_anything_make_a_source_stale(server):
    """Where each watch is opened and then silent, as behind a proxy that holds streams back, nothing is in step."""
    server.bookmark_seconds = 0.05
    with Following(server, timing=replace(QUICK, watch=0.3, margin=0.1, stale=1.5)) as following:
        following.until(a=1, b=2)
        server.faults = [(PODS, "mute", None, "watch")]
        server.end("pods")
        server.apply("pods", thing("c", 3))
        until(lambda: following.health().age > 0.8)
        assert following.look() == {"a": 1, "b": 2}
        until(lambda: following.look() == {})
        following.until(a=1, b=2, c=3)


def test_the_age_is_that_of_the_last_sign_of_life(server):
    """A watch that is open and heard of is young; one that cannot be opened ages."""
    server.bookmark_seconds = 0.05
    with Following(server) as following:
        following.until(a=1, b=2)
        time.sleep(0.5)
        assert following.health().age < 0.4
        server.faults = [(PODS, 500)]
        server.cut()
        time.sleep(0.5)
        assert following.health().age > 0.4


# --- all resources together ------------------------------------------------------------------------------------------


@pytest.fixture
def collector():
    """Return a function that makes a collector for a server; it is stopped at the end."""
    made = []

    def make(server):
        rows = wanted_resources(Rules())
        connection = UrlConnection(server.url, {}, timeout=1.0)
        found = Collector(Api(connection, log=LOG), rows, LOG, timing=QUICK)
        made.append((found, connection))
        return found

    yield make
    for found, connection in made:
        found.stop()
        connection.abort()
    until(lambda: not readers(), "the readers end")


@pytest.fixture
def full():
    """Return a server of a cluster with one of everything."""
    with ApiServer() as made:
        made.apply_all(cluster())
        yield made


@pytest.mark.parametrize("streaming", [True, False])
def test_a_steady_state_costs_one_open_watch_a_resource(full, collector, streaming):
    """After the first lists nothing is listed and nothing discovered, and no resource is watched twice."""
    full.streaming = streaming
    collector = collector(full)
    reading = collector.collect()
    assert {one.source: one.objects for one in reading.health} == OBJECTS
    # The run has to answer the readers whose first stream ended.
    until(
        lambda: (
            collector.collect() and all(full.requests(kind.path(kind.versions[0]), "watch") for kind in KINDS.values())
        )
    )
    before = len(full.log)
    began = time.monotonic()
    while time.monotonic() < began + 3.0:
        full.apply("pods", new("one-more", gpus=1, metadata={"annotations": {"at": str(time.monotonic())}}))
        assert all(full.watches(name) <= 1 for name in KINDS)
        time.sleep(0.1)
        assert {one.reason for one in collector.collect().health} == {"ok"}
    asked = [request.kind for request in full.log[before:]]
    assert set(asked) == {"watch"}
    assert len(asked) <= len(KINDS) * 5, "about one a second a resource: that is how long a watch lasts here"


def test_a_change_is_in_the_next_run(full, collector):
    """What was written before a run, by the time that a network takes, is in it."""
    collector = collector(full)
    collector.collect()
    for number in range(10):
        full.apply("pods", new(f"new-{number}", gpus=1))
        time.sleep(0.1)
        assert [pod.name for _, pod in collector.collect().changes.pods] == [f"new-{number}"]


def test_a_new_list_does_not_take_many_runs(full, collector, monkeypatch):
    """A list that is larger than the feed is taken while it flows: at one feed a run its tokens would expire."""
    monkeypatch.setattr(Reflector, "FEED", 10_000)
    monkeypatch.setattr(module, "PAGE", 5)
    full.streaming = False
    for number in range(200):
        full.apply("pods", new(f"p{number}", metadata={"annotations": {"note": "x" * 2_000}}))
    collector = collector(full)
    assert len(collector.collect().changes.pods) == 206
    full.delete("pods", "p0", TEAM)
    until(lambda: len(collector.collect().changes.pods) == 1)
    full.faults = [(PODS, 410, 1, "watch")]
    with full.store.changed:
        full.cut("pods")
        full.delete("pods", "p1", TEAM)
    runs = 1
    while not collector.collect().changes.pods:
        runs += 1
        assert runs < 10, "the list is still not there"
        time.sleep(0.2)
    assert runs <= 3
