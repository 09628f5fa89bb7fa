# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""An API server for a generated cluster, in a process of its own.

    python -m bench.server --size S [--no-streaming]

It prints its URL and serves until its standard input ends. It is there to be read, not to be measured: encoding is
done before the first request, and a body is copied in large pieces, so that the reader never waits for long. What a
reader does see is as a real server sends it (recorded from Kubernetes 1.36):

* discovery, aggregated and plain; lists, whole and in pages with `limit` and `continue`; watches from a version, with
  bookmarks and `timeoutSeconds`; streaming lists (`sendInitialEvents`), or the 422 of servers without them;
* HTTP/1.1 in chunks. An event is a chunk. An item of a list is two: Go's writer fills its buffer of 2,048 bytes, sends
  that, and then what is left, if it is longer than the buffer, by itself.

It does not model the time that a real server takes, its access rules, and selectors other than on labels of small
lists.

The bench steers it by HTTP too: `POST /bench/changes?number=N&gangs=G` changes members and returns when every open
watch has been sent the events, `GET /bench/events?since=VERSION` returns their lines, `/bench/requests` how often what
was asked for, and `/bench/truth` what is so in the cluster.
"""

import argparse
import subprocess
import sys
import threading
import time
from base64 import b64decode, b64encode
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from hashlib import sha256
from http import HTTPStatus
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from select import select
from socket import MSG_PEEK
from typing import Any, Final, Self
from urllib.parse import parse_qsl, urlencode, urlsplit

import orjson

from bench.generate import KINDS, NOW, SIZES, Cluster, Kind, Size
from bench.objects import Json

Query = Mapping[str, str]

_JSON: Final = "application/json"
_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_GO_BUFFER: Final = 2048
#: How much is handed to the socket at a time.
_BLOCK: Final = 1 << 20
#: The API server sends a bookmark about once a minute.
_BOOKMARK_SECONDS: Final = 60.0
#: How often an idle watch looks whether its reader is still there.
_LOOK_SECONDS: Final = 0.2
_PUSH_SECONDS: Final = 60.0


@dataclass(slots=True)
class Log:
    """The events of one kind since the server began: (version, line)."""

    versions: list[int] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)


class ClusterServer:
    """Serves a cluster on a free port of 127.0.0.1. Use it as a context manager.

    `requests` counts by plural and by what was asked for: `pages` (each page of a list), `lists` (their first pages),
    `streams` (streaming lists) and `watches`, which includes them; `open` is the number of watches that are open now.
    """

    def __init__(self, cluster: Cluster, *, streaming: bool = True) -> None:
        """Open the port; requests are answered from `__enter__` on."""
        self.cluster = cluster
        self.streaming = streaming
        self.requests: dict[str, Counter[str]] = defaultdict(Counter)
        self.logs = {plural: Log() for plural in KINDS}
        self.first_version = cluster.version
        #: Guards cluster, logs and requests; told of each new event and of each event that a watch has sent.
        self.changed = threading.Condition()
        #: How far each open watch is: (plural, number of events sent).
        self.watches: dict[object, tuple[str, int]] = {}
        self.stopping = False
        self._began = time.monotonic()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.cluster = self
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        """Start to answer."""
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop, and end the watches."""
        with self.changed:
            self.stopping = True
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def now(self) -> float:
        """Return the time in the cluster, in seconds since the epoch."""
        return NOW + time.monotonic() - self._began

    def change(self, number: int, gangs: int) -> int:
        """Change members (`Cluster.changes`), wait until every watch has sent the events; return the version before.

        Raises TimeoutError where a reader does not take them.
        """
        log = self.logs["pods"]
        with self.changed:
            before = self.cluster.version
            for pod in self.cluster.changes(number, gangs):
                log.versions.append(self.cluster.version)
                log.lines.append(event("MODIFIED", KINDS["pods"], pod))
            self.changed.notify_all()
            if not self.changed.wait_for(self._all_sent, timeout=_PUSH_SECONDS):
                msg = "a watch does not take its events"
                raise TimeoutError(msg)
        return before

    def _all_sent(self) -> bool:
        return all(sent == len(self.logs[plural].lines) for plural, sent in self.watches.values())

    def events(self, since: int) -> bytes:
        """Return the lines of all events after a version."""
        with self.changed:
            return b"".join(
                line for log in self.logs.values() for version, line in zip(log.versions, log.lines, strict=True)
                if version > since
            )  # fmt: skip

    def truth(self) -> Json:
        """Return what is so in the cluster: `Truth`, and the number of objects by plural."""
        with self.changed:
            # orjson encodes the dataclass.
            return {"truth": self.cluster.truth, "objects": {p: len(o) for p, o in self.cluster.objects.items()}}

    def asked(self) -> Json:
        """Return `requests`, with the watches that are open now."""
        with self.changed:
            still = Counter(plural for plural, _ in self.watches.values())
            return {plural: {**counts, "open": still[plural]} for plural, counts in self.requests.items()}


