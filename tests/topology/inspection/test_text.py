"""The report for people, at 80 columns and without colour."""

from dataclasses import replace

import pytest
from hypothesis import given

from tests.machines import A6000_PAIR_PLUS_SINGLE, HGX_H100_8, MACHINES, Machine, irregular_machines, uniform
from topology.errors import InternalError
from topology.inspection import Report, inspect, machine_of, unreadable
from topology.inspection.text import MOST_SETS, plain, report_for_people
from topology.inventory import Gpu, Inventory

MATRIX = (
    "\tGPU0\tGPU1\tNIC0\tNIC1\tNIC2\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\tPIX\tPIX\tPIX\t0-7\t1\nGPU1\tNV4\t X \tSYS\tSYS\tNODE\t8-15\t0\n"
)


def lines(report: Report, width: int = 80) -> list[str]:
    return plain(report_for_people(report), width).splitlines()


def text_of(machine: Machine) -> str:
    names = [f"GPU{i}" for i in range(machine.size)]
    return "\t" + "\t".join(names) + "\n" + "".join(f"{name}\t" + "\t".join(row) + "\n" for name, row in zip(names, machine.codes, strict=True))


@pytest.mark.parametrize("machine", [pytest.param(machine, id=name) for name, machine in MACHINES.items()])
def test_every_machine_is_readable_at_80_columns(machine: Machine) -> None:
    shown = lines(inspect(machine.name, text_of(machine), machine.inventory))
    assert max(map(len, shown)) <= 80
    assert not [line for line in shown if line.endswith(" ")]
    assert not [line for line in shown if "…" in line]


def test_gpus_stand_by_numa_node_with_their_nearest_nics() -> None:
    shown = lines(inspect("m", MATRIX))
    assert shown[:2] == ["m", "2 GPUs, 2 NUMA nodes, 3 NICs"]
    table = [line.split() for line in shown[3:8]]
    assert ["1", "GPU0", "PIX", "NIC0,", "NIC1", "and", "1", "more", "0-7"] in table
    assert ["0", "GPU1", "NODE", "NIC2", "8-15"] in table


def test_models_and_memory_have_columns_only_where_they_differ() -> None:
    same = Inventory(tuple(Gpu(index=i, model="NVIDIA A40", memory_mib=46068) for i in range(2)))
    shown = lines(inspect("m", MATRIX, same))
    assert shown[1] == "2 × NVIDIA A40 with 45 GiB, 2 NUMA nodes, 3 NICs"
    assert not any(line.startswith("NUMA") and "Model" in line for line in shown)
    mixed = Inventory((Gpu(index=0, model="NVIDIA A40", memory_mib=46068), Gpu(index=1, model="Tesla T4", memory_mib=15109)))
    shown = lines(inspect("m", MATRIX, mixed))
    assert any("Model" in line and "Memory" in line for line in shown)
    assert any("Tesla T4" in line and "15 GiB" in line for line in shown)


def test_every_class_has_its_rate_and_says_where_from() -> None:
    shown = "\n".join(lines(inspect("m", MATRIX)))
    assert "NV4" in shown
    assert "56.2" in shown
    assert "assumed: PCIe 3 x16 over PIX" in shown


def test_every_size_has_its_best_set_and_the_reason() -> None:
    shown = lines(inspect("m", text_of(HGX_H100_8), HGX_H100_8.inventory))
    assert [line.split()[0] for line in shown if "450.0" in line and "NVSwitch" in line] == [str(k) for k in range(2, 9)]


def test_all_sets_are_named_by_what_they_are() -> None:
    shown = lines(inspect("m", text_of(A6000_PAIR_PLUS_SINGLE), sets="all"))
    assert any(line.startswith("Every set") for line in shown)
    assert any("0-2" in line for line in shown)
    assert any("1,2" in line for line in shown)


def test_more_sets_than_anybody_reads_are_counted() -> None:
    ten = replace(MACHINES["pcie4_phb"], rows=uniform(10, "PHB"))
    shown = lines(inspect("m", text_of(ten), sets="all"))
    assert f"… and {2**10 - 10 - 1 - MOST_SETS} more sets; --output json lists all" in shown
    assert len(shown) < MOST_SETS + 60


def test_warnings_are_listed_and_a_single_one_is_called_so() -> None:
    machine = machine_of(MACHINES["pcie4_phb"].matrix)
    assert "Warning" in lines(Report("m", machine, warnings=("only one",)))
    both = lines(Report("m", machine, warnings=("first", "second " * 20)))
    assert "Warnings" in both
    assert "- first" in both
    assert not any("arning" in line for line in lines(Report("m", machine)))


def test_brackets_and_escapes_from_outside_stay_text() -> None:
    inventory = Inventory((Gpu(index=0, model="[bold]\x1b[31mX"), Gpu(index=1, model="Y")))
    shown = "\n".join(lines(inspect("[red]m[/red]", MATRIX, inventory)))
    assert "[red]m[/red]" in shown
    assert "[bold]?[31mX" in shown


def test_a_report_without_a_machine_has_nothing_to_show() -> None:
    with pytest.raises(InternalError, match="without a machine"):
        report_for_people(unreadable("m", "no"))


@given(irregular_machines())
def test_any_machine_can_be_told(machine: Machine) -> None:
    assert max(map(len, lines(inspect("m", text_of(machine))))) <= 80
