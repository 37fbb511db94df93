"""The latency harness: what it sends is what kube-scheduler sends, what it times is one answer, what it accepts is right, and its verdicts follow from its figures."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.latency import answers, load, percentiles, report
from bench.latency.crowd import Throughput
from bench.latency.node_list import Nodes, nodes_body
from bench.latency.percentiles import latency
from bench.latency.report import GO, TWO_GPUS, Measured, Verdict, verdicts
from bench.latency.typed_names import typed_decoder
from bench.latency.walk import ECHO, FILTER, Walked
from bench.latency.wire import Answered, Connection
from extender.demand import read_demand
from topology.errors import InputError, InternalError

# --- percentiles ----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 50), min_size=1), st.sampled_from([0, 50, 90, 99, 99.9, 100]))
def test_a_percentile_is_the_smallest_time_that_so_many_do_not_exceed(values: list[int], percent: float):
    """A time that was really measured, never one in between."""
    ordered = sorted(map(float, values))
    found = percentiles.percentile(ordered, percent)
    assert found in ordered
    assert sum(value <= found for value in ordered) >= percent * len(ordered) / 100
    smaller = [value for value in ordered if value < found]
    assert not smaller or len(smaller) < percent * len(ordered) / 100


def test_the_first_call_is_told_apart_and_counts_for_nothing_else():
    """Times are in ms; the ladder rises to the slowest call."""
    found = latency([0.002, 0.001], first=1.0)
    assert (found.first_ms, found.p50, found.max) == pytest.approx((1000, 1, 2))
    assert found.calls_per_s == pytest.approx(2 / 0.003)
    assert [time for _, time in found.ladder] == sorted(time for _, time in found.ladder)


# --- the wire -------------------------------------------------------------------------------------------------------


@contextmanager
def answering(*answers_: list[bytes]) -> Iterator[str]:
    """Serve one connection: each call is answered with the pieces of the next answer, one send a piece; a connection is closed when its answers are out."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connected, _ = listener.accept()
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connected:
            for pieces in answers_:
                while not connected.recv(65536).endswith(b"end"):
                    pass
                for piece in pieces:
                    connected.sendall(piece)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/prefix"
    finally:
        thread.join()
        listener.close()


def with_length(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def chunked(*parts: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=5), st.booleans(), st.lists(st.integers(1, 200), max_size=4))
def test_an_answer_is_read_whole_however_it_is_cut(parts: list[bytes], in_chunks: bool, cuts: list[int]):
    """With Content-Length and in chunks; a second answer on the same connection begins where the first has ended."""
    answer = chunked(*parts) if in_chunks else with_length(b"".join(parts))
    places = [0, *sorted({cut for cut in cuts if cut < len(answer)}), len(answer)]
    pieces = [answer[start:end] for start, end in pairwise(places)]
    with answering(pieces, [with_length(b"next")]) as url:
        connection = Connection(url)
        first = connection.post("/filter", b"end")
        second = connection.post("/filter", b"end")
        connection.close()
    assert (first.status, first.body) == (200, b"".join(parts))
    assert second.body == b"next"


def test_an_answer_larger_than_the_buffer_is_read_whole():
    """Nodes come back in tens of megabytes."""
    body = bytes(range(256)) * 8192
    for answer in (with_length(body), chunked(body)):
        with answering([answer]) as url:
            connection = Connection(url)
            assert connection.post("", b"end").body == body
            connection.close()


def test_a_status_is_told_and_an_answer_that_breaks_off_raises():
    """Nobody's slowness is measured by what never came."""
    with answering([b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"], [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"]) as url:
        connection = Connection(url)
        assert connection.post("/", b"end").status == 400
        with pytest.raises(InternalError, match="closed the connection in the middle"):
            connection.post("/", b"end")
        connection.close()


