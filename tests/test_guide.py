# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The guides of activity, throughput and cost hold what they show: YAML that loads, and Python that runs.

The parts that need only prometheus_client run for real, in processes of their own, and are scraped over HTTP. The parts
for a framework run on a stand-in that has what they use of it, by the framework's own source: the names of Lightning's
hooks, torchtitan's counter that logging sets to 0, Ray's Counter and the SDK of Kubeflow.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.loaded import load

ROOT = Path(__file__).resolve().parent.parent
GUIDES = ("docs/training.md", "docs/activity.md", "docs/cost.md")

#: Written beside the snippets: what they use of each framework, and no more.
STAND_INS = {
    "lightning/pytorch/callbacks.py": "class Callback: pass",
    "torchtitan/components/metrics.py": """
class MetricsProcessor:
    def __init__(self):
        self.ntokens_since_last_log = 0
        self.parallel_dims = type("ParallelDims", (), {"non_data_parallel_size": 2})()
    def log(self, step, loss, extra_metrics=None):
        self.ntokens_since_last_log = 0
""",
    "torchtitan/train.py": """
from torchtitan.components.metrics import MetricsProcessor
metrics = MetricsProcessor()
for step in range(3):
    metrics.ntokens_since_last_log += 1000
    metrics.log(step, 0.5, extra_metrics={})
""",
    "ray/util/metrics.py": """
import prometheus_client
class Counter:
    def __init__(self, name, description="", tag_keys=None):
        self._counter = prometheus_client.Counter(f"ray_{name}", description)
    def inc(self, value=1.0, tags=None):
        self._counter.inc(value)
""",
    "kubeflow/trainer.py": """
REPORTS = []
def update_trainjob_status(progress_percent=None, estimated_remaining_seconds=None, metrics=None):
    REPORTS.append((progress_percent, metrics))
    return True
""",
}

#: Stands in for a tensor of tokens, for the driver of a snippet.
TENSOR = "class Tensor:\n    def numel(self): return 100\n"


def blocks(language: str) -> list[tuple[str, str, str]]:
    """Return the blocks of a language: the guide, the name in the comment before the block, and the text."""
    pattern = re.compile(rf"(?:<!-- snippet: (\S+) -->\n)?```{language}\n(.*?)```", flags=re.DOTALL)
    return [
        (guide, found[1] or "", found[2])
        for guide in GUIDES
        for found in pattern.finditer((ROOT / guide).read_text(encoding="utf-8"))
    ]


