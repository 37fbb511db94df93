"""Pairs that the driver keeps apart count as going through the host; of all others nothing changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.machines import DGX1V, matrix_of
from topology.inspection import machine_of
from topology.inspection.peer_access import with_peer_access
from topology.nvidia_smi import P2pCapability, P2pMatrix, P2pStatus

OK, CNS, NS = P2pStatus.OK, P2pStatus.CNS, P2pStatus.NS
TRIPLE = matrix_of("X NV12 PIX", "NV12 X SYS", "PIX SYS X")


def statuses(*rows: tuple[P2pStatus | None, ...], capability: P2pCapability = P2pCapability.READ, gpus: tuple[int, ...] = (0, 1, 2)) -> P2pMatrix:
    return P2pMatrix(capability, gpus, rows)


def codes(p2p: P2pMatrix) -> list[str]:
    return [str(code) for _, _, code in with_peer_access(TRIPLE, p2p)[0].pairs()]


ALL_OK = statuses((None, OK, OK), (OK, None, OK), (OK, OK, None))


def test_where_all_is_well_nothing_changes_and_nothing_is_said():
    assert with_peer_access(TRIPLE, ALL_OK) == (TRIPLE, [])


@pytest.mark.parametrize(
    ("p2p", "expected"),
    [
        pytest.param(statuses((None, CNS, OK), (CNS, None, OK), (OK, OK, None)), ["SYS", "PIX", "SYS"], id="an NVLink that may not be used"),
        pytest.param(statuses((None, OK, OK), (OK, None, OK), (NS, OK, None)), ["NV12", "SYS", "SYS"], id="the weaker direction counts"),
        pytest.param(statuses((None, None, None), (None, None, OK), (None, OK, None)), ["NV12", "PIX", "SYS"], id="untold pairs stay as they are"),
        pytest.param(statuses((None, CNS), (CNS, None), gpus=(1, 0)), ["SYS", "PIX", "SYS"], id="GPUs are known by index, not by place"),
        pytest.param(statuses((None, CNS), (CNS, None), gpus=(7, 8)), ["NV12", "PIX", "SYS"], id="GPUs of another machine"),
    ],
)
def test_pairs_without_peer_access_count_as_sys(p2p: P2pMatrix, expected: list[str]):
    assert codes(p2p) == expected


@pytest.mark.parametrize("capability", [P2pCapability.NVLINK, P2pCapability.ATOMICS, P2pCapability.PROP])
def test_other_capabilities_say_nothing_about_copies_and_that_is_told(capability: P2pCapability):
    found, told = with_peer_access(TRIPLE, statuses((None, NS, NS), (NS, None, NS), (NS, NS, None), capability=capability))
    assert found == TRIPLE
    assert told == [f"the peer-to-peer statuses are those of `topo -p2p {capability}`, which tell nothing about copies; wanted: `topo -p2p r`"]


def test_many_pairs_are_told_in_one_sentence():
    found, (told,) = with_peer_access(DGX1V.matrix, statuses(*((CNS,) * 8,) * 8, gpus=tuple(range(8))))
    assert told.startswith("no peer access between GPU0 and GPU1 (CNS), GPU0 and GPU2 (CNS)")
    assert "and 24 more pairs" in told
    assert {str(code) for _, _, code in found.pairs()} == {"SYS"}


@given(st.lists(st.sampled_from([OK, OK, CNS, P2pStatus.U]), min_size=9, max_size=9))
def test_less_peer_access_is_never_more_bandwidth(cells: list[P2pStatus]):
    found, _ = with_peer_access(TRIPLE, statuses(tuple(cells[:3]), tuple(cells[3:6]), tuple(cells[6:])))
    lowered, whole = machine_of(found).sets, machine_of(TRIPLE).sets
    assert lowered is not None
    assert whole is not None
    assert (lowered.bandwidth <= whole.bandwidth).all()
