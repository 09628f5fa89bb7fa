# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""One event after the other: what is derived of changes is what is derived of everything, after each single one.

The laws in `test_laws` turn one random cluster into another. Here a cluster lives in small steps, as a real one does:
a pod comes, changes or goes, a node loses its GPUs, a LocalQueue leads elsewhere, an object breaks, a source cannot be
read for a while, the scheduler counts, time passes. A failing life is made as short as possible.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from datadog_checks.kueue_gang.derive.deriver import Deriver, derive
from datadog_checks.kueue_gang.derive.picture import Picture
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.derive.transitions import Memory
from datadog_checks.kueue_gang.facts import BadObjectError
from datadog_checks.kueue_gang.facts.cluster import Changes, Cluster, SchedulerCount
from datadog_checks.kueue_gang.facts.pods import Toleration
from tests.model.build import (
    DEFAULT_SCHEDULER,
    GANG_SCHEDULER,
    GPU,
    LONE,
    NOW,
    SOURCES,
    TIMEOUT,
    Json,
    Seen,
    Tie,
    admission_check,
    bound,
    cluster_queue,
    cohort,
    flavor,
    job,
    local_queue,
    native_group,
    node,
    of_group,
    of_job,
    of_jobset,
    of_kubeflow,
    of_native,
    of_plain_group,
    of_slice,
    of_workload,
    permit_waiter,
    pod_group,
    podset,
    ready,
    reducers,
    taint,
    toleration,
    topology_object,
    unscheduled,
    workload,
)
from tests.model.test_laws import ADMISSIONS, KINDS, MIG, PAUSES, told, vars_of

#: Sequences in all, and in how many parts, so that they are shared by workers.
SEQUENCES, PARTS = 1000, 4

SPACES = ("blue", "green")
NODES = ("n0", "n1", "n2")
#: How a pod may be tied, and whose objects are below.
TIES = (
    LONE,
    of_group("train"),
    of_group("other"),
    of_native("train"),
    of_workload("wl"),
    of_workload("wl") + of_group("train"),
    of_workload("wl-2") + of_job("etl"),
    of_jobset("js", "main"),
    of_jobset("bare", replicas=2),
    of_kubeflow("bare"),
    of_plain_group("plain"),
    of_slice("wl-2") + of_job("etl"),
)
GPUS: tuple[int | dict[str, int], ...] = (8, 4, 0, {MIG: 2})
TAINTS: tuple[list[Json], ...] = ([], [], [taint("pool", "train")], [taint("maintenance")])
BLOCK, RACK, HOST = "example.com/block", "example.com/rack", "kubernetes.io/hostname"
LABELS: tuple[dict[str, str], ...] = (
    {BLOCK: "a", RACK: "r", HOST: "h0"},
    {BLOCK: "a", RACK: "s", HOST: "h1"},
    {BLOCK: "b", RACK: "r", HOST: "h2"},
    {BLOCK: "b", HOST: "h2"},
    {},
)
REQUESTS: tuple[Json | None, ...] = (
    None,
    {"required": RACK},
    {"preferred": BLOCK},
    {"unconstrained": True},
    {"podSetSliceRequiredTopology": RACK, "podSetSliceSize": 2},
)
ON_A_HOST: Json = {"levels": [HOST], "domains": [{"values": ["h0"], "count": 2}]}
OWNERS = (("JobSet", "js"), ("Job", "etl"), ("PyTorchJob", "train"), None)
COUNTS = (
    None,
    SchedulerCount(None, frozenset({GANG_SCHEDULER})),
    *(SchedulerCount(number, frozenset({GANG_SCHEDULER})) for number in (0, 1, 2, 5)),
    SchedulerCount(1, frozenset({GANG_SCHEDULER, DEFAULT_SCHEDULER})),
)
UNREAD = tuple(
    (source, reason)
    for source in dict(SOURCES.values())
    for reason in ("unreachable", "forbidden", "stale", "not_installed")
    if reason != "not_installed" or source not in {"pods", "nodes"}
)
RULES = (
    Rules(),
    Rules(namespaces=("blue",), topology_levels=(BLOCK, RACK)),
    Rules(exclude_namespaces=("gre*",), include_cpu_gangs=True, elastic_flavors=frozenset({"other"}), slots=((2, 4),)),
    Rules(gang_engines=frozenset({"kueue", "coscheduling"}), implicit_gangs=False),
    Rules(tolerated_taints=(Toleration("maintenance", "Exists", "", ""),), gang_schedulers=frozenset({GANG_SCHEDULER})),
    Rules(scheduler_versions=((GANG_SCHEDULER, 34), (DEFAULT_SCHEDULER, 36)), grace=15.0),
)


