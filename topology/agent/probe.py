"""One look at this node: asks nvidia-smi and the kernel, and returns the GPUTopology that describes it.

Called by `linkwise agent --once` through `once`; the running agent calls `look` (through `prober`), and adds what it remembers before it goes on to
`publication`; between two looks it takes a `glance`. In call order: who is there (`--query-gpu`, `-q -x` where that is not enough, `-L`, the kernel), how they are joined (`topo -m`, else the
kernel's PCIe paths), which of them the driver keeps apart (`topo -p2p r`), and then `publication`, which decides what that makes.

nvidia-smi is asked several times, and every question may fail by itself. Failures that speak of the whole node (no driver, no device, no answer) end
the probe as NvidiaSmiError; the others cost a detail, and a note says which. `topo -m` is known to fail alone, with exit status 255 ("Failed to run
topology matrix"), where a software RDMA device exists: the GPUs are there and work, so they are published with what the kernel knows of their paths.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, TypeVar

from topology.agent.publication import Answering, Facts, publication
from topology.agent.run import NvidiaSmi, find_nvidia_smi
from topology.agent.settings import AgentSettings
from topology.agent.sysfs import fill_from_kernel, read_links
from topology.api import GPUTopology
from topology.errors import InputError, NvidiaSmiError, NvidiaSmiFailure
from topology.inventory import Gpu, Inventory
from topology.matrix import LinkMatrix
from topology.nvidia_smi import P2pMatrix, failure_in, read_list, read_nvlink_status, read_p2p, read_query_csv, read_query_xml, read_topology

Read = TypeVar("Read", Inventory, LinkMatrix, P2pMatrix)

_IDENTITY: Final = "index,uuid,pci.bus_id,name,memory.total,memory.used,driver_version"
_QUERIES: Final = (
    "index,uuid,pci.bus_id,name,memory.total,memory.used,pcie.link.gen.max,pcie.link.width.max,mig.mode.current,driver_version",
    _IDENTITY,  # drivers before 450 refuse the whole query for mig.mode.current
)

# These leave the other questions worth asking; after any other failure of the first one they would fail alike, or hang once more.
_MAY_GO_ON: Final = frozenset({NvidiaSmiFailure.BAD_ARGUMENTS, NvidiaSmiFailure.DEVICE_LOST, NvidiaSmiFailure.UNSUPPORTED, NvidiaSmiFailure.PARTIAL})
_DRIVER_GONE: Final = frozenset({NvidiaSmiFailure.NO_DRIVER, NvidiaSmiFailure.DRIVER_MISMATCH})
_GOOD_EXITS: Final = frozenset({0, 14})  # 14: the infoROM is corrupted, the answer is complete


def utc_now() -> datetime:
    """Return the time of day, the clock of a real agent."""
    return datetime.now(UTC)


def probe(settings: AgentSettings, clock: Callable[[], datetime] = utc_now) -> GPUTopology:
    """Return what this node is now.

    Raises NvidiaSmiError where nvidia-smi gives nothing to describe, TopologyError where what it gives describes no node.
    """
    return publication(settings.node_name, look(settings), clock())


def look(settings: AgentSettings, stop: threading.Event | None = None) -> Facts:
    """Return what nvidia-smi and the kernel tell; raises NvidiaSmiError where that describes nothing, at once when ``stop`` is set meanwhile."""
    smi = find_nvidia_smi(settings.nvidia_smi, settings.timeout_s, stop)
    listed = _inventory(smi)
    inventory = fill_from_kernel(listed, settings.sysfs_root)
    if _lacks_detail(inventory):
        inventory = fill_from_kernel(inventory.merged(_or_nothing(smi, read_query_xml, "-q", "-x")), settings.sysfs_root)
    inventory = inventory.merged(_of_the_same(inventory, _or_nothing(smi, read_nvlink_status, "nvlink", "-s")))
    try:
        facts = Facts(inventory, _answer(smi, read_topology, "topo", "-m"))
    except InputError as error:
        facts = _fallback(inventory, settings, error)
    return replace(facts, refused=_refused(smi) if len(inventory.gpus) > 1 else None, answering=_answering(listed))


def glance(settings: AgentSettings, stop: threading.Event | None = None) -> Answering:
    """Return which GPUs are there and which of them are lost: the first questions of a look, and the quickest. Raises as `look` does."""
    return _answering(_inventory(find_nvidia_smi(settings.nvidia_smi, settings.timeout_s, stop)))


def _answering(inventory: Inventory) -> Answering:
    return frozenset((gpu.uuid, gpu.bus_id, gpu.lost) for gpu in inventory.gpus)


def _inventory(smi: NvidiaSmi) -> Inventory:
    """Return who is there; raises NvidiaSmiError where no question is answered, or none will be."""
    failures: list[NvidiaSmiError] = []
    queried = Inventory()
    for columns in _QUERIES:
        try:
            queried = _answer(smi, read_query_csv, f"--query-gpu={columns}", "--format=csv")
            break
        except NvidiaSmiError as error:
            failures.append(error)
            if error.kind not in _MAY_GO_ON:
                raise
    try:
        listed = _answer(smi, read_list, "-L")
    except NvidiaSmiError as error:
        failures.append(error)
        listed = Inventory(warnings=(f"nvidia-smi -L failed: {error}",))
    merged = queried.merged(listed)
    if not merged.gpus:
        raise failures[0] if failures else NvidiaSmiError(NvidiaSmiFailure.NO_DEVICES, "nvidia-smi lists no GPU on this node")
    return merged


def _answer(smi: NvidiaSmi, reader: Callable[[str], Read], *arguments: str) -> Read:
    """Return what one question gave; raises NvidiaSmiError, with the tool's own words where it had any.

    A lost GPU makes the exit status bad while the lines of the others are good: what the reader understands is taken.
    """
    answer = smi(*arguments)
    failure = None if answer.exit_code in _GOOD_EXITS else failure_in(answer.text, answer.exit_code)
    if failure is not None and failure.kind is not NvidiaSmiFailure.DEVICE_LOST:
        raise failure
    try:
        return reader(answer.text)
    except NvidiaSmiError as error:
        raise failure or error from error


def _or_nothing(smi: NvidiaSmi, reader: Callable[[str], Inventory], *arguments: str) -> Inventory:
    """Return what one question gave, nothing where it failed: these tell details that have other sources, or that older drivers do not know."""
    try:
        return _answer(smi, reader, *arguments)
    except InputError:
        return Inventory()


def _refused(smi: NvidiaSmi) -> dict[tuple[int, int], str] | None:
    """Return the pairs of GPU indices between which the driver allows no reads; None where it does not tell, as old ones do not."""
    try:
        return {pair: str(status) for pair, status in _answer(smi, read_p2p, "topo", "-p2p", "r").refused().items()}
    except InputError:
        return None


def _of_the_same(inventory: Inventory, details: Inventory) -> Inventory:
    """Return the details of GPUs that are listed: `nvlink -s` knows of a lost one, but not that it is lost."""
    known = tuple(gpu for gpu in details.gpus if any(gpu.same_device(listed) for listed in inventory.gpus))
    return Inventory(known, details.driver_version, details.warnings)


def _lacks_detail(inventory: Inventory) -> bool:
    """Tell whether `-q -x`, the slowest question, is worth asking: minor numbers and bus ids usually come cheaper."""
    return any(gpu.minor is None or gpu.bus_id is None for gpu in inventory.gpus if not gpu.lost)


def _fallback(inventory: Inventory, settings: AgentSettings, error: InputError) -> Facts:
    """Return the facts with the kernel's PCIe paths in place of the matrix; raises the error where the driver itself went away meanwhile."""
    if isinstance(error, NvidiaSmiError) and error.kind in _DRIVER_GONE:
        raise error
    gpus = [gpu for gpu in inventory.gpus if gpu.index is not None]
    failed = f"nvidia-smi topo -m failed: {error}"
    reason = f"{failed}. The links are PCIe paths from sysfs, which shows neither NVLink nor NICs{_active_nvlinks(gpus)}"
    return Facts(inventory, read_links(gpus, settings.sysfs_root), fallback=reason, failed=failed)


def _active_nvlinks(gpus: list[Gpu]) -> str:
    counts = sorted({gpu.nvlinks for gpu in gpus if gpu.nvlinks}, reverse=True)
    active = [f"{count} on GPU {', '.join(str(gpu.index) for gpu in gpus if gpu.nvlinks == count)}" for count in counts]
    return f"; nvidia-smi nvlink -s shows active NVLinks ({'; '.join(active)}), but which GPUs they join is unknown" if active else ""
