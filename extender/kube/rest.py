"""Waiting for an event for so long at most. Used by whoever does something again and again: `watch`, `lease`, and `serving` at the start."""

import asyncio
import contextlib


async def rest_until(event: asyncio.Event, most_s: float) -> None:
    """Wait until an event is set, or for that long.

    Not by `asyncio.wait_for`: until Python 3.12 it loses a cancellation that comes in the moment in which what it waits for is done (python/cpython#86296), and then nobody ends the task that rests here.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(most_s):
            await event.wait()
