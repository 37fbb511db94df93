"""Takes the startup taint off Nodes that wait for nothing any more: one precise write each, by the replica that leads.

Run by `serving`. `cluster.startup_taint` knows who carries the taint and what each waits for; this looks twice a second and sends the JSON patch that tests the very
taint in its place before it removes it. Where somebody has changed the taints since, the API server writes nothing and answers 422 (409 where it was busy with it), and the
Node is looked at again as the watch shows it then. Nothing is read here, and without such Nodes nothing is asked or sent.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import structlog

from extender import log_keys
from extender.cluster.startup_taint import Awaited, TaintedNode
from extender.kube.client import JSON_PATCH, ApiRefusedError, Body, KubeClient, NoAnswerError

_log = structlog.get_logger()

LOOK_EVERY_S: Final = 0.5
AGAIN_AFTER_S: Final = (0.5, 30.0)  # first and longest pause after a write that failed
SHOWN_WITHIN_S: Final = 10.0  # so long the watch may take to show what was written, before it is written again
SAY_AFTER_S: Final = 120.0  # a node takes a minute or so from its registration to its agent's first look
_TOGETHER: Final = 16  # writes at a time, where a whole pool has come
_CHANGED_MEANWHILE: Final = frozenset({409, 422})
_HINT: Final = " (is manifests/admission-policy.yaml of this version applied?)"


@dataclass(slots=True)
class _Try:
    """What was done about one Node, seen with the taint ``since``."""

    uid: str
    since: float
    not_before: float = 0.0
    pause_s: float = AGAIN_AFTER_S[0]
    said: Awaited | None = None


class Untainter:
    """Takes the taint off; ``tainted`` tells the Nodes that carry it, ``may_write`` whether this replica leads, ``clock`` monotonic seconds."""

    def __init__(
        self,
        client: KubeClient,
        tainted: Callable[[], Iterable[tuple[TaintedNode, Awaited]]],
        may_write: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._tainted = tainted
        self._may_write = may_write
        self._clock = clock
        self._tries: dict[str, _Try] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.look()

    async def look(self) -> None:
        """Look once, and write where it is time to; the API server's trouble is logged, and tried again."""
        if not self._may_write():
            self._tries.clear()
            return
        tainted = list(self._tainted())
        self._forget_others(tainted)
        due = [node for node, awaited in tainted if awaited is Awaited.NOTHING and self._is_due(node)]
        for node, awaited in tainted:
            self._say_what_lasts(node, awaited)
        for some in _slices(due):
            await asyncio.gather(*(self._take_off(node) for node in some))

    def _forget_others(self, tainted: list[tuple[TaintedNode, Awaited]]) -> None:
        uids = {node.name: node.uid for node, _ in tainted}
        self._tries = {name: known for name, known in self._tries.items() if uids.get(name) == known.uid}

    def _try(self, node: TaintedNode) -> _Try:
        known = self._tries.get(node.name)
        if known is None:
            known = self._tries[node.name] = _Try(node.uid, self._clock())
        return known

    def _is_due(self, node: TaintedNode) -> bool:
        return self._clock() >= self._try(node).not_before

    def _say_what_lasts(self, node: TaintedNode, awaited: Awaited) -> None:
        known = self._try(node)
        if awaited not in (Awaited.NOTHING, known.said) and self._clock() - known.since >= SAY_AFTER_S:
            known.said = awaited
            _log.warning("startup taint stays", **{log_keys.NODE: node.name, log_keys.AWAITED: str(awaited)})

    async def _take_off(self, node: TaintedNode) -> None:
        if not self._may_write():
            return
        known = self._try(node)
        try:
            body = Body(node.removal(), JSON_PATCH)
            await self._client.raw("PATCH", f"/api/v1/nodes/{quote(node.name, safe='')}", body=body, timeout_s=5.0)
        except (NoAnswerError, ApiRefusedError) as error:
            known.not_before, known.pause_s = self._clock() + known.pause_s, min(2 * known.pause_s, AGAIN_AFTER_S[1])
            self._say_why_not(node, error)
        else:
            known.not_before = self._clock() + SHOWN_WITHIN_S
            _log.info("startup taint taken off", **{log_keys.NODE: node.name})

    @staticmethod
    def _say_why_not(node: TaintedNode, error: NoAnswerError | ApiRefusedError) -> None:
        status = error.status if isinstance(error, ApiRefusedError) else 0
        if status in _CHANGED_MEANWHILE:
            _log.info("taints changed meanwhile, looking again", **{log_keys.NODE: node.name})
        else:
            _log.warning("startup taint not taken off", **{log_keys.NODE: node.name, log_keys.REASON: f"{error}{_HINT if status == 403 else ''}"})


def _slices(nodes: list[TaintedNode]) -> Iterator[list[TaintedNode]]:
    return (nodes[at : at + _TOGETHER] for at in range(0, len(nodes), _TOGETHER))
