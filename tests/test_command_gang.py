# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The rules of `kueue-gang status NAMESPACE/GANG`, and of the column BLOCKER of the table of all gangs."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from datadog_checks.kueue_gang.commands import gang, main
from datadog_checks.kueue_gang.derive.blockers import UNBLOCKED
from datadog_checks.kueue_gang.derive.remedies import ANY_VALUE, Step
from datadog_checks.kueue_gang.sources.collector import Collector, Reading
from lab import blockers
from lab.recorded import scenario, side_by_side
from lab.replay import ReplayServer
from tests.model import build

RED, GREEN, YELLOW, END = "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
NO_STEP = "to unblock: no single step that the fit engine could verify"


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the environment that the command looks at is set."""
    for name in ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def deadlock() -> Iterator[str]:
    """Serve two gangs that hold each other's GPUs."""
    with ReplayServer(scenario("8-deadlock")) as server:
        yield server.url


@pytest.fixture(scope="module")
def several() -> Iterator[str]:
    """Serve gangs of every kind."""
    with ReplayServer(side_by_side()) as server:
        yield server.url


def shown(capsys: pytest.CaptureFixture[str], url: str, *arguments: str) -> str:
    """Return what the command prints."""
    assert main(["status", "--url", url, *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def table_of(text: str) -> list[dict[str, str]]:
    """Return the rows of the table of all gangs by column; cells have no two spaces in a row."""
    heading, *rows = text[text.index("NAMESPACE") :].partition("\n\n")[0].splitlines()
    names = re.split(r"\s+", heading)
    return [dict(zip(names, re.split(r"\s{2,}", row), strict=True)) for row in rows]


# --- one gang --------------------------------------------------------------------------------------------------------


def test_one_gang_as_text(deadlock: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What it is, what keeps it from running, the member that the others wait for, what would help, each member."""
    text = shown(capsys, deadlock, "moe/moe-a")
    head, _, members = text.partition("\n\n")
    lines = head.splitlines()
    assert re.fullmatch(r"moe/moe-a  partial for \d+s", lines[0])
    assert lines[1:4] == [
        "  kueue, job, queue moe-queue of moe-cq",
        "  2 of 3 required members are up; it holds 16 GPUs, 16 of them idle",
        "  blocker: capacity, deadlocked with another gang",
    ]
    assert re.match(r"  laggard: moe-a-2-qb6m2 is unschedulable for \d+s: 0/4 nodes are available: ", lines[4])
    assert lines[5:] == ["  to unblock: free the 16 GPUs that gang moe/moe-b holds, which is partial"]
    heading, *rows = members.splitlines()
    assert heading.split() == ["MEMBER", "PODSET", "STATE", "NODE", "GPUS", "FOR", "WHY"]
    assert [row.split()[0] for row in rows] == ["moe-a-2-qb6m2", "moe-a-0-r9rf7", "moe-a-1-wfx4p"]


def test_a_gang_that_runs_has_no_blocker(several: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a blocker nor a laggard nor a step is told of it; its members are."""
    text = shown(capsys, several, "ml-research/tokenizer-ft")
    assert not re.search(r"blocker|laggard|unblock", text)
    assert len(re.findall(r"^tokenizer-ft-\d", text, re.MULTILINE)) == 3


def test_where_nothing_helps_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Two more nodes are needed, and no gang holds GPUs: no single step would do."""
    with ReplayServer(scenario("4-kueue-partial")) as server:
        assert NO_STEP in shown(capsys, server.url, "nlp/gpt-neo")


def test_one_gang_as_json(deadlock: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The same as JSON, of that gang alone, with each member; a step has its parts and its text."""
    (found,) = json.loads(shown(capsys, deadlock, "moe/moe-a", "--json"))["gangs"]
    assert (found["gang"], found["blocker"], found["deadlocked"]) == ("moe-a", "capacity", True)
    assert found["laggard"]["name"] == "moe-a-2-qb6m2"
    assert found["unblock"] == [
        {
            "action": "free_gpus",
            "subject": "moe/moe-b",
            "amount": 16,
            "state": "partial",
            "text": "free the 16 GPUs that gang moe/moe-b holds, which is partial",
        }
    ]
    assert [one["member_state"] for one in found["member_list"]] == ["unschedulable", "ready", "ready"]


def test_all_gangs_as_json(several: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each has its blocker, None where it runs, and at most the cheapest step; members are told by class only."""
    found = json.loads(shown(capsys, several, "--json"))["gangs"]
    assert len(found) == 14
    for one in found:
        assert (one["blocker"] is None) == (one["gang_state"] in UNBLOCKED)
        assert (one["laggard"] is None) or one["blocker"]
        assert len(one["unblock"]) <= 1
        assert "member_list" not in one


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("moe/nope", "there is no gang nope in namespace moe; there are moe-a, moe-b"),
        ("nope/moe-a", "there is no gang moe-a in namespace nope; there are gangs in moe"),
    ],
)
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_an_unknown_gang(
    deadlock: str, capsys: pytest.CaptureFixture[str], name: str, told: str, more: list[str]
) -> None:
    """The exit code is 1; the one line on stderr says what gangs there are, and nothing is printed."""
    assert main(["status", "--url", deadlock, name, *more]) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"error: {told}\n")


@pytest.mark.parametrize("name", ["moe-a", "/moe-a", "moe/", ""])
def test_what_is_no_name_of_a_gang(deadlock: str, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """It is a usage error: namespace and name are needed."""
    with pytest.raises(SystemExit) as caught:
        main(["status", "--url", deadlock, name])
    assert caught.value.code == 2
    assert "give NAMESPACE/GANG" in capsys.readouterr().err


def test_colours(deadlock: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The state as in the table, the blocker red, the laggard yellow, a step green; without colour the same text."""
    plain = shown(capsys, deadlock, "moe/moe-a")
    monkeypatch.setenv("FORCE_COLOR", "1")
    painted = shown(capsys, deadlock, "moe/moe-a")
    assert f"blocker: {RED}capacity, deadlocked with another gang{END}" in painted
    assert f"laggard: {YELLOW}moe-a-2-qb6m2 is unschedulable" in painted
    assert f"to unblock: {GREEN}free the 16 GPUs that gang moe/moe-b holds, which is partial{END}" in painted
    assert f"{RED}partial for " in painted
    assert "\x1b" not in plain

    def timeless(text: str) -> str:
        return re.sub(r"\d+s\b", "", re.sub(r"\x1b\[\d+m", "", text))

    assert timeless(painted).split() == timeless(plain).split()


def test_members_fit_into_a_narrow_terminal(
    deadlock: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of members are cut, since what is cut is the long text at their end; the lines above are read, and wrap."""
    monkeypatch.setenv("COLUMNS", "60")
    head, _, members = shown(capsys, deadlock, "moe/moe-a").partition("\n\n")
    rows = members.splitlines()
    assert max(map(len, rows)) == 60
    assert ELLIPSIS in members
    assert all(row.split()[2] in {"STATE", "unschedulable", "ready"} for row in rows)
    assert ELLIPSIS not in head
    assert "No preemption victims found" in head


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (
            Step("touch_pod_group", "a/b"),
            "touch PodGroup a/b (an annotation will do): its pods fit and are not tried again",
        ),
        (
            Step("label_node", "n0", (("x/rack", "r1"), ("x/row", ANY_VALUE))),
            "label node n0, if it stands there: x/rack=r1, x/row=<any value>",
        ),
        (Step("uncordon_node", "n0"), "uncordon node n0, if it is fit for work"),
        (
            Step("remove_pods", "n0", resource="nvidia.com/gpu", amount=8),
            "remove the pods that do not go from node n0: they hold 8 nvidia.com/gpu",
        ),
        (
            Step("raise_quota", "cq", flavor="h100", resource="nvidia.com/gpu", amount=8),
            "raise the quota of nvidia.com/gpu in flavor h100 of ClusterQueue cq by 8",
        ),
        (
            Step("free_gpus", "a/b", amount=16, state="running"),
            "free the 16 GPUs that gang a/b holds, which is running",
        ),
    ],
)
def test_each_step_as_text(step: Step, text: str) -> None:
    """Each says what to do to which object, and no part of it is left out."""
    assert gang.said(step) == text
    told = gang.step_json(step)
    assert (told["action"], told["subject"], told["text"]) == (step.action, step.subject, text)
    assert told.get("labels", {}) == dict(step.labels)


def test_three_steps_at_most_are_text() -> None:
    """Of four gangs that would do three are shown, the smallest first."""
    objects: list[dict[str, Any]] = []
    for index in range(4):
        tie = build.of_group(f"g{index}")
        objects += [
            *(build.node(f"n{index}-{number}") for number in range(2)),
            build.pod_group(f"g{index}", 2),
            *(build.ready(f"g{index}-{number}", tie, f"n{index}-{number}") for number in range(2)),
        ]
    objects += [
        build.pod_group("train", 2),
        *(build.unscheduled(f"train-{number}", build.of_group("train"), build.NO_GPU) for number in range(2)),
    ]
    picture, near = blockers.shown(*objects)
    assert [step.subject for step in near.steps] == [f"team/g{index}" for index in range(4)]
    text = gang.text([near], picture.now, colour=False, width=None)
    assert re.findall(r"to unblock: free the 16 GPUs that gang team/(g\d) holds", text) == ["g0", "g1", "g2"]


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_the_last_sight_of_a_gang_stays(
    deadlock: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    """While watching, pods that cannot be read any more leave the gang as it was last seen."""
    sights: list[str] = []
    collect = Collector.collect

    def lapsing(self: Collector) -> Reading:
        reading = collect(self)
        if sights:
            reading.changes.unread = {**reading.changes.unread, "pods": "stale"}
        return reading

    def slept(_seconds: float) -> None:
        sights.append(capsys.readouterr().out)
        if len(sights) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Collector, "collect", lapsing)
    monkeypatch.setattr(time, "sleep", slept)
    assert main(["status", "--url", deadlock, "moe/moe-a", "--watch", *more]) == 130
    assert "moe-a-2-qb6m2" in sights[0]
    assert sights[1].partition('"sources"')[0] == sights[0].partition('"sources"')[0]


# --- the table of all gangs ------------------------------------------------------------------------------------------


def test_the_column_blocker(several: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each gang that does not run has its blocker there, the others a dash."""
    for row in table_of(shown(capsys, several)):
        assert (row["BLOCKER"] == "-") == (row["STATE"] in UNBLOCKED), row


def test_a_deadlock_is_in_the_column(deadlock: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Behind the blocker of each gang of it."""
    assert [row["BLOCKER"] for row in table_of(shown(capsys, deadlock))] == ["capacity, deadlock"] * 2


@pytest.mark.parametrize("columns", [200, 110, 80])
def test_the_blocker_stays_in_a_narrow_terminal(
    deadlock: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """Other columns are dropped and cut before it: why a gang does not run is what the table is read for.

    Where 60 columns are not enough for that, it is cut as the last one.
    """
    monkeypatch.setenv("COLUMNS", str(columns))
    text = shown(capsys, deadlock)
    rows = text[text.index("NAMESPACE") :].partition("\n\n")[0].splitlines()
    assert all("capacity, deadlock" in row for row in rows[1:])
    assert max(map(len, rows)) <= columns
