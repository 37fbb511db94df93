"""The histogram of demands: it starts from the seed, follows what is asked, fades, moves in steps, and can be held still."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.demand_class import SEED_TARGET, DemandClass
from extender.settings import Settings
from extender.workload import MOST_GPUS, STEP, STEP_EVERY_S, FixedWorkload, Workload, read_weights, read_workload
from tests.builders import NOW, Clock, cluster, extender_on, pod
from tests.machines import BRIDGES_CROSSED
from topology.errors import InputError
from topology.topology_class import SEED_WEIGHTS, members, topology_class

HALF_LIFE_S = 3600.0


def workload() -> tuple[Workload, Clock]:
    clock = Clock()
    return Workload(HALF_LIFE_S, clock), clock


def placed(histogram: Workload, clock: Clock, size: int, times: int) -> None:
    """Note that many pods of one container, far enough apart for every step."""
    for _ in range(times):
        clock.now += STEP_EVERY_S
        histogram.note([size])
        histogram.follow()


def test_before_any_pod_the_seed_counts():
    histogram, _ = workload()
    assert histogram.weights == SEED_WEIGHTS
    assert not histogram.state().seen


def test_what_is_asked_for_comes_to_weigh_more():
    histogram, clock = workload()
    placed(histogram, clock, 8, 100)
    assert histogram.weights[8] > 0.6
    assert sum(histogram.weights.values()) == pytest.approx(1.0, abs=0.02)


def test_a_few_odd_pods_change_nothing():
    histogram, clock = workload()
    placed(histogram, clock, 7, 2)
    assert histogram.weights is SEED_WEIGHTS


def test_every_container_counts_and_sizes_that_no_node_has_do_not():
    histogram, _ = workload()
    histogram.note([2, 2, 1, MOST_GPUS + 1, 0])
    assert histogram.state().seen == {1: 1.0, 2: 2.0}


def test_counts_halve_with_time_and_the_seed_comes_back():
    histogram, clock = workload()
    placed(histogram, clock, 8, 100)
    before = histogram.state().seen[8]
    clock.now += HALF_LIFE_S
    assert histogram.state().seen[8] == pytest.approx(before / 2)
    clock.now += 30 * HALF_LIFE_S
    histogram.note([2])
    histogram.follow()
    assert histogram.state().seen == {2: 1.0}, "what has faded away is forgotten"
    assert histogram.weights[8] == pytest.approx(SEED_WEIGHTS[8], abs=STEP)


def test_a_burst_is_one_step():
    histogram, clock = workload()
    clock.now += STEP_EVERY_S
    moved = []
    for _ in range(500):
        histogram.note([4])
        moved.append(histogram.follow())
    assert sum(moved) == 1
    clock.now += STEP_EVERY_S
    assert histogram.follow(), "what came meanwhile counts at the next"


def test_a_size_of_the_seed_is_never_rounded_away_so_that_single_gpus_break_no_bridge_for_nothing():
    histogram, clock = workload()
    for _ in range(20_000):
        histogram.note([1])
    clock.now += STEP_EVERY_S
    assert histogram.follow()
    assert histogram.weights == {1: pytest.approx(1.0, abs=0.01), 2: 0.01, 4: 0.01, 8: 0.01}
    kind = topology_class(BRIDGES_CROSSED.matrix).under(histogram.weights)
    chosen = kind.best_set(0b11111110, 1)  # 2 has lost its partner, 1 has not
    assert chosen is not None
    assert members(chosen.mask) == (2,)


def test_between_steps_the_weights_are_one_object():
    histogram, clock = workload()
    placed(histogram, clock, 8, 20)
    before, version = histogram.weights, histogram.state().version
    histogram.note([1])
    assert not histogram.follow()
    assert histogram.weights is before
    assert histogram.state().version == version


def test_fixed_weights_stay_whatever_is_asked_until_the_reset():
    histogram, clock = workload()
    histogram.fix({2: 1.0, 4: 3.0})
    assert (histogram.weights, histogram.state().fixed) == ({2: 0.25, 4: 0.75}, True)
    placed(histogram, clock, 8, 100)
    assert histogram.weights == {2: 0.25, 4: 0.75}
    histogram.reset()
    assert (histogram.weights, histogram.state().fixed) == (SEED_WEIGHTS, False)


@given(st.lists(st.tuples(st.floats(0, 1e5), st.lists(st.integers(0, 20), max_size=3)), max_size=30))
def test_the_same_pods_at_the_same_times_give_the_same_weights_and_shares_stay_shares(pods: list[tuple[float, list[int]]]):
    weights = []
    for _ in range(2):
        histogram, clock = workload()
        for wait, sizes in pods:
            clock.now += wait
            histogram.note(sizes)
            histogram.follow()
        weights.append(dict(histogram.weights))
    assert weights[0] == weights[1]
    assert all(1 <= size <= MOST_GPUS and 0 < share <= 1 for size, share in weights[0].items())
    assert sum(weights[0].values()) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param([], id="no object"),
        pytest.param({}, id="without weights"),
        pytest.param({"weights": {}}, id="empty"),
        pytest.param({"weights": {"0": 1}}, id="size of nothing"),
        pytest.param({"weights": {"17": 1}}, id="larger than any node"),
        pytest.param({"weights": {"two": 1}}, id="size in words"),
        pytest.param({"weights": {"²": 1}}, id="a digit that is none"),
        pytest.param({"weights": {"2": -1}}, id="below nothing"),
        pytest.param({"weights": {"2": 0}}, id="nothing at all"),
        pytest.param({"weights": {"2": "1"}}, id="share in quotes"),
        pytest.param({"weights": {"2": True}}, id="no number"),
        pytest.param({"weights": {"2": 1e300}}, id="beyond all measure"),
    ],
)
def test_weights_that_cannot_be_are_refused_with_the_accepted_form_and_change_nothing(body: object):
    histogram, _ = workload()
    with pytest.raises(InputError, match=r"accepted: .*sizes 1 to 16"):
        histogram.fix(read_weights(body))
    assert histogram.weights is SEED_WEIGHTS


async def test_pods_count_when_they_are_bound_and_only_once():
    extender = extender_on(cluster().dgx1v("a"))
    asked = pod().gpus(2, "a").gpus(1, "b")
    await extender.place(asked, "a")
    assert await extender.bind(asked, "a") == ""
    assert extender.verbs.workload.state().seen == {1: 1.0, 2: 1.0}


async def test_a_new_process_counts_the_pods_that_it_finds_bound_faded_by_their_age():
    """Nothing is stored but the pods: what they asked for weighs as it did before the restart."""
    half_life_ago = NOW - timedelta(seconds=Settings().workload_half_life_s)
    node = cluster().nvswitch("a")
    uuids = node.uuids("a")
    found = [pod(f"old-{at}").holding("a", *uuids[at : at + 4]).created(half_life_ago) for at in (0, 4)]
    extender = extender_on(node.with_pods(*found))
    extender.verbs.follow_demands(at_once=True)
    assert extender.verbs.workload.state().seen == {4: pytest.approx(1.0)}


async def test_a_pod_that_came_around_linkwise_counts_as_one_set():
    """What it holds is not known yet; how many GPUs it asked for is."""
    extender = extender_on(cluster().nvswitch("a"))
    extender.cluster.apply_pod(pod("stranger").gpus(8).bound_to("a").build())
    extender.verbs.follow_demands()
    assert extender.verbs.workload.state().seen == {8: 1.0}


async def test_the_choice_of_a_set_follows_what_the_cluster_is_asked_for():
    """Where two sets are equally fast, the one that breaks nothing that is asked for: the histogram decides what that is."""
    extender = extender_on(cluster().bridges("a"))
    notebook = pod("notebook").gpus(1)
    before = extender.verbs.evaluate(notebook.build())
    extender.verbs.fix_workload({8: 1.0})
    after = extender.verbs.evaluate(notebook.build())
    assert (before.weights, after.weights) == (SEED_WEIGHTS, {8: 1.0})
    assert extender.verbs.placement.weighed(extender.cluster.view().classes[0]).weights == {8: 1.0}
    extender.verbs.reset_workload()
    assert extender.verbs.evaluate(notebook.build()).weights == SEED_WEIGHTS


SHARE = DemandClass(4000, 1, 10_240)


def test_classes_follow_what_is_asked_in_steps_of_their_own():
    """Before the time of a step, and where little has moved, the target is the same object."""
    histogram, clock = workload()
    for _ in range(200):
        histogram.note_class(SHARE)
    assert not histogram.follow_classes()
    assert histogram.target is SEED_TARGET
    clock.now += STEP_EVERY_S
    assert histogram.follow_classes()
    assert (histogram.target[0].mib, histogram.target[0].popularity > 0.7) == (10_240, True)
    before = histogram.target
    histogram.note_class(SHARE)
    clock.now += STEP_EVERY_S
    assert not histogram.follow_classes()
    assert histogram.target is before


def test_a_restarted_process_follows_at_once():
    """The pods that it finds bound are no burst."""
    histogram, _ = workload()
    for _ in range(200):
        histogram.note_class(SHARE)
    assert histogram.follow_classes(at_once=True)


def test_fixed_classes_stay_until_the_reset_which_forgets_what_was_counted():
    """As with weights."""
    histogram, clock = workload()
    histogram.fix_classes((DemandClass(0, 8, popularity=3.0), DemandClass(0, 1, 1024, popularity=1.0)))
    assert [one.popularity for one in histogram.target] == [0.75, 0.25]
    for _ in range(200):
        histogram.note_class(SHARE)
    clock.now += STEP_EVERY_S
    assert not histogram.follow_classes()
    assert histogram.state().target_fixed
    histogram.reset()
    clock.now += STEP_EVERY_S
    assert not histogram.follow_classes()
    assert histogram.target is SEED_TARGET


@pytest.mark.parametrize(
    ("body", "told"),
    [
        pytest.param({"weights": {"8": 2}}, FixedWorkload({8: 2.0}, None), id="weights alone"),
        pytest.param({"classes": [{"gpus": 8, "popularity": 2}]}, FixedWorkload(None, (DemandClass(0, 8),)), id="classes alone"),
        pytest.param({"weights": {"8": 1}, "classes": [{"gpus": 8, "popularity": 2}]}, FixedWorkload({8: 1.0}, (DemandClass(0, 8),)), id="both"),
    ],
)
def test_a_body_fixes_what_it_speaks_of(body: object, told: FixedWorkload):
    """What it does not speak of goes on as it was."""
    assert read_workload(body) == told


@pytest.mark.parametrize(
    "body", [pytest.param({}, id="neither"), pytest.param({"weights": 1, "classes": [{"gpus": 8, "popularity": 2}]}, id="one of them bad")]
)
def test_a_body_that_fixes_nothing_or_half_is_refused(body: object):
    """Nothing is half done."""
    with pytest.raises(InputError, match="accepted"):
        read_workload(body)


def test_bad_weights_beside_good_classes_change_neither():
    """Both are checked before either counts."""
    extender = extender_on(cluster().dgx1v("a"))
    with pytest.raises(InputError):
        extender.verbs.fix_workload({}, (DemandClass(0, 8),))
    assert extender.verbs.workload.target is SEED_TARGET
    with pytest.raises(InputError):
        extender.verbs.fix_workload({8: 1.0}, ())
    assert not extender.verbs.workload.state().fixed


async def test_what_pods_were_bound_with_decides_what_placement_looks_ahead_by():
    """Bound pods are counted by class: CPU, GPUs, and the model that they ask for."""
    extender = extender_on(cluster().nvswitch("a"))
    asked = pod("eight").annotated(gpu_model="*H100*")
    extender.cluster.apply_pod(asked.holding("a", *cluster().nvswitch("a").uuids("a")).build())
    for number in range(100):
        extender.verbs.workload.note_class(DemandClass(number % 2, 8, model="*H100*"))
    extender.verbs.follow_demands(at_once=True)
    target = extender.verbs.placement.outlook.target
    assert target is extender.verbs.workload.target
    counted = sum(one.popularity for one in target if one.model == "*H100*")
    assert counted == pytest.approx(101 / 151, abs=0.03)


def test_fixed_classes_decide_at_once():
    """As weights do."""
    extender = extender_on(cluster().nvswitch("a"))
    extender.verbs.fix_workload(None, (DemandClass(0, 8),))
    assert extender.verbs.placement.outlook.target == (DemandClass(0, 8),)
    extender.verbs.reset_workload()
    assert extender.verbs.placement.outlook.target is SEED_TARGET
