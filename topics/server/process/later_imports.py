"""What few requests need, which a server loads when it serves already.

HTTP/2 and WebSocket come with libraries of their own, and a request that wants to be read strictly
needs the table of the whole API.  To import all of that is a tenth of a start.  So each is imported
where it is needed, and `load` imports them on a thread once the server is ready: the first connection
that speaks HTTP/2 finds it there, or waits for some milliseconds.
"""

import logging
import threading
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from topics.server.http.interface import Exchange
    from topics.server.transport.connection import Connection
    from topics.server.transport.speaker import Speaker

OF_READERS: Final = (
    "topics.server.transport.http2",
    "topics.server.transport.websocket",
    "topics.protocol.faces.http.openapi.operations",
)
"""What a reader process may need."""
LATER: Final = (
    "topics.server.http.socket_feed",
    *OF_READERS,
)
"""Each is imported in the function that needs it, and nowhere at the start."""

log = logging.getLogger("topics")


def http2(connection: "Connection", exchange: "Exchange | None" = None) -> "Speaker":
    """The HTTP/2 speaker of a connection."""
    from topics.server.transport.http2 import Http2

    return Http2(connection, exchange)


def load(names: Sequence[str] = LATER) -> threading.Thread:
    """Import what few requests need, on a thread of its own; returns the thread."""
    thread = threading.Thread(target=_load, args=(names,), name="topics-load", daemon=True)
    thread.start()
    return thread


def _load(names: Sequence[str]) -> None:
    for name in names:
        try:
            import_module(name)
        except Exception:
            # Whoever needs it meets the same error, and answers with it.
            log.exception("%s cannot be loaded", name)
