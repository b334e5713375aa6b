"""How a command ends: an exit code, and one line instead of a stack trace."""

import errno
import io
import sys
from collections.abc import Callable
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from topics.cli import exits
from topics.cli.exits import Guarded, Stop, counted, refusals, were
from topics.client import BadAnswer, TopicsError, Unreachable


def ended(does: Callable[[], Any]) -> Result:
    """The result of a command with this callback."""
    group = Guarded()
    group.add_command(click.Command("do", callback=does))
    return CliRunner().invoke(group, ["do"])


def raising(error: BaseException) -> Callable[[], Any]:
    def does() -> None:
        raise error

    return does


def test_a_command_ends_with_what_it_returns() -> None:
    """None is exit code 0."""
    assert ended(lambda: None).exit_code == exits.OK
    assert ended(lambda: exits.LOST).exit_code == exits.LOST


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (Stop("there is no such file", exits.UNUSABLE), 2, "topics: there is no such file\n"),
        (Stop("damaged", exits.CORRUPT), 3, "topics: damaged\n"),
        (KeyboardInterrupt(), 130, "topics: interrupted\n"),
        (OSError(errno.ENOSPC, "No space left"), 2, "topics: No space left\n"),
        (OSError(errno.EACCES, "Denied", "/etc/x"), 2, "topics: /etc/x: Denied\n"),
    ],
)
def test_an_expected_failure_is_one_line(
    error: BaseException, code: int, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has an exit code of its own kind."""
    monkeypatch.setattr(exits, "abandon", lambda stream: None)

    done = ended(raising(error))

    assert (done.exit_code, done.stderr) == (code, line)


def test_a_reader_that_has_had_enough_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed pipe (`topics read jobs | head`) is exit code 0 without output."""
    monkeypatch.setattr(exits, "abandon", lambda stream: None)

    done = ended(raising(BrokenPipeError(errno.EPIPE, "Broken pipe")))

    assert (done.exit_code, done.output) == (0, "")


def test_a_bug_of_ours_is_a_stack_trace() -> None:
    """An unexpected exception is not caught."""
    done = ended(raising(ZeroDivisionError("a bug")))

    assert isinstance(done.exception, ZeroDivisionError)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TopicsError("topic_not_found", 404, "no such topic"), exits.REFUSED),
        (Unreachable("unreachable", 0, "nobody there"), exits.UNUSABLE),
        (BadAnswer("bad_answer", 200, "not ours"), exits.UNUSABLE),
    ],
)
def test_a_refusal_is_told_apart_from_a_server_that_is_not_there(
    error: TopicsError, code: int
) -> None:
    """1 for an error of the server; 2 if no server answered, or something else did."""
    with pytest.raises(Stop) as stopped, refusals(lambda: "3 records were appended"):
        raise error

    assert stopped.value.code == code
    assert stopped.value.message.endswith("; 3 records were appended")


def test_an_argument_that_is_no_text_is_told() -> None:
    """A name with bytes that are not UTF-8 cannot become JSON."""
    with pytest.raises(Stop) as stopped, refusals():
        "a\udcff".encode()

    assert stopped.value.code == exits.UNUSABLE
    assert stopped.value.message == "'a\\udcff' is not text"


def test_output_that_was_closed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that only prints cannot run without standard output."""
    monkeypatch.setattr(sys, "stdout", None)

    with pytest.raises(Stop, match="standard output is closed"):
        exits.output()


def test_a_full_standard_error_keeps_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code does not change if standard error is full."""

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left")

    monkeypatch.setattr(exits, "abandon", lambda stream: None)
    monkeypatch.setattr(sys, "stderr", Full())

    assert exits._print_end("what happened", exits.CORRUPT) == exits.CORRUPT


def test_numbers_in_sentences() -> None:
    """Singular and plural."""
    assert (counted(1, "record"), counted(2000, "record")) == ("1 record", "2,000 records")
    assert (were(1, "job"), were(0, "job")) == ("1 job was", "0 jobs were")
