"""A real node: containerd and kubelet on the control plane of a test, with containers that run.

The fixture `node` gives one to the tests of a file; `live_nodes` and KWOK remain what most tests use, since a real one takes ten seconds to start.
Each lives in an enclosure (`tests.e2e.enclosure`) and leaves nothing behind. A test starts and stops its programs (`node.kubelet.program`,
`node.containerd.program`), reboots it, runs agents and device plugins on it, and reads what its containers printed.

GPUs are stood in for: `tests.stand_in` plays nvidia-smi, and `make_devices` makes character devices that behave as /dev/null does.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from tests.e2e import cgroups
from tests.e2e.api_server import JsonObject
from tests.e2e.containerd import Containerd
from tests.e2e.control_plane import NODE_NAME, ControlPlane
from tests.e2e.enclosure import Enclosure, InsideProgram
from tests.e2e.kubelet import Kubelet
from tests.e2e.node_needs import from_distribution
from tests.e2e.program import wait_until

PREFIX = "linkwise-node-"
_NULL = os.makedev(1, 3)  # the device that /dev/null is


class RealNode:
    """One node; ``programs`` are those of the control plane and of `tests.e2e.build.NODE`, ``fields`` go into kubelet's configuration."""

    def __init__(self, plane: ControlPlane, programs: Mapping[str, Path], fields: Mapping[str, Any] | None = None) -> None:
        tools = from_distribution()
        self.name = NODE_NAME
        self.plane = plane
        self.directory, self._lock = new_folder()
        self.enclosure = Enclosure(self.directory, tools)
        self.containerd = Containerd(self.enclosure, programs, tools, plane.directory)
        identity = {"kubeconfig": plane.kubeconfig("kubelet"), "hostname-override": self.name}
        self.kubelet = Kubelet(self.enclosure, programs["kubelet"], identity, plane.directory, fields or {})
        self._programs: list[InsideProgram] = []

    # Starting and stopping

    def start(self) -> "RealNode":
        """Start it for the first time; it takes pods when this returns, about ten seconds later."""
        self.containerd.write()
        self.kubelet.write(self.directory.name)
        self._boot()
        self.containerd.import_image()
        self.kubelet.start()
        return self.wait_ready()

    def running(self) -> bool:
        """Whether it was started and not stopped."""
        return self.enclosure.running()

    def wait_ready(self, timeout: float = 60) -> "RealNode":
        """Wait until kubelet says that it is ready, and take away the taints that a controller would: pods may come, unless kubelet was told to register with others."""
        started = self.kubelet.started_at
        wait_until(lambda: self._ready_since(started), timeout, f"{self.name} is ready")
        kept = [taint for taint in self.taints() if not taint["key"].startswith("node.kubernetes.io/")]
        self.plane.api().patch("Node", self.name, {"spec": {"taints": kept or None}})
        return self

    def taints(self) -> list[JsonObject]:
        """Return the taints of its Node."""
        found: list[JsonObject] = self.plane.api().get("Node", self.name)["spec"].get("taints", [])
        return found

    def stop(self) -> None:
        """End everything that runs on it, remove what it had, and its Node; once."""
        if not self.directory.exists():
            return
        self.enclosure.kill()
        self._reap()
        _sweep(self.directory)
        self._lock.close()
        self.plane.api().delete("Node", self.name)

    def restart_kubelet(self, before_kubelet: Callable[[], object] = lambda: None) -> None:
        """Let kubelet end and start again, as an upgrade does; containers run on. ``before_kubelet`` is called between the two."""
        self.kubelet.program.stop()
        before_kubelet()
        self.kubelet.start()
        self.wait_ready()

    def restart_containerd(self) -> None:
        """Let containerd end and start again; containers run on, their shims hold them."""
        self.containerd.program.stop()
        self.containerd.start()

    def reboot(self, before_kubelet: Callable[[], object] = lambda: None) -> None:
        """Cut the power and start again: processes, mounts and /run are gone, the disk is as it was. Programs of `run` stay ended.

        ``before_kubelet`` starts what is to be there when kubelet starts.
        """
        self.enclosure.kill()
        self._reap()
        cgroups.remove(self.directory.name)
        shutil.rmtree(self.enclosure.run)
        self._boot()
        before_kubelet()
        self.kubelet.start()
        self.wait_ready()

    def tails(self, lines: int = 15) -> str:
        """Return the last lines of every program's log."""
        return "\n".join(program.tail(lines) for program in (self.containerd.program, self.kubelet.program, *self._programs))

    def _boot(self) -> None:
        cgroups.make(self.directory.name)
        self.enclosure.start()
        self.cdi.mkdir(exist_ok=True)
        self.kubelet.static_pods.mkdir(exist_ok=True)
        self.containerd.start()

    def _reap(self) -> None:
        """Take note that the programs have ended with the enclosure."""
        for program in (self.kubelet.program, self.containerd.program, *self._programs):
            program.kill()

    # What is on it

    @property
    def cdi(self) -> Path:
        """The folder of CDI specs, /var/run/cdi inside; it does not outlive a reboot."""
        return self.enclosure.run / "cdi"

    def run(self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> InsideProgram:
        """Start a program on it, as a DaemonSet would: it sees kubelet's sockets, /run and the processes of this node."""
        taken = sum(1 for path in self.plane.directory.glob(f"{name}-*.log"))
        program = self.enclosure.program(name, command, self.plane.directory / f"{name}-{taken + 1}.log", environment)
        self._programs.append(program)
        program.start()
        return program

    @property
    def devices(self) -> Path:
        """The folder of the devices that `make_devices` makes, for a CDI spec's `hostPath`."""
        return self.directory / "dev"

    def make_devices(self, *names: str) -> None:
        """Make character devices that behave as /dev/null does."""
        self.devices.mkdir(exist_ok=True)
        for name in names:
            os.mknod(self.devices / name, stat.S_IFCHR | 0o666, _NULL)

    def _ready_since(self, moment: datetime) -> bool:
        """Whether kubelet has said so since then: what its predecessor said stands for a while."""
        found = self.plane.api().find("Node", self.name) or {}
        ready = [each for each in found.get("status", {}).get("conditions", ()) if each["type"] == "Ready" and each["status"] == "True"]
        return any(datetime.fromisoformat(each["lastHeartbeatTime"]) >= moment for each in ready)

    def allocatable(self, resource: str) -> int:
        """Return how many of a resource kubelet offers."""
        return int(self.plane.api().get("Node", self.name)["status"]["allocatable"].get(resource, 0))

    # Pods

    def wait_phase(self, pod: str, *phases: str, namespace: str = "default", timeout: float = 30) -> JsonObject:
        """Return the pod once it is in one of these phases; a failure tells its containers' states."""
        api = self.plane.api()

        def reached() -> bool:
            return api.get("Pod", pod, namespace)["status"].get("phase") in phases

        try:
            wait_until(reached, timeout)
        except AssertionError:
            raise AssertionError(
                f"pod {namespace}/{pod} not {' or '.join(phases)} within {timeout:g} s: {api.get('Pod', pod, namespace)['status']}"
            ) from None
        return api.get("Pod", pod, namespace)

    def log(self, pod: str, container: str = "main", *, attempt: int | None = None, namespace: str = "default") -> list[str]:
        """Return the lines that a container wrote: in its last attempt, or in the one of a number (0 is the first); none where there was none.

        The logs of a deleted pod stay a while; they are not taken for those of its successor of the same name.
        """
        uid = self.plane.api().get("Pod", pod, namespace)["metadata"]["uid"]
        found = sorted((self.enclosure.log / "pods" / f"{namespace}_{pod}_{uid}" / container).glob("*.log"), key=lambda path: int(path.stem))
        files = found[-1:] if attempt is None else [path for path in found if int(path.stem) == attempt]
        # CRI's format: time, stream, F or P, text.
        return [line.split(" ", 3)[3] for path in files[-1:] for line in path.read_text(encoding="utf-8").splitlines()]

    def clear(self) -> None:
        """Delete all pods as a user does, and wait until no container runs any more and kubelet has forgotten them.

        Not by force: a pod that is deleted before its containers have ended holds its GPUs until the agent has looked again.
        """
        api = self.plane.api()
        for pod in api.items("Pod"):
            api.delete("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"], grace_s=1)
        wait_until(lambda: not api.items("Pod"), 60, "no pod is left")
        wait_until(lambda: not cgroups.processes(f"{self.directory.name}/kubepods"), 60, "no container is left")
        # Their folders go a little later, when kubelet cleans up (every 2 s); nobody waits for that.
        wait_until(lambda: not self.kubelet.pods(), 60, "kubelet has forgotten all pods")


