# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The rules of the options training, activity, inactive_after_seconds and gpu_hourly_price.

The names of the three ways, their keys and their defaults are those of conf.yaml.example, which a test reads as well.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from datadog_checks.base import ConfigurationError
from hypothesis import given, settings
from hypothesis import strategies as st

from datadog_checks.kueue_gang import options
from datadog_checks.kueue_gang import settings as parts
from datadog_checks.kueue_gang.config_models import conversions, signals
from tests.loaded import load, refusal

ROOT = Path(__file__).resolve().parent.parent

AUTH_TOKEN = {
    "reader": {"type": "file", "path": "/var/run/token"},
    "writer": {"type": "header", "name": "Authorization", "value": "Bearer <TOKEN>"},
}

#: The least of each way.
PODS = {"label_selector": "app=trainer", "port": 9000, "metric": "train_tokens_total", "unit": "tokens"}
QUERY = {"prometheus_url": "http://prometheus:9090", "query": "rate(x[1m])", "unit": "samples"}
JOBS = {"train_jobs": True}
EXPORTER = {"label_selector": "app=nvidia-dcgm-exporter"}
SERVER = {"prometheus_url": "https://prometheus:9090"}

#: Each way with all its keys.
ALL_OF_PODS = {
    **PODS,
    "namespace": "team-a",
    "path": "/custom/metrics",
    "scheme": "https",
    "over_ranks": "max",
    "stalled_after_seconds": 120.0,
    "requests_per_run": 20,
    "timeout": 1.5,
    "auth_token": AUTH_TOKEN,
    "tls_verify": False,
    "tls_ca_cert": "/ca.crt",
}
ALL_OF_QUERY = {
    **QUERY,
    "namespace_label": "kubernetes_namespace",
    "gang_label": "job_name",
    "over_ranks": "sum",
    "stalled_after_seconds": 600.0,
    "timeout": 10.0,
    "auth_token": AUTH_TOKEN,
    "tls_ca_cert": "/ca.crt",
}
ALL_OF_JOBS = {**JOBS, "metric": "train/tokens_per_second", "unit": "tokens", "stalled_after_seconds": 900.0}


def without(entry: dict[str, Any], *keys: str) -> dict[str, Any]:
    """Return an entry less some keys."""
    return {key: value for key, value in entry.items() if key not in keys}


# What loads.


@pytest.mark.parametrize("entry", [PODS, QUERY, JOBS, ALL_OF_PODS, ALL_OF_QUERY, ALL_OF_JOBS])
def test_each_way_of_training_loads_as_it_is_written(entry: dict[str, Any]) -> None:
    """The three ways, each with the least that it needs and with all that it takes; nothing is added."""
    assert options.thaw(load(training=[entry]).training) == [entry]


@pytest.mark.parametrize(
    "entry",
    [
        EXPORTER,
        SERVER,
        {**EXPORTER, "namespace": "gpu", "port": 9401, "path": "/m", "requests_per_run": 1, "timeout": 3.0},
        {**SERVER, "query": "up", "namespace_label": "ns", "pod_label": "p", "timeout": 3.0, "tls_verify": True},
    ],
)
def test_each_way_of_activity_loads_as_it_is_written(entry: dict[str, Any]) -> None:
    """The exporter's pods or a Prometheus server; only where they are must be said."""
    assert options.thaw(load(activity=entry).activity) == entry


def test_training_keeps_its_order() -> None:
    """The first source that tells of a unit counts, so the order of the list is the user's."""
    training = load(training=[JOBS, QUERY, PODS]).training
    assert options.thaw(training) == [JOBS, QUERY, PODS]


def test_numbers_in_quotes_are_numbers() -> None:
    """Templates of the Agent fill in text: ports and seconds may be digits in quotes, and arrive as numbers."""
    entry = {**PODS, "port": "9000", "requests_per_run": "5", "timeout": "2", "stalled_after_seconds": "60"}
    found = options.thaw(load(training=[entry]).training)[0]
    assert (found["port"], found["requests_per_run"], found["timeout"], found["stalled_after_seconds"]) == (
        9000,
        5,
        2.0,
        60.0,
    )


