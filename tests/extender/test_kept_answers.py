"""What is kept between calls changes no answer: after any history, a process that has answered all along answers like one that has kept nothing, bit for bit.

The long-lived verbs keep feasibility, sentences, candidates, plans, demands and pods; the fresh ones are made for one call. And a call that has to be decoded (it is written with blanks) is answered
like the plain one.
"""

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from extender.cluster import View
from extender.metrics import Metrics
from extender.node_names import NodeNames
from extender.settings import Settings
from extender.verbs import Clocks, Verbs
from tests.builders import NOW, PodBuilder, changed, cluster, extender_on, pod

BUILT = cluster().dgx1v("v").mesh("m").bridges("b").pcie("p").nvswitch("s").dgx1v("v2").pcie("p2")
NODES = ("v", "m", "b", "p", "s", "v2", "p2")
_MOST_PASSING = 6  # so that each node is more than a step of the supply
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
        self.asked = self.pods = self.added = 0
        self.holders: list[PodBuilder] = []
        self.passing: list[str] = []  # nodes whose names never come again

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

    @precondition(lambda self: len(self.passing) < _MOST_PASSING)
    @rule(at=st.integers(0, len(NODES) - 1), kept_apart=st.sampled_from([(), ((0, 1),), ((0, 2),), ((1, 3),)]), held=st.booleans())
    def a_node_of_a_new_name_comes(self, at: int, kept_apart: tuple[tuple[int, int], ...], *, held: bool) -> None:
        """Publish a node that was never there, perhaps of a kind that was never there, and perhaps with a pod on it."""
        self.added += 1
        topology = changed(BUILT.topologies[at], kept_apart=kept_apart)
        name = topology["metadata"]["name"] = f"passing-{self.added}"
        for gpu in topology["spec"]["gpus"]:
            gpu["uuid"] += f"-{self.added}"
        for gpu in topology["status"]["gpus"]:
            gpu["uuid"] += f"-{self.added}"
        self.extender.cluster.apply_topology(topology)
        if held:
            self.pods += 1
            self.holders.append(pod(f"p{self.pods}").holding(name, topology["spec"]["gpus"][0]["uuid"]))
            self.extender.cluster.apply_pod(self.holders[-1].build())
        self.passing.append(name)

    @precondition(lambda self: self.passing)
    @rule(data=st.data())
    def it_leaves_for_good(self, data: st.DataObject) -> None:
        """Take such a node away; a pod that is on it may outlive it for a while."""
        self.extender.cluster.remove_topology(self.passing.pop(data.draw(st.integers(0, len(self.passing) - 1))))

    @rule(fewest=st.integers(1, 4))
    def a_quiet_moment_comes(self, fewest: int) -> None:
        """Let what is gone be forgotten: a view that was handed out stays what it was, and what pods hold is held by the same nodes."""
        before = self.extender.cluster.view()
        asked = [*NODES, *self.passing, "passing-0", "stranger"]
        told, held = _told(before, asked), _held(before)
        self.extender.cluster.forget_gone(fewest, fewest)
        assert _told(before, asked) == told
        after = self.extender.cluster.view()
        assert _held(after) == held
        assert {name for name in before.row_of if name not in after.row_of}.isdisjoint(self.passing)

    @rule(name=st.sampled_from(sorted(ASKED)), names=st.lists(st.sampled_from([*NODES, "stranger", "another"]), min_size=1, unique=True))
    def somebody_asks(self, name: str, names: list[str]) -> None:
        """Ask those who have kept something, those who have not, and those who have to decode the call."""
        self.asked += 1
        asking = ASKED[name].build()
        asking["metadata"] |= {"name": f"asking-{self.asked}", "uid": f"uid-{self.asked}"}
        plain, spaced = _bodies(asking, [*names, *self.passing])
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


def _told(view: View, asked: list[str]) -> list[tuple[object, ...]]:
    """Return what a view tells of some names, and of all of its rows."""
    rows = view.rows_of(NodeNames.of(asked)).tolist()
    by_row = zip(view.names, view.free.tolist(), view.closed.tolist(), view.closed_by, view.gpus, view.class_index.tolist(), strict=False)
    return [*((row, view.row_of.get(name, -1)) for row, name in zip(rows, asked, strict=True)), *by_row]


def _held(view: View) -> list[tuple[str, str, int]]:
    """Return what scored pods will take."""
    return sorted((hold.uid, view.names[hold.row], hold.mask) for hold in view.holds)


def _bodies(asking: dict[str, Any], names: list[str]) -> tuple[bytes, bytes]:
    """Return the call as kube-scheduler writes it, and as nobody does."""
    call = {"Pod": asking, "Nodes": None, "NodeNames": names}
    return json.dumps(call, separators=(",", ":")).encode(), json.dumps(call, indent=1).encode()


TestHistories = Histories.TestCase
TestHistories.settings = settings(deadline=None, stateful_step_count=30, max_examples=80)
