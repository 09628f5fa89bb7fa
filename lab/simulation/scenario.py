# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The files that say what a simulated cluster is, what is asked of it, and what goes wrong in it.

A scenario is a YAML file in lab/scenarios. Times are `1h30m`, `45s` or a number of seconds, those of jobs and faults
relative to the first moment that the check sees (`-20m` is before it). The fields are those of the classes below; a
field that does not exist is an error that names the nearest one.
"""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_origin, get_type_hints

import yaml

from lab.simulation.values import (
    LEVELS,
    Answer,
    Duration,
    Flag,
    Level,
    Mapped,
    Moment,
    Number,
    Numbers,
    Place,
    ScenarioError,
    Span,
    Text,
    Texts,
    Whole,
    listed,
    mapping,
    seconds,
    whole,
)

SCENARIOS: Final = Path(__file__).resolve().parent.parent / "scenarios"

_T = TypeVar("_T")
_Read = Callable[[Any, str], Any]


def _one(kind: type) -> _Read:
    return lambda value, where: take(kind, value, where)


def _all(kind: type) -> _Read:
    return lambda value, where: tuple(
        take(kind, one, f"{where}[{number}]") for number, one in enumerate(listed(value, where))
    )


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Nodes of one flavor: `blocks` x `racks` x `nodes` of them, named pool-b0-r0-n0 and so on."""

    name: Text
    nodes: Whole
    racks: Whole = 1
    blocks: Whole = 1
    gpus: Whole = 8
    product: Text = "NVIDIA-H100-80GB-HBM3"


@dataclass(frozen=True, kw_only=True)
class Queue:
    """A LocalQueue in a namespace (`name` both), and its ClusterQueue `name`-cq with its quota of GPUs by flavor."""

    name: Text
    quota: Numbers
    preempts: Flag = False


@dataclass(frozen=True, kw_only=True)
class KueueOptions:
    """Kueue's configuration: waitForPodsReady, and when a Workload is given up."""

    pods_ready_timeout: Duration = 1800.0
    recovery_timeout: Duration = 1800.0
    backoff: Duration = 60.0
    backoff_most: Duration = 3600.0
    backoff_limit: Annotated[int | None, whole] = None


@dataclass(frozen=True, kw_only=True)
class SchedulerOptions:
    """The gang scheduler's configuration: how long Permit waits, when what was turned away is tried again anyway."""

    permit_timeout: Duration = 60.0
    tries_again_after: Duration = 300.0


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """The cluster. With `topology` its flavors have one of that name: block, rack, host."""

    name: Text
    pools: Annotated[tuple[Pool, ...], _all(Pool)]
    queues: Annotated[tuple[Queue, ...], _all(Queue)]
    topology: Text = ""
    priorities: Numbers = field(default_factory=dict)
    kueue: Annotated[KueueOptions, _one(KueueOptions)] = field(default_factory=KueueOptions)
    scheduler: Annotated[SchedulerOptions, _one(SchedulerOptions)] = field(default_factory=SchedulerOptions)


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A job of `pods` x `gpus`, whose pods must run at once, for `lasts`.

    `queue` is the queue (and namespace). With `gang` it has a PodGroup and the gang scheduler places it.
    With `every` and `times` it comes so often, as name-1, name-2, ... `progress` is what it does in a second.
    With `least` its PodGroup demands only so many members, which leaves the others to luck. With `train_job` it is the
    job of a TrainJob, which tells how far it is.
    """

    name: Text
    queue: Text
    pods: Whole
    at: Duration
    lasts: Duration
    gpus: Whole = 8
    gang: Flag = False
    permit_timeout: Annotated[float | None, seconds] = None
    place: Place = None
    priority: Text = ""
    starts_in: Span = (5.0, 20.0)
    stops_in: Duration = 5.0
    grace: Duration = 30.0
    restarts: Flag = False
    kept: Duration = 300.0
    every: Duration = 0.0
    times: Whole = 1
    progress: Number = 0.0
    least: Whole = 0
    train_job: Flag = False


@dataclass(frozen=True, kw_only=True)
class PodSpec:
    """A pod of nobody: a notebook, a server. It is there from `at` for `lasts`, on `node` where one is named."""

    name: Text
    namespace: Text
    at: Duration
    lasts: Duration
    gpus: Whole = 8
    node: Text = ""


@dataclass(frozen=True, kw_only=True)
class Unlabel:
    """Nodes that lose the label of a level."""

    nodes: Texts
    level: Level


@dataclass(frozen=True, kw_only=True)
class Relabel:
    """Nodes whose label of a level becomes another one."""

    nodes: Texts
    level: Level
    to: Text


@dataclass(frozen=True, kw_only=True)
class Requota:
    """A queue whose quota becomes another one, in GPUs by flavor."""

    queue: Text
    gpus: Numbers


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Paths (their beginnings) that the servers answer with an HTTP status, or in a wrong way of `lab.http_faults`."""

    paths: Texts
    answer: Answer


