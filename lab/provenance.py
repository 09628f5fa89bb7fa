# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Where the simulated cluster's objects come from: each field and text that the check reads, and a recording of it.

    python -m lab.provenance

A simulation proves nothing if it makes up what it shows. So every scenario is played, and the reducers of the check
are run on every object, in mappings that note what is read (`Traced`). The same is done with the recorded clusters. A
row is a field with the form of its value, or with the value itself where it is one of few (a phase, a reason), or a
condition with its text, names and numbers left out. What the lab shows and no recording has is an exception, with the
reason.

The answers of the Prometheus server (`lab.simulation.signals`) are not among them: they follow the documentation of its
HTTP API, and the names and labels of dcgm-exporter.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson

from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.settings import wanted_resources
from lab.recording import CAPTURES, Recording, moments
from lab.simulation import metrics
from lab.simulation.scenario import known, load
from lab.simulation.world import World

Json = dict[str, Any]

#: Names of the kinds of objects -> names of their recorded lists.
_LISTS: Final = {
    "pods": "pods",
    "nodes": "nodes",
    "jobs": "jobs.batch",
    "podgroups.scheduling.x-k8s.io": "podgroups.scheduling.x-k8s.io",
    "workloads.kueue.x-k8s.io": "workloads.kueue.x-k8s.io.v1beta2",
    "clusterqueues": "clusterqueues",
    "localqueues": "localqueues",
    "resourceflavors": "resourceflavors",
    "topologies": "topologies",
    "events": "events.events.k8s.io",
}
KUEUE, SCHEDULER = "kueue metrics", "scheduler metrics"
#: Seconds of a scenario from look to look.
_LOOK: Final = 20.0

#: Fields whose value is one of few, and read as such.
_WORDS: Final = re.compile(
    r"(phase|conditions\[\]\.(type|status)|waiting\.reason|effect|taints\[\]\.key|schedulingGates\[\]\.name|"
    r"completionMode|restartPolicy|schedulerName|ownerReferences\[\]\.kind|subresource|regarding\.kind|exitCode|"
    r"evictions\[\]\.(reason|underlyingCause)|\breason|operator|stopPolicy)$"
)
#: What differs from object to object in a text.
_VARIABLES: Final = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\b(PodGroup) \S+/\S+"), r"\1 NAME"),
    (re.compile(r"\b([Pp]od) [\w-]+ (is|cannot)\b"), r"\1 NAME \2"),
    (re.compile(r"\bpod=[^(]+\("), "pod=NAME("),
    (re.compile(r"\b(pod set|in flavor|LocalQueue|ClusterQueue) [\w-]+"), r"\1 NAME"),
    (re.compile(r"\bpath: /[\w-]+"), "path: /NAME"),
    (re.compile(r"\b(PodsReady timeout) \S+/\S+"), r"\1 NAME"),
    (re.compile(r'\btopology "[^"]+"'), "topology NAME"),
    (re.compile(r"(?<![\w.])(\d+h)?(\d+m)?\d+s\b"), "TIME"),
    (re.compile(r"(?<![\w.])\d+(?!\w)"), "#"),
)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_MICRO: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_QUANTITY: Final = re.compile(r"\d+(\.\d+)?([kMGTPE]i?|m)?")
_SAMPLE: Final = re.compile(r"(?P<name>\w+)\{(?P<labels>.*)\} ")
_LABEL: Final = re.compile(r'(\w+)="')

#: Rows that no recording has: why the lab shows them all the same.
_WORKLOADS: Final = "workloads.kueue.x-k8s.io"
_PREVIOUSLY: Final = (
    "False QuotaReserved: Previously: Preempted to accommodate a workload (UID: UID, JobUID: UID) due to "
    "prioritization in the ClusterQueue; preemptor path: /NAME; preemptee path: /NAME"
)
_RECOVERED: Final = "Kueue, pkg/controller/jobframework/reconciler.go: what is ready again after it was not"
_METRICS: Final = "kube-scheduler, pkg/scheduler/metrics: the recorded excerpts leave this family out"
_TAINTED: Final = (
    "#/# nodes are available: # node(s) had untolerated taint(s), # Insufficient nvidia.com/gpu. no new claims to "
    "deallocate, preemption: #/# nodes are available: # Preemption is not helpful for scheduling, # No preemption "
    "victims found for incoming pod."
)
_ALPHABET: Final = "14-node-lost/t3 has these reasons, and a third one: they stand in the order of the alphabet"
_AGAIN: Final = "the form of 4-kueue-partial/t4, with the text of 9-preempt/t3"
_READY: Final = "All pods reached readiness and the workload is running"
EXCEPTIONS: Final[Mapping[tuple[str, str], str]] = {
    ("pods", f"condition PodScheduled False Unschedulable: {_TAINTED}"): _ALPHABET,
    ("events", f"note {_TAINTED}"): _ALPHABET,
    (_WORKLOADS, f"condition Evicted {_PREVIOUSLY}"): _AGAIN,
    (_WORKLOADS, f"condition Preempted {_PREVIOUSLY}"): _AGAIN,
    (_WORKLOADS, f"condition PodsReady True Recovered: {_READY}"): _RECOVERED,
    (_WORKLOADS, "status.conditions[].reason: Recovered"): _RECOVERED,
    (SCHEDULER, "kubernetes_build_info{git_version, major, minor, platform}"): _METRICS,
    (SCHEDULER, "scheduler_cache_size{type}"): _METRICS,
    (SCHEDULER, "scheduler_permit_wait_duration_seconds_sum{result}"): _METRICS,
}


class Row(NamedTuple):
    """A kind of object, and what is read of it: a field with the form of its value, or a condition with its text."""

    kind: str
    what: str