def test_a_server_that_does_not_run_is_named():
    """By the host and port of the URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(InputError, match=f"nothing answers on 127.0.0.1:{port}"):
        Connection(f"http://127.0.0.1:{port}").post("/", b"")


# --- the load -------------------------------------------------------------------------------------------------------


def test_json_is_written_as_go_writes_it():
    """No blanks, and what HTML could mistake is escaped; the value is the same."""
    value = {"a": "x < y && z > \u2028", "b": [1, None, "é"]}
    text = load.go_json(value)
    assert json.loads(text) == value
    assert not {*b"<>&"} & {*text}
    assert b": " not in text
    assert b"\\u2028" in text


@pytest.mark.parametrize("stream", load.STREAMS)
def test_pods_are_such_as_an_api_server_holds(stream: str):
    """About 2 kB, names and UIDs of their own, each asking for what its kind says, and every kind comes."""
    pods = load.pods(load.STREAMS[stream], 200, 1)
    assert all(2000 < len(pod.encoded) < 3000 for pod in pods)
    assert len({pod.uid for pod in pods}) == len({pod.name for pod in pods}) == 200
    assert {pod.ask for pod in pods} == set(load.STREAMS[stream])
    for pod in pods:
        parts = read_demand(json.loads(pod.encoded)).shape.parts
        assert [(part.gpus, part.mib) for part in parts] == [(pod.ask.gpus, pod.ask.gib * 1024)]


def test_a_call_has_the_keys_of_kube_scheduler_and_names_in_a_new_order():
    """Every name once; the next call has another order, and the same seed the same."""
    names = load.Names([f"n{at}" for at in range(50)], 3)
    first, second = names.shuffled(), names.shuffled()
    assert sorted(first) == sorted(names.all)
    assert first != second
    assert load.Names(names.all, 3).shuffled() == first
    assert len(set(names.shuffled(7))) == 7
    body = json.loads(load.call_body(b"{}", load.written(first)))
    assert body == {"Pod": {}, "Nodes": None, "NodeNames": first}


def test_nodes_are_7_kb_and_change_as_many_as_told():
    """Names stay; the typed decoder reads them."""
    names = [f"gpu-{at:05d}.example.internal" for at in range(20)]
    nodes = Nodes(names, 0)
    before = list(nodes.written)
    nodes.change(3)
    assert all(6500 < len(text) < 8000 for text in before)
    assert sum(old != new for old, new in zip(before, nodes.written, strict=True)) == 3
    assert typed_decoder().names(nodes_body(b"{}", nodes.written)) == names


# --- answers --------------------------------------------------------------------------------------------------------


def said(value: object, status: int = 200) -> Answered:
    return Answered(0.0, status, json.dumps(value).encode())


def test_right_answers_are_accepted():
    """Names that fit, objects that fit, scores."""
    refused = {"FailedNodes": {"b": "full"}, "FailedAndUnresolvableNodes": {"c": "never"}, "Error": ""}
    assert answers.fitting(said({"NodeNames": ["a"], **refused}), ["c", "a", "b"]) == ["a"]
    assert answers.fitting(said({"NodeNames": None, "FailedNodes": {"a": "full"}}), ["a"]) == []
    whole = {"NodeNames": None, "Nodes": {"items": [{"metadata": {"name": "a"}}]}, **refused}
    assert answers.fitting_objects(said(whole), ["a", "b", "c"]) == ["a"]
    assert answers.scores(said([{"Host": "a", "Score": 10}, {"Host": "b", "Score": 0}]), ["b", "a"]) == {"a": 10, "b": 0}
    answers.bound(said({"Error": ""}))
    answers.echoed(Answered(0.0, 200, b"x"), b"x")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(said({"NodeNames": ["a"], "Error": "lost"}), "lost", id="an error"),
        pytest.param(said({"NodeNames": ["a"]}), "1 names are not answered", id="a name is missing"),
        pytest.param(said({"NodeNames": ["a", "b", "c"]}), "1 were never asked", id="a name too many"),
        pytest.param(said({"NodeNames": ["a", "b", "b"]}), "twice", id="a name twice"),
        pytest.param(said({"NodeNames": ["a", "b"], "FailedNodes": {"b": "full"}}), "twice", id="fits and does not"),
        pytest.param(said({"NodeNames": ["a", "b"]}, status=500), "status 500", id="another status"),
        pytest.param(said(["a", "b"]), "a JSON list", id="another type"),
        pytest.param(Answered(0.0, 200, b"{"), "not JSON", id="no JSON"),
    ],
)
def test_a_wrong_filter_answer_raises(answer: Answered, problem: str):
    """However fast it came."""
    with pytest.raises(InternalError, match=problem):
        answers.fitting(answer, ["a", "b"])


@pytest.mark.parametrize("score", [11, -1, 2.5, "10", None, True])
def test_a_score_that_kube_scheduler_would_not_take_raises(score: object):
    """An integer of 0 to 10."""
    with pytest.raises(InternalError, match="no integer"):
        answers.scores(said([{"Host": "a", "Score": score}]), ["a"])


def test_a_bind_that_failed_and_an_echo_that_changed_something_raise():
    """Neither counts."""
    with pytest.raises(InternalError, match="taken"):
        answers.bound(said({"Error": "taken"}))
    with pytest.raises(InternalError, match="echo"):
        answers.echoed(Answered(0.0, 200, b"y"), b"x")


# --- verdicts -------------------------------------------------------------------------------------------------------


def measured(own_ms: float, *, names: int = 5000, stream: str = TWO_GPUS, calls: int = 100) -> Measured:
    """Return a measurement in which the echo takes 1 ms and Go 3 ms."""
    found = {ECHO: latency([0.001], 0.0), GO: latency([0.003], 0.0), "linkwise": latency([own_ms / 1000], 0.0)}
    crowds = {name: Throughput(4, count, 1.0, 0.5, 0) for name, count in ((ECHO, 200), ("linkwise", calls))}
    return Measured(5000, names, stream, "linkwise", Walked({FILTER: found}, 1, 0, 1), crowds)


@pytest.mark.parametrize(
    ("one", "met"),
    [
        pytest.param(measured(1.9), [True, True, True, True], id="twice the echo and half its calls are met"),
        pytest.param(measured(2.9, calls=99), [False, True, True, False], id="below Go, but slow beside the echo"),
        pytest.param(measured(3.1), [False, False, False, True], id="slower than Go"),
    ],
)
def test_verdicts_follow_from_the_figures(one: Measured, met: list[bool]):
    """p50 and p99 beside the echo's, p50 beside Go's, calls over four connections."""
    assert [verdict.met for verdict in verdicts(one)] == met
    assert ("**missed**" in report.text([one])) == (not all(met))


@pytest.mark.parametrize("one", [measured(9, stream="mixed"), measured(9, names=500)], ids=["mixed pods", "a sample of the nodes"])
def test_what_the_targets_are_not_about_is_reported_without_a_verdict(one: Measured):
    """Its figures are there all the same."""
    assert list(verdicts(one)) == []
    assert "| filter | linkwise | 1 |" in report.text([one])


def test_a_p99_from_a_machine_that_was_not_calm_says_so():
    """Where the echo itself was slow at times, it would make anybody look fast."""
    one = measured(1)
    found = {**one.walked.latencies[FILTER], ECHO: latency([0.001] * 50 + [0.02], 0.0)}
    noisy = replace(one, walked=replace(one.walked, latencies={FILTER: found}))
    assert [verdict.noisy for verdict in verdicts(noisy)] == [False, True, False, False]
    assert "met, but the machine was not calm" in report.text([noisy])
    assert "not calm" not in report.text([one])


def test_a_limit_itself_is_met():
    """In both directions."""
    assert Verdict("x", 1, 2.0, 2.0).met
    assert Verdict("x", 1, 0.5, 0.5, at_least=True).met
