# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Which pods are one gang, and how many of them it needs.

A pod names its groups in labels, annotations and spec (`facts.ties`). The first that makes a gang wins:

1. a PodGroup with a gang policy, of an engine that is installed here; a label whose PodGroup does not exist makes an
   orphan gang;
2. a Kueue Workload whose owner needs all its pods at once;
3. with `implicit_gangs`, the JobSet, Kubeflow job or LeaderWorkerSet group that belongs to neither.

A pod of a PodGroup that also belongs to a Workload is in one gang, not two: the PodGroup gives engine and required, the
Workload queue, priority and admission. The Workload's pod templates tell that before a pod exists.

A Workload is found by the annotation on the pod, then by the pod group's name, then by the labels that name its owner
(Kueue before 0.14). No ownerReference is walked: that would need every object in between.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from datadog_checks.kueue_gang.derive.gangs import JOB, KUEUE, TERMINAL, Gang, told_apart
from datadog_checks.kueue_gang.derive.gpus import add, holds
from datadog_checks.kueue_gang.derive.members import is_gone
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.derive.sizes import Need, job_needs, stated_size
from datadog_checks.kueue_gang.facts.cluster import Cluster
from datadog_checks.kueue_gang.facts.jobs import Job
from datadog_checks.kueue_gang.facts.podgroups import ENGINES, PodGroup
from datadog_checks.kueue_gang.facts.pods import Pod
from datadog_checks.kueue_gang.facts.quantity import Units
from datadog_checks.kueue_gang.facts.ties import Ties
from datadog_checks.kueue_gang.facts.workloads import PodSet, Workload

WORKLOADS = "workloads.kueue.x-k8s.io"

#: Reasons of sources that are down, in the words of `unobservable`.
_UNOBSERVABLE = {"forbidden": "forbidden", "unauthorized": "forbidden"}


class Outsider(NamedTuple):
    """A pod with GPUs in no gang: the Workload it is in, if any, and whether it names a gang that is gone."""

    pod: Pod
    workload: Workload | None
    names_gone: bool


@dataclass(frozen=True, slots=True)
class Membership:
    """All gangs, the pods that are in none, and what the pods of each Workload hold, in a gang or not.

    `workloads` are those that are not finished, each with the GPU units that its pods hold, and the number of its pods.
    """

    gangs: tuple[Gang, ...]
    outsiders: tuple[Outsider, ...]
    workloads: tuple[tuple[Workload, Units, int], ...] = ()


def membership(cluster: Cluster, rules: Rules) -> Membership:
    """Sort the pods of a cluster into gangs."""
    return _Sorting(cluster, rules).result()


