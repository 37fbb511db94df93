"""The same state and the same call give the same answer.

Other UUIDs in the same order change only the UUIDs; permuting the GPUs leaves bandwidth, worst link and worth of the remainder unchanged (the set may be
another of equal value). Scores stay the same as well where all GPUs of a node are alike. Of unlike cards that are equal by their links the first is taken, and a larger card costs the pods to come
more: there nodes are not compared with each other.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.invariants import recount
from tests.invariants.api_server import ApiServer, nobody_listens
from tests.invariants.machine import CARDS, NODES, ORDERS, WANTED, ClusterMachine, JsonObject, Wanted, run


@dataclass(frozen=True)
class Walk:
    """What filter, prioritize and bind answered, and what came of it."""

    filtered: JsonObject
    scores: list[JsonObject]
    allocation: JsonObject | None
    worth_left: float | None


class TheSameStateGivesTheSameAnswer(ClusterMachine):
    @rule(wanted=WANTED, order=st.sampled_from(list(ORDERS)))
    def the_same_call_comes_to_equal_clusters(self, wanted: Wanted, order: str) -> None:
        asking = wanted.named("asking")
        topologies, pods = list(self.published.values()), list(self.api.pods.values())
        first = self._walk(topologies, pods, asking)
        assert self._walk(topologies, pods, asking) == first
        renamed = json.loads(json.dumps([topologies, pods]).replace("GPU-", "GPU-other-"))
        assert json.loads(json.dumps(self._walk(*renamed, asking).__dict__).replace("GPU-other-", "GPU-")) == first.__dict__
        permuted = {name: replace(self.nodes[name], order=order).topology() for name in self.published}
        alike = [self.published[name] if name in CARDS else each for name, each in permuted.items()]
        self._check_equal_value(first, self._walk(alike, pods, asking))
        for name in CARDS.keys() & permuted.keys():
            alone = self._walk(topologies, pods, asking, (name,)), self._walk(list(permuted.values()), pods, asking, (name,))
            self._check_equal_value(*alone)

    def _check_equal_value(self, first: Walk, other: Walk) -> None:
        assert other.filtered == first.filtered
        assert other.scores == first.scores
        assert (other.allocation is None) == (first.allocation is None)
        if first.allocation is not None and other.allocation is not None:
            for value in ("node", "bandwidthGBps", "worstLink"):
                assert other.allocation.get(value) == first.allocation.get(value)
            assert other.worth_left == first.worth_left

    def _walk(self, topologies: Iterable[JsonObject], pods: Iterable[JsonObject], asking: JsonObject, names: Sequence[str] = NODES) -> Walk:
        """One pod's walk on a cluster of its own, to one of those nodes."""
        api = ApiServer(self._clock, nobody_listens, pods={each["metadata"]["name"]: each for each in pods})
        process = self.started(self.read(topologies, api.pods.values()), api)
        api.create(asking)
        call = json.dumps({"Pod": asking, "NodeNames": list(names)}).encode()
        filtered, scores = process.verbs.filter(call), process.verbs.prioritize(call)
        assert (process.verbs.filter(call), process.verbs.prioritize(call)) == (filtered, scores), "asked twice"
        fitting: list[str] = json.loads(filtered)["NodeNames"]
        if not fitting:
            return Walk(json.loads(filtered), json.loads(scores), None, None)
        score = {each["Host"]: each["Score"] for each in json.loads(scores)}
        node = max(fitting, key=lambda name: score[name])
        body: dict[str, Any] = {"PodNamespace": "default", "PodName": "asking", "PodUID": asking["metadata"]["uid"], "Node": node}
        error = json.loads(self.loop.run_until_complete(process.verbs.bind(json.dumps(body).encode())))["Error"]
        assert not error or "is not bound to node plugin yet" in error, "gpushare's plugin could not tell it from another"
        view = process.cluster.view()
        row = view.row_of[node]
        worth = float(view.classes[view.class_index[row]].worth[view.free[row]])
        return Walk(json.loads(filtered), json.loads(scores), recount.allocation(api.pods["asking"]), round(worth, 6))


TestTheSameStateGivesTheSameAnswer = run(TheSameStateGivesTheSameAnswer, share=0.25)
