# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The replay server answers like the servers whose answers it has, and its recordings are what was recorded."""

import json
import tarfile
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import pytest
import requests

from lab.pack import pack
from lab.replay import CAPTURES, DISCOVERY, Answer, Recording, ReplayServer, moments

SCENARIOS = sorted(path for path in CAPTURES.glob("[0-9]*.tar.xz"))
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
PODS = "/api/v1/pods"


def _open(name, moment=None):
    return Recording.open(CAPTURES / f"{name}.tar.xz", moment)


def _get(server, path, **headers):
    return requests.get(server.url + path, headers=headers, timeout=5, allow_redirects=False)


def test_all_scenarios_are_there():
    """Twenty scenarios, the watch and the common discovery."""
    assert len(SCENARIOS) == 20
    assert (CAPTURES / "watch.tar.xz").exists()
    assert (CAPTURES / "discovery.tar.xz").exists()


@pytest.mark.parametrize("archive", SCENARIOS, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_each_moment_can_be_served(archive):
    """Every moment of every archive has its lists, its time and its truth."""
    found = moments(archive)
    assert found == [""] or found[0] in {"t0", "t1"}
    for moment in found:
        recording = Recording.open(archive, moment)
        assert recording.begin <= recording.now
        assert recording.truth["gangs"]
        with ReplayServer(recording) as server:
            assert _get(server, PODS).json() == json.loads(recording.lists["pods"])
            assert _get(server, "/api/v1/nodes").json()["items"]


def test_a_folder_is_the_same_as_an_archive(tmp_path):
    """A recording may lie in a folder, with its moments beside each other."""
    for name in ("9-preempt", "2-partial-bound"):
        with tarfile.open(CAPTURES / f"{name}.tar.xz") as tar:
            tar.extractall(tmp_path / name, filter="data")
    assert Recording.load(tmp_path / "9-preempt" / "t2") == _open("9-preempt", "t2")
    assert Recording.load(tmp_path / "2-partial-bound") == _open("2-partial-bound")


def test_an_exposition_holds_until_the_next_one():
    """Kueue's metrics were recorded where something changed."""
    assert _open("1-permit-wait", "t4").metrics == _open("1-permit-wait", "t1").metrics
    assert _open("8-deadlock", "t1").metrics == {}
    assert set(_open("12-ha", "t1").metrics) == {"kueue-metrics-leader.prom", "kueue-metrics-follower.prom"}


def test_date_header_is_the_recordings_time():
    """HTTP dates have whole seconds; the time is rounded down, as a server does it."""
    recording = _open("4-kueue-partial", "t1")
    with ReplayServer(recording) as server:
        date = parsedate_to_datetime(_get(server, "/version").headers["Date"])
    assert date == recording.now.replace(microsecond=0)


def test_time_goes_on():
    """The recording can be exchanged while the server runs."""
    with ReplayServer(_open("4-kueue-partial", "t1")) as server:
        before = _get(server, PODS)
        server.recording = _open("4-kueue-partial", "t4")
        after = _get(server, PODS)
    assert before.json() != after.json()
    assert before.headers["Date"] < after.headers["Date"]


@pytest.mark.parametrize("limit", [1, 2, 5, 12, 13, 14])
def test_pages(limit):
    """Lists are really paged by limit and continue, with the number that is left."""
    recording = _open("1-permit-wait", "t1")
    whole = json.loads(recording.lists["pods"])["items"]
    items: list[dict] = []
    token = ""
    with ReplayServer(recording) as server:
        while len(items) < len(whole):
            page = requests.get(server.url + PODS, params={"limit": limit, "continue": token}, timeout=5).json()
            items += page["items"]
            token = page["metadata"].get("continue", "")
            assert page["metadata"].get("remainingItemCount", 0) == len(whole) - len(items)
    assert not token
    assert items == whole


def test_a_token_of_somebody_else_has_expired():
    """A continue token that the server does not know is a 410, as after five minutes."""
    with ReplayServer(_open("1-permit-wait", "t1")) as server:
        answer = _get(server, PODS + "?limit=2&continue=eyJ2IjoxfQ==")
    assert (answer.status_code, answer.json()["reason"]) == (410, "Expired")


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("", ["conformer-xl", "tts-align"]),
        ("kueue.x-k8s.io/queue-name", ["conformer-xl"]),
        ("kueue.x-k8s.io/queue-name=speech", ["conformer-xl"]),
        ("kueue.x-k8s.io/queue-name=other", []),
    ],
)
def test_label_selectors(selector, names):
    """A selector chooses objects, as the check's own does for jobs."""
    with ReplayServer(_open("14-node-lost", "t1")) as server:
        answer = requests.get(server.url + "/apis/batch/v1/jobs", params={"labelSelector": selector}, timeout=5)
    assert [job["metadata"]["name"] for job in answer.json()["items"]] == names


