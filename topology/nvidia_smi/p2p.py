"""`nvidia-smi topo -p2p CAPABILITY`: whether peer access works, per ordered pair of GPUs.

The matrix looks like that of `topo -m` but holds statuses instead of links and has neither NICs nor affinities. The text does not say which
capability was asked for unless the command was copied along, so the caller may name it. A companion of the link matrix: codes say how two GPUs are
wired, this says whether the driver lets them use it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from topology.errors import NvidiaSmiError, NvidiaSmiFailure
from topology.nvidia_smi.matrix_text import Block, gpu_index, header_of
from topology.nvidia_smi.plain_text import DECOR, plain_lines
from topology.nvidia_smi.unreadable import no_answer


class P2pStatus(StrEnum):
    """What the tool prints for a pair; the legend's words are the comments."""

    OK = "OK"
    CNS = "CNS"  # chipset not supported
    GNS = "GNS"  # GPU not supported
    TNS = "TNS"  # topology not supported
    NS = "NS"  # not supported
    DR = "DR"  # disabled by regkey
    U = "U"  # unknown


class P2pCapability(StrEnum):
    """What was asked for: `topo -p2p r` and so on; recent drivers take `rw` as well."""

    READ = "r"
    WRITE = "w"
    NVLINK = "n"
    ATOMICS = "a"
    PROP = "p"
    READ_WRITE = "rw"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class P2pMatrix:
    """``statuses[i][j]`` is what GPU ``gpus[i]`` may do with GPU ``gpus[j]``; None on the diagonal and where nothing can be read."""

    capability: P2pCapability
    gpus: tuple[int, ...]
    statuses: tuple[tuple[P2pStatus | None, ...], ...]
    warnings: tuple[str, ...] = ()

    @property
    def is_about_copies(self) -> bool:
        """Whether the statuses are those of reads and writes: atomics and the like may be missing where these work; `n` says NS without NVLinks."""
        return self.capability in {P2pCapability.READ, P2pCapability.WRITE, P2pCapability.READ_WRITE, P2pCapability.UNKNOWN}

    def refused(self) -> dict[tuple[int, int], P2pStatus]:
        """Return the pairs of GPU indices, lower first, of which a direction does not work, with its status."""
        found: dict[tuple[int, int], P2pStatus] = {}
        for i, a in enumerate(self.gpus):
            for j, b in enumerate(self.gpus):
                status = self.statuses[i][j]
                if a != b and status is not None and status is not P2pStatus.OK:
                    found[min(a, b), max(a, b)] = status
        return found


_WANTED: Final = "wanted: the output of `nvidia-smi topo -p2p r`"
_MOST_GPUS: Final = 64  # as for the link matrix
_STATUSES: Final = frozenset(P2pStatus)
_ROW: Final = re.compile(rf"{DECOR}(?P<label>GPU\d+)(?P<cells>(?:\s+[^\s=]+)+)\s*")
_COMMAND: Final = re.compile(r"\btopo\s+(?:-p2p|--p2pstatus)\s+(?P<capability>rw|[rwnap])\b")


def read_p2p(text: str, capability: P2pCapability = P2pCapability.UNKNOWN) -> P2pMatrix:
    r"""Read a matrix of peer-to-peer statuses; ``capability`` is what was asked for, where the text does not repeat the command.

    A row that is cut or damaged gives what is certain, with a warning. Raises NvidiaSmiError where the text holds no such matrix.

    >>> read_p2p(" \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n").statuses[0][1].value
    'OK'
    """
    lines = plain_lines(text)
    header = next((i for i, line in enumerate(lines) if header_of(line)), None)
    if header is None:
        raise no_answer(text, _WANTED)
    labels = _labels(lines[header])
    rows = list(_rows(lines[header + 1 :]))
    if not any(_STATUSES & set(cells) or (len(labels) == 1 and cells == ["X"]) for _, cells in rows):
        raise no_answer(text, _WANTED)
    warnings: list[str] = []
    statuses = {
        label: _statuses(label, cells, labels, warnings, is_last=k == len(rows) - 1) for k, (label, cells) in enumerate(rows) if label in labels
    }
    missing = [label for label in labels if label not in statuses]
    if missing:
        warnings.append(f"the header names {len(labels)} GPUs, but there is no row of {', '.join(missing)}")
    blank = (None,) * len(labels)
    return P2pMatrix(
        _capability(lines, capability),
        tuple(gpu_index(label) for label in labels),
        tuple(statuses.get(label, blank) for label in labels),
        tuple(warnings),
    )


def _labels(line: str) -> tuple[str, ...]:
    header = header_of(line)
    labels = header.gpu_labels if header else ()
    if len(labels) > _MOST_GPUS or len(set(labels)) < len(labels):
        raise NvidiaSmiError(
            NvidiaSmiFailure.UNKNOWN,
            f"the header names {len(labels)} GPUs, {len(set(labels))} different ones; accepted: at most {_MOST_GPUS}, each once",
        )
    return labels


def _rows(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the rows of the first matrix: what follows a second header is somebody else's."""
    for line in lines:
        match = _ROW.fullmatch(line)
        cells = match["cells"].split() if match else []
        if match and any(cell == "X" or cell in _STATUSES for cell in cells):
            yield match["label"], cells
        elif header_of(line):
            return


def _statuses(label: str, cells: list[str], labels: Sequence[str], warnings: list[str], *, is_last: bool) -> tuple[P2pStatus | None, ...]:
    own = labels.index(label)
    at = cells.index("X") if "X" in cells else None
    whole = len(cells) == len(labels) and at in (own, None)
    if not whole:
        # The cells before the X are certain where it stands in its own column; those behind it only in a row that the end of the text cut.
        certain = len(cells) if is_last and len(cells) < len(labels) and (at == own or (at is None and len(cells) <= own)) else 0
        cells = cells[: max(certain, own if at == own else 0)]
    if not whole or any(cell != "X" and cell not in _STATUSES for cell in cells):
        warnings.append(f"the row of {label} is cut or damaged: {len(cells)} of its {len(labels)} cells are certain")
    cells += ["X"] * (len(labels) - len(cells))
    return tuple(P2pStatus(cell) if cell in _STATUSES else None for cell in cells)


def _capability(lines: Sequence[str], said: P2pCapability) -> P2pCapability:
    match = _COMMAND.search("\n".join(lines))
    return P2pCapability(match["capability"]) if match and said is P2pCapability.UNKNOWN else said


def holds_p2p_rows(block: Block) -> bool:
    """Tell whether a block of a `topo` text holds statuses and no link: `topo -m` and `topo -p2p` often stand in one report."""
    words = {piece.text for row in block.gpu_rows() for piece in row.pieces}
    links = any(piece.code for row in block.gpu_rows() for piece in row.pieces)
    return bool(words & _STATUSES) and not links
