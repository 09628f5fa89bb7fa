# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The tags of the metrics, with the values that each can have.

A tag whose values are words of this check has a closed list, taken from the code where the code has it. A tag whose
values are names of objects, or words of Kueue or of a scheduler, has none. `reason` is a word of several metrics, so
it has a row for each.
"""

from typing import Final, NamedTuple, get_args

from datadog_checks.kueue_gang.derive.blockers import NAMES as BLOCKERS
from datadog_checks.kueue_gang.derive.domains import FREE, FULL, PARTIAL
from datadog_checks.kueue_gang.derive.gangs import JOB, KUEUE
from datadog_checks.kueue_gang.derive.gpus import BUSY, IDLE, OTHER
from datadog_checks.kueue_gang.derive.members import CLASSES
from datadog_checks.kueue_gang.derive.picture import NONE
from datadog_checks.kueue_gang.derive.placement import MATCH, UNOBSERVABLE, VIOLATION
from datadog_checks.kueue_gang.derive.stages import STAGES_SENT
from datadog_checks.kueue_gang.derive.stalls import STALLS
from datadog_checks.kueue_gang.derive.states import STATES_SENT
from datadog_checks.kueue_gang.facts.evictions import CAUSES, REASONS
from datadog_checks.kueue_gang.facts.health import OK
from datadog_checks.kueue_gang.facts.podgroups import ENGINES
from datadog_checks.kueue_gang.facts.texts import REJECTIONS
from datadog_checks.kueue_gang.facts.trainjobs import TRAIN_JOBS
from datadog_checks.kueue_gang.sources.collector import SCHEDULER_METRICS
from datadog_checks.kueue_gang.sources.errors import Reason
from datadog_checks.kueue_gang.sources.resources import API_SOURCES
from datadog_checks.kueue_gang.sources.signals import ACTIVITY, TRAINING


class Tag(NamedTuple):
    """A tag: its closed list of values (empty: open), what it says, and the only metric for which this holds."""

    key: str
    values: tuple[str, ...]
    meaning: str
    metric: str = ""


#: What is read only where `activity` or `training` is set.
SIGNAL_SOURCES: Final = (ACTIVITY, TRAINING, TRAIN_JOBS)


def _words(*values: str) -> tuple[str, ...]:
    """Return values in their order, each once."""
    return tuple(dict.fromkeys(values))


TAGS: Final = (
    Tag("kube_namespace", (), "namespace of the gang or pod"),
    Tag("kueue_local_queue", (), "LocalQueue, `none` where there is no Workload"),
    Tag("kueue_cluster_queue", (), "ClusterQueue, `none` where there is no Workload"),
    Tag("gang_engine", _words(*(engine.name for engine in ENGINES), KUEUE, JOB, NONE), "what makes the pods a gang"),
    Tag("gang_state", STATES_SENT, "state of the gang, see [model.md](model.md)"),
    Tag("blocker", BLOCKERS, "what keeps the gang from running, see [blockers.md](blockers.md)"),
    Tag("member_state", (*CLASSES, "missing"), "class of the member, see [model.md](model.md)"),
    Tag("gpu_resource", (), "resource name of the GPU, such as nvidia.com/gpu"),
    Tag("gpu_use", (BUSY, IDLE, OTHER), "whether the GPU works, is held in vain, or is held by no gang"),
    Tag("idle_reason", ("partial", "starting", "degraded", "lost", "terminating", "inactive"), "why the GPU is idle"),
    Tag("stall_reason", STALLS, "what tells that the gang does not get on, see [model.md](model.md)"),
    Tag("unit", (), "what the throughput counts, such as tokens; throughput is in so many a second"),
    Tag("gang", (), "PodGroup, or the job that owns the Workload"),
    Tag("owner_kind", (), "kind of the job in lower case, `none` where no object names it"),
    Tag("kueue_workload_priority_class", (), "priority class of the Workload, `none` where it has none"),
    Tag("reason", ("scheduler_name", "min_member", "no_podgroup", "no_gang_scheduling"), "why nothing protects a gang",
        "gangs.unguarded"),
    Tag("reason", REJECTIONS, "what the gang scheduler says of the rejection", "gangs.rejected"),
    Tag("reason", ("evicted", "rejected", "deleted"), "how the attempt ended", "gpus.burned_seconds"),
    Tag("workload_stage", STAGES_SENT, "how far the Workload is; with stage_seconds the stage that it reached"),
    Tag("gang_partial", ("true", "false", "unknown"), "whether a part was placed: it never ran, or lost members"),
    Tag("api_source", _words(*API_SOURCES, "kueue_metrics", SCHEDULER_METRICS, *SIGNAL_SOURCES), "what is read"),
    Tag("reason", (OK, *get_args(Reason), "stale"), "how reading it went", "source.up"),
    Tag("reason", ("nan", "inf", "other"), "what the sample was instead of a number: also one that cannot be "
        "true, or a line that is none", "source.bad_samples"),
    Tag("topology", (), "Topology of the flavor, `none` for the levels of `topology_levels`"),
    Tag("topology_level", (), "node label of the level"),
    Tag("labeled", ("true", "false"), "whether the nodes have the label of the level"),
    Tag("domain_state", (FREE, PARTIAL, FULL), "whether pods hold GPUs of the domain, and whether any is free"),
    Tag("slot", (), "shape of a gang, pods x GPUs a pod, such as 2x8"),
    Tag("placement", (MATCH, VIOLATION, UNOBSERVABLE), "whether the gang lies as it asked to"),
    Tag("signal", ("permit", "guard", "required", "placement", "activity", "throughput"), "what cannot be seen"),
    Tag("reason", ("no_trace", "forbidden", "not_configured", "no_label", "no_sample", "ambiguous"),
        "why it cannot be seen", "unobservable"),
    Tag("phase", ("collect", "derive", "submit"), "part of a run"),
    Tag("queue", (), "queue of the scheduler: active, backoff, unschedulable, gated"),
    Tag("plugin", (), "plugin of the scheduler that turned the pod away"),
    Tag("result", (), "how it ended, in the words of the scheduler or of Kueue"),
    Tag("kueue_eviction_reason", REASONS, "why Kueue evicted the Workload"),
    Tag("underlying_cause", CAUSES, "what was behind the eviction, `none` where Kueue says no more"),
    Tag("kueue_resource_flavor", (), "ResourceFlavor, `none` for the levels of `topology_levels`"),
)  # fmt: skip
