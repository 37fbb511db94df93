"""`Report`: everything that `linkwise inspect` found in one input, and the JSON form of it.

Made by `reading`, printed by `text`, drawn by `pictures`. The order of the JSON keys is part of the contract, as is one object a line. Nothing is
computed here.
"""

import json
from dataclasses import dataclass
from typing import Any

from topology.inspection.machine import Machine
from topology.matrix import GpuRow, NicColumn


@dataclass(frozen=True, slots=True)
class ReportedLink:
    """One pair of devices. ``code`` as printed (the weaker direction) and ``gb_per_s`` (one direction) are None where no cell was printed."""

    a: str
    b: str
    code: str | None
    gb_per_s: float | None


@dataclass(frozen=True, slots=True)
class ReportedSet:
    """GPUs taken together: positions and indices, GB/s of the set, and the code of the weakest link between any two."""

    positions: tuple[int, ...]
    gpus: tuple[int, ...]
    gb_per_s: float
    worst: str | None


@dataclass(frozen=True, slots=True)
class Problem:
    """Why an input could not be read: a `NvidiaSmiFailure` by its value, and a sentence."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """What was found in one input. ``machine`` is None where it could not be read; then ``error`` says why and all else is empty.

    ``free`` are the indices of the GPUs that sets were looked for among, None for all of the machine.
    """

    source: str
    machine: Machine | None
    links: tuple[ReportedLink, ...] = ()
    sets: tuple[ReportedSet, ...] = ()
    warnings: tuple[str, ...] = ()
    error: Problem | None = None
    free: tuple[int, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the object that `linkwise inspect --output json` prints."""
        matrix = self.machine.matrix if self.machine else None
        return {
            "source": self.source,
            "gpus": [_gpu(gpu) for gpu in matrix.gpus] if matrix else [],
            "nics": [_nic(nic) for nic in matrix.nics] if matrix else [],
            "links": [{"a": link.a, "b": link.b, "type": link.code, "bandwidth": _rounded(link.gb_per_s)} for link in self.links],
            "sets": [{"size": len(one.gpus), "gpus": list(one.gpus), "bandwidth": _rounded(one.gb_per_s), "worst": one.worst} for one in self.sets],
            "warnings": list(self.warnings),
            "error": {"kind": self.error.kind, "message": self.error.message} if self.error else None,
        }

    def json_line(self) -> str:
        """Return the object as one line, without the newline."""
        return json.dumps(self.to_json(), ensure_ascii=False, separators=(",", ":"))


def _gpu(gpu: GpuRow) -> dict[str, Any]:
    return {"index": gpu.index, "numa": gpu.numa or None, "cpus": gpu.cpus or None, "gpuNuma": gpu.gpu_numa or None}


def _nic(nic: NicColumn) -> dict[str, Any]:
    return {"label": nic.label, "name": nic.name}


def _rounded(gb_per_s: float | None) -> float | None:
    """Rates of PCIe come out of a multiplication; a thousandth of a GB/s is far below what the model knows."""
    return None if gb_per_s is None else round(gb_per_s, 3)
