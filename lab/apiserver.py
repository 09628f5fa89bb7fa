# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A small API server over real HTTP: objects that change while they are listed and watched.

It answers what the check asks for as Kubernetes 1.36 was recorded to answer it:

* discovery, aggregated and plain, and the resource list of a group version with the hashes of the stored versions;
* lists, whole or in pages with `limit` and `continue`. The pages of a list are of one moment; a token that has expired
  is a 410, and a version of the future a 504;
* watches from a version: events, bookmarks about once a minute and shortly before `timeoutSeconds` end the stream. From
  before the last compaction a watch is an ERROR event in a 200; from the future it is silent until its time is over,
  since the store just has nothing newer (kubernetes/kubernetes#107457);
* streaming lists (`sendInitialEvents`), whose end a bookmark marks. A server without the WatchList gate answers 422
  (`streaming`), one without watches 405 (`watching`).

Objects of built-in kinds come in lists without apiVersion and kind and with their metadata first, custom ones with
their fields in the order of the alphabet. What a version serves is the stored object with another apiVersion.

    with ApiServer() as server:
        server.apply("pods", {"metadata": {"name": "p", "namespace": "team"}, ...})
        ...  # kube_api_url: server.url, openmetrics_endpoint: server.url + "/metrics"

Not modelled: writes over HTTP, access rules, field selectors, and fields that differ between versions.
"""

import time
from base64 import b64encode
from collections.abc import Callable, Generator, Iterable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from lab.etcd import Event, GoneError, Json, Store, Subscription
from lab.http_faults import (
    NOT_FOUND,
    Answer,
    CutError,
    FaultyServer,
    Query,
    Row,
    exposition,
    status,
    status_object,
)
from lab.replay import AGGREGATED, GROUP_VERSION, selected, storage_hash

_INITIAL_END: Final = {"k8s.io/initial-events-end": "true"}
_VERBS: Final = ["create", "delete", "get", "list", "patch", "update", "watch"]
#: Seconds before the end of a watch at which it gets a last bookmark.
_LAST_BOOKMARK: Final = 2.0
#: How often a watch without events lets its connection look for its client.
_LOOK_SECONDS: Final = 0.05
_RETRY: Final = (("Retry-After", "1"),)


class Kind(NamedTuple):
    """A kind of object: `versions` are those that are served, the stored one first."""

    group: str
    versions: tuple[str, ...]
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def custom(self) -> bool:
        """Whether it is defined by a CustomResourceDefinition."""
        return "x-k8s.io" in self.group or self.group == "trainer.kubeflow.org"

    def api_version(self, version: str) -> str:
        """Return the apiVersion of its objects."""
        return f"{self.group}/{version}" if self.group else version

    def path(self, version: str) -> str:
        """Return the path of its cluster-wide list."""
        return f"/apis/{self.group}/{version}/{self.plural}" if self.group else f"/api/{version}/{self.plural}"


_V1: Final = ("v1",)
_KUEUE: Final = ("kueue.x-k8s.io", ("v1beta2", "v1beta1"))
#: What every check reads, by the names that it has for them.
KINDS: Final[Mapping[str, Kind]] = {
    "pods": Kind("", _V1, "pods", "Pod"),
    "nodes": Kind("", _V1, "nodes", "Node", namespaced=False),
    "jobs": Kind("batch", _V1, "jobs", "Job"),
    "podgroups.scheduling.x-k8s.io": Kind("scheduling.x-k8s.io", ("v1alpha1",), "podgroups", "PodGroup"),
    "podgroups.scheduling.k8s.io": Kind("scheduling.k8s.io", ("v1alpha2",), "podgroups", "PodGroup"),
    "workloads.kueue.x-k8s.io": Kind(*_KUEUE, "workloads", "Workload"),
    "clusterqueues": Kind(*_KUEUE, "clusterqueues", "ClusterQueue", namespaced=False),
    "localqueues": Kind(*_KUEUE, "localqueues", "LocalQueue"),
    "cohorts": Kind(*_KUEUE, "cohorts", "Cohort", namespaced=False),
    "resourceflavors": Kind(*_KUEUE, "resourceflavors", "ResourceFlavor", namespaced=False),
    "admissionchecks": Kind(*_KUEUE, "admissionchecks", "AdmissionCheck", namespaced=False),
    "topologies": Kind(*_KUEUE, "topologies", "Topology", namespaced=False),
    "events": Kind("events.k8s.io", _V1, "events", "Event"),
}
#: What a cluster has beside that, and the check reads only where it is asked to.
OPTIONAL: Final[Mapping[str, Kind]] = {
    "trainjobs": Kind("trainer.kubeflow.org", ("v1alpha1",), "trainjobs", "TrainJob"),
}
ALL_KINDS: Final[Mapping[str, Kind]] = {**KINDS, **OPTIONAL}
_NAMES: Final = {(kind.group, kind.kind): name for name, kind in ALL_KINDS.items()}


def name_of(obj: Json) -> str:
    """Return the name in `ALL_KINDS` of an object with apiVersion and kind."""
    group, _, _ = obj["apiVersion"].rpartition("/")
    return _NAMES[group, obj["kind"]]


class ApiServer(FaultyServer):
    """An API server with Kueue's and a scheduler's metrics beside it.

    All of these may be assigned while it runs: `clock` (seconds since the epoch, for the Date header and creations),
    `streaming` and `watching` (see above), `bookmark_seconds`, `kinds` (what is installed, by name, each with the
    versions that are served), `kueue` and `scheduler` (the texts of `/metrics` and `/scheduler/metrics`, None for a
    404), `faults`, `token`. `strays` are objects by kind that lists hold beside the stored ones: what is no object
    cannot be stored.
    """

    def __init__(
        self,
        faults: Iterable[Row] = (),
        *,
        clock: Callable[[], float] = time.time,
        streaming: bool = True,
        watching: bool = True,
        token: str | None = None,
        certificate: Path | None = None,
        port: int = 0,
    ) -> None:
        """Open the port; requests are answered from `__enter__` on."""
        super().__init__(faults, token=token, certificate=certificate, port=port)
        self.clock = clock
        self.streaming = streaming
        self.watching = watching
        self.bookmark_seconds = 60.0
        self.kinds = dict(ALL_KINDS)
        self.kueue: bytes | None = None
        self.scheduler: bytes | None = None
        self.strays: dict[str, list[Any]] = {}
        self.store = Store()
        #: Lists of which pages are still to come, by token: name, version, objects.
        self._pages: dict[str, tuple[str, int, list[Any]]] = {}
        self._tokens = count(1)

    def now(self) -> datetime:
        """Return the server's time."""
        return datetime.fromtimestamp(self.clock(), UTC)

    # --- what is in the cluster --------------------------------------------------------------------------------------

    def apply(self, name: str, obj: Json) -> Json:
        """Create or replace an object of a kind; return it as stored."""
        metadata = {"uid": "", "creationTimestamp": "", **obj["metadata"]}
        there = self.store.get(name, (metadata.get("namespace", ""), metadata["name"]))
        known = there["metadata"] if there else {}
        metadata["uid"] = metadata["uid"] or known.get("uid") or f"uid-{self.store.version + 1}"
        metadata["creationTimestamp"] = (
            metadata["creationTimestamp"] or known.get("creationTimestamp") or f"{self.now():%Y-%m-%dT%H:%M:%SZ}"
        )
        body = {key: value for key, value in obj.items() if key not in {"apiVersion", "kind", "metadata"}}
        return self.store.put(name, {"metadata": metadata, **body})

    def apply_all(self, objects: Iterable[Json]) -> None:
        """Apply objects that say what they are."""
        for obj in objects:
            self.apply(name_of(obj), obj)

    def delete(self, name: str, own: str, namespace: str = "") -> Json | None:
        """Delete an object; return it as it was last, None where there was none."""
        return self.store.remove(name, (namespace, own))

    def inject(self, name: str, line: bytes) -> None:
        """Put a line of one's own into the open watches of a kind; it is in no history."""
        with self.store.changed:
            event = Event(self.store.version + 1, name, "", None, {"line": line})
            for one in self.store.subscriptions:
                if one.kind == name:
                    one.tell(event)
            self.store.changed.notify_all()

    def compact(self) -> None:
        """Forget the past: a watch from before, and the later pages of lists, are a 410 from now on."""
        with self.store.changed:
            self.store.compact()
            self._pages.clear()

    def restart(self, to_version: int | None = None) -> None:
        """Break all connections; with `to_version` go back to that version, as a restore from a backup does."""
        with self.store.changed:
            self._pages.clear()
            if to_version is not None:
                self.store.restore(to_version)
        self.cut()
        self.drop()

    def cut(self, *names: str) -> None:
        """Break the open watches of these kinds, or of all."""
        self.store.end("cut", lambda name: not names or name in names)

    def end(self, *names: str) -> None:
        """End the open watches of these kinds, or of all, as a server ends them that shuts down."""
        self.store.end("end", lambda name: not names or name in names)

    def watches(self, name: str) -> int:
        """Return the number of open watches of a kind."""
        with self.store.changed:
            return sum(one.kind == name for one in self.store.subscriptions)

    # --- answers -----------------------------------------------------------------------------------------------------

    def answer(self, path: str, query: Query, headers: Mapping[str, str]) -> Answer:
        """Return the answer of a healthy server."""
        if not self.admits(headers):
            return status(HTTPStatus.UNAUTHORIZED)
        if path == "/apis":
            return self._groups(aggregated=AGGREGATED in headers.get("Accept", ""))
        if path == "/metrics":
            return exposition(self.kueue)
        if path == "/scheduler/metrics":
            return exposition(self.scheduler)
        for name, kind in self.kinds.items():
            for version in kind.versions:
                if path == kind.path(version):
                    return self._watch(name, version, query) if "watch" in query else self._list(name, version, query)
        match = GROUP_VERSION.fullmatch(path)
        return self._resources(match["group"], match["version"]) if match else NOT_FOUND

    def _list(self, name: str, version: str, query: Query) -> Answer:
        token, limit = query.get("continue", ""), int(query.get("limit", "0"))
        wanted = int(query.get("resourceVersion") or 0)
        with self.store.changed:
            if wanted > self.store.version:
                message = f"Timeout: Too large resource version: {wanted}, current: {self.store.version}"
                return status(HTTPStatus.GATEWAY_TIMEOUT, message, _RETRY)
            if token:
                if token not in self._pages:
                    message = "The provided continue parameter is too old to display a consistent list result."
                    return status(HTTPStatus.GONE, message)
                _, at, found = self._pages[token]
            else:
                at, found = self.store.version, self._found(name, query)
            following = ""
            if limit and len(found) > limit:
                following = b64encode(f'{{"v":"meta.k8s.io/v1","rv":{at},"n":{next(self._tokens)}}}'.encode()).decode()
                self._pages[following] = name, at, found[limit:]
        return Answer(200, self._page(name, version, found[: limit or None], at, following, len(found) - limit))

    def _found(self, name: str, query: Query) -> list[Any]:
        selector = query.get("labelSelector", "")
        stored = [obj for obj in self.store.all(name) if selected(obj, selector)]
        return [*stored, *self.strays.get(name, ())]

    def _page(self, name: str, version: str, found: list[Any], at: int, following: str, left: int) -> bytes:
        kind = self.kinds[name]
        metadata: Json = {"resourceVersion": str(at)}
        said = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version(version)}
        if kind.custom:
            items = [self._said(kind, version, obj) for obj in found]
            page = {**said, "metadata": {"continue": following, **metadata}, "items": items}
            return orjson.dumps(page, option=orjson.OPT_SORT_KEYS) + b"\n"
        if following:
            metadata |= {"continue": following, "remainingItemCount": left}
        return orjson.dumps({**said, "metadata": metadata, "items": found}) + b"\n"

    def _said(self, kind: Kind, version: str, obj: Any) -> Any:  # noqa: ANN401 - a stray may be anything
        said = {"kind": kind.kind, "apiVersion": kind.api_version(version)}
        return {**said, **obj} if isinstance(obj, dict) else obj

    # --- watches -----------------------------------------------------------------------------------------------------

    def _watch(self, name: str, version: str, query: Query) -> Answer:
        if not self.watching:
            return status(HTTPStatus.METHOD_NOT_ALLOWED)
        streams = query.get("sendInitialEvents") == "true"
        if streams and not self.streaming:
            message = (
                "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless WatchList is enabled"
            )
            return status(HTTPStatus.UNPROCESSABLE_ENTITY, message)
        with self.store.changed:
            initial = self._found(name, query) if streams else None
            begin = int(query.get("resourceVersion") or self.store.version)
            try:
                subscription = self.store.subscribe(name, self.store.version if streams else begin)
            except GoneError:
                message = f"too old resource version: {begin} ({self.store.floor})"
                stream = self._once(_line("ERROR", status_object(HTTPStatus.GONE, message)))
                return Answer(200, stream=stream)
        return Answer(200, stream=self._events(subscription, version, query, initial))

    def _once(self, line: bytes) -> Generator[bytes, None, None]:
        yield line

    def _events(
        self, subscription: Subscription, version: str, query: Query, initial: list[Any] | None
    ) -> Generator[bytes, None, None]:
        kind = ALL_KINDS[subscription.kind]
        selector = query.get("labelSelector", "")
        bookmarks = query.get("allowWatchBookmarks") == "true"
        began = time.monotonic()
        ends = began + float(query.get("timeoutSeconds", "1800"))
        due = self._bookmark_due(began, ends)
        try:
            for obj in initial or ():
                yield _line("ADDED", self._said(kind, version, obj))
            if initial is not None:
                yield self._bookmark(kind, version, subscription.taken, _INITIAL_END)
            while True:
                events = subscription.take(_LOOK_SECONDS)
                for event in events:
                    yield self._event(event, kind, version, selector)
                if subscription.ended == "cut":
                    raise CutError
                now = time.monotonic()
                if bookmarks and now >= due and subscription.version <= self.store.version:
                    # Not the store's version: there may be writes that were not told yet.
                    yield self._bookmark(kind, version, subscription.taken, {})
                    due = self._bookmark_due(now, ends)
                if subscription.ended or now >= ends:
                    return
                if not events:
                    yield b""
        finally:
            subscription.close()

    def _bookmark_due(self, now: float, ends: float) -> float:
        """Return when the next bookmark is due: in a minute, or shortly before the end."""
        last = ends - min(_LAST_BOOKMARK, (ends - now) / 2)
        regular = now + self.bookmark_seconds
        return last if now < last < regular else regular

    def _bookmark(self, kind: Kind, version: str, at: int, annotations: Mapping[str, str]) -> bytes:
        metadata: Json = {"resourceVersion": str(at)}
        if annotations:
            metadata["annotations"] = annotations
        return _line("BOOKMARK", self._said(kind, version, {"metadata": metadata}))

    def _event(self, event: Event, kind: Kind, version: str, selector: str) -> bytes:
        """Return the line of a write, as it looks through a selector: empty where it is not seen."""
        if not event.type:
            return bytes(event.obj["line"])
        was = event.before is not None and selected(event.before, selector)
        is_ = event.type != "DELETED" and selected(event.obj, selector)
        seen = {(False, True): "ADDED", (True, True): "MODIFIED", (True, False): "DELETED"}.get((was, is_))
        return _line(seen, self._said(kind, version, event.obj)) if seen else b""

    # --- discovery ---------------------------------------------------------------------------------------------------

    def _served(self) -> dict[str, dict[str, list[Kind]]]:
        """Return the kinds by group and version, best version first."""
        groups: dict[str, dict[str, list[Kind]]] = {}
        for kind in self.kinds.values():
            if kind.group:
                versions = groups.setdefault(kind.group, {})
                for version in kind.versions:
                    versions.setdefault(version, []).append(kind)
        return groups

    def _groups(self, *, aggregated: bool) -> Answer:
        groups = self._served()
        if not aggregated:
            plain = [
                {"name": group, "versions": [{"groupVersion": f"{group}/{v}", "version": v} for v in versions]}
                for group, versions in groups.items()
            ]
            return Answer(200, orjson.dumps({"kind": "APIGroupList", "apiVersion": "v1", "groups": plain}))
        items = [
            {
                "metadata": {"name": group},
                "versions": [
                    {"version": version, "resources": [_discovered(kind, version) for kind in kinds]}
                    for version, kinds in versions.items()
                ],
            }
            for group, versions in groups.items()
        ]
        said = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}}
        return Answer(200, orjson.dumps({**said, "items": items}), AGGREGATED)

    def _resources(self, group: str, version: str) -> Answer:
        kinds = self._served().get(group, {}).get(version)
        if kinds is None:
            return NOT_FOUND
        resources = [
            {
                "name": kind.plural,
                "singularName": kind.kind.lower(),
                "namespaced": kind.namespaced,
                "kind": kind.kind,
                "verbs": _VERBS,
                "storageVersionHash": storage_hash(f"{group}/{kind.versions[0]}/{kind.kind}"),
            }
            for kind in kinds
        ]
        listing = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}"}
        return Answer(200, orjson.dumps({**listing, "resources": resources}))


def _discovered(kind: Kind, version: str) -> Json:
    return {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.kind.lower(),
        "verbs": _VERBS,
    }


def _line(what: str, obj: object) -> bytes:
    return orjson.dumps({"type": what, "object": obj}) + b"\n"
