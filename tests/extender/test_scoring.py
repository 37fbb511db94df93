"""Which of the feasible nodes is best: bandwidth, then the remainder, then the policy, then the name; exactly one gets 10."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster import Cluster, Room, TentativeHold, View
from extender.demand import Demand, Shape, read_demand
from extender.placement import Placement, Plan
from extender.reasons import Refusal
from extender.sample_machines import SAMPLE_MACHINES
from extender.scoring import EQUAL, LADDER, TOP, Scores, _ladder, score, score_without_gpus
from extender.settings import Policy
from tests.builders import Clock, JsonObject, PodBuilder, cluster, pod

ONE, TWO, FOUR = pod().gpus(1), pod().gpus(2), pod().gpus(4)


def shape_of(asked: PodBuilder) -> Shape:
    return read_demand(asked.build()).shape


def view_of(**nodes: tuple[str, set[int]]) -> View:
    """A cluster of nodes, each a machine kind and the GPUs that are free on it; `_` in a name stands for `-`."""
    state = Cluster("nvidia.com/gpu", Clock())
    for key, (kind, free) in nodes.items():
        name = key.replace("_", "-")
        built = cluster().machine(kind, name)
        state.apply_topology(built.topologies[0])
        held = [uuid for gpu, uuid in enumerate(built.uuids(name)) if gpu not in free]
        if held:
            state.apply_pod(pod(f"on-{name}").holding(name, *held).build())
    return state.view()


def beside(view: View, held: dict[int, int] | None) -> dict[int, Room]:
    """What rows have to give once others have taken those bits."""
    return {row: view.room(row).without(TentativeHold("other", row, mask, 0.0)) for row, mask in (held or {}).items() if row < view.rows}


def scored(asked: PodBuilder | Shape, view: View, policy: Policy = Policy.PACK, held: dict[int, int] | None = None) -> dict[str, int]:
    shape = asked if isinstance(asked, Shape) else shape_of(asked)
    rows = feasible(shape, view)
    found = score(Demand(shape, policy=policy), view, rows, beside(view, held), Placement())
    return {view.names[row]: int(points) for row, points in zip(rows, found.score, strict=True)}


def feasible(shape: Shape, view: View) -> np.ndarray:
    return np.nonzero(Placement().fits(shape, view).code == Refusal.FITS)[0].astype(np.int64)


def plan_at(found: Scores, rows: np.ndarray, position: int, shape: Shape, view: View) -> Plan | None:
    """Return the plan that the score at a position stands for."""
    return Placement().plan(shape, view.classes[view.class_index[rows[position]]], found.room(view, int(rows[position])))


def top(scores: dict[str, int]) -> str:
    (name,) = [name for name, points in scores.items() if points == TOP]
    return name


ALL = set(range(8))

# --- the order ------------------------------------------------------------------------------------------------------


def test_bandwidth_goes_first_for_a_pod_that_cares():
    view = view_of(pcie=("pcie", ALL), bridged=("bridges", ALL), switched=("nvswitch", ALL))
    assert scored(TWO, view) == {"switched": 10, "bridged": 5, "pcie": 0}


def test_a_broken_machine_of_the_faster_kind_loses_to_a_whole_one_of_the_slower():
    view = view_of(bridged=("bridges", {0, 1, 4, 6}), mesh=("mesh", {0, 1, 2, 3}))
    assert top(scored(TWO, view)) == "mesh"


def test_single_gpus_go_where_they_break_least():
    view = view_of(whole=("nvswitch", ALL), pcie=("pcie", ALL), widow=("bridges", {0, 1, 3}))
    assert top(scored(ONE, view)) == "widow"


def test_pods_that_do_not_care_leave_the_fast_machines_to_those_that_do():
    view = view_of(switched=("nvswitch", ALL), pcie=("pcie", ALL))
    assert top(scored(TWO, view)) == "switched"
    assert top(scored(TWO.annotated(topology="none"), view)) == "pcie"


# Six or seven GPUs free cost a pod the same for every two that it asks for: one whole pair. Two fast machines and two slow ones, so that every cell has its own
# winner.
MATRIX_VIEW = view_of(
    fast_6=("bridges", {0, 1, 2, 3, 4, 5}), fast_7=("bridges", ALL - {7}), slow_6=("pcie", {0, 1, 2, 3, 4, 5}), slow_7=("pcie", ALL - {7})
)


@pytest.mark.parametrize(
    ("topology", "policy", "winner"),
    [
        pytest.param("best", Policy.PACK, "fast-6", id="best x pack"),
        pytest.param("best", Policy.SPREAD, "fast-7", id="best x spread"),
        pytest.param("best", Policy.GPUALLOCATOR, "fast-6", id="best x gpuallocator"),
        pytest.param("none", Policy.PACK, "slow-6", id="none x pack"),
        pytest.param("none", Policy.SPREAD, "slow-7", id="none x spread"),
        pytest.param("none", Policy.GPUALLOCATOR, "slow-6", id="none x gpuallocator"),
    ],
)
@pytest.mark.parametrize("asked", [pytest.param(TWO, id="one container"), pytest.param(pod().gpus(2, "a").gpus(2, "b"), id="two containers")])
@pytest.mark.parametrize("weights", [None, {2: 1.0}, {1: 0.5, 2: 0.5}], ids=["seed", "pairs", "singles and pairs"])
def test_policy_by_topology_every_cell(topology: str, policy: Policy, winner: str, asked: PodBuilder, weights: dict[int, float] | None):
    """HAMi 2973: the spread policy inverts the topology score."""
    demand = read_demand(asked.annotated(topology=topology).build(), policy=policy)
    found = score(demand, MATRIX_VIEW, np.arange(4), {}, Placement(weights))
    assert MATRIX_VIEW.names[found.top or 0] == winner


@pytest.mark.parametrize(
    ("topology", "weights", "winner"),
    [
        pytest.param("none", {1: 1.0}, "slow", id="nobody asks for more than one: an island is left whole all the same"),
        pytest.param("none", {8: 1.0}, "slow", id="only whole machines count: an island is left whole all the same"),
        pytest.param("none", {2: 1.0}, "slow", id="pairs count: where a pair is worth least"),
        pytest.param("best", {1: 1.0}, "broken", id="a pod that cares: bandwidth first, then packed"),
        pytest.param("best", {8: 1.0}, "broken", id="a pod that cares: bandwidth first, then no whole machine"),
    ],
)
def test_what_the_cluster_is_asked_for_decides_where_bandwidth_does_not(topology: str, weights: dict[int, float], winner: str):
    view = view_of(broken=("bridges", {0, 1, 2, 3, 4, 5}), whole=("bridges", ALL), slow=("pcie", ALL))
    found = score(Demand(shape_of(TWO.annotated(topology=topology))), view, np.arange(3), {}, Placement(weights))
    assert view.names[found.top or 0] == winner


@pytest.mark.parametrize(
    ("weights", "winner"),
    [
        pytest.param({1: 1.0}, "broken", id="nobody asks for more than one: packed"),
        pytest.param({8: 1.0}, "broken", id="only whole machines count: the broken one"),
        pytest.param({2: 1.0}, "broken", id="pairs count, and a pair costs a pair: packed"),
    ],
)
def test_where_no_island_is_at_stake_the_demands_decide(weights: dict[int, float], winner: str):
    view = view_of(broken=("pcie", {0, 1, 2, 3, 4, 5}), whole=("pcie", ALL))
    found = score(Demand(shape_of(TWO.annotated(topology="none"))), view, np.arange(2), {}, Placement(weights))
    assert view.names[found.top or 0] == winner


@pytest.mark.parametrize("weights", [None, {1: 1.0}, {2: 1.0}, {8: 1.0}], ids=["seed", "singles", "pairs", "eights"])
@pytest.mark.parametrize("asked", [ONE, TWO.annotated(topology="none")], ids=["one GPU", "two, none"])
def test_no_island_is_broken_while_a_broken_one_has_room_however_demands_are_weighed(asked: PodBuilder, weights: dict[int, float] | None):
    """Six GPUs behind an NVSwitch are worth more than a bridged pair, and yet the pair stays whole; breaking one costs two levels."""
    view = view_of(broken=("nvswitch", {0, 1, 2, 3, 4, 5}), whole=("bridges", ALL))
    found = score(Demand(shape_of(asked)), view, np.arange(2), {}, Placement(weights))
    assert view.names[found.top or 0] == "broken"
    assert found.score[view.names.index("whole")] <= 8


@pytest.mark.parametrize(
    ("policy", "others"),
    [
        pytest.param(Policy.PACK, {0, 1, 2, 3}, id="not even to pack: the last quad would go"),
        pytest.param(Policy.SPREAD, ALL, id="not even to spread: the whole machine would go"),
    ],
)
def test_the_remainder_goes_before_the_policy(policy: Policy, others: set[int]):
    view = view_of(six=("bridges", {0, 1, 2, 3, 4, 5}), other=("bridges", others))
    assert top(scored(TWO, view, policy)) == "six"


@pytest.mark.parametrize(("policy", "winner"), [(Policy.PACK, "three"), (Policy.SPREAD, "five")])
def test_one_widow_is_as_good_as_another_and_the_policy_decides(policy: Policy, winner: str):
    view = view_of(five=("bridges", {0, 1, 3, 4, 5}), three=("bridges", {0, 1, 3}), whole=("bridges", ALL))
    assert top(scored(ONE, view, policy)) == winner


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("asked", [ONE, TWO, FOUR, TWO.annotated(topology="none")], ids=["one", "two", "four", "two that do not care"])
def test_equal_nodes_are_told_apart_by_name_and_by_nothing_else(policy: Policy, asked: PodBuilder):
    view = view_of(c=("dgx1v", ALL), a=("dgx1v", ALL), b=("dgx1v", ALL))
    assert scored(asked, view, policy) == {"a": 10, "b": 9, "c": 9}


# --- the ladder -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "points"),
    [
        *((0.0, 9), (0.02, 9), (0.0200001, 8), (0.10, 8), (0.1000001, 7), (0.20, 7), (0.2000001, 6), (0.30, 6), (0.3000001, 5), (0.40, 5)),
        *((0.4000001, 4), (0.50, 4), (0.5000001, 3), (0.60, 3), (0.6000001, 2), (0.70, 2), (0.7000001, 1), (0.80, 1), (0.8000001, 0), (1.0, 0)),
    ],
)
def test_steps_of_the_ladder(loss: float, points: int):
    assert _ladder(np.array([loss])).tolist() == [points]


def test_a_loss_that_is_a_hair_beyond_a_step_by_rounding_alone_still_stands_on_it():
    assert _ladder(np.array([1.0 - 0.9, 0.1 + 0.2])).tolist() == [8, 6]


def test_the_ladder_leaves_the_top_to_one():
    assert max(points for _, points in LADDER) < TOP
    assert [limit for limit, _ in LADDER] == sorted(limit for limit, _ in LADDER)


# --- tentative holds ------------------------------------------------------------------------------------------------


def test_the_set_that_another_scored_pod_will_take_does_not_count():
    view = view_of(a=("bridges", {0, 2, 4, 6}), b=("bridges", {0, 2}))
    assert top(scored(TWO, view)) == "b"
    assert scored(TWO, view, held={1: 0b101}) == {"a": 10, "b": 0}
    assert top(scored(TWO, view, held={0: 0b101})) == "b"


def test_a_node_that_is_about_to_be_full_keeps_its_score_where_nothing_else_is_left():
    """A hold lowers scores, it never refuses: kube-scheduler would park the pod for minutes."""
    view = view_of(only=("mesh", {0, 1}))
    assert scored(TWO, view, held={0: 0b0001}) == {"only": 10}


def test_a_pod_that_does_not_care_is_not_sent_where_nothing_is_left_either():
    view = view_of(a=("mesh", {0}), b=("mesh", {0, 1}), c=("mesh", {0, 1, 2, 3}))
    assert scored(ONE, view, held={0: 0b0001})["a"] == 0
    assert scored(TWO.annotated(topology="none"), view_of(b=("mesh", {0, 1}), c=("mesh", {0, 1, 2, 3})), held={0: 0b0001}) == {"b": 0, "c": 10}


def test_holds_leave_no_plan_where_nothing_is_left_beside_them():
    view = view_of(a=("mesh", {0, 1}), b=("mesh", {0, 1}))
    shape, rows = shape_of(TWO), feasible(shape_of(TWO), view)
    found = score(Demand(shape), view, rows, beside(view, {0: 0b0011}), Placement())
    assert plan_at(found, rows, 0, shape, view) is None
    assert (found.top, found.runner_up, found.score.tolist()) == (1, None, [0, 10])


# --- any cluster ----------------------------------------------------------------------------------------------------

nodes = st.tuples(st.sampled_from(sorted(SAMPLE_MACHINES)), st.sets(st.integers(0, 7), max_size=8))
clusters = st.dictionaries(st.sampled_from("abcdefg"), nodes, min_size=1, max_size=6)
demands = st.sampled_from([ONE, TWO, FOUR, TWO.min_bandwidth(30), TWO.annotated(topology="none"), pod().gpus(2, "x").gpus(1, "y"), ONE.init(3)])
policies = st.sampled_from(Policy)


def found_in(view: View, asked: PodBuilder, policy: Policy, held: dict[int, int] | None = None) -> tuple[Scores, np.ndarray]:
    shape = shape_of(asked)
    rows = feasible(shape, view)
    return score(Demand(shape, policy=policy), view, rows, beside(view, held), Placement()), rows


@settings(deadline=None, max_examples=60)
@given(clusters, demands, policies, st.dictionaries(st.integers(0, 5), st.integers(0, 255), max_size=3))
def test_exactly_one_node_gets_ten_and_the_same_call_gets_the_same_answer(
    built: dict[str, tuple[str, set[int]]], asked: PodBuilder, policy: Policy, held: dict[int, int]
):
    view = view_of(**built)
    found, rows = found_in(view, asked, policy, held)
    points = found.score.tolist()
    assert points.count(TOP) == (1 if len(rows) else 0)
    assert all(0 <= each <= TOP for each in points)
    assert points == found_in(view, asked, policy, held)[0].score.tolist()
    if len(rows):
        assert found.top is not None
        assert points[found.top] == TOP
        plans = [plan_at(found, rows, position, shape_of(asked), view) for position in range(len(rows))]
        assert plans[found.top] is not None
        assert (found.runner_up is None) == (sum(plan is not None for plan in plans) == 1)


@settings(deadline=None, max_examples=60)
@given(clusters, demands, policies, st.randoms(use_true_random=False))
def test_the_order_of_the_names_in_the_call_changes_nothing(built: dict[str, tuple[str, set[int]]], asked: PodBuilder, policy: Policy, rng: object):
    view, shape = view_of(**built), shape_of(asked)
    rows = feasible(shape, view)
    shuffled = rows.copy()
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    first, second = (
        dict(zip((view.names[row] for row in each), score(Demand(shape, policy=policy), view, each, {}, Placement()).score.tolist(), strict=True))
        for each in (rows, shuffled)
    )
    assert first == second


@settings(deadline=None, max_examples=60)
@given(clusters, demands, policies)
def test_less_loss_is_never_a_lower_score_and_no_policy_buys_a_slower_set(built: dict[str, tuple[str, set[int]]], asked: PodBuilder, policy: Policy):
    view = view_of(**built)
    found, rows = found_in(view, asked, policy)
    points, losses = found.score.tolist(), found.loss.tolist()
    assert all(0.0 <= loss <= 1.0 for loss in losses)
    assert all(
        a >= b for a, loss_a in zip(points, losses, strict=True) for b, loss_b in zip(points, losses, strict=True) if loss_a < loss_b and b != TOP
    )
    if len(rows) and shape_of(asked).careful:
        plans = [plan_at(found, rows, position, shape_of(asked), view) for position in range(len(rows))]
        bandwidths = [plan.bandwidth for plan in plans if plan is not None]
        assert found.top is not None
        assert bandwidths[found.top] >= EQUAL * max(bandwidths)


@pytest.mark.parametrize("asked", [ONE, TWO, TWO.annotated(topology="none")], ids=["one", "two", "two that do not care"])
@pytest.mark.parametrize("policy", Policy)
def test_no_candidates_are_no_scores(asked: PodBuilder, policy: Policy):
    view = view_of(full=("mesh", set()))
    found = score(Demand(shape_of(asked), policy=policy), view, np.zeros(0, np.int64), {}, Placement())
    assert (found.score.tolist(), found.loss.tolist(), dict(found.beside), found.top, found.runner_up) == ([], [], {}, None, None)


@pytest.mark.parametrize("asked", [ONE, TWO, pod().shared(8)], ids=["one", "two", "a part"])
def test_a_cluster_whose_nodes_have_all_lost_their_topologies_scores_nobody(asked: PodBuilder):
    state = Cluster("nvidia.com/gpu", Clock())
    state.apply_topology(cluster().mesh("a").topologies[0])
    state.remove_topology("a")
    found = score(read_demand(asked.build()), state.view(), np.zeros(0, np.int64), {}, Placement())
    assert (found.score.tolist(), found.top) == ([], None)


# --- costs ----------------------------------------------------------------------------------------------------------


def test_a_pod_without_gpus_goes_where_its_cpu_is_spare():
    """One machine has CPU for more than its GPUs, one just enough for half of them, one none of whose GPUs is free."""
    view = view_of(spare=("pcie", ALL), scarce=("pcie", ALL), used=("pcie", set()))
    view = replace(view, cpu_left=np.array([640_000, 32_000, 32_000], np.int64))
    rows = np.array([0, 1, 2, -1])
    scores = score_without_gpus(8000, view, rows, Placement())
    assert scores[[0, 1]].tolist() == [TOP, 0]
    assert scores.tolist().count(TOP) == 1
    assert scores[2] == 9, "no GPU waits for its CPU"


def test_a_pod_without_gpus_has_no_say_where_nothing_is_lost_anywhere():
    """All nodes 0, so that kube-scheduler's own scores decide."""
    view = view_of(a=("pcie", ALL), b=("nvswitch", ALL))
    assert score_without_gpus(8000, view, np.array([0, 1, -1]), Placement()).tolist() == [0, 0, 0]
    assert score_without_gpus(8000, Cluster("nvidia.com/gpu", Clock()).view(), np.array([-1, -1]), Placement()).tolist() == [0, 0]


