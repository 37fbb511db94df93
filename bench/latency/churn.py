"""Who leaves, so that a cluster that gets new pods stays as full as it was.

Used by `walk` and `crowd`. Whenever more is held than at the start, pods drawn at random leave, through the door of `linkwise_server`: between two filter calls one pod is bound
and about one leaves, on other nodes, as kube-scheduler would see it on a cluster that is in use.
"""

import random
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from topology.errors import InternalError


@dataclass(frozen=True, slots=True)
class Held:
    """A pod that holds GPUs; ``weight`` is how many, a part of one as a part."""

    namespace: str
    name: str
    weight: float


class Door:
    """The other end of `linkwise_server.Door`."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self._socket = socket.create_connection((host, int(port)))
        self._answers = self._socket.makefile("rb")

    def change(self, *changes: tuple[str, Held]) -> None:
        """Make changes, all sent at once, and wait until they are in the state; raises InternalError where one is refused."""
        self._socket.sendall("".join(f"{verb} {pod.namespace} {pod.name}\n" for verb, pod in changes).encode())
        for verb, pod in changes:
            answer = self._answers.readline().decode().strip()
            if answer != "ok":
                raise InternalError(f"{verb} {pod.namespace}/{pod.name}: {answer or 'the door was closed'}")

    def close(self) -> None:
        """Close the connection."""
        self._answers.close()
        self._socket.close()


class Churn:
    """The pods that hold GPUs now; a set amount of GPUs stays held."""

    def __init__(self, door: Door, held: Iterable[Held], seed: int) -> None:
        self._door = door
        self._held = list(held)
        self._level = self._now = sum(pod.weight for pod in self._held)
        self._rng = random.Random(f"churn {seed}")
        self._away: Held | None = None
        self.left = 0

    def bound(self, pod: Held) -> None:
        """Note that a pod was bound, and let others leave while more is held than at the start."""
        self._held.append(pod)
        self._now += pod.weight
        while self._now > self._level:
            self._door.change(("delete", self._leaving()))

    def swing(self, times: int) -> None:
        """So many times let one pod leave, and the one that left before come back: each time two rows change without any bind."""
        changes: list[tuple[str, Held]] = []
        for _ in range(times):
            away = self._leaving()
            changes.append(("delete", away))
            if self._away is not None:
                changes.append(("restore", self._away))
                self._held.append(self._away)
                self._now += self._away.weight
            self._away = away
        self._door.change(*changes)

    def _leaving(self) -> Held:
        at = self._rng.randrange(len(self._held))
        self._held[at], self._held[-1] = self._held[-1], self._held[at]
        pod = self._held.pop()
        self._now -= pod.weight
        self.left += 1
        return pod
