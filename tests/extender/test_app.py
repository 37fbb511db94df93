"""The HTTP face: what kube-scheduler sends is answered in its form; what is no call is 400 with a sentence; nothing is ever a 500."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp

from extender.app import from_snapshot, make_app, make_probe_app
from extender.binding import Bindings
from extender.calls import Calls, Closed
from extender.settings import Settings
from extender.snapshot_file import Snapshot
from tests.builders import PodBuilder, cluster, extender_on, pod
from tests.strategies import json_objects, json_values, odd_pods

BUILT = cluster().bridges("pairs").mesh("mesh").nvswitch("switched")
TWO = pod("two").gpus(2)
VERBS = ("filter", "prioritize", "preempt", "bind")


class Client:
    """Calls an app in process, one call after the other; what the app raises is raised here, instead of becoming a 500."""

    def __init__(self, app: ASGIApp) -> None:
        self._loop = asyncio.new_event_loop()
        self._calls = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://extender")

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self._loop.run_until_complete(self._calls.post(path, **body))

    def put(self, path: str, **body: Any) -> httpx.Response:
        return self._loop.run_until_complete(self._calls.put(path, **body))

    def delete(self, path: str) -> httpx.Response:
        return self._loop.run_until_complete(self._calls.delete(path))

    def get(self, path: str) -> httpx.Response:
        return self._loop.run_until_complete(self._calls.get(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run_until_complete(self._calls.aclose())
        self._loop.close()


def app_of(**wishes: Any) -> Calls:
    app, problems = from_snapshot(BUILT.with_pods(TWO, pod("untouched").gpus(2)).snapshot(), Settings(**wishes))
    assert problems == []
    return app


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """One extender for the calls that bind nothing."""
    with Client(app_of()) as made:
        yield made


@pytest.fixture
async def calls() -> AsyncIterator[httpx.AsyncClient]:
    """A fresh extender, called from the same event loop."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app_of()), base_url="http://extender") as made:
        yield made


def nodes_call(asked: PodBuilder, *names: str) -> dict[str, Any]:
    return {"Pod": asked.build(), "Nodes": None, "NodeNames": list(names)}


def bind_call(asked: PodBuilder, node: str) -> dict[str, str]:
    return {"PodName": asked.name, "PodNamespace": asked.namespace, "PodUID": asked.uid, "Node": node}


# --- the calls of kube-scheduler ------------------------------------------------------------------------------------


async def test_the_walk_of_one_pod_over_http(calls: httpx.AsyncClient):
    filtered = (await calls.post("/filter", json=nodes_call(TWO, "pairs", "mesh", "nowhere"))).json()
    assert filtered["NodeNames"] == ["pairs", "mesh"]
    assert filtered["FailedAndUnresolvableNodes"] == {"nowhere": "linkwise: no GPUTopology is published for the node"}
    scored = (await calls.post("/prioritize", json=nodes_call(TWO, "pairs", "mesh"))).json()
    assert scored == [{"Host": "pairs", "Score": 10}, {"Host": "mesh", "Score": 2}]
    assert (await calls.post("/bind", json=bind_call(TWO, "pairs"))).json() == {"Error": ""}
    assert (await calls.post("/bind", json=bind_call(TWO, "pairs"))).json() == {"Error": ""}
    decision = (await calls.get("/api/v1/pods/default/two/decision")).json()
    assert decision["bound"] == {"node": "pairs", "error": None, "gpus": [0, 2], "bandwidthGBps": 300.0, "worstLink": "NV12"}


@pytest.mark.parametrize("case", [str.title, str.lower, str.upper], ids=lambda case: case.__name__)
@pytest.mark.parametrize("form", ["NodeNames", "Nodes"])
def test_both_forms_and_any_case_of_keys(client: Client, case: Any, form: str):
    nodes = {"items": [{"metadata": {"name": name}} for name in ("pairs", "nowhere")]}
    fields = {"Pod": TWO.build(), "NodeNames": ["pairs", "nowhere"], "Nodes": None} | ({"NodeNames": None, "Nodes": nodes} if form == "Nodes" else {})
    answer = client.post("/filter", json={case(key): value for key, value in fields.items()}).json()
    if form == "NodeNames":
        assert (answer["NodeNames"], answer["Nodes"]) == (["pairs"], None)
    else:
        assert (answer["NodeNames"], answer["Nodes"]["items"]) == (None, nodes["items"][:1])


