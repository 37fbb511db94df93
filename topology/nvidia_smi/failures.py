"""What nvidia-smi says instead of an answer, and which way it failed.

One table turns the tool's sentences into an `NvidiaSmiFailure`, one turns its exit codes. `read_topology` and the readers of the companions ask
`failure_in` when they find nothing to read; the agent's probe asks it with the exit code at hand. A sentence weighs more than the exit code, since
255 stands for "other". Lines inside a good answer (a lost GPU between two good ones) are the readers' business, and they use the same table.

Sources: sentences as public bug reports quote them, of drivers from 340 to 610; exit codes from "RETURN VALUE" of the nvidia-smi manual page
and from the shells. A new sentence goes into `_SENTENCES`, the more telling one first.
"""

import re
from dataclasses import dataclass
from typing import Final

from topology.errors import NvidiaSmiError, NvidiaSmiFailure
from topology.inventory import normal_bus_id

BUS_ID: Final = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]")
_QUOTE_LENGTH: Final = 120  # characters of somebody's text that a message repeats


@dataclass(frozen=True, slots=True)
class _Sentence:
    """What the tool prints (a pattern over text whose blanks are collapsed), the kind of failure, and what it means for the reader."""

    pattern: re.Pattern[str]
    kind: NvidiaSmiFailure
    meaning: str


def _sentence(pattern: str, kind: NvidiaSmiFailure, meaning: str) -> _Sentence:
    return _Sentence(re.compile(pattern, re.IGNORECASE), kind, meaning)


# The first match wins. "No devices were found" stands before the lost device: where both are printed, no GPU is left.
_SENTENCES: Final = (
    _sentence(
        r"driver/library version mismatch",
        NvidiaSmiFailure.DRIVER_MISMATCH,
        "the loaded kernel module and the NVIDIA library are of different versions; reload the module or reboot the node",
    ),
    _sentence(
        r"couldn't communicate with the NVIDIA driver|driver not loaded|NVIDIA driver is not loaded|couldn't find libnvidia-ml",
        NvidiaSmiFailure.NO_DRIVER,
        "the NVIDIA driver is not installed or not running on this node",
    ),
    _sentence(
        r"no devices were found|no (?:NVIDIA )?GPUs? (?:were |was )?found|no supported gpus were found",
        NvidiaSmiFailure.NO_DEVICES,
        "no GPU is visible here; on a node with GPUs this is a container or a job that was given none, or all of them are lost",
    ),
    _sentence(
        r"unable to determine the device handle for gpu|gpu is lost\b|fallen off the bus|gpu requires (?:a )?reset|insufficiently powered",
        NvidiaSmiFailure.DEVICE_LOST,
        "a GPU does not answer any more; it needs a reset, a reboot or a look at its slot",
    ),
    _sentence(
        r"nvidia-smi(?:\.exe)?['\"]?:? (?:command )?not found|nvidia-smi(?:\.exe)?['\"]?: no such file"
        r"|nvidia-smi(?:\.exe)?['\"]? is not recognized|nvidia-smi['\"]?: executable file not found|no such file or directory: '?[^ ]*nvidia-smi"
        r"|unknown command:? ?['\"]?nvidia-smi",
        NvidiaSmiFailure.NOT_FOUND,
        "the command nvidia-smi is not installed or not in PATH",
    ),
    _sentence(
        r"option -m is missing its value|option '?\"?topo'?\"? is not recognized|failed to run topology matrix|topology .{0,40}not supported",
        NvidiaSmiFailure.UNSUPPORTED,
        "this driver, device or platform cannot print a link matrix",
    ),
    _sentence(
        r"command line argument must be used in conjunction|invalid combination of input arguments|option .{1,40} is not recognized"
        r"|is missing its value|please run 'nvidia-smi -h' for help",
        NvidiaSmiFailure.BAD_ARGUMENTS,
        "the arguments were refused; accepted: `nvidia-smi topo -m` without further options (very old drivers do not know it)",
    ),
    _sentence(
        r"failed to initialize NVML",
        NvidiaSmiFailure.NO_DRIVER,
        "the NVIDIA library cannot reach the driver; in a container this means that it has lost its GPU devices or was given none",
    ),
    _sentence(
        r"operation is not supported|not supported on this (?:device|platform|system)",
        NvidiaSmiFailure.UNSUPPORTED,
        "this driver or device does not support the question",
    ),
)

