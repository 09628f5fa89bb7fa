# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The rules of the catalog and of what is made from it: metadata.csv, the tables of the docs, and what it all costs."""

import csv
import re
import sys
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from datadog_checks.kueue_gang.catalog import (
    ALL,
    CLUSTER_QUEUE_FAMILIES,
    LOCAL_QUEUE_FAMILIES,
    OWN,
    PREFIX,
    SCRAPED,
    Metric,
)
from datadog_checks.kueue_gang.derive.blockers import NAMES as BLOCKERS
from datadog_checks.kueue_gang.sources import kueue_metrics
from lab import demo, metadata
from lab.cost import Size, cost
from lab.recorded import side_by_side
from lab.replay import ReplayServer
from lab.tags import TAGS
from lab.told import Sent

ROOT = Path(__file__).resolve().parent.parent

#: Words that mean something else at Datadog.
RESERVED = {
    "cluster", "cluster_name", "clustername", "device", "env", "host", "host_name", "hostname", "service", "source",
    "version",
}  # fmt: skip
#: Units of Datadog's list that the catalog uses. There is none for GPUs, pods or gangs.
UNITS = {"", "device", "dollar", "event", "item", "node", "percent", "second"}
#: How series may be combined: an aggregator, and what it must not be over or must be by.
OVER = re.compile(r"none|(?:sum|avg|min|max)(?: by [a-z_]+|, not over [a-z_]+)?")
DOCS = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md")))]
PICTURES = ["docs/images/demo.svg", "docs/images/gang.svg"]
METRICS = [pytest.param(metric, id=name) for name, metric in ALL.items()]


@pytest.fixture(name="sent", scope="module")
def fixture_sent() -> Sent:
    """Return what the check sends for recorded clusters side by side."""
    with ReplayServer(side_by_side()) as server:
        return demo.observe(server)[1]


# The catalog.


@pytest.mark.parametrize("metric", METRICS)
def test_an_entry_is_well_formed(metric: Metric) -> None:
    """A name as Datadog keeps it, a known unit, tags that mean nothing else there, and a meaning in one short line."""
    assert re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*", metric.name)
    assert metric.unit in UNITS
    assert len(set(metric.tags)) == len(metric.tags)
    assert all(re.fullmatch(r"[a-z][a-z_]*", tag) for tag in metric.tags)
    assert not RESERVED & set(metric.tags)
    assert OVER.fullmatch(metric.over)
    assert metric.meaning.isascii()
    assert metric.meaning.endswith(".")
    assert 10 <= len(metric.meaning) <= 400
    assert not set("|\n") & set(metric.meaning)


@pytest.mark.parametrize("metric", METRICS)
def test_counts_are_never_filled_with_zeros(metric: Metric) -> None:
    """A count says what happened in a run, so only a gauge can fall to zero; only a count is told by a total."""
    if metric.type == "count":
        assert (metric.over, metric.zero) == ("sum", "never")
    else:
        assert not metric.total


def test_the_name_is_the_key() -> None:
    """The catalog finds a metric by its name, and no name of Kueue's is one of ours."""
    assert all(metric.name == name for name, metric in ALL.items())
    assert not OWN.keys() & SCRAPED.keys()


def test_the_families_are_those_that_are_scraped() -> None:
    """The catalog has the families and types that the scraper asks for, each once."""
    for families, scraped in (
        (CLUSTER_QUEUE_FAMILIES, kueue_metrics.FAMILIES),
        (LOCAL_QUEUE_FAMILIES, kueue_metrics.LOCAL_QUEUE_FAMILIES),
    ):
        assert len({family.name for family in families}) == len(families)
        assert {family.name: family.type for family in families} == scraped
    assert all(
        metric.name.startswith(kueue_metrics.sent_name(family.name))
        for family in (*CLUSTER_QUEUE_FAMILIES, *LOCAL_QUEUE_FAMILIES)
        for metric in family.metrics()
    )


