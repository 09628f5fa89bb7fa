# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Ten thousand broken objects: a reducer refuses what it cannot read, and what it lets through breaks no picture.

Objects of every kind, full of the fields that are read, are damaged at random: a key is gone, a value has another type,
is null, negative, huge, endless or nested, a time is none, a text is none of those that are known. The random numbers
are seeded, so that a failure is found again.
"""

import copy
import json
import math
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from datadog_checks.kueue_gang.derive.deriver import Deriver, derive
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.derive.transitions import Memory
from datadog_checks.kueue_gang.facts import BadObjectError
from datadog_checks.kueue_gang.facts.cluster import Changes, Cluster
from tests.model.build import (
    ELASTIC_GATE,
    GPU,
    LONE,
    NOW,
    SOURCES,
    TIMEOUT,
    Json,
    Seen,
    bound,
    condition,
    container,
    crashing,
    failed_scheduling,
    flavor,
    gated,
    job,
    local_queue,
    native_group,
    node,
    of_group,
    of_job,
    of_jobset,
    of_kubeflow,
    of_lws,
    of_native,
    of_plain_group,
    of_ray,
    of_slice,
    of_workload,
    permit_waiter,
    pod_group,
    podset,
    ready,
    reducers,
    sidecar,
    stamp,
    succeeded,
    taint,
    terminating,
    toleration,
    unscheduled,
    workload,
)

MUTATIONS = 10_000
MAX_DEPTH = 20
#: Objects that are damaged before a picture is drawn of all that was read.
BATCH = 100
#: What a reducer may raise; the reader of a source counts the object and goes on with the next one.
REFUSALS = (
    BadObjectError,
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    RecursionError,
)
RULES = Rules(labels=("team-name",))


def cluster() -> list[Json]:
    """Return valid objects of every kind, with every field that anything reads."""
    team = {"team-name": "vision"}
    nested = {
        "containers": [container(2), sidecar(1)],
        "initContainers": [sidecar(1), container({GPU: 4}, "init")],
        "overhead": {GPU: "1"},
        "tolerations": [toleration("pool", "train"), toleration(operator="Exists")],
    }
    terms = [
        {
            "matchExpressions": [
                {"key": "pool", "operator": "In", "values": ["train"]},
                {"key": "gen", "operator": "Gt", "values": ["4"]},
            ]
        },
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    picky = {"nodeSelector": {"pool": "train"}, "affinity": {"nodeAffinity": required}}
    slices = {"kueue.x-k8s.io/workload-slice-name": "el-wl"}
    packed = workload(
        "wl",
        ("JobSet", "js"),
        podset(3, "main", assigned=2, minimum=1, reclaimed=1, tie=of_group("train")),
        podset(1, "head", gate=ELASTIC_GATE),
        admitted=400,
        pods_ready=("False", 100, "WaitForRecovery"),
        requeues=2,
        priority_class="urgent",
        labels=team,
        active=True,
    )
    packed["status"]["requeueState"]["requeueAt"] = stamp(-60)
    timeouts = {"reason": "PodsReadyTimeout", "underlyingCause": "WaitForStart", "count": 3}
    packed["status"]["schedulingStats"] = {"evictions": [timeouts, {"reason": "Preempted", "count": 1}]}
    packed["status"]["admissionChecks"] = [{"name": "capacity", "state": "Pending", "message": "asked"}]
    packed["spec"]["podSets"][0]["topologyRequest"] = {
        "required": "block",
        "podSetSliceRequiredTopology": "kubernetes.io/hostname",
        "podSetSliceSize": 2,
        "podsetSliceRequiredTopologyConstraints": [{"topology": "block", "size": 4}],
    }
    packed["spec"]["podSets"][0]["template"]["spec"].update(picky)
    packed["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] = {
        "levels": ["block", "kubernetes.io/hostname"],
        "slices": [
            {
                "domainCount": 2,
                "valuesPerLevel": [{"universal": "b1"}, {"individual": {"prefix": "n", "roots": ["0", "1"]}}],
                "podCounts": {"individual": [1, 1]},
            }
        ],
    }
    listed = workload(
        "old-wl",
        ("PyTorchJob", "pt"),
        podset(2),
        admitted=400,
        version="v1beta1",
        priority_class="urgent",
        evicted=("False", 500, "QuotaReserved"),
        requeued=("True", 500, "BackoffFinished"),
    )
    listed["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] = {
        "levels": ["block"],
        "domains": [{"values": ["b1"], "count": 2}],
    }
    # One that waits for a place: what it asks for is put together with the labels of its flavor.
    waiting = workload("waits", ("JobSet", "waits"), podset(2, request={"required": "block"}))
    waiting["status"]["conditions"].append(
        condition("QuotaReserved", "False", 300, "Pending", 'topology "racks" allows to fit only 1 out of 2 pod(s)')
    )
    usage = [{"name": "gpu", "resources": [{"name": GPU, "total": "8", "borrowed": "2"}]}]
    return [
        node("n0", labels={"pool": "train"}, taints=[taint("pool", "train"), taint(GPU)]),
        node("n1", {GPU: 8, "nvidia.com/mig-1g.10gb": 7}, ready_status="Unknown", since=300, cordoned=True),
        pod_group("train", 3, labels=team, min_gpus=24, phase="Running", running=2),
        native_group("native", 2, once="PodGroupScheduled"),
        packed,
        listed,
        workload("el-wl", ("Job", "el"), podset(4, minimum=2), admitted=400, annotations=slices),
        workload("lws-wl", ("LeaderWorkerSet", "lws"), podset(2), controls=False, admitted=400),
        workload("grp", ("Pod", "p0"), podset(2), controls=False, reserved=400),
        workload("ray-wl", ("RayCluster", "rc"), podset(1, "head"), podset(1, "workers"), admitted=400),
        job("el", 4, 4, elastic=True),
        local_queue("lq", "cq"),
        flavor("gpu", {"pool": "train"}, [toleration("pool", "train")], topology="racks"),
        waiting,
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": "cq"},
            "spec": {
                "cohortName": "all",
                "stopPolicy": "Hold",
                "admissionChecks": ["capacity"],
                "admissionChecksStrategy": {"admissionChecks": [{"name": "capacity", "onFlavors": ["gpu"]}]},
                "resourceGroups": [
                    {
                        "coveredResources": [GPU],
                        "flavors": [
                            {
                                "name": "gpu",
                                "resources": [
                                    {"name": GPU, "nominalQuota": "16", "borrowingLimit": "8", "lendingLimit": 4}
                                ],
                            }
                        ],
                    }
                ],
            },
            "status": {
                "conditions": [{"type": "Active", "status": "True", "reason": "Ready"}],
                "flavorsReservation": usage,
                "flavorsUsage": usage,
            },
        },
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Cohort",
            "metadata": {"name": "all"},
            "spec": {
                "parentName": "root",
                "resourceGroups": [{"flavors": [{"name": "gpu", "resources": [{"name": GPU, "nominalQuota": 4}]}]}],
            },
        },
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "AdmissionCheck",
            "metadata": {"name": "capacity"},
            "spec": {"controllerName": "kueue.x-k8s.io/provisioning-request"},
        },
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Topology",
            "metadata": {"name": "racks"},
            "spec": {"levels": [{"nodeLabel": "block"}, {"nodeLabel": "kubernetes.io/hostname"}]},
        },
        failed_scheduling("train-0", TIMEOUT, 100, 80),
        ready(
            "w0",
            of_group("train") + of_workload("wl"),
            "n0",
            spec=nested,
        ),
        permit_waiter("w1", of_group("train") + of_workload("wl"), "n0"),
        unscheduled("w2", of_group("train"), TIMEOUT, "n1", spec=picky),
        bound("w3", of_native("native"), "n1"),
        crashing("w4", of_native("native"), "n0"),
        succeeded("w5", of_jobset("bare", replicas=2), "n0"),
        terminating(ready("w6", of_jobset("bare", job=1, replicas=2), "n1")),
        gated("w7", of_plain_group("grp", annotated=True, serving=True, role="main")),
        ready("w8", of_kubeflow("pt", "main"), "n0"),
        ready("w9", of_lws("lws", 0, 2) + of_plain_group("lws-wl"), "n0"),
        ready("w10", of_ray("rc", "headgroup"), "n0"),
        ready("w11", of_slice("el-wl") + of_job("el"), "gone"),
        ready(
            "scheduler",
            LONE,
            "n0",
            spec={"containers": [{"name": "s", "image": "registry.k8s.io/kube-scheduler:v1.36.2"}]},
        ),
    ]


def _deep(levels: int = 2000) -> Json:
    nested: Json = {}
    for _ in range(levels):
        nested = {"metadata": nested}
    return nested


#: What a value is replaced by.
DAMAGE: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, -(2**63), 2**31, 2**63, 10**30, 10**400, 0.5, -0.0, 1e308, float("inf"), float("nan"),
    "", " ", "0", "-1", "8", "1e9", "999999999999", "1.5", "500m", "8Gi", "nan", "inf", "True", "Unknown", "Running",
    "Dancing", "\x00", "\ud800", "x" * 100_000, "9" * 5_000,
    "2027-01-15T12:00:00Z", "2027-13-45T99:99:99Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999-23:59",
    "2027", "now",
    [], [None], [[]], [{}], ["x"], [1, 2], [[[[[]]]]], {}, {"": ""}, {"type": "Ready", "status": "True"}, {GPU: "8"},
    {GPU: "-8"}, {GPU: 10**20}, {"name": {}}, {"name": []},
    _deep(),
)  # fmt: skip


def _places(value: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value inside an object, down to where no real object goes."""
    if len(where) >= MAX_DEPTH:
        return
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*where, key)
        yield from _places(child, (*where, key))


