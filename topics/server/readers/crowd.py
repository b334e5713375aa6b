"""Whether writes come from many clients at once: then readers parse them, and the engine's process decides.

A write that a reader parses costs the engine less and its client more, since it passes two processes.  So a
lone client stays where the engine is, and so do many that seldom write: a crowd is many connections whose
writes come at once, so that a turn of the log takes several.  Owns the counts of one tick; knows nothing of
connections.
"""

from typing import Final

WRITES_MIN: Final = 64
"""In a tick: fewer cost the engine little, however they come."""
WRITERS: Final = 8
"""Connections that write in a tick, from which on they are many."""
AT_ONCE: Final = 2.0
"""Writes in one turn of the log from which on they come at once."""
FEW_WRITERS: Final = 4
SELDOM_AT_ONCE: Final = 1.5
"""Below either a crowd is over."""
CALM_TICKS: Final = 8
"""After so many calm ticks it is: connections do not go to and fro over a pause."""


class Crowd:
    """The crowd of one server.

    Attributes:
        is_here: Many wrote at once lately.
        ticks: How many there were.
    """

    def __init__(self) -> None:
        self.is_here = False
        self.ticks = 0
        self._writes = 0
        self._writers = 0
        self._turns = 0
        self._calm_ticks = 0

    def came(self, writes: int, writers: int) -> None:
        """Writes came, whoever parses them, of connections that had not written in this tick."""
        self._writes += writes
        self._writers += writers

    def turn(self) -> None:
        """The log took a turn."""
        self._turns += 1

    def tick(self) -> bool:
        """A tick is over; whether `is_here` has changed."""
        writes, writers, turns = self._writes, self._writers, self._turns
        self._writes = self._writers = self._turns = 0
        self.ticks += 1
        if writes < WRITES_MIN:
            writers = 0
        if not self.is_here:
            self.is_here = writers >= WRITERS and writes >= AT_ONCE * turns
            self._calm_ticks = 0
            return self.is_here
        is_calm = writers < FEW_WRITERS or writes < SELDOM_AT_ONCE * turns
        self._calm_ticks = self._calm_ticks + 1 if is_calm else 0
        self.is_here = self._calm_ticks < CALM_TICKS
        return not self.is_here
