"""One pod onto one node: decided on the state of that moment, written in one POST, confirmed or forgotten; whatever the API server answers."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from extender.binding import Bindings, allocate
from extender.cluster import Cluster, EntryState, NodeGpus, Room
from extender.demand import Demand, read_demand
from extender.placement import Placement
from extender.protocol import BindCall, Binding, BindResult, BindVerdict
from extender.sample_machines import sample
from extender.settings import Settings
from tests.builders import Clock, ClusterBuilder, JsonObject, PodBuilder, cluster, demand_of, extender_on, kube_node, pod
from topology.api import Allocation
from topology.topology_class import topology_class

BOUND, REFUSED, UNKNOWN = BindResult(BindVerdict.BOUND), BindResult(BindVerdict.REFUSED, "no"), BindResult(BindVerdict.UNKNOWN, "timed out")
TWO = pod("two").gpus(2)


@dataclass
class ScriptedApi:
    """An API server that answers as it is told and keeps what was posted; ``gate`` holds answers back until a test lets them go."""

    answers: list[BindResult] = field(default_factory=list)
    posted: list[Binding] = field(default_factory=list)
    pods: dict[tuple[str, str], JsonObject] = field(default_factory=dict)
    gate: asyncio.Event | None = None
    crash: BaseException | None = None

    async def bind(self, binding: Binding, timeout_s: float) -> BindResult:
        self.posted.append(binding)
        if self.gate is not None:
            await self.gate.wait()
        if self.crash is not None:
            raise self.crash
        return self.answers.pop(0) if self.answers else BOUND

    async def read_pod(self, namespace: str, name: str) -> JsonObject | None:
        return self.pods.get((namespace, name))


@dataclass
class Bench:
    """The bind engine over one cluster, with a clock and an API server in a test's hands."""

    built: ClusterBuilder
    api: ScriptedApi = field(default_factory=ScriptedApi)
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.cluster = Cluster("nvidia.com/gpu", self.clock)
        for topology in self.built.topologies:
            self.cluster.apply_topology(topology)
        for each in self.built.pods:
            self.cluster.apply_pod(each)
        self.bindings = Bindings(self.cluster, Placement(), self.api, Settings(), self.clock)

    async def bind(self, asked: PodBuilder, node: str = "a") -> str:
        call = BindCall(asked.namespace, asked.name, asked.uid, node)
        return (await self.bindings.bind(call, demand_of(asked))).error

    def free(self, node: str = "a") -> int:
        view = self.cluster.view()
        return int(view.free[view.row_of[node]]).bit_count()

    def state_of(self, asked: PodBuilder) -> EntryState | None:
        entry = self.cluster.ledger.get(asked.uid)
        return None if entry is None else entry.state

    def as_stored(self, asked: PodBuilder) -> JsonObject:
        """Return the pod with the last Binding on it, as the API server stores it."""
        binding = self.api.posted[-1]
        raw = asked.build()
        raw["metadata"]["annotations"].update(binding.annotations)
        raw["spec"]["nodeName"] = binding.node
        return raw


def bench(built: ClusterBuilder | None = None, *answers: BindResult) -> Bench:
    return Bench(built or cluster().bridges("a").mesh("b"), ScriptedApi(list(answers)))


# --- one bind -------------------------------------------------------------------------------------------------------


async def test_decision_and_binding_are_one_write():
    table = bench()
    assert await table.bind(TWO) == ""
    (posted,) = table.api.posted
    assert (posted.namespace, posted.name, posted.uid, posted.node) == ("default", "two", TWO.uid, "a")
    assert list(posted.annotations) == ["linkwise.dev/allocation"]
    allocation = Allocation.decode(posted.annotations["linkwise.dev/allocation"])
    uuids = table.built.uuids("a")
    assert [(gpu.uuid, gpu.index, gpu.memory_mib) for gpu in allocation.containers["main"]] == [(uuids[0], 0, 81920), (uuids[2], 2, 81920)]
    assert (allocation.node, allocation.bandwidth_gb_per_s, allocation.worst_link) == ("a", 300.0, "NV12")
    assert table.state_of(TWO) is EntryState.CONFIRMED
    assert table.free() == 6


