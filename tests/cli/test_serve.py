"""`topics serve`: its options are the settings, and what it cannot obey it refuses in a line."""

from pathlib import Path
from typing import Any

import click
import pytest

from topics.cli import all_commands
from topics.settings import TABLE


@pytest.mark.parametrize("command", ["serve", "settings"])
def test_every_setting_is_an_option(command: str) -> None:
    """The options of the server are its settings, and what speaks HTTP."""
    options = {
        parameter.opts[0]
        for parameter in all_commands()[command].params
        if isinstance(parameter, click.Option)
    }

    assert options - {"--json", "--server"} == {setting.option for setting in TABLE}


@pytest.mark.parametrize("command", ["serve", "settings"])
@pytest.mark.parametrize(
    ("args", "env", "line"),
    [
        (["--port", "x"], {}, "topics: --port must be a whole number from 0 to 65535, not 'x'\n"),
        (
            [],
            {"TOPICS_MAX_LIMIT": "0"},
            "topics: TOPICS_MAX_LIMIT must be a whole number from 1 to",
        ),
        (["--host", "0.0.0.0"], {}, "topics: TOPICS_HOST 0.0.0.0 is not loopback"),
        (["--port-file", ""], {}, "topics: --port-file is empty; leave it out"),
        (
            [],
            {"TOPICS_ALLOWED_ORIGINS": "rubbish"},
            "topics: TOPICS_ALLOWED_ORIGINS must be origins as browsers send them (scheme://host",
        ),
        (
            [],
            {"TOPICS_API_KEYS": "hush-77:bogus"},
            "topics: TOPICS_API_KEYS, entry 1: expected scopes out of read",
        ),
        (
            ["--api-keys-file", "/nowhere/keys"],
            {},
            "topics: TOPICS_API_KEYS_FILE /nowhere/keys: No such file",
        ),
    ],
)
def test_bad_settings(
    run: Any, tmp_path: Path, command: str, args: list[str], env: dict[str, str], line: str
) -> None:
    """A setting that cannot be obeyed ends with 2 and one line, before anything is opened. (§0.2)"""
    data_dir = tmp_path / "data"

    done = run(command, "--data-dir", data_dir, *args, **env)

    assert done.exit_code == 2
    assert done.stderr.startswith(line)
    assert done.stderr.count("\n") == 1
    assert "hush" not in done.output
    assert not data_dir.exists()


def test_serve_passes_its_exit_code_on(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`topics serve` runs with the settings in force and ends as the server did."""
    seen: list[Any] = []
    monkeypatch.setattr("topics.server.serving.serve", lambda settings: seen.append(settings) or 3)

    done = run("serve", "--port", "0", TOPICS_FLUSH_MS="50")

    assert done.exit_code == 3
    assert (seen[0].port, seen[0].flush_ms) == (0, 50)
