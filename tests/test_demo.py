# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The rules of the demo: it plays a scenario, works for every recorded cluster, and shows what it promises."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from datadog_checks.kueue_gang.catalog import OWN
from datadog_checks.kueue_gang.commands import main as kueue_gang
from lab import demo, screen
from lab.recorded import SCENARIOS, scenario, side_by_side
from lab.replay import CAPTURES, moments
from lab.screen import Screen

ROOT = Path(__file__).resolve().parent.parent


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the demo in this process; return its exit code."""
    monkeypatch.setattr(sys, "argv", ["demo", *arguments])
    # A test runner may set it for its own output.
    monkeypatch.delenv("COLUMNS", raising=False)
    return demo.main()


def test_gangs_of_every_kind_are_there(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """The clusters side by side have the gangs that people come for, with the scheduler's word on who waits."""
    assert run(monkeypatch, "--recorded") == 0
    shown = capsys.readouterr().out
    for state in ("partial", "degraded", "starting", "waiting", "queued", "finishing", "running"):
        assert re.search(rf"^\S+ +\S+ +\S+ +\S+ +{state} ", shown, re.MULTILINE), state
    assert "9 waiting_permit" in shown
    assert "kueue_gang.scheduler.permit_waiting" in shown
    assert "\x1b" not in shown


