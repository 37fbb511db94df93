"""What is left on a node is what its Node has to give less what its pods request, in whatever order all of it is heard."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from extender.cluster.columns import UNKNOWN, Columns
from extender.cluster.hosts import Hosts, NodeFacts, read_node
from extender.requests import NOTHING, Requests
from tests.builders import kube_node
from tests.strategies import json_objects

BIG, SMALL = Requests(4000, 8192), Requests(500, 512)
FACTS = NodeFacts(64_000, 131_072)


def left(columns: Columns, name: str) -> tuple[int, int]:
    row = columns.row_of[name]
    return int(columns.cpu_left[row]), int(columns.memory_left[row])


@pytest.fixture
def columns() -> Columns:
    return Columns()


@pytest.fixture
def hosts(columns: Columns) -> Hosts:
    """Two nodes with rows and facts."""
    made = Hosts(columns)
    for name in ("a", "b"):
        columns.row(name)
        made.set_node(name, FACTS)
    return made


# --- Nodes ----------------------------------------------------------------------------------------------------------


def test_of_a_node_cpu_and_memory_are_read():
    raw = kube_node("a", {"zone": "x"}, cpu="63500m", memory="515Gi", **{"nvidia.com/gpu": "2"})
    assert read_node(raw) == NodeFacts(63_500, 527_360)


@pytest.mark.parametrize(
    ("raw", "facts"),
    [
        pytest.param({}, NodeFacts(), id="nothing is known of an empty object"),
        pytest.param(kube_node("a", cpu="8"), NodeFacts(8000), id="no memory is told"),
        pytest.param(kube_node("a", cpu="many", memory="-1"), NodeFacts(), id="amounts that cannot be read are not told"),
        pytest.param(kube_node("a", memory="1048575Ki"), NodeFacts(None, 1023), id="memory is rounded down"),
        pytest.param({"metadata": None, "status": {"allocatable": ["8"]}}, NodeFacts(), id="lists where objects should be"),
    ],
)
def test_what_a_node_does_not_tell_is_unknown(raw: dict[str, Any], facts: NodeFacts):
    """Never 0: a node of which nothing is known is not a full one."""
    assert read_node(raw) == facts


@given(json_objects)
def test_no_node_makes_the_reading_fail(raw: dict[str, Any]):
    """Whatever stands in the object."""
    assert isinstance(read_node(raw), NodeFacts)


# --- sums -----------------------------------------------------------------------------------------------------------


def test_what_is_left_is_what_there_is_less_what_is_requested(columns: Columns, hosts: Hosts):
    hosts.charge("p", "a", BIG)
    hosts.charge("q", "a", SMALL)
    assert left(columns, "a") == (59_500, 122_368)
    hosts.release("p")
    assert left(columns, "a") == (63_500, 130_560)
    assert left(columns, "b") == (64_000, 131_072)


def test_a_pod_that_is_seen_twice_counts_once_and_touches_nothing(columns: Columns, hosts: Hosts):
    hosts.charge("p", "a", BIG)
    before = columns.generation
    hosts.charge("p", "a", BIG)
    hosts.set_node("a", FACTS)
    hosts.release("nobody")
    assert columns.generation == before
    assert left(columns, "a") == (60_000, 122_880)


def test_a_pod_that_moves_or_changes_counts_as_it_is_now(columns: Columns, hosts: Hosts):
    hosts.charge("p", "a", BIG)
    hosts.charge("p", "b", BIG)
    assert (left(columns, "a"), left(columns, "b")) == ((64_000, 131_072), (60_000, 122_880))
    hosts.charge("p", "b", SMALL)
    assert left(columns, "b") == (63_500, 130_560)
    assert hosts.requests_of("p") == SMALL


def test_more_requested_than_there_is_leaves_less_than_nothing(columns: Columns, hosts: Hosts):
    hosts.charge("p", "a", Requests(70_000, 200_000))
    assert left(columns, "a") == (-6000, -68_928)


def test_no_amount_reaches_the_value_for_unknown(columns: Columns, hosts: Hosts):
    hosts.set_node("a", NodeFacts(2**63 - 1, 2**63 - 1))
    hosts.charge("p", "b", Requests(2**63 - 1, 2**63 - 1))
    assert left(columns, "a") == (2**61, 2**61)
    assert left(columns, "b") == (-(2**61), -(2**61))


def test_what_is_left_is_unknown_while_no_node_tells(columns: Columns, hosts: Hosts):
    hosts.charge("p", "a", BIG)
    hosts.drop_node("a")
    assert left(columns, "a") == (UNKNOWN, UNKNOWN)
    assert hosts.facts_of("a") is None
    hosts.set_node("a", NodeFacts(8000))
    assert left(columns, "a") == (4000, UNKNOWN)
    assert hosts.nodes() == {"a", "b"}


@pytest.mark.parametrize("row_comes", ["first", "second", "last"])
def test_a_node_may_be_heard_of_before_it_has_a_row(columns: Columns, row_comes: str):
    """A GPUTopology may come after its Node and its pods."""
    hosts = Hosts(columns)
    steps: list[Callable[[], Any]] = [lambda: hosts.charge("p", "new", BIG), lambda: hosts.set_node("new", FACTS)]
    steps.insert({"first": 0, "second": 1, "last": 2}[row_comes], lambda: columns.row("new"))
    for step in steps:
        step()
    hosts.show_new_rows()
    assert left(columns, "new") == (60_000, 122_880)


def test_nodes_without_gpus_get_no_row(columns: Columns):
    hosts = Hosts(columns)
    hosts.set_node("cpu-only", FACTS)
    hosts.charge("p", "cpu-only", BIG)
    hosts.show_new_rows()
    assert columns.count == 0


def test_a_node_of_which_nothing_is_known_any_more_is_not_kept(columns: Columns):
    hosts = Hosts(columns)
    hosts.set_node("a", FACTS)
    hosts.charge("p", "a", BIG)
    hosts.drop_node("a")
    hosts.drop_node("a")
    assert list(hosts._nodes) == ["a"]
    hosts.release("p")
    assert (hosts._nodes, hosts.bound()) == ({}, ())


# --- promises -------------------------------------------------------------------------------------------------------


def test_a_promise_counts_until_it_is_forgotten(columns: Columns, hosts: Hosts):
    hosts.promise("p", "a", BIG)
    assert left(columns, "a") == (60_000, 122_880)
    assert list(hosts.bound()) == []
    hosts.forget("p")
    assert left(columns, "a") == (64_000, 131_072)


def test_a_pod_that_was_seen_bound_counts_where_it_is_whatever_is_promised_and_forgotten(columns: Columns, hosts: Hosts):
    hosts.promise("p", "a", BIG)
    hosts.charge("p", "b", SMALL)
    hosts.promise("p", "a", BIG)
    hosts.forget("p")
    assert (left(columns, "a"), left(columns, "b")) == ((64_000, 131_072), (63_500, 130_560))
    assert list(hosts.bound()) == ["p"]


# --- any sequence ---------------------------------------------------------------------------------------------------

names = st.sampled_from(["a", "b", "c"])
uids = st.sampled_from(["p", "q", "r", "s"])
some_requests = st.sampled_from([NOTHING, SMALL, BIG, Requests(1, 0)])
some_facts = st.sampled_from([FACTS, NodeFacts(8000), NodeFacts(None, 1024)])


class Recounted(RuleBasedStateMachine):
    """Everything that happens to `Hosts`, beside a model that keeps only the last word about each Node and pod."""

    def __init__(self) -> None:
        super().__init__()
        self.columns = Columns()
        self.hosts = Hosts(self.columns)
        self.facts: dict[str, NodeFacts] = {}
        self.pods: dict[str, tuple[str, Requests, bool]] = {}
        self.shown: dict[str, tuple[int, int, int]] = {}

    @rule(name=names)
    def gets_a_row(self, name: str) -> None:
        self.columns.row(name)

    @rule(name=names, facts=some_facts)
    def node_is_seen(self, name: str, facts: NodeFacts) -> None:
        self.hosts.set_node(name, facts)
        self.facts[name] = facts

    @rule(name=names)
    def node_goes(self, name: str) -> None:
        self.hosts.drop_node(name)
        self.facts.pop(name, None)

    @rule(uid=uids, node=names, requests=some_requests)
    def pod_is_seen(self, uid: str, node: str, requests: Requests) -> None:
        self.hosts.charge(uid, node, requests)
        self.pods[uid] = (node, requests, False)

    @rule(uid=uids, node=names, requests=some_requests)
    def pod_is_promised(self, uid: str, node: str, requests: Requests) -> None:
        self.hosts.promise(uid, node, requests)
        if self.pods.get(uid, ("", NOTHING, True))[2]:
            self.pods[uid] = (node, requests, True)

    @rule(uid=uids)
    def promise_is_forgotten(self, uid: str) -> None:
        self.hosts.forget(uid)
        if self.pods.get(uid, ("", NOTHING, False))[2]:
            del self.pods[uid]

    @rule(uid=uids)
    def pod_goes(self, uid: str) -> None:
        self.hosts.release(uid)
        self.pods.pop(uid, None)

    @invariant()
    def sums_equal_a_fresh_recount_and_each_change_is_stamped(self) -> None:
        self.hosts.show_new_rows()
        for name, row in self.columns.row_of.items():
            facts = self.facts.get(name, NodeFacts())
            here = [requests for node, requests, _ in self.pods.values() if node == name]
            cpu = UNKNOWN if facts.cpu_milli is None else facts.cpu_milli - sum(each.cpu_milli for each in here)
            memory = UNKNOWN if facts.memory_mib is None else facts.memory_mib - sum(each.memory_mib for each in here)
            assert left(self.columns, name) == (cpu, memory)
            stamp = int(self.columns.host_generation[row])
            before = self.shown.get(name, (cpu, memory, stamp))
            assert (cpu, memory) == before[:2] or stamp > before[2]
            self.shown[name] = (cpu, memory, stamp)

    @invariant()
    def nothing_is_kept_of_what_is_gone(self) -> None:
        assert self.hosts.nodes() == self.facts.keys()
        assert set(self.hosts.bound()) == {uid for uid, (_, _, promised) in self.pods.items() if not promised}
        assert self.hosts._nodes.keys() == self.facts.keys() | {node for node, _, _ in self.pods.values()}


TestRecounted = Recounted.TestCase
