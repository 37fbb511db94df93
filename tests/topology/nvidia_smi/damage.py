"""What happens to a text between the terminal and the reader: cut, lines lost, cells glued, lost or overwritten, escape codes, tabs to blanks.

Each function draws one damage and returns the damaged text. The reader may find less in it, never something else. `read_with_all` gives a text to
every reader there is.
"""

import re
from collections.abc import Callable

from hypothesis import strategies as st

from topology.errors import NvidiaSmiError
from topology.nvidia_smi import (
    failure_in,
    read_csv_table,
    read_inventory,
    read_list,
    read_nvlink_status,
    read_nvlinks,
    read_p2p,
    read_query_csv,
    read_query_xml,
    read_topology,
)

READERS: tuple[Callable[[str], object], ...] = (
    read_topology,
    read_list,
    read_query_csv,
    read_csv_table,
    read_query_xml,
    read_nvlink_status,
    read_nvlinks,
    read_p2p,
    read_inventory,
    failure_in,
)

_ROW = re.compile(r"[\s|]*(?:GPU|NIC|mlx)\S*[\t |]+[^=:]*\b(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS)\b[^=:]*")
_DEVICE_CELL = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS")

Damage = Callable[[st.DrawFn, str], str]


def cut(draw: st.DrawFn, text: str) -> str:
    return text[: draw(st.integers(0, len(text)))]


def lose_lines(draw: st.DrawFn, text: str) -> str:
    lines = text.splitlines(keepends=True)
    first = draw(st.integers(0, len(lines) - 1))
    return "".join(lines[:first] + lines[first + draw(st.integers(1, 3)) :])


def glue_cells(draw: st.DrawFn, text: str) -> str:
    """Lose what stands between a label or link code and the next cell."""

    def glued(line: str, words: list[re.Match[str]]) -> str:
        at = draw(st.sampled_from([k for k in range(len(words) - 1) if k == 0 or _DEVICE_CELL.fullmatch(words[k].group())]))
        left, right = words[at], words[at + 1]
        if re.fullmatch(r"NV[1-9]", left.group()) and right.group()[0].isdigit():
            return line  # NV1 and 0 make NV10, which is as good a cell as any: nobody can tell
        return line[: left.end()] + line[right.start() :]

    return _with_a_row(draw, text, glued)


def glue_header(draw: st.DrawFn, text: str) -> str:
    first, *others = text.splitlines(keepends=True)
    words = _words(first)
    if len(words) < 2:
        return text
    at = draw(st.integers(0, len(words) - 2))
    return first[: words[at].end()] + first[words[at + 1].start() :] + "".join(others)


def lose_a_cell(draw: st.DrawFn, text: str) -> str:
    """Take a link code out: with its separator, leaving its place blank, or leaving its separators alone."""

    def without(line: str, words: list[re.Match[str]]) -> str:
        cells = [k for k, word in enumerate(words) if k and _DEVICE_CELL.fullmatch(word.group())]
        at = draw(st.sampled_from(cells))
        how = draw(st.sampled_from(["with its separator", "its place is blank", "its separators stay"]))
        if how == "with its separator":
            end = words[at + 1].start() if at + 1 < len(words) else len(line.rstrip("\n"))
            return line[: words[at].start()] + line[end:]
        return line[: words[at].start()] + (" " * len(words[at].group()) if how == "its place is blank" else "") + line[words[at].end() :]

    return _with_a_row(draw, text, without)


def overwrite_a_cell(draw: st.DrawFn, text: str) -> str:
    def overwritten(line: str, words: list[re.Match[str]]) -> str:
        word = draw(st.sampled_from([word for word in words[1:] if _DEVICE_CELL.fullmatch(word.group())]))
        return line[: word.start()] + draw(st.sampled_from(["??", "C2C", "NV", "-", "N/A", "sys", "NVB", "0", "PH"])) + line[word.end() :]

    return _with_a_row(draw, text, overwritten)


def insert_escape_codes(draw: st.DrawFn, text: str) -> str:
    at = draw(st.sampled_from([k for k in range(len(text) + 1) if k in (0, len(text)) or text[k - 1].isspace() or text[k].isspace()]))
    return text[:at] + draw(st.sampled_from(["\x1b[4m", "\x1b[0m", "\x1b[1;31m", "[0m", "\x1b[K", "\x1b]0;title\x07"])) + text[at:]


def blanks_for_tabs(draw: st.DrawFn, text: str) -> str:
    return _with_a_row(draw, text, lambda line, _: line.replace("\t", draw(st.sampled_from([" ", "    ", "\t\t", " \t"]))))


DAMAGES: tuple[Damage, ...] = (cut, lose_lines, glue_cells, glue_header, lose_a_cell, overwrite_a_cell, insert_escape_codes, blanks_for_tabs)


def _words(line: str) -> list[re.Match[str]]:
    return [word for word in re.finditer(r"\S+", line) if word.group() != "|"]


def _with_a_row(draw: st.DrawFn, text: str, change: Callable[[str, list[re.Match[str]]], str]) -> str:
    """Change one row of a matrix, drawn among all of them."""
    lines = text.splitlines(keepends=True)
    rows = [k for k, line in enumerate(lines) if _ROW.fullmatch(line)]
    if rows:
        k = draw(st.sampled_from(rows))
        lines[k] = change(lines[k], _words(lines[k]))
    return "".join(lines)


def read_with_all(text: str) -> list[str]:
    """Give the text to every reader and return what they object to; only NvidiaSmiError may escape one."""
    objections = []
    for reader in READERS:
        try:
            reader(text)
        except NvidiaSmiError as error:
            objections.append(str(error))
    return objections
