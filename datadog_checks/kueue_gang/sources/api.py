# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Lists of API objects, reduced to facts while they are read.

Discovery comes first: one request tells every group, version and plural that the server has (aggregated discovery,
Kubernetes 1.26 and later; older servers tell groups and versions). A group that is not there is not installed, which
is a fact and no failure. Where discovery itself fails, the list is tried straight.

The version is one that the server serves and the reducer understands. Where there are several, the stored one is read:
any other is made by a conversion webhook, which is Kueue's own, so that the list would fail exactly when Kueue is down
(facts: Kueue stored v1beta1 up to 0.15 and v1beta2 since 0.16). The resource list of a group version carries a hash of
the stored version for each resource (k8s.io/apiserver, discovery.StorageVersionHash). A 404 tries the next version.

A list is read in pages of 500, and each object is reduced at once, so that memory holds one page and the facts. An
object that its reducer cannot read is counted, named in a debug line, and left out; its name is kept, for whoever must
know that a member exists that nobody could read. A list that breaks in the middle raises, and gives nothing.
"""

import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Final, TypeVar

import orjson
from urllib3 import BaseHTTPResponse

from datadog_checks.kueue_gang.sources.connection import JSON, Connection, Log, Query
from datadog_checks.kueue_gang.sources.errors import SourceError, Target, harmless, invalid
from datadog_checks.kueue_gang.sources.pages import list_items, list_metadata
from datadog_checks.kueue_gang.sources.resources import TRAINING, Resource

Json = dict[str, Any]

#: Version -> plurals that it has; None where discovery did not tell.
Versions = Mapping[str, frozenset[str] | None]
Groups = Mapping[str, Versions]

PAGE: Final = 500
#: How long discovery holds, and how long it is left alone after it failed.
DISCOVERY_SECONDS: Final = 300.0
RETRY_SECONDS: Final = 60.0
#: Bad objects that are named in one list.
MAX_NAMED: Final = 20

_AGGREGATED: Final = ";g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
#: Best first; an older server answers in the last form.
_DISCOVERY: Final = ",".join(JSON + form for form in (_AGGREGATED.format("v2"), _AGGREGATED.format("v2beta1"), ""))

#: What reading a field of foreign JSON may raise (facts.BadObjectError is a ValueError). Anything else is a fault here.
MALFORMED: Final = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


#: What to do about a resource that is not there, by the option that needs it.
_REMEDIES: Final = {TRAINING: "take train_jobs out of training"}

_Answer = TypeVar("_Answer")


@dataclass(slots=True)
class Listing:
    """A list while it is read, and when it is complete.

    `objects` counts all that were seen, `bad` those that could not be read; `bad_names` holds (namespace, name) of the
    bad ones whose name could. `read_at` is the server's time at the first page, in seconds since the epoch: the server
    answers the later pages as of then.
    """

    facts: list[Any] = field(default_factory=list)
    objects: int = 0
    bad: int = 0
    bad_names: set[tuple[str, str]] = field(default_factory=set)
    read_at: float = 0.0

    def take(self, resource: Resource, item: object, log: Log) -> None:
        """Reduce an object and keep its fact, or count it as bad."""
        self.objects += 1
        try:
            fact = reduced(resource, item)
        except MALFORMED as error:
            self.bad += 1
            name = object_name(item)
            if name:
                self.bad_names.add(name)
            if self.bad <= MAX_NAMED:
                log.debug("%s: bad object %s: %s", resource.api_source, name, harmless(str(error)))
        else:
            if fact is not None:
                self.facts.append(fact)


class Api:
    """An API server whose lists are read."""

    def __init__(
        self,
        connection: Connection,
        *,
        log: Log,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Read through `connection`. `sleep` waits where the server asks to; an Event's `wait` can be interrupted."""
        self._connection = connection
        self._log = log
        self._monotonic = monotonic
        self._sleep = sleep
        self._discovered: _Discovered | None = None
        self._discovering = threading.Lock()
        #: The sources that have answered.
        self._known: set[str] = set()
        #: The path that answered last, by source.
        self._paths: dict[str, str] = {}

    @property
    def target(self) -> Target:
        """The server, in the words of errors."""
        return self._connection.target

    def now(self) -> float:
        """Return the server's time in seconds since the epoch."""
        return self._connection.now()

    def groups(self) -> Groups | None:
        """Return what the server has, at most five minutes old; None where it does not tell."""
        return self._discovery().groups

    def list(self, resource: Resource) -> Listing:
        """Read all objects of `resource`. Raises SourceError."""
        return self.first(resource, lambda path: self._listing(resource, path))

    def first(self, resource: Resource, read: Callable[[str], _Answer]) -> _Answer:
        """Return what `read` makes of the first path of `resource` that exists. Raises SourceError."""
        missing: SourceError | None = None
        for version in self._versions(resource):
            path = self._paths[resource.api_source] = resource.path(version)
            try:
                found = read(path)
            except SourceError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
                missing = error
            else:
                self._known.add(resource.api_source)
                return found
        if missing and resource.api_source in self._known and self._serves(resource):
            # It was here, and discovery says that it still is: something answers that is not the API server.
            raise missing
        raise self.absent(resource)

    def _serves(self, resource: Resource) -> bool:
        """Ask the server anew whether it has a resource: what it said before may be five minutes old."""
        with self._discovering:
            self._discovered = None
        groups = self.groups()
        served = (groups or {}).get(resource.group, {})
        return any(_has(served, version, resource.plural) for version in resource.versions)

    def path(self, resource: Resource) -> str:
        """Return the path of `resource` that was read last."""
        return self._paths[resource.api_source]

    def read(self, path: str, query: Query) -> bytes:
        """Return the body of an answer. Raises SourceError."""
        return self._connection.read(path, query)

    def open(self, path: str, query: Query, read_timeout: float) -> BaseHTTPResponse:
        """Return the open answer to a watch. Raises SourceError."""
        return self._connection.open(path, query, read_timeout=read_timeout)

    def chunks(self, path: str, response: BaseHTTPResponse) -> Iterator[bytes]:
        """Yield what comes of an open answer, as it comes. Raises SourceError."""
        return self._connection.chunks(path, response)

    def no_list(self, path: str, body: bytes, error: ValueError) -> SourceError:
        """Return the error for a body that is no list."""
        what = "an HTML page" if body.lstrip().startswith(b"<") else f"no list ({error})" if body else "an empty answer"
        return invalid(self.target, path, what)

    def _versions(self, resource: Resource) -> tuple[str, ...]:
        """Return the versions to try, best first. Raises SourceError where there is none."""
        groups = self.groups() if resource.group else None
        if groups is None:
            return resource.versions
        served = groups.get(resource.group, {})
        known = tuple(version for version in resource.versions if _has(served, version, resource.plural))
        if not known:
            others = tuple(version for version, plurals in served.items() if plurals and resource.plural in plurals)
            raise self.absent(resource, others)
        if len(known) == 1:
            return known
        kind, stored = self._storage(resource.group, known[0]).get(resource.plural, ("", ""))
        # False sorts before True, and equals keep their order.
        return tuple(sorted(known, key=lambda version: storage_hash(resource.group, version, kind) != stored))

    def absent(self, resource: Resource, other_versions: tuple[str, ...] = ()) -> SourceError:
        """Return the error for a resource that the server has not, or has only as `other_versions`."""
        target = self._connection.target
        if not resource.group:
            return invalid(target, resource.path(resource.versions[0]), "HTTP 404, and every Kubernetes has it")
        if other_versions:
            return SourceError(
                "invalid",
                f"{target.name}: {resource.plural} of {resource.group} only as {', '.join(other_versions)}, "
                f"and this release of the check understands {', '.join(resource.versions)}",
                "install a newer datadog-kueue-gang",
            )
        return SourceError(
            "not_installed",
            f"{target.name}: no {resource.plural} in group {resource.group}",
            "install it, or " + _REMEDIES.get(resource.needed_by or "", "take its engine out of gang_engines"),
        )

    def _discovery(self) -> "_Discovered":
        with self._discovering:
            now = self._monotonic()
            if self._discovered is None or now >= self._discovered.until:
                groups = self._discover()
                self._discovered = _Discovered(groups, now + (RETRY_SECONDS if groups is None else DISCOVERY_SECONDS))
            return self._discovered

    def _discover(self) -> Groups | None:
        try:
            return decode_groups(self._connection.read("/apis", accept=_DISCOVERY))
        except (SourceError, *MALFORMED) as error:
            self._log.debug("discovery failed, lists are tried straight: %s", harmless(str(error)))
            return None

    def _storage(self, group: str, version: str) -> Mapping[str, tuple[str, str]]:
        """Return plural -> (kind, hash of its stored version) of `group`; empty where the server does not tell."""
        discovered = self._discovery()
        if group not in discovered.storage:
            try:
                found = decode_storage(self._connection.read(f"/apis/{group}/{version}"))
            except (SourceError, *MALFORMED) as error:
                self._log.debug("stored versions of %s unknown: %s", group, harmless(str(error)))
                found = {}
                discovered.until = min(discovered.until, self._monotonic() + RETRY_SECONDS)
            discovered.storage[group] = found
        return discovered.storage[group]

    def _listing(self, resource: Resource, path: str) -> Listing:
        """Read the list at `path`, once anew where a later page is gone (etcd keeps a state for five minutes)."""
        try:
            return self._read(resource, path)
        except SourceError as error:
            if error.status != HTTPStatus.GONE:
                raise
            self._log.debug("%s: the list expired while it was read, it is read anew", resource.api_source)
        return self._read(resource, path)

    def _read(self, resource: Resource, path: str) -> Listing:
        listing = Listing()
        for item in self._items(path, resource.query):
            listing.read_at = listing.read_at or self._connection.now()
            listing.take(resource, item, self._log)
        listing.read_at = listing.read_at or self._connection.now()
        if listing.bad > MAX_NAMED:
            self._log.debug("%s: %d more bad objects", resource.api_source, listing.bad - MAX_NAMED)
        return listing

    def _items(self, path: str, wanted: Mapping[str, str]) -> Iterator[object]:
        query: dict[str, str | int] = {**wanted, "limit": PAGE}
        may_wait = True
        while True:
            try:
                body = self._connection.read(path, query)
            except SourceError as error:
                wait = error.retry_after
                # Once a list, and not where the wait would take the run's time: then the next run is early enough.
                if not may_wait or wait is None or wait > self._connection.timeout / 2:
                    raise
                may_wait = False
                self._log.debug("%s: the server asks to wait %g s", path, wait)
                self._sleep(wait)
                continue
            try:
                token = str(list_metadata(body).get("continue") or "")
                yield from list_items(body)
            except ValueError as error:
                raise self.no_list(path, body, error) from None
            if not token:
                return
            if token == query.get("continue"):
                raise invalid(self._connection.target, path, "the same page for ever")
            query["continue"] = token


