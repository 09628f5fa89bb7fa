# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""`kueue-gang status --json`: the picture for programs.

It has what the table has and more: figures that are cut there are whole here, and names are those of the tags and
metrics. What is not known is null, never 0. What stands beside its text is made there: in `gang`, `places` and
`gpus`.
"""

import json
from collections.abc import Mapping, Sequence

from datadog_checks.kueue_gang.commands import gang, gpus, places
from datadog_checks.kueue_gang.derive.closeup import CloseUp
from datadog_checks.kueue_gang.derive.picture import NONE, GangView, Picture
from datadog_checks.kueue_gang.facts.cluster import NOT_INSTALLED
from datadog_checks.kueue_gang.facts.health import SourceHealth
from datadog_checks.kueue_gang.sources.collector import Reading
from datadog_checks.kueue_gang.sources.errors import SourceError


def as_json(
    picture: Picture, ranked: Sequence[GangView], near: Sequence[CloseUp], reading: Reading, *, members: bool
) -> str:
    """Return the picture as JSON: gangs, gpus, unobservable, sources; of the ranked gangs those seen from near."""
    details = {one.view.key: one for one in near}
    return json.dumps(
        {
            "now": picture.now,
            "gangs": [
                {
                    **_gang_json(view, picture),
                    "placement": places.gang_json(picture, view),
                    **gang.as_json(details[view.key], picture.now, members=members),
                }
                for view in ranked
                if view.key in details
            ],
            "deadlocked_gpus": dict(picture.verdicts.deadlocked_gpus),
            "gpus": gpus.as_json(picture),
            "topology": places.topology_json(picture),
            "unobservable": places.unobservable_json(picture),
            "sources": [
                {
                    "api_source": one.source,
                    "reason": one.reason,
                    "objects": one.objects,
                    "bad_objects": one.bad,
                    "error": _error_json(one, reading.errors),
                }
                for one in reading.health
            ],
        },
        indent=2,
    )


def _gang_json(gang: GangView, picture: Picture) -> dict[str, object]:
    now, verdicts = picture.now, picture.verdicts
    return {
        "gang": gang.name,
        "kube_namespace": gang.queue.namespace,
        "gang_engine": gang.queue.engine,
        "kueue_local_queue": _none(gang.queue.local_queue),
        "kueue_cluster_queue": _none(gang.queue.cluster_queue),
        "owner_kind": _none(gang.owner_kind),
        "gang_state": gang.state,
        "state_seconds": None if gang.since is None else max(0.0, now - gang.since),
        "required": gang.required,
        "members": {**gang.classes, **({"missing": gang.missing} if gang.missing else {})},
        "gpus_requested": gang.requested,
        "gpus_allocated": gang.allocated,
        "gpus_idle": gang.idle,
        "gpus_reserved": gang.reserved,
        "requeues": gang.requeues,
        "blocker": verdicts.blockers.get(gang.key),
        "deadlocked": gang.key in verdicts.deadlocked,
        "unguarded": list(gang.unguarded),
        "unobservable": gang.unobservable or None,
    }


def _none(value: str) -> str | None:
    return None if value == NONE else value


def _error_json(one: SourceHealth, errors: Mapping[str, SourceError]) -> str | None:
    # What is not installed has its reason, and an advice that is for the check.
    return str(errors[one.source]) if one.source in errors and one.reason != NOT_INSTALLED else None
