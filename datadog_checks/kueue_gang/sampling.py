# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""One value of one series, and its tags: what emission is made of."""

from functools import lru_cache
from typing import NamedTuple

from datadog_checks.kueue_gang.catalog import OWN, Metric
from datadog_checks.kueue_gang.derive.picture import Picture, Queue

#: Longest value of a tag; Datadog cuts tags at 200 characters.
MAX_TAG = 200

Tags = tuple[str, ...]


class Sample(NamedTuple):
    """One value of one series; the tags without those that the user adds to all."""

    metric: Metric
    value: float
    tags: Tags


def sample(name: str, value: float, *tags: str) -> Sample:
    """Return a value of a metric of the catalog."""
    return Sample(OWN[name], value, tags)


def age(picture: Picture, since: float) -> float:
    """Return an age in seconds; clocks that disagree never make it negative."""
    return max(0.0, picture.now - since)


@lru_cache(maxsize=4096)
def tag(key: str, value: str) -> str:
    """Return a tag as Datadog takes it."""
    return f"{key}:{value[:MAX_TAG]}"


@lru_cache(maxsize=4096)
def queue_tags(queue: Queue) -> Tags:
    """Return the queue tags."""
    return (
        tag("kube_namespace", queue.namespace),
        tag("kueue_local_queue", queue.local_queue),
        tag("kueue_cluster_queue", queue.cluster_queue),
        tag("gang_engine", queue.engine),
    )


@lru_cache(maxsize=4096)
def workload_tags(namespace: str, local_queue: str, cluster_queue: str) -> Tags:
    """Return the tags of a Workload: the queue tags without what makes a gang."""
    return (
        tag("kube_namespace", namespace),
        tag("kueue_local_queue", local_queue),
        tag("kueue_cluster_queue", cluster_queue),
    )
