"""From what was found on a node to the GPUTopology that describes it, and to the YAML that people read.

Called by `probe` and, in the running agent, by `wanted` with everything that nvidia-smi and the kernel told. Pure: no tool, no clock, no file. Decides
which GPU can be published (one that has an identity), matches the rows of the link matrix with the inventory by index, and says in notes and conditions
what is missing. Nothing is left out without a note; a GPU that works but has no usable UUID is an error, since nobody could ever be given it.

What an earlier look told is added by `recall` before, who holds which GPU by `wanted` after. Owner reference and the decision whether anything changed
are `publish`'s.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

import yaml

from topology.api import (
    Condition,
    GpuSpec,
    GpuStatus,
    GPUTopology,
    GPUTopologyStatus,
    LinkRows,
    NicSpec,
    PcieSlot,
    RefusedPair,
    SourceSpec,
    read_gputopology,
)
from topology.errors import TopologyError
from topology.inventory import Gpu, Inventory
from topology.links import LinkCode
from topology.matrix import LinkMatrix

DRIVER_READY: Final = "DriverReady"  # nvidia-smi answered
LINKS_KNOWN: Final = "LinksKnown"  # every pair of GPUs has a code, and NVLink could be seen
GPUS_HEALTHY: Final = "GPUsHealthy"  # no GPU is lost

_LOST: Final = "the driver reports this GPU as lost; it needs a reset or a reboot"
_VANISHED: Final = "nvidia-smi no longer lists this GPU; it needs a reset or a reboot"
_UUID: Final = re.compile(r"GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")  # documentation elides it as GPU-…
_NOT_TOLD: Final = frozenset({None, "", "N/A"})  # N/A as the MIG mode of a model that has none


Answering = frozenset[tuple[str | None, str | None, bool]]  # UUID, bus id and whether it is lost, of each GPU


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found on a node.

    ``fallback`` says that the matrix is one of PCIe paths from the kernel and why, ``failed`` only how `topo -m` failed; both are None where it did not.
    Of an earlier look (`recall`): ``kept`` says why the whole matrix is from then, ``notes`` which parts are; ``vanished`` holds the UUIDs of lost GPUs
    that nothing but the earlier look tells of. ``refused``: pairs of GPU indices without peer access, and the driver's word for it; None where nothing told.
    ``answering``: who the first questions told of, for `probe.glance`.
    """

    inventory: Inventory
    matrix: LinkMatrix
    fallback: str | None = None
    failed: str | None = None
    kept: str | None = None
    notes: tuple[str, ...] = ()
    vanished: frozenset[str] = frozenset()
    refused: Mapping[tuple[int, int], str] | None = None
    answering: Answering = frozenset()


@dataclass(frozen=True, slots=True)
class _Found:
    """One GPU to be published, and its row in the matrix (None: it has none)."""

    gpu: Gpu
    index: int
    uuid: str
    row: int | None


def publication(node_name: str, facts: Facts, observed_at: datetime) -> GPUTopology:
    """Return the GPUTopology of the node; raises TopologyError where the facts describe no node, or a working GPU has no UUID."""
    found, notes = _matched(facts)
    if not found:
        raise TopologyError(f"node {node_name} has no GPU that can be published: {'; '.join(notes) or 'none was found'}")
    links = _link_rows(facts, found)
    notes = [*([facts.kept] if facts.kept else []), *facts.notes, *notes, *_gaps(links)]
    spec = {
        "gpus": [_gpu_spec(one, facts.matrix) for one in found],
        "nics": [NicSpec(label=nic.label, name=nic.name) for nic in facts.matrix.nics],
        "links": links,
        "driver_version": facts.inventory.driver_version,
        "source": _source(facts, notes),
        "gpu_count": len(found),
        "model": _common_model(found),
        "nvlink": _nvlink(links, facts),
    }
    status = _status(facts, found, notes, observed_at.replace(microsecond=0))
    # Through the same border as every reader: what is published can be read (at most 16 GPUs, every UUID once).
    return read_gputopology({"metadata": {"name": node_name}, "spec": spec, "status": status})


def as_yaml(topology: GPUTopology) -> str:
    """Return the object as YAML, keys in the order of the types, one row of the link matrix a line, and one pair without peer access."""
    raw = topology.to_object()
    links = raw["spec"]["links"]
    raw["spec"]["links"] = {key: [_OneLine(row) if isinstance(row, list) else _OneLinePair(row) for row in rows] for key, rows in links.items()}
    return yaml.dump(raw, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_NEVER_WRAPPED)


# --- which GPUs -----------------------------------------------------------------------------------------------------


