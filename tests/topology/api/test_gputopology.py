"""A GPUTopology reads back as it was written, and what cannot describe a node is refused by name."""

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extender.sample_machines import SAMPLE_MACHINES, sample
from topology.api import GPUTopology, read_gputopology
from topology.errors import TopologyError
from topology.links import LinkCode

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["metadata", "name", "spec", "status", "gpus", "links", "uuid", "index", "nics", "x"]), inner, max_size=5)
    ),
    max_leaves=25,
)


@pytest.mark.parametrize("kind", SAMPLE_MACHINES)
def test_reading_undoes_writing(kind: str) -> None:
    topology = sample(kind, "node-a")
    assert read_gputopology(topology.to_object()) == topology


@pytest.mark.parametrize("kind", SAMPLE_MACHINES)
def test_matrix_and_inventory_are_the_machine(kind: str) -> None:
    machine, topology = SAMPLE_MACHINES[kind], sample(kind, "node-a")
    matrix, inventory = topology.matrix(), topology.inventory()
    assert [[("X" if i == j else str(code)) for j, code in enumerate(row)] for i, row in enumerate(matrix.gpu_cells)] == [
        row.split() for row in machine.gpu_rows
    ]
    assert [[str(code) for code in row] for row in matrix.nic_cells] == [list(row) for row in machine.nic_cells()]
    assert [gpu.uuid for gpu in inventory.gpus] == list(machine.uuids("node-a"))
    assert [gpu.minor for gpu in inventory.gpus] == list(machine.minors)
    assert {(gpu.pcie_generation, gpu.pcie_width, gpu.nvlinks, gpu.memory_mib) for gpu in inventory.gpus} == {
        (*machine.pcie, machine.nvlinks, machine.memory_mib)
    }
    assert inventory.driver_version == machine.driver_version


def refusing(kind: str, *pairs: dict[str, Any]) -> dict[str, Any]:
    raw = sample(kind, "node-a").to_object()
    raw["spec"]["links"]["noPeerAccess"] = list(pairs)
    return raw


def test_pairs_without_peer_access_count_as_sys_whatever_their_code_says() -> None:
    topology = read_gputopology(refusing("nvswitch", {"a": 5, "b": 2, "status": "CNS"}))
    assert str(topology.matrix().between(2, 5)) == "SYS"
    assert str(topology.printed_matrix().between(2, 5)) == "NV18"
    assert any("no peer access between GPU2 and GPU5 (CNS)" in warning for warning in topology.matrix().warnings)
    assert read_gputopology(topology.to_object()) == topology


@pytest.mark.parametrize(
    ("pair", "problem"),
    [
        pytest.param({"a": 1, "b": 8, "status": "CNS"}, "names GPUs 1 and 8; accepted: two different places from 0 to 7", id="no such GPU"),
        pytest.param({"a": 1, "b": 1, "status": "CNS"}, "names GPUs 1 and 1; accepted: two different places from 0 to 7", id="one GPU"),
        pytest.param({"a": -1, "b": 1, "status": "CNS"}, "noPeerAccess", id="before the first"),
    ],
)
def test_a_pair_that_is_none_is_refused_by_name(pair: dict[str, Any], problem: str) -> None:
    with pytest.raises(TopologyError, match=problem):
        read_gputopology(refusing("nvswitch", pair))


def test_what_the_api_server_adds_is_kept_or_skipped() -> None:
    raw = sample("mesh", "node-a").to_object()
    raw["metadata"] |= {"resourceVersion": "7", "uid": "u", "managedFields": [{}]}
    raw["spec"]["later"] = {"new": 1}
    assert read_gputopology(raw).name == "node-a"


def test_dash_and_blank_are_unknown_links() -> None:
    raw = sample("mesh", "node-a").to_object()
    raw["spec"]["links"]["gpus"][0][1] = raw["spec"]["links"]["gpus"][1][0] = "-"
    raw["spec"]["links"]["gpus"][2][3] = ""
    matrix = read_gputopology(raw).matrix()
    assert matrix.missing() == [(0, 1)]
    assert matrix.between(2, 3) == LinkCode("NV4"), "the other direction is known"


