# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The rules of the options: what loads, what is refused, and that a refusal says which option and what to do."""

import re
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml
from datadog_checks.base import ConfigurationError
from datadog_checks.base.utils.models.validation.security import SecurityConfig
from datadog_checks.base.utils.tls import TlsConfig
from hypothesis import given, settings
from hypothesis import strategies as st

from datadog_checks.kueue_gang import options
from datadog_checks.kueue_gang.catalog import OWN
from datadog_checks.kueue_gang.config_models import conversions, validators
from datadog_checks.kueue_gang.config_models.instance import InstanceConfig
from datadog_checks.kueue_gang.settings import rules
from tests.loaded import load, refusal

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "datadog_checks" / "kueue_gang"

ENDPOINT = "https://kueue.example:8443/metrics"
AUTH_TOKEN = {
    "reader": {"type": "file", "path": "/var/run/token"},
    "writer": {"type": "header", "name": "Authorization", "value": "Bearer <TOKEN>"},
}

#: The options of this check and what each is where it is not set, as the documentation says.
DEFAULTS = {
    "activity": None,
    "collect_kubernetes": True,
    "collect_events": True,
    "elastic_flavors": None,
    "exclude_namespaces": None,
    "gang_engines": None,
    "gang_labels_as_tags": None,
    "gang_scheduler_names": None,
    "gpu_hourly_price": None,
    "gpu_resources": (
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mig-*",
        "amd.com/gpu",
        "gpu.intel.com/*",
        "google.com/tpu",
        "habana.ai/gaudi",
        "aws.amazon.com/neuron",
    ),
    "grace_seconds": 60,
    "implicit_gangs": "known",
    "sync": "watch",
    "inactive_after_seconds": 600,
    "include_cpu_gangs": False,
    "kube_api_options": None,
    "kube_api_url": None,
    "kube_config_path": None,
    "kube_context": None,
    "kube_timeout": 10,
    "kueue_gang_kinds": None,
    "kueue_local_queue_metrics": False,
    "kueue_metrics": "gang",
    "max_gangs": 100,
    "namespaces": None,
    "openmetrics_endpoint": None,
    "per_gang_metrics": "attention",
    "scheduler_metrics": None,
    "scheduler_versions": None,
    "slots": ("1x1", "1x8", "2x8", "4x8", "8x8"),
    "tolerated_taints": None,
    "topology_levels": None,
    "training": None,
    "zero_tail_seconds": 900,
}

#: What an option needs beside it to be accepted.
COMPANIONS: dict[str, dict[str, Any]] = {
    "kube_api_options": {"kube_api_url": "http://localhost:8001"},
    "kube_context": {"kube_config_path": "/etc/kubeconfig"},
}


def specified() -> dict[str, Any]:
    """Return the options that the specification itself describes, with their examples."""
    spec = yaml.safe_load((ROOT / "assets/configuration/spec.yaml").read_text())
    sections = {section.get("template"): section for section in spec["files"][0]["options"]}
    own = sections["instances"]["options"]
    return {option["name"]: option["value"]["example"] for option in own if "name" in option}


# What loads.


def test_nothing_has_to_be_set() -> None:
    """An empty instance loads, and each option then is what the documentation gives as its default."""
    model = load()
    assert {name: getattr(model, name) for name in DEFAULTS} == DEFAULTS


def test_every_option_of_the_specification_has_a_rule() -> None:
    """Each option that the specification describes is checked at load, and has a default that is tested here."""
    names = set(specified()) | {"openmetrics_endpoint"}
    assert names == set(DEFAULTS)
    assert {name for name in names if not hasattr(validators, f"instance_{name}")} == set()


@pytest.mark.parametrize("option", sorted(set(DEFAULTS) - {"openmetrics_endpoint", "kube_config_path", "kube_context"}))
def test_the_examples_can_be_used(option: str) -> None:
    """Whoever takes away the comment sign before an example gets a configuration that loads."""
    example = specified()[option]
    assert getattr(load(**{option: example}, **COMPANIONS.get(option, {})), option) is not None


