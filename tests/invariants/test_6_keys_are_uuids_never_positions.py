"""Keys are UUIDs and bus ids, never positions: order and index may change at reboot."""

import json
from typing import Any

from hypothesis.stateful import invariant

from extender import read_api
from extender.sample_machines import sample
from extender.verbs import Verbs
from tests.builders import cluster, extender_on, pod
from tests.invariants import recount
from tests.invariants.machine import KINDS, ClusterMachine, Node, free_gpus, run


def cabling() -> dict[frozenset[str], str]:
    """Link code of every two GPUs by UUID: what no reboot changes."""
    codes = {}
    for name, kind in KINDS.items():
        spec = sample(kind, name).to_object()["spec"]
        for i, gpu in enumerate(spec["gpus"]):
            for j, other in enumerate(spec["gpus"][:i]):
                codes[frozenset((gpu["uuid"], other["uuid"]))] = spec["links"]["gpus"][i][j]
    return codes


CABLING = cabling()


def renumbered(found: dict[str, Any]) -> dict[str, Any]:
    """The pod with nonsense for every index in its allocation."""
    written = recount.allocation(found)
    if written is None:
        return found
    for gpus in written["containers"].values():
        for gpu in gpus:
            gpu["index"] = 99 - gpu["index"]
    metadata = found["metadata"]
    return {**found, "metadata": {**metadata, "annotations": {**metadata["annotations"], recount.KEY: json.dumps(written)}}}


class KeysAreUuids(ClusterMachine):
    @invariant()
    def every_gpu_is_said_to_be_held_by_the_pod_that_it_is_written_on(self) -> None:
        if not self.settled:
            return
        use = recount.use_of_gpus(self.api.pods.values())
        names = {each["metadata"]["uid"]: f"default/{each['metadata']['name']}" for each in self.api.pods.values()}
        for node in self.published:
            for gpu in (read_api.node(self.extender.cluster, node) or {})["gpus"]:
                of_gpu = use.get(gpu["uuid"], {})
                said = {part["pod"]: part["memoryMiB"] for part in gpu["heldBy"]} if isinstance(gpu["heldBy"], list) else {gpu["heldBy"]: recount.ALL}
                assert said == ({names[uid]: mib for uid, mib in of_gpu.items()} or {None: recount.ALL})

    @invariant()
    def the_index_in_an_allocation_means_nothing(self) -> None:
        odd = [renumbered(each) for each in self.api.pods.values()]
        assert free_gpus(self.read(self.published.values(), odd)) == self.rebuilt_free()

    @invariant()
    def a_pair_has_the_link_that_its_allocation_says(self) -> None:
        for found in self.api.pods.values():
            written = recount.allocation(found)
            sets = [frozenset(gpu["uuid"] for gpu in gpus) for gpus in recount.given(found).values()]
            if written is not None and {len(gpus) for gpus in sets} == {2}:
                assert written["worstLink"] in {CABLING[pair] for pair in sets}


TestKeysAreUuids = run(KeysAreUuids, share=0.3)


def held_bits(extender: Verbs) -> int:
    """The GPUs that are held tentatively."""
    (hold,) = extender.cluster.view().holds
    return hold.mask


def test_a_set_held_for_a_scored_pod_is_the_same_gpus_after_a_reboot():
    extender = extender_on(cluster().bridges("pairs"))
    extender.prioritize(pod("first").gpus(2))
    before = extender.gpus_of("pairs")
    held = held_bits(extender)
    extender.cluster.apply_topology(Node("pairs", "bridges", order="backwards").topology())
    now = held_bits(extender)
    after = extender.gpus_of("pairs")
    assert {before[bit] for bit in range(8) if held >> bit & 1} == {after[bit] for bit in range(8) if now >> bit & 1}