def test_keys_without_a_value_are_not_set() -> None:
    """`path:` with nothing behind the colon means the default, in an entry as elsewhere."""
    assert options.thaw(load(training=[{**PODS, "path": None, "prometheus_url": None}]).training) == [PODS]
    assert "`training[0]` has no `unit`" in refusal(training=[{**PODS, "unit": None}])


# One way an entry.


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({}, "`training[0]` names no source: write one of `label_selector`, `prometheus_url`, `train_jobs`"),
        ({"unit": "tokens"}, "`training[0]` names no source"),
        ({**PODS, **QUERY}, "names 2 sources, `label_selector` and `prometheus_url`: one entry has one"),
        ({**PODS, **QUERY, **JOBS}, "names 3 sources"),
        ({**JOBS, "prometheus_url": "http://p"}, "names 2 sources, `prometheus_url` and `train_jobs`"),
        ({"train_jobs": False}, "`training[0].train_jobs` is false, which reads nothing"),
        ({"train_jobs": "perhaps"}, "`training[0].train_jobs` must be true or false"),
        ("train_jobs", "`training[0]` must be a mapping"),
    ],
)
def test_an_entry_of_training_is_one_of_three_ways(entry: object, problem: str) -> None:
    """None and two are refused; one that is switched off reads nothing, so it should not be there."""
    assert problem in refusal(training=[entry])


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({}, "`activity` names no source: write one of `label_selector`, `prometheus_url`"),
        ({**EXPORTER, **SERVER}, "`activity` names 2 sources"),
        ([EXPORTER], "`activity` must be a mapping"),
        ("http://prometheus:9090", "`activity` must be a mapping"),
        ({**EXPORTER, "metric": "DCGM_FI_DEV_GPU_UTIL"}, "`activity.metric` is not known"),
        ({**EXPORTER, "unit": "percent"}, "`activity.unit` is not known"),
        ({"train_jobs": True}, "`activity.train_jobs` is not known"),
    ],
)
def test_activity_is_one_of_two_ways(value: object, problem: str) -> None:
    """Activity has neither metric nor unit: what an exporter serves is known."""
    assert problem in refusal(activity=value)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], "`training` is an empty list: remove it where no throughput is read"),
        (PODS, "`training` must be a list"),
        ("pods", "`training` must be a list"),
        ([PODS, JOBS, PODS], "`training[2]` is the same as `training[0]`: remove one"),
        ([PODS, {**QUERY, "unit": ""}], "`training[1].unit` is empty"),
    ],
)
def test_training_is_a_list(value: object, problem: str) -> None:
    """One entry a source, and none twice: it would be asked twice. The text counts from 0."""
    assert problem in refusal(training=value)


@pytest.mark.parametrize(
    ("entry", "missing"),
    [
        *((without(PODS, key), key) for key in ("port", "metric", "unit")),
        *((without(QUERY, key), key) for key in ("query", "unit")),
    ],
)
def test_what_is_required_is_asked_for(entry: dict[str, Any], missing: str) -> None:
    """There is no metric, port or query that jobs have in common, so each must be said."""
    assert re.search(rf"`training\[0\]` has no `{missing}`: (name|write) \w+", refusal(training=[entry]))