def _damage(obj: Json, chance: random.Random) -> Json:
    """Return a copy with one to three values damaged; what tells its kind is left alone."""
    damaged = copy.deepcopy(obj)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        places = [place for place in _places(damaged) if place[0] not in {"apiVersion", "kind"}]
        if not places:
            break
        *path, last = chance.choice(places)
        holder: Any = damaged
        for key in path:
            holder = holder[key]
        action = chance.random()
        if action < 0.2:
            del holder[last]
        elif action < 0.3 and isinstance(holder, dict):
            holder[chance.choice(("unknown", "", "status", "metadata", "spec"))] = chance.choice(DAMAGE)
        elif action < 0.4 and isinstance(holder[last], list):
            holder[last] = holder[last] * 50
        else:
            holder[last] = copy.copy(chance.choice(DAMAGE))
    return damaged


def _reduce(obj: Json, reduce: dict[str, Any], refused: Counter[str]) -> Any:
    source, _ = SOURCES[obj["apiVersion"].split("/")[0], obj["kind"]]
    try:
        return reduce[source](obj)
    except REFUSALS as refusal:
        refused[type(refusal).__name__] += 1
        return None


def _check(seen: Seen) -> None:
    """Look at all that a picture tells: amounts are whole and not negative, moments are numbers, tags are texts."""
    picture = seen.picture
    amounts: list[Any] = [
        *picture.gpus.allocated.values(),
        *picture.gpus.idle.values(),
        *picture.gpus.reserved.values(),
    ]
    moments: list[Any] = [*seen.memory.attention.values()]
    tags: list[Any] = []
    for view in picture.gangs:
        tags += [*view.key, view.name, view.owner_kind, view.priority_class]
        tags += [view.queue.namespace, view.queue.local_queue, view.queue.cluster_queue, view.queue.engine]
        for found in (view.requested, view.allocated, view.idle, view.reserved, view.classes):
            amounts += found.values()
        amounts += [view.missing, view.required or 0]
        moments += [moment for moment in (view.since, view.permit_oldest) if moment is not None]
    assert all(type(amount) is int and amount >= 0 for amount in amounts)
    assert all(math.isfinite(moment) for moment in moments)
    assert all(type(tag) is str for tag in tags)


