# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A real Prometheus server between the pods and the check: by a query the check sees what it sees by scraping.

The server scrapes a real training loop, and the text of a dcgm-exporter, as it does by default: without honor_labels,
so that the labels of the exporter's own pod win, and those of the pod that has the GPU become exported_*.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from datadog_checks.base.stubs.aggregator import AggregatorStub

from lab.http_faults import Answer, FaultyServer, Query, exposition
from lab.training_loop import COUNTER, TrainingLoop
from tests.live import until
from tests.model.build import GANG_SCHEDULER, Json, node, of_group, pod_group, ready
from tests.prometheus_server import SCRAPES, Prometheus, Target, binary
from tests.sent import Sent
from tests.trained import GANG, INTERVAL, SELECTOR, STALLED_AFTER, Runs, both, cluster, near, stalls, throughput

pytestmark = pytest.mark.prometheus

RANKS: Final = 3
#: Seconds that the query takes its rates over.
WINDOW: Final = 4
INACTIVE_AFTER: Final = 3


@pytest.fixture(scope="session")
def command() -> str:
    """Return the path of the server's binary."""
    return binary()


# --- throughput ------------------------------------------------------------------------------------------------------


def test_a_query_tells_what_scraping_tells(command: str, tmp_path: Path, aggregator: AggregatorStub) -> None:
    """Both ways in one check: the same throughput within 2 %, that of the loop; the same stall; the same recovery."""
    with TrainingLoop(RANKS, tmp_path) as loop:
        targets = [
            Target(f"{address}:{loop.port}", {"namespace": "team", "pod": f"{GANG}-{rank}"})
            for rank, address in enumerate(loop.addresses)
        ]
        with Prometheus(command, tmp_path, targets) as prometheus, cluster(loop.addresses) as server:
            of_query = {
                "prometheus_url": prometheus.url,
                "query": f"sum by (namespace, pod) (rate({COUNTER}[{WINDOW}s]))",
                "unit": "samples",
                "stalled_after_seconds": STALLED_AFTER,
            }
            of_pods = {
                "label_selector": SELECTOR,
                "port": loop.port,
                "metric": COUNTER,
                "unit": "samples",
                "timeout": 1,
                "stalled_after_seconds": STALLED_AFTER,
            }
            with (
                Runs(aggregator, server, training=[of_query]) as asked,
                Runs(aggregator, server, training=[of_pods]) as scraped,
            ):
                # The server begins to scrape after five seconds, and before the window is full the rate is too low.
                full = f"count_over_time({COUNTER}[{WINDOW}s]) >= {WINDOW / SCRAPES:g}"
                until(lambda: len(prometheus.query(full)) == RANKS, seconds=30)
                until(lambda: both(asked, scraped, throughput))
                number = int(8 / INTERVAL)
                for _ in range(number):
                    both(asked, scraped, throughput)
                # Of what the loop counted in the time that each rate is of: since the run before, and in the window.
                moments, windows = scraped.started[-number - 1 :], asked.started[-number - 1 :]
                by_pods = scraped.mean("gang.throughput", moments, unit="samples")
                by_query = asked.mean("gang.throughput", windows, unit="samples")
                counted = loop.rate(moments[0], moments[-1])
                in_windows = sum(loop.rate(ended - WINDOW, ended) for ended in windows[1:]) / number
                assert by_pods == near(counted)
                assert by_query == near(in_windows)
                # Those times are not quite the same, and on a busy machine the loop has its ups and downs.
                assert by_query / in_windows == near(by_pods / counted)
                assert [sent for sent in [*asked.all, *scraped.all] if stalls(sent)] == []

                stopped = loop.stop(0)
                until(lambda: both(asked, scraped, hangs), seconds=40)
                promised = max(STALLED_AFTER, 3 * scraped.longest) + 4 * scraped.longest
                assert STALLED_AFTER - scraped.longest <= scraped.first(hangs, stopped) - stopped <= promised
                # The rate of the last seconds is zero once none of them had a step, and that must last. Until then it
                # falls, and for a moment the gang is just slow.
                took = asked.first(hangs, stopped) - stopped
                assert STALLED_AFTER + WINDOW - SCRAPES - asked.longest <= took <= promised + WINDOW + SCRAPES

                loop.go_on(0)
                until(lambda: both(asked, scraped, lambda sent: not stalls(sent)), seconds=20)


def hangs(sent: Sent) -> bool:
    """Tell whether the gang makes no progress."""
    return stalls(sent) == {"no_progress": 1}


# --- activity --------------------------------------------------------------------------------------------------------


class Exporter(FaultyServer):
    """A dcgm-exporter: whatever its text says."""

    text = ""

    @property
    def address(self) -> str:
        """Its host and port."""
        return self.url.removeprefix("http://")

    def now(self) -> datetime:
        """Return the time."""
        return datetime.now(UTC)

    def answer(self, path: str, query: Query, headers: Mapping[str, str]) -> Answer:
        """Return the text."""
        del path, query, headers
        return exposition(self.text.encode())


HEAD: Final = {
    "DCGM_FI_DEV_GPU_UTIL": "GPU utilization (in %).",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "Ratio of time the graphics engine is active.",
}


