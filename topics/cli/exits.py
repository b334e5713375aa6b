"""How a command ends: the exit codes, and one line instead of a stack trace.

Invariant: a user's mistake, a refusal, an interrupt and a closed pipe end in a code that means
something; a stack trace is a bug of ours.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import click

OK: Final = 0
REFUSED: Final = 1
UNUSABLE: Final = 2
CORRUPT: Final = 3
LOST: Final = 4
FAILED: Final = 5
INTERRUPTED: Final = 130


class Stop(Exception):
    """The command ends here, with a code and a line on standard error."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class Guarded(click.Group):
    """A group whose commands return exit codes, and end quietly when nobody reads on."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # `topics read jobs | head` has got what it wanted.
            _close_output()
            code = OK
        except Stop as stop:
            code = _tell(stop.message, stop.code)
        except KeyboardInterrupt:
            code = _tell("interrupted", INTERRUPTED)
        ctx.exit(code or OK)


@contextmanager
def refusals(done: Callable[[], str] = str) -> Iterator[None]:
    """Turn what the client raises into a `Stop`: 1 where the server refused, 2 where it is not
    there.  What `done` says then, if anything, is told too."""
    from topics.client import BadAnswer, TopicsError

    try:
        yield
    except TopicsError as error:
        is_refusal = error.status > 0 and not isinstance(error, BadAnswer)
        code = REFUSED if is_refusal else UNUSABLE
        raise Stop(_line(error, done()), code) from None
    except UnicodeEncodeError as error:
        # An argument of the command line that is not UTF-8, on its way into JSON or a path.
        raise Stop(f"{error.object!a} is not text", UNUSABLE) from None


def _tell(message: str, code: int) -> int:
    click.echo(f"topics: {message}", err=True)
    return code


def _line(error: Exception, done: str) -> str:
    return f"{error}; {done}" if done else str(error)


def _close_output() -> None:
    """Let the interpreter's last flush go nowhere, so that it cannot fail again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
