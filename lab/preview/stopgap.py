# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Queries of one metric, until lab.evaluate is there."""

import re
from collections import defaultdict

from lab.preview.scene import Line, Row

_Q = re.compile(r"(?P<agg>\w+):kueue_gang\.(?P<metric>[a-z_.]+)\{(?P<filter>[^{}]*)\}(?: by \{(?P<by>[^}]*)\})?(\.as_count\(\))?")


def _series(query, scene, begin, end, interval):
    m = _Q.fullmatch(query)
    by = m["by"].split(",") if m["by"] else []
    want = []
    for term in m["filter"].split(","):
        if term.startswith("$"):
            value = scene.variables.get(term[1:], "*")
            if value != "*":
                want.append((term[1:], value))
        elif term != "*":
            want.append(tuple(term.split(":", 1)))
    cells = defaultdict(lambda: defaultdict(list))
    for moment in scene.timeline.moments:
        if not begin < moment.at <= end:
            continue
        groups = defaultdict(list)
        for p in moment.points:
            if p.name != m["metric"]:
                continue
            tags = dict(t.split(":", 1) for t in p.tags)
            if all(tags.get(k) == v for k, v in want):
                groups[tuple((k, tags.get(k, "N/A")) for k in by)].append(p.value)
        for g, vs in groups.items():
            cells[g][begin + (moment.at - begin - 1e-6) // interval * interval].append(
                {"sum": sum, "max": max, "min": min, "avg": lambda v: sum(v) / len(v)}[m["agg"]](vs)
            )
    grid = []
    at = begin
    while at < end:
        grid.append(at)
        at += interval
    return {g: [(a, sum(c[a]) / len(c[a]) if a in c else None) for a in grid] for g, c in cells.items()}


def lines(request, scene, window, interval):
    by_name = {q["name"]: q["query"] for q in request["queries"]}
    return [
        Line(f, dict(g), pts)
        for f in request["formulas"]
        for g, pts in sorted(_series(by_name[f["formula"]], scene, *window, interval).items())
    ]


def rows(request, scene, window):
    by_name = {q["name"]: q["query"] for q in request["queries"]}
    columns = []
    for f in request["formulas"]:
        found = _series(by_name[f["formula"]], scene, *window, scene.timeline.interval)
        columns.append({g: [v for _, v in pts if v is not None][-1] for g, pts in found.items()})
    return [Row(dict(g), tuple(c.get(g) for c in columns)) for g in sorted({g for c in columns for g in c})]
