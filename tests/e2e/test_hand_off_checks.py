"""The oracle of the hand-off itself: what it must find wrong, and what it must let pass. No cluster."""

import json
import os
from pathlib import Path

import pytest

from tests.e2e.checks import ALLOCATION
from tests.e2e.hand_off_checks import HandOffs


def promised(uid: str, **containers: dict[str, int]) -> dict[str, object]:
    """Return a pod with an allocation: UUIDs with MiB, 0 for a whole GPU, by container."""
    told = {
        name: [{"uuid": uuid, **({"memoryMiB": mib, "shared": True} if mib else {})} for uuid, mib in shares.items()]
        for name, shares in containers.items()
    }
    annotations = {ALLOCATION: json.dumps({"v": 1, "node": "n", "containers": told})}
    return {"metadata": {"uid": uid, "name": f"pod-{uid}", "annotations": annotations}}


def ran(hand_offs: HandOffs, uid: str, begin: int, end: int | None, **environment: str) -> None:
    """Write the record of one start of the container `main`."""
    for suffix, moment in (("start", begin), ("end", end)):
        if moment is not None:
            path = hand_offs.records / f"{uid}.main.x{begin}.{suffix}"
            path.write_text("".join(f"{name}={value}\n" for name, value in environment.items()))
            os.utime(path, (moment, moment))


@pytest.fixture
def hand_offs(tmp_path: Path) -> HandOffs:
    found = HandOffs(tmp_path / "records")
    found.note(
        [promised("a", main={"GPU-1": 0}), promised("b", main={"GPU-1": 0}), promised("c", main={"GPU-2": 4096}), promised("d", main={"GPU-2": 512})]
    )
    return found


def test_one_after_the_other_and_parts_side_by_side_are_right(hand_offs: HandOffs) -> None:
    """A GPU may go from one to the next, and parts of one may be had together."""
    ran(hand_offs, "a", 10, 20, NVIDIA_VISIBLE_DEVICES="GPU-1")
    ran(hand_offs, "b", 21, None, NVIDIA_VISIBLE_DEVICES="GPU-1")
    ran(hand_offs, "c", 10, None, NVIDIA_VISIBLE_DEVICES="GPU-2", LINKWISE_GPU_MEMORY_MIB="4096")
    ran(hand_offs, "d", 15, None, NVIDIA_VISIBLE_DEVICES="GPU-2", LINKWISE_GPU_MEMORY_MIB="512")
    assert len(hand_offs.check()) == 4


@pytest.mark.parametrize(
    ("starts", "said"),
    [
        pytest.param(
            [("a", 10, 20, "GPU-1"), ("b", 19, 30, "GPU-1")], "GPU-1 was in pod-a/main and in pod-b/main, from 19.000 to 20.000", id="overlap"
        ),
        pytest.param([("a", 10, None, "GPU-1"), ("b", 90, None, "GPU-1")], "GPU-1 was in pod-a/main and in pod-b/main", id="never ended"),
        pytest.param([("a", 10, 20, "GPU-2")], "was promised ['GPU-1'] and shown ['GPU-2']", id="another GPU"),
        pytest.param([("a", 10, 20, "GPU-1,GPU-2")], "was promised ['GPU-1'] and shown ['GPU-1', 'GPU-2']", id="one too many"),
        pytest.param([("a", 10, 20, "")], "was promised ['GPU-1'] and shown []", id="none"),
        pytest.param([("c", 10, 20, "GPU-2")], "was promised {4096} MiB and told None", id="a share not told"),
        pytest.param([("stranger", 10, 20, "GPU-1")], "container main of stranger was promised [] and shown ['GPU-1']", id="no promise"),
    ],
)
def test_what_is_wrong_is_told(hand_offs: HandOffs, starts: list[tuple[str, int, int | None, str]], said: str) -> None:
    """Each kind of mistake is found, and named."""
    for uid, begin, end, gpus in starts:
        ran(hand_offs, uid, begin, end, NVIDIA_VISIBLE_DEVICES=gpus)
    with pytest.raises(AssertionError) as found:
        hand_offs.check()
    assert said in str(found.value)


def test_a_container_that_starts_again_had_ended(hand_offs: HandOffs) -> None:
    """After a power cut the record has no end of the first start; the second one tells it."""
    ran(hand_offs, "a", 10, None, NVIDIA_VISIBLE_DEVICES="GPU-1")
    ran(hand_offs, "a", 20, 30, NVIDIA_VISIBLE_DEVICES="GPU-1")
    ran(hand_offs, "b", 31, None, NVIDIA_VISIBLE_DEVICES="GPU-1")
    assert [start.end for start in hand_offs.check()] == [20, 30, float("inf")]


def test_a_killed_container_is_not_held_against_its_successor(hand_offs: HandOffs) -> None:
    """A pod that was killed could not say when it ended."""
    ran(hand_offs, "a", 10, None, NVIDIA_VISIBLE_DEVICES="GPU-1")
    ran(hand_offs, "b", 20, None, NVIDIA_VISIBLE_DEVICES="GPU-1")
    assert len(hand_offs.check(gone=["a"])) == 2


def told(**holders: list[dict[str, object]]) -> dict[str, object]:
    """Return a GPUTopology whose status tells these holders, by GPU."""
    return {"status": {"gpus": [{"uuid": uuid.replace("_", "-"), "holders": some} for uuid, some in holders.items()]}}


def holder(uid: str, mib: int = 0, *, planned: bool = True) -> dict[str, object]:
    return {"uid": uid, "name": f"pod-{uid}", "container": "main", "planned": planned, **({"memoryMiB": mib} if mib else {})}


def test_holders_that_were_promised_so_are_told_rightly(hand_offs: HandOffs) -> None:
    """Whole, in parts, idle, and from around the extender."""
    right = told(GPU_1=[holder("a")], GPU_2=[holder("c", 4096), holder("d", 512)], GPU_3=[holder("stranger", planned=False)], GPU_4=[])
    assert hand_offs.wrongly_told(right) == []


@pytest.mark.parametrize(
    ("holders", "said"),
    [
        pytest.param(
            {"GPU_2": [holder("a")]}, "container main of pod-a was promised {'GPU-1': 0} and is told to hold all of GPU-2", id="another GPU"
        ),
        pytest.param({"GPU_2": [holder("c", 9)]}, "was promised {'GPU-2': 4096} and is told to hold 9 of GPU-2", id="another part"),
        pytest.param({"GPU_1": [holder("a"), holder("b")]}, "GPU-1 is told to be held by pod-a, pod-b", id="two holders"),
        pytest.param({"GPU_2": [holder("c", 4096), holder("x", planned=False)]}, "GPU-2 is told to be held by pod-c, x", id="whole beside a part"),
    ],
)
def test_what_is_told_wrongly_is_found(hand_offs: HandOffs, holders: dict[str, list[dict[str, object]]], said: str) -> None:
    """By promise, and by who is beside whom."""
    assert said in "\n".join(hand_offs.wrongly_told(told(**holders)))