def test_the_example_file_loads() -> None:
    """conf.yaml.example as it is, copied to conf.yaml, reads the cluster that the Agent runs in."""
    example = yaml.safe_load((PACKAGE / "data/conf.yaml.example").read_text())
    assert example["instances"] == [{"collect_kubernetes": True}]
    assert load(**example["instances"][0]).collect_kubernetes is True


def test_the_example_is_the_same_in_both_places() -> None:
    """The file at the top, which people read, is the one that the Agent installs."""
    assert (ROOT / "conf.yaml.example").read_text() == (PACKAGE / "data/conf.yaml.example").read_text()


def test_no_other_yaml_is_installed_as_configuration() -> None:
    """The Agent copies every YAML file of data/ into conf.d, where it would be read as a configuration."""
    assert sorted(path.name for path in (PACKAGE / "data").iterdir()) == ["conf.yaml.example"]


def test_the_metrics_carry_neither_host_nor_endpoint() -> None:
    """Metrics of a cluster have no host and no endpoint, and no buckets, unless somebody asks for them."""
    model = load()
    assert (model.empty_default_hostname, model.tag_by_endpoint, model.collect_histogram_buckets) == (
        True,
        False,
        False,
    )
    model = load(empty_default_hostname=False, tag_by_endpoint=True, collect_histogram_buckets=True)
    assert (model.empty_default_hostname, model.tag_by_endpoint, model.collect_histogram_buckets) == (False, True, True)


@pytest.mark.parametrize("option", sorted(DEFAULTS))
def test_an_option_without_a_value_is_not_set(option: str) -> None:
    """`option:` with nothing behind the colon is null to YAML, and means the default."""
    assert getattr(load(**{option: None}), option) == DEFAULTS[option]


def test_the_options_of_the_agent_still_work() -> None:
    """Options that the templates of the Agent describe are accepted beside those of this check."""
    model = load(
        openmetrics_endpoint=ENDPOINT,
        auth_token=AUTH_TOKEN,
        tls_ca_cert="/ca.crt",
        extra_metrics=["kueue_build_info"],
        tags=["team:ml"],
        min_collection_interval=30,
    )
    assert model.tls_ca_cert == "/ca.crt"
    assert model.tags == ("team:ml",)


# What is refused: words and numbers.


@pytest.mark.parametrize(
    ("option", "value", "meant"),
    [
        ("kueue_metrics", "gangs", "gang"),
        ("kueue_metrics", False, None),
        ("implicit_gangs", "Known", "known"),
        ("sync", "lists", "list"),
        ("per_gang_metrics", "attentive", "attention"),
        ("per_gang_metrics", ["all"], "all"),
    ],
)
def test_a_wrong_word_is_refused_with_the_right_ones(option: str, value: object, meant: str | None) -> None:
    """An option with a closed list of words names them all, and the one that was probably meant."""
    text = refusal(**{option: value})
    assert f"`{option}` must be one of " in text
    assert ("did you mean" in text) == (meant is not None)
    if meant:
        assert f"did you mean {meant}?" in text


@pytest.mark.parametrize("option", ["collect_kubernetes", "include_cpu_gangs", "kueue_local_queue_metrics"])
def test_a_switch_is_true_or_false(option: str) -> None:
    """The words that YAML and the Agent take for true and false are taken, and nothing else."""
    with_endpoint = {"openmetrics_endpoint": ENDPOINT}
    assert [getattr(load(**{option: word}, **with_endpoint), option) for word in (True, "yes", "on", 1)] == [True] * 4
    assert [getattr(load(**{option: word}, **with_endpoint), option) for word in (False, "No", "off", 0)] == [False] * 4
    wrongs: list[object] = ["maybe", 2, [], 1.0]
    for wrong in wrongs:
        assert f"`{option}` must be true or false" in refusal(**{option: wrong})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("grace_seconds", -1),
        ("grace_seconds", "60s"),
        ("grace_seconds", float("nan")),
        ("grace_seconds", True),
        ("zero_tail_seconds", -0.5),
        ("zero_tail_seconds", float("inf")),
        ("kube_timeout", 0),
        ("kube_timeout", -3),
        ("kube_timeout", 10**400),
        ("max_gangs", 0),
        ("max_gangs", -1),
        ("max_gangs", 1.5),
        ("max_gangs", "many"),
        ("max_gangs", True),
    ],
)
def test_numbers_that_make_no_sense_are_refused(option: str, value: object) -> None:
    """Negative times, no time at all to wait, no gangs, and what is no number."""
    assert f"`{option}` must" in refusal(**{option: value})


