"""The picture of a machine: what stands in it, and that it is a picture whatever the machine."""

import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given

from tests.graphs import graph_by_hand, graph_of, machine_graphs
from tests.machines import BRIDGES_8, DGX1V, HGX_H100_8, MACHINES, Machine
from topology.graph import MachineGraph, Marks, Words, draw_machine, machine_title, standalone
from topology.graph.pcie_tree import gpu_labels

_SVG = "{http://www.w3.org/2000/svg}"


def elements(graph: MachineGraph, **options: bool) -> ET.Element:
    return ET.fromstring(standalone(draw_machine(graph, **options)))


def words(root: ET.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{_SVG}text")]


def hints(root: ET.Element, pattern: str) -> list[str]:
    return [element.text or "" for element in root.iter(f"{_SVG}title") if re.search(pattern, element.text or "")]


@pytest.mark.parametrize("machine", [pytest.param(machine, id=name) for name, machine in MACHINES.items()])
def test_every_gpu_stands_in_the_picture_once(machine: Machine) -> None:
    shown = [word for word in words(elements(graph_of(machine))) if re.fullmatch(r"GPU\d+", word)]
    assert sorted(shown) == sorted(f"GPU{i}" for i in range(machine.size))


def test_a_mesh_has_one_line_a_pair() -> None:
    assert len(hints(elements(graph_of(DGX1V)), r"GPU\d to GPU\d: NV")) == 16


def test_an_nvswitch_has_one_line_a_gpu_and_one_bar() -> None:
    root = elements(graph_of(HGX_H100_8))
    assert len(hints(root, "NVLinks to the NVSwitch")) == 8
    assert not hints(root, r"GPU\d to GPU\d")
    assert "NVSwitch · 450 GB/s per GPU" in words(root)


def test_pcie_is_drawn_as_brackets_with_code_and_rate() -> None:
    shown = words(elements(graph_of(BRIDGES_8)))
    assert sum(word.startswith("NODE · ≈ 22.1 GB/s") and "pairs" not in word for word in shown) == 2
    assert "SYS · ≈ 18.3 GB/s" in shown


def test_nics_show_their_names_and_their_distance() -> None:
    graph = graph_by_hand("X NV2", "NV2 X", numa=("0", "0"), nics={"mlx5_0": "PIX SYS", "mlx5_1": "NODE NODE", "eth0": "? ?"})
    shown = words(elements(graph))
    assert {"mlx5_0", "PIX", "mlx5_1", "NODE from every GPU", "eth0", "no link printed"} <= set(shown)
    assert "mlx5_0" not in words(elements(graph, nics=False))


def test_models_and_memory_are_shown() -> None:
    root = elements(graph_of(HGX_H100_8))
    assert "8 × NVIDIA H100 80GB HBM3" in words(root)
    assert words(root).count("80 GiB") == 8


@pytest.mark.parametrize(
    ("models", "title"),
    [
        pytest.param([None], "1 GPU", id="nothing known of one"),
        pytest.param([None, None], "2 GPUs", id="nothing known of two"),
        pytest.param(["A", "A"], "2 × A", id="all equal"),
        pytest.param(["A", None, "A"], "2 × A, 1 × GPU", id="mixed"),
    ],
)
def test_the_title_counts_the_models(models: list[str | None], title: str) -> None:
    graph = graph_by_hand(*(" ".join("X" if i == j else "SYS" for j in range(len(models))) for i in range(len(models))))
    for i, model in enumerate(models):
        graph.nodes[f"GPU{i}"]["model"] = model
    assert machine_title(graph) == title


def test_chosen_gpus_stand_out_and_other_links_fade() -> None:
    graph = graph_of(DGX1V)
    plain = draw_machine(graph)
    marked = draw_machine(graph, marks=Marks({0: "#aa0000", 3: "#aa0000"}, frozenset({7})))
    assert "#aa0000" not in plain.body
    assert marked.body.count('fill="#aa0000"') == 2
    assert marked.body.count('opacity="0.22"') == 15  # of 16 NVLinks
    assert marked.body.count("in use") == 1
    assert (marked.width, marked.height) == (plain.width, plain.height)


def test_title_and_legend_can_be_left_out() -> None:
    graph = graph_of(DGX1V)
    bare = draw_machine(graph, Words(title=""), legend=False)
    full = draw_machine(graph, Words(subtitle="a subtitle"))
    assert bare.height < full.height
    assert "a subtitle" in full.body
    assert "Tesla" not in re.sub("<title>.*?</title>", "", bare.body)


def test_a_picture_is_the_same_every_time() -> None:
    assert draw_machine(graph_of(DGX1V)) == draw_machine(graph_of(DGX1V))


@given(machine_graphs())
def test_any_machine_is_a_well_formed_picture(graph: MachineGraph) -> None:
    shown = words(elements(graph))
    assert all(shown.count(gpu) == 1 for gpu in gpu_labels(graph))


def test_hostile_names_stay_names() -> None:
    graph = graph_by_hand("X", nics={"</text><script>": "PIX"})
    graph.nodes["GPU0"]["model"] = '"><script>&' + "x" * 5000
    root = elements(graph)
    assert not list(root.iter(f"{_SVG}script"))
    assert float(root.attrib["width"]) < 1300
