"""Print the five largest modules and functions, and fail where one is over the limit: 500 lines a module, 60 a function body.

Called by `make lint`. Large things are where newcomers get lost; the list shows which one is next.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

MODULE_LIMIT = 500
FUNCTION_LIMIT = 60
PACKAGES = ("extender", "topology", "bench", "scripts")


def modules() -> list[tuple[int, str]]:
    """Return (lines, file), largest first."""
    files = [file for package in PACKAGES for file in Path(package).rglob("*.py")]
    return sorted(((len(file.read_text(encoding="utf-8").splitlines()), str(file)) for file in files), reverse=True)


def functions() -> list[tuple[int, str]]:
    """Return (lines of the body without its docstring, file and function), largest first."""
    return sorted((found for _, file in modules() for found in _functions_of(file)), reverse=True)


def _functions_of(file: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            if body:
                yield (body[-1].end_lineno or 0) - body[0].lineno + 1, f"{file}:{node.lineno} {node.name}"


def main() -> int:
    """Print both lists; returns 1 where a limit is passed."""
    failed = 0
    for found, limit in ((modules(), MODULE_LIMIT), (functions(), FUNCTION_LIMIT)):
        for lines, name in found[:5]:
            print(f"{lines:5}  {name}{'  over the limit of ' + str(limit) if lines > limit else ''}")  # noqa: T201 - its purpose
        failed |= found[0][0] > limit
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
