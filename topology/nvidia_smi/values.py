"""Single values as nvidia-smi prints them: numbers with and without units, and the many ways to say nothing.

Shared by the readers of CSV and XML, and for UUIDs by all. A masked UUID (`GPU-...`, all zeros, letters x) identifies nothing, so it is None: two
masked GPUs must never be taken for one.
"""

import re
from typing import Final

from topology.inventory import normal_bus_id

_UUID: Final = re.compile(r"(?:GPU-|MIG-(?:GPU-)?)?(?P<hex>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})(?:/\d+/\d+)?", re.IGNORECASE)
_BUS_ID: Final = re.compile(r"(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]")
_NUMBER: Final = re.compile(r"(?P<number>\d{1,12})(?:\.\d+)?\s*(?:MiB|MB|x)?", re.IGNORECASE)
# A cell that tells of a GPU which no longer answers; N/A and "not supported" only tell that there is no value.
_GONE: Final = re.compile(r"\[?(?:GPU is lost|Unknown Error|GPU requires reset|ERR!)\]?", re.IGNORECASE)
_NO_VALUE: Final = re.compile(r"\[.*\]|N/A|None|Not Supported|Unknown|Requested functionality has been deprecated|", re.IGNORECASE)


def uuid_or_none(text: str | None) -> str | None:
    """Return a UUID of a GPU or a MIG device as printed, None where it is cut, elided or masked.

    >>> uuid_or_none("GPU-..."), uuid_or_none("GPU-00000000-0000-0000-0000-000000000000")
    (None, None)
    """
    match = _UUID.fullmatch(text.strip()) if text else None
    return match.group() if match and set(match["hex"]) - set("0-") else None


def bus_id_or_none(text: str | None) -> str | None:
    """Return a bus id in the form of `normal_bus_id`, None where the text is none."""
    return normal_bus_id(text) if text and _BUS_ID.fullmatch(text.strip()) else None


def text_or_none(text: str | None) -> str | None:
    """Return the value, None where the tool says that it has none."""
    value = text.strip() if text else ""
    return None if _NO_VALUE.fullmatch(value) or _GONE.fullmatch(value) else value


def number_or_none(text: str | None) -> int | None:
    """Return a whole number, with its unit (MiB, the x of a link width) or without.

    >>> number_or_none("81920 MiB"), number_or_none("16x"), number_or_none("[N/A]")
    (81920, 16, None)
    """
    match = _NUMBER.fullmatch(text.strip()) if text else None
    return int(match["number"]) if match else None


def mig_mode_or_none(text: str | None) -> str | None:
    """Return `Enabled`, `Disabled`, or `N/A` for a GPU that cannot be partitioned; None where the tool does not tell.

    >>> mig_mode_or_none("[N/A]"), mig_mode_or_none("[Unknown Error]")
    ('N/A', None)
    """
    value = text.strip().strip("[]") if text else ""
    return "N/A" if value in ("N/A", "Not Supported") else text_or_none(value)


def tells_of_a_lost_gpu(text: str) -> bool:
    """Tell whether a cell says that its GPU no longer answers.

    >>> tells_of_a_lost_gpu("[GPU is lost]"), tells_of_a_lost_gpu("[N/A]")
    (True, False)
    """
    return _GONE.fullmatch(text.strip()) is not None
