"""Work that would hold up the event loop, done by a program of ours in a process of its own: bytes in, bytes out, and the process is ended with the call.

Called by `deepening` and `pricing`. Not a thread: the work is Python and many short solver calls, and each would take the interpreter from the event loop for 5 ms at a time. Not a pool: its
workers stay, and outlive a parent that is killed.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
from subprocess import PIPE
from typing import Final

from topology.errors import InternalError

_NICE: Final = 10  # a tenth of a core beside one that is busy: calls and bindings go first, and prices come all the same


async def output_of(module: str, request: bytes) -> bytes:
    """Return what a module of ours, run as a program, writes for an input; raises InternalError where it fails."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        # A thread starts it and waits for it: starting a process takes the loop up to 10 ms on a busy machine, and all the longer the larger this process is.
        return await asyncio.to_thread(_run, module, request, started)
    finally:
        for process in started:
            process.kill()


def _run(module: str, request: bytes, started: list[subprocess.Popen[bytes]]) -> bytes:
    """Run the program on a request; ``started`` gets the process, for whoever has to end it."""
    with subprocess.Popen([sys.executable, "-m", module], stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:  # noqa: S603 - our own module
        started.append(process)
        with contextlib.suppress(OSError):  # it has ended already
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
        output, told = process.communicate(request)
    if process.returncode:
        raise InternalError(f"the process of {module} ended with status {process.returncode}: {told.decode(errors='replace')[-500:]}")
    return output
