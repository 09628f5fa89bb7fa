# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The expositions of Kueue and of the gang scheduler, written from what their doubles count.

The families, their labels and their order are those of the recorded expositions (kueue-metrics.prom, evidence/*.prom).
Of a histogram the sum, the count and the bucket of everything are written; the other buckets nobody reads.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from lab.simulation.state import CPU_PER_POD, GANG_SCHEDULER, GPU, MEMORY_PER_POD, Workload

if TYPE_CHECKING:
    from lab.simulation.world import World

_CLASS: Final = ("cluster_queue", "priority_class")
_EVICTED: Final = ("cluster_queue", "reason", "underlying_cause", "priority_class")
#: The labels of counters and histograms, in the order of their values.
_COUNTERS: Final[Mapping[str, tuple[str, ...]]] = {
    "admission_attempts_total": ("result",),
    "admitted_workloads_total": _CLASS,
    "evicted_workloads_once_total": _EVICTED,
    "evicted_workloads_total": _EVICTED,
    "finished_workloads_total": _CLASS,
    "preempted_workloads_total": ("preempting_cluster_queue", "reason"),
    "quota_reserved_workloads_total": _CLASS,
}
_HISTOGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "admission_wait_time_seconds": _CLASS,
    "admitted_until_ready_wait_time_seconds": _CLASS,
    "pods_ready_to_evicted_time_seconds": ("cluster_queue", "reason", "underlying_cause"),
    "quota_reserved_wait_time_seconds": _CLASS,
    "ready_wait_time_seconds": _CLASS,
    "workload_eviction_latency_seconds": ("cluster_queue", "reason"),
}
_GIB: Final = 2**30

_Row = tuple[dict[str, str], float]


def kueue(world: "World") -> bytes:
    """Return Kueue's exposition."""
    source = world.kueue
    families: dict[str, list[str]] = {}
    for name, labels in _COUNTERS.items():
        rows = [(dict(zip(labels, values, strict=True)), float(n)) for values, n in sorted(source.counts[name].items())]
        families[f"kueue_{name}"] = list(_family(f"kueue_{name}", "counter", rows))
    for name, labels in _HISTOGRAMS.items():
        found = dict(sorted(source.samples[name].items()))
        families[f"kueue_{name}"] = list(_histogram(f"kueue_{name}", labels, found))
    for name, gauges in _gauges(world).items():
        families[f"kueue_{name}"] = list(_family(f"kueue_{name}", "gauge", gauges))
    return "".join(line + "\n" for name in sorted(families) for line in families[name]).encode()


def _gauges(world: "World") -> dict[str, list[_Row]]:
    found: dict[str, list[_Row]] = {}
    for name, queue in world.cluster_queues.items():
        mine = world.kueue.in_queue(name)
        held = [one for one in mine if one.holds_quota]
        admitted = [one for one in held if one.conditions.is_true("Admitted")]
        waiting = [one for one in mine if one.active and not one.finished and not one.holds_quota]
        of = {"cluster_queue": name}
        rows: dict[str, list[tuple[dict[str, str], float]]] = {
            "admitted_active_workloads": [(of, len(admitted))],
            "finished_workloads": [(of, sum(one.finished for one in mine))],
            "reserving_active_workloads": [(of, len(held))],
            "cluster_queue_status": [
                ({**of, "status": status}, float(status == "active")) for status in ("active", "pending", "terminating")
            ],
            "pending_workloads": [
                ({**of, "status": "active"}, float(sum(one.requeue_at is None and _fresh(one) for one in waiting))),
                ({**of, "status": "inadmissible"}, float(sum(not _fresh(one) for one in waiting))),
            ],
        }
        for flavor, quota in queue.quota.items():
            at = {"cohort": "", **of, "flavor": flavor}
            rows.setdefault("cluster_queue_nominal_quota", []).extend(
                ({**at, "resource": resource}, amount)
                for resource, amount in (("cpu", 4000.0), ("memory", 40000.0 * _GIB), (GPU, float(quota)))
            )
            for part, workloads in (("reservation", held), ("usage", admitted)):
                rows.setdefault(f"cluster_queue_resource_{part}", []).extend(
                    ({**at, "resource": resource}, amount) for resource, amount in _usage(workloads, flavor).items()
                )
        for family, more in rows.items():
            found.setdefault(family, []).extend((labels, float(value)) for labels, value in more)
    return found


def _fresh(one: Workload) -> bool:
    return one.conditions.reason("QuotaReserved") in {"", "PendingEvaluation", "WaitingForPreemptedWorkloads"}


def _usage(workloads: Iterable[Workload], flavor: str) -> dict[str, float]:
    mine = [one for one in workloads if one.flavor == flavor]
    pods = sum(one.job.size for one in mine)
    return {
        "cpu": float(CPU_PER_POD * pods),
        "memory": float(MEMORY_PER_POD * _GIB * pods),
        GPU: float(sum(one.gpus for one in mine)),
    }


def scheduler(world: "World") -> bytes:
    """Return the gang scheduler's exposition."""
    source = world.scheduler
    profile = {"profile": GANG_SCHEDULER}
    point = {"extension_point": "Permit", **profile}
    waiting, pending = source.waiting(), source.pending()
    lines = [
        *_family(
            "kubernetes_build_info",
            "gauge",
            [({"git_version": "v1.36.2", "major": "1", "minor": "36", "platform": "linux/amd64"}, 1.0)],
        ),
        *_family(
            "scheduler_cache_size",
            "gauge",
            [
                ({"type": "assumed_pods"}, float(len(waiting))),
                ({"type": "nodes"}, float(len(world.nodes))),
                ({"type": "pods"}, float(sum(pod.node is not None for pod in world.pods.values()) + len(waiting))),
            ],
        ),
        "# TYPE scheduler_framework_extension_point_duration_seconds histogram",
        *(
            _line("scheduler_framework_extension_point_duration_seconds_count", {**point, "status": status}, number)
            for status, number in (("Success", source.passed), ("Wait", source.entered))
            if number
        ),
        *_family("scheduler_pending_pods", "gauge", [({"queue": q}, float(n)) for q, n in sorted(pending.items())]),
        "# TYPE scheduler_permit_wait_duration_seconds histogram",
        *(
            _line(f"scheduler_permit_wait_duration_seconds_{part}", {"result": result}, number)
            for result, ended in sorted(source.ended.items())
            for part, number in (("sum", source.waited[result]), ("count", ended))
        ),
        *_family(
            "scheduler_schedule_attempts_total",
            "counter",
            [
                ({**profile, "result": result}, float(n))
                for (who, result), n in sorted(source.attempts.items())
                if who == GANG_SCHEDULER
            ],
        ),
        *_family(
            "scheduler_unschedulable_pods",
            "gauge",
            [({"plugin": plugin, **profile}, float(n)) for plugin, n in sorted(source.turned_away().items())],
        ),
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def _family(name: str, kind: str, rows: Iterable[_Row]) -> Iterator[str]:
    lines = [_line(name, _with_role(name, labels), value) for labels, value in rows]
    if lines:
        yield f"# TYPE {name} {kind}"
        yield from lines


def _histogram(name: str, labels: tuple[str, ...], samples: Mapping[tuple[str, ...], list[float]]) -> Iterator[str]:
    if samples:
        yield f"# TYPE {name} histogram"
    for values, found in samples.items():
        of = _with_role(name, dict(zip(labels, values, strict=True)))
        yield _line(f"{name}_bucket", {**of, "le": "+Inf"}, len(found))
        yield _line(f"{name}_sum", of, sum(found))
        yield _line(f"{name}_count", of, len(found))


def _with_role(name: str, labels: Mapping[str, str]) -> dict[str, str]:
    return {**labels, "replica_role": "leader"} if name.startswith("kueue_") else dict(labels)


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    shown = ",".join(f'{key}="{text}"' for key, text in sorted(labels.items()))
    return f"{name}{{{shown}}} {value:.10g}"
