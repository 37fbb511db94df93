"""What an earlier look told stands as long as nothing contradicts it, and not a moment longer."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.sample_machines import DGX1V, MESH, NVSWITCH, SAMPLE_MACHINES, SampleMachine
from topology.agent.publication import Facts, publication
from topology.agent.recall import Earlier, recall
from topology.api import GPUTopology
from topology.inventory import Gpu, Inventory
from topology.links import LinkCode
from topology.matrix import GpuRow, LinkMatrix, NicColumn

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SEED = "node-a"
FAILED = "nvidia-smi topo -m failed: a GPU is lost"
NO_MATRIX = LinkMatrix((), (), (), ())


def facts(machine: SampleMachine) -> Facts:
    """Return everything that a look at the machine tells."""
    gpus = tuple(
        Gpu(
            index=i,
            uuid=uuid,
            bus_id=machine.bus_ids[i],
            minor=machine.minors[i],
            model=machine.model,
            memory_mib=machine.memory_mib,
            nvlinks=machine.nvlinks,
        )
        for i, uuid in enumerate(machine.uuids(SEED))
    )
    rows = tuple(tuple(LinkCode.parse(cell) for cell in row.split()) for row in machine.gpu_rows)
    nics = tuple(NicColumn(f"NIC{n}", name) for n, name in enumerate(machine.nics))
    nic_rows = tuple(tuple(LinkCode.parse(cell) for cell in row) for row in machine.nic_cells())
    return Facts(Inventory(gpus, machine.driver_version), LinkMatrix(tuple(GpuRow(i) for i in range(machine.size)), nics, rows, nic_rows))


def published(found: Facts) -> GPUTopology:
    return publication("node-a", found, NOW)


def earlier(machine: SampleMachine, *, same_boot: bool = True) -> Earlier:
    return Earlier(published(facts(machine)), same_boot)


def with_gpus(found: Facts, *gpus: Gpu) -> Facts:
    return replace(found, inventory=replace(found.inventory, gpus=gpus))


def test_refused_pairs_stay_refused_while_nothing_tells_of_them() -> None:
    """`topo -p2p` may fail now and then; a set must not look faster for that. After a boot the driver may have been told otherwise."""
    before = Earlier(published(replace(facts(DGX1V), refused={(0, 3): "CNS"})), same_boot=True)
    assert recall(facts(DGX1V), before).refused == {(0, 3): "CNS"}
    assert recall(replace(facts(DGX1V), refused={}), before).refused == {}
    assert recall(facts(DGX1V), replace(before, same_boot=False)).refused is None


@pytest.mark.parametrize("same_boot", [True, False])
def test_what_was_refused_to_a_lost_gpu_stays_refused(*, same_boot: bool) -> None:
    """The driver tells nothing of it any more, which is not the same as allowing it; of the others the new word counts."""
    before = Earlier(published(replace(facts(DGX1V), refused={(0, 5): "CNS", (1, 2): "CNS"})), same_boot)
    now = replace(lost(DGX1V, 5, Gpu(uuid=DGX1V.uuids(SEED)[5])), refused={(3, 4): "GNS"})
    again = published(recall(now, before))
    assert again.refused() == {(0, 5): "CNS", (3, 4): "GNS"}


def test_a_gpu_that_works_again_is_allowed_what_the_driver_says_now() -> None:
    before = Earlier(published(replace(facts(DGX1V), refused={(0, 5): "CNS"})), same_boot=True)
    assert recall(replace(facts(DGX1V), refused={}), before).refused == {}


def test_the_codes_that_are_kept_are_those_that_were_printed() -> None:
    """Not those that peer access has lowered: the pair may get it back."""
    before = Earlier(published(replace(facts(DGX1V), refused={(0, 3): "CNS"})), same_boot=True)
    found = recall(replace(facts(DGX1V), matrix=NO_MATRIX, fallback=FAILED, failed=FAILED), before)
    again = published(found)
    assert again.spec.links == before.topology.spec.links
    assert str(again.printed_matrix().between(0, 3)) == "NV2"


def lost(machine: SampleMachine, index: int, told: Gpu) -> Facts:
    """Return a look at the machine with that much told of one GPU, its row of the matrix missing."""
    whole = facts(machine)
    keep = [i for i in range(machine.size) if i != index]
    matrix = LinkMatrix(
        gpus=tuple(whole.matrix.gpus[i] for i in keep),
        nics=whole.matrix.nics,
        gpu_cells=tuple(tuple(whole.matrix.gpu_cells[i][j] for j in keep) for i in keep),
        nic_cells=tuple(whole.matrix.nic_cells[i] for i in keep),
    )
    others = [whole.inventory.gpus[i] for i in keep]
    return replace(with_gpus(whole, *others, replace(told, lost=True)), matrix=matrix)


def without_matrix(found: Facts) -> Facts:
    """Return the look as it is where `topo -m` failed and the kernel knows nothing."""
    return replace(found, matrix=NO_MATRIX, fallback=f"{FAILED}. The links are PCIe paths", failed=FAILED)


@pytest.mark.parametrize("machine", SAMPLE_MACHINES.values(), ids=lambda machine: machine.kind)
def test_a_look_that_tells_everything_needs_no_memory(machine: SampleMachine) -> None:
    assert recall(facts(machine), None) == facts(machine)
    assert recall(facts(machine), earlier(machine)) == facts(machine)


# --- who is there ---


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(Gpu(bus_id=NVSWITCH.bus_ids[5]), id="its bus id"),
        pytest.param(Gpu(uuid=NVSWITCH.uuids(SEED)[5]), id="its UUID"),
        pytest.param(Gpu(index=5), id="its index"),
    ],
)
def test_a_lost_gpu_is_recognised_by_whatever_is_told_of_it(told: Gpu) -> None:
    topology = published(recall(lost(NVSWITCH, 5, told), earlier(NVSWITCH)))
    assert [gpu.uuid for gpu in topology.spec.gpus] == list(NVSWITCH.uuids(SEED))
    assert topology.spec.gpus[5] == earlier(NVSWITCH).topology.spec.gpus[5]
    assert [gpu.healthy for gpu in topology.status.gpus] == [True] * 5 + [False] + [True] * 2
    assert topology.status.health == "1 of 8 lost"
    assert topology.spec.links == earlier(NVSWITCH).topology.spec.links
    assert "GPU 5 is lost: its links are those that were read before" in topology.spec.source.notes


def test_after_another_boot_an_index_alone_names_nobody() -> None:
    topology = published(recall(lost(NVSWITCH, 5, Gpu(index=5)), earlier(NVSWITCH, same_boot=False)))
    assert NVSWITCH.uuids(SEED)[5] not in [gpu.uuid for gpu in topology.spec.gpus]
    known = published(recall(lost(NVSWITCH, 5, Gpu(bus_id=NVSWITCH.bus_ids[5])), earlier(NVSWITCH, same_boot=False)))
    assert known.spec.gpus[5].uuid == NVSWITCH.uuids(SEED)[5]


def test_a_gpu_that_is_no_longer_listed_counts_as_lost_until_the_next_boot() -> None:
    three = lost(MESH, 3, Gpu())
    three = with_gpus(three, *three.inventory.gpus[:3])
    topology = published(recall(three, earlier(MESH)))
    assert [gpu.healthy for gpu in topology.status.gpus] == [True, True, True, False]
    assert topology.status.gpus[3].reason == "nvidia-smi no longer lists this GPU; it needs a reset or a reboot"
    assert topology.status.health == "1 of 4 lost"
    assert any("at 00000000:C1:00.0 is no longer listed by nvidia-smi: it counts as lost" in note for note in topology.spec.source.notes)
    assert published(recall(three, earlier(MESH, same_boot=False))).spec.gpu_count == 3


def test_a_lost_gpu_gives_its_index_up_where_the_driver_counts_anew() -> None:
    """GPU 1 has vanished, and nvidia-smi calls the others 0, 1, 2."""
    whole = facts(MESH)
    left = [whole.inventory.gpus[i] for i in (0, 2, 3)]
    renumbered = with_gpus(whole, *(replace(gpu, index=i) for i, gpu in enumerate(left)))
    renumbered = replace(renumbered, matrix=replace(lost(MESH, 1, Gpu()).matrix, gpus=tuple(GpuRow(i) for i in range(3))))
    topology = published(recall(renumbered, earlier(MESH)))
    assert {gpu.uuid: gpu.index for gpu in topology.spec.gpus} == dict(zip([*(gpu.uuid for gpu in left), MESH.uuids(SEED)[1]], range(4), strict=True))
    assert [gpu.healthy for gpu in topology.status.gpus] == [True, True, True, False]
    assert {str(code) for _, _, code in topology.matrix().pairs()} == {"NV4"}


def test_one_question_may_list_a_gpu_that_another_reports_as_lost() -> None:
    told = lost(MESH, 3, Gpu(bus_id=MESH.bus_ids[3]))
    both = with_gpus(told, *told.inventory.gpus, Gpu(index=3, uuid=MESH.uuids(SEED)[3]))
    topology = published(recall(both, earlier(MESH)))
    assert [gpu.healthy for gpu in topology.status.gpus] == [True, True, True, False]


def test_a_new_gpu_is_no_matter_of_memory() -> None:
    before = Earlier(published(lost(MESH, 3, Gpu())), same_boot=True)
    assert published(recall(facts(MESH), before)).spec == earlier(MESH).topology.spec


# --- how they are joined ---


def test_the_matrix_of_before_stands_where_a_lost_gpu_takes_topo_m_with_it() -> None:
    topology = published(recall(without_matrix(lost(NVSWITCH, 5, Gpu(bus_id=NVSWITCH.bus_ids[5]))), earlier(NVSWITCH)))
    before = earlier(NVSWITCH).topology.spec
    assert (topology.spec.links, topology.spec.nics, topology.spec.nvlink) == (before.links, before.nics, "NV18")
    assert (topology.spec.source.kind, topology.spec.source.quality) == ("nvidia-smi", "partial")
    assert topology.spec.source.notes[0] == f"{FAILED}. The links are those that it printed before; nothing contradicts them"
    assert [(c.status, c.reason) for c in topology.status.conditions if c.type == "LinksKnown"] == [("False", "MatrixKept")]


def test_a_matrix_is_kept_for_as_long_as_it_takes() -> None:
    before = earlier(DGX1V)
    for _ in range(3):
        before = Earlier(published(recall(without_matrix(facts(DGX1V)), before)), same_boot=True)
    assert before.topology.spec.links == earlier(DGX1V).topology.spec.links
    assert published(recall(facts(DGX1V), before)).spec == earlier(DGX1V).topology.spec


def fewer_nvlinks(found: Facts, *, gpu: int, by: int) -> Facts:
    gpus = found.inventory.gpus
    return with_gpus(found, *(replace(one, nvlinks=one.nvlinks - by) if i == gpu and one.nvlinks else one for i, one in enumerate(gpus)))


def moved(found: Facts) -> Facts:
    first, *rest = found.inventory.gpus
    return with_gpus(found, replace(first, bus_id="00000000:77:00.0"), *rest)


def with_a_new_gpu(found: Facts) -> Facts:
    return with_gpus(found, *found.inventory.gpus, Gpu(index=8, uuid="GPU-00000000-0000-0000-0000-000000000009"))


def without_nvlink_status(found: Facts) -> Facts:
    return with_gpus(found, *(replace(gpu, nvlinks=None) for gpu in found.inventory.gpus))


@pytest.mark.parametrize(
    ("change", "same_boot", "kept"),
    [
        pytest.param(lambda found: found, True, True, id="the same GPUs at the same places"),
        pytest.param(lambda found: found, False, True, id="the same after a boot"),
        pytest.param(lambda found: fewer_nvlinks(found, gpu=2, by=1), True, False, id="one NVLink less is active"),
        pytest.param(moved, True, False, id="a GPU is at another bus id"),
        pytest.param(with_a_new_gpu, True, False, id="a GPU is new"),
        pytest.param(without_nvlink_status, True, True, id="nvlink -s is silent"),
        pytest.param(without_nvlink_status, False, False, id="nvlink -s is silent after a boot"),
    ],
)
def test_the_matrix_of_before_stands_unless_something_contradicts_it(change: object, same_boot: bool, kept: bool) -> None:
    assert callable(change)
    found = recall(without_matrix(change(facts(DGX1V))), earlier(DGX1V, same_boot=same_boot))
    assert (found.kept is not None, found.fallback is None) == (kept, kept)


def test_nvlinks_to_a_lost_gpu_are_no_contradiction_but_others_are() -> None:
    """GPU 0 of a DGX-1V has an NV2 to GPU 3: without GPU 3 it shows four active links of six."""
    gone = without_matrix(lost(DGX1V, 3, Gpu(bus_id=DGX1V.bus_ids[3])))
    assert recall(fewer_nvlinks(gone, gpu=0, by=2), earlier(DGX1V)).kept
    assert not recall(fewer_nvlinks(gone, gpu=0, by=3), earlier(DGX1V)).kept
    assert not recall(fewer_nvlinks(gone, gpu=5, by=1), earlier(DGX1V)).kept, "GPU 6 has no link to GPU 3"


def test_pcie_paths_of_the_kernel_are_no_memory_worth_keeping() -> None:
    before = Earlier(published(without_matrix(facts(DGX1V))), same_boot=True)
    assert before.topology.spec.source.kind == "sysfs"
    assert recall(without_matrix(facts(DGX1V)), before).kept is None


# --- whatever happens ---


@st.composite
def looks(draw: st.DrawFn) -> Facts:
    """Return a look at a DGX-1V with GPUs missing, lost, half told, moved to other indices, with or without a matrix."""
    whole = facts(DGX1V)
    gpus: list[Gpu] = []
    for gpu in whole.inventory.gpus:
        fate = draw(st.sampled_from(["works", "works", "works", "vanished", "lost by bus id", "lost by UUID"]))
        if fate == "works":
            gpus.append(gpu)
        elif fate == "lost by bus id":
            gpus.append(Gpu(bus_id=gpu.bus_id, lost=True))
        elif fate == "lost by UUID":
            gpus.append(Gpu(uuid=gpu.uuid, lost=True))
    working = [gpu for gpu in gpus if not gpu.lost]
    if draw(st.booleans()):
        order = draw(st.permutations(range(len(working))))
        numbered = iter([replace(gpu, index=order[i]) for i, gpu in enumerate(working)])
        gpus = [gpu if gpu.lost else next(numbered) for gpu in gpus]
    found = with_gpus(whole, *gpus)
    place = {gpu.uuid: at for at, gpu in enumerate(whole.inventory.gpus)}
    rows = sorted((gpu for gpu in gpus if not gpu.lost), key=lambda gpu: gpu.index or 0)
    cells = tuple(tuple(whole.matrix.gpu_cells[place[a.uuid]][place[b.uuid]] for b in rows) for a in rows)
    nic_cells = tuple(whole.matrix.nic_cells[place[gpu.uuid]] for gpu in rows)
    found = replace(found, matrix=LinkMatrix(tuple(GpuRow(gpu.index or 0) for gpu in rows), whole.matrix.nics, cells, nic_cells))
    return without_matrix(found) if draw(st.booleans()) else found


@settings(max_examples=settings.default.max_examples // 4 if settings.default else 25)
@given(st.lists(looks(), min_size=1, max_size=3))
def test_within_a_boot_no_gpu_is_ever_forgotten_and_none_that_is_lost_is_offered(told: list[Facts]) -> None:
    before = earlier(DGX1V)
    for found in told:
        topology = published(recall(found, before))
        working = {gpu.uuid for gpu in found.inventory.gpus if not gpu.lost}
        assert {gpu.uuid for gpu in topology.spec.gpus} == set(DGX1V.uuids(SEED))
        assert {gpu.uuid for gpu in topology.status.gpus if gpu.healthy} == working
        assert published(recall(found, Earlier(topology, same_boot=True))).spec == topology.spec, "the same look again tells the same"
        whole = earlier(DGX1V).topology
        place = {gpu.uuid: at for at, gpu in enumerate(whole.spec.gpus)}
        for i, j, code in topology.matrix().pairs():
            a, b = (place[topology.spec.gpus[at].uuid] for at in (i, j))
            assert code in (None, whole.matrix().between(a, b)), "a link is what it was, or unknown"
        before = Earlier(topology, same_boot=True)
