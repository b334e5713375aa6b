"""Messages as records, and names of queues as names of topics."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.client.names import is_topic
from topics.integrations.wire import (
    from_data,
    require_namespace,
    tag_of,
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


@pytest.mark.parametrize("encoded", [b'{"x": NaN}', b'{"x": Infinity}', b"{", b'{"x": "\xff"}'])
def test_what_only_looks_like_json_is_base64(encoded: bytes) -> None:
    """The encoder of dramatiq writes NaN, which is no JSON (§2)."""
    assert isinstance(to_data(encoded), str)
    assert from_data(stored(encoded)) == encoded


@pytest.mark.parametrize("data", [b"5", b'"not base64!"', b"[]", b"null"])
def test_a_record_of_another_program_is_refused(data: bytes) -> None:
    """Only objects and base64 are messages."""
    with pytest.raises(ValueError):
        from_data(msgspec.Raw(data))


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


def test_a_tag_that_is_too_long_is_left_out() -> None:
    """A tag has at most 256 bytes (§2)."""
    assert tag_of("ä" * 128) == "ä" * 128
    assert tag_of("ä" * 129) is None
    assert tag_of("") is None
