"""What kubelet's topology manager refused is remembered for that demand and node, for five minutes, once a pod, and never for more than a bounded number."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cluster import Cluster, RefusedPod
from extender.cluster import kubelet_refusals as module
from extender.cluster.kubelet_refusals import MOST, REMEMBERED
from extender.demand import Shape, read_demand
from extender.placement import Placement
from extender.reasons import Refusal
from extender.sample_machines import sample
from tests.builders import Clock, PodBuilder, pod

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
NODES = ("node-a", "node-b")
FIVE_MINUTES_S = REMEMBERED.total_seconds()


def shape(asked: PodBuilder) -> Shape:
    return read_demand(asked.build(), "nvidia.com/gpu").shape


PAIR, QUAD, TIED = shape(pod().gpus(2)), shape(pod().gpus(4)), shape(pod().gpus(2).annotated(numa="single"))


@dataclass
class Scene:
    """Two empty nodes, and a time that only a test moves."""

    clock: Clock
    cluster: Cluster
    placement: Placement

    @property
    def now(self) -> datetime:
        return START + timedelta(seconds=self.clock.now)

    def refuse(self, asked: Shape, node: str, name: str, ago_s: float = 0.0) -> None:
        self.cluster.kubelet_refusals.note(asked, RefusedPod(name, f"default/{name}", node, None), self.now - timedelta(seconds=ago_s), self.now)

    def open_to(self, asked: Shape) -> list[str]:
        """The nodes that filter would name."""
        view = self.cluster.view()
        code = self.placement.fits(asked, view).code
        return [node for node in NODES if code[view.row_of[node]] == Refusal.FITS]


def scene() -> Scene:
    clock = Clock(0.0)
    cluster = Cluster("nvidia.com/gpu", clock)
    for node in NODES:
        cluster.apply_topology(sample("dgx1v", node).to_object())
    return Scene(clock, cluster, Placement())


def test_the_node_is_closed_to_that_demand_alone_and_opens_after_five_minutes() -> None:
    """A pod that asks for less, or for one NUMA node, is another demand."""
    found = scene()
    found.refuse(PAIR, "node-a", "p")
    assert (found.open_to(PAIR), found.open_to(QUAD), found.open_to(TIED)) == (["node-b"], [*NODES], [*NODES])
    found.clock.now = FIVE_MINUTES_S - 0.001
    assert found.open_to(PAIR) == ["node-b"]
    found.clock.now = FIVE_MINUTES_S
    assert found.open_to(PAIR) == [*NODES]
    assert len(found.cluster.kubelet_refusals) == 0


def test_every_way_to_ask_says_the_same() -> None:
    """Filter, bind and explain look at one node or at all."""
    found = scene()
    found.refuse(PAIR, "node-a", "p")
    view = found.cluster.view()
    row = view.row_of["node-a"]
    assert found.placement.place(PAIR, view, row) is None
    assert found.placement.refusal(PAIR, view, row) is Refusal.KUBELET_REFUSED
    assert found.placement.place(QUAD, view, row) is not None
    assert found.placement.numbers(PAIR, view, row).refused_by_kubelet == ("default/p", START + REMEMBERED)


def test_another_reason_is_told_first() -> None:
    """Why nobody like it fits now, not what was tried before."""
    found = scene()
    found.refuse(PAIR, "node-a", "p")
    found.cluster.apply_pod(pod("full").holding("node-a", *[gpu.uuid for gpu in sample("dgx1v", "node-a").spec.gpus]).build())
    view = found.cluster.view()
    assert found.placement.refusal(PAIR, view, view.row_of["node-a"]) is Refusal.NOT_ENOUGH_FREE


def test_a_view_of_before_keeps_what_it_said() -> None:
    found = scene()
    before = found.cluster.view()
    found.refuse(PAIR, "node-a", "p")
    during = found.cluster.view()
    found.clock.now = FIVE_MINUTES_S
    after = found.cluster.view()
    assert [len(view.kubelet_refusals) for view in (before, during, after)] == [0, 1, 0]
    assert before.generation < during.generation < after.generation, "whoever waits is woken, whoever remembers looks again"


def test_a_pod_that_is_told_again_changes_nothing() -> None:
    """By a resync of the list, or by a status that changes afterwards; also once its time is over, whatever the clock of its node says."""
    found = scene()
    found.refuse(PAIR, "node-a", "p")
    found.clock.now = 200.0
    found.refuse(PAIR, "node-a", "p")
    found.clock.now = FIVE_MINUTES_S
    assert found.open_to(PAIR) == [*NODES]
    found.refuse(PAIR, "node-a", "p", ago_s=-600.0)
    assert found.open_to(PAIR) == [*NODES]


def test_another_pod_of_that_demand_keeps_the_node_closed_for_longer() -> None:
    """One that was bound before the first was refused, say; an earlier one that is told late does not shorten it."""
    found = scene()
    found.refuse(PAIR, "node-a", "p")
    found.clock.now = 200.0
    found.refuse(PAIR, "node-a", "q")
    found.refuse(PAIR, "node-a", "r", ago_s=100.0)
    found.clock.now = FIVE_MINUTES_S
    assert found.open_to(PAIR) == ["node-b"]
    found.clock.now = 200.0 + FIVE_MINUTES_S
    assert found.open_to(PAIR) == [*NODES]


@pytest.mark.parametrize(("ago_s", "closed"), [(0.0, True), (299.0, True), (300.0, False), (86_400.0, False), (-30.0, True)])
def test_after_a_start_what_happened_lately_counts_for_the_rest_of_its_time(ago_s: float, closed: bool) -> None:
    """A list shows pods that failed long ago as well; one of the future (clocks differ) counts as one of now."""
    found = scene()
    found.refuse(PAIR, "node-a", "p", ago_s)
    assert found.open_to(PAIR) == (["node-b"] if closed else [*NODES])
    found.clock.now = FIVE_MINUTES_S - max(ago_s, 0.0)
    assert found.open_to(PAIR) == [*NODES]


def test_a_node_of_which_nothing_is_known_does_no_harm() -> None:
    """Its GPUTopology may come later, or never."""
    found = scene()
    found.refuse(PAIR, "node-z", "p")
    assert found.open_to(PAIR) == [*NODES]
    found.cluster.apply_topology(sample("dgx1v", "node-z").to_object())
    view = found.cluster.view()
    assert found.placement.refusal(PAIR, view, view.row_of["node-z"]) is Refusal.KUBELET_REFUSED


def test_beyond_the_bound_the_one_that_ends_first_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST == 1000
    monkeypatch.setattr(module, "MOST", 2)
    found = scene()
    for name, (asked, node) in enumerate([(PAIR, "node-a"), (QUAD, "node-a"), (PAIR, "node-b")]):
        found.clock.now += 1
        found.refuse(asked, node, str(name))
    assert (found.open_to(PAIR), found.open_to(QUAD)) == (["node-a"], ["node-b"])
    assert len(found.cluster.kubelet_refusals) == 2


events = st.lists(
    st.tuples(
        st.sampled_from([PAIR, QUAD]),
        st.sampled_from(NODES),
        st.integers(0, 6),  # which pod
        st.sampled_from([0.0, 1.0, 100.0, 299.0, 400.0]),  # seconds that have passed since the last event
        st.sampled_from([0.0, 50.0, 350.0]),  # how long ago kubelet says that it was
    ),
    max_size=25,
)


@given(events)
def test_whatever_comes_in_whatever_order_each_pod_closes_its_node_for_five_minutes_from_its_first_telling(
    told: list[tuple[Shape, str, int, float, float]],
) -> None:
    """An oracle that keeps every telling: the first one of a pod that was not over by then counts, until its own end."""
    found = scene()
    ends: dict[int, tuple[Shape, str, float]] = {}
    for asked, node, name, passed_s, ago_s in told:
        found.clock.now += passed_s
        found.refuse(asked, node, str(name), ago_s)
        if name not in ends and ago_s < FIVE_MINUTES_S:
            ends[name] = (asked, node, found.clock.now + FIVE_MINUTES_S - ago_s)
        for one in (PAIR, QUAD):
            closed = {at for which, at, end in ends.values() if which == one and end > found.clock.now}
            assert found.open_to(one) == [each for each in NODES if each not in closed]