def test_discovery_by_accept_header():
    """Both forms of discovery, and a list of resources with the hash of the stored version."""
    with ReplayServer(_open("5-tas")) as server:
        aggregated = _get(server, "/apis", Accept=AGGREGATED)
        plain = _get(server, "/apis", Accept="application/json")
        kueue = _get(server, "/apis/kueue.x-k8s.io/v1beta1").json()
    assert aggregated.headers["Content-Type"] == AGGREGATED
    assert aggregated.json()["kind"] == "APIGroupDiscoveryList"
    assert plain.json()["kind"] == "APIGroupList"
    hashes = {resource["kind"]: resource["storageVersionHash"] for resource in kueue["resources"]}
    # sha256 of kueue.x-k8s.io/v1beta2/Workload, its first eight bytes.
    assert hashes["Workload"] == "LoA7GA7oSOM="


def test_native_gangs_have_their_own_discovery():
    """Only in 11-native does scheduling.k8s.io have pod groups."""
    found = {}
    for name in ("11-native", "5-tas"):
        with ReplayServer(_open(name)) as server:
            groups = _get(server, "/apis", Accept=AGGREGATED).json()["items"]
            found[name] = [
                version["version"]
                for group in groups
                if group["metadata"]["name"] == "scheduling.k8s.io"
                for version in group["versions"]
            ]
            status = _get(server, "/apis/scheduling.k8s.io/v1alpha2/podgroups").status_code
            assert status == (200 if name == "11-native" else 404)
    assert found == {"11-native": ["v1", "v1alpha2"], "5-tas": ["v1"]}


def test_hidden_groups_and_versions():
    """A cluster without a group or version is made by taking it away everywhere."""
    hidden = ["kueue.x-k8s.io/v1beta2", "scheduling.x-k8s.io"]
    with ReplayServer(_open("9-preempt", "t1"), hidden=hidden) as server:
        names = {group["metadata"]["name"]: group for group in _get(server, "/apis", Accept=AGGREGATED).json()["items"]}
        assert [version["version"] for version in names["kueue.x-k8s.io"]["versions"]] == ["v1beta1"]
        assert "scheduling.x-k8s.io" not in names
        plain = {group["name"] for group in _get(server, "/apis").json()["groups"]}
        assert "kueue.x-k8s.io" in plain
        assert "scheduling.x-k8s.io" not in plain
        assert _get(server, "/apis/kueue.x-k8s.io/v1beta2/workloads").status_code == 404
        assert _get(server, "/apis/kueue.x-k8s.io/v1beta1/workloads").status_code == 200
        assert _get(server, "/apis/kueue.x-k8s.io/v1beta2").status_code == 404


@pytest.mark.parametrize(
    "path", ["/apis/batch/v1/jobs", "/apis/nothing/v1", "/apis/nothing/v1/things", "/", "/api/v2/pods"]
)
def test_what_was_not_recorded_is_absent(path):
    """The 404 of a real API server for an unknown path is plain text."""
    with ReplayServer(_open("5-tas")) as server:
        answer = _get(server, path)
    assert answer.status_code == 404
    assert answer.text == "404 page not found\n"
    assert answer.headers["Content-Type"].startswith("text/plain")


