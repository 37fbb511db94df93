"""No GPU, memory unit, slot or slice is ever promised twice: not under concurrent binds, not across a restart, not with a lagging watch."""

from collections import defaultdict

from hypothesis.stateful import invariant

from extender.handoff import native
from tests.invariants import recount
from tests.invariants.machine import ClusterMachine, run


class NoGpuIsPromisedTwice(ClusterMachine):
    @invariant()
    def no_gpu_is_written_on_two_running_pods(self) -> None:
        twice = {uuid: pods for uuid, pods in recount.holders(self.api.pods.values()).items() if len(pods) > 1}
        assert not twice

    @invariant()
    def no_gpu_that_a_pod_holds_or_may_come_to_hold_is_another_pods(self) -> None:
        holders = defaultdict(set, recount.holders(self.api.pods.values()))
        for late in self.api.late:
            pod = self.stored(late.binding.uid)
            if pod is not None and not pod["spec"].get("nodeName"):  # one that is gone, or bound already, will never be bound
                for uuid in native.decode(late.binding.annotations[recount.KEY]).uuids():
                    holders[uuid].add(late.binding.uid)
        for entry in self.extender.cluster.ledger:
            for uuid in entry.uuids:
                holders[uuid].add(entry.uid)
        assert all(len(pods) <= 1 for pods in holders.values())

    @invariant()
    def no_free_gpu_is_written_on_a_running_pod(self) -> None:
        held = recount.holders(self.api.pods.values()).keys()
        for free in self.extender.free().values():
            assert not (free or set()) & held


TestNoGpuIsPromisedTwice = run(NoGpuIsPromisedTwice, share=1.0)
