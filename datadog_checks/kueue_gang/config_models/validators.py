# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The rules that options keep, checked when the Agent loads an instance.

The generated models beside this file know the type of each option. They call the functions here by name:
`initialize_instance` with the raw mapping, `instance_<option>` with the value of an option that is set, and
`check_instance` with the finished model. What is wrong is raised as `ValueError`; the Agent shows the texts of all
options at once and does not run the instance.

Each text names the option, says what is wrong with it and what to do. Values of options that may hold a secret (URLs,
tokens, TLS settings) are never quoted. An option with nothing behind its colon counts as not set.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from . import defaults

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .instance import InstanceConfig

T = TypeVar("T")

#: Makes of a raw value the value of the model, or raises `ValueError`. Called with the option's name and its value.
Convert = Callable[[str, object], T]

#: Options of the Agent's HTTP client that a mapping for one more target may hold beside `auth_token`.
TLS_FLAGS = frozenset({"tls_ignore_warning", "tls_use_host_header", "tls_validate_hostname", "tls_verify"})
TLS_FILES = frozenset({"tls_ca_cert", "tls_cert", "tls_private_key"})
TLS_OTHERS = frozenset(
    {"tls_ciphers", "tls_intermediate_ca_certs", "tls_private_key_password", "tls_protocols_allowed"},
)
HTTP_OPTIONS = TLS_FLAGS | TLS_FILES | TLS_OTHERS | {"auth_token"}

#: Tag keys that mean something else at Datadog, or that the Agent renames as too generic.
RESERVED_TAG_KEYS = frozenset(
    {
        "cluster",
        "cluster_id",
        "cluster_name",
        "clusterid",
        "clustername",
        "device",
        "env",
        "host",
        "host_name",
        "hostname",
        "kube_cluster_name",
        "service",
        "source",
        "version",
    },
)

#: Tag keys that this check sends itself. A label under one of these would give a series two values for one key.
OWN_TAG_KEYS = frozenset(
    {
        "api_source",
        "blocker",
        "domain_state",
        "gang",
        "gang_engine",
        "gang_partial",
        "gang_state",
        "gpu_resource",
        "gpu_use",
        "idle_reason",
        "kube_namespace",
        "kueue_cluster_queue",
        "kueue_eviction_reason",
        "kueue_local_queue",
        "kueue_resource_flavor",
        "kueue_workload_priority_class",
        "labeled",
        "member_state",
        "owner_kind",
        "phase",
        "placement",
        "plugin",
        "queue",
        "reason",
        "result",
        "signal",
        "slot",
        "stall_reason",
        "topology",
        "topology_level",
        "underlying_cause",
        "unit",
        "workload_stage",
    },
)

#: Series of one gang multiply with each tag, so their number has a bound.
MAX_LABEL_TAGS = 5

#: Resources of every pod and node. A pattern that takes one of these for a GPU makes all figures wrong.
PLAIN_RESOURCES = ("cpu", "memory", "pods", "ephemeral-storage", "hugepages-2Mi", "hugepages-1Gi")

#: The most pods, and GPUs a pod, of a slot.
MAX_SLOT = 100_000

#: Minor versions of Kubernetes that may be meant: gang scheduling as a plugin began with 1.16.
OLDEST_MINOR, NEWEST_MINOR = 16, 99

GANG_ENGINES = ("coscheduling", "kubernetes", "kueue")
TAINT_EFFECTS = ("NoSchedule", "NoExecute")

_AUTH_EXAMPLE = (
    "auth_token: {reader: {type: file, path: /var/run/secrets/kubernetes.io/serviceaccount/token}, "
    "writer: {type: header, name: Authorization, value: Bearer <TOKEN>}}"
)

