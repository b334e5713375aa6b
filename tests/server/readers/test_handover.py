"""Which requests are a reader's, by their first line."""

import pytest

from topics.server.readers.handover import LINE_BYTES_MAX, ReadKind, ReadTarget, asked, asked_by

TAIL = b"Host: localhost\r\n\r\n"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"POST /v0/topics/orders/diff HTTP/1.1", ReadTarget(ReadKind.RECORDS, "orders")),
        (b"POST /v0/topics/a.b_c:d-1/diff HTTP/1.0", ReadTarget(ReadKind.RECORDS, "a.b_c:d-1")),
        (b"POST /v0/topics/orders/diff?x=1 HTTP/1.1", ReadTarget(ReadKind.RECORDS, "orders")),
        (b"GET /v0/topics/orders/records HTTP/1.1", ReadTarget(ReadKind.RECORDS, "orders")),
        (
            b"GET /v0/topics/orders/records?from_seq=4&limit=9 HTTP/1.1",
            ReadTarget(ReadKind.RECORDS, "orders"),
        ),
        (b"HEAD /v0/topics/orders/records HTTP/1.1", ReadTarget(ReadKind.RECORDS, "orders")),
        (b"POST /v0/topics/orders/records HTTP/1.1", None),
        (b"GET /v0/topics/orders HTTP/1.1", None),
        (b"GET /v0/topics HTTP/1.1", ReadTarget(ReadKind.LIST, "")),
        (b"HEAD /v0/topics?prefix=a&page_size=5 HTTP/1.0", ReadTarget(ReadKind.LIST, "")),
        (b"GET /v0/routers?source=a HTTP/1.1", ReadTarget(ReadKind.LIST, "")),
        (b"GET /v0/topics/ HTTP/1.1", None),
        (b"GET /v0/topicsx HTTP/1.1", None),
        (b"GET /v0/routers/flow HTTP/1.1", None),
        (b"POST /v0/topics HTTP/1.1", None),
        (b"GET /v0/watch/wid_a-Z_9 HTTP/1.1", ReadTarget(ReadKind.STREAM, "wid_a-Z_9")),
        (b"GET /v0/watch/wid_1?last_event_id=x HTTP/1.1", ReadTarget(ReadKind.STREAM, "wid_1")),
        (b"GET /v0/topics/orders/diff HTTP/1.1", None),
        (b"POST /v0/topics/orders HTTP/1.1", None),
        (b"POST /v0/topics/orders/delete HTTP/1.1", None),
        (b"POST /v0/topics/or%64ers/diff HTTP/1.1", None),
        (b"POST /v0/topics/orders/diff/ HTTP/1.1", None),
        (b"POST http://host/v0/topics/orders/diff HTTP/1.1", None),
        (b"POST /v0/topics//diff HTTP/1.1", None),
        (b"post /v0/topics/orders/diff HTTP/1.1", None),
        (b"POST /v0/topics/orders/diff HTTP/2", None),
        (b"HEAD /v0/watch/wid_1 HTTP/1.1", None),
        (b"GET /v0/ws HTTP/1.1", ReadTarget(ReadKind.SOCKET, "")),
        (b"GET /v0/ws?token=x HTTP/1.1", ReadTarget(ReadKind.SOCKET, "")),
        (b"GET /v0/ws HTTP/1.0", None),
        (b"GET /v0/wss HTTP/1.1", None),
        (b"PRI * HTTP/2.0", None),
    ],
)
def test_a_line_says_whose_a_request_is(line: bytes, what: ReadTarget | None) -> None:
    """What is not plainly a reader's is the engine's, which serves everything."""
    assert asked(line + b"\r\n" + TAIL, 0) == what
    assert asked(b"before" + line + b"\r\n" + TAIL, len(b"before")) == what
    method, target, version = line.decode().split(" ")
    if version == "HTTP/1.1" and "://" not in target:
        assert asked_by(method, target.partition("?")[0].encode()) == what


def test_a_line_that_is_not_whole_is_the_engines() -> None:
    """Nobody waits for the rest of it, however long it is."""
    line = b"POST /v0/topics/orders/diff HTTP/1.1"
    assert asked(line, 0) is None
    long = b"GET /v0/watch/wid_1?" + b"x" * LINE_BYTES_MAX + b" HTTP/1.1\r\n"
    assert asked(long + TAIL, 0) is None
