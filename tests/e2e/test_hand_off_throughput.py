"""How many pods a second a real node starts and ends through Linkwise, beside the same pods with the plainest device plugin and Kubernetes' own scheduling.

The node has eight devices and all pods want one, so most of the time is kubelet's and containerd's; what Linkwise adds (extender, binding, resolving whose
ids they are, a CDI spec for each) must not be what one waits for. The figures are printed with the results of the run.
"""

import time
from collections.abc import Callable

import pytest

from tests.builders import pod
from tests.e2e.node_pods import END, on_node
from tests.e2e.plain_plugin import RESOURCE, PlainPlugin
from tests.e2e.program import wait_until
from tests.e2e.workload import Workload

PODS = 40
# Runs on a busy machine differ by a fifth; less than this is no noise.
LEAST_SHARE = 0.6


@pytest.mark.alone
def test_pods_start_as_fast_as_with_a_plain_device_plugin(workload: Workload, record_property: Callable[[str, object], None]) -> None:
    """Forty pods of one device that print and end, five times as many as there is room for at once: both ways, one after the other."""
    plugin = PlainPlugin(workload.node).wait_allocatable()
    try:
        plain = pods_per_second(workload, "plain", RESOURCE, "default-scheduler")
    finally:
        plugin.stop()
    workload.node.clear()
    linkwise = pods_per_second(workload, "linkwise", "nvidia.com/gpu", "linkwise")
    assert len(workload.check()) >= PODS
    record_property("pods a second", f"{linkwise:.2f} through Linkwise, {plain:.2f} with a plain device plugin, {linkwise / plain:.0%}")
    assert linkwise > LEAST_SHARE * plain


def pods_per_second(workload: Workload, name: str, resource: str, scheduler: str) -> float:
    """Create all pods at once and return how many ended a second."""
    began = time.monotonic()
    for number in range(PODS):
        workload.api.create(on_node(pod(f"{name}-{number}").gpus(1, resource=resource), END, scheduler=scheduler, records=workload.hand_offs.records))

    def all_ended() -> bool:
        phases = {each["metadata"]["name"]: each["status"]["phase"] for each in workload.note()}
        failed = [name for name, phase in phases.items() if phase == "Failed"]
        assert not failed, failed
        return set(phases.values()) == {"Succeeded"}

    wait_until(all_ended, 300, f"{PODS} pods have ended")
    return PODS / (time.monotonic() - began)
