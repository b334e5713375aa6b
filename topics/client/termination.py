"""SIGTERM, as ^C: what a client has in hand is given back or sent, and the process ends without a stack
trace.

By default SIGTERM ends Python on the spot: a worker's jobs stay leased until their leases end, and a
producer's records are lost.  While either is in use, SIGTERM raises `SystemExit` in the main thread,
with the exit code that a shell has for the signal; in an event loop it cancels the task that uses them,
and the loop ends with the same code when that task has.  A program that handles SIGTERM itself is left
alone.
"""

import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio

EXIT_CODE: Final = 128 + signal.SIGTERM

_uses = 0
"""How many workers and producers would lose something."""
_TASKS: Final = Counter["asyncio.Task[Any]"]()
"""The same in event loops, by the task that uses them."""
_ENDING: Final = set["asyncio.Task[Any]"]()
"""Tasks that were cancelled and are not done."""
_IS_HEARD: Final = ContextVar("_IS_HEARD", default=False)
"""Whether this task, or the one that made it, is among them."""


def begin() -> bool:
    """Hear SIGTERM from now on; False where this is not for us to say.  Ends with `end`."""
    global _uses
    if threading.current_thread() is not threading.main_thread():
        return False
    handler = signal.getsignal(signal.SIGTERM)
    if handler is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _raise)
    elif handler is not _raise:
        return False
    _uses += 1
    return True


def end() -> None:
    """The counterpart of a `begin` that was true; from any thread."""
    global _uses
    _uses -= 1
    is_ours = not _uses and signal.getsignal(signal.SIGTERM) is _raise
    if is_ours and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def heard() -> Iterator[None]:
    """SIGTERM raises `SystemExit` in here, in the main thread."""
    hears = begin()
    try:
        yield
    finally:
        if hears:
            end()


def _raise(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(EXIT_CODE)


@contextmanager
def heard_by_task() -> Iterator[None]:
    """SIGTERM cancels the task that is in here, and then ends its event loop with `SystemExit`.

    Tasks that are made in here are left to it: it cancels them itself, and each only once.
    """
    import asyncio

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    is_main = threading.current_thread() is threading.main_thread()
    is_default = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if task is None or _IS_HEARD.get() or not is_main or not (_TASKS or is_default):
        yield
        return
    if not _TASKS:
        loop.add_signal_handler(signal.SIGTERM, _cancel)
    _TASKS[task] += 1
    is_heard = _IS_HEARD.set(True)
    try:
        yield
    finally:
        # A generator may be closed in another context than it began in.
        with suppress(ValueError):
            _IS_HEARD.reset(is_heard)
        _TASKS[task] -= 1
        if not _TASKS[task]:
            del _TASKS[task]
        if not _TASKS and not loop.is_closed():
            loop.remove_signal_handler(signal.SIGTERM)


def _cancel() -> None:
    for task in list(_TASKS):
        if task not in _ENDING:
            _ENDING.add(task)
            task.add_done_callback(_ended)
        task.cancel()


def _ended(task: "asyncio.Task[Any]") -> None:
    """End the loop when the last task has given back what it had."""
    _ENDING.discard(task)
    if task.cancelled() and not _ENDING:
        raise SystemExit(EXIT_CODE)
