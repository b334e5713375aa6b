"""The listening socket.

Owns its options, how many connections may wait in the kernel and how many are taken at once, and
how many the process can hold.  Knows nothing of what is spoken on them.
"""

import asyncio
import logging
import resource
import socket
from collections.abc import Callable
from typing import Final

SPARE_FILES: Final = 600
"""Descriptors kept for the store when connections are bounded: two for each of the 256 segments
that it holds open, and what the log, the lock and the loop need."""

FILES_ASSUMED: Final = 1024
"""Where the system does not tell the bound: what most have."""

BACKLOG: Final = 1 << 15
"""Connections that the kernel keeps until they are accepted, where its own bound (Linux:
`net.core.somaxconn`) is not lower.  Beyond that it drops what comes, and whoever connects tries again
after a second: a crowd is a pause for everyone who is new."""

ACCEPTS: Final = 8
"""Connections accepted in one turn of the loop."""

log = logging.getLogger("topics")


class Unbindable(Exception):
    """The address cannot be listened on; one line, says which and why (exit code 2)."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 picks a free one.

    Accepted sockets inherit its options.  TCP_USER_TIMEOUT aborts a peer that acknowledges nothing,
    or keeps its window closed, for 35 s; without it such a peer is kept for a quarter of an hour.

    Raises:
        Unbindable: The address is in use, not local, or cannot be resolved.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, proto)
    except OSError as error:
        raise Unbindable(f"cannot listen on {_address(host, port)}: {error}") from None
    try:
        _set_options(made)
        made.bind(address)
        made.listen(BACKLOG)
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise Unbindable(f"cannot listen on {_address(host, port)}: {error.strerror}") from None
    return made


def _set_options(made: socket.socket) -> None:
    """Each is worth having, and none is needed: where one is refused, a warning says so."""
    for level, name, value in (
        (socket.SOL_SOCKET, "SO_REUSEADDR", 1),
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", 35_000),
    ):
        option = getattr(socket, name, None)
        try:
            if option is not None:
                made.setsockopt(level, option, value)
        except OSError as error:
            log.warning("setsockopt: %s is refused (%s)", name, error.strerror)


async def accept(
    listener: socket.socket, make: Callable[[], asyncio.Protocol]
) -> asyncio.AbstractServer:
    """Accept on a listening socket; of what waits, a few in each turn of the loop.

    asyncio accepts up to `backlog` connections in one turn, in which no other connection is served;
    it takes the number from the argument of `create_server`.  uvloop accepts one (libuv, since
    1.45).
    """
    loop = asyncio.get_running_loop()
    server = await loop.create_server(make, sock=listener, backlog=ACCEPTS)
    listener.listen(BACKLOG)
    return server


def max_connections(wanted: int = 0) -> int:
    """How many connections the process may hold; raises its limit of files to the hard one.

    Args:
        wanted: No more than so many; 0: as many as there may be files.
    """
    try:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    except (OSError, ValueError):
        log.warning("getrlimit is refused: at most %d open files are assumed", FILES_ASSUMED)
        soft = hard = FILES_ASSUMED
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):
            log.warning("the bound of open files stays at %d", soft)
    most = 1 << 20 if soft == resource.RLIM_INFINITY else max(soft - SPARE_FILES, 16)
    return min(most, wanted) if wanted else most


def bound_address(listener: socket.socket) -> str:
    """`host:port` as a client would write it."""
    host, port = listener.getsockname()[:2]
    return _address(host, port)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
