# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""An HTTP server whose faults are a table that may change while it runs.

A server of the lab says what a healthy one would answer (`FaultyServer.answer`); a row of the table makes it answer
wrongly, or answer rightly in a way that no client likes. What is said is the first part of a fault: a status, a page
where JSON was due, a redirect. How it is said is the second: cut in the middle, byte by byte, the head and then
nothing, nothing at all, a connection that is reset. The port is one for all paths, so a row names the paths that it is
about, and where it matters the kind of request: of a list that works the later pages may break, of a resource only the
watch.

An answer is a body, or a stream that is sent in chunks as it comes (a watch). Everything that blocks ends when the
client hangs up or the server stops, so that no thread stays behind.
"""

import socket
import ssl
import struct
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from email.utils import format_datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from select import select
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from urllib.parse import parse_qsl, urlsplit

import orjson

Query = Mapping[str, str]

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
EXPOSITION: Final = "text/plain; version=0.0.4; charset=utf-8; escaping=values"

_STATUS_REASONS: Final = {
    401: "Unauthorized",
    403: "Forbidden",
    405: "MethodNotAllowed",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    504: "Timeout",
}
#: How often what blocks looks whether its client is still there.
_LOOK_SECONDS: Final = 0.05


class Answer(NamedTuple):
    """An answer, and the way it is sent: `whole`, or another row of `_WAYS`. A `stream` takes the place of the body."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    way: str = "whole"
    stream: Generator[bytes, None, None] | None = None


class Request(NamedTuple):
    """A request that was answered.

    `status` is 0 where nothing was sent, `headers` are without Authorization, `client` is the port of the connection.
    """

    method: str
    path: str
    query: Query
    status: int
    headers: Mapping[str, str]
    client: int

    @property
    def kind(self) -> str:
        """What was asked for: see `kind_of`."""
        return kind_of(self.query)


#: What goes wrong: an HTTP status, the name of a row of `_WRONG_ANSWERS` or `_WAYS`, or an answer of one's own.
Fault = int | str | Answer


class FaultRow(NamedTuple):
    """A fault: the beginning of the path and query it is about, how often it happens (None: always), and to which kind.

    `only` is empty, or a kind of request as `kind_of` names it. The fault `whole` is none: a row with it keeps the next
    rows waiting.
    """

    prefix: str
    fault: Fault
    times: int | None = None
    only: str = ""


#: A row, or the beginning of one.
Row = FaultRow | tuple[str, Fault] | tuple[str, Fault, int | None] | tuple[str, Fault, int | None, str]


class CutError(Exception):
    """Raised by a stream to break its connection."""


def kind_of(query: Query) -> str:
    """Return what a request asks for: `list`, a later `page` of one, `stream` (a streaming list) or `watch`."""
    if "watch" in query:
        return "stream" if "sendInitialEvents" in query else "watch"
    return "page" if "continue" in query else "list"


