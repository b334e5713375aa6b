"""h2, set up for this server.

Owns the configuration of h2 and what it must not do: judge header lists, count streams, and remember
without a bound.  Uses only public names of h2 and hpack.
"""

import struct
from collections.abc import Iterable
from typing import Final

import h2.config
import h2.connection
import h2.settings
from h2.errors import ErrorCodes
from hpack import Decoder, HeaderTuple, OversizedHeaderListError

from topics.server.transport.http2.blocks import count_fields
from topics.server.transport.http2.fields import Fields
from topics.server.transport.http2.frames import PREFACE, FrameType
from topics.server.transport.limits import HEAD_BYTES_MAX

LIST_BYTES_MAX: Final = 64 << 10
"""A header list that is too large is decoded up to here, as the next one can only be read after it,
and refused; beyond it the connection ends."""
FIELDS_MAX: Final = 200
"""Likewise: each costs some microseconds, and may be a byte on the wire."""
STREAMS_UNBOUNDED: Final = 1 << 31

_CODE: Final = h2.settings.SettingCodes
_CONFIG: Final = h2.config.H2Configuration(
    client_side=False,
    header_encoding=None,
    validate_inbound_headers=False,
    normalize_inbound_headers=False,
    # Names are in lower case as the exchange makes them; checking each answer's again costs a third
    # of sending it.
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
)


class Library(h2.connection.H2Connection):
    """h2, which remembers fewer closed streams: each costs memory, and a frame for a forgotten one
    ends the connection only where the client is at fault."""

    MAX_CLOSED_STREAMS = 1 << 10


class Lists(Decoder):
    """Decodes header lists, if they are not too long, and keeps them from h2.

    h2 answers a malformed request with the end of the connection.  Without validation it still does
    so for a Content-Length that is no number or is not kept, and for a `:status`.

    Attributes:
        last: The list that was decoded last, until it is taken.
        plain: The next block, and the same block with its long strings as text (`blocks.plain`).
    """

    last: Fields = ()
    plain: tuple[bytes, bytes] | None = None

    def decode(self, data: bytes, raw: bool = False) -> Iterable[HeaderTuple]:
        del raw
        if self.plain is not None and self.plain[0] == data:
            data = self.plain[1]
        self.plain = None
        if len(data) > FIELDS_MAX and count_fields(data, FIELDS_MAX) > FIELDS_MAX:
            raise OversizedHeaderListError(f"more than {FIELDS_MAX} fields")
        self.last = list(super().decode(data, raw=True))
        return []

    def take(self) -> Fields:
        """The list that was decoded last.  It is not kept: it may have a client's key."""
        taken, self.last = self.last, ()
        return taken

    def close(self) -> None:
        """The connection has ended: what the client had in its table goes now, and not when a collection
        finds that nothing refers to it."""
        self.last, self.plain = (), None
        self.header_table_size = 0


def connection(*, streams: int) -> tuple[Library, Lists]:
    """A connection that has made its SETTINGS, and its decoder.

    Args:
        streams: How many streams at a time are announced.
    """
    made = Library(_CONFIG)
    announced = {
        _CODE.MAX_CONCURRENT_STREAMS: streams,
        _CODE.MAX_HEADER_LIST_SIZE: HEAD_BYTES_MAX,
        _CODE.ENABLE_CONNECT_PROTOCOL: 1,
    }
    made.local_settings = h2.settings.Settings(client=False, initial_values=announced)
    made.initiate_connection()
    made.receive_data(PREFACE)  # the client's, which `Splitter` has checked
    # h2 ends the connection for one stream too many, so it must not count them.
    kept = announced | {_CODE.MAX_CONCURRENT_STREAMS: STREAMS_UNBOUNDED}
    made.local_settings = h2.settings.Settings(client=False, initial_values=kept)
    lists = Lists()
    lists.max_header_list_size = LIST_BYTES_MAX
    made.decoder = lists
    return made, lists


def reset(stream_id: int, code: ErrorCodes) -> bytes:
    """A RST_STREAM of a stream that to h2 is closed."""
    head = struct.pack(">BBI", FrameType.RST_STREAM, 0, stream_id)
    return b"\0\0\x04" + head + struct.pack(">I", code)