def event(kind: str, of: Kind, obj: bytes) -> bytes:
    """Return the line of a watch event. Built-in kinds have no kind and apiVersion in lists, and have them here."""
    if not of.custom:
        obj = b'{"kind":"%b","apiVersion":"%b",%b' % (of.kind.encode(), of.api_version.encode(), obj[1:])
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), obj)


def bookmark(of: Kind, version: int, *, initial: bool = False) -> bytes:
    """Return the line of a bookmark; `initial` marks the end of a streaming list."""
    metadata: Json = {"resourceVersion": str(version)}
    if initial:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    named = {"apiVersion": of.api_version, "kind": of.kind} if of.custom else {}
    # As the recorded one: a built-in kind has its empty parts.
    empty = {"spec": {"containers": None}, "status": {}} if of.kind == "Pod" else {}
    return event("BOOKMARK", of, orjson.dumps({**named, "metadata": metadata, **empty}))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    cluster: ClusterServer

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Say nothing of readers that hang up."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        """Answer a request."""
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        kind = _PATHS.get(url.path)
        if kind is not None and query.get("watch") in {"1", "true"}:
            self._watch(kind, query)
        elif kind is not None:
            self._list(kind, query)
        elif url.path in _ROUTES:
            self._answer(_ROUTES[url.path](self.server.cluster, query, self.headers.get("Accept", "")))
        else:
            self._answer(b"404 page not found\n", "text/plain; charset=utf-8", HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        """Steer the server."""
        url = urlsplit(self.path)
        if url.path != "/bench/changes":
            self._answer(b"404 page not found\n", "text/plain; charset=utf-8", HTTPStatus.NOT_FOUND)
            return
        query = dict(parse_qsl(url.query))
        before = self.server.cluster.change(int(query["number"]), int(query["gangs"]))
        self._answer(b"%d" % before)

    # --- lists -------------------------------------------------------------------------------------------------------

    def _list(self, kind: Kind, query: Query) -> None:
        cluster = self.server.cluster
        start = int(b64decode(query.get("continue", "")) or 0)
        with cluster.changed:
            cluster.requests[kind.plural].update({"pages": 1, "lists": int(not start)})
            items = _selected(cluster.cluster.objects[kind.plural], query.get("labelSelector", ""))
            version = cluster.cluster.version
        end = start + (int(query.get("limit", 0)) or len(items))
        page = items[start:end]
        metadata: Json = {"continue": ""} if kind.custom else {}
        metadata["resourceVersion"] = str(version)
        if end < len(items):
            metadata |= {"continue": b64encode(b"%d" % end).decode(), "remainingItemCount": len(items) - end}
        head, tail = _envelope(kind, metadata)
        self._head()
        self._send(framed(head, page, tail))
        self._end()

    # --- watches -----------------------------------------------------------------------------------------------------

    def _watch(self, kind: Kind, query: Query) -> None:
        cluster = self.server.cluster
        initial = query.get("sendInitialEvents") in {"1", "true"}
        if initial and not cluster.streaming:
            self._answer(_NO_STREAMING, status=HTTPStatus.UNPROCESSABLE_ENTITY)
            return
        log = cluster.logs[kind.plural]
        with cluster.changed:
            cluster.requests[kind.plural].update({"watches": 1, "streams": int(initial)})
            version = cluster.cluster.version
            items = _selected(cluster.cluster.objects[kind.plural], query.get("labelSelector", "")) if initial else []
            since = version if initial else int(query.get("resourceVersion") or version)
            sent = next((number for number, v in enumerate(log.versions) if v > since), len(log.lines))
            cluster.watches[self] = kind.plural, sent
        try:
            self._head()
            if since < cluster.first_version:
                self._send([_chunk(_too_old(since))])
            else:
                self._send(_chunk(event("ADDED", kind, item)) for item in items)
                if initial:
                    self._send([_chunk(bookmark(kind, version, initial=True))])
                self._follow(kind, sent, query)
            self._end()
        finally:
            with cluster.changed:
                del cluster.watches[self]
                cluster.changed.notify_all()

    def _follow(self, kind: Kind, sent: int, query: Query) -> None:
        """Send events as they come, until the watch times out or its reader goes."""
        cluster = self.server.cluster
        lines = cluster.logs[kind.plural].lines
        bookmarks = query.get("allowWatchBookmarks") in {"1", "true"}
        ends = time.monotonic() + float(query.get("timeoutSeconds", 3600))
        marks = time.monotonic() + _BOOKMARK_SECONDS
        while not cluster.stopping:
            with cluster.changed:
                cluster.watches[self] = kind.plural, sent
                cluster.changed.notify_all()
                cluster.changed.wait_for(lambda: cluster.stopping or len(lines) > sent, timeout=_LOOK_SECONDS)  # noqa: B023
                new = lines[sent:]
                version = cluster.cluster.version
            self._send(map(_chunk, new))
            sent += len(new)
            now = time.monotonic()
            if bookmarks and (now >= marks or now >= ends) and not new:
                self._send([_chunk(bookmark(kind, version))])
                marks = now + _BOOKMARK_SECONDS
            if now >= ends or (not new and self._is_left()):
                return

    def _is_left(self) -> bool:
        readable, _, _ = select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, MSG_PEEK)

    # --- HTTP --------------------------------------------------------------------------------------------------------

    def _head(self, status: int = HTTPStatus.OK, content_type: str = _JSON, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        if length is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _answer(self, body: bytes, content_type: str = _JSON, status: int = HTTPStatus.OK) -> None:
        self._head(status, content_type, len(body))
        self.wfile.write(body)

    def _send(self, pieces: Iterable[bytes]) -> None:
        waiting: list[bytes] = []
        size = 0
        for piece in pieces:
            waiting.append(piece)
            size += len(piece)
            if size >= _BLOCK:
                self.connection.sendall(b"".join(waiting))
                waiting, size = [], 0
        if waiting:
            self.connection.sendall(b"".join(waiting))

    def _end(self) -> None:
        self.connection.sendall(b"0\r\n\r\n")

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the cluster's time for the Date header."""
        del timestamp
        return formatdate(self.server.cluster.now(), usegmt=True)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        """Say nothing."""


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def framed(head: bytes, items: Iterable[bytes], tail: bytes) -> Iterator[bytes]:
    """Yield the chunks of a list as Go's buffered writer makes them of the writes of its encoder."""
    held = head
    comma = b""
    for item in items:
        held += comma
        comma = b","
        room = _GO_BUFFER - len(held)
        if len(item) <= room:
            held += item
            continue
        yield _chunk(held + item[:room])
        held = item[room:]
        if len(held) > _GO_BUFFER:
            yield _chunk(held)
            held = b""
    yield _chunk(held + tail)