# --- events ----------------------------------------------------------------------------------------------------------

Event = Callable[["Life"], None]


def _put(obj: Json) -> Event:
    return lambda life: life.put(obj)


def _pods() -> st.SearchStrategy[Event]:
    def made(kind: int, name: int, tie: int, where: str, space: str, gpus: int, scheduler: str, created: int) -> Event:
        return _put(
            KINDS[kind](
                f"p{name}",
                TIES[tie],
                where,
                namespace=space,
                gpus=GPUS[gpus],
                scheduler=scheduler,
                created=(600, 280, 100)[created],
            )
        )

    return st.builds(
        made,
        st.integers(0, len(KINDS) - 1),
        st.integers(0, 9),
        st.integers(0, len(TIES) - 1),
        st.sampled_from((*NODES, "gone")),
        st.sampled_from(SPACES),
        st.integers(0, len(GPUS) - 1),
        st.sampled_from((GANG_SCHEDULER, DEFAULT_SCHEDULER)),
        st.integers(0, 2),
    )


def _nodes() -> st.SearchStrategy[Event]:
    def made(
        name: str, gpus: int, status: str, taints: int, since: int, labels: int, pool: str, *, cordoned: bool
    ) -> Event:  # fmt: skip
        return _put(
            node(
                name,
                GPUS[gpus],
                ready_status=status,
                since=since,
                cordoned=cordoned,
                taints=TAINTS[taints],
                labels={"pool": pool, **LABELS[labels]},
            )
        )

    return st.builds(
        made,
        st.sampled_from(NODES),
        st.integers(0, len(GPUS) - 1),
        st.sampled_from(("True", "True", "False", "Unknown", "")),
        st.integers(0, len(TAINTS) - 1),
        st.sampled_from((30, 300)),
        st.integers(0, len(LABELS) - 1),
        st.sampled_from(("train", "train", "spare")),
        cordoned=st.booleans(),
    )


def _workloads() -> st.SearchStrategy[Event]:
    def made(
        name: str,
        space: str,
        owner: int,
        size: int,
        admission: int,
        finished: int | None,
        queue: str,
        placed: tuple[Json | None, Json | None],
    ) -> Event:
        request, assignment = placed
        made_of = podset(
            size,
            tie=of_group("other") if owner == 2 else LONE,
            request=request,
            assignment=assignment,
            flavor="gpu" if assignment else "other",
        )
        conditions = ADMISSIONS[admission]
        return _put(
            workload(name, OWNERS[owner], made_of, namespace=space, finished=finished, queue=queue, **conditions)
        )

    return st.builds(
        made,
        st.sampled_from(("wl", "wl-2", "plain")),
        st.sampled_from(SPACES),
        st.integers(0, len(OWNERS) - 1),
        st.integers(1, 4),
        st.integers(0, len(ADMISSIONS) - 1),
        st.sampled_from((None, None, 50)),
        st.sampled_from(("lq", "lq-2", "")),
        st.tuples(st.sampled_from(REQUESTS), st.sampled_from((None, ON_A_HOST))),
    )


