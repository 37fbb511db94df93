"""What the replay through a real kube-scheduler says to the API server, and what it reads from it; the run itself is in tests/e2e."""

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.openb import replay
from bench.openb.arriving import Arriving
from bench.openb.cluster import Cluster, Placement
from bench.openb.cpu_pods import WAYS, CpuPods, configured
from bench.openb.fragmentation import Fragmentation
from bench.openb.objects import name_of
from bench.openb.replay import Surroundings
from bench.openb.stored import Outcome, node_of, outcome_of, placement_of, pod_of, taken_milli, topologies
from bench.openb.trace import Demand, Node, Pod
from bench.placement_real import Result, Setup, arriving, by_percent, reported, text
from extender.demand import read_demand
from extender.requests import Requests, read_requests
from tests.e2e.extender import shipped_configuration
from topology.api.annotations import ALLOCATION
from topology.errors import InternalError

NODE = Node("openb-node-0007", 96_000, 393_216, 8, "G2")
WHOLE_PAIR = Pod("pair", Demand(8000, 65_536, 2, 1000, ("G2", "T4")))
PART = Pod("part", Demand(3152, 1024, 1, 470))
CPU_ONLY = Pod("web", Demand(12_500, 2048, 0, 0))
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


def stored(pod: Pod, node: str = "", gpus: tuple[str, ...] = (), **gpu: Any) -> dict[str, Any]:
    """Return the pod as the API server has it, bound where a node is named; ``gpus`` are the UUIDs of its allocation, ``gpu`` what it says of each."""
    found = pod_of(pod, CpuPods.LINKWISE)
    if node:
        found["spec"]["nodeName"] = node
    if gpus:
        given_gpus = [{"uuid": uuid, **gpu} for uuid in gpus]
        found["metadata"]["annotations"] |= {ALLOCATION: json.dumps({"v": 1, "node": node, "containers": {"main": given_gpus}})}
    return found


def refused(pod: Pod) -> dict[str, Any]:
    return {**stored(pod), "status": {"conditions": [UNSCHEDULABLE]}}


# --- what is told ---------------------------------------------------------------------------------------------------


def test_a_node_offers_its_gpus_whole_and_as_memory_both_in_full():
    """kube-scheduler's own counts are an upper bound; the extender judges."""
    allocatable = node_of(3, NODE)["status"]["allocatable"]
    assert (allocatable["nvidia.com/gpu"], allocatable["linkwise.dev/gpu-memory"]) == ("8", "8000")
    assert (allocatable["cpu"], allocatable["memory"]) == ("96000m", "393216Mi")


def test_a_topology_carries_its_nodes_name_its_models_and_the_time():
    """It is what the node's agent would publish."""
    (found,) = topologies([NODE], datetime(2026, 1, 2, tzinfo=UTC))
    assert (found.name, found.status.observed_at, {gpu.model for gpu in found.spec.gpus}) == (name_of(0), datetime(2026, 1, 2, tzinfo=UTC), {"G2"})
    assert len(found.spec.gpus) == 8


@pytest.mark.parametrize("pod", [WHOLE_PAIR, PART, CPU_ONLY], ids=lambda pod: pod.name)
def test_a_pod_asks_for_what_the_trace_says(pod: Pod):
    """As the extender reads it: GPUs, MiB of each, CPU and memory."""
    raw = pod_of(pod, CpuPods.LINKWISE)
    parts = [(part.gpus, part.mib) for part in read_demand(raw).shape.parts]
    expected = {"pair": [(2, 0)], "part": [(1, 470 * 1024)], "web": []}
    assert parts == expected[pod.name]
    assert read_requests(raw) == Requests(pod.demand.cpu_milli, pod.demand.memory_mib)
    assert raw["spec"]["schedulerName"] == "linkwise"


@pytest.mark.parametrize("who", CpuPods)
def test_only_where_linkwise_is_to_be_asked_does_a_pod_without_gpus_name_them(who: CpuPods):
    """A pod with GPUs says the same whoever places the others."""
    limits = pod_of(CPU_ONLY, who)["spec"]["containers"][0]["resources"]["limits"]
    assert limits == ({"nvidia.com/gpu": "0"} if who is CpuPods.LINKWISE else {})
    assert pod_of(PART, who) == pod_of(PART, CpuPods.IN_TREE)


