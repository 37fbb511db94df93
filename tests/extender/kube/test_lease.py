"""Leaders over one Lease on a real server, each with its own eyes and one clock that only the test moves."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from copy import deepcopy
from dataclasses import dataclass, field

import pytest
import structlog
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from extender.kube.client import KubeClient
from extender.kube.lease import LEADER_LABEL, MARGIN_S, RENEW_EVERY_S, Leadership, LeaseName
from tests.builders import Clock
from tests.local_api_server import Fault, LocalApiServer, Rule, client_of, running, until

LEASES = "/apis/coordination.k8s.io/v1/namespaces/linkwise-system/leases"
LEASE = f"{LEASES}/linkwise-extender"
POD = "/api/v1/namespaces/linkwise-system/pods"


@dataclass
class Replica:
    """One extender, as far as the Lease goes; ``lists`` counts how often it prepared."""

    name: str
    client: KubeClient
    clock: Clock
    pod: str = ""
    lists: int = 0
    may_list: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.may_list.set()
        lease = LeaseName("linkwise-system", "linkwise-extender", self.name, 12, self.pod)
        self.leadership = Leadership(self.client, lease, self._list, self.clock)

    async def _list(self) -> None:
        await self.may_list.wait()
        self.lists += 1

    async def round(self) -> bool:
        """Go one round, and let what was prepared take effect; returns whether it leads."""
        await self.leadership._round()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return self.leadership.leads


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    """Keep hundreds of rounds from drowning the one failing example that one wants to read."""
    before = structlog.get_config()["wrapper_class"]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(wrapper_class=before)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def replicas(server: LocalApiServer, client: KubeClient, clock: Clock) -> AsyncIterator[tuple[Replica, Replica]]:
    async with client_of(server) as other:
        yield Replica("a", client, clock), Replica("b", other, clock)


def holder(server: LocalApiServer) -> str:
    return str(server.objects[LEASE]["spec"]["holderIdentity"])


# --- taking and keeping ---------------------------------------------------------------------------------------------


async def test_the_first_takes_a_lease_that_has_never_been_at_once(server: LocalApiServer, replicas: tuple[Replica, Replica]) -> None:
    a, b = replicas
    assert await a.round()
    assert not await b.round()
    assert holder(server) == "a"
    assert server.objects[LEASE]["spec"]["leaseDurationSeconds"] == 12


async def test_of_two_that_create_it_at_once_one_leads(server: LocalApiServer, replicas: tuple[Replica, Replica]) -> None:
    assert sorted(await asyncio.gather(*(replica.round() for replica in replicas))) == [False, True]


async def test_a_leader_that_renews_leads_for_ever(clock: Clock, replicas: tuple[Replica, Replica]) -> None:
    a, b = replicas
    for _ in range(20):
        assert await a.round()
        clock.now += 2
        assert not await b.round()
    assert a.lists == 1


async def test_another_takes_over_when_the_lease_has_stood_still_for_its_duration(clock: Clock, replicas: tuple[Replica, Replica]) -> None:
    a, b = replicas
    await a.round()
    assert not await b.round()
    clock.now += 12
    assert not await b.round(), "not longer than the duration yet"
    assert not a.leadership.leads, "its right has ended all the same"
    clock.now += 0.1
    assert await b.round()
    assert b.lists == 1


async def test_the_one_that_waits_looks_again_just_when_the_lease_may_have_run_out(clock: Clock, replicas: tuple[Replica, Replica]) -> None:
    a, b = replicas
    await a.round()
    await b.round()
    assert a.leadership._runs_out_in_s() == RENEW_EVERY_S, "it leads"
    clock.now += 11.5
    await b.round()
    assert 0.5 < b.leadership._runs_out_in_s() < 0.6
    clock.now += 0.6
    assert await b.round()


async def test_the_duration_counts_from_when_one_saw_it_stand_still_not_from_the_holders_clock(
    server: LocalApiServer, clock: Clock, replicas: tuple[Replica, Replica]
) -> None:
    a, b = replicas
    await a.round()
    server.objects[LEASE]["spec"]["renewTime"] = "2001-01-01T00:00:00.000000Z"
    clock.now += 11
    assert not await b.round()
    clock.now += 11
    assert not await b.round()
    clock.now += 2
    assert await b.round()


async def test_the_right_to_bind_counts_from_before_the_renewal_was_sent(
    server: LocalApiServer, clock: Clock, replicas: tuple[Replica, Replica]
) -> None:
    a, _ = replicas
    await a.round()
    slow = server.fault("PUT", LEASE, Fault.HOLD_ANSWER)
    renewing = asyncio.create_task(a.round())
    await slow.hit.wait()
    clock.now += 3
    slow.go.set()
    await renewing
    assert a.leadership.may_take_s() == 12 - 3 - MARGIN_S


async def test_nobody_binds_before_a_fresh_list_and_the_lease_is_renewed_while_it_takes_long(
    server: LocalApiServer, clock: Clock, replicas: tuple[Replica, Replica]
) -> None:
    a, b = replicas
    a.may_list.clear()
    for _ in range(10):
        assert not await a.round()
        assert a.leadership.may_take_s() == 0
        assert not await b.round()
        clock.now += 2
    a.may_list.set()
    await until(lambda: a.leadership.leads)
    assert a.lists == 1


async def test_a_list_that_fails_is_tried_again(clock: Clock, replicas: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch) -> None:
    a, _ = replicas

    async def broken() -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(a.leadership, "_prepare", broken)
    assert not await a.round()
    monkeypatch.undo()
    assert await a.round()


# --- losing ---------------------------------------------------------------------------------------------------------


async def test_a_leader_whose_renewals_get_lost_stops_before_another_can_take_over(
    server: LocalApiServer, clock: Clock, replicas: tuple[Replica, Replica]
) -> None:
    a, b = replicas
    await a.round()
    await b.round()
    with server.failing("PUT", LEASE):
        for _ in range(5):
            clock.now += 2
            assert await a.round()
            assert f"PUT {LEASE}" in a.leadership.trouble
            assert not await b.round()
    assert a.leadership.leads
    assert a.leadership.may_take_s() <= 0, "a binding could still be under way when the lease runs out"
    clock.now += 2
    assert not a.leadership.leads


async def test_a_leader_that_was_stopped_while_another_led_does_not_go_on(clock: Clock, replicas: tuple[Replica, Replica]) -> None:
    a, b = replicas
    await a.round()
    await b.round()
    clock.now += 13
    assert await b.round()
    assert not a.leadership.leads, "from its first moment, before it has asked anybody"
    assert not await a.round()
    assert a.leadership.trouble == ""


async def test_a_renewal_that_was_under_way_when_the_process_was_stopped_does_not_bring_the_right_back(
    server: LocalApiServer, clock: Clock, replicas: tuple[Replica, Replica]
) -> None:
    a, b = replicas
    await a.round()
    await b.round()
    late = server.fault("PUT", LEASE, Fault.HOLD)
    renewing = asyncio.create_task(a.round())
    await late.hit.wait()
    clock.now += 13
    assert await b.round()
    late.go.set()
    assert not await renewing
    assert holder(server) == "b"
    assert await b.round()


async def test_after_an_outage_in_which_nobody_led_the_holder_goes_on_in_the_next_round_with_a_fresh_list(
    clock: Clock, server: LocalApiServer, replicas: tuple[Replica, Replica]
) -> None:
    a, _ = replicas
    await a.round()
    with server.failing("GET", LEASE):
        for _ in range(60):
            clock.now += 2
            await a.round()
    assert not a.leadership.leads
    assert await a.round()
    assert a.lists == 2


async def test_a_holder_that_was_stopped_while_nobody_wanted_the_lease_lists_again(clock: Clock, replicas: tuple[Replica, Replica]) -> None:
    a, _ = replicas
    await a.round()
    clock.now += 60
    a.may_list.clear()
    assert not await a.round(), "the lease is renewed, the state is a minute old"
    a.may_list.set()
    await until(lambda: a.leadership.leads)
    assert a.lists == 2


async def test_a_list_begun_under_an_older_lease_does_not_count_for_the_next(
    server: LocalApiServer, clock: Clock, replicas: tuple[Replica, Replica]
) -> None:
    a, _ = replicas
    a.may_list.clear()
    await a.round()
    clock.now += 13
    with server.failing("PUT", LEASE):
        await a.round()
    assert a.leadership._preparing is None
    a.may_list.set()
    assert await a.round()
    assert a.lists == 1


async def test_the_lost_answer_of_a_takeover_costs_one_round_and_no_second_wait(
    server: LocalApiServer, clock: Clock, replicas: tuple[Replica, Replica]
) -> None:
    a, b = replicas
    await a.round()
    await b.round()
    clock.now += 13
    with server.failing("PUT", LEASE, Fault.CUT):
        assert not await b.round()
    assert holder(server) == "b"
    clock.now += 2
    assert await b.round()


async def test_a_lost_creation_is_tried_again(server: LocalApiServer, replicas: tuple[Replica, Replica]) -> None:
    a, _ = replicas
    with server.failing("POST", LEASES):
        assert not await a.round()
    assert await a.round()


async def test_a_lease_that_somebody_deletes_makes_no_second_leader(server: LocalApiServer, clock: Clock, replicas: tuple[Replica, Replica]) -> None:
    a, b = replicas
    await a.round()
    await b.round()
    server.delete(LEASE)
    assert not await b.round(), "a believes that it leads for another 12 seconds"
    assert await a.round(), "its holder may create it again at once"
    server.delete(LEASE)
    assert not await b.round()
    clock.now += 12.1
    assert not a.leadership.leads
    assert await b.round()


async def test_an_answer_that_is_no_lease_changes_nothing(server: LocalApiServer, clock: Clock, replicas: tuple[Replica, Replica]) -> None:
    a, _ = replicas
    await a.round()
    server.fault("GET", LEASE, Fault.GARBAGE)
    assert await a.round()
    assert "unexpected character" in a.leadership.trouble
    for method in ("GET", "PUT"):
        server.fault(method, LEASE, 403)
        assert await a.round()
        assert f"{method} {LEASE} answered 403" in a.leadership.trouble
    assert await a.round()
    assert a.leadership.trouble == ""


# --- giving it up ---------------------------------------------------------------------------------------------------


async def test_a_lease_that_is_given_up_is_taken_at_once(server: LocalApiServer, replicas: tuple[Replica, Replica]) -> None:
    a, b = replicas
    await a.round()
    await b.round()
    await a.leadership.release()
    assert not a.leadership.leads
    assert holder(server) == ""
    assert await b.round()
    assert server.objects[LEASE]["spec"]["leaseTransitions"] == 1


async def test_a_lease_whose_holder_somebody_clears_makes_no_second_leader(
    server: LocalApiServer, clock: Clock, replicas: tuple[Replica, Replica]
) -> None:
    """A person's edit looks nearly like a Lease that was given up, but its holder goes on until it sees it."""
    a, b = replicas
    await a.round()
    await b.round()
    edited = deepcopy(server.objects[LEASE])
    edited["spec"]["holderIdentity"] = ""
    server.put(LEASE, edited)
    assert not await b.round()
    assert a.leadership.leads
    assert not await a.round(), "it stands down as soon as it sees that"
    clock.now += 12.1
    assert await b.round()


