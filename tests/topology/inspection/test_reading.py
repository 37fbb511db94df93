"""From a text to a report."""

import json
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.errors import NvidiaSmiFailure
from topology.inspection import inspect, unreadable
from topology.inventory import Gpu, Inventory
from topology.nvidia_smi import read_inventory

RING = (
    "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tNV2\tNV2\tSYS\tPIX\t0-7\t0\t\tN/A\n"
    "GPU1\tNV2\t X \tSYS\tNV1\tNODE\t0-7\t0\t\tN/A\n"
    "GPU2\tNV1\tSYS\t X \tNV2\tSYS\t8-15\t1\t\tN/A\n"
    "GPU3\tSOC\tNV1\tNV2\t X \tSYS\t\t\t\tN/A\n"
    "NIC0\tPIX\tNODE\tSYS\tSYS\t X \n"
    "\nNIC Legend:\n\n  NIC0: mlx5_4\n"
)


def codes(report_links: object) -> dict[tuple[str, str], str | None]:
    return {(link.a, link.b): link.code for link in report_links}  # type: ignore[attr-defined]


def test_every_pair_is_told_once_with_its_weaker_code() -> None:
    report = inspect("ring", RING)
    found = codes(report.links)
    assert len(report.links) == 6 + 4
    assert found["GPU0", "GPU2"] == "NV1"
    assert found["GPU0", "NIC0"] == "PIX"
    assert found["GPU0", "GPU3"] in ("SYS", "SOC")
    assert any("GPU0 and GPU2" in warning for warning in report.warnings)


NINE = "\t".join(["", *(f"GPU{a}" for a in range(9))]) + "\n"
NINE += "".join("\t".join([f"GPU{a}", *("X" if a == b else "NV1" if a + b == 1 else "NV2" for b in range(9))]) + "\n" for a in range(9))
BOUNDS = (
    "some GB/s of sets of {} GPUs are lower bounds, as NVLinks form more rings than can be packed at a prompt; there may be better sets than told"
)


def test_it_is_said_where_figures_are_lower_bounds() -> None:
    """Nine GPUs that are all linked have 20,160 rings; eight of them have 2,520."""
    assert BOUNDS.format(9) in inspect("nine", NINE).warnings
    assert not [warning for warning in inspect("nine", NINE, free=frozenset(range(8))).warnings if "bounds" in warning]


def test_soc_stays_soc() -> None:
    report = inspect("old", "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tSOC\t0-7\nGPU1\tSOC\t X \t8-15\n")
    assert (report.links[0].code, report.sets[0].worst) == ("SOC", "SOC")


def test_cells_are_verbatim() -> None:
    gpus = inspect("ring", RING).to_json()["gpus"]
    assert gpus[0] == {"index": 0, "numa": "0", "cpus": "0-7", "gpuNuma": "N/A"}
    assert gpus[3] == {"index": 3, "numa": None, "cpus": None, "gpuNuma": "N/A"}


def test_the_best_set_of_every_size_is_the_best_of_all_sets() -> None:
    best = {len(one.gpus): one for one in inspect("ring", RING).sets}
    every = inspect("ring", RING, sets="all").sets
    assert sorted(best) == [2, 3, 4]
    assert len(every) == 11
    assert {one.gpus for one in every} == {gpus for k in (2, 3, 4) for gpus in combinations(range(4), k)}
    for size, one in best.items():
        assert one.gb_per_s == max(other.gb_per_s for other in every if len(other.gpus) == size)


def test_a_missing_pair_is_null_with_a_warning() -> None:
    report = inspect("cut", "\tGPU0\tGPU1\tGPU2\tNIC0\nGPU0\t X \tNV4\tSYS\tPIX\n")
    assert codes(report.links)["GPU1", "GPU2"] is None
    assert [link.gb_per_s for link in report.links if link.code is None] == [None] * 3
    assert any("GPU1" in warning and "GPU2" in warning for warning in report.warnings)
    assert any("GPU1 and NIC0 and 1 more pair" in warning for warning in report.warnings)


def test_sets_name_gpus_by_their_index() -> None:
    report = inspect("odd", "\tGPU2\tGPU5\nGPU2\t X \tPHB\nGPU5\tPHB\t X \n")
    assert (report.sets[0].positions, report.sets[0].gpus) == ((0, 1), (2, 5))


def test_a_single_gpu_has_no_sets_and_no_links() -> None:
    report = inspect("one", "\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n")
    assert (report.links, report.sets, report.error) == ((), (), None)


def test_the_inventory_counts_and_its_gaps_are_told() -> None:
    inventory = Inventory(
        tuple(Gpu(index=i, model="Tesla V100-SXM2-16GB", pcie_generation=3, pcie_width=16) for i in range(3)), warnings=("odd row",)
    )
    report = inspect("ring", RING, inventory)
    assert "odd row" in report.warnings
    assert any("does not list GPU3" in warning for warning in report.warnings)
    assert report.links[0].gb_per_s == 50.0


def test_mig_devices_of_an_inventory_change_nothing() -> None:
    listing = "GPU 0: NVIDIA A100 (UUID: GPU-1)\n  MIG 1g.5gb     Device  0: (UUID: MIG-1)\n"
    assert inspect("one", "\tGPU0\nGPU0\t X \n", read_inventory(listing)).error is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        pytest.param("", "empty", id="nothing"),
        pytest.param("No devices were found\n", "no_devices", id="no GPU"),
        pytest.param("hello\n", "unknown", id="any text"),
        pytest.param("bash: nvidia-smi: command not found\n", "not_found", id="no tool"),
    ],
)
def test_what_is_no_matrix_is_an_error_with_its_kind(text: str, kind: str) -> None:
    report = inspect("x", text)
    assert report.machine is None
    assert report.error is not None
    assert (report.error.kind, bool(report.error.message)) == (kind, True)


def test_more_gpus_than_the_tables_hold_are_listed_without_sets() -> None:
    names = [f"GPU{i}" for i in range(17)]
    rows = "".join(f"{name}\t" + "\t".join(" X " if name == other else "PHB" for other in names) + "\n" for name in names)
    report = inspect("large", "\t" + "\t".join(names) + "\n" + rows)
    assert len(report.links) == 136
    assert report.sets == ()
    assert any("no sets of GPUs" in warning and "17 GPUs" in warning for warning in report.warnings)


def test_an_unreadable_file_is_a_report_too() -> None:
    report = unreadable("x", "cannot read x: it is a directory", NvidiaSmiFailure.UNKNOWN)
    assert report.to_json()["error"] == {"kind": "unknown", "message": "cannot read x: it is a directory"}


_PIECES = st.sampled_from(
    ["GPU0", "GPU1", "NIC0", "X", "NV4", "SYS", "PIX", "0-7", "N/A", "\t", " ", "\n", "CPU Affinity", "NIC Legend:", "\x1b[4m", "#"]
)


@given(st.lists(_PIECES | st.text(max_size=5), max_size=40).map("".join) | st.text())
def test_no_text_crashes_inspect(text: str) -> None:
    report = inspect("any", text, sets="all")
    assert (report.machine is None) == (report.error is not None)
    json.loads(report.json_line())
