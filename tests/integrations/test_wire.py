"""Messages as records, and names of queues as names of topics."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.client.names import is_topic
from topics.integrations.wire import (
    from_data,
    message_from,
    require_namespace,
    to_data,
    topic_of,
)


def stored(encoded: bytes) -> msgspec.Raw:
    """The JSON of a record's data."""
    return msgspec.Raw(msgspec.json.encode(to_data(encoded)))


@given(st.binary())
def test_bytes_come_back_as_they_were(encoded: bytes) -> None:
    """An encoder of dramatiq may make any bytes of a message."""
    assert from_data(stored(encoded)) == encoded


def test_json_stays_json() -> None:
    """The messages of the default encoder can be read in the console and by any client."""
    message = b'{"actor_name": "add", "args": [1, 2]}'

    assert json.loads(bytes(stored(message))) == {"actor_name": "add", "args": [1, 2]}


@pytest.mark.parametrize("encoded", [b"[1, {}]", b"5", b"null", b"1.50"])
def test_any_json_but_a_string_stays_json(encoded: bytes) -> None:
    """Results are more than objects; a string would look like base64."""
    assert bytes(stored(encoded)) == encoded
    assert from_data(stored(b'"MTIz"')) == b'"MTIz"'


@pytest.mark.parametrize(
    "encoded",
    [
        *(b'{"x": NaN}', b'{"x": Infinity}', b"{", b'{"x": "\xff"}', b"{} ", b"\n{}"),
        *(b'{"x": "\\ud800"}', b'"\\uD800"', b"[" * 100_000, b""),
    ],
)
def test_what_only_looks_like_json_is_base64(encoded: bytes) -> None:
    """Python writes NaN, which is no JSON, and half a surrogate pair, which a server refuses (§2)."""
    assert isinstance(to_data(encoded), str)
    assert from_data(stored(encoded)) == encoded


@pytest.mark.parametrize("data", [b"5", b'"not base64!"', b"[]", b"null"])
def test_a_record_of_another_program_is_refused(data: bytes) -> None:
    """Only objects and base64 are messages."""
    with pytest.raises(ValueError):
        message_from(msgspec.Raw(data))


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_each_queue_has_a_topic_of_its_own(one: str, other: str) -> None:
    """Whatever a queue is called, its topic's name is valid and no other queue's (§1)."""
    one, other = (name.encode("utf-8", "replace").decode() for name in (one, other))
    assert is_topic(topic_of("d", one)) or len(topic_of("d", one)) > 255
    assert (topic_of("d", one) == topic_of("d", other)) == (one == other)


def test_a_plain_name_stays_readable() -> None:
    assert topic_of("dramatiq", "high-priority_1.XQ") == "dramatiq:high-priority_1.XQ"


@pytest.mark.parametrize("namespace", ["", ":a", "a b", "ä", "a/b"])
def test_a_namespace_that_no_topic_may_begin_with_is_refused(namespace: str) -> None:
    with pytest.raises(ValueError, match="namespace"):
        require_namespace(namespace)
