"""Prices of parts of GPUs for new demands and new sizes of GPUs: worked out beside the calls, in a process of its own.

`app` runs this beside its calls. A price is a small linear program, tens of milliseconds for each size of GPU (`placement.prices`). When the target workload moves, the old one stays in force
until all prices of the new one are known, and then takes its place in one step, between two calls: the same state and the same call have the same answer before it and after it. A size of
GPU that nobody has seen has no old price: it goes by a first guess until then.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from extender import log_keys
from extender.child import output_of
from extender.cluster import Cluster
from extender.placement import Placement
from extender.placement.apart import answered, requested, worked_out
from extender.placement.prices import Found, Question

_LOOK_EVERY_S: Final = 0.05
_MOST_S: Final = 60.0  # for all prices that are asked for together; a second or two is usual, most of it to start
_log = structlog.get_logger()


class Pricing:
    """The prices that are left to work out for one placement."""

    def __init__(self, cluster: Cluster, placement: Placement, ready: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._placement = placement
        self._ready = ready

    async def run(self) -> None:
        """Work out what is wanted, until cancelled; from now on nobody else does."""
        self._placement.prices.beside = True
        hardware: object = None
        while True:
            view = self._cluster.view()
            if view.offered is not hardware or not self._ready():  # the same array as long as no node comes or gets other GPUs
                hardware = view.offered
                self._placement.look_ahead(view)  # so that the first answers find their prices
            if not await self.answer_next():
                await asyncio.sleep(_LOOK_EVERY_S)

    async def answer_next(self) -> bool:
        """Work out all prices that are wanted now; tells whether there were any."""
        questions = self._placement.prices.wanted()
        if questions:
            self._placement.learn(await self._found(questions))
        return bool(questions)

    async def _found(self, questions: list[Question]) -> Found:
        try:
            async with asyncio.timeout(_MOST_S):
                return answered(questions, await output_of("extender.placement.apart", requested(questions)))
        except Exception as error:  # noqa: BLE001 - whatever it is, demands must not wait for it for ever
            _log.warning("prices not worked out beside the calls, please report", **{log_keys.REASON: str(error) or type(error).__name__})
            return answered(questions, worked_out(requested(questions)))
