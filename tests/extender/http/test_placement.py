"""Which GPUs a pod gets, over HTTP, on machines that the probe saw."""

from itertools import combinations, product

import pytest

from tests.builders import pod
from tests.extender.http.conftest import Serve
from tests.extender.http.served import FIVE_KINDS, MACHINES, Served

ONE, TWO = pod("one").gpus(1), pod("two").gpus(2)
LINKED = tuple(kind for kind in FIVE_KINDS if kind != "pcie")


def links(served: Served, node: str) -> dict[tuple[int, int], str]:
    """Code of every two GPUs by index, as the agent published them."""
    rows = served.documents[node]["spec"]["links"]["gpus"]
    return {(a, b): rows[a][b] for a, b in combinations(range(len(rows)), 2)}


def nvlinks(code: str) -> int:
    return int(code.removeprefix("NV")) if code.startswith("NV") else 0


@pytest.mark.parametrize("kind", LINKED)
def test_a_two_gpu_pod_gets_a_pair_with_the_most_nvlinks_although_lower_numbered_gpus_are_free(extender: Serve, kind: str):
    served = extender(node=kind)
    found = links(served, "node")
    assert served.scheduler.place(TWO) == "node"
    pair = tuple(served.indices(TWO))
    assert nvlinks(found[pair]) == max(map(nvlinks, found.values())) > 0
    assert served.allocations()["two"]["worstLink"] == found[pair]
    if len(set(found.values())) > 1:
        assert pair != (0, 1), "the two lowest numbers share fewer links"


def test_without_nvlink_a_two_gpu_pod_gets_a_pair_behind_one_pcie_switch(extender: Serve):
    served = extender(node="pcie")
    served.scheduler.place(ONE)
    served.scheduler.place(TWO)
    assert links(served, "node")[tuple(served.indices(TWO))] == "PIX"


@pytest.mark.parametrize(
    ("kind", "taken", "pair"),
    [
        pytest.param("bridges", [0], (1, 3), id="bridges 0-2, 1-3, 4-5, 6-7 of which 0 is taken"),
        pytest.param("bridges", [0, 1, 2, 3], (4, 5), id="the lower half is taken"),
        pytest.param("bridges", [2, 3, 5], (6, 7), id="one bridge is left, three lower GPUs are free"),
        pytest.param("half-bridged", [], (0, 1), id="one bridged pair and one pair without a bridge"),
    ],
)
def test_bridged_pairs_are_given_to_two_gpu_pods(extender: Serve, kind: str, taken: list[int], pair: tuple[int, int]):
    """k8s-device-plugin 546, 436."""
    uuids = MACHINES[kind].uuids("node")
    served = extender(node=kind, pods=[pod(f"holder-{index}").holding("node", uuids[index]) for index in taken])
    served.scheduler.place(TWO)
    assert tuple(served.indices(TWO)) == pair
    assert served.allocations()["two"]["bandwidthGBps"] == 300.0


def test_one_gpu_pods_leave_bridged_pairs_whole(extender: Serve):
    served = extender(node="bridges")
    whole = {frozenset(pair) for pair, code in links(served, "node").items() if nvlinks(code)}
    taken: set[int] = set()
    for count in range(1, 9):
        single = pod(f"single-{count}").gpus(1)
        served.scheduler.place(single)
        taken |= set(served.indices(single))
        assert sum(not pair & taken for pair in whole) == (8 - count) // 2


def test_one_gpu_pods_leave_a_quad_whole(extender: Serve):
    served = extender(node="dgx1v")
    for count in range(4):
        served.scheduler.place(pod(f"single-{count}").gpus(1))
    four = pod("four").gpus(4).max_distance("NVLINK")
    assert served.scheduler.place(four) == "node"
    assert all(nvlinks(links(served, "node")[pair]) for pair in combinations(served.indices(four), 2))


def test_one_gpu_pods_go_where_they_break_nothing(extender: Serve):
    """Two nodes with bridges: on one of them a pair is broken already."""
    served = extender(a="bridges", b="bridges", pods=[pod("holder").holding("b", MACHINES["bridges"].uuids("b")[4])])
    assert served.scheduler.place(ONE) == "b"
    assert served.indices(ONE) == [5]


def test_exactly_one_node_scores_ten(extender: Serve):
    served = extender()
    for wish, gpus in product(({}, {"topology": "none"}, {"policy": "spread"}, {"gpu_model": "*A100*"}), (1, 2, 3, 4, 8)):
        asked = pod(f"asking-{gpus}").gpus(gpus).annotated(**wish)
        fitting = served.scheduler.filter(asked)["NodeNames"]
        scores = served.scheduler.prioritize(asked)
        assert [score for score in scores.values() if score == 10] == [10]
        assert all(0 <= score <= 10 for score in scores.values())
        assert {node for node, score in scores.items() if score} <= set(fitting)


def test_a_floor_that_no_node_meets_is_refused_with_its_numbers(extender: Serve):
    served = extender()
    asked = pod("greedy").gpus(2).min_bandwidth(900)
    answer = served.scheduler.filter(asked)
    assert answer["NodeNames"] == []
    assert answer["FailedNodes"] == {}
    assert answer["FailedAndUnresolvableNodes"] == {
        "nvswitch": "linkwise: best pair 450 GB/s over NV18, min-bandwidth 900 asked",
        "dgx1v": "linkwise: best pair 50 GB/s over NV2, min-bandwidth 900 asked",
        "bridges": "linkwise: best pair 300 GB/s over NV12, min-bandwidth 900 asked",
        "pcie": "linkwise: best pair 27 GB/s over PIX, min-bandwidth 900 asked",
        "mesh": "linkwise: best pair 100 GB/s over NV4, min-bandwidth 900 asked",
    }
    told = {node["node"]: node["reason"] for node in served.scheduler.get("/api/v1/pods/default/greedy/decision")["nodes"]}
    assert told["dgx1v"] == "8 of 8 GPUs free, best pair 50 GB/s over NV2, 900 asked"
    assert served.scheduler.place(asked) is None
    assert served.bindings() == []


def test_a_pod_must_stay_inside_one_nvlink_domain(extender: Serve):
    """dra-driver 214, 174: a hard demand, refused elsewhere with a clear reason."""
    served = extender()
    asked = pod("domain").gpus(4).max_distance("NVLINK")
    refused = served.scheduler.filter(asked)["FailedAndUnresolvableNodes"]
    assert refused == dict.fromkeys(["bridges", "pcie"], "linkwise: no free set of 4 within max-distance NVLINK")
    assert served.scheduler.place(asked) == "nvswitch"


def test_gpus_that_are_free_here_and_there_are_no_place_for_a_pod(extender: Serve):
    """kueue 4329: feasibility is per node and per set, never a sum."""
    served = extender(a="mesh", b="mesh")
    for node in ("a", "b"):
        served.scheduler.filter(pod(f"most-of-{node}").gpus(3))
        assert served.scheduler.bind(pod(f"most-of-{node}").gpus(3), node) == ""
    assert served.free() == {"a": 1, "b": 1}
    assert served.scheduler.place(TWO) is None
    assert served.scheduler.place(ONE) in {"a", "b"}
