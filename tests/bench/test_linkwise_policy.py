"""Linkwise in the openb replay: the trace's objects say what the trace says, pods that leave leave nothing behind, and every bench writes its table."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from bench import churn, placement_cost, placement_http, placement_links
from bench.openb import objects
from bench.openb.cluster import Cluster
from bench.openb.fragmentation import Fragmentation
from bench.openb.policies import POLICIES
from bench.openb.policies.linkwise import LinkwisePolicy, workload_of
from bench.openb.replay import Surroundings
from bench.openb.trace import Demand, Node, Pod
from bench.openb.workload import PodClass
from extender.demand import read_demand
from extender.sample_machines import SAMPLE_MACHINES
from extender.workload import read_weights
from tests.bench.test_openb import demands, nodes, small_data

NOBODY = (PodClass(0, 0, 0, (), 1.0),)


def around(found: list[Node], target: tuple[PodClass, ...] = NOBODY) -> Surroundings:
    cluster = Cluster(found, 0)
    return Surroundings(cluster, target, Fragmentation(target, cluster.models), 0)


# --- objects ------------------------------------------------------------------------------------------------------------


@given(demands())
def test_a_pod_of_the_trace_asks_linkwise_for_the_same(demand: Demand):
    """GPUs, thousandths as GiB, models, CPU and memory; it does not care for links, as the trace does not tell of any."""
    asked = read_demand(objects.job_of(Pod("p", demand)).pod)
    shape = asked.shape
    assert shape.largest == demand.gpus
    assert sum(part.gpus * part.mib for part in shape.parts) == (0 if demand.gpu_milli == 1000 else demand.total_gpu_milli * 1024)
    assert not shape.parts or not shape.careful
    if demand.gpus:
        assert (asked.requests.cpu_milli, asked.requests.memory_mib) == (demand.cpu_milli, demand.memory_mib)
        assert shape.model == (",".join(demand.models) or None)


def test_a_node_of_the_trace_offers_linkwise_the_same():
    """A GPU of 1000 GiB, CPU and memory; rows stand in the order of names."""
    found = [Node(f"n{at}", 32000 + at, 262144, at % 8 + 1, "T4") for at in range(12)]
    side = LinkwisePolicy(around(found)).side
    view = side.cluster.view()
    cluster = Cluster(found, 0)
    assert list(view.names) == sorted(view.names)
    assert [mask.bit_count() for mask in view.free.tolist()] == [node.gpus for node in cluster.nodes]
    assert view.offered.max(axis=1).tolist() == [1_024_000] * 12
    assert view.cpu_left.tolist() == cluster.cpu_left.tolist()
    assert view.memory_left.tolist() == cluster.memory_left.tolist()


def test_the_target_workload_is_told_as_an_administrator_tells_it():
    """Sizes with their shares, and every class."""
    told = workload_of((PodClass(4000, 1, 460, ("T4", "P100"), 0.5), PodClass(8000, 2, 1000, (), 0.25), PodClass(1000, 0, 0, (), 0.25)))
    assert read_weights(told) == {1: 0.5, 2: 0.25}
    assert told["classes"] == [
        {"gpus": 1, "cpuMilli": 4000, "memoryMiB": 460 * 1024, "model": "T4,P100", "popularity": 0.5},
        {"gpus": 2, "cpuMilli": 8000, "memoryMiB": 0, "model": None, "popularity": 0.25},
        {"gpus": 0, "cpuMilli": 1000, "memoryMiB": 0, "model": None, "popularity": 0.25},
    ]


# --- pods that leave ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fgd", "clustering", "linkwise"])
@settings(max_examples=30, deadline=None)
@given(found=nodes, pods=st.lists(demands(), max_size=20), data=st.data())
def test_pods_that_leave_leave_nothing_behind(name: str, found: list[Node], pods: list[Demand], data: st.DataObject):
    """In any order; the bench's cluster and Linkwise's own agree all the time, as every answer fits."""
    world = around(found)
    placer = POLICIES[name](world)
    running = []
    for at, demand in enumerate(pods):
        pod = Pod(f"p{at}", demand)
        placement = placer.place(pod)
        if placement is not None:
            world.cluster.take(demand, placement)
            running.append((pod, placement))
        if running and data.draw(st.booleans()):
            gone, had = running.pop(data.draw(st.integers(0, len(running) - 1)))
            world.cluster.give_back(gone.demand, had)
            placer.leave(gone)
    for pod, placement in running:
        world.cluster.give_back(pod.demand, placement)
        placer.leave(pod)
    fresh = Cluster(found, 0)
    for name_of_array in ("cpu_left", "memory_left", "gpu_left", "of_kind"):
        assert (getattr(world.cluster, name_of_array) == getattr(fresh, name_of_array)).all()
    if isinstance(placer, LinkwisePolicy):
        view = placer.side.cluster.view()
        assert (view.free == view.usable).all()
        assert view.cpu_left.tolist() == fresh.cpu_left.tolist()


# --- the commands ---------------------------------------------------------------------------------------------------------


def invoke(main: Callable[..., None], *arguments: str) -> Result:
    app = typer.Typer()
    app.command()(main)
    return CliRunner().invoke(app, list(arguments))


def test_churn_writes_rates_of_every_policy_and_load(tmp_path: Path):
    """The same figures again the next time."""
    data = small_data(tmp_path)
    told = f"--data {data} --policy fgd --policy linkwise --load 90 --load 150 --seeds 4:6 --jobs 1 --results {tmp_path}".split()
    runs = []
    for _ in range(2):
        done = invoke(churn.main, *told)
        assert done.exit_code == 0, done.output
        runs.append(json.loads((tmp_path / "churn.json").read_text())["runs"])
    assert runs[0] == runs[1]
    assert len(runs[0]) == 8
    assert all(0 <= run["rejected"] <= 100 and 0 < run["allocated"] <= 100 for run in runs[0])
    assert all(run["rejected"] > 0 for run in runs[0] if run["load"] == 150)
    assert "| linkwise |" in (tmp_path / "churn.md").read_text()


def test_links_are_compared_with_the_best_that_there_was(tmp_path: Path):
    """Linkwise takes the best bandwidth for whoever cares; nothing is above it."""
    data = small_data(tmp_path)
    path = data / "openb" / "openb_pod_list_default.csv"
    path.write_text(path.read_text() + "q0,1000,1024,2,1000,\nq1,1000,1024,4,1000,\n")
    done = invoke(placement_links.main, *f"--data {data} --trace default --seeds 4:6 --jobs 1 --results {tmp_path}".split())
    assert done.exit_code == 0, done.output
    runs = json.loads((tmp_path / "placement_links.json").read_text())["runs"]
    assert [(run["policy"], run["seed"]) for run in runs] == [("fgd", 4), ("fgd", 5), ("linkwise", 4), ("linkwise", 5)]
    assert all(run["share_of_best"] <= 100 for run in runs)
    assert all(run["got_best"] == 100 for run in runs if run["policy"] == "linkwise")


def test_machines_are_a_third_each():
    """Of the nodes with eight GPUs; the others have no NVLinks."""
    found = placement_links.with_machines([Node(f"n{at}", 1, 1, 8, "G2") for at in range(9)] + [Node("small", 1, 1, 4, "T4")], 0)
    models = [node.model for node in found]
    assert sorted(models[:9]) == sorted([SAMPLE_MACHINES[kind].model for kind in placement_links.KINDS] * 3)
    assert models[9] == "none"
    assert placement_links.codes_of(found[9]) == objects.uniform(found[9])


def test_the_cost_is_a_ratio_of_one_run(tmp_path: Path):
    """Both sides replay the same pods."""
    done = invoke(placement_cost.main, *f"--data {small_data(tmp_path)} --rounds 2 --results {tmp_path}".split())
    assert done.exit_code == 0, done.output
    assert "Median ratio" in (tmp_path / "placement_cost.md").read_text()


def test_over_http_pods_go_where_the_served_extender_puts_them(tmp_path: Path):
    """A real `linkwise serve`; on a cluster of two nodes ties are rare, so both ways allocate alike."""
    done = invoke(placement_http.main, *f"--data {small_data(tmp_path)} --seeds 4:5 --results {tmp_path}".split())
    assert done.exit_code == 0, done.output
    (run,) = json.loads((tmp_path / "placement_http.json").read_text())["runs"]
    assert run["http_130"] == pytest.approx(run["direct_130"], abs=10)
    assert 50 < run["http_130"] <= 100
