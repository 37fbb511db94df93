"""`machine_links`: from codes and product names to the numbers of one machine.

Called by `topology_class` and `linkwise inspect` with a matrix and, where there is one, an inventory. What the hardware did not tell is taken at the lowest
rate that fits, and said in a sentence. Rates and capacities come from `links`; what a set of GPUs makes of the numbers is decided in `sets`.

GPUs whose cells show more NVLinks than they have are behind NVSwitch: every cell shows the GPU's total, to be counted once and not once a neighbour.

What the machine is (NVSwitch, generations, the PCIe hierarchy) is judged by what was printed; what a pair gets, by what the driver lets it use (`peer_access`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from topology.inventory import Gpu, Inventory
from topology.links import LOWEST_PCIE, PCIE_LANE_GB_PER_S, PCIE_PATH_SHARE, Distance, LinkCode, gpu_model, nvlink_capacity, nvlink_rate
from topology.matrix import GpuRow, LinkMatrix


@dataclass(frozen=True, slots=True, eq=False)
class MachineLinks:
    """The links of one machine as numbers; n GPUs in the order of the matrix, all arrays symmetric, zero on the diagonal, read-only.

    ``assumptions`` are sentences for people: what the hardware did not tell, and what was taken instead.
    """

    nvlinks: NDArray[np.int8]  # (n, n) NVLinks of the pair, 0 for a PCIe path
    nvlink_gb_per_s: NDArray[np.float64]  # (n, n) GB/s of ONE link and direction, the slower of both ends, 0 without NVLinks
    nvswitch: NDArray[np.bool_]  # (n,) the GPU's NVLinks lead to NVSwitch
    distance: NDArray[np.int8]  # (n, n) Distance of the code
    pcie_distance: NDArray[np.int8]  # (n, n) Distance of the PCIe path, also where NVLinks hide it
    pcie_wires: NDArray[np.int8]  # (n, n) the same where the driver lets every path be used: what uplinks two GPUs share
    pcie_gb_per_s: NDArray[np.float64]  # (n, n) GB/s of the PCIe path, one direction
    slot_gb_per_s: NDArray[np.float64]  # (n,) GB/s of the GPU's PCIe slot, line rate, one direction
    assumptions: tuple[str, ...]

    @property
    def size(self) -> int:
        """Number of GPUs."""
        return len(self.nvlinks)

    @property
    def switched(self) -> bool:
        """Whether any NVSwitch was seen."""
        return bool(self.nvswitch.any())


def matched_gpus(matrix: LinkMatrix, inventory: Inventory | None) -> tuple[Gpu, ...]:
    """Return what the inventory tells of every GPU of the matrix, in the matrix's order; a bare `Gpu` where it tells nothing."""
    known = {} if inventory is None else {gpu.index: gpu for gpu in reversed(inventory.gpus) if gpu.index is not None}
    return tuple(known.get(row.index, Gpu(index=row.index)) for row in matrix.gpus)


def numa_of(row: GpuRow, gpu: Gpu) -> int | str | None:
    """Return the GPU's NUMA node: a number, or the printed text where it is a range (`0-1`), or None where nothing tells.

    >>> numa_of(GpuRow(0, numa="1"), Gpu()), numa_of(GpuRow(0, numa="0-1"), Gpu()), numa_of(GpuRow(0, numa="N/A"), Gpu())
    (1, '0-1', None)
    """
    if gpu.numa_node is not None and gpu.numa_node >= 0:  # the kernel says -1 where the firmware does not tell
        return gpu.numa_node
    text = (row.numa or "").strip()
    if text.isdecimal():
        return int(text)
    return None if text.upper() in {"", "N/A"} else text


