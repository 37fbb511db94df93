"""Classes of nodes that take a while to work out: their tables are deepened beside the calls, in a process of their own.

A node opens with what is known of its class at once, a lower bound (`topology.collective.Depth`). `app` runs this beside its calls: it asks the state for
classes whose tables could go deeper, has them worked out, and puts them in place; for everybody who remembers answers the nodes have changed then, and waiting pods
are looked at again. Until the first answer is due (`ready`), the state works classes out by itself, as nobody waits for an answer yet.

Not a thread: packing rings is Python and many short solver calls, and each would take the interpreter from the event loop for 5 ms at a time.
"""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from subprocess import PIPE
from typing import Final

import structlog

from extender import log_keys
from extender.cluster import Cluster
from topology.collective import Depth, MachineLinks
from topology.errors import InternalError
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
            tables = await asyncio.wait_for(work_out([kind.links for kind in kinds], depth), _MOST_S)
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
    started: list[subprocess.Popen[bytes]] = []
    try:
        # A thread starts it and waits for it: starting a process takes the loop up to 10 ms on a busy machine, and all the longer the larger this process is.
        output = await asyncio.to_thread(_output_of_child, requested(machines, depth), started)
    finally:
        for process in started:
            process.kill()
    return answered(output)


def _output_of_child(request: bytes, started: list[subprocess.Popen[bytes]]) -> bytes:
    """Run the program on a request; ``started`` gets the process, for whoever has to end it."""
    with subprocess.Popen([sys.executable, "-m", "topology.topology_class.apart"], stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        started.append(process)
        output, told = process.communicate(request)
    if process.returncode:
        raise InternalError(f"the process that works out tables ended with status {process.returncode}: {told.decode(errors='replace')[-500:]}")
    return output
