"""Bindings that overlap, repeat and fail, as the public reports tell it, and what holds here."""

import asyncio
import json

from extender.settings import Settings
from extender.verbs import Clocks, Verbs
from tests.builders import NOW, Extender, allocation_of, cluster, extender_on, pod
from tests.invariants.api_server import Answer, ApiServer

BUILT = cluster().nvswitch("a").nvswitch("b")
ASKED = pod("asked").gpus(8)


def given(extender: Extender) -> dict[str, set[str]]:
    """Pod name -> UUIDs, as the ledger has it."""
    return {entry.name: set(entry.uuids) for entry in extender.cluster.ledger}


async def test_forty_pods_for_one_node_at_once():
    """HAMi 1130, 450, 1367: bound as fast as the bindings are taken; a lock of the node makes it 15 to 30 minutes there."""
    extender = extender_on(BUILT)
    pods = [pod(f"p{number}").gpus(1) for number in range(40)]
    for asked in pods:
        assert "a" in extender.filter(asked)["NodeNames"]
    errors = await asyncio.gather(*(extender.bind(asked, "a") for asked in pods))
    assert errors.count("") == 8
    assert extender.free("a") == []
    assert extender.free("b") == list(range(8))


async def test_a_one_gpu_pod_and_a_two_gpu_pod_are_bound_in_the_same_second():
    """HAMi 710, volcano-vgpu-device-plugin 93: no mix-up."""
    extender = extender_on(BUILT)
    one, two = pod("one").gpus(1), pod("two").gpus(2)
    for asked in (one, two):
        extender.filter(asked)
    assert await asyncio.gather(extender.bind(one, "a"), extender.bind(two, "a")) == ["", ""]
    assert {name: len(uuids) for name, uuids in given(extender).items()} == {"one": 1, "two": 2}
    assert not given(extender)["one"] & given(extender)["two"]


async def test_the_bind_succeeded_the_call_timed_out_and_the_scheduler_calls_again():
    """Kubernetes 96579: bound already to that node is success, after a restart of the extender as well."""
    extender = extender_on(BUILT)
    asked = pod("asked").gpus(4)
    await extender.place(asked, "a")
    assert await extender.bind(asked, "a") == ""
    again = extender_on(BUILT)
    for stored in extender.binder.pods():
        again.cluster.apply_pod(stored)
    again.filter(asked)
    assert await again.bind(asked, "a") == ""
    assert "is bound to node a already" in await again.bind(asked, "b")
    assert again.free("a") == extender.free("a")


async def test_two_schedulers_in_parallel_want_the_same_gpus():
    """gpushare-scheduler-extender 232: no double promise."""
    extender = extender_on(BUILT)
    first, second = ([pod(f"{name}-{number}").gpus(3) for number in range(4)] for name in ("first", "second"))
    for asked in (*first, *second):
        extender.filter(asked)
    errors = await asyncio.gather(*(extender.bind(asked, "a") for pair in zip(first, second, strict=True) for asked in pair))
    assert errors.count("") == 2
    held = [uuid for uuids in given(extender).values() for uuid in uuids]
    assert len(held) == len(set(held)) == 6


async def test_two_schedulers_bind_the_same_pod_to_different_nodes():
    extender = extender_on(BUILT)
    asked = pod("asked").gpus(2)
    extender.filter(asked)
    errors = await asyncio.gather(extender.bind(asked, "a"), extender.bind(asked, "b"))
    assert errors == ["", "pod default/asked is bound to node a already, not to b"]


async def test_a_refused_bind_leaves_no_trace():
    """gpu-admission 8: a bind fails half-way and the pod can never be placed again."""
    asked = pod("asked").gpus(8)
    extender = extender_on(BUILT.with_pods(asked.terminating()))
    extender.filter(asked)
    assert "was refused: the pod is being deleted" in await extender.bind(asked, "a")
    assert extender.free("a") == list(range(8))
    assert len(extender.cluster.ledger) == 0
    (stored,) = extender.binder.pods()
    assert "nodeName" not in stored["spec"]
    assert "linkwise.dev/allocation" not in stored["metadata"]["annotations"]
    extender.binder.delete_pod("default", "asked")
    assert len(await extender.place(pod("namesake").gpus(8), "a")) == 8


async def test_a_user_writes_an_allocation_by_hand():
    """HAMi 3076, 3095, 3041: on an unbound pod it is ignored and overwritten."""
    forged = allocation_of("a", {"main": [f"GPU-{number}" for number in range(8)]})
    asked = pod("asked").gpus(1).annotated(allocation=forged)
    extender = extender_on(BUILT.with_pods(asked))
    assert extender.filter(asked)["NodeNames"] == ["a", "b"]
    assert len(await extender.place(asked, "b")) == 1
    (stored,) = extender.binder.pods()
    assert json.loads(stored["metadata"]["annotations"]["linkwise.dev/allocation"])["node"] == "b"


def behind(extender: Extender, *answers: Answer) -> tuple[Verbs, ApiServer]:
    """Verbs over the same state whose bindings go to an API server that gives these answers about the pod `asked`, and the truth afterwards."""
    api = ApiServer(extender.clock, lambda uid, stored: extender.cluster.apply_pod(stored) if stored else extender.cluster.remove_pod(uid))
    api.create(ASKED.build())
    api.answers[ASKED.uid] = list(answers)
    return Verbs(extender.cluster, api, extender.metrics, Settings(), Clocks(extender.clock, lambda: NOW)), api


async def bound(verbs: Verbs, node: str) -> str:
    call = {"PodNamespace": "default", "PodName": "asked", "PodUID": ASKED.uid, "Node": node}
    return str(json.loads(await verbs.bind(json.dumps(call).encode()))["Error"])


async def test_a_promise_ends_where_the_pod_was_bound_by_another_hand():
    """The binding of ours got lost; the pod is on b with an allocation that does not decode, and closes b alone."""
    extender = extender_on(BUILT)
    verbs, api = behind(extender, Answer.LOST)
    assert "got no answer" in await bound(verbs, "a")
    assert extender.free("a") == []
    api.change("asked", spec={"nodeName": "b"}, metadata={"annotations": {"linkwise.dev/allocation": "{"}}, status={"phase": "Running"})
    await verbs.bindings.resolve_open()
    assert extender.free("a") == list(range(8))
    assert extender.filter(pod("next").gpus(1))["NodeNames"] == ["a"]


async def test_several_calls_come_while_the_outcome_of_the_first_is_being_asked_for():
    """The first binding was lost for good; of the calls that all find this out one binds the pod, and the others are told so."""
    extender = extender_on(BUILT)
    verbs, api = behind(extender, Answer.LOST)
    assert "got no answer" in await bound(verbs, "a")
    extender.clock.now += 10
    nodes = ("a", "b", "a")
    errors = await asyncio.gather(*(bound(verbs, node) for node in nodes))
    won = api.bound_to[ASKED.uid]
    assert errors == ["" if node == won else f"pod default/asked is bound to node {won} already, not to {node}" for node in nodes]
    assert len(api.posts) == 2
