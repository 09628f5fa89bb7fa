# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A scenario played: the real check, over real HTTP, on a simulated cluster, in virtual time.

    python -m lab.play SCENARIO [--status]

The cluster lives until the next moment, is shown by an `ApiServer`, and the check that the Agent would run reads it, as
often as the scenario says. No time is waited for: the server's Date and every clock of the check are the cluster's. So
two hours take seconds, and give the same each time.

The check lists everything in each run (`sync: list`): with watches it would not be certain what it has seen by then.
What happens between two runs and is over before the second is seen as far as the objects tell of it later, as Workloads
tell of evictions and Events of rejections.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, Final, Self

from datadog_checks.base.stubs import aggregator, datadog_agent

from datadog_checks.kueue_gang import KueueGangCheck, check
from datadog_checks.kueue_gang.commands import status
from datadog_checks.kueue_gang.sources import prometheus
from datadog_checks.kueue_gang.sources import signals as signals_source
from datadog_checks.kueue_gang.sources.api import Api
from datadog_checks.kueue_gang.sources.collector import Collector
from lab.apiserver import ApiServer
from lab.http_faults import Answer
from lab.simulation import metrics, signals
from lab.simulation.scenario import Scenario, known, load
from lab.simulation.values import ScenarioError
from lab.simulation.world import World
from lab.timeline import Moment, Recorder, Timeline

#: Seconds of the check's own clock that no cluster's time has.
_MONOTONIC: Final = 1_000_000.0
#: Gangs of Kubernetes itself are behind a gate that is off by default, and not every cluster has Kubeflow Trainer.
_NATIVE, _TRAIN_JOBS = "podgroups.scheduling.k8s.io", "trainjobs"
#: Real seconds that a run waits for the answers of the Prometheus server.
_PATIENCE: Final = 30.0


@contextmanager
def no_proxy() -> Iterator[None]:
    """Have nothing between the check and this machine; it also spares a look at the whole environment a request."""
    kept = {name: os.environ.get(name) for name in ("no_proxy", "NO_PROXY")}
    os.environ |= dict.fromkeys(kept, "127.0.0.1")
    try:
        yield
    finally:
        for name, value in kept.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def clocks(now: Callable[[], float]) -> Iterator[None]:
    """Have every clock of the check go with a cluster's time."""

    def monotonic() -> float:
        return _MONOTONIC + now()

    clock = SimpleNamespace(monotonic=monotonic, process_time=monotonic)
    # No signal comes a run late because this machine is busy.
    replaced: list[tuple[object, str, object]] = [(module, "time", clock) for module in (check, prometheus)]
    replaced += [(signals_source, "MOMENT", _PATIENCE)]
    for taker in (Api.__init__, Collector.__init__, signals_source.SignalReader.__init__):
        replaced.append((taker, "__kwdefaults__", {**(taker.__kwdefaults__ or {}), "monotonic": monotonic}))
    kept = [(holder, name, getattr(holder, name)) for holder, name, _ in replaced]
    for holder, name, value in replaced:
        setattr(holder, name, value)
    try:
        yield
    finally:
        for holder, name, value in kept:
            setattr(holder, name, value)


class Player:
    """A scenario that is being played, one run of the check after the other. Use it as a context manager.

    `check` is the check, `world` the cluster, `url` where it is served.
    """

    def __init__(self, story: str | Scenario, *, interval: float | None = None, port: int = 0) -> None:
        """Prepare to play a scenario, or the one of that name. Raises ScenarioError."""
        self.scenario = story if isinstance(story, Scenario) else load(story)
        self.interval = interval or self.scenario.interval
        self.world = World(self.scenario)
        self.server = ApiServer(clock=lambda: self.world.now, port=port)
        self.server.pages = {
            signals.QUERY: lambda query: Answer(200, signals.answer(self.world, query.get("query", ""))),
            signals.NAMES: lambda _query: Answer(200, signals.names()),
        }
        del self.server.kinds[_NATIVE]
        if not any(job.train_job for job in self.scenario.jobs):
            del self.server.kinds[_TRAIN_JOBS]
        self.check = KueueGangCheck("kueue_gang", {}, [self.instance()])
        #: What the last run reported, '' where all went well: in some scenarios it fails.
        self.failure = ""
        self._recorder = Recorder()
        self._around = ExitStack()

    @property
    def url(self) -> str:
        """The address of the server."""
        return self.server.url

    def instance(self) -> dict[str, Any]:
        """Return the instance of the check."""
        found = {
            "kube_api_url": self.server.url,
            "sync": "list",
            "min_collection_interval": self.interval,
            "openmetrics_endpoint": f"{self.server.url}/metrics",
            "tags": [f"kube_cluster_name:{self.scenario.cluster.name}"],
        }
        if any(job.gang for job in self.scenario.jobs):
            found["scheduler_metrics"] = {"url": f"{self.server.url}/scheduler/metrics"}
        return {**found, **_filled(self.scenario.check, self.server.url)}

    def __enter__(self) -> Self:
        """Begin to serve; the cluster is as it is before the first run."""
        self._around.enter_context(no_proxy())
        self._around.enter_context(clocks(lambda: self.world.now))
        self._around.enter_context(self.server)
        self._around.callback(self.check.cancel)
        self.show(self.world.start)
        return self

    def __exit__(self, *error: object) -> None:
        """End."""
        self._around.close()

    def moments(self, until: float | None = None) -> Iterator[Moment]:
        """Yield what the check sent, run by run, for so many seconds of the cluster's time (default: to its end)."""
        lasts = self.scenario.lasts if until is None else min(until, self.scenario.lasts)
        for number in range(1, int(lasts // self.interval) + 1):
            yield self.step(self.world.start + number * self.interval)

    def step(self, when: float) -> Moment:
        """Let the cluster live until then, and run the check; return what it sent."""
        self.show(when)
        aggregator.reset()
        datadog_agent.reset()
        self.failure = self.check.run()
        return self._recorder.moment(self.world.now, aggregator)

    def show(self, when: float) -> None:
        """Let the cluster live until then, and serve what it is."""
        self.world.run_until(when)
        self.world.show(self.server)
        self.server.kueue = metrics.kueue(self.world)
        self.server.scheduler = metrics.scheduler(self.world)


def _filled(options: Any, url: str) -> Any:  # noqa: ANN401 - anything that YAML holds
    """Return options with the server's address in the place of `URL`."""
    if isinstance(options, dict):
        return {key: _filled(value, url) for key, value in options.items()}
    if isinstance(options, list):
        return [_filled(one, url) for one in options]
    return options.replace("URL", url) if isinstance(options, str) else options


def play(story: str | Scenario, *, until: float | None = None, interval: float | None = None) -> Timeline:
    """Play a scenario, to its end or for so many seconds; return all that the check sent. Raises ScenarioError."""
    with Player(story, interval=interval) as player:
        return Timeline(player.scenario.name, player.interval, list(player.moments(until)))


def main(argv: list[str] | None = None) -> int:
    """Play a scenario and tell its story."""
    parser = argparse.ArgumentParser(prog="python -m lab.play", description=__doc__.splitlines()[0])
    parser.add_argument("scenario", help=", ".join(known()))
    parser.add_argument("--status", action="store_true", help="show the table of the gangs each ten minutes")
    given = parser.parse_args(argv)
    try:
        _tell(given.scenario, table=given.status)
    except BrokenPipeError:
        # The reader (head, less) has seen enough; what is left in the buffer must not fail at exit.
        sys.stdout = None
    except ScenarioError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _tell(name: str, *, table: bool) -> None:
    told = 0
    with Player(name) as player:
        world = player.world
        print(f"{name}: {player.scenario.about}")
        for number, moment in enumerate(player.moments(), 1):
            for at, text in world.story[told:]:
                if at >= 0:
                    print(f"  {clock(at)}  {text}")
            told = len(world.story)
            for event in moment.events:
                print(f"  {clock(moment.at - world.start)}  EVENT {event['msg_title']}")
            if number % 20 == 0:
                print(f"  {clock(moment.at - world.start)}  {summary(moment)}")
                if table and player.check.picture:
                    print(status.table(player.check.picture, (), status.View(colour=False, width=140)))


def summary(moment: Moment) -> str:
    """Return a line that tells how the cluster is."""
    idle = ", ".join(f"{amount:g} {why}" for why, amount in sorted(moment.by("gpus.idle", "idle_reason").items()))
    states = ", ".join(f"{n:g} {state}" for state, n in sorted(moment.by("gangs", "gang_state").items()))
    blocked = ", ".join(f"{n:g} {why}" for why, n in sorted(moment.by("gangs.blocked", "blocker").items()))
    allocated, free = moment.total("gpus.allocated"), moment.total("gpus.free")
    return (
        f"GPUs {allocated:g} allocated, {free:g} free; idle: {idle or 'none'};"
        f" gangs: {states}; blocked: {blocked or 'none'}"
    )


def clock(seconds: float) -> str:
    """Return a time since the start as h:mm:ss."""
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"


if __name__ == "__main__":
    sys.exit(main())
