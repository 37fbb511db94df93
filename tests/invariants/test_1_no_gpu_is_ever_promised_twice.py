"""No GPU, memory unit, slot or slice is ever promised twice: not under concurrent binds, not across a restart, not with a lagging watch."""

from collections import defaultdict
from collections.abc import Mapping

from hypothesis.stateful import invariant

from tests.invariants import recount
from tests.invariants.machine import KINDS, ClusterMachine, Node, run

OFFERED = recount.offered(Node(name, kind).topology() for name, kind in KINDS.items())
Use = defaultdict[str, dict[str, float]]


class NoGpuIsPromisedTwice(ClusterMachine):
    @invariant()
    def no_gpu_is_over_its_memory_and_none_is_both_whole_and_shared(self) -> None:
        assert not self._overfull(recount.use_of_gpus(self.api.pods.values()))

    @invariant()
    def not_even_with_what_pods_may_come_to_hold(self) -> None:
        use: Use = defaultdict(dict, recount.use_of_gpus(self.api.pods.values()))
        for late in self.api.late:
            pod = self.stored(late.binding.uid)
            if pod is not None and not pod["spec"].get("nodeName"):  # one that is gone, or bound already, will never be bound
                _add(use, late.binding.uid, recount.usage({**pod, "metadata": {"annotations": late.binding.annotations}}))
        for entry in self.extender.cluster.ledger:
            _add(use, entry.uid, {uuid: entry.shares.get(uuid, recount.ALL) for uuid in entry.uuids})
        assert not self._overfull(use)

    @invariant()
    def nothing_is_left_that_is_written_on_a_running_pod(self) -> None:
        use = recount.use_of_gpus(self.api.pods.values())
        for left in self.extender.free().values():
            for uuid, mib in (left or {}).items():
                assert uuid not in use or mib <= OFFERED[uuid] - sum(use[uuid].values())

    def _overfull(self, use: Mapping[str, Mapping[str, float]]) -> dict[str, Mapping[str, float]]:
        return {uuid: pods for uuid, pods in use.items() if recount.is_more_than(pods.values(), OFFERED[uuid])}


def _add(use: Use, uid: str, of_pod: recount.Usage) -> None:
    """What is written, promised and on its way of one pod may differ for a while: any of it may come true."""
    for uuid, mib in of_pod.items():
        use[uuid][uid] = max(use[uuid].get(uid, 0.0), mib)


TestNoGpuIsPromisedTwice = run(NoGpuIsPromisedTwice, share=2.1)
