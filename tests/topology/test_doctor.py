"""`linkwise doctor`: a healthy node has no broken link, and every way to break one is named with its cure."""

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.api_door import Raw, refused
from tests.builders import pod
from tests.doctor_node import MACHINE, NODE, Answer, DoctorNode, Extender, doctor_node, serving
from tests.runtime_stand_in import Ran
from tests.stand_in import LIST, QUERY, QUERY_HEADER, TOPO, query_rows, texts
from topology.cli import app
from topology.doctor import CHAIN, Link, examine, first_broken
from topology.doctor.finding import State, ok
from topology.doctor.node import Node
from topology.doctor.printing import as_json, conclusion, line_of

Break = Callable[[DoctorNode], object]


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[DoctorNode]:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with doctor_node(tmp_path_factory.mktemp("n")) as node:
        yield node


def seen(node: DoctorNode) -> str:
    """Return what people see of the whole chain."""
    chain = list(examine(node.asked))
    return node.plain("\n".join([*map(line_of, chain), conclusion(NODE, chain)])) + "\n"


def a_plugin_of_others(node: DoctorNode) -> None:
    """Let NVIDIA's device plugin listen, for as long as the node is."""
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    one.bind(str(node.asked.settings.device_plugin_dir / "nvidia-gpu.sock"))
    one.listen()
    node.others.append(one)


# --- the whole ---


def test_a_healthy_node_reads_as_reviewed(node: DoctorNode, golden: Callable[[str, str], None]) -> None:
    """No link is broken, and each says what it saw."""
    node.write_nvidia_spec()
    golden("doctor-healthy.txt", seen(node))


def test_a_node_whose_kubelet_was_stopped_reads_as_reviewed(node: DoctorNode, golden: Callable[[str, str], None]) -> None:
    """The first broken link is named, and what hangs on it follows."""
    node.write_nvidia_spec()
    kubelet_dropped_us(node)
    node.pod_resources.broken = True
    golden("doctor-kubelet-stopped.txt", seen(node))


def test_the_command_ends_with_1_where_a_link_is_broken_and_json_names_it(node: DoctorNode) -> None:
    """What scripts read."""
    settings = node.asked.settings
    variables = {
        f"LINKWISE_AGENT_{name.upper()}": str(getattr(settings, name))
        for name in ("node_name", "nvidia_smi", "sysfs_root", "kubeconfig", "device_plugin_dir", "cdi_dir", "pod_resources_socket", "hand_off")
    }
    variables |= {"LINKWISE_AGENT_NVIDIA_CDI_DIRS": "[]", "LINKWISE_AGENT_METRICS_PORT": str(node.asked.agent_port)}
    command = ["doctor", "--output", "json", "--runtime-socket", str(node.asked.runtime_sockets[0])]
    result = CliRunner().invoke(app, command, env=variables)
    told = json.loads(result.stdout)
    assert (result.exit_code, told["node"], told["firstBroken"]) == (0, NODE, None), result.output
    assert [one["link"] for one in told["links"]] == [link.name for link in CHAIN]

    node.ill = "no round for 200 s"
    result = CliRunner().invoke(app, command, env=variables)
    told = json.loads(result.stdout)
    assert (result.exit_code, told["firstBroken"]) == (1, "agent")
    [ill] = [one for one in told["links"] if one["state"] == "broken"]
    assert ill["message"] == "the agent is ill: no round for 200 s"
    assert ill["cure"].startswith("read the agent's log")
    text = CliRunner().invoke(app, [*command, "--output", "text"], env=variables).stdout
    assert text.splitlines()[-1].startswith("node-a: first broken link: agent: the agent is ill: no round for 200 s. Cure: read the agent's log")


def test_a_node_name_that_cannot_be_is_refused() -> None:
    """With a sentence and status 2, as every command does."""
    result = CliRunner().invoke(app, ["doctor", "--node-name", "Node_A"])
    assert (result.exit_code, "accepted: lower-case letters" in result.stderr) == (2, True)


