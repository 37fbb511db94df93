"""PCIe rings over a rebuilt hierarchy, against every order of every set that visits each subtree once."""

from itertools import combinations, pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.corpus import CorpusFile, corpus_files
from topology.collective import machine_links, set_bandwidths
from topology.collective.pcie import pcie_rings, pcie_tree
from topology.errors import LinkwiseError
from topology.inventory import Gpu, Inventory
from topology.links import PCIE_PATH_SHARE, Distance
from topology.matrix import from_codes
from topology.nvidia_smi import read_topology

Groups = list[tuple[int, list[int]]]


@st.composite
def hierarchies(draw: st.DrawFn, most: int = 6) -> NDArray[np.int8]:
    """Draw the distances of a machine whose GPUs hang on switches, bridges and sockets in some way: parts merge at random, level by level."""
    size = draw(st.integers(2, most))
    distance = np.zeros((size, size), np.int8)
    parts = [[gpu] for gpu in range(size)]
    for level in PCIE_PATH_SHARE:
        of = [draw(st.integers(0, len(parts) - 1)) if level is not Distance.SYS else 0 for _ in parts]
        merged = [[gpu for part, to in zip(parts, of, strict=True) if to == group for gpu in part] for group in sorted(set(of))]
        for group in merged:
            for a, b in permutations(group, 2):
                if not distance[a, b]:
                    distance[a, b] = level
        parts = merged
    return distance


def best_ring(distance: NDArray[np.int8], slots: list[float], chosen: tuple[int, ...]) -> float:
    """GB/s of the best ring of all that visit each group of near GPUs once."""
    groups = [{b for b in chosen if distance[a, b] <= level} for a in chosen for level in PCIE_PATH_SHARE]
    rates = []
    for order in permutations(chosen[1:]):
        hops = list(pairwise((chosen[0], *order, chosen[0])))
        if all(sum((a in group) != (b in group) for a, b in hops) <= 2 for group in groups):
            rates.append(min(PCIE_PATH_SHARE[Distance(distance[a, b])].share * min(slots[a], slots[b]) for a, b in hops))
    return max(rates)


@settings(deadline=None)
@given(hierarchies(), st.data())
def test_every_set_gets_the_best_ring_of_all_that_visit_each_subtree_once(distance: NDArray[np.int8], data: st.DataObject):
    """Slots may differ: then the order inside a subtree decides, and every order is tried."""
    slots = data.draw(st.lists(st.sampled_from([4.0, 8.0, 16.0, 32.0]), min_size=len(distance), max_size=len(distance)))
    tree = pcie_tree(distance)
    assert tree is not None
    rings = pcie_rings(tree, np.array(slots))
    for size in range(2, len(distance) + 1):
        for chosen in combinations(range(len(distance)), size):
            assert rings[sum(1 << gpu for gpu in chosen)] == pytest.approx(best_ring(distance, slots, chosen)), chosen


@settings(deadline=None)
@given(hierarchies(most=8))
def test_equal_slots_are_as_fast_as_the_longest_path_of_the_set(distance: NDArray[np.int8]):
    """The shortcut for equal slots and the walk over the tree agree: one slot a hair slower changes its own sets by a hair."""
    tree = pcie_tree(distance)
    assert tree is not None
    rings = pcie_rings(tree, np.full(len(distance), 16.0))
    for mask in range(1 << len(distance)):
        chosen = [gpu for gpu in range(len(distance)) if mask >> gpu & 1]
        farthest = max((int(distance[a, b]) for a, b in combinations(chosen, 2)), default=0)
        assert rings[mask] == (16.0 * PCIE_PATH_SHARE[Distance(farthest)].share if farthest else 0.0)
    nearly = pcie_rings(tree, np.array([16.0 - 1e-9] + [16.0] * (len(distance) - 1)))
    assert nearly == pytest.approx(rings, abs=1e-8)


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(["X PIX SYS", "PIX X PIX", "SYS PIX X"], id="two GPUs near a third and far from each other"),
        pytest.param(["X PHB SYS SYS", "PHB X SYS NODE", "SYS SYS X PHB", "SYS NODE PHB X"], id="a short way between two sockets for one pair only"),
    ],
)
def test_codes_that_contradict_each_other_are_no_hierarchy(rows: list[str]):
    """The ring then takes every hop as it is printed."""
    links = machine_links(from_codes([row.split() for row in rows]))
    assert pcie_tree(links.pcie_distance) is None
    everything = (1 << links.size) - 1
    hops = [min(links.pcie_gb_per_s[a, b] for a, b in pairwise((0, *order, 0))) for order in permutations(range(1, links.size))]
    assert set_bandwidths(links)[everything] == pytest.approx(max(hops))


def test_a_slow_slot_between_two_fast_ones_slows_the_ring_by_its_nearest_paths_only():
    """Two switches; the x8 GPU stands inside its switch's stretch, so that its half-width slot never meets the way between the sockets."""
    codes = [row.split() for row in ("X PIX PIX SYS SYS", "PIX X PIX SYS SYS", "PIX PIX X SYS SYS", "SYS SYS SYS X PIX", "SYS SYS SYS PIX X")]
    gpus = tuple(Gpu(index=i, model="NVIDIA L40S", pcie_generation=4, pcie_width=8 if i == 0 else 16) for i in range(5))
    table = set_bandwidths(machine_links(from_codes(codes), Inventory(gpus)))
    x16, x8 = 16 * 1.96923, 8 * 1.96923
    assert table[0b11111] == pytest.approx(min(0.85 * x8, 0.58 * x16))
    assert table[0b11011] == pytest.approx(0.58 * x8), "without its second neighbour one of its two hops leaves the switch"


@pytest.mark.parametrize("file", corpus_files("topo-m"))
def test_every_recorded_machine_is_a_hierarchy(file: CorpusFile):
    """So the printed codes of real machines, with what is assumed under NVLinks, do form a tree."""
    try:
        matrix = read_topology(file.text)
    except LinkwiseError:
        return
    assert matrix.size == 0 or pcie_tree(machine_links(matrix).pcie_distance) is not None


def test_no_gpus_are_no_hierarchy():
    """An empty matrix has no root."""
    assert pcie_tree(np.zeros((0, 0), np.int8)) is None
