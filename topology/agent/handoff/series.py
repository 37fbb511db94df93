"""The hand-off's Prometheus series; made only where there is a hand-off, in the registry of the agent.

Counted by `hand_off` and `plugin`. What alerts want: `refusals` grows (a container does not start), `registered` is 0 (kubelet does not know the resource),
`corrected` among `starts` grows beside `planned` (steering does not reach kubelet, so tools that read kubelet's ids are wrong).
"""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)  # seconds; kubelet waits 30

AS_PLANNED: Final = "as-planned"  # kubelet's ids are the planned GPUs
CORRECTED: Final = "corrected"  # they are not, and the plan won
SHARE: Final = "share"  # ids of memory name no GPU
AROUND: Final = "around"  # no plan: free GPUs were given
RESTARTED: Final = "restarted"  # the same again, for a container that had started before

HELD: Final = "held"
MEMORY: Final = "memory"
IDENTITY: Final = "identity"
GPU_GONE: Final = "gpu-gone"
GPU_ILL: Final = "gpu-ill"
PLAN: Final = "plan"
NO_PLAN: Final = "no-plan"
NONE_FREE: Final = "none-free"
OTHER_IDS: Final = "other-ids"
FILES: Final = "files"
BUG: Final = "bug"

_STARTS: Final = (AS_PLANNED, CORRECTED, SHARE, AROUND, RESTARTED)
REFUSALS: Final = (HELD, MEMORY, IDENTITY, GPU_GONE, GPU_ILL, PLAN, NO_PLAN, NONE_FREE, OTHER_IDS, FILES, BUG)


class Series:
    """The series, all there from the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, told: str, *labels: str) -> Counter:
            return Counter(f"linkwise_agent_{name}", told, labels, registry=registry)

        self.allocations = counter("allocations", "Answers to Allocate, by resource", "resource")
        self.starts = counter("container_starts", "Containers that were handed their GPUs, by how kubelet's ids compare with the plan", "ids")
        self.refusals = counter("container_refusals", "Calls of PreStartContainer that were refused, by reason; kubelet calls again", "reason")
        self.preferences = counter("preferences", "Answers to GetPreferredAllocation, by whether a pod that waits is planned on them", "planned")
        self.numa_differs = counter("numa_differs", "Containers whose plan lies on other NUMA nodes than kubelet's ids")
        self.retired = counter("tokens_retired", "Tokens whose container is gone")
        self.registrations = counter("registrations", "Registrations with kubelet, by resource", "resource")
        self.holdings = Gauge("linkwise_agent_holdings", "Containers that hold GPUs by the agent's records", registry=registry)
        self.registered = Gauge(
            "linkwise_agent_registered", "Whether kubelet listens to the device plugin, by resource", ["resource"], registry=registry
        )
        self.seconds = Histogram("linkwise_agent_start_seconds", "Time of one PreStartContainer", buckets=_BUCKETS, registry=registry)
        for ids in _STARTS:
            self.starts.labels(ids)
        for reason in REFUSALS:
            self.refusals.labels(reason)
        for planned in ("yes", "no"):
            self.preferences.labels(planned)