def test_a_check_that_fails_by_itself_is_told_as_a_bug_and_the_others_go_on(node: DoctorNode) -> None:
    """Nothing crashes."""

    def check(_: Node) -> Any:
        raise ZeroDivisionError("x")

    chain = list(examine(node.asked, (Link("odd", check), Link("even", lambda _: ok("fine")))))
    assert [one.finding.state for one in chain] == [State.BROKEN, State.OK]
    assert "bug in Linkwise" in chain[0].finding.says
    worst = first_broken(chain)
    assert worst is not None
    assert worst.link == "odd"
    assert json.loads(as_json(NODE, chain))["firstBroken"] == "odd"


# --- every link, every cause ---


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def program(node: DoctorNode, name: str) -> None:
    write(node.asked.toolkit_dirs[0] / name, "#!/bin/sh\n")
    (node.asked.toolkit_dirs[0] / name).chmod(0o755)


def no_runtime_of_nvidia(node: DoctorNode) -> None:
    assert node.runtime.config is not None
    del node.runtime.config["containerd"]["runtimes"]["nvidia"]


def old_containerd(node: DoctorNode, version: str, **config: Any) -> None:
    node.runtime.version, node.runtime.config = version, config


def only_the_node_tells(node: DoctorNode, version: str) -> None:
    node.asked = replace(node.asked, runtime_sockets=(node.directory / "none.sock",))
    node.node_info = version


def lost_gpu(node: DoctorNode) -> None:
    lost = f"Unable to determine the device handle for GPU {MACHINE.bus_ids[-1]}: GPU is lost.  Reboot the system to recover this GPU"
    rows = [QUERY_HEADER, *query_rows(MACHINE, NODE)[:-1], lost]
    listed = [*texts(MACHINE, NODE)[LIST].splitlines()[:-1], lost]
    node.nvidia_smi(replaced={command: Answer("\n".join(lines) + "\n", 15) for command, lines in ((QUERY, rows), (LIST, listed))})


def no_kubelet(node: DoctorNode) -> None:
    node.hand_off.kubelet.stop()


def dead_sockets(node: DoctorNode) -> None:
    """As an agent that was killed leaves them: files at which nobody listens."""
    for path in node.asked.settings.device_plugin_dir.glob("linkwise-*.sock"):
        path.unlink()
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as one:
            one.bind(str(path))


def strange_sockets(node: DoctorNode) -> None:
    """Somebody listens there, who is no device plugin: kubelet's PodResources."""
    for path in node.asked.settings.device_plugin_dir.glob("linkwise-*.sock"):
        path.unlink()
        path.symlink_to(node.directory / "k.sock")


def kubelet_restarted(node: DoctorNode) -> None:
    """It removes every socket of its directory, and the agent does not look."""
    node.hand_off.kubelet.stop()
    node.hand_off.kubelet.start()


def kubelet_dropped_us(node: DoctorNode) -> None:
    node.hand_off.kubelet.stop()
    assert node.hand_off.plugin is not None
    for devices in node.hand_off.plugin._devices.values():
        devices.watchers = 0
    node.registration.look()


def door_answers(node: DoctorNode, path: str, answer: Raw) -> None:
    before = node.door.fault
    node.door.fault = lambda call: answer if call.path == path else before(call)


def closed(node: DoctorNode, reason: str) -> None:
    node.extender.answers[f"/api/v1/nodes/{NODE}"] = (200, json.dumps({"name": NODE, "closed": {"code": "STALE", "reason": reason}}))


def run(node: DoctorNode, pod: str, visible: str, **more: Any) -> None:
    node.runtime.containers.append(Ran(pod, {"PATH": "/bin", "NVIDIA_VISIBLE_DEVICES": visible, **more.pop("environment", {})}, **more))