def text(*samples: tuple[str, Mapping[str, str], float]) -> str:
    """Return an exposition of dcgm-exporter: name, labels and value of each sample."""
    lines = []
    for name, about in HEAD.items():
        lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge"]
        for sample, labels, value in samples:
            if sample == name:
                told = ",".join(f'{key}="{value}"' for key, value in labels.items())
                lines.append(f"{name}{{{told}}} {value}")
    return "\n".join(lines) + "\n"


def gpu(number: int, pod: str, ratio: float, util: float | None = None, mig: str = "") -> list[Any]:
    """Return the samples of a GPU, or of a slice of it: the ratio, and the percentage, which a MIG slice has not."""
    labels = {
        "gpu": str(number),
        "UUID": f"GPU-{number}",
        "device": f"nvidia{number}",
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": "n0",
        **({"GPU_I_PROFILE": "1g.10gb", "GPU_I_ID": mig} if mig else {}),
        "container": "main" if pod else "",
        "namespace": "team" if pod else "",
        "pod": pod,
    }
    found: list[Any] = [("DCGM_FI_PROF_GR_ENGINE_ACTIVE", labels, ratio)]
    return [*found, ("DCGM_FI_DEV_GPU_UTIL", labels, util)] if util is not None else found


MIG: Final = "nvidia.com/mig-1g.10gb"


def gang(name: str, *pods: str, gpus: Any = 1) -> list[Json]:
    """Return a gang whose pods run."""
    tie = of_group(name)
    made = [ready(pod, tie, "n0", gpus=gpus, scheduler=GANG_SCHEDULER) for pod in pods]
    return [pod_group(name, len(pods)), *made]


def test_activity_by_the_default_query(command: str, tmp_path: Path, aggregator: AggregatorStub) -> None:
    """Whose GPUs all rest, whose some, whose slices; a busy GPU, and one without a sample, are never called idle."""
    with Exporter() as exporter:
        exporter.text = text(
            # Busy by one of the two metrics alone: enough to be at work.
            *gpu(0, "busy-0", 0.93, 97),
            *gpu(1, "busy-1", 0.0, 3),
            *gpu(2, "asleep-0", 0.0, 0),
            *gpu(3, "asleep-1", 0.0, 0),
            *gpu(4, "half-0", 0.5, 41),
            *gpu(5, "half-1", 0.0, 0),
            # Two slices of one GPU, which belong to two pods.
            *gpu(6, "sliced-0", 0.8, mig="7"),
            *gpu(6, "sliced-1", 0.0, mig="8"),
            # Nobody's: it is no sample of any pod, and the exporter's own pod has no GPU.
            *gpu(7, "", 0.0, 0),
        )
        exporter_pod = {"namespace": "gpu-operator", "pod": "nvidia-dcgm-exporter-x7k2p", "container": "exporter"}
        targets = [Target(exporter.address, exporter_pod)]
        with Prometheus(command, tmp_path, targets) as prometheus, cluster([]) as server:
            server.apply_all(
                [
                    node("n0", {"nvidia.com/gpu": 8, MIG: 7}),
                    *gang("busy", "busy-0", "busy-1"),
                    *gang("asleep", "asleep-0", "asleep-1"),
                    *gang("half", "half-0", "half-1"),
                    *gang("unseen", "unseen-0", "unseen-1"),
                    *gang("sliced", "sliced-0", "sliced-1", gpus={MIG: 1}),
                ]
            )
            until(lambda: prometheus.query("DCGM_FI_DEV_GPU_UTIL"), seconds=30)
            activity = {"prometheus_url": prometheus.url}
            options: dict[str, Any] = {"activity": activity, "inactive_after_seconds": INACTIVE_AFTER}
            with Runs(aggregator, server, **options) as runs:
                until(lambda: stalls(runs.next()), seconds=20)
                assert runs.started[-1] - runs.started[0] >= INACTIVE_AFTER - INTERVAL
                until(lambda: stalls(runs.next()) == {"all_idle": 1, "some_idle": 2}, seconds=20)
                seen = runs.all[-1]
                # asleep 2 and half 1; of the slices 1.
                assert inactive(seen) == {"nvidia.com/gpu": 3, MIG: 1}
                assert idle_of(seen) == {"asleep": 2, "half": 1, "sliced": 1}
                assert seen.only("unobservable", signal="activity", reason="no_sample") == 1
                assert seen.only("source.up", api_source="activity") == 1

                # Who works again is not idle from the first sample on.
                exporter.text = text(*gpu(2, "asleep-0", 0.4, 30), *gpu(3, "asleep-1", 0.4, 30))
                until(lambda: "asleep" not in idle_of(runs.next()), seconds=20)


def inactive(sent: Sent) -> dict[str, float]:
    """Return the GPUs that are idle since nothing runs on them, by resource."""
    return sent.by("gpus.idle", "gpu_resource", idle_reason="inactive")


def idle_of(sent: Sent) -> dict[str, float]:
    """Return the idle GPUs of each gang that has any."""
    return sent.by("gang.gpus_idle", "gang")
