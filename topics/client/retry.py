"""When a call is sent again, and how long it waits before.

Owns the judgement about what came of an attempt; sends and sleeps nothing itself.  A refusal that
names a time (429, 503) is obeyed to the letter of `Retry-After`; a connection that broke is tried
again where the request cannot have arrived, or where doing it twice is doing it once.  500 is not
repeated, for what happened is unknown, and it would happen again; but a worker, whose calls may all
be done twice, goes on after one that passes.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import httpx
import msgspec

from topics.client.calls import Call, Outcome, retry_after_s

_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_REFUSED: Final = (429, 503)
_FAULT: Final = 500
_GATEWAY: Final = (502, 504)
"""A proxy's word for "the server did not answer": like a connection that broke."""


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


@dataclass(frozen=True, slots=True)
class Clock:
    """Time and chance, replaceable in tests; `jitter` is uniform in [0, 1)."""

    now_s: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random


class Attempts:
    """The attempts of one call, counted."""

    def __init__(self, call: Call[Any], retry: Retry, clock: Clock) -> None:
        self._call = call
        self._retry = retry
        self._clock = clock
        self._deadline_s = clock.now_s() + retry.for_s
        self._pause_s = retry.first_pause_s

    def pause_s(self, outcome: Outcome) -> float | None:
        """Seconds to wait before the next attempt; None where this outcome is the last."""
        if not is_worth_repeating(self._call, outcome):
            return None
        return self.next_pause_s(asked_pause_s(outcome))

    def next_pause_s(self, at_least_s: float) -> float | None:
        """Likewise, where it is known to be worth another attempt, but not before `at_least_s`."""
        # Half of the pause is chance: clients refused together must not come back together.
        own_s = self._pause_s * (0.5 + 0.5 * self._clock.jitter())
        self._pause_s = min(2 * self._pause_s, self._retry.longest_pause_s)
        pause_s = max(own_s, at_least_s)
        return pause_s if self._clock.now_s() + pause_s <= self._deadline_s else None


STOOD_S: Final = 5.0
"""A stream that stood for so long has worked, though nothing may have happened that it could tell."""


class Standing:
    """Whether the connections of a stream are worth making.

    One is that brought something, or stood for a while: what befalls it then is another story.  Of
    those that did neither, one after the other, the last is where `retry` ends, from the first loss
    on: else a server, or a balancer before it, that takes every connection and cuts it would be come
    back to for ever.
    """

    def __init__(self, retry: Retry, clock: Clock) -> None:
        self._retry = retry
        self._clock = clock
        self._opened_s = clock.now_s()
        self._is_good = False
        self._deadline_s: float | None = None

    def opened(self) -> None:
        """A connection is there, and has brought nothing yet."""
        self._opened_s = self._clock.now_s()
        self._is_good = False

    def heard(self, *, brings: bool) -> None:
        """A sign of life; `brings`: what the stream is there for."""
        if brings or self._clock.now_s() - self._opened_s >= STOOD_S:
            self._is_good = True
            self._deadline_s = None

    def goes_on(self, outcome: Outcome, pause_s: float) -> bool:
        """Whether a connection that is lost now is to be made again, after a pause."""
        if not isinstance(outcome, httpx.TimeoutException):
            # Its end is a sign of life too, but for one that is silence.
            self.heard(brings=False)
        if self._is_good:
            return True
        now_s = self._clock.now_s()
        if self._deadline_s is None:
            self._deadline_s = now_s + self._retry.for_s
        is_over = now_s + pause_s > self._deadline_s
        if is_over:
            # Whoever asks again in spite of that has all of it again.
            self._deadline_s = None
        return not is_over


def is_worth_repeating(call: Call[Any], outcome: Outcome) -> bool:
    """Whether another attempt could end better, and could not do the work twice."""
    if isinstance(outcome, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        # Ours to mend.
        return False
    if isinstance(outcome, httpx.RequestError):
        return call.is_repeatable or isinstance(outcome, _NOT_SENT)
    if outcome.status_code in _GATEWAY:
        return call.is_repeatable and call.is_patient
    if outcome.status_code == _FAULT:
        return call.is_repeatable and call.outlives_faults
    return outcome.status_code in _REFUSED and call.is_patient


class _Detail(msgspec.Struct):
    retry_after_ms: float | None = None


class _Error(msgspec.Struct):
    detail: _Detail | None = None


class _Envelope(msgspec.Struct):
    error: _Error


def asked_pause_s(outcome: Outcome) -> float:
    """What the server asked for: `detail.retry_after_ms`, which is finer, else `Retry-After`."""
    if isinstance(outcome, httpx.RequestError):
        return 0.0
    try:
        detail = msgspec.json.decode(outcome.content, type=_Envelope).error.detail
    except (msgspec.DecodeError, UnicodeDecodeError):
        detail = None
    if detail is not None and detail.retry_after_ms is not None:
        return detail.retry_after_ms / 1000
    return retry_after_s(outcome) or 0.0
