"""Lists and watches against a real server; the sink writes down what it is told."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from kubernetes.aio.client import Configuration

from extender import raw_list
from extender.kube import watch as module
from extender.kube.client import KubeClient
from extender.kube.watch import PODS as POD_RESOURCE
from extender.kube.watch import Reflector, Resource
from tests.builders import Clock, pod
from tests.local_api_server import PODS, Fault, LocalApiServer, pod_path, until

JsonObject = dict[str, Any]


@dataclass
class Mirror:
    """A sink that is nothing but a copy: phases of pods by name. ``log`` is every step."""

    pods: dict[str, str] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    def key(self, raw: JsonObject) -> str:
        return str(raw["metadata"]["name"])

    def apply(self, raw: JsonObject) -> None:
        assert raw["kind"] == "Pod"
        self.pods[self.key(raw)] = raw["status"]["phase"]
        self.log.append(f"{self.key(raw)} {raw['status']['phase']}")

    def remove(self, raw: JsonObject) -> None:
        self.pods.pop(self.key(raw), None)
        self.log.append(f"{self.key(raw)} removed")

    def known(self) -> set[str]:
        return set(self.pods)

    def forget(self, key: str) -> None:
        self.pods.pop(key, None)
        self.log.append(f"{key} forgotten")


@dataclass
class Running:
    """A reflector that runs beside the test."""

    reflector: Reflector
    mirror: Mirror
    clock: Clock
    server: LocalApiServer

    async def watching(self) -> None:
        await until(lambda: self.server.watches(PODS) and self.reflector.age_s == 0)

    async def shows(self, **pods: str) -> None:
        await until(lambda: self.mirror.pods == pods)

    def lists(self) -> int:
        """Return how many lists were begun."""
        return sum("watch" not in call.query and "continue" not in call.query for call in self.server.asked("GET", PODS))

    def watched_from(self) -> list[str]:
        return [call.query["resourceVersion"] for call in self.server.asked("GET", PODS) if "watch" in call.query]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF_S", (0.01, 0.05))
    monkeypatch.setattr(module, "SHORT_WATCH_S", 0.05)


@pytest.fixture
async def running(server: LocalApiServer, client: KubeClient) -> AsyncIterator[Running]:
    clock, mirror = Clock(), Mirror()
    reflector = Reflector(client, POD_RESOURCE, mirror, clock)
    task = asyncio.create_task(reflector.run())
    yield Running(reflector, mirror, clock, server)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def put(server: LocalApiServer, name: str, phase: str = "Pending") -> str:
    made = {**pod(name).build(), "status": {"phase": phase}}
    return pod_path(server.put_pod(made))


# --- lists ----------------------------------------------------------------------------------------------------------


async def test_all_pages_are_taken_in_before_it_is_synced(server: LocalApiServer, running: Running) -> None:
    server.page = 2
    for name in "abcde":
        put(server, name)
    await running.reflector.synced.wait()
    assert running.mirror.pods == dict.fromkeys("abcde", "Pending")
    assert [call.query.get("continue", "").partition("/")[0] for call in server.asked("GET", PODS)][:3] == ["", "2", "4"]


async def test_calls_get_their_turn_between_the_objects_of_a_list_and_of_a_backlog_of_events(
    server: LocalApiServer, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as the time is up for which objects are taken in without a pause: here, after each."""
    monkeypatch.setattr(module, "TURN_S", -1.0)
    for number in range(50):
        put(server, f"listed-{number}")
    turns: list[int] = []

    async def call_all_the_time() -> None:
        while True:
            await asyncio.sleep(0)
            turns.append(len(running.mirror.log))

    calling = asyncio.create_task(call_all_the_time())
    await running.watching()
    for number in range(50):
        put(server, f"watched-{number}")
    await until(lambda: len(running.mirror.pods) == 100)
    calling.cancel()
    assert set(turns) >= set(range(1, 100)), "somebody had a turn after every single object"


async def test_an_answer_that_is_no_list_is_tried_again(server: LocalApiServer, running: Running) -> None:
    put(server, "a")
    server.fault("GET", PODS, Fault.GARBAGE)
    await running.watching()
    assert running.mirror.pods == {"a": "Pending"}


