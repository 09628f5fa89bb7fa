# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Recorded clusters, served over HTTP as an API server, Kueue and a scheduler serve them.

A recording is one moment of a cluster: a folder, or a folder within an archive made by `lab.pack`.

    objects/NAME.json       a cluster-wide list; `_LISTS` tells which
    kueue-metrics*.prom     Kueue's exposition; where a moment has none, that of the moment before still holds
    evidence/*.prom         lines of the schedulers' expositions
    begin.txt, now.txt      before the first list and after the last
    truth.json              what was so

`ReplayServer` answers the requests of the check: lists with real pages, discovery in both forms, resource lists with
the hash of the stored version, `/version`, `/metrics` (Kueue) and `/scheduler/metrics`. What was not recorded is a 404,
in the words of a real API server. Its Date header is the recording's own time, so that ages come out as they were.
The recording and the faults may be exchanged while the server runs: that is how time goes on, and how a fault heals.

    with ReplayServer(Recording.open(CAPTURES / "5-tas.tar.xz")) as server:
        ...  # kube_api_url: server.url, openmetrics_endpoint: server.url + "/metrics"
"""

import re
import socket
import ssl
import struct
import tarfile
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from email.utils import format_datetime
from functools import cache, cached_property
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from urllib.parse import parse_qsl, urlsplit

import orjson

Json = dict[str, Any]

CAPTURES: Final = Path(__file__).resolve().parent.parent / "tests" / "captures"
#: Names of the answers of discovery.
DISCOVERY: Final = ("apis", "apis.plain", "version")

_KUEUE: Final = "/apis/kueue.x-k8s.io/v1beta2"
#: Path of a list -> name of its file.
_LISTS: Final = {
    "/api/v1/pods": "pods",
    "/api/v1/nodes": "nodes",
    "/apis/batch/v1/jobs": "jobs.batch",
    "/apis/coordination.k8s.io/v1/leases": "leases.coordination.k8s.io",
    "/apis/events.k8s.io/v1/events": "events.events.k8s.io",
    "/apis/scheduling.x-k8s.io/v1alpha1/podgroups": "podgroups.scheduling.x-k8s.io",
    "/apis/scheduling.k8s.io/v1alpha2/podgroups": "podgroups.scheduling.k8s.io",
    "/apis/scheduling.k8s.io/v1alpha2/workloads": "workloads.scheduling.k8s.io",
    "/apis/kueue.x-k8s.io/v1beta1/workloads": "workloads.kueue.x-k8s.io.v1beta1",
    f"{_KUEUE}/workloads": "workloads.kueue.x-k8s.io.v1beta2",
    f"{_KUEUE}/admissionchecks": "admissionchecks",
    f"{_KUEUE}/clusterqueues": "clusterqueues",
    f"{_KUEUE}/cohorts": "cohorts",
    f"{_KUEUE}/localqueues": "localqueues",
    f"{_KUEUE}/resourceflavors": "resourceflavors",
    f"{_KUEUE}/topologies": "topologies",
    f"{_KUEUE}/workloadpriorityclasses": "workloadpriorityclasses",
}

#: Lists of objects that only configure; clusters that agree on one may be merged.
_CONFIGURATION: Final = frozenset({"resourceflavors", "topologies", "workloadpriorityclasses"})

_TIME: Final = re.compile(rb'"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)((?:\.\d+)?Z)"')
_MOMENT: Final = re.compile(r"t\d+")
#: The gang scheduler's lines before the default scheduler's.
_SCHEDULERS: Final = ("cosched-metrics-excerpt.prom", "kube-scheduler-metrics-excerpt.prom")

_STATUS_REASONS: Final = {401: "Unauthorized", 403: "Forbidden", 410: "Expired", 429: "TooManyRequests"}
_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"
_EXPOSITION: Final = "text/plain; version=0.0.4; charset=utf-8; escaping=values"
_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@dataclass(frozen=True)
class Recording:
    """One moment of a cluster.

    `lists` and `discovery` hold bodies by file name without its suffix (`discovery` is empty where the common one
    holds), `metrics` and `evidence` expositions by file name, `truth` what truth.json says.
    """

    begin: datetime
    now: datetime
    lists: Mapping[str, bytes]
    metrics: Mapping[str, bytes] = field(default_factory=dict)
    evidence: Mapping[str, bytes] = field(default_factory=dict)
    discovery: Mapping[str, bytes] = field(default_factory=dict)
    truth: Json = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a folder: a moment (t1, t2, ...) of a scenario, or a scenario that has only one."""
        scenario, moment = (path.parent, path.name) if _MOMENT.fullmatch(path.name) else (path, "")
        files = {p.relative_to(scenario).as_posix(): p.read_bytes() for p in scenario.rglob("*") if p.is_file()}
        return cls._of(files, moment)

    @classmethod
    def open(cls, archive: Path, moment: str | None = None) -> Self:
        """Read a `moment` of an archive; without one, the first."""
        files = _unpacked(archive)
        return cls._of(files, _moments(files)[0] if moment is None else moment)

    @classmethod
    def merge(cls, *recordings: Self) -> Self:
        """Return one cluster that holds the objects of several; metrics and discovery are the first one's.

        The times of each are shifted by whole seconds, so that its `now` comes to lie within the last second before
        the first one's: formats, fractions and the order of its own events stay as recorded. `truth` has all gangs
        and no totals. Raises ValueError where two objects have one name, unless both are the same configuration.
        """
        first, *others = recordings
        lists = {name: [orjson.loads(body)] for name, body in first.lists.items()}
        for other in others:
            seconds = (first.now - other.now) // timedelta(seconds=1)
            for name, body in other.lists.items():
                lists.setdefault(name, []).append(orjson.loads(_shifted(body, seconds)))
        return replace(
            first,
            lists={name: orjson.dumps(_joined(name, parts)) for name, parts in lists.items()},
            discovery={name: body for r in reversed(recordings) for name, body in r.discovery.items()},
            truth={"gangs": [gang for r in recordings for gang in r.truth.get("gangs", ())]},
        )

    @classmethod
    def _of(cls, files: Mapping[str, bytes], moment: str) -> Self:
        here = _below(files, moment)
        so_far = [_below(files, m) for m in _moments(files) if m <= moment]
        objects = {name.removesuffix(".json"): body for name, body in _below(here, "objects").items()}
        metrics = [{n: b for n, b in past.items() if n.startswith("kueue-metrics")} for past in so_far]
        return cls(
            begin=datetime.fromisoformat(here["begin.txt"].decode().strip()),
            now=datetime.fromisoformat(here["now.txt"].decode().strip()),
            lists={name: body for name, body in objects.items() if name in _LISTS.values()},
            metrics=next((found for found in reversed(metrics) if found), {}),
            evidence=_below(here, "evidence"),
            discovery={name: objects[name] for name in DISCOVERY if name in objects},
            truth=orjson.loads(here.get("truth.json", b"{}")),
        )

    @cached_property
    def decoded(self) -> Mapping[str, Json]:
        """The lists as decoded JSON, by name."""
        return {name: orjson.loads(body) for name, body in self.lists.items()}


def moments(archive: Path) -> list[str]:
    """Return the moments of an archive in their order; one empty name where the scenario has only one."""
    return _moments(_unpacked(archive))


class Answer(NamedTuple):
    """A complete answer, and the way it is sent: `whole`, or another row of `_WAYS`."""

    status: int
    body: bytes
    content_type: str = _JSON
    headers: tuple[tuple[str, str], ...] = ()
    way: str = "whole"


class Request(NamedTuple):
    """A request that was answered.

    `status` is 0 where nothing was sent, `headers` are without Authorization, `client` is the port of the connection.
    """

    method: str
    path: str
    query: Mapping[str, str]
    status: int
    headers: Mapping[str, str]
    client: int


#: What goes wrong: an HTTP status, the name of a row of `_WRONG_ANSWERS` or `_WAYS`, or an answer of one's own.
Fault = int | str | Answer
#: Prefix of path and query, fault, and how many times it happens (default: always).
FaultRow = tuple[str, Fault] | tuple[str, Fault, int]


class ReplayServer:
    """A server for one recording at a time, on a free port of 127.0.0.1. Use it as a context manager.

    `recording` and `faults` may be assigned while it runs; of the faults the first row that matches counts. `log` holds
    the requests. `metrics` names the exposition to serve (default: the first). `hidden` takes away groups
    (`kueue.x-k8s.io`) or versions (`kueue.x-k8s.io/v1beta2`), `stored` gives the stored version of a group where it is
    not the first. With `token`, a request needs it as bearer token. With `certificate` (PEM, with its key; replay.pem
    in CAPTURES is one) it is https.
    """

    def __init__(
        self,
        recording: Recording,
        faults: Iterable[FaultRow] = (),
        *,
        metrics: str | None = None,
        hidden: Collection[str] = (),
        stored: Mapping[str, str] | None = None,
        token: str | None = None,
        certificate: Path | None = None,
    ) -> None:
        """Open the port; requests are answered from `__enter__` on."""
        self.recording = recording
        self.faults = list(faults)
        self.metrics = metrics
        self.token = token
        self.log: list[Request] = []
        self.stopping = threading.Event()
        self._hidden = hidden
        self._stored = stored or {}
        self._used: dict[int, int] = {}
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.replay = self
        scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            # The handshake belongs to the request's own thread.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
            scheme = "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        """Start to answer."""
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, also in the middle of an answer."""
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()

    def requests(self, prefix: str) -> list[Request]:
        """Return the logged requests whose path begins with `prefix`."""
        return [request for request in self.log if request.path.startswith(prefix)]

    def fault(self, target: str) -> Fault | None:
        """Return what goes wrong with a request for `target` (path and query), and count it."""
        for number, (prefix, fault, *times) in enumerate(self.faults):
            if target.startswith(prefix):
                used = self._used[number] = self._used.get(number, 0) + 1
                if not times or used <= times[0]:
                    return fault
        return None

    def answer(self, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Answer:
        """Return the answer of a healthy server."""
        if self.token is not None and headers.get("Authorization") != f"Bearer {self.token}":
            return _status(HTTPStatus.UNAUTHORIZED)
        if any(path.startswith(f"/apis/{hidden}/") for hidden in self._hidden):
            return _NOT_FOUND
        name = _LISTS.get(path)
        if name is not None:
            return self._list(name, query)
        route = _ROUTES.get(path)
        if route is not None:
            return route(self, headers)
        match = _GROUP_VERSION.fullmatch(path)
        return self._resources(match["group"], match["version"]) if match else _NOT_FOUND

    def version(self, _headers: Mapping[str, str]) -> Answer:
        """Return /version."""
        return Answer(200, self._discovery("version"))

    def groups(self, headers: Mapping[str, str]) -> Answer:
        """Return /apis in the form that the Accept header asks for."""
        if _AGGREGATED not in headers.get("Accept", ""):
            plain = orjson.loads(self._discovery("apis.plain"))
            plain["groups"] = self._visible(plain["groups"], lambda group: group["name"])
            return Answer(200, orjson.dumps(plain))
        return Answer(200, orjson.dumps(self._aggregated()), _AGGREGATED)

    def kueue(self, _headers: Mapping[str, str]) -> Answer:
        """Return Kueue's exposition."""
        metrics = self.recording.metrics
        return _exposition(metrics.get(self.metrics or min(metrics, default="")))

    def scheduler(self, _headers: Mapping[str, str]) -> Answer:
        """Return the exposition of the gang scheduler, else of the default scheduler."""
        evidence = self.recording.evidence
        return _exposition(next((evidence[name] for name in _SCHEDULERS if name in evidence), None))

    def _discovery(self, name: str) -> bytes:
        return self.recording.discovery.get(name) or _unpacked(CAPTURES / "discovery.tar.xz")[f"{name}.json"]

    def _aggregated(self) -> Json:
        found: Json = orjson.loads(self._discovery("apis"))
        found["items"] = self._visible(found["items"], lambda group: group["metadata"]["name"])
        return found

    def _visible(self, groups: list[Json], name: Callable[[Json], str]) -> list[Json]:
        kept = [group for group in groups if name(group) not in self._hidden]
        for group in kept:
            group["versions"] = [v for v in group["versions"] if f"{name(group)}/{v['version']}" not in self._hidden]
        return [group for group in kept if group["versions"]]

    def _resources(self, group: str, version: str) -> Answer:
        """Return the resource list of a group version, with the hashes of the stored versions."""
        groups = {g["metadata"]["name"]: {v["version"]: v for v in g["versions"]} for g in self._aggregated()["items"]}
        versions: dict[str, Json] = groups.get(group, {})
        served = versions.get(version)
        if served is None:
            return _NOT_FOUND
        stored = self._stored.get(group, next(iter(versions)))
        resources = [
            {
                "name": resource["resource"],
                "singularName": resource["singularResource"],
                "namespaced": resource["scope"] == "Namespaced",
                "kind": resource["responseKind"]["kind"],
                "verbs": resource["verbs"],
                "storageVersionHash": _storage_hash(f"{group}/{stored}/{resource['responseKind']['kind']}"),
            }
            for resource in served["resources"]
        ]
        listing = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}"}
        return Answer(200, orjson.dumps({**listing, "resources": resources}))

    def _list(self, name: str, query: Mapping[str, str]) -> Answer:
        """Return a page of a list, chosen by labelSelector, limit and continue."""
        recorded = self.recording.decoded.get(name)
        if recorded is None:
            return _NOT_FOUND
        selector = query.get("labelSelector", "")
        # Without a selector even an object that has no metadata is served: tests break objects on purpose.
        items = [item for item in recorded["items"] if not selector or _selected(item, selector)]
        start = _offset(query.get("continue", ""))
        if start is None:
            return _status(HTTPStatus.GONE)
        end = start + (int(query.get("limit", "0")) or len(items))
        metadata = {"resourceVersion": recorded.get("metadata", {}).get("resourceVersion", "1")}
        if end < len(items):
            metadata |= {"continue": b64encode(f"from:{end}".encode()).decode(), "remainingItemCount": len(items) - end}
        return Answer(200, orjson.dumps({**recorded, "metadata": metadata, "items": items[start:end]}))


_Route = Callable[[ReplayServer, Mapping[str, str]], Answer]
_ROUTES: Final[Mapping[str, _Route]] = {
    "/apis": ReplayServer.groups,
    "/metrics": ReplayServer.kueue,
    "/scheduler/metrics": ReplayServer.scheduler,
    "/version": ReplayServer.version,
}
_GROUP_VERSION: Final = re.compile(r"/apis/(?P<group>[^/]+)/(?P<version>[^/]+)")
_NOT_FOUND: Final = Answer(404, b"404 page not found\n", _TEXT)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    replay: ReplayServer

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Say nothing: clients that hang up are what the faults are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body are two packets, and the second would wait 40 ms for the acknowledgement of the first.
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        replay = self.server.replay
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        fault = replay.fault(self.path)
        if isinstance(fault, Answer):
            answer = fault
        elif isinstance(fault, int):
            answer = _status(fault)
        elif fault is not None and fault in _WRONG_ANSWERS:
            answer = _WRONG_ANSWERS[fault]
        else:
            answer = replay.answer(url.path, query, dict(self.headers))._replace(way=fault or "whole")
        shown = {name: value for name, value in self.headers.items() if name.lower() != "authorization"}
        sent = 0 if answer.way in _UNANSWERED else answer.status
        replay.log.append(Request(self.command, url.path, query, sent, shown, self.client_address[1]))
        _WAYS[answer.way](self, answer)

    def whole(self, answer: Answer) -> None:
        """Send the answer as it is."""
        self.head(answer)
        self.wfile.write(answer.body)

    def cut(self, answer: Answer) -> None:
        """Promise the whole answer, send half of it, and close."""
        self.head(answer)
        self.wfile.write(answer.body[: len(answer.body) // 2])
        self.close_connection = True

    def slow(self, answer: Answer) -> None:
        """Send one byte now and then, until the server stops."""
        self.head(answer)
        for byte in answer.body:
            self.wfile.write(bytes((byte,)))
            self.wfile.flush()
            if self.server.replay.stopping.wait(0.05):
                break
        self.close_connection = True

    def silent(self, _answer: Answer) -> None:
        """Never answer."""
        self.server.replay.stopping.wait()
        self.close_connection = True

    def refuse(self, _answer: Answer) -> None:
        """Reset the connection. The port itself is shared by all paths, so this is as near as it gets."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def head(self, answer: Answer) -> None:
        """Send the status line and the headers."""
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        for name, value in answer.headers:
            self.send_header(name, value)
        self.end_headers()

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the recording's time for the Date header, rounded down as a server does."""
        del timestamp
        return format_datetime(self.server.replay.recording.now, usegmt=True)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        """Say nothing: `ReplayServer.log` has it."""


#: Faults in what is said.
_WRONG_ANSWERS: Final[Mapping[str, Answer]] = {
    "html": Answer(200, b"<!DOCTYPE html>\n<html><body>Please log in</body></html>\n", "text/html; charset=utf-8"),
    "empty": Answer(200, b""),
    "garbage": Answer(200, b'{"kind": "PodList", "items": {"metadata": [1, 2'),
    "redirect": Answer(302, b"", _TEXT, (("Location", "https://login.example.com/?token=s3cr3t"),)),
}
#: How it is said; all but the first are faults.
_WAYS: Final[Mapping[str, Callable[[_Handler, Answer], None]]] = {
    "whole": _Handler.whole,
    "cut": _Handler.cut,
    "slow": _Handler.slow,
    "silent": _Handler.silent,
    "refuse": _Handler.refuse,
}
_UNANSWERED: Final = frozenset({"silent", "refuse"})


def _status(code: int) -> Answer:
    """Return an error in the words of an API server."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code}
    words = {"message": HTTPStatus(code).phrase, "reason": _STATUS_REASONS.get(code, "")}
    return Answer(code, orjson.dumps(status | words))


def _exposition(text: bytes | None) -> Answer:
    return _NOT_FOUND if text is None else Answer(200, text, _EXPOSITION)


def _storage_hash(stored: str) -> str:
    return b64encode(sha256(stored.encode()).digest()[:8]).decode()


def _selected(item: Json, selector: str) -> bool:
    """Tell whether an object's labels meet a selector of `key` and `key=value` terms."""
    labels = item["metadata"].get("labels") or {}
    terms = (term.partition("=") for term in selector.split(",") if term)
    return all(key in labels and (not equals or labels[key] == value) for key, equals, value in terms)


def _offset(token: str) -> int | None:
    """Return where the page of a continue token begins; None for a token that is not ours."""
    if not token:
        return 0
    head, _, number = b64decode(token).decode("ascii", "replace").partition(":")
    return int(number) if head == "from" and number.isdecimal() else None


@cache
def _unpacked(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive, "r:xz") as tar:
        return {member.name: content.read() for member in tar if (content := tar.extractfile(member)) is not None}


def _moments(files: Mapping[str, bytes]) -> list[str]:
    folders = {PurePosixPath(name).parent.as_posix() for name in files if PurePosixPath(name).name == "now.txt"}
    return sorted("" if folder == "." else folder for folder in folders)


def _below(files: Mapping[str, bytes], folder: str) -> dict[str, bytes]:
    """Return the files of a folder with their names in it; those of an empty folder name are all."""
    prefix = f"{folder}/" if folder else ""
    return {name.removeprefix(prefix): body for name, body in files.items() if name.startswith(prefix)}


def _shifted(body: bytes, seconds: int) -> bytes:
    """Return a list with each of its times moved."""

    def moved(match: re.Match[bytes]) -> bytes:
        time = datetime.fromisoformat(match[1].decode()) + timedelta(seconds=seconds)
        return b'"%s%s"' % (time.isoformat().encode(), match[2])

    return _TIME.sub(moved, body)


def _joined(name: str, parts: Sequence[Json]) -> Json:
    """Return one list of several. Raises ValueError where two objects have one name."""
    items: dict[tuple[str, str], Json] = {}
    for item in (item for part in parts for item in part["items"]):
        key = item["metadata"].get("namespace", ""), item["metadata"]["name"]
        there = items.setdefault(key, item)
        if there is not item and not (name in _CONFIGURATION and _said(there) == _said(item)):
            msg = f"{name}: {'/'.join(key).lstrip('/')} is in more than one recording"
            raise ValueError(msg)
    return {**parts[0], "items": list(items.values())}


def _said(item: Json) -> Json:
    """Return what the author of an object wrote."""
    return {key: value for key, value in item.items() if key not in {"metadata", "status"}}