def machine_links(matrix: LinkMatrix, inventory: Inventory | None = None) -> MachineLinks:
    """Return the links of a machine as numbers; ``inventory`` adds models and slots, matched by GPU index.

    >>> from topology.matrix import from_codes
    >>> found = machine_links(from_codes(["X NV12 SYS".split(), "NV12 X SYS".split(), "SYS SYS X".split()]))
    >>> found.nvlinks[0, 1] * found.nvlink_gb_per_s[0, 1], found.switched
    (np.float64(300.0), False)
    """
    gpus = matched_gpus(matrix, inventory)
    notes: list[str] = _unprinted(matrix)
    nvlinks, distance = _codes(matrix.size, matrix.between)
    wired, wired_distance = _codes(matrix.size, matrix.wired)
    joined = _joined(wired)
    nvswitch = _behind_nvswitch(wired, joined, gpus)
    nvlink_rates = np.where(nvlinks > 0, _nvlink_rates(wired, joined, nvswitch, gpus, notes), 0.0)
    pcie_wires = _pcie_distances(wired_distance, [numa_of(row, gpu) for row, gpu in zip(matrix.gpus, gpus, strict=True)], notes)
    pcie_distance = np.where(distance == wired_distance, pcie_wires, distance)
    slots = _slot_rates(gpus, notes)
    pcie_rates = _pcie_rates(pcie_distance, slots)
    for array in (nvlinks, nvlink_rates, nvswitch, distance, pcie_distance, pcie_wires, pcie_rates, slots):
        array.setflags(write=False)
    return MachineLinks(nvlinks, nvlink_rates, nvswitch, distance, pcie_distance, pcie_wires, pcie_rates, slots, tuple(dict.fromkeys(notes)))


def _unprinted(matrix: LinkMatrix) -> list[str]:
    pairs = [f"{matrix.gpus[i].label}-{matrix.gpus[j].label}" for i, j in matrix.missing()]
    return [f"No code was printed for {_listed(pairs)}: SYS is assumed, the longest path."] if pairs else []


def _codes(size: int, code_of: Callable[[int, int], LinkCode | None]) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """NVLinks and Distance of every pair, (n, n) each."""
    nvlinks = np.zeros((size, size), dtype=np.int8)
    distance = np.zeros((size, size), dtype=np.int8)
    for i, j in combinations(range(size), 2):
        code = code_of(i, j)
        nvlinks[i, j] = nvlinks[j, i] = 0 if code is None else code.nvlinks
        distance[i, j] = distance[j, i] = Distance.SYS if code is None else code.distance
    return nvlinks, distance


def _joined(nvlinks: NDArray[np.int8]) -> NDArray[np.bool_]:
    """(n, n) bool: NVLinks lead from one to the other, directly or over further GPUs; every GPU is joined to itself."""
    joined = (nvlinks > 0) | np.eye(len(nvlinks), dtype=np.bool_)
    for via in range(len(nvlinks)):
        joined |= joined[:, via, None] & joined[None, via, :]
    return joined


def _behind_nvswitch(nvlinks: NDArray[np.int8], joined: NDArray[np.bool_], gpus: Sequence[Gpu]) -> NDArray[np.bool_]:
    """(n,) bool: joined by NVLinks to GPUs (itself included) whose cells show more links than they have.

    Judged per joined group, so that a machine behind NVSwitch on which one GPU has lost some or all of its links is still seen for what it is, and not
    as a mesh of twice the bandwidth.
    """
    too_many = np.array([_more_than_its_links(nvlinks, i, nvlink_capacity(gpu.model)) for i, gpu in enumerate(gpus)], dtype=np.bool_)
    return np.asarray((joined & too_many[None, :]).any(axis=1))


def _more_than_its_links(nvlinks: NDArray[np.int8], i: int, links: int) -> bool:
    """Tell whether ``i`` is among g >= 3 GPUs with n or more NVLinks in every cell, and (g - 1) * n is more than the ``links`` it has.

    A sum over the row would do for hardware, but link tables of machines that exist on paper only (MAPA's 16-GPU cube mesh) add up to one link too many.
    """
    for count in map(int, np.unique(nvlinks[i][nvlinks[i] > 0])):
        group = np.flatnonzero((nvlinks[i] >= count) | (np.arange(len(nvlinks)) == i))
        cells = nvlinks[np.ix_(group, group)][~np.eye(len(group), dtype=np.bool_)]
        if len(group) >= 3 and bool((cells >= count).all()) and (len(group) - 1) * count > links:
            return True
    return False


