"""The hand-off as the agent runs it: kubelet comes and goes, the API server tells of pods, what is left behind is collected."""

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.api_door import PODS, Call, Raw, refused
from tests.builders import pod
from tests.device_kubelet import AdmissionError, StartError
from tests.hand_off_node import GPU, MEMORY, NODE, FaultError, HandOffNode, hand_off_node
from topology.agent.handoff import faults, registration
from topology.agent.handoff.checkpoint import FILE_NAME
from topology.agent.handoff.plugin import DevicePlugin, plugin_for
from topology.agent.handoff.pod import pod_of
from topology.agent.handoff.pod_events import PodEvent, PodEvents
from topology.agent.handoff.pod_watch import PodWatch
from topology.agent.handoff.pods import Pods, PodUnknownError
from topology.agent.handoff.registration import _Plugin, _stamp
from topology.agent.metrics import Metrics
from topology.errors import InputError

HELD_OFFS = {"as-planned", "corrected", "share", "around", "restarted"}


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandOffNode]:
    with hand_off_node(tmp_path_factory.mktemp("n")) as node:
        yield node


@pytest.fixture
def gpus(node: HandOffNode) -> list[str]:
    return [gpu.uuid for gpu in node.topology.spec.gpus]


def eventually(condition: Callable[[], object], seconds: float = 5.0) -> None:
    """Let other threads come to it."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "it did not come to it"
        pause.wait(0.005)


# --- kubelet ---


def test_both_resources_are_registered_in_full(node: HandOffNode, gpus: list[str]) -> None:
    """GPU UUIDs with their NUMA nodes, and one number a GiB."""
    node.start_agent()
    assert set(node.kubelet.devices[GPU]) == set(gpus)
    assert node.kubelet.numa[GPU] == {gpu.uuid: gpu.numa_node for gpu in node.topology.spec.gpus}
    assert len(node.kubelet.devices[MEMORY]) == sum((gpu.memory_mib or 0) // 1024 for gpu in node.topology.spec.gpus)
    assert node.kubelet._plugins[GPU].options.pre_start_required
    assert node.kubelet._plugins[GPU].options.get_preferred_allocation_available
    assert not node.kubelet._plugins[MEMORY].options.get_preferred_allocation_available, "numbers are all alike"


def test_a_kubelet_that_starts_anew_is_registered_with_again(node: HandOffNode, gpus: list[str]) -> None:
    """It has removed our sockets; and pods start as before."""
    node.start_agent()
    raw = node.bind(pod("p").holding(NODE, gpus[1]))
    node.run(raw)
    node.kubelet.stop()
    node.kubelet.start()
    node.wait_for_devices()
    node.kubelet.admit(raw)
    assert node.start(raw) == {"main": {gpus[1]}}


def test_a_kubelet_that_does_not_listen_any_more_is_registered_with_again(node: HandOffNode) -> None:
    """Its stream has ended, for whatever reason."""
    plugin = node.start_agent()
    before = len(node.kubelet.registered)
    node.kubelet._drop(GPU)
    looker = plugin._registration
    for one in looker._plugins:
        one._registered_at -= 60
    node.kubelet.wait_for(lambda: len(node.kubelet.registered) > before and GPU in node.kubelet._plugins)


def test_nothing_is_registered_while_another_device_plugin_serves(node: HandOffNode) -> None:
    """And its socket file alone, left by one that was killed, is in nobody's way."""
    path = node.settings.device_plugin_dir / "nvidia-gpu.sock"
    node.plugin = plugin = _made(node)
    with socket.socket(socket.AF_UNIX) as other, capture_logs() as lines:
        other.bind(str(path))
        other.listen()
        plugin.node_is(node.topology, {})
        eventually(lambda: any("another device plugin serves" in line["event"] for line in lines))
        assert node.kubelet.registered == []
    node.wait_for_devices()
    assert set(node.kubelet.registered) == {GPU, MEMORY}


