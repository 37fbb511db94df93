"""What a running extender says of the cluster and of its decisions, by its read API and by `linkwise explain`, against what the API server says."""

import subprocess
import sys

import pytest

from extender.explain_client import Way, decision_about
from tests.builders import pod
from tests.e2e.checks import check_cluster, check_extender
from tests.e2e.extender import RunningExtender
from tests.e2e.live_cluster import LiveCluster
from topology.errors import InputError


def explain(extender: RunningExtender, pod_name: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run `linkwise explain pod`."""
    command = [sys.executable, "-m", "extender", "explain", "pod", pod_name, "--server", extender.url, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_explain_tells_where_a_pod_went_with_scores_and_why_another_waits(cluster: LiveCluster, extender: RunningExtender) -> None:
    for kind in ("bridges", "dgx1v", "pcie"):
        cluster.make_machine(kind, kind)
    extender.wait_open("bridges", "dgx1v", "pcie")
    cluster.make_pod(pod("pair").gpus(2))
    cluster.wait_bound("pair")
    lines = explain(extender, "default/pair").stdout.splitlines()
    assert lines[0] == "default/pair: bound to bridges, GPUs 0,2, 300 GB/s over NV12"
    assert lines[1] == "  bridges: score 10, GPUs 0,2 of 8 free, pair of 300 GB/s over NV12, leaves GPUs 1,3-7, of them 1,3-5 whole"
    assert {line.split(":")[0].strip() for line in lines[2:]} == {"dgx1v", "pcie"}

    cluster.make_pod(pod("fast").gpus(4).min_bandwidth(200))
    cluster.wait_event("min-bandwidth 200 asked", "fast", reason="FailedScheduling")
    told = explain(extender, "default/fast").stdout
    assert "default/fast: fits on none of 3 nodes" in told
    assert "bridges: 6 of 8 GPUs free, best set of 4" in told
    assert "200 asked" in told


def test_explain_evaluates_anew_what_a_restarted_extender_has_not_decided(cluster: LiveCluster, extender: RunningExtender) -> None:
    cluster.make_machine("bridges", "bridges")
    extender.wait_open("bridges")
    cluster.make_pod(pod("pair").gpus(2))
    cluster.wait_bound("pair")
    assert extender.stop() == 0
    extender.start().wait_leads()
    done = explain(extender, "default/pair")
    assert "No decision is kept for this pod; this is what would be decided now." in done.stdout
    assert "It is bound to bridges already" in done.stdout
    absent = explain(extender, "default/nobody")
    assert (absent.returncode, absent.stdout) == (2, "")
    assert "no decision about pod default/nobody is kept, and no such pod is known" in absent.stderr


def test_the_read_api_agrees_with_the_pods_of_the_cluster_before_and_after_a_restart(cluster: LiveCluster, extender: RunningExtender) -> None:
    kinds = ("nvswitch", "dgx1v", "bridges", "pcie", "mesh")
    for kind in kinds:
        cluster.make_machine(kind, kind)
    extender.wait_open(*kinds)
    builders = [pod(f"pod-{number}").gpus(1 + number % 3) for number in range(12)]
    cluster.make_pods(builders)
    for builder in builders:
        cluster.wait_bound(builder.name)
    cluster.end_pod("pod-0")
    cluster.api.delete("Pod", "pod-1", grace_s=0)
    cluster.api.delete("Pod", "pod-2")  # terminates, and holds its GPUs
    held = check_cluster(cluster.api)
    assert len(held) == 10
    check_extender(extender, cluster.api)
    holders = {gpu["uuid"]: gpu["heldBy"] for kind in kinds for gpu in extender.get(f"nodes/{kind}")["gpus"] if gpu["heldBy"]}
    assert holders == {uuid: name for name, uuids in held.items() for uuid in uuids}
    before = {kind: extender.get(f"nodes/{kind}") for kind in kinds}

    assert extender.stop() == 0
    extender.start().wait_leads()
    check_extender(extender, cluster.api)
    assert {kind: extender.get(f"nodes/{kind}") for kind in kinds} == before


def test_explain_through_the_api_server_tells_what_the_api_server_says(cluster: LiveCluster) -> None:
    """The real proxy reaches no loopback address, so there is no extender behind it here: that nothing is installed is told as it is."""
    way = Way(kubeconfig=cluster.plane.kubeconfig("admin"))
    with pytest.raises(
        InputError, match=r'service linkwise-system/linkwise-extender:extender: .* answered 404: services "linkwise-extender" not found'
    ):
        decision_about("default/pair", way)
