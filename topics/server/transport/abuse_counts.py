"""How often a connection met a bound that is there for its neighbours' sake.

Owns the counts, for metrics.  What each guard does is where it stands; nothing is decided here.
"""

from collections.abc import Iterator
from enum import Enum

from topics.server.observing.metrics import Family, Sample


class Abuse(Enum):
    """What a client did."""

    TOO_MANY_CONNECTIONS = "too_many_connections"
    """It came when all connections, or its share of them, were taken, and was reset."""
    SLOW_HEAD = "slow_head"
    """The head of a request did not come in time."""
    SLOW_BODY = "slow_body"
    SLOW_READER = "slow_reader"
    """Nothing of what was written for it was taken for too long."""
    HTTP2_FLOOD = "http2_flood"
    """Frames that ask for nothing; the connection ended with ENHANCE_YOUR_CALM."""
    WEBSOCKET_FLOOD = "websocket_flood"
    """Frames that say nothing; the WebSocket was closed with 1008."""


class AbuseCounts:
    """The counts of one server."""

    def __init__(self) -> None:
        self._hits = dict.fromkeys(Abuse, 0)

    def hit(self, guard: Abuse) -> None:
        self._hits[guard] += 1

    def families(self, connections: int) -> Iterator[Family]:
        """The counts, and how many connections are open now."""
        text = "Open connections."
        yield Family("topics_connections", "gauge", text, [Sample(connections, {})])
        hits = [Sample(count, {"guard": guard.value}) for guard, count in self._hits.items()]
        text = "Clients that met a bound of the transport."
        yield Family("topics_guard_hits_total", "counter", text, hits)
