"""The columns keep one row a node for ever, stamp every change, and never change what a reader has been given."""

import numpy as np
import pytest

from extender.cluster.columns import NO_CLASS, NO_GPUS, UNKNOWN, Columns, NodeGpus
from extender.reasons import Refusal
from extender.sample_machines import sample
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
    gpus, closed_by = columns.share_lists()
    columns.set_gpus(row, GPUS)
    columns.set_closed(row, Refusal.STALE, "silent")
    columns.row("b")
    assert (gpus, closed_by) == ([NO_GPUS], [""])
    assert (columns.gpus, columns.closed_by) == ([GPUS, NO_GPUS], ["silent", ""])


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


@pytest.mark.parametrize("count", [64, 65, 128, 129])
def test_doubling_leaves_no_gap(count: int):
    columns = Columns()
    for number in range(count):
        assert columns.row(f"node-{number}") == number
    assert len(columns.gpus) == len(columns.closed_by) == len(columns.names) == count
