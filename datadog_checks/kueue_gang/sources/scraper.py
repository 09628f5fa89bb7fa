# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Pods that are scraped in turn: a bounded number of requests a run, however many pods there are.

Of all pods that a label selector finds, those are asked that were not asked for longest, at most `requests_per_run` of
them. So each of n pods has its turn within n / requests_per_run runs, rounded up. A pod that fails keeps its place in
the order, and is passed over for a growing number of rounds, at least for one turn of all; nobody else waits longer for
it. Within a round those that answered the last time come first, so that pods that hang take only the time that is left.

A pod is asked at its IP, without the Agent's proxy, on a connection of its own that is closed afterwards. Redirects are
not followed, and what is too long is not read.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from requests.adapters import HTTPAdapter

from datadog_checks.kueue_gang.facts import endpoints
from datadog_checks.kueue_gang.facts.endpoints import Endpoint
from datadog_checks.kueue_gang.sources.connection import Log, UrlConnection
from datadog_checks.kueue_gang.sources.errors import SourceError, Target, harmless, invalid
from datadog_checks.kueue_gang.sources.exposition import Page, close, names, page
from datadog_checks.kueue_gang.sources.resources import Resource
from datadog_checks.kueue_gang.sources.rounds import AT_ONCE, Source, Told
from datadog_checks.kueue_gang.sources.samples import Found
from datadog_checks.kueue_gang.sources.targets import PodTarget

#: Largest page of a pod that is read. dcgm-exporter serves some 100 KB.
MAX_PAGE: Final = 16 * 1024 * 1024
#: Most rounds that a failing pod is passed over, unless one turn of all takes longer.
MOST_ROUNDS: Final = 20

#: What a page says: (page, pod, when it was made) -> what was found.
Reading = Callable[[Page, Endpoint, float], Found]


class PodsConnection(UrlConnection):
    """Pods of one kind, each at its own address, which is the beginning of a path: `10.0.0.1:9400/metrics`."""

    # Each pod is asked now and then only.
    HEADERS: Mapping[str, str] = {**UrlConnection.HEADERS, "Connection": "close"}

    def __init__(self, target: PodTarget, told: Target, *, init_config: Mapping[str, Any] | None, log: Log) -> None:
        """Prepare to ask pods. Raises ConfigurationError for options that cannot be."""
        options = {"skip_proxy": True, **target.http}
        url = f"{target.scheme}://pods"
        super().__init__(url, options, timeout=target.timeout, target=told, init_config=init_config, log=log)
        self._base = f"{target.scheme}://"
        session = self._session.http.session
        # One pool a host; of those that are in use none may be thrown out.
        session.mount("http://", HTTPAdapter(pool_connections=4 * AT_ONCE))
        # No proxy and no password of the environment (.netrc) is for pods; to look for them costs a fifth of a request.
        session.trust_env = False

    def page(self, path: str) -> tuple[bytes, float]:
        """Return what a pod serves, and when it began to answer (monotonic). Raises SourceError."""
        response = self.open(path, accept="text/plain")
        # A page is made, and then sent: this is the nearest that is known.
        at = time.monotonic()
        return self.body(path, response, MAX_PAGE), at

    def _renew(self) -> bool:
        # The next request has the new token: this one must not become two, of all pods at once.
        super()._renew()
        return False


def _resource(name: str, target: PodTarget) -> Resource:
    """Return the pods of a target as a resource. A server that does not select fields is no matter."""
    fields = ["status.phase=Running", *([f"metadata.namespace={target.namespace}"] if target.namespace else [])]
    query = {"labelSelector": target.label_selector, "fieldSelector": ",".join(fields)}
    return Resource(name, "", "pods", ("v1",), endpoints.reducer(target.namespace), query=query)


@dataclass(slots=True)
class _Turn:
    """How it went with a pod: the round in which it last had its turn, failures in a row, when it is due again."""

    ip: str
    asked: int = -1
    failures: int = 0
    due: int = 0
    good: bool = False