def test_every_tag_is_explained() -> None:
    """The docs tell each tag of an own metric, and no tag that no metric has."""
    rows = Counter((tag.key, tag.metric) for tag in TAGS)
    assert set(rows.values()) == {1}
    explained = {tag.key for tag in TAGS if not tag.metric}
    for metric in OWN.values():
        missing = {tag for tag in metric.tags if tag not in explained and (tag, metric.name) not in rows}
        assert not missing, f"{metric.name}: lab/tags.py does not know {missing}"
    assert {tag.key for tag in TAGS} <= {tag for metric in ALL.values() for tag in metric.tags}
    assert {tag.metric for tag in TAGS if tag.metric} <= OWN.keys()


def test_sent_values_are_in_the_lists(sent: Sent) -> None:
    """What the check sends for recorded clusters has no value of a tag that its closed list does not have."""
    for name, series in sent.items():
        if name in OWN:
            closed = {tag.key: tag.values for tag in TAGS if tag.values and tag.metric in {"", name}}
            for one in series:
                for key, value in (text.split(":", 1) for text in one.tags):
                    assert value in closed.get(key, [value]), f"{name}: {key}:{value}"


# What is made from it.


@pytest.fixture(name="made", scope="module")
def fixture_made() -> dict[Path, str]:
    """Return the text that each made file should have."""
    return dict(metadata.files())


@pytest.mark.parametrize("name", ["metadata.csv", *metadata.DOCUMENTS])
def test_made_files_are_up_to_date(name: str, made: dict[Path, str]) -> None:
    """`make metadata` would change nothing."""
    assert (ROOT / name).read_text() == made[ROOT / name], "run: make metadata"


def shown(picture: str) -> list[tuple[str, str]]:
    """Return the pieces of text in a picture, each with its style."""
    styles = dict(re.findall(r"\.(\S+) \{\s*(fill:[^}]*?)\s*\}", picture))
    pieces = ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")
    return [(styles.get(one.get("class", ""), ""), one.text) for one in pieces if one.text and one.text.strip()]


@pytest.mark.parametrize("path", PICTURES)
def test_pictures_are_up_to_date(path: str, made: dict[Path, str]) -> None:
    """They show what the commands say now, in the same colours; how it is laid out is for each release of rich."""
    seen = shown((ROOT / path).read_text(encoding="utf-8"))
    assert seen == shown(made[ROOT / path]), "run: make metadata"
    assert len({style for style, _ in seen}) >= 4


@pytest.mark.parametrize("path", PICTURES)
def test_a_picture_needs_nothing_else(path: str) -> None:
    """It has no address beside the name of its format, and refers only to itself; the README shows it and says what."""
    text = (ROOT / path).read_text(encoding="utf-8")
    assert re.findall(r"\S*://\S*", text) == ['xmlns="http://www.w3.org/2000/svg">']
    assert set(re.findall(r"url\((.)", text)) == {"#"}
    assert re.search(rf"^!\[[^]]{{20,}}\]\({path}\)$", (ROOT / "README.md").read_text(), re.MULTILINE)


def test_each_blocker_has_a_section() -> None:
    """docs/blockers.md has the blockers in the order in which they are tried, each with the line of the table."""
    text = (ROOT / "docs" / "blockers.md").read_text()
    sections = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    assert tuple(sections[::2]) == (*BLOCKERS, "Deadlock")
    for name, section in zip(BLOCKERS, sections[1::2], strict=False):
        (row,) = re.findall(r"^team +train .*$", section, re.MULTILINE)
        assert name in row.split()
    assert text.count("to unblock: ") >= len(("label", "uncordon", "remove", "raise", "free", "touch"))


def test_a_line_a_metric() -> None:
    """metadata.csv has Datadog's columns, is sorted by name, and says of each metric what the catalog says."""
    with (ROOT / "metadata.csv").open(newline="", encoding="ascii") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == metadata.COLUMNS
    names = [row["metric_name"] for row in rows]
    assert names == sorted(PREFIX + name for name in ALL)
    for row in rows:
        metric = ALL[row["metric_name"].removeprefix(PREFIX)]
        assert (row["metric_type"], row["unit_name"], row["description"]) == (metric.type, metric.unit, metric.meaning)
        assert row["orientation"] in {"-1", "0", "1"}
        assert row["integration"] == "kueue_gang"
    assert len({row["short_name"] for row in rows}) == len(rows)