def refuse_writing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.access
    monkeypatch.setattr(os, "access", lambda one, mode: False if Path(one) == path else real(one, mode))


PATH_OF_NODE = f"/api/v1/nodes/{NODE}"
PATH_OF_TOPOLOGY = f"/apis/linkwise.dev/v1alpha1/gputopologies/{NODE}"

BROKEN = (
    pytest.param(
        "nvidia-smi", lambda n: n.nvidia_smi(exit_code=18), "Driver/library version mismatch", "modprobe -r", id="driver and library differ"
    ),
    pytest.param(
        "nvidia-smi", lambda n: n.nvidia_smi(exit_code=9), "couldn't communicate with the NVIDIA driver", "install the NVIDIA driver", id="no driver"
    ),
    pytest.param(
        "nvidia-smi", lambda n: n.set(nvidia_smi="/no/nvidia-smi"), "/no/nvidia-smi does not exist", "RuntimeClass nvidia", id="no nvidia-smi"
    ),
    pytest.param(
        "nvidia-smi",
        lambda n: n.nvidia_smi(replaced=dict.fromkeys((QUERY, LIST, TOPO), Answer("No devices were found\n", 6))),
        "No devices were found",
        "lspci -d 10de:",
        id="no devices",
    ),
    pytest.param("nvidia-smi", lost_gpu, "1 of 4 GPUs is lost", "--gpu-reset", id="a GPU has fallen off the bus"),
    pytest.param(
        "nvidia-smi", lambda n: (n.nvidia_smi(hang=True), n.set(timeout_s=0.3)), "did not answer within 0.3 s", "dmesg", id="nvidia-smi hangs"
    ),
    pytest.param(
        "container runtime", lambda n: setattr(n.runtime, "broken", True), "server is not initialized yet", "restart it", id="runtime fails"
    ),
    pytest.param("container runtime", lambda n: old_containerd(n, "1.6.36"), "containerd 1.6.36 knows no CDI", "HAND_OFF=ids", id="containerd 1.6"),
    pytest.param(
        "container runtime", lambda n: old_containerd(n, "1.7.27", enableCDI=False), "has CDI switched off", "enable_cdi = true", id="CDI is off"
    ),
    pytest.param(
        "container runtime",
        lambda n: n.runtime.config.update(cdiSpecDirs=["/etc/cdi"]),
        "looks for CDI specs in /etc/cdi, and the agent writes them to",
        "cdi_spec_dirs",
        id="the runtime looks elsewhere for CDI specs",
    ),
    pytest.param("container runtime", lambda n: only_the_node_tells(n, "docker://27.1.1"), "docker 27.1.1 knows no CDI", "HAND_OFF=ids", id="docker"),
    pytest.param("container runtime", lambda n: only_the_node_tells(n, "cri-o://1.22.5"), "cri-o 1.22.5 knows no CDI", "CRI-O 1.23", id="old CRI-O"),
    pytest.param("NVIDIA toolkit", no_runtime_of_nvidia, "Container Toolkit is missing", "install nvidia-container-toolkit", id="toolkit missing"),
    pytest.param(
        "NVIDIA toolkit",
        lambda n: (no_runtime_of_nvidia(n), program(n, "nvidia-ctk")),
        "the container runtime has no NVIDIA runtime",
        "nvidia-ctk runtime configure",
        id="toolkit installed and not used",
    ),
    pytest.param("CDI directory", lambda n: write(n.asked.settings.cdi_dir / "x.json", "{"), "x.json is no CDI spec", "remove", id="damaged file"),
    pytest.param(
        "CDI directory", lambda n: write(n.asked.settings.cdi_dir / "x.yaml", "kind: a.b/c\n"), "no list of devices", "remove", id="half a file"
    ),
    pytest.param(
        "CDI directory",
        lambda n: [write(n.asked.settings.cdi_dir / f"{x}.json", '{"kind":"a.b/c","devices":[{"name":"d"}]}') for x in "xy"],
        "a.b/c=d is in x.json and in y.json",
        "remove one of the two",
        id="one device in two files",
    ),
    pytest.param(
        "CDI directory",
        lambda n: (write(n.directory / "file", ""), n.set(cdi_dir=n.directory / "file")),
        "is no directory",
        "make a directory",
        id="a file in its place",
    ),
    pytest.param(
        "NVIDIA's CDI spec", lambda n: write(n.directory / "etc-cdi" / "n.yaml", "kind: nvidia.com/gpu\n["), "cannot be read", "again", id="damaged"
    ),
    pytest.param(
        "NVIDIA's CDI spec", lambda n: n.write_nvidia_spec(devices=[]), "has no device GPU-", "nvidia-ctk cdi generate", id="GPUs are missing"
    ),
    pytest.param(
        "NVIDIA's CDI spec",
        lambda n: n.write_nvidia_spec(
            devices=[{"name": str(i), "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{(i + 1) % 4}"}]}} for i in range(4)]
        ),
        "and GPU GPU-",
        "nvidia-ctk cdi generate",
        id="an index names another GPU since a reboot",
    ),
    pytest.param(
        "NVIDIA's CDI spec",
        lambda n: n.write_nvidia_spec(containerEdits={"mounts": [{"hostPath": "/no/libcuda.so.550.54.14", "containerPath": "/x"}]}),
        "is stale: it mounts /no/libcuda.so.550.54.14, which is gone",
        "nvidia-ctk cdi generate",
        id="made before an update of the driver",
    ),
    pytest.param("kubelet", no_kubelet, "kubelet does not listen at", "systemctl restart kubelet", id="kubelet is stopped"),
    pytest.param("kubelet", lambda n: n.set(device_plugin_dir=Path("/no/dir")), "/no/dir does not exist here", "mount /no/dir", id="not mounted"),
    pytest.param("other device plugin", a_plugin_of_others, "another device plugin serves", "deploy.device-plugin=false", id="NVIDIA's plugin runs"),
    pytest.param("agent", lambda n: setattr(n, "ill", "no round for 200 s"), "the agent is ill: no round for 200 s", "restart it", id="agent is ill"),
    pytest.param(
        "agent", lambda n: setattr(n, "asked", replace(n.asked, agent_port=1)), "no agent answers at 127.0.0.1:1", "start the agent", id="no agent"
    ),
    pytest.param("agent's sockets", kubelet_restarted, "the agent has no socket in", "restart the agent", id="kubelet removed them"),
    pytest.param("agent's sockets", dead_sockets, "does not answer at", "restart the agent", id="left behind by an agent that was killed"),
    pytest.param("agent's sockets", strange_sockets, "UNIMPLEMENTED", "restart the agent", id="somebody else listens there"),
    pytest.param("registration", kubelet_dropped_us, "kubelet does not listen to the agent's device plugin for", "wait 10 s", id="registration lost"),
    pytest.param(
        "registration",
        lambda n: n.hand_off.metrics.registry.unregister(n.hand_off.plugin._series.registered),
        "the agent runs without the hand-off",
        "LINKWISE_AGENT_HAND_OFF=cdi",
        id="the agent was started without it",
    ),
    pytest.param("PodResources", lambda n: n.set(pod_resources_socket=Path("/no/sock")), "/no/sock does not exist", "mount /no", id="no socket"),
    pytest.param("PodResources", lambda n: setattr(n.pod_resources, "broken", True), "not ready", "journalctl -u kubelet", id="kubelet refuses"),
    pytest.param("PodResources", lambda n: setattr(n.pod_resources, "refusals", 99), "rate limit", "100 calls a second", id="rate limit"),
    pytest.param("API server", lambda n: n.set(kubeconfig=Path("/no/config")), "/no/config cannot be used", "--kubeconfig", id="no kubeconfig"),
    pytest.param("API server", lambda n: door_answers(n, PATH_OF_NODE, Raw(cut=True)), "does not answer", "control plane", id="it does not answer"),
    pytest.param(
        "API server",
        lambda n: door_answers(n, PATH_OF_NODE, refused(403, "Forbidden", "nodes is forbidden")),
        "refuses",
        "rbac-agent",
        id="no rights",
    ),
    pytest.param("API server", lambda n: door_answers(n, PATH_OF_NODE, refused(500, "X", "etcd")), "fails", "log", id="it fails"),
    pytest.param("API server", lambda n: n.door.nodes.clear(), "has no Node node-a", "--node-name", id="no such Node"),
    pytest.param(
        "API server",
        lambda n: n.denied.update(("patch gputopologies/status", "create events")),
        "may not patch gputopologies/status, create events",
        "rbac-agent.yaml",
        id="a right is missing",
    ),
    pytest.param(
        "API server",
        lambda n: n.denied.update(("list pods", "create events")),
        "may not list pods, create events",
        "component `hand-off`",
        id="a right of the hand-off is missing",
    ),
    pytest.param("GPUTopology", lambda n: n.door.topologies.clear(), "no GPUTopology node-a is published", "agent's log", id="not published"),
    pytest.param(
        "GPUTopology",
        lambda n: door_answers(n, PATH_OF_TOPOLOGY, Raw(404, "404 page not found")),
        "does not know GPUTopologies",
        "crd.yaml",
        id="no CRD",
    ),
    pytest.param("GPUTopology", lambda n: n.publish(observedAt="2026-01-01T00:00:00Z"), "s old; after 180 s", "start the agent", id="stale"),
    pytest.param("GPUTopology", lambda n: n.publish(observedAt=None), "has no status yet", "start the agent", id="no status"),
    pytest.param("GPUTopology", lambda n: n.door.topologies[NODE].update(spec={}), "GPUTopology node-a: ", "kubectl delete gputopo", id="damaged"),
    pytest.param(
        "GPUTopology",
        lambda n: n.publish(conditions=[{"type": "DriverReady", "status": "False", "reason": "X", "message": "no driver"}]),
        "DriverReady is false: no driver",
        "mend",
        id="it tells of a failure",
    ),
    pytest.param(
        "GPUTopology",
        lambda n: n.publish(conditions=[{"type": "HandOffRegistered", "status": "False", "reason": "X", "message": "kubelet does not know it"}]),
        "HandOffRegistered is false: kubelet does not know it",
        "mend",
        id="kubelet does not know the agent",
    ),
    pytest.param(
        "GPUTopology",
        lambda n: n.door.topologies[NODE]["spec"]["gpus"][0].update(uuid="GPU-old"),
        "does not have GPU-",
        "restart the agent",
        id="other GPUs",
    ),
    pytest.param("extender", lambda n: n.extender.answers.update({"/readyz": (503, "not the leader")}), "not the leader", "log", id="not ready"),
    pytest.param(
        "extender", lambda n: setattr(n, "proxy", "ServiceUnavailable"), "no extender answers at service", "start the extender", id="no pod of it"
    ),
    pytest.param(
        "extender", lambda n: setattr(n, "asked", replace(n.asked, extender="http://127.0.0.1:1")), "no extender answers", "start", id="no URL"
    ),
    pytest.param(
        "extender", lambda n: setattr(n, "asked", replace(n.asked, service="x")), "--service x is no service", "NAMESPACE/NAME:PORT", id="odd service"
    ),
    pytest.param(
        "node open for pods", lambda n: closed(n, "its agent is silent"), "no new pods here: its agent is silent", "mend", id="node is closed"
    ),
    pytest.param("node open for pods", lambda n: n.extender.answers.pop(PATH_OF_NODE), "does not know node-a", "links above", id="node unknown"),
    pytest.param(
        "node open for pods",
        lambda n: n.extender.answers.update({PATH_OF_NODE: (200, "[]")}),
        "not as an extender",
        "linkwise serve",
        id="somebody else",
    ),
    pytest.param(
        "images", lambda n: run(n, "team/notebook", "all"), "team/notebook main (NVIDIA_VISIBLE_DEVICES=all, 0 given)", "accept-nvidia", id="all GPUs"
    ),
    pytest.param(
        "images", lambda n: run(n, "team/by-index", "0,1"), "team/by-index main", "NVIDIA_VISIBLE_DEVICES=void", id="GPUs by index, none given"
    ),
    pytest.param(
        "images",
        lambda n: (n.pod_resources.hold("team/one", MACHINE.uuids(NODE)[0]), run(n, "team/one", "all")),
        "all, 1 given",
        "accept-nvidia",
        id="all GPUs, one given",
    ),
    pytest.param("images", lambda n: [run(n, f"team/{x}", "all") for x in "abcde"], "and 2 more", "accept-nvidia", id="five pods grab all"),
)


