"""What is kept of nodes and kinds of machines that are gone does not grow for ever, and what anybody still needs of them stays."""

from datetime import timedelta
from itertools import combinations, islice

import pytest

from extender.cluster import Cluster, Entry, EntryState
from extender.cluster.gone import FEWEST_CLASSES, FEWEST_ROWS
from extender.cluster.pods import RefusedPod
from extender.demand import read_demand
from tests.builders import NOW, Extender, JsonObject, changed, cluster, extender_on, kube_node, pod
from topology.collective import Depth

STAYS = cluster().pcie("stays")
KIND = STAYS.topologies[0]
ASKING = pod("asking").gpus(1)


def passing(number: int, kept_apart: tuple[tuple[int, int], ...] = ()) -> JsonObject:
    """Return the GPUTopology of a node whose name never comes again."""
    topology = changed(KIND, kept_apart=kept_apart)
    topology["metadata"]["name"] = f"passing-{number}"
    return topology


def let_pass(state: Cluster, count: int, first: int = 0) -> None:
    """Let so many nodes come and go, one after the other."""
    for number in range(first, first + count):
        state.apply_node(kube_node(f"passing-{number}", cpu="64"))
        state.apply_topology(passing(number))
        state.remove_node(f"passing-{number}")
        state.remove_topology(f"passing-{number}")
        state.forget_gone()


@pytest.fixture
def extender() -> Extender:
    """Return an extender over one node that stays."""
    return extender_on(STAYS)


def test_nodes_whose_names_never_come_again_leave_nothing(extender: Extender):
    """Rows stay below a bound, however many nodes came and went, and the node that is there answers as before."""
    let_pass(extender.cluster, 3 * FEWEST_ROWS)
    view = extender.cluster.view()
    assert view.rows <= FEWEST_ROWS + 1
    assert len(view.names) == len(view.row_of) == view.rows
    assert extender.filter(ASKING, "stays", "passing-0", f"passing-{3 * FEWEST_ROWS - 1}")["NodeNames"] == ["stays"]


def test_a_few_rows_are_not_worth_it(extender: Extender):
    """A cluster that breathes between two sizes is not numbered anew all the time."""
    before = extender.cluster.view().names
    let_pass(extender.cluster, FEWEST_ROWS - 1)
    assert extender.cluster.view().names is before


def test_a_large_cluster_with_fewer_gone_than_there_keeps_its_rows():
    """Numbering all rows anew costs as much as there are; that many must have gone since."""
    there = extender_on(cluster().pcie(*(f"n{number}" for number in range(FEWEST_ROWS + 10))))
    let_pass(there.cluster, FEWEST_ROWS)
    assert there.cluster.view().rows == 2 * FEWEST_ROWS + 10


@pytest.mark.parametrize("what", ["a promise", "a bound pod", "a pod without GPUs", "a Node", "a hold", "a refusal of kubelet"])
def test_what_is_known_of_a_node_that_is_gone_keeps_its_row(what: str, extender: Extender):
    """Nothing that is held or remembered there is lost, nor found under another node."""
    state, uuid = extender.cluster, KIND["spec"]["gpus"][0]["uuid"]
    name = "passing-1000000"
    state.apply_topology(passing(1000000))
    if what == "a promise":
        state.ledger.promise(Entry("uid", "default", "p", name, frozenset((uuid,)), EntryState.PROMISED))
    elif what == "a bound pod":
        state.apply_pod(pod("p").holding(name, uuid).build())
    elif what == "a pod without GPUs":
        state.apply_pod(pod("p").plain(cpu="2").bound_to(name).build())
    elif what == "a Node":
        state.apply_node(kube_node(name, cpu="64"))
    elif what == "a hold":
        state.hold("uid", state.view().row_of[name], 1, 5.0)
    else:
        refused = RefusedPod("uid", "default/p", name, NOW)
        state.kubelet_refusals.note(read_demand(ASKING.build()).shape, refused, NOW, NOW + timedelta(seconds=1))
    state.remove_topology(name)
    let_pass(state, FEWEST_ROWS + 10)
    view = state.view()
    row = view.row_of[name]
    assert (view.rows < FEWEST_ROWS, view.names[row]) == (True, name)
    if what in ("a promise", "a bound pod"):
        state.apply_topology(passing(1000000))
        assert not state.view().free.item(state.view().row_of[name]) & 1
    elif what == "a hold":
        assert [hold.row for hold in view.holds] == [row]
    elif what == "a refusal of kubelet":
        assert [set(by_row) for by_row in view.kubelet_refusals.values()] == [{row}]
    elif what != "a bound pod":
        state.apply_node(kube_node(name, cpu="10"))
        assert state.view().cpu_left.item(row) == (8000 if what == "a pod without GPUs" else 10_000)


def test_a_pod_that_was_deleted_by_force_goes_with_its_node(extender: Extender):
    """Nobody will ever say that its containers have ended; if the machine comes back, its agent tells who holds what."""
    state = extender.cluster
    observed = passing(1000000)
    observed["status"] |= {"holdersObserved": True, "observedAt": NOW.isoformat()}
    state.apply_topology(observed)
    left = pod("left").holding("passing-1000000", KIND["spec"]["gpus"][0]["uuid"])
    state.apply_pod(left.build())
    state.remove_pod(left.uid, ended=False)
    assert state.ledger.get(left.uid) is not None
    state.remove_topology("passing-1000000")
    let_pass(state, FEWEST_ROWS)
    assert state.ledger.get(left.uid) is None
    assert "passing-1000000" not in state.view().row_of
    assert state.hand_off_differences()["left"] == 0


def test_kinds_of_machines_that_are_gone_leave_nothing(extender: Extender):
    """A node whose links fail again and again is of a new class each time; those of which no node is are given up."""
    state = extender.cluster
    for pairs in islice(combinations(combinations(range(4), 2), 3), 20):
        for apart in ((), ((0, 4),), ((0, 5),), ((0, 6),), ((0, 7),)):
            state.apply_topology(passing(0, (*pairs, *apart)))
            state.forget_gone()
    view = state.view()
    assert len(view.classes) <= FEWEST_CLASSES + 2
    assert [view.classes[view.class_index[view.row_of[name]]].lacks_peer_access(255) for name in ("stays", "passing-0")] == [False, True]


def test_a_class_that_is_gone_is_not_worked_out_further(extender: Extender):
    """What another process still brings for it is put aside."""
    state = extender.cluster
    state.depth = Depth.AT_ONCE
    topology = changed(cluster().dgx1v("m").topologies[0])
    for gpu in topology["spec"]["gpus"]:
        gpu["model"] = "of this test alone"  # classes that are known already are known whole
    state.apply_topology(topology)
    (kind,) = state.shallow_classes()
    state.remove_topology("m")
    state.forget_gone(fewest_classes=0)
    assert state.shallow_classes() == []
    state.deepen(kind)
    assert state.shallow_classes() == []
    assert kind not in state.view().classes
