# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Where the members of a gang lie in a topology, and whether that is what it asked for.

Judged is where pods are, not where Kueue meant them to be: its assignment is a promise, and pods may run elsewhere.
Members that are placed, ask for GPUs and are on a known node count; those that are still to come are not held against
the gang, so that one that is half placed is judged by its half.

The verdict is that of a podset's request. Required: all in one domain of the level. Slices: every so many pods in one
domain of the level, in rank order; the ranks are not known here, so a podset is in violation when its pods take more
slices than it has, however they are dealt out. Preferred and unconstrained ask for nothing that can be violated. A
violation that the known nodes prove stands even when another node lacks a label; without a proof such a node makes the
verdict unobservable.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from datadog_checks.kueue_gang.derive.domains import Layout, Path
from datadog_checks.kueue_gang.derive.gpus import selects
from datadog_checks.kueue_gang.derive.members import PLACED
from datadog_checks.kueue_gang.derive.sizes import podset_of
from datadog_checks.kueue_gang.derive.states import Shape
from datadog_checks.kueue_gang.facts.constraints import HOSTNAME
from datadog_checks.kueue_gang.facts.nodes import Node
from datadog_checks.kueue_gang.facts.pods import Pod
from datadog_checks.kueue_gang.facts.queues import ResourceFlavor
from datadog_checks.kueue_gang.facts.topology import Assignment, Request
from datadog_checks.kueue_gang.facts.workloads import PodSet

MATCH, VIOLATION, UNOBSERVABLE = "match", "violation", "unobservable"
#: The verdicts, the worst first.
VERDICTS = (VIOLATION, UNOBSERVABLE, MATCH)


class Places:
    """The layouts by flavor, and the flavors: what placement is judged by."""

    def __init__(self, layouts: Mapping[str, Layout], flavors: Mapping[str, ResourceFlavor]) -> None:
        """Take the layouts, that of the option under '', and the flavors; they are copied."""
        self._layouts = dict(layouts)
        self._flavors = {name: flavors[name] for name in layouts if name}
        keys = {level for layout in layouts.values() for level in layout.levels}
        keys |= {key for flavor in self._flavors.values() for key in flavor.node_labels}
        #: The labels of a node that matter here; that of the hostname since assignments name it.
        self.keys = tuple(sorted(keys | {HOSTNAME})) if layouts else ()

    def __bool__(self) -> bool:
        """Tell whether there is any topology."""
        return bool(self._layouts)

    def look_of(self, node: Node | None) -> tuple[str | None, ...]:
        """Return what of a node matters here."""
        labels = node.labels if node else None
        return () if labels is None else tuple(labels.get(key) for key in self.keys)

    def layout(self, podset: PodSet | None, nodes: Iterable[Node]) -> Layout | None:
        """Return the layout in which pods lie.

        That of the flavor that their admission names; else that of the only flavor with one that selects all their
        nodes; else that of the option.
        """
        for _, flavor in podset.flavors if podset else ():
            if flavor in self._layouts:
                return self._layouts[flavor]
        fitting = dict(self._flavors)
        for node in nodes:
            fitting = {name: flavor for name, flavor in fitting.items() if selects(flavor, node)}
        if len(fitting) == 1:
            return self._layouts[next(iter(fitting))]
        return self._layouts.get("")


