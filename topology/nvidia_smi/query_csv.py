"""`nvidia-smi --query-gpu=… --format=csv`: any set of columns, with or without units and header, as a table and as an inventory.

`read_csv_table` keeps every cell as printed. `read_query_csv` makes GPUs of the columns that Linkwise knows (`_COLUMNS`) and passes over the others.
Without a header only columns whose values can be nothing else are recognised: UUIDs, bus ids, model names, a running index. Rows in which a GPU no
longer answers, and messages between good rows, become lost GPUs or warnings.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from topology.errors import NvidiaSmiError, NvidiaSmiFailure
from topology.inventory import Gpu, Inventory
from topology.links import gpu_model
from topology.nvidia_smi.failures import failure_in, shortened
from topology.nvidia_smi.listing import about_repeated_indices, masked_uuid
from topology.nvidia_smi.plain_text import plain_lines
from topology.nvidia_smi.unreadable import no_answer
from topology.nvidia_smi.values import bus_id_or_none, mig_mode_or_none, number_or_none, tells_of_a_lost_gpu, text_or_none, uuid_or_none


@dataclass(frozen=True, slots=True)
class CsvTable:
    """Cells as printed. ``columns`` are the names without units, () where the text has no header; ``loose_lines`` fit no row."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    loose_lines: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.columns) if self.columns else max((len(row) for row in self.rows), default=0)

    def column(self, name: str) -> tuple[str, ...] | None:
        """Return the cells of a column, None where there is none of that name."""
        return tuple(row[self.columns.index(name)] for row in self.rows) if name in self.columns else None


# Field of `Gpu` and reader of its cell, by the name of the column and its alias. The maximum of the slot, not what an idle link has fallen back to.
_COLUMNS: Final[dict[str, tuple[str, Callable[[str], object]]]] = {
    "index": ("index", number_or_none),
    "uuid": ("uuid", uuid_or_none),
    "gpu_uuid": ("uuid", uuid_or_none),
    "name": ("model", text_or_none),
    "gpu_name": ("model", text_or_none),
    "pci.bus_id": ("bus_id", bus_id_or_none),
    "gpu_bus_id": ("bus_id", bus_id_or_none),
    "memory.total": ("memory_mib", number_or_none),
    "memory.used": ("memory_used_mib", number_or_none),
    "pcie.link.gen.max": ("pcie_generation", number_or_none),
    "pcie.link.width.max": ("pcie_width", number_or_none),
    "mig.mode.current": ("mig_mode", mig_mode_or_none),
}
_DRIVER: Final = "driver_version"
_COLUMN_NAME: Final = re.compile(r"(?P<name>[a-z][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)(?:\s+\[[^\]]*\])?")
_PLAIN_NAMES: Final = frozenset({*_COLUMNS, _DRIVER, "count", "serial", "timestamp", "pstate", "compute_cap", "compute_mode", "persistence_mode"})
_COMMAND: Final = re.compile(r"--query-gpu[= ]\"?(?P<columns>[A-Za-z][\w.,]*)")
_SAID_BY_TOOL: Final = re.compile(r"\[[^\]]+\]")
_DRIVER_VERSION: Final = re.compile(r"\d{3}\.\d{1,3}\.\d{1,3}")  # two parts (466.63) could be watts
_NAME: Final = re.compile(r"[A-Za-z0-9][\w .+/\-]{1,60}")
_BRAND: Final = re.compile(r"(?:NVIDIA|Tesla|Quadro|GeForce|GRID|TITAN)\b")
_WANTED: Final = "wanted: the output of `nvidia-smi --query-gpu=index,uuid,name,pci.bus_id,memory.total --format=csv`"


def read_csv_table(text: str) -> CsvTable:
    r"""Split the text into rows of cells; raises NvidiaSmiError where it has neither header nor row.

    >>> read_csv_table("index, memory.total [MiB]\n0, 81920 MiB").columns
    ('index', 'memory.total')
    """
    lines = [line.strip() for line in plain_lines(text) if line.strip() and not _COMMAND.search(line)]
    columns: tuple[str, ...] = ()
    rows: list[tuple[str, ...]] = []
    loose: list[str] = []
    for line in lines:
        cells = tuple(cell.strip() for cell in line.split(","))
        names = _header(cells)
        if names and not columns:
            columns = names
        elif (names and names == columns) or not _may_be_row(line):
            loose += [] if names else [line]
        else:
            rows.append(cells)
    columns = columns or _asked_columns(text)
    width = len(columns) or _usual_width(rows)
    if not width or (not columns and not _is_telling(rows, width)):
        raise no_answer(text, _WANTED)
    loose += [", ".join(row) for row in rows if len(row) != width]
    return CsvTable(columns, tuple(row for row in rows if len(row) == width), tuple(loose))


def _asked_columns(text: str) -> tuple[str, ...]:
    """Return the columns that a copied command line asks for: with `noheader` it is all that names them."""
    command = _COMMAND.search(text)
    return tuple(command["columns"].split(",")) if command else ()


def _header(cells: Sequence[str]) -> tuple[str, ...]:
    matches = [_COLUMN_NAME.fullmatch(cell) for cell in cells]
    names = tuple(match["name"] for match in matches if match)
    is_header = len(names) == len(cells) and any(name in _PLAIN_NAMES or "." in name for name in names)
    return names if is_header else ()


def _may_be_row(line: str) -> bool:
    # "[GPU is lost]" is a cell; "Unable to determine the device handle …: GPU is lost. Reboot …" is a message.
    return "," in line or failure_in(line) is None or line.startswith("[")


