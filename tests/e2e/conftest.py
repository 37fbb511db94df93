"""Fixtures of the end-to-end tests: the control plane (one a run), a cluster emptied after each test, and the fault injector.

`make e2e` builds the programs and runs the tests; `.venv/bin/python -m pytest tests/e2e -n 0` does the same. `make test` leaves this folder out
(see `tests/conftest.py`).
"""

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.e2e import build, node_needs
from tests.e2e.control_plane import ControlPlane
from tests.e2e.extender import RunningExtender, serve, shipped_configuration
from tests.e2e.fault_proxy import FaultProxy
from tests.e2e.hand_off_checks import HandOffs
from tests.e2e.live_cluster import EMPTIED, LiveCluster
from tests.e2e.node import RealNode, real_node
from tests.e2e.node_agent import NodeAgent
from tests.e2e.program import wait_until
from tests.e2e.workload import Workload

MANIFESTS = Path(__file__).parents[2] / "manifests"


# The files that take longest, by a run of four workers on two cores, one more than `make e2e` has; those that are not here take less than a minute. A file that begins last ends last.
# Files with a real node take most of the processors: of those no more than two stand side by side.
LONGEST_FIRST = tuple(
    f"test_{name}.py"
    for name in (
        *("hand_off_restarts", "api_server_gone", "agent", "hand_off_at_scale", "end_to_end_bench", "storm", "hand_off_ids", "gpushare"),
        *("shares", "hand_off", "shipped", "invariants", "fill_order", "waiting", "around", "placement", "lost_answers"),
        *("node", "preemption", "explain", "strangers"),
    )
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, so that `-m` can choose among them, and put the longest files first (for `--dist loadfile --no-loadscope-reorder`)."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("e2e")
    places = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the ends of the programs' logs with a test that failed: they are what one looks at next."""
    report = yield
    plane = getattr(item, "funcargs", {}).get("control_plane")
    if call.when == "call" and report.failed and plane is not None:
        report.sections.append(("logs of the control plane", plane.tails()))
    node = getattr(item, "funcargs", {}).get("node")
    if call.when == "call" and report.failed and isinstance(node, RealNode):
        report.sections.append(("logs of the node", node.tails()))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures that tests have recorded: nobody would find them elsewhere."""
    for report in terminalreporter.getreports("passed"):
        for name, figures in report.user_properties:
            terminalreporter.write_line(f"{report.nodeid}: {name}: {figures}")


@pytest.fixture(scope="session")
def programs() -> dict[str, Path]:
    """Return the programs of the control plane by name, built where the cache lacks them."""
    try:
        return build.programs()
    except build.BuildError as error:
        pytest.exit(str(error), returncode=1)


@pytest.fixture(scope="session")
def node_programs(programs: dict[str, Path]) -> dict[str, Path]:
    """Return the programs of a real node as well; without what it needs the test is skipped, and fails in CI (`CI=true`)."""
    reason = node_needs.why_not()
    if reason:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    return {**programs, **build.programs(modules=build.NODE)}


@pytest.fixture(scope="session")
def control_plane(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Run etcd and kube-apiserver, and give them our CRD."""
    plane = ControlPlane(programs, tmp_path_factory.mktemp("control-plane")).start()
    try:
        plane.api().apply_file(MANIFESTS / "crd.yaml")
        wait_established(plane)
        yield plane
    finally:
        plane.stop()


def wait_established(plane: ControlPlane) -> None:
    """Wait until the API server serves GPUTopologies; it does so a moment after it has accepted the CRD."""
    plane.kubectl("wait", "--for=condition=Established", "--timeout=20s", "crd/gputopologies.linkwise.dev")


@pytest.fixture
def live(control_plane: ControlPlane) -> Iterator[LiveCluster]:
    """Give an empty cluster; what the test starts on it and creates in it is gone afterwards."""
    live = LiveCluster(control_plane)
    try:
        yield live
    finally:
        if not control_plane.kube_apiserver.running():
            control_plane.start_api_server()
        live.empty()


@pytest.fixture(scope="session")
def accounts(control_plane: ControlPlane) -> None:
    """Give the extender's and the agent's account what the manifests grant them."""
    for name in ("rbac-extender.yaml", "rbac-agent.yaml", "hand-off/rbac.yaml"):
        control_plane.api().apply_file(MANIFESTS / name)


@pytest.fixture(scope="module")
def extender(control_plane: ControlPlane, accounts: None) -> Iterator[RunningExtender]:
    """Run the extender under its own account, and kube-scheduler with the shipped configuration, for all tests of a file.

    Such a file uses `cluster`, never `live`, which would end them after its first test.
    """
    running = serve(control_plane).wait_leads()
    control_plane.start_scheduler(shipped_configuration(running.url))
    try:
        yield running
    finally:
        LiveCluster(control_plane).empty()


@pytest.fixture
def cluster(control_plane: ControlPlane, extender: RunningExtender) -> Iterator[LiveCluster]:
    """Give an empty cluster to a test of a file that shares one extender; what the test creates is gone afterwards, the programs run on."""
    cluster = LiveCluster(control_plane)
    try:
        yield cluster
    finally:
        cluster.clear(kind for kind in EMPTIED if kind != "Lease")
        # Its state outlives the test as well: what it still believes of this one would be said of the same names in the next.
        wait_until(lambda: not any(node["total"] for node in extender.nodes().values()), what="the extender knows that no node is left")


@pytest.fixture(scope="module")
def node(control_plane: ControlPlane, node_programs: dict[str, Path]) -> Iterator[RealNode]:
    """Run a real node for all tests of a file; each of them ends with `node.clear()`, or starts with it."""
    with real_node(control_plane, node_programs) as node:
        yield node


@pytest.fixture(scope="module")
def node_agent(node: RealNode, extender: RunningExtender) -> Iterator[NodeAgent]:
    """Run the agent on the real node, with kube-scheduler and an extender that takes pods for it."""
    agent = NodeAgent(node).wait_allocatable()
    extender.wait_open(node.name)
    yield agent
    agent.program.stop()


@pytest.fixture
def workload(node_agent: NodeAgent, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workload]:
    """Give the real node with its agent to one test, without pods at the beginning and at the end."""
    if not node_agent.program.running():  # a test before this one failed midway
        node_agent.start()
    node_agent.wait_allocatable()
    yield Workload(node_agent, HandOffs(tmp_path_factory.mktemp("records")))
    node_agent.node.clear()


@pytest.fixture
def fault_proxy(control_plane: ControlPlane) -> Iterator[FaultProxy]:
    """Open a way to the API server that can be disturbed; `control_plane.kubeconfig(user, server=fault_proxy.url)` leads through it."""
    with FaultProxy(control_plane.url, control_plane.certificate_authority) as proxy:
        yield proxy
