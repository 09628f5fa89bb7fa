# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The rules of the command `kueue-gang status`: what it takes, what it shows, and what it says when it cannot."""

import json
import os
import pty
import re
import signal
import stat
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path

import pytest
import yaml

from datadog_checks.kueue_gang.commands import main
from datadog_checks.kueue_gang.sources.collector import Collector, Reading
from lab.apiserver import ApiServer
from lab.replay import ReplayServer
from lab.scenarios import scenario, side_by_side

ROOT = Path(__file__).resolve().parent.parent
COMMAND = (sys.executable, "-m", "datadog_checks.kueue_gang", "status")
#: What a user's own environment would change.
_OWN = ("COLUMNS", "FORCE_COLOR", "KUBECONFIG", "KUBERNETES_SERVICE_HOST", "NO_COLOR")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the environment that the command looks at is set."""
    for name in _OWN:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def several() -> Iterator[ReplayServer]:
    """Serve gangs of every kind."""
    with ReplayServer(side_by_side()) as server:
        yield server


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own."""
    return subprocess.run(
        [*COMMAND, *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        timeout=60,
    )


def kubeconfig(path: Path, url: str, user: Mapping[str, object] | None = None) -> str:
    """Write a kubeconfig for a server; return its path."""
    config = {
        "current-context": "one",
        "clusters": [{"name": "here", "cluster": {"server": url}}],
        "users": [{"name": "me", "user": dict(user or {})}],
        "contexts": [{"name": "one", "context": {"cluster": "here", "user": "me"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


def until(holds: Callable[[], object], what: str) -> None:
    """Wait for something to hold."""
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


# --- what it takes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        *(
            (("--url", url), "such as http://localhost:8001")
            for url in (
                "",
                "localhost:8001",
                "foo",
                "ftp://x",
                "http://[::1",
                "http://x:99999",
                "http://x?y=1",
                "http://",
            )
        ),
        *(
            ((option, value), "more than 0")
            for option in ("--watch", "--timeout")
            for value in ("0", "-1", "-3", "nan", "inf", "1e300", "soon")
        ),
        *(((option, ""), "it is empty") for option in ("-n", "--kubeconfig", "--context", "--from")),
        (("-n", "a,,b"), "it is empty"),
        (("--url", "http://x", "--context", "y"), "without --url"),
        (("--from", "x", "--context", "y"), "without --url and --from"),
        (("--url", "http://x", "--kubeconfig", "y"), "not allowed with"),
        (("-n", "other", "team/train"), "without NAMESPACE/GANG"),
        (("--bogus",), "--bogus"),
    ],
)
def test_what_cannot_be_is_a_usage_error(
    arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 2, and the text shows the usage of the command and what to give."""
    with pytest.raises(SystemExit) as caught:
        main(["status", *arguments])
    assert caught.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("usage: kueue-gang status ")
    assert says in told


@pytest.mark.parametrize("arguments", [["--help"], ["status", "--help"]])
def test_help_has_examples(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Three of them."""
    with pytest.raises(SystemExit):
        main(arguments)
    assert len(re.findall(r"^  kueue-gang status", capsys.readouterr().out, re.MULTILINE)) == 3


def test_a_named_kubeconfig_goes_before_the_pod(
    several: ReplayServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """First KUBECONFIG, then the service account of the pod, then ~/.kube/config; --kubeconfig before all."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path / ".kube" / "config", several.url)
    assert main(["status"]) == 0
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    assert main(["status"]) == 1
    assert "the pod's service account" in capsys.readouterr().err
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path / "named", several.url))
    assert main(["status"]) == 0
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path / "named", "http://127.0.0.1:1"))
    assert main(["status"]) == 1
    assert main(["status", "--kubeconfig", kubeconfig(tmp_path / "other", several.url)]) == 0


# --- what it says when it cannot --------------------------------------------------------------------------------------


def refused(*arguments: str) -> str:
    """Return the only line that the command says where nothing can be read."""
    ended = process(*arguments)
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("error: ")
    for foreign in ("kube_config_path", "kube_api_url", "kube_api_options", "kube_timeout", "it is tried again"):
        assert foreign not in line
    return line


def test_errors_name_the_options_of_the_command(tmp_path: Path) -> None:
    """Not those of the check, and the file that was read; each in one line, whatever libraries would log."""
    path = tmp_path / "config"
    missing = refused("--kubeconfig", str(path), "--context", "prod")
    assert f"context prod of {path}" in missing
    assert f"({path} does not exist)" in missing
    assert "--kubeconfig" in missing
    path.write_text("root:x:0:0:root:/root:/bin/bash\n")
    assert "it is no kubeconfig" in refused("--kubeconfig", str(path))
    with ApiServer() as server:
        secure = server.url.replace("http://", "https://")
        assert "the server speaks plain HTTP: use http://" in refused("--url", secure)
        assert "the server speaks plain HTTP" in refused("--kubeconfig", kubeconfig(path, secure))
        server.token = "secret"
        assert "--url sends no credential" in refused("--url", server.url)
        assert f"the user in {path}" in refused("--kubeconfig", kubeconfig(path, server.url))
        server.token = None
        server.faults = [("/", 503)]
        assert "try it again" in refused("--url", server.url)
        server.faults = [("/", "silent")]
        assert "raise --timeout" in refused("--url", server.url, "--timeout", "0.2")


@pytest.mark.parametrize("plugin", ["echo no-ticket >&2; exit 3", None, 'echo "{}"'])
def test_an_exec_plugin_that_fails_is_told(plugin: str | None, tmp_path: Path) -> None:
    """Its own words are the error, and the server is not asked without a credential."""
    file = tmp_path / "plugin"
    if plugin:
        file.write_text(f"#!/bin/sh\n{plugin}\n")
        file.chmod(stat.S_IRWXU)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(file), "interactiveMode": "Never"}}
    with ApiServer() as server:
        said = refused("--kubeconfig", kubeconfig(tmp_path / "config", server.url, user))
        assert not server.log
    assert {"echo no-ticket >&2; exit 3": "no-ticket", None: "No such file"}.get(plugin, "missing key") in said


# --- watching ---------------------------------------------------------------------------------------------------------


@contextmanager
def watching(out: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command with its output in a file."""
    # A shell that starts the tests in the background has them, and what they start, ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with (
        out.open("wb") as file,
        subprocess.Popen(
            [*COMMAND, *arguments, "--watch", "0.2"],
            stdout=file,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            # Not what a library of the tests put into the environment behind Python's back: readline sets COLUMNS.
            env=dict(os.environ),
        ) as running,
    ):
        try:
            yield running
        finally:
            running.kill()


def test_watching_outlives_failures(tmp_path: Path) -> None:
    """It begins before the server answers, keeps the picture while it does not, goes on, and ends with Ctrl-C."""
    out = tmp_path / "out"
    replay = side_by_side()
    with ReplayServer(replay, [("/", 503)]) as server, watching(out, "--url", server.url) as running:
        until(lambda: "down: pods: " in out.read_text(), "the first failure is shown")
        assert "pods could not be read" in out.read_text()
        assert "it is tried again" in out.read_text()
        server.faults = []
        until(lambda: "llama-pretrain" in out.read_text(), "the gangs are shown")
        until(lambda: "down: " not in out.read_text().rpartition("gangs:")[2], "all is well")
        server.faults = [("/", 503)]
        server.drop()
        seen = len(out.read_text())
        until(lambda: "down: pods: " in out.read_text()[seen:], "the failure is shown")
        last = out.read_text()[seen:].rpartition("gangs: ")[2]
        until(lambda: re.search(r"down: pods: .*\(last read \d+s ago\)", out.read_text()[seen:]), last)
        assert "pods could not be read" not in out.read_text()[seen:]
        assert "llama-pretrain" in last
        assert running.poll() is None
        server.faults = []
        seen = len(out.read_text())
        until(lambda: "down" not in out.read_text()[seen:].rpartition("gangs: ")[2], "it is read again")
        running.send_signal(signal.SIGINT)
        assert running.wait(10) == 130
        assert running.stderr is not None
        assert running.stderr.read() == b""


def test_the_last_picture_stays_when_what_is_known_is_too_old(
    several: ReplayServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also after the time in which the check would go on with what it knows."""
    pictures: list[str] = []
    collect = Collector.collect

    def lapsing(self: Collector) -> Reading:
        reading = collect(self)
        if len(pictures) == 1:
            reading.changes.unread = {**reading.changes.unread, "pods": "stale"}
        return reading

    def slept(_seconds: float) -> None:
        pictures.append(capsys.readouterr().out)
        if len(pictures) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Collector, "collect", lapsing)
    monkeypatch.setattr(time, "sleep", slept)
    assert main(["status", "--url", several.url, "--watch"]) == 130
    assert "llama-pretrain" in pictures[0]
    assert pictures[1] == pictures[0]


# --- what it shows ----------------------------------------------------------------------------------------------------


def shown(several: ReplayServer, *arguments: str, **environment: str) -> str:
    """Return what the command prints."""
    ended = process("--url", several.url, *arguments, **environment)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def rows(text: str) -> list[str]:
    """Return the table: from its heading to the next empty line."""
    return text[text.index("NAMESPACE") :].partition("\n\n")[0].splitlines()


@pytest.mark.parametrize(
    ("columns", "dropped"),
    [(200, ()), (110, ("ENGINE", "QUEUE")), (90, ("QUEUE", "PLACEMENT")), (75, ("QUEUE", "PLACEMENT", "AGE"))],
)
def test_a_table_fits_into_the_terminal(several: ReplayServer, columns: int, dropped: tuple[str, ...]) -> None:
    """Columns go one after the other, then cells are shortened; every gang keeps its row."""
    whole, narrow = rows(shown(several)), rows(shown(several, COLUMNS=str(columns)))
    assert len(narrow) == len(whole)
    assert max(map(len, narrow)) <= columns
    if not dropped:
        assert narrow == whole
    assert set(whole[0].split()) - set(narrow[0].split()) <= {"ENGINE", "QUEUE", "PLACEMENT", "AGE"}
    assert not set(dropped) & set(narrow[0].split())
    assert ("\N{HORIZONTAL ELLIPSIS}" in "".join(narrow)) == (columns < 120)


def test_the_width_of_a_real_terminal_counts(several: ReplayServer) -> None:
    """On a terminal of 80 columns no row of the table wraps, and there is colour."""
    leader, follower = pty.openpty()
    ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm"}
    command = [*COMMAND, "--url", several.url]
    with subprocess.Popen(command, stdin=follower, stdout=follower, cwd=ROOT, env=environment) as running:
        text = b""
        while b"free" not in text.rpartition(b"mig-1g")[2]:
            text += os.read(leader, 65536)
        assert running.wait(20) == 0
    os.close(follower)
    os.close(leader)
    assert b"\x1b[31m" in text
    plain = re.sub(r"\x1b\[\d+m", "", text.decode()).replace("\r", "")
    assert max(map(len, rows(plain))) <= 80


def test_members_come_last(several: ReplayServer) -> None:
    """So that a long cell pads no other row."""
    heading, *others = rows(shown(several))
    assert heading.endswith("MEMBERS")
    assert all(row == row.rstrip() for row in others)


@pytest.mark.parametrize(
    ("environment", "colour"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "0"}, False),
        ({"FORCE_COLOR": ""}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": ""}, True),
    ],
)
def test_colour(several: ReplayServer, environment: dict[str, str], colour: bool) -> None:
    """What is piped has colour only where it is forced; NO_COLOR counts where it is not empty."""
    assert ("\x1b[" in shown(several, **environment)) == colour


def test_namespaces(several: ReplayServer) -> None:
    """Several at once; where there is no gang that is said, and GPUs elsewhere are not said to be of no gang."""
    some = shown(several, "-n", "llm,audio")
    assert {row.split()[0] for row in rows(some)[1:]} == {"llm", "audio"}
    assert rows(some) == rows(shown(several, "-n", "llm", "-n", "audio"))
    assert "of no gang or in other namespaces)" in some
    assert "of no gang)" in shown(several)
    assert shown(several, "-n", "nosuch").startswith("no gangs in namespace nosuch\n\n")
    assert shown(several, "-n", "x,y").startswith("no gangs in namespaces x, y\n\n")


def folder(path: Path, *names: str) -> str:
    """Write lists of a recorded cluster into a folder; return its path."""
    lists = scenario("4-kueue-partial").lists
    for name in names:
        (path / f"{name}.json").write_bytes(lists[name])
    return str(path)


@pytest.mark.parametrize("there", [(), ("podgroups.scheduling.x-k8s.io", "workloads.kueue.x-k8s.io.v1beta2")])
def test_a_folder_with_a_part_of_the_lists_names_the_others(
    there: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fewer files can be fewer gangs: what is not there is told, in the table and as JSON."""
    path = folder(tmp_path, "pods", "nodes", *there)
    assert main(["status", "--from", path]) == 0
    said = capsys.readouterr().out
    (line,) = [line for line in said.splitlines() if line.startswith("not there: ")]
    assert "jobs.batch.json" in line
    for name in ("workloads.kueue.x-k8s.io.json", "podgroups.scheduling.x-k8s.io.json"):
        assert (name in line) == (not there)
    assert "nodes" not in line
    assert line.endswith(": their gangs are not known")
    assert "gang_engines" not in said
    assert main(["status", "--from", path, "--json"]) == 0
    sources = {one["api_source"]: one for one in json.loads(capsys.readouterr().out)["sources"]}
    assert (sources["jobs"]["reason"], sources["jobs"]["error"]) == ("not_installed", None)