def _usual_width(rows: Sequence[tuple[str, ...]]) -> int:
    return Counter(len(row) for row in rows).most_common(1)[0][0] if rows else 0


def _is_telling(rows: Sequence[tuple[str, ...]], width: int) -> bool:
    """Whether rows without a header are a query's answer, and not any text with commas: one column is recognised, or the tool says `[N/A]`."""
    whole = [row for row in rows if len(row) == width]
    return any(_shape([row[k] for row in whole]) for k in range(width)) or any(_SAID_BY_TOOL.fullmatch(cell) for row in whole for cell in row)


def read_query_csv(text: str) -> Inventory:
    r"""Read the GPUs of a CSV query, with warnings for what cannot be read; raises NvidiaSmiError where the text is no such answer.

    >>> read_query_csv("index, name\n0, NVIDIA A30").gpus[0].model
    'NVIDIA A30'
    """
    table = read_csv_table(text)
    warnings: list[str] = []
    columns = table.columns or _guessed_columns(table, warnings)
    gpus: list[Gpu] = []
    for number, row in enumerate(table.rows, start=1):
        gpu = _gpu(columns, row)
        warnings += _about_row(number, columns, row, gpu)
        _add(gpus, gpu)
    for line in table.loose_lines:
        lost, warning = _about_loose_line(line)
        warnings.append(warning)
        if lost is not None:
            _add(gpus, lost)
    if not gpus:
        raise _no_gpu(table)
    versions = [
        cell for name, cells in zip(columns, zip(*table.rows, strict=True), strict=False) if name == _DRIVER for cell in cells if text_or_none(cell)
    ]
    return Inventory(tuple(gpus), versions[0] if versions else None, (*warnings, *about_repeated_indices(gpus)))


def _no_gpu(table: CsvTable) -> NvidiaSmiError:
    """Return the error for a table without a GPU: what the tool said instead of rows, else that there is none."""
    said = next((failure for line in table.loose_lines if (failure := failure_in(line))), None)
    if said is None and table.rows:
        return NvidiaSmiError(NvidiaSmiFailure.UNKNOWN, f"no column of the table tells of a GPU; {_WANTED}")
    return said or NvidiaSmiError(NvidiaSmiFailure.PARTIAL, f"the table has a header but no readable row; {_WANTED}, whole")


def _guessed_columns(table: CsvTable, warnings: list[str]) -> tuple[str, ...]:
    names = [_shape([row[k] for row in table.rows]) for k in range(table.width)]
    guessed = tuple(name if name and names.count(name) == 1 else "" for name in names)
    known = [f"column {k} as {name}" for k, name in enumerate(guessed, start=1) if name]
    if known:
        warnings.append(f"the table has no header; recognised by their values: {', '.join(known)}")
    return guessed


def _shape(cells: Sequence[str]) -> str | None:
    """Return the column that these values can only belong to; cells without a value do not count."""
    told = [cell for cell in cells if text_or_none(cell)]
    if not told:
        return None
    if all(cell.startswith("GPU-") for cell in told):
        return "uuid"
    if all(bus_id_or_none(cell) for cell in told):
        return "pci.bus_id"
    if all(_NAME.fullmatch(cell) and (gpu_model(cell) is not None or _BRAND.match(cell)) for cell in told):
        return "name"
    if all(_DRIVER_VERSION.fullmatch(cell) for cell in told) and len(set(told)) == 1:
        return _DRIVER
    return "index" if len(told) > 1 and told == [str(k) for k in range(len(told))] else None


def _gpu(columns: Sequence[str], row: Sequence[str]) -> Gpu:
    told: dict[str, Any] = {}
    for name, cell in zip(columns, row, strict=True):
        if name in _COLUMNS:
            key, reader = _COLUMNS[name]
            value = reader(cell)
            if value is not None:
                told.setdefault(key, value)
    return replace(Gpu(lost=any(tells_of_a_lost_gpu(cell) for cell in row)), **told)


def _about_row(number: int, columns: Sequence[str], row: Sequence[str], gpu: Gpu) -> Iterator[str]:
    name = f"GPU {gpu.index}" if gpu.index is not None else gpu.bus_id or gpu.uuid or f"the GPU of row {number}"
    if gpu.lost:
        said = next(cell for cell in row if tells_of_a_lost_gpu(cell))
        yield f"{name} no longer answers: {said}"
    for column, cell in zip(columns, row, strict=True):
        if column in ("uuid", "gpu_uuid") and text_or_none(cell):
            yield from masked_uuid(name, cell, gpu.uuid)


def _about_loose_line(line: str) -> tuple[Gpu | None, str]:
    failure = failure_in(line)
    if failure is None:
        return None, f'a line does not have the columns of the table and was not read: "{shortened(line)}"'
    is_lost = failure.kind is NvidiaSmiFailure.DEVICE_LOST and failure.bus_id is not None
    return Gpu(bus_id=failure.bus_id, lost=True) if is_lost else None, f"among the rows, {failure}"


def _add(gpus: list[Gpu], gpu: Gpu) -> None:
    """Add a GPU, or, in a text of several samples (`-l`), what a later row tells of one that is there; a GPU without any fact is left out."""
    if gpu == Gpu():
        return
    at = next((i for i, known in enumerate(gpus) if known.same_device(gpu) and _agree(known, gpu)), None)
    if at is None:
        gpus.append(gpu)
    else:
        gpus[at] = gpu.filled_from(gpus[at])


def _agree(one: Gpu, other: Gpu) -> bool:
    return all(getattr(one, key) in (None, getattr(other, key)) or getattr(other, key) is None for key in ("model", "memory_mib", "bus_id", "uuid"))
