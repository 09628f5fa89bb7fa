# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What `kueue-gang status` does with folders, texts and streams that are not as they should be."""

import io
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from datadog_checks.kueue_gang.commands import main
from datadog_checks.kueue_gang.commands.terminal import cut, plain, show
from tests.model.build import TIMEOUT, Json, bound, node, of_group, pod_group, ready, unscheduled

ROOT = Path(__file__).resolve().parent.parent
NOW = "2026-01-31T12:00:00Z"
FILES = {"Pod": "pods", "Node": "nodes", "PodGroup": "podgroups.scheduling.x-k8s.io"}
GROUP = of_group("train")
CLUSTER = [node("n0"), node("n1"), pod_group("train", 2), ready("train-0", GROUP, "n0")]


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the environment that the command looks at is set."""
    for name in ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)


def folder(path: Path, *objects: Json, now: str | None = NOW) -> str:
    """Write objects as recorded lists; return the folder."""
    for kind, name in FILES.items():
        items = [one for one in objects if one["kind"] == kind]
        (path / f"{name}.json").write_text(json.dumps({"metadata": {"resourceVersion": "5"}, "items": items}))
    if now is not None:
        (path / "now.txt").write_text(now)
    return str(path)


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """Return what the command prints, on stdout or where it fails on stderr."""
    assert main(["status", *arguments]) == code
    captured = capsys.readouterr()
    assert (captured.out if code else captured.err) == ""
    return captured.err if code else captured.out


# --- what cannot be read or understood is told -----------------------------------------------------------------------


def test_objects_that_cannot_be_understood_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the table and beside a gang, as sources that are down are; the gang that may have that pod is not judged."""
    strange: Json = ready("train-1", GROUP, "n1")
    strange["status"]["phase"] = "Dancing"
    nodes: list[Json] = [{**node(f"x{index}"), "spec": 5} for index in (0, 1)]
    path = folder(tmp_path, *CLUSTER, strange, *nodes)
    for arguments in ((), ("team/train",)):
        lines = said(capsys, "--from", path, *arguments).splitlines()
        assert "not understood: 1 pod: team/train-1" in lines
        assert "not understood: 2 nodes: x0, x1" in lines
        assert any("ambiguous" in line for line in lines)
        assert not any("blocker: " in line or "idle: " in line for line in lines)


def test_a_gang_is_not_missed_while_pods_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody knows what gangs there are: the error is why the pods could not be read."""
    path = folder(tmp_path, *CLUSTER)
    (tmp_path / "pods.json").write_text("")
    told = said(capsys, "--from", path, "team/train", code=1)
    assert told.startswith("error: pods could not be read; down: pods: ")
    assert "there are no gangs" not in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--url", "http://127.0.0.1:1"), r"pods could not be read\n\n(?s:.*)down: pods: .*refused"),
        (("--from", "FOLDER"), r"there is no gang nope in namespace team; there is train\n"),
    ],
)
def test_a_watched_gang_that_is_not_there_is_told(
    arguments: tuple[str, ...],
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may come, so the watch goes on; what is shown until then is why there is nothing to see."""

    def stop(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", stop)
    path = folder(tmp_path, *CLUSTER)
    given = [path if one == "FOLDER" else one for one in arguments]
    assert main(["status", *given, "--watch", "1", "team/nope"]) == 130
    assert re.match(told, capsys.readouterr().out)


# --- the moment of a folder ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("now", ["", "yesterday", "2026-13-01T00:00:00Z", "\xff", "0001-01-01T00:00:00"])
def test_a_now_that_is_no_time_is_an_error(now: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It names the file and what it should hold."""
    path = folder(tmp_path, *CLUSTER)
    (tmp_path / "now.txt").write_bytes(now.encode("latin-1"))
    (line,) = said(capsys, "--from", path, code=1).splitlines()
    assert line.startswith(f"error: recorded objects: {tmp_path / 'now.txt'} holds no time; ")
    assert "RFC 3339, such as 2026-01-31T12:00:00Z" in line


def test_without_a_now_the_ages_are_said_to_be_assumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are as of the newest file, which may have been copied a moment ago."""
    path = folder(tmp_path, *CLUSTER, now=None)
    for file in tmp_path.iterdir():
        os.utime(file, (1, 1_800_000_000))
    line = "no now.txt: ages are as of 2027-01-15T08:00:00Z, when the newest file was written"
    for arguments in ((), ("team/train",)):
        assert line in said(capsys, "--from", path, *arguments).splitlines()
    (tmp_path / "now.txt").write_text(NOW)
    assert "now.txt" not in said(capsys, "--from", path)


# --- texts of others -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("as it is: \xe9 \u65e5", "as it is: \xe9 \u65e5"),
        ("a\nb\tc\r\u2028d", "a b c  d"),
        ("\x1b[2J\x1b]0;x\x07\x9b1m\x7f", "?[2J?]0;x??1m?"),
        ("\u202edesrever", "?desrever"),
    ],
)
def test_plain_text_steers_no_terminal(text: str, told: str) -> None:
    """Line breaks are spaces; what is not to be seen, such as ESC or a change of direction, is a question mark."""
    assert plain(text) == told


