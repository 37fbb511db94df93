"""What an earlier look knew and this one could not tell: the identity of lost GPUs, and links that nvidia-smi no longer prints.

Called by `wanted` between a look and its publication. A GPU that falls off the bus takes knowledge with it: its line in the query, its row of the matrix,
sometimes the whole of `topo -m`. Published as it is told, the node would lose a GPU that a pod still holds (which closes the node), or the NVLinks of the
seven GPUs that still work. Hardware does not change its places while it runs, so what was read before stands as long as nothing contradicts it:

- a lost GPU is recognised by its bus id, and one that is no longer listed at all counts as lost until the next boot;
- pairs without peer access stay so while nothing tells of them: those of a lost GPU, and, until the next boot, all where `topo -p2p` failed;
- the earlier matrix stands where all GPUs were in it, at the same bus ids, and no working GPU has fewer active NVLinks than it had, but for those that
  led to lost GPUs. After another boot silence does not count as consent: the number of NVLinks must have been told.

Why, and what else was considered: docs/decisions/0007-what-the-agent-remembers.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import count

from topology.agent.publication import Facts, has_identity
from topology.api import GPUTopology
from topology.inventory import Gpu, Inventory
from topology.links import LinkCode
from topology.matrix import GpuRow, LinkMatrix, NicColumn


@dataclass(frozen=True, slots=True)
class Earlier:
    """What this node was when it was last described; ``same_boot``: it has not been started anew since."""

    topology: GPUTopology
    same_boot: bool


def recall(facts: Facts, earlier: Earlier | None) -> Facts:
    """Return the facts of a look with what only the earlier one knew."""
    if earlier is None:
        return facts
    facts = _with_peer_access(_with_lost_gpus(facts, earlier), earlier)
    if facts.fallback is not None and _still_true(facts, earlier):
        return _with_earlier_matrix(facts, earlier)
    return _with_rows_of_lost_gpus(facts, earlier)


# --- who is there ---------------------------------------------------------------------------------------------------


def _with_lost_gpus(facts: Facts, earlier: Earlier) -> Facts:
    """Give lost GPUs their identity back, and add those that are no longer listed."""
    known = earlier.topology.inventory().gpus
    present = _joined(_recognised(gpu, earlier) for gpu in facts.inventory.gpus)
    listed = {gpu.uuid for gpu in present}
    # By UUID: the order of the earlier object follows indices, which may have changed since, and notes must not.
    vanished = sorted((replace(gpu, lost=True) for gpu in known if gpu.uuid not in listed), key=_uuid) if earlier.same_boot else []
    if not vanished and present == list(facts.inventory.gpus):
        return facts
    gpus = _with_own_indices([*present, *vanished])
    notes = tuple(f"GPU {gpu.uuid} at {gpu.bus_id or 'an unknown bus id'} is no longer listed by nvidia-smi: it counts as lost" for gpu in vanished)
    return replace(
        facts,
        inventory=Inventory(gpus, facts.inventory.driver_version, facts.inventory.warnings),
        notes=facts.notes + notes,
        vanished=frozenset(gpu.uuid for gpu in vanished if gpu.uuid is not None),
    )


def _uuid(gpu: Gpu) -> str:
    return gpu.uuid or ""


def _recognised(gpu: Gpu, earlier: Earlier) -> Gpu:
    """Return a lost GPU with what was known of it, any other as it is. An index alone names a GPU of the same boot only."""
    if not gpu.lost or (gpu.uuid is None and gpu.bus_id is None and not earlier.same_boot):
        return gpu
    before = next((one for one in earlier.topology.inventory().gpus if gpu.same_device(one)), None)
    return gpu if before is None else gpu.filled_from(before)


def _joined(gpus: Iterable[Gpu]) -> list[Gpu]:
    """Return the GPUs, those of one UUID in one: a question may still list a GPU that another one reports as lost, by its bus id alone."""
    found: list[Gpu] = []
    for gpu in gpus:
        at = next((i for i, known in enumerate(found) if gpu.uuid is not None and known.uuid == gpu.uuid and (gpu.lost or known.lost)), None)
        if at is None:
            found.append(gpu)
        else:
            found[at] = found[at].filled_from(gpu)
    return found


def _with_own_indices(gpus: list[Gpu]) -> tuple[Gpu, ...]:
    """Return the GPUs, no two of one index: a lost one gives way, since the driver may have counted the others anew."""
    taken = {gpu.index for gpu in gpus if not gpu.lost}
    given: dict[int, int] = {}  # place in the list -> index
    homeless: list[int] = []
    for at, gpu in enumerate(gpus):
        if gpu.lost and gpu.index is not None:
            if gpu.index in taken:
                homeless.append(at)
            else:
                taken.add(gpu.index)
                given[at] = gpu.index
    free = (index for index in count() if index not in taken)
    given |= dict(zip(homeless, free, strict=False))
    return tuple(replace(gpu, index=given.get(at, gpu.index)) for at, gpu in enumerate(gpus))


def _with_peer_access(facts: Facts, earlier: Earlier) -> Facts:
    """Keep what the driver refused where this look was told nothing about it."""
    was_silent = facts.refused is None and earlier.same_boot
    now = {gpu.uuid: gpu for gpu in facts.inventory.gpus if gpu.index is not None}
    before = [now.get(gpu.uuid) for gpu in earlier.topology.spec.gpus]
    kept: dict[tuple[int, int], str] = {}
    for (i, j), status in earlier.topology.refused().items():
        a, b = before[i], before[j]
        if a is not None and b is not None and (was_silent or a.lost or b.lost):
            first, second = sorted((a.index or 0, b.index or 0))
            kept[first, second] = status
    return replace(facts, refused={**kept, **(facts.refused or {})}) if kept else facts


# --- how they are joined --------------------------------------------------------------------------------------------


def _still_true(facts: Facts, earlier: Earlier) -> bool:
    """Tell whether nothing contradicts the earlier matrix."""
    topology = earlier.topology
    before = {gpu.uuid: gpu for gpu in topology.inventory().gpus}
    gpus = [gpu for gpu in facts.inventory.gpus if has_identity(gpu)]
    if topology.spec.source.kind != "nvidia-smi" or not gpus or any(gpu.uuid not in before for gpu in gpus):
        return False
    lost = {gpu.uuid for gpu in gpus if gpu.lost}
    return all(_unchanged(gpu, before[gpu.uuid], _nvlinks_to(topology, gpu.uuid, lost), earlier) for gpu in gpus if not gpu.lost)


def _unchanged(gpu: Gpu, before: Gpu, gone: int, earlier: Earlier) -> bool:
    """Tell whether a working GPU is where it was, with its NVLinks but for the ``gone`` ones to lost GPUs."""
    if gpu.bus_id is not None and before.bus_id is not None and gpu.bus_id != before.bus_id:
        return False
    if gpu.nvlinks is None or before.nvlinks is None:
        return earlier.same_boot or gpu.nvlinks == before.nvlinks
    return gpu.nvlinks >= before.nvlinks - gone


def _nvlinks_to(topology: GPUTopology, uuid: str | None, others: set[str | None]) -> int:
    """Return how many NVLinks the earlier matrix shows between a GPU and the others."""
    matrix = topology.printed_matrix()
    uuids = [gpu.uuid for gpu in topology.spec.gpus]
    codes = [matrix.between(uuids.index(uuid), position) for position, other in enumerate(uuids) if other in others and other != uuid] if uuid else []
    return sum(code.nvlinks for code in codes if code is not None)


def _with_earlier_matrix(facts: Facts, earlier: Earlier) -> Facts:
    kept = f"{facts.failed}. The links are those that it printed before; nothing contradicts them"
    old = _Old.of(earlier)
    gpus = [gpu for gpu in facts.inventory.gpus if has_identity(gpu) and gpu.index is not None]
    matrix = LinkMatrix(
        gpus=tuple(old.row(gpu) for gpu in gpus),
        nics=old.matrix.nics,
        gpu_cells=tuple(tuple(old.cell(a, b) for b in gpus) for a in gpus),
        nic_cells=tuple(tuple(old.nic_cell(gpu, nic) for nic in old.matrix.nics) for gpu in gpus),
    )
    return replace(facts, matrix=matrix, fallback=None, kept=kept)


def _with_rows_of_lost_gpus(facts: Facts, earlier: Earlier) -> Facts:
    """Add the rows that a matrix lacks because their GPUs are lost."""
    old = _Old.of(earlier)
    rows = {row.index for row in facts.matrix.gpus}
    missing = sorted((gpu for gpu in facts.inventory.gpus if gpu.lost and gpu.index not in rows and gpu.uuid in old.position), key=_uuid)
    if not missing:
        return facts
    matrix = facts.matrix
    present = [facts.inventory.by_index(row.index) or Gpu(index=row.index) for row in matrix.gpus]
    upper = tuple((*cells, *(old.cell(gpu, lost) for lost in missing)) for gpu, cells in zip(present, matrix.gpu_cells, strict=True))
    lower = tuple(tuple(old.cell(lost, gpu) for gpu in (*present, *missing)) for lost in missing)
    extended = replace(
        matrix,
        gpus=(*matrix.gpus, *(old.row(gpu) for gpu in missing)),
        gpu_cells=upper + lower,
        nic_cells=matrix.nic_cells + tuple(tuple(old.nic_cell(gpu, nic) for nic in matrix.nics) for gpu in missing),
    )
    notes = tuple(f"GPU {gpu.index} is lost: its links are those that were read before" for gpu in missing)
    return replace(facts, matrix=extended, notes=facts.notes + notes)


@dataclass(frozen=True, slots=True)
class _Old:
    """The earlier matrix, asked by UUID; None where it has no such device."""

    matrix: LinkMatrix
    position: dict[str | None, int]

    @staticmethod
    def of(earlier: Earlier) -> "_Old":
        topology = earlier.topology
        return _Old(topology.printed_matrix(), {gpu.uuid: at for at, gpu in enumerate(topology.spec.gpus)})

    def row(self, gpu: Gpu) -> GpuRow:
        at = self.position[gpu.uuid]
        return replace(self.matrix.gpus[at], index=gpu.index or 0)

    def cell(self, a: Gpu, b: Gpu) -> LinkCode | None:
        i, j = self.position.get(a.uuid), self.position.get(b.uuid)
        return None if i is None or j is None or i == j else self.matrix.gpu_cells[i][j]

    def nic_cell(self, gpu: Gpu, nic: NicColumn) -> LinkCode | None:
        at = self.position.get(gpu.uuid)
        return self.matrix.nic_cells[at][self.matrix.nics.index(nic)] if at is not None and nic in self.matrix.nics else None
