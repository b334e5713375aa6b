"""What a newcomer does: a clone, `make serve`, and every command of README.md and the tutorial.

Nothing of this checkout is used but its commits; the packages are those that `make serve` installs,
so it needs a package index, and runs where `TOPICS_TESTS_NEWCOMER=1` asks for it (`make newcomer`).
The server's port is a free one in place of 4000.
"""

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from test_docs import PASSING, steady, still, typed

ROOT: Final = Path(__file__).parent.parent
INSTALL_S: Final = 600
"""How long `make serve` may take to install what it needs, the first time."""
ANSWER_S: Final = 60

pytestmark = [
    pytest.mark.skipif(
        "TOPICS_TESTS_NEWCOMER" not in os.environ, reason="make newcomer; it installs packages"
    ),
    pytest.mark.timeout(2 * INSTALL_S),
]


class Newcomer:
    """A clone with a server of its own, and a shell beside it."""

    def __init__(self, home: Path) -> None:
        self.clone = home / "topics"
        self._log = home / "serve.log"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(self.clone)], check=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        kept = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")}
        kept = {k: v for k, v in kept.items() if not k.startswith("TOPICS_")}
        path = os.pathsep.join([str(self.clone / ".venv" / "bin"), os.environ["PATH"]])
        self._environment = {**kept, "PATH": path, "TOPICS_PORT": str(self.port)}
        self._make: subprocess.Popen[bytes] | None = None

    def serve(self) -> None:
        """`make serve` in one terminal, until it serves."""
        with self._log.open("ab") as log:
            self._make = subprocess.Popen(
                ["make", "serve"], cwd=self.clone, env=self._environment,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        deadline_s = time.monotonic() + INSTALL_S
        while True:
            assert self._make.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline_s, self._log.read_text()
            try:
                if httpx.get(f"http://127.0.0.1:{self.port}/v0/ready").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.2)

    def interrupt(self) -> None:
        """^C in that terminal."""
        if self._make is not None:
            os.killpg(self._make.pid, signal.SIGINT)
            self._make.wait(ANSWER_S)

    def type(self, command: str, cwd: Path) -> str:
        """What a command prints in the other terminal."""
        done = subprocess.run(
            ["bash", "-c", command.replace("localhost:4000", f"localhost:{self.port}")],
            cwd=cwd, env=self._environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=ANSWER_S,
        )  # fmt: skip
        return done.stdout

    def look_at_stream(self, path: str, events: int) -> str:
        """What `curl -N` prints up to so many events, then ^C."""
        told = ""
        with httpx.stream("GET", f"http://127.0.0.1:{self.port}{path}", timeout=ANSWER_S) as stream:
            for piece in stream.iter_text():
                told += piece
                if told.count("event: ") >= events and told.endswith("\n\n"):
                    break
        return told


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    found = Newcomer(tmp_path_factory.mktemp("newcomer"))
    try:
        found.serve()
        yield found
    finally:
        found.interrupt()


def test_the_tutorial_in_an_empty_folder(newcomer: Newcomer, tmp_path: Path) -> None:
    """Each command prints what is shown; first of all, as it lists what the server has."""
    steps = list(typed((ROOT / "docs" / "tutorial.md").read_text()))
    for command, shown in steps:
        printed = [
            ln.rstrip() for ln in PASSING.sub("…", newcomer.type(command, tmp_path)).splitlines()
        ]
        assert printed == [PASSING.sub("…", line).rstrip() for line in shown], command

    assert len(steps) > 20


def tour() -> Iterator[tuple[str, str]]:
    """(what is typed, what is shown) of the tour in README.md."""
    text = (ROOT / "README.md").read_text()
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for step in re.split(r"^\$ ", block, flags=re.M)[1:]:
            if step.startswith("curl -N "):
                command, _, shown = step.partition("\n")
            elif step.rstrip().endswith((">/dev/null", ">/dev/null) &")):
                command, shown = step, ""
            else:
                command, shown = re.split(r"(?<=[^\s{\[,])\n(?=\{)", step, maxsplit=1)
            yield command.strip(), shown.strip()


def test_the_tour(newcomer: Newcomer) -> None:
    """Each command is answered as shown, but for times and what is drawn by lot; after the last
    part the server is another process."""
    typed_in = list(tour())
    answer: Any = None
    for index, (command, shown) in enumerate(typed_in):
        if index == len(typed_in) - 1:
            newcomer.interrupt()
            newcomer.serve()
        if command.startswith("curl -N "):
            told = newcomer.look_at_stream(answer["stream_url"], shown.count("event: "))
            assert still(told) == still(shown)
            continue
        printed = newcomer.type(command.replace("curl ", "curl -sS "), newcomer.clone)
        if shown:
            answer = json.loads(printed)
            assert steady(answer) == steady(json.loads(shown)), command
        else:
            assert printed == "", command

    assert len(typed_in) > 14


def test_the_first_lines_of_the_command_line(newcomer: Newcomer, tmp_path: Path) -> None:
    """What `docs/cli.md` has a newcomer paste."""
    page = (newcomer.clone / "docs" / "cli.md").read_text()
    (script,) = re.findall(r"pasted into another:\n\n```sh\n(.*?)```", page, re.DOTALL)

    printed = newcomer.type(script, tmp_path)

    assert '{"n": 1}\n{"n": 2}\n{"n": 3}\n' in printed
    assert re.search(r"^numbers +3 ", printed, re.M)


def test_nothing_else_was_changed(newcomer: Newcomer) -> None:
    """The clone has its environment, which is the server's only, and its data; git sees neither.
    (README: Start)"""
    seen = newcomer.type("git status --porcelain", newcomer.clone)
    lies = {path.name for path in newcomer.clone.iterdir()}

    assert seen == ""
    assert {".venv", "topics-data"} <= lies
    assert not list((newcomer.clone / ".venv").rglob("site-packages/pytest"))  # for those who test
