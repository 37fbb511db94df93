"""NVLinks and PCIe switches that the driver does not let GPUs use: floors, distances and choices go by what they can use, and people are told why."""

import json
from itertools import combinations
from typing import Any

import pytest

from extender.explain import text, to_object
from tests.builders import Extender, PodBuilder, changed, cluster, extender_on, pod

ALL_PAIRS = tuple(combinations(range(8), 2))
BRIDGED = ((0, 2), (1, 3), (4, 5), (6, 7))  # the pairs of the machine that have a bridge


def kept_apart(kind: str, *pairs: tuple[int, int]) -> Extender:
    """Return an extender over two machines of a kind, one as it was built and one ("apart") whose driver keeps these GPUs apart."""
    built = cluster().machine(kind, "whole", "apart")
    extender = extender_on(built)
    extender.cluster.apply_topology(changed(built.topologies[1], kept_apart=pairs))
    return extender


def explained(extender: Extender, asked: PodBuilder) -> list[str]:
    return text(to_object(extender.verbs.evaluate(asked.build()), extender.verbs.placement)).splitlines()


@pytest.mark.parametrize(
    ("kind", "pairs", "asked", "told"),
    [
        pytest.param(
            "bridges",
            BRIDGED,
            pod().gpus(2).min_bandwidth(100),
            "8 of 8 GPUs free, best pair 18 GB/s over SYS (some without peer access), 100 asked",
            id="no bridge can be used",
        ),
        pytest.param(
            "bridges",
            ALL_PAIRS,
            pod().gpus(2).min_bandwidth(100),
            "8 of 8 GPUs free, best pair 18 GB/s over SYS (some without peer access), 100 asked",
            id="no two GPUs may talk",
        ),
        pytest.param(
            "nvswitch",
            ((0, 1), (2, 3), (4, 5), (6, 7)),
            pod().gpus(8).min_bandwidth(451),
            "8 of 8 GPUs free, best set of 8 450 GB/s over SYS (some without peer access), 451 asked",
            id="pairs behind NVSwitch: never more than a GPU has",
        ),
        pytest.param(
            "pcie",
            ALL_PAIRS,
            pod().gpus(2).max_distance("PIX"),
            "8 of 8 GPUs free, best pair 18 GB/s over SYS (some without peer access), but none within max-distance PIX",
            id="a switch that may not be used is no near link",
        ),
    ],
)
def test_what_may_not_be_used_meets_no_floor_and_no_distance(kind: str, pairs: tuple[tuple[int, int], ...], asked: PodBuilder, told: str):
    extender = kept_apart(kind, *pairs)
    answer = extender.filter(asked)
    assert set(answer["FailedAndUnresolvableNodes"]) == {"apart", *(["whole"] if "451" in told else [])}
    assert f"  apart: {told}" in explained(extender, asked)


def test_the_whole_machine_is_better():
    assert kept_apart("bridges", *BRIDGED).prioritize(pod().gpus(2)) == {"whole": 10, "apart": 0}


async def test_a_pod_gets_what_is_promised_and_reads_why():
    """The bandwidth in the allocation is that through the host."""
    extender = kept_apart("pcie", *ALL_PAIRS)
    asked = pod("asked").gpus(2)
    assert "pair of 18 GB/s over SYS (some without peer access)" in next(line for line in explained(extender, asked) if "apart:" in line)
    await extender.place(asked, "apart")
    stored = await extender.binder.read_pod("default", "asked")
    assert stored is not None
    allocation: dict[str, Any] = json.loads(stored["metadata"]["annotations"]["linkwise.dev/allocation"])
    assert (round(allocation["bandwidthGBps"]), allocation["worstLink"]) == (18, "SYS")


async def test_of_the_free_pairs_one_that_may_talk_is_taken():
    extender = kept_apart("bridges", (0, 2), (1, 3))
    assert await extender.place(pod("asked").gpus(2), "apart") in ([4, 5], [6, 7])


def test_gpus_that_may_not_talk_are_on_one_numa_node_all_the_same():
    asked = pod().gpus(2).annotated(numa="single")
    assert kept_apart("pcie", *ALL_PAIRS).filter(asked)["NodeNames"] == ["whole", "apart"]


def test_peer_access_that_comes_back_counts_at_once():
    built = cluster().bridges("node")
    extender = extender_on(built)
    asked = pod().gpus(2).min_bandwidth(100)
    extender.cluster.apply_topology(changed(built.topologies[0], kept_apart=BRIDGED))
    assert extender.filter(asked)["NodeNames"] == []
    extender.cluster.apply_topology(built.topologies[0])
    assert extender.filter(asked)["NodeNames"] == ["node"]
