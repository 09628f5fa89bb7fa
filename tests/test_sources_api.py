# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Lists over real HTTP: which version is read, how pages are put together, and what becomes of what is wrong."""

import json
import logging
import tarfile
from dataclasses import replace
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datadog_checks.kueue_gang.facts import BadObjectError
from datadog_checks.kueue_gang.sources import api as module
from datadog_checks.kueue_gang.sources.api import Api, storage_hash
from datadog_checks.kueue_gang.sources.connection import UrlConnection
from datadog_checks.kueue_gang.sources.errors import SourceError
from datadog_checks.kueue_gang.sources.pages import list_items, list_metadata
from datadog_checks.kueue_gang.sources.resources import API_SOURCES, Resource, resources
from lab.replay import CAPTURES, Answer, Recording, ReplayServer

KUEUE = "/apis/kueue.x-k8s.io"
PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
WORKLOADS = "workloads.kueue.x-k8s.io"


class ExactFault(ReplayServer):
    """A server with one fault at one path, and none below it."""

    def __init__(self, recording, path, fault):
        """Make the server."""
        super().__init__(recording)
        self._wrong = {path: fault}

    def fault(self, target):
        """Return the fault of exactly this path."""
        return self._wrong.get(target)


@pytest.fixture(scope="module")
def recording():
    """Return a cluster with pods, jobs and Workloads."""
    return Recording.open(CAPTURES / "20-ran-then-evicted.tar.xz", "t2")


def _name(obj):
    return obj["metadata"]["name"]


TABLE = {resource.api_source: resource for resource in resources(dict.fromkeys(API_SOURCES, _name))}


class Clock:
    """A clock that is moved by hand, and a sleep that moves it."""

    def __init__(self):
        """Begin at zero."""
        self.now = 0.0
        self.slept = []

    def __call__(self):
        """Return the time."""
        return self.now

    def sleep(self, seconds):
        """Remember how long."""
        self.slept.append(seconds)


def _api(server, clock=None, timeout=2.0):
    clock = clock or Clock()
    return Api(
        UrlConnection(server.url, {}, timeout=timeout),
        log=logging.getLogger("test"),
        monotonic=clock,
        sleep=clock.sleep,
    )


def _page(items, token="", **fields):
    return Answer(
        200, json.dumps({"kind": "PodList", "metadata": {"continue": token}, "items": items, **fields}).encode()
    )


def _pod(name, namespace="ns"):
    return {"metadata": {"name": name, "namespace": namespace}}


def test_the_table_of_resources():
    """Each row has one path a version, and the reducer that was given for its name."""
    assert {name: resource.path(resource.versions[0]) for name, resource in TABLE.items()} == {
        "pods": "/api/v1/pods",
        "nodes": "/api/v1/nodes",
        "jobs": "/apis/batch/v1/jobs",
        "podgroups.scheduling.x-k8s.io": "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
        "podgroups.scheduling.k8s.io": "/apis/scheduling.k8s.io/v1alpha2/podgroups",
        "workloads.kueue.x-k8s.io": f"{KUEUE}/v1beta2/workloads",
        "clusterqueues": f"{KUEUE}/v1beta2/clusterqueues",
        "localqueues": f"{KUEUE}/v1beta2/localqueues",
        "cohorts": f"{KUEUE}/v1beta2/cohorts",
        "resourceflavors": f"{KUEUE}/v1beta2/resourceflavors",
        "admissionchecks": f"{KUEUE}/v1beta2/admissionchecks",
        "topologies": f"{KUEUE}/v1beta2/topologies",
        "events": "/apis/events.k8s.io/v1/events",
        "trainjobs": "/apis/trainer.kubeflow.org/v1alpha1/trainjobs",
    }
    assert TABLE["cohorts"].versions == TABLE["topologies"].versions == ("v1beta2", "v1beta1", "v1alpha1")
    assert TABLE["jobs"].query == {"labelSelector": "kueue.x-k8s.io/queue-name"}
    assert TABLE["events"].query == {"fieldSelector": "reason=FailedScheduling"}
    assert [resource.needed_by for resource in TABLE.values()] == [
        None, None, "kueue", "coscheduling", "kubernetes", *["kueue"] * 7, "coscheduling", "training",
    ]  # fmt: skip


