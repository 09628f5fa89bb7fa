# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A Prometheus server that knows what the GPUs of the simulated cluster do, and how fast its jobs get on.

It answers two kinds of instant queries, told apart by the metric that they name: those over DCGM's activity metrics
with one series a GPU, those over `train_tokens_total` with one series a pod. What else the query does with them is
taken as done: the rates and maxima of the last two minutes. Others find nothing.

A GPU works while the gang of its pod works and nothing has it stand still (`idle`); then its two minutes still show it.
A job makes `progress` tokens a second, all its pods together, a few percent more or less, or as much of that as `slow`
leaves.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from zlib import crc32

import orjson

from lab.simulation.state import Json

if TYPE_CHECKING:
    from lab.simulation.world import World

QUERY: Final = "/api/v1/query"
NAMES: Final = "/api/v1/label/__name__/values"
ACTIVITY: Final = ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL")
TOKENS: Final = "train_tokens_total"
#: The queries look back so far.
WINDOW: Final = 120.0
_NOISE: Final = 0.03
_ACTIVE: Final = 0.9


def answer(world: "World", query: str) -> bytes:
    """Return the answer to an instant query."""
    series: Iterator[tuple[Json, float]] = iter(())
    if any(metric in query for metric in ACTIVITY):
        series = _activity(world)
    elif TOKENS in query:
        series = _tokens(world)
    result = [{"metric": labels, "value": [round(world.now, 3), f"{value:.6g}"]} for labels, value in series]
    return orjson.dumps({"status": "success", "data": {"resultType": "vector", "result": result}})


def names() -> bytes:
    """Return the names of all metrics."""
    return orjson.dumps({"status": "success", "data": [*ACTIVITY, TOKENS, "up"]})


def _activity(world: "World") -> Iterator[tuple[Json, float]]:
    taken: dict[str, int] = {}
    for pod in sorted(world.pods.values(), key=lambda pod: pod.key):
        if pod.node is None or pod.phase != "Running" or pod.node.silent is not None:
            continue
        works = world.faults.stood_still(pod) < WINDOW
        for _ in range(pod.gpus):
            number = taken.get(pod.node.name, 0)
            taken[pod.node.name] = number + 1
            labels = {
                "gpu": str(number),
                "UUID": f"GPU-{pod.node.name}-{number}",
                "Hostname": pod.node.name,
                "namespace": pod.namespace,
                "pod": pod.name,
            }
            yield labels, _ACTIVE if works else 0.0


def _tokens(world: "World") -> Iterator[tuple[Json, float]]:
    for job in world.jobs_there():
        if not job.progress or not job.works:
            continue
        stands = any(world.faults.stood_still(pod) >= WINDOW for pod in job.pods.values())
        total = 0.0 if stands else job.progress * world.faults.slow.get(job.name, 1.0)
        for pod in job.pods.values():
            if pod.up:
                yield {"namespace": pod.namespace, "pod": pod.name}, total / job.size * _noise(world, pod.name)


def _noise(world: "World", name: str) -> float:
    """Return a factor near 1 that is another one each time, and the same in each play."""
    drawn = crc32(f"{name}@{int(world.now)}".encode()) / 2**32
    return 1 + _NOISE * (2 * drawn - 1)
