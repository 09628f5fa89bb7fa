# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A gang: what it is made of, what it is called, and what tells it from every other one.

`membership` finds the gangs and fills them; everything after that reads them. A gang is called by the name that people
know: that of its PodGroup, of the job that owns its Workload, or of the job that its pods name. Where two live gangs of
a namespace would get one name, Kueue gangs are called by their Workload instead; jobs of two kinds keep their name, and
their identity has the kind in front.
"""

from collections import Counter
from dataclasses import dataclass, field

from datadog_checks.kueue_gang.derive.sizes import Need
from datadog_checks.kueue_gang.facts.jobs import Job
from datadog_checks.kueue_gang.facts.podgroups import PodGroup
from datadog_checks.kueue_gang.facts.pods import Pod
from datadog_checks.kueue_gang.facts.ties import Ties
from datadog_checks.kueue_gang.facts.workloads import Workload

KUEUE = "kueue"
JOB = "job"

#: Phases of pods that have ended.
TERMINAL = frozenset({"Succeeded", "Failed"})


@dataclass(slots=True)
class Gang:
    """A gang with its members, terminal ones included, before anything is said about its state.

    `over` says that the Workload of all its live members is finished. `unobservable` is the reason why nothing can be
    said: its source is down (`source_down`), its object unreadable, its minimum unknown. `identity` is set where the
    name alone does not tell it from another gang. `size` is the number of pods that the job runs, which may be more
    than it needs; None where it is not known.
    """

    engine: str
    namespace: str
    name: str
    group: PodGroup | None = None
    workload: Workload | None = None
    needs: tuple[Need, ...] = ()
    members: list[Pod] = field(default_factory=list)
    orphan: bool = False
    over: bool = False
    unobservable: str = ""
    source_down: bool = False
    size: int | None = None
    job: Job | None = None
    identity: str = ""

    @property
    def live(self) -> bool:
        """Tell whether anything of it is still to come or to end."""
        return self.workload is not None or not self.members or any(pod.phase not in TERMINAL for pod in self.members)

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from every other gang."""
        return self.engine, self.namespace, self.identity or self.name

    @property
    def required(self) -> int | None:
        """The members that it needs, all podsets together."""
        numbers = [need.required for need in self.needs]
        return None if not numbers or None in numbers else sum(number for number in numbers if number is not None)

    @property
    def owner_kind(self) -> str:
        """The kind of the job, lower case, `none` where no object names it."""
        if self.workload and self.workload.owner:
            return self.workload.owner.kind.lower()
        if self.engine == JOB:
            ties = self.members[0].ties
            return "jobset" if ties.jobset else "leaderworkerset" if ties.lws else _controller_kind(ties)
        return _controller_kind(self.members[0].ties) if self.members else "none"

    @property
    def asks_for_gpus(self) -> bool:
        """Tell whether its members, or the objects that tell of them, ask for GPUs."""
        return bool(
            any(need.gpus for need in self.needs)
            or any(pod.spec.gpus for pod in self.members)
            or (self.group and self.group.gpus)
            or (self.workload and any(podset.gpus for podset in self.workload.podsets))
        )


def _controller_kind(ties: Ties) -> str:
    if ties.jobset:
        return "jobset"
    return ties.controller.kind.lower() if ties.controller else "none"


def told_apart(gangs: list[Gang]) -> list[Gang]:
    """Tell apart the live gangs of a namespace that would get one name; return them in order.

    Kueue gangs get the Workload's name. Jobs of two kinds keep theirs, which the owner's kind tells apart.
    """
    renamed = True
    while renamed:
        taken = Counter((gang.namespace, gang.name) for gang in gangs if gang.live)
        renamed = False
        for gang in gangs:
            own = gang.workload.name if gang.engine == KUEUE and gang.workload else gang.name
            # The new name may be that of a third one, which then gets its Workload's name, too.
            if taken[gang.namespace, gang.name] > 1 and gang.name != own:
                gang.name, renamed = own, True
    for gang in gangs:
        if taken[gang.namespace, gang.name] > 1:
            gang.identity = f"{gang.owner_kind}/{gang.name}" if gang.engine == JOB else gang.name
    return sorted(gangs, key=lambda gang: (gang.engine, gang.namespace, gang.name, gang.identity))
