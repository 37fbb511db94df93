"""A machine ready to be shown: numbers with their sources."""

import pytest

from tests.machines import A40_4, DGX1V, HGX_H100_8, MACHINES, Machine, uniform
from topology.inspection import machine_of
from topology.inventory import Gpu, Inventory
from topology.links import LinkCode
from topology.matrix import GpuRow, LinkMatrix, NicColumn, from_codes

TOLD = Inventory(tuple(Gpu(index=i, model="NVIDIA A100-SXM4-40GB", pcie_generation=4, pcie_width=width) for i, width in enumerate((16, 8))))


def pair(code: str, inventory: Inventory | None = None, nic: str = "PIX") -> LinkMatrix:
    link = LinkCode(code)
    return LinkMatrix((GpuRow(0), GpuRow(1)), (NicColumn("NIC0"),), ((None, link), (link, None)), ((LinkCode(nic),), (LinkCode.parse("?"),)), ())


@pytest.mark.parametrize("machine", [pytest.param(machine, id=name) for name, machine in MACHINES.items()])
def test_the_rates_of_pairs_are_those_of_the_bandwidth_model(machine: Machine) -> None:
    found = machine_of(machine.matrix, machine.inventory)
    for i, j, code in machine.matrix.pairs():
        assert code is not None
        expected = found.links.nvlinks[i, j] * found.links.nvlink_gb_per_s[i, j] if code.nvlinks else found.links.pcie_gb_per_s[i, j]
        assert found.rates.gpus[i, j].gb_per_s == pytest.approx(expected)


def test_a_known_model_gives_a_fact_with_its_document() -> None:
    rate = machine_of(DGX1V.matrix, DGX1V.inventory).rates.gpus[0, 3]
    assert (rate.gb_per_s, rate.assumed) == (50.0, False)
    assert "white paper" in rate.source


def test_without_an_inventory_every_rate_is_assumed_and_says_so() -> None:
    rates = machine_of(DGX1V.matrix).rates.gpus.values()
    assert all(rate.assumed and rate.source.startswith("assumed: ") for rate in rates)


def test_a_slot_that_only_the_model_tells_is_assumed() -> None:
    rate = machine_of(A40_4.matrix, A40_4.inventory).rates.gpus[0, 1]
    assert rate.assumed
    assert "PCIe 4 x16 over PXB" in rate.source


def test_the_slower_slot_decides_and_a_told_slot_is_a_fact() -> None:
    rates = machine_of(pair("PHB"), TOLD).rates
    assert rates.gpus[0, 1].gb_per_s == pytest.approx(1.96923 * 8 * 0.7617)
    assert not rates.gpus[0, 1].assumed
    assert rates.nics[0, 0].gb_per_s == pytest.approx(1.96923 * 16 * 0.85)
    assert (1, 0) not in rates.nics


def test_what_nvlink_s_measured_is_a_fact() -> None:
    inventory = Inventory(tuple(Gpu(index=i, nvlink_gb_per_s=14.062) for i in range(2)))
    rate = machine_of(pair("NV4"), inventory).rates.gpus[0, 1]
    assert (rate.gb_per_s, rate.assumed) == (56.25, False)


def test_gpus_behind_nvswitch_are_marked_in_the_graph() -> None:
    assert all(data["nvswitch"] for _, data in machine_of(HGX_H100_8.matrix, HGX_H100_8.inventory).graph.nodes(data=True))
    assert not machine_of(DGX1V.matrix).graph.nodes["GPU0"]["nvswitch"]


def test_more_gpus_than_the_tables_hold_still_have_links() -> None:
    found = machine_of(from_codes([row.split() for row in uniform(17, "PHB")]))
    assert found.sets is None
    assert "17 GPUs" in (found.no_sets or "")
    assert len(found.rates.gpus) == 17 * 16 // 2
    assert found.graph.number_of_nodes() == 17
