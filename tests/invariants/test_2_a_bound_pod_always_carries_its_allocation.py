"""A bound pod always carries its allocation; a pod that failed to bind carries none."""

from typing import Any

from hypothesis.stateful import invariant

from tests.invariants import recount
from tests.invariants.machine import ClusterMachine, run


class ABoundPodCarriesItsAllocation(ClusterMachine):
    @invariant()
    def every_bound_pod_carries_what_each_of_its_containers_asked(self) -> None:
        for pod in self.api.pods.values():
            node = pod["spec"].get("nodeName")
            found = recount.allocation(pod)
            if node:
                assert found is not None
                assert found["node"] == node
                assert found["containers"].keys() == recount.asked(pod).keys()
                assert all(_gives(found["containers"][name], *asked, recount.gpus_of_a_part(pod)) for name, asked in recount.asked(pod).items())

    @invariant()
    def containers_that_run_together_share_no_gpu_but_in_parts(self) -> None:
        for pod in filter(recount.running, self.api.pods.values()):
            together = [gpu for name, gpus in recount.given(pod).items() if not name.startswith("init") for gpu in gpus]
            whole = [gpu["uuid"] for gpu in together if not gpu.get("shared")]
            assert len(whole) == len(set(whole))
            assert not {gpu["uuid"] for gpus in recount.given(pod).values() for gpu in gpus if gpu.get("shared")} & set(whole)

    @invariant()
    def a_pod_that_is_not_bound_carries_none(self) -> None:
        assert all(pod["spec"].get("nodeName") or recount.KEY not in pod["metadata"]["annotations"] for pod in self.api.pods.values())

    @invariant()
    def node_and_allocation_travel_in_one_write(self) -> None:
        for post in self.api.posts:
            others = post.annotations.keys() - {recount.KEY}
            assert recount.KEY in post.annotations
            assert len(others) in (0, 5), "for gpushare's plugin its five"
            assert all(key.startswith("ALIYUN_COM_GPU_MEM_") for key in others)


def _gives(gpus: list[dict[str, Any]], resource: str, amount: int, spread: int) -> bool:
    """Whether a container is given what it asks for, on as many GPUs as it should be."""
    parts = [gpu["memoryMiB"] for gpu in gpus if gpu.get("shared")]
    if len({gpu["uuid"] for gpu in gpus}) != len(gpus):
        return False
    if resource == recount.WHOLE_GPU:
        return len(gpus) == amount and not parts
    over = spread if resource == recount.MEMORY else 1
    return len(gpus) == len(parts) == over and len(set(parts)) == 1 and amount * 1024 <= sum(parts) < amount * 1024 + over


TestABoundPodCarriesItsAllocation = run(ABoundPodCarriesItsAllocation, share=1.2)