@pytest.mark.parametrize(("link", "breaks", "says", "cure"), BROKEN)
def test_every_cause_is_named_with_its_cure(node: DoctorNode, link: str, breaks: Break, says: str, cure: str) -> None:
    """A link that was whole is broken, and says by what."""
    assert node.look(link).state is State.OK
    breaks(node)
    found = node.look(link)
    assert found.state is State.BROKEN, found
    assert says in found.says
    assert found.cure is not None
    assert cure in found.cure


WHOLE = (
    pytest.param("nvidia-smi", lambda n: n.nvidia_smi(topo_exit=255), "links are those that the kernel knows", id="topo -m alone fails"),
    pytest.param(
        "container runtime", lambda n: old_containerd(n, "1.7.27", enableCDI=True), "containerd 1.7.27 with CDI", id="containerd 1.7 with CDI"
    ),
    pytest.param("container runtime", lambda n: n.runtime.config.pop("enableCDI"), "containerd 2.1.4 with CDI", id="a containerd without the switch"),
    pytest.param("container runtime", lambda n: only_the_node_tells(n, "containerd://2.1.0"), "unless somebody switched it off", id="from a pod"),
    pytest.param(
        "container runtime",
        lambda n: (old_containerd(n, "1.6.36"), setattr(n, "asked", replace(n.asked, hand_off="ids"))),
        "containerd 1.6.36",
        id="an old runtime and the hand-off without CDI",
    ),
    pytest.param("NVIDIA toolkit", lambda n: n.write_nvidia_spec(), "etc-cdi/nvidia.yaml", id="a CDI spec"),
    pytest.param(
        "NVIDIA toolkit", lambda n: n.write_nvidia_spec(devices="x"), "the matter of a later link", id="a damaged CDI spec is not a missing toolkit"
    ),
    pytest.param(
        "NVIDIA toolkit",
        lambda n: (setattr(n.runtime, "config", None), program(n, "nvidia-ctk")),
        "cannot be seen from here",
        id="CRI-O tells no configuration",
    ),
    pytest.param(
        "CDI directory", lambda n: n.set(cdi_dir=n.directory / "none"), "made for the first container", id="it comes with the first container"
    ),
    pytest.param("NVIDIA's CDI spec", lambda n: n.write_nvidia_spec(), "all 4 GPUs by UUID", id="by UUID"),
    pytest.param(
        "NVIDIA's CDI spec", lambda n: n.write_nvidia_spec("index"), "by index, and each is the right /dev/nvidiaN", id="by index, and right"
    ),
    pytest.param(
        "extender", lambda n: setattr(n, "asked", replace(n.asked, extender=f"http://127.0.0.1:{n.extender.port}/")), "is ready", id="by URL"
    ),
    pytest.param("images", lambda n: run(n, "team/a", "void"), "none of 1 running", id="void"),
    pytest.param("images", lambda n: run(n, "team/a", "all", running=False), "none of 0 running", id="it has ended"),
    pytest.param("images", lambda n: run(n, "team/a", "all", program=""), "none of 1", id="containerd's shim takes runc"),
    pytest.param("images", lambda n: run(n, "team/a", "all", program="/usr/bin/runc"), "none of 1", id="runc heeds no such variable"),
    pytest.param("images", lambda n: run(n, "team/a", "all", environment={"NVIDIA_DRIVER_CAPABILITIES": "utility"}), "none of 1", id="NVML alone"),
    pytest.param("images", lambda n: run(n, "gpu-operator/dcgm", "all"), "none of 1", id="monitors of the cluster"),
    pytest.param("images", lambda n: (run(n, "team/a", "all"), n.runtime.vanished.add(0)), "none of 0", id="it ends meanwhile"),
    pytest.param("images", lambda n: run(n, "team/a", "all", info="no JSON"), "none of 1", id="the runtime tells nothing of use"),
    pytest.param(
        "images",
        lambda n: (n.pod_resources.hold("team/a", *MACHINE.uuids(NODE)), run(n, "team/a", "all")),
        "none of 1",
        id="all GPUs, and all were given",
    ),
    pytest.param(
        "images",
        lambda n: (n.pod_resources.hold("team/a", "GPU-x"), run(n, "team/a", MACHINE.uuids(NODE)[1])),
        "none of 1",
        id="the plan won over the id",
    ),
)


