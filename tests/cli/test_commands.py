"""The small commands, and what all of them share."""

import subprocess
import sys
from typing import Any, Final

import click
import pytest

from topics import __version__
from topics.cli import COMMANDS, all_commands


def test_help_names_every_command(run: Any) -> None:
    """`topics --help` answers with the commands and what the exit codes mean."""
    done = run("--help")

    assert done.exit_code == 0
    for word in (*COMMANDS, "Exit codes", "130", "TOPICS_URL"):
        assert word in done.stdout


@pytest.mark.parametrize("command", sorted(all_commands()))
def test_each_command_explains_itself(run: Any, command: str) -> None:
    """Every command has a help that says more than its name, and every option a line."""
    done = run(*command.split(), "--help")

    assert done.exit_code == 0
    assert len(all_commands()[command].help or "") > 60
    for parameter in all_commands()[command].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


NOT_JSON: Final = {
    "completion": "prints a script",
    "drain": "prints records, a JSON object a line",
    "job compact": "runs until it is done; spark.md says what it writes",
    "job sessions": "runs until it is done; spark.md says what it writes",
    "keys hash": "prints lines for a keys file",
    "read": "prints records, a JSON object a line",
    "redrive": "prints records, a JSON object a line",
    "serve": "runs a server; its log is JSON by itself",
    "work": "runs commands, whose output is theirs",
}


def test_every_command_that_answers_does_so_in_json() -> None:
    """But for those that the table names."""
    found = {name: c for name, c in all_commands().items() if not isinstance(c, click.Group)}
    without = {n for n, c in found.items() if not any("--json" in p.opts for p in c.params)}

    assert without == NOT_JSON.keys()


def test_whatever_destroys_asks_and_can_be_rehearsed() -> None:
    """`--yes` and `--dry-run` come together."""
    found = {n: {o for p in c.params for o in p.opts} for n, c in all_commands().items()}
    asking = {n for n, opts in found.items() if "--yes" in opts}

    removing = {"delete", "drain", "purge", "rm", "router delete", "export run"}
    assert asking == removing | {"inspect"}  # which without --yes is its own dry run
    assert removing <= {n for n, opts in found.items() if "--dry-run" in opts}


def test_version(run: Any) -> None:
    """`topics --version`."""
    assert run("--version").stdout == f"topics {__version__}\n"


@pytest.mark.parametrize("args", ["info x", "publish x 1", "read x", "peek x", "rm x --before 2"])
def test_a_command_loads_what_it_uses(args: str) -> None:
    """Asyncio, and what httpx loads for a command line of its own, would double the time in which a
    command starts."""
    code = (
        "import sys, topics.cli\n"
        "try: topics.cli.main(sys.argv[1:])\n"
        "except SystemExit as end: print(end.code)\n"
        "print(*sorted({'asyncio', 'rich', 'pygments', 'numpy', 'httpx'} & set(sys.modules)))"
    )
    away = ["--url", "http://127.0.0.1:1", "--retry-for", "0"]
    done = subprocess.run(
        [sys.executable, "-c", code, *args.split(), *away], capture_output=True, text=True
    )

    assert (done.stdout, done.stderr[:8]) == ("2\nhttpx\n", "topics: ")


def test_httpx_is_whole_afterwards() -> None:
    """Its own command line can still be loaded in the process, and the client's other half."""
    code = (
        "from topics.cli.exits import import_httpx; import_httpx()\n"
        "import httpx._main, topics.client as c\n"
        "assert c.AsyncClient.__module__ == 'topics.client.aio'\n"
        "assert all(hasattr(c, name) for name in c.__all__)\n"
        "assert not hasattr(c, 'Nothing')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")
