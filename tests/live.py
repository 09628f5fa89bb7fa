# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What the tests share that let a check read a live API server.

A cluster with one of everything, short waits, patience, and what must not be left over. Whatever takes minutes in a
cluster takes tenths of a second with `QUICK`. Nothing here sleeps for a fixed time: `until` looks again and again, and
fails after some seconds, so that a slow machine is no reason to fail.
"""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from datadog_checks.kueue_gang.sources.reader import Timing
from tests.model.build import (
    GANG_SCHEDULER,
    GPU,
    NO_GPU,
    TIMEOUT,
    Json,
    bound,
    failed_scheduling,
    flavor,
    job,
    local_queue,
    native_group,
    node,
    of_group,
    of_job,
    of_native,
    of_workload,
    pod_group,
    podset,
    ready,
    unscheduled,
    workload,
)

QUICK: Final = Timing(watch=1.0, margin=0.3, stale=30.0, retry=0.02, retry_most=0.1, refused=0.1)

#: How long a test waits for what should come at once.
PATIENCE: Final = 10.0

_Found = TypeVar("_Found")


def until(look: Callable[[], _Found], what: str | Callable[[], str] = "", seconds: float = PATIENCE) -> _Found:
    """Call `look` until it returns something true, and return that; fail with `what` after some seconds."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() >= deadline:
            told = what() if callable(what) else what
            msg = f"not within {seconds:g} s: {told or look}"
            raise AssertionError(msg)
        time.sleep(0.01)
    return found


def readers() -> list[str]:
    """Return the names of the check's threads that live."""
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("kueue-gang-"))


def sockets() -> set[str]:
    """Return the sockets that this process has open, those of the lab's servers included."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            target = str(descriptor.readlink())
            if target.startswith("socket:"):
                found.add(target)
    return found


# --- a cluster with one of everything --------------------------------------------------------------------------------


def _kueue(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}


def cluster() -> list[Json]:
    """Return the objects of a small cluster, two of each kind or more.

    Four nodes with 8 GPUs each; `tunes` (Coscheduling) runs on two of them; of `evals` (native) one of two pods runs;
    `trains` (a Job of Kueue) is admitted and starting on the last node. What is called `spare` is no gang.
    """
    quota = {
        "flavors": [{"name": "gpu", "resources": [{"name": GPU, "nominalQuota": "32"}]}],
        "coveredResources": [GPU],
    }
    levels = [{"nodeLabel": "kubernetes.io/hostname"}]
    return [
        *(node(f"n{number}", 8) for number in range(4)),
        pod_group("tunes", 2),
        pod_group("spare", 1),
        *(ready(f"tunes-{rank}", of_group("tunes"), f"n{rank}", scheduler=GANG_SCHEDULER) for rank in range(2)),
        native_group("evals", 2),
        native_group("spare", None),
        ready("evals-0", of_native("evals"), "n2"),
        unscheduled("evals-1", of_native("evals"), NO_GPU),
        job("trains", 2, 2),
        job("spare", 1, 1),
        workload("job-spare", ("Job", "spare"), podset(1), finished=50),
        workload("job-trains", ("Job", "trains"), podset(2, gpus=4), admitted=200),
        *(
            bound(f"trains-{rank}", of_workload("job-trains") + of_job("trains", rank), "n3", gpus=4, since=100)
            for rank in range(2)
        ),
        *(local_queue(name, "cq") for name in ("lq", "spare")),
        *(flavor(name) for name in ("gpu", "spare")),
        *(_kueue("ClusterQueue", name, {"cohort": "all", "resourceGroups": [quota]}) for name in ("cq", "spare")),
        *(_kueue("Cohort", name, {}) for name in ("all", "spare")),
        *(_kueue("AdmissionCheck", name, {"controllerName": "example.com/capacity"}) for name in ("approval", "spare")),
        *(_kueue("Topology", name, {"levels": levels}) for name in ("default", "spare")),
        *(failed_scheduling("evals-1", text, 100 + len(text)) for text in (NO_GPU, TIMEOUT)),
    ]


#: How many objects of each kind that cluster has.
OBJECTS: Final[Mapping[str, int]] = {
    "pods": 6,
    "nodes": 4,
    "jobs": 2,
    "podgroups.scheduling.x-k8s.io": 2,
    "podgroups.scheduling.k8s.io": 2,
    "workloads.kueue.x-k8s.io": 2,
    "clusterqueues": 2,
    "localqueues": 2,
    "cohorts": 2,
    "resourceflavors": 2,
    "admissionchecks": 2,
    "topologies": 2,
    "events": 2,
}

#: The head of Kueue's exposition, with the one family that the tests look for.
KUEUE_METRICS: Final = b"""\
# HELP kueue_admitted_workloads_total The total number of admitted workloads per 'cluster_queue'
# TYPE kueue_admitted_workloads_total counter
kueue_admitted_workloads_total{cluster_queue="cq",priority_class="",replica_role="leader"} 7
# HELP kueue_pending_workloads The number of pending workloads, per 'cluster_queue' and 'status'.
# TYPE kueue_pending_workloads gauge
kueue_pending_workloads{cluster_queue="cq",replica_role="leader",status="active"} 3
"""

#: Lines of a scheduler's exposition: it runs, and two pods wait in Permit.
SCHEDULER_METRICS: Final = b"""\
# HELP scheduler_schedule_attempts_total [STABLE] Number of attempts to schedule pods
# TYPE scheduler_schedule_attempts_total counter
scheduler_schedule_attempts_total{profile="scheduler-plugins-scheduler",result="scheduled"} 12
# HELP scheduler_framework_extension_point_duration_seconds [STABLE] Latency of an extension point
# TYPE scheduler_framework_extension_point_duration_seconds histogram
scheduler_framework_extension_point_duration_seconds_count{extension_point="Permit",profile="scheduler-plugins-scheduler",status="Wait"} 5
# HELP scheduler_permit_wait_duration_seconds [ALPHA] Duration of waiting on permit.
# TYPE scheduler_permit_wait_duration_seconds histogram
scheduler_permit_wait_duration_seconds_count{result="allowed"} 3
"""  # noqa: E501


def instance(url: str, **options: Any) -> dict[str, Any]:
    """Return an instance that reads all sources of a server."""
    return {
        "kube_api_url": url,
        "openmetrics_endpoint": f"{url}/metrics",
        "scheduler_metrics": {"url": f"{url}/scheduler/metrics"},
        "per_gang_metrics": "all",
        "kube_timeout": 0.5,
        "timeout": 0.5,
        **options,
    }