class Traced(dict[str, Any]):
    """A mapping that notes which of its fields are read."""

    def __init__(self, source: Mapping[str, Any], path: str, rows: set[str]) -> None:
        """Wrap a mapping; what is read goes into `rows`."""
        super().__init__(source)
        self._path, self._rows = path, rows

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - what JSON holds
        """Note a field and return its value."""
        return self._noted(key, super().__getitem__(key))

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - what JSON holds
        """Note a field that is there and return its value."""
        return self._noted(key, super().__getitem__(key)) if key in self else default

    def items(self) -> Any:  # noqa: ANN401 - of another type than that of a plain mapping
        """Note all fields and return them."""
        return [(key, self._noted(key, value)) for key, value in super().items()]

    def _noted(self, key: str, value: Any) -> Any:  # noqa: ANN401 - what JSON holds
        path = f"{self._path}.{key}" if self._path else key
        if isinstance(value, dict):
            return Traced(value, path, self._rows)
        if isinstance(value, list):
            return [Traced(one, f"{path}[]", self._rows) if isinstance(one, dict) else one for one in value]
        if value is not None:
            self._rows.add(f"{path}: {form(path, value)}")
        return value


def form(path: str, value: object) -> str:
    """Return the form of a value, or the value itself where it is one of few."""
    if isinstance(value, bool):
        return "yes or no"
    if isinstance(value, int):
        return str(value) if _WORDS.search(path) else "number"
    text = str(value)
    if _WORDS.search(path):
        return text or "''"
    if path.endswith(("message", "note")):
        # Those of conditions and Events are rows of their own, with what they belong to.
        return "text"
    forms = ((_TIME, "time"), (_MICRO, "time with fractions"), (_QUANTITY, "quantity"))
    return next((name for pattern, name in forms if pattern.fullmatch(text)), "text" if text else "''")


def without_names(text: str) -> str:
    """Return a text without what differs from object to object."""
    for pattern, stands_for in _VARIABLES:
        text = pattern.sub(stands_for, text)
    return text


class Reader:
    """The reducers of the check, run on traced objects."""

    def __init__(self) -> None:
        """Take the reducers that a check has by default."""
        self._reducers = {one.api_source: one.reduce for one in wanted_resources(Rules())}

    def rows(self, kind: str, obj: Json) -> Iterator[Row]:
        """Yield what is read of an object."""
        read: set[str] = set()
        self._reducers[kind](Traced(obj, "", read))
        yield from (Row(kind, what) for what in read)
        for condition in (obj.get("status") or {}).get("conditions") or ():
            said = without_names(condition.get("message", ""))
            words = f"{condition['type']} {condition['status']} {condition.get('reason', '')}".rstrip()
            yield Row(kind, f"condition {words}" + (f": {said}" if said else ""))
        if kind == "events":
            yield Row(kind, f"note {without_names(obj.get('note') or '')}")


class _Shown:
    """Takes what a world shows, in the place of a server."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, Json]] = []
        self.faults: list[Any] = []

    def apply(self, name: str, obj: Json) -> Json:
        self.taken.append((name, obj))
        return obj

    def delete(self, name: str, own: str, namespace: str = "") -> Json | None:
        del name, own, namespace
        return None


def exposed(text: bytes) -> Iterator[str]:
    """Yield the families of an exposition with their labels; of a histogram the sum and the count."""
    for line in text.decode().splitlines():
        match = _SAMPLE.match(line)
        if match and not match["name"].endswith("_bucket"):
            yield f"{match['name']}{{{', '.join(sorted(_LABEL.findall(match['labels'])))}}}"


def simulated(names: Iterable[str]) -> dict[Row, str]:
    """Return what is read of these scenarios: the row, and the first scenario that has it."""
    reader, found = Reader(), dict[Row, str]()
    for name in names:
        world, shown = World(load(name)), _Shown()
        for number in range(int((world.scenario.before + world.scenario.lasts) // _LOOK)):
            world.run_until(world.start - world.scenario.before + number * _LOOK)
            world.show(shown)
            for kind, obj in shown.taken:
                for row in reader.rows(kind, obj):
                    found.setdefault(row, name)
            shown.taken.clear()
        for kind, text in ((KUEUE, metrics.kueue(world)), (SCHEDULER, metrics.scheduler(world))):
            for what in exposed(text):
                found.setdefault(Row(kind, what), name)
    return found


def recorded() -> dict[Row, str]:
    """Return what is read of the recordings: the row, and the first object that has it."""
    reader, found = Reader(), dict[Row, str]()
    for archive in sorted(CAPTURES.glob("*-*.tar.xz")):
        for moment in moments(archive):
            one = Recording.open(archive, moment)
            where = f"{archive.name.removesuffix('.tar.xz')}{'/' if moment else ''}{moment}"
            for kind, name in _LISTS.items():
                for obj in orjson.loads(one.lists.get(name, b'{"items": []}'))["items"]:
                    for row in reader.rows(kind, obj):
                        found.setdefault(row, f"{where} {obj['metadata']['name']}")
            for kind, texts in ((KUEUE, one.metrics), (SCHEDULER, one.evidence)):
                for name, text in texts.items():
                    if name.endswith(".prom"):
                        for what in exposed(text):
                            found.setdefault(Row(kind, what), f"{where} {name}")
    return found


def main() -> int:
    """Print the table; return 1 where something has no source."""
    sources = recorded()
    orphans = 0
    for row, scenario in sorted(simulated(known()).items()):
        source = sources.get(row) or EXCEPTIONS.get(row)
        orphans += source is None
        print(f"{row.kind}  {row.what}\n    {source or f'NO SOURCE (scenario {scenario})'}")
    return int(orphans > 0)


if __name__ == "__main__":
    sys.exit(main())
