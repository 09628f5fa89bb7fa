# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A check that runs thousands of times on a cluster that never rests, and what it holds meanwhile: `make soak`.

    python -m tests.soak [--runs 2000] [--seed 1]

The cluster lives in a process of its own, behind the lab's API server, so that memory, threads and descriptors of this
process are those of the check. In each step gangs end and others with new names come, pods start, finish and are
deleted, nodes post their status and come and go; watches are cut, end and expire, the server restarts, sources fail for
a while, objects break, and Kueue is uninstalled and comes back. Fifteen seconds pass in the cluster with each run.

What it prints, at intervals, after a collection of garbage: memory (RSS), the blocks of memory that objects are made
of, threads, descriptors, and the gangs and pods that are known. What it asserts: from the time on when everything has
happened once there is no growth. The blocks are exact and show a leak of a few objects a run; RSS grows by some more at
first, while the allocator finds its place.
"""

import argparse
import gc
import logging
import multiprocessing
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final

from datadog_checks.base.stubs import aggregator

from datadog_checks.kueue_gang import KueueGangCheck
from datadog_checks.kueue_gang.sources import api as api_module
from lab.apiserver import KINDS, ApiServer
from lab.http_faults import Fault
from tests.live import KUEUE_METRICS, QUICK, SCHEDULER_METRICS, cluster, instance, readers, until
from tests.model.build import (
    GANG_SCHEDULER,
    NO_GPU,
    NOW,
    TEAM,
    Json,
    bound,
    job,
    new,
    node,
    of_group,
    of_jobset,
    of_workload,
    pod_group,
    podset,
    ready,
    succeeded,
    unscheduled,
    workload,
)

#: Gangs at a time, and nodes.
GANGS: Final = 30
NODES: Final = 20
MEMBERS: Final = 4
SECONDS_A_RUN: Final = 15
#: A phase that no pod has.
BROKEN: Final = "Exploded"
#: By how much memory may be larger at the end than when everything had happened once, in KiB. Of the blocks some 2,000
#: depend on what was there to be read when they were counted, and the tags of the latest gangs, four blocks each, are
#: remembered for as long as there is room. Descriptors may differ by the connections that happen to be open.
MEMORY_MARGIN: Final = 3 * 1024
BLOCK_MARGIN: Final = 10_000
DESCRIPTOR_MARGIN: Final = 6


class Life:
    """A cluster that never rests."""

    def __init__(self, server: ApiServer, seed: int) -> None:
        """Fill the server."""
        self._server = server
        self._chance = random.Random(seed)
        self._born = 0
        self._step = 0
        self._kinds = dict(server.kinds)
        #: Names of the gangs that live, with their pods.
        self._gangs: dict[str, list[str]] = {}
        server.apply_all(cluster())
        for number in range(NODES):
            server.apply("nodes", node(f"gpu-{number}"))
        for _ in range(GANGS):
            self._begin()

    def step(self) -> int:
        """Let something happen; return the number of pods."""
        self._step += 1
        self._server.faults = []
        self._server.kinds = dict(self._kinds)
        for _ in range(self._chance.randint(0, 2)):
            self._end()
            self._begin()
        for name in self._chance.sample(sorted(self._gangs), 4):
            self._move(name)
        self._disturb()
        return self._pods()

    def calm(self) -> int:
        """Let everything heal; return the number of pods."""
        self._server.faults = []
        self._server.kinds = dict(self._kinds)
        return self._pods()

    def _pods(self) -> int:
        """Return the number of pods that can be understood."""
        return sum(pod["status"]["phase"] != BROKEN for pod in self._server.store.all("pods"))

    def _begin(self) -> None:
        self._born += 1
        name = f"gang-{self._born}"
        kueue = self._born % 2
        if kueue:
            self._server.apply("jobs", job(name, MEMBERS, MEMBERS))
            self._server.apply(
                "workloads.kueue.x-k8s.io", workload(f"js-{name}", ("JobSet", name), podset(MEMBERS), admitted=100)
            )
        else:
            self._server.apply("podgroups.scheduling.x-k8s.io", pod_group(name, MEMBERS))
        self._gangs[name] = [f"{name}-{rank}" for rank in range(MEMBERS)]
        for pod in self._gangs[name]:
            self._server.apply("pods", self._pod(name, pod))

    def _end(self) -> None:
        name = self._chance.choice(sorted(self._gangs))
        for pod in self._gangs.pop(name):
            self._server.delete("pods", pod, TEAM)
        for kind in ("jobs", "podgroups.scheduling.x-k8s.io"):
            self._server.delete(kind, name, TEAM)
        self._server.delete("workloads.kueue.x-k8s.io", f"js-{name}", TEAM)

    def _pod(self, name: str, pod: str) -> Json:
        kueue = int(name.partition("-")[2]) % 2
        tie = of_workload(f"js-{name}") + of_jobset(name, uid=f"uid-{name}") if kueue else of_group(name)
        where = f"gpu-{self._chance.randrange(NODES)}"
        scheduler: dict[str, Any] = {"scheduler": GANG_SCHEDULER}
        makers: list[Callable[[], Json]] = [
            lambda: new(pod, tie, gpus=1, **scheduler),
            lambda: unscheduled(pod, tie, NO_GPU, gpus=1, **scheduler),
            lambda: bound(pod, tie, where, gpus=1, **scheduler),
            lambda: ready(pod, tie, where, gpus=1, **scheduler),
            lambda: ready(pod, tie, where, gpus=1, **scheduler),
            lambda: succeeded(pod, tie, where, gpus=1, **scheduler),
        ]
        return self._chance.choice(makers)()

    def _move(self, name: str) -> None:
        pod = self._chance.choice(self._gangs[name])
        if self._chance.random() < 0.1:
            self._server.delete("pods", pod, TEAM)
        elif self._chance.random() < 0.05:
            broken = self._pod(name, pod)
            broken["status"]["phase"] = BROKEN
            self._server.apply("pods", broken)
        else:
            self._server.apply("pods", self._pod(name, pod))

    def _disturb(self) -> None:
        """Do what happens now and then."""
        server, chance, step = self._server, self._chance, self._step
        name = chance.choice(list(KINDS))
        paths = [KINDS[name].path(version) for version in KINDS[name].versions]
        if step % 3 == 0:
            which = f"gpu-{chance.randrange(NODES)}"
            server.apply("nodes", node(which, ready_status=chance.choice(["True", "True", "False"]), since=step))
        if step % 10 == 0:
            server.apply("nodes", node(f"scaled-{step}"))
            server.delete("nodes", f"scaled-{step - 50}")
        if step % 13 == 0:
            server.cut(name)
        if step % 17 == 0:
            server.end()
        if step % 31 == 0:
            server.compact()
            server.cut(name)
        if step % 97 == 0:
            server.restart()
        if step % 23 == 0:
            faults: list[Fault] = [500, 403, "refuse", "html", "cut", 410]
            fault = chance.choice(faults)
            server.faults = [(path, fault) for path in paths]
            server.cut(name)
        if step % 41 == 0:
            failures: list[Fault] = [500, 401, "html", "refuse"]
            server.faults = [(chance.choice(["/metrics", "/scheduler"]), chance.choice(failures))]
        if step % 61 == 0 and KINDS[name].group:
            del server.kinds[name]
            server.end(name)


def serve(pipe: Connection, seed: int) -> None:
    """Run a cluster; steps and questions come over the pipe."""
    later = 0.0
    with ApiServer(clock=lambda: NOW + later) as server:
        server.bookmark_seconds = 0.2
        server.kueue, server.scheduler = KUEUE_METRICS, SCHEDULER_METRICS
        life = Life(server, seed)
        pipe.send(server.url)
        while (word := pipe.recv()) != "stop":
            later += SECONDS_A_RUN
            # The log of requests is for tests.
            server.log.clear()
            pipe.send(life.step() if word == "step" else life.calm())


@dataclass(frozen=True)
class Sample:
    """What the process holds after so many runs; memory in KiB."""

    runs: int
    memory: int
    blocks: int
    threads: int
    descriptors: int
    gangs: int
    pods: int

    def __str__(self) -> str:
        """Return a line of the table."""
        return (
            f"{self.runs:>6} {self.memory / 1024:>9.1f} {self.blocks:>8} {self.threads:>8} {self.descriptors:>12} "
            f"{self.gangs:>6} {self.pods:>6}"
        )


HEAD: Final = f"{'runs':>6} {'RSS MiB':>9} {'blocks':>8} {'threads':>8} {'descriptors':>12} {'gangs':>6} {'pods':>6}"


def sample(check: KueueGangCheck, runs: int) -> Sample:
    """Measure."""
    gc.collect()
    picture = check.picture
    pods = next(one for one in check._collector._reflectors if one.resource.api_source == "pods")  # type: ignore[union-attr]
    return Sample(
        runs=runs,
        memory=_memory(),
        blocks=sys.getallocatedblocks(),
        threads=threading.active_count(),
        descriptors=len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - only how many
        gangs=len(picture.gangs) if picture else 0,
        pods=len(pods.table),
    )


def _memory() -> int:
    with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123 - read often
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def soak(runs: int, *, seed: int = 1, tell: Callable[[str], object] = print) -> list[Sample]:
    """Run a check so often; return the measurements, of which there are twenty."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    server = context.Process(target=serve, args=(there, seed), daemon=True)
    server.start()
    timing, discovery = KueueGangCheck.TIMING, api_module.DISCOVERY_SECONDS
    KueueGangCheck.TIMING, api_module.DISCOVERY_SECONDS = QUICK, 0.5  # type: ignore[misc]
    try:
        options = instance(here.recv(), kube_timeout=5, timeout=5, zero_tail_seconds=1, max_gangs=1000)
        return _soak(KueueGangCheck("kueue_gang", {}, [options]), here, runs, tell)
    finally:
        KueueGangCheck.TIMING, api_module.DISCOVERY_SECONDS = timing, discovery  # type: ignore[misc]
        here.send("stop")
        server.join(10)


