"""What readers of the state get, made when they ask: a view of the columns as they are, with what scored pods will most likely take.

Called by `state`. A view is new only if something has changed, and copies only what has: what nodes are and what closes them (both change seldom), what pods hold of GPUs, and CPU and memory
(which every pod changes) are groups of arrays; a group that has not changed is the same objects as before, by which readers see that. Tentative holds are kept here as well, since they are part of a view and of nothing else: no ledger counts them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from extender.cluster.columns import Columns, NodeGpus, Taken
from extender.cluster.view import TentativeHold, View
from extender.reasons import Refusal

_Arrays = Mapping[str, NDArray[Any]]


class Views:
    """The last view, and the tentative holds."""

    def __init__(self, columns: Columns, clock: Callable[[], float]) -> None:
        self._columns = columns
        self._clock = clock
        self._holds: dict[str, TentativeHold] = {}
        self._earliest = math.inf  # no hold ends before
        self._view: View | None = None
        self._hardware: tuple[int, _Arrays, Sequence[NodeGpus]] = (-1, {}, ())  # copied after so many `hardware_writes`
        self._closed: tuple[int, _Arrays, Sequence[str]] = (-1, {}, ())  # after so many `closed_writes`
        self._held: tuple[int, _Arrays] = (-1, {})  # after so many `gpu_writes`
        self._host: tuple[int, _Arrays] = (-1, {})  # in that generation

    # --- tentative holds ---

    def hold(self, hold: TentativeHold) -> None:
        """Count GPUs as taken by a scored pod until the time of the hold has come; undo with `unhold`."""
        self._holds[hold.uid] = hold
        self._earliest = min(self._earliest, hold.until)
        self._view = None

    def unhold(self, uid: str) -> TentativeHold | None:
        """Take back a hold; returns it where it still counted."""
        hold = self._holds.pop(uid, None)
        if hold is None:
            return None
        self._view = None
        return hold if hold.until > self._clock() else None

    def holds_for(self, uid: str) -> bool:
        """Tell whether something is held for that pod."""
        return uid in self._holds

    def rename(self, row: int, before: NodeGpus, after: NodeGpus) -> None:
        """Let what is held of a node stay the same GPUs, wherever they stand now."""
        for uid, hold in self._holds.items() if after.uuids != before.uuids else ():
            if hold.row == row:
                held = (uuid for bit, uuid in enumerate(before.uuids) if hold.mask >> bit & 1)
                shares = ((before.uuids[bit], mib) for bit, mib in hold.shares)
                here = tuple((after.bit_of[uuid], mib) for uuid, mib in shares if uuid in after.bit_of)
                self._holds[uid] = replace(hold, mask=after.mask_of(held), shares=here)
                self._view = None

    def rows_held(self) -> set[int]:
        """Return the rows of which something is held, or was until a moment ago."""
        return {hold.row for hold in self._holds.values()}

    def renumber(self, rows: NDArray[np.int64]) -> None:
        """Follow the columns, which have kept those of their rows and no others: none of which anything is held is given up."""
        new_row = {old: new for new, old in enumerate(rows.tolist())}
        self._holds = {uid: replace(hold, row=new_row[hold.row]) for uid, hold in self._holds.items()}
        self._view = None

    def _end_holds(self, now: float) -> None:
        if now < self._earliest:
            return
        self._holds = {uid: hold for uid, hold in self._holds.items() if hold.until > now}
        self._earliest = min((hold.until for hold in self._holds.values()), default=math.inf)
        self._view = None

    # --- views ---

    def now(self) -> View:
        """Return the state as it is now; the same object as long as nothing changed."""
        now = self._clock()
        self._end_holds(now)
        if self._view is None or self._view.generation != self._columns.generation:
            self._view = self._take(now)
        return self._view

    def with_node(self, view: View, row: int, taken: Taken, refusal: Refusal) -> View:
        """Return a view in which pods hold only that much of one node, and it is closed for that reason; nobody scores it."""
        free, left, closed = view.free.copy(), view.left.copy(), view.closed.copy()
        free[row] = int(view.usable[row]) & ~taken.bits
        left[row] = self._columns.left_of(row, taken)
        closed[row] = refusal
        return replace(view, free=_frozen(free), left=_frozen(left), closed=_frozen(closed))

    def _take(self, now: float) -> View:
        columns, n = self._columns, self._columns.count
        if self._hardware[0] != columns.hardware_writes:
            self._hardware = (columns.hardware_writes, self._copies("class_index", "usable", "offered"), columns.gpus.handed_out())
        if self._closed[0] != columns.closed_writes:
            self._closed = (columns.closed_writes, self._copies("closed"), columns.closed_by.handed_out())
        if self._held[0] != columns.gpu_writes:
            free = _frozen(self._hardware[1]["usable"] & ~columns.held[:n])
            self._held = (columns.gpu_writes, {"free": free, **self._copies("left", "row_generation")})
        if self._host[0] != columns.generation:
            self._host = (columns.generation, self._copies("cpu_left", "memory_left", "host_generation"))
        return View(
            generation=columns.generation,
            taken_at=now,
            names=columns.names,
            row_of=columns.row_of,
            name_table=columns.name_table,
            gpus=self._hardware[2],
            closed_by=self._closed[2],
            classes=tuple(columns.classes),
            holds=tuple(self._holds.values()),
            kubelet_refusals=columns.kubelet_refusals,
            **self._host[1],
            **self._hardware[1],
            **self._closed[1],
            **self._held[1],
        )

    def _copies(self, *names: str) -> dict[str, NDArray[Any]]:
        n = self._columns.count
        return {name: _frozen(getattr(self._columns, name)[:n].copy()) for name in names}


def _frozen(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array
