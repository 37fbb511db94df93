"""The native hand-off is a round trip: what is encoded into the Binding is what a restarted extender, and the agent, read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.handoff import native
from tests.strategies import json_values
from topology.api import AllocatedGpu, Allocation
from topology.errors import AllocationError

KEY = "linkwise.dev/allocation"

gpus = st.builds(
    AllocatedGpu, uuid=st.text(min_size=1, max_size=12), index=st.none() | st.integers(0, 15), memory_mib=st.none() | st.integers(0, 200_000)
)
allocations = st.builds(
    Allocation,
    node=st.text(min_size=1, max_size=12),
    containers=st.dictionaries(st.text(max_size=8), st.lists(gpus, max_size=4).map(tuple), max_size=3),
    bandwidth_gb_per_s=st.none() | st.floats(0, 1000),
    worst_link=st.none() | st.sampled_from(["NV18", "SYS"]),
)


@given(allocations)
def test_everything_counted_survives_write_restart_read(allocation: Allocation):
    """HAMi 2876, 1330: a counted field is missing in what is written, so a restart undercounts."""
    annotations = native.encode(allocation)
    assert list(annotations) == [KEY]
    assert native.decode(annotations[KEY]) == allocation


def test_the_annotation_is_the_one_of_the_contract():
    allocation = Allocation(
        node="node-7",
        containers={"train": (AllocatedGpu(uuid="GPU-1", index=3, memory_mib=81920),)},
        bandwidth_gb_per_s=150.0,
        worst_link="NV1",
    )
    assert json.loads(native.encode(allocation)[KEY]) == {
        "v": 1,
        "node": "node-7",
        "containers": {"train": [{"uuid": "GPU-1", "index": 3, "memoryMiB": 81920}]},
        "bandwidthGBps": 150.0,
        "worstLink": "NV1",
    }


def test_fields_of_a_later_version_are_skipped_so_that_a_rollback_closes_no_node():
    later = {"v": 1, "node": "a", "containers": {"c": [{"uuid": "GPU-1", "slot": 2}]}, "shares": [1]}
    assert native.decode(json.dumps(later)).uuids() == {"GPU-1"}


@given(st.text() | json_values | json_values.map(json.dumps))
def test_anything_else_is_told_by_the_name_of_the_annotation(value: object):
    try:
        found = native.decode(value)
    except AllocationError as error:
        assert str(error).startswith(KEY)  # noqa: PT017 - either ending is right
    else:
        assert isinstance(found, Allocation)


@pytest.mark.parametrize("value", ["", "{}", "null", '{"v":2,"node":"a","containers":{}}', '{"v":1,"node":"","containers":{}}', None, 7])
def test_what_says_nothing_about_gpus_does_not_decode(value: object):
    with pytest.raises(AllocationError, match=KEY):
        native.decode(value)
