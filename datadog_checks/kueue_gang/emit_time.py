# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""From the picture to the metrics of time: Workloads and how long they wait, what happened, GPU-seconds.

Counts are of what happened since the run before, and are never sent as 0: nothing is added by it.
"""

from collections.abc import Iterator, Mapping, Sequence

from datadog_checks.kueue_gang.derive.picture import Picture
from datadog_checks.kueue_gang.derive.spent import Spent
from datadog_checks.kueue_gang.sampling import Sample, Tags, queue_tags, sample, tag, workload_tags


def workloads(picture: Picture) -> Iterator[Sample]:
    """Tell how far Workloads are, and for how long."""
    found = picture.workloads
    if found is None:
        return
    for (*place, stage), number in found.stages.items():
        yield sample("workloads", number, *workload_tags(*place), tag("workload_stage", stage))
    for (*place, stage), clocks in found.clocks.items():
        oldest = max(0.0, picture.now - min(clocks.values()))
        yield sample("workloads.oldest_wait_seconds", oldest, *workload_tags(*place), tag("workload_stage", stage))
    for queue, number in found.without_pods.items():
        yield sample("workloads.without_pods", number, *workload_tags(*queue[:3]))


def happened(picture: Picture) -> Iterator[Sample]:
    """Tell what happened since the picture before."""
    found = picture.happened
    for queue, seconds in found.assembled.items():
        tags = queue_tags(queue)
        yield sample("gangs.assembled", len(seconds), *tags)
        yield from _durations("gangs.assembly_seconds", seconds, tags)
    for (queue, reason), number in found.rejected.items():
        yield sample("gangs.rejected", number, *queue_tags(queue), tag("reason", reason))
    for (*place, stage), seconds in found.stages.items():
        yield from _durations(
            "workloads.stage_seconds", seconds, (*workload_tags(*place), tag("workload_stage", stage))
        )  # fmt: skip
    for one, number in found.evicted.items():
        yield sample(
            "workloads.evicted",
            number,
            *workload_tags(one.namespace, one.local_queue, one.cluster_queue),
            tag("kueue_eviction_reason", one.reason),
            tag("underlying_cause", one.cause),
            tag("gang_partial", one.gang_partial),
        )
    for (queue, resource, reason), amount in found.burned.items():
        if amount:
            yield sample(
                "gpus.burned_seconds", amount, *queue_tags(queue), tag("gpu_resource", resource), tag("reason", reason)
            )


def _durations(name: str, seconds: Sequence[float], tags: Tags) -> Iterator[Sample]:
    yield sample(f"{name}.sum", sum(seconds), *tags)
    yield sample(f"{name}.count", len(seconds), *tags)
    yield sample(f"{name}.max", max(seconds), *tags)


def spent(found: Spent) -> Iterator[Sample]:
    """Tell the GPU-seconds since the run before, and what those cost that were idle."""
    rows: tuple[tuple[str, str, Mapping], ...] = (  # type: ignore[type-arg]
        ("gpus.allocated_seconds", "gpu_use", found.allocated),
        ("gpus.idle_seconds", "idle_reason", found.idle),
        ("gpus.idle_cost", "idle_reason", found.cost),
    )
    for name, key, amounts in rows:
        for (queue, resource, what), amount in amounts.items():
            if amount:
                yield sample(name, amount, *queue_tags(queue), tag("gpu_resource", resource), tag(key, what))
