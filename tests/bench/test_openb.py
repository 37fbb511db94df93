"""The replay of the openb trace is the paper's: fast F and scores against slow ones, the order of arrival, the published figures, and the command."""

import importlib.util
import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from bench.openb import policies, published, replay, report, trace, workload
from bench.openb.cluster import KINDS, SLOTS, Cluster, Placement
from bench.openb.fragmentation import Fragmentation
from bench.openb.policies.fgd import FGD
from bench.openb.policies.scored import REFUSED, Scored
from bench.openb.replay import Curves, Surroundings
from bench.openb.report import Run, Runs
from bench.openb.trace import Demand, Node, Pod
from bench.openb.workload import PodClass
from bench.placement_quality import Task, main, replayed
from tests.bench import openb_oracles as slow
from tests.bench.openb_oracles import OneNode
from tests.shared_data import DATA, needs_data

MODELS = ("G2", "P100", "T4")
some_models = st.lists(st.sampled_from(MODELS), unique=True, max_size=2).map(tuple)
amounts_of_cpu = st.sampled_from([0, 1000, 3152, 8000, 11300, 12000, 32000])
parts = st.sampled_from([160, 320, 470, 500, 810])


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    """Pods of no GPU, a part of one, or 1, 2, 4, 8 whole ones."""
    gpus = draw(st.sampled_from([0, 1, 1, 1, 2, 4, 8]))
    milli = 0 if gpus == 0 else draw(parts) if gpus == 1 and draw(st.booleans()) else 1000
    models = draw(some_models) if gpus else ()  # no pod without GPUs names models in any trace
    return Demand(draw(amounts_of_cpu), draw(st.sampled_from([1024, 65536])), gpus, milli, models)


@st.composite
def targets(draw: st.DrawFn) -> tuple[PodClass, ...]:
    """Target workloads of up to six classes."""
    asked = draw(st.lists(demands(), min_size=1, max_size=6))
    weights = [draw(st.integers(1, 9)) for _ in asked]
    return tuple(
        PodClass(one.cpu_milli, one.gpus, one.gpu_milli, one.models, weight / sum(weights)) for one, weight in zip(asked, weights, strict=True)
    )


nodes = st.lists(
    st.builds(
        Node,
        st.just("n"),
        st.sampled_from([16000, 64000, 96000]),
        st.sampled_from([131072, 393216]),
        st.sampled_from([1, 2, 4, 8]),
        st.sampled_from(MODELS),
    ),
    min_size=1,
    max_size=6,
)


def surroundings(found: list[Node], target: tuple[PodClass, ...], seed: int = 0) -> Surroundings:
    cluster = Cluster(found, seed)
    return Surroundings(cluster, target, Fragmentation(target, cluster.models), seed)


def filled(found: list[Node], target: tuple[PodClass, ...], pods: list[Demand], name: str = "random") -> Surroundings:
    """Return a cluster on which the pods were placed at random."""
    around = surroundings(found, target)
    placer = policies.POLICIES[name](around)
    for at, demand in enumerate(pods):
        placement = placer.place(Pod(f"p{at}", demand))
        if placement is not None:
            around.cluster.take(demand, placement)
    return around


def one_node(cluster: Cluster, row: int) -> OneNode:
    kinds = tuple(kind for kind, count in zip(KINDS, cluster.of_kind[row], strict=True) if count)
    gpus = cluster.nodes[row].gpus
    return OneNode(
        int(cluster.cpu_left[row]), int(cluster.memory_left[row]), tuple(map(int, cluster.gpu_left[row, :gpus])), cluster.nodes[row].model, kinds
    )


# --- F and the scores, against slow versions --------------------------------------------------------------------------


@given(nodes, targets(), st.lists(demands(), max_size=12))
def test_f_from_tables_is_the_sum_over_m_written_out(found: list[Node], target: tuple[PodClass, ...], pods: list[Demand]):
    """On every node of a partly filled cluster."""
    around = filled(found, target, pods)
    expected = [slow.fragmentation(one_node(around.cluster, row), target) for row in range(len(found))]
    assert np.allclose(around.fragmentation.of_nodes(around.cluster), expected, atol=1e-6)


