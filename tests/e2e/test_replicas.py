"""Two replicas: one leads, and another takes over when it is stopped, killed or asked to end; meanwhile no GPU is ever promised twice.

kube-scheduler reaches the one that leads through `leader_service`, by the label that the leader puts on its own pod.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic

import pytest

from tests.builders import pod
from tests.e2e.calls import HTTP
from tests.e2e.checks import check_cluster, check_extender
from tests.e2e.control_plane import NAMESPACE, ControlPlane
from tests.e2e.extender import RunningExtender, serve, shipped_configuration
from tests.e2e.leader_service import LEADER, LeaderService
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.objects import pod_object
from tests.e2e.program import wait_until

pytestmark = pytest.mark.alone

NODES = tuple(f"node-{number}" for number in range(20))
PODS = 8 * len(NODES)
GOES_ON_S = 20
GIVEN_UP_S = 10  # below the lease's 12 s
NAMES = ("linkwise-extender-a", "linkwise-extender-b")


@dataclass(frozen=True)
class Pair:
    """The two replicas by the names of their pods, and the Service in front of them."""

    cluster: LiveCluster
    replicas: dict[str, RunningExtender]
    service: LeaderService

    def labelled(self) -> list[str]:
        """Return the pods with the leader label."""
        return [item["metadata"]["name"] for item in self.cluster.api.items("Pod", NAMESPACE, labels=f"{LEADER}=true")]

    def leader(self) -> str:
        """Return the pod of the replica that leads, once there is one."""
        return wait_until(self.service.endpoint, 30, "a replica leads")

    def other(self, name: str) -> str:
        """Return the pod of the other replica."""
        return next(other for other in self.replicas if other != name)

    def bound(self) -> int:
        """Return how many pods are bound."""
        return sum(bool(item["spec"].get("nodeName")) for item in self.cluster.api.items("Pod", "default"))


@pytest.fixture
def pair(live: LiveCluster, control_plane: ControlPlane, accounts: None) -> Iterator[Pair]:
    """Run two replicas as pods have them, each with its own name, and kube-scheduler in front of their Service."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: live.make_machine("dgx1v", name), NODES))
    replicas: dict[str, RunningExtender] = {}
    for name in NAMES:
        live.api.create(pod_object(pod(name, NAMESPACE).plain(), scheduler="nobody"))
        replicas[name] = serve(control_plane, environment={"POD_NAME": name, "POD_NAMESPACE": NAMESPACE})
    for replica in replicas.values():
        replica.wait_ready()
    with LeaderService(live.api, replicas) as service:
        pair = Pair(live, replicas, service)
        pair.leader()
        control_plane.start_scheduler(shipped_configuration(service.url))
        yield pair
        live.plane.stop_extras()


def wait_more(pair: Pair, before: int, since: float, timeout: float = GOES_ON_S + 10) -> float:
    """Wait until more pods are bound than before; returns the seconds since then."""
    wait_until(lambda: pair.bound() > before, timeout, "another pod is bound")
    return monotonic() - since


def finish(pair: Pair) -> None:
    """Wait until every pod is bound, and check that every replica knows what the pods say."""
    wait_until(lambda: pair.bound() == PODS, 90, "all are bound")
    check_cluster(pair.cluster.api)
    for replica in pair.replicas.values():
        check_extender(replica, pair.cluster.api)


def sends_away(replica: RunningExtender) -> None:
    """Check that a replica that does not lead is ready to, and answers no verb."""
    assert replica.ready()
    for verb, call in (
        ("filter", {"Pod": pod("a").gpus(1).build(), "NodeNames": ["node-1"]}),
        ("bind", {"PodNamespace": "default", "PodName": "a", "PodUID": "uid", "Node": "node-1"}),
    ):
        answer = HTTP.post(f"{replica.url}/{verb}", json=call)
        assert answer.json()["Error"] == "this replica does not lead; the Service reaches the one that does"
        assert answer.headers["connection"] == "close"


def test_a_leader_that_is_stopped_past_its_lease_and_goes_on_promises_nothing_twice(pair: Pair) -> None:
    first = pair.leader()
    second = pair.other(first)
    sends_away(pair.replicas[second])
    with ThreadPoolExecutor(1) as pool:
        making = pool.submit(pair.cluster.make_pods, [pod(f"pod-{number}").gpus(1) for number in range(PODS)])
        wait_until(lambda: pair.bound() > 30, 30, "the storm is under way")
        pair.replicas[first].program.pause()
        stopped_at = monotonic()
        wait_until(lambda: pair.labelled() == [second], 30, "the other one leads")
        before = pair.bound()
        seconds = wait_more(pair, before, stopped_at)
        making.result()
    pair.replicas[first].program.resume()
    finish(pair)
    assert seconds < GOES_ON_S, "binding goes on"
    assert pair.labelled() == [second]
    sends_away(pair.replicas[first])


def test_another_takes_over_at_once_from_a_leader_that_is_asked_to_end(pair: Pair) -> None:
    first = pair.leader()
    with ThreadPoolExecutor(1) as pool:
        making = pool.submit(pair.cluster.make_pods, [pod(f"pod-{number}").gpus(1) for number in range(PODS)])
        wait_until(lambda: pair.bound() > 30, 30, "the storm is under way")
        ended_at = monotonic()
        assert pair.replicas[first].stop() == 0
        before = pair.bound()
        seconds = wait_more(pair, before, ended_at)
        making.result()
    pair.replicas[first].start().wait_ready()
    finish(pair)
    assert seconds < GIVEN_UP_S, "it gives the lease up"
    assert pair.labelled() == [pair.other(first)]
