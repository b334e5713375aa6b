"""The small commands, and what all of them share."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import click
import pytest

import topics.cli
from topics import __version__
from topics.cli import COMMANDS, all_commands
from topics.distribution import install
from topics.export.lake import OsLake
from topics.export.manifest import Settings
from topics.export.target import open_target


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
    "call": "prints a result, which is JSON",
    "completion": "prints a script",
    "drain": "prints records, a JSON object a line",
    "job compact": "runs until it is done; spark.md says what it writes",
    "job sessions": "runs until it is done; spark.md says what it writes",
    "keys hash": "prints lines for a keys file",
    "latest": "prints records, a JSON object a line",
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

    removing = {"cluster trim", "delete", "drain", "purge", "rm", "router delete", "export run"}
    removing |= {"apply", "groups delete", "schedules rm", "jobs cancel"}
    assert asking == removing | {"inspect"}  # which without --yes is its own dry run
    assert removing <= {n for n, opts in found.items() if "--dry-run" in opts}


def test_version(run: Any) -> None:
    """`topics --version`."""
    assert run("--version").stdout == f"topics {__version__}\n"


SMALL = (
    *("difflib", "encodings.idna", "gzip", "hashlib", "hmac", "http", "logging", "pathlib"),
    *("secrets", "tempfile", "tomllib"),
)
"""Of some milliseconds each, which add up."""
HEAVY = (
    *("asyncio", "deltalake", "email", "h2", "hypercorn", "httpx", "numpy", "orjson", "pandas"),
    *("pyarrow", "pydantic", "pyiceberg", "pygments", "pyspark", "requests", "rich", "sqlalchemy"),
    *("ssl", "topics.client", "topics.protocol.engine", "topics.store.store", "urllib.request"),
    *("uvloop", "websockets", "xxhash", "yaml"),
    *SMALL,
)
"""Modules of which each alone takes a large part of the time in which a command may start, or which
bring many others."""
CLIENT = "topics.client"
LOADED = {
    "--version": "",
    "call x 1": CLIENT,
    "apply --file missing": CLIENT,
    "bench": CLIENT,
    "completion bash": "",
    "config jobs": CLIENT,
    "create jobs": CLIENT,
    "delete jobs --yes": CLIENT,
    "drain jobs --yes": CLIENT,
    "export-config": CLIENT,
    "export status {lake}": "hashlib pathlib",
    "export status {lake} --json": "hashlib pathlib",
    "export status missing": "hashlib pathlib",
    "export verify missing": "hashlib pathlib topics.client",
    "export compact missing": "hashlib pathlib",
    "export reconcile missing": "hashlib pathlib topics.client",
    "export repair missing": "hashlib pathlib topics.client",
    "groups": CLIENT,
    "groups commit g t=1": CLIENT,
    "groups delete g --yes": CLIENT,
    "groups list": CLIENT,
    "groups show g": CLIENT,
    "info x": CLIENT,
    "inspect missing": "numpy pathlib xxhash",
    "backup place --data-dir missing": "numpy pathlib xxhash",
    "keys new": "hashlib hmac pathlib secrets",
    "keys hash": "hashlib hmac pathlib secrets",
    "peek x": CLIENT,
    "profiles": "pathlib tomllib",
    "publish x 1": CLIENT,
    "purge x --yes": CLIENT,
    "read x": CLIENT,
    "redrive a --to b": CLIENT,
    "restore missing new": "numpy pathlib xxhash",
    "rm x --before 2 --yes": CLIENT,
    "router create r a b": CLIENT,
    "router delete r --yes": CLIENT,
    "router info r": CLIENT,
    "routers": CLIENT,
    "schedules": CLIENT,
    "schedules get s": CLIENT,
    "schedules list": CLIENT,
    "schedules pause s": CLIENT,
    "schedules put s t 1 --every 1m": CLIENT,
    "schedules resume s": CLIENT,
    "schedules rm s --yes": CLIENT,
    "schedules run s": CLIENT,
    "serve --port no": "difflib pathlib",
    "settings": "difflib hashlib pathlib",
    "stats --json": CLIENT,
    "topics": CLIENT,
    "watch x": CLIENT,
    "work x -- true": "asyncio logging ssl " + CLIENT,
}
"""What of it a command loads that ends at once, at no server or at a mistake."""
MAIN = (
    "import sys, topics.cli\n"
    "for args in sys.argv[1:]:\n"
    "    try: topics.cli.main(args.split())\n"
    "    except SystemExit: pass\n"
    f"print('loaded', *sorted(set({HEAVY}) & set(sys.modules)))"
)


def loaded_by(*lines: str, cwd: Path) -> str:
    away = {"TOPICS_URL": "http://127.0.0.1:1", "XDG_CONFIG_HOME": str(cwd)}
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *lines],
        capture_output=True,
        text=True,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        env=os.environ | away | {"PYTHONPATH": str(Path(topics.cli.__file__).parents[2])},
    )
    assert "Traceback" not in done.stderr
    return done.stdout.splitlines()[-1].removeprefix("loaded").strip()


def test_help_loads_nothing(tmp_path: Path) -> None:
    """Of none of the commands: what is heavy is imported when the command runs."""
    loaded = loaded_by(*(f"{name} --help" for name in all_commands()), cwd=tmp_path)

    assert set(loaded.split()) <= set(SMALL)


@pytest.mark.parametrize("line", LOADED)
def test_a_command_loads_what_it_uses(line: str, tmp_path: Path) -> None:
    """And no more: to look at a manifest takes no pyarrow, to ask a server neither httpx nor rich
    nor asyncio.  Any of them would double the time in which the command starts."""
    (tmp_path / "lake").mkdir()
    with open_target(OsLake(tmp_path / "lake"), Settings("parquet", "none")):
        pass
    options, dashes, words = line.format(lake="lake").partition(" -- ")
    if LOADED[line].endswith(CLIENT) and not line.startswith("export "):
        options += " --retry-for 0"

    assert loaded_by(options + dashes + words, cwd=tmp_path) == LOADED[line]


def test_httpx_without_its_command_line() -> None:
    """A command whose server is behind a proxy needs httpx, and then neither rich nor pygments; the
    client's other half can still be loaded."""
    code = (
        "from topics.cli.exits import spare_httpx_main; spare_httpx_main()\n"
        "import sys, httpx, topics.client as c\n"
        "assert not {'rich', 'pygments'} & sys.modules.keys()\n"
        "assert c.AsyncClient.__module__ == 'topics.client.aio'\n"
        "assert all(hasattr(c, name) for name in c.__all__)\n"
        "assert not hasattr(c, 'Nothing')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["run t --to", "verify", "compact", "reconcile", "repair"])
def test_an_export_without_pyarrow_says_what_to_install(command: str, tmp_path: Path) -> None:
    """One line, wherever it is first needed."""
    with open_target(OsLake(tmp_path), Settings("parquet", "none")):
        pass
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import topics.cli; topics.cli.main(sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "export", *command.split(), str(tmp_path)],
        capture_output=True,
        text=True,
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"topics: this needs {install('export')} (")