class _Sorting:
    """One pass over the pods, with the indexes that it needs."""

    def __init__(self, cluster: Cluster, rules: Rules) -> None:
        self.cluster = cluster
        self.rules = rules
        self.gangs: dict[tuple[str, ...], Gang] = {}
        self.outsiders: list[Outsider] = []
        self.groups = {(group.engine, group.namespace, group.name): group for group in cluster.pod_groups}
        self.workloads = {(workload.namespace, workload.name): workload for workload in cluster.workloads}
        self.jobs = {(job.namespace, job.name): job for job in cluster.jobs}
        self.slices: dict[tuple[str, str], list[Workload]] = defaultdict(list)
        self.by_owner: dict[tuple[str, str, str], Workload] = {}
        #: Workloads whose pods are in a PodGroup gang: (namespace, name).
        self.in_group: set[tuple[str, str]] = set()
        self.pods_of: dict[tuple[str, str], list[Pod]] = defaultdict(list)
        #: Members of PodGroup gangs whose Workload is finished.
        self.over: dict[tuple[str, str, str], list[Pod]] = defaultdict(list)
        for workload in cluster.workloads:
            self.slices[workload.namespace, workload.slice or workload.name].append(workload)
            if workload.owner and not workload.finished:
                self.by_owner[workload.namespace, workload.owner.kind, _owner_name(workload)] = workload

    def result(self) -> Membership:
        # Pods that name the same groups are in the same gang: who that is, is asked once for all of them.
        alike: dict[tuple[str, int], list[Pod]] = defaultdict(list)
        for pod in self.cluster.pods:
            if not is_gone(pod):
                alike[pod.namespace, id(pod.ties)].append(pod)
        for workload in self.cluster.workloads:
            self._link_by_template(workload)
        for group in self.cluster.pod_groups:
            if self._is_gang(group):
                self._group_gang(group)
        rest = [pods for pods in alike.values() if not self._join_group(pods)]
        kueue = self.rules.engine(KUEUE) and self.cluster.is_installed(WORKLOADS)
        for pods in rest:
            self._join_workload(pods, kueue=kueue)
        if kueue:
            self._kueue_gangs()
        gangs = [self._finish(gang) for gang in self.gangs.values()]
        return Membership(
            gangs=tuple(told_apart([gang for gang in gangs if gang])),
            outsiders=tuple(self.outsiders),
            workloads=self._with_pods(alike.values()),
        )

    def _with_pods(self, alike: Iterable[list[Pod]]) -> tuple[tuple[Workload, Units, int], ...]:
        held: dict[tuple[str, str], Counter[str]] = {
            key: Counter() for key, workload in self.workloads.items() if not workload.finished
        }
        numbers: Counter[tuple[str, str]] = Counter()
        for pods in alike if held else ():
            workload = self._workload_of(pods[0])
            if workload and not workload.finished:
                amounts = held[workload.namespace, workload.name]
                numbers[workload.namespace, workload.name] += len(pods)
                for pod in pods:
                    if holds(pod):
                        add(amounts, pod.spec.gpus)
        return tuple(
            (self.workloads[key], tuple(sorted(amounts.items())), numbers[key]) for key, amounts in held.items()
        )  # fmt: skip

    # --- PodGroups ---------------------------------------------------------------------------------------------------

    def _is_gang(self, group: PodGroup) -> bool:
        return group.required is not None and group.required > 1 and self.rules.engine(group.engine)

    def _group_gang(self, group: PodGroup) -> Gang:
        key = (group.engine, group.namespace, group.name)
        if key not in self.gangs:
            self.gangs[key] = Gang(group.engine, group.namespace, group.name, group=group)
        return self.gangs[key]

    def _link_by_template(self, workload: Workload) -> None:
        """Join a Workload to the PodGroup that its pod templates name, before its pods exist."""
        for engine, name in {tie for podset in workload.podsets for tie in podset.pod_groups}:
            group = self.groups.get((engine, workload.namespace, name))
            if group and self._is_gang(group):
                self._link(self._group_gang(group), workload)

    def _link(self, gang: Gang, workload: Workload) -> None:
        self.in_group.add((workload.namespace, workload.name))
        if gang.workload is None or _preference(workload) > _preference(gang.workload):
            gang.workload = workload

    def _join_group(self, pods: list[Pod]) -> bool:
        """Put pods into the gang of the PodGroup that they name; False where they name none that makes a gang."""
        pod = pods[0]
        named = dict(pod.ties.pod_groups)
        for engine in ENGINES if named else ():
            name = named.get(engine.name)
            if not name or not self.rules.engine(engine.name) or not self.cluster.is_installed(engine.source):
                continue
            group = self.groups.get((engine.name, pod.namespace, name))
            if group and not self._is_gang(group):
                continue
            gang = self._group_gang(group) if group else self._groupless(engine.name, engine.source, pod, name)
            gang.members += pods
            workload = self._workload_of(pod)
            if workload and not workload.finished:
                self._link(gang, workload)
            elif workload:
                self.over[gang.key] += pods
            return True
        return False

    def _groupless(self, engine: str, source: str, pod: Pod, name: str) -> Gang:
        key = (engine, pod.namespace, name)
        if key not in self.gangs:
            gang = self.gangs[key] = Gang(engine, pod.namespace, name)
            doubt = self.cluster.doubt(source)
            if doubt:
                gang.unobservable = _UNOBSERVABLE.get(doubt, "no_sample")
                gang.source_down = True
            elif self.cluster.is_unreadable(source, pod.namespace, name):
                gang.unobservable = "ambiguous"
            else:
                gang.orphan = True
        return self.gangs[key]

    # --- Kueue -------------------------------------------------------------------------------------------------------

    def _workload_of(self, pod: Pod) -> Workload | None:
        """Find the Workload of a pod; of several slices of an elastic job the one that holds the admission."""
        ties, namespace = pod.ties, pod.namespace
        if ties.slice:
            slices = self.slices.get((namespace, ties.slice), [])
            if slices:
                return max(slices, key=_preference)
        for name in (ties.workload, ties.kueue_group):
            if name:
                return self.workloads.get((namespace, name))
        for kinds, name in _owner_labels(ties):
            for kind in kinds if name else ():
                found = self.by_owner.get((namespace, kind, name))
                if found:
                    return found
        return None

    def _join_workload(self, pods: list[Pod], *, kueue: bool) -> None:
        pod = pods[0]
        ties = pod.ties
        named = ties.slice or ties.workload or ties.kueue_group
        workload = self._workload_of(pod)
        if workload and kueue:
            self.pods_of[workload.namespace, workload.name] += pods
        elif named and kueue:
            if self.cluster.doubt(WORKLOADS) or self.cluster.is_unreadable(WORKLOADS, pod.namespace, named):
                self._unjudged_workload(pods, named)
            else:
                self._leave_out(pods, None, names_gone=True)
        elif not (self.rules.implicit_gangs and self._join_job(pods)):
            self._leave_out(pods, workload, names_gone=False)

    def _unjudged_workload(self, pods: list[Pod], name: str) -> None:
        doubt, namespace = self.cluster.doubt(WORKLOADS), pods[0].namespace
        reason = _UNOBSERVABLE.get(doubt, "no_sample") if doubt else "ambiguous"
        gang = self.gangs.setdefault(
            (KUEUE, namespace, name), Gang(KUEUE, namespace, name, unobservable=reason, source_down=bool(doubt))
        )
        gang.members += pods

    def _kueue_gangs(self) -> None:
        for key, workload in self.workloads.items():
            pods = self.pods_of.get(key, [])
            if key not in self.in_group and self._needs_all(workload, pods):
                self._kueue_gang(workload, pods)
            else:
                self._leave_out(pods, workload, names_gone=False)

    def _needs_all(self, workload: Workload, pods: list[Pod]) -> bool:
        kind = workload.owner.kind if workload.owner else "Pod"
        if workload.finished or workload.elsewhere or workload.variants or kind not in self.rules.gang_kinds:
            return False
        if sum(podset.count for podset in workload.podsets) <= 1:
            return False
        return _CONDITIONS_OF_KINDS.get(kind, _always)(workload, pods, self._job(workload))

    def _job(self, workload: Workload) -> Job | None:
        if workload.owner is None or workload.owner.kind != "Job":
            return None
        return self.jobs.get((workload.namespace, workload.owner.name))

    def _kueue_gang(self, workload: Workload, pods: list[Pod]) -> None:
        name, job = _owner_name(workload, pods), self._job(workload)
        elastic = workload.elastic or any(podset.elastic for podset in workload.podsets) or bool(job and job.elastic)
        # The slices of one elastic job are one gang; everything else is known by its Workload until names are settled.
        shared = workload.owner.uid if elastic and workload.owner else workload.name
        gang = self.gangs.setdefault((KUEUE, workload.namespace, shared), Gang(KUEUE, workload.namespace, name))
        gang.members.extend(pods)
        if gang.workload is None or _preference(workload) > _preference(gang.workload):
            gang.name, gang.workload, gang.job = name, workload, job
            gang.needs = tuple(_need(podset, workload, elastic=elastic) for podset in workload.podsets)
            gang.unobservable = "no_trace" if gang.required is None else ""

    # --- jobs without any gang scheduling ----------------------------------------------------------------------------

    def _join_job(self, pods: list[Pod]) -> bool:
        namespace, (kind, name) = pods[0].namespace, job_of(pods[0].ties)
        if name:
            gang = self.gangs.setdefault((JOB, namespace, kind, name), Gang(JOB, namespace, name))
            gang.members += pods
        return bool(name)

    # --- all ---------------------------------------------------------------------------------------------------------

    def _leave_out(self, pods: list[Pod], workload: Workload | None, *, names_gone: bool) -> None:
        self.outsiders += [Outsider(pod, workload, names_gone) for pod in pods if pod.spec.gpus]

    def _finish(self, gang: Gang) -> Gang | None:
        """Complete a gang once all its members are known; None where it is none after all."""
        if gang.engine == JOB:
            gang.needs, gang.size = job_needs(gang.members), stated_size(gang.members)
        elif gang.group:
            gang.needs = (Need("", gang.group.required),)
            ended = self.over.get(gang.key, ())
            gang.over = bool(ended) and all(pod in ended for pod in gang.members if pod.phase not in TERMINAL)
        if gang.workload:
            gang.size = sum(_granted(podset) for podset in gang.workload.podsets)
        elif gang.group:
            gang.size = stated_size(gang.members)
        alone = gang.engine == JOB and (gang.required or 0) <= 1
        if alone or not (self.rules.include_cpu_gangs or gang.asks_for_gpus):
            self._leave_out(gang.members, gang.workload, names_gone=False)
            return None
        return gang


