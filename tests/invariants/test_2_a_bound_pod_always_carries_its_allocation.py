"""A bound pod always carries its allocation; a pod that failed to bind carries none."""

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
                assert {name: len({gpu["uuid"] for gpu in gpus}) for name, gpus in found["containers"].items()} == recount.asked(pod)

    @invariant()
    def containers_that_run_together_share_no_gpu(self) -> None:
        for pod in filter(recount.running, self.api.pods.values()):
            together = [
                gpu["uuid"] for name, gpus in (recount.allocation(pod) or {})["containers"].items() for gpu in gpus if not name.startswith("init")
            ]
            assert len(together) == len(set(together))

    @invariant()
    def a_pod_that_is_not_bound_carries_none(self) -> None:
        assert all(pod["spec"].get("nodeName") or recount.KEY not in pod["metadata"]["annotations"] for pod in self.api.pods.values())

    @invariant()
    def node_and_allocation_travel_in_one_write(self) -> None:
        assert all(set(post.annotations) == {recount.KEY} for post in self.api.posts)


TestABoundPodCarriesItsAllocation = run(ABoundPodCarriesItsAllocation)