@pytest.mark.parametrize(("link", "changes", "says"), WHOLE)
def test_what_only_looks_odd_is_whole(node: DoctorNode, link: str, changes: Break, says: str) -> None:
    """No false alarm."""
    changes(node)
    found = node.look(link)
    assert found.state is State.OK, found
    assert says in found.says


SKIPPED = (
    pytest.param("container runtime", lambda n: old_containerd(n, "1.7.27"), "CDI, which is off by default", id="1.7 tells no configuration"),
    pytest.param("container runtime", lambda n: only_the_node_tells(n, ""), "no socket of a container runtime", id="nobody tells the runtime"),
    pytest.param("NVIDIA's CDI spec", lambda n: n.set(merge_nvidia_cdi=False), "MERGE_NVIDIA_CDI is off", id="not merged"),
    pytest.param("NVIDIA's CDI spec", lambda n: (n.write_nvidia_spec(), n.nvidia_smi(exit_code=9)), "nvidia-smi does not tell", id="no driver"),
    pytest.param("agent", lambda n: setattr(n, "asked", replace(n.asked, agent_port=0)), "--agent-port 0", id="no port"),
    pytest.param("registration", lambda n: setattr(n, "asked", replace(n.asked, agent_port=1)), "the agent does not tell", id="no agent to ask"),
    pytest.param(
        "GPUTopology", lambda n: door_answers(n, PATH_OF_TOPOLOGY, refused(403, "Forbidden", "no")), "cannot be read", id="it may not be read"
    ),
    pytest.param("extender", lambda n: setattr(n, "proxy", "Forbidden"), "may not `get` services/proxy", id="the agent's account"),
    pytest.param("extender", lambda n: n.set(kubeconfig=Path("/no/config")), "give --server URL", id="no API server"),
    pytest.param("node open for pods", lambda n: setattr(n, "proxy", "ServiceUnavailable"), "no extender answers", id="no extender"),
    pytest.param("images", lambda n: setattr(n, "asked", replace(n.asked, runtime_sockets=())), "run this as root on the node", id="no runtime"),
    pytest.param("images", lambda n: setattr(n.pod_resources, "broken", True), "kubelet does not tell", id="no PodResources"),
    pytest.param("images", lambda n: setattr(n.runtime, "broken", True), "the container runtime does not answer", id="the runtime fails"),
)


