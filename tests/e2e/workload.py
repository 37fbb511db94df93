"""Pods for the hand-off on a real node, placed by kube-scheduler and Linkwise: created, waited for, deleted, and checked against what they were promised.

The fixture `workload` gives one to a test, with the node empty before and after. What a container got is what it says itself
(`tests.e2e.hand_off_checks`).
"""

import json
import time
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tests.builders import PodBuilder, pod
from tests.e2e.api_server import JsonObject
from tests.e2e.checks import check_cluster
from tests.e2e.hand_off_checks import HandOffs, Start
from tests.e2e.node_agent import NodeGpus
from tests.e2e.node_pods import RUN_ON, on_node, wait_printed
from tests.e2e.program import wait_until
from topology.agent.pod_resources import list_claims


class Workload:
    """Pods on the one node, whose agent is ``agent``."""

    def __init__(self, agent: NodeGpus, hand_offs: HandOffs) -> None:
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

    def hurry(self, name: str) -> None:
        """Let kubelet try again now to start a pod's containers: any change of the pod makes it; by itself it does so every ten to fifteen seconds."""
        self.api.patch("Pod", name, {"metadata": {"labels": {"hurried": str(time.monotonic_ns())}}}, "default")

    def delete(self, *names: str) -> None:
        """Delete pods with their grace period, without waiting."""
        self.note()
        for name in names:
            answer = self.api.delete("Pod", name, "default")
            if answer.get("kind") == "Pod":  # as it was in that moment: bound since then, it may even start
                self.hand_offs.note([answer])

    def crash(self, name: str) -> None:
        """Kill the first container of a pod, as a bug in it would."""
        status = self.api.get("Pod", name)["status"]["containerStatuses"][0]
        self.node.containerd.ctr("tasks", "kill", "--signal", "SIGKILL", status["containerID"].removeprefix("containerd://"))

    def wait_gone(self, *names: str) -> None:
        """Wait until the API server has none of these pods."""
        wait_until(lambda: not {each["metadata"]["name"] for each in self.api.items("Pod")} & set(names), 30, f"{', '.join(names)} are gone")

    def check(self, gone: Collection[str] = ()) -> list[Start]:
        """Check the allocations, and every start so far; returns the starts. ``gone`` as in `HandOffs.check`."""
        check_cluster(self.api)
        self.note()
        return self.hand_offs.check(gone)

    def check_told(self) -> list[str]:
        """Check that the agent's holders have what they were promised; return kubelet's ids that it gave to two pods.

        kubelet does so now and then where PodResources is listed in the moment of an Allocate, as it is here (`handoff.identity`); what the containers see is another matter.
        """
        topology, claims = self.agent.topology(), list_claims(self.node.kubelet.pod_resources)
        self.note()  # afterwards: who is told of was there
        wrong = self.hand_offs.wrongly_told(topology)
        assert not wrong, "\n".join(wrong)
        pods: dict[str, set[str]] = defaultdict(set)
        for claim in claims:
            pods[claim.device].add(claim.pod)
        return [f"{device} to {', '.join(sorted(names))}" for device, names in sorted(pods.items()) if len(names) > 1]

    def check_nothing_is_kept(self) -> None:
        """Delete every pod, and let one that wants all GPUs run: nothing is left behind in the extender, the agent or kubelet."""
        self.delete(*(each["metadata"]["name"] for each in self.api.items("Pod")))
        self.run(pod("wants-all").gpus(self.agent.machine.size))
        self.check()
        wait_until(lambda: set(self._left().values()) == {1}, 10, "one token, one spec and one holder are left")

    def _left(self) -> dict[str, int]:
        """Return how much there is of what a container leaves on the node."""
        tokens = [_read(path) for path in (self.agent.state / "tokens").glob("*.json")]
        holders = {holder["uid"] for gpu in self.agent.topology()["status"]["gpus"] for holder in gpu.get("holders", ())}
        return {
            "tokens": sum(1 for token in tokens if token.get("holding") is not None),  # one that never started is kept for a minute
            "files": sum(1 for _ in (self.agent.state / "containers").iterdir()),
            "specs": sum(1 for _ in self.node.cdi.glob("linkwise.dev-*.json")),
            "holders": len(holders),
        }

    def note(self) -> list[JsonObject]:
        """Remember what the pods were promised, and return them."""
        pods = self.api.items("Pod")
        self.hand_offs.note(pods)
        return pods


def _read(path: Path) -> JsonObject:
    """Return what a file holds, nothing where it has just gone."""
    try:
        found: JsonObject = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return found
