"""`nvidia-smi -q -x`: the XML log, of every schema from none (driver 418) to v13.

The richest of the companions: bus id, memory, slot and driver in one. Read by `linkwise inspect --gpus`. MIG devices have neither UUID nor profile
here, so they are counted and left to `-L`. The text comes from users, so entities and external references are refused (defusedxml).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import Element  # the type alone; defusedxml parses

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import ParseError, fromstring

from topology.errors import NvidiaSmiError, NvidiaSmiFailure
from topology.inventory import Gpu, Inventory
from topology.nvidia_smi.failures import shortened
from topology.nvidia_smi.unreadable import no_answer
from topology.nvidia_smi.values import bus_id_or_none, mig_mode_or_none, number_or_none, tells_of_a_lost_gpu, text_or_none, uuid_or_none

_SCHEMA: Final = re.compile(r"<!DOCTYPE\s+nvidia_smi_log\s+SYSTEM\s+\"nvsmi_device_(?P<version>v\d+)\.dtd\"")
_START: Final = re.compile(r"<\?xml|<!DOCTYPE\s+nvidia_smi_log|<nvidia_smi_log")
_END: Final = "</nvidia_smi_log>"
_WANTED: Final = "wanted: the output of `nvidia-smi -q -x`"


@dataclass(frozen=True, slots=True)
class XmlLog:
    """The log: its schema (`v12`, None where the text names none), the GPUs, and for each of them how many MIG devices it lists (None: not told)."""

    schema: str | None
    inventory: Inventory
    mig_devices: tuple[int | None, ...]


def read_query_xml(text: str) -> Inventory:
    """Read the GPUs of `nvidia-smi -q -x`; raises NvidiaSmiError where the text is no such log or is cut."""
    return read_xml_log(text).inventory


def read_xml_log(text: str) -> XmlLog:
    """Read the log with its schema and its counts of MIG devices; raises NvidiaSmiError where the text is no such log or is cut."""
    start = _START.search(text)
    if start is None:
        raise no_answer(text, _WANTED)
    # Prompts and messages around the log are none of its XML; without its end the parser will say where it is cut.
    end = text.rfind(_END)
    body = text[start.start() : end + len(_END)] if end > start.start() else text[start.start() :]
    root = _parsed(body)
    gpus = root.findall("gpu")
    if not gpus:
        raise NvidiaSmiError(NvidiaSmiFailure.NO_DEVICES, f"the XML log describes no GPU; {_WANTED}, whole")
    schema = _SCHEMA.search(body)
    # The log has no index. It lists GPUs as `-L` does, so the place counts, but only where all of them are described.
    is_whole = number_or_none(root.findtext("attached_gpus")) == len(gpus)
    inventory = Inventory(
        tuple(_gpu(index if is_whole else None, gpu) for index, gpu in enumerate(gpus)),
        text_or_none(root.findtext("driver_version")),
        tuple(_warnings(root, gpus)),
    )
    return XmlLog(schema["version"] if schema else None, inventory, tuple(_mig_devices(gpu) for gpu in gpus))


def _parsed(body: str) -> Element:
    try:
        # The declaration may name an encoding, which a text that is decoded already no longer has.
        root: Element = fromstring(re.sub(r"^<\?xml[^>]*\?>", "", body), forbid_entities=True, forbid_external=True)
    except (ParseError, DefusedXmlException, ValueError) as error:
        raise NvidiaSmiError(NvidiaSmiFailure.PARTIAL, f"the XML log cannot be read ({shortened(str(error))}); {_WANTED}, whole") from error
    if root.tag != "nvidia_smi_log":
        raise NvidiaSmiError(NvidiaSmiFailure.UNKNOWN, f"the XML text begins with <{shortened(root.tag, 40)}>; accepted: <nvidia_smi_log>")
    return root


def _gpu(index: int | None, gpu: Element) -> Gpu:
    return Gpu(
        index=index,
        uuid=uuid_or_none(gpu.findtext("uuid")),
        bus_id=bus_id_or_none(gpu.get("id")) or bus_id_or_none(gpu.findtext("pci/pci_bus_id")),
        minor=number_or_none(gpu.findtext("minor_number")),
        model=text_or_none(gpu.findtext("product_name")),
        memory_mib=number_or_none(gpu.findtext("fb_memory_usage/total")),
        memory_used_mib=number_or_none(gpu.findtext("fb_memory_usage/used")),
        pcie_generation=number_or_none(gpu.findtext("pci/pci_gpu_link_info/pcie_gen/max_link_gen")),
        pcie_width=number_or_none(gpu.findtext("pci/pci_gpu_link_info/link_widths/max_link_width")),
        mig_mode=mig_mode_or_none(gpu.findtext("mig_mode/current_mig")),
        lost=_is_lost(gpu),
    )


def _is_lost(gpu: Element) -> bool:
    return any(tells_of_a_lost_gpu(gpu.findtext(path) or "") for path in ("uuid", "product_name", "fb_memory_usage/total", "fb_memory_usage/used"))


def _mig_devices(gpu: Element) -> int | None:
    devices = gpu.find("mig_devices")
    return len(devices.findall("mig_device")) if devices is not None else None


def _warnings(root: Element, gpus: list[Element]) -> Iterator[str]:
    attached = number_or_none(root.findtext("attached_gpus"))
    if attached is not None and attached != len(gpus):
        yield f"the log says that {attached} GPUs are attached but describes {len(gpus)}"
    for index, gpu in enumerate(gpus):
        name = f"GPU {gpu.get('id', index)}"
        said = text_or_none(gpu.findtext("uuid"))
        if said and uuid_or_none(said) is None:
            yield f"the UUID of {name} is elided or masked ({shortened(said, 50)}), so it is not known"
        count = _mig_devices(gpu)
        if count:
            yield f"{name} has {count} MIG devices, which this log does not name; `nvidia-smi -L` does"
        if _is_lost(gpu):
            yield f"{name} no longer answers"
