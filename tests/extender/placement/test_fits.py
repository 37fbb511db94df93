"""Filter, prioritize and bind cannot disagree: the lookup over all nodes says yes exactly where a plan exists, and names the first reason that holds."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster import UNKNOWN, NodeGpus, Room, View
from extender.cluster.name_table import NameTable
from extender.containers import ContainerKind
from extender.demand import Part, Shape
from extender.placement import Placement
from extender.placement.fits import refusals, usable_mask
from extender.reasons import Refusal
from extender.sample_machines import SAMPLE_MACHINES, sample
from topology.capacity import MOST_GPUS
from topology.links import Distance, LinkCode
from topology.topology_class import TopologyClass, topology_class

APP, SIDECAR, INIT = ContainerKind.APP, ContainerKind.SIDECAR, ContainerKind.INIT
KINDS = sorted(SAMPLE_MACHINES)


@cache
def class_of(kind: str) -> TopologyClass:
    topology = sample(kind, "node")
    return topology_class(topology.matrix(), topology.inventory())


@cache
def view_of(*kinds: str, usable: int | None = None) -> View:
    """A cluster with a node for every mask of free GPUs of each of these machines."""
    classes = tuple(class_of(kind) for kind in kinds)
    index = np.concatenate([np.full(1 << kind.size, number, np.int32) for number, kind in enumerate(classes)])
    everything = np.array([(1 << classes[number].size) - 1 for number in index], np.uint32)
    healthy = everything if usable is None else everything & np.uint32(usable)
    free = np.concatenate([np.arange(1 << kind.size, dtype=np.uint32) for kind in classes]) & healthy
    names = [f"n{row}" for row in range(len(index))]
    return View(
        generation=1,
        taken_at=0.0,
        names=names,
        row_of={name: row for row, name in enumerate(names)},
        name_table=NameTable(names),
        gpus=[NodeGpus.of(sample(kinds[number], "node").inventory()) for number in index],
        closed_by=[""] * len(index),
        classes=classes,
        class_index=index,
        usable=healthy,
        free=free,
        offered=np.zeros((len(index), MOST_GPUS), np.int32),
        left=np.zeros((len(index), MOST_GPUS), np.int32),
        closed=np.zeros(len(index), np.int8),
        row_generation=np.ones(len(index), np.int64),
        cpu_left=np.full(len(index), UNKNOWN),
        memory_left=np.full(len(index), UNKNOWN),
        host_generation=np.ones(len(index), np.int64),
    )


def first_reason(shape: Shape, kind: TopologyClass, free: int, usable: int, placement: Placement) -> Refusal:
    """Say in words, for one node, what the lookup says for all: the first reason in the order of `Refusal`."""
    fitting, several = usable_mask(shape, kind), shape.largest > 1
    together = [
        mask for mask in kind.sets(free & fitting, shape.largest) if not shape.one_numa or any(mask & ~group == 0 for group in kind.numa_groups())
    ]
    near = [mask for mask in together if kind.worst[mask] <= shape.ceiling]
    reasons = {
        Refusal.MODEL: shape.model is not None and kind.model_mask(shape.model).bit_count() < shape.gpus,
        Refusal.NIC: shape.nic_ceiling is not None and fitting.bit_count() < shape.gpus,
        Refusal.TOO_SMALL: (usable & fitting).bit_count() < shape.gpus,
        Refusal.NOT_ENOUGH_FREE: (free & fitting).bit_count() < shape.gpus,
        Refusal.NUMA: several and not together,
        Refusal.DISTANCE: several and not near,
        Refusal.BANDWIDTH: several and not any(kind.bandwidth[mask] >= shape.floor for mask in near),
        Refusal.SPLIT: placement.plan(shape, kind, Room(free)) is None,
    }
    return next((refusal for refusal in sorted(reasons) if reasons[refusal]), Refusal.FITS)


parts = st.lists(st.builds(Part, st.sampled_from([APP, APP, APP, SIDECAR, INIT]), st.integers(1, 8)), min_size=1, max_size=3).map(
    lambda found: tuple(sorted(found, key=lambda part: part.kind is APP))
)
shapes = st.builds(
    Shape,
    parts=parts,
    careful=st.booleans(),
    floor=st.sampled_from([0.0, 0.0, 12.0, 20.0, 23.0, 25.0, 50.0, 100.0, 150.0, 300.0, 450.0, 451.0]),
    ceiling=st.sampled_from([Distance.SYS, Distance.SYS, *Distance]),
    model=st.sampled_from([None, None, "*A100*", "*v100*", "*H100*", "?"]),
    one_numa=st.booleans(),
    nic_ceiling=st.sampled_from([None, None, *(code for code in Distance if code is not Distance.NVLINK)]),
)


@settings(deadline=None, max_examples=40)
@given(shapes, st.sampled_from(KINDS), st.none() | st.integers(0, 255))
def test_filter_says_yes_exactly_where_bind_finds_a_plan_for_every_mask(shape: Shape, kind: str, usable: int | None):
    view, placement = view_of(kind, usable=usable), Placement()
    codes = placement.fits(shape, view).code
    plans = [placement.plan(shape, class_of(kind), Room(int(free))) for free in view.free]
    assert (codes == Refusal.FITS).tolist() == [plan is not None for plan in plans]
    assert codes.tolist() == [
        first_reason(shape, class_of(kind), int(free), int(healthy), placement) for free, healthy in zip(view.free, view.usable, strict=True)
    ]


@settings(deadline=None, max_examples=5)
@given(shapes)
def test_machines_side_by_side_are_answered_as_each_alone(shape: Shape):
    together = Placement().fits(shape, view_of(*KINDS)).code.tolist()
    alone = [code for kind in KINDS for code in Placement().fits(shape, view_of(kind)).code.tolist()]
    assert together == alone


@settings(deadline=None, max_examples=20)
@given(shapes, st.sampled_from(KINDS), st.lists(st.integers(0, 15), min_size=1, max_size=6))
def test_some_rows_alone_are_answered_as_among_all(shape: Shape, kind: str, rows: list[int]):
    view, placement = view_of(kind), Placement()
    everything = placement.fits(shape, view).code
    assert refusals(shape, view, np.array(rows), placement.plan).tolist() == everything[rows].tolist()


@settings(deadline=None, max_examples=30)
@given(shapes, st.sampled_from(KINDS), st.data())
def test_more_free_gpus_never_make_a_pod_unfit(shape: Shape, kind: str, data: st.DataObject):
    placement, size = Placement(), class_of(kind).size
    fewer = data.draw(st.integers(0, (1 << size) - 1))
    more = fewer | data.draw(st.integers(0, (1 << size) - 1))
    assert placement.plan(shape, class_of(kind), Room(fewer)) is None or placement.plan(shape, class_of(kind), Room(more)) is not None


# --- shares ---------------------------------------------------------------------------------------------------------

CARDS = (16_384, 24_576, 40_960, 81_920)  # MiB, several of them in one node


def sharing(kind: str, nodes: list[tuple[list[int], list[int], int, int]]) -> View:
    """A cluster of one machine kind: of each node the size and the part taken (in quarters) of its GPUs, those held whole, and those that are broken."""
    size = class_of(kind).size
    offered = np.array([[*sizes[:size], *[0] * (MOST_GPUS - size)] for sizes, _, _, _ in nodes], np.int32)
    quarters = np.array([[*taken[:size], *[0] * (MOST_GPUS - size)] for _, taken, _, _ in nodes], np.int32)
    usable = np.array([((1 << size) - 1) & ~broken for _, _, _, broken in nodes], np.uint32)
    whole = np.array([held for _, _, held, _ in nodes], np.uint32)
    gone = (whole | ~usable)[:, None] >> np.arange(MOST_GPUS, dtype=np.uint32) & 1
    left = np.where(gone == 1, 0, offered - offered // 4 * quarters).astype(np.int32)
    free = usable & ~whole & ((quarters == 0).astype(np.uint32) @ (1 << np.arange(MOST_GPUS, dtype=np.uint32)))
    base, rows = view_of(kind), len(nodes)
    cut = {name: getattr(base, name)[:rows] for name in ("names", "gpus", "closed_by", "class_index", "closed", "row_generation", "cpu_left")}
    return replace(base, **cut, usable=usable, free=free.astype(np.uint32), offered=offered, left=left)


eight = [st.sampled_from(CARDS), st.sampled_from([0, 0, 1, 2, 3, 4])]
sharing_nodes = st.lists(
    st.tuples(*(st.lists(each, min_size=8, max_size=8) for each in eight), st.sampled_from([0, 0, 1, 6, 255]), st.sampled_from([0, 0, 0, 2, 254])),
    min_size=1,
    max_size=5,
)


@st.composite
def shared_shapes(draw: st.DrawFn) -> Shape:
    """Draw a shape with shares; those of all containers lie on as many GPUs."""
    gpus, kinds = draw(st.sampled_from([1, 1, 2, 4])), st.sampled_from([APP, APP, APP, SIDECAR, INIT])
    share = st.builds(Part, kinds, st.just(gpus), st.sampled_from([1024, 10_240, 20_480, 40_960, 81_920, 90_000]))
    parts = [draw(share), *draw(st.lists(share | st.builds(Part, kinds, st.integers(1, 4)), max_size=2))]
    return replace(draw(shapes), parts=tuple(sorted(parts, key=lambda part: part.kind is APP)))


def first_reason_of_shares(shape: Shape, kind: TopologyClass, view: View, row: int, placement: Placement) -> Refusal:
    """Say in words, for one node, what the lookup says for all: the first reason in the order of `Refusal`."""
    fitting, room, healthy = usable_mask(shape, kind), view.room(row), int(view.usable[row])
    eligible = healthy & fitting
    shares = [part for part in shape.parts if part.is_share]
    leading = shape.leading
    hosting = [
        bit for bit in range(kind.size) if fitting >> bit & 1 and (room.left[bit] >= leading.mib if leading.is_share else room.idle >> bit & 1)
    ]
    together = [
        mask
        for mask in kind.sets(sum(1 << bit for bit in hosting), leading.gpus)
        if not shape.one_numa or any(mask & ~group == 0 for group in kind.numa_groups())
    ]
    near = [mask for mask in together if kind.worst[mask] <= shape.ceiling]
    several, at_least = leading.gpus > 1, max(shape.gpus, shape.largest)
    reasons = {
        Refusal.MODEL: shape.model is not None and kind.model_mask(shape.model).bit_count() < at_least,
        Refusal.NIC: shape.nic_ceiling is not None and fitting.bit_count() < at_least,
        Refusal.TOO_SMALL: eligible.bit_count() < at_least,
        Refusal.GPU_TOO_SMALL: any(
            sum(room.offered[bit] >= part.mib for bit in range(kind.size) if eligible >> bit & 1) < part.gpus for part in shares
        ),
        Refusal.NOT_ENOUGH_FREE: (room.idle & fitting).bit_count() < shape.gpus,
        Refusal.NOT_ENOUGH_MEMORY: any(
            sum(room.left[bit] >= part.mib for bit in range(kind.size) if fitting >> bit & 1) < part.gpus for part in shares
        ),
        Refusal.NUMA: several and not together,
        Refusal.DISTANCE: several and not near,
        Refusal.BANDWIDTH: several and not any(kind.bandwidth[mask] >= shape.floor for mask in near),
        Refusal.SPLIT: placement.plan(shape, kind, room) is None,
    }
    return next((refusal for refusal in sorted(reasons) if reasons[refusal]), Refusal.FITS)


@settings(deadline=None, max_examples=150)
@given(shared_shapes(), st.sampled_from(KINDS), sharing_nodes)
def test_filter_says_yes_to_shares_exactly_where_bind_finds_a_plan_and_names_the_first_reason(
    shape: Shape, kind: str, nodes: list[tuple[list[int], list[int], int, int]]
):
    view, placement = sharing(kind, nodes), Placement()
    codes = placement.fits(shape, view).code
    assert codes.tolist() == [first_reason_of_shares(shape, class_of(kind), view, row, placement) for row in range(len(nodes))]
    for row, code in enumerate(codes.tolist()):
        assert (code == Refusal.FITS) == (placement.plan(shape, class_of(kind), view.room(row)) is not None)
        assert (code == Refusal.FITS) == (placement.place(shape, view, row) is not None)


@settings(deadline=None, max_examples=60)
@given(shared_shapes(), st.sampled_from(KINDS), sharing_nodes)
def test_what_a_refusal_of_shares_tells_is_true_of_its_node(shape: Shape, kind: str, nodes: list[tuple[list[int], list[int], int, int]]):
    """A pod that asks for 20 GiB is never told that a GPU has 30 GiB left, nor that the best pair carries more than it asks."""
    view, placement = sharing(kind, nodes), Placement()
    mib, gpus = max((part.mib, part.gpus) for part in shape.parts if part.is_share)
    for row, code in enumerate(placement.fits(shape, view).code.tolist()):
        numbers = placement.numbers(shape, view, row)
        if code == Refusal.GPU_TOO_SMALL:
            assert numbers.most_offered_mib < mib or gpus > 1
        if code == Refusal.NOT_ENOUGH_MEMORY:
            assert numbers.large_enough < gpus
            assert numbers.most_left_mib < mib or gpus > 1
        if code == Refusal.BANDWIDTH:
            assert numbers.best is not None
            assert numbers.best < shape.floor
        if code == Refusal.NUMA:
            assert numbers.together < shape.largest
        if code == Refusal.DISTANCE and numbers.best_link is not None:
            assert Distance[LinkCode(numbers.best_link).distance.name] > shape.ceiling


# --- closed nodes, models -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refusal", [refusal for refusal in Refusal if refusal.is_closure])
def test_what_closes_a_node_goes_before_everything_that_the_pod_asks(refusal: Refusal):
    view = view_of("mesh")
    closed = view.closed.copy()
    closed[3] = refusal
    shape = Shape((Part(APP, 99),), model="none")
    codes = refusals(shape, _with_closed(view, closed), np.arange(16), Placement().plan)
    assert codes[3] == refusal
    assert set(np.delete(codes, 3).tolist()) == {Refusal.MODEL}


def _with_closed(view: View, closed: np.ndarray) -> View:
    return View(**{name: getattr(view, name) for name in View.__slots__} | {"closed": closed})


@pytest.mark.parametrize("kind", KINDS)
def test_a_glob_matches_the_product_name_whatever_the_case(kind: str):
    machine, everything = SAMPLE_MACHINES[kind], (1 << SAMPLE_MACHINES[kind].size) - 1
    for glob in (machine.model, machine.model.lower(), machine.model.upper(), "*", f"*{machine.model.split()[-1]}"):
        assert usable_mask(Shape((Part(APP, 1),), model=glob), class_of(kind)) == everything
    assert usable_mask(Shape((Part(APP, 1),), model="*B300*"), class_of(kind)) == 0
