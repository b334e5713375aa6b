"""The channel between the engine's process and one reader: messages, and connections with them.

A Unix socket that keeps the borders of messages.  A connection goes as the descriptor of its socket,
with the bytes that were received and not taken.  Messages of the link that are said in one turn of the loop go
together: a packet costs either process far more than a message does.  Knows nothing of what is done with any.

Invariants: messages and connections arrive in their order, each whole; a descriptor is closed here once it is
sent; the end of the other process is the end of the channel.
"""

import asyncio
import os
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from topics.protocol.model.errors import Unusable
from topics.server.readers.messages import FromReader, Lent, ToReader
from topics.server.readers.shared_heads import CURE

PART_BYTES: Final = 48 << 10
"""Of a message in one packet: well below what a socket takes at once by default."""
_MESSAGE: Final = b"M"
_PART: Final = b"P"
_HANDED: Final = b"H"
_RELAYED: Final = b"R"
_DESCRIPTOR_SPACE: Final = socket.CMSG_SPACE(4)
_ARRAY: Final = struct.Struct(">BH")
_ARRAY_16: Final = 0xDC
"""Of msgpack: a count in 16 bits follows, and then the elements."""
ARRAY_MAX: Final = 0xFFFF
WAITING_MAX: Final = 1024
"""Packets that wait for the other side, beyond which `is_clear` says no."""
LOW_PACKETS: Final = 4
"""Packets that wait for the other side, beyond which no more of what may wait is sent: a message is
never behind more than these."""
TURN_PACKETS: Final = 32
"""Taken in one turn of the loop: other connections have theirs."""
TURN_HANDED: Final = 8
"""Connections taken in one turn of the loop, as many as a listening socket accepts at most: each costs
far more than a message."""

_encode = msgspec.msgpack.Encoder().encode


class Handed(msgspec.Struct):
    """A connection that changes its process.

    Attributes:
        pending: Bytes that were received and not taken; the next request begins with them.
        lent: The watch session that goes with it.
        returns: How often it came back to the engine's process.
    """

    pending: bytes = b""
    lent: Lent | None = None
    returns: int = 0


_decode_handed = msgspec.msgpack.Decoder(Handed).decode


