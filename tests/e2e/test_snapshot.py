"""`linkwise snapshot` on a real API server, and a laptop that serves what it wrote."""

import subprocess
import sys
from pathlib import Path

import pytest

from extender.kube.lists import PAGE
from extender.snapshot_file import read_snapshot
from tests.builders import pod
from tests.e2e.control_plane import ControlPlane
from tests.e2e.live_cluster import LiveCluster
from tests.states import state_of

SECRET = "hunter2"


def snapshot(plane: ControlPlane, output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "extender", "snapshot", "--kubeconfig", plane.kubeconfig(), "--output", output, *options)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_snapshot_gives_the_state_of_the_cluster_and_no_secret(live: LiveCluster, tmp_path: Path) -> None:
    uuids = [gpu.uuid for gpu in live.make_machine("dgx1v", "node-a").spec.gpus]
    live.make_machine("pcie", "node-b")
    live.make_pod(pod("runs").holding("node-a", *uuids[:2]))
    live.make_pod(pod("around").gpus(1).bound_to("node-b"))
    hidden = pod("waits").gpus(4).min_bandwidth(100)
    live.make_pod(hidden, containers=[{**hidden.build()["spec"]["containers"][0], "image": SECRET, "env": [{"name": "TOKEN", "value": SECRET}]}])

    told = snapshot(live.plane, tmp_path / "cluster.yaml")
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout == f"Wrote {tmp_path / 'cluster.yaml'} (yaml). Nodes: 2, GPUTopologies: 2, pods: 3\n"
    assert SECRET not in (tmp_path / "cluster.yaml").read_text()

    whole = tmp_path / "kubectl.json"
    whole.write_text(live.plane.kubectl("get", "nodes,gputopologies,pods", "-A", "-o", "json"))
    assert SECRET in whole.read_text()
    taken = read_snapshot(tmp_path / "cluster.yaml")
    assert state_of(taken) == state_of(read_snapshot(whole))
    assert state_of(taken)["closed"]["node-b"][1], "a pod around Linkwise closes its node, on the laptop as well"
    assert [node["status"]["allocatable"]["nvidia.com/gpu"] for node in taken.nodes] == ["8", "8"]


def test_more_pods_than_a_page_all_get_into_the_file(live: LiveCluster, tmp_path: Path) -> None:
    live.make_node("node-a")
    live.make_pods(pod(f"pod-{number}").gpus(1) for number in range(PAGE + 1))
    assert snapshot(live.plane, tmp_path / "cluster.json", "--format", "json").returncode == 0
    taken = read_snapshot(tmp_path / "cluster.json")
    assert len({raw["metadata"]["uid"] for raw in taken.pods}) == PAGE + 1


@pytest.mark.parametrize(
    ("user", "output", "sentence"),
    [
        pytest.param(
            "alice", "cluster.yaml", "the cluster cannot be listed: GET /apis/linkwise.dev/v1alpha1/gputopologies answered 403", id="no right to list"
        ),
        pytest.param("admin", "no/such/folder.yaml", "cannot be written: No such file or directory", id="nowhere to write"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(control_plane: ControlPlane, tmp_path: Path, user: str, output: str, sentence: str) -> None:
    command = (sys.executable, "-m", "extender", "snapshot", "--kubeconfig", control_plane.kubeconfig(user), "--output", tmp_path / output)
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 2
    assert sentence in told.stderr
    assert told.stderr.count("\n") == 1
    assert list(tmp_path.glob("**/*.yaml*")) == []
