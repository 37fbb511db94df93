"""Graphviz text."""

import re

from hypothesis import given
from hypothesis import strategies as st

from tests.graphs import graph_by_hand, graph_of, machine_graphs
from tests.machines import BRIDGES_8
from topology.graph import MachineGraph, to_dot
from topology.graph.dot import quoted

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_LINE = re.compile(
    rf"\s*(?:graph {_STRING} \{{|\}}|subgraph {_STRING} \{{|label={_STRING}|(?:graph|node|edge|{_STRING}(?: -- {_STRING})?) \[(?:\w+={_STRING}(?:, )?)+\])"
)


def is_graphviz(text: str) -> bool:
    """Check the part of graphviz's grammar that is used: one statement a line, every name and value quoted, braces that match."""
    lines = text.splitlines()
    return all(_LINE.fullmatch(line) for line in lines) and sum(line.endswith("{") for line in lines) == sum(line.strip() == "}" for line in lines)


def test_a_machine_is_one_cluster_a_numa_node_and_one_edge_a_pair() -> None:
    text = to_dot(graph_of(BRIDGES_8), "a machine")
    assert is_graphviz(text)
    assert text.startswith('graph "a machine" {\n')
    assert text.count("subgraph") == 2
    assert text.count(" -- ") == 28
    assert '"GPU0" -- "GPU1" [label="NV12 300 GB/s"' in text
    assert r'"GPU0" [label="GPU0\nNVIDIA A100-PCIE-40GB\n40 GiB"]' in text


def test_nvlink_is_solid_and_pcie_dashed() -> None:
    text = to_dot(graph_by_hand("X NV4 SYS", "NV4 X SYS", "SYS SYS X"))
    styles = dict(re.findall(r'"(GPU\d" -- "GPU\d)" .*style="(\w+)"', text))
    assert styles == {'GPU0" -- "GPU1': "solid", 'GPU0" -- "GPU2': "dashed", 'GPU1" -- "GPU2': "dashed"}


def test_a_nic_hangs_on_its_nearest_gpus_only() -> None:
    text = to_dot(graph_by_hand("X SYS", "SYS X", nics={"mlx5_0": "PIX SYS"}))
    assert '"GPU0" -- "mlx5_0"' in text
    assert '"GPU1" -- "mlx5_0"' not in text


@given(machine_graphs(), st.text())
def test_any_machine_of_any_name_is_valid_graphviz(graph: MachineGraph, name: str) -> None:
    assert is_graphviz(to_dot(graph, name))


@given(st.text())
def test_a_quoted_text_is_one_string_on_one_line(text: str) -> None:
    assert re.fullmatch(_STRING, quoted(text))
