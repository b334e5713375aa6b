"""What begins a stream, ends it, and how long the pause is before it is opened again (§7.5, §7.6)."""

import httpx
import pytest

from topics.client import (
    BadAnswer,
    Conflict,
    NotReady,
    Retry,
    Throttled,
    TopicNotFound,
    Unreachable,
)
from topics.client.endpoints import open_watch
from topics.client.faults import Broken
from topics.client.retry import Clock
from topics.client.sse import Event, EventParser, Reconnect
from topics.client.streams import (
    RECONNECT_S_MAX,
    decode_event,
    error_of_end,
    fault_of,
    is_payload,
    is_stream,
    parse,
    pause_before_reconnect_s,
    reconnect_s,
)


def answer(status: int, kind: str | None, text: bytes = b"") -> httpx.Response:
    headers = {} if kind is None else {"content-type": kind}
    return httpx.Response(status, headers=headers, content=text)


@pytest.mark.parametrize("kind", ["text/event-stream", "text/event-stream; charset=utf-8"])
def test_a_stream_is_an_answer_of_its_type(kind: str) -> None:
    """Of success; a refusal is none, whatever it says it is. (§7.5)"""
    assert is_stream(answer(200, kind))
    assert not is_stream(answer(404, kind))
    assert not is_stream(answer(404, "application/json"))


@pytest.mark.parametrize("kind", [None, "text/html", "application/json"])
def test_a_page_of_a_proxy_is_no_stream(kind: str | None) -> None:
    """A success of another type is an answer that the client cannot read."""
    with pytest.raises(BadAnswer, match=kind or "no content type"):
        is_stream(answer(200, kind))


def test_what_a_stream_is_for() -> None:
    """Events are, but not its errors, nor what only keeps it open. (§7.5)"""
    parsed = parse(
        EventParser(), b": hb\nretry: 5\n\nevent: record\ndata: {}\n\nevent: error\ndata: {}\n\n"
    )

    assert [is_payload(each) for each in parsed] == [False, False, True, False]


def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fill the client's memory."""
    monkeypatch.setattr("topics.client.sse.EVENT_BYTES_MAX", 10)

    with pytest.raises(BadAnswer, match="stream:"):
        parse(EventParser(), b"data: " + b"x" * 100)


@pytest.mark.parametrize("data", [b"{", b"\xff", b"[]", b'{"code":"x"}'])
def test_data_that_does_not_decode_is_a_bad_answer(data: bytes) -> None:
    """A `TopicsError` as any other, and no error of the decoder."""
    with pytest.raises(BadAnswer):
        fault_of(Event("error", data, None))


@pytest.mark.parametrize(
    ("data", "kind", "pause_s"),
    [
        (b'{"code":409,"error":"taken over"}', Conflict, None),
        (b'{"code":503,"error":"stopping","retry_after_ms":1500}', NotReady, 1.5),
        (b'{"code":429,"error":"slow"}', Throttled, None),
    ],
)
def test_an_error_event_is_the_exception_of_its_status(
    data: bytes, kind: type[Exception], pause_s: float | None
) -> None:
    """With the pause that it asks for. (§7.5)"""
    fault = fault_of(Event("error", data, None))

    assert isinstance(fault, kind)
    assert (fault.retry_after_s or None) == pause_s


def test_a_retry_field_is_obeyed_to_a_bound() -> None:
    """A server that is mistaken does not stop its clients for good. (§7.6)"""
    assert reconnect_s(Reconnect(2000)) == 2.0
    assert reconnect_s(Reconnect(10**12)) == RECONNECT_S_MAX


@pytest.mark.parametrize(
    ("asked_s", "fault_ms", "chance", "expected_s"),
    [
        (2.0, None, 0.0, 2.0),
        (2.0, None, 1.0, 3.0),
        (0.0, None, 0.0, 0.1),
        (2.0, 5000, 0.0, 5.0),
        (2.0, 1000, 0.5, 2.5),
    ],
)
def test_the_longest_wish_is_the_pause(
    asked_s: float, fault_ms: int | None, chance: float, expected_s: float
) -> None:
    """The server's, the error's or the client's own; with chance on top, so that the clients of a
    server that was restarted do not come back in one moment. (§7.6)"""
    fault = None
    if fault_ms is not None:
        fault = fault_of(Event("error", b'{"code":503,"retry_after_ms":%d}' % fault_ms, None))
    clock = Clock(lambda: 0.0, lambda: chance)

    pause_s = pause_before_reconnect_s(asked_s, fault, Retry(first_pause_s=0.1), clock)

    assert pause_s == pytest.approx(expected_s)


def test_an_end_has_an_error() -> None:
    """Of a stream that simply ends, of a connection that broke, and of a refusal."""
    call = open_watch("wid_x", None)
    refusal = b'{"error":{"code":"topic_not_found","message":"gone"}}'

    assert isinstance(error_of_end(call, answer(200, "text/event-stream")), Unreachable)
    assert isinstance(error_of_end(call, Broken("broken")), Unreachable)
    assert isinstance(error_of_end(call, answer(404, "application/json", refusal)), TopicNotFound)


def test_an_event_is_decoded_into_its_type() -> None:
    """Any that the client has."""
    assert decode_event(dict[str, int], b'{"a":1}') == {"a": 1}
