"""What a shell is answered while a line is typed; bash itself is asked, where it is installed."""

import os
import pty
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import CompletionItem
from hypothesis import given
from hypothesis import strategies as st

from bench.flights import Server
from topics.cli import main
from topics.cli.shells import SHELLS, Bash, quoted, split

WAIT_S = 60.0
"""Bounds a hang."""


@pytest.mark.parametrize(
    ("line", "words", "quote"),
    [
        ("", [""], ""),
        ("topics info ", ["topics", "info", ""], ""),
        ("topics info tenant42:jo", ["topics", "info", "tenant42:jo"], ""),
        ("topics x --to=ten", ["topics", "x", "--to=ten"], ""),
        ('topics \'a b\' "c\\"\\d" e\\ f', ["topics", "a b", 'c"\\d', "e f"], ""),
        ("topics info 'a>", ["topics", "info", "a>"], "'"),
        ('topics info "a>', ["topics", "info", "a>"], '"'),
        ("topics info a\\>b", ["topics", "info", "a>b"], ""),
        ("a; b && topics info x", ["topics", "info", "x"], ""),
        ("topics info a\\", ["topics", "info", "a"], ""),
        ("topics ''", ["topics", ""], ""),
    ],
)
def test_a_line_is_taken_apart_as_bash_does(line: str, words: list[str], quote: str) -> None:
    """But for `:` and `=`, which are a part of names and options."""
    found, open_quote = split(line)

    assert ([word.value for word in found], open_quote) == (words, quote)


def test_what_a_redirection_names_is_no_argument() -> None:
    """With a blank before it or not."""
    for line in ("topics read a >out", "topics read a > out", "topics read a >"):
        assert [word.is_target for word in split(line)[0]] == [False, False, False, True], line


@given(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])),
    st.sampled_from(["", "'", '"']),
)
def test_what_is_quoted_is_one_word_of_bash(text: str, quote: str) -> None:
    """Whatever a server calls a thing, and behind either quote."""
    shown = quoted(text, quote)

    if shown is not None:
        words, left_open = split("topics " + quote + shown)
        if text or quote:
            assert [word.value for word in words] == ["topics", text]
        assert left_open == quote
    else:
        assert "!" in text


def answer(monkeypatch: pytest.MonkeyPatch, line: str, asked: str, *names: str) -> list[str]:
    """What bash is answered, where these are the names that there are."""
    monkeypatch.setenv("_TOPICS_LINE", line)
    monkeypatch.setenv("_TOPICS_WORD", asked)
    monkeypatch.setattr(Bash, "get_completions", lambda *_: [CompletionItem(n) for n in names])
    return Bash(main, {}, "topics", "_TOPICS_COMPLETE").complete().splitlines()


@pytest.mark.parametrize(
    ("line", "asked", "name", "rest"),
    [
        ("topics router info zz", "zz", "zz>.bashrc", "zz\\>.bashrc"),
        ("topics router info zz\\>", "zz\\>", "zz>.bashrc", "zz\\>.bashrc"),
        ('topics router info "zz', "zz", "zz>.bashrc", "zz>.bashrc"),
        ("topics info tenant42:", "", "tenant42:jobs", "jobs"),
        ("topics info tenant42:jo", "jo", "tenant42:jobs", "jobs"),
        ("topics redrive x --to=jo", "jo", "--to=jobs", "jobs"),
        ("topics info ", "", "$(id)`id`;~ &", "\\$\\(id\\)\\`id\\`\\;\\~\\ \\&"),
        ('topics info "', "", '$(id)`id`"\\', '\\$(id)\\`id\\`\\"\\\\'),
    ],
)
def test_bash_gets_the_rest_of_the_word(
    monkeypatch: pytest.MonkeyPatch, line: str, asked: str, name: str, rest: str
) -> None:
    """Behind what it leaves as it is, and quoted: it puts into the line what it gets."""
    assert answer(monkeypatch, line, asked, name) == [f"plain,{rest}"]


def test_what_bash_gets_no_answer_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command itself, the file of a redirection, and what has no spelling behind its quote."""
    assert answer(monkeypatch, "top", "top", "topics") == []
    assert answer(monkeypatch, "topics read a >o", "o", "out") == []
    assert answer(monkeypatch, 'topics info "a', "a", "a!b") == []


@pytest.mark.parametrize("kind", SHELLS.values())
def test_no_shell_gets_what_cannot_be_seen(monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    """A server may call a thing what would steer the terminal."""
    names = ["good", "bad\x1b[2J", "bad\x9b", "bad\nplain,good", "bad\u202e"]
    items = [CompletionItem(name) for name in names]
    monkeypatch.setattr("click.shell_completion.ShellComplete.get_completions", lambda *_: items)

    found = kind(main, {}, "topics", "_TOPICS_COMPLETE").get_completions(["info"], "")

    assert [item.value for item in found] == ["good"]


@pytest.mark.parametrize("kind", SHELLS.values())
def test_a_value_comes_with_its_option(kind: Any) -> None:
    """What is behind `=` is a part of the word that the shell replaces."""
    found = kind(main, {}, "topics", "_TOPICS_COMPLETE").get_completions(["serve"], "--server=o")

    assert [item.value for item in found] == ["--server=own"]


# ---------------------------------------------------------------------- bash


class Typist:
    """Types into a bash on a terminal."""

    def __init__(self, home: Path, url: str) -> None:
        script = [sys.executable, "-m", "topics", "completion", "bash"]
        (home / "script").write_bytes(
            subprocess.run(script, capture_output=True, check=True).stdout
        )
        program = home / "topics"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m topics "$@"\n')
        program.chmod(0o755)
        ours, theirs = pty.openpty()
        env = {"HOME": str(home), "PATH": f"{home}:/usr/bin:/bin", "TERM": "dumb", "PS1": "> ",
               "TOPICS_URL": url, "PYTHONPATH": os.getcwd()}  # fmt: skip
        self._bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"],
            stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=home, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self._terminal = ours
        self.type(". ./script; bind 'set bell-style none'; echo re''ady\n", "ready\r\n")

    def type(self, keys: str, expected: str) -> None:
        """Type, and read until that is on the screen."""
        os.write(self._terminal, keys.encode())
        seen, deadline_s = "", time.monotonic() + WAIT_S
        while expected not in seen:
            assert time.monotonic() < deadline_s, seen
            seen += os.read(self._terminal, 1 << 16).decode()

    def close(self) -> None:
        self._bash.kill()
        self._bash.wait()
        os.close(self._terminal)


@pytest.fixture
def typist(tmp_path: Path) -> Iterator[Typist]:
    server = Server(tmp_path / "server")
    server.home.mkdir()
    server.start()
    with server.client() as client:
        client.put_topic("tenant42:jobs")
        client.put_router("zz>victim", "tenant42:jobs", "audit")
    home = tmp_path / "home"
    home.mkdir()
    typist = Typist(home, server.url)
    yield typist
    typist.close()
    server.end()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_names_and_runs_none(typist: Typist, tmp_path: Path) -> None:
    """A router may have `>` in its name, which would be a redirection, and a topic `:`. (§6)"""
    victim = tmp_path / "home" / "victim"
    victim.write_text("precious")

    typist.type("topics router info zz\t", "zz\\>victim ")
    typist.type("\n", "tenant42:jobs -> audit")
    typist.type("topics redrive x --to=ten\t", "--to=tenant42:jobs ")
    typist.type("\x15topics info tenant42:j\t", "info tenant42:jobs ")
    typist.type("\n", "config")

    assert victim.read_text() == "precious"