# Exit codes that say more than "other" (255). Source: nvidia-smi(1), RETURN VALUE; 126 and 127 from POSIX shells, 124 from timeout(1).
_EXIT_CODES: Final = {
    2: (NvidiaSmiFailure.BAD_ARGUMENTS, "an argument or option is not valid"),
    3: (NvidiaSmiFailure.UNSUPPORTED, "the operation is not available on this device"),
    4: (NvidiaSmiFailure.UNKNOWN, "the user may not do this"),
    6: (NvidiaSmiFailure.NO_DEVICES, "no object was found that answers the query"),
    8: (NvidiaSmiFailure.DEVICE_LOST, "a GPU's external power cables are not attached"),
    9: (NvidiaSmiFailure.NO_DRIVER, "the NVIDIA driver is not loaded"),
    10: (NvidiaSmiFailure.DEVICE_LOST, "the kernel found an interrupt problem of a GPU"),
    12: (NvidiaSmiFailure.NO_DRIVER, "the NVML library was not found or could not be loaded"),
    13: (NvidiaSmiFailure.UNSUPPORTED, "the local NVML does not know this function"),
    15: (NvidiaSmiFailure.DEVICE_LOST, "a GPU has fallen off the bus or is inaccessible"),
    124: (NvidiaSmiFailure.UNKNOWN, "it ran out of time"),
    126: (NvidiaSmiFailure.NOT_FOUND, "the file was found but cannot be run"),
    127: (NvidiaSmiFailure.NOT_FOUND, "the command was not found"),
}
# 14, "infoROM is corrupted", comes with a complete answer: it alone does not make an answer worthless.
_EXIT_CODES_WITH_ANSWER: Final = frozenset({0, 14})


def failure_in(text: str, exit_code: int | None = None) -> NvidiaSmiError | None:
    """Return the failure that a text which is no answer stands for, None where neither text nor exit code tells of one.

    ``text`` is what the tool printed (stdout and stderr together), ``exit_code`` its status where known. A blank text without a telling exit
    code is ``empty``. The caller decides whether to raise.

    >>> failure_in("No devices were found").kind.value
    'no_devices'
    >>> failure_in("", exit_code=9).kind.value
    'no_driver'
    """
    return _by_sentence(text) or _by_exit_code(text, exit_code)


def _by_sentence(text: str) -> NvidiaSmiError | None:
    # Copies wrap and quote the sentences: "the latest >NVIDIA driver".
    flat = re.sub(r"[>\s]+", " ", text.replace("\u2019", "'"))
    for sentence in _SENTENCES:
        match = sentence.pattern.search(flat)
        if match:
            return NvidiaSmiError(
                sentence.kind,
                f'nvidia-smi failed with "{_said(text, flat, match)}": {sentence.meaning}',
                bus_id=_bus_id_near(flat, match),
            )
    return None


def _said(text: str, flat: str, match: re.Match[str]) -> str:
    for line in text.splitlines():
        if match.group(0).lower() in line.lower():
            return shortened(line.strip(" \t>#"))
    return shortened(flat[match.start() :])


def _bus_id_near(flat: str, match: re.Match[str]) -> str | None:
    found = BUS_ID.search(flat, match.start()) or BUS_ID.search(flat)
    return normal_bus_id(found.group(0)) if found else None


def _by_exit_code(text: str, exit_code: int | None) -> NvidiaSmiError | None:
    if exit_code in _EXIT_CODES:
        kind, meaning = _EXIT_CODES[exit_code]
        return NvidiaSmiError(kind, f"nvidia-smi ended with exit code {exit_code}: {meaning}{_quoted(text)}")
    if exit_code is not None and exit_code not in _EXIT_CODES_WITH_ANSWER:
        return NvidiaSmiError(NvidiaSmiFailure.UNKNOWN, f"nvidia-smi ended with exit code {exit_code} and no sentence known here{_quoted(text)}")
    if not text.strip():
        return NvidiaSmiError(NvidiaSmiFailure.EMPTY, "the text is empty; wanted: the output of nvidia-smi")
    return None


def _quoted(text: str) -> str:
    line = first_line(text)
    return f'; it printed "{line}"' if line else ""


def first_line(text: str) -> str:
    """Return the first line that is not blank, shortened; an empty string where there is none."""
    return next((shortened(line.strip()) for line in text.splitlines() if line.strip()), "")


def shortened(text: str, length: int = _QUOTE_LENGTH) -> str:
    """Return a text fit for a message: printable, on one line, at most ``length`` characters."""
    plain = "".join(c if c.isprintable() else " " for c in text)
    return plain if len(plain) <= length else plain[: length - 1] + "…"