def test_answers_have_a_length_and_are_json(client: Client):
    """kube-scheduler reads one JSON value and closes the body: a chunk left unread costs the kept-alive connection."""
    for verb in VERBS:
        answer = client.post(f"/{verb}", content=b"{}")
        assert answer.headers["content-type"] == "application/json"
        assert int(answer.headers["content-length"]) == len(answer.content)


async def test_eight_of_twenty_four_pods_over_twelve_connections_get_an_eight_gpu_node(calls: httpx.AsyncClient):
    pods = [pod(f"p{number}").gpus(1) for number in range(24)]
    turns = asyncio.Semaphore(12)

    async def bind(each: PodBuilder) -> str:
        async with turns:
            await calls.post("/filter", json=nodes_call(each, "pairs"))
            return str((await calls.post("/bind", json=bind_call(each, "pairs"))).json()["Error"])

    errors = await asyncio.gather(*(bind(each) for each in pods))
    assert errors.count("") == 8
    assert all("does not fit on node pairs any more: 0 of 8 GPUs free, 1 asked" in error for error in errors if error)


# --- bodies that are no calls ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        pytest.param(b"", "is not JSON", id="empty"),
        pytest.param(b"{", "is not JSON", id="half"),
        pytest.param(b"\xff\x00", "is not JSON", id="bytes"),
        pytest.param(b"[]", "accepted: an object", id="a list"),
        pytest.param(b"{}", "", id="an object of nothing"),
        pytest.param(b"[" * 5000, "is not JSON", id="brackets without end"),
    ],
)
def test_a_body_that_is_no_call_is_400_with_a_sentence(client: Client, verb: str, body: bytes, sentence: str):
    answer = client.post(f"/{verb}", content=body)
    assert answer.status_code == 400
    assert list(answer.json()) == ["Error"]
    assert sentence in answer.json()["Error"]


@pytest.mark.parametrize("verb", VERBS)
def test_a_body_larger_than_is_read_is_400_and_not_kept_in_memory(verb: str):
    with Client(app_of(most_body_bytes=2048)) as client:
        answer = client.post(f"/{verb}", content=b" " * 2049)
        assert (answer.status_code, answer.json()) == (400, {"Error": "the body is larger than 2048 bytes"})


def test_a_node_that_nests_deeper_than_can_be_written_is_answered_as_it_was_sent(client: Client):
    node = b'{"metadata":{"name":"pairs"},"x":' + b"[" * 500 + b"]" * 500 + b"}"
    answer = client.post("/filter", content=b'{"Pod":{},"Nodes":{"items":[' + node + b"]}}")
    assert (answer.status_code, node in answer.content) == (200, True)


def test_a_node_that_has_to_be_decoded_and_nests_deeper_than_can_be_written_is_400(client: Client):
    node = b'{"metadata":{"name":"pairs"},"x":' + b"[" * 500 + b"]" * 500 + b"}"
    answer = client.post("/filter", content=b'{"Pod":{},"Nodes":{"items":[],"items":[' + node + b"]}}")
    assert answer.status_code == 400
    assert answer.json()["Error"].startswith("Nodes of this filter call cannot be answered in kind: ")


@pytest.mark.parametrize("place", ["name", "annotation", "quantity"])
def test_a_value_that_nests_as_deep_as_a_body_can_is_answered(client: Client, place: str):
    value = "[" * 1000 + "]" * 1000
    pods = {
        "name": f'{{"metadata":{{"name":{value}}},"spec":{{"containers":[{{"name":"a","resources":{{"limits":{{"nvidia.com/gpu":"1"}}}}}}]}}}}',
        "annotation": f'{{"metadata":{{"annotations":{{"linkwise.dev/policy":{value}}}}}}}',
        "quantity": f'{{"spec":{{"containers":[{{"name":"a","resources":{{"limits":{{"nvidia.com/gpu":{value}}}}}}}]}}}}',
    }
    answer = client.post("/filter", content=f'{{"Pod":{pods[place]},"NodeNames":["mesh"]}}')
    assert answer.status_code == 200
    assert "bug" not in answer.json()["Error"]


