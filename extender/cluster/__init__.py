"""The state of the cluster: columns (arrays, one row a node), the ledger of promises, and the immutable view that readers get.

Only the ledger mutates; `Cluster` is the door through which objects of the API (or of a snapshot) and promises come in.
"""

from extender.cluster.charges import Charges, charges
from extender.cluster.columns import NO_CLASS, UNKNOWN, NodeGpus
from extender.cluster.hosts import NodeFacts
from extender.cluster.ledger import Entry, EntryState
from extender.cluster.pods import RefusedPod
from extender.cluster.state import Cluster
from extender.cluster.view import Room, TentativeHold, View

__all__ = [
    "NO_CLASS",
    "UNKNOWN",
    "Charges",
    "Cluster",
    "Entry",
    "EntryState",
    "NodeFacts",
    "NodeGpus",
    "RefusedPod",
    "Room",
    "TentativeHold",
    "View",
    "charges",
]
