"""The life of an HTTP/1.1 connection's current request: where it may be, and what moves it.

A table, so that every case is looked at: what is not in it does not happen, or is a bug.
"""

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """The state of the connection's current request."""

    IDLE = "idle"
    """There is none, or a part of its head."""
    BODY = "body"
    """Its body comes."""
    SPILL = "spill"
    """It is answered, and the rest of its body is read and dropped."""
    WAITING = "waiting"
    """Its answer is yet to come."""
    SENDING = "sending"
    """Its answer is written as the client takes it."""
    STREAMING = "streaming"
    OVER = "over"
    """The connection ends, or is spoken on by another speaker."""


class Input(StrEnum):
    """What moves a request."""

    ADMITTED = "admitted"
    """Its head is accepted, and it has a body."""
    POSTPONED = "postponed"
    """It is whole, and its answer comes later."""
    BEGUN = "begun"
    """There is an answer, too large to be written at once."""
    STREAMED = "streamed"
    """Its answer is a stream."""
    DONE = "done"
    """It is whole, and so is its answer."""
    CUT_SHORT = "cut short"
    """It was answered before its body was whole."""
    ENDED = "ended"
    """The connection ends, or becomes a WebSocket."""


TABLE: Final = {
    # A request without a body, or with one that came with its head, may be answered at once.
    (State.IDLE, Input.ADMITTED): State.BODY,
    (State.IDLE, Input.POSTPONED): State.WAITING,
    (State.IDLE, Input.BEGUN): State.SENDING,
    (State.IDLE, Input.STREAMED): State.STREAMING,
    (State.IDLE, Input.DONE): State.IDLE,
    (State.IDLE, Input.CUT_SHORT): State.SPILL,
    (State.IDLE, Input.ENDED): State.OVER,
    (State.BODY, Input.POSTPONED): State.WAITING,
    (State.BODY, Input.BEGUN): State.SENDING,
    (State.BODY, Input.STREAMED): State.STREAMING,
    (State.BODY, Input.DONE): State.IDLE,
    (State.BODY, Input.CUT_SHORT): State.SPILL,
    (State.BODY, Input.ENDED): State.OVER,
    (State.WAITING, Input.BEGUN): State.SENDING,
    (State.WAITING, Input.STREAMED): State.STREAMING,
    (State.WAITING, Input.DONE): State.IDLE,
    (State.WAITING, Input.ENDED): State.OVER,
    (State.SENDING, Input.DONE): State.IDLE,
    (State.SENDING, Input.CUT_SHORT): State.SPILL,
    (State.SENDING, Input.ENDED): State.OVER,
    (State.SPILL, Input.DONE): State.IDLE,
    (State.SPILL, Input.ENDED): State.OVER,
    (State.STREAMING, Input.DONE): State.IDLE,
    (State.STREAMING, Input.ENDED): State.OVER,
}
"""All moves that there are; any other is a bug."""
