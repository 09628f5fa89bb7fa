# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A Prometheus server, or what speaks its API, that is asked one query: an instant vector becomes beats or paces.

The query is the user's, so whatever comes back is looked at: the type of the result, the labels that should name the
pods, values that are no numbers. A partial answer (`warnings`: a store behind the server did not answer) tells the
truth of the pods that are in it, and nothing of a gang as a whole. It is used so, and told.

A query that finds nothing may be right, as long as nothing runs. So an empty answer is no error by itself; but where
the server does not know the names in the query, that is told, with the names that come close.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import Any, Final

import orjson

from datadog_checks.kueue_gang.sources.api import MALFORMED
from datadog_checks.kueue_gang.sources.connection import Log, UrlConnection
from datadog_checks.kueue_gang.sources.errors import SourceError, Target, harmless, invalid
from datadog_checks.kueue_gang.sources.exposition import close
from datadog_checks.kueue_gang.sources.rounds import Source, Told
from datadog_checks.kueue_gang.sources.samples import ACTIVITY_METRICS, Found, Sample
from datadog_checks.kueue_gang.sources.targets import PrometheusTarget

#: Largest answer that is read: a thousand nodes with eight GPUs each are a few MB.
MAX_ANSWER: Final = 64 * 1024 * 1024
QUERY: Final = "/api/v1/query"
NAMES: Final = "/api/v1/label/__name__/values"
#: Rounds between two looks at the names that a server has, while a query finds nothing.
LOOK_AGAIN: Final = 40

_DEVICE: Final = (
    "namespace", "pod", "exported_namespace", "exported_pod", "pod_namespace", "pod_name", "Hostname", "hostname",
    "gpu", "UUID", "GPU_I_ID", "vgpu",
)  # fmt: skip


def activity_query(interval: float, labels: Iterable[str] = ()) -> str:
    """Return the query for the activity of all GPUs, one series a device, asked each `interval` seconds.

    `labels` are those of the user that name the pod: what the query does not keep nobody can read.
    It is the greatest of what DCGM tells, in the last two minutes and since the query before. Both metrics count, since
    one may stand still; a label keeps them apart until the maximum is taken, for `or` alone would drop one.
    """
    minutes = 1 + ceil(interval / 60)
    metrics = (
        f'label_replace(max_over_time({metric}[{minutes}m]), "metric", "{metric}", "", "")'
        for metric in ACTIVITY_METRICS
    )
    kept = dict.fromkeys([*_DEVICE, *labels])
    return f"max by ({', '.join(kept)}) ({' or '.join(metrics)})"


#: That query at the Agent's own interval.
ACTIVITY_QUERY: Final = activity_query(15)

