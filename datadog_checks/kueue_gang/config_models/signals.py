# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The rules of the options that tell of work and money: training, activity, inactive_after_seconds, gpu_hourly_price.

An entry of `training`, and `activity` as a whole, is read in one of several ways, and the key that names its source
tells which: pods by `label_selector`, a query at `prometheus_url`, or `train_jobs`. Each way has its own keys; one of
another way would be read by nobody, so it is refused. Keys without a value count as not set. What is not set has its
default where it is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from datadog_checks.kueue_gang.facts.quantity import GpuResources

from .conversions import (
    DNS_LABEL,
    HTTP_CONVERSIONS,
    HTTP_OPTIONS,
    LABEL_KEY,
    LABEL_VALUE,
    Convert,
    boolean,
    hint_at,
    http_url,
    listed,
    mapped,
    matching,
    nearest,
    number,
    one_of,
    plain_text,
    refusal,
    refuse_old_token,
    shown,
    whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .instance import InstanceConfig

#: The most that a GPU may cost an hour, in whatever currency: more is a slip.
MOST_PRICE = 1_000_000_000

#: Runs that must fit into the times after which a GPU rests or a gang stalls: three samples in a row say so.
LEAST_RUNS = 3

#: The Agent's own seconds between two runs, where the instance does not set them.
DEFAULT_INTERVAL = 15

#: What others call a key, where the spelling leads nowhere.
_OTHER_NAMES = {"aggregation": "over_ranks", "promql": "query", "url": "prometheus_url"}

_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_UNIT = re.compile(r"[a-z]([a-z0-9_./-]{0,98}[a-z0-9])?")
_PER_SECOND = re.compile(r".*(/|per[_-]?)s(ec(ond)?s?)?")
_URL_PATH = re.compile(r"/[A-Za-z0-9_.~%!$&'()*+,;=:@/-]*")

# A label selector of Kubernetes: requirements between commas, where a set of values has commas of its own.
_COMMA = re.compile(r",(?![^(]*\))")
_KEY = rf"(?P<key>{LABEL_KEY.pattern})"
_VALUE = rf"({LABEL_VALUE.pattern})"
_REQUIREMENT = re.compile(
    rf"!\s*{LABEL_KEY.pattern}|{_KEY}\s*((?P<equals>==?|!=)\s*{_VALUE}?"
    rf"|(?<=\s)(?P<set>in|notin)\s*\(\s*{_VALUE}(\s*,\s*{_VALUE})*\s*\))?"
)
_MOST_SELECTOR = 1000


# The keys.


def _selector(option: str, value: object) -> str:
    """Take a label selector as the API server reads it, with at least one label that the pods must have."""
    example = "app=trainer, or role in (leader, worker)"
    if not isinstance(value, str):
        raise refusal(option, f"must be a string, and is of type {type(value).__name__}: write it as {example}")
    selector = plain_text(option, value)
    if len(selector) > _MOST_SELECTOR:
        raise refusal(option, f"is longer than {_MOST_SELECTOR} characters: name fewer labels")
    found = []
    for part in _COMMA.split(selector):
        requirement = _REQUIREMENT.fullmatch(part.strip())
        if not requirement:
            forms = "key=value, key!=value, key in (a, b), key notin (a, b), key or !key"
            raise refusal(option, f"holds {shown(part.strip())}: write each label as {forms}")
        found.append(requirement)
    if not any(part["key"] and part["equals"] != "!=" and part["set"] != "notin" for part in found):
        raise refusal(option, f"takes all pods but some: name a label that the wanted ones have, such as {example}")
    return selector


def _namespace(option: str, value: object) -> str:
    name = plain_text(option, value)
    if not re.fullmatch(DNS_LABEL, name):
        raise refusal(option, f"is {shown(name)}: write the name of one namespace, or leave it out for all")
    return name


def _url_path(option: str, value: object) -> str:
    """Take the path of a URL. Never quoted: what stands behind a question mark may be a secret."""
    path = plain_text(option, value)
    if "?" in path or "#" in path:
        raise refusal(option, "holds a query or a fragment: write the path alone, such as /metrics")
    if not _URL_PATH.fullmatch(path):
        raise refusal(option, "is no path of a URL: write it from the root, such as /metrics")
    return path


def _prometheus_url(option: str, value: object) -> str:
    url = http_url(option, value)
    example = "write the server alone, such as http://prometheus.monitoring:9090"
    if "?" in url or "#" in url:
        raise refusal(option, f"holds a query or a fragment: {example}, and the PromQL as `query`")
    if "/api/v1" in url:
        raise refusal(option, f"holds /api/v1, which the check adds itself: {example}")
    return url


def _query(option: str, value: object) -> str:
    """Take PromQL. A text of several lines ends with an empty one in YAML, which means nothing."""
    return plain_text(option, value.strip() if isinstance(value, str) else value)


def _metric(option: str, value: object) -> str:
    name = plain_text(option, value)
    if not _METRIC.fullmatch(name):
        text = "write the name alone, without labels, as the pods serve it, such as train_tokens_total"
        raise refusal(option, f"is {shown(name)}: {text}")
    return name


def _unit(option: str, value: object) -> str:
    unit = plain_text(option, value)
    if _PER_SECOND.fullmatch(unit):
        raise refusal(option, f"is {shown(unit)}: throughput is per second anyway, write what is counted, as tokens")
    if not _UNIT.fullmatch(unit):
        form = "a letter, then a-z, 0-9, _ . / and -, at most 100, as Datadog stores it in a tag"
        raise refusal(option, f"is {shown(unit)}: write {form}, such as tokens")
    return unit


def _train_jobs(option: str, value: object) -> bool:
    if not boolean(option, value):
        raise refusal(option, "is false, which reads nothing: remove the entry")
    return True


_label = matching(_LABEL, "the name of a label in the answer of Prometheus, such as exported_pod")

_TIMES: Mapping[str, Convert[object]] = {"timeout": number(above=0, use="set the seconds to wait, such as 2")}
_PODS: Mapping[str, Convert[object]] = {
    "label_selector": _selector,
    "namespace": _namespace,
    "port": whole_number(most=65535, use="write the number of the container's port"),
    "path": _url_path,
    "scheme": one_of("http", "https"),
    "requests_per_run": whole_number(use="it is how many pods are asked in one run, and 1 is the least"),
    **_TIMES,
    **HTTP_CONVERSIONS,
}
_PROMETHEUS: Mapping[str, Convert[object]] = {
    "prometheus_url": _prometheus_url,
    "query": _query,
    "namespace_label": _label,
    "pod_label": _label,
    **_TIMES,
    **HTTP_CONVERSIONS,
}
_STALLED: Mapping[str, Convert[object]] = {
    "stalled_after_seconds": number(above=0, use="it is how long a job may show no progress, such as 300"),
}
_RATE: Mapping[str, Convert[object]] = {"unit": _unit, "over_ranks": one_of("sum", "max"), **_STALLED}

#: What to write for a key that is required and missing.
_WRITE = {
    "metric": "name the counter or gauge that the pods serve, such as train_tokens_total",
    "port": "write the number of the port at which the pods serve it",
    "query": "write what to ask, in PromQL",
    "unit": "name what is counted, such as tokens or samples",
}


# The ways.


@dataclass(frozen=True)
class Way:
    """One way to read a signal: the key that names its source, all its keys, and those that it needs beside it."""

    source: str
    keys: Mapping[str, Convert[object]]
    required: tuple[str, ...] = ()


TRAINING = (
    Way("label_selector", {**_PODS, "metric": _metric, **_RATE}, ("port", "metric", "unit")),
    Way("prometheus_url", {**_PROMETHEUS, "gang_label": _label, **_RATE}, ("query", "unit")),
    Way("train_jobs", {"train_jobs": _train_jobs, "metric": plain_text, "unit": _unit, **_STALLED}),
)
ACTIVITY = (Way("label_selector", _PODS), Way("prometheus_url", _PROMETHEUS))


def _way(option: str, entry: Mapping[object, object], ways: Sequence[Way]) -> Way:
    """Return the way that an entry takes. Unknown keys come first: one of them may be the source, misspelt."""
    known = {key for way in ways for key in way.keys}
    for key in entry:
        name = f"{option}.{key}"
        refuse_old_token(name, key)
        if key not in known:
            meant = _OTHER_NAMES.get(str(key)) or nearest(str(key), known)
            keys = ", ".join([*sorted(known - HTTP_OPTIONS), "auth_token", "tls_*"])
            hint = f"did you mean {meant}?" if meant in known else f"the keys are {keys}"
            raise refusal(name, f"is not known; {hint}")
    found = [way for way in ways if way.source in entry]
    names = [f"`{way.source}`" for way in found or ways]
    if len(found) > 1:
        raise refusal(option, f"names {len(found)} sources, {' and '.join(names)}: one entry has one")
    if not found:
        raise refusal(option, f"names no source: write one of {', '.join(names)}")
    return found[0]


def _source(option: str, value: object, ways: Sequence[Way]) -> dict[str, object]:
    """Take a mapping that one of `ways` can read."""
    given = mapped(option, value, "{label_selector: app=trainer, port: 9000, ...}")
    entry = {key: item for key, item in given.items() if item is not None}
    way = _way(option, entry, ways)
    for name, key in ((f"{option}.{key}", key) for key in entry):
        if key not in way.keys:
            raise refusal(name, f"has no effect with `{way.source}`: remove it")
    for key in way.required:
        if key not in entry:
            raise refusal(option, f"has no `{key}`: {_WRITE[key]}")
    source = {str(key): way.keys[str(key)](f"{option}.{key}", item) for key, item in entry.items()}
    for key, problem in _misfits(source):
        name = f"{option}.{key}"
        raise refusal(name, problem)
    return source


def _misfits(source: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the keys of one source that do not go with its other keys, each with the reason."""
    found = []
    if "label_selector" in source:
        if source.get("scheme", "http") == "http":
            secure = sorted(key for key in source if key.startswith("tls_"))
            found += [(key, "has no effect without TLS: set `scheme: https`, or remove it") for key in secure]
        if "auth_token" in source and "namespace" not in source:
            text = "would go to every pod that anyone gives these labels: set `namespace`, so that it stays in one"
            found.append(("auth_token", text))
    if "gang_label" in source and "pod_label" in source:
        found.append(("gang_label", "and `pod_label` both say whose a series is: remove one"))
    if "train_jobs" in source and "metric" in source and "unit" not in source:
        found.append(("metric", f"has no `unit` beside it: {_WRITE['unit']}"))
    if "train_jobs" in source and "unit" in source and "metric" not in source:
        found.append(("unit", "is the unit of `metric`, which is not set: set it, or remove `unit`"))
    return found


# The options.


def training(option: str, value: object) -> list[dict[str, object]]:
    """Take the list of the sources of throughput."""
    entries = listed(option, value, meaning_of_none="where no throughput is read")
    sources = [_source(f"{option}[{place}]", entry, TRAINING) for place, entry in enumerate(entries)]
    for place, source in enumerate(sources):
        first = sources.index(source)
        if first < place:
            name = f"{option}[{place}]"
            raise refusal(name, f"is the same as `{option}[{first}]`: remove one")
    return sources


def activity(option: str, value: object) -> dict[str, object]:
    """Take the source of the activity of GPUs."""
    return _source(option, value, ACTIVITY)


inactive_after_seconds = number(above=0, use="it is how long a GPU may rest before it counts as idle, such as 600")

_price = number(
    least=0,
    what="the price of one GPU for an hour, a number without a currency",
    use="a price is 0 or more",
)


def gpu_hourly_price(option: str, value: object) -> dict[str, float]:
    """Take the prices of a GPU for an hour, in their order, by GPU resource or by node label and value."""
    given = mapped(option, value, "{nvidia.com/gpu: 2.5}")
    if not given:
        raise refusal(option, "is an empty mapping: remove it where nothing has a price")
    prices = {}
    for item, amount in given.items():
        key = plain_text(option, item)
        label, is_label, of_node = key.partition("=")
        if not LABEL_KEY.fullmatch(label) or (of_node and not LABEL_VALUE.fullmatch(of_node)):
            form = "a resource such as nvidia.com/gpu, or label=value of nodes"
            exactly = ", and no pattern: each has its own price" if "*" in key and not is_label else ""
            raise refusal(option, f"holds {shown(key)}: write {form}{exactly}")
        name = f"{option}.{key}"
        prices[key] = _price(name, amount)
        if prices[key] > MOST_PRICE:
            raise refusal(name, f"is {shown(amount)}: it is the price for an hour, at most {MOST_PRICE}")
    return prices


def faults(model: InstanceConfig) -> list[str]:
    """Tell which of these options do not go together with each other, or with the rest of the instance."""
    named = {
        "training": model.training,
        "activity": model.activity,
        "gpu_hourly_price": model.gpu_hourly_price,
    }
    found = [
        f"`{name}` is told of gangs and their pods, and `collect_kubernetes` is false: set that to true, or remove it"
        for name, value in named.items()
        if value and not model.collect_kubernetes
    ]
    interval = model.min_collection_interval or DEFAULT_INTERVAL
    least = LEAST_RUNS * interval
    if model.activity and model.inactive_after_seconds is not None and model.inactive_after_seconds < least:
        found.append(
            f"`inactive_after_seconds` is {model.inactive_after_seconds:g}: with a run every {interval:g} seconds"
            f" (`min_collection_interval`) it must be {least:g} or more, since fewer samples prove nothing"
        )
    found += [
        f"`training[{number}].stalled_after_seconds` is {seconds:g}: with a run every {interval:g} seconds"
        f" (`min_collection_interval`) it must be {least:g} or more, since a run takes one sample"
        for number, source in enumerate(model.training or ())
        if (seconds := source.get("stalled_after_seconds")) is not None and seconds < least
    ]
    resources = model.gpu_resources or ()
    gpus = GpuResources(tuple(resources))
    for key in model.gpu_hourly_price or ():
        if "=" not in key and key not in gpus:
            hint = hint_at(key, (name for name in resources if "*" not in name))
            problem = "which is no GPU by `gpu_resources`: correct it, or write label=value for a label of nodes"
            found.append(f"`gpu_hourly_price` holds {shown(key)}, {problem}{hint}")
    return found
