"""h2 as it is set up: what it announces, what it may not judge, and what it may not remember."""

import struct

import h2.config
import h2.connection
import h2.events
import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from hpack import Encoder, OversizedHeaderListError

from topics.server.transport.http2 import library
from topics.server.transport.http2.frames import FRAME_BYTES_MAX
from topics.server.transport.limits import HEAD_BYTES_MAX

from .http2_rig import SOUND, frame


def connected(streams: int = 100) -> tuple[h2.connection.H2Connection, library.Library]:
    """A client of h2's, and ours; both have the other's SETTINGS."""
    made, _ = library.connection(streams=streams)
    config = h2.config.H2Configuration(
        client_side=True, header_encoding=None, validate_outbound_headers=False
    )
    client = h2.connection.H2Connection(config)
    client.initiate_connection()
    made.receive_data(client.data_to_send().removeprefix(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
    client.receive_data(made.data_to_send())
    made.receive_data(client.data_to_send())
    return client, made


def test_settings_say_what_is_served() -> None:
    """As many streams as asked for, the largest head, WebSockets, and no frame above 16 KiB."""
    client, _ = connected(streams=7)
    found = client.remote_settings

    assert found.max_concurrent_streams == 7
    assert found.max_header_list_size == HEAD_BYTES_MAX
    assert found[SettingCodes.ENABLE_CONNECT_PROTOCOL] == 1
    assert found.max_frame_size == FRAME_BYTES_MAX


def test_one_stream_too_many_is_not_for_h2_to_judge() -> None:
    """h2 would end the connection: the client may not have read our SETTINGS yet."""
    _, made = connected(streams=1)
    encoder = Encoder()
    for stream in (1, 3, 5):
        events = made.receive_data(frame(1, 4, stream, encoder.encode(SOUND)))
        assert [type(each) for each in events] == [h2.events.RequestReceived]


@pytest.mark.parametrize(
    "fields",
    [
        [*SOUND, (b"content-length", b"many")],
        [*SOUND, (b":status", b"200")],
        [(b"no", b"pseudo-headers")],
        [*SOUND, (b"Upper", b"case")],
        [],
    ],
)
def test_no_list_of_fields_is_for_h2_to_judge(fields: list[tuple[bytes, bytes]]) -> None:
    """A malformed request is an error of its stream; others are in flight on the connection."""
    made, lists = library.connection(streams=100)
    made.receive_data(frame(4, 0, 0))
    made.receive_data(frame(1, 5, 1, Encoder().encode(fields)))

    assert list(lists.last) == fields


def test_a_body_of_another_length_is_not_for_h2_to_judge() -> None:
    """Likewise: h2 does not know what the head said."""
    client, made = connected()
    client.send_headers(1, [*SOUND, (b"content-length", b"1")])
    client.send_data(1, b"more than one", end_stream=True)
    events = made.receive_data(client.data_to_send())

    assert any(isinstance(each, h2.events.StreamEnded) for each in events)


def test_a_list_is_counted_before_it_is_decoded() -> None:
    """A reference of one byte to a field of 4 KB costs as much as the field. (RFC 7541, 7)"""
    lists = library.Lists()
    lists.max_header_list_size = library.LIST_BYTES_MAX
    lists.decode(Encoder().encode(SOUND))
    with pytest.raises(OversizedHeaderListError):
        lists.decode(b"\x82" * (library.FIELDS_MAX + 1))
    assert list(lists.last) == SOUND
    lists.decode(b"\x82" * library.FIELDS_MAX)
    assert len(lists.last) == library.FIELDS_MAX


def test_a_key_stays_no_longer_than_its_client() -> None:
    """A list that was taken is not kept; the table, which an open connection needs, ends with it. (§0.2)"""
    lists = library.Lists()
    lists.decode(Encoder().encode([*SOUND, (b"authorization", b"Bearer secret")]))
    assert b"Bearer secret" in dict(lists.take()).values()
    assert lists.last == ()
    assert b"Bearer secret" in dict(lists.header_table.dynamic_entries).values()

    lists.close()

    assert not lists.header_table.dynamic_entries


def test_a_text_stands_for_its_own_block_alone() -> None:
    """A block that h2 did not come to decode leaves nothing behind."""
    lists, encoder = library.Lists(), Encoder()
    one, other = encoder.encode([(b"a", b"1")]), encoder.encode([(b"b", b"2")])
    lists.plain = other, b"not a block"
    lists.decode(one)
    assert list(lists.last) == [(b"a", b"1")]
    lists.decode(other)
    assert list(lists.last) == [(b"b", b"2")]


def test_closed_streams_are_forgotten() -> None:
    """h2 remembers 65,536 of a connection, which a client can make it do for nothing."""
    client, made = connected()
    for i in range(2 * library.Library.MAX_CLOSED_STREAMS):
        stream = 2 * i + 1
        client.send_headers(stream, SOUND, end_stream=True)
        made.receive_data(client.data_to_send())
        made.reset_stream(stream)
        client.receive_data(made.data_to_send())
        assert made.open_inbound_streams == 0  # h2 tidies up when it counts

    assert len(made._closed_streams) <= library.Library.MAX_CLOSED_STREAMS  # type: ignore[attr-defined]


def test_a_reset_of_a_stream_that_is_closed_to_h2() -> None:
    """A RST_STREAM, byte by byte (RFC 9113, 6.4)."""
    made = library.reset(7, ErrorCodes.PROTOCOL_ERROR)

    assert made == frame(3, 0, 7, struct.pack(">I", 1))
