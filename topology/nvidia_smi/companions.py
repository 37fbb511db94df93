"""A file of unknown kind that is to tell about single GPUs: recognise it, read it.

`linkwise inspect --gpus FILE` comes here. The file may hold `-L`, a CSV query, `-q -x` or `nvlink -s`, and also several of them one after the other:
the XML log is cut out, lines of CSV and lines of a list are told apart by their shape, and all that is found is merged, the richest first.
"""

import re
from collections.abc import Callable
from typing import Final

from topology.errors import NvidiaSmiError
from topology.inventory import Inventory, merge_all
from topology.nvidia_smi.listing import gpu_line, mig_line, read_list
from topology.nvidia_smi.nvlink import is_nvlink_line, read_nvlink_status
from topology.nvidia_smi.plain_text import plain_lines
from topology.nvidia_smi.query_csv import read_csv_table, read_query_csv
from topology.nvidia_smi.query_xml import read_query_xml
from topology.nvidia_smi.unreadable import no_answer

_XML: Final = re.compile(r"(?:<\?xml[^>]*>\s*)?(?:<!DOCTYPE\s+nvidia_smi_log[^>]*>\s*)?<nvidia_smi_log.*?(?:</nvidia_smi_log>|\Z)", re.DOTALL)
_WANTED: Final = "accepted: the output of `nvidia-smi -L`, `--query-gpu=… --format=csv`, `-q -x` or `nvlink -s`"


def read_inventory(text: str) -> Inventory:
    """Read whatever the text tells about single GPUs; raises NvidiaSmiError, naming the accepted forms, where it tells nothing.

    >>> read_inventory("GPU 0: NVIDIA A30 (UUID: GPU-1e44b340-5807-0dbe-62e6-343a6b8b8bcd)").gpus[0].index
    0
    """
    logs = _XML.findall(text)
    lines = plain_lines(_XML.sub("\n", text))
    listed = [line for line in lines if gpu_line(line) or mig_line(line) or is_nvlink_line(line)]
    others = [line for line in lines if line.strip() and line not in listed]
    found = [read_query_xml(log) for log in logs]
    if any(gpu_line(line) for line in listed):
        reader: Callable[[str], Inventory] = read_nvlink_status if any(is_nvlink_line(line) for line in listed) else read_list
        found.append(reader("\n".join(listed)))
    if _is_table("\n".join(others), is_alone=not found):
        found.append(read_query_csv("\n".join(others)))
    if not found:
        raise no_answer(text, _WANTED)
    return merge_all(found)


def _is_table(text: str, *, is_alone: bool) -> bool:
    """Whether the lines that belong to nothing else are a CSV table; beside other outputs only a header proves it."""
    try:
        table = read_csv_table(text)
    except NvidiaSmiError:
        return False
    return is_alone or bool(table.columns)