def test_foreign_texts_are_shown_plain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts of conditions and names, in the table, from near and in errors; the command's own colours stay."""
    evil = "x\ny\x1b[2J\x1b]0;t\x07"
    waiting = {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": evil, "message": evil}}}]}
    pods: list[Json] = [
        bound("train-0", GROUP, "n0", status=waiting),
        unscheduled("train-1", GROUP, f"{TIMEOUT} {evil}"),
        ready(f"lone{evil}", of_group(evil), "n1"),
    ]
    path = folder(tmp_path, node("n0"), node("n1"), pod_group("train", 2), *pods)
    for colour in ("0", "1"):
        monkeypatch.setenv("FORCE_COLOR", colour)
        shown = [said(capsys, "--from", path, *more) for more in ((), ("team/train",), (f"team/{evil}",))]
        shown.append(said(capsys, "--from", path, f"team/no{evil}", code=1))
        for text in shown:
            assert "x y?[2J" in text
            assert not re.search(r"\x1b(?!\[\d+m)|\x07", text)
            assert not any(line.startswith("y") for line in text.splitlines())


# --- streams ---------------------------------------------------------------------------------------------------------


def test_an_encoding_without_the_ellipsis() -> None:
    """Dots take its place in the same width; other characters are told by their number."""
    text = "|".join(["", cut("abcdefghij", 6), cut("\xe9", 3), ""])
    for encoding, told in (("utf-8", text), ("ascii", "|abc...|\\xe9|"), ("latin-1", "|abc...|\xe9|")):
        raw = io.BytesIO()
        stream = io.TextIOWrapper(raw, encoding=encoding, newline="")
        show(text, stream)
        assert raw.getvalue().decode(encoding) == f"{told}\n"
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="utf-8", newline="")
    show("\udcff", stream)
    assert raw.getvalue() == b"\\udcff\n"


@pytest.mark.parametrize(
    ("redirection", "told"),
    [
        (">&-", "error: standard output is closed"),
        ("> /dev/full", "error: standard output cannot be written: No space left on device"),
    ],
)
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_what_cannot_be_written_is_an_error(redirection: str, told: str, more: list[str], tmp_path: Path) -> None:
    """In one line, with exit code 1."""
    command = [sys.executable, "-m", "datadog_checks.kueue_gang", "status", "--from", folder(tmp_path, *CLUSTER), *more]
    shell: Any = ["sh", "-c", f'exec "$@" {redirection}', "sh", *command]
    ended = subprocess.run(shell, check=False, capture_output=True, text=True, cwd=ROOT, env=dict(os.environ))
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", f"{told}\n")
