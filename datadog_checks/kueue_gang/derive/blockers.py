# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Why a gang does not run.

`BLOCKERS` is the table: the first that holds is the answer, which is about the members that are not placed. Some hold
by what Kueue, the scheduler and the pods say, the signs of a `Case`; others take the nodes: whether what is to be
placed (`asks`) would fit, now or once pods that terminate are gone, and if not, whether GPUs, labels or their
arrangement are missing (`Outlook`).

Before Kueue admits a gang, its Workload's condition QuotaReserved says what is waited for. Its reasons are granular
since Kueue 0.18.5 and where a gate is on; the texts are there in every release, so both are read. After that, the pods
say it.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from datadog_checks.kueue_gang.derive.asks import Alternatives, requested, unplaced
from datadog_checks.kueue_gang.derive.fit import Ask, Fits
from datadog_checks.kueue_gang.derive.fleet import LATER, SOON
from datadog_checks.kueue_gang.derive.kueue import Kueue, Offer
from datadog_checks.kueue_gang.derive.labels import would_fit_labelled
from datadog_checks.kueue_gang.derive.members import GROUP, PERMIT_REJECTION, PLACED, PREFILTER
from datadog_checks.kueue_gang.derive.said import misfit, never, said
from datadog_checks.kueue_gang.derive.states import Shape
from datadog_checks.kueue_gang.facts.fields import Condition
from datadog_checks.kueue_gang.facts.pods import Pod
from datadog_checks.kueue_gang.facts.texts import families
from datadog_checks.kueue_gang.facts.workloads import PodSet, Workload

#: States of gangs that nothing keeps from running.
UNBLOCKED = frozenset({"running", "finishing", "stopping", "orphan"})

_TERMINATING = frozenset({"terminating"})
_TURNED_AWAY = frozenset({"unschedulable", "rejected"})
_NO_CONDITION = Condition(None, "", "", None)
#: Reasons of a ClusterQueue's condition Active that say that somebody stopped it; others say that it is set up wrongly.
_STOPPED = frozenset({"Stopped", "Terminating", "Ready", "Unknown", ""})
#: What Kueue says of a queue that is held back, and of one that is not there.
_HELD = ("is inactive", "is stopped")
_MISSING = ("doesn't exist", "not found", "is terminating or missing")
#: Somebody else holds the admission back.
_GATED = "AdmissionGated"
_FILTER = re.compile(r"\d+/\d+ nodes are available:", re.ASCII)
_PIECES = re.compile(r"[,.:]\s+", re.ASCII)


class Case(NamedTuple):
    """A gang that does not run: the blockers that hold without a look at the nodes, and what is to be placed.

    `tries` is set for a gang whose pods the scheduler tries, `turned_away` where each of these was last turned away, as
    rejected or for too few GPUs.
    """

    signs: frozenset[str]
    asks: Alternatives = ()
    tries: bool = False
    turned_away: bool = False


class Outlook:
    """Whether what a gang asks for would fit, and what it lacks; each is found when it is asked for.

    There are several alternatives where Kueue may still choose between flavors: one that fits is enough. What other
    gangs hold nobody knows where has to fit beside: where it does not, nothing fits, and where it does, that what is
    asked for fits is not `certain`.
    """

    def __init__(self, alternatives: Alternatives, fits: Fits, beside: tuple[Ask, ...] = ()) -> None:
        """Take what is to be placed, who knows what fits, and what others hold somewhere."""
        self.certain = not beside
        self._alternatives = tuple((*asks, *beside) for asks in alternatives)
        self._fits = fits
        self._known: dict[int, bool] = {}

    def fits(self, when: int = 0) -> bool:
        """Tell whether it would fit at a time (see `fit`)."""
        if when not in self._known:
            self._known[when] = any(self._fits.fits(asks, when) for asks in self._alternatives)
        return self._known[when]

    def enough(self) -> bool:
        """Tell whether the free GPUs suffice in sum."""
        return any(self._fits.enough(asks) for asks in self._alternatives)

    def exceeds(self) -> bool:
        """Tell whether a pod asks for more GPUs than any node has."""
        return bool(self._alternatives) and all(self._fits.exceeds(asks) for asks in self._alternatives)

    def labelled(self) -> bool:
        """Tell whether it would fit if the nodes that lack a level label had it."""
        return any(would_fit_labelled(self._fits, asks) for asks in self._alternatives)


def _never(_case: Case, _look: Outlook) -> bool:
    return False


def _soon(look: Outlook) -> bool:
    return not look.fits() and look.fits(SOON)


def _refinable(case: Case) -> bool:
    return case.tries or "topology_request" in case.signs


