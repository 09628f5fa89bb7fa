# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""cancel() ends every thread within a second, from any thread, whatever the threads wait for.

The Agent cancels a check when it unschedules it, from a thread of its own, perhaps while the check runs, and goes on
without waiting. So each test lets the readers come to where they wait, with waits of a production server (a watch of
two minutes, answers of half a minute), and cancels from another thread.
"""

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
from datadog_checks.base.stubs.aggregator import AggregatorStub

from datadog_checks.kueue_gang import KueueGangCheck
from datadog_checks.kueue_gang.sources import collector as collector_module
from datadog_checks.kueue_gang.sources import reader as reader_module
from datadog_checks.kueue_gang.sources.feed import Feed, Lines
from datadog_checks.kueue_gang.sources.reader import Timing
from datadog_checks.kueue_gang.sources.reflector import Reflector
from lab.apiserver import KINDS, ApiServer
from lab.http_faults import Row
from tests.live import KUEUE_METRICS, SCHEDULER_METRICS, cluster, instance, readers, sockets, until
from tests.model.build import NOW, TEAM, new
from tests.sent import Sent

PODS = "/api/v1/pods"
#: Seconds that a thread may take to end.
AT_ONCE = 1.0


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """Return a server of the cluster."""
    with ApiServer(clock=lambda: NOW) as made:
        made.apply_all(cluster())
        made.kueue, made.scheduler = KUEUE_METRICS, SCHEDULER_METRICS
        yield made


@pytest.fixture(autouse=True)
def _short_first_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first run not wait for what does not come. All other waits are those of production."""
    monkeypatch.setattr(collector_module, "FIRST_WAIT", 0.3)


def make(url: str, **options: Any) -> KueueGangCheck:
    """Return a check that is patient."""
    return KueueGangCheck("kueue_gang", {}, [instance(url, kube_timeout=30, timeout=30, **options)])


def cancel(check: KueueGangCheck) -> None:
    """Cancel from another thread, and assert that it neither waits nor leaves anything that runs."""
    took: list[float] = []

    def call() -> None:
        began = time.monotonic()
        check.cancel()
        took.append(time.monotonic() - began)

    thread = threading.Thread(target=call)
    began = time.monotonic()
    thread.start()
    until(lambda: not readers(), lambda: f"threads are left: {readers()}", seconds=AT_ONCE)
    thread.join(AT_ONCE)
    assert took, "cancel() did not return"
    assert took[0] < 0.3, "cancel() waited for something"
    assert time.monotonic() - began < AT_ONCE


def waiting_in(function: str) -> int:
    """Return how many of the readers are in a function now."""
    frames = sys._current_frames()
    found = 0
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0) if thread.name.startswith("kueue-gang-") else None
        while frame is not None:
            if frame.f_code.co_name == function:
                found += 1
                break
            frame = frame.f_back
    return found


# --- wherever the readers are ----------------------------------------------------------------------------------------


def test_in_quiet_watches(server: ApiServer, aggregator: AggregatorStub) -> None:
    """Nothing happens in the cluster, and the streams go on for another two minutes."""
    before = sockets()
    check = make(server.url)
    assert check.run() == ""
    assert len(readers()) == len(KINDS)
    cancel(check)
    until(lambda: not sockets() - before, "all sockets are closed")


#: Where a list is when the check is cancelled: faults, and whether the server has streaming lists.
LISTS: dict[str, tuple[list[Row], bool]] = {
    "a streaming list that drips": ([("/api", "slow", None, "stream")], True),
    "a streaming list that stops": ([("/api", "mute", None, "stream")], True),
    "the first page": ([("/api", "slow", None, "list")], False),
    "a later page": ([("/api", "slow", None, "page")], False),
    "a later page that is not answered": ([("/api", "silent", None, "page")], False),
    "a server that never begins to answer": ([("/api", "silent")], True),
    "a server that sends heads only": ([("/api", "mute")], True),
    "discovery that is not answered": ([("/apis?", "silent"), ("/apis", "silent")], True),
    "watches that are not answered": ([("/api", "silent", None, "watch")], False),
}