@given(nodes, targets(), st.lists(demands(), max_size=12), demands())
def test_fgd_descends_as_f_written_out_does(found: list[Node], target: tuple[PodClass, ...], pods: list[Demand], demand: Demand):
    """Score and choice of GPU, wherever the floor is not within rounding of an integer."""
    around = filled(found, target, pods)
    placer = FGD(around)
    scores = placer.scores(demand)
    for row in np.flatnonzero(around.cluster.feasible(demand)):
        descents = slow.fgd_descents(one_node(around.cluster, int(row)), demand, target)
        exact = {gpus: 100 / (1 + math.exp(-descent / 1000)) for gpus, descent in descents.items()}
        if any(abs(score - round(score)) < 1e-6 for score in exact.values()):
            continue
        assert scores[row] == math.floor(max(exact.values()))
        first = next(gpus for gpus, score in exact.items() if math.floor(score) == scores[row])
        if demand.gpu_milli < 1000:
            assert placer.gpus(demand, int(row)) == first


@pytest.mark.parametrize("name", ["dotprod", "bestfit", "clustering", "packing"])
@given(nodes, st.lists(demands(), max_size=12), demands())
def test_scores_are_those_of_the_formula(name: str, found: list[Node], pods: list[Demand], demand: Demand):
    """On every node where the pod fits, after other pods of all kinds."""
    around = filled(found, (PodClass(0, 0, 0, (), 1.0),), pods)
    placer = policies.POLICIES[name](around)
    assert isinstance(placer, Scored)
    scores = placer.scores(demand)
    for row in np.flatnonzero(around.cluster.feasible(demand)):
        exact = getattr(slow, name)(one_node(around.cluster, int(row)), demand)
        assert scores[row] == math.floor(exact) or abs(exact - round(exact)) < 1e-9


@pytest.mark.parametrize("name", published.NAMES)
@given(nodes, targets(), st.lists(demands(), max_size=12), demands())
def test_kept_scores_are_those_of_a_fresh_placer(name: str, found: list[Node], target: tuple[PodClass, ...], pods: list[Demand], asked: Demand):
    """After every placement: what is kept of a demand is brought up to date for the rows that changed."""
    around = surroundings(found, target)
    placer = policies.POLICIES[name](around)
    assert isinstance(placer, Scored)
    for at, demand in enumerate(pods):
        placement = placer.place(Pod(f"p{at}", demand))
        if placement is not None:
            around.cluster.take(demand, placement)
        fresh = policies.POLICIES[name](Surroundings(around.cluster, target, around.fragmentation, 0))
        if name != "packing":  # which takes the node's number of GPUs from the idle cluster
            assert isinstance(fresh, Scored)
            assert (placer.scores(asked) == fresh.scores(asked)).all()
        assert ((placer.scores(asked) == REFUSED) == ~around.cluster.feasible(asked)).all()


@pytest.mark.parametrize("name", policies.POLICIES)
@settings(max_examples=50, deadline=None)
@given(nodes, targets(), st.lists(demands(), max_size=30))
def test_every_placement_fits_and_a_drop_fits_nowhere(name: str, found: list[Node], target: tuple[PodClass, ...], pods: list[Demand]):
    """No policy promises more than is left, and none refuses what a slow look finds room for."""
    around = surroundings(found, target)
    placer = policies.POLICIES[name](around)
    for at, demand in enumerate(pods):
        placement = placer.place(Pod(f"p{at}", demand))
        if placement is None:
            left = [one_node(around.cluster, row) for row in range(len(found))]
            assert not any(slow.fits(node, demand) and node.memory_left >= demand.memory_mib for node in left)
        else:
            around.cluster.take(demand, placement)
    for held in (around.cluster.cpu_left, around.cluster.memory_left, around.cluster.gpu_left):
        assert (held >= 0).all()


# --- one choice at a time ---------------------------------------------------------------------------------------------

NOBODY = (PodClass(0, 0, 0, (), 1.0),)


