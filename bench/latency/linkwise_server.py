"""Linkwise on a snapshot, with a second port through which pods leave and come back as a watch would tell it: a cluster that changes.

Run by `servers.linkwise` as `python -m bench.latency.linkwise_server SNAPSHOT`. The extender is `app.embedded`, untouched, served as `linkwise serve` serves it; the door is a
socket of its own on the same loop. One line a change: `delete NAMESPACE NAME` takes a pod out, as the deletion that has run its course; `restore NAMESPACE NAME` brings
a deleted one back as it was, bound. Each is answered with a line once it is in the state.
"""

import asyncio
import sys
from pathlib import Path

from extender.app import embedded
from extender.memory import collect_rarely, keep_freed_memory
from extender.protocol import JsonObject
from extender.server import listen, server, url_of
from extender.settings import read_settings
from extender.snapshot_file import SnapshotCluster, read_snapshot

Key = tuple[str, str]  # namespace, name


class Door:
    """The rest of the cluster, by one line of text a change."""

    def __init__(self, source: SnapshotCluster) -> None:
        self._source = source
        self._gone: dict[Key, JsonObject] = {}
        self._back: dict[Key, JsonObject] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Follow one connection until it is closed."""
        while line := await reader.readline():
            verb, namespace, name = line.decode().split()
            change = self._restore if verb == "restore" else self._delete
            writer.write((await change((namespace, name))).encode() + b"\n")
        writer.close()

    async def _delete(self, key: Key) -> str:
        pod = self._back.pop(key, None)
        if pod is not None:
            self._source.cluster.remove_pod(pod["metadata"]["uid"])
        else:
            pod = await self._source.read_pod(*key)
            self._source.delete_pod(*key)
        if pod is None:
            return f"pod {'/'.join(key)} is not stored"
        self._gone[key] = pod
        return "ok"

    async def _restore(self, key: Key) -> str:
        pod = self._gone.pop(key, None)
        if pod is None:
            return f"pod {'/'.join(key)} was not deleted here"
        self._back[key] = pod
        self._source.cluster.apply_pod(pod)
        return "ok"


def main() -> None:
    """Serve until a signal, and print one line with the URL and the door."""
    keep_freed_memory()
    app, source, problems = embedded(read_snapshot(Path(sys.argv[1])), read_settings())
    if problems:
        sys.exit(f"the snapshot cannot be read whole: {problems[0]}")
    collect_rarely()
    listener, door = listen("127.0.0.1", 0), listen("127.0.0.1", 0)
    door.listen()
    opening: list[asyncio.Task[asyncio.Server]] = []

    def announce(url: str) -> None:
        opening.append(asyncio.get_running_loop().create_task(asyncio.start_server(Door(source).serve, sock=door)))
        host, port = door.getsockname()
        print(f"Linkwise serves {sys.argv[1]} on {url} door {host}:{port}", flush=True)

    server(app, announce, url_of(listener)).run(sockets=[listener])


if __name__ == "__main__":
    main()
