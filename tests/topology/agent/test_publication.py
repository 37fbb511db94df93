"""What is published follows from the facts: nothing is guessed, nothing is left out without a note."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from extender.sample_machines import DGX1V, MESH, NVSWITCH, SAMPLE_MACHINES, SampleMachine, sample
from topology.agent.publication import Facts, as_yaml, publication
from topology.api import GPUTopology, read_gputopology
from topology.errors import TopologyError
from topology.inventory import Gpu, Inventory
from topology.links import LinkCode
from topology.matrix import GpuRow, LinkMatrix, NicColumn, from_codes

NOW = datetime(2026, 3, 1, 12, 0, 0, 987654, tzinfo=UTC)
PHB_PAIR = from_codes([["X", "PHB"], ["PHB", "X"]])


def test_a_machine_of_which_everything_is_known_is_published_in_full() -> None:
    topology = publication("node-a", facts(DGX1V), NOW)
    assert topology.spec == sample("dgx1v", "node-a").spec
    assert topology.spec.source.quality == "full"
    assert {c.type: (c.status, c.reason) for c in topology.status.conditions} == {
        "DriverReady": ("True", "NvidiaSmiAnswers"),
        "LinksKnown": ("True", "MatrixRead"),
        "GPUsHealthy": ("True", "AllHealthy"),
    }
    assert topology.status.health == "Healthy"
    assert topology.status.holders_observed is False
    assert topology.status.free_gpus is None


def test_time_is_the_clocks_in_whole_seconds() -> None:
    status = publication("node-a", facts(MESH), NOW).status
    assert status.observed_at == NOW.replace(microsecond=0)
    assert {c.last_transition_time for c in status.conditions} == {NOW.replace(microsecond=0)}


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        pytest.param("nvswitch", "NV18", id="NVSwitch"),
        pytest.param("dgx1v", "NV1,NV2", id="cube mesh"),
        pytest.param("bridges", "NV12", id="bridge pairs"),
        pytest.param("pcie", "none", id="no NVLink"),
        pytest.param("mesh", "NV4", id="full mesh"),
    ],
)
def test_nvlink_in_one_word(kind: str, said: str) -> None:
    assert publication("node-a", facts(SAMPLE_MACHINES[kind]), NOW).spec.nvlink == said


def test_nvlink_codes_are_sorted_by_number() -> None:
    matrix = from_codes([["X", "NV12", "NV4"], ["NV12", "X", "NV4"], ["NV4", "NV4", "X"]])
    assert publication("node-a", Facts(bare(3), matrix), NOW).spec.nvlink == "NV4,NV12"


@pytest.mark.parametrize(
    ("models", "said"),
    [
        pytest.param(["NVIDIA L4", "NVIDIA L4"], "NVIDIA L4", id="one model"),
        pytest.param(["NVIDIA L4", "NVIDIA T4"], "mixed: NVIDIA L4, NVIDIA T4", id="two models"),
        pytest.param(["NVIDIA L4", None], "NVIDIA L4", id="one unknown"),
        pytest.param([None, None], None, id="all unknown"),
    ],
)
def test_common_model(models: list[str | None], said: str | None) -> None:
    gpus = tuple(replace(gpu, model=model) for gpu, model in zip(bare(2).gpus, models, strict=True))
    assert publication("node-a", Facts(Inventory(gpus), PHB_PAIR), NOW).spec.model == said


def test_a_lost_gpu_of_known_identity_is_published_as_unhealthy_beside_the_others() -> None:
    whole = facts(NVSWITCH)
    topology = publication("node-a", replace(whole, inventory=lose(whole.inventory, 5), matrix=without_row(whole.matrix, 5)), NOW)
    assert [gpu.healthy for gpu in topology.status.gpus] == [True] * 5 + [False] + [True] * 2
    assert topology.status.gpus[5].reason == "the driver reports this GPU as lost; it needs a reset or a reboot"
    assert topology.status.health == "1 of 8 lost"
    assert condition(topology, "GPUsHealthy") == ("False", "GPULost")
    assert topology.spec.links.gpus[0] == ("X", "NV18", "NV18", "NV18", "NV18", "-", "NV18", "NV18")
    assert topology.spec.links.gpus[5] == ("-", "-", "-", "-", "-", "X", "-", "-")
    assert topology.spec.source.quality == "partial"
    assert "GPU 5 is not in the link matrix: its links are unknown" in topology.spec.source.notes


def test_a_lost_gpu_without_identity_is_left_out_with_a_note() -> None:
    whole = facts(MESH)
    lost = Gpu(bus_id=MESH.bus_ids[3], lost=True)
    topology = publication("node-a", replace(whole, inventory=Inventory((*whole.inventory.gpus[:3], lost)), matrix=without_row(whole.matrix, 3)), NOW)
    assert [gpu.index for gpu in topology.spec.gpus] == [0, 1, 2]
    assert topology.status.health == "1 of 4 lost"
    assert condition(topology, "GPUsHealthy") == ("False", "GPULost")
    assert any("at 00000000:C1:00.0 is lost and does not tell its UUID" in note for note in topology.spec.source.notes)


def test_a_row_of_the_matrix_without_a_gpu_is_left_out_with_a_note() -> None:
    whole = facts(MESH)
    topology = publication("node-a", replace(whole, inventory=Inventory(whole.inventory.gpus[:3])), NOW)
    assert topology.spec.gpu_count == 3
    assert topology.spec.links.gpus == (("X", "NV4", "NV4"), ("NV4", "X", "NV4"), ("NV4", "NV4", "X"))
    assert topology.spec.source.quality == "partial"
    assert "GPU3 is in the link matrix, but nvidia-smi lists no such GPU: it is left out" in topology.spec.source.notes


def test_rows_are_matched_by_index_and_not_by_position() -> None:
    whole = facts(DGX1V)
    shuffled = Inventory(tuple(reversed(whole.inventory.gpus)), whole.inventory.driver_version)
    assert publication("node-a", replace(whole, inventory=shuffled), NOW) == publication("node-a", whole, NOW)


def test_missing_cells_make_the_source_partial() -> None:
    cells = ((None, None), (None, None))
    matrix = LinkMatrix((GpuRow(0), GpuRow(1)), (NicColumn("NIC0"),), cells, ((None,), (LinkCode("PIX"),)))
    topology = publication("node-a", Facts(bare(2), matrix), NOW)
    assert topology.spec.links.gpus == (("X", "-"), ("-", "X"))
    assert topology.spec.links.nics == (("-",), ("PIX",))
    assert topology.spec.source.quality == "partial"
    assert "the links of 1 pairs of GPUs are unknown" in topology.spec.source.notes
    assert "the links of 1 pairs of GPU and NIC are unknown" in topology.spec.source.notes
    assert condition(topology, "LinksKnown") == ("False", "MatrixIncomplete")


def test_a_pair_of_which_one_direction_is_printed_is_known() -> None:
    matrix = LinkMatrix((GpuRow(0), GpuRow(1)), (), ((None, LinkCode("NV2")), (None, None)), ((), ()))
    assert publication("node-a", Facts(bare(2), matrix), NOW).spec.source.quality == "full"


def test_warnings_of_the_readers_become_notes_once_each() -> None:
    inventory = Inventory(bare(1).gpus, warnings=("b", "b"))
    matrix = LinkMatrix((GpuRow(0),), (), ((None,),), ((),), warnings=("a",))
    source = publication("node-a", Facts(inventory, matrix), NOW).spec.source
    assert (source.notes, source.quality) == (("a", "b"), "full")


@pytest.mark.parametrize(
    ("nvlinks", "said"),
    [pytest.param(0, "none", id="nvlink -s shows none"), pytest.param(12, "unknown", id="some"), pytest.param(None, "unknown", id="it told nothing")],
)
def test_a_fallback_says_that_nvlink_was_not_seen(nvlinks: int | None, said: str) -> None:
    inventory = Inventory(tuple(replace(gpu, nvlinks=nvlinks) for gpu in bare(2).gpus))
    topology = publication("node-a", Facts(inventory, PHB_PAIR, fallback="why"), NOW)
    assert topology.spec.nvlink == said
    assert topology.spec.source.model_dump() == {"kind": "sysfs", "quality": "fallback", "notes": ("why",)}
    assert condition(topology, "LinksKnown") == ("False", "NVLinkUnseen")


@pytest.mark.parametrize(
    ("row", "numa", "cpus"),
    [
        pytest.param(GpuRow(0, cpus="0-3", numa="1"), 1, "0-3", id="the matrix tells"),
        pytest.param(GpuRow(0, cpus="N/A", numa="N/A"), 7, "8-9", id="the matrix says N/A"),
        pytest.param(GpuRow(0), 7, "8-9", id="the matrix has no such columns"),
        pytest.param(GpuRow(0, cpus="", numa="0-1"), 7, "8-9", id="several NUMA nodes are not one"),
    ],
)
def test_affinity_of_the_matrix_goes_before_the_kernels(row: GpuRow, numa: int, cpus: str) -> None:
    gpu = replace(bare(1).gpus[0], numa_node=7, cpus="8-9")
    spec = publication("node-a", Facts(Inventory((gpu,)), LinkMatrix((row,), (), ((None,),), ((),))), NOW).spec.gpus[0]
    assert (spec.numa_node, spec.cpus) == (numa, cpus)


def test_mig_mode_is_carried() -> None:
    whole = facts(NVSWITCH)
    gpus = (replace(whole.inventory.gpus[0], mig_mode="Enabled"), *whole.inventory.gpus[1:])
    topology = publication("node-a", replace(whole, inventory=replace(whole.inventory, gpus=gpus)), NOW)
    assert [gpu.mig_mode for gpu in topology.spec.gpus] == ["Enabled"] + ["Disabled"] * 7


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        pytest.param(Gpu(index=1, bus_id="00000000:3B:00.0"), "GPU 1 at 00000000:3B:00.0 cannot be published: nvidia-smi shows no UUID", id="none"),
        pytest.param(Gpu(index=1, uuid="GPU-..."), r"GPU 1 cannot be published: nvidia-smi shows the UUID 'GPU-\.\.\.'", id="elided"),
        pytest.param(Gpu(uuid="GPU-00000000-0000-0000-0000-000000000009"), "a GPU cannot be published.*accepted: an index and a UUID", id="no index"),
    ],
)
def test_a_working_gpu_that_nobody_could_be_given_is_an_error(gpu: Gpu, said: str) -> None:
    with pytest.raises(TopologyError, match=said):
        publication("node-a", Facts(Inventory((*bare(1).gpus, gpu)), from_codes([["X"]])), NOW)


def test_two_gpus_of_one_uuid_are_an_error() -> None:
    gpus = (bare(1).gpus[0], replace(bare(1).gpus[0], index=1))
    with pytest.raises(TopologyError, match=r"holds uuid GPU-.* twice"):
        publication("node-a", Facts(Inventory(gpus), PHB_PAIR), NOW)


def test_more_gpus_than_the_tables_hold_are_an_error() -> None:
    cells = tuple((None,) * 17 for _ in range(17))
    matrix = LinkMatrix(tuple(GpuRow(i) for i in range(17)), (), cells, tuple(() for _ in range(17)))
    with pytest.raises(TopologyError, match=r"GPUTopology node-a: spec\.gpus: .* at most 16"):
        publication("node-a", Facts(bare(17), matrix), NOW)


def test_a_node_whose_only_gpu_is_lost_has_nothing_to_publish() -> None:
    with pytest.raises(TopologyError, match=r"node node-a has no GPU that can be published: a GPU at 00000000:3B:00\.0 is lost"):
        publication("node-a", Facts(Inventory((Gpu(bus_id="00000000:3B:00.0", lost=True),)), LinkMatrix((), (), (), ())), NOW)


def test_yaml_shows_one_row_of_the_matrix_a_line_and_reads_back() -> None:
    topology = publication("node-a", facts(DGX1V), NOW)
    text = as_yaml(topology)
    assert "    - [X, NV1, NV1, NV2, NV2, SYS, SYS, SYS]\n" in text
    assert text.startswith("apiVersion: linkwise.dev/v1alpha1\nkind: GPUTopology\nmetadata:\n  name: node-a\nspec:\n  gpus:\n  - index: 0\n")
    assert read_gputopology(yaml.safe_load(text)) == topology


def test_pairs_without_peer_access_are_published_by_place_one_a_line() -> None:
    """By the place of a GPU in spec.gpus, as the rows of the matrix are; a pair of which one GPU is not published goes with it."""
    gpus = tuple(replace(gpu, index=(gpu.index or 0) + 4) for gpu in bare(3).gpus)
    rows = tuple(GpuRow(index) for index in (4, 5, 6))
    matrix = replace(from_codes([["X", "PIX", "SYS"], ["PIX", "X", "SYS"], ["SYS", "SYS", "X"]]), gpus=rows)
    topology = publication("node-a", Facts(Inventory(gpus), matrix, refused={(4, 6): "CNS", (4, 5): "GNS", (6, 9): "CNS"}), NOW)
    assert topology.refused() == {(0, 1): "GNS", (0, 2): "CNS"}
    assert topology.spec.source.quality == "full"
    assert "    - {a: 0, b: 1, status: GNS}\n    - {a: 0, b: 2, status: CNS}\n" in as_yaml(topology)
    assert read_gputopology(yaml.safe_load(as_yaml(topology))) == topology


@pytest.mark.parametrize("refused", [None, {}])
def test_where_nothing_is_refused_or_known_the_field_is_absent(refused: dict[tuple[int, int], str] | None) -> None:
    topology = publication("node-a", replace(facts(MESH), refused=refused), NOW)
    assert "noPeerAccess" not in topology.to_object()["spec"]["links"]
    assert topology.spec == sample("mesh", "node-a").spec


@given(
    st.lists(
        st.builds(
            Gpu,
            index=st.none() | st.integers(0, 3),
            uuid=st.none() | st.sampled_from(["GPU-...", *MESH.uuids("s")]),
            bus_id=st.none() | st.sampled_from(MESH.bus_ids),
            model=st.none() | st.text(max_size=5),
            numa_node=st.none() | st.integers(0, 3),
            nvlinks=st.none() | st.integers(0, 18),
            lost=st.booleans(),
        ),
        max_size=5,
    ),
    st.sampled_from(list(SAMPLE_MACHINES.values())),
    st.none() | st.just("why"),
    st.none() | st.dictionaries(st.sampled_from([(0, 1), (0, 3), (1, 2), (2, 9)]), st.sampled_from(["CNS", "U"])),
)
def test_any_facts_give_a_readable_object_or_a_sentence(
    gpus: list[Gpu], machine: SampleMachine, fallback: str | None, refused: dict[tuple[int, int], str] | None
) -> None:
    """Whatever was found: an object that reads back from its YAML, in which no GPU with an identity is missing, or a TopologyError."""
    try:
        topology = publication("node-a", Facts(Inventory(tuple(gpus)), facts(machine).matrix, fallback, refused=refused), NOW)
    except TopologyError:
        return
    assert read_gputopology(yaml.safe_load(as_yaml(topology))) == topology
    left_out = [note for note in topology.spec.source.notes if note.endswith("it is left out") and "is lost" in note]
    assert len(topology.spec.gpus) + len([gpu for gpu in gpus if gpu.index is None or gpu.uuid in (None, "GPU-...")]) == len(gpus)
    assert bool(left_out) == any(gpu.index is None or gpu.uuid in (None, "GPU-...") for gpu in gpus)


@pytest.mark.parametrize("text", ["a\x85b", "a\u2028b", "\u2029", "a\nb", "a: 'b' \"c\"", "no"])
def test_whatever_a_driver_names_a_model_reads_back_from_the_yaml(text: str) -> None:
    """Unicode has line breaks of its own, which YAML folds in all styles but one."""
    gpu = sample("mesh", "node-a").spec.gpus[0].model_copy(update={"model": text})
    topology = sample("mesh", "node-a")
    topology = topology.model_copy(update={"spec": topology.spec.model_copy(update={"gpus": (gpu, *topology.spec.gpus[1:])})})
    assert read_gputopology(yaml.safe_load(as_yaml(topology))) == topology


def facts(machine: SampleMachine) -> Facts:
    """Everything that the readers would have found on the machine."""
    spec = sample(machine.kind, "node-a").spec
    gpus = tuple(
        replace(gpu, memory_used_mib=machine.idle_mib, numa_node=None, cpus=None)
        for gpu in sample(machine.kind, "node-a").inventory().gpus  # as from nvidia-smi: the affinity is in the matrix
    )
    return Facts(Inventory(gpus, spec.driver_version), sample(machine.kind, "node-a").matrix())


def bare(n: int) -> Inventory:
    """Return n GPUs of which only index and UUID are known."""
    return Inventory(tuple(Gpu(index=i, uuid=f"GPU-00000000-0000-0000-0000-{i:012d}") for i in range(n)))


def lose(inventory: Inventory, index: int) -> Inventory:
    """Return the inventory with that GPU lost."""
    return replace(inventory, gpus=tuple(replace(gpu, lost=gpu.lost or gpu.index == index) for gpu in inventory.gpus))


def without_row(matrix: LinkMatrix, index: int) -> LinkMatrix:
    """Return the matrix as it is printed without that GPU."""
    kept = [i for i, row in enumerate(matrix.gpus) if row.index != index]
    return LinkMatrix(
        tuple(matrix.gpus[i] for i in kept),
        matrix.nics,
        tuple(tuple(matrix.gpu_cells[i][j] for j in kept) for i in kept),
        tuple(matrix.nic_cells[i] for i in kept),
    )


def condition(topology: GPUTopology, kind: str) -> tuple[str, str]:
    """Return status and reason of one condition."""
    return next((c.status, c.reason) for c in topology.status.conditions if c.type == kind)
