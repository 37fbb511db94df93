"""The kernel's word about a pod, in every layout that kubelet makes."""

from pathlib import Path

import pytest

from topology.agent.handoff.cgroups import Cgroups

UID = "0a1b2c3d-1111-2222-3333-444455556666"
LAYOUTS = [
    pytest.param(f"kubepods/pod{UID}", id="cgroupfs, v2, guaranteed"),
    pytest.param(f"kubepods/burstable/pod{UID}", id="cgroupfs, v2, burstable"),
    pytest.param(f"pids/kubepods/besteffort/pod{UID}", id="cgroupfs, v1, best effort"),
    pytest.param(f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice", id="systemd, v2, guaranteed"),
    pytest.param(f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice", id="systemd, v2, burstable"),
    pytest.param(f"memory/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID.replace('-', '_')}.slice", id="systemd, v1"),
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_pod_with_processes_in_a_container_is_seen(tmp_path: Path, layout: str) -> None:
    """As long as one is listed; another pod has none."""
    container = tmp_path / layout / "container"
    container.mkdir(parents=True)
    (container / "cgroup.procs").write_text("4711\n")
    cgroups = Cgroups(tmp_path)
    assert cgroups.has_processes(UID) is True
    assert cgroups.has_processes("another") is False


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_list_without_processes_says_nothing(tmp_path: Path, layout: str) -> None:
    """On v1 it leaves out the processes of other namespaces, which are all but the agent's own."""
    container = tmp_path / layout / "container"
    container.mkdir(parents=True)
    (container / "cgroup.procs").write_text("")
    assert Cgroups(tmp_path).has_processes(UID) is None


@pytest.mark.parametrize(("count", "lives"), [("3\n", True), ("0\n", False)])
def test_on_v1_the_kernel_counts_processes_of_every_namespace(tmp_path: Path, count: str, lives: bool) -> None:
    """Whatever the lists of the other hierarchies leave out."""
    for hierarchy in ("memory", "pids"):
        (tmp_path / hierarchy / f"kubepods/burstable/pod{UID}").mkdir(parents=True)
    (tmp_path / f"memory/kubepods/burstable/pod{UID}" / "cgroup.procs").write_text("")
    (tmp_path / f"pids/kubepods/burstable/pod{UID}" / "pids.current").write_text(count)
    assert Cgroups(tmp_path).has_processes(UID) is lives


@pytest.mark.parametrize(("word", "lives"), [("populated 1\nfrozen 0\n", True), ("populated 0\nfrozen 0\n", False)])
def test_on_v2_the_kernel_says_it_in_a_word(tmp_path: Path, word: str, lives: bool) -> None:
    """And no process is counted."""
    pod = tmp_path / f"kubepods/pod{UID}"
    pod.mkdir(parents=True)
    (pod / "cgroup.events").write_text(word)
    assert Cgroups(tmp_path).has_processes(UID) is lives


def test_where_kubelet_has_no_cgroups_nothing_is_known(tmp_path: Path) -> None:
    """Which is not the same as no."""
    assert Cgroups(tmp_path).has_processes(UID) is None
    assert Cgroups(tmp_path / "absent").has_processes(UID) is None
