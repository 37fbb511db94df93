"""A container gets exactly the GPUs of its pod's allocation, or does not start."""

from collections.abc import Iterator

import pytest

from tests.builders import pod
from tests.hand_off_node import NODE, HandOffNode, hand_off_node


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandOffNode]:
    with hand_off_node(tmp_path_factory.mktemp("n")) as node:
        node.start_agent()
        yield node


@pytest.fixture
def gpus(node: HandOffNode) -> list[str]:
    return [gpu.uuid for gpu in node.topology.spec.gpus]


def test_a_container_sees_the_gpus_of_its_plan_whatever_kubelet_took(node: HandOffNode, gpus: list[str]) -> None:
    node.kubelet.stubborn = True
    raw = node.bind(pod("train").holding(NODE, gpus[1], gpus[2]))
    assert node.run(raw) == {"main": {gpus[1], gpus[2]}}
