"""GPUTopology (gputopologies.linkwise.dev, v1alpha1): what a node's hardware is, and what was observed on it.

The pydantic types are the one definition: the agent writes through them, the extender reads through them, and the OpenAPI schema of the CRD is
generated from them (`topology.api.crd`). `read_gputopology` is the border: anything that gets past it can be turned into a `LinkMatrix` and an
`Inventory`, which is all that the tables need.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from topology.api.allocation import first_problem
from topology.api.annotations import API_VERSION, KIND
from topology.errors import TopologyError
from topology.inventory import Gpu, Inventory
from topology.links import LinkCode
from topology.matrix import GpuRow, LinkMatrix, NicColumn
from topology.peer_access import as_allowed

MOST_GPUS = 16  # the tables hold a row for every subset: 2**16 of them

# Conditions of a node whose agent hands the GPUs over: whether kubelet knows it, and whether GPUs are on the NUMA nodes that kubelet aligns CPUs to.
HAND_OFF_REGISTERED: Final = "HandOffRegistered"
NUMA_ALIGNED: Final = "NUMAAligned"
# The one reason for which kubelet does not know the agent and pods start all the same: they get GPUs from the plugin that is in the way.
ANOTHER_PLUGIN: Final = "AnotherPlugin"


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


class PcieSlot(_Wire):
    """The most that GPU and slot can do together."""

    generation: Annotated[int | None, Field(ge=1, description="PCI Express generation")] = None
    width: Annotated[int | None, Field(ge=1, description="lanes")] = None


class GpuSpec(_Wire):
    """One GPU. `uuid` and `busID` are its identity; `index` and `minor` may change at every boot."""

    index: Annotated[int, Field(ge=0, description="index that nvidia-smi shows")]
    minor: Annotated[int | None, Field(ge=0, description="number of /dev/nvidiaN")] = None
    uuid: Annotated[str, Field(min_length=1, description="identity of the GPU, for example GPU-01234567-89ab-cdef-0123-456789abcdef")]
    bus_id: Annotated[str | None, Field(alias="busID", description="PCI bus id, for example 00000000:3B:00.0")] = None
    model: Annotated[str | None, Field(description="product name")] = None
    memory_mib: Annotated[int | None, Field(alias="memoryMiB", ge=0, description="total memory in MiB")] = None
    numa_node: Annotated[int | None, Field(description="NUMA node of the GPU's slot")] = None
    cpus: Annotated[str | None, Field(description="CPU affinity as printed, for example 0-23,48-71")] = None
    pcie: PcieSlot = PcieSlot()
    nvlinks: Annotated[int | None, Field(ge=0, description="active NVLinks of this GPU")] = None
    mig_mode: Annotated[str | None, Field(description="Enabled or Disabled; absent on models without MIG")] = None


class NicSpec(_Wire):
    """One NIC: its label in the matrix and its device name."""

    label: Annotated[str, Field(description="column of the matrix, for example NIC0")]
    name: Annotated[str | None, Field(description="device name, for example mlx5_0")] = None


class RefusedPair(_Wire):
    """Two GPUs between which the driver allows no peer access: they exchange data through host memory, whatever their code says."""

    a: Annotated[int, Field(ge=0, description="place of one in `gpus`, from 0")]
    b: Annotated[int, Field(ge=0, description="place of the other")]
    status: Annotated[str, Field(description="the driver's word, as nvidia-smi topo -p2p r prints it: CNS, GNS, TNS, NS, DR, U")]


class LinkRows(_Wire):
    """The link matrix as codes: row i is the i-th entry of `gpus`. `X` on the diagonal, `-` where unknown."""

    gpus: Annotated[tuple[tuple[str, ...], ...], Field(description="one row a GPU, one code a GPU: X, NV1..NV18, PIX, PXB, PHB, NODE, SYS")]
    nics: Annotated[tuple[tuple[str, ...], ...], Field(description="one row a GPU, one code a NIC")] = ()
    no_peer_access: Annotated[
        tuple[RefusedPair, ...] | None, Field(description="pairs that the driver keeps apart; absent where there is none, or nothing is known")
    ] = None


class SourceSpec(_Wire):
    """Where the links came from, and how good that source is."""

    kind: Annotated[Literal["nvidia-smi", "sysfs"], Field(description="sysfs cannot see NVLink")] = "nvidia-smi"
    quality: Annotated[
        Literal["full", "partial", "fallback"], Field(description="partial: damaged output; fallback: no link matrix could be read")
    ] = "full"
    notes: Annotated[tuple[str, ...], Field(description="sentences about what was damaged, guessed or left out")] = ()


class GPUTopologySpec(_Wire):
    """What the hardware is. Changes with the hardware, never with its use."""

    gpus: Annotated[tuple[GpuSpec, ...], Field(min_length=1, max_length=MOST_GPUS, description="every GPU of the node, by index")]
    nics: Annotated[tuple[NicSpec, ...], Field(description="network devices that the link matrix names")] = ()
    links: LinkRows
    driver_version: Annotated[str | None, Field(description="version of the NVIDIA driver")] = None
    source: SourceSpec = SourceSpec()
    gpu_count: Annotated[int | None, Field(description="number of GPUs, for kubectl get")] = None
    model: Annotated[str | None, Field(description="common model name, for kubectl get")] = None
    nvlink: Annotated[str | None, Field(description="NVLink in one word, for kubectl get, for example NV18")] = None


class GpuHolder(_Wire):
    """A container that holds a GPU: by the agent's own records with the hand-off on, else by kubelet's ids, which name pods without their UID."""

    namespace: Annotated[str, Field(description="namespace of the pod")]
    name: Annotated[str, Field(description="name of the pod")]
    container: Annotated[str | None, Field(description="name of the container")] = None
    uid: Annotated[str | None, Field(description="UID of the pod; only with the hand-off, which knows in truth who has the GPU")] = None
    memory_mib: Annotated[int | None, Field(alias="memoryMiB", ge=1, description="its part of the GPU in MiB; absent: all of it, or unknown")] = None
    planned: Annotated[bool | None, Field(description="false: the pod came around Linkwise and was given what was free")] = None


class GpuStatus(_Wire):
    """One GPU as it was found."""

    uuid: Annotated[str, Field(min_length=1, description="identity of the GPU, as in spec")]
    healthy: Annotated[bool, Field(description="false: no new pods on this GPU")] = True
    reason: Annotated[str | None, Field(description="why it is not healthy")] = None
    memory_used_mib: Annotated[int | None, Field(alias="memoryUsedMiB", ge=0, description="used memory in MiB, by whomever")] = None
    holders: Annotated[tuple[GpuHolder, ...], Field(description="containers that hold this GPU")] = ()


class Condition(_Wire):
    """A condition in the usual Kubernetes form."""

    type: Annotated[str, Field(description="DriverReady, LinksKnown, GPUsHealthy, HoldersObserved; with the hand-off HandOffRegistered, NUMAAligned")]
    status: Annotated[Literal["True", "False", "Unknown"], Field(description="whether it holds")]
    reason: Annotated[str, Field(description="one word for programs")]
    message: Annotated[str, Field(description="a sentence for people")] = ""
    last_transition_time: Annotated[datetime | None, Field(description="when the status last changed")] = None


class GPUTopologyStatus(_Wire):
    """What was observed, and when. `holdersObserved` tells that kubelet was asked who holds what (an empty answer is an answer)."""

    observed_at: Annotated[datetime | None, Field(description="when the agent last looked")] = None
    gpus: Annotated[tuple[GpuStatus, ...], Field(description="one entry a GPU of spec")] = ()
    holders_observed: Annotated[bool, Field(description="kubelet was asked who holds what")] = False
    conditions: Annotated[tuple[Condition, ...], Field(description="state of driver, links, GPUs and holders")] = ()
    free_gpus: Annotated[int | None, Field(alias="freeGPUs", ge=0, description="healthy GPUs that nobody holds, for kubectl get")] = None
    health: Annotated[str | None, Field(description="Healthy, or how many GPUs are not, for kubectl get")] = None


class ObjectMeta(BaseModel):
    """The part of ObjectMeta that is read; the rest is kept as it is."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: Annotated[str, Field(min_length=1)]


