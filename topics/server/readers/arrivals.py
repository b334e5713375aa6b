"""Connections that came from another process, on this one's loop.

Owns the first moment of such a connection: its protocol is there before its first byte is read, and
the bytes that came with it are taken before any other.
"""

import asyncio
import logging
import socket
from collections.abc import Callable

from topics.server.transport.connection import Connection

log = logging.getLogger("topics.readers")


class _Arrival(asyncio.Protocol):
    """The protocol until the transport is made."""

    def __init__(self, connection: Connection, pending: bytes) -> None:
        self._connection = connection
        self._pending = pending

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.set_protocol(self._connection)
        self._connection.connection_made(transport)
        if self._pending:
            self._connection.data_received(self._pending)


class Arrivals:
    """Adopts sockets; keeps the tasks that do."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def adopt(
        self,
        sock: socket.socket,
        connection: Connection,
        pending: bytes,
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        """Carry the connection from now on; `failed` is called where the client is gone already."""
        sock.setblocking(False)
        task = asyncio.get_running_loop().create_task(
            self._adopt(sock, connection, pending, failed)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _adopt(
        self,
        sock: socket.socket,
        connection: Connection,
        pending: bytes,
        failed: Callable[[], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: _Arrival(connection, pending), sock)
        except OSError as error:
            log.info("a connection was lost on its way: %s", error)
            sock.close()
            failed()
