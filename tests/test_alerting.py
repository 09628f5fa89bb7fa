# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The rules of Datadog's monitors as the lab plays them; what is expected is worked out by hand in each test."""

from typing import Any

import pytest

from lab.alerting import ALERT, NO_DATA, OK, WARN, Monitor, play
from lab.reading import Refused
from lab.samples import Samples
from lab.timeline import Moment, Point, Timeline

Values = list[float | None]


def samples(told: dict[str, Values], interval: float = 60) -> Samples:
    """Return what was sent each minute: `name{tags}` -> its values, None for no point. GPU-seconds are counts."""
    moments = []
    for number in range(max(len(values) for values in told.values())):
        points = []
        for text, values in told.items():
            name, _, tags = text.rstrip("}").partition("{")
            value = values[number] if number < len(values) else None
            if value is not None:
                kind = "count" if name == "gpus.idle_seconds" else "gauge"
                points.append(Point(name, kind, value, tuple(sorted(tag for tag in tags.split(",") if tag))))
        moments.append(Moment(interval * (number + 1), tuple(points)))
    return Samples(Timeline("by hand", interval, moments))


def monitor(query: str, missing: str = "default", thresholds: Any = None, **options: Any) -> Monitor:
    """Return a monitor with the options that all have."""
    return Monitor.of(
        {
            "query": query,
            "options": {
                "thresholds": thresholds or {},
                "on_missing_data": missing,
                "require_full_window": False,
                "new_group_delay": 0,
                **options,
            },
        }
    )


def changes(one: Monitor, told: dict[str, Values]) -> list[tuple[int, str]]:
    """Return the changes of state with the number of the minute in which they come."""
    return [(round(change.at / 60), change.state) for change in play(one, samples(told))]


GANGS = "max(last_1m):sum:kueue_gang.gangs{*} > 5"


def test_it_alerts_above_its_threshold() -> None:
    """5 is not above 5; 6 is, and 5 is OK again."""
    one = monitor(GANGS, thresholds={"critical": 5})
    assert changes(one, {"gangs{}": [5, 6, 5]}) == [(1, OK), (2, ALERT), (3, OK)]


def test_recovery_has_its_own_threshold() -> None:
    """An alert stays until the value is at critical_recovery or below, a warning until warning_recovery."""
    one = monitor(GANGS, thresholds={"critical": 5, "critical_recovery": 4, "warning": 3, "warning_recovery": 2})
    told: Values = [1, 4, 6, 5, 4, 3, 2, 6, 1]
    assert changes(one, {"gangs{}": told}) == [
        (1, OK), (2, WARN), (3, ALERT), (5, WARN), (7, OK), (8, ALERT), (9, OK),
    ]  # fmt: skip


def test_below_is_the_other_way_round() -> None:
    """For `<` the recovery is above the threshold."""
    one = monitor(
        "min(last_1m):min:kueue_gang.topology.label_coverage{*} < 90",
        thresholds={"critical": 90, "critical_recovery": 95, "warning": 100},
    )
    told: Values = [100, 99, 89, 92, 95, 100]
    assert changes(one, {"topology.label_coverage{}": told}) == [(1, OK), (2, WARN), (3, ALERT), (5, WARN), (6, OK)]


def test_a_group_is_told_from_others() -> None:
    """Each group has a state of its own, and is named by its tags."""
    one = monitor("max(last_1m):sum:kueue_gang.gangs{*} by {q} > 5", thresholds={"critical": 5})
    found = list(play(one, samples({"gangs{q:a}": [1, 9], "gangs{q:b}": [1, 1]})))
    assert [(change.group, change.state) for change in found] == [
        ({"q": "a"}, OK),
        ({"q": "b"}, OK),
        ({"q": "a"}, ALERT),
    ]


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        # In the window of three minutes the maximum is above 5 from the first 9 on, and two minutes longer.
        ("max", [(1, OK), (2, ALERT), (7, OK)]),
        # All three are above only in minute 4.
        ("min", [(1, OK), (4, ALERT), (5, OK)]),
        # Means: 0, 4.5, 6, 9, 6, 3, 0.
        ("avg", [(1, OK), (3, ALERT), (6, OK)]),
        # Sums: 0, 9, 18, 27, 18, 9, 0.
        ("sum", [(1, OK), (2, ALERT), (7, OK)]),
    ],
)
def test_the_window(time: str, expected: list[tuple[int, str]]) -> None:
    """What is in the window becomes one number, as the query says."""
    one = monitor(f"{time}(last_3m):sum:kueue_gang.gangs{{*}} > 5", thresholds={"critical": 5})
    assert changes(one, {"gangs{}": [0, 9, 9, 9, 0, 0, 0]}) == expected


