"""The real node itself: kubelet and containerd with containers that run. A test below that fails means that no test of the hand-off can be believed.

What is proven of kubelet with the plain device plugin is what the hand-off rests on: at PreStartContainer it is known whose the ids are, and a CDI spec that
is written then reaches the container.
"""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import pod
from tests.e2e import cgroups, node_needs
from tests.e2e.node import PREFIX, RealNode, sweep_abandoned
from tests.e2e.node_pods import END, on_node, wait_printed
from tests.e2e.plain_plugin import RESOURCE, PlainPlugin
from tests.e2e.program import wait_until

REPOSITORY = Path(__file__).parents[2]
GPUS = tuple(f"gpu{n}" for n in range(8))


@pytest.fixture
def on(node: RealNode) -> Iterator[RealNode]:
    """Give the node to one test, and take its pods away afterwards."""
    yield node
    if node.running():
        node.clear()


@pytest.fixture
def plugin(on: RealNode) -> Iterator[PlainPlugin]:
    """Run a plugin that looks up whose its ids are before each start of a container, with a device for each id."""
    if not on.devices.exists():
        on.make_devices(*GPUS)
    plugin = PlainPlugin(on, "--pre-start").wait_allocatable()
    plugin.forget()
    yield plugin
    plugin.stop()


def start(node: RealNode, *names: str, gpus: int = 2, **spec: object) -> None:
    """Create pods of the plain resource on the node, together."""
    for name in names:
        node.plane.api().create(on_node(pod(name).gpus(gpus, resource=RESOURCE).bound_to(node.name), **spec))


def states(node: RealNode) -> dict[str, tuple[str, int, str]]:
    """Return phase, restarts and container id of every pod's only container, by pod."""
    found = {}
    for each in node.plane.api().items("Pod"):
        (status,) = each["status"].get("containerStatuses") or [{"restartCount": 0}]
        found[each["metadata"]["name"]] = each["status"]["phase"], status["restartCount"], status.get("containerID", "")
    return found


def test_a_pod_runs_to_its_end_and_its_log_is_read(on: RealNode) -> None:
    """The environment of the pod's containers, init container first, is in their logs."""
    item = on_node(pod("job").plain("main").init(0).bound_to(on.name), then=END)
    item["spec"]["initContainers"][0].pop("resources")
    item["spec"]["containers"][0]["env"].append({"name": "WHO", "value": "the test"})
    on.plane.api().create(item)
    on.wait_phase("job", "Succeeded")
    assert wait_printed(on, "job").environment["WHO"] == "the test"
    assert "null" in wait_printed(on, "job", "init").devices


def test_what_a_plugin_offers_is_allocatable_while_it_is_there(on: RealNode, plugin: PlainPlugin) -> None:
    """A plugin that ends takes its devices along, and one that comes back brings them."""
    assert on.allocatable(RESOURCE) == len(GPUS)
    plugin.stop()
    plugin.start()
    plugin.wait_allocatable()


def test_before_a_container_starts_kubelet_names_the_pod_of_its_ids_and_a_spec_written_then_reaches_it(on: RealNode, plugin: PlainPlugin) -> None:
    """Three pods of two devices, created together: each container has the environment and the device nodes of the ids that are its own."""
    start(on, "a", "b", "c")
    got = {name: wait_printed(on, name) for name in ("a", "b", "c")}
    calls = plugin.calls("PreStartContainer")
    asked = {call["holders"][0]: set(call["request"]["devices_ids"]) for call in calls}
    assert [len(call["holders"]) for call in calls] == [1, 1, 1]
    assert set(asked) == {"default/a/main", "default/b/main", "default/c/main"}
    assert len(set().union(*asked.values())) == 6, "no id is given twice"
    for name, found in got.items():
        ids = asked[f"default/{name}/main"]
        assert found.environment["PLAIN_POD"] == f"default/{name}/main"
        assert set(found.environment["PLAIN_GPUS"].split(",")) == ids
        assert found.devices & set(GPUS) == ids


def test_kubelet_remembers_by_uid_which_ids_a_container_has(on: RealNode, plugin: PlainPlugin) -> None:
    """The checkpoint of the moment before the start names the pod's UID, its container and its ids."""
    start(on, "a")
    (call,) = plugin.wait_calls("PreStartContainer", 1)
    (entry,) = (one for one in call["checkpoint"]["Data"]["PodDeviceEntries"] if one["PodUID"] == on.plane.api().get("Pod", "a")["metadata"]["uid"])
    assert entry["ContainerName"] == "main"
    assert {one for ids in entry["DeviceIDs"].values() for one in ids} == set(call["request"]["devices_ids"])


def test_containers_outlive_a_restart_of_kubelet_and_the_plugin_registers_again(on: RealNode, plugin: PlainPlugin) -> None:
    """The same container runs on, its devices are taken, and a new pod gets others."""
    start(on, "a")
    before = wait_printed(on, "a").environment["PLAIN_GPUS"]
    on.wait_phase("a", "Running")
    running = states(on)["a"]
    on.restart_kubelet()
    plugin.wait_calls("Register", 1)
    plugin.wait_allocatable()
    start(on, "b", gpus=6)
    assert not set(wait_printed(on, "b").environment["PLAIN_GPUS"].split(",")) & set(before.split(","))
    assert states(on)["a"] == running