async def test_parts_are_keyed_by_container_name_never_by_position():
    """HAMi 991, 2899."""
    table = bench()
    asked = pod("p").init(1, "warm").gpus(2, "train").gpus(1, "serve")
    assert await table.bind(asked) == ""
    allocation = Allocation.decode(table.api.posted[0].annotations["linkwise.dev/allocation"])
    sizes = {name: len(gpus) for name, gpus in allocation.containers.items()}
    assert sizes == {"warm": 1, "train": 2, "serve": 1}
    assert len(allocation.uuids()) == 3, "the init container runs on the app's GPUs"


async def test_one_gpu_carries_no_bandwidth_and_no_link():
    table = bench()
    await table.bind(pod("one").gpus(1))
    allocation = Allocation.decode(table.api.posted[0].annotations["linkwise.dev/allocation"])
    assert (allocation.bandwidth_gb_per_s, allocation.worst_link) == (None, None)


async def test_binding_twice_posts_once_and_succeeds_twice():
    """Kubernetes 96579: the bind succeeded, the HTTP call timed out, the scheduler calls again."""
    table = bench()
    assert [await table.bind(TWO), await table.bind(TWO)] == ["", ""]
    assert len(table.api.posted) == 1
    assert table.free() == 6


async def test_binding_elsewhere_afterwards_names_the_node():
    table = bench()
    await table.bind(TWO)
    assert await table.bind(TWO, "b") == "pod default/two is bound to node a already, not to b"
    assert (table.free("a"), table.free("b")) == (6, 4)


async def test_a_pod_that_was_bound_before_a_restart_is_bound():
    built = cluster().bridges("a")
    table = bench(built.with_pods(pod("two").holding("a", *built.uuids("a")[:2])))
    assert await table.bind(TWO) == ""
    assert table.api.posted == []


@pytest.mark.parametrize(
    ("asked", "node", "error"),
    [
        pytest.param(pod("big").gpus(9), "a", "the node has fewer than 9 healthy GPUs", id="too small"),
        pytest.param(pod("fast").gpus(2).min_bandwidth(999), "a", "8 of 8 GPUs free, best pair 300 GB/s over NV12, 999 asked", id="too slow"),
        pytest.param(pod("lost").gpus(1), "nowhere", "no GPUTopology is published for the node", id="no such node"),
    ],
)
async def test_a_pod_that_does_not_fit_any_more_is_told_with_numbers_and_nothing_is_posted(asked: PodBuilder, node: str, error: str):
    table = bench()
    assert await table.bind(asked, node) == f"pod {asked.namespace}/{asked.name} does not fit on node {node} any more: {error}"
    assert table.api.posted == []
    assert len(table.cluster.ledger) == 0


async def test_a_pod_without_gpus_is_bound_without_an_allocation():
    table = bench()
    assert await table.bind(pod("plain").plain()) == ""
    assert table.api.posted[0].annotations == {}
    assert len(table.cluster.ledger) == 0


async def test_binding_a_pod_without_gpus_twice_succeeds_twice():
    extender = extender_on(cluster().mesh("a").with_pods(pod("plain").plain()))
    assert [await extender.bind(pod("plain").plain(), "a") for _ in range(2)] == ["", ""]
    assert "is bound to node a already" in await extender.bind(pod("plain").plain(), "b")


# --- binds that fail ------------------------------------------------------------------------------------------------


async def test_a_refused_bind_leaves_no_trace_and_the_pod_can_be_placed_again():
    """gpu-admission 8."""
    table = bench(None, REFUSED)
    assert await table.bind(TWO) == "binding pod default/two to node a was refused: no"
    assert (table.state_of(TWO), table.free()) == (None, 8)
    assert await table.bind(TWO, "b") == ""


async def test_a_bind_without_an_answer_keeps_its_promise_until_the_pod_tells():
    table = bench(None, UNKNOWN)
    assert await table.bind(TWO) == "binding pod default/two to node a got no answer (timed out); its GPUs stay promised until the pod tells"
    assert (table.state_of(TWO), table.free()) == (EntryState.PROMISED, 6)
    table.api.pods["default", "two"] = TWO.build()
    assert await table.bind(TWO) == "pod default/two is promised to node a; whether its binding took effect is not known yet"
    assert len(table.api.posted) == 1


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        pytest.param(BOUND, 60, id="bound"),
        pytest.param(UNKNOWN, 60, id="promised as long as nobody tells"),
        pytest.param(REFUSED, 64, id="refused"),
    ],
)
async def test_cpu_and_memory_are_promised_with_the_gpus_and_given_back_with_them(answer: BindResult, left: int):
    """As soon as it is decided, whatever the watch shows and when."""
    table = bench(None, answer)
    table.cluster.apply_node(kube_node("a", cpu="64", memory="64Gi"))
    await table.bind(TWO.plain(cpu="4", memory="4Gi"))
    view = table.cluster.view()
    assert (int(view.cpu_left[0]), int(view.memory_left[0])) == (left * 1000, left * 1024)