@dataclass(frozen=True, kw_only=True)
class Slowness:
    """A job that gets on with a part of its usual speed."""

    job: Text
    to: Number


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something that goes wrong at a time, or is done; `until` it is mended. Exactly one of the others says what.

    `job/3` is a member of a job. The lists of nodes take names or the beginnings of names (`h100-b0-r1-`).
    `pods_refused` is a queue in whose namespace no pod of a job can be made.
    """

    at: Duration
    until: Annotated[float | None, seconds] = None
    node_lost: Text = ""
    nodes_away: Texts = ()
    cordon: Texts = ()
    unlabel: Annotated[Unlabel | None, _one(Unlabel)] = None
    relabel: Annotated[Relabel | None, _one(Relabel)] = None
    crash: Text = ""
    image_stuck: Text = ""
    stuck_terminating: Text = ""
    delete_job: Text = ""
    delete_pod: Text = ""
    touch_group: Text = ""
    lose_retry: Text = ""
    pods_refused: Text = ""
    quota: Annotated[Requota | None, _one(Requota)] = None
    refuse: Annotated[Refusal | None, _one(Refusal)] = None
    idle: Texts = ()
    slow: Annotated[Slowness | None, _one(Slowness)] = None

    @property
    def kind(self) -> str:
        """The name of the field that says what happens."""
        return next(name for name in FAULTS if getattr(self, name))


FAULTS: Final = tuple(one.name for one in fields(Fault) if one.name not in {"at", "until"})


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A cluster and its story. `before` is how long it has lived when the check sees it first.

    `fault_at` is when the fault begins that it is about (seconds after the start), None where nothing goes wrong.
    `interval` is how often the check runs. `check` are options of the check beside the addresses.
    """

    about: Text
    lasts: Duration
    cluster: Annotated[ClusterSpec, _one(ClusterSpec)]
    starts: Moment = datetime(2027, 3, 1, 6, 0, tzinfo=UTC)
    before: Duration = 1800.0
    fault_at: Annotated[float | None, seconds] = None
    interval: Duration = 15.0
    seed: Whole = 1
    jobs: Annotated[tuple[JobSpec, ...], _all(JobSpec)] = ()
    pods: Annotated[tuple[PodSpec, ...], _all(PodSpec)] = ()
    faults: Annotated[tuple[Fault, ...], _all(Fault)] = ()
    check: Mapped = field(default_factory=dict)
    name: str = ""


