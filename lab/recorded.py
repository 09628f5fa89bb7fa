# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The recorded clusters by name, and one cluster made of several of them.

A scenario is an archive below tests/captures: a small cluster with a story of its own, recorded at one moment or at
several (t1, t2, ...). Each is too small to look like a production cluster. Those that share no object names can stand
side by side: `side_by_side` is a cluster in which gangs of every kind live at the same time.
"""

from dataclasses import replace
from typing import Final, NamedTuple

from lab.replay import CAPTURES, Recording, moments


class Scenario(NamedTuple):
    """A recorded cluster: the moment that shows what it is about, and what that is."""

    moment: str
    story: str


SCENARIOS: Final = {
    "1-permit-wait": Scenario("t1", "nine members wait in Permit for a tenth that does not fit"),
    "2-partial-bound": Scenario("", "half of a gang runs, the other half cannot be placed"),
    "3-degraded": Scenario("t2", "complete gangs have lost members"),
    "4-kueue-partial": Scenario("t1", "Kueue admitted the whole gang, a part of its pods found a node"),
    "5-tas": Scenario("", "topology aware scheduling: gangs in one rack, in two, and one that no rack fits"),
    "6-terminating": Scenario("", "pods that do not go hold GPUs that others wait for"),
    "7-same-name": Scenario("", "equal PodGroup names in two namespaces, and pods whose PodGroup does not exist"),
    "8-deadlock": Scenario("t2", "two admitted gangs hold half of what each needs"),
    "9-preempt": Scenario("t2", "an urgent gang comes while another one starts"),
    "10-mixed-healthy": Scenario("", "running, starting and finishing gangs; MIG slices and AMD GPUs"),
    "11-native": Scenario("", "gangs of Kubernetes itself, scheduling.k8s.io"),
    "12-ha": Scenario("t1", "two replicas of Kueue, one of them the leader"),
    "13-kueue-and-podgroup": Scenario("", "pods that are in a PodGroup and in a Kueue Workload"),
    "14-node-lost": Scenario("t2", "a node stops to answer under a running gang"),
    "15-crashloop": Scenario("t2", "a member crashes in place"),
    "16-preempt-nominated": Scenario("t1", "the default scheduler makes room for a gang"),
    "17-podsets": Scenario("t1", "a launcher and its workers, of which one is missing"),
    "18-taints": Scenario("", "GPU pools with taints and a node under maintenance"),
    "19-finished": Scenario("", "jobs that are finished, on hold, or in a queue that does not exist"),
    "20-ran-then-evicted": Scenario("t3", "a gang that ran is preempted; beside it a job without gang scheduling"),
}  # fmt: skip

#: Together they have gangs that are partial, degraded, starting, waiting, queued, finishing and running.
_SIDE_BY_SIDE: Final = ("1-permit-wait", "2-partial-bound", "3-degraded", "10-mixed-healthy", "17-podsets")
#: The one of them whose Kueue has the most to tell.
_KUEUE: Final = "17-podsets"


def side_by_side() -> Recording:
    """Return several scenarios as one cluster, with the scheduler's metrics of the first."""
    merged = Recording.merge(*(scenario(name) for name in _SIDE_BY_SIDE))
    return replace(merged, metrics=scenario(_KUEUE).metrics)


def scenario(name: str) -> Recording:
    """Return a scenario at the moment that shows what it is about, or at another one: `3-degraded/t1`.

    Its number may be left out: `degraded/t1`. Raises ValueError for a name or a moment that was not recorded;
    the text names those that were.
    """
    known, _, moment = name.partition("/")
    known = next((full for full in SCENARIOS if full.partition("-")[2] == known), known)
    if known not in SCENARIOS:
        msg = f"no scenario {known!r}: there are {', '.join(SCENARIOS)}"
        raise ValueError(msg)
    archive = CAPTURES / f"{known}.tar.xz"
    recorded = moments(archive)
    wanted = moment or SCENARIOS[known].moment
    if wanted not in recorded:
        msg = f"no moment {wanted!r} of {known}: there {_are(recorded)}"
        raise ValueError(msg)
    return Recording.open(archive, wanted)


def _are(recorded: list[str]) -> str:
    return f"are {', '.join(recorded)}" if recorded != [""] else "is only one, without a name"
