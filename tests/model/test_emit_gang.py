# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What is sent of gangs that get on or do not: which of them have series, and which."""

import pytest

from datadog_checks.kueue_gang.derive.rules import TrainingRule
from datadog_checks.kueue_gang.derive.spent import Meter
from datadog_checks.kueue_gang.emit import Report, samples
from datadog_checks.kueue_gang.emit_gang import EmitOptions
from datadog_checks.kueue_gang.facts.signals import TrainJob
from tests.model.build import GPU, NOW, TEAM, Seen, flavor, node, ready
from tests.model.build import of_group as member
from tests.model.watched import Watched, beats, gauge, running

RULES = (TrainingRule("tokens"), TrainingRule("", train_jobs=True))


#: Series by name, each as its tags and its value.
Sent = dict[str, list[dict[str, object]]]


def sent(seen: Seen, meter: Meter | None = None, at: float = 0, **options: object) -> Sent:
    """Return the series of a picture."""
    spent = {"spent": meter.read(seen.picture, at)} if meter else {}
    found: Sent = {}
    for metric, value, tags in samples(Report(seen.picture, (), **spent), EmitOptions(**options)):  # type: ignore[arg-type]
        found.setdefault(metric.name, []).append({**dict(tag.split(":", 1) for tag in tags), "value": value})
    return found


def of(found: Sent, name: str, *tags: str) -> list[tuple[object, ...]]:
    """Return the values of some tags and of each series of a metric."""
    return [tuple(one[tag] for tag in (*tags, "value")) for one in found.get(name, ())]


def test_gangs_that_get_on_have_a_few_series() -> None:
    """Throughput, per GPU, and progress, though the gang needs no attention; nothing else of it."""
    watched = Watched(*running("train", 2), *running("eval", 2, gpus=4), training=RULES)
    paces = [gauge("train-0", 0, 320.0), gauge("eval-1", 0, 40.0)]
    seen = watched.run(0, paces=paces, jobs=[TrainJob(TEAM, "train", 12.5, {}, NOW - 5)])
    found = sent(seen)
    assert of(found, "gang.throughput", "gang", "unit") == [("train", "tokens", 320.0), ("eval", "tokens", 40.0)]
    assert of(found, "gang.throughput_per_gpu", "gang", "unit") == [("train", "tokens", 20.0), ("eval", "tokens", 5.0)]
    assert of(found, "gang.progress", "gang") == [("train", 12.5)]
    assert "gang.members" not in found
    assert of(found, "series.dropped") == [(0,)]


def test_the_cap_holds_for_all_together() -> None:
    """Those that hold most come first; with `none` no gang has series, and none is dropped."""
    gangs = [one for size in (2, 3, 4) for one in running(f"g{size}", size)]
    watched = Watched(*gangs, training=RULES)
    seen = watched.run(0, paces=[gauge(f"g{size}-0", 0, 1.0) for size in (2, 3, 4)])
    assert of(sent(seen, max_gangs=2), "gang.throughput", "gang") == [("g4", 1.0), ("g3", 1.0)]
    assert of(sent(seen, max_gangs=2), "series.dropped") == [(1,)]
    assert of(sent(seen, max_gangs=0), "gang.throughput") == []
    none = sent(seen, per_gang="none")
    assert (of(none, "gang.throughput"), of(none, "series.dropped")) == ([], [(0,)])
    assert len(of(sent(seen, per_gang="all"), "gang.members", "gang")) == 3


def test_a_stalled_gang_is_told_whole() -> None:
    """It needs attention: with its members, and with the rate that shows it, 0 as such."""
    watched = Watched(*running("train", 2), training=RULES)
    watched.run(0, paces=[gauge("train-0", 0, 5.0)])
    for at in range(15, 301, 15):
        seen = watched.run(at, paces=[gauge("train-0", at, 0.0)])
    found = sent(seen)
    assert of(found, "gangs.stalled", "kube_namespace", "stall_reason") == [(TEAM, "no_progress", 1)]
    assert of(found, "gang.throughput", "unit") == [("tokens", 0.0)]
    assert of(found, "gang.members", "member_state") == [("ready", 2)]


def test_inactive_gpus_are_idle_and_cost() -> None:
    """gpus.idle, idle_total, gang.gpus_idle, idle_seconds and idle_cost have them, all by one reason."""
    watched = Watched(*running("train", 2), activity=True, inactive_after=60.0, prices=((GPU, 3.6),))
    meter = Meter(15)
    for at in range(0, 91, 15):
        samples_of = [*beats("train-0", at), *beats("train-1", at, busy=range(8))]
        found = sent(watched.run(at, beats=samples_of), meter, at)
    assert of(found, "gpus.idle", "idle_reason") == [("inactive", 8)]
    assert of(found, "gpus.idle_total") == [(8,)]
    assert of(found, "gang.gpus_idle", "gang") == [("train", 8)]
    assert of(found, "gpus.idle_seconds", "idle_reason") == [("inactive", 120)]
    # 8 GPUs x 3.60 an hour x 15 seconds.
    assert of(found, "gpus.idle_cost", "idle_reason", "gpu_resource") == [("inactive", GPU, pytest.approx(0.12))]
    assert of(found, "gangs.stalled", "stall_reason") == [("some_idle", 1)]


def test_where_a_gang_lies_is_told_beside_its_rate() -> None:
    """Domains and the least number that could hold it, also of a gang with which all is well."""
    labels = [{"rack": name} for name in "aab"]
    nodes = [node(f"n{number}", labels=label) for number, label in enumerate(labels)]
    topology = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Topology",
        "metadata": {"name": "default"},
        "spec": {"levels": [{"nodeLabel": "rack"}]},
    }
    pool = {**flavor("pool"), "spec": {"nodeLabels": {}, "topologyName": "default"}}
    group, *_ = running("train", 2)
    members = [ready(f"train-{rank}", member("train"), f"n{rank * 2}", since=7200, created=7260) for rank in (0, 1)]
    watched = Watched(*nodes, topology, pool, group, *members, training=RULES)
    found = sent(watched.run(0, paces=[gauge("train-0", 0, 5.0)]))
    assert of(found, "gang.topology_domains", "gang", "topology_level") == [("train", "rack", 2)]
    assert of(found, "gang.topology_domains_needed", "gang", "topology_level") == [("train", "rack", 1)]
