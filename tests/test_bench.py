# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The benchmark's cluster is like a real one, and its server like a real server: else its figures say nothing."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations, islice
from typing import Any

import orjson
import pytest
import urllib3
from datadog_checks.base.checks import base

from bench import pending, subject
from bench.baselines import scan_pages, scan_stream, selector, split
from bench.generate import KINDS, SIZES, Cluster
from bench.measure import Steady
from bench.objects import GPU, Json
from bench.run import Reading, Results, rows, table
from bench.server import ClusterServer, Control, event, framed, served
from lab.recording import CAPTURES, Recording, moments, unpacked

SIZE = SIZES["XS"]
#: Plural -> name of the recorded lists.
RECORDED = {
    "jobs": "jobs.batch",
    "podgroups": "podgroups.scheduling.x-k8s.io",
    "workloads": "workloads.kueue.x-k8s.io.v1beta2",
}
#: Maps whose keys are names, not fields.
NAMES = frozenset(
    {"labels", "annotations", "limits", "requests", "capacity", "allocatable", "matchLabels", "nodeSelector"}
    | {"nodeLabels", "flavors", "resourceUsage", "fieldsV1"}
)  # fmt: skip
#: Fields that every real pod and node has and the recorded ones have not, since no kubelet ran and no image was pulled.
BEYOND = {
    "pods": (
        r"\.spec\.(initC|c)ontainers\.env\.value", r"\.spec\.volumes\.(emptyDir|persistentVolumeClaim)(\.\w+)?",
        r"\.status\.hostIPs(\.ip)?", r"\.status\.(initC|c)ontainerStatuses\.(containerID|volumeMounts(\.\w+)?)",
        r"\.status\.(initC|c)ontainerStatuses\.resources(\.\w+)?",
    ),
    "nodes": (r"\.spec\.(podCIDRs?|providerID)", r"\.status\.images(\.\w+)?"),
    "jobs": (
        r"\.metadata\.annotations", r"\.spec\.template\.spec\.(volumes|(initC|c)ontainers\.(env|volumeMounts))(\.\w+)*",
    ),
    "workloads": (
        r"\.spec\.podSets\.template\.spec\.(volumes|(initC|c)ontainers\.(env|volumeMounts)|initContainers)(\.\w+)*",
        # A choice of the object: podCounts is either universal or individual.
        r"\.status\.admission\.podSetAssignments\.topologyAssignment\.slices\.podCounts\.individual",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster():
    """Return a cluster that no test changes."""
    return Cluster(SIZE)


@pytest.fixture
def server():
    """Return a server with a cluster of its own."""
    with ClusterServer(Cluster(SIZE)) as server:
        yield server


def decoded(cluster: Cluster, plural: str) -> list[Json]:
    """Return the objects of a kind."""
    return [orjson.loads(obj) for obj in cluster.objects[plural]]


def fields(value: object, path: str = "") -> Iterator[str]:
    """Yield the paths of all fields, those of list items without a number."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"{path}.{key}"
            if key not in NAMES:
                yield from fields(item, f"{path}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from fields(item, path)


@cache
def recorded(plural: str) -> frozenset[str]:
    """Return the fields of all recorded objects of a kind."""
    name = RECORDED.get(plural, plural)
    return frozenset(
        field
        for archive in CAPTURES.glob("[0-9]*.tar.xz")
        for moment in moments(archive)
        for field in fields(Recording.open(archive, moment).decoded.get(name, {}).get("items", []))
    )


# --- the objects -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plural", [plural for plural in KINDS if plural not in {"cohorts", "admissionchecks"}])
def test_objects_have_the_fields_of_recorded_ones(cluster: Cluster, plural: str) -> None:
    """No field is invented."""
    found = set(fields(decoded(cluster, plural)))
    unknown = {
        f for f in found - recorded(plural) if not any(re.fullmatch(known, f) for known in BEYOND.get(plural, ()))
    }
    assert not unknown


@pytest.mark.parametrize("plural", KINDS)
def test_objects_are_encoded_as_the_server_does(cluster: Cluster, plural: str) -> None:
    """Compact, with custom resources sorted by key, and kind and apiVersion in those only."""
    for obj in cluster.objects[plural]:
        one = orjson.loads(obj)
        assert orjson.dumps(one, option=orjson.OPT_SORT_KEYS if KINDS[plural].custom else 0) == obj
        named = ["apiVersion", "kind"] if KINDS[plural].custom else []
        assert list(one)[: len(named) + 1] == [*named, "metadata"]
        assert "@" not in str(one["metadata"]["name"])


def test_key_order_is_that_of_recorded_pods(cluster: Cluster) -> None:
    """Of no two keys of metadata, spec, status or container the recorded pods have the second first."""

    def orders(pods: list[Json]) -> set[tuple[str, ...]]:
        parts = [(part, pod[part]) for pod in pods for part in ("metadata", "spec", "status")]
        parts += [("container", container) for pod in pods for container in pod["spec"]["containers"]]
        return {(name, *pair) for name, part in parts for pair in combinations(part, 2)}

    known = orders(Recording.open(CAPTURES / "15-crashloop.tar.xz", "t2").decoded["pods"]["items"])
    assert not {(part, second, first) for part, first, second in orders(decoded(cluster, "pods"))} & known


@pytest.mark.parametrize(
    ("plural", "least", "mean", "most"),
    [("pods", 6, (8, 10), 11), ("nodes", 10, (10, 15), 15), ("workloads", 6, (7, 11), 11), ("jobs", 6, (6, 8), 8)],
)
def test_objects_are_as_large_as_real_ones(
    cluster: Cluster, plural: str, least: int, mean: tuple[int, int], most: int
) -> None:
    """Sizes in KB."""
    sizes = [len(obj) / 1024 for obj in cluster.objects[plural]]
    assert least <= min(sizes)
    assert max(sizes) <= most
    assert mean[0] <= sum(sizes) / len(sizes) <= mean[1]


def test_names_versions_and_order(cluster: Cluster) -> None:
    """Keys and uids are unique, versions are, and lists are sorted as etcd sorts them."""
    seen = []
    for plural in KINDS:
        keys = [(o["metadata"].get("namespace", ""), o["metadata"]["name"]) for o in decoded(cluster, plural)]
        assert keys == sorted(set(keys), key=lambda key: f"{key[0]}/{key[1]}")
        seen += decoded(cluster, plural)
    assert len({o["metadata"]["resourceVersion"] for o in seen}) == len(seen)
    assert len({o["metadata"]["uid"] for o in seen}) == len(seen)
    assert max(int(o["metadata"]["resourceVersion"]) for o in seen) == cluster.version


def test_a_seed_makes_one_cluster(cluster: Cluster) -> None:
    """The same seed the same bytes, another seed others."""
    assert Cluster(SIZE).objects == cluster.objects
    assert Cluster(SIZE, seed=2).objects != cluster.objects


# --- the cluster -----------------------------------------------------------------------------------------------------


def gpus(pod: Json) -> int:
    """Return the GPUs that a pod asks for."""
    return int(pod["spec"]["containers"][0]["resources"].get("limits", {}).get(GPU, 0))


def test_counts(cluster: Cluster) -> None:
    """60 % of the pods in gangs, a quarter of the others with GPUs; most gangs run."""
    pods = decoded(cluster, "pods")
    members = [pod for pod in pods if pod["metadata"]["ownerReferences"][0]["kind"] == "Job"]
    others = [pod for pod in pods if pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet"]
    assert len(pods) == SIZE.pods
    assert len(members) == 0.6 * SIZE.pods
    assert sum(map(bool, map(gpus, others))) == len(others) / 4
    assert cluster.truth.kept == len(members) + len(others) / 4
    assert len(cluster.objects["nodes"]) == SIZE.nodes
    assert len(cluster.objects["podgroups"]) == SIZE.gangs / 2
    assert len(cluster.objects["jobs"]) == cluster.truth.states.total() == SIZE.gangs
    assert cluster.truth.states == {"running": 16, "partial": 2, "waiting": 1, "queued": 1}
    assert Counter("Finished" in str(w["status"]) for w in decoded(cluster, "workloads")) == {True: 10, False: 10}


def test_larger_clusters_have_the_same_shares() -> None:
    """Each size is a whole number of blocks."""
    for size in SIZES.values():
        times = size.pods / SIZE.pods
        assert (size.nodes, size.gangs) == (times * SIZE.nodes, times * SIZE.gangs)
    truth = Cluster(SIZES["S"]).truth
    assert truth.allocated == 5 * Cluster(SIZE).truth.allocated


def test_gpus_are_never_overcommitted(cluster: Cluster) -> None:
    """Nor by pods that wait with a node, and nothing is placed on a node that takes no pods."""
    able = {
        node["metadata"]["name"]: int(node["status"]["allocatable"].get(GPU, 0))
        for node in decoded(cluster, "nodes")
        if "unschedulable" not in node["spec"] and node["status"]["conditions"][-1]["status"] == "True"
    }
    used: Counter[str] = Counter()
    for pod in decoded(cluster, "pods"):
        node = pod["spec"].get("nodeName") or pod["status"].get("nominatedNodeName")
        if node and gpus(pod):
            used[node] += gpus(pod)
    assert all(amount <= able[node] for node, amount in used.items())
    assert sum(used.values()) > 0.9 * sum(able.values())


def test_three_levels_of_topology(cluster: Cluster) -> None:
    """Each node has a label of each level, and a rack is in one block."""
    levels = [level["nodeLabel"] for level in decoded(cluster, "topologies")[0]["spec"]["levels"]]
    places = {tuple(node["metadata"]["labels"][level] for level in levels) for node in decoded(cluster, "nodes")}
    assert len(levels) == 3
    assert len(places) == SIZE.nodes
    assert len({place[:2] for place in places}) == len({place[1] for place in places}) > 1


def test_changes_flip_the_readiness_of_members() -> None:
    """The number that was asked for, on as many gangs, with new versions, and in the lists from then on."""
    cluster = Cluster(SIZE)
    version, ready = cluster.version, cluster.truth.ready
    changed = [orjson.loads(pod) for pod in cluster.changes(12, 3)]
    assert Counter(pod["metadata"]["labels"]["job-name"] for pod in changed).most_common(1)[0][1] == 4
    assert [int(pod["metadata"]["resourceVersion"]) for pod in changed] == list(range(version + 1, version + 13))
    now = {pod["metadata"]["uid"]: pod for pod in decoded(cluster, "pods")}
    assert all(now[pod["metadata"]["uid"]] == pod for pod in changed)
    assert cluster.truth.ready == ready - 12
    unready = [c for c in changed[0]["status"]["conditions"] if c["status"] == "False"]
    assert [c["type"] for c in unready] == ["ContainersReady", "Ready"]
    assert not set(fields(changed)) - set(fields(decoded(Cluster(SIZE), "pods"))) - recorded("pods")
    for _ in range(10):
        cluster.changes(12, 3)
    sent = sum(
        "'type': 'Ready', 'observedGeneration': 1, 'status': 'True'" in str(pod) for pod in decoded(cluster, "pods")
    )
    services = SIZE.pods * 0.4 - sum(pod["status"]["phase"] == "Succeeded" for pod in decoded(cluster, "pods"))
    assert sent - services == cluster.truth.ready


def test_changes_that_do_not_fit() -> None:
    """No pod changes twice."""
    with pytest.raises(ValueError, match="less than 100 pods"):
        Cluster(SIZE).changes(100, 1)
    assert Cluster(SIZE).changes(0, 0) == []


# --- the server ------------------------------------------------------------------------------------------------------


def get(url: str, **query: str) -> urllib3.BaseHTTPResponse:
    """Return an answer that was read whole."""
    return urllib3.request("GET", url, fields=query, timeout=10)


def pages(server: ClusterServer, plural: str, limit: int) -> Iterator[Any]:
    """Yield the pages of a list."""
    token = ""
    while True:
        page = get(server.url + KINDS[plural].path, limit=str(limit), **{"continue": token}).json()
        yield page
        token = page["metadata"].get("continue")
        if not token:
            return


def watch(server: ClusterServer, plural: str, **query: str) -> Iterator[Json]:
    """Yield the events of a watch; it ends after a second."""
    options = {"watch": "1", "timeoutSeconds": "1", "allowWatchBookmarks": "true", **query}
    url = server.url + KINDS[plural].path
    response = urllib3.PoolManager().request("GET", url, fields=options, preload_content=False, timeout=10)
    # A chunk is a line.
    yield from map(orjson.loads, response.read_chunked())
    response.close()


STREAM = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}


@pytest.mark.parametrize("plural", KINDS)
def test_pages_whole_lists_and_streams_hold_the_same(server: ClusterServer, plural: str) -> None:
    """Also split without decoding; with kind and apiVersion in events only, where they belong to a built-in kind."""
    objects = decoded(server.cluster, plural)
    kind = KINDS[plural]
    whole = get(server.url + kind.path).data
    assert orjson.loads(whole)["items"] == objects
    assert orjson.loads(whole)["kind"] == f"{kind.kind}List"
    assert [orjson.loads(item) for item in split(whole)] == objects
    assert [item for page in pages(server, plural, 90) for item in page["items"]] == objects
    *added, end = islice(watch(server, plural, **STREAM), len(objects) + 1)
    assert all(one["type"] == "ADDED" for one in added)
    assert [one["object"] for one in added] == [
        {"kind": kind.kind, "apiVersion": kind.api_version, **o} for o in objects
    ]
    version, annotations = str(server.cluster.version), {"k8s.io/initial-events-end": "true"}
    assert end["type"] == "BOOKMARK"
    assert end["object"]["metadata"] == {"resourceVersion": version, "annotations": annotations}


def test_a_watch_tells_the_changes(server: ClusterServer) -> None:
    """From the version of the list on, each once."""
    version = get(server.url + KINDS["pods"].path, limit="1").json()["metadata"]["resourceVersion"]
    before = server.change(5, 1)
    server.change(4, 2)
    assert str(before) == version
    *events, bookmark = watch(server, "pods", resourceVersion=version)
    assert [one["type"] for one in events] == ["MODIFIED"] * 9
    assert [orjson.loads(line) for line in server.events(before).splitlines()] == events
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["resourceVersion"] == events[-1]["object"]["metadata"]["resourceVersion"]


def test_changes_are_sent_when_the_bench_goes_on(server: ClusterServer) -> None:
    """An open watch has its events on the wire; one that hangs up is forgotten."""
    kind = KINDS["pods"]
    fields = {"watch": "1", "resourceVersion": str(server.cluster.version)}
    response = urllib3.PoolManager().request("GET", server.url + kind.path, fields=fields, preload_content=False)
    control = Control(server.url)
    since = control.change(3, 1)
    chunks = response.read_chunked()
    assert [next(chunks).rstrip(b"\n") for _ in range(3)] == control.events(since)
    assert control.requests()["pods"]["open"] == 1
    assert control.truth()["truth"]["ready"] == server.cluster.truth.ready
    response.close()
    with server.changed:
        assert server.changed.wait_for(lambda: not server.watches, timeout=5)


def test_refusals(server: ClusterServer) -> None:
    """Versions that are gone, streaming lists where they are off, and paths that nobody knows."""
    (error,) = watch(server, "pods", resourceVersion="1")
    assert (error["type"], error["object"]["code"]) == ("ERROR", 410)
    server.streaming = False
    refused = get(server.url + KINDS["pods"].path, watch="1", **STREAM)
    assert (refused.status, refused.json()["reason"]) == (422, "Invalid")
    assert get(f"{server.url}/apis/volcano.sh/v1").data == b"404 page not found\n"


def test_chunks_are_those_of_a_real_server() -> None:
    """A recorded list, taken apart and framed again, is the same on the wire."""
    wire = unpacked(CAPTURES / "watch.tar.xz")["errors/200-list-limit2-with-continue.http"].partition(b"\r\n\r\n")[2]
    body, at = b"", 0
    while size := int(wire[at : wire.index(b"\r\n", at)], 16):
        at = wire.index(b"\r\n", at) + 2
        body += wire[at : at + size]
        at += size + 2
    items = list(map(bytes, split(body)))
    head = body[: body.index(items[0])]
    tail = body[body.rindex(items[-1]) + len(items[-1]) :]
    assert b"".join(framed(head, items, tail)) + b"0\r\n\r\n" == wire[: len(wire.rstrip())] + b"\r\n\r\n"


def test_events_are_those_of_a_real_server() -> None:
    """A recorded event, made again from its object as a list has it."""
    files = unpacked(CAPTURES / "watch.tar.xz")
    line = files["pods.watch.jsonl"].splitlines(keepends=True)[0]
    one = orjson.loads(line)
    listed = orjson.dumps({key: one["object"][key] for key in ("metadata", "spec", "status")})
    assert event(one["type"], KINDS["pods"], listed) == line


def test_scans_see_all_objects(server: ClusterServer) -> None:
    """Of jobs those that are queued, as the check asks for."""
    queued = SIZE.gangs // 2
    expected = sum(len(objects) for objects in server.cluster.objects.values()) - (SIZE.gangs - queued)
    assert scan_pages(server.url).objects == scan_stream(server.url).objects == expected
    assert selector(KINDS["jobs"]) == "kueue.x-k8s.io/queue-name"


def test_the_server_in_its_process() -> None:
    """It serves until it is left, and with the same seed the same cluster."""
    with served(SIZE, streaming=False) as control:
        assert control.truth()["objects"] == {plural: len(o) for plural, o in Cluster(SIZE).objects.items()}
        assert get(control.url + KINDS["pods"].path, watch="1", **STREAM).status == 422
    with pytest.raises(urllib3.exceptions.HTTPError):
        urllib3.request("GET", control.url, retries=False)


# --- the check and the table -----------------------------------------------------------------------------------------


def test_the_check_sees_the_cluster(server: ClusterServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gangs, GPUs and ready members at the first run and after changes."""
    monkeypatch.setattr(base, "aggregator", subject.SINK)
    check, measured = subject.cold(server.url)
    assert measured.cpu > 0
    states = {state: subject.SINK.total("gangs", f"gang_state:{state}") for state in server.cluster.truth.states}
    assert states == server.cluster.truth.states

    def emit() -> None:
        server.change(10, 2)

    phases = subject.steady(check, emit)
    assert subject.SINK.total("members", "member_state:ready") == server.cluster.truth.ready
    assert set(phases) == {"collect", "derive", "submit"}
    check.cancel()


STEADY = Steady(collect=0.1, derive=0.02, submit=0.02, series=3000, decode=0.04)
RESULTS = Results(
    SIZES["L"],
    SIZES["S"],
    streaming=True,
    readings={
        "typed": Reading(20, 1e8, SIZES["S"], 1).at(SIZES["L"]),
        "raw": Reading(20, 3e9, SIZES["M"], 5).at(SIZES["L"]),
        "scan_stream": Reading(4, 1e6, SIZES["L"], 5),
        "scan_pages": Reading(5, 1e6, SIZES["L"], 5),
        "cold": Reading(5.6, 1e8, SIZES["L"], 5),
    },
    kept=512.4,
    steady={
        "few": STEADY,
        "all": STEADY,
        "none": STEADY._replace(collect=0.004, derive=0.001),
        "base": STEADY,
    },
    steady_base=STEADY,
    pending={"full": 2.0, "all": 0.5, "turn": 0.1, "none": 0.0, "blocked": 500, "deadlocked": 0},
    open=dict.fromkeys(KINDS, 1),
)


def test_goals_that_are_reached() -> None:
    """Each row of the table, with its ratio."""
    lines = table(RESULTS)
    assert [line[2] for line in lines] == [
        "1.40 x", "1/7", "1/71", "3.00 x", "1/286", "3.00 x", "1/24", "6.7", "3,000", "1/60", "512", "1.00 x",
        "0.25 x", "0 lists", "1",
    ]  # fmt: skip
    assert {line[3] for line in lines} == {"reached"}
    assert len(rows(RESULTS)) == 10


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        ({"streaming": False}, set()),
        ({"kept": 701.0}, {"memory kept, a kept pod"}),
        ({"pending": {**RESULTS.pending, "all": 2.1}}, {"why 500 of 2,000 gangs do not run"}),
        ({"lists": 1}, {"requests in steady state"}),
        ({"open": {**dict.fromkeys(KINDS, 1), "pods": 2}}, {"requests in steady state"}),
        ({"steady_base": STEADY._replace(collect=0.05)}, {"growth from 5,000 to 100,000 pods with the same number"}),
    ],
)
def test_goals_that_are_missed(changed: dict[str, Any], missed: set[str]) -> None:
    """A miss is told as one."""
    found = {row.what for row in rows(replace(RESULTS, **changed)) if not all(goal.reached for goal in row.goals)}
    assert len(found) == len(missed)
    assert all(any(what.startswith(name) for what in found) for name in missed)


def test_the_crowd_is_blocked_in_many_ways() -> None:
    """A small crowd of gangs that do not run: each is blocked, by what the nodes tell, and all times are told."""
    found = pending.measure(pending.Crowd(size=200, gangs=40, waiting=20), 1)
    assert set(found) == {"full", "all", "turn", "none", "blocked", "deadlocked"}
    assert found["blocked"] == 20
    assert found["full"] > 0
