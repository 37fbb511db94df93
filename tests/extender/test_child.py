"""A program of ours runs beside the loop: bytes in, bytes out, and it ends with whoever waits for it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from extender.child import output_of
from topology.errors import InternalError


async def test_what_the_program_writes_is_returned_and_the_loop_goes_on_meanwhile():
    turns = 0
    work = asyncio.create_task(output_of("json.tool", b'{"a": [1]}'))
    while not work.done():
        turns += 1
        await asyncio.wait([work], timeout=0.005)
    assert (await work).split() == b'{ "a": [ 1 ] }'.split()
    assert turns > 2


async def test_a_program_that_fails_is_our_bug_and_says_so():
    with pytest.raises(InternalError, match=r"the process of json\.tool ended with status 1: .*Expecting"):
        await output_of("json.tool", b"no JSON")


async def test_the_program_lets_calls_go_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The stand-in for the interpreter waits until it has a low priority."""
    patient = tmp_path / "patient"
    patient.write_text('#!/bin/sh\nuntil [ "$(cut -d" " -f19 /proc/$$/stat)" = 10 ]; do sleep 0.01; done\necho lowered\n')
    patient.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(patient))
    async with asyncio.timeout(5):
        assert await output_of("anything", b"") == b"lowered\n"


async def test_the_process_ends_with_whoever_waits_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The stand-in for the interpreter tells its process id and then does nothing for a minute."""
    told, slow = tmp_path / "pid", tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\necho $$ > {told}.new\nmv {told}.new {told}\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(slow))
    waiting = asyncio.create_task(output_of("anything", b""))
    await _until(told.exists)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    process = Path(f"/proc/{told.read_text().strip()}")
    await _until(lambda: not process.exists())


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.wait([asyncio.create_task(asyncio.sleep(0.01))])
