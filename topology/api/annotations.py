"""Every annotation key, taint and API name that Linkwise reads or writes, once.

`extender.demand` reads what a pod asks for, `extender.handoff` writes what it got. A new annotation starts here: add its key, put it among
`SUPPORTED`, and give it a parser in `extender.demand`.
"""

from typing import Final

DOMAIN: Final = "linkwise.dev"
PREFIX: Final = f"{DOMAIN}/"

GROUP: Final = DOMAIN
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "GPUTopology"
PLURAL: Final = "gputopologies"
SHORT_NAME: Final = "gputopo"

# What a pod may ask.
TOPOLOGY: Final = PREFIX + "topology"
MIN_BANDWIDTH: Final = PREFIX + "min-bandwidth"
MAX_DISTANCE: Final = PREFIX + "max-distance"
GPU_MODEL: Final = PREFIX + "gpu-model"
POLICY: Final = PREFIX + "policy"
NIC_DISTANCE: Final = PREFIX + "nic-distance"
NUMA: Final = PREFIX + "numa"
GPU_COUNT: Final = PREFIX + "gpu-count"
GPU_CORES: Final = PREFIX + "gpu-cores"

SUPPORTED: Final = (TOPOLOGY, MIN_BANDWIDTH, MAX_DISTANCE, NIC_DISTANCE, NUMA, GPU_COUNT, GPU_CORES, GPU_MODEL, POLICY)

# What Linkwise writes: on the pod at bind, on a Node to wake waiting pods, on a GPUTopology the boot of the node in which its agent looked.
ALLOCATION: Final = PREFIX + "allocation"
TOPOLOGY_GENERATION: Final = PREFIX + "topology-generation"
BOOT_ID: Final = PREFIX + "boot-id"

WRITTEN: Final = (ALLOCATION, TOPOLOGY_GENERATION, BOOT_ID)

# The taint with which nodes may register (kubelet, cloud node pools), and which Linkwise takes off once they can be placed on.
STARTUP_TAINT: Final = PREFIX + "agent-not-ready"

# Resources.
WHOLE_GPU: Final = "nvidia.com/gpu"  # the default; the name is a setting of the extender
GPU_MEMORY: Final = PREFIX + "gpu-memory"
GPUSHARE_MEMORY: Final = "aliyun.com/gpu-mem"
GPUSHARE_COUNT: Final = "aliyun.com/gpu-count"

# gpushare's own: what its device plugin reads and writes on pods, its label on a Node, and its ConfigMaps of unhealthy GPUs.
GPUSHARE_IDX: Final = "ALIYUN_COM_GPU_MEM_IDX"
GPUSHARE_POD: Final = "ALIYUN_COM_GPU_MEM_POD"
GPUSHARE_DEV: Final = "ALIYUN_COM_GPU_MEM_DEV"
GPUSHARE_ASSIGNED: Final = "ALIYUN_COM_GPU_MEM_ASSIGNED"
GPUSHARE_ASSUME_TIME: Final = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
GPUSHARE_WRITTEN: Final = (GPUSHARE_IDX, GPUSHARE_POD, GPUSHARE_DEV, GPUSHARE_ASSIGNED, GPUSHARE_ASSUME_TIME)
GPUSHARE_LABEL: Final = "gpushare"
GPUSHARE_UNHEALTHY: Final = "unhealthy-gpu-"  # of the name of a ConfigMap in GPUSHARE_NAMESPACE, followed by the name of the node
GPUSHARE_NAMESPACE: Final = "kube-system"
