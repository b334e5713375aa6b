"""How a command ends: the exit codes, and one line instead of a stack trace.

Invariant: a user's mistake, a refusal, an interrupt, a full disk and a closed pipe end in a code
that means something; a stack trace is a bug of this program.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Final, TextIO, cast

import click

from topics.cli.printing import say, take_over
from topics.visible import visible

OK: Final = 0
REFUSED: Final = 1
UNUSABLE: Final = 2
CORRUPT: Final = 3
LOST: Final = 4
FAILED: Final = 5
PENDING: Final = 6
INTERRUPTED: Final = 130
TERMINATED: Final = 143

OF_SERVER: Final = (
    *("cronsim", "h2", "hpack", "hypercorn", "numpy", "orjson", "uvloop", "websockets", "xxhash"),
)
"""Packages that the client and the command line do without; the extra `server` brings them."""

OF_EXPORT: Final = "pyarrow"
"""What the extra `export` brings besides."""


class Stop(Exception):
    """The command ends here, with a code and a line on standard error."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class Terminated(KeyboardInterrupt):
    """SIGTERM came: the command ends as at ^C."""


@contextmanager
def terminable() -> Iterator[Callable[[int | None], int | None]]:
    """SIGTERM ends the command as ^C does: it gives back what it has in hand and says how far it came.
    A command that handles SIGTERM itself is left alone.

    Yields what makes the exit code of what the command returns: SIGTERM has its own.
    """
    import signal
    import threading

    came = False

    def terminate(_number: int, _frame: Any) -> None:
        nonlocal came
        came = True
        raise Terminated

    def ended(code: int | None) -> int | None:
        return TERMINATED if came and code == INTERRUPTED else code

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield ended
        return
    signal.signal(signal.SIGTERM, terminate)
    try:
        yield ended
    except Terminated:
        raise Stop("interrupted", TERMINATED) from None
    except Stop as stop:
        raise Stop(stop.message, ended(stop.code) or OK) from None
    finally:
        if signal.getsignal(signal.SIGTERM) is terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Guarded(click.Group):
    """A group whose commands return exit codes, and end quietly when the reader of a pipe closes
    it."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **rest: Any) -> Any:
        if args is None:  # this process is the command, and not a program that calls it
            take_over()
        if "_TOPICS_COMPLETE" in os.environ:
            from topics.cli.shells import register

            register()
        return super().main(args, *more, **rest)

    def make_context(self, *args: Any, **rest: Any) -> click.Context:
        try:
            return super().make_context(*args, **rest)
        except click.NoSuchOption as error:
            if error.possibilities:
                raise _visible(error) from None
            said = (
                f"{error.message} Options follow the command, as in 'topics read jobs --url URL'."
            )
            raise _visible(click.UsageError(said, error.ctx)) from None
        except click.UsageError as error:
            raise _visible(error) from None
        except OSError as error:
            # The help and the version are printed in here; where the pipe is closed, click itself
            # would end with 1.
            raise click.exceptions.Exit(_unwritten(error)) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if not ctx.resilient_parsing and word[:1] != "-" and self.get_command(ctx, word) is None:
            from topics.cli.suggestions import sentence, suggested

            found = suggested(word, self.list_commands(ctx), is_top=ctx.parent is None)
            # However this program was called, `python -m topics` among the ways.
            path = ctx.command_path.replace(ctx.find_root().command_path, "topics", 1)
            raise click.UsageError(sentence(word, path, found), ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            code = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()
        except click.UsageError as error:
            raise _visible(error) from None
        except Stop as stop:
            code = _print_end(stop.message, stop.code)
        except KeyboardInterrupt:
            code = _print_end("interrupted", INTERRUPTED)
        except ModuleNotFoundError as error:
            code = _missing(error)
        except OSError as error:
            code = _unwritten(error)
        ctx.exit(code or OK)


def output() -> BinaryIO:
    """Standard output, for bytes; for a command whose purpose is to print.

    Python has None for a descriptor that was closed when it started (`>&-`).
    """
    if sys.stdout is None:
        raise Stop("standard output is closed", UNUSABLE)
    return sys.stdout.buffer


def counted(count: int, noun: str) -> str:
    """A count with its noun: "1 record", "2 records"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def were(count: int, noun: str) -> str:
    """A count with its noun and verb: "1 record was", "2 records were"."""
    return f"{counted(count, noun)} {'was' if count == 1 else 'were'}"


@contextmanager
def refusals(done: Callable[[], str] = str, wording: Callable[[str], str] = str) -> Iterator[None]:
    """Turn an error of the client into a `Stop`: 1 where the server refused, 2 where it cannot be
    reached.

    Args:
        done: What the command did before, for the message; empty for nothing.
        wording: Turns the text of the error into that of the message.
    """
    try:
        yield
    except UnicodeEncodeError as error:
        # An argument of the command line that is not UTF-8 cannot be sent in JSON or a path.
        raise Stop(f"{error.object!a} is not text", UNUSABLE) from None
    except Exception as error:
        if "topics.client" not in sys.modules:
            raise  # of a command that did without its client
        from topics.client import BadAnswer, TopicsError

        if not isinstance(error, TopicsError):
            raise
        is_refusal = error.status > 0 and not isinstance(error, BadAnswer)
        code = REFUSED if is_refusal else UNUSABLE
        raise Stop("; ".join(filter(None, [wording(str(error)), done()])), code) from None


def spare_httpx_main() -> None:
    """Let httpx, where a proxy needs it, be imported without its own command line, which loads rich
    and pygments."""
    sys.modules.setdefault("httpx._main", cast("Any", None))  # httpx does without it then


def _visible(error: click.UsageError) -> click.UsageError:
    """The error, whose message may quote what was pasted or completed."""
    error.message = "\n".join(map(visible, error.message.split("\n")))  # type: ignore[misc]
    return error


def _missing(error: ModuleNotFoundError) -> int:
    """The exit code where a package of an extra is not installed; what else is missing is a bug.

    Raises:
        ModuleNotFoundError: The module is none of an extra's.
    """
    from topics.distribution import MissingExtra, install

    package = (error.name or "").partition(".")[0]
    if package not in (*OF_SERVER, OF_EXPORT):
        raise error
    extra = "export" if package == OF_EXPORT else "server"
    reason = error.reason if isinstance(error, MissingExtra) else error
    return _print_end(f"this needs {install(extra)} ({reason})", UNUSABLE)


def _unwritten(error: OSError) -> int:
    """The exit code for an error of the system; most often standard output cannot be written."""
    abandon(sys.stdout)
    if isinstance(error, BrokenPipeError):
        # The reader of the pipe has enough, as in `topics read jobs | head`.
        return OK
    what = error.strerror or str(error) or type(error).__name__
    return _print_end(what if error.filename is None else f"{error.filename}: {what}", UNUSABLE)


def _print_end(message: str, code: int) -> int:
    """Print the last line of the command; returns its exit code."""
    try:
        say(f"topics: {message}", err=True)
    except OSError:
        # Standard error is closed; the exit code is all that is left.
        abandon(sys.stderr)
    return code


def abandon(stream: TextIO | None) -> None:
    """Point a stream that cannot be written at /dev/null, so that the interpreter's last flush cannot fail again."""
    if stream is not None:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