#: Each blocker with the test that takes the nodes; it holds by its sign, too. In the order of docs/model.md.
_Row = tuple[str, Callable[[Case, Outlook], bool]]
_BY_NODES: tuple[_Row, ...] = (
    ("capacity", lambda case, look: _refinable(case) and not look.fits() and not look.enough()),
    ("node_labels", lambda case, look: _refinable(case) and not look.fits() and look.labelled()),
    ("fragmentation", lambda case, look: _refinable(case) and not look.fits()),
)
BLOCKERS: tuple[_Row, ...] = (
    ("suspended", _never),
    ("misconfigured", _never),
    ("backoff", _never),
    ("exceeds_quota", _never),
    ("preempting", lambda case, look: case.tries and _soon(look)),
    ("pods_ready", _never),
    ("topology_request", _never),
    ("quota", _never),
    ("provisioning", _never),
    ("admission_check", _never),
    ("gated", _never),
    ("missing_pods", _never),
    ("exceeds_node", lambda case, look: case.tries and look.exceeds()),
    ("not_retried", lambda case, look: case.turned_away and look.certain and look.fits()),
    ("stuck_terminating", lambda case, look: case.tries and not look.fits() and look.fits(LATER)),
    *_BY_NODES,
    ("unschedulable", _never),
    ("permit", _never),
    ("node_lost", _never),
    ("crash_loop", _never),
    ("image_or_init", _never),
)
UNKNOWN = "unknown"
NAMES = (*(name for name, _ in BLOCKERS), UNKNOWN)


def takes_nodes(case: Case) -> bool:
    """Tell whether the blocker of a gang may depend on the nodes."""
    for name, test in BLOCKERS:
        if name in case.signs:
            return name == "topology_request" and bool(case.asks)
        if test is not _never and case.tries:
            return True
    return False


def blocker(case: Case, look: Outlook | None) -> str:
    """Return the blocker of a gang; without a look at the nodes what they would tell is left out."""
    for name, test in BLOCKERS:
        if name in case.signs:
            return _refined(case, look) if name == "topology_request" and look else name
        if look and test(case, look):
            return name
    return UNKNOWN


def _refined(case: Case, look: Outlook) -> str:
    if case.asks and _soon(look):
        return "preempting"
    return next((name for name, test in _BY_NODES if case.asks and test(case, look)), "topology_request")


def case_of(shape: Shape, kueue: Kueue, now: float, *, loses: bool = False) -> Case:
    """Return what is to be asked about a gang whose state is not in `UNBLOCKED`.

    `loses` tells that members terminate on a node that is lost: they are not of the class `lost` any more.
    """
    workload = shape.gang.workload
    signs = set(_queue_signs(workload, kueue, now)) if workload else set()
    if signs:
        if "topology_request" in signs and workload:
            offers = kueue.offers_to(workload)
            return Case(frozenset(signs), requested(shape.gang, workload, offers, _placing(workload)))
        return Case(frozenset(signs))
    signs |= set(_pod_signs(shape)) | ({"node_lost"} if loses else set())
    waiting = unplaced(shape)
    asks = waiting.asks
    if not asks and any(pod.deletion is not None and pod.deletion <= now for pod in shape.pods(_TERMINATING)):
        # Its own pods: what would replace them is not made before they are gone.
        signs.add("stuck_terminating")
    turned_away = bool(waiting.pods) and all(_turned_away(pod, name) for pod, name in waiting.pods)
    return Case(frozenset(signs), (asks,) if asks else (), bool(asks), turned_away)


# --- what Kueue says -------------------------------------------------------------------------------------------------


def _queue_signs(workload: Workload, kueue: Kueue, now: float) -> Iterator[str]:
    """Yield the blockers of a Workload that is not admitted, by its conditions and its queues."""
    reserved = workload.conditions.get("QuotaReserved", _NO_CONDITION)
    if not workload.active:
        yield "suspended"
    if workload.admitted:
        return
    if reserved.status is True and not workload.is_true("Evicted"):
        yield from _check_signs(workload, kueue)
        return
    yield from _queue_object_signs(workload, kueue, reserved)
    for name, test in _BY_CONDITION:
        if test(reserved):
            yield name
    if workload.requeue_at is not None and workload.requeue_at > now:
        yield "backoff"
    if reserved.reason != _GATED:
        yield "quota"


_BY_CONDITION: tuple[tuple[str, Callable[[Condition], bool]], ...] = (
    ("suspended", lambda found: found.reason in {"Deactivated", "OnHold"}),
    ("misconfigured", lambda found: found.reason in {"Misconfigured", "NoMatchingFlavor"}),
    ("misconfigured", lambda found: any(words in found.message for words in _MISSING)),
    ("exceeds_quota", lambda found: found.reason == "ExceedsMaxQuota"),
    ("exceeds_quota", lambda found: never(found.message)),
    ("preempting", lambda found: found.reason == "WaitingForPreemptedWorkloads"),
    ("preempting", lambda found: "Pending the preemption of" in found.message),
    ("pods_ready", lambda found: found.reason == "WaitingForPodsReady"),
    ("pods_ready", lambda found: "to be in PodsReady condition" in found.message),
    ("topology_request", lambda found: found.reason == "TopologyPlacementFailed"),
    ("topology_request", lambda found: misfit(found.message)),
    ("gated", lambda found: found.reason == _GATED),
)