class PodSource(Source[Endpoint]):
    """The pods that one option finds. `silence`: the number of its training source, whose silent pods are told."""

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        name: str,
        target: PodTarget,
        told: Target,
        read: Reading,
        log: Log,
        *,
        interval: float,
        silence: int | None = None,
        init_config: Mapping[str, Any] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to ask the pods of a target. Raises ConfigurationError."""
        connection = PodsConnection(target, told, init_config=init_config, log=log)
        super().__init__(name, connection, log, interval=interval, monotonic=monotonic)
        self._pods_connection = connection
        self._target, self._read, self._silence = target, read, silence
        #: By which the pods are found.
        self.resource = _resource(name, target)
        self._turns: dict[tuple[str, str], _Turn] = {}
        self._number = 0
        #: Pods that can be asked now; None where that is not known.
        self.pods: Iterable[Endpoint] | None = None

    @property
    def awaited(self) -> list[tuple[int, str, str]]:
        """Pods of a training source that were not asked yet, as `Signals` has them."""
        if self._silence is None:
            return []
        return [(self._silence, *pod) for pod, turn in self._turns.items() if turn.asked < 0]

    def _jobs(self) -> Sequence[Endpoint]:
        if self.pods is None:
            return ()
        self._number += 1
        known, self._turns = self._turns, {}
        found = list(self.pods)
        for pod in found:
            turn = known.get((pod.namespace, pod.name))
            self._turns[pod.namespace, pod.name] = turn if turn and turn.ip == pod.ip else _Turn(pod.ip)
        if not found:
            self.nothing_to_ask()
            return ()
        return self._chosen(found)

    def _chosen(self, found: Sequence[Endpoint]) -> list[Endpoint]:
        """Return the pods whose turn it is."""
        turns = {pod: self._turns[pod.namespace, pod.name] for pod in found}
        due = [pod for pod in found if turns[pod].due <= self._number]
        due.sort(key=lambda pod: (turns[pod].asked, pod.namespace, pod.name))
        chosen = due[: self._target.requests_per_run]
        for pod in chosen:
            if turns[pod].failures:
                # It had its turn, even if the time of the round should not reach for it.
                self._pass_over(turns[pod])
        return sorted(chosen, key=lambda pod: turns[pod].failures > 0)

    def _pass_over(self, turn: _Turn) -> None:
        """Let a failing pod wait: longer each time, and not less than until all had their turn."""
        whole = math.ceil(len(self._turns) / self._target.requests_per_run)
        turn.asked = self._number
        turn.due = self._number + max(whole, min(2**turn.failures, MOST_ROUNDS))

    def _ask(self, job: Endpoint) -> Told:
        host = f"[{job.ip}]" if ":" in job.ip else job.ip
        path = f"{host}:{self._target.port}{self._target.path}"
        body, at = self._pods_connection.page(path)
        try:
            told = page(body, self._target.metrics)
        except ValueError as error:
            raise invalid(self._connection.target, path, str(error)) from None
        turn = self._turns[job.namespace, job.name]
        turn.asked, turn.failures, turn.due = self._number, 0, 0
        found = self._read(told, job, at)
        turn.good = bool(told.samples)
        if not found and self._silence is not None:
            found.silent.append((self._silence, job.namespace, job.name))
        if not told.samples and not told.broken:
            return Told(found, self._missing(path, body), nothing=True)
        return Told(found)

    def _missing(self, path: str, body: bytes) -> SourceError:
        """Return the error for a page without the metric, with the names that come close."""
        target = self._connection.target
        known = names(body)
        near = close(self._target.metrics, known)
        advice = (
            harmless(f"it has {', '.join(near)}")
            if near
            else f"none of its {len(known)} names comes close; {target.wrong}"
        )
        wanted = " or ".join(self._target.metrics)
        return SourceError("invalid", f"{target.name} {path}: no metric {harmless(wanted)}", advice)

    def _failed(self, job: Endpoint, error: SourceError) -> Found:
        turn = self._turns[job.namespace, job.name]
        turn.failures += 1
        turn.good = False
        self._pass_over(turn)
        self._log.debug("%s: pod %s/%s: %s", self.name, job.namespace, job.name, error)
        silent = [] if self._silence is None else [(self._silence, job.namespace, job.name)]
        return Found(silent=silent)

    def _counted(self, told: Sequence[Told]) -> tuple[int, list[SourceError]]:
        good = sum(turn.good for turn in self._turns.values())
        if any(one.error is None for one in told):
            return good, []
        # That a pod has not the metric is wrong only where no pod has it: often one rank tells for all.
        return good, [one.error for one in told if one.error and not (one.nothing and good)]
