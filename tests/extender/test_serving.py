"""The extender over an API server, in this process: who is answered, who binds, who wakes waiting pods, and in which order it ends."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from extender import serving
from extender.sample_machines import sample
from extender.serving import Access, Address, lease_name, serve_cluster
from extender.settings import Settings
from tests.builders import PodBuilder, gpushare_node, kube_node, pod, unhealthy_gpus
from tests.local_api_server import PODS, TOPOLOGIES, Fault, LocalApiServer, pod_path, running, until
from topology.api import Allocation

JsonObject = dict[str, Any]

LEASE = "/apis/coordination.k8s.io/v1/namespaces/linkwise-system/leases/linkwise-extender"


@dataclass
class Served:
    """A running replica and a client of its HTTP face."""

    http: httpx.AsyncClient
    task: "asyncio.Task[None]"

    async def verb(self, verb: str, call: JsonObject) -> tuple[JsonObject, httpx.Headers]:
        answer = await self.http.post(f"/{verb}", json=call)
        assert answer.status_code == 200
        return answer.json(), answer.headers

    async def filter(self, asked: PodBuilder, *nodes: str) -> list[str]:
        answer, _ = await self.verb("filter", {"Pod": asked.build(), "NodeNames": list(nodes)})
        assert not answer["Error"]
        found: list[str] = answer["NodeNames"]
        return found

    async def bind(self, asked: PodBuilder, node: str) -> str:
        call = {"PodNamespace": asked.namespace, "PodName": asked.name, "PodUID": asked.uid, "Node": node}
        error: str = (await self.verb("bind", call))[0]["Error"]
        return error

    async def refusal(self) -> str:
        """Why calls are not answered, empty where they are: then a body that is no call is told so."""
        answer = await self.http.post("/filter")
        return "" if answer.status_code == 400 else str(answer.json()["Error"])

    async def leads(self) -> None:
        async def answered() -> bool:
            return not await self.refusal()

        await comes_true(answered)

    async def ready(self) -> bool:
        return (await self.http.get("/readyz")).status_code == 200

    async def free(self, node: str) -> int:
        nodes = (await self.http.get("/api/v1/nodes")).json()["nodes"]
        return int(next((each["free"] for each in nodes if each["name"] == node), -1))

    async def end(self) -> None:
        """End it as Kubernetes does."""
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL, "the signal would end this test run"
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(10):
            await self.task


async def comes_true(condition: Callable[[], Awaitable[object]], seconds: float = 10.0) -> None:
    """Ask until the answer is true."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 - what is waited for is told over HTTP
            await asyncio.sleep(0.01)


@asynccontextmanager
async def started(tmp_path: Path, server: LocalApiServer, probe_port: int = 0, **settings: Any) -> AsyncIterator[Served]:
    file = tmp_path / "kubeconfig"
    file.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nusers: [{name: a, user: {token: secret}}]\n"
        f"contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\nclusters: [{{name: a, cluster: {{server: '{server.url}'}}}}]\n"
    )
    announced: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    work = serve_cluster(Access(file), Address("127.0.0.1", 0, probe_port=probe_port), Settings(**settings), announced.set_result)
    task = asyncio.create_task(work)
    await asyncio.wait((announced, task), return_when=asyncio.FIRST_COMPLETED)
    async with httpx.AsyncClient(base_url=await announced) as http:
        served = Served(http, task)
        try:
            yield served
        finally:
            if not task.done():
                await served.end()


@pytest.fixture
async def server() -> AsyncIterator[LocalApiServer]:
    async with running(LocalApiServer()) as api:
        publish(api, "node-a")
        api.put("/api/v1/nodes/node-a", {"metadata": {"name": "node-a"}})
        yield api


@pytest.fixture
async def served(tmp_path: Path, server: LocalApiServer) -> AsyncIterator[Served]:
    async with started(tmp_path, server) as replica:
        await replica.leads()
        yield replica


def publish(server: LocalApiServer, node: str, age_s: float = 0.0, kind: str = "dgx1v") -> None:
    server.put_topology(sample(kind, node, observed_at=datetime.now(UTC) - timedelta(seconds=age_s)).to_object())


async def shows_free(served: Served, node: str, gpus: int) -> None:
    async def free() -> bool:
        return await served.free(node) == gpus

    await comes_true(free)


