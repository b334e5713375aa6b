"""Messages of any framework as records, names of its queues as names of topics.

Knows no framework and sends nothing.  Invariant: bytes that were encoded are decoded to the same bytes.
"""

import base64
import re
from typing import Final

import msgspec

QUEUE: Final[dict[str, object]] = {
    "type": "queue",
    "discard": "reject",  # a queue with a cap refuses messages, and drops none
    "durability": "disk",
    "leases_durable": True,  # a task that runs while the server is killed is not handed out again
}
"""Config of each queue that a framework's broker creates, beneath what a program says of it."""
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")
_OTHER: Final = re.compile(r"[^A-Za-z0-9._-]")


def require_namespace(namespace: str) -> str:
    """The namespace, where a topic's name may begin with it.

    Raises:
        ValueError: It may not.
    """
    if _NAMESPACE.fullmatch(namespace) is None:
        raise ValueError(f"{namespace!r} is no namespace: letters, digits and . _ : - only")
    return namespace


def topic_of(namespace: str, queue_name: str) -> str:
    """The topic of a queue: `dramatiq:default`; a byte that no topic's name has is `:` and two digits.

    The names of two queues are never one topic, because `:` itself is written so, too.
    """
    return f"{namespace}:{escaped(queue_name)}"


def escaped(name: str) -> str:
    """A name as a part of a topic's: a byte that no topic's name has, and `:`, is `:` and two digits."""
    return _OTHER.sub(lambda found: "".join(f":{b:02x}" for b in found[0].encode()), name)


def is_json(encoded: bytes) -> bool:
    """Whether these bytes are JSON that a record keeps as it is."""
    if encoded[:1].isspace() or encoded[-1:].isspace():
        return False
    try:
        msgspec.json.decode(encoded)
    except (ValueError, RecursionError):
        return False  # NaN and infinities, say, which Python's json writes
    # Python writes half a surrogate pair as an escape, which the server refuses.
    return b"\\ud" not in encoded and b"\\uD" not in encoded


def to_data(encoded: bytes) -> msgspec.Raw | str:
    """The `data` of a record: JSON as it is, but for a string; all other bytes as base64 in a string."""
    if encoded.startswith(b'"') or not is_json(encoded):
        return base64.b64encode(encoded).decode()
    return msgspec.Raw(encoded)


def from_data(data: msgspec.Raw) -> bytes:
    """The bytes that `to_data` was given.

    Raises:
        ValueError: The record is a string that is no base64: another program wrote it.
    """
    raw = bytes(data)
    if not raw.startswith(b'"'):
        return raw
    return base64.b64decode(msgspec.json.decode(raw, type=str), validate=True)


def message_from(data: msgspec.Raw) -> bytes:
    """The bytes of a message that `to_data` was given.

    Raises:
        ValueError: The record is neither an object nor base64: another program wrote it.
    """
    if bytes(data)[:1] not in (b"{", b'"'):
        raise ValueError("Expected an object, or base64 in a string")
    return from_data(data)
