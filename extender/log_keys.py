"""Keys of structured log lines, once, so that a query written against one line works for all of them."""

from typing import Final

NODE: Final = "node"
POD: Final = "pod"
UID: Final = "uid"
VERB: Final = "verb"
REASON: Final = "reason"
GENERATION: Final = "generation"
GPU_SET: Final = "gpu_set"
BANDWIDTH: Final = "bandwidth_gb_per_s"
PATH: Final = "path"
COUNT: Final = "count"
KIND: Final = "kind"
IDENTITY: Final = "identity"
TOPOLOGY_CLASS: Final = "topology_class"
DEPTH: Final = "depth"
AWAITED: Final = "awaited"
