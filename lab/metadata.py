# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""metadata.csv, the assets, and what is made in the docs: tables of metrics, output of the demo, examples, pictures.

    python -m lab.metadata [--check]

metadata.csv is Datadog's: one line a metric, sorted by name, with the type as the app sees it, a unit of Datadog's
list and an orientation (1: more is better, -1: less is better, 0: neither). `ddev validate metadata` knows the rules.

In a document a made part stands between two comments, `begin NAME` and `end NAME`, and is replaced as a whole. With
--check nothing is written: the exit code is 1 where a file is not what would be written.
"""

import argparse
import csv
import io
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Final

from datadog_checks.kueue_gang.catalog import ALL, GANG_TAGS, OWN, PREFIX, QUEUE_TAGS, SCRAPED, Metric
from lab import assets, blockers, demo, events, pictures, rules
from lab.assets.alerts import explained
from lab.cost import ASSUMPTIONS, LARGE, cost
from lab.recorded import side_by_side
from lab.replay import ReplayServer
from lab.tags import TAGS
from lab.told import told

ROOT: Final = Path(__file__).resolve().parent.parent
COLUMNS: Final = (
    "metric_name", "metric_type", "interval", "unit_name", "per_unit_name", "description", "orientation", "integration",
    "short_name", "curated_metric", "sample_tags",
)  # fmt: skip
#: Metrics of which less is better, and of which more is.
LESS_IS_BETTER: Final = (
    "gpus.idle", "gpus.idle_total", "gpus.idle_seconds", "gpus.idle_cost", "gpus.burned_seconds", "gpus.unhealthy",
    "gang.gpus_idle", "gangs.stalled", "gangs.unguarded", "gang.requeues",
    "members.permit_wait_oldest_seconds", "source.age_seconds", "source.bad_*", "unobservable", "series.dropped",
    "gangs.assembly_seconds.sum", "gangs.assembly_seconds.max", "gangs.rejected", "workloads.oldest_wait_seconds",
    "workloads.stage_seconds.sum", "workloads.stage_seconds.max", "workloads.evicted", "workloads.without_pods",
    "run_seconds", "scheduler.unschedulable_pods", "kueue.*_wait_time_seconds.sum", "kueue.*evicted_workloads*",
    "kueue.preempted_workloads.count", "kueue.*pending_workloads", "kueue.*unadmitted_workloads",
)  # fmt: skip
MORE_IS_BETTER: Final = ("source.up", "gang.throughput*", "gang.progress")

#: Heading of a group of own metrics -> the first words of their names.
GROUPS: Final[Mapping[str, frozenset[str]]] = {
    "GPUs": frozenset({"gpus"}),
    "Gangs and members": frozenset({"gangs", "members"}),
    "One gang": frozenset({"gang"}),
    "Workloads and quota": frozenset({"workloads", "quota"}),
    "Topology": frozenset({"topology"}),
    "The gang scheduler": frozenset({"scheduler"}),
    "The check about itself": frozenset({"source", "unobservable", "series", "run_seconds"}),
}
_WIDTH: Final = 118
_ZERO: Final = {"tail": "0 for a while", "always": "always sent", "never": "ends"}
#: So many metrics are in the README's part of the demo.
_METRICS_SHOWN: Final = 2
_NAMED_TAGS: Final = {GANG_TAGS: "*gang tags*", QUEUE_TAGS: "*queue tags*"}


def metadata_csv() -> str:
    """Return the text of metadata.csv."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name, metric in sorted(ALL.items(), key=lambda item: PREFIX + item[0]):
        row = {
            "metric_name": PREFIX + name,
            "metric_type": metric.type,
            "unit_name": metric.unit,
            "description": metric.meaning,
            "orientation": orientation(name),
            "integration": "kueue_gang",
            "short_name": re.sub(r"[._]", " ", name),
        }
        writer.writerow(row.get(column, "") for column in COLUMNS)
    return text.getvalue()


def orientation(name: str) -> int:
    """Return 1 where more of a metric is better, -1 where less is, else 0."""
    patterns = ((1, MORE_IS_BETTER), (-1, LESS_IS_BETTER))
    return next((sign for sign, globs in patterns if any(fnmatchcase(name, glob) for glob in globs)), 0)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]


def _groups() -> Iterator[tuple[str, list[Metric]]]:
    """Yield the own metrics by heading. Raises KeyError for one that belongs to no group."""
    headings = {first: heading for heading, firsts in GROUPS.items() for first in firsts}
    of = {name: headings[name.partition(".")[0]] for name in OWN}
    for heading in GROUPS:
        metrics = [metric for name, metric in OWN.items() if of[name] == heading]
        if metrics:
            yield heading, metrics


def tags_text(tags: tuple[str, ...]) -> str:
    """Return a list of tags in short: gang tags and queue tags by that name."""
    for named, text in _NAMED_TAGS.items():
        if tags[: len(named)] == named:
            return ", ".join((text, *(f"`{tag}`" for tag in tags[len(named) :])))
    return ", ".join(f"`{tag}`" for tag in tags)


def own_brief() -> list[str]:
    """Return the table of the README."""
    rows = [
        (f"`{PREFIX}{metric.name}`", tags_text(metric.tags), metric.meaning)
        for _, metrics in _groups()
        for metric in metrics
    ]
    return _table(("metric", "tags", "meaning"), rows)


def own_full() -> list[str]:
    """Return the own metrics with everything that the catalog says, a table a group."""
    lines: list[str] = []
    for heading, metrics in _groups():
        lines += [f"### {heading}", "", *_full(metrics), ""]
    return lines[:-1]


