"""The agent itself: whether it runs, and what it says of its own health.

Called by `chain`. Its /healthz speaks of the agent alone; a driver or an API server that fails is another link's business.
"""

import httpx

from topology.doctor.finding import Finding, broken, ok, skipped
from topology.doctor.node import Node


def agent(node: Node) -> Finding:
    """Check that the agent answers and calls itself well."""
    port = node.asked.agent_port
    if not port:
        return skipped("the agent serves no /healthz (--agent-port 0)")
    answer = node.ask_agent("/healthz")
    if not isinstance(answer, httpx.Response):
        return broken(
            f"no agent answers at {' or '.join(f'{host}:{port}' for host in ('127.0.0.1', *node.agent_pods))}: {answer}",
            "start the agent on this node (`kubectl -n linkwise-system get pods -o wide`, then its log); run this in its pod, or give --agent-port",
        )
    said = " ".join(answer.text.split())[:200]
    if answer.status_code != httpx.codes.OK:
        return broken(f"the agent is ill: {said}", "read the agent's log and restart it on this node")
    return ok(f"the agent answers at {answer.url.netloc.decode()}: {said}")
