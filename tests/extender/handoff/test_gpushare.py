"""The hand-off to gpushare's plugin: a round trip, and a sentence for everything that says nothing about a GPU."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from extender.handoff import gpushare
from extender.handoff.gpushare import MOST_MINOR, MOST_NS, MOST_UNITS, PluginGpus, Share
from tests.strategies import json_objects, json_values
from topology.api import annotations as keys
from topology.errors import AllocationError, InputError, TopologyError
from topology.inventory import Gpu


@st.composite
def shares(draw: st.DrawFn) -> Share:
    """Every share that a pod can have."""
    gpu_units = draw(st.integers(1, MOST_UNITS))
    units = draw(st.integers(1, gpu_units))
    return Share(draw(st.integers(0, MOST_MINOR)), units, gpu_units, draw(st.integers(0, MOST_NS)), draw(st.booleans()))


SHARE = Share(index=3, units=10, gpu_units=23, assume_time=1_700_000_000_123_456_789)
WRITTEN = {
    "ALIYUN_COM_GPU_MEM_IDX": "3",
    "ALIYUN_COM_GPU_MEM_POD": "10",
    "ALIYUN_COM_GPU_MEM_DEV": "23",
    "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
    "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1700000000123456789",
}


@given(shares())
def test_everything_counted_survives_write_restart_read(share: Share):
    """What is encoded into the Binding is what a restarted extender reads."""
    assert gpushare.decode(gpushare.encode(share)) == share


def test_the_annotations_are_those_that_the_plugin_reads():
    """Keys and forms of values are the plugin's, exactly."""
    assert gpushare.encode(SHARE) == WRITTEN


@given(st.dictionaries(st.sampled_from(keys.GPUSHARE_WRITTEN), st.sampled_from(["0", "7", "16", "-1", "1.0", "", "True", "007"]) | json_values))
@example({**WRITTEN, "ALIYUN_COM_GPU_MEM_POD": "24"})
def test_what_does_not_decode_is_told_by_the_name_of_the_annotation(annotations: dict[str, object]):
    """Any other content ends in a sentence, never in a crash and never in a share that nobody wrote."""
    try:
        share = gpushare.decode(annotations)
    except AllocationError as error:
        assert str(error).startswith("ALIYUN_COM_GPU_MEM_")  # noqa: PT017 - either ending is right
    else:
        assert gpushare.encode(share) == {key: annotations[key] for key in keys.GPUSHARE_WRITTEN}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        pytest.param({"IDX": "-1"}, "ALIYUN_COM_GPU_MEM_IDX=-1 cannot be read; accepted: the minor number of a GPU", id="no GPU was found"),
        pytest.param({"IDX": "0,1"}, "ALIYUN_COM_GPU_MEM_IDX=0,1 cannot be read", id="two GPUs"),
        pytest.param({"POD": "0"}, "ALIYUN_COM_GPU_MEM_POD=0 cannot be read; accepted: the units of the pod", id="nothing of a GPU"),
        pytest.param({"POD": "24"}, "ALIYUN_COM_GPU_MEM_POD=24 is more than one GPU has by ALIYUN_COM_GPU_MEM_DEV=23", id="more than a GPU"),
        pytest.param({"ASSIGNED": "yes"}, "ALIYUN_COM_GPU_MEM_ASSIGNED=yes cannot be read; accepted: false or true", id="neither true nor false"),
        pytest.param({"ASSUME_TIME": "1" * 30}, "ALIYUN_COM_GPU_MEM_ASSUME_TIME=1", id="a time that no uint64 holds"),
        pytest.param({"DEV": None}, "ALIYUN_COM_GPU_MEM_DEV is missing beside others of gpushare", id="one is missing"),
    ],
)
def test_the_sentence_says_what_is_wrong(changed: dict[str, str | None], said: str):
    """The key, its value and the accepted form, or the key that is missing."""
    annotations = {**WRITTEN, **{f"ALIYUN_COM_GPU_MEM_{key}": value for key, value in changed.items()}}
    with pytest.raises(AllocationError) as refused:
        gpushare.decode({key: value for key, value in annotations.items() if value is not None})
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("annotations", "carried"), [({}, False), ({"linkwise.dev/allocation": "{}"}, False), ({"ALIYUN_COM_GPU_MEM_ASSIGNED": "x"}, True)]
)
def test_one_annotation_of_gpushare_is_enough_to_look_at(annotations: dict[str, str], carried: bool):
    """A pod that carries any of them holds something, or closes its node."""
    assert gpushare.carries(annotations) is carried


