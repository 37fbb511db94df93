"""Texts of nvidia-smi to types: `topo -m` to a `LinkMatrix`, its companions to an `Inventory`, its failures to typed errors.

The only package that knows how nvidia-smi prints. `linkwise inspect` and the agent's probe call it; nothing in it runs the tool. A reader takes the
text alone and returns a frozen type with warnings, or raises `NvidiaSmiError` with a sentence for the person who gave the text; no text crashes it.

    topo         read_topology       matrix_text finds header and rows, cells places them, pieces splits what is glued
    listing      read_list           -L
    query_csv    read_query_csv      --query-gpu --format=csv
    query_xml    read_query_xml      -q -x
    nvlink       read_nvlink_status  nvlink -s
    p2p          read_p2p            topo -p2p
    companions   read_inventory      any of -L, CSV, XML, nvlink -s
    failures     failure_in          the tool's own sentences and exit codes; sniff and unreadable: what else a text may be

A new failure sentence goes into `failures`, a new column of the query into `query_csv`, a new link code into `topology.links`.
"""

from topology.nvidia_smi.companions import read_inventory
from topology.nvidia_smi.failures import failure_in
from topology.nvidia_smi.listing import read_list
from topology.nvidia_smi.nvlink import GpuNvLinks, NvLink, NvLinkNote, NvLinkReport, read_nvlink_status, read_nvlinks
from topology.nvidia_smi.p2p import P2pCapability, P2pMatrix, P2pStatus, read_p2p
from topology.nvidia_smi.query_csv import CsvTable, read_csv_table, read_query_csv
from topology.nvidia_smi.query_xml import XmlLog, read_query_xml, read_xml_log
from topology.nvidia_smi.topo import read_topology

__all__ = [
    "CsvTable",
    "GpuNvLinks",
    "NvLink",
    "NvLinkNote",
    "NvLinkReport",
    "P2pCapability",
    "P2pMatrix",
    "P2pStatus",
    "XmlLog",
    "failure_in",
    "read_csv_table",
    "read_inventory",
    "read_list",
    "read_nvlink_status",
    "read_nvlinks",
    "read_p2p",
    "read_query_csv",
    "read_query_xml",
    "read_topology",
    "read_xml_log",
]