def test_the_shipped_configuration_stays_as_it_is_but_for_the_two_ways_that_change_it():
    """And those change what their sentence says, and nothing else."""
    shipped = shipped_configuration("http://127.0.0.1:1")
    assert [who for who in CpuPods if configured(shipped, who) == shipped] == [CpuPods.LINKWISE, CpuPods.IN_TREE]
    assert "managedResources" not in configured(shipped, CpuPods.ALL)["extenders"][0]
    (profile,) = (one for one in configured(shipped, CpuPods.BALANCED)["profiles"] if one["schedulerName"] == "linkwise")
    assert [plugin["name"] for plugin in profile["plugins"]["score"]["disabled"]] == ["NodeResourcesFit", "ImageLocality"]
    assert [one["name"] for one in profile["pluginConfig"][0]["args"]["resources"]] == ["cpu", "nvidia.com/gpu", "linkwise.dev/gpu-memory"]


# --- what is read ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "outcome"),
    [
        pytest.param(stored(PART), None, id="nothing yet"),
        pytest.param(refused(PART), Outcome("part", None), id="kube-scheduler found no node"),
        pytest.param(
            {**stored(PART), "status": {"conditions": [{**UNSCHEDULABLE, "reason": "SchedulerError"}]}},
            None,
            id="an error, which passes: it tries again",
        ),
        pytest.param(stored(CPU_ONLY, name_of(4)), Outcome("web", Placement(4, ())), id="bound without GPUs"),
        pytest.param(
            stored(PART, name_of(4), ("GPU-node-00004-3",), shared=True, memoryMiB=470 * 1024),
            Outcome("part", Placement(4, (3,))),
            id="bound with a share",
        ),
        pytest.param(
            stored(WHOLE_PAIR, name_of(2), ("GPU-node-00002-5", "GPU-node-00002-1")),
            Outcome("pair", Placement(2, (1, 5))),
            id="bound with whole GPUs",
        ),
    ],
)
def test_what_became_of_a_pod_is_read_from_the_pod(pod: dict[str, Any], outcome: Outcome | None):
    """From its node, its allocation and its condition."""
    assert outcome_of(pod) == outcome


@pytest.mark.parametrize(
    ("pod", "sentence"),
    [
        pytest.param(stored(PART, name_of(4)), "pod part is bound to node-00004 and carries no linkwise.dev/allocation", id="no allocation"),
        pytest.param(
            stored(WHOLE_PAIR, name_of(4), ("GPU-node-00004-1",)), "pod pair on node-00004 asked for 1000 milli of 2 GPUs", id="a GPU short"
        ),
        pytest.param(
            stored(PART, name_of(4), ("GPU-node-00004-1",)), "pod part on node-00004 asked for 470 milli of 1 GPUs", id="a whole GPU for a share"
        ),
        pytest.param(
            stored(PART, name_of(4), ("GPU-node-00004-1",), shared=True, memoryMiB=469 * 1024),
            "pod part on node-00004 asked for 470 milli of 1 GPUs",
            id="a share too small",
        ),
    ],
)
def test_a_bound_pod_with_another_allocation_than_it_asked_for_stops_the_run(pod: dict[str, Any], sentence: str):
    """A figure from such a run would mean nothing."""
    with pytest.raises(InternalError, match=sentence):
        placement_of(pod)


def test_what_is_held_is_the_sum_over_bound_pods_and_no_gpu_gives_more_than_it_has():
    """470 and 470 of one GPU, two whole ones; a third share is one too many."""
    share = stored(PART, name_of(1), ("GPU-node-00001-0",), shared=True, memoryMiB=470 * 1024)
    pods = [share, share, stored(WHOLE_PAIR, name_of(1), ("GPU-node-00001-1", "GPU-node-00001-2")), stored(PART), stored(CPU_ONLY, name_of(1))]
    assert taken_milli(pods) == 2 * 470 + 2 * 1000
    with pytest.raises(InternalError, match="GPU 0 of node-00001 is promised 1410 milli"):
        taken_milli([*pods, share])


# --- arriving -------------------------------------------------------------------------------------------------------


