"""What the kernel tells of a GPU is read from real files, and what it does not tell stays unknown."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.sample_machines import DGX1V, MESH, PCIE, SAMPLE_MACHINES, SampleMachine
from tests.stand_in import write_minor, write_pci_device, write_sysfs
from topology.agent.sysfs import PciePath, boot_id, fill_from_kernel, path_level, read_links
from topology.inventory import Gpu, Inventory

HOST = "pci0000:3a"


@pytest.mark.parametrize(
    ("a", "b", "same_numa_node", "level"),
    [
        pytest.param((HOST, "rp", "up", "d0"), (HOST, "rp", "up", "d1"), True, "PIX", id="two ports of one switch"),
        pytest.param((HOST, "rp", "up", "d0"), (HOST, "rp", "up", "d0"), True, "PIX", id="two chips on one board"),
        pytest.param((HOST, "rp"), (HOST, "rp"), True, "PIX", id="one root port for both"),
        pytest.param((HOST, "rp", "up", "d0", "up2", "d2"), (HOST, "rp", "up", "d1", "up3", "d3"), True, "PXB", id="two switches below a third"),
        pytest.param((HOST, "rp", "up", "d0"), (HOST, "rp", "up", "d1", "up2", "d2"), True, "PXB", id="one of them a switch further down"),
        pytest.param((HOST, "rp0", "up0", "d0"), (HOST, "rp1", "up1", "d1"), True, "PHB", id="two root ports of one host bridge"),
        pytest.param((HOST,), (HOST,), True, "PHB", id="both directly on one host bridge"),
        pytest.param((HOST, "rp"), ("pci0000:5d", "rp"), True, "NODE", id="two host bridges of one NUMA node"),
        pytest.param((HOST, "rp"), ("pci0000:b0", "rp"), False, "SYS", id="two NUMA nodes"),
    ],
)
def test_path_level_follows_the_words_of_the_legend(a: tuple[str, ...], b: tuple[str, ...], same_numa_node: bool, level: str) -> None:
    here, there = PciePath(a[0], a[1:]), PciePath(b[0], b[1:])
    assert path_level(here, there, same_numa_node=same_numa_node) == level
    assert path_level(there, here, same_numa_node=same_numa_node) == level


def test_plain_pcie_machine_gets_from_the_kernel_what_nvidia_smi_prints(tmp_path: Path) -> None:
    matrix = read_links(gpus_of(PCIE, write_sysfs(tmp_path, PCIE)), tmp_path / "sys")
    assert [["X" if code is None else code.text for code in row] for row in matrix.gpu_cells] == [row.split() for row in PCIE.gpu_rows]


def test_cube_mesh_shows_its_pcie_switches_and_no_nvlink(tmp_path: Path) -> None:
    matrix = read_links(gpus_of(DGX1V, write_sysfs(tmp_path, DGX1V)), tmp_path / "sys")
    assert [str(matrix.between(0, j)) for j in range(1, 8)] == ["PIX", "PHB", "PHB", "SYS", "SYS", "SYS", "SYS"]


def test_without_numa_nodes_the_longest_path_is_assumed(tmp_path: Path) -> None:
    matrix = read_links(gpus_of(PCIE, write_sysfs(tmp_path, PCIE, numa=False)), tmp_path / "sys")
    assert [str(matrix.between(0, j)) for j in range(1, 8)] == ["PIX", *["SYS"] * 6]


def test_a_gpu_that_the_kernel_does_not_show_has_no_links(tmp_path: Path) -> None:
    gpus = [*gpus_of(MESH, write_sysfs(tmp_path, MESH)), Gpu(index=4, bus_id="00000000:FF:00.0"), Gpu(index=5)]
    matrix = read_links(gpus, tmp_path / "sys")
    assert {(i, j) for i, j in matrix.missing()} == {(i, j) for i in range(5) for j in (4, 5) if i < j}


@pytest.mark.parametrize("machine", SAMPLE_MACHINES.values(), ids=lambda machine: machine.kind)
def test_facts_of_every_machine_are_filled_in(tmp_path: Path, machine: SampleMachine) -> None:
    gpus = gpus_of(machine, write_sysfs(tmp_path, machine))
    assert [gpu.numa_node for gpu in gpus] == list(machine.numa_nodes)
    assert [gpu.cpus for gpu in gpus] == list(machine.cpus)
    assert [gpu.minor for gpu in gpus] == list(machine.minors)
    assert {(gpu.pcie_generation, gpu.pcie_width) for gpu in gpus} == {machine.pcie}


def test_what_nvidia_smi_told_is_kept(tmp_path: Path) -> None:
    told = Gpu(index=0, bus_id=MESH.bus_ids[0], numa_node=9, cpus="1-2", pcie_generation=3, pcie_width=8, minor=7)
    assert fill_from_kernel(Inventory((told,)), write_sysfs(tmp_path, MESH)).gpus == (told,)


@pytest.mark.parametrize(
    ("files", "want"),
    [
        pytest.param({"numa_node": "-1"}, Gpu(), id="NUMA node -1 is unknown"),
        pytest.param({"numa_node": "8"}, Gpu(numa_node=8), id="NUMA nodes need not be contiguous"),
        pytest.param({"max_link_speed": "2.5 GT/s", "max_link_width": "1"}, Gpu(pcie_generation=1, pcie_width=1), id="generation 1"),
        pytest.param({"max_link_speed": "8 GT/s"}, Gpu(pcie_generation=3), id="speed as kernels before 5.7 print it"),
        pytest.param({"max_link_speed": "64.0 GT/s PCIe", "max_link_width": "16"}, Gpu(pcie_generation=6, pcie_width=16), id="generation 6"),
        pytest.param({"max_link_speed": "Unknown", "max_link_width": "255"}, Gpu(), id="a virtual machine shows no slot"),
        pytest.param({"max_link_width": "0"}, Gpu(), id="width 0 is unknown"),
        pytest.param({"local_cpulist": ""}, Gpu(), id="an empty CPU list is unknown"),
        pytest.param({"numa_node": "two", "max_link_width": "x16", "max_link_speed": ""}, Gpu(), id="damaged files tell nothing"),
        pytest.param({}, Gpu(), id="no files at all"),
    ],
)
def test_kernel_files(tmp_path: Path, files: dict[str, str], want: Gpu) -> None:
    write_pci_device(tmp_path / "sys", "pci0000:3a/0000:3a:00.0", "0000:3b:00.0", files)
    read = fill_from_kernel(Inventory((Gpu(bus_id="00000000:3B:00.0"),)), tmp_path / "sys").gpus[0]
    assert read == want.filled_from(Gpu(bus_id="00000000:3B:00.0"))


def test_the_slower_end_of_the_slot_decides(tmp_path: Path) -> None:
    root = tmp_path / "sys"
    write_pci_device(root, "pci0000:3a", "0000:3a:00.0", {"max_link_speed": "8.0 GT/s PCIe", "max_link_width": "8"})
    write_pci_device(root, "pci0000:3a/0000:3a:00.0", "0000:3b:00.0", {"max_link_speed": "16.0 GT/s PCIe", "max_link_width": "16"})
    read = fill_from_kernel(Inventory((Gpu(bus_id="00000000:3B:00.0"),)), root).gpus[0]
    assert (read.pcie_generation, read.pcie_width) == (3, 8)


def test_minor_number_is_read_although_sysfs_does_not_show_the_device(tmp_path: Path) -> None:
    write_minor(tmp_path, "0000:3b:00.0", 12)
    assert fill_from_kernel(Inventory((Gpu(bus_id="00000000:3B:00.0"),)), tmp_path / "sys").gpus[0].minor == 12


def test_a_pci_domain_of_more_than_four_digits_is_found(tmp_path: Path) -> None:
    write_pci_device(tmp_path / "sys", "pci10000:00/10000:00:01.0", "10000:01:00.0", {"numa_node": "1"})
    assert fill_from_kernel(Inventory((Gpu(bus_id="00010000:01:00.0"),)), tmp_path / "sys").gpus[0].numa_node == 1


def test_a_boot_has_a_name_where_the_kernel_tells_it(tmp_path: Path) -> None:
    assert boot_id(tmp_path / "sys") is None
    path = tmp_path / "proc" / "sys" / "kernel" / "random" / "boot_id"
    path.parent.mkdir(parents=True)
    path.write_text("")
    assert boot_id(tmp_path / "sys") is None
    path.write_text("0d1e2f30-0000-4000-8000-000000000001\n")
    assert boot_id(tmp_path / "sys") == "0d1e2f30-0000-4000-8000-000000000001"


@given(st.text())
def test_no_bus_id_leaves_the_root_or_crashes(bus_id: str) -> None:
    told = Inventory((Gpu(index=0, bus_id=bus_id),))
    assert fill_from_kernel(told, Path("/nowhere/sys")) == told


def gpus_of(machine: SampleMachine, root: Path) -> list[Gpu]:
    """Return the machine's GPUs as the kernel alone completes them."""
    bare = Inventory(tuple(Gpu(index=i, bus_id=bus_id) for i, bus_id in enumerate(machine.bus_ids)))
    return list(fill_from_kernel(bare, root).gpus)
