"""A real control plane with N machines with GPUs on it: made, half filled, and brought back to that state after each round.

etcd, kube-apiserver and KWOK come from the harness of the end-to-end tests (`tests.e2e`), which builds them with Go the first time; the machines are those of
`bench.snapshot`. Two things differ from an installation: no agents run (the soak plays them), and kubelets neither, KWOK plays those. KWOK renews no Leases: nobody watches
them here, and 5,000 nodes' would be 125 writes a second beside what is measured.
"""

import contextlib
import random
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson

from bench import snapshot
from bench.end_to_end.door import MERGE, Call, Door, RefusedError
from tests.builders import pod
from tests.e2e import build
from tests.e2e.calls import answers_ok
from tests.e2e.checks import allocation_of
from tests.e2e.control_plane import STAGES, ControlPlane
from tests.e2e.objects import node_object, pod_object
from tests.e2e.program import Program, free_port, wait_until

JsonObject = dict[str, Any]

MANIFESTS: Final = Path(__file__).parents[2] / "manifests"
FILLERS: Final = "load"  # namespace of the pods that fill the cluster, as `bench.snapshot` names it
ARRIVING: Final = "default"  # namespace of the pods that a round creates
NODES: Final = "/api/v1/nodes"
TOPOLOGIES: Final = "/apis/linkwise.dev/v1alpha1/gputopologies"
SIZES: Final = (1, 1, 1, 1, 2)  # GPUs of a pod, 1.2 in the mean: 1,000 pods are two thirds of what 500 half-full nodes have left
GPU_MEMORY: Final = "linkwise.dev/gpu-memory"
_GONE_S: Final = 120.0


def pods_path(namespace: str) -> str:
    """Return the collection of a namespace's pods."""
    return f"/api/v1/namespaces/{namespace}/pods"