def test_counts_are_added_before_arithmetic() -> None:
    """3600 and 7200 GPU-seconds in an hour are 3 GPU-hours; a window without any is a missing one."""
    query = "sum(last_1h):sum:kueue_gang.gpus.idle_seconds{*}.as_count() / 3600 > 2"
    told: dict[str, Values] = {"gpus.idle_seconds{q:a}": [3600, None, 7200], "gangs{}": [1] * 70}
    one = monitor(query, "resolve", {"critical": 2, "critical_recovery": 1})
    # Minute 62 still has what was counted in minute 3, which is 2 hours; minute 63 has nothing.
    assert changes(one, told) == [(1, OK), (3, ALERT), (63, OK)]


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("resolve", [(1, ALERT), (2, OK), (3, ALERT)]),
        ("default", [(1, ALERT)]),
        ("show_no_data", [(1, ALERT), (2, NO_DATA), (3, ALERT)]),
        ("show_and_notify_no_data", [(1, ALERT), (2, NO_DATA), (3, ALERT)]),
    ],
)
def test_missing_data(missing: str, expected: list[tuple[int, str]]) -> None:
    """OK, the last state, or no data, as the option says."""
    one = monitor(GANGS, missing, {"critical": 5})
    assert changes(one, {"gangs{}": [9, None, 9], "members{}": [1, 1, 1]}) == expected


def test_missing_counts_are_zero_by_default() -> None:
    """Where nothing is counted nothing happened; a gauge keeps its state."""
    one = monitor("sum(last_1m):sum:kueue_gang.gpus.idle_seconds{*}.as_count() > 5", "default", {"critical": 5})
    assert changes(one, {"gpus.idle_seconds{}": [9, None], "gangs{}": [1, 1]}) == [(1, ALERT), (2, OK)]


def test_what_must_last_needs_a_full_window() -> None:
    """Without it `min` is true at once of a group that has just begun; with it only after the whole window."""
    query = "min(last_3m):sum:kueue_gang.gangs{*} by {q} > 5"
    told: dict[str, Values] = {"gangs{q:a}": [None, None, 9, 9, 9, 9], "gangs{q:b}": [0] * 6}
    for full, expected in ((False, 3), (True, 5)):
        one = monitor(query, thresholds={"critical": 5}, require_full_window=full)
        (alert,) = (change for change in play(one, samples(told)) if change.state == ALERT)
        assert round(alert.at / 60) == expected


def test_new_groups_can_be_put_off() -> None:
    """For so long after it came a group has no state."""
    one = monitor(GANGS, thresholds={"critical": 5}, new_group_delay=120)
    assert changes(one, {"gangs{}": [9, 9, 9]}) == [(3, ALERT)]


def test_a_group_that_stays_away_is_forgotten() -> None:
    """After the retention it is as if it had never been, without a word of recovery."""
    query = "max(last_1m):sum:kueue_gang.gangs{*} by {q} > 5"
    told: dict[str, Values] = {"gangs{q:a}": [9, *[None] * 6, 1], "gangs{q:b}": [0] * 8}
    kept = monitor(query, thresholds={"critical": 5}, group_retention_duration="1h")
    forgotten = monitor(query, thresholds={"critical": 5}, group_retention_duration="3m")
    assert [round(one.at / 60) for one in play(kept, samples(told)) if one.state == OK and one.group["q"] == "a"] == [8]
    assert changes(forgotten, told)[-1] == (8, OK)
    found = [change.state for change in play(forgotten, samples(told)) if change.group["q"] == "a"]
    assert found == [ALERT, OK]


def test_the_share_of_a_window() -> None:
    """A state seen in two of three minutes is 2 of 3, whatever its clock says; before it began it was not."""
    query = (
        "avg(last_3m):default_zero(clamp_max(max:kueue_gang.gang.state_seconds{gang_state:partial} by {gang}"
        ".rollup(max, 60), 1)) * 3 > 1.5"
    )
    one = monitor(query, "resolve", {"critical": 1.5})
    told: dict[str, Values] = {
        "gang.state_seconds{gang:a,gang_state:partial}": [None, 30, 90, None, None, None, None],
        "gangs{}": [1] * 7,
    }
    # Windows have four buckets of a minute, the first one partly: 1, 2, 2, 1 and then none of them.
    found = [(round(change.at / 60), change.state) for change in play(one, samples(told))]
    assert found == [(2, OK)]
    lower = monitor(query.replace("> 1.5", "> 1"), "resolve", {"critical": 1})
    assert [(round(change.at / 60), change.state) for change in play(lower, samples(told))] == [
        (2, OK),
        (3, ALERT),
        (5, OK),
    ]


@pytest.mark.parametrize(
    "options",
    [{"min_failure_duration": 60}, {"on_missing_data": "ignore"}, {"thresholds": {"critical": 5, "ok": 1}}],
)
def test_options_that_are_not_known_are_refused(options: dict[str, Any]) -> None:
    """An option that might decide is not passed over."""
    known = {"thresholds": {"critical": 5}, "on_missing_data": "default", "require_full_window": False}
    with pytest.raises(Refused):
        Monitor.of({"query": GANGS, "options": {**known, **options}})