def test_a_share_goes_where_a_gpu_is_shared_already():
    """An idle GPU costs more than the rest of one whose other half is in use."""
    view = view_of(idle=("pcie", ALL), shared=("pcie", ALL))
    left, free = view.left.copy(), view.free.copy()
    left[1, 0], free[1] = 10_240, 0b11111110
    shares = pod().shared(8)
    assert top(scored(shares, replace(view, left=left, free=free))) == "shared"


def test_of_equal_bandwidths_the_cost_for_the_pods_to_come_decides():
    """Two machines behind NVSwitch, one without CPU for more than the pod: there nothing is left to lose."""
    view = view_of(a=("nvswitch", ALL), b=("nvswitch", ALL))
    view = replace(view, cpu_left=np.array([400_000, 2_000], np.int64))
    assert top(scored(TWO, view)) == "b"


# --- parts of GPUs --------------------------------------------------------------------------------------------------

GIB = 1024
PART, PARTS = pod().shared(8), pod().shared(40).annotated(gpu_count="2")


def sharing(kind: str, name: str, used: dict[int, int], held: tuple[int, ...] = ()) -> tuple[JsonObject, list[JsonObject]]:
    """A node with GiB of its GPUs in use, and with GPUs held whole."""
    built = cluster().machine(kind, name)
    uuids = built.uuids(name)
    pods = [pod(f"{name}-{gpu}").shared(gib).sharing(name, {uuids[gpu]: gib * GIB}).build() for gpu, gib in used.items()]
    if held:
        pods.append(pod(f"{name}-whole").holding(name, *(uuids[gpu] for gpu in held)).build())
    return built.topologies[0], pods


