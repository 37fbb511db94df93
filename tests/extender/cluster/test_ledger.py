"""Every do has its undo beside it; the held mask is what the entries say, whatever the order in which they came and went."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extender.cluster.columns import Columns, NodeGpus
from extender.cluster.ledger import Entry, EntryState, Ledger
from topology.errors import InternalError
from topology.inventory import Gpu, Inventory

NODES = ("a", "b")
UUIDS = {node: tuple(f"GPU-{node}-{number}" for number in range(4)) for node in NODES}


def columns_with_gpus() -> Columns:
    columns = Columns()
    for node in NODES:
        columns.set_gpus(columns.row(node), gpus_of(node))
    return columns


def gpus_of(node: str, order: tuple[int, ...] = (0, 1, 2, 3)) -> NodeGpus:
    return NodeGpus.of(Inventory(tuple(Gpu(index=place, uuid=UUIDS[node][gpu]) for place, gpu in enumerate(order))))


def entry(uid: str, *gpus: int, node: str = "a", state: EntryState = EntryState.PROMISED) -> Entry:
    return Entry(uid, "default", f"pod-{uid}", node, frozenset(UUIDS[node][gpu] for gpu in gpus), state, f"allocation of {uid}")


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


def test_iteration_is_over_a_copy(ledger: Ledger):
    ledger.promise(entry("p", 0))
    ledger.promise(entry("q", 1))
    assert [ledger.release(each.uid) for each in ledger] == [entry("p", 0), entry("q", 1)]


def test_an_entry_is_named_as_kubectl_names_pods():
    assert entry("p").pod == "default/pod-p"


uids = st.sampled_from(["p", "q", "r"])
nodes = st.sampled_from(NODES)
gpu_sets = st.frozensets(st.integers(0, 3), min_size=1, max_size=3)


class AnyOrder(RuleBasedStateMachine):
    """Everything that may happen to a ledger, beside a plain dictionary of who holds what."""

    def __init__(self) -> None:
        super().__init__()
        self.columns = columns_with_gpus()
        self.ledger = Ledger(self.columns)
        self.model: dict[str, Entry] = {}
        self.orders = dict.fromkeys(NODES, (0, 1, 2, 3))

    @rule(uid=uids, node=nodes, gpus=gpu_sets)
    def promise(self, uid: str, node: str, gpus: frozenset[int]) -> None:
        wanted = entry(uid, *gpus, node=node)
        taken = {uuid for each in self.model.values() for uuid in each.uuids}
        if uid in self.model or wanted.uuids & taken:
            with pytest.raises(InternalError):
                self.ledger.promise(wanted)
        else:
            self.ledger.promise(wanted)
            self.model[uid] = wanted

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

    @rule(uid=uids, node=nodes, gpus=gpu_sets, state=st.sampled_from([EntryState.CONFIRMED, EntryState.OBSERVED]))
    def enter(self, uid: str, node: str, gpus: frozenset[int], state: EntryState) -> None:
        self.model[uid] = entry(uid, *gpus, node=node, state=state)
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
    def held_is_what_the_entries_say(self) -> None:
        assert {each.uid: each for each in self.ledger} == self.model
        for node in NODES:
            row = self.columns.row(node)
            there = {each for each in self.model.values() if each.node == node}
            assert set(self.ledger.on_node(node)) == there
            holding = {uuid for each in there for uuid in each.uuids}
            assert held(self.columns, node) == sum(1 << bit for bit, uuid in enumerate(self.columns.gpus[row].uuids) if uuid in holding)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@given(st.lists(gpu_sets, max_size=6))
def test_a_thousand_pods_come_and_go_and_free_memory_is_exactly_what_it_was(sets: list[frozenset[int]]):
    """gpushare-scheduler-extender 201: the same pod created and deleted 1,000 times."""
    columns = columns_with_gpus()
    ledger = Ledger(columns)
    for number, gpus in enumerate(sets * 20):
        ledger.promise(entry(f"p{number}", *gpus))
        ledger.confirm(f"p{number}")
        ledger.release(f"p{number}")
    assert held(columns) == 0
