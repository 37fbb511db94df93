"""Tables that another process works out are those of this one, to the last bit."""

import subprocess
import sys

import numpy as np
import pytest

from tests.machines import BRIDGES_8, DGX1V, HGX_H100_8
from topology.collective import Depth, machine_links, set_bandwidths
from topology.collective.apart import answered, requested, worked_out

MACHINES = [machine_links(machine.matrix, machine.inventory) for machine in (DGX1V, HGX_H100_8, BRIDGES_8)]


@pytest.mark.parametrize("depth", Depth)
def test_what_comes_back_is_what_would_have_been_worked_out_here(depth: Depth):
    tables = answered(worked_out(requested(MACHINES, depth)))
    assert all(np.array_equal(table, set_bandwidths(links, depth)) for table, links in zip(tables, MACHINES, strict=True))


def test_the_program_answers_on_its_output():
    ran = subprocess.run(
        [sys.executable, "-m", "topology.collective.apart"], input=requested(MACHINES[1:], Depth.FULL), capture_output=True, check=True
    )
    assert [table[-1] for table in answered(ran.stdout)] == [450.0, set_bandwidths(MACHINES[2])[-1]]


def test_what_is_no_request_ends_the_program_with_a_status():
    ran = subprocess.run([sys.executable, "-m", "topology.collective.apart"], input=b"what?", capture_output=True, check=False)
    assert ran.returncode == 1
    assert ran.stdout == b""


def test_an_output_that_is_none_is_refused():
    with pytest.raises(ValueError, match="pickle"):
        answered(b"what?")
