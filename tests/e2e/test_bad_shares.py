"""What a pod may not ask of GPU memory, on a real API server and kube-scheduler: who refuses it, and with which words.

What the API server cannot know arrives as the pod's FailedScheduling event, which names field, value and rule. What no node could count is refused by
kube-scheduler's own count before anybody asks Linkwise; `linkwise explain` has the sentence all the same.
"""

from typing import Any

import pytest
from kubernetes.dynamic.exceptions import UnprocessibleEntityError

from tests.builders import PodBuilder, pod
from tests.e2e.api_server import refusal
from tests.e2e.extender import RunningExtender
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.objects import pod_object

MEMORY, COUNT = "linkwise.dev/gpu-memory", "annotation linkwise.dev/gpu-count"
WHERE = "linkwise: spec.containers[0]"
BAD = pod("bad")
# A node with eight H100 has 8 x 79 GiB. `generous` counts more than any pod may ask, so that it is Linkwise that says no.
COUNTED = {"honest": {MEMORY: "632"}, "generous": {MEMORY: "10M", "aliyun.com/gpu-mem": "8"}}


def make_machine(cluster: LiveCluster, extender: RunningExtender, name: str) -> None:
    topology = cluster.make_machine("nvswitch", name)
    cluster.api.patch("Node", name, {"status": dict.fromkeys(("capacity", "allocatable"), COUNTED[name])}, subresource="status")
    extender.wait_open(topology.name)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        pytest.param(BAD.shared(0), f"{WHERE} asks for {MEMORY}=0; accepted: a whole number of GiB from 1 to 65536, or nothing at all", id="nothing"),
        pytest.param(
            BAD.shared(70_000), f"{WHERE}.resources.requests[{MEMORY}] is 70k; accepted: a whole number of GiB from 1 to 65536", id="more than counts"
        ),
        pytest.param(BAD.shared("1Mi"), f"{WHERE}.resources.requests[{MEMORY}] is 1Mi; accepted: a whole number of GiB", id="bytes instead of GiB"),
        pytest.param(
            BAD.shared(80),
            "80 GiB of one GPU asked, the largest of the node (NVIDIA H100 80GB HBM3) gives 79 GiB of its 81559 MiB",
            id="80 of 79 GiB",
        ),
        pytest.param(
            BAD.shared(160).annotated(gpu_count="2"),
            "80 GiB of each of 2 GPUs asked, the largest of the node (NVIDIA H100 80GB HBM3) gives 79 GiB",
            id="160 of 2",
        ),
        pytest.param(
            BAD.gpus(2).annotated(gpu_count="2"), f"{COUNT}=2 is set, but no container of the pod asks for {MEMORY}", id="a count without an amount"
        ),
        pytest.param(
            BAD.shared(3).annotated(gpu_count="4"),
            f"{COUNT}=4 is set, but container main asks for 3 GiB of {MEMORY}; accepted: at most as many GPUs as GiB",
            id="more GPUs than GiB",
        ),
        pytest.param(BAD.shared(3).annotated(gpu_count="0"), f"{COUNT}=0 cannot be read; accepted: a whole number of GPUs from 1 to 16", id="no GPU"),
        pytest.param(
            BAD.shared(99).annotated(gpu_count="17"), f"{COUNT}=17 cannot be read; accepted: a whole number of GPUs from 1 to 16", id="17 GPUs"
        ),
        pytest.param(
            BAD.shared(3).annotated(gpu_cores="101"),
            "annotation linkwise.dev/gpu-cores=101 cannot be read; accepted: percent of each GPU's compute, a whole number from 1 to 100",
            id="101 percent",
        ),
        pytest.param(
            BAD.shared(3).annotated(gpu_cores="50%"),
            "annotation linkwise.dev/gpu-cores=50 percent cannot be read; accepted: percent",
            id="a percent sign",
        ),
        pytest.param(
            BAD.gpus(1).annotated(gpu_cores="50"), "annotation linkwise.dev/gpu-cores=50 is set, but no container", id="percent of a whole GPU"
        ),
    ],
)
def test_a_pod_that_asks_what_cannot_be_waits_with_a_sentence(
    cluster: LiveCluster, extender: RunningExtender, asked: PodBuilder, sentence: str
) -> None:
    make_machine(cluster, extender, "generous")
    cluster.make_pod(asked)
    message = cluster.wait_event(sentence, "bad", reason="FailedScheduling")["message"]
    assert message.startswith("0/1 nodes are available: 1 linkwise: ")
    assert cluster.node_of("bad") is None