def take(kind: type[_T], data: object, where: str) -> _T:
    """Make one of the classes above of a mapping. Raises ScenarioError."""
    given = mapping(data, where)
    readers = {
        name: hint.__metadata__[0]
        for name, hint in get_type_hints(kind, include_extras=True).items()
        if get_origin(hint) is Annotated
    }
    known = {one.name: one for one in fields(kind) if one.name in readers}  # type: ignore[arg-type]
    for key in given:
        if key not in known:
            near = get_close_matches(str(key), known, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else f": there are {', '.join(known)}"
            msg = f"{where}: unknown key `{key}`{hint}"
            raise ScenarioError(msg)
    missing = [
        name
        for name, one in known.items()
        if name not in given and one.default is MISSING and one.default_factory is MISSING
    ]
    if missing:
        msg = f"{where}: `{missing[0]}` is missing"
        raise ScenarioError(msg)
    made = kind(**{key: readers[key](value, f"{where}.{key}") for key, value in given.items()})
    if isinstance(made, Fault) and sum(bool(getattr(made, name)) for name in FAULTS) != 1:
        msg = f"{where}: a fault has exactly one of {', '.join(FAULTS)}"
        raise ScenarioError(msg)
    return made


def parse(text: str, name: str) -> Scenario:
    """Read the text of a scenario. Raises ScenarioError."""
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        msg = f"{name}: {error}"
        raise ScenarioError(msg) from None
    found = take(Scenario, data, name)
    _check(found, name)
    return Scenario(**{**{one.name: getattr(found, one.name) for one in fields(found)}, "name": name})


_JOB_FAULTS: Final = ("crash", "image_stuck", "stuck_terminating", "delete_job", "touch_group", "lose_retry")


def _check(scenario: Scenario, name: str) -> None:
    """See whether everything that is named is there. Raises ScenarioError."""
    for one, known, where in _named(scenario):
        if one not in known:
            near = get_close_matches(one, known, n=1)
            msg = f"{name}: {where}: there is no `{one}`" + (f"; did you mean `{near[0]}`?" if near else "")
            raise ScenarioError(msg)
    jobs = [one for job in scenario.jobs for one in names(job)]
    doubles = {one for one in jobs if jobs.count(one) > 1}
    if doubles:
        msg = f"{name}: several jobs are called {', '.join(sorted(doubles))}"
        raise ScenarioError(msg)


def _named(scenario: Scenario) -> Iterator[tuple[str, list[str], str]]:
    """Yield each name that a scenario refers to, with those that there are, and where it does."""
    cluster = scenario.cluster
    pools, queues = [pool.name for pool in cluster.pools], [queue.name for queue in cluster.queues]
    jobs = [one for job in scenario.jobs for one in names(job)]
    nodes = [node for pool in cluster.pools for node in nodes_of(pool)]
    for queue in cluster.queues:
        yield from ((flavor, pools, f"quota of {queue.name}") for flavor in queue.quota)
    for job in scenario.jobs:
        yield job.queue, queues, f"queue of {job.name}"
        if job.priority:
            yield job.priority, list(cluster.priorities), f"priority of {job.name}"
        if job.place:
            yield job.place[1], list(LEVELS.values()) if cluster.topology else [], f"place of {job.name}"
    yield from ((pod.node, nodes, f"node of {pod.name}") for pod in scenario.pods if pod.node)
    for fault in scenario.faults:
        where = f"fault {fault.kind}"
        yield from ((one, jobs, where) for one in _jobs_of(fault))
        yield from ((one, queues, where) for one in _queues_of(fault))
        for one in _nodes_of(fault):
            yield one, [one] if any(node.startswith(one) for node in nodes) else nodes, where


def _jobs_of(fault: Fault) -> list[str]:
    members = [getattr(fault, fault.kind)] if fault.kind in _JOB_FAULTS else list(fault.idle)
    return [*(member.partition("/")[0] for member in members), *([fault.slow.job] if fault.slow else ())]


def _queues_of(fault: Fault) -> list[str]:
    return [name for name in (fault.quota.queue if fault.quota else "", fault.pods_refused) if name]


def _nodes_of(fault: Fault) -> list[str]:
    labels = [node for one in (fault.unlabel, fault.relabel) if one for node in one.nodes]
    return [*([fault.node_lost] if fault.node_lost else ()), *fault.nodes_away, *fault.cordon, *labels]


def nodes_of(pool: Pool) -> dict[str, tuple[int, int]]:
    """Return the nodes of a pool: their block and their rack by name."""
    return {
        f"{pool.name}-b{block}-r{rack}-n{number}": (block, rack)
        for block in range(pool.blocks)
        for rack in range(pool.racks)
        for number in range(pool.nodes)
    }


def names(job: JobSpec) -> list[str]:
    """Return the names of a job that comes several times."""
    return [f"{job.name}-{number + 1}" for number in range(job.times)] if job.times > 1 else [job.name]


def known() -> list[str]:
    """Return the names of all scenarios."""
    return sorted(path.stem for path in SCENARIOS.glob("*.yaml"))


def load(name: str) -> Scenario:
    """Read a scenario of lab/scenarios. Raises ScenarioError."""
    path = SCENARIOS / f"{name}.yaml"
    if name not in known():
        near = get_close_matches(name, known(), n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known())}"
        msg = f"no scenario {name!r}: {hint}"
        raise ScenarioError(msg)
    return parse(path.read_text(), name)
