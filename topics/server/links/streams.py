"""Streams of another process: the kinds, and their messages.

Owns what a message of each kind of stream is, for both ends: `served_streams` sends them, `remote_streams`
takes them.
"""

from enum import IntEnum
from typing import Final

import msgspec

from topics.protocol.driver.streams import SessionTopic
from topics.protocol.model.commands import Begin, View
from topics.protocol.model.outcomes import WatchPosition

SESSION: Final = "session"
"""The stream of a watch session (§7.3)."""
SOCKET: Final = "socket"
"""What a WebSocket is subscribed to (§7.7)."""
JOBS: Final = "jobs"
"""A worker's push stream (§10.8)."""
HAS_SESSION: Final = "has session"
HAS_QUEUE: Final = "has queue"
"""Whether a stream could be opened, which is then not."""


class MessageKind(IntEnum):
    """What a message is."""

    FRAME = 0
    """Head: `FrameHead`; text: the records'."""
    JOB = 1
    """Head: its seq; text: its record's, as it is served."""
    POSITIONS = 2
    """A subscription was made; head: where it stands in each topic."""
    REFUSED = 3
    """An order was refused; head: the rejection."""
    REMOVED = 4
    """Head: whether the topic was subscribed."""
    ENDED = 5
    """The server ends the stream; head: the name of a `StreamEnd`, or a rejection's."""
    SUBSCRIBE = 16
    """An order; head: `Subscribe`."""
    UNSUBSCRIBE = 17
    """An order; head: the name of a topic."""
    ADOPT = 18
    """Not answered: head: where the asker's half of the socket stood in a topic, which is the other
    half's from now on."""


# Paths of requests read these: Python 3.11 finds a member of an Enum through its metaclass, slowly.
ENDED: Final = MessageKind.ENDED
FRAME: Final = MessageKind.FRAME


class OpenSession(msgspec.Struct, frozen=True, array_like=True):
    wid: str
    rewind: str | None


class SessionOpened(msgspec.Struct, frozen=True, array_like=True):
    heartbeat_ms: int
    id: bytes


class FrameHead(msgspec.Struct, frozen=True, array_like=True):
    """Attributes:
    id: Where the stream stands behind the frame; empty of a socket.
    frame: See `codec.encode_frame`.
    """

    id: bytes
    frame: bytes


class Subscribe(msgspec.Struct, frozen=True, array_like=True):
    topics: dict[str, Begin]
    view: View


encode: Final = msgspec.msgpack.Encoder().encode
decode_open_session: Final = msgspec.msgpack.Decoder(OpenSession).decode
decode_session_opened: Final = msgspec.msgpack.Decoder(SessionOpened).decode
decode_frame_head: Final = msgspec.msgpack.Decoder(FrameHead).decode
decode_subscribe: Final = msgspec.msgpack.Decoder(Subscribe).decode
decode_positions: Final = msgspec.msgpack.Decoder(dict[str, WatchPosition]).decode
decode_standing: Final = msgspec.msgpack.Decoder(SessionTopic).decode
decode_name: Final = msgspec.msgpack.Decoder(str).decode
decode_flag: Final = msgspec.msgpack.Decoder(bool).decode
decode_number: Final = msgspec.msgpack.Decoder(int).decode