@pytest.mark.parametrize(("link", "changes", "says"), SKIPPED)
def test_what_cannot_be_seen_is_skipped_with_the_reason(node: DoctorNode, link: str, changes: Break, says: str) -> None:
    """Not called broken, as something else is."""
    changes(node)
    found = node.look(link)
    assert found.state is State.SKIPPED, found
    assert says in found.says


@pytest.mark.parametrize("link", ["CDI directory", "NVIDIA's CDI spec", "kubelet", "other device plugin", "agent's sockets", "registration"])
def test_without_the_hand_off_its_links_are_skipped(node: DoctorNode, link: str) -> None:
    """NVIDIA's device plugin has their place."""
    node.asked = replace(node.asked, hand_off="off")
    assert node.look(link).state is State.SKIPPED


def test_an_agent_that_is_in_the_network_of_its_pod_is_found_through_the_api_server(node: DoctorNode) -> None:
    """As from a shell on the node, since the DaemonSet's pods are not in the node's network."""
    agent_pod = pod("linkwise-agent-x").bound_to(NODE).build()
    node.door.pods["default/linkwise-agent-x"] = {**agent_pod, "status": {"podIP": "127.0.0.2"}}
    with serving(Extender({"/healthz": (200, "ok")}), host="127.0.0.2") as agent:
        node.asked = replace(node.asked, agent_port=agent.port)
        assert node.look("agent").says == f"the agent answers at 127.0.0.2:{agent.port}: ok"
    assert f"no agent answers at 127.0.0.1:{agent.port} or 127.0.0.2:{agent.port}: " in node.look("agent").says


