import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

import pytest

from extender.kube import events as module
from extender.kube.client import KubeClient
from extender.kube.events import KubeEvents
from extender.notices import Notice, NoticeReason
from tests.local_api_server import Fault, LocalApiServer, until

EVENTS = "/api/v1/namespaces/default/events"


def notice(name: str = "train", message: str = "on node-a", reason: NoticeReason = NoticeReason.PLACED) -> Notice:
    return Notice("default", name, f"uid-{name}", reason, message)


@pytest.fixture
async def started(client: KubeClient, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[[bool], KubeEvents]]:
    monkeypatch.setattr(module, "PER_SECOND", 1000.0)
    tasks: list[asyncio.Task[None]] = []

    def start(leads: bool = True, binding: Callable[[], bool] = lambda: False) -> KubeEvents:
        events = KubeEvents(client, "linkwise", lambda: leads, binding)
        tasks.append(asyncio.create_task(events.run()))
        return events

    yield start
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


Start = Callable[..., KubeEvents]


def posted(server: LocalApiServer) -> list[str]:
    return [call.body["message"] for call in server.asked("POST", EVENTS)]


@pytest.mark.parametrize(("reason", "kind"), [(reason, "Normal" if reason is NoticeReason.PLACED else "Warning") for reason in NoticeReason])
async def test_a_notice_becomes_an_event_on_its_pod(server: LocalApiServer, started: Start, reason: NoticeReason, kind: str) -> None:
    started().record(notice(reason=reason))
    await until(lambda: posted(server))
    event = server.asked("POST", EVENTS)[0].body
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "train", "uid": "uid-train"}
    assert (event["reason"], event["message"], event["type"], event["source"]) == (reason, "on node-a", kind, {"component": "linkwise"})
    assert event["metadata"]["name"].startswith("train.")
    assert event["firstTimestamp"] == event["lastTimestamp"]


async def test_bindings_go_first_and_the_event_tells_when_it_was_noticed(
    server: LocalApiServer, started: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_AGAIN_S", 0.0)
    in_hand = [True] * 20
    events = started(binding=lambda: bool(in_hand and in_hand.pop()))
    before = datetime.now(UTC).replace(microsecond=0)
    events.record(notice())
    after = datetime.now(UTC)
    await until(lambda: posted(server))
    assert in_hand == []
    told = datetime.fromisoformat(server.asked("POST", EVENTS)[0].body["firstTimestamp"])
    assert before <= told <= after


@pytest.mark.parametrize(
    ("most_waiting", "first_s"), [pytest.param(4, 3600.0, id="half of the queue is full"), pytest.param(1000, 0.0, id="it has waited for long")]
)
async def test_bindings_that_never_end_do_not_keep_events_for_ever(
    server: LocalApiServer, started: Start, monkeypatch: pytest.MonkeyPatch, most_waiting: int, first_s: float
) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", most_waiting)
    monkeypatch.setattr(module, "BINDINGS_FIRST_S", first_s)
    events = started(binding=lambda: True)
    for number in range(3):
        events.record(notice(message=f"{number}"))
    await until(lambda: "0" in posted(server))


async def test_the_same_sentence_about_the_same_pod_is_said_once(server: LocalApiServer, started: Start) -> None:
    events = started()
    for name, message in (("a", "x"), ("a", "x"), ("b", "x"), ("a", "y"), ("a", "x")):
        events.record(notice(name, message))
    await until(lambda: len(posted(server)) == 3)
    events.record(notice("c", "the last"))
    await until(lambda: "the last" in posted(server))
    assert posted(server) == ["x", "x", "y", "the last"]


async def test_a_replica_that_does_not_lead_says_nothing(server: LocalApiServer, started: Start) -> None:
    started(leads=False).record(notice(message="not mine"))
    started().record(notice(message="mine"))
    await until(lambda: posted(server))
    assert posted(server) == ["mine"]


async def test_a_refused_or_unanswered_event_does_not_stop_the_next(server: LocalApiServer, started: Start) -> None:
    server.fault("POST", EVENTS, 403)
    server.fault("POST", EVENTS, Fault.DROP)
    events = started()
    for message in ("refused", "lost", "told"):
        events.record(notice(message=message))
    await until(lambda: len(posted(server)) == 3)
    assert [item["message"] for path, item in server.objects.items() if path.startswith(EVENTS)] == ["told"]


async def test_more_than_can_wait_is_dropped_and_may_be_said_later(
    server: LocalApiServer, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PER_SECOND", 1000.0)
    monkeypatch.setattr(module, "MOST_WAITING", 2)
    events = KubeEvents(client, "linkwise", lambda: True)
    for message in ("first", "second", "too many"):
        events.record(notice(message=message))
    task = asyncio.create_task(events.run())
    await until(lambda: len(posted(server)) == 2)
    events.record(notice(message="too many"))
    await until(lambda: len(posted(server)) == 3)
    assert posted(server) == ["first", "second", "too many"]
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_posting_keeps_a_pace(server: LocalApiServer, started: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    events = started()
    monkeypatch.setattr(module, "PER_SECOND", 2.0)
    events.record(notice(message="first"))
    await until(lambda: posted(server))
    events.record(notice(message="second"))
    await asyncio.sleep(0.05)
    assert posted(server) == ["first"]


async def test_the_longest_names_and_sentences_fit_into_an_event(server: LocalApiServer, started: Start) -> None:
    started().record(notice("a" * 235 + "-" + "b" * 17, "x" * 5000))
    await until(lambda: posted(server))
    event = server.asked("POST", EVENTS)[0].body
    assert event["metadata"]["name"].startswith("a" * 235 + ".")
    assert len(event["metadata"]["name"]) <= 253
    assert len(event["message"]) == 1024
    assert event["involvedObject"]["name"].endswith("b" * 17)