odd_calls = st.fixed_dictionaries(
    {},
    optional={
        "Pod": odd_pods | json_objects | json_values,
        "NodeNames": st.lists(st.sampled_from(["mesh", "pairs", "nowhere"]), max_size=3) | json_values,
        "Nodes": st.just({"items": [{"metadata": {"name": "mesh"}}]}) | json_values,
        "NodeNameToMetaVictims": st.dictionaries(st.sampled_from(["mesh", "nowhere"]), st.just({"Pods": [{"UID": "u"}]}) | json_values) | json_values,
        "NodeNameToVictims": json_values,
        **{key: st.sampled_from(["a", "default", "mesh"]) | json_values for key in ("PodName", "PodNamespace", "PodUID", "Node")},
    },
)


@settings(deadline=None, max_examples=150)
@given(odd_calls | json_values)
def test_any_json_is_answered_with_200_or_400_and_a_sentence(client: Client, body: object):
    raw = json.dumps(body).encode()
    for verb in VERBS:
        answer = client.post(f"/{verb}", content=raw)
        value = answer.json()
        assert answer.status_code in (200, 400), value
        if answer.status_code == 400:
            assert len(value["Error"]) > 20
        elif verb == "prioritize":
            assert isinstance(value, list)
        else:
            assert "because of a bug" not in value.get("Error", "")
    assert b'outcome="bug"' not in client.get("/metrics").content


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=50))
def test_any_bytes_are_answered(client: Client, body: bytes):
    assert {client.post(f"/{verb}", content=body).status_code for verb in VERBS} <= {200, 400}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_is_posted_and_nothing_else(client: Client, verb: str):
    assert client.get(f"/{verb}").status_code == 405
    assert client.post(f"/{verb}/x", content=b"{}").status_code == 404


def test_a_bug_of_our_own_is_answered_in_the_form_of_the_verb_and_counted(monkeypatch: pytest.MonkeyPatch):
    """kube-scheduler takes any other status for an outage."""
    extender = extender_on(BUILT)
    monkeypatch.setattr(extender.cluster, "view", None)
    app = make_app(extender.verbs, extender.binder, extender.metrics, Settings())
    with Client(app) as client:
        assert client.post("/prioritize", json=nodes_call(TWO, "pairs")).json() == []
        answer = client.post("/filter", json=nodes_call(TWO, "pairs"))
    assert (answer.status_code, answer.json()["Error"]) == (
        200,
        "Linkwise could not answer this filter call because of a bug of its own; its log says more",
    )
    assert extender.metrics.registry.get_sample_value("linkwise_calls_total", {"verb": "filter", "outcome": "bug"}) == 1


# --- the gate -------------------------------------------------------------------------------------------------------


@dataclass
class Gatekeeper:
    """A gate that a test opens and shuts."""

    shut: Closed | None = None
    waiting_for: str = ""

    def closed(self) -> Closed | None:
        return self.shut

    def unready(self) -> str:
        return self.waiting_for


@pytest.mark.parametrize("closes", [True, False], ids=["and closes the connection", "and keeps the connection"])
def test_a_shut_gate_answers_every_verb_with_its_sentence(closes: bool):
    extender, gate = extender_on(BUILT), Gatekeeper(Closed("this replica does not lead", close_connection=closes))
    with Client(make_app(extender.verbs, extender.binder, extender.metrics, Settings(), gate)) as client:
        for verb in VERBS:
            answer = client.post(f"/{verb}", json=nodes_call(TWO, "pairs"))
            assert (answer.status_code, answer.json()) == (200, {"Error": "this replica does not lead"})
            assert (answer.headers.get("connection") == "close") is closes
        gate.shut = None
        assert client.post("/filter", json=nodes_call(TWO, "pairs")).json()["NodeNames"] == ["pairs"]


