"""What becomes of pods that came around Linkwise, by policy; of pods with an allocation for this node policy decides nothing."""

from collections.abc import Iterator

import pytest

from tests.builders import allocation_of, pod
from tests.device_kubelet import StartError
from tests.hand_off_node import NODE, HandOffNode, hand_off_node

STRANGE = "GPU-00000000-0000-0000-0000-000000000000"


@pytest.fixture(params=["observe", "refuse"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandOffNode]:
    with hand_off_node(tmp_path_factory.mktemp("n"), around=request.param) as node:
        node.start_agent()
        yield node


@pytest.mark.parametrize(
    ("written", "why"),
    [
        pytest.param(None, "pod default/p has no linkwise.dev/allocation", id="nodeName set by hand"),
        pytest.param(allocation_of("node-b", {"main": [STRANGE]}), "is for node node-b, and this is node-a", id="stale: of another node"),
        pytest.param("{", "is not JSON", id="damaged"),
        pytest.param('{"v": 7}', "linkwise.dev/allocation", id="of a version that nobody knows"),
    ],
)
def test_policy_decides_about_a_pod_without_an_allocation_for_this_node(node: HandOffNode, written: str | None, why: str) -> None:
    """Free GPUs, or none; the event says which, what is missing, and where it was refused what to do."""
    raw = node.bind(pod("p").gpus(1).bound_to(NODE, written))
    node.kubelet.admit(raw)
    if node.settings.around == "observe":
        assert len(node.start(raw)["main"]) == 1
    else:
        with pytest.raises(StartError, match="takes pods from Linkwise alone"):
            node.start(raw)
        assert node.specs() == []
    ((reason, message),) = node.events()
    assert reason == "CameAround"
    assert why in message
    assert ("was given free GPUs" in message, "delete the pod, and let Linkwise place one in its stead" in message) == (
        node.settings.around == "observe",
        node.settings.around == "refuse",
    )


@pytest.mark.parametrize(
    ("container", "uuid", "reason", "why"),
    [
        pytest.param("main", STRANGE, "GPUGone", "is not in node node-a, and no other stands in for it: delete the pod", id="a GPU that is gone"),
        pytest.param(
            "other", "held", "AllocationUnkept", "it was not written by Linkwise for this pod: delete the pod", id="forged for another container"
        ),
        pytest.param("main", "held", "GPUHeld", "container main of pod default/ours holds it", id="forged for a GPU that is held"),
    ],
)
def test_a_pod_with_an_allocation_for_this_node_gets_that_or_nothing_by_either_policy(
    node: HandOffNode, container: str, uuid: str, reason: str, why: str
) -> None:
    """A free GPU never stands in for one that is gone or held, and whoever holds it is left alone."""
    held = node.topology.spec.gpus[0].uuid
    ours = node.bind(pod("ours").holding(NODE, held))
    node.run(ours)
    raw = node.bind(pod("p").gpus(1).bound_to(NODE, allocation_of(NODE, {container: [held if uuid == "held" else uuid]})))
    node.kubelet.admit(raw)
    with pytest.raises(StartError):
        node.start(raw)
    (message,) = (message for said, message in node.events() if said == reason)
    assert why in message
    assert node.start(ours) == {"main": {held}}


def test_a_pod_of_linkwise_starts_by_either_policy(node: HandOffNode) -> None:
    """Whatever is turned away beside it."""
    uuid = node.topology.spec.gpus[2].uuid
    assert node.run(node.bind(pod("p").holding(NODE, uuid))) == {"main": {uuid}}


def test_a_container_that_was_let_in_starts_again_when_the_policy_has_become_stricter(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Policy decides about the first start alone: what it was given then is its own."""
    with hand_off_node(tmp_path_factory.mktemp("n")) as node:
        node.start_agent()
        raw = node.bind(pod("p").gpus(1).bound_to(NODE))
        before = node.run(raw)
        node.settings = node.settings.model_copy(update={"around": "refuse"})
        node.restart_agent()
        assert node.start(raw) == before
