"""kubelet's own record of who was given which device ids: its checkpoint file, read whole.

Used by `kubelet`. An entry names a pod by UID, a container, a resource, the ids, and holds our answer to Allocate as it went over the wire: the token in it
ties that container to what we issued, without a guess. kubelet writes the file at admission, before any container of the pod starts, and renames it into
place, so what is read is one moment's truth, possibly a past one; `kubelet` makes kubelet write it anew where that matters.

The checksum beside the data is not verified: it is a hash over Go's print of Go's types, which may change with every version, and a wrong refusal would stop
every GPU container of the node. A file that is damaged does not decode. Source of the format: pkg/kubelet/cm/devicemanager/checkpoint, Kubernetes 1.20 to 1.36.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
from google.protobuf.message import DecodeError

from topology.agent.handoff.wire import MESSAGES
from topology.errors import LinkwiseError

FILE_NAME: Final = "kubelet_internal_checkpoint"
CDI_KIND: Final = "linkwise.dev/allocation"
TOKEN_ANNOTATION: Final = "linkwise.dev/token"  # noqa: S105  # a name, not a secret: in the answers that go without CDI

_TOKEN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")  # it becomes the name of a file


class CheckpointError(LinkwiseError):
    """kubelet's checkpoint cannot be read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The ids of one resource that one container was given. ``token`` None: somebody else's device plugin answered.

    ``by_cdi``: what the container gets is decided by the CDI spec of the token; else it gets the GPUs of these ids.
    """

    pod_uid: str
    container: str
    resource: str
    ids: frozenset[str]
    token: str | None = None
    by_cdi: bool = False


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything that kubelet had given away at one moment."""

    entries: tuple[Entry, ...] = ()

    @property
    def tokens(self) -> frozenset[str]:
        """The tokens that kubelet knows."""
        return frozenset(entry.token for entry in self.entries if entry.token is not None)

    def of(self, resource: str, ids: frozenset[str]) -> list[Entry]:
        """Return the entries of exactly these ids: an init container and the container that takes over its ids have the same."""
        return [entry for entry in self.entries if entry.resource == resource and entry.ids == ids]


class CheckpointFile:
    """The file, decoded once per content."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self._read: tuple[object, Checkpoint] = (None, Checkpoint())

    def stamp(self) -> object:
        """Return what changes whenever the file is written anew; None where there is none."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def read(self) -> Checkpoint:
        """Return what the file holds now, nothing where kubelet never wrote one; raises CheckpointError."""
        stamp = self.stamp()
        if stamp is not None and self._read[0] == stamp:
            return self._read[1]
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return Checkpoint()
        except OSError as error:
            raise CheckpointError(f"kubelet's checkpoint {self.path} cannot be read: {error.strerror}") from error
        found = decoded(data)
        # The file may have been replaced between the two: then the stamp is the older one, and the next call reads again.
        self._read = (stamp, found)
        return found


def decoded(data: bytes) -> Checkpoint:
    """Return what a checkpoint file says; raises CheckpointError for anything that is none."""
    try:
        entries = orjson.loads(data)["Data"]["PodDeviceEntries"] or []
        return Checkpoint(tuple(_entries(entries)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"kubelet's checkpoint is not as kubelet 1.20 to 1.36 writes it: {error!r}") from error


def _entries(raw: list[Mapping[str, Any]]) -> Iterator[Entry]:
    for one in raw:
        per_numa_node: Mapping[str, list[str]] = one["DeviceIDs"] or {}
        ids = frozenset(str(device) for devices in per_numa_node.values() for device in devices)
        token, by_cdi = _token(one.get("AllocResp") or "")
        yield Entry(str(one["PodUID"]), str(one["ContainerName"]), str(one["ResourceName"]), ids, token, by_cdi)


def _token(answer: str) -> tuple[str | None, bool]:
    """Return the token of an answer to Allocate, and whether it is a CDI device; None where it is not ours."""
    try:
        response = MESSAGES["ContainerAllocateResponse"].FromString(base64.b64decode(answer))
    except (binascii.Error, DecodeError):
        return None, False
    for device in response.cdi_devices:
        kind, _, name = device.name.partition("=")
        if kind == CDI_KIND:
            return (name, True) if _TOKEN.fullmatch(name) else (None, False)
    name = response.annotations.get(TOKEN_ANNOTATION, "")
    return (name if _TOKEN.fullmatch(name) else None), False
