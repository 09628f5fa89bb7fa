# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The simulated cluster obeys the laws of a real one, in every scenario, at every moment; its seed is its fate."""

from collections import Counter

import orjson
import pytest

from lab.apiserver import ApiServer
from lab.simulation.scenario import known, load, parse
from lab.simulation.scheduler import go_duration
from lab.simulation.state import RACK, Job, Node
from lab.simulation.topology import place
from lab.simulation.values import ScenarioError
from lab.simulation.world import World

#: Seconds from look to look.
LOOK = 10.0

CLUSTER = """
about: a test
lasts: 1h
before: 10m
cluster:
  name: test
  topology: {topology}
  pools: [{{name: h100, blocks: 2, racks: 2, nodes: 2}}]
  queues: [{{name: team, quota: {{h100: 64}}, preempts: true}}]
  priorities: {{low: 1, high: 9}}
  kueue: {{pods_ready_timeout: 2h}}
  scheduler: {{tries_again_after: 2h}}
"""


def world(text: str, *, topology: str = '""') -> World:
    """Return the world of a cluster of eight nodes with eight GPUs, in four racks."""
    return World(parse(CLUSTER.format(topology=topology) + text, "test"))


def at(one: World, seconds: float) -> World:
    """Let a world live until so many seconds after its start."""
    one.run_until(one.start + seconds)
    return one


# --- laws ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", known())
def test_the_laws_hold_at_every_moment(name):
    """No GPU twice, no quota exceeded, gangs bound whole, domains kept, counters that add up."""
    scenario = load(name)
    one = World(scenario)
    least = {queue.name: dict(queue.quota) for queue in one.cluster_queues.values()}
    for number in range(int((scenario.before + scenario.lasts) // LOOK)):
        one.run_until(one.start - scenario.before + number * LOOK)
        for node in one.nodes.values():
            assert node.used <= node.gpus
            assert all(pod.node is node and pod.live for pod in node.pods)
            assert all(pod.reserved is node and pod.node is None for pod in node.reserved)
        for queue in one.cluster_queues.values():
            for flavor, quota in queue.quota.items():
                held = sum(w.gpus for w in one.kueue.in_queue(queue.name) if w.holds_quota and w.flavor == flavor)
                assert held <= max(quota, least[queue.name][flavor])
        for job in one.jobs_there():
            _job_laws(one, job)
        scheduler = one.scheduler
        assert scheduler.entered - sum(scheduler.ended.values()) == len(scheduler.waiting())


def _job_laws(one: World, job: Job) -> None:
    live = [pod for pod in job.pods.values() if pod.live]
    bound = [pod for pod in live if pod.node is not None]
    assert len(live) <= job.size
    if job.group and not job.ran and not job.suspended and not any(pod.deletion for pod in job.members):
        # Before it has run, Coscheduling binds what its PodGroup demands, or none.
        assert not bound or len(bound) >= job.group.least
    if job.works:
        assert len(bound) + job.done >= job.size
    workload = job.workload
    if workload and workload.domains:
        given = dict(workload.domains)
        taken = Counter(pod.node.name for pod in bound if pod.node and pod.deletion is None)
        assert all(number <= given.get(node, 0) for node, number in taken.items())
        how, level = job.level or ("", "")
        if how == "required":
            # The label may have been taken from the node since, or have become another one.
            changed = [node for fault in one.scenario.faults if fault.relabel for node in fault.relabel.nodes]
            labels = {one.nodes[node].labels.get(level) for node in given.keys() - changed if node in one.nodes}
            assert len(labels - {None}) <= 1


def test_a_scenario_has_one_history():
    """The same file gives the same objects, to the byte, and the same story."""

    def history() -> tuple[bytes, list[tuple[float, str]]]:
        one = at(World(load("healthy-day")), 5400)
        with ApiServer(clock=lambda: one.now) as server:
            one.show(server)
            shown = {kind: server.store.all(kind) for kind in server.kinds}
        return orjson.dumps(shown), one.story

    assert history() == history()


# --- scenario files --------------------------------------------------------------------------------------------------

JOB = "jobs: [{name: a, queue: team, pods: 2, at: 0s, lasts: 1h}]\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("jbos: []", "test: unknown key `jbos`; did you mean `jobs`?"),
        ("jobs: [{name: a, queue: team, pods: 2, at: 0s, lassts: 1h}]", "unknown key `lassts`; did you mean `lasts`?"),
        ("jobs: [{name: a, queue: team, pods: 2, at: 0s}]", "test.jobs[0]: `lasts` is missing"),
        ("jobs: [{name: a, queue: teem, pods: 2, at: 0s, lasts: 1h}]", "there is no `teem`; did you mean `team`?"),
        ("jobs: [{name: a, queue: team, pods: two, at: 0s, lasts: 1h}]", "test.jobs[0].pods: 'two' is no whole number"),
        ("jobs: [{name: a, queue: team, pods: 2, at: soon, lasts: 1h}]", "'soon' is no duration"),
        ("jobs: [{name: a, queue: team, pods: 2, at: 0s, lasts: 1h, place: {required: room}}]", "is not required or"),
        ("jobs: [{name: a, queue: team, pods: 2, at: 0s, lasts: 1h, place: {required: rack}}]", "place of a"),
        (JOB + "faults: [{at: 1m, crash: b/0}]", "fault crash: there is no `b`"),
        (JOB + "faults: [{at: 1m, node_lost: h100-b0-r0-n7}]", "did you mean `h100-b0-r0-n1`?"),
        (
            JOB + "faults: [{at: 1m, relabel: {nodes: h100-b0-r0-n7, level: rack, to: r1}}]",
            "fault relabel: there is no",
        ),
        (JOB + "faults: [{at: 1m, pods_refused: teem}]", "there is no `teem`; did you mean `team`?"),
        (JOB + "faults: [{at: 1m}]", "a fault has exactly one of"),
        (JOB + "faults: [{at: 1m, crash: a/0, idle: [a]}]", "a fault has exactly one of"),
        (JOB + JOB.replace("jobs: [", "pods: [").replace("queue: team, pods: 2", "namespaces: x"), "`namespace`?"),
        ("jobs: [", "test: while parsing"),
    ],
)
def test_a_file_that_says_nonsense_is_refused(text, said):
    """The error names the place, and what comes nearest."""
    with pytest.raises(ScenarioError) as error:
        world(text)
    assert said in str(error.value)


