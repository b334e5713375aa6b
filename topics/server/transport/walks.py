"""Turns of fan-outs: a walk over the watchers of a topic, in slices between the turns of others.

A walk writes to many connections, and is in line as any one of them would be: it is charged what it took,
divided by the streams it walks over, since each of them would be charged its part.
"""

from collections.abc import Callable

from topics.protocol.driver.streams import Fanout
from topics.server.transport.budget import Meter, Stopwatch
from topics.server.transport.turns import Turns


class Walks:
    """What the walks of a server share.

    Args:
        clock: Seconds, as `time.perf_counter`; the one of `stopwatch`.
        now_s: The loop's time.
        turn_s: CPU time after which a walk lets others have their turn.
    """

    def __init__(
        self,
        turns: Turns,
        stopwatch: Stopwatch,
        clock: Callable[[], float],
        now_s: Callable[[], float],
        turn_s: float,
    ) -> None:
        self.turns = turns
        self.stopwatch = stopwatch
        self.clock = clock
        self.now_s = now_s
        self.turn_s = turn_s

    def gather(self, fanout: Fanout) -> Callable[[], None]:
        """See `interface.Beating`."""
        return _Walk(self, fanout).ask


class _Walk:
    """Implements `turns.Turn`: one fanout's."""

    def __init__(self, walks: Walks, fanout: Fanout) -> None:
        self._walks = walks
        self._fanout = fanout
        self._meter = Meter(walks.now_s())

    def ask(self) -> None:
        meter = self._meter
        is_heavy = meter.is_heavy(self._walks.now_s())
        self._walks.turns.add(self, meter, is_light=not is_heavy)

    def take_turn(self) -> None:
        walks, fanout = self._walks, self._fanout
        stopwatch = walks.stopwatch
        begun_s = stopwatch.begin()
        has_more = fanout.walk(walks.clock, begun_s + walks.turn_s)
        used_s = stopwatch.end(begun_s)
        self._meter.use(walks.now_s(), used_s / max(fanout.size, 1))
        if has_more:
            self.ask()