@pytest.mark.parametrize(("gpu_units", "mib"), [(1, 10 * 1024), (1000, 10 * 1024), (1001, 10), (23028, 10)])
def test_more_than_a_thousand_units_a_gpu_are_mib(gpu_units: int, mib: int):
    """The plugin tells nobody its unit."""
    assert Share(0, 10, gpu_units, 0).mib == mib


def node(allocatable: object, *, label: str = "true") -> dict[str, object]:
    """Return a Node as kubelet and the plugin write it."""
    return {"metadata": {"name": "a", "labels": {"gpushare": label}}, "status": {"allocatable": allocatable}}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(node({"aliyun.com/gpu-mem": "92", "aliyun.com/gpu-count": "4"}), PluginGpus(4, 23), id="GiB"),
        pytest.param(node({"aliyun.com/gpu-mem": "92112", "aliyun.com/gpu-count": "4"}), PluginGpus(4, 23028), id="MiB"),
        pytest.param(node({"aliyun.com/gpu-mem": "320k", "aliyun.com/gpu-count": "4"}), PluginGpus(4, 80000), id="a quantity as kubelet shortens it"),
        pytest.param(node({"aliyun.com/gpu-mem": "90", "aliyun.com/gpu-count": "4"}), PluginGpus(4, 22), id="a sum that is no multiple is cut"),
        pytest.param(node({"aliyun.com/gpu-mem": "0", "aliyun.com/gpu-count": "4"}), PluginGpus(4, 0), id="the plugin is away: nothing left to take"),
        pytest.param(node({"aliyun.com/gpu-mem": "0"}), None, id="the plugin has found no GPU"),
        pytest.param(node({"cpu": "4"}), None, id="the plugin has not registered"),
        pytest.param(node({"aliyun.com/gpu-mem": "92", "aliyun.com/gpu-count": "4"}, label="false"), None, id="the label says no"),
        pytest.param(node(None), None, id="no status yet"),
        pytest.param({}, None, id="no node at all"),
    ],
)
def test_a_node_tells_what_its_plugin_serves(raw: dict[str, object], expected: PluginGpus | None):
    """Count and units come from the Node alone."""
    assert gpushare.read_plugin(raw) == expected


@pytest.mark.parametrize(
    ("allocatable", "said"),
    [
        pytest.param({"aliyun.com/gpu-mem": "92"}, r"has 92 aliyun.com/gpu-mem, but .*gpu-count\] is 0 or missing", id="memory of no GPU"),
        pytest.param(
            {"aliyun.com/gpu-mem": "x", "aliyun.com/gpu-count": "4"}, r"gpu-mem\] of the Node is x; accepted: a whole number", id="no number"
        ),
        pytest.param(
            {"aliyun.com/gpu-mem": "1", "aliyun.com/gpu-count": "256"}, r"gpu-count\] of the Node is 256; accepted: .* 0 to 255", id="too many"
        ),
    ],
)
def test_amounts_that_cannot_be_are_told(allocatable: dict[str, str], said: str):
    """The node is then closed with that sentence."""
    with pytest.raises(InputError, match=said):
        gpushare.read_plugin(node(allocatable))


@given(json_objects | json_values.map(node))
def test_no_node_crashes_the_reader(raw: dict[str, object]):
    """Whatever a Node holds, it is served, not served, or told."""
    try:
        found = gpushare.read_plugin(raw)
    except InputError as error:
        assert "status.allocatable" in str(error)  # noqa: PT017 - either ending is right
    else:
        assert found is None or found.count > 0


def test_shares_are_counted_by_the_units_of_the_plugin():
    """23 units of an unknown unit are 23 GiB, 23028 are MiB."""
    assert [(gpus.mib, gpus.mib_of_unit) for gpus in (PluginGpus(4, 23), PluginGpus(4, 23028))] == [(23 * 1024, 1024), (23028, 1)]


def test_minor_numbers_are_translated_by_the_topology_and_never_taken_for_positions():
    """gpushare-scheduler-extender 220: the index in the annotation differs from the index in the container."""
    gpus = [Gpu(index=0, uuid="GPU-a", minor=3), Gpu(index=1, uuid="GPU-b", minor=0), Gpu(index=2, uuid="GPU-c", minor=2)]
    assert gpushare.uuids_by_minor(gpus, 3) == {3: "GPU-a", 0: "GPU-b", 2: "GPU-c"}


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        pytest.param([Gpu(uuid="GPU-a")], "GPU GPU-a has no minor number", id="a minor number is not told"),
        pytest.param([Gpu(index=4, minor=0)], "GPU 4 has no minor number", id="a UUID is not told"),
        pytest.param(
            [Gpu(uuid="GPU-a", minor=1), Gpu(uuid="GPU-b", minor=1)], "GPUs GPU-a and GPU-b have the same minor number 1", id="twice the same"
        ),
        pytest.param([Gpu(uuid="GPU-a", minor=0)], "the GPUTopology has 1 GPUs, but aliyun.com/gpu-count of the Node is 2", id="not as many"),
    ],
)
def test_gpus_that_cannot_be_matched_refuse_the_node(gpus: list[Gpu], said: str):
    """A number that may mean another GPU is worse than none."""
    with pytest.raises(TopologyError, match=said):
        gpushare.uuids_by_minor(gpus, 2)