def test_a_reducer_is_needed_for_each_row():
    """A table with a hole is no table."""
    with pytest.raises(KeyError, match="jobs"):
        resources(dict.fromkeys(set(API_SOURCES) - {"jobs"}, _name))


def test_all_lists_of_a_cluster(recording):
    """Every list of a recorded cluster is read whole; what is not there is not installed."""
    with ReplayServer(recording) as server:
        api = _api(server)
        found = {}
        for name, resource in TABLE.items():
            try:
                found[name] = api.list(resource)
            except SourceError as error:
                found[name] = error.reason
    assert found.pop("podgroups.scheduling.k8s.io") == found.pop("trainjobs") == "not_installed"
    for name, listing in found.items():
        files = {
            "workloads.kueue.x-k8s.io": "workloads.kueue.x-k8s.io.v1beta2",
            "jobs": "jobs.batch",
            "events": "events.events.k8s.io",
        }
        items = json.loads(recording.lists[files.get(name, name)])["items"]
        if name == "jobs":
            items = [job for job in items if "kueue.x-k8s.io/queue-name" in job["metadata"].get("labels", {})]
        assert listing.facts == [_name(item) for item in items], name
        assert (listing.objects, listing.bad, listing.bad_names) == (len(items), 0, set())
        assert listing.read_at == pytest.approx(int(recording.now.timestamp()), abs=1)


def test_discovery_is_one_request_and_remembered(recording):
    """One request tells all groups, for five minutes; the core group needs none."""
    clock = Clock()
    with ReplayServer(recording) as server:
        api = _api(server, clock)
        api.list(TABLE["pods"])
        assert not server.requests("/apis")
        for _ in range(3):
            api.list(TABLE["jobs"])
            api.list(TABLE["podgroups.scheduling.x-k8s.io"])
        assert [request.path for request in server.requests("/apis")].count("/apis") == 1
        clock.now = 299.0
        api.list(TABLE["jobs"])
        assert [request.path for request in server.requests("/apis")].count("/apis") == 1
        clock.now = 300.0
        api.list(TABLE["jobs"])
        assert [request.path for request in server.requests("/apis")].count("/apis") == 2


