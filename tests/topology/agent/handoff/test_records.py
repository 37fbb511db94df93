"""What the agent wrote is what the next one reads; what is damaged costs that one record."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from topology.agent.handoff.durable import TEMPORARY
from topology.agent.handoff.holding import Container, Holding, Kind, Part
from topology.agent.handoff.records import Record, Records, fresh_token

IDS = frozenset({"GPU-a", "GPU-b"})
HELD = Holding("u", "default", "p", Container("main", Kind.SIDECAR, 3), (Part("GPU-b", 1024), Part("GPU-a")), planned=False)


def test_a_record_outlives_the_agent(tmp_path: Path) -> None:
    """With its holding, in the order of issue, and the next token comes after it."""
    first = Records(tmp_path / "t")
    issued = first.issue("r", IDS)
    held = first.issue("r", frozenset({"1"}))
    first.hold(held, HELD)
    second = Records(tmp_path / "t", clock=lambda: 0.0)
    assert second.all() == first.all() == [issued, Record(held.token, "r", frozenset({"1"}), held.sequence, held.issued_at, HELD)]
    assert second.holdings() == {held.token: HELD}
    assert second.issue("r", IDS).sequence > held.sequence, "although the clock went back"


def test_the_newest_token_for_ids_is_that_for_exactly_these(tmp_path: Path) -> None:
    """Of the same resource."""
    records = Records(tmp_path)
    records.issue("r", IDS)
    newest = records.issue("r", IDS)
    records.issue("other", IDS)
    records.issue("r", frozenset({"GPU-a"}))
    assert records.newest("r", IDS) == newest
    assert records.newest("r", frozenset({"GPU-c"})) is None


def test_a_retired_token_is_gone_from_memory_and_disk(tmp_path: Path) -> None:
    """And may be retired again."""
    records = Records(tmp_path)
    token = records.issue("r", IDS).token
    records.retire(token)
    records.retire(token)
    assert (records.all(), list(tmp_path.iterdir())) == ([], [])


def test_what_a_broken_off_write_left_is_swept_by_the_next_agent(tmp_path: Path) -> None:
    """Agents that are killed again and again fill no disk."""
    Records(tmp_path).issue("r", IDS)
    (tmp_path / f"{TEMPORARY}0123").write_bytes(b"{")
    assert len(Records(tmp_path).all()) == 1
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


def test_a_token_whose_record_was_lost_is_taken_in_as_the_oldest(tmp_path: Path) -> None:
    """So that it never passes for news."""
    records = Records(tmp_path)
    known = records.issue("r", IDS)
    assert records.adopt(known.token, "r", IDS) == known
    assert records.adopt("tlost", "r", IDS).sequence == 0
    assert records.all() == [known], "it counts once it holds something"


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"token": "t1"}', b"\xff"])
def test_a_damaged_record_is_said_and_left_for_people(tmp_path: Path, damage: bytes) -> None:
    """The others count."""
    token = Records(tmp_path).issue("r", IDS).token
    (tmp_path / "tdamaged.json").write_bytes(damage)
    with capture_logs() as lines:
        found = Records(tmp_path)
    assert [record.token for record in found.all()] == [token]
    assert "tdamaged.json cannot be read" in lines[0]["event"]
    assert (tmp_path / "tdamaged.json").exists()


def test_tokens_are_fresh_and_can_be_cdi_devices() -> None:
    """A letter first, and never the same."""
    tokens = {fresh_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(token[0].isalpha() and token.isalnum() for token in tokens)
