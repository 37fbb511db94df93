"""What a text is, where it is not what was asked for: another question to nvidia-smi, or another vendor's tool.

`read_topology` and `read_inventory` ask here before they give up, so that the error can say "this is `nvidia-smi -L`, wanted is ...". Recognised by
sentences and headings that only that output has, never by a matrix alone: the matrices of several vendors look like ours.
"""

import re
from typing import Final

from topology.errors import NvidiaSmiError, NvidiaSmiFailure

# Tools of other vendors. Their matrices wait for readers of their own; until then an error names the tool.
_VENDORS: Final = (
    (re.compile(r"ROCm System Management Interface|End of ROCm SMI Log|between two GPUs\s*=|\(Topology\) Numa (?:Node|Affinity):"), "rocm-smi (AMD)"),
    (
        re.compile(r"^[ \t]*(?:ACCESS|WEIGHT|HOPS|LINK TYPE|NUMA BW|CACHE COHER[AE]NCY|ATOMICS|DMA|BI-DIRECTIONAL) TABLE:", re.MULTILINE),
        "amd-smi (AMD)",
    ),
    (
        re.compile(r"MetaX System Management|MetaXLink|\bmx-smi\b|^[ \t>#]*GPU\d+(?:[ \t]+(?:X|NODE|SYS|PIX|PXB|PHB))*[ \t]+MX\b", re.MULTILINE),
        "mx-smi (MetaX)",
    ),
    (re.compile(r"^[ \t>#]*NPU\d+[ \t]+(?:NPU\d+|X|HCCS|PIX|PXB|PHB|SYS|SIO)\b", re.MULTILINE), "npu-smi (Huawei Ascend)"),
    (re.compile(r"^[ \t>#]*PPU\d+[ \t]+(?:PPU\d+|X|ICN\d+|PIX|PXB|PHB|NODE|SYS)\b", re.MULTILINE), "ppu-smi (T-Head)"),
)

# Other questions to nvidia-smi. The first match wins, so the narrower pattern stands first.
_OTHER_ANSWERS: Final = (
    (
        re.compile(r"The GPUs that have an affinity with CPU (?P<cpu>\d+) are:[ \t\n]*(?P<gpus>[\d, ]*)"),
        "`nvidia-smi topo -c {cpu}` (the GPUs near CPU {cpu}: {gpus})",
    ),
    (re.compile(r"The GPUs that (?:are connected|have)", re.IGNORECASE), "`nvidia-smi topo -n`"),
    (re.compile(r"Device \d+ is connected to device \d+", re.IGNORECASE), "`nvidia-smi topo -p`"),
    (re.compile(r"<nvidia_smi_log|nvsmi_device_v\d+\.dtd"), "`nvidia-smi -q -x`"),
    (re.compile(r"=+\s*NVSMI LOG\s*=+"), "`nvidia-smi -q`"),
    (re.compile(r"^[|\t ]*NVIDIA-SMI[ \t]+\d", re.MULTILINE), "`nvidia-smi` without arguments"),
    (re.compile(r"^[|\t ]*GPU instance profiles", re.MULTILINE | re.IGNORECASE), "`nvidia-smi mig -lgip`"),
    (re.compile(r"^(?:[|\t ]*|No )(?:GPU|Compute) instances", re.MULTILINE | re.IGNORECASE), "`nvidia-smi mig -lgi` or `-lci`"),
    (re.compile(r"^[ \t]*Link \d+: |\b(?:nvlink information|support nvlink|nvlink queries)", re.MULTILINE | re.IGNORECASE), "`nvidia-smi nvlink -s`"),
    (re.compile(r"^[ \t>#]*GPU \d+: ", re.MULTILINE), "`nvidia-smi -L`"),
    (re.compile(r"\b(?:pci\.bus_id|memory\.total|driver_version|index, |uuid, |gpu_uuid|name, )"), "`nvidia-smi --query-gpu`"),
)


def vendor_error(text: str) -> NvidiaSmiError | None:
    """Return the error that names another vendor's tool, None where the text is of none that is known.

    >>> vendor_error("NPU0  X  HCCS").kind.value
    'unsupported'
    """
    for pattern, tool in _VENDORS:
        if pattern.search(text):
            return NvidiaSmiError(
                NvidiaSmiFailure.UNSUPPORTED, f"this is the output of {tool}, which cannot be read; accepted: the output of NVIDIA's nvidia-smi"
            )
    return None


def other_answer(text: str) -> str | None:
    """Return the command whose output the text seems to be, in backticks, None where it cannot be told.

    >>> other_answer("GPU 0: NVIDIA A30 (UUID: GPU-...)")
    '`nvidia-smi -L`'
    """
    for pattern, command in _OTHER_ANSWERS:
        match = pattern.search(text)
        if match:
            return command.format(**{key: value.strip() for key, value in match.groupdict().items()})
    return None
