"""When a call is sent again, and how long the client waits before.

Owns the judgement about what came of an attempt; sends nothing and sleeps nowhere.  A refusal that
names a time (429, 503) is obeyed to the letter of `Retry-After` (§0.6); one that says that the request
may have taken effect is as a broken connection.  After a connection broke,
a call is sent again where the request cannot have arrived, or where doing it twice is doing it
once.  A 500 is not repeated: whether the write took effect is unknown, and the fault would most
likely recur.  The calls of a worker are repeated after a 500 too, because each of them may be done
twice.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from topics.client.call import Call, Outcome, retry_after_s
from topics.client.errors import TopicsError, detail_of
from topics.client.faults import Fault, NotConnected, OutOfTime, Unsendable

_REFUSED: Final = (429, 503)
_FAULT: Final = 500
_GATEWAY: Final = (502, 504)
"""A proxy got no answer from the server: to the client that is a connection that broke."""

STREAM_GOOD_S: Final = 5.0
"""A stream that was open for so long has worked, though no event may have been due."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How patient a client is.

    Attributes:
        for_s: No attempt begins later than this after the first; 0: one attempt.
        first_pause_s: Pause after the first failure; doubles with each.
        longest_pause_s: The pause that the doubling ends at.  `Retry-After` may ask for more.
    """

    for_s: float = 15.0
    first_pause_s: float = 0.05
    longest_pause_s: float = 2.0


OnRetry = Callable[[TopicsError, float], None]
"""Called before a call is sent again: with what went wrong, and the pause before the next attempt in
seconds."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Time and chance, replaceable in tests; `jitter` is uniform in [0, 1)."""

    now_s: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random


class Backoff:
    """Pauses that double, up to the longest.

    Half of each is chance: clients that were refused together must not come back together.
    """

    def __init__(self, retry: Retry, clock: Clock) -> None:
        self._retry = retry
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """The next pause is the first one again."""
        self._pause_s = self._retry.first_pause_s

    def next_s(self) -> float:
        pause_s = self._pause_s * (0.5 + 0.5 * self._clock.jitter())
        self._pause_s = min(2 * self._pause_s, self._retry.longest_pause_s)
        return pause_s


class Attempts:
    """The attempts of one call, from the first one on."""

    def __init__(self, call: Call[Any], retry: Retry, clock: Clock) -> None:
        self._call = call
        self._retry = retry
        self._clock = clock
        self._deadline_s = clock.now_s() + retry.for_s
        self._backoff: Backoff | None = None
        """Made at the first failure, because most calls succeed at once."""

    def pause_s(self, outcome: Outcome) -> float | None:
        """Seconds to wait before the next attempt; None where this outcome is the last."""
        if not is_worth_repeating(self._call, outcome):
            return None
        return self.next_pause_s(server_pause_s(outcome))

    def next_pause_s(self, at_least_s: float) -> float | None:
        """As `pause_s`, for an outcome that is known to be worth another attempt, but not before
        `at_least_s`."""
        if self._backoff is None:
            self._backoff = Backoff(self._retry, self._clock)
        pause_s = max(self._backoff.next_s(), at_least_s)
        return pause_s if self._clock.now_s() + pause_s <= self._deadline_s else None


class StreamAttempts:
    """Whether a stream is connected once more after its connection was lost.

    A connection was good where it brought an event, or was open for `STREAM_GOOD_S`; then the next
    one is made without limit.  Of connections that were not good, one after the other, the retry
    policy allows so many as begin within `retry.for_s` of the first loss.  Without that bound a
    client would come back for ever to a server, or a load balancer in front of it, that accepts
    every connection and closes it at once.
    """

    def __init__(self, retry: Retry, clock: Clock) -> None:
        self._retry = retry
        self._clock = clock
        self._opened_s = clock.now_s()
        self._is_good = False
        self._deadline_s: float | None = None

    def opened(self) -> None:
        """A connection was made, and has brought nothing yet."""
        self._opened_s = self._clock.now_s()
        self._is_good = False

    def heard(self, *, brings: bool) -> None:
        """The server sent something; `brings`: an event that the stream is for."""
        if brings or self._clock.now_s() - self._opened_s >= STREAM_GOOD_S:
            self._is_good = True
            self._deadline_s = None

    def goes_on(self, outcome: Outcome, pause_s: float) -> bool:
        """Whether a connection that was lost now is made again, after a pause."""
        if not isinstance(outcome, OutOfTime):
            # Its end is a sign of life too; a timeout is silence.
            self.heard(brings=False)
        if self._is_good:
            return True
        now_s = self._clock.now_s()
        if self._deadline_s is None:
            self._deadline_s = now_s + self._retry.for_s
        is_over = now_s + pause_s > self._deadline_s
        if is_over:
            # The error is raised to the program; if it goes on all the same, it has the whole
            # time again.
            self._deadline_s = None
        return not is_over


def is_worth_repeating(call: Call[Any], outcome: Outcome) -> bool:
    """Whether another attempt could end better, and could not do the work twice."""
    if isinstance(outcome, Unsendable):
        return False
    if isinstance(outcome, Fault):
        return call.is_repeatable or isinstance(outcome, NotConnected)
    if outcome.status_code in _GATEWAY:
        return call.is_repeatable and call.is_patient
    if outcome.status_code == _FAULT:
        return call.is_repeatable and call.outlives_faults
    if outcome.status_code not in _REFUSED or not call.is_patient:
        return False
    if call.is_repeatable:
        return True
    # A node of a cluster lost the leader while the leader had the request.
    return detail_of(outcome.content).get("outcome") != "unknown"


def is_away(outcome: Outcome) -> bool:
    """Whether another node of a cluster may do better: this one is not there, or serves nothing now."""
    if isinstance(outcome, Fault):
        return not isinstance(outcome, Unsendable)
    return outcome.status_code in (503, *_GATEWAY)


def server_pause_s(outcome: Outcome) -> float:
    """The pause that the server asked for, 0 where it asked for none: `detail.retry_after_ms`,
    which is finer, else `Retry-After` (§0.6)."""
    if isinstance(outcome, Fault):
        return 0.0
    asked_ms = detail_of(outcome.content).get("retry_after_ms")
    if isinstance(asked_ms, int | float):
        return asked_ms / 1000
    return retry_after_s(outcome) or 0.0
