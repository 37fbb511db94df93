"""Preemption as a veto: which of kube-scheduler's candidate nodes would take the pod once the given victims are gone.

Called by `verbs.preempt`. kube-scheduler counts GPUs and chooses victims by count; without this check a pod whose floor no node meets would evict on one
full node after the other in vain. Victims are passed through as they came: an entry without victims, or with others, fails the whole cycle.
"""

from extender.cluster import Cluster
from extender.demand import Demand
from extender.placement import Placement
from extender.protocol import PreemptCall, Victims
from extender.reasons import Refusal


def allowed(call: PreemptCall, demand: Demand, cluster: Cluster, placement: Placement) -> dict[str, Victims]:
    """Return the candidates to keep: nodes with victims where the pod fits by our own rules without them."""
    return {
        node: victims
        for node, victims in call.victims.items()
        if victims.uids and (not demand.wants_gpus or _fits_without(set(victims.uids), node, demand, cluster, placement))
    }


def _fits_without(uids: set[str], node: str, demand: Demand, cluster: Cluster, placement: Placement) -> bool:
    view = cluster.view_without(node, uids)
    return placement.refusal(demand.shape, view, view.row_of.get(node, -1)) is Refusal.FITS
