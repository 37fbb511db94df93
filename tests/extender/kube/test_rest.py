"""A rest ends with its event, with its time, or with its task."""

import asyncio

import pytest

from extender.kube.rest import rest_until


async def test_a_rest_ends_with_the_event() -> None:
    event = asyncio.Event()
    event.set()
    await rest_until(event, 60)


async def test_a_rest_ends_with_its_time() -> None:
    await rest_until(asyncio.Event(), 0.01)


@pytest.mark.parametrize("turns", range(6), ids=lambda turns: f"{turns} turns of the loop after the event")
async def test_a_task_that_is_cancelled_as_its_rest_ends_is_cancelled(turns: int) -> None:
    """Wherever on its way the news of the event is: a leader that is told to end in the moment in which it has become ready would lead on."""
    event, ended = asyncio.Event(), False

    async def rest_for_ever() -> None:
        while not ended:
            await rest_until(event, 0.2)
            event.clear()

    task = asyncio.create_task(rest_for_ever())
    await asyncio.sleep(0.01)
    event.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=1)
    ended = True  # else it would go on behind the next test
    assert task.cancelled()