@pytest.mark.parametrize(
    ("entry", "key", "source"),
    [
        ({**PODS, "query": "up"}, "query", "label_selector"),
        ({**PODS, "gang_label": "job"}, "gang_label", "label_selector"),
        ({**PODS, "pod_label": "pod"}, "pod_label", "label_selector"),
        ({**QUERY, "port": 80}, "port", "prometheus_url"),
        ({**QUERY, "metric": "x"}, "metric", "prometheus_url"),
        ({**QUERY, "namespace": "team"}, "namespace", "prometheus_url"),
        ({**QUERY, "requests_per_run": 5}, "requests_per_run", "prometheus_url"),
        ({**JOBS, "over_ranks": "sum"}, "over_ranks", "train_jobs"),
        ({**JOBS, "tls_verify": False}, "tls_verify", "train_jobs"),
        ({**JOBS, "timeout": 1}, "timeout", "train_jobs"),
    ],
)
def test_a_key_of_another_way_is_refused(entry: dict[str, Any], key: str, source: str) -> None:
    """It would be read by nobody, and who wrote it would never know."""
    assert f"`training[0].{key}` has no effect with `{source}`: remove it" in refusal(training=[entry])


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("labelselector", "label_selector"),
        ("label_selectors", "label_selector"),
        ("prometheus", "prometheus_url"),
        ("url", "prometheus_url"),
        ("promql", "query"),
        ("over_rank", "over_ranks"),
        ("stalled_after", "stalled_after_seconds"),
        ("trainjobs", "train_jobs"),
        ("metrics", "metric"),
        ("request_per_run", "requests_per_run"),
        ("tls_verfy", "tls_verify"),
        ("token", "auth_token"),
    ],
)
def test_unknown_keys_are_refused_with_the_nearest(key: str, meant: str) -> None:
    """Also where the unknown key was to be the source itself: then that is said, and not that there is none."""
    assert f"`training[0].{key}` is not known; did you mean {meant}?" in refusal(training=[{key: "x"}])


def test_a_key_that_nothing_resembles_is_refused_with_all() -> None:
    """Where nothing is near, the keys are listed."""
    keys = (
        "label_selector, namespace, namespace_label, path, pod_label, port, prometheus_url, query, requests_per_run, "
        "scheme, timeout, auth_token, tls_*"
    )
    assert f"`activity.zzz` is not known; the keys are {keys}\n" in refusal(activity={**EXPORTER, "zzz": 1}) + "\n"
    assert "the keys are" in refusal(activity={**EXPORTER, 5: 1})


# Pods.


@pytest.mark.parametrize(
    "selector",
    [
        "app=trainer",
        "app==trainer",
        "app = trainer",
        "app=",
        "app",
        "example.com/app=trainer,tier!=test",
        "role in (leader, worker)",
        "role in (leader),!old",
        "app=trainer,zone notin (a,b),! example.com/old",
        "jobset.sigs.k8s.io/replicatedjob-name=node",
    ],
)
def test_label_selectors_of_kubernetes_are_taken(selector: str) -> None:
    """Equality-based and set-based requirements, as `kubectl get pods -l` takes them."""
    assert options.thaw(load(activity={"label_selector": selector}).activity) == {"label_selector": selector}


