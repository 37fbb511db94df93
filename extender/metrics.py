"""Every Prometheus series of the extender, once, with its help text.

`verbs` and `binding` count; `app` serves the registry at /metrics. A registry of its own, so that two extenders in one process (tests, demo) do not
share counters.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

_SIZES = (100, 500, 1000, 5000, 10_000)  # nodes


class Metrics:
    """The series; labels are few and bounded."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # memory and processor time of this process, read when they are asked for
        self.calls = Counter("linkwise_calls", "Extender calls by verb and outcome", ["verb", "outcome"], registry=self.registry)
        self.call_seconds = Histogram("linkwise_call_seconds", "Time to answer a call", ["verb"], buckets=_BUCKETS, registry=self.registry)
        self.decision_seconds = Histogram(
            "linkwise_decision_seconds",
            "Time to decide about the nodes of a call, by how many it names at most",
            ["verb", "nodes"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.state_age = Gauge(
            "linkwise_state_age_seconds", "For how long the state may have missed something; 0 while all watches are open", registry=self.registry
        )
        self.answering = Gauge(
            "linkwise_answering", "1 while this replica answers kube-scheduler's calls, 0 while it stands by", registry=self.registry
        )
        self.waiting_pods = Gauge("linkwise_waiting_pods", "Pods that no node could take when they were asked about", registry=self.registry)
        self.events_waiting = Gauge("linkwise_events_waiting", "Events on pods that are still to be posted", registry=self.registry)
        self.rows_looked_at = Counter("linkwise_rows_looked_at", "Nodes that were looked at, by kind of answer", ["answer"], registry=self.registry)
        self.kept_answers = Counter(
            "linkwise_kept_answers",
            "Answers by kind, and whether one was kept that had only to be brought up to date",
            ["answer", "kept"],
            registry=self.registry,
        )
        self._told: dict[str, tuple[int, int, int]] = {}
        self.refused_nodes = Counter("linkwise_refused_nodes", "Nodes refused by filter, by reason", ["reason"], registry=self.registry)
        self.bindings = Counter("linkwise_bindings", "Bindings by how they ended", ["verdict"], registry=self.registry)
        self.worse_sets = Counter("linkwise_worse_sets", "Pods whose set became slower between scoring and bind", registry=self.registry)
        self.allocation_edits = Gauge("linkwise_allocation_edits", "Changed allocations seen on bound pods and not believed", registry=self.registry)
        self.hand_off_differences = Gauge(
            "linkwise_hand_off_differences", "Pods that hold other than they were promised, by kind", ["kind"], registry=self.registry
        )
        self.startup_taints = Gauge(
            "linkwise_startup_taints", "Nodes that carry the startup taint, by what they wait for", ["awaited"], registry=self.registry
        )
        self.kubelet_refusals = Gauge(
            "linkwise_kubelet_refusals",
            "Demands that are not sent to a node for a while since kubelet's topology manager refused such a pod there",
            registry=self.registry,
        )
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

    def decided(self, verb: str, nodes: int, seconds: float) -> None:
        """Count a decision about so many nodes."""
        size = next((str(size) for size in _SIZES if nodes <= size), "more")
        self.decision_seconds.labels(verb, size).observe(seconds)

    def worked(self, answer: str, kept: int, anew: int, rows: int) -> None:
        """Take over how much was worked out for one kind of answer since the process began."""
        before = self._told.get(answer, (0, 0, 0))
        self._told[answer] = (kept, anew, rows)
        self.kept_answers.labels(answer, "true").inc(kept - before[0])
        self.kept_answers.labels(answer, "false").inc(anew - before[1])
        self.rows_looked_at.labels(answer).inc(rows - before[2])

    def text(self) -> bytes:
        """Return the exposition in Prometheus' text format."""
        return generate_latest(self.registry)
