"""What waits to be sent over a channel in parts: bodies, answers, streams.

Owns the order: each flow that has something to send, and room for it at the other end, sends one
part and goes to the end of the line.  So a large answer holds up no small one, and a client that
does not read holds up nobody.  Knows nothing of what the parts are.

Invariant: of one flow at most `WINDOW_BYTES` are sent and not taken; of all flows, at most one part
goes into the channel beyond what it sends soon (`Channel.is_low`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from topics.protocol.model.records import Buffer
from topics.server.links.messages import PART_BYTES, WINDOW_BYTES, Part, encode

PARTS_PER_TURN: Final = 4
"""Sent in one turn of the loop."""

log = logging.getLogger("topics.links")


class Wire(Protocol):
    """The channel, as far as an outlet knows it."""

    when_low: Callable[[], None] | None

    @property
    def is_open(self) -> bool: ...

    @property
    def is_low(self) -> bool: ...

    @property
    def is_clear(self) -> bool:
        """Whether what is sent now is taken soon."""

    def relay(self, data: bytes) -> None: ...


class Supply(Protocol):
    """Where the bytes of a flow come from."""

    @property
    def is_over(self) -> bool:
        """Nothing more will come."""

    def take(self, most: int) -> Buffer:
        """The next bytes, `most` at the most; empty where there are none now."""


class Flow:
    """The parts of one request that go one way.

    Args:
        sent: Called once the last part was sent.
    """

    __slots__ = ("is_queued", "number", "room_bytes", "sent", "supply")

    def __init__(self, number: int, supply: Supply, sent: Callable[[], None]) -> None:
        self.number = number
        self.supply: Supply | None = supply
        self.sent = sent
        self.room_bytes = WINDOW_BYTES
        self.is_queued = False

    def close(self) -> None:
        """Send nothing more."""
        self.supply = None


class Outlet:
    """The flows of one channel."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._queue: deque[Flow] = deque()
        self._is_due = False
        self._loop = asyncio.get_running_loop()
        wire.when_low = self._soon

    def add(self, flow: Flow) -> None:
        """A flow may have something to send.  Sends nothing before it returns."""
        if not flow.is_queued and flow.supply is not None and flow.room_bytes > 0:
            flow.is_queued = True
            self._queue.append(flow)
            self._soon()

    def room(self, flow: Flow, size: int) -> None:
        """The other end has taken so many bytes."""
        flow.room_bytes += size
        self.add(flow)

    def _soon(self) -> None:
        if self._queue and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._is_due = False
        for _ in range(PARTS_PER_TURN):
            if not self._queue or not self._wire.is_low:
                break
            flow = self._queue.popleft()
            flow.is_queued = False
            try:
                self._send_part(flow)
            except Exception:
                log.exception("a stream failed")
                self._end(flow, b"")
        if self._wire.is_low:  # else `when_low` goes on
            self._soon()

    def _send_part(self, flow: Flow) -> None:
        supply = flow.supply
        if supply is None:
            return
        data = supply.take(min(PART_BYTES, flow.room_bytes))
        is_last = supply.is_over
        if not data and not is_last:
            return
        if is_last:
            self._end(flow, bytes(data))
        else:
            flow.room_bytes -= len(data)
            self._wire.relay(encode(Part(flow.number, bytes(data), is_last=False)))
            self.add(flow)

    def _end(self, flow: Flow, data: bytes) -> None:
        flow.close()
        self._wire.relay(encode(Part(flow.number, data, is_last=True)))
        flow.sent()