def _nvlink_rates(
    nvlinks: NDArray[np.int8], joined: NDArray[np.bool_], nvswitch: NDArray[np.bool_], gpus: Sequence[Gpu], notes: list[str]
) -> NDArray[np.float64]:
    """(n, n) GB/s of one NVLink between the two, the slower end's.

    Both ends of an NVLink are of one generation, so all that are joined are, and the GPU with the most links among them tells what fits.
    """
    cells, totals = nvlinks.max(axis=1, initial=0), nvlinks.sum(axis=1, dtype=np.int64)
    own = np.zeros(len(gpus))
    assumed: dict[str, list[str]] = {}
    for i in map(int, np.flatnonzero(cells)):
        cell, total = int(cells[joined[i]].max()), int(totals[joined[i]].max())
        rate = nvlink_rate(gpus[i].model, cell, cell if nvswitch[i] else total, gpus[i].nvlink_gb_per_s)
        own[i] = rate.gb_per_s
        if rate.assumed:
            assumed.setdefault(f"{rate.gb_per_s:g} GB/s per NVLink {rate.source}", []).append(f"GPU{gpus[i].index}")
    notes += [f"The NVLink generation of {_listed(who)} was not told: {what}." for what, who in assumed.items()]
    return np.where(nvlinks > 0, np.minimum(own[:, None], own[None, :]), 0.0)


def _pcie_distances(distance: NDArray[np.int8], numa: Sequence[int | str | None], notes: list[str]) -> NDArray[np.int8]:
    """(n, n) Distance of the PCIe path of every pair.

    `nvidia-smi topo -m` does not print it where there are NVLinks. PCIe levels form a hierarchy, so a path is never longer than the longer part of a
    detour over other GPUs; nor does it leave the NUMA node that both ends are on. The longest path within these bounds is assumed.
    """
    hidden = distance == Distance.NVLINK
    np.fill_diagonal(hidden, val=False)
    same = np.array([[isinstance(a, int) and a == b for b in numa] for a in numa], dtype=np.bool_).reshape(distance.shape)
    path = np.where(hidden, np.where(same, Distance.NODE, Distance.SYS), distance).astype(np.int8)
    for via in range(len(numa)):
        path = np.minimum(path, np.maximum(path[:, via, None], path[None, via, :]))
    path = np.where(hidden, path, distance)
    counts = {level: np.count_nonzero(path[hidden] == level) // 2 for level in sorted({int(level) for level in path[hidden]})}
    if counts:
        told = ", ".join(f"{Distance(level).name} for {count} {'pair' if count == 1 else 'pairs'}" for level, count in counts.items())
        notes.append(f"The PCIe path under NVLinks is not printed; the longest that fits is assumed: {told}.")
    return path


def _slot_rates(gpus: Sequence[Gpu], notes: list[str]) -> NDArray[np.float64]:
    """(n,) GB/s of every GPU's PCIe slot, line rate."""
    slots = [slot_of(gpu) for gpu in gpus]
    if len(gpus) > 1:
        assumed: dict[tuple[int, int], list[str]] = {}
        for gpu, slot in zip(gpus, slots, strict=True):
            if gpu.pcie_generation not in PCIE_LANE_GB_PER_S or not gpu.pcie_width:
                assumed.setdefault(slot, []).append(f"GPU{gpu.index}")
        notes += [f"The PCIe slot of {_listed(who)} was not told: generation {slot[0]} x{slot[1]} is assumed." for slot, who in assumed.items()]
    return np.array([PCIE_LANE_GB_PER_S[generation] * width for generation, width in slots], dtype=np.float64)


def _pcie_rates(pcie_distance: NDArray[np.int8], slots: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, n) GB/s of the PCIe path of every pair: what its length leaves of the slower of both slots."""
    shares = np.zeros(1 + max(PCIE_PATH_SHARE))
    shares[list(PCIE_PATH_SHARE)] = [path.share for path in PCIE_PATH_SHARE.values()]
    return np.asarray(shares[pcie_distance] * np.minimum(slots[:, None], slots[None, :]))


def slot_of(gpu: Gpu) -> tuple[int, int]:
    """Return PCIe generation and width of the GPU's slot: as told, else as the model has it, else the lowest."""
    generation = gpu.pcie_generation
    if generation not in PCIE_LANE_GB_PER_S:
        model = gpu_model(gpu.model)
        generation = LOWEST_PCIE[0] if model is None else model.pcie_generation
    return generation, gpu.pcie_width or LOWEST_PCIE[1]


def _listed(names: Iterable[str]) -> str:
    """Names in one phrase, cut where there are many."""
    all_names = list(names)
    shown = ", ".join(all_names[:4])
    return shown if len(all_names) <= 4 else f"{shown} and {len(all_names) - 4} more"
