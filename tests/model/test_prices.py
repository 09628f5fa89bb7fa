# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What idle GPUs cost: one scenario by hand, prices by label and resource, and what has none."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datadog_checks.kueue_gang.derive.picture import Queue
from datadog_checks.kueue_gang.derive.prices import Prices
from datadog_checks.kueue_gang.derive.spent import Meter, Spent
from datadog_checks.kueue_gang.facts.nodes import Labels
from tests.model.build import GPU, LONE, NO_GPU, TEAM, node, of_group, pod_group, ready, terminating, unscheduled
from tests.model.test_laws import MIG
from tests.model.watched import Watched, beats, running

QUEUE = Queue(TEAM, "none", "none", "coscheduling")
POOL = "cloud.example/pool"
#: An H100 of a reservation costs 2.50 an hour, one on demand 6.98, a MIG slice 0.40.
PRICES = ((f"{POOL}=reserved", 2.5), (GPU, 6.98), (MIG, 0.4))
RESERVED = tuple(node(f"n{rank}", labels={POOL: "reserved"}) for rank in (0, 1))


def cost(found: Spent) -> dict[tuple[str, str], float]:
    """Return what was spent by resource and reason."""
    assert {queue for queue, _, _ in found.cost} <= {QUEUE}
    return {(resource, reason): amount for (_, resource, reason), amount in found.cost.items()}


def test_one_scenario() -> None:
    """Two reserved nodes, one on demand; a gang that waits for its third member, and one that does nothing for a while.

    The first holds 2 x 8 reserved GPUs, which are idle: 16 x 2.50 = 40.00 an hour. In the second, which holds 8 GPUs on
    demand and 8 reserved ones, nothing has run on the former for 10 minutes: 8 x 6.98 = 55.84 an hour. From a run at
    600 to one at 690 that is 90 / 3600 of it: 1.00 and 1.396.
    """
    half = pod_group("half", 3, created=7260)
    members = [ready(f"half-{rank}", of_group("half"), f"n{rank}", since=7200, created=7260) for rank in (0, 1)]
    rest = unscheduled("half-2", of_group("half"), NO_GPU, created=7260)
    group, reserved, demand = running("train", 2)
    demand["spec"]["nodeName"] = "n2"
    objects = (*RESERVED, half, *members, rest, group, reserved, demand)
    watched, meter = Watched(*objects, prices=PRICES, activity=True, inactive_after=600), Meter(45)
    spent = Spent()
    for at in range(0, 691, 30):
        samples = [*beats("train-0", at, busy=range(8)), *beats("train-1", at)]
        if at in {0, 600, 690}:
            spent = meter.read(watched.run(at, beats=samples).picture, 5000 + at)
        else:
            watched.run(at, beats=samples)
    assert cost(spent) == pytest.approx({(GPU, "partial"): 1.0, (GPU, "inactive"): 1.396})
    assert {reason: amount for (_, _, reason), amount in spent.idle.items()} == {"partial": 1440, "inactive": 720}


def test_the_node_label_wins_in_the_order_given() -> None:
    """Then the resource; what nothing fits has no price."""
    prices = Prices((("a=1", 1.0), (GPU, 3.0), ("b=1", 2.0)))

    def on(**labels: str) -> int | None:
        made = Labels({}, ()).plus(labels)
        return prices.look_of(_Node(made))  # type: ignore[arg-type] # only its labels are asked

    assert prices.of(GPU, on(a="1", b="1")) == 1_000_000
    assert prices.of(GPU, on(a="2", b="1")) == 2_000_000
    assert prices.of(GPU, on(a="2")) == 3_000_000
    assert prices.of("amd.com/gpu", on(a="2")) is None
    assert prices.of("amd.com/gpu", on(b="1")) == 2_000_000


class _Node:
    """A node as far as its price goes."""

    def __init__(self, labels: object) -> None:
        self.labels = labels


def test_a_node_that_cannot_be_seen_has_no_price() -> None:
    """Its label might say another one; where no label is asked for it is of no matter."""
    assert Prices(PRICES).of(GPU, Prices(PRICES).on(None, "n0")) is None
    assert Prices(PRICES).of(GPU, Prices(PRICES).on({}, "n0")) is None
    plain = Prices(((GPU, 6.98),))
    assert plain.of(GPU, plain.on(None, "n0")) == 6_980_000


def idle(*nodes: object, resource: str = GPU, prices: tuple[tuple[str, float], ...] = PRICES) -> dict[object, int]:
    """Return what a pod costs an hour that should be gone, on the first node."""
    pod = terminating(ready("old", LONE, "n0", gpus={resource: 2}), began=100, grace=30)
    seen = Watched(*nodes, pod, prices=prices).run(0)  # type: ignore[arg-type]
    assert sum(seen.idle_by_reason(resource).values()) == 2
    return {reason: number for (_, _, reason), number in seen.picture.gpus.idle_price.items()}


def test_pods_of_no_gang_cost_too() -> None:
    """A pod that should be gone; a MIG slice; one without a price costs nothing that could be told."""
    assert idle(node("n0", labels={POOL: "reserved"})) == {"terminating": 5_000_000}
    assert idle(node("n0", labels={POOL: "other"})) == {"terminating": 13_960_000}
    assert idle(node("n0"), resource=MIG) == {"terminating": 800_000}
    assert idle(node("n0"), prices=(("amd.com/gpu", 1.0),)) == {}
    assert idle(node("n0"), prices=()) == {}


def test_a_label_that_changes_changes_the_price() -> None:
    """From the run on that sees it."""
    pod = terminating(ready("old", LONE, "n0", gpus=1), began=100, grace=30)
    watched = Watched(node("n0", labels={POOL: "reserved"}), pod, prices=PRICES)
    assert list(watched.run(0).picture.gpus.idle_price.values()) == [2_500_000]
    assert list(watched.run(15, node("n0"), pod).picture.gpus.idle_price.values()) == [6_980_000]


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 8), st.booleans()), min_size=1, max_size=30))
def test_what_comes_and_goes_leaves_nothing(steps: list[tuple[int, int, bool]]) -> None:
    """The price is that of the pods that are there, to the millionth, whatever came and went; 0 is no entry."""
    there: dict[int, int] = {}
    watched = Watched(*RESERVED, prices=((f"{POOL}=reserved", 2.123457), (GPU, 0.1)))
    for at, (number, gpus, comes) in enumerate(steps):
        there.pop(number, None)
        if comes:
            there[number] = gpus
        pods = [
            terminating(ready(f"p{name}", LONE, f"n{name % 3}", gpus=size), began=100, grace=30)
            for name, size in there.items()
        ]
        found = watched.run(at, *RESERVED, *pods).picture.gpus.idle_price
        right = sum(size * (100_000 if name % 3 == 2 else 2_123_457) for name, size in there.items())
        assert sum(found.values()) == right
        assert all(found.values())