def view_with(*nodes: tuple[JsonObject, list[JsonObject]]) -> View:
    state = Cluster("nvidia.com/gpu", Clock())
    for topology, pods in nodes:
        state.apply_topology(topology)
        for each in pods:
            state.apply_pod(each)
    return state.view()


def test_parts_of_two_gpus_go_by_bandwidth_first():
    view = view_with(sharing("pcie", "slow", {0: 20, 1: 20}), sharing("bridges", "fast", {}), sharing("bridges", "broken", {}, (0, 1, 4, 6)))
    assert scored(PARTS, view) == {"fast": 10, "slow": 0, "broken": 0}


def test_parts_of_two_gpus_go_to_a_pair_that_is_shared_already_and_open_no_other():
    """Two pods of 2 x 20 GiB: the second lands beside the first."""
    view = view_with(sharing("bridges", "idle", {}), sharing("bridges", "shared", {0: 20, 2: 20}))
    assert top(scored(PARTS, view)) == "shared"


def test_one_part_breaks_no_island_while_a_broken_one_has_room():
    view = view_with(sharing("nvswitch", "whole", {}), sharing("nvswitch", "broken", {}, (0,)))
    assert top(scored(PART, view)) == "broken"
    assert scored(PART, view)["whole"] <= 8
    shared = view_with(sharing("nvswitch", "broken", {}, (0,)), sharing("nvswitch", "shared", {0: 40}))
    assert top(scored(PART, shared)) == "shared", "and takes no idle GPU while a shared one has room"