def test_equal_nodes_are_taken_in_the_order_of_the_seed():
    """Which is another order under another seed, and the same under the same."""
    found = [Node(f"n{at}", 96000, 393216, 8, "G2") for at in range(50)]
    first = [Cluster(found, seed).nodes[0].name for seed in (0, 0, 1)]
    assert first[0] == first[1] != first[2]
    around = surroundings(found, NOBODY)
    assert policies.POLICIES["bestfit"](around).place(Pod("p", Demand(1000, 1024, 1, 1000))) == Placement(0, (0,))


@pytest.mark.parametrize(
    ("demand", "gpus"),
    [
        pytest.param(Demand(0, 0, 0, 0), (), id="no GPU"),
        pytest.param(Demand(0, 0, 1, 200), (3,), id="a part goes where the least is left"),
        pytest.param(Demand(0, 0, 1, 400), (1,), id="a larger part where that is enough"),
        pytest.param(Demand(0, 0, 2, 1000), (2, 4), id="whole ones are the first idle ones"),
    ],
)
def test_gpus_within_a_node(demand: Demand, gpus: tuple[int, ...]):
    """As the artefact chooses them for every policy but Random and FGD."""
    around = surroundings([Node("n", 96000, 393216, 8, "G2")], NOBODY)
    around.cluster.gpu_left[0] = [100, 500, 1000, 300, 1000, 1000, 0, 0]
    assert policies.POLICIES["bestfit"](around).place(Pod("p", demand)) == Placement(0, gpus)


def test_a_placement_without_room_is_refused():
    """The replay must not go on with what a placer got wrong."""
    cluster = Cluster([Node("n", 8000, 65536, 2, "T4")], 0)
    for demand, gpus in [
        (Demand(9000, 0, 0, 0), ()),
        (Demand(0, 70000, 0, 0), ()),
        (Demand(0, 0, 1, 500), ()),
        (Demand(0, 0, 2, 1000), (0, 0)),
        (Demand(0, 0, 1, 500), (2,)),
        (Demand(0, 0, 1, 500, ("A10",)), (0,)),
    ]:
        with pytest.raises(ValueError, match="does not fit"):
            cluster.take(demand, Placement(0, gpus))
    assert cluster.changed == []


# --- trace and target workload ----------------------------------------------------------------------------------------


def some_pods(count: int, gpus: int) -> list[Pod]:
    return [Pod(f"p{at:03}", Demand(1000 + at, 0, gpus, 1000)) for at in range(count)]


def test_arrivals_are_all_pods_shuffled_then_drawn_ones():
    """Names stay unique; the same seed gives the same order."""
    found = some_pods(10, 1)
    order = trace.arrivals(found, 20_000, seed=3)
    assert sorted(pod.name for pod in order[:10]) == [pod.name for pod in found]
    assert [pod.name for pod in order[:10]] != [pod.name for pod in found]
    assert len(order) == 26  # 1.3 x 20 GPUs
    assert len({pod.name for pod in order}) == 26
    assert {pod.demand for pod in order} <= {pod.demand for pod in found}
    assert order == trace.arrivals(found, 20_000, seed=3) != trace.arrivals(found, 20_000, seed=4)


def test_the_test_that_ends_the_drawing_adds_one_gpu():
    """Pods of eight GPUs pass the target of 26 by the last one, as the artefact's do."""
    assert len(trace.arrivals(some_pods(2, 8), 20_000, seed=0)) == 4


def test_traces_that_are_too_large_lose_random_pods():
    """Down to the target, not below it by more than a pod."""
    order = trace.arrivals(some_pods(40, 1), 20_000, seed=0)
    assert len(order) == 26
    assert len({pod.name for pod in order}) == 26


def test_the_target_workload_leaves_out_what_is_rare():
    """95 percent stay, and are all."""
    counts = {1: 60, 2: 36, 4: 3, 8: 1}
    found = [Pod(f"p{gpus}-{at}", Demand(gpus, at, gpus, 1000)) for gpus, count in counts.items() for at in range(count)]
    target = workload.target(found)
    assert [(one.gpus, one.popularity) for one in target] == [(1, 60 / 96), (2, 36 / 96)]


