"""The order of turns on the event loop.

Owns the queues of those with more to do than one turn allows: connections with unread bytes,
streams with news.  Those that used little CPU lately have turns before the others, which share what is
left evenly: among either, the one that was served least comes first.  After
`slice_s` of turns the loop polls its sockets and timers, so a light client waits for heavy ones at
most one slice and one turn, however many they are.  A light client may send much at once, too: its
long turn begins behind the answers that were made without one.  Knows nothing of what is done in a
turn.

What was served is counted as in start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996): on a
common clock that stands where the last one served stood, and where all were served when none waits.
A connection that had nothing to do begins at the clock: it has saved up nothing.  All new ones
together begin as one that is served for `NEW_S` each time, so that a crowd of them does not pass those
that were there, and nobody gains by connecting again.

Invariant: `add` and `when_given` run nothing; a turn that raises costs no other turn.
"""

import logging
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final, Protocol, TypeAlias

from topics.server.transport.budget import Meter

log = logging.getLogger("topics.http")

BEHIND_S: Final = 0.01
"""The most that a connection may have been served before others: what a turn took beyond its time, or
what it used without a turn while none waited, is forgotten beyond that."""
NEW_S: Final = 0.0005
"""About what a new connection costs."""


_Waiting: TypeAlias = "tuple[float, int, Turn, Meter | None]"
"""Where it stands on the common clock, the order of asking, what waits, and its meter."""


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
        self._light: list[_Waiting] = []
        self._heavy: list[_Waiting] = []
        """Heaps: the least served first, and of the same the one that came first."""
        self._served_s = 0.0
        """The common clock."""
        self._most_served_s = 0.0
        """Of any connection that was served since the clock was there."""
        self._last_new_s = 0.0
        """Where the last new connection began."""
        self._order = count()
        self._has_long = False
        """A light one in line may take all of its turn."""
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

    def skipped(self, took_s: float, meter: Meter | None = None) -> None:
        """A connection did something without a turn; its meter counts that already."""
        self.direct_s += took_s
        self._must_pass = True
        if meter is not None and meter.served_s is not None:
            served_s = meter.served_s
            if served_s - took_s > self._served_s:
                self._served_s = served_s - took_s
            if served_s > self._most_served_s:
                self._most_served_s = served_s

    def add(
        self,
        turn: Turn,
        meter: Meter | None = None,
        *,
        is_light: bool = False,
        is_long: bool = False,
    ) -> None:
        """Give it one turn soon; what is in the queue already must not be added again.

        Args:
            is_light: Before those that are not.
            is_long: It may well take all of its turn: answers that are made leave before.
        """
        if is_light and is_long:
            self._has_long = True
        at_s = self._served_s
        if meter is not None:
            served_s = meter.served_s
            if served_s is None:
                at_s = meter.served_s = self._last_new_s = max(at_s, self._last_new_s) + NEW_S
            elif at_s <= served_s <= at_s + BEHIND_S:
                at_s = served_s
            else:
                at_s = meter.served_s = at_s if served_s < at_s else at_s + BEHIND_S
        queue = self._light if is_light else self._heavy
        heappush(queue, (at_s, next(self._order), turn, meter))
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
        if self._must_pass and (heavy or self._has_long):
            # uvloop sends what its transports were given after the callbacks of one iteration of
            # the loop: the answers that are made leave before those with much to do go on.
            self._must_pass = False
            self._call_soon(self._run)
            return
        self._must_pass = False
        self.direct_s = 0.0
        self._is_running = True
        until_s = self._clock() + self._slice_s
        while light:
            self._give(light)
            if self._clock() >= until_s:
                break
        if not light:
            self._has_long = False
        while heavy:  # one at least: the light ones together may be more than the CPU can do
            self._give(heavy)
            if self._clock() >= until_s:
                break
        self._is_running = False
        if light or heavy:
            self._call_soon(self._run)
        else:
            self._is_due = False
            self._served_s = max(self._served_s, self._most_served_s)
        if self._ended:
            ended, self._ended = self._ended, []
            for call in ended:
                _guarded(call)

    def _give(self, queue: "list[_Waiting]") -> None:
        at_s, _, turn, meter = heappop(queue)
        if at_s > self._served_s:
            self._served_s = at_s
        try:
            turn.take_turn()
        except Exception:
            log.exception("a turn failed")
        if meter is not None and meter.served_s is not None:
            served_s = meter.served_s
            if served_s > self._most_served_s:
                self._most_served_s = served_s


def _guarded(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:
        log.exception("a turn failed")