#: Words of a query that may be names of metrics, outside of quotes, braces and brackets.
_QUOTED: Final = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`[^`]*`")
_BRACES: Final = re.compile(r"\{[^{}]*\}|\[[^\[\]]*\]")
_LABEL_LISTS: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)")
_WORD: Final = re.compile(r"(?<![a-zA-Z0-9_:.])[a-zA-Z_:][a-zA-Z0-9_:]*(?![a-zA-Z0-9_:]*\s*\()")
_KEYWORDS: Final = frozenset(
    {
        "and", "or", "unless", "bool", "offset", "by", "without", "on", "ignoring", "group_left", "group_right",
        "atan2", "inf", "nan", "start", "end",
    }
)  # fmt: skip

#: How a remark on the query begins that Prometheus 2.48 to 2.53 puts among the warnings: that a rate is taken of a name
#: without _total, for example. The answer is whole.
_REMARK: Final = "PromQL info"

#: What series say: (samples, when they were asked for) -> what was found.
Reading = Callable[[Sequence[Sample], float], Found]


class PrometheusSource(Source[str]):
    """The answers to one query."""

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        name: str,
        target: PrometheusTarget,
        told: Target,
        read: Reading,
        log: Log,
        *,
        interval: float,
        whole: bool = False,
        nobodys: frozenset[str] = frozenset(),
        init_config: Mapping[str, Any] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to ask. Raises ConfigurationError.

        `whole`: a partial answer is none. `nobodys` are labels of series that may name no pod, such as those of GPUs.
        """
        options = dict(target.http)
        connection = UrlConnection(
            target.url, options, timeout=target.timeout, target=told, init_config=init_config, log=log
        )
        super().__init__(name, connection, log, interval=interval, monotonic=monotonic)
        self._target, self._read, self._whole, self._nobodys = target, read, whole, nobodys
        self._wanted = metric_names(target.query)
        #: Rounds since the names were looked at, and what came of it.
        self._looked: int | None = None
        self._unknown: SourceError | None = None

    def _jobs(self) -> Sequence[str]:
        return (self._target.query,)

    def _ask(self, job: str) -> Told:
        target = self._connection.target
        at = time.monotonic()
        # The server need not go on when nobody waits any more.
        query = {"query": job, "timeout": f"{max(1, ceil(self._target.timeout))}s"}
        body = self._connection.read(QUERY, query, most=MAX_ANSWER)
        try:
            samples, broken, warnings = vector(body)
        except ValueError as error:
            raise invalid(target, QUERY, str(error)) from None
        partial = None
        if warnings:
            text = f"{target.name} {QUERY}: a partial answer ({harmless(warnings[0])})"
            partial = SourceError("invalid", text, "check the stores behind it, or ask a server that has all series")
            if self._whole:
                raise partial
        found = self._read(samples, at)
        if samples and not found and not found.bad:
            self._must_be_nobodys(samples)
        found.bad += Counter(other=broken)
        if samples or broken or partial:
            self._looked = self._unknown = None
        else:
            self._look()
        return Told(found, partial or self._unknown)

    def _must_be_nobodys(self, samples: Sequence[Sample]) -> None:
        """Take series that name no pod only where they may. Raises SourceError."""
        target = self._connection.target
        known = sorted({label for sample in samples[:100] for label in sample.labels})
        if self._nobodys & set(known):
            return
        wanted = self._target.gang_label or self._target.pod_labels[-1]
        has = f"its series have {', '.join(known)}" if known else "its series have no labels: keep them with `by`"
        text = f"{target.name} {QUERY}: no series has the labels {wanted} and {self._target.namespace_labels[-1]}"
        raise SourceError("invalid", text, harmless(has))  # noqa: EM101 - a reason, no text

    def _look(self) -> None:
        """Find out whether an empty answer means that the metrics do not exist; now and then only."""
        self._looked = 0 if self._looked is None else self._looked + 1
        if self._looked % LOOK_AGAIN or not self._wanted:
            return
        try:
            answer = self._connection.read(NAMES, most=MAX_ANSWER)
            known = {str(name) for name in orjson.loads(answer)["data"]}
        except (SourceError, *MALFORMED) as error:
            self._log.debug("%s: the names are not known: %s", self.name, harmless(str(error)))
            return
        self._unknown = None
        if known and not known & self._wanted:
            near = close(sorted(self._wanted), known)
            target = self._connection.target
            advice = harmless(f"it has {', '.join(near)}") if near else f"none of its {len(known)} names comes close"
            text = f"{target.name} {QUERY}: it has no metric {harmless(' or '.join(sorted(self._wanted)))}"
            self._unknown = SourceError("invalid", text, advice)

    def _counted(self, told: Sequence[Told]) -> tuple[int, list[SourceError]]:
        found = [one.found for one in told]
        return sum(len(one.beats) + len(one.paces) for one in found), [one.error for one in told if one.error]


def vector(body: bytes) -> tuple[list[Sample], int, list[str]]:
    """Return the samples of an instant vector, the number of series that were no sample, and the warnings.

    Raises:
        ValueError: it is none; the text says what it is instead.

    """
    try:
        answer = orjson.loads(body)
    except ValueError:
        what = "an HTML page" if body.lstrip().startswith(b"<") else "no JSON" if body.strip() else "an empty answer"
        raise ValueError(what) from None
    if not isinstance(answer, dict) or answer.get("status") != "success":
        said = answer.get("error") if isinstance(answer, dict) else None
        msg = f"an error ({said})" if said else "no answer of a Prometheus API"
        raise ValueError(msg)
    data = answer.get("data")
    kind = data.get("resultType") if isinstance(data, dict) else None
    found = data.get("result") if isinstance(data, dict) else None
    if kind != "vector" or not isinstance(found, list):
        msg = f"the query gives a {kind}, and an instant vector is needed" if kind else "no result"
        raise ValueError(msg)
    samples: list[Sample] = []
    for series in found:
        try:
            labels = {str(label): str(value) for label, value in series["metric"].items()}
            samples.append(Sample(labels.pop("__name__", ""), labels, float(series["value"][1])))
        except MALFORMED:
            continue
    warnings = answer.get("warnings")
    told = [str(one) for one in warnings if not str(one).startswith(_REMARK)] if isinstance(warnings, list) else []
    return samples, len(found) - len(samples), told


def metric_names(query: str) -> frozenset[str]:
    """Return the words of a query that are names of metrics, as far as that can be told without its grammar."""
    text = _QUOTED.sub(" ", query)
    for pattern in (_BRACES, _LABEL_LISTS):
        text = pattern.sub(" ", text)
    return frozenset(word for word in _WORD.findall(text) if word.lower() not in _KEYWORDS)
