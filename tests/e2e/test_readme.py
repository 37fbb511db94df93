"""The README's section "On a cluster", run as it stands: its commands, one after the other, and what they print."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from tests.console import blocks, commands, matches
from tests.e2e.conftest import wait_established
from tests.e2e.control_plane import ControlPlane
from tests.e2e.extender import RunningExtender, serve, shipped_configuration
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.share_checks import MEMORY, advertised_gib
from topology.api import read_gputopology

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _publish_example_nodes(cluster: LiveCluster) -> None:
    """Do what the agents of the two example nodes do."""
    for item in yaml.safe_load_all((ROOT / "examples/gputopologies.yaml").read_text(encoding="utf-8")):
        if item is None:
            continue
        item["status"] = item.get("status", {}) | {
            "observedAt": datetime.now(UTC).isoformat(),
            "holdersObserved": True,
            "freeGPUs": len(item["spec"]["gpus"]),
        }
        topology = read_gputopology(item)
        cluster.make_node(topology.name, len(topology.spec.gpus), resources={MEMORY: str(advertised_gib(item))})
        cluster.publish(topology)


def _printed(command: str, cluster: LiveCluster, extender: RunningExtender | None) -> list[str]:
    program, *arguments = shlex.split(command)
    if program == "kubectl":
        return cluster.plane.kubectl(*arguments).splitlines()
    assert program == "linkwise"
    assert extender is not None
    cluster.wait_bound(arguments[-1].removeprefix("default/"))  # a reader takes a breath here
    environment = os.environ | {"LINKWISE_SERVER": extender.url, "COLUMNS": "100"}
    done = subprocess.run([sys.executable, "-m", "extender", *arguments], env=environment, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


@pytest.fixture
def plane(programs: dict[str, Path], tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane of its own: what the manifests install there concerns no other test."""
    plane = ControlPlane(programs, tmp_path).start()
    try:
        yield plane
    finally:
        plane.stop()


def test_the_readme_commands_for_a_cluster_print_what_the_readme_shows(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    cluster = LiveCluster(plane)
    extender: RunningExtender | None = None
    for block in blocks(README, "console cluster"):
        for command, expected in commands(block):
            printed = _printed(command, cluster, extender)
            assert matches(expected, printed), f"$ {command}\n" + "\n".join(printed)
            if extender is None:  # what the Deployment, the DaemonSet and the administrator do after the first command
                wait_established(plane)
                _publish_example_nodes(cluster)
                extender = serve(plane).wait_leads()
                extender.wait_open("dgx-1", "l40s-1")
                extender.wait_priced()
                plane.start_scheduler(shipped_configuration(extender.url))


def test_the_readme_fragment_is_in_the_shipped_configuration():
    (fragment,) = (yaml.safe_load(block) for block in blocks(README, "yaml"))
    shipped = yaml.safe_load((ROOT / "manifests/scheduler-config.yaml").read_text(encoding="utf-8"))
    (profile,) = (profile for profile in shipped["profiles"] if profile["schedulerName"] == "linkwise")
    assert fragment["profiles"][0].items() <= profile.items()
    assert fragment["extenders"][0].items() <= shipped["extenders"][0].items()
    assert re.fullmatch(r"http://[0-9.]+:8888", fragment["extenders"][0]["urlPrefix"])
