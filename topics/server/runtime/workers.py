"""Threads that wait for a disk, so that the event loop does not.

A worker is one thread that makes calls in order.  Unlike the threads of `concurrent.futures` it is
a daemon: a disk that hangs does not keep the process from ending.  `AtWork` counts the calls that any
thread has yet to end.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")

NAME_CHARS: Final = 15
"""Of a thread's name, as the kernel keeps it."""

Done: TypeAlias = Callable[[Any, BaseException | None], None]
"""Called on the loop with what a call returned, or with None and what it raised."""


def show_name(name: str) -> None:
    """Have the kernel show the name of this thread, to `top -H` and in `/proc/PID/task/TID/comm`."""
    with suppress(OSError):  # not everywhere
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name[:NAME_CHARS])


def threads(most: int, name: str) -> ThreadPoolExecutor:
    """A pool of threads that have its name."""
    return ThreadPoolExecutor(most, name, initializer=show_name, initargs=(name,))


class AtWork:
    """Calls that were given to threads, and whose end the event loop has not heard of.

    Attributes:
        calls: How many.
    """

    def __init__(self) -> None:
        self.calls = 0

    def run(self, executor: Executor, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Make a call on a thread of a pool."""
        future = asyncio.get_running_loop().run_in_executor(executor, call)
        self.calls += 1
        future.add_done_callback(self._ended)
        return future

    def _ended(self, _: object) -> None:
        self.calls -= 1


class Worker:
    """Calls on a thread of their own, one after the other.

    Args:
        name: Of the thread, as a debugger, and the kernel, show it.
        at_work: Counts them, with those of others.
    """

    def __init__(self, name: str, at_work: AtWork | None = None) -> None:
        self._name = name
        self._at_work = at_work or AtWork()
        self._calls: SimpleQueue[tuple[Callable[[], Any], Done | None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop

    def do(self, call: Callable[[], Any], done: Done | None = None) -> None:
        """Make a call on the thread, then call `done` on the event loop that runs now."""
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._live, name=self._name, daemon=True)
            self._thread.start()
        self._at_work.calls += 1
        self._calls.put((call, done))

    async def wait_for(self, call: Callable[[], Any]) -> Any:
        """Make a call on the thread; returns its result, or raises its exception."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(value: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)

        self.do(call, done)
        return await future

    def stop(self) -> None:
        """End the thread after the calls in its queue."""
        if self._thread is not None:
            self._calls.put(None)

    def _live(self) -> None:
        show_name(self._name)
        while (given := self._calls.get()) is not None:
            call, done = given
            value: Any = None
            error: BaseException | None = None
            try:
                value = call()
            except BaseException as raised:
                error = raised
            self._report(done, value, error)
            # Hold nothing of a call while waiting for the next: it may be a body of 64 MiB.
            del given, call, done, value, error

    def _report(self, done: Done | None, value: Any, error: BaseException | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._ended, done, value, error)
        except RuntimeError:
            return  # the loop is closed: nothing waits for the result any more

    def _ended(self, done: Done | None, value: Any, error: BaseException | None) -> None:
        self._at_work.calls -= 1
        if done is not None:
            done(value, error)