@pytest.mark.parametrize("place", LISTS)
def test_in_a_list(place: str, server: ApiServer, aggregator: AggregatorStub, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a list, of either form, and before it has begun."""
    monkeypatch.setattr(reader_module, "PAGE", 1)
    server.faults, server.streaming = LISTS[place]
    before = sockets()
    check = make(server.url)
    check.run()
    until(lambda: len(server.log) >= 3)
    time.sleep(0.1)
    cancel(check)
    until(lambda: not sockets() - before, "all sockets are closed")


@contextmanager
def listening(backlog: int = 16) -> Iterator[tuple[str, socket.socket]]:
    """Give a port where somebody listens and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(backlog)
        yield f"127.0.0.1:{listener.getsockname()[1]}", listener


def test_in_a_tls_handshake_that_never_ends(aggregator: AggregatorStub) -> None:
    """The connection is accepted, and no byte comes."""
    with listening() as (address, _):
        check = make(f"https://{address}", openmetrics_endpoint=None, scheduler_metrics=None)
        check.run()
        until(lambda: waiting_in("do_handshake"))
        cancel(check)


def test_while_connecting(aggregator: AggregatorStub) -> None:
    """The connection is neither accepted nor refused, as behind a firewall that drops packets."""
    with listening(0) as (address, listener):
        queue = []
        for _ in range(4):
            one = socket.socket()
            one.setblocking(False)
            with suppress(BlockingIOError):
                one.connect(listener.getsockname())
            queue.append(one)
        try:
            check = make(f"http://{address}", openmetrics_endpoint=None, scheduler_metrics=None)
            check.run()
            until(lambda: waiting_in("_dial"))
            cancel(check)
        finally:
            for one in queue:
                one.close()


def test_while_a_feed_is_full(server: ApiServer, aggregator: AggregatorStub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody takes what the readers have read."""
    monkeypatch.setattr(Reflector, "FEED", 1000)
    check = make(server.url)
    assert check.run() == ""
    for number in range(10):
        server.apply("pods", new("busy", metadata={"annotations": {"number": str(number), "note": "x" * 2000}}))
    until(lambda: waiting_in("put"), "a reader waits for room")
    cancel(check)


@pytest.mark.parametrize("fault", [500, 403, "refuse", "html"])
def test_while_waiting_to_retry(
    fault: int | str, server: ApiServer, aggregator: AggregatorStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt is minutes away."""
    monkeypatch.setattr(KueueGangCheck, "TIMING", replace(Timing(), retry=60.0))
    server.faults = [("/api", fault)]
    check = make(server.url)
    check.run()
    until(lambda: waiting_in("_wait") >= len(KINDS) - 1)
    cancel(check)
    tries = len(server.log)
    time.sleep(0.2)
    assert len(server.log) == tries, "nothing is asked for any more"


def test_while_a_reader_waits_for_the_run(server: ApiServer, aggregator: AggregatorStub) -> None:
    """A streaming list has ended, and its reader waits to hear whether it was complete."""
    check = make(server.url)
    assert check.run() == ""
    server.end()
    until(lambda: waiting_in("_ask") == len(KINDS))
    cancel(check)


# --- whatever the check does -----------------------------------------------------------------------------------------


def test_before_the_first_run(server: ApiServer, aggregator: AggregatorStub) -> None:
    """A check that never ran has nothing to end."""
    check = make(server.url)
    cancel(check)
    assert server.log == []


def test_a_run_after_the_cancel_starts_nothing(server: ApiServer, aggregator: AggregatorStub) -> None:
    """A run that was due already when its check was cancelled leaves no thread behind."""
    check = make(server.url)
    check.cancel()
    check.run()
    try:
        until(lambda: not readers(), lambda: f"threads are left: {readers()}", seconds=AT_ONCE)
    finally:
        cancel(check)


def test_a_run_after_a_run_and_the_cancel_starts_nothing(server: ApiServer, aggregator: AggregatorStub) -> None:
    """The same for a check that ran before."""
    check = make(server.url)
    check.run()
    cancel(check)
    check.run()
    until(lambda: not readers(), lambda: f"threads are left: {readers()}", seconds=AT_ONCE)


def test_between_the_parts_and_the_threads(server: ApiServer, aggregator: AggregatorStub) -> None:
    """The parts are made and the threads are not started yet: they never are."""
    check = make(server.url)
    check.run_check_initializations()
    cancel(check)
    check.run()
    until(lambda: not readers(), lambda: f"threads are left: {readers()}", seconds=AT_ONCE)


def test_twice(server: ApiServer, aggregator: AggregatorStub) -> None:
    """A second cancel does no harm."""
    check = make(server.url)
    check.run()
    cancel(check)
    cancel(check)


def _in_a_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_during_a_run_that_waits_for_its_first_lists(
    server: ApiServer, aggregator: AggregatorStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run itself ends too, and does not wait for lists that will never come."""
    monkeypatch.setattr(collector_module, "FIRST_WAIT", 60.0)
    server.faults = [(PODS, "silent")]
    check = make(server.url)
    run = _in_a_thread(check.run)
    until(lambda: server.requests(PODS))
    time.sleep(0.2)
    assert run.is_alive()
    cancel(check)
    run.join(AT_ONCE)
    assert not run.is_alive()


def test_during_a_run_that_waits_for_a_new_list(
    server: ApiServer, aggregator: AggregatorStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later run takes a new list while it flows."""
    monkeypatch.setattr(reader_module, "PAGE", 1)
    monkeypatch.setattr(collector_module, "PIECE_WAIT", 60.0)
    monkeypatch.setattr(collector_module, "LIST_WAIT", 60.0)
    server.streaming = False
    check = make(server.url)
    check.run()
    until(lambda: server.watches("pods"))
    server.faults = [(PODS, "silent", None, "page"), (PODS, 410, 1, "watch")]
    server.cut("pods")
    # Six objects are six pages, of which the list itself is the first.
    until(lambda: server.requests(PODS, "page")[5:])
    run = _in_a_thread(check.run)
    time.sleep(0.3)
    assert run.is_alive()
    cancel(check)
    run.join(AT_ONCE)
    assert not run.is_alive()


def test_during_a_run_that_reads_the_scheduler(server: ApiServer, aggregator: AggregatorStub) -> None:
    """The scheduler does not answer, and the run ends all the same."""
    server.faults = [("/scheduler", "silent")]
    check = make(server.url)
    run = _in_a_thread(check.run)
    until(lambda: server.requests("/scheduler"))
    time.sleep(0.1)
    cancel(check)
    run.join(AT_ONCE)
    assert not run.is_alive()


def test_during_a_run_that_scrapes_kueue(server: ApiServer, aggregator: AggregatorStub) -> None:
    """Kueue does not answer, and the run ends all the same."""
    server.faults = [("/metrics", "silent")]
    check = make(server.url)
    run = _in_a_thread(check.run)
    until(lambda: server.requests("/metrics"))
    time.sleep(0.1)
    try:
        cancel(check)
        run.join(AT_ONCE)
        assert not run.is_alive()
    finally:
        server.drop()
        run.join()
        check.cancel()


@pytest.mark.parametrize("attempt", range(10))
def test_many_cancels_while_runs_go_on(attempt: int, server: ApiServer, aggregator: AggregatorStub) -> None:
    """Several threads cancel at once, while the check runs again and again: nothing breaks, nothing stays."""
    check = make(server.url)
    stop = threading.Event()
    reports: list[str] = []

    def run() -> None:
        while not stop.is_set():
            reports.append(check.run())

    running = _in_a_thread(run)
    until(lambda: reports)
    others = [_in_a_thread(check.cancel) for _ in range(4)]
    cancel(check)
    seen = len(reports)
    until(lambda: len(reports) > seen)
    stop.set()
    for thread in (running, *others):
        thread.join(5)
        assert not thread.is_alive()
    assert readers() == []
    assert all("Kubernetes API" in report or "metrics" in report for report in reports if report)


# --- two checks ------------------------------------------------------------------------------------------------------


def test_a_second_check_for_the_same_instance(server: ApiServer, aggregator: AggregatorStub) -> None:
    """When a configuration is reloaded, the new check may run before the old one is cancelled; each has its own."""
    old, fresh = make(server.url), make(server.url)
    assert old.run() == fresh.run() == ""
    assert len(readers()) == 2 * len(KINDS)
    old.cancel()
    until(lambda: len(readers()) == len(KINDS), "those of the new one stay", seconds=AT_ONCE)
    server.delete("pods", "evals-1", TEAM)

    def follows() -> bool:
        aggregator.reset()
        assert fresh.run() == ""
        return Sent(aggregator).only("source.objects", api_source="pods") == 5

    until(follows)
    cancel(fresh)


def test_two_checks_of_two_clusters(server: ApiServer, aggregator: AggregatorStub) -> None:
    """Nothing is shared between checks: what one is cancelled of, the other still has."""
    with ApiServer(clock=lambda: NOW) as other:
        other.apply("pods", new("alone", gpus=1))
        one, two = make(server.url), make(other.url, openmetrics_endpoint=None, scheduler_metrics=None)
        assert one.run() == two.run() == ""
        cancelled = _in_a_thread(one.cancel)
        aggregator.reset()
        assert two.run() == ""
        assert Sent(aggregator).only("source.objects", api_source="pods") == 1
        cancelled.join()
        cancel(two)


def test_a_feed_that_is_closed_holds_nothing() -> None:
    """What was read and not taken is let go at once."""
    feed = Feed(1000)
    feed.put(Lines(b"x" * 500))
    feed.close()
    assert feed.take() is None
