# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Batch Jobs with a queue name: whether all their pods must run at once.

An Indexed Job with as many completions as parallel pods is a distributed job, its index the rank. A NonIndexed one, or
one with more completions than parallel pods, works through a list of independent tasks. Kueue's Workload does not say
which it is, so the Job is asked.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from datadog_checks.kueue_gang.facts.fields import Json, count, identity, mapping, strings, text, wanted_labels


@dataclass(frozen=True, slots=True)
class Job:
    """A batch Job; `all_at_once` as above, `elastic` if Kueue may resize it while it runs."""

    namespace: str
    name: str
    parallelism: int
    all_at_once: bool
    elastic: bool
    labels: tuple[tuple[str, str], ...]


def reducer(labels: tuple[str, ...] = ()) -> Callable[[Json], Job]:
    """Return the function that makes `Job` facts."""
    return partial(_job, labels)


def _job(wanted: tuple[str, ...], obj: Json) -> Job:
    metadata, namespace, name = identity(obj)
    spec = mapping(obj, "spec")
    labels = strings(metadata, "labels")
    parallelism, completions = count(spec, "parallelism"), count(spec, "completions")
    return Job(
        namespace=namespace,
        name=name,
        parallelism=1 if parallelism is None else parallelism,
        all_at_once=text(spec, "completionMode") == "Indexed" and completions == parallelism,
        elastic=text(strings(metadata, "annotations"), "kueue.x-k8s.io/elastic-job") == "true",
        labels=wanted_labels(labels, wanted),
    )
