"""A stream that another process is asked for: the answer to its request comes when it is open.

Owns the wait.  Knows nothing of what kind of stream it is.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from topics.protocol.driver.reply import Ticket
from topics.protocol.model.errors import Rejection
from topics.server.http.interface import Answer, Source, Streaming
from topics.server.http.responder import Responder

S = TypeVar("S")
A = TypeVar("A")
"""`Streaming`, or a `Socket`."""


class StreamOpening(Generic[S, A]):
    """Implements `interface.Pending`, and `interface.StreamOpening` of a handshake.

    Args:
        begin: Makes the answer of a stream that is open.  Raises Rejection.

    Attributes:
        ticket: What the service calls for it.
    """

    waits_for_news = False
    is_apart = False

    def __init__(self, call: Responder, begin: Callable[[S], A]) -> None:
        self._call = call
        self._begin = begin
        self._answer: Answer | A | None = None
        self._deliver: Callable[[Answer | A], None] | None = None
        self._is_cancelled = False
        self.ticket: Ticket | None = None

    def opened(self, found: S | Rejection) -> None:
        """The other process has said so."""
        answer = self.made(found)
        if self._is_cancelled:
            _close(answer)
            return
        self._answer = answer
        deliver, self._deliver = self._deliver, None
        if deliver is not None:
            deliver(answer)

    def made(self, found: S | Rejection) -> Answer | A:
        """The answer."""
        try:
            if isinstance(found, Rejection):
                raise found
            return self._begin(found)
        except Rejection as refusal:
            return self._call.refuse(refusal)
        except Exception:
            return self._call.fail()

    def then(self, deliver: Callable[[Answer | A], None]) -> None:
        if self._answer is None:
            self._deliver = deliver
        else:
            deliver(self._answer)

    def cancel(self) -> None:
        self._is_cancelled = True
        self._deliver = None
        if self.ticket is not None:
            self.ticket.cancel()
        if self._answer is not None:
            _close(self._answer)


def _close(answer: object) -> None:
    feed = answer.feed if isinstance(answer, Streaming) else answer
    if isinstance(feed, Source):
        feed.close()