@pytest.mark.parametrize(("count", "matched"), [(2, False), (3, True), (4, True), (5, False)])
def test_the_plugin_may_miss_a_gpu_that_the_agent_remembers_as_lost(count: int, matched: bool):
    """It counts once, when it starts: before the GPU was lost, or after."""
    gpus = [Gpu(uuid=f"GPU-{minor}", minor=minor) for minor in range(4)]
    try:
        assert len(gpushare.uuids_by_minor(gpus, count, unhealthy=1)) == 4
    except TopologyError:
        assert not matched
    else:
        assert matched


def test_a_stand_in_for_a_uuid_is_never_taken_for_one():
    """Without a GPUTopology nobody knows the UUIDs."""
    assert gpushare.is_stand_in(gpushare.stand_in_uuid("node-7", 0))
    assert not gpushare.is_stand_in("GPU-6f2c0f51-1f2e-4a50-9d2b-0b6e6d5c8f11")


@pytest.mark.parametrize(
    ("uuid", "minor"),
    [("gpushare:node-7:2", 2), ("gpushare:node-8:2", None), ("gpushare:node-7:", None), ("gpushare:node-7:x", None), ("GPU-1", None), ("", None)],
)
def test_a_stand_in_tells_the_minor_number_behind_it_for_its_own_node_alone(uuid: str, minor: int | None):
    """The real UUID takes its place once somebody tells it."""
    assert gpushare.minor_of_stand_in("node-7", uuid) == minor


def unhealthy(data: object, name: str = "unhealthy-gpu-a", namespace: str = "kube-system") -> dict[str, object]:
    """Return a ConfigMap as administrators write it."""
    return {"metadata": {"name": name, "namespace": namespace}, "data": data}


@pytest.mark.parametrize(
    ("config_map", "node_name"),
    [
        pytest.param(unhealthy({}), "a", id="of a node"),
        pytest.param(unhealthy({}, "unhealthy-gpu-gpu-7.example"), "gpu-7.example", id="a name with dots and dashes"),
        pytest.param(unhealthy({}, "unhealthy-gpu-"), None, id="of nobody"),
        pytest.param(unhealthy({}, "coredns"), None, id="another ConfigMap"),
        pytest.param(unhealthy({}, namespace="default"), None, id="another namespace: anybody may write there"),
        pytest.param({"metadata": None}, None, id="no name"),
    ],
)
def test_the_config_map_names_its_node(config_map: dict[str, object], node_name: str | None):
    """Only those of kube-system with the prefix count."""
    assert gpushare.node_of_unhealthy(config_map) == node_name


@pytest.mark.parametrize(
    ("data", "gpus"),
    [({"gpus": "0,2"}, {0, 2}), ({"gpus": " 3 , 1 "}, {1, 3}), ({"gpus": "7"}, {7}), ({"gpus": ""}, set()), ({"other": "1"}, set()), (None, set())],
)
def test_unhealthy_gpus_are_named_by_their_minor_numbers(data: object, gpus: set[int]):
    """Nothing written means that nothing is unhealthy."""
    assert gpushare.read_unhealthy(unhealthy(data)) == gpus


@pytest.mark.parametrize("gpus", ["0,x", "-1", "0;2", "255", "0,,2", "GPU-a", 3, ["0"], "0 2"])
def test_what_names_no_gpu_is_told_by_the_name_of_the_config_map(gpus: object):
    """Somebody wanted a GPU to be skipped; which one cannot be told."""
    with pytest.raises(InputError, match=r"ConfigMap kube-system/unhealthy-gpu-a has gpus=.*; accepted: minor numbers of GPUs, for example 0,2"):
        gpushare.read_unhealthy(unhealthy({"gpus": gpus}))


def test_data_that_is_no_object_is_told_too():
    """A ConfigMap written by hand into a snapshot."""
    with pytest.raises(InputError, match="has gpus=broken"):
        gpushare.read_unhealthy(unhealthy("broken"))
