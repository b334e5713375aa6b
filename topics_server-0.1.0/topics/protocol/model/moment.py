"""The moment that a decision meets: the engine's time, and what the log is sure to take.

Both are arguments of every decision, because the core reads no clock and asks no disk; they travel
as one value.  A moment lasts one call: what goes on later is given another.
"""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

Room: TypeAlias = Callable[[bool], int]
"""Bytes of frames that the log is sure to take now, given whether the reserve counts."""


class Moment(msgspec.Struct, frozen=True):
    """One is made for every command, hence a `Struct`: a frozen dataclass takes ten times as long.

    Attributes:
        now_ms: Milliseconds since the epoch; engine time never runs backwards.
        room: Of the log alone; `UnitOfWork.room` leaves out what is planned already.
    """

    now_ms: int
    room: Room


def earlier(one_ms: int | None, other_ms: int | None) -> int | None:
    """The earlier of two times, where None is never."""
    if one_ms is None or (other_ms is not None and other_ms < one_ms):
        return other_ms
    return one_ms