@pytest.mark.parametrize(
    ("selector", "problem"),
    [
        ("", "is empty"),
        (" app=x", "begins or ends with a space"),
        ({"app": "trainer"}, "must be a string, and is of type dict: write it as app=trainer"),
        ("app:trainer", "holds 'app:trainer': write each label as key=value"),
        ("app=a b", "holds 'app=a b'"),
        ("app=x,", "holds ''"),
        ("app=x,,tier=y", "holds ''"),
        ("a/b/c=x", "holds 'a/b/c=x'"),
        ("role in leader", "holds 'role in leader'"),
        ("role in ()", "holds 'role in ()'"),
        ("role in (a,", "holds 'role in (a'"),
        ("rolein (a)", "holds 'rolein (a)'"),
        ("role like (a)", "holds 'role like (a)'"),
        ("app=-x", "holds 'app=-x'"),
        ("app=" + "x" * 64, "holds 'app=xxx"),
        ("!app", "takes all pods but some"),
        ("app!=test", "takes all pods but some"),
        ("tier notin (a, b),!app", "takes all pods but some"),
        (",".join(f"label-{n}=x" for n in range(200)), "is longer than 1000 characters"),
    ],
)
def test_label_selectors_that_are_none_are_refused(selector: object, problem: str) -> None:
    """What the API server would refuse is refused at load, and so is one that takes nearly every pod there is."""
    text = refusal(training=[{**PODS, "label_selector": selector}])
    assert "`training[0].label_selector` " in text
    assert problem in text


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("port", 0, "must be from 1 to 65535, and is 0"),
        ("port", 65536, "must be from 1 to 65535, and is 65536"),
        ("port", 10**400, "must be from 1 to 65535"),
        ("port", "metrics", "must be a whole number, and is 'metrics'"),
        ("port", 80.5, "must be a whole number"),
        ("port", True, "must be a whole number"),
        ("path", "metrics", "is no path of a URL: write it from the root"),
        ("path", "", "is empty"),
        ("path", "/a b", "is no path of a URL"),
        ("path", "/metrics?token=hunter2", "holds a query or a fragment: write the path alone"),
        ("path", "/metrics#hunter2", "holds a query or a fragment"),
        ("scheme", "ftp", "must be one of http, https"),
        ("scheme", "HTTPS", "did you mean https?"),
        ("namespace", "team-*", "write the name of one namespace"),
        ("namespace", "Team", "write the name of one namespace"),
        ("namespace", ["team"], "must be a string"),
        ("requests_per_run", 0, "must be 1 or more, and is 0"),
        ("requests_per_run", -5, "must be 1 or more"),
        ("requests_per_run", 2.5, "must be a whole number"),
        ("timeout", 0, "must not be 0: set the seconds to wait"),
        ("timeout", "2s", "must be a number of seconds"),
        ("timeout", float("nan"), "must be a number of seconds"),
    ],
)
def test_how_pods_are_asked_makes_sense(key: str, value: object, problem: str) -> None:
    """The same rules for the pods of a job and for those of an exporter. What may hold a secret is not repeated."""
    for option, text in (
        ("training[0]", refusal(training=[{**PODS, key: value}])),
        ("activity", refusal(activity={**EXPORTER, key: value})),
    ):
        assert f"`{option}.{key}` " in text
        assert problem in text
        assert "hunter2" not in text


@pytest.mark.parametrize("option", ["tls_verify", "tls_ca_cert", "tls_ciphers"])
def test_tls_options_need_tls(option: str) -> None:
    """Pods are asked over http unless it is said otherwise, and then these options would be ignored."""
    value: object = False if option == "tls_verify" else "x"
    text = refusal(activity={**EXPORTER, option: value})
    assert f"`activity.{option}` has no effect without TLS: set `scheme: https`" in text
    assert load(activity={**EXPORTER, option: value, "scheme": "https"}).activity


def test_a_token_for_pods_stays_in_one_namespace() -> None:
    """Whoever may make a pod somewhere can give it these labels, and would be sent the token."""
    entry = {**PODS, "auth_token": AUTH_TOKEN}
    assert "`training[0].auth_token` would go to every pod that anyone gives these labels: set `namespace`" in refusal(
        training=[entry]
    )
    assert load(training=[{**entry, "namespace": "team-a"}]).training


# What is asked for.


@pytest.mark.parametrize("name", ["train_tokens_total", "_x", "job:tokens:rate1m", "A9"])
def test_names_of_metrics_are_those_of_prometheus(name: str) -> None:
    """Letters, digits, underscores and colons; recording rules have colons."""
    assert options.thaw(load(training=[{**PODS, "metric": name}]).training)[0]["metric"] == name


@pytest.mark.parametrize("name", ["device/samples_per_sec", 'x{rank="0"}', "9x", "a-b", "throughput(tps)", "", 5, None])
def test_other_names_of_metrics_are_refused(name: object) -> None:
    """What loggers call a metric is no name that a pod can serve."""
    text = refusal(training=[{**PODS, "metric": name}])
    assert "`training[0].metric` " in text or "`training[0]` has no `metric`" in text


def test_metrics_of_train_jobs_are_any_text() -> None:
    """Trainers name what they report as they like, as their loggers do."""
    entry = {**JOBS, "metric": "device/samples_per_sec", "unit": "samples"}
    assert options.thaw(load(training=[entry]).training) == [entry]


