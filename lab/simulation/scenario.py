# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The files that say what a simulated cluster is, what is asked of it, and what goes wrong in it.

A scenario is a YAML file in lab/scenarios. Times are `1h30m`, `45s` or a number of seconds, those of jobs and faults
relative to the first moment that the check sees (`-20m` is before it). The fields are those of the classes below; a
field that does not exist is an error that names the nearest one.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from lab.simulation.state import BLOCK, HOSTNAME, RACK

SCENARIOS: Final = Path(__file__).resolve().parent.parent / "scenarios"

_DURATION: Final = re.compile(r"(?P<sign>-?)(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m)?(?:(?P<s>\d+)s)?")
#: What a level is called in a scenario.
LEVELS: Final = {"block": BLOCK, "rack": RACK, "host": HOSTNAME}

_T = TypeVar("_T")
_Read = Callable[[Any, str], Any]


class ScenarioError(ValueError):
    """A scenario that cannot be understood; the text says where and why."""


def seconds(value: object, where: str) -> float:
    """Read a duration."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None or not any(match[unit] for unit in "hms"):
        msg = f"{where}: {value!r} is no duration like 1h30m, 45s or 90"
        raise ScenarioError(msg)
    total = sum(int(match[unit] or 0) * factor for unit, factor in (("h", 3600), ("m", 60), ("s", 1)))
    return float(-total if match["sign"] else total)


def _span(value: object, where: str) -> tuple[float, float]:
    """Read a duration, or the least and the most of one."""
    ends = value if isinstance(value, list) else [value, value]
    if len(ends) != 2:  # noqa: PLR2004 - the least and the most
        msg = f"{where}: {value!r} is neither a duration nor two"
        raise ScenarioError(msg)
    return seconds(ends[0], where), seconds(ends[1], where)


def _typed(kind: type[_T], name: str) -> Callable[[object, str], _T]:
    def read(value: object, where: str) -> _T:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            msg = f"{where}: {value!r} is no {name}"
            raise ScenarioError(msg)
        return value

    return read


_text = _typed(str, "text")
_whole = _typed(int, "whole number")
_flag = _typed(bool, "yes or no")
_mapping = _typed(dict, "mapping")
_list = _typed(list, "list")


def _number(value: object, where: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        msg = f"{where}: {value!r} is no number"
        raise ScenarioError(msg)
    return float(value)


def _numbers(value: object, where: str) -> dict[str, int]:
    return {_text(key, where): _whole(one, where) for key, one in _mapping(value, where).items()}


def _texts(value: object, where: str) -> tuple[str, ...]:
    return tuple(_text(one, where) for one in (value if isinstance(value, list) else [value]))


def _place(value: object, where: str) -> tuple[str, str]:
    """Read `{required: rack}`: how a job is to be placed."""
    found = _mapping(value, where)
    if len(found) != 1 or not found.keys() <= {"required", "preferred"} or not set(found.values()) <= LEVELS.keys():
        msg = f"{where}: {value!r} is not required or preferred, with one of {', '.join(LEVELS)}"
        raise ScenarioError(msg)
    return next((how, LEVELS[level]) for how, level in found.items())


def _moment(value: object, where: str) -> datetime:
    if not isinstance(value, datetime):
        msg = f"{where}: {value!r} is no time like 2027-03-01T06:00:00Z"
        raise ScenarioError(msg)
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _as(read: _Read, default: Any = MISSING, factory: Any = MISSING) -> Any:  # noqa: ANN401 - as dataclasses.field
    if factory is not MISSING:
        return field(default_factory=factory, metadata={"read": read})
    return field(default=default, metadata={"read": read})


def _one(kind: Callable[[], type]) -> _Read:
    return lambda value, where: take(kind(), value, where)


def _all(kind: Callable[[], type]) -> _Read:
    return lambda value, where: tuple(
        take(kind(), one, f"{where}[{number}]") for number, one in enumerate(_list(value, where))
    )


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Nodes of one flavor: `blocks` x `racks` x `nodes` of them, named pool-b0-r0-n0 and so on."""

    name: str = _as(_text)
    nodes: int = _as(_whole)
    racks: int = _as(_whole, 1)
    blocks: int = _as(_whole, 1)
    gpus: int = _as(_whole, 8)
    product: str = _as(_text, "NVIDIA-H100-80GB-HBM3")