def _matched(facts: Facts) -> tuple[list[_Found], list[str]]:
    """Return the GPUs to be published, by index, and a sentence for everything that does not match."""
    row_of = {row.index: position for position, row in enumerate(facts.matrix.gpus)}
    found: list[_Found] = []
    notes: list[str] = []
    for gpu in facts.inventory.gpus:
        if gpu.index is None or not has_identity(gpu):
            notes.append(_left_out(gpu))
            continue
        one = _Found(gpu, gpu.index, gpu.uuid or "", row_of.pop(gpu.index, None))
        found.append(one)
        if one.row is None:
            notes.append(f"GPU {one.index} is not in the link matrix: its links are unknown")
    notes += [f"GPU{index} is in the link matrix, but nvidia-smi lists no such GPU: it is left out" for index in row_of]
    return sorted(found, key=lambda one: one.index), notes


def has_identity(gpu: Gpu) -> bool:
    """Tell whether the GPU has a UUID of its own, not an elided or masked one."""
    return gpu.uuid is not None and _UUID.fullmatch(gpu.uuid) is not None


def _left_out(gpu: Gpu) -> str:
    """Return the note about a GPU that nobody can be given; raises TopologyError if it works."""
    name = "a GPU" if gpu.index is None else f"GPU {gpu.index}"
    where = "" if gpu.bus_id is None else f" at {gpu.bus_id}"
    if gpu.lost:
        return f"{name}{where} is lost and does not tell its UUID and index: it is left out"
    shown = "no UUID" if gpu.uuid is None else f"the UUID {gpu.uuid!r}"
    wanted = "GPU- and 32 hexadecimal digits in five groups" if gpu.index is not None else "an index and a UUID"
    raise TopologyError(f"{name}{where} cannot be published: nvidia-smi shows {shown} for it; accepted: {wanted}")


# --- spec -----------------------------------------------------------------------------------------------------------


def _link_rows(facts: Facts, found: list[_Found]) -> LinkRows:
    matrix = facts.matrix
    gpu_rows = tuple(tuple(_cell(matrix, a, b) for b in found) for a in found)
    nic_rows = tuple(tuple(_text(code) for code in _nic_cells(matrix, one)) for one in found) if matrix.nics else ()
    place = {one.index: at for at, one in enumerate(found)}
    refused = [
        RefusedPair(a=place[a], b=place[b], status=status) for (a, b), status in sorted((facts.refused or {}).items()) if a in place and b in place
    ]
    return LinkRows(gpus=gpu_rows, nics=nic_rows, no_peer_access=tuple(refused) or None)


def _cell(matrix: LinkMatrix, a: _Found, b: _Found) -> str:
    if a.uuid == b.uuid:
        return "X"
    return "-" if a.row is None or b.row is None else _text(matrix.gpu_cells[a.row][b.row])


def _nic_cells(matrix: LinkMatrix, one: _Found) -> tuple[LinkCode | None, ...]:
    return (None,) * len(matrix.nics) if one.row is None else matrix.nic_cells[one.row]


def _text(code: LinkCode | None) -> str:
    return "-" if code is None else code.text


def _gaps(links: LinkRows) -> list[str]:
    pairs = {frozenset((i, j)) for i, row in enumerate(links.gpus) for j, cell in enumerate(row) if cell == "-" and links.gpus[j][i] == "-"}
    nics = sum(row.count("-") for row in links.nics)
    notes = [f"the links of {len(pairs)} pairs of GPUs are unknown"] if pairs else []
    return [*notes, f"the links of {nics} pairs of GPU and NIC are unknown"] if nics else notes


def _gpu_spec(one: _Found, matrix: LinkMatrix) -> GpuSpec:
    gpu = one.gpu
    row = None if one.row is None else matrix.gpus[one.row]
    numa = None if row is None else row.numa
    cpus = None if row is None else row.cpus
    return GpuSpec(
        index=one.index,
        minor=gpu.minor,
        uuid=one.uuid,
        bus_id=gpu.bus_id,
        model=gpu.model,
        memory_mib=gpu.memory_mib,
        numa_node=int(numa) if numa is not None and numa.isascii() and numa.isdigit() else gpu.numa_node,
        cpus=gpu.cpus if cpus in _NOT_TOLD else cpus,
        pcie=PcieSlot(generation=gpu.pcie_generation, width=gpu.pcie_width),
        nvlinks=gpu.nvlinks,
        mig_mode=None if gpu.mig_mode in _NOT_TOLD else gpu.mig_mode,
    )


