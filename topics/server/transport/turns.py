"""The order of turns on the event loop.

Owns the queues of those with more to do than one turn allows: connections with unread bytes,
streams with news.  They get turns in the order of asking, those that used little CPU lately before
the others.  After `slice_s` of turns the loop polls its sockets and timers, so a light client waits
for heavy ones at most one slice and one turn, however many they are.  Knows nothing of what is done
in a turn.

Invariant: `add` and `when_given` run nothing; a turn that raises costs no other turn.
"""

import logging
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

log = logging.getLogger("topics.http")


class Turn(Protocol):
    def take_turn(self) -> None:
        """Do some of what there is to do, for `Limits.turn_s` at most; `add` again for the rest."""


class Turns:
    """The queue.

    Args:
        call_soon: Of the event loop.
        clock: Seconds, as `time.perf_counter`.
        slice_s: How long turns are given before the loop goes on.

    Attributes:
        direct_s: Time that connections took without a turn, since the last one was given.
    """

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        clock: Callable[[], float],
        slice_s: float,
    ) -> None:
        self._call_soon = call_soon
        self._clock = clock
        self._slice_s = slice_s
        self._light: deque[Turn] = deque()
        self._heavy: list[tuple[float, int, Turn]] = []
        """A heap: the least debt first, and of the same the one that came first."""
        self._order = count()
        self._is_due = False
        self._must_pass = False
        self._is_running = False
        self._ended: list[Callable[[], None]] = []
        self.direct_s = 0.0

    @property
    def may_skip(self) -> bool:
        """Whether a connection with little to do may do it at once, without a turn.  Many of them
        that come together are a crowd, and wait in line."""
        return self.direct_s < self._slice_s

    def skipped(self, took_s: float) -> None:
        """A connection did something without a turn."""
        self.direct_s += took_s
        self._must_pass = True

    def add(self, turn: Turn, *, is_light: bool = False, debt_s: float = 0.0) -> None:
        """Give it one turn soon; what is in the queue already must not be added again.

        Args:
            debt_s: Of two that are not light, the one with less comes first: a barely heavy one
                does not wait behind all that are much heavier (`budget.Meter.debt_s`).
        """
        if is_light:
            self._light.append(turn)
        else:
            heappush(self._heavy, (debt_s, next(self._order), turn))
        if not self._is_due:
            self._is_due = True
            self._call_soon(self._run)

    def when_given(self, call: Callable[[], None]) -> None:
        """Call once the turns of this slice are given; where none are given now, soon.

        What many turns ask for is done once, behind the last of them, and without another pass of
        the loop over its sockets.
        """
        if self._is_running:
            self._ended.append(call)
        else:
            self._call_soon(call)

    def _run(self) -> None:
        light, heavy = self._light, self._heavy
        if self._must_pass and heavy:
            # uvloop sends what its transports were given after the callbacks of one iteration of
            # the loop: the answers to light clients leave before the heavy ones go on.
            self._must_pass = False
            self._call_soon(self._run)
            return
        self._must_pass = False
        self.direct_s = 0.0
        self._is_running = True
        until_s = self._clock() + self._slice_s
        while light:
            _guarded(light.popleft().take_turn)
            if self._clock() >= until_s:
                break
        while heavy:  # one at least: the light ones together may be more than the CPU can do
            _guarded(heappop(heavy)[2].take_turn)
            if self._clock() >= until_s:
                break
        self._is_running = False
        if light or heavy:
            self._call_soon(self._run)
        else:
            self._is_due = False
        if self._ended:
            ended, self._ended = self._ended, []
            for call in ended:
                _guarded(call)


def _guarded(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:
        log.exception("a turn failed")