@dataclass(slots=True)
class _Discovered:
    """What discovery told, until when it holds (monotonic seconds), and the stored versions asked for since."""

    groups: Groups | None
    until: float
    storage: dict[str, Mapping[str, tuple[str, str]]] = field(default_factory=dict)


def decode_groups(body: bytes) -> Groups:
    """Return the groups of a discovery answer, aggregated (v2, v2beta1) or plain. Raises one of MALFORMED."""
    answer = orjson.loads(body)
    return _DISCOVERY_FORMS[answer["kind"]](answer)


def _aggregated(answer: Json) -> Groups:
    return {
        group["metadata"]["name"]: {
            # An API server behind this one that does not answer is listed without its resources.
            version["version"]: frozenset(r["resource"] for r in version.get("resources", ())) or None
            for version in group["versions"]
        }
        for group in answer["items"]
    }


def _plain(answer: Json) -> Groups:
    return {group["name"]: {version["version"]: None for version in group["versions"]} for group in answer["groups"]}


_DISCOVERY_FORMS: Final[Mapping[str, Callable[[Json], Groups]]] = {
    "APIGroupDiscoveryList": _aggregated,
    "APIGroupList": _plain,
}


def decode_storage(body: bytes) -> Mapping[str, tuple[str, str]]:
    """Return plural -> (kind, storageVersionHash) of an APIResourceList. Raises one of MALFORMED."""
    return {r["name"]: (r["kind"], r.get("storageVersionHash", "")) for r in orjson.loads(body)["resources"]}


def storage_hash(group: str, version: str, kind: str) -> str:
    """Return the hash by which a resource list names a stored version (k8s.io/apiserver StorageVersionHash)."""
    return b64encode(sha256(f"{group}/{version}/{kind}".encode()).digest()[:8]).decode()


def _has(served: Versions, version: str, plural: str) -> bool:
    plurals = served.get(version, frozenset())
    return plurals is None or plural in plurals


def reduced(resource: Resource, item: object) -> object | None:
    """Return the fact of an object, None for one that is of no use. Raises one of MALFORMED."""
    if not isinstance(item, dict):
        msg = f"{type(item).__name__} instead of an object"
        raise TypeError(msg)
    return resource.reduce(item)


def object_name(item: object) -> tuple[str, str] | None:
    """Return (namespace, name) of a malformed object, None where it cannot be read."""
    metadata = item.get("metadata") if isinstance(item, dict) else None
    if not isinstance(metadata, dict):
        return None
    namespace, name = metadata.get("namespace") or "", metadata.get("name")
    return (namespace, name) if isinstance(namespace, str) and isinstance(name, str) else None
