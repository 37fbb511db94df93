"""Terminating pods hold their GPUs until their containers have ended."""

from hypothesis.stateful import invariant, rule

from tests.invariants import recount
from tests.invariants.machine import KINDS, ClusterMachine, End, Node, run

OFFERED = recount.offered(Node(name, kind).topology() for name, kind in KINDS.items())


class TerminatingPodsHoldTheirGpus(ClusterMachine):
    @invariant()
    def nothing_that_a_terminating_pod_holds_is_left(self) -> None:
        terminating = [pod for pod in self.api.pods.values() if pod["metadata"].get("deletionTimestamp") and recount.running(pod)]
        held = recount.use_of_gpus(terminating)
        for left in self.extender.free().values():
            assert all(uuid not in held or mib <= OFFERED[uuid] - sum(held[uuid].values()) for uuid, mib in (left or {}).items())

    @rule(uid=ClusterMachine.pods)
    def what_a_terminating_pod_holds_is_left_as_soon_as_its_containers_have_ended(self, uid: str) -> None:
        pod = self.stored(uid)
        if pod is None or not pod["metadata"].get("deletionTimestamp") or not recount.running(pod) or not self.settled:
            return
        node = pod["spec"]["nodeName"]
        before = self.extender.free().get(node)
        self.a_pod_ends(uid, End.FAILED)
        self.watch_goes_on()
        after = self.extender.free().get(node)
        if after is not None:
            freed = recount.uuids(pod) & recount.healthy(self.published[node])
            assert all(after.get(uuid, 0.0) > (before or {}).get(uuid, 0.0) for uuid in freed)


TestTerminatingPodsHoldTheirGpus = run(TerminatingPodsHoldTheirGpus, share=1.0)