@dataclass(frozen=True, kw_only=True)
class Queue:
    """A LocalQueue in a namespace (`name` both), and its ClusterQueue `name`-cq with its quota of GPUs by flavor."""

    name: str = _as(_text)
    quota: dict[str, int] = _as(_numbers)
    preempts: bool = _as(_flag, False)


@dataclass(frozen=True, kw_only=True)
class KueueOptions:
    """Kueue's configuration: waitForPodsReady, and when a Workload is given up."""

    pods_ready_timeout: float = _as(seconds, 1800.0)
    recovery_timeout: float = _as(seconds, 1800.0)
    backoff: float = _as(seconds, 60.0)
    backoff_most: float = _as(seconds, 3600.0)
    backoff_limit: int | None = _as(_whole, None)


@dataclass(frozen=True, kw_only=True)
class SchedulerOptions:
    """The gang scheduler's configuration: how long Permit waits, when what was turned away is tried again anyway."""

    permit_timeout: float = _as(seconds, 60.0)
    tries_again_after: float = _as(seconds, 300.0)


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """The cluster. With `topology` its flavors have one of that name: block, rack, host."""

    name: str = _as(_text)
    pools: tuple[Pool, ...] = _as(_all(lambda: Pool))
    queues: tuple[Queue, ...] = _as(_all(lambda: Queue))
    topology: str = _as(_text, "")
    priorities: dict[str, int] = _as(_numbers, factory=dict)
    kueue: KueueOptions = _as(_one(lambda: KueueOptions), factory=KueueOptions)
    scheduler: SchedulerOptions = _as(_one(lambda: SchedulerOptions), factory=SchedulerOptions)


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A job of `pods` x `gpus`, whose pods must run at once, for `lasts`.

    `queue` is the queue (and namespace). With `gang` it has a PodGroup and the gang scheduler places it.
    With `every` and `times` it comes so often, as name-1, name-2, ... `progress` is what it does in a second.
    """

    name: str = _as(_text)
    queue: str = _as(_text)
    pods: int = _as(_whole)
    at: float = _as(seconds)
    lasts: float = _as(seconds)
    gpus: int = _as(_whole, 8)
    gang: bool = _as(_flag, False)
    permit_timeout: float | None = _as(seconds, None)
    place: tuple[str, str] | None = _as(_place, None)
    priority: str = _as(_text, "")
    starts_in: tuple[float, float] = _as(_span, (5.0, 20.0))
    stops_in: float = _as(seconds, 5.0)
    grace: float = _as(seconds, 30.0)
    restarts: bool = _as(_flag, False)
    kept: float = _as(seconds, 300.0)
    every: float = _as(seconds, 0.0)
    times: int = _as(_whole, 1)
    progress: float = _as(_number, 0.0)


@dataclass(frozen=True, kw_only=True)
class PodSpec:
    """A pod of nobody: a notebook, a server. It is there from `at` for `lasts`, on `node` where one is named."""

    name: str = _as(_text)
    namespace: str = _as(_text)
    at: float = _as(seconds)
    lasts: float = _as(seconds)
    gpus: int = _as(_whole, 8)
    node: str = _as(_text, "")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something that goes wrong at a time, or is done; `until` it is mended. Exactly one of the others says what.

    `job/3` is a member of a job. The lists of nodes take names or the beginnings of names (`h100-b0-r1-`).
    """

    at: float = _as(seconds)
    until: float | None = _as(seconds, None)
    node_lost: str = _as(_text, "")
    nodes_away: tuple[str, ...] = _as(_texts, ())
    cordon: tuple[str, ...] = _as(_texts, ())
    unlabel: dict[str, Any] | None = _as(_mapping, None)
    crash: str = _as(_text, "")
    image_stuck: str = _as(_text, "")
    stuck_terminating: str = _as(_text, "")
    delete_job: str = _as(_text, "")
    delete_pod: str = _as(_text, "")
    touch_group: str = _as(_text, "")
    lose_retry: str = _as(_text, "")
    quota: dict[str, Any] | None = _as(_mapping, None)
    refuse: dict[str, Any] | None = _as(_mapping, None)
    idle: tuple[str, ...] = _as(_texts, ())
    slow: dict[str, Any] | None = _as(_mapping, None)

    @property
    def kind(self) -> str:
        """The name of the field that says what happens."""
        return next(name for name in FAULTS if getattr(self, name))