@pytest.mark.parametrize("pattern", [*metadata.LESS_IS_BETTER, *metadata.MORE_IS_BETTER])
def test_an_orientation_is_of_a_metric(pattern: str) -> None:
    """Each pattern of the list of orientations is about a metric that exists, and no metric goes both ways."""
    signs = {metadata.orientation(name) for name in ALL if fnmatchcase(name, pattern)}
    assert signs in ({-1}, {1})


def test_a_document_keeps_what_is_around_a_made_part() -> None:
    """Text before and after stays as it is; a document without a place for a part is refused."""
    parts = {"tags": lambda: ["| a |"]}
    text = "before\n\n<!-- begin tags: python -m lab.metadata -->\nold\n<!-- end tags -->\n\nafter\n"
    made = metadata.document(text, parts)
    assert made == text.replace("\nold\n", "\n\n| a |\n\n")
    assert metadata.document(made, parts) == made
    with pytest.raises(ValueError, match="no place for tags"):
        metadata.document("before", parts)


def test_check_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """--check tells what is out of date by name and exit code; without it the file is written, and all is well."""
    made = tmp_path / "metadata.csv"
    monkeypatch.setattr(metadata, "ROOT", tmp_path)
    monkeypatch.setattr(metadata, "files", lambda: iter([(made, "new")]))
    for arguments, code, text in ((["--check"], 1, None), ([], 0, "new"), (["--check"], 0, "new")):
        monkeypatch.setattr(sys, "argv", ["metadata", *arguments])
        assert metadata.main() == code
        assert (made.read_text() if made.exists() else None) == text
    assert capsys.readouterr().out.split("\n") == [
        "out of date: metadata.csv",
        "written: metadata.csv",
        "all up to date",
        "",
    ]


@pytest.mark.parametrize("name", DOCS)
def test_links_lead_somewhere(name: str) -> None:
    """Each link to a file of the repository finds it, and each link to a heading finds the heading."""
    path = ROOT / name
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        found = path.parent / file if file else path
        assert found.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings}, target


@pytest.mark.parametrize("name", [name for name in DOCS if not name.startswith("docs/ko/")])
def test_english_docs_are_ascii(name: str) -> None:
    """Datadog's validation refuses other characters in the README, and the other files keep to it."""
    assert (ROOT / name).read_text(encoding="utf-8").isascii()


# What it costs.


def test_a_large_cluster_stays_below_the_bounds() -> None:
    """50 LocalQueues, 20 ClusterQueues and 200 gangs, of which 15 need attention: 2,000 series of each kind at most."""
    size = Size()
    assert (size.local_queues, size.cluster_queues, size.gangs, size.attention) == (50, 20, 200, 15)
    assert (size.levels, size.flavors) == (3, 2)
    numbers = cost(size)
    assert numbers.own <= 2000
    assert numbers.scraped <= 2000


def test_the_model_is_no_underestimate(sent: Sent) -> None:
    """For recorded clusters the model says at least what is really sent, and not many times as much."""
    tags = [dict(text.split(":", 1) for text in one.tags) for one in sent["gpus.allocated"]]
    queues = {(one["kube_namespace"], one["kueue_local_queue"]) for one in tags}
    outside = {queue for queue in queues if queue[1] == "none"}
    gangs = len(sent["gang.state_seconds"])
    size = Size(
        local_queues=len(queues - outside),
        cluster_queues=len({one["kueue_cluster_queue"] for one in tags} - {"none"}),
        gangs=gangs,
        attention=gangs,
        namespaces=len(outside),
        gpu_resources=len(sent["gpus.allocatable"]),
        priority_classes=1,
        levels=len({one.tags for one in sent.get("topology.label_coverage", ())}),
    )
    own = sum(len(series) for name, series in sent.items() if name in OWN)
    scraped = sum(len(series) for name, series in sent.items() if name in SCRAPED)
    assert own <= cost(size).own <= 4 * own
    assert scraped <= cost(size).scraped <= 5 * scraped
