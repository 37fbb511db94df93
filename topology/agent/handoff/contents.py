"""What a container finds: environment variables, and the file /run/linkwise/allocation.json with its GPUs, their links and NUMA nodes.

Called by `hand_off`; `cdi` carries it in. Pure. Who heeds what:

    NVIDIA_VISIBLE_DEVICES                the NVIDIA runtime, which puts these GPUs in and no others
    LINKWISE_RING                         nobody; UUIDs in ring order, for launchers: CUDA_VISIBLE_DEVICES=$LINKWISE_RING gives rank i the i-th
    LINKWISE_GPU_MEMORY_MIB               the program, if it will; MiB on each of its GPUs
    CUDA_MPS_PINNED_DEVICE_MEM_LIMIT      CUDA MPS, where its daemon runs and the container reaches it
    CUDA_DEVICE_MEMORY_LIMIT_<i>          HAMi-core (libvgpu.so), where it is loaded into the container

The last three for parts of a GPU alone. Without MPS or HAMi-core nothing holds a program to its share.
"""

from typing import Any, Final

import orjson

from topology.agent.handoff.holding import Holding
from topology.agent.handoff.node_gpus import NodeGpus
from topology.capacity import WHOLE

DIRECTORY: Final = "/run/linkwise"  # in the container
FILE_NAME: Final = "allocation.json"
VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
RING: Final = "LINKWISE_RING"
MEMORY: Final = "LINKWISE_GPU_MEMORY_MIB"


def environment(holding: Holding, gpus: NodeGpus) -> dict[str, str]:
    """Return the container's variables."""
    ordered = gpus.in_order(holding.uuids)
    env = {VISIBLE: ",".join(ordered), RING: ",".join(gpus.ring(ordered))}
    mib = {part.uuid: part.mib for part in holding.parts}
    if WHOLE in mib.values():
        return env
    # The GPUs that a container sees are numbered from 0 in the order of their bus ids; all its shares are equal, so the order does not matter.
    shares = [mib[uuid] for uuid in ordered]
    env[MEMORY] = str(shares[0]) if len(set(shares)) == 1 else ",".join(map(str, shares))
    env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(f"{at}={share}M" for at, share in enumerate(shares))
    return env | {f"CUDA_DEVICE_MEMORY_LIMIT_{at}": f"{share}m" for at, share in enumerate(shares)}


def allocation_file(holding: Holding, gpus: NodeGpus) -> bytes:
    """Return the file, JSON; new fields may come, so readers skip what they do not know."""
    ordered = gpus.in_order(holding.uuids)
    numa = gpus.numa_nodes(ordered)
    links = gpus.topology.spec.links
    place = {uuid: at for at, uuid in enumerate(gpus.specs)}
    known = [uuid for uuid in ordered if uuid in place]
    told: dict[str, Any] = {
        "v": 1,
        "node": gpus.topology.name,
        "namespace": holding.namespace,
        "pod": holding.pod,
        "container": holding.container.name,
        "planned": holding.planned,
        "gpus": [_gpu(uuid, holding, gpus) for uuid in ordered],
        "links": [[links.gpus[place[a]][place[b]] for b in known] for a in known],
        "nics": [
            {"name": nic.name or nic.label, "links": [links.nics[place[uuid]][at] for uuid in known]}
            for at, nic in enumerate(gpus.topology.spec.nics)
        ]
        if links.nics
        else [],
        "numaNode": next(iter(numa)) if len(numa) == 1 else None,
        "ring": gpus.ring(ordered),
    }
    return orjson.dumps(told, option=orjson.OPT_INDENT_2)


def _gpu(uuid: str, holding: Holding, gpus: NodeGpus) -> dict[str, Any]:
    mib = next(part.mib for part in holding.parts if part.uuid == uuid)
    spec = gpus.specs.get(uuid)
    told: dict[str, Any] = {"uuid": uuid, "shared": mib != WHOLE}
    if spec is None:
        return told | {"memoryMiB": mib or None}
    return told | {
        "memoryMiB": spec.memory_mib if mib == WHOLE else mib,
        "index": spec.index,
        "minor": spec.minor,
        "busID": spec.bus_id,
        "model": spec.model,
        "numaNode": spec.numa_node,
        "cpus": spec.cpus,
    }
