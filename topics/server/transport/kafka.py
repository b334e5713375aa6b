"""Kafka's frames on one connection: requests in, answers out, in the order of the requests.

Owns the frame that is being received, with its share of memory and its deadline, the requests on their way, and what of
their answers is not yet written.  Knows nothing of what a request means, which is the exchange's.

Invariants: no length is believed before its bytes are there; at most `REQUESTS` are on their way, and none is begun before
what the one ahead of it does is decided.
"""

import asyncio
import logging
from collections import deque
from struct import Struct
from typing import Final

from topics.protocol.model.records import Buffer
from topics.server.kafka.exchange import Answered, KafkaExchange, Refused
from topics.server.kafka.measures import End
from topics.server.kafka.steps import Running
from topics.server.transport.abuse_counts import Abuse
from topics.server.transport.bodies import BodyShare
from topics.server.transport.budget import Share
from topics.server.transport.connection import Connection
from topics.server.transport.outgoing import Outgoing

log = logging.getLogger("topics.kafka")

SIZE: Final = Struct(">i")
FRAME_BYTES_MIN: Final = 8
LOGIN_BYTES_MAX: Final = 64 << 10
"""Of a frame before a login."""
REQUESTS: Final = 32
"""Of one connection, on their way."""
FRAME_S: Final = 30
"""Without a byte of a frame that has begun."""
IDLE_S: Final = 600
"""Without a request: Kafka's `connections.max.idle.ms`."""