def test_a_metric_of_train_jobs_has_a_unit() -> None:
    """Without a unit the number says nothing, and a unit without a metric belongs to nothing."""
    assert "`training[0].metric` has no `unit` beside it" in refusal(training=[{**JOBS, "metric": "tps"}])
    assert "`training[0].unit` is the unit of `metric`, which is not set" in refusal(
        training=[{**JOBS, "unit": "tokens"}]
    )


@pytest.mark.parametrize("unit", ["tokens", "images", "steps", "train.samples", "flops", "kilo-tokens", "a", "x" * 100])
def test_units_are_values_of_a_tag(unit: str) -> None:
    """Lower case, as Datadog keeps it."""
    assert options.thaw(load(training=[{**PODS, "unit": unit}]).training)[0]["unit"] == unit


@pytest.mark.parametrize(
    ("unit", "problem"),
    [
        ("Tokens", "as Datadog stores it in a tag"),
        ("tokens seen", "as Datadog stores it in a tag"),
        ("tokens_", "as Datadog stores it in a tag"),
        ("2tokens", "as Datadog stores it in a tag"),
        ("토큰", "as Datadog stores it in a tag"),
        ("x" * 101, "as Datadog stores it in a tag"),
        ("a:b", "as Datadog stores it in a tag"),
        ("tokens/s", "throughput is per second anyway"),
        ("tokens_per_second", "throughput is per second anyway"),
        ("samples_per_sec", "throughput is per second anyway"),
        ("", "is empty"),
        (1, "must be a string"),
    ],
)
def test_units_that_datadog_would_change_are_refused(unit: object, problem: str) -> None:
    """A tag that arrives as another one is found by nobody. What is counted is the unit, and not its rate."""
    text = refusal(training=[{**QUERY, "unit": unit}])
    assert "`training[0].unit` " in text
    assert problem in text


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("over_ranks", "mean", "must be one of sum, max"),
        ("over_ranks", "Sum", "did you mean sum?"),
        ("stalled_after_seconds", 0, "must not be 0"),
        ("stalled_after_seconds", -1, "must not be -1"),
        ("stalled_after_seconds", "5m", "must be a number of seconds"),
        ("stalled_after_seconds", float("inf"), "must be a number of seconds"),
        ("stalled_after_seconds", True, "must be a number of seconds"),
    ],
)
def test_how_ranks_become_a_gang_makes_sense(key: str, value: object, problem: str) -> None:
    """The ranks are added up, or the largest counts; a stall needs time."""
    for entry in (PODS, QUERY):
        text = refusal(training=[{**entry, key: value}])
        assert f"`training[0].{key}` " in text
        assert problem in text


# Prometheus.


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("prometheus:9090", "must begin with http:// or https://"),
        ("http://", "has no host"),
        ("http://h:port", "is not a URL"),
        ("", "is empty"),
        (9090, "must be a string"),
        ("http://robot:hunter2@h:9090", "holds credentials, which would end up in logs: use `auth_token`"),
        ("http://h:9090/?key=hunter2", "holds a query or a fragment: write the server alone"),
        ("http://h:9090/#hunter2", "holds a query or a fragment"),
        ("http://h:9090?hunter2", "holds a query or a fragment"),
        ("http://h:9090/api/v1/query", "holds /api/v1, which the check adds itself"),
    ],
)
def test_the_url_of_prometheus_is_the_server_alone(url: object, problem: str) -> None:
    """An http URL without credentials and query; the refusal repeats nothing of it."""
    for option, text in (
        ("training[0]", refusal(training=[{**QUERY, "prometheus_url": url}])),
        ("activity", refusal(activity={"prometheus_url": url})),
    ):
        assert f"`{option}.prometheus_url` " in text
        assert problem in text
        assert "hunter2" not in text
        assert "robot" not in text


