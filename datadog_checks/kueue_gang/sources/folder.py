# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A folder of recorded lists, read as if it were an API server.

The folder holds the bytes of cluster-wide lists, in itself or in `objects/`, one file a resource: `pods.json`,
`jobs.batch.json`, `podgroups.scheduling.x-k8s.io.json`, `workloads.kueue.x-k8s.io.v1beta2.json`. `kubectl get --raw` of
a list path makes such a file. A resource without a file is not installed. The recording's moment is in `now.txt` (RFC
3339); without one it is when the newest file was written.
"""

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import urllib3

from datadog_checks.kueue_gang.sources.connection import JSON, Connection, Query
from datadog_checks.kueue_gang.sources.errors import SourceError, Target, from_status

FOLDER = Target(
    name="recorded objects",
    credential="check the permissions of the folder",
    tls="",
    wrong="is this a folder of recorded lists (pods.json, nodes.json, ...)?",
)


class FolderConnection(Connection):
    """Answers list paths from files."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Name the folder.

        Raises:
            SourceError: there is no such folder, it holds no list, or its now.txt holds no time.

        """
        super().__init__(FOLDER, 0, clock=clock)
        objects = folder / "objects"
        self._folder = objects if objects.is_dir() else folder
        files = sorted(self._folder.glob("*.json"))
        if not (self._folder / "pods.json").is_file():
            msg = f"{FOLDER.name}: no pods.json in {folder}"
            raise SourceError("invalid", msg, FOLDER.wrong)  # noqa: EM101 - the reason, not the message
        told = _moment(folder / "now.txt")
        written = max(file.stat().st_mtime for file in files)
        #: The moment that was assumed, None where the folder tells it.
        self.assumed = written if told is None else None
        self.clock_offset = (written if told is None else told) - clock()

    def read(
        self,
        path: str,
        query: Query = {},  # noqa: ARG002, B006 - never changed
        *,
        accept: str = JSON,  # noqa: ARG002
        most: int | None = None,  # noqa: ARG002
    ) -> bytes:
        """Return the bytes of the file that holds the list at `path`. Raises SourceError."""
        for name in _names(path):
            file = self._folder / name
            if file.is_file():
                return file.read_bytes()
        raise from_status(FOLDER, path, 404, "no such file")

    def close(self) -> None:
        """Do nothing: files are closed where they are read."""

    def _get(self, path: str, query: Query, accept: str) -> urllib3.BaseHTTPResponse:
        raise NotImplementedError

    def _renew(self) -> bool:
        return False


def _names(path: str) -> tuple[str, ...]:
    """Return the file names for a list path, the most exact first.

    /apis/GROUP/VERSION/PLURAL may be in PLURAL.GROUP.VERSION.json, PLURAL.GROUP.json, and for Kueue's own kinds and
    batch also in PLURAL.json or PLURAL.batch.json.
    """
    parts = path.strip("/").split("/")
    if parts[0] == "api":
        return (f"{parts[-1]}.json",)
    if len(parts) != 4:  # noqa: PLR2004 - apis, group, version, plural
        return ()
    _, group, version, plural = parts
    names = (f"{plural}.{group}.{version}.json", f"{plural}.{group}.json")
    return (*names, f"{plural}.json") if plural not in {"podgroups", "workloads"} else names


def _moment(file: Path) -> float | None:
    """Return the time that a file holds, None where there is none. Raises SourceError."""
    if not file.is_file():
        return None
    try:
        return datetime.fromisoformat(file.read_text().strip()).timestamp()
    except (OSError, OverflowError, ValueError):
        msg = f"{FOLDER.name}: {file} holds no time"
        advice = "give the moment of the recording in RFC 3339, such as 2026-01-31T12:00:00Z, or remove the file"
        raise SourceError("invalid", msg, advice) from None  # noqa: EM101 - the reason, not the message
