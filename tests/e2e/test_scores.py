"""What our scores weigh beside kube-scheduler's own, in the shipped configuration: near ties are left to it, half the bandwidth is not.

Each preference below is at its maximum against the faster node. A pod without GPUs, which never meets the extender, shows that it pulls at all.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.builders import PodBuilder, pod
from tests.e2e.api_server import JsonObject
from tests.e2e.checks import allocation_of
from tests.e2e.extender import RunningExtender
from tests.e2e.live_cluster import LiveCluster
from topology.api import GPUTopology

FAST, SLOW = "a-fast", "z-slow"
IMAGE = "registry.example/none"  # of every pod in these tests


@dataclass(frozen=True)
class Preference:
    """What makes kube-scheduler prefer `SLOW`: something in the cluster, something in the pod; ``scheduler`` is the profile that scores by it."""

    prepare: Callable[[LiveCluster], None] = lambda _: None
    spec: JsonObject = field(default_factory=dict)
    scheduler: str = "linkwise"


@pytest.fixture
def two_nodes(cluster: LiveCluster) -> Iterator[LiveCluster]:
    """Give a cluster without machines whose waiting pods can be told by name."""
    yield cluster


def machine(cluster: LiveCluster, name: str, change: Callable[[GPUTopology], GPUTopology] = lambda found: found) -> None:
    raise NotImplementedError
