"""What equal nodes have in common: tables over all sets of their GPUs, made once for thousands of nodes.

A set of GPUs is an int, the mask: bit i is the GPU at position i of the link matrix. Every table has one entry a mask, shape (2**n,), so that a decision
over a whole cluster is a lookup: `extender.placement` reads `best_bandwidths` for the masks of all nodes of a class at once and takes `best_set` for one
of them; `extender.scoring` and the fragmentation metric read `worth`; `topology.inspection` prints the best sets.

Among sets of almost equal bandwidth the one is taken whose remainder is worth most. The worth of a remainder is what it can still serve: for each size of
demand the best packing of disjoint sets of that size, in GPU x GB/s, weighed by how much the cluster asks for that size.

What a set's bandwidth is, `collective` decides. Which GPUs of a node are free, healthy or allowed is the caller's mask; nothing here knows a node. The
tables are in `tables`, the arithmetic over masks in `subsets` and `packing`, the choice that NVIDIA's device plugin would make in `best_effort`. What takes a
while can be worked out in another process (`apart`).
"""

from topology.topology_class.models import accepts_model
from topology.topology_class.packing import Tables
from topology.topology_class.subsets import members, union
from topology.topology_class.tables import ALMOST, ISLAND, SEED_WEIGHTS, GpuSet, TopologyClass, topology_class

__all__ = ["ALMOST", "ISLAND", "SEED_WEIGHTS", "GpuSet", "Tables", "TopologyClass", "accepts_model", "members", "topology_class", "union"]
