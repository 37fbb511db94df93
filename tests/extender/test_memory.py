"""Freed memory is kept between calls and given back after a list."""

import platform
import subprocess
import sys

import pytest

# A process of its own: what malloc is told stays so. Pieces below the size that malloc asks the kernel for one by one, the last one kept so that the heap's end is in use.
KEEPS_AND_GIVES_BACK = """
from bench.end_to_end.processes import read_resident_mib
from extender.memory import give_back_freed_memory, keep_freed_memory
import os

keep_freed_memory()
pieces = [b"x" * 100_000 for _ in range(400)]
last = b"x" * 100_000
del pieces
kept = read_resident_mib(os.getpid())
give_back_freed_memory()
print(kept - read_resident_mib(os.getpid()))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="no other C library keeps what is freed on request")
def test_what_is_freed_is_kept_until_it_is_given_back() -> None:
    """Forty MB of pieces, nine tenths of which at least must be gone at the end and not before."""
    told = subprocess.run([sys.executable, "-c", KEEPS_AND_GIVES_BACK], stdout=subprocess.PIPE, check=True, text=True).stdout
    assert float(told) > 34
