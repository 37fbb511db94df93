"""Free capacity after any sequence of create, bind, delete equals what a fresh rebuild from the pods would compute."""

from hypothesis.stateful import invariant

from tests.invariants.machine import ClusterMachine, run


class FreeCapacityEqualsAFreshRebuild(ClusterMachine):
    @invariant()
    def free_equals_a_rebuild_and_a_recount_once_everything_has_settled(self) -> None:
        if self.settled:
            free = self.extender.free()
            assert free == self.rebuilt().free()
            assert free == self.recounted_free()

    @invariant()
    def nothing_is_free_meanwhile_that_a_rebuild_would_not_find_free(self) -> None:
        if not self.events:  # what the watch still holds back may say that a pod has ended
            rebuilt = self.rebuilt().free()
            for node, free in self.extender.free().items():
                assert (free or set()) <= (rebuilt[node] or set())


TestFreeCapacityEqualsAFreshRebuild = run(FreeCapacityEqualsAFreshRebuild)
