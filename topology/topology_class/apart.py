"""Tables worked out in a process of their own: `python -m topology.topology_class.apart` reads machines from its input and writes their tables to its output.

The extender starts it for classes whose tables take longer than a call may wait: a thread would hold the interpreter of the one that answers. Arrays travel as
numpy writes them; nothing is pickled. `requested` and `answered` are the two ends of the other side, `main` is this one.
"""

import io
import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topology.collective import Depth, MachineLinks, SetRates
from topology.topology_class.packing import Tables

_ARRAYS = tuple(field.name for field in fields(MachineLinks) if field.name != "assumptions")
_NICE = 10  # who answers calls goes first


def requested(machines: Sequence[MachineLinks], depth: Depth) -> bytes:
    """Return the input for these machines."""
    written = io.BytesIO()
    arrays: dict[str, Any] = {f"{number}.{name}": getattr(links, name) for number, links in enumerate(machines) for name in _ARRAYS}
    np.savez(written, depth=np.array(depth), machines=np.array(len(machines)), **arrays)
    return written.getvalue()


def answered(output: bytes) -> list[Tables]:
    """Return the tables of the output, in the order of the machines; raises ValueError where it is none.

    >>> from topology.collective import machine_links
    >>> from topology.matrix import from_codes
    >>> answered(worked_out(requested([machine_links(from_codes(["X NV12".split(), "NV12 X".split()]))], Depth.FULL)))[0].rates.gb_per_s.tolist()
    [0.0, 0.0, 0.0, 300.0]
    """
    found: dict[str, dict[str, NDArray[Any]]] = {}
    with np.load(io.BytesIO(output), allow_pickle=False) as arrays:
        for name in arrays.files:
            number, _, table = name.partition(".")
            found.setdefault(number, {})[table] = arrays[name]
    return [_tables(found[str(number)]) for number in range(len(found))]


def _tables(arrays: dict[str, NDArray[Any]]) -> Tables:
    return Tables(SetRates(arrays.pop("gb_per_s"), arrays.pop("exact")), {int(k): table for k, table in arrays.items()})


def worked_out(request: bytes) -> bytes:
    """Return the output for an input."""
    with np.load(io.BytesIO(request), allow_pickle=False) as given:
        depth = Depth(int(given["depth"]))
        machines = [MachineLinks(**{name: given[f"{at}.{name}"] for name in _ARRAYS}, assumptions=()) for at in range(int(given["machines"]))]
    written = io.BytesIO()
    arrays: dict[str, Any] = {}
    for number, links in enumerate(machines):
        tables = Tables.of(links, depth)
        arrays |= {f"{number}.gb_per_s": tables.rates.gb_per_s, f"{number}.exact": tables.rates.exact}
        arrays |= {f"{number}.{k}": table for k, table in tables.packings.items()}
    np.savez(written, **arrays)
    return written.getvalue()


def main() -> None:
    """Answer one request."""
    os.nice(_NICE)
    sys.stdout.buffer.write(worked_out(sys.stdin.buffer.read()))


if __name__ == "__main__":
    main()