async def test_it_took_effect_and_the_second_call_succeeds():
    table = bench(None, UNKNOWN)
    await table.bind(TWO)
    table.api.pods["default", "two"] = table.as_stored(TWO)
    assert await table.bind(TWO) == ""
    assert (table.state_of(TWO), table.free()) == (EntryState.CONFIRMED, 6)
    assert len(table.api.posted) == 1


@pytest.mark.parametrize("gone", ["deleted", "a namesake"])
async def test_the_pod_is_gone_and_its_gpus_are_free(gone: str):
    table = bench(None, UNKNOWN)
    await table.bind(TWO)
    if gone == "a namesake":
        table.api.pods["default", "two"] = {**TWO.build(), "metadata": {"name": "two", "namespace": "default", "uid": "another"}}
    await table.bindings.resolve_open()
    assert (table.state_of(TWO), table.free()) == (None, 8)


async def test_a_pod_that_is_still_unbound_past_the_deadline_is_forgotten_and_not_before():
    table = bench(None, UNKNOWN)
    await table.bind(TWO)
    table.api.pods["default", "two"] = TWO.build()
    for later, state in ((4.9, EntryState.PROMISED), (0.05, EntryState.PROMISED), (0.1, None)):  # 3 s time-out and 2 s grace
        table.clock.now += later
        await table.bindings.resolve_open()
        assert table.state_of(TWO) is state
    assert table.free() == 8
    assert await table.bind(TWO) == ""


async def test_what_the_watch_shows_first_is_not_undone_by_an_older_answer():
    table = bench(None, UNKNOWN)
    await table.bind(TWO)
    table.cluster.apply_pod(table.as_stored(TWO))
    table.clock.now += 60
    await table.bindings.resolve_open()
    assert table.state_of(TWO) is EntryState.CONFIRMED


async def test_a_binding_of_another_replica_wins_over_the_promise():
    table = bench(None, UNKNOWN)
    await table.bind(TWO)
    uuids = table.built.uuids("b")
    table.api.pods["default", "two"] = pod("two").holding("b", *uuids[:2]).build()
    assert await table.bind(TWO) == "pod default/two is bound to node b already, not to a"
    assert (table.free("a"), table.free("b")) == (8, 2)


@pytest.mark.parametrize("crash", [asyncio.CancelledError(), RuntimeError("bug")], ids=["cancelled", "a bug"])
async def test_a_call_that_is_cut_off_takes_no_promise_with_it(crash: BaseException):
    """The POST may have left already."""
    table = bench()
    table.api.crash = crash
    with pytest.raises(type(crash)):
        await table.bind(TWO)
    assert (table.state_of(TWO), table.free()) == (EntryState.PROMISED, 6)
    table.api.crash = None
    table.api.pods["default", "two"] = TWO.build()
    table.clock.now += 5.1
    assert await table.bind(TWO) == ""


# --- many at once ---------------------------------------------------------------------------------------------------


async def test_calls_about_one_pod_wait_for_each_other_and_post_once():
    table = bench()
    table.api.gate = asyncio.Event()
    calls = [asyncio.create_task(table.bind(TWO, node)) for node in ("a", "a", "b")]
    await asyncio.sleep(0)
    assert len(table.api.posted) == 1
    table.api.gate.set()
    assert await asyncio.gather(*calls) == ["", "", "pod default/two is bound to node a already, not to b"]
    assert len(table.api.posted) == 1


async def test_the_next_call_about_a_pod_tries_again_where_the_first_was_refused():
    table = bench(None, REFUSED)
    table.api.gate = asyncio.Event()
    calls = [asyncio.create_task(table.bind(TWO)) for _ in range(2)]
    await asyncio.sleep(0)
    table.api.gate.set()
    assert await asyncio.gather(*calls) == ["binding pod default/two to node a was refused: no", ""]


