"""The five sample machines are what they say they are."""

import pytest

from extender.sample_machines import SAMPLE_MACHINES, SampleMachine, sample
from topology.api import read_gputopology
from topology.errors import InputError
from topology.links import LinkCode, gpu_model

machines = pytest.mark.parametrize("machine", SAMPLE_MACHINES.values(), ids=lambda machine: machine.kind)


@machines
def test_every_tuple_has_one_entry_a_gpu(machine: SampleMachine) -> None:
    assert {len(t) for t in (machine.bus_ids, machine.minors, machine.numa_nodes, machine.cpus, machine.gpu_rows, machine.nic_cells())} == {
        machine.size
    }
    assert {len(row) for row in machine.nic_cells()} == {len(machine.nics)}


@machines
def test_matrix_is_square_symmetric_and_made_of_codes(machine: SampleMachine) -> None:
    matrix = sample(machine.kind, "node-a").matrix()
    assert matrix.size == machine.size
    assert matrix.asymmetric() == []
    assert matrix.missing() == []
    assert all(LinkCode.parse(cell) for row in machine.nic_cells() for cell in row)


@machines
def test_model_is_known_and_has_the_links_that_the_matrix_shows(machine: SampleMachine) -> None:
    model = gpu_model(machine.model)
    assert model is not None
    assert (model.nvlinks, model.pcie_generation) == (machine.nvlinks, machine.pcie[0])
    rows = [[code.nvlinks for cell in row.split() if (code := LinkCode.parse(cell))] for row in machine.gpu_rows]
    assert all(sum(row) == machine.nvlinks or set(row) == {machine.nvlinks} for row in rows), "all links are used, or a switch joins them"


def test_nvswitch_machine_shows_28_pairs_of_18_links() -> None:
    assert [str(code) for _, _, code in sample("nvswitch", "node-a").matrix().pairs()] == ["NV18"] * 28


def test_bridges_join_four_pairs_and_not_the_two_lowest_gpus() -> None:
    matrix = sample("bridges", "node-a").matrix()
    assert [(i, j) for i, j, code in matrix.pairs() if code == LinkCode("NV12")] == [(0, 2), (1, 3), (4, 5), (6, 7)]


def test_plain_pcie_machine_has_no_nvlink() -> None:
    assert {str(code) for _, _, code in sample("pcie", "node-a").matrix().pairs()} == {"PIX", "NODE", "SYS"}


@machines
def test_sample_reads_back_from_its_object(machine: SampleMachine) -> None:
    topology = sample(machine.kind, "node-a")
    assert read_gputopology(topology.to_object()) == topology
    assert topology.name == "node-a"


def test_uuids_follow_the_seed_and_nothing_else() -> None:
    def uuids(node_name: str, seed: str | None = None) -> list[str]:
        return [gpu.uuid for gpu in sample("dgx1v", node_name, seed).spec.gpus]

    assert uuids("a") == uuids("a")
    assert uuids("a", "s") == uuids("b", "s")
    assert not set(uuids("a")) & set(uuids("b"))
    assert len(set(uuids("a"))) == 8


def test_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="no sample machine of kind 'dgx3'; accepted: nvswitch, dgx1v, bridges, pcie, mesh"):
        sample("dgx3", "node-a")