def _source(facts: Facts, notes: list[str]) -> SourceSpec:
    said = [*([facts.fallback] if facts.fallback else []), *notes, *facts.matrix.warnings, *facts.inventory.warnings]
    return SourceSpec(
        kind="sysfs" if facts.fallback else "nvidia-smi",
        quality="fallback" if facts.fallback else "partial" if notes else "full",
        notes=tuple(dict.fromkeys(said)),
    )


def _common_model(found: list[_Found]) -> str | None:
    models = list(dict.fromkeys(one.gpu.model for one in found if one.gpu.model))
    return f"mixed: {', '.join(models)}" if len(models) > 1 else next(iter(models), None)


def _nvlink(links: LinkRows, facts: Facts) -> str:
    """Return the NV codes of the matrix, fewest links first; the kernel sees none, so that a fallback only knows about NVLink from `nvlink -s`."""
    if facts.fallback and any(gpu.nvlinks != 0 for gpu in facts.inventory.gpus):
        return "unknown"
    codes = {code for row in links.gpus for cell in row if (code := LinkCode.parse(cell)) is not None and code.nvlinks}
    return ",".join(code.text for code in sorted(codes, key=lambda code: code.nvlinks)) or "none"


# --- status ---------------------------------------------------------------------------------------------------------


def _status(facts: Facts, found: list[_Found], notes: list[str], observed_at: datetime) -> GPUTopologyStatus:
    lost = [gpu for gpu in facts.inventory.gpus if gpu.lost]
    health = f"{len(lost)} of {len(facts.inventory.gpus)} lost" if lost else "Healthy"
    conditions = (
        _condition(DRIVER_READY, "NvidiaSmiAnswers", f"nvidia-smi answers; driver {facts.inventory.driver_version or 'of unknown version'}"),
        _links_condition(facts, notes),
        _condition(GPUS_HEALTHY, "GPULost", _lost_sentence(lost), "False") if lost else _condition(GPUS_HEALTHY, "AllHealthy", "no GPU is lost"),
    )
    return GPUTopologyStatus(
        observed_at=observed_at,
        gpus=tuple(_gpu_status(one, facts) for one in found),
        conditions=tuple(condition.model_copy(update={"last_transition_time": observed_at}) for condition in conditions),
        health=health,
    )


def _condition(kind: str, reason: str, message: str, status: Literal["True", "False", "Unknown"] = "True") -> Condition:
    return Condition(type=kind, status=status, reason=reason, message=message)


def _links_condition(facts: Facts, notes: list[str]) -> Condition:
    if facts.fallback:
        return _condition(LINKS_KNOWN, "NVLinkUnseen", facts.fallback, "False")
    if facts.kept:
        return _condition(LINKS_KNOWN, "MatrixKept", facts.kept, "False")
    if notes:
        return _condition(LINKS_KNOWN, "MatrixIncomplete", "; ".join(notes), "False")
    return _condition(LINKS_KNOWN, "MatrixRead", "nvidia-smi topo -m shows every link")


def _lost_sentence(lost: Iterable[Gpu]) -> str:
    names = [gpu.uuid or gpu.bus_id or (f"GPU {gpu.index}" if gpu.index is not None else "a GPU") for gpu in lost]
    return f"lost: {', '.join(names)}; a lost GPU needs a reset or a reboot"


def _gpu_status(one: _Found, facts: Facts) -> GpuStatus:
    reason = None if not one.gpu.lost else _VANISHED if one.uuid in facts.vanished else _LOST
    return GpuStatus(uuid=one.uuid, healthy=not one.gpu.lost, reason=reason, memory_used_mib=one.gpu.memory_used_mib)


# --- YAML -----------------------------------------------------------------------------------------------------------

_BREAKS: Final = frozenset("\x85\u2028\u2029")
_NEVER_WRAPPED: Final = 1 << 20  # columns: a row or a sentence stays on its line


class _OneLine(list[str]):
    """A list that is written in brackets on one line."""


class _OneLinePair(dict[str, Any]):
    """An object that is written in braces on one line."""


class _Dumper(yaml.SafeDumper):
    """The safe dumper, which also knows rows and pairs."""


def _one_line(dumper: yaml.SafeDumper, row: Any) -> yaml.Node:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", row, flow_style=True)


def _one_line_pair(dumper: yaml.SafeDumper, pair: Any) -> yaml.Node:
    return dumper.represent_mapping("tag:yaml.org,2002:map", pair, flow_style=True)


def _text_with_breaks(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    """Write a text in double quotes where it holds one of the line breaks of Unicode: in any other style they are read back as blanks."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if _BREAKS & set(text) else None)


_Dumper.add_representer(str, _text_with_breaks)
_Dumper.add_representer(_OneLine, _one_line)
_Dumper.add_representer(_OneLinePair, _one_line_pair)
