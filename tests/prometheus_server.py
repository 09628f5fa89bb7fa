# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A real Prometheus server that scrapes what a test names, on a port of its own.

The binary is what `.ci/prometheus` finds or fetches. Its targets are static, with the labels that service discovery of
Kubernetes would have given them.
"""

import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import requests
import yaml

from tests.live import until

ROOT: Final = Path(__file__).parent.parent
#: Seconds between two scrapes.
SCRAPES: Final = 0.5


class Target(NamedTuple):
    """What is scraped: `host:port`, and the labels of its series."""

    address: str
    labels: Mapping[str, str]


def binary() -> str:
    """Return the path of a Prometheus server, which is fetched where there is none."""
    found = subprocess.run([ROOT / ".ci" / "prometheus"], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


class Prometheus:
    """A server that keeps its data in `folder`. Use it as a context manager; `url` is where it answers."""

    def __init__(self, command: str, folder: Path, targets: Sequence[Target]) -> None:
        """Write the configuration."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        jobs = {
            "job_name": "pods",
            # As it is by default: the labels of a target win, and those that an exporter gives become exported_*.
            "honor_labels": False,
            "static_configs": [{"targets": [one.address], "labels": dict(one.labels)} for one in targets],
        }
        scrapes = f"{SCRAPES * 1000:g}ms"
        configuration = folder / "prometheus.yml"
        configuration.write_text(
            yaml.safe_dump(
                {"global": {"scrape_interval": scrapes, "scrape_timeout": scrapes}, "scrape_configs": [jobs]},
            )
        )
        self.url = f"http://{address}"
        self._command = [
            *(command, f"--config.file={configuration}", f"--storage.tsdb.path={folder / 'data'}"),
            *(f"--web.listen-address={address}", "--log.level=warn"),
        ]
        self._log = folder / "prometheus.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start; return once it answers queries."""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            until(self._is_ready, self._log.read_text, seconds=30)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self._end()

    def query(self, query: str) -> list[dict[str, Any]]:
        """Return the series of an instant query, each with `metric` and `value`."""
        answer = requests.get(f"{self.url}/api/v1/query", {"query": query}, timeout=5).json()
        assert answer["status"] == "success", answer
        return list(answer["data"]["result"])

    def _is_ready(self) -> bool:
        with suppress(requests.RequestException):
            return requests.get(f"{self.url}/-/ready", timeout=1).ok
        return False

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