@needs_data
@pytest.mark.parametrize("name", trace.TRACES)
def test_every_trace_is_read(name: str):
    """Those without a column for models too: any will do there."""
    found = trace.pods(DATA, name)
    assert len(found) > 7000
    assert any(pod.demand.models for pod in found) == name.startswith("gpuspec")


def test_pods_with_parts_of_several_gpus_are_refused_by_name(tmp_path: Path):
    """No trace has one; tables of F for them are not there."""
    (tmp_path / "openb").mkdir()
    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
    (tmp_path / "openb" / "openb_pod_list_odd.csv").write_text(f"{head}b,1000,1024,1,1000,T4|G2\na,1000,1024,2,500,\n")
    with pytest.raises(ValueError, match="pod a asks for 500 milli of each of 2 GPUs"):
        trace.pods(tmp_path, "odd")
    with pytest.raises(FileNotFoundError, match="no trace 'none'"):
        trace.pods(tmp_path, "none")


# --- the replay and its figures ---------------------------------------------------------------------------------------


def test_curves_tell_what_was_allocated_left_idle_and_occupied():
    """Two nodes of two GPUs, pods of one GPU and 3 of 4 vCPU: each node takes one, the others are dropped."""
    target = (PodClass(3000, 1, 1000, (), 1.0),)
    around = surroundings([Node(f"n{at}", 4000, 65536, 2, "T4") for at in range(2)], target)
    pods = [Pod(f"p{at}", Demand(3000, 1024, 1, 1000)) for at in range(5)]
    curves = replay.run(around, policies.POLICIES["fgd"](around), pods)
    assert [curves.allocated[at] for at in (25, 50, 75, 100, 125)] == [25, 50, 50, 50, 50]
    assert [curves.fragmentation[at] for at in (25, 50, 75, 100, 125)] == [25, 50, 50, 50, 50]
    assert [curves.occupied[at] for at in (25, 50, 125)] == [1, 2, 2]
    assert curves.dropped == 3
    assert math.isnan(curves.allocated[60])


def test_records_near_one_percent_are_averaged():
    """As the artefact does: the percent is rounded, the mean of its records counts."""
    around = surroundings([Node("n", 96000, 393216, 8, "G2")], NOBODY)
    curves = replay.run(around, policies.POLICIES["bestfit"](around), [Pod(f"p{at}", Demand(0, 0, 1, 30)) for at in range(10)])
    assert curves.allocated[1] == pytest.approx(100 * (60 + 90) / 2 / 8000)  # arrived: 0.375, 0.75, 1.125, 1.5 percent


@needs_data
@pytest.mark.parametrize(("policy", "within"), [pytest.param("fgd", 0.5, id="FGD"), pytest.param("bestfit", 0.6, id="BestFit")])
def test_one_run_is_near_the_published_mean(policy: str, within: float):
    """Five standard deviations of a single run; `python -m bench.placement_quality` compares ten."""
    run = replayed(Task(DATA, "default", policy, 0))
    for at in report.AT:
        assert run.curves.allocated[at] == pytest.approx(published.allocated(DATA, at)["default", policy], abs=within)
    assert run.curves.fragmentation[50] == pytest.approx(published.fragmentation(DATA, 50)["default", policy], abs=within)


@needs_data
def test_every_trace_and_policy_has_its_anchors():
    """All 17 of each table."""
    anchors = published.allocated(DATA, 100)
    assert set(anchors) == {(name, policy) for name in trace.TRACES for policy in published.NAMES}
    assert set(published.bounds(DATA, 130)) == set(trace.TRACES)


def flat(value: float) -> Curves:
    return Curves((value,) * 131, (5.0,) * 131, (1.0,) * 131, 0)


def test_differences_to_fgd_are_paired_by_seed():
    """Their interval is that of the differences, not of the runs."""
    runs = Runs(
        [Run("fgd", "t", seed, flat(90 + seed)) for seed in range(3)] + [Run("ours", "t", seed, flat(91 + seed + 0.1 * seed)) for seed in range(3)]
    )
    mean, half = report.paired(runs, "ours", "t", 100)
    assert mean == pytest.approx(1.1)
    assert half == pytest.approx(4.30 * 0.1 / math.sqrt(3))
    assert report.paired(Runs([Run("fgd", "t", 0, flat(90)), Run("ours", "t", 0, flat(91))]), "ours", "t", 100) == (1, None)


