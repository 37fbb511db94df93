"""The command: the same files give the same output, options that cannot be meant are one sentence."""

import json
from pathlib import Path

import pytest
import yaml

from extender.simulate.command import Asked, simulate_command
from extender.simulate.replay import Rules
from tests.builders import cluster, pod
from topology.errors import InputError
from topology.inspection.text import plain

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "workload.yaml"


def asked(**changes: object) -> Asked:
    values = {
        "workload": EXAMPLE,
        "snapshot": None,
        "policies": ("pack", "count"),
        "rules": Rules(),
        "gib_per_gpu": None,
        "json_file": None,
        "svg_file": None,
    }
    return Asked(**(values | changes))  # type: ignore[arg-type]


def test_linkwise_gives_the_shipped_workload_more_bandwidth_than_counting(tmp_path: Path):
    """The example of the README, its JSON and its picture; progress counts every pod of every policy."""
    heard: list[tuple[str, int, int]] = []
    found, problems = simulate_command(
        asked(json_file=tmp_path / "out.json", svg_file=tmp_path / "out.svg"), lambda name, done, of: heard.append((name, done, of))
    )
    text = plain(found, width=100)
    data = json.loads((tmp_path / "out.json").read_text())
    pack, count = (policy["figures"] for policy in data["policies"])
    assert pack["gb_per_s_mean"] > 1.5 * count["gb_per_s_mean"]
    assert pack["waiting_mean_s"] <= count["waiting_mean_s"]
    assert (problems, heard[0], heard[-1]) == ([], ("pack", 1, 62), ("count", 62, 62))
    assert (tmp_path / "out.svg").read_text().startswith("<svg")
    assert text == plain(simulate_command(asked(), lambda *_: None)[0], width=100)


def test_a_snapshot_of_ones_own(tmp_path: Path):
    """Problems of the snapshot are told once, however many policies there are."""
    path = tmp_path / "snapshot.yaml"
    path.write_text(
        yaml.safe_dump({"kind": "List", "items": [*cluster().mesh("m").with_pods(pod("x").gpus(1)).snapshot().to_list()["items"], {"kind": "Pod"}]})
    )
    found, problems = simulate_command(asked(snapshot=path), lambda *_: None)
    assert len(problems) == 1
    assert f"{path}: 4 GPUs open to pods." in plain(found, width=300)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        pytest.param({"policies": ("best",)}, "--policy best: unknown policy; accepted: pack, spread, gpuallocator, count", id="another policy"),
        pytest.param({"workload": Path("/no/such")}, "workload /no/such cannot be read: No such file", id="no workload"),
        pytest.param({"snapshot": Path("/no/such")}, "snapshot /no/such cannot be read: No such file", id="no snapshot"),
        pytest.param({"json_file": Path("/no/such/file")}, "--json /no/such/file cannot be written: No such file", id="nowhere to write JSON"),
        pytest.param({"svg_file": Path("/no/such/file")}, "--svg /no/such/file cannot be written: No such file", id="nowhere to draw"),
    ],
)
def test_bad_input_is_one_sentence(changes: dict[str, object], sentence: str):
    """It names option, value and what is accepted."""
    with pytest.raises(InputError) as caught:
        simulate_command(asked(**changes), lambda *_: None)
    assert sentence in str(caught.value)


def test_a_cluster_without_gpus_is_refused(tmp_path: Path):
    """Every figure would be a division by nothing."""
    path = tmp_path / "snapshot.yaml"
    path.write_text(yaml.safe_dump({"kind": "List", "items": [{"kind": "Node", "metadata": {"name": "n"}}]}))
    with pytest.raises(InputError, match="no node with GPUs is open to pods"):
        simulate_command(asked(snapshot=path), lambda *_: None)
