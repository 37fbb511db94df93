"""Why a node does not hand out GPUs: the chain from nvidia-smi to the extender, link by link.

    chain -> hardware, runtime, cdi, kubelet, agent, cluster, extender, images      the checks, each a function of `Node`
             node                                                                     what was asked, and answers that several of them need
             finding                                                                  ok, broken with its cure, or skipped
    printing                                                                          a line a link, or JSON

Called by `linkwise doctor`. Looks and asks; changes nothing. Docs: docs/doctor.md.
"""

from topology.doctor.chain import CHAIN, Examined, Link, examine, first_broken
from topology.doctor.node import Asked

__all__ = ["CHAIN", "Asked", "Examined", "Link", "examine", "first_broken"]