def test_ready_is_what_the_gate_says_and_healthy_is_always_said():
    extender, gate = extender_on(BUILT), Gatekeeper(waiting_for="pods have not been listed yet")
    for app in (
        make_app(extender.verbs, extender.binder, extender.metrics, Settings(), gate),
        make_probe_app(extender.verbs, extender.metrics, gate),
    ):
        gate.waiting_for = "pods have not been listed yet"
        with Client(app) as client:
            assert (client.get("/readyz").status_code, client.get("/readyz").text) == (503, "pods have not been listed yet")
            assert (client.get("/healthz").status_code, client.get("/healthz").text) == (200, "ok")
            gate.waiting_for = ""
            assert client.get("/readyz").status_code == 200


def test_the_probe_port_has_no_verbs():
    extender = extender_on(BUILT)
    with Client(make_probe_app(extender.verbs, extender.metrics, Gatekeeper())) as client:
        assert client.get("/metrics").status_code == 200
        assert client.post("/bind", json=bind_call(TWO, "pairs")).status_code == 404
        assert client.get("/api/v1/nodes").status_code == 404


# --- what people read -----------------------------------------------------------------------------------------------


def test_version(client: Client):
    assert client.get("/version").json()["version"]


def test_nodes_and_one_node(client: Client):
    listed = client.get("/api/v1/nodes").json()["nodes"]
    assert [node["name"] for node in listed] == ["pairs", "mesh", "switched"]
    assert client.get("/api/v1/nodes/mesh").json()["name"] == "mesh"


def test_the_workload_is_told_fixed_and_reset():
    with Client(app_of()) as client:
        seed = client.get("/api/v1/workload").json()
        classes = {"classes": seed["classes"], "classesFixed": False, "pricesKnown": seed["pricesKnown"]}
        assert seed == {"weights": {"1": 0.1, "2": 0.4, "4": 0.3, "8": 0.2}, "fixed": False, "seen": {}, "version": 0} | classes
        fixed = client.put("/api/v1/workload", content=b'{"weights": {"8": 3, "1": 1}}').json()
        assert fixed == {"weights": {"1": 0.25, "8": 0.75}, "fixed": True, "seen": {}, "version": 1} | classes
        assert client.get("/api/v1/workload").json() == fixed
        told = client.put("/api/v1/workload", content=b'{"classes": [{"gpus": 1, "memoryMiB": 10240, "cpuMilli": 4000, "popularity": 2}]}').json()
        assert told["classes"] == [{"gpus": 1, "cpuMilli": 4000, "memoryMiB": 10240, "model": None, "popularity": 1.0}]
        assert (told["classesFixed"], told["weights"]) == (True, {"1": 0.25, "8": 0.75})
        assert client.delete("/api/v1/workload").json() == seed | {"version": 2}


def test_only_the_replica_that_decides_takes_weights_by_hand():
    """Set on another one they would be lost without a word."""
    extender, gate = extender_on(BUILT), Gatekeeper(Closed("this replica does not lead", close_connection=True))
    with Client(make_app(extender.verbs, extender.binder, extender.metrics, Settings(), gate)) as client:
        before = client.get("/api/v1/workload").json()
        for answer in (client.put("/api/v1/workload", content=b'{"weights": {"8": 1}}'), client.delete("/api/v1/workload")):
            assert (answer.status_code, answer.json()) == (503, {"Error": "this replica does not lead"})
        assert client.get("/api/v1/workload").json() == before


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        pytest.param(b"{", "the body is no JSON: ", id="no JSON"),
        pytest.param(b"[]", 'the body has no "weights"; accepted: ', id="another JSON"),
        pytest.param(
            b'{"classes": [{"gpus": 99, "popularity": 1}]}',
            "classes has \"{'gpus': 99, 'popularity': 1}\"; accepted: a list of 1 to 200 ",
            id="classes",
        ),
        pytest.param(b'{"weights": {"2": -1}}', "weights are {2: -1.0}; accepted: ", id="a share below nothing"),
        pytest.param(b" " * 100_000, "the body is larger than 65536 bytes", id="too large"),
    ],
)
def test_a_workload_that_cannot_be_is_400_with_a_sentence_and_changes_nothing(client: Client, body: bytes, sentence: str):
    before = client.get("/api/v1/workload").json()
    refused = client.put("/api/v1/workload", content=body)
    assert refused.status_code == 400
    assert refused.json()["Error"].startswith(sentence)
    assert client.get("/api/v1/workload").json() == before


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/api/v1/nodes/nowhere", "no node nowhere with a GPUTopology is known"),
        ("/api/v1/pods/team/nobody/decision", "no decision about pod team/nobody is kept, and no such pod is known"),
    ],
)
def test_what_is_not_known_is_404_with_a_sentence(client: Client, path: str, sentence: str):
    answer = client.get(path)
    assert (answer.status_code, answer.json()) == (404, {"Error": sentence})


