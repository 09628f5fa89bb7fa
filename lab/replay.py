# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Recorded clusters, served over HTTP as an API server, Kueue and a scheduler serve them.

`ReplayServer` answers the requests of the check: lists with real pages, discovery in both forms, resource lists with
the hash of the stored version, `/version`, `/metrics` (Kueue) and `/scheduler/metrics`. What was not recorded is a 404,
in the words of a real API server. Its Date header is the recording's own time, so that ages come out as they were.
The recording and the faults may be exchanged while the server runs: that is how time goes on, and how a fault heals.

    with ReplayServer(Recording.open(CAPTURES / "5-tas.tar.xz")) as server:
        ...  # kube_api_url: server.url, openmetrics_endpoint: server.url + "/metrics"
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Final

import orjson

from lab.http_faults import NOT_FOUND, Answer, FaultyServer, Query, Row, exposition, status
from lab.http_faults import Handler as _Handler
from lab.recording import CAPTURES, DISCOVERY, LISTS, Json, Recording, moments
from lab.recording import unpacked as _unpacked

__all__ = ["CAPTURES", "DISCOVERY", "Answer", "Recording", "ReplayServer", "_Handler", "moments"]

#: The gang scheduler's lines before the default scheduler's.
_SCHEDULERS: Final = ("cosched-metrics-excerpt.prom", "kube-scheduler-metrics-excerpt.prom")
AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class ReplayServer(FaultyServer):
    """A server for one recording at a time.

    `recording` may be assigned while it runs. `metrics` names the exposition to serve (default: the first). `hidden`
    takes away groups (`kueue.x-k8s.io`) or versions (`kueue.x-k8s.io/v1beta2`), `stored` gives the stored version of a
    group where it is not the first. `replay.pem` in CAPTURES is a certificate.
    """

    def __init__(
        self,
        recording: Recording,
        faults: Iterable[Row] = (),
        *,
        metrics: str | None = None,
        hidden: Collection[str] = (),
        stored: Mapping[str, str] | None = None,
        token: str | None = None,
        certificate: Path | None = None,
    ) -> None:
        """Open the port; requests are answered from `__enter__` on."""
        super().__init__(faults, token=token, certificate=certificate)
        self.recording = recording
        self.metrics = metrics
        self._hidden = hidden
        self._stored = stored or {}

    def now(self) -> datetime:
        """Return the recording's time."""
        return self.recording.now

    def answer(self, path: str, query: Query, headers: Mapping[str, str]) -> Answer:
        """Return the answer of a healthy server."""
        if not self.admits(headers):
            return status(HTTPStatus.UNAUTHORIZED)
        if any(path.startswith(f"/apis/{hidden}/") for hidden in self._hidden):
            return NOT_FOUND
        name = LISTS.get(path)
        if name is not None:
            return self._list(name, query)
        route = _ROUTES.get(path)
        if route is not None:
            return route(self, headers)
        match = GROUP_VERSION.fullmatch(path)
        return self._resources(match["group"], match["version"]) if match else NOT_FOUND

    def version(self, _headers: Mapping[str, str]) -> Answer:
        """Return /version."""
        return Answer(200, self._discovery("version"))

    def groups(self, headers: Mapping[str, str]) -> Answer:
        """Return /apis in the form that the Accept header asks for."""
        if AGGREGATED not in headers.get("Accept", ""):
            plain = orjson.loads(self._discovery("apis.plain"))
            plain["groups"] = self._visible(plain["groups"], lambda group: group["name"])
            return Answer(200, orjson.dumps(plain))
        return Answer(200, orjson.dumps(self._aggregated()), AGGREGATED)

    def kueue(self, _headers: Mapping[str, str]) -> Answer:
        """Return Kueue's exposition."""
        metrics = self.recording.metrics
        return exposition(metrics.get(self.metrics or min(metrics, default="")))

    def scheduler(self, _headers: Mapping[str, str]) -> Answer:
        """Return the exposition of the gang scheduler, else of the default scheduler."""
        evidence = self.recording.evidence
        return exposition(next((evidence[name] for name in _SCHEDULERS if name in evidence), None))

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
            return NOT_FOUND
        stored = self._stored.get(group, next(iter(versions)))
        resources = [
            {
                "name": resource["resource"],
                "singularName": resource["singularResource"],
                "namespaced": resource["scope"] == "Namespaced",
                "kind": resource["responseKind"]["kind"],
                "verbs": resource["verbs"],
                "storageVersionHash": storage_hash(f"{group}/{stored}/{resource['responseKind']['kind']}"),
            }
            for resource in served["resources"]
        ]
        listing = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}"}
        return Answer(200, orjson.dumps({**listing, "resources": resources}))

    def _list(self, name: str, query: Mapping[str, str]) -> Answer:
        """Return a page of a list, chosen by labelSelector, limit and continue."""
        recorded = self.recording.decoded.get(name)
        if recorded is None:
            return NOT_FOUND
        selector = query.get("labelSelector", "")
        # Without a selector even an object that has no metadata is served: tests break objects on purpose.
        items = [item for item in recorded["items"] if not selector or selected(item, selector)]
        start = _offset(query.get("continue", ""))
        if start is None:
            return status(HTTPStatus.GONE)
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
GROUP_VERSION: Final = re.compile(r"/apis/(?P<group>[^/]+)/(?P<version>[^/]+)")


def storage_hash(stored: str) -> str:
    """Return the hash by which a resource list names a stored version, `group/version/kind`."""
    return b64encode(sha256(stored.encode()).digest()[:8]).decode()


def selected(item: Json, selector: str) -> bool:
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