def woken(server: LocalApiServer) -> list[str]:
    return [call.path.rpartition("/")[2] for call in server.asked("PATCH", "/api/v1/nodes/.*")]


# --- the walk -------------------------------------------------------------------------------------------------------


async def test_a_pod_is_filtered_on_the_watched_state_and_bound_with_its_allocation(server: LocalApiServer, served: Served) -> None:
    asked = pod("train").gpus(4)
    server.put_pod(asked.build())
    assert await served.filter(asked, "node-a", "node-z") == ["node-a"]
    assert await served.bind(asked, "node-a") == ""
    stored = server.objects[pod_path(asked.build())]
    assert stored["spec"]["nodeName"] == "node-a"
    assert Allocation.decode(stored["metadata"]["annotations"]["linkwise.dev/allocation"]).node == "node-a"
    await until(lambda: server.asked("POST", ".*/events"))
    assert server.asked("POST", ".*/events")[0].body["reason"] == "LinkwisePlaced"
    server.delete(pod_path(stored))
    await shows_free(served, "node-a", 8)


async def test_binds_which_overlap_leave_no_idle_connections_and_the_other_verbs_keep_theirs(served: Served) -> None:
    """kube-scheduler would wait its whole time-out on each of them, one after the other, if this process were stopped in mid-air."""
    call = {"Pod": pod("a").gpus(1).build(), "NodeNames": ["node-a"]}
    for verb in ("filter", "prioritize"):
        assert "connection" not in (await served.verb(verb, call))[1]
    _, headers = await served.verb("bind", {"PodNamespace": "default", "PodName": "a", "PodUID": "uid", "Node": "node-a"})
    assert headers["connection"] == "close"


async def test_the_api_server_does_not_answer_a_bind_call_and_the_caller_is_told_so_not_of_a_bug(server: LocalApiServer, served: Served) -> None:
    asked = pod("filtered-by-another").gpus(1)
    with server.failing("GET", pod_path(asked.build())), structlog.testing.capture_logs() as logs:
        assert (await served.bind(asked, "node-a")).startswith(f"GET {pod_path(asked.build())}: ")
    assert "please report" not in str(logs)


async def test_a_decision_that_nobody_can_look_up_is_unavailable(server: LocalApiServer, served: Served) -> None:
    with server.failing("GET", "/api/v1/namespaces/default/pods/train"):
        answer = await served.http.get("/api/v1/pods/default/train/decision")
    assert answer.status_code == 503
    assert "/api/v1/namespaces/default/pods/train" in answer.json()["Error"]


# --- who is answered ------------------------------------------------------------------------------------------------


async def test_nobody_is_answered_before_the_state_is_synced(tmp_path: Path, server: LocalApiServer) -> None:
    held = server.fault("GET", PODS, Fault.HOLD)
    async with started(tmp_path, server) as replica:
        await held.hit.wait()
        assert (await replica.http.get("/readyz")).status_code == 503
        assert await replica.refusal() == "the state is not synced with the API server yet"
        held.go.set()
        await replica.leads()
        assert (await replica.http.get("/readyz")).status_code == 200


@pytest.mark.parametrize("listed", ["/api/v1/nodes", "/api/v1/namespaces/kube-system/configmaps"])
async def test_nobody_is_answered_before_everything_is_listed(tmp_path: Path, server: LocalApiServer, listed: str) -> None:
    with server.failing("GET", listed) as rule:
        async with started(tmp_path, server) as replica:
            await rule.hit.wait()
            assert not await replica.ready()
            assert await replica.refusal() == "the state is not synced with the API server yet"
            rule.times = 0
            await comes_true(replica.ready)


async def test_pods_are_listed_once_the_gpus_of_the_nodes_are_known(tmp_path: Path, server: LocalApiServer) -> None:
    """A pod that came before the GPUs of its node would be counted twice: at 5,000 nodes half a second."""
    held = server.fault("GET", TOPOLOGIES, Fault.HOLD)
    async with started(tmp_path, server) as replica:
        await held.hit.wait()
        await comes_true(lambda: _is_true(server.asked("GET", "/api/v1/nodes")))
        assert not server.asked("GET", PODS)
        held.go.set()
        await replica.leads()
        assert server.asked("GET", PODS)


