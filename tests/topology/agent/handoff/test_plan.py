"""A plan is kept as it is, or not at all; who has none came around."""

import pytest

from topology.agent.handoff.holding import Container, Kind, Part
from topology.agent.handoff.plan import Around, Planned, Unkept, checked, memory_share_mib, plan_of
from topology.agent.handoff.pod import Pod
from topology.api import AllocatedGpu, Allocation

GPU, MEMORY = "nvidia.com/gpu", "linkwise.dev/gpu-memory"


def pod(allocation: object = None, gpu_count: object = None) -> Pod:
    """Return a pod with that annotation."""
    return Pod("u", "default", "p", "node-a", (Container("main", Kind.APP, 0),), allocation, gpu_count)


def written(node: str = "node-a", *, container: str = "main", **mib: int) -> str:
    """Return an allocation: `a=0` is GPU a whole."""
    gpus = tuple(AllocatedGpu(uuid=uuid, memory_mib=amount or 81920, shared=bool(amount) or None) for uuid, amount in mib.items())
    return Allocation(node=node, containers={container: gpus}).encode()


@pytest.mark.parametrize(
    ("allocation", "why"),
    [
        pytest.param(None, "has no linkwise.dev/allocation", id="none"),
        pytest.param("{", "is not JSON", id="not JSON"),
        pytest.param(7, "accepted: a string", id="not even a text"),
        pytest.param(written("node-b", a=0), "is for node node-b, and this is node-a", id="for another node"),
    ],
)
def test_a_pod_without_an_allocation_for_this_node_came_around(allocation: object, why: str) -> None:
    """And it is said what is missing."""
    found = plan_of(pod(allocation), "main", "node-a")
    assert isinstance(found, Around)
    assert why in found.why


@pytest.mark.parametrize(
    ("allocation", "resource", "asked", "why"),
    [
        pytest.param(written(a=0, b=0), GPU, 2, None, id="whole GPUs"),
        pytest.param(written(a=10240), MEMORY, 10, None, id="a share"),
        pytest.param(written(a=4608, b=4608), MEMORY, 9, None, id="a share over two GPUs, rounded up"),
        pytest.param(written(a=0), GPU, 2, "1 GPUs, and it asks for 2", id="fewer GPUs than asked"),
        pytest.param(written(a=10240), GPU, 1, "that are shared, and it asks for 1", id="a share where a GPU is asked"),
        pytest.param(written(a=0), MEMORY, 10, "a whole GPU, and 10 GiB are 10240 MiB on each of 1", id="a GPU where a share is asked"),
        pytest.param(written(a=20480), MEMORY, 10, "20480 MiB, and 10 GiB are 10240 MiB", id="more memory than asked"),
        pytest.param(written(container="other", a=0), GPU, 1, "no GPU, and it asks for 1", id="for another container"),
        pytest.param(written(a=0).replace('"main":[', '"main":[{"uuid":"a"},'), GPU, 2, "one GPU twice", id="one GPU twice"),
    ],
)
def test_a_plan_has_to_be_what_the_container_asks_for(allocation: str, resource: str, asked: int, why: str | None) -> None:
    """A forged or stale annotation names itself."""
    plan = plan_of(pod(allocation), "main", "node-a")
    assert isinstance(plan, Planned)
    found = checked(plan, pod(allocation), "main", resource, asked)
    if why is None:
        assert found == plan
        assert found.parts[0] == Part("a", plan.parts[0].mib)
    else:
        assert isinstance(found, Unkept)
        assert why in found.why


@pytest.mark.parametrize(
    ("count", "share"),
    [(None, (1, 9216)), ("2", (2, 4608)), ("0", (1, 9216)), ("99", (9, 1024)), ("9" * 5000, (1, 9216)), ("two", (1, 9216)), (2, (1, 9216))],
)
def test_a_pod_from_around_is_spread_as_its_annotation_says(count: object, share: tuple[int, int]) -> None:
    """Or not, where it says nothing that can be."""
    assert memory_share_mib(pod(gpu_count=count), 9) == share