def _small_objects() -> st.SearchStrategy[Event]:
    """Return groups, Jobs, queues and flavors."""
    space, number = st.sampled_from(SPACES), st.integers(0, 4)
    name = st.sampled_from(("train", "other"))
    return st.one_of(
        st.builds(lambda name, space, least: _put(pod_group(name, least, namespace=space)), name, space, number),
        st.builds(
            lambda name, space, least, once: _put(native_group(name, least or None, namespace=space, once=once)),
            name,
            space,
            number,
            st.sampled_from(("", "PodGroupScheduled")),
        ),
        st.builds(
            lambda space, size, *, indexed: _put(job("etl", size, 4, indexed=indexed, namespace=space)),
            space,
            number,
            indexed=st.booleans(),
        ),
        st.builds(
            lambda name, to, space: _put(local_queue(name, to, space)),
            st.sampled_from(("lq", "lq-2")),
            st.sampled_from(("cq", "cq-2")),
            space,
        ),
        st.builds(
            lambda name, pool, topology, *, tolerates: _put(
                flavor(name, {"pool": pool}, [toleration("pool", "train")] if tolerates else [], topology)
            ),
            st.sampled_from(("gpu", "other")),
            st.sampled_from(("train", "train", "spare")),
            st.sampled_from(("", "dc", "dc", "flat")),
            tolerates=st.booleans(),
        ),
        st.builds(
            lambda name, levels: _put(topology_object(name, *levels)),
            st.sampled_from(("dc", "flat")),
            st.sampled_from(((BLOCK, RACK, HOST), (RACK,), ())),
        ),
        st.builds(
            lambda name, flavor, amount, used, checks: _put(
                cluster_queue(name, {flavor: amount}, used={flavor: (used, used // 2)}, checks=checks)
            ),
            st.sampled_from(("cq", "cq-2")),
            st.sampled_from(("gpu", "other")),
            st.integers(0, 100),
            number,
            st.sampled_from((None, {"grow": ()}, {"grow": ("other",)})),
        ),
        st.builds(lambda amount: _put(cohort("all", {"gpu": amount})), number),
        st.builds(
            lambda controller: _put(admission_check("grow", controller)),
            st.sampled_from(("kueue.x-k8s.io/provisioning-request", "kueue.x-k8s.io/multikueue")),
        ),
    )


def _others() -> st.SearchStrategy[Event]:
    """Return what happens to objects that are there, to sources, to the scheduler, and to the time."""
    which = st.integers(0, 99)
    return st.one_of(
        st.builds(lambda number: lambda life: life.take_away(number), which),
        st.builds(lambda number: lambda life: life.take_away(number), which),
        st.builds(lambda number: lambda life: life.break_one(number), which),
        st.builds(lambda row: lambda life: life.unread.update([row]), st.sampled_from(UNREAD)),
        st.just(lambda life: life.unread.clear()),
        st.just(lambda life: life.unread.clear()),
        st.builds(lambda count: lambda life: setattr(life, "count", count), st.sampled_from(COUNTS)),
        st.builds(lambda seconds: lambda life: life.pass_time(seconds), st.sampled_from(PAUSES)),
        st.builds(lambda seconds: lambda life: life.pass_time(seconds), st.sampled_from(PAUSES)),
    )


def _ready(name: str, tie: Tie, where: str, space: str = "blue") -> Json:
    return ready(name, tie, where, namespace=space, scheduler=GANG_SCHEDULER)


#: A cluster at work, from which half of the lives begin: three gangs that run and one that waits.
AT_WORK = (
    *(node(name, 32, labels={"pool": "train", **LABELS[number]}) for number, name in enumerate(NODES)),
    topology_object("dc", BLOCK, RACK, HOST),
    flavor("gpu", {"pool": "train"}, topology="dc"),
    cluster_queue("cq", {"gpu": 200}),
    pod_group("train", 2, namespace="blue"),
    _ready("p0", of_group("train"), "n0"),
    _ready("p1", of_group("train"), "n1"),
    workload("wl", ("JobSet", "js"), podset(2, request={"required": RACK}), namespace="blue", admitted=500),
    _ready("p2", of_workload("wl"), "n0"),
    _ready("p3", of_workload("wl"), "n2"),
    native_group("train", 2, namespace="green"),
    _ready("p0", of_native("train"), "n1", "green"),
    _ready("p1", of_native("train"), "n2", "green"),
    pod_group("other", 2, namespace="green"),
    permit_waiter("p2", of_group("other"), "n0", namespace="green", scheduler=GANG_SCHEDULER),
    unscheduled("p3", of_group("other"), TIMEOUT, "n1", namespace="green", scheduler=GANG_SCHEDULER),
    local_queue("lq", "cq", "blue"),
)
BEGINNINGS: st.SearchStrategy[tuple[Json, ...]] = st.sampled_from(((), AT_WORK))
EVENTS = st.lists(
    st.one_of(_pods(), _pods(), _pods(), _nodes(), _workloads(), _small_objects(), _others()), min_size=8, max_size=40
)


# --- a life ----------------------------------------------------------------------------------------------------------


#: (source, namespace, name) of an object.
Name = tuple[str, str, str]
#: What is always there: how an empty cluster looks is not a matter of changes.
ANCHORS = (bound("anchor", LONE, "n9", namespace="blue", gpus=1), node("n9"))


class Life:
    """A cluster, what is derived of its changes, and what is derived of it whole."""

    def __init__(self, rules: Rules, beginning: tuple[Json, ...] = ()) -> None:
        """Begin with these objects."""
        self.rules = rules
        self.now = NOW
        self.unread: dict[str, str] = {}
        self.count: SchedulerCount | None = None
        self._reduce = reducers(rules)
        self._objects: dict[Name, Json] = {}
        self._facts: dict[Name, Any] = {}
        self._deriver = Deriver(rules)
        self._memory = Memory()
        for obj in (*ANCHORS, *beginning):
            self.put(obj)

    def put(self, obj: Json) -> None:
        """Create or replace an object."""
        source, _ = SOURCES[obj["apiVersion"].split("/")[0], obj["kind"]]
        self._objects[source, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]] = obj

    def take_away(self, number: int) -> None:
        """Delete an object."""
        if key := self._choose(number):
            del self._objects[key]

    def break_one(self, number: int) -> None:
        """Let an object be one that nobody can understand."""
        if key := self._choose(number):
            self._objects[key] = {**self._objects[key], "spec": 5, "status": 5}

    def _choose(self, number: int) -> Name | None:
        keys = sorted(key for key, obj in self._objects.items() if obj not in ANCHORS)
        return keys[number % len(keys)] if keys else None

    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    def look(self) -> Picture:
        """Derive in both ways, and compare."""
        changes, cluster = self._read()
        picture = self._deriver.apply(changes, self.now)
        whole, memory = derive(cluster, self.rules, self._memory, self.now)
        mine = self._deriver.memory()
        assert told(Seen(picture, mine)) == told(Seen(whole, memory))
        assert vars_of(picture.summary) == vars_of(whole.summary)
        assert (picture.now, picture.free_known, picture.pods_known) == (whole.now, whole.free_known, whole.pods_known)
        assert (picture.nodes is None) == (whole.nodes is None)
        assert mine.complete == memory.complete
        self._memory = memory
        return picture

    def _read(self) -> tuple[Changes, Cluster]:
        before, self._facts = self._facts, {}
        unreadable: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for (source, space, name), obj in self._objects.items():
            if source in self.unread:
                continue
            try:
                fact = self._reduce[source](obj)
            except (BadObjectError, AttributeError, TypeError):
                unreadable[source].add((space, name))
                continue
            if fact is not None:
                key = source, space, name
                # A write that gives the same fact leaves the old record where it is.
                self._facts[key] = before[key] if before.get(key) == fact else fact
        changed: dict[str, Any] = defaultdict(list)
        whole: dict[str, Any] = defaultdict(list)
        fields = dict(SOURCES.values())
        for key in {**before, **self._facts}:
            old, new = before.get(key), self._facts.get(key)
            if old is not new and fields[key[0]] in Changes.__dataclass_fields__:
                changed[fields[key[0]]].append((old, new))
        for key, fact in self._facts.items():
            whole[fields[key[0]]].append(fact)
        said: dict[str, Any] = {
            "scheduler": self.count,
            "unread": dict(self.unread),
            "unreadable": {source: frozenset(names) for source, names in unreadable.items()},
        }
        return Changes(**changed, **said), Cluster(**whole, **said)


@pytest.mark.parametrize("part", range(PARTS))
def test_after_each_event_the_picture_is_that_of_the_cluster(part: int):
    """1,000 sequences of 8 to 40 events, with every kind of option; the picture and the memory are held each time."""

    @seed(part)
    @settings(
        max_examples=SEQUENCES // PARTS,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(st.sampled_from(RULES), BEGINNINGS, EVENTS)
    def live(rules: Rules, beginning: tuple[Json, ...], events: list[Event]):
        life = Life(rules, beginning)
        life.look()
        for event in events:
            event(life)
            life.look()

    live()


@pytest.mark.parametrize("unread", [{}, {"pods": "forbidden"}])
def test_a_cluster_without_pods_is_known(unread: dict[str, str]):
    """A cluster in which there is nothing was read all the same; when its pods cannot be read, that is known too."""
    deriver = Deriver(Rules())
    picture = deriver.apply(Changes(), NOW)
    assert (picture.pods_known, picture.free_known, picture.nodes) == (True, True, {})
    picture = deriver.apply(Changes(unread=unread), NOW + 15)
    assert picture.pods_known is not bool(unread)


def test_the_events_reach_every_state():
    """Guards the law above: the lives see gangs of every engine, and GPUs of every use."""
    states: set[str | None] = set()
    engines: set[str] = set()
    uses: set[str] = set()
    verdicts: set[str] = set()
    told_of: set[str] = set()

    @seed(1)
    @settings(max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(BEGINNINGS, EVENTS)
    def live(beginning: tuple[Json, ...], events: list[Event]):
        life = Life(RULES[0], beginning)
        for event in events:
            event(life)
            picture = life.look()
            states.update(gang.state for gang in picture.gangs)
            engines.update(gang.queue.engine for gang in picture.gangs)
            uses.update(use for _, resource, use in picture.gpus.allocated if resource == GPU)
            verdicts.update(gang.placement.verdict for gang in picture.gangs if gang.placement)
            told_of.update(name for name in ("nominal", "without_pods", "unbacked") if getattr(picture.quotas, name))

    live()
    assert engines == {"coscheduling", "kubernetes", "kueue", "job"}
    assert {"running", "partial", "waiting", "rejected", "queued", "orphan"} <= states
    assert uses == {"busy", "idle", "other"}
    assert verdicts == {"", "match", "violation", "unobservable"}
    assert told_of == {"nominal", "without_pods", "unbacked"}