@pytest.mark.parametrize("query", ["", "  ", "\n", 5, ["up"]])
def test_a_query_is_a_text(query: object) -> None:
    """Empty PromQL is refused at load, and not by Prometheus in each run."""
    assert "`training[0].query` " in refusal(training=[{**QUERY, "query": query}])
    assert "`activity.query` " in refusal(activity={**SERVER, "query": query})


def test_a_query_may_have_several_lines() -> None:
    """A block of YAML ends with a line feed, which is not the query's."""
    query = yaml.safe_load("query: |\n  sum by (pod) (\n    rate(x[1m])\n  )\n")["query"]
    assert options.thaw(load(activity={**SERVER, "query": query}).activity)["query"] == query.strip()


def test_a_prefix_of_prometheus_is_taken() -> None:
    """A server behind a path, as Thanos, Mimir or a proxy of the API server have it."""
    url = "https://mimir.example/prometheus"
    assert options.thaw(load(activity={"prometheus_url": url}).activity) == {"prometheus_url": url}


@pytest.mark.parametrize("key", ["namespace_label", "pod_label", "gang_label"])
@pytest.mark.parametrize("label", ["pod-name", "a.b", "1a", "", 'x="y"', ["pod"]])
def test_labels_are_those_of_prometheus(key: str, label: object) -> None:
    """A label of Prometheus has neither dots nor slashes: labels of pods arrive under another name there."""
    assert f"`training[0].{key}` " in refusal(training=[{**QUERY, key: label}])


def test_a_series_is_of_a_pod_or_of_a_gang() -> None:
    """Two labels that both say whose a series is may disagree."""
    entry = {**QUERY, "pod_label": "pod", "gang_label": "job"}
    assert "`training[0].gang_label` and `pod_label` both say whose a series is" in refusal(training=[entry])


# Credentials.


@pytest.mark.parametrize("entry", [{**PODS, "namespace": "a", "scheme": "https"}, QUERY])
def test_credentials_are_of_the_form_that_the_agent_reads(entry: dict[str, Any]) -> None:
    """The rules of `scheduler_metrics` hold here as well, and no secret is repeated."""
    cases = {
        "auth_token": "hunter2",
        "bearer_token_auth": "hunter2",
        "bearer_token_path": "/hunter2",
        "tls_verify": "hunter2",
        "tls_ca_cert": ["hunter2"],
        "password": "hunter2",
        "headers": {"Authorization": "hunter2"},
    }
    for key, value in cases.items():
        text = refusal(training=[{**entry, key: value}])
        assert f"`training[0].{key}` " in text
        assert "hunter2" not in text


def test_every_option_of_the_http_client_is_known() -> None:
    """Sources of their own take what `kube_api_options` takes, but TrainJobs, which are read with the other objects."""
    for way in (*signals.TRAINING, *signals.ACTIVITY):
        assert (way.source == "train_jobs") != (set(way.keys) >= conversions.HTTP_OPTIONS)


# GPUs at rest.


@pytest.mark.parametrize("value", [0, -1, "10m", True, float("nan")])
def test_rest_takes_time(value: object) -> None:
    """No time at all would make each pause between two steps a stall."""
    assert "`inactive_after_seconds` must" in refusal(inactive_after_seconds=value)


@pytest.mark.parametrize(
    ("interval", "seconds", "fault"),
    [(None, 44, True), (None, 45, False), (60, 179, True), (60, 180, False), (5, 15, False), (0.5, 1.4, True)],
)
def test_rest_is_seen_in_three_runs(interval: float | None, seconds: float, *, fault: bool) -> None:
    """A GPU rests where at least three samples in a row say so, and a run takes one; the Agent runs every 15 s."""
    instance = {"activity": EXPORTER, "inactive_after_seconds": seconds, "min_collection_interval": interval}
    if fault:
        text = refusal(**{key: value for key, value in instance.items() if value is not None})
        assert f"`inactive_after_seconds` is {seconds}: " in text
        assert f"it must be {3 * (interval or 15):g} or more" in text
    else:
        assert load(**instance).inactive_after_seconds == seconds
    assert load(inactive_after_seconds=seconds).inactive_after_seconds == seconds  # nobody reads activity