def test_numbers_at_the_edge_are_taken() -> None:
    """No grace and no zeros are choices one may make; digits in quotes are a number."""
    model = load(grace_seconds=0, zero_tail_seconds=0, kube_timeout=0.5, max_gangs=1)
    assert (model.grace_seconds, model.zero_tail_seconds, model.kube_timeout, model.max_gangs) == (0, 0, 0.5, 1)
    model = load(grace_seconds="90", max_gangs="7")
    assert (model.grace_seconds, model.max_gangs) == (90, 7)


def test_no_gangs_has_an_option_of_its_own() -> None:
    """`max_gangs: 0` is refused with the option that says it better."""
    assert "per_gang_metrics: none" in refusal(max_gangs=0)


# Where the sources are.


@pytest.mark.parametrize("option", ["openmetrics_endpoint", "kube_api_url", "scheduler_metrics"])
@pytest.mark.parametrize(
    "url",
    [
        "kueue:8080/metrics",
        "ftp://kueue/metrics",
        "//kueue/metrics",
        "/metrics",
        "https://",
        "http://h:port/",
        "",
        8080,
    ],
)
def test_a_url_is_an_http_url(option: str, url: object) -> None:
    """Each source is reached by http or https at a host; the text names the option, also inside of a mapping."""
    value, name = ({"url": url}, "scheduler_metrics.url") if option == "scheduler_metrics" else (url, option)
    assert f"`{name}` " in refusal(**{option: value})


@pytest.mark.parametrize("option", ["openmetrics_endpoint", "kube_api_url", "scheduler_metrics"])
def test_a_url_holds_no_credentials(option: str) -> None:
    """A user and password in a URL would end up in logs; the refusal does not repeat them."""
    url = "https://robot:hunter2@host/metrics"
    text = refusal(**{option: {"url": url} if option == "scheduler_metrics" else url})
    assert "holds credentials" in text
    assert "hunter2" not in text
    assert "robot" not in text


def test_one_way_to_the_kubernetes_api() -> None:
    """A URL and a kubeconfig are two clusters, maybe; the check does not choose."""
    text = refusal(kube_api_url="http://localhost:8001", kube_config_path="/etc/kubeconfig")
    assert "`kube_api_url` and `kube_config_path`" in text


def test_there_must_be_something_to_do() -> None:
    """Neither the API nor an endpoint, or an endpoint of which nothing is taken, is a mistake."""
    assert "`collect_kubernetes` is false and `openmetrics_endpoint` is not set" in refusal(collect_kubernetes=False)
    scrape = {"collect_kubernetes": False, "openmetrics_endpoint": ENDPOINT}
    assert load(**scrape).openmetrics_endpoint == ENDPOINT
    assert "`kueue_metrics` is none" in refusal(**scrape, kueue_metrics="none")
    assert load(**scrape, kueue_metrics="none", extra_metrics=["kueue_build_info"]).kueue_metrics == "none"


def test_a_context_belongs_to_a_kubeconfig() -> None:
    """`kube_context` alone would be ignored, so it is refused."""
    assert "`kube_context`" in refusal(kube_context="prod")
    assert load(kube_context="prod", kube_config_path="~/.kube/config").kube_context == "prod"


def test_a_kubeconfig_is_named_by_its_full_path() -> None:
    """The Agent runs in no folder that a user knows."""
    assert "`kube_config_path` must be an absolute path" in refusal(kube_config_path=".kube/config")


