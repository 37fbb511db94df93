"""The lines of a tool's output as the tool meant them, whatever a terminal, a web page or a comment sign did to them.

Every reader of this package starts here. Undone: escape codes (also those that lost their ESC byte), `<br>` instead of line breaks, cells of a
Markdown table, no-break spaces, a byte order mark. Left alone: tabs and blanks inside a line, since they say which cell is blank, and what stands
in front of a line (indentation, `# `, `> `): columns are counted from the true left edge. `DECOR` matches that front.
"""

import re
from typing import Final

# ESC[4m as a byte, in caret or backslash notation, or with the ESC byte lost: `[4mGPU0`. Only "m" (colours) is known to lose its ESC.
_ESCAPES: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]|(?:\^\[|\\x1[bB]|\\u001[bB]|\\033|\\e|\u241b|\x9b)?\[\d{1,3}(?:;\d{1,3})*m|\x1b"
)
_LINE_BREAKS: Final = re.compile(r"<br\s*/?>", re.IGNORECASE)
_TABLE_ROW: Final = re.compile(r"\s*\|.*\|\s*")
DECOR: Final = r"[\s>#*/;\"'`]*"


def plain_lines(text: str) -> list[str]:
    r"""Return the lines of ``text`` without escape codes; tabs, blanks and indentation are kept.

    >>> plain_lines("\t[4mGPU0\tGPU1[0m\nGPU0\t X \tNV4")
    ['\tGPU0\tGPU1', 'GPU0\t X \tNV4']
    """
    text = _LINE_BREAKS.sub("\n", text.lstrip("\ufeff")).replace("\xa0", " ")
    lines = [_ESCAPES.sub("", line) for line in text.splitlines()]
    return [line.replace("|", "\t") if _TABLE_ROW.fullmatch(line) else line for line in lines]


def ends_inside_a_line(text: str) -> bool:
    """Tell whether the text stops without a line break, as an excerpt cut in the middle of a line does."""
    return bool(text) and text.rstrip(" \t") == text.rstrip()