# --- the command ------------------------------------------------------------------------------------------------------

command = CliRunner()


def small_data(folder: Path) -> Path:
    """Write a cluster of twelve GPUs and a trace of its size, with the tables of figures, and return the folder."""
    draws = random.Random(0)
    here = folder / "openb"
    here.mkdir()
    nodes_text = "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,8,G2\nb,32000,262144,4,T4\nc,32000,262144,0,\n"
    (here / trace.NODES).write_text(nodes_text)
    lines = [
        f"p{at:02},{draws.choice([2000, 9000])},1024,{gpus},{draws.choice([300, 1000]) if gpus else 0}," for at, gpus in enumerate([0, 1, 1, 1] * 6)
    ]
    (here / "openb_pod_list_default.csv").write_text("\n".join(["name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec", *lines]) + "\n")
    columns = ("alloc100", "alloc130", "fragpct50", "fragpct80", "fragpct100")
    (here / "published_results.csv").write_text(f"trace,policy,{','.join(columns)}\ndefault,FGD,90,91,5,5,5\n")
    (here / "bounds.csv").write_text("trace,hindsight_alloc100_max,hindsight_alloc130_max\ndefault,96,99\n")
    return folder


def test_the_command_writes_runs_table_and_pictures(tmp_path: Path):
    """Two policies, two seeds, in this process's children; the same figures again the next time."""
    data, results = small_data(tmp_path), tmp_path / "results"
    told = f"--data {data} --trace default --policy fgd --policy random --seeds 4:6 --jobs 2 --results {results}".split()
    done = command.invoke(app(), [*told, "--json", str(tmp_path / "runs.json")])
    assert done.exit_code == 0, done.output
    written = json.loads((tmp_path / "runs.json").read_text())
    runs = written["runs"]
    assert [(run["policy"], run["trace"], run["seed"]) for run in runs] == [(p, "default", s) for s in (4, 5) for p in ("fgd", "random")]
    assert set(runs[0]["allocated"]) == {"100", "130"}
    assert set(runs[0]["fragmentation"]) == {"50", "80", "100"}
    assert [(curve["policy"], len(curve["allocated"])) for curve in written["curves"]] == [("fgd", replay.PERCENTS), ("random", replay.PERCENTS)]
    assert "(90.00 / 91.00)" in (results / "placement_quality.md").read_text()
    pictures = {"placement_quality_curves.svg", "placement_quality_traces.svg"} if importlib.util.find_spec("matplotlib") else set()
    assert {path.name for path in results.iterdir()} == {"placement_quality.md", *pictures}
    assert command.invoke(app(), told).exit_code == 0
    assert json.loads((results / "placement_quality.json").read_text())["runs"] == runs


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        pytest.param("--trace", "defualt", "'defualt' is none of default", id="trace that is not there"),
        pytest.param("--policy", "bestift", "'bestift' is none of random, dotprod", id="policy that is not there"),
        pytest.param("--seeds", "3:3", "'3:3' is not A:B with A below B", id="no seeds"),
        pytest.param("--seeds", "7", "'7' is not A:B", id="one number"),
    ],
)
def test_what_the_command_cannot_do_is_said(tmp_path: Path, option: str, value: str, said: str):
    """With the option's name, the value, and what would do."""
    done = command.invoke(app(), ["--data", str(small_data(tmp_path)), option, value], env={"COLUMNS": "300"})
    assert done.exit_code == 2
    assert option in done.output
    assert said in " ".join(done.output.replace("│", " ").split())


def app():
    import typer

    made = typer.Typer()
    made.command()(main)
    return made


def test_no_node_has_more_gpus_than_slots():
    """Which the arrays hold."""
    with pytest.raises(ValueError, match="inhomogeneous"):
        Cluster([Node("a", 1, 1, SLOTS + 1, "G2"), Node("b", 1, 1, SLOTS, "G2")], 0)
