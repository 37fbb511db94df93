"""What a pod asks is read right, or refused with a sentence that names annotation, value and accepted form; nothing is ignored and nothing crashes."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.containers import ContainerKind
from extender.demand import Demand, Part, Shape, read_demand
from extender.requests import NOTHING, Requests
from extender.settings import Policy
from tests.builders import PodBuilder, pod
from tests.strategies import deep, json_objects, odd_pods
from topology.api import annotations as keys
from topology.errors import DemandError
from topology.links import Distance

GPU = "nvidia.com/gpu"
APP, SIDECAR, INIT = ContainerKind.APP, ContainerKind.SIDECAR, ContainerKind.INIT


def read(builder: PodBuilder) -> Demand:
    return read_demand(builder.build())


def refused(raw: dict[str, Any]) -> str:
    with pytest.raises(DemandError) as caught:
        read_demand(raw)
    return str(caught.value)


def container(name: object = "main", **resources: object) -> dict[str, Any]:
    return {"name": name, "resources": resources}


def one_container(**resources: object) -> dict[str, Any]:
    return {"spec": {"containers": [container(**resources)]}}


def test_what_a_pod_requests_beside_gpus_is_read_with_it():
    assert read(pod("p").gpus(2).plain(cpu="1500m", memory="3Gi")).requests == Requests(1500, 3072)
    assert read(pod("p").gpus(1)).requests == NOTHING


# --- annotations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "field", "expected"),
    [
        pytest.param("topology", "best", "careful", True, id="topology best is the default"),
        pytest.param("topology", "none", "careful", False, id="topology none: bandwidth does not matter"),
        pytest.param("min-bandwidth", "100", "floor", 100.0, id="min-bandwidth as a whole number"),
        pytest.param("min-bandwidth", "23.5", "floor", 23.5, id="min-bandwidth with digits"),
        pytest.param("min-bandwidth", " 100\n", "floor", 100.0, id="blanks around a value, as YAML blocks leave them"),
        *(pytest.param("max-distance", code.name, "ceiling", code, id=f"max-distance {code.name}") for code in Distance),
        pytest.param("gpu-model", "*H100*", "model", "*H100*", id="gpu-model as a glob"),
        pytest.param("gpu-model", "*H100*, *H200*", "model", "*H100*,*H200*", id="gpu-model as several globs"),
        pytest.param("gpu-model", "[z-a]*[[!]", "model", "[z-a]*[[!]", id="gpu-model with odd brackets"),
    ],
)
def test_an_annotation_is_read(key: str, value: str, field: str, expected: object):
    shape = read_demand(pod().gpus(2).build() | {"metadata": {"annotations": {f"linkwise.dev/{key}": value}}}).shape
    assert getattr(shape, field) == expected


def test_numa_and_nic_distance_are_part_of_the_shape():
    shape = read(pod().gpus(2).annotated(numa="single", nic_distance="PXB")).shape
    assert (shape.one_numa, shape.nic_ceiling) == (True, Distance.PXB)
    assert (read(pod().gpus(2)).shape.one_numa, read(pod().gpus(2)).shape.nic_ceiling) == (False, None)


def test_a_single_gpu_may_ask_for_a_near_nic_and_is_on_one_numa_node_anyway():
    assert read(pod().gpus(1).annotated(numa="single", nic_distance="PIX")).shape.gpus == 1


@pytest.mark.parametrize("policy", Policy)
def test_policy_overrides_the_configured_one(policy: Policy):
    for configured in Policy:
        asked = read_demand(pod().gpus(1).annotated(policy=policy.value).build(), policy=configured)
        assert (asked.policy, asked.shape.as_allocator) == (policy, policy is Policy.GPUALLOCATOR)
    silent = read_demand(pod().gpus(1).build(), policy=policy)
    assert (silent.policy, silent.shape.as_allocator) == (policy, policy is Policy.GPUALLOCATOR)


ACCEPTED = {
    "topology": "best or none",
    "min-bandwidth": "GB/s as a positive decimal number, for example 100",
    "max-distance": "NVLINK, PIX, PXB, PHB, NODE or SYS",
    "nic-distance": "PIX, PXB, PHB, NODE or SYS",
    "numa": "single",
    "gpu-count": "a whole number of GPUs from 1 to 16",
    "gpu-cores": "percent of each GPU's compute, a whole number from 1 to 100",
    "gpu-model": "globs over the product name with commas between them, for example *H100*",
    "policy": "pack, spread or gpuallocator",
}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("topology", "Best", id="topology in capitals"),
        pytest.param("topology", "", id="topology empty"),
        pytest.param("min-bandwidth", "fast", id="bandwidth in words"),
        pytest.param("min-bandwidth", "100GB/s", id="bandwidth with a unit"),
        pytest.param("min-bandwidth", "-1", id="bandwidth below nothing"),
        pytest.param("min-bandwidth", "0", id="bandwidth of nothing"),
        pytest.param("min-bandwidth", "1e3", id="bandwidth in scientific notation"),
        pytest.param("min-bandwidth", "inf", id="bandwidth without end"),
        pytest.param("min-bandwidth", "nan", id="bandwidth that is no number"),
        pytest.param("min-bandwidth", "1,5", id="decimal comma"),
        pytest.param("min-bandwidth", "١٠٠", id="digits of another script"),
        pytest.param("max-distance", "nvlink", id="distance in lower case"),
        pytest.param("max-distance", "NV4", id="a link code with a count"),
        pytest.param("nic-distance", "NVLINK", id="a NIC over NVLinks"),
        pytest.param("nic-distance", "pix", id="distance of the NIC in lower case"),
        pytest.param("numa", "0", id="a NUMA node by number"),
        pytest.param("numa", "Single", id="numa in capitals"),
        pytest.param("gpu-model", " ", id="blank model"),
        pytest.param("gpu-model", "*H100*,", id="a comma with nothing after it"),
        pytest.param("gpu-model", "H" * 129, id="model longer than any name"),
        pytest.param("policy", "binpack", id="policy of another project"),
    ],
)
def test_an_annotation_that_cannot_be_read_fails_the_pod_with_the_accepted_form(key: str, value: str):
    sentence = refused(pod().gpus(2).build() | {"metadata": {"annotations": {f"linkwise.dev/{key}": value}}})
    shown = value if len(value) <= 60 else value[:60] + "…"
    assert sentence == f"annotation linkwise.dev/{key}={shown} cannot be read; accepted: {ACCEPTED[key]}"


def test_every_supported_annotation_has_a_parser_and_an_accepted_form():
    assert {keys.PREFIX + key for key in ACCEPTED} == set(keys.SUPPORTED)


@pytest.mark.parametrize("value", [100, None, True, ["100"], {"GB/s": 100}, 1e999], ids=repr)
def test_an_annotation_that_is_no_string_is_refused(value: object):
    raw = pod().gpus(2).build() | {"metadata": {"annotations": {keys.MIN_BANDWIDTH: value}}}
    assert "linkwise.dev/min-bandwidth=" in refused(raw)


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        pytest.param("min-bandwith", "min-bandwidth", id="a letter is missing"),
        pytest.param("minBandwidth", "min-bandwidth", id="camel case"),
        pytest.param("Policy", "policy", id="capitals"),
        pytest.param("gpu-modell", "gpu-model", id="a letter too many"),
        pytest.param("max_distance", "max-distance", id="underscore"),
        pytest.param("numa-node", "numa", id="a word too many"),
    ],
)
def test_an_unknown_annotation_fails_the_pod_with_the_nearest_known_one(misspelt: str, meant: str):
    sentence = refused(pod().gpus(1).build() | {"metadata": {"annotations": {f"linkwise.dev/{misspelt}": "x"}}})
    assert sentence.startswith(
        f"annotation linkwise.dev/{misspelt}=x is unknown; did you mean linkwise.dev/{meant}? Accepted: linkwise.dev/topology, "
    )


@given(st.text())
def test_any_unknown_key_of_ours_is_refused_by_name(key: str):
    full = keys.PREFIX + key
    if full not in (*keys.SUPPORTED, keys.ALLOCATION):
        sentence = refused(pod().gpus(1).build() | {"metadata": {"annotations": {full: "x"}}})
        assert full in sentence
        assert "did you mean linkwise.dev/" in sentence


def test_an_allocation_that_a_user_wrote_is_no_wish():
    """It is overwritten at bind and its owner is told, so it decides nothing (HAMi 3076)."""
    assert read_demand(pod().gpus(2).build() | {"metadata": {"annotations": {keys.ALLOCATION: "anything"}}}) == read(pod().gpus(2))


def test_annotations_of_others_are_none_of_our_business():
    raw = pod().gpus(2).build() | {"metadata": {"annotations": {"nvidia.com/policy": "x", "linkwise.dev.example/policy": "x", "linkwise.dev": "x"}}}
    assert read_demand(raw) == read(pod().gpus(2))


# --- parts of GPUs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        pytest.param(pod().shared(10), (Part(APP, 1, 10_240),), id="GiB on one GPU"),
        pytest.param(pod().shared(40).annotated(gpu_count="2"), (Part(APP, 2, 20_480),), id="an even split over two"),
        pytest.param(pod().shared(10).annotated(gpu_count="3"), (Part(APP, 3, 3_414),), id="an odd split is rounded up"),
        pytest.param(pod().shared(16).annotated(gpu_count="16"), (Part(APP, 16, 1024),), id="as many GPUs as GiB"),
        pytest.param(
            pod().shared(8, "a").shared(6, "b").annotated(gpu_count="2"), (Part(APP, 2, 4096), Part(APP, 2, 3072)), id="the count is each container's"
        ),
        pytest.param(pod().gpus(2, "train").shared(6, "watch"), (Part(APP, 2), Part(APP, 1, 6144)), id="whole GPUs beside a share"),
        pytest.param(
            pod().gpus(4, "train").shared(6, "watch").annotated(gpu_count="2"),
            (Part(APP, 4), Part(APP, 2, 3072)),
            id="the count says nothing of whole GPUs",
        ),
        pytest.param(
            pod().shared(6).init_shared(9).sidecar_shared(2),
            (Part(INIT, 1, 9216), Part(SIDECAR, 1, 2048), Part(APP, 1, 6144)),
            id="in the order of starting",
        ),
    ],
)
def test_memory_is_a_share_on_each_of_its_gpus(asked: PodBuilder, parts: tuple[Part, ...]):
    assert read(asked).shape.parts == parts


@pytest.mark.parametrize(
    ("asked", "whole", "mib", "largest", "shared"),
    [
        pytest.param(pod().shared(10), 0, 10_240, 1, True, id="a share is no whole GPU"),
        pytest.param(pod().shared(40).annotated(gpu_count="4"), 0, 40_960, 4, True, id="links count as for whole GPUs"),
        pytest.param(pod().gpus(2, "a").shared(6, "b"), 2, 6144, 2, True, id="both in one pod"),
        pytest.param(pod().gpus(2), 2, 0, 2, False, id="whole GPUs alone"),
        pytest.param(pod().shared(6).init_shared(9), 0, 9216, 1, True, id="an init container decides where it is larger"),
        pytest.param(pod().shared(6).sidecar_shared(2).init_shared(5), 0, 8192, 1, True, id="a sidecar runs beside both"),
        pytest.param(pod().shared(6, "a").shared(7, "b").init(3), 3, 13_312, 3, True, id="an init container of whole GPUs"),
    ],
)
def test_whole_gpus_and_memory_are_counted_apart_by_the_rule_for_effective_requests(
    asked: PodBuilder, whole: int, mib: int, largest: int, shared: bool
):
    shape = read(asked).shape
    assert (shape.gpus, shape.memory_mib, shape.largest, shape.is_shared) == (whole, mib, largest, shared)


@pytest.mark.parametrize(("asked", "careful"), [(pod().shared(40), False), (pod().shared(40).annotated(gpu_count="2"), True)])
def test_a_share_of_one_gpu_needs_no_bandwidth(asked: PodBuilder, careful: bool):
    assert read(asked).shape.careful is careful


def test_floors_and_ceilings_hold_for_shares_of_several_gpus():
    shape = read(pod().shared(40).annotated(gpu_count="2", min_bandwidth="100", max_distance="NVLINK", numa="single")).shape
    assert (shape.floor, shape.ceiling, shape.one_numa) == (100.0, Distance.NVLINK, True)
    sentence = refused(pod().shared(40).min_bandwidth(100).build())
    assert sentence.endswith("is set, but no container of the pod gets 2 or more GPUs, so there is no link to hold to it")


def test_percent_of_compute_is_read_and_decides_nothing():
    asked = pod().shared(8)
    for text, percent in (("1", 1), ("30", 30), ("100", 100)):
        demand = read(asked.annotated(gpu_cores=text))
        assert (demand.cores_percent, demand.shape) == (percent, read(asked).shape)
    assert read(asked).cores_percent is None


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        pytest.param(
            pod().gpus(2).annotated(gpu_count="2"),
            "annotation linkwise.dev/gpu-count=2 is set, but no container of the pod asks for linkwise.dev/gpu-memory, and it speaks of nothing else",
            id="gpu-count without gpu-memory",
        ),
        pytest.param(
            pod().gpus(2).annotated(gpu_cores="30"),
            "annotation linkwise.dev/gpu-cores=30 is set, but no container of the pod asks for linkwise.dev/gpu-memory, and it speaks of nothing else",
            id="gpu-cores without gpu-memory",
        ),
        pytest.param(
            pod().shared(3, "serve").annotated(gpu_count="4"),
            "annotation linkwise.dev/gpu-count=4 is set, but container serve asks for 3 GiB of linkwise.dev/gpu-memory; accepted: at most as many GPUs as GiB",
            id="gpu-count larger than the amount",
        ),
        pytest.param(
            pod().shared(8, "a").shared(3, "b").annotated(gpu_count="4"),
            "annotation linkwise.dev/gpu-count=4 is set, but container b asks for 3 GiB of linkwise.dev/gpu-memory; accepted: at most as many GPUs as GiB",
            id="larger than that of one container of two",
        ),
        *(
            pytest.param(
                pod().shared(64).annotated(gpu_count=value),
                f"annotation linkwise.dev/gpu-count={value} cannot be read; accepted: a whole number of GPUs from 1 to 16",
                id=f"gpu-count {value!r}",
            )
            for value in ("0", "17", "-1", "2.0", "two", "", "٢", "002")
        ),
        *(
            pytest.param(
                pod().shared(64).annotated(gpu_cores=value),
                f"annotation linkwise.dev/gpu-cores={value} cannot be read; accepted: percent of each GPU's compute, a whole number from 1 to 100",
                id=f"gpu-cores {value!r}",
            )
            for value in ("0", "101", "30%", "0.5", "half", "")
        ),
        pytest.param(
            pod().gpus(1).shared(0, "b"),
            "spec.containers[1] asks for linkwise.dev/gpu-memory=0; accepted: a whole number of GiB from 1 to 65536, or nothing at all",
            id="an amount of 0",
        ),
        pytest.param(
            pod().shared(65_537),
            "spec.containers[0].resources.requests[linkwise.dev/gpu-memory] is 65537; accepted: a whole number of GiB from 1 to 65536",
            id="an over-large amount",
        ),
    ],
)
def test_a_demand_for_parts_that_cannot_be_is_refused_by_field_value_and_rule(asked: PodBuilder, sentence: str):
    assert refused(asked.build()) == sentence


@pytest.mark.parametrize(
    ("asked", "masks", "shares"),
    [
        pytest.param(pod().shared(6), [0b100], ((2, 6144),), id="one share"),
        pytest.param(pod().shared(8).annotated(gpu_count="2"), [0b101], ((0, 4096), (2, 4096)), id="a share on each of two"),
        pytest.param(pod().gpus(2, "a").shared(6, "b"), [0b011, 0b100], ((2, 6144),), id="whole GPUs are no shares"),
        pytest.param(pod().shared(6, "a").shared(4, "b"), [0b1, 0b1], ((0, 10_240),), id="two containers on one GPU add up"),
        pytest.param(pod().shared(6).init_shared(9), [0b1, 0b1], ((0, 9216),), id="an init container on its app's GPU counts as far as it is more"),
        pytest.param(pod().shared(6).init_shared(9), [0b10, 0b1], ((0, 6144), (1, 9216)), id="elsewhere it counts beside it"),
        pytest.param(pod().gpus(3), [0b111], (), id="no shares at all"),
    ],
)
def test_what_a_plan_would_take_in_shares(asked: PodBuilder, masks: list[int], shares: tuple[tuple[int, int], ...]):
    assert read(asked).shares(masks) == shares


def test_the_largest_share_is_what_sentences_tell_of():
    asked = read(pod().shared(8, "a").shared(20, "b").gpus(4, "c").annotated(gpu_count="2")).asked
    assert (asked.share, asked.gpus, asked.largest, asked.healthy) == ((10_240, 2), 4, 4, 4)
    assert read(pod().gpus(1)).asked.share is None


# --- contradictions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["min_bandwidth", "max_distance"])
@pytest.mark.parametrize(
    "builder",
    [
        pytest.param(pod().gpus(1), id="one GPU"),
        pytest.param(pod().gpus(1, "a").gpus(1, "b"), id="two containers of one GPU each"),
    ],
)
def test_a_floor_without_a_link_to_hold_to_it_is_a_contradiction(key: str, builder: PodBuilder):
    value = {"min_bandwidth": "100", "max_distance": "PIX"}[key]
    assert re.fullmatch(
        rf"annotation linkwise.dev/{key.replace('_', '-')}={value} is set, but no container of the pod gets 2 or more GPUs, "
        "so there is no link to hold to it",
        refused(builder.annotated(**{key: value}).build()),
    )


def test_a_floor_holds_where_one_container_of_several_has_a_link():
    assert read(pod().gpus(4, "train").gpus(1, "watch").min_bandwidth(100)).shape.floor == 100


def test_topology_none_with_a_floor_means_so_much_is_enough():
    shape = read(pod().gpus(2).annotated(topology="none", min_bandwidth="20")).shape
    assert (shape.careful, shape.floor) == (False, 20.0)


@pytest.mark.parametrize("key", list(ACCEPTED))
def test_annotations_on_a_pod_without_gpus_are_a_contradiction(key: str):
    values = {
        "min-bandwidth": "100",
        "max-distance": "PIX",
        "nic-distance": "PIX",
        "numa": "single",
        "gpu-model": "*",
        "policy": "pack",
        "gpu-count": "2",
        "gpu-cores": "30",
    }
    value = values.get(key, "best")
    sentence = refused(pod().plain().annotated(**{key: value}).build())
    assert sentence == f"annotation linkwise.dev/{key}={value} is set, but no container of the pod asks for nvidia.com/gpu or linkwise.dev/gpu-memory"


def test_requests_that_differ_from_limits_are_a_contradiction():
    sentence = refused(one_container(requests={GPU: "1"}, limits={GPU: "2"}))
    assert sentence == "spec.containers[0] requests 1 nvidia.com/gpu but limits it to 2; accepted: the same number in both"


# --- gpushare -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mib_of_unit", "mib"), [(1024, 8 * 1024), (1, 8)])
def test_units_of_gpushare_are_a_share_of_one_gpu(mib_of_unit: int, mib: int):
    """Of so many MiB as a unit means in this cluster; nodes may have as many GPUs as they like."""
    demand = read_demand(pod().units(8).build(), mib_of_unit=mib_of_unit)
    assert demand.shape == Shape((Part(ContainerKind.APP, 1, mib),), careful=False, plugin_gpus=16)
    assert (demand.units, demand.mib_of_unit) == (8, mib_of_unit)


@pytest.mark.parametrize(
    ("asked", "kinds", "units"),
    [
        pytest.param(pod().units(3).units(4, "second"), [ContainerKind.APP] * 2, 7, id="two app containers"),
        pytest.param(pod().units(3).init_units(5), [ContainerKind.INIT, ContainerKind.APP], 5, id="an init container beside"),
        pytest.param(pod().init_units(5), [ContainerKind.INIT], 5, id="an init container alone"),
    ],
)
def test_pods_that_the_plugin_cannot_find_by_their_total_need_a_node_with_one_gpu(asked: PodBuilder, kinds: list[ContainerKind], units: int):
    """Kubelet asks it for one container at a time."""
    demand = read_demand(asked.build())
    assert [part.kind for part in demand.shape.parts] == kinds
    assert (demand.shape.plugin_gpus, demand.units) == (1, units)


def test_a_container_that_asks_nothing_of_the_plugin_is_in_nobodys_way():
    """A helper beside the one that asks."""
    assert read_demand(pod().units(3).plain().build()).shape.plugin_gpus == 16


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        pytest.param(
            one_container(limits={keys.GPUSHARE_MEMORY: "8", GPU: "1"}),
            "spec.containers[0] asks for nvidia.com/gpu=1 and aliyun.com/gpu-mem=8; accepted: one of them, as a GPU is a container's own or shared",
            id="whole GPUs and units in one container",
        ),
        pytest.param(
            pod().units(8, "a").gpus(1, "b").build(),
            "container a asks for aliyun.com/gpu-mem, container b for nvidia.com/gpu; "
            "accepted: one of them in a pod, for the device plugins that hand them out do not know of each other",
            id="whole GPUs and units in one pod",
        ),
        pytest.param(
            pod().shared(8, "a").units(8, "b").build(),
            "container b asks for aliyun.com/gpu-mem, container a for linkwise.dev/gpu-memory; "
            "accepted: one of them in a pod, for the device plugins that hand them out do not know of each other",
            id="GiB and units in one pod",
        ),
        pytest.param(
            one_container(limits={keys.GPUSHARE_MEMORY: "0"}),
            "spec.containers[0] asks for aliyun.com/gpu-mem=0; accepted: a whole number of the node's units from 1 to 1048576, or nothing at all",
            id="none",
        ),
        pytest.param(
            one_container(limits={keys.GPUSHARE_MEMORY: "2Mi"}),
            "spec.containers[0].resources.limits[aliyun.com/gpu-mem] is 2Mi; accepted: a whole number of the node's units from 1 to 1048576",
            id="more than any GPU has",
        ),
        pytest.param(
            pod().units(8).annotated(gpu_count="2").build(),
            "annotation linkwise.dev/gpu-count=2 is set, but no container of the pod asks for linkwise.dev/gpu-memory, and it speaks of nothing else",
            id="spread over GPUs",
        ),
    ],
)
def test_what_gpushare_cannot_do_is_refused_with_a_sentence(asked: dict[str, Any], sentence: str):
    """Each names the resources, the value and the rule."""
    assert refused(asked) == sentence


# --- quantities -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quantity", "gpus"),
    [
        pytest.param("2", 2, id="the usual string"),
        pytest.param(2, 2, id="a number, as YAML has it without quotes"),
        pytest.param("2.0", 2, id="with a zero behind the point"),
        pytest.param("+2", 2, id="with a sign"),
        pytest.param("2000m", 2, id="in thousandths"),
        pytest.param("2e0", 2, id="with an exponent"),
        pytest.param("1k", 1000, id="in thousands"),
        pytest.param("1Ki", 1024, id="in binary thousands, the most that is read"),
        pytest.param(" 2 ", 2, id="with blanks"),
        pytest.param("0", 0, id="zero is no GPU"),
        pytest.param("0Mi", 0, id="zero in any unit"),
    ],
)
def test_kubernetes_quantities_that_are_whole_numbers(quantity: object, gpus: int):
    assert read_demand(one_container(limits={GPU: quantity})).shape.gpus == gpus


@pytest.mark.parametrize(
    "quantity",
    [
        "-1",
        "1.5",
        "1500m",
        "two",
        "",
        "1025",
        "1M",
        "9e9",
        "999999999999Mi",
        "9" * 40,
        "٢",
        "1Gi",
        "0x2",
        "2.5.1",
        "NaN",
        -1,
        2.5,
        True,
        None,
        [2],
        {"a": 1},
    ],
    ids=repr,
)
def test_a_quantity_that_is_no_number_of_gpus_is_refused_with_its_place(quantity: object):
    sentence = refused(one_container(limits={GPU: quantity}))
    assert sentence.startswith("spec.containers[0].resources.limits[nvidia.com/gpu] is ")
    assert sentence.endswith("; accepted: a whole number from 0 to 1024")


@given(st.integers(0, 1024), st.sampled_from(["{}", "{}.0", "{}000m", "{}e0", "{}E+0"]))
def test_any_way_to_write_a_whole_number_reads_as_that_number(number: int, form: str):
    assert read_demand(one_container(limits={GPU: form.format(number)})).shape.gpus == number


@pytest.mark.parametrize("field", ["requests", "limits"])
def test_requests_alone_and_limits_alone_count(field: str):
    assert read_demand(one_container(**{field: {GPU: "2"}})).shape.gpus == 2


def test_the_resource_name_is_a_setting():
    raw = one_container(limits={"example.com/gpu": "2", GPU: "1"})
    assert read_demand(raw, "example.com/gpu").shape.gpus == 2


# --- containers -----------------------------------------------------------------------------------------------------


def test_two_gpu_containers_in_one_pod_each_get_a_part_of_their_own():
    demand = read(pod().gpus(2, "train").plain("log").gpus(1, "serve"))
    assert demand.containers == ("train", "serve")
    assert demand.shape.parts == (Part(APP, 2), Part(APP, 1))
    assert (demand.shape.gpus, demand.shape.largest) == (3, 2)


def test_init_containers_without_gpus_before_gpu_containers_shift_nothing():
    raw = pod().gpus(2, "train").build()
    raw["spec"]["initContainers"] = [{"name": "fetch"}, {"name": "unpack", "resources": {"limits": {"cpu": "1"}}}]
    assert read_demand(raw).containers == ("train",)


def test_parts_stand_in_the_order_in_which_containers_start():
    demand = read(pod().gpus(2, "train").init(1, "warm").sidecar(1, "proxy"))
    assert dict(zip(demand.containers, demand.shape.parts, strict=True)) == {"warm": Part(INIT, 1), "proxy": Part(SIDECAR, 1), "train": Part(APP, 2)}
    assert demand.containers == ("warm", "proxy", "train")


@pytest.mark.parametrize(
    ("builder", "gpus"),
    [
        pytest.param(pod().gpus(2).init(1), 2, id="a small init container runs on the app's GPUs"),
        pytest.param(pod().gpus(2).init(4), 4, id="a large init container decides"),
        pytest.param(pod().gpus(2).init(2, "a").init(3, "b"), 3, id="init containers run one after the other"),
        pytest.param(pod().gpus(2).sidecar(1), 3, id="a sidecar runs beside the app"),
        pytest.param(pod().gpus(1).sidecar(1).init(2), 3, id="an init container runs beside the sidecars before it"),
        pytest.param(pod().gpus(1).init(2).sidecar(1), 2, id="but not beside those after it"),
        pytest.param(pod().gpus(2, "a").gpus(2, "b"), 4, id="apps run together"),
        pytest.param(pod().plain().init(2), 2, id="only an init container asks"),
    ],
)
def test_effective_request(builder: PodBuilder, gpus: int):
    assert read(builder).shape.gpus == gpus


def running_at_once(parts: list[tuple[ContainerKind, int]]) -> int:
    """Replay the start of the pod: kubelet starts init containers and sidecars in order, then the apps; return the most GPUs in use at any moment."""
    in_use = most = 0
    for kind, gpus in parts:
        most = max(most, in_use + gpus)
        if kind is not INIT:
            in_use += gpus
    return most


starting = st.lists(st.tuples(st.sampled_from([INIT, SIDECAR]), st.integers(0, 4)), max_size=5)
apps = st.lists(st.tuples(st.just(APP), st.integers(0, 4)), max_size=4)


@given(starting, apps)
def test_the_effective_request_is_the_most_that_is_ever_in_use_at_once(
    before: list[tuple[ContainerKind, int]], after: list[tuple[ContainerKind, int]]
):
    builder = pod()
    for number, (kind, gpus) in enumerate([*before, *after]):
        name = f"c{number}"
        builder = {INIT: builder.init, SIDECAR: builder.sidecar, APP: builder.gpus}[kind](gpus, name)
    demand = read(builder)
    assert demand.shape.gpus == running_at_once([*before, *after])
    assert demand.wants_gpus == any(gpus for _, gpus in [*before, *after])
    assert [part.gpus for part in demand.shape.parts] == [gpus for _, gpus in [*before, *after] if gpus]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["a", "a"], id="twice the same name"),
        pytest.param([None], id="no name"),
        pytest.param([""], id="an empty name"),
        pytest.param([7], id="a number"),
    ],
)
def test_gpu_containers_without_a_name_of_their_own_are_refused(names: list[object]):
    """An allocation is keyed by container name."""
    raw = {"spec": {"containers": [container(name, limits={GPU: "1"}) for name in names]}}
    assert refused(raw).startswith(f"spec.containers[{len(names) - 1}].name of the pod is ")


def test_a_pod_without_gpus_wants_none():
    demand = read(pod().plain())
    assert not demand.wants_gpus
    assert demand.shape == Shape(())


def test_what_sentences_tell_of_a_demand():
    asked = read(pod().gpus(4, "a").gpus(2, "b").min_bandwidth(50).max_distance("PXB").annotated(gpu_model="*A100*")).asked
    assert (asked.gpus, asked.largest, asked.containers, asked.floor, asked.ceiling, asked.model) == (6, 4, 2, 50.0, Distance.PXB, "*A100*")


# --- nothing crashes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "place"),
    [
        pytest.param({"metadata": []}, None, id="empty metadata of another type"),
        pytest.param({"metadata": 5}, "metadata of the pod is a int", id="metadata is a number"),
        pytest.param({"metadata": {"annotations": ["x"]}}, "metadata.annotations of the pod is a list", id="annotations are a list"),
        pytest.param({"spec": "x"}, "spec of the pod is a str", id="spec is text"),
        pytest.param({"spec": {"containers": {"a": 1}}}, "spec.containers of the pod is a dict", id="containers are an object"),
        pytest.param({"spec": {"initContainers": [None]}}, "spec.initContainers[0] of the pod is a NoneType", id="a container is null"),
        pytest.param({"spec": {"containers": [{"resources": 1}]}}, "spec.containers[0].resources is a int", id="resources are a number"),
        pytest.param(
            {"spec": {"containers": [{"resources": {"limits": "x"}}]}}, "spec.containers[0].resources.limits is a str", id="limits are text"
        ),
        pytest.param({"spec": None, "metadata": None}, None, id="everything is null"),
        pytest.param({}, None, id="nothing at all"),
    ],
)
def test_an_absurd_pod_is_told_where_it_is_absurd(raw: dict[str, Any], place: str | None):
    if place is None:
        assert not read_demand(raw).wants_gpus
    else:
        assert refused(raw).startswith(place)


def sentence_or_demand(raw: dict[str, Any]) -> str | Demand:
    try:
        return read_demand(raw)
    except DemandError as error:
        return str(error)


@settings(deadline=None, max_examples=200)
@given(odd_pods | json_objects)
def test_no_pod_spec_crashes_the_reader(raw: dict[str, Any]):
    """HAMi 212, volcano PR 4633: odd container lists crash the parser."""
    found = sentence_or_demand(raw)
    if isinstance(found, str):
        assert len(found) > 20
    else:
        assert len(found.containers) == len(found.shape.parts)


@pytest.mark.parametrize("place", ["annotation", "quantity", "name"])
def test_a_value_that_nests_as_deep_as_a_body_can_is_refused_in_a_short_sentence(place: str):
    value = deep(1000)
    raw = {
        "annotation": {"metadata": {"annotations": {keys.POLICY: value}}},
        "quantity": one_container(limits={GPU: value}),
        "name": {"spec": {"containers": [container(value, limits={GPU: "1"})]}},
    }[place]
    assert len(refused(raw)) < 300
