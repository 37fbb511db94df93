"""The door of the state: objects of the API come in, views go out, promises go through to the ledger.

A source (`snapshot_file`, an API server's watch) calls `apply_topology`, `apply_node`, `apply_pod` and their `remove_…` twins with raw objects, in
any order and as often as it likes: each call says what is true now, so a repeated or a missed event is repaired by the next one. Anything that cannot
be read closes its node by name and is never dropped. Who decides about GPUs reads `view()` and writes through `ledger`.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import Any

import numpy as np

from extender.cluster.charges import Charges, charges, shares_of
from extender.cluster.closures import Closures
from extender.cluster.columns import NO_CLASS, NO_GPUS, NOT_TOLD, Columns, NodeGpus
from extender.cluster.gone import FEWEST_CLASSES, FEWEST_ROWS, Gone
from extender.cluster.gpushare_nodes import PluginNodes, Served
from extender.cluster.hosts import NodeFacts, read_node
from extender.cluster.kubelet_refusals import KubeletRefusals
from extender.cluster.ledger import Entry, EntryState, Ledger
from extender.cluster.machines import Machines, NodeTopology, microseconds
from extender.cluster.observed import Difference, ObservedHolders
from extender.cluster.pods import BoundPod, PlainPod, has_ended, kept, name_of, node_of, read_bound_pod, read_plain_pod, uid_of
from extender.cluster.startup_taint import Awaited, StartupTaints, TaintedNode, awaited
from extender.cluster.view import TentativeHold, View
from extender.cluster.views import Views
from extender.handoff import native
from extender.handoff.gpushare_order import Assumed, AssumeOrder, Turn
from extender.reasons import Refusal
from extender.requests import Requests, read_requests
from topology.api import GPUTopology
from topology.collective import Depth
from topology.errors import TopologyError
from topology.topology_class import TopologyClass


class Cluster:
    """The state of all GPU nodes; lives on one event loop, so it needs no locks."""

    def __init__(
        self,
        whole_gpu_resource: str,
        clock: Callable[[], float],
        *,
        needs_observation: bool = False,
        depth: Depth = Depth.SOON,
        reserve_mib: int = 0,
    ) -> None:
        """``needs_observation``: a node takes no pods before its agent has said in what state its GPUs are.

        ``depth``: how far a new class of nodes is worked out before its nodes open; further is the business of whoever calls `deepen`. ``reserve_mib``: of
        each GPU's memory, what is not given away in shares.
        """
        self.depth = depth
        self._reserve_mib = reserve_mib
        self._shallow: dict[str, TopologyClass] = {}
        self._resource = whole_gpu_resource
        self._needs_observation = needs_observation
        self._clock = clock
        self._columns = Columns()
        self.ledger = Ledger(self._columns)
        self._observed = ObservedHolders(self.ledger)
        self._bound: dict[str, dict[str, BoundPod]] = {}  # node -> uid -> pod, all that use GPUs
        self._node_of_pod: dict[str, str] = {}
        self._closures = Closures(self._columns)
        self._machines = Machines()
        self._topologies: dict[str, NodeTopology] = {}
        self.gpushare = PluginNodes()  # written here alone; others read
        self.assume_order = AssumeOrder(clock, time.time_ns)
        self._startup_taints = StartupTaints()
        self.kubelet_refusals = KubeletRefusals(self._columns, clock)  # ended here alone
        self._views = Views(self._columns, clock)
        self._gone = Gone(self._columns)
        self.allocation_edits = 0  # seen on bound pods and not believed
        self._edited: deque[BoundPod] = deque(maxlen=1000)
        self._arrived: list[BoundPod] = []
        self._edits: dict[str, str | None] = {}  # uid -> the edited allocation that was told

    # --- topologies -------------------------------------------------------------------------------------------------

    def apply_topology(self, raw: Mapping[str, Any]) -> str | None:
        """Take in a GPUTopology object; returns a sentence for people where it cannot be read (its node is closed then)."""
        try:
            topology = self._machines.read(raw)
        except TopologyError as error:
            name = name_of(raw)
            if name:
                self._forget_topology(name)
                self._closures.close(name, "topology", Refusal.TOPOLOGY_UNREADABLE, str(error))
            return str(error)
        before = self._topologies.get(topology.name)
        self._topologies[topology.name] = topology
        row, looked_at = self._columns.row(topology.name), topology.observed_at  # the row first: a new one may move the array
        if before is None or before.observed_at != looked_at:  # told once more, by a list, it is no news, whatever was made of it (`close_stale`)
            self._columns.heard_us[row] = NOT_TOLD if looked_at is None else microseconds(looked_at)
        if before is not None and before.is_same_for_placement(topology):
            self._hear(topology.name)
        else:
            self._take_in(topology)
        return None

    def _hear(self, node: str) -> None:
        """Take in a heartbeat: it costs no cached answer and wakes nobody, unless the node is closed for want of a later observation."""
        for pod in tuple(self._bound.get(node, {}).values()):
            if self._observed.is_in_doubt(pod.uid):
                self._count_pod(pod)
        self._update_observed(node)

    def _take_in(self, topology: NodeTopology) -> None:
        columns, row, machine = self._columns, self._columns.row(topology.name), topology.machine
        kind = machine.topology_class(self.depth)
        if self.depth is not Depth.AT_ONCE:
            kind.prepare()
        if kind.next_depth is not None:
            self._shallow[kind.key] = kind
        columns.class_index[row] = columns.class_number(kind)
        served = self.gpushare.look_at(topology.name, topology)
        self._set_gpus(row, served.limit(topology.gpus(self._reserve_mib), self._reserve_mib))
        gpus = columns.gpus[row]
        columns.usable[row] = ((1 << kind.size) - 1) & ~gpus.mask_of(topology.unhealthy) & ~machine.sliced & ~gpus.mask_of(served.unhealthy)
        columns.touch(row)
        self._closures.open(topology.name, "topology")
        self._show_plugin(topology.name, served)
        self._closures.show(topology.name)
        self._go_by_status(topology)
        self._recount(topology.name)

    def shallow_classes(self) -> list[TopologyClass]:
        """Return the classes whose tables do not tell all that there is."""
        return list(self._shallow.values())

    def deepen(self, kind: TopologyClass) -> None:
        """Go by the deeper tables of a class from now on: to everybody who remembers answers its nodes have changed."""
        known = self._shallow.pop(kind.key, None)
        if known is not None and kind.next_depth is not None:
            self._shallow[kind.key] = kind
        for row in self._columns.deepen(kind):
            self._columns.touch(row)

    def _go_by_status(self, topology: NodeTopology) -> None:
        """Close a node whose agent has written what there is but not yet in what state, or tells that kubelet does not know it; open it at once when it has."""
        closures, name = self._closures, topology.name
        if self._needs_observation and topology.observed_at is None and name in self._topologies:
            closures.close(name, "observation", Refusal.STALE, "not heard of yet")
        else:
            closures.open(name, "observation")
        if topology.rejecting:
            closures.close(name, "hand-off", Refusal.NO_HAND_OFF, topology.rejecting)
        else:
            closures.open(name, "hand-off")

    def remove_topology(self, name: str) -> None:
        """Take a GPUTopology out: its node takes no new pods, what runs there stays counted."""
        if name in self._columns.row_of:
            self._forget_topology(name)
            for key in ("topology", "observation", "hand-off", "agent"):
                self._closures.open(name, key)
            self._columns.silent[self._columns.row_of[name]] = False
            stand_in = self.gpushare.stand_in(name)
            if stand_in is not None:
                self._take_in(NodeTopology.of(stand_in))

    def _forget_topology(self, name: str) -> None:
        self._topologies.pop(name, None)
        row = self._columns.row(name)
        self._columns.heard_us[row] = NOT_TOLD
        self._columns.class_index[row] = NO_CLASS
        self._set_gpus(row, NO_GPUS)
        self._columns.usable[row] = 0
        self._columns.touch(row)
        self._show_plugin(name, self.gpushare.look_at(name, None))
        self._closures.show(name)
        self._recount(name)

    def _set_gpus(self, row: int, gpus: NodeGpus) -> None:
        """Replace the identities of a node's GPUs; a set held for a scored pod stays the same GPUs, wherever they stand now."""
        self._views.rename(row, self._columns.gpus[row], gpus)
        self._columns.set_gpus(row, gpus)

    # --- nodes ------------------------------------------------------------------------------------------------------

    def apply_node(self, raw: Mapping[str, Any]) -> None:
        """Take in a Node as it is now: what it has to give beside GPUs, and what gpushare's device plugin says of them."""
        name = name_of(raw)
        if name:
            self.ledger.hosts.set_node(name, read_node(raw))
            self._startup_taints.apply(name, raw)
            self._look_again(self.gpushare.apply_node(name, raw))

    def remove_node(self, name: str) -> None:
        """Take a Node out that is gone; what its GPUTopology and its pods say stays."""
        self.ledger.hosts.drop_node(name)
        self._startup_taints.remove(name)
        self._look_again(self.gpushare.remove_node(name))

    def node_of(self, name: str) -> NodeFacts | None:
        """Return what was read of that Node, None where none was seen."""
        return self.ledger.hosts.facts_of(name)

    def tainted(self, now: datetime, stale_after_s: float) -> list[tuple[TaintedNode, Awaited]]:
        """Return the Nodes that carry the startup taint, and what each still waits for; an agent that has been silent for ``stale_after_s`` is not there."""
        return [(node, awaited(node, self._topologies.get(node.name), now, stale_after_s)) for node in self._startup_taints]

    def node_names(self) -> set[str]:
        """Return the names of the Nodes that were seen."""
        return self.ledger.hosts.nodes()

    # --- gpushare's device plugin -----------------------------------------------------------------------------------

    def apply_config_map(self, raw: Mapping[str, Any]) -> None:
        """Take in a ConfigMap; only those that tell of a node's unhealthy GPUs mean something."""
        self._look_again(self.gpushare.apply_config_map(raw))

    def remove_config_map(self, name: str) -> None:
        """Take a ConfigMap of that name out."""
        self._look_again(self.gpushare.remove_config_map(name))

    def _look_again(self, nodes: AbstractSet[str]) -> None:
        """Take in what else is known now of nodes that gpushare's plugin serves, or did."""
        for node in sorted(nodes):
            unreadable = self._closures.has(node, "topology")
            topology = self._topologies.get(node)
            stand_in = None if topology is not None or unreadable else self.gpushare.stand_in(node)
            if stand_in is not None:
                topology = NodeTopology.of(stand_in)
            if topology is not None:
                self._take_in(topology)
            elif node in self._columns.row_of or self.gpushare.look_at(node, None).problem:
                self._forget_topology(node)

    def _show_plugin(self, node: str, served: Served) -> None:
        if served.problem:
            self._closures.close(node, "gpushare", Refusal.GPUSHARE_UNCLEAR, served.problem)
        else:
            self._closures.open(node, "gpushare")

    # --- pods -------------------------------------------------------------------------------------------------------

    def apply_pod(self, raw: Mapping[str, Any]) -> None:
        """Take in a pod as it is now: it holds GPUs, CPU and memory while it is bound and has not ended, and then no longer."""
        plain = read_plain_pod(raw)
        if plain is not None and not self.knows(plain.uid):
            self._count_plain(plain)
            return
        requests = read_requests(raw)
        self._count_requests(raw, requests)
        pod = read_bound_pod(raw, self._resource, requests)
        if pod is None:
            self._pod_holds_nothing(raw)
            return
        if self._node_of_pod.get(pod.uid, pod.node) != pod.node:
            self._take_out(pod.uid)
        if pod.uid not in self._node_of_pod:
            self._observed.came(pod, self._topologies.get(pod.node))
            self._arrived.append(pod)
        pod = self._unedited(pod)
        there = self._bound.setdefault(pod.node, {})
        there[pod.uid] = kept(pod, there.get(pod.uid))
        self._node_of_pod[pod.uid] = there[pod.uid].node
        self.unhold(pod.uid)
        self._count_pod(pod)
        self._note_assumed(pod)
        self._update_observed(pod.node)

    def knows(self, uid: str) -> bool:
        """Tell whether anything here may be about that pod, beside what it requests of its node."""
        return uid in self._node_of_pod or self._views.holds_for(uid) or self.ledger.get(uid) is not None

    def _count_plain(self, pod: PlainPod) -> None:
        """Count a pod that has nothing to do with GPUs, as nearly all pods of most clusters."""
        if pod.ended:
            self.ledger.hosts.release(pod.uid)
        elif pod.node:
            self.ledger.hosts.charge(pod.uid, pod.node, pod.requests)

    def _note_assumed(self, pod: BoundPod) -> None:
        """Note how far a pod of gpushare's plugin has come with it."""
        share = pod.share
        if share is None or (share.assigned and not pod.pending):
            self.assume_order.settle(pod.uid)
        else:
            turn = Turn.ASSIGNED if share.assigned else Turn.WAITS if pod.pending else Turn.RAN
            assumed = Assumed(pod.uid, f"{pod.namespace}/{pod.name}", share.units, share.index)
            self.assume_order.saw(pod.node, assumed, share.assume_time, turn)

    def remove_pod(self, uid: str, *, ended: bool = True, deleted: datetime | None = None) -> None:
        """Take a pod out that is gone: its GPUs are free at once, unless its containers may run on and the node's agent can tell."""
        self.ledger.hosts.release(uid)
        self._take_out(uid, ended=ended, deleted=deleted)

    def _take_out(self, uid: str, *, ended: bool = True, deleted: datetime | None = None) -> None:
        """Take a pod out as a holder of GPUs, and as nothing else."""
        self.unhold(uid)
        self.assume_order.settle(uid)
        self._edits.pop(uid, None)
        self._observed.went(uid)
        node = self._node_of_pod.pop(uid, None)
        pod = None if node is None else self._bound[node].pop(uid, None)
        if ended or not self._observed.keep(uid, self._topologies, deleted):
            self.ledger.release(uid)
            if node is not None and pod is not None and ended:
                self._observed.ended(node, (pod.namespace, pod.name))
        if node is not None:
            self._closures.open(node, uid)
            self._update_observed(node)

    def _pod_holds_nothing(self, raw: Mapping[str, Any]) -> None:
        """Release a bound pod that has ended; an unbound one is news from before its binding, since no pod is ever unbound again."""
        node, metadata = node_of(raw), raw.get("metadata")
        if not node or not isinstance(metadata, Mapping):
            return
        self._take_out(uid_of(metadata))
        if has_ended(raw):
            self._observed.ended(node, (str(metadata.get("namespace") or "default"), str(metadata.get("name"))))
            self._update_observed(node)

    def _count_requests(self, raw: Mapping[str, Any], requests: Requests) -> None:
        """Count what a bound pod, with GPUs or without, requests of its node until its containers have ended; an unbound one is news from before its binding."""
        node, metadata, spec = node_of(raw), raw.get("metadata"), raw.get("spec")
        if not node or not isinstance(metadata, Mapping) or not isinstance(spec, Mapping):
            return
        uid, hosts = uid_of(metadata), self.ledger.hosts
        if has_ended(raw):
            hosts.release(uid)
        else:
            # Without containers it is a Binding's word alone, about a pod that nobody showed: what was promised is all that is known.
            hosts.charge(uid, node, requests if spec.get("containers") else hosts.requests_of(uid))

    def _unedited(self, pod: BoundPod) -> BoundPod:
        """Return the pod with the allocation that came with its binding: whoever changed it since is not believed, and is told once."""
        known = self.ledger.get(pod.uid)
        if known is None or known.state is EntryState.PROMISED or known.allocation == (pod.annotation or ""):
            return pod
        if self._edits.get(pod.uid, known.allocation) != pod.annotation:
            self._edits[pod.uid] = pod.annotation
            self.allocation_edits += 1
            self._edited.append(pod)
        allocation = native.decode(known.allocation) if known.allocation else None
        return replace(pod, annotation=known.allocation or None, allocation=allocation, problem="")

    def _count_pod(self, pod: BoundPod) -> None:
        """Enter what a bound pod holds, or close its node where that cannot be told."""
        allocation = native.decode(pod.annotation) if pod.allocation is None and pod.annotation and not pod.problem else pod.allocation
        if allocation is not None:
            charged = (None if pod.kinds else self.ledger.charged(pod.uid, pod.annotation)) or charges(allocation, pod.kinds)
            self._enter(pod, self.gpushare.renamed(pod.node, charged, pod.share), EntryState.CONFIRMED)
        elif pod.share is not None:
            self._enter(pod, self.gpushare.charges_of(pod.node, pod.share), EntryState.CONFIRMED)
        elif pod.problem:
            self.ledger.forget(pod.uid)  # not the binding that was promised: this one is told by closing its node
            self._closures.close(pod.node, pod.uid, Refusal.ALLOCATION_UNREADABLE, f"pod {pod.namespace}/{pod.name}: {pod.problem}")
        else:
            self._count_stranger(pod)

    def _count_stranger(self, pod: BoundPod) -> None:
        """Enter a pod that came around Linkwise as its node's agent observed it; until then close the node."""
        held = self._observed.of(pod, self._topologies.get(pod.node))
        if held is not None and len(held.uuids) >= pod.gpus and pod.parted <= {container for container, _, mib in held.parts if mib}:
            self._enter(pod, Charges(held.uuids, shares_of(held.parts, pod.kinds)), EntryState.OBSERVED)
        else:
            self.ledger.release(pod.uid)
            asked = "parts of GPUs" if pod.shared else f"{pod.gpus} {self._resource}"
            self._closures.close(pod.node, pod.uid, Refusal.UNKNOWN_HOLDER, f"pod {pod.namespace}/{pod.name} uses {asked} and carries no allocation")

    def _enter(self, pod: BoundPod, charged: Charges, state: EntryState) -> None:
        self.ledger.enter(Entry(pod.uid, pod.namespace, pod.name, pod.node, charged.uuids, state, pod.annotation or "", charged.shares))
        row = self._columns.row(pod.node)
        gpus = self._columns.gpus[row]
        missing = sorted([uuid for uuid in charged.uuids if uuid not in gpus.bit_of]) if gpus.uuids else []
        if missing:
            self._closures.close(pod.node, pod.uid, Refusal.GPU_MISSING, f"pod {pod.namespace}/{pod.name} holds {', '.join(missing)}")
        else:
            self._closures.open(pod.node, pod.uid)

    def _recount(self, node: str) -> None:
        """Look at every pod of a node again after its GPUs changed; a promise keeps its GPU, whatever that is called now."""
        for entry in self.ledger.on_node(node):
            if entry.state is EntryState.PROMISED:
                charged = self.gpushare.renamed(node, Charges(entry.uuids, entry.shares))
                self.ledger.enter(replace(entry, uuids=charged.uuids, shares=charged.shares))
        for pod in tuple(self._bound.get(node, {}).values()):
            self._count_pod(pod)
        self._update_observed(node)
        self.ledger.settle(node)

    def _update_observed(self, node: str) -> None:
        self._observed.update(node, self._topologies.get(node), self._bound.get(node, {}))

    def take_arrived(self) -> list[BoundPod]:
        """Return the pods that were first seen bound since the last call."""
        arrived, self._arrived = self._arrived, []
        return arrived

    def hand_off_differences(self) -> Mapping[str, int]:
        """Return how many pods hold other GPUs than they were promised, or were never promised any, by kind (`observed.DIFFERENCES`)."""
        return self._observed.differences()

    def take_different(self) -> list[Difference]:
        """Return what was first seen to differ between promise and observation since the last call."""
        return self._observed.take_different()

    def take_edited(self) -> list[BoundPod]:
        """Return the pods whose allocation was seen edited since the last call."""
        edited = list(self._edited)
        self._edited.clear()
        return edited

    def close_stale(self, now: datetime, after_s: float, *, closing: bool = True, most: int | None = None) -> bool:
        """Close the nodes whose agent has not been heard of for that long, and open those that are heard of again; the latter alone without ``closing``.

        At most ``most`` of each; tells whether that left some.
        """
        columns, n = self._columns, self._columns.count
        heard, silent = columns.heard_us[:n], columns.silent[:n]
        np.minimum(heard, microseconds(now), out=heard)  # a clock that is ahead must not keep a node open for as long after its agent has gone
        is_old = heard < microseconds(now) - round(after_s * 1e6)
        old = np.flatnonzero(is_old & ~silent & (heard != NOT_TOLD)) if closing else np.zeros(0, np.int64)
        again = np.flatnonzero(silent & ~is_old)
        for row in old[:most].tolist():
            name = columns.names[row]
            self._closures.close(name, "agent", Refusal.STALE, f"last heard of at {self._topologies[name].observed_at}")
            columns.silent[row] = True
        for row in again[:most].tolist():
            self._closures.open(columns.names[row], "agent")
            columns.silent[row] = False
        return most is not None and max(len(old), len(again)) > most

    # --- tentative holds --------------------------------------------------------------------------------------------

    def hold(self, uid: str, row: int, mask: int, seconds: float, shares: tuple[tuple[int, int], ...] = ()) -> None:
        """Count a set, or shares as (bit, MiB), as taken by a scored pod until its bind arrives, `unhold`, or the time has passed."""
        if self.ledger.get(uid) is None:
            self._views.hold(TentativeHold(uid, row, mask, self._clock() + seconds, shares))

    def unhold(self, uid: str) -> TentativeHold | None:
        """Take back a hold; returns it where it still counted."""
        return self._views.unhold(uid)

    # --- what is gone for good --------------------------------------------------------------------------------------

    def forget_gone(self, fewest_rows: int = FEWEST_ROWS, fewest_classes: int = FEWEST_CLASSES) -> None:
        """Give up what is kept of nodes and of classes that are gone, once that is much; called between calls, and views that were handed out stay what they are."""
        if self._gone.too_many_classes(fewest_classes):
            self._columns.drop_unused_classes()
            used = {kind.key for kind in self._columns.classes}
            self._machines.forget_classes(but=used)
            self._shallow = {key: kind for key, kind in self._shallow.items() if key in used}
        rows = self._gone.rows(self._is_gone, self._views.rows_held(), fewest_rows)
        for name in map(self._columns.names.__getitem__, rows):
            self._bound.pop(name, None)
            self._observed.forget_node(name)
            self.gpushare.forget_node(name)
            self.assume_order.forget_node(name)
        if rows:
            self._views.renumber(self._gone.take_out(rows))
            self.ledger.hosts.renumber()

    def _is_gone(self, node: str) -> bool:
        """Tell whether a node is one of which nobody knows anything any more: no Node, no GPUTopology, no pod that is or may be on it."""
        is_known = node in self._topologies or self._closures.any_of(node) or self.ledger.hosts.knows(node) or self._bound.get(node)
        return not is_known and all(map(self._observed.is_ghost, self.ledger.on_node(node)))

    # --- reading ----------------------------------------------------------------------------------------------------

    def view(self) -> View:
        """Return the state as it is now; the same object as long as nothing changed."""
        self.ledger.hosts.show_new_rows()
        if self._columns.kubelet_refusals:
            self.kubelet_refusals.end()
        return self._views.now()

    def view_without(self, node: str, uids: AbstractSet[str]) -> View:
        """Return the state as it would be with those pods gone from that node; of their GPUs alone, since nobody scores it."""
        view = self.view()
        row = view.row_of.get(node, -1)
        if not 0 <= row < view.rows:
            return view
        return self._views.with_node(view, row, self.ledger.taken(node, without=uids), self._closures.of(node, without=uids).refusal)

    def topology_of(self, node: str) -> GPUTopology | None:
        """Return the GPUTopology of that node as it was read, without metadata."""
        topology = self._topologies.get(node)
        return None if topology is None else topology.whole()

    def topology_names(self) -> set[str]:
        """Return the nodes with a GPUTopology, readable or not."""
        return self._topologies.keys() | self._closures.nodes_with("topology")

    def pod_uids(self) -> Iterator[str]:
        """Return the pods that hold something of a node, or are believed to, as of now, some twice: a list of all pods that lacks one of them means that it is gone.

        Promises are left out: whether their pods are there is asked pod by pod.
        """
        return chain(self.ledger.hosts.bound(), tuple(self._node_of_pod), self.ledger.unseen())