@contextmanager
def real_node(plane: ControlPlane, programs: Mapping[str, Path], fields: Mapping[str, Any] | None = None) -> Iterator[RealNode]:
    """Start a node and end it with the block."""
    sweep_abandoned()
    node = RealNode(plane, programs, fields)
    try:
        yield node.start()
    finally:
        node.stop()


def new_folder() -> tuple[Path, TextIO]:
    """Return a folder of a node, and the file whose lock says that the node lives, as long as it is open."""
    # Short: the path of a unix socket has at most 107 characters, and those of pytest's folders are long.
    unlocked = Path(tempfile.mkdtemp(prefix=f"new-{PREFIX}"))
    lock = (unlocked / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    # By its right name only now, so that nobody takes it for an abandoned one.
    return unlocked.rename(unlocked.with_name(unlocked.name.removeprefix("new-"))), lock


def sweep_abandoned() -> None:
    """Remove what nodes of killed test runs have left: their processes ended with them, files and cgroups did not."""
    for directory in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        # A lock that is held belongs to a node that lives; a folder without one is just being made, or removed.
        with contextlib.suppress(BlockingIOError, FileNotFoundError), (directory / "lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _sweep(directory)


def _sweep(directory: Path) -> None:
    cgroups.remove(directory.name)
    shutil.rmtree(directory)