@pytest.mark.parametrize(
    ("amounts", "sentence"),
    [
        pytest.param(
            {"nvidia.com/gpu": "1", MEMORY: "4"}, f"{WHERE} asks for nvidia.com/gpu=1 and {MEMORY}=4; accepted: one of them", id="whole and part"
        ),
        pytest.param(
            {MEMORY: "4", "aliyun.com/gpu-mem": "2"},
            f"{WHERE} asks for {MEMORY}=4 and aliyun.com/gpu-mem=2; accepted: one of them",
            id="two kinds of part",
        ),
    ],
)
def test_a_container_that_asks_for_two_families_waits_with_a_sentence(
    cluster: LiveCluster, extender: RunningExtender, amounts: dict[str, str], sentence: str
) -> None:
    make_machine(cluster, extender, "generous")
    cluster.api.create(limited(amounts))
    cluster.wait_event(sentence, "bad", reason="FailedScheduling")


def test_more_than_any_node_counts_is_refused_by_kube_scheduler_and_explained_by_linkwise(cluster: LiveCluster, extender: RunningExtender) -> None:
    """No extender is asked about nodes that kube-scheduler has ruled out; who asks for the reason gets the sentence."""
    make_machine(cluster, extender, "honest")
    cluster.make_pod(pod("absurd").shared(70_000))
    cluster.wait_event("0/1 nodes are available: 1 Insufficient linkwise.dev/gpu-memory", "absurd", reason="FailedScheduling")
    told = extender.decision("absurd")
    assert (told["evaluatedNow"], told["error"]) == (
        True,
        f"spec.containers[0].resources.requests[{MEMORY}] is 70k; accepted: a whole number of GiB from 1 to 65536",
    )


@pytest.mark.parametrize(
    ("amounts", "sentence"),
    [
        pytest.param(
            {MEMORY: "1500m"}, f'spec.containers[0].resources.limits[{MEMORY}]: Invalid value: "1500m": must be an integer', id="a fraction"
        ),
        pytest.param({MEMORY: "0.5"}, "must be an integer", id="half a GiB"),
        pytest.param({MEMORY: "-1"}, "must be greater than or equal to 0", id="less than nothing"),
    ],
)
def test_the_api_server_takes_no_amount_that_is_not_a_whole_number(cluster: LiveCluster, amounts: dict[str, str], sentence: str) -> None:
    with pytest.raises(UnprocessibleEntityError) as refused:
        cluster.api.create(limited(amounts), dry_run=True)
    assert sentence in refusal(refused.value)


@pytest.mark.parametrize(
    ("requests", "sentence"),
    [
        pytest.param({MEMORY: "2"}, f"must be equal to {MEMORY} limit of 4", id="requests less than limits"),
        pytest.param({MEMORY: "8"}, f"must be equal to {MEMORY} limit of 4", id="requests more than limits"),
    ],
)
def test_the_api_server_takes_no_requests_that_differ_from_limits(cluster: LiveCluster, requests: dict[str, str], sentence: str) -> None:
    with pytest.raises(UnprocessibleEntityError) as refused:
        cluster.api.create(limited({MEMORY: "4"}, requests), dry_run=True)
    assert sentence in refusal(refused.value)


def test_the_api_server_takes_no_requests_without_limits(cluster: LiveCluster) -> None:
    item = limited({})
    item["spec"]["containers"][0]["resources"] = {"requests": {MEMORY: "4"}}
    with pytest.raises(UnprocessibleEntityError) as refused:
        cluster.api.create(item, dry_run=True)
    assert "Limit must be set for non overcommitable resources" in refusal(refused.value)


def limited(limits: dict[str, str], requests: dict[str, str] | None = None) -> dict[str, Any]:
    """A pod whose one container has these limits, and the same as requests where none are given."""
    resources = {"limits": limits, "requests": limits if requests is None else requests}
    return pod_object(BAD, containers=[{"name": "main", "image": "registry.example/none", "resources": resources}])