def _v2beta1(server):
    body = json.loads(
        server.answer(
            "/apis", {}, {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
        ).body
    )
    return Answer(200, json.dumps({**body, "apiVersion": "apidiscovery.k8s.io/v2beta1"}).encode())


def _plain(server):
    return server.answer("/apis", {}, {"Accept": "application/json"})


@pytest.mark.parametrize("form", [None, _v2beta1, _plain])
def test_discovery_in_every_form(recording, form):
    """Servers before 1.30 and before 1.26 answer in older forms; the versions come out the same."""
    with ReplayServer(recording) as server:
        if form:
            server.faults = [("/apis?", form(server)), ("/apis", form(server), 1)]
        api = _api(server)
        groups = api.groups()
        assert list(groups["kueue.x-k8s.io"]) == ["v1beta2", "v1beta1"]
        assert "scheduling.x-k8s.io" in groups
        server.faults = []
        assert api.list(TABLE[WORKLOADS]).objects == 2
        with pytest.raises(SourceError) as caught:
            api.list(TABLE["podgroups.scheduling.k8s.io"])
    assert caught.value.reason == "not_installed"


@pytest.mark.parametrize(
    "fault", [403, 404, 500, "html", "empty", "garbage", "refuse", Answer(200, b'{"kind": "Pod"}')]
)
def test_discovery_that_fails_stands_in_nobodys_way(recording, fault):
    """Where the server does not tell its groups, the list is tried straight, the best version first."""
    clock = Clock()
    with ExactFault(recording, "/apis", fault) as server:
        api = _api(server, clock)
        assert api.groups() is None
        assert api.list(TABLE[WORKLOADS]).objects == 2
        assert server.log[-1].path == f"{KUEUE}/v1beta2/workloads"
        with pytest.raises(SourceError) as caught:
            api.list(TABLE["podgroups.scheduling.k8s.io"])
        assert caught.value.reason == "not_installed"
        before = len([request for request in server.log if request.path == "/apis"])
        clock.now = 59.0
        api.groups()
        assert len([request for request in server.log if request.path == "/apis"]) == before
        clock.now = 60.0
        api.groups()
        assert len([request for request in server.log if request.path == "/apis"]) == before + 1


def test_a_group_that_is_missing_is_not_asked(recording):
    """Discovery says that Kueue is not installed; no list is sent."""
    with ReplayServer(recording, hidden=["kueue.x-k8s.io"]) as server:
        with pytest.raises(SourceError) as caught:
            _api(server).list(TABLE["clusterqueues"])
        assert caught.value.reason == "not_installed"
        assert "no clusterqueues in group kueue.x-k8s.io" in str(caught.value)
        assert [request.path for request in server.log] == ["/apis"]


def _lists(server):
    return [
        request.path.removeprefix(f"{KUEUE}/") for request in server.requests(KUEUE) if request.path.count("/") == 4
    ]


def test_the_only_version_is_read(recording):
    """Kueue before 0.15 serves v1beta1 only; nothing needs to be known about what is stored."""
    with ReplayServer(recording, hidden=["kueue.x-k8s.io/v1beta2"]) as server:
        assert _api(server).list(TABLE[WORKLOADS]).objects == 2
        assert [request.path for request in server.log] == ["/apis", f"{KUEUE}/v1beta1/workloads"]


@pytest.mark.parametrize("stored", ["v1beta1", "v1beta2"])
def test_the_stored_version_is_read(recording, stored):
    """Of two versions the stored one is read, since the other one needs Kueue's own conversion webhook."""
    with ReplayServer(recording, stored={"kueue.x-k8s.io": stored}) as server:
        api = _api(server)
        api.list(TABLE[WORKLOADS])
        api.list(TABLE[WORKLOADS])
        assert _lists(server) == [f"{stored}/workloads"] * 2
        assert len(server.requests(f"{KUEUE}/v1beta2")) == 1 + 2 * (stored == "v1beta2")


@pytest.mark.parametrize(
    "answer", [403, 404, "html", "garbage", Answer(200, b"[]"), Answer(200, b'{"resources": [{"name": "workloads"}]}')]
)
def test_without_hashes_the_best_version_is_read(recording, answer):
    """A server that does not tell what is stored is read in the best version, and not asked again each time."""
    clock = Clock()
    with ExactFault(recording, f"{KUEUE}/v1beta2", answer) as server:
        api = _api(server, clock)
        api.list(TABLE[WORKLOADS])
        api.list(TABLE[WORKLOADS])
        assert _lists(server) == ["v1beta2/workloads"] * 2
        assert len([request for request in server.log if request.path == f"{KUEUE}/v1beta2"]) == 1
        clock.now = 60.0
        api.list(TABLE[WORKLOADS])
        assert len([request for request in server.log if request.path == f"{KUEUE}/v1beta2"]) == 2


def test_hashes_of_a_real_api_server():
    """The hashes that Kubernetes gives for Pods and Nodes since 1.15."""
    assert storage_hash("", "v1", "Pod") == "xPOwRZ+Yhw8="
    assert storage_hash("", "v1", "Node") == "XwShjMxG9Fs="


def test_a_404_tries_the_next_version(recording):
    """A version that went away since discovery costs one 404."""
    with ReplayServer(recording, [(f"{KUEUE}/v1beta2/workloads", 404)]) as server:
        assert _api(server).list(TABLE[WORKLOADS]).objects == 2
        assert _lists(server) == ["v1beta2/workloads", "v1beta1/workloads"]


def test_404_on_every_version(recording):
    """Nothing left to try: not installed."""
    faults = [(f"{KUEUE}/v1beta2/w", 404), (f"{KUEUE}/v1beta1/w", 404)]
    with ReplayServer(recording, faults) as server, pytest.raises(SourceError) as caught:
        _api(server).list(TABLE[WORKLOADS])
    assert caught.value.reason == "not_installed"


def test_another_error_tries_no_other_version(recording):
    """A 403 or 500 says nothing about versions."""
    with ReplayServer(recording, [(f"{KUEUE}/v1beta2/workloads", 403)]) as server:
        with pytest.raises(SourceError) as caught:
            _api(server).list(TABLE[WORKLOADS])
        assert _lists(server) == ["v1beta2/workloads"]
    assert caught.value.reason == "forbidden"


def test_a_server_without_pods_is_no_kubernetes(recording):
    """The core group is not something to install."""
    with ReplayServer(recording, [(PODS, 404)]) as server, pytest.raises(SourceError) as caught:
        _api(server).list(TABLE["pods"])
    assert caught.value.reason == "invalid"
    assert "is this the Kubernetes API?" in str(caught.value)


def test_versions_that_nobody_understands(recording):
    """A resource that is served in unknown versions only is not absent: a newer check is needed."""
    resource = replace(TABLE[WORKLOADS], versions=("v1",))
    with ReplayServer(recording) as server, pytest.raises(SourceError) as caught:
        _api(server).list(resource)
    assert caught.value.reason == "invalid"
    assert "only as v1beta2, v1beta1" in str(caught.value)


def test_a_group_without_the_resource(recording):
    """scheduling.k8s.io always exists; without its pod groups native gangs are not installed."""
    with ReplayServer(recording) as server, pytest.raises(SourceError) as caught:
        _api(server).list(TABLE["podgroups.scheduling.k8s.io"])
    assert caught.value.reason == "not_installed"


@pytest.mark.parametrize("size", [1, 3, 8, 9])
def test_pages_are_put_together(recording, monkeypatch, size):
    """However a list is cut, all of it comes out, in order; the selector goes with each page."""
    monkeypatch.setattr(module, "PAGE", size)
    whole = [_name(pod) for pod in json.loads(recording.lists["pods"])["items"]]
    resource = replace(TABLE["pods"], query={"labelSelector": ""})
    with ReplayServer(recording) as server:
        listing = _api(server).list(resource)
        requests = server.requests(PODS)
    assert listing.facts == whole
    assert len(requests) == -(-len(whole) // size)
    assert {request.query["limit"] for request in requests} == {str(size)}
    assert ["continue" in request.query for request in requests] == [False] + [True] * (len(requests) - 1)


def test_pages_of_500(recording):
    """The page size of the API server's own clients."""
    with ReplayServer(recording) as server:
        _api(server).list(TABLE["pods"])
        assert server.requests(PODS)[0].query == {"limit": "500"}


def _continued(token):
    return f"{PODS}?{urlencode({'limit': 500, 'continue': token})}"


def test_an_expired_page_begins_the_list_anew(recording):
    """410 on a continue token: the list is read again from its beginning, and nothing is counted twice."""
    faults = [
        (_continued("b"), 410, 1),
        (_continued("b"), _page([_pod("two")])),
        (PODS, _page([_pod("one"), {"no": "name"}], "b")),
    ]
    with ReplayServer(recording, faults) as server:
        listing = _api(server).list(TABLE["pods"])
        assert [request.status for request in server.log] == [200, 410, 200, 200]
    assert (listing.facts, listing.objects, listing.bad) == (["one", "two"], 3, 1)


def test_a_list_that_expires_again_and_again(recording):
    """The list is begun anew once, then it is an error; it gives nothing."""
    faults = [(_continued("b"), 410), (PODS, _page([_pod("one")], "b"))]
    with ReplayServer(recording, faults) as server:
        with pytest.raises(SourceError) as caught:
            _api(server).list(TABLE["pods"])
        assert [request.status for request in server.log] == [200, 410, 200, 410]
    assert caught.value.reason == "unreachable"


def _busy(status, seconds):
    return Answer(status, b"", headers=(("Retry-After", str(seconds)),))


@pytest.mark.parametrize("status", [429, 503])
def test_the_server_asks_to_wait(recording, status):
    """One wait of the length that the server asks for, then the list goes on."""
    clock = Clock()
    with ReplayServer(recording, [(PODS, _busy(status, 1), 1)]) as server:
        assert _api(server, clock).list(TABLE["pods"]).objects > 0
        assert [request.status for request in server.log] == [status, 200]
    assert clock.slept == [1.0]


def test_one_wait_a_list(recording):
    """A server that stays busy is left alone after one wait, wherever in the list that was."""
    clock = Clock()
    faults = [(_continued("b"), _busy(429, 1)), (PODS, _busy(429, 1), 1), (PODS, _page([_pod("one")], "b"))]
    with ReplayServer(recording, faults) as server, pytest.raises(SourceError) as caught:
        _api(server, clock).list(TABLE["pods"])
    assert caught.value.reason == "unreachable"
    assert clock.slept == [1.0]


@pytest.mark.parametrize("fault", [429, 503, _busy(429, 2), _busy(503, 60), _busy(500, 1)])
def test_no_wait_that_would_cost_the_run(recording, fault):
    """Without a time, or with one beyond half of the timeout (2 s here), the next run is early enough."""
    clock = Clock()
    with ReplayServer(recording, [(PODS, fault)]) as server, pytest.raises(SourceError):
        _api(server, clock).list(TABLE["pods"])
    assert clock.slept == []
    assert len(server.log) == 1


@pytest.mark.parametrize(
    ("fault", "reason", "words"),
    [
        ("html", "invalid", "an HTML page"),
        ("empty", "invalid", "empty answer"),
        ("garbage", "invalid", "no list"),
        ("cut", "unreachable", "the connection broke"),
        (Answer(200, b"[1, 2]"), "invalid", "no JSON object with a list of items"),
        (Answer(200, b"{}"), "invalid", "no JSON object with a list of items"),
        (Answer(200, b'{"items": null}'), "invalid", "no JSON object with a list of items"),
        (Answer(200, b'{"items": {"a": 1}}'), "invalid", "no JSON object with a list of items"),
        (Answer(200, b"\xff\xfe"), "invalid", "no list"),
        (_page([_pod("one")], "again"), "invalid", "the same page for ever"),
    ],
)
def test_answers_that_are_no_list(recording, fault, reason, words):
    """What is not a list raises, names what came instead, and gives nothing."""
    with ReplayServer(recording, [(PODS, fault)]) as server, pytest.raises(SourceError) as caught:
        _api(server).list(TABLE["pods"])
    assert caught.value.reason == reason
    assert words in str(caught.value)


def test_a_list_that_breaks_on_a_later_page(recording):
    """Half a list is no list."""
    faults = [(_continued("b"), "cut"), (PODS, _page([_pod("one")], "b"))]
    with ReplayServer(recording, faults) as server, pytest.raises(SourceError):
        _api(server).list(TABLE["pods"])


BAD = {
    "bad-object": BadObjectError("spec.x is str, not a mapping"),
    "key": KeyError("spec"),
    "index": IndexError("list index out of range"),
    "type": TypeError("unsupported"),
    "value": ValueError("1x"),
    "attribute": AttributeError("no get"),
    "overflow": OverflowError("too large"),
    "recursion": RecursionError("too deep"),
}


def _fussy(obj):
    name = _name(obj)
    if not isinstance(name, str):
        raise TypeError(name)
    if name in BAD:
        raise BAD[name]
    return None if name == "unwanted" else name


def test_bad_objects_cost_only_themselves(recording, caplog):
    """What a reducer cannot read is counted and named; what it does not want is only seen."""
    caplog.set_level(logging.DEBUG, "test")
    items = [*map(_pod, BAD), _pod("good"), _pod("unwanted"), _pod("cluster-wide", None)]
    with ReplayServer(recording, [(PODS, _page(items))]) as server:
        listing = _api(server).list(replace(TABLE["pods"], reduce=_fussy))
    assert listing.facts == ["good", "cluster-wide"]
    assert (listing.objects, listing.bad) == (len(items), len(BAD))
    assert listing.bad_names == {("ns", name) for name in BAD}
    for name in BAD:
        assert f"'{name}'" in caplog.text


@pytest.mark.parametrize(
    ("item", "names"),
    [
        (None, set()),
        ("pod", set()),
        ([1], set()),
        (7, set()),
        ({}, set()),
        ({"metadata": None}, set()),
        ({"metadata": []}, set()),
        ({"metadata": {"name": 5}}, set()),
        ({"metadata": {"name": "key", "namespace": 5}}, set()),
        ({"metadata": {"name": "key"}}, {("", "key")}),
        ({"metadata": {"name": "key", "namespace": None}}, {("", "key")}),
        ({"metadata": {"name": "key", "namespace": "a"}}, {("a", "key")}),
    ],
)
def test_items_that_are_no_objects(recording, item, names):
    """Whatever stands in a list in place of an object counts as one bad object, named where it can be."""
    with ReplayServer(recording, [(PODS, _page([item, _pod("good")]))]) as server:
        listing = _api(server).list(replace(TABLE["pods"], reduce=_fussy))
    assert (listing.facts, listing.objects, listing.bad, listing.bad_names) == (["good"], 2, 1, names)


def test_a_fault_of_our_own_is_not_hidden(recording):
    """Only what foreign data can cause is caught."""

    def broken(_):
        raise AssertionError

    with ReplayServer(recording) as server, pytest.raises(AssertionError):
        _api(server).list(replace(TABLE["pods"], reduce=broken))


def test_bad_objects_are_named_20_times_at_most(recording, caplog):
    """A list full of bad objects does not fill the log."""
    caplog.set_level(logging.DEBUG, "test")
    with ReplayServer(recording, [(PODS, _page([{}] * 50))]) as server:
        assert _api(server).list(TABLE["pods"]).bad == 50
    lines = [
        record.getMessage()
        for record in caplog.records
        if record.name == "test" and "bad object" in record.getMessage()
    ]
    assert len(lines) == 21
    assert "30 more" in lines[-1]


@pytest.mark.parametrize("path", [PODS, NODES])
def test_one_source_down_leaves_the_other(recording, path):
    """Each list stands alone."""
    other = {PODS: "nodes", NODES: "pods"}[path]
    with ReplayServer(recording, [(path, "refuse")]) as server:
        assert _api(server).list(TABLE[other]).objects > 0


def test_recovery_needs_no_restart(recording):
    """The run after a failure reads as if nothing had been."""
    with ReplayServer(recording, [("/", "refuse")]) as server:
        api = _api(server)
        with pytest.raises(SourceError):
            api.list(TABLE[WORKLOADS])
        server.faults = []
        assert api.list(TABLE[WORKLOADS]).objects == 2


def test_recorded_page_of_a_real_api_server():
    """The first page of a real list, with its token (sent in chunks, as API servers do)."""
    with tarfile.open(CAPTURES / "watch.tar.xz") as tar:
        recorded = tar.extractfile("errors/200-list-limit2-with-continue.http")
        assert recorded
        raw = recorded.read()
    rest = raw.partition(b"\r\n\r\n")[2]
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        if not (length := int(size, 16)):
            break
        body, rest = body + rest[:length], rest[length + 2 :]
    assert len(list(list_items(body))) == 2
    assert list_metadata(body)["continue"].startswith("eyJ2Ijoi")


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["metadata", "name", "namespace", "items", "continue"]), inner, max_size=4)
    ),
    max_leaves=12,
)


