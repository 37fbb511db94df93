"""The chain from the driver to the extender: the table of its links, in the order in which a broken one breaks those below it.

Called by `linkwise doctor`. Every link is looked at whatever the others are; the first broken one is what to mend first. A new check is a function of `Node`
that returns a `Finding`, and a line in `CHAIN`. A check that fails by itself is a bug and is told as such, and the others go on.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from topology.doctor import agent, cdi, cluster, extender, hardware, images, kubelet, runtime
from topology.doctor.finding import Finding, State, broken
from topology.doctor.node import Asked, Node


@dataclass(frozen=True, slots=True)
class Link:
    """One link: its name, and how it is looked at."""

    name: str
    check: Callable[[Node], Finding]


@dataclass(frozen=True, slots=True)
class Examined:
    """One link, and what was found."""

    link: str
    finding: Finding


CHAIN: Final = (
    Link("nvidia-smi", hardware.driver),
    Link("container runtime", runtime.runtime),
    Link("NVIDIA toolkit", hardware.toolkit),
    Link("CDI directory", cdi.directory),
    Link("NVIDIA's CDI spec", cdi.nvidia),
    Link("kubelet", kubelet.kubelet),
    Link("other device plugin", kubelet.other_plugin),
    Link("agent", agent.agent),
    Link("agent's sockets", kubelet.own_sockets),
    Link("registration", kubelet.registration),
    Link("PodResources", kubelet.pod_resources),
    Link("API server", cluster.api_server),
    Link("GPUTopology", cluster.topology),
    Link("extender", extender.extender),
    Link("node open for pods", extender.node_open),
    Link("images", images.images),
)


def examine(asked: Asked, links: tuple[Link, ...] = CHAIN) -> Iterator[Examined]:
    """Yield what each link is, in order, as soon as it is known."""
    node = Node(asked)
    for link in links:
        yield Examined(link.name, _looked_at(link, node))


def first_broken(chain: list[Examined]) -> Examined | None:
    """Return the link to mend first, None where none is broken."""
    return next((one for one in chain if one.finding.state is State.BROKEN), None)


def _looked_at(link: Link, node: Node) -> Finding:
    try:
        return link.check(node)
    except Exception as error:  # noqa: BLE001  # one check must not take the others with it
        return broken(f"the check itself failed ({type(error).__name__}: {error}), which is a bug in Linkwise", "report it, with this line")
