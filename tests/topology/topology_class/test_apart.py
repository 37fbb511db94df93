"""Tables that another process works out are those of this one, to the last bit."""

import subprocess
import sys

import numpy as np
import pytest

from tests.machines import BRIDGES_8, DGX1V, DGX2_16, HGX_H100_8
from topology.collective import Depth, machine_links
from topology.topology_class import Tables
from topology.topology_class.apart import answered, requested, worked_out

MACHINES = [machine_links(machine.matrix, machine.inventory) for machine in (DGX1V, HGX_H100_8, BRIDGES_8, DGX2_16)]


def equal(one: Tables, other: Tables) -> bool:
    return (
        np.array_equal(one.rates.gb_per_s, other.rates.gb_per_s)
        and np.array_equal(one.rates.exact, other.rates.exact)
        and one.packings.keys() == other.packings.keys()
        and all(np.array_equal(one.packings[k], other.packings[k]) for k in one.packings)
    )


@pytest.mark.parametrize("depth", Depth)
def test_what_comes_back_is_what_would_have_been_worked_out_here(depth: Depth):
    tables = answered(worked_out(requested(MACHINES, depth)))
    assert all(equal(found, Tables.of(links, depth)) for found, links in zip(tables, MACHINES, strict=True))


def test_the_program_answers_on_its_output():
    ran = subprocess.run(
        [sys.executable, "-m", "topology.topology_class.apart"], input=requested(MACHINES[1:3], Depth.FULL), capture_output=True, check=True
    )
    assert all(equal(found, Tables.of(links, Depth.FULL)) for found, links in zip(answered(ran.stdout), MACHINES[1:3], strict=True))
    assert ran.stderr == b""


def test_what_is_no_request_ends_the_program_with_a_status():
    ran = subprocess.run([sys.executable, "-m", "topology.topology_class.apart"], input=b"what?", capture_output=True, check=False)
    assert ran.returncode == 1
    assert ran.stdout == b""


@pytest.mark.parametrize(
    "output",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"what?", id="no head"),
        pytest.param(worked_out(requested(MACHINES[:1], Depth.AT_ONCE))[:-1], id="cut short"),
    ],
)
def test_an_output_that_is_none_is_refused(output: bytes):
    with pytest.raises(ValueError, match=r"."):
        answered(output)
