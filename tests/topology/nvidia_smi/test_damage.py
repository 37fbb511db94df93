"""Whatever happens to a text, no reader crashes and no cell of a matrix moves: hypothesis draws machines, texts and damages."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.topology.nvidia_smi.damage import DAMAGES, Damage, cut, read_with_all
from tests.topology.nvidia_smi.machines import BLANKED, EXACT, Machine, as_printed, machines
from topology.errors import NvidiaSmiError
from topology.matrix import LinkMatrix
from topology.nvidia_smi import read_topology

RENDERINGS = [
    "as the tool prints it",
    "laid out by hand",
    "as a Markdown table",
    "with a header that lost its tab",
    "with tabs expanded by a terminal",
    "with single blanks",
]
slow = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))

# Words that outputs are made of: random text of them gets further into a reader than random letters.
WORDS = """
GPU0 GPU1 GPU2 GPU16 GPU99999999999 NIC0 NIC1 mlx5_0 X NV1 NV12 NV99 PIX NODE SYS SOC PHBSYS SYS0-23 PH0-115 0-23,48-71 0 N/A CPU Affinity NUMA ID
Legend: = NIC0: OK CNS TNS U GPU 0: 1: MIG 1g.5gb Device (UUID: GPU-...) MIG-00000000-0000-0000-0000-000000000000 Link 3: 25 GB/s <inactive>
index, uuid, name, memory.total [MiB] pci.bus_id 00000000:3B:00.0 81920 MiB, [N/A], [GPU is lost] [Unknown Error] <nvidia_smi_log> <gpu id='0'> </gpu>
</nvidia_smi_log> <uuid> </uuid> <?xml version='1.0'?> <!DOCTYPE <br> | > # No devices were found NVML: ² ٣ [4m
""".split()  # noqa: SIM905 - a hundred quotes more would make no list that one can read
CONTROLS = ["\t", "\t\t", "\n", "\n", "    ", ",", "\r\n", "\x00", "\x1b", "\ufeff", "\xa0"]
scraps = st.lists(st.sampled_from([*WORDS, *CONTROLS]), max_size=60).map(" ".join)


@slow
@given(text=st.text(max_size=200) | scraps | scraps.map(lambda text: text.replace(" ", "")))
def test_no_text_crashes_a_reader(text: str):
    assert all(0 < len(sentence) < 1000 for sentence in read_with_all(text))


@slow
@given(data=st.data(), drawn=machines(most_gpus=4, most_nics=2))
def test_no_damaged_matrix_crashes_a_reader_of_something_else(data: st.DataObject, drawn: Machine):
    text = data.draw(st.sampled_from(DAMAGES))(data.draw, as_printed(drawn))
    assert all(0 < len(sentence) < 1000 for sentence in read_with_all(text))


@pytest.mark.parametrize("damage", [pytest.param(damage, id=damage.__name__) for damage in DAMAGES])
@slow
@given(data=st.data(), drawn=machines(most_gpus=6, most_nics=4), rendering=st.sampled_from(RENDERINGS))
def test_damage_takes_cells_away_but_never_moves_one(damage: Damage, data: st.DataObject, drawn: Machine, rendering: str):
    text = damage(data.draw, (EXACT | BLANKED)[rendering](drawn))
    try:
        read = read_topology(text)
    except NvidiaSmiError:
        return
    whole = drawn.expected()
    if {gpu.index for gpu in read.gpus} - {gpu.index for gpu in whole.gpus}:
        assert damage is cut, "a label can only change where the header was cut inside it"
        return
    assert_nothing_moved(read, whole, may_be_half=damage is cut)
    if (read.gpu_cells, read.nic_cells) != (whole.gpu_cells, whole.nic_cells):
        assert read.warnings


def assert_nothing_moved(read: LinkMatrix, whole: LinkMatrix, *, may_be_half: bool) -> None:
    """Every cell that was read is the cell of the whole machine; the affinity at which a text was cut may be its beginning."""
    gpu_at = {gpu.index: i for i, gpu in enumerate(whole.gpus)}
    nic_at = {nic.label: k for k, nic in enumerate(whole.nics)}
    for gpu, gpu_cells, nic_cells in zip(read.gpus, read.gpu_cells, read.nic_cells, strict=True):
        i = gpu_at[gpu.index]
        for other, code in zip(read.gpus, gpu_cells, strict=True):
            assert code in (None, whole.gpu_cells[i][gpu_at[other.index]])
        for nic, code in zip(read.nics, nic_cells, strict=True):
            assert code in (None, whole.nic_cells[i][nic_at[nic.label]])
        for key in ("cpus", "numa", "gpu_numa"):
            value, true = getattr(gpu, key), getattr(whole.gpus[i], key)
            assert value in (None, true) or (may_be_half and (true or "").startswith(value))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("GPU0\t" * 5000 + "\nGPU0\tX\n", id="a header that names one GPU 5000 times"),
        pytest.param("\t" + "\t".join(f"GPU{i}" for i in range(5000)) + "\nGPU0\t X \n", id="5000 GPUs"),
        pytest.param("\tGPU0\t" + "\t".join(f"NIC{i}" for i in range(5000)) + "\nGPU0\t X \n", id="5000 NICs"),
        pytest.param("\tGPU0\nGPU0\t" + "SYS" * 30000, id="one word of 30000 codes"),
        pytest.param("GPU 0: " + " " * 30000 + "x", id="a name behind 30000 blanks"),
        pytest.param("\n" * 30000, id="nothing but lines"),
        pytest.param("[" + "1" * 30000, id="an escape code without an end"),
        pytest.param("index\n" + "1" * 30000, id="an index of 30000 digits"),
        pytest.param("<nvidia_smi_log>" * 300, id="an XML log inside an XML log"),
        pytest.param('<!DOCTYPE nvidia_smi_log [<!ENTITY a "b">]><nvidia_smi_log>&a;</nvidia_smi_log>', id="an XML log with an entity"),
        pytest.param("\tGPU0\tGPU1\n" + "GPU7\t X \tSYS\n" * 3000, id="3000 rows of a GPU that the header does not name"),
    ],
)
def test_an_absurd_text_is_refused_or_read_in_no_time(text: str):
    assert all(0 < len(sentence) < 1000 for sentence in read_with_all(text))