def _envelope(kind: Kind, metadata: Json) -> tuple[bytes, bytes]:
    """Return what stands before and after the items of a list."""
    if kind.custom:
        head = b'{"apiVersion":"%b","items":[' % kind.api_version.encode()
        named = orjson.dumps({"kind": f"{kind.kind}List", "metadata": metadata}, option=orjson.OPT_SORT_KEYS)
        return head, b"],%b\n" % named[1:]
    named = orjson.dumps({"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata})
    return named[:-1] + b',"items":[', b"]}\n"


def _selected(items: list[bytes], selector: str) -> list[bytes]:
    """Return the objects whose labels meet a selector of `key` and `key=value` terms; a copy, since objects change."""
    if not selector:
        return items[:]
    terms = [term.partition("=") for term in selector.split(",")]

    def meets(item: bytes) -> bool:
        labels = orjson.loads(item)["metadata"].get("labels", {})
        return all(key in labels and (not equals or labels[key] == value) for key, equals, value in terms)

    return [item for item in items if meets(item)]


def _too_old(version: int) -> bytes:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": "Expired",
        "code": 410,
    }
    message = f"too old resource version: {version} ({version + 1})"
    return orjson.dumps({"type": "ERROR", "object": {**status, "message": message}}) + b"\n"


_NO_STREAMING: Final = orjson.dumps(
    {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is '
        "forbidden for watch unless the WatchList feature gate is enabled",
        "reason": "Invalid",
        "details": {"group": "meta.k8s.io", "kind": "ListOptions"},
        "code": 422,
    }
)

# --- discovery and what is small -------------------------------------------------------------------------------------

_PATHS: Final = {kind.path: kind for kind in KINDS.values()}
_GROUPS: Final = {kind.group: kind.api_version.rpartition("/")[2] for kind in KINDS.values()}
_VERBS: Final = ("get", "list", "watch")


def _groups(_cluster: ClusterServer, _query: Query, accept: str) -> bytes:
    """Return /apis in the form that the Accept header asks for."""
    groups = {group: version for group, version in _GROUPS.items() if group}
    if _AGGREGATED not in accept:
        plain = [
            {"name": group, "versions": [{"groupVersion": f"{group}/{version}", "version": version}]}
            for group, version in groups.items()
        ]
        return orjson.dumps({"kind": "APIGroupList", "apiVersion": "v1", "groups": plain})
    items = [
        {"metadata": {"name": group}, "versions": [{"version": version, "resources": _aggregated(group)}]}
        for group, version in groups.items()
    ]
    named = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}}
    return orjson.dumps({**named, "items": items})


