"""`linkwise doctor` on a real node: real kubelet, containerd, agent, API server and extender; each is stopped in turn and named as the first broken link.

It runs on the node as an administrator would run it, as root, with the agent's account. NVIDIA's toolkit is stood in for by the CDI spec that it writes.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.builders import pod
from tests.e2e.extender import RunningExtender
from tests.e2e.node_agent import NodeAgent
from tests.e2e.node_pods import on_node, wait_printed
from tests.e2e.program import wait_until
from topology.agent.container_runtime import running_containers, runtime_at


def doctor(agent: NodeAgent, extender: RunningExtender, directory: Path) -> dict[str, Any]:
    """Return what it says, as JSON."""
    devices = [{"name": uuid, "containerEdits": {"env": ["SEEN=1"]}} for uuid in agent.uuids]
    (directory / "nvidia.json").write_text(json.dumps({"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": devices}))
    environment = {**os.environ, **agent._environment, "LINKWISE_AGENT_NVIDIA_CDI_DIRS": json.dumps([str(directory)])}
    arguments = [argument if argument != "agent" else "doctor" for argument in agent._command]
    at = arguments.index("--sysfs-root")
    environment["LINKWISE_AGENT_SYSFS_ROOT"] = str(arguments[at + 1])
    del arguments[at : at + 2]
    command = agent.node.enclosure.entering([*arguments, "--server", extender.url, "--output", "json"])
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.stdout, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if told["firstBroken"] is None else 1), done.stderr
    return told


def broken(told: dict[str, Any]) -> dict[str, str]:
    """Return the broken links and what they say."""
    return {one["link"]: one["message"] for one in told["links"] if one["state"] == "broken"}


def test_what_is_stopped_on_a_real_node_is_named(node_agent: NodeAgent, extender: RunningExtender, tmp_path: Path) -> None:
    """All is well; then kubelet is stopped, then the agent; then both are back."""
    node = node_agent.node

    def healthy() -> bool:
        told = doctor(node_agent, extender, tmp_path)
        assert {one["link"] for one in told["links"] if one["state"] == "skipped"} == set(), told
        return told["firstBroken"] is None

    wait_until(healthy, 30, "every link is whole")

    node.kubelet.program.stop()
    told = doctor(node_agent, extender, tmp_path)
    assert told["firstBroken"] == "kubelet", broken(told)
    assert "PodResources" in broken(told)
    node.kubelet.start()
    node.wait_ready()
    wait_until(healthy, 60, "every link is whole once kubelet is back")

    node_agent.stop()
    told = doctor(node_agent, extender, tmp_path)
    assert told["firstBroken"] == "agent", broken(told)
    assert "agent's sockets" in broken(told)
    node_agent.restart()
    wait_until(healthy, 60, "every link is whole once the agent is back")


def test_containerd_tells_what_the_checks_read(node_agent: NodeAgent, tmp_path: Path) -> None:
    """Its configuration with CDI, and of a container the variable and the OCI runtime; `all` in an image that runc starts is not told as a grab."""
    node = node_agent.node
    socket = node.enclosure.run / "containerd" / "containerd.sock"
    found = runtime_at(socket)
    assert (found.name, found.cdi_dirs) == ("containerd", ("/var/run/cdi",))
    assert found.cdi is not False
    assert found.programs is not None
    assert found.programs["runc"].endswith("runc")

    item = on_node(pod("grabs").plain("main").bound_to(node.name))
    item["spec"]["containers"][0].setdefault("env", []).append({"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"})
    node.plane.api().apply(item)
    wait_printed(node, "grabs")
    [one] = [each for each in running_containers(socket) if each.pod == "grabs"]
    assert (one.namespace, one.name, one.environment["NVIDIA_VISIBLE_DEVICES"]) == ("default", "main", "all")
    assert one.program.endswith("runc")
    node.clear()
