# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The simulated cluster makes nothing up: what the check reads of it was recorded, or has another source."""

import pytest

from lab.provenance import EXCEPTIONS, Row, Traced, exposed, form, recorded, simulated, without_names
from lab.simulation.scenario import known


def test_what_the_check_reads_of_the_lab_was_recorded():
    """Every field, condition, text and family of every scenario; and no exception is left that is none any more."""
    sources, shown = recorded(), simulated(known())
    assert {tuple(row) for row in shown.keys() - sources.keys()} == set(EXCEPTIONS)
    # Nothing of this would mean anything if it were little.
    assert {row.kind for row in shown} >= {"pods", "nodes", "workloads.kueue.x-k8s.io", "events", "kueue metrics"}
    assert (
        Row("pods", "condition PodScheduled False Unschedulable: #/# nodes are available: # rejection in Unreserve.")
        in shown
    )
    assert len(shown) > 200


def test_a_traced_mapping_notes_what_is_read_and_nothing_else():
    """Also in lists and nested mappings; what is absent was not read."""
    rows: set[str] = set()
    obj = Traced({"a": {"b": [{"c": "2027-01-01T00:00:00Z", "d": 1}]}, "phase": "Running", "e": None}, "", rows)
    assert obj.get("a")["b"][0].get("c")
    assert obj["phase"] == "Running"
    assert obj.get("f", 3) == 3
    assert obj["e"] is None
    assert rows == {"a.b[].c: time", "phase: Running"}
    assert dict(obj.get("a")["b"][0].items()) == {"c": "2027-01-01T00:00:00Z", "d": 1}
    assert "a.b[].d: number" in rows


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("status.phase", "Pending", "Pending"),
        ("metadata.creationTimestamp", "2027-01-01T00:00:00Z", "time"),
        ("eventTime", "2027-01-01T00:00:00.000001Z", "time with fractions"),
        ("spec.resources.nvidia.com/gpu", "8", "quantity"),
        ("spec.resources.memory", "32Gi", "quantity"),
        ("spec.suspend", True, "yes or no"),
        ("spec.parallelism", 4, "number"),
        ("state.terminated.exitCode", 1, "1"),
        ("metadata.name", "a-b", "text"),
        ("schedulingStats.evictions[].underlyingCause", "", "''"),
    ],
)
def test_a_value_has_a_form(path, value, expected):
    """One of few values is itself."""
    assert form(path, value) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0/4 nodes are available: 4 Insufficient a/b.", "#/# nodes are available: # Insufficient a/b."),
        ("1 rejected due to timeout after waiting 1m0s at plugin Coscheduling.",
         "# rejected due to timeout after waiting TIME at plugin Coscheduling."),
        ("PodGroup a-b/c gets rejected due to Pod c-0-xyz is unschedulable even after PostFilter",
         "PodGroup NAME gets rejected due to Pod NAME is unschedulable even after PostFilter"),
        ("couldn't assign flavors to pod set main: insufficient unused quota for a/b in flavor h100, 16 more needed",
         "couldn't assign flavors to pod set NAME: insufficient unused quota for a/b in flavor NAME, # more needed"),
        ("Quota reserved in ClusterQueue llm-cq", "Quota reserved in ClusterQueue NAME"),
    ],
)  # fmt: skip
def test_a_text_is_compared_without_names_and_numbers(text, expected):
    """What tells situations apart stays."""
    assert without_names(text) == expected


def test_of_an_exposition_families_and_labels_are_compared():
    """Values, values of labels, and buckets are not."""
    text = b'# TYPE a counter\na{y="1",x="2"} 3\nb_bucket{le="1"} 1\nb_sum{x="1"} 2\n'
    assert list(exposed(text)) == ["a{x, y}", "b_sum{x}"]
