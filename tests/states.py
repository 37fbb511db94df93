"""What a decision reads of a snapshot, as plain data: two snapshots with the same state are the same cluster to Linkwise."""

from extender.demand import read_demand
from extender.snapshot_file import Snapshot
from tests.builders import ClusterBuilder, JsonObject, extender_on
from topology.errors import DemandError


def state_of(snapshot: Snapshot) -> JsonObject:
    """Return everything that a decision reads, as plain data."""
    extender = extender_on(ClusterBuilder(snapshot.topologies, snapshot.pods, snapshot.nodes, snapshot.config_maps))
    view = extender.cluster.view()
    entries = [(entry.uid, entry.namespace, entry.name, entry.node, sorted(entry.uuids), entry.state) for entry in extender.cluster.ledger]
    return {
        "problems": extender.problems,
        "free": dict(zip(view.names, view.free.tolist(), strict=True)),
        "left": dict(zip(view.names, zip(view.cpu_left.tolist(), view.memory_left.tolist(), strict=True), strict=True)),
        "nodes": {name: extender.cluster.node_of(name) for name in extender.cluster.node_names()},
        "closed": dict(zip(view.names, zip(view.closed.tolist(), view.closed_by, strict=True), strict=True)),
        "holders": sorted(entries),
        "shares": {entry.uid: dict(entry.shares) for entry in extender.cluster.ledger},
        "left of GPUs": dict(zip(view.names, view.left.tolist(), strict=True)),
        "demands": [demand_of(raw) for raw in snapshot.pods],
    }


def demand_of(raw: JsonObject) -> object:
    try:
        return read_demand(raw)
    except DemandError as error:
        return str(error)