@pytest.mark.parametrize("policy", Policy)
def test_equal_nodes_with_parts_are_told_apart_by_name(policy: Policy):
    view = view_with(*(sharing("pcie", name, {3: 10}) for name in ("c", "a", "b")))
    for asked in (PART, PARTS):
        assert top(scored(asked, view, policy)) == "a"


def test_the_part_that_another_scored_pod_will_take_counts():
    view = view_with(sharing("pcie", "tight", {0: 34}, tuple(range(1, 8))), sharing("pcie", "idle", {}))
    assert top(scored(PART, view)) == "tight"
    for taken, winner in ((2, "tight"), (3, "idle")):
        hold = TentativeHold("other", 0, 0b0001, 0.0, ((0, taken * GIB),))
        rows = feasible(shape_of(PART), view)
        found = score(read_demand(PART.build()), view, rows, {0: view.room(0).without(hold)}, Placement())
        assert view.names[rows[found.top or 0]] == winner, "8 of 10 GiB are left for two that ask for 8 and 2, not for 8 and 3"


def test_a_hold_of_all_that_is_left_leaves_no_plan_there_and_refuses_nobody():
    view = view_with(sharing("mesh", "only", {0: 30}, (1, 2, 3)))
    hold = TentativeHold("other", 0, 0b0001, 0.0, ((0, 10 * GIB),))
    rows = feasible(shape_of(PART), view)
    found = score(read_demand(PART.build()), view, rows, {0: view.room(0).without(hold)}, Placement())
    assert (found.score.tolist(), dict(found.beside)) == ([TOP], {})