def test_the_objects_are_valid():
    """Undamaged, every object is read, each kind makes a fact, and the picture holds gangs of every engine."""
    reduce, refused = reducers(RULES), Counter[str]()
    facts = _facts(cluster(), reduce, refused)
    assert not refused
    assert {len(found) > 0 for found in facts.values()} == {True}
    assert set(facts) == {sequence for _, sequence in SOURCES.values()}
    picture, _ = derive(Cluster(**facts), RULES, Memory(), NOW)
    assert {view.queue.engine for view in picture.gangs} == {"coscheduling", "kubernetes", "kueue", "job"}


def _facts(objects: list[Json], reduce: dict[str, Any], refused: Counter[str]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for obj in objects:
        fact = _reduce(obj, reduce, refused)
        if fact is not None:
            _, sequence = SOURCES[obj["apiVersion"].split("/")[0], obj["kind"]]
            facts.setdefault(sequence, []).append(fact)
    return facts


@pytest.mark.parametrize("seed", range(10))
def test_damaged_objects(seed: int):
    """A reducer gives a fact, nothing, or a refusal, and quickly; a picture of what came through is always drawn.

    Each batch stands beside the undamaged objects, so that broken facts meet whole ones, and the memory of one picture
    goes into the next.
    """
    chance, refused, memory = random.Random(seed), Counter[str](), Memory()
    whole = cluster()
    began = time.monotonic()
    for _ in range(MUTATIONS // 10 // BATCH):
        reduce = reducers(RULES)
        damaged = [_damage(chance.choice(whole), chance) for _ in range(BATCH)]
        facts = _facts([*whole, *damaged], reduce, refused)
        for sequence in facts.values():
            chance.shuffle(sequence)
        picture, memory = derive(Cluster(**facts), RULES, memory, NOW)
        _check(Seen(picture, memory))
    assert refused, "nothing was refused, so nothing was damaged"
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("obj", cluster(), ids=lambda obj: f"{obj['kind']}-{obj['metadata']['name']}")
def test_every_value_of_another_type(obj: Json):
    """Each single value of each object, one after another, replaced by a value of each other JSON type."""
    reduce, refused = reducers(RULES), Counter[str]()
    whole = _facts(cluster(), reduce, refused)
    for place in list(_places(obj)):
        if place[0] in {"apiVersion", "kind"}:
            continue
        for value in (None, True, 7, -7, 0.5, "text", [], ["text"], {}, {"key": "text"}):
            damaged = copy.deepcopy(obj)
            holder: Any = damaged
            for key in place[:-1]:
                holder = holder[key]
            holder[place[-1]] = value
            fact = _reduce(damaged, reduce, refused)
            if fact is not None:
                _, sequence = SOURCES[obj["apiVersion"].split("/")[0], obj["kind"]]
                picture, memory = derive(Cluster(**{**whole, sequence: [*whole[sequence], fact]}), RULES, Memory(), NOW)
                _check(Seen(picture, memory))
    assert refused


@pytest.mark.parametrize("grace", ["60", "nan", "inf", -30, True, [], {}])
def test_a_grace_that_is_no_number_of_seconds_is_refused(grace: Any):
    """A clock is made of deletionGracePeriodSeconds: what is no whole number of seconds must not become one."""
    pod = terminating(ready("w0", of_group("train"), "n0"))
    pod["metadata"]["deletionGracePeriodSeconds"] = grace
    refused = Counter[str]()
    assert _reduce(pod, reducers(RULES), refused) is None
    assert sum(refused.values()) == 1


@pytest.mark.parametrize("value", [7, None, ["train"], {"a": "b"}])
def test_a_flavor_whose_labels_are_no_texts_is_refused(value: Any):
    """What is compared with the labels of nodes, and goes into sets, is text: one bad object costs that object."""
    refused = Counter[str]()
    assert _reduce(flavor("gpu", {"pool": value}), reducers(RULES), refused) is None
    assert refused == {"BadObjectError": 1}


@pytest.mark.parametrize(
    "stats",
    [
        5,
        "many",
        [],
        {"evictions": 5},
        {"evictions": {"reason": "Preempted"}},
        {"evictions": ["Preempted"]},
        {"evictions": [{"reason": 5, "count": 1}]},
        {"evictions": [{"reason": "Preempted", "count": "1"}]},
        {"evictions": [{"reason": "Preempted", "count": -1}]},
        {"evictions": [{"reason": "Preempted", "count": 1.5}]},
        {"evictions": [{"reason": ["Preempted"], "underlyingCause": {}, "count": True}]},
    ],
)
def test_bad_counts_of_evictions_cost_that_workload_only(stats: Any):
    """A Workload whose schedulingStats nobody can read is left out; the one beside it is told."""
    refused = Counter[str]()
    bad, good = (workload(name, ("JobSet", name), podset(2), admitted=300) for name in ("bad", "good"))
    bad["status"]["schedulingStats"] = stats
    facts = [fact for obj in (bad, good) if (fact := _reduce(obj, reducers(RULES), refused)) is not None]
    assert [fact.name for fact in facts] == ["good"]
    assert sum(refused.values()) == 1


def test_a_huge_count_of_evictions_is_a_number():
    """The most that Kueue can count takes no time in proportion to it."""
    most = 2**31 - 1
    obj = workload("wl", ("JobSet", "js"), podset(2), admitted=300, evicted=("True", 50, "Preempted"))
    reduce, deriver = reducers(RULES)["workloads.kueue.x-k8s.io"], Deriver(RULES)
    before = reduce(obj)
    obj["status"]["schedulingStats"] = {"evictions": [{"reason": "Preempted", "count": most}]}
    after = reduce(obj)
    deriver.apply(Changes(workloads=[(None, before)]), NOW)
    evicted = deriver.apply(Changes(workloads=[(before, after)]), NOW + 15).happened.evicted
    assert sum(evicted.values()) == most


@pytest.mark.parametrize("value", [7, {}])
@pytest.mark.parametrize(
    "obj",
    [
        pod_group("train", 2, labels={}),
        workload("wl", ("JobSet", "js"), podset(2), labels={}),
        job("el", 4, 4),
        ready("w0", of_group("train"), "n0"),
    ],
    ids=lambda obj: obj["kind"],
)
def test_a_label_that_is_no_text_is_no_tag(obj: Json, value: Any):
    """A label that the user wants as a tag is a text, or the object is refused, or the label is left out."""
    broken = copy.deepcopy(obj)
    broken["metadata"]["labels"]["team-name"] = value
    fact = _reduce(broken, reducers(RULES), Counter[str]())
    assert fact is None or all(type(tag) is str for _, tag in fact.labels)


def test_a_refusal_never_quotes_the_object():
    """The text of a refusal says which field and why, and never holds what the field held."""
    secret = "s3cret-" * 5
    reduce = reducers(RULES)
    for obj in cluster():
        source, _ = SOURCES[obj["apiVersion"].split("/")[0], obj["kind"]]
        for place in list(_places(obj)):
            if place[0] in {"apiVersion", "kind"}:
                continue
            for value in (secret, [secret], {secret: secret}):
                damaged = copy.deepcopy(obj)
                holder: Any = damaged
                for key in place[:-1]:
                    holder = holder[key]
                holder[place[-1]] = value
                try:
                    reduce[source](damaged)
                except BadObjectError as refusal:
                    assert "s3cret" not in str(refusal)
                except REFUSALS:
                    continue


def test_facts_of_damaged_objects_are_of_json():
    """The objects that are damaged are JSON to begin with: what a server could send."""
    assert json.loads(json.dumps(cluster())) == cluster()