def test_options_of_the_api_need_its_url() -> None:
    """`kube_api_options` have no effect on a kubeconfig or a service account, so they are refused there."""
    assert "`kube_api_options`" in refusal(kube_api_options={"tls_verify": False})


def test_all_faults_of_the_connection_are_told_at_once() -> None:
    """Options that do not go together are listed together, so that one repair mends the file."""
    text = refusal(collect_kubernetes=False, kube_context="prod", kube_api_options={"tls_verify": False})
    assert [name in text for name in ("collect_kubernetes", "kube_context", "kube_api_options")] == [True] * 3


def test_faults_of_several_options_are_told_at_once() -> None:
    """Each option is checked by itself, and the Agent shows all that are wrong."""
    text = refusal(kueue_metrics="most", max_gangs=0, namespaces="team-a")
    assert [f"`{name}`" in text for name in ("kueue_metrics", "max_gangs", "namespaces")] == [True] * 3


# Credentials.


@pytest.mark.parametrize("option", ["bearer_token_auth", "bearer_token_path"])
def test_the_old_bearer_token_is_refused_with_the_new_one(option: str) -> None:
    """The old option does nothing with openmetrics_endpoint, and the scrape would fail as unauthorized."""
    for instance in (
        {option: True, "openmetrics_endpoint": ENDPOINT},
        {"scheduler_metrics": {"url": ENDPOINT, option: "x"}},
    ):
        text = refusal(**instance)
        assert f"{option}` does nothing" in text
        assert "auth_token: {reader: {type: file, path: " in text
        assert "value: Bearer <TOKEN>" in text


@pytest.mark.parametrize(
    ("key", "meant"),
    [("tls_verfy", "tls_verify"), ("ca_cert", "tls_ca_cert"), ("token", "auth_token"), ("verify", "tls_verify")],
)
@pytest.mark.parametrize("option", ["kube_api_options", "scheduler_metrics"])
def test_unknown_keys_of_a_mapping_are_refused(option: str, key: str, meant: str) -> None:
    """Nobody would miss a key of a mapping that is not read, so it is refused with the nearest one."""
    value = {"url": ENDPOINT, key: "x"} if option == "scheduler_metrics" else {key: "x"}
    text = refusal(**{option: value})
    assert f"`{option}.{key}` is not known" in text
    assert f"did you mean {meant}?" in text


def test_options_of_another_client_are_refused() -> None:
    """A target of its own takes a token and TLS options; user names, headers and proxies are the instance's."""
    assert "`kube_api_options.username`" in refusal(kube_api_url=ENDPOINT, kube_api_options={"username": "me"})
    assert "`kube_api_options.url`" in refusal(kube_api_url=ENDPOINT, kube_api_options={"url": ENDPOINT})


def test_every_tls_option_of_the_agent_is_known() -> None:
    """A mapping for one more target takes each tls_* option that the Agent's HTTP client has."""
    assert {*TlsConfig.model_fields, "auth_token"} <= conversions.HTTP_OPTIONS


def test_a_target_of_its_own_is_kept_whole() -> None:
    """What is accepted reaches the HTTP client as it was written, without keys that have no value."""
    value = {"url": ENDPOINT, "auth_token": AUTH_TOKEN, "tls_verify": "no", "tls_ca_cert": "/ca.crt", "tls_cert": None}
    model = load(scheduler_metrics=value)
    assert options.thaw(model.scheduler_metrics) == {
        "url": ENDPOINT,
        "auth_token": AUTH_TOKEN,
        "tls_verify": False,
        "tls_ca_cert": "/ca.crt",
    }


def test_scheduler_metrics_need_a_url() -> None:
    """There is no place where every cluster has its scheduler."""
    assert "`scheduler_metrics` has no `url`" in refusal(scheduler_metrics={"tls_verify": False})
    assert "`scheduler_metrics` must be a mapping" in refusal(scheduler_metrics=ENDPOINT)


