"""Records what a real kubelet says and asks, for tests that run without one: `python -m tests.e2e.record_kubelet` writes tests/topology/agent/kubelet.

Each situation is two files: NAME.json, with the calls that the plain device plugin got (for PreStartContainer with PodResources and the checkpoint as they
were then), and with the pods as the API server had them; NAME.checkpoint, the bytes of kubelet_internal_checkpoint when the situation had settled. Run it
again for a new version of Kubernetes, and read the difference.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.e2e import build
from tests.e2e.control_plane import ControlPlane
from tests.e2e.image import IMAGE
from tests.e2e.node import RealNode, real_node
from tests.e2e.plain_plugin import PlainPlugin
from tests.e2e.program import wait_until

TARGET = Path(__file__).parents[1] / "topology" / "agent" / "kubelet"
RESOURCE = "nvidia.com/gpu"

Container = dict[str, Any]
JsonObject = dict[str, Any]


def container(name: str, gpus: int, command: str = "sleep 1000", **fields: Any) -> Container:
    limits = {"resources": {"limits": {RESOURCE: str(gpus)}}} if gpus else {}
    return {"name": name, "image": IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", command], **limits, **fields}


def pod(name: str, *containers: Container, init: tuple[Container, ...] = (), restart: str = "Never") -> JsonObject:
    spec = {
        "nodeName": "real-node",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "restartPolicy": restart,
        "initContainers": list(init),
        "containers": list(containers),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


class Recorder:
    """One node with the plain plugin; each situation starts with no pod and an empty record."""

    def __init__(self, node: RealNode) -> None:
        self.node = node
        self.api = node.plane.api()
        self.plugin = PlainPlugin(node, "--pre-start", "--preferred", resource=RESOURCE).wait_allocatable()

    def note(self, what: str) -> None:
        with self.plugin.record.open("a", encoding="utf-8") as record:
            record.write(json.dumps({"at": round(time.time(), 4), "did": what}) + "\n")

    def make(self, *pods: JsonObject) -> None:
        for each in pods:
            self.note(f"created pod {each['metadata']['name']}")
            self.api.create(each)

    def running(self, *names: str) -> None:
        for name in names:
            self.node.wait_phase(name, "Running", "Succeeded")

    def situation(self, play: Callable[["Recorder"], None]) -> None:
        self.node.clear()
        self.plugin.forget()
        play(self)
        name = play.__name__.replace("_", "-")
        TARGET.mkdir(parents=True, exist_ok=True)
        (TARGET / f"{name}.checkpoint").write_bytes(self.node.kubelet.checkpoint.read_bytes())
        pods = [{key: each[key] for key in ("metadata", "spec", "status")} for each in self.api.items("Pod")]
        for each in pods:
            each["metadata"].pop("managedFields", None)
        text = json.dumps({"calls": self.plugin.calls(), "pods": pods}, indent=1)
        (TARGET / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        sys.stdout.write(f"{name}: {len(self.plugin.calls())} lines, {(play.__doc__ or '').strip()}\n")


def single_container(r: Recorder) -> None:
    """One container with two ids."""
    r.make(pod("single", container("main", 2)))
    r.running("single")


def two_containers(r: Recorder) -> None:
    """Two containers with two and one."""
    r.make(pod("two", container("first", 2), container("second", 1)))
    r.running("two")


def init_asks_less(r: Recorder) -> None:
    """An init container with one id, then an app container with two: must include the one."""
    r.make(pod("grows", container("main", 2), init=(container("init", 1, "sleep 1"),)))
    r.running("grows")


def init_asks_more(r: Recorder) -> None:
    """An init container with three, then an app container with one of them."""
    r.make(pod("shrinks", container("main", 1), init=(container("init", 3, "sleep 1"),)))
    r.running("shrinks")


def init_alone_asks(r: Recorder) -> None:
    """Only the init container asks for GPUs."""
    r.make(pod("init-only", container("main", 0), init=(container("init", 2, "sleep 1"),)))
    r.running("init-only")
    r.plugin.wait_calls("PreStartContainer", 1)
    r.make(pod("beside", container("main", 7)))
    time.sleep(4)


def two_inits(r: Recorder) -> None:
    """Two init containers one after the other, two app containers."""
    inits = (container("init-a", 2, "sleep 1"), container("init-b", 2, "sleep 1"))
    r.make(pod("two-inits", container("first", 1), container("second", 1), init=inits))
    r.running("two-inits")


def sidecar(r: Recorder) -> None:
    """A restartable init container with one id, an ordinary one with two, an app container with two."""
    inits = (container("side", 1, restartPolicy="Always"), container("init", 2, "sleep 1"))
    r.make(pod("with-sidecar", container("main", 2), init=inits))
    r.running("with-sidecar")


def static_pod(r: Recorder) -> None:
    """A static pod, which the API server knows under another UID."""
    manifest = pod("static", container("main", 2))
    del manifest["spec"]["nodeName"]
    path = r.node.kubelet.static_pods / "static.yaml"
    path.write_text(yaml.safe_dump(manifest))
    wait_until(lambda: (r.api.find("Pod", "static-real-node") or {}).get("status", {}).get("phase") == "Running", 30, "static pod runs")
    path.unlink()
    time.sleep(1)


def three_at_once(r: Recorder) -> None:
    """Three pods with two ids each, created together."""
    r.make(*(pod(name, container("main", 2)) for name in ("a", "b", "c")))
    r.running("a", "b", "c")


def restarts_of_a_container(r: Recorder) -> None:
    """A container that ends and is started again: back-off of 10 s, 20 s."""
    r.make(pod("crashes", container("main", 2, "sleep 0.2; exit 1"), restart="Always"))
    r.plugin.wait_calls("PreStartContainer", 3, 60)


def refused_at_prestart(r: Recorder) -> None:
    """PreStartContainer fails twice, then succeeds."""
    r.plugin.refusal.write_text("GPU-1 is still held by default/other")
    r.make(pod("refused", container("main", 2)))
    r.plugin.wait_calls("PreStartContainer", 2, 60)
    r.note("pod meanwhile: " + json.dumps(r.api.get("Pod", "refused")["status"]["containerStatuses"][0]["state"]))
    r.note("events: " + json.dumps([[e["reason"], e["message"]] for e in r.api.events("refused")]))
    r.plugin.refusal.unlink()
    r.plugin.wait_calls("PreStartContainer", 3, 60)
    r.running("refused")


def kubelet_restarts(r: Recorder) -> None:
    """Under a running pod kubelet restarts a running pod; the plugin registers a moment later; another pod comes."""
    r.make(pod("runs", container("main", 2)))
    r.running("runs")
    r.note("kubelet stops")
    r.node.kubelet.program.stop()
    r.note("kubelet starts")
    r.node.kubelet.start()
    r.node.wait_ready()
    r.note("node is ready")
    wait_until(lambda: r.node.allocatable(RESOURCE) == 8, 20)
    r.note("devices are allocatable")
    r.make(pod("after", container("main", 2)))
    r.running("after")
    r.note("statuses: " + json.dumps({each["metadata"]["name"]: each["status"]["phase"] for each in r.api.items("Pod")}))


def kubelet_restarts_during_back_off(r: Recorder) -> None:
    """While the only container waits in back-off kubelet restarts: the pod is admitted anew."""
    r.make(pod("backs-off", container("main", 2, "sleep 0.2; exit 1"), restart="Always"))
    r.plugin.wait_calls("PreStartContainer", 2, 60)
    wait_until(lambda: "waiting" in r.api.get("Pod", "backs-off")["status"]["containerStatuses"][0]["state"], 20)
    r.note("kubelet stops")
    r.node.kubelet.program.stop()
    r.note("kubelet starts")
    r.node.kubelet.start()
    r.node.wait_ready()
    time.sleep(8)
    r.note("status: " + json.dumps(r.api.get("Pod", "backs-off")["status"]))


def kubelet_restarts_during_back_off_plugin_late(r: Recorder) -> None:
    """The same, but the plugin comes 5 s after kubelet; a second pod runs all the time."""
    r.make(pod("backs-off", container("main", 2, "sleep 0.2; exit 1"), restart="Always"), pod("runs", container("main", 2), restart="Always"))
    r.plugin.wait_calls("PreStartContainer", 3, 60)
    wait_until(lambda: "waiting" in r.api.get("Pod", "backs-off")["status"]["containerStatuses"][0]["state"], 20)
    r.plugin.program.stop()
    r.note("plugin and kubelet stop")
    r.node.restart_kubelet()
    r.note("node is ready")
    time.sleep(5)
    r.plugin.start()
    r.plugin.wait_allocatable()
    r.node.wait_phase("backs-off", "Failed")
    r.note("backs-off: " + json.dumps(r.api.get("Pod", "backs-off")["status"]))
    r.note("runs: " + json.dumps(r.api.get("Pod", "runs")["status"]))


def plugin_restarts(r: Recorder) -> None:
    """The plugin ends and comes back under a running pod; a pod is created meanwhile."""
    r.make(pod("runs", container("main", 2)))
    r.running("runs")
    r.note("plugin stops")
    r.plugin.stop()
    r.note("nothing is allocatable")
    r.make(pod("meanwhile", container("main", 2)))
    r.node.wait_phase("meanwhile", "Failed")
    r.note("meanwhile: " + json.dumps(r.api.get("Pod", "meanwhile")["status"]))
    r.plugin.start()
    r.plugin.wait_allocatable()
    r.note("devices are allocatable")
    r.make(pod("after", container("main", 2)))
    r.running("runs", "after")


def reboot_plugin_late(r: Recorder) -> None:
    """The node reboots; the plugin comes 5 s after kubelet."""
    r.make(pod("before", container("main", 2), restart="Always"), pod("no-gpu", container("main", 0), restart="Always"))
    r.running("before", "no-gpu")
    r.note("reboot")
    r.node.reboot()
    r.note("node is ready")
    time.sleep(5)
    r.note("checkpoint before the plugin: " + r.node.kubelet.checkpoint.read_text())
    r.note("status before the plugin: " + json.dumps(r.api.get("Pod", "before")["status"]))
    r.plugin.start()
    r.plugin.wait_allocatable()
    for seconds in range(30):
        status = r.api.get("Pod", "before")["status"]
        if status["phase"] == "Failed":
            r.note(f"Failed {seconds} s after the plugin")
            break
        time.sleep(1)
    r.note("status at the end: " + json.dumps(status))
    r.note("no-gpu: " + json.dumps(r.api.get("Pod", "no-gpu")["status"]["phase"]))


def reboot_plugin_early(r: Recorder) -> None:
    """The node reboots; the plugin is there before kubelet, and registers as soon as it can."""
    r.make(pod("before", container("main", 2), restart="Always"))
    r.running("before")
    r.note("reboot")
    r.node.reboot(before_kubelet=r.plugin.start)
    r.note("node is ready")
    time.sleep(10)
    r.note("status: " + json.dumps(r.api.get("Pod", "before")["status"]))


def same_name_again(r: Recorder) -> None:
    """A pod is deleted and one of the same name created at once, as a StatefulSet does."""
    r.make(pod("web-0", container("main", 2)), pod("keeps", container("main", 4)))
    r.running("web-0", "keeps")
    r.note("deletes web-0")
    r.api.delete("Pod", "web-0", "default")
    wait_until(lambda: r.api.find("Pod", "web-0") is None, 20)
    r.make(pod("web-0", container("main", 2)))
    r.running("web-0")
    r.plugin.wait_calls("PreStartContainer", 3)


def ids_come_back(r: Recorder) -> None:
    """A pod that takes 2 s to end holds all ids; one that is forced upon the node meanwhile."""
    slow = container("main", 8, "trap 'sleep 2; exit 0' TERM; while true; do sleep 0.1; done")
    first = pod("slow", slow)
    first["spec"]["terminationGracePeriodSeconds"] = 10
    r.make(first)
    r.running("slow")
    time.sleep(0.5)
    r.note("deletes slow")
    r.api.delete("Pod", "slow", "default")
    r.make(pod("too-early", container("main", 2)))
    wait_until(lambda: r.api.find("Pod", "slow") is None, 20)
    r.note("slow is gone from the API server")
    r.note("too-early: " + json.dumps(r.api.get("Pod", "too-early")["status"]))
    r.make(pod("next", container("main", 8)))
    r.running("next")


def ended_pod(r: Recorder) -> None:
    """A pod that has succeeded is still there; another takes all ids."""
    r.make(pod("ends", container("main", 8, "sleep 0.2")))
    r.node.wait_phase("ends", "Succeeded")
    r.note("ends has succeeded")
    r.make(pod("takes-all", container("main", 8)))
    r.running("takes-all")


SITUATIONS = (
    single_container,
    two_containers,
    init_asks_less,
    init_asks_more,
    init_alone_asks,
    two_inits,
    sidecar,
    static_pod,
    three_at_once,
    refused_at_prestart,
    same_name_again,
    ids_come_back,
    ended_pod,
    kubelet_restarts,
    restarts_of_a_container,
    kubelet_restarts_during_back_off,
    kubelet_restarts_during_back_off_plugin_late,
    plugin_restarts,
    reboot_plugin_early,
    reboot_plugin_late,
)


def main() -> None:
    """Record all situations, or those named."""
    programs = {**build.programs(), **build.programs(modules=build.NODE)}
    plane = ControlPlane(programs, Path(tempfile.mkdtemp()) / "control-plane").start()
    try:
        with real_node(plane, programs) as node:
            recorder = Recorder(node)
            for play in SITUATIONS:
                if not sys.argv[1:] or play.__name__ in sys.argv[1:]:
                    recorder.situation(play)
    finally:
        plane.stop()


if __name__ == "__main__":
    main()
