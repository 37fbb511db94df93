"""Every exception that Linkwise raises on purpose, in one tree.

    LinkwiseError
    ├── ApiServerError              the API server gave no answer, or refused
    ├── InputError                  somebody's input is wrong; the message names the thing, the value, the accepted form
    │   ├── NvidiaSmiError          nvidia-smi did not give what was asked for; ``kind`` says which way
    │   ├── TopologyError           a matrix or GPUTopology that cannot describe a node
    │   ├── AllocationError         an allocation annotation that does not decode
    │   ├── DemandError             a pod that asks for something that cannot be understood
    │   ├── CallError               a body that is no scheduler-extender call
    │   └── SnapshotError           a snapshot file that cannot be read at all
    └── InternalError               a bug in Linkwise; please report it

"Does not fit" is never an exception: it is a value (`extender.reasons`). Foreign exceptions become one of these at the border, with ``from``.
Both packages import this module; it imports nothing of theirs.
"""

from enum import StrEnum


class LinkwiseError(Exception):
    """Anything that Linkwise raises on purpose."""


class ApiServerError(LinkwiseError):
    """The API server gave no answer, or refused; clients of it raise kinds of this."""


class InputError(LinkwiseError):
    """Somebody's input is wrong; ``str(error)`` is a whole sentence for that person."""


class NvidiaSmiFailure(StrEnum):
    """The ways in which nvidia-smi fails to answer; the values are the ``kind`` of ``inspect --output json``."""

    DRIVER_MISMATCH = "driver_mismatch"
    NO_DRIVER = "no_driver"
    NO_DEVICES = "no_devices"
    NOT_FOUND = "not_found"
    UNSUPPORTED = "unsupported"
    DEVICE_LOST = "device_lost"
    BAD_ARGUMENTS = "bad_arguments"
    PARTIAL = "partial"
    EMPTY = "empty"
    UNKNOWN = "unknown"


class NvidiaSmiError(InputError):
    """nvidia-smi gave a message instead of an answer.

    ``bus_id`` names the GPU where the message does (``device_lost``), else it is None.
    """

    def __init__(self, kind: NvidiaSmiFailure, message: str, *, bus_id: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.bus_id = bus_id


class TopologyError(InputError):
    """A link matrix or a GPUTopology that cannot describe a node."""


class AllocationError(InputError):
    """An allocation annotation that does not decode."""


class DemandError(InputError):
    """A pod asks for something that cannot be understood."""


class CallError(InputError):
    """A body that is not a scheduler-extender call."""


class SnapshotError(InputError):
    """A snapshot file that cannot be read at all."""


class InternalError(LinkwiseError):
    """A bug in Linkwise: a state that its own rules exclude."""
