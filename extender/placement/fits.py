"""Does it fit, for every node at once: a handful of numpy lookups per topology class, no loop over nodes.

Called by `placement`, which keeps the answers by shape and asks again only for the rows that changed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from extender.cluster import NO_CLASS, Room, View
from extender.demand import Shape
from extender.placement.plan import Plan
from extender.reasons import Refusal
from topology.capacity import hosts
from topology.links import Distance
from topology.topology_class import TopologyClass

FITS: Final = int(Refusal.FITS)  # numpy takes a member of an enumeration for an object with operators of its own, and asks it for them each time

Rows = NDArray[np.int64]
Masks = NDArray[np.uint32]
Planner = Callable[[Shape, TopologyClass, Room], Plan | None]


@dataclass(frozen=True, slots=True)
class Fits:
    """The answer for all rows of one generation; arrays are never written after they were handed out."""

    generation: int
    code: NDArray[np.int8]  # (rows,) Refusal, FITS where the pod can go

    @property
    def rows(self) -> int:
        """Number of rows answered for."""
        return len(self.code)


def usable_mask(shape: Shape, kind: TopologyClass) -> int:
    """Return the bits of the class whose GPUs the pod would take: by model, and by how far their nearest NIC is."""
    near = (1 << kind.size) - 1 if shape.nic_ceiling is None else kind.nic_mask(shape.nic_ceiling)
    return near & _model_mask(shape, kind)


def usable_room(shape: Shape, kind: TopologyClass, room: Room) -> Room:
    """Return what a node has to give to a pod that takes only some of its GPUs."""
    if shape.model is None and shape.nic_ceiling is None:
        return room
    wanted = usable_mask(shape, kind)
    return Room(room.idle & wanted, tuple(amount if wanted >> bit & 1 else 0 for bit, amount in enumerate(room.left)), room.offered)


def _model_mask(shape: Shape, kind: TopologyClass) -> int:
    return (1 << kind.size) - 1 if shape.model is None else kind.model_mask(shape.model)


def refusals(shape: Shape, view: View, rows: Rows, planner: Planner) -> NDArray[np.int8]:
    """Return the Refusal of each of those rows, shape (len(rows),)."""
    code = _refusals(shape, view, rows, planner)
    refused = view.kubelet_refusals.get(shape) if view.kubelet_refusals else None
    if refused:
        code[(code == FITS) & np.isin(rows, list(refused))] = Refusal.KUBELET_REFUSED
    return code


def _refusals(shape: Shape, view: View, rows: Rows, planner: Planner) -> NDArray[np.int8]:
    """Return the same by what nodes have and pods hold."""
    code = view.closed[rows].astype(np.int8)
    if not len(rows):
        return code
    if shape.plugin_gpus:
        served = np.fromiter((view.gpus[row].plugin_gpus for row in rows.tolist()), np.int64, len(rows))
        code[(code == FITS) & (served > shape.plugin_gpus)] = Refusal.GPUSHARE_CONTAINERS
        code[(code == FITS) & (served == 0)] = Refusal.NOT_GPUSHARE
    in_doubt = (code == FITS) & ~_fits_plainly(shape, view, rows)
    if not in_doubt.any():
        return code
    classes = np.where(in_doubt, view.class_index[rows], NO_CLASS)
    for number in set(classes.tolist()) - {NO_CLASS}:
        kind = view.classes[number]
        at = np.nonzero(classes == number)[0]
        code[at] = _refusals_of_class(shape, kind, view, rows[at], planner)
    return code


def _fits_plainly(shape: Shape, view: View, rows: Rows) -> NDArray[np.bool_]:
    """Return which rows have enough room for a pod of one container that wishes nothing else, False for any other; most pods are of that kind, and most rows fit."""
    if len(shape.parts) > 1 or (shape.model, shape.nic_ceiling, shape.floor, shape.ceiling) != (None, None, 0.0, Distance.SYS) or shape.one_numa:
        return np.zeros(len(rows), np.bool_)
    part = shape.parts[0]
    if not part.is_share:
        return np.asarray(np.bitwise_count(view.free[rows]) >= part.gpus)
    return np.asarray((view.left[rows] >= part.mib).sum(axis=1) >= part.gpus)


def _refusals_of_class(shape: Shape, kind: TopologyClass, view: View, rows: Rows, planner: Planner) -> NDArray[np.int8]:
    """Return the Refusal of open rows of one class: the first reason that holds, in the order of `Refusal`."""
    wanted = np.uint32(usable_mask(shape, kind))
    code = (_by_shares if shape.is_shared else _by_gpus)(shape, kind, view, rows, planner)
    if not code.any():
        return code  # whoever fits meets every other limit as well
    code[np.bitwise_count(view.usable[rows] & wanted) < max(shape.gpus, shape.largest)] = Refusal.TOO_SMALL
    if shape.nic_ceiling is not None and int(wanted).bit_count() < max(shape.gpus, shape.largest):
        code[:] = Refusal.NIC
    if shape.model is not None and _model_mask(shape, kind).bit_count() < max(shape.gpus, shape.largest):
        code[:] = Refusal.MODEL
    return code


def _by_gpus(shape: Shape, kind: TopologyClass, view: View, rows: Rows, planner: Planner) -> NDArray[np.int8]:
    """Return the Refusal of rows for a pod of whole GPUs: not enough of them free, no set of them that will do, no split over the containers."""
    free = view.free[rows] & np.uint32(usable_mask(shape, kind))
    code = np.full(len(rows), Refusal.NOT_ENOUGH_FREE, np.int8)
    enough = np.bitwise_count(free) >= shape.gpus
    code[enough] = _by_links(shape, kind, free[enough], planner)
    return code


def _by_links(shape: Shape, kind: TopologyClass, free: Masks, planner: Planner) -> NDArray[np.int8]:
    """Return the Refusal of masks with enough GPUs: no set on one NUMA node, none near enough, none fast enough, no split over the containers."""
    code = _by_set(shape, kind, free, shape.largest)
    if len(shape.parts) > 1:
        open_ones = np.nonzero(code == FITS)[0]
        masks, back = np.unique(free[open_ones], return_inverse=True)
        fits = np.fromiter((planner(shape, kind, Room(int(mask), ())) is not None for mask in masks), bool, len(masks))
        code[open_ones[~fits[back]]] = Refusal.SPLIT
    return code


def _by_set(shape: Shape, kind: TopologyClass, masks: Masks, gpus: int) -> NDArray[np.int8]:
    """Return the Refusal of masks for one set of ``gpus``: none on one NUMA node, none near enough, none fast enough."""
    code = np.zeros(len(masks), np.int8)
    if gpus > 1:
        best = kind.best_bandwidths(gpus, shape.ceiling, one_numa=shape.one_numa)[masks]
        code[best < shape.floor] = Refusal.BANDWIDTH
        code[best < 0] = Refusal.DISTANCE
        if shape.one_numa:
            code[kind.best_bandwidths(gpus, one_numa=True)[masks] < 0] = Refusal.NUMA
    return code


# --- shares ---------------------------------------------------------------------------------------------------------


def _by_shares(shape: Shape, kind: TopologyClass, view: View, rows: Rows, planner: Planner) -> NDArray[np.int8]:
    """Return the Refusal of rows for a pod with shares: no GPU so large, not enough free, not enough with as much left, no set that will do, no split."""
    wanted, shares = np.uint32(usable_mask(shape, kind)), [part for part in shape.parts if part.is_share]
    free, left = view.free[rows] & wanted, view.left[rows]
    # From the last reason to the first: where several hold, the first one stays.
    code = _by_set(shape, kind, hosts(shape.leading.mib, free, left) & wanted, shape.leading.gpus)
    some_short = False
    for part in shares:
        short = np.bitwise_count(hosts(part.mib, free, left) & wanted) < part.gpus
        code[short] = Refusal.NOT_ENOUGH_MEMORY
        some_short |= bool(short.any())
    code[np.bitwise_count(free) < shape.gpus] = Refusal.NOT_ENOUGH_FREE
    usable, offered = view.usable[rows] & wanted, view.offered[rows]
    for part in shares if some_short else ():
        code[np.bitwise_count(hosts(part.mib, usable, offered) & usable) < part.gpus] = Refusal.GPU_TOO_SMALL
    if len(shape.parts) > 1:
        for at in np.nonzero(code == Refusal.FITS)[0].tolist():
            if planner(shape, kind, view.room(rows[at])) is None:
                code[at] = Refusal.SPLIT
    return code
