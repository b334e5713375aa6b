"""The life of a connection: where it may be, and what moves it.

A table, so that every case is looked at: what is not in it does not happen, or is a bug.
"""

from enum import StrEnum
from typing import Final


class State(StrEnum):
    CHOOSING = "choosing"
    """Which protocol it speaks is not known yet."""
    OPEN = "open"
    FINISHING = "finishing"
    """No more requests or answers: written bytes are still sent, received bytes are dropped."""
    LOST = "lost"


class Input(StrEnum):
    CHOSEN = "chosen"
    """The first bytes have said which protocol it is."""
    ENDED = "ended"
    """This side ends it: after what is written, or at once."""
    LOST = "lost"
    """The transport is gone, or there is no room for the connection."""


TABLE: Final = {
    (State.CHOOSING, Input.CHOSEN): State.OPEN,
    (State.CHOOSING, Input.ENDED): State.FINISHING,
    (State.CHOOSING, Input.LOST): State.LOST,
    (State.OPEN, Input.ENDED): State.FINISHING,
    (State.OPEN, Input.LOST): State.LOST,
    # It may end gently, and then be cut because its client does not read.
    (State.FINISHING, Input.ENDED): State.FINISHING,
    (State.FINISHING, Input.LOST): State.LOST,
    # A connection that found no room is lost when it is made, and again when its transport is.
    (State.LOST, Input.LOST): State.LOST,
}
"""All moves that there are; any other is a bug."""

LIVE: Final = frozenset((State.CHOOSING, State.OPEN))
"""Bytes that come are looked at."""
