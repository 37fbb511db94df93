"""What closes each node to new pods, by key, so that one reason may go while another stays; shown in the columns.

Only `state` writes here: a key is what the reason belongs to ("topology", "agent", a pod's UID), and each close has its open. A node is shown closed by the first reason in the
order of `Refusal`, with the details of all. One that nothing closes and that has no class yet is closed as well.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from extender.cluster.columns import NO_CLASS, Columns
from extender.reasons import Refusal


@dataclass(frozen=True, slots=True)
class Closure:
    """Why a node is closed, and what is behind it; FITS where it is open."""

    refusal: Refusal
    detail: str = ""


class Closures:
    """The reasons by node and key; writes the `closed` column."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._of_node: dict[str, dict[str, Closure]] = {}

    def close(self, node: str, key: str, refusal: Refusal, detail: str) -> None:
        """Close a node for a reason; undo with `open`."""
        self._of_node.setdefault(node, {})[key] = Closure(refusal, detail)
        self.show(node)

    def open(self, node: str, key: str) -> None:
        """Take a reason back; the node opens with its last one."""
        closures = self._of_node.get(node)
        if closures is not None and closures.pop(key, None) is not None:
            if not closures:
                del self._of_node[node]
            self.show(node)

    def has(self, node: str, key: str) -> bool:
        """Tell whether that reason closes the node."""
        return key in self._of_node.get(node, {})

    def any_of(self, node: str) -> bool:
        """Tell whether anything closes the node, beside that it has no class."""
        return node in self._of_node

    def nodes_with(self, key: str) -> set[str]:
        """Return the nodes that are closed for that reason."""
        return {node for node, closures in self._of_node.items() if key in closures}

    def of(self, node: str, without: AbstractSet[str] = frozenset()) -> Closure:
        """Return what closes a node, as if the reasons in ``without`` were not there."""
        known = self._of_node.get(node)
        closures = sorted((closure for key, closure in known.items() if key not in without), key=lambda each: each.refusal) if known else ()
        if closures:
            return Closure(closures[0].refusal, "; ".join(closure.detail for closure in closures))
        return Closure(Refusal.NO_TOPOLOGY if self._columns.class_index[self._columns.row(node)] == NO_CLASS else Refusal.FITS)

    def show(self, node: str) -> None:
        """Write what closes a node into its row; called here, and where a node has got its class or lost it."""
        row = self._columns.row(node)
        shown = self.of(node)
        if (shown.refusal, shown.detail) == (Refusal(int(self._columns.closed[row])), self._columns.closed_by[row]):
            return  # most events change nothing here, and a touched row costs every cached answer
        self._columns.set_closed(row, shown.refusal, shown.detail)
        self._columns.touch(row)