async def test_binds_to_one_node_overlap_and_no_lock_waits_for_an_answer():
    """HAMi 1130, 450, 1367: a node lock makes it 15 to 30 minutes there."""
    table = bench()
    table.api.gate = asyncio.Event()
    calls = [asyncio.create_task(table.bind(pod(f"p{number}").gpus(1))) for number in range(8)]
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(table.api.posted) == 8, "all POSTs have left before the first answer"
    assert table.bindings.any_in_hand
    table.api.gate.set()
    assert await asyncio.gather(*calls) == [""] * 8
    assert not table.bindings.any_in_hand
    assert table.free() == 0


@pytest.mark.parametrize("sizes", [[1] * 40, [2, 1] * 10, [4, 2, 1, 8]], ids=["forty of one", "one and two in the same second", "all sizes"])
async def test_many_pods_at_once_hold_no_gpu_twice_and_waste_none(sizes: list[int]):
    """HAMi 710: a 1-GPU and a 2-GPU pod bound in the same second."""
    table = bench()
    asked = [pod(f"p{number}").gpus(size) for number, size in enumerate(sizes)]
    errors = await asyncio.gather(*(table.bind(each) for each in asked))
    bound = [each for each, error in zip(asked, errors, strict=True) if not error]
    given = [uuid for binding in table.api.posted for uuid in Allocation.decode(binding.annotations["linkwise.dev/allocation"]).uuids()]
    assert len(bound) == len(table.api.posted)
    assert len(given) == len(set(given))
    assert table.free() == 8 - len(given)
    assert all(error.startswith(f"pod default/p{number} does not fit on node a any more: ") for number, error in enumerate(errors) if error)
    if set(sizes) == {1}:
        assert len(bound) == 8


# --- parts of GPUs --------------------------------------------------------------------------------------------------

GIB = 1024