class GPUTopology(_Wire):
    """One node's GPUs and links; cluster-scoped, named as its node."""

    api_version: Literal["linkwise.dev/v1alpha1"] = API_VERSION  # type: ignore[assignment]  # mypy does not follow an f-string into a Literal
    kind: Literal["GPUTopology"] = KIND
    metadata: ObjectMeta
    spec: GPUTopologySpec
    status: GPUTopologyStatus = GPUTopologyStatus()

    @property
    def name(self) -> str:
        """Name of the object and of its node."""
        return self.metadata.name

    def matrix(self) -> LinkMatrix:
        """Return the link matrix as the driver lets it be used; raises TopologyError where rows and devices do not match."""
        return as_allowed(self.printed_matrix(), self.refused())

    def refused(self) -> dict[tuple[int, int], str]:
        """Return the pairs of places in `spec.gpus` without peer access, the lower first."""
        return {(min(pair.a, pair.b), max(pair.a, pair.b)): pair.status for pair in self.spec.links.no_peer_access or ()}

    def printed_matrix(self) -> LinkMatrix:
        """Return the link matrix as nvidia-smi printed it; raises TopologyError where rows and devices do not match."""
        gpus = tuple(GpuRow(gpu.index, cpus=gpu.cpus, numa=None if gpu.numa_node is None else str(gpu.numa_node)) for gpu in self.spec.gpus)
        nics = tuple(NicColumn(nic.label, nic.name) for nic in self.spec.nics)
        nic_rows = self.spec.links.nics or tuple(() for _ in gpus)
        return LinkMatrix(gpus, nics, _cells(self.spec.links.gpus), _cells(nic_rows), self.spec.source.notes)

    def inventory(self) -> Inventory:
        """Return what the single GPUs are, in the order of the object."""
        return Inventory(tuple(_gpu(gpu) for gpu in self.spec.gpus), self.spec.driver_version)

    def to_object(self) -> dict[str, Any]:
        """Return the Kubernetes object as plain data."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def _gpu(spec: GpuSpec) -> Gpu:
    return Gpu(
        index=spec.index,
        uuid=spec.uuid,
        bus_id=spec.bus_id,
        minor=spec.minor,
        model=spec.model,
        memory_mib=spec.memory_mib,
        pcie_generation=spec.pcie.generation,
        pcie_width=spec.pcie.width,
        numa_node=spec.numa_node,
        cpus=spec.cpus,
        mig_mode=spec.mig_mode,
        nvlinks=spec.nvlinks,
    )


def _cells(rows: tuple[tuple[str, ...], ...]) -> tuple[tuple[LinkCode | None, ...], ...]:
    return tuple(tuple(_cell(text) for text in row) for row in rows)


def _cell(text: str) -> LinkCode | None:
    if text in ("X", "-", ""):
        return None
    code = LinkCode.parse(text)
    if code is None:
        raise TopologyError(f"spec.links holds {text!r}; accepted: X, -, NV1 to NV99, PIX, PXB, PHB, NODE, SYS, SOC")
    return code


def read_gputopology(raw: Any) -> GPUTopology:
    """Read a GPUTopology object (plain data); raises TopologyError with a sentence naming the object for anything that cannot describe a node."""
    if not isinstance(raw, Mapping):
        raise TopologyError(f"GPUTopology is a {type(raw).__name__}; accepted: an object with metadata.name and spec")
    metadata = raw.get("metadata")
    name = metadata.get("name", "?") if isinstance(metadata, Mapping) else "?"
    try:
        topology = GPUTopology.model_validate(raw)
        _check(topology)
    except ValidationError as error:
        raise TopologyError(f"GPUTopology {name}: {first_problem(error)}") from error
    except TopologyError as error:
        raise TopologyError(f"GPUTopology {name}: {error}") from error
    return topology


def _check(topology: GPUTopology) -> None:
    for key in ("uuid", "index"):
        values = [getattr(gpu, key) for gpu in topology.spec.gpus]
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            raise TopologyError(f"spec.gpus holds {key} {twice} twice; accepted: every GPU once")
    size = topology.printed_matrix().size
    for a, b in topology.refused():
        if a == b or b >= size:
            raise TopologyError(f"spec.links.noPeerAccess names GPUs {a} and {b}; accepted: two different places from 0 to {size - 1}")
