# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The text in which exporters tell their metrics: the samples of a few names out of a page of 500 KB.

Only the lines of wanted names reach the parser; they are found as bytes, which costs a hundredth of parsing all. What
counts up is known by the TYPE of the family, and without one by the name: _total, _count and _sum are counters.

A page without any wanted name is told by what it is instead: HTML, nothing, or metrics, of which the names that come
close are told.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Final

from prometheus_client.parser import text_fd_to_metric_families

from datadog_checks.kueue_gang.sources.samples import Sample

_TYPE: Final = "# TYPE "
#: Suffixes of the series of a family that count up.
COUNTING: Final = ("_total", "_count", "_sum")
#: Types of families whose series with such a suffix count up.
_COUNTING_TYPES: Final = frozenset({"counter", "histogram", "summary"})
#: Parts of a distribution: one of them alone is no figure.
_PARTS: Final = frozenset({"quantile", "le"})

#: How every line of a sample begins, and that a number follows.
_SAMPLE: Final = re.compile(
    rb"^[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{[^\n]*\})?[ \t]+(?:[-+]?\.?[0-9]|[-+]?Inf|NaN)", re.MULTILINE
)
#: Where the names of a page are looked for: no page needs more to show what it is.
_LOOKED_AT: Final = 1024 * 1024
#: Most names that are told as close.
_CLOSE: Final = 3
#: Most samples of one name in a page: to parse them takes time that no timeout ends. A node has some hundred devices.
MOST_SAMPLES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Page:
    """The samples of the wanted names, the names among them that count up, and how many lines were no sample."""

    samples: Sequence[Sample]
    counters: frozenset[str]
    broken: int = 0


def page(body: bytes, wanted: Iterable[str]) -> Page:
    """Return what an exporter tells of the wanted names.

    A name that is not there is taken with `_total`, as some write the name of a counter without it.

    Raises:
        ValueError: there is no metric in it, or far too many samples; the text says what it is instead.

    """
    samples: list[Sample] = []
    counters: set[str] = set()
    broken = 0
    for wish in wanted:
        for name in (wish, f"{wish}_total"):
            lines = list(islice(_lines(body, name), MOST_SAMPLES + 1))
            if len(lines) > MOST_SAMPLES:
                msg = f"more than {MOST_SAMPLES} samples of {name}"
                raise ValueError(msg)
            if lines:
                # A line that is none may look to the parser as if it had another name.
                found = [sample for sample in _parsed(lines) if sample.name == name]
                broken += len(lines) - len(found)
                samples += (sample for sample in found if not sample.labels.keys() & _PARTS)
                counters |= {name} if _counts(body, name) else set()
                break
    if not samples and not broken:
        _must_be_metrics(body)
    return Page(samples, frozenset(counters), broken)


def names(body: bytes) -> frozenset[str]:
    """Return the names of the series in a page, those of its first megabyte."""
    return frozenset(name.decode() for name in _SAMPLE.findall(body[:_LOOKED_AT]))


def close(wanted: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return the known names that come close to what was wanted, the closest first; none where none does."""
    by_lower: dict[str, str] = {}
    for name in sorted(known):
        by_lower.setdefault(name.lower(), name)
    found: dict[str, None] = {}
    for wish in wanted:
        found |= dict.fromkeys(get_close_matches(wish.lower(), by_lower, n=_CLOSE))
    return [by_lower[name] for name in found][:_CLOSE]


def counts_by_name(name: str) -> bool:
    """Tell whether a series counts up, by its name alone."""
    return name.endswith(COUNTING)


def _lines(body: bytes, name: str) -> Iterator[bytes]:
    """Yield the lines that begin with a name, as a whole word."""
    word = name.encode()
    at = body.find(word)
    while at >= 0:
        begin = body.rfind(b"\n", 0, at) + 1
        end = body.find(b"\n", at)
        end = len(body) if end < 0 else end
        if body[at + len(word) : at + len(word) + 1] in _AFTER and not body[begin:at].strip():
            yield body[begin:end]
        at = body.find(word, end)


#: What may come after the name of a series.
_AFTER: Final = frozenset({b"{", b" ", b"\t"})


def _parsed(lines: list[bytes]) -> list[Sample]:
    """Return the samples of lines; a line that is none costs itself."""
    texts = [_bare(line.decode("utf-8", "replace").strip()) for line in lines]
    try:
        return _read(texts)
    except Exception:  # noqa: BLE001 - a parser meets foreign text here
        found = []
        for text in texts:
            try:
                found += _read([text])
            except Exception:  # noqa: BLE001, S112 - it is counted by whoever asked for it
                continue
        return found


def _bare(text: str) -> str:
    """Return a line without the exemplar that may come after the value, as in OpenMetrics."""
    head, exemplar, _ = text.rpartition(" # {")
    # Not in the middle of a label's value.
    return head if exemplar and head.count('"') % 2 == 0 else text


def _read(texts: list[str]) -> list[Sample]:
    families = text_fd_to_metric_families(iter(texts))  # type: ignore[arg-type] # it iterates over lines, and no more
    return [Sample(one.name, one.labels, float(one.value)) for family in families for one in family.samples]


def _counts(body: bytes, name: str) -> bool:
    """Tell whether the series of a name count up."""
    told = _type(body, name)
    if told in {"counter", "gauge"}:
        return told == "counter"
    suffix = next((one for one in COUNTING if name.endswith(one)), "")
    return bool(suffix) and _type(body, name.removesuffix(suffix)) in {*_COUNTING_TYPES, "", "untyped", "unknown"}


def _type(body: bytes, family: str) -> str:
    """Return the type of a family, empty where the page does not tell it."""
    line = next(_lines(body, _TYPE + family), b"")
    return line.decode("utf-8", "replace").split()[-1] if line else ""


def _must_be_metrics(body: bytes) -> None:
    if not body.strip():
        msg = "an empty answer"
    elif body.lstrip().startswith(b"<"):
        msg = "an HTML page"
    elif _SAMPLE.search(body[:_LOOKED_AT]) is None:
        msg = "no metrics"
    else:
        return
    raise ValueError(msg)


def flaws(one: Page) -> Counter[str]:
    """Return the lines of a page that are no sample, as `Found.bad` counts them."""
    return Counter({"other": one.broken} if one.broken else {})