def test_there_is_no_such_scenario():
    """The error names the nearest one."""
    with pytest.raises(ScenarioError, match="did you mean healthy-day"):
        load("healthy-dya")


# --- single doubles, by hand -----------------------------------------------------------------------------------------


def test_a_job_goes_through_its_life():
    """Submitted, admitted, its pods bound, Ready, at work for its time, done, and gone when it was kept long enough."""
    one = at(world("jobs: [{name: a, queue: team, pods: 4, at: 0s, lasts: 10m, kept: 2m}]"), 60)
    job = one.all_jobs["a"]
    workload = job.workload
    assert workload is not None
    assert job.works
    assert {pod.phase for pod in job.pods.values()} == {"Running"}
    assert workload.conditions.is_true("PodsReady")
    began = job.working_since or 0.0
    # All its pods have ended within three seconds of the end of its work.
    at(one, began - one.start + 603.5)
    assert {pod.phase for pod in job.pods.values()} == {"Succeeded"}
    assert workload.finished
    assert workload.conditions.is_true("Admitted")
    assert all(node.used == 0 for node in one.nodes.values())
    at(one, began - one.start + 603.5 + 120)
    assert job.gone
    assert one.kueue.workloads == {}
    assert one.pods == {}


def test_kueue_preempts_for_priority_and_queues_the_victim_again():
    """Six nodes are taken by the lower one; the higher needs four of the eight. The victim had run, and runs again."""
    one = world(
        """
jobs:
  - {name: low, queue: team, pods: 6, at: 0s, lasts: 1h, priority: low}
  - {name: high, queue: team, pods: 4, at: 5m, lasts: 5m, priority: high}
"""
    )
    low = at(one, 299).all_jobs["low"]
    assert low.works
    workload = low.workload
    assert workload is not None
    at(one, 300.2)
    assert workload.conditions.reason("Evicted") == "Preempted"
    high = one.all_jobs["high"].workload
    assert high is not None
    assert high.conditions.reason("QuotaReserved") == "WaitingForPreemptedWorkloads"
    at(one, 360)
    assert high.conditions.is_true("PodsReady")
    assert workload.conditions.reason("QuotaReserved") == "WaitingForQuota"
    assert workload.conditions.is_true("Requeued")
    at(one, 900)
    assert low.works
    assert workload.evictions == {("Preempted", ""): 1}
    assert workload.conditions.reason("Evicted") == "QuotaReserved"


