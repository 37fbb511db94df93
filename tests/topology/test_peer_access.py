"""A pair that the driver keeps apart is worth what host memory is worth, and no other figure changes."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.machines import DGX1V, HGX_A100_8, HGX_H100_8, HGX_H800_8, MACHINES, PCIE8_PHB, Machine, irregular_machines, matrix_of
from topology.collective import machine_links, set_bandwidths
from topology.inventory import Inventory
from topology.links import Distance
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


@settings(deadline=None, max_examples=50)
@given(st.sampled_from([HGX_H100_8, HGX_A100_8, HGX_H800_8]), st.sets(st.sampled_from(list(combinations(range(8), 2)))))
def test_behind_nvswitch_too_the_less_is_allowed_the_less_is_carried(machine: Machine, pairs: set[tuple[int, int]]):
    """The cells that are left look like a mesh of far too many links; what was printed says that a switch is there."""
    allowed = as_allowed(machine.matrix, dict.fromkeys(pairs, "NS"))
    links = machine_links(allowed, machine.inventory)
    assert links.switched
    assert (set_bandwidths(links) <= set_bandwidths(machine_links(machine.matrix, machine.inventory)) + 1e-6).all()


@settings(deadline=None, max_examples=30)
@given(st.sets(st.sampled_from(list(combinations(range(8), 2))), max_size=5), st.lists(st.sampled_from([8, 16]), min_size=8, max_size=8))
def test_with_unlike_slots_too_the_less_is_allowed_the_less_is_carried(pairs: set[tuple[int, int]], widths: list[int]):
    """The codes that are left contradict each other; uplinks are shared as before all the same."""
    inventory = Inventory(tuple(replace(gpu, pcie_width=width) for gpu, width in zip(PCIE8_PHB.inventory.gpus, widths, strict=True)))
    allowed = as_allowed(PCIE8_PHB.matrix, dict.fromkeys(pairs, "CNS"))
    assert (set_bandwidths(machine_links(allowed, inventory)) <= set_bandwidths(machine_links(PCIE8_PHB.matrix, inventory)) + 1e-6).all()


def test_four_gpus_behind_nvswitch_with_two_pairs_kept_apart_share_the_links_of_one_gpu():
    """As a mesh they would carry 900 GB/s, twice what a GPU has."""
    allowed = as_allowed(HGX_H100_8.matrix, {(0, 1): "NS", (2, 3): "NS"})
    assert topology_class(allowed, HGX_H100_8.inventory).bandwidth[0b1111] == 450.0


@pytest.mark.parametrize("code", ["PIX", "NODE", "NV4"])
def test_gpus_that_the_driver_keeps_apart_are_on_one_numa_node_as_before(code: str):
    """SYS as a printed code says that two GPUs are on different nodes; SYS for want of peer access says nothing of the kind."""
    matrix = matrix_of(f"X {code}", f"{code} X")
    assert topology_class(as_allowed(matrix, {(0, 1): "CNS"})).numa_groups() == topology_class(matrix).numa_groups() == (0b11,)
    assert topology_class(matrix_of("X SYS", "SYS X")).numa_groups() == (0b01, 0b10)


def test_the_path_under_other_nvlinks_is_judged_by_what_was_printed():
    """GPU0 and GPU1 are joined over GPU2 at most by PIX, however far the driver sends the data of GPU0 and GPU2."""
    matrix = matrix_of("X NV4 PIX", "NV4 X PIX", "PIX PIX X")
    links = machine_links(as_allowed(matrix, {(0, 2): "CNS"}))
    assert [Distance(links.pcie_distance[i, j]).name for i, j in ((0, 1), (0, 2), (1, 2))] == ["PIX", "SYS", "PIX"]


def test_an_nvlink_that_may_not_be_used_carries_nothing_and_its_pcie_path_leads_through_the_host():
    links = machine_links(as_allowed(matrix_of("X NV12", "NV12 X"), {(0, 1): "CNS"}))
    assert (links.nvlinks[0, 1], links.nvlink_gb_per_s[0, 1], links.distance[0, 1], links.pcie_distance[0, 1]) == (0, 0.0, Distance.SYS, Distance.SYS)


def test_what_was_printed_goes_along_where_something_was_lowered():
    allowed = as_allowed(DGX1V.matrix, {(0, 3): "CNS"})
    assert (str(allowed.between(0, 3)), str(allowed.wired(0, 3))) == ("SYS", "NV2")
    assert str(as_allowed(allowed, {(0, 1): "CNS"}).wired(0, 3)) == "NV2"
    assert as_allowed(DGX1V.matrix, {(0, 5): "CNS"}).wires is None, "that pair was printed as SYS"


def test_what_was_printed_makes_a_difference_between_classes():
    """One has a switch that the other has not, although each pair gets the same."""
    allowed = as_allowed(matrix_of("X PIX", "PIX X"), {(0, 1): "CNS"})
    assert topology_class(allowed).key != topology_class(matrix_of("X SYS", "SYS X")).key


def test_a_set_tells_whether_the_driver_keeps_some_of_it_apart():
    kind = topology_class(as_allowed(DGX1V.matrix, {(0, 3): "CNS", (0, 5): "CNS"}))
    assert [kind.lacks_peer_access(mask) for mask in (0b1001, 0b1101, 0b0011, 0b100001)] == [True, True, False, False]


@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda machine: machine.name)
def test_where_all_is_allowed_classes_and_figures_are_those_of_the_printed_matrix(machine: Machine):
    assert as_allowed(machine.matrix, {}).wires is None
    assert topology_class(as_allowed(machine.matrix, {}), machine.inventory) is topology_class(machine.matrix, machine.inventory)
