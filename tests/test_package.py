"""The package itself: what it exports, and how little it costs to import."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import topics
import topics.client


def test_version() -> None:
    """The version in the code is the version of the distribution."""
    assert topics.__version__ == version("topics")


@pytest.mark.parametrize("name", [n for n in topics.__all__ if n != "__version__"])
def test_every_export_is_there(name: str) -> None:
    """What the package lists is what the client has."""
    assert getattr(topics, name) is getattr(topics.client, name)


def test_nothing_else_is_there() -> None:
    """A misspelled name is an AttributeError, as of any module."""
    with pytest.raises(AttributeError, match="'topics' has no attribute 'Cliemt'"):
        topics.Cliemt  # noqa: B018


def test_importing_is_cheap() -> None:
    """Importing the package, or the command line, loads neither HTTP client nor server."""
    code = (
        "import sys, topics, topics.cli;"
        "heavy = {'httpx', 'numpy', 'hypercorn', 'rich', 'asyncio', 'msgspec'} & set(sys.modules);"
        "print(*sorted(heavy))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("\n", "")


def test_a_type_checker_finds_it(tmp_path: Path) -> None:
    """mypy, run on somebody else's project, finds the package and its types where it is installed
    for editing, too: it follows paths, and no import hook. (PEP 561)"""
    (tmp_path / "app.py").write_text("from topics import Client\n\nClient()\n")
    options = ["--strict", "--follow-imports=skip", "--no-incremental", "--config-file="]

    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "app.py"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "MYPYPATH"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.stdout, done.returncode) == ("Success: no issues found in 1 source file\n", 0)
