# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The rules of the files in deploy/: the check may read what it reads, no more, and the configurations load."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from datadog_checks.kueue_gang import KueueGangCheck
from datadog_checks.kueue_gang.options import unknown_options
from datadog_checks.kueue_gang.sources.resources import API_SOURCES, resources

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"


def documents(name: str) -> list[Any]:
    """Return the documents of a YAML file."""
    return [document for document in yaml.safe_load_all((DEPLOY / name).read_text(encoding="ascii")) if document]


def by_kind(name: str) -> dict[str, Any]:
    """Return the Kubernetes objects of a file by kind."""
    return {document["kind"]: document for document in documents(name)}


def configurations() -> dict[str, Any]:
    """Return each configuration of the check in deploy/ by where it stands."""
    values = documents("cluster-check.yaml")[0]
    confd = {f"confd/{name}": yaml.safe_load(text) for name, text in values["clusterAgent"]["confd"].items()}
    return {"conf.yaml": documents("conf.yaml")[0], **confd}


#: The options that stand in comments, by file.
IN_COMMENTS = {
    "cluster-check.yaml": ("scheduler_metrics", "activity", "training", "gpu_hourly_price"),
    "conf.yaml": ("activity", "training", "gpu_hourly_price"),
}


def with_comments(name: str) -> str:
    """Return a file of deploy/ with the options that are commented out."""
    text = (DEPLOY / name).read_text()
    for option in IN_COMMENTS[name]:
        head, found, tail = text.partition(f"# {option}:")
        comments, blank, rest = tail.partition("\n\n")
        text = head + found.removeprefix("# ") + comments.replace(" # ", " ") + blank + rest
    return text


# RBAC.


def test_the_role_allows_what_is_read_and_no_more() -> None:
    """The rules name exactly the resources of the check's own table, each to get, list and watch."""
    wanted = {(row.group, row.plural) for row in resources(dict.fromkeys(API_SOURCES, lambda _obj: None))}
    rules = [rule for rule in by_kind("rbac.yaml")["ClusterRole"]["rules"] if "resources" in rule]
    allowed = [pair for rule in rules for pair in product(rule["apiGroups"], rule["resources"])]
    assert sorted(allowed) == sorted(wanted)
    assert all(rule["verbs"] == ["get", "list", "watch"] for rule in rules)


def test_the_role_allows_metrics_endpoints() -> None:
    """Beside objects only /metrics may be read."""
    rules = [rule for rule in by_kind("rbac.yaml")["ClusterRole"]["rules"] if "resources" not in rule]
    assert rules == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]


def test_the_binding_gives_the_role_to_the_runners() -> None:
    """The binding names the role of the file, and the ServiceAccount that the chart makes for the values beside it."""
    kinds = by_kind("rbac.yaml")
    binding = kinds["ClusterRoleBinding"]
    assert binding["roleRef"]["kind"] == "ClusterRole"
    assert binding["roleRef"]["name"] == kinds["ClusterRole"]["metadata"]["name"]
    assert [subject["name"] for subject in binding["subjects"]] == ["datadog-cluster-checks"]
    assert documents("cluster-check.yaml")[0]["clusterChecksRunner"]["rbac"] == {"create": True, "dedicated": True}


# Configurations.


@pytest.mark.parametrize("place", sorted(configurations()))
def test_the_configuration_loads(place: str) -> None:
    """Each instance is accepted, and has no option that nothing reads."""
    for instance in configurations()[place]["instances"]:
        assert unknown_options(instance) == []
        check = KueueGangCheck("kueue_gang", {}, [instance])
        check.load_configuration_models()
        assert check.config.collect_kubernetes is True


@pytest.mark.parametrize("name", sorted(IN_COMMENTS))
def test_the_options_in_comments_load_too(name: str) -> None:
    """Whoever takes away the comment signs gets a configuration that loads."""
    found = yaml.safe_load(with_comments(name))
    if name == "cluster-check.yaml":
        found = yaml.safe_load(found["clusterAgent"]["confd"]["kueue_gang.yaml"])
    (instance,) = found["instances"]
    assert set(IN_COMMENTS[name]) <= set(instance)
    KueueGangCheck("kueue_gang", {}, [instance]).load_configuration_models()


def test_only_the_cluster_agent_dispatches() -> None:
    """cluster_check stands where the Cluster Agent reads the file, and nowhere else: one instance a cluster."""
    assert {place: found.get("cluster_check", False) for place, found in configurations().items()} == {
        "conf.yaml": False,
        "confd/kueue_gang.yaml": True,
    }


def test_the_file_is_named_as_the_check() -> None:
    """The Agent finds the check by the name of its configuration file."""
    values = documents("cluster-check.yaml")[0]
    assert list(values["clusterAgent"]["confd"]) == [f"{KueueGangCheck.__NAMESPACE__}.yaml"]
    assert values["datadog"]["clusterChecks"]["enabled"] is True
    assert values["clusterChecksRunner"]["enabled"] is True


def test_the_image_installs_the_wheel() -> None:
    """The wheel that `make wheel` builds is what the image installs, and the values use an image of that name."""
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="ascii")
    image = documents("cluster-check.yaml")[0]["clusterChecksRunner"]["image"]
    assert "FROM gcr.io/datadoghq/agent:7\n" in dockerfile
    assert "COPY dist/datadog_kueue_gang-*.whl" in dockerfile
    assert f"-t {image['repository']}:{image['tag']} " in dockerfile