#: Where it is not known whether there is a topology.
NOWHERE = Places({}, {})


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the placed members of a gang lie.

    `verdict` is '' where the gang asks for no place; `level` is then '' too. `topology`, `flavor` and `levels` are
    those of the podset that was judged; '' for the levels of the option. `domains` are (level, domains spanned, most
    members in one) of the levels at which every member can be seen. `outside` counts the members that run elsewhere
    than Kueue assigned them. `pods` are the members that lie in this layout; empty where they lie in several. `asked`
    are the podsets of the gang's Workload.
    """

    topology: str
    flavor: str
    level: str
    verdict: str
    domains: tuple[tuple[str, int, int], ...]
    outside: int
    levels: tuple[str, ...]
    pods: tuple[Pod, ...] = field(compare=False, repr=False)
    asked: tuple[PodSet, ...] = field(default=(), compare=False, repr=False)


@dataclass(slots=True)
class _Part:
    """The placed members of one podset, their nodes with how many are on each, and the layout in which they lie."""

    podset: PodSet | None
    pods: list[Pod]
    nodes: list[tuple[Node, int]]
    layout: Layout | None

    @property
    def request(self) -> Request | None:
        return self.podset.request if self.podset else None


def place(
    shape: Shape, nodes: Mapping[str, Node], places: Places, before: Placement | None = None
) -> Placement | None:  # fmt: skip
    """Return where the placed members of a gang lie; None where it has none, or where there is no topology for them.

    `before` is what was returned for it when nodes and places were the same: where its members lie as they did, that
    is the answer, and it is for nearly all gangs that change.
    """
    if before is not None and _lies_as(before, shape):
        return before
    parts = [] if places is NOWHERE else _parts(shape, nodes, places)
    if not parts:
        return None
    # Podsets that cannot be told apart are judged by none of the requests.
    blurred = len(parts) == 1 and parts[0].podset is None
    verdicts = [(_verdict(part), part) for part in parts if part.request]
    if blurred and shape.gang.workload:
        verdicts = [
            (UNOBSERVABLE, _Part(podset, parts[0].pods, parts[0].nodes, parts[0].layout))
            for podset in shape.gang.workload.podsets
            if podset.request
        ]
    verdict, judged = min(
        verdicts, key=lambda one: VERDICTS.index(one[0]), default=("", max(parts, key=lambda part: len(part.pods)))
    )
    layout = judged.layout
    if layout is None and not verdict:
        return None
    alike = all(part.layout == layout for part in parts)
    return Placement(
        topology=layout.topology if layout else "",
        flavor=layout.flavor if layout else _given_flavor(judged.podset),
        level=_level(judged) if verdict else "",
        verdict=verdict,
        domains=_domains(parts),
        outside=sum(_outside(part) for part in parts),
        levels=layout.levels if layout else (),
        pods=tuple(pod for part in parts for pod in part.pods) if alike and layout else (),
        asked=shape.gang.workload.podsets if shape.gang.workload else (),
    )


def _lies_as(before: Placement, shape: Shape) -> bool:
    """Tell whether members lie where they lay; those of several podsets are not in the order in which they were."""
    if len(before.asked) > 1 or before.asked is not (shape.gang.workload.podsets if shape.gang.workload else ()):
        return False
    pods = [pod for pod in shape.pods(PLACED) if pod.spec.gpus]
    return len(pods) == len(before.pods) and all(
        one.node == other.node and one.spec is other.spec for one, other in zip(pods, before.pods, strict=True)
    )


def _given_flavor(podset: PodSet | None) -> str:
    return next((name for _, name in podset.flavors), "") if podset else ""


def _parts(shape: Shape, nodes: Mapping[str, Node], places: Places) -> list[_Part]:
    """Sort the placed members with GPUs by podset; all into one where a member names none that the gang has."""
    workload = shape.gang.workload
    podsets = {podset.name: podset for podset in workload.podsets} if workload else {}
    if not places and not any(podset.request for podset in podsets.values()):
        return []
    members = [pod for pod in shape.pods(PLACED) if pod.spec.gpus and pod.node in nodes]
    found: dict[str, list[Pod]] = {"": members} if members and not podsets else {}
    if len(podsets) == 1 and members:
        found = {next(iter(podsets)): members}
    elif podsets:
        for pod in members:
            found.setdefault(podset_of(pod), []).append(pod)
        if not found.keys() <= podsets.keys():
            found = {"": members}
    parts = []
    for name, pods in sorted(found.items()):
        on = [(nodes[node], number) for node, number in Counter(pod.node for pod in pods).items()]
        parts.append(_Part(podsets.get(name), pods, on, places.layout(podsets.get(name), (node for node, _ in on))))
    return parts


def _values(node: Node, levels: Sequence[str]) -> Path | None:
    """Return a node's path through levels; None where it lacks the label of one."""
    labels = node.labels
    found: list[str] = []
    for level in levels:
        value = None if labels is None else labels.get(level)
        if value is None:
            return None
        found.append(value)
    return tuple(found)


def _lying(part: _Part, level: str) -> tuple[Counter[Path], int]:
    """Return the members by domain of a level, and how many cannot be seen at it."""
    levels = part.layout.levels if part.layout else ()
    if level not in levels:
        return Counter(), len(part.pods)
    return _count(part, levels[: levels.index(level) + 1])


def _count(part: _Part, levels: Sequence[str]) -> tuple[Counter[Path], int]:
    found: Counter[Path] = Counter()
    for node, number in part.nodes:
        path = _values(node, levels)
        if path is not None:
            found[path] += number
    return found, len(part.pods) - found.total()


def _level(part: _Part) -> str:
    """Return the level that a verdict is about: the strictest one that is asked for."""
    request = part.request or Request()
    lowest = part.layout.levels[-1] if part.layout else ""
    sliced = next(iter(request.slices), ("", 0))[0]
    return request.required or sliced or request.preferred or lowest


def _verdict(part: _Part) -> str:
    request = part.request
    if request is None or part.podset is None:
        return MATCH
    size = part.podset.count if part.podset.assigned is None else part.podset.assigned
    # An elastic podset may run with more pods than its spec says.
    size = max(size, len(part.pods))
    unseen = False
    for level, pods in ((request.required, size), *request.slices):
        if level:
            lying, hidden = _lying(part, level)
            unseen |= hidden > 0
            if sum(-(-number // pods) for number in lying.values()) > -(-size // pods):
                return VIOLATION
    unseen |= _lying(part, _level(part))[1] > 0
    return UNOBSERVABLE if unseen else MATCH


def _domains(parts: Sequence[_Part]) -> tuple[tuple[str, int, int], ...]:
    """Return (level, domains spanned, most members in one), all podsets together, level by level as they lie."""
    spans: dict[str, Counter[Path]] = {}
    hidden: set[str] = set()
    for part in parts:
        for level in part.layout.levels if part.layout else ():
            lying, unseen = _lying(part, level)
            spans.setdefault(level, Counter()).update(lying)
            if unseen:
                hidden.add(level)
    if any(part.layout is None for part in parts):
        return ()
    return tuple(
        (level, len(lying), max(lying.values())) for level, lying in spans.items() if level not in hidden
    )  # fmt: skip


def _outside(part: _Part) -> int:
    """Return how many members run elsewhere than the podset's assignment says.

    Where the lowest level is the hostname, an assignment names that level only. A node that lacks a label of it may be
    any of them.
    """
    assignment: Assignment | None = part.podset.assignment if part.podset else None
    if assignment is None or not assignment.domains:
        return 0
    given: Counter[Path] = Counter()
    for values, number in assignment.domains:
        given[values] += number
    lying, _ = _count(part, assignment.levels)
    return sum(max(0, number - given[path]) for path, number in lying.items())
