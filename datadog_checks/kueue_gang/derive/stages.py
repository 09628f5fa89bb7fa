# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""How far Workloads have come, how long each has been there, and when one moved on.

`STAGES` is the table of stages, the first test that holds names it. Admitted stays True after both Finished and the
instant of an eviction, and Evicted stays True while a Workload waits again, so neither is read alone.

A stage is reached when its condition turns True: the time of that is the condition's, in whole seconds. It is told
once, with the time that it took from the stage before: to quota_reserved from the last requeue or eviction or else from
creation, to admitted from there, to ready from admission. Ready counts once an admission: Kueue says Started then, and
Recovered after a loss. PodsReady that is older than the admission is about the one before.

An eviction is told by `status.schedulingStats.evictions` where Kueue keeps it (0.12 and later): it counts, and survives
the requeue. Before, it is the condition Evicted that turns True, or anew.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from datadog_checks.kueue_gang.facts.evictions import DEACTIVATED_DUE_TO, eviction_reason, underlying_cause
from datadog_checks.kueue_gang.facts.fields import Condition
from datadog_checks.kueue_gang.facts.workloads import Workload

PENDING, QUOTA_RESERVED, ADMITTED, READY, EVICTING, DEACTIVATED = STAGES_SENT = (
    "pending", "quota_reserved", "admitted", "ready", "evicting", "deactivated",
)  # fmt: skip

STAGES: tuple[tuple[str, Callable[[Workload], bool]], ...] = (
    (EVICTING, lambda one: one.is_true("Evicted") and (one.is_true("Admitted") or one.is_true("QuotaReserved"))),
    (DEACTIVATED, lambda one: not one.active),
    (READY, lambda one: one.is_true("Admitted") and one.is_true("PodsReady")),
    (ADMITTED, lambda one: one.is_true("Admitted")),
    (QUOTA_RESERVED, lambda one: one.is_true("QuotaReserved")),
    (PENDING, lambda _one: True),
)
_CONDITION = {EVICTING: "Evicted", READY: "PodsReady", ADMITTED: "Admitted", QUOTA_RESERVED: "QuotaReserved"}

#: A recovery is no first readiness.
_RECOVERED = "Recovered"
_RECOVERING = "WaitForRecovery"


class Reached(NamedTuple):
    """A stage that a Workload has reached, when, and the seconds that it took from the stage before."""

    stage: str
    at: float
    seconds: float


class Eviction(NamedTuple):
    """Evictions in the words of the tags, when the last one was, None where that is not known, and their number."""

    reason: str
    cause: str
    at: float | None
    number: int = 1


def counts(workload: Workload) -> bool:
    """Tell whether a Workload is one of its own: a finished one is over, a variant stands for its parent."""
    return not workload.finished and not (workload.owner is not None and workload.owner.kind == "Workload")


def stage_of(workload: Workload) -> str:
    """Return the stage of a Workload that is not finished."""
    return next(name for name, test in STAGES if test(workload))


def stage_since(workload: Workload, stage: str) -> float | None:
    """Return since when a Workload is in its stage; None for a deactivated one, which waits for nobody."""
    if stage == PENDING:
        return _queued_since(workload)
    if stage == DEACTIVATED:
        return None
    since = workload.conditions[_CONDITION[stage]].since
    ready = workload.conditions.get("PodsReady")
    if stage == ADMITTED and since is not None and ready is not None and ready.reason == _RECOVERING:
        # It was ready, and waits since it has lost a pod.
        return max(since, ready.since or since)
    return since


def _queued_since(workload: Workload) -> float:
    """Return when a Workload began to wait: its last requeue or eviction, else its creation."""
    times = (workload.conditions[kind].since for kind in ("Requeued", "Evicted") if workload.is_true(kind))
    return max([workload.created, *(time for time in times if time is not None)])


def reached(old: Workload | None, new: Workload) -> Iterator[Reached]:
    """Yield the stages that a Workload has reached between two versions of it; `old` is None for one that is new."""
    if new.finished or (old is not None and old.finished):
        return
    # Whether or not the versions in between were seen: an eviction is told by the old one, a requeue by the new one.
    basis = max(_queued_since(one) for one in (old, new) if one is not None)
    for stage, before in ((QUOTA_RESERVED, None), (ADMITTED, QUOTA_RESERVED), (READY, ADMITTED)):
        now = _turned(old, new, _CONDITION[stage])
        since = now.since if now else None
        began = basis if before is None else _since(new, _CONDITION[before])
        if now is None or since is None or began is None:
            continue
        if stage == READY and (now.reason == _RECOVERED or since < began):
            continue
        yield Reached(stage, since, max(0.0, since - began))


def _turned(old: Workload | None, new: Workload, kind: str) -> Condition | None:
    """Return a condition that is True and was not, or was so at another time."""
    now = new.conditions.get(kind)
    before = old.conditions.get(kind) if old is not None else None
    if now is None or now.status is not True:
        return None
    return None if before is not None and before.status is True and before.since == now.since else now


def _since(workload: Workload, kind: str) -> float | None:
    found = workload.conditions.get(kind)
    return found.since if found is not None and found.status is True else None


def evictions(old: Workload | None, new: Workload) -> Iterator[Eviction]:
    """Yield the evictions between two versions of a Workload."""
    condition = new.conditions.get("Evicted")
    turned = _turned(old, new, "Evicted")
    before, now = _counted(old) if old is not None else Counter[tuple[str, str]](), _counted(new)
    # A count that went back tells nothing: it began anew.
    if (before or now) and before <= now:
        more = now - before
        for (reason, cause), number in more.items():
            yield Eviction(*_words(reason, cause), condition.since if condition else None, number)
    elif turned is not None:
        ready = new.conditions.get("PodsReady")
        cause = ready.reason if ready is not None and turned.reason == "PodsReadyTimeout" else ""
        yield Eviction(*_words(turned.reason, cause), turned.since)


def _counted(workload: Workload) -> Counter[tuple[str, str]]:
    return Counter({(reason, cause): number for reason, cause, number in workload.evictions})


def _words(reason: str, cause: str) -> tuple[str, str]:
    """Return reason and underlying cause in the words of the tags."""
    if reason.startswith(DEACTIVATED_DUE_TO):
        cause = reason.removeprefix(DEACTIVATED_DUE_TO)
    return eviction_reason(reason), underlying_cause(cause) if cause else "none"