async def test_a_list_that_breaks_off_is_listed_again_and_nothing_is_forgotten_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection ends between two objects, as when an API server is stopped while it writes."""
    monkeypatch.setattr(raw_list, "SLICE", 64)
    names = [f"pod-{number}" for number in range(40)]
    body = orjson.dumps({"metadata": {"resourceVersion": "7"}, "items": [{**pod(name).build(), "status": {"phase": "Running"}} for name in names]})
    answers = iter([body[: body.index(b"},{", len(body) // 2) + 1], body])

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + next(answers, b""))
        await writer.drain()
        writer.close()

    configuration, mirror = Configuration(), Mirror(pods={"gone": "Running"})
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        configuration.host = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        async with KubeClient(configuration) as client:
            reflector = Reflector(client, POD_RESOURCE, mirror, Clock())
            task = asyncio.create_task(reflector.run())
            await reflector.synced.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert mirror.pods == dict.fromkeys(names, "Running")
    assert len(mirror.log) > len(names) + 1, "what came before the end was taken in"
    assert mirror.log[-1] == "gone forgotten"
    assert mirror.log.count("gone forgotten") == 1


async def test_a_list_asks_for_the_truth_of_its_moment(running: Running) -> None:
    await running.watching()
    assert "resourceVersion" not in running.server.asked("GET", PODS)[0].query, "0 would be answered from a cache that may lag"


async def test_a_page_that_has_expired_begins_the_list_anew(server: LocalApiServer, running: Running) -> None:
    server.page = 1
    for name in "abc":
        put(server, name)
    held = server.fault("GET", PODS, Fault.HOLD_ANSWER)
    await held.hit.wait()
    server.expire()
    held.go.set()
    await running.watching()
    assert running.mirror.pods == dict.fromkeys("abc", "Pending")
    assert running.lists() == 2


async def test_what_a_new_list_lacks_is_forgotten_and_nothing_else(server: LocalApiServer, running: Running) -> None:
    paths = [put(server, name) for name in "abc"]
    await running.watching()
    server.delete(paths[1], told=False)
    running.clock.now += 1
    await running.reflector.list_afresh()
    assert running.mirror.pods == {"a": "Pending", "c": "Pending"}
    assert [line for line in running.mirror.log if "forgotten" in line] == ["b forgotten"]


async def test_what_is_created_while_the_pages_of_a_list_are_read_stays(server: LocalApiServer, running: Running) -> None:
    server.page = 2
    for name in "abc":
        put(server, name)
    held = server.fault("GET", PODS, Fault.HOLD_ANSWER)
    await held.hit.wait()
    running.mirror.pods["own"] = "Running"  # bound by this very process while the list was under way
    held.go.set()
    await running.reflector.synced.wait()
    assert running.mirror.pods["own"] == "Running"


# --- watches --------------------------------------------------------------------------------------------------------


async def test_events_are_taken_in_as_they_come(server: LocalApiServer, running: Running) -> None:
    path = put(server, "a")
    await running.watching()
    put(server, "b")
    put(server, "a", "Running")
    server.delete(path)
    await running.shows(b="Pending")
    assert running.mirror.log == ["a Pending", "b Pending", "a Running", "a removed"]


async def test_nothing_is_missed_between_list_and_watch(server: LocalApiServer, running: Running) -> None:
    held = server.fault("GET", PODS, Fault.HOLD_ANSWER)
    await held.hit.wait()
    put(server, "a")
    held.go.set()
    await running.shows(a="Pending")


async def test_a_watch_that_ends_goes_on_from_the_last_bookmark_without_a_new_list(server: LocalApiServer, running: Running) -> None:
    await running.watching()
    server.bookmark()
    marked = str(server._version)
    await asyncio.sleep(0.06)  # shorter watches are not reopened at once
    running.clock.now += 300
    server.end_watches()
    await until(lambda: len(running.watched_from()) == 2)
    put(server, "a")
    await running.shows(a="Pending")
    assert running.watched_from()[1] == marked
    assert running.lists() == 1


async def test_a_server_that_ends_every_watch_at_once_is_not_asked_without_pause(server: LocalApiServer, running: Running) -> None:
    await running.watching()
    for _ in range(3):
        await until(lambda: server.watches(PODS))
        server.end_watches()
        await until(lambda: not server.watches(PODS))
    assert len(running.watched_from()) <= 3
    put(server, "a")
    await running.shows(a="Pending")


@pytest.mark.parametrize(
    "lose",
    [
        pytest.param(lambda server: server.cut_watches(), id="a connection that is cut"),
        pytest.param(lambda server: server.say(b'{"type": "MODIFIED", "obj'), id="half a line"),
        pytest.param(lambda server: server.say(b"<html>\n"), id="a line that is no JSON"),
        pytest.param(lambda server: server.say(b'{"type":"ERROR","object":{"code":410,"message":"too old"}}\n'), id="a version that has expired"),
        pytest.param(lambda server: server.say(b'{"type":"ERROR","object":{"code":500,"message":"etcd"}}\n'), id="an error of the server"),
    ],
)
async def test_whatever_ends_a_watch_a_new_list_repairs_what_was_missed(server: LocalApiServer, running: Running, lose: Any) -> None:
    paths = [put(server, name) for name in "ab"]
    await running.watching()
    server.delete(paths[0], told=False)
    lose(server)
    server.end_watches()
    await running.shows(b="Pending")
    await running.watching()
    put(server, "c")
    await running.shows(b="Pending", c="Pending")


async def test_a_watch_from_an_expired_version_is_a_new_list(server: LocalApiServer, running: Running) -> None:
    held = server.fault("GET", PODS, Fault.HOLD_ANSWER)
    await held.hit.wait()
    put(server, "a")
    server.expire()
    held.go.set()
    await running.shows(a="Pending")
    await running.watching()
    assert running.lists() == 2


async def test_a_watch_that_is_always_refused_does_not_become_a_storm_of_lists(server: LocalApiServer, running: Running) -> None:
    await running.watching()
    asked = running.lists()
    original = server._watch

    async def refused(*_: Any) -> Any:
        raise ConnectionResetError

    server._watch = refused  # type: ignore[method-assign]  # lists are answered, watches never
    server.cut_watches()
    await asyncio.sleep(0.5)
    server._watch = original  # type: ignore[method-assign]
    assert running.lists() - asked <= 25, "the pause grows to 50 ms, halved at most"
    await running.watching()


# --- age ------------------------------------------------------------------------------------------------------------


async def test_the_state_ages_while_no_watch_is_open_from_the_moment_of_the_loss(server: LocalApiServer, running: Running) -> None:
    await running.watching()
    running.clock.now += 100
    assert running.reflector.age_s == 0
    down = server.fault("GET", PODS, Fault.DROP, times=1000)
    server.cut_watches()
    await until(lambda: not server.watches(PODS) and down.hit.is_set())
    running.clock.now += 7
    assert running.reflector.age_s == 7
    down.times = 0
    await running.watching()


async def test_a_list_that_took_long_is_as_old_as_its_question(server: LocalApiServer, running: Running) -> None:
    await running.watching()
    held = server.fault("GET", PODS, Fault.HOLD_ANSWER)
    server.cut_watches()
    await held.hit.wait()
    running.clock.now += 20
    no_watch = server.fault("GET", PODS, Fault.HOLD)
    held.go.set()
    await no_watch.hit.wait()
    assert running.reflector.age_s == 20
    no_watch.go.set()


# --- listing afresh -------------------------------------------------------------------------------------------------


async def test_a_list_that_was_under_way_is_not_fresh(server: LocalApiServer, running: Running) -> None:
    held = server.fault("GET", PODS, Fault.HOLD_ANSWER)
    await held.hit.wait()
    running.clock.now += 1
    fresh = asyncio.create_task(running.reflector.list_afresh())
    await asyncio.sleep(0)
    put(server, "bound by the leader before")
    held.go.set()
    await fresh
    assert running.lists() == 2
    assert "bound by the leader before" in running.mirror.pods


async def test_a_fresh_list_does_not_wait_for_the_end_of_a_watch_or_of_a_pause(
    server: LocalApiServer, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running.watching()
    running.clock.now += 1
    await running.reflector.list_afresh()
    await running.watching()
    await asyncio.sleep(0.05)
    assert running.lists() == 2, "asked for once, listed once"
    monkeypatch.setattr(module, "BACKOFF_S", (60.0, 60.0))
    down = server.fault("GET", PODS, 500)
    server.cut_watches()
    await down.hit.wait()
    await asyncio.sleep(0.01)
    running.clock.now += 1
    async with asyncio.timeout(5):
        await running.reflector.list_afresh()


async def test_a_fresh_list_waits_for_a_server_that_is_away(server: LocalApiServer, running: Running) -> None:
    await running.watching()
    running.clock.now += 1
    down = server.fault("GET", PODS, Fault.DROP, times=3)
    async with asyncio.timeout(5):
        await running.reflector.list_afresh()
    assert down.times == 0


async def test_a_resync_lists_again_although_nobody_noticed_a_loss(
    server: LocalApiServer, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESYNC_S", 0.1)
    path = put(server, "a")
    mirror = Mirror()
    task = asyncio.create_task(Reflector(client, POD_RESOURCE, mirror, Clock()).run())
    await until(lambda: "a" in mirror.pods)
    server.delete(path, told=False)
    await until(lambda: not mirror.pods)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_kinds_that_lists_leave_out_are_filled_in(server: LocalApiServer, client: KubeClient) -> None:
    mirror = Mirror()
    bare = pod("a").build()
    del bare["kind"]
    server.put_pod(bare)
    task = asyncio.create_task(Reflector(client, Resource(PODS, "Pod"), mirror, Clock()).run())
    await until(lambda: "a" in mirror.pods)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