def test_another_device_plugin_that_comes_later_is_not_said_to_keep_us_from_anything(node: HandOffNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubelet may go to and fro between the two, and that is what the log tells."""
    monkeypatch.setattr(registration, "_OTHERS_EVERY_S", 0.1)
    with socket.socket(socket.AF_UNIX) as other, capture_logs() as lines:
        node.start_agent()
        other.bind(str(node.settings.device_plugin_dir / "nvidia-gpu.sock"))
        other.listen()
        eventually(lambda: any("another device plugin serves" in line["event"] for line in lines))
    [said] = [line["event"] for line in lines if "another device plugin serves" in line["event"]]
    assert "kubelet takes whoever came last" in said
    assert "nothing is handed over" not in said


def _made(node: HandOffNode) -> DevicePlugin:
    plugin = plugin_for(node.settings, node.api, node.metrics)
    assert plugin is not None
    return plugin


def test_sockets_of_an_agent_that_was_killed_are_removed(node: HandOffNode) -> None:
    """They have names of their own."""
    left = node.settings.device_plugin_dir / "linkwise-gpu.0123abcd.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(left))
    node.start_agent()
    assert not left.exists()
    assert len(list(node.settings.device_plugin_dir.glob("linkwise-gpu.*.sock"))) == 1


def test_no_socket_is_made_before_kubelet_listens_and_one_that_has_just_started_is_registered_with_at_once(node: HandOffNode) -> None:
    """A kubelet that was killed leaves its socket, and the next one removes whatever is there before it listens; then it admits pods within a second."""
    node.kubelet.stop()
    path = node.settings.device_plugin_dir / "kubelet.sock"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    node.plugin = plugin = _made(node)
    plugin._registration.look()
    assert not list(node.settings.device_plugin_dir.glob("linkwise-*"))
    for one in plugin._registration._plugins:
        assert not one.may_try(_stamp(path)), "not with this one, for a while"
        one._not_before = float("inf")
    node.kubelet.start()
    plugin.node_is(node.topology, {})
    node.wait_for_devices()


def test_a_socket_that_a_starting_kubelet_may_have_removed_is_made_anew(node: HandOffNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would dial it for ten seconds, and nobody would look meanwhile."""
    serve, register, restarts, existed = _Plugin.serve, registration._register_with, [GPU], list[bool]()

    def serve_while_kubelet_restarts(plugin: _Plugin, *arguments: Any) -> None:
        serve(plugin, *arguments)
        if plugin.resource in restarts:
            restarts.remove(plugin.resource)
            node.kubelet.stop()
            node.kubelet.start()

    def register_and_note(kubelet: Path, plugin: _Plugin) -> None:
        existed.append(plugin.server is not None and plugin.server.socket.exists())
        register(kubelet, plugin)

    monkeypatch.setattr(_Plugin, "serve", serve_while_kubelet_restarts)
    monkeypatch.setattr(registration, "_register_with", register_and_note)
    node.plugin = plugin = _made(node)
    plugin.refresh()
    plugin._registration.look()
    plugin.node_is(node.topology, {})
    node.wait_for_devices()
    assert not restarts
    assert all(existed)


def test_without_kubelet_the_agent_waits_for_it(node: HandOffNode) -> None:
    """It is registered when it comes."""
    node.kubelet.stop()
    (node.settings.device_plugin_dir / "kubelet.sock").unlink(missing_ok=True)
    node.plugin = plugin = plugin_for(node.settings, node.api, node.metrics)
    assert plugin is not None
    plugin.node_is(node.topology, {})
    node.kubelet.start()
    node.wait_for_devices()
    assert plugin.ill() == "nobody watches the pods of this node: the thread has ended", "it was not started here"


# --- steering ---


def test_kubelet_is_steered_to_the_plan_of_the_pod_that_waits(node: HandOffNode, gpus: list[str]) -> None:
    """Then its ids are right for others, too."""
    node.start_agent()
    for name, uuids in (("a", gpus[2:4]), ("b", gpus[1:2]), ("c", gpus[0:1])):
        raw = node.bind(pod(name).holding(NODE, *uuids))
        node.catch_up()
        node.run(raw)
        assert node.kubelet.given[raw["metadata"]["uid"], "main", GPU].ids == set(uuids)
    assert node.count("container_starts", ids="as-planned") == 3
    assert node.count("preferences", planned="yes") == 3


def test_kubelet_is_steered_to_the_plan_of_a_pod_that_the_watch_has_not_told_of(node: HandOffNode, gpus: list[str]) -> None:
    """It lags, on a busy machine for longer than anybody waits: the API server is asked."""
    node.start_agent()
    raw = node.bind(pod("late").holding(NODE, *gpus[1:3]))
    node.run(raw)
    assert node.kubelet.given[raw["metadata"]["uid"], "main", GPU].ids == set(gpus[1:3])
    assert node.count("preferences", planned="yes") == 1


def test_without_an_answer_kubelet_is_steered_to_what_is_free(node: HandOffNode, gpus: list[str]) -> None:
    """The API server is away, and a hint is no reason to fail."""
    plugin = node.start_agent()
    node.door.fault = lambda call: Raw(cut=True) if call.path == PODS else None
    assert plugin.hand_off.prefer(GPU, frozenset(gpus[2:]), frozenset(), 1) == [gpus[2]]


def test_of_several_that_wait_the_oldest_is_meant(node: HandOffNode, gpus: list[str]) -> None:
    """They are admitted in the order of creation."""
    from datetime import UTC, datetime

    node.start_agent()
    late = node.bind(pod("a-late").holding(NODE, gpus[0]).created(datetime(2026, 1, 2, tzinfo=UTC)))
    early = node.bind(pod("b-early").holding(NODE, gpus[1]).created(datetime(2026, 1, 1, tzinfo=UTC)))
    node.catch_up()
    for raw in (early, late):
        node.run(raw)
    assert node.count("container_starts", ids="as-planned") == 2


def test_a_container_with_ids_of_its_init_container_is_steered_to_the_rest(node: HandOffNode, gpus: list[str]) -> None:
    """What it must include is part of its plan."""
    from tests.topology.agent.handoff.test_hand_off import allocation

    node.start_agent()
    raw = node.bind(pod("p").init(1).gpus(2).bound_to(NODE, allocation(init=[gpus[3]], main=[gpus[1], gpus[3]])))
    node.catch_up()
    node.run(raw)
    assert node.kubelet.given[raw["metadata"]["uid"], "main", GPU].ids == {gpus[1], gpus[3]}


def test_a_pod_from_around_is_steered_away_from_what_is_promised(node: HandOffNode, gpus: list[str]) -> None:
    """As long as something else is free."""
    node.start_agent()
    node.bind(pod("waits").holding(NODE, *gpus[:3]))
    node.catch_up()
    raw = node.bind(pod("around").gpus(1).bound_to(NODE))
    assert node.run(raw) == {"main": {gpus[3]}}
    assert node.kubelet.given[raw["metadata"]["uid"], "main", GPU].ids == {gpus[3]}


def test_preferences_of_many_numbers_take_milliseconds(node: HandOffNode) -> None:
    """8 GPUs of 192 GiB."""
    plugin = node.start_agent()
    numbers = frozenset(map(str, range(1536)))
    began = time.perf_counter()
    found = plugin.hand_off.prefer(MEMORY, numbers, frozenset({"7"}), 192)
    assert (len(found), found[0]) == (192, "7")
    assert time.perf_counter() - began < 0.5


# --- garbage ---


def _grown_old(node: HandOffNode) -> None:
    assert node.plugin is not None
    node.plugin._garbage._clock = lambda: time.time() + 3600


def test_what_a_pod_leaves_is_collected_when_it_is_gone(node: HandOffNode, gpus: list[str]) -> None:
    """And not while it is there."""
    plugin = node.start_agent()
    stays, goes = (node.bind(pod(name).holding(NODE, uuid)) for name, uuid in (("stays", gpus[0]), ("goes", gpus[1])))
    node.run(stays)
    node.run(goes)
    _grown_old(node)
    assert plugin._garbage.collect() == 0
    node.delete(goes)
    node.kubelet.list_pods()
    node.kubelet._write_checkpoint()
    assert plugin._garbage.collect() == 1
    assert (len(node.specs()), len(node.records()), len(plugin._files.tokens())) == (1, 1, 1)
    assert node.start(stays) == {"main": {gpus[0]}}


@pytest.mark.parametrize("point", [faults.RETIRE_AFTER_SPEC, faults.RETIRE_AFTER_FILES])
def test_a_broken_off_collection_is_ended_by_the_next_agent(node: HandOffNode, gpus: list[str], point: str) -> None:
    """The record goes last."""
    plugin = node.start_agent()
    raw = node.bind(pod("p").holding(NODE, gpus[0]))
    node.run(raw)
    node.delete(raw)
    node.kubelet.list_pods()
    node.kubelet._write_checkpoint()
    node.fault_at = point
    _grown_old(node)
    with pytest.raises(FaultError):
        plugin._garbage.collect()
    node.restart_agent()
    _grown_old(node)
    assert node.plugin is not None
    assert node.plugin._garbage.collect() == 1
    assert (node.specs(), node.records(), node.plugin._files.tokens()) == ([], [], [])


def test_a_token_that_kubelet_never_took_is_forgotten_after_a_while(node: HandOffNode) -> None:
    """The agent died, or kubelet did, before it was written down."""
    plugin = node.start_agent()
    node.fault_at = faults.ALLOCATE_AFTER_RECORD
    with pytest.raises(AdmissionError):
        node.kubelet.admit(node.bind(pod("p").gpus(1).bound_to(NODE)))
    assert (len(node.records()), plugin._garbage.collect()) == (1, 0), "young ones may be on their way"
    _grown_old(node)
    assert plugin._garbage.collect() == 1


def test_specs_and_files_that_nobody_knows_are_swept_at_the_start(node: HandOffNode, gpus: list[str]) -> None:
    """Their records are lost, and kubelet does not know them either."""
    node.start_agent()
    raw = node.bind(pod("p").holding(NODE, gpus[0]))
    node.run(raw)
    node.stop_agent()
    (node.settings.cdi_dir / "linkwise.dev-allocation_tlost.json").write_text("{}")
    (node.settings.state_dir / "containers" / "tlost").mkdir()
    node.start_agent()
    assert len(node.specs()) == 1
    assert node.start(raw) == {"main": {gpus[0]}}


# --- pods ---


def test_the_watch_brings_pods_and_takes_them_away(node: HandOffNode, gpus: list[str]) -> None:
    """From a list, and then event by event."""
    first = node.bind(pod("first").holding(NODE, gpus[0]))
    pods = Pods(node.api, NODE)
    with watched(node, pods):
        eventually(lambda: [one.name for one in pods.all()] == ["first"])
        eventually(lambda: node.door.watches)
        second = pod("second").holding(NODE, gpus[1]).build()
        node.door.watches[0].put({"type": "ADDED", "object": second})
        node.door.watches[0].put({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}})
        node.door.watches[0].put({"type": "DELETED", "object": first})
        eventually(lambda: [one.name for one in pods.all()] == ["second"])
        node.door.watches[0].put(None)
        eventually(lambda: any(call.query.get("resourceVersion") == "9" and "watch" in call.query for call in node.door.calls))


