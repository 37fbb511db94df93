"""Classes of nodes that take a while to work out: their tables are deepened beside the calls, in a process of their own.

A node opens with what is known of its class at once, a lower bound (`topology.collective.Depth`). `app` runs this beside its calls: it asks the state for
classes whose tables could go deeper, has them worked out, and puts them in place; for everybody who remembers answers the nodes have changed then, and waiting pods
are looked at again. Until the first answer is due (`ready`), the state works classes out by itself, as nobody waits for an answer yet.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from extender import log_keys
from extender.child import output_of
from extender.cluster import Cluster
from topology.collective import Depth, MachineLinks
from topology.topology_class import Tables, TopologyClass
from topology.topology_class.apart import answered, requested

_LOOK_EVERY_S: Final = 0.1
_MOST_S: Final = 600.0  # for all classes that come together; one takes half a second, a dense mesh of 16 GPUs, which nobody sells, two minutes
_log = structlog.get_logger()


class Deepening:
    """The work that is left for the tables of one state."""

    def __init__(self, cluster: Cluster, ready: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._ready = ready
        self._given_up: set[str] = set()

    async def run(self) -> None:
        """Deepen what can be, until cancelled."""
        while True:
            if not self._ready():
                await asyncio.sleep(_LOOK_EVERY_S)
                continue
            self._cluster.depth = Depth.AT_ONCE  # from now on calls are answered, which no class may hold up
            if not await self.deepen_next():
                await asyncio.sleep(_LOOK_EVERY_S)

    async def deepen_next(self) -> bool:
        """Take all classes that are least deep one depth further; tells whether there was one."""
        todo = [kind for kind in self._cluster.shallow_classes() if kind.version not in self._given_up]
        depth = min((kind.next_depth for kind in todo if kind.next_depth is not None), default=None)
        if depth is None:
            return False
        kinds = [kind for kind in todo if kind.next_depth is depth]
        try:
            async with asyncio.timeout(_MOST_S):
                tables = await work_out([kind.links for kind in kinds], depth)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other classes must not wait for it
            # They stay as they are, which is a lower bound; the same again would end the same way.
            self._given_up |= {kind.version for kind in kinds}
            _log.warning("classes not worked out further, please report", **{log_keys.REASON: str(error) or type(error).__name__})
            return True
        for kind, found in zip(kinds, tables, strict=True):
            self._put_in_place(kind, found, depth)
        return True

    def _put_in_place(self, kind: TopologyClass, tables: Tables, depth: Depth) -> None:
        self._cluster.deepen(kind.deepened(tables, depth))
        _log.info("class of nodes worked out", **{log_keys.TOPOLOGY_CLASS: kind.key, log_keys.DEPTH: depth.name})


async def work_out(machines: list[MachineLinks], depth: Depth) -> list[Tables]:
    """Return the tables of these machines, worked out by a process of its own, which is ended with the call; raises InternalError where it fails."""
    return answered(await output_of("topology.topology_class.apart", requested(machines, depth)))
