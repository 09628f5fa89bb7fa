# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Recorded clusters: one moment of a cluster, as its servers answered.

A recording is a folder, or a folder within an archive made by `lab.pack`.

    objects/NAME.json       a cluster-wide list; `LISTS` tells which
    kueue-metrics*.prom     Kueue's exposition; where a moment has none, that of the moment before still holds
    evidence/*.prom         lines of the schedulers' expositions
    begin.txt, now.txt      before the first list and after the last
    truth.json              what was so

`lab.replay` serves one.
"""

import re
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Final, Self

import orjson

Json = dict[str, Any]

CAPTURES: Final = Path(__file__).resolve().parent.parent / "tests" / "captures"
#: Names of the answers of discovery.
DISCOVERY: Final = ("apis", "apis.plain", "version")

_KUEUE: Final = "/apis/kueue.x-k8s.io/v1beta2"
#: Path of a list -> name of its file.
LISTS: Final = {
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
        files = unpacked(archive)
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
            lists={name: body for name, body in objects.items() if name in LISTS.values()},
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
    return _moments(unpacked(archive))


@cache
def unpacked(archive: Path) -> dict[str, bytes]:
    """Return the files of an archive by name."""
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
