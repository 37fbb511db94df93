"""What placement counts of its own work tells whether answers are kept: a second question looks at nothing, a change at one row, another shape at all."""

from extender.demand import read_demand
from extender.placement import Placement
from tests.builders import cluster, extender_on, pod

BUILT = cluster().dgx1v("a").pcie("b").mesh("c")


def test_rows_are_looked_at_once_for_a_shape_and_then_where_something_changed():
    extender, placement = extender_on(BUILT), Placement()
    shape = read_demand(pod().gpus(2).build()).shape
    fits = placement.work["fits"]
    placement.fits(shape, extender.cluster.view())
    assert (fits.kept, fits.anew, fits.rows) == (0, 1, 3)
    placement.fits(shape, extender.cluster.view())
    assert (fits.kept, fits.anew, fits.rows) == (1, 1, 3)
    extender.cluster.apply_pod(pod("p").holding("a", extender.gpus_of("a")[0]).build())
    placement.fits(shape, extender.cluster.view())
    assert (fits.kept, fits.anew, fits.rows) == (2, 1, 4)
    placement.fits(read_demand(pod().gpus(3).build()).shape, extender.cluster.view())
    assert (fits.kept, fits.anew, fits.rows) == (2, 2, 7)


def test_candidates_are_counted_by_themselves():
    extender, placement = extender_on(BUILT), Placement()
    demand = read_demand(pod().gpus(2).build())
    candidates = placement.work["candidates"]
    for _ in range(2):
        placement.all_candidates(demand, extender.cluster.view())
    assert (candidates.kept, candidates.anew, candidates.rows) == (1, 1, 3)
