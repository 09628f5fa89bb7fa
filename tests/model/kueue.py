# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Kueue's side of clusters made by hand: queues, flavors, topologies, checks, and Workloads that wait.

What a builder of `build` does not say is put in here, object by object. A gang of these clusters is named `train`.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from tests.model.build import GPU, Json, condition, flavor, local_queue, podset, stamp, workload

HOST = "kubernetes.io/hostname"
RACK = "example.com/rack"
BLOCK = "example.com/block"
#: The controller of AdmissionChecks that ask an autoscaler for nodes.
PROVISIONER = "kueue.x-k8s.io/provisioning-request"

# Texts of Kueue's condition QuotaReserved, as three generations of it write them.
MORE_NEEDED = "couldn't assign flavors to pod set main: insufficient unused quota for {} in flavor {}, {} more needed"
#: As older releases write it, and since 0.15.0.
OLD_MAXIMUM = (
    "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor gpu, "
    "request > maximum capacity (24 > 16)"
)
MAXIMUM = (
    "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor gpu, "
    "previously considered podsets requests (0) + current podset request (24) > maximum capacity (16)"
)
PREEMPTING = MORE_NEEDED.format(GPU, "gpu", 16) + ". Pending the preemption of 1 workload(s)"
PODS_READY = "waiting for all admitted workloads to be in PodsReady condition"
FITS_SOME = 'couldn\'t assign flavors to pod set main: topology "default" allows to fit only 1 out of 2 pod(s)'
FITS_NONE = "couldn't assign flavors to pod set main: topology \"default\" doesn't allow to fit any of 2 pod(s)"


def cluster_queue(
    name: str = "cq",
    flavors: Mapping[str, int] | Sequence[str] = ("gpu",),
    *,
    stop: str = "",
    inactive: str = "",
    checks: Sequence[str] = (),
) -> Json:
    """Return a ClusterQueue with GPU quota in flavors; `inactive` is the reason of its condition Active."""
    quota = flavors if isinstance(flavors, Mapping) else dict.fromkeys(flavors, 64)
    listed = [{"name": one, "resources": [{"name": GPU, "nominalQuota": str(amount)}]} for one, amount in quota.items()]
    spec: Json = {"resourceGroups": [{"coveredResources": [GPU], "flavors": listed}]}
    if stop:
        spec["stopPolicy"] = stop
    if checks:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": check} for check in checks]}
    active = condition("Active", "False" if inactive else "True", 600, inactive or "Ready")
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"conditions": [active]},
    }


def stopped_local_queue(policy: str = "Hold") -> Json:
    """Return the LocalQueue of the team, stopped."""
    queue = local_queue("lq", "cq")
    queue["spec"]["stopPolicy"] = policy
    return queue


def topology(name: str = "default", levels: Sequence[str] = (BLOCK, RACK, HOST)) -> Json:
    """Return a Topology."""
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": [{"nodeLabel": level} for level in levels]},
    }


def flavor_in(topology_name: str = "default", name: str = "gpu", labels: Mapping[str, str] | None = None) -> Json:
    """Return a ResourceFlavor of a topology."""
    made = flavor(name, labels)
    made["spec"]["topologyName"] = topology_name
    return made


def admission_check(name: str, controller: str) -> Json:
    """Return an AdmissionCheck."""
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": {"controllerName": controller},
    }


def place(name: str, rack: str = "", block: str = "b1") -> dict[str, str]:
    """Return the topology labels of a node; without a rack it lacks that label."""
    return {BLOCK: block, HOST: name, **({RACK: rack} if rack else {})}


def asking(made: Json, **request: Any) -> Json:
    """Return a podset that asks for a place in a topology."""
    found = deepcopy(made)
    found["spec"]["topologyRequest"] = dict(request)
    return found


def in_rack(pods: int = 2, gpus: int = 8) -> Json:
    """Return a podset that must be in one rack."""
    return asking(podset(pods, gpus=gpus), required=RACK)


def waits(reason: str = "", text: str = "", *podsets: Json, **more: Any) -> Json:
    """Return the Workload of the gang `train`, whose condition QuotaReserved is False with that reason and text.

    Without a reason there is no such condition. `requeue_in` is in how many seconds it may try again.
    """
    requeue_in = more.pop("requeue_in", None)
    made = workload("wl", ("JobSet", "train"), *(podsets or (podset(2),)), **more)
    if reason:
        made["status"]["conditions"].insert(0, condition("QuotaReserved", "False", 500, reason, text))
    if requeue_in is not None:
        made["status"]["requeueState"] = {"count": 1, "requeueAt": stamp(-requeue_in)}
    return made


def reserved(*checks: tuple[str, str]) -> Json:
    """Return the Workload of the gang `train` with its quota and some AdmissionChecks, (name, state)."""
    made = workload("wl", ("JobSet", "train"), podset(2), reserved=400)
    made["status"]["admissionChecks"] = [{"name": name, "state": state} for name, state in checks]
    return made


def admitted(*podsets: Json, **more: Any) -> Json:
    """Return the Workload of the gang `train`, admitted 500 s ago."""
    return workload("wl", ("JobSet", "train"), *(podsets or (podset(2),)), **{"admitted": 500, **more})


def queues(*checks: str) -> list[Json]:
    """Return the LocalQueue, ClusterQueue and flavor that a Workload waits for."""
    return [local_queue("lq", "cq"), cluster_queue(checks=checks), flavor("gpu")]


def topology_queues() -> list[Json]:
    """Return the queues with a topology; its nodes are labelled with `place`."""
    return [local_queue("lq", "cq"), cluster_queue(), flavor_in(), topology()]
