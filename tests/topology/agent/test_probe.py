"""The probe asks a real process and real files, and publishes what they tell or says why it cannot."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from extender.sample_machines import BRIDGES, DGX1V, MESH, NVSWITCH, PCIE, SAMPLE_MACHINES, SampleMachine, sample
from tests.corpus import CorpusFile, corpus_files
from tests.stand_in import (
    LIST,
    NVLINK,
    OLD_QUERY,
    P2P,
    QUERY,
    QUERY_HEADER,
    SENTENCES,
    TOPO,
    XML,
    Answer,
    kernel_name,
    old_query,
    p2p,
    query,
    query_rows,
    texts,
    topo,
    write_nvidia_smi,
    write_sysfs,
)
from topology.agent import FAILED, NO_GPUS, AgentSettings, exit_status, once, probe
from topology.api import GPUTopology, read_gputopology
from topology.errors import InputError, LinkwiseError, NvidiaSmiError, NvidiaSmiFailure, TopologyError

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
PATIENCE_S = 30.0  # never reached: only what hangs on purpose takes its time
LOST_ROW = "[GPU is lost]"
LOST_LINE = "Unable to determine the device handle for GPU3: 0000:C1:00.0: GPU is lost.  Reboot the system to recover this GPU\n"

every_machine = pytest.mark.parametrize("machine", SAMPLE_MACHINES.values(), ids=lambda machine: machine.kind)


def look(path: Path, root: Path | None = None, timeout_s: float = PATIENCE_S) -> GPUTopology:
    """Probe through the tool at that path; without a root there is no kernel to ask."""
    settings = AgentSettings(node_name="node-a", nvidia_smi=str(path), sysfs_root=root or path.parent / "no" / "sys", timeout_s=timeout_s)
    return probe(settings, lambda: NOW)


# --- the five machines ----------------------------------------------------------------------------------------------


@every_machine
def test_machine_is_published_as_it_is(tmp_path: Path, machine: SampleMachine) -> None:
    topology = look(write_nvidia_smi(tmp_path, machine), write_sysfs(tmp_path, machine))
    assert topology.spec == sample(machine.kind, "node-a").spec
    assert topology.status.gpus == sample(machine.kind, "node-a").status.gpus
    assert topology.status.health == "Healthy"
    assert topology.status.observed_at == NOW


@every_machine
def test_once_prints_the_same_as_yaml(tmp_path: Path, machine: SampleMachine) -> None:
    path, root = write_nvidia_smi(tmp_path, machine), write_sysfs(tmp_path, machine)
    text = once("node-a", str(path), root, PATIENCE_S, lambda: NOW)
    assert read_gputopology(yaml.safe_load(text)) == look(path, root)
    assert once("node-a", str(path), root, PATIENCE_S, lambda: NOW) == text


def test_nvswitch_machine_is_not_read_as_having_no_nvlink(tmp_path: Path) -> None:
    topology = look(write_nvidia_smi(tmp_path, NVSWITCH))
    assert [str(code) for _, _, code in topology.matrix().pairs()] == ["NV18"] * 28
    assert topology.spec.nvlink == "NV18"


def test_minor_numbers_come_from_the_slow_question_where_the_kernel_is_silent(tmp_path: Path) -> None:
    assert [gpu.minor for gpu in look(write_nvidia_smi(tmp_path, MESH)).spec.gpus] == [3, 2, 1, 0]


def test_the_slow_question_is_not_asked_where_the_kernel_tells(tmp_path: Path) -> None:
    path = write_nvidia_smi(tmp_path, MESH, replaced={XML: Answer(hang=True)})
    assert [gpu.minor for gpu in look(path, write_sysfs(tmp_path, MESH)).spec.gpus] == [3, 2, 1, 0]


def test_the_kernel_tells_numa_node_and_cpus_where_the_matrix_does_not(tmp_path: Path) -> None:
    bare = replace(PCIE, cpus=("N/A",) * 8)
    text = topo(bare).replace("\tN/A\t0\t\tN/A", "\tN/A\tN/A\t\tN/A").replace("\tN/A\t1\t\tN/A", "\tN/A\tN/A\t\tN/A")
    topology = look(write_nvidia_smi(tmp_path, PCIE, replaced={TOPO: Answer(text)}), write_sysfs(tmp_path, PCIE))
    assert [gpu.numa_node for gpu in topology.spec.gpus] == list(PCIE.numa_nodes)
    assert [gpu.cpus for gpu in topology.spec.gpus] == list(PCIE.cpus)


def test_the_kernel_tells_the_slot_where_an_old_driver_does_not(tmp_path: Path) -> None:
    refused = Answer('Field "mig.mode.current" is not a valid field to query.\n', 2)
    path = write_nvidia_smi(tmp_path, DGX1V, replaced={QUERY: refused, OLD_QUERY: Answer(old_query(DGX1V))})
    topology = look(path, write_sysfs(tmp_path, DGX1V))
    assert topology.spec == sample("dgx1v", "node-a").spec


def test_a_tool_that_refuses_every_query_is_read_by_its_other_answers(tmp_path: Path) -> None:
    refused = Answer("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n", 2)
    topology = look(write_nvidia_smi(tmp_path, MESH, replaced={QUERY: refused, OLD_QUERY: refused}))
    assert [gpu.uuid for gpu in topology.spec.gpus] == list(MESH.uuids("node-a"))
    assert [gpu.bus_id for gpu in topology.spec.gpus] == list(MESH.bus_ids)
    assert [gpu.memory_mib for gpu in topology.spec.gpus] == [40960] * 4


def test_nvlink_status_may_fail(tmp_path: Path) -> None:
    topology = look(write_nvidia_smi(tmp_path, DGX1V, replaced={NVLINK: Answer("Failed\n", 255)}), write_sysfs(tmp_path, DGX1V))
    assert [gpu.nvlinks for gpu in topology.spec.gpus] == [None] * 8
    assert topology.spec.links == sample("dgx1v", "node-a").spec.links
    assert topology.spec.source.quality == "full"


def test_pairs_without_peer_access_are_published_beside_the_codes(tmp_path: Path) -> None:
    """The weaker direction counts; the codes stay what the hardware is."""
    told = p2p(8, {(0, 3): "CNS", (5, 1): "GNS"})
    topology = look(write_nvidia_smi(tmp_path, DGX1V, replaced={P2P: Answer(told)}))
    assert topology.spec.links.gpus == sample("dgx1v", "node-a").spec.links.gpus
    assert topology.refused() == {(0, 3): "CNS", (1, 5): "GNS"}
    assert [str(topology.matrix().between(a, b)) for a, b in ((0, 3), (1, 5), (0, 1))] == ["SYS", "SYS", "NV1"]
    assert topology.spec.source.quality == "full"
    assert {condition.type: condition.status for condition in topology.status.conditions}["LinksKnown"] == "True"


def test_peer_access_is_asked_for_where_the_kernel_tells_the_paths_too(tmp_path: Path) -> None:
    """What breaks `topo -m`, a software RDMA device, is no part of the other question."""
    path = write_nvidia_smi(tmp_path, PCIE, topo_exit=255, replaced={P2P: Answer(p2p(8, {(0, 1): "CNS"}))})
    topology = look(path, write_sysfs(tmp_path, PCIE))
    assert topology.spec.source.quality == "fallback"
    assert topology.refused() == {(0, 1): "CNS"}


def test_a_single_gpu_is_not_asked_for_its_peers(tmp_path: Path) -> None:
    one = replace(MESH, gpu_rows=("X",), nic_rows=(), nics=())
    look(write_nvidia_smi(tmp_path, one, replaced={P2P: Answer(hang=True)}), write_sysfs(tmp_path, one), timeout_s=2.0)
    assert not (tmp_path / "hanging").exists(), "who is asked, hangs"


def test_peer_access_that_is_never_told_costs_the_links_nothing(tmp_path: Path) -> None:
    topology = look(write_nvidia_smi(tmp_path, MESH, replaced={P2P: Answer(hang=True)}), write_sysfs(tmp_path, MESH), timeout_s=2.0)
    assert (topology.spec.links, topology.spec.source) == (sample("mesh", "node-a").spec.links, sample("mesh", "node-a").spec.source)


@pytest.mark.parametrize("file", corpus_files("topo-p2p"))
def test_recorded_statuses_are_published_as_the_pairs_that_are_not_ok(tmp_path: Path, file: CorpusFile) -> None:
    """As the answer on a machine of so many GPUs; what a real driver refused to an L4 or an RTX 5090 counts as SYS."""
    size = int(file.expected["gpus"])
    machine = replace(PCIE, gpu_rows=tuple(" ".join(row.split()[:size]) for row in PCIE.gpu_rows[:size]))
    topology = look(write_nvidia_smi(tmp_path, machine, replaced={P2P: Answer(file.text)}))
    words = {key: word for key, word in file.expected.items() if key.startswith("p2p(")}
    pairs = {(min(a, b), max(a, b)): word for key, word in words.items() for a, b in [map(int, key[4:-1].split(","))]}
    assert {pair: topology.refused().get(pair, "OK") for pair in pairs} == pairs
    assert set(topology.refused()) == {pair for pair, word in pairs.items() if word != "OK"}
    assert all(str(topology.matrix().between(a, b)) == "SYS" for a, b in topology.refused())


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(
            Answer("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n", 2), id="a driver that does not know the question"
        ),
        pytest.param(Answer("", 0), id="silence"),
        pytest.param(Answer("Segmentation fault\n", 139), id="a crash"),
        pytest.param(Answer(p2p(8)), id="all is well"),
    ],
)
def test_without_word_of_peer_access_everything_is_as_before(tmp_path: Path, answer: Answer) -> None:
    topology = look(write_nvidia_smi(tmp_path, DGX1V, replaced={P2P: answer}))
    assert topology.spec.links.no_peer_access is None
    assert topology.spec.source.notes == ()
    assert topology.matrix() == topology.printed_matrix()


def test_the_list_may_fail_with_a_note(tmp_path: Path) -> None:
    topology = look(write_nvidia_smi(tmp_path, MESH, replaced={LIST: Answer("Segmentation fault\n", 139)}))
    assert topology.spec.gpu_count == 4
    assert any(note.startswith("nvidia-smi -L failed") for note in topology.spec.source.notes)


def test_mig_mode_is_published(tmp_path: Path) -> None:
    rows = [row.replace("Disabled", "Enabled") if row.startswith(("1,", "2,")) else row for row in query_rows(MESH)]
    mig_list = texts(MESH)[LIST].replace("\nGPU 2", "\n  MIG 3g.20gb     Device  0: (UUID: MIG-11111111-2222-3333-4444-555555555555)\nGPU 2")
    path = write_nvidia_smi(tmp_path, MESH, replaced={QUERY: Answer("\n".join([QUERY_HEADER, *rows]) + "\n"), LIST: Answer(mig_list)})
    assert [gpu.mig_mode for gpu in look(path).spec.gpus] == ["Disabled", "Enabled", "Enabled", "Disabled"]


def test_a_single_gpu_has_no_pair_but_its_links(tmp_path: Path) -> None:
    one = replace(NVSWITCH, gpu_rows=("X",), nic_rows=(), nics=())
    topology = look(write_nvidia_smi(tmp_path, one))
    assert topology.spec.links.gpus == (("X",),)
    assert (topology.spec.gpus[0].nvlinks, topology.spec.source.quality) == (18, "full")


# --- NVSentinel 1485: topo -m fails where a software RDMA device exists ------------------------------------------------


def test_matrix_that_exits_255_falls_back_to_the_kernels_paths(tmp_path: Path) -> None:
    topology = look(write_nvidia_smi(tmp_path, PCIE, topo_exit=255), write_sysfs(tmp_path, PCIE))
    assert topology.spec.links.gpus == sample("pcie", "node-a").spec.links.gpus
    assert (topology.spec.source.kind, topology.spec.source.quality) == ("sysfs", "fallback")
    assert "Failed to run topology matrix" in topology.spec.source.notes[0]
    assert "shows neither NVLink nor NICs" in topology.spec.source.notes[0]
    assert [gpu.numa_node for gpu in topology.spec.gpus] == list(PCIE.numa_nodes)
    assert [gpu.cpus for gpu in topology.spec.gpus] == list(PCIE.cpus)
    assert topology.spec.nvlink == "none", "nvlink -s says that there is none"
    assert {c.type: c.status for c in topology.status.conditions} == {"DriverReady": "True", "LinksKnown": "False", "GPUsHealthy": "True"}


def test_fallback_says_that_active_nvlinks_lead_somewhere_unknown(tmp_path: Path) -> None:
    topology = look(write_nvidia_smi(tmp_path, DGX1V, topo_exit=255), write_sysfs(tmp_path, DGX1V))
    assert topology.spec.links.gpus[0] == ("X", "PIX", "PHB", "PHB", "SYS", "SYS", "SYS", "SYS")
    assert "nvidia-smi nvlink -s shows active NVLinks (6 on GPU 0, 1, 2, 3, 4, 5, 6, 7), but" in topology.spec.source.notes[0]
    assert topology.spec.nvlink == "unknown"


def test_fallback_without_a_kernel_to_ask_publishes_gpus_without_links(tmp_path: Path) -> None:
    topology = look(write_nvidia_smi(tmp_path, MESH, topo_exit=255))
    assert topology.spec.links.gpus[1] == ("-", "X", "-", "-")
    assert (topology.spec.source.kind, topology.spec.source.quality) == ("sysfs", "fallback")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer("\x00\x01\x02 garbage \x1b[4m\n" * 50), id="garbage"),
        pytest.param(Answer(""), id="nothing"),
        pytest.param(Answer("ERROR: Option -m is missing its value. Please run 'nvidia-smi -h' for help.\n", 255), id="a tool without topo -m"),
        pytest.param(Answer("Segmentation fault\n", 139), id="a crash"),
        pytest.param(Answer("\tGPU0\tGPU1\n"), id="a header without rows"),
    ],
)
def test_any_answer_without_a_matrix_falls_back(tmp_path: Path, answer: Answer) -> None:
    topology = look(write_nvidia_smi(tmp_path, BRIDGES, replaced={TOPO: answer}), write_sysfs(tmp_path, BRIDGES))
    assert topology.spec.source.quality == "fallback"
    assert topology.spec.gpu_count == 8


def test_a_matrix_that_never_comes_falls_back_too(tmp_path: Path) -> None:
    topology = look(write_nvidia_smi(tmp_path, MESH, replaced={TOPO: Answer(hang=True)}), write_sysfs(tmp_path, MESH), timeout_s=2.0)
    assert "nvidia-smi topo -m did not answer within 2 s" in topology.spec.source.notes[0]
    assert topology.spec.source.quality == "fallback"


def test_a_driver_that_goes_away_meanwhile_is_no_reason_to_fall_back(tmp_path: Path) -> None:
    with pytest.raises(NvidiaSmiError) as caught:
        look(write_nvidia_smi(tmp_path, MESH, topo_exit=18), write_sysfs(tmp_path, MESH))
    assert caught.value.kind is NvidiaSmiFailure.DRIVER_MISMATCH


def test_a_matrix_cut_short_is_partial(tmp_path: Path) -> None:
    cut = "".join(line for line in topo(MESH).splitlines(keepends=True) if not line.startswith(("GPU2", "GPU3", "NIC")))
    topology = look(write_nvidia_smi(tmp_path, MESH, replaced={TOPO: Answer(cut)}), write_sysfs(tmp_path, MESH))
    assert topology.spec.source.quality == "partial"
    assert topology.matrix().missing() == [(2, 3)]
    assert str(topology.matrix().between(0, 3)) == "NV4"


def test_a_matrix_with_more_gpus_than_the_list_is_partial(tmp_path: Path) -> None:
    three = replace(MESH, gpu_rows=MESH.gpu_rows[:3])
    topology = look(write_nvidia_smi(tmp_path, three, replaced={TOPO: Answer(topo(MESH))}))
    assert (topology.spec.gpu_count, topology.spec.source.quality) == (3, "partial")
    assert any("GPU3 is in the link matrix" in note for note in topology.spec.source.notes)


# --- lost GPUs --------------------------------------------------------------------------------------------------------


def test_a_gpu_that_fell_off_the_bus_leaves_the_others_working(tmp_path: Path) -> None:
    """Its row is full of [GPU is lost]; the identity is told by what still shows it."""
    rows = query_rows(NVSWITCH)
    uuid = NVSWITCH.uuids("node-a")[5]
    rows[5] = f"5, {uuid}, {NVSWITCH.bus_ids[5]}, " + ", ".join([LOST_ROW] * 6) + f", {NVSWITCH.driver_version}"
    answers = {QUERY: Answer("\n".join([QUERY_HEADER, *rows]) + "\n", 15)}
    topology = look(write_nvidia_smi(tmp_path, NVSWITCH, replaced=answers), write_sysfs(tmp_path, NVSWITCH))
    assert [gpu.healthy for gpu in topology.status.gpus] == [True] * 5 + [False] + [True] * 2
    assert topology.status.gpus[5].uuid == uuid
    assert topology.status.gpus[5].reason
    assert topology.status.health == "1 of 8 lost"
    assert topology.spec.gpu_count == 8


def test_a_lost_gpu_that_only_leaves_a_line_is_noted(tmp_path: Path) -> None:
    three = replace(MESH, gpu_rows=MESH.gpu_rows[:3])
    left = "".join(line for line in topo(MESH).splitlines(keepends=True) if not line.startswith("GPU3"))
    answers = {QUERY: Answer(LOST_LINE + query(three), 15), LIST: Answer(texts(three)[LIST] + LOST_LINE, 15), TOPO: Answer(left)}
    topology = look(write_nvidia_smi(tmp_path, three, replaced=answers), write_sysfs(tmp_path, three))
    assert [gpu.index for gpu in topology.spec.gpus] == [0, 1, 2]
    assert all(gpu.healthy for gpu in topology.status.gpus)
    assert str(topology.matrix().between(0, 2)) == "NV4"
    assert any("00000000:C1:00.0" in note for note in topology.spec.source.notes)
    assert topology.status.health == "1 of 4 lost"
    assert next(c.reason for c in topology.status.conditions if c.type == "GPUsHealthy") == "GPULost"


def test_a_lost_gpu_that_makes_the_matrix_fail_costs_the_links_and_not_the_node(tmp_path: Path) -> None:
    topology = look(write_nvidia_smi(tmp_path, MESH, replaced={TOPO: Answer(LOST_LINE, 15)}), write_sysfs(tmp_path, MESH))
    assert topology.spec.source.quality == "fallback"
    assert topology.spec.gpu_count == 4


# --- nothing to publish -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exit_code", "kind", "status"),
    [
        pytest.param(9, NvidiaSmiFailure.NO_DRIVER, FAILED, id="9: the driver is not loaded"),
        pytest.param(18, NvidiaSmiFailure.DRIVER_MISMATCH, FAILED, id="18: driver and library differ"),
        pytest.param(127, NvidiaSmiFailure.NOT_FOUND, NO_GPUS, id="127: a wrapper without the tool"),
        pytest.param(255, None, FAILED, id="255: whatever it is"),
    ],
)
def test_exit_codes_of_every_command(tmp_path: Path, exit_code: int, kind: NvidiaSmiFailure | None, status: int) -> None:
    with pytest.raises(NvidiaSmiError) as caught:
        look(write_nvidia_smi(tmp_path, MESH, exit_code=exit_code), write_sysfs(tmp_path, MESH))
    assert kind is None or caught.value.kind is kind
    assert SENTENCES[exit_code].splitlines()[0][:40] in str(caught.value), "the tool's own words are repeated"
    assert exit_status(caught.value) == status


@pytest.mark.parametrize("exit_code", [0, 6])
def test_a_node_without_gpus_is_not_a_failed_one(tmp_path: Path, exit_code: int) -> None:
    everywhere = dict.fromkeys((QUERY, OLD_QUERY, LIST, TOPO, NVLINK, XML), Answer("No devices were found\n", exit_code))
    with pytest.raises(NvidiaSmiError, match="no GPU is visible") as caught:
        look(write_nvidia_smi(tmp_path, MESH, replaced=everywhere))
    assert caught.value.kind is NvidiaSmiFailure.NO_DEVICES
    assert exit_status(caught.value) == NO_GPUS == 3


def test_a_node_without_the_tool_is_not_a_failed_one(tmp_path: Path) -> None:
    with pytest.raises(NvidiaSmiError, match="does not exist") as caught:
        look(tmp_path / "nvidia-smi")
    assert exit_status(caught.value) == NO_GPUS


def test_a_hanging_driver_is_asked_only_once(tmp_path: Path) -> None:
    with pytest.raises(NvidiaSmiError, match=r"did not answer within 0\.3 s") as caught:
        look(write_nvidia_smi(tmp_path, MESH, hang=True), timeout_s=0.3)
    assert "--query-gpu" in str(caught.value)
    assert exit_status(caught.value) == FAILED == 2


@pytest.mark.parametrize("text", ["\x00\x01\x02\n", "hello\n", "", "index, uuid\n"], ids=["bytes", "words", "nothing", "a header alone"])
def test_garbage_of_every_command_is_an_error_and_no_crash(tmp_path: Path, text: str) -> None:
    everywhere = dict.fromkeys((QUERY, OLD_QUERY, LIST, TOPO, NVLINK, XML), Answer(text))
    with pytest.raises(LinkwiseError) as caught:
        look(write_nvidia_smi(tmp_path, MESH, replaced=everywhere))
    assert exit_status(caught.value) == FAILED


def test_a_gpu_without_uuid_is_named(tmp_path: Path) -> None:
    rows = [row.replace(MESH.uuids("node-a")[2], "GPU-...") for row in query_rows(MESH)]
    elided = {command: Answer(text.replace(MESH.uuids("node-a")[2], "GPU-...")) for command, text in texts(MESH).items()}
    elided[QUERY] = Answer("\n".join([QUERY_HEADER, *rows]) + "\n")
    with pytest.raises(TopologyError, match=r"GPU 2 at 00000000:82:00\.0 cannot be published") as caught:
        look(write_nvidia_smi(tmp_path, MESH, replaced=elided), write_sysfs(tmp_path, MESH))
    assert exit_status(caught.value) == FAILED


def test_masked_uuids_are_never_taken_for_one_gpu(tmp_path: Path) -> None:
    masked = {command: Answer(mask(text)) for command, text in texts(MESH).items()}
    with pytest.raises(TopologyError, match=r"GPU 0 .*cannot be published"):
        look(write_nvidia_smi(tmp_path, MESH, replaced=masked))


def mask(text: str) -> str:
    """Return the text with every UUID of the machine masked, as a capture tool does it."""
    for uuid in MESH.uuids("node-a"):
        text = text.replace(uuid, "GPU-00000000-0000-0000-0000-000000000000")
    return text


def test_a_name_that_no_node_has_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="node name 'Node A'"):
        once("Node A", str(write_nvidia_smi(tmp_path, MESH, hang=True)), timeout_s=PATIENCE_S)


# --- what real machines printed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", corpus_files("topo-m-fail"))
def test_recorded_failures_become_typed_errors(tmp_path: Path, file: CorpusFile) -> None:
    """The text as the answer of every command: an error whose sentence a person can act upon, never an object without GPUs."""
    code = int(file.expected.get("exit", "0"))
    everywhere = dict.fromkeys((QUERY, OLD_QUERY, LIST, TOPO, NVLINK, XML), Answer(file.text, code))
    with pytest.raises(NvidiaSmiError) as caught:
        look(write_nvidia_smi(tmp_path, MESH, replaced=everywhere))
    assert caught.value.kind.value == file.expected["error"]


def test_bus_ids_are_written_as_the_kernel_writes_them() -> None:
    assert kernel_name(MESH.bus_ids[3]) == "0000:c1:00.0"
