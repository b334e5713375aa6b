"""One accepted connection, from its first byte to its last.

Owns the transport: which protocol it carries, how many received bytes are parsed at once, when
other connections have their turn, when writing has to wait, and how the connection ends.  Knows
nothing of requests and frames, which a `Speaker` handles.

Invariant: every connection ends.  An idle one ends by its deadline, one whose client does not read
by another, a closed one within `linger_s`.  Bytes that the speaker does not take yet are at most
`inbox_bytes`, and are dropped when the client is gone.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

from topics.protocol.model.errors import Rejection
from topics.protocol.model.holder import Holder
from topics.protocol.model.records import Buffer
from topics.server.transport.abuse_counts import Abuse
from topics.server.transport.budget import Meter
from topics.server.transport.connection_life import (
    CHOOSING,
    LIVE,
    LOST,
    OPEN,
    TABLE,
    ConnectionInput,
    ConnectionState,
)
from topics.server.transport.deadline import Deadline
from topics.server.transport.inbox import Inbox
from topics.server.transport.receive_pace import MUCH_BYTES
from topics.server.transport.shared import Shared
from topics.server.transport.speaker import Speaker

log = logging.getLogger("topics.http")

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
KAFKA_FIRST: Final = b"\0"
"""The first byte of a client of Kafka's: the length of a first frame, which is below 16 MiB."""
HIGH_BYTES: Final = 64 << 10
LOW_BYTES: Final = 16 << 10
"""Bytes written and not taken at which the speaker has to wait, and at which it may go on."""
SMALL_BYTES: Final = 2 << 10
"""A piece up to this size may be worked on as it comes.  A request in a larger one takes its turn: it
may be many times the work, and whoever sends it seldom uses little on average."""
RECEIVE_S: Final = 0.8e-9
"""What a received byte of many costs before anything looks at it: a copy, and memory to keep it in.
Measured, 0.8 ms a mebibyte.  Nobody sees it, since it is spent before the call."""


