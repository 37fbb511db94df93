"""Pods of several containers, as the public reports tell it: each gets its own part of the set, under its own name."""

import json

import pytest

from tests.builders import PodBuilder, cluster, extender_on, pod

BUILT = cluster().bridges("node")


async def given(asked: PodBuilder) -> dict[str, list[int]]:
    """Bind the pod; GPUs of each container by the index that nvidia-smi shows."""
    extender = extender_on(BUILT)
    await extender.place(asked, "node")
    (stored,) = extender.binder.pods()
    written = json.loads(stored["metadata"]["annotations"]["linkwise.dev/allocation"])["containers"]
    return {name: sorted(gpu["index"] for gpu in gpus) for name, gpus in written.items()}


async def test_two_gpu_containers_in_one_pod_get_each_its_own_part():
    """gpushare-scheduler-extender 143, 219, 48. Bridges lead from 0 to 2 and from 1 to 3."""
    assert await given(pod().gpus(2, "train").gpus(2, "eval")) == {"train": [0, 2], "eval": [1, 3]}


async def test_a_floor_holds_within_each_container():
    parts = await given(pod().gpus(2, "train").gpus(2, "eval").gpus(1, "log").min_bandwidth(300))
    assert [parts["train"], parts["eval"]] == [[0, 2], [1, 3]]
    assert len(parts["log"]) == 1


async def test_init_containers_without_gpus_stand_before_gpu_containers():
    """HAMi 991, 2899: parts are keyed by container name, never by position."""
    asked = pod().plain("sidekick").gpus(2, "train").plain("logger").gpus(1, "serve")
    with_init = PodBuilder(asked.name, containers=asked.containers, init_containers=({"name": "fetch"}, {"name": "unpack"}))
    assert list(await given(with_init)) == ["train", "serve"]


async def test_an_init_container_uses_the_gpus_of_the_containers_after_it():
    """Kubernetes' own rule for effective requests: what runs one after the other is not added up."""
    parts = await given(pod().init(2, "warm-up").gpus(2, "train"))
    assert parts["warm-up"] == parts["train"] == [0, 2]


async def test_a_sidecar_runs_beside_all_others_and_shares_nothing():
    parts = await given(pod().sidecar(1, "proxy").init(2, "warm-up").gpus(2, "train"))
    assert not set(parts["proxy"]) & set(parts["train"])
    assert not set(parts["proxy"]) & set(parts["warm-up"])


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        pytest.param(pod().gpus(4, "a").gpus(4, "b"), True, id="two fours fill the node"),
        pytest.param(pod().gpus(4, "a").gpus(5, "b"), False, id="four and five are nine"),
        pytest.param(pod().init(8).gpus(4), True, id="an init container of eight before four"),
        pytest.param(pod().init(9).gpus(1), False, id="an init container of nine"),
        pytest.param(pod().sidecar(4).init(5).gpus(1), False, id="a sidecar of four beside an init container of five"),
        pytest.param(pod().init(8).sidecar(4).gpus(4), True, id="an init container of eight before the sidecar starts"),
    ],
)
def test_what_runs_together_is_added_up_and_what_runs_alone_is_not(asked: PodBuilder, fits: bool):
    assert extender_on(BUILT).filter(asked)["NodeNames"] == (["node"] if fits else [])


# --- parts of GPUs --------------------------------------------------------------------------------------------------


async def parts(asked: PodBuilder) -> dict[str, list[tuple[int, int]]]:
    """Bind the pod; (index, GiB) of each container's GPUs."""
    extender = extender_on(BUILT)
    await extender.place(asked, "node")
    (stored,) = extender.binder.pods()
    written = json.loads(stored["metadata"]["annotations"]["linkwise.dev/allocation"])["containers"]
    return {name: sorted((gpu["index"], gpu["memoryMiB"] // 1024) for gpu in gpus) for name, gpus in written.items()}


async def test_two_containers_with_parts_in_one_pod_get_each_its_own():
    """gpushare-scheduler-extender 143, 219, 48: of one GPU where there is room, of two where there is not."""
    assert await parts(pod().shared(30, "train").shared(20, "eval")) == {"train": [(0, 30)], "eval": [(0, 20)]}
    apart = await parts(pod().shared(50, "train").shared(40, "eval"))
    assert apart == {"train": [(0, 50)], "eval": [(2, 40)]}, "and then of one bridged pair, not of two"


async def test_init_containers_without_gpus_stand_before_containers_with_parts():
    """HAMi 991, 2899: parts are keyed by container name, never by position."""
    asked = pod().plain("sidekick").shared(10, "train").plain("logger").gpus(1, "serve")
    with_init = PodBuilder(asked.name, containers=asked.containers, init_containers=({"name": "fetch"}, {"name": "unpack"}))
    given_to = await parts(with_init)
    assert {name: [gib for _, gib in gpus] for name, gpus in given_to.items()} == {"train": [10], "serve": [80]}


async def test_an_init_container_with_a_part_uses_the_gpu_of_the_container_after_it():
    """What runs one after the other is not added up, and the larger of the two is charged all the pod's life."""
    extender = extender_on(BUILT)
    await extender.place(pod("p").init_shared(50, "warm-up").shared(40, "serve"), "node")
    view = extender.cluster.view()
    assert sorted(view.left[0].tolist())[8:] == [30 * 1024, *[80 * 1024] * 7]


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        pytest.param(pod().shared(80, "a").shared(80, "b").gpus(6, "c"), True, id="two of 80 GiB beside six whole GPUs"),
        pytest.param(pod().shared(80, "a").shared(1, "b").gpus(7, "c"), False, id="one of 80 and one of 1 beside seven whole GPUs"),
        pytest.param(pod().shared(50, "a").shared(30, "b").gpus(7, "c"), True, id="50 and 30 share the eighth"),
        pytest.param(pod().init_shared(80).shared(80).gpus(7, "c"), True, id="one after the other on the eighth"),
        pytest.param(pod().sidecar_shared(1).init_shared(80).shared(79).gpus(7, "c"), False, id="an init container of 80 beside a sidecar of 1"),
        pytest.param(pod().init_shared(80).sidecar_shared(1).shared(79).gpus(7, "c"), True, id="before the sidecar starts"),
        pytest.param(pod().init(1).shared(80).gpus(7, "c"), True, id="an init container's whole GPU is one of the seven"),
        pytest.param(pod().init(8).shared(1), False, id="eight whole ones before a part: no GPU is both"),
        pytest.param(pod().shared(640).annotated(gpu_count="8"), True, id="all memory of all GPUs"),
        pytest.param(pod().shared(640, "a").shared(8, "b").annotated(gpu_count="8"), False, id="and a GiB of each more"),
    ],
)
def test_what_runs_together_is_added_up_on_each_gpu_and_what_runs_alone_is_not(asked: PodBuilder, fits: bool):
    assert extender_on(BUILT).filter(asked)["NodeNames"] == (["node"] if fits else [])


def test_the_index_differs_from_boot_to_boot():
    """gpushare-scheduler-extender 220: keys are UUIDs; an index in an allocation is what was shown once, and means nothing."""
    uuids = BUILT.uuids("node")
    holder = pod("holder").gpus(1)
    text = json.dumps({"v": 1, "node": "node", "containers": {"main": [{"uuid": uuids[6], "index": 0}]}})
    assert extender_on(BUILT.with_pods(holder.bound_to("node", text))).free("node") == [0, 1, 2, 3, 4, 5, 7]
