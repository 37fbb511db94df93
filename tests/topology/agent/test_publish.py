"""What differs is written, in an order that never offers a broken GPU for longer than it takes, and nothing else."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from extender.sample_machines import DGX1V, sample
from tests.api_door import EVENTS, TOPOLOGIES, ApiDoor, Call, Raw, api_door, refused
from tests.builders import Clock
from topology.agent.api_server import APPLY, ApiServer, Body, NoAnswerError, RefusedError
from topology.agent.metrics import Metrics
from topology.agent.publish import Clocks, Publisher, Target
from topology.api import GpuHolder, GPUTopology, read_gputopology

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
DGX = sample("dgx1v", "node-a", observed_at=NOW)


@dataclass
class Bench:
    """A publisher at a door."""

    door: ApiDoor
    api: ApiServer
    clock: Clock
    metrics: Metrics
    publisher: Publisher

    def written(self, topology: GPUTopology) -> list[str]:
        """Publish once and return what was written, in order."""
        before = len(self.door.writes())
        self.publisher.publish(topology)
        return self.door.writes()[before:]

    def stored(self) -> GPUTopology:
        return read_gputopology(self.door.topologies["node-a"])


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with api_door() as door:
        door.nodes["node-a"] = "uid-1"
        api, clock, metrics = ApiServer.connect(door.kubeconfig(tmp_path)), Clock(), Metrics()
        bench = Bench(door, api, clock, metrics, Publisher(api, Target("node-a", "boot-1", 60.0), metrics, Clocks(clock, lambda: NOW)))
        bench.publisher.look_up()
        yield bench
        api.close()


def healthy_but(topology: GPUTopology, position: int) -> GPUTopology:
    gpus = tuple(
        gpu.model_copy(update={"healthy": at != position, "reason": "lost"}) if at == position else gpu for at, gpu in enumerate(topology.status.gpus)
    )
    return topology.model_copy(update={"status": topology.status.model_copy(update={"gpus": gpus})})


def partial(topology: GPUTopology) -> GPUTopology:
    source = topology.spec.source.model_copy(update={"quality": "partial", "notes": ("a note",)})
    return topology.model_copy(update={"spec": topology.spec.model_copy(update={"source": source})})


def with_memory(topology: GPUTopology, used_mib: int, observed_at: datetime) -> GPUTopology:
    gpus = tuple(gpu.model_copy(update={"memory_used_mib": used_mib}) for gpu in topology.status.gpus)
    return topology.model_copy(update={"status": topology.status.model_copy(update={"gpus": gpus, "observed_at": observed_at})})


def test_an_object_is_applied_with_its_owner_by_the_agents_field_manager(bench: Bench) -> None:
    assert bench.written(DGX) == ["spec", "status"]
    stored = bench.door.topologies["node-a"]
    assert bench.stored().spec == DGX.spec
    assert bench.stored().status == DGX.status
    assert stored["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "uid-1"}]
    assert stored["metadata"]["annotations"] == {"linkwise.dev/boot-id": "boot-1"}
    applied = [call for call in bench.door.calls if call.method == "PATCH"]
    assert {(call.headers["Content-Type"], call.query["fieldManager"], call.query["force"]) for call in applied} == {
        ("application/apply-patch+yaml", "linkwise-agent", "true")
    }
    assert "status" not in applied[0].body, "the API server drops it there"
    assert "spec" not in applied[1].body


def test_what_was_written_is_not_written_again(bench: Bench) -> None:
    bench.written(DGX)
    assert bench.written(DGX) == []
    assert bench.written(with_memory(DGX, 4711, datetime(2026, 3, 1, 13, tzinfo=UTC))) == [], "time and used memory wait for the heartbeat"


def test_a_heartbeat_is_the_status_alone(bench: Bench) -> None:
    bench.written(DGX)
    bench.clock.now += 59
    assert bench.written(DGX) == []
    bench.clock.now += 1
    later = with_memory(DGX, 4711, datetime(2026, 3, 1, 13, tzinfo=UTC))
    assert bench.written(later) == ["status"]
    assert bench.stored().status == later.status
    assert bench.written(later) == []


def test_a_gpu_that_is_lost_is_unhealthy_before_its_links_are_told(bench: Bench) -> None:
    bench.written(DGX)
    assert bench.written(healthy_but(partial(DGX), 5)) == ["status", "spec", "event"]


def test_other_gpus_are_written_before_their_status(bench: Bench) -> None:
    bench.written(DGX)
    other = sample("mesh", "node-a", observed_at=NOW)
    assert bench.written(other)[:2] == ["spec", "status"]


def test_a_change_of_either_is_that_write_alone(bench: Bench) -> None:
    bench.written(DGX)
    assert bench.written(partial(DGX)) == ["spec"]
    assert bench.written(healthy_but(partial(DGX), 5)) == ["status", "event"]


def test_without_a_node_nothing_is_written(bench: Bench) -> None:
    bench.door.nodes.clear()
    bench.publisher.look_up()
    assert bench.publisher.node_uid is None
    assert bench.written(DGX) == []


def test_a_recreated_node_owns_the_object_from_the_next_look_up_on(bench: Bench) -> None:
    bench.written(DGX)
    bench.door.nodes["node-a"] = "uid-2"
    assert not bench.publisher.look_up(), "the object is there"
    assert bench.written(DGX) == ["spec"]
    assert [owner["uid"] for owner in bench.door.topologies["node-a"]["metadata"]["ownerReferences"]] == ["uid-2"]


def test_a_deleted_object_is_written_anew_with_its_status(bench: Bench) -> None:
    bench.written(DGX)
    bench.door.topologies.clear()
    assert bench.publisher.look_up(), "the object is gone"
    assert bench.written(DGX) == ["spec", "status"]
    assert not bench.publisher.look_up()


def test_a_spec_that_somebody_else_changed_is_written_again(bench: Bench) -> None:
    bench.written(DGX)
    stored = bench.door.topologies["node-a"]
    stored["spec"] = sample("mesh", "node-a").to_object()["spec"]
    stored["metadata"]["generation"] += 1
    bench.publisher.look_up()
    assert bench.written(DGX)[0] == "spec"
    assert bench.stored().spec == DGX.spec


def test_an_object_deleted_between_look_up_and_heartbeat_is_written_in_the_next_round(bench: Bench) -> None:
    bench.written(DGX)
    bench.door.topologies.clear()
    with pytest.raises(RefusedError):
        bench.publisher.publish(healthy_but(DGX, 5))
    assert bench.written(healthy_but(DGX, 5)) == ["spec", "status", "event"]


def test_a_write_that_fails_is_tried_again_and_what_got_through_is_not(bench: Bench) -> None:
    bench.door.fault = lambda call: Raw(cut=True) if call.path.endswith("/status") else None
    for _ in range(2):
        with pytest.raises(NoAnswerError):
            bench.publisher.publish(DGX)
    assert bench.door.writes() == ["spec", "status", "status"]
    bench.door.fault = lambda _: None
    assert bench.written(DGX) == ["status"]


def test_the_difference_to_what_an_earlier_agent_published_is_told_once(bench: Bench) -> None:
    bench.publisher.told(DGX)
    assert bench.written(healthy_but(DGX, 5)) == ["spec", "status", "event"]
    assert bench.written(healthy_but(DGX, 5)) == []
    (event,) = bench.door.events
    assert (event["reason"], event["type"]) == ("GPULost", "Warning")
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "uid-1"}
    assert event["metadata"]["namespace"] == "default"
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-03-01T12:00:00Z"


def test_a_first_publication_is_no_change(bench: Bench) -> None:
    bench.written(healthy_but(DGX, 5))
    assert bench.door.events == []


def test_an_event_that_does_not_get_through_waits(bench: Bench) -> None:
    bench.written(DGX)
    bench.door.fault = at(EVENTS, Raw(cut=True))
    bench.written(healthy_but(DGX, 5))
    bench.door.fault = lambda _: None
    assert bench.written(healthy_but(DGX, 5)) == ["event"]


def test_an_event_that_is_refused_is_tried_again_for_a_minute(bench: Bench) -> None:
    """An API server that has just started knows no rights yet."""
    bench.written(DGX)
    bench.door.fault = at(EVENTS, refused(403, "Forbidden", "no events for you"))
    bench.written(healthy_but(DGX, 5))
    bench.clock.now += 59.0
    bench.written(healthy_but(DGX, 5))
    bench.door.fault = lambda _: None
    assert bench.written(healthy_but(DGX, 5)) == ["event"]


def test_events_that_are_refused_for_longer_are_dropped(bench: Bench) -> None:
    """Whoever has no right gets none by asking; what changes later is tried anew."""
    bench.written(DGX)
    bench.door.fault = at(EVENTS, refused(403, "Forbidden", "no events for you"))
    bench.written(healthy_but(DGX, 5))
    bench.clock.now += 60.0
    bench.written(DGX)
    bench.door.fault = lambda _: None
    assert "event" not in bench.written(DGX)
    assert bench.written(healthy_but(DGX, 6)) == ["status", "event"]


def at(path: str, answer: Raw) -> "Fault":
    return Fault(path, answer)


@dataclass(frozen=True)
class Fault:
    """The same answer to every request below a path."""

    path: str
    answer: Raw

    def __call__(self, call: Call) -> Raw | None:
        return self.answer if call.path.startswith(self.path) else None


def test_a_refused_spec_is_told_and_leaves_everything_to_be_written(bench: Bench) -> None:
    bench.door.fault = at(TOPOLOGIES, Raw(404, "404 page not found"))
    with pytest.raises(RefusedError):
        bench.publisher.publish(DGX)
    bench.door.fault = lambda _: None
    assert bench.written(DGX) == ["spec", "status"]


def test_a_message_that_is_too_long_for_an_event_is_cut_at_a_letter(bench: Bench) -> None:
    bench.written(DGX)
    gpus = tuple(gpu.model_copy(update={"healthy": False, "reason": "é" * 2000}) for gpu in DGX.status.gpus)
    bench.written(DGX.model_copy(update={"status": DGX.status.model_copy(update={"gpus": gpus})}))
    messages = [event["message"] for event in bench.door.events]
    assert len(messages) == DGX1V.size
    assert all(len(message.encode()) <= 1024 and message.endswith("é…") for message in messages)


def test_the_longest_name_of_a_node_leaves_room_for_an_events_own(tmp_path: Path) -> None:
    name = "n" * 253
    with api_door() as door:
        door.nodes[name] = "uid-1"
        api = ApiServer.connect(door.kubeconfig(tmp_path))
        publisher = Publisher(api, Target(name, None, 60.0), Metrics(), Clocks())
        publisher.look_up()
        whole = sample("dgx1v", name)
        publisher.publish(whole)
        publisher.publish(healthy_but(whole, 0))
        (event,) = door.events
        assert len(event["metadata"]["name"]) == 253
        assert "annotations" not in door.topologies[name]["metadata"], "an unknown boot is not made up"
        api.close()


def test_every_write_is_counted(bench: Bench) -> None:
    bench.written(DGX)
    bench.written(healthy_but(DGX, 5))
    text = bench.metrics.text().decode()
    for what, count in (("spec", 1), ("status", 2), ("event", 1)):
        assert f'linkwise_agent_publishes_total{{what="{what}"}} {count}.0' in text


def held_at(seconds: int, *names: str) -> GPUTopology:
    """Return the machine as it was seen so many seconds later, its first GPU held by these pods."""
    holders = tuple(GpuHolder(namespace="default", name=name) for name in names)
    first, *others = DGX.status.gpus
    gpus = (first.model_copy(update={"holders": holders}), *others)
    changed = {"observed_at": NOW + timedelta(seconds=seconds), "gpus": gpus, "holders_observed": True}
    return DGX.model_copy(update={"status": DGX.status.model_copy(update=changed)})


def test_a_holder_that_went_is_told_again_by_a_later_look(bench: Bench) -> None:
    """Once: the first look may be of the very second in which its pod was deleted, which proves nothing to who compares the times."""
    bench.written(held_at(0, "p"))
    assert bench.written(held_at(1)) == ["status"]
    assert bench.written(held_at(2)) == []
    assert bench.publisher.next_again == NOW + timedelta(seconds=3)
    assert bench.written(held_at(3)) == ["status"]
    assert bench.stored().status.observed_at == NOW + timedelta(seconds=3)
    assert bench.publisher.next_again is None
    assert bench.written(held_at(30)) == []
    assert bench.written(held_at(31, "q")) == ["status"]
    assert bench.publisher.next_again is None, "who comes leaves no doubt"


def test_a_status_is_written_again_when_somebody_waits_for_a_later_look(bench: Bench) -> None:
    """Though it says the same; not before the time, and once for all times that have passed."""
    bench.written(held_at(0))
    bench.publisher.again_at(NOW + timedelta(seconds=2), NOW + timedelta(seconds=3), NOW + timedelta(seconds=9))
    assert [bench.written(held_at(seconds)) for seconds in (1, 4, 8, 9, 10)] == [[], ["status"], [], ["status"], []]


def test_a_status_that_was_written_since_is_written_anew(bench: Bench) -> None:
    """The last word of an agent before this one, or a write of our own that got no answer: seen by the object's resourceVersion, though it is not a new generation."""
    assert bench.written(DGX) == ["spec", "status"]
    bench.publisher.look_up()
    assert bench.written(DGX) == []
    bench.api.request("PATCH", f"{TOPOLOGIES}node-a/status", body=Body({"status": healthy_but(DGX, 3).to_object()["status"]}, APPLY))
    assert bench.written(DGX) == []
    bench.publisher.look_up()
    assert bench.written(DGX) == ["status"]
    assert bench.stored().status == DGX.status
    bench.publisher.look_up()
    assert bench.written(DGX) == []
