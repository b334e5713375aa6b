"""What all connections of a server share: the exchange, bounds, budgets, turns, known heads.

Owns the set of connections that are open and the count of those with a request in flight, for which
a stop waits.  Knows nothing of what one connection does.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from topics.protocol.model.holder import Holder, holder_at
from topics.protocol.model.shares import Shares
from topics.server.http.interface import Exchange
from topics.server.observing.metrics import Family
from topics.server.transport.abuse_counts import AbuseCounts
from topics.server.transport.bodies import Bodies
from topics.server.transport.budget import Budget, Stopwatch, cpu_clock
from topics.server.transport.busy_poll import BusyPoll
from topics.server.transport.deferred_free import DeferredFree
from topics.server.transport.http1_heads import Heads
from topics.server.transport.limits import Timeouts, TransportLimits
from topics.server.transport.receive_pace import ReceivePace
from topics.server.transport.turns import Turns
from topics.server.transport.walks import Walks


class OpenConnections(Protocol):
    """A connection, as far as a stop knows it."""

    @property
    def unsent_bytes(self) -> int: ...

    def drain(self) -> None:
        """The server has stopped."""

    def abort(self) -> None:
        """End now; unread bytes are lost."""


class Shared:
    """What all connections of a server share.

    Args:
        peer: In whose share a connection from an address counts.
        busy_poll_s: How long the next request of a lone client is waited for awake.
        answers: The memory for answers; None: of their own, as the limits say.

    Attributes:
        busy: Connections with a request in flight.
        when_quiet: Called when the last request in flight has been answered.
        is_draining: The server stops; the exchange refuses further requests.
    """

    def __init__(
        self,
        exchange: Exchange,
        *,
        limits: TransportLimits | None = None,
        timeouts: Timeouts | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        clock: Callable[[], float] | None = None,
        peer: Callable[[str], Holder] = holder_at,
        busy_poll_s: float = 0.0,
        answers: Budget | None = None,
    ) -> None:
        self.exchange = exchange
        self.peer = peer
        self.limits = limits or TransportLimits()
        self.timeouts = timeouts or Timeouts()
        self.loop = loop or asyncio.get_running_loop()
        self.clock = clock or time.perf_counter
        """For slices of time.  Deadlines go by the loop's."""
        self.stopwatch = Stopwatch(self.clock, clock or cpu_clock())
        """By which a client is light or heavy."""
        self.turns = Turns(self.loop.call_soon, self.clock, self.limits.slice_s)
        self.walks = Walks(
            self.turns, self.stopwatch, self.clock, self.loop.time, self.limits.turn_s
        )
        self.busy_poll = BusyPoll(self.loop.call_soon, self.clock, busy_poll_s)
        self.receive_pace = ReceivePace(self.loop.call_soon, self.limits.pass_bytes)
        self.deferred_free = DeferredFree(self.loop.call_soon)
        self.bodies = Bodies(self.limits.bodies_bytes, self.limits.body_free_bytes)
        self.answers = answers or Budget(self.limits.answers_bytes)
        self.heads = Heads()
        self.connections: set[OpenConnections] = set()
        self.connection_shares = Shares(
            "max_connections", self.limits.connections, per_ip=self.limits.connections_per_ip
        )
        self.abuses = AbuseCounts()
        self.is_draining = False
        self.busy = 0
        self.when_quiet: Callable[[], None] | None = None

    def families(self) -> Iterator[Family]:
        """What metrics tell of the connections."""
        return self.abuses.families(len(self.connections))

    def drain(self) -> None:
        """End idle connections; one with a request in flight ends after its answer."""
        self.is_draining = True
        for connection in list(self.connections):
            connection.drain()
