"""What clients may use up: bytes in memory, CPU time, and frames that cost them nothing.

Owns the counts.  Knows nothing of what happens to a client that exceeds one, nor of the clock,
which is an argument.
"""

import time
from collections.abc import Callable
from typing import Final

FREE: Final = 20
PER_REST: Final = 10
REST_S: Final = 0.005
"""After `FREE` charges in one window, nothing is read from the client for `REST_S` after each
`PER_REST` more, so that it uses little CPU time until its connection ends."""

SHORT_S: Final = 0.0001
"""A turn that took no longer is not worth the clock of CPU time."""
KNOWN_S: Final = 0.001
"""How long the CPU time that was read is close enough."""

MOST_TIMES: Final = 10
"""So a connection is light again a fifth of a second after it was heavy, whatever it did."""


class Budget:
    """Bytes that all clients may hold together.

    Args:
        max_bytes: The bound on all shares together, whatever bound each has of its own.
    """

    __slots__ = ("held_bytes", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.held_bytes = 0


class Share:
    """What one request, stream or connection holds of a budget.

    Its owner calls `close` in the end, which gives back what is left.

    Args:
        max_bytes: What this one may hold; None: as much as the budget allows.
    """

    __slots__ = ("_budget", "_max_bytes", "held_bytes")

    def __init__(self, budget: Budget, max_bytes: int | None = None) -> None:
        self._budget = budget
        self._max_bytes = budget.max_bytes if max_bytes is None else max_bytes
        self.held_bytes = 0

    def take(self, size: int) -> bool:
        """Hold `size` bytes more; False, and nothing is held, where that is too much."""
        budget = self._budget
        if self.held_bytes + size > self._max_bytes:
            return False
        if budget.held_bytes + size > budget.max_bytes:
            return False
        self.held_bytes += size
        budget.held_bytes += size
        return True

    def give_back(self, size: int) -> None:
        assert 0 <= size <= self.held_bytes
        self.held_bytes -= size
        self._budget.held_bytes -= size

    def close(self) -> None:
        self._budget.held_bytes -= self.held_bytes
        self.held_bytes = 0


class Charges:
    """Counts what costs the server work and the client nothing, in windows of time.

    Args:
        most: Allowed in one window.
        window_s: Its length; a new one begins with the first charge after the last has ended.
    """

    __slots__ = ("_most", "_rested", "_until_s", "_window_s", "count")

    def __init__(self, most: int, window_s: float) -> None:
        self._most = most
        self._window_s = window_s
        self.count = 0
        """Of this window, or of the last."""
        self._until_s = 0.0
        self._rested = FREE
        """The count up to which every rest was taken."""

    def must_rest(self) -> bool:
        """Whether nothing should be read for `REST_S`; true once for each time it is due."""
        if self.count < self._rested:
            self._rested = FREE
        if self.count < self._rested + PER_REST:
            return False
        self._rested = self.count
        return True

    def charge(self, now_s: float, count: int = 1) -> bool:
        """Count; False where it is too much, and the connection should end."""
        if now_s >= self._until_s:
            self.count, self._until_s = 0, now_s + self._window_s
        self.count += count
        return self.count <= self._most


def cpu_clock() -> Callable[[], float]:
    """A clock of the CPU time of a thread; of real time where a sandbox forbids that, which charges a
    client for what others took meanwhile."""
    try:
        time.thread_time()
    except OSError:
        return time.perf_counter
    return time.thread_time


class Stopwatch:
    """The CPU time of the loop's thread that a turn took: time in which the process waits for a CPU is
    not the client's fault.

    A clock of CPU time is a system call, which takes 2 µs on a virtual machine, as long as a fifth of
    what it measures here.  So a turn that was short by the other clock counts as that, which is never
    less.  A long one counts no more than the thread used since this was last known, which is at most
    `KNOWN_S` before the turn.

    Args:
        clock: Seconds, as `time.perf_counter`.
        cpu_clock: Seconds, as `time.thread_time`.
    """

    def __init__(self, clock: Callable[[], float], cpu_clock: Callable[[], float]) -> None:
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._known_s = clock()
        self._cpu_s = cpu_clock()

    def begin(self) -> float:
        """A turn begins; returns the time, for `end`."""
        now_s = self._clock()
        if now_s - self._known_s > KNOWN_S:
            self._known_s, self._cpu_s = now_s, self._cpu_clock()
        return now_s

    def end(self, begun_s: float) -> float:
        """The turn ends; returns the CPU time it took, in seconds."""
        now_s = self._clock()
        took_s = now_s - begun_s
        if took_s <= SHORT_S:
            return took_s
        cpu_s = self._cpu_clock()
        used_s = cpu_s - self._cpu_s
        self._known_s, self._cpu_s = now_s, cpu_s
        return min(took_s, used_s)


class Meter:
    """The CPU time that one connection used lately: what it used leaks away at `share` of the time
    that passes, and is never more than `MOST_TIMES` what makes it heavy.

    A connection that used little is served as soon as its bytes come; one that `is_heavy` waits for
    its turn among the others that are (`turns.Turns`).  A new connection is heavy for a moment, so
    that a crowd of them does not pass those that have proved light.

    Args:
        now_s: The loop's time.
        most_s: Used lately, beyond which a connection is heavy.
        share: Of one CPU that a connection may use for ever without being heavy.

    Attributes:
        served_s: CPU time that it used, on the common clock of all connections (`turns.Turns`);
            None before it has waited for a turn.
    """

    __slots__ = ("_most_s", "_seen_s", "_share", "served_s", "used_s")

    def __init__(self, now_s: float, most_s: float = 0.002, share: float = 0.1) -> None:
        self._most_s = most_s
        self._share = share
        self.used_s = 2 * most_s
        self._seen_s = now_s
        self.served_s: float | None = None

    def use(self, now_s: float, took_s: float) -> None:
        """Note CPU time that the connection had; `now_s` is the loop's time."""
        left_s = self.used_s - (now_s - self._seen_s) * self._share
        used_s = left_s + took_s if left_s > 0 else took_s
        most_s = MOST_TIMES * self._most_s
        self.used_s = used_s if used_s < most_s else most_s
        self._seen_s = now_s
        if self.served_s is not None:
            self.served_s += took_s

    def is_heavy(self, now_s: float) -> bool:
        return self.used_s - (now_s - self._seen_s) * self._share > self._most_s