def test_expositions():
    """Kueue's text is served whole; another file of the moment by its name; the scheduler's lines as recorded."""
    recording = _open("12-ha", "t1")
    with ReplayServer(recording, metrics="kueue-metrics-leader.prom") as server:
        assert _get(server, "/metrics").content == recording.metrics["kueue-metrics-leader.prom"]
        assert _get(server, "/scheduler/metrics").status_code == 404
        server.metrics = "kueue-metrics-follower.prom"
        assert _get(server, "/metrics").content == recording.metrics["kueue-metrics-follower.prom"]
    with ReplayServer(_open("6-terminating")) as server:
        assert 'profile="scheduler-plugins-scheduler"' in _get(server, "/scheduler/metrics").text
    with ReplayServer(_open("11-native")) as server:
        assert 'profile="default-scheduler"' in _get(server, "/scheduler/metrics").text


def test_the_log_of_requests():
    """Each request is logged with its query and status, and without its credential."""
    with ReplayServer(_open("5-tas"), token="abc") as server:
        _get(server, PODS + "?limit=1")
        _get(server, PODS, Authorization="Bearer abc", Accept="text/x")
    assert [(request.method, request.path, request.query, request.status) for request in server.log] == [
        ("GET", PODS, {"limit": "1"}, 401),
        ("GET", PODS, {}, 200),
    ]
    assert server.log[1].headers["Accept"] == "text/x"
    assert "abc" not in str(server.log)


@pytest.mark.parametrize(
    ("fault", "status", "text"),
    [
        (403, 403, '"reason":"Forbidden"'),
        (503, 503, '"message":"Service Unavailable"'),
        ("html", 200, "<html>"),
        ("empty", 200, ""),
        ("garbage", 200, "metadata"),
        ("redirect", 302, ""),
        (Answer(418, b"tea", "text/plain"), 418, "tea"),
    ],
)
def test_faults_in_what_is_said(fault, status, text):
    """Faults come by prefix of path and query, the first row that matches; the rest is healthy."""
    with ReplayServer(_open("5-tas"), [(PODS, fault), ("/", 500), (PODS, 200)]) as server:
        answer = _get(server, PODS + "?limit=1")
        assert (answer.status_code, text in answer.text) == (status, True)
        assert _get(server, "/version").status_code == 500
        server.faults = []
        assert _get(server, "/version").status_code == 200


@pytest.mark.parametrize("fault", ["cut", "refuse", "silent"])
def test_faults_in_how_it_is_said(fault):
    """A broken, refused or silent answer does not come to its end, and does not hold the server."""
    with ReplayServer(_open("5-tas"), [(PODS, fault)]) as server:
        with pytest.raises((requests.ConnectionError, requests.exceptions.ChunkedEncodingError, requests.Timeout)):
            requests.get(server.url + PODS, timeout=0.2)
        assert _get(server, "/version").status_code == 200


def test_an_answer_that_drips():
    """A slow answer comes byte by byte, and ends with the server."""
    with ReplayServer(_open("5-tas"), [(PODS, "slow")]) as server:
        response = requests.get(server.url + PODS, timeout=5, stream=True)
        assert response.raw.read(3) == b'{"k'
        response.close()


def test_faults_that_pass():
    """A fault may happen a number of times only."""
    with ReplayServer(_open("5-tas"), [(PODS, 429, 2)]) as server:
        assert [_get(server, PODS).status_code for _ in range(3)] == [429, 429, 200]


def _moved(text, seconds):
    return datetime.fromisoformat(text) + timedelta(seconds=seconds)


def test_merged_recordings():
    """The objects of several clusters become one, at one time; what each says of its own time stays as it was."""
    parts = [_open("1-permit-wait", "t1"), _open("17-podsets", "t1"), _open("14-node-lost", "t1")]
    merged = Recording.merge(*parts)
    assert (merged.now, merged.begin, merged.metrics) == (parts[0].now, parts[0].begin, parts[0].metrics)
    for name in ("pods", "nodes", "podgroups.scheduling.x-k8s.io", "events.events.k8s.io"):
        lists = [json.loads(part.lists[name])["items"] for part in parts]
        items = json.loads(merged.lists[name])["items"]
        assert [item["metadata"]["uid"] for item in items] == [
            item["metadata"]["uid"] for part in lists for item in part
        ]
        position = 0
        for part, own in zip(parts, lists, strict=True):
            seconds = (parts[0].now - part.now) // timedelta(seconds=1)
            assert timedelta(0) <= parts[0].now - part.now - timedelta(seconds=seconds) < timedelta(seconds=1)
            for before, after in zip(own, items[position : position + len(own)], strict=True):
                _same_but_for_time(before, after, seconds)
            position += len(own)
    assert "jobs.batch" in merged.lists
    assert len(merged.truth["gangs"]) == sum(len(part.truth["gangs"]) for part in parts)


