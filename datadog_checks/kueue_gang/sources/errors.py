# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Why a source could not be read, and what its owner can do about it.

Every source ends either with data or with one `SourceError`. Its `reason` is a word of a closed list, the tag of
`source.up`; its text names what was asked, what came back and the setting or RBAC rule that mends it. Two tables map
what can happen to such an error: one for HTTP statuses, one for exceptions. requests and urllib3 wrap a cause two to
four times, so the table of exceptions is held against the whole chain of causes, first row first.

The text goes to logs, to `agent status` and to service checks. So all that comes from outside (bodies, messages of
libraries) passes `harmless`, which takes out credentials, the values of URL queries and the userinfo of URLs, and cuts
what is long. For the same reason a SourceError is raised `from None`: a chained traceback would show the raw text.
"""

import re
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from typing import Final, Literal, Self

import orjson
import requests.exceptions
import urllib3.exceptions

Reason = Literal["forbidden", "unauthorized", "not_installed", "unreachable", "invalid"]

#: Longest piece of foreign text in an error.
MAX_TEXT: Final = 200

_SECRETS: Final = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[^\s'\",;]+"), r"\1 ***"),
    (re.compile(r"\beyJ[\w-]{5,}(?:\.[\w-]*){0,2}"), "***"),
    (re.compile(r"(?<=://)[^/@\s?#]*@"), ""),
    (re.compile(r"(?i)([?&][\w.%\[\]-]+=)[^&\s'\"<>)]*"), r"\1***"),
    (re.compile(r"(?i)((?:pass(?:word|wd)|secret|token|key(?:-data)?)[\"']?\s*[:=]\s*)[\"']?[^\s\"',}]+"), r"\1***"),
)


def harmless(text: str) -> str:
    """Return foreign `text` in one line, without credentials, query values and URL userinfo, cut at 200 characters."""
    # The cut comes last: cut first, the head of a token could be left without the word that gives it away. A longer
    # text than this is never read, so the expressions see a bounded one.
    clean = " ".join(text[: 20 * MAX_TEXT].split())
    for pattern, substitute in _SECRETS:
        clean = pattern.sub(substitute, clean)
    return clean if len(clean) <= MAX_TEXT else clean[:MAX_TEXT] + "..."


class SourceError(Exception):
    """A source could not be read.

    `reason` is one of forbidden, unauthorized, not_installed, unreachable, invalid; `advice` what its owner can do.
    not_installed is what only discovery can tell: a 404 alone may come from any server.
    `status` is the HTTP status where there was an answer, `retry_after` the seconds that the server asks to wait
    (429 and 503 only). str() is safe to show.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        advice: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        """Make the error; `message` must not hold foreign text that did not pass `harmless`."""
        super().__init__(f"{message}; {advice}")
        self.reason: Reason = reason
        self.advice = advice
        self.status = status
        self.retry_after = retry_after

    def bare(self) -> Self:
        """Return it without where it was raised. Those frames hold the answer and its connection while it is kept."""
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)


@dataclass(frozen=True, slots=True)
class Target:
    """What is read, in the words that an advice needs.

    `absent` is for a configuration that cannot be used, `later` for a server that will answer at another time,
    `forbidden` for a 403 that no RBAC rule of the check would mend (empty: one would).
    """

    name: str
    credential: str
    tls: str
    wrong: str
    timeout: str = "kube_timeout"
    absent: str = "run in a pod with a service account, or set kube_config_path or kube_api_url"
    later: str = "it is tried again"
    forbidden: str = ""


KUBE_CONFIG: Final = Target(
    name="Kubernetes API",
    credential="check the token of the pod's service account, or the user in kube_config_path",
    tls="check the certificate authority of the kubeconfig or of the pod's service account",
    wrong="is this the Kubernetes API?",
)
KUBE_API_URL: Final = Target(
    name="Kubernetes API",
    credential="check auth_token in kube_api_options",
    tls="set tls_ca_cert (or tls_verify: false) in kube_api_options",
    wrong="is this the Kubernetes API? Check kube_api_url",
)
KUEUE: Final = Target(
    name="Kueue metrics",
    credential="set auth_token (a file reader and a header writer); Kueue refuses anonymous reads",
    tls="set tls_ca_cert, or tls_verify: false where Kueue makes its own certificate (its default)",
    wrong="is this Kueue's metrics Service (https, port 8443, path /metrics)? Check openmetrics_endpoint",
    timeout="timeout",
)
SCHEDULER: Final = Target(
    name="scheduler metrics",
    credential="set auth_token in scheduler_metrics; the scheduler refuses anonymous reads",
    tls="set tls_ca_cert (or tls_verify: false) in scheduler_metrics",
    wrong="is this the scheduler's metrics endpoint (https, port 10259, path /metrics)? Check scheduler_metrics.url",
)


