"""Every do has its undo beside it; the held mask is what the entries say, whatever the order in which they came and went."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extender.cluster.columns import Columns, NodeGpus, Taken
from extender.cluster.ledger import Entry, EntryState, Ledger
from topology.errors import InternalError
from topology.inventory import Gpu, Inventory

NODES = ("a", "b")
SIZES = (8192, 8192, 16_384, None)  # MiB; of one GPU nobody knows
OFFERED = (8192, 8192, 16_384, 0)
UUIDS = {node: tuple(f"GPU-{node}-{number}" for number in range(4)) for node in NODES}


def columns_with_gpus() -> Columns:
    columns = Columns()
    for node in NODES:
        columns.set_gpus(columns.row(node), gpus_of(node))
        columns.usable[columns.row(node)] = 0b1111
        columns.left[columns.row(node), :4] = OFFERED
    return columns


def gpus_of(node: str, order: tuple[int, ...] = (0, 1, 2, 3)) -> NodeGpus:
    return NodeGpus.of(Inventory(tuple(Gpu(index=place, uuid=UUIDS[node][gpu], memory_mib=SIZES[gpu]) for place, gpu in enumerate(order))))


def entry(uid: str, *gpus: int, node: str = "a", state: EntryState = EntryState.PROMISED, parts: Mapping[int, int] = MappingProxyType({})) -> Entry:
    """An entry of whole ``gpus``, and of ``parts``: MiB by GPU."""
    uuids = frozenset(UUIDS[node][gpu] for gpu in (*gpus, *parts))
    return Entry(uid, "default", f"pod-{uid}", node, uuids, state, f"allocation of {uid}", {UUIDS[node][gpu]: mib for gpu, mib in parts.items()})


@pytest.fixture
def columns() -> Columns:
    return columns_with_gpus()


@pytest.fixture
def ledger(columns: Columns) -> Ledger:
    return Ledger(columns)


def held(columns: Columns, node: str = "a") -> int:
    return int(columns.held[columns.row(node)])


def test_promise_and_forget_leave_no_trace(columns: Columns, ledger: Ledger):
    """gpu-admission 8: a bind fails half-way and the pod can never be placed again."""
    ledger.promise(entry("p", 0, 1))
    assert held(columns) == 0b0011
    assert ledger.forget("p") == entry("p", 0, 1)
    assert (held(columns), ledger.get("p"), len(ledger), ledger.on_node("a")) == (0, None, 0, ())
    ledger.promise(entry("p", 0, 1))


def test_a_confirmed_promise_is_not_forgotten(columns: Columns, ledger: Ledger):
    ledger.promise(entry("p", 0))
    ledger.confirm("p")
    assert ledger.get("p") == entry("p", 0, state=EntryState.CONFIRMED)
    assert ledger.forget("p") is None
    assert held(columns) == 0b0001


def test_enter_and_release(columns: Columns, ledger: Ledger):
    ledger.enter(entry("p", 2, state=EntryState.CONFIRMED))
    assert held(columns) == 0b0100
    assert ledger.release("p") == entry("p", 2, state=EntryState.CONFIRMED)
    assert held(columns) == 0


def test_what_is_not_there_can_be_released_confirmed_and_forgotten(columns: Columns, ledger: Ledger):
    assert (ledger.release("p"), ledger.forget("p"), ledger.get("p")) == (None, None, None)
    ledger.confirm("p")
    assert len(ledger) == 0


def test_the_same_pod_seen_twice_is_counted_once(columns: Columns, ledger: Ledger):
    """Volcano 4809: event and resync."""
    for _ in range(3):
        ledger.enter(entry("p", 0, 1, state=EntryState.CONFIRMED))
    assert (len(ledger), held(columns)) == (1, 0b0011)
    ledger.release("p")
    assert held(columns) == 0


def test_the_bound_pod_is_right_where_it_differs_from_the_promise(columns: Columns, ledger: Ledger):
    """Another replica's decision reached the pod first."""
    ledger.promise(entry("p", 0, 1))
    ledger.enter(entry("p", 2, 3, state=EntryState.CONFIRMED))
    assert held(columns) == 0b1100
    ledger.enter(entry("p", 0, node="b", state=EntryState.CONFIRMED))
    assert (held(columns, "a"), held(columns, "b"), ledger.on_node("a")) == (0, 1, ())


