"""What bind does beside for gpushare's plugin: its annotations in the same write, and a pod assumed for as long as its binding may have taken effect."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from extender.assuming import assume, room_beside_waiting
from extender.binding import Bindings
from extender.cluster import Cluster
from extender.demand import Demand, read_demand
from extender.handoff import gpushare
from extender.placement import Placement
from extender.protocol import BindCall, Binding, BindResult, BindVerdict
from extender.sample_machines import sample
from extender.settings import Settings
from tests.builders import Clock, JsonObject, PodBuilder, demand_of, gpushare_node, pod
from topology.api import AllocatedGpu, Allocation
from topology.api import annotations as keys

GIB = 1024


@dataclass
class ScriptedApi:
    """An API server that answers as it is told, keeps what was posted, and lets a test wait for a POST and hold it back."""

    answer: BindResult = field(default_factory=lambda: BindResult(BindVerdict.BOUND))
    posted: list[Binding] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Event | None = None
    while_reading: Callable[[], object] = lambda: None

    async def bind(self, binding: Binding, timeout_s: float) -> BindResult:
        self.posted.append(binding)
        self.arrived.set()
        if self.gate is not None:
            await self.gate.wait()
        return self.answer

    async def read_pod(self, namespace: str, name: str) -> JsonObject | None:
        self.while_reading()
        return None


class Bench:
    """The bind engine over one node of gpushare's plugin, two GPUs of 8 units unless said otherwise."""

    def __init__(self, answer: BindVerdict = BindVerdict.BOUND, gpus: int = 2, units: int = 8) -> None:
        self.api, self.clock = ScriptedApi(BindResult(answer)), Clock()
        self.cluster = Cluster("nvidia.com/gpu", self.clock)
        self.cluster.apply_node(gpushare_node("a", gpus, units))
        self.bindings = Bindings(self.cluster, Placement(), self.api, Settings(), self.clock)

    async def bind(self, asked: PodBuilder) -> str:
        return (await self.bindings.bind(call_of(asked), demand_of(asked))).error

    def left(self) -> list[int]:
        """GiB left of each GPU, the least first."""
        view = self.cluster.view()
        row = view.row_of["a"]
        return sorted(int(mib) // GIB for mib in view.left[row, : len(view.gpus[row].uuids)])


def call_of(asked: PodBuilder) -> BindCall:
    return BindCall(asked.namespace, asked.name, asked.uid, "a")


FIRST, SECOND = pod("first").units(8), pod("second").units(8)


async def test_the_annotations_of_the_plugin_travel_in_the_binding_beside_the_allocation():
    """One write: no half-written pod, nothing to clean up."""
    table = Bench()
    assert await table.bind(FIRST) == ""
    (posted,) = table.api.posted
    assert set(posted.annotations) == {keys.ALLOCATION, *keys.GPUSHARE_WRITTEN}
    share = gpushare.decode(posted.annotations)
    (gpu,) = Allocation.decode(posted.annotations[keys.ALLOCATION]).containers["main"]
    assert (gpu.uuid, gpu.memory_mib, gpu.shared) == (f"gpushare:a:{share.index}", 8 * GIB, True)
    assert (share.units, share.gpu_units, share.assigned) == (8, 8, False)


async def test_a_pod_of_ours_carries_none_of_them():
    """Nobody but that plugin reads them."""
    table = Bench()
    table.cluster.apply_topology(sample("mesh", "b").to_object())
    asked = pod("p").shared(8)
    await table.bindings.bind(BindCall("default", "p", asked.uid, "b"), demand_of(asked))
    assert list(table.api.posted[0].annotations) == [keys.ALLOCATION]


@pytest.mark.parametrize(
    ("answer", "waits"),
    [
        pytest.param(BindVerdict.BOUND, True, id="bound: the plugin has still to find it"),
        pytest.param(BindVerdict.UNKNOWN, True, id="no answer: it may be bound"),
        pytest.param(BindVerdict.REFUSED, False, id="refused: it is not"),
    ],
)
async def test_a_pod_holds_others_back_for_as_long_as_it_may_be_bound(answer: BindVerdict, waits: bool):
    """The second pod would get the other GPU."""
    table = Bench(answer)
    await table.bind(FIRST)
    table.api.answer = BindResult(BindVerdict.BOUND)
    assert ("pod default/first waits" in await table.bind(SECOND)) is waits
    assert len(table.api.posted) == (1 if waits else 2)


async def test_a_binding_that_has_not_taken_effect_holds_nobody_back_any_longer():
    """The pod is gone; its promise is forgotten, and with it that it waits."""
    table = Bench(BindVerdict.UNKNOWN)
    await table.bind(FIRST)
    await table.bindings.resolve_open()
    table.api.answer = BindResult(BindVerdict.BOUND)
    assert await table.bind(SECOND) == ""


async def test_an_agent_that_comes_while_a_promise_is_asked_after_keeps_nobody_from_forgetting_it():
    """The GPU has another name now; the answer is about the same promise."""
    table = Bench(BindVerdict.UNKNOWN, gpus=4, units=40)
    await table.bind(FIRST)
    table.api.while_reading = lambda: table.cluster.apply_topology(sample("mesh", "a").to_object())
    await table.bindings.resolve_open()
    assert table.left() == [40, 40, 40, 40]


async def test_a_pod_that_has_to_wait_is_promised_nothing():
    """Its next bind decides afresh."""
    table = Bench()
    await table.bind(FIRST)
    assert await table.bind(SECOND)
    assert table.cluster.ledger.get(SECOND.uid) is None
    assert table.left() == [0, 8]


async def test_an_agent_comes_and_goes_while_a_binding_is_under_way():
    """A promise keeps its GPU, whatever that is called now."""
    table = Bench(gpus=4, units=40)
    table.api.gate = asyncio.Event()
    binding = asyncio.create_task(table.bind(FIRST))
    await table.api.arrived.wait()
    minor = gpushare.decode(table.api.posted[0].annotations).index
    table.cluster.apply_topology(sample("mesh", "a").to_object())
    (entry,) = table.cluster.ledger.on_node("a")
    assert entry.uuids == {table.cluster.gpushare.of("a").uuid_of[minor]}
    assert table.left() == [32, 40, 40, 40]
    table.cluster.remove_topology("a")
    (entry,) = table.cluster.ledger.on_node("a")
    assert entry.uuids == {f"gpushare:a:{minor}"}
    assert table.left() == [32, 40, 40, 40]
    table.api.gate.set()
    assert await binding == ""


def room_beside(table: Bench, demand: Demand) -> tuple[int, ...] | None:
    """MiB left of each GPU of the node in the room beside waiting pods."""
    room = room_beside_waiting(call_of(SECOND), demand, table.cluster.view(), table.cluster)
    return None if room is None else room.left[:2]


async def test_the_room_beside_waiting_pods_is_what_their_gpus_have_left():
    """None where none waits for as much."""
    table = Bench(units=20)
    demand = read_demand(SECOND.build())
    assert room_beside(table, demand) is None
    await table.bind(FIRST)
    waiting_on = gpushare.decode(table.api.posted[0].annotations).index
    assert room_beside(table, demand) == tuple(12 * GIB if index == waiting_on else 0 for index in range(2))
    assert room_beside(table, read_demand(pod().units(7).build())) is None


def test_a_unit_that_has_changed_since_the_pod_was_filtered_is_told():
    """Its amount means something else now."""
    table = Bench()
    demand = read_demand(FIRST.build(), mib_of_unit=1)
    allocation = Allocation(node="a", containers={"main": (AllocatedGpu(uuid="gpushare:a:0", memory_mib=8, shared=True),)})
    assumption = assume(call_of(FIRST), demand, allocation, table.cluster)
    assert assumption.annotations == {}
    assert assumption.reason == "node a has begun to count aliyun.com/gpu-mem in another unit since pod default/first was filtered"