def _soak(check: KueueGangCheck, pipe: Connection, runs: int, tell: Callable[[str], object]) -> list[Sample]:
    samples: list[Sample] = []

    def run(word: str) -> int:
        pipe.send(word)
        pods: int = pipe.recv()
        aggregator.reset()
        check.run()
        check.get_warnings()
        return pods

    tell(HEAD)
    try:
        for number in range(1, runs + 1):
            run("step")
            # Time for the events to come, and for streams to end now and then.
            time.sleep(0.005)
            if number % max(1, runs // 20) == 0:
                samples.append(sample(check, number))
                tell(str(samples[-1]))
        until(lambda: run("calm") == sample(check, runs).pods, "in the end it knows what there is")
    finally:
        check.cancel()
    until(lambda: not readers(), "the threads end")
    return samples


def growth(samples: list[Sample]) -> dict[str, int]:
    """Return how much more is held in the last fifth than in the second one, of the largest there."""
    fifth = len(samples) // 5
    before, after = samples[fifth : 2 * fifth], samples[-fifth:]
    names = ("memory", "blocks", "threads", "descriptors")
    return {
        name: max(getattr(one, name) for one in after) - max(getattr(one, name) for one in before) for name in names
    }


def assert_no_growth(samples: list[Sample]) -> None:
    """Assert that nothing is held that grows with the number of runs."""
    grown = growth(samples)
    assert grown["threads"] <= 1, grown
    assert grown["descriptors"] <= DESCRIPTOR_MARGIN, grown
    assert grown["blocks"] <= BLOCK_MARGIN, grown
    assert grown["memory"] <= MEMORY_MARGIN, grown


def main() -> None:
    """Soak, print, and assert."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options: Any = parser.parse_args()
    # Each fault would be told.
    logging.disable(logging.CRITICAL)
    began = time.monotonic()
    samples = soak(options.runs, seed=options.seed)
    grown = growth(samples)
    print(f"{options.runs} runs in {time.monotonic() - began:.0f} s")
    print(
        f"from the second to the last fifth: memory {grown['memory'] / 1024:+.1f} MiB, "
        f"blocks {grown['blocks']:+,}, threads {grown['threads']:+}, descriptors {grown['descriptors']:+}"
    )
    assert_no_growth(samples)


if __name__ == "__main__":
    main()
