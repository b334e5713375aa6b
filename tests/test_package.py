"""The package itself: what it exports, and how little it costs to import."""

import os
import re
import subprocess
import sys
from importlib.metadata import metadata, version
from pathlib import Path

import pytest

import topics
import topics.client
from topics.distribution import install


def test_version() -> None:
    """The version in the code is the version of the distribution."""
    assert topics.__version__ == version("topics-server")


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


WITHOUT_SERVER = """
import importlib, pkgutil, sys
from topics.cli.exits import OF_SERVER

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

# HTTP/2 of the client brings h2 and hpack with it.
absent = set(OF_SERVER) - {"h2", "hpack"}
sys.meta_path.insert(0, Absent())
"""


def without_server(code: str) -> subprocess.CompletedProcess[str]:
    """Run code where the extra `server` is not installed."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_SERVER + code], capture_output=True, text=True, check=False
    )


def test_the_client_and_the_command_line_need_no_server() -> None:
    """Every module of the client, and every command's, is there without numpy, hypercorn, uvloop."""
    done = without_server(
        "import topics, topics.cli, topics.client\n"
        "for package in (topics.client, topics.cli):\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        importlib.import_module(module.name)\n"
        "print(len(sys.modules) > 100, set(sys.modules) & absent)"
    )

    assert (done.stdout, done.stderr) == ("True set()\n", "")


@pytest.mark.parametrize("command", ["serve", "inspect .", "restore a b"])
def test_a_command_that_needs_the_server_says_what_to_install(command: str) -> None:
    """In one line."""
    done = without_server(
        f"from topics.cli import main; main({command.split()!r}, prog_name='topics')"
    )

    assert done.returncode == 2
    assert done.stderr.startswith(f"topics: this needs {install('server')} (")
    assert done.stderr.count("\n") == 1


def test_the_readme_leads_somewhere_wherever_it_is_read() -> None:
    """The links of the distribution's readme are absolute."""
    text = metadata("topics-server").get_payload() or metadata("topics-server")["Description"]

    links = re.findall(r"\]\(([^)\s]+)\)", str(text))

    assert "https://topics.example/source/docs/api.md" in links
    assert [link for link in links if not link.startswith(("https://", "http://", "#"))] == []


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
