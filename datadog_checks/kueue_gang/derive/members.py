# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The class of a member pod, from the pod and its node alone.

A pod that waits in the Permit phase of kube-scheduler leaves one trace in the API: it has no node, and the scheduler
has written the node that it chose in nominatedNodeName (Kubernetes 1.35 and later). Preemption writes the same field,
and a rejected pod may keep it, so the text of the last failure decides:

* a failure that clears the nomination (`preemption: 0/N nodes`) or comes before one (PreFilter) is older than a
  nomination that is there: the pod waits now;
* a plain filter text without a `preemption:` part is what a successful preemption leaves: the pod is nominated;
* a Permit rejection says nothing about now: the gang is tried again within 10 ms, and the late patch of the rejection
  then clears a nomination that is valid. Such a pod possibly waits, with or without a nomination.
"""

from collections.abc import Callable

from datadog_checks.kueue_gang.facts.nodes import Node
from datadog_checks.kueue_gang.facts.pods import Pod
from datadog_checks.kueue_gang.facts.texts import Families, families

#: Classes of members that are bound and do not terminate.
PLACED = frozenset({"ready", "running", "bound", "lost", "crashing"})
#: Classes of members that work, as far as Kubernetes can tell.
UP = frozenset({"ready", "running"})
TERMINAL = frozenset({"succeeded", "failed"})
#: Classes of members that hold GPUs of a node.
HOLDING = PLACED | {"terminating"}
#: Every class, in the order in which people read them.
CLASSES = (
    "ready", "running", "bound", "crashing", "lost", "terminating", "waiting_permit", "waiting_possible", "nominated",
    "rejected", "unschedulable", "gated", "new", "succeeded", "failed",
)  # fmt: skip

PERMIT_REJECTION = frozenset({"permit_timeout", "unreserve", "postfilter_sibling"})
PREFILTER = frozenset({"missing_members", "gated_members", "backoff", "min_resources", "podgroup_missing"})
GROUP = PERMIT_REJECTION | PREFILTER | {"postfilter_trigger", "native", "native_preempting"}
_VICTIMS_GOING = frozenset({"victims_going", "native_preempting"})
_OLDER_THAN_NOMINATION = PREFILTER | {"preemption_in_vain"}

_NONE: Families = frozenset()


def lost_at(node: Node, grace: float) -> float | None:
    """Return when a node that is not Ready turns lost, None for one that is Ready.

    A node without a Ready condition is not proven lost.
    """
    ready = node.ready
    return ready.since + grace if ready and ready.status is not True and ready.since is not None else None


def readiness(node: Node | None) -> object:
    """Return what of a node decides whether the pods on it are lost."""
    if node is None:
        return "absent"
    if node.ready is None or node.ready.status is True:
        return "not lost"
    return node.ready.since


def is_gone(pod: Pod) -> bool:
    """Tell whether a pod was deleted before it had a node: it is no member any more."""
    return pod.deletion is not None and not pod.node and pod.phase not in {"Succeeded", "Failed"}


def member_class(pod: Pod, *, lost: bool, nominated: bool = True) -> str:
    """Return the class of a member, one of `CLASSES`.

    Args:
        pod: the member; not `is_gone`.
        lost: its node is lost.
        nominated: whether its nomination counts; False gives the class that the pod has when its nomination is known to
            be a leftover.

    """
    if pod.phase in {"Succeeded", "Failed"}:
        return pod.phase.lower()
    if pod.node:
        return next(name for name, test in _BOUND if test(pod, lost))
    failed = pod.failure is not None
    found = _NONE if pod.failure is None else families(pod.failure)
    return next(name for name, test in _UNBOUND if test(pod, bool(pod.nominated) and nominated, failed, found))


_BOUND: tuple[tuple[str, Callable[[Pod, bool], bool]], ...] = (
    ("terminating", lambda pod, _lost: pod.deletion is not None),
    ("lost", lambda _pod, lost: lost),
    ("crashing", lambda pod, _lost: pod.failing),
    ("ready", lambda pod, _lost: pod.ready),
    ("running", lambda pod, _lost: pod.phase == "Running"),
    ("bound", lambda _pod, _lost: True),
)

_UNBOUND: tuple[tuple[str, Callable[[Pod, bool, bool, Families], bool]], ...] = (
    ("gated", lambda pod, _nominated, _failed, _found: pod.gated),
    ("nominated", lambda _pod, nominated, failed, found: nominated and failed and _by_preemption(found)),
    (
        "waiting_permit",
        lambda _pod, nominated, failed, found: (
            nominated and (not failed or bool(found & _OLDER_THAN_NOMINATION and not found & PERMIT_REJECTION))
        ),
    ),
    (
        "waiting_possible",
        lambda _pod, nominated, _failed, found: (
            bool(found & PERMIT_REJECTION) or (nominated and "preemption_refused" in found)
        ),
    ),
    ("rejected", lambda _pod, _nominated, _failed, found: bool(found & GROUP)),
    ("unschedulable", lambda _pod, _nominated, failed, _found: failed),
    ("new", lambda _pod, _nominated, _failed, _found: True),
)


def _by_preemption(found: Families) -> bool:
    return bool(found & _VICTIMS_GOING) or ("filter" in found and not found & (GROUP | {"preemption"}))
