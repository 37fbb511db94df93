"""Terminating pods hold their GPUs until their containers have ended."""

from hypothesis.stateful import invariant, rule

from tests.invariants import recount
from tests.invariants.machine import ClusterMachine, End, run


class TerminatingPodsHoldTheirGpus(ClusterMachine):
    @invariant()
    def no_gpu_of_a_terminating_pod_is_free(self) -> None:
        terminating = [pod for pod in self.api.pods.values() if pod["metadata"].get("deletionTimestamp") and recount.running(pod)]
        held = {uuid for pod in terminating for uuid in recount.uuids(pod)}
        for free in self.extender.free().values():
            assert not (free or set()) & held

    @rule(uid=ClusterMachine.pods)
    def gpus_of_a_terminating_pod_are_free_as_soon_as_its_containers_have_ended(self, uid: str) -> None:
        pod = self.stored(uid)
        if pod is None or not pod["metadata"].get("deletionTimestamp") or not recount.running(pod) or not self.settled:
            return
        self.a_pod_ends(uid, End.FAILED)
        self.watch_goes_on()
        free = self.extender.free().get(pod["spec"]["nodeName"])
        if free is not None:
            assert recount.uuids(pod) & recount.healthy(self.published[pod["spec"]["nodeName"]]) <= free


TestTerminatingPodsHoldTheirGpus = run(TerminatingPodsHoldTheirGpus)
