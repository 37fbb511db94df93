"""What the agent asks kubelet, and when it does not."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from topology.agent.handoff.kubelet import Kubelet
from topology.agent.pod_resources import Claim

CLAIM = Claim("default", "train", "main", "nvidia.com/gpu", "GPU-0")


class Listing:
    """Stands in for PodResources: answers once it may."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()

    def __call__(self, _socket: Path) -> frozenset[Claim]:
        """Answer."""
        self.asked.set()
        assert self.may_answer.wait(10)
        return frozenset({CLAIM})


@pytest.fixture
def listing() -> Listing:
    return Listing()


@pytest.fixture
def kubelet(tmp_path: Path, listing: Listing) -> Kubelet:
    return Kubelet(tmp_path, tmp_path / "kubelet.sock", lambda: None, listing)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as threads:
        yield threads


def test_kubelet_is_not_asked_while_it_gives_devices_away(kubelet: Kubelet, listing: Listing, threads: ThreadPoolExecutor) -> None:
    """The question waits, and has its answer afterwards."""
    with kubelet.giving_away():
        answer = threads.submit(kubelet.claims)
        assert not listing.asked.wait(0.05)
    assert answer.result(10) == {CLAIM}


def test_devices_are_given_away_though_a_question_hangs(kubelet: Kubelet, listing: Listing, threads: ThreadPoolExecutor) -> None:
    """Kubelet's own loop waits for Allocate."""
    listing.may_answer.clear()
    answer = threads.submit(kubelet.claims)
    assert listing.asked.wait(10)
    with kubelet.giving_away():
        assert not answer.done()
    listing.may_answer.set()
    assert answer.result(10) == {CLAIM}


def test_an_allocate_that_fails_leaves_kubelet_free_to_be_asked(kubelet: Kubelet) -> None:
    """Whatever its answer was."""
    with pytest.raises(OSError, match="disk full"), kubelet.giving_away():
        raise OSError("disk full")
    assert kubelet.claims() == {CLAIM}