_DNS_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_DNS_NAME = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
_QUALIFIED = rf"({_DNS_NAME}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?"
_OBJECT_NAME = re.compile(_DNS_NAME)
_LABEL_KEY = re.compile(_QUALIFIED)
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_NAMESPACE_PATTERN = re.compile(r"[-a-z0-9*?\[\]!]+")
_RESOURCE_PATTERN = re.compile(r"[-A-Za-z0-9_./*?\[\]!]+")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]*")
_TAG_KEY = re.compile(r"[a-z][a-z0-9_./-]{0,99}")
_SLOT = re.compile(r"([0-9]{1,9})x([0-9]{1,9})")
_DIGITS = re.compile(r"[0-9]{1,9}")
_VERSION = re.compile(r"v?1\.(?P<minor>[0-9]+)(\.[0-9]+)?")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the one of `known` that `name` was probably meant to be, None where none is near."""
    matches = difflib.get_close_matches(name, sorted(known), n=1)
    return matches[0] if matches else None


def taint_parts(taint: str) -> tuple[str, str | None, str | None]:
    """Split `key`, `key=value` or `key=value:Effect` into key, value and effect; None where a part is left out."""
    key, has_value, rest = taint.partition("=")
    if not has_value:
        return key, None, None
    value, has_effect, effect = rest.partition(":")
    return key, value, effect if has_effect else None


def slot_parts(slot: str) -> tuple[int, int] | None:
    """Split `2x8` into the number of pods and the GPUs a pod; None where it is no such text."""
    found = _SLOT.fullmatch(slot)
    return (int(found[1]), int(found[2])) if found else None


# How a value is refused.


def _refusal(option: str, problem: str) -> ValueError:
    return ValueError(f"`{option}` {problem}")


def _shown(value: object) -> str:
    """Quote a value for an error text, cut so that a wrong paste cannot flood the log."""
    limit = 60
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."


def _hint(name: str, known: Iterable[str]) -> str:
    meant = nearest(name, known)
    return f"; did you mean {meant}?" if meant else ""


# Conversions: what an option may hold.


def _boolean(option: str, value: object) -> bool:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    answer = words.get(str(value).lower()) if isinstance(value, bool | int | str) else None
    if answer is None:
        raise _refusal(option, "must be true or false")
    return answer


def _text(option: str, value: object) -> str:
    if not isinstance(value, str):
        raise _refusal(option, f"must be a string, and is of type {type(value).__name__}: put it in quotes")
    if not value.strip():
        raise _refusal(option, "is empty: give it a value, or remove it")
    if value != value.strip():
        raise _refusal(option, "begins or ends with a space: remove it")
    return value


def _one_of(*words: str) -> Convert[str]:
    def convert(option: str, value: object) -> str:
        if isinstance(value, str) and value in words:
            return value
        hint = _hint(str(value).lower(), words)
        raise _refusal(option, f"must be one of {', '.join(words)}, and is {_shown(value)}{hint}")

    return convert


def _number(*, least: float | None = None, above: float | None = None, use: str) -> Convert[float]:
    """Take seconds from `least` on, or above `above`; `use` tells what to set in place of a smaller number."""

    def convert(option: str, value: object) -> float:
        try:
            # True is a number to Python, and surely none to who wrote it.
            number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
        except (OverflowError, TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise _refusal(option, f"must be a number of seconds, and is {_shown(value)}")
        if (least is not None and number < least) or (above is not None and number <= above):
            raise _refusal(option, f"must not be {_shown(value)}: {use}")
        return number

    return convert


def _max_gangs(option: str, value: object) -> int:
    number = int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else value
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int):
        raise _refusal(option, f"must be a whole number, and is {_shown(value)}")
    if number < 1:
        raise _refusal(option, f"must be 1 or more, and is {number}: to send none use `per_gang_metrics: none`")
    return number


def _http_url(option: str, value: object) -> str:
    """Take an absolute http or https URL without credentials. The URL is never quoted: it may hold a password."""
    url = _text(option, value)
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise _refusal(option, "is not a URL: check its host and port") from None
    if parts.scheme not in {"http", "https"}:
        raise _refusal(option, "must begin with http:// or https://")
    if not host:
        raise _refusal(option, "has no host: write it as https://HOST:PORT/PATH")
    if parts.username is not None or parts.password is not None:
        other = "`username` and `password`" if option == "openmetrics_endpoint" else "`auth_token`"
        raise _refusal(option, f"holds credentials, which would end up in logs: use {other}")
    return url


def _path(option: str, value: object) -> str:
    path = _text(option, value)
    if not path.startswith(("/", "~/")):
        raise _refusal(option, f"must be an absolute path, and is {_shown(path)}: the Agent has no folder of its own")
    return path


def _listed(option: str, value: object, *, meaning_of_none: str) -> list[object]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _refusal(option, f"must be a list, and is of type {type(value).__name__}: write it as [first, second]")
    if not value:
        raise _refusal(option, f"is an empty list: remove it {meaning_of_none}")
    return list(value)


def _list_of(convert_item: Convert[T], *, meaning_of_none: str) -> Convert[list[T]]:
    """Take a list whose items pass `convert_item`, the same item once; `meaning_of_none` ends the text on [].

    An empty list is refused since it reads both as "none" and as "no limit".
    """

    def convert(option: str, value: object) -> list[T]:
        items = (convert_item(option, item) for item in _listed(option, value, meaning_of_none=meaning_of_none))
        return list(dict.fromkeys(items))

    return convert


def _matching(pattern: re.Pattern[str], what: str) -> Convert[str]:
    """Take a text that `pattern` matches as a whole; `what` describes it in the error."""

    def convert(option: str, value: object) -> str:
        text = _text(option, value)
        if not pattern.fullmatch(text):
            raise _refusal(option, f"holds {_shown(text)}: each entry must be {what}")
        return text

    return convert


_level = _matching(_LABEL_KEY, "the key of a node label, such as topology.kubernetes.io/zone")
_flavor = _matching(_OBJECT_NAME, "the exact name of a ResourceFlavor")
_namespace = _matching(_NAMESPACE_PATTERN, "the name of a namespace or a pattern, such as team-*")
_scheduler = _matching(_OBJECT_NAME, "the schedulerName of pods")
_job_kind = _matching(_KIND, "the kind of a job as its manifest says it, such as JobSet")
_resource = _matching(_RESOURCE_PATTERN, "the name of a resource or a pattern, such as nvidia.com/mig-*")


def _engine(option: str, value: object) -> str:
    if value == "job":
        raise _refusal(option, "holds 'job', which is no engine: set `implicit_gangs` to known or none for those")
    if isinstance(value, str) and value in GANG_ENGINES:
        return value
    hint = _hint(str(value).lower(), GANG_ENGINES)
    raise _refusal(option, f"holds {_shown(value)}: this release knows {', '.join(GANG_ENGINES)}{hint}")


def _gpu_resource(option: str, value: object) -> str:
    resource = _resource(option, value)
    if resource.endswith("_monitoring"):
        raise _refusal(option, f"holds {_shown(resource)}: that gives sight of GPUs and is none, remove it")
    plain = next((name for name in PLAIN_RESOURCES if fnmatchcase(name, resource)), None)
    if plain:
        raise _refusal(option, f"holds {_shown(resource)}, which takes {plain} for a GPU: write it as domain/name")
    return resource


def _taint(option: str, value: object) -> str:
    taint = _text(option, value)
    key, label, effect = taint_parts(taint)
    problem = None
    if label is None and ":" in key:
        problem = "an effect needs a value, as key=value:Effect; without one write the key alone"
    elif not _LABEL_KEY.fullmatch(key) or (label and not _LABEL_VALUE.fullmatch(label)):
        problem = "write key, key=value or key=value:Effect"
    elif key.startswith("node.kubernetes.io/"):
        problem = "Kubernetes sets it on nodes that cannot take pods, remove it"
    elif effect == "PreferNoSchedule":
        problem = "PreferNoSchedule never keeps pods away, remove it"
    elif effect is not None and effect not in TAINT_EFFECTS:
        problem = f"the effect must be {' or '.join(TAINT_EFFECTS)}{_hint(effect, TAINT_EFFECTS)}"
    if problem:
        raise _refusal(option, f"holds {_shown(taint)}: {problem}")
    return taint


def _slot(option: str, value: object) -> str:
    slot = _text(option, value)
    numbers = slot_parts(slot)
    if numbers is None or not all(1 <= number <= MAX_SLOT for number in numbers):
        raise _refusal(
            option,
            f"holds {_shown(slot)}: write pods x GPUs a pod, each from 1 to {MAX_SLOT}, such as 2x8",
        )
    return "{}x{}".format(*numbers)


def _mapped(option: str, value: object, example: str) -> Mapping[object, object]:
    if not isinstance(value, Mapping):
        raise _refusal(option, f"must be a mapping, and is of type {type(value).__name__}: write it as {example}")
    return value


def _minor(option: str, value: object) -> int:
    """Return the Kubernetes minor of `1.35`, `v1.35.2`, `"35"` or 35."""
    if isinstance(value, float):
        problem = f"is {value:g} to YAML, which reads 1.30 and 1.3 alike: put the version in quotes, as '{value:.2f}'"
        raise _refusal(option, problem)
    minor = -1
    if isinstance(value, int) and not isinstance(value, bool):
        minor = value
    elif isinstance(value, str):
        version = _VERSION.fullmatch(value.strip())
        digits = version["minor"] if version else value.strip()
        minor = int(digits) if _DIGITS.fullmatch(digits) else -1
    if not OLDEST_MINOR <= minor <= NEWEST_MINOR:
        raise _refusal(option, f"is {_shown(value)}: write a minor version of Kubernetes, as '1.35' or 35")
    return minor


def _scheduler_versions(option: str, value: object) -> dict[str, int]:
    versions = {}
    for name, version in _mapped(option, value, "{scheduler-plugins-scheduler: '1.35'}").items():
        scheduler = _scheduler(option, name)
        versions[scheduler] = _minor(f"{option}.{scheduler}", version)
    return versions


def _tag_key(option: str, value: object) -> str:
    tag = _text(option, value)
    problem = None
    if not _TAG_KEY.fullmatch(tag):
        problem = "a tag begins with a letter and holds a-z, 0-9, _ . / and -"
    elif tag in RESERVED_TAG_KEYS:
        problem = f"that is reserved at Datadog, choose another, such as job_{tag}"
    elif tag in OWN_TAG_KEYS:
        problem = f"this check sends that tag itself, choose another, such as job_{tag}"
    if problem:
        raise _refusal(option, f"is the tag {_shown(tag)}: {problem}")
    return tag


def _gang_labels_as_tags(option: str, value: object) -> dict[str, str]:
    labels = _mapped(option, value, "{example.com/team: team}")
    if len(labels) > MAX_LABEL_TAGS:
        raise _refusal(option, f"holds {len(labels)} labels: keep at most {MAX_LABEL_TAGS}, each makes more series")
    tags: dict[str, str] = {}
    for label, tag in labels.items():
        key = _text(option, label)
        if not _LABEL_KEY.fullmatch(key):
            raise _refusal(option, f"holds {_shown(key)}, which is no key of a label: write it as example.com/team")
        name = _tag_key(f"{option}.{key}", tag)
        if name in tags.values():
            raise _refusal(option, f"gives the tag {name} to two labels: choose one name a label")
        tags[key] = name
    return tags


def _auth_token(option: str, value: object) -> Mapping[object, object]:
    token = value if isinstance(value, Mapping) else {}
    if not all(isinstance(token.get(part), Mapping) for part in ("reader", "writer")):
        raise _refusal(option, f"must hold a `reader` and a `writer`, such as {_AUTH_EXAMPLE}")
    return token


def _http_options(option: str, value: object, *, example: str, with_url: bool) -> dict[str, object]:
    """Take a mapping of the Agent's options for one target; unknown keys are refused, since no one would miss them.

    Keys without a value are left out, so that the Agent's HTTP client uses its own default.
    """
    known = HTTP_OPTIONS | {"url"} if with_url else HTTP_OPTIONS
    options: dict[str, object] = {}
    for key, item in _mapped(option, value, example).items():
        name = f"{option}.{key}"
        if key in {"bearer_token_auth", "bearer_token_path"}:
            raise _refusal(name, f"does nothing: use {_AUTH_EXAMPLE}")
        if key not in known:
            wanted = "`url`, `auth_token` and `tls_*`" if with_url else "`auth_token` and `tls_*`"
            raise _refusal(name, f"is not known: {option} takes {wanted}{_hint(str(key), known)}")
        if item is None:
            continue
        if key == "url":
            options[key] = _http_url(name, item)
        elif key == "auth_token":
            options[key] = _auth_token(name, item)
        elif key in TLS_FLAGS:
            options[key] = _boolean(name, item)
        elif key in TLS_FILES:
            options[key] = _text(name, item)
        else:
            options[str(key)] = item
    return options


def _kube_api_options(option: str, value: object) -> dict[str, object]:
    return _http_options(option, value, example="{tls_ca_cert: /path/to/ca.crt}", with_url=False)


def _scheduler_metrics(option: str, value: object) -> dict[str, object]:
    example = "{url: https://HOST:10259/metrics}"
    options = _http_options(option, value, example=example, with_url=True)
    if "url" not in options:
        raise _refusal(option, f"has no `url`: name the metrics of the scheduler, as {example}")
    return options


# The rules, by option. The generated models look these names up.


def _rule(option: str, convert: Convert[object]) -> Callable[..., object]:
    """Return the function that the models call for `option` where it is set."""

    def validate(value: object, *, field: object) -> object:
        del field  # the model's, and the same for every option
        if value is None:
            default = getattr(defaults, f"instance_{option}", None)
            return default() if default else None
        return convert(option, value)

    return validate


instance_openmetrics_endpoint = _rule("openmetrics_endpoint", _http_url)
instance_kueue_metrics = _rule("kueue_metrics", _one_of("gang", "none"))
instance_kueue_local_queue_metrics = _rule("kueue_local_queue_metrics", _boolean)
instance_collect_kubernetes = _rule("collect_kubernetes", _boolean)
instance_collect_events = _rule("collect_events", _boolean)
instance_kube_config_path = _rule("kube_config_path", _path)
instance_kube_context = _rule("kube_context", _text)
instance_kube_api_url = _rule("kube_api_url", _http_url)
instance_kube_api_options = _rule("kube_api_options", _kube_api_options)
instance_kube_timeout = _rule("kube_timeout", _number(above=0, use="set the seconds to wait, such as 10"))
instance_scheduler_metrics = _rule("scheduler_metrics", _scheduler_metrics)
instance_scheduler_versions = _rule("scheduler_versions", _scheduler_versions)
instance_gang_scheduler_names = _rule(
    "gang_scheduler_names",
    _list_of(_scheduler, meaning_of_none="to leave it to `scheduler_metrics`"),
)
instance_namespaces = _rule("namespaces", _list_of(_namespace, meaning_of_none="to report all namespaces"))
instance_exclude_namespaces = _rule("exclude_namespaces", _list_of(_namespace, meaning_of_none="to exclude none"))
instance_gang_engines = _rule("gang_engines", _list_of(_engine, meaning_of_none="to use all that the cluster serves"))
instance_kueue_gang_kinds = _rule("kueue_gang_kinds", _list_of(_job_kind, meaning_of_none="to use the built-in kinds"))
instance_implicit_gangs = _rule("implicit_gangs", _one_of("known", "none"))
instance_sync = _rule("sync", _one_of("watch", "list"))
instance_include_cpu_gangs = _rule("include_cpu_gangs", _boolean)
instance_gpu_resources = _rule("gpu_resources", _list_of(_gpu_resource, meaning_of_none="to use the default"))
instance_tolerated_taints = _rule("tolerated_taints", _list_of(_taint, meaning_of_none="where no taint is meant"))
instance_elastic_flavors = _rule("elastic_flavors", _list_of(_flavor, meaning_of_none="where no flavor grows"))
instance_topology_levels = _rule(
    "topology_levels",
    _list_of(_level, meaning_of_none="to use the Topology objects of Kueue"),
)
instance_slots = _rule("slots", _list_of(_slot, meaning_of_none="to use the default"))
instance_grace_seconds = _rule("grace_seconds", _number(least=0, use="0 is the least, for no grace at all"))
instance_zero_tail_seconds = _rule("zero_tail_seconds", _number(least=0, use="0 is the least, for no zeros at all"))
instance_per_gang_metrics = _rule("per_gang_metrics", _one_of("attention", "all", "none"))
instance_max_gangs = _rule("max_gangs", _max_gangs)
instance_gang_labels_as_tags = _rule("gang_labels_as_tags", _gang_labels_as_tags)


HARMFUL = {
    "bearer_token_auth": f"does nothing with `openmetrics_endpoint`: use {_AUTH_EXAMPLE}",
    "bearer_token_path": f"does nothing with `openmetrics_endpoint`: use {_AUTH_EXAMPLE}",
    "namespace": "would change the prefix of all metrics, which is fixed: use the list `namespaces`",
}


def initialize_instance(values: dict[str, object]) -> dict[str, object]:
    """Refuse names that the models do not know, or know with another meaning, and that would do harm unseen."""
    for name, problem in HARMFUL.items():
        if values.get(name):
            raise _refusal(name, problem)
    return values


def check_instance(model: InstanceConfig) -> InstanceConfig:
    """Refuse options that do not go together; all such faults in one error."""
    faults = [*_connection_faults(model), *_namespace_faults(model)]
    if faults:
        text = "\n  ".join(faults)  # indented as the Agent indents the text of one fault
        raise ValueError(text)
    return model


def _connection_faults(model: InstanceConfig) -> list[str]:
    """Tell what is wrong with how the instance reaches its sources."""
    endpoint, url, path = model.openmetrics_endpoint, model.kube_api_url, model.kube_config_path
    scrapes = endpoint and (model.kueue_metrics != "none" or model.metrics or model.extra_metrics)
    tests = [
        (
            not model.collect_kubernetes and not endpoint,
            "`collect_kubernetes` is false and `openmetrics_endpoint` is not set, so there is nothing to do: set one",
        ),
        (
            not model.collect_kubernetes and endpoint and not scrapes,
            "`collect_kubernetes` is false and `kueue_metrics` is none, so there is nothing to do: change one",
        ),
        (
            url and path,
            "`kube_api_url` and `kube_config_path` both name the Kubernetes API: remove one",
        ),
        (
            model.kube_context and not path,
            "`kube_context` is a context of `kube_config_path`, which is not set: set it, or remove `kube_context`",
        ),
        (
            model.kube_api_options and not url,
            "`kube_api_options` apply to `kube_api_url`, which is not set: set it, or remove `kube_api_options`",
        ),
    ]
    return [text for fault, text in tests if fault]


def _namespace_faults(model: InstanceConfig) -> list[str]:
    """Tell which entries of `namespaces` are taken away again by `exclude_namespaces`."""
    excluded = model.exclude_namespaces or ()
    if not model.namespaces and "*" in excluded:
        return ["`exclude_namespaces` holds '*', so nothing would be reported: remove it"]
    # A pattern as text is matched by each pattern that takes in all that it takes in, or is equal to it.
    return [
        f"`namespaces` holds {_shown(wanted)} and `exclude_namespaces` takes it away with {_shown(pattern)}: remove one"
        for wanted in model.namespaces or ()
        for pattern in excluded
        if fnmatchcase(wanted, pattern)
    ]
