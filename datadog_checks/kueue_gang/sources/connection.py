# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""One connection a target: a path in, a stream of bytes or a `SourceError` out.

There are two ways to reach a server, and they look alike from outside. `KubeConnection` takes configuration and
credentials from the `kubernetes` package (kubeconfig, in-cluster, exec plugins, client certificates, proxies) and its
connection pool, and nothing else: its typed models cost ten times what reading the bytes costs. `UrlConnection` takes a
plain URL and the Agent's own HTTP options (auth_token, tls_*).

Both ask for plain bytes. gzip made a list of 100,000 pods 1.7 times as expensive for the reader, and the API server
compresses on its own account; the network between an Agent and its API server is faster than either.

Redirects are not followed: an API server sends none, a login page does, and the credential must not go with it. A 401
makes the credentials new once (a service account token lives an hour, and exec plugins have their own clocks) and the
request is sent again.

Each answer carries the server's clock in its Date header. Ages are computed from API timestamps, so this clock is the
one that counts, however far it is from the local one.

Threads may share a connection.
"""

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from logging import ERROR, Logger, LoggerAdapter, LogRecord, getLogger
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

import urllib3
from datadog_checks.base import ConfigurationError
from datadog_checks.base.utils.http import RequestsWrapper

from datadog_checks.kueue_gang.sources.errors import (
    KUBE_API_URL,
    KUBE_CONFIG,
    SourceError,
    Target,
    from_exception,
    from_status,
    harmless,
)
from datadog_checks.kueue_gang.sources.framing import payload
from datadog_checks.kueue_gang.sources.sockets import Sockets, socket_of

Log = Logger | LoggerAdapter[Logger]
Query = Mapping[str, str | int]

JSON: Final = "application/json"

#: A body must be complete after this many timeouts: the timeout itself counts from byte to byte, and a server that
#: sends one byte now and then would hold the run for ever.
BODY_TIMEOUTS: Final = 3
#: Largest body that is read. 500 objects of the greatest size that etcd takes are not more; an endless one is.
MAX_BODY: Final = 512 * 1024 * 1024
#: Largest body of an error: what counts of it is a sentence, and its status.
MAX_REFUSAL: Final = 256 * 1024
_CHUNK: Final = 256 * 1024

_NO_QUERY: Query = {}


class Connection(ABC):
    """A server that can be read.

    `clock_offset` is the server's clock minus the local one in seconds, as of the last answer; None before the first.
    The Date header has whole seconds, so it may be up to one second too small.
    """

    def __init__(self, target: Target, timeout: float, *, clock: Callable[[], float] = time.time) -> None:
        """Prepare a connection; nothing is sent yet. `timeout` in seconds holds for connecting and for each read."""
        self.target = target
        self.timeout = timeout
        self.clock_offset: float | None = None
        self._clock = clock
        self._sockets = Sockets()

    def now(self) -> float:
        """Return the server's time in seconds since the epoch; the local time before the first answer."""
        return self._clock() + (self.clock_offset or 0.0)

    def open(
        self, path: str, query: Query = _NO_QUERY, *, accept: str = JSON, read_timeout: float | None = None
    ) -> urllib3.BaseHTTPResponse:
        """GET `path` and return the open response; the caller reads it and closes it. Raises SourceError.

        `read_timeout` is for streams that may be silent for longer than the timeout, in seconds. Their head may not.
        """
        response = self._answer(path, query, accept)
        if response.status == HTTPStatus.UNAUTHORIZED and self._renew():
            response.close()
            response = self._answer(path, query, accept)
        if response.status != HTTPStatus.OK:
            raise self._refusal(path, response)
        held = socket_of(response)
        if read_timeout is not None and held is not None:
            held.settimeout(read_timeout)
        return response

    def read(self, path: str, query: Query = _NO_QUERY, *, accept: str = JSON, most: int | None = None) -> bytes:
        """GET `path` and return the whole body, of at most `most` bytes. Raises SourceError."""
        return self.body(path, self.open(path, query, accept=accept), most)

    def body(self, path: str, response: urllib3.BaseHTTPResponse, most: int | None = None) -> bytes:
        """Return the whole body of an open response to a GET of `path`, and close it. Raises SourceError."""
        try:
            with self._sockets.reading(response):
                return read_body(response, self.timeout, most)
        except Exception as error:  # noqa: BLE001 - whatever ends a read, the source says so and the run goes on
            raise from_exception(self.target, path, error) from None
        finally:
            # Gives the connection back to the pool where the body is complete, and drops it otherwise.
            response.close()

    def chunks(self, path: str, response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
        """Yield what comes of an open response, as it comes. Raises SourceError where it breaks."""
        try:
            with self._sockets.reading(response):
                yield from payload(response)
        except Exception as error:  # noqa: BLE001 - whatever ends a read, the source says so and the run goes on
            raise from_exception(self.target, path, error) from None

    def abort(self) -> None:
        """End every request that runs, and every later one, from any thread and at once. Idle sockets are closed."""
        self._sockets.abort()
        self._clear()

    def interrupt(self) -> None:
        """End every request that runs now, from any thread and at once."""
        self._sockets.interrupt()

    @abstractmethod
    def close(self) -> None:
        """Close the idle connections. A later request opens new ones."""

    def _clear(self) -> None:
        """Close the idle connections, without waiting for anything."""
        self.close()

    @abstractmethod
    def _get(self, path: str, query: Query, accept: str) -> urllib3.BaseHTTPResponse:
        """Send one request; the body is not read."""

    @abstractmethod
    def _renew(self) -> bool:
        """Read the credentials anew; False where there are none to read."""

    def _answer(self, path: str, query: Query, accept: str) -> urllib3.BaseHTTPResponse:
        try:
            response = self._get(path, query, accept)
        except SourceError:
            raise
        except Exception as error:  # noqa: BLE001 - libraries and exec plugins raise what they like
            raise from_exception(self.target, path, error) from None
        date = _date(response.headers.get("Date"))
        if date is not None:
            self.clock_offset = date.timestamp() - self._clock()
        return response

    def _refusal(self, path: str, response: urllib3.BaseHTTPResponse) -> SourceError:
        try:
            body = read_body(response, self.timeout, MAX_REFUSAL)
        except (urllib3.exceptions.HTTPError, OSError, ValueError):
            # The status is what counts.
            body = b""
        finally:
            response.close()
        said = body.decode("utf-8", "replace")
        return from_status(self.target, path, response.status, said, response.headers.get("Retry-After"))


class KubeConnection(Connection):
    """The API server of a kubeconfig context, or of the cluster that the pod runs in."""

    def __init__(
        self,
        *,
        config_path: str | None = None,
        context: str | None = None,
        timeout: float,
        target: Target = KUBE_CONFIG,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Name the server: a kubeconfig where path or context is given, else the cluster that this runs in.

        A context alone means the kubeconfig of KUBECONFIG or ~/.kube/config. It is read at the first request, so that
        a file that is not there yet is a SourceError of that request.
        """
        super().__init__(target, timeout, clock=clock)
        self._config_path = config_path
        self._context = context
        self._lock = threading.Lock()
        self._login: _Login | None = None

    def close(self) -> None:
        """Forget the credentials and drop the pool's idle connections."""
        with self._lock:
            login, self._login = self._login, None
        if login is not None:
            login.pool.clear()

    def _get(self, path: str, query: Query, accept: str) -> urllib3.BaseHTTPResponse:
        login = self._logged_in()
        headers = {"Accept": accept, "Accept-Encoding": "identity", "User-Agent": "datadog-kueue-gang"}
        # The call runs the hook that re-reads a token file every minute and an exec plugin when its token expires. It
        # knows by which name the configuration holds the credential: that changed between kubernetes 35 and 37.
        credential = login.configuration.auth_settings().get("BearerToken", {}).get("value")
        if credential:
            # A token file may end with a newline, which no header may hold.
            headers["Authorization"] = credential.strip()
        return login.pool.request(
            "GET",
            login.configuration.host.rstrip("/") + path,
            fields={name: str(value) for name, value in query.items()},
            headers=headers,
            preload_content=False,
            retries=False,
            timeout=urllib3.Timeout(connect=self.timeout, read=self.timeout),
        )

    def _clear(self) -> None:
        # Without the lock, which whoever logs in holds while a plugin runs.
        login = self._login
        if login is not None:
            login.pool.clear()

    def _renew(self) -> bool:
        self.close()
        return True

    def _logged_in(self) -> "_Login":
        with self._lock:
            if self._login is None:
                self._login = _log_in(self._config_path, self._context, self.target)
                self._sockets.track(self._login.pool)
            return self._login


@dataclass(frozen=True, slots=True)
class _Login:
    """What the kubernetes package made of a configuration: its own Configuration, and the pool for it."""

    configuration: Any
    pool: urllib3.PoolManager


def _log_in(config_path: str | None, context: str | None, target: Target) -> _Login:
    # Here and not above: the import takes 0.6 s and 49 MB, and a check with kube_api_url has no use for it.
    from kubernetes import config  # noqa: PLC0415
    from kubernetes.client import Configuration  # noqa: PLC0415
    from kubernetes.client.rest import RESTClientObject  # noqa: PLC0415

    configuration = Configuration()
    # kubernetes 35 reads NO_PROXY and forgets it in the next line, which sends the traffic of an Agent in the cluster
    # to the company's proxy.
    configuration.no_proxy = configuration.no_proxy or os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    try:
        if config_path or context:
            # persist_config would write renewed tokens into a file that is not ours.
            load = config.load_kube_config
            with _complaints() as complaints:
                load(config_path, context, configuration, persist_config=False)  # type: ignore[no-untyped-call]
            if complaints:
                raise config.ConfigException(complaints[0])  # noqa: TRY301 - told as what the load itself raises
        else:
            config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
    except Exception as error:  # noqa: BLE001 - a kubeconfig can be wrong in any way
        # The package takes any YAML for a kubeconfig, and trips over what it is not.
        said = "it is no kubeconfig" if isinstance(error, TypeError | AttributeError) else str(error)
        # KUBECONFIG may name several files.
        if config_path and not any(map(os.path.exists, config_path.split(os.pathsep))):
            said = f"{config_path} does not exist"
        msg = f"{target.name}: no configuration ({harmless(said or type(error).__name__)})"
        raise SourceError("unreachable", msg, target.absent) from None  # noqa: EM101 - a reason, no text
    return _Login(configuration, RESTClientObject(configuration).pool_manager)


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """Collect what the kubernetes package logs as an error in this thread.

    Of an exec plugin that failed it only logs the reason, and goes on without a credential: the server's refusal would
    then be told in place of the cause.
    """
    found: list[str] = []
    here = threading.get_ident()

    def keep(record: LogRecord) -> bool:
        ours = record.thread == here and record.module == "kube_config" and record.levelno >= ERROR
        if ours:
            found.append(record.getMessage())
        return not ours

    # The package logs on the root logger itself, which is where a filter of a logger counts.
    root = getLogger()
    root.addFilter(keep)
    try:
        yield found
    finally:
        root.removeFilter(keep)


class _Http(RequestsWrapper):  # type: ignore[misc] # the base package has no types
    """The Agent's HTTP client. It answers a TLS error by looking for certificates on a connection of its own."""

    sockets: Sockets

    def fetch_intermediate_certs(self, hostname: str, port: int = 443) -> list[bytes]:
        """Return the certificates that may be missing; none where the abort was the error."""
        return [] if self.sockets.aborted else cast("list[bytes]", super().fetch_intermediate_certs(hostname, port))


class UrlConnection(Connection):
    """A server at a plain URL, with the Agent's HTTP options."""

    HEADERS: Mapping[str, str] = {"Accept-Encoding": "identity"}

    def __init__(
        self,
        url: str,
        options: Mapping[str, Any],
        *,
        timeout: float,
        target: Target = KUBE_API_URL,
        init_config: Mapping[str, Any] | None = None,
        log: Log | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Name the server: an http or https URL without query.

        `options` are the Agent's HTTP options (auth_token, tls_*, ...), `init_config` its defaults for them. Raises
        ConfigurationError for a URL or options that cannot be.
        """
        super().__init__(target, timeout, clock=clock)
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            msg = f"{harmless(url)!r} is no URL of the form http(s)://host[:port][/path] ({target.name})"
            raise ConfigurationError(msg)
        # Out of the URL, so that no log of a library can show it.
        self._base = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
        options_ = {
            "username": unquote(parts.username) if parts.username else None,
            "password": unquote(parts.password) if parts.password else None,
            **options,
            "timeout": timeout,
            "connect_timeout": None,
            "read_timeout": None,
            "allow_redirects": False,
            "persist_connections": True,
        }
        # Made here so that a wrong option shows at load; all threads share it.
        http = _Http(options_, dict(init_config or {}), logger=log or getLogger(__name__))
        http.sockets = self._sockets
        self._sockets.track_session(http.session)
        self._session = _Session(http)

    def close(self) -> None:
        """Close the idle connections."""
        self._session.http.session.close()

    def _get(self, path: str, query: Query, accept: str) -> urllib3.BaseHTTPResponse:
        self._session.authorize(self._base)
        response = self._session.http.get(
            self._base + path,
            params=dict(query),
            stream=True,
            timeout=(self.timeout, self.timeout),
            extra_headers={"Accept": accept, **self.HEADERS},
        ).raw
        # requests would decode in a layer above this one.
        response.decode_content = True
        return cast("urllib3.BaseHTTPResponse", response)

    def _renew(self) -> bool:
        return self._session.expire()


class _Session:
    """A RequestsWrapper whose auth_token is in our hands.

    The wrapper itself reads the token anew and repeats the request on each answer of 400 and more, so that a 404 costs
    two requests and a 429 is answered by the very thing it asks to stop.
    """

    def __init__(self, http: Any) -> None:  # noqa: ANN401 - the base package has no types
        self.http = http
        self._token_handler, http.auth_token_handler = http.auth_token_handler, None
        self._lock = threading.Lock()
        self._expired = False

    def authorize(self, url: str) -> None:
        """Put the token into the headers; it is read from its source once, and again after `expire`."""
        if self._token_handler is None:
            return
        with self._lock:
            # The word `error` is what makes the base's readers read again.
            reread = {"error": "401"} if self._expired else {}
            self._token_handler.poll(method="get", url=url, default_options=self.http.options, **reread)
            self._expired = False

    def expire(self) -> bool:
        """Let the token be read again; False where there is none."""
        self._expired = self._token_handler is not None
        return self._expired


def read_body(response: urllib3.BaseHTTPResponse, timeout: float, most: int | None = None) -> bytes:
    """Return the whole body of an open response, whose reads have a `timeout` in seconds.

    Raises TimeoutError after BODY_TIMEOUTS of it, ValueError for a body of more than `most` bytes (MAX_BODY where none
    are given), and what urllib3 raises.
    """
    most = most or MAX_BODY
    seconds = BODY_TIMEOUTS * timeout
    deadline = time.monotonic() + seconds
    body = bytearray()
    while chunk := response.read1(_CHUNK, decode_content=True):
        body += chunk
        if len(body) > most:
            msg = f"more than {most} bytes"
            raise ValueError(msg)
        if time.monotonic() > deadline:
            msg = f"the body took more than {seconds:g} s"
            raise TimeoutError(msg)
    return bytes(body)


def _date(text: str | None) -> datetime | None:
    """Return the time of a Date header, None where it is absent or no date."""
    try:
        return parsedate_to_datetime(text) if text else None
    except ValueError:
        return None
