# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Any number of pods that serve metrics, in one process: each has an address of its own and all have one port.

The addresses are those of 127.0.0.0/8, which are all this machine. Which pod is asked the Host header tells. A pod
serves the page of its address, or is sick in one of the ways of `http_faults`. The page of dcgm-exporter is here too,
in the size that it has on a node.

    with Exporters({"127.1.0.1": page(...)}) as pods:
        ...  # ask 127.1.0.1 at pods.port
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final

from lab.http_faults import NOT_FOUND, Answer, Fault, FaultyServer, Query, exposition

#: The first address of the pods; below are the machine's own.
FIRST: Final = IPv4Address("127.1.0.1")
#: Series of a page beside those that count: dcgm-exporter has twenty to thirty, and a distribution each of Go's own.
OTHERS: Final = 25

Page = bytes | Callable[[], bytes]


class Exporters(FaultyServer):
    """The pods. `pages` and `sick` (what goes wrong), by address, may be changed while it runs."""

    def __init__(
        self,
        pages: Mapping[str, Page] = {},
        *,
        token: str | None = None,
        certificate: Path | None = None,
    ) -> None:
        """Open a port on all addresses of this machine."""
        super().__init__(token=token, certificate=certificate, host="0.0.0.0")  # noqa: S104 - all of 127.0.0.0/8
        self.pages: dict[str, Page] = dict(pages)
        self.sick: dict[str, Fault] = {}

    def now(self) -> datetime:
        """Return the time."""
        return datetime.now(UTC)

    def sickness(self, headers: Mapping[str, str]) -> Fault | None:
        """Return what goes wrong with the pod that is asked."""
        return self.sick.get(_pod(headers))

    def answer(self, path: str, query: Query, headers: Mapping[str, str]) -> Answer:
        """Return the page of the pod that is asked."""
        del query
        if not self.admits(headers):
            return Answer(401, b"Unauthorized\n", "text/plain")
        page = self.pages.get(_pod(headers)) if path == "/metrics" else None
        return NOT_FOUND if page is None else exposition(page if isinstance(page, bytes) else page())

    def asked(self) -> list[str]:
        """Return the addresses that were asked, in order."""
        return [_pod(request.headers) for request in self.log]


def _pod(headers: Mapping[str, str]) -> str:
    return headers.get("Host", "").partition(":")[0]


def addresses(number: int) -> list[str]:
    """Return so many addresses of pods."""
    return [str(FIRST + place) for place in range(number)]


def pod(name: str, ip: str, labels: Mapping[str, str], namespace: str = "gpu-operator") -> dict[str, Any]:
    """Return a pod that runs at an address."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
        "spec": {"containers": [{"name": "exporter"}]},
        "status": {"phase": "Running", "podIP": ip},
    }


def dcgm(node: str, gpus: Iterable[tuple[str, str, float]], *, others: int = OTHERS) -> bytes:
    """Return the page of dcgm-exporter on a node: (namespace, pod, ratio of activity) of its GPUs, in their order."""
    devices = list(gpus)
    names = ["DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL", *(f"DCGM_FI_OTHER_{n}" for n in range(others))]
    lines = []
    for name in names:
        lines += [f"# HELP {name} What it is.", f"# TYPE {name} gauge"]
        for number, (namespace, holder, ratio) in enumerate(devices):
            value = ratio * 100 if name.endswith("_UTIL") else ratio
            lines.append(
                f'{name}{{gpu="{number}",UUID="GPU-{node}-{number}",pci_bus_id="00000000:0{number}:00.0",'
                f'device="nvidia{number}",modelName="NVIDIA H100 80GB HBM3",Hostname="{node}",container="main",'
                f'namespace="{namespace}",pod="{holder}"}} {value:g}'
            )
    return ("\n".join(lines) + "\n").encode()
