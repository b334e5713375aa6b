"""The package itself: what it exports, and how little it costs to import."""

import subprocess
import sys
from importlib.metadata import version

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