@pytest.mark.parametrize("token", ["s3cret", {"reader": {"type": "file"}}, {"reader": "s3cret", "writer": {}}])
def test_a_token_has_a_reader_and_a_writer(token: object) -> None:
    """A token by itself is not accepted, and not repeated."""
    text = refusal(scheduler_metrics={"url": ENDPOINT, "auth_token": token})
    assert "`scheduler_metrics.auth_token` must hold a `reader` and a `writer`" in text
    assert "s3cret" not in text


# What is reported.


def test_the_prefix_is_fixed() -> None:
    """`namespace` is the prefix of metrics to the Agent, and surely a Kubernetes namespace to who writes it."""
    assert "use the list `namespaces`" in refusal(namespace="team-a")


@pytest.mark.parametrize("option", ["namespaces", "exclude_namespaces"])
def test_namespaces_are_names_or_patterns(option: str) -> None:
    """A list of lower-case names, with the signs of a pattern; the same name counts once."""
    assert getattr(load(**{option: ["team-a", "ml-*", "team-a", "t[ab]?"]}), option) == ("team-a", "ml-*", "t[ab]?")
    wrongs: list[object] = ["team-a", [], ["Team"], ["a b"], [""], [7], {"a": 1}]
    for wrong in wrongs:
        assert f"`{option}` " in refusal(**{option: wrong})


@pytest.mark.parametrize(
    ("wanted", "excluded", "fault"),
    [
        (["team-a"], ["team-a"], True),
        (["team-a"], ["team-*"], True),
        (["team-*"], ["team-*"], True),
        (["team-*"], ["*"], True),
        (None, ["*"], True),
        (["team-*"], ["team-test"], False),
        (["team-a"], ["team-b"], False),
        (["*"], ["kube-*"], False),
        (None, ["kube-system"], False),
    ],
)
def test_no_namespace_is_both_wanted_and_excluded(
    wanted: list[str] | None, excluded: list[str], *, fault: bool
) -> None:
    """An entry that is taken away as a whole is a mistake; a pattern of which a part is taken away is a choice."""
    instance = {"namespaces": wanted, "exclude_namespaces": excluded}
    if fault:
        assert "`exclude_namespaces`" in refusal(**instance)
    else:
        assert load(**instance).exclude_namespaces == tuple(excluded)


def test_engines_are_those_of_this_release() -> None:
    """An engine that is not known is refused with those that are; `job` is no engine one asks for."""
    assert load(gang_engines=["kueue", "coscheduling"]).gang_engines == ("kueue", "coscheduling")
    assert "this release knows coscheduling, kubernetes, kueue" in refusal(gang_engines=["volcano"])
    assert "did you mean coscheduling?" in refusal(gang_engines=["Coscheduler"])
    assert "`implicit_gangs`" in refusal(gang_engines=["job"])
    assert "remove it to use all that the cluster serves" in refusal(gang_engines=[])


def test_kinds_are_written_as_in_manifests() -> None:
    """Kueue's own configuration writes `jobset.x-k8s.io/jobset`; the check compares the kind of the owner."""
    assert load(kueue_gang_kinds=["JobSet", "Pod"]).kueue_gang_kinds == ("JobSet", "Pod")
    for wrong in ("jobset.x-k8s.io/jobset", "jobset", "batch/job"):
        assert "such as JobSet" in refusal(kueue_gang_kinds=[wrong])


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (["gpu.intel.com/i915_monitoring"], "gives sight of GPUs and is none"),
        (["gpu.intel.com/*_monitoring"], "gives sight of GPUs and is none"),
        (["*"], "takes cpu for a GPU"),
        (["mem*"], "takes memory for a GPU"),
        ([""], "is empty"),
        ([" nvidia.com/gpu"], "begins or ends with a space"),
        (["nvidia.com/gpu, amd.com/gpu"], "each entry must be"),
        ([], "is an empty list"),
        ("nvidia.com/gpu", "must be a list"),
    ],
)
def test_gpu_resources_are_gpus(value: object, problem: str) -> None:
    """What is no GPU would make every figure wrong, so patterns that take in more are refused."""
    text = refusal(gpu_resources=value)
    assert "`gpu_resources` " in text
    assert problem in text


