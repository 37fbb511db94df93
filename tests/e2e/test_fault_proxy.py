"""Each fault of the fault injector does what its name says, on the real API server: what it did is read past the proxy."""

import http.client
import math
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest

from tests.e2e.api_server import ApiServer
from tests.e2e.control_plane import ControlPlane
from tests.e2e.fault_proxy import FaultProxy
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.program import wait_until

PATH = "/api/v1/namespaces/default/configmaps"


class Caller:
    """A client without any retry of its own, so that a fault shows as what it is."""

    def __init__(self, url: str, kubeconfig: Path) -> None:
        self._address = urlsplit(url).netloc
        self._headers = {
            "Authorization": f"Bearer {orjson.loads(kubeconfig.read_bytes())['users'][0]['user']['token']}",
            "Content-Type": "application/json",
        }

    def send(self, method: str, path: str, body: Any = None, timeout: float = 20) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self._address, timeout=timeout)
        try:
            connection.request(method, path, orjson.dumps(body) if body is not None else None, self._headers)
            response = connection.getresponse()
            return response.status, orjson.loads(response.read())
        finally:
            connection.close()

    def create(self, name: str, timeout: float = 20) -> int:
        return self.send("POST", PATH, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}, timeout)[0]


class Watch:
    """A watch that notes what it hears and when, and how it ended."""

    def __init__(self, caller: Caller, version: str) -> None:
        self.heard: list[tuple[float, str]] = []
        self.ended: str = ""
        self._connection = http.client.HTTPConnection(caller._address, timeout=20)
        self._connection.request("GET", f"{PATH}?watch=1&resourceVersion={version}", headers=caller._headers)
        self._socket = self._connection.sock
        self._response = self._connection.getresponse()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        try:
            while line := self._response.readline():
                self.heard.append((time.monotonic(), orjson.loads(line)["object"]["metadata"]["name"]))
            self.ended = "end of stream"
        except (OSError, http.client.HTTPException) as error:
            self.ended = type(error).__name__
        finally:
            self._response.close()
            self._connection.close()

    def hang_up(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)

    def names(self) -> list[str]:
        return [name for _, name in self.heard]

    def join(self) -> None:
        self._thread.join(10)


@pytest.fixture
def caller(control_plane: ControlPlane, fault_proxy: FaultProxy) -> Caller:
    return Caller(fault_proxy.url, control_plane.kubeconfig("admin", server=fault_proxy.url))


@pytest.fixture(autouse=True)
def _no_config_maps_of_others(live: LiveCluster) -> Iterator[None]:
    yield
    for item in live.api.items("ConfigMap", "default"):
        live.api.delete("ConfigMap", item["metadata"]["name"])


@pytest.fixture
def watch(live: LiveCluster, caller: Caller, fault_proxy: FaultProxy) -> Iterator[Watch]:
    version = live.api.request("GET", PATH)["metadata"]["resourceVersion"]
    watch = Watch(caller, version)
    yield watch
    fault_proxy.clear()
    fault_proxy.cut_watches()
    watch.join()


@pytest.fixture
def beside() -> Iterator[ThreadPoolExecutor]:
    """Run calls beside the test."""
    with ThreadPoolExecutor(4) as pool:
        yield pool


def exists(live: LiveCluster, name: str) -> bool:
    return live.api.find("ConfigMap", name, "default") is not None


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


def test_without_faults_calls_pass_with_the_callers_own_rights(
    control_plane: ControlPlane, live: LiveCluster, caller: Caller, fault_proxy: FaultProxy
) -> None:
    assert caller.create("a") == 201
    assert exists(live, "a")
    assert Caller(fault_proxy.url, control_plane.kubeconfig("linkwise-extender")).create("b") == 403
    assert [(call.path, call.status) for call in fault_proxy.seen("POST")] == [(PATH, 201), (PATH, 403)]


def test_the_official_client_works_through_the_proxy(control_plane: ControlPlane, live: LiveCluster, fault_proxy: FaultProxy) -> None:
    kubeconfig = control_plane.kubeconfig("admin", server=fault_proxy.url)
    api = ApiServer(kubeconfig)
    api.create(config_map("a"))
    assert [item["metadata"]["name"] for item in api.items("ConfigMap", "default", fields="metadata.name=a")] == ["a"]
    api.close()


def test_a_delayed_call_arrives_although_its_caller_has_given_up(live: LiveCluster, caller: Caller, fault_proxy: FaultProxy) -> None:
    rule = fault_proxy.delay(2.0, "POST", "/configmaps$", times=1)
    with pytest.raises(TimeoutError):
        caller.create("late", timeout=0.2)
    rule.wait_hit()
    assert not exists(live, "late")
    wait_until(lambda: exists(live, "late"), what="the late call has arrived")
    assert caller.create("next") == 201


def test_a_held_call_arrives_when_it_is_released(live: LiveCluster, caller: Caller, fault_proxy: FaultProxy, beside: ThreadPoolExecutor) -> None:
    rule = fault_proxy.hold("POST")
    status: Future[int] = beside.submit(caller.create, "held")
    rule.wait_hit()
    assert not exists(live, "held")
    rule.release()
    assert status.result(10) == 201