@pytest.mark.parametrize(
    ("interval", "seconds", "fault"), [(None, 44, True), (None, 45, False), (60, 179, True), (60, 180, False)]
)
def test_a_stall_is_seen_in_three_runs(interval: float | None, seconds: float, *, fault: bool) -> None:
    """A shorter time would make the pause between two samples a stall, or each sample too old to count."""
    more = {} if interval is None else {"min_collection_interval": interval}
    training = [JOBS, {**PODS, "stalled_after_seconds": seconds}]
    if fault:
        text = refusal(training=training, **more)
        assert f"`training[1].stalled_after_seconds` is {seconds}: " in text
        assert f"it must be {3 * (interval or 15):g} or more" in text
    else:
        assert load(training=training, **more).training


@pytest.mark.parametrize(("interval", "seconds"), [(15, 300), (100, 300), (300, 900)])
def test_the_default_of_a_stall_grows_with_the_interval(interval: float, seconds: float) -> None:
    """Five minutes, and at least three runs."""
    (rule,) = parts.rules(load(training=[PODS], min_collection_interval=interval)).training
    assert rule.stalled_after == seconds


# Prices.


def test_prices_keep_their_order() -> None:
    """The first that fits counts, so the order is the user's; free is a price, and digits in quotes are a number."""
    prices = {"pool=spot": 0, "nvidia.com/gpu": "2.5", "pool=": 1, "example.com/class=h100": 4}
    found = load(gpu_hourly_price=prices).gpu_hourly_price
    assert list((found or {}).items()) == [
        ("pool=spot", 0.0),
        ("nvidia.com/gpu", 2.5),
        ("pool=", 1.0),
        ("example.com/class=h100", 4.0),
    ]


@pytest.mark.parametrize(
    ("price", "problem"),
    [
        (-1, "must not be -1: a price is 0 or more"),
        ("$2.50", "must be the price of one GPU for an hour, a number without a currency"),
        (float("nan"), "must be the price"),
        (float("inf"), "must be the price"),
        (None, "must be the price"),
        (True, "must be the price"),
        ([2], "must be the price"),
        (2e9, "at most 1000000000"),
    ],
)
def test_prices_are_numbers(price: object, problem: str) -> None:
    """A price is finite, not negative and has no currency; one that no GPU can have is a slip."""
    text = refusal(gpu_hourly_price={"nvidia.com/gpu": price})
    assert "`gpu_hourly_price.nvidia.com/gpu` " in text
    assert problem in text


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({}, "is an empty mapping"),
        (2.5, "must be a mapping"),
        ([{"nvidia.com/gpu": 2}], "must be a mapping"),
        ({"nvidia.com/mig-*": 1}, "and no pattern: each has its own price"),
        ({"a b=c": 1}, "or label=value of nodes"),
        ({"pool=a b": 1}, "or label=value of nodes"),
        ({"=x": 1}, "or label=value of nodes"),
        ({"": 1}, "is empty"),
        ({7: 1}, "must be a string"),
        ({"cpu": 1}, "holds 'cpu', which is no GPU by `gpu_resources`"),
        ({"nvidia.com/gpus": 1}, "did you mean nvidia.com/gpu?"),
        ({"gpu.intel.com/i915_monitoring": 1}, "holds 'gpu.intel.com/i915_monitoring', which is no GPU"),
    ],
)
def test_prices_are_of_gpus_or_nodes(value: object, problem: str) -> None:
    """A key that no GPU and no node can have gives no price, so it is refused."""
    text = refusal(gpu_hourly_price=value)
    assert "`gpu_hourly_price` " in text
    assert problem in text


