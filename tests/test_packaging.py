# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The wheel, installed as users install it, and one run from there.

The Agent installs a wheel without its dependencies, beside libraries that it pins itself; others use pip, which brings
what pyproject.toml names. Both are done here in new environments, outside of the checkout, and the check reads a
recorded cluster over HTTP.
"""

import json
import os
import pwd
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from datadog_checks.kueue_gang import __version__

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).parent.parent
#: What the Agent of May 2026 bundles (integrations-core, .deps/resolved/linux-x86_64_3.13.txt).
AGENT_PINS = (
    "datadog-checks-base==37.33.0",
    "kubernetes==35.0.0",
    "requests==2.33.0",
    "urllib3==2.6.3",
    "pyyaml==6.0.3",
    "orjson==3.11.7",
    "prometheus-client==0.24.1",
    "pydantic==2.12.5",
    "cachetools==7.0.5",
    "cryptography==46.0.6",
    "lazy-loader==0.5",
    "python-dateutil==2.9.0.post0",
    "wrapt==2.1.2",
    "jellyfish==1.2.1",
    "binary==1.0.1",
    "requests-unixsocket2==1.0.1",
    "simplejson==3.20.2",
)

#: Runs the installed check on a recorded cluster, and the command that comes with it.
RUN = """
import json, subprocess, sys
from pathlib import Path
from datadog_checks.base.stubs import aggregator
import datadog_checks.kueue_gang as package
from lab.replay import CAPTURES, Recording, ReplayServer
with ReplayServer(Recording.open(Path(sys.argv[1]) / "4-kueue-partial.tar.xz", "t1")) as server:
    check = package.KueueGangCheck("kueue_gang", {}, [{"kube_api_url": server.url,
        "openmetrics_endpoint": server.url + "/metrics", "per_gang_metrics": "all"}])
    report = check.run()
    check.cancel()
    status = subprocess.run([sys.executable, "-m", "datadog_checks.kueue_gang", "status", "--url", server.url],
        capture_output=True, text=True)
idle = [metric.value for metric in aggregator.metrics("kueue_gang.gpus.idle_total")]
said = {"file": package.__file__, "report": report, "idle": idle, "status": status.stdout, "error": status.stderr}
print(json.dumps(said))
"""


def interpreter(minor: int) -> str:
    """Return a Python 3.minor."""
    candidates = [sys.executable, shutil.which(f"python3.{minor}") or ""]
    # The user's own home too, where HOME is another folder.
    homes = (Path.home(), Path(pwd.getpwuid(os.getuid()).pw_dir))
    for root in (os.environ.get("PYENV_ROOT", ""), *(str(home / ".pyenv") for home in homes)):
        candidates += [str(path) for path in sorted(Path(root, "versions").glob(f"3.{minor}.*/bin/python3"))]
    for candidate in candidates:
        code = f"import sys; sys.exit(sys.version_info[:2] != (3, {minor}))"
        if candidate and subprocess.run([candidate, "-c", code], capture_output=True, check=False).returncode == 0:
            return candidate
    pytest.fail(f"Python 3.{minor} is needed for this test and was not found")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the files that git knows, as a release would."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    for name in filter(None, names):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", target, source], check=True)
    (found,) = target.glob("*.whl")
    return found


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """Return a folder outside of the checkout that has the replay server and nothing of the check."""
    shutil.copytree(ROOT / "lab", tmp_path / "lab")
    return tmp_path


def run_from(python: Path, folder: Path) -> None:
    """Run the check that is installed for `python`, and look at what it says."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [python, "-c", RUN, ROOT / "tests" / "captures"],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert str(ROOT) not in said["file"], "the check must run from the installed wheel"
    assert said["report"] == ""
    # 4-kueue-partial, t1: three of five members hold 8 GPUs each.
    assert said["idle"] == [24]
    assert "gpt-neo" in said["status"], said["error"]
    assert "partial" in said["status"]


def environment(python: str, folder: Path, *requirements: str) -> Path:
    """Return the Python of a new environment with these requirements."""
    subprocess.run([python, "-m", "venv", folder / "venv"], check=True)
    inside = folder / "venv" / "bin" / "python"
    subprocess.run([inside, "-m", "pip", "install", "-q", *requirements], check=True)
    return inside


def test_wheel_beside_the_pins_of_the_agent(wheel: Path, elsewhere: Path) -> None:
    """`datadog-agent integration install -w` runs pip with --no-index --no-deps in Python 3.13; that is enough."""
    python = environment(interpreter(13), elsewhere, *AGENT_PINS)
    command: list[str | Path] = [
        python,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-cache-dir",
        "--no-index",
        "--no-deps",
        wheel,
    ]
    subprocess.run(command, check=True)
    run_from(python, elsewhere)


@pytest.mark.parametrize("minor", [11, 13])
def test_pip_brings_all_that_is_needed(wheel: Path, elsewhere: Path, minor: int) -> None:
    """In an empty environment `pip install` of the wheel is enough for the check and its command."""
    run_from(environment(interpreter(minor), elsewhere, str(wheel)), elsewhere)


def test_the_wheel_is_what_the_agent_asks_for(wheel: Path) -> None:
    """The Agent refuses a wheel without the line on datadog-checks-base, and copies YAML files of data/ to conf.d."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        text = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert "Requires-Dist: datadog-checks-base" in text
    assert "Name: datadog-kueue-gang" in text
    assert {name.split("/")[0] for name in names} == {"datadog_checks", f"datadog_kueue_gang-{__version__}.dist-info"}
    assert "datadog_checks/__init__.py" not in names
    assert [name for name in names if ".yaml" in name] == ["datadog_checks/kueue_gang/data/conf.yaml.example"]
