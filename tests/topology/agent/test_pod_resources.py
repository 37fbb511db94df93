"""kubelet's answer is read as it is on the wire, and its refusals are told apart."""

from pathlib import Path

import pytest

from tests.kubelet_stand_in import Devices, HeldBy, kubelet_at
from topology.agent.pod_resources import Claim, PodResourcesError, list_aligned, list_claims


@pytest.fixture
def socket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("k") / "kubelet.sock"  # short: a unix socket's path has at most 107 bytes


def test_the_entries_of_all_numa_nodes_are_joined(socket: Path) -> None:
    with kubelet_at(socket) as kubelet:
        kubelet.held = [
            HeldBy(
                "ml/train", "main", (Devices(("GPU-a", "GPU-b"), numa_node=0), Devices(("GPU-c",), numa_node=1), Devices(("nic0",), "vendor.com/nic"))
            ),
            HeldBy("ml/train", "side", (Devices(("GPU-d",)),)),
            HeldBy("default/web", "main", ()),
        ]
        assert list_claims(socket) == {
            Claim("ml", "train", "main", "nvidia.com/gpu", "GPU-a"),
            Claim("ml", "train", "main", "nvidia.com/gpu", "GPU-b"),
            Claim("ml", "train", "main", "nvidia.com/gpu", "GPU-c"),
            Claim("ml", "train", "main", "vendor.com/nic", "nic0"),
            Claim("ml", "train", "side", "nvidia.com/gpu", "GPU-d"),
        }


def test_containers_are_told_to_which_kubelet_gave_anything_else_for_themselves(socket: Path) -> None:
    """CPUs and memory, as static policies do, or devices of others, as a NIC; the GPUs alone count for nothing."""
    gpu, nic = Devices(("GPU-a",)), Devices(("nic0",), "vendor.com/nic")
    with kubelet_at(socket) as kubelet:
        kubelet.held = [
            HeldBy("ml/plain", "main", (gpu,), is_pinned=False),
            HeldBy("ml/nic", "main", (gpu, nic), is_pinned=False),
            HeldBy("ml/pinned", "main", (gpu,)),
        ]
        assert list_aligned(socket, ["nvidia.com/gpu"]) == {("ml", "nic", "main"), ("ml", "pinned", "main")}


def test_no_pods_is_an_answer(socket: Path) -> None:
    with kubelet_at(socket):
        assert list_claims(socket) == frozenset()


def test_a_long_answer_is_read_in_full(socket: Path) -> None:
    with kubelet_at(socket) as kubelet:
        # 6 MB; gRPC alone takes 4. Few and long, since a stand-in in Python is no faster.
        kubelet.held = [HeldBy(f"default/pod-{n:04}", "main", (Devices(tuple(f"{n}-{i}" + "x" * 750 for i in range(8))),)) for n in range(1000)]
        assert len(list_claims(socket)) == 8000


def test_a_rate_limit_is_waited_for(socket: Path) -> None:
    pauses: list[float] = []
    with kubelet_at(socket) as kubelet:
        kubelet.refusals = 3
        kubelet.hold("default/train", "GPU-a")
        assert len(list_claims(socket, pauses.append)) == 1
    assert (kubelet.calls, pauses) == (4, [0.05, 0.2, 0.5])


def test_a_rate_limit_that_stays_is_told(socket: Path) -> None:
    with kubelet_at(socket) as kubelet:
        kubelet.refusals = 100
        with pytest.raises(PodResourcesError, match="RESOURCE_EXHAUSTED, rejected by rate limit") as caught:
            list_claims(socket, lambda _: None)
    assert (kubelet.calls, caught.value.absent) == (4, False)


def test_a_failure_is_told_in_kubelets_words_and_not_repeated(socket: Path) -> None:
    with kubelet_at(socket) as kubelet:
        kubelet.broken = True
        with pytest.raises(PodResourcesError, match=r"does not answer PodResources List at .*: INTERNAL, the device manager is not ready") as caught:
            list_claims(socket)
    assert (kubelet.calls, caught.value.absent) == (1, False)


def test_a_missing_socket_is_told_apart_from_a_silent_one(socket: Path) -> None:
    with pytest.raises(PodResourcesError, match=r"kubelet\.sock does not exist; is its directory mounted here\?") as caught:
        list_claims(socket)
    assert caught.value.absent


def test_a_socket_that_nobody_listens_on_is_told(socket: Path) -> None:
    with kubelet_at(socket):
        pass
    socket.write_text("")
    with pytest.raises(PodResourcesError, match="UNAVAILABLE") as caught:
        list_claims(socket)
    assert not caught.value.absent


def test_kubelet_is_heard_at_once_when_it_comes_back_on_a_new_socket(socket: Path) -> None:
    """A connection that gRPC shares between channels would wait out its back-off first."""
    for pod in ("default/one", "default/two"):
        socket.write_text("nobody listens here")
        with pytest.raises(PodResourcesError):
            list_claims(socket)
        socket.unlink()
        with kubelet_at(socket) as kubelet:
            kubelet.hold(pod, "GPU-a")
            assert {claim.pod for claim in list_claims(socket)} == {pod.partition("/")[2]}
