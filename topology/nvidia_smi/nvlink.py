"""`nvidia-smi nvlink -s`: how many NVLinks of each GPU are active, and at which rate.

The only output in which a single GPU shows its NVLinks, and the one that tells the generation of a link where the product name does not
(`links.nvlink_rate`). `read_nvlinks` keeps every link and the tool's note where it prints one instead; `read_nvlink_status` makes the inventory of it.
"""

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from topology.inventory import Gpu, Inventory
from topology.nvidia_smi.failures import failure_in, shortened
from topology.nvidia_smi.listing import GpuLine, about_repeated_indices, gpu_line, masked_uuid
from topology.nvidia_smi.plain_text import DECOR, plain_lines
from topology.nvidia_smi.unreadable import no_answer


class NvLinkNote(StrEnum):
    """What the tool says about a GPU instead of listing links."""

    ALL_INACTIVE = "all-inactive"
    MIG_NOT_SUPPORTED = "mig-not-supported"
    NO_NVLINK_SUPPORT = "no-nvlink-support"


@dataclass(frozen=True, slots=True)
class NvLink:
    """One link as printed: its number on the GPU, and GB/s in one direction, None while inactive."""

    index: int
    gb_per_s: float | None


@dataclass(frozen=True, slots=True)
class GpuNvLinks:
    """The links of one GPU."""

    gpu: GpuLine
    links: tuple[NvLink, ...] = ()
    note: NvLinkNote | None = None

    @property
    def active(self) -> tuple[NvLink, ...]:
        """The links that carry data."""
        return tuple(link for link in self.links if link.gb_per_s is not None)


@dataclass(frozen=True, slots=True)
class NvLinkReport:
    """All GPUs of the text, in its order."""

    gpus: tuple[GpuNvLinks, ...]
    warnings: tuple[str, ...] = ()


# First match wins. The wording differs by driver: Nvlink or NVLink, inActive or inactive.
_NOTES: Final = (
    (re.compile(r"all links are inactive", re.IGNORECASE), NvLinkNote.ALL_INACTIVE),
    (re.compile(r"not supported for devices in mig mode", re.IGNORECASE), NvLinkNote.MIG_NOT_SUPPORTED),
    (re.compile(r"does not have or support nvlink", re.IGNORECASE), NvLinkNote.NO_NVLINK_SUPPORT),
)
_LINK: Final = re.compile(
    rf"{DECOR}Link\s+(?P<index>\d{{1,4}}):\s*(?:(?P<rate>\d{{1,6}}(?:\.\d{{1,6}})?)\s*GB/s|(?P<idle><?inactive>?))\s*", re.IGNORECASE
)
_WANTED: Final = "wanted: the output of `nvidia-smi nvlink -s`"


def read_nvlink_status(text: str) -> Inventory:
    """Read the GPUs of `nvidia-smi nvlink -s` with their active links and the rate of one; raises NvidiaSmiError where none is listed.

    In MIG mode the tool does not tell, so ``nvlinks`` stays None. Links of different rates give the lowest, with a warning.
    """
    report = read_nvlinks(text)
    gpus = tuple(_gpu(gpu) for gpu in report.gpus)
    differing = [
        f"the NVLinks of GPU {one.gpu.index} run at different rates ({_rates(one)} GB/s); the lowest counts"
        for one in report.gpus
        if len(set(_speeds(one))) > 1
    ]
    return Inventory(gpus, warnings=(*report.warnings, *differing, *about_repeated_indices(gpus)))


def read_nvlinks(text: str) -> NvLinkReport:
    r"""Read every link of every GPU, and the notes; raises NvidiaSmiError where no GPU is listed.

    >>> read_nvlinks("GPU 0: NVIDIA A30\n\t Link 0: 25 GB/s\n\t Link 1: <inactive>").gpus[0].active
    (NvLink(index=0, gb_per_s=25.0),)
    """
    gpus: list[GpuNvLinks] = []
    warnings: list[str] = []
    for line in plain_lines(text):
        head = gpu_line(line)
        if head is not None:
            gpus.append(GpuNvLinks(head))
            warnings += masked_uuid(f"GPU {head.index}", head.said, head.uuid)
        elif line.strip():
            warnings += _take(line, gpus)
    if not gpus:
        raise no_answer(text, _WANTED)
    return NvLinkReport(tuple(gpus), tuple(warnings))


def is_nvlink_line(line: str) -> bool:
    """Tell whether a line is a link of `nvlink -s` or one of its notes."""
    return _LINK.fullmatch(line) is not None or any(pattern.search(line) for pattern, _ in _NOTES)


def _take(line: str, gpus: list[GpuNvLinks]) -> list[str]:
    """Add a line to the GPU above it; return a warning where that cannot be."""
    link = _LINK.fullmatch(line)
    note = next((note for pattern, note in _NOTES if pattern.search(line)), None)
    if not gpus:
        return [f'a line stands before the first GPU and was not read: "{shortened(line.strip(), 60)}"'] if link or note else []
    if link:
        one = NvLink(int(link["index"]), float(link["rate"]) if link["rate"] else None)
        gpus[-1] = replace(gpus[-1], links=(*gpus[-1].links, one))
    elif note:
        gpus[-1] = replace(gpus[-1], note=note)
    elif re.match(rf"{DECOR}Link\b", line):
        return [f'a link of GPU {gpus[-1].gpu.index} cannot be read: "{shortened(line.strip(), 60)}"']
    else:
        failure = failure_in(line)
        return [f"after GPU {gpus[-1].gpu.index}, {failure}"] if failure else []
    return []


def _speeds(gpu: GpuNvLinks) -> list[float]:
    return [link.gb_per_s for link in gpu.active if link.gb_per_s is not None]


def _rates(gpu: GpuNvLinks) -> str:
    return ", ".join(f"{rate:g}" for rate in sorted(set(_speeds(gpu))))


def _gpu(one: GpuNvLinks) -> Gpu:
    is_told = bool(one.links) or one.note in (NvLinkNote.ALL_INACTIVE, NvLinkNote.NO_NVLINK_SUPPORT)
    return Gpu(
        index=one.gpu.index,
        uuid=one.gpu.uuid,
        model=one.gpu.name,
        nvlinks=len(one.active) if is_told else None,
        nvlink_gb_per_s=min(_speeds(one), default=None),
    )
