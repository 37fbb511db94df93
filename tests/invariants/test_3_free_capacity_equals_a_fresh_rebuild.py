"""Free capacity after any sequence of create, bind, delete equals what a fresh rebuild from the pods would compute."""

from hypothesis.stateful import invariant

from tests.invariants.machine import NODES, ClusterMachine, is_no_more, run


class FreeCapacityEqualsAFreshRebuild(ClusterMachine):
    @invariant()
    def free_equals_a_rebuild_and_meanwhile_nothing_is_free_that_a_rebuild_would_not_find_free(self) -> None:
        free = self.extender.free()
        if self.settled:
            assert free == self.recounted_free()
            assert free == self.rebuilt_free()
        elif not self.events:  # what the watch still holds back may say that a pod has ended
            rebuilt = self.rebuilt_free()
            assert all(is_no_more(free[node], than=rebuilt[node]) for node in NODES)


TestFreeCapacityEqualsAFreshRebuild = run(FreeCapacityEqualsAFreshRebuild, share=1.0)
