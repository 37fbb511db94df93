"""Ids are no identity: what a real kubelet wrote names the container that starts, and its predecessor with the same ids never does.

`tests/topology/agent/kubelet` is what kubelet 1.36 said in each situation, its checkpoint at every PreStartContainer among it; here our tokens stand in place
of the recording plugin's. The last test lets ids go to and fro with the whole agent, over real sockets, while everything that may lag does.
"""

import base64
import json
import random
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.api_door import Raw, api_door
from tests.builders import pod
from tests.hand_off_node import GPU, NODE, HandOffNode, hand_off_node
from topology.agent.api_server import ApiServer
from topology.agent.handoff.checkpoint import CDI_KIND, FILE_NAME
from topology.agent.handoff.identity import Identity, IdentityError, Starting
from topology.agent.handoff.kubelet import Kubelet
from topology.agent.handoff.pods import Pods
from topology.agent.handoff.records import Records
from topology.agent.handoff.wire import MESSAGES
from topology.agent.messages import serialized
from topology.agent.pod_resources import Claim

JsonObject = dict[str, Any]

RECORDED = Path(__file__).parents[1] / "kubelet"
TURNS = 500

# What may start at each PreStartContainer of a situation: the pod, and all its containers of these very ids.
SITUATIONS = {
    "single-container": ["single: main"],
    "two-containers": ["two: first", "two: second"],
    "three-at-once": ["c: main", "a: main", "b: main"],
    "init-asks-less": ["grows: init", "grows: main"],
    "init-asks-more": ["shrinks: init", "shrinks: main"],
    "init-alone-asks": ["init-only: init"],
    "two-inits": ["two-inits: init-a, init-b", "two-inits: init-a, init-b", "two-inits: first", "two-inits: second"],
    "sidecar": ["with-sidecar: side", "with-sidecar: init, main", "with-sidecar: init, main"],
    "static-pod": ["static-real-node: main"],
    "same-name-again": ["keeps: main", "web-0: main", "web-0: main"],
    "ids-come-back": ["slow: main", "next: main"],
    "ended-pod": ["ends: main", "takes-all: main"],
    "refused-at-prestart": ["refused: main"],
    "restarts-of-a-container": ["crashes: main"] * 3,
    "kubelet-restarts": ["runs: main", "after: main"],
    "kubelet-restarts-during-back-off": ["backs-off: main"] * 4,
    "kubelet-restarts-during-back-off-plugin-late": ["runs: main", *["backs-off: main"] * 3],
    "plugin-restarts": ["runs: main", "after: main"],
    "reboot-plugin-early": ["before: main"] * 2,
    "reboot-plugin-late": ["before: main"],
}


def recorded(name: str) -> JsonObject:
    found: JsonObject = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
    return found


def ours(token: str) -> str:
    """Return a token of ours for one of the recording plugin, `plain.example/gpu=NAME`."""
    return f"t{token.partition('=')[2]}"


def by_us(checkpoint: JsonObject) -> bytes:
    """Return a checkpoint as it would be had our plugin answered; everything but the answers is kubelet's."""
    checkpoint = deepcopy(checkpoint)
    for entry in checkpoint["Data"]["PodDeviceEntries"]:
        answer = MESSAGES["ContainerAllocateResponse"].FromString(base64.b64decode(entry["AllocResp"]))
        told = MESSAGES["ContainerAllocateResponse"](cdi_devices=[{"name": f"{CDI_KIND}={ours(answer.cdi_devices[0].name)}"}])
        entry["AllocResp"] = base64.b64encode(serialized(told)).decode()
    return json.dumps(checkpoint).encode()