class LoadedCluster:
    """The control plane of a bench with its nodes; `door` writes and reads as administrator."""

    def __init__(self, plane: ControlPlane, nodes: int, seed: int) -> None:
        self.plane = plane
        self.door = Door(plane)
        self.nodes = nodes
        self.seed = seed
        self.kwok: Program
        objects = snapshot.make(nodes, 0.0, seed)["items"]
        self.topologies: list[JsonObject] = [item for item in objects if item["kind"] == "GPUTopology"]
        self._batches = 0
        self._fillers = fillers(self.topologies, random.Random(seed))

    @property
    def names(self) -> list[str]:
        """The names of the nodes."""
        return [topology["metadata"]["name"] for topology in self.topologies]

    def batch(self) -> str:
        """Return a prefix for names that no pod has had: KWOK deletes by name, and may come so late that it would meet a namesake."""
        self._batches += 1
        return f"b{self._batches}"

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return sum(len(topology["spec"]["gpus"]) for topology in self.topologies)

    def free_gib(self) -> dict[str, int]:
        """Return the GiB of GPUs that nobody holds while the cluster is half full, by node."""
        held = {gpu["uuid"] for item in self._fillers for gpus in allocation_of(item)["containers"].values() for gpu in gpus}
        return {
            topology["metadata"]["name"]: sum(gpu["memoryMiB"] // 1024 for gpu in topology["spec"]["gpus"] if gpu["uuid"] not in held)
            for topology in self.topologies
        }

    def install(self) -> None:
        """Apply what the manifests bring beside the programs, then create nodes and topologies, and start KWOK."""
        api = self.plane.api()
        for name in ("crd.yaml", "rbac-extender.yaml", "rbac-agent.yaml"):
            api.apply_file(MANIFESTS / name)
        self.plane.kubectl("wait", "--for=condition=Established", "--timeout=20s", "crd/gputopologies.linkwise.dev")
        self.plane.add_namespace(FILLERS)
        self.door.each(Call("POST", NODES, orjson.dumps(node_of(topology))) for topology in self.topologies)
        # not-ready, which admission gives every new node
        untainted = orjson.dumps({"spec": {"taints": None}})
        self.door.each(Call("PATCH", f"{NODES}/{name}", untainted, MERGE) for name in self.names)
        self.publish(self.topologies)
        self.kwok = self._start_kwok()

    def publish(self, topologies: Iterable[JsonObject]) -> None:
        """Create GPUTopologies with their status, as observed now."""
        found = list(topologies)
        now = datetime.now(UTC).isoformat()
        self.door.each(Call("POST", TOPOLOGIES, orjson.dumps({**item, "status": {}})) for item in found)
        self.door.each(
            Call("PATCH", f"{TOPOLOGIES}/{item['metadata']['name']}/status", orjson.dumps({"status": {**item["status"], "observedAt": now}}), MERGE)
            for item in found
        )

    def fill(self) -> None:
        """Create bound pods that hold half of the GPUs; before the policy that would refuse them is there."""
        self.door.each(Call("POST", pods_path(FILLERS), orjson.dumps(item)) for item in self._fillers)
        wait_until(
            lambda: not self.door.items(pods_path(FILLERS), fieldSelector="status.phase=Pending", limit="1"), 300, "KWOK runs the pods that fill"
        )

    def allow_only_linkwise(self) -> None:
        """Let the API server guard the allocation, as the manifests do; returns once it does."""
        self.plane.api().apply_file(MANIFESTS / "admission-policy.yaml")
        wait_until(lambda: not self._takes_forgeries(), 30, "the policy is in force")

    def lift_policy(self) -> None:
        """Take the policies away: a cluster without Linkwise has none. Returns once nobody looks at them any more."""
        for kind in ("ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"):
            self.plane.api().delete_all(kind)
        wait_until(self._takes_forgeries, 30, "the policy is lifted")

    def _takes_forgeries(self) -> bool:
        """Tell whether anybody may create a pod with an allocation."""
        filler = self._fillers[0]
        forged = {**filler, "metadata": {**filler["metadata"], "name": "forged"}}
        try:
            self.door.send(Call("POST", f"{pods_path(FILLERS)}?dryRun=All", orjson.dumps(forged)))
        except RefusedError as error:
            if "linkwise-allocation" not in str(error):
                raise
            return False
        return True

    def clear(self, namespace: str = ARRIVING) -> None:
        """Delete the pods of a round and wait until none is left."""
        path = pods_path(namespace)

        def none_left() -> bool:
            self.door.send(Call("DELETE", f"{path}?gracePeriodSeconds=0"))
            return not self.door.items(path, limit="1")

        wait_until(none_left, _GONE_S, "no pod of the round is left")
        self.door.send(Call("DELETE", f"/api/v1/namespaces/{namespace}/events"))
        self.door.send(Call("DELETE", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"))

    def empty(self) -> None:
        """Delete the pods that fill, too."""
        self.clear(FILLERS)

    def _start_kwok(self) -> Program:
        port = free_port()
        flags = (
            *("--kubeconfig", self.plane.kubeconfig(), "--config", STAGES, "--manage-all-nodes=true", "-v=ERROR"),
            *(f"--server-address=127.0.0.1:{port}", "--node-lease-duration-seconds=0"),
        )
        program = self.plane.run("kwok", (self.plane.programs["kwok"], *flags))
        return program.wait_ready(lambda: answers_ok(f"http://127.0.0.1:{port}/healthz"), 120)

    def pids(self) -> dict[str, int]:
        """Return the processes of the control plane by name; kube-scheduler and an extender are a round's own."""
        return {"etcd": self.plane.etcd.pid, "kube-apiserver": self.plane.kube_apiserver.pid, "kwok": self.kwok.pid}


def fillers(topologies: Iterable[JsonObject], rng: random.Random) -> list[JsonObject]:
    """Return bound pods that hold about half of the GPUs, of the sizes that arrive: a cluster in its stride, whose target workload does not move in the middle of a round."""
    found = []
    for topology in topologies:
        node, gpus = topology["metadata"]["name"], topology["spec"]["gpus"]
        taken = [gpu["uuid"] for gpu in rng.sample(gpus, len(gpus)) if rng.random() < 0.5]
        while taken:
            size = min(len(taken), rng.choice(SIZES))
            own, taken = taken[:size], taken[size:]
            found.append(pod_object(pod(f"{node.partition('.')[0]}-{len(taken)}", FILLERS).holding(node, *own), "default-scheduler"))
    return found


def node_of(topology: JsonObject) -> JsonObject:
    """Return the Node of a topology: ready, its GPUs counted whole and as memory."""
    gpus = topology["spec"]["gpus"]
    memory = sum(gpu["memoryMiB"] // 1024 for gpu in gpus)
    return node_object(topology["metadata"]["name"], len(gpus), resources={GPU_MEMORY: str(memory), "pods": "1000"})


@contextmanager
def running(nodes: int, seed: int) -> Iterator[LoadedCluster]:
    """Run a cluster of that many nodes, empty, until the block ends."""
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(build.programs(), Path(folder, "plane")).start()
        try:
            cluster = LoadedCluster(plane, nodes, seed)
            with contextlib.closing(cluster.door):
                cluster.install()
                yield cluster
        finally:
            plane.stop()