SNIPPETS = {name: text for _, name, text in blocks("python")}
YAMLS = [(guide, yaml.safe_load(text)) for guide, _, text in blocks("yaml")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the snippets, each in the file that its guide names, and the stand-ins."""
    for name, text in {**SNIPPETS, **STAND_INS}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@dataclass(frozen=True)
class Running:
    """A process that runs a driver; `port` is where it serves, None where it does not."""

    port: int | None

    def served(self) -> dict[str, float]:
        """Return what is served now, by the name of the sample."""
        with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        families = text_string_to_metric_families(text)
        return {sample.name: sample.value for family in families for sample in family.samples}


@contextmanager
def running(folder: Path, driver: str, **environment: str) -> Iterator[Running]:
    """Run a driver beside the snippets, at a port that is free; yield when it is through, and let it end after that."""
    code = f"""
import train_rate
real = train_rate.start_http_server
train_rate.start_http_server = lambda port: print(real(0)[0].server_port, flush=True)
{TENSOR}
{driver}
print("done", flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        first = process.stdout.readline()
        port = None if first == "done\n" else int(first)
        if port:
            assert process.stdout.readline() == "done\n"
        yield Running(port)
        process.communicate("\n", timeout=30)
    assert process.returncode == 0


def run(folder: Path, driver: str) -> str:
    """Return what a driver prints, run to its end beside the snippets."""
    command = [sys.executable, "-c", TENSOR + driver]
    done = subprocess.run(command, cwd=folder, env={}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# YAML.


def test_the_guides_have_snippets_of_each_way() -> None:
    """All ways of both options are shown, and every Python block has a name, so that none is left untested."""
    assert "" not in SNIPPETS
    shown = {next(iter(entry)) for _, found in YAMLS for entry in found.get("training", [])}
    assert shown == {"label_selector", "prometheus_url", "train_jobs"}
    assert {next(iter(found["activity"])) for _, found in YAMLS if "activity" in found} == {
        "label_selector",
        "prometheus_url",
    }


@pytest.mark.parametrize(("guide", "found"), YAMLS)
def test_yaml_of_the_guides_loads(guide: str, found: dict[str, Any]) -> None:
    """What is shown as options is accepted by the Agent as it is; the rest is an object of Kubernetes."""
    if "kind" in found:
        assert {"apiVersion", "metadata", "spec"} <= set(found), guide
    else:
        load(**found)


# Python.


def test_the_plain_loop_is_counted_and_served(folder: Path) -> None:
    """Two processes of one pod, of which the first serves for both: 3 batches of 100 tokens, twice."""
    driver = """
import loop
class Loss:
    def backward(self): pass
class Optimizer:
    def step(self): pass
    def zero_grad(self): pass
loop.train(lambda inputs, targets: Loss(), Optimizer(), [(Tensor(), Tensor())] * 3)
"""
    with (
        running(folder, driver, LOCAL_RANK="0", LOCAL_WORLD_SIZE="2") as first,
        running(folder, driver, LOCAL_RANK="1", LOCAL_WORLD_SIZE="2") as second,
    ):
        assert second.port is None
        assert first.served()["train_tokens_total"] == 600


def test_the_yaml_asks_for_what_is_served(folder: Path) -> None:
    """The metrics that the examples name are those that the snippets serve, under the port that they serve at."""
    with running(folder, "train_rate.serve()\ntrain_rate.count_step(7)") as process:
        names = process.served()
    assert names["train_step_tokens_total"] == 7
    ours = [
        entry
        for _, found in YAMLS
        for entry in found.get("training", [])
        if entry.get("label_selector") == "example.com/metrics=training"
    ]
    assert {entry["metric"] for entry in ours} == {"train_tokens_total", "train_step_tokens_total"} <= set(names)
    default = re.search(r"def serve\(port=(\d+)\)", SNIPPETS["train_rate.py"])
    assert default
    assert {entry["port"] for entry in ours} == {int(default[1])}


LIGHTNING = """
from lightning_rate import TrainRate
rate = TrainRate()
rate.on_train_start(None, None)
for place in range(2):
    rate.on_train_batch_end(None, None, None, (Tensor(), Tensor()), place)
"""
NEMO = """
from nemo_rate import StepRate
rate = StepRate(4, 1024)
rate.on_train_start(None, None)
for place in range(2):
    rate.on_train_batch_end(None, None, None, None, place)
"""
#: Three logs of 1,000 tokens, of batches that two devices share.
TORCHTITAN = "import runpy\nrunpy.run_module('titan_rate', run_name='__main__')"


@pytest.mark.parametrize(
    ("driver", "name", "total"),
    [
        (LIGHTNING, "train_tokens_total", 200),
        (NEMO, "train_step_tokens_total", 8192),
        (TORCHTITAN, "train_tokens_total", 1500),
    ],
    ids=["lightning", "nemo", "torchtitan"],
)
def test_snippets_for_frameworks_count(folder: Path, driver: str, name: str, total: float) -> None:
    """Each counts what its framework does, and serves it."""
    with running(folder, driver) as process:
        assert process.served()[name] == total


def test_ray_counts_under_the_name_that_is_read(folder: Path) -> None:
    """Ray puts `ray_` before the name and `_total` behind it: the example reads that."""
    driver = """
import ray_rate
from prometheus_client import REGISTRY
ray_rate.train_loop_per_worker({"steps": 3, "step": lambda: 50})
print(REGISTRY.get_sample_value("ray_train_tokens_total"))
"""
    assert run(folder, driver) == "150.0"
    metrics = {entry.get("metric") for _, found in YAMLS for entry in found.get("training", [])}
    assert "ray_train_tokens_total" in metrics


def test_a_train_job_reports_what_is_read(folder: Path) -> None:
    """The last of four reports is 100 percent, with the metric that the example reads."""
    driver = """
import trainjob_rate
from kubeflow.trainer import REPORTS
trainjob_rate.train(4, lambda: 10)
print([percent for percent, _ in REPORTS], *REPORTS[-1][1])
"""
    assert run(folder, driver) == "[25, 50, 75, 100] tokens_per_second"
    (metric,) = {entry["metric"] for _, found in YAMLS for entry in found.get("training", []) if "train_jobs" in entry}
    assert metric == "tokens_per_second"


# Links.


@pytest.mark.parametrize("guide", [*GUIDES, "README.md", "docs/ko/README.md"])
def test_links_lead_somewhere(guide: str) -> None:
    """Each link to a file of this checkout names one that exists, and each heading that it names is there."""
    text = (ROOT / guide).read_text(encoding="utf-8")
    for target, heading in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", text):
        path = (ROOT / guide).parent / target if target else ROOT / guide
        assert path.exists(), target
        if heading:
            lines = [
                line.lstrip("# ") for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")
            ]
            slugs = {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}
            assert heading in slugs, f"{target}#{heading}"
