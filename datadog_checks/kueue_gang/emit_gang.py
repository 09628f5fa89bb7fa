# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""From the picture to the metrics of single gangs, and which gangs have any.

Each gang costs many series, so those that need attention have all of them, and others only how they get on, where
something tells: a rate is of use beside those of gangs with which all is well. A cap holds for both together.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from datadog_checks.kueue_gang.derive.members import CLASSES
from datadog_checks.kueue_gang.derive.picture import MISSING, GangView, Picture
from datadog_checks.kueue_gang.emit_kueue import gang_domains
from datadog_checks.kueue_gang.sampling import Sample, Tags, age, queue_tags, sample, tag


@dataclass(frozen=True, slots=True)
class EmitOptions:
    """The user's options about series: see conf.yaml. `label_tags` maps a label to the tag that it becomes."""

    tags: Tags = ()
    zero_tail: float = 900.0
    per_gang: str = "attention"
    max_gangs: int = 100
    label_tags: Mapping[str, str] = field(default_factory=dict)


def _member_counts(gang: GangView) -> list[tuple[str, int]]:
    counts = [(name, gang.classes.get(name, 0)) for name in CLASSES]
    return [(name, number) for name, number in (*counts, (MISSING, gang.missing)) if number]


def chosen(picture: Picture, options: EmitOptions) -> list[GangView]:
    """Return the gangs that get series of their own, before the cap: first who wastes most, then who waits for most."""
    wanted: dict[str, Callable[[GangView], bool]] = {
        "attention": lambda gang: gang.attention or gang.key in picture.verdicts.deadlocked,
        "all": lambda _gang: True,
        "none": lambda _gang: False,
    }
    gangs = [gang for gang in picture.views if wanted[options.per_gang](gang)]
    return sorted(
        gangs,
        key=lambda gang: (
            -sum(gang.idle.values()),
            -sum(gang.requested.values()) * (0.0 if gang.since is None else age(picture, gang.since)),
            gang.key,
        ),
    )


def telling(picture: Picture, taken: Collection[GangView]) -> list[GangView]:
    """Return the other gangs that tell how they get on, before the cap: first who holds most GPUs."""
    if not picture.headway:
        return []
    known = {gang.key for gang in taken}
    gangs = [gang for gang in picture.views if gang.key in picture.headway and gang.key not in known]
    return sorted(gangs, key=lambda gang: (-sum(gang.allocated.values()), gang.key))


def one_gang(picture: Picture, options: EmitOptions) -> Iterator[Sample]:
    """Tell of single gangs: everything of those that are chosen, of others how they get on and where they lie."""
    gangs = chosen(picture, options)
    others = [] if options.per_gang == "none" else telling(picture, gangs)
    yield sample("series.dropped", max(0, len(gangs) + len(others) - options.max_gangs))
    for gang in gangs[: options.max_gangs]:
        tags = _tags(gang, options)
        yield from _whole(picture, gang, tags)
        yield from _gets_on(picture, gang, tags)
    for gang in others[: max(0, options.max_gangs - len(gangs))]:
        yield from _gets_on(picture, gang, _tags(gang, options))


def _tags(gang: GangView, options: EmitOptions) -> Tags:
    return (
        tag("gang", gang.name),
        *queue_tags(gang.queue),
        tag("owner_kind", gang.owner_kind),
        tag("kueue_workload_priority_class", gang.priority_class),
        *(tag(options.label_tags[label], value) for label, value in gang.labels if label in options.label_tags),
    )


def _whole(picture: Picture, gang: GangView, tags: Tags) -> Iterator[Sample]:
    for name, number in _member_counts(gang):
        yield sample("gang.members", number, *tags, tag("member_state", name))
    if gang.required is not None:
        yield sample("gang.required", gang.required, *tags)
    if gang.state and gang.since is not None:
        yield sample("gang.state_seconds", age(picture, gang.since), *tags, tag("gang_state", gang.state))
    for name, amounts in (
        ("gang.gpus_requested", gang.requested),
        ("gang.gpus_allocated", gang.allocated),
        ("gang.gpus_idle", gang.idle),
        ("gang.gpus_reserved", gang.reserved),
    ):
        for resource, amount in amounts.items():
            yield sample(name, amount, *tags, tag("gpu_resource", resource))
    if gang.key in picture.verdicts.blockers:
        yield sample("gang.blocked", 1, *tags, tag("blocker", picture.verdicts.blockers[gang.key]))
    if gang.requeues:
        yield sample("gang.requeues", gang.requeues, *tags)


def _gets_on(picture: Picture, gang: GangView, tags: Tags) -> Iterator[Sample]:
    """Tell how fast a gang gets on, and where it lies: the one may come of the other."""
    yield from gang_domains(picture, gang, tags)
    told = picture.headway.get(gang.key)
    if told is None:
        return
    for rate in told.rates:
        yield sample("gang.throughput", rate.value, *tags, tag("unit", rate.unit))
        if rate.per_gpu is not None:
            yield sample("gang.throughput_per_gpu", rate.per_gpu, *tags, tag("unit", rate.unit))
    if told.progress is not None:
        yield sample("gang.progress", told.progress, *tags)
