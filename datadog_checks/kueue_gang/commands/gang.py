# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""`kueue-gang status NAMESPACE/GANG`: one gang from near, as text or as JSON.

First what it is and what keeps it from running, then the member that the others wait for, then what would let it run,
and last each member. Only steps that the fit engine verified are shown.
"""

from collections.abc import Callable, Iterator, Sequence

from datadog_checks.kueue_gang.commands.terminal import BOLD, COLOURS, DIM, GREEN, RED, YELLOW, age, cut, painter, plain
from datadog_checks.kueue_gang.derive.closeup import CloseUp, Member
from datadog_checks.kueue_gang.derive.members import UP
from datadog_checks.kueue_gang.derive.picture import NONE
from datadog_checks.kueue_gang.derive.remedies import ANY_VALUE, Step
from datadog_checks.kueue_gang.facts.topology import Request

#: Steps that are shown as text; the cheapest is the first.
_STEPS = 3
_COLUMNS = ("MEMBER", "PODSET", "STATE", "NODE", "GPUS", "FOR", "WHY")

#: What a step says, by its action.
_SAID: dict[str, Callable[[Step], str]] = {
    "touch_pod_group": lambda step: (
        f"touch PodGroup {step.subject} (an annotation will do): its pods fit and are not tried again"
    ),
    # Where a node stands is a fact, which a label only tells.
    "label_node": lambda step: (
        f"label node {step.subject}, if it stands there: {', '.join(_label(*label) for label in step.labels)}"
    ),
    "uncordon_node": lambda step: f"uncordon node {step.subject}, if it is fit for work",
    "remove_pods": lambda step: (
        f"remove the pods that do not go from node {step.subject}: they hold {step.amount} {step.resource}"
    ),
    "raise_quota": lambda step: (
        f"raise the quota of {step.resource} in flavor {step.flavor} of ClusterQueue {step.subject} by {step.amount}"
    ),
    "free_gpus": lambda step: f"free the {step.amount} GPUs that gang {step.subject} holds, which is {step.state}",
}


def _label(key: str, value: str) -> str:
    return f"{key}=<any value>" if value == ANY_VALUE else f"{key}={value}"


def said(step: Step) -> str:
    """Return a step as text."""
    return _SAID[step.action](step)


def text(found: Sequence[CloseUp], now: float, *, colour: bool, width: int | None) -> str:
    """Return gangs from near."""
    return "\n\n".join("\n".join(_lines(one, now, painter(colour), width)) for one in found)


def _lines(found: CloseUp, now: float, paint: Callable[[str, str], str], width: int | None) -> list[str]:
    view = found.view
    state = view.state or f"not observable ({view.unobservable})"
    up = sum(view.classes.get(name, 0) for name in UP)
    held, idle = sum(view.allocated.values()), sum(view.idle.values())
    since = f" for {age(now - view.since)}" if view.since is not None else ""
    lines = [
        paint(BOLD, plain(f"{view.queue.namespace}/{view.name}"))
        + "  "
        + paint(COLOURS.get(state, DIM), state + since),
        f"  {plain(_identity(found))}",
        f"  {up} of {_number(view.required)} required members are up; it holds {_held(held, idle)}",
    ]
    lines += [f"  placement: {plain(line)}" for line in _placement(found)]
    if found.blocker:
        more = ", deadlocked with another gang" if found.deadlocked else ""
        lines.append("  blocker: " + paint(RED, found.blocker + more))
    if found.kueue_says:
        lines.append(f"  Kueue says: {plain(found.kueue_says)}")
    if found.laggard and found.blocker:
        lines.append("  laggard: " + paint(YELLOW, plain(_sentence(found.laggard, now))))
    lines += [f"  to unblock: {paint(GREEN, plain(said(step)))}" for step in found.steps[:_STEPS]]
    if found.blocker and not found.steps:
        lines.append(paint(DIM, "  to unblock: no single step that the fit engine could verify"))
    return [*lines, *(["", *_table(found.members, now, paint, width)] if found.members else [])]


def _identity(found: CloseUp) -> str:
    view = found.view
    queue = f"queue {view.queue.local_queue} of {view.queue.cluster_queue}" if view.queue.local_queue != NONE else ""
    kind = "" if view.owner_kind == NONE else view.owner_kind
    return ", ".join(part for part in (view.queue.engine, kind, queue) if part)


def _placement(found: CloseUp) -> Iterator[str]:
    """Yield whether a gang lies as it asked, and over how many domains of each level, against the least possible."""
    place = found.view.placement
    if place is None:
        return
    spans = [
        f"{number} of {level}"
        + (f" ({found.needed[level]} would do)" if found.needed.get(level, number) < number else "")
        for level, number, _ in place.domains
    ]
    asked = {_asked(podset.request, place.level) for podset in place.asked if podset.request}
    verdict = " ".join(part for part in (place.verdict, *sorted(asked), place.level) if part) if place.verdict else ""
    told = "; ".join(part for part in (verdict, ", ".join(spans)) if part)
    if told:
        yield told
    if place.outside:
        yield f"{place.outside} members run elsewhere than Kueue assigned them"


def _asked(request: Request, level: str) -> str:
    """Return how a level was asked for."""
    return "of the required" if level == request.required else "of the preferred" if level == request.preferred else ""


def _held(held: int, idle: int) -> str:
    if not held:
        return "no GPUs"
    return f"{held} GPU{'' if held == 1 else 's'}, {idle} of them idle"


def _number(required: int | None) -> str:
    return "?" if required is None else str(required)


def _sentence(member: Member, now: float) -> str:
    where = f" on {member.node}" if member.node else ""
    since = f" for {age(now - member.since)}" if member.since is not None else ""
    return f"{member.name}{where} is {member.state}{since}" + (f": {member.why}" if member.why else "")


def _table(members: Sequence[Member], now: float, paint: Callable[[str, str], str], width: int | None) -> list[str]:
    rows = [_COLUMNS, *(tuple(map(plain, _cells(one, now))) for one in members)]
    shown = [index for index in range(len(_COLUMNS)) if any(row[index] not in {"", "-"} for row in rows[1:])]
    widths = {index: max(len(row[index]) for row in rows) for index in shown}
    lines = ["  ".join(row[index].ljust(widths[index]) for index in shown).rstrip() for row in rows]
    lines = [line if width is None else cut(line, width) for line in lines]
    return [paint(BOLD, lines[0]), *lines[1:]]


def _cells(member: Member, now: float) -> tuple[str, ...]:
    return (
        member.name,
        member.podset or "-",
        member.state,
        member.node or "-",
        " + ".join(f"{amount} {resource}" for resource, amount in member.gpus) or "-",
        "-" if member.since is None else age(now - member.since),
        member.why,
    )


def _member_json(member: Member, now: float) -> dict[str, object]:
    return {
        "name": member.name,
        "podset": member.podset or None,
        "member_state": member.state,
        "node": member.node or None,
        "gpus": dict(member.gpus),
        "state_seconds": None if member.since is None else max(0.0, now - member.since),
        "why": member.why or None,
    }


def as_json(found: CloseUp, now: float, *, members: bool) -> dict[str, object]:
    """Return what the table of gangs does not tell of a gang; each member only where they are wanted."""
    return {
        "kueue_says": found.kueue_says or None,
        "laggard": _member_json(found.laggard, now) if found.laggard and found.blocker else None,
        "unblock": [step_json(step) for step in found.steps],
        **({"member_list": [_member_json(member, now) for member in found.members]} if members else {}),
    }


def step_json(step: Step) -> dict[str, object]:
    """Return a step as JSON, with its text."""
    told = {key: value for key, value in step._asdict().items() if value}
    return {**told, **({"labels": dict(step.labels)} if step.labels else {}), "text": said(step)}
