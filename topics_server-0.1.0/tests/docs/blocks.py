"""The blocks of code on the pages, and a server to run them against."""

import ast
import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import CO_COROUTINE
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


@dataclass(frozen=True, slots=True)
class Block:
    """One block.

    Attributes:
        page: Name of its page's file.
        kind: What is written behind the three backticks; empty where nothing is.
        first: Its first line, by which the tables know it.
    """

    page: str
    kind: str
    code: str

    @property
    def first(self) -> str:
        return self.code.partition("\n")[0]


def blocks() -> Iterator[Block]:
    for page in PAGES:
        for kind, code in re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.M | re.DOTALL):
            yield Block(page.name, kind, code)


def find(page: str, first: str) -> Block:
    """The one block of a page that begins with these words.

    Raises:
        AssertionError: There is none, or several.
    """
    found = [b for b in blocks() if b.page == page and b.first.startswith(first)]
    assert len(found) == 1, (page, first, len(found))
    return found[0]


def run_python(code: str, names: dict[str, Any]) -> dict[str, Any]:
    """Execute a block, which may await, as a program would; returns its names."""
    compiled = compile(code, "<block>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(compiled, CodeType)
    if compiled.co_flags & CO_COROUTINE:

        async def awaited() -> None:
            await FunctionType(compiled, names)()

        asyncio.run(awaited())
    else:
        exec(compiled, names)
    return names


def run_shell(code: str, cwd: Path, environment: dict[str, str]) -> str:
    """Run a block as a script that ends at the first command that fails; returns what it prints."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=cwd,
        env={
            **os.environ,
            "PATH": path,
            "HOME": str(cwd),
            "XDG_CONFIG_HOME": str(cwd / ".config"),
            **environment,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr
