# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A gang whose pods are the processes of a real training loop, and a check that runs on it again and again.

The API server tells what a cluster would: one pod a rank, each with the address that its process serves at. What the
check sends is then compared with what the loop itself counted.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final, Self

import pytest
from datadog_checks.base.stubs.aggregator import AggregatorStub

from datadog_checks.kueue_gang import KueueGangCheck
from lab.apiserver import ApiServer
from tests.live import QUICK, until
from tests.model.build import GANG_SCHEDULER, NOW, Json, labelled, node, of_group, pod_group, ready
from tests.sent import Sent, message

GANG: Final = "train"
GPUS: Final = 8
#: Of the pods of that gang.
SELECTOR: Final = "app=train,tier=gpu"
_LABELS: Final = labelled(app="train", tier="gpu")

#: Seconds between two runs, and the least after which a gang is told to be stalled.
INTERVAL: Final = 0.5
STALLED_AFTER: Final = 2


def at_address(address: str) -> Json:
    """Return the status fields of a pod with this address."""
    return {"podIP": address, "podIPs": [{"ip": address}]}


def member(name: str, rank: int, address: str, build: Callable[..., Json] = ready, **more: Any) -> Json:
    """Return a pod of the gang, on the node of its rank."""
    status = {**at_address(address), **more.pop("status", {})}
    tie = of_group(GANG) + _LABELS
    return build(name, tie, f"n{rank}", gpus=GPUS, scheduler=GANG_SCHEDULER, status=status, **more)


@contextmanager
def cluster(addresses: Iterable[str]) -> Iterator[ApiServer]:
    """Serve a cluster with a gang that runs: one node, one pod and eight GPUs for each address."""
    began = time.monotonic()
    with ApiServer(clock=lambda: NOW + time.monotonic() - began) as server:
        ranks = list(addresses)
        server.apply_all(node(f"n{rank}", GPUS) for rank in range(len(ranks)))
        server.apply_all([pod_group(GANG, len(ranks))])
        server.apply_all(member(f"{GANG}-{rank}", rank, address) for rank, address in enumerate(ranks))
        yield server


class Runs:
    """A check that runs every `INTERVAL` seconds. Use it as a context manager.

    `started` holds when its runs began, in seconds of time.monotonic, and `all` what each of them sent.
    """

    def __init__(self, aggregator: AggregatorStub, server: ApiServer, **options: Any) -> None:
        """Make the check, which reads the cluster and what `options` name."""
        instance = {
            "kube_api_url": server.url,
            "per_gang_metrics": "all",
            "kube_timeout": 5,
            "min_collection_interval": INTERVAL,
            **options,
        }
        self._aggregator = aggregator
        self._check = KueueGangCheck("kueue_gang", {}, [instance])
        self._check.TIMING = QUICK
        self.started: list[float] = []
        self.all: list[Sent] = []

    def __enter__(self) -> Self:
        """Run once, to begin."""
        self.next()
        return self

    def __exit__(self, *_: object) -> None:
        """End the check's threads."""
        self._check.cancel()

    def next(self) -> Sent:
        """Run once it is time to; return what was sent."""
        due = self.started[-1] + INTERVAL if self.started else 0.0
        until(lambda: time.monotonic() >= due)
        self._aggregator.reset()
        self.started.append(time.monotonic())
        report = self._check.run()
        assert report == "", message(report)
        self.all.append(Sent(self._aggregator))
        return self.all[-1]

    def go_on(self, seconds: float) -> None:
        """Run on for so long: the last run begins then, or after."""
        ends = self.started[-1] + seconds
        while self.started[-1] < ends:
            self.next()

    def first(self, look: Callable[[Sent], object], since: float) -> float:
        """Return when the first run began, of those since then, in whose series `look` finds something."""
        runs = zip(self.started, self.all, strict=True)
        return next(started for started, sent in runs if started >= since and look(sent))

    @property
    def longest(self) -> float:
        """The longest time between the beginnings of two runs, in seconds."""
        return max(after - before for before, after in pairwise(self.started))

    def mean(self, metric: str, moments: Sequence[float], **tags: str) -> float:
        """Return the mean over time of a rate of the gang, as the last runs sent it.

        `moments` are when those runs took their samples, and when the one before them did. A rate is one of the time
        since the samples before, so it weighs as much as that time was long.
        """
        weights = [after - before for before, after in pairwise(moments)]
        values = [sent.only(metric, gang=GANG, **tags) for sent in self.all[-len(weights) :]]
        told = [value for value in values if value is not None]
        assert len(told) == len(values), values
        return sum(weight * value for weight, value in zip(weights, told, strict=True)) / sum(weights)


def both(one: Runs, other: Runs, look: Callable[[Sent], object]) -> bool:
    """Run both checks once; tell whether `look` finds something in what each of them sent."""
    sent = one.next(), other.next()
    return all(look(found) for found in sent)


def throughput(sent: Sent, unit: str = "samples") -> float | None:
    """Return the throughput that a run sent of the gang; None where it sent none."""
    return sent.only("gang.throughput", gang=GANG, unit=unit)


def stalls(sent: Sent) -> Mapping[str, float]:
    """Return the gangs that a run told to be stalled, by reason."""
    return sent.by("gangs.stalled", "stall_reason")


def near(counted: float, share: float = 0.02) -> Any:
    """Return what equals any number within so small a part of what was counted."""
    return pytest.approx(counted, rel=share)
