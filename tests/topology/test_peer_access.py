"""A pair that the driver keeps apart is worth what host memory is worth, and no other figure changes."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.machines import DGX1V, HGX_H100_8, Machine, irregular_machines
from topology.collective import machine_links, set_bandwidths
from topology.peer_access import as_allowed, told
from topology.topology_class import topology_class


def test_where_nothing_is_refused_the_matrix_is_the_same_object_and_nothing_is_told():
    matrix = DGX1V.matrix
    assert as_allowed(matrix, {}) is matrix
    assert told(DGX1V.matrix, {}) == ""


def test_a_refused_pair_makes_another_class_with_other_figures():
    """So that floors, distances and the choice of sets follow, on this node and on no other."""
    allowed = as_allowed(HGX_H100_8.matrix, {(0, 1): "CNS"})
    kind, whole = topology_class(allowed, HGX_H100_8.inventory), topology_class(HGX_H100_8.matrix, HGX_H100_8.inventory)
    assert kind.key != whole.key
    assert (whole.bandwidth[0b11], whole.bandwidth[0b110]) == (450.0, 450.0)
    assert kind.bandwidth[0b110] == 450.0
    assert kind.bandwidth[0b11] < 40.0
    best = kind.best_set(0b111, 2)
    assert best is not None
    assert best.mask != 0b11


@settings(deadline=None, max_examples=50)
@given(irregular_machines(), st.data())
def test_the_less_is_allowed_the_less_is_carried(machine: Machine, data: st.DataObject):
    pairs = list(combinations(range(machine.size), 2))
    refused = dict.fromkeys(data.draw(st.lists(st.sampled_from(pairs), max_size=4)), "NS")
    before, after = (set_bandwidths(machine_links(matrix, machine.inventory)) for matrix in (machine.matrix, as_allowed(machine.matrix, refused)))
    assert (after <= before + 1e-6).all()
