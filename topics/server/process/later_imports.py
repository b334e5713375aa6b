"""What few requests need, which a server loads when it serves already.

HTTP/2 and WebSocket come with libraries of their own, as cron does, and a request that wants to be read strictly
needs the table of the whole API.  To import all of that is a tenth of a start.  So each is imported
where it is needed, and `load` imports them on a thread once the server is ready: the first connection
that speaks HTTP/2 finds it there, or waits for some milliseconds.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from topics.distribution import install

if TYPE_CHECKING:
    from topics.server.http.interface import Exchange
    from topics.server.observing.metrics import Family
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
    "topics.protocol.model.timetable",
    *OF_READERS,
)
"""Each is imported in the function that needs it, and nowhere at the start."""

log = logging.getLogger("topics")


def http2(connection: "Connection", exchange: "Exchange | None" = None) -> "Speaker":
    """The HTTP/2 speaker of a connection."""
    from topics.server.transport.http2 import Http2

    return Http2(connection, exchange)


class KafkaFace:
    """Makes the speakers of Kafka's clients.  Nothing of their protocol is loaded before the first comes.

    Args:
        parts: Service, slots, guard and nodes of the server, as `KafkaExchange` takes them.
        on_revoked: Takes what is to be called when a key was removed.
        more: Takes what gives metrics.
        advertised: `host:port` that clients are told; None: that by which they came.
        data_dir: Where the server keeps its topics.
        frame_bytes_max: Of a request.
    """

    def __init__(
        self,
        parts: Callable[[], tuple[Any, Any, Any, Any]],
        on_revoked: Callable[[Callable[[Any], None]], None],
        more: "Callable[[Callable[[], Iterable[Family]]], None]",
        advertised: str | None,
        *,
        auto_create: bool,
        data_dir: str,
        frame_bytes_max: int,
    ) -> None:
        self._parts = parts
        self._on_revoked = on_revoked
        self._more = more
        self._advertised = advertised
        self._auto_create = auto_create
        self._data_dir = data_dir
        self._frame_bytes_max = frame_bytes_max
        self._exchange: Any = None
        self._is_missing = False

    def speaker(self, connection: "Connection") -> "Speaker | None":
        """The speaker of a connection; None where the libraries that it needs are not installed."""
        if self._is_missing:
            return None
        if find_spec("cramjam") is None or find_spec("crc32c") is None:
            self._is_missing = True
            log.error("Kafka's clients cannot be served: %s", install("kafka"))
            return None
        from topics.server.kafka.call import Rules
        from topics.server.kafka.exchange import KafkaExchange
        from topics.server.transport.kafka import Kafka

        if self._exchange is None:
            rules = Rules(_split(self._advertised), self._auto_create, self._data_dir)
            service, slots, guard, nodes = self._parts()
            self._exchange = KafkaExchange(service, slots, guard, rules, nodes)
            self._on_revoked(self._exchange.revoke)
            self._more(self._exchange.measures.families)
        return Kafka(connection, self._exchange, self._frame_bytes_max)


def _split(advertised: str | None) -> tuple[str, int] | None:
    if advertised is None:
        return None
    host, _, port = advertised.rpartition(":")
    return host, int(port)


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
