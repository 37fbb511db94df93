"""Every Prometheus series of the extender, once, with its help text.

`verbs` and `binding` count; `app` serves the registry at /metrics. A registry of its own, so that two extenders in one process (tests, demo) do not
share counters.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Metrics:
    """The series; labels are few and bounded."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # memory and processor time of this process, read when they are asked for
        self.calls = Counter("linkwise_calls", "Extender calls by verb and outcome", ["verb", "outcome"], registry=self.registry)
        self.call_seconds = Histogram("linkwise_call_seconds", "Time to answer a call", ["verb"], buckets=_BUCKETS, registry=self.registry)
        self.refused_nodes = Counter("linkwise_refused_nodes", "Nodes refused by filter, by reason", ["reason"], registry=self.registry)
        self.bindings = Counter("linkwise_bindings", "Bindings by how they ended", ["verdict"], registry=self.registry)
        self.worse_sets = Counter("linkwise_worse_sets", "Pods whose set became slower between scoring and bind", registry=self.registry)
        self.allocation_edits = Gauge("linkwise_allocation_edits", "Changed allocations seen on bound pods and not believed", registry=self.registry)
        self.promises = Gauge("linkwise_promises", "Decisions whose binding has not been confirmed yet", registry=self.registry)
        self.gpus = Gauge("linkwise_gpus", "GPUs by state", ["state"], registry=self.registry)
        self.memory_offered = Gauge(
            "linkwise_gpu_memory_offered_bytes", "Memory of healthy GPUs that is given away in shares, whoever holds it", registry=self.registry
        )
        self.memory_left = Gauge("linkwise_gpu_memory_left_bytes", "Memory of healthy GPUs that shares may still take", registry=self.registry)
        self.nodes = Gauge("linkwise_nodes", "Nodes by what closes them; open ones have the reason FITS", ["reason"], registry=self.registry)
        self.fragmentation = Gauge(
            "linkwise_fragmentation_ratio",
            "Share of the worth of a class's free GPUs that is lost because they are not whole machines",
            ["node_class", "models"],
            registry=self.registry,
        )

    def text(self) -> bytes:
        """Return the exposition in Prometheus' text format."""
        return generate_latest(self.registry)