class Played:
    """A situation, played call by call to an `Identity` over kubelet's files; ``is_late``: the checkpoint comes when kubelet is asked for it."""

    def __init__(self, name: str, directory: Path, api: ApiServer, *, is_late: bool = False) -> None:
        self._situation = recorded(name)
        self._token = ""
        self._directory = directory
        self._is_late = is_late
        self._claims: frozenset[Claim] = frozenset()
        self.is_stuck = False  # kubelet writes nothing any more
        self._now: JsonObject = {}
        self.records = Records(directory / "tokens", token=lambda: self._token)
        self.pods = Pods(api, "real-node")
        self.pods.replace(self._situation["pods"])
        kubelet = Kubelet(directory, directory / "none.sock", self._write_when_asked, lambda _: self._claims)
        self.identity = Identity(kubelet, self.pods, self.records, lambda _: None)

    def starts(self) -> Iterator[list[Starting]]:
        """Yield what may start at each PreStartContainer."""
        for call in self._situation["calls"]:
            if call.get("call") == "Allocate":
                for request, answer in zip(call["request"]["container_requests"], call["answer"]["container_responses"], strict=True):
                    self._token = ours(answer["cdi_devices"][0]["name"])
                    self.records.issue(GPU, frozenset(request["devices_ids"]))
            elif call.get("call") == "PreStartContainer" and "checkpoint" in call:
                yield self._start(call)

    def _start(self, call: JsonObject) -> list[Starting]:
        ids = frozenset(call["request"]["devices_ids"])
        self._now = call["checkpoint"]
        self._claims = frozenset(_claims(call["pod_resources"]))
        self._learn(call, ids)
        if not self._is_late:
            self._write()
        return self.identity.of(GPU, ids)

    def _learn(self, call: JsonObject, ids: frozenset[str]) -> None:
        """Let the cache have pods that were gone when the recording ended."""
        for entry in call["checkpoint"]["Data"]["PodDeviceEntries"]:
            if {one for some in entry["DeviceIDs"].values() for one in some} == ids and self.pods.cached(entry["PodUID"]) is None:
                namespace, name, container = call["holders"][0].split("/")
                metadata = {"uid": entry["PodUID"], "namespace": namespace, "name": name}
                self.pods.take("ADDED", {"metadata": metadata, "spec": {"containers": [{"name": container}]}})

    def _write_when_asked(self) -> None:
        if not self.is_stuck:
            self._write()

    def _write(self) -> None:
        new = self._directory / "new"
        new.write_bytes(by_us(self._now))
        new.replace(self._directory / FILE_NAME)


def _claims(pod_resources: list[JsonObject]) -> Iterator[Claim]:
    for each in pod_resources:
        for container in each["containers"]:
            for entry in container.get("devices", ()):
                for device in entry["device_ids"]:
                    yield Claim(each["namespace"], each["name"], container["name"], entry["resource_name"], device)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Give an API server that is away."""
    with api_door() as door:
        door.fault = lambda _: Raw(cut=True)
        api = ApiServer.connect(door.kubeconfig(tmp_path_factory.mktemp("door")))
        yield api
        api.close()


def told(starting: list[Starting]) -> str:
    (name,) = {one.pod.name for one in starting}
    return f"{name}: {', '.join(sorted(one.container.name for one in starting))}"


@pytest.mark.parametrize("is_late", [pytest.param(False, id="written in time"), pytest.param(True, id="written when asked for")])
@pytest.mark.parametrize("name", sorted(SITUATIONS))
def test_a_real_checkpoint_names_the_containers_that_may_start(name: str, is_late: bool, tmp_path: Path, api: ApiServer) -> None:
    """And the token that was issued last for these ids is among theirs; until the new file is there the old one names nobody."""
    played = Played(name, tmp_path, api, is_late=is_late)
    found = []
    for starting in played.starts():
        found.append(told(starting))
        newest = played.records.newest(GPU, starting[0].entry.ids)
        assert newest is not None
        assert newest.token in {one.entry.token for one in starting}
    assert found == SITUATIONS[name]


def test_every_recorded_situation_is_played() -> None:
    """A new recording is not forgotten."""
    assert {path.stem for path in RECORDED.glob("*.json")} == set(SITUATIONS)


def test_a_namesake_with_the_same_ids_is_another_pod(tmp_path: Path, api: ApiServer) -> None:
    """Also while the cache still has both."""
    uids = [starting[0].pod.uid for starting in Played("same-name-again", tmp_path, api).starts()]
    assert len(set(uids)) == 3


@pytest.mark.parametrize("name", ["same-name-again", "ids-come-back", "ended-pod"])
def test_a_checkpoint_that_still_names_the_predecessor_is_not_believed(
    name: str, tmp_path: Path, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing starts for as long as kubelet writes no other."""
    monkeypatch.setattr("topology.agent.handoff.kubelet._REWRITTEN_WITHIN_S", 0.02)
    played = Played(name, tmp_path, api, is_late=True)
    starts = played.starts()
    for _ in SITUATIONS[name][:-1]:
        next(starts)
    played.is_stuck = True
    with pytest.raises(IdentityError, match="does not write it anew"):
        next(starts)