def test_a_gang_that_lacks_one_member_of_ten_waits_in_permit_and_goes_round():
    """Seven of eight nodes hold two members each, so that one of 15 finds no node.

    The first wait of each is shown by a nomination; a timeout rejects all, and they wait again at once.
    """
    one = world(
        """
jobs: [{name: g, queue: team, pods: 15, gpus: 4, at: 0s, lasts: 1h, gang: true, permit_timeout: 60s}]
pods: [{name: notebook, namespace: x, at: -5m, lasts: 3h}]
"""
    )
    job = at(one, 30).all_jobs["g"]
    waiting = [pod for pod in job.pods.values() if pod.reserved]
    assert len(waiting) == 14
    assert all(pod.nominated == (pod.reserved.name if pod.reserved else "") for pod in waiting)
    assert all(not pod.conditions.all for pod in waiting)
    left = next(pod for pod in job.pods.values() if not pod.reserved)
    assert "8 Insufficient nvidia.com/gpu. no new claims" in left.conditions.all["PodScheduled"]["message"]
    assert one.scheduler.entered == 14
    at(one, 70)
    texts = Counter(
        str(pod.conditions.all["PodScheduled"]["message"])[:45] for pod in job.pods.values() if pod.conditions.all
    )
    assert texts["0/1 nodes are available: 1 rejected due to ti"] == 1
    assert sum(bool(pod.reserved) for pod in job.pods.values()) == 14
    assert one.scheduler.ended["Unschedulable"] == 14
    assert one.scheduler.entered == 28


def test_a_small_gang_that_lacks_a_member_is_rejected_at_once():
    """Four members and three nodes: nobody waits, nothing is held, and new room brings it up."""
    one = world(
        """
jobs: [{name: g, queue: team, pods: 4, at: 0s, lasts: 1h, gang: true}]
pods: [{name: n0, namespace: x, at: -5m, lasts: 15m}, {name: n1, namespace: x, at: -5m, lasts: 3h},
       {name: n2, namespace: x, at: -5m, lasts: 3h}, {name: n3, namespace: x, at: -5m, lasts: 3h},
       {name: n4, namespace: x, at: -5m, lasts: 3h}]
"""
    )
    job = at(one, 30).all_jobs["g"]
    assert one.scheduler.waiting() == []
    messages = [str(pod.conditions.all["PodScheduled"]["message"]) for pod in job.pods.values()]
    assert sum("gets rejected due to Pod" in text for text in messages) >= 1
    assert any("optimistic rejection in PostFilter" in text for text in messages)
    at(one, 660)
    assert job.works


def test_the_default_scheduler_binds_what_it_can():
    """Ten pods, eight nodes: eight are bound, and hold their GPUs in vain."""
    one = at(world(JOB.replace("pods: 2", "pods: 5, gpus: 8") + "pods: [" + ", ".join(
        f"{{name: n{n}, namespace: x, at: -5m, lasts: 3h}}" for n in range(5)) + "]"), 60)  # fmt: skip
    job = one.all_jobs["a"]
    assert sum(pod.node is not None for pod in job.pods.values()) == 3
    assert not job.works


def test_topology_takes_the_smallest_rack_that_holds_all():
    """Of racks with 2, 1 and 2 free nodes, one pod goes to the second; three pods fit in none, and Kueue says so."""
    one = world(JOB, topology="dc")
    flavor = one.flavors["h100"]
    nodes = sorted(one.nodes.values(), key=lambda node: node.name)
    free: dict[Node, int] = dict.fromkeys(nodes, 8)
    free[nodes[2]] = 0
    job = Job("team", "j", "uid", 0.0, 1, 8, 60.0, level=("required", RACK))
    assert place(job, flavor, free).domains == ((nodes[3].name, 1),)
    job.size = 3
    assert place(job, flavor, free).refused == (
        'topology "dc" allows to fit only 2 out of 3 pod(s). Total nodes: 8; excluded: resource "nvidia.com/gpu": 1'
    )
    job.level = ("preferred", RACK)
    # Both racks of a block together: the block with three free nodes leaves none over.
    assert {host[:7] for host, _ in place(job, flavor, free).domains} == {"h100-b0"}


@pytest.mark.parametrize(("seconds", "text"), [(15, "15s"), (60, "1m0s"), (300, "5m0s"), (3661, "1h1m1s")])
def test_durations_are_printed_as_go_does(seconds, text):
    """In the text of a Permit timeout."""
    assert go_duration(seconds) == text


def test_a_node_that_falls_silent_loses_its_pods_after_five_minutes():
    """NotReady within 50 s, evicted 300 s later; the pod stays Terminating, and another one takes its place."""
    one = world(JOB + "faults: [{at: 2m, node_lost: h100-b0-r0-n0, until: 20m}]")
    job = at(one, 119).all_jobs["a"]
    node = one.nodes["h100-b0-r0-n0"]
    lost = next(pod for pod in job.pods.values() if pod.node is node)
    at(one, 171)
    assert node.conditions.status("Ready") == "Unknown"
    assert [taint["effect"] for taint in node.taints] == ["NoSchedule", "NoExecute"]
    assert lost.conditions.status("Ready") == "False"
    assert "DisruptionTarget" not in lost.conditions.all
    at(one, 475)
    assert lost.deletion is not None
    assert lost in node.pods
    at(one, 520)
    assert job.works
    assert job.pods[lost.index] is not lost
    at(one, 1210)
    assert lost not in node.pods
    assert node.ready