async def _is_true(value: object) -> bool:
    return bool(value)


async def test_the_gpus_of_gpushares_plugin_follow_nodes_and_config_maps(server: LocalApiServer, served: Served) -> None:
    """A node that publishes no GPUTopology, and whose GPUs are named as unhealthy in kube-system."""

    async def shows(healthy: int) -> None:
        async def shown() -> bool:
            found = (await served.http.get("/api/v1/nodes/shared")).json()
            return found.get("healthy") == healthy

        await comes_true(shown)

    server.put("/api/v1/nodes/shared", gpushare_node("shared", 4))
    await shows(4)
    named = "/api/v1/namespaces/kube-system/configmaps/unhealthy-gpu-shared"
    server.put("/api/v1/namespaces/kube-system/configmaps/other", {"metadata": {"namespace": "kube-system", "name": "other"}})
    server.put(named, unhealthy_gpus("shared", "0,2"))
    await shows(2)
    server.delete(named)
    await shows(4)


async def test_what_is_left_beside_the_gpus_follows_nodes_and_pods(server: LocalApiServer, served: Served) -> None:
    async def shows(cpu: int | None) -> None:
        async def shown() -> bool:
            return (await served.http.get("/api/v1/nodes/node-a")).json()["cpuLeftMilli"] == cpu

        await comes_true(shown)

    await shows(None)
    server.put("/api/v1/nodes/node-a", kube_node("node-a", cpu="64", memory="512Gi"))
    await shows(64_000)
    web = server.put_pod(pod("web").plain(cpu="4").bound_to("node-a").build())
    await shows(60_000)
    server.delete(pod_path(web))
    await shows(64_000)
    server.delete("/api/v1/nodes/node-a")
    await shows(None)


async def test_a_replica_that_does_not_lead_is_ready_and_sends_the_caller_away(tmp_path: Path, server: LocalApiServer) -> None:
    server.put(LEASE, {"metadata": {"name": "linkwise-extender"}, "spec": {"holderIdentity": "another", "leaseDurationSeconds": 12}})
    async with started(tmp_path, server) as second:
        await comes_true(second.ready)
        for verb, call in (
            ("filter", {"Pod": pod("a").build(), "NodeNames": []}),
            ("prioritize", {"Pod": pod("a").build(), "NodeNames": []}),
            ("preempt", {"Pod": pod("a").build()}),
            ("bind", {"PodNamespace": "default", "PodName": "a", "PodUID": "uid", "Node": "node-a"}),
        ):
            answer, headers = await second.verb(verb, call)
            assert answer["Error"] == "this replica does not lead; the Service reaches the one that does"
            assert headers["connection"] == "close"


async def test_a_lease_that_cannot_be_renewed_is_told_as_the_reason(tmp_path: Path, server: LocalApiServer) -> None:
    with server.failing("GET", LEASE, 403):
        async with started(tmp_path, server) as replica:

            async def told() -> bool:
                return "403" in await replica.refusal()

            await comes_true(told)
            assert (await replica.refusal()).startswith("this replica does not lead; its lease could not be renewed (")


async def test_a_state_that_is_too_old_is_not_answered_from_and_is_right_again_by_itself(tmp_path: Path, server: LocalApiServer) -> None:
    async with started(tmp_path, server, most_state_age_s=0.2) as replica:
        await replica.leads()
        with server.failing("GET", f"{PODS}|{TOPOLOGIES}"):
            server.cut_watches()
            await comes_true(replica.refusal)
            said = await replica.refusal()
            assert "linkwise_answering 0.0" in (await replica.http.get("/metrics")).text
        assert said.startswith("the state is 0 s old, because the API server does not answer; up to 0.2 s are allowed")
        await replica.leads()
        assert "linkwise_answering 1.0" in (await replica.http.get("/metrics")).text


# --- looking after things -------------------------------------------------------------------------------------------


async def test_a_waiting_pod_is_woken_by_a_touched_node_once_it_fits(server: LocalApiServer, served: Served) -> None:
    server.put("/api/v1/nodes/node-b", {"metadata": {"name": "node-b"}})
    asked = pod("train").gpus(2).min_bandwidth(400)
    assert await served.filter(asked, "node-a") == []
    publish(server, "node-b", kind="nvswitch")
    await until(lambda: woken(server))
    assert woken(server) == ["node-b"]
    assert "linkwise.dev/topology-generation" in server.objects["/api/v1/nodes/node-b"]["metadata"]["annotations"]