def test_an_expired_watch_begins_with_a_list(node: HandOffNode) -> None:
    """What was missed is in it."""
    pods = Pods(node.api, NODE)
    with watched(node, pods):
        eventually(lambda: node.door.watches)
        node.bind(pod("missed").gpus(1).bound_to(NODE))
        node.door.watches[0].put({"type": "ERROR", "object": {"code": 410}})
        eventually(lambda: [one.name for one in pods.all()] == ["missed"])


def test_a_watch_that_ends_at_once_is_not_opened_again_at_once(node: HandOffNode) -> None:
    """Each end is a pause, a longer one each time: else a door that shuts would be knocked at hundreds of times a second, by the agent of every node."""
    node.door.fault = lambda call: Raw(200, "") if call.query.get("watch") else None
    pods, pauses = Pods(node.api, NODE), list[float]()
    watch = PodWatch(node.api, pods, lambda: None)

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 4:
            watch._stopping.set()

    watch._pause = pause
    watch._run()
    assert len([call for call in node.door.calls if call.query.get("watch")]) == 4
    assert all(0.25 * 2**at <= seconds <= 0.5 * 2**at for at, seconds in enumerate(pauses))


@pytest.mark.parametrize("ask", ["reload", "read"])
@pytest.mark.parametrize(
    ("kind", "deleting", "names"),
    [
        pytest.param("ADDED", False, {"asked", "other"}, id="one that comes meanwhile stays"),
        pytest.param("DELETED", True, set(), id="one that goes meanwhile does not come back"),
    ],
)
def test_an_answer_that_is_older_than_the_watch_changes_nothing(node: HandOffNode, ask: str, kind: str, deleting: bool, names: set[str]) -> None:
    """Pods that wait would be missed otherwise, or counted for ever: the watch tells each change once."""
    raw = node.bind(pod("asked").gpus(1).bound_to(NODE))
    other = pod("other").gpus(1).bound_to(NODE).build()
    pods = Pods(node.api, NODE)

    def answered(call: Call) -> Raw | None:
        """Answer by what was, and let the watch tell what is before the answer arrives."""
        if call.path != PODS:
            return None
        pods.take(kind, raw if deleting else other)
        return Raw(200, {"metadata": {"resourceVersion": "7"}, "items": [raw]})

    node.door.fault = answered
    assert getattr(pods, ask)(raw["metadata"]["uid"]).name == "asked"
    assert {one.name for one in pods.all()} == names


