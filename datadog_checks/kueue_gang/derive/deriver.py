# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""From changes of facts to the next picture, at the cost of what changed.

`Deriver` holds the components of the cluster and what was derived of each. `apply` takes the facts that changed since
the last call, marks the components that they touch, and derives these anew; everything else stays as it is. What
crosses components is handled apart: the GPUs and tolerations of nodes are kept as sums (`gpus.NodeLedger`), as is what
is told of the components (`told.Told`), and Permit waiters are settled over all components that have some.

`derive` is the same for one reading of a whole cluster: everything has changed. A full derivation and a series of
changes give the same picture, which the tests hold for any series.
"""

from collections.abc import Collection, Container, Iterable, Mapping

from datadog_checks.kueue_gang.derive.closeup import Seen
from datadog_checks.kueue_gang.derive.components import Component, Components, names_of_pod, put
from datadog_checks.kueue_gang.derive.context import Context
from datadog_checks.kueue_gang.derive.drawing import classes_of, draw
from datadog_checks.kueue_gang.derive.gpus import NodeLedger
from datadog_checks.kueue_gang.derive.guard import known_gang_schedulers
from datadog_checks.kueue_gang.derive.history import History
from datadog_checks.kueue_gang.derive.judging import Judge
from datadog_checks.kueue_gang.derive.kueue import KueueObjects
from datadog_checks.kueue_gang.derive.members import lost_at, readiness
from datadog_checks.kueue_gang.derive.membership import WORKLOADS, membership
from datadog_checks.kueue_gang.derive.permit import Candidate
from datadog_checks.kueue_gang.derive.picture import GangView, Gpus, Note, Picture, Summary, Verdicts, Workloads
from datadog_checks.kueue_gang.derive.quota import QuotaBook
from datadog_checks.kueue_gang.derive.rooms import Rooms
from datadog_checks.kueue_gang.derive.rules import Rules
from datadog_checks.kueue_gang.derive.telling import Teller, unlabelled
from datadog_checks.kueue_gang.derive.told import Told
from datadog_checks.kueue_gang.derive.topology import TopologyLedger
from datadog_checks.kueue_gang.derive.transitions import Key, Memory
from datadog_checks.kueue_gang.derive.waiters import Waiters
from datadog_checks.kueue_gang.derive.watch import Watch
from datadog_checks.kueue_gang.facts.cluster import NOT_INSTALLED, Changes, Cluster, SchedulerCount
from datadog_checks.kueue_gang.facts.nodes import Node
from datadog_checks.kueue_gang.facts.pods import Pod


def derive(cluster: Cluster, rules: Rules, memory: Memory, now: float) -> tuple[Picture, Memory]:
    """Draw the picture of one reading of a cluster.

    Args:
        cluster: the facts.
        rules: the options.
        memory: what the last call returned; empty for a new check.
        now: the cluster's time, seconds since the epoch.

    Returns:
        The picture, and the memory for the next call.

    """
    deriver = Deriver(rules, memory)
    picture = deriver.apply(Changes.of(cluster), now)
    return picture, deriver.memory()


class Deriver:
    """The derived state of a cluster."""

    def __init__(self, rules: Rules, memory: Memory | None = None) -> None:
        """Begin with an empty cluster, and with what was remembered before."""
        memory = memory or Memory()
        self._rules = rules
        self._at = memory.at
        self._components = Components()
        self._nodes: dict[str, Node] = {}
        self._lost_from: dict[str, float] = {}
        self._queues: dict[tuple[str, str], str] = {}
        self._ledger = NodeLedger(rules)
        self._topology = TopologyLedger(rules, self._ledger)
        self._quota = QuotaBook(rules)
        self._rooms = Rooms()
        self._judge = Judge(self._rooms)
        self._kueue = KueueObjects()
        self._history = History(rules)
        #: What was told in events.
        self.teller = Teller(rules.grace)
        #: Gangs that were drawn before, and not yet in this run.
        self._gone: set[Key] = set()
        self._scheduler: SchedulerCount | None = None
        self._watch = Watch(rules)
        books = self._watch.activity, self._watch.throughput, self._watch.prices
        self._context = Context(rules, {}, self._lost_from, frozenset(), self._queues, frozenset(), *books)
        self._changes = Changes()
        self._waiters = Waiters(rules)
        self._told = Told(memory)
        #: None until the first reading: also a cluster in which there is nothing was read.
        self._picture: Picture | None = None

    def apply(self, changes: Changes, now: float) -> Picture:
        """Take changes and return the picture at `now`."""
        self._topology.take(changes)
        moved_nodes = self._take_nodes(changes)
        dirty = self._take_objects(changes)
        # What nodes, time or context change may change the class of members that are the same.
        reclassify = self._on_nodes(moved_nodes) | self._told.overdue(now)
        # A clock that went back makes what was drawn for a later time unfounded.
        doubted = self._context.doubted
        seen_anew = self._take_context(changes) or now < self._at
        for component in self._components.within(doubted ^ self._context.doubted):
            dirty[id(component)] = component
        if seen_anew:
            reclassify = {id(component): component for component in self._components}
        self._history.take(changes, self._queues, now)
        for component in reclassify.values():
            component.found = None
        if self._waiters.turned(changes.scheduler):
            dirty |= {id(component): component for component in self._components}
        dirty |= reclassify | self._with_pods({*self._history.rejected, *self._watch.take(changes, now)})
        nodes_changed = self._ledger.refresh()
        room = self._rooms.version
        self._rooms.refresh(nodes_changed, self._ledger.allocated, now)
        count_changed, self._scheduler = changes.scheduler != self._scheduler, changes.scheduler
        figures_changed = self._topology.refresh(nodes_changed) | self._quota.take(changes)
        removed = self._components.take_removed()
        stale, fresh = set[Key](), set[Key]()
        for component in removed:
            dirty.pop(id(component), None)
            self._waiters.forget(component)
            stale |= self._withdraw(component)
        for component in dirty.values():
            self._sort(component, now)
        moved = room != self._rooms.version or self._judge.behind
        moved |= bool(nodes_changed) or count_changed or figures_changed
        redraw = self._picture is None or bool(seen_anew or dirty or removed or moved)
        if redraw:
            dirty |= self._waiters.settle(changes.scheduler, None if self._context.nodes is None else self._ledger)
            for component in dirty.values():
                before = () if id(component) in reclassify else component.drawn.views
                stale |= self._withdraw(component)
                fresh |= self._draw(component, now, before)
        turned = self._judge_headway(dirty, stale, fresh, now)
        if self._picture is None or redraw or turned:
            self._told.forget(stale - fresh)
            self._history.gone(self._gone, now)
            self.teller.gone(self._gone)
            self._gone.clear()
            # What the scheduler holds for waiters is known by now.
            self._rooms.refresh((), self._ledger.allocated, now)
            self._picture = self._assemble(now)
        elif self._watch.on:
            self._picture.unobservable = self._unobservable()
        self._picture.headway = self._watch.headway if self._picture.pods_known else {}
        self._picture.happened = self._history.happened()
        self._picture.notes = self._notes(changes, now)
        self._picture.now = self._at = now
        return self._picture

    def _judge_headway(self, drawn: Container[int], stale: set[Key], fresh: set[Key], now: float) -> bool:
        """Judge how gangs get on, by the members that they have now; draw those again that stall, or do not any more.

        `drawn` are the components that were drawn in this run. Returns whether there are such gangs.
        """
        turned = self._watch.judge()
        for component in turned.values():
            before = component.drawn.views
            stale |= self._withdraw(component)
            fresh |= self._draw(component, now, before, again=id(component) in drawn)
        return bool(turned)

    def _notes(self, changes: Changes, now: float) -> list[Note]:
        """Return what is worth an event."""
        picture = self._picture
        if picture is None or not picture.pods_known:
            return []
        deadlocked = picture.verdicts.deadlocked
        names = {view.key: f"{view.queue.namespace}/{view.name}" for view in picture.views if view.key in deadlocked}
        levels = {level for topology in self._context.kueue.topologies.values() for level in topology.levels}
        return [
            *self.teller.deadlock(names if deadlocked else {}, now),
            *self.teller.due(now),
            *picture.happened.gangs,
            *unlabelled(changes.nodes, levels, now),
        ]

    def memory(self) -> Memory:
        """Return what is remembered of all gangs."""
        return self._told.memory(self._at)

    def seen(self) -> Seen:
        """Return the cluster as it was last seen, from which gangs are shown from near; until the next `apply`."""
        seen = Seen(self._picture or Picture(now=self._at), self._context.kueue, self._rooms.fits)
        for component in self._components:
            for gang, (classes, _) in zip(
                component.found.gangs if component.found else (), component.settled, strict=True
            ):
                seen.gangs[gang.key] = gang, classes, self._judge.case(gang.key)
        return seen

    # --- taking changes ----------------------------------------------------------------------------------------------

    def _take_nodes(self, changes: Changes) -> set[str]:
        """Take nodes and flavors; return the nodes whose loss, return, place or price touches the pods on them."""
        moved, look_of, price_of = set(), self._topology.places.look_of, self._watch.prices.look_of
        for old, new in changes.nodes:
            name = (new or old).name  # type: ignore[union-attr] # one of the two is there
            self._lost_from.pop(name, None)
            if new is None:
                self._nodes.pop(name, None)
            else:
                self._nodes[name] = new
                turns_lost = lost_at(new, self._rules.grace)
                if turns_lost is not None:
                    self._lost_from[name] = turns_lost
            self._ledger.take_node(name, new)
            self._rooms.take_node(name, new)
            same = readiness(old) == readiness(new) and look_of(old) == look_of(new) and price_of(old) == price_of(new)
            if not same:
                moved.add(name)
        if changes.flavors:
            self._ledger.take_flavors(changes.flavors)
        return moved

    def _take_objects(self, changes: Changes) -> dict[int, Component]:
        touched: dict[int, Component] = {}
        for old, new in changes.pods:
            self._take_pod(old, new, touched)
        for old_group, new_group in changes.pod_groups:
            for group, here in ((old_group, False), (new_group, True)):
                if group:
                    component = self._touch(group.namespace, (group.name,), touched)
                    put(component.pod_groups, (group.engine, group.name), group if here else None)
        for old_workload, new_workload in changes.workloads:
            for workload, here in ((old_workload, False), (new_workload, True)):
                if workload:
                    component = self._touch(workload.namespace, workload.names, touched)
                    put(component.workloads, workload.name, workload if here else None)
        for old_job, new_job in changes.jobs:
            for job, here in ((old_job, False), (new_job, True)):
                if job:
                    component = self._touch(job.namespace, (job.name,), touched)
                    put(component.jobs, job.name, job if here else None)
        for component in touched.values():
            self._components.forget_if_empty(component)
        return touched

    def _take_pod(self, old: Pod | None, new: Pod | None, touched: dict[int, Component]) -> None:
        self._ledger.take_pod(old, new)
        self._rooms.take_pod(old, new)
        self._waiters.traces.take_pod(old, new)
        if old and (new is None or old.ties is not new.ties):
            self._touch(old.namespace, names_of_pod(old), touched).pods.pop(old.name, None)
        if new:
            self._touch(new.namespace, names_of_pod(new), touched).pods[new.name] = new

    def _touch(self, namespace: str, names: Iterable[str], touched: dict[int, Component]) -> Component:
        component = self._components.of(namespace, names)
        touched[id(component)] = component
        return component

    def _on_nodes(self, names: set[str]) -> dict[int, Component]:
        if not names:
            return {}
        return {
            id(component): component
            for component in self._components
            if any(pod.node in names for pod in component.pods.values())
        }

    def _with_pods(self, names: Collection[tuple[str, str]]) -> dict[int, Component]:
        """Find the components of pods that may be the same, and of which something is told."""
        wanted: dict[str, set[str]] = {}
        for namespace, name in names:
            wanted.setdefault(namespace, set()).add(name)
        return {
            id(component): component
            for component in (self._components if wanted else ())
            if not component.pods.keys().isdisjoint(wanted.get(component.namespace, ()))
        }

    def _take_context(self, changes: Changes) -> bool:
        """Take what every component is seen against; tell whether it changed."""
        rerouted = False
        for old, new in changes.local_queues:
            queue = new or old
            if queue is None:
                continue
            key = queue.namespace, queue.name
            route = self._queues.pop(key, None)
            if new:
                self._queues[key] = new.cluster_queue
            rerouted |= route != self._queues.get(key)
        read = "nodes" not in changes.unread
        context = Context(
            self._rules,
            self._nodes if read else None,
            self._lost_from if read else {},
            frozenset(name for _, name in changes.unreadable.get("nodes", ())),
            self._queues,
            known_gang_schedulers(self._rules, changes.scheduler),
            self._watch.activity,
            self._watch.throughput,
            self._watch.prices,
            workloads_known=changes.unread.get(WORKLOADS, NOT_INSTALLED) == NOT_INSTALLED,
            nodes_in_step="nodes" not in changes.behind,
            places=self._topology.places,
            kueue=self._kueue.take(changes),
            doubted=frozenset(namespace for namespace, _ in changes.unreadable.get("pods", ())),
        )
        before = self._context
        changed = (
            rerouted
            or before.kueue is not context.kueue
            or (before.nodes is None) != (context.nodes is None)
            or before.unreadable_nodes != context.unreadable_nodes
            or before.schedulers != context.schedulers
            or before.places is not context.places
            or self._changes.unread != changes.unread
            or self._changes.behind != changes.behind
            or _but_pods(self._changes.unreadable) != _but_pods(changes.unreadable)
        )
        self._context = context
        self._changes = Changes(unread=changes.unread, unreadable=changes.unreadable, behind=changes.behind)
        return changed

    # --- deriving ----------------------------------------------------------------------------------------------------

    def _sort(self, component: Component, now: float) -> None:
        """Find the gangs of a component and the class of each member, before Permit waiters are settled."""
        cluster = Cluster(
            # The order in which pods became known must change nothing.
            pods=sorted(component.pods.values(), key=lambda pod: pod.name),
            jobs=tuple(component.jobs.values()),
            pod_groups=tuple(component.pod_groups.values()),
            workloads=sorted(component.workloads.values(), key=lambda workload: workload.name),
            unread=self._changes.unread,
            unreadable=self._changes.unreadable,
            behind=self._changes.behind,
        )
        known = {
            gang.key: (gang.members, classes)
            for gang, classes in zip(component.found.gangs if component.found else (), component.classes, strict=False)
        }
        component.found = membership(cluster, self._rules)
        component.classes = [classes_of(gang, self._context, now, known) for gang in component.found.gangs]
        component.settled = [(classes, False) for classes in component.classes]
        self._waiters.register(component)

    def _draw(self, component: Component, now: float, before: tuple[GangView, ...], *, again: bool = False) -> set[Key]:
        """Tell what is to be told of a component; return the gangs that are remembered for it.

        `again`: it was drawn in this run already, and what happened was told.
        """
        if component.found is None:
            return set()
        candidates = [
            Candidate(gang, *settled) for gang, settled in zip(component.found.gangs, component.settled, strict=True)
        ]
        memory = self._told.before(self._at)
        drawn, moments = draw(component.found, candidates, self._context, memory, now, before)
        self._judge.add(drawn.waits)
        if not again:
            self._history.draw(moments, now)
            self.teller.see(moments)
        self._watch.draw(component, drawn.runners)
        # One whose state cannot be known is still there.
        self._gone -= {view.key for view in drawn.views}
        self._quota.hold(drawn.without_pods)
        return self._told.add(component, drawn)

    def _withdraw(self, component: Component) -> set[Key]:
        """Take back what was told of a component; return the gangs that were remembered for it."""
        drawn = self._told.take_back(component)
        if drawn is None:
            return set()
        self._judge.take_back(drawn.waits)
        self._watch.withdraw(drawn.runners)
        self._gone |= {view.key for view in drawn.views}
        self._quota.hold(drawn.without_pods, -1)
        return drawn.keys

    def _assemble(self, now: float) -> Picture:
        unread = self._changes.unread
        nodes_read, pods_read = "nodes" not in unread, "pods" not in unread
        told = self._told
        return Picture(
            now=now,
            views=told.views.values() if pods_read else (),
            summary=told.summary if pods_read else Summary(),
            gpus=told.gpus if pods_read else Gpus(),
            nodes=self._ledger.totals() if nodes_read else None,
            free_known=nodes_read and pods_read,
            pods_known=pods_read,
            unobservable=self._unobservable(),
            workloads=self._told_workloads(unread),
            layouts=self._topology.figures() if nodes_read else None,
            quotas=self._quota.quotas(self._changes, self._topology),
            needed=self._topology.needed,
            verdicts=self._judge.verdicts(now, nodes_known=nodes_read) if pods_read else Verdicts(),
        )

    def _unobservable(self) -> dict[tuple[str, str], int]:
        of_nodes = self._topology.unobservable(nodes_read="nodes" not in self._changes.unread)
        if "pods" in self._changes.unread:
            return dict(of_nodes)
        told = self._told
        running = sum(number for (_, state), number in told.summary.states.items() if state == "running")
        found = self._watch.unobservable(told.unobservable, running)
        for schedulers, number in told.hidden.items():
            if number and not all(map(self._waiters.traces.left_by, schedulers)):
                found["permit", "no_trace"] += number
        return {**found, **of_nodes}

    def _told_workloads(self, unread: Mapping[str, str]) -> Workloads | None:
        if WORKLOADS in unread:
            return None
        known = self._told.workloads
        # How far they are is written on them; that one has no pods takes the pods to say.
        return known if "pods" not in unread else Workloads(known.stages, known.clocks)


def _but_pods(unreadable: Mapping[str, frozenset[tuple[str, str]]]) -> dict[str, frozenset[tuple[str, str]]]:
    """Return the unreadable objects that all others are seen against; a pod is in no other namespace."""
    return {source: names for source, names in unreadable.items() if source != "pods"}