def test_everything_is_shown_on_request(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """--all shows each metric with each of its series, and those of Kueue too."""
    assert run(monkeypatch, "--recorded", "--all") == 0
    shown = capsys.readouterr().out
    promised = re.search(r"(\d+) metrics of its own in (\d+) series", shown)
    assert promised
    listed = shown[promised.end() :]
    headings = re.findall(r"^kueue_gang\.(\S+)", listed, re.MULTILINE)
    assert len(set(headings)) == len(headings)
    own = [name for name in headings if name in OWN]
    assert len(own) == int(promised[1])
    assert len(headings) > len(own)
    values = re.split(r"^kueue_gang\.", listed, flags=re.MULTILINE)[1:]
    assert sum(len(block.splitlines()) - 1 for block in values[: len(own)]) == int(promised[2])


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_can_be_shown(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each recorded cluster is served with the endpoints that it has, and the check runs on it."""
    assert run(monkeypatch, "--recorded", name) == 0


def test_the_scenarios_are_the_recorded_ones() -> None:
    """Each archive of a cluster has a line in the list, and each line an archive and a moment of it."""
    archives = {path.name.removesuffix(".tar.xz") for path in CAPTURES.glob("[0-9]*.tar.xz")}
    assert set(SCENARIOS) == archives
    for name, (moment, _) in SCENARIOS.items():
        assert moment in moments(CAPTURES / f"{name}.tar.xz")


@pytest.mark.parametrize("name", ["no-such", "3-degraded/t9", "2-partial-bound/t1"])
def test_an_unknown_scenario_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """A name or a moment that was not recorded is refused with those that were."""
    with pytest.raises(ValueError, match=r"there (are|is)"):
        scenario(name)
    assert run(monkeypatch, "--recorded", name) == 1
    assert capsys.readouterr().err.startswith("error: no ")


def test_the_number_of_a_scenario_may_be_left_out() -> None:
    """Names without their number are names too, also with a moment; no two of them are equal."""
    assert scenario("tas") == scenario("5-tas")
    assert scenario("degraded/t1") == scenario("3-degraded/t1")
    assert len({name.partition("-")[2] for name in SCENARIOS}) == len(SCENARIOS)


def test_a_reader_that_has_seen_enough_ends_it_quietly() -> None:
    """As `| head` does: nothing is said about the pipe that it closed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "lab.demo", "--recorded", "--all"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(20) == 0


def test_a_check_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """Where the check could not read what is served, the demo says so and does not show an empty cluster."""
    monkeypatch.setattr(demo, "instance", lambda _recording, url: {"kube_api_url": f"{url}/nowhere"})
    assert run(monkeypatch, "--recorded") == 1
    assert "Kubernetes API" in capsys.readouterr().err


def test_all_truths_are_kept_side_by_side() -> None:
    """No gang is lost when clusters are put together."""
    names = {gang["name"] for gang in side_by_side().truth["gangs"]}
    for name in ("1-permit-wait", "2-partial-bound", "3-degraded", "10-mixed-healthy", "17-podsets"):
        assert {gang["name"] for gang in scenario(name).truth["gangs"]} <= names


def test_what_is_served_can_be_read_by_status(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """--serve says how to point the command at it, keeps the server up, and ends with Ctrl-C."""
    monkeypatch.delenv("COLUMNS", raising=False)
    command = [sys.executable, "-m", "lab.demo", "--recorded", "--serve"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment) as process:
        assert process.stdout is not None
        said = next(line for line in process.stdout if " status --url " in line)
        assert kueue_gang(said.split("datadog_checks.kueue_gang ")[1].split()) == 0
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
    assert "llama-pretrain" in capsys.readouterr().out


# --- simulated -------------------------------------------------------------------------------------------------------


def test_a_scenario_is_played_as_fast_as_it_can_where_nobody_watches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """The first table, a line whenever something happens, and at the end what mattered most, with what was sent."""
    assert run(monkeypatch, "--until", "30m") == 0
    shown = capsys.readouterr().out
    beginning, _, ending = shown.partition("* The gangs at 0:")
    assert "3 gangs: 3 running" in beginning
    assert "0:20:00  research/bert-large is admitted" in beginning
    assert "event sent: Gang research/bert-large holds GPUs and is not complete" in beginning
    assert re.search(r"^research +bert-large +kueue +research +partial +6/8 +48 +48 ", ending, re.MULTILINE)
    assert re.search(r"^kueue_gang\.gpus\.idle .*\n +48 .*idle_reason:partial$", ending, re.MULTILINE)
    assert "\x1b" not in shown


def test_a_terminal_gets_the_table_in_its_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each moment clears the screen and shows the time, the GPUs as a bar, the table, and what has happened."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    with (tmp_path / "screen").open("w+") as stream:
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
        with Screen("deadlock", stream, speed=0, until=1500) as shown:
            shown.show()
            told = list(shown.end(everything=False))
        stream.seek(0)
        frames = stream.read().split("\x1b[H\x1b[2J")
    assert len(frames) == 1 + 100
    assert "64 busy, 64 idle, 0 other, 0 free" in frames[-1]
    assert "capacity, deadlock" in frames[-1]
    assert "vision/clip-large is deadlocked with another gang" in frames[-1]
    assert any("when it mattered most" in line for line in told)


def test_time_goes_at_the_speed_that_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two minutes before the fault the story begins; from there on each 15 s take a tenth of one second at 150."""
    slept: list[float] = []
    monkeypatch.setattr(screen, "time", SimpleNamespace(monotonic=lambda: 1000.0 + sum(slept), sleep=slept.append))
    with (tmp_path / "screen").open("w") as stream, Screen("deadlock", stream, speed=150, until=1080 + 45) as shown:
        shown.show()
    assert slept == pytest.approx([0.1] * 4)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--scenario", "dead-lock"), "error: no scenario 'dead-lock': did you mean deadlock?"),
        (("--scenario", "5-tas"), "error: 5-tas is a recorded cluster: --recorded 5-tas"),
        (("--scenario", "tas"), "error: tas is a recorded cluster: --recorded tas"),
        (("--until", "soon"), "error: --until: 'soon' is no duration like 1h30m, 45s or 90"),
    ],
)
def test_what_cannot_be_played_is_told(
    arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """With what comes nearest."""
    assert run(monkeypatch, *arguments) == 1
    assert capsys.readouterr().err.strip() == said


def test_a_played_cluster_can_be_read_by_status(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """--serve stops a while after the fault, keeps the cluster up as it lives on, and ends with Ctrl-C."""
    monkeypatch.delenv("COLUMNS", raising=False)
    command = [sys.executable, "-m", "lab.demo", "--serve", "--until", "25m"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment) as process:
        assert process.stdout is not None
        said = next(line for line in process.stdout if " status --url " in line)
        assert kueue_gang(said.split("datadog_checks.kueue_gang ")[1].split()) == 0
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
    assert re.search(r"bert-large +kueue +research +partial", capsys.readouterr().out)
