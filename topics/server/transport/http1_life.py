"""The life of an HTTP/1.1 connection's current request: where it may be, and what moves it.

A table, so that every case is looked at: what is not in it does not happen, or is a bug.
"""

from enum import StrEnum
from typing import Final


class RequestState(StrEnum):
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


# Paths of requests read these: Python 3.11 finds a member of an Enum through its metaclass, slowly.
BODY: Final = RequestState.BODY
IDLE: Final = RequestState.IDLE
SENDING: Final = RequestState.SENDING
SPILL: Final = RequestState.SPILL
STREAMING: Final = RequestState.STREAMING
WAITING: Final = RequestState.WAITING


class RequestInput(StrEnum):
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


# Paths of requests read these: Python 3.11 finds a member of an Enum through its metaclass, slowly.
ADMITTED: Final = RequestInput.ADMITTED
CUT_SHORT: Final = RequestInput.CUT_SHORT
DONE: Final = RequestInput.DONE
POSTPONED: Final = RequestInput.POSTPONED


TABLE: Final = {
    # A request without a body, or with one that came with its head, may be answered at once.
    (RequestState.IDLE, RequestInput.ADMITTED): RequestState.BODY,
    (RequestState.IDLE, RequestInput.POSTPONED): RequestState.WAITING,
    (RequestState.IDLE, RequestInput.BEGUN): RequestState.SENDING,
    (RequestState.IDLE, RequestInput.STREAMED): RequestState.STREAMING,
    (RequestState.IDLE, RequestInput.DONE): RequestState.IDLE,
    (RequestState.IDLE, RequestInput.CUT_SHORT): RequestState.SPILL,
    (RequestState.IDLE, RequestInput.ENDED): RequestState.OVER,
    (RequestState.BODY, RequestInput.POSTPONED): RequestState.WAITING,
    (RequestState.BODY, RequestInput.BEGUN): RequestState.SENDING,
    (RequestState.BODY, RequestInput.STREAMED): RequestState.STREAMING,
    (RequestState.BODY, RequestInput.DONE): RequestState.IDLE,
    (RequestState.BODY, RequestInput.CUT_SHORT): RequestState.SPILL,
    (RequestState.BODY, RequestInput.ENDED): RequestState.OVER,
    (RequestState.WAITING, RequestInput.BEGUN): RequestState.SENDING,
    (RequestState.WAITING, RequestInput.STREAMED): RequestState.STREAMING,
    (RequestState.WAITING, RequestInput.DONE): RequestState.IDLE,
    (RequestState.WAITING, RequestInput.ENDED): RequestState.OVER,
    (RequestState.SENDING, RequestInput.DONE): RequestState.IDLE,
    (RequestState.SENDING, RequestInput.CUT_SHORT): RequestState.SPILL,
    (RequestState.SENDING, RequestInput.ENDED): RequestState.OVER,
    (RequestState.SPILL, RequestInput.DONE): RequestState.IDLE,
    (RequestState.SPILL, RequestInput.ENDED): RequestState.OVER,
    (RequestState.STREAMING, RequestInput.DONE): RequestState.IDLE,
    (RequestState.STREAMING, RequestInput.ENDED): RequestState.OVER,
}
"""All moves that there are; any other is a bug."""
