"""`nvidia-smi -L`: index, name and UUID of each GPU, and its MIG devices.

Read by `linkwise inspect --gpus`, and by the agent for MIG devices, which no other output names. `nvlink` shares `gpu_line`, since `nvlink -s`
begins each GPU with the same line. Several outputs may stand in one text (one a container, each counting from 0): a UUID seen twice is one GPU, with
the MIG devices of both; an index seen twice under different UUIDs is two GPUs and a warning.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from topology.inventory import Gpu, Inventory, MigInstance
from topology.nvidia_smi.failures import failure_in, shortened
from topology.nvidia_smi.plain_text import DECOR, plain_lines
from topology.nvidia_smi.unreadable import no_answer
from topology.nvidia_smi.values import uuid_or_none

_GPU_LINE: Final = re.compile(rf"{DECOR}GPU\s+(?P<index>\d{{1,9}}):(?P<rest>.*)")
_MIG_LINE: Final = re.compile(
    rf"{DECOR}MIG\s+(?P<profile>[0-9a-z.+]+)\s+Device\s+(?P<index>\d{{1,9}}):\s*(?:\(UUID:?\s*(?P<uuid>[^)]*)\)?.*)?", re.IGNORECASE
)
_WANTED: Final = "wanted: the output of `nvidia-smi -L`"


@dataclass(frozen=True, slots=True)
class GpuLine:
    """The line that begins a GPU; ``said`` is the text in place of the UUID, None where none was printed."""

    index: int
    name: str | None
    uuid: str | None
    said: str | None


def gpu_line(line: str) -> GpuLine | None:
    """Return what a line like `GPU 0: NVIDIA A30 (UUID: GPU-…)` tells, None for any other line."""
    match = _GPU_LINE.fullmatch(line)
    if match is None:
        return None
    name, has_uuid, rest = match["rest"].partition("(UUID")
    said = rest.lstrip(":").split(")")[0].strip() if has_uuid else None
    return GpuLine(int(match["index"]), name.strip() or None, uuid_or_none(said), said)


def mig_line(line: str) -> MigInstance | None:
    """Return the MIG device that a line names, None for any other line."""
    match = _MIG_LINE.fullmatch(line)
    return MigInstance(int(match["index"]), match["profile"], uuid_or_none(match["uuid"])) if match else None


def read_list(text: str) -> Inventory:
    """Read the GPUs of `nvidia-smi -L`, in the order of the text.

    Elided and masked UUIDs are None, with a warning. Raises NvidiaSmiError where no GPU is listed.

    >>> read_list("GPU 0: NVIDIA A30 (UUID: GPU-1e44b340-5807-0dbe-62e6-343a6b8b8bcd)").gpus[0].model
    'NVIDIA A30'
    """
    gpus: list[Gpu] = []
    warnings: list[str] = []
    for line in plain_lines(text):
        head, mig = gpu_line(line), mig_line(line)
        if head is not None:
            gpus.append(Gpu(index=head.index, uuid=head.uuid, model=head.name))
            warnings += masked_uuid(f"GPU {head.index}", head.said, head.uuid)
        elif mig is not None and gpus:
            gpus[-1] = replace(gpus[-1], mig_instances=(*gpus[-1].mig_instances, mig))
            if mig.uuid is None:
                warnings.append(f"the UUID of MIG device {mig.index} of GPU {gpus[-1].index} is cut, elided or masked, so it is not known")
        elif line.strip():
            warnings += _about_other_line(line, gpus)
    if not gpus:
        raise no_answer(text, _WANTED)
    merged = merge_repeated(gpus)
    return Inventory(tuple(merged), warnings=(*warnings, *about_repeated_indices(merged)))


def masked_uuid(name: str, said: str | None, uuid: str | None) -> list[str]:
    """Return the warning about a UUID that was printed but identifies nothing, or nothing."""
    return [f"the UUID of {name} is cut, elided or masked ({shortened(said, 50)}), so it is not known"] if said is not None and uuid is None else []


def _about_other_line(line: str, gpus: list[Gpu]) -> list[str]:
    if mig_line(line) is not None:
        return ["a MIG device stands before the first GPU; it was not read"]
    failure = failure_in(line)
    return [f"after {len(gpus)} GPUs, {failure}"] if failure else []


def merge_repeated(gpus: Iterable[Gpu]) -> list[Gpu]:
    """Return the GPUs with those of the same UUID in one, the MIG devices of all of them kept; GPUs without UUID are never merged."""
    merged: list[Gpu] = []
    for gpu in gpus:
        at = next((i for i, known in enumerate(merged) if gpu.uuid is not None and known.uuid == gpu.uuid), None)
        if at is None:
            merged.append(gpu)
        else:
            known = merged[at]
            new = [mig for mig in gpu.mig_instances if mig.uuid is None or mig not in known.mig_instances]
            merged[at] = replace(known.filled_from(gpu), mig_instances=(*known.mig_instances, *new))
    return merged


def about_repeated_indices(gpus: Iterable[Gpu]) -> list[str]:
    """Return a warning for each index that several GPUs have: the text comes from several machines or containers."""
    indices = [gpu.index for gpu in gpus if gpu.index is not None]
    return [
        f"index {index} stands for {indices.count(index)} GPUs: the text seems to come from several machines or containers"
        for index in sorted({index for index in indices if indices.count(index) > 1})
    ]
