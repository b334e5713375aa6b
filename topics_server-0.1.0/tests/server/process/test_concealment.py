"""Secrets leave the process before it serves (§0.2, §12)."""

import os
import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from contract.server import environment, until

from topics.server.access.keys import source_of
from topics.server.process import concealment

SECRET = "zebra-stripe-4711"


def test_a_running_server_holds_no_secret(tmp_path: Path) -> None:
    """Neither its environment, nor its command line, nor its memory, whichever way they were given;
    and it is the process that was started. (§12)"""
    keys, port = tmp_path / "keys", tmp_path / "port"
    keys.write_text(f"{SECRET[::-1]}:read\n")
    command = [sys.executable, "-m", "topics", "serve", "--api-keys", f"{SECRET}:rw"]
    given = environment(api_keys="overruled", api_keys_file=keys, data_dir=tmp_path / "data")
    given |= {"TOPICS_PORT": "0", "TOPICS_PORT_FILE": str(port)}
    process = subprocess.Popen(command, env=given, stderr=subprocess.PIPE)
    try:
        until("it listens", port.exists)
        proc = Path(f"/proc/{process.pid}")
        environ, line = (proc / "environ").read_bytes(), (proc / "cmdline").read_bytes()
        memory = _memory(proc)
    finally:
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate()

    digest = sha256(SECRET.encode()).hexdigest()
    assert f"TOPICS_API_KEYS=sha256={digest}:read+write".encode() in environ
    assert line.split(b"\0")[1:] == [b"-m", b"topics", b"serve", b""]
    for secret in (SECRET.encode(), SECRET[::-1].encode(), b"overruled"):
        for held in (environ, line, log, memory):
            assert secret not in held
    assert digest.encode() in memory, "the search finds what is there"
    assert process.returncode == 0


def _memory(proc: Path) -> bytes:
    """All that the process may read of itself."""
    found = []
    with (proc / "mem").open("rb") as mem:
        for line in (proc / "maps").read_text().splitlines():
            area, rights, *rest = line.split()
            if "r" not in rights or rest[-1].startswith("[v"):
                continue
            first, end = (int(part, 16) for part in area.split("-"))
            mem.seek(first)
            try:
                found.append(mem.read(end - first))
            except OSError:
                continue
    return b"".join(found)


@pytest.mark.parametrize(
    ("text", "has_secret"),
    [("k", True), ("sha256=00", False), ("sha256=00:read, sha256=11", False), ("sha256=0,k", True)],
)
def test_what_has_a_secret(text: str, has_secret: bool) -> None:
    """A digest is none. (§0.2)"""
    assert concealment.has_secret(text) is has_secret


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ("python -m topics serve", "python -m topics serve"),
        ("topics serve --api-keys k --port 1", "topics serve --port 1"),
        ("topics serve --api-keys=k --port 1", "topics serve --port 1"),
        ("topics serve --api-keys-file f", "topics serve --api-keys-file f"),
        ("topics serve --port 1 --api-keys k", "topics serve --port 1"),
    ],
)
def test_a_command_line_without_keys(given: str, left: str) -> None:
    """Both ways to give an option, and no other option. (§0.2)"""
    assert concealment.without_option(given.split()) == left.split()


def test_another_program_is_not_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that runs the command within itself, nor a process without a secret. (§12)"""
    begun: list[str] = []
    monkeypatch.setattr(os, "execve", lambda *_: begun.append("again"))
    source = source_of("k", None)

    for program in ("/usr/bin/pytest", "/x/pytest/__main__.py", ""):
        monkeypatch.setattr(sys, "argv", [program])
        concealment.conceal("k", source)
    assert begun == []
    for program in ("/usr/bin/topics", "/x/topics/__main__.py"):
        monkeypatch.setattr(sys, "argv", [program])
        concealment.conceal("sha256=00", source)
        concealment.conceal(None, None)
        concealment.conceal("k", source)
    assert begun == ["again", "again"]