def _granted(podset: PodSet) -> int:
    return podset.count if podset.assigned is None else podset.assigned


def _need(podset: PodSet, workload: Workload, *, elastic: bool) -> Need:
    """Return what a podset needs: its spec less what was reclaimed, and once admitted at most what was assigned.

    Source: Kueue's own rule (pkg/workload, ReclaimablePods against admission). An elastic job runs with its minimum.
    """
    if elastic:
        return Need(podset.name, podset.minimum, gpus=podset.gpus)
    required = max(0, podset.count - podset.reclaimed)
    if podset.assigned is not None and workload.is_true("QuotaReserved"):
        required = min(podset.assigned, required)
    return Need(podset.name, required, reclaimed=podset.reclaimed, gpus=podset.gpus)


def _preference(workload: Workload) -> tuple[bool, bool, float, str]:
    """Order the Workloads of one gang: the admitted one tells what runs, else the newest."""
    return not workload.finished, workload.admitted, workload.created, workload.name


def _owner_name(workload: Workload, pods: Iterable[Pod] = ()) -> str:
    """Return the name of the job that owns a Workload, with the group's index for a LeaderWorkerSet."""
    owner = workload.owner
    if owner is None or owner.kind == "Pod":
        return workload.name
    if owner.kind != "LeaderWorkerSet":
        return owner.name
    index = workload.group_index or next((pod.ties.lws_index for pod in pods if pod.ties.lws_index), "")
    return f"{owner.name}-{index}" if index else workload.name


