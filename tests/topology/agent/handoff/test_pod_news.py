"""A look is worth while when a pod that may hold GPUs comes, ends or goes; one that went without having ended is told of once."""

from pathlib import Path
from typing import Any

import pytest

from tests.api_door import api_door
from tests.builders import pod
from topology.agent.api_server import ApiServer
from topology.agent.handoff.pod_news import PodNews
from topology.agent.handoff.pods import Pods
from topology.agent.handoff.records import Records

NODE = "node-a"


class Heard:
    """News of a node's pods, and how often they were told."""

    def __init__(self, directory: Path, api: ApiServer) -> None:
        self.pods = Pods(api, NODE)
        self.records = Records(directory / "tokens")
        self.news = PodNews(self.pods, self.records)
        self.news.heard = self._hear
        self.records.changed = self.news.records_changed
        self.times = 0

    def _hear(self) -> None:
        self.times += 1

    def take(self, kind: str, raw: dict[str, Any]) -> int:
        """Let the watch show an event; returns how often that was told."""
        before = self.times
        self.pods.take(kind, raw)
        self.news.changed()
        return self.times - before


@pytest.fixture
def heard(tmp_path: Path) -> Heard:
    with api_door() as door:
        api = ApiServer.connect(door.kubeconfig(tmp_path))
        api.close()
        return Heard(tmp_path, api)


PLANNED = pod("p").holding(NODE, "GPU-1")


def test_a_pod_that_is_deleted_while_it_may_run_is_told_of_once(heard: Heard) -> None:
    """Its coming, its going, and nothing in between that changes nothing."""
    raw = PLANNED.build()
    assert heard.take("ADDED", raw) == 1
    assert heard.take("MODIFIED", raw) == 0
    assert heard.take("DELETED", raw) == 1
    assert heard.news.take_gone()
    assert not heard.news.take_gone()


def test_a_pod_that_has_ended_leaves_no_doubt(heard: Heard) -> None:
    """Nobody keeps its GPUs."""
    heard.take("ADDED", PLANNED.build())
    ended = pod("p").holding(NODE, "GPU-1", phase="Succeeded").build()
    assert heard.take("MODIFIED", ended) == 1
    assert heard.take("DELETED", ended) == 1
    assert not heard.news.take_gone()


def test_a_pod_without_gpus_is_no_news(heard: Heard) -> None:
    """Most pods of most nodes."""
    raw = pod("web").plain("main").bound_to(NODE).build()
    assert heard.take("ADDED", raw) + heard.take("DELETED", raw) == 0
    assert not heard.news.take_gone()


def test_what_a_container_was_given_is_news(heard: Heard) -> None:
    """And that it was forgotten."""
    record = heard.records.issue("nvidia.com/gpu", frozenset({"GPU-1"}))
    assert heard.times == 0
    heard.records.retire(record.token)
    assert heard.times == 1
