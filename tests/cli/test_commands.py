"""The small commands, and what all of them share."""

from typing import Any

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


def test_version(run: Any) -> None:
    """`topics --version`."""
    assert run("--version").stdout == f"topics {__version__}\n"