def scraped_full() -> list[str]:
    """Return the same table for the metrics of Kueue."""
    return _full(SCRAPED.values())


def _full(metrics: Iterable[Metric]) -> list[str]:
    rows = (
        (
            f"`{PREFIX}{metric.name}`",
            metric.type,
            metric.unit,
            tags_text(metric.tags),
            metric.over,
            _ZERO[metric.zero] if metric.type == "gauge" else "",
            metric.meaning,
        )
        for metric in metrics
    )
    return _table(("metric", "type", "unit", "tags", "over", "at zero", "meaning"), rows)


def tag_values() -> list[str]:
    """Return the table of tags."""
    rows = (
        (
            f"`{tag.key}`" + (f" of {tag.metric}" if tag.metric else ""),
            tag.meaning,
            ", ".join(tag.values) or "(open)",
        )
        for tag in TAGS
    )
    return _table(("tag", "what it tells", "values"), rows)


def cost_brief() -> list[str]:
    """Return the cost in a sentence."""
    numbers = cost()
    size = (
        f"{LARGE.local_queues} LocalQueues, {LARGE.cluster_queues} ClusterQueues and {LARGE.gangs} gangs, of which"
        f" {LARGE.attention} need attention"
    )
    price = f"about {_rounded(numbers.own)} series of this check's own and {_rounded(numbers.scraped)} of Kueue's"
    return textwrap.wrap(f"A cluster with {size}, costs {price}.", _WIDTH)


def cost_full() -> list[str]:
    """Return the numbers with what is assumed."""
    numbers = cost()
    size = (
        f"{LARGE.local_queues} LocalQueues, {LARGE.cluster_queues} ClusterQueues, {LARGE.flavors} ResourceFlavors,"
        f" {LARGE.levels} topology levels, {LARGE.gangs} gangs of which {LARGE.attention} need attention"
    )
    rows = (
        ("own metrics", f"{numbers.own:,}"),
        ("metrics of Kueue (`kueue_metrics: gang`)", f"{numbers.scraped:,}"),
        ("`per_gang_metrics: all` adds", f"{numbers.every_gang:,}"),
        ("`kueue_local_queue_metrics: true` adds", f"{numbers.local_queues:,}"),
        ("`training` adds, where all gangs tell of themselves", f"{numbers.training:,}"),
        ("`activity` adds", f"{numbers.activity:,}"),
        ("`gpu_hourly_price` adds", f"{numbers.price:,}"),
    )
    return [
        *_table((size, "series"), rows),
        "",
        "Assumed beside the size:",
        "",
        *(f"* {assumption}" for assumption in ASSUMPTIONS),
    ]


def demo_screen() -> list[str]:
    """Return the beginning of what the demo shows, without what differs from run to run."""
    with ReplayServer(side_by_side()) as server:
        lines = list(told(*demo.observe(server), colour=False, everything=False))
    headings = [number for number, line in enumerate(lines) if line.startswith(PREFIX)]
    return ["```text", *lines[: headings[_METRICS_SHOWN]], "...", "```"]


def _rounded(number: int) -> str:
    """Return a number in hundreds, rounded up."""
    return f"{-(-number // 100) * 100:,}"


def monitors(*, notify: bool) -> list[str]:
    """Return the sections about the monitors that notify, or about the others, most urgent first."""
    chosen = [one for _, one in assets.described("monitors") if one["notify"] is notify]
    ordered = sorted(chosen, key=lambda one: one["priority"])
    return [line for one in ordered for line in explained(one)][:-1]


def scenarios() -> list[str]:
    """Return what each monitor does in each scenario, and why."""
    return [*rules.table(), "", *rules.reasons()]


#: File -> its made parts by name.
DOCUMENTS: Final[Mapping[str, Mapping[str, Callable[[], list[str]]]]] = {
    "README.md": {"demo": demo_screen, "metrics": own_brief, "cost": cost_brief},
    "docs/events.md": {"history": events.markdown},
    "docs/blockers.md": {name: partial(blockers.example, name) for name in blockers.PARTS},
    "docs/monitors.md": {
        "notify": partial(monitors, notify=True),
        "recommended": partial(monitors, notify=False),
        "scenarios": scenarios,
    },
    "docs/metrics.md": {"own": own_full, "scraped": scraped_full, "tags": tag_values, "cost": cost_full},
}


def document(text: str, parts: Mapping[str, Callable[[], list[str]]]) -> str:
    """Return a document with its made parts replaced. Raises ValueError where a part has no place."""
    for name, make in parts.items():
        begin, end = f"<!-- begin {name}: python -m lab.metadata -->", f"<!-- end {name} -->"
        head, found, rest = text.partition(begin)
        _, closed, tail = rest.partition(end)
        if not (found and closed):
            msg = f"no place for {name}: {begin} and {end} are needed"
            raise ValueError(msg)
        text = "\n".join((head + begin, "", *make(), "", end + tail))
    return text


def files(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Yield each file with the text that it should have. Raises ValueError as `document` does."""
    yield root / "metadata.csv", metadata_csv()
    for name, parts in DOCUMENTS.items():
        yield root / name, document((root / name).read_text(), parts)
    yield from pictures.files(root)
    yield from assets.files(root)


def main() -> int:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(prog="python -m lab.metadata", description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a file is out of date")
    options = parser.parse_args()
    stale = [(path, text) for path, text in files() if not path.is_file() or path.read_text() != text]
    for path, text in stale:
        if not options.check:
            path.write_text(text)
        print(f"{'out of date' if options.check else 'written'}: {path.relative_to(ROOT)}")
    if not stale:
        print("all up to date")
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