shared_nodes = st.tuples(
    st.sampled_from(sorted(SAMPLE_MACHINES)),
    st.dictionaries(st.integers(0, 3), st.sampled_from([4, 10, 30, 32]), max_size=4),
    st.sampled_from([(), (3,)]),
)
shared_demands = st.sampled_from(
    [PART, PARTS, PARTS.annotated(topology="none"), pod().shared(8, "a").shared(20, "b"), pod().gpus(1, "a").shared(20, "b")]
)


@settings(deadline=None, max_examples=40)
@given(st.lists(shared_nodes, min_size=1, max_size=4), shared_demands, policies)
def test_exactly_one_node_gets_ten_for_parts_too_and_it_has_the_set_that_is_scored(
    built: list[tuple[str, dict[int, int], tuple[int, ...]]], asked: PodBuilder, policy: Policy
):
    nodes = [sharing(kind, f"n{at}", {gpu: gib for gpu, gib in used.items() if gpu not in held}, held) for at, (kind, used, held) in enumerate(built)]
    view, shape = view_with(*nodes), shape_of(asked)
    found, rows = found_in(view, asked, policy)
    assert found.score.tolist().count(TOP) == (1 if len(rows) else 0)
    assert all(plan_at(found, rows, position, shape, view) is not None for position in range(len(rows)))
    if len(rows) and shape.careful:
        bandwidths = [plan.bandwidth for position in range(len(rows)) if (plan := plan_at(found, rows, position, shape, view)) is not None]
        assert bandwidths[found.top or 0] >= EQUAL * max(bandwidths)
