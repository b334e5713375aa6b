"""Options that stand on the command line, beside those of the environment and defaults."""

import click
import pytest
from click.testing import CliRunner

from topics.cli.typed import is_typed


@pytest.mark.parametrize(
    ("arguments", "environment", "typed"),
    [
        (["--size", "1"], {}, True),
        (["--size", "2"], {"SIZE": "1"}, True),
        ([], {"SIZE": "1"}, False),
        ([], {}, False),
    ],
)
def test_what_was_typed(arguments: list[str], environment: dict[str, str], typed: bool) -> None:
    """A value that equals the default was typed all the same."""
    found = []

    @click.command
    @click.option("--size", default=1, envvar="SIZE")
    @click.pass_context
    def command(context: click.Context, size: int) -> None:
        found.extend([is_typed("size"), is_typed("size", context)])

    CliRunner().invoke(command, arguments, env=environment, catch_exceptions=False)
    assert found == [typed, typed]
