"""Before an extender is asked, kube-scheduler looks at CPU, memory and nodeSelector: the simulation does the same."""

from typing import Any

import pytest

from extender.cluster import Cluster
from extender.requests import Requests
from extender.simulate.selectors import Selectors
from extender.snapshot_file import Snapshot, SnapshotCluster
from tests.builders import cluster, pod

BUILT = cluster().mesh("a", "b", "c")


def node(name: str, cpu: str, memory: str, **labels: str) -> dict[str, Any]:
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": {"allocatable": {"cpu": cpu, "memory": memory}}}


NODES = (node("a", "8", "16Gi", zone="east"), node("b", "2", "64Gi", zone="west"))


@pytest.mark.parametrize(
    ("selector", "requests", "expected"),
    [
        pytest.param({}, Requests(2000, 1024), ["a", "b", "c"], id="all have room"),
        pytest.param({}, Requests(4000, 1024), ["a", "c"], id="too little CPU on b"),
        pytest.param({}, Requests(1000, 32768), ["b", "c"], id="too little memory on a"),
        pytest.param({}, Requests(9000, 99999), ["c"], id="of c nothing is known, so it has room"),
        pytest.param({"zone": "west"}, Requests(), ["b"], id="b is selected"),
        pytest.param({"zone": "west", "rack": "1"}, Requests(), [], id="every label counts"),
    ],
)
def test_nodes_are_open_by_what_is_left_and_by_labels(selector: dict[str, str], requests: Requests, expected: list[str]):
    """A node without a Node object is open to everything but selectors."""
    state = Cluster("nvidia.com/gpu", lambda: 0.0)
    SnapshotCluster(Snapshot(NODES, BUILT.topologies), state).feed()
    raw = pod().gpus(1).build()
    raw["spec"]["nodeSelector"] = selector
    view = state.view()
    found = Selectors(NODES).open_rows(raw, requests, view)
    assert [name for name, is_open in zip(view.names, found, strict=True) if is_open] == expected