class Connection(asyncio.Protocol):
    """The protocol of an accepted socket.

    Args:
        http1, http2: Make an HTTP/1.1 and an HTTP/2 speaker of a connection; None: HTTP is not served.
        kafka: Makes one of Kafka's frames; None, here or of the call: Kafka's clients are not served.
    """

    def __init__(
        self,
        shared: Shared,
        http1: "Callable[[Connection], Speaker] | None",
        http2: "Callable[[Connection], Speaker] | None",
        kafka: "Callable[[Connection], Speaker | None] | None" = None,
    ) -> None:
        self.shared = shared
        self._loop_s = shared.loop.time
        self.client = ""
        self._holder: Holder
        self.is_paused = False
        """Backpressure: the client does not read.  Write no more, except small refusals."""
        self.is_ended = False
        """The client has closed its half."""
        self.deadline = Deadline(shared.loop, self._on_due)
        """The speaker's; the time is the loop's."""
        self.state = CHOOSING
        self._http1, self._http2, self._kafka = http1, http2, kafka
        self._transport: asyncio.Transport
        self._speaker: Speaker | None = None
        self._inbox = Inbox()
        self._is_reading = True
        self._is_queued = False
        self._is_busy = False
        self._meter = Meter(self._loop_s())
        self._stall: Deadline | None = None
        self._drained_bytes = 0

    # ------------------------------------------------------------------ called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is not an asyncio.Transport by descent.
        self._transport = cast(asyncio.Transport, transport)
        shared = self.shared
        peer = transport.get_extra_info("peername")  # None where the client has reset it already
        self.client = str(peer[0]) if isinstance(peer, tuple) else ""
        self._holder = shared.peer(self.client)
        try:
            shared.connection_shares.require(self._holder)
        except Rejection as refusal:
            log.warning("connections are reset as they come: %s", refusal.message)
            shared.abuses.hit(Abuse.TOO_MANY_CONNECTIONS)
            self._move(ConnectionInput.LOST)
            self._transport.abort()
            return
        shared.connections.add(self)
        shared.connection_shares.take(self._holder)
        self._transport.set_write_buffer_limits(high=HIGH_BYTES, low=LOW_BYTES)
        self.deadline.set(shared.loop.time() + shared.timeouts.idle_s)

    def data_received(self, data: bytes) -> None:
        if self.state not in LIVE:
            self._forget(len(data))
            return
        inbox = self._inbox
        inbox.put(data)
        turns = self.shared.turns
        if len(data) >= MUCH_BYTES:
            self._received_much(len(data))
        elif self._meter.is_heavy(self._loop_s()):
            if not self._is_queued:
                self._queue(is_light=False)
        elif (is_long := len(data) > SMALL_BYTES) or not turns.may_skip:
            if not self._is_queued:
                self._queue(is_light=True, is_long=is_long)
        else:
            turns.skipped(self._work(self.shared.limits.direct_turn_s), self._meter)
        if inbox.size_bytes >= self.shared.limits.inbox_bytes:
            self.stop_reading()

    def _received_much(self, size: int) -> None:
        """Charge what it took to receive so many bytes, and have a turn for them."""
        now_s = self._loop_s()
        self._meter.use(now_s, size * RECEIVE_S)
        is_heavy = self._meter.is_heavy(now_s)
        self.shared.receive_pace.received(size, self if is_heavy else None)
        if not self._is_queued:
            self._queue(is_light=not is_heavy)

    def eof_received(self) -> bool:
        self.is_ended = True
        if self.state is ConnectionState.FINISHING:
            self._transport.close()
        elif self.state is not LOST:
            # Not in its turn: a later request of another client must find this stream closed.
            self._work(self.shared.limits.turn_s)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        was = self.state
        self._move(ConnectionInput.LOST)
        self._inbox.clear()
        self.shared.receive_pace.forget(self)
        self.deadline.close()
        self._end_stall()
        if self._speaker is not None and was is not ConnectionState.FINISHING:
            self._speaker.close()
        self._speaker = None
        self.set_busy(False)
        self.shared.busy_poll.gone(self)
        if self in self.shared.connections:
            self.shared.connections.discard(self)
            self.shared.connection_shares.give_back(self._holder)

    def pause_writing(self) -> None:
        self.is_paused = True
        if self._stall is None:
            self._stall_in(self._stall_s, self._on_stall)

    def resume_writing(self) -> None:
        self.is_paused = False
        self._end_stall()
        if self._speaker is not None and self.state is OPEN:
            self._speaker.writable()

    # ------------------------------------------------------------------ turns

    def work_soon(self) -> None:
        """Have a turn soon: the speaker can go on.  Never runs anything before it returns."""
        if not self._is_queued and self.state in LIVE:
            self._queue(is_light=not self._meter.is_heavy(self._loop_s()))

    def _queue(self, *, is_light: bool, is_long: bool = False) -> None:
        self._is_queued = True
        self.shared.turns.add(self, self._meter, is_light=is_light, is_long=is_long)

    def go_on(self) -> None:
        """Have a turn soon if there is anything left to take: the speaker can go on."""
        if self._inbox.size_bytes or self.is_ended:
            self.work_soon()

    def take_turn(self) -> None:
        self._is_queued = False
        if self.state in LIVE:
            self._work(self.shared.limits.turn_s)

    def _work(self, turn_s: float) -> float:
        """Work for `turn_s` at most, and ask for another turn where there is more to do; returns the
        CPU time that it took."""
        stopwatch = self.shared.stopwatch
        begun_s = stopwatch.begin()
        has_more = self._run(begun_s + turn_s)
        used_s = stopwatch.end(begun_s)
        self._meter.use(self._loop_s(), used_s)
        if has_more and not self._is_queued and self.state in LIVE:
            # Metered: its place in line is behind what it used.
            self._queue(is_light=not self._meter.is_heavy(self._loop_s()), is_long=True)
        return used_s

    def _run(self, until_s: float) -> bool:
        """Feed the speaker until the time is over; returns whether there is more to do."""
        shared = self.shared
        has_more = False
        try:
            while self._step():
                if shared.clock() >= until_s:
                    has_more = True
                    break
        except Exception:
            log.exception("a connection failed")
            self.abort()
        if not self._is_reading and self._may_read():
            shared.receive_pace.ask(self)
        return has_more

    def _may_read(self) -> bool:
        has_room = self._inbox.size_bytes < self.shared.limits.inbox_bytes
        return has_room and self.state is not LOST and not self._transport.is_closing()

    def read(self) -> None:
        """Implements `receive_pace.Reader`: where there is no room now, it asks again when there is."""
        if not self._is_reading and self._may_read():
            self._is_reading = True
            self._transport.resume_reading()

    def stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._transport.pause_reading()

    def _step(self) -> bool:
        """Do one thing; False where there is nothing to do now."""
        speaker = self._speaker
        if speaker is None:
            return self.state is CHOOSING and self._choose()
        if speaker.work():
            return True
        inbox = self._inbox
        if inbox.piece:
            taken = speaker.receive(inbox.piece, inbox.at)
            if taken:
                if self.state is OPEN:  # else the speaker has ended the connection meanwhile
                    inbox.took(taken)
                    if not (inbox.piece or self.is_ended) and self._speaker is speaker:
                        return speaker.work()  # most often that was all there was to do
                return True
        if self.is_ended and self.state is OPEN:
            speaker.ended()
        return False

    def _choose(self) -> bool:
        """Choose the speaker by the first bytes, which stay in the inbox for it."""
        begin = self._inbox.first(len(PREFACE))
        if begin.startswith(KAFKA_FIRST):
            return self._choose_kafka()
        if not begin:
            if self.is_ended:
                self.finish()
            return False
        if self._http1 is None or self._http2 is None:
            log.info("%s speaks no Kafka on the port of Kafka's clients", self.client)
            self.finish()
            return False
        if len(begin) < len(PREFACE) and PREFACE.startswith(begin) and not self.is_ended:
            if begin:
                self.deadline.set(self.shared.loop.time() + self.shared.timeouts.head_s)
            return False
        is_http2 = begin == PREFACE
        if not is_http2 and is_foreign(self._inbox.piece):
            self.finish()
            return False
        make = self._http2 if is_http2 else self._http1
        self._move(ConnectionInput.CHOSEN)
        self._speaker = make(self)
        return True

    def _choose_kafka(self) -> bool:
        speaker = None if self._kafka is None else self._kafka(self)
        if speaker is None:
            log.info("%s speaks Kafka's protocol, which is not served here", self.client)
            self.finish()
            return False
        self._move(ConnectionInput.CHOSEN)
        self._speaker = speaker
        return True

    def _move(self, what: ConnectionInput) -> None:
        """One step of its life, by the table."""
        made = TABLE.get((self.state, what))
        assert made is not None, (self.state, what)
        self.state = made

    # ------------------------------------------------------------------ called by the speaker

    def write(self, data: Buffer) -> None:
        """Write; bytes that cannot be sent at once wait in the transport and set `is_paused`."""
        if self.state is not LOST:
            self._transport.write(data)

    def push(self, data: Buffer) -> bool:
        """Write without a turn; False, and nothing is written, where the client does not read."""
        if self.is_paused or self.state is LOST:
            return False
        self._transport.write(data)
        return True

    def become(self, speaker: Speaker) -> None:
        """Have another speaker from the next byte on (WebSocket).  The one before is not closed:
        its request goes on in the new one."""
        self._speaker = speaker
        self.work_soon()

    def set_busy(self, is_busy: bool) -> None:
        """Note whether a request is in flight; a stop waits for those."""
        if is_busy is not self._is_busy:
            self._is_busy = is_busy
            shared = self.shared
            if is_busy:
                shared.busy += 1
                shared.busy_poll.asked(self)
            else:
                shared.busy -= 1
                shared.busy_poll.answered(self)
            if not shared.busy and shared.when_quiet is not None:
                shared.when_quiet()

    def finish(self) -> None:
        """End the connection once the client has read what is written.

        A socket that is closed with unread bytes in it sends a reset, and the reset overtakes the
        answer; so received bytes are read and dropped until the client closes its half, or its time
        is over.
        """
        if self.state not in LIVE:
            return
        self._close_speaker()
        self._move(ConnectionInput.ENDED)
        waiting = self._inbox.size_bytes
        self._inbox.clear()
        timeouts = self.shared.timeouts
        self.shared.receive_pace.forget(self)
        unsent = self._transport.get_write_buffer_size()
        self.deadline.set(
            self.shared.loop.time() + (timeouts.write_s if unsent else timeouts.linger_s)
        )
        if not self._is_reading:
            self._is_reading = True
            self._transport.resume_reading()
        if self.is_ended or self._transport.is_closing():
            self._transport.close()
            return
        try:
            self._transport.write_eof()
        except (OSError, RuntimeError):  # the client is gone, which the transport has yet to report
            self._transport.abort()
            return
        self._forget(waiting)

    def bide(self) -> None:
        """Give a client that does not read `write_s` more from now, in the kernel, too."""
        timeouts = self.shared.timeouts
        self._stall_in(timeouts.write_s, self.abort)
        accepted: Any = self._transport.get_extra_info("socket")
        if accepted is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            most_ms = int((timeouts.take_s + timeouts.write_s + timeouts.linger_s) * 1000)
            with suppress(OSError):  # the client is gone, or the system refuses the option
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, most_ms)

    def abort(self) -> None:
        """End the connection now; unread bytes are lost."""
        if self.state is LOST:
            return
        self._close_speaker()
        self._move(ConnectionInput.ENDED)
        self._transport.abort()

    def give_away(self) -> tuple[int, bytes] | None:
        """Give the connection to another process, between two requests, and end it here: a
        descriptor of its socket, and the bytes that the speaker did not take.

        Returns:
            None, and nothing has changed, where bytes are still to be sent.
        """
        transport = self._transport
        accepted: Any = transport.get_extra_info("socket")
        if (
            self.state is not OPEN
            or accepted is None
            or transport.is_closing()
            or transport.get_write_buffer_size()
        ):
            return None
        if self._is_reading:
            self._is_reading = False
            transport.pause_reading()
        descriptor = os.dup(accepted.fileno())
        pending = self._inbox.all()
        self._inbox.clear()
        self.abort()
        return descriptor, pending

    def drain(self) -> None:
        """The server has stopped."""
        if self.state is CHOOSING:
            self.finish()
        elif self.state is OPEN and self._speaker is not None:
            self._speaker.drain()

    @property
    def local_address(self) -> tuple[str, int]:
        """Host and port by which the client came."""
        found: Any = self._transport.get_extra_info("sockname")
        return (str(found[0]), int(found[1])) if isinstance(found, tuple) else ("", 0)

    @property
    def unsent_bytes(self) -> int:
        return 0 if self.state is LOST else self._transport.get_write_buffer_size()

    # ------------------------------------------------------------------ the end

    def _close_speaker(self) -> None:
        speaker, self._speaker = self._speaker, None
        self.deadline.clear()
        if speaker is not None:
            speaker.close()
        self.set_busy(False)

    def _forget(self, size: int) -> None:
        self._drained_bytes += size
        if (
            self.state is ConnectionState.FINISHING
            and self._drained_bytes > self.shared.limits.drain_bytes
        ):
            self._transport.close()

    def _on_due(self) -> None:
        if self.state is OPEN and self._speaker is not None:
            self._speaker.due()
        elif self.state is CHOOSING:
            self.finish()
        else:
            self._transport.abort()

    @property
    def _stall_s(self) -> float:
        return min(self.shared.timeouts.take_s, self.shared.timeouts.write_s)

    def _on_stall(self) -> None:
        """The client has read nothing for a while: event streams may send a last frame."""
        self.shared.abuses.hit(Abuse.SLOW_READER)
        if self._speaker is not None and self.state is OPEN and self._speaker.stalled():
            self.bide()
        elif self.state is not LOST:
            left_s = max(self.shared.timeouts.write_s - self._stall_s, 0)
            self._stall_in(left_s, self.abort)

    def _stall_in(self, delay_s: float, then: Callable[[], None]) -> None:
        """Have a call made unless the client takes something in so many seconds."""
        self._end_stall()
        stall = self._stall = Deadline(self.shared.loop, then)
        stall.set(self.shared.loop.time() + delay_s)

    def _end_stall(self) -> None:
        if self._stall is not None:
            self._stall.close()
            self._stall = None


def is_foreign(begin: bytes) -> bool:
    """Whether the first bytes are the preface of another protocol, or a broken one of HTTP/2, and
    not a request: such a client would not understand an answer in HTTP/1.1."""
    line, end, _ = begin.partition(b"\r\n")
    words = line.split(b" ")
    is_named = bool(end) and len(words) > 2 and not words[-1].startswith(b"HTTP/")
    return is_named or line.startswith(b"PRI * HTTP/2")
