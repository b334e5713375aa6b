"""A connection that goes to another process before anything was said on it.

Owns the moment between the first bytes of a connection, which tell what it speaks, and its speaker.
"""

from collections.abc import Callable

from topics.server.transport.connection import Connection
from topics.server.transport.speaker import Speaker


class EarlyHandover:
    """Implements `speaker.Speaker`: gives the connection away, or becomes what it would have been.

    Args:
        give: Gives the connection away; False where it stays.
        make: Makes its speaker here.
    """

    def __init__(
        self,
        connection: Connection,
        give: Callable[[Connection], bool],
        make: Callable[[Connection], Speaker],
    ) -> None:
        self._connection = connection
        self._give = give
        self._make = make

    def work(self) -> bool:
        connection = self._connection
        if self._give(connection):
            return False
        connection.become(self._make(connection))
        return True

    def receive(self, data: bytes, at: int) -> int:
        """Not called: `work` comes first, and after it this is no connection's speaker."""
        raise AssertionError

    def writable(self) -> None:
        """Nothing was written."""

    def stalled(self) -> bool:
        return False

    def due(self) -> None:
        """The first moment is over before any deadline."""

    def ended(self) -> None:
        """`work` comes first."""

    def drain(self) -> None:
        self._connection.finish()

    def close(self) -> None:
        """Nothing was begun."""
