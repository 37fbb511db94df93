"""Machines as graphs, for the tests of drawings: by name, by hand, and any that hypothesis can think of."""

from hypothesis import strategies as st

from tests.machines import Machine
from topology.graph import MachineGraph
from topology.inspection import machine_of
from topology.links import LinkCode
from topology.matrix import GpuRow, LinkMatrix, NicColumn, from_codes

_CODES = [*(LinkCode(text) for text in ("NV1", "NV2", "NV12", "NV18", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC")), None]
_NIC_CODES = [*(LinkCode(text) for text in ("PIX", "PXB", "PHB", "NODE", "SYS", "SOC")), None]


def graph_of(machine: Machine, *, told: bool = True) -> MachineGraph:
    """Return the graph of a machine; without ``told`` as if only the matrix was known."""
    return machine_of(machine.matrix, machine.inventory if told else None).graph


def graph_by_hand(*rows: str, numa: tuple[str, ...] | None = None, nics: dict[str, str] | None = None) -> MachineGraph:
    """Return the graph of rows of codes; ``nics`` maps a NIC's label to its cells, one a GPU, separated by blanks."""
    bare = from_codes([row.split() for row in rows], numa)
    named = nics or {}
    columns = [[LinkCode.parse(cell) for cell in cells.split()] for cells in named.values()]
    cells = tuple(tuple(column[i] for column in columns) for i in range(bare.size))
    matrix = LinkMatrix(bare.gpus, tuple(NicColumn(label, label) for label in named), bare.gpu_cells, cells)
    return machine_of(matrix).graph


@st.composite
def machine_graphs(draw: st.DrawFn, most: int = 9) -> MachineGraph:
    """Any machine at all: cells that contradict each other or were not printed, NUMA cells of every form, NICs with odd names."""
    size = draw(st.integers(1, most))
    cells = tuple(tuple(None if i == j else draw(st.sampled_from(_CODES)) for j in range(size)) for i in range(size))
    count = draw(st.integers(0, 5))
    nic_cells = tuple(tuple(draw(st.sampled_from(_NIC_CODES)) for _ in range(count)) for _ in range(size))
    gpus = tuple(GpuRow(i, draw(st.sampled_from([None, "0-7", "0,2,4"])), draw(st.sampled_from([None, "0", "1", "0-1", "N/A"]))) for i in range(size))
    names = draw(st.lists(st.none() | st.text(max_size=12), min_size=count, max_size=count))
    return machine_of(LinkMatrix(gpus, tuple(NicColumn(f"NIC{k}", name) for k, name in enumerate(names)), cells, nic_cells)).graph
