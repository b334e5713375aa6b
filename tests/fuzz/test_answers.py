"""No bytes of a server, or of something that answers in its place, make the client fail otherwise
than by an error of its own."""

from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from topics.client import models
from topics.client.call import decode_error
from topics.client.decoding import decoder_of
from topics.client.errors import BadAnswer
from topics.client.faults import Broken
from topics.client.http1 import ResponseParser
from topics.client.sse import Event, EventParser
from topics.client.streams import decode_event, is_payload, parse

from .mutation import damaged, fuzzed, pieces

ANSWERS = [
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.0 503 Unavailable\r\nretry-after: 1\r\n\r\nbusy",
    b"HTTP/1.1 429 Too Many\r\ncontent-length: 3\r\nconnection: close\r\n\r\nno!",
]


@fuzzed
@given(st.data())
def test_a_damaged_answer(data: st.DataObject) -> None:
    """A protocol error, or an answer; a connection with bytes nobody asked for is not used again."""
    stream = data.draw(damaged(ANSWERS))
    parser = ResponseParser()
    parser.expect()
    try:
        for piece in data.draw(pieces(stream)):
            parser.feed(piece)
        parser.end()
    except Broken:
        assert not parser.is_complete
    else:
        assert parser.is_complete
        assert 100 <= parser.status <= 999
    assert not parser.is_reusable


EVENTS = [
    b'retry: 2000\n\nevent: record\nid: eyJxIjozfQ\ndata: {"topic":"q","records":[{"$seq":3,'
    b'"$ts":1,"data":{}}],"from_seq":2,"to_seq":3,"head_seq":3}\n\n',
    b": hb 1748467205000\n\nevent: caught-up\nid: e30\ndata: {\ndata: }\n\n",
    b'event: error\r\ndata: {"code":429,"error":"slow","retry_after_ms":1500}\r\n\r\n',
    b"event: tombstone\rdata: {}\r\r",
]


@fuzzed
@given(st.data())
def test_a_damaged_stream_of_events(data: st.DataObject) -> None:
    """The same events however the stream is cut; each decodes or is a `BadAnswer`."""
    stream = data.draw(damaged(EVENTS))
    whole = parse(EventParser(), stream)
    parser = EventParser()
    cut = [event for piece in data.draw(pieces(stream)) for event in parse(parser, piece)]

    assert cut == whole
    for event in whole:
        if is_payload(event):
            assert isinstance(event, Event)
            with suppress(BadAnswer):
                decode_event(models.Diff[models.Record], event.data)


BODIES = [
    b'{"topic":"q","records":[{"$seq":3,"$ts":1,"$tag":"a","data":{"x":1e400},"meta":{}}],'
    b'"next_from_seq":3,"head_seq":3,"earliest_seq":1,"caught_up":true,"tombstone":null,"lag":0,'
    b'"epoch":"e-1"}',
    b'{"jobs":[{"$seq":1,"$ts":1,"data":null,"lease_id":"l","deliveries":1}],"topic":"q"}',
    b'{"error":{"code":"throttled","message":"m","detail":{"limit":"x"}}}',
]
KINDS = [models.Diff[models.Record], models.Claimed[models.Job], models.Appended]


@fuzzed
@given(damaged(BODIES), st.sampled_from(KINDS))
def test_a_damaged_body(body: bytes, kind: Any) -> None:
    """It decodes, or becomes an error that the client raises."""
    failed: Exception | None = None
    try:
        decoder_of(kind)(body)
    except (ValueError, UnicodeDecodeError) as error:
        failed = error
    if failed is not None:
        assert isinstance(decode_error("diff", 200, body, failed), BadAnswer)
