"""`nvidia-smi --query-gpu`."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology.errors import NvidiaSmiError
from topology.inventory import Gpu
from topology.nvidia_smi import read_csv_table, read_query_csv

A = "GPU-1aaaaaaa-1111-2222-3333-444444444444"
B = "GPU-2bbbbbbb-1111-2222-3333-444444444444"

# Column, its unit, the field of Gpu that it fills (None: none).
COLUMNS = {
    "index": (None, "index"),
    "uuid": (None, "uuid"),
    "name": (None, "model"),
    "pci.bus_id": (None, "bus_id"),
    "memory.total": ("MiB", "memory_mib"),
    "memory.used": ("MiB", "memory_used_mib"),
    "pcie.link.gen.max": (None, "pcie_generation"),
    "pcie.link.width.max": (None, "pcie_width"),
    "mig.mode.current": (None, "mig_mode"),
    "power.limit": ("W", None),
    "fan.speed": ("%", None),
    "pstate": (None, None),
}


@st.composite
def gpus(draw: st.DrawFn) -> list[Gpu]:
    return [
        Gpu(
            index=index,
            uuid=f"GPU-{draw(st.uuids(version=4))}",
            model=draw(st.sampled_from(["NVIDIA A100-SXM4-80GB", "Quadro RTX 6000", "NVIDIA L4"])),
            bus_id=f"00000000:{0x10 + index:02X}:00.0",
            memory_mib=draw(st.sampled_from([15360, 81920])),
            memory_used_mib=draw(st.integers(0, 15360)),
            pcie_generation=draw(st.integers(3, 6)),
            pcie_width=draw(st.sampled_from([8, 16])),
            mig_mode=draw(st.sampled_from(["Enabled", "Disabled", "N/A"])),
        )
        for index in range(draw(st.integers(1, 8)))
    ]


def rendered(listed: list[Gpu], columns: list[str], *, units: bool, header: bool = True) -> str:
    def cell(gpu: Gpu, column: str) -> str:
        unit, key = COLUMNS[column]
        value = getattr(gpu, key) if key else "1.5"
        return "[N/A]" if value == "N/A" else f"{value} {unit}" if unit and units else str(value)

    lines = [", ".join(f"{c} [{COLUMNS[c][0]}]" if COLUMNS[c][0] and units else c for c in columns)] if header else []
    return "\n".join(lines + [", ".join(cell(gpu, column) for column in columns) for gpu in listed]) + "\n"


@settings(max_examples=60, deadline=None)
@given(listed=gpus(), columns=st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=12, unique=True), units=st.booleans())
def test_any_columns_in_any_order_read_back(listed: list[Gpu], columns: list[str], *, units: bool):
    columns = columns if {"index", "uuid", "pci.bus_id"} & set(columns) else ["index", *columns]
    told = [COLUMNS[column][1] for column in columns]
    inventory = read_query_csv(rendered(listed, columns, units=units))
    assert inventory.gpus == tuple(Gpu(**{key: getattr(gpu, key) for key in told if key}) for gpu in listed)
    assert inventory.warnings == ()


@settings(max_examples=30, deadline=None)
@given(listed=gpus())
def test_without_a_header_identities_and_names_are_recognised_by_their_values(listed: list[Gpu]):
    inventory = read_query_csv(rendered(listed, ["pci.bus_id", "memory.total", "name", "uuid"], units=True, header=False))
    assert inventory.gpus == tuple(Gpu(uuid=gpu.uuid, bus_id=gpu.bus_id, model=gpu.model) for gpu in listed)
    assert "no header" in inventory.warnings[0]


def test_a_copied_command_names_the_columns_of_a_table_without_a_header():
    inventory = read_query_csv("$ nvidia-smi --query-gpu=index,memory.total --format=csv,noheader,nounits\n0, 81920\n")
    assert inventory.gpus == (Gpu(index=0, memory_mib=81920),)


def test_a_running_index_is_recognised_but_one_zero_is_not():
    assert [gpu.index for gpu in read_query_csv("0, NVIDIA L4\n1, NVIDIA L4\n").gpus] == [0, 1]
    assert [gpu.index for gpu in read_query_csv("0, NVIDIA L4\n").gpus] == [None]


def test_the_driver_belongs_to_the_inventory():
    assert read_query_csv("index, driver_version\n0, 550.54.15\n").driver_version == "550.54.15"


def test_a_lost_gpu_in_its_row_is_lost_and_the_others_are_not():
    inventory = read_query_csv(f"index, uuid, memory.total [MiB]\n0, {A}, 81920 MiB\n1, [GPU is lost], [GPU is lost]\n")
    assert inventory.gpus == (Gpu(index=0, uuid=A, memory_mib=81920), Gpu(index=1, lost=True))
    assert inventory.warnings == ("GPU 1 no longer answers: [GPU is lost]",)


def test_a_message_between_good_rows_is_a_lost_gpu_with_its_bus_id():
    inventory = read_query_csv(
        f"index, uuid\n0, {A}\nUnable to determine the device handle for GPU 0000:5e:00.0: Unknown Error\n2, {B}\n",
    )
    assert inventory.gpus == (Gpu(index=0, uuid=A), Gpu(index=2, uuid=B), Gpu(bus_id="00000000:5E:00.0", lost=True))
    assert "0000:5e:00.0" in inventory.warnings[0]


def test_a_row_of_another_width_is_left_out_with_a_warning_not_shifted():
    inventory = read_query_csv(f"index, uuid, name\n0, {A}, NVIDIA L4\n1, {B}\n")
    assert [gpu.index for gpu in inventory.gpus] == [0]
    assert f"1, {B}" in inventory.warnings[0]


def test_samples_of_a_loop_are_one_gpu_and_the_last_one_counts():
    inventory = read_query_csv(f"index, uuid, memory.used [MiB]\n0, {A}, 5 MiB\n0, {A}, 9 MiB\n0, [Unknown Error], [Unknown Error]\n")
    assert inventory.gpus == (Gpu(index=0, uuid=A, memory_used_mib=9, lost=True),)


def test_the_header_of_each_sample_is_no_row():
    assert len(read_csv_table("index, name\n0, NVIDIA L4\nindex, name\n0, NVIDIA L4\n").rows) == 2


def test_two_machines_in_one_table_are_not_merged_by_index():
    inventory = read_query_csv("index, name\n0, NVIDIA L4\n0, NVIDIA A30\n")
    assert [gpu.model for gpu in inventory.gpus] == ["NVIDIA L4", "NVIDIA A30"]
    assert "index 0 stands for 2 GPUs" in inventory.warnings[0]


def test_masked_uuids_are_none_and_the_gpus_stay_two():
    mask = "GPU-00000000-0000-0000-0000-000000000000"
    inventory = read_query_csv(f"index, uuid\n0, {mask}\n1, {mask}\n")
    assert [(gpu.index, gpu.uuid) for gpu in inventory.gpus] == [(0, None), (1, None)]
    assert len(inventory.warnings) == 2


def test_cells_are_kept_as_printed():
    table = read_csv_table("index, power.limit [W]\n0, 700.00 W\n1, [N/A]\n")
    assert table.columns == ("index", "power.limit")
    assert table.column("power.limit") == ("700.00 W", "[N/A]")
    assert table.column("serial") is None
    assert (table.width, table.loose_lines) == (2, ())


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        pytest.param("", "empty", id="nothing"),
        pytest.param("No devices were found", "no_devices", id="no devices"),
        pytest.param("index, name\nNo devices were found", "no_devices", id="no devices below a header"),
        pytest.param("index, name\n", "partial", id="a header alone"),
        pytest.param("Hello, world", "unknown", id="any text with a comma"),
        pytest.param("compute_cap\n8.0", "unknown", id="no column that tells of a GPU"),
        pytest.param("GPU 0: NVIDIA A30", "bad_arguments", id="-L"),
    ],
)
def test_a_text_without_a_gpu_is_an_error(text: str, kind: str):
    with pytest.raises(NvidiaSmiError) as caught:
        read_query_csv(text)
    assert caught.value.kind == kind
