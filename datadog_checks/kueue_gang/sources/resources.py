# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What is read from the API server, one row a resource.

A row says where the objects are, which versions of them the reducer understands (best first), which of them are wanted
and what makes a fact of one. Adding a kind of object to the check begins with a row here.

The reducers come in as a mapping, since some are made from options (which resource names are GPUs), and so that this
table depends on no kind of object.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from datadog_checks.kueue_gang.facts.trainjobs import TRAIN_JOBS

KUEUE_GROUP: Final = "kueue.x-k8s.io"
#: Needs TrainJobs, where the option of that name asks for them.
TRAINING: Final = "training"

#: From an object as decoded to its fact. None: of no use to the check. Raises facts.BadObjectError for a malformed one.
Reducer = Callable[[dict[str, Any]], object | None]


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object: where its lists are and what is made of them.

    `api_source` is its name in `source.*` metrics, `group` is empty for the core group, `needed_by` is the gang engine
    or the option that makes no sense without it (None: the check itself). With `every_version` no version of an object
    is passed over: what a Workload was for a moment is told too.
    """

    api_source: str
    group: str
    plural: str
    versions: tuple[str, ...]
    reduce: Reducer
    needed_by: str | None = None
    every_version: bool = False
    query: Mapping[str, str] = field(default_factory=dict)

    def path(self, version: str) -> str:
        """Return the path of the cluster-wide list in `version`."""
        return f"/apis/{self.group}/{version}/{self.plural}" if self.group else f"/api/{version}/{self.plural}"


_V1 = ("v1",)
_KUEUE = ("v1beta2", "v1beta1")
#: Cohort became v1beta1 in Kueue 0.13 and Topology in 0.14.
_KUEUE_LATE = (*_KUEUE, "v1alpha1")
#: Jobs without a queue are no business of Kueue, and clusters can hold very many of them.
_QUEUED = {"labelSelector": "kueue.x-k8s.io/queue-name"}
#: Of all Events, what schedulers say of pods that they did not place.
_FAILED = {"fieldSelector": "reason=FailedScheduling"}

_Row = tuple[str, str, str, tuple[str, ...], str | None, Mapping[str, str]]

#: api_source, group, plural, versions, needed by, query.
_ROWS: Final[tuple[_Row, ...]] = (
    ("pods", "", "pods", _V1, None, {}),
    ("nodes", "", "nodes", _V1, None, {}),
    ("jobs", "batch", "jobs", _V1, "kueue", _QUEUED),
    ("podgroups.scheduling.x-k8s.io", "scheduling.x-k8s.io", "podgroups", ("v1alpha1",), "coscheduling", {}),
    ("podgroups.scheduling.k8s.io", "scheduling.k8s.io", "podgroups", ("v1alpha2",), "kubernetes", {}),
    ("workloads.kueue.x-k8s.io", KUEUE_GROUP, "workloads", _KUEUE, "kueue", {}),
    ("clusterqueues", KUEUE_GROUP, "clusterqueues", _KUEUE, "kueue", {}),
    ("localqueues", KUEUE_GROUP, "localqueues", _KUEUE, "kueue", {}),
    ("cohorts", KUEUE_GROUP, "cohorts", _KUEUE_LATE, "kueue", {}),
    ("resourceflavors", KUEUE_GROUP, "resourceflavors", _KUEUE, "kueue", {}),
    ("admissionchecks", KUEUE_GROUP, "admissionchecks", _KUEUE, "kueue", {}),
    ("topologies", KUEUE_GROUP, "topologies", _KUEUE_LATE, "kueue", {}),
    ("events", "events.k8s.io", "events", _V1, "coscheduling", _FAILED),
    (TRAIN_JOBS, "trainer.kubeflow.org", "trainjobs", ("v1alpha1",), TRAINING, {}),
)

#: An eviction may be cleared again before the next run, and a series of Events go on twice.
_EVERY_VERSION: Final = frozenset({"workloads.kueue.x-k8s.io", "events"})

#: The names that `resources` needs a reducer for.
API_SOURCES: Final = tuple(row[0] for row in _ROWS)


def resources(reducers: Mapping[str, Reducer]) -> tuple[Resource, ...]:
    """Return the table with the reducer of each api_source. Raises KeyError for one that is missing."""
    return tuple(
        Resource(source, group, plural, versions, reducers[source], needed_by, source in _EVERY_VERSION, query)
        for source, group, plural, versions, needed_by, query in _ROWS
    )
