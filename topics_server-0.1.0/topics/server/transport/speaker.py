"""The interface between a connection and the protocol that is spoken on it."""

from typing import Protocol


class Speaker(Protocol):
    """A protocol on a connection: it parses bytes into requests, and writes answers as bytes.

    All calls come on the event loop and none waits.  In a turn the connection calls `work` until
    that returns False, then `receive`, and so on, until the slice of time is over or there is
    nothing to do.  A speaker that waits for something (an answer, room, news) takes nothing
    meanwhile and calls `Connection.work_soon` when it is there.
    """

    def receive(self, data: bytes, at: int) -> int:
        """Take some of `data[at:]`, which is not empty: one request's worth, or `feed_bytes`.

        Returns:
            How many bytes were taken.  0: none now, and `receive` is not called before the next
            `Connection.work_soon` (or until more bytes come).
        """

    def work(self) -> bool:
        """Do one thing that is not parsing: carry out a request that is parsed already, send news
        of a stream.  False where there is nothing to do now."""

    def writable(self) -> None:
        """`Connection.is_paused` has ended: what waits may be written."""

    def stalled(self) -> bool:
        """The client has read nothing for `take_s`.  Send a last frame on the event streams; True
        where there are any, which gives the client `write_s` more."""

    def due(self) -> None:
        """The time that the speaker set on `Connection.deadline` has come."""

    def ended(self) -> None:
        """The client has closed its half, and the speaker has taken all that came, or takes nothing
        now.  Nothing more comes, but the client may still read answers.  May be called again."""

    def drain(self) -> None:
        """The server has stopped and made its last answers: end the connection if nothing is in
        flight.  Before that, `Shared.is_draining` has the answers announce it to their clients."""

    def close(self) -> None:
        """The connection is over: give up what is in flight.  Called once."""
