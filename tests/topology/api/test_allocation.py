"""The allocation survives being written and read, and nothing else passes for one."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.api.allocation import AllocatedGpu, Allocation
from topology.errors import AllocationError

# What an annotation can hold: Kubernetes keeps UTF-8, so no lone surrogates.
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
_SHOWN = {"uuid": TEXT.filter(bool), "index": st.none() | st.integers(0, 2**31)}
GPUS = st.builds(AllocatedGpu, **_SHOWN, memory_mib=st.none() | st.integers(0, 2**40)) | st.builds(
    AllocatedGpu, **_SHOWN, memory_mib=st.integers(1, 2**40), shared=st.just(True), cores_percent=st.none() | st.integers(1, 100)
)
ALLOCATIONS = st.builds(
    Allocation,
    node=TEXT.filter(bool),
    containers=st.dictionaries(TEXT, st.lists(GPUS, max_size=4).map(tuple), max_size=3),
    bandwidth_gb_per_s=st.none() | st.floats(0, 1e6),
    worst_link=st.none() | st.sampled_from(["NV1", "NV18", "PIX", "SYS"]),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.sampled_from(list(Allocation.model_fields)), inner, max_size=5),
    max_leaves=20,
)


@given(ALLOCATIONS)
def test_decode_undoes_encode(allocation: Allocation) -> None:
    assert Allocation.decode(allocation.encode()) == allocation


def test_the_written_form_is_the_contract() -> None:
    allocation = Allocation(
        node="node-a", containers={"train": (AllocatedGpu(uuid="GPU-1", index=3, memory_mib=81920),)}, bandwidth_gb_per_s=150.0, worst_link="NV1"
    )
    assert json.loads(allocation.encode()) == {
        "v": 1,
        "node": "node-a",
        "containers": {"train": [{"uuid": "GPU-1", "index": 3, "memoryMiB": 81920}]},
        "bandwidthGBps": 150.0,
        "worstLink": "NV1",
    }


def test_the_written_form_of_a_part_is_the_contract() -> None:
    allocation = Allocation(
        node="node-a",
        containers={
            "serve": (AllocatedGpu(uuid="GPU-1", index=3, memory_mib=10_240, shared=True, cores_percent=30),),
            "train": (AllocatedGpu(uuid="GPU-2"),),
        },
    )
    assert json.loads(allocation.encode())["containers"] == {
        "serve": [{"uuid": "GPU-1", "index": 3, "memoryMiB": 10_240, "shared": True, "coresPercent": 30}],
        "train": [{"uuid": "GPU-2"}],
    }


@pytest.mark.parametrize(
    ("gpu", "mib"),
    [
        pytest.param('{"uuid":"G","memoryMiB":10240,"shared":true}', 10_240, id="a part is so many MiB"),
        pytest.param('{"uuid":"G","memoryMiB":81920}', 0, id="all of a GPU, whatever its size"),
        pytest.param('{"uuid":"G"}', 0, id="of unknown size too"),
        pytest.param('{"uuid":"G","memoryMiB":81920,"shared":false}', 0, id="said to be its own"),
    ],
)
def test_a_gpu_is_shared_where_it_says_so_and_nowhere_else(gpu: str, mib: int) -> None:
    (read,) = Allocation.decode(f'{{"v":1,"node":"a","containers":{{"c":[{gpu}]}}}}').containers["c"]
    assert read.share_mib == mib


def test_a_version_without_parts_reads_a_shared_gpu_as_held_whole() -> None:
    """Nothing is given twice after a rollback: it skips what it does not know, and holds every UUID."""
    text = Allocation(node="a", containers={"c": (AllocatedGpu(uuid="GPU-1", memory_mib=10, shared=True),)}).encode()
    assert json.loads(text)["v"] == 1
    assert Allocation.decode(text.replace('"shared"', '"unknown"')).containers["c"][0].share_mib == 0


def test_fields_of_a_newer_version_are_skipped() -> None:
    text = '{"v":1,"node":"a","new":{"x":1},"containers":{"c":[{"uuid":"GPU-1","slot":2}]}}'
    assert Allocation.decode(text).uuids() == {"GPU-1"}


def test_uuids_are_those_of_all_containers() -> None:
    text = '{"v":1,"node":"a","containers":{"c":[{"uuid":"GPU-1"},{"uuid":"GPU-2"}],"d":[{"uuid":"GPU-3"}],"e":[]}}'
    assert Allocation.decode(text).uuids() == {"GPU-1", "GPU-2", "GPU-3"}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        pytest.param(None, "is a NoneType; accepted: a string", id="no string"),
        pytest.param(b"{}", "is a bytes; accepted: a string", id="bytes"),
        pytest.param("", "is not JSON", id="empty"),
        pytest.param("{", "is not JSON", id="cut off"),
        pytest.param("GPU-1,GPU-2", "is not JSON", id="a list as other systems write it"),
        pytest.param("[]", "Input should be", id="no object"),
        pytest.param('{"v":2,"node":"a","containers":{}}', "v: Input should be 1", id="another version"),
        pytest.param('{"v":1,"containers":{}}', "node: Field required", id="no node"),
        pytest.param('{"v":1,"node":"","containers":{}}', "node: String should have at least 1 character", id="an empty node"),
        pytest.param('{"v":1,"node":"a"}', "containers: Field required", id="no containers"),
        pytest.param('{"v":1,"node":"a","containers":{"c":[{"index":0}]}}', r"containers\.c\.0\.uuid: Field required", id="a GPU without UUID"),
        pytest.param('{"v":1,"node":"a","containers":{"c":[{"uuid":"G","memoryMiB":-1}]}}', "greater than or equal to 0", id="memory below zero"),
        *(
            pytest.param(f'{{"v":1,"node":"a","containers":{{"c":[{{"uuid":"G",{fields}}}]}}}}', f"containers\\.c\\.0.*{said}", id=what)
            for fields, said, what in [
                ('"shared":true', "a shared GPU needs memoryMiB above 0", "a part of no size"),
                ('"shared":true,"memoryMiB":0', "a shared GPU needs memoryMiB above 0", "a part of nothing"),
                ('"shared":true,"memoryMiB":-5', "greater than or equal to 0", "a part below nothing"),
                ('"shared":true,"memoryMiB":"much"', "valid integer", "a part in words"),
                ('"shared":7,"memoryMiB":5', "valid boolean", "shared as a number"),
                ('"coresPercent":0', "greater than or equal to 1", "no percent of the compute"),
                ('"coresPercent":101', "less than or equal to 100", "more than all of the compute"),
            ]
        ),
        pytest.param('{"v":1,"node":"a","containers":{"c":3}}', r"containers\.c", id="a number in place of GPUs"),
        pytest.param("[" * 100_000, "is not JSON", id="nested without end"),
    ],
)
def test_anything_else_is_refused_with_a_sentence(value: object, said: str) -> None:
    with pytest.raises(AllocationError, match=f"linkwise.dev/allocation.*{said}") as caught:
        Allocation.decode(value)
    assert "accepted:" in str(caught.value)
    assert len(str(caught.value)) < 800


@given(st.text() | JSON.map(json.dumps) | JSON)
def test_no_value_crashes_decode(value: object) -> None:
    try:
        read = Allocation.decode(value)
    except AllocationError:
        return
    assert read.node, "only a whole allocation is read"


@given(ALLOCATIONS, st.data())
def test_damage_is_refused_or_read_but_never_a_crash(allocation: Allocation, data: st.DataObject) -> None:
    raw = orjson.loads(allocation.encode())
    raw[data.draw(st.sampled_from([*raw, "v", "containers"]))] = data.draw(JSON)
    try:
        Allocation.decode(json.dumps(raw))
    except AllocationError as error:
        assert "linkwise.dev/allocation" in str(error)  # noqa: PT017  # one of two outcomes, both right