def _owner_labels(ties: Ties) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (kinds, name) of the owners that a pod's labels name, the outermost first, as Kueue knows them."""
    yield ("JobSet", "TrainJob"), ties.jobset
    yield ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob"), ties.kubeflow_job
    yield ("LeaderWorkerSet",), f"{ties.lws}-{ties.lws_index}" if ties.lws else ""
    yield ("RayJob", "RayCluster"), ties.ray
    yield ("Job",), ties.batch_job


def _always(_workload: Workload, _pods: list[Pod], _job: Job | None) -> bool:
    return True


def _all_at_once(_workload: Workload, pods: list[Pod], job: Job | None) -> bool:
    """Tell whether a batch Job is a gang; where it was not read, whether its pods have ranks (or do not exist yet)."""
    if job is not None:
        return job.all_at_once
    return not pods or any(pod.ties.indexed for pod in pods)


def _not_serving(_workload: Workload, pods: list[Pod], _job: Job | None) -> bool:
    return not any(pod.ties.serving for pod in pods)


def _fixed_size(workload: Workload, pods: list[Pod], _job: Job | None) -> bool:
    """Tell that a Ray cluster does not resize itself: KubeRay adds its autoscaler to the head pod."""
    return not (
        any(podset.ray_autoscaler for podset in workload.podsets) or any(pod.spec.ray_autoscaler for pod in pods)
    )


_CONDITIONS_OF_KINDS: dict[str, Callable[[Workload, list[Pod], Job | None], bool]] = {
    "Job": _all_at_once,
    "Pod": _not_serving,
    "RayJob": _fixed_size,
    "RayCluster": _fixed_size,
}


def job_of(ties: Ties) -> tuple[str, str]:
    """Return (kind, name) of the JobSet, Kubeflow job or LeaderWorkerSet group that a pod belongs to, '' for none."""
    if ties.jobset:
        return "jobset", ties.jobset
    if ties.kubeflow_job:
        return "kubeflow", ties.kubeflow_job
    return ("leaderworkerset", f"{ties.lws}-{ties.lws_index}") if ties.lws and ties.lws_index else ("", "")