@pytest.mark.parametrize(
    ("taint", "parts"),
    [
        ("dedicated", ("dedicated", None, None)),
        ("example.com/pool=a", ("example.com/pool", "a", None)),
        ("pool=", ("pool", "", None)),
        ("pool=a:NoSchedule", ("pool", "a", "NoSchedule")),
        ("pool=:NoExecute", ("pool", "", "NoExecute")),
    ],
)
def test_taints_have_a_key_and_maybe_more(taint: str, parts: tuple[str, str | None, str | None]) -> None:
    """The three forms of a taint are taken, and split in one place."""
    assert load(tolerated_taints=[taint]).tolerated_taints == (taint,)
    assert validators.taint_parts(taint) == parts


@pytest.mark.parametrize(
    ("taint", "problem"),
    [
        ("dedicated:NoSchedule", "an effect needs a value"),
        ("=a", "write key, key=value"),
        ("a b", "write key, key=value"),
        ("pool=a b", "write key, key=value"),
        ("pool=a:NoShedule", "did you mean NoSchedule?"),
        ("pool=a:", "the effect must be"),
        ("pool=a:PreferNoSchedule", "never keeps pods away"),
        ("node.kubernetes.io/unreachable", "cannot take pods"),
    ],
)
def test_taints_that_are_none_are_refused(taint: str, problem: str) -> None:
    """A taint that no node can have, or that must never be tolerated, is refused with the reason."""
    text = refusal(tolerated_taints=[taint])
    assert "`tolerated_taints` holds" in text
    assert problem in text


def test_slots_are_shapes_of_gangs() -> None:
    """A slot is pods x GPUs a pod; the same shape counts once, however it is written."""
    found = load(slots=["1x8", "16x8", "01x8", "100000x1"])
    assert found.slots == ("1x8", "16x8", "100000x1")
    assert rules(found).slots == ((1, 8), (16, 8), (100_000, 1))


@pytest.mark.parametrize("slot", ["8", "x8", "2x", "0x8", "2x0", "100001x1", "2 x 8", "2X8", "-1x8", "2x8x1", "1.5x8"])
def test_slots_that_are_none_are_refused(slot: str) -> None:
    """Anything but two numbers from 1 to 100,000 is refused, with the form that is meant."""
    text = refusal(slots=[slot])
    assert "`slots` holds" in text
    assert "such as 2x8" in text


def test_levels_and_flavors_are_names() -> None:
    """Levels keep their order, the widest first; flavors are exact names, no patterns."""
    found = rules(load(topology_levels=["topology.kubernetes.io/zone", "rack"], elastic_flavors=["spot", "h100.spot"]))
    assert found.topology_levels == ("topology.kubernetes.io/zone", "rack")
    assert found.elastic_flavors == {"spot", "h100.spot"}


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("topology_levels", ["rack=r1"], "the key of a node label"),
        ("topology_levels", ["a/b/c"], "the key of a node label"),
        ("topology_levels", "rack", "must be a list"),
        ("topology_levels", [], "to use the Topology objects of Kueue"),
        ("elastic_flavors", ["spot-*"], "the exact name of a ResourceFlavor"),
        ("elastic_flavors", [], "where no flavor grows"),
        ("slots", [], "to use the default"),
        ("slots", [28], "must be a string"),
    ],
)
def test_what_is_no_name_is_refused(option: str, value: object, problem: str) -> None:
    """A level that is no label key and a flavor that is no name are refused with the reason."""
    text = refusal(**{option: value})
    assert f"`{option}`" in text
    assert problem in text


@pytest.mark.parametrize("version", ["1.35", "v1.35", "1.35.2", "35", 35])
def test_scheduler_versions_are_minors(version: object) -> None:
    """All ways to write a minor version of Kubernetes become its number."""
    assert load(scheduler_versions={"gang-scheduler": version}).scheduler_versions == {"gang-scheduler": 35}


