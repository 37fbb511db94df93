"""Tables worked out in a process of their own: `python -m topology.topology_class.apart` reads machines from its input and writes their tables to its output.

The extender starts it for classes whose tables take longer than a call may wait: a thread would hold the interpreter of the one that answers. Arrays travel as they
lie in memory, behind a line of JSON that names them; nothing is pickled. `requested` and `answered` are the two ends of the other side, `main` is this one.
"""

import json
import math
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
_Array = NDArray[Any]
_NICE = 10  # who answers calls goes first


def requested(machines: Sequence[MachineLinks], depth: Depth) -> bytes:
    """Return the input for these machines."""
    arrays = {f"{number}.{name}": getattr(links, name) for number, links in enumerate(machines) for name in _ARRAYS}
    return _written(arrays | {"depth": np.array(depth), "machines": np.array(len(machines))})


def answered(output: bytes) -> list[Tables]:
    """Return the tables of the output, in the order of the machines; raises ValueError where it is none.

    >>> from topology.collective import machine_links
    >>> from topology.matrix import from_codes
    >>> answered(worked_out(requested([machine_links(from_codes(["X NV12".split(), "NV12 X".split()]))], Depth.FULL)))[0].rates.gb_per_s.tolist()
    [0.0, 0.0, 0.0, 300.0]
    """
    found: dict[int, dict[str, _Array]] = {}
    for name, array in _read(output).items():
        number, _, table = name.partition(".")
        found.setdefault(int(number), {})[table] = array
    return [_tables(found[number]) for number in range(len(found))]


def _tables(arrays: dict[str, _Array]) -> Tables:
    return Tables(SetRates(arrays.pop("gb_per_s"), arrays.pop("exact")), {int(k): table for k, table in arrays.items()})


def worked_out(request: bytes) -> bytes:
    """Return the output for an input."""
    given = _read(request)
    machines = [MachineLinks(**{name: given[f"{at}.{name}"] for name in _ARRAYS}, assumptions=()) for at in range(int(given["machines"]))]
    arrays: dict[str, _Array] = {}
    for number, links in enumerate(machines):
        tables = Tables.of(links, Depth(int(given["depth"])))
        arrays |= {f"{number}.gb_per_s": tables.rates.gb_per_s, f"{number}.exact": tables.rates.exact}
        arrays |= {f"{number}.{k}": table for k, table in tables.packings.items()}
    return _written(arrays)


def _written(arrays: dict[str, _Array]) -> bytes:
    head = json.dumps([(name, array.dtype.str, array.shape) for name, array in arrays.items()])
    return b"".join([head.encode(), b"\n", *(np.ascontiguousarray(array).tobytes() for array in arrays.values())])


def _read(data: bytes) -> dict[str, _Array]:
    """Return the arrays as views of the data: megabytes in no time, read on the event loop; raises ValueError where it is none."""
    arrays: dict[str, _Array] = {}
    at = data.find(b"\n") + 1
    for name, dtype, shape in json.loads(data[:at]):
        count = math.prod(shape)
        arrays[name] = np.frombuffer(data, np.dtype(dtype), count, at).reshape(shape) if count else np.zeros(shape, np.dtype(dtype))
        at += count * np.dtype(dtype).itemsize
    return arrays


def main() -> None:
    """Answer one request."""
    os.nice(_NICE)
    sys.stdout.buffer.write(worked_out(sys.stdin.buffer.read()))


if __name__ == "__main__":
    main()
