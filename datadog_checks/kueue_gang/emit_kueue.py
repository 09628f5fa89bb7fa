# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""From the picture to the metrics of topology and quota.

Figures of a topology are per (topology, level, flavor): a node is in every flavor that selects it, and in one domain of
each level, so none of them may be added up over these.
"""

from collections.abc import Iterator, Mapping

from datadog_checks.kueue_gang.derive.domains import FREE, FULL, PARTIAL, LayoutFigures, LevelFigures
from datadog_checks.kueue_gang.derive.picture import NONE, GangView, Picture
from datadog_checks.kueue_gang.sampling import Sample, Tags, sample, tag


def topology(picture: Picture) -> Iterator[Sample]:
    """Tell how the nodes of each flavor lie, what is free in the domains, and how gangs lie in them."""
    if picture.layouts is None:
        return
    for figures in picture.layouts:
        of = (
            tag("topology", figures.layout.topology or NONE),
            tag("kueue_resource_flavor", figures.layout.flavor or NONE),
        )
        if figures.nodes_shared:
            yield sample("topology.nodes_shared", figures.nodes_shared, *of)
        for level in figures.levels:
            tags = (*of, tag("topology_level", level.label))
            yield from _labels(level, tags)
            if picture.free_known:
                yield from _free(figures, level, tags)
    for (name, label, flavor, verdict), number in picture.summary.placements.items() if picture.pods_known else ():
        yield sample(
            "topology.gangs",
            number,
            tag("topology", name or NONE),
            tag("topology_level", label or NONE),
            tag("kueue_resource_flavor", flavor or NONE),
            tag("placement", verdict),
        )


def _labels(level: LevelFigures, tags: Tags) -> Iterator[Sample]:
    for word, number in (("true", level.labeled), ("false", level.unlabeled)):
        if number:
            yield sample("topology.nodes", number, *tags, tag("labeled", word))
    yield sample("topology.label_coverage", 100 * level.labeled / (level.labeled + level.unlabeled), *tags)
    for resource, amount in level.unlabeled_gpus.items():
        yield sample("topology.unlabeled_gpus", amount, *tags, tag("gpu_resource", resource))


def _free(figures: LayoutFigures, level: LevelFigures, tags: Tags) -> Iterator[Sample]:
    for state in (FREE, PARTIAL, FULL):
        if level.domains.get(state):
            yield sample("topology.domains", level.domains[state], *tags, tag("domain_state", state))
    for resource, amount in level.largest_free.items():
        if amount:
            yield sample("topology.largest_free", amount, *tags, tag("gpu_resource", resource))
    for ((pods, size), resource), number in level.slots.items():
        of = (*tags, tag("slot", f"{pods}x{size}"), tag("gpu_resource", resource))
        if number:
            yield sample("topology.slots", number, *of)
        if figures.free[resource]:
            yield sample("topology.fragmentation", 100 * (1 - pods * size * number / figures.free[resource]), *of)


def gang_domains(picture: Picture, gang: GangView, tags: Tags) -> Iterator[Sample]:
    """Tell how many domains a gang spans, and how few could hold it."""
    if gang.placement is None:
        return
    for level, number, _ in gang.placement.domains:
        yield sample("gang.topology_domains", number, *tags, tag("topology_level", level))
    for level, number in picture.needed(gang.placement).items():
        yield sample("gang.topology_domains_needed", number, *tags, tag("topology_level", level))


def quota(picture: Picture) -> Iterator[Sample]:
    """Tell the quota of the ClusterQueues, what is reserved in vain, and what no node stands behind."""
    quotas = picture.quotas
    for name, amounts in (
        ("quota.nominal", quotas.nominal),
        ("quota.reserved", quotas.reserved),
        ("quota.used", quotas.used),
        ("quota.borrowed", quotas.borrowed),
    ):
        for (queue, flavor, resource), amount in amounts.items():
            if amount:
                yield sample(
                    name,
                    amount,
                    tag("kueue_cluster_queue", queue),
                    tag("kueue_resource_flavor", flavor),
                    tag("gpu_resource", resource),
                )
    yield from _pairs("quota.without_pods", "kueue_cluster_queue", quotas.without_pods)
    yield from _pairs("quota.unbacked", "kueue_resource_flavor", quotas.unbacked)


def _pairs(name: str, key: str, amounts: Mapping[tuple[str, str], int] | None) -> Iterator[Sample]:
    for (value, resource), amount in (amounts or {}).items():
        yield sample(name, amount, tag(key, value), tag("gpu_resource", resource))
