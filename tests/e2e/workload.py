"""Pods for the hand-off on a real node, placed by kube-scheduler and Linkwise: created, waited for, deleted, and checked against what they were promised.

The fixture `workload` gives one to a test, with the node empty before and after. What a container got is what it says itself
(`tests.e2e.hand_off_checks`).
"""

from collections.abc import Collection
from typing import Any

from tests.builders import PodBuilder, pod
from tests.e2e.api_server import JsonObject
from tests.e2e.checks import check_cluster
from tests.e2e.hand_off_checks import HandOffs, Start
from tests.e2e.node_agent import NodeAgent
from tests.e2e.node_pods import RUN_ON, on_node, wait_printed
from tests.e2e.program import wait_until


class Workload:
    """Pods on the one node, whose agent is ``agent``."""

    def __init__(self, agent: NodeAgent, hand_offs: HandOffs) -> None:
        self.agent = agent
        self.node = agent.node
        self.api = agent.node.plane.api()
        self.hand_offs = hand_offs

    def create(self, *builders: PodBuilder, then: str = RUN_ON, **spec: Any) -> None:
        """Create pods one after the other, as fast as the API server takes them."""
        for builder in builders:
            scheduler = None if builder.node else "linkwise"
            self.api.create(on_node(builder, then, scheduler=scheduler, records=self.hand_offs.records, **spec))

    def run(self, *builders: PodBuilder, then: str = RUN_ON, timeout: float = 60, **spec: Any) -> None:
        """Create pods, and wait until every container of theirs that is not an init container has printed."""
        self.create(*builders, then=then, **spec)
        for builder in builders:
            for container in builder.containers:
                wait_printed(self.node, builder.name, container["name"], timeout=timeout)
        self.note()

    def states(self) -> dict[str, tuple[str, int, str]]:
        """Return phase, restarts and container id of the first container, by pod: what stays the same as long as it runs on."""
        found = {}
        for each in self.api.items("Pod"):
            (status, *_) = each["status"].get("containerStatuses") or [{"restartCount": 0}]
            found[each["metadata"]["name"]] = each["status"]["phase"], status["restartCount"], status.get("containerID", "")
        return found

    def wait_event(self, name: str, reason: str) -> str:
        """Return the message of the first event about a pod with that reason."""
        events = wait_until(lambda: self.api.events(name, reason=reason), 10, f"an event {reason} about {name}")
        return str(events[0]["message"])

    def delete(self, *names: str) -> None:
        """Delete pods with their grace period, without waiting."""
        self.note()
        for name in names:
            self.api.delete("Pod", name, "default")

    def wait_gone(self, *names: str) -> None:
        """Wait until the API server has none of these pods."""
        wait_until(lambda: not {each["metadata"]["name"] for each in self.api.items("Pod")} & set(names), 30, f"{', '.join(names)} are gone")

    def wait_settled(self, living: Collection[str], timeout: float = 90) -> None:
        """Wait until every bound pod runs, every other one was refused for want of room, and no pod is left but these; none may fail."""
        wait_until(lambda: self._settled(self.note(), living), timeout, "every bound pod runs")

    def check(self) -> list[Start]:
        """Check the allocations, and every start so far; returns the starts."""
        check_cluster(self.api)
        self.note()
        return self.hand_offs.check()

    def check_nothing_is_kept(self) -> None:
        """Delete every pod, and let one that wants all GPUs run: nothing is left behind in the extender, the agent or kubelet."""
        self.delete(*(each["metadata"]["name"] for each in self.api.items("Pod")))
        self.run(pod("wants-all").gpus(self.agent.machine.size))
        self.check()

    def note(self) -> list[JsonObject]:
        """Remember what the pods were promised, and return them."""
        pods = self.api.items("Pod")
        self.hand_offs.note(pods)
        return pods

    @staticmethod
    def _settled(pods: list[JsonObject], living: Collection[str]) -> bool:
        failed = {each["metadata"]["name"]: each["status"] for each in pods if each["status"]["phase"] == "Failed"}
        assert not failed, failed
        return all(
            each["metadata"]["name"] in living and (each["status"]["phase"] == "Running" if each["spec"].get("nodeName") else _refused(each))
            for each in pods
        )


def _refused(pod: JsonObject) -> bool:
    return any(each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable" for each in pod["status"].get("conditions", ()))