def test_a_version_without_quotes_is_refused() -> None:
    """YAML reads 1.30 as the number 1.3, which is another version: quotes are asked for, with both digits."""
    value = yaml.safe_load("{gang-scheduler: 1.30}")
    text = refusal(scheduler_versions=value)
    assert "`scheduler_versions.gang-scheduler` is 1.3 to YAML" in text
    assert "put the version in quotes, as '1.30'" in text


@pytest.mark.parametrize("version", ["1", "2.35", "latest", "", 1, 135, True, None, [35]])
def test_other_versions_are_refused(version: object) -> None:
    """What is no minor version of Kubernetes decides nothing."""
    assert "`scheduler_versions.gang-scheduler` is " in refusal(scheduler_versions={"gang-scheduler": version})


def test_schedulers_have_names_of_kubernetes() -> None:
    """A schedulerName is a DNS name; a list is asked for where one name is given."""
    assert load(gang_scheduler_names=["gang-scheduler", "a.b"]).gang_scheduler_names == ("gang-scheduler", "a.b")
    wrongs: list[object] = [["Gang Scheduler"], "gang-scheduler", []]
    for wrong in wrongs:
        assert "`gang_scheduler_names` " in refusal(gang_scheduler_names=wrong)
    assert "`scheduler_versions` " in refusal(scheduler_versions={"Gang Scheduler": 35})


@pytest.mark.parametrize(
    "tag", ["host", "source", "service", "device", "version", "cluster", "env", "kube_cluster_name"]
)
def test_reserved_tags_are_refused(tag: str) -> None:
    """Tags that mean something else at Datadog cannot be given away."""
    assert "is reserved at Datadog" in refusal(gang_labels_as_tags={"team": tag})


@pytest.mark.parametrize(
    "tag", ["gang", "kube_namespace", "kueue_cluster_queue", "gpu_resource", "gang_state", "reason"]
)
def test_tags_of_the_check_are_refused(tag: str) -> None:
    """Two values under one key would make a query over it count twice."""
    assert "this check sends that tag itself" in refusal(gang_labels_as_tags={"team": tag})


@pytest.mark.parametrize(
    "value",
    [
        {f"label-{n}": f"tag_{n}" for n in range(6)},
        {"a": "team", "b": "team"},
        {"team": "Team"},
        {"team": "team:x"},
        {"team": ""},
        {"team": None},
        {"a/b/c": "team"},
        {"-team": "team"},
        ["team"],
        "team",
    ],
)
def test_labels_as_tags_are_few_and_well_formed(value: object) -> None:
    """At most five labels, each under a tag of its own that Datadog stores as it is written."""
    assert "`gang_labels_as_tags" in refusal(gang_labels_as_tags=value)


def test_every_tag_of_the_catalog_is_taken() -> None:
    """No label can get the name of a tag that a metric of the check carries."""
    assert {tag for metric in OWN.values() for tag in metric.tags} <= validators.OWN_TAG_KEYS


def test_labels_as_tags_load() -> None:
    """Five labels are taken, with and without a domain."""
    value = {"example.com/team": "team", "app": "app", "a": "job_host", "b": "cost-center", "c": "tier.x"}
    assert load(gang_labels_as_tags=value).gang_labels_as_tags == value


# Names that nothing reads.


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("kueue_metric", "kueue_metrics"),
        ("max_gang", "max_gangs"),
        ("exclude_namespace", "exclude_namespaces"),
        ("namespace_", "namespaces"),
        ("openmetrics_endpoints", "openmetrics_endpoint"),
        ("prometheus_url", "openmetrics_endpoint"),
        ("kubeconfig", "kube_config_path"),
        ("cluster_check", None),
        ("completely_different", None),
    ],
)
def test_unknown_options_are_named_with_the_nearest(name: str, meant: str | None) -> None:
    """A name that nothing reads is accepted by the models, so the check warns of it."""
    assert load(**{name: "x"}).kueue_metrics == "gang"
    assert options.unknown_options({"kueue_metrics": "gang", name: "x"}) == [(name, meant)]