def test_containers_outlive_a_restart_of_containerd(on: RealNode, plugin: PlainPlugin) -> None:
    """The same container runs on, and a new pod starts."""
    start(on, "a")
    on.wait_phase("a", "Running")
    running = states(on)["a"]
    on.restart_containerd()
    start(on, "b")
    wait_printed(on, "b")
    assert states(on)["a"] == running


@pytest.mark.parametrize("which", ["kubelet", "containerd"])
def test_a_paused_program_is_waited_for(on: RealNode, which: str) -> None:
    """A pod that is created while kubelet or containerd stands still starts when it goes on."""
    program = getattr(on, which).program
    program.pause()
    try:
        on.plane.api().create(on_node(pod("late").plain("main").bound_to(on.name)))
        assert not on.log("late")
    finally:
        program.resume()
    wait_printed(on, "late")


def test_after_a_reboot_a_pod_starts_again_with_the_ids_that_it_had(on: RealNode, plugin: PlainPlugin) -> None:
    """Processes and CDI specs are gone, the disk is not; with its plugin there in time kubelet starts the container anew, without asking for devices."""
    start(on, "a", restartPolicy="Always")
    before = wait_printed(on, "a").environment["PLAIN_GPUS"]
    on.wait_phase("a", "Running")
    assert list(on.cdi.iterdir())
    plugin.forget()
    on.reboot(before_kubelet=plugin.start)
    again = wait_printed(on, "a", attempt=1)
    assert again.environment["PLAIN_GPUS"] == before
    assert not plugin.calls("Allocate")


def test_a_container_that_is_refused_waits_with_the_plugin_s_sentence(on: RealNode, plugin: PlainPlugin) -> None:
    """Nothing starts while PreStartContainer fails, and kubelet says why; it tries again by itself."""
    plugin.refusal.write_text("gpu0 is still held by default/other")
    start(on, "a")
    plugin.wait_calls("PreStartContainer", 2)
    wait_until(
        lambda: "gpu0 is still held by default/other" in str(on.plane.api().get("Pod", "a")["status"]), what="the sentence is in the pod's status"
    )
    assert not on.log("a")
    plugin.refusal.unlink()
    wait_printed(on, "a")


def test_a_node_leaves_nothing_behind(node: RealNode) -> None:
    """No process, mount, network namespace, cgroup or file of a node with running containers is left when it has been stopped, and the kernel's settings are as before."""
    node.plane.api().create(on_node(pod("runs").plain("main").bound_to(node.name)))
    wait_printed(node, "runs")
    inside = {Path(f"/proc/{pid}/ns/pid").stat().st_ino for pid in cgroups.processes(node.directory.name)}
    assert inside
    assert inside <= namespaces("pid")
    node.stop()
    assert not inside & namespaces("pid")
    assert cgroups.left(node.directory.name) == []
    assert not node.directory.exists()
    assert str(node.directory) not in Path("/proc/self/mountinfo").read_text()
    assert not list(Path("/var/lib/kubelet").iterdir())
    assert node.plane.api().find("Node", node.name) is None
    node.plane.api().delete_all("Pod")


def namespaces(kind: str) -> set[int]:
    """Return the namespaces of a kind that some process lives in."""
    found = set()
    for path in Path("/proc").glob(f"[0-9]*/ns/{kind}"):
        try:
            found.add(path.stat().st_ino)
        except OSError:  # it has ended
            continue
    return found


def test_a_node_ends_with_the_test_run_that_is_killed_and_the_next_one_sweeps_up() -> None:
    """Everything inside dies with its starter; the folder and the cgroups are removed by whoever starts a node next."""
    code = (
        "import time; from tests.e2e import cgroups; from tests.e2e.enclosure import Enclosure; from tests.e2e.node import new_folder;"
        "from tests.e2e.node_needs import from_distribution;"
        "folder, lock = new_folder(); cgroups.make(folder.name); enclosure = Enclosure(folder, from_distribution()).start();"
        "program = enclosure.program('sleeper', ['sleep', '600'], folder / 'sleeper.log').start(); print(folder, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        folder = Path(run.stdout.readline().strip())
        assert folder.name.startswith(PREFIX)
        sweep_abandoned()
        assert folder.exists(), "a node that lives is left alone"
        assert of_node(folder)
        run.send_signal(signal.SIGKILL)
    wait_until(lambda: not of_node(folder), what="everything inside has ended")
    sweep_abandoned()
    assert not folder.exists()
    assert cgroups.left(folder.name) == []


def of_node(folder: Path) -> list[str]:
    """Return the mount tables in which a node's folder is mounted: those of the processes inside."""
    found = []
    for path in Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            found += [str(path)] if f"{folder.name}/run" in path.read_text() else []
        except OSError:
            continue
    return found


def test_what_a_node_needs_and_lacks_is_named(tmp_path: Path, node_programs: dict[str, Path]) -> None:
    """A missing program is told with its Debian package; a busybox that needs libraries is no image."""
    for name in ("runc", "unshare", "nsenter"):
        (tmp_path / name).symlink_to(shutil.which("true") or "")
    environment = {"PATH": str(tmp_path)}
    assert node_needs.why_not(environment) == "a real node needs busybox, which is not on the PATH: apt-get install busybox-static"
    shutil.copy(sys.executable, tmp_path / "busybox")
    assert "needs shared libraries" in node_needs.why_not(environment)
