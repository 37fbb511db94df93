"""Filter calls over several connections at once: how many a second one server answers.

Used by `decision_latency`. Each connection has a thread that sends the next call when its answer has come, and waits in the kernel meanwhile; bodies are made beforehand and only pasted
together (the pod of this call, one of many written orders of the names), so that the client costs little. How much it costs is reported: ``client_busy`` is the share of the time in which the client
used a processor; where it comes near 1 the client was what limited the figure, and the server's is a lower bound. With a `Churn` one pod leaves and one comes back for each call, in a thread
of its own, while the calls run.
"""

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.latency import answers
from bench.latency.churn import Churn
from bench.latency.load import Names, Pod, call_body, written
from bench.latency.walk import FILTER, Server
from bench.latency.wire import Connection
from topology.errors import InternalError

_ORDERS: Final = 48  # of the names, written beforehand
_CHECK_EVERY: Final = 101


@dataclass(frozen=True, slots=True)
class Throughput:
    """Calls answered a second over all connections; ``changes`` to the cluster made meanwhile."""

    connections: int
    calls: int
    seconds: float
    client_busy: float  # 0..1 of one processor, and more than 1 with several threads at once
    changes: int

    @property
    def calls_per_s(self) -> float:
        """Calls a second."""
        return self.calls / self.seconds


class Crowd:
    """The same calls for every server."""

    def __init__(self, pods: Sequence[Pod], names: Names, most_names: int | None = None) -> None:
        self._pods = pods
        orders = [names.shuffled(most_names) for _ in range(_ORDERS)]
        self._orders = [(order, written(order)) for order in orders]

    def run(self, server: Server, connections: int, seconds: float, churn: Churn | None = None) -> Throughput:
        """Measure for so many seconds, after a tenth of that for warming up."""
        started = time.perf_counter() + seconds / 10
        run = _Run(server, started, started + seconds)
        threads = [threading.Thread(target=self._send, args=(run, number)) for number in range(connections)]
        if churn is not None:
            threads.append(threading.Thread(target=_change, args=(run, churn)))
        for thread in threads:
            thread.start()
        time.sleep(max(0.0, started - time.perf_counter()))
        busy = time.process_time()
        for thread in threads:
            thread.join()
        busy = time.process_time() - busy
        if run.problems:
            raise run.problems[0]
        return Throughput(connections, sum(run.calls), seconds, busy / seconds, run.changes)

    def _send(self, run: "_Run", number: int) -> None:
        """Call until the time is over, on a connection of its own."""
        connection = Connection(run.server.url)
        try:
            run.calls.append(self._calls(run, number, connection))
        except InternalError as error:
            run.problems.append(error)
        finally:
            connection.close()

    def _calls(self, run: "_Run", number: int, connection: Connection) -> int:
        rng, path, calls = random.Random(f"crowd {number}"), run.server.paths[FILTER], 0
        while (now := time.perf_counter()) < run.until:
            asked, names = rng.choice(self._orders)
            answer = connection.post(path, call_body(rng.choice(self._pods).encoded, names))
            calls += now >= run.since
            run.permits.release()
            if answer.status != 200:
                raise InternalError(f"{run.server.name}: status {answer.status}")
            if calls % _CHECK_EVERY == 1 and not run.server.is_echo:
                answers.fitting(answer, asked)
        return calls


class _Run:
    """What the threads of one measurement share."""

    def __init__(self, server: Server, since: float, until: float) -> None:
        self.server = server
        self.since = since
        self.until = until
        self.calls: list[int] = []
        self.problems: list[InternalError] = []
        self.permits = threading.Semaphore(0)  # one for each call answered: so many changes may be made
        self.changes = 0


def _change(run: _Run, churn: Churn) -> None:
    """Change the cluster once for each call that was answered, all at once those for which it is time: waiting for each would slow the changes down with the calls."""
    try:
        while (left := run.until - time.perf_counter()) > 0:
            if run.permits.acquire(timeout=left):
                times = 1
                while run.permits.acquire(blocking=False):
                    times += 1
                churn.swing(times)
                run.changes += times * (time.perf_counter() >= run.since)
    except InternalError as error:
        run.problems.append(error)
