# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Rejections of gangs, counted from two sources: the texts in the conditions of pods, and Events.

The gang `train` has two members, `a` and `b`. Each case says when Events were, and what a look every 15 s may count.
"""

from collections import Counter
from typing import Any

import pytest

from datadog_checks.kueue_gang.derive.picture import Picture
from datadog_checks.kueue_gang.facts.rejections import Rejection, rejection_event
from tests.model.build import (
    NO_GPU,
    NOW,
    OPTIMISTIC,
    PLAIN_NO_GPU,
    TEAM,
    TIMEOUT,
    UNRESERVE,
    Json,
    failed_scheduling,
    of_group,
    pod_group,
    ready,
    unscheduled,
)
from tests.model.life import Life, told

GROUP = pod_group("train", 2, created=300)
SIBLINGS = "0/4 nodes are available: pre-filter pod a cannot find enough sibling pods, current pods number: 1."


def members(*texts: str) -> list[Json]:
    """Return the members with the texts of their conditions; the last one goes for those that are left."""
    return [
        unscheduled(name, of_group("train"), texts[min(rank, len(texts) - 1)], created=190)
        for rank, name in enumerate("ab")
    ]


WAITING = members(NO_GPU)
AWAY = members(TIMEOUT, UNRESERVE)


def rejected(picture: Picture) -> dict[str, int]:
    """Return the rejections by reason, and nothing else that happened."""
    found = told(picture)
    assert found.keys() <= {"rejected"}
    return dict(found.get("rejected", {}))


def begun() -> Life:
    """Return a cluster that was looked at 100 s before `NOW`, with nothing rejected."""
    life = Life()
    assert rejected(life.look(100, GROUP, *WAITING)) == {}
    return life


# --- Events alone ----------------------------------------------------------------------------------------------------


def test_a_series_that_goes_on_counts_each_time() -> None:
    """Rejected 95, 80 and 65 s ago with the same text: the pods are not written, the series of the Event is."""
    life = begun()
    events = [failed_scheduling("a", TIMEOUT, 95)]
    assert rejected(life.look(90, GROUP, *AWAY, *events)) == {"permit_timeout": 1}
    events = [failed_scheduling("a", TIMEOUT, 95, 80)]
    assert rejected(life.look(75, GROUP, *AWAY, *events)) == {"permit_timeout": 1}
    events = [failed_scheduling("a", TIMEOUT, 95, 65)]
    assert rejected(life.look(60, GROUP, *AWAY, *events)) == {"permit_timeout": 1}
    assert rejected(life.look(45, GROUP, *AWAY, *events)) == {}


def test_a_series_that_goes_on_twice_between_two_looks() -> None:
    """95, 85 and 80 s ago: a watch hands each version, and each is told. A list hands the last one."""
    for between, count in (((failed_scheduling("a", TIMEOUT, 95, 85),), 2), ((), 1)):
        life = begun()
        assert rejected(life.look(92, GROUP, *AWAY, failed_scheduling("a", TIMEOUT, 95))) == {"permit_timeout": 1}
        later = life.look(77, GROUP, *AWAY, failed_scheduling("a", TIMEOUT, 95, 80), between=between)
        assert rejected(later) == {"permit_timeout": count}


def test_a_new_event_of_another_member_counts() -> None:
    """Another member times out, both members have the texts that they had: Event by Event."""
    life = begun()
    assert rejected(life.look(90, GROUP, *AWAY, failed_scheduling("a", TIMEOUT, 95))) == {"permit_timeout": 1}
    events = [failed_scheduling("a", TIMEOUT, 95), failed_scheduling("b", OPTIMISTIC, 80)]
    assert rejected(life.look(75, GROUP, *AWAY, *events)) == {"postfilter": 1}
    # One that is gone after its hour is no news.
    assert rejected(life.look(60, GROUP, *AWAY)) == {}


@pytest.mark.parametrize(("apart", "count"), [(0.01, 1), (2.0, 1), (2.1, 2), (5.0, 2)])
def test_within_two_seconds_is_one(apart: float, count: int) -> None:
    """What members tell within 2 s is one rejection, with the first reason of the table, seen in one run or in two."""
    one, other = failed_scheduling("a", UNRESERVE, 95), failed_scheduling("b", TIMEOUT, 95 - apart)
    both = rejected(begun().look(85, GROUP, *WAITING, one, other))
    assert both == ({"permit_timeout": 1} if count == 1 else {"permit_timeout": 1, "unreserve": 1})
    life = begun()
    found = Counter(rejected(life.look(95 - apart / 2, GROUP, *WAITING, one)))
    found.update(rejected(life.look(85, GROUP, *WAITING, one, other)))
    assert found.total() == count


def test_an_event_of_a_member_that_runs_by_now() -> None:
    """Rejected 95 s ago, bound 90 s ago, and nobody looked in between: that the pod has a node takes nothing back."""
    life = begun()
    one = ready("a", of_group("train"), "n0", since=88, created=190)
    picture = life.look(85, GROUP, one, WAITING[1], failed_scheduling("a", TIMEOUT, 95))
    assert told(picture)["rejected"] == {"permit_timeout": 1}


def test_an_event_that_is_written_late() -> None:
    """The end of a series, written six minutes after: what was later is counted, and that is all one can know."""
    life = begun()
    assert rejected(life.look(60, GROUP, *AWAY, failed_scheduling("a", TIMEOUT, 65))) == {"permit_timeout": 1}
    events = [failed_scheduling("a", TIMEOUT, 65), failed_scheduling("b", TIMEOUT, 98, 80)]
    assert rejected(life.look(45, GROUP, *AWAY, *events)) == {}


# --- a text and an Event ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["event", "text", "both"])
def test_a_text_and_an_event_of_one_rejection_count_once(first: str) -> None:
    """Turned away 86 s ago, a second before the look: the other source comes with it or with the next look."""
    life, event = begun(), failed_scheduling("a", TIMEOUT, 86)
    seen = {"event": [*WAITING, event], "text": AWAY, "both": [*AWAY, event]}[first]
    assert rejected(life.look(85, GROUP, *seen)) == {"permit_timeout": 1}
    assert rejected(life.look(70, GROUP, *AWAY, event)) == {}
    assert rejected(life.look(55, GROUP, *AWAY, event)) == {}


def test_a_new_text_counts_after_an_event() -> None:
    """Of the second rejection no Event has come: its text tells of it, and the Event that comes later adds nothing."""
    life, first = begun(), failed_scheduling("a", TIMEOUT, 95)
    assert rejected(life.look(85, GROUP, *AWAY, first)) == {"permit_timeout": 1}
    again = members(UNRESERVE, OPTIMISTIC)
    assert rejected(life.look(70, GROUP, *again, first)) == {"postfilter": 1}
    assert rejected(life.look(55, GROUP, *again, first, failed_scheduling("b", OPTIMISTIC, 75))) == {}
    assert rejected(life.look(40, GROUP, *again, first, failed_scheduling("b", OPTIMISTIC, 75, 45))) == {
        "postfilter": 1
    }


def test_texts_count_alone() -> None:
    """Without the right to read Events each look counts a new text, as many looks as there are."""
    life, unread = Life(), {"events": "forbidden"}
    life.look(100, GROUP, *WAITING, unread=unread)
    assert rejected(life.look(85, GROUP, *AWAY, unread=unread)) == {"permit_timeout": 1}
    assert rejected(life.look(70, GROUP, *members(UNRESERVE, TIMEOUT), unread=unread)) == {"permit_timeout": 1}
    assert rejected(life.look(55, GROUP, *members(SIBLINGS, TIMEOUT), unread=unread)) == {"missing_members": 1}


def test_events_change_nothing_but_the_count() -> None:
    """Gangs and their clocks are the same with Events and without, look by look."""
    told_of, without = begun(), begun()
    for number, texts in enumerate((AWAY, AWAY, members(OPTIMISTIC), WAITING)):
        ago = 85 - 15 * number
        event = failed_scheduling("a", TIMEOUT, 95, ago + 3)
        with_events, plain = told_of.look(ago, GROUP, *texts, event), without.look(ago, GROUP, *texts)
        assert list(with_events.views) == list(plain.views)
        assert with_events.summary == plain.summary
        assert rejected(with_events)


# --- what is old -----------------------------------------------------------------------------------------------------


def test_a_restart_counts_nothing_old() -> None:
    """What was there when a check began is old, also when Events are read later than pods; what comes is news."""
    events = [failed_scheduling("a", TIMEOUT, 115), failed_scheduling("b", UNRESERVE, 130, 110)]
    for first in (events, []):
        life = Life()
        assert rejected(life.look(100, GROUP, *AWAY, *first)) == {}
        assert rejected(life.look(85, GROUP, *AWAY, *events)) == {}
        more = [*events, failed_scheduling("a", TIMEOUT, 80)]
        assert rejected(life.look(70, GROUP, *AWAY, *more)) == {"permit_timeout": 1}
        life.restart()
        assert rejected(life.look(55, GROUP, *AWAY, *more)) == {}
        assert rejected(life.look(40, GROUP, *AWAY, *more)) == {}


def test_events_that_come_back_repeat_nothing() -> None:
    """Events that were not read for a while, and all come anew: only what is later than what was counted is news."""
    life = begun()
    events = [failed_scheduling("a", TIMEOUT, 95), failed_scheduling("b", UNRESERVE, 86)]
    assert rejected(life.look(85, GROUP, *AWAY, *events)) == {"permit_timeout": 1, "unreserve": 1}
    assert rejected(life.look(70, GROUP, *AWAY)) == {}
    assert rejected(life.look(55, GROUP, *AWAY, *events)) == {}
    assert rejected(life.look(40, GROUP, *AWAY)) == {}
    gap = failed_scheduling("a", OPTIMISTIC, 50)
    assert rejected(life.look(25, GROUP, *AWAY, *events, gap)) == {"postfilter": 1}


def test_an_event_of_a_pod_before_is_not_of_this_gang() -> None:
    """A gang that was made anew with the same names 90 s ago has not been rejected 95 s ago."""
    life = Life()
    life.look(100)
    anew = [unscheduled(name, of_group("train"), NO_GPU, created=90) for name in "ab"]
    picture = life.look(85, pod_group("train", 2, created=90), *anew, failed_scheduling("a", TIMEOUT, 95))
    assert rejected(picture) == {}


# --- what an Event says ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("note", "reason"),
    [
        (TIMEOUT, "permit_timeout"),
        (OPTIMISTIC, "postfilter"),
        (SIBLINGS, "missing_members"),
        # Cut at 1024 bytes: what is before the cut counts.
        ("0/4 nodes are available: 1 rejection in Unreserve. " + "x" * 969 + " ...", "unreserve"),
        (PLAIN_NO_GPU[:-1] + ", 3 node(s) were unschedulable. PodGroup team/train gets rej ...", None),
        (NO_GPU, None),
        (PLAIN_NO_GPU, None),
        ("", None),
    ],
)
def test_what_a_note_says(note: str, reason: str | None) -> None:
    """A rejection of a gang, or nothing that is kept."""
    event = failed_scheduling("a", note, 95)
    read = rejection_event(event)
    assert read == (None if reason is None else Rejection(TEAM, event["metadata"]["name"], "a", reason, NOW - 95))
    counted = rejected(begun().look(85, GROUP, *WAITING, event))
    assert counted == ({} if reason is None else {reason: 1})


@pytest.mark.parametrize(
    "other",
    [
        {"reason": "Scheduled"},
        {"regarding": {"kind": "Workload", "namespace": TEAM, "name": "a"}},
        {"regarding": None},
        {"note": None},
        {"note": 7},
    ],
)
def test_other_events_are_nothing(other: dict[str, Any]) -> None:
    """Events of other reasons, of no pod, and without a text."""
    assert rejection_event(failed_scheduling("a", TIMEOUT, 95, **other)) is None


def test_the_time_of_an_event() -> None:
    """That of its series, else its own, else that of the core API, else that of its creation."""
    event = failed_scheduling("a", TIMEOUT, 95, 80)
    core = {**event, "series": None, "eventTime": None}
    for obj, at in (
        (event, 80.0),
        ({**event, "series": None}, 95.0),
        ({**core, "deprecatedLastTimestamp": "2027-01-15T11:59:00Z", "deprecatedCount": 3}, 60.0),
        ({**core, "metadata": {**event["metadata"], "creationTimestamp": "2027-01-15T11:59:30Z"}}, 30.0),
    ):
        read = rejection_event(obj)
        assert read is not None
        assert read.at == pytest.approx(NOW - at)