def test_two_holders_of_one_gpu_are_counted_as_they_are(columns: Columns, ledger: Ledger):
    ledger.enter(entry("p", 0, state=EntryState.CONFIRMED))
    ledger.enter(entry("q", 0, 1, state=EntryState.OBSERVED))
    ledger.release("q")
    assert held(columns) == 0b0001, "the other one still holds it"


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(entry("q", 0, 2), id="a GPU that is held"),
        pytest.param(entry("p", 3), id="a pod that is promised already"),
        pytest.param(replace(entry("q"), uuids=frozenset({"GPU-x"})), id="a GPU that the node does not have"),
        pytest.param(replace(entry("q", 3), node="b"), id="a GPU of another node"),
        pytest.param(replace(entry("q", 3), node="c"), id="a node that is not known"),
    ],
)
def test_a_promise_that_cannot_be_kept_is_a_bug_and_changes_nothing(columns: Columns, ledger: Ledger, wrong: Entry):
    ledger.promise(entry("p", 0))
    with pytest.raises(InternalError):
        ledger.promise(wrong)
    assert (held(columns), len(ledger)) == (0b0001, 1)


def test_a_promise_is_promised_whatever_the_caller_wrote(ledger: Ledger):
    ledger.promise(entry("p", 0, state=EntryState.CONFIRMED))
    found = ledger.get("p")
    assert found is not None
    assert found.state is EntryState.PROMISED


def test_holders_keep_their_gpus_when_the_order_changes_at_a_reboot(columns: Columns, ledger: Ledger):
    """Keys are UUIDs, never positions."""
    ledger.enter(entry("p", 0, 1, state=EntryState.CONFIRMED))
    columns.set_gpus(columns.row("a"), gpus_of("a", (3, 2, 1, 0)))
    ledger.settle("a")
    assert held(columns) == 0b1100


# --- parts of GPUs --------------------------------------------------------------------------------------------------


def left(columns: Columns, node: str = "a") -> list[int]:
    row: list[int] = columns.left[columns.row(node), :4].tolist()
    return row


def test_promise_and_forget_of_parts_leave_no_trace(columns: Columns, ledger: Ledger):
    before = left(columns)
    ledger.promise(entry("p", 1, parts={0: 3000, 2: 5000}))
    assert (held(columns), left(columns)) == (0b0111, [5192, 0, 11_384, 0])
    ledger.forget("p")
    assert (held(columns), left(columns)) == (0, before)


def test_parts_of_several_pods_add_up_on_a_gpu(columns: Columns, ledger: Ledger):
    ledger.promise(entry("p", parts={0: 3000}))
    ledger.promise(entry("q", parts={0: 5192}))
    assert (held(columns), left(columns)) == (0b0001, [0, 8192, 16_384, 0])
    ledger.release("p")
    assert left(columns)[0] == 3000


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(entry("q", parts={0: 5193}), id="a MiB more than is left"),
        pytest.param(entry("q", parts={1: 1}), id="a part of a GPU that is held whole"),
        pytest.param(entry("q", 0), id="all of a GPU that is held in part"),
        pytest.param(entry("q", parts={3: 1}), id="a part of a GPU of unknown size"),
        pytest.param(entry("q", parts={0: 1, 2: 20_000}), id="enough of one GPU, too much of the other"),
        pytest.param(replace(entry("q"), uuids=frozenset({"GPU-x"}), shares={"GPU-x": 1}), id="a part of a GPU that the node does not have"),
    ],
)
def test_a_promise_of_more_than_is_left_is_a_bug_and_changes_nothing(columns: Columns, ledger: Ledger, wrong: Entry):
    ledger.promise(entry("p", 1, parts={0: 3000}))
    before = (held(columns), left(columns), len(ledger))
    with pytest.raises(InternalError):
        ledger.promise(wrong)
    assert (held(columns), left(columns), len(ledger)) == before


