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
import socket
import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Protocol, cast

from topics.protocol.model.records import Buffer
from topics.server.exchange.interface import Exchange
from topics.server.transport.budget import Budget, Meter
from topics.server.transport.deadline import Deadline
from topics.server.transport.http1_heads import Heads
from topics.server.transport.limits import Limits, Timeouts
from topics.server.transport.turns import Turns

log = logging.getLogger("topics.http")

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HIGH_BYTES: Final = 64 << 10
LOW_BYTES: Final = 16 << 10
"""Bytes written and not taken at which the speaker has to wait, and at which it may go on."""


class Speaker(Protocol):
    """A protocol on a connection: it parses bytes into requests, and writes answers as bytes.

    All calls come on the event loop and none waits.  In a turn the connection calls `work` until
    that returns False, then `receive`, and so on, until the slice of time is over or there is
    nothing to do.  A speaker that waits for something (an answer, room, news) takes nothing
    meanwhile and calls `Connection.work_soon` when it is there.
    """

    def receive(self, data: bytes, at: int) -> int:
        """Take some of `data[at:]`, which is not empty: one request's worth, or `feed_bytes`.

        Returns:
            How many bytes were taken.  0: none now, and `receive` is not called before the next
            `Connection.work_soon` (or until more bytes come).
        """

    def work(self) -> bool:
        """Do one thing that is not parsing: carry out a request that is parsed already, send news
        of a stream.  False where there is nothing to do now."""

    def writable(self) -> None:
        """`Connection.is_paused` has ended: what waits may be written."""

    def stalled(self) -> bool:
        """The client has read nothing for `take_s`.  Send a last frame on the event streams; True
        where there are any, which gives the client `write_s` more."""

    def due(self) -> None:
        """The time that the speaker set on `Connection.deadline` has come."""

    def ended(self) -> None:
        """The client has closed its half, and the speaker has taken all that came, or takes nothing
        now.  Nothing more comes, but the client may still read answers.  May be called again."""

    def drain(self) -> None:
        """The server has stopped and made its last answers: end the connection if nothing is in
        flight.  Before that, `Shared.is_draining` has the answers announce it to their clients."""

    def close(self) -> None:
        """The connection is over: give up what is in flight.  Called once."""