def _same_but_for_time(before, after, seconds):
    """Compare two objects; each time of the second is that of the first, moved, in the same format."""
    if isinstance(before, dict):
        assert list(before) == list(after)
        for key in before:
            _same_but_for_time(before[key], after[key], seconds)
    elif isinstance(before, list):
        for one, other in zip(before, after, strict=True):
            _same_but_for_time(one, other, seconds)
    elif before != after:
        assert _moved(before, seconds) == datetime.fromisoformat(after)
        assert before[19:] == after[19:]


def test_microseconds_are_kept():
    """Times with a fraction (events, leases) keep it to the digit."""
    merged = Recording.merge(_open("2-partial-bound"), _open("7-same-name"))
    assert any("." in str(e.get("eventTime")) for e in json.loads(merged.lists["events.events.k8s.io"])["items"])


def test_clusters_that_clash_are_not_merged():
    """One cluster cannot hold two objects of one name."""
    with pytest.raises(ValueError, match="nodes: gpu-h-1 is in more than one recording"):
        Recording.merge(_open("7-same-name"), _open("14-node-lost", "t1"))


def test_clusters_with_the_same_configuration_are_merged():
    """Two clusters that say the same of a ResourceFlavor have one; where they differ they are not one cluster."""
    merged = Recording.merge(_open("4-kueue-partial", "t1"), _open("15-crashloop", "t1"))
    assert [flavor["metadata"]["name"] for flavor in json.loads(merged.lists["resourceflavors"])["items"]] == ["h100"]
    with pytest.raises(ValueError, match="resourceflavors: h100 is in more than one recording"):
        Recording.merge(_open("4-kueue-partial", "t1"), _open("9-preempt", "t1"))


def test_the_discovery_of_native_gangs_survives_a_merge():
    """A cluster that holds native gangs serves their group."""
    with ReplayServer(Recording.merge(_open("1-permit-wait", "t1"), _open("11-native"))) as server:
        assert _get(server, "/apis/scheduling.k8s.io/v1alpha2").status_code == 200
        assert _get(server, "/apis/scheduling.k8s.io/v1alpha2/podgroups").json()["items"]


def test_packing_is_reproducible(tmp_path):
    """The same folders make the same bytes, without owner and time; logs stay out, and discovery is packed once."""
    source = tmp_path / "recordings"
    for name in ("1-permit-wait", "11-native"):
        with tarfile.open(CAPTURES / f"{name}.tar.xz") as tar:
            tar.extractall(source / name, filter="data")
    with tarfile.open(CAPTURES / "discovery.tar.xz") as tar:
        tar.extractall(source / "1-permit-wait" / "t1" / "objects", filter="data")
    (source / "11-native" / "evidence" / "scheduler.log").write_text("a line")
    made = tmp_path / "made"
    made.mkdir()
    for archive in pack(source, made):
        assert archive.read_bytes() == (CAPTURES / archive.name).read_bytes(), archive.name
    with tarfile.open(made / "1-permit-wait.tar.xz") as tar:
        members = tar.getmembers()
    assert not {f"t1/objects/{name}.json" for name in DISCOVERY} & {member.name for member in members}
    assert {(member.mtime, member.uid, member.uname) for member in members} == {(0, 0, "")}
    assert [member.name for member in members] == sorted(member.name for member in members)
    assert recorded_in(members) == {"begin.txt", "now.txt", "truth.json"}


def recorded_in(members):
    """Return the names of the files that each moment has."""
    wanted = {"begin.txt", "now.txt", "truth.json"}
    found = [member.name.partition("/") for member in members]
    by_moment = [{name for at, _, name in found if at == moment} for moment in {at for at, _, _ in found}]
    return wanted.intersection(*by_moment)


def test_times_have_a_zone():
    """A recording's time is UTC."""
    assert _open("5-tas").now.tzinfo == UTC
