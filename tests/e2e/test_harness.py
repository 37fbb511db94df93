"""The harness itself: a test below that fails means that no other end-to-end test can be believed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kubernetes.dynamic.exceptions import ForbiddenError, UnprocessibleEntityError

from extender.sample_machines import sample
from tests.builders import pod
from tests.e2e import build
from tests.e2e.api_server import refusal
from tests.e2e.calls import answers_ok
from tests.e2e.control_plane import ControlPlane
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.objects import GPU, scheduler_configuration
from tests.e2e.program import Program, StartError, free_port, wait_until
from tests.e2e.recording_extender import RecordingExtender
from topology.api import read_gputopology

REPOSITORY = Path(__file__).parents[2]


def test_the_api_server_tells_the_version_it_was_built_from(control_plane: ControlPlane) -> None:
    version = control_plane.api().request("GET", "/version")
    assert f"k8s.io/kubernetes {version['gitVersion']}" in (build.SOURCES / "kubernetes" / "go.mod").read_text()
    assert version["gitVersion"] in control_plane.kubectl("version")


def test_users_are_who_their_tokens_say_and_may_do_what_rbac_says(control_plane: ControlPlane, live: LiveCluster) -> None:
    control_plane.add_namespace("team-a")
    alice = control_plane.api("alice")
    alice.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine", "namespace": "team-a"}, "data": {}})
    with pytest.raises(ForbiddenError, match="cannot list resource"):
        alice.items("Node")
    with pytest.raises(ForbiddenError) as refused:
        control_plane.api("linkwise-agent").items("Secret")
    assert "system:serviceaccount:linkwise-system:linkwise-agent" in refusal(refused.value)


def test_a_service_account_gets_a_real_token(control_plane: ControlPlane) -> None:
    token = control_plane.service_account_token("default")
    printed = control_plane.kubectl("auth", "whoami", kubeconfig=control_plane.kubeconfig_of_token("a-pod", token))
    assert "system:serviceaccount:linkwise-system:default" in printed


@pytest.mark.parametrize("kind", ["nvswitch", "dgx1v", "bridges", "pcie", "mesh"])
def test_a_gputopology_comes_back_as_it_was_published(live: LiveCluster, kind: str) -> None:
    published = live.make_machine(kind, "node-a")
    stored = read_gputopology(live.api.get("GPUTopology", "node-a"))
    assert stored.spec == published.spec
    assert stored.status == published.status


def test_kubectl_prints_a_gputopology(control_plane: ControlPlane, live: LiveCluster) -> None:
    live.make_machine("dgx1v", "node-a")
    header, row = control_plane.kubectl("get", "gputopo").splitlines()
    assert header.split()[:2] == ["NAME", "GPUS"]
    assert row.split()[:2] == ["node-a", "8"]


def test_the_schema_refuses_a_topology_without_links(live: LiveCluster) -> None:
    item = sample("pcie", "node-a").to_object()
    del item["spec"]["links"]
    with pytest.raises(UnprocessibleEntityError) as refused:
        live.api.create(item)
    assert "spec.links: Required value" in refusal(refused.value)


def test_a_topology_goes_with_the_node_that_owns_it(control_plane: ControlPlane, live: LiveCluster) -> None:
    control_plane.start_controller_manager()
    uid = live.make_node("node-a")["metadata"]["uid"]
    item = sample("pcie", "node-a").to_object()
    item["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": uid}]
    live.api.create(item)
    live.api.delete("Node", "node-a")
    wait_until(lambda: live.api.find("GPUTopology", "node-a") is None, 30, "the topology is collected")


def test_a_binding_brings_its_annotations_to_the_pod_in_one_write(live: LiveCluster) -> None:
    live.make_node("node-a")
    created = live.make_pod(pod("train").gpus(2).min_bandwidth(100))
    live.api.bind("train", "node-a", annotations={"linkwise.dev/allocation": "{}"}, uid=created["metadata"]["uid"])
    bound = live.pod("train")
    assert bound["spec"]["nodeName"] == "node-a"
    assert bound["metadata"]["annotations"] == {"linkwise.dev/allocation": "{}", "linkwise.dev/min-bandwidth": "100"}


def test_kube_scheduler_asks_the_extender_of_the_linkwise_profile(control_plane: ControlPlane, live: LiveCluster) -> None:
    live.make_nodes(["node-a", "node-b", "node-c"])
    with RecordingExtender("node-b", "the links of this node are too slow") as extender:
        control_plane.start_scheduler(scheduler_configuration(extender.url, bindVerb=None, preemptVerb=None))
        live.make_pod(pod("train").gpus(2))
        assert live.wait_bound("train")["spec"]["nodeName"] == "node-b"
        call = extender.asked("filter")[0]
        assert sorted(call["NodeNames"]) == ["node-a", "node-b", "node-c"]
        assert call["Pod"]["spec"]["containers"][0]["resources"]["limits"] == {GPU: "2"}

        extender.node = "none of them"
        live.make_pod(pod("waits").gpus(2))
        event = live.wait_event("the links of this node are too slow", "waits", reason="FailedScheduling")
        assert "0/3 nodes are available" in event["message"]
        assert live.node_of("waits") is None


def test_kwok_lets_pods_run_end_and_go(control_plane: ControlPlane, live: LiveCluster) -> None:
    control_plane.start_kwok()
    live.make_node("node-a")
    live.make_pod(pod("train").gpus(2).bound_to("node-a"))
    wait_until(lambda: live.pod("train")["status"]["phase"] == "Running", what="train runs")
    live.api.patch("Pod", "train", {"metadata": {"labels": {"e2e": "ends"}}})
    wait_until(lambda: live.pod("train")["status"]["phase"] == "Succeeded", what="train has ended")
    live.make_pod(pod("other").gpus(2).bound_to("node-a"))
    wait_until(lambda: live.pod("other")["status"]["phase"] == "Running", what="other runs")
    live.api.delete("Pod", "other")
    assert live.pod("other")["metadata"]["deletionTimestamp"], "a deleted pod lives on through its grace period"
    wait_until(lambda: live.api.find("Pod", "other") is None, what="other is gone")


def test_a_pod_can_be_ended_without_kwok(live: LiveCluster) -> None:
    live.make_node("node-a")
    live.make_pod(pod("train").gpus(2).bound_to("node-a"))
    live.end_pod("train")
    assert live.pod("train")["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


def test_the_api_server_can_die_and_come_back_with_its_data(control_plane: ControlPlane, live: LiveCluster) -> None:
    live.make_node("node-a")
    control_plane.kube_apiserver.kill()
    assert not answers_ok(f"{control_plane.url}/readyz")
    control_plane.start_api_server()
    assert live.api.get("Node", "node-a")["status"]["allocatable"][GPU] == "8"


def test_a_program_that_fails_to_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    program = Program("broken", ["sh", "-c", "echo the disk is full; exit 3"], tmp_path / "broken.log")
    with pytest.raises(StartError, match=r"ended with status 3\n.*\nthe disk is full"):
        program.start().wait_ready(lambda: False)
    program.stop()


def test_a_paused_program_lives_and_answers_nothing_until_it_is_resumed(tmp_path: Path) -> None:
    port = free_port()
    program = Program("server", [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"], tmp_path / "server.log")
    program.start().wait_ready(lambda: answers_ok(f"http://127.0.0.1:{port}/"))
    program.pause()
    assert not answers_ok(f"http://127.0.0.1:{port}/")
    assert program.running()
    program.resume()
    assert answers_ok(f"http://127.0.0.1:{port}/")
    program.kill()
    assert not program.running()


def test_programs_end_with_the_test_run_that_started_them_however_it_ends(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from tests.e2e.program import Program;"
        "program = Program('sleeper', ['sleep', '600'], Path(sys.argv[1])).start(); print(program.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, tmp_path / "log"], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        os.kill(pid, 0)
        run.send_signal(signal.SIGKILL)
    wait_until(lambda: _gone(pid), what="the program of the killed run has ended")


def _gone(pid: int) -> bool:
    """Whether a process has ended; one whose parent never asks for its status stays as a zombie in some containers."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_without_go_the_build_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(build.BuildError, match=r"there is no `go` on the PATH: install Go 1\.26"):
        build.programs({"PATH": str(tmp_path), "HOME": str(tmp_path)})
