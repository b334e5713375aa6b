"""The life of a connection: where it may be, and what moves it.

A table, so that every case is looked at: what is not in it does not happen, or is a bug.
"""

from enum import StrEnum
from typing import Final


class ConnectionState(StrEnum):
    CHOOSING = "choosing"
    """Which protocol it speaks is not known yet."""
    OPEN = "open"
    FINISHING = "finishing"
    """No more requests or answers: written bytes are still sent, received bytes are dropped."""
    LOST = "lost"


# Paths of requests read these: Python 3.11 finds a member of an Enum through its metaclass, slowly.
CHOOSING: Final = ConnectionState.CHOOSING
LOST: Final = ConnectionState.LOST
OPEN: Final = ConnectionState.OPEN


class ConnectionInput(StrEnum):
    CHOSEN = "chosen"
    """The first bytes have said which protocol it is."""
    ENDED = "ended"
    """This side ends it: after what is written, or at once."""
    LOST = "lost"
    """The transport is gone, or there is no room for the connection."""


TABLE: Final = {
    (ConnectionState.CHOOSING, ConnectionInput.CHOSEN): ConnectionState.OPEN,
    (ConnectionState.CHOOSING, ConnectionInput.ENDED): ConnectionState.FINISHING,
    (ConnectionState.CHOOSING, ConnectionInput.LOST): ConnectionState.LOST,
    (ConnectionState.OPEN, ConnectionInput.ENDED): ConnectionState.FINISHING,
    (ConnectionState.OPEN, ConnectionInput.LOST): ConnectionState.LOST,
    # It may end gently, and then be cut because its client does not read.
    (ConnectionState.FINISHING, ConnectionInput.ENDED): ConnectionState.FINISHING,
    (ConnectionState.FINISHING, ConnectionInput.LOST): ConnectionState.LOST,
    # A connection that found no room is lost when it is made, and again when its transport is.
    (ConnectionState.LOST, ConnectionInput.LOST): ConnectionState.LOST,
}
"""All moves that there are; any other is a bug."""

LIVE: Final = frozenset((ConnectionState.CHOOSING, ConnectionState.OPEN))
"""Bytes that come are looked at."""