def left(table: Bench, node: str = "a") -> list[int]:
    """GiB that are left of each GPU."""
    view = table.cluster.view()
    return [mib // GIB for mib in view.left[view.row_of[node]].tolist()[: len(view.gpus[view.row_of[node]].uuids)]]


def posted(table: Bench) -> Allocation:
    return Allocation.decode(table.api.posted[-1].annotations["linkwise.dev/allocation"])


async def test_a_part_is_written_with_its_size_and_whole_gpus_beside_it_as_ever():
    table = bench()
    await table.bind(pod("p").gpus(2, "train").shared(9, "serve").annotated(gpu_cores="30"))
    written = posted(table).containers
    uuids = table.built.uuids("a")
    assert [(gpu.uuid, gpu.memory_mib, gpu.shared, gpu.cores_percent) for gpu in written["serve"]] == [(uuids[1], 9 * GIB, True, 30)]
    assert [(gpu.uuid, gpu.memory_mib, gpu.shared, gpu.cores_percent) for gpu in written["train"]] == [
        (uuids[0], 81_920, None, None),
        (uuids[2], 81_920, None, None),
    ]
    assert left(table) == [0, 71, 0, 80, 80, 80, 80, 80]


async def test_memory_over_two_gpus_is_split_evenly_over_a_linked_pair():
    table = bench()
    await table.bind(pod("p").shared(41).annotated(gpu_count="2"))
    allocation = posted(table)
    assert [(gpu.index, gpu.memory_mib) for gpu in allocation.containers["main"]] == [(0, 20_992), (2, 20_992)]
    assert (allocation.bandwidth_gb_per_s, allocation.worst_link) == (300.0, "NV12")


async def test_a_part_of_one_gpu_carries_no_bandwidth_and_no_link():
    table = bench()
    await table.bind(pod("p").shared(10))
    assert (posted(table).bandwidth_gb_per_s, posted(table).worst_link) == (None, None)


@pytest.mark.parametrize(
    ("answer", "gib"), [(BOUND, 70), (UNKNOWN, 70), (REFUSED, 80)], ids=["bound", "promised as long as nobody tells", "refused: given back"]
)
async def test_a_part_is_promised_and_given_back(answer: BindResult, gib: int):
    table = bench(None, answer)
    await table.bind(pod("p").shared(10))
    assert left(table)[0] == gib


async def test_a_promise_and_the_pod_as_it_is_stored_charge_the_same():
    """By the rule for effective requests, in both: an init container beside its sidecar, before its app."""
    table = bench()
    asked = pod("p").sidecar_shared(5).init_shared(20).shared(10, "serve").shared(4, "watch")
    await table.bind(asked)
    promised = left(table)
    assert sum(promised) == 8 * 80 - 25
    table.cluster.apply_pod(table.as_stored(asked))
    assert left(table) == promised
    again = Bench(table.built)
    again.cluster.apply_pod(table.as_stored(asked))
    assert left(again) == promised


async def test_many_parts_at_once_fill_gpus_and_overfill_none():
    """HAMi 710, with parts: 30 GiB twice a GPU of 80, and whole GPUs in between."""
    table = bench()
    asked = [pod(f"p{number}").gpus(1) if number % 4 == 3 else pod(f"p{number}").shared(30) for number in range(24)]
    errors = await asyncio.gather(*(table.bind(each) for each in asked))
    given: dict[str, int] = {}
    for binding in table.api.posted:
        for gpus in Allocation.decode(binding.annotations["linkwise.dev/allocation"]).containers.values():
            for gpu in gpus:
                given[gpu.uuid] = given.get(gpu.uuid, 0) + (gpu.share_mib or 80 * GIB)
    assert set(given.values()) == {60 * GIB, 80 * GIB}
    assert len(given) == 8
    assert sum(not error for error in errors) == len(table.api.posted)


async def test_a_part_that_does_not_fit_any_more_is_told_in_gib():
    built = cluster().mesh("a")
    uuids = built.uuids("a")
    table = bench(built.with_pods(*(pod(f"on-{gpu}").shared(35).sharing("a", {uuid: 35 * GIB}) for gpu, uuid in enumerate(uuids))))
    assert await table.bind(pod("p").shared(6)) == (
        "pod default/p does not fit on node a any more: 0 of 4 GPUs free, at most 5 GiB left on one GPU, 6 asked"
    )
    assert await table.bind(pod("p").shared(41)) == (
        "pod default/p does not fit on node a any more: 41 GiB of one GPU asked, the largest of the node (NVIDIA A100-SXM4-40GB) gives 40 GiB of its 40960 MiB"
    )


async def test_a_bind_leaves_the_part_alone_that_another_scored_pod_will_take():
    table = bench(cluster().mesh("a"))
    table.cluster.hold("other", 0, 0b0001, 2.0, ((0, 30 * GIB),))
    await table.bind(pod("p").shared(10))
    assert left(table) == [30, 40, 40, 40], "on the GPU that the other one will share: it has just as much beside"
    await table.bind(pod("q").shared(12))
    assert left(table) == [30, 28, 40, 40], "not on the ten that are left beside it"


# --- tentative holds ------------------------------------------------------------------------------------------------


async def test_a_bind_leaves_the_set_alone_that_another_scored_pod_will_take():
    table = bench()
    table.cluster.hold("other", 0, 0b00000101, 2.0)
    await table.bind(TWO)
    assert [gpu.index for gpu in Allocation.decode(table.api.posted[0].annotations["linkwise.dev/allocation"]).containers["main"]] == [1, 3]


async def test_a_hold_is_no_promise_where_the_pod_would_fare_worse_beside_it():
    table = bench(cluster().bridges("a").with_pods(pod("x").holding("a", *[cluster().bridges("a").uuids("a")[gpu] for gpu in (4, 6)])))
    table.cluster.hold("other", 0, 0b00001010, 2.0)
    table.cluster.hold("another", 0, 0b00000101, 2.0)
    await table.bind(TWO)
    allocation = Allocation.decode(table.api.posted[0].annotations["linkwise.dev/allocation"])
    assert allocation.bandwidth_gb_per_s == 300.0


async def test_ones_own_hold_ends_with_the_bind():
    table = bench()
    table.cluster.hold(TWO.uid, 0, 0b00000101, 2.0)
    await table.bind(TWO)
    assert table.cluster.view().holds == ()


# --- the allocation -------------------------------------------------------------------------------------------------


def test_bits_become_identities_in_the_order_in_which_the_node_shows_them_now():
    topology = sample("bridges", "a")
    kind = topology_class(topology.matrix(), topology.inventory())
    demand: Demand = read_demand(pod().gpus(2, "a").gpus(1, "b").build())
    plan = Placement().plan(demand.shape, kind, Room(0b1111))
    assert plan is not None
    gpus = NodeGpus.of(topology.inventory())
    made: dict[str, Any] = {name: [gpu.uuid for gpu in part] for name, part in allocate("n", demand, plan, gpus).containers.items()}
    assert made == {name: [gpus.uuids[bit] for bit in range(8) if mask >> bit & 1] for name, mask in zip(demand.containers, plan.masks, strict=True)}