def _aggregated(group: str) -> list[Json]:
    return [
        {
            "resource": kind.plural,
            "responseKind": {"group": group, "version": _GROUPS[group], "kind": kind.kind},
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "singularResource": kind.kind.lower(),
            "verbs": _VERBS,
        }
        for kind in KINDS.values()
        if kind.group == group
    ]


def _resources(api_version: str) -> Callable[[ClusterServer, Query, str], bytes]:
    """Return the answer to /apis/GROUP/VERSION, with the hashes of the stored versions."""
    resources = [
        {
            "name": kind.plural,
            "singularName": kind.kind.lower(),
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": _VERBS,
            "storageVersionHash": b64encode(sha256(f"{api_version}/{kind.kind}".encode()).digest()[:8]).decode(),
        }
        for kind in KINDS.values()
        if kind.api_version == api_version
    ]
    named = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version}
    body = orjson.dumps({**named, "resources": resources})
    return lambda _cluster, _query, _accept: body


def _metrics(cluster: ClusterServer, _query: Query, _accept: str) -> bytes:
    """Return a small exposition of Kueue."""
    queues = [orjson.loads(queue) for queue in cluster.cluster.objects["clusterqueues"]]
    lines = ["# HELP kueue_pending_workloads The number of pending workloads", "# TYPE kueue_pending_workloads gauge"]
    lines += [
        f'kueue_pending_workloads{{cluster_queue="{queue["metadata"]["name"]}",status="{status}"}} {number}'
        for queue in queues
        for status, number in (("active", queue["status"]["pendingWorkloads"]), ("inadmissible", 0))
    ]
    return "\n".join([*lines, ""]).encode()


_ROUTES: Final[Mapping[str, Callable[[ClusterServer, Query, str], bytes]]] = {
    "/apis": _groups,
    **{kind.path.rpartition("/")[0]: _resources(kind.api_version) for kind in KINDS.values()},
    "/metrics": _metrics,
    "/version": lambda _cluster, _query, _accept: b'{"major":"1","minor":"36","gitVersion":"v1.36.2"}',
    "/bench/events": lambda cluster, query, _accept: cluster.events(int(query["since"])),
    "/bench/requests": lambda cluster, _query, _accept: orjson.dumps(cluster.asked()),
    "/bench/truth": lambda cluster, _query, _accept: orjson.dumps(cluster.truth()),
}


# --- the process -----------------------------------------------------------------------------------------------------


class Control:
    """Steers a server from another process."""

    def __init__(self, url: str) -> None:
        """Name the server."""
        self.url = url

    def change(self, number: int, gangs: int) -> int:
        """Change members, see `ClusterServer.change`; return the version before."""
        return int(self._ask("POST", f"/bench/changes?{urlencode({'number': number, 'gangs': gangs})}"))

    def events(self, since: int) -> list[bytes]:
        """Return the lines of all events after a version."""
        return self._ask("GET", f"/bench/events?since={since}").splitlines()

    def requests(self) -> Mapping[str, Counter[str]]:
        """Return how often what was asked for, see `ClusterServer`."""
        return {plural: Counter(counts) for plural, counts in orjson.loads(self._ask("GET", "/bench/requests")).items()}

    def truth(self) -> Json:
        """Return what is so in the cluster."""
        found: Json = orjson.loads(self._ask("GET", "/bench/truth"))
        return found

    def _ask(self, method: str, target: str) -> bytes:
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=2 * _PUSH_SECONDS)
        try:
            connection.request(method, target)
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status != HTTPStatus.OK:
            msg = f"{target}: HTTP {response.status}"
            raise OSError(msg)
        return body


@contextmanager
def served(size: Size, *, streaming: bool = True) -> Iterator[Control]:
    """Serve a cluster from another process."""
    command = [sys.executable, "-m", "bench.server", "--size", size.name]
    command += [] if streaming else ["--no-streaming"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdin is not None  # noqa: S101
        assert process.stdout is not None  # noqa: S101
        try:
            yield Control(process.stdout.readline().strip())
        finally:
            process.stdin.close()


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m bench.server", description="Serve a generated cluster over HTTP.")
    parser.add_argument("--size", choices=SIZES, default="S")
    parser.add_argument("--no-streaming", action="store_true", help="refuse streaming lists, as older API servers do")
    options = parser.parse_args()
    with ClusterServer(Cluster(SIZES[options.size]), streaming=not options.no_streaming) as server:
        print(server.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
