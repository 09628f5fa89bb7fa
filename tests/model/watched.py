# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Clusters that are looked at again and again, with signals of their GPUs and jobs: one check sees them run after run.

watched = Watched(*running("train", 2), activity=True)
seen = watched.run(15, beats=[beat("train-0", 10)])
assert seen.unobservable("activity") == {"no_sample": 1}

Seconds count from `NOW`, when the objects were made; those of samples too.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from datadog_checks.kueue_gang.derive.deriver import Deriver
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.facts.cluster import Changes
from datadog_checks.kueue_gang.facts.signals import Beat, Pace, Signals, TrainJob
from tests.model.build import NOW, SOURCES, TEAM, Json, Seen, node, of_group, pod_group, ready, reducers

#: What the clock of the samples says at `NOW`.
CLOCK = 7000.0
NODES = tuple(node(name) for name in ("n0", "n1", "n2"))


def running(name: str, size: int, gpus: Any = 8, since: float = 7200, **more: Any) -> tuple[Json, ...]:
    """Return a gang that runs for so many seconds; its members are named name-0 and so on, each on its own node."""
    ranks = (
        ready(f"{name}-{rank}", of_group(name), f"n{rank % 3}", since=since, created=since + 60, gpus=gpus, **more)
        for rank in range(size)
    )
    return pod_group(name, size, created=since + 60), *ranks


def beat(pod: str, at: float, *, active: bool = False, device: str = "0") -> Beat:
    """Return a sample of a GPU."""
    return Beat(TEAM, pod, device, active, CLOCK + at)


def beats(pod: str, at: float, devices: int = 8, busy: Iterable[int] = ()) -> list[Beat]:
    """Return a sample of each GPU of a pod; those in `busy` work."""
    return [beat(pod, at, active=number in set(busy), device=str(number)) for number in range(devices)]


def count(pod: str, at: float, value: float, source: int = 0) -> Pace:
    """Return a sample of a counter."""
    return Pace(source, TEAM, pod, "", value, counter=True, at=CLOCK + at)


def gauge(pod: str, at: float, value: float, source: int = 0, gang: str = "") -> Pace:
    """Return a sample of a gauge."""
    return Pace(source, TEAM, pod, gang, value, counter=False, at=CLOCK + at)


class Watched:
    """A check that follows a cluster and its signals."""

    def __init__(self, *objects: Json, anew: bool = False, **options: Any) -> None:
        """Take what is there and the options; with `anew` all objects seem to change with each run."""
        self.rules = Rules(**options)
        self._objects: tuple[Json, ...] = objects
        self._anew = anew
        self._reduce = reducers(self.rules)
        self._facts: dict[tuple[str, str, str], Any] = {}
        self._jobs: dict[str, TrainJob] = {}
        self.deriver = Deriver(self.rules)

    def restart(self) -> None:
        """Let another check go on, which remembers nothing."""
        self.deriver, self._facts, self._jobs = Deriver(self.rules), {}, {}

    def run(
        self,
        at: float,
        *objects: Json,
        beats: Sequence[Beat] = (),
        paces: Sequence[Pace] = (),
        silent: Sequence[tuple[int, str]] = (),
        awaited: Sequence[tuple[int, str]] = (),
        jobs: Sequence[TrainJob] | None = None,
        activity: str = "",
        training: str = "",
        behind: Mapping[str, str] | None = None,
    ) -> Seen:
        """Return what is seen at a time; without `objects` and `jobs` what was there is there."""
        self._objects = objects or self._objects
        changes = self._changes()
        changes.train_jobs = self._jobs_changed(jobs)
        changes.behind = behind or {}
        changes.signals = Signals(
            clock=CLOCK + at,
            beats=tuple(beats),
            paces=tuple(paces),
            silent=tuple((source, TEAM, pod) for source, pod in silent),
            awaited=tuple((source, TEAM, pod) for source, pod in awaited),
            activity=activity,
            training=training,
        )
        picture = self.deriver.apply(changes, NOW + at)
        return Seen(picture, self.deriver.memory())

    def _changes(self) -> Changes:
        found: dict[tuple[str, str, str], Any] = {}
        changed: dict[str, list[tuple[Any, Any]]] = {}
        # A node of the test takes the place of the one with its name.
        objects = {(obj["kind"], obj["metadata"]["name"]): obj for obj in (*NODES, *self._objects)}
        for obj in objects.values():
            source, field = SOURCES[obj["apiVersion"].split("/")[0], obj["kind"]]
            key = source, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
            found[key] = self._reduce[source](obj)
            old = self._facts.get(key)
            if old == found[key] and not self._anew:
                found[key] = old
            else:
                changed.setdefault(field, []).append((old, found[key]))
        for key in self._facts.keys() - found.keys():
            changed.setdefault(dict(SOURCES.values())[key[0]], []).append((self._facts[key], None))
        self._facts = found
        made: dict[str, Any] = changed
        return Changes(**made)

    def _jobs_changed(self, jobs: Sequence[TrainJob] | None) -> list[tuple[TrainJob | None, TrainJob | None]]:
        if jobs is None:
            return []
        before, self._jobs = self._jobs, {job.name: job for job in jobs}
        names = sorted(before.keys() | self._jobs.keys())
        return [(before.get(name), self._jobs.get(name)) for name in names]