def test_known_options_are_not_reported() -> None:
    """Every option of the models, of the Agent and of its HTTP client is known, and so is what the Agent adds."""
    names = [*InstanceConfig.model_fields, "max_returned_metrics", "tls_validate_hostname", "loader", "__internal"]
    assert options.unknown_options(dict.fromkeys(names, 1)) == []


# Files that a configuration from outside may name.


def test_files_in_mappings_need_a_trusted_provider() -> None:
    """Where the Agent mistrusts annotations, a file named inside a mapping is refused as one of the instance is."""
    instance = {
        "scheduler_metrics": {"url": ENDPOINT, "auth_token": AUTH_TOKEN, "tls_ca_cert": "/ca.crt", "tls_verify": True},
        "kube_api_options": {"tls_cert": "/tls/cert", "tls_private_key": "/tls/key"},
        "activity": {"prometheus_url": ENDPOINT, "auth_token": AUTH_TOKEN},
        "training": [{"train_jobs": True}, {"prometheus_url": ENDPOINT, "tls_ca_cert": "/ca.crt"}, "no mapping"],
    }
    mistrust = SecurityConfig(check_name="kueue_gang", provider="kubernetes", ignore_untrusted_file_params=True)
    assert options.untrusted_options(instance, mistrust) == [
        "activity.auth_token",
        "kube_api_options.tls_cert",
        "kube_api_options.tls_private_key",
        "scheduler_metrics.auth_token",
        "scheduler_metrics.tls_ca_cert",
        "training[1].tls_ca_cert",
    ]
    mistrust.file_paths_allowlist = ["/tls", "/var/run", "/ca.crt"]
    assert options.untrusted_options(instance, mistrust) == []
    trust = SecurityConfig(check_name="kueue_gang", provider="file", ignore_untrusted_file_params=True)
    assert options.untrusted_options(instance, trust) == []


def test_thaw_gives_plain_containers() -> None:
    """The Agent's HTTP client asks whether a setting is a dict, and what the models hold is none."""
    frozen = MappingProxyType({"a": (1, MappingProxyType({"b": "text"})), "c": None})
    assert options.thaw(frozen) == {"a": [1, {"b": "text"}], "c": None}
    assert type(options.thaw(frozen)["a"][1]) is dict


# Laws, on any input.

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12) | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(deadline=None)  # a busy machine is no fault
@given(option=st.sampled_from(sorted(DEFAULTS)), value=values)
def test_any_value_loads_or_is_refused_by_name(option: str, value: object) -> None:
    """Whatever stands behind an option, the Agent gets a model or a text that names the option; never a traceback."""
    try:
        load(**{option: value})
    except ConfigurationError as error:
        assert re.search(rf"`{option}[`.\[]", str(error)), str(error)


@settings(deadline=None)  # a busy machine is no fault
@given(
    key=st.sampled_from(sorted(conversions.HTTP_OPTIONS | {"url", "prometheus_url", "path", "password"})),
    shape=st.integers(0, 4),
)
def test_no_secret_is_repeated(key: str, shape: int) -> None:
    """What stands in a mapping for the HTTP client may be a secret, and no refusal repeats it."""
    secret = "hunter2hunter2"
    shapes = [secret, [secret], {"reader": secret}, {secret: secret}, f"https://u:{secret}@h/"]
    pods = {"label_selector": "app=x", "namespace": "team", "port": 1, "metric": "m", "unit": "n", "scheme": "https"}
    query = {"prometheus_url": ENDPOINT, "query": "up", "unit": "n"}
    item = {key: shapes[shape]}
    for instance in (
        {"scheduler_metrics": item},
        {"kube_api_options": item},
        {"activity": {"prometheus_url": ENDPOINT, **item}},
        {"training": [{**pods, **item}]},
        {"training": [{**query, **item}]},
    ):
        try:
            load(**instance)
        except ConfigurationError as error:
            assert secret not in str(error)
