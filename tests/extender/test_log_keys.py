"""A query written against one log line works for all of them: keys are constants, and no line invents its own."""

import ast
import re
from pathlib import Path

import pytest

import extender
from extender import log_keys

ROOT = Path(extender.__file__).parent
KEYS = {name: value for name, value in vars(log_keys).items() if name.isupper()}
METHODS = {"debug", "info", "warning", "error", "exception", "critical", "bind"}
modules = sorted(path for path in ROOT.rglob("*.py") if "get_logger" in path.read_text(encoding="utf-8"))


def test_every_key_is_one_word_and_stands_once():
    assert len(set(KEYS.values())) == len(KEYS)
    assert all(re.fullmatch(r"[a-z_]+", value) for value in KEYS.values())


def log_calls(path: Path) -> list[ast.Call]:
    """Return the calls on a logger: `_log.info(…)`, `log.warning(…)`."""
    return [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in METHODS
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in ("_log", "log")
    ]


def test_there_are_lines_to_look_at():
    assert sum(len(log_calls(path)) for path in modules) > 3


@pytest.mark.parametrize("path", modules, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_line_invents_a_key(path: Path):
    for call in log_calls(path):
        for keyword in call.keywords:
            assert keyword.arg is None, f"{path.name}:{call.lineno} passes {keyword.arg}= by name; use log_keys"
            assert isinstance(keyword.value, ast.Dict)
            assert all(key is not None and ast.unparse(key).removeprefix("log_keys.") in KEYS for key in keyword.value.keys)


@pytest.mark.parametrize("path", modules, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_events_are_words_and_nothing_is_interpolated(path: Path):
    for call in log_calls(path):
        assert all(isinstance(argument, ast.Constant) for argument in call.args), f"{path.name}:{call.lineno}"
