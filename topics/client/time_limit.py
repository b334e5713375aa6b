"""`TimeLimit`: jobs whose handlers take too long, for workers of threads.

Owns one thread, which waits for the next job that is over its time.  A handler that runs in a thread cannot
be ended from outside: its job is given back, and what the handler returns later does not count.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from topics.client.held_job import BaseHeldJob


@dataclass(eq=False, slots=True)
class Timed:
    """A job whose handler runs.

    Attributes:
        at_s: When its time is over, on the monotonic clock.
        is_over: It was; the handler's outcome does not count.
        settled: Set once `over` has returned.
        failure: What `over` raised.
    """

    job: BaseHeldJob[Any]
    at_s: float
    is_over: bool = False
    settled: threading.Event = field(default_factory=threading.Event)
    failure: BaseException | None = None


class TimeLimit:
    """The limit of one run.

    Args:
        limit_s: Of each handler.
        over: Called once for each job that is over its time, in the thread of this object.
    """

    def __init__(self, limit_s: float, over: Callable[[Any], None]) -> None:
        self.limit_s = limit_s
        self._over = over
        self._changed = threading.Condition()
        self._running: dict[Timed, None] = {}
        """In the order in which their times are over: all have the same limit."""
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def begin(self, job: BaseHeldJob[Any]) -> Timed:
        """The handler of a job begins."""
        timed = Timed(job, time.monotonic() + self.limit_s)
        with self._changed:
            self._running[timed] = None
            if self._thread is None:
                name = f"limit-{job.queue}"
                self._thread = threading.Thread(target=self._watch, name=name, daemon=True)
                self._thread.start()
            self._changed.notify()
        return timed

    def end(self, timed: Timed) -> bool:
        """The handler has ended; True where it did so in time.

        Raises:
            BaseException: What `over` raised for this job.
        """
        with self._changed:
            self._running.pop(timed, None)
            is_over = timed.is_over
        if is_over:
            timed.settled.wait()
            if timed.failure is not None:
                raise timed.failure
        return not is_over

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _watch(self) -> None:
        while (timed := self._next()) is not None:
            try:
                self._over(timed.job)
            except BaseException as error:  # the hand that runs the handler raises it
                timed.failure = error
            timed.settled.set()

    def _next(self) -> Timed | None:
        """Waits for a job that is over its time; None where the run has ended."""
        with self._changed:
            while not self._is_closed:
                timed = next(iter(self._running), None)
                left_s = None if timed is None else timed.at_s - time.monotonic()
                if timed is not None and left_s is not None and left_s <= 0:
                    timed.is_over = True
                    del self._running[timed]
                    return timed
                self._changed.wait(left_s)
        return None
