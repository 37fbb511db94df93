"""Classes of links in the report for people."""

from topology.inspection import inspect, machine_of
from topology.inspection.link_classes import link_classes
from topology.inventory import Gpu, Inventory
from topology.matrix import from_codes

CUT = "\tGPU0\tGPU1\tGPU2\tNIC0\nGPU0\t X \tNV4\tSYS\tPIX\n"


def test_classes_are_counted_and_what_was_not_printed_is_one_too() -> None:
    machine = inspect("cut", CUT).machine
    assert machine is not None
    found = [(one.code, one.between, one.pairs, one.rates is None) for one in link_classes(machine)]
    assert found == [
        ("NV4", "GPUs", 1, False),
        ("SYS", "GPUs", 1, False),
        ("-", "GPUs", 1, True),
        ("PIX", "GPU, NIC", 1, False),
        ("-", "GPU, NIC", 2, True),
    ]


def test_a_class_of_several_rates_gives_the_range_and_says_so() -> None:
    slots = Inventory(tuple(Gpu(index=i, pcie_generation=generation, pcie_width=16) for i, generation in enumerate((4, 4, 3))))
    (only,) = link_classes(machine_of(from_codes([["X", "PHB", "PHB"], ["PHB", "X", "PHB"], ["PHB", "PHB", "X"]]), slots))
    assert only.rates is not None
    assert only.rates[0] < only.rates[1]
    assert only.source.endswith("(and 1 more)")
