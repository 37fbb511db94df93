"""The GPU containers of a pod in the order in which kubelet starts them, and what runs at once of what they use; a bad amount is told by place, value and form."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.containers import ContainerKind, GpuContainer, container_kinds, effective, gpu_containers
from tests.builders import JsonObject, PodBuilder, pod
from tests.strategies import json_objects, odd_pods
from topology.api import annotations as keys
from topology.errors import DemandError

GPU, MEMORY = "nvidia.com/gpu", keys.GPU_MEMORY
APP, SIDECAR, INIT = ContainerKind.APP, ContainerKind.SIDECAR, ContainerKind.INIT


def read(raw: JsonObject) -> list[GpuContainer]:
    return list(gpu_containers(raw, GPU))


def asking(**resources: object) -> JsonObject:
    return {"spec": {"containers": [{"name": "main", "resources": resources}]}}


def refused(raw: JsonObject) -> str:
    with pytest.raises(DemandError) as caught:
        read(raw)
    return str(caught.value)


# --- what is asked --------------------------------------------------------------------------------------------------


def test_containers_come_in_the_order_in_which_kubelet_starts_them():
    asked = pod().shared(10, "serve").gpus(2, "train").plain().init_shared(4, "fetch").sidecar(1, "proxy").init(1, "warm")
    assert read(asked.build()) == [
        GpuContainer("fetch", INIT, 0, 4),
        GpuContainer("proxy", SIDECAR, 1, 0),
        GpuContainer("warm", INIT, 1, 0),
        GpuContainer("serve", APP, 0, 10),
        GpuContainer("train", APP, 2, 0),
    ]


@pytest.mark.parametrize("field", ["requests", "limits"])
@pytest.mark.parametrize(("quantity", "gib"), [("1", 1), (10, 10), ("65536", 65_536), ("10.0", 10), ("10000m", 10), ("1k", 1000)])
def test_gpu_memory_is_a_whole_number_of_gib(field: str, quantity: object, gib: int):
    assert read(asking(**{field: {MEMORY: quantity}})) == [GpuContainer("main", APP, 0, gib)]


def test_no_whole_gpu_beside_memory_is_nothing_said():
    """A template may say nvidia.com/gpu: 0."""
    assert read(asking(limits={GPU: "0", MEMORY: "8"})) == [GpuContainer("main", APP, 0, 8)]


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        pytest.param(
            asking(limits={MEMORY: "0"}),
            "spec.containers[0] asks for linkwise.dev/gpu-memory=0; accepted: a whole number of GiB from 1 to 65536, or nothing at all",
            id="no memory",
        ),
        *(
            pytest.param(
                asking(limits={MEMORY: value}),
                f"spec.containers[0].resources.limits[linkwise.dev/gpu-memory] is {value}; accepted: a whole number of GiB from 1 to 65536",
                id=f"memory {what}",
            )
            for value, what in [
                ("65537", "beyond any GPU"),
                ("-1", "below nothing"),
                ("1.5", "in halves"),
                ("10Gi", "in bytes, as memory is written elsewhere"),
                ("1500m", "in thousandths"),
                ("ten", "in words"),
                ("", "empty"),
                (True, "as a boolean"),
                (None, "as null"),
            ]
        ),
        pytest.param(
            asking(requests={MEMORY: "8"}, limits={MEMORY: "16"}),
            "spec.containers[0] requests 8 linkwise.dev/gpu-memory but limits it to 16; accepted: the same number in both",
            id="requests that differ from limits",
        ),
        pytest.param(
            asking(limits={GPU: "1", MEMORY: "8"}),
            "spec.containers[0] asks for nvidia.com/gpu=1 and linkwise.dev/gpu-memory=8; accepted: one of them, as a GPU is a container's own or shared",
            id="whole GPUs and memory in one container",
        ),
        pytest.param(
            pod().gpus(1, "a").shared(4, "a").build(),
            "spec.containers[1].name of the pod is a; accepted: a name that no other container has",
            id="two GPU containers of one name",
        ),
        pytest.param(
            pod().init_shared(0).gpus(1).build(),
            "spec.initContainers[0] asks for linkwise.dev/gpu-memory=0; accepted: a whole number of GiB from 1 to 65536, or nothing at all",
            id="an init container of no memory",
        ),
    ],
)
def test_an_amount_that_cannot_be_is_refused_by_place_value_and_accepted_form(raw: JsonObject, sentence: str):
    assert refused(raw) == sentence


@pytest.mark.parametrize("kind", ["gpus", "init", "init_shared", "shared"])
def test_a_pod_of_more_containers_with_gpus_than_can_be_planned_is_refused(kind: str):
    """Plans are made of containers one by one: thousands of them ran the search out of stack."""
    asked = pod()
    for number in range(65):
        asked = getattr(asked, kind)(1, container=f"c{number}")
    field = "initContainers" if kind.startswith("init") else "containers"
    assert refused(asked.build()) == f"spec.{field}[64] is one more container with GPUs than is accepted: at most 64 of a pod"
    assert len(read(asked.plain().build() | {"spec": {field: asked.build()["spec"][field][:64]}})) == 64


# --- when it runs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "kinds"),
    [
        pytest.param(pod().plain("log").shared(4, "serve"), {"log": APP, "serve": APP}, id="containers without GPUs too"),
        pytest.param(pod().gpus(1).sidecar(1).init(1), {"sidecar": SIDECAR, "init": INIT, "main": APP}, id="init containers stand first"),
        pytest.param(pod(), {}, id="no containers"),
    ],
)
def test_every_container_has_its_kind_by_name(asked: PodBuilder, kinds: dict[str, ContainerKind]):
    assert list(container_kinds(asked.build()).items()) == list(kinds.items())


@given(odd_pods | json_objects)
def test_no_pod_spec_crashes_the_reader_of_kinds(raw: dict[str, Any]):
    """HAMi 212, volcano PR 4633: odd container lists crash the parser."""
    assert all(isinstance(name, str) for name in container_kinds(raw))


# --- what runs at once ----------------------------------------------------------------------------------------------

things = st.sampled_from("xyz")
amounts = st.lists(st.tuples(things, st.integers(0, 5)), max_size=4)
starting = st.lists(st.tuples(st.sampled_from([INIT, SIDECAR]), amounts), max_size=4)
apps = st.lists(st.tuples(st.just(APP), amounts), max_size=3)
Parts = list[tuple[ContainerKind, list[tuple[str, int]]]]


def most_in_use(parts: Parts, thing: str) -> int:
    """Replay the start of the pod: return the most of a thing in use at any moment."""
    in_use = most = 0
    for kind, used in parts:
        own = sum(amount for what, amount in used if what == thing)
        most = max(most, in_use + own)
        in_use += 0 if kind is INIT else own
    return most


@given(starting, apps)
def test_the_effective_amount_of_each_thing_is_the_most_that_is_ever_in_use(before: Parts, after: Parts):
    """Kubernetes' own rule, for each GPU by itself; a container may name a thing twice."""
    parts = [*before, *after]
    found = effective(parts)
    assert {thing: found.get(thing, 0) for thing in "xyz"} == {thing: most_in_use(parts, thing) for thing in "xyz"}