@dataclass
class Counter:
    """An API server with a scheduler that gives each pod the next GPU of one node while there are any, and answers in an order of its own."""

    gpus: int
    turns: Iterator[int]
    open: deque[str] = field(default_factory=deque)
    most_open: int = 0
    deleted: list[str] = field(default_factory=list)
    given: int = 0

    def post(self, pod: dict[str, Any]) -> None:
        self.open.append(pod["metadata"]["name"])
        self.most_open = max(self.most_open, len(self.open))

    def delete(self, name: str) -> None:
        self.deleted.append(name)

    def changes(self) -> Iterator[dict[str, Any]]:
        while True:
            self.open.rotate(next(self.turns))
            pod = Pod(self.open.popleft(), Demand(0, 0, 1, 1000))
            yield stored(pod)  # created: says nothing
            bound = self.given < self.gpus
            answer = stored(pod, name_of(0), (f"GPU-node-00000-{self.given}",)) if bound else refused(pod)
            self.given += bound
            yield answer
            yield answer  # kubelet's status: nothing new


@given(st.integers(1, 12), st.integers(1, 8), st.integers(1, 5), st.data())
def test_every_pod_gets_its_own_answer_in_whatever_order_they_come(pods: int, gpus: int, in_flight: int, data: st.DataObject):
    """No more pods wait than allowed; what found no node is deleted and dropped, the rest is allocated."""
    server = Counter(gpus, iter(lambda: data.draw(st.integers(0, 4)), None))
    arrivals = [Pod(f"p{at}", Demand(0, 0, 1, 1000)) for at in range(pods)]
    cluster = Cluster([Node("n", 0, 0, gpus, "G2")], 0)
    placer = Arriving(server, arrivals, lambda pod: pod_of(pod, CpuPods.LINKWISE), in_flight)
    curves = replay.run(Surroundings(cluster, (), Fragmentation((), cluster.models), 0), placer, arrivals)
    assert server.most_open == min(in_flight, pods)
    assert placer.bound == min(pods, gpus)
    assert curves.dropped == len(server.deleted) == max(0, pods - gpus)
    assert int(cluster.gpu_left.sum()) == 1000 * (gpus - placer.bound)


# --- the command ----------------------------------------------------------------------------------------------------


def setup(**changes: int) -> Setup:
    numbers = {"seed": 7, "nodes": 0, "pods": 0, "arrived": 50, "in_flight": 3} | changes
    return Setup(data=Path(), cpu_pods=CpuPods.LINKWISE, **numbers)


@pytest.mark.parametrize(
    ("changes", "pods"),
    [
        pytest.param({}, 5, id="half of ten GPUs"),
        pytest.param({"arrived": 130}, 13, id="all that arrive"),
        pytest.param({"pods": 3}, 3, id="fewer by number"),
        pytest.param({"pods": 9}, 5, id="the number comes later"),
    ],
)
def test_pods_arrive_until_enough_gpu_or_enough_pods_have_come(changes: dict[str, int], pods: int):
    """The first of the same order, whatever the limit."""
    trace = [Pod(f"p{at}", Demand(0, 0, 1, 1000)) for at in range(10)]
    everything = arriving(trace, 10_000, setup(arrived=130))
    assert arriving(trace, 10_000, setup(**changes)) == everything[:pods]


def test_the_report_shows_both_sides_at_the_round_percents_that_the_run_came_to():
    """Percents between them are in the JSON alone."""
    curves = replay.Curves((0.0, *(float("nan") for _ in range(24)), 25.0, 26.0, *(float("nan") for _ in range(104))), (), (), 2)
    real = by_percent(curves)
    assert real == {0: 0.0, 25: 25.0, 26: 26.0}
    assert (reported(real), reported({0: 0.0, 3: 2.5})) == ([25], [3])
    linkwise = Result(setup(), 10, 40, 2, 31.25, 9.0, real, {**real, 25: 25.2})
    other = replace(linkwise, setup=replace(setup(), cpu_pods=CpuPods.IN_TREE), real={**real, 25: 20.0})
    found = text([linkwise, other])
    assert "| arrived | direct | linkwise | in-tree |\n| --- | --- | --- | --- |\n| 25 | 25.20 | 25.00 (-0.20) | 20.00 (-5.20) |\n" in found
    assert f"| linkwise | pods without GPUs {WAYS[CpuPods.LINKWISE].sentence} | 2 | 31.2 |\n" in found
