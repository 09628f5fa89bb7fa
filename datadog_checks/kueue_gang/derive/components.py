# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Which pods and objects can influence each other: the components of a cluster.

A pod belongs to a gang because it names an object of its namespace, or because both name the same thing. So what shares
a name in a namespace is in one component, and what is in different components has nothing to do with each other. One
component is usually one job: its pods, its PodGroup, its Workload. When something in it changes, only it is derived
anew.

Components only grow together; when the name that joined two of them is gone they stay one, which costs time and changes
no answer. An empty component is forgotten.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from zlib import crc32

from datadog_checks.kueue_gang.derive.drawing import NOT_DRAWN, Drawn
from datadog_checks.kueue_gang.derive.membership import Membership
from datadog_checks.kueue_gang.facts.jobs import Job
from datadog_checks.kueue_gang.facts.podgroups import PodGroup
from datadog_checks.kueue_gang.facts.pods import Pod
from datadog_checks.kueue_gang.facts.workloads import Workload

#: GPU pods that name nothing are gathered in so many components a namespace: a change derives a part of them anew, and
#: a component costs memory also where it holds a single pod.
_SHARDS = 16


@dataclass(slots=True, eq=False)
class Component:
    """Pods and objects of a namespace that share names, and what was derived of them.

    `found` are its gangs, `classes` the classes of each gang's members before Permit waiters were settled, `settled`
    after, with whether the scheduler's count settled them.
    """

    namespace: str
    names: list[str] = field(default_factory=list)
    pods: dict[str, Pod] = field(default_factory=dict)
    pod_groups: dict[tuple[str, str], PodGroup] = field(default_factory=dict)
    workloads: dict[str, Workload] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    found: Membership | None = None
    classes: list[list[str]] = field(default_factory=list)
    settled: list[tuple[list[str], bool]] = field(default_factory=list)
    drawn: Drawn = NOT_DRAWN

    @property
    def empty(self) -> bool:
        """Tell whether nothing is left in it."""
        return not (self.pods or self.pod_groups or self.workloads or self.jobs)

    def absorb(self, other: "Component") -> None:
        """Take over what another component holds."""
        self.names += other.names
        self.pods |= other.pods
        self.pod_groups |= other.pod_groups
        self.workloads |= other.workloads
        self.jobs |= other.jobs

    def __len__(self) -> int:
        """Return the number of its pods and objects."""
        return len(self.pods) + len(self.pod_groups) + len(self.workloads) + len(self.jobs)


class Components:
    """All components, found by namespace and name."""

    def __init__(self) -> None:
        """Begin with none."""
        self._by_name: dict[str, dict[str, Component]] = {}
        #: Components that a merge or the loss of their last object took away since the last `take_removed`.
        self._removed: list[Component] = []

    def __iter__(self) -> Iterator[Component]:
        """Return every component once."""
        named = (component for components in self._by_name.values() for component in components.values())
        return iter({id(component): component for component in named}.values())

    def within(self, namespaces: Iterable[str]) -> Iterator[Component]:
        """Return every component of some namespaces once."""
        for namespace in namespaces:
            yield from {id(one): one for one in self._by_name.get(namespace, {}).values()}.values()

    def of(self, namespace: str, names: Iterable[str]) -> Component:
        """Return the component that has all these names, joining the ones that have some of them."""
        named = list(names)
        known = self._by_name.setdefault(namespace, {})
        target: Component | None = None
        for name in named:
            other = known.get(name)
            if other is None or other is target:
                continue
            target = other if target is None else self._join(target, other)
        if target is None:
            target = Component(namespace)
        for name in named:
            if name not in known:
                target.names.append(name)
                known[name] = target
        return target

    def forget_if_empty(self, component: Component) -> None:
        """Forget a component that holds nothing any more."""
        if component.empty:
            known = self._by_name.get(component.namespace, {})
            for name in component.names:
                # One that was joined into another since it was touched has lost its names to that one.
                if known.get(name) is component:
                    del known[name]
            if not known:
                self._by_name.pop(component.namespace, None)
            self._removed.append(component)

    def take_removed(self) -> list[Component]:
        """Return the components that are no more since the last call."""
        removed, self._removed = self._removed, []
        return removed

    def _join(self, left: Component, right: Component) -> Component:
        large, small = (left, right) if len(left) >= len(right) else (right, left)
        large.absorb(small)
        for name in small.names:
            self._by_name[small.namespace][name] = large
        self._removed.append(small)
        return large


def names_of_pod(pod: Pod) -> tuple[str, ...]:
    """Return the names that tie a pod; one that names nothing shares a component with some others of its namespace."""
    return pod.ties.names or (f"\0{crc32(pod.name.encode()) % _SHARDS}",)


def put(holder: dict, key: object, value: object | None) -> None:  # type: ignore[type-arg]
    """Hold a value under a key; None takes it away."""
    if value is None:
        holder.pop(key, None)
    else:
        holder[key] = value
