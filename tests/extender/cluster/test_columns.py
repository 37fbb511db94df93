"""The columns keep one row a node for ever, stamp every change, and never change what a reader has been given."""

from copy import deepcopy

import numpy as np
import pytest

from extender.cluster.columns import NO_CLASS, NO_GPUS, UNKNOWN, Columns, NodeGpus, Taken
from extender.reasons import Refusal
from extender.sample_machines import sample
from tests.builders import cluster, extender_on, pod
from topology.inventory import Gpu, Inventory
from topology.topology_class import topology_class

GPUS = NodeGpus.of(sample("mesh", "a").inventory())


def class_of(kind: str):
    topology = sample(kind, "a")
    return topology_class(topology.matrix(), topology.inventory())


def test_a_node_is_closed_from_its_first_mention_until_its_topology_comes():
    columns = Columns()
    row = columns.row("a")
    assert columns.closed[row] == Refusal.NO_TOPOLOGY
    assert (columns.class_index[row], columns.usable[row], columns.held[row]) == (NO_CLASS, 0, 0)
    assert columns.gpus[row] is NO_GPUS


def test_a_node_keeps_its_row():
    columns = Columns()
    rows = [columns.row(name) for name in ("a", "b", "a", "c", "b")]
    assert rows == [0, 1, 0, 2, 1]
    assert columns.count == 3
    assert columns.names == ["a", "b", "c"]


def test_the_arrays_grow_and_keep_what_they_hold():
    columns = Columns()
    first = columns.row("first")
    columns.usable[first], columns.held[first] = 0b1111, 0b0001
    columns.class_index[first] = columns.class_number(class_of("mesh"))
    columns.set_closed(first, Refusal.FITS, "")
    for number in range(1000):
        columns.row(f"node-{number}")
    assert columns.count == 1001
    assert (columns.usable[first], columns.held[first], columns.class_index[first], columns.closed[first]) == (0b1111, 0b0001, 0, Refusal.FITS)
    assert set(columns.closed[1:1001].tolist()) == {Refusal.NO_TOPOLOGY}
    assert set(columns.class_index[1:1001].tolist()) == {NO_CLASS}
    assert {len(array) for array in (columns.class_index, columns.usable, columns.held, columns.closed, columns.row_generation)} == {1024}
    assert {len(array) for array in (columns.cpu_left, columns.memory_left, columns.host_generation)} == {1024}
    assert columns.offered.shape == columns.left.shape == (1024, 16)
    assert set(columns.cpu_left.tolist()) == set(columns.memory_left.tolist()) == {UNKNOWN}


def test_every_touch_has_a_generation_of_its_own():
    columns = Columns()
    a, b = columns.row("a"), columns.row("b")
    before = columns.generation
    columns.touch(a)
    columns.touch(b)
    assert (columns.row_generation[a], columns.row_generation[b], columns.generation) == (before + 1, before + 2, before + 2)


def test_cpu_and_memory_have_a_stamp_that_costs_no_answer_about_gpus():
    columns = Columns()
    row = columns.row("a")
    before = int(columns.row_generation[row])
    columns.touch_host(row)
    assert (columns.row_generation[row], columns.host_generation[row], columns.generation) == (before, before + 1, before + 1)
    columns.touch(row)
    assert columns.row_generation[row] == columns.host_generation[row] == columns.generation


def test_lists_that_a_reader_holds_are_copied_before_the_next_write():
    columns = Columns()
    row = columns.row("a")
    gpus, closed_by = columns.gpus.handed_out(), columns.closed_by.handed_out()
    columns.set_gpus(row, GPUS)
    columns.set_closed(row, Refusal.STALE, "silent")
    columns.row("b")
    assert (list(gpus), list(closed_by)) == ([NO_GPUS], [""])
    assert (list(columns.gpus.handed_out()), list(columns.closed_by.handed_out())) == ([GPUS, NO_GPUS], ["silent", ""])


