"""Filter, prioritize and bind of one pod after the other over one connection, all servers in turns, so that whatever else the machine does hits all alike.

Used by `decision_latency`. For each pod: the names in a new order, the filter call to every server, then prioritize with the names that the judge (the extender that is measured) left, in
its order for every other pod and in a new one for the rest, then bind at the judge alone. Which server comes first changes from call to call. Between two filter calls
one pod is bound and others leave. Making a body and looking at an answer lie outside of the time.
"""

import gc
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.latency import answers
from bench.latency.churn import Churn, Held
from bench.latency.load import NAMESPACE, Names, Pod, bind_body, call_body, written
from bench.latency.percentiles import Latency, latency
from bench.latency.wire import Answered, Connection

FILTER: Final = "filter"
PRIORITIZE: Final = "prioritize"
REORDERED: Final = "prioritize, new order"
BIND: Final = "bind"
ECHO: Final = "echo"


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is measured, under a name for tables; ``paths`` by verb, without prioritize where it has none."""

    name: str
    url: str
    paths: Mapping[str, str] = field(default_factory=lambda: {FILTER: "/filter", PRIORITIZE: "/prioritize", BIND: "/bind"})

    @property
    def is_echo(self) -> bool:
        """Whether it gives back what it gets."""
        return self.name == ECHO


@dataclass(frozen=True, slots=True)
class Walked:
    """What was measured: by verb and server; of the walks, how many ended with a bind, and how many pods left meanwhile."""

    latencies: dict[str, dict[str, Latency]]
    bound: int
    nowhere: int
    left: int


class Walks:
    """One run; ``churn`` None: the cluster stays as it is and nothing is bound."""

    def __init__(self, servers: Sequence[Server], judge: Server, names: Names, churn: Churn | None) -> None:
        self._servers = servers
        self._judge = judge
        self._names = names
        self._churn = churn
        self._connections = {server.name: Connection(server.url) for server in servers}
        self._binding = Connection(judge.url)  # kube-scheduler binds from another goroutine, over another connection
        self._seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._first: dict[tuple[str, str], float] = {}
        self._bound = self._nowhere = 0

    def run(self, pods: Sequence[Pod], warm_up: int, most_names: int | None = None) -> Walked:
        """Walk every pod; the first ones are not counted, but the first call of each verb to each server is reported."""
        # The client's own garbage collection would show as the server's slowness.
        gc.collect()
        gc.disable()
        try:
            for turn, pod in enumerate(pods):
                if turn == warm_up:
                    self._seconds.clear()
                    self._bound = self._nowhere = 0
                self._walk(turn, pod, most_names)
                if turn % 64 == 0:
                    gc.collect()
        finally:
            gc.enable()
            for connection in (*self._connections.values(), self._binding):
                connection.close()
        return Walked(self._latencies(), self._bound, self._nowhere, self._churn.left if self._churn else 0)

    def _walk(self, turn: int, pod: Pod, most_names: int | None) -> None:
        asked = self._names.shuffled(most_names)
        answered = self._ask(turn, FILTER, FILTER, call_body(pod.encoded, written(asked)))
        for name, answer in answered.items():
            if name not in (ECHO, self._judge.name):
                answers.fitting(answer, asked)
        left = answers.fitting(answered[self._judge.name], asked)
        if len(left) < 2:  # kube-scheduler asks for no scores then
            self._nowhere += not left
            node = left[0] if left else None
        elif PRIORITIZE not in self._judge.paths:
            node = None
        else:
            node = self._scored(turn, pod, left)
        if node is not None and self._churn is not None:
            self._bind(pod, node, self._churn)

    def _scored(self, turn: int, pod: Pod, left: list[str]) -> str:
        label, names = (REORDERED, self._names.reordered(left)) if turn % 2 else (PRIORITIZE, left)
        answered = self._ask(turn, label, PRIORITIZE, call_body(pod.encoded, written(names)))
        found = {name: answers.scores(answer, names) for name, answer in answered.items() if name != ECHO}[self._judge.name]
        return max(found, key=found.__getitem__)

    def _ask(self, turn: int, label: str, verb: str, body: bytes) -> dict[str, Answered]:
        """Send the same bytes to every server that has the verb, one after the other."""
        able = [server for server in self._servers if verb in server.paths]
        answered: dict[str, Answered] = {}
        for place in range(len(able)):
            server = able[(turn + place) % len(able)]
            answer = self._connections[server.name].post(server.paths[verb], body)
            self._note(label, server, answer)
            if server.is_echo:
                answers.echoed(answer, body)
            answered[server.name] = answer
        return answered

    def _bind(self, pod: Pod, node: str, churn: Churn) -> None:
        answer = self._binding.post(self._judge.paths[BIND], bind_body(pod, node))
        self._note(BIND, self._judge, answer)
        answers.bound(answer)
        self._bound += 1
        churn.bound(Held(NAMESPACE, pod.name, pod.ask.weight))

    def _note(self, label: str, server: Server, answer: Answered) -> None:
        self._first.setdefault((label, server.name), answer.seconds)
        self._seconds[label, server.name].append(answer.seconds)

    def _latencies(self) -> dict[str, dict[str, Latency]]:
        found: dict[str, dict[str, Latency]] = {}
        for label in (FILTER, PRIORITIZE, REORDERED, BIND):
            for server in self._servers:
                if seconds := self._seconds.get((label, server.name)):
                    found.setdefault(label, {})[server.name] = latency(seconds, self._first[label, server.name])
        return found
