"""Filter, prioritize and bind share one code path for "does it fit": they cannot disagree on the same state."""

from hypothesis.stateful import rule

from extender import explain
from tests.builders import cluster, extender_on, pod
from tests.invariants.api_server import Answer
from tests.invariants.machine import NODES, WANTED, ClusterMachine, Wanted, run


class FilterPrioritizeAndBindCannotDisagree(ClusterMachine):
    @rule(target=ClusterMachine.pods, wanted=WANTED)
    def all_verbs_are_asked_about_all_nodes(self, wanted: Wanted) -> str:
        uid = self._create(wanted, f"pod-{len(self.made)}")
        fitting = self.filtered(uid)
        scores = self.scored(uid)
        assert [node for node in NODES if scores[node] == 10] == [] if not fitting else sum(score == 10 for score in scores.values()) == 1
        assert all(scores[node] == 0 for node in NODES if node not in fitting)
        posted = [node for node in NODES if self._bind_would_be_posted(uid, node)]
        assert posted == fitting
        told = explain.to_object(self.extender.verbs.evaluate(self.made[uid]), self.extender.verbs.placement)
        assert {node["node"] for node in told["nodes"] if node["fits"]} == set(fitting)
        assert self.filtered(uid) == fitting, "a refused bind leaves no trace"
        return uid

    def _bind_would_be_posted(self, uid: str, node: str) -> bool:
        """Bind with an API server that refuses: the only way to ask for nothing."""
        before = len(self.api.posts)
        self.api.answers[uid] = [Answer.REFUSED]
        (error,) = self.bound((uid, node))
        posted = len(self.api.posts) > before
        waits = "is not bound to node" in error  # so that gpushare's plugin cannot mistake it for another
        assert waits or ("was refused" if posted else "does not fit") in error
        return posted or waits


TestFilterPrioritizeAndBindCannotDisagree = run(FilterPrioritizeAndBindCannotDisagree, share=0.5)


async def test_a_pod_that_cannot_be_understood_any_more_is_not_bound_as_what_it_was_before():
    asked = pod("asked").gpus(2)
    extender = extender_on(cluster().bridges("node"))
    assert extender.filter(asked)["NodeNames"] == ["node"]
    assert extender.filter(asked.annotated(min_bandwidth="fast"))["NodeNames"] == []
    assert await extender.bind(asked, "node") != ""
    assert extender.free("node") == list(range(8))