def test_whole_and_part_of_one_gpu_by_two_pods_are_counted_as_they_are(columns: Columns, ledger: Ledger):
    """Two allocations that nobody here wrote: nothing of the GPU is given until both have ended."""
    ledger.enter(entry("p", 0, state=EntryState.CONFIRMED))
    ledger.enter(entry("q", state=EntryState.CONFIRMED, parts={0: 3000}))
    assert (held(columns), left(columns)[0]) == (0b0001, 0)
    ledger.release("p")
    assert (held(columns), left(columns)[0]) == (0b0001, 5192)
    ledger.release("q")
    assert (held(columns), left(columns)[0]) == (0, 8192)


def test_more_than_a_gpu_has_leaves_nothing_and_never_less_than_nothing(columns: Columns, ledger: Ledger):
    """A GPU may be replaced by a smaller one, or the reserve be raised, while pods run."""
    ledger.enter(entry("p", state=EntryState.CONFIRMED, parts={0: 9000, 3: 100}))
    assert left(columns) == [0, 8192, 16_384, 0]


def test_parts_of_gpus_that_are_gone_count_on_no_other_and_again_when_they_are_back(columns: Columns, ledger: Ledger):
    ledger.enter(entry("p", state=EntryState.CONFIRMED, parts={0: 3000, 2: 1000}))
    columns.set_gpus(columns.row("a"), gpus_of("a", (3, 2, 1)))
    ledger.settle("a")
    assert (held(columns), left(columns)) == (0b0010, [0, 15_384, 8192, 0])
    columns.set_gpus(columns.row("a"), gpus_of("a"))
    ledger.settle("a")
    assert (held(columns), left(columns)) == (0b0101, [5192, 8192, 15_384, 0])


def test_nothing_is_left_of_a_broken_gpu_and_what_is_held_of_it_stays_counted(columns: Columns, ledger: Ledger):
    ledger.enter(entry("p", state=EntryState.CONFIRMED, parts={0: 3000}))
    for usable, there in ((0b1110, [0, 8192, 16_384, 0]), (0b1111, [5192, 8192, 16_384, 0])):
        columns.usable[columns.row("a")] = usable
        ledger.settle("a")
        assert (held(columns), left(columns)) == (0b0001, there)


def test_a_change_of_parts_alone_stamps_the_row(columns: Columns, ledger: Ledger):
    ledger.enter(entry("p", state=EntryState.CONFIRMED, parts={0: 3000}))
    before = int(columns.row_generation[columns.row("a")])
    ledger.enter(entry("q", state=EntryState.CONFIRMED, parts={0: 1}))
    assert int(columns.row_generation[columns.row("a")]) > before


def test_what_is_taken_without_some_pods(ledger: Ledger):
    ledger.enter(entry("p", 1, state=EntryState.CONFIRMED, parts={0: 3000}))
    ledger.enter(entry("q", state=EntryState.CONFIRMED, parts={0: 100, 2: 200}))
    assert ledger.taken("a") == Taken(0b0010, {0: 3100, 2: 200})
    assert ledger.taken("a", without={"p"}) == Taken(0, {0: 100, 2: 200})
    assert ledger.taken("a", without={"p", "q"}).bits == 0


def test_iteration_is_over_a_copy(ledger: Ledger):
    ledger.promise(entry("p", 0))
    ledger.promise(entry("q", 1))
    assert [ledger.release(each.uid) for each in ledger] == [entry("p", 0), entry("q", 1)]


def test_an_entry_is_named_as_kubectl_names_pods():
    assert entry("p").pod == "default/pod-p"


uids = st.sampled_from(["p", "q", "r"])
nodes = st.sampled_from(NODES)
gpu_sets = st.frozensets(st.integers(0, 3), min_size=1, max_size=3)
part_sets = st.dictionaries(st.integers(0, 3), st.sampled_from([1, 3000, 4096, 8192, 9000]), max_size=2)