def test_whether_there_is_a_hand_off_is_seen_on_the_node(node: DoctorNode) -> None:
    """By the agent's series, by its sockets where it is dead, and by neither where it never was."""
    node.asked = replace(node.asked, hand_off=None)
    assert Node(node.asked).hand_off == "cdi"
    node.asked = replace(node.asked, agent_port=1)
    assert Node(node.asked).hand_off == "cdi"
    node.set(device_plugin_dir=node.directory / "cdi")
    assert Node(node.asked).hand_off == "off"


@pytest.mark.parametrize("in_pod", [pytest.param(True, id="in the agent's pod"), pytest.param(False, id="on the node")])
def test_a_pod_that_has_lost_the_driver_is_told_from_a_node_that_has(node: DoctorNode, monkeypatch: pytest.MonkeyPatch, *, in_pod: bool) -> None:
    """To install a driver that works is no cure: systemd took the device files away from the container."""
    said = Answer("Failed to initialize NVML: Unknown Error\n", 255)
    node.nvidia_smi(replaced={QUERY: said, LIST: said})
    if in_pod:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    found = node.look("nvidia-smi")
    assert found.state is State.BROKEN
    assert ("delete this pod" in str(found.cure)) == in_pod
    assert "install the NVIDIA driver" in str(found.cure)


def test_in_the_agents_pod_the_programs_of_the_node_are_not_missed(node: DoctorNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """They cannot be seen there; nor can the files that NVIDIA's spec mounts."""
    no_runtime_of_nvidia(node)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    assert node.look("NVIDIA toolkit").state is State.SKIPPED
    node.write_nvidia_spec(containerEdits={"mounts": [{"hostPath": "/no/libcuda.so", "containerPath": "/x"}]})
    assert node.look("NVIDIA's CDI spec").state is State.OK


@pytest.mark.parametrize("made", [True, False], ids=["it is there", "it would have to be made"])
def test_a_cdi_directory_that_cannot_be_written_to_is_named(node: DoctorNode, monkeypatch: pytest.MonkeyPatch, made: bool) -> None:
    """As where it is mounted read-only; root may write everywhere else, so the kernel's answer is stood in for."""
    above = node.asked.settings.cdi_dir
    node.set(cdi_dir=above if made else above / "cdi")
    refuse_writing(above, monkeypatch)
    found = node.look("CDI directory")
    assert (found.state, "cannot be written to" in found.says) == (State.BROKEN, True)
