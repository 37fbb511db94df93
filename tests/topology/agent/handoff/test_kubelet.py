"""What the agent asks kubelet, and when it does not."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from topology.agent.handoff import kubelet as handoff_kubelet
from topology.agent.handoff.kubelet import Kubelet
from topology.agent.pod_resources import Claim, PodResourcesError

CLAIM = Claim("default", "train", "main", "nvidia.com/gpu", "GPU-0")


class Listing:
    """Stands in for PodResources: answers once it may."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.questions = 0
        self.fails = False

    def __call__(self, _socket: Path) -> frozenset[Claim]:
        """Answer."""
        self.asked.set()
        assert self.may_answer.wait(10)
        self.questions += 1
        if self.fails:
            raise PodResourcesError("kubelet does not answer", absent=True)
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


@pytest.mark.parametrize("fails", [False, True], ids=["it is answered", "it is not"])
def test_all_who_wait_share_one_question(
    kubelet: Kubelet, listing: Listing, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """A question that fails takes seconds; asked by one start after the other, the last ones would wait longer than kubelet does."""
    came = threading.Semaphore(0)

    def monotonic() -> float:
        now = time.monotonic()
        came.release()
        return now

    monkeypatch.setattr(handoff_kubelet, "time", SimpleNamespace(monotonic=monotonic, sleep=time.sleep))
    listing.fails = fails
    with kubelet.giving_away():
        answers = [threads.submit(kubelet.claims) for _ in range(3)]
        for _ in answers:
            assert came.acquire(timeout=10)
    errors = [answer.exception(10) for answer in answers]
    assert listing.questions == 1
    assert [isinstance(error, PodResourcesError) and error.absent for error in errors] == [fails] * 3
    listing.fails = False
    assert kubelet.claims() == {CLAIM}, "a later question is asked anew"


def test_an_allocate_that_fails_leaves_kubelet_free_to_be_asked(kubelet: Kubelet) -> None:
    """Whatever its answer was."""
    with pytest.raises(OSError, match="disk full"), kubelet.giving_away():
        raise OSError("disk full")
    assert kubelet.claims() == {CLAIM}
