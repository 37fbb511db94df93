"""gpushare's plugin guesses the pod from its total and its time: whatever order kubelet admits pods in, each gets the GPU that was chosen for it."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.handoff import gpushare
from extender.handoff.gpushare import Share
from extender.handoff.gpushare_order import PATIENCE_S, Assumed, AssumeOrder, Turn
from tests.builders import Clock
from tests.gpushare_stand_in import ASSIGNED, NO_GPU, JsonObject, PluginStandIn

NOW_NS = 1_700_000_000 * 10**9


def order(clock: Clock | None = None, now_ns: int = NOW_NS) -> AssumeOrder:
    """Return an order whose clocks stand still until a test moves them."""
    return AssumeOrder(clock or Clock(), lambda: now_ns)


FIRST = Assumed("uid-1", "default/first", units=10, index=0)


@pytest.mark.parametrize(
    ("second", "waits"),
    [
        pytest.param(Assumed("uid-2", "default/second", 10, 1), True, id="equal totals, different GPUs"),
        pytest.param(Assumed("uid-2", "default/second", 10, 0), False, id="equal totals, the same GPU: either may have the other's"),
        pytest.param(Assumed("uid-2", "default/second", 11, 1), False, id="different totals tell them apart"),
        pytest.param(Assumed("uid-1", "default/first", 10, 1), False, id="the pod itself, placed again"),
    ],
)
def test_a_pod_waits_where_the_plugin_could_not_tell_it_from_another(second: Assumed, waits: bool):
    """Time alone would tell them apart, and kubelet does not keep it."""
    held = order()
    held.assume("a", FIRST)
    assert bool(held.reason_to_wait("a", second)) is waits
    assert held.reason_to_wait("b", second) == ""


SECOND = Assumed("uid-2", "default/second", 10, 1)


def test_the_error_names_the_other_pod_the_gpus_and_how_long_it_can_last():
    """It ends in an event of the pod."""
    clock = Clock()
    held = order(clock)
    held.assume("a", FIRST)
    clock.now += 4
    assert held.reason_to_wait("a", SECOND) == (
        "pod default/first waits on node a for 10 units of GPU 0, and this one would for as many of GPU 1: "
        "gpushare's device plugin could not tell them apart; try again once that pod has its GPU, or in 6 s"
    )


@pytest.mark.parametrize("end", ["assigned, running or gone", "ten seconds old"])
def test_the_first_pod_holds_the_second_back_until_it_is(end: str):
    """It must not hold it back for ever: perhaps nobody will ever admit it."""
    clock = Clock()
    held = order(clock)
    held.assume("a", FIRST)
    if end == "ten seconds old":
        clock.now += PATIENCE_S
        assert PATIENCE_S == 10
    else:
        held.settle(FIRST.uid)
    assert held.reason_to_wait("a", SECOND) == ""
    assert held.indices_of("a", 10) == frozenset()


@pytest.mark.parametrize(
    ("turns", "waits"),
    [
        pytest.param({FIRST: Turn.ASSIGNED}, False, id="its annotations are used: it has its GPU"),
        pytest.param({FIRST: Turn.RAN}, False, id="it runs"),
        pytest.param({FIRST: Turn.ASSIGNED, Assumed("uid-3", "default/third", 10, 0): Turn.RAN}, True, id="an equal one runs on what was used of it"),
        pytest.param({FIRST: Turn.ASSIGNED, Assumed("uid-3", "default/third", 11, 0): Turn.RAN}, False, id="one of another total runs"),
    ],
)
def test_a_pod_that_is_assigned_may_have_still_to_ask(turns: dict[Assumed, Turn], waits: bool):
    """Its annotations may have gone to an equal pod, which left its own behind when it started."""
    clock = Clock()
    held = order(clock)
    for pod, turn in turns.items():
        held.saw("a", pod, NOW_NS, turn)
    assert bool(held.reason_to_wait("a", SECOND)) is waits
    clock.now += PATIENCE_S
    assert held.reason_to_wait("a", SECOND) == ""


def test_a_pod_that_is_seen_again_and_again_grows_old_all_the_same():
    """Every event of its status shows it; patience counts from the first."""
    clock = Clock()
    held = order(clock)
    for _ in range(10):
        held.saw("a", FIRST, NOW_NS)
        assert held.reason_to_wait("a", SECOND)
        clock.now += PATIENCE_S / 10
    held.saw("a", FIRST, NOW_NS)
    assert held.reason_to_wait("a", SECOND) == ""


def test_a_pod_that_turns_up_on_another_node_holds_nobody_back_on_the_first():
    """A pod of the same UID cannot be on two nodes: the later word counts."""
    held = order()
    held.assume("a", FIRST)
    held.saw("b", FIRST, NOW_NS)
    assert held.reason_to_wait("a", SECOND) == ""
    assert held.reason_to_wait("b", SECOND)


def test_pods_bound_by_another_process_hold_others_back_too():
    """After a restart the pods themselves tell who waits."""
    held = order()
    held.saw("a", FIRST, NOW_NS)
    assert held.reason_to_wait("a", SECOND)
    assert held.indices_of("a", 10) == {0}


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(-(10**12), 10**12), st.booleans()), max_size=30))
def test_times_on_a_node_strictly_increase(steps: list[tuple[str, int, bool]]):
    """However clocks jump, and whatever time the pods of an earlier process carry, within the hour by which clocks may differ."""
    now = NOW_NS
    held = AssumeOrder(Clock(), lambda: now)
    last: dict[str, int] = {}
    for number, (node, step, foreign) in enumerate(steps):
        now = max(NOW_NS, now + step)
        pod = Assumed(f"uid-{number}", "default/pod", 1, 0)
        if foreign:
            seen = min(NOW_NS + abs(step), now + 3600 * 10**9 - 1)
            held.saw(node, pod, seen)
            last[node] = max(last.get(node, 0), seen)
        else:
            given_ns = held.assume(node, pod)
            assert given_ns > last.get(node, 0)
            last[node] = given_ns


def test_a_time_written_by_hand_does_not_push_ours_to_where_the_plugin_cannot_read_them():
    """Anybody may edit annotations of a pod of theirs."""
    held = order()
    held.saw("a", FIRST, gpushare.MOST_NS)
    assert held.assume("a", SECOND) == NOW_NS


def waiting_pod(number: int, units: int) -> JsonObject:
    """Return an unbound pod that asks for units of one GPU."""
    return {
        "metadata": {"uid": f"uid-{number}", "name": f"pod-{number}", "annotations": {}},
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"aliyun.com/gpu-mem": str(units)}}}]},
        "status": {"phase": "Pending"},
    }


def bind_where_the_order_lets(held: AssumeOrder, pod: JsonObject, units: int, index: int) -> bool:
    """Bind a pod to node a with the annotations of the hand-off, unless it has to wait."""
    metadata = pod["metadata"]
    assumed = Assumed(metadata["uid"], f"default/{metadata['name']}", units, index)
    if held.reason_to_wait("a", assumed):
        return False
    metadata["annotations"].update(gpushare.encode(Share(index, units, 60, held.assume("a", assumed))))
    pod["spec"]["nodeName"] = "a"
    return True


@settings(max_examples=50, deadline=None)
@given(st.randoms(use_true_random=False))
def test_fifty_pods_at_once_each_get_their_own_gpu(chance: random.Random):
    """Binds and admissions in any order, few totals on many GPUs: no container ever sees the GPU of another pod."""
    held = order()
    demands = {number: (chance.choice([4, 5, 6]), chance.randrange(8)) for number in range(50)}
    pods = {number: waiting_pod(number, units) for number, (units, _) in demands.items()}

    def patch(pod: JsonObject, annotations: dict[str, str]) -> None:
        pod["metadata"]["annotations"].update(annotations)
        held.settle(pod["metadata"]["uid"])

    plugin = PluginStandIn("a", 8, pods.values, patch)
    unbound = list(pods)
    while unbound or plugin.to_admit():
        if unbound and chance.random() < 0.6:
            number = chance.choice(unbound)
            if bind_where_the_order_lets(held, pods[number], *demands[number]):
                unbound.remove(number)
        elif admissible := plugin.to_admit():
            plugin.admit(chance.choice(admissible))
    assert plugin.visible == {f"uid-{number}": str(index) for number, (_, index) in demands.items()}
    assert {pod["metadata"]["annotations"][ASSIGNED] for pod in pods.values()} == {"true"}


def test_the_stand_in_does_mistake_pods_that_nobody_holds_back():
    """What the order is for: bound at once, admitted in the other order, the two get each other's GPU."""
    pods = [waiting_pod(number, 5) for number in range(2)]
    for index, pod in enumerate(pods):
        pod["metadata"]["annotations"] = gpushare.encode(Share(index, 5, 60, NOW_NS + index))
        pod["spec"]["nodeName"] = "a"
    plugin = PluginStandIn("a", 2, lambda: pods, lambda pod, new: pod["metadata"]["annotations"].update(new))
    assert [plugin.admit(pods[1]), plugin.admit(pods[0])] == ["0", "1"]


@pytest.mark.parametrize(("gpus", "seen"), [(1, "0"), (2, NO_GPU)], ids=["one GPU: it is handed out", "more: the container cannot start"])
def test_the_stand_in_knows_no_pod_of_two_containers(gpus: int, seen: str):
    """Kubelet asks for each container alone, and no pod has that total."""
    pod = waiting_pod(0, 3)
    pod["spec"]["containers"].append({"name": "second", "resources": {"limits": {"aliyun.com/gpu-mem": "4"}}})
    pod["metadata"]["annotations"] = gpushare.encode(Share(0, 7, 60, NOW_NS))
    pod["spec"]["nodeName"] = "a"
    plugin = PluginStandIn("a", gpus, lambda: [pod], lambda each, new: each["metadata"]["annotations"].update(new))
    assert plugin.admit(pod) == seen
