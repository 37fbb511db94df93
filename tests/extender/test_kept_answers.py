"""What is kept between calls changes no answer: after any history, a process that has answered all along answers like one that has kept nothing, bit for bit.

The long-lived verbs keep feasibility, sentences, candidates, plans, demands and pods; the fresh ones are made for one call. And a call that has to be decoded (it is written with blanks) is answered
like the plain one.
"""

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from extender.metrics import Metrics
from extender.settings import Settings
from extender.verbs import Clocks, Verbs
from tests.builders import NOW, PodBuilder, changed, cluster, extender_on, pod

BUILT = cluster().dgx1v("v").mesh("m").bridges("b").pcie("p").nvswitch("s").dgx1v("v2").pcie("p2")
NODES = ("v", "m", "b", "p", "s", "v2", "p2")
ASKED: dict[str, PodBuilder] = {
    "one GPU": pod().gpus(1),
    "two GPUs": pod().gpus(2),
    "four GPUs": pod().gpus(4),
    "two on NVLink": pod().gpus(2).annotated(max_distance="NVLINK"),
    "a floor": pod().gpus(2).min_bandwidth(200),
    "no matter where": pod().gpus(2).annotated(topology="none", policy="spread"),
    "a share": pod().shared(20),
    "shares with a floor": pod().shared(40).annotated(gpu_count="2", min_bandwidth="100"),
    "too large a share": pod().shared(60),
    "two containers": pod().gpus(1, "a").gpus(2, "b"),
    "a mistake": pod().gpus(2).annotated(policy="x"),
}


class Histories(RuleBasedStateMachine):
    """Pods and nodes come and go, and now and then somebody asks."""

    @initialize()
    def start(self) -> None:
        """Begin with an empty cluster."""
        self.extender = extender_on(BUILT)
        self.asked = self.pods = 0
        self.holders: list[PodBuilder] = []

    @rule(node=st.sampled_from(NODES), first=st.integers(0, 7), gpus=st.integers(1, 3), gib=st.sampled_from([0, 0, 10, 25]))
    def a_pod_comes(self, node: str, first: int, gpus: int, gib: int) -> None:
        """Let a pod hold GPUs, whole or in part."""
        uuids = BUILT.uuids(node)
        self.pods += 1
        holder = pod(f"p{self.pods}")
        own = [*uuids, *uuids][first % len(uuids) :][:gpus]
        holder = holder.shared(gib).sharing(node, {own[0]: gib * 1024}) if gib else holder.holding(node, *dict.fromkeys(own))
        self.extender.cluster.apply_pod(holder.build())
        self.holders.append(holder)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def a_pod_leaves(self, data: st.DataObject) -> None:
        """Let one of them go."""
        gone = self.holders.pop(data.draw(st.integers(0, len(self.holders) - 1)))
        self.extender.cluster.remove_pod(gone.uid)

    @rule(at=st.integers(0, len(NODES) - 1), lost=st.booleans())
    def a_gpu_fails_or_returns(self, at: int, *, lost: bool) -> None:
        """Publish a node with or without its first GPU."""
        topology = BUILT.topologies[at]
        self.extender.cluster.apply_topology(changed(topology, unhealthy=(0,)) if lost else topology)

    @rule(at=st.integers(0, len(NODES) - 1), comes=st.booleans())
    def a_node_goes_or_comes(self, at: int, *, comes: bool) -> None:
        """Take a GPUTopology away, or publish it."""
        if comes:
            self.extender.cluster.apply_topology(BUILT.topologies[at])
        else:
            self.extender.cluster.remove_topology(NODES[at])

    @rule(name=st.sampled_from(sorted(ASKED)), names=st.lists(st.sampled_from([*NODES, "stranger", "another"]), min_size=1, unique=True))
    def somebody_asks(self, name: str, names: list[str]) -> None:
        """Ask those who have kept something, those who have not, and those who have to decode the call."""
        self.asked += 1
        asking = ASKED[name].build()
        asking["metadata"] |= {"name": f"asking-{self.asked}", "uid": f"uid-{self.asked}"}
        plain, spaced = _bodies(asking, names)
        kept, fresh = self.extender.verbs, self._fresh()
        filtered = kept.filter(plain)
        assert filtered == fresh.filter(plain)
        assert json.loads(filtered) == json.loads(self._fresh().filter(spaced))
        assert filtered == kept.filter(plain), "asked twice"
        if fitting := json.loads(filtered)["NodeNames"]:
            plain, spaced = _bodies(asking, fitting)
            scored = kept.prioritize(plain)
            assert scored == fresh.prioritize(plain)
            assert json.loads(scored) == json.loads(self._fresh().prioritize(spaced))

    def _fresh(self) -> Verbs:
        """Return verbs over the same cluster that have kept nothing."""
        clock = self.extender.clock
        return Verbs(self.extender.cluster, self.extender.binder, Metrics(), Settings(), Clocks(clock, lambda: NOW))


def _bodies(asking: dict[str, Any], names: list[str]) -> tuple[bytes, bytes]:
    """Return the call as kube-scheduler writes it, and as nobody does."""
    call = {"Pod": asking, "Nodes": None, "NodeNames": names}
    return json.dumps(call, separators=(",", ":")).encode(), json.dumps(call, indent=1).encode()


TestHistories = Histories.TestCase
TestHistories.settings = settings(deadline=None, stateful_step_count=30, max_examples=80)