class Kafka:
    """Implements `speaker.Speaker`.

    Args:
        frame_bytes_max: Of a frame; a larger one ends the connection.
    """

    def __init__(
        self, connection: Connection, exchange: KafkaExchange, frame_bytes_max: int
    ) -> None:
        shared = connection.shared
        self._connection = connection
        self._shared = shared
        self._exchange = exchange
        self._measures = exchange.measures
        self._bytes_max = frame_bytes_max
        self._client = exchange.connected(
            connection.client, connection.local_address, connection.abort
        )
        self._body_share = BodyShare(shared.bodies, connection.client, self._gives_way)
        self._answers = Share(shared.answers, shared.limits.connection_answers_bytes)
        self._pieces: list[bytes] = []
        self._got = 0
        """Bytes of the frame that is being received, its length included."""
        self._size: int | None = None
        """Of the frame, as it says."""
        self._requests: deque[Running[Answered]] = deque()
        self._outgoing: deque[Outgoing] = deque()
        self._is_receiving = False
        self._is_ended = False
        self._mute_timer: asyncio.TimerHandle | None = None
        """While nothing is read."""
        self._wait_idle()

    # ------------------------------------------------------------------ frames

    def receive(self, data: bytes, at: int) -> int:
        if not self._may_begin():
            return 0
        self._is_receiving = True
        try:
            return self._take(data, at)
        except Refused as why:
            self._end(str(why), why.end)
            return len(data) - at
        finally:
            self._is_receiving = False

    def _may_begin(self) -> bool:
        requests = self._requests
        if self._outgoing or self._connection.is_paused or len(requests) >= REQUESTS:
            return False
        if self._mute_timer is not None:
            return False
        return not requests or not requests[-1].holds

    def _take(self, data: bytes, at: int) -> int:
        """Take bytes of one frame; a frame that is whole is begun."""
        begun = at
        if self._size is None:
            at = self._take_size(data, at)
            if self._size is None:
                return at - begun
        size = self._size
        missing = SIZE.size + size - self._got
        if not self._pieces and len(data) - at >= size:
            # Most frames come in one piece: nothing is copied.
            self._frame_is_there(memoryview(data)[at : at + size])
            return at + size - begun
        piece = data[at : at + missing]
        if not self._body_share.take(len(piece)):
            self._shared.abuses.hit(Abuse.SLOW_BODY)
            raise Refused("no memory for another request", End.LIMIT)
        self._pieces.append(piece)
        self._got += len(piece)
        if len(piece) == missing:
            self._body_share.settle()
            self._frame_is_there(memoryview(b"".join(self._pieces)))
        else:
            self._connection.deadline.set(self._shared.loop.time() + FRAME_S)
        return at + len(piece) - begun

    def _take_size(self, data: bytes, at: int) -> int:
        head = b"".join((*self._pieces, data[at : at + SIZE.size - self._got]))
        taken = len(head) - self._got
        self._got = len(head)
        if self._got < SIZE.size:
            self._pieces = [head]
            self._connection.deadline.set(self._shared.loop.time() + FRAME_S)
            return at + taken
        self._pieces = []
        (size,) = SIZE.unpack(head)
        most = self._bytes_max if self._client.may_ask else min(LOGIN_BYTES_MAX, self._bytes_max)
        if not FRAME_BYTES_MIN <= size <= most:
            why = f"a frame of {size} bytes, and at most {most} are taken"
            raise Refused(why, End.MALFORMED)
        self._size = size
        return at + taken

    def _frame_is_there(self, frame: memoryview) -> None:
        self._measures.received_bytes += SIZE.size + len(frame)
        self._size, self._got, self._pieces = None, 0, []
        running = self._exchange.begin(self._client, frame, self._on_answer)
        self._requests.append(running)
        self._connection.deadline.clear()
        self._connection.set_busy(True)
        running.go_on()

    def _gives_way(self) -> None:
        """Other clients need the memory."""
        self._body_share.close()
        self._end("its frame came too slowly, and others needed the memory", End.SLOW)

    # ------------------------------------------------------------------ answers

    def _on_answer(self, _: "Running[Answered]") -> None:
        """An answer is there, or a request has failed; those ahead of it come first."""
        requests = self._requests
        while requests and requests[0].is_over:
            done = requests.popleft()
            if done.failure is not None:
                self._failed(done.failure)
                return
            self._body_share.close() if not self._pieces else None
            if done.result:
                self._write(done.result)
            if self._client.mute_s:
                self._mute()
        if requests:
            if not self._is_receiving:
                self._connection.go_on()
            return
        self._connection.set_busy(False)
        if self._is_ended or self._shared.is_draining:
            if not self._outgoing:
                self._connection.finish()
            return
        if self._size is None and not self._got:
            self._wait_idle()
        if not self._is_receiving:
            self._connection.go_on()

    def _mute(self) -> None:
        """Read nothing for a while, whatever the client does (KIP-219)."""
        if self._mute_timer is None:
            self._mute_timer = self._shared.loop.call_later(self._client.mute_s, self._unmute)
        self._client.mute_s = 0.0

    def _unmute(self) -> None:
        self._mute_timer = None
        self._connection.go_on()

    def _failed(self, failure: Exception) -> None:
        if not isinstance(failure, Refused):
            log.error("a request of %s failed", self._connection.client, exc_info=failure)
        self._end(str(failure), failure.end if isinstance(failure, Refused) else End.FAILED)

    def _write(self, pieces: Answered) -> None:
        size = sum(map(len, pieces))
        self._measures.sent_bytes += SIZE.size + size
        framed: list[Buffer] = [SIZE.pack(size), *pieces]
        limits = self._shared.limits
        if size <= limits.answer_whole_bytes and not self._outgoing:
            self._connection.write(b"".join(framed))
            return
        if not self._answers.take(size + SIZE.size):
            self._end("no memory for its answer: answers before were not read", End.LIMIT)
            return
        self._outgoing.append(Outgoing(framed, self._answers))
        self._connection.work_soon()

    def work(self) -> bool:
        if not self._outgoing or self._connection.is_paused:
            return False
        first = self._outgoing[0]
        self._connection.write(first.take())
        if not first.left_bytes:
            self._outgoing.popleft()
            if not self._outgoing and not self._requests:
                if self._is_ended or self._shared.is_draining:
                    self._connection.finish()
                else:
                    self._connection.go_on()
        return bool(self._outgoing)

    def writable(self) -> None:
        self._connection.work_soon()

    # ------------------------------------------------------------------ the end

    def _wait_idle(self) -> None:
        self._connection.deadline.set(self._shared.loop.time() + IDLE_S)

    def _end(self, why: str, end: End) -> None:
        self._measures.ended(end)
        log.info("a connection of %s ends: %s", self._connection.client, why)
        self._connection.finish()

    def stalled(self) -> bool:
        return False

    def due(self) -> None:
        end = End.SLOW if self._got else End.IDLE
        self._end("nothing came for too long", end)

    def ended(self) -> None:
        self._is_ended = True
        if not self._requests and not self._outgoing:
            self._connection.finish()

    def drain(self) -> None:
        if not self._requests and not self._outgoing:
            self._connection.finish()

    def close(self) -> None:
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        requests, self._requests = self._requests, deque()
        for running in requests:
            running.cancel()
        for outgoing in self._outgoing:
            outgoing.close()
        self._outgoing.clear()
        self._answers.close()
        self._body_share.close()
        self._exchange.gone(self._client)