def test_a_dropped_call_never_reaches_the_api_server(live: LiveCluster, caller: Caller, fault_proxy: FaultProxy) -> None:
    rule = fault_proxy.drop("POST", times=1)
    with pytest.raises(ConnectionError):
        caller.create("lost")
    assert rule.hits == 1
    assert not exists(live, "lost")
    assert caller.create("lost") == 201, "only the first call was to be dropped"


def test_a_call_cut_after_sending_has_happened_and_its_caller_does_not_know(live: LiveCluster, caller: Caller, fault_proxy: FaultProxy) -> None:
    fault_proxy.cut_after_send("POST", times=1)
    with pytest.raises(ConnectionError):
        caller.create("done")
    assert exists(live, "done")
    assert fault_proxy.seen("POST")[0].status == 201


def test_a_held_answer_leaves_time_between_the_deed_and_the_news(
    live: LiveCluster, caller: Caller, fault_proxy: FaultProxy, beside: ThreadPoolExecutor
) -> None:
    rule = fault_proxy.hold_answer("POST", times=1)
    status = beside.submit(caller.create, "done")
    rule.wait_hit()
    assert exists(live, "done")
    assert not status.done()
    rule.release()
    assert status.result(10) == 201


@pytest.mark.parametrize("code", [429, 500, 503])
def test_an_answer_in_the_api_servers_place(live: LiveCluster, caller: Caller, fault_proxy: FaultProxy, code: int) -> None:
    fault_proxy.answer(code, "POST", times=1, retry_after_s=1)
    assert caller.create("refused") == code
    assert not exists(live, "refused")


def test_an_error_after_the_deed(live: LiveCluster, caller: Caller, fault_proxy: FaultProxy) -> None:
    fault_proxy.answer_after_send(500, "POST", times=1)
    assert caller.create("done") == 500
    assert exists(live, "done")
    assert fault_proxy.seen("POST")[0].status == 201


def test_faults_hit_only_the_calls_that_match(caller: Caller, fault_proxy: FaultProxy) -> None:
    fault_proxy.drop("GET", "/secrets$")
    assert caller.send("GET", PATH)[0] == 200
    with pytest.raises(ConnectionError):
        caller.send("GET", "/api/v1/namespaces/default/secrets?limit=5")
    fault_proxy.clear()
    assert caller.send("GET", "/api/v1/namespaces/default/secrets?limit=5")[0] == 200


def test_a_watch_hears_of_a_change_at_once(live: LiveCluster, watch: Watch) -> None:
    live.api.create(config_map("a"))
    wait_until(lambda: watch.names() == ["a"], 2, "the watch has heard of it")


def test_held_watch_events_come_late_and_in_order_and_other_calls_do_not(
    live: LiveCluster, caller: Caller, fault_proxy: FaultProxy, watch: Watch
) -> None:
    fault_proxy.hold_watch_events(2.0, "/configmaps$")
    started = time.monotonic()
    live.api.create(config_map("a"))
    live.api.create(config_map("b"))
    assert len(caller.send("GET", PATH)[1]["items"]) >= 2
    assert watch.names() == []
    wait_until(lambda: watch.names() == ["a", "b"], 5, "the watch has heard of both")
    assert all(moment - started >= 2.0 for moment, _ in watch.heard)


def test_watch_events_held_without_end_come_when_the_rule_is_removed(live: LiveCluster, fault_proxy: FaultProxy, watch: Watch) -> None:
    rule = fault_proxy.hold_watch_events(math.inf)
    live.api.create(config_map("a"))
    wait_until(lambda: exists(live, "a"))
    assert watch.names() == []
    rule.remove()
    wait_until(lambda: watch.names() == ["a"], what="the watch has heard of it")


def test_cut_watches_end_and_other_calls_go_on(caller: Caller, fault_proxy: FaultProxy, watch: Watch) -> None:
    assert fault_proxy.cut_watches("/pods$") == 0
    assert fault_proxy.cut_watches("/configmaps$") == 1
    watch.join()
    assert watch.ended == "ConnectionResetError"
    assert caller.send("GET", PATH)[0] == 200


def test_an_api_server_that_is_gone_refuses_connections_until_it_is_back(caller: Caller, fault_proxy: FaultProxy, watch: Watch) -> None:
    fault_proxy.go_away()
    with pytest.raises(ConnectionRefusedError):
        caller.send("GET", PATH)
    watch.join()
    assert watch.ended == "ConnectionResetError"
    fault_proxy.come_back()
    assert caller.send("GET", PATH)[0] == 200


def test_a_watcher_that_goes_away_ends_its_watch_at_the_proxy(fault_proxy: FaultProxy, watch: Watch) -> None:
    assert fault_proxy.watches() == 1
    watch.hang_up()
    watch.join()
    wait_until(lambda: fault_proxy.watches() == 0, what="the proxy has ended the watch")
