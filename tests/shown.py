# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Scenes that are made by hand: what a widget shows of them can be counted on the fingers."""

from collections.abc import Callable, Mapping
from typing import Any

from lab.preview.scene import Scene
from lab.timeline import Moment, Point, Timeline

#: A full hour (UTC), so that buckets begin with the runs of the check.
END = 1_796_040_000.0
CLUSTER = "kube_cluster_name:one"
Json = dict[str, Any]
#: By metric and tags a value, or what it was so many minutes before the end; None where there was none.
Values = Mapping[tuple[str, str], float | Callable[[int], float | None] | None]


def timeline(values: Values, **events: Any) -> Timeline:
    """Return two hours at one run a minute."""
    moments = []
    for minutes in range(119, -1, -1):
        points = []
        for (name, tags), value in values.items():
            found = value(minutes) if callable(value) else value
            if found is not None:
                kind = "count" if name.endswith("_seconds") and name.startswith("gpus.") else "gauge"
                points.append(Point(name, kind, found, tuple(sorted((CLUSTER, *tags.split(","))))))
        moments.append(Moment(END - 60 * minutes, tuple(points), tuple(events.get(f"before_{minutes}", ()))))
    return Timeline("made by hand", 60.0, moments)


def scene(values: Values, **events: Any) -> Scene:
    """Return the last hour of such a timeline."""
    return Scene(
        timeline(values, **events), END, variables={"kube_cluster_name": "*", "gpu_resource": "nvidia.com/gpu"}
    )


def request(query: str, form: str = "scalar", **formula: Any) -> Json:
    """Return a request of one query, with a formula of it."""
    one: Json = {"data_source": "metrics", "name": "a", "query": query}
    if form == "scalar":
        one["aggregator"] = "last"
    return {"response_format": form, "queries": [one], "formulas": [{"formula": "a", **formula}]}


def event(title: str, minutes: int, **more: Any) -> Json:
    """Return an event as the Agent takes it."""
    told = {"msg_title": title, "msg_text": "%%% \nIt holds **8** GPUs.\n %%%", "timestamp": int(END - 60 * minutes)}
    return {**told, "alert_type": "error", "source_type_name": "kueue_gang", "tags": [CLUSTER], **more}
