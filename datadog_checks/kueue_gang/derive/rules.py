# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The user's options, in the form in which the rules ask for them."""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from datadog_checks.kueue_gang.facts.pods import Toleration
from datadog_checks.kueue_gang.facts.quantity import GpuResources

#: Owners of Workloads that need all their pods at once. Batch Jobs, pod groups and Ray clusters only under conditions.
GANG_KINDS = frozenset(
    {
        "Job", "JobSet", "TrainJob", "PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob",
        "LeaderWorkerSet", "Pod", "RayJob", "RayCluster",
    }
)  # fmt: skip
#: Resources that count as GPUs.
GPU_RESOURCES = (
    "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-*", "amd.com/gpu", "gpu.intel.com/*", "google.com/tpu",
    "habana.ai/gaudi", "aws.amazon.com/neuron",
)  # fmt: skip
#: Shapes of gangs for which room is looked for: pods x GPUs a pod.
SLOTS = ((1, 1), (1, 8), (2, 8), (4, 8), (8, 8))


@dataclass(frozen=True, slots=True)
class TrainingRule:
    """How the samples of one source of the option `training` become the throughput of a gang.

    `unit` is what is counted, such as tokens; throughput is in units per second. `over_ranks` says how the pods of a
    gang go together: sum or max. `stalled_after` are the seconds without progress after which a gang counts as stalled.
    `metric` names, for a source of TrainJobs, which of their metrics is the throughput; empty: none is.
    """

    unit: str
    over_ranks: str = "sum"
    stalled_after: float = 300.0
    train_jobs: bool = False
    metric: str = ""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the user may decide. `gang_engines` None means: whatever is installed.

    `gang_schedulers` are the names of schedulers that serve gangs, empty where that is not known.
    `scheduler_versions` maps a schedulerName to the Kubernetes minor of its binary. `topology_levels` are node labels,
    widest level first, for clusters in which no flavor names a Topology; `slots` are (pods, GPUs a pod).
    `activity` tells whether GPUs are asked for their activity, `inactive_after` the seconds without any after which one
    counts as idle. `training` are the sources of throughput. `prices` are (GPU resource or node `label=value`, price of
    a GPU for an hour), in the order in which they are tried.
    """

    gpus: GpuResources = field(default_factory=lambda: GpuResources(GPU_RESOURCES))
    grace: float = 60.0
    gang_engines: frozenset[str] | None = None
    gang_kinds: frozenset[str] = GANG_KINDS
    implicit_gangs: bool = True
    include_cpu_gangs: bool = False
    namespaces: tuple[str, ...] = ()
    exclude_namespaces: tuple[str, ...] = ()
    tolerated_taints: tuple[Toleration, ...] = ()
    gang_schedulers: frozenset[str] = frozenset()
    scheduler_versions: tuple[tuple[str, int], ...] = ()
    labels: tuple[str, ...] = ()
    topology_levels: tuple[str, ...] = ()
    slots: tuple[tuple[int, int], ...] = SLOTS
    elastic_flavors: frozenset[str] = frozenset()
    activity: bool = False
    inactive_after: float = 600.0
    training: tuple[TrainingRule, ...] = ()
    prices: tuple[tuple[str, float], ...] = ()

    def engine(self, name: str) -> bool:
        """Tell whether gangs of an engine are wanted."""
        return self.gang_engines is None or name in self.gang_engines

    def reports(self, namespace: str) -> bool:
        """Tell whether gangs of a namespace are reported."""
        if not self.namespaces and not self.exclude_namespaces:
            return True
        return (not self.namespaces or any(fnmatchcase(namespace, glob) for glob in self.namespaces)) and not any(
            fnmatchcase(namespace, glob) for glob in self.exclude_namespaces
        )
