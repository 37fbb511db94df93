"""The tables of `topology.links`, for `linkwise links`: every rate that Linkwise counts with, and where it comes from."""

import json
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from topology.inspection.text import airy_table
from topology.links import GPU_MODELS, LOWEST_PCIE, NVLINK_GENERATIONS, PCIE_LANE_GB_PER_S, PCIE_PATH_SHARE, pcie_rate

_LANES = 16
_LANE_SOURCE = "PCI Express base specification, after line coding"


def rates_json() -> str:
    """Return all rates as one JSON object in one line: GB/s (10^9 bytes), one direction."""
    return json.dumps(_tables(), ensure_ascii=False)


def _tables() -> dict[str, Any]:
    return {
        "nvlink": [{"name": g.name, "bandwidth": g.gb_per_s, "linksPerGpu": g.links_per_gpu, "source": g.source} for g in NVLINK_GENERATIONS],
        "models": [
            {"pattern": m.pattern, "nvlink": m.nvlink.name if m.nvlink else None, "nvlinks": m.nvlinks, "pcieGeneration": m.pcie_generation}
            for m in GPU_MODELS
        ],
        "pcieLane": [{"generation": generation, "bandwidth": rate, "source": _LANE_SOURCE} for generation, rate in PCIE_LANE_GB_PER_S.items()],
        "pciePath": [
            {
                "code": distance.name,
                "share": path.share,
                "bandwidth": {
                    f"{generation}x{_LANES}": round(pcie_rate(distance, generation, _LANES).gb_per_s, 3) for generation in PCIE_LANE_GB_PER_S
                },
                "source": path.source,
            }
            for distance, path in PCIE_PATH_SHARE.items()
        ],
        "assumed": {"pcieGeneration": LOWEST_PCIE[0], "pcieWidth": LOWEST_PCIE[1]},
    }


def rates_for_people() -> RenderableType:
    """Return all rates as tables."""
    nvlink = airy_table(("NVLink", "left"), ("GB/s a link", "right"), ("links a GPU", "right"), last="Source")
    for generation in NVLINK_GENERATIONS:
        nvlink.add_row(generation.name, f"{generation.gb_per_s:g}", str(generation.links_per_gpu), Text(generation.source))
    generations = list(PCIE_LANE_GB_PER_S)
    pcie = airy_table(("PCIe x16", "left"), *((f"gen {generation}", "right") for generation in generations), last="Source")
    pcie.add_row("slot", *(f"{PCIE_LANE_GB_PER_S[generation] * _LANES:.1f}" for generation in generations), Text(_LANE_SOURCE))
    for distance, path in PCIE_PATH_SHARE.items():
        rates = (f"{pcie_rate(distance, generation, _LANES).gb_per_s:.1f}" for generation in generations)
        pcie.add_row(distance.name, *rates, Text(f"{path.share:.0%}: {path.source}"))
    models = airy_table(("GPU model", "left"), ("links", "right"), ("PCIe", "right"), last="NVLink")
    for model in GPU_MODELS:
        models.add_row(
            Text(model.pattern), str(model.nvlinks or "-"), f"gen {model.pcie_generation}", Text(model.nvlink.name if model.nvlink else "none")
        )
    notes = (
        "All rates are nominal, GB/s (10^9 bytes), one direction. The first pattern that matches the product name counts.",
        f"What the inventory does not tell is taken at the lowest rate that fits; an unknown slot is PCIe {LOWEST_PCIE[0]} x{LOWEST_PCIE[1]}.",
        "SOC of old drivers counts as SYS.",
    )
    return Group(nvlink, "", pcie, "", models, "", *(Text(note) for note in notes))
