# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Ties: every way in which a pod can name a group that it belongs to, read from labels, annotations, owner and spec.

What names a group is a closed list of keys; all other labels and annotations are not looked at. The pods of one job
name the same, so they share one record, which is found by these very texts. Nothing is decided here: which of the
groups makes a gang is told by `derive.membership`.
"""

from dataclasses import dataclass, replace

from datadog_checks.kueue_gang.facts.fields import Json, Owner, controller, text
from datadog_checks.kueue_gang.facts.podgroups import ENGINES
from datadog_checks.kueue_gang.facts.shared import Shared

#: Labels and annotations that name a group, or a place in one.
_TIES = frozenset(
    {
        "batch.kubernetes.io/job-name", "job-name", "batch.kubernetes.io/controller-uid", "controller-uid",
        "jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/jobset-uid", "jobset.sigs.k8s.io/replicatedjob-name",
        "jobset.sigs.k8s.io/job-index", "jobset.sigs.k8s.io/replicatedjob-replicas", "kueue.x-k8s.io/workload",
        "kueue.x-k8s.io/workload-slice-name", "kueue.x-k8s.io/prebuilt-workload-name", "kueue.x-k8s.io/pod-group-name",
        "kueue.x-k8s.io/pod-group-serving", "kueue.x-k8s.io/podset", "kueue.x-k8s.io/role-hash",
        "training.kubeflow.org/job-name", "training.kubeflow.org/replica-type", "leaderworkerset.sigs.k8s.io/name",
        "leaderworkerset.sigs.k8s.io/group-index", "leaderworkerset.sigs.k8s.io/size", "ray.io/originated-from-cr-name",
        "ray.io/cluster", "ray.io/group",
    }
).union(*(engine.keys for engine in ENGINES))  # fmt: skip
#: The rank of a pod. Its presence tells that pods have ranks; its value differs from pod to pod and is not needed.
_INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Ties:
    """Every group that a pod names; empty strings where it names none.

    `pod_groups` holds (engine, PodGroup name) pairs. `run` tells one run of a job from the next one of the same name.
    `names` are all of them, each once. `controller` is not read of a pod that names none. `jobset_job` is the index of
    the pod's Job in its ReplicatedJob and `replicas` the number of such Jobs; `group_size` the size that a
    LeaderWorkerSet states. `serving` marks the pod groups of serving workloads.
    """

    pod_groups: tuple[tuple[str, str], ...]
    workload: str
    slice: str
    kueue_group: str
    serving: bool
    podset: str
    controller: Owner | None
    batch_job: str
    jobset: str
    replicated_job: str
    jobset_job: str
    replicas: int | None
    kubeflow_job: str
    replica_type: str
    lws: str
    lws_index: str
    group_size: int | None
    ray: str
    ray_group: str
    indexed: bool
    run: tuple[str, ...]
    names: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        """Tell whether the pod names a group of any kind; that of a batch Job alone is no group."""
        return bool(
            self.pod_groups or self.workload or self.slice or self.kueue_group or self.jobset or self.kubeflow_job
            or self.lws or self.ray
        )  # fmt: skip


def _names(ties: Ties) -> tuple[str, ...]:
    group = f"{ties.lws}-{ties.lws_index}" if ties.lws else ""
    named = (
        ties.workload, ties.slice, ties.kueue_group, ties.batch_job, ties.jobset, ties.kubeflow_job, ties.lws, group,
        ties.ray, *(name for _, name in ties.pod_groups),
    )  # fmt: skip
    return tuple(dict.fromkeys(name for name in named if name))


class TiesReader(Shared[Ties]):
    """Reads the ties of pods, those of equal ones once."""

    def of(self, metadata: Json, labels: dict[str, str], spec: Json) -> Ties:
        """Return the ties of a pod, read once for all pods that name the same."""
        annotations, group = metadata.get("annotations") or {}, spec.get("schedulingGroup")
        indexed = _INDEX in annotations or _INDEX in labels
        named = tuple([(name, labels[name]) for name in labels if name in _TIES])
        annotated = tuple([(name, annotations[name]) for name in annotations if name in _TIES])
        # Who owns a pod that names no group does not matter, and there are as many owners as Deployments.
        owned = metadata.get("ownerReferences") if named or annotated or group else None
        owner = next((ref for ref in owned if ref.get("controller")), None) if owned else None
        key = (
            named,
            annotated,
            (owner.get("kind"), owner.get("name"), owner.get("uid")) if owner else None,
            tuple(group.items()) if group else None,
            indexed,
        )
        found = self.get(key)
        if found is None:
            found = self.remember(
                key,
                _ties(dict(named), dict(annotated), controller(metadata) if owner else None, spec, indexed=indexed),
            )
        return found


def _ties(labels: Json, annotations: Json, owner: Owner | None, spec: Json, *, indexed: bool) -> Ties:
    job = text(labels, "batch.kubernetes.io/job-name") or text(labels, "job-name")
    job_uid = text(labels, "batch.kubernetes.io/controller-uid") or text(labels, "controller-uid")
    jobset = text(labels, "jobset.sigs.k8s.io/jobset-name")
    kueue_slice = text(annotations, "kueue.x-k8s.io/workload-slice-name")
    workload = text(annotations, "kueue.x-k8s.io/workload")
    runs = (
        (kueue_slice or workload,),
        (jobset, text(labels, "jobset.sigs.k8s.io/jobset-uid")) if jobset else ("",),
        (job, job_uid) if job else ("",),
        (owner.uid,) if owner else ("",),
    )
    ties = Ties(
        pod_groups=tuple((engine.name, name) for engine in ENGINES if (name := engine.tie(labels, annotations, spec))),
        workload=workload or _either(annotations, labels, "kueue.x-k8s.io/prebuilt-workload-name"),
        slice=kueue_slice,
        # The annotation replaced the label in Kueue 0.18 for LeaderWorkerSet and StatefulSet pods.
        kueue_group=_either(annotations, labels, "kueue.x-k8s.io/pod-group-name"),
        serving=text(annotations, "kueue.x-k8s.io/pod-group-serving") == "true",
        podset=text(labels, "kueue.x-k8s.io/podset") or text(annotations, "kueue.x-k8s.io/role-hash"),
        controller=owner,
        batch_job=job,
        jobset=jobset,
        replicated_job=text(labels, "jobset.sigs.k8s.io/replicatedjob-name"),
        jobset_job=text(labels, "jobset.sigs.k8s.io/job-index"),
        replicas=_stated(labels, "jobset.sigs.k8s.io/replicatedjob-replicas"),
        kubeflow_job=text(labels, "training.kubeflow.org/job-name"),
        replica_type=text(labels, "training.kubeflow.org/replica-type"),
        lws=text(labels, "leaderworkerset.sigs.k8s.io/name"),
        lws_index=text(labels, "leaderworkerset.sigs.k8s.io/group-index"),
        group_size=_stated(annotations, "leaderworkerset.sigs.k8s.io/size"),
        ray=text(labels, "ray.io/originated-from-cr-name") or text(labels, "ray.io/cluster"),
        ray_group=text(labels, "ray.io/group"),
        indexed=indexed,
        run=next((run for run in runs if run[0]), ()),
    )
    return replace(ties, names=_names(ties))


def _either(annotations: Json, labels: Json, key: str) -> str:
    return text(annotations, key) or text(labels, key)


def _stated(texts: dict[str, str], key: str) -> int | None:
    """Return a size that a label or annotation states, None where it states none or nonsense: it is only a hint."""
    value = texts.get(key)
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 7 else None  # noqa: PLR2004
