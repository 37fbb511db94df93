"""How log lines are written."""

import io
import json
import sys

import pytest
import structlog

from topology.log_lines import write_log_lines

UNASKED = "nobody asked"


class Stream(io.TextIOWrapper):
    """A stderr that is a terminal or is none."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        """Tell."""
        return self._is_terminal

    @property
    def text(self) -> str:
        """What was written."""
        self.flush()
        written = self.buffer
        assert isinstance(written, io.BytesIO)
        return written.getvalue().decode()


def lines(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> Stream:
    """Write two lines, one of them of an exception."""
    stream = Stream(is_terminal=is_terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    write_log_lines()
    log = structlog.get_logger()
    log.info("pod bound", node="a-1", pod='team/"x"')
    log.debug(UNASKED)
    try:
        open("/nowhere/at/all")  # noqa: PTH123, SIM115 - it raises
    except OSError:
        log.exception("call failed")
    return stream


def test_a_machine_reads_one_json_object_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """With time, level and every key as it was given; an exception is in its own line's object, and what is below info is left out."""
    first, second = map(json.loads, lines(monkeypatch, is_terminal=False).text.splitlines())
    assert {key: first[key] for key in ("event", "level", "node", "pod")} == {"event": "pod bound", "level": "info", "node": "a-1", "pod": 'team/"x"'}
    assert first["time"].endswith("Z")
    assert second["level"] == "error"
    assert "FileNotFoundError" in second["exception"]


def test_a_terminal_shows_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """For people, exceptions with their traceback."""
    text = lines(monkeypatch, is_terminal=True).text
    assert "pod bound" in text
    assert "FileNotFoundError" in text
    assert UNASKED not in text
    with pytest.raises(json.JSONDecodeError):
        json.loads(text.splitlines()[0])