FAULTS: Final = tuple(one.name for one in fields(Fault) if one.name not in {"at", "until"})


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A cluster and its story. `before` is how long it has lived when the check sees it first.

    `fault_at` is when the fault begins that it is about (seconds after the start), None where nothing goes wrong.
    `check` are options of the check beside the addresses.
    """

    about: str = _as(_text)
    lasts: float = _as(seconds)
    cluster: ClusterSpec = _as(_one(lambda: ClusterSpec))
    starts: datetime = _as(_moment, datetime(2027, 3, 1, 6, 0, tzinfo=UTC))
    before: float = _as(seconds, 1800.0)
    fault_at: float | None = _as(seconds, None)
    seed: int = _as(_whole, 1)
    jobs: tuple[JobSpec, ...] = _as(_all(lambda: JobSpec), ())
    pods: tuple[PodSpec, ...] = _as(_all(lambda: PodSpec), ())
    faults: tuple[Fault, ...] = _as(_all(lambda: Fault), ())
    check: dict[str, Any] = _as(_mapping, factory=dict)
    name: str = ""


def take(kind: type[_T], data: object, where: str) -> _T:
    """Make one of the classes above of a mapping. Raises ScenarioError."""
    given = _mapping(data, where)
    known = {one.name: one for one in fields(kind) if "read" in one.metadata}  # type: ignore[arg-type]
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
    made = kind(**{key: known[key].metadata["read"](value, f"{where}.{key}") for key, value in given.items()})
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


def _check(scenario: Scenario, name: str) -> None:
    """See whether everything that is named is there. Raises ScenarioError."""
    cluster = scenario.cluster
    jobs = [one for job in scenario.jobs for one in names(job)]
    wanted: list[tuple[str, str, list[str] | Mapping[str, object]]] = [
        *((f"queue {one.name}", flavor, [pool.name for pool in cluster.pools])
          for one in cluster.queues for flavor in one.quota),
        *((f"job {one.name}", one.queue, [queue.name for queue in cluster.queues]) for one in scenario.jobs),
        *((f"job {one.name}", one.priority, cluster.priorities) for one in scenario.jobs if one.priority),
        *((f"fault {one.kind}", str(getattr(one, one.kind)).partition("/")[0], jobs)
          for one in scenario.faults
          if one.kind in {"crash", "image_stuck", "stuck_terminating", "delete_job", "touch_group", "lose_retry"}),
    ]  # fmt: skip
    for where, one, known in wanted:
        if one not in known:
            near = get_close_matches(one, known, n=1)
            msg = f"{name}: {where}: there is no `{one}`" + (f"; did you mean `{near[0]}`?" if near else "")
            raise ScenarioError(msg)
    doubles = {one for one in jobs if jobs.count(one) > 1}
    if doubles:
        msg = f"{name}: several jobs are called {', '.join(sorted(doubles))}"
        raise ScenarioError(msg)


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
