"""The files in examples/ go where examples/README.md says that they go."""

import re
from pathlib import Path

import httpx
import pytest
import yaml
from starlette.types import ASGIApp

from extender.app import embedded
from extender.explain import text
from extender.sample_machines import sample
from extender.settings import Settings
from extender.snapshot_file import parse_snapshot, read_snapshot
from tests.builders import JsonObject
from topology.api import Allocation

EXAMPLES = Path(__file__).parents[1] / "examples"
README = (EXAMPLES / "README.md").read_text(encoding="utf-8")
TOPOLOGIES = EXAMPLES / "gputopologies.yaml"
PODS = sorted(EXAMPLES.glob("pod-*.yaml"))


def stated_placements() -> list[tuple[str, ...]]:
    """Return the rows of the table of placements: pod, node, GPUs, GB/s, worst link."""
    table = README.partition("## Where they go")[2].partition("\n\n-")[0]
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in table.splitlines() if line.startswith("|")]
    return rows[2:]


def calling(app: ASGIApp) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://linkwise")


async def placed(client: httpx.AsyncClient, raw: JsonObject) -> tuple[str, ...]:
    """Take a pod through filter, prioritize and bind as kube-scheduler does; return the row of the table that it makes."""
    name = raw["metadata"]["name"]
    identified = {**raw, "metadata": {"namespace": "default", "uid": f"uid-{name}", **raw["metadata"]}}
    names = [node["name"] for node in (await client.get("/api/v1/nodes")).json()["nodes"]]
    fitting = (await client.post("/filter", json={"Pod": identified, "NodeNames": names})).json()["NodeNames"]
    scores = (await client.post("/prioritize", json={"Pod": identified, "NodeNames": fitting})).json()
    node = max(scores, key=lambda entry: entry["Score"])["Host"]
    bound = await client.post("/bind", json={"PodName": name, "PodNamespace": "default", "PodUID": f"uid-{name}", "Node": node})
    assert bound.json() == {"Error": ""}
    return name, node


def allocated(annotation: str) -> tuple[str, ...]:
    allocation = Allocation.decode(annotation)
    (gpus,) = allocation.containers.values()
    indices = [gpu.index or 0 for gpu in gpus]
    together = len(indices) > 2 and indices == list(range(indices[0], indices[-1] + 1))
    shown = f"{indices[0]}-{indices[-1]}" if together else ",".join(map(str, indices))
    speed = "-" if allocation.bandwidth_gb_per_s is None else f"{allocation.bandwidth_gb_per_s:g}"
    return shown, speed, allocation.worst_link or "-"


async def test_the_pods_go_where_the_readme_says() -> None:
    app, source, problems = embedded(read_snapshot(TOPOLOGIES), Settings())
    assert problems == []
    found = []
    async with calling(app) as client:
        for file in PODS:
            who = await placed(client, yaml.safe_load(file.read_text(encoding="utf-8")))
            (pod,) = (pod for pod in source.pods() if pod["metadata"]["name"] == who[0])
            found.append((*who, *allocated(pod["metadata"]["annotations"]["linkwise.dev/allocation"])))
    assert found == stated_placements()
    assert len(found) == len(PODS) == 4


async def test_explain_on_the_joined_files_prints_what_the_readme_shows() -> None:
    """The README's commands, without the socket between server and client."""
    commands = re.findall(r"^\$ (.+)$", README, re.MULTILINE)
    joined = "cat examples/gputopologies.yaml examples/pod-*.yaml > example.yaml"
    assert commands[:3] == [joined, "linkwise serve --snapshot example.yaml &", "linkwise explain pod default/quad"]
    snapshot = parse_snapshot(b"".join(path.read_bytes() for path in (TOPOLOGIES, *PODS)), "example.yaml")
    app, _, problems = embedded(snapshot, Settings())
    assert problems == []
    async with calling(app) as client:
        decision = (await client.get("/api/v1/pods/default/quad/decision")).json()
    assert f"$ linkwise explain pod default/quad\n{text(decision).rstrip()}\n```" in README


@pytest.mark.parametrize(("node", "kind"), [("dgx-1", "dgx1v"), ("l40s-1", "pcie")])
def test_the_topologies_are_those_of_known_machines(node: str, kind: str) -> None:
    items = {item["metadata"]["name"]: item for item in yaml.safe_load_all(TOPOLOGIES.read_text(encoding="utf-8")) if item}
    assert items[node] == sample(kind, node).to_object()


def test_every_example_is_named_in_the_readme() -> None:
    for path in EXAMPLES.glob("*.yaml"):
        assert f"[`{path.name}`]({path.name})" in README


@pytest.mark.parametrize("file", PODS, ids=lambda path: path.stem)
def test_the_pods_ask_for_the_profile_that_is_made_for_them(file: Path) -> None:
    assert yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]["schedulerName"] == "linkwise"
