# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The open sockets of a connection, so that any thread can end what another one waits for.

A reader may be connecting, in a handshake, wait for the head of an answer, or read a stream that lasts minutes. Neither
urllib3 nor requests can interrupt that; shutting the socket down does, at once, and the reader gets an error as from a
broken network. The sockets are found where they are made: each connection of a pool makes its own, and an answer that
has taken the socket over (Connection: close) tells while it is read. Only the look-up of a name cannot be ended.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakSet

import urllib3
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.sessions import Session
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError
from urllib3.util.connection import allowed_gai_family


class Sockets:
    """The sockets that are open now."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._connections: WeakSet[HTTPConnection] = WeakSet()
        self._held: set[socket.socket] = set()
        self._aborted = False
        self._pools = _pool_classes(self)

    def track(self, manager: urllib3.PoolManager) -> None:
        """Let a pool manager make connections that are known here."""
        manager.pool_classes_by_scheme = self._pools

    def track_session(self, session: Session) -> None:
        """Let a session of requests make connections that are known here, also those of adapters mounted later.

        The Agent's wrapper mounts its adapter again for each https request, which is no change and must not look like
        one to other threads that use the session meanwhile.
        """
        known: set[int] = set()

        def mount(prefix: str | bytes, adapter: BaseAdapter) -> None:
            if session.adapters.get(str(prefix)) is adapter and id(adapter) in known:
                return
            known.add(id(adapter))
            if isinstance(adapter, HTTPAdapter):
                self.track(adapter.poolmanager)
            Session.mount(session, prefix, adapter)

        for prefix, adapter in list(session.adapters.items()):
            mount(prefix, adapter)
        session.mount = mount  # type: ignore[method-assign]

    @contextmanager
    def reading(self, response: Any) -> Iterator[None]:  # noqa: ANN401 - a urllib3 response
        """Know the socket of an answer while it is read."""
        held = socket_of(response)
        if held is None:
            yield
            return
        self.keep(held)
        try:
            yield
        finally:
            self.drop(held)

    @contextmanager
    def keeping(self, held: socket.socket) -> Iterator[None]:
        """Know a socket for a while. Raises ConnectionAbortedError after the abort."""
        self.keep(held)
        try:
            if self._aborted:
                raise ConnectionAbortedError
            yield
        finally:
            self.drop(held)

    def keep(self, held: socket.socket) -> None:
        """Know a socket until it is dropped."""
        with self._lock:
            self._held.add(held)
        self.check(held)

    def drop(self, held: socket.socket) -> None:
        """Know a socket no more."""
        with self._lock:
            self._held.discard(held)

    def add(self, connection: HTTPConnection) -> None:
        """Know a connection as long as it exists."""
        with self._lock:
            self._connections.add(connection)

    def abort(self) -> None:
        """Shut all sockets down, and those that are opened from now on."""
        self._aborted = True
        self.interrupt()

    def interrupt(self) -> None:
        """Shut all sockets down that are open now."""
        with self._lock:
            found = {connection.sock for connection in self._connections if connection.sock is not None} | self._held
        for one in found:
            _shut(one)

    @property
    def aborted(self) -> bool:
        """Tell whether all was ended."""
        return self._aborted

    def check(self, held: Any) -> None:  # noqa: ANN401 - a plain or TLS socket
        """Shut a socket down that was opened after the abort."""
        if self._aborted and held is not None:
            _shut(held)


def socket_of(response: Any) -> Any:  # noqa: ANN401 - a urllib3 response; a plain or TLS socket
    """Return the socket that an answer is read from, None where it cannot be found."""
    # http.client: the response's buffer, its raw reader, and the socket of that.
    return getattr(getattr(getattr(getattr(response, "_fp", None), "fp", None), "raw", None), "_sock", None)


def _shut(held: Any) -> None:  # noqa: ANN401 - a plain or TLS socket
    with suppress(OSError, ValueError):
        held.shutdown(socket.SHUT_RDWR)


class _Dialling(HTTPConnection):
    """Connects as urllib3 does, but with a socket that is known while it connects."""

    sockets: Sockets

    def _new_conn(self) -> socket.socket:
        try:
            return self._dial()
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"no connection to {self.host} in {self.timeout} s") from error
        except OSError as error:
            raise NewConnectionError(self, str(error)) from error

    def _dial(self) -> socket.socket:
        last = OSError("no address")
        host = self._dns_host.strip("[]")
        found = socket.getaddrinfo(host, self.port, allowed_gai_family(), socket.SOCK_STREAM)
        for family, kind, protocol, _, address in found:
            made = socket.socket(family, kind, protocol)
            try:
                for option in self.socket_options or ():
                    made.setsockopt(*option)
                made.settimeout(self.timeout)
                if self.source_address:
                    made.bind(self.source_address)
                with self.sockets.keeping(made):
                    made.connect(address)
            except OSError as error:
                made.close()
                last = error
            else:
                return made
        raise last


def _pool_classes(sockets: Sockets) -> dict[str, type[HTTPConnectionPool]]:
    """Return pools whose connections are known to `sockets`, by scheme."""

    class Plain(_Dialling):
        def connect(self) -> None:
            super().connect()
            sockets.add(self)
            sockets.check(self.sock)

    class Secure(_Dialling, HTTPSConnection):
        _handshaking: socket.socket | None = None

        def _new_conn(self) -> socket.socket:
            made = super()._new_conn()
            # The handshake takes the socket over before the connection has it; a duplicate ends both.
            self._handshaking = made.dup()
            sockets.keep(self._handshaking)
            return made

        def connect(self) -> None:
            try:
                super().connect()
            finally:
                if self._handshaking is not None:
                    sockets.drop(self._handshaking)
                    self._handshaking.close()
            sockets.add(self)
            sockets.check(self.sock)

    Plain.sockets = Secure.sockets = sockets

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}
