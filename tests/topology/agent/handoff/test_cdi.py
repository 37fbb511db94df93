"""The CDI spec of a token: whole or not there, NVIDIA's edits merged in, another GPU's never."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.sample_machines import sample
from topology.agent.handoff.cdi import CdiDirectory
from topology.agent.handoff.node_gpus import NodeGpus
from topology.agent.handoff.nvidia_cdi import NvidiaCdiError

GPUS = NodeGpus(sample("mesh", "node-a"), 0, {})
UUIDS = list(GPUS.specs)
ENV = {"NVIDIA_VISIBLE_DEVICES": UUIDS[2], "LINKWISE_RING": UUIDS[2]}
FILES = Path("/var/lib/linkwise/containers/t1")
MOUNT = {"hostPath": str(FILES), "containerPath": "/run/linkwise", "options": ["ro", "nosuid", "nodev", "noexec", "rbind", "rprivate"]}


def nvidia(names: list[str], minors: list[int | None], version: str = "0.6.0") -> dict[str, Any]:
    """Return a spec as `nvidia-ctk cdi generate` writes it."""
    return {
        "cdiVersion": version,
        "kind": "nvidia.com/gpu",
        "devices": [
            {
                "name": name,
                "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{minor}"}, {"path": "/dev/nvidia-caps/x"}] if minor is not None else []},
            }
            for name, minor in zip(names, minors, strict=True)
        ],
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_DRIVER_CAPABILITIES=all"],
            "deviceNodes": [{"path": "/dev/nvidiactl"}],
            "hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-ctk", "args": ["nvidia-ctk", "hook", "update-ldcache"]}],
            "mounts": [{"hostPath": "/lib/libcuda.so.1", "containerPath": "/lib/libcuda.so.1", "options": ["ro", "bind"]}],
        },
    }


def spec(directory: Path) -> dict[str, Any]:
    """Return the one spec that is there."""
    (path,) = directory.glob("linkwise.dev-allocation_*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_without_a_spec_of_nvidias_it_is_environment_and_file(tmp_path: Path) -> None:
    """For the NVIDIA runtime."""
    cdi = CdiDirectory(tmp_path / "new", (tmp_path / "absent",))
    cdi.write("t1", ENV, FILES, (GPUS, [UUIDS[2]]))
    edits = {"env": [f"NVIDIA_VISIBLE_DEVICES={UUIDS[2]}", f"LINKWISE_RING={UUIDS[2]}"], "mounts": [MOUNT]}
    assert spec(tmp_path / "new") == {"cdiVersion": "0.5.0", "kind": "linkwise.dev/allocation", "devices": [{"name": "t1", "containerEdits": edits}]}
    assert (cdi.tokens(), list((tmp_path / "new").glob(".*"))) == (["t1"], [])


@pytest.mark.parametrize("names", [UUIDS, ["0", "1", "2", "3"], ["gpu0", "gpu1", "gpu2", "gpu3"]], ids=["by UUID", "by index", "by gpu and index"])
@pytest.mark.parametrize("form", ["nvidia.yaml", "nvidia.json"])
def test_the_edits_of_its_gpus_are_merged_in_and_of_no_others(tmp_path: Path, names: list[str], form: str) -> None:
    """With the common ones once, and our environment in place of void."""
    raw = nvidia(names, [gpu.minor for gpu in GPUS.specs.values()])
    (tmp_path / form).write_text(yaml.safe_dump(raw) if form.endswith("yaml") else json.dumps(raw))
    CdiDirectory(tmp_path, (tmp_path,)).write("t1", ENV, FILES, (GPUS, [UUIDS[3], UUIDS[2]]))
    found = spec(tmp_path)
    edits = found["devices"][0]["containerEdits"]
    minors = [GPUS.specs[UUIDS[2]].minor, GPUS.specs[UUIDS[3]].minor]
    assert found["cdiVersion"] == "0.6.0"
    assert [node["path"] for node in edits["deviceNodes"]] == [
        "/dev/nvidiactl",
        f"/dev/nvidia{minors[0]}",
        "/dev/nvidia-caps/x",
        f"/dev/nvidia{minors[1]}",
    ]
    assert edits["env"] == ["NVIDIA_DRIVER_CAPABILITIES=all", *(f"{name}={value}" for name, value in ENV.items())]
    assert [mount["containerPath"] for mount in edits["mounts"]] == ["/lib/libcuda.so.1", "/run/linkwise"]
    assert len(edits["hooks"]) == 1


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        pytest.param(yaml.safe_dump(nvidia(["0", "1"], [0, 1])), "has no device", id="a GPU that it does not know"),
        pytest.param(
            yaml.safe_dump(nvidia(["0", "1", "2", "3"], [9, 9, 9, 9])), "gives /dev/nvidia9 for device 2", id="an index that means another GPU"
        ),
        pytest.param("kind: nvidia.com/gpu\ndevices: 3\n", "no list of devices", id="no list"),
        pytest.param("kind: nvidia.com/gpu\n\t- x", "cannot be read", id="no YAML"),
        pytest.param("kind: nvidia.com/gpu\ncdiVersion: 0.5.0\ndevices: [{name: 0}]", "without name and containerEdits", id="a device without edits"),
        pytest.param(
            "kind: nvidia.com/gpu\ncdiVersion: 0.5.0\ndevices: []\ncontainerEdits: {env: 3}", "env that is no list", id="edits that are none"
        ),
    ],
)
def test_a_spec_that_cannot_bring_the_gpus_in_is_told_and_nothing_is_written(tmp_path: Path, raw: str, why: str) -> None:
    """The container does not start."""
    (tmp_path / "nvidia.yaml").write_text(raw)
    with pytest.raises(NvidiaCdiError, match=why):
        CdiDirectory(tmp_path, (tmp_path,)).write("t1", ENV, FILES, (GPUS, [UUIDS[2]]))
    assert list(tmp_path.glob("linkwise*")) == []


def test_a_spec_that_would_not_change_is_not_written(tmp_path: Path) -> None:
    """The runtime has read it already."""
    cdi = CdiDirectory(tmp_path, ())
    cdi.write("t1", ENV, FILES, (GPUS, [UUIDS[2]]))
    before = next(tmp_path.iterdir()).stat().st_ino
    cdi.write("t1", ENV, FILES, (GPUS, [UUIDS[2]]))
    assert next(tmp_path.iterdir()).stat().st_ino == before
    cdi.withdraw("t1")
    cdi.withdraw("t1")
    assert cdi.tokens() == []


def test_leftovers_of_broken_off_writes_are_swept_and_others_files_are_not(tmp_path: Path) -> None:
    """Only by our own names."""
    (tmp_path / ".linkwise-tmp-1").write_text("half")
    (tmp_path / "nvidia.yaml").write_text("kind: nvidia.com/gpu")
    CdiDirectory(tmp_path, ()).sweep()
    assert [path.name for path in tmp_path.iterdir()] == ["nvidia.yaml"]


def test_the_last_directory_counts_most(tmp_path: Path) -> None:
    """As in the runtimes."""
    for name, version in (("etc", "0.5.0"), ("run", "0.7.0")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "nvidia.yaml").write_text(yaml.safe_dump(nvidia(UUIDS, [gpu.minor for gpu in GPUS.specs.values()], version)))
    CdiDirectory(tmp_path, (tmp_path / "etc", tmp_path / "run")).write("t1", ENV, FILES, (GPUS, [UUIDS[2]]))
    assert spec(tmp_path)["cdiVersion"] == "0.7.0"
