"""How old what a replica shows is: the age of the oldest unit that it knows of and has not applied.

Owns that age and no clock: `at_ms` is any clock that never goes back.  It is known from when on the
node knew of a unit, which is a heartbeat's interval late at most.
"""

from collections import deque
from typing import Final

NOTES_MAX: Final = 1024
"""Of a replica that lags for long the notes get coarser, and the oldest is kept."""


class Lag:
    """Of one replica."""

    def __init__(self) -> None:
        self._known: deque[tuple[int, int]] = deque()
        """Times at which the node knew of units up to an index, both rising."""

    def note(self, known: int, applied: int, at_ms: int) -> None:
        """The node knows of units up to `known` now, and shows those up to `applied`."""
        notes = self._known
        while notes and notes[0][1] <= applied:
            notes.popleft()
        if known > applied and (not notes or known > notes[-1][1]):
            if len(notes) == NOTES_MAX:
                del notes[-1]  # its units count from this note on: too young, and still in order
            notes.append((at_ms, known))

    def units(self, applied: int) -> int:
        return max(0, self._known[-1][1] - applied) if self._known else 0

    def ms(self, applied: int, at_ms: int) -> int:
        """0 where it shows all that it knows of."""
        return next((at_ms - noted for noted, index in self._known if index > applied), 0)