async def test_a_node_that_is_gone_does_not_keep_a_waiting_pod_from_being_woken_by_another(server: LocalApiServer, served: Served) -> None:
    server.put("/api/v1/nodes/node-c", {"metadata": {"name": "node-c"}})
    assert await served.filter(pod("train").gpus(2).min_bandwidth(400), "node-a") == []
    publish(server, "node-b", kind="nvswitch")
    publish(server, "node-c", kind="nvswitch")
    await until(lambda: "node-c" in woken(server))


STARTUP = {"key": "linkwise.dev/agent-not-ready", "effect": "NoSchedule"}
OTHER = {"key": "team/other", "effect": "NoSchedule"}


def register(server: LocalApiServer, node: str) -> None:
    """Let a Node register with the startup taint."""
    server.put(f"/api/v1/nodes/{node}", {"metadata": {"name": node, "uid": f"uid-{node}"}, "spec": {"taints": [OTHER, STARTUP]}})


def taints(server: LocalApiServer, node: str) -> list[JsonObject]:
    found: list[JsonObject] = server.objects[f"/api/v1/nodes/{node}"]["spec"]["taints"]
    return found


async def test_the_startup_taint_goes_when_the_topology_comes_and_metrics_tell_what_a_node_waits_for(server: LocalApiServer, served: Served) -> None:
    register(server, "node-b")

    async def waits_for_its_topology() -> bool:
        return 'linkwise_startup_taints{awaited="topology"} 1.0' in (await served.http.get("/metrics")).text

    await comes_true(waits_for_its_topology)
    assert taints(server, "node-b") == [OTHER, STARTUP]
    publish(server, "node-b")
    await until(lambda: taints(server, "node-b") == [OTHER])
    assert woken(server) == ["node-b"]


async def test_a_replica_that_does_not_lead_leaves_the_startup_taint_to_the_one_that_does(tmp_path: Path, server: LocalApiServer) -> None:
    server.put(LEASE, {"metadata": {"name": "linkwise-extender"}, "spec": {"holderIdentity": "another", "leaseDurationSeconds": 12}})
    register(server, "node-a")
    async with started(tmp_path, server) as second:

        async def waits_for_nothing() -> bool:
            return 'linkwise_startup_taints{awaited="nothing"} 1.0' in (await second.http.get("/metrics")).text

        await comes_true(waits_for_nothing)
        server.put(LEASE, {"metadata": {"name": "linkwise-extender"}, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})
        await until(lambda: taints(server, "node-a") == [OTHER])
        assert woken(server) == ["node-a"], "once, and not before it led"


async def test_a_new_leader_wakes_the_pods_that_the_one_before_refused(tmp_path: Path, server: LocalApiServer) -> None:
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    server.put_pod(pod("train").gpus(2).build() | {"status": {"phase": "Pending", "conditions": conditions}})
    async with started(tmp_path, server) as replica:
        await replica.leads()
        await until(lambda: woken(server))
        assert woken(server) == ["node-a"]


async def test_without_waiting_pods_no_node_is_touched(server: LocalApiServer, served: Served) -> None:
    publish(server, "node-b", kind="nvswitch")
    await shows_free(served, "node-b", 8)
    await asyncio.sleep(0.5)  # two rounds and a half
    assert woken(server) == []


async def test_a_silent_agents_node_is_closed_from_the_first_answer_on(tmp_path: Path, server: LocalApiServer) -> None:
    publish(server, "node-old", age_s=500)
    async with started(tmp_path, server) as replica:
        await replica.leads()
        assert await replica.filter(pod("train").gpus(1), "node-a", "node-old") == ["node-a"]


