"""Console blocks of the documentation: commands, and what they must print. A `…` alone on a line stands for any lines, inside one for anything."""

import re

ANY = "…"


def blocks(document: str, language: str) -> list[str]:
    """Return the contents of the fenced blocks of that language."""
    return re.findall(rf"```{re.escape(language)}\n(.*?)```", document, flags=re.DOTALL)


def commands(block: str) -> list[tuple[str, list[str]]]:
    """Split a block into commands and the lines that each must print."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def matches(expected: list[str], printed: list[str]) -> bool:
    """Tell whether the printed lines are the expected ones; blanks at the ends of lines do not count."""
    lines = [r"(?:.*\n)*?.*" if line == ANY else ".*?".join(re.escape(part) for part in line.rstrip().split(ANY)) for line in expected]
    return re.fullmatch("\n".join(lines), "\n".join(line.rstrip() for line in printed)) is not None