def test_equal_hardware_shares_one_class():
    columns = Columns()
    numbers = [columns.class_number(class_of(kind)) for kind in ("mesh", "dgx1v", "mesh")]
    assert numbers == [0, 1, 0]
    assert [kind.size for kind in columns.classes] == [4, 8]


def test_gpus_are_told_by_uuid_and_position_is_only_where_they_stand_now():
    inventory = sample("mesh", "a").inventory()
    uuids = [str(gpu.uuid) for gpu in inventory.gpus]
    assert GPUS.mask_of([uuids[0], uuids[3]]) == 0b1001
    assert GPUS.mask_of(["GPU-of-another-node"]) == 0
    assert GPUS.memory_mib == (40960,) * 4
    backwards = NodeGpus.of(type(inventory)(tuple(reversed(inventory.gpus))))
    assert backwards.mask_of([uuids[0], uuids[1]]) == 0b1100
    assert backwards.indices == (3, 2, 1, 0)


def test_sixteen_gpus_fit_into_the_masks():
    assert np.iinfo(Columns().usable.dtype).bits >= 16


def test_each_gpu_offers_its_own_whole_gib_less_the_reserve():
    columns = Columns()
    row = columns.row("a")
    gpus = tuple(Gpu(index=at, uuid=f"GPU-{at}", memory_mib=mib) for at, mib in enumerate((81_559, 8_192, None)))
    for reserve, offered in ((0, (79 * 1024, 8_192, 0)), (500, (79 * 1024, 7 * 1024, 0)), (90_000, (0, 0, 0))):
        columns.set_gpus(row, NodeGpus.of(Inventory(gpus), reserve))
        assert columns.offered[row].tolist() == [*offered, *[0] * 13]


@pytest.mark.parametrize(
    ("usable", "taken", "left"),
    [
        pytest.param(0b1111, Taken(0, {}), (40, 40, 40, 40), id="nothing is taken"),
        pytest.param(0b1111, Taken(0b0010, {0: 10}), (30, 0, 40, 40), id="a part of one, all of another"),
        pytest.param(0b1111, Taken(0b0001, {0: 10}), (0, 40, 40, 40), id="both of one"),
        pytest.param(0b1110, Taken(0, {0: 10, 3: 50}), (0, 40, 40, 0), id="of a broken one nothing, of an overfull one no less than nothing"),
        pytest.param(0, Taken(0, {}), (0, 0, 0, 0), id="no GPU works"),
    ],
)
def test_what_is_left_of_each_gpu(usable: int, taken: Taken, left: tuple[int, ...]):
    columns = Columns()
    row = columns.row("a")
    columns.set_gpus(row, GPUS)
    columns.usable[row] = usable
    in_mib = Taken(taken.whole, {bit: gib * 1024 for bit, gib in taken.shares.items()})
    assert columns.left_of(row, in_mib) == (*(gib * 1024 for gib in left), *[0] * 12)
    assert in_mib.bits == taken.whole | sum(1 << bit for bit in taken.shares)


def test_no_size_of_a_gpu_is_too_absurd():
    """An object may hold any number, and the columns hold 32 bits."""
    extender = extender_on(cluster().mesh("a"))
    absurd = deepcopy(cluster().mesh("a").topologies[0])
    for gpu, mib in zip(absurd["spec"]["gpus"], (2**62, 2**31, 0, 1023), strict=True):
        gpu["memoryMiB"] = mib
    assert extender.cluster.apply_topology(absurd) is None
    assert extender.filter(pod().shared(65_536))["NodeNames"] == ["a"]
    assert extender.cluster.view().offered[0, :4].tolist() == [65_536 * 1024, 65_536 * 1024, 0, 0]


@pytest.mark.parametrize("count", [64, 65, 128, 129])
def test_doubling_leaves_no_gap(count: int):
    columns = Columns()
    for number in range(count):
        assert columns.row(f"node-{number}") == number
    assert len(columns.gpus) == len(columns.closed_by) == len(columns.names) == count