class _Fixed(UrlConnection):
    """A connection that has one answer."""

    def __init__(self, body):
        """Make the connection."""
        super().__init__("http://127.0.0.1:1", {}, timeout=1)
        self._bodies = [body]

    def read(self, path, query=(), *, accept="", most=None):
        """Return the answer once, then fail."""
        return self._bodies.pop() if self._bodies else self.open("/nothing").data


@given(JSON_VALUES)
def test_any_json_is_a_listing_or_an_error(value):
    """No JSON of a server can make a list fail in another way than with a SourceError."""
    api = Api(_Fixed(json.dumps(value).encode()), log=logging.getLogger("test"))
    try:
        listing = api.list(TABLE["pods"])
    except SourceError:
        return
    assert listing.objects == len(listing.facts) + listing.bad


def test_a_resource_is_a_row():
    """A kind of object that is added later needs a row and a reducer."""
    added = Resource("admissionchecks", "kueue.x-k8s.io", "admissionchecks", ("v1beta2",), _name)
    with ReplayServer(Recording.open(CAPTURES / "19-finished.tar.xz")) as server:
        assert _api(server).list(added).objects > 0


def test_404_of_what_was_here(recording):
    """What was read before and is in discovery still is not uninstalled: the 404 comes from somewhere else."""
    with ReplayServer(recording) as server:
        api = _api(server)
        api.list(TABLE[WORKLOADS])
        server.faults = [(f"{KUEUE}/v1beta2/w", 404), (f"{KUEUE}/v1beta1/w", 404)]
        with pytest.raises(SourceError) as caught:
            api.list(TABLE[WORKLOADS])
    assert caught.value.reason == "invalid"