def test_the_decision_about_a_stored_pod_is_made_now(client: Client):
    assert client.get("/api/v1/pods/default/untouched/decision").json()["evaluatedNow"] is True


async def test_metrics_count_calls_gpus_and_nodes(calls: httpx.AsyncClient):
    await calls.post("/filter", json=nodes_call(TWO, "pairs"))
    await calls.post("/filter", content=b"{")
    await calls.post("/bind", json=bind_call(TWO, "pairs"))
    answer = await calls.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = set(answer.text.splitlines())
    assert {
        'linkwise_calls_total{outcome="answered",verb="filter"} 1.0',
        'linkwise_calls_total{outcome="no call",verb="filter"} 1.0',
        'linkwise_bindings_total{verdict="bound"} 1.0',
        'linkwise_gpus{state="free"} 18.0',
        'linkwise_gpus{state="held"} 2.0',
        'linkwise_nodes{reason="FITS"} 3.0',
        'linkwise_nodes{reason="STALE"} 0.0',
        "linkwise_promises 0.0",
        "linkwise_answering 1.0",
    } <= lines


async def test_metrics_tell_how_much_memory_of_gpus_is_given_away_and_left():
    """Eight A100 and eight H100 of 80 GB, four A100 of 40 GB; the pod has one of the first whole, and a part of another."""
    built = BUILT.with_pods(pod("holder").holding("pairs", BUILT.uuids("pairs")[0]))
    app, problems = from_snapshot(built.snapshot(), Settings())
    assert problems == []
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://linkwise") as client:
        offered = (8 * 80 + 8 * 79 + 4 * 40) * 1024**3
        assert await gauges(client) == {"offered": offered, "left": offered - 80 * 1024**3}
        part = pod("part").shared(20)
        await client.post("/filter", json=nodes_call(part, "pairs"))
        assert (await client.post("/bind", json=bind_call(part, "pairs"))).json() == {"Error": ""}
        assert await gauges(client) == {"offered": offered, "left": offered - 100 * 1024**3}


async def gauges(client: httpx.AsyncClient) -> dict[str, float]:
    """What the metrics tell of GPU memory, bytes."""
    text = (await client.get("/metrics")).text
    return {name: float(value) for name, value in re.findall(r"^linkwise_gpu_memory_(\w+)_bytes (\S+)$", text, re.MULTILINE)}