def test_a_watch_that_is_refused_is_tried_again(node: HandOffNode) -> None:
    """Without a word of a traceback."""
    answers = iter([refused(403, "Forbidden", "no")])
    node.door.fault = lambda call: next(answers, None) if call.query.get("watch") else None
    pods = Pods(node.api, NODE)
    with watched(node, pods) as watch:
        eventually(lambda: node.door.watches)
        assert watch.alive()


@contextmanager
def watched(node: HandOffNode, pods: Pods) -> Iterator[PodWatch]:
    """Watch while the block runs."""
    watch = PodWatch(node.api, pods, lambda: None)
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()
        assert not watch.alive()


def test_a_pod_is_found_by_its_name_and_never_by_its_name_alone(node: HandOffNode, gpus: list[str]) -> None:
    """A namesake has another UID."""
    node.bind(pod("db-0").holding(NODE, gpus[0]), "uid-2")
    pods = Pods(node.api, NODE)
    assert pods.by_uid("uid-2", [("default", "db-0")]).uid == "uid-2"
    with pytest.raises(PodUnknownError, match="knows no pod of UID uid-1"):
        pods.by_uid("uid-1", [("default", "db-0")])
    assert pods.lives("uid-2", "default", "db-0")
    assert not pods.lives("uid-1", "default", "db-0")
    node.door.fault = lambda _: Raw(cut=True)
    assert pods.lives("uid-1", "default", "db-0"), "where nobody answers it may"