class Shared:
    """What all connections of a server share.

    Attributes:
        when_quiet: Called when the last request in flight has been answered.
        is_draining: The server stops; the exchange refuses further requests.
    """

    def __init__(
        self,
        exchange: Exchange,
        *,
        limits: Limits | None = None,
        timeouts: Timeouts | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.exchange = exchange
        self.limits = limits or Limits()
        self.timeouts = timeouts or Timeouts()
        self.loop = loop or asyncio.get_running_loop()
        self.clock = clock or time.perf_counter
        """For slices of time.  Deadlines go by the loop's."""
        self.cpu_clock = clock or time.thread_time
        """CPU time of the loop's thread, by which a client is light or heavy: time in which the
        process waits for a CPU is not the client's fault.  Reading it costs ten times as much."""
        self.turns = Turns(self.loop.call_soon, self.clock, self.limits.slice_s)
        self.bodies = Budget(self.limits.bodies_bytes)
        self.answers = Budget(self.limits.answers_bytes)
        self.heads = Heads()
        self.connections: set[Connection] = set()
        self.is_draining = False
        self.busy = 0
        self.refused = 0
        self.when_quiet: Callable[[], None] | None = None

    def drain(self) -> None:
        """End idle connections; one with a request in flight ends after its answer."""
        self.is_draining = True
        for connection in list(self.connections):
            connection.drain()

    def made_busy(self, change: int) -> None:
        self.busy += change
        assert self.busy >= 0
        if self.busy == 0 and self.when_quiet is not None:
            self.when_quiet()


class ConnectionState(Enum):
    """Where a connection is in its life."""

    CHOOSING = "choosing"
    """Which protocol it speaks is not known yet."""
    OPEN = "open"
    FINISHING = "finishing"
    """No more requests or answers: written bytes are still sent, received bytes are dropped."""
    LOST = "lost"


class Connection(asyncio.Protocol):
    """The protocol of an accepted socket.

    Args:
        speakers: Make an HTTP/1.1 and an HTTP/2 speaker of a connection.
    """

    def __init__(
        self,
        shared: Shared,
        http1: "Callable[[Connection], Speaker]",
        http2: "Callable[[Connection], Speaker]",
    ) -> None:
        self.shared = shared
        self._loop_s = shared.loop.time
        self.client = ""
        self.is_paused = False
        """Backpressure: the client does not read.  Write no more, except small refusals."""
        self.is_ended = False
        """The client has closed its half."""
        self.deadline = Deadline(shared.loop, self._on_due)
        """The speaker's; the time is the loop's."""
        self.state = ConnectionState.CHOOSING
        self._http1, self._http2 = http1, http2
        self._transport: asyncio.Transport
        self._speaker: Speaker | None = None
        self._inbox: deque[bytes] = deque()
        self._inbox_at = 0
        """Bytes of the first that were taken."""
        self._inbox_bytes = 0
        self._is_reading = True
        self._is_queued = False
        self._is_busy = False
        self._meter = Meter(self._loop_s())
        self._stall: asyncio.TimerHandle | None = None
        self._drained_bytes = 0

    # ------------------------------------------------------------------ called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is not an asyncio.Transport by descent.
        self._transport = cast(asyncio.Transport, transport)
        shared = self.shared
        if len(shared.connections) >= shared.limits.connections:
            shared.refused += 1
            log.warning("connections are at their bound of %d", shared.limits.connections)
            self.state = ConnectionState.LOST
            self._transport.abort()
            return
        shared.connections.add(self)
        peer = transport.get_extra_info("peername")  # None where the client has reset it already
        self.client = str(peer[0]) if isinstance(peer, tuple) else ""
        self._transport.set_write_buffer_limits(high=HIGH_BYTES, low=LOW_BYTES)
        self.deadline.set(shared.loop.time() + shared.timeouts.idle_s)

    def data_received(self, data: bytes) -> None:
        if self.state in (ConnectionState.FINISHING, ConnectionState.LOST):
            self._forget(len(data))
            return
        self._inbox.append(data)
        self._inbox_bytes += len(data)
        turns = self.shared.turns
        if self._meter.is_heavy(self._loop_s()) or not turns.may_skip:
            self.work_soon()
        else:
            clock = self.shared.cpu_clock
            begun_s = clock()
            self._run()
            used_s = clock() - begun_s
            self._meter.use(self._loop_s(), used_s)
            turns.skipped(used_s)
        if self._inbox_bytes >= self.shared.limits.inbox_bytes and self._is_reading:
            self._is_reading = False
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self.is_ended = True
        if self.state is ConnectionState.FINISHING:
            self._transport.close()
        elif self.state is not ConnectionState.LOST:
            # Not in its turn: a later request of another client must find this stream closed.
            self._run()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        was, self.state = self.state, ConnectionState.LOST
        self._drop_inbox()
        self.deadline.close()
        if self._stall is not None:
            self._stall.cancel()
        if self._speaker is not None and was is not ConnectionState.FINISHING:
            self._speaker.close()
        self._speaker = None
        self.set_busy(False)
        self.shared.connections.discard(self)

    def pause_writing(self) -> None:
        self.is_paused = True
        if self._stall is None:
            self._stall = self.shared.loop.call_later(self._stall_s, self._on_stall)

    def resume_writing(self) -> None:
        self.is_paused = False
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        if self._speaker is not None and self.state is ConnectionState.OPEN:
            self._speaker.writable()

    # ------------------------------------------------------------------ turns

    def work_soon(self) -> None:
        """Have a turn soon: the speaker can go on.  Never runs anything before it returns."""
        if not self._is_queued and self.state in (ConnectionState.CHOOSING, ConnectionState.OPEN):
            self._is_queued = True
            meter = self._meter
            self.shared.turns.add(
                self, is_light=not meter.is_heavy(self._loop_s()), debt_s=meter.debt_s
            )

    def go_on(self) -> None:
        """Have a turn soon if there is anything left to take: the speaker can go on."""
        if self._inbox or self.is_ended:
            self.work_soon()

    def take_turn(self) -> None:
        self._is_queued = False
        if self.state in (ConnectionState.CHOOSING, ConnectionState.OPEN):
            self._meter.use(self._loop_s(), self._run())

    def _run(self) -> float:
        """Work, and feed the speaker, for `turn_s` at most; returns the time that it took."""
        shared = self.shared
        begun_s = now_s = shared.clock()
        until_s = begun_s + shared.limits.turn_s
        try:
            while self._step():
                now_s = shared.clock()
                if now_s >= until_s:
                    self.work_soon()
                    break
        except Exception:
            log.exception("a connection failed")
            self.abort()
        has_room = (
            self._inbox_bytes < shared.limits.inbox_bytes and self.state is not ConnectionState.LOST
        )
        if has_room and not self._is_reading and not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()
        return now_s - begun_s

    def _step(self) -> bool:
        """Do one thing; False where there is nothing to do now."""
        speaker = self._speaker
        if speaker is None:
            return self.state is ConnectionState.CHOOSING and self._choose()
        if speaker.work():
            return True
        if self._inbox:
            data = self._inbox[0]
            taken = speaker.receive(data, self._inbox_at)
            self._took(taken)
            if taken:
                return True
        if self.is_ended and self.state is ConnectionState.OPEN:
            speaker.ended()
        return False

    def _took(self, size: int) -> None:
        """Drop bytes from the inbox, unless the speaker has ended the connection meanwhile."""
        if self.state is not ConnectionState.OPEN:
            return
        self._inbox_bytes -= size
        self._inbox_at += size
        if self._inbox_at == len(self._inbox[0]):
            self._inbox.popleft()
            self._inbox_at = 0

    def _choose(self) -> bool:
        """Choose the speaker by the first bytes, which stay in the inbox for it."""
        begin = self._inbox[0] if self._inbox else b""
        if len(begin) < len(PREFACE) and len(self._inbox) > 1:
            begin = b"".join(self._inbox)
            self._inbox = deque([begin])
        if not begin and self.is_ended:
            self.finish()
            return False
        if len(begin) < len(PREFACE) and PREFACE.startswith(begin) and not self.is_ended:
            if begin:
                self.deadline.set(self.shared.loop.time() + self.shared.timeouts.head_s)
            return False
        is_http2 = begin.startswith(PREFACE)
        if not is_http2 and is_foreign(begin):
            self.finish()
            return False
        make = self._http2 if is_http2 else self._http1
        self.state = ConnectionState.OPEN
        self._speaker = make(self)
        return True

    # ------------------------------------------------------------------ called by the speaker

    def write(self, data: Buffer) -> None:
        """Write; bytes that cannot be sent at once wait in the transport and set `is_paused`."""
        if self.state is not ConnectionState.LOST:
            self._transport.write(data)

    def become(self, speaker: Speaker) -> None:
        """Have another speaker from the next byte on (WebSocket).  The one before is not closed:
        its request goes on in the new one."""
        self._speaker = speaker
        self.work_soon()

    def set_busy(self, is_busy: bool) -> None:
        """Note whether a request is in flight; a stop waits for those."""
        if is_busy is not self._is_busy:
            self._is_busy = is_busy
            self.shared.made_busy(1 if is_busy else -1)

    def finish(self) -> None:
        """End the connection once the client has read what is written.

        A socket that is closed with unread bytes in it sends a reset, and the reset overtakes the
        answer; so received bytes are read and dropped until the client closes its half, or its time
        is over.
        """
        if self.state in (ConnectionState.FINISHING, ConnectionState.LOST):
            return
        self._close_speaker()
        self.state = ConnectionState.FINISHING
        waiting = self._inbox_bytes
        self._drop_inbox()
        timeouts = self.shared.timeouts
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
        if self._stall is not None:
            self._stall.cancel()
        timeouts = self.shared.timeouts
        self._stall = self.shared.loop.call_later(timeouts.write_s, self.abort)
        accepted: Any = self._transport.get_extra_info("socket")
        if accepted is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            most_ms = int((timeouts.take_s + timeouts.write_s + timeouts.linger_s) * 1000)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, most_ms)

    def abort(self) -> None:
        """End the connection now; unread bytes are lost."""
        if self.state is ConnectionState.LOST:
            return
        self._close_speaker()
        self.state = ConnectionState.FINISHING
        self._transport.abort()

    def drain(self) -> None:
        """The server has stopped."""
        if self.state is ConnectionState.CHOOSING:
            self.finish()
        elif self.state is ConnectionState.OPEN and self._speaker is not None:
            self._speaker.drain()

    @property
    def unsent_bytes(self) -> int:
        return 0 if self.state is ConnectionState.LOST else self._transport.get_write_buffer_size()

    # ------------------------------------------------------------------ the end

    def _close_speaker(self) -> None:
        speaker, self._speaker = self._speaker, None
        self.deadline.clear()
        if speaker is not None:
            speaker.close()
        self.set_busy(False)

    def _drop_inbox(self) -> None:
        self._inbox.clear()
        self._inbox_at = self._inbox_bytes = 0

    def _forget(self, size: int) -> None:
        self._drained_bytes += size
        if (
            self.state is ConnectionState.FINISHING
            and self._drained_bytes > self.shared.limits.drain_bytes
        ):
            self._transport.close()

    def _on_due(self) -> None:
        if self.state is ConnectionState.OPEN and self._speaker is not None:
            self._speaker.due()
        elif self.state is ConnectionState.CHOOSING:
            self.finish()
        else:
            self._transport.abort()

    @property
    def _stall_s(self) -> float:
        return min(self.shared.timeouts.take_s, self.shared.timeouts.write_s)

    def _on_stall(self) -> None:
        """The client has read nothing for a while: event streams may send a last frame."""
        if (
            self._speaker is not None
            and self.state is ConnectionState.OPEN
            and self._speaker.stalled()
        ):
            self.bide()
        elif self.state is not ConnectionState.LOST:
            left_s = max(self.shared.timeouts.write_s - self._stall_s, 0)
            self._stall = self.shared.loop.call_later(left_s, self.abort)


def is_foreign(begin: bytes) -> bool:
    """Whether the first bytes are the preface of another protocol, or a broken one of HTTP/2, and
    not a request: such a client would not understand an answer in HTTP/1.1."""
    line, end, _ = begin.partition(b"\r\n")
    words = line.split(b" ")
    is_named = bool(end) and len(words) > 2 and not words[-1].startswith(b"HTTP/")
    return is_named or line.startswith(b"PRI * HTTP/2")
