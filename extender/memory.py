"""How this process uses memory: what Python and the C library are told for a server that keeps much and makes arrays of a megabyte at each call.

`serve_command` sets it up, and `kube.watch` gives back what a list has left.
"""

import ctypes
import gc
from typing import Final

# glibc, malloc.h
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 64 * 1024 * 1024
_MOST_FROM_HEAP: Final = 32 * 1024 * 1024  # the most that glibc takes


def collect_rarely() -> None:
    """Leave what is imported out of every search for garbage, and search less often.

    A list of pods makes hundreds of thousands of objects, next to none of them garbage in cycles: by default Python would go through them again and again,
    a tenth of the time of a start, and later through the whole state in the middle of a call.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def keep_freed_memory() -> None:
    """Let the process keep up to 64 MiB that it has freed: the arrays of one call are as large as those of the next.

    By default glibc gives back everything above 128 kB at once and asks the kernel for it again, page by page, which takes as long as a decision about 5,000 nodes.
    Other C libraries have no such setting, and then nothing happens.
    """
    mallopt = _of_libc("mallopt")
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _MOST_FROM_HEAP)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


def give_back_freed_memory() -> None:
    """Give back what is free all the same, once: what a list leaves, 18 MiB of 170 with 5,000 nodes and 16,000 pods, no call will ask for. Takes a millisecond; with another C library nothing happens."""
    trim = _of_libc("malloc_trim")
    if trim is not None:
        trim(0)


def _of_libc(name: str) -> "ctypes._NamedFuncPointer | None":
    try:
        return getattr(ctypes.CDLL(None), name, None)
    except OSError:
        return None
