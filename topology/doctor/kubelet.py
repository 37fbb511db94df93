"""kubelet's sockets and who else is on them: registration of device plugins, another plugin, PodResources; and the agent's own sockets beside them.

Called by `chain`. A kubelet that starts removes every socket of its directory, so a plugin that does not notice is lost; the agent looks four times a second.
Nothing is registered or allocated by these checks.
"""

from typing import Final

from topology.agent.handoff.asking import why_no_plugin
from topology.agent.handoff.registration import OTHER_PLUGINS
from topology.agent.handoff.wire import KUBELET_SOCKET
from topology.agent.pod_resources import PodResourcesError
from topology.doctor.finding import Finding, broken, ok, skipped
from topology.doctor.node import OUR_SOCKETS, REGISTERED, Node, why_no_answer

_RESTART_AGENT: Final = "restart the agent on this node (`kubectl -n linkwise-system delete pod …`)"
_RATE_LIMIT: Final = "RESOURCE_EXHAUSTED"  # how gRPC tells kubelet's limit of 100 calls a second


def kubelet(node: Node) -> Finding:
    """Check that kubelet takes registrations of device plugins."""
    if node.hand_off == "off":
        return skipped("the hand-off is off")
    directory = node.settings.device_plugin_dir
    if not directory.is_dir():
        return broken(f"{directory} does not exist here", f"start kubelet, or mount {directory} into the agent's pod, under the same name")
    path = directory / KUBELET_SOCKET
    why = why_no_answer(path)
    if why is not None:
        return broken(
            f"kubelet does not listen at {path}: {why}", "start kubelet (`systemctl restart kubelet`) and read its log (`journalctl -u kubelet`)"
        )
    return ok(f"kubelet listens at {path}")


def other_plugin(node: Node) -> Finding:
    """Check that no other device plugin serves the same resource."""
    if node.hand_off == "off":
        return skipped("the hand-off is off, so NVIDIA's device plugin has its place")
    directory = node.settings.device_plugin_dir
    for name in OTHER_PLUGINS:
        if why_no_answer(directory / name) is None:
            return broken(
                f"another device plugin serves {directory / name}, so Linkwise registers nothing",
                "take NVIDIA's device plugin off this node (with the GPU Operator, the label nvidia.com/gpu.deploy.device-plugin=false)",
            )
    return ok("no other device plugin is in the way")


def own_sockets(node: Node) -> Finding:
    """Check that the agent's device plugin answers at its sockets."""
    if node.hand_off == "off":
        return skipped("the hand-off is off")
    directory = node.settings.device_plugin_dir
    paths = sorted(directory.glob(OUR_SOCKETS)) if directory.is_dir() else []
    if not paths:
        return broken(f"the agent has no socket in {directory}, as when kubelet restarted and removed it", _RESTART_AGENT)
    for path in paths:
        why = why_no_answer(path) or why_no_plugin(path)
        if why is not None:
            return broken(f"the agent's device plugin does not answer at {path}: {why}", _RESTART_AGENT)
    return ok(f"the agent's device plugin answers at {', '.join(path.name for path in paths)}")


def registration(node: Node) -> Finding:
    """Check that kubelet listens to the agent's device plugin."""
    if node.hand_off == "off":
        return skipped("the hand-off is off")
    if node.metrics is None:
        return skipped("the agent does not tell")
    registered = node.samples(REGISTERED)
    if not registered:
        return broken("the agent runs without the hand-off", f"set LINKWISE_AGENT_HAND_OFF={node.hand_off} for the agent")
    lost = sorted(resource for resource, value in registered.items() if not value)
    if lost:
        return broken(
            f"kubelet does not listen to the agent's device plugin for {', '.join(lost)}, as just after a restart of kubelet",
            f"wait 10 s and look again; if it stays so, read the agent's log for what kubelet refuses and {_RESTART_AGENT}",
        )
    return ok(f"kubelet listens to {', '.join(sorted(registered))}")


def pod_resources(node: Node) -> Finding:
    """Check that kubelet tells who holds which GPU."""
    claims = node.claims
    if not isinstance(claims, PodResourcesError):
        return ok(f"kubelet answers; {len(claims)} devices are given to containers")
    if claims.absent:
        directory = node.settings.pod_resources_socket.parent
        return broken(str(claims), f"start kubelet, or mount {directory} into the agent's pod")
    if _RATE_LIMIT in str(claims):
        return broken(
            str(claims),
            "find who else asks PodResources so often (monitors of GPUs do) and slow it down: kubelet grants 100 calls a second to all together",
        )
    return broken(str(claims), "read kubelet's log (`journalctl -u kubelet`) and restart it; run this as root")
