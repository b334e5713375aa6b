"""Docstrings and comments that begin with a pronoun in the place of their noun; `make lint` runs it.

    python -m tests.prose

A reader of one line has not read the line before it: "Those of all readers" says less than "Decisions of all
readers".
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOTS: Final = ("topics", "tests", "bench", "deploy")
PRONOUN: Final = re.compile(
    r"One (that|whose)\b|Those\b|The same, of\b|As \w+( \w+)? (has|have|does|do) it\b"
)


def offenders(source: str) -> Iterator[tuple[int, str]]:
    """Line and first words of each docstring and comment of a module that begins so."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = str(node.value.value).strip()
            if PRONOUN.match(text):
                yield node.lineno, text.splitlines()[0]
    before = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            # The lines of one comment are read together.
            if token.start[0] != before + 1 and PRONOUN.match(token.string.lstrip("# ")):
                yield token.start[0], token.string
            before = token.start[0]


def main() -> int:
    found = [
        f"{path}:{line}: {text}"
        for root in ROOTS
        for path in sorted(Path(root).rglob("*.py"))
        for line, text in offenders(path.read_text())
    ]
    print(*found, sep="\n", end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