def _queue_object_signs(workload: Workload, kueue: Kueue, reserved: Condition) -> Iterator[str]:
    local = kueue.local_queues.get((workload.namespace, workload.queue))
    if local is None and kueue.lacks("localqueues", workload.queue, workload.namespace):
        yield "misconfigured"
    queue = kueue.cluster_queue_of(workload)
    if local and queue is None and kueue.lacks("clusterqueues", kueue.cluster_queue_name(workload)):
        yield "misconfigured"
    if (local and local.stopped) or (queue and queue.stopped):
        yield "suspended"
    inactive = queue.active if queue and queue.active and queue.active.status is False else None
    if inactive and inactive.reason not in _STOPPED:
        # Kueue calls such a queue inactive and the Workload suspended, as it does of one that somebody stopped.
        yield "misconfigured"
    elif reserved.reason == "Suspended" or any(words in reserved.message for words in _HELD):
        yield "suspended"


def _check_signs(workload: Workload, kueue: Kueue) -> Iterator[str]:
    """Yield the blocker of a Workload that has its quota and waits for more."""
    provisions = (kueue.checks[name].provisions for name, _ in workload.checks if name in kueue.checks)
    yield "provisioning" if any(provisions) else "admission_check"


def _placing(workload: Workload) -> Callable[[PodSet, Offer], bool]:
    """Return which flavors a podset may get: those of the topologies that the text names for it, if it names some."""
    podsets = {podset.name for podset in workload.podsets}
    named: dict[str, set[str]] = {}
    for one in said(workload.conditions.get("QuotaReserved", _NO_CONDITION).message):
        if one.topologies:
            named.setdefault(one.podset if one.podset in podsets else "", set()).update(one.topologies)

    def may(podset: PodSet, offer: Offer) -> bool:
        flavor, topology = offer
        names = named.get(podset.name, named.get(""))
        if topology is None:
            return names is None and not podset.request and not flavor.topology
        return names is None or topology.name in names

    return may


# --- what the pods say -----------------------------------------------------------------------------------------------


def _pod_signs(shape: Shape) -> Iterator[str]:
    counts = shape.counts
    if counts["nominated"]:
        yield "preempting"
    if counts["gated"]:
        yield "gated"
    if shape.missing:
        yield "missing_pods"
    waiting = [name for name in shape.classes if name not in PLACED | {"succeeded", "failed", "terminating"}]
    if any(_names_another_reason(pod) for pod in shape.pods(_TURNED_AWAY)):
        yield "unschedulable"
    if waiting and all(name == "waiting_permit" for name in waiting):
        yield "permit"
    for name, sign in (("lost", "node_lost"), ("crashing", "crash_loop"), ("bound", "image_or_init")):
        if counts[name]:
            yield sign


def _for_gpus(text: str, pod: Pod) -> bool:
    return any(_insufficient(resource).search(text) for resource, _ in pod.spec.gpus)


@lru_cache(maxsize=64)
def _insufficient(resource: str) -> re.Pattern[str]:
    """Return what finds the name of a resource, and none that only begins with it: gpu.shared, gpumem."""
    return re.compile(rf"Insufficient {re.escape(resource)}(?![\w/-]|\.\w)", re.ASCII)


def _turned_away(pod: Pod, name: str) -> bool:
    """Tell whether a member was last turned away with its gang or for too few GPUs, and not for something else."""
    if name in {"rejected", "unschedulable"} and _for_gpus(pod.failure or "", pod):
        return True
    return name == "waiting_possible" or (name == "rejected" and not _names_another_reason(pod))


def _names_another_reason(pod: Pod) -> bool:
    """Tell whether a scheduler's text names a reason other than too few GPUs, and other than the pod's gang."""
    found = families(pod.failure or "")
    if found & GROUP and ("postfilter_trigger" not in found or found & (PERMIT_REJECTION | PREFILTER)):
        return False
    text = (pod.failure or "").partition("preemption:")[0]
    match = _FILTER.search(text)
    if match is None:
        return bool(text.strip()) and not found & GROUP
    reasons = [piece for piece in _PIECES.split(text[match.end() :]) if piece[:1].isdigit()]
    reasons += [piece for piece in [text[match.end() :].strip()] if not reasons and piece]
    return any(not _for_gpus(reason, pod) for reason in reasons)
