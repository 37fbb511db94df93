"""Events tell what people have to know, once, in a sentence with what changed."""

from collections.abc import Iterable, Mapping

import pytest

from extender.sample_machines import DGX1V, MESH, sample
from topology.agent.changes import Change, changes
from topology.api import Condition, GPUTopology, LinkRows, read_gputopology

DGX = sample("dgx1v", "node-a")


def with_link(topology: GPUTopology, codes: Mapping[tuple[int, int], str]) -> GPUTopology:
    """Return the topology with other codes between positions."""
    rows = [list(row) for row in topology.spec.links.gpus]
    for (i, j), code in codes.items():
        rows[i][j] = rows[j][i] = code
    links = LinkRows(gpus=tuple(tuple(row) for row in rows), nics=topology.spec.links.nics)
    return topology.model_copy(update={"spec": topology.spec.model_copy(update={"links": links})})


def unhealthy(topology: GPUTopology, *positions: int) -> GPUTopology:
    gpus = tuple(
        gpu.model_copy(update={"healthy": False, "reason": "it fell off the bus"}) if at in positions else gpu
        for at, gpu in enumerate(topology.status.gpus)
    )
    return topology.model_copy(update={"status": topology.status.model_copy(update={"gpus": gpus})})


def with_driver(topology: GPUTopology, status: str, message: str) -> GPUTopology:
    condition = Condition.model_validate({"type": "DriverReady", "status": status, "reason": "Whatever", "message": message})
    return topology.model_copy(update={"status": topology.status.model_copy(update={"conditions": (condition,)})})


def without(topology: GPUTopology, position: int) -> GPUTopology:
    """Return the topology without one GPU, the others counted anew."""
    raw = topology.to_object()
    for rows in (raw["spec"]["gpus"], raw["status"]["gpus"], raw["spec"]["links"]["gpus"], raw["spec"]["links"]["nics"]):
        if rows:
            del rows[position]
    for row in raw["spec"]["links"]["gpus"]:
        del row[position]
    for index, gpu in enumerate(raw["spec"]["gpus"]):
        gpu["index"] = index
    return read_gputopology(raw)


def shown(found: Iterable[Change]) -> list[tuple[str, str, bool]]:
    return [(change.reason, change.message, change.is_warning) for change in found]


def test_nothing_changed_is_no_event() -> None:
    assert changes(DGX, DGX) == []


def test_a_link_that_is_weaker_is_told_with_what_it_was() -> None:
    assert shown(changes(DGX, with_link(DGX, {(0, 3): "SYS"}))) == [("NVLinkGone", "NVLink GPU0-GPU3: NV2 before, SYS now", True)]
    assert shown(changes(with_link(DGX, {(0, 3): "SYS"}), DGX)) == [("NVLinkBack", "NVLink GPU0-GPU3: SYS before, NV2 now", False)]
    assert shown(changes(DGX, with_link(DGX, {(0, 3): "NV1"}))) == [("NVLinkGone", "NVLink GPU0-GPU3: NV2 before, NV1 now", True)]


def refusing(topology: GPUTopology, *pairs: tuple[int, int]) -> GPUTopology:
    raw = topology.to_object()
    raw["spec"]["links"]["noPeerAccess"] = [{"a": a, "b": b, "status": "CNS"} for a, b in pairs]
    return read_gputopology(raw)


def test_peer_access_that_goes_and_comes_is_told_by_pairs() -> None:
    """The codes are as they were: what the hardware is has not changed."""
    gone = "no peer access GPU0-GPU3 (CNS), GPU1-GPU2 (CNS): their data goes through host memory"
    assert shown(changes(DGX, refusing(DGX, (0, 3), (2, 1)))) == [("PeerAccessGone", gone, True)]
    assert shown(changes(refusing(DGX, (0, 3)), DGX)) == [("PeerAccessBack", "peer access again GPU0-GPU3 (CNS)", False)]
    assert changes(refusing(DGX, (0, 3)), refusing(DGX, (0, 3))) == []


def test_peer_access_is_compared_by_uuid_and_only_between_gpus_that_stay() -> None:
    """Without GPU1 the same two stand at other places; the pair with GPU1 is gone with it, and not allowed again."""
    mesh = sample("mesh", "node-a")
    assert [change.reason for change in changes(refusing(mesh, (0, 1), (2, 3)), refusing(without(mesh, 1), (1, 2)))] == ["GPURemoved"]


def test_a_pcie_path_that_differs_is_told_too() -> None:
    mesh = with_link(sample("mesh", "node-a"), {(0, 1): "PHB"})
    assert shown(changes(mesh, with_link(mesh, {(0, 1): "SYS"}))) == [("LinksChanged", "PCIe GPU0-GPU1: PHB before, SYS now", True)]