class Channel:
    """One end.

    Args:
        sock: Of a pair made by `channel_pair`.
        on_message: Called with the bytes of each message (`messages`), in order.
        on_handed: Called with each connection; owns its socket.
        on_end: Called once, when the other process has closed its end.
        on_unsent: Called then with each connection that was not sent; owns its socket.
        on_relayed: Called with messages of the link, which alone knows them, as one array of msgpack.

    Attributes:
        when_low: Called where `is_low` is true again.
    """

    def __init__(
        self,
        sock: socket.socket,
        *,
        on_message: Callable[[bytes], None],
        on_handed: Callable[[Handed, socket.socket], None],
        on_end: Callable[[], None],
        on_unsent: Callable[[Handed, socket.socket], None] = lambda _, sock: sock.close(),
        on_relayed: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        self._socket = sock
        self._on_message, self._on_handed, self._on_end = on_message, on_handed, on_end
        self._on_unsent, self._on_relayed = on_unsent, on_relayed
        self.when_low: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []
        self._waiting: deque[tuple[bytes, Handed | None, int]] = deque()
        self._relayed: list[bytes] = []
        """Messages of the link that go at the end of this turn."""
        self._relayed_bytes = 0
        self._is_writing = False
        self._may_take = 0
        """Connections that may yet be taken in this turn."""
        self._burst = 1
        self.is_open = True
        sock.setblocking(False)
        self._loop.add_reader(sock, self._readable)

    @property
    def is_clear(self) -> bool:
        """Whether what is sent now is taken soon."""
        return self.is_open and len(self._waiting) < WAITING_MAX

    @property
    def is_low(self) -> bool:
        """Whether nothing keeps what is sent now waiting for long."""
        return self.is_open and len(self._waiting) < LOW_PACKETS

    # ------------------------------------------------------------------ sending

    def send(self, message: ToReader | FromReader) -> None:
        """Send a message; one to an end that is gone is dropped."""
        self._send_relayed()
        self._send(_MESSAGE, _encode(message))

    def relay(self, data: bytes) -> None:
        """Send a message of the link with the others of this turn; one to an end that is gone is
        dropped."""
        relayed = self._relayed
        if not relayed:
            self._loop.call_soon(self._send_relayed)
        elif self._relayed_bytes + len(data) > PART_BYTES or len(relayed) == ARRAY_MAX:
            self._send_relayed()
        relayed.append(data)
        self._relayed_bytes += len(data)

    def _send_relayed(self) -> None:
        relayed = self._relayed
        if relayed:
            data = b"".join((_ARRAY.pack(_ARRAY_16, len(relayed)), *relayed))
            relayed.clear()
            self._relayed_bytes = 0
            self._send(_RELAYED, data)

    def hand(self, handed: Handed, descriptor: int) -> None:
        """Send a connection; its descriptor is closed here."""
        self._send_relayed()
        self._send(_HANDED, _encode(handed), handed, descriptor)

    def _send(
        self, kind: bytes, data: bytes, handed: Handed | None = None, descriptor: int = -1
    ) -> None:
        if not self.is_open:
            if handed is not None:
                self._on_unsent(handed, socket.socket(fileno=descriptor))
            return
        if len(data) > PART_BYTES:
            whole = range(0, len(data) - PART_BYTES, PART_BYTES)
            self._waiting += [(_PART + data[at : at + PART_BYTES], None, -1) for at in whole]
            data = data[len(whole) * PART_BYTES :]
        if handed is None and not self._waiting:
            try:
                self._socket.send(kind + data)
                return
            except BlockingIOError:
                pass
            except OSError:
                self.close()
                self._on_end()
                return
        self._waiting.append((kind + data, handed, descriptor))
        self._flush()

    def _flush(self) -> None:
        waiting = self._waiting
        while waiting:
            packet, handed, descriptor = waiting[0]
            try:
                if handed is None:
                    self._socket.send(packet)
                else:
                    socket.send_fds(self._socket, [packet], [descriptor])
            except BlockingIOError:
                if not self._is_writing:
                    self._is_writing = True
                    self._loop.add_writer(self._socket, self._flush)
                return
            except OSError:
                self.close()
                self._on_end()
                return
            waiting.popleft()
            if handed is not None:
                os.close(descriptor)
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._socket)
            if self.when_low is not None:
                self.when_low()

    # ------------------------------------------------------------------ receiving

    def _readable(self) -> None:
        self._may_take = TURN_HANDED
        taken = 0
        while taken < self._burst and self.is_open and self._may_take and self._receive():
            taken += 1
        # A look at an empty socket costs half of a packet: there are as many as there were, or more.
        self._burst = min(2 * taken, TURN_PACKETS) if taken == self._burst else max(taken, 1)

    def _receive(self) -> bool:
        """Take one packet; False where there is none now."""
        try:
            packet, ancillary, _, _ = self._socket.recvmsg(
                PART_BYTES + 64, _DESCRIPTOR_SPACE, socket.MSG_CMSG_CLOEXEC
            )
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            packet, ancillary = b"", []
        if not packet:
            self.close()
            self._on_end()
            return False
        kind, data = packet[:1], packet[1:]
        if kind == _PART:
            self._parts.append(data)
            return True
        if self._parts:
            data = b"".join((*self._parts, data))
            self._parts = []
        if kind == _RELAYED:
            self._on_relayed(data)
        elif kind == _MESSAGE:
            self._on_message(data)
        elif ancillary:
            self._may_take -= 1
            [(_, _, descriptor)] = ancillary
            sock = socket.socket(fileno=int.from_bytes(descriptor, sys.byteorder))
            self._on_handed(_decode_handed(data), sock)
        return True

    def close(self) -> None:
        """Send and receive nothing more."""
        if not self.is_open:
            return
        self.is_open = False
        self._loop.remove_reader(self._socket)
        if self._is_writing:
            self._loop.remove_writer(self._socket)
        self._socket.close()
        waiting, self._waiting = self._waiting, deque()
        for _, handed, descriptor in waiting:
            if handed is not None:
                self._on_unsent(handed, socket.socket(fileno=descriptor))


def channel_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets: the engine's and the reader's."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def require_channels() -> None:
    """See that a connection can change its process.  Raises Unusable."""
    try:
        ours, theirs = channel_pair()
        with ours, theirs:
            socket.send_fds(ours, [b"x"], [theirs.fileno()])
            _, descriptors, _, _ = socket.recv_fds(theirs, 1, 1, socket.MSG_CMSG_CLOEXEC)
            os.close(descriptors[0])
    except (OSError, IndexError) as error:
        why = getattr(error, "strerror", None) or "no descriptor arrived"
        what = f"readers are given connections over Unix sockets (socketpair, sendmsg with SCM_RIGHTS): {why}"
        raise Unusable("TOPICS_READERS", f"{what}; {CURE}") from error
