"""Files that are whole or not there: written beside their name, then renamed; and, where it is asked for, on the disk before anybody is told.

Used for records (durable), for the files that containers see, and for CDI specs. The temporary name begins with a dot and ends in none of the endings that
runtimes read (.json, .yaml), so a broken-off write is nobody's spec; `garbage` sweeps such leftovers.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

TEMPORARY: Final = ".linkwise-tmp-"


def write_whole(path: Path, data: bytes, *, durable: bool) -> None:
    """Let the file hold exactly this; raises OSError, and then it holds what it held."""
    temporary = path.with_name(f"{TEMPORARY}{uuid4().hex}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        _sync_directory(path.parent)


def remove(path: Path, *, durable: bool) -> None:
    """Let there be no such file."""
    path.unlink(missing_ok=True)
    if durable:
        _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    """Bring the names of a directory to the disk: a new one is there once its directory is."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