def _scraped(option: str, name: str, what: str) -> Target:
    """Return the words for pods that an option lets be scraped."""
    return Target(
        name=name,
        credential=f"set auth_token in {option}",
        tls=f"set tls_ca_cert (or tls_verify: false) in {option}; pods are asked by their IP",
        wrong=f"is this {what}? Check label_selector, port and path in {option}",
        timeout=f"timeout in {option}",
        forbidden=f"check auth_token in {option}",
    )


def _queried(option: str, name: str) -> Target:
    """Return the words for a Prometheus server that an option lets be asked."""
    return Target(
        name=name,
        credential=f"check auth_token in {option}",
        tls=f"set tls_ca_cert (or tls_verify: false) in {option}",
        wrong=f"is this the API of a Prometheus server? Check prometheus_url and query in {option}",
        timeout=f"timeout in {option}",
        forbidden=f"check auth_token in {option}",
    )


ACTIVITY_PODS: Final = _scraped("activity", "GPU metrics", "the metrics endpoint of dcgm-exporter")
ACTIVITY_QUERY: Final = _queried("activity", "Prometheus (activity)")
TRAINING_PODS: Final = _scraped("training", "training metrics", "the metrics endpoint of the training pods")
TRAINING_QUERY: Final = _queried("training", "Prometheus (training)")

#: Advices; {target.*} and {rule} are filled in.
_RBAC = "{rule}"
_CREDENTIAL = "{target.credential}"
_TLS = "{target.tls}"
_WRONG = "{target.wrong}"
_LATER = "the server is busy or starting; {target.later}"
_NETWORK = "check the address, the network policy and that the server runs"

_STATUSES: Final[dict[int, tuple[Reason, str]]] = {
    HTTPStatus.UNAUTHORIZED: ("unauthorized", _CREDENTIAL),
    HTTPStatus.FORBIDDEN: ("forbidden", _RBAC),
    HTTPStatus.GONE: ("unreachable", "the list changed while it was read; {target.later}"),
    HTTPStatus.TOO_MANY_REQUESTS: ("unreachable", _LATER),
}
_STATUS_CLASSES: Final[dict[int, tuple[Reason, str]]] = {
    3: ("invalid", "redirects are not followed, so that no credential goes elsewhere; {target.wrong}"),
    5: ("unreachable", _LATER),
}
_OTHER_STATUS: Final[tuple[Reason, str]] = ("invalid", _WRONG)

#: Statuses whose Retry-After counts.
_PATIENT: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})

_Row = tuple[tuple[type[BaseException], ...], Reason, str, str]
_EXCEPTIONS: Final[tuple[_Row, ...]] = (
    # A server that stops in the middle of a handshake has no certificate to complain about.
    ((ssl.SSLEOFError, ssl.SSLZeroReturnError), "unreachable", "the connection broke", _NETWORK),
    (
        (ssl.SSLError, urllib3.exceptions.SSLError, requests.exceptions.SSLError),
        "unreachable",
        "TLS failed",
        _TLS,
    ),
    (
        (urllib3.exceptions.ProxyError, requests.exceptions.ProxyError),
        "unreachable",
        "the proxy failed",
        "check the proxy, or leave the server out of it (NO_PROXY, skip_proxy)",
    ),
    ((socket.gaierror, urllib3.exceptions.NameResolutionError), "unreachable", "unknown host name", _NETWORK),
    ((ConnectionRefusedError,), "unreachable", "connection refused", _NETWORK),
    # To urllib3 this one is a timeout as well.
    ((urllib3.exceptions.NewConnectionError,), "unreachable", "no connection", _NETWORK),
    (
        (TimeoutError, urllib3.exceptions.TimeoutError, requests.exceptions.Timeout),
        "unreachable",
        "no answer in time",
        _NETWORK + ", or raise {target.timeout}",
    ),
    (
        (urllib3.exceptions.DecodeError, requests.exceptions.ContentDecodingError),
        "invalid",
        "the compressed answer cannot be read",
        _WRONG,
    ),
    (
        (
            ConnectionError,
            HTTPException,
            urllib3.exceptions.ProtocolError,
            requests.exceptions.ChunkedEncodingError,
        ),
        "unreachable",
        "the connection broke",
        _NETWORK,
    ),
    ((FileNotFoundError, PermissionError), "unauthorized", "a credential cannot be read", _CREDENTIAL),
    (
        (requests.exceptions.ConnectionError, urllib3.exceptions.HTTPError, OSError),
        "unreachable",
        "no connection",
        _NETWORK,
    ),
)
#: What OpenSSL says of an answer that is no TLS.
_PLAIN: Final = "WRONG_VERSION_NUMBER"
_PLAIN_HTTP: Final[tuple[Reason, str, str]] = (
    "unreachable",
    "TLS failed",
    "the server speaks plain HTTP: use http://",
)
_OTHER_EXCEPTION: Final[tuple[Reason, str, str]] = ("invalid", "no valid answer", _WRONG)

