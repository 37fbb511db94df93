"""Free capacity after any sequence of create, bind, delete equals what a fresh rebuild from the pods would compute."""

from hypothesis.stateful import invariant

from tests.invariants.machine import NODES, ClusterMachine, free_gpus, run


class FreeCapacityEqualsAFreshRebuild(ClusterMachine):
    @invariant()
    def free_equals_a_rebuild_and_meanwhile_nothing_is_free_that_a_rebuild_would_not_find_free(self) -> None:
        free = self.extender.free()
        if self.settled:
            assert free == self.recounted_free()
            assert free == free_gpus(self.reread())
        elif not self.events:  # what the watch still holds back may say that a pod has ended
            rebuilt = free_gpus(self.reread())
            assert all((free[node] or set()) <= (rebuilt[node] or set()) for node in NODES)


TestFreeCapacityEqualsAFreshRebuild = run(FreeCapacityEqualsAFreshRebuild)
