"""Escape codes, line breaks and table signs go; tabs, blanks and indentation stay."""

import pytest

from topology.nvidia_smi.plain_text import ends_inside_a_line, plain_lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        pytest.param("\t\x1b[4mGPU0\tID\x1b[0m", ["\tGPU0\tID"], id="codes around the header"),
        pytest.param("\t[4mGPU0\tID[0m", ["\tGPU0\tID"], id="the ESC byte is lost"),
        pytest.param("\t^[[4mGPU0 \\x1b[1;31mX\\033[0m", ["\tGPU0 X"], id="codes spelt out"),
        pytest.param("\x1b]0;title\x07GPU0\x1b(\x1b[K", ["GPU0("], id="titles, erasures and lone ESC bytes"),
        pytest.param("power [mW], time [ms]", ["power [mW], time [ms]"], id="units are no codes"),
        pytest.param("a<br>b<BR />c", ["a", "b", "c"], id="HTML line breaks"),
        pytest.param("| a | b |", ["\t a \t b \t"], id="a Markdown table"),
        pytest.param("a | b", ["a | b"], id="a bar inside a line"),
        pytest.param("\ufeffGPU0\xa0X", ["GPU0 X"], id="byte order mark and no-break space"),
        pytest.param("  a\t\tb  \r\nc", ["  a\t\tb  ", "c"], id="blanks and tabs"),
    ],
)
def test_lines_are_as_the_tool_meant_them(text: str, lines: list[str]):
    assert plain_lines(text) == lines


@pytest.mark.parametrize(("text", "inside"), [("a\n", False), ("a\nb", True), ("a\nb\t", True), ("a\n  ", False), ("", False)])
def test_an_end_inside_a_line_is_seen(text: str, *, inside: bool):
    assert ends_inside_a_line(text) is inside
