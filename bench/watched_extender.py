"""The extender on a cluster, with a watch on its event loop: the process behind `storm` and `event_loop`.

`python -m bench.watched_extender URL OUTPUT` serves as `linkwise serve` does against an API server without authentication (`watch_stream_server`) and prints its own URL. When it is ended it
writes to OUTPUT for how long, and where, the loop stood still, and how late the pods' events of a storm were taken in.
"""

import asyncio
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

import orjson
import typer
import uvloop

from bench.api_objects import SENT
from bench.state_sync import resident
from extender import serving
from extender.kube.sinks import PodSink
from extender.memory import collect_rarely
from extender.serving import Access, Address, serve_cluster
from extender.settings import read_settings

JsonObject = dict[str, Any]
_BEAT_S: Final = 0.001
_LONG_MS: Final = 3.0
_SAMPLE_S: Final = 0.002
_OURS: Final = ("/extender/", "/topology/")


@dataclass(slots=True)
class LoopWatch:
    """Stretches in which the loop answered nobody: [monotonic time of their end, ms by the clock, ms of its thread's processor time, where it was seen]."""

    stretches: list[tuple[float, float, float, str]] = field(default_factory=list)
    used: list[tuple[float, float]] = field(default_factory=list)  # monotonic time and processor time of the process, once a second
    _beat: float = 0.0
    _seen: str = ""

    async def run(self) -> None:
        """Look at the clock every millisecond, for ever."""
        threading.Thread(target=self._sample, args=(threading.get_ident(),), daemon=True).start()
        last, cpu = time.monotonic(), time.thread_time()
        while True:
            self._beat = last
            await asyncio.sleep(_BEAT_S)
            now, cpu_now = time.monotonic(), time.thread_time()
            wall_ms, cpu_ms = 1000 * (now - last - _BEAT_S), 1000 * (cpu_now - cpu)
            if wall_ms > _LONG_MS:
                self.stretches.append((now, wall_ms, cpu_ms, self._seen))
            self._seen = ""
            last, cpu = now, cpu_now
            if not self.used or now - self.used[-1][0] > 1.0:
                self.used.append((now, time.process_time()))

    def _sample(self, thread: int) -> None:
        """Note where the loop's thread is whenever it is late; for a long stretch, where it was last."""
        while True:
            time.sleep(_SAMPLE_S)
            if time.monotonic() - self._beat > _SAMPLE_S + 2 * _BEAT_S:
                self._seen = _place(sys._current_frames().get(thread))  # noqa: SLF001 - there is no other way to look at another thread


def _place(frame: FrameType | None) -> str:
    """Return the functions of ours that a thread is in, innermost first."""
    found: list[str] = []
    while frame is not None and len(found) < 4:
        code = frame.f_code
        if any(folder in code.co_filename for folder in _OURS) and ".venv" not in code.co_filename:
            found.append(f"{Path(code.co_filename).stem}.{code.co_name}")
        frame = frame.f_back
    return " < ".join(found)


_LAGS_MS: list[tuple[float, float]] = []  # since an event was due, and since it was sent


class TimedPods(PodSink):
    """The sink of pods that notes how long ago an event was due when it has been taken in."""

    def apply(self, raw: JsonObject) -> None:
        """Take in a pod as it is now."""
        super().apply(raw)
        _note(raw)

    def remove(self, raw: JsonObject) -> None:
        """Take out a pod that is gone."""
        super().remove(raw)
        _note(raw)


def _note(raw: JsonObject) -> None:
    sent = (raw["metadata"].get("annotations") or {}).get(SENT)
    if sent:
        now = time.monotonic_ns()
        due, _, left = sent.partition(".")
        _LAGS_MS.append(((now - int(due)) / 1e6, (now - int(left)) / 1e6))


async def _serve(kubeconfig: Path, watch: LoopWatch) -> None:
    watching = asyncio.create_task(watch.run())
    await serve_cluster(Access(kubeconfig), Address("127.0.0.1", 0), read_settings(), lambda url: print(url, flush=True))
    watching.cancel()


def main(url: str, output: Path) -> None:
    """Serve until a signal."""
    serving.PodSink = TimedPods  # type: ignore[misc]  # the one place where pods pass by
    watch = LoopWatch()
    cluster = {"name": "bench", "cluster": {"server": url}}
    context = {"name": "bench", "context": {"cluster": "bench", "user": "bench"}}
    with tempfile.NamedTemporaryFile(suffix=".json") as kubeconfig:
        kubeconfig.write(
            orjson.dumps({"clusters": [cluster], "contexts": [context], "current-context": "bench", "users": [{"name": "bench", "user": {}}]})
        )
        kubeconfig.flush()
        collect_rarely()
        uvloop.run(_serve(Path(kubeconfig.name), watch))
    output.write_bytes(orjson.dumps({"stretches": watch.stretches, "lags_ms": _LAGS_MS, "used": watch.used, "resident": resident()}))


if __name__ == "__main__":
    typer.run(main)
