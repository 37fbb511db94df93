"""The bandwidth that GPUs of one machine sustain together: the nominal rate at which they can all-reduce in rings, GB/s, one direction.

`machine_links` turns a link matrix into numbers (`MachineLinks`), `set_bandwidths` turns those into one figure for every set of GPUs. Called by
`topology_class`, which keeps the figures as tables, and by `topology.inspection`, which prints the numbers and what was assumed for them. Rates of single
links are `links`' business; which set to take is decided in `topology_class`.
"""

from topology.collective.machine_links import MachineLinks, machine_links, matched_gpus, numa_of, slot_of
from topology.collective.mesh import Depth
from topology.collective.sets import MAX_GPUS, SetRates, set_bandwidths, set_rates

__all__ = ["MAX_GPUS", "Depth", "MachineLinks", "SetRates", "machine_links", "matched_gpus", "numa_of", "set_bandwidths", "set_rates", "slot_of"]
