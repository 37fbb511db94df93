"""A plan is right where an oracle that tries every split of the GPUs over the containers says so."""

from collections.abc import Iterator
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.demand import ContainerKind, Part, Shape
from extender.placement import Plan
from extender.placement.plan import plan
from extender.sample_machines import SAMPLE_MACHINES, sample
from tests.machines import BRIDGES_CROSSED, DGX1V, PCIE8_PHB, SMALL_MACHINES, SUMMIT_6, Machine, irregular_machines, oracle_of
from tests.oracles import MachineOracle
from topology.links import Distance
from topology.topology_class import TopologyClass, members, topology_class

APP, SIDECAR, INIT = ContainerKind.APP, ContainerKind.SIDECAR, ContainerKind.INIT
Set = frozenset[int]


def class_of(machine: Machine) -> TopologyClass:
    return topology_class(machine.matrix, machine.inventory)


def shape(*parts: tuple[ContainerKind, int], **wishes: object) -> Shape:
    made = tuple(Part(kind, gpus) for kind, gpus in parts)
    return Shape(made, **{"careful": max(part.gpus for part in made) > 1, **wishes})  # type: ignore[arg-type]


def everything(kind: TopologyClass) -> int:
    return (1 << kind.size) - 1


def found(kind: TopologyClass, wanted: Shape, mask: int | None = None) -> Plan:
    made = plan(wanted, kind, everything(kind) if mask is None else mask)
    assert made is not None
    return made


# --- the oracle -----------------------------------------------------------------------------------------------------


def splits(machine: MachineOracle, wanted: Shape, free: Set, chosen: tuple[Set, ...] = ()) -> Iterator[tuple[Set, ...]]:
    """Yield every way to give each container a set of its own that meets floor and ceiling, with no GPU beyond the effective request."""
    if len(chosen) == len(wanted.parts):
        if len(frozenset().union(*chosen)) == wanted.gpus:
            yield chosen
        return
    part = wanted.parts[len(chosen)]
    for gpus in map(frozenset, combinations(sorted(free - running_beside(wanted, chosen)), part.gpus)):
        if allowed(machine, wanted, gpus):
            yield from splits(machine, wanted, free, (*chosen, gpus))


def running_beside(wanted: Shape, chosen: tuple[Set, ...]) -> Set:
    """GPUs of the containers that run when the next one starts: init containers have ended by then, sidecars and apps have not."""
    return frozenset().union(*(gpus for part, gpus in zip(wanted.parts, chosen, strict=False) if part.kind is not INIT))


def allowed(machine: MachineOracle, wanted: Shape, gpus: Set) -> bool:
    return len(gpus) < 2 or (machine.worst(gpus) <= wanted.ceiling and machine.bandwidth(gpus) >= wanted.floor)


# --- against the oracle ---------------------------------------------------------------------------------------------


def kubelet_order(parts: list[Part]) -> tuple[Part, ...]:
    """Init containers and sidecars stand before the others, in the order in which they were written."""
    return tuple(sorted(parts, key=lambda part: part.kind is APP))


part_lists = st.lists(st.builds(Part, st.sampled_from([APP, APP, SIDECAR, INIT]), st.integers(1, 4)), min_size=1, max_size=4).map(kubelet_order)
limits = {"floor": st.sampled_from([0.0, 0.0, 12.0, 25.0, 50.0, 100.0, 150.0]), "ceiling": st.sampled_from(Distance), "careful": st.booleans()}


@settings(deadline=None, max_examples=250)
@given(st.data(), st.one_of(irregular_machines(3, 5), st.sampled_from([m for m in SMALL_MACHINES if m.size <= 6])), part_lists)
def test_there_is_a_plan_exactly_where_some_split_over_the_containers_exists(data: st.DataObject, machine: Machine, parts: tuple[Part, ...]):
    wanted = Shape(parts, **{name: data.draw(values, label=name) for name, values in limits.items()})  # type: ignore[arg-type]
    mask = data.draw(st.integers(0, machine.everything), label="mask")
    made = plan(wanted, class_of(machine), mask)
    possible = next(splits(oracle_of(machine), wanted, frozenset(members(mask))), None)
    assert (made is not None) == (possible is not None), f"the oracle finds {possible}"
    if made is not None:
        assert is_split(oracle_of(machine), wanted, frozenset(members(mask)), made)


def is_split(machine: MachineOracle, wanted: Shape, free: Set, made: Plan) -> bool:
    """Tell whether a plan keeps every rule; unlike `splits` it looks at one way only."""
    chosen: tuple[Set, ...] = ()
    for part, mask in zip(wanted.parts, made.masks, strict=True):
        gpus = frozenset(members(mask))
        if len(gpus) != part.gpus or not gpus <= free or gpus & running_beside(wanted, chosen) or not allowed(machine, wanted, gpus):
            return False
        chosen = (*chosen, gpus)
    return frozenset().union(*chosen) == frozenset(members(made.union)) and made.union.bit_count() == wanted.gpus


@settings(deadline=None, max_examples=150)
@given(st.data(), st.sampled_from(SMALL_MACHINES), part_lists)
def test_a_plan_on_eight_gpus_keeps_every_rule(data: st.DataObject, machine: Machine, parts: tuple[Part, ...]):
    wanted = Shape(parts, **{name: data.draw(values, label=name) for name, values in limits.items()})  # type: ignore[arg-type]
    mask = data.draw(st.integers(0, machine.everything), label="mask")
    made = plan(wanted, class_of(machine), mask)
    assert made is None or is_split(oracle_of(machine), wanted, frozenset(members(mask)), made)
