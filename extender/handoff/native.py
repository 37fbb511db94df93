"""Linkwise's own hand-off: the allocation annotation that the agent's device plugin reads.

`binding` encodes the decision into the Binding's annotations; `cluster` decodes what bound pods carry.
"""

from topology.api import Allocation, annotations


def encode(allocation: Allocation) -> dict[str, str]:
    """Return the annotations that travel in the Binding."""
    return {annotations.ALLOCATION: allocation.encode()}


def decode(value: object) -> Allocation:
    """Read the annotation's value; raises AllocationError with a sentence for what cannot be read."""
    return Allocation.decode(value)