@pytest.mark.parametrize(
    ("status", "deleting", "ended"),
    [
        pytest.param({"phase": "Running"}, False, False, id="running"),
        pytest.param({"phase": "Failed"}, False, True, id="failed: rejected by kubelet, for one"),
        pytest.param({"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}, True, False, id="being deleted, and running"),
        pytest.param({"phase": "Running", "containerStatuses": [{"state": {"terminated": {}}}]}, True, True, id="kept by a finalizer alone"),
        pytest.param({"phase": "Running", "containerStatuses": [{"state": {"terminated": {}}}]}, False, False, id="about to start again"),
    ],
)
def test_when_a_pod_has_ended(status: dict[str, object], deleting: bool, ended: bool) -> None:
    """Its containers, not its object."""
    raw = pod("p").gpus(1).build()
    raw["status"] = status
    if deleting:
        raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = pod_of(raw)
    assert found is not None
    assert found.ended is ended


@pytest.mark.parametrize(
    "raw",
    [
        None,
        [],
        {},
        {"metadata": 3},
        {"metadata": {"uid": "u", "namespace": "n", "name": "p"}, "spec": {"containers": [3, {"name": 4}]}, "status": []},
    ],
)
def test_no_pod_crashes_the_reader(raw: object) -> None:
    """Whatever users write."""
    found = pod_of(raw)
    assert found is None or found.containers == ()


# --- events ---


def test_an_event_that_cannot_be_put_into_words_ends_no_thread(node: HandOffNode) -> None:
    """The next one is posted, and the failure is counted."""
    failures: list[int] = []
    days = iter([None])
    events = PodEvents(node.api, NODE, lambda: failures.append(1), day=lambda: next(days, datetime(2026, 1, 1, tzinfo=UTC)))  # type: ignore[arg-type,return-value]
    about = pod_of(pod("p", "team-a").gpus(1).build())
    assert about is not None
    events.start()
    events.say(PodEvent(about, "GPUHeld", "first"))
    events.say(PodEvent(about, "GPUHeld", "second"))
    eventually(lambda: node.door.events)
    events.stop()
    assert [event["message"] for event in node.door.events] == ["second"]
    assert failures == [1]


def test_an_event_is_posted_on_its_pod_and_said_once(node: HandOffNode) -> None:
    """However often kubelet tries."""
    failures: list[int] = []
    events = PodEvents(node.api, NODE, lambda: failures.append(1))
    about = pod_of(pod("p", "team-a").gpus(1).build())
    assert about is not None
    events.start()
    for _ in range(3):
        events.say(PodEvent(about, "GPUHeld", "somebody has it"))
    eventually(lambda: node.door.events)
    events.stop()
    (event,) = node.door.events
    assert (event["involvedObject"]["kind"], event["involvedObject"]["uid"], event["metadata"]["namespace"]) == ("Pod", about.uid, "team-a")
    assert (event["reason"], event["message"], event["type"], event["source"]) == (
        "GPUHeld",
        "somebody has it",
        "Warning",
        {"component": "linkwise-agent", "host": NODE},
    )
    assert failures == []


def test_an_event_that_is_refused_is_counted_and_dropped(node: HandOffNode) -> None:
    """It stands in the log."""
    failures: list[int] = []
    node.door.fault = lambda call: refused(403, "Forbidden", "no") if call.method == "POST" else None
    events = PodEvents(node.api, NODE, lambda: failures.append(1))
    about = pod_of(pod("p").gpus(1).build())
    assert about is not None
    events.start()
    events.say(PodEvent(about, "GPUHeld", "somebody has it"))
    eventually(lambda: failures)
    events.stop()


# --- settings ---


def test_off_is_the_default_and_makes_nothing(node: HandOffNode) -> None:
    """Not even a directory."""
    assert plugin_for(node.settings.model_copy(update={"hand_off": "off"}), node.api, Metrics()) is None


def test_a_directory_that_cannot_be_is_one_sentence(node: HandOffNode, tmp_path: Path) -> None:
    """Before anything starts."""
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="the hand-off cannot use"):
        plugin_for(node.settings.model_copy(update={"state_dir": tmp_path / "file"}), node.api, Metrics())


def test_an_agent_is_killed_at_the_point_that_a_file_names_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the file comes while it runs."""
    killed: list[int] = []
    monkeypatch.setattr(faults.os, "kill", lambda _, number: killed.append(number))
    fault = faults.killed_by(tmp_path / "fault")
    for point in faults.POINTS:
        fault(point)
    (tmp_path / "fault").write_text(faults.START_AFTER_FILES)
    for point in faults.POINTS * 2:
        fault(point)
    assert killed == [signal.SIGKILL]


def test_every_series_is_there_before_anything_happens(node: HandOffNode) -> None:
    """So that alerts have something to look at."""
    node.start_agent()
    text = node.metrics.text().decode()
    for ids in HELD_OFFS:
        assert f'linkwise_agent_container_starts_total{{ids="{ids}"}} 0.0' in text
    assert 'linkwise_agent_container_refusals_total{reason="held"} 0.0' in text


def test_a_bug_is_told_as_one_and_the_container_does_not_start(node: HandOffNode, gpus: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """And the plugin goes on."""
    plugin = node.start_agent()
    raw = node.bind(pod("p").holding(NODE, gpus[0]))
    node.kubelet.admit(raw)
    monkeypatch.setattr(plugin.hand_off._means.identity, "of", None)
    with capture_logs() as lines, pytest.raises(StartError, match="a bug in Linkwise"):
        node.start(raw)
    assert [line["event"] for line in lines] == ["a call of kubelet failed, which is a bug in Linkwise"]
    monkeypatch.undo()
    assert node.start(raw) == {"main": {gpus[0]}}


def test_a_damaged_checkpoint_stops_starts_and_not_the_agent(node: HandOffNode, gpus: list[str]) -> None:
    """With a sentence that names it."""
    plugin = node.start_agent()
    raw = node.bind(pod("p").holding(NODE, gpus[0]))
    node.kubelet.admit(raw)
    (node.settings.device_plugin_dir / FILE_NAME).write_text("{")
    with pytest.raises(StartError, match="not as kubelet"):
        node.start(raw)
    with capture_logs() as lines:
        plugin.refresh()
        plugin.refresh()
    assert len([line for line in lines if "its checkpoint cannot be read" in line["event"]]) <= 1, "it is looked at every few seconds"
    assert plugin.holders() == []
    node.kubelet._write_checkpoint()
    assert node.start(raw) == {"main": {gpus[0]}}