async def test_agents_that_could_not_report_while_the_api_server_was_away_are_given_time_for_it(
    tmp_path: Path, server: LocalApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_STALE_EVERY_S", 0.05)
    monkeypatch.setattr(serving, "_DEAF_AFTER_S", 0.3)
    monkeypatch.setattr(serving, "_HEARTBEATS_IN_STALE", 1)
    publish(server, "node-old", age_s=500)
    async with started(tmp_path, server, stale_after_s=2.0) as replica:
        await replica.leads()
        with server.failing("GET", f"{PODS}|{TOPOLOGIES}"):
            server.cut_watches()
            await asyncio.sleep(2.2)
        await until(lambda: server.watches(TOPOLOGIES) and server.watches(PODS))
        assert await replica.filter(pod("train").gpus(1), "node-a") == ["node-a"], "older than 2 s, and nobody could have said so"
        assert await replica.filter(pod("train").gpus(1), "node-old") == [], "it was silent before"
        publish(server, "node-old")

        async def opened() -> bool:
            return await replica.filter(pod("train").gpus(1), "node-old") == ["node-old"]

        await comes_true(opened)

        async def closed() -> bool:
            return not await replica.filter(pod("train").gpus(1), "node-a")

        await comes_true(closed)


async def test_a_task_that_fails_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_AGAIN_AFTER_S", 0.0)
    attempts: list[int] = []

    async def fails_twice() -> None:
        attempts.append(1)
        if len(attempts) < 3:
            raise RuntimeError("a bug")
        await asyncio.Event().wait()

    task = asyncio.create_task(serving._kept_running(fails_twice))
    await until(lambda: len(attempts) == 3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


# --- ending ---------------------------------------------------------------------------------------------------------


def holder(server: LocalApiServer) -> str:
    return str(server.objects[LEASE]["spec"]["holderIdentity"])


async def test_a_replica_that_is_asked_to_end_gives_its_lease_up(server: LocalApiServer, served: Served) -> None:
    assert holder(server)
    await served.end()
    assert holder(server) == ""
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_a_call_in_flight_is_answered_before_the_lease_is_given_up(server: LocalApiServer, served: Served) -> None:
    asked = pod("train").gpus(1)
    server.put_pod(asked.build())
    held = server.fault("POST", ".*/binding", Fault.HOLD)
    binding = asyncio.create_task(served.bind(asked, "node-a"))
    await held.hit.wait()
    ending = asyncio.create_task(served.end())
    await asyncio.sleep(0.2)
    assert holder(server)
    held.go.set()
    assert await binding == ""
    await ending
    assert holder(server) == ""


async def test_a_lease_is_not_given_up_while_a_binding_without_an_answer_may_still_take_effect(server: LocalApiServer, served: Served) -> None:
    """Whoever takes it at once would list, and give the GPUs away again before the late binding lands."""
    asked = pod("train").gpus(1)
    server.put_pod(asked.build())
    server.fault("POST", ".*/binding", Fault.DROP)
    assert "got no answer" in await served.bind(asked, "node-a")
    await served.end()
    assert holder(server)


async def test_a_port_that_is_taken_ends_it_with_a_sentence(tmp_path: Path, server: LocalApiServer, served: Served) -> None:
    port = served.http.base_url.port
    assert port is not None
    file = tmp_path / "kubeconfig"
    with pytest.raises(Exception, match=f"--port {port} cannot be listened on"):
        await serve_cluster(Access(file), Address("127.0.0.1", port), Settings(), lambda _: None)


async def test_probes_may_have_a_port_of_their_own(tmp_path: Path, server: LocalApiServer, unused_tcp_port: int) -> None:
    async with started(tmp_path, server, probe_port=unused_tcp_port) as replica:
        await replica.leads()
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{unused_tcp_port}") as probes:
            assert (await probes.get("/readyz")).text == "ok"
            assert (await probes.get("/healthz")).text == "ok"
            assert "linkwise_gpus" in (await probes.get("/metrics")).text
            assert (await probes.post("/filter", json={})).status_code == 404


# --- who one is -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "namespace", "begins", "labelled"),
    [
        pytest.param({"POD_NAME": "linkwise-0", "POD_NAMESPACE": "gpu"}, "gpu", "linkwise-0_", "linkwise-0", id="in a pod"),
        pytest.param({}, "linkwise-system", "", "", id="outside a cluster"),
    ],
)
def test_every_process_is_a_new_holder(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], namespace: str, begins: str, labelled: str
) -> None:
    for name in ("POD_NAME", "POD_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    first, second = lease_name(Settings()), lease_name(Settings())
    assert (first.namespace, first.name, first.pod, first.duration_s) == (namespace, "linkwise-extender", labelled, 12)
    assert first.identity.startswith(begins)
    assert first.identity != second.identity
