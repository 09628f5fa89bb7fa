# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What Kueue says of a Workload that waits for quota, podset by podset: the text of its condition QuotaReserved.

A text reads `couldn't assign flavors to pod set A: reason, reason; couldn't assign flavors to pod set B: reason`. A
reason is about one flavor: its quota is in use, or too small for ever, or its topology has no place, or it is not for
these pods. What a flavor lacks in quota is told in three wordings: 0.15.0 changed that of a quota that is too small.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from datadog_checks.kueue_gang.facts.fields import CUT

_HEADER = re.compile(r"couldn't assign flavors to pod set ([^:]*): ", re.ASCII)
_LACK = re.compile(
    r"insufficient (?P<unused>unused )?quota for (?P<resource>\S+) in flavor (?P<flavor>\S+), "
    r"(?P<how>(?(unused)\S+ more needed|[^,;]*?> maximum capacity(?: \([^)]*\))?))",
    re.ASCII,
)
_MISFIT = re.compile(r"topology \"(?P<name>[^\"]*)\" (?:allows to fit|doesn't allow to fit)", re.ASCII)
_NUMBER = re.compile(r"\d[\w.]*", re.ASCII)
_PREEMPTION = re.compile(r"Pending the preemption of \d+ workload\(s\)", re.ASCII)


class Lack(NamedTuple):
    """Quota that a flavor lacks: so much of a resource, None where that cannot be read.

    `never` tells that it is not in use, but too small for the podset, be all of it free.
    """

    resource: str
    flavor: str
    amount: int | None
    never: bool


class Said(NamedTuple):
    """What is said of a podset, '' where none is named: the quota that lacks, the topologies that have no place.

    `more` tells that there is more to the text.
    """

    podset: str
    lacks: tuple[Lack, ...]
    topologies: tuple[str, ...]
    more: bool

    @property
    def never(self) -> bool:
        """Tell whether no flavor could ever admit the podset: the quota of each that may take it is too small."""
        small = {one.flavor for one in self.lacks if one.never}
        return bool(small) and not self.topologies and all(one.flavor in small for one in self.lacks)


@lru_cache(maxsize=256)
def said(text: str) -> tuple[Said, ...]:
    """Return what a text says."""
    first, *parts = _HEADER.split(text)
    found = [("", first), *zip(parts[::2], parts[1::2], strict=True)]
    return tuple(_said(podset, part) for podset, part in found if part.strip())


def never(text: str) -> bool:
    """Tell whether a text says that a podset can never be admitted; one that is cut does not tell."""
    return CUT not in text and any(one.never for one in said(text))


def misfit(text: str) -> bool:
    """Tell whether a text says that a topology has no place."""
    return any(one.topologies for one in said(text))


def _said(podset: str, text: str) -> Said:
    lacks = tuple(
        Lack(match["resource"], match["flavor"], _amount(match["how"]), never=not match["unused"])
        for match in _LACK.finditer(text)
    )
    topologies = tuple(dict.fromkeys(match["name"] for match in _MISFIT.finditer(text)))
    return Said(podset, lacks, topologies, bool(_PREEMPTION.sub("", _LACK.sub("", text)).strip(" ,;.")))


def _amount(how: str) -> int | None:
    """Return what is missing: what is needed, or what is asked for (with earlier podsets) above what there can be."""
    told = _NUMBER.findall(how)
    if not told or not all(number.isdecimal() for number in told):
        return None
    *asked, most = map(int, told)
    return sum(asked) - most if asked else most