_RESOURCE_PATH: Final = re.compile(r"/api(?:s/(?P<group>[^/]+))?/[^/]+/(?P<plural>[^/]+)")


def from_status(target: Target, path: str, status: int, body: str, retry_after: str | None = None) -> SourceError:
    """Return the error for an answer of `status` other than 200, read from `path` of `target`."""
    reason, advice = _STATUSES.get(status) or _STATUS_CLASSES.get(status // 100, _OTHER_STATUS)
    said = harmless(_spoken(body))
    patient = status in _PATIENT and retry_after is not None and retry_after.isdecimal()
    return SourceError(
        reason,
        f"{target.name} {path}: HTTP {status}" + (f", {said}" if said else ""),
        advice.format(target=target, rule=_rule(target, path)),
        status=status,
        retry_after=float(retry_after) if patient and retry_after is not None else None,
    )


def from_exception(target: Target, path: str, error: BaseException) -> SourceError:
    """Return the error for an exception that came instead of an answer from `path` of `target`."""
    causes = tuple(_causes(error))
    if any(isinstance(cause, ssl.SSLError) and getattr(cause, "reason", None) == _PLAIN for cause in causes):
        reason, what, advice = _PLAIN_HTTP
    else:
        reason, what, advice = next(
            (row[1:] for row in _EXCEPTIONS if any(isinstance(cause, row[0]) for cause in causes)),
            _OTHER_EXCEPTION,
        )
    return SourceError(
        reason,
        f"{target.name} {path}: {what} ({harmless(str(causes[-1]) or type(causes[-1]).__name__)})",
        advice.format(target=target, rule=_rule(target, path)),
    )


def invalid(target: Target, path: str, what: str) -> SourceError:
    """Return the error for an answer of status 200 that is not what was asked; `what` says what came instead."""
    return SourceError("invalid", f"{target.name} {path}: {harmless(what)}", target.wrong)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception and what it wraps, outermost first.

    requests keeps the cause in `args`, urllib3's MaxRetryError in `reason`, the rest in `__cause__`.
    """
    inner: BaseException | None = error
    while inner is not None:
        yield inner
        held = (getattr(inner, "reason", None), *inner.args, inner.__cause__)
        inner = next((cause for cause in held if isinstance(cause, BaseException)), None)


def _rule(target: Target, path: str) -> str:
    """Return what lets `path` be read: an RBAC rule in the words of a Role, where no other advice is known."""
    if target.forbidden:
        return target.forbidden
    match = _RESOURCE_PATH.fullmatch(path)
    rule = (
        f"verb get on nonResourceURLs {path}"
        if match is None
        else f'verbs get, list, watch on resources {match["plural"]} of apiGroups "{match["group"] or ""}"'
    )
    return f"allow {rule}, see deploy/rbac.yaml"


def _spoken(body: str) -> str:
    """Return what an error body says: the message of a Kubernetes Status, the error of a Prometheus, else the text.

    A page is told only as such.
    """
    try:
        status = orjson.loads(body)
    except ValueError:
        return "an HTML page" if body.lstrip().startswith("<") else body
    told = [status.get(key) for key in ("message", "error")] if isinstance(status, dict) else []
    return next((text for text in told if isinstance(text, str)), body)