async def test_a_reserve_lowers_what_is_offered_of_each_gpu_and_is_told_in_the_refusal():
    """Of 81,559 MiB 2,048 are kept: 77 GiB are whole ones of the rest."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app_of(gpu_reserve_mib=2048)), base_url="http://linkwise") as client:
        node = (await client.get("/api/v1/nodes/switched")).json()
        assert {(gpu["memoryMiB"], gpu["offeredMiB"], gpu["leftMiB"]) for gpu in node["gpus"]} == {(81_559, 77 * 1024, 77 * 1024)}
        assert node["memoryOfferedMiB"] == 8 * 77 * 1024
        fits, refused = [(await client.post("/filter", json=nodes_call(pod("p").shared(gib), "switched"))).json() for gib in (77, 78)]
    assert fits["NodeNames"] == ["switched"]
    assert refused["FailedAndUnresolvableNodes"]["switched"] == (
        "linkwise: 78 GiB of one GPU asked, the largest of the node (NVIDIA H100 80GB HBM3) gives 77 GiB of its 81559 MiB, 2048 MiB kept in reserve"
    )


# --- put together ---------------------------------------------------------------------------------------------------


def test_problems_of_a_snapshot_are_told_and_the_rest_is_served():
    snapshot = Snapshot(
        topologies=(BUILT.topologies[0], {"metadata": {"name": "x"}, "spec": {}}), problems=("items[3]: a Pod without metadata.name",)
    )
    app, problems = from_snapshot(snapshot, Settings())
    assert problems[0] == "items[3]: a Pod without metadata.name"
    assert problems[1].startswith("GPUTopology x: ")
    with Client(app) as client:
        answer = client.post("/filter", json=nodes_call(TWO, "pairs", "x")).json()
    assert answer["NodeNames"] == ["pairs"]
    assert answer["FailedAndUnresolvableNodes"] == {"x": "linkwise: the GPUTopology of the node cannot be read"}


async def test_bindings_land_in_the_file_as_they_would_be_posted(tmp_path: Path):
    app, _ = from_snapshot(BUILT.with_pods(TWO).snapshot(), Settings(), tmp_path / "bindings")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://extender") as calls:
        await calls.post("/bind", json=bind_call(TWO, "pairs"))
    (line,) = (tmp_path / "bindings").read_text().splitlines()
    posted = json.loads(line)
    assert (posted["kind"], posted["metadata"]["uid"], posted["target"]["name"]) == ("Binding", TWO.uid, "pairs")
    assert json.loads(posted["metadata"]["annotations"]["linkwise.dev/allocation"])["node"] == "pairs"


async def test_open_promises_are_asked_after_while_the_app_lives(monkeypatch: pytest.MonkeyPatch):
    """Even where one round fails."""
    rounds: list[int] = []

    async def resolve(self: Bindings) -> None:
        rounds.append(len(rounds))
        if len(rounds) == 1:
            raise RuntimeError("one round fails")

    monkeypatch.setattr(Bindings, "resolve_open", resolve)
    monkeypatch.setattr("extender.app._RESOLVE_EVERY_S", 0.0)
    framework = app_of().others
    async with framework.router.lifespan_context(framework):
        for _ in range(20):
            await asyncio.sleep(0)
    assert len(rounds) > 2


# --- where configurations point that were written for gpushare's extender ---------------------------------------------


@pytest.fixture
def gpushare_client() -> Iterator[Client]:
    """An extender over one node of gpushare's plugin and a pod that asks for some of it."""
    app, problems = from_snapshot(cluster().gpushare("node-7", gpus=2, units=23).with_pods(pod("p").units(10)).snapshot(), Settings())
    assert problems == []
    with Client(app) as made:
        yield made


def test_a_pod_goes_through_the_routes_of_gpushares_extender(gpushare_client: Client):
    """Filter and bind are all that its configurations name; inspection shows the pod at once."""
    call = {"Pod": pod("p").units(10).build(), "NodeNames": ["node-7"], "Nodes": None}
    assert gpushare_client.post("/gpushare-scheduler/filter", json=call).json()["NodeNames"] == ["node-7"]
    bind = {"PodName": "p", "PodNamespace": "default", "PodUID": pod("p").uid, "Node": "node-7"}
    answer = gpushare_client.post("/gpushare-scheduler/bind", json=bind)
    assert (answer.status_code, answer.json(), answer.headers["Connection"]) == (200, {"Error": ""}, "close")
    everything, one = (gpushare_client.get(f"/gpushare-scheduler/inspect{node}").json() for node in ("", "/node-7"))
    assert everything == one
    assert [(device["id"], device["usedGPU"]) for device in one["nodes"][0]["devs"]] in ([(0, 10), (1, 0)], [(0, 0), (1, 10)])


def test_inspection_and_version_are_answered_as_gpushares_extender_does(gpushare_client: Client):
    """200 with a sentence in it, and plain text."""
    unknown = gpushare_client.get("/gpushare-scheduler/inspect/nowhere")
    assert (unknown.status_code, unknown.json()["nodes"]) == (200, [])
    version = gpushare_client.get("/gpushare-scheduler/version")
    assert version.text == gpushare_client.get("/version").json()["version"]
    assert version.headers["Content-Type"].startswith("text/plain")


@pytest.mark.parametrize("verb", ["prioritize", "preempt"])
def test_verbs_that_gpushares_extender_does_not_have_are_not_there(gpushare_client: Client, verb: str):
    """Whoever wants them takes our own configuration."""
    assert gpushare_client.post(f"/gpushare-scheduler/{verb}", json={}).status_code == 404
