"""The trace of an append in its records' meta, which stays the client's otherwise."""

import msgspec
import pytest

from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.trace_context import meta_with, traced
from topics.protocol.model.commands import Append
from topics.protocol.model.limits import Limits

PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
LIMITS = Limits()


def append(records: bytes, limits: Limits = LIMITS) -> Append:
    body = b'{"records":[%b]}' % records
    return parse_append("a", body, limits, return_seqs=True, header_key=None)


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        (None, b'{"traceparent":"%b"}' % PARENT),
        (b"{}", b'{"traceparent":"%b"}' % PARENT),
        (b"{ }", b'{"traceparent":"%b"}' % PARENT),
        (b'{"a": 1}', b'{"traceparent":"%b","a": 1}' % PARENT),
        (b'{"traceparent":"mine"}', b'{"traceparent":"mine"}'),
    ],
)
def test_the_trace_is_the_first_member_of_a_record_s_meta(
    meta: bytes | None, expected: bytes
) -> None:
    """What the client wrote stays as it wrote it."""
    found = meta_with(meta, PARENT)

    assert found == expected
    assert isinstance(msgspec.json.decode(found), dict)


def test_every_record_of_an_append_names_its_trace() -> None:
    """`TOPICS_TRACE_META`."""
    command = traced(append(b'{"data":1},{"data":2,"meta":{"k":"v"}}'), PARENT, LIMITS)

    assert command.metas is not None
    metas = [msgspec.json.decode(meta) for meta in command.metas if meta is not None]
    assert metas == [
        {"traceparent": PARENT.decode()},
        {"traceparent": PARENT.decode(), "k": "v"},
    ]


@pytest.mark.parametrize("header", [None, b"", b"garbage", b"00-" + b"0" * 32 + PARENT[35:]])
def test_what_is_no_traceparent_is_not_kept(header: bytes | None) -> None:
    """It would be the client's bytes in everybody's meta."""
    command = append(b'{"data":1}')

    assert traced(command, header, LIMITS) is command


@pytest.mark.parametrize(
    ("record", "limits"),
    [
        (b'{"data":1,"meta":{"k":"%b"}}' % (b"x" * 40), Limits(max_meta_bytes=64)),
        (b'{"data":"%b"}' % (b"x" * 40), Limits(max_record_bytes=64)),
        (
            b'{"data":1,"meta":{%b}}' % b",".join(b'"k%d":1' % i for i in range(64)),
            LIMITS,
        ),
    ],
)
def test_a_record_without_room_for_its_trace_stays_as_it_is(record: bytes, limits: Limits) -> None:
    """A record is never refused for what the server adds (§3.1's bounds)."""
    command = append(record, limits)

    again = traced(command, PARENT, limits)

    assert again.metas is not None
    before = [None] if command.metas is None else list(command.metas)
    assert list(again.metas) == before
