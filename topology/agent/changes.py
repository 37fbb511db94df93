"""What changed on a node between two published topologies, as sentences for events on the Node.

Called by `publish` after a change has been written. Tells what people have to know or look for: a driver that failed, GPUs lost and back, links that are
not what they were. Devices are matched by UUID, never by index. A link of which one side is unknown did not change, so far as anybody knows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from topology.agent.publication import DRIVER_READY
from topology.api import Condition, GPUTopology
from topology.links import LinkCode

_MOST_PAIRS: Final = 4  # in a sentence; an NVSwitch machine has 120 pairs


@dataclass(frozen=True, slots=True)
class Change:
    """One event: a word for programs and a sentence for people."""

    reason: str
    message: str
    is_warning: bool


def changes(before: GPUTopology, after: GPUTopology) -> list[Change]:
    """Return what changed, the cause before its consequences."""
    return [*_driver(before, after), *_gpus(before, after), *_health(before, after), *_links(before, after), *_peer_access(before, after)]


def _driver(before: GPUTopology, after: GPUTopology) -> Iterator[Change]:
    was, now = _condition(before, DRIVER_READY), _condition(after, DRIVER_READY)
    if was is not None and now is not None and was.status != now.status:
        failed = now.status != "True"
        yield Change("DriverFailed" if failed else "DriverReady", f"{now.message}; no GPU takes new pods" if failed else now.message, failed)
    old, new = before.spec.driver_version, after.spec.driver_version
    if old is not None and new is not None and old != new:
        yield Change("DriverChanged", f"NVIDIA driver: {old} before, {new} now", is_warning=False)


def _gpus(before: GPUTopology, after: GPUTopology) -> Iterator[Change]:
    old, new = _names(before), _names(after)
    gone = [f"{old[uuid]} ({uuid})" for uuid in old if uuid not in new]
    come = [f"{new[uuid]} ({uuid})" for uuid in new if uuid not in old]
    if gone:
        yield Change("GPURemoved", f"no longer in this node: {', '.join(gone)}", is_warning=True)
    if come:
        yield Change("GPUAdded", f"new in this node: {', '.join(come)}", is_warning=False)


def _health(before: GPUTopology, after: GPUTopology) -> Iterator[Change]:
    if not _driver_is_ready(after):
        return  # every GPU is unhealthy then: told once, as a matter of the driver
    was = {gpu.uuid: gpu.healthy for gpu in before.status.gpus} if _driver_is_ready(before) else {}
    names = _names(after)
    for gpu in after.status.gpus:
        if not gpu.healthy and was.get(gpu.uuid, True):
            yield Change("GPULost", f"{names[gpu.uuid]} ({gpu.uuid}): {gpu.reason}", is_warning=True)
        elif gpu.healthy and not was.get(gpu.uuid, True):
            yield Change("GPUBack", f"{names[gpu.uuid]} ({gpu.uuid}) works again", is_warning=False)


def _links(before: GPUTopology, after: GPUTopology) -> Iterator[Change]:
    """Yield one change for every kind of difference: `NVLink GPU0-GPU3: NV2 before, SYS now`."""
    pairs: dict[tuple[LinkCode, LinkCode], list[str]] = {}
    old = _codes(before)
    names = _names(after)
    for pair, code in _codes(after).items():
        was = old.get(pair)
        if was is not None and was != code:
            pairs.setdefault((was, code), []).append("-".join(sorted((names[uuid] for uuid in pair), key=lambda name: (len(name), name))))
    if after.spec.source.kind != before.spec.source.kind:
        # Two ways to see, not two states: sysfs sees PCIe where nvidia-smi sees NVLink.
        if pairs:
            notes = "; ".join(after.spec.source.notes[:1])
            yield Change(
                "LinksSeenOtherwise", f"links come from {after.spec.source.kind} now: {notes}".rstrip(": "), after.spec.source.kind == "sysfs"
            )
        return
    for (was, code), named in pairs.items():
        yield _link_change(was, code, named)


def _peer_access(before: GPUTopology, after: GPUTopology) -> Iterator[Change]:
    """Yield what the driver no longer allows, and what it allows again, between GPUs that were there before."""
    were, are, names = _refused(before), _refused(after), _names(after)
    common = _names(before).keys() & names.keys()
    lost = {pair: status for pair, status in are.items() if pair not in were and pair <= common}
    back = {pair: status for pair, status in were.items() if pair not in are and pair <= common}
    if lost:
        yield Change("PeerAccessGone", f"no peer access {_named(lost, names)}: their data goes through host memory", is_warning=True)
    if back:
        yield Change("PeerAccessBack", f"peer access again {_named(back, names)}", is_warning=False)


def _refused(topology: GPUTopology) -> dict[frozenset[str], str]:
    uuids = [gpu.uuid for gpu in topology.spec.gpus]
    return {frozenset((uuids[a], uuids[b])): status for (a, b), status in topology.refused().items()}


def _named(pairs: Mapping[frozenset[str], str], names: Mapping[str, str]) -> str:
    shown = [f"{'-'.join(sorted((names[uuid] for uuid in pair), key=lambda name: (len(name), name)))} ({status})" for pair, status in pairs.items()]
    return ", ".join(shown[:_MOST_PAIRS]) + (f" and {len(shown) - _MOST_PAIRS} more pairs" if len(shown) > _MOST_PAIRS else "")


def _link_change(was: LinkCode, code: LinkCode, named: list[str]) -> Change:
    kind = "NVLink" if was.nvlinks or code.nvlinks else "PCIe"
    worse = code.weakness() > was.weakness()
    reason = ("NVLinkGone" if worse else "NVLinkBack") if kind == "NVLink" else "LinksChanged"
    shown = ", ".join(named[:_MOST_PAIRS]) + (f" and {len(named) - _MOST_PAIRS} more pairs" if len(named) > _MOST_PAIRS else "")
    return Change(reason, f"{kind} {shown}: {was} before, {code} now", worse)


def _codes(topology: GPUTopology) -> dict[frozenset[str], LinkCode]:
    """Return the known links by the UUIDs of their GPUs."""
    uuids = [gpu.uuid for gpu in topology.spec.gpus]
    return {frozenset((uuids[i], uuids[j])): code for i, j, code in topology.printed_matrix().pairs() if code is not None}


def _names(topology: GPUTopology) -> dict[str, str]:
    return {gpu.uuid: f"GPU{gpu.index}" for gpu in topology.spec.gpus}


def _condition(topology: GPUTopology, kind: str) -> Condition | None:
    return next((condition for condition in topology.status.conditions if condition.type == kind), None)


def _driver_is_ready(topology: GPUTopology) -> bool:
    condition = _condition(topology, DRIVER_READY)
    return condition is None or condition.status == "True"