async def test_only_ones_own_lease_is_given_up(server: LocalApiServer, clock: Clock, replicas: tuple[Replica, Replica]) -> None:
    a, b = replicas
    await a.round()
    await b.leadership.release()
    clock.now += 13
    await a.leadership.release()
    assert holder(server) == "a"


async def test_giving_it_up_to_a_server_that_is_away_is_no_error(server: LocalApiServer, replicas: tuple[Replica, Replica]) -> None:
    a, _ = replicas
    await a.round()
    with server.failing("GET", LEASE):
        await a.leadership.release()
    assert holder(server) == "a"


async def test_it_runs_by_itself_leads_as_soon_as_it_is_prepared_and_ends_with_its_task(
    server: LocalApiServer, replicas: tuple[Replica, Replica]
) -> None:
    a, _ = replicas
    a.may_list.clear()
    task = asyncio.create_task(a.leadership.run())
    await until(lambda: a.leadership._preparing)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert a.leadership._preparing is None
    a.may_list.set()
    task = asyncio.create_task(a.leadership.run())
    await until(lambda: a.leadership.leads, 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


# --- the label ------------------------------------------------------------------------------------------------------


async def labels(server: LocalApiServer) -> dict[str, str | None]:
    return {path.rpartition("/")[2]: item["metadata"].get("labels", {}).get(LEADER_LABEL) for path, item in server.objects.items() if POD in path}


@pytest.fixture
async def pods(server: LocalApiServer, replicas: tuple[Replica, Replica], clock: Clock) -> tuple[Replica, Replica]:
    for name in ("pod-a", "pod-b"):
        server.put(f"{POD}/{name}", {"metadata": {"name": name, "namespace": "linkwise-system"}})
    return Replica("a", replicas[0].client, clock, "pod-a"), Replica("b", replicas[1].client, clock, "pod-b")


async def settle(replica: Replica) -> None:
    await replica.round()  # the round that leads
    await replica.round()  # the label follows when it leads


async def test_the_service_finds_the_leader_by_its_label_and_no_other(server: LocalApiServer, clock: Clock, pods: tuple[Replica, Replica]) -> None:
    a, b = pods
    await settle(a)
    await settle(b)
    assert await labels(server) == {"pod-a": "true", "pod-b": None}
    clock.now += 13
    await settle(b)
    assert await labels(server) == {"pod-a": None, "pod-b": "true"}, "a was stopped and could not take its own label"
    await settle(a)
    assert await labels(server) == {"pod-a": None, "pod-b": "true"}


async def test_a_process_that_starts_just_after_the_lease_was_deleted_makes_no_second_leader(
    server: LocalApiServer, clock: Clock, pods: tuple[Replica, Replica]
) -> None:
    """It has never seen the Lease, but the label tells that somebody leads, who binds until its next round, or for longer where it cannot be reached."""
    a, b = pods
    await settle(a)
    server.delete(LEASE)
    assert not await b.round()
    assert a.leadership.leads
    clock.now += 12
    assert not await b.round()
    clock.now += 0.1
    assert not a.leadership.leads
    assert await b.round()


async def test_whether_somebody_leads_is_not_guessed(server: LocalApiServer, clock: Clock, pods: tuple[Replica, Replica]) -> None:
    """Where nobody tells which pods carry the label, the Lease is not taken."""
    a, b = pods
    await settle(a)
    server.delete(LEASE)
    server.fault("GET", POD, 500)
    assert not await b.round()
    assert "answered 500" in b.leadership.trouble
    assert not await b.round()
    assert await a.round()


async def test_a_process_that_starts_in_the_pod_of_a_dead_leader_takes_the_label_off(
    server: LocalApiServer, client: KubeClient, clock: Clock, pods: tuple[Replica, Replica]
) -> None:
    a, _ = pods
    await settle(a)
    again = Replica("a again", client, clock, "pod-a")
    await again.round()
    assert await labels(server) == {"pod-a": None, "pod-b": None}


async def test_a_label_that_cannot_be_written_costs_no_lease_and_is_tried_again(server: LocalApiServer, pods: tuple[Replica, Replica]) -> None:
    a, _ = pods
    server.fault("PATCH", f"{POD}/pod-a", 403, times=2)
    await settle(a)
    assert a.leadership.leads
    assert a.leadership.trouble == ""
    await settle(a)
    assert (await labels(server))["pod-a"] == "true"


async def test_outside_a_cluster_there_is_no_pod_to_label(server: LocalApiServer, replicas: tuple[Replica, Replica]) -> None:
    await settle(replicas[0])
    assert server.asked("PATCH", ".*") == []


# --- whatever happens -----------------------------------------------------------------------------------------------

NAMES = ("a", "b")


class LeaseMachine(RuleBasedStateMachine):
    """Two replicas, going their rounds as time passes: lost and late requests, stops in mid-air, deaths, a Lease that is given up or deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = Clock()
        self.server = LocalApiServer()
        self.open = running(self.server)
        self.loop.run_until_complete(self.open.__aenter__())
        self.replicas = {name: Replica(name, self._client(), self.clock) for name in NAMES}
        self.under_way: dict[str, tuple[asyncio.Task[bool], Rule]] = {}  # stopped in a round
        self.stopped: set[str] = set()
        self.rights: dict[str, float] = {}  # when the last binding that a replica may have posted can no longer take effect
        self.processes = 0

    def _client(self) -> KubeClient:
        async def made() -> KubeClient:
            return client_of(self.server)

        return self.loop.run_until_complete(made())

    def teardown(self) -> None:
        async def end() -> None:
            for task, held in self.under_way.values():
                held.go.set()
                task.cancel()
            await asyncio.gather(*(task for task, _ in self.under_way.values()), return_exceptions=True)
            for replica in self.replicas.values():
                await replica.client.close()
            await self.open.__aexit__(None, None, None)

        self.loop.run_until_complete(end())
        self.loop.close()

    def _awake(self) -> list[str]:
        return [name for name in NAMES if name not in self.under_way and name not in self.stopped]

    @rule(seconds=st.sampled_from([0.5, 2.0, 2.0, 2.0, 5.0]), rounds=st.sampled_from([1, 1, 3, 7]), order=st.permutations(NAMES))
    def time_passes_and_who_is_awake_goes_a_round(self, seconds: float, rounds: int, order: list[str]) -> None:
        for _ in range(rounds):
            self.clock.now += seconds
            for name in order:
                if name in self._awake():
                    self.loop.run_until_complete(self.replicas[name].round())
            self._look()

    @rule(name=st.sampled_from(NAMES), fault=st.sampled_from([Fault.DROP, Fault.CUT]), method=st.sampled_from(["GET", "PUT|POST"]))
    def a_request_fails(self, name: str, fault: Fault, method: str) -> None:
        if name in self._awake():
            with self.server.failing(method, f"{LEASES}.*", fault):
                self.loop.run_until_complete(self.replicas[name].round())

    @rule(name=st.sampled_from(NAMES), method=st.sampled_from(["GET", "PUT|POST"]), after=st.booleans())
    def one_is_stopped_in_its_round(self, name: str, method: str, *, after: bool) -> None:
        """Its request, or the answer to it, waits while the other goes on."""

        async def begun() -> None:
            held = self.server.fault(method, f"{LEASES}.*", Fault.HOLD_ANSWER if after else Fault.HOLD)
            task = asyncio.create_task(self.replicas[name].round())
            hit = asyncio.create_task(held.hit.wait())
            await asyncio.wait((task, hit), return_when=asyncio.FIRST_COMPLETED)
            held.times = 0
            hit.cancel()
            if not task.done():
                self.under_way[name] = (task, held)

        if name in self._awake():
            self.loop.run_until_complete(begun())

    @rule(name=st.sampled_from(NAMES))
    def one_is_stopped_between_two_rounds(self, name: str) -> None:
        self.stopped.add(name)

    @rule(name=st.sampled_from(NAMES))
    def a_stopped_one_goes_on(self, name: str) -> None:
        self.stopped.discard(name)
        if name in self.under_way:
            task, held = self.under_way.pop(name)
            held.go.set()
            self.loop.run_until_complete(task)

    @rule(name=st.sampled_from(NAMES), in_order=st.booleans())
    def one_ends_and_starts_anew(self, name: str, *, in_order: bool) -> None:
        # A process that has never seen a Lease creates one at once, as after an installation: none starts in the moment after a deletion.
        if name not in self._awake() or (self.rights and LEASE not in self.server.objects):
            return
        if in_order:  # it waits for what it has posted before it gives the Lease up
            self.loop.run_until_complete(self.replicas[name].leadership.release())
            self.rights.pop(name, None)
        self.processes += 1
        self.replicas[name] = Replica(f"{name}-{self.processes}", self.replicas[name].client, self.clock)

    @rule()
    def somebody_deletes_the_lease(self) -> None:
        if LEASE in self.server.objects and all(replica.leadership._seen is not None for replica in self.replicas.values()):
            self.server.delete(LEASE)

    @invariant()
    def never_do_two_lead_nor_one_before_every_binding_of_the_other_has_ended(self) -> None:
        self._look()

    def _look(self) -> None:
        leading = [name for name, replica in self.replicas.items() if replica.leadership.leads]
        assert len(leading) <= 1, leading
        for name, replica in self.replicas.items():
            if replica.leadership.leads:
                assert all(end <= self.clock.now for other, end in self.rights.items() if other != name), self.rights
            may_take_s = replica.leadership.may_take_s()
            if may_take_s > 0:
                self.rights[name] = self.clock.now + may_take_s


TestLeaseMachine = LeaseMachine.TestCase
TestLeaseMachine.settings = settings(max_examples=max(1, settings.default.max_examples // 2), stateful_step_count=25)
