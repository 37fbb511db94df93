"""The startup taint goes with one write, by who leads, when its Node waits for nothing; what somebody else does at that moment stands."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import structlog

from extender.cluster.startup_taint import Awaited, TaintedNode, read_tainted
from extender.kube.client import KubeClient
from extender.kube.untaint import AGAIN_AFTER_S, SAY_AFTER_S, SHOWN_WITHIN_S, Untainter
from tests.builders import Clock
from tests.local_api_server import Fault, LocalApiServer

JsonObject = dict[str, Any]

NODES = "/api/v1/nodes/"
OURS = {"key": "linkwise.dev/agent-not-ready", "effect": "NoSchedule"}
OTHER = {"key": "team/other", "effect": "NoSchedule"}


class Stage:
    """Some Nodes on an API server, as a watch has shown them by now, and who looks after their taints."""

    def __init__(self, server: LocalApiServer, client: KubeClient) -> None:
        self.server = server
        self.clock = Clock()
        self.leads = True
        self.awaited: dict[str, Awaited] = {}
        self._shown: dict[str, TaintedNode | None] = {}
        self.untainter = Untainter(client, self._tainted, lambda: self.leads, self.clock)

    def _tainted(self) -> list[tuple[TaintedNode, Awaited]]:
        return [(node, self.awaited.get(name, Awaited.NOTHING)) for name, node in self._shown.items() if node is not None]

    def put(self, name: str, *taints: JsonObject, uid: str = "") -> None:
        """Store a Node; no watch has shown it yet."""
        self.server.put(f"{NODES}{name}", {"metadata": {"name": name, "uid": uid or f"uid-{name}"}, "spec": {"taints": list(taints)}})

    def show(self) -> None:
        """Let the watch show everything as it is."""
        self._shown = {path.removeprefix(NODES): read_tainted(path.removeprefix(NODES), raw) for path, raw in self.server.objects.items()}

    def taints(self, name: str) -> list[JsonObject]:
        found: list[JsonObject] = self.server.objects[f"{NODES}{name}"]["spec"]["taints"]
        return found

    def writes(self) -> list[str]:
        return [call.path.removeprefix(NODES) for call in self.server.asked("PATCH", f"{NODES}.*")]


@pytest.fixture
async def stage(server: LocalApiServer, client: KubeClient) -> AsyncIterator[Stage]:
    yield Stage(server, client)
    assert {call.method for call in server.calls} <= {"PATCH"}, "nothing is read: the watch tells"


async def test_a_node_that_waits_for_nothing_loses_the_taint_and_no_other(stage: Stage) -> None:
    stage.put("a", OTHER, OURS, {**OURS, "effect": "NoExecute"})
    stage.put("b", OTHER)
    stage.show()
    await stage.untainter.look()
    assert stage.taints("a") == [OTHER]
    assert stage.writes() == ["a"]


@pytest.mark.parametrize("awaited", [one for one in Awaited if one is not Awaited.NOTHING])
async def test_nothing_is_written_while_a_node_waits(stage: Stage, awaited: Awaited) -> None:
    stage.put("a", OURS)
    stage.awaited["a"] = awaited
    stage.show()
    await stage.untainter.look()
    assert stage.writes() == []
    stage.awaited.clear()
    await stage.untainter.look()
    assert stage.taints("a") == []


async def test_a_replica_that_does_not_lead_writes_nothing(stage: Stage) -> None:
    stage.put("a", OURS)
    stage.show()
    stage.leads = False
    await stage.untainter.look()
    assert stage.writes() == []


async def test_a_leader_that_is_one_no_longer_stops_in_the_midst(stage: Stage) -> None:
    for number in range(40):
        stage.put(f"n{number}", OURS)
    stage.show()
    held = stage.server.fault("PATCH", f"{NODES}n0", Fault.HOLD)

    def stand_down() -> None:
        stage.leads = False
        held.go.set()

    await run_beside(stage.untainter.look, held.hit.wait, stand_down)
    assert len(stage.writes()) == 16, "those that were on their way"


async def run_beside(look: Callable[[], Any], until: Callable[[], Any], then: Callable[[], None]) -> None:
    """Look, and do something as soon as it has come so far."""
    looking = asyncio.create_task(look())
    await until()
    then()
    await looking


async def test_what_was_written_is_not_written_again_before_the_watch_shows_it(stage: Stage) -> None:
    stage.put("a", OURS)
    stage.show()
    await stage.untainter.look()
    for _ in range(3):
        await stage.untainter.look()
    assert stage.writes() == ["a"]


async def test_a_taint_that_somebody_puts_back_is_taken_off_again(stage: Stage) -> None:
    """By an administrator who wants the node looked at anew; it is ready, so it goes."""
    stage.put("a", OURS)
    stage.show()
    await stage.untainter.look()
    stage.show()
    await stage.untainter.look()
    stage.put("a", OURS)
    stage.show()
    await stage.untainter.look()
    assert stage.writes() == ["a", "a"]
    assert stage.taints("a") == []


async def test_a_write_that_the_watch_never_shows_is_tried_again(stage: Stage) -> None:
    stage.put("a", OURS)
    stage.show()
    await stage.untainter.look()
    stage.put("a", OURS)
    stage.clock.now += SHOWN_WITHIN_S
    await stage.untainter.look()
    assert stage.taints("a") == []


async def test_a_taint_that_comes_at_the_same_moment_stays(stage: Stage) -> None:
    stage.put("a", OURS)
    stage.show()
    stage.put("a", OURS, OTHER)
    await stage.untainter.look()
    assert stage.taints("a") == [OTHER]


async def test_taints_that_have_become_others_are_left_alone_and_looked_at_again(stage: Stage) -> None:
    stage.put("a", OURS, OTHER)
    stage.show()
    stage.put("a", OTHER, OURS)
    with structlog.testing.capture_logs() as logs:
        await stage.untainter.look()
    assert stage.taints("a") == [OTHER, OURS]
    assert [line["event"] for line in logs] == ["taints changed meanwhile, looking again"]
    stage.show()
    await stage.untainter.look()
    assert stage.taints("a") == [OTHER, OURS], "not at once"
    stage.clock.now += AGAIN_AFTER_S[0]
    await stage.untainter.look()
    assert stage.taints("a") == [OTHER]


async def test_a_node_that_registers_anew_under_its_name_is_not_held_to_what_was_tried_on_the_one_before(stage: Stage) -> None:
    stage.put("a", OURS)
    stage.show()
    with stage.server.failing("PATCH", f"{NODES}a", 500):
        await stage.untainter.look()
    stage.put("a", OURS, uid="uid-of-another")
    await stage.untainter.look()
    assert stage.taints("a") == [OURS], "of the one before nothing is written to it"
    stage.show()
    await stage.untainter.look()
    assert stage.taints("a") == []


@pytest.mark.parametrize(
    ("what", "said"),
    [
        pytest.param(Fault.DROP, "startup taint not taken off", id="the API server is gone"),
        pytest.param(500, "startup taint not taken off", id="it fails"),
        pytest.param(409, "taints changed meanwhile, looking again", id="it was busy with it"),
        pytest.param(403, "startup taint not taken off", id="it forbids it"),
        pytest.param(404, "startup taint not taken off", id="the node is gone"),
    ],
)
async def test_what_fails_is_tried_again_less_and_less_often(stage: Stage, what: Fault | int, said: str) -> None:
    stage.put("a", OURS)
    stage.show()
    tried_at = []
    with stage.server.failing("PATCH", f"{NODES}a", what), structlog.testing.capture_logs() as logs:
        for _ in range(400):
            before = len(stage.writes())
            await stage.untainter.look()
            if len(stage.writes()) > before:
                tried_at.append(stage.clock.now - 1000)
            stage.clock.now += AGAIN_AFTER_S[0]
    pauses = [later - earlier for earlier, later in itertools.pairwise(tried_at)]
    assert pauses == [0.5, 1, 2, 4, 8, 16, *[30] * (len(pauses) - 6)]
    assert len(pauses) > 6
    assert {line["event"] for line in logs} == {said}
    assert ("admission-policy" in str(logs[0])) == (what == 403)
    stage.clock.now += AGAIN_AFTER_S[1]
    await stage.untainter.look()
    assert stage.taints("a") == []


async def test_a_taint_that_stays_for_long_is_said_once_with_what_it_waits_for(stage: Stage) -> None:
    stage.put("a", OURS)
    stage.awaited["a"] = Awaited.TOPOLOGY
    stage.show()
    with structlog.testing.capture_logs() as logs:
        await stage.untainter.look()
        assert logs == []
        stage.clock.now += SAY_AFTER_S
        for awaited in (Awaited.TOPOLOGY, Awaited.TOPOLOGY, Awaited.HAND_OFF):
            stage.awaited["a"] = awaited
            await stage.untainter.look()
    assert [(line["event"], line["node"], line["awaited"]) for line in logs] == [
        ("startup taint stays", "a", "topology"),
        ("startup taint stays", "a", "hand-off"),
    ]