class AnyOrder(RuleBasedStateMachine):
    """Everything that may happen to a ledger, beside a plain dictionary of who holds what."""

    def __init__(self) -> None:
        super().__init__()
        self.columns = columns_with_gpus()
        self.ledger = Ledger(self.columns)
        self.model: dict[str, Entry] = {}
        self.orders = dict.fromkeys(NODES, (0, 1, 2, 3))

    @rule(uid=uids, node=nodes, gpus=gpu_sets, parts=part_sets)
    def promise(self, uid: str, node: str, gpus: frozenset[int], parts: dict[int, int]) -> None:
        wanted = entry(uid, *(gpus - parts.keys()), node=node, parts=parts)
        whole = {uuid for each in self.model.values() for uuid in each.uuids - each.shares.keys()}
        taken = {uuid for each in self.model.values() for uuid in each.uuids}
        enough = all(uuid not in whole and self.left_of(uuid) >= mib for uuid, mib in wanted.shares.items())
        if uid in self.model or (wanted.uuids - wanted.shares.keys()) & taken or not enough:
            with pytest.raises(InternalError):
                self.ledger.promise(wanted)
        else:
            self.ledger.promise(wanted)
            self.model[uid] = wanted

    def left_of(self, uuid: str) -> int:
        """MiB that are left of a GPU in the model, 0 of one that is somebody's own."""
        if any(uuid in each.uuids - each.shares.keys() for each in self.model.values()):
            return 0
        offered = next(OFFERED[known.index(uuid)] for known in UUIDS.values() if uuid in known)
        return max(0, offered - sum(each.shares.get(uuid, 0) for each in self.model.values()))

    @rule(uid=uids)
    def confirm(self, uid: str) -> None:
        self.ledger.confirm(uid)
        if uid in self.model and self.model[uid].state is EntryState.PROMISED:
            self.model[uid] = replace(self.model[uid], state=EntryState.CONFIRMED)

    @rule(uid=uids)
    def forget(self, uid: str) -> None:
        self.ledger.forget(uid)
        if uid in self.model and self.model[uid].state is EntryState.PROMISED:
            del self.model[uid]

    @rule(uid=uids, node=nodes, gpus=gpu_sets, parts=part_sets, state=st.sampled_from([EntryState.CONFIRMED, EntryState.OBSERVED]))
    def enter(self, uid: str, node: str, gpus: frozenset[int], parts: dict[int, int], state: EntryState) -> None:
        self.model[uid] = entry(uid, *(gpus - parts.keys()), node=node, state=state, parts=parts)
        self.ledger.enter(self.model[uid])

    @precondition(lambda self: self.model)
    @rule(uid=uids)
    def release(self, uid: str) -> None:
        assert self.ledger.release(uid) == self.model.pop(uid, None)

    @rule(node=nodes, order=st.permutations((0, 1, 2, 3)).map(tuple))
    def reboot(self, node: str, order: tuple[int, ...]) -> None:
        self.columns.set_gpus(self.columns.row(node), gpus_of(node, order))
        self.ledger.settle(node)

    @invariant()
    def held_and_left_are_what_the_entries_say(self) -> None:
        assert {each.uid: each for each in self.ledger} == self.model
        for node in NODES:
            row = self.columns.row(node)
            there = {uid: each for uid, each in self.model.items() if each.node == node}
            assert {each.uid: each for each in self.ledger.on_node(node)} == there
            holding = {uuid for each in there.values() for uuid in each.uuids}
            assert left(self.columns, node) == [self.left_of(uuid) for uuid in self.columns.gpus[row].uuids]
            assert held(self.columns, node) == sum(1 << bit for bit, uuid in enumerate(self.columns.gpus[row].uuids) if uuid in holding)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@given(st.lists(gpu_sets, max_size=6), part_sets)
def test_a_thousand_pods_come_and_go_and_free_memory_is_exactly_what_it_was(sets: list[frozenset[int]], parts: dict[int, int]):
    """gpushare-scheduler-extender 201: the same pod created and deleted 1,000 times."""
    columns = columns_with_gpus()
    ledger = Ledger(columns)
    for number, gpus in enumerate(sets * 20):
        fitting = {gpu: mib for gpu, mib in parts.items() if gpu in gpus and mib <= OFFERED[gpu]}
        ledger.promise(entry(f"p{number}", *(gpus - fitting.keys()), parts=fitting))
        ledger.confirm(f"p{number}")
        ledger.release(f"p{number}")
    assert (held(columns), left(columns)) == (0, list(OFFERED))