def test_prices_go_by_the_gpus_of_the_instance() -> None:
    """What counts as a GPU is what `gpu_resources` says, patterns included."""
    assert load(gpu_hourly_price={"nvidia.com/mig-1g.10gb": 1}).gpu_hourly_price
    mine = {"gpu_resources": ["example.com/accelerator-*"]}
    assert load(**mine, gpu_hourly_price={"example.com/accelerator-2": 1}).gpu_hourly_price
    assert "`gpu_hourly_price` holds 'nvidia.com/gpu'" in refusal(**mine, gpu_hourly_price={"nvidia.com/gpu": 1})


# With the rest of the instance.


def test_all_of_it_is_told_of_pods() -> None:
    """Where the API is not read there are no gangs that work or cost; each option is named."""
    text = refusal(
        collect_kubernetes=False,
        openmetrics_endpoint="https://kueue:8443/metrics",
        training=[JOBS],
        activity=EXPORTER,
        gpu_hourly_price={"nvidia.com/gpu": 1},
    )
    for option in ("training", "activity", "gpu_hourly_price"):
        assert f"`{option}` is told of gangs and their pods, and `collect_kubernetes` is false" in text


def test_the_urls_of_signals_are_no_options_of_the_instance() -> None:
    """A key that slipped out of its mapping gets a warning, as every name that nothing reads."""
    assert options.unknown_options({"training": [JOBS], "label_selector": "a=b"}) == [("label_selector", None)]


# The example.


def uncommented(option: str) -> Any:
    """Return the example of an option in conf.yaml.example as it is when its comment signs are taken away."""
    text = (ROOT / "conf.yaml.example").read_text(encoding="utf-8")
    found = re.search(rf"^    # {option}:.*\n(    #   .*\n)*", text, flags=re.MULTILINE)
    assert found, option
    return yaml.safe_load(re.sub(r"^    # ", "", found[0], flags=re.MULTILINE))


@pytest.mark.parametrize("option", ["training", "activity", "inactive_after_seconds", "gpu_hourly_price"])
def test_the_comments_of_the_example_file_load(option: str) -> None:
    """Taking away the comment signs before an option gives a configuration that loads."""
    instance = uncommented(option)
    assert options.thaw(getattr(load(**instance), option)) == instance[option]


def test_the_example_file_shows_every_way() -> None:
    """All three ways of training stand in the example; the second way of activity stands in its description."""
    assert [next(iter(entry)) for entry in uncommented("training")["training"]] == [
        way.source for way in signals.TRAINING
    ]
    assert "label_selector" in uncommented("activity")["activity"]
    text = (ROOT / "conf.yaml.example").read_text(encoding="utf-8")
    found = re.search(r"^    ##   activity:\n(    ##     .*\n)+", text, flags=re.MULTILINE)
    assert found
    instance = yaml.safe_load(re.sub(r"^    ##   ", "", found[0], flags=re.MULTILINE))
    assert "prometheus_url" in instance["activity"]
    assert load(**instance).activity


def test_the_example_file_names_every_key() -> None:
    """Every key of every way is described, but those that the Agent describes itself."""
    text = (ROOT / "conf.yaml.example").read_text(encoding="utf-8")
    for option, ways in (("training", signals.TRAINING), ("activity", signals.ACTIVITY)):
        described = text.partition(f"@param {option} ")[2].partition("@param ")[0]
        keys = {key for way in ways for key in way.keys if key not in conversions.HTTP_OPTIONS}
        assert {key for key in keys if key not in described} == set()


# Laws, on any input.

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=8), inner, max_size=2),
    max_leaves=4,
)
keys_of_ways = st.sampled_from(sorted({key for way in signals.TRAINING for key in way.keys}))


@settings(deadline=None)  # a busy machine is no fault
@given(base=st.sampled_from([PODS, QUERY, JOBS, {}]), changes=st.dictionaries(keys_of_ways, values, max_size=3))
def test_any_entry_loads_or_is_refused_by_name(base: dict[str, Any], changes: dict[str, object]) -> None:
    """Whatever stands in an entry, the Agent gets a model or a text that names the entry; never a traceback."""
    try:
        load(training=[{**base, **changes}])
    except ConfigurationError as error:
        assert "`training[0]" in str(error), str(error)
