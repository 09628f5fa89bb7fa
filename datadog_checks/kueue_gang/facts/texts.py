# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What a scheduler says of a pod that it did not place: the families of its texts, and which of them reject a gang.

The same text is in the PodScheduled condition of the pod and in an Event of it. That of a condition is whole; the note
of an Event is cut at 1024 bytes and then ends in ` ...`. So families are found by short phrases anywhere in a text, and
what a cut took away is not known: such a text may belong to fewer families, never to others.

The texts are those of kube-scheduler 1.18 to 1.37 and Coscheduling 0.18 to 0.35; one text can hold several.
"""

import re
from functools import lru_cache

_FAMILIES = {
    "permit_timeout": r"rejected due to timeout after waiting \S+ at plugin",
    "unreserve": r"rejection in Unreserve",
    "postfilter_sibling": r"optimistic rejection in PostFilter",
    "postfilter_trigger": r"PodGroup \S+ gets rejected due to Pod",
    "missing_members": r"cannot find enough sibling pods",
    "gated_members": r"cannot proceed due to gated pods in the same PodGroup",
    "backoff": r"[pP]odGroup \S+ failed recently|last failed in \S+, deny",
    "min_resources": r"resource gap: ",
    "podgroup_missing": r"PodGroup not found|can not find pod group",
    "native": r"waiting for minCount pods from a gang|asked to wait and no plugin rejected pod"
    r"|pod group is unschedulable|\d+ placements are available|minCount \(\d+\) cannot be satisfied",
    "native_preempting": r"pod group is waiting for preemption to complete",
    "victims_going": r"not eligible due to a terminating pod on the nominated node",
    "preemption_refused": r"not eligible due to preemptionPolicy=Never",
    "preemption_in_vain": r"preemption: 0/\d+ nodes are available",
    "preemption": r"preemption: ",
    "filter": r"\d+/\d+ nodes are available",
}
_PATTERNS = tuple((name, re.compile(pattern, re.ASCII)) for name, pattern in _FAMILIES.items())

#: Reasons of rejections by the families of scheduler texts; of the members of a gang the first that any of them has.
_REJECTIONS = (
    ("permit_timeout", frozenset({"permit_timeout"})),
    ("postfilter", frozenset({"postfilter_trigger", "postfilter_sibling"})),
    ("missing_members", frozenset({"missing_members"})),
    ("gated_members", frozenset({"gated_members"})),
    ("backoff", frozenset({"backoff"})),
    ("unreserve", frozenset({"unreserve"})),
    ("other", frozenset({"native", "min_resources", "podgroup_missing"})),
)
REJECTIONS = tuple(name for name, _ in _REJECTIONS)

Families = frozenset[str]


@lru_cache(maxsize=4096)
def families(text: str) -> Families:
    """Return the families that a text belongs to."""
    return frozenset(name for name, pattern in _PATTERNS if pattern.search(text))


def rejection(text: str) -> str | None:
    """Return why a gang was rejected, one of `REJECTIONS`; None for a text that is no rejection of a gang."""
    found = families(text)
    return next((reason for reason, wanted in _REJECTIONS if found & wanted), None)
