# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The events of one whole history of a gang, as they read: the example of the docs.

A gang of two waits for quota, is admitted, waits in Permit, is turned away, is placed in part, runs, loses a node, is
degraded and evicted while it is, runs again, and finishes. The objects are API JSON, made with the builders of the
tests; the real reducers, rules and texts run on them.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from datadog_checks.kueue_gang.derive.deriver import Deriver
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.emit_events import EventOptions, events
from datadog_checks.kueue_gang.facts.cluster import Changes
from tests.model import build
from tests.model.build import (
    GANG_SCHEDULER,
    NO_GPU,
    NOW,
    SOURCES,
    TIMEOUT,
    Json,
    bound,
    of_group,
    of_workload,
    permit_waiter,
    pod_group,
    podset,
    ready,
    terminating,
    unscheduled,
    workload,
)

_TIE: Final = of_group("llama") + of_workload("wl")
_CLUSTER: Final = "gpu-prod-1"


class Step(NamedTuple):
    """A moment of the history: what happens, so many seconds before the end, and the objects as they are then."""

    what: str
    ago: float
    objects: Sequence[Json]


def _workload(**more: Any) -> Json:  # noqa: ANN401 - as the builder takes them
    return workload("wl", ("JobSet", "llama"), podset(2, tie=of_group("llama")), created=3600, **more)


def _pods(*made: Json) -> list[Json]:
    return [pod_group("llama", 2, created=3600), *made]


def _first(name: str, node: str, since: float) -> Json:
    return ready(name, _TIE, node, since=since, created=3300, gpus=8, scheduler=GANG_SCHEDULER)


def _waits(name: str, text: str, created: float = 3300) -> Json:
    return unscheduled(name, _TIE, text, created=created, gpus=8, scheduler=GANG_SCHEDULER)


def history() -> Iterator[Step]:
    """Yield the moments."""
    lost = [build.node("gpu-1", ready_status="Unknown", since=1200), build.node("gpu-2"), build.node("gpu-3")]
    nodes = [build.node("gpu-1")]
    queue = [build.local_queue("team-queue", "cluster-queue")]
    on = {"queue": "team-queue"}
    yield Step("queued for quota", 3500, [*nodes, *queue, *_pods(_workload(**on))])
    admitted = _workload(admitted=3300, **on)
    two = [permit_waiter("llama-0", _TIE, "gpu-1", since=3290, created=3300, gpus=8, scheduler=GANG_SCHEDULER)]
    waiting = [*nodes, *queue, *_pods(admitted, *two, _waits("llama-1", NO_GPU))]
    yield Step("admitted; one member waits in Permit for the other", 3280, waiting)
    away = [*nodes, *queue, *_pods(admitted, _waits("llama-0", TIMEOUT), _waits("llama-1", TIMEOUT))]
    yield Step("the Permit wait times out", 3265, away)
    yield Step("it waits again, and is beyond the grace", 3200, waiting)
    half = bound("llama-0", _TIE, "gpu-1", since=3000, created=3300, gpus=8, scheduler=GANG_SCHEDULER)
    yield Step(
        "one member is placed, the other is not",
        2900,
        [*nodes, *queue, *_pods(admitted, half, _waits("llama-1", NO_GPU))],
    )
    runs = [_first("llama-0", "gpu-1", 2500), _first("llama-1", "gpu-2", 2400)]
    running = _workload(admitted=3300, pods_ready=("True", 2400, "Started"), **on)
    nodes = [build.node(name) for name in ("gpu-1", "gpu-2", "gpu-3")]
    yield Step("another node joins, and it runs", 2390, [*nodes, *queue, *_pods(running, *runs)])
    recovers = _workload(admitted=3300, pods_ready=("False", 1150, "WaitForRecovery"), **on)
    yield Step("a node stops answering", 1100, [*lost, *queue, *_pods(recovers, *runs)])
    yield Step("the node does not come back", 1000, [*lost, *queue, *_pods(recovers, *runs)])
    evicted = _workload(
        admitted=3300,
        pods_ready=("False", 1150, "WaitForRecovery"),
        evicted=("True", 850, "PodsReadyTimeout"),
        **on,
    )
    yield Step("Kueue evicts it", 840, [*lost, *queue, *_pods(evicted, *(terminating(pod, began=850) for pod in runs))])
    again = _workload(admitted=600, **on)
    new = [
        ready(name, _TIE, node, since=500, created=590, gpus=8, scheduler=GANG_SCHEDULER)
        for name, node in (("llama-0", "gpu-2"), ("llama-1", "gpu-3"))
    ]
    yield Step("admitted again, it runs on other nodes", 490, [*lost, *queue, *_pods(again, *new)])
    yield Step("it finishes", 60, [*nodes, *queue, pod_group("llama", 2, created=3600), _workload(finished=70, **on)])


def told() -> Iterator[tuple[Step, list[dict[str, Any]]]]:
    """Yield each moment with the events that are sent then."""
    reduce, deriver = build.reducers(Rules()), Deriver(Rules())
    known: dict[tuple[str, str, str], Any] = {}
    fields = dict(SOURCES.values())
    for step in history():
        changes: dict[str, list[Any]] = {}
        here = set()
        for obj in step.objects:
            source, field = SOURCES[obj["apiVersion"].split("/")[0], obj["kind"]]
            key = source, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
            here.add(key)
            fact = reduce[source](obj)
            if known.get(key) != fact:
                changes.setdefault(field, []).append((known.get(key), fact))
            known[key] = fact
        for key in known.keys() - here:
            changes.setdefault(fields[key[0]], []).append((known.pop(key), None))
        now = NOW - step.ago
        picture = deriver.apply(Changes(**changes), now)  # type: ignore[arg-type]
        sent = events(picture.notes, picture, deriver.seen, EventOptions(cluster=_CLUSTER), now)
        yield step, list(sent)


def markdown() -> list[str]:
    """Return the history as lines of the docs."""
    lines: list[str] = []
    for step, sent in told():
        lines += [f"**{step.what[0].upper()}{step.what[1:]}**", ""]
        for event in sent:
            text = event["msg_text"].removeprefix("%%% \n").removesuffix("\n %%%")
            quoted = [f"> {line}" if line else ">" for line in text.splitlines()]
            lines += [f"> **{event['msg_title']}** ({event['alert_type']})", ">", *quoted, ""]
        lines += [] if sent else ["No event.", ""]
    return lines[:-1]