def test_the_stand_in_for_kubelet_writes_its_checkpoint_as_the_real_one_does(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The same names, in the same order, with values of the same types."""
    with hand_off_node(tmp_path_factory.mktemp("n")) as node:
        node.start_agent()
        node.kubelet.admit(node.bind(pod("p").holding(NODE, node.topology.spec.gpus[0].uuid)))
        written = json.loads((node.settings.device_plugin_dir / FILE_NAME).read_text())
    for path in RECORDED.glob("*.checkpoint"):
        assert form(written) == form(json.loads(path.read_text()))


def form(checkpoint: JsonObject) -> list[object]:
    """Return names and types of a checkpoint."""
    data = checkpoint["Data"]
    entry = data["PodDeviceEntries"][0]
    ids = [(type(numa_node), type(some), {type(one) for one in some}) for numa_node, some in entry["DeviceIDs"].items()][:1]
    answer = MESSAGES["ContainerAllocateResponse"].FromString(base64.b64decode(entry["AllocResp"]))
    devices = {(type(key), type(some)) for key, some in data["RegisteredDevices"].items()}
    return [
        [*checkpoint],
        [*data],
        [(key, type(value)) for key, value in entry.items()],
        ids,
        len(answer.cdi_devices),
        devices,
        type(checkpoint["Checksum"]),
    ]


def test_the_same_id_goes_to_and_fro_between_two_pods_500_times_and_never_brings_the_predecessor_s_gpu(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Two names take turns on the only id that kubelet has left, each time with another plan, while the agent's cache and kubelet's checkpoint lag, containers start again, and agent and kubelet restart."""
    chosen = random.Random(500)
    with hand_off_node(tmp_path_factory.mktemp("n")) as node:
        node.start_agent()
        gpus = [gpu.uuid for gpu in node.topology.spec.gpus]
        # Admitted, and never started: it has ids, and holds nothing.
        node.kubelet.admit(waits := node.bind(pod("waits").gpus(len(gpus) - 1).bound_to(NODE, None, "Pending")))
        had, plan = set[frozenset[str]](), ""
        for turn in range(TURNS):
            plan = chosen.choice([uuid for uuid in gpus if uuid != plan])
            raw = node.bind(pod(("left", "right")[turn % 2]).holding(NODE, plan), f"uid-{turn}")
            if chosen.random() < 0.5:
                node.catch_up()
            node.kubelet.writes = chosen.random() < 0.8
            node.kubelet.admit(raw)
            node.kubelet.writes = True
            had.add(node.kubelet.given[f"uid-{turn}", "main", GPU].ids)
            assert node.start(raw) == {"main": {plan}}, f"turn {turn}"
            if chosen.random() < 0.02:
                node.restart_agent()
            if chosen.random() < 0.02:
                restart_kubelet(node, waits, raw)
            if chosen.random() < 0.2:
                assert node.start(raw) == {"main": {plan}}, f"turn {turn}, started again"
            node.delete(raw)
        assert len(had) == 1


def restart_kubelet(node: HandOffNode, *pods: JsonObject) -> None:
    """End kubelet and start it again, with these pods on it."""
    node.kubelet.stop()
    node.kubelet.start()
    node.wait_for_devices()
    for raw in pods:
        node.kubelet.admit(raw)
