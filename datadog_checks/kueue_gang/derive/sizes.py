# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""How many members a gang needs, podset by podset, where no object tells it.

Jobs leave hints in the labels and annotations of their pods: a LeaderWorkerSet states its size, a JobSet the number of
its Jobs. Where nothing is stated, the pods that are there are the gang. Either way a pod counts once: one that goes and
the one that replaces it are one member, and pods of an earlier run of the same name are none.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from datadog_checks.kueue_gang.facts.pods import Pod
from datadog_checks.kueue_gang.facts.quantity import Units

_TERMINAL = frozenset({"Succeeded", "Failed"})
#: KubeRay's names of groups where Kueue calls the podset otherwise.
_RAY_GROUPS = {"headgroup": "head"}


@dataclass(frozen=True, slots=True)
class Need:
    """How many members of one podset a gang needs; `required` None where that cannot be known.

    `reclaimed` of the succeeded members are already taken off `required`. `gpus` is the request of one pod, where a
    template tells it.
    """

    podset: str
    required: int | None
    reclaimed: int = 0
    gpus: Units = ()


def stated_size(members: list[Pod]) -> int | None:
    """Return the number of pods that a job's labels and annotations state, None where they state none."""
    sizes = [size for pods in _by_podset(members).values() if (size := _stated_podset(pods)) is not None]
    return sum(sizes) if sizes else None


def job_needs(members: list[Pod]) -> tuple[Need, ...]:
    """Return what a job without an object needs: the size that it states, else its present members."""
    return tuple(
        Need(podset, stated if (stated := _stated_podset(pods)) is not None else _present(pods, present_runs(pods)))
        for podset, pods in sorted(_by_podset(members).items())
    )


def _by_podset(members: list[Pod]) -> dict[str, list[Pod]]:
    podsets: dict[str, list[Pod]] = defaultdict(list)
    for pod in members:
        podsets[podset_of(pod)].append(pod)
    return podsets


def _stated_podset(pods: list[Pod]) -> int | None:
    """Return the stated number of pods of a podset.

    A LeaderWorkerSet states it. A JobSet states how many Jobs a ReplicatedJob has; they share a template, so that each
    has as many pods as the one of which most are seen.
    """
    size = max((pod.ties.group_size for pod in pods if pod.ties.group_size), default=None)
    if size is not None:
        return size
    replicas = max((pod.ties.replicas for pod in pods if pod.ties.replicas), default=None)
    if replicas is None:
        return None
    jobs: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        jobs[pod.ties.jobset_job].append(pod)
    runs = present_runs(pods)
    largest_job = max((_present(found, runs) for found in jobs.values()), default=0)
    return replicas * largest_job if largest_job else None


def _present(pods: list[Pod], runs: set[tuple[str, ...]]) -> int:
    """Return how many members some pods stand for, in the present `runs`.

    A pod that failed stands for none, and so does one that succeeded in an earlier run. A pod that was made since a
    member began to go replaces it: the two are one member.
    """
    if all(pod.deletion is None and pod.phase not in _TERMINAL for pod in pods):
        return len(pods)
    succeeded = sum(pod.phase == "Succeeded" and pod.ties.run in runs for pod in pods)
    live = [pod for pod in pods if pod.phase not in _TERMINAL]
    going = sorted(deletion_began(pod) for pod in live if pod.deletion is not None)
    replaced = 0
    for made in sorted(pod.created for pod in live if pod.deletion is None):
        replaced += replaced < len(going) and made >= going[replaced]
    return succeeded + len(live) - replaced


def present_runs(pods: Sequence[Pod]) -> set[tuple[str, ...]]:
    """Return the runs of the live pods, else that of the newest one: an older run's successes do not count."""
    live = {pod.ties.run for pod in pods if pod.phase not in _TERMINAL}
    if live or not pods:
        return live
    return {max(pods, key=lambda pod: (pod.created, pod.name)).ties.run}


def deletion_began(pod: Pod) -> float:
    """Return when the deletion of a terminating pod began; deletionTimestamp is the end of its grace."""
    return (pod.deletion or 0.0) - pod.deletion_grace


def podset_of(pod: Pod) -> str:
    """Return the podset that a pod's labels name, in the words of the one that made it."""
    ties = pod.ties
    return ties.podset or ties.replicated_job or ties.replica_type or _RAY_GROUPS.get(ties.ray_group, ties.ray_group)