def test_many_links_of_a_kind_are_one_event() -> None:
    switch = sample("nvswitch", "node-a")
    (change,) = changes(switch, with_link(switch, {(i, j): "NODE" for i in range(8) for j in range(i + 1, 8)}))
    assert change.message == "NVLink GPU0-GPU1, GPU0-GPU2, GPU0-GPU3, GPU0-GPU4 and 24 more pairs: NV18 before, NODE now"


def test_a_link_that_is_not_known_did_not_change() -> None:
    unknown = with_link(DGX, {(0, 3): "-"})
    assert changes(DGX, unknown) == changes(unknown, DGX) == []


def test_the_weaker_direction_counts() -> None:
    rows = [list(row) for row in DGX.spec.links.gpus]
    rows[3][0] = "NV1"
    links = LinkRows(gpus=tuple(tuple(row) for row in rows), nics=DGX.spec.links.nics)
    one_sided = DGX.model_copy(update={"spec": DGX.spec.model_copy(update={"links": links})})
    assert shown(changes(DGX, one_sided)) == [("NVLinkGone", "NVLink GPU0-GPU3: NV2 before, NV1 now", True)]


def test_another_source_is_not_taken_for_a_change_of_the_hardware() -> None:
    """The kernel shows the PCIe path below an NVLink: the link is still there."""
    seen = with_link(DGX, {(0, 3): "SYS", (0, 1): "PIX"})
    source = seen.spec.source.model_copy(update={"kind": "sysfs", "notes": ("topo -m failed",)})
    otherwise = seen.model_copy(update={"spec": seen.spec.model_copy(update={"source": source})})
    assert shown(changes(DGX, otherwise)) == [("LinksSeenOtherwise", "links come from sysfs now: topo -m failed", True)]
    assert shown(changes(otherwise, DGX)) == [("LinksSeenOtherwise", "links come from nvidia-smi now", False)]


def test_a_lost_gpu_and_its_return_are_told_by_name() -> None:
    uuid = DGX1V.uuids("node-a")[5]
    assert shown(changes(DGX, unhealthy(DGX, 5))) == [("GPULost", f"GPU5 ({uuid}): it fell off the bus", True)]
    assert shown(changes(unhealthy(DGX, 5), DGX)) == [("GPUBack", f"GPU5 ({uuid}) works again", False)]


def test_a_failing_driver_is_one_event_and_not_one_for_every_gpu() -> None:
    ready, failed = with_driver(DGX, "True", "nvidia-smi answers"), with_driver(unhealthy(DGX, *range(8)), "False", "the versions differ")
    assert shown(changes(ready, failed)) == [("DriverFailed", "the versions differ; no GPU takes new pods", True)]
    assert shown(changes(failed, ready)) == [("DriverReady", "nvidia-smi answers", False)]
    assert changes(failed, with_driver(unhealthy(DGX, *range(8)), "False", "another reason")) == []


def test_a_gpu_that_is_lost_when_the_driver_comes_back_is_told() -> None:
    failed = with_driver(unhealthy(DGX, *range(8)), "False", "the versions differ")
    assert [change.reason for change in changes(failed, with_driver(unhealthy(DGX, 2), "True", "nvidia-smi answers"))] == ["DriverReady", "GPULost"]


def test_gpus_taken_out_or_put_in_are_told_and_matched_by_uuid() -> None:
    mesh = sample("mesh", "node-a")
    gone = MESH.uuids("node-a")[1]
    assert shown(changes(mesh, without(mesh, 1))) == [("GPURemoved", f"no longer in this node: GPU1 ({gone})", True)]
    assert shown(changes(without(mesh, 1), mesh)) == [("GPUAdded", f"new in this node: GPU1 ({gone})", False)]


def test_another_driver_is_told() -> None:
    newer = DGX.model_copy(update={"spec": DGX.spec.model_copy(update={"driver_version": "560.35.03"})})
    assert shown(changes(DGX, newer)) == [("DriverChanged", "NVIDIA driver: 550.127.08 before, 560.35.03 now", False)]


@pytest.mark.parametrize("kind", ["nvswitch", "dgx1v", "bridges", "pcie", "mesh"])
def test_reasons_are_single_words_as_events_demand_them(kind: str) -> None:
    topology = sample(kind, "node-a")
    later = with_driver(unhealthy(with_link(topology, {(0, 1): "NV1", (1, 2): "SYS"}), 0), "True", "")
    for change in (*changes(topology, later), *changes(later, topology)):
        assert change.reason.isalnum()
        assert change.reason[0].isupper()
        assert change.message