def change(path: str, value: Any) -> Any:
    """Return a change of one place of an object; None removes it."""

    def apply(raw: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        place: Any = raw
        for part in parents:
            place = place[int(part) if part.isdigit() else part]
        if value is None:
            del place[last]
        else:
            place[int(last) if last.isdigit() else last] = value

    return apply


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        pytest.param(change("apiVersion", "linkwise.dev/v2"), "apiVersion: Input should be 'linkwise.dev/v1alpha1'", id="another version"),
        pytest.param(change("kind", "Node"), "kind: Input should be 'GPUTopology'", id="another kind"),
        pytest.param(change("spec", None), "spec: Field required", id="no spec"),
        pytest.param(change("spec.gpus", []), r"spec\.gpus: .* at least 1 item", id="no GPU"),
        pytest.param(change("spec.gpus.0.uuid", ""), r"spec\.gpus\.0\.uuid", id="an empty UUID"),
        pytest.param(change("spec.gpus.0.uuid", None), r"spec\.gpus\.0\.uuid: Field required", id="no UUID"),
        pytest.param(change("spec.gpus.0.index", 1), "spec.gpus holds index 1 twice", id="one index twice"),
        pytest.param(change("spec.gpus.0.index", -1), r"spec\.gpus\.0\.index", id="an index below zero"),
        pytest.param(change("spec.links.gpus.0.1", "NVL4"), "spec.links holds 'NVL4'; accepted: X, -, NV1 to NV99", id="an unknown code"),
        pytest.param(change("spec.links.gpus.0.1", "nv4"), "spec.links holds 'nv4'", id="a code in small letters"),
        pytest.param(change("spec.links.gpus.0", ["X", "NV4"]), "the link matrix names 4 GPUs but its rows have", id="a short row"),
        pytest.param(change("spec.links.nics.0", ["SYS"]), "the link matrix names 2 NICs but its rows have", id="a short row of NICs"),
        pytest.param(change("spec.links.nics", [["SYS", "SYS"]]), "the link matrix names 2 NICs but its rows have", id="NIC rows missing"),
        pytest.param(change("spec.gpus.0.memoryMiB", -5), r"spec\.gpus\.0\.memoryMiB", id="memory below zero"),
        pytest.param(change("spec.source.kind", "guess"), r"spec\.source\.kind", id="an unknown source"),
    ],
)
def test_what_cannot_describe_a_node_is_refused_by_name(damage: Any, said: str) -> None:
    raw = copy.deepcopy(sample("mesh", "node-a").to_object())
    damage(raw)
    with pytest.raises(TopologyError, match=f"GPUTopology node-a: {said}"):
        read_gputopology(raw)


@pytest.mark.parametrize("raw", [None, [], "text", 7, True])
def test_what_is_no_object_is_refused(raw: object) -> None:
    with pytest.raises(TopologyError, match=r"accepted: an object with metadata\.name and spec"):
        read_gputopology(raw)


@given(JSON)
def test_no_json_crashes_the_reader(raw: object) -> None:
    with pytest.raises(TopologyError):
        read_gputopology(raw)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(list(SAMPLE_MACHINES)), st.data())
def test_no_damaged_object_crashes_the_reader_or_its_matrix(kind: str, data: st.DataObject) -> None:
    """One place of a good object is replaced by anything: a sentence, or an object whose matrix and inventory can be made."""
    raw = copy.deepcopy(sample(kind, "node-a").to_object())
    place: Any = raw
    while True:
        key = data.draw(st.sampled_from(list(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(JSON)
    try:
        topology = read_gputopology(raw)
    except TopologyError:
        return
    assert topology.matrix().size == len(topology.inventory().gpus)
    assert isinstance(topology, GPUTopology)