class FaultyServer(ABC):
    """A server on a port of 127.0.0.1. Use it as a context manager.

    `faults` may be assigned while it runs; the first row that matches counts. `log` holds the requests. With `token`, a
    request needs it as bearer token. With `certificate` (PEM, with its key) it is https.
    """

    def __init__(
        self,
        faults: Iterable[Row] = (),
        *,
        token: str | None = None,
        certificate: Path | None = None,
        port: int = 0,
        host: str = "127.0.0.1",
    ) -> None:
        """Open the port, a free one where none is given; requests are answered from `__enter__` on."""
        self.token = token
        self.log: list[Request] = []
        self.stopping = threading.Event()
        #: Streams that are being sent, by path.
        self.open: Counter[str] = Counter()
        #: The connections that are open.
        self.connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.faults = list(faults)
        self._server = _Server((host, port), Handler)
        self._server.faulty = self
        scheme = "http"
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.certify(certificate)
            # The handshake belongs to the request's own thread.
            self._server.socket = self._tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
            scheme = "https"
        self.port = self._server.server_port
        self.url = f"{scheme}://127.0.0.1:{self.port}"

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
        self.drop()

    def certify(self, certificate: Path) -> None:
        """Use this certificate for the connections to come."""
        self._tls.load_cert_chain(certificate)

    def drop(self) -> None:
        """Break all connections."""
        with self._lock:
            found = list(self.connections)
        for one in found:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    @property
    def faults(self) -> list[Row]:
        """What goes wrong."""
        return self._faults

    @faults.setter
    def faults(self, rows: Iterable[Row]) -> None:
        with self._lock:
            self._faults = list(rows)
            self._used: Counter[int] = Counter()

    @abstractmethod
    def now(self) -> datetime:
        """Return the time for the Date header."""

    @abstractmethod
    def answer(self, path: str, query: Query, headers: Mapping[str, str]) -> Answer:
        """Return the answer of a healthy server."""

    def requests(self, prefix: str, kind: str = "") -> list[Request]:
        """Return the logged requests whose path begins with `prefix`, of one kind or of all."""
        return [one for one in self.log if one.path.startswith(prefix) and kind in {"", one.kind}]

    def fault(self, target: str) -> Fault | None:
        """Return what goes wrong with a request for `target` (path and query), and count it."""
        kind = kind_of(dict(parse_qsl(urlsplit(target).query)))
        with self._lock:
            for number, row in enumerate(FaultRow(*row) for row in self._faults):
                if target.startswith(row.prefix) and row.only in {"", kind}:
                    self._used[number] += 1
                    if row.times is None or self._used[number] <= row.times:
                        return row.fault
        return None

    def sickness(self, headers: Mapping[str, str]) -> Fault | None:
        """Return what goes wrong with a request by its headers, where a server has such faults too."""
        del headers
        return None

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Tell whether a request has the token. The name of the scheme may be written in any way (RFC 9110, 11.1)."""
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        return self.token is None or (scheme.lower() == "bearer" and token == self.token)

    def respond(self, target: str, headers: Mapping[str, str]) -> Answer:
        """Return the answer to a request for `target`, right or wrong."""
        url = urlsplit(target)
        fault = self.fault(target) or self.sickness(headers)
        if isinstance(fault, Answer):
            return fault
        if isinstance(fault, int):
            return status(fault)
        if fault in _WRONG_ANSWERS:
            return _WRONG_ANSWERS[fault]
        return self.answer(url.path, dict(parse_qsl(url.query)), headers)._replace(way=fault or "whole")

    def count(self, path: str, step: int) -> None:
        """Count a stream that begins or ends."""
        with self._lock:
            self.open[path] += step


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    #: A check opens a connection a resource at once.
    request_queue_size = 128
    faulty: FaultyServer

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Say nothing: clients that hang up are what the faults are about."""


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    # Head and body are two packets, and the second would wait 40 ms for the acknowledgement of the first.
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        """Begin."""
        super().setup()
        self.server.faulty.connections.add(self.connection)

    def finish(self) -> None:
        """End."""
        self.server.faulty.connections.discard(self.connection)
        super().finish()

    def do_GET(self) -> None:
        """Answer a GET."""
        faulty, url = self.server.faulty, urlsplit(self.path)
        answer = faulty.respond(self.path, dict(self.headers))
        shown = {name: value for name, value in self.headers.items() if name.lower() != "authorization"}
        sent = 0 if answer.way in _UNANSWERED else answer.status
        query = dict(parse_qsl(url.query))
        faulty.log.append(Request(self.command, url.path, query, sent, shown, self.client_address[1]))
        faulty.count(url.path, int(answer.stream is not None))
        try:
            _WAYS[answer.way](self, answer)
        finally:
            faulty.count(url.path, -int(answer.stream is not None))
            if answer.stream is not None:
                answer.stream.close()

    def whole(self, answer: Answer) -> None:
        """Send the answer as it is."""
        self.head(answer)
        if answer.stream is None:
            self.wfile.write(answer.body)
            return
        try:
            for block in answer.stream:
                if block:
                    self.chunk(block)
                elif self.alone():
                    self.close_connection = True
                    return
        except CutError:
            self.close_connection = True
            return
        self.wfile.write(b"0\r\n\r\n")

    def cut(self, answer: Answer) -> None:
        """Promise the whole answer, send half of it, and close. Of a stream that is its first event and a half."""
        self.head(answer)
        if answer.stream is None:
            self.wfile.write(answer.body[: len(answer.body) // 2])
        else:
            first, second = next(answer.stream, b""), next(answer.stream, b"")
            self.chunk((first + second[: len(second) // 2]) if second else first[: len(first) // 2] or b"{")
        self.close_connection = True

    def slow(self, answer: Answer) -> None:
        """Send one byte now and then."""
        self.head(answer)
        send = self.wfile.write if answer.stream is None else self.chunk
        for byte in answer.body if answer.stream is None else next(answer.stream, b"{"):
            send(bytes((byte,)))
            if self.alone():
                break
        self.close_connection = True

    def mute(self, answer: Answer) -> None:
        """Send the head and nothing more."""
        self.head(answer)
        self.silent(answer)

    def silent(self, _answer: Answer) -> None:
        """Never answer."""
        while not self.alone():
            pass
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
        if answer.stream is None:
            self.send_header("Content-Length", str(len(answer.body)))
        else:
            self.send_header("Transfer-Encoding", "chunked")
        for name, value in answer.headers:
            self.send_header(name, value)
        self.end_headers()

    def chunk(self, block: bytes) -> None:
        """Send a piece of a stream."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(block), block))

    def alone(self) -> bool:
        """Wait a moment; tell whether the client has hung up, or the server stops."""
        # A client that waits for its answer sends nothing, so whatever can be read is the end.
        readable, _, _ = select([self.connection], [], [], _LOOK_SECONDS)
        return bool(readable) or self.server.faulty.stopping.is_set()

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the server's time for the Date header, rounded down as a server does."""
        del timestamp
        return format_datetime(self.server.faulty.now().replace(microsecond=0), usegmt=True)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        """Say nothing: `FaultyServer.log` has it."""


#: Faults in what is said.
_WRONG_ANSWERS: Final[Mapping[str | None, Answer]] = {
    "html": Answer(200, b"<!DOCTYPE html>\n<html><body>Please log in</body></html>\n", "text/html; charset=utf-8"),
    "empty": Answer(200, b""),
    "garbage": Answer(200, b'{"kind": "PodList", "items": {"metadata": [1, 2'),
    "redirect": Answer(302, b"", TEXT, (("Location", "https://login.example.com/?token=s3cr3t"),)),
}
#: How it is said; all but the first are faults.
_WAYS: Final[Mapping[str, Callable[[Handler, Answer], None]]] = {
    "whole": Handler.whole,
    "cut": Handler.cut,
    "slow": Handler.slow,
    "mute": Handler.mute,
    "silent": Handler.silent,
    "refuse": Handler.refuse,
}
_UNANSWERED: Final = frozenset({"silent", "refuse"})

NOT_FOUND: Final = Answer(404, b"404 page not found\n", TEXT)


def status(code: int, message: str = "", headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    """Return an error in the words of an API server."""
    return Answer(code, orjson.dumps(status_object(code, message)), headers=headers)


def status_object(code: int, message: str = "") -> dict[str, Any]:
    """Return the Status object of an error."""
    found = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code}
    return found | {"message": message or HTTPStatus(code).phrase, "reason": _STATUS_REASONS.get(code, "")}


def exposition(text: bytes | None) -> Answer:
    """Return an exposition of metrics, 404 where there is none."""
    return NOT_FOUND if text is None else Answer(200, text, EXPOSITION)
